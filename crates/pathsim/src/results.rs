//! What a run showed.

use serde::Serialize;

/// Precision of the RTT distribution: so many buckets per doubling, 0.4 % at most beside the value.
const BUCKETS: u64 = 128;

/// RTTs in µs, in logarithmic buckets; exact below 128 µs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distribution {
    counts: Vec<u32>,
    samples: u64,
    sum_us: u64,
}

impl Distribution {
    pub(crate) fn add(&mut self, us: u64) {
        let index = index_of(us);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(1);
        self.samples += 1;
        self.sum_us += us;
    }

    /// The value below which this part of the samples lies, ms.
    fn quantile_ms(&self, part: f64) -> Option<f64> {
        let last = self.samples.checked_sub(1)?;
        let rank = (last as f64 * part) as u64;
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen > rank
        })?;
        Some(middle_us(index) / 1e3)
    }

    fn mean_ms(&self) -> Option<f64> {
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

/// A flow in 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bin {
    /// Payload that arrived for the first time, Mbit/s.
    pub goodput_mbps: f64,
    /// Mean of the RTT samples, ms; 0 without one.
    pub rtt_ms: f64,
}

/// The bottleneck in 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LinkBin {
    /// Most packets that waited.
    pub queue_packets: u32,
    /// Packets that were dropped or lost.
    pub lost: u32,
}

/// What one flow did. The serialized field names are a public format.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowResult {
    /// Name of its scheme.
    pub scheme: String,
    /// Payload that arrived for the first time, over the flow's life, Mbit/s.
    pub goodput_mbps: f64,
    /// The same over the part of its life in the second half of the run; `None` if there is none.
    pub goodput_second_half_mbps: Option<f64>,
    /// Goodput over what the path could carry meanwhile: rate × 1448/1500 × (1 - random loss).
    pub share: f64,
    /// Median RTT, ms; `None` without samples, as for UDP.
    pub rtt_p50_ms: Option<f64>,
    /// 95th percentile of the RTT, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Mean RTT, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Part of its packets that did not arrive, by drop or by random loss.
    pub loss: f64,
    /// Packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Packets that were sent again.
    pub retransmissions: u64,
    /// Retransmissions of what had arrived.
    pub spurious_retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Time from its start until all of its data had arrived, s; `None` for an endless or an unfinished flow.
    pub completion_s: Option<f64>,
    /// 100 ms a bin from the run's start, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Bin>,
}

/// What a run showed. The serialized field names are a public format.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Seed of the run.
    pub seed: u64,
    /// Length, s.
    pub duration_s: f64,
    /// The flows, in the scenario's order.
    pub flows: Vec<FlowResult>,
    /// Goodput of all flows over the whole run, Mbit/s.
    pub goodput_mbps: f64,
    /// The same over what the path can carry: rate × 1448/1500 × (1 - random loss).
    pub share: f64,
    /// The same over the second half of the run.
    pub share_second_half: f64,
    /// 95th percentile of all flows' RTT samples, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Median of all flows' RTT samples, ms.
    pub rtt_p50_ms: Option<f64>,
    /// Lost part of all packets.
    pub loss: f64,
    /// Jain's index of the goodput in the second half of the run (0 for flows that are not there), 1/n to 1.
    pub jain: f64,
    /// Most packets that waited in the bottleneck.
    pub queue_peak_packets: u64,
    /// Events that were simulated.
    pub events: u64,
    /// The bottleneck, 100 ms a bin, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_series: Vec<LinkBin>,
}

/// Jain's fairness index, 1/n to 1; 1 for nothing at all.
pub fn jain(values: impl IntoIterator<Item = f64>) -> f64 {
    let (count, sum, squares) = values
        .into_iter()
        .fold((0.0, 0.0, 0.0), |(n, sum, squares), x| {
            (n + 1.0, sum + x, squares + x * x)
        });
    if squares > 0.0 {
        sum * sum / (count * squares)
    } else {
        1.0
    }
}

impl Distribution {
    pub(crate) fn merge(&mut self, other: &Self) {
        let len = self.counts.len().max(other.counts.len());
        self.counts.resize(len, 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.samples += other.samples;
        self.sum_us += other.sum_us;
    }

    pub(crate) fn summary_ms(&self) -> [Option<f64>; 3] {
        [
            self.quantile_ms(0.5),
            self.quantile_ms(0.95),
            self.mean_ms(),
        ]
    }
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
    fn quantiles_are_those_of_the_samples() {
        let mut distribution = Distribution::default();
        (1..=1000).rev().for_each(|ms| distribution.add(ms * 1000));
        let [p50, p95, mean] = distribution.summary_ms().map(Option::unwrap);
        assert!((p50 / 500.0 - 1.0).abs() < 0.005 && (p95 / 950.0 - 1.0).abs() < 0.005);
        assert!((mean - 500.5).abs() < 1e-9);
        assert_eq!(Distribution::default().summary_ms(), [None; 3]);
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert!((jain([3.0; 7]) - 1.0).abs() < 1e-12);
        assert!((jain([5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }
}
