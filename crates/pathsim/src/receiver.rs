//! The other end: counts what arrives and decides when to acknowledge.
//!
//! As in Linux: in order every second packet, or after a delay; at once when a gap is filled, and for
//! the first three packets above one; after them, while the gap stays, once per compression time.
//!
//! It also throws away what Linux does: a packet with an older timestamp than the last one in order (PAWS, RFC 7323
//! §5). What fills a gap is sent late, so that everything of before that is still on its way is lost, where packets
//! overtake each other; and what repairs that does the same again.

use crate::MILLISECOND;
use crate::scenario::{AckPolicy, Lie};
use std::collections::VecDeque;

/// The first packets of a flow are acknowledged one by one, as Linux does while a window opens.
const QUICK_ACKS: u64 = 16;
/// ACKs at once above a gap: enough to show a loss (RFC 5681).
const DUPLICATE_ACKS: u32 = 3;
/// Packets that a compressed ACK covers at most (`tcp_comp_sack_nr`).
const MAX_COMPRESSED: u32 = 44;
/// A compressed ACK may be late by this part of the RTT.
const COMPRESSION_RTT_PARTS: u64 = 20;
/// Timestamps tell this, and may be older by so much (`TCP_PAWS_WINDOW`).
const TIMESTAMP_NS: u64 = MILLISECOND;
const PAWS_WINDOW: u64 = 1;

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
    /// `next` when it last acknowledged (Last.ACK.sent), and the timestamp that counts (TS.Recent).
    last_ack: u64,
    recent: u64,
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
    lie: Option<Lie>,
    /// It has claimed all segments below.
    claimed: u64,
}

impl Receiver {
    /// A receiver that is so far from its sender, ns.
    pub(crate) fn new(policy: AckPolicy, rtt_ns: u64, lie: Option<Lie>) -> Self {
        Self {
            policy,
            compression_ns: policy.compression_ns.min(rtt_ns / COMPRESSION_RTT_PARTS),
            next: 0,
            above: VecDeque::new(),
            last_ack: 0,
            recent: 0,
            unacked: 0,
            duplicate_acks: 0,
            compressing: false,
            acks: 0,
            arrivals: 0,
            acked: VecDeque::new(),
            acked_from: 0,
            lie,
            claimed: 0,
        }
    }

    /// Whether it takes a packet for lost that has arrived.
    pub(crate) fn denies(&self, packet: &Packet) -> bool {
        match self.lie {
            Some(Lie::InventLosses(every)) => (packet.tx + 1).is_multiple_of(every.into()),
            _ => false,
        }
    }

    /// So many segments beyond the last one that it got it acknowledges; `None` if it tells what it has got.
    fn ahead(&self) -> Option<u64> {
        match self.lie {
            Some(Lie::Ahead(segments)) => Some(segments.into()),
            _ => None,
        }
    }

    /// Takes a packet; also says whether its segment is new.
    pub(crate) fn arrive(&mut self, packet: Packet) -> (bool, Answer) {
        let stale = self.is_stale(&packet);
        // Of what is thrown away it says only what it has already.
        if !stale || packet.segment < self.next {
            self.arrivals += 1;
            self.acked.push_back(packet);
        }
        if stale {
            return (false, self.ack());
        }
        self.unacked += 1;
        if self.ahead().is_some() {
            let new = packet.segment >= self.next;
            self.next = self.next.max(packet.segment + 1);
            return (new, self.in_order());
        }
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

    /// Whether the packet is older than the last one in order; takes its timestamp if it is that one.
    fn is_stale(&mut self, packet: &Packet) -> bool {
        let timestamp = packet.sent_ns / TIMESTAMP_NS;
        // Linux looks at no timestamp of what lies wholly before the last ACK.
        if (self.last_ack..=self.last_ack + 1).contains(&(packet.segment + 1)) {
            self.recent = self.recent.max(timestamp);
        }
        self.recent > timestamp + PAWS_WINDOW
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
        self.last_ack = self.next;
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
        let now_ns = match self.lie {
            Some(Lie::SwayRtt(most_ns, period_ns)) => now_ns + sway_ns(now_ns, most_ns, period_ns),
            _ => now_ns,
        };
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

    /// Below which segment an ACK claims that everything has arrived, in place of [`Self::take`]; `None` for the ACKs
    /// of a receiver that tells what it has got, and for one that was overtaken.
    pub(crate) fn claim(&mut self, before: u64) -> Option<u64> {
        let ahead = self.ahead()?;
        let last = self.take(before).map(|packet| packet.segment).max()?;
        self.claimed = self.claimed.max(last + 1 + ahead);
        Some(self.claimed)
    }

    /// Whether its ACKs are claims.
    pub(crate) fn is_claiming(&self) -> bool {
        self.ahead().is_some()
    }
}

/// From 0 to the most and back, once a period.
fn sway_ns(now_ns: u64, most_ns: u64, period_ns: u64) -> u64 {
    let phase = now_ns % period_ns;
    let rising = phase.min(period_ns - phase);
    (u128::from(most_ns) * 2 * u128::from(rising) / u128::from(period_ns)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;

    const RTT_NS: u64 = 40 * MILLISECOND;
    const DELAY_NS: u64 = 40 * MILLISECOND;

    fn receiver() -> Receiver {
        Receiver::new(AckPolicy::default(), RTT_NS, None)
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

    /// RFC 7323 §5.3: the second was lost, and is sent again at 30 ms.
    #[test]
    fn what_is_older_than_what_filled_a_gap_is_thrown_away() {
        let mut receiver = receiver();
        let mut arrive = |segment, sent_ms| {
            receiver.arrive(Packet {
                tx: 0,
                segment,
                sent_ns: sent_ms * MILLISECOND,
            })
        };
        let arrivals = [
            (0, 0),
            (2, 2),
            (1, 30),
            (3, 3),  // overtaken by what filled the gap
            (4, 29), // by less than timestamps tell
            (6, 31),
            (2, 2), // once more: known, and said so
        ];
        let answers = arrivals.map(|(segment, sent_ms)| arrive(segment, sent_ms));
        let expected = [
            (true, 1),
            (true, 2),
            (true, 3),
            (false, 3),
            (true, 4),
            (true, 5),
            (false, 6),
        ];
        assert_eq!(
            answers,
            expected.map(|(new, until)| (new, Answer::Ack(until)))
        );
        assert_eq!((receiver.next, receiver.recent), (3, 30));
    }

    #[test]
    fn a_liar_claims_what_it_has_not_got_and_sways_its_acks() {
        let mut receiver = Receiver::new(AckPolicy::default(), RTT_NS, Some(Lie::Ahead(5)));
        let packet = |segment| Packet {
            tx: segment,
            segment,
            sent_ns: 0,
        };
        assert_eq!(receiver.arrive(packet(0)), (true, Answer::Ack(1)));
        assert_eq!(receiver.arrive(packet(3)), (true, Answer::Ack(2)));
        assert_eq!(receiver.arrive(packet(2)), (false, Answer::Ack(3)));
        let claims = [1, 1, 3].map(|before| receiver.claim(before));
        assert_eq!(claims, [Some(6), None, Some(9)]);
        let receiver = Receiver::new(AckPolicy::default(), RTT_NS, Some(Lie::InventLosses(3)));
        let denied = (0..9).filter(|segment| receiver.denies(&packet(*segment)));
        assert_eq!(denied.collect::<Vec<_>>(), [2, 5, 8]);
        assert_eq!(
            [0, 10, 50, 90].map(|at| sway_ns(at, 20, 100)),
            [0, 4, 20, 4]
        );
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
