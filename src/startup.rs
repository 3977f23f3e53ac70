//! The fast start: double while the path keeps up, stop at the first sign that it does not.
//!
//! ```text
//!   send four slots of rtt/4 at one rate ──▶ the first that was sent in full tells, 1.25 RTT later:
//!       packets arrive slower than sent │ RTT slope │ standing queue │ heavy loss  ──▶ leave, 0.95 x best goodput
//!       a hint of one of these                                                      ──▶ grow by a little
//!       none                                                                        ──▶ double
//! ```
//!
//! Only slots of the current rate count, so the rate is never credited with what an older, slower one achieved. The
//! congestion window stays within slow start's bound (the initial window plus twice what was delivered), so a first
//! rate that is too high for the path floods it no more than slow start would. Leaving is followed by a drain.
//!
//! Four signs, because each has a blind spot: ACK spacing needs many samples (and says nothing of delayed ACKs with
//! few), the slope needs a queue that grows during the slot, the queue needs a known smallest RTT, and loss must be told
//! from the random loss of a radio link.
//!
//! Limits: the worst overshoot is a rate just under the capacity, doubled, for some 1.5 RTTs: up to 2 bandwidth-delay
//! products of queue.

use crate::estimate::{Estimator, Mi};
use crate::params::Params;
use crate::plan::Reason;
use crate::program::Slot;
use crate::units::{Micros, Rate};

/// ACKs below which a slot tells nothing. Source: one-packet reports of batched ACKs once doubled the rate.
pub const MIN_SAMPLES: f64 = 4.0;
/// Arriving slower than this part of the sending rate means the path is full.
const FULL_SPACING: f64 = 0.85;
/// Arriving slower than this part is a hint of it.
const HINT_SPACING: f64 = 0.93;
/// Packets and samples below which ACK spacing tells nothing. Source: delayed ACKs on a real stack.
const SPACING_MIN_PKTS: f64 = 24.0;
const SPACING_MIN_SAMPLES: f64 = 8.0;
/// Slope that means a full path, s/s, and how many standard errors it must be.
const FULL_SLOPE: f64 = 0.05;
const FULL_SLOPE_SIGMAS: f64 = 3.0;
/// Slope that is a hint, s/s, and its standard errors.
const HINT_SLOPE: f64 = 0.02;
const HINT_SLOPE_SIGMAS: f64 = 2.0;
/// A mean queue above this part of the smallest RTT, and above [`FULL_QUEUE`], means a full path.
const FULL_QUEUE_RTTS: f64 = 0.25;
const FULL_QUEUE: Micros = Micros::new(4000);
/// Growth after a hint of spacing and of a slope.
const HINT_SPACING_GAIN: f64 = 1.25;
const HINT_SLOPE_GAIN: f64 = 1.1;
/// The rate stays below this many times the goodput of the last RTT. While doubling, 5/8 of the rate was seen then, so
/// the bound is idle; an application that sends in bursts cannot push the rate beyond it.
const OVER_GOODPUT: f64 = 4.0;

/// Reports remembered: more than an RTT of slots.
const HISTORY: usize = 8;
/// Growth per round of a restart. Source: upstream's growth.
const RESTART_GAIN: f64 = 1.5;

/// Where to go on, over the best goodput; and over the rate, if no goodput is known.
const LEAVE: f64 = 0.95;
const BLIND_CUT: f64 = 0.5;

/// What a report means for the fast start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing yet.
    Wait(Reason),
    /// The slots held too few ACKs to tell: send longer ones at the same rate.
    Longer,
    /// Go on at a higher rate.
    Grow(Rate, Reason),
    /// The path is full: leave at this rate.
    Leave(Rate, Reason),
}

/// State of the fast start.
#[derive(Clone, Debug)]
pub struct Startup {
    best: Rate,
    gain_max: f64,
    /// (time in us, packets delivered so far) of the last reports, both modulo 2^32.
    history: [(u32, u32); HISTORY],
    reports: usize,
}

impl Default for Startup {
    fn default() -> Self {
        Self {
            best: Rate::ZERO,
            gain_max: f64::INFINITY,
            history: [(0, 0); HISTORY],
            reports: 0,
        }
    }
}

impl Startup {
    /// A restart, which grows more carefully than a first start.
    #[must_use]
    pub fn again() -> Self {
        Self {
            gain_max: RESTART_GAIN,
            ..Self::default()
        }
    }

    /// Judges one report. `rate` is the current rate.
    pub fn on_mi(
        &mut self,
        mi: &Mi,
        est: &Estimator,
        rate: Rate,
        pkt_bytes: f64,
        params: &Params,
    ) -> Verdict {
        let recent = self.recent_goodput(est, pkt_bytes);
        let enough = mi.samples >= MIN_SAMPLES;
        if mi.asked.is_some() && enough {
            self.best = self.best.max(mi.goodput.min(mi.send_rate));
        }
        if let Some(reason) = full(mi, est, pkt_bytes, params) {
            return Verdict::Leave(self.leaving_rate(mi, rate, reason), reason);
        }
        if mi.slot == Slot::Hold && mi.samples < MIN_SAMPLES {
            return Verdict::Longer;
        }
        let Some(asked) = mi.asked.filter(|_| enough && !mi.stalled) else {
            return Verdict::Wait(Reason::Wait);
        };
        // The first slot after a jump often still has the old pacing gap in it: a later one will tell.
        if mi.send_rate < asked * (0.7 - mi.pkts_per_ack() / mi.pkts().max(1.0)) {
            return Verdict::Wait(if mi.slot == Slot::Trial(0) {
                Reason::Wait
            } else {
                Reason::AppLimited
            });
        }
        let (gain, reason) = growth(mi, params);
        let next =
            (asked * gain.min(self.gain_max)).min(recent.unwrap_or(Rate::MAX) * OVER_GOODPUT);
        if next <= rate {
            Verdict::Wait(Reason::AppLimited)
        } else {
            Verdict::Grow(next, reason)
        }
    }

    /// Goodput over the last RTT or a little more, once there is that much history.
    fn recent_goodput(&mut self, est: &Estimator, pkt_bytes: f64) -> Option<Rate> {
        // `as` for whole numbers beyond 2^32 is their remainder.
        let now = (est.now().us() as u32, est.delivered_pkts() as u64 as u32);
        let since = |(us, pkts): (u32, u32)| {
            let elapsed = Micros::new(now.0.wrapping_sub(us).into());
            (elapsed, f64::from(now.1.wrapping_sub(pkts)))
        };
        let depth = self.history.len();
        let newest_first =
            (1..=self.reports.min(depth)).map(|back| self.history[(self.reports - back) % depth]);
        let old = newest_first
            .map(since)
            .find(|(elapsed, _)| *elapsed >= est.srtt());
        self.history[self.reports % depth] = now;
        self.reports += 1;
        old.map(|(elapsed, pkts)| Rate::from_bytes_in(pkts * pkt_bytes, elapsed))
    }

    /// Where to go on after the fast start.
    fn leaving_rate(&self, mi: &Mi, rate: Rate, reason: Reason) -> Rate {
        let arrived = if mi.samples >= MIN_SAMPLES {
            mi.goodput
        } else {
            Rate::ZERO
        };
        let measured = self.best.max(arrived);
        if measured == Rate::ZERO {
            return rate * BLIND_CUT;
        }
        if mi.asked.is_none() || arrived == Rate::ZERO {
            // Packets of an older rate met a queue already; behind a queue, ACKs are spaced at the capacity.
            return rate.min(measured * LEAVE);
        }
        let slope = mi.rtt.map_or(0.0, |rtt| rtt.slope);
        let by_slope = if slope > 0.1 {
            mi.send_rate * (1.0 / (1.0 + slope))
        } else {
            mi.goodput
        };
        let measured = by_slope
            .min(mi.send_rate)
            .max(mi.goodput.min(mi.send_rate) * 0.5);
        let rate = if reason == Reason::FullLoss {
            mi.goodput
        } else {
            self.best.max(measured).min(mi.send_rate)
        };
        rate * if mi.pkts() < 8.0 { 0.7 } else { LEAVE }
    }
}

/// The sign of a full path, if there is one. A slot without an asked rate can only show a queue.
fn full(mi: &Mi, est: &Estimator, pkt_bytes: f64, params: &Params) -> Option<Reason> {
    let rtt = mi.rtt?;
    if rtt.mean - est.rtt_min() > (est.rtt_min() * FULL_QUEUE_RTTS).max(FULL_QUEUE) {
        return Some(Reason::FullQueue);
    }
    let asked = mi.asked?;
    if let Some(arrived) = arrival_rate(mi) {
        let limit = FULL_SPACING - 2.0 * mi.pkts_per_ack() / mi.pkts();
        if arrived < mi.send_rate.min(asked) * limit && mi.send_rate > asked * 0.5 {
            return Some(Reason::FullSpacing);
        }
    }
    let rise = Micros::from_secs(rtt.slope * mi.sent_for.as_secs());
    let mut smallest_rise = mi.send_rate.time_for(2.0 * pkt_bytes).max(Micros::new(500));
    if mi.lost_pkts > 0.0 {
        smallest_rise = smallest_rise.max(est.sack_delay());
    }
    if rtt.slope > FULL_SLOPE
        && rtt.slope > FULL_SLOPE_SIGMAS * rtt.slope_se
        && rise > smallest_rise
    {
        return Some(Reason::FullSlope);
    }
    // Three deviations of a 10 % loss.
    let tolerance = params.startup_loss_tolerance.get() + 3.0 * (0.09 / mi.pkts().max(1.0)).sqrt();
    (mi.pkts() >= 16.0 && mi.lost_pkts >= 3.0 && mi.loss() > tolerance).then_some(Reason::FullLoss)
}

/// Rate at which what was sent came out of the path, losses counted as arrived. `None` if too few samples tell.
fn arrival_rate(mi: &Mi) -> Option<Rate> {
    (mi.pkts() >= SPACING_MIN_PKTS && mi.samples >= SPACING_MIN_SAMPLES && mi.delivered_pkts > 0.0)
        .then(|| mi.goodput * (mi.pkts() / mi.delivered_pkts))
}

/// How much faster to go when the path is not full.
fn growth(mi: &Mi, params: &Params) -> (f64, Reason) {
    let slope_hint = mi
        .rtt
        .is_some_and(|rtt| rtt.slope > HINT_SLOPE && rtt.slope > HINT_SLOPE_SIGMAS * rtt.slope_se);
    let limit = HINT_SPACING - mi.pkts_per_ack() / mi.pkts().max(1.0);
    if slope_hint {
        (HINT_SLOPE_GAIN.min(params.startup_gain), Reason::GrowLess)
    } else if arrival_rate(mi).is_some_and(|arrived| arrived < mi.send_rate * limit) {
        (HINT_SPACING_GAIN.min(params.startup_gain), Reason::GrowLess)
    } else {
        (params.startup_gain, Reason::Grow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::SlotContext;
    use crate::estimate::tests::report;

    const PKT: f64 = 1000.0;
    const RATE: Rate = Rate::from_bytes_per_sec(2e6);

    /// 40 packets sent 0.5 ms apart (2 MB/s) after an idle path of 40 ms was seen; `rtt` and `lost` by packet number.
    fn verdict(rtt: impl Fn(u64) -> u64, lost: impl Fn(u64) -> u64) -> Verdict {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let context = |asked| SlotContext {
            asked,
            length: Micros::new(20_000),
            mss_bytes: PKT,
        };
        est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
        let acks: Vec<_> = (0..40).map(|i| (i * 500, rtt(i), lost(i))).collect();
        let mi = est.observe(&report(33, 100_000, &acks, 20_000), context(Some(RATE)));
        Startup::default().on_mi(&mi, &est, RATE, PKT, &params)
    }

    #[test]
    fn it_doubles_on_a_path_that_keeps_up() {
        assert_eq!(
            verdict(|i| 40_000 + 20 * (i % 3), |_| 0),
            Verdict::Grow(RATE * 2.0, Reason::Grow)
        );
    }

    #[test]
    fn ten_percent_of_loss_is_tolerated_and_a_third_is_not() {
        let light = verdict(|_| 40_000, |i| u64::from(i % 10 == 0));
        assert!(matches!(light, Verdict::Grow(..)), "{light:?}");
        let heavy = verdict(|_| 40_000, |i| u64::from(i % 2 == 0));
        assert!(
            matches!(heavy, Verdict::Leave(_, Reason::FullLoss)),
            "{heavy:?}"
        );
    }

    #[test]
    fn a_standing_queue_ends_it() {
        let full = verdict(|_| 51_000, |_| 0);
        assert!(
            matches!(full, Verdict::Leave(rate, Reason::FullQueue) if rate <= RATE),
            "{full:?}"
        );
    }

    #[test]
    fn a_growing_queue_ends_it_at_the_rate_that_arrived() {
        // +100 us per 500 us: a capacity of 1 / 1.2 of the rate; the mean queue stays below 4 ms.
        let full = verdict(|i| 40_000 + 100 * i, |_| 0);
        let Verdict::Leave(rate, Reason::FullSlope) = full else {
            panic!("{full:?}")
        };
        assert!((rate / (RATE * 0.95) - 1.0 / 1.2).abs() < 0.02, "{rate}");
    }

    #[test]
    fn slow_arrivals_end_it() {
        // A step in the RTT of single packets: no slope to speak of, but the ACKs span 1.4 times the sending time.
        let full = verdict(|i| if i < 39 { 40_000 } else { 50_000 }, |_| 0);
        assert!(
            matches!(
                full,
                Verdict::Leave(_, Reason::FullSpacing | Reason::FullSlope)
            ),
            "{full:?}"
        );
    }

    #[test]
    fn a_hint_of_a_slope_grows_less() {
        let hint = verdict(|i| 40_000 + 15 * i, |_| 0);
        assert_eq!(hint, Verdict::Grow(RATE * 1.1, Reason::GrowLess));
    }

    #[test]
    fn half_empty_slots_and_few_samples_do_not_grow() {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let context = SlotContext {
            asked: Some(RATE),
            length: Micros::new(20_000),
            mss_bytes: PKT,
        };
        let mut startup = Startup::default();
        let sparse: Vec<_> = (0..15).map(|i| (i * 1300, 40_000, 0)).collect();
        let mi = est.observe(&report(34, 100_000, &sparse, 20_000), context);
        assert_eq!(
            startup.on_mi(&mi, &est, RATE, PKT, &params),
            Verdict::Wait(Reason::AppLimited)
        );
        let mi = est.observe(&report(33, 200_000, &[(0, 40_000, 0); 3], 1500), context);
        assert_eq!(
            startup.on_mi(&mi, &est, RATE, PKT, &params),
            Verdict::Wait(Reason::Wait)
        );
    }

    #[test]
    fn bursts_of_an_application_bound_the_rate_by_its_goodput() {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let context = |asked| SlotContext {
            asked: Some(asked),
            length: Micros::new(20_000),
            mss_bytes: PKT,
        };
        let mut startup = Startup::default();
        let mut rate = RATE;
        // One full slot in ten, each judged alone: 0.2 MB/s in the mean however fast the burst.
        for round in 0..40_u64 {
            let gap = (1e6 * PKT / rate.bytes_per_sec()) as u64;
            let acks: Vec<_> = (0..40).map(|i| (i * gap, 40_000, 0)).collect();
            let mi = est.observe(&report(33, 200_000 * round, &acks, 40 * gap), context(rate));
            if let Verdict::Grow(next, _) = startup.on_mi(&mi, &est, rate, PKT, &params) {
                rate = next;
            }
        }
        assert!(rate <= RATE * 2.0, "{rate}");
    }
}
