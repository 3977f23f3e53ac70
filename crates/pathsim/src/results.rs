//! What a run showed.

use crate::SECOND;
use crate::distribution::Distribution;
use crate::flow::{BIN_NS, Flow, mbps, usable_bytes};
use crate::scenario::Scenario;
use serde::Serialize;

/// A flow in 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bin {
    /// Payload that arrived for the first time, Mbit/s.
    pub goodput_mbps: f64,
    /// Mean of the RTT samples, ms; 0 without one.
    pub rtt_ms: f64,
    /// The smoothed RTT at its end, ms.
    #[serde(skip)]
    pub srtt_ms: Option<f64>,
    /// 95th percentile of the one-way delays of packets that arrived, ms.
    #[serde(skip)]
    pub owd_p95_ms: Option<f64>,
    /// The congestion window at its end, packets.
    #[serde(skip)]
    pub cwnd_packets: Option<u64>,
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
    /// Goodput over what the path could carry meanwhile: rate × 1448/1500 × (1 - random loss behind the
    /// bottleneck).
    pub share: f64,
    /// Median RTT, ms; `None` without samples, as for UDP.
    pub rtt_p50_ms: Option<f64>,
    /// 95th percentile of the RTT, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Mean RTT, ms.
    pub rtt_mean_ms: Option<f64>,
    /// 95th percentile of the smoothed RTT, read every 200 ms as `ss` or iperf3 would, ms.
    pub srtt_p95_ms: Option<f64>,
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
    /// When its last data arrived, or it stopped, s of the run.
    #[serde(skip)]
    pub end_s: f64,
    /// Payload that arrived for the first time, bytes.
    #[serde(skip)]
    pub received_bytes: u64,
    /// Packets that were dropped or lost.
    #[serde(skip)]
    pub packets_lost: u64,
    /// All RTT samples.
    #[serde(skip)]
    pub rtts: Distribution,
    /// The smoothed RTT, read every 10 ms.
    #[serde(skip)]
    pub srtts: Distribution,
    /// One-way delays of the packets that arrived, from their sending on.
    #[serde(skip)]
    pub one_way: Distribution,
    /// Interarrival jitter at the end (RFC 3550 §6.4.1), ms; 0 before the second packet.
    #[serde(skip)]
    pub jitter_ms: f64,
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
    /// The same over what the path can carry: rate × 1448/1500 × (1 - random loss behind the
    /// bottleneck).
    pub share: f64,
    /// The same over the second half of the run.
    pub share_second_half: f64,
    /// 95th percentile of all flows' RTT samples, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Median of all flows' RTT samples, ms.
    pub rtt_p50_ms: Option<f64>,
    /// 95th percentile of all flows' smoothed RTT, read every 200 ms, ms.
    pub srtt_p95_ms: Option<f64>,
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
    /// Packets that were lost at random; others that are missing were dropped by the queue.
    #[serde(skip)]
    pub random_losses: u64,
}

impl Results {
    /// Of a run over; `events` were handled, and at most `peak` packets waited.
    pub(crate) fn of(
        scenario: &Scenario,
        flows: Vec<Flow<'_>>,
        peak: usize,
        mut link_series: Vec<LinkBin>,
        random_losses: u64,
        events: u64,
    ) -> Self {
        let duration_ns = scenario.duration_ns;
        let (mut rtts, mut srtts) = (Distribution::default(), Distribution::default());
        let (mut sent, mut missing, mut goodput, mut goodput_half) = (0, 0, 0, 0);
        let bins = if scenario.series {
            duration_ns.div_ceil(BIN_NS) as usize
        } else {
            0
        };
        let mut of_flows = Vec::with_capacity(flows.len());
        for flow in flows {
            rtts.merge(&flow.counts.rtts);
            srtts.merge(&flow.counts.srtts);
            sent += flow.sent();
            missing += flow.counts.missing;
            goodput += flow.counts.goodput;
            goodput_half += flow.counts.goodput_half;
            of_flows.push(flow.result(scenario, bins));
        }
        let [rtt_p50_ms, rtt_p95_ms, _] = rtts.summary_ms();
        let [_, srtt_p95_ms, _] = srtts.summary_ms();
        link_series.resize(bins, LinkBin::default());
        Self {
            seed: scenario.seed,
            duration_s: duration_ns as f64 / SECOND as f64,
            goodput_mbps: mbps(goodput, duration_ns),
            share: goodput as f64 / usable_bytes(scenario, 0, duration_ns),
            share_second_half: goodput_half as f64
                / usable_bytes(scenario, duration_ns / 2, duration_ns),
            rtt_p95_ms,
            rtt_p50_ms,
            srtt_p95_ms,
            loss: missing as f64 / sent.max(1) as f64,
            jain: jain(
                of_flows
                    .iter()
                    .map(|f| f.goodput_second_half_mbps.unwrap_or(0.0)),
            ),
            queue_peak_packets: peak as u64,
            events,
            flows: of_flows,
            link_series,
            random_losses,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert!((jain([3.0; 7]) - 1.0).abs() < 1e-12);
        assert!((jain([5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }
}
