//! A ring of events that is far too small, and an agent that hangs: what is lost is counted, logged
//! and made good.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::Config;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::Duration;
use support::agent::{Running, Steering};
use support::talk::Talk;
use support::{Guard, can_run, eventually, log, maps, wait_until};

const RATE: u32 = 300_000;
const CWND: u32 = 64_000;

#[test]
fn kernel_what_a_full_ring_loses_is_made_good() {
    if !can_run("kernel_what_a_full_ring_loses_is_made_good") {
        return;
    }
    log::collect();
    let config = Config {
        max_flows: 256,
        ring_bytes: 4096,
        // The agent hangs for less than this: the datapath goes on to offer and to report.
        silence: Duration::from_secs(20),
        ..Config::new("ccpring")
    };
    let _guard = Guard::new(&config);
    let steering = Steering::new(|_| (RATE, CWND));
    let agent = Running::steering(support::start(&config), &steering);
    let observer = agent.observer().clone();
    let talk = Talk::new(200);
    talk.open("ccpring", 40);
    wait_until("40 flows are driven", || steering.open().len() == 40);

    for round in 1..=3 {
        let before = observer.counters();
        let stall = steering.stall();
        let known = talk.ports();
        let unknown = talk.open("ccpring", 50);
        sleep(Duration::from_millis(300));
        // Of those that the agent knows, and of those that it does not.
        let reports_dropped = |sid| observer.flow(sid).unwrap().stats.reports_dropped;
        let dropped: u32 = steering.open().into_iter().map(reports_dropped).sum();
        let ended = known[..30].iter().chain(&unknown[..20]);
        ended.for_each(|port| talk.abort(*port));
        sleep(Duration::from_millis(200));
        let during = observer.counters();
        assert!(
            during.creates_dropped > before.creates_dropped,
            "{during:?}"
        );
        assert!(during.closes_dropped > before.closes_dropped, "{during:?}");
        let live = observer.live_flows();
        drop(stall);

        let ports: BTreeSet<_> = talk.ports().into_iter().collect();
        assert_eq!(live, ports.len(), "round {round}: live flows");
        let agree = || {
            let open: BTreeSet<_> = steering
                .open()
                .into_iter()
                .filter_map(|sid| observer.flow(sid))
                .map(|flow| flow.local.port())
                .collect();
            open == ports && steering.open().len() == ports.len()
        };
        assert!(
            eventually(Duration::from_secs(20), agree),
            "round {round}: portus knows {} flows, {} live; {:?}",
            steering.open().len(),
            ports.len(),
            observer.counters()
        );
        // Every live flow reports, and under its own settings.
        let reports = || -> Vec<u64> {
            let flows = steering.open().into_iter().filter_map(|sid| {
                let flows = steering.flows().into_iter();
                flows.into_iter().find(|flow| flow.info.sock_id == sid)
            });
            flows.map(|flow| flow.reports.load(SeqCst)).collect()
        };
        let then = reports();
        wait_until("every live flow reports", || {
            reports().iter().zip(&then).all(|(now, then)| now > then)
        });
        println!(
            "round {round}: lost {} creates, {} closes, {dropped} reports; all {} live flows are driven",
            during.creates_dropped - before.creates_dropped,
            during.closes_dropped - before.closes_dropped,
            ports.len()
        );
        assert!(dropped > 0, "reports dropped");
    }
    steering.assert_right();
    for text in ["closes were lost", "new flows will be offered again"] {
        assert!(
            !log::lines_with(text).is_empty(),
            "no log line with '{text}'"
        );
    }

    talk.finish();
    wait_until("all flows end", || observer.live_flows() == 0);
    wait_until("portus knows no flow", || steering.open().is_empty());
    let wrong = steering
        .flows()
        .iter()
        .filter(|flow| flow.closes.load(SeqCst) != 1)
        .count();
    assert_eq!(wrong, 0, "flows that were not closed exactly once");
    let flows = steering.flows();
    let anew = flows.iter().filter(|flow| flow.creates.load(SeqCst) != 1);
    assert_eq!(anew.count(), 0, "flows that were offered again began anew");
    maps::assert_all_free(&config.pin_dir, config.max_flows);
    agent.stop();
    support::assert_gone(&config);
}

/// A program that fails is seen while its flows live, and in the sum when they have ended.
#[test]
fn kernel_program_runs_given_up_are_told() {
    if !can_run("kernel_program_runs_given_up_are_told") {
        return;
    }
    let config = Config {
        max_flows: 16,
        ..Config::new("ccpfails")
    };
    let _guard = Guard::new(&config);
    let mut steering = Steering::new(|_| (RATE, CWND));
    steering.every_us = 0;
    let agent = Running::steering(support::start(&config), &steering);
    let observer = agent.observer().clone();
    let talk = Talk::new(200);
    talk.open("ccpfails", 3);
    wait_until("all flows tell of errors", || {
        let flows = observer.flows();
        flows.len() == 3 && flows.iter().all(|(_, flow)| flow.program_errors > 3)
    });
    assert_eq!(observer.counters().program_errors, 0, "while they live");
    talk.finish();
    wait_until("portus knows no flow", || steering.open().is_empty());
    assert!(observer.counters().program_errors > 9);
    agent.stop();
    support::assert_gone(&config);
}
