//! How late the emulator released packets: the error of its clock, and so of every result.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// An emulation whose 99th percentile of lateness is above this, µs, is not to be trusted: 1 ms is 2.5 % of an RTT of
/// 40 ms, and what Linux' own timers of 1 kHz would add.
pub const P99_BOUND_US: u64 = 1_000;

/// Values up to this many microseconds are counted exactly; later ones only share a last class.
const CLASSES_US: usize = 20_000;

/// A histogram of delays past the due time, in classes of 1 µs.
#[derive(Clone)]
pub struct Lateness {
    classes: Vec<u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

/// The figures that judge an emulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatenessSummary {
    /// The latest release, in µs.
    pub max_lateness_us: u64,
    /// Mean over all packets, in µs.
    pub mean_lateness_us: f64,
    /// 99th percentile, in µs, rounded up to the next one; `max_lateness_us` if past 20 ms.
    pub p99_lateness_us: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            classes: vec![0; CLASSES_US + 1],
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().fmt(f)
    }
}

impl Lateness {
    /// Counts one release.
    pub fn record(&mut self, late: Duration) {
        let class = usize::try_from(late.as_micros())
            .unwrap_or(CLASSES_US)
            .min(CLASSES_US);
        self.classes[class] += 1;
        self.count += 1;
        self.sum += late;
        self.max = self.max.max(late);
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (own, others) in self.classes.iter_mut().zip(&other.classes) {
            *own += others;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The figures; all zero if nothing was counted.
    pub fn summary(&self) -> LatenessSummary {
        let max_lateness_us = u64::try_from(self.max.as_micros()).unwrap_or(u64::MAX);
        let mean_us = self.sum.as_secs_f64() * 1e6 / self.count.max(1) as f64;
        LatenessSummary {
            max_lateness_us,
            mean_lateness_us: (mean_us * 10.0).round() / 10.0,
            p99_lateness_us: self.percentile_us(99).min(max_lateness_us),
        }
    }

    /// Upper edge of the class that holds the percentile.
    fn percentile_us(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (class, count) in self.classes[..CLASSES_US].iter().enumerate() {
            seen += count;
            if seen >= rank {
                return class as u64 + 1;
            }
        }
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values_us: impl IntoIterator<Item = u64>) -> Lateness {
        let mut lateness = Lateness::default();
        values_us
            .into_iter()
            .for_each(|us| lateness.record(Duration::from_micros(us)));
        lateness
    }

    #[test]
    fn nothing_counted_is_all_zero() {
        assert_eq!(Lateness::default().summary(), LatenessSummary::default());
    }

    #[test]
    fn mean_maximum_and_percentile() {
        let summary = recorded(1..=100).summary();
        assert_eq!(summary.max_lateness_us, 100);
        assert_eq!(summary.p99_lateness_us, 100);
        assert!((summary.mean_lateness_us - 50.5).abs() < 0.1);
        assert_eq!(
            recorded((0..1000).map(|n| if n < 985 { 5 } else { 700 }))
                .summary()
                .p99_lateness_us,
            700
        );
    }

    #[test]
    fn percentiles_past_the_last_class_are_the_maximum() {
        assert_eq!(recorded([50_000, 60_000]).summary().p99_lateness_us, 60_000);
    }

    #[test]
    fn merging_equals_counting_together() {
        let mut merged = recorded(0..500);
        merged.merge(&recorded(500..1000));
        assert_eq!(merged.summary(), recorded(0..1000).summary());
    }
}
