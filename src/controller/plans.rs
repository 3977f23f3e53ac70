//! What a decision means for the datapath: rates, the length of intervals, and the window.
//!
//! The congestion window is a safety net around the paced rate, twice what the rate needs: it stops a flow whose path
//! went silent. Behind a standing queue it follows what arrives in an RTT, so that ACKs clock the flow as they clock
//! any other: a decision takes an RTT, which is seconds where a crowd has filled a deep buffer, and until then the rate
//! would be sent whatever becomes of it. In a drain the window is less than what fits the empty path, so that the queue
//! is let out; a competitor's is its own, since that is what competes, and its pacing only spreads bursts.
//!
//! Where the receiver is near, the kernel's bursts are longer than the RTT, and longer than many a buffer. A paced flow
//! sends them all the same, and loses what does not fit. There the window is what the rate sends in an RTT and what the
//! receiver holds back, and the pacer a little faster: then each ACK lets go what it acknowledges, and no burst is longer
//! than half of the window.
//! Trials would show the window, not the path; so the climber steers.

use super::{Controller, Phase};
use crate::aimd::Aimd;
use crate::compete::Competitor;
use crate::cruise::{Cruise, Met};
use crate::handbrake;
use crate::params::{Core, Params};
use crate::plan::{Command, Plan, STARTUP_SLOTS_PER_RTT};
use crate::startup::{self, FIRST_GAIN};
use crate::units::{Bytes, Micros, Rate};
use crate::upstream::Upstream;
use crate::vivace::{Limits, Vivace};
use rand::Rng;

/// Smallest congestion window, packets. Source: fewer make loss recovery wait for timeouts.
pub const MIN_WINDOW_PKTS: f64 = 4.0;
/// Report interval before the first plan, short so that each ACK of the initial window reports.
pub(super) const FIRST_REPORT: Micros = Micros::new(20);
/// Window over rate x RTT, and during the fast start.
const WINDOW_GAIN: f64 = 2.0;
const STARTUP_WINDOW_GAIN: f64 = 2.5;
/// Times what arrives in an RTT; with what the rate sends in the smallest RTT this is the largest window of Vivace and
/// of the climber. Source: simulated, see docs/changes/earlier.md: crowds lose a tenth less. With 1.2 they lose still
/// less, but their queue goes more slowly, and flows compete with it.
const ARRIVED_GAIN: f64 = 1.5;
/// Packets that the fast start may have in flight beyond the initial window, per packet delivered. Slow start has 1; a
/// ramp that doubles per RTT needs 1, and some room for ACKs that come late. The initial window counts as delivered
/// with the first plan, since the next report comes an RTT later (simulated on 24 paths: 1 MB takes 1.015 of Cubic's
/// time, 1.06 without).
const STARTUP_WINDOW_GROWTH: f64 = 1.5;
/// Where the receiver is near: packets in the window beyond rate x RTT, which a receiver holds back that acknowledges
/// every other one. Source: simulated, 120 paths (`near.toml`), two seeds: one flow loses .24 % and uses .992, several
/// 1.0 % with Jain's index .982; with a window of 1.25 rate x RTT in place of them .27 %, .991, .9 % and .970, with both
/// .45 %, .990, 1.3 % and .989. Real TCP, ten flows at 500 Mbit/s, 0.5 ms (`P9`): Jain's index .96 and 1.00 for .70 and
/// .74; one at 100 Mbit/s that loses 10 % (`G4-10`) .97 for .94 of the path.
const NEAR_WINDOW_PKTS: f64 = 2.0;
/// There, the pacer's rate over the rate. Source: simulated, 80 paths, with a window of 1.25 rate x RTT: 1.25 uses as
/// much and loses as little, but several flows have Jain's index .71 and .83 for .80 and .92; 2, with a window of 1.5,
/// uses .95, since a flow waits for itself.
const NEAR_PACING_GAIN: f64 = 1.5;
/// Packets per RTT below which the smallest window is more than the rate needs, and the pacer decides there, too.
/// Source: the same: several flows lose 1.6 % with this, 2.4 % without; with 4 one flow uses .98 for 1.00.
const NEAR_PKTS: f64 = 2.5;
/// Where the buffer holds less than one of the kernel's bursts no more is in flight than the empty path carries and so
/// many packets, of a climber and of a cruise, and the pacer is ahead of the rate by this factor, so that ACKs clock
/// the flow; from so many packets per RTT on. Source: simulated, two seeds. One or six flows at 5 to 20 packets, 81
/// paths: use .953, Jain's index .958, with 3 packets for all .960, .947, with 1 for all .949, .961, without .945,
/// .960. 40 wide paths with bursts (`wide.toml`): .925 used, with a factor of 1.1 or 1.5 .002 and .01 less. From no
/// packets per RTT on 48 crowds lose 9.2 % for 8.8.
const SHORT_WINDOW_PKTS: f64 = 1.0;
const SHORT_CRUISE_PKTS: f64 = 3.0;
const SHORT_PACING_GAIN: f64 = 1.05;
const SHORT_PKTS: f64 = 25.0;
/// Added to the RTT for the window: the kernel's bursts, and ACKs that come in batches.
const WINDOW_SLACK: Micros = Micros::new(1000);
/// The same for a near receiver: the pacer's timers are late. Source: measured over a veth pair, RTT 30 us, where 10
/// Gbit/s are the largest rate: 1.4 Gbit/s without, 8.3 to 9.0 with 50 us, 8.9 to 9.1 with this, as with 1 ms;
/// simulated: use of 24 paths (`near.toml`, `pulsed`) .997, .993, .990 with none, this and twice this.
const NEAR_WINDOW_SLACK: Micros = Micros::new(100);
/// Window of a drain over the bandwidth-delay product.
const DRAIN_WINDOW_GAIN: f64 = 0.9;
/// The same of an interval that lets the queue of a near receiver out. Source: simulated, Jain's index is .89 with
/// half, .85 with a tenth.
const LET_OUT_WINDOW_GAIN: f64 = 0.5;
/// A window this much off is corrected between plans.
const WINDOW_TOLERANCE: f64 = 0.125;
/// An interval spans at least so many of the kernel's bursts, and so many ACKs.
const INTERVAL_BURSTS: f64 = 10.0;
const INTERVAL_ACKS: f64 = 6.0;
/// Intervals are up to this much longer, at random, so that flows do not lock in step.
const INTERVAL_JITTER: f64 = 0.1;
/// Smallest step of Vivace near its edge, packets per RTT. Source: a step takes two RTTs, so this is one packet per
/// RTT. Simulated, 2 to 4 flows on a clean path and 35 paths alone: Jain .978 of the former with 2, .968 with 1, .971
/// with 4, where with 1 % of the rate it is .956; the latter are used by .980, .978, .978 with 1, 2 and 4.
const NEAR_EDGE_PKTS: f64 = 2.0;
/// No interval is longer: the flow must be able to react.
const INTERVAL_MAX: Micros = Micros::new(5_000_000);
/// Packets of the fast start's slots, and their least length.
const STARTUP_SLOT_PKTS: f64 = 8.0;
const STARTUP_SLOT_MIN: Micros = Micros::new(1000);

impl Controller {
    /// Goes on after a drain, a cut or a take-over: at the edge, if all of the path is the flow's own; else with
    /// trials, or with the climber where packets are few.
    pub(super) fn settle(&mut self) -> Command {
        if self.params.core() == Core::Upstream {
            self.phase = Phase::Upstream(Upstream::new(self.rate, true, &mut self.rng));
            self.upstream_plan()
        } else if let Some(edge) = self.own_edge() {
            self.cruise(edge, Met::Never)
        } else {
            self.search()
        }
    }

    /// Looks for a better rate: with trials, or with the climber where packets are few.
    pub(super) fn search(&mut self) -> Command {
        if self.is_low(self.params.low_enter) {
            self.climb(Micros::ZERO)
        } else {
            self.probe()
        }
    }

    /// The first plan of a new flow whose RTT is known.
    pub(super) fn first_plan(&mut self) -> Command {
        if matches!(self.phase, Phase::Upstream(_)) {
            self.upstream_plan()
        } else {
            self.startup_plan()
        }
    }

    pub(super) fn startup_plan(&mut self) -> Command {
        let Phase::Startup(startup) = &self.phase else {
            let length = self.interval();
            return self.run([self.rate; 4], length);
        };
        let gain = startup.gain(&self.params);
        let slot = self.startup_slot();
        if startup.grows_at_once() {
            // ACKs come all the time here, so that slots last as long as planned.
            let grown = |slots: f64| self.rate * libm::pow(gain, slots * (slot / self.est.srtt()));
            return self.run_to([1.0, 2.0, 3.0, 4.0].map(grown), grown(5.0), slot);
        }
        // The first slot lasts an RTT, since slots change with ACKs, and those of the initial window are in.
        let rtts = |slots: f64| {
            libm::pow(gain, 1.0 + slots * (slot / self.est.srtt())) * (2.0 / FIRST_GAIN)
        };
        let planned = |factor: f64| startup.within_path(self.rate * factor);
        let ramp = [1.0, rtts(0.0), rtts(1.0), rtts(2.0)].map(planned);
        self.run_to(ramp, planned(rtts(3.0)), slot)
    }

    /// The fast start's slots, all at the present rate.
    pub(super) fn held_startup_plan(&mut self) -> Command {
        let slot = self.startup_slot();
        self.run([self.rate; 4], slot)
    }

    /// Length of the fast start's slots at the present rate.
    fn startup_slot(&self) -> Micros {
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let pkts = STARTUP_SLOT_PKTS.max((startup::MIN_SAMPLES + 1.0) * self.est.pkts_per_ack());
        (self.est.srtt() * (1.0 / STARTUP_SLOTS_PER_RTT))
            .max(self.rate.time_for(pkts * pkt_bytes))
            .max(STARTUP_SLOT_MIN)
    }

    pub(super) fn upstream_plan(&mut self) -> Command {
        let Phase::Upstream(upstream) = &self.phase else {
            return self.probe();
        };
        let (rates, srtt) = (upstream.trials(), self.est.srtt());
        let length = upstream.interval(srtt, self.est.pkt_bytes(self.mss_bytes));
        self.run(rates, length.max(self.params.mi_min))
    }

    pub(super) fn probe(&mut self) -> Command {
        let core = Vivace::new(self.rate, &self.params, &mut self.rng);
        let trials = core.trials();
        self.phase = Phase::Vivace(core);
        let length = self.interval();
        self.run(trials, length)
    }

    pub(super) fn climb(&mut self, patient_until: Micros) -> Command {
        self.climb_on(Aimd::new(patient_until))
    }

    pub(super) fn climb_on(&mut self, climber: Aimd) -> Command {
        self.phase = Phase::Aimd(climber);
        self.steady_plan()
    }

    pub(super) fn compete(&mut self, competitor: Competitor) -> Command {
        self.phase = Phase::Compete(competitor);
        self.steady_plan()
    }

    /// The present rate, for the parts that steer it with every report.
    fn steady_plan(&mut self) -> Command {
        let (rate, length) = (self.paced(), self.steady_interval());
        self.run_to([rate; 4], rate, length)
    }

    /// A drain at a lower rate.
    pub(super) fn drain_to(&mut self, rate: Rate) -> Command {
        let from = self.rate;
        self.rate = self.bounded(rate);
        self.drain(from)
    }

    /// `from` is the rate before.
    pub(super) fn drain(&mut self, from: Rate) -> Command {
        self.phase = Phase::Drain {
            since: self.est.now(),
            from,
        };
        self.run(
            [self.rate; 4],
            (self.est.srtt() * 0.5).max(self.params.mi_min),
        )
    }

    /// The present rate at once, under the old plan's number.
    pub(super) fn steered(&mut self) -> Command {
        let length = match self.phase {
            Phase::Startup(_) => self.startup_slot(),
            _ => self.steady_interval(),
        };
        self.steered_for(length, false)
    }

    /// The same, with reports of this length. `paused`: all that was written is acknowledged, and the holding rate is
    /// the present one.
    pub(super) fn steered_for(&mut self, length: Micros, paused: bool) -> Command {
        let (rate, length) = (self.paced(), length.min(INTERVAL_MAX));
        let hold = self.hold_of(rate);
        self.plan = Plan {
            rates: [rate; 4],
            hold,
            length,
            ..self.plan
        };
        self.cwnd = self.window();
        Command::Steer {
            rate,
            hold,
            now: if paused { hold } else { rate },
            length,
            cwnd: self.cwnd,
        }
    }

    /// The holding rate of one that is steered to. Before the first plan, what is sent after a pause shall be a train
    /// that tells the path's rate.
    pub(super) fn hold_of(&self, rate: Rate) -> Rate {
        let may_wait = self.plan.number == 0 && matches!(self.phase, Phase::Startup(_));
        if may_wait && self.params.is_pk3c() {
            self.params.max_rate
        } else {
            rate
        }
    }

    /// What the pacer is told: the rate, or more where the window decides.
    fn paced(&self) -> Rate {
        let gain = match &self.phase {
            Phase::Compete(competitor) => competitor.pacing_gain(),
            _ if self.is_clocked_near() => NEAR_PACING_GAIN,
            _ if self.short_window().is_some() => SHORT_PACING_GAIN,
            _ => return self.rate,
        };
        (self.rate * gain).min(self.params.max_rate)
    }

    pub(super) fn steady_interval(&self) -> Micros {
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        match self.phase {
            Phase::Cruise(_) => Cruise::interval(&self.est, self.rate, pkt_bytes, &self.params),
            _ => Aimd::interval(&self.est, self.rate, pkt_bytes),
        }
    }

    /// Length of a monitor interval.
    pub(super) fn interval(&mut self) -> Micros {
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let pkts = f64::from(self.params.mi_packets).max(INTERVAL_ACKS * self.est.pkts_per_ack());
        let length = (self.est.srtt() * self.params.mi_rtts)
            .max(self.rate.time_for(pkts * pkt_bytes))
            .max(handbrake::burst_time(self.rate, pkt_bytes) * INTERVAL_BURSTS)
            .max(self.params.mi_min);
        length * (1.0 + INTERVAL_JITTER * self.rng.random::<f64>())
    }

    pub(super) fn run(&mut self, rates: [Rate; 4], length: Micros) -> Command {
        self.run_to(rates, self.rate, length)
    }

    /// Four rates, and the one to hold then.
    fn run_to(&mut self, rates: [Rate; 4], hold: Rate, length: Micros) -> Command {
        self.plan = Plan {
            number: Plan::next_number(self.plan.number),
            rates: rates.map(|rate| self.allowed(rate)),
            hold: self.allowed(hold),
            length: length.min(INTERVAL_MAX),
        };
        self.cwnd = self.window();
        Command::Run {
            plan: self.plan,
            cwnd: self.cwnd,
        }
    }

    /// The smallest and the largest rate.
    pub(super) fn bounds(&self) -> (Rate, Rate) {
        let ceiling = match self.params.core() {
            // The initial window needs no goodput to show that it may be sent.
            Core::Pk3c => handbrake::ceiling(&self.est, &self.params)
                .max(self.init_window_in(self.est.srtt())),
            Core::Vivace | Core::Upstream => Rate::MAX,
        };
        let shaped = self.rules.shaper.most(self.est.srtt(), &self.params);
        let high = self.params.max_rate.min(ceiling).min(shaped);
        (self.params.min_rate, high.max(self.params.min_rate))
    }

    pub(super) fn limits(&self) -> Limits {
        let (low, high) = self.bounds();
        let pkts = NEAR_EDGE_PKTS * self.est.pkt_bytes(self.mss_bytes);
        Limits {
            low,
            high,
            near_edge: Rate::from_bytes_in(pkts, self.est.srtt().max(self.params.mi_min)),
            shared: self.rules.sharing.is_shared(&self.params),
        }
    }

    /// A rate as far as the parameters and a shaper allow it, whatever was delivered before.
    pub(super) fn allowed(&self, rate: Rate) -> Rate {
        let Params {
            min_rate, max_rate, ..
        } = *self.params;
        let shaped = self.rules.shaper.most_tried(self.est.srtt(), &self.params);
        rate.within(min_rate, max_rate.min(shaped).max(min_rate))
    }

    pub(super) fn bounded(&self, rate: Rate) -> Rate {
        let (low, high) = self.bounds();
        rate.within(low, high)
    }

    /// Whether the rate has fewer packets than this in flight on the empty path, or the receiver is near, where the
    /// climber is better.
    pub(super) fn is_low(&self, pkts: f64) -> bool {
        let in_flight = self.pkts_in(self.rate, self.est.rtt_min());
        self.params.is_pk3c() && (in_flight < pkts || self.is_near())
    }

    fn is_near(&self) -> bool {
        self.params.is_pk3c() && self.est.is_near()
    }

    /// Whether ACKs, rather than the pacer, say when packets leave.
    pub(super) fn is_clocked(&self) -> bool {
        self.is_clocked_near() || self.short_window().is_some()
    }

    /// The same, to a near receiver.
    fn is_clocked_near(&self) -> bool {
        let steady = matches!(self.phase, Phase::Aimd(_) | Phase::Cruise(_));
        steady && self.is_near() && self.pkts_in(self.rate, self.est.srtt()) >= NEAR_PKTS
    }

    /// The window, packets, where the buffer was never seen to hold one of the kernel's bursts.
    fn short_window(&self) -> Option<f64> {
        let more = match self.phase {
            Phase::Aimd(_) => SHORT_WINDOW_PKTS,
            Phase::Cruise(_) => SHORT_CRUISE_PKTS,
            _ => return None,
        };
        let est = &self.est;
        let burst = handbrake::burst_time(self.rate, est.pkt_bytes(self.mss_bytes));
        let carried = self.pkts_in(self.rate, est.rtt_min());
        let short = !self.is_near() && est.holds_less_than(burst) && carried >= SHORT_PKTS;
        (short && self.params.is_pk3c()).then_some(carried + more)
    }

    /// Packets that a rate sends in some time.
    fn pkts_in(&self, rate: Rate, time: Micros) -> f64 {
        rate.bytes_in(time) / self.est.pkt_bytes(self.mss_bytes)
    }

    /// The congestion window of the moment.
    fn window(&self) -> Bytes {
        let pkts_in = |rate, time| self.pkts_in(rate, time);
        let slack = if self.is_near() {
            NEAR_WINDOW_SLACK
        } else {
            WINDOW_SLACK
        };
        let rtt = self.est.srtt() + slack;
        let init_pkts = self.init_pkts();
        let pkts = match &self.phase {
            _ if !self.est.has_rtt() => init_pkts,
            // What the path carries is not known before the first plan.
            Phase::Startup(_) if self.plan.number == 0 => init_pkts,
            Phase::Startup(startup) => {
                let srtt = self.est.srtt();
                let told = startup.second_rate(self.init_window_in(srtt));
                let carried = told.map_or(init_pkts, |rate| pkts_in(rate, srtt).max(init_pkts));
                (STARTUP_WINDOW_GAIN * pkts_in(self.plan.highest(), rtt))
                    .min(init_pkts + STARTUP_WINDOW_GROWTH * self.est.delivered_pkts().max(carried))
            }
            Phase::Drain { .. } => DRAIN_WINDOW_GAIN * pkts_in(self.rate, self.est.rtt_min()),
            Phase::Compete(competitor) => {
                competitor.window_pkts(&self.est, self.est.pkt_bytes(self.mss_bytes))
            }
            Phase::PlainStart(_) => STARTUP_WINDOW_GAIN * pkts_in(self.rate, rtt),
            Phase::Aimd(climber) if climber.lets_out() => {
                LET_OUT_WINDOW_GAIN * pkts_in(self.rate, self.est.rtt_min())
            }
            Phase::Vivace(_) | Phase::Cruise(_) | Phase::Aimd(_) | Phase::Upstream(_) => {
                let (highest, net) = if self.is_near() {
                    (self.rate, pkts_in(self.rate, rtt) + NEAR_WINDOW_PKTS)
                } else {
                    let highest = self.plan.highest();
                    (highest, WINDOW_GAIN * pkts_in(highest, rtt))
                };
                let net = self.short_window().map_or(net, |short| net.min(short));
                match self.est.last_goodput() {
                    Some(goodput) if self.params.is_pk3c() => net.min(
                        ARRIVED_GAIN * pkts_in(goodput, rtt) + pkts_in(highest, self.est.rtt_min()),
                    ),
                    _ => net,
                }
            }
        };
        sane_window(pkts * self.mss_bytes, self.mss_bytes)
    }

    /// The window, if what the datapath has no longer fits.
    pub(super) fn corrected_window(&mut self) -> Option<Command> {
        let fitting = self.window();
        let (old, new) = (self.cwnd.get() as f64, fitting.get() as f64);
        if (new - old).abs() <= old * WINDOW_TOLERANCE {
            return None;
        }
        self.cwnd = fitting;
        Some(Command::Window { cwnd: fitting })
    }
}

/// A window of at least [`MIN_WINDOW_PKTS`], and not beyond what a datapath field carries.
pub(super) fn sane_window(bytes: f64, mss_bytes: f64) -> Bytes {
    let largest = f64::from(u32::MAX);
    Bytes::from_f64(bytes.max(MIN_WINDOW_PKTS * mss_bytes).min(largest))
}
