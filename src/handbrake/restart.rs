//! The restart handbrake: start fast again on a path that has grown.
//!
//! Vivace finds freed capacity by steps of at most a quarter per two RTTs, which takes a minute where a long fat path
//! grew tenfold, or where a fast start ended too early (at a burst of random loss, say). The rule remembers what the
//! path bore when it last pushed back, or when a climber handed back. Delivery far beyond that, with nothing pushing
//! back, is another path: the fast start goes on from the present rate, more carefully than the first one.
//!
//! A flow that has the path to itself need not wait for a quarter. Each of its steps beyond the capacity makes the
//! queue grow by as much: that tells that the path is its own, and what arrives then is the edge. If later more than
//! that arrives, and RTTs stay where they are, the path is wider, and the fast start goes on at once. Where others
//! share the path a step makes the queue grow by their part less, and capacity comes and goes with them; so the edge
//! must be the flow's own, and a higher one is believed for long.
//!
//! Limits: without an edge it needs Vivace to find the first quarter, which is so on paths that jitter or lose packets,
//! and for a while after the path became narrower. A restart that gained nothing is not repeated soon; that of a flow
//! which has all of its path is begun by the cruise ([`crate::cruise`]), which asks for nothing here.

use super::{Action, Rule, View};
use crate::estimate::{LossClass, RttStats};
use crate::params::Handbrake;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Delivery beyond the known capacity that means another path. Source: above two of Vivace's first steps, so that the
/// search for the edge never looks like it.
const GROWN: f64 = 1.25;
/// Delivery beyond the edge that means a wider path. Source: simulated, capacity that triples; with 1.03 it takes two
/// RTTs more, since steps near the edge are no larger. Less does the same.
const BEYOND_EDGE: f64 = 1.02;
/// The part of the slope that the old edge would have caused, below which the slope is certainly not that. Half: as far
/// from none.
const NO_SLOPE: f64 = 0.5;
/// The part of the tolerated queue above which the path may be full.
const NO_QUEUE: f64 = 0.25;
/// Standard errors of a slope that shows the edge, and of one that is none.
const EDGE_SIGMAS: f64 = 3.0;
const NONE_SIGMAS: f64 = 2.0;
/// The least rise of RTTs at the edge. Source: as in Vivace's utility.
const EDGE_MIN_RISE: Micros = Micros::new(100);
const EDGE_MIN_RISE_PKTS: f64 = 2.0;
/// A step of the rate, and the part of it by which the slope must grow at an edge of the flow's own. Source: simulated;
/// flows that are alone have 0.5 to 1, with more the first step beyond the capacity is missed.
const EDGE_STEP: f64 = 0.02;
const OWN_PART: f64 = 0.4;
/// How much of a higher edge stays with each new one. Source: simulated, 4 to 100 flows, whose shares come and go:
/// without it four flows on 10 packets had a Jain's index of .61 instead of .999.
const EDGE_KEPT: f64 = 0.98;
/// A restart that ends below this many times its first rate was in vain.
const IN_VAIN: f64 = 1.2;
/// Silence after a restart in vain, doubled each time up to the limit. Source: upstream design, not derived anew.
const PAUSE: Micros = Micros::new(3_000_000);
const PAUSE_MAX: Micros = Micros::new(60_000_000);

/// Restart on a path that grew.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestartRule {
    silent_until: Micros,
    /// What arrived when the path last pushed back; zero for unknown.
    known: Rate,
    /// First rate of the running restart; zero for none.
    from: Rate,
    pause: Micros,
    /// What arrived at the end of the path's capacity, where it was the flow's own; zero for unknown.
    edge: Rate,
    /// Sending rate and slope of the interval before.
    before: Option<(Rate, f64)>,
}

impl RestartRule {
    /// A fast start has ended at `rate`: that is what the path bears.
    pub fn started(&mut self, rate: Rate, now: Micros) {
        self.known = rate;
        self.edge = Rate::ZERO;
        let from = std::mem::take(&mut self.from);
        if from == Rate::ZERO {
            return;
        }
        if rate < from * IN_VAIN {
            self.pause = (self.pause * 2.0).clamp(PAUSE, PAUSE_MAX);
            self.silent_until = self.silent_until.max(now + self.pause);
        } else {
            self.pause = Micros::ZERO;
        }
    }

    /// The climber has long met no congestive loss: the path bears its rate, whatever it bore before.
    pub fn climbed(&mut self, rate: Rate) {
        self.known = rate;
    }

    /// A timeout ends a restart that may be running: it tells nothing of the path.
    pub fn timed_out(&mut self) {
        self.from = Rate::ZERO;
    }

    /// Looks for the edge: where a step of our own makes RTTs grow. A path that loses packets has none: with
    /// 3 % of loss ten flows that restart at once had a Jain's index of .86 instead of .97.
    fn seek_edge(&mut self, view: &View<'_>, rtt: &RttStats, arrived: Rate) {
        let before = self.before.replace((view.mi.send_rate, rtt.slope));
        if view.mi.lost_pkts > 0.0 {
            self.edge = Rate::ZERO;
            return;
        }
        let Some((rate, slope)) = before.filter(|_| rises(view, rtt)) else {
            return;
        };
        let step = view.mi.send_rate / rate - 1.0;
        if step > EDGE_STEP {
            let own = rtt.slope - slope > step * OWN_PART;
            self.edge = if own {
                arrived.max(self.edge * EDGE_KEPT)
            } else {
                Rate::ZERO
            };
        }
    }

    /// Whether more arrives than at the edge, although nothing comes to stand.
    fn is_beyond_edge(&self, view: &View<'_>, rtt: &RttStats, arrived: Rate) -> bool {
        let &View { mi, est, .. } = view;
        if self.edge == Rate::ZERO {
            return false;
        }
        let beyond = arrived / self.edge;
        let slope = rtt.slope + NONE_SIGMAS * rtt.slope_se;
        beyond > BEYOND_EDGE
            && mi.tells_spacing()
            && slope < (beyond - 1.0) * NO_SLOPE
            && est.mean_queue(rtt) < view.tolerated_queue() * NO_QUEUE
    }
}

/// Whether RTTs grow beyond their noise.
fn rises(view: &View<'_>, rtt: &RttStats) -> bool {
    let rise = Micros::from_secs(rtt.slope * view.mi.sent_for.as_secs());
    let smallest_rise = view.rate.time_for(EDGE_MIN_RISE_PKTS * view.pkt_bytes);
    rtt.slope > view.params.rtt_gradient_floor.get()
        && rtt.slope > EDGE_SIGMAS * rtt.slope_se
        && rise > smallest_rise.max(EDGE_MIN_RISE)
}

/// Whether the interval shows that the path is full.
fn pushes_back(view: &View<'_>, rtt: &RttStats) -> bool {
    let &View { mi, est, .. } = view;
    let lossy = est.class(mi) == LossClass::Congestive || est.excess_loss(mi) > 0.0;
    lossy || est.mean_queue(rtt) > view.tolerated_queue() * 0.5
}

impl Rule for RestartRule {
    fn reason(&self) -> Reason {
        Reason::Restart
    }

    fn check(&mut self, view: &View<'_>) -> Option<Action> {
        let &View {
            mi,
            est,
            rate,
            params,
            ..
        } = view;
        mi.judged_rate()?;
        let rtt = mi.rtt?;
        let arrived = mi.goodput.min(mi.send_rate);
        self.seek_edge(view, &rtt, arrived);
        if pushes_back(view, &rtt) {
            self.known = arrived;
            return None;
        }
        let off = params.no_handbrake.contains(Handbrake::Restart);
        if self.known == Rate::ZERO {
            self.known = arrived;
        }
        let at_once = self.is_beyond_edge(view, &rtt, arrived);
        if off || est.now() < self.silent_until || (arrived < self.known * GROWN && !at_once) {
            return None;
        }
        self.from = rate;
        Some(Action::Restart { at_once })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::report;
    use crate::handbrake::tests::{PKT, RATE, check, context, empty_path, interval};
    use crate::params::Params;

    const CAREFUL: Action = Action::Restart { at_once: false };

    /// After a fast start that ended at .7 of the rate.
    fn begun_low() -> RestartRule {
        let mut rule = RestartRule::default();
        rule.started(RATE * 0.7, Micros::ZERO);
        rule
    }

    /// 100 packets in 20 ms are 5 MB/s; the RTT tells whether the path pushes back.
    #[test]
    fn delivery_beyond_what_the_path_bore_starts_fast_again() {
        let params = Params::default();
        let (free, full) = (interval(RATE, 41_000, 1), interval(RATE, 70_000, 1));
        let mut rule = begun_low();
        assert_eq!(check(&mut rule, &params, &free), Some(CAREFUL));
        assert_eq!(
            check(&mut rule, &params, &full),
            None,
            "a queue tells what the path bears"
        );
        assert_eq!(
            check(&mut rule, &params, &free),
            None,
            "no more than it bore"
        );
        let off = Params {
            no_handbrake: "restart".parse().unwrap(),
            ..params
        };
        let mut rule = begun_low();
        assert_eq!(check(&mut rule, &off, &free), None);
    }

    #[test]
    fn what_a_climber_reached_is_what_the_path_bears() {
        let params = Params::default();
        let free = interval(RATE, 41_000, 1);
        let mut rule = begun_low();
        rule.climbed(RATE);
        assert_eq!(check(&mut rule, &params, &free), None);
        rule.climbed(RATE * 0.7);
        assert_eq!(check(&mut rule, &params, &free), Some(CAREFUL));
    }

    #[test]
    fn a_restart_in_vain_is_not_repeated_soon() {
        let params = Params::default();
        let free = interval(RATE, 41_000, 1);
        let mut rule = begun_low();
        assert_eq!(check(&mut rule, &params, &free), Some(CAREFUL));
        rule.started(RATE * 0.7, free.0.now());
        assert_eq!(check(&mut rule, &params, &free), None, "it pauses");
        rule.silent_until = Micros::ZERO;
        assert_eq!(check(&mut rule, &params, &free), Some(CAREFUL));
        rule.started(RATE * 3.0, free.0.now());
        assert_eq!(rule.pause, Micros::ZERO, "a success ends the pauses");
    }

    /// Intervals of 20 ms at these rates on a path of 40 ms that bears so much, one after the other; what the last
    /// calls for.
    fn after(rates: &[f64], share: f64, bears: f64, bears_last: f64) -> Option<Action> {
        let params = Params::default();
        let mut est = empty_path();
        let (mut rule, mut action) = (RestartRule::default(), None);
        for (at, &rate) in rates.iter().enumerate() {
            let last = at + 1 == rates.len();
            let rate = RATE * rate;
            let gap = rate.time_for(PKT).as_secs() * 1e6;
            let bears = RATE * if last { bears_last } else { bears };
            let slope = (rate / bears - 1.0).max(0.0) * share;
            let acks: Vec<_> = (0..100)
                .map(|i| i as f64 * gap)
                .map(|t| (t as u64, 40_000 + (slope * t) as u64, 0))
                .collect();
            let raw = report(33, 500_000 * (at as u64 + 1), &acks, (100.0 * gap) as u64);
            let mi = est.observe(&raw, context(Some(rate)));
            action = check(&mut rule, &params, &(est.clone(), mi));
        }
        action
    }

    #[test]
    fn what_arrives_beyond_the_edge_of_ones_own_path_restarts_at_once() {
        let at_once = Some(Action::Restart { at_once: true });
        let steps = [0.94, 1.06, 0.94, 1.06];
        assert_eq!(after(&steps, 1.0, 1.0, 3.0), at_once);
        assert_eq!(
            after(&steps, 1.0, 1.0, 1.0),
            None,
            "the edge is where it was"
        );
        assert_eq!(
            after(&[0.94, 1.0, 0.94, 1.06], 1.0, 1.1, 1.1),
            None,
            "no edge was seen"
        );
        assert_eq!(after(&steps, 0.25, 1.0, 3.0), None, "the path is shared");
        assert_eq!(
            after(&[1.14, 1.26, 0.94, 1.06, 0.94, 1.15], 1.0, 1.0, 3.0),
            at_once,
            "what arrived is the edge, not what was sent"
        );
    }
}
