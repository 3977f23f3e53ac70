//! Vivace's intervals: what the rules leave to it, and where it goes.

use super::{Controller, Phase, index_of};
use crate::cruise::Met;
use crate::estimate::Mi;
use crate::handbrake::{View, overshoot};
use crate::params::Core;
use crate::plan::{Decision, Reason};
use crate::vivace::{Edge, Score};

impl Controller {
    pub(super) fn on_trial(&mut self, mi: &Mi) -> Decision {
        if let Some(decision) = self.meet_bbr(mi).or_else(|| self.check_rules(mi)) {
            return decision;
        }
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        self.rules.sharing.note(&view);
        let limits = self.limits();
        let Phase::Vivace(core) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let bare = self.params.core() == Core::Vivace;
        // The bare core knows no climber that would mend an interval which lasts far too long.
        let sent = mi.asked.filter(|_| bare && !mi.limited && mi.rtt.is_some());
        let calm = core.calm();
        let score = mi
            .judged_rate()
            .or(sent)
            .map(|rate| Score::new(rate, &view, calm));
        let index = index_of(mi.slot);
        let Some(mut reason) = core.judge(index, score, limits, &self.params, &mut self.rng) else {
            return self.wait(Reason::Wait);
        };
        let stepped_up = reason == Reason::MoveOver && core.rate() < self.rate;
        let mut edge = None;
        let filled = stepped_up && score.is_some_and(|score| score.grew);
        if filled && let Some(overshoot) = overshoot(&view, core.rate()) {
            core.set_edge(Some(Edge {
                rate: overshoot.edge,
                lost: false,
            }));
            self.rules.sharing.goes_back(mi, overshoot.edge);
            core.go_back(
                core.rate()
                    .min(overshoot.below)
                    .within(limits.low, limits.high),
            );
            let shows = self.est.now() + self.est.srtt();
            self.rules.queue.wait_for(shows + overshoot.lets_out_for);
            reason = Reason::Overshoot;
            edge = Some(overshoot.edge);
        }
        let (stepped_to, trials) = (self.rate, core.trials());
        self.rate = core.rate();
        if let Some(edge) = edge.filter(|edge| self.may_cruise(*edge)) {
            let command = self.cruise(edge, Met::Queue);
            return self.decide(reason, Some(command));
        }
        if stepped_up {
            let arrives = self.est.let_through(mi).min(stepped_to);
            let rate = arrives * self.params.hb_loss_cut.get();
            if let Some(command) = self.yield_at_small_buffer(mi, rate) {
                return self.decide(self.settled_reason(), Some(command));
            }
        }
        if self.is_low(self.params.low_enter) {
            let command = self.settle();
            return self.decide(self.settled_reason(), Some(command));
        }
        let length = self.interval();
        let command = self.run(trials, length);
        self.decide(reason, Some(command))
    }
}
