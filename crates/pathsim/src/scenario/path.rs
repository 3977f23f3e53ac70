//! What lies between sender and receiver.

use super::{InvalidScenario, MAX_TIME_NS, RateSchedule, in_range, time};
use crate::{MILLISECOND, SECOND, WIRE};
use serde::{Deserialize, Serialize};

/// What the queue holds at most, besides the packet in transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueLimit {
    /// Packets, at least 1.
    Packets(u32),
    /// Bytes on the wire, at least one packet.
    Bytes(u64),
}

/// What the queue drops, besides what it has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueDiscipline {
    /// Nothing.
    #[default]
    DropTail,
    /// Packets that have waited, while all have waited for too long.
    CoDel(CoDel),
    /// Packets that come, at random, while packets wait for too long.
    Pie(Pie),
    /// Packets of the flow that has most of them waiting. Flows take turns.
    Sfq(Sfq),
}

/// Stochastic fairness queueing (McKenney 1990), as Linux' sfq: flows are hashed to buckets, which take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sfq {
    /// Number of buckets, 1 to 65536; flows that share one share its turn. Linux' `divisor`.
    pub buckets: u32,
    /// What a bucket may send in its turn, bytes; at least a packet of full size. Linux' `quantum`.
    pub quantum_bytes: u32,
}

impl Sfq {
    /// Packets that Linux' sfq holds, all flows together.
    pub const LINUX_LIMIT_PACKETS: u32 = 127;
}

impl Default for Sfq {
    /// As Linux: 1024 buckets, a packet at a time.
    fn default() -> Self {
        Self {
            buckets: 1024,
            quantum_bytes: WIRE as u32,
        }
    }
}

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoDel {
    /// The wait that a standing queue may have, ns; above 0.
    pub target_ns: u64,
    /// For so long it may be longer before the first packet is dropped, ns; above 0. About the largest RTT.
    pub interval_ns: u64,
}

impl Default for CoDel {
    /// 5 ms and 100 ms (RFC 8289 §4.2, §4.3).
    fn default() -> Self {
        Self {
            target_ns: 5 * MILLISECOND,
            interval_ns: 100 * MILLISECOND,
        }
    }
}

/// Proportional integral controller enhanced (RFC 8033).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pie {
    /// The wait that is aimed at, ns; above 0.
    pub target_ns: u64,
}

impl Default for Pie {
    /// 15 ms (RFC 8033 §4.2).
    fn default() -> Self {
        Self {
            target_ns: 15 * MILLISECOND,
        }
    }
}

/// What operators limit a subscriber's traffic with (RFC 2697 has its like): a packet passes if there are tokens for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenBucket {
    /// How fast tokens come, counted on IP packets as the link's rate.
    pub rate_bps: u64,
    /// Tokens that it holds at most, and at first, bytes; a packet at least.
    pub burst_bytes: u64,
}

/// Random loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each packet alone, with this probability, below 1.
    Random(f64),
    /// Gilbert-Elliott: a state that loses everything, entered at random.
    Bursts {
        /// Lost part of all packets, below 1.
        ratio: f64,
        /// Mean number of packets lost in a row, at least 1.
        mean_length: f64,
    },
}

impl Loss {
    /// Lost part of all packets.
    pub fn ratio(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random(ratio) | Self::Bursts { ratio, .. } => ratio,
        }
    }

    fn check(&self) -> Result<(), InvalidScenario> {
        let ratio = self.ratio();
        if !(0.0..1.0).contains(&ratio) {
            return Err(InvalidScenario::Range {
                what: "the loss ratio",
                value: ratio.to_string(),
                range: "0 or more and below 1",
            });
        }
        if let Self::Bursts { mean_length, ratio } = *self
            && !(mean_length >= 1.0 && ratio <= mean_length / (mean_length + 1.0))
        {
            return Err(InvalidScenario::Range {
                what: "the mean length of loss bursts",
                value: mean_length.to_string(),
                range: "1 packet or more, and long enough for the loss ratio",
            });
        }
        Ok(())
    }
}

/// Where random loss falls on the way there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossPlace {
    /// Behind the bottleneck: a lost packet has waited, and has used its capacity. As on a radio link.
    #[default]
    Behind,
    /// In front of it: a lost packet uses neither queue nor capacity. So does Linux' netem.
    InFront,
}

/// Random extra delay on the way there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Jitter {
    /// None.
    #[default]
    None,
    /// Uniform in 0 to a limit.
    Uniform {
        /// The limit, ns.
        max_ns: u64,
        /// Whether packets may overtake each other.
        reorder: bool,
    },
    /// Exponentially distributed; packets keep their order, so that they wait for those before them.
    Exponential {
        /// Mean of what is drawn for each packet, ns. The delays are longer than that where packets follow each other
        /// more closely, as they wait for late ones.
        mean_ns: u64,
    },
}

/// A change of the route: packets and ACKs that set out later take this long. Those on their way keep
/// their time, so a shorter route lets later packets overtake earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteChange {
    /// When, ns.
    pub at_ns: u64,
    /// Two-way propagation delay from then on, ns; half of it each way.
    pub rtt_ns: u64,
}

/// The path that all flows share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathSpec {
    /// Capacity.
    pub rate: RateSchedule,
    /// Two-way propagation delay, ns; half of it each way.
    pub rtt_ns: u64,
    /// Later delays, in ascending order of their times.
    pub route_changes: Vec<RouteChange>,
    /// Size of the bottleneck's queue.
    pub queue: QueueLimit,
    /// How the queue drops.
    pub discipline: QueueDiscipline,
    /// What polices the traffic in front of it: packets without tokens are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<TokenBucket>,
    /// What shapes the traffic behind it: packets without tokens wait in the queue, and those of a full bucket leave as
    /// fast as the link can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaper: Option<TokenBucket>,
    /// Random loss of packets on the way there.
    pub loss: Loss,
    /// Where that falls.
    pub loss_place: LossPlace,
    /// Random loss of ACKs on the way back.
    pub ack_loss: Loss,
    /// Random delay.
    pub jitter: Jitter,
    /// Packets that the way there holds at most, waiting or travelling: netem's `limit`, which counts both. `None` for
    /// a way that holds any number.
    pub delay_limit_packets: Option<u32>,
}

impl PathSpec {
    /// A clean path with constant rate, and a drop-tail queue of one bandwidth-delay product.
    pub fn clean(rate_bps: u64, rtt_ns: u64) -> Self {
        let mut path = Self {
            rate: RateSchedule::Constant(rate_bps),
            rtt_ns,
            route_changes: Vec::new(),
            queue: QueueLimit::Packets(1),
            discipline: QueueDiscipline::default(),
            policer: None,
            shaper: None,
            loss: Loss::None,
            loss_place: LossPlace::default(),
            ack_loss: Loss::None,
            jitter: Jitter::default(),
            delay_limit_packets: None,
        };
        path.queue = QueueLimit::Packets(path.bdp_packets(1.0));
        path
    }

    /// Packets in this many bandwidth-delay products, at least 1; of the first RTT, and of the mean rate over 60 s
    /// if the rate varies. What a shaper makes of the rate is what counts.
    pub fn bdp_packets(&self, products: f64) -> u32 {
        let link = match &self.rate {
            RateSchedule::Constant(bps) => *bps as f64 / 8.0,
            varying => varying.capacity_bytes(0, 60 * SECOND) / 60.0,
        };
        let shaped = self.shaper.map(|shaper| shaper.rate_bps as f64 / 8.0);
        let bytes_per_s = link.min(shaped.unwrap_or(f64::INFINITY));
        let bytes = bytes_per_s * (self.rtt_ns as f64 / SECOND as f64);
        (products * bytes / WIRE as f64).round().max(1.0) as u32
    }

    /// Bytes that the path can carry between two times in ns: the link's, or what a policer or a shaper lets pass, full
    /// buckets not counted, if that is less.
    pub fn capacity_bytes(&self, from_ns: u64, to_ns: u64) -> f64 {
        let link = self.rate.capacity_bytes(from_ns, to_ns);
        let passes = self.limited_bps().map_or(f64::INFINITY, |bps| {
            RateSchedule::Constant(bps).capacity_bytes(from_ns, to_ns)
        });
        link.min(passes)
    }

    /// What policer and shaper let pass in the long run, if the path has any.
    pub fn limited_bps(&self) -> Option<u64> {
        let buckets = [self.policer, self.shaper].into_iter().flatten();
        buckets.map(|bucket| bucket.rate_bps).min()
    }

    /// Part of the capacity that random loss uses.
    pub fn wasted(&self) -> f64 {
        match self.loss_place {
            LossPlace::Behind => self.loss.ratio(),
            LossPlace::InFront => 0.0,
        }
    }

    /// Two-way propagation delay for what sets out now, ns.
    pub fn rtt_at_ns(&self, now_ns: u64) -> u64 {
        let changes = self
            .route_changes
            .partition_point(|change| change.at_ns <= now_ns);
        match changes.checked_sub(1) {
            Some(last) => self.route_changes[last].rtt_ns,
            None => self.rtt_ns,
        }
    }

    /// Whether this path can be simulated and emulated.
    ///
    /// # Errors
    /// [`InvalidScenario`] names the value that is out of range.
    pub fn check(&self) -> Result<(), InvalidScenario> {
        self.rate.check()?;
        time("the RTT in ns", self.rtt_ns)?;
        match self.jitter {
            Jitter::None => {}
            Jitter::Uniform { max_ns: ns, .. } | Jitter::Exponential { mean_ns: ns } => {
                time("the jitter in ns", ns)?;
            }
        }
        if let Some(packets) = self.delay_limit_packets {
            in_range(
                "the delay line's limit in packets",
                packets.into(),
                1..=10_000_000,
                "1 to 10000000",
            )?;
        }
        match self.queue {
            QueueLimit::Packets(n) => in_range(
                "the queue in packets",
                n.into(),
                1..=10_000_000,
                "1 to 10000000",
            )?,
            QueueLimit::Bytes(n) => in_range(
                "the queue in bytes",
                n,
                WIRE..=15_000_000_000,
                "one packet of 1500 bytes to 15 GB",
            )?,
        }
        for (bucket, name) in [
            (self.policer, "the policer's burst in bytes"),
            (self.shaper, "the shaper's burst in bytes"),
        ] {
            let Some(TokenBucket {
                rate_bps,
                burst_bytes,
            }) = bucket
            else {
                continue;
            };
            RateSchedule::Constant(rate_bps).check()?;
            in_range(
                name,
                burst_bytes,
                WIRE..=15_000_000_000,
                "one packet of 1500 bytes to 15 GB",
            )?;
        }
        if let QueueDiscipline::CoDel(codel) = self.discipline {
            let positive = 1..=MAX_TIME_NS;
            let range = "above 0, to 100000 s";
            in_range(
                "CoDel's target in ns",
                codel.target_ns,
                positive.clone(),
                range,
            )?;
            in_range("CoDel's interval in ns", codel.interval_ns, positive, range)?;
        }
        if let QueueDiscipline::Pie(pie) = self.discipline {
            let range = "above 0, to 100000 s";
            in_range("PIE's target in ns", pie.target_ns, 1..=MAX_TIME_NS, range)?;
        }
        if let QueueDiscipline::Sfq(sfq) = self.discipline {
            in_range(
                "sfq's number of buckets",
                sfq.buckets.into(),
                1..=65_536,
                "1 to 65536",
            )?;
            in_range(
                "sfq's quantum in bytes",
                sfq.quantum_bytes.into(),
                WIRE..=1 << 30,
                "one packet of 1500 bytes to 1 GiB",
            )?;
            if let QueueLimit::Bytes(bytes) = self.queue {
                return Err(InvalidScenario::Range {
                    what: "sfq's queue",
                    value: format!("{bytes} bytes"),
                    range: "a number of packets, as Linux' (127 there)",
                });
            }
        }
        self.loss.check()?;
        self.ack_loss.check()?;
        let changes = &self.route_changes;
        if !changes.windows(2).all(|pair| pair[0].at_ns < pair[1].at_ns) {
            return Err(InvalidScenario::Range {
                what: "the route's changes",
                value: format!(
                    "at {:?} ns",
                    changes.iter().map(|c| c.at_ns).collect::<Vec<_>>()
                ),
                range: "in ascending order",
            });
        }
        changes.iter().try_for_each(|change| {
            time("a route change's time in ns", change.at_ns)?;
            time("a route change's RTT in ns", change.rtt_ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_change_holds_from_its_time_on() {
        let mut path = PathSpec::clean(50_000_000, 40 * MILLISECOND);
        let change = |s, ms| RouteChange {
            at_ns: s * SECOND,
            rtt_ns: ms * MILLISECOND,
        };
        path.route_changes = vec![change(1, 90), change(2, 10)];
        for (ns, ms) in [
            (0, 40),
            (SECOND - 1, 40),
            (SECOND, 90),
            (2 * SECOND, 10),
            (9 * SECOND, 10),
        ] {
            assert_eq!(path.rtt_at_ns(ns), ms * MILLISECOND, "at {ns} ns");
        }
        assert_eq!(path.bdp_packets(1.0), 167);
    }
}
