//! ACKs that come together: by how many packets they run ahead of the rate, which the window then allows for.

use crate::control::Ack;
use crate::seconds;

/// Rounds of each of two halves of the memory.
const ROUNDS: u32 = 5;
/// The window is raised by what so much time delivers, at most.
const LONGEST_S: f64 = 0.1;
/// An epoch ends at so many packets, as a counter of the kernel's does.
const EPOCH_MAX: u64 = 1 << 20;

/// How far ACKs run ahead.
#[derive(Clone, Debug, Default)]
pub(super) struct Aggregation {
    epoch_ns: u64,
    acked: u64,
    /// Most of this half of the memory, and of the one before.
    most: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    /// Packets by which the window is raised, at this rate in packets/s.
    pub(super) fn packets(&self, bw: f64) -> u64 {
        let most = self.most[0].max(self.most[1]);
        most.min((bw * LONGEST_S) as u64)
    }

    pub(super) fn on_ack(&mut self, ack: &Ack, bw: f64, cwnd: u64, round_start: bool) {
        if ack.delivered == 0 {
            return;
        }
        if round_start {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.most = [0, self.most[0]];
            }
        }
        let mut expected = (bw * seconds(ack.now_ns - self.epoch_ns.min(ack.now_ns))) as u64;
        if self.acked <= expected || self.acked + ack.delivered >= EPOCH_MAX {
            (self.acked, self.epoch_ns, expected) = (0, ack.now_ns, 0);
        }
        self.acked += ack.delivered;
        let extra = self.acked.saturating_sub(expected).min(cwnd);
        self.most[0] = self.most[0].max(extra);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;

    #[test]
    fn acks_that_come_together_are_seen_and_forgotten() {
        let mut aggregation = Aggregation::default();
        let mut ack = |ms: u64, delivered, round_start| {
            let ack = Ack {
                now_ns: ms * MILLISECOND,
                delivered,
                ..Ack::default()
            };
            aggregation.on_ack(&ack, 1000.0, 500, round_start);
            aggregation.packets(1000.0)
        };
        // A packet per millisecond, then forty at once after forty.
        assert_eq!(ack(1, 1, false), 1);
        assert_eq!(ack(41, 40, false), 40);
        // Slower than the rate: the epoch ends, and after ten rounds nothing is left but single packets.
        let last = (43..443)
            .step_by(2)
            .map(|ms| ack(ms, 1, ms % 20 == 3))
            .last();
        assert!(last.is_some_and(|packets| packets <= 2), "{last:?}");
    }
}
