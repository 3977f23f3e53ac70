//! The signs of a full path in one report of a fast start, and what is left of the growth where there are none.
//!
//! Four signs, because each has a blind spot. ACK spacing needs many samples, and says nothing of delayed ACKs with few,
//! nor after the first plan, whose slots alone know how long they were being sent. The slope needs a queue that grows
//! during the slot, and a second slot of it where RTTs jitter. The queue needs a known smallest RTT, and is taken less
//! the jitter. Loss must be told from the random loss of a radio link; behind a queue that others keep full it is the
//! only sign, since the smallest RTT already has the queue in it.
//!
//! Hints of the first two, and losses that are no sign yet, slow the growth, as far as they are sure.

use crate::estimate::{Estimator, Mi, RttStats};
use crate::plan::Reason;
use crate::units::Micros;

/// Arriving slower than this part of the sending rate means the path is full.
const FULL_SPACING: f64 = 0.85;
/// Arriving slower than this part is a hint of it.
const HINT_SPACING: f64 = 0.93;
/// Slope that means a full path, s/s, and how many standard errors it must be.
const FULL_SLOPE: f64 = 0.05;
const FULL_SLOPE_SIGMAS: f64 = 6.0;
/// The same if the slot before had a hint of a slope, too. Where RTTs jitter, samples in a row are early or late
/// together, and tell less than their number; but a queue goes on growing.
const AGAIN_SLOPE_SIGMAS: f64 = 3.0;
/// Rise of a regression line through a step, in steps: so far held-back SACKs lift it.
const STEP_RISE: f64 = 1.5;
/// Slope that is a hint, s/s, and its standard errors.
const HINT_SLOPE: f64 = 0.02;
const HINT_SLOPE_SIGMAS: f64 = 2.0;
/// A mean queue above this part of the smallest RTT, and above [`FULL_QUEUE`], means a full path.
const FULL_QUEUE_RTTS: f64 = 0.25;
const FULL_QUEUE: Micros = Micros::new(4000);
/// RTT samples that show it: behind a short message the receiver may hold back its only ACK.
const QUEUE_SAMPLES: f64 = 2.0;
/// Part of the growth (in octaves) after a hint of spacing and of a slope.
const HINT_SPACING_PART: f64 = 0.33;
const HINT_SLOPE_PART: f64 = 0.14;
/// Loss of a slot that leaves nothing of the growth, and lost packets from which on loss counts. Source: simulated,
/// crowds that start one after the other (Jain's index on 81 paths .69 without, .72 with it); at .1 no better, and
/// paths with loss are filled later.
const HALT_LOSS: f64 = 0.2;
const HALT_PKTS: f64 = 2.0;
/// Packets of a slot, or of the start, and lost ones among them, that tell of a full path; and the deviations of a loss
/// of 10 % that their part must be above the tolerated one: a start looks at fifteen slots, but their sum is one
/// figure.
const LOSSY_PKTS: f64 = 16.0;
const LOSSY_LOST: f64 = 3.0;
const SLOT_LOSS_SIGMAS: f64 = 4.0;
const WHOLE_LOSS_SIGMAS: f64 = 3.0;

/// A report as a start sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs<'a> {
    pub(super) mi: &'a Mi,
    pub(super) est: &'a Estimator,
    pub(super) pkt_bytes: f64,
    /// Loss that may be the path's own.
    pub(super) tolerated_loss: f64,
    /// What stands in the RTT without being a queue.
    pub(super) foreign: Micros,
    /// The slot before had a hint of a slope.
    pub(super) again: bool,
    /// Half of the initial window was lost.
    pub(super) in_crowd: bool,
}

impl Signs<'_> {
    /// The sign of a full path, if there is one. A slot without an asked rate can only show a queue.
    pub(super) fn full(&self) -> Option<Reason> {
        let asked = self.mi.asked.is_some();
        let loss = (asked && self.is_lossy()).then_some(Reason::FullLoss);
        // Without an RTT the flow only repeats what it lost.
        let Some(rtt) = self.mi.rtt else { return loss };
        if self.has_queue(&rtt) {
            Some(Reason::FullQueue)
        } else if asked && self.is_spaced() {
            Some(Reason::FullSpacing)
        } else if asked && self.is_steep(&rtt) {
            Some(Reason::FullSlope)
        } else {
            loss
        }
    }

    fn is_lossy(&self) -> bool {
        let (pkts, lost) = (self.mi.pkts(), self.mi.lost_pkts);
        is_lossy(pkts, lost, SLOT_LOSS_SIGMAS, self.tolerated_loss)
            || self.in_crowd && growth_left(self.mi) <= 0.0
    }

    fn has_queue(&self, rtt: &RttStats) -> bool {
        // A full queue of few packets jumps up and down, too, but it loses some.
        let jitter = if self.mi.lost_pkts < 1.0 {
            rtt.deviation
        } else {
            Micros::ZERO
        };
        let queue = self.est.mean_queue(rtt) - jitter - self.foreign;
        self.mi.samples >= QUEUE_SAMPLES && queue > tolerated_queue(self.est)
    }

    fn is_spaced(&self) -> bool {
        let limit = FULL_SPACING - 2.0 * self.mi.pkts_per_ack() / self.mi.pkts();
        self.mi.tells_spacing() && self.mi.arrival_rate() < self.mi.send_rate * limit
    }

    fn is_steep(&self, rtt: &RttStats) -> bool {
        let sigmas = if self.again {
            AGAIN_SLOPE_SIGMAS
        } else {
            FULL_SLOPE_SIGMAS
        };
        let rise = Micros::from_secs(rtt.slope * self.mi.sent_for.as_secs());
        let two_packets = self.mi.send_rate.time_for(2.0 * self.pkt_bytes);
        let mut smallest_rise = two_packets.max(Micros::new(500));
        if self.mi.lost_pkts > 0.0 {
            smallest_rise = smallest_rise.max(self.est.sack_delay() * STEP_RISE);
        }
        rtt.slope > FULL_SLOPE && rtt.slope > sigmas * rtt.slope_se && rise > smallest_rise
    }
}

/// The queue that ends no start.
pub(super) fn tolerated_queue(est: &Estimator) -> Micros {
    (est.rtt_min() * FULL_QUEUE_RTTS).max(FULL_QUEUE)
}

/// Whether a whole start has lost so many of so many packets that a path's own losses do not explain it.
pub(super) fn is_crowded(pkts: f64, lost_pkts: f64, tolerated: f64) -> bool {
    is_lossy(pkts, lost_pkts, WHOLE_LOSS_SIGMAS, tolerated)
}

fn is_lossy(pkts: f64, lost_pkts: f64, sigmas: f64, tolerated: f64) -> bool {
    let deviation = (0.1 * 0.9 / pkts.max(1.0)).sqrt();
    let most = pkts * (tolerated + sigmas * deviation);
    pkts >= LOSSY_PKTS && lost_pkts >= LOSSY_LOST && lost_pkts > most
}

/// Whether the RTT may grow.
pub(super) fn slope_hint(mi: &Mi) -> bool {
    mi.rtt
        .is_some_and(|rtt| rtt.slope > HINT_SLOPE && rtt.slope > HINT_SLOPE_SIGMAS * rtt.slope_se)
}

/// Which part of the full growth (in octaves) is due when the path is not full.
pub(super) fn growth(mi: &Mi, slope_hint: bool) -> (f64, Reason) {
    let limit = HINT_SPACING - mi.pkts_per_ack() / mi.pkts().max(1.0);
    let (part, reason) = if slope_hint {
        (HINT_SLOPE_PART, Reason::GrowLess)
    } else if mi.tells_spacing() && mi.arrival_rate() < mi.send_rate * limit {
        (HINT_SPACING_PART, Reason::GrowLess)
    } else {
        (1.0, Reason::Grow)
    };
    let left = growth_left(mi);
    if left < part {
        (left, Reason::GrowLess)
    } else {
        (part, reason)
    }
}

/// What losses leave of the growth.
fn growth_left(mi: &Mi) -> f64 {
    if mi.lost_pkts < HALT_PKTS {
        return 1.0;
    }
    (1.0 - mi.loss() / HALT_LOSS).max(0.0)
}
