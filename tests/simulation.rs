//! The production program and controller in the simulator: loss detection, retransmissions and pacing as a kernel does them.
//! The bounds are those of `algorithm_closed_loop` where the path is the same; each holds on the seeds in [`SEEDS`].
//!
//! `cargo test --test simulation -- --nocapture` shows the figures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathsim::{
    Controller, FlowSpec, Jitter, Loss, MILLISECOND, PathSpec, QueueLimit, RateSchedule, Results,
    SECOND, Scenario, Simulation, Source,
};
use pk3c_ccp::params::Params;
use pk3c_ccp::simulate::Simulator;
use pk3c_ccp::units::Micros;
use std::process::{Command, Output};
use std::sync::Arc;

const SEEDS: [u64; 3] = [1, 2, 3];

fn scenario(path: PathSpec, flows: u64) -> Scenario {
    let flow = |number| FlowSpec {
        start_ns: number * 100 * MILLISECOND,
        ..FlowSpec::new("pk3c")
    };
    Scenario {
        path,
        flows: (0..flows).map(flow).collect(),
        duration_ns: 20 * SECOND,
        seed: 0,
        series: false,
    }
}

/// 50 Mbit/s, 40 ms, a queue of one BDP.
fn path() -> PathSpec {
    PathSpec::clean(50_000_000, 40 * MILLISECOND)
}

fn run(scenario: &Scenario, seed: u64, latency: Micros) -> Results {
    let simulator = Simulator::new().unwrap();
    let params = Arc::new(Params::default());
    let flows = scenario.flows.iter().zip(1..);
    let controllers = flows.map(|(spec, number)| -> Box<dyn Controller> {
        let start = Micros::new(spec.start_ns / 1000);
        Box::new(simulator.flow(params.clone(), seed * 1000 + number, start, latency))
    });
    let controllers = controllers.collect();
    let scenario = Scenario {
        seed,
        ..scenario.clone()
    };
    Simulation::new(scenario, controllers).unwrap().run()
}

fn rows(name: &str, scenario: &Scenario, mut check: impl FnMut(&Results)) {
    for seed in SEEDS {
        let out = run(scenario, seed, Micros::new(100));
        println!(
            "{name:24} seed {seed}: share {:.3} second half {:.3} rtt p50 {:.1} p95 {:.1} ms loss {:.2}% jain {:.3} timeouts {}",
            out.share,
            out.share_second_half,
            out.rtt_p50_ms.unwrap(),
            out.rtt_p95_ms.unwrap(),
            100.0 * out.loss,
            out.jain,
            out.flows.iter().map(|flow| flow.timeouts).sum::<u64>(),
        );
        check(&out);
    }
}

#[test]
fn a_clean_path_is_filled_with_a_short_queue() {
    rows("clean", &scenario(path(), 1), |out| {
        assert!((0.93..=1.0).contains(&out.share));
        assert!(out.rtt_p95_ms.unwrap() <= 60.0);
    });
}

#[test]
fn one_percent_loss_costs_little() {
    let mut lossy = path();
    lossy.loss = Loss::Random(0.01);
    rows("1 % loss", &scenario(lossy, 1), |out| {
        assert!(out.share >= 0.90);
        assert_eq!(out.flows[0].timeouts, 0);
    });
}

#[test]
fn bursts_of_loss_cost_little() {
    let mut lossy = path();
    lossy.loss = Loss::Bursts {
        ratio: 0.01,
        mean_length: 4.0,
    };
    rows("1 % loss in bursts of 4", &scenario(lossy, 1), |out| {
        assert!(out.share >= 0.85);
    });
}

#[test]
fn ten_packets_of_buffer_are_enough() {
    let mut shallow = path();
    shallow.queue = QueueLimit::Packets(10);
    rows("10 packets", &scenario(shallow, 1), |out| {
        assert!(out.share >= 0.85);
    });
}

#[test]
fn two_flows_share_fairly() {
    rows("2 flows", &scenario(path(), 2), |out| {
        assert!(out.jain >= 0.95 && out.share >= 0.88);
    });
}

#[test]
fn reordering_does_not_collapse_a_flow() {
    let mut reordering = path();
    reordering.jitter = Jitter {
        max_ns: 6 * MILLISECOND,
        reorder: true,
    };
    rows("reordering by 6 ms", &scenario(reordering, 1), |out| {
        assert!(out.share >= 0.85);
    });
}

#[test]
fn collected_acks_do_not_collapse_a_flow() {
    let mut collected = scenario(path(), 1);
    collected.flows[0].acks.aggregation_ns = 5 * MILLISECOND;
    rows("ACKs every 5 ms", &collected, |out| {
        assert!(out.share_second_half >= 0.85);
    });
}

#[test]
fn a_slow_agent_costs_little() {
    for seed in SEEDS {
        let out = run(&scenario(path(), 1), seed, Micros::from_millis(10));
        println!("agent 10 ms late: share {:.3}", out.share);
        assert!(out.share >= 0.90);
    }
}

/// A step down to two fifths, and back.
#[test]
fn capacity_steps_are_followed() {
    let mut steps = path();
    steps.rate = RateSchedule::Steps(vec![
        (0, 50_000_000),
        (10 * SECOND, 20_000_000),
        (20 * SECOND, 50_000_000),
    ]);
    let mut stepped = scenario(steps, 1);
    stepped.duration_ns = 30 * SECOND;
    rows("50, 20, 50 Mbit/s", &stepped, |out| {
        assert!(out.share >= 0.80);
    });
}

#[test]
fn a_stream_below_capacity_gets_its_rate() {
    let mut stream = scenario(path(), 1);
    stream.flows[0].source = Source::Rate(5_000_000);
    rows("5 Mbit/s application", &stream, |out| {
        assert!((out.goodput_mbps - 5.0).abs() < 0.25);
        assert!(out.rtt_p95_ms.unwrap() <= 50.0);
    });
}

#[test]
fn a_short_transfer_is_not_slow() {
    let mut transfer = scenario(path(), 1);
    transfer.flows[0].source = Source::Bytes(1_000_000);
    rows("1 MB", &transfer, |out| {
        let seconds = out.flows[0].completion_s.unwrap();
        println!("  {seconds:.3} s");
        assert!(seconds < 0.8);
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut lossy = path();
    lossy.loss = Loss::Random(0.01);
    let scenario = scenario(lossy, 3);
    let json = |seed| serde_json::to_string(&run(&scenario, seed, Micros::new(100))).unwrap();
    assert_eq!(json(5), json(5));
    assert_ne!(json(5), json(6));
}

fn sim(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_pk3c-ccp");
    Command::new(program)
        .arg("sim")
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn the_command_prints_one_json_object_and_repeats_itself() {
    let args = [
        "--loss",
        "1%",
        "--flows",
        "pk3c*2,cubic",
        "--duration",
        "10s",
        "--seed",
        "7",
        "--seeds",
        "2",
        "--json",
    ];
    let first = sim(&args);
    assert!(first.status.success());
    assert_eq!(first.stdout, sim(&args).stdout);
    let json: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    let flows = json["flows"].as_array().unwrap();
    let schemes: Vec<_> = flows
        .iter()
        .map(|flow| flow["scheme"].as_str().unwrap())
        .collect();
    assert_eq!(schemes, ["pk3c", "pk3c", "cubic"]);
    for flow in flows {
        for key in ["share", "goodput_mbps", "rtt_p95_ms", "loss"] {
            assert!(flow[key].as_f64().unwrap() > 0.0, "{key}");
        }
    }
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    assert!(json["share"].as_f64().unwrap() > 0.9);
}

#[test]
fn an_algorithm_flag_changes_what_the_flows_do() {
    let capped = sim(&[
        "--flows",
        "pk3c",
        "--duration",
        "5s",
        "--max-rate",
        "10mbit",
        "--json",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&capped.stdout).unwrap();
    let goodput = json["goodput_mbps"].as_f64().unwrap();
    assert!((8.0..=10.0).contains(&goodput), "{goodput}");
}

#[test]
fn a_bad_scenario_file_is_named_with_line_and_remedy() {
    let file = std::env::temp_dir().join(format!("pk3c-scenario-{}.toml", std::process::id()));
    std::fs::write(
        &file,
        "[path]\nrate = \"50\"\nrtt = \"40ms\"\n[[flows]]\nscheme = \"pk3c\"\n",
    )
    .unwrap();
    let name = file.to_str().unwrap();
    let refused = sim(&["--scenario", name]);
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    for part in [name, "line 2", "rate = ", "50mbit"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}
