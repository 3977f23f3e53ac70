//! Rate samples as the kernel's `tcp_rate.c` makes them: what was delivered between the last delivery
//! before a packet was sent and its own, over the time that took, and over the time it took to send.

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
}

impl Snapshot {
    pub(super) fn at(now_ns: u64) -> Self {
        Self {
            delivered: 0,
            delivered_ns: now_ns,
            flight_start_ns: now_ns,
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
        let bytes = u128::from((delivered - self.snapshot.delivered) * MSS) * u128::from(SECOND);
        let over = |ns: u64| {
            bytes
                .checked_div(u128::from(ns))
                .map_or(0, |rate| rate as u64)
        };
        (
            over(now_ns.saturating_sub(self.snapshot.delivered_ns)),
            over(self.sent_ns.saturating_sub(self.snapshot.flight_start_ns)),
        )
    }
}
