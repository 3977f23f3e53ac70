//! What a flow sends, and how its two ends behave.

use super::{InvalidScenario, MAX_TIME_NS, in_range, time};
use crate::{MILLISECOND, MSS};
use serde::{Deserialize, Serialize};

/// Segments in a burst at most: 64 KiB, as Linux hands them to a device with segmentation offload.
const MAX_BURST_SEGMENTS: u32 = 44;

/// How a flow's data gets there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// With ACKs and retransmissions.
    #[default]
    Tcp,
    /// Neither.
    Udp,
}

/// What the application has to send. What it writes is counted in whole segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Always more.
    #[default]
    Endless,
    /// So many bytes, rounded up to whole segments; then the flow is complete.
    Bytes(u64),
    /// So many bits per second of payload, written as they come.
    Rate(u64),
    /// A chunk from time to time, the first at once, as video over HTTP: bursts and pauses. TCP only.
    Chunks {
        /// Bytes in a chunk, rounded up to whole segments.
        bytes: u64,
        /// From the writing of one chunk to that of the next, ns.
        period_ns: u64,
    },
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckPolicy {
    /// After so many packets in order, at least 1. What is out of order is acknowledged at once.
    pub every: u32,
    /// Or so long after the first of them, ns.
    pub delay_ns: u64,
    /// ACKs leave only at multiples of this time, ns; 0 for at once. Models links that collect ACKs.
    pub aggregation_ns: u64,
    /// After three ACKs at once for packets out of order, one per this time, ns, or per 1/20 of the RTT if that
    /// is less; 0 for one per packet. Linux' SACK compression (`tcp_comp_sack_delay_ns`).
    pub compression_ns: u64,
}

impl Default for AckPolicy {
    /// As Linux: every second packet, 40 ms; out of order one ACK per millisecond.
    fn default() -> Self {
        Self {
            every: 2,
            delay_ns: 40 * MILLISECOND,
            aggregation_ns: 0,
            compression_ns: MILLISECOND,
        }
    }
}

/// What a receiver makes the sender believe, to its own advantage or to others' harm. No scenario file can ask for it.
///
/// It never acknowledges what was not sent: Linux takes no notice of such ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lie {
    /// Acknowledges what it got, and so many segments beyond, sent or lost: losses are hidden, and RTTs are too short.
    /// 0 only hides losses. What did not arrive is never sent again. It takes packets out of order for old ones.
    Ahead(u32),
    /// Takes every packet with a number that this divides for lost, also when it is sent again; at least 2.
    InventLosses(u32),
    /// Says of every packet that was sent again and arrived that it had arrived before (D-SACK, RFC 3708): what was
    /// lost was none, and nothing is missing in the end.
    DenyLosses,
    /// Holds its ACKs back, by a time that rises evenly from 0 to the first and falls back within the second, ns.
    SwayRtt(u64, u64),
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSpec {
    /// Name of its scheme, for results.
    pub scheme: String,
    /// When it starts, ns.
    pub start_ns: u64,
    /// When it stops, ns, if not with the run.
    pub stop_ns: Option<u64>,
    /// TCP or UDP.
    pub transport: Transport,
    /// What it sends.
    pub source: Source,
    /// So many bytes of an endless flow or of one with a size are a handshake, rounded up to whole segments: it sends
    /// them first, and the rest when the receiver has answered them, as a server does over TLS. TCP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<u64>,
    /// Added to the path's RTT, ns.
    pub extra_rtt_ns: u64,
    /// Its receiver.
    pub acks: AckPolicy,
    /// What the receiver takes beyond the last byte in order, bytes; `None` for all that comes. A flow held
    /// by it is not limited by its congestion window.
    pub receive_window: Option<u64>,
    /// Segments that a paced sender sends at once at most, 1 to 44: as many as 1 ms of its rate makes, at
    /// least 2, as Linux with segmentation offload. 1 is a device that takes packet by packet.
    pub burst_segments: u32,
    /// What its receiver lies about.
    #[serde(default)]
    pub lie: Option<Lie>,
}

impl FlowSpec {
    /// An endless TCP flow from the beginning on.
    pub fn new(scheme: &str) -> Self {
        Self {
            scheme: scheme.to_owned(),
            start_ns: 0,
            stop_ns: None,
            transport: Transport::Tcp,
            source: Source::Endless,
            handshake: None,
            extra_rtt_ns: 0,
            acks: AckPolicy::default(),
            receive_window: None,
            burst_segments: MAX_BURST_SEGMENTS,
            lie: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), InvalidScenario> {
        time("a flow's start in ns", self.start_ns)?;
        time("a flow's extra RTT in ns", self.extra_rtt_ns)?;
        time("a flow's ACK delay in ns", self.acks.delay_ns)?;
        time("a flow's ACK aggregation in ns", self.acks.aggregation_ns)?;
        time("a flow's ACK compression in ns", self.acks.compression_ns)?;
        in_range(
            "packets per ACK",
            self.acks.every.into(),
            1..=1000,
            "1 to 1000",
        )?;
        in_range(
            "a flow's burst in segments",
            self.burst_segments.into(),
            1..=MAX_BURST_SEGMENTS.into(),
            "1 to 44",
        )?;
        match self.lie {
            Some(Lie::InventLosses(every)) => in_range(
                "packets per invented loss",
                every.into(),
                2..=1_000_000,
                "2 to 1000000",
            )?,
            Some(Lie::SwayRtt(most_ns, period_ns)) => {
                time("the most that ACKs are held back in ns", most_ns)?;
                in_range(
                    "the period in which ACKs are held back in ns",
                    period_ns,
                    2..=MAX_TIME_NS,
                    "2 ns to 100000 s",
                )?;
            }
            Some(Lie::Ahead(_) | Lie::DenyLosses) | None => {}
        }
        if let Some(bytes) = self.receive_window {
            in_range(
                "a flow's receive window in bytes",
                bytes,
                2 * MSS..=1 << 30,
                "two segments of 1448 bytes to 1 GiB",
            )?;
        }
        if let Some(stop) = self.stop_ns {
            let after = self.start_ns + 1..=MAX_TIME_NS;
            in_range("a flow's stop in ns", stop, after, "after its start")?;
        }
        let size = |what, bytes| in_range(what, bytes, 1..=1 << 50, "1 B to 1 PB");
        if let Some(bytes) = self.handshake {
            size("a flow's handshake in bytes", bytes)?;
            let answered = matches!(self.source, Source::Endless | Source::Bytes(_));
            if self.transport == Transport::Udp || !answered {
                return Err(InvalidScenario::Handshake);
            }
        }
        match self.source {
            Source::Endless => Ok(()),
            Source::Bytes(bytes) => size("a flow's size in bytes", bytes),
            Source::Rate(bps) => in_range(
                "an application's rate in bit/s",
                bps,
                1_000..=100_000_000_000,
                "1 kbit/s to 100 Gbit/s",
            ),
            Source::Chunks { .. } if self.transport == Transport::Udp => {
                Err(InvalidScenario::ChunksOverUdp)
            }
            Source::Chunks { bytes, period_ns } => {
                size("a chunk in bytes", bytes)?;
                in_range(
                    "the time between chunks in ns",
                    period_ns,
                    1_000..=MAX_TIME_NS,
                    "1 us to 100000 s",
                )
            }
        }
    }
}
