//! The queue handbrake: cut, and let the queue out, when even the smallest RTT of an interval says that a queue stands.
//!
//! Flows that probe one after the other build a queue that none of them sees growing: its slope is zero. Whether the
//! drain had an effect is judged by the compete rule.

use super::{Action, BELOW_GOODPUT, Rule, View};
use crate::params::Handbrake;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// No cut goes below this part of the rate.
const CUT_FLOOR: f64 = 0.6;
/// RTTs until the rule may act again: a drain and a few intervals.
pub(super) const HOLDOFF_RTTS: f64 = 8.0;

/// Cut and drain on a standing queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueRule {
    silent_until: Micros,
}

impl QueueRule {
    /// Be silent until this time, for effects that were already answered.
    pub fn hold_off(&mut self, until: Micros) {
        self.silent_until = self.silent_until.max(until);
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
        if off || est.now() < self.silent_until || view.standing_queue() <= view.tolerated_queue() {
            return None;
        }
        self.silent_until = est.now() + est.srtt() * HOLDOFF_RTTS;
        let cut = rate * params.hb_queue_cut.get();
        let target = if mi.limited || mi.goodput == Rate::ZERO {
            cut
        } else {
            cut.min(mi.goodput * BELOW_GOODPUT)
        };
        Some(Action::Drain(target.max(rate * CUT_FLOOR)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{RATE, check, interval};
    use crate::params::Params;

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
