//! Runs of the simulator, in the figures that promises are made in.

use pathsim::{
    Controller, Cubic, FlowSpec, MILLISECOND, PathSpec, QueueLimit, Results, SECOND, Scenario,
    Simulation,
};
use pk3c_ccp::ensemble::Ensemble;
use pk3c_ccp::params::Params;
use pk3c_ccp::simulate::{Decided, DecisionLog, Simulator};
use pk3c_ccp::units::Micros;
use std::sync::Arc;

pub(crate) const SEEDS: [u64; 3] = [1, 2, 3];
const BINS_PER_SECOND: f64 = 10.0;
/// Decisions that are kept of a flow.
const DECISIONS: usize = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cc {
    Pk3c,
    /// The core without handbrakes.
    Vivace,
    Cubic,
}

/// A run, and what its agents decided.
pub(crate) struct Run {
    pub(crate) out: Results,
    pub(crate) decisions: Vec<Vec<Decided>>,
    /// Reports that agents answered.
    pub(crate) reports: u64,
}

/// A clean path with a queue in bandwidth-delay products, of at least 20 packets.
pub(crate) fn path(mbit: f64, rtt_ms: u64, bdp: f64) -> PathSpec {
    let mut path = PathSpec::clean((mbit * 1e6) as u64, rtt_ms * MILLISECOND);
    path.queue = QueueLimit::Packets(path.bdp_packets(bdp).max(20));
    path
}

/// Endless flows that start so many ms apart.
pub(crate) fn flows(count: u64, apart_ms: u64) -> Vec<FlowSpec> {
    let flow = |number| FlowSpec {
        start_ns: number * apart_ms * MILLISECOND,
        ..FlowSpec::new("")
    };
    (0..count).map(flow).collect()
}

/// All flows under one scheme.
pub(crate) fn run(cc: Cc, path: &PathSpec, flows: &[FlowSpec], seconds: f64, seed: u64) -> Run {
    let mut params = Params::default();
    if cc == Cc::Vivace {
        params.set("algorithm", "vivace").unwrap();
    }
    let params = Arc::new(params);
    let simulator = Simulator::new().unwrap();
    let ensemble = Ensemble::default();
    let mut logs = Vec::new();
    let controllers = flows
        .iter()
        .zip(1u64..)
        .map(|(spec, number)| -> Box<dyn Controller> {
            if cc == Cc::Cubic {
                return Box::new(Cubic::default());
            }
            let log = DecisionLog::new(DECISIONS);
            logs.push(log.clone());
            let start = Micros::new(spec.start_ns / 1000);
            let seed = seed * 1_000_003 + number;
            Box::new(simulator.logged_flow(
                params.clone(),
                seed,
                start,
                Micros::new(100),
                &ensemble,
                Some(log),
            ))
        });
    let controllers = controllers.collect();
    let scenario = Scenario {
        path: path.clone(),
        flows: flows.to_vec(),
        duration_ns: (seconds * SECOND as f64) as u64,
        seed,
        series: true,
    };
    let out = Simulation::new(scenario, controllers).unwrap().run();
    Run {
        out,
        reports: logs.iter().map(DecisionLog::answers).sum(),
        decisions: logs.iter().map(|log| log.take().0).collect(),
    }
}

/// Seeds of a mean: of ten flows' Jain's index three deviate by .02.
const MEAN_SEEDS: u64 = 12;

/// The mean of a figure over more seeds.
pub(crate) fn mean(
    cc: Cc,
    path: &PathSpec,
    flows: &[FlowSpec],
    seconds: f64,
    figure: impl Fn(&Run) -> f64,
) -> f64 {
    let figures = (1..=MEAN_SEEDS).map(|seed| figure(&run(cc, path, flows, seconds, seed)));
    figures.sum::<f64>() / MEAN_SEEDS as f64
}

/// Mean goodput of a flow between two times, Mbit/s.
pub(crate) fn goodput(run: &Run, flow: usize, from_s: f64, to_s: f64) -> f64 {
    let bins = between(&run.out.flows[flow].series, from_s, to_s);
    bins.iter().map(|bin| bin.goodput_mbps).sum::<f64>() / bins.len() as f64
}

/// Mean RTT of a flow between two times, ms.
pub(crate) fn rtt(run: &Run, flow: usize, from_s: f64, to_s: f64) -> f64 {
    let bins = between(&run.out.flows[flow].series, from_s, to_s);
    let rtts: Vec<_> = bins
        .iter()
        .map(|bin| bin.rtt_ms)
        .filter(|ms| *ms > 0.0)
        .collect();
    rtts.iter().sum::<f64>() / rtts.len() as f64
}

fn between<T>(bins: &[T], from_s: f64, to_s: f64) -> &[T] {
    let index = |s: f64| ((s * BINS_PER_SECOND).round() as usize).min(bins.len());
    &bins[index(from_s)..index(to_s)]
}

/// Time from the first flow's start to the end of the first 100 ms with this goodput of all flows, s; the end of the
/// run if it never comes.
pub(crate) fn reached(run: &Run, start_s: f64, mbps: f64) -> f64 {
    let sum = |bin: usize| -> f64 {
        run.out
            .flows
            .iter()
            .filter_map(|flow| Some(flow.series.get(bin)?.goodput_mbps))
            .sum()
    };
    let bins = run.out.link_series.len();
    let first = (start_s * BINS_PER_SECOND).floor() as usize;
    let bin = (first..bins).find(|bin| sum(*bin) >= mbps).unwrap_or(bins);
    (bin + 1) as f64 / BINS_PER_SECOND - start_s
}

/// The longest queue of the first seconds, packets.
pub(crate) fn peak_queue(run: &Run, seconds: f64) -> f64 {
    let bins = between(&run.out.link_series, 0.0, seconds);
    bins.iter()
        .map(|bin| f64::from(bin.queue_packets))
        .fold(0.0, f64::max)
}

/// Goodput of the slowest flow in the second half, Mbit/s.
pub(crate) fn worst(run: &Run) -> f64 {
    let flows = run
        .out
        .flows
        .iter()
        .map(|flow| flow.goodput_second_half_mbps.unwrap());
    flows.fold(f64::INFINITY, f64::min)
}
