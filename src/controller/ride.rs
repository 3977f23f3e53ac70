//! A flow that has all of its path: when it rides at the edge, and where it goes from there.

use super::{Controller, Phase};
use crate::cruise::{Cruise, Met, Ride};
use crate::estimate::Mi;
use crate::handbrake::View;
use crate::params::Handbrake;
use crate::plan::{Command, Decision, Reason};
use crate::startup::Startup;
use crate::units::Rate;

impl Controller {
    /// Whether a flow of which so much arrives at a full queue may ride there: it is all of the path, and packets
    /// enough to steer by.
    pub(super) fn may_cruise(&self, arrives: Rate) -> bool {
        self.is_cruiser() && self.rules.path.is_all(arrives)
    }

    /// The edge to ride at from the present rate on, if that is all of the path and no queue stands.
    pub(super) fn own_edge(&self) -> Option<Rate> {
        let edge = self.rules.path.edge(self.rate, self.est.goodput_max())?;
        (self.is_cruiser() && !self.queue_stands).then_some(edge)
    }

    fn is_cruiser(&self) -> bool {
        let off = self.params.no_handbrake.contains(Handbrake::Cruise);
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let carries = self.rules.path.carries().unwrap_or(self.rate);
        let steers = Cruise::can_steer(&self.est, carries.max(self.rate), pkt_bytes);
        self.params.is_pk3c() && !off && steers
    }

    /// Rides at an edge; `met` says whether so much arrived at a full queue.
    pub(super) fn cruise(&mut self, edge: Rate, met: Met) -> Command {
        self.phase = Phase::Cruise(Cruise::new(edge, met, &self.est));
        let length = self.steady_interval();
        self.run([self.rate; 4], length)
    }

    pub(super) fn on_cruise(&mut self, mi: &Mi) -> Decision {
        if let Some(decision) = self.meet_bbr(mi) {
            return decision;
        }
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        if let Some((action, reason)) = self.rules.check_queue(&view) {
            return self.act(mi, action, reason);
        }
        let Phase::Cruise(cruise) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        match cruise.on_mi(&view, self.rules.path) {
            Ride::On(rate, reason) => self.steer(self.bounded(rate), reason),
            Ride::Shared(rate, _) if self.queue_stands => {
                let command = self.drain_to(rate);
                self.decide(Reason::CruiseEnd, Some(command))
            }
            Ride::Shared(rate, edge) => {
                self.rate = self.bounded(rate);
                let command = self.search();
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
}
