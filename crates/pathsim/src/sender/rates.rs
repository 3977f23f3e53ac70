//! Rate samples as the kernel's `tcp_rate.c` makes them: what was delivered between the last delivery
//! before a packet was sent and its own, over the time that took, and over the time it took to send.

use crate::control::RateSample;
use crate::{MSS, SECOND};

/// What a packet remembers of the moment it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    /// Packets delivered so far.
    pub(super) delivered: u64,
    /// When the last of them was.
    pub(super) delivered_ns: u64,
    /// Since when the flight was sent.
    pub(super) flight_start_ns: u64,
    /// Whether the application had nothing more to send.
    pub(super) app_limited: bool,
}

impl Snapshot {
    pub(super) fn at(now_ns: u64) -> Self {
        Self {
            delivered: 0,
            delivered_ns: now_ns,
            flight_start_ns: now_ns,
            app_limited: false,
        }
    }
}

/// The newest packet that an ACK delivered.
pub(super) struct Newest {
    pub(super) tx: u64,
    pub(super) sent_ns: u64,
    pub(super) snapshot: Snapshot,
}

impl Newest {
    /// Delivery and send rate in bytes/s; 0 if not known.
    pub(super) fn rates(&self, delivered: u64, now_ns: u64) -> (u64, u64) {
        let (arriving_ns, sending_ns) = self.took_ns(now_ns);
        let bytes = u128::from((delivered - self.snapshot.delivered) * MSS) * u128::from(SECOND);
        let over = |ns: u64| {
            bytes
                .checked_div(u128::from(ns))
                .map_or(0, |rate| rate as u64)
        };
        (over(arriving_ns), over(sending_ns))
    }

    /// How long its flight took to arrive, and to be sent.
    fn took_ns(&self, now_ns: u64) -> (u64, u64) {
        (
            now_ns.saturating_sub(self.snapshot.delivered_ns),
            self.sent_ns.saturating_sub(self.snapshot.flight_start_ns),
        )
    }

    /// The same as one sample. What took less than the smallest RTT was acknowledged before, by a retransmission's
    /// first form.
    pub(super) fn sample(
        &self,
        delivered: u64,
        now_ns: u64,
        min_rtt_ns: u64,
    ) -> Option<RateSample> {
        let snapshot = &self.snapshot;
        let (arriving_ns, sending_ns) = self.took_ns(now_ns);
        let interval_ns = arriving_ns.max(sending_ns);
        (interval_ns > 0 && interval_ns >= min_rtt_ns).then_some(RateSample {
            delivered: delivered - snapshot.delivered,
            prior_delivered: snapshot.delivered,
            interval_ns,
            app_limited: snapshot.app_limited,
        })
    }
}
