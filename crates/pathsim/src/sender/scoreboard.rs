//! What is in flight, what has arrived, what is lost.
//!
//! Every transmission has a number, and the transmissions in flight are a queue in the order of
//! their sending. Loss detection is RACK's (RFC 8985), as in Linux: a packet is lost when one that was
//! sent later has arrived, and a reordering window has passed. The window is 0 while the path has
//! not been seen to reorder and three packets arrived above a hole; else a quarter of the smallest
//! RTT, and a quarter more for every round with a retransmission that was not needed. What is lost
//! is thus always a prefix of the queue.

use super::rates::{Newest, Snapshot};
use crate::receiver::Packet;
use crate::{MICROSECOND, MILLISECOND};
use std::collections::VecDeque;

const DUPLICATE_THRESHOLD: u64 = 3;
const MAX_REORDER_STEPS: u64 = 255;

struct Transmission {
    segment: u64,
    sent_ns: u64,
    again: bool,
    /// Delivered, or no longer needed.
    done: bool,
    snapshot: Snapshot,
}

#[derive(Clone, Copy, Default)]
struct Segment {
    delivered: bool,
    /// Waits for its retransmission.
    lost: bool,
    /// Has been sent more than once.
    again: bool,
    tx: u64,
    sent_ns: u64,
}

/// What an ACK has shown so far.
#[derive(Default)]
pub(super) struct Found {
    pub(super) newest: Option<Newest>,
    /// Of the segments sent once: when the first was sent, and the last, and its number.
    first_once_ns: Option<u64>,
    last_once: Option<(u64, u64)>,
    /// Send time, as its timestamp told the receiver, of the packet that last filled the first hole (RFC 7323).
    echoed_ns: Option<u64>,
    /// One that was sent again is among those that all has now arrived below.
    acked_again: bool,
    /// Packets that had arrived before.
    pub(super) duplicates: u64,
    /// Segments taken for lost that arrived before they were sent again.
    pub(super) revived: u64,
}

impl Found {
    /// RTTs of the first and the last segment of those sent once, as Linux takes them (`tcp_ack_update_rtt`). Where an
    /// ACK moves past a segment that was sent again it takes the timestamp's echo, in whole milliseconds, unless later
    /// segments tell.
    pub(super) fn rtts_ns(&self, una: u64, now_ns: u64) -> Option<(u64, u64)> {
        let last = self.last_once;
        let last = last.filter(|(segment, _)| *segment >= una || !self.acked_again);
        if let (Some(first_ns), Some((_, last_ns))) = (self.first_once_ns, last) {
            return Some((now_ns - first_ns, measured_ns(now_ns - last_ns)));
        }
        let ticks = now_ns / MILLISECOND - self.echoed_ns? / MILLISECOND;
        let rtt_ns = ticks.max(1) * MILLISECOND;
        Some((rtt_ns, rtt_ns))
    }
}

/// An RTT as a kernel measures it, by the packet's own time: never in whole milliseconds, as those of timestamps are,
/// for which programs take what an ideal link gives (one of 12 Mbit/s takes a millisecond for each packet).
fn measured_ns(rtt_ns: u64) -> u64 {
    let is_whole = rtt_ns % MILLISECOND < MICROSECOND;
    rtt_ns + if is_whole { MICROSECOND } else { 0 }
}

/// RTTs that loss detection looks at.
pub(super) struct Rtts {
    pub(super) min_ns: u64,
    pub(super) smoothed_ns: u64,
}

pub(super) struct Scoreboard {
    flight: VecDeque<Transmission>,
    first_tx: u64,
    pub(super) in_flight: u64,
    segments: VecDeque<Segment>,
    /// All segments below have arrived.
    pub(super) una: u64,
    /// The first segment that was never sent.
    pub(super) next: u64,
    /// Delivered segments above `una`.
    pub(super) sacked: u64,
    lost_queue: VecDeque<u64>,
    /// Delivered so far.
    pub(super) delivered: u64,
    /// State of the rate samples.
    pub(super) snapshot: Snapshot,
    /// The application had nothing more to send until so many are delivered.
    app_limited_until: u64,
    denies_losses: bool,

    rack_tx: u64,
    rack_rtt_ns: u64,
    reordering: bool,
    reorder_steps: u64,
    reorder_steps_until: u64,
    pub(super) reorder_deadline_ns: Option<u64>,
}

impl Scoreboard {
    /// `denies_losses`: the receiver says of all that was sent again that it had arrived before.
    pub(super) fn new(start_ns: u64, denies_losses: bool) -> Self {
        Self {
            flight: VecDeque::new(),
            first_tx: 0,
            in_flight: 0,
            segments: VecDeque::new(),
            una: 0,
            next: 0,
            sacked: 0,
            lost_queue: VecDeque::new(),
            delivered: 0,
            snapshot: Snapshot::at(start_ns),
            app_limited_until: 0,
            denies_losses,
            rack_tx: 0,
            rack_rtt_ns: 0,
            reordering: false,
            reorder_steps: 1,
            reorder_steps_until: 0,
            reorder_deadline_ns: None,
        }
    }

    /// Takes note of a transmission.
    pub(super) fn transmit(&mut self, now_ns: u64, segment: u64, again: bool) -> Packet {
        let tx = self.first_tx + self.flight.len() as u64;
        if self.in_flight == 0 {
            self.snapshot = Snapshot {
                delivered: self.snapshot.delivered,
                ..Snapshot::at(now_ns)
            };
        }
        self.snapshot.app_limited = self.delivered < self.app_limited_until;
        if again {
            let at = (segment - self.una) as usize;
            if let Some(old) = self.segments[at].tx.checked_sub(self.first_tx) {
                self.finish(old as usize); // a probe: the former transmission no longer counts
            }
            self.segments[at] = Segment {
                tx,
                sent_ns: now_ns,
                again: true,
                ..self.segments[at]
            };
        } else {
            self.next += 1;
            self.segments.push_back(Segment {
                tx,
                sent_ns: now_ns,
                ..Segment::default()
            });
        }
        self.flight.push_back(Transmission {
            segment,
            sent_ns: now_ns,
            again,
            done: false,
            snapshot: self.snapshot,
        });
        self.in_flight += 1;
        Packet {
            tx,
            segment,
            sent_ns: now_ns,
        }
    }

    /// The application has nothing more to send: what is in flight is all there is.
    pub(super) fn limit(&mut self) {
        self.app_limited_until = (self.delivered + self.in_flight).max(1);
    }

    /// Takes a packet that has arrived.
    pub(super) fn deliver(&mut self, now_ns: u64, packet: Packet, found: &mut Found) {
        let at = packet.tx.checked_sub(self.first_tx).map(|at| at as usize);
        let segment = packet
            .segment
            .checked_sub(self.una)
            .and_then(|index| self.segments.get_mut(index as usize))
            .filter(|segment| !segment.delivered);
        let Some(segment) = segment else {
            if let Some(at) = at {
                self.finish(at);
            }
            self.duplicate(found);
            return;
        };
        segment.delivered = true;
        found.revived += u64::from(std::mem::take(&mut segment.lost));
        let last = segment.tx;
        if segment.again {
            found.duplicates += u64::from(self.denies_losses);
        } else {
            let first_ns = found.first_once_ns.unwrap_or(packet.sent_ns);
            found.first_once_ns = Some(first_ns.min(packet.sent_ns));
            found.last_once = found.last_once.max(Some((packet.segment, packet.sent_ns)));
        }
        self.delivered += 1;
        self.snapshot.delivered = self.delivered;
        self.snapshot.delivered_ns = now_ns;
        self.sacked += 1;
        if last != packet.tx
            && let Some(at) = last.checked_sub(self.first_tx)
        {
            self.finish(at as usize);
        }
        let Some(at) = at else {
            self.reordering = true; // was taken for lost
            return;
        };
        self.finish(at);
        let tx = &self.flight[at];
        if found
            .newest
            .as_ref()
            .is_none_or(|newest| packet.tx > newest.tx)
        {
            found.newest = Some(Newest {
                tx: packet.tx,
                sent_ns: tx.sent_ns,
                snapshot: tx.snapshot,
            });
            self.snapshot.flight_start_ns = tx.sent_ns;
        }
        if packet.tx >= self.rack_tx {
            self.rack_tx = packet.tx;
            self.rack_rtt_ns = now_ns - tx.sent_ns;
        } else if !tx.again {
            self.reordering = true;
        }
    }

    /// The last transmission of every segment below `end` that is not known to have arrived.
    pub(super) fn not_delivered_below(&self, end: u64) -> impl Iterator<Item = Packet> {
        let below = end.saturating_sub(self.una).min(self.segments.len() as u64);
        let segments = self.segments.iter().take(below as usize).zip(self.una..);
        let open = segments.filter(|(segment, _)| !segment.delivered);
        open.map(|(segment, number)| Packet {
            tx: segment.tx,
            segment: number,
            sent_ns: segment.sent_ns,
        })
    }

    /// A segment that had arrived before: a retransmission was not needed.
    fn duplicate(&mut self, found: &mut Found) {
        found.duplicates += 1;
        self.reordering = true;
        if self.una >= self.reorder_steps_until {
            self.reorder_steps = (self.reorder_steps + 1).min(MAX_REORDER_STEPS);
            self.reorder_steps_until = self.next;
        }
    }

    /// After this packet: moves on to the first hole.
    pub(super) fn advance(&mut self, packet: Packet, found: &mut Found) {
        while let Some(segment) = self.segments.front().filter(|segment| segment.delivered) {
            found.acked_again |= segment.again;
            found.echoed_ns = Some(packet.sent_ns);
            self.segments.pop_front();
            self.una += 1;
            self.sacked -= 1;
        }
    }

    /// A transmission is no longer in flight.
    fn finish(&mut self, at: usize) {
        if let Some(tx) = self.flight.get_mut(at)
            && !std::mem::replace(&mut tx.done, true)
        {
            self.in_flight -= 1;
        }
    }

    fn reorder_window_ns(&self, repairing: bool, rtts: &Rtts) -> u64 {
        let many = self.sacked >= DUPLICATE_THRESHOLD || repairing;
        if !self.reordering && many {
            return 0;
        }
        (rtts.min_ns / 4)
            .saturating_mul(self.reorder_steps)
            .min(rtts.smoothed_ns)
    }

    /// Marks what RACK takes for lost, drops what is settled from the queue's front, and returns how many are lost.
    pub(super) fn detect_losses(&mut self, now_ns: u64, repairing: bool, rtts: &Rtts) -> u64 {
        self.reorder_deadline_ns = None;
        let window = self.reorder_window_ns(repairing, rtts);
        let mut lost = 0;
        while let Some(tx) = self.flight.front() {
            if !tx.done {
                if self.first_tx >= self.rack_tx {
                    break;
                }
                let deadline = tx.sent_ns + self.rack_rtt_ns + window;
                if deadline > now_ns {
                    self.reorder_deadline_ns = Some(deadline);
                    break;
                }
                lost += 1;
                self.lose_first();
            }
            self.flight.pop_front();
            self.first_tx += 1;
        }
        lost
    }

    /// Takes everything in flight for lost.
    pub(super) fn lose_all(&mut self) -> u64 {
        self.reorder_deadline_ns = None;
        let mut lost = 0;
        while let Some(tx) = self.flight.front() {
            if !tx.done {
                lost += 1;
                self.lose_first();
            }
            self.flight.pop_front();
            self.first_tx += 1;
        }
        lost
    }

    fn lose_first(&mut self) {
        let Some(tx) = self.flight.front() else {
            return;
        };
        self.in_flight -= 1;
        if let Some(segment) = tx
            .segment
            .checked_sub(self.una)
            .and_then(|index| self.segments.get_mut(index as usize))
            .filter(|segment| !segment.delivered)
        {
            segment.lost = true;
            self.lost_queue.push_back(tx.segment);
        }
    }

    /// The next segment to retransmit.
    pub(super) fn take_lost(&mut self) -> Option<u64> {
        while let Some(segment) = self.lost_queue.pop_front() {
            let at = segment.checked_sub(self.una);
            let state = at.and_then(|at| self.segments.get_mut(at as usize));
            if let Some(state) = state.filter(|state| state.lost) {
                state.lost = false;
                return Some(segment);
            }
        }
        None
    }
}

#[cfg(test)]
impl Scoreboard {
    /// The counts agree with what they count.
    pub(super) fn check(&self) {
        let flying = self.flight.iter().filter(|tx| !tx.done).count() as u64;
        assert_eq!(self.in_flight, flying);
        let sacked = self.segments.iter().filter(|s| s.delivered).count() as u64;
        assert_eq!(self.sacked, sacked);
        assert_eq!(self.una + self.segments.len() as u64, self.next);
        for (at, segment) in self.segments.iter().enumerate() {
            let number = self.una + at as u64;
            let tx = segment.tx.checked_sub(self.first_tx);
            let flies = tx.is_some_and(|tx| !self.flight[tx as usize].done);
            // Every segment has arrived, is in flight, or waits to be sent again.
            let waits = segment.lost && self.lost_queue.contains(&number);
            assert!(segment.delivered || flies || waits, "segment {number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_measured_rtt_is_a_timestamps() {
        let us = [999_999, 20_000_000, 20_000_999, 20_001_000].map(|ns| measured_ns(ns) / 1000);
        assert_eq!(us, [999, 20_001, 20_001, 20_001]);
    }

    #[test]
    fn the_echo_tells_the_rtt_where_a_retransmission_filled_the_hole() {
        let ms = |ms: f64| (ms * MILLISECOND as f64) as u64;
        let mut board = Scoreboard::new(0, false);
        let sent = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(ms);
        let first: Vec<_> = (0..6)
            .zip(sent)
            .map(|(segment, at)| board.transmit(at, segment, false))
            .collect();
        let ack = |board: &mut Scoreboard, at, packets: &[Packet]| {
            let mut found = Found::default();
            for &packet in packets {
                board.deliver(at, packet, &mut found);
                board.advance(packet, &mut found);
            }
            found.rtts_ns(board.una, at)
        };
        let above = ack(&mut board, ms(44.5), &first[2..5]);
        assert_eq!(above, Some((ms(42.5), ms(40.5))), "first and last SACKed");
        let rtts = Rtts {
            min_ns: ms(40.0),
            smoothed_ns: ms(40.0),
        };
        assert_eq!(board.detect_losses(ms(44.5), true, &rtts), 2);
        let again = [44.6, 45.0].map(|at| {
            let segment = board.take_lost().unwrap();
            board.transmit(ms(at), segment, true)
        });
        let beyond = ack(&mut board, ms(84.7), &again[1..]);
        assert_eq!(beyond, None, "sent again, and above the hole");
        let filled = ack(&mut board, ms(85.2), &again[..1]);
        assert_eq!(filled, Some((ms(41.0), ms(41.0))), "of 40.6, in whole ms");
        assert_eq!(board.una, 5);
        let next = ack(&mut board, ms(85.3), &first[5..]);
        assert_eq!(next, Some((ms(80.3), ms(80.3))), "sent once");
    }
}
