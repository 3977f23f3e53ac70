//! A thousand connections at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::agent::Agent;
use common::load::{Demand, Load};
use common::machine::KernelTest;
use common::{NAME, eventually, path};
use pathlab::attempts::attempts;
use pathlab::measured;

const CONNECTIONS: usize = 1000;
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(6);
/// From the last byte until the agent has logged the end of every flow.
const END: Duration = Duration::from_secs(40);
/// Share of one core. Measured: .035 to .084, the more where the emulator preempts the agent on one core thousands of
/// times a second.
const CPU_LIMIT: f64 = 0.125;
/// Connections that may deliver nothing in the [`MEASURED`] time. A thousand initial windows are more than twice what
/// the path holds, and whoever loses the same segment four times over in the first seconds waits that long for its
/// retransmission timer, under any congestion control: in three runs 16, 44 and 53 of a thousand of Cubic's did, 9 to
/// 41 of BBR's.
const SILENT_MAX: usize = 100;
/// The agent must have driven the median flow, and every flow, for at least this share of its life.
const DRIVEN_MEDIAN: f64 = 0.99;
const DRIVEN_MIN: f64 = 0.9;

#[test]
fn kernel_a_thousand_connections_cost_an_eighth_of_a_core() {
    attempts(|| run("kernel_a_thousand_connections_cost_an_eighth_of_a_core"));
}

fn run(name: &str) {
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    // A path on which the emulator and a thousand sockets leave the agent enough of two cores, also of slower ones:
    // where each core is taken away for half of the time, the least driven flow is at .999 of its life, and at .84 to
    // .998 at 300 Mbit/s and 50 ms.
    let spec = path::spec(250, 100, 0.0);
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
    let all_ended = eventually(END, || agent.flow_ends() >= CONNECTIONS);
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
    measured!(
        all_ended,
        "the log has not the end of every flow within {END:?}"
    );
    let silent = outcome.silent_since(until - MEASURED, until);
    let mut driven: Vec<f64> = ports
        .iter()
        .map(|port| ends.get(port).copied())
        .map(|end| end.expect("the log has the end of every flow"))
        .collect();
    driven.sort_by(f64::total_cmp);
    let (least, median) = (driven[0], driven[driven.len() / 2]);
    println!(
        "driven by the agent: {median:.3} of the median flow's life, {least:.3} at least; {silent} silent at the end"
    );
    test.end();
    measured!(
        silent <= SILENT_MAX,
        "{silent} connections without progress in {MEASURED:?}"
    );
    measured!(
        share < CPU_LIMIT,
        "the agent used {:.1} % of a core",
        100.0 * share
    );
    measured!(
        median >= DRIVEN_MEDIAN && least >= DRIVEN_MIN,
        "the agent drove the median flow for {median:.3} of its life, one for {least:.3}, at {mbps:.0} Mbit/s"
    );
}
