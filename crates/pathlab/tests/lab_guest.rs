//! Runs of the lab in guests under virtual time: they repeat, and agree with what is known of their paths. These tests
//! boot QEMU and need a built `pk3c-ccp`: `cargo build --release && cargo test -p pathlab --test lab_guest --
//! --ignored`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use pathlab::guest::{Config, Error};
use pathlab::lab::guest::{self, GuestRunError, Order};
use pathlab::lab::host::LineKind;
use pathlab::lab::inputs::{About, Carrier};
use pathlab::lab::result::{Conditions, Inputs, RunResult};
use pathlab::lab::run::{FlowScheme, Run, Settings};
use pathlab::scenario::Scheme;
use pathsim::{
    FlowSpec, Jitter, Loss, MILLISECOND, PathSpec, RateSchedule, SECOND, Scenario, Source,
    Transport,
};

/// The program: `PK3C_CCP`, or what was built beside this test.
fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("PK3C_CCP") {
        return Some(program.into());
    }
    let target = std::env::current_exe().ok()?.ancestors().nth(3)?.to_owned();
    let places = ["release", "debug"].map(|profile| target.join(profile).join("pk3c-ccp"));
    places.into_iter().find(|program| program.is_file())
}

/// The result, or `None` if this machine cannot make guests, which is said aloud.
fn in_guest(test: &str, run: Run, line: LineKind) -> Option<RunResult> {
    let Some(program) = program() else {
        println!("SKIPPED {test}: no pk3c-ccp is built: cargo build --release");
        return None;
    };
    let order = Order {
        inputs: Inputs::of(&run, &About::default(), &Carrier::default()),
        conditions: Conditions::default(),
        line,
        run,
    };
    match guest::run(&order, &Config::default(), &program) {
        Ok(result) => Some(result),
        Err(GuestRunError::Guest(error @ (Error::Missing(_) | Error::NoKernelPackage(_)))) => {
            println!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn run(path: PathSpec, flows: Vec<FlowSpec>, seconds: u64) -> Run {
    let count = flows.len();
    Run {
        id: "test".into(),
        scheme: "cubic".into(),
        scenario: Scenario {
            path,
            flows,
            duration_ns: seconds * SECOND,
            seed: 1,
            series: false,
        },
        schemes: vec![FlowScheme::Tcp(Scheme::Kernel("cubic".into())); count],
        under_test: vec![true; count],
        settings: Settings::default(),
    }
}

fn summary(result: &RunResult) -> String {
    let total = &result.total;
    format!(
        "{}: {:.3} Mbit/s, {:.1} %, RTT p50 {:?} ms, {} retransmissions, Jain {:.4}, void {:?}",
        result.conditions.line,
        total.goodput_mbps,
        total.use_run.unwrap() * 100.0,
        total.rtt_ms.map(|rtt| rtt.p50),
        total.retransmissions,
        total.jain,
        result.void,
    )
}

/// 50 Mbit/s, 40 ms, 0.1 % loss: two flows, a stream of 5 Mbit/s and a download of 1 MB.
fn mixed() -> Run {
    let path = PathSpec {
        loss: Loss::Random(0.001),
        ..PathSpec::clean(50_000_000, 40 * MILLISECOND)
    };
    let endless = FlowSpec::new("cubic");
    let late = FlowSpec {
        start_ns: SECOND,
        ..endless.clone()
    };
    let stream = FlowSpec {
        source: Source::Rate(5_000_000),
        ..endless.clone()
    };
    let download = FlowSpec {
        source: Source::Bytes(1_000_000),
        ..endless.clone()
    };
    run(path, vec![endless, late, stream, download], 5)
}

#[test]
#[ignore = "boots QEMU"]
fn equal_runs_have_equal_results() {
    let test = "equal_runs_have_equal_results";
    for line in [LineKind::Netem, LineKind::Emulated] {
        let results: Vec<_> = (0..2)
            .filter_map(|_| in_guest(test, mixed(), line))
            .collect();
        let [first, second] = results.as_slice() else {
            return;
        };
        println!("{}\n{}", summary(first), summary(second));
        let (a, b) = (&first.total, &second.total);
        assert!((a.goodput_mbps / b.goodput_mbps - 1.0).abs() < 1e-3);
        let ratio = a.retransmissions as f64 / b.retransmissions as f64;
        assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
        for (one, other) in first.flows.iter().zip(&second.flows) {
            let ratio = one.received_bytes as f64 / other.received_bytes as f64;
            assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
            let seconds = |flow: &pathlab::lab::result::FlowResult| {
                flow.completions
                    .iter()
                    .filter_map(|it| it.seconds)
                    .sum::<f64>()
            };
            assert!((seconds(one) - seconds(other)).abs() <= 1e-3 * seconds(one));
        }
        assert!((0.5..1.0).contains(&a.use_run.unwrap()), "{a:?}");
        assert_eq!(first.flows[3].received_bytes, 1_000_000);
    }
}

#[test]
#[ignore = "boots QEMU"]
fn netem_makes_what_it_can_and_the_emulator_the_rest() {
    let test = "netem_makes_what_it_can_and_the_emulator_the_rest";
    let jitter = PathSpec {
        jitter: Jitter::Uniform {
            max_ns: 2 * MILLISECOND,
            reorder: false,
        },
        ..PathSpec::clean(20_000_000, 20 * MILLISECOND)
    };
    let Some(result) = in_guest(
        test,
        run(jitter, vec![FlowSpec::new("cubic")], 3),
        LineKind::Netem,
    ) else {
        return;
    };
    println!("{}", summary(&result));
    assert_eq!(result.conditions.line, "emulator");
    assert_eq!(result.void, None);

    let steps = PathSpec {
        rate: RateSchedule::Steps(vec![(0, 20_000_000), (2 * SECOND, 5_000_000)]),
        ..PathSpec::clean(20_000_000, 20 * MILLISECOND)
    };
    let Some(result) = in_guest(
        test,
        run(steps, vec![FlowSpec::new("cubic")], 4),
        LineKind::Netem,
    ) else {
        return;
    };
    println!("{}", summary(&result));
    assert_eq!(result.conditions.line, "netem");
    let series = &result.flows[0].series.goodput_mbps;
    let mean = |bins: &[f64]| bins.iter().sum::<f64>() / bins.len() as f64;
    let (fast, slow) = (mean(&series[10..20]), mean(&series[25..40]));
    // 1448 of 1500 bytes are payload.
    assert!(
        (fast / (20.0 * 1448.0 / 1500.0) - 1.0).abs() < 0.02,
        "{fast} Mbit/s"
    );
    assert!(
        (slow / (5.0 * 1448.0 / 1500.0) - 1.0).abs() < 0.02,
        "{slow} Mbit/s"
    );
}

#[test]
#[ignore = "boots QEMU"]
fn datagrams_lost_are_as_many_as_were_to_be() {
    let path = PathSpec {
        loss: Loss::Random(0.05),
        ..PathSpec::clean(20_000_000, 20 * MILLISECOND)
    };
    let spec = FlowSpec {
        scheme: "udp".into(),
        transport: Transport::Udp,
        source: Source::Rate(10_000_000),
        stop_ns: Some(4 * SECOND),
        ..FlowSpec::new("udp")
    };
    let mut datagrams = run(path, vec![spec], 5);
    datagrams.schemes = vec![FlowScheme::Udp(10_000_000)];
    let test = "datagrams_lost_are_as_many_as_were_to_be";
    let Some(result) = in_guest(test, datagrams, LineKind::Netem) else {
        return;
    };
    let flow = &result.flows[0];
    let (sent, lost) = (flow.datagrams_sent.unwrap(), flow.datagrams_lost.unwrap());
    println!("{lost} of {sent}, jitter {:?} ms", flow.jitter_ms);
    assert_eq!(sent, 3402);
    // 170 expected, standard deviation 12.7: five of them.
    assert!((107..=234).contains(&lost), "{lost}");
}
