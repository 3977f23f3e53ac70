//! One flow's controller: which part of the algorithm decides, and what that means for the datapath.
//!
//! ```text
//!             full path                 1.5 RTT                 rate >= 15 packets per RTT
//!   STARTUP ------------> DRAIN  --------------------------+--> VIVACE --+
//!      |                    ^                              |      ^ |    | loss handbrake
//!      | timeout            | queue handbrake (of VIVACE)  |   25 | | 15 |
//!      v                    |                              |      | v    |
//!    AIMD <-----------------------------------------------(+)---- AIMD <-+
//! ```
//!
//! Every report is first an observation, whatever plan it belongs to. Then the first of these that applies decides:
//! retransmission timeout, fast start, drain, loss rule, queue rule, low-rate climber, Vivace. Reports of an old plan
//! decide nothing, and neither does slot 0 (what was sent before the plan), which shows effects already answered.
//!
//! The controller is a function of its parameters, its seed and the reports: its clock is the datapath's ACK time in
//! the reports. The same reports therefore give the same decisions, and a record can be replayed.
//!
//! The congestion window is a safety net around the paced rate, twice what the rate needs: it stops a flow whose path
//! went silent, and in a drain it lets the queue out. Limits: a flow that is limited by its window or application is never
//! judged, and keeps its rate until it sends again.

use crate::aimd::Aimd;
use crate::estimate::{Estimator, Mi, SlotContext};
use crate::handbrake::{self, Action, LossRule, QueueRule, Rule, View};
use crate::params::Params;
use crate::plan::{Command, Decision, PhaseName, Plan, Reason};
use crate::program::{RawReport, Slot};
use crate::startup::{self, Startup, Verdict};
use crate::units::{Bytes, Micros, Rate};
use crate::vivace::{self, Limits, Vivace};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Smallest congestion window, packets. Source: fewer make loss recovery wait for timeouts.
pub const MIN_WINDOW_PKTS: f64 = 4.0;
/// Window over rate x RTT, and during the fast start.
const WINDOW_GAIN: f64 = 2.0;
const STARTUP_WINDOW_GAIN: f64 = 2.5;
/// Added to the RTT for the window: the kernel's bursts, and ACKs that come in batches.
const WINDOW_SLACK: Micros = Micros::new(1000);
/// Window of a drain over the bandwidth-delay product.
const DRAIN_WINDOW_GAIN: f64 = 0.9;
/// Length of a drain, and its limit while a queue of more than a part of the smallest RTT still stands.
const DRAIN_RTTS: f64 = 1.5;
const DRAIN_MAX_RTTS: f64 = 4.0;
const DRAIN_DONE_RTTS: f64 = 0.25;
/// A window this much off is corrected between plans.
const WINDOW_TOLERANCE: f64 = 0.125;
/// The loss rule is silent for so long after the fast start, whose losses were answered by leaving it.
const STARTUP_LOSS_RTTS: f64 = 3.5;
/// The queue rule, likewise.
const STARTUP_QUEUE_RTTS: f64 = 4.0;
/// An interval spans at least so many of the kernel's bursts, and so many ACKs.
const INTERVAL_BURSTS: f64 = 10.0;
const INTERVAL_ACKS: f64 = 6.0;
/// Intervals are up to this much longer, at random, so that flows do not lock in step.
const INTERVAL_JITTER: f64 = 0.1;
/// No interval is longer: the flow must be able to react.
const INTERVAL_MAX: Micros = Micros::new(5_000_000);
/// Slots of the fast start per RTT, their packets, and their least length.
const STARTUP_SLOTS_PER_RTT: f64 = 4.0;
const STARTUP_SLOT_PKTS: f64 = 8.0;
const STARTUP_SLOT_MIN: Micros = Micros::new(1000);
/// The first RTT sample may raise the first rate to slow start's second round, but not by more than this.
const FIRST_JUMP: f64 = 64.0;
/// Report interval before the first RTT sample, short so that the first ACK reports.
const FIRST_REPORT: Micros = Micros::new(200);

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
    Drain { since: Micros },
    Vivace(Vivace),
    Aimd(Aimd),
}

impl Phase {
    fn name(&self) -> PhaseName {
        match self {
            Self::Startup(_) => PhaseName::Startup,
            Self::Drain { .. } => PhaseName::Drain,
            Self::Vivace(_) => PhaseName::Vivace,
            Self::Aimd(_) => PhaseName::Aimd,
        }
    }
}

/// The controller of one flow.
#[derive(Clone, Debug)]
pub struct Controller {
    params: Arc<Params>,
    rng: ChaCha8Rng,
    mss_bytes: f64,
    init_cwnd: Bytes,
    est: Estimator,
    phase: Phase,
    rate: Rate,
    plan: Plan,
    cwnd: Bytes,
    loss_rule: LossRule,
    queue_rule: QueueRule,
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
            rng: ChaCha8Rng::seed_from_u64(seed),
            mss_bytes,
            init_cwnd,
            phase: Phase::Startup(Startup::default()),
            rate,
            plan: Plan {
                number: 0,
                rates: [rate; 4],
                hold: rate,
                length: FIRST_REPORT,
            },
            cwnd: init_cwnd,
            loss_rule: LossRule::default(),
            queue_rule: QueueRule::default(),
            params,
        };
        let decision = if let Some((_, srtt)) = start.resume {
            controller.est.assume_rtt(srtt);
            let command = controller.settle();
            controller.decide(Reason::Resume, Some(command))
        } else {
            let command = Command::Steer {
                rate,
                length: FIRST_REPORT,
                cwnd: init_cwnd,
            };
            controller.decide(Reason::Start, Some(command))
        };
        (controller, decision)
    }

    /// Goes on with a flow that the datapath drove by itself for a while: from the given rate, or from half of its own
    /// last one if that is more, and with all that was learnt of the path. A flow of which no RTT is known starts afresh.
    pub fn readopt(&mut self, cwnd: Bytes, resume: Option<(Rate, Micros)>) -> Decision {
        self.init_cwnd = sane_window(cwnd.get() as f64, self.mss_bytes);
        if let Some((_, srtt)) = resume {
            self.est.assume_rtt(srtt);
        }
        if !self.est.has_rtt() {
            self.phase = Phase::Startup(Startup::default());
            self.rate = self.bounded(self.params.start_rate);
            return self.decide_startup(Reason::Start);
        }
        let now = resume.map_or(Rate::ZERO, |(rate, _)| rate);
        self.rate = self.bounded(now.max(self.rate * 0.5));
        let command = self.settle();
        self.decide(Reason::Resume, Some(command))
    }

    /// Replaces the parameters of a running flow. What is remembered keeps the time windows it began with.
    pub fn set_params(&mut self, params: Arc<Params>) {
        self.params = params;
        self.est.set_loss_floor_max(self.params.loss_floor_max);
        self.rate = self.rate.within(self.params.min_rate, self.params.max_rate);
    }

    /// What the flow has measured.
    #[must_use]
    pub fn estimator(&self) -> &Estimator {
        &self.est
    }

    /// Answers one report. Any report is allowed; rates stay within the parameters' range and the window at
    /// [`MIN_WINDOW_PKTS`] or more.
    pub fn on_report(&mut self, raw: &RawReport) -> Decision {
        let current = raw.plan() == self.plan.number;
        let slot = raw.slot();
        let asked = match slot {
            _ if !current || raw.timeout() => None,
            Slot::Before => None,
            Slot::Trial(index) => self.plan.rates.get(index).copied(),
            // What was sent before the first RTT sample is the initial window, not a rate.
            Slot::Hold if self.plan.number == 0 => None,
            Slot::Hold => Some(self.plan.hold),
        };
        let context = SlotContext {
            asked,
            length: self.plan.length,
            mss_bytes: self.mss_bytes,
        };
        let mi = self.est.observe(raw, context);
        if raw.timeout() {
            return self.on_timeout();
        }
        if !current {
            return self.wait(Reason::Stale);
        }
        match self.phase {
            Phase::Startup(_) => self.on_startup(&mi),
            Phase::Drain { since } => self.on_drain(&mi, since),
            _ if asked.is_none() => self.wait(Reason::Wait),
            Phase::Vivace(_) => self.on_trial(&mi),
            Phase::Aimd(_) => self.on_climb(&mi),
        }
    }

    fn on_timeout(&mut self) -> Decision {
        let floor = Aimd::floor(self.est.srtt(), self.est.pkt_bytes(self.mss_bytes));
        self.rate = self.bounded((self.rate * 0.5).max(self.rate.min(floor)));
        let command = self.climb(self.est.now());
        self.decide(Reason::Timeout, Some(command))
    }

    fn on_startup(&mut self, mi: &Mi) -> Decision {
        let Phase::Startup(startup) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        if self.plan.number == 0 {
            if !self.est.has_rtt() {
                return self.wait(Reason::Wait);
            }
            // Slow start would send two initial windows in the next RTT.
            let window_rate = Rate::from_bytes_in(self.init_cwnd.get() as f64, self.est.srtt());
            let grown = (window_rate * self.params.startup_gain).min(self.rate * FIRST_JUMP);
            self.rate = self.bounded(self.rate.max(grown));
            return self.decide_startup(Reason::FirstRtt);
        }
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        match startup.on_mi(mi, &self.est, self.rate, pkt_bytes, &self.params) {
            Verdict::Wait(reason) => self.wait(reason),
            Verdict::Longer => self.decide_startup(Reason::Longer),
            Verdict::Grow(rate, reason) => {
                let rate = rate.within(self.params.min_rate, self.params.max_rate);
                if rate <= self.rate {
                    return self.wait(Reason::Wait);
                }
                self.rate = rate;
                self.decide_startup(reason)
            }
            Verdict::Leave(rate, reason) => {
                self.rate = rate.within(self.params.min_rate, self.params.max_rate);
                let (now, srtt) = (self.est.now(), self.est.srtt());
                self.loss_rule.hold_off(now + srtt * STARTUP_LOSS_RTTS);
                self.queue_rule.hold_off(now + srtt * STARTUP_QUEUE_RTTS);
                let command = self.drain();
                self.decide(reason, Some(command))
            }
        }
    }

    fn decide_startup(&mut self, reason: Reason) -> Decision {
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let pkts = STARTUP_SLOT_PKTS.max((startup::MIN_SAMPLES + 1.0) * self.est.pkts_per_ack());
        let slot = (self.est.srtt() * (1.0 / STARTUP_SLOTS_PER_RTT))
            .max(self.rate.time_for(pkts * pkt_bytes))
            .max(STARTUP_SLOT_MIN);
        let command = self.run([self.rate; 4], slot);
        self.decide(reason, Some(command))
    }

    fn on_drain(&mut self, mi: &Mi, since: Micros) -> Decision {
        let spent = self.est.now() - since;
        let srtt = self.est.srtt().max(self.params.mi_min);
        let queue = mi
            .rtt
            .map_or(Micros::ZERO, |rtt| rtt.min - self.est.rtt_min());
        let stands = queue > self.est.rtt_min() * DRAIN_DONE_RTTS;
        if spent < srtt * DRAIN_RTTS || (stands && spent < srtt * DRAIN_MAX_RTTS) {
            return self.wait(Reason::Wait);
        }
        let command = self.settle();
        self.decide(self.settled_reason(), Some(command))
    }

    /// Asks the rules; an action overrides whatever else the interval means.
    fn check_rules(&mut self, mi: &Mi) -> Option<Decision> {
        let view = View {
            mi,
            est: &self.est,
            rate: self.rate,
            pkt_bytes: self.est.pkt_bytes(self.mss_bytes),
            params: &self.params,
        };
        let rules: [&mut dyn Rule; 2] = [&mut self.loss_rule, &mut self.queue_rule];
        let (action, reason) = rules
            .into_iter()
            .find_map(|rule| rule.check(&view).map(|action| (action, rule.reason())))?;
        let command = match action {
            Action::Cut(rate) => {
                self.rate = self.bounded(rate);
                self.settle()
            }
            Action::Drain(rate) => {
                self.rate = self.bounded(rate);
                self.drain()
            }
        };
        Some(self.decide(reason, Some(command)))
    }

    fn on_trial(&mut self, mi: &Mi) -> Decision {
        if let Some(decision) = self.check_rules(mi) {
            return decision;
        }
        let limits = self.limits();
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let Phase::Vivace(core) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let index = if let Slot::Trial(index) = mi.slot {
            index
        } else {
            4
        };
        let judged = mi.judged_rate().map(|rate| {
            (
                rate,
                vivace::utility(rate, mi, &self.est, &self.params, pkt_bytes),
            )
        });
        let Some(reason) = core.judge(index, judged, limits, &self.params, &mut self.rng) else {
            return self.wait(Reason::Wait);
        };
        self.rate = core.rate();
        let trials = core.trials();
        if self.window_pkts_needed() < self.params.low_enter {
            let command = self.settle();
            return self.decide(self.settled_reason(), Some(command));
        }
        let length = self.interval();
        let command = self.run(trials, length);
        self.decide(reason, Some(command))
    }

    fn on_climb(&mut self, mi: &Mi) -> Decision {
        if self.window_pkts_needed() > self.params.low_exit {
            let command = self.probe();
            return self.decide(Reason::Probe, Some(command));
        }
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let view = View {
            mi,
            est: &self.est,
            rate: self.rate,
            pkt_bytes,
            params: &self.params,
        };
        let Phase::Aimd(climber) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let (rate, reason) = climber.on_mi(&view);
        let rate = self.bounded(rate);
        if rate == self.rate {
            return self.wait(reason);
        }
        self.rate = rate;
        let length = Aimd::interval(self.est.srtt(), rate, pkt_bytes).min(INTERVAL_MAX);
        self.plan = Plan {
            rates: [rate; 4],
            hold: rate,
            length,
            ..self.plan
        };
        self.cwnd = self.window();
        let command = Command::Steer {
            rate,
            length,
            cwnd: self.cwnd,
        };
        self.decide(reason, Some(command))
    }

    /// Goes on after a drain, a cut or a take-over: with trials, or with the climber where packets are few.
    fn settle(&mut self) -> Command {
        if self.window_pkts_needed() < self.params.low_enter {
            self.climb(Micros::ZERO)
        } else {
            self.probe()
        }
    }

    fn settled_reason(&self) -> Reason {
        if matches!(self.phase, Phase::Aimd(_)) {
            Reason::ClimbStart
        } else {
            Reason::Probe
        }
    }

    fn probe(&mut self) -> Command {
        let core = Vivace::new(self.rate, &self.params, &mut self.rng);
        let trials = core.trials();
        self.phase = Phase::Vivace(core);
        let length = self.interval();
        self.run(trials, length)
    }

    fn climb(&mut self, patient_until: Micros) -> Command {
        self.phase = Phase::Aimd(Aimd::new(patient_until));
        let length = Aimd::interval(
            self.est.srtt(),
            self.rate,
            self.est.pkt_bytes(self.mss_bytes),
        );
        self.run([self.rate; 4], length)
    }

    fn drain(&mut self) -> Command {
        let srtt = self.est.srtt().max(self.params.mi_min);
        self.phase = Phase::Drain {
            since: self.est.now(),
        };
        self.run([self.rate; 4], (srtt * 0.5).max(self.params.mi_min))
    }

    /// Length of a monitor interval.
    fn interval(&mut self) -> Micros {
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let pkts = f64::from(self.params.mi_packets).max(INTERVAL_ACKS * self.est.pkts_per_ack());
        let length = (self.est.srtt() * self.params.mi_rtts)
            .max(self.rate.time_for(pkts * pkt_bytes))
            .max(handbrake::burst_time(self.rate, pkt_bytes) * INTERVAL_BURSTS)
            .max(self.params.mi_min);
        length * (1.0 + INTERVAL_JITTER * self.rng.random::<f64>())
    }

    fn run(&mut self, rates: [Rate; 4], length: Micros) -> Command {
        let bounded = |rate: Rate| rate.within(self.params.min_rate, self.params.max_rate);
        self.plan = Plan {
            number: Plan::next_number(self.plan.number),
            rates: rates.map(bounded),
            hold: bounded(self.rate),
            length: length.min(INTERVAL_MAX),
        };
        self.cwnd = self.window();
        Command::Run {
            plan: self.plan,
            cwnd: self.cwnd,
        }
    }

    fn limits(&self) -> Limits {
        let high = self
            .params
            .max_rate
            .min(handbrake::ceiling(&self.est, &self.params));
        Limits {
            low: self.params.min_rate,
            high: high.max(self.params.min_rate),
        }
    }

    fn bounded(&self, rate: Rate) -> Rate {
        let Limits { low, high } = self.limits();
        rate.within(low, high)
    }

    /// Packets that the rate has in flight on the empty path.
    fn window_pkts_needed(&self) -> f64 {
        self.rate.bytes_in(self.est.rtt_min()) / self.est.pkt_bytes(self.mss_bytes)
    }

    /// The congestion window of the moment.
    fn window(&self) -> Bytes {
        let pkts_in =
            |rate: Rate, time: Micros| rate.bytes_in(time) / self.est.pkt_bytes(self.mss_bytes);
        let rtt = self.est.srtt() + WINDOW_SLACK;
        let init_pkts = self.init_cwnd.get() as f64 / self.mss_bytes;
        let pkts = match self.phase {
            Phase::Startup(_) if !self.est.has_rtt() => init_pkts,
            Phase::Startup(_) => (STARTUP_WINDOW_GAIN * pkts_in(self.rate, rtt))
                .min(init_pkts + 2.0 * self.est.delivered_pkts()),
            Phase::Drain { .. } => DRAIN_WINDOW_GAIN * pkts_in(self.rate, self.est.rtt_min()),
            Phase::Vivace(_) | Phase::Aimd(_) => WINDOW_GAIN * pkts_in(self.plan.highest(), rtt),
        };
        sane_window(pkts * self.mss_bytes, self.mss_bytes)
    }

    /// No new plan; at most a window that no longer fits is corrected.
    fn wait(&mut self, reason: Reason) -> Decision {
        let fitting = self.window();
        let (old, new) = (self.cwnd.get() as f64, fitting.get() as f64);
        if (new - old).abs() <= old * WINDOW_TOLERANCE {
            return self.decide(reason, None);
        }
        self.cwnd = fitting;
        self.decide(reason, Some(Command::Window { cwnd: fitting }))
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

/// A window of at least [`MIN_WINDOW_PKTS`], and not beyond what a datapath field carries.
fn sane_window(bytes: f64, mss_bytes: f64) -> Bytes {
    let largest = f64::from(u32::MAX);
    Bytes::from_f64(bytes.max(MIN_WINDOW_PKTS * mss_bytes).min(largest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::report;

    const MSS: u64 = 1000;

    fn new(resume: Option<(Rate, Micros)>, cwnd: u64) -> (Controller, Decision) {
        let start = FlowStart {
            mss: Bytes::new(MSS),
            init_cwnd: Bytes::new(cwnd),
            resume,
        };
        Controller::new(Arc::new(Params::default()), 1, start)
    }

    /// A path of 40 ms and a capacity of `bytes_per_sec` with a deep buffer, as seen by one slot of `plan` sent at
    /// `rate`: the report, and the queue (us) it leaves.
    fn slot(
        tag: u64,
        at: u64,
        plan: &Plan,
        rate: Rate,
        bytes_per_sec: f64,
        queue: &mut f64,
    ) -> RawReport {
        let gap = MSS as f64 / rate.bytes_per_sec() * 1e6;
        let count = (plan.length.us() as f64 / gap).max(4.0) as u64;
        let growth = rate.bytes_per_sec() / bytes_per_sec - 1.0;
        let acks: Vec<_> = (0..count)
            .map(|i| {
                let t = i as f64 * gap;
                (t as u64, 40_000 + (*queue + growth * t).max(0.0) as u64, 0)
            })
            .collect();
        let sdur = (count as f64 * gap) as u64;
        *queue = (*queue + growth * sdur as f64).max(0.0);
        report(tag, at, &acks, sdur)
    }

    #[test]
    fn trajectory_snapshot_of_a_start_on_a_path_of_40_mbit() {
        let (mut controller, first) = new(None, 10 * MSS);
        let mut lines = vec![format!("{} {} {}", first.phase, first.reason, first.rate)];
        let (mut now, mut queue) = (100_000, 0.0);
        controller.on_report(&report(9, now, &[(0, 40_000, 0)], 1000));
        let mut plan = controller.plan;
        let mut index = 0;
        while lines.len() < 16 {
            let rate = if index == 0 {
                plan.hold
            } else {
                plan.rates[index - 1]
            };
            let tag = u64::from(plan.number) * 32 + index as u64;
            // In a drain the window lets the queue out.
            if matches!(controller.phase, Phase::Drain { .. }) {
                queue = 0.0;
            }
            now += plan.length.us();
            let mut raw = slot(tag, now, &plan, rate, 5e6, &mut queue);
            if index == 0 {
                raw.sdur = 0;
            }
            let decision = controller.on_report(&raw);
            index = (index + 1) % 5;
            if let Some(Command::Run { plan: next, .. }) = decision.command {
                lines.push(format!(
                    "{} {} {:.1}",
                    decision.phase,
                    decision.reason,
                    decision.rate.mbit()
                ));
                (plan, index) = (next, 0);
            }
        }
        let expected = [
            "startup start 3145.728kbit",
            "startup grow 8.0",
            "startup grow 16.0",
            "startup grow 32.0",
            "startup grow 64.0",
            "drain full-spacing 38.0",
            "vivace probe 38.0",
            "vivace move-up 40.8",
            "vivace move-over 39.9",
            "vivace move-down 36.0",
            "vivace move-over 37.9",
            "vivace move-up 40.7",
            "vivace move-over 39.8",
            "vivace move-down 35.9",
            "vivace move-over 37.8",
            "vivace move-up 40.6",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_timeout_halves_the_rate_whatever_the_phase_and_old_reports_decide_nothing() {
        let srtt = Micros::new(40_000);
        let (mut controller, first) = new(Some((Rate::from_mbit(40.0), srtt)), 200 * MSS);
        assert_eq!(
            (first.phase, first.reason),
            (PhaseName::Vivace, Reason::Resume)
        );
        let decision = controller.on_report(&RawReport {
            tag: 32 + 16 + 2,
            ..RawReport::default()
        });
        assert_eq!(
            (decision.phase, decision.reason),
            (PhaseName::Aimd, Reason::Timeout)
        );
        assert_eq!(decision.rate, Rate::from_mbit(20.0));
        let old = report(32 + 2, 100_000, &[(0, 40_000, 5); 20], 40_000);
        assert_eq!(controller.on_report(&old).reason, Reason::Stale);
        for _ in 0..50 {
            controller.on_report(&RawReport {
                tag: 16,
                ..RawReport::default()
            });
        }
        // Two packets per RTT of 40 ms.
        assert_eq!(controller.rate, Rate::from_bytes_per_sec(50_000.0));
    }

    #[test]
    fn few_packets_per_rtt_are_for_the_climber_and_many_for_vivace() {
        let srtt = Micros::new(10_000);
        let (controller, _) = new(Some((Rate::from_bytes_per_sec(1.4e6), srtt)), 200 * MSS);
        assert_eq!(controller.phase.name(), PhaseName::Aimd, "14 packets");
        let (controller, _) = new(Some((Rate::from_bytes_per_sec(1.6e6), srtt)), 200 * MSS);
        assert_eq!(controller.phase.name(), PhaseName::Vivace, "16 packets");
    }

    #[test]
    fn the_window_is_slow_starts_first_and_twice_the_rates_later() {
        let (mut controller, first) = new(None, 10 * MSS);
        assert_eq!(first.cwnd, Bytes::new(10 * MSS));
        let begun = controller.on_report(&report(9, 100_000, &[(0, 40_000, 0); 2], 1000));
        assert_eq!(
            begun.cwnd,
            Bytes::new(14 * MSS),
            "initial window plus twice the delivered"
        );
        let (_, resumed) = new(
            Some((Rate::from_bytes_per_sec(5e6), Micros::new(40_000))),
            20 * MSS,
        );
        // 1.05 x 5 MB/s x 41 ms x 2.
        assert_eq!(resumed.cwnd, Bytes::new(430_500));
        let (_, tiny) = new(None, 0);
        assert_eq!(tiny.cwnd, Bytes::new(4 * MSS));
    }
}
