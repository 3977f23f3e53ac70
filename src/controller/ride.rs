//! A flow that has all of its path: when it rides at the edge, and where it goes from there.

use super::{Controller, Phase};
use crate::cruise::{Cruise, Ride};
use crate::estimate::Mi;
use crate::handbrake::{Action, View};
use crate::params::{Algorithm, Handbrake};
use crate::plan::{Command, Decision, Reason};
use crate::startup::Startup;
use crate::units::{Micros, Rate};

impl Controller {
    /// Whether a flow of which so much arrives at a full queue may ride there: it is all of the path, and packets enough to steer by.
    pub(super) fn may_cruise(&self, arrives: Rate) -> bool {
        self.is_cruiser() && self.rules.path.is_all(arrives)
    }

    /// The edge to ride at from the present rate on, if that is near to all of the path and no queue stands.
    pub(super) fn edge_near(&self) -> Option<Rate> {
        let edge = self
            .rules
            .path
            .edge_near(self.rate, self.est.goodput_max())?;
        (self.is_cruiser() && !self.queue_stands).then_some(edge)
    }

    fn is_cruiser(&self) -> bool {
        let off = self.params.no_handbrake.contains(Handbrake::Cruise);
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let steers = Cruise::can_steer(&self.est, self.rate, pkt_bytes);
        let low = self.is_low(self.params.low_enter);
        self.params.chosen() == Algorithm::Pk3c && !off && steers && !low
    }

    /// Rides at an edge; `met` says that so much arrived at a full queue.
    pub(super) fn cruise(&mut self, edge: Rate, met: bool) -> Command {
        self.phase = Phase::Cruise(Cruise::new(edge, met, &self.est));
        let length = self.steady_interval();
        self.run([self.rate; 4], length)
    }

    pub(super) fn on_cruise(&mut self, mi: &Mi) -> Decision {
        if let Some(decision) = self.meet_bbr(mi) {
            return decision;
        }
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        if let Some((Action::Drain(rate), reason)) = self.rules.check_queue(&view) {
            return self.drain_to(rate, reason);
        }
        let (stands, path) = (self.queue_stands, self.rules.path);
        let view = self.view(mi);
        let Phase::Cruise(mut cruise) = self.phase else {
            return self.wait(Reason::Wait);
        };
        let ride = cruise.on_mi(&view, path);
        self.phase = Phase::Cruise(cruise);
        match ride {
            Ride::On(rate, reason) => self.steer(self.bounded(rate), reason),
            Ride::Shared(rate, _) if stands => self.drain_to(rate, Reason::CruiseEnd),
            Ride::Shared(rate, edge) => {
                self.rate = self.bounded(rate);
                let command = if self.is_low(self.params.low_enter) {
                    self.climb(Micros::ZERO)
                } else {
                    self.probe()
                };
                if let Phase::Vivace(core) = &mut self.phase {
                    core.set_edge(Some(edge));
                }
                self.decide(Reason::CruiseEnd, Some(command))
            }
            Ride::Wider => {
                self.rules.path.learn(None);
                self.phase = Phase::Startup(Startup::wider(&self.est));
                let command = self.startup_plan();
                self.decide(Reason::Restart, Some(command))
            }
        }
    }

    fn drain_to(&mut self, rate: Rate, reason: Reason) -> Decision {
        let from = self.rate;
        self.rate = self.bounded(rate);
        let command = self.drain(from);
        self.decide(reason, Some(command))
    }
}
