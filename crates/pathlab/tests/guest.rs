//! Guests really boot: what `pathlab::guest` promises, seen from outside. These tests take a
//! minute or two, and apt to fetch a kernel once, so they run only when asked for:
//! `cargo test -p pathlab --test guest -- --ignored`.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use pathlab::guest::{self, Action, Config, Error, Event, GuestRun, Outcome};
use pathlab::scenario::Scheme;

/// The outcomes, or `None` if this machine cannot make guests, which is said aloud.
fn outcomes(test: &str, config: &Config, runs: &[GuestRun]) -> Option<Vec<Outcome>> {
    match guest::run(config, runs, &mut |progress| eprintln!("{progress}")) {
        Err(error @ (Error::Missing(_) | Error::NoKernelPackage(_))) => {
            println!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
        Ok(outcomes) => Some(outcomes),
    }
}

fn run(scheme: Scheme, secs: u32) -> GuestRun {
    let path = guest::parse_path("name=short,rate=20mbit,rtt=20ms,loss=0.5%").expect("a path");
    GuestRun {
        path,
        scheme,
        flows: 2,
        secs,
        events: Vec::new(),
    }
}

/// A process that behaves like an agent, for a congestion control that the kernel has anyway. It
/// says what it sees of bpffs and BTF, and reports a flow when it is asked to end.
fn stand_in(name: &str) -> Scheme {
    let script = r#"echo started >&2
        grep -q bpf /proc/mounts && [ -f /sys/kernel/btf/vmlinux ] && echo "BPF is there" >&2
        trap 'echo "{\"message\":\"flow end\",\"agent_driven\":0.5,\"duration_s\":4}" >&2; exit' TERM
        while :; do sleep 0.05; done"#;
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    Scheme::Agent {
        name: name.into(),
        command,
    }
}

#[test]
#[ignore = "boots QEMU"]
fn equal_runs_give_equal_results_and_other_seeds_others() {
    let config = Config {
        jobs: NonZeroUsize::new(2).unwrap(),
        ..Config::default()
    };
    let runs = [
        run(Scheme::Kernel("cubic".into()), 3),
        run(Scheme::Kernel("cubic".into()), 3),
    ];
    let test = "equal_runs_give_equal_results_and_other_seeds_others";
    let Some(first) = outcomes(test, &config, &runs) else {
        return;
    };
    assert_eq!(first[0].received, first[1].received);
    assert_eq!(first[0].row.retransmits, first[1].row.retransmits);
    assert!(first[0].kernel.starts_with("6.12."), "{}", first[0].kernel);
    // Two flows of Cubic at half a percent of loss: neither nothing nor more than there is.
    let share = first[0].row.share;
    assert!((0.3..1.0).contains(&share), "{share}");

    let config = Config {
        seed: 2,
        ..Config::default()
    };
    let Some(other) = outcomes(test, &config, &runs[..1]) else {
        return;
    };
    assert_ne!(first[0].received, other[0].received);
}

#[test]
#[ignore = "boots QEMU"]
fn agents_are_started_stopped_killed_and_started_again() {
    let event = |millis, action| Event {
        at: Duration::from_millis(millis),
        action,
    };
    let mut disturbed = run(stand_in("cubic"), 4);
    disturbed.events = vec![
        event(500, Action::Stop),
        event(1000, Action::Continue),
        event(1500, Action::Kill),
        event(2000, Action::Restart),
    ];
    let mut killed = run(stand_in("cubic"), 2);
    killed.events = vec![event(500, Action::Kill)];
    let runs = [run(stand_in("cubic"), 2), disturbed, killed];
    let test = "agents_are_started_stopped_killed_and_started_again";
    let Some(outcomes) = outcomes(test, &Config::default(), &runs) else {
        return;
    };
    let [calm, disturbed, killed] = outcomes.as_slice() else {
        panic!("{outcomes:?}")
    };

    assert_eq!(calm.agent_log.matches("started").count(), 1);
    assert!(
        calm.agent_log.contains("BPF is there"),
        "{}",
        calm.agent_log
    );
    assert_eq!(
        (calm.row.agent_driven, calm.remarks.as_str()),
        (Some(0.5), "")
    );
    assert!(
        calm.row.agent_cpu.is_some_and(|cpu| cpu < 0.5),
        "{:?}",
        calm.row.agent_cpu
    );

    assert_eq!(disturbed.agent_log.matches("started").count(), 2);
    assert_eq!(disturbed.row.agent_cpu, None);
    assert_eq!(
        (disturbed.row.agent_driven, disturbed.remarks.as_str()),
        (Some(0.5), "")
    );
    assert!(disturbed.longest_stall() < Duration::from_secs(2));

    assert!(
        killed.remarks.contains("did not live"),
        "{}",
        killed.remarks
    );
    assert!(killed.row.is_void());
}

#[test]
#[ignore = "boots QEMU"]
fn agents_that_do_not_register_fail_with_their_log() {
    let runs = [run(stand_in("nonesuch"), 2)];
    match guest::run(&Config::default(), &runs, &mut |_| {}) {
        Err(error @ (Error::Missing(_) | Error::NoKernelPackage(_))) => {
            println!("SKIPPED agents_that_do_not_register_fail_with_their_log: {error}");
        }
        Err(Error::Guest {
            reason, agent_log, ..
        }) => {
            assert_eq!(reason, "the agent did not register nonesuch within 30 s");
            assert!(agent_log.contains("started"), "{agent_log}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "boots QEMU"]
fn an_interrupt_ends_all_guests_at_once() {
    let config = Config::default();
    let interrupt = config.interrupt.clone();
    let raiser = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        interrupt.raise();
        Instant::now()
    });
    let result = guest::run(
        &config,
        &[run(Scheme::Kernel("cubic".into()), 600)],
        &mut |_| {},
    );
    let ended = Instant::now();
    match result {
        Err(error @ (Error::Missing(_) | Error::NoKernelPackage(_))) => {
            println!("SKIPPED an_interrupt_ends_all_guests_at_once: {error}");
        }
        Err(Error::Interrupted) => {
            let raised = raiser.join().unwrap();
            assert!(ended.saturating_duration_since(raised) < Duration::from_secs(2));
        }
        other => panic!("{other:?}"),
    }
}
