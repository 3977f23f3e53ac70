//! From raw reports to what the decisions need: one [`Mi`] per report, and what is remembered between them.
//!
//! A **monitor interval** is a stretch of *sending* at one rate. Its packets' fate comes back an RTT later as sums over
//! ACKs, from which follow the rate that was really sent, the rate at which packets arrived, the loss, and the slope
//! of the RTT over the send time. The slope is the heart of Vivace: queue growth in seconds per second, equal to
//! (sent - capacity) / capacity while a queue builds. Its standard error says how far to trust it.
//!
//! What real TCP does to these numbers, and what is done about it:
//! - One ACK covers several packets (delayed ACKs, GRO). Counts then come in lumps, so every test on a count or a
//!   spacing is widened by packets per ACK.
//! - A pacer counts headers or not: `fq` paces wire bytes, TCP's internal timer paces payload. The bytes per packet
//!   *as paced* are therefore learnt from full intervals, and rates are compared on the pacer's scale.
//! - Not all loss is congestion: a loss is judged by the queue it met ([`Estimator::class`]).
//! - A single delayed ACK adds up to 40 ms to one sample. The range of RTTs is therefore taken from means and fitted
//!   lines, never from the largest sample.
//!
//! Limits: after a route change to a longer path the smallest RTT is wrong until [`crate::handbrake::compete`] has it
//! replaced. Where a rate is changed without a new plan, the rate asked for is the new one, though some of the
//! interval's packets were sent at the old one: bytes per packet swing by a per cent or two with it, and a fast start's
//! intervals look limited.

mod by_rate;
mod interval;
mod loss;
mod met;
mod whose;
mod window;

pub use interval::{Mi, RttStats, SlotContext};
pub use loss::LossClass;

use crate::params::{Core, Params};
use crate::program::RawReport;
use crate::units::{Micros, Rate};
use by_rate::LossesByRate;
use interval::{RTT_LIMIT_US, SLOPE_MIN_PKTS, SLOPE_MIN_SAMPLES};
use loss::LossFloor;
use met::MetQueue;
use window::WindowMax;

/// Packets per ACK believed at most. Source: a 64 kB GRO bundle of 9000-byte to 536-byte segments, several merged.
const PKTS_PER_ACK_MAX: f64 = 256.0;
/// RTT samples that make a goodput: it is the spacing of ACKs. Source: a short interval of a slow flow holds two
/// delayed ACKs; with 4, such a flow stood for 10 s at the ceiling of the goodput it had before.
const GOODPUT_MIN_SAMPLES: f64 = 2.0;
/// Smallest RTT below which a receiver is near: three of the kernel's bursts. Source: simulated, 120 paths
/// (`near.toml`): several flows use .996 of them, at a Jain's index of .966, for .991 and .936 with 2 ms; with 4 ms six
/// flows on two packets each at small buffers have .956 for .967. With 1 ms one flow uses .960 for .998.
const NEAR_RTT: Micros = Micros::new(3000);
/// A path that holds no more full packets in its smallest RTT is narrow: there a packet's time is much of what a
/// climber takes for a queue. Source: simulated, 48 crowds, six seeds: Jain's index .889 with 16, 32 and without, .880
/// where all paths are.
const NARROW_PATH_PKTS: f64 = 32.0;
/// SACKs are held back for up to this part of the RTT, and this long; a quarter more for timers that are late. Source:
/// Linux `tcp_comp_sack_delay_ns`, and its slack.
const SACK_DELAY_RTTS: f64 = 1.25 * 0.05;
const SACK_DELAY_MAX: Micros = Micros::new(1250);
/// Smallest RTT below which those bursts lose what the rate alone would not: four of them. Source: simulated, 150 paths
/// that flows share: Jain's index .948, as without any answer to policers; .946 with two.
const BURSTY_RTT: Micros = Micros::new(4000);
/// How long the largest RTT is remembered: long enough to hold a few full queues, short enough to forget a startup.
const RTT_MAX_WINDOW: Micros = Micros::new(30_000_000);

/// What is remembered between reports.
#[derive(Clone, Debug)]
pub struct Estimator {
    now: Micros,
    /// The time between the last report and the one before, us; zero if that was none.
    reported_after: u32,
    srtt: Option<Micros>,
    shortest_neg: WindowMax,
    longest: WindowMax,
    goodput: WindowMax,
    /// What `shortest_neg` and `longest` come to now, us: asked many times per report. Zero if there are none.
    rtt_min: u32,
    longest_rtt: u32,
    /// Smallest RTT of an interval that was sent in full, and what a full packet takes at the bottleneck, us; zero if
    /// not known.
    full_rtt: u32,
    packet_time: u32,
    floor: LossFloor,
    met: MetQueue,
    by_rate: LossesByRate,
    losses_follow_rate: bool,
    /// Rate asked for in the last interval; zero for none.
    last_asked: Rate,
    /// Bytes per packet as the pacer counts them, over the segment size: 1.0 to 1.1.
    wire_factor: f32,
    pkts_per_ack: f32,
    delivered_pkts: f64,
    /// What arrived in the last interval that tells; zero before.
    last_goodput: Rate,
}

impl Estimator {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self {
            now: Micros::ZERO,
            reported_after: 0,
            srtt: None,
            shortest_neg: WindowMax::new(params.rtt_window),
            longest: WindowMax::new(RTT_MAX_WINDOW),
            goodput: WindowMax::new(params.rate_window),
            rtt_min: 0,
            longest_rtt: 0,
            full_rtt: 0,
            packet_time: 0,
            floor: LossFloor::new(floor_max(params)),
            met: MetQueue::default(),
            by_rate: LossesByRate::default(),
            losses_follow_rate: false,
            last_asked: Rate::ZERO,
            wire_factor: 1.0,
            pkts_per_ack: 1.0,
            delivered_pkts: 0.0,
            last_goodput: Rate::ZERO,
        }
    }

    /// Takes an RTT known from elsewhere, before the first report.
    pub fn assume_rtt(&mut self, rtt: Micros) {
        self.srtt = Some(rtt.clamp(Micros::new(1), Micros::new(RTT_LIMIT_US as u64)));
    }

    /// Others have met this RTT on the path lately.
    pub fn learn_rtt_min(&mut self, rtt: Micros) {
        self.shortest_neg.push(self.now, -(rtt.us() as f64));
        self.look_back();
    }

    /// Takes changed parameters; what is remembered stays.
    pub fn set_params(&mut self, params: &Params) {
        self.floor.set_max(floor_max(params));
        self.shortest_neg.set_window(self.now, params.rtt_window);
        self.goodput.set_window(self.now, params.rate_window);
        self.look_back();
    }

    /// Works out the extremes of the windows that end now.
    fn look_back(&mut self) {
        let shortest = self.shortest_neg.get(self.now);
        self.rtt_min = shortest.map_or(0, |neg| -neg as u32);
        let longest = self.longest.get(self.now);
        self.longest_rtt = longest.map_or(0, |us| us as u32);
    }

    /// The path has become another: its smallest RTT is this one now, and its queue is not known.
    pub fn adopt_rtt_min(&mut self, rtt: Micros) {
        self.shortest_neg.clear();
        self.shortest_neg.push(self.now, -(rtt.us() as f64));
        self.longest.clear();
        self.met = MetQueue::default();
        self.full_rtt = 0;
        self.look_back();
    }

    /// The bottleneck takes so long for a full packet.
    pub fn learn_packet_time(&mut self, time: Micros) {
        self.packet_time = time.us().min(u32::MAX.into()) as u32;
    }

    /// Reads one report and remembers what it tells.
    pub fn observe(&mut self, raw: &RawReport, context: SlotContext) -> Mi {
        // Without an RTT sample a report tells no time, but it took as long as its slot.
        let before = self.now;
        self.now = if raw.n == 0 {
            self.now + Micros::new(raw.sdur)
        } else {
            self.now.max(Micros::new(raw.a1))
        };
        self.reported_after = match before {
            Micros::ZERO => 0,
            before => (self.now - before).us().min(u32::MAX.into()) as u32,
        };
        let mi = self.read(raw, context);
        self.delivered_pkts += mi.delivered_pkts;
        if let Some(rtt) = mi.rtt {
            self.shortest_neg.push(self.now, -(rtt.min.us() as f64));
            if mi.samples >= SLOPE_MIN_SAMPLES {
                self.longest
                    .push(self.now, interval::fitted_max_us(raw, &rtt));
            }
            self.srtt = Some(self.srtt.map_or(rtt.mean, |old| (old + rtt.mean) * 0.5));
        }
        if mi.samples >= 1.0 {
            let now = mi.pkts_per_ack().min(PKTS_PER_ACK_MAX) as f32;
            self.pkts_per_ack += (now - self.pkts_per_ack) / 4.0;
        }
        let whole = mi.asked.is_some() && mi.sent_for > self.srtt() * 0.5 && !mi.stalled;
        if let Some(rtt) = mi.rtt.filter(|_| whole && !mi.limited) {
            let before = std::num::NonZero::new(self.full_rtt);
            let now = rtt.min.us() as u32;
            self.full_rtt = before.map_or(now, |before| now.min(before.get()));
        }
        if whole && mi.samples >= GOODPUT_MIN_SAMPLES {
            let arrived = mi.arrived();
            self.goodput.push(self.now, arrived.bytes_per_sec());
            self.last_goodput = arrived;
        }
        // To a near receiver ACKs say when packets leave.
        let paced = whole && !self.is_near();
        if let Some(asked) = mi.asked.filter(|_| paced && mi.pkts() >= SLOPE_MIN_PKTS) {
            let factor = asked.bytes_in(mi.sent_for) / (mi.pkts() * context.mss_bytes);
            if (0.9..1.15).contains(&factor) {
                self.wire_factor =
                    (self.wire_factor + (factor as f32 - self.wire_factor) / 8.0).clamp(1.0, 1.1);
            }
        }
        let known_before = self.known_range();
        self.look_back();
        let asked_before = std::mem::replace(&mut self.last_asked, mi.asked.unwrap_or(Rate::ZERO));
        self.learn_losses(&mi, known_before, asked_before, context.mss_bytes);
        mi
    }

    fn read(&self, raw: &RawReport, context: SlotContext) -> Mi {
        interval::read(
            raw,
            context,
            context.mss_bytes * f64::from(self.wire_factor),
            self.srtt(),
        )
    }

    /// Time of the last ACK with an RTT sample, on the datapath's clock.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.now
    }

    /// How long before the last report the one before was; zero if there was none.
    #[must_use]
    pub fn reported_after(&self) -> Micros {
        Micros::new(self.reported_after.into())
    }

    /// Whether any RTT is known.
    #[must_use]
    pub fn has_rtt(&self) -> bool {
        self.srtt.is_some()
    }

    /// Smoothed RTT; 100 ms before the first sample.
    #[must_use]
    pub fn srtt(&self) -> Micros {
        self.srtt.unwrap_or(Micros::from_millis(100))
    }

    /// Smallest RTT in its window; the smoothed one while there is none.
    #[must_use]
    pub fn rtt_min(&self) -> Micros {
        std::num::NonZero::new(self.rtt_min)
            .map_or_else(|| self.srtt(), |us| Micros::new(us.get().into()))
    }

    /// Smallest RTT of full packets, from which a queue is measured. A short one, as an application's request is, is
    /// through the bottleneck sooner, by a full packet's time at most. That matters on a path that is known to hold few
    /// of them.
    #[must_use]
    pub fn rtt_floor(&self) -> Micros {
        let smallest = self.rtt_min();
        let packet_time = Micros::new(self.packet_time.into());
        if packet_time * NARROW_PATH_PKTS < smallest {
            return smallest;
        }
        Micros::new(self.full_rtt.into()).clamp(smallest, smallest + packet_time)
    }

    /// What these RTTs have beyond the smallest, in the mean: a queue, unless the path itself is long or jitters.
    #[must_use]
    pub fn mean_queue(&self, rtt: &RttStats) -> Micros {
        rtt.mean - self.rtt_min()
    }

    /// Largest minus smallest RTT of the last half minute: the queue the path was seen to hold.
    #[must_use]
    pub fn rtt_range(&self) -> Micros {
        Micros::new(self.longest_rtt.into()) - self.rtt_min()
    }

    /// Largest goodput in its window, if any was measured.
    #[must_use]
    pub fn goodput_max(&self) -> Option<Rate> {
        self.goodput.get(self.now).map(Rate::from_bytes_per_sec)
    }

    /// Goodput of the last interval that told one, if any did.
    #[must_use]
    pub fn last_goodput(&self) -> Option<Rate> {
        (self.last_goodput > Rate::ZERO).then_some(self.last_goodput)
    }

    /// Bytes per packet as the pacer counts them.
    #[must_use]
    pub fn pkt_bytes(&self, mss_bytes: f64) -> f64 {
        mss_bytes * f64::from(self.wire_factor)
    }

    /// Packets per ACK, smoothed, at least 1.
    #[must_use]
    pub fn pkts_per_ack(&self) -> f64 {
        self.pkts_per_ack.into()
    }

    /// Packets delivered over the flow's life, as far as reported.
    #[must_use]
    pub fn delivered_pkts(&self) -> f64 {
        self.delivered_pkts
    }

    /// What a receiver adds to the RTTs behind a loss by holding back its SACKs.
    #[must_use]
    pub fn sack_delay(&self) -> Micros {
        (self.srtt() * SACK_DELAY_RTTS).min(SACK_DELAY_MAX)
    }

    /// Whether the receiver is so near that the kernel's bursts are longer than the path, and a host's pauses longer
    /// than its queue.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.has_rtt() && self.rtt_min() < NEAR_RTT
    }

    /// Whether the path is so short that the kernel's bursts lose what the rate alone would not.
    #[must_use]
    pub fn is_bursty(&self) -> bool {
        self.rtt_min() < BURSTY_RTT
    }
}

/// The bare core takes every loss for its own.
fn floor_max(params: &Params) -> f64 {
    if params.core() == Core::Vivace {
        0.0
    } else {
        params.loss_floor_max.get()
    }
}

#[cfg(test)]
pub(crate) mod tests;
