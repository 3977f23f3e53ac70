//! The algorithms for comparison: the plain start of the bare core, and the upstream module's rules.

use super::{Controller, Phase, index_of};
use crate::estimate::Mi;
use crate::handbrake::View;
use crate::plan::{Decision, Reason};
use crate::vivace::Score;
use crate::vivace::start::Next;

impl Controller {
    pub(super) fn on_plain_start(&mut self, mi: &Mi) -> Decision {
        let Some(rate) = mi.asked.filter(|_| !mi.limited && mi.rtt.is_some()) else {
            return self.wait(Reason::Wait);
        };
        let score = Score::new(rate, &self.view(mi), None);
        let Phase::PlainStart(start) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        match start.judge(rate, score.utility) {
            Next::Grow(next) => {
                let next = self.bounded(next);
                if next <= self.rate {
                    return self.wait(Reason::Wait);
                }
                self.rate = next;
                let command = self.startup_plan();
                self.decide(Reason::Grow, Some(command))
            }
            Next::Leave(rate) => {
                self.rate = self.bounded(rate);
                let command = self.settle();
                self.decide(Reason::FullUtility, Some(command))
            }
        }
    }

    pub(super) fn on_upstream(&mut self, mi: &Mi) -> Decision {
        let (low, high) = self.bounds();
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        let Phase::Upstream(upstream) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let Some(reason) = upstream.on_mi(index_of(mi.slot), &view, &mut self.rng) else {
            return self.wait(Reason::Wait);
        };
        upstream.bound(low, high);
        self.rate = upstream.rate();
        let command = self.upstream_plan();
        self.decide(reason, Some(command))
    }
}
