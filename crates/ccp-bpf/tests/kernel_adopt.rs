//! Connections that run already are taken over, and handed back.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::{Config, Connections, Moved};
use support::agent::{Running, Steering};
use support::talk::Talk;
use support::{Guard, can_run, maps, wait_until};

const NAME: &str = "ccpadopt";
const RATE: u32 = 1_000_000;
/// Both ends of a connection are in the namespace, and the receiving ones have its default.
const MAX_FLOWS: u32 = 64;

fn using(name: &str, local_ports: &[u16]) -> Connections {
    Connections {
        using: vec![name.to_owned()],
        local_ports: local_ports.to_vec(),
        every_socket: false,
    }
}

#[test]
fn kernel_running_connections_are_adopted_and_handed_back() {
    if !can_run("kernel_running_connections_are_adopted_and_handed_back") {
        return;
    }
    let config = Config {
        max_flows: MAX_FLOWS,
        ..Config::new(NAME)
    };
    let _guard = Guard::new(&config);
    let talk = Talk::new(3_000);
    let cubic = talk.open("cubic", 4);
    let reno = talk.open("reno", 2);
    wait_until("all connections carry data", || {
        let busy = |port: &u16| talk.info(*port).bytes_acked() > 30_000;
        cubic.iter().chain(&reno).all(busy)
    });
    let steering = Steering::new(|_| (RATE, 100_000));
    let agent = Running::steering(support::start(&config), &steering);

    // One by its port, then those of one congestion control by their ports; others stay.
    let moved =
        |connections: Connections, to: &str| talk.enter(|| connections.move_to(to)).unwrap();
    let one = moved(using("cubic", &cubic[..1]), NAME);
    assert_eq!((one.moved, one.refused), (1, 0));
    talk.wait_paced(&cubic[..1], RATE.into());
    let rest = moved(using("cubic", &cubic), NAME);
    assert_eq!((rest.moved, rest.refused), (3, 0));
    talk.wait_paced(&cubic, RATE.into());
    assert_eq!(agent.observer().live_flows(), 4);
    for port in &cubic {
        assert_eq!(talk.congestion(*port), NAME);
    }
    for port in &reno {
        assert_eq!(talk.congestion(*port), "reno");
    }
    // What was carried before does not count.
    for flow in steering.flows() {
        let info = agent.observer().flow(flow.info.sock_id).unwrap();
        let total = talk.info(info.local.port()).bytes_acked();
        assert!(info.stats.bytes_acked < total - 30_000 + 3_000, "{info:?}");
    }

    // A congestion control that does not exist is refused, and changes nothing.
    let refused = moved(using(NAME, &[]), "nosuch");
    assert_eq!((refused.moved, refused.refused), (0, 4));
    talk.wait_paced(&cubic, RATE.into());

    let everything = Connections {
        every_socket: true,
        ..using(NAME, &[])
    };
    let back = moved(everything, "cubic");
    assert_eq!((back.moved, back.refused), (4, 0));
    wait_until("portus knows no flow", || steering.open().is_empty());
    assert_eq!(agent.observer().live_flows(), 0);
    for port in &cubic {
        assert_eq!(talk.congestion(*port), "cubic");
    }
    assert_eq!(moved(using(NAME, &[]), "cubic"), Moved::default());
    let then: Vec<_> = cubic
        .iter()
        .map(|port| talk.info(*port).bytes_acked())
        .collect();
    wait_until("all connections go on", || {
        let acked = cubic.iter().map(|port| talk.info(*port).bytes_acked());
        acked.zip(&then).all(|(now, then)| now > then + 100_000)
    });
    talk.finish();
    steering.assert_right();
    maps::assert_all_free(&config.pin_dir, MAX_FLOWS);
    agent.stop();
    support::assert_gone(&config);
}
