//! Whose are the losses? A path loses packets of its own (a radio link), a full queue those that are too many.
//!
//! A loss is judged by the queue it met: the mean RTT at the losses, placed in the range of RTTs seen lately. Losses at
//! an empty queue feed a **loss floor** that the utility forgives. Intervals at a full queue do not: where a crowd keeps
//! it full, it is low just after many were dropped, and theirs would be taken for the path's. A floor is forgotten when
//! the smallest RTT falls and shows that it was learnt at a long queue.
//!
//! What makes that wrong, and what is done about it:
//! - A receiver holds back its SACKs by up to a ms, so that RTTs rise behind every loss, wherever it happened. A
//!   smaller range of RTTs is none.
//! - A host's pause of some milliseconds stretches the range for half a minute, and of a short buffer all of the queue
//!   is then below half of it. Where losses all meet one and the same short queue, the range ends there; where they lie
//!   as a path's own do, they are that, though no queue tells (`estimate/met.rs`). To a near receiver, what is lost met
//!   a full queue, or it is not known what it met.
//! - A managed queue (CoDel, PIE) drops packets long before it is full, while all wait for longer than it wants: the
//!   more is borne as the path's own, the more it drops. What is lost while such a queue stands teaches a small floor
//!   only.
//! - A policer has no queue, and drops only what is too much. Losses that grow with the rate at which they were sent
//!   are none of the path's own (`estimate/by_rate.rs`).
//!
//! Limits: the RTT range needs a queue now and then to mean something. Below 2 % of the RTT the class is mostly
//! "unknown", and the floor may only reach 2 %, or up to 5 % where no more packets pass in a row than so many losses
//! allow.

use super::loss::MOST_OWN;
use super::{Estimator, LossClass, Mi, RttStats};
use crate::program::Slot;
use crate::units::{Micros, Rate};

/// A buffer that holds less, in smallest RTTs, is full before RTTs tell. Source: simulated, 40 paths with 2 to 8 wide
/// flows at 5 to 25 packets; 30 paths with .02 to 1.5 BDP stay as they are.
const SMALL_BUFFER_RTTS: f64 = 0.15;
/// A smaller loss floor has no deviation to speak of.
const FLOOR_NONE: f64 = 5e-4;
/// So little is no queue, however short the path: timers and batches make as much.
pub(super) const NO_QUEUE: Micros = Micros::new(500);
/// The shortest queue that all losses can meet, as a part of what RTTs vary by: SACKs are held back behind every loss
/// alike. Source: on this machine's TCP six flows at 180 and 190 Mbit/s share 5 and 8 packets, .3 and .5 ms, of .6 and
/// .9 ms: with all of it one of them has most of the path in four of six runs, with this in one. Simulated, 60 paths
/// that lose at random are used as before.
const MET_NOISE_PART: f64 = 0.25;
/// A queue of less than this part of the smallest RTT is low, however small its range is. Source: simulated, 20 streams
/// of 5 Mbit/s at 1 % of loss, whose queue hardly moves: their worst second 3.8 to 4.7 Mbit/s; .03 to .25 the same, .02
/// not.
const LOW_QUEUE: f64 = 0.05;
/// What every packet waits for where a managed queue may drop some: less than CoDel's target (5 ms, RFC 8289), and than
/// half of PIE's (15 ms, RFC 8033). Source: simulated, 36 paths (`managed.toml`) that two to sixteen flows share: they
/// lose 3.0 % with 2 ms, this and 4 ms, 3.6 without, Cubic's 2.1.
const MANAGED_WAIT: Micros = Micros::new(3_000);
/// Packets per RTT from which it is not asked: where so many follow each other, jitter in order is a queue that stands.
/// Source: simulated, 28 paths that jitter and lose: used by .921, .918 without, .898 if it is always asked.
const MANAGED_PKTS: f64 = 64.0;
/// The kernel paces so much at a time. Source: Linux `tcp_tso_autosize`.
const BURST: Micros = Micros::new(1000);
/// Smallest RTT from which the kernel's bursts are so small a part of it that flows which share a small buffer do not
/// lose anywhere. Source: simulated, two to six flows at 3 to 12 packets, 11 to 40 ms: 2.75 % lost, with 10 ms 3.17.
const FAR_RTT: Micros = Micros::new(20_000);

impl Estimator {
    /// The smallest RTT, us, and whether all losses meet one queue.
    pub(super) fn known_range(&self) -> (u32, bool) {
        (self.rtt_min, self.met_height().is_some())
    }

    /// Learns from an interval's losses, or that it has none; the range and the rate asked for were these before it.
    pub(super) fn learn_losses(
        &mut self,
        mi: &Mi,
        (rtt_min_before, met_one_before): (u32, bool),
        asked_before: Rate,
        mss_bytes: f64,
    ) {
        if let Some(at_loss) = mi.rtt_at_loss.filter(|_| mi.lost_pkts >= 1.0) {
            self.met.learn(at_loss, mi.lost_pkts, self.rtt_min());
        }
        let (rtt_min, meets_one) = self.known_range();
        let is_range_new = rtt_min < rtt_min_before || (!met_one_before && meets_one);
        if is_range_new && self.is_floor_false() {
            self.floor.forget();
        }
        self.floor.pass(mi);
        if self.is_filled(mi) {
            return;
        }
        let class = self.class(mi);
        let managed = class == LossClass::Random && self.may_be_managed(mi, mss_bytes);
        let told = if managed { LossClass::Unknown } else { class };
        self.floor.learn(mi, told);
        if class != LossClass::Congestive {
            self.learn_by_rate(mi, asked_before);
        }
    }

    /// Fits losses that met no full queue to the rate at which they were sent.
    fn learn_by_rate(&mut self, mi: &Mi, asked_before: Rate) {
        // What is acknowledged in a holding slot was sent an RTT ago, when the last report was not yet answered.
        let sent_at = match mi.slot {
            Slot::Hold => asked_before,
            _ => self.last_asked,
        };
        if sent_at > Rate::ZERO && !mi.limited && !mi.stalled && !self.is_bursty() {
            self.by_rate.learn(sent_at, mi);
            self.losses_follow_rate = self.by_rate.follow(self.floor.dispersion());
        }
    }

    /// What RTTs vary by where there is no queue.
    fn rtt_noise(&self) -> Micros {
        (self.rtt_min() * 0.02).max(NO_QUEUE).max(self.sack_delay())
    }

    /// Whether the queue range is too small to place losses in it.
    fn range_unknown(&self) -> bool {
        self.rtt_range() < self.rtt_noise()
    }

    /// How long the queue is that all losses meet, if they all meet the same one. To a near receiver that is always
    /// doubtful.
    fn met_height(&self) -> Option<Micros> {
        let least = self.rtt_noise() * MET_NOISE_PART;
        let height = self.met.height(self.rtt_min(), least);
        height.filter(|_| !self.is_near())
    }

    /// Whether nothing tells what losses met.
    fn class_unknown(&self) -> bool {
        self.is_near() || (self.range_unknown() && !self.loses_anywhere())
    }

    /// Whether losses lie as a path's own do, on a path so long that this tells.
    fn loses_anywhere(&self) -> bool {
        let rtt_min = self.rtt_min();
        rtt_min >= FAR_RTT && self.met.lies_anywhere(rtt_min)
    }

    /// Whether the path was never seen to hold much of a queue.
    #[must_use]
    pub fn has_small_buffer(&self) -> bool {
        self.rtt_range() < self.rtt_min() * SMALL_BUFFER_RTTS
    }

    /// Whether the path was never seen to hold a burst of this length, whose packets are then lost anywhere in its
    /// range.
    #[must_use]
    pub fn holds_less_than(&self, burst: Micros) -> bool {
        self.has_small_buffer() && self.rtt_range() < burst + self.sack_delay()
    }

    /// Where this interval's losses happened.
    #[must_use]
    pub fn class(&self, mi: &Mi) -> LossClass {
        if mi.lost_pkts < 1.0 {
            return LossClass::None;
        }
        let Some(at) = mi.rtt_at_loss else {
            return LossClass::Unknown;
        };
        if !self.range_unknown() && self.is_high(at) {
            LossClass::Congestive
        } else if self.class_unknown() {
            LossClass::Unknown
        } else {
            LossClass::Random
        }
    }

    /// Whether a queue was in the upper half of its range through most of the interval.
    fn is_filled(&self, mi: &Mi) -> bool {
        let filled = |rtt: RttStats| {
            self.is_high(rtt.mean) && self.mean_queue(&rtt) > self.rtt_min() * LOW_QUEUE
        };
        !self.range_unknown() && mi.rtt.is_some_and(filled)
    }

    /// Whether a queue stood through an interval of few packets per RTT, of which a managed one would have dropped
    /// some.
    fn may_be_managed(&self, mi: &Mi, mss_bytes: f64) -> bool {
        let window_pkts = mi.send_rate.bytes_in(self.rtt_min()) / mss_bytes;
        let packets = Micros::new(self.packet_time.into()) * 2.0;
        let wait = MANAGED_WAIT.max(packets).max(self.rtt_noise());
        let stands = |rtt: RttStats| rtt.min - self.rtt_floor() > wait;
        window_pkts < MANAGED_PKTS && mi.rtt.is_some_and(stands)
    }

    /// Whether the loss floor was learnt in the upper half of the range, as it is known now.
    fn is_floor_false(&self) -> bool {
        !self.range_unknown() && self.floor.met().is_some_and(|met| self.is_high(met))
    }

    /// Whether such an RTT is in the upper half of the range, or of the queue that all losses meet.
    fn is_high(&self, rtt: Micros) -> bool {
        let range = self.rtt_range();
        let full = self.met_height().map_or(range, |met| met.min(range));
        (rtt - self.rtt_min()) / full >= 0.5
    }

    /// Whether what is lost without a queue is an answer to the rate, as at a policer.
    #[must_use]
    pub fn losses_follow_rate(&self) -> bool {
        self.losses_follow_rate
    }

    /// The share of packets that this path loses whatever we do.
    #[must_use]
    pub fn loss_floor(&self) -> f64 {
        if self.losses_follow_rate {
            return 0.0;
        }
        let floor = self.floor.get(self.class_unknown(), self.own_dispersion());
        if self.holds_less_than(BURST) {
            floor.min(MOST_OWN)
        } else {
            floor
        }
    }

    /// How much more the path's own losses vary than independent ones. Where a buffer holds no burst, flows lose in
    /// bursts what the floor learns: that they come so is no sign of the path's.
    fn own_dispersion(&self) -> f64 {
        if self.loses_anywhere() || !self.holds_less_than(BURST) {
            self.floor.dispersion()
        } else {
            1.0
        }
    }

    /// What a full queue lets through of this flow: what arrived, and what the path itself lost of it. 0 if unknown.
    #[must_use]
    pub fn let_through(&self, mi: &Mi) -> Rate {
        let borne = mi.goodput * (1.0 / (1.0 - self.loss_floor()));
        borne.min(mi.arrival_rate())
    }

    /// Loss beyond what the floor explains: beyond its mean for congestive losses, beyond two deviations for others.
    #[must_use]
    pub fn excess_loss(&self, mi: &Mi) -> f64 {
        let congestive = self.class(mi) == LossClass::Congestive;
        self.loss_beyond(mi, if congestive { 0.0 } else { 2.0 })
    }

    /// Loss beyond so many deviations of the most that can be the path's own: of the floor, or of what lets as many
    /// packets pass in a row as have passed. What comes in bursts deviates more.
    #[must_use]
    pub fn clear_loss(&self, mi: &Mi, sigmas: f64) -> f64 {
        let own = self.loss_floor().max(self.floor.most());
        beyond(mi, own, self.own_dispersion(), sigmas)
    }

    /// Loss beyond the floor and so many deviations of it, wherever it happened.
    #[must_use]
    pub fn loss_beyond(&self, mi: &Mi, sigmas: f64) -> f64 {
        let floor = self.loss_floor();
        // Losses at a full queue come in bursts, too, but those are not the path's.
        let dispersion = match self.class(mi) {
            LossClass::Congestive => 1.0,
            LossClass::None | LossClass::Random | LossClass::Unknown => self.own_dispersion(),
        };
        let sigmas = if floor < FLOOR_NONE { 0.0 } else { sigmas };
        beyond(mi, floor, dispersion, sigmas)
    }
}

/// Loss beyond a part that the path loses by itself and so many deviations of that, whose variance is `dispersion`
/// times that of independent losses.
fn beyond(mi: &Mi, own: f64, dispersion: f64, sigmas: f64) -> f64 {
    let noise = sigmas * (own * (1.0 - own) * dispersion / mi.pkts().max(1.0)).sqrt();
    (mi.loss() - own - noise).max(0.0)
}
