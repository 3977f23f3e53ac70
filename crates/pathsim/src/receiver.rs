//! The other end: counts what arrives and decides when to acknowledge.

use crate::scenario::AckPolicy;
use std::collections::VecDeque;

/// The first packets of a flow are acknowledged one by one, as Linux does while a window opens.
const QUICK_ACKS: u64 = 16;

/// A packet in the network: the number of its transmission, and its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packet {
    pub(crate) tx: u64,
    pub(crate) segment: u64,
}

/// What to do after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Acknowledge so many packets now.
    Ack(u32),
    /// Start the timer of the delayed ACK, which has this number.
    Delay(u64),
    /// The timer is running.
    Wait,
}

pub(crate) struct Receiver {
    policy: AckPolicy,
    /// All segments below have arrived.
    next: u64,
    /// Whether those from `next` on have.
    above: VecDeque<bool>,
    unacked: u32,
    acks: u64,
    arrivals: u64,
    /// Arrivals in order, not yet taken by an ACK at the sender.
    acked: VecDeque<Packet>,
}

impl Receiver {
    pub(crate) fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            next: 0,
            above: VecDeque::new(),
            unacked: 0,
            acks: 0,
            arrivals: 0,
            acked: VecDeque::new(),
        }
    }

    /// Takes a packet; also says whether its segment is new.
    pub(crate) fn arrive(&mut self, packet: Packet) -> (bool, Answer) {
        self.arrivals += 1;
        self.acked.push_back(packet);
        self.unacked += 1;
        let in_order = packet.segment == self.next;
        // Also when it fills a hole (RFC 5681 §4.2).
        let urgent = !in_order || !self.above.is_empty();
        let new = self.insert(packet.segment);
        if urgent || self.unacked >= self.policy.every || self.arrivals <= QUICK_ACKS {
            return (new, self.ack());
        }
        let answer = if self.unacked == 1 {
            Answer::Delay(self.acks)
        } else {
            Answer::Wait
        };
        (new, answer)
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
        Answer::Ack(std::mem::take(&mut self.unacked))
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

    pub(crate) fn delay_ns(&self) -> u64 {
        self.policy.delay_ns
    }

    /// The packets of the next ACK that reaches the sender, in order of arrival.
    pub(crate) fn take(&mut self, packets: u32) -> impl Iterator<Item = Packet> + '_ {
        self.acked.drain(..packets as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_packet_and_every_odd_one_is_acknowledged() {
        let mut receiver = Receiver::new(AckPolicy::default());
        let mut arrive = |segment| receiver.arrive(Packet { tx: 0, segment });
        for segment in 0..QUICK_ACKS {
            assert_eq!(arrive(segment), (true, Answer::Ack(1)));
        }
        assert_eq!(arrive(16), (true, Answer::Delay(16)));
        assert_eq!(arrive(17), (true, Answer::Ack(2)));
        assert_eq!(arrive(19), (true, Answer::Ack(1)));
        assert_eq!(arrive(20), (true, Answer::Ack(1)));
        assert_eq!(arrive(20), (false, Answer::Ack(1)));
        assert_eq!(arrive(18), (true, Answer::Ack(1)));
        assert_eq!(arrive(3), (false, Answer::Ack(1)));
        assert_eq!(receiver.delayed(20), None);
        assert_eq!(receiver.take(23).count(), 23);
        receiver.arrive(Packet { tx: 9, segment: 21 });
        assert_eq!(receiver.delayed(22), Some(Answer::Ack(1)));
        assert_eq!(receiver.next, 22);
    }
}
