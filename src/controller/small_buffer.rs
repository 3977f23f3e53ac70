//! Losses where no queue tells: who is at a small buffer, one flow or several?
//!
//! A loss is clear where long runs of packets pass and then one interval loses several: a path that loses at random
//! never lets so many pass. Vivace finds what a buffer of a few packets bears, and stays: more loses packets, less is
//! less. So several of its flows keep the parts that they came by, since none gains by yielding. Equal additions and
//! multiplicative cuts make them equal (see [`crate::aimd`]), but one flow alone would give up a part of the path for
//! nothing:
//!
//! ```text
//!                   all of the path arrives       -> cruise: nobody else is there
//!   clear loss  --  less, or nobody knows         -> climb --(the same edge again and again)--> cruise
//!                   RTTs tell of a queue          -> as before: the other rules see who shares it
//! ```

use super::Controller;
use crate::aimd::Aimd;
use crate::cruise::Met;
use crate::estimate::Mi;
use crate::params::Handbrake;
use crate::plan::Command;
use crate::units::Rate;

/// Packets that must be lost, and deviations beyond which they are clearly not the path's.
const MIN_LOST: f64 = 2.0;
const CLEAR_SIGMAS: f64 = 2.5;
/// Where a flow that has all of the path goes after a loss, as a part of what arrived. Source: the cruise's own least
/// cut.
const BELOW_EDGE: f64 = 0.95;

impl Controller {
    /// What a flow of Vivace does whose packets were lost: it goes to the edge, if all of the path is its own, or
    /// climbs from `rate` where a small buffer may be shared.
    pub(super) fn yield_at_small_buffer(&mut self, mi: &Mi, rate: Rate) -> Option<Command> {
        let off = self.params.no_handbrake.contains(Handbrake::Loss);
        let is_clear = mi.lost_pkts >= MIN_LOST && self.est.clear_loss(mi, CLEAR_SIGMAS) > 0.0;
        if off || !is_clear || !self.params.is_pk3c() {
            return None;
        }
        let rides = self.ride_after_loss(self.est.let_through(mi));
        if rides.is_some() {
            return rides;
        }
        let climbs = self.est.has_small_buffer() && self.rules.path.may_be_shared(self.rate);
        climbs.then(|| {
            self.rate = self.bounded(rate);
            self.climb_on(Aimd::after_loss(self.est.now(), self.est.srtt()))
        })
    }

    /// Rides below an edge at which packets were lost, if that is all of the path.
    pub(super) fn ride_after_loss(&mut self, edge: Rate) -> Option<Command> {
        self.may_cruise(edge).then(|| {
            self.rate = self.bounded(edge * BELOW_EDGE);
            self.cruise(edge, Met::Loss)
        })
    }
}
