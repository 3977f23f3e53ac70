//! Results for tests.

use crate::lab::report::read::{Loaded, Results};
use crate::lab::result::*;
use crate::lab::run::Settings;

/// As if they had been read.
pub(crate) fn results(runs: Vec<RunResult>) -> Results {
    let loaded = runs.into_iter().map(|run| Loaded {
        path: "x.json".into(),
        run,
    });
    Results {
        runs: loaded.collect(),
        unreadable: Vec::new(),
    }
}

/// A run without flows.
pub(crate) fn run(scenario: &str, scheme: &str, seed: u64) -> RunResult {
    RunResult {
        format: FORMAT,
        inputs: Inputs {
            scenario: scenario.into(),
            title: Some(format!("title of {scenario}")),
            source: None,
            scaled: None,
            quick: false,
            scheme: scheme.into(),
            backend: "host".into(),
            seed,
            duration_s: 30.0,
            path: "50 Mbit/s, 40 ms, 167 packets".into(),
            capacity_mbps: Some(48.27),
            rtt_ms: 40.0,
            queue_packets: Some(167),
            loss: 0.0,
            settings: Settings::default(),
            hash: format!("{scenario}-{scheme}"),
        },
        conditions: Conditions {
            began: "2026-11-21T05:49:54Z".into(),
            kernel: "6.12.0".into(),
            version: "0.1.0".into(),
            revision: "0123abc".into(),
            cpus: 2,
            ..Conditions::default()
        },
        void: None,
        total: Total {
            goodput_mbps: 40.0,
            use_run: Some(0.8287),
            jain: 1.0,
            ..Total::default()
        },
        flows: Vec::new(),
        link: None,
        agent: None,
        cpu: Cpu::default(),
    }
}

/// A flow with its goodput in bins of 100 ms.
pub(crate) fn flow(number: u32, start_s: f64, end_s: f64, goodput_mbps: Vec<f64>) -> FlowResult {
    let mbits: f64 = goodput_mbps.iter().map(|rate| rate * 0.1).sum();
    FlowResult {
        flow: number,
        scheme: "pk3c".into(),
        under_test: true,
        start_s,
        end_s,
        received_bytes: (mbits * 1e6 / 8.0) as u64,
        goodput_mbps: mbits / (end_s - start_s),
        series: FlowSeries {
            bin_s: 0.1,
            goodput_mbps,
            ..FlowSeries::default()
        },
        ..FlowResult::default()
    }
}

/// A run of one flow with so much goodput, Mbit/s.
pub(crate) fn measured(scenario: &str, scheme: &str, seed: u64, goodput_mbps: f64) -> RunResult {
    let mut result = run(scenario, scheme, seed);
    result.total.goodput_mbps = goodput_mbps;
    let capacity_mbps = result.inputs.capacity_mbps;
    result.total.use_run = capacity_mbps.map(|capacity| goodput_mbps / capacity);
    result.total.rtt_ms = Some(quantiles(41.0, 60.0));
    result.flows = vec![flow(1, 0.0, 30.0, vec![goodput_mbps; 300])];
    result.flows[0].scheme = scheme.into();
    result
}

pub(crate) fn quantiles(p50: f64, p95: f64) -> Quantiles {
    Quantiles {
        p50,
        p95,
        p99: p95 * 1.1,
        min: p50 * 0.9,
        mean: p50 * 1.1,
        max: p95 * 1.2,
    }
}
