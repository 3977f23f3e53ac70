//! Cubic: RFC 9438, and what Linux (6.12, `tcp_cubic.c`) makes of it.
//!
//! After a loss at window W_max the window is reduced to 0.7 W_max and then follows
//! W(t) = C (t - K)³ + W_max, K = ∛(W_max (1 - 0.7) / C): fast back towards W_max, flat around it,
//! then ever faster. Where Reno's growth would be faster (short RTTs, small windows), it follows an
//! estimate of that.
//!
//! Slow start is left early by HyStart, as in Linux for a paced flow: when the smallest RTT of a
//! round, of at least eight, is an eighth (4 to 16 ms) above the smallest of all, or when a train of
//! ACKs, none more than 2 ms after the last, goes on for longer than the smallest RTT. The window
//! comes down by PRR.
//!
//! Linux is slower than the RFC where losses are frequent, and so is [`Cubic::default`], because that
//! is what flows meet: its estimate of Reno grows by 0.53 packets per RTT forever, not by 1 once it is back
//! where the reduction began. Before the first loss it grows by at least 5 % per RTT. [`Cubic::rfc9438`] does neither.

use crate::control::{Ack, Controller, Sending, paced};
use crate::prr::Prr;
use crate::{MILLISECOND, seconds};

/// Growth of the cubic, packets/s³ (RFC 9438 §5.1).
const C: f64 = 0.4;
/// What a loss leaves of the window: 0.7 (RFC 9438 §4.6), as Linux writes it.
const BETA: f64 = 717.0 / 1024.0;
/// Reno's additive increase for that reduction (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Linux' growth per RTT before the first loss, at least.
const FIRST_GROWTH: f64 = 0.05;
const INITIAL_WINDOW: f64 = 10.0; // RFC 6928
const MIN_WINDOW: f64 = 2.0;

/// HyStart looks only at windows of at least so many packets, at so many samples of a round.
const HYSTART_LOW_WINDOW: f64 = 16.0;
const HYSTART_SAMPLES: u32 = 8;
/// Largest gap within a train of ACKs, and what a train may last beyond the smallest RTT.
const HYSTART_GAP_NS: u64 = 2 * MILLISECOND;
const HYSTART_TRAIN_NS: u64 = MILLISECOND;
const HYSTART_DELAY_NS: std::ops::RangeInclusive<u64> = 4 * MILLISECOND..=16 * MILLISECOND;

#[derive(Clone, Copy, Debug)]
struct Epoch {
    start_ns: u64,
    /// Time from the epoch's start to W_max, s.
    k: f64,
    origin: f64,
    /// What Reno would have.
    reno: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct HyStart {
    round_end: u64,
    round_start_ns: u64,
    last_ns: u64,
    samples: u32,
    round_min_ns: u64,
    min_ns: u64,
}

/// Cubic congestion control. The window is kept in packets and fractions of them.
#[derive(Clone, Debug)]
pub struct Cubic {
    linux: bool,
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    epoch: Option<Epoch>,
    hystart: HyStart,
    srtt_ns: u64,
    limited_ns: u64,
    recovery: Option<Prr>,
    /// Whether a timeout has come and no ACK since.
    timed_out: bool,
    /// Window, threshold, W_max.
    before_loss: (f64, f64, f64),
}

impl Default for Cubic {
    /// As in Linux.
    fn default() -> Self {
        Self {
            linux: true,
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::MAX,
            w_max: 0.0,
            epoch: None,
            hystart: HyStart::default(),
            srtt_ns: 0,
            limited_ns: 0,
            recovery: None,
            timed_out: false,
            before_loss: (INITIAL_WINDOW, f64::MAX, 0.0),
        }
    }
}

impl Cubic {
    /// As in the RFC.
    pub fn rfc9438() -> Self {
        Self {
            linux: false,
            ..Self::default()
        }
    }

    fn slow_start(&mut self, ack: &Ack) {
        if ack.window_limited || self.cwnd < 2.0 * ack.prior_in_flight as f64 {
            self.cwnd = (self.cwnd + ack.delivered as f64).min(self.ssthresh);
        }
        let Some(rtt_ns) = ack.rtt_ns else { return };
        let hystart = &mut self.hystart;
        hystart.min_ns = if hystart.min_ns == 0 {
            rtt_ns
        } else {
            hystart.min_ns.min(rtt_ns)
        };
        if ack.acked_to >= hystart.round_end {
            hystart.round_end = ack.next_segment;
            (hystart.round_start_ns, hystart.last_ns) = (ack.now_ns, ack.now_ns);
            hystart.samples = 0;
            hystart.round_min_ns = u64::MAX;
        }
        let mut full = false;
        if ack.now_ns - hystart.last_ns <= HYSTART_GAP_NS {
            hystart.last_ns = ack.now_ns;
            full = ack.now_ns - hystart.round_start_ns > hystart.min_ns + HYSTART_TRAIN_NS;
        }
        hystart.round_min_ns = hystart.round_min_ns.min(rtt_ns);
        if hystart.samples < HYSTART_SAMPLES {
            hystart.samples += 1;
        } else {
            let (low, high) = (*HYSTART_DELAY_NS.start(), *HYSTART_DELAY_NS.end());
            let threshold_ns = hystart.min_ns + (hystart.min_ns / 8).clamp(low, high);
            full |= hystart.round_min_ns > threshold_ns;
        }
        if full && self.cwnd >= HYSTART_LOW_WINDOW {
            self.ssthresh = self.cwnd;
        }
    }

    fn avoid_congestion(&mut self, ack: &Ack) {
        let cwnd = self.cwnd;
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| {
            let (k, origin) = if cwnd < w_max {
                (libm::cbrt((w_max - cwnd) / C), w_max)
            } else {
                (0.0, cwnd)
            };
            Epoch {
                start_ns: ack.now_ns,
                k,
                origin,
                reno: cwnd,
            }
        });
        let t = seconds(ack.now_ns.saturating_sub(epoch.start_ns));
        let (k, origin) = (epoch.k, epoch.origin);
        let cubic = |t: f64| C * (t - k) * (t - k) * (t - k) + origin;
        let delivered = ack.delivered as f64;
        // As fast as Reno proper from where the last reduction began (RFC 9438 §4.3).
        let alpha = if epoch.reno >= w_max && !self.linux {
            1.0
        } else {
            ALPHA
        };
        epoch.reno += alpha * delivered / cwnd;
        let least = if self.linux && w_max == 0.0 {
            cwnd * (1.0 + FIRST_GROWTH)
        } else {
            cwnd
        };
        let target = cubic(t + seconds(ack.srtt_ns)).clamp(least, 1.5 * cwnd);
        self.cwnd += (target - cwnd) / cwnd * delivered;
        if cubic(t) < epoch.reno {
            self.cwnd = self.cwnd.max(epoch.reno);
        }
    }

    fn reduce(&mut self) {
        self.before_loss = (self.cwnd, self.ssthresh, self.w_max);
        // Fast convergence: a flow that did not get back to its last maximum leaves room.
        self.w_max = if self.cwnd < self.w_max {
            self.cwnd * (1.0 + BETA) / 2.0
        } else {
            self.cwnd
        };
        // Whole packets: the part of one that is lost counts at small windows.
        self.ssthresh = libm::floor(libm::floor(self.cwnd) * BETA).max(MIN_WINDOW);
        self.epoch = None;
    }
}

impl Controller for Cubic {
    fn sending(&self) -> Sending {
        let cwnd = self.cwnd as u64;
        Sending {
            cwnd,
            rate: paced(cwnd, self.ssthresh as u64, self.srtt_ns),
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.srtt_ns = ack.srtt_ns;
        self.timed_out = false;
        if let Some(recovery) = &mut self.recovery {
            if ack.in_recovery {
                let window = recovery.window(ack);
                self.cwnd = window.map_or(self.cwnd, |packets| packets as f64);
                return;
            }
            self.recovery = None;
            self.cwnd = self.ssthresh;
        }
        if self.cwnd < self.ssthresh {
            self.slow_start(ack);
        } else if ack.window_limited {
            self.limited_ns = ack.now_ns;
            self.avoid_congestion(ack);
        } else if let Some(epoch) = &mut self.epoch {
            // Time in which the window was not used is not time in which it may grow.
            epoch.start_ns += ack
                .now_ns
                .saturating_sub(self.limited_ns.max(epoch.start_ns));
            self.limited_ns = ack.now_ns;
        }
    }

    fn on_loss(&mut self, _: u64, in_flight: u64) {
        self.reduce();
        self.recovery = Some(Prr::new(self.before_loss.0 as u64, self.ssthresh as u64));
        self.cwnd = (in_flight + 1) as f64;
    }

    fn on_spurious_loss(&mut self) {
        let (cwnd, ssthresh, w_max) = self.before_loss;
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.w_max = w_max;
        self.epoch = None;
        self.recovery = None;
    }

    fn on_timeout(&mut self, _: u64) {
        // One reduction for a loss, however often its repair fails.
        if self.recovery.take().is_none() && !self.timed_out {
            self.reduce();
        }
        self.timed_out = true;
        self.cwnd = 1.0;
        self.w_max = 0.0; // begins anew from where slow start ends (RFC 9438 §4.8)
        self.epoch = None;
        self.hystart = HyStart::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9438 §4.2: from 0.7 W_max back to W_max in K seconds, and as far above after 2 K.
    #[test]
    fn the_window_follows_the_cubic() {
        let mut cubic = Cubic::default();
        (cubic.cwnd, cubic.ssthresh) = (1000.0, 1000.0);
        cubic.on_timeout(0);
        (cubic.cwnd, cubic.w_max) = (cubic.ssthresh, 1000.0);
        assert_eq!(cubic.sending().cwnd, 700);
        let k = libm::cbrt(300.0 / C);
        let rtt_ns = 100 * MILLISECOND;
        let mut window_at = [0.0; 2];
        for ms in 0..(2.0 * k * 1000.0) as u64 {
            let ack = Ack {
                now_ns: ms * MILLISECOND,
                delivered: (cubic.cwnd / 100.0) as u64,
                srtt_ns: rtt_ns,
                window_limited: true,
                ..Ack::default()
            };
            cubic.on_ack(&ack);
            window_at[usize::from(ms as f64 >= k * 1000.0)] = cubic.cwnd;
        }
        assert!((window_at[0] - 1000.0).abs() < 3.0, "{window_at:?}");
        assert!((window_at[1] - 1300.0).abs() < 10.0, "{window_at:?}");
    }

    #[test]
    fn a_second_loss_below_the_maximum_leaves_room() {
        let mut cubic = Cubic::default();
        (cubic.cwnd, cubic.ssthresh) = (1000.0, 1000.0);
        cubic.reduce();
        cubic.cwnd = cubic.ssthresh;
        cubic.reduce();
        assert!((cubic.w_max - 595.0).abs() < 0.1, "{}", cubic.w_max);
        assert_eq!(cubic.ssthresh, 490.0);
    }
}
