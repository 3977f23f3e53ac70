//! Handbrakes: rules beside the utility function, for what learning by trial is too slow or too weak to see.
//!
//! - **Loss.** With many flows at a small buffer each flow's own share of the loss is small, so Vivace's equilibrium
//!   has 6 to 8 % loss. The rule cuts to what arrives as soon as loss exceeds what the path is known to lose.
//! - **Queue.** Flows that probe one after the other build a queue that none of them sees growing: its slope is zero.
//!   If even the *smallest* RTT of an interval says that a queue stands, cut and let it drain.
//! - **Ceiling.** Where nothing pushes back (an application limit, a receiver's window) utility rewards any rate. It
//!   stays within a factor of the best goodput seen.
//!
//! Each rule is one small struct with its own hold-off, since a cut needs 2 RTTs until its effect is reported. Rules know
//! nothing of Vivace, and Vivace sees a rule's action only as a new central rate around which it probes.
//!
//! Not there yet: a mode to compete with flows that keep the queue full whatever we do (the queue rule yields to them),
//! and a restart of the fast start when losses meet a path whose queue was never seen.

use crate::estimate::{Estimator, LossClass, Mi};
use crate::params::{Handbrake, Params};
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Losses and packets an interval must have before its loss means anything.
const LOSS_MIN_LOST: f64 = 2.0;
const LOSS_MIN_PKTS: f64 = 12.0;
/// No single loss cut goes below this part of the rate, no queue cut below that.
const LOSS_CUT_FLOOR: f64 = 0.5;
const QUEUE_CUT_FLOOR: f64 = 0.6;
/// Where a cut aims, as a part of what arrived.
const BELOW_GOODPUT: f64 = 0.95;
/// Intervals sent faster than this part of the central rate do not trip the test for congestive loss.
const ABOVE_CENTRE: f64 = 1.001;
/// A standing queue of so many packets is always tolerated. Source: earlier simulation, not derived anew.
const QUEUE_MIN_PKTS: f64 = 4.0;
/// A standing queue of so many of our own bursts is always tolerated. Source: measured at 150 Mbit/s, 3 ms.
const QUEUE_MIN_BURSTS: f64 = 2.5;
/// RTTs until the queue rule may act again: a drain and a few intervals.
const QUEUE_HOLDOFF_RTTS: f64 = 8.0;
/// The ceiling over the best goodput. Source: earlier simulation, not derived anew.
const CEILING: f64 = 1.5;
/// The kernel sends bursts of a 1024th of the rate, up to 64 kB. Source: Linux `tcp_tso_autosize`.
const BURSTS_PER_SEC: f64 = 1024.0;
const BURST_MAX_BYTES: f64 = 65_536.0;

/// What a rule sees of one report.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The interval; of the current plan, with an asked rate.
    pub mi: &'a Mi,
    /// What is remembered, the interval included.
    pub est: &'a Estimator,
    /// The central rate.
    pub rate: Rate,
    /// Bytes per packet as the pacer counts them.
    pub pkt_bytes: f64,
    /// The tunables.
    pub params: &'a Params,
}

/// What a rule wants done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Go on at a lower rate.
    Cut(Rate),
    /// Go on at a lower rate, after the queue was let out.
    Drain(Rate),
}

/// A rule. It is asked once per interval of the current plan that was sent at an asked rate, outside startup and drain.
pub trait Rule {
    /// The reason that its actions carry.
    fn reason(&self) -> Reason;
    /// The action, if one is due; it is then carried out.
    fn check(&mut self, view: &View<'_>) -> Option<Action>;
    /// Be silent until this time, for effects that were already answered.
    fn hold_off(&mut self, until: Micros);
}

/// Time that one burst of the kernel's segmentation takes at `rate`; a packet's time where bursts are single packets.
#[must_use]
pub fn burst_time(rate: Rate, pkt_bytes: f64) -> Micros {
    let bytes = (rate.bytes_per_sec() / BURSTS_PER_SEC).min(BURST_MAX_BYTES);
    rate.time_for(if bytes < 2.0 * pkt_bytes {
        pkt_bytes
    } else {
        bytes
    })
}

/// Cut on loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossRule {
    silent_until: Micros,
}

impl Rule for LossRule {
    fn reason(&self) -> Reason {
        Reason::LossCut
    }

    fn hold_off(&mut self, until: Micros) {
        self.silent_until = self.silent_until.max(until);
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
        if off
            || mi.pkts() < LOSS_MIN_PKTS
            || mi.lost_pkts < LOSS_MIN_LOST
            || est.now() < self.silent_until
        {
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
        Some(Action::Cut(target.max(rate * LOSS_CUT_FLOOR)))
    }
}

/// Cut and drain on a standing queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueRule {
    silent_until: Micros,
}

impl QueueRule {
    /// The standing queue that is tolerated.
    fn tolerated(view: &View<'_>) -> Micros {
        let params = view.params;
        let bottleneck = view.est.goodput_max().unwrap_or(view.rate);
        (view.est.rtt_min() * params.hb_queue.get())
            .max(params.hb_queue_min)
            .max(bottleneck.time_for(QUEUE_MIN_PKTS * view.pkt_bytes))
            .max(burst_time(view.rate, view.pkt_bytes) * QUEUE_MIN_BURSTS)
    }
}

impl Rule for QueueRule {
    fn reason(&self) -> Reason {
        Reason::QueueCut
    }

    fn hold_off(&mut self, until: Micros) {
        self.silent_until = self.silent_until.max(until);
    }

    fn check(&mut self, view: &View<'_>) -> Option<Action> {
        let &View {
            mi,
            est,
            rate,
            params,
            ..
        } = view;
        let standing = mi.rtt?.min - est.rtt_min();
        let off = params.no_handbrake.contains(Handbrake::Queue) || params.hb_queue.get() == 0.0;
        if off || est.now() < self.silent_until || standing <= Self::tolerated(view) {
            return None;
        }
        self.silent_until = est.now() + est.srtt() * QUEUE_HOLDOFF_RTTS;
        let cut = rate * params.hb_queue_cut.get();
        let target = if mi.limited || mi.goodput == Rate::ZERO {
            cut
        } else {
            cut.min(mi.goodput * BELOW_GOODPUT)
        };
        Some(Action::Drain(target.max(rate * QUEUE_CUT_FLOOR)))
    }
}

/// A bound on the central rate rather than an event: it holds for every step, whoever takes it.
#[must_use]
pub fn ceiling(est: &Estimator, params: &Params) -> Rate {
    if params.no_handbrake.contains(Handbrake::Ceiling) {
        return Rate::MAX;
    }
    est.goodput_max().map_or(Rate::MAX, |best| best * CEILING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::SlotContext;
    use crate::estimate::tests::report;

    const PKT: f64 = 1000.0;
    const RATE: Rate = Rate::from_bytes_per_sec(5e6);

    /// An estimator that saw RTTs of 40 to 80 ms, and an interval of 100 packets sent 0.2 ms apart at `asked`.
    fn interval(asked: Rate, rtt: u64, lost_every: u64) -> (Estimator, Mi) {
        let mut est = Estimator::new(&Params::default());
        let context = |asked| SlotContext {
            asked,
            length: Micros::new(20_000),
            mss_bytes: PKT,
        };
        est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
        est.observe(&report(9, 1, &[(0, 80_000, 0); 8], 1000), context(None));
        let acks: Vec<_> = (0..100)
            .map(|i| (i * 200, rtt, u64::from(i % lost_every == 1)))
            .collect();
        let mi = est.observe(&report(33, 500_000, &acks, 20_000), context(Some(asked)));
        (est, mi)
    }

    fn check(rule: &mut impl Rule, params: &Params, (est, mi): &(Estimator, Mi)) -> Option<Action> {
        rule.check(&View {
            mi,
            est,
            rate: RATE,
            pkt_bytes: PKT,
            params,
        })
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

    #[test]
    fn a_standing_queue_is_drained_and_a_passing_one_is_not() {
        let params = Params::default();
        let act = |rtt| {
            check(
                &mut QueueRule::default(),
                &params,
                &interval(RATE, rtt, 1000),
            )
        };
        assert_eq!(
            act(49_000),
            None,
            "a quarter of the smallest RTT is tolerated"
        );
        let Some(Action::Drain(rate)) = act(52_000) else {
            panic!()
        };
        assert!(rate <= RATE * 0.93 && rate >= RATE * 0.6, "{rate}");
        let mut passing = interval(RATE, 70_000, 1000);
        if let Some(rtt) = &mut passing.1.rtt {
            rtt.min = Micros::new(41_000);
        }
        assert_eq!(check(&mut QueueRule::default(), &params, &passing), None);
        let mut rule = QueueRule::default();
        assert!(check(&mut rule, &params, &interval(RATE, 70_000, 1000)).is_some());
        assert_eq!(
            check(&mut rule, &params, &interval(RATE, 70_000, 1000)),
            None,
            "held off"
        );
    }

    #[test]
    fn short_paths_tolerate_their_own_bursts() {
        // 150 Mbit/s over 3 ms: 1 ms bursts.
        let rate = Rate::from_mbit(150.0);
        assert!((burst_time(rate, 1448.0).us() as i64 - 977).abs() < 2);
        assert!(
            (burst_time(Rate::from_mbit(5.0), 1448.0).us() as i64 - 2317).abs() < 2,
            "single packets"
        );
        assert!(burst_time(Rate::from_mbit(10_000.0), 1448.0) < Micros::new(60));
    }

    #[test]
    fn the_ceiling_follows_the_best_goodput() {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let acks: Vec<_> = (0..250).map(|i| (i * 200, 41_000, 0)).collect();
        let context = SlotContext {
            asked: Some(RATE),
            length: Micros::new(50_000),
            mss_bytes: PKT,
        };
        let mi = est.observe(&report(33, 0, &acks, 50_000), context);
        assert_eq!(ceiling(&est, &params), mi.goodput * 1.5);
        assert_eq!(ceiling(&Estimator::new(&params), &params), Rate::MAX);
        let off = Params {
            no_handbrake: "ceiling".parse().unwrap(),
            ..params
        };
        assert_eq!(ceiling(&est, &off), Rate::MAX);
    }
}
