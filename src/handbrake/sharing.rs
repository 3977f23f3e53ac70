//! Whose path is it? The queue's answer to a flow that goes back tells.
//!
//! ```text
//!              overshoot       back
//!   rate     ------------.
//!                        '----------------    fell by a part of the edge
//!   slope    + + + + + + .
//!                        ' - - - - - - - -    fell by that part, if all of the queue is our own;
//!                                             by less, the more of it is others'
//! ```
//!
//! A flow that goes back after an overshoot changes its rate by a tenth or more, in one step: enough for the slope of
//! the RTT to show, among the small steps of others, how much of the path that was. A flow alone sees an answer of 1,
//! one of eight a third. The part smoothed over a few overshoots tells how to climb: alone in strides, so that little
//! of the path is lost, beside others by equal additions, since what is given up is a part of the rate (see
//! [`crate::vivace`]).
//!
//! Limits: what is not shown to be the flow's own is taken to be shared, so a flow climbs slowly until its second
//! overshoot. Flows in lock step, as after a take-over, are one to this measure. A queue that is gone before the answer
//! comes tells nothing, nor do intervals with few packets.

use super::{View, burst_time};
use crate::estimate::Mi;
use crate::params::{Handbrake, Params};
use crate::units::Rate;

/// The part of the path from which on a flow climbs as if alone. Source: simulated, medians of the answer: .7 to 1.2 of
/// flows alone, .77 of two, .40 of eight. 30 paths that two to eight share: Jain's index .914 with none, .918 with
/// this; with .8 and .9 the same, but flows alone use .001 and .003 less.
const OWN: f32 = 0.7;
/// The weight of the latest answer. Source: two that say the same are believed.
const LATEST: f32 = 0.5;
/// The rate must have fallen by this part of the edge, so that others' steps do not drown the answer. Source: a trial's
/// distance.
const LEAST_FALL: f32 = 0.03;
/// A queue must stand through all of the interval, of so many bursts; on average of one.
const STANDS_BURSTS: f64 = 0.2;

/// How much of the path is the flow's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharing {
    /// The part, as the answers so far tell it.
    own: f32,
    asked: Option<Asked>,
}

/// A flow that goes back: what it was.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What the path bore of the overshoot, Mbit/s.
    edge_mbit: f32,
    /// How many times that was sent.
    sent: f32,
    /// Growth of the RTT, s/s.
    slope: f32,
}

impl Sharing {
    /// The flow goes back from an interval that overshot `edge`.
    pub fn goes_back(&mut self, mi: &Mi, edge: Rate) {
        self.asked = mi.rtt.map(|rtt| Asked {
            edge_mbit: edge.mbit() as f32,
            sent: (mi.send_rate / edge) as f32,
            slope: rtt.slope as f32,
        });
    }

    /// The first interval after that which can be judged.
    pub fn note(&mut self, view: &View<'_>) {
        let &View { mi, est, .. } = view;
        if mi.judged_rate().is_none() {
            return;
        }
        let (Some(asked), Some(rtt)) = (self.asked.take(), mi.rtt) else {
            return;
        };
        let burst = burst_time(view.rate, view.pkt_bytes);
        let stands =
            rtt.min - est.rtt_min() > burst * STANDS_BURSTS && est.mean_queue(&rtt) > burst;
        let fall = asked.sent - mi.send_rate.mbit() as f32 / asked.edge_mbit;
        if !stands || fall < LEAST_FALL || !mi.tells_spacing() {
            return;
        }
        let answer = ((asked.slope - rtt.slope as f32) / fall).clamp(0.0, 1.0);
        self.own += (answer - self.own) * LATEST;
    }

    /// Whether others share the path, for all that is known.
    #[must_use]
    pub fn is_shared(&self, params: &Params) -> bool {
        self.own < OWN && !params.no_handbrake.contains(Handbrake::Sharing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{PKT, empty_path, sent_at, view};
    use crate::units::Micros;

    /// A flow that sends a packet each 180 us and then each 220 us, and holds `part` of a path of one each 200 us, so
    /// often.
    fn after(part: f64, times: u64) -> Sharing {
        let (params, mut est, mut sharing) = (Params::default(), empty_path(), Sharing::default());
        let change = (20.0 * part) as u64;
        for time in 0..times {
            let at = 500_000 + time * 100_000;
            let over = sent_at(&mut est, at, 180, |i| 46_000 + change * i);
            sharing.goes_back(&over, Rate::from_bytes_in(PKT, Micros::new(200)));
            let mi = sent_at(&mut est, at + 50_000, 220, |i| 46_000 - change * i);
            sharing.note(&view(&params, &(est.clone(), mi)));
        }
        sharing
    }

    fn is_shared(part: f64, times: u64) -> bool {
        after(part, times).is_shared(&Params::default())
    }

    #[test]
    fn a_queue_that_answers_in_full_is_the_flow_s_own() {
        assert!(is_shared(1.0, 1), "one answer is not enough");
        assert!(!is_shared(1.0, 2));
        assert!(is_shared(0.5, 20));
        assert!(is_shared(0.0, 20));
        let mut off = Params::default();
        off.set("no-handbrake", "sharing").unwrap();
        assert!(!after(0.5, 20).is_shared(&off));
    }
}
