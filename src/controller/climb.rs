//! The climber's intervals: whether it goes on, competes, cruises, or hands over to the core.

use super::{Controller, Phase};
use crate::cruise::Met;
use crate::estimate::Mi;
use crate::handbrake::{Effect, View};
use crate::plan::{Decision, Reason};

impl Controller {
    pub(super) fn on_climb(&mut self, mi: &Mi) -> Decision {
        if let Some(decision) = self.meet_bbr(mi) {
            return decision;
        }
        let view = self.view(mi);
        let calm = matches!(&self.phase, Phase::Aimd(climber) if climber.is_calm(&view));
        if calm && !self.is_low(self.params.low_exit) {
            self.rules.restart.climbed(self.rate);
            let command = self.settle();
            return self.decide(self.settled_reason(), Some(command));
        }
        let among_others = self.is_among_others();
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        let judge = &mut self.rules.compete;
        judge.note(&view);
        let Phase::Aimd(climber) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let (rate, reason) = climber.on_mi(&view);
        let effect = match reason {
            Reason::ClimbQueue => judge.backed_off(&view, among_others),
            Reason::Climb => {
                judge.climbed();
                Effect::Fine
            }
            _ => Effect::Fine,
        };
        let climber = *climber;
        if let Some(decision) = self.on_effect(effect) {
            return decision;
        }
        if reason == Reason::ClimbLoss
            && let Some(edge) = climber.own_edge()
            && self.rules.path.may_be_shared(self.rate)
        {
            self.rules.path.learn(Some(edge));
            if let Some(command) = self.ride_after_loss(edge) {
                return self.decide(Reason::Cruise, Some(command));
            }
        }
        let full = reason == Reason::ClimbQueue && !self.queue_stands;
        if full
            && let Some(edge) = climber.edge()
            && self.may_cruise(edge)
        {
            self.rate = self.bounded(rate);
            let command = self.cruise(edge, Met::Queue);
            return self.decide(Reason::Cruise, Some(command));
        }
        self.steer(self.bounded(rate), reason)
    }
}
