//! A TCP sender: what is in flight, what is lost, when to send.
//!
//! Every transmission has a number, and the transmissions in flight are a queue in the order of
//! their sending. Loss detection is RACK's (RFC 8985), as in Linux: a packet is lost when one that was
//! sent later has arrived, and a reordering window has passed. The window is 0 while the path has
//! not been seen to reorder and three packets arrived above a hole; else a quarter of the smallest
//! RTT, and a quarter more for every round with a retransmission that was not needed. What is lost
//! is thus always a prefix of the queue.
//!
//! A tail loss probe goes out after two RTTs without an ACK, and a retransmission timeout
//! after srtt + max(4 rttvar, 200 ms) declares everything lost; it doubles with each repetition.
//!
//! Bursts are paced as Linux paces: a millisecond of the rate at a time, at least two segments
//! (one below 1.2 Mbit/s).

use crate::control::{Ack, Controller};
use crate::receiver::Packet;
use crate::scenario::Source;
use crate::{MILLISECOND, MSS, SECOND};
use std::collections::VecDeque;

const RTO_MIN_NS: u64 = 200 * MILLISECOND;
/// Before the first RTT sample (RFC 6298).
const RTO_INITIAL_NS: u64 = SECOND;
const RTO_MAX_NS: u64 = 120 * SECOND;
/// A probe of a single packet waits for the receiver's delayed ACK, too.
const PROBE_SLACK_NS: u64 = 200 * MILLISECOND;
const DUPLICATE_THRESHOLD: u64 = 3;
/// Below this rate a burst is one segment, bytes/s.
const SLOW_RATE: u64 = 150_000;
/// Segments in a burst at most: 64 KiB.
const MAX_BURST: u64 = 44;
const BURSTS_PER_SECOND: u64 = 1000;
const MAX_REORDER_STEPS: u64 = 255;

struct Transmission {
    segment: u64,
    sent_ns: u64,
    again: bool,
    /// Delivered, or no longer needed.
    done: bool,
    /// Packets delivered when it was sent, when the last of them was, and since when the flight was sent.
    delivered: u64,
    delivered_ns: u64,
    flight_start_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Segment {
    delivered: bool,
    /// Waits for its retransmission.
    lost: bool,
    tx: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Losses below this segment are being repaired.
    Recovery(u64),
    /// The same after a timeout.
    Timeout(u64),
}

/// Why nothing more is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Window,
    Pacing,
    NoData,
}

pub(crate) struct Sender {
    source: Source,
    start_ns: u64,
    total: u64,

    flight: VecDeque<Transmission>,
    first_tx: u64,
    in_flight: u64,
    segments: VecDeque<Segment>,
    una: u64,
    next: u64,
    /// Delivered segments above `una`.
    sacked: u64,
    lost_queue: VecDeque<u64>,

    state: State,
    rack_tx: u64,
    rack_sent_ns: u64,
    rack_rtt_ns: u64,
    reordering: bool,
    reorder_steps: u64,
    reorder_steps_until: u64,
    undo: Option<u64>,
    reorder_deadline_ns: Option<u64>,

    srtt_ns: u64,
    rttvar_ns: u64,
    min_rtt_ns: u64,
    backoff: u32,
    rto_deadline_ns: Option<u64>,
    probe_deadline_ns: Option<u64>,

    next_send_ns: u64,
    held: Held,
    limited_until: u64,
    delivered: u64,
    delivered_ns: u64,
    flight_start_ns: u64,
    /// Lost since the last ACK that the controller saw.
    lost_since_ack: u64,

    pub(crate) stats: SenderStats,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderStats {
    pub(crate) sent: u64,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
    pub(crate) probes: u64,
    pub(crate) spurious: u64,
}

impl Sender {
    pub(crate) fn new(source: Source, start_ns: u64) -> Self {
        let total = match source {
            Source::Bytes(bytes) => bytes.div_ceil(MSS),
            Source::Endless | Source::Rate(_) => u64::MAX,
        };
        Self {
            source,
            start_ns,
            total,
            flight: VecDeque::new(),
            first_tx: 0,
            in_flight: 0,
            segments: VecDeque::new(),
            una: 0,
            next: 0,
            sacked: 0,
            lost_queue: VecDeque::new(),
            state: State::Open,
            rack_tx: 0,
            rack_sent_ns: 0,
            rack_rtt_ns: 0,
            reordering: false,
            reorder_steps: 1,
            reorder_steps_until: 0,
            undo: None,
            reorder_deadline_ns: None,
            srtt_ns: 0,
            rttvar_ns: 0,
            min_rtt_ns: u64::MAX,
            backoff: 0,
            rto_deadline_ns: None,
            probe_deadline_ns: None,
            next_send_ns: start_ns,
            held: Held::NoData,
            limited_until: 0,
            delivered: 0,
            delivered_ns: start_ns,
            flight_start_ns: start_ns,
            lost_since_ack: 0,
            stats: SenderStats::default(),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.una >= self.total
    }

    /// Segments that the application has written by now.
    fn written(&self, now_ns: u64) -> u64 {
        match self.source {
            Source::Endless => u64::MAX,
            Source::Bytes(_) => self.total,
            Source::Rate(bps) => {
                let elapsed = u128::from(now_ns.saturating_sub(self.start_ns));
                (elapsed * u128::from(bps) / u128::from(8 * SECOND * MSS)) as u64
            }
        }
    }

    /// When the application will have written the next segment.
    fn written_at_ns(&self) -> Option<u64> {
        match self.source {
            Source::Rate(bps) => {
                let bits = u128::from(self.next + 1) * u128::from(8 * SECOND * MSS);
                Some(self.start_ns + bits.div_ceil(u128::from(bps)) as u64)
            }
            Source::Endless | Source::Bytes(_) => None,
        }
    }

    fn rto_ns(&self) -> u64 {
        let base = match self.srtt_ns {
            0 => RTO_INITIAL_NS,
            srtt => srtt + RTO_MIN_NS.max(4 * self.rttvar_ns),
        };
        (base << self.backoff.min(10)).min(RTO_MAX_NS)
    }

    fn arm_timers(&mut self, now_ns: u64) {
        if self.una == self.next {
            (self.rto_deadline_ns, self.probe_deadline_ns) = (None, None);
            return;
        }
        self.rto_deadline_ns = Some(now_ns + self.rto_ns());
        self.arm_probe(now_ns);
    }

    fn arm_probe(&mut self, now_ns: u64) {
        let rto = self.rto_deadline_ns.unwrap_or(u64::MAX);
        let may_probe = self.state == State::Open && self.srtt_ns > 0 && self.sacked == 0;
        self.probe_deadline_ns = may_probe.then(|| {
            let slack = if self.in_flight == 1 {
                PROBE_SLACK_NS
            } else {
                2 * MILLISECOND
            };
            (now_ns + 2 * self.srtt_ns + slack).min(rto)
        });
    }

    /// Takes an ACK for these packets, and tells the controller.
    pub(crate) fn on_ack(
        &mut self,
        now_ns: u64,
        packets: impl Iterator<Item = Packet>,
        controller: &mut dyn Controller,
    ) -> Option<u64> {
        let prior_in_flight = self.in_flight;
        let (prior_una, prior_sacked, prior_delivered) = (self.una, self.sacked, self.delivered);
        let mut newest: Option<Newest> = None;
        for packet in packets {
            self.deliver(now_ns, packet, &mut newest, controller);
        }
        while self
            .segments
            .front()
            .is_some_and(|segment| segment.delivered)
        {
            self.segments.pop_front();
            self.una += 1;
            self.sacked -= 1;
        }
        let rtt_ns = newest.as_ref().and_then(|newest| newest.rtt_ns);
        if let Some(rtt) = rtt_ns {
            self.sample_rtt(rtt);
        }
        let delivered = self.delivered - prior_delivered;
        self.detect_losses(now_ns, controller);
        match self.state {
            State::Recovery(end) | State::Timeout(end) if self.una >= end => {
                self.state = State::Open;
                self.undo = None;
            }
            _ => {}
        }
        if delivered > 0 {
            self.backoff = 0;
            self.arm_timers(now_ns);
        }
        let lost = std::mem::take(&mut self.lost_since_ack);
        let (delivery_rate, send_rate) = newest.map_or((0, 0), |n| n.rates(self.delivered, now_ns));
        let written = match self.source {
            Source::Endless => self.next,
            _ => self.written(now_ns),
        };
        controller.on_ack(&Ack {
            now_ns,
            delivered,
            misordered: self.sacked.saturating_sub(prior_sacked).min(delivered),
            lost,
            rtt_ns,
            srtt_ns: self.srtt_ns,
            in_flight: self.in_flight,
            prior_in_flight,
            pending_bytes: (written - self.una.min(written)) * MSS,
            delivery_rate,
            send_rate,
            acked_to: self.una,
            next_segment: self.next,
            in_recovery: matches!(self.state, State::Recovery(_)),
            window_limited: self.held == Held::Window || prior_una < self.limited_until,
        });
        rtt_ns
    }

    fn deliver(
        &mut self,
        now_ns: u64,
        packet: Packet,
        newest: &mut Option<Newest>,
        controller: &mut dyn Controller,
    ) {
        let at = packet.tx.checked_sub(self.first_tx).map(|at| at as usize);
        let segment = packet
            .segment
            .checked_sub(self.una)
            .and_then(|index| self.segments.get_mut(index as usize))
            .filter(|segment| !segment.delivered);
        let Some(segment) = segment else {
            self.duplicate(at, controller);
            return;
        };
        segment.delivered = true;
        segment.lost = false;
        let last = segment.tx;
        self.delivered += 1;
        self.delivered_ns = now_ns;
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
        if newest.as_ref().is_none_or(|newest| packet.tx > newest.tx) {
            *newest = Some(Newest {
                tx: packet.tx,
                rtt_ns: (!tx.again).then(|| now_ns - tx.sent_ns),
                sent_ns: tx.sent_ns,
                delivered: tx.delivered,
                delivered_ns: tx.delivered_ns,
                flight_start_ns: tx.flight_start_ns,
            });
            self.flight_start_ns = tx.sent_ns;
        }
        if packet.tx >= self.rack_tx {
            self.rack_tx = packet.tx;
            self.rack_sent_ns = tx.sent_ns;
            self.rack_rtt_ns = now_ns - tx.sent_ns;
        } else if !tx.again {
            self.reordering = true;
        }
    }

    /// A segment that had arrived before: a retransmission was not needed.
    fn duplicate(&mut self, at: Option<usize>, controller: &mut dyn Controller) {
        if let Some(at) = at {
            self.finish(at);
        }
        self.stats.spurious += 1;
        self.reordering = true;
        if self.una >= self.reorder_steps_until {
            self.reorder_steps = (self.reorder_steps + 1).min(MAX_REORDER_STEPS);
            self.reorder_steps_until = self.next;
        }
        if let Some(left) = self.undo.as_mut().filter(|left| **left > 0) {
            *left -= 1;
            if *left == 0 {
                self.undo = None;
                controller.on_spurious_loss();
            }
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

    fn sample_rtt(&mut self, rtt_ns: u64) {
        self.min_rtt_ns = self.min_rtt_ns.min(rtt_ns);
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.rttvar_ns) = (rtt_ns, rtt_ns / 2);
            return;
        }
        let error = self.srtt_ns.abs_diff(rtt_ns);
        self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / 4 + error / 4;
        self.srtt_ns = self.srtt_ns - self.srtt_ns / 8 + rtt_ns / 8;
    }

    fn reorder_window_ns(&self) -> u64 {
        let many = self.sacked >= DUPLICATE_THRESHOLD || self.state != State::Open;
        if !self.reordering && many {
            return 0;
        }
        (self.min_rtt_ns / 4)
            .saturating_mul(self.reorder_steps)
            .min(self.srtt_ns)
    }

    /// Marks what RACK takes for lost, and drops what is settled from the queue's front.
    fn detect_losses(&mut self, now_ns: u64, controller: &mut dyn Controller) {
        self.reorder_deadline_ns = None;
        let window = self.reorder_window_ns();
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
        self.lost_since_ack += lost;
        if lost > 0 && self.state == State::Open {
            self.state = State::Recovery(self.next);
            self.undo = Some(0);
            controller.on_loss(now_ns);
        }
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

    /// The earliest time at which something is to be done without an ACK.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        let pacing = (self.held == Held::Pacing).then_some(self.next_send_ns);
        let data = if self.held == Held::NoData {
            self.written_at_ns()
        } else {
            None
        };
        let timers = [
            pacing,
            data,
            self.reorder_deadline_ns,
            self.rto_deadline_ns,
            self.probe_deadline_ns,
        ];
        timers.into_iter().flatten().min()
    }

    /// Does what the timers ask for; returns whether a probe must go out.
    pub(crate) fn on_timers(&mut self, now_ns: u64, controller: &mut dyn Controller) -> bool {
        let due = |deadline: Option<u64>| deadline.is_some_and(|at| at <= now_ns);
        if due(self.reorder_deadline_ns) {
            self.detect_losses(now_ns, controller);
        }
        if due(self.rto_deadline_ns) {
            self.time_out(now_ns, controller);
        } else if due(self.probe_deadline_ns) {
            self.probe_deadline_ns = None;
            return true;
        }
        false
    }

    fn time_out(&mut self, now_ns: u64, controller: &mut dyn Controller) {
        self.stats.timeouts += 1;
        while let Some(tx) = self.flight.front() {
            if !tx.done {
                self.lost_since_ack += 1;
                self.lose_first();
            }
            self.flight.pop_front();
            self.first_tx += 1;
        }
        self.state = State::Timeout(self.next);
        self.undo = None;
        self.reorder_deadline_ns = None;
        controller.on_timeout(now_ns);
        self.backoff += 1;
        self.arm_timers(now_ns);
    }

    /// Sends what window, pacing and data allow; `send` takes each packet.
    pub(crate) fn send(
        &mut self,
        now_ns: u64,
        controller: &dyn Controller,
        mut send: impl FnMut(Packet),
    ) {
        let sending = controller.sending();
        let burst = match sending.rate {
            Some(rate) if rate < SLOW_RATE => 1,
            Some(rate) => (rate / BURSTS_PER_SECOND / MSS).clamp(2, MAX_BURST),
            None => u64::MAX,
        };
        if sending.rate.is_some() && now_ns < self.next_send_ns {
            self.held = Held::Pacing;
            return;
        }
        let mut sent = 0;
        self.held = loop {
            if self.in_flight >= sending.cwnd {
                self.limited_until = self.next;
                break Held::Window;
            }
            if sent == burst {
                break Held::Pacing;
            }
            let Some((segment, again)) = self.choose(now_ns) else {
                break Held::NoData;
            };
            send(self.transmit(now_ns, segment, again));
            sent += 1;
        };
        if let Some(rate) = sending.rate
            && sent > 0
        {
            let length = (u128::from(sent * MSS * SECOND) / u128::from(rate)) as u64;
            // As Linux: what was late is made up for, up to half of the burst.
            let credit = (now_ns - self.next_send_ns.min(now_ns)).min(length / 2);
            self.next_send_ns = now_ns + length - credit;
        }
    }

    /// A tail loss probe: a new segment, or else the last one again.
    pub(crate) fn probe(&mut self, now_ns: u64) -> Option<Packet> {
        let (segment, again) = self
            .choose(now_ns)
            .or_else(|| Some((self.next.checked_sub(1)?, true)))?;
        if segment < self.una {
            return None;
        }
        self.stats.probes += 1;
        let packet = self.transmit(now_ns, segment, again);
        self.probe_deadline_ns = None; // one, until the next ACK
        Some(packet)
    }

    /// What is lost goes first.
    fn choose(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        while let Some(segment) = self.lost_queue.pop_front() {
            let at = segment.checked_sub(self.una);
            let state = at.and_then(|at| self.segments.get_mut(at as usize));
            if let Some(state) = state.filter(|state| state.lost) {
                state.lost = false;
                return Some((segment, true));
            }
        }
        let more = self.next < self.total && self.next < self.written(now_ns);
        more.then_some((self.next, false))
    }

    fn transmit(&mut self, now_ns: u64, segment: u64, again: bool) -> Packet {
        let tx = self.first_tx + self.flight.len() as u64;
        if self.in_flight == 0 {
            (self.flight_start_ns, self.delivered_ns) = (now_ns, now_ns);
        }
        if again {
            self.stats.retransmitted += 1;
            if let Some(left) = &mut self.undo {
                *left += 1;
            }
            let at = (segment - self.una) as usize;
            if let Some(old) = self.segments[at].tx.checked_sub(self.first_tx) {
                self.finish(old as usize); // a probe: the former transmission no longer counts
            }
            self.segments[at].tx = tx;
        } else {
            self.next += 1;
            self.segments.push_back(Segment {
                tx,
                ..Segment::default()
            });
        }
        self.flight.push_back(Transmission {
            segment,
            sent_ns: now_ns,
            again,
            done: false,
            delivered: self.delivered,
            delivered_ns: self.delivered_ns,
            flight_start_ns: self.flight_start_ns,
        });
        self.in_flight += 1;
        self.stats.sent += 1;
        if self.rto_deadline_ns.is_none() {
            self.arm_timers(now_ns);
        } else if !again {
            self.arm_probe(now_ns);
        }
        Packet { tx, segment }
    }
}

/// The newest packet that an ACK delivered.
struct Newest {
    tx: u64,
    rtt_ns: Option<u64>,
    sent_ns: u64,
    delivered: u64,
    delivered_ns: u64,
    flight_start_ns: u64,
}

impl Newest {
    /// Delivery and send rate in bytes/s, as the kernel's rate samples have them.
    fn rates(&self, delivered: u64, now_ns: u64) -> (u64, u64) {
        let bytes = u128::from((delivered - self.delivered) * MSS) * u128::from(SECOND);
        let over = |ns: u64| {
            bytes
                .checked_div(u128::from(ns))
                .map_or(0, |rate| rate as u64)
        };
        let arrived = now_ns - self.delivered_ns.min(now_ns);
        (
            over(arrived),
            over(self.sent_ns - self.flight_start_ns.min(self.sent_ns)),
        )
    }
}

#[cfg(test)]
impl Sender {
    /// The counts agree with what they count.
    pub(crate) fn check(&self) {
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
