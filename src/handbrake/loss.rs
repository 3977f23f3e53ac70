//! The loss handbrake: cut to what arrives as soon as loss exceeds what the path is known to lose.
//!
//! With many flows at a small buffer each flow's own share of the loss is small, so Vivace's equilibrium has 6 to 8 %
//! loss. An emergency is told from a trial's answer: a trial above the capacity loses its own excess.

use super::{Action, BELOW_GOODPUT, Rule, View};
use crate::estimate::LossClass;
use crate::params::Handbrake;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Losses and packets an interval must have before its loss means anything.
const MIN_LOST: f64 = 2.0;
const MIN_PKTS: f64 = 12.0;
/// No single cut goes below this part of the rate.
const CUT_FLOOR: f64 = 0.5;
/// Below so many packets per RTT, congestive loss is answered by additive climbing. Source: simulated at 10-packet
/// buffers, where 48 once left a faster one of six flows in charge.
const CLIMB_PKTS: f64 = 64.0;
/// Deviations of the loss floor beyond which losses are clearly not the path's.
const CLEAR_SIGMAS: f64 = 2.0;
/// Intervals sent faster than this part of the central rate do not trip the test for congestive loss.
const ABOVE_CENTRE: f64 = 1.001;

/// Cut on loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossRule {
    silent_until: Micros,
}

impl LossRule {
    /// Be silent until this time, for effects that were already answered.
    pub fn hold_off(&mut self, until: Micros) {
        self.silent_until = self.silent_until.max(until);
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
        let off = params.no_handbrake.contains(Handbrake::Loss);
        if off || mi.pkts() < MIN_PKTS || mi.lost_pkts < MIN_LOST || est.now() < self.silent_until {
            return None;
        }
        let excess = est.excess_loss(mi);
        let congestive = est.class(mi) == LossClass::Congestive;
        let heavy = params.hb_loss.get();
        // A trial above the capacity loses its own excess at a small buffer: that is the trial's answer, no emergency.
        let own_excess = (asked / rate - 1.0).max(0.0);
        let is_heavy = heavy > 0.0 && excess > heavy + own_excess;
        let full = params.hb_loss_congestive.get();
        let is_full = full > 0.0 && congestive && excess > full && asked <= rate * ABOVE_CENTRE;
        if !is_heavy && !is_full {
            return None;
        }
        self.silent_until = est.now() + est.srtt() * params.hb_loss_holdoff;
        let cut = if congestive {
            rate * params.hb_loss_cut.get()
        } else {
            rate
        };
        // What would have arrived but for the path's own loss.
        let arrived = mi.goodput * (BELOW_GOODPUT / (1.0 - est.loss_floor()));
        let target = if mi.goodput > Rate::ZERO {
            cut.min(arrived)
        } else {
            cut
        };
        let target = target.max(rate * CUT_FLOOR);
        let window_pkts = rate.bytes_in(est.rtt_min()) / view.pkt_bytes;
        let shared =
            congestive && est.loss_beyond(mi, CLEAR_SIGMAS) > 0.0 && window_pkts < CLIMB_PKTS;
        Some(if shared {
            Action::Climb(target)
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
    fn a_loss_cut_aims_below_what_arrives_and_then_holds_off() {
        let (params, mut rule) = (Params::default(), LossRule::default());
        let full = interval(RATE, 79_000, 10);
        assert_eq!(
            check(&mut rule, &params, &full),
            Some(Action::Cut(RATE * 0.85))
        );
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
