//! When the link can begin and end the transmission of a packet.

use super::bucket::Bucket;
use crate::scenario::{RateSchedule, TokenBucket, Trace};
use crate::{SECOND, WIRE};

pub(super) struct Capacity {
    rate: RateSchedule,
    shaper: Option<Bucket>,
    /// The step in force, or the next unused opportunity.
    cursor: u64,
    /// What the opportunity before that has left, bytes: small packets share one, as in mahimahi.
    spare: u64,
    busy_until_ns: u64,
}

impl Capacity {
    pub(super) fn new(rate: RateSchedule, shaper: Option<TokenBucket>) -> Self {
        Self {
            rate,
            shaper: shaper.map(Bucket::new),
            cursor: 0,
            spare: 0,
            busy_until_ns: 0,
        }
    }

    pub(super) fn rate(&self) -> &RateSchedule {
        &self.rate
    }

    /// When the next packet's turn comes, for one that is there now.
    pub(super) fn turn_ns(&self, now_ns: u64) -> u64 {
        match &self.rate {
            RateSchedule::Trace(trace) if self.has_spare(trace, now_ns) => {
                trace.time_ns(self.cursor - 1)
            }
            RateSchedule::Trace(trace) => trace.time_ns(self.cursor.max(trace.first_at(now_ns))),
            RateSchedule::Constant(_) | RateSchedule::Steps(_) => self.busy_until_ns.max(now_ns),
        }
    }

    /// Whether an opportunity that is not over has room.
    fn has_spare(&self, trace: &Trace, now_ns: u64) -> bool {
        self.spare > 0 && trace.time_ns(self.cursor - 1) >= now_ns
    }

    /// Sends a packet, once the shaper lets it; returns when its last bit has left. Rounds down to ns.
    pub(super) fn send(&mut self, now_ns: u64, bytes: u32) -> u64 {
        let turn_ns = self.busy_until_ns.max(now_ns);
        let start = match &mut self.shaper {
            Some(shaper) => shaper.ready_ns(turn_ns, bytes),
            None => turn_ns,
        };
        let bytes = u64::from(bytes.max(1));
        self.busy_until_ns = match &self.rate {
            RateSchedule::Constant(bps) => start + bytes * 8 * SECOND / bps,
            RateSchedule::Steps(steps) => {
                // The bits that are left, over the steps that the packet spans.
                let (mut at, mut bits) = (start, (bytes * 8) as f64);
                loop {
                    let step = self.cursor as usize;
                    let end = steps.get(step + 1).map_or(u64::MAX, |next| next.0);
                    if at >= end {
                        self.cursor += 1;
                        continue;
                    }
                    let bps = steps[step].1 as f64;
                    let needed = (bits * SECOND as f64 / bps) as u64;
                    if at + needed <= end {
                        break at + needed;
                    }
                    bits -= (end - at) as f64 * bps / SECOND as f64;
                    at = end;
                }
            }
            RateSchedule::Trace(trace) => {
                if !self.has_spare(trace, start) {
                    self.cursor = self.cursor.max(trace.first_at(start));
                    self.spare = 0;
                }
                // A packet that is longer than what is left of one goes on in the next.
                let more = bytes.saturating_sub(self.spare).div_ceil(WIRE);
                self.cursor += more;
                self.spare = self.spare + more * WIRE - bytes;
                trace.time_ns(self.cursor - 1)
            }
        };
        self.busy_until_ns
    }
}
