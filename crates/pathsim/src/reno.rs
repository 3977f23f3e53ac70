//! Reno (RFC 5681, with RFC 9002's way to count): slow start, one packet more per RTT, half on loss.

use crate::control::{Ack, Controller, Sending, paced};

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
    before_loss: (u64, u64),
}

impl Default for Reno {
    fn default() -> Self {
        Self {
            cwnd: INITIAL_WINDOW,
            ssthresh: u64::MAX,
            credit: 0,
            srtt_ns: 0,
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
        if ack.in_recovery {
            return;
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

    fn on_loss(&mut self, _: u64) {
        self.before_loss = (self.cwnd, self.ssthresh);
        self.ssthresh = (self.cwnd / 2).max(MIN_WINDOW);
        self.cwnd = self.ssthresh;
        self.credit = 0;
    }

    fn on_spurious_loss(&mut self) {
        let (cwnd, ssthresh) = self.before_loss;
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
    }

    fn on_timeout(&mut self, now_ns: u64) {
        self.on_loss(now_ns);
        self.cwnd = 1;
    }
}
