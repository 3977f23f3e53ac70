//! What a report costs, over whole recorded traces.
//!
//! `cargo bench --bench traces`. `controller/...` is the algorithm alone, `agent/...` everything between receiving a
//! message and having handed over the answer: portus' loop and serialisation, the agent, the algorithm; no system call.
//! Every figure is the CPU time of one report.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

mod common;

use common::{Event, Trace};
use criterion::{Criterion, criterion_group, criterion_main};
use pk3c_ccp::agent::{Config, Pk3c};
use std::hint::black_box;
use std::time::Duration;

/// The seed that the traces were recorded with, so that flows get theirs again.
const SEED: u64 = 1;
/// Shorter ones say more about the beginning of flows than about reports.
const MIN_REPORTS: usize = 100;

fn through_controllers(trace: &Trace, count: u64) -> Duration {
    let (fresh, reports) = common::controllers(trace);
    let mut time = Duration::ZERO;
    let mut left = count as usize;
    while left > 0 {
        let mut controllers = fresh.clone();
        let some = &reports[..reports.len().min(left)];
        let began = common::cpu_time();
        for (flow, raw) in some {
            black_box(controllers[*flow].on_report(black_box(raw)));
        }
        time += common::cpu_time() - began;
        left -= some.len();
    }
    time
}

/// Whole traces are run, once with and once without the reports; the difference is theirs.
fn through_the_agent(trace: &Trace, count: u64) -> Duration {
    let all = common::messages(&trace.events);
    let flows: Vec<_> = trace
        .events
        .iter()
        .filter(|event| !matches!(event, Event::Report { .. }))
        .copied()
        .collect();
    let flows = common::messages(&flows);
    let agent = || {
        Pk3c::new(Config {
            params: trace.params.clone(),
            seed: SEED,
            ..Config::default()
        })
    };
    let timed = |messages| {
        let agent = agent();
        let began = common::cpu_time();
        common::run(agent, messages);
        common::cpu_time() - began
    };
    let runs = count.div_ceil(trace.reports() as u64);
    let time: Duration = (0..runs)
        .map(|_| timed(&all).saturating_sub(timed(&flows)))
        .sum();
    time.mul_f64(count as f64 / (runs * trace.reports() as u64) as f64)
}

fn traces(criterion: &mut Criterion) {
    let traces: Vec<_> = common::traces()
        .into_iter()
        .filter(|trace| trace.reports() >= MIN_REPORTS)
        .collect();
    let mut group = criterion.benchmark_group("controller");
    for trace in &traces {
        group.bench_function(&trace.name, |bencher| {
            bencher.iter_custom(|count| through_controllers(trace, count));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("agent");
    for trace in &traces {
        group.bench_function(&trace.name, |bencher| {
            bencher.iter_custom(|count| through_the_agent(trace, count));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = traces
}
criterion_main!(benches);
