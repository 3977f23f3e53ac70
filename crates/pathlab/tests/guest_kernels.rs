//! The datapath on Debian's kernels 6.1 and 6.12: its kernel tests, and the agent with what befalls
//! agents, in guests. `scripts/test-guest.sh` builds what they run and calls this:
//!
//! - `PK3C_AGENT` is the agent's binary,
//! - `CCP_KERNEL_TESTS` the binaries of ccp-bpf's kernel tests, separated by colons.
//!
//! Every guest fails the test if its kernel's log speaks of a fault (BUG, WARNING, lockdep).

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use pathlab::guest::{
    self, AGENT_BINARY, Action, Config, Error, Event, GuestRun, KernelVersion, Outcome, Payload,
};
use pathlab::scenario::Scheme;

/// Wall time for one kernel's tests.
const LIMIT: Duration = Duration::from_secs(1500);
/// What the tests have a queue mark packets with.
const MODULES: [&str; 2] = ["sch_ingress", "cls_bpf"];
const KERNELS: [KernelVersion; 2] = [KernelVersion::V6_1, KernelVersion::V6_12];

/// The outcomes, or `None` if this machine cannot make guests, which is said aloud.
fn outcomes(test: &str, config: &Config, runs: &[GuestRun]) -> Option<Vec<Outcome>> {
    match guest::run(config, runs, &mut |progress| eprintln!("{progress}")) {
        Err(error @ (Error::Missing(_) | Error::NoKernelPackage(_))) => {
            println!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("Linux {}: {error}", config.kernel),
        Ok(outcomes) => Some(outcomes),
    }
}

fn config(kernel: KernelVersion, binary: PathBuf) -> Config {
    Config {
        kernel,
        agent: Some(binary),
        jobs: NonZeroUsize::new(2).expect("2 is not 0"),
        ..Config::default()
    }
}

fn run(path: &str, scheme: Scheme, flows: u32, secs: u32) -> GuestRun {
    GuestRun {
        path: guest::parse_path(path).expect("a path"),
        scheme,
        flows,
        secs,
        events: Vec::new(),
    }
}

/// Runs the test binaries one after the other in a guest, but for ten thousand sockets, which a CPU
/// of 500 million instructions per second cannot serve; those that failed, ran no test or skipped one: a guest has all
/// that they need.
fn failures(test: &str, kernel: KernelVersion, binaries: &[(PathBuf, String)]) -> Vec<String> {
    let names: Vec<_> = binaries.iter().map(|(_, name)| name.as_str()).collect();
    let script = format!(
        "for test in {}; do $test kernel_ --skip kernel_ten_thousand --nocapture --test-threads=1; echo \"status $? of $test\"; done",
        names.join(" ")
    );
    let config = Config {
        kernel,
        ..Config::default()
    };
    let payload = Payload {
        binaries,
        modules: &MODULES,
        script: &script,
        ..Payload::default()
    };
    let executed = match guest::exec_payload(&config, &payload, LIMIT) {
        Err(error @ (Error::Missing(_) | Error::NoKernelPackage(_))) => {
            println!("SKIPPED {test}: {error}");
            return Vec::new();
        }
        Err(error) => panic!("Linux {kernel}: {error}"),
        Ok(executed) => executed,
    };
    println!("Linux {}:\n{}", executed.kernel, executed.quoted());
    let passed = |name: &&&str| executed.output.contains(&format!("status 0 of {name}"));
    let failed = names.iter().filter(|name| !passed(name));
    let mut failed: Vec<_> = failed.map(|name| format!("{name} on {kernel}")).collect();
    if executed.output.contains(" 0 passed") {
        failed.push(format!("a binary without tests on {kernel}"));
    }
    let skips = executed
        .output
        .lines()
        .filter(|line| line.contains("SKIPPED "));
    failed.extend(skips.map(|line| format!("on {kernel}: {line}")));
    let trouble = executed.kernel_trouble.lines();
    failed.extend(trouble.map(|line| format!("the log of {kernel}: {line}")));
    failed
}

#[test]
#[ignore = "boots QEMU"]
fn the_datapath_s_kernel_tests_pass_on_debian_s_kernels() {
    let test = "the_datapath_s_kernel_tests_pass_on_debian_s_kernels";
    let Ok(binaries) = std::env::var("CCP_KERNEL_TESTS") else {
        println!("SKIPPED {test}: CCP_KERNEL_TESTS is not set (scripts/test-guest.sh sets it)");
        return;
    };
    let binaries: Vec<_> = binaries
        .split(':')
        .enumerate()
        .map(|(index, file)| (PathBuf::from(file), format!("test{index}")))
        .collect();
    let failed: Vec<_> = std::thread::scope(|scope| {
        let guests = KERNELS.map(|kernel| {
            scope.spawn({
                let binaries = &binaries;
                move || failures(test, kernel, binaries)
            })
        });
        guests
            .into_iter()
            .flat_map(|guest| guest.join().unwrap())
            .collect()
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
#[ignore = "boots QEMU"]
fn the_agent_is_killed_stopped_and_replaced_on_debian_s_kernels() {
    let test = "the_agent_is_killed_stopped_and_replaced_on_debian_s_kernels";
    let Some(agent) = std::env::var_os("PK3C_AGENT") else {
        println!("SKIPPED {test}: PK3C_AGENT is not set (scripts/test-guest.sh sets it)");
        return;
    };
    let event = |millis, action| Event {
        at: Duration::from_millis(millis),
        action,
    };
    let pk3c = || Scheme::Agent {
        name: "pk3c".into(),
        command: [AGENT_BINARY, "run", "--log-format", "json"]
            .map(str::to_owned)
            .to_vec(),
    };
    let path = "name=short,rate=20mbit,rtt=20ms";
    let mut frozen = run(path, pk3c(), 4, 8);
    frozen.events = vec![event(2000, Action::Stop), event(4000, Action::Continue)];
    let mut replaced = run(path, pk3c(), 4, 8);
    replaced.events = vec![event(2000, Action::Kill), event(4000, Action::Restart)];
    // iperf3 has no more than 128 streams; the 500 sockets are in ccp-bpf's kernel_scale.
    let many = run("name=many,rate=100mbit,rtt=20ms", pk3c(), 128, 4);
    let runs = [run(path, pk3c(), 1, 6), frozen, replaced, many];
    for kernel in KERNELS {
        let config = config(kernel, agent.clone().into());
        let Some(outcomes) = outcomes(test, &config, &runs) else {
            return;
        };
        for (run, outcome) in runs.iter().zip(&outcomes) {
            let Outcome {
                row,
                remarks,
                kernel,
                kernel_trouble,
                ..
            } = outcome;
            let stall = outcome.longest_stall();
            println!(
                "Linux {kernel}, {}: share {:.2}, driven {:?}, longest stall {stall:?}",
                run.label(),
                row.share,
                row.agent_driven
            );
            assert_eq!(kernel_trouble, "", "{}", run.label());
            assert_eq!(remarks, "", "{}", run.label());
            assert!(stall < Duration::from_secs(1), "{}: {stall:?}", run.label());
            assert!(row.share > 0.5, "{}: {}", run.label(), row.share);
            let driven = row.agent_driven.expect("an agent's run");
            let least = if run.events.is_empty() { 0.95 } else { 0.6 };
            assert!(driven > least, "{}: driven {driven}", run.label());
        }
    }
}
