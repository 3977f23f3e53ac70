//! The other end: counts what arrives and decides when to acknowledge.
//!
//! As in Linux: in order every second packet, or after a delay; at once when a gap is filled, and for
//! the first three packets above one; after them, while the gap stays, once per compression time.

use crate::scenario::AckPolicy;
use std::collections::VecDeque;

/// The first packets of a flow are acknowledged one by one, as Linux does while a window opens.
const QUICK_ACKS: u64 = 16;
/// ACKs at once above a gap: enough to show a loss (RFC 5681).
const DUPLICATE_ACKS: u32 = 3;
/// Packets that a compressed ACK covers at most (`tcp_comp_sack_nr`).
const MAX_COMPRESSED: u32 = 44;
/// A compressed ACK may be late by this part of the RTT.
const COMPRESSION_RTT_PARTS: u64 = 20;

/// A packet in the network: the number of its transmission, its segment, and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packet {
    pub(crate) tx: u64,
    pub(crate) segment: u64,
    pub(crate) sent_ns: u64,
}

/// What to do after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Acknowledge all arrivals before this one, by number.
    Ack(u64),
    /// Start a timer with this number, that takes so many ns.
    Delay(u64, u64),
    /// The timer is running.
    Wait,
}

pub(crate) struct Receiver {
    policy: AckPolicy,
    compression_ns: u64,
    /// All segments below have arrived.
    next: u64,
    /// Whether those from `next` on have.
    above: VecDeque<bool>,
    unacked: u32,
    /// ACKs at once since `next` last moved.
    duplicate_acks: u32,
    /// Whether the timer runs for a compressed ACK.
    compressing: bool,
    acks: u64,
    arrivals: u64,
    /// Arrivals in order that no ACK at the sender has covered yet, and the number of the first.
    acked: VecDeque<Packet>,
    acked_from: u64,
}

impl Receiver {
    /// A receiver that is so far from its sender, ns.
    pub(crate) fn new(policy: AckPolicy, rtt_ns: u64) -> Self {
        Self {
            policy,
            compression_ns: policy.compression_ns.min(rtt_ns / COMPRESSION_RTT_PARTS),
            next: 0,
            above: VecDeque::new(),
            unacked: 0,
            duplicate_acks: 0,
            compressing: false,
            acks: 0,
            arrivals: 0,
            acked: VecDeque::new(),
            acked_from: 0,
        }
    }

    /// Takes a packet; also says whether its segment is new.
    pub(crate) fn arrive(&mut self, packet: Packet) -> (bool, Answer) {
        self.arrivals += 1;
        self.acked.push_back(packet);
        self.unacked += 1;
        let (next, gap) = (self.next, !self.above.is_empty());
        let new = self.insert(packet.segment);
        let advanced = self.next > next;
        if advanced {
            self.duplicate_acks = 0;
        }
        let answer = if !new || (gap && self.above.is_empty()) {
            self.ack() // a packet that was not needed, or one that filled the gap (RFC 5681 §4.2)
        } else if self.above.is_empty() {
            self.in_order()
        } else {
            self.above_a_gap()
        };
        (new, answer)
    }

    fn in_order(&mut self) -> Answer {
        if self.unacked >= self.policy.every || self.arrivals <= QUICK_ACKS {
            self.ack()
        } else if self.unacked == 1 {
            Answer::Delay(self.acks, self.policy.delay_ns)
        } else {
            Answer::Wait
        }
    }

    fn above_a_gap(&mut self) -> Answer {
        if self.duplicate_acks < DUPLICATE_ACKS
            || self.compression_ns == 0
            || self.unacked >= MAX_COMPRESSED
        {
            self.duplicate_acks += 1;
            self.ack()
        } else if std::mem::replace(&mut self.compressing, true) {
            Answer::Wait
        } else {
            Answer::Delay(self.acks, self.compression_ns)
        }
    }

    fn insert(&mut self, segment: u64) -> bool {
        let Some(offset) = segment.checked_sub(self.next) else {
            return false;
        };
        let offset = offset as usize;
        if self.above.len() <= offset {
            self.above.resize(offset + 1, false);
        }
        let new = !std::mem::replace(&mut self.above[offset], true);
        while self.above.front() == Some(&true) {
            self.above.pop_front();
            self.next += 1;
        }
        new
    }

    fn ack(&mut self) -> Answer {
        self.acks += 1;
        self.unacked = 0;
        self.compressing = false;
        Answer::Ack(self.arrivals)
    }

    /// The timer with this number has run out; `None` if its packets were acknowledged meanwhile.
    pub(crate) fn delayed(&mut self, number: u64) -> Option<Answer> {
        (number == self.acks && self.unacked > 0).then(|| self.ack())
    }

    /// When an ACK that is made now may leave.
    pub(crate) fn release_ns(&self, now_ns: u64) -> u64 {
        match self.policy.aggregation_ns {
            0 => now_ns,
            grid => now_ns.next_multiple_of(grid),
        }
    }

    /// The packets that an ACK tells the sender of, in order of arrival: those before this number that no other
    /// ACK has told it of. An ACK covers those that were lost before it, and one that was overtaken nothing.
    pub(crate) fn take(&mut self, before: u64) -> impl Iterator<Item = Packet> + '_ {
        let count = before.saturating_sub(self.acked_from);
        self.acked_from += count;
        self.acked.drain(..count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;

    const RTT_NS: u64 = 40 * MILLISECOND;
    const DELAY_NS: u64 = 40 * MILLISECOND;

    fn receiver() -> Receiver {
        Receiver::new(AckPolicy::default(), RTT_NS)
    }

    #[test]
    fn every_second_packet_and_every_odd_one_is_acknowledged() {
        let mut receiver = receiver();
        let mut arrive = |segment| {
            receiver.arrive(Packet {
                tx: 0,
                segment,
                sent_ns: 0,
            })
        };
        for segment in 0..QUICK_ACKS {
            assert_eq!(arrive(segment), (true, Answer::Ack(segment + 1)));
        }
        assert_eq!(arrive(16), (true, Answer::Delay(16, DELAY_NS)));
        assert_eq!(arrive(17), (true, Answer::Ack(18)));
        assert_eq!(arrive(19), (true, Answer::Ack(19)));
        assert_eq!(arrive(20), (true, Answer::Ack(20)));
        assert_eq!(arrive(20), (false, Answer::Ack(21)));
        assert_eq!(arrive(18), (true, Answer::Ack(22)));
        assert_eq!(arrive(3), (false, Answer::Ack(23)));
        assert_eq!(receiver.delayed(20), None);
        receiver.arrive(Packet {
            tx: 9,
            segment: 21,
            sent_ns: 0,
        });
        assert_eq!(receiver.delayed(22), Some(Answer::Ack(24)));
        assert_eq!(receiver.next, 22);
    }

    /// Linux: three ACKs at once, then one per millisecond, until the gap is filled.
    #[test]
    fn acks_above_a_gap_are_compressed() {
        let mut receiver = receiver();
        for segment in 0..QUICK_ACKS {
            receiver.arrive(Packet {
                tx: 0,
                segment,
                sent_ns: 0,
            });
        }
        let mut answers = (17..23).map(|segment| {
            receiver
                .arrive(Packet {
                    tx: 0,
                    segment,
                    sent_ns: 0,
                })
                .1
        });
        let acks: Vec<_> = answers.by_ref().take(3).collect();
        assert_eq!(acks, [17, 18, 19].map(Answer::Ack));
        assert_eq!(answers.next(), Some(Answer::Delay(19, MILLISECOND)));
        assert_eq!(answers.next(), Some(Answer::Wait));
        drop(answers);
        assert_eq!(receiver.delayed(19), Some(Answer::Ack(21)));
        let filled = receiver.arrive(Packet {
            tx: 0,
            segment: 16,
            sent_ns: 0,
        });
        assert_eq!(filled, (true, Answer::Ack(22)));
    }

    #[test]
    fn an_ack_covers_those_that_were_lost_before_it() {
        let mut receiver = receiver();
        for segment in 0..5 {
            receiver.arrive(Packet {
                tx: 0,
                segment,
                sent_ns: 0,
            });
        }
        let segments = |packets: Vec<Packet>| packets.iter().map(|p| p.segment).collect::<Vec<_>>();
        assert_eq!(segments(receiver.take(1).collect()), [0]);
        assert_eq!(segments(receiver.take(4).collect()), [1, 2, 3]);
        assert_eq!(segments(receiver.take(2).collect()), []);
        assert_eq!(segments(receiver.take(5).collect()), [4]);
    }
}
