//! The algorithm on what real kernels measured: the records in `traces/`.
//!
//! Every decision of a trace is a snapshot. When the algorithm is changed on purpose, look at `pk3c-ccp replay
//! traces/*.jsonl`, then `pk3c-ccp replay --accept traces/*.jsonl`; the difference of the files shows what changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../benches/common/mod.rs"]
mod common;

use common::Event;
use pk3c_ccp::controller::{Controller, FlowStart, MIN_WINDOW_PKTS};
use pk3c_ccp::params::Params;
use pk3c_ccp::plan::{Command, Decision};
use pk3c_ccp::program::RawReport;
use pk3c_ccp::record::{Decided, Input, Line, Measured, Reader, Replay, Step, Told};
use pk3c_ccp::units::{Bytes, Rate};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// No trace is larger, nor are all of them together.
const MAX_BYTES: u64 = 200_000;
const MAX_ALL_BYTES: u64 = 2_000_000;
const MIN_TRACES: usize = 12;

fn traces() -> BTreeMap<String, PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect()
}

fn steps(path: &Path) -> Vec<Step> {
    let file = BufReader::new(File::open(path).unwrap());
    let replay =
        Replay::new(file, &[]).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    replay
        .map(|step| step.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

#[test]
fn every_trace_replays_to_its_decisions() {
    let mut differences = Vec::new();
    for (name, path) in traces() {
        for step in steps(&path).iter().filter(|step| step.differs()).take(3) {
            let Step {
                line,
                flow,
                at_s,
                recorded,
                replayed,
                ..
            } = step;
            differences.push(format!(
                "{name}: line {line}, flow {flow}, {at_s:.3} s\n  recorded {recorded:?}\n  now      {replayed:?}"
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "the algorithm decides differently; if that is meant, `pk3c-ccp replay --accept traces/*.jsonl`:\n{}",
        differences.join("\n")
    );
}

#[test]
fn there_are_enough_traces_and_they_are_small() {
    let traces = traces();
    assert!(traces.len() >= MIN_TRACES, "{}", traces.len());
    let sizes: Vec<_> = traces
        .values()
        .map(|path| fs::metadata(path).unwrap().len())
        .collect();
    assert!(sizes.iter().all(|size| *size <= MAX_BYTES), "{sizes:?}");
    assert!(sizes.iter().sum::<u64>() <= MAX_ALL_BYTES, "{sizes:?}");
    let readme =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/README.md")).unwrap();
    for name in traces.keys() {
        assert!(
            readme.contains(&format!("`{name}`")),
            "{name} is not in traces/README.md"
        );
    }
}

fn check_bounds(name: &str, step: &Step, params: &Params) {
    let Decided {
        rate, cwnd, told, ..
    } = &step.replayed;
    let rates = match told {
        Some(Told::Run {
            rates, hold, mi_us, ..
        }) => {
            assert!((1..=5_000_000).contains(mi_us), "{name}: {step:?}");
            rates.iter().chain([hold, rate]).copied().collect()
        }
        Some(Told::Steer { rate: told, mi_us }) => {
            assert!((1..=5_000_000).contains(mi_us), "{name}: {step:?}");
            vec![*told, *rate]
        }
        Some(Told::Window) | None => vec![*rate],
    };
    let (low, high) = (params.min_rate.to_wire(), params.max_rate.to_wire());
    assert!(
        rates.iter().all(|rate| (low..=high).contains(rate)),
        "{name}: {step:?}"
    );
    assert!(*cwnd <= u64::from(u32::MAX), "{name}: {step:?}");
}

#[test]
fn rates_and_windows_stay_in_their_bounds() {
    for (name, path) in traces() {
        let params = Reader::new(BufReader::new(File::open(&path).unwrap()))
            .unwrap()
            .params()
            .clone();
        let mut mss = BTreeMap::new();
        for step in steps(&path) {
            if let Input::Start { mss: bytes, .. } = step.input {
                mss.insert(step.flow, bytes.get());
            }
            check_bounds(&name, &step, &params);
            let least = MIN_WINDOW_PKTS * mss[&step.flow] as f64;
            assert!(step.replayed.cwnd as f64 >= least, "{name}: {step:?}");
        }
    }
}

/// What a trace is there for, in figures of its inputs.
struct Facts {
    /// Flows of which more than ten reports came.
    flows: usize,
    starts: usize,
    readopts: usize,
    timeouts: usize,
    lost: f64,
    pkts: f64,
    /// Largest and median rate at which packets of a slot arrived.
    top_mbps: f64,
    median_mbps: f64,
    rtt_min_ms: f64,
    /// 90th percentile of the slots' smallest RTTs.
    rtt_p90_ms: f64,
    limited: f64,
}

fn facts(steps: &[Step]) -> Facts {
    let measured: Vec<(u64, &Measured)> = steps
        .iter()
        .filter_map(|step| match &step.input {
            Input::Report(measured) => Some((step.flow, &**measured)),
            _ => None,
        })
        .collect();
    let mut reports = BTreeMap::new();
    for (flow, _) in &measured {
        *reports.entry(*flow).or_insert(0) += 1;
    }
    let flows: BTreeSet<_> = reports
        .iter()
        .filter(|(_, count)| **count > 10)
        .map(|(flow, _)| *flow)
        .collect();
    let of_flows = || {
        measured
            .iter()
            .filter(|(flow, _)| flows.contains(flow))
            .map(|(_, measured)| measured)
    };
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let arrived = sorted(
        of_flows()
            .filter(|m| m.mi.samples >= 8.0)
            .map(|m| m.mi.goodput.mbit())
            .collect(),
    );
    let rtts = sorted(
        of_flows()
            .filter_map(|m| m.mi.rtt)
            .map(|rtt| rtt.min.as_secs() * 1e3)
            .collect(),
    );
    let asked: Vec<_> = of_flows().filter(|m| m.mi.asked.is_some()).collect();
    let limited = asked.iter().filter(|m| m.mi.limited).count();
    let count =
        |wanted: fn(&Input) -> bool| steps.iter().filter(|step| wanted(&step.input)).count();
    Facts {
        flows: flows.len(),
        starts: count(|input| matches!(input, Input::Start { .. })),
        readopts: count(|input| matches!(input, Input::Readopt { .. })),
        timeouts: measured.iter().filter(|(_, m)| m.timeout).count(),
        lost: measured.iter().map(|(_, m)| m.mi.lost_pkts).sum(),
        pkts: measured.iter().map(|(_, m)| m.mi.pkts()).sum(),
        top_mbps: arrived.last().copied().unwrap_or(0.0),
        median_mbps: arrived.get(arrived.len() / 2).copied().unwrap_or(0.0),
        rtt_min_ms: rtts.first().copied().unwrap_or(0.0),
        rtt_p90_ms: rtts.get(rtts.len() * 9 / 10).copied().unwrap_or(0.0),
        limited: limited as f64 / asked.len().max(1) as f64,
    }
}

/// Whether a flow of this trace heard of others.
fn hears(path: &Path) -> bool {
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut lines = std::iter::from_fn(|| reader.next_line().unwrap());
    lines.any(|line| matches!(line, Line::Report { known: Some(_), .. }))
}

#[test]
fn every_trace_shows_what_it_is_named_for() {
    for (name, path) in traces() {
        let Facts {
            flows,
            starts,
            readopts,
            timeouts,
            lost,
            pkts,
            top_mbps,
            median_mbps,
            rtt_min_ms,
            rtt_p90_ms,
            limited,
        } = facts(&steps(&path));
        let loss = lost / pkts.max(1.0);
        println!(
            "{name:14} flows {flows}/{starts} readopted {readopts} timeouts {timeouts} loss {:.2}% \
             arrived median {median_mbps:.2} top {top_mbps:.2} Mbit/s RTT {rtt_min_ms:.1} to {rtt_p90_ms:.1} ms \
             limited {limited:.2}",
            100.0 * loss
        );
        let shown = match name.as_str() {
            "clean" | "clean-6.1" => loss < 0.01 && (40.0..60.0).contains(&median_mbps),
            "loss-1" => (0.007..0.02).contains(&loss),
            "loss-5" => (0.04..0.07).contains(&loss),
            "shallow" => lost > 5.0 && rtt_p90_ms < rtt_min_ms + 3.0,
            "deep" => (15.0..25.0).contains(&median_mbps) && loss < 0.01,
            "eight-flows" => flows == 8 && hears(&path),
            "low-rate" => median_mbps < 0.6,
            "outage" => timeouts > 0,
            "app-limited" => limited > 0.3 && median_mbps < 25.0,
            "jitter" => rtt_p90_ms > rtt_min_ms + 1.0,
            "reordering" => median_mbps > 20.0,
            "against-cubic" => rtt_p90_ms > 1.3 * rtt_min_ms,
            "short" => starts >= 20,
            "high-rate" => median_mbps > 120.0,
            "low-rtt" => rtt_min_ms < 4.0,
            "rate-steps" => top_mbps > 40.0 && rtt_p90_ms > rtt_min_ms,
            "fallback" => readopts >= 2,
            other => panic!("{other}: say here what this trace is there for"),
        };
        assert!(shown, "{name} does not show what it is there for");
    }
}

/// A flow of a trace, as inputs alone.
struct Recorded {
    seed: u64,
    start: FlowStart,
    reports: Vec<[u64; 16]>,
}

static FLOWS: LazyLock<Vec<Recorded>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for trace in common::traces() {
        let mut flows = BTreeMap::new();
        for event in &trace.events {
            match *event {
                Event::Start { flow, seed, start } => {
                    let reports = Vec::new();
                    flows.insert(
                        flow,
                        Recorded {
                            seed,
                            start,
                            reports,
                        },
                    );
                }
                Event::Report { flow, raw } => {
                    flows.get_mut(&flow).unwrap().reports.push(raw.fields());
                }
                Event::End { .. } => {}
            }
        }
        all.extend(flows.into_values().filter(|flow| flow.reports.len() > 10));
    }
    all
});

/// What a bad datapath does to reports.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Drop,
    Repeat,
    /// Swap with the one before.
    Swap,
    Flip {
        field: usize,
        bit: u32,
    },
    Set {
        field: usize,
        value: u64,
    },
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Drop),
        Just(Damage::Repeat),
        Just(Damage::Swap),
        (0..16_usize, 0..64_u32).prop_map(|(field, bit)| Damage::Flip { field, bit }),
        (
            0..16_usize,
            prop_oneof![Just(0), Just(1), Just(u64::from(u32::MAX)), Just(u64::MAX)]
        )
            .prop_map(|(field, value)| Damage::Set { field, value }),
    ]
}

fn damaged(reports: &[[u64; 16]], damages: &[(prop::sample::Index, Damage)]) -> Vec<[u64; 16]> {
    let mut reports = reports.to_vec();
    for (index, damage) in damages {
        if reports.len() < 2 {
            break;
        }
        let at = index.index(reports.len());
        match *damage {
            Damage::Drop => drop(reports.remove(at)),
            Damage::Repeat => reports.insert(at, reports[at]),
            Damage::Swap => reports.swap(at.saturating_sub(1), at),
            Damage::Flip { field, bit } => reports[at][field] ^= 1 << bit,
            Damage::Set { field, value } => reports[at][field] = value,
        }
    }
    reports
}

fn check_decision(decision: &Decision, params: &Params, mss: Bytes) -> Result<(), TestCaseError> {
    let ok = |rate: Rate| rate >= params.min_rate && rate <= params.max_rate;
    prop_assert!(ok(decision.rate), "{decision:?}");
    prop_assert!(
        decision.cwnd.get() as f64 >= MIN_WINDOW_PKTS * mss.get() as f64,
        "{decision:?}"
    );
    match decision.command {
        Some(Command::Run { plan, .. }) => {
            prop_assert!(
                plan.rates.into_iter().chain([plan.hold]).all(ok),
                "{decision:?}"
            );
            prop_assert!(plan.length.us() > 0, "{decision:?}");
        }
        Some(Command::Steer { rate, length, .. }) => {
            prop_assert!(ok(rate) && length.us() > 0, "{decision:?}");
        }
        Some(Command::Window { .. }) | None => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Reports that were recorded, and then lost, doubled, reordered or garbled: no panic, all bounds hold.
    #[test]
    fn damaged_traces_do_no_harm(
        flow in any::<prop::sample::Index>(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..40),
    ) {
        let recorded = flow.get(&FLOWS);
        let params = Arc::new(Params::default());
        let (mut controller, first) = Controller::new(params.clone(), recorded.seed, recorded.start);
        check_decision(&first, &params, recorded.start.mss)?;
        for raw in damaged(&recorded.reports, &damages) {
            let decision = controller.on_report(&RawReport::from_fields(raw));
            check_decision(&decision, &params, recorded.start.mss)?;
        }
    }
}
