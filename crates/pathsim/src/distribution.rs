//! Distributions of delays.

/// Precision of the RTT distribution: so many buckets per doubling, 0.4 % at most beside the value.
const BUCKETS: u64 = 128;

/// Delays in µs, in logarithmic buckets; exact below 128 µs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    counts: Vec<u32>,
    samples: u64,
    sum_us: u64,
    range_us: Option<(u64, u64)>,
}

impl Distribution {
    /// Adds a sample, µs.
    pub fn add(&mut self, us: u64) {
        let index = index_of(us);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(1);
        self.samples += 1;
        self.sum_us += us;
        self.widen((us, us));
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Forgets all samples, but keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.samples, self.sum_us, self.range_us) = (0, 0, None);
    }

    fn widen(&mut self, (low, high): (u64, u64)) {
        let range = self.range_us.get_or_insert((low, high));
        *range = (range.0.min(low), range.1.max(high));
    }

    /// Least and greatest sample, ms; `None` without samples.
    pub fn range_ms(&self) -> Option<(f64, f64)> {
        self.range_us
            .map(|(low, high)| (low as f64 / 1e3, high as f64 / 1e3))
    }

    /// A quantile by nearest rank, ms, to 0.4 %: the least value that at least this part of the samples does not
    /// exceed; `None` without samples.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        // 0.95 × 20 is a little more than 19 in binary, and must not become rank 20.
        let rank = (part.clamp(0.0, 1.0) * self.samples as f64 - 1e-9).ceil() as u64;
        let rank = rank.max(1);
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        })?;
        Some(middle_us(index) / 1e3)
    }

    /// Adds another one's samples.
    pub fn merge(&mut self, other: &Self) {
        let len = self.counts.len().max(other.counts.len());
        self.counts.resize(len, 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.samples += other.samples;
        self.sum_us += other.sum_us;
        if let Some(range) = other.range_us {
            self.widen(range);
        }
    }

    pub(crate) fn summary_ms(&self) -> [Option<f64>; 3] {
        [
            self.quantile_ms(0.5),
            self.quantile_ms(0.95),
            self.mean_ms(),
        ]
    }

    /// Mean, ms; `None` without samples.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum_us as f64 / self.samples as f64 / 1e3)
    }
}

fn index_of(us: u64) -> usize {
    let shift = us
        .checked_ilog2()
        .map_or(0, |log| u64::from(log.saturating_sub(7)));
    (shift * BUCKETS + (us >> shift)) as usize
}

fn middle_us(index: usize) -> f64 {
    let index = index as u64;
    let shift = (index / BUCKETS).saturating_sub(1);
    let low = (index - shift * BUCKETS) << shift;
    low as f64 + ((1u64 << shift) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for us in (0..2_000_000).step_by(7) {
            let index = index_of(us);
            assert!(index >= last);
            last = index;
            assert!(
                (middle_us(index) - us as f64).abs() <= us as f64 * 0.004 + 0.5,
                "{us}"
            );
        }
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        let of = |samples: u64, part| {
            let mut distribution = Distribution::default();
            (1..=samples).for_each(|us| distribution.add(us));
            (distribution.quantile_ms(part).unwrap() * 1e3).round()
        };
        let parts = [0.0, 0.5, 0.95, 0.951, 1.0];
        assert_eq!(
            parts.map(|part| of(20, part)),
            [1.0, 10.0, 19.0, 20.0, 20.0]
        );
        assert_eq!(parts.map(|part| of(10, part)), [1.0, 5.0, 10.0, 10.0, 10.0]);
        assert_eq!(parts.map(|part| of(3, part)), [1.0, 2.0, 3.0, 3.0, 3.0]);
    }

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let mut distribution = Distribution::default();
        (1..=1000).rev().for_each(|ms| distribution.add(ms * 1000));
        let [p50, p95, mean] = distribution.summary_ms().map(Option::unwrap);
        assert!((p50 / 500.0 - 1.0).abs() < 0.005 && (p95 / 950.0 - 1.0).abs() < 0.005);
        assert!((mean - 500.5).abs() < 1e-9);
        assert_eq!(Distribution::default().summary_ms(), [None; 3]);
    }
}
