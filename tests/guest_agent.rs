//! The agent on Debian's kernels, in QEMU under virtual time: frozen, killed and restarted while
//! its flows run. `make test-kernels` runs these; each takes about a minute.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use pathlab::guest::{self, AGENT_BINARY, Action, Config, Event, GuestRun, KernelVersion};
use pathlab::scenario::{PathSpec, Scheme};

const FLOWS: u32 = 4;

fn outlives_its_agent(test: &str, kernel: KernelVersion) {
    let config = Config {
        kernel,
        agent: Some(env!("CARGO_BIN_EXE_pk3c-ccp").into()),
        ..Config::default()
    };
    let at = |secs, action| Event {
        at: Duration::from_secs(secs),
        action,
    };
    let run = GuestRun {
        path: PathSpec::demo().remove(0),
        scheme: Scheme::Agent {
            name: "pk3c".into(),
            command: [AGENT_BINARY, "run", "--log-format", "json"]
                .map(str::to_owned)
                .to_vec(),
        },
        flows: FLOWS,
        secs: 24,
        events: vec![
            at(6, Action::Stop),
            at(9, Action::Continue),
            at(13, Action::Kill),
            at(17, Action::Restart),
        ],
    };
    let outcomes = match guest::run(&config, std::slice::from_ref(&run), &mut |_| {}) {
        Err(missing @ guest::Error::Missing(_)) => {
            println!("SKIPPED {test}: {missing}");
            return;
        }
        other => other.unwrap(),
    };
    let outcome = &outcomes[0];
    println!(
        "Linux {}: share {:.3}, longest stall {:?}",
        outcome.kernel,
        outcome.row.share,
        outcome.longest_stall()
    );
    assert!(outcome.longest_stall() < Duration::from_secs(2));
    assert!(outcome.row.share > 0.85, "{:?}", outcome.row);
    // The agent that was frozen finds its flows again, and so does the one after the crash.
    let starts = outcome
        .agent_log
        .lines()
        .filter(|line| line.contains("flow start"));
    let resumed = starts.filter(|line| line.contains("\"resumed\":true"));
    assert!(
        resumed.count() >= 2 * FLOWS as usize,
        "{}",
        outcome.agent_log
    );
}

#[test]
#[ignore = "boots QEMU: make test-kernels"]
fn guest_flows_outlive_their_agent_on_6_1() {
    outlives_its_agent(
        "guest_flows_outlive_their_agent_on_6_1",
        KernelVersion::V6_1,
    );
}

#[test]
#[ignore = "boots QEMU: make test-kernels"]
fn guest_flows_outlive_their_agent_on_6_12() {
    outlives_its_agent(
        "guest_flows_outlive_their_agent_on_6_12",
        KernelVersion::V6_12,
    );
}
