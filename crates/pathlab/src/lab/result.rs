//! What a run showed: the JSON file that the lab writes for each.
//!
//! Everything that tables and reports print comes from these files. `docs/lab.md` explains the fields for those
//! who read them from other programs. Rates are in Mbit/s (10^6 bits) of payload unless said otherwise, times in
//! the unit that their name ends with. What was not measured is absent, never 0.

use serde::{Deserialize, Serialize};

use super::run::Settings;

/// Version of the format: what reads a file refuses other ones.
pub const FORMAT: u32 = 1;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`FORMAT`].
    pub format: u32,
    /// What was asked for.
    pub inputs: Inputs,
    /// Under which conditions it ran.
    pub conditions: Conditions,
    /// Why the result must not be used: the agent drove its flows for less than 99 % of their time, or the emulator
    /// was late. Files of such runs are kept for the reader, and no table counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// All flows under test together; cross traffic (flows with a scheme of their own) is not in it.
    pub total: Total,
    /// Every flow, in the scenario's order.
    pub flows: Vec<FlowResult>,
    /// The path from end to end, as the emulator saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkResult>,
    /// The agent, if the scheme has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentResult>,
    /// CPU time of the run.
    pub cpu: Cpu,
}

/// What determines a run. Results with equal inputs are interchangeable but for chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// The scenario's id.
    pub scenario: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What was changed to make it possible here, such as a lower rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<String>,
    /// Whether this is its short form.
    pub quick: bool,
    /// The scheme under test, as in `--cc`.
    pub scheme: String,
    /// What carried it: `host`, `guest` or `sim`.
    pub backend: String,
    /// Seed of all chance of the path.
    pub seed: u64,
    /// From the first start to the end, s.
    pub duration_s: f64,
    /// The path in words: `50 Mbit/s, 40 ms, 167 packets, 1 % loss`, or `loopback`.
    pub path: String,
    /// What the path carries at most net of headers (1448 of 1500 bytes) and random loss, Mbit/s of payload, over the
    /// run; the loopback device has no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_mbps: Option<f64>,
    /// Two-way propagation delay at the start, ms.
    pub rtt_ms: f64,
    /// Packets in the queue, at most, if its limit is one of packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
    /// Random loss on the way there, a ratio.
    pub loss: f64,
    /// How the ends were set up.
    pub settings: Settings,
    /// Hash of all that determines the result but the seed: scenario, scheme with its program and parameters, kernel.
    pub hash: String,
}

/// Under which conditions a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// When it began, RFC 3339, UTC.
    pub began: String,
    /// Kernel release that carried TCP, or `simulator`.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
    /// Revision that it was built from, with `-dirty` if the tree had changes.
    pub revision: String,
    /// State of the algorithm: a hash of the sources that decide; empty in results that do not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub algorithm: String,
    /// CPUs online.
    pub cpus: usize,
    /// What carried the packets: `emulator`, `netem` or `loopback`; empty in the simulator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub line: String,
    /// Version of iperf3, if it made the traffic.
    pub iperf3: Option<String>,
    /// Arguments of the agent.
    pub agent_args: Option<String>,
    /// Settings of the kernel that matter to TCP, in the senders' namespace.
    pub sysctls: std::collections::BTreeMap<String, String>,
    /// What the null sender found before the suite.
    pub self_check: Option<SelfCheck>,
    /// Whether an earlier suite made the run, with equal inputs: `began` says when.
    pub reused: bool,
}

/// What the emulator does to a null sender: datagrams of known number and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfCheck {
    /// The path in words.
    pub path: String,
    /// Capacity on the wire, Mbit/s, asked for and measured.
    pub capacity_mbps: Checked,
    /// One-way delay of a packet that need not wait, ms.
    pub delay_ms: Checked,
    /// Ratio of packets lost at random.
    pub loss: Checked,
    /// 99th percentile of the lateness of releases, µs, and its bound.
    pub late_p99_us: Checked,
    /// Whether all are within their bounds.
    pub passed: bool,
}

/// A value asked for and the one measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// What it should be, or at most.
    pub asked: f64,
    /// What it is.
    pub measured: f64,
}

/// Quantiles of one quantity, nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Least.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Greatest.
    pub max: f64,
}

/// The flows under test together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Total {
    /// How long the run was, s, if all its transfers were complete before the end that was planned.
    pub seconds: Option<f64>,
    /// Payload at the receivers over the whole run, Mbit/s.
    pub goodput_mbps: f64,
    /// That over the capacity, if there is one.
    pub use_run: Option<f64>,
    /// The same over the second half of the run.
    pub use_second_half: Option<f64>,
    /// Jain's index of the flows' goodputs, each over its own life.
    pub jain: f64,
    /// Jain's index of the goodputs in the second half of the run.
    pub jain_second_half: Option<f64>,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Those per delivered segment.
    pub retransmission_ratio: f64,
    /// Quantiles of TCP's smoothed RTT, ms, of all samples.
    pub rtt_ms: Option<Quantiles>,
    /// Quantiles of the packets' one-way delay on the way there, ms.
    pub owd_ms: Option<Quantiles>,
    /// Packets that did not get there (queue and random) over packets sent; those still on their way at the end are
    /// not lost.
    pub loss: Option<f64>,
}

/// A flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowResult {
    /// Its number, from 1.
    pub flow: u32,
    /// Its scheme.
    pub scheme: String,
    /// Whether it is under test; others are cross traffic.
    pub under_test: bool,
    /// When it started, s of the run.
    pub start_s: f64,
    /// When its last byte arrived, or it was stopped, s of the run.
    pub end_s: f64,
    /// Payload handed to TCP, bytes.
    pub sent_bytes: u64,
    /// Payload at the receiver, bytes.
    pub received_bytes: u64,
    /// Over its life at the receiver, Mbit/s.
    pub goodput_mbps: f64,
    /// Over the part of its life in the second half of the run, Mbit/s.
    pub goodput_second_half_mbps: Option<f64>,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Quantiles of TCP's smoothed RTT, ms.
    pub rtt_ms: Option<Quantiles>,
    /// Quantiles of its packets' one-way delay, ms.
    pub owd_ms: Option<Quantiles>,
    /// Packets that did not get there over packets sent.
    pub loss: Option<f64>,
    /// Transfers of a size, in their order.
    pub completions: Vec<Completion>,
    /// Of a UDP flow: interarrival jitter (RFC 3550 §6.4.1), ms.
    pub jitter_ms: Option<f64>,
    /// Of a UDP flow: datagrams sent.
    pub datagrams_sent: Option<u64>,
    /// Of a UDP flow: datagrams missing at the receiver, up to the last one that arrived.
    pub datagrams_lost: Option<u64>,
    /// Of a flow with a receive window of its own: the greatest that its sender saw in the second half of its life,
    /// bytes.
    pub receive_window_bytes: Option<u64>,
    /// Over time.
    pub series: FlowSeries,
}

/// A transfer of a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Round, from 1.
    pub round: u32,
    /// When the connection was asked for, s of the run.
    pub start_s: f64,
    /// From the first byte sent until the receiver has the last byte, s; absent if it was not complete at the end.
    pub seconds: Option<f64>,
    /// Payload, bytes.
    pub bytes: u64,
}

/// A flow over time, in bins of equal length from the start of the run; `null` where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowSeries {
    /// Length of a bin, s.
    pub bin_s: f64,
    /// Payload at the receiver, Mbit/s.
    pub goodput_mbps: Vec<f64>,
    /// TCP's smoothed RTT, ms.
    pub rtt_ms: Vec<Option<f64>>,
    /// 95th percentile of the one-way delays, ms.
    pub owd_ms: Vec<Option<f64>>,
    /// Congestion window, packets.
    pub cwnd_packets: Vec<Option<f64>>,
}

/// The path, as the emulator saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkResult {
    /// Packets that arrived on the way there.
    pub arrived: u64,
    /// Of these, dropped by the queue.
    pub queue_drops: u64,
    /// Lost at random.
    pub random_losses: u64,
    /// Handed on at the far end.
    pub delivered: u64,
    /// Of these, marked by a managed queue (ECN).
    pub marked: u64,
    /// Most packets that waited.
    pub queue_peak_packets: u64,
    /// Length of a bin of the series, s.
    pub bin_s: f64,
    /// Most packets that waited, per bin.
    pub queue_packets: Vec<u32>,
    /// What the bottleneck could carry, Mbit/s on the wire, per bin.
    pub capacity_mbps: Vec<f64>,
    /// How late the emulator released packets; absent in the simulator.
    pub lateness: Option<Lateness>,
    /// Packets of the ends that the emulator never saw.
    pub unseen: u64,
}

/// How late packets were released.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lateness {
    /// Mean, µs.
    pub mean_us: f64,
    /// 99th percentile, µs.
    pub p99_us: f64,
    /// Greatest, µs.
    pub max_us: f64,
    /// How the kernel scheduled the emulator: `fifo` or the reason why not.
    pub scheduling: String,
}

/// The agent of a scheme.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentResult {
    /// Share of its flows' time in which it drove them.
    pub driven: f64,
}

/// CPU time, s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// What sent: user and system time, without what the kernel does in interrupts.
    pub sender_s: Option<f64>,
    /// The agent.
    pub agent_s: Option<f64>,
    /// The emulator.
    pub emulator_s: Option<f64>,
}
