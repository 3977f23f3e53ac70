//! A thousand connections at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::agent::Agent;
use common::load::{Demand, Load};
use common::machine::KernelTest;
use common::{NAME, eventually, path};

const CONNECTIONS: usize = 1000;
const WARM_UP: Duration = Duration::from_secs(3);
/// Long enough for CPU time that is counted in 10 ms.
const MEASURED: Duration = Duration::from_secs(6);
/// From the last byte until the agent has logged the end of every flow.
const END: Duration = Duration::from_secs(5);
/// Share of one core.
const CPU_LIMIT: f64 = 0.25;
/// A flow's agent must have driven it for at least this share of its life.
const DRIVEN_MIN: f64 = 0.99;

#[test]
fn kernel_a_thousand_connections_cost_a_quarter_of_a_core() {
    let name = "kernel_a_thousand_connections_cost_a_quarter_of_a_core";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let spec = path::spec(500, 50, 0.0);
    let path = path::open(&spec);
    let agent = Agent::start(&[]);
    let load = Load::over(&path, NAME, CONNECTIONS, Demand::Greedy);
    std::thread::sleep(WARM_UP);

    let (cpu, since) = (agent.cpu_time(), Instant::now());
    std::thread::sleep(MEASURED);
    let share = (agent.cpu_time() - cpu).as_secs_f64() / since.elapsed().as_secs_f64();
    let until = load.start().elapsed();
    let ports = load.ports().to_vec();
    let outcome = load.finish();
    // The path must carry the last FINs, or the connections have no end yet.
    eventually(END, || agent.flow_ends() >= CONNECTIONS);
    path::close(path);
    let log = agent.stop();
    let ends = Agent::driven_shares(&log);
    let reports: u64 = log
        .iter()
        .filter_map(|line| line.json()["reports"].as_u64())
        .sum();

    let mbps = outcome.goodput_mbps(until - MEASURED, until);
    println!(
        "{CONNECTIONS} connections, {mbps:.1} Mbit/s, {:.0} reports/s, agent {:.1} % of a core",
        reports as f64 / until.as_secs_f64(),
        100.0 * share
    );
    outcome.assert_intact();
    let silent = outcome.silent_since(until - Duration::from_secs(2), until);
    assert_eq!(silent, 0, "connections without progress in the last 2 s");
    assert!(
        share < CPU_LIMIT,
        "the agent used {:.1} % of a core",
        100.0 * share
    );
    for port in ports {
        let driven = ends
            .get(&port)
            .unwrap_or_else(|| panic!("no end of the flow from port {port} in the log"));
        assert!(
            *driven >= DRIVEN_MIN,
            "the agent drove the flow from port {port} for {driven} of its life"
        );
    }
    test.end();
}
