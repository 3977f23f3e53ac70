//! The core: PCC Vivace's online learning (Dong et al., NSDI 2018), without any handbrake.
//!
//! ```text
//!   U(x) = x^0.9 - 900 x max(0, dRTT/dt) - 11.35 x L        x in Mbit/s
//!
//!              two pairs agree                    gradient keeps its sign
//!   PROBE  ------------------------>  MOVE  ----------------------------+
//!     ^  trials x(1 + e), x(1 - e)      |  one rate per round,          |
//!     |                                 |  step ~ gradient, amplified <-+
//!     +---------------------------------+
//!              gradient flips: back to the last good rate
//! ```
//!
//! PROBE sends two pairs of trials and compares their utility. If both pairs say the same direction, the flow MOVEs
//! that way: each step is the utility gradient times a confidence amplifier that grows while the direction holds, and
//! bounded by a share of the rate that grows while the bound is hit.
//!
//! Why it converges: U is strictly concave in x, so flows that share a bottleneck have one fair equilibrium. Four
//! choices here differ from the paper. The order of trials is mirrored, H L L H or L H H L at random, so that a linear
//! drift of the path cancels between the pairs. The step scales with the root of the rate (1 Mbit/s at 20 Mbit/s, as in
//! the paper): it works at 1 Mbit/s and at 1 Gbit/s, yet small flows grow relatively faster. Trials are 3 % apart from
//! the rate, not 5 %, since half of that distance is capacity left unused. Undecided probes widen only up to a limit
//! and move the rate by up to 1 %, so that flows do not lock in step.
//!
//! On a narrow path no single interval of MOVE holds a rise of the RTT that stands out, while the queue of several
//! steps together is long. So what has come to stand there since the trials that chose the direction counts as well.
//!
//! Where a handbrake has gone back from a full queue (loss, overshoot), the rate is known that filled it: the edge.
//! Steps towards it go half of the way, and beyond it each as far again as those before, until it is passed by a tenth:
//! a flow that comes back in strides of a quarter fills a small buffer every twenty RTTs, and those who climb beside it
//! lose as often, with far less time to regain what they lost. The smallest of these steps is a packet per RTT,
//! whatever the rate. Beside others (see [`crate::handbrake::sharing`]) a flow that has only filled the queue comes
//! back by that (or 1 % of a large rate) alone, from the trials' centre on: what is given up is a part of the rate, and
//! equal additions with that make flows equal (Chiu and Jain, 1989), while half of the way is a part of the rate again,
//! and leaves them as they are.
//!
//! Limits: one decision costs 2 RTTs in MOVE and about 5 in PROBE; below some 15 packets per RTT its gradients are
//! noise (see [`crate::aimd`]). An interval that was not sent in full is never judged.

mod score;
pub mod start;

use crate::params::{Core, Params};
use crate::plan::Reason;
use crate::units::{Micros, Rate};
use rand::Rng;
pub use score::Score;

/// Distance of a trial from the rate it probes in the bare core. Source: Vivace, section 4.
const PAPER_PROBE_STEP: f64 = 0.05;
/// The smallest step, as a part of the rate. Source: half the least difference upstream tells apart.
const MIN_STEP: f64 = 0.01;
/// How far an undecided probe moves the rate at most, either way.
const JITTER: f64 = 0.01;
/// How much further apart undecided probes try.
const PROBE_WIDEN: f64 = 0.01;
/// Part of the way to the edge that a step goes, and how far beyond it that is forgotten. Source:
/// simulated, 40 paths with 2 to 8 flows at .02 to 1.5 BDP: Jain .884 to .900, loss over Cubic's 1.59 to 1.49.
const EDGE_PART: f64 = 0.5;
const EDGE_PASSED: f64 = 1.1;
/// The smallest step near the edge is no larger part of the rate. Source: a trial's distance.
const NEAR_EDGE_MAX: f64 = 0.03;
/// Confirmations after which the amplifier grows by two per step. Source: Vivace, section 4.2.
const AMPLIFIER_KNEE: f64 = 3.0;

/// The distance of a trial; the paper's for the bare core.
fn probe_step(params: &Params) -> f64 {
    if params.core() == Core::Vivace {
        PAPER_PROBE_STEP
    } else {
        params.probe_step.get()
    }
}

/// Bounds of the central rate and its steps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Smallest.
    pub low: Rate,
    /// Largest.
    pub high: Rate,
    /// The smallest step near the edge.
    pub near_edge: Rate,
    /// Others share the path.
    pub shared: bool,
}

/// What filled the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// What arrived then.
    pub rate: Rate,
    /// Packets were lost, not only RTTs longer.
    pub lost: bool,
}

impl Edge {
    /// Whether a flow comes back to it by equal additions.
    fn is_added_to(self, limits: Limits) -> bool {
        limits.shared && !self.lost
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Probe {
        /// Whether the first trial is the higher one.
        high_first: bool,
        /// (Mbit/s, utility) of the trials judged so far.
        scores: [Option<(f64, f64)>; 4],
        /// Their smallest mean RTT, [`Micros::MAX`] before the first.
        calm: Micros,
    },
    Move {
        /// (Mbit/s, utility) that the next judgement is compared with.
        last: (f64, f64),
        /// +1 or -1.
        direction: f64,
        /// Steps in this direction.
        confirmed: f64,
        /// How often the change bound was hit, less how often it was not.
        bound_hits: f64,
        /// The smallest mean RTT of the trials that chose the direction.
        calm: Micros,
    },
}

/// The learner.
#[derive(Clone, Debug, PartialEq)]
pub struct Vivace {
    rate: Rate,
    spread: f64,
    stage: Stage,
    /// What filled the queue.
    edge: Option<Edge>,
}

impl Vivace {
    /// Begins with a probe around `rate`.
    #[must_use]
    pub fn new(rate: Rate, params: &Params, rng: &mut impl Rng) -> Self {
        Self {
            rate,
            spread: probe_step(params),
            stage: Self::probe(rng),
            edge: None,
        }
    }

    fn probe(rng: &mut impl Rng) -> Stage {
        Stage::Probe {
            high_first: rng.random(),
            scores: [None; 4],
            calm: Micros::MAX,
        }
    }

    /// Takes changed parameters.
    pub fn set_params(&mut self, params: &Params) {
        self.spread = self.spread.min(params.probe_step_max.get());
    }

    /// This rate filled the queue: steps towards it go half of the way, those beyond it begin with the smallest.
    pub fn set_edge(&mut self, edge: Option<Edge>) {
        self.edge = edge;
    }

    /// What filled the queue, unless the flow has left that behind.
    #[must_use]
    pub fn edge(&self) -> Option<Edge> {
        self.edge
    }

    /// Goes on from this rate instead.
    pub fn go_back(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// The mean RTT before the present steps.
    #[must_use]
    pub fn calm(&self) -> Option<Micros> {
        match self.stage {
            Stage::Move { calm, .. } => Some(calm),
            Stage::Probe { .. } => None,
        }
    }

    /// The central rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The four rates to send now: a mirrored pair of pairs in PROBE, the same rate four times in MOVE.
    #[must_use]
    pub fn trials(&self) -> [Rate; 4] {
        match self.stage {
            Stage::Probe { high_first, .. } => {
                let (high, low) = (
                    self.rate * (1.0 + self.spread),
                    self.rate * (1.0 - self.spread),
                );
                if high_first {
                    [high, low, low, high]
                } else {
                    [low, high, high, low]
                }
            }
            Stage::Move { .. } => [self.rate; 4],
        }
    }

    /// Takes the score of trial `index` (0 to 3; a later interval at the holding rate counts as 4), or `None` for one
    /// that could not be judged. Returns the reason of the next round when this one is over; [`Vivace::trials`] are
    /// then its rates.
    pub fn judge(
        &mut self,
        index: usize,
        score: Option<Score>,
        limits: Limits,
        params: &Params,
        rng: &mut impl Rng,
    ) -> Option<Reason> {
        let judged = score.map(Score::point);
        match &mut self.stage {
            Stage::Probe { scores, calm, .. } => {
                if let Some(place) = scores.get_mut(index) {
                    *place = judged;
                    *calm = score.map_or(*calm, |score| score.rtt.min(*calm));
                }
                if index < 3 {
                    return None;
                }
                let [Some(a), Some(b), Some(c), Some(d)] = *scores else {
                    self.stage = Self::probe(rng);
                    return Some(Reason::ProbeRepeat);
                };
                let calm = *calm;
                Some(self.after_probe([a, b, c, d], calm, limits, params, rng))
            }
            Stage::Move { .. } => match judged {
                // All four trials and the holding rate are the same: the first that can be judged decides.
                Some(now) => Some(self.after_step(now, limits, params, rng)),
                None if index < 4 => None,
                None => {
                    self.stage = Self::probe(rng);
                    Some(Reason::ProbeRepeat)
                }
            },
        }
    }

    fn after_probe(
        &mut self,
        [a, b, c, d]: [(f64, f64); 4],
        calm: Micros,
        limits: Limits,
        params: &Params,
        rng: &mut impl Rng,
    ) -> Reason {
        let (first, second) = (gradient(a, b), gradient(c, d));
        if first * second <= 0.0 {
            self.spread = (self.spread + PROBE_WIDEN).min(params.probe_step_max.get());
            let jitter = 1.0 + JITTER * rng.random_range(-1.0..1.0);
            self.rate = (self.rate * jitter).within(limits.low, limits.high);
            self.stage = Self::probe(rng);
            return Reason::ProbeAgain;
        }
        let mean = (first + second) / 2.0;
        let direction = mean.signum();
        let centre = self.rate.mbit();
        let trials = [a, b, c, d];
        // At a bound the trials are not around the rate.
        let middle = trials.iter().map(|(x, _)| x).sum::<f64>() / 4.0;
        // The reference of the first step is the pair of winning trials: their rate with their utility. There are some,
        // since rates that are all the same have no gradient.
        let winners = trials
            .into_iter()
            .filter(|(x, _)| (x - middle) * direction > 0.0);
        let (sum_x, sum_u, count) = winners.fold((0.0, 0.0, 0.0), |(x, u, n), trial| {
            (x + trial.0, u + trial.1, n + 1.0)
        });
        let last = (sum_x / count, sum_u / count);
        self.spread = probe_step(params);
        self.stage = Stage::Move {
            last,
            direction,
            confirmed: 1.0,
            bound_hits: 0.0,
            calm,
        };
        let added = self.edge.is_some_and(|edge| edge.is_added_to(limits));
        let from = if added && direction > 0.0 {
            centre
        } else {
            last.0
        };
        self.step(from, mean, limits, params);
        if direction > 0.0 {
            Reason::MoveUp
        } else {
            Reason::MoveDown
        }
    }

    fn after_step(
        &mut self,
        now: (f64, f64),
        limits: Limits,
        params: &Params,
        rng: &mut impl Rng,
    ) -> Reason {
        let Stage::Move {
            last,
            direction,
            confirmed,
            ..
        } = &mut self.stage
        else {
            return Reason::Wait;
        };
        let slope = gradient(now, *last);
        if slope * *direction <= 0.0 {
            self.rate = Rate::from_mbit(last.0).within(limits.low, limits.high);
            self.stage = Self::probe(rng);
            return Reason::MoveOver;
        }
        *confirmed += 1.0;
        *last = now;
        let reason = if *direction > 0.0 {
            Reason::MoveUp
        } else {
            Reason::MoveDown
        };
        self.step(now.0, slope, limits, params);
        reason
    }

    /// Moves from `from` (Mbit/s) along the utility gradient.
    fn step(&mut self, from: f64, gradient: f64, limits: Limits, params: &Params) {
        let Stage::Move {
            direction,
            confirmed,
            bound_hits,
            ..
        } = &mut self.stage
        else {
            return;
        };
        let amplifier = if *confirmed <= AMPLIFIER_KNEE {
            *confirmed
        } else {
            2.0 * *confirmed - AMPLIFIER_KNEE
        };
        let unbounded = amplifier * gradient.abs() * params.step_base.mbit() * (from / 20.0).sqrt();
        let bound = params.change_bound.get() + params.change_bound_step.get() * *bound_hits;
        let least = MIN_STEP * from;
        let bound = from * bound.min(params.change_bound_max.get());
        let bound = match self.edge {
            Some(edge) if *direction > 0.0 => {
                let beyond = from - edge.rate.mbit();
                let near = limits.near_edge.mbit();
                bound.min(if edge.is_added_to(limits) {
                    beyond.max(near).max(least)
                } else {
                    let near = near.min(from * NEAR_EDGE_MAX);
                    (-beyond * EDGE_PART).max(beyond).max(near)
                })
            }
            _ => bound,
        };
        let step = if unbounded > bound {
            *bound_hits += 1.0;
            bound
        } else {
            *bound_hits = (*bound_hits - 1.0).max(0.0);
            unbounded.max(least)
        };
        self.rate = Rate::from_mbit(from + *direction * step).within(limits.low, limits.high);
        self.edge = self.edge.filter(|edge| self.rate < edge.rate * EDGE_PASSED);
    }
}

/// Slope between two (rate, utility) points; 0 where the rates are the same.
fn gradient(a: (f64, f64), b: (f64, f64)) -> f64 {
    let difference = a.0 - b.0;
    if difference.abs() < 1e-9 {
        0.0
    } else {
        (a.1 - b.1) / difference
    }
}

#[cfg(test)]
mod tests;
