//! The upstream kernel module's decisions, for comparison (`--upstream-compat`).
//!
//! ```text
//!   U = throughput x (1 - 25 dRTT/dt - 25 L)
//!
//!   START ---------> FAST ------------------> PROBE <-----------------> MOVE
//!     x 1.5 while U    + max(1 packet/RTT,      two pairs at +-5 %;       one step per interval along the
//!     rises, at most     5 %) per interval        both agree: move          gradient, until it turns
//!     2 x throughput
//!                        ^--- few packets per RTT ---|
//! ```
//!
//! This is the *intent* of `tcp_pk3c_main.c`, as its comments and constants give it, on this datapath's exact
//! attribution of ACKs to intervals; what the module computes differs in places (wrong variables, 32-bit overflows,
//! ACKs credited to the wrong rate). It is therefore kind to the module. Its handbrakes: in START, throughput below a
//! third of the rate ends it at 1.5 times the throughput, and the rate stays below twice the throughput; elsewhere,
//! more than 5 % loss cuts the rate to 3/4, or to 8/9 in the lower quarter of the rates seen, and then not for 40
//! intervals.
//!
//! Limits, which are the module's: utility is linear in the rate, so from 4 % of loss on it is negative, and a fair
//! share is no better than another.

use crate::handbrake::View;
use crate::plan::Reason;
use crate::units::{Micros, Rate};
use rand::Rng;

/// Weight of loss and of the RTT gradient. Source: upstream `loss_penalty`, `rtt_penalty`.
const PENALTY: f64 = 25.0;
/// A smaller gradient counts as none. Source: upstream latency filter.
const GRADIENT_FLOOR: f64 = 0.01;
/// Growth in START, its bound over the throughput, and loss that it forgives.
const START_GAIN: f64 = 1.5;
const START_OVER_THROUGHPUT: f64 = 2.0;
const START_LOSS: f64 = 0.10;
/// Throughput below this part of the rate ends START, at this many times the throughput.
const START_LAG: f64 = 1.0 / 3.0;
const START_LAG_RATE: f64 = 1.5;
/// FAST: growth per interval; losses that end it.
const FAST_GROWTH: f64 = 0.05;
const FAST_LOSSES: f64 = 6.0;
/// Packets per RTT at which FAST begins and ends. Source: upstream T enter, T exit.
const FAST_ENTER_PKTS: f64 = 15.0;
const FAST_EXIT_PKTS: f64 = 25.0;
/// Distance of a trial, grown by itself after undecided rounds. Upstream has no bound, which is an error of it.
const PROBE_STEP: f64 = 0.05;
const PROBE_STEP_MAX: f64 = 0.10;
/// MOVE: step per gradient, B/s; smallest amplifier, steps before it grows; bound of a step, its growth; least step.
const STEP: f64 = 1e5;
const AMPLIFIER_MIN: f64 = 2.0;
const SWING_BUFFER: f64 = 2.0;
const CHANGE_BOUND: f64 = 0.05;
const CHANGE_BOUND_STEP: f64 = 0.001;
const CHANGE_MIN: f64 = 0.022;
/// The loss handbrake: limit, packets, cuts, and intervals until the next.
const CUT_LOSS: f64 = 0.05;
const CUT_MIN_PKTS: f64 = 12.0;
const CUT: f64 = 0.75;
const CUT_LOW: f64 = 8.0 / 9.0;
const CUT_HOLDOFF: u32 = 40;
const CUT_HOLDOFF_LOW: u32 = 4;
const START_HOLDOFF: u32 = 3;
/// Packets of an interval, at least.
const INTERVAL_PKTS: f64 = 15.0;
/// Slowest rate, B/s. Source: upstream MIN_RATE_LIMIT.
const MIN_RATE: Rate = Rate::from_bytes_per_sec(25e3);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Start {
        last_utility: Option<f64>,
    },
    Fast,
    Probe {
        high_first: [bool; 2],
        scores: [Option<f64>; 4],
    },
    /// Pair (rate in B/s, utility) of the last interval, direction, steps in it, hits of the bound.
    Move {
        last: (f64, f64),
        direction: f64,
        steps: f64,
        hits: f64,
    },
    /// One interval after a cut, which is not judged.
    Settle,
}

/// The state of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    rate: Rate,
    stage: Stage,
    spread: f64,
    throughput: Rate,
    last_throughput: Rate,
    slowest: Rate,
    fastest: Rate,
    holdoff: u32,
}

impl Upstream {
    /// Begins with START, or with PROBE for a flow that is `running`.
    #[must_use]
    pub fn new(rate: Rate, running: bool, rng: &mut impl Rng) -> Self {
        let mut new = Self {
            rate,
            stage: Stage::Start { last_utility: None },
            spread: PROBE_STEP,
            throughput: Rate::ZERO,
            last_throughput: Rate::ZERO,
            slowest: rate,
            fastest: rate,
            holdoff: 0,
        };
        if running {
            new.probe(rng);
        }
        new
    }

    /// The central rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Length of an interval.
    #[must_use]
    pub fn interval(&self, srtt: Micros, pkt_bytes: f64) -> Micros {
        srtt.max(self.rate.time_for(INTERVAL_PKTS * pkt_bytes))
    }

    /// The rates to send now.
    #[must_use]
    pub fn trials(&self) -> [Rate; 4] {
        let Stage::Probe { high_first, .. } = self.stage else {
            return [self.rate; 4];
        };
        let (high, low) = (
            self.rate * (1.0 + self.spread),
            self.rate * (1.0 - self.spread),
        );
        let pair = |high_first| if high_first { [high, low] } else { [low, high] };
        let [[a, b], [c, d]] = high_first.map(pair);
        [a, b, c, d]
    }

    /// Takes interval `index` (0 to 3; 4 for a later one) of the present plan. Returns the reason of the next plan when
    /// one is due.
    pub fn on_mi(&mut self, index: usize, view: &View<'_>, rng: &mut impl Rng) -> Option<Reason> {
        let mi = view.mi;
        let Some(asked) = mi.judged_rate() else {
            return (index >= 4).then(|| {
                self.probe_unless_starting(rng);
                Reason::ProbeRepeat
            });
        };
        self.remember(mi.goodput.min(mi.send_rate), mi.lost_pkts);
        self.holdoff = self.holdoff.saturating_sub(1);
        let handbrake = !matches!(
            self.stage,
            Stage::Start { .. } | Stage::Fast | Stage::Settle
        ) && self.holdoff == 0
            && mi.pkts() > CUT_MIN_PKTS
            && mi.loss() > CUT_LOSS;
        if handbrake {
            return Some(self.cut());
        }
        let reason = match self.stage {
            Stage::Start { last_utility } => self.start(last_utility, view, rng),
            Stage::Fast => self.fast(view, rng),
            Stage::Settle => {
                self.probe(rng);
                Reason::Probe
            }
            Stage::Probe { .. } => return self.score(index, view, rng),
            Stage::Move { .. } => self.step(asked, view, rng),
        };
        Some(reason)
    }

    fn remember(&mut self, arrived: Rate, lost_pkts: f64) {
        if lost_pkts < 1.0 {
            self.last_throughput = self.throughput;
        }
        self.throughput = if arrived < MIN_RATE {
            self.rate * 0.5
        } else {
            arrived
        };
        if self.slowest < self.fastest * 0.5 {
            self.slowest = self.slowest * (1.0 + 1.0 / 300.0);
        }
        if self.fastest > self.slowest * 2.0 {
            self.fastest = self.fastest * 0.9;
        }
        self.slowest = self.slowest.min(self.rate);
        self.fastest = self.fastest.max(self.rate);
    }

    fn best_throughput(&self) -> Rate {
        self.throughput.max(self.last_throughput)
    }

    fn cut(&mut self) -> Reason {
        // The middle of the rates seen, less a quarter of their range.
        let quarter = self.slowest.bytes_per_sec() * 0.75 + self.fastest.bytes_per_sec() * 0.25;
        let low = self.rate.bytes_per_sec() <= quarter;
        let factor = if low { CUT_LOW } else { CUT };
        self.rate = (self.rate * factor).max(MIN_RATE.min(self.rate));
        self.holdoff = if low { CUT_HOLDOFF_LOW } else { CUT_HOLDOFF };
        self.stage = Stage::Settle;
        Reason::LossCut
    }

    fn start(&mut self, last: Option<f64>, view: &View<'_>, rng: &mut impl Rng) -> Reason {
        let loss = view.mi.loss();
        let loss = if loss < START_LOSS { 0.0 } else { loss };
        let utility = self.rate.bytes_per_sec() * (1.0 - PENALTY * loss);
        let best = self.best_throughput();
        if best < self.rate * START_LAG && best * 2.0 >= MIN_RATE {
            self.rate = (best * START_LAG_RATE).max(MIN_RATE);
        } else if last.is_none_or(|last| utility > last) {
            let next = (self.rate * START_GAIN).min(best * START_OVER_THROUGHPUT);
            if next > self.rate {
                self.rate = next;
                self.stage = Stage::Start {
                    last_utility: Some(utility),
                };
                return Reason::Grow;
            }
            self.rate = best;
        } else {
            self.rate = best;
        }
        self.holdoff = START_HOLDOFF;
        self.stage = Stage::Fast;
        if self.pkts_per_rtt(view) >= FAST_EXIT_PKTS {
            self.probe(rng);
        }
        Reason::FullLoss
    }

    fn pkts_per_rtt(&self, view: &View<'_>) -> f64 {
        self.rate.bytes_in(view.est.srtt()) / view.pkt_bytes
    }

    fn fast(&mut self, view: &View<'_>, rng: &mut impl Rng) -> Reason {
        let lost = view.mi.lost_pkts;
        if lost < 1.0 {
            let packet = Rate::from_bytes_in(view.pkt_bytes, view.est.srtt());
            self.rate = self.rate + packet.max(self.rate * FAST_GROWTH);
        }
        if lost > FAST_LOSSES || self.pkts_per_rtt(view) >= FAST_EXIT_PKTS {
            self.probe(rng);
            return Reason::Probe;
        }
        Reason::Climb
    }

    fn probe(&mut self, rng: &mut impl Rng) {
        self.stage = Stage::Probe {
            high_first: [rng.random(), rng.random()],
            scores: [None; 4],
        };
    }

    fn probe_unless_starting(&mut self, rng: &mut impl Rng) {
        if !matches!(self.stage, Stage::Start { .. } | Stage::Fast) {
            self.probe(rng);
        }
    }

    fn score(&mut self, index: usize, view: &View<'_>, rng: &mut impl Rng) -> Option<Reason> {
        let Stage::Probe { high_first, scores } = &mut self.stage else {
            return None;
        };
        *scores.get_mut(index)? = Some(utility(view));
        if index < 3 {
            return None;
        }
        let high_first = *high_first;
        let [Some(a), Some(b), Some(c), Some(d)] = *scores else {
            self.probe(rng);
            return Some(Reason::ProbeRepeat);
        };
        let gain =
            |high_first: bool, one: f64, two: f64| if high_first { one - two } else { two - one };
        let (first, second) = (gain(high_first[0], a, b), gain(high_first[1], c, d));
        if first * second <= 0.0 {
            self.spread = (self.spread + PROBE_STEP).min(PROBE_STEP_MAX);
            if self.pkts_per_rtt(view) < FAST_ENTER_PKTS {
                self.stage = Stage::Fast;
                return Some(Reason::ClimbStart);
            }
            self.probe(rng);
            return Some(Reason::ProbeAgain);
        }
        let direction = first.signum();
        self.rate = (self.rate * (1.0 + self.spread * direction)).max(MIN_RATE.min(self.rate));
        // The mean utility of the winners belongs to the winning rate.
        let winner = |pair: usize, one: f64, two: f64| {
            if high_first[pair] == (direction > 0.0) {
                one
            } else {
                two
            }
        };
        let mean = (winner(0, a, b) + winner(1, c, d)) / 2.0;
        self.spread = PROBE_STEP;
        self.stage = Stage::Move {
            last: (
                self.rate.bytes_per_sec() * (1.0 - direction * PROBE_STEP),
                mean - direction,
            ),
            direction,
            steps: 0.0,
            hits: 0.0,
        };
        Some(if direction > 0.0 {
            Reason::MoveUp
        } else {
            Reason::MoveDown
        })
    }

    fn step(&mut self, asked: Rate, view: &View<'_>, rng: &mut impl Rng) -> Reason {
        let Stage::Move {
            last,
            direction,
            steps,
            hits,
        } = self.stage
        else {
            return Reason::Wait;
        };
        let now = (asked.bytes_per_sec(), utility(view));
        let gap = now.0 - last.0;
        let gradient = if gap.abs() < now.0 * 0.02 {
            0.0
        } else {
            (now.1 - last.1) / gap
        };
        if gradient * direction <= 0.0 && steps > 0.0 {
            self.probe(rng);
            return Reason::MoveOver;
        }
        let amplifier = AMPLIFIER_MIN + (steps - SWING_BUFFER).max(0.0);
        let bound = self.rate.bytes_per_sec() * (CHANGE_BOUND + CHANGE_BOUND_STEP * hits);
        let wanted = gradient.abs() * STEP * amplifier;
        let change = wanted
            .min(bound)
            .max(self.rate.bytes_per_sec() * CHANGE_MIN);
        let next = self.rate.bytes_per_sec() + direction * change;
        self.rate = Rate::from_bytes_per_sec(next).max(MIN_RATE.min(self.rate));
        self.stage = Stage::Move {
            last: now,
            direction,
            steps: steps + 1.0,
            hits: if wanted > bound { hits + 1.0 } else { 0.0 },
        };
        if direction > 0.0 {
            Reason::MoveUp
        } else {
            Reason::MoveDown
        }
    }

    /// Moves the rate into the controller's bounds.
    pub fn bound(&mut self, low: Rate, high: Rate) {
        self.rate = self.rate.within(low, high);
    }
}

/// Throughput x (1 - 25 g - 25 L), B/s. A falling RTT is rewarded.
fn utility(view: &View<'_>) -> f64 {
    let slope = view.mi.rtt.map_or(0.0, |rtt| rtt.slope);
    let slope = if slope.abs() < GRADIENT_FLOOR {
        0.0
    } else {
        slope
    };
    let throughput = view.mi.goodput.min(view.mi.send_rate).bytes_per_sec();
    throughput * (1.0 - PENALTY * slope - PENALTY * view.mi.loss())
}

#[cfg(test)]
mod tests;
