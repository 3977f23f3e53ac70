//! CoDel, the pseudo-code of RFC 8289 §5: drops at the head of a queue in which even the shortest wait
//! stays above a target.
//!
//! ```text
//!   every wait ≥ target for an interval  ──▶  dropping: drop one packet, the next after interval / √count
//!   a wait < target, or one packet left  ──▶  not dropping
//! ```
//! The drops come ever faster until the senders give way. A new dropping state soon after the last one
//! begins with the rate of drops at which that one ended. A packet that can be marked (ECN) is, and goes on.

use super::Markable;
use super::queue::{Fifo, Waiting};
use crate::WIRE;
use crate::scenario::CoDel;

/// A new dropping state that begins within so many intervals goes on where the last one ended.
const MEMORY_INTERVALS: u64 = 16;

pub(super) struct Controller {
    codel: CoDel,
    /// When the wait will have been above the target for an interval; `None` while it is not.
    first_above_ns: Option<u64>,
    dropping: bool,
    drop_next_ns: u64,
    /// Packets dropped since dropping began, and when it began.
    count: u64,
    last_count: u64,
}

impl Controller {
    pub(super) fn new(codel: CoDel) -> Self {
        Self {
            codel,
            first_above_ns: None,
            dropping: false,
            drop_next_ns: 0,
            count: 0,
            last_count: 0,
        }
    }

    /// The packet to send next, and whether it is marked. `dropped` takes those that are dropped before it.
    pub(super) fn dequeue<T: Markable>(
        &mut self,
        now_ns: u64,
        queue: &mut Fifo<T>,
        mut dropped: impl FnMut(T),
    ) -> Option<(Waiting<T>, bool)> {
        let (mut packet, mut may_drop) = self.pop(now_ns, queue)?;
        let mut marked = false;
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now_ns >= self.drop_next_ns {
                self.count += 1;
                if packet.packet.is_markable() {
                    marked = true;
                    self.drop_next_ns = self.after(self.drop_next_ns);
                    break;
                }
                dropped(packet.packet);
                (packet, may_drop) = self.pop(now_ns, queue)?;
                self.dropping = may_drop;
                if may_drop {
                    self.drop_next_ns = self.after(self.drop_next_ns);
                }
            }
        } else if may_drop {
            let next = if packet.packet.is_markable() {
                marked = true;
                Some(packet)
            } else {
                dropped(packet.packet);
                self.pop(now_ns, queue).map(|(packet, _)| packet)
            };
            self.dropping = true;
            let more = self.count - self.last_count;
            let recent = now_ns.saturating_sub(self.drop_next_ns)
                < MEMORY_INTERVALS.saturating_mul(self.codel.interval_ns);
            self.count = if more > 1 && recent { more } else { 1 };
            self.last_count = self.count;
            self.drop_next_ns = self.after(now_ns);
            packet = next?;
        }
        Some((packet, marked))
    }

    /// The control law.
    fn after(&self, ns: u64) -> u64 {
        ns + (self.codel.interval_ns as f64 / libm::sqrt(self.count as f64)) as u64
    }

    /// The first packet, and whether the wait allows to drop it.
    fn pop<T>(&mut self, now_ns: u64, queue: &mut Fifo<T>) -> Option<(Waiting<T>, bool)> {
        let Some(first) = queue.pop() else {
            self.first_above_ns = None;
            self.dropping = false;
            return None;
        };
        let short = now_ns - first.since_ns < self.codel.target_ns;
        if short || queue.bytes() <= WIRE {
            self.first_above_ns = None;
            return Some((first, false));
        }
        let first_above_ns = *self
            .first_above_ns
            .get_or_insert(now_ns + self.codel.interval_ns);
        // It was inserted only now if it lies a whole interval ahead.
        Some((first, now_ns >= first_above_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;

    /// A packet's number, and whether it can be marked.
    type Numbered = (u64, bool);

    impl Markable for Numbered {
        fn is_markable(&self) -> bool {
            self.1
        }
    }

    fn packet<T>(since_ns: u64, packet: T) -> Waiting<T> {
        Waiting {
            since_ns,
            bytes: WIRE as u32,
            packet,
        }
    }

    /// Times at which an overfull queue, served once a millisecond, loses packets, ms.
    fn drops(waits_ms: u64, served: u64) -> Vec<u64> {
        acts(waits_ms, served, false).0
    }

    /// The same, and when packets are marked, if they can be.
    fn acts(waits_ms: u64, served: u64, markable: bool) -> (Vec<u64>, Vec<u64>) {
        let mut controller = Controller::new(CoDel::default());
        let mut queue = Fifo::default();
        let (mut drops, mut marks) = (Vec::new(), Vec::new());
        for now_ms in waits_ms..waits_ms + served {
            // Whatever is dropped, the head has waited for so long, and more wait behind it.
            while queue.len() < 20 {
                queue.push(packet(
                    (now_ms - waits_ms) * MILLISECOND,
                    (now_ms, markable),
                ));
            }
            for waiting in queue.iter_mut() {
                waiting.since_ns = (now_ms - waits_ms) * MILLISECOND;
            }
            let next = controller.dequeue(now_ms * MILLISECOND, &mut queue, |_| {
                drops.push(now_ms - waits_ms);
            });
            if next.is_some_and(|(_, marked)| marked) {
                marks.push(now_ms - waits_ms);
            }
        }
        (drops, marks)
    }

    #[test]
    fn a_wait_below_the_target_costs_nothing() {
        assert_eq!(drops(4, 5000), []);
    }

    /// RFC 8289 §3.3: the first drop after an interval, then after 100 / √1, 100 / √2, 100 / √3 ... ms more.
    #[test]
    fn a_standing_queue_loses_packets_by_the_control_law() {
        let found = drops(6, 600);
        let mut expected = vec![100.0, 200.0];
        for count in 2..=found.len() - 1 {
            expected.push(expected[count - 1] + 100.0 / f64::from(count as u32).sqrt());
        }
        assert!(found.len() >= 8, "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (*found as f64 - expected).abs() <= 1.5,
                "{found} for {expected}"
            );
        }
    }

    #[test]
    fn what_can_be_marked_is_marked_when_it_would_be_dropped() {
        assert_eq!(acts(6, 600, true), (vec![], drops(6, 600)));
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        let mut controller = Controller::new(CoDel::default());
        for second in 0..100 {
            let mut queue = Fifo::default();
            for number in [0, 1] {
                queue.push(packet(0, (number, false)));
            }
            let now_ns = (second + 10) * 1000 * MILLISECOND;
            let drop = |packet| panic!("dropped {packet:?}");
            let next = controller.dequeue(now_ns, &mut queue, drop);
            assert_eq!(next.map(|(first, _)| first.packet), Some((0, false)));
        }
    }
}
