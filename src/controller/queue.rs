//! Drains, what they achieve, and competitions: how the queue is answered, and who holds it.

use super::{Controller, Phase};
use crate::aimd::Aimd;
use crate::compete::{Competitor, End};
use crate::estimate::Mi;
use crate::handbrake::loss::MIN_PKTS;
use crate::handbrake::{CompeteRule, Effect, View};
use crate::params::Handbrake;
use crate::plan::{Decision, Reason};
use crate::startup::MIN_SAMPLES;
use crate::units::{Micros, Rate};
use rand::Rng;

/// Length of a drain, and its limit while more than a part of the smallest RTT still stands and its RTT is not flat.
const DRAIN_RTTS: f64 = 1.5;
const DRAIN_MAX_RTTS: f64 = 4.0;
const DRAIN_DONE_RTTS: f64 = 0.25;
/// Loss of a drain's interval that shows others filling the path. Source: simulated, 1,000 connections that start
/// together; a fifth does the same. Or that a bucket of tokens is empty, if less than this part of the rate passes:
/// of 60 shaped paths (`shaped.toml`) one flow loses 2.1 % for 3.8, several 4.9 for 7.2. With .4 and .5 flows at ten
/// packets begin with too little (`shallow6-50m-40ms-10p-4`: Jain's index .82 for .96), with .7 lossy paths are
/// used by .912 for .923.
const CROWDED_LOSS: f64 = 0.3;
const PASSES_LESS: f64 = 0.35;

impl Controller {
    pub(super) fn on_drain(&mut self, mi: &Mi, since: Micros, from: Rate) -> Decision {
        let spent = self.est.now() - since;
        let srtt = self.est.srtt().max(self.params.mi_min);
        if self.is_crowded(mi) {
            self.rate = self.bounded(self.rate.min(mi.goodput));
        }
        if let Some(passes) = self.passes_less(mi) {
            self.rules.path.learn(None);
            self.rate = self.bounded(passes);
        }
        let view = self.view(mi);
        // An RTT that is flat with less in flight than fits the path is what the drain comes down to.
        let bottom = mi.asked.is_some() && CompeteRule::is_flat(&view);
        let stands = view.standing_queue() > self.est.rtt_min() * DRAIN_DONE_RTTS && !bottom;
        if spent < srtt * DRAIN_RTTS || (stands && spent < srtt * DRAIN_MAX_RTTS) {
            return self.wait(Reason::Wait);
        }
        let among_others = self.is_among_others();
        let view = View::new(mi, &self.est, from, self.mss_bytes, &self.params);
        let effect = self.rules.drained(&view, among_others);
        match self.on_effect(effect) {
            Some(decision) => decision,
            None => {
                let command = self.settle();
                self.decide(self.settled_reason(), Some(command))
            }
        }
    }

    /// Whether a drain loses heavily at its own, lower rate. Then others have come since the rate to go on at was
    /// measured, and no more than what arrives now may be sent after it.
    fn is_crowded(&self, mi: &Mi) -> bool {
        let tells = mi.asked.is_some() && mi.goodput > Rate::ZERO && mi.samples >= MIN_SAMPLES;
        tells && self.loses_heavily(mi)
    }

    fn loses_heavily(&self, mi: &Mi) -> bool {
        !mi.stalled && mi.pkts() >= MIN_PKTS && self.est.excess_loss(mi) > CROWDED_LOSS
    }

    /// What passes of an interval that loses heavily, if that is far less than the flow goes on at: what arrived until
    /// then used up the tokens of a shaper or a policer, and tells nothing of what the path carries.
    fn passes_less(&self, mi: &Mi) -> Option<Rate> {
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let passed = Rate::from_bytes_in(mi.delivered_pkts * pkt_bytes, self.est.reported_after());
        let floor = Aimd::floor(self.est.srtt(), pkt_bytes);
        let passes = passed.max(mi.goodput).max(floor);
        (passes < self.rate * PASSES_LESS && self.loses_heavily(mi)).then_some(passes)
    }

    /// An interval that loses so much that hardly anything arrives but repetitions, which have no RTT: no part would
    /// judge it, and the flow would repeat what it loses for ever. It climbs from what passes, on a path of which
    /// nothing is known. Start and drain see to it themselves.
    pub(super) fn on_repeats(&mut self, mi: &Mi) -> Option<Decision> {
        let begins = matches!(self.phase, Phase::Startup(_) | Phase::Drain { .. });
        let off = self.params.no_handbrake.contains(Handbrake::Loss) || !self.params.is_pk3c();
        if begins || off || mi.samples >= MIN_SAMPLES {
            return None;
        }
        self.rate = self.bounded(self.passes_less(mi)?);
        self.rules.path.learn(None);
        let command = self.climb_on(Aimd::after_loss(self.est.now(), self.est.srtt()));
        Some(self.decide(Reason::LossCut, Some(command)))
    }

    /// Whether others are known to have a part of the path: it carries more than arrived lately.
    pub(super) fn is_among_others(&self) -> bool {
        let had = self.est.goodput_max().unwrap_or(self.rate);
        self.rules.path.carries_more_than(had)
    }

    /// What a queue action achieved.
    pub(super) fn on_effect(&mut self, effect: Effect) -> Option<Decision> {
        match effect {
            Effect::Fine => None,
            Effect::Shared => {
                let command = self.climb_on(Aimd::after_loss(self.est.now(), self.est.srtt()));
                Some(self.decide(Reason::ClimbStart, Some(command)))
            }
            Effect::LongerPath(rtt) => {
                self.est.adopt_rtt_min(rtt);
                let command = self.settle();
                Some(self.decide(Reason::LongerPath, Some(command)))
            }
            Effect::Competitor {
                until,
                from,
                window_pkts,
            } => {
                let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
                let window_pkts = window_pkts
                    .unwrap_or_else(|| from.max(self.rate).bytes_in(self.est.srtt()) / pkt_bytes);
                let competitor = Competitor::beside_cubic(window_pkts, &self.est, until);
                self.rate = self.bounded(competitor.rate(&self.est, pkt_bytes));
                let command = self.compete(competitor);
                Some(self.decide(Reason::CompeteStart, Some(command)))
            }
        }
    }

    /// Looks whether BBR shares the path, and begins to follow its model, unless the flow does.
    pub(super) fn meet_bbr(&mut self, mi: &Mi) -> Option<Decision> {
        if !self.params.is_pk3c() {
            return None;
        }
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        let until = self.rules.compete.note_bbr(&view)?;
        if let Phase::Compete(competitor) = &mut self.phase
            && competitor.follows_bbr()
        {
            competitor.go_on(until);
            return None;
        }
        let turn = self.rng.random();
        let command = self.compete(Competitor::beside_bbr(self.rate, turn, until));
        Some(self.decide(Reason::CompeteBbr, Some(command)))
    }

    pub(super) fn on_competition(&mut self, mi: &Mi) -> Decision {
        if let Some(decision) = self.meet_bbr(mi) {
            return decision;
        }
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        let Phase::Compete(competitor) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let (rate, reason) = competitor.on_mi(&view, self.rules.path.carries());
        let judge = &mut self.rules.compete;
        let beside_bbr = competitor.follows_bbr();
        let alone = judge.is_alone(&view) && !beside_bbr;
        let end = if !beside_bbr && judge.is_crowd(&view) {
            Some(End::OthersYield(1.0))
        } else {
            competitor.end(&view)
        };
        let end = end.filter(|_| !alone);
        let mut kept = 1.0;
        match end {
            Some(End::Time) if beside_bbr => judge.yielded_to(),
            Some(End::Time) => {
                let window_pkts = competitor.window_pkts(&self.est, view.pkt_bytes);
                judge.competed(window_pkts, view.est.now(), &self.params);
            }
            Some(End::OthersYield(part)) => {
                judge.yielded_to();
                kept = part;
            }
            None => {}
        }
        let rate = self.bounded(rate * kept);
        let from = std::mem::replace(&mut self.rate, rate);
        if alone {
            let command = self.settle();
            return self.decide(Reason::CompeteEnd, Some(command));
        }
        if end.is_some() {
            let command = self.drain(from);
            return self.decide(Reason::CompeteEnd, Some(command));
        }
        if beside_bbr {
            // The same rate with another gain.
            let command = self.steered();
            return self.decide(reason, Some(command));
        }
        self.rate = from;
        self.steer(rate, reason)
    }
}
