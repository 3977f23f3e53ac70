//! Reno (RFC 5681, with RFC 9002's way to count): slow start, one packet more per RTT, half on loss;
//! down to the half by PRR (RFC 6937).

use crate::control::{Ack, Controller, Sending, paced};
use crate::prr::Prr;

const INITIAL_WINDOW: u64 = 10; // RFC 6928
const MIN_WINDOW: u64 = 2;

/// Reno congestion control.
#[derive(Clone, Debug)]
pub struct Reno {
    cwnd: u64,
    ssthresh: u64,
    /// Packets acknowledged towards the next packet of window.
    credit: u64,
    srtt_ns: u64,
    recovery: Option<Prr>,
    /// Whether a timeout has come and no ACK since.
    timed_out: bool,
    before_loss: (u64, u64),
}

impl Default for Reno {
    fn default() -> Self {
        Self {
            cwnd: INITIAL_WINDOW,
            ssthresh: u64::MAX,
            credit: 0,
            srtt_ns: 0,
            recovery: None,
            timed_out: false,
            before_loss: (INITIAL_WINDOW, u64::MAX),
        }
    }
}

impl Controller for Reno {
    fn sending(&self) -> Sending {
        Sending {
            cwnd: self.cwnd,
            rate: paced(self.cwnd, self.ssthresh, self.srtt_ns),
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.srtt_ns = ack.srtt_ns;
        self.timed_out = false;
        if let Some(recovery) = &mut self.recovery {
            if ack.in_recovery {
                self.cwnd = recovery.window(ack).unwrap_or(self.cwnd);
                return;
            }
            self.recovery = None;
            self.cwnd = self.ssthresh;
        }
        if self.cwnd < self.ssthresh {
            // A paced flow need not fill its window to deserve the next one.
            if ack.window_limited || self.cwnd < 2 * ack.prior_in_flight {
                self.cwnd = (self.cwnd + ack.delivered).min(self.ssthresh);
            }
        } else if ack.window_limited {
            self.credit += ack.delivered;
            while self.credit >= self.cwnd {
                self.credit -= self.cwnd;
                self.cwnd += 1;
            }
        }
    }

    fn on_loss(&mut self, _: u64, in_flight: u64) {
        self.reduce();
        self.recovery = Some(Prr::new(self.before_loss.0, self.ssthresh));
        self.cwnd = in_flight + 1;
    }

    fn on_spurious_loss(&mut self) {
        let (cwnd, ssthresh) = self.before_loss;
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.recovery = None;
    }

    fn on_timeout(&mut self, _: u64) {
        // One reduction for a loss, however often its repair fails.
        if self.recovery.take().is_none() && !self.timed_out {
            self.reduce();
        }
        self.timed_out = true;
        self.cwnd = 1;
    }
}

impl Reno {
    fn reduce(&mut self) {
        self.before_loss = (self.cwnd, self.ssthresh);
        self.ssthresh = (self.cwnd / 2).max(MIN_WINDOW);
        self.credit = 0;
    }
}
