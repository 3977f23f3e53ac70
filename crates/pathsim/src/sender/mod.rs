//! A TCP sender: takes ACKs, repairs losses, and sends what window, pacing and data allow.
//!
//! The parts are the application ([`application`]), what is in flight and lost ([`scoreboard`]), the
//! RTT and its timers ([`clock`]), and rate samples ([`rates`]).
//!
//! A tail loss probe goes out after two RTTs without an ACK, and a retransmission timeout
//! after srtt + max(4 rttvar, 200 ms) declares everything lost; it doubles with each repetition.
//!
//! Bursts are paced as Linux paces: a millisecond of the rate at a time, at least two segments (one below 1.2 Mbit/s,
//! or as the flow asks), more where the receiver is near, but no more than half of the window; the first ten segments
//! of a flow go at once.

mod application;
mod clock;
mod rates;
mod scoreboard;

use crate::control::{Ack, Controller, burst};
use crate::receiver::Packet;
use crate::scenario::{FlowSpec, Lie};
use crate::{MSS, SECOND};
use application::Application;
use clock::Clock;
use scoreboard::{Found, Rtts, Scoreboard};

/// Sent without pacing at a flow's beginning, as Linux does: an initial window.
const UNPACED_SEGMENTS: u64 = 10;
/// What a burst to a receiver that is no RTT away is longer by, and the smallest RTT that halves this. Source: Linux
/// `tcp_tso_autosize`.
const NEAR_BURST_BYTES: u64 = 65_536;
const NEAR_RTT_NS: u64 = 512_000;

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
    ReceiveWindow,
    Pacing,
    NoData,
}

pub(crate) struct Sender {
    application: Application,
    /// Segments beyond the last one in order that the receiver takes.
    receive_window: u64,
    burst: u64,
    board: Scoreboard,
    clock: Clock,
    state: State,
    /// Retransmissions of this recovery that have not been found needless; `None` outside, or when that is of no use.
    undo: Option<u64>,
    next_send_ns: u64,
    held: Held,
    /// The window held back what is below this segment.
    limited_until: u64,
    /// Lost since the last ACK that the controller saw.
    lost_since_ack: u64,
    /// Segments sent again as probes, of which no D-SACK has told.
    probes: u64,
    pub(crate) stats: SenderStats,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderStats {
    pub(crate) sent: u64,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
    pub(crate) spurious: u64,
}

impl Sender {
    pub(crate) fn new(spec: &FlowSpec) -> Self {
        Self {
            application: Application::new(spec),
            receive_window: spec
                .receive_window
                .map_or(u64::MAX / 2, |bytes| bytes / MSS),
            burst: spec.burst_segments.into(),
            board: Scoreboard::new(spec.start_ns, spec.lie == Some(Lie::DenyLosses)),
            clock: Clock::new(),
            state: State::Open,
            undo: None,
            next_send_ns: spec.start_ns,
            held: Held::NoData,
            limited_until: 0,
            lost_since_ack: 0,
            probes: 0,
            stats: SenderStats::default(),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.board.una >= self.application.total()
    }

    /// Smoothed RTT; 0 before the first sample.
    pub(crate) fn srtt_ns(&self) -> u64 {
        self.clock.srtt_ns
    }

    fn rtts(&self) -> Rtts {
        Rtts {
            min_ns: self.clock.min_rtt_ns,
            smoothed_ns: self.clock.srtt_ns,
        }
    }

    /// Packets in flight, if a probe may find out what became of them.
    fn probe_for(&self) -> Option<u64> {
        (self.state == State::Open && self.board.sacked == 0).then_some(self.board.in_flight)
    }

    fn arm_timers(&mut self, now_ns: u64) {
        if self.board.una == self.board.next {
            self.clock.disarm();
        } else {
            self.clock.arm(now_ns, self.probe_for());
        }
    }

    /// Takes an ACK for these packets, tells the controller, and returns the RTT of the newest.
    pub(crate) fn on_ack(
        &mut self,
        now_ns: u64,
        packets: impl Iterator<Item = Packet>,
        controller: &mut dyn Controller,
    ) -> Option<u64> {
        let board = &mut self.board;
        let prior_in_flight = board.in_flight;
        let (prior_una, prior_sacked) = (board.una, board.sacked);
        let prior_delivered = board.delivered;
        let mut found = Found::default();
        for packet in packets {
            board.deliver(now_ns, packet, &mut found);
            board.advance(packet, &mut found);
        }
        let delivered = board.delivered - prior_delivered;
        let misordered = board.sacked.saturating_sub(prior_sacked).min(delivered);
        let rtts_ns = found.rtts_ns(board.una, now_ns);
        self.stats.spurious += found.duplicates;
        self.take_back(found.duplicates, controller);
        // Probes are sent without a loss.
        let probes = found.duplicates.min(self.probes);
        self.probes -= probes;
        let spurious = found.revived + found.duplicates - probes;
        if let Some((first_ns, last_ns)) = rtts_ns {
            self.clock.sample_oldest(first_ns);
            self.clock.sample_newest(last_ns);
        }
        let rtt_ns = rtts_ns.map(|(_, last_ns)| last_ns);
        self.detect_losses(now_ns, controller);
        match self.state {
            State::Recovery(end) | State::Timeout(end) if self.board.una >= end => {
                self.state = State::Open;
                self.undo = None;
            }
            _ => {}
        }
        if delivered > 0 {
            self.clock.progress();
            self.arm_timers(now_ns);
        }
        let board = &self.board;
        let (delivery_rate, send_rate) = found
            .newest
            .as_ref()
            .map_or((0, 0), |newest| newest.rates(board.delivered, now_ns));
        let min_rtt_ns = self.clock.min_rtt_ns;
        let sample = found
            .newest
            .and_then(|newest| newest.sample(board.delivered, now_ns, min_rtt_ns));
        let window = controller.sending().cwnd;
        let pending = self
            .application
            .pending(now_ns, board.una, board.next, window);
        controller.on_ack(&Ack {
            now_ns,
            delivered,
            misordered,
            lost: std::mem::take(&mut self.lost_since_ack),
            spurious,
            duplicates: found.duplicates,
            sent: self.stats.sent,
            rtt_ns,
            srtt_ns: self.clock.srtt_ns,
            in_flight: board.in_flight,
            prior_in_flight,
            pending_bytes: pending.saturating_mul(MSS),
            delivery_rate,
            send_rate,
            sample,
            total_delivered: board.delivered,
            acked_to: board.una,
            next_segment: board.next,
            in_recovery: matches!(self.state, State::Recovery(_)),
            after_timeout: matches!(self.state, State::Timeout(_)),
            window_limited: self.held == Held::Window || prior_una < self.limited_until,
        });
        rtt_ns
    }

    /// What was sent below a segment and is not known to have arrived, as packets.
    pub(crate) fn not_delivered_below(&self, end: u64) -> Vec<Packet> {
        self.board.not_delivered_below(end).collect()
    }

    /// Once every retransmission of a recovery was needless, there was no loss.
    fn take_back(&mut self, duplicates: u64, controller: &mut dyn Controller) {
        for _ in 0..duplicates {
            if let Some(left) = self.undo.as_mut().filter(|left| **left > 0) {
                *left -= 1;
                if *left == 0 {
                    self.undo = None;
                    controller.on_spurious_loss();
                }
            }
        }
    }

    fn detect_losses(&mut self, now_ns: u64, controller: &mut dyn Controller) {
        let repairing = self.state != State::Open;
        let rtts = self.rtts();
        let lost = self.board.detect_losses(now_ns, repairing, &rtts);
        self.lost_since_ack += lost;
        if lost > 0 && self.state == State::Open {
            self.state = State::Recovery(self.board.next);
            self.undo = Some(0);
            controller.on_loss(now_ns, self.board.in_flight);
        }
    }

    /// The earliest time at which something is to be done without an ACK.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        let held = match self.held {
            Held::Pacing => Some(self.next_send_ns),
            Held::NoData => self.application.written_at_ns(self.board.next),
            Held::Window | Held::ReceiveWindow => None,
        };
        let timers = [
            held,
            self.board.reorder_deadline_ns,
            self.clock.rto_deadline_ns,
            self.clock.probe_deadline_ns,
        ];
        timers.into_iter().flatten().min()
    }

    /// Does what the timers ask for; returns whether a probe must go out.
    pub(crate) fn on_timers(&mut self, now_ns: u64, controller: &mut dyn Controller) -> bool {
        let due = |deadline: Option<u64>| deadline.is_some_and(|at| at <= now_ns);
        if due(self.board.reorder_deadline_ns) {
            self.detect_losses(now_ns, controller);
        }
        if due(self.clock.rto_deadline_ns) {
            self.time_out(now_ns, controller);
        } else if due(self.clock.probe_deadline_ns) {
            self.clock.probe_deadline_ns = None;
            return true;
        }
        false
    }

    fn time_out(&mut self, now_ns: u64, controller: &mut dyn Controller) {
        self.stats.timeouts += 1;
        self.lost_since_ack += self.board.lose_all();
        self.state = State::Timeout(self.board.next);
        self.undo = None;
        controller.on_timeout(now_ns);
        self.clock.back_off();
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
        let rate = sending.rate.filter(|_| self.stats.sent >= UNPACED_SEGMENTS);
        let burst = match rate {
            Some(rate) => self.paced_burst(rate, sending.cwnd),
            None if sending.rate.is_some() => UNPACED_SEGMENTS - self.stats.sent,
            None => u64::MAX,
        };
        if rate.is_some() && now_ns < self.next_send_ns {
            self.held = Held::Pacing;
            return;
        }
        let mut sent = 0;
        self.held = loop {
            if self.board.in_flight >= sending.cwnd {
                self.limited_until = self.board.next;
                break Held::Window;
            }
            if sent == burst {
                break Held::Pacing;
            }
            let (segment, again) = match self.choose(now_ns) {
                Ok(chosen) => chosen,
                Err(held) => break held,
            };
            send(self.transmit(now_ns, segment, again));
            sent += 1;
        };
        if self.held == Held::NoData {
            self.board.limit();
        }
        if let Some(rate) = rate
            && sent > 0
        {
            let length = (u128::from(sent * MSS * SECOND) / u128::from(rate)) as u64;
            // As Linux: what was late is made up for, up to half of the burst.
            let credit = (now_ns - self.next_send_ns.min(now_ns)).min(length / 2);
            self.next_send_ns = now_ns + length - credit;
        }
    }

    /// Segments that leave at once: Linux wants two of such bursts in flight (`tcp_cwnd_test`).
    fn paced_burst(&self, rate: u64, cwnd: u64) -> u64 {
        let halvings = u32::try_from(self.clock.min_rtt_ns / NEAR_RTT_NS).unwrap_or(u32::MAX);
        let near = NEAR_BURST_BYTES.checked_shr(halvings).unwrap_or(0) / MSS;
        (burst(rate) + near).min(self.burst).min((cwnd / 2).max(1))
    }

    /// A tail loss probe: a new segment, or else the last one again.
    pub(crate) fn probe(&mut self, now_ns: u64) -> Option<Packet> {
        let (segment, again) = self
            .choose(now_ns)
            .ok()
            .or_else(|| Some((self.board.next.checked_sub(1)?, true)))?;
        if segment < self.board.una {
            return None;
        }
        let packet = self.transmit(now_ns, segment, again);
        self.probes += u64::from(again);
        self.clock.probe_deadline_ns = None; // one, until the next ACK
        Some(packet)
    }

    /// The segment to send next, and whether again. What is lost goes first.
    fn choose(&mut self, now_ns: u64) -> Result<(u64, bool), Held> {
        if let Some(segment) = self.board.take_lost() {
            return Ok((segment, true));
        }
        let next = self.board.next;
        if next
            >= self
                .application
                .total()
                .min(self.application.written(now_ns, self.board.una))
        {
            return Err(Held::NoData);
        }
        if next - self.board.una >= self.receive_window {
            return Err(Held::ReceiveWindow);
        }
        Ok((next, false))
    }

    fn transmit(&mut self, now_ns: u64, segment: u64, again: bool) -> Packet {
        self.stats.sent += 1;
        if again {
            self.stats.retransmitted += 1;
            if let Some(left) = &mut self.undo {
                *left += 1;
            }
        }
        let packet = self.board.transmit(now_ns, segment, again);
        if self.clock.rto_deadline_ns.is_none() {
            self.arm_timers(now_ns);
        } else if !again {
            let probe_for = self.probe_for();
            self.clock.arm_probe(now_ns, probe_for);
        }
        packet
    }
}

#[cfg(test)]
impl Sender {
    /// The counts agree with what they count.
    pub(crate) fn check(&self) {
        self.board.check();
    }
}
