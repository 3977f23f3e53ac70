//! Iterate without reloading: a restarted agent with other logic takes over the connections that
//! are already there. A changed parameter stands for a changed line of the algorithm.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::agent::Agent;
use common::load::{Demand, Load};
use common::machine::KernelTest;
use common::{NAME, eventually, path};
use pathlab::attempts::attempts;
use pathlab::measured;

const PHASE: Duration = Duration::from_secs(5);
/// From a restart until its effect is measured.
const SETTLE: Duration = Duration::from_secs(2);

#[test]
fn kernel_a_restarted_agent_changes_the_rate_of_a_live_connection() {
    let name = "kernel_a_restarted_agent_changes_the_rate_of_a_live_connection";
    attempts(|| restarted(name));
}

fn restarted(name: &str) {
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let spec = path::spec(50, 40, 0.0);
    let path = path::open(&spec);
    let mut agent = Agent::start(&["--keep"]);
    let load = Load::over(&path, NAME, 1, Demand::Greedy);
    let port = load.ports()[0];
    std::thread::sleep(PHASE);

    let mut restarts = Vec::new();
    // Once after a clean stop that keeps the datapath, once after a crash.
    for (clean, arguments) in [(true, &["--max-rate", "8mbit"][..]), (false, &[])] {
        if clean {
            agent.stop();
        } else {
            agent.kill9();
        }
        agent = Agent::start(arguments);
        measured!(
            eventually(Duration::from_secs(1), || agent.flow_start(port).is_some()),
            "the live connection was not adopted:\n{}",
            agent.log_text()
        );
        restarts.push(Instant::now() - load.start());
        std::thread::sleep(PHASE);
    }
    let outcome = load.finish();
    outcome.assert_intact();
    agent.stop();
    path::close(path);

    let free = outcome.goodput_mbps(SETTLE, PHASE);
    let capped = outcome.goodput_mbps(restarts[0] + SETTLE, restarts[0] + PHASE);
    let free_again = outcome.goodput_mbps(restarts[1] + SETTLE, restarts[1] + PHASE);
    println!("{free:.2}, at most 8, {capped:.2}, without the limit again {free_again:.2} Mbit/s");
    test.end();
    measured!(free > 25.0, "{free:.2} Mbit/s without a limit");
    // The cap counts packets on the wire, goodput their payload; probing stays below it.
    measured!(
        (5.0..8.2).contains(&capped),
        "{capped:.2} Mbit/s under --max-rate 8mbit"
    );
    measured!(
        free_again > 2.0 * capped,
        "{free_again:.2} Mbit/s after the limit was gone"
    );
}
