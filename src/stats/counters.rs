//! What the agent counts while it works: relaxed atomics, so that counting costs a few nanoseconds and never waits.

use crate::plan::Reason;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Every so many reports one is timed: a clock is read in tens of nanoseconds, a report takes some thousands.
const TIMED_EVERY: u64 = 8;
/// Upper ends of the classes of [`Times`], s.
pub(super) const TIME_BOUNDS_S: [f64; 11] = [
    1e-6, 2e-6, 3e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3, 1e-2, 1e-1,
];

/// How long something took, in classes.
#[derive(Debug)]
pub(super) struct Times {
    counts: [AtomicU64; TIME_BOUNDS_S.len() + 1],
    sum_ns: AtomicU64,
}

impl Times {
    fn note(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let class = TIME_BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.counts[class].fetch_add(1, Relaxed);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// The classes' counts, and the sum in s.
    pub(super) fn load(&self) -> (Vec<u64>, f64) {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        (counts.collect(), self.sum_ns.load(Relaxed) as f64 * 1e-9)
    }
}

/// The agent's own counters. They only grow, and start with the agent.
#[derive(Debug)]
pub struct Counters {
    pub(super) flows_started: AtomicU64,
    pub(super) flows_readopted: AtomicU64,
    pub(super) flows_ended: AtomicU64,
    pub(super) reports: AtomicU64,
    pub(super) reports_foreign: AtomicU64,
    pub(super) commands_failed: AtomicU64,
    pub(super) decisions: [AtomicU64; Reason::ALL.len()],
    pub(super) report_times: Times,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            flows_started: zero(),
            flows_readopted: zero(),
            flows_ended: zero(),
            reports: zero(),
            reports_foreign: zero(),
            commands_failed: zero(),
            decisions: array::from_fn(|_| zero()),
            report_times: Times {
                counts: array::from_fn(|_| zero()),
                sum_ns: zero(),
            },
        }
    }
}

impl Counters {
    /// A flow begins, or comes back from a spell of the datapath's fallback.
    pub(crate) fn flow_started(&self, readopted: bool) {
        if readopted {
            self.flows_readopted.fetch_add(1, Relaxed);
        } else {
            self.flows_started.fetch_add(1, Relaxed);
        }
    }

    /// A flow has ended.
    pub(crate) fn flow_ended(&self) {
        self.flows_ended.fetch_add(1, Relaxed);
    }

    /// A report arrives; returns the time if this one is to be timed.
    pub(crate) fn report_arrived(&self) -> Option<Instant> {
        let number = self.reports.fetch_add(1, Relaxed);
        number.is_multiple_of(TIMED_EVERY).then(Instant::now)
    }

    /// It has been answered.
    pub(crate) fn report_answered(&self, reason: Reason, arrived: Option<Instant>) {
        self.decisions[reason as usize].fetch_add(1, Relaxed);
        if let Some(arrived) = arrived {
            self.report_times.note(arrived.elapsed());
        }
    }

    /// A report of a program that is not ours.
    pub(crate) fn report_foreign(&self) {
        self.reports_foreign.fetch_add(1, Relaxed);
    }

    /// A command or a program was refused by the datapath.
    pub(crate) fn command_failed(&self) {
        self.commands_failed.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_classes() {
        let counters = Counters::default();
        for ns in [1, 1_000, 1_001, 4_000, 2_000_000_000] {
            counters.report_times.note(Duration::from_nanos(ns));
        }
        let (counts, sum_s) = counters.report_times.load();
        assert_eq!(counts, [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((sum_s - 2.000_006_002).abs() < 1e-12, "{sum_s}");
    }

    #[test]
    fn some_reports_are_timed_and_all_are_counted() {
        let counters = Counters::default();
        let timed = (0..16).filter_map(|_| {
            let arrived = counters.report_arrived();
            counters.report_answered(Reason::Wait, arrived);
            arrived
        });
        assert_eq!(timed.count(), 2);
        assert_eq!(counters.decisions[Reason::Wait as usize].load(Relaxed), 16);
    }
}
