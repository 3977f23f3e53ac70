//! Handbrakes: rules beside the utility function, for what learning by trial is too slow or too weak to see.
//!
//! | rule | sees | does |
//! |---|---|---|
//! | [`loss`] | loss beyond what the path is known to lose | cuts to what arrives, and drains a queue that stands; hands small windows to the climber |
//! | [`queue`] | a queue that stands, though its slope is zero | cuts, and drains it |
//! | [`compete`] | queue actions that have no effect | tells a longer path from a competitor, and competes with the latter |
//! | [`restart`] | delivery far beyond what the path last bore, without a queue | starts fast again |
//! | [`mod@ceiling`] | nothing that pushes back | bounds the rate by the best goodput |
//! | [`mod@overshoot`] | a step up that only filled the queue | goes back below what arrived, not just to the last rate |
//!
//! The first four are small structs with a hold-off of their own, since a cut needs 2 RTTs until its effect is
//! reported. Rules know nothing of Vivace, and Vivace sees a rule's action only as a new central rate around which it
//! probes. The first rule that wants to act does; the order is that of the table. The last two bound where Vivace goes,
//! and what follows an overshoot tells whose path it is ([`sharing`]).

pub mod ceiling;
pub mod compete;
pub mod loss;
pub mod overshoot;
pub mod queue;
pub mod restart;
pub mod shaper;
pub mod sharing;

pub use ceiling::ceiling;
pub use compete::{CompeteRule, Effect};
pub use loss::LossRule;
pub use overshoot::overshoot;
pub use queue::QueueRule;
pub use restart::RestartRule;
pub use shaper::Shaper;
pub use sharing::Sharing;

use crate::cruise::OwnPath;
use crate::estimate::{Estimator, Mi};
use crate::params::Params;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Where a cut aims, as a part of what arrived.
const BELOW_GOODPUT: f64 = 0.95;
/// A standing queue of so many packets is always tolerated. Source: earlier simulation, not derived anew.
const QUEUE_MIN_PKTS: f64 = 4.0;
/// A standing queue of so many of our own bursts is always tolerated. Source: measured at 150 Mbit/s, 3 ms; simulated,
/// 40 paths below 9 ms: Jain's index .979, with 2.5 .947, since climbers yield sooner.
const QUEUE_MIN_BURSTS: f64 = 1.5;
/// A queue of so many times the tolerated part of an RTT stands high. Source: simulated beside Cubic, and with 30 to
/// 100 flows of our own, whose queue stands between once and twice what they tolerate.
const STANDS_HIGH: f64 = 3.0;
/// A flow that sends less than this part of its rate does not use it.
const IDLE: f64 = 0.85;
/// The kernel sends bursts of a 1024th of the rate, up to 64 kB. Source: Linux `tcp_tso_autosize`.
const BURSTS_PER_SEC: f64 = 1024.0;
const BURST_MAX_BYTES: f64 = 65_536.0;

/// A deviation of RTTs beyond this part of the tolerated queue is jitter, and counts so many times more. Where no
/// packet overtakes another, all wait for the latest, and even the smallest RTT is far above the path's; but the queue
/// of a crowd makes RTTs deviate, too. Source: simulated on 72 paths with jitter of .2 to 1.25 of the RTT, mean use:
/// .73 without, .81 with 3 beyond a quarter, .83 with 4 beyond a fifth, and with 2.5 deviations of any size, with which
/// 30 flows that start take each other for competitors.
const JITTER_PART: f64 = 0.2;
const JITTER_GAIN: f64 = 4.0;
/// Deviations by which RTTs may differ and be the same. Source: the same paths, mean use: .80 with none, .83 with
/// these.
const SAME_SIGMAS: f64 = 2.5;

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

impl<'a> View<'a> {
    /// The view of a flow at `rate` whose segments have this size.
    #[must_use]
    pub fn new(
        mi: &'a Mi,
        est: &'a Estimator,
        rate: Rate,
        mss_bytes: f64,
        params: &'a Params,
    ) -> Self {
        Self {
            mi,
            est,
            rate,
            pkt_bytes: est.pkt_bytes(mss_bytes),
            params,
        }
    }

    /// Packets per RTT at the present rate.
    #[must_use]
    pub fn window_pkts(&self) -> f64 {
        self.rate.bytes_in(self.est.srtt()) / self.pkt_bytes
    }

    /// The queue that stood through the whole interval; zero without RTT samples.
    #[must_use]
    pub fn standing_queue(&self) -> Micros {
        let shortest = self.mi.rtt.map_or(Micros::ZERO, |rtt| rtt.min);
        shortest - self.est.rtt_floor()
    }

    /// How far the RTTs deviate from a line.
    fn deviation(&self) -> Micros {
        self.mi.rtt.map_or(Micros::ZERO, |rtt| rtt.deviation)
    }

    /// How far jitter may lift even the smallest RTT of the interval.
    #[must_use]
    pub fn jitter(&self) -> Micros {
        let deviation = self.deviation();
        let beyond = deviation - self.tolerated_queue() * JITTER_PART;
        deviation + beyond * JITTER_GAIN
    }

    /// How far jitter alone may part two smallest RTTs.
    #[must_use]
    pub fn scatter(&self) -> Micros {
        self.deviation() * SAME_SIGMAS
    }

    /// Whether much less was sent than the rate allows, though no queue kept it back: the application is the limit.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let asked = self.mi.asked.unwrap_or(Rate::ZERO);
        self.mi.send_rate < asked * IDLE && self.standing_queue() <= self.tolerated_queue()
    }

    /// Whether a queue stands that none of those who yield would leave.
    #[must_use]
    pub fn stands_high(&self) -> bool {
        let part = self.params.hb_queue.get();
        let tolerated = if part > 0.0 {
            self.est.rtt_min() * part
        } else {
            self.tolerated_queue()
        };
        self.standing_queue() > tolerated * STANDS_HIGH
    }

    /// The standing queue that is tolerated.
    #[must_use]
    pub fn tolerated_queue(&self) -> Micros {
        let bottleneck = self.est.goodput_max().unwrap_or(self.rate);
        (self.est.rtt_min() * self.params.hb_queue.get())
            .max(self.params.hb_queue_min)
            .max(bottleneck.time_for(QUEUE_MIN_PKTS * self.pkt_bytes))
            .max(burst_time(self.rate, self.pkt_bytes) * QUEUE_MIN_BURSTS)
    }
}

/// What a rule wants done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Go on at a lower rate.
    Cut(Rate),
    /// Go on at a lower rate, and climb additively until losses are rare.
    Climb(Rate),
    /// Go on at a lower rate, after the queue was let out.
    Drain(Rate),
    /// Start fast from the present rate.
    Restart {
        /// The path is known to be wider: grow with the first plan.
        at_once: bool,
    },
}

/// A rule. It is asked once per interval of the current plan that was sent at an asked rate: in VIVACE, and for a queue
/// in CRUISE, too.
pub trait Rule {
    /// The reason that its actions carry.
    fn reason(&self) -> Reason;
    /// The action, if one is due; it is then carried out.
    fn check(&mut self, view: &View<'_>) -> Option<Action>;
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

/// The rules of one flow.
#[derive(Clone, Debug, Default)]
pub struct Handbrakes {
    /// Cuts on loss.
    pub loss: LossRule,
    /// Drains a standing queue.
    pub queue: QueueRule,
    /// Starts fast again.
    pub restart: RestartRule,
    /// Judges what drains achieve.
    pub compete: CompeteRule,
    /// Knows whose path it is.
    pub sharing: Sharing,
    /// Knows what the path carries.
    pub path: OwnPath,
    /// Knows how fast the path's shaper is.
    pub shaper: Shaper,
}

impl Handbrakes {
    /// A fast start has ended at `rate`. Its losses and its queue were answered by that, and are reported for a while.
    pub fn started(&mut self, rate: Rate, now: Micros, losses_for: Micros, queue_for: Micros) {
        self.loss.hold_off(now + losses_for);
        self.queue.hold_off(now + queue_for);
        self.restart.started(rate, now);
    }

    /// A drain has ended: what it achieved.
    pub fn drained(&mut self, view: &View<'_>, among_others: bool) -> Effect {
        self.queue.drained(view);
        self.compete.drained(view, among_others)
    }

    /// The queue rule's action, if one is due, for a flow that needs no other rule.
    pub fn check_queue(&mut self, view: &View<'_>) -> Option<(Action, Reason)> {
        self.compete.note(view);
        let action = self.queue.check(view)?;
        Some((action, self.queue.reason()))
    }

    /// The first action that is due.
    pub fn check(&mut self, view: &View<'_>) -> Option<(Action, Reason)> {
        self.compete.note(view);
        let rules: [&mut dyn Rule; 3] = [&mut self.loss, &mut self.queue, &mut self.restart];
        rules
            .into_iter()
            .find_map(|rule| rule.check(view).map(|action| (action, rule.reason())))
    }
}

#[cfg(test)]
pub(crate) mod tests;
