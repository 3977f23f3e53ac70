//! Bytes over time, in bins of equal length.

use std::time::Duration;

/// Length of a bin.
const BIN: Duration = Duration::from_millis(100);

/// Bytes per 100 ms since the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins {
    bytes: Vec<u64>,
}

impl Bins {
    /// Length of a bin.
    pub const LENGTH: Duration = BIN;

    /// Counts bytes at a time.
    pub fn add(&mut self, at: Duration, bytes: u64) {
        let bin = Self::bin(at);
        if self.bytes.len() <= bin {
            self.bytes.resize(bin + 1, 0);
        }
        self.bytes[bin] += bytes;
    }

    /// The bin of a time.
    pub fn bin(at: Duration) -> usize {
        (at.as_nanos() / BIN.as_nanos()) as usize
    }

    /// Bins that a run of this length has, at least one; the last may be shorter than the others.
    pub fn count(run: Duration) -> usize {
        (run.as_nanos().div_ceil(BIN.as_nanos()) as usize).max(1)
    }

    /// All bins of a run, without those after its end.
    pub fn cut(mut self, run: Duration) -> Self {
        self.bytes.resize(Self::count(run), 0);
        self
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Bytes in a span of time: of the bin that it begins in, the part that is left of it; of the one that it ends in,
    /// all, since the end of a run is the end of its last bin.
    pub fn between(&self, from: Duration, to: Duration) -> u64 {
        let bins = (0u32..).zip(&self.bytes);
        let bytes = bins.map(|(number, bytes)| {
            let (begin, end) = (BIN * number, BIN * (number + 1));
            let left = end.saturating_sub(from.max(begin)).as_secs_f64() / BIN.as_secs_f64();
            if begin < to {
                *bytes as f64 * left
            } else {
                0.0
            }
        });
        bytes.sum::<f64>().round() as u64
    }

    /// Mbit/s, bin by bin.
    pub fn mbps(&self) -> Vec<f64> {
        let mbps = |bytes: &u64| *bytes as f64 * 8.0 / 1e6 / BIN.as_secs_f64();
        self.bytes.iter().map(mbps).collect()
    }

    /// Adds another flow's bins.
    pub fn merge(&mut self, other: &Self) {
        if self.bytes.len() < other.bytes.len() {
            self.bytes.resize(other.bytes.len(), 0);
        }
        for (own, others) in self.bytes.iter_mut().zip(&other.bytes) {
            *own += others;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fall_into_the_bin_of_their_time() {
        let ms = Duration::from_millis;
        let mut bins = Bins::default();
        for (at, bytes) in [(0, 1), (99, 2), (100, 4), (350, 8)] {
            bins.add(ms(at), bytes);
        }
        assert_eq!(bins.bytes, [3, 4, 0, 8]);
        assert_eq!(bins.total(), 15);
        assert_eq!(bins.between(ms(0), ms(200)), 7);
        assert_eq!(bins.between(ms(100), ms(10_000)), 12);
        assert_eq!(bins.between(ms(10_000), ms(20_000)), 0);
        // Half of the second bin, and all of the last.
        assert_eq!(bins.between(ms(150), ms(360)), 10);
        assert_eq!(bins.between(ms(125), ms(200)), 3);
        assert_eq!(bins.mbps()[1], 32.0 / 1e6 / 0.1);
        let mut both = Bins::default();
        both.merge(&bins);
        both.merge(&bins);
        assert_eq!(both.total(), 30);
        assert_eq!(bins.clone().cut(ms(210)).bytes, [3, 4, 0]);
        assert_eq!(bins.cut(ms(600)).bytes, [3, 4, 0, 8, 0, 0]);
    }
}
