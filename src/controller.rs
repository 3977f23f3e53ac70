//! One flow's controller: which part of the algorithm decides, and what that means for the datapath.
//!
//! ```text
//!             full path           the queue is gone     rate >= 15 packets per RTT
//!   STARTUP ------------> DRAIN ------------------------------+--> VIVACE --+
//!    |   ^                  |  ^                              |     ^  |    | cut
//!    |   | restart          |  | queue, loss cut of VIVACE    |  25 |  | 15 |
//!    |   +-- VIVACE         |  +------------------------------|     |  v    |
//!    |                      | actions in vain                 +---> AIMD <--+
//!    | timeout              v                                        ^  |
//!    +-----> AIMD        COMPETE --- time is over: DRAIN             |  +--> COMPETE
//!                           +------- timeout ------------------------+
//!
//!   DRAIN, VIVACE, AIMD -- all of the path arrives --> CRUISE -- less arrives --> VIVACE, AIMD; a queue stands --> DRAIN
//!                                                             -- more arrives --> STARTUP
//! ```
//!
//! Every report is first an observation, whatever plan it belongs to. Then the first of these that applies decides: a
//! start that goes on since what ended it was no queue, losses that let hardly anything but repetitions arrive,
//! parameters that have changed, a retransmission timeout, the first ACKs, and then whichever part drives the flow. Vivace asks all handbrakes before it learns, the cruise that
//! for a queue. Reports of an old plan decide nothing; slot 0, what was sent before the plan, tells only the fast start
//! and the drain something, since for the others its effects are already answered. `--algorithm vivace` runs the core
//! alone, with its own start; `--upstream-compat` runs [`crate::upstream`] instead.
//!
//! The controller is a function of its parameters, its seed, the reports, and what it [hears](Controller::hear) of
//! others: its clock is the datapath's ACK time in the reports. The same inputs therefore give the same
//! decisions, and a record can be replayed.
//!
//! Limits: a flow that is limited by its window or application is never judged, and keeps its rate until it sends
//! again.

mod climb;
mod compared;
mod plans;
mod queue;
mod ride;
mod small_buffer;
mod start;
mod trial;

use crate::aimd::Aimd;
use crate::compete::Competitor;
use crate::cruise::Cruise;
use crate::ensemble::{Known, Told};
use crate::estimate::{Estimator, LossClass, Mi, SlotContext};
use crate::handbrake::{Action, Handbrakes, View};
use crate::params::{Core, Handbrake, Params};
use crate::plan::{Command, Decision, PhaseName, Plan, Reason};
use crate::program::{RawReport, Slot};
use crate::startup::Startup;
use crate::startup::watch::LongRtt;
use crate::units::{Bytes, Micros, Rate};
use crate::upstream::Upstream;
use crate::vivace::start::PlainStart;
use crate::vivace::{Edge, Vivace};
pub use plans::MIN_WINDOW_PKTS;
use plans::{FIRST_REPORT, sane_window};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

/// Reports that may count segments of the old size: two RTTs of the fast start's, which has the shortest slots.
const RESIZED_REPORTS: u8 = 8;

/// How a flow begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowStart {
    /// Segment size, bytes.
    pub mss: Bytes,
    /// Congestion window that the datapath has now.
    pub init_cwnd: Bytes,
    /// For a flow that runs already: its rate and smoothed RTT. It skips the fast start.
    pub resume: Option<(Rate, Micros)>,
}

#[derive(Clone, Debug)]
enum Phase {
    Startup(Startup),
    /// `from` is the rate before the action that called for the drain.
    Drain {
        since: Micros,
        from: Rate,
    },
    Vivace(Vivace),
    Cruise(Cruise),
    Aimd(Aimd),
    Compete(Competitor),
    PlainStart(PlainStart),
    Upstream(Upstream),
}

impl Phase {
    fn name(&self) -> PhaseName {
        match self {
            Self::Startup(_) | Self::PlainStart(_) => PhaseName::Startup,
            Self::Drain { .. } => PhaseName::Drain,
            Self::Vivace(_) => PhaseName::Vivace,
            Self::Cruise(_) => PhaseName::Cruise,
            Self::Aimd(_) => PhaseName::Aimd,
            Self::Compete(_) => PhaseName::Compete,
            Self::Upstream(_) => PhaseName::Upstream,
        }
    }
}

/// The controller of one flow.
#[derive(Clone, Debug)]
pub struct Controller {
    params: Arc<Params>,
    rng: Xoshiro256PlusPlus,
    mss_bytes: f64,
    init_cwnd: Bytes,
    est: Estimator,
    phase: Phase,
    rate: Rate,
    plan: Plan,
    cwnd: Bytes,
    rules: Handbrakes,
    /// A queue that is not tolerated stood through the last interval with an RTT.
    queue_stands: bool,
    /// The long RTT that ended the start, until it is known whether it was a queue.
    long_rtt: LongRtt,
    /// The parameters chose another algorithm, or allow the rate no more; the next report sees to it.
    switched: bool,
    /// The segment size has changed: so many more reports may count segments of the old size, ...
    resized_reports: u8,
    /// ... and this was the smaller of both, bytes.
    resized_mss: u32,
}

impl Controller {
    /// A controller and its first decision, whose command goes out with the program. The segment size and the window
    /// are taken as at least 1 byte and [`MIN_WINDOW_PKTS`].
    #[must_use]
    pub fn new(params: Arc<Params>, seed: u64, start: FlowStart) -> (Self, Decision) {
        let mss_bytes = start.mss.get().max(1) as f64;
        let rate = start.resume.map_or(params.start_rate, |(rate, _)| rate);
        let rate = rate.within(params.min_rate, params.max_rate);
        let init_cwnd = sane_window(start.init_cwnd.get() as f64, mss_bytes);
        let mut controller = Self {
            est: Estimator::new(&params),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            mss_bytes,
            init_cwnd,
            phase: Phase::Startup(Startup::new(Micros::ZERO)),
            rate,
            plan: Plan {
                number: 0,
                rates: [rate; 4],
                hold: rate,
                length: FIRST_REPORT,
            },
            cwnd: init_cwnd,
            rules: Handbrakes::default(),
            queue_stands: false,
            long_rtt: LongRtt::default(),
            switched: false,
            resized_reports: 0,
            resized_mss: 0,
            params,
        };
        let decision = if let Some((_, srtt)) = start.resume {
            controller.est.assume_rtt(srtt);
            let command = controller.settle();
            controller.decide(Reason::Resume, Some(command))
        } else {
            controller.phase = controller.first_phase();
            let command = Command::Steer {
                rate,
                hold: controller.hold_of(rate),
                now: rate,
                length: FIRST_REPORT,
                cwnd: init_cwnd,
            };
            controller.decide(Reason::Start, Some(command))
        };
        (controller, decision)
    }

    fn first_phase(&mut self) -> Phase {
        match self.params.core() {
            Core::Pk3c => Phase::Startup(Startup::new(self.est.now())),
            Core::Vivace => Phase::PlainStart(PlainStart::default()),
            Core::Upstream => Phase::Upstream(Upstream::new(self.rate, false, &mut self.rng)),
        }
    }

    /// Goes on with a flow that the datapath drove by itself for a while: from the given rate, or from half of its own
    /// last one if that is more, and with all that was learnt of the path. A flow of which no RTT is known starts
    /// afresh.
    pub fn readopt(&mut self, cwnd: Bytes, resume: Option<(Rate, Micros)>) -> Decision {
        self.init_cwnd = sane_window(cwnd.get() as f64, self.mss_bytes);
        self.long_rtt = LongRtt::default();
        // What has arrived meanwhile is not known.
        self.rules.shaper.forget();
        if let Some((_, srtt)) = resume {
            self.est.assume_rtt(srtt);
        }
        if !self.est.has_rtt() {
            self.rate = self.bounded(self.params.start_rate);
            self.phase = self.first_phase();
            let command = self.first_plan();
            return self.decide(Reason::Start, Some(command));
        }
        let now = resume.map_or(Rate::ZERO, |(rate, _)| rate);
        self.rate = self.bounded(now.max(self.rate * 0.5));
        let command = self.settle();
        self.decide(Reason::Resume, Some(command))
    }

    /// Replaces the parameters of a running flow, which takes them into account from the next report on. What was
    /// learnt of the path stays; another algorithm goes on from the present rate.
    pub fn set_params(&mut self, params: Arc<Params>) {
        self.switched |= params.core() != self.params.core();
        self.params = params;
        self.est.set_params(&self.params);
        let bounded = self.allowed(self.rate);
        // The datapath must hear of it, too.
        self.switched |= bounded != self.rate;
        self.rate = bounded;
        if let Phase::Vivace(core) = &mut self.phase {
            core.set_params(&self.params);
        }
    }

    /// The datapath's segments have another size, as after a change of the path's MTU. Rate, phase and what was learnt
    /// of the path stay. While segments of the old size may still be acknowledged all count as the smaller ones, so
    /// that no interval shows more than was sent.
    pub fn set_mss(&mut self, mss: Bytes) {
        let mss_bytes = mss.get().max(1) as f64;
        if mss_bytes == self.mss_bytes {
            return;
        }
        self.resized_mss = self.counted_mss().min(mss_bytes) as u32;
        self.resized_reports = RESIZED_REPORTS;
        self.mss_bytes = mss_bytes;
        // The datapath keeps the window in packets: what it has in bytes is another now.
        self.cwnd = Bytes::new(0);
    }

    /// The segment size by which reports are read.
    fn counted_mss(&self) -> f64 {
        if self.resized_reports > 0 {
            f64::from(self.resized_mss)
        } else {
            self.mss_bytes
        }
    }

    /// What the flow has measured.
    #[must_use]
    pub fn estimator(&self) -> &Estimator {
        &self.est
    }

    /// Takes over what another controller of the same flow remembers of the path, for comparisons of parameters.
    pub fn remember(&mut self, estimator: Estimator) {
        self.est = estimator;
    }

    /// Whether it matters to the flow what others know: while it starts, while it suspects competitors, and before it
    /// takes the path for its own.
    #[must_use]
    pub fn asks(&self) -> bool {
        let claims = matches!(&self.phase, Phase::Aimd(climber) if climber.may_find_its_own());
        self.is_starting() || self.rules.compete.suspects() || claims
    }

    fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Startup(_))
    }

    /// Hears what others know of the path on which the next report was measured, if they know anything.
    pub fn hear(&mut self, known: Option<Known>) {
        let off = self.params.no_handbrake.contains(Handbrake::Ensemble);
        let known = known.filter(|_| !off);
        self.rules
            .compete
            .hear(known.is_some_and(|known| known.is_all));
        match (&mut self.phase, known) {
            (Phase::Startup(startup), Some(known)) => startup.hear(known),
            (Phase::Aimd(climber), Some(known)) if known.active > 0 => climber.shares(),
            _ => {}
        }
    }

    /// What others hear of the flow after this interval. What arrives of one that its application limits is no measure
    /// of a share, but one that starts takes its part soon.
    #[must_use]
    pub fn tells(&self, mi: &Mi) -> Told {
        Told {
            rtt_min: self.est.rtt_min(),
            arrives: self.est.last_goodput().unwrap_or(Rate::ZERO),
            is_share: !mi.limited || self.is_starting(),
            carries: self.rules.path.carries(),
        }
    }

    /// Answers one report. Any report is allowed; rates stay within the parameters' range and the window at
    /// [`MIN_WINDOW_PKTS`] or more.
    pub fn on_report(&mut self, raw: &RawReport) -> Decision {
        self.on_report_measured(raw).1
    }

    /// [`Controller::on_report`], and what the report was taken to mean, for explanations.
    pub fn on_report_measured(&mut self, raw: &RawReport) -> (Mi, Decision) {
        let current = raw.plan() == self.plan.number;
        let slot = raw.slot();
        let asked = match slot {
            _ if !current || raw.timeout() => None,
            Slot::Before => None,
            // What was sent before the first RTT sample is the initial window, not a rate.
            Slot::Hold if self.plan.number == 0 => None,
            // There the pacer is ahead of the rate.
            _ if self.is_clocked() => Some(self.rate),
            Slot::Trial(index) => self.plan.rates.get(index).copied(),
            Slot::Hold => Some(self.plan.hold),
        };
        let context = SlotContext {
            asked,
            length: self.plan.length,
            mss_bytes: self.counted_mss(),
        };
        self.resized_reports = self.resized_reports.saturating_sub(1);
        let mi = self.est.observe(raw, context);
        if let Phase::Startup(startup) = &mut self.phase
            && let Some(rtt_min) = startup.heard_rtt_min()
        {
            self.est.learn_rtt_min(rtt_min);
        }
        let view = View::new(&mi, &self.est, self.rate, self.mss_bytes, &self.params);
        if mi.rtt.is_some() {
            self.queue_stands = view.standing_queue() > view.tolerated_queue();
        }
        self.rules.shaper.note(&view);
        if asked.is_some() && !self.switched {
            let resumed = self.resume_start(&mi);
            if let Some(decision) = resumed.or_else(|| self.on_repeats(&mi)) {
                return (mi, decision);
            }
        }
        let decision = match self.phase {
            _ if self.switched => self.on_switch(),
            _ if raw.timeout() => self.on_timeout(),
            _ if !current => self.wait(Reason::Stale),
            _ if self.plan.number == 0 => self.on_first_rtt(&mi, raw.ends_flight()),
            Phase::Startup(_) => self.on_startup(&mi),
            Phase::Drain { since, from } => self.on_drain(&mi, since, from),
            _ if asked.is_none() => self.wait(Reason::Wait),
            Phase::Compete(_) => self.on_competition(&mi),
            Phase::Vivace(_) => self.on_trial(&mi),
            Phase::Cruise(_) => self.on_cruise(&mi),
            Phase::Aimd(_) => self.on_climb(&mi),
            Phase::PlainStart(_) => self.on_plain_start(&mi),
            Phase::Upstream(_) => self.on_upstream(&mi),
        };
        (mi, decision)
    }

    /// The algorithm or its bounds have changed: a flow with an RTT goes on from its rate, one without starts anew.
    fn on_switch(&mut self) -> Decision {
        self.switched = false;
        self.long_rtt = LongRtt::default();
        if self.est.has_rtt() {
            let command = self.settle();
            return self.decide(Reason::Switch, Some(command));
        }
        self.phase = self.first_phase();
        self.wait(Reason::Switch)
    }

    fn on_timeout(&mut self) -> Decision {
        self.long_rtt = LongRtt::default();
        self.rules.restart.timed_out();
        let floor = Aimd::floor(self.est.srtt(), self.est.pkt_bytes(self.mss_bytes));
        self.rate = self.bounded(if self.est.has_rtt() {
            (self.rate * 0.5).max(self.rate.min(floor))
        } else {
            self.rate_without_rtt()
        });
        let command = match self.params.core() {
            Core::Pk3c => self.climb(self.est.now()),
            Core::Vivace | Core::Upstream => self.settle(),
        };
        self.decide(Reason::Timeout, Some(command))
    }

    fn view<'a>(&'a self, mi: &'a Mi) -> View<'a> {
        View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params)
    }

    /// Asks the rules; an action overrides whatever else the interval means.
    fn check_rules(&mut self, mi: &Mi) -> Option<Decision> {
        if !self.params.is_pk3c() {
            return None;
        }
        let view = View::new(mi, &self.est, self.rate, self.mss_bytes, &self.params);
        let (action, reason) = self.rules.check(&view)?;
        Some(self.act(mi, action, reason))
    }

    /// Does what a rule wants done.
    fn act(&mut self, mi: &Mi, action: Action, reason: Reason) -> Decision {
        let command = match action {
            Action::Cut(rate) => self.yield_at_small_buffer(mi, rate).unwrap_or_else(|| {
                let edge = self.lost_at(mi);
                self.rate = self.bounded(rate);
                let command = self.settle();
                if let Phase::Vivace(core) = &mut self.phase {
                    core.set_edge(edge);
                }
                command
            }),
            Action::Climb(rate) => {
                self.rate = self.bounded(rate);
                let climber = Aimd::after_loss(self.est.now(), self.est.srtt());
                self.climb_on(climber)
            }
            Action::Drain(rate) => self.drain_to(rate),
            Action::Restart { at_once } => {
                self.phase = Phase::Startup(Startup::again(&self.est, at_once));
                self.startup_plan()
            }
        };
        self.decide(reason, Some(command))
    }

    /// What filled the queue: the rate at which it lost packets in this interval, or what is known from before.
    fn lost_at(&self, mi: &Mi) -> Option<Edge> {
        if self.est.class(mi) == LossClass::Congestive && mi.goodput > Rate::ZERO {
            return Some(Edge {
                rate: self.est.let_through(mi),
                lost: true,
            });
        }
        match &self.phase {
            Phase::Vivace(core) => core.edge(),
            _ => None,
        }
    }

    /// One rate at once, for the parts that need no trials.
    fn steer(&mut self, rate: Rate, reason: Reason) -> Decision {
        if rate == self.rate {
            return self.wait(reason);
        }
        self.rate = rate;
        let command = self.steered();
        self.decide(reason, Some(command))
    }

    fn settled_reason(&self) -> Reason {
        match self.phase {
            Phase::Aimd(_) => Reason::ClimbStart,
            Phase::Cruise(_) => Reason::Cruise,
            _ => Reason::Probe,
        }
    }

    /// No new plan; at most a window that no longer fits is corrected.
    fn wait(&mut self, reason: Reason) -> Decision {
        let command = self.corrected_window();
        self.decide(reason, command)
    }

    fn decide(&self, reason: Reason, command: Option<Command>) -> Decision {
        Decision {
            phase: self.phase.name(),
            reason,
            rate: self.rate,
            cwnd: self.cwnd,
            command,
        }
    }
}

fn index_of(slot: Slot) -> usize {
    match slot {
        Slot::Trial(index) => index,
        Slot::Before | Slot::Hold => 4,
    }
}

#[cfg(test)]
mod tests;
