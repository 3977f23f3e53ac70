//! The queue handbrake: cut, and let the queue out, when even the smallest RTT of an interval says that a queue stands.
//!
//! Flows that probe one after the other build a queue that none of them sees growing: its slope is zero. Whether the
//! drain had an effect is judged by the compete rule.
//!
//! A path that has become much narrower shows before a queue stands: RTTs climb a straight line, and packets arrive at
//! the new rate. Then one cut goes down to what the path bears now, however far that is, instead of two or three that
//! wait for each other while the queue fills. A longer route makes RTTs climb, too, but in one step.
//!
//! Jitter lifts even the smallest RTT of an interval, and by how much its deviation does not tell: a lot where packets
//! wait for each other, hardly where they overtake. The last drain tells: more than it left is a queue.
//!
//! Limits: a flow among others cannot tell their start from a narrower path, and yields to it.

use super::{Action, BELOW_GOODPUT, Rule, View};
use crate::params::Handbrake;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// No cut goes below this part of the rate.
const CUT_FLOOR: f64 = 0.6;
/// A slope that shows a path too narrow for the rate, s/s: of three packets sent two arrive. Source: simulated,
/// capacity that falls to a third; 0.3 does the same.
const NARROW_SLOPE: f64 = 0.5;
/// Standard errors that such a slope must have, over the root of the samples. Source: regression; a step of the RTT, in
/// the middle of the interval, has root 3 of them.
const NARROW_LINE: f64 = 2.5;
/// No cut to a narrower path goes below this part of the rate.
const NARROW_FLOOR: f64 = 0.25;
/// RTTs until the rule may act again: a drain and a few intervals.
pub(super) const HOLDOFF_RTTS: f64 = 8.0;

/// Cut and drain on a standing queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueRule {
    silent_until: Micros,
    /// The rate lets a queue out until then.
    let_out_until: Micros,
    /// What stood after the last drain, us.
    left: Option<u32>,
}

impl QueueRule {
    /// Be silent until this time, for effects that were already answered.
    pub fn hold_off(&mut self, until: Micros) {
        self.silent_until = self.silent_until.max(until);
    }

    /// The rate lets the queue out until this time: only a narrower path calls for a cut before.
    pub fn wait_for(&mut self, until: Micros) {
        self.let_out_until = until;
    }

    /// A drain has ended. Where its last interval has no RTT, what the one before left is still the best figure.
    pub fn drained(&mut self, view: &View<'_>) {
        if view.mi.rtt.is_some() {
            self.left = Some(view.standing_queue().us().min(u32::MAX.into()) as u32);
        }
    }

    /// How far jitter may lift the smallest RTT of the interval: as far as it did after a drain, at most.
    fn jitter(&self, view: &View<'_>) -> Micros {
        let jitter = view.jitter();
        let left = self.left.map(|us| Micros::new(us.into()));
        left.map_or(jitter, |left| left.min(jitter))
    }
}

impl Rule for QueueRule {
    fn reason(&self) -> Reason {
        Reason::QueueCut
    }

    fn check(&mut self, view: &View<'_>) -> Option<Action> {
        let &View {
            mi,
            est,
            rate,
            params,
            ..
        } = view;
        let off = params.no_handbrake.contains(Handbrake::Queue) || params.hb_queue.get() == 0.0;
        if off || est.now() < self.silent_until {
            return None;
        }
        let cut = rate * params.hb_queue_cut.get();
        let target = if let Some(capacity) = narrower(view) {
            (capacity * BELOW_GOODPUT).max(rate * NARROW_FLOOR).min(cut)
        } else if est.now() < self.let_out_until
            || view.standing_queue() <= view.tolerated_queue() + self.jitter(view)
        {
            return None;
        } else if mi.limited || mi.goodput == Rate::ZERO {
            cut.max(rate * CUT_FLOOR)
        } else {
            cut.min(mi.goodput * BELOW_GOODPUT).max(rate * CUT_FLOOR)
        };
        self.silent_until = est.now() + est.srtt() * HOLDOFF_RTTS;
        Some(Action::Drain(target))
    }
}

/// What a path bears that has become much narrower than the rate, if the interval shows that: slope and spacing say the
/// same, and RTTs follow a line. A queue must have come of it, so that a few packets' time is none.
fn narrower(view: &View<'_>) -> Option<Rate> {
    let &View { mi, est, .. } = view;
    let rtt = mi.rtt?;
    let tells = mi.tells_spacing() && !mi.limited && !mi.stalled;
    let line =
        rtt.slope > NARROW_SLOPE && rtt.slope > NARROW_LINE * mi.samples.sqrt() * rtt.slope_se;
    if !tells || !line || est.mean_queue(&rtt) <= view.tolerated_queue() {
        return None;
    }
    let agree =
        mi.goodput > Rate::ZERO && mi.arrival_rate() < mi.send_rate * (1.0 / (1.0 + NARROW_SLOPE));
    agree.then(|| mi.goodput.max(mi.send_rate * (1.0 / (1.0 + rtt.slope))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{RATE, check, interval, sent, view};
    use crate::params::Params;

    #[test]
    fn a_path_that_has_become_narrower_is_met_by_one_cut() {
        let act = |seen| check(&mut QueueRule::default(), &Params::default(), &seen);
        // A third of the rate: 0.6 ms from one arrival to the next.
        let Some(Action::Drain(rate)) = act(sent(|i| 41_000 + 400 * i)) else {
            panic!()
        };
        assert!((rate / (RATE * (0.95 / 3.0)) - 1.0).abs() < 0.02, "{rate}");
        let Some(Action::Drain(rate)) = act(sent(|i| 41_000 + 1800 * i)) else {
            panic!()
        };
        assert_eq!(rate, RATE * NARROW_FLOOR, "a tenth");
        assert_eq!(act(sent(|i| 41_000 + 80 * i)), None, "hardly narrower");
        let longer = sent(|i| 41_000 + 40_000 * (i / 50));
        assert!(longer.1.rtt.is_some_and(|rtt| rtt.slope > NARROW_SLOPE));
        assert_eq!(act(longer), None, "a longer route");
    }

    #[test]
    fn while_a_queue_is_let_out_only_a_narrower_path_calls_for_a_cut() {
        let act = |waits, seen| {
            let mut rule = QueueRule::default();
            rule.wait_for(Micros::new(waits));
            check(&mut rule, &Params::default(), &seen)
        };
        let standing = || interval(RATE, 70_000, 1000);
        let now = standing().0.now().us();
        assert_eq!(act(now + 1, standing()), None);
        assert!(act(now, standing()).is_some(), "it should be out by now");
        assert!(act(now + 1, sent(|i| 41_000 + 400 * i)).is_some());
    }

    #[test]
    fn jitter_explains_no_more_than_a_drain_left() {
        let mut seen = interval(RATE, 60_000, 1000);
        if let Some(rtt) = &mut seen.1.rtt {
            rtt.deviation = Micros::new(5_000);
        }
        let params = Params::default();
        let acts = |left_us: Option<u64>| {
            let mut rule = QueueRule::default();
            if let Some(left_us) = left_us {
                rule.drained(&view(&params, &interval(RATE, 40_000 + left_us, 1000)));
            }
            check(&mut rule, &params, &seen).is_some()
        };
        assert!(!acts(None), "20 ms, of which jitter may be 17");
        assert!(!acts(Some(15_000)), "as much as without a queue");
        assert!(acts(Some(2_000)), "they overtake each other");
    }

    #[test]
    fn a_standing_queue_is_drained_and_a_passing_one_is_not() {
        let params = Params::default();
        let act = |rtt| {
            check(
                &mut QueueRule::default(),
                &params,
                &interval(RATE, rtt, 1000),
            )
        };
        assert_eq!(
            act(49_000),
            None,
            "a quarter of the smallest RTT is tolerated"
        );
        let Some(Action::Drain(rate)) = act(52_000) else {
            panic!()
        };
        assert!(rate <= RATE * 0.93 && rate >= RATE * 0.6, "{rate}");
        let mut passing = interval(RATE, 70_000, 1000);
        if let Some(rtt) = &mut passing.1.rtt {
            rtt.min = Micros::new(41_000);
        }
        assert_eq!(check(&mut QueueRule::default(), &params, &passing), None);
        let mut rule = QueueRule::default();
        assert!(check(&mut rule, &params, &interval(RATE, 70_000, 1000)).is_some());
        assert_eq!(
            check(&mut rule, &params, &interval(RATE, 70_000, 1000)),
            None,
            "held off"
        );
    }
}
