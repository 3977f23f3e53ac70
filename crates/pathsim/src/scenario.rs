//! What is simulated: a path and the flows over it.

use crate::{MILLISECOND, SECOND, WIRE};
use std::sync::Arc;

/// Longest run, propagation delay or start time: what leaves room in nanoseconds of 64 bits.
const MAX_TIME_NS: u64 = 100_000 * SECOND;
/// Slowest and fastest link, bits per second.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 1_000..=100_000_000_000;

/// A scenario that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidScenario {
    /// A value out of its range.
    #[error("{what} is {value}: must be {range}")]
    Range {
        /// Which value.
        what: &'static str,
        /// The value as given.
        value: String,
        /// What is possible.
        range: &'static str,
    },
    /// A line of a mahimahi trace that is not a time.
    #[error(
        "line {line} of the trace is {text:?}: a trace has one time in ms a line, in ascending order, the last above 0"
    )]
    Trace {
        /// Number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// As many controllers as flows are needed.
    #[error("{flows} flows but {controllers} controllers: give one for each flow, in their order")]
    Controllers {
        /// Flows of the scenario.
        flows: usize,
        /// Controllers given.
        controllers: usize,
    },
}

/// When a link of varying capacity can send: one packet per opportunity, as in mahimahi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Opportunities in ms, ascending; a time may occur several times, or not at all.
    opportunities_ms: Vec<u64>,
}

impl Trace {
    /// Reads a mahimahi trace: one time in ms a line. After its last time it begins anew.
    ///
    /// # Errors
    /// [`InvalidScenario::Trace`] names the first line that is not a time, or goes back.
    pub fn parse(text: &str) -> Result<Self, InvalidScenario> {
        let mut opportunities_ms = Vec::new();
        let bad = |line: usize, text: &str| InvalidScenario::Trace {
            line,
            text: text.to_owned(),
        };
        for (index, text) in text.lines().enumerate() {
            let ms = text.trim().parse().map_err(|_| bad(index + 1, text))?;
            if opportunities_ms.last().is_some_and(|last| *last > ms)
                || ms > MAX_TIME_NS / MILLISECOND
            {
                return Err(bad(index + 1, text));
            }
            opportunities_ms.push(ms);
        }
        match opportunities_ms.last() {
            Some(1..) => Ok(Self { opportunities_ms }),
            _ => Err(bad(opportunities_ms.len(), "")),
        }
    }

    fn period_ms(&self) -> u64 {
        self.opportunities_ms.last().copied().unwrap_or(1)
    }

    /// When opportunity `number` (from 0, over all repetitions) comes, ns.
    pub(crate) fn time_ns(&self, number: u64) -> u64 {
        let count = self.opportunities_ms.len() as u64;
        let within = self.opportunities_ms[(number % count) as usize];
        (number / count * self.period_ms() + within) * MILLISECOND
    }

    /// The first opportunity at or after a time.
    pub(crate) fn first_at(&self, ns: u64) -> u64 {
        let ms = ns.div_ceil(MILLISECOND);
        let (round, within) = (ms / self.period_ms(), ms % self.period_ms());
        let count = self.opportunities_ms.len() as u64;
        // At the very end of a period the last ones of the round before are still to come.
        let round = if within == 0 && round > 0 {
            round - 1
        } else {
            round
        };
        let within = if within == 0 && ms > 0 {
            self.period_ms()
        } else {
            within
        };
        let index = self.opportunities_ms.partition_point(|at| *at < within);
        round * count + index as u64
    }

    /// Opportunities before a time.
    fn count_before(&self, ns: u64) -> u64 {
        self.first_at(ns)
    }
}

/// Capacity of the link over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateSchedule {
    /// Bits per second, 1 kbit/s to 100 Gbit/s.
    Constant(u64),
    /// (Time in ns, bits per second from then on), ascending, the first at 0.
    Steps(Vec<(u64, u64)>),
    /// Recorded opportunities of one packet each.
    Trace(Arc<Trace>),
}

impl RateSchedule {
    /// Bytes that the link can carry between two times in ns.
    pub fn capacity_bytes(&self, from_ns: u64, to_ns: u64) -> f64 {
        let to_ns = to_ns.max(from_ns);
        let bytes = |bps: u64, ns: u64| bps as f64 / 8.0 * (ns as f64 / SECOND as f64);
        match self {
            Self::Constant(bps) => bytes(*bps, to_ns - from_ns),
            Self::Steps(steps) => {
                let mut sum = 0.0;
                for (index, (at, bps)) in steps.iter().enumerate() {
                    let end = steps.get(index + 1).map_or(u64::MAX, |next| next.0);
                    let (start, end) = ((*at).max(from_ns), end.min(to_ns));
                    sum += bytes(*bps, end.saturating_sub(start));
                }
                sum
            }
            Self::Trace(trace) => {
                let count = trace.count_before(to_ns) - trace.count_before(from_ns);
                (count * WIRE) as f64
            }
        }
    }

    fn check(&self) -> Result<(), InvalidScenario> {
        let rate = |bps: u64| {
            check(
                "the rate in bit/s",
                bps,
                RATE_RANGE,
                "1 kbit/s to 100 Gbit/s",
            )
        };
        match self {
            Self::Constant(bps) => rate(*bps),
            Self::Steps(steps) => {
                let ascending = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
                if steps.first().is_none_or(|first| first.0 != 0) || !ascending {
                    return Err(InvalidScenario::Range {
                        what: "the rate's steps",
                        value: format!("at {:?} ns", steps.iter().map(|s| s.0).collect::<Vec<_>>()),
                        range: "in ascending order, the first at 0",
                    });
                }
                steps.iter().try_for_each(|(_, bps)| rate(*bps))
            }
            Self::Trace(_) => Ok(()),
        }
    }
}

/// What the drop-tail queue holds, besides the packet in transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Packets, at least 1.
    Packets(u32),
    /// Bytes on the wire, at least one packet.
    Bytes(u64),
}

/// Random loss behind the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// None.
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
}

/// Random extra delay on the way there, uniform in 0 to a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// The limit, ns; 0 for none.
    pub max_ns: u64,
    /// Whether packets may overtake each other.
    pub reorder: bool,
}

/// The path that all flows share.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Capacity.
    pub rate: RateSchedule,
    /// Two-way propagation delay, ns.
    pub rtt_ns: u64,
    /// The bottleneck's queue.
    pub queue: QueueLimit,
    /// Random loss.
    pub loss: Loss,
    /// Random delay.
    pub jitter: Jitter,
}

impl PathSpec {
    /// A clean path with constant rate, and a queue of one bandwidth-delay product.
    pub fn clean(rate_bps: u64, rtt_ns: u64) -> Self {
        let mut path = Self {
            rate: RateSchedule::Constant(rate_bps),
            rtt_ns,
            queue: QueueLimit::Packets(1),
            loss: Loss::None,
            jitter: Jitter::default(),
        };
        path.queue = QueueLimit::Packets(path.bdp_packets(1.0));
        path
    }

    /// Packets in this many bandwidth-delay products, at least 1; of the mean rate over 60 s, if the rate varies.
    pub fn bdp_packets(&self, products: f64) -> u32 {
        let bytes_per_s = match &self.rate {
            RateSchedule::Constant(bps) => *bps as f64 / 8.0,
            varying => varying.capacity_bytes(0, 60 * SECOND) / 60.0,
        };
        let bytes = bytes_per_s * (self.rtt_ns as f64 / SECOND as f64);
        (products * bytes / WIRE as f64).round().max(1.0) as u32
    }
}

/// How a flow's data gets there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// With ACKs and retransmissions.
    #[default]
    Tcp,
    /// Neither.
    Udp,
}

/// What the application has to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Always more.
    #[default]
    Endless,
    /// So many bytes, rounded up to whole segments; then the flow is complete.
    Bytes(u64),
    /// So many bits per second of payload, written as they come.
    Rate(u64),
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// After so many packets in order, at least 1. What is out of order is acknowledged at once.
    pub every: u32,
    /// Or so long after the first of them, ns.
    pub delay_ns: u64,
    /// ACKs leave only at multiples of this time, ns; 0 for at once. Models links that collect ACKs.
    pub aggregation_ns: u64,
}

impl Default for AckPolicy {
    /// As Linux: every second packet, 40 ms.
    fn default() -> Self {
        Self {
            every: 2,
            delay_ns: 40 * MILLISECOND,
            aggregation_ns: 0,
        }
    }
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
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
    /// Added to the path's RTT, ns.
    pub extra_rtt_ns: u64,
    /// Its receiver.
    pub acks: AckPolicy,
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
            extra_rtt_ns: 0,
            acks: AckPolicy::default(),
        }
    }
}

/// A path, flows, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The path.
    pub path: PathSpec,
    /// The flows, at least one.
    pub flows: Vec<FlowSpec>,
    /// Length of the run, ns.
    pub duration_ns: u64,
    /// Seed of all chance of the path.
    pub seed: u64,
    /// Whether to keep series over time, 100 ms a bin.
    pub series: bool,
}

impl Scenario {
    pub(crate) fn check(&self) -> Result<(), InvalidScenario> {
        let path = &self.path;
        path.rate.check()?;
        let time = |what, ns| check(what, ns, 0..=MAX_TIME_NS, "0 to 100000 s");
        check(
            "the duration in ns",
            self.duration_ns,
            MILLISECOND..=MAX_TIME_NS,
            "1 ms to 100000 s",
        )?;
        time("the RTT in ns", path.rtt_ns)?;
        time("the jitter in ns", path.jitter.max_ns)?;
        match path.queue {
            QueueLimit::Packets(n) => {
                check(
                    "the queue in packets",
                    n.into(),
                    1..=10_000_000,
                    "1 to 10000000",
                )?;
            }
            QueueLimit::Bytes(n) => check(
                "the queue in bytes",
                n,
                WIRE..=15_000_000_000,
                "one packet of 1500 bytes to 15 GB",
            )?,
        }
        let ratio = path.loss.ratio();
        if !(0.0..1.0).contains(&ratio) {
            return Err(InvalidScenario::Range {
                what: "the loss ratio",
                value: ratio.to_string(),
                range: "0 or more and below 1",
            });
        }
        if let Loss::Bursts { mean_length, ratio } = path.loss
            && !(mean_length >= 1.0 && ratio <= mean_length / (mean_length + 1.0))
        {
            return Err(InvalidScenario::Range {
                what: "the mean length of loss bursts",
                value: mean_length.to_string(),
                range: "1 packet or more, and long enough for the loss ratio",
            });
        }
        check(
            "the number of flows",
            self.flows.len() as u64,
            1..=100_000,
            "1 to 100000",
        )?;
        for flow in &self.flows {
            time("a flow's start in ns", flow.start_ns)?;
            time("a flow's extra RTT in ns", flow.extra_rtt_ns)?;
            time("a flow's ACK delay in ns", flow.acks.delay_ns)?;
            time("a flow's ACK aggregation in ns", flow.acks.aggregation_ns)?;
            check(
                "packets per ACK",
                flow.acks.every.into(),
                1..=1000,
                "1 to 1000",
            )?;
            if let Some(stop) = flow.stop_ns {
                let after = flow.start_ns + 1..=MAX_TIME_NS;
                check("a flow's stop in ns", stop, after, "after its start")?;
            }
            match flow.source {
                Source::Endless => {}
                Source::Bytes(n) => check("a flow's size in bytes", n, 1..=1 << 50, "1 B to 1 PB")?,
                Source::Rate(bps) => {
                    let range = 1_000..=100_000_000_000;
                    check(
                        "an application's rate in bit/s",
                        bps,
                        range,
                        "1 kbit/s to 100 Gbit/s",
                    )?;
                }
            }
        }
        Ok(())
    }
}

fn check(
    what: &'static str,
    value: u64,
    possible: std::ops::RangeInclusive<u64>,
    range: &'static str,
) -> Result<(), InvalidScenario> {
    if possible.contains(&value) {
        return Ok(());
    }
    let value = value.to_string();
    Err(InvalidScenario::Range { what, value, range })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_wraps_around_and_skips_empty_milliseconds() {
        let trace = Trace::parse("1\n1\n4\n").unwrap();
        let times: Vec<_> = (0..7).map(|n| trace.time_ns(n) / MILLISECOND).collect();
        assert_eq!(times, [1, 1, 4, 5, 5, 8, 9]);
        for (ms, first) in [
            (0, 0),
            (1, 0),
            (2, 2),
            (4, 2),
            (5, 3),
            (6, 5),
            (8, 5),
            (9, 6),
        ] {
            assert_eq!(trace.first_at(ms * MILLISECOND), first, "{ms} ms");
        }
        let steady = RateSchedule::Trace(Arc::new(trace));
        assert_eq!(
            steady.capacity_bytes(0, 4000 * MILLISECOND),
            (3000 - 1) as f64 * 1500.0
        );
    }

    #[test]
    fn a_bad_trace_is_named_by_line() {
        for (text, line) in [("1\nx\n", 2), ("3\n2\n", 2), ("", 0), ("0\n", 1)] {
            let error = Trace::parse(text).unwrap_err();
            assert!(
                matches!(error, InvalidScenario::Trace { line: at, .. } if at == line),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn steps_add_up() {
        let steps = RateSchedule::Steps(vec![(0, 8_000_000), (SECOND, 16_000_000)]);
        assert_eq!(steps.capacity_bytes(0, 2 * SECOND), 3e6);
        assert_eq!(steps.capacity_bytes(SECOND / 2, SECOND), 0.5e6);
    }

    #[test]
    fn impossible_scenarios_are_refused() {
        let good = Scenario {
            path: PathSpec::clean(50_000_000, 40 * MILLISECOND),
            flows: vec![FlowSpec::new("reno")],
            duration_ns: SECOND,
            seed: 1,
            series: false,
        };
        assert_eq!(good.check(), Ok(()));
        let refused = |change: fn(&mut Scenario)| {
            let mut bad = good.clone();
            change(&mut bad);
            bad.check().unwrap_err().to_string()
        };
        assert!(refused(|s| s.path.loss = Loss::Random(1.0)).contains("loss ratio is 1"));
        assert!(refused(|s| s.path.rate = RateSchedule::Constant(0)).contains("1 kbit/s"));
        assert!(
            refused(|s| s.path.rate = RateSchedule::Steps(vec![(5, 1_000_000)]))
                .contains("first at 0")
        );
        assert!(refused(|s| s.flows.clear()).contains("number of flows is 0"));
        assert!(refused(|s| s.path.queue = QueueLimit::Packets(0)).contains("queue in packets"));
        assert!(refused(|s| s.flows[0].stop_ns = Some(0)).contains("after its start"));
    }
}
