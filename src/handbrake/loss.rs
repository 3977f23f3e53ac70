//! The loss handbrake: cut to what arrives as soon as loss exceeds what the path is known to lose.
//!
//! With many flows at a small buffer each flow's own share of the loss is small, so Vivace's equilibrium has 6 to 8 %
//! loss. An emergency is told from a trial's answer: a trial above the capacity loses its own excess.
//!
//! Who fills a small buffer shows in the trials: a flow alone loses in its higher trials, a flow among others in all of
//! them. So where the lower trials lose nearly as much as the higher ones, the loss is shared, and the flow climbs
//! additively like the others, however large it is: one that went on learning would keep what it has.
//!
//! A long buffer that is full stays so at the rate that arrives: what stands in it is let out at once.
//!
//! A flow that does not use its rate, at an empty queue, is cut only for twice the loss: it hardly made it.
//!
//! Limits: a buffer that holds less than 1.25 ms, or 2 % of the RTT, cannot be told from random loss by RTTs: what may
//! be done there is the controller's (`controller/small_buffer.rs`). In MOVE all trials have the same rate and compare
//! nothing.

use super::{Action, BELOW_GOODPUT, Rule, View};
use crate::estimate::LossClass;
use crate::params::Handbrake;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Packets an interval must have before its loss means anything, and losses before it calls for a cut.
pub const MIN_PKTS: f64 = 12.0;
const MIN_LOST: f64 = 2.0;
/// No single cut goes below this part of the rate.
const CUT_FLOOR: f64 = 0.5;
/// Nor does one that drains. Source: simulated, 13 crowds of 8 to 100 flows, six seeds: Jain's index .936, with 0.5
/// .932; if a queue of the tolerated length calls for a drain .923.
const DRAIN_FLOOR: f64 = 0.25;
/// Below so many packets per RTT, congestive loss is answered by additive climbing. Source: simulated at 10-packet
/// buffers, where 48 once left a faster one of six flows in charge.
const CLIMB_PKTS: f64 = 64.0;
/// Deviations of the loss floor beyond which losses are clearly not the path's.
const CLEAR_SIGMAS: f64 = 2.0;
/// How much more a flow that does not use its rate may lose.
const IDLE_FACTOR: f64 = 2.0;
/// Losses that are enough to compare trials by, how many are remembered, and lost in lower ones over lost in higher
/// ones. Source: simulated with 4 and 6 flows at 5 to 20 packets; a flow alone has 0 to 0.3.
const LOST_ENOUGH: f32 = 8.0;
const LOST_MEMORY: f32 = 32.0;
const BELOW_OVER_ABOVE: f32 = 0.6;
/// Intervals sent faster than this part of the central rate do not trip the test for congestive loss.
const ABOVE_CENTRE: f64 = 1.001;

/// Cut on loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossRule {
    silent_until: Micros,
    /// Packets lost at a full queue in trials below and above the central rate, fading.
    lost_below: f32,
    lost_above: f32,
}

impl LossRule {
    /// Be silent until this time, for effects that were already answered.
    pub fn hold_off(&mut self, until: Micros) {
        self.silent_until = self.silent_until.max(until);
    }

    /// Losses at a full queue, in a trial at this part of the central rate.
    fn note(&mut self, part: f64, lost_pkts: f64) {
        if part < 1.0 / ABOVE_CENTRE {
            self.lost_below += lost_pkts as f32;
        } else if part > ABOVE_CENTRE {
            self.lost_above += lost_pkts as f32;
        }
        if self.lost_below + self.lost_above > LOST_MEMORY {
            self.lost_below /= 2.0;
            self.lost_above /= 2.0;
        }
    }

    /// Whether the queue is full whether we send more or less: others fill it.
    fn others_lose(&self) -> bool {
        self.lost_below + self.lost_above >= LOST_ENOUGH
            && self.lost_below > self.lost_above * BELOW_OVER_ABOVE
    }
}

impl Rule for LossRule {
    fn reason(&self) -> Reason {
        Reason::LossCut
    }

    fn check(&mut self, view: &View<'_>) -> Option<Action> {
        let &View {
            mi,
            est,
            rate,
            params,
            ..
        } = view;
        let asked = mi.asked?;
        let excess = est.excess_loss(mi);
        let congestive = est.class(mi) == LossClass::Congestive;
        if congestive {
            self.note(asked / rate, mi.lost_pkts - est.loss_floor() * mi.pkts());
        }
        let off = params.no_handbrake.contains(Handbrake::Loss);
        if off || mi.pkts() < MIN_PKTS || mi.lost_pkts < MIN_LOST || est.now() < self.silent_until {
            return None;
        }
        // The losses of a flow that does not use its rate are hardly its own.
        let idle = view.is_idle();
        let heavy = params.hb_loss.get() * if idle { IDLE_FACTOR } else { 1.0 };
        // A trial above the capacity loses its own excess at a small buffer: that is the trial's answer, no emergency.
        let own_excess = (asked / rate - 1.0).max(0.0);
        let is_heavy = heavy > 0.0 && excess > heavy + own_excess;
        let full = params.hb_loss_congestive.get();
        let is_full =
            full > 0.0 && !idle && congestive && excess > full && asked <= rate * ABOVE_CENTRE;
        let clear = congestive && est.loss_beyond(mi, CLEAR_SIGMAS) > 0.0;
        let shares = clear && !idle && self.others_lose();
        if !is_heavy && !is_full && !shares {
            return None;
        }
        self.silent_until = est.now() + est.srtt() * params.hb_loss_holdoff;
        // Where nothing tells what arrived, the flow only repeats what it lost.
        let told = mi.goodput > Rate::ZERO;
        let cut = if congestive || !told {
            rate * params.hb_loss_cut.get()
        } else {
            rate
        };
        // What would have arrived but for the path's own loss.
        let arrived = mi.goodput * (BELOW_GOODPUT / (1.0 - est.loss_floor()));
        let target = if told { cut.min(arrived) } else { cut };
        // Whoever yields does so before a queue stands that high.
        let drains = view.stands_high();
        let target = target.max(rate * if drains { DRAIN_FLOOR } else { CUT_FLOOR });
        let window_pkts = rate.bytes_in(est.rtt_min()) / view.pkt_bytes;
        let shared = shares || (clear && window_pkts < CLIMB_PKTS);
        if shared {
            (self.lost_below, self.lost_above) = (0.0, 0.0);
        }
        Some(if shared {
            Action::Climb(target)
        } else if drains {
            Action::Drain(target)
        } else {
            Action::Cut(target)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{RATE, check, interval};
    use crate::params::Params;

    #[test]
    fn a_flow_that_only_repeats_is_cut() {
        let (est, mut mi) = interval(RATE, 41_000, 4);
        mi.goodput = Rate::ZERO;
        let params = Params::default();
        let cut = check(&mut LossRule::default(), &params, &(est, mi));
        let Some(Action::Cut(rate)) = cut else {
            panic!("{cut:?}")
        };
        assert!(rate < RATE * 0.9, "{rate}");
    }

    #[test]
    fn loss_classes_have_their_thresholds() {
        let params = Params::default();
        let acts = |asked, rtt, lost_every| {
            check(
                &mut LossRule::default(),
                &params,
                &interval(asked, rtt, lost_every),
            )
            .is_some()
        };
        assert!(
            acts(RATE, 41_000, 10),
            "10 % at an empty queue, not learnt yet"
        );
        assert!(!acts(RATE, 41_000, 25), "4 % at an empty queue");
        assert!(acts(RATE, 79_000, 25), "4 % at a full queue");
        assert!(!acts(RATE, 79_000, 60), "2 of 102 at a full queue");
        assert!(
            !acts(RATE * 1.05, 79_000, 25),
            "4 % at a full queue in the higher trial"
        );
        assert!(
            !acts(RATE * 1.05, 79_000, 11),
            "a trial 5 % up may lose 5 % more"
        );
        assert!(acts(RATE * 1.05, 79_000, 5), "but not 17 %");
    }

    #[test]
    fn losses_that_trials_do_not_change_are_shared() {
        let params = Params::default();
        let full = |part: f64, lost_every| interval(RATE * part, 79_000, lost_every);
        let judge =
            |rule: &mut LossRule, trial: &(crate::estimate::Estimator, crate::estimate::Mi)| {
                rule.silent_until = Micros::ZERO;
                check(rule, &params, trial)
            };
        // 2 of 100 packets each: below every threshold.
        let mut shared = LossRule::default();
        let actions: Vec<_> = [1.03, 0.97, 0.97, 1.03, 1.03, 0.97]
            .into_iter()
            .filter_map(|part| judge(&mut shared, &full(part, 60)))
            .collect();
        assert!(matches!(actions[..], [Action::Climb(_)]), "{actions:?}");
        let mut alone = LossRule::default();
        for _ in 0..20 {
            assert_eq!(judge(&mut alone, &full(1.03, 60)), None);
            assert_eq!(judge(&mut alone, &full(0.97, 1)), None);
        }
    }

    #[test]
    fn a_loss_cut_aims_below_what_arrives_and_then_holds_off() {
        let (params, mut rule) = (Params::default(), LossRule::default());
        let full = interval(RATE, 79_000, 10);
        assert_eq!(
            check(&mut rule, &params, &full),
            Some(Action::Drain(RATE * 0.85)),
            "a long buffer is full"
        );
        let short = interval(RATE, 48_000, 10);
        let cut = check(&mut LossRule::default(), &params, &short);
        assert!(matches!(cut, Some(Action::Cut(_))), "a short one: {cut:?}");
        assert_eq!(check(&mut rule, &params, &full), None, "held off");
        let mut rule = LossRule::default();
        rule.hold_off(Micros::new(10_000_000));
        assert_eq!(check(&mut rule, &params, &full), None, "told to hold off");
        let off = Params {
            no_handbrake: "loss".parse().unwrap(),
            ..params.clone()
        };
        assert_eq!(check(&mut LossRule::default(), &off, &full), None);
        let random = interval(RATE, 41_000, 4);
        let Some(Action::Cut(rate)) = check(&mut LossRule::default(), &params, &random) else {
            panic!()
        };
        let arrived = random.1.goodput * 0.95;
        assert!(
            rate >= RATE * 0.5 && rate <= arrived.max(RATE * 0.5),
            "{rate}"
        );
    }
}
