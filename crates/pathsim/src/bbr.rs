//! BBR, version 1, as Linux (6.12, `tcp_bbr.c`) has it.
//!
//! ```text
//!   bw      = max of the delivery rates of 10 round trips        pacing rate = gain × bw × 0.99
//!   min_rtt = min of the RTTs of 10 s                            window      = gain × bw × min_rtt, and some bursts
//!
//!   STARTUP ──(bw grows by less than a quarter in 3 rounds)──▶ DRAIN ──(in flight ≤ bw × min_rtt)──▶ PROBE_BW
//!      pacing 2.89, window 2.89           pacing 1/2.89                    pacing 1.25, 0.75, 1, 1, 1, 1, 1, 1; window 2
//!
//!   any ──(min_rtt is 10 s old)──▶ PROBE_RTT: 4 packets in flight for 200 ms and a round trip ──▶ STARTUP or PROBE_BW
//! ```
//!
//! It does not answer losses: in a recovery it sends for one round trip what was delivered, and then again what the
//! model says. The exception is a policer ([`policer`]): two intervals that lose a fifth at the same rate show one, and
//! that rate is then kept.
//!
//! Beside the kernel's: chance is seeded, rates are floats, and a restart after an idle time is not told apart, so that
//! a flow that sends chunks measures its RTT more often. There is no `EDT` to look ahead to: what the pacer holds back
//! has not been sent.

mod aggregation;
mod bandwidth;
mod policer;

use crate::control::{Ack, Controller, RateSample, Sending, burst};
use crate::{MILLISECOND, MSS, SECOND, seconds};
use aggregation::Aggregation;
use bandwidth::Bandwidth;
use policer::Policer;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// 2 / ln 2, and a little more: the smallest gain that doubles what is delivered per round trip.
const HIGH_GAIN: f64 = 2.885;
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
const WINDOW_GAIN: f64 = 2.0;
/// Pacing gains of PROBE_BW, each for a smallest RTT: first more, then less by as much, then what the path has.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// What is paced is a hundredth below the estimate, so that no queue is left.
const PACING_MARGIN: f64 = 0.99;
const INITIAL_WINDOW: u64 = 10; // RFC 6928
/// Window of PROBE_RTT, and the smallest of all.
const MIN_WINDOW: u64 = 4;
/// Segments of a burst for which the window has room.
const BURST_MAX: u64 = 127;
const MIN_RTT_WINDOW_NS: u64 = 10 * SECOND;
const PROBE_RTT_NS: u64 = 200 * MILLISECOND;
/// The path is full when the rate has not grown by this factor in so many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// RTT from which the first rate is made.
const FIRST_RTT_NS: u64 = MILLISECOND;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    /// Number of the gain, and since when it is used.
    ProbeBw {
        phase: usize,
        since_ns: u64,
    },
    /// When it may end, once the queue is drained, and whether a round has passed since.
    ProbeRtt {
        until_ns: Option<u64>,
        round_done: bool,
    },
}

/// What is done about losses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Repair {
    None,
    /// In a recovery; for its first round what is delivered is sent.
    Recovery {
        conserving: bool,
    },
    Timeout,
}

/// BBR congestion control.
#[derive(Clone, Debug)]
pub struct Bbr {
    mode: Mode,
    bandwidth: Bandwidth,
    policer: Policer,
    aggregation: Aggregation,
    /// Smallest RTT, and when it was seen.
    min_rtt: Option<(u64, u64)>,
    /// The best rate when the path last looked fuller, packets/s, and rounds since.
    full: (f64, u32),
    full_reached: bool,
    /// Deliveries of a packet sent in the next round, at least.
    next_round: u64,
    cwnd: u64,
    /// Window before PROBE_RTT or a recovery.
    prior_cwnd: u64,
    repair: Repair,
    /// Pacing rate, bytes/s; the first one is of an RTT that is guessed.
    rate: f64,
    knows_rtt: bool,
    rng: ChaCha8Rng,
}

impl Bbr {
    /// A flow that chooses where its gains begin by this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            mode: Mode::Startup,
            bandwidth: Bandwidth::default(),
            policer: Policer::default(),
            aggregation: Aggregation::default(),
            min_rtt: None,
            full: (0.0, 0),
            full_reached: false,
            next_round: 0,
            cwnd: INITIAL_WINDOW,
            prior_cwnd: 0,
            repair: Repair::None,
            rate: first_rate(FIRST_RTT_NS),
            knows_rtt: false,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// The rate of the model, packets/s.
    fn bw(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.bandwidth.max())
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw { .. } if self.policer.rate().is_some() => 1.0,
            Mode::ProbeBw { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw { .. } => WINDOW_GAIN,
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    /// Packets of `gain` bandwidth-delay products.
    fn bdp(&self, bw: f64, gain: f64) -> u64 {
        self.min_rtt.map_or(INITIAL_WINDOW, |(rtt_ns, _)| {
            libm::ceil(gain * bw * seconds(rtt_ns)) as u64
        })
    }

    /// The same with room for what hosts collect: three bursts, an even number, two packets more while probing.
    fn in_flight(&self, bw: f64, gain: f64) -> u64 {
        let room = self.bdp(bw, gain) + 3 * burst(self.rate as u64).min(BURST_MAX);
        let probing = matches!(self.mode, Mode::ProbeBw { phase: 0, .. });
        room.next_multiple_of(2) + if probing { 2 } else { 0 }
    }

    fn enter_probe_bw(&mut self, now_ns: u64) {
        // Never with the gain that drains what was not built up.
        let phase = (CYCLE.len() - self.rng.random_range(0..CYCLE.len() - 1)) % CYCLE.len();
        self.mode = Mode::ProbeBw {
            phase,
            since_ns: now_ns,
        };
    }

    fn cycle(&mut self, ack: &Ack) {
        let Mode::ProbeBw { phase, since_ns } = self.mode else {
            return;
        };
        let min_rtt_ns = self.min_rtt.map_or(0, |(rtt_ns, _)| rtt_ns);
        let full_length = ack.now_ns - since_ns > min_rtt_ns;
        let bw = self.bandwidth.max();
        let gain = self.pacing_gain();
        let next = if gain > 1.0 {
            // Until the queue shows it, or the path does not hold it.
            full_length && (ack.lost > 0 || ack.prior_in_flight >= self.in_flight(bw, gain))
        } else if gain < 1.0 {
            full_length || ack.prior_in_flight <= self.in_flight(bw, 1.0)
        } else {
            full_length
        };
        if next {
            self.mode = Mode::ProbeBw {
                phase: (phase + 1) % CYCLE.len(),
                since_ns: ack.now_ns,
            };
        }
    }

    fn check_full(&mut self, sample: &RateSample) {
        if self.full_reached || sample.app_limited {
            return;
        }
        let bw = self.bandwidth.max();
        let (best, rounds) = &mut self.full;
        if bw >= *best * FULL_GROWTH {
            self.full = (bw, 0);
            return;
        }
        *rounds += 1;
        self.full_reached = *rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.full_reached {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.in_flight(self.bandwidth.max(), 1.0) {
            self.enter_probe_bw(ack.now_ns);
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack, round_start: bool) {
        let now_ns = ack.now_ns;
        let expired = self
            .min_rtt
            .is_some_and(|(_, at)| now_ns > at + MIN_RTT_WINDOW_NS);
        if let Some(rtt_ns) = ack.rtt_ns
            && (expired || self.min_rtt.is_none_or(|(known, _)| rtt_ns < known))
        {
            self.min_rtt = Some((rtt_ns, now_ns));
        }
        if expired && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.mode = Mode::ProbeRtt {
                until_ns: None,
                round_done: false,
            };
            self.save_window();
        }
        let Mode::ProbeRtt {
            until_ns,
            round_done,
        } = &mut self.mode
        else {
            return;
        };
        self.bandwidth.limit(ack.total_delivered, ack.in_flight);
        match until_ns {
            None if ack.in_flight <= MIN_WINDOW => {
                *until_ns = Some(now_ns + PROBE_RTT_NS);
                self.next_round = ack.total_delivered;
            }
            None => {}
            Some(until_ns) => {
                *round_done |= round_start;
                if *round_done && now_ns > *until_ns {
                    self.leave_probe_rtt(now_ns);
                }
            }
        }
    }

    fn leave_probe_rtt(&mut self, now_ns: u64) {
        if let Some((_, at)) = &mut self.min_rtt {
            *at = now_ns;
        }
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        if self.full_reached {
            self.enter_probe_bw(now_ns);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn save_window(&mut self) {
        let steady = self.repair == Repair::None && !matches!(self.mode, Mode::ProbeRtt { .. });
        self.prior_cwnd = if steady {
            self.cwnd
        } else {
            self.prior_cwnd.max(self.cwnd)
        };
    }

    fn set_rate(&mut self, ack: &Ack) {
        if !self.knows_rtt && ack.srtt_ns > 0 {
            self.knows_rtt = true;
            self.rate = first_rate(ack.srtt_ns);
        }
        let rate = self.bw() * self.pacing_gain() * PACING_MARGIN * MSS as f64;
        if self.full_reached || rate > self.rate {
            self.rate = rate;
        }
    }

    /// Follows the recovery; returns whether the window is settled by it.
    fn repair(&mut self, ack: &Ack, round_start: bool) -> bool {
        if ack.lost > 0 {
            self.cwnd = self.cwnd.saturating_sub(ack.lost).max(1);
        }
        let now = match (self.repair, ack.in_recovery, ack.after_timeout) {
            (Repair::Recovery { conserving }, true, _) => Repair::Recovery {
                conserving: conserving && !round_start,
            },
            (_, true, _) => {
                self.next_round = ack.total_delivered;
                self.cwnd = ack.in_flight + ack.delivered;
                Repair::Recovery { conserving: true }
            }
            (_, _, true) => Repair::Timeout,
            (Repair::None, ..) => Repair::None,
            (..) => {
                self.cwnd = self.cwnd.max(self.prior_cwnd);
                Repair::None
            }
        };
        self.repair = now;
        let conserving = now == Repair::Recovery { conserving: true };
        if conserving {
            self.cwnd = self.cwnd.max(ack.in_flight + ack.delivered);
        }
        conserving
    }

    fn set_window(&mut self, ack: &Ack, round_start: bool) {
        if ack.delivered > 0 && !self.repair(ack, round_start) {
            let bw = self.bw();
            let extra = if self.full_reached {
                self.aggregation.packets(bw)
            } else {
                0
            };
            let gain = self.window_gain();
            let target = match self.min_rtt {
                Some(_) => self.in_flight(bw, gain) + extra,
                None => INITIAL_WINDOW,
            };
            if self.full_reached {
                self.cwnd = (self.cwnd + ack.delivered).min(target);
            } else if self.cwnd < target || ack.total_delivered < INITIAL_WINDOW {
                self.cwnd += ack.delivered;
            }
            self.cwnd = self.cwnd.max(MIN_WINDOW);
        }
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.cwnd = self.cwnd.min(MIN_WINDOW);
        }
    }
}

impl Controller for Bbr {
    fn sending(&self) -> Sending {
        Sending {
            cwnd: self.cwnd,
            rate: Some((self.rate as u64).max(1)),
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        let mut round_start = false;
        if let Some(sample) = &ack.sample {
            round_start = sample.prior_delivered >= self.next_round;
            if round_start {
                self.next_round = ack.total_delivered;
            }
            let steady = matches!(self.mode, Mode::ProbeBw { .. });
            if self.policer.on_sample(ack, sample, round_start, steady) {
                self.enter_probe_bw(ack.now_ns);
            }
            self.bandwidth.on_sample(sample, round_start);
            let (bw, cwnd) = (self.bw(), self.cwnd);
            self.aggregation.on_ack(ack, bw, cwnd, round_start);
            self.cycle(ack);
            if round_start {
                self.check_full(sample);
            }
        }
        self.check_drain(ack);
        self.update_min_rtt(ack, round_start);
        self.set_rate(ack);
        self.set_window(ack, round_start);
    }

    fn on_loss(&mut self, _: u64, _: u64) {
        self.save_window();
    }

    fn on_spurious_loss(&mut self) {
        self.full = (0.0, 0);
        self.policer.reset();
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    fn on_timeout(&mut self, _: u64) {
        self.save_window();
        self.repair = Repair::Timeout;
        self.full = (0.0, 0);
        self.cwnd = 1;
    }
}

/// The rate of an initial window per RTT in STARTUP, bytes/s.
fn first_rate(rtt_ns: u64) -> f64 {
    HIGH_GAIN * (INITIAL_WINDOW * MSS) as f64 / seconds(rtt_ns)
}
