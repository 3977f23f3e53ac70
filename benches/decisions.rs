//! What one decision costs, in each phase: `Controller::on_report` in the situations of the recorded traces.
//!
//! `cargo bench --bench decisions`. `on_report/PHASE` is the CPU time of one report from its fields to the decision,
//! `observe/PHASE` of the first part of it alone: what the estimator makes of the same reports. The decision step is
//! the difference. Copies of the controllers as they were before the report are made outside the measured time.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use pk3c_ccp::controller::Controller;
use pk3c_ccp::estimate::SlotContext;
use pk3c_ccp::program::RawReport;
use pk3c_ccp::units::{Micros, Rate};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

/// Situations that are prepared together: they stay in the processor's second cache.
const BATCH: usize = 64;
/// Situations of a phase that are kept, evenly from all of them.
const KEPT: usize = 2048;

/// A controller, and the report that it gets next.
type Situation = (Controller, RawReport);

fn situations() -> BTreeMap<&'static str, Vec<Situation>> {
    let mut phases: BTreeMap<_, Vec<Situation>> = BTreeMap::new();
    for trace in common::traces() {
        let (mut controllers, reports) = common::controllers(&trace);
        let mut phase = vec!["startup"; controllers.len()];
        for (flow, raw) in reports {
            let before = controllers[flow].clone();
            phases.entry(phase[flow]).or_default().push((before, raw));
            phase[flow] = controllers[flow].on_report(&raw).phase.name();
        }
    }
    for all in phases.values_mut() {
        let step = all.len().div_ceil(KEPT);
        *all = all.iter().step_by(step).cloned().collect();
    }
    phases
}

/// The time of `count` calls of `act`, in batches of situations.
fn measure<T: Clone>(situations: &[T], count: u64, mut act: impl FnMut(&mut T)) -> Duration {
    let mut time = Duration::ZERO;
    let mut left = count as usize;
    for batch in situations.chunks(BATCH).cycle() {
        let mut batch = batch[..batch.len().min(left)].to_vec();
        let began = common::cpu_time();
        batch.iter_mut().for_each(&mut act);
        time += common::cpu_time() - began;
        left -= batch.len();
        if left == 0 {
            break;
        }
    }
    time
}

fn decisions(criterion: &mut Criterion) {
    let phases = situations();
    let mut group = criterion.benchmark_group("on_report");
    for (phase, situations) in &phases {
        group.bench_function(*phase, |bencher| {
            bencher.iter_custom(|count| {
                measure(situations, count, |(controller, raw)| {
                    black_box(controller.on_report(black_box(raw)));
                })
            });
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("observe");
    for (phase, situations) in &phases {
        let estimators: Vec<_> = situations
            .iter()
            .map(|(controller, raw)| (controller.estimator().clone(), *raw))
            .collect();
        let context = SlotContext {
            asked: Some(Rate::from_mbit(40.0)),
            length: Micros::from_millis(40),
            mss_bytes: 1448.0,
        };
        group.bench_function(*phase, |bencher| {
            bencher.iter_custom(|count| {
                measure(&estimators, count, |(estimator, raw)| {
                    black_box(estimator.observe(black_box(raw), context));
                })
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = decisions
}
criterion_main!(benches);
