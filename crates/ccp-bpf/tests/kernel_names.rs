//! Several algorithms under several names, from one agent.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::{Config, Datapath, Error, Origin};
use portus::ipc::Ipc;
use portus::{CongAlg, DatapathInfo, RunBuilder};
use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use support::agent::{Running, Steered, Steering};
use support::talk::Talk;
use support::tcp::{self, TcpInfo};
use support::{Guard, can_run, is_listed, wait_until};

const NAMES: [&str; 3] = ["ccpname0", "ccpname1", "ccpname2"];
/// Each algorithm is known by its rate.
const RATES: [u32; 3] = [1_000_000, 1_500_000, 2_000_000];

/// The algorithm for one of the names.
struct Named<const INDEX: usize>(Steering);

impl<const INDEX: usize> Named<INDEX> {
    fn new() -> Self {
        Self(Steering::new(|_| (RATES[INDEX], 1_000_000)))
    }
}

impl<const INDEX: usize, I: Ipc> CongAlg<I> for Named<INDEX> {
    type Flow = Steered<I>;

    fn name() -> &'static str {
        NAMES[INDEX]
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        CongAlg::<I>::datapath_programs(&self.0)
    }

    fn new_flow(&self, datapath: portus::Datapath<I>, info: DatapathInfo) -> Steered<I> {
        self.0.new_flow(datapath, info)
    }
}

/// All three algorithms, whichever names the datapath has. The first is the default.
fn run(datapath: Datapath) -> Running {
    Running::with(datapath, |backend, go_on| {
        RunBuilder::new(backend)
            .default_alg(Named::<0>::new())
            .additional_alg(Named::<1>::new())
            .additional_alg(Named::<2>::new())
            .with_stop_handle(go_on)
            .run()
    })
}

#[test]
fn kernel_names_choose_algorithms_and_change_while_flows_live() {
    if !can_run("kernel_names_choose_algorithms_and_change_while_flows_live") {
        return;
    }
    let config = |names: &[usize]| Config {
        names: names.iter().map(|name| NAMES[*name].to_owned()).collect(),
        max_flows: 64,
        ..Config::new(NAMES[0])
    };
    let _guard = Guard::new(&config(&[0]));
    let talk = Talk::new(500);
    let open = |name: usize| {
        let ports = talk.open(NAMES[name], 2);
        talk.wait_paced(&ports, RATES[name].into());
        ports
    };
    let agent = run(support::start(&config(&[0, 1])));
    let (zeros, ones) = (open(0), open(1));
    assert!(!is_listed(NAMES[2]));
    assert_eq!(agent.observer().live_flows(), 4);
    agent.leave();

    // The second name goes, a third one comes.
    let datapath = support::start(&config(&[0, 2]));
    assert_eq!(datapath.origin(), Origin::Adopted);
    let agent = run(datapath);
    assert!(!is_listed(NAMES[1]));
    let refused = talk.try_open(NAMES[1]).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::NotFound));
    let twos = open(2);
    // The live sockets of before: the kept name's as ever; the dropped one's still under the
    // algorithm of their name, which this agent has too.
    talk.wait_paced(&zeros, RATES[0].into());
    talk.wait_paced(&ones, RATES[1].into());
    talk.wait_paced(&twos, RATES[2].into());
    assert_eq!(agent.observer().live_flows(), 6);
    agent.leave();

    // And back again, while all of them live.
    let agent = run(support::start(&config(&[0, 1, 2])));
    for (ports, rate) in [(&zeros, 0), (&ones, 1), (&twos, 2), (&open(1), 1)] {
        talk.wait_paced(ports, RATES[rate].into());
    }
    assert_eq!(agent.observer().live_flows(), 8);
    talk.finish();
    wait_until("all flows end", || agent.observer().live_flows() == 0);
    agent.stop();
    support::assert_gone(&config(&[0, 1, 2]));
}

#[test]
fn kernel_a_name_on_its_way_out_is_waited_for() {
    if !can_run("kernel_a_name_on_its_way_out_is_waited_for") {
        return;
    }
    let before = Config::new("ccpleaving");
    let after = Config {
        pin_dir: "/sys/fs/bpf/ccpleaving-after".into(),
        lock_dir: "/run/ccpleaving-after".into(),
        ..before.clone()
    };
    let _guards = [&before, &after].map(Guard::new);
    let first = support::start(&before);
    let error = Datapath::start(after.clone()).err().unwrap();
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
    let leaving = spawn(move || {
        sleep(Duration::from_millis(200));
        first.stop().unwrap();
    });
    let second = support::start(&after);
    assert_eq!(second.origin(), Origin::Loaded);
    leaving.join().unwrap();
    second.stop().unwrap();
    support::assert_gone(&after);
}

#[test]
fn kernel_a_connection_of_the_first_moment_is_not_held_back() {
    if !can_run("kernel_a_connection_of_the_first_moment_is_not_held_back") {
        return;
    }
    let config = Config::new("ccpearly");
    let _guard = Guard::new(&config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let sink = tcp::sink(listener);
    let early = spawn(move || {
        let mut connection = loop {
            match tcp::connect(to, "ccpearly") {
                Ok(connection) => break connection,
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
            }
        };
        let begin = Instant::now();
        connection.write_all(&[0; 4_000_000]).unwrap();
        wait_until("all has arrived", || {
            TcpInfo::of(&connection).unacked() == 0
        });
        begin.elapsed()
    });
    let datapath = support::start(&config);
    let took = early.join().unwrap();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(sink.join().unwrap(), 4_000_000);
    datapath.stop().unwrap();
}
