//! An agent that dies, hangs, comes back or is stopped while connections run: they go on, under the
//! datapath's fallback, at what plain Cubic reaches on the same path, and without a pause. An upgrade they hardly feel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::agent::{Agent, LogLine, PROGRAM};
use common::load::{BIN, Demand, Load, Outcome, congestion_from};
use common::machine::KernelTest;
use common::{NAME, eventually, path};
use pathlab::attempts::attempts;
use pathlab::measured;
use pathlab::scenario::PathSpec;
use serde_json::Value;

/// Time for the fast start before anything happens to the agent.
const WARM_UP: Duration = Duration::from_secs(4);
/// How long each situation lasts.
const PHASE: Duration = Duration::from_secs(5);
/// From an event until its effect is measured.
const SETTLE: Duration = Duration::from_secs(1);
/// No connection may be without progress for longer.
const LONGEST_STALL: Duration = Duration::from_secs(2);
/// Share of plain Cubic's goodput that the fallback must reach.
const FALLBACK_SHARE: f64 = 0.8;
/// Over any second of an upgrade, as much of what was reached before arrives.
const UPGRADE_SHARE: f64 = 0.95;
const SECOND: Duration = Duration::from_secs(1);
const READOPTION: Duration = Duration::from_secs(1);
/// Of a connection's life, over an upgrade, the agents drove so much.
const UPGRADE_DRIVEN: f64 = 0.9;
/// The same, frozen for five of eleven seconds.
const FROZEN_DRIVEN: f64 = 0.4;
/// From the end of the load until the agent has logged the end of its connections.
const ENDS: Duration = Duration::from_secs(5);

/// A path, and the connections over it.
struct Situation {
    spec: PathSpec,
    connections: usize,
}

fn clean() -> Situation {
    Situation {
        spec: path::spec(50, 40, 0.0),
        connections: 1,
    }
}

/// Cubic reaches 2 Mbit/s here, give or take: only the sum of several connections is stable.
fn lossy() -> Situation {
    Situation {
        spec: path::spec(50, 40, 0.02),
        connections: 16,
    }
}

fn wait_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

impl Situation {
    /// What plain Cubic reaches behind its own start, in Mbit/s: measured again for each attempt, since it is as much a
    /// matter of luck as what is judged by it.
    fn cubic_mbps(&self) -> f64 {
        let path = path::open(&self.spec);
        let load = Load::over(&path, "cubic", self.connections, Demand::Greedy);
        wait_until(load.start() + WARM_UP + PHASE);
        let outcome = load.finish();
        outcome.assert_intact();
        path::close(path);
        outcome.goodput_mbps(WARM_UP, WARM_UP + PHASE)
    }
}

/// Fails unless the phase that began at `from` after the start was as good as Cubic.
fn assert_as_good_as_cubic(outcome: &Outcome, from: Duration, cubic_mbps: f64, situation: &str) {
    let reached = outcome.goodput_mbps(from + SETTLE, from + PHASE);
    println!("{situation}: {reached:.2} Mbit/s, plain cubic {cubic_mbps:.2} Mbit/s");
    measured!(
        reached >= FALLBACK_SHARE * cubic_mbps,
        "{situation}: {reached:.2} Mbit/s is less than {FALLBACK_SHARE} of cubic's {cubic_mbps:.2} Mbit/s"
    );
}

fn assert_no_stall(outcome: &Outcome, until: Duration) {
    let stall = outcome.longest_stall(until);
    measured!(stall < LONGEST_STALL, "no progress for {stall:?}");
}

/// Whether the agent has logged, after `since`, the start of the flow from each of these local ports.
fn adopted_since(agent: &Agent, ports: &[u16], since: Instant) -> bool {
    let log = agent.log();
    let new = log.iter().filter(|line| line.at > since);
    let starts: Vec<_> = new.filter_map(LogLine::flow_start_port).collect();
    ports.iter().all(|port| starts.contains(port))
}

/// The share of its life so far that the agent drove each live connection.
fn driven_ratios() -> Vec<f64> {
    let status = Command::new(PROGRAM).args(["status", "--json"]).output();
    let status: Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
    let flows = status["flows"].as_array().unwrap().iter();
    flows
        .filter_map(|flow| flow["driven_ratio"].as_f64())
        .collect()
}

/// Killed at the end of the warm-up, restarted a phase later.
fn killed_and_restarted(name: &str, situation: &Situation) {
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let cubic = situation.cubic_mbps();
    let path = path::open(&situation.spec);
    let agent = Agent::start(&[]);
    let load = Load::over(&path, NAME, situation.connections, Demand::Greedy);
    let ports = load.ports().to_vec();

    wait_until(load.start() + WARM_UP);
    let killed = load.start().elapsed();
    agent.kill9();
    wait_until(load.start() + killed + PHASE);

    let restarted = Instant::now();
    let agent = Agent::start(&[]);
    eventually(READOPTION, || {
        ports.iter().all(|&port| agent.flow_start(port).is_some())
    });
    for port in ports {
        let after = agent.flow_start(port).map(|adopted| adopted - restarted);
        println!("adopted {after:?} after the restart");
        measured!(
            after.is_some_and(|after| after <= READOPTION),
            "the flow from port {port} was not adopted within {READOPTION:?}:\n{}",
            agent.log_text()
        );
    }

    wait_until(load.start() + killed + PHASE + PHASE);
    let until = load.start().elapsed();
    let outcome = load.finish();
    outcome.assert_intact();
    assert_no_stall(&outcome, until);
    assert_as_good_as_cubic(&outcome, killed, cubic, "agent killed");
    agent.stop();
    path::close(path);
    test.end();
}

/// Frozen at the end of the warm-up, thawed a phase later, then stopped cleanly while the
/// connection goes on.
fn frozen_and_stopped(name: &str, situation: &Situation) {
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let cubic = situation.cubic_mbps();
    let path = path::open(&situation.spec);
    let agent = Agent::start(&[]);
    let load = Load::over(&path, NAME, situation.connections, Demand::Greedy);
    let ports = load.ports().to_vec();

    wait_until(load.start() + WARM_UP);
    measured!(
        ports.iter().all(|&port| agent.flow_start(port).is_some()),
        "not adopted before the freeze"
    );
    let frozen = load.start().elapsed();
    agent.freeze();
    wait_until(load.start() + frozen + PHASE);
    let thawed = Instant::now();
    agent.thaw();
    measured!(
        eventually(READOPTION, || adopted_since(&agent, &ports, thawed)),
        "not adopted again within {READOPTION:?}"
    );
    wait_until(load.start() + frozen + PHASE + SETTLE + SETTLE);
    let stopped = load.start().elapsed();
    let driven = driven_ratios();
    agent.stop();
    wait_until(load.start() + stopped + PHASE);
    println!("driven until the stop: {driven:.3?}");
    measured!(
        driven.len() == ports.len() && driven.iter().all(|ratio| *ratio > FROZEN_DRIVEN),
        "the agent drove {driven:.3?} of the connections' lives"
    );

    let until = load.start().elapsed();
    let outcome = load.finish();
    outcome.assert_intact();
    assert_no_stall(&outcome, until);
    assert_as_good_as_cubic(&outcome, frozen, cubic, "agent frozen");
    assert_as_good_as_cubic(&outcome, stopped, cubic, "agent stopped");
    path::close(path);
    test.end();
}

#[test]
fn kernel_agent_killed_and_restarted_on_a_clean_path() {
    let name = "kernel_agent_killed_and_restarted_on_a_clean_path";
    attempts(|| killed_and_restarted(name, &clean()));
}

#[test]
fn kernel_agent_killed_and_restarted_on_a_lossy_path() {
    let name = "kernel_agent_killed_and_restarted_on_a_lossy_path";
    attempts(|| killed_and_restarted(name, &lossy()));
}

#[test]
fn kernel_agent_frozen_and_stopped_on_a_clean_path() {
    let name = "kernel_agent_frozen_and_stopped_on_a_clean_path";
    attempts(|| frozen_and_stopped(name, &clean()));
}

#[test]
fn kernel_agent_frozen_and_stopped_on_a_lossy_path() {
    let name = "kernel_agent_frozen_and_stopped_on_a_lossy_path";
    attempts(|| frozen_and_stopped(name, &lossy()));
}

/// The old agent leaves the datapath in place, the new one takes it over: what a package does.
fn upgraded_under_load(name: &str) {
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let path = path::open(&clean().spec);
    let agent = Agent::start(&[]);
    let load = Load::over(&path, NAME, 8, Demand::Greedy);
    let ports = load.ports().to_vec();
    let assert_ours = || {
        for port in &ports {
            let congestion = path.client().enter(|| congestion_from(*port)).unwrap();
            assert_eq!(congestion, Some(NAME), "port {port}");
        }
    };

    wait_until(load.start() + WARM_UP + WARM_UP);
    let left = load.start().elapsed();
    agent.leave();
    assert_ours();
    let agent = Agent::start(&[]);
    let back = load.start().elapsed();
    let adopted = || ports.iter().all(|&port| agent.flow_start(port).is_some());
    measured!(
        eventually(READOPTION, adopted),
        "not adopted after {READOPTION:?}"
    );
    wait_until(load.start() + back + PHASE);
    assert_ours();

    let until = load.start().elapsed();
    let outcome = load.finish();
    // The path must carry the last FINs, or the connections have no end yet.
    let all_ended = eventually(ENDS, || agent.flow_ends() >= ports.len());
    let driven = Agent::driven_shares(&agent.stop());
    path::close(path);
    outcome.assert_intact();
    assert_no_stall(&outcome, until);
    let before = outcome.goodput_mbps(left - WARM_UP, left);
    let starts = (back + SECOND - left).as_millis() / BIN.as_millis();
    let worst = (0..starts as u32)
        .map(|bin| left + bin * BIN)
        .map(|from| outcome.goodput_mbps(from, from + SECOND))
        .fold(f64::INFINITY, f64::min);
    println!(
        "upgrade in {:?}: {before:.2} Mbit/s before, {worst:.2} in the worst second",
        back - left
    );
    measured!(
        worst >= UPGRADE_SHARE * before,
        "{worst:.2} Mbit/s in the worst second of the upgrade, {before:.2} before"
    );
    println!("driven shares by port: {driven:.3?}");
    measured!(all_ended, "not all ends are logged after {ENDS:?}");
    measured!(
        ports.iter().all(|port| driven[port] > UPGRADE_DRIVEN),
        "the agents drove {driven:.3?} of the connections' lives"
    );
    test.end();
}

#[test]
fn kernel_an_upgrade_under_load_is_hardly_felt() {
    attempts(|| upgraded_under_load("kernel_an_upgrade_under_load_is_hardly_felt"));
}
