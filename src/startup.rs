//! The fast start: grow while the path keeps up, stop at the first sign that it does not.
//!
//! ```text
//!   slots of rtt/4; each tells an RTT after it was sent:
//!       packets arrive slower than sent │ RTT slope │ standing queue │ heavy loss  ──▶ leave, 0.98 x best goodput
//!       a hint of one of these, or losses                                           ──▶ grow by a little
//!       none            ──▶ rate = what the slot sent x 2^(1 + its length in RTTs): as if doubled every RTT since
//!       no growth for four RTTs (application, receiver's window)                    ──▶ leave, 1.5 x best goodput
//! ```
//!
//! The rate climbs a little with every report instead of doubling at once. So it doubles once per RTT, although a slot
//! is known only an RTT after it ended, and it is never credited with more than what a slot has really sent. A ramp
//! that passes the capacity has less in the queue when that shows than a step that was nearly twice the capacity. A
//! report never lets the rate grow for longer than the time since the last growth.
//!
//! The first slot lasts an RTT, since the datapath changes slots with ACKs and those of the initial window are in. It
//! sends three initial windows, and the second begins where a ramp from two would be. The congestion window is the
//! initial one until the ACKs of that are in or have had their time, and then stays within it plus one and a half times
//! what was delivered, the initial window at least: its ACKs tell that the path carries it. So a first rate that is too
//! high for the path floods it little more than slow start would. Leaving is followed by a drain.
//!
//! Where the ACKs of the initial window tell the path's rate ([`train`]), the second RTT is sent at four fifths of it,
//! sixteen initial windows at most, and the ramp passes it only by little more than what has arrived. Where a fifth more
//! arrives, the train was too low, as that of a slow sender, and the ramp passes what has arrived by half; where twice
//! as much does, it was wrong. Where it was, or told nothing, something besides a queue holds packets back: there a long
//! RTT is watched for one and a half RTTs before it ends the start; and one that ends a start is looked at again when
//! its queue should be gone ([`watch`]).
//!
//! What a report shows of a full path is looked at by itself (`signs.rs`). Losses of all slots together end the start,
//! too, and those of one slot slow it, by as much as they are. Where half of the initial window was lost, the second RTT
//! has no more than that part of its rate that arrived, and a slot that leaves no growth ends the start. A first start
//! bears a tenth, since the path's own losses are unknown; a restart knows them, and bears little more.
//!
//! Where others to the same address tell of themselves, the start takes its part among them (`others.rs`).
//!
//! Limits: between passing the capacity and its sign lie an RTT and a slot or two, in which 0.7 to 1.3 bandwidth-delay
//! products come to stand in the queue. A buffer of one loses some of that.

mod others;
mod recent;
mod signs;
pub mod train;
pub mod watch;

use crate::ensemble::Known;
use crate::estimate::{Estimator, Mi, RttStats};
use crate::params::Params;
use crate::plan::Reason;
use crate::program::Slot;
use crate::units::{Micros, Rate};
use others::Others;
use recent::Recent;
use signs::{Signs, tolerated_queue};
use train::Train;
use watch::{LongRtt, Watch};

/// ACKs below which a slot tells nothing. Source: one-packet reports of batched ACKs once doubled the rate.
pub const MIN_SAMPLES: f64 = 4.0;
/// RTTs without growth after which something else limits the flow.
const PLATEAU_RTTS: f64 = 4.0;
/// A flow that something else limits goes on at so many times its goodput.
const CEILING: f64 = 1.5;
/// No report lets the rate grow for longer than this.
const LONGEST_RAMP_RTTS: f64 = 1.5;
/// The rate stays below this many times the goodput of the last RTT: an application that sends in bursts cannot push
/// the rate beyond it.
const OVER_GOODPUT: f64 = 4.0;

/// Initial windows that the rate of the second RTT makes where nothing tells the path's: the mean of a doubling ramp
/// from two. Source: simulated on 24 paths; 2 takes 4 % longer for 1 MB, 4 runs into the window.
pub const FIRST_GAIN: f64 = 3.0;
/// The second RTT's rate, as a part of what the train tells, and in initial windows per RTT, at most. Source:
/// simulated, downloads of 1 and 10 MB over 24 paths: with 5 windows they take 12 and 3 % longer, with 8 7 and 2 %.
const SECOND_PART: f64 = 0.8;
const SECOND_WINDOWS: f64 = 16.0;
/// How far a report may lift the rate above the best goodput, where that is beyond what the train tells, and where so
/// much more arrives that the train was too low; and how much more tells that it knew nothing. Source: downloads of 10
/// MB in a guest whose sender takes 60 us for a packet, so that trains tell .76 of 200 Mbit/s with 40 ms: with no bound
/// beyond 1.2 one BDP of queue lost 3.6 % in two runs of three, with this nothing. Simulated, 170 disturbed paths: 2.0 %
/// lost for 2.3, and the same used; 266 others the same.
const BEYOND_TRAIN: f64 = 1.15;
const TRAIN_LOW: f64 = 1.2;
const BEYOND_LOW_TRAIN: f64 = 1.5;
const TRAIN_WRONG: f64 = 2.0;

/// Growth per RTT of a restart. Source: upstream's growth.
const RESTART_GAIN: f64 = 1.5;
/// Loss beyond the path's own that does not end a restart. Source: simulated, a thousand flows on 2.5 packets each:
/// where a restart may lose 10 %, as a start, one of them takes a sixth of the path from those who yield to their
/// losses.
const RESTART_LOSS: f64 = 0.02;

/// Where to go on, over the best goodput; and over the rate, if no goodput is known. Source: simulated on
/// 24 paths; 0.95 took 1 % longer for downloads of 10 MB, at the same loss.
const LEAVE: f64 = 0.98;
/// Slope, s/s, that is certainly the queue's.
const STEEP: f64 = 0.1;
const BLIND_CUT: f64 = 0.5;

/// What a report means for the fast start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing yet.
    Wait(Reason),
    /// The slots held too few ACKs to tell: send longer ones at the same rate.
    Longer,
    /// Go on at a higher rate.
    Grow(Rate, Reason),
    /// The path is full: leave at this rate.
    Leave(Rate, Reason),
}

/// What a restart has beyond a first start.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// The path's own losses when it began.
    known_loss: f32,
    /// It grows with the first plan.
    at_once: bool,
    /// All of the path is the flow's.
    on_own_path: bool,
}

/// State of the fast start.
#[derive(Clone, Debug)]
pub struct Startup {
    best: Rate,
    /// The last slot had a hint of a slope.
    hinted: bool,
    restart: Option<Restart>,
    /// When the rate last grew.
    grown: Micros,
    recent: Recent,
    train: Train,
    /// What the train tells the path carries, until more arrives; zero for nothing.
    path: Rate,
    watch: Watch,
    /// Packets of which the slots told so far, and those that were lost.
    pkts: f32,
    lost_pkts: f32,
    /// Half of the initial window was lost.
    in_crowd: bool,
    others: Others,
}

impl Startup {
    /// Begins at this time.
    #[must_use]
    pub fn new(now: Micros) -> Self {
        Self {
            best: Rate::ZERO,
            hinted: false,
            restart: None,
            grown: now,
            recent: Recent::default(),
            train: Train::default(),
            path: Rate::ZERO,
            watch: Watch::default(),
            pkts: 0.0,
            lost_pkts: 0.0,
            in_crowd: false,
            others: Others::default(),
        }
    }

    /// Begins its second RTT at this time, on a path of which the ACKs of the initial window tell the rate, and where so
    /// many others take what they can get.
    #[must_use]
    pub fn on_path(now: Micros, path: Option<Rate>, others: u32) -> Self {
        Self {
            path: path.unwrap_or(Rate::ZERO),
            others: Others::of(others),
            ..Self::new(now)
        }
    }

    /// Begins at this time, after half of the initial window was lost.
    #[must_use]
    pub fn in_crowd(now: Micros) -> Self {
        Self {
            in_crowd: true,
            ..Self::new(now)
        }
    }

    /// Goes on after a long RTT has ended a start and so much of it has shown to be no queue.
    #[must_use]
    pub fn resumed(now: Micros, foreign: Micros) -> Self {
        Self {
            watch: Watch::knowing(foreign),
            ..Self::new(now)
        }
    }

    /// The long RTT that ends it. A restart has none: its rate is the path's, whatever its RTT.
    #[must_use]
    pub fn long_rtt(&self, mi: &Mi, est: &Estimator) -> LongRtt {
        match mi.rtt.filter(|_| self.restart.is_none()) {
            Some(rtt) => self.watch.ended_by(&rtt, est),
            None => LongRtt::default(),
        }
    }

    /// Takes ACKs of the initial window, and whether all that was sent is acknowledged now; returns what they are with
    /// those before.
    pub fn note_acks(&mut self, now: Micros, mi: &Mi, over: bool) -> Train {
        let rtt = mi.rtt.map(|rtt| rtt.min);
        self.train.note(now, mi.delivered_pkts, rtt, over);
        self.train.note_lost(mi.lost_pkts);
        self.train
    }

    /// The rate of the second RTT, if the path's is known; with an initial window per RTT of `window_rate`. Among
    /// others no less than where it is not known.
    #[must_use]
    pub fn second_rate(&self, window_rate: Rate) -> Option<Rate> {
        let carried = self.path()? * SECOND_PART;
        let part = self.others.part_of(carried).max(window_rate * FIRST_GAIN);
        Some(part.min(carried).min(window_rate * SECOND_WINDOWS))
    }

    /// What the train tells the path carries, if it did and no more has arrived.
    fn path(&self) -> Option<Rate> {
        (self.path > Rate::ZERO).then_some(self.path)
    }

    /// A planned rate, as far as the path is known to carry it.
    #[must_use]
    pub fn within_path(&self, rate: Rate) -> Rate {
        self.path().map_or(rate, |path| rate.min(path))
    }

    /// A restart, which grows more carefully than a first start; on a path that is known to be wider with the first
    /// plan, since the present rate has arrived.
    #[must_use]
    pub fn again(est: &Estimator, at_once: bool) -> Self {
        Self::restart(est, at_once, false)
    }

    /// A restart of a flow that has all of its path, which has become wider: what it ends with is what the path
    /// carries.
    #[must_use]
    pub fn wider(est: &Estimator) -> Self {
        Self::restart(est, true, true)
    }

    fn restart(est: &Estimator, at_once: bool, on_own_path: bool) -> Self {
        Self {
            restart: Some(Restart {
                known_loss: est.loss_floor() as f32,
                at_once,
                on_own_path,
            }),
            ..Self::new(est.now())
        }
    }

    /// Whether what it ends with is what the path carries.
    #[must_use]
    pub fn is_on_own_path(&self) -> bool {
        self.restart.is_some_and(|restart| restart.on_own_path)
    }

    /// Whether the first plan grows from its first slot on.
    #[must_use]
    pub fn grows_at_once(&self) -> bool {
        self.restart.is_some_and(|restart| restart.at_once)
    }

    /// Others to the same address know this of the path.
    pub fn hear(&mut self, known: Known) {
        self.others.hear(known, self.is_on_own_path());
    }

    /// How many others take what they can get, as far as was heard.
    #[must_use]
    pub fn others(&self) -> u32 {
        self.others.active()
    }

    /// The smallest RTT that others know, if that was heard since the last time.
    pub fn heard_rtt_min(&mut self) -> Option<Micros> {
        self.others.take_rtt_min()
    }

    /// What a newcomer begins with where others fill the path already, as its first ACKs show.
    #[must_use]
    pub fn share_at_once(&self, rtt: &RttStats, est: &Estimator) -> Option<Rate> {
        let is_full = est.mean_queue(rtt) > tolerated_queue(est);
        let least = self.others.least();
        (is_full && least > Rate::ZERO).then_some(least)
    }

    /// Growth per RTT.
    #[must_use]
    pub fn gain(&self, params: &Params) -> f64 {
        let gain = params.startup_gain;
        self.restart.map_or(gain, |_| gain.min(RESTART_GAIN))
    }

    /// Loss that does not end it: a first start does not know the path's own, a restart does.
    fn loss_tolerance(&self, params: &Params) -> f64 {
        let unknown = params.startup_loss_tolerance.get();
        self.restart.map_or(unknown, |restart| {
            unknown.min(f64::from(restart.known_loss) + RESTART_LOSS)
        })
    }

    /// Judges one report. `rate` is the current rate.
    pub fn on_mi(
        &mut self,
        mi: &Mi,
        est: &Estimator,
        rate: Rate,
        pkt_bytes: f64,
        params: &Params,
    ) -> Verdict {
        let recent = self.recent.note(est, pkt_bytes);
        let enough = mi.samples >= MIN_SAMPLES;
        if mi.asked.is_some() && enough {
            self.best = self.best.max(mi.goodput.min(mi.send_rate));
        }
        let tolerated_loss = self.loss_tolerance(params);
        let signs = Signs {
            mi,
            est,
            pkt_bytes,
            tolerated_loss,
            foreign: self.watch.foreign(),
            again: self.hinted,
            in_crowd: self.in_crowd,
        };
        if enough {
            self.hinted = signs::slope_hint(mi);
        }
        self.pkts += mi.pkts() as f32;
        self.lost_pkts += mi.lost_pkts as f32;
        let (pkts, lost_pkts) = (self.pkts.into(), self.lost_pkts.into());
        let crowded = signs::is_crowded(pkts, lost_pkts, tolerated_loss);
        if let Some(reason) = signs.full().or(crowded.then_some(Reason::FullLoss)) {
            if reason == Reason::FullQueue && self.is_watched(mi, est) {
                // A rate that is held is no plateau.
                let ramp = est.srtt() * LONGEST_RAMP_RTTS;
                self.grown = self.grown.max(est.now() - ramp);
                return Verdict::Wait(Reason::Watch);
            }
            let mut rate = self.leaving_rate(mi, rate, reason);
            rate = rate.min(self.others.most(self.path()).unwrap_or(Rate::MAX));
            if !mi.limited {
                rate = rate.max(self.others.least());
            }
            return Verdict::Leave(rate, reason);
        }
        let elapsed = est.now() - self.grown;
        if elapsed > est.srtt() * PLATEAU_RTTS && self.recent.is_full() {
            // ACKs that come together tell of more than was ever sent.
            let arrived = self.best.max(mi.goodput.min(rate));
            return Verdict::Leave(self.within_part(arrived * CEILING), Reason::Plateau);
        }
        if mi.slot == Slot::Hold && mi.samples < MIN_SAMPLES {
            return Verdict::Longer;
        }
        if mi.asked.is_none() || !enough || mi.stalled {
            return Verdict::Wait(Reason::Wait);
        }
        let (part, reason) = signs::growth(mi, self.hinted);
        let gain = libm::log2(self.gain(params)) * part;
        let recently = recent.unwrap_or(Rate::MAX) * OVER_GOODPUT;
        let next = self.grown_by(gain, mi, est, rate).min(recently);
        let next = self.within_reach(next);
        let next = self.within_part(next);
        if next <= rate {
            return Verdict::Wait(Reason::AppLimited);
        }
        self.grown = est.now();
        Verdict::Grow(next, reason)
    }

    /// The rate after so many octaves per RTT since what arrived now was sent, or since the rate last grew.
    fn grown_by(&self, gain: f64, mi: &Mi, est: &Estimator, rate: Rate) -> Rate {
        // What was sent an RTT and a slot ago has arrived: by now the rate may have grown for so long.
        let lumps = 1.0 + mi.pkts_per_ack() / mi.pkts().max(1.0);
        let rtts = 1.0 + mi.sent_for / est.srtt();
        let confirmed = mi.send_rate * (libm::exp2(gain * rtts) * lumps);
        let elapsed = (est.now() - self.grown) / est.srtt();
        let by_time = rate * libm::exp2(gain * elapsed.min(LONGEST_RAMP_RTTS));
        confirmed.min(by_time)
    }

    /// As much of this as what the train tells and what arrived allow; far more than that shows that the train was wrong.
    fn within_reach(&mut self, rate: Rate) -> Rate {
        let Some(path) = self.path() else {
            return rate;
        };
        let arrived = |times| self.best > path * times;
        if arrived(TRAIN_WRONG) {
            self.path = Rate::ZERO;
            return rate;
        }
        let beyond = if arrived(TRAIN_LOW) {
            BEYOND_LOW_TRAIN
        } else {
            BEYOND_TRAIN
        };
        rate.min(path.max(self.best * beyond))
    }

    /// As much of this as a flow that starts again may have among others: its part.
    fn within_part(&self, rate: Rate) -> Rate {
        let shares = self.restart.is_some() && !self.is_on_own_path();
        match self.others.part() {
            Some(part) if shares => rate.min(part),
            _ => rate,
        }
    }

    /// Whether a long RTT is no sign yet, and the rate is held: for a first start whose path's rate is not known, and
    /// that has lost nothing.
    fn is_watched(&mut self, mi: &Mi, est: &Estimator) -> bool {
        let careful = self.path().is_some() || self.restart.is_some() || self.lost_pkts > 0.0;
        mi.rtt
            .is_some_and(|rtt| !careful && self.watch.holds(&rtt, tolerated_queue(est), est))
    }

    /// Where to go on after the fast start.
    fn leaving_rate(&self, mi: &Mi, rate: Rate, reason: Reason) -> Rate {
        let arrived = if mi.samples >= MIN_SAMPLES {
            mi.goodput
        } else {
            Rate::ZERO
        };
        let measured = self.best.max(arrived);
        if measured == Rate::ZERO {
            return rate * BLIND_CUT;
        }
        if mi.asked.is_none() || arrived == Rate::ZERO {
            // Packets of an older rate met a queue already; behind a queue, ACKs are spaced at the capacity.
            return rate.min(measured * LEAVE);
        }
        // A queue that grows tells the capacity, too.
        let slope = mi.rtt.map_or(0.0, |rtt| rtt.slope);
        let by_slope = if slope > STEEP {
            mi.send_rate * (1.0 / (1.0 + slope))
        } else {
            Rate::ZERO
        };
        let rate = if reason == Reason::FullLoss {
            mi.goodput.min(rate)
        } else {
            self.best.max(by_slope).min(mi.send_rate)
        };
        rate * if mi.pkts() < 8.0 { 0.7 } else { LEAVE }
    }
}

#[cfg(test)]
mod tests;
