//! Ten thousand sockets that all send at once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::Config;
use pathlab::attempts::attempts;
use pathlab::measured;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use support::agent::{Running, Steering};
use support::crowd::{Crowd, allow_files};
use support::{Guard, can_run, loopback, maps, wait_until};

/// Of each socket, in bytes/s: of ten thousand 480 Mbit/s and 40,000 packets/s.
const RATE: u32 = 6_000;
const CWND: u32 = 64_000;
/// Every socket gets through within this, at about a packet per 240 ms.
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(6);

#[test]
fn kernel_ten_thousand_sockets_are_driven() {
    let test = "kernel_ten_thousand_sockets_are_driven";
    attempts(|| drive(test, "ccpscale", 10_000));
}

/// For machines, and guests, that ten thousand would swamp.
#[test]
fn kernel_five_hundred_sockets_are_driven() {
    let test = "kernel_five_hundred_sockets_are_driven";
    attempts(|| drive(test, "ccpscale500", 500));
}

/// In pairs: both ends of each connection send.
fn drive(test: &str, name: &str, sockets: usize) {
    if !can_run(test) {
        return;
    }
    allow_files(sockets as u64 + 1000);
    let config = Config {
        // On a machine this busy the agent's thread may wait longer than 100 ms for a core.
        silence: Duration::from_millis(500),
        ..Config::new(name)
    };
    let _guard = Guard::new(&config);
    let steering = Steering {
        every_us: 100_000,
        ..Steering::new(|_| (RATE, CWND))
    };
    let agent = Running::steering(support::start(&config), &steering);
    let netns = loopback();
    // Else TCP sends in bursts of up to 32 KiB, because loopback's RTT is so short (tcp_tso_autosize).
    let single = ["link", "set", "lo", "gso_max_segs", "1"];
    netns.configure("ip", &single).unwrap();
    let opening = Instant::now();
    let crowd = Crowd::start(&netns, name, sockets);
    println!("{sockets} sockets open after {:?}", opening.elapsed());
    wait_until("the datapath knows all flows", || {
        agent.observer().live_flows() == sockets
    });
    wait_until("the agent has heard of every flow", || {
        let flows = steering.flows();
        flows.len() == sockets && flows.iter().all(|flow| flow.reports.load(SeqCst) > 0)
    });
    std::thread::sleep(WARM_UP);

    let run_times = maps::RunTimes::enable();
    let before = (
        crowd.received(),
        agent.cpu_time(),
        steering.seen.reports.load(SeqCst),
        maps::run_times("ccp_"),
        Instant::now(),
    );
    std::thread::sleep(MEASURED);
    let seconds = before.4.elapsed().as_secs_f64();
    let bpf = maps::run_times("ccp_");
    drop(run_times);
    let cpu = (agent.cpu_time() - before.1).as_secs_f64() / seconds;
    let reports = (steering.seen.reports.load(SeqCst) - before.2) as f64 / seconds;
    let bpf_ns = (bpf.run_time_ns - before.3.run_time_ns) as f64;
    let bpf_runs = (bpf.runs - before.3.runs) as f64;
    let received = crowd.received();
    let mut rates: Vec<_> = received
        .iter()
        .zip(&before.0)
        .map(|(now, then)| (now - then) as f64 / seconds)
        .collect();
    rates.sort_by(f64::total_cmp);
    let (sum, least) = (rates.iter().sum::<f64>(), rates[0]);
    let slow = rates[sockets / 100];
    let thousands = sockets as f64 / 1000.0;
    println!(
        "{:.0} Mbit/s in all, the slowest {least:.0}, 1 % below {slow:.0} bytes/s; {reports:.0} reports/s; per 1,000 flows: \
         agent {:.2} % of a core, datapath {:.2} % ({:.0} ns per call, {:.0} calls/s)",
        sum * 8e-6,
        100.0 * cpu / thousands,
        100.0 * bpf_ns / 1e9 / seconds / thousands,
        bpf_ns / bpf_runs,
        bpf_runs / seconds,
    );

    let flows = steering.flows();
    let driven = flows.iter().filter(|flow| {
        let info = agent.observer().flow(flow.info.sock_id).unwrap();
        info.stats.invocations > 0 && info.driven.as_secs_f64() > 0.5 * info.age.as_secs_f64()
    });
    let driven = driven.count();
    let repeated = flows
        .iter()
        .filter(|flow| flow.creates.load(SeqCst) > 1)
        .count();
    let counters = agent.observer().counters();
    println!("{driven} driven for half of their lives, {repeated} offered again, {counters:?}");
    assert_eq!(flows.len(), sockets);
    assert_eq!(counters.no_slot, 0);
    steering.assert_right();

    crowd.finish();
    wait_until("all flows end", || agent.observer().live_flows() == 0);
    wait_until("the agent hears of every end", || {
        steering.open().is_empty()
    });
    let twice = steering
        .flows()
        .iter()
        .filter(|flow| flow.closes.load(SeqCst) != 1)
        .count();
    assert_eq!(twice, 0, "flows that were not closed exactly once");
    maps::assert_all_free(&config.pin_dir, config.max_flows);
    agent.stop();
    support::assert_gone(&config);

    measured!(driven == sockets, "the agent drove {driven} of {sockets}");
    measured!(
        least > 0.0 && slow > 0.25 * f64::from(RATE),
        "the slowest: {least:.0}, 1 % are below {slow:.0} bytes/s"
    );
    // Nobody else works on this rate: what they get together is what the agent gave.
    let asked = f64::from(RATE) * sockets as f64;
    measured!(
        (sum / asked - 1.0).abs() < 0.15,
        "{sum:.0} of {asked:.0} bytes/s"
    );
}
