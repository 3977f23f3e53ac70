//! A flow under a CCP program and an agent, as in a kernel's CCP datapath.
//!
//! The program runs on every ACK, on ccp-vm. Its reports reach the agent, and the agent's updates
//! come back, after the agent's latency, both ways together. Window and rate of an update hold for
//! the next packet, registers from the next ACK on: that is how the BPF datapath does it, which
//! looks for updates before it sends. A timeout is shown to the program with the next ACK.

use crate::MSS;
use crate::control::{Ack, Controller, Sending};
use ccp_vm::{Machine, Primitives, Program, Report, Updates};
use std::collections::VecDeque;
use std::sync::Arc;

/// The smallest window that a program can set, packets.
const MIN_WINDOW: u64 = 4;
/// Reports on the way to the agent at most; those beyond are lost and counted, as a full ring loses them.
const MAX_REPORTS: usize = 1024;
/// What the datapath's clock shows when the simulation begins, µs. A kernel's counts from its boot; at 0 the packets of
/// a first window would look as if they were sent before the program's first slot.
pub const UPTIME_US: u64 = 1_000_000;

/// The algorithm behind a program's reports.
pub trait Agent {
    /// Answers a report. The fields are the program's report registers.
    fn on_report(&mut self, fields: &[u64]) -> Option<Updates>;
}

/// A flow under a program and an agent.
pub struct CcpFlow<A> {
    machine: Machine,
    agent: A,
    latency_ns: u64,
    reports: VecDeque<(u64, Report)>,
    cwnd: u64,
    rate: u64,
    timed_out: bool,
    /// Losses found to be none that no other was set off against yet.
    spurious: u64,
    failed: u64,
    dropped: u64,
}

impl<A: Agent> CcpFlow<A> {
    /// A flow that begins at `start_ns` with a program and the updates that were sent along with it.
    pub fn new(
        program: Arc<Program>,
        first: &Updates,
        agent: A,
        latency_ns: u64,
        start_ns: u64,
    ) -> Self {
        let mut flow = Self {
            machine: Machine::new(),
            agent,
            latency_ns,
            reports: VecDeque::new(),
            cwnd: 10,
            rate: 0,
            timed_out: false,
            spurious: 0,
            failed: 0,
            dropped: 0,
        };
        flow.machine.change_program(program, first);
        // The program's clock starts with the flow, which has something to send.
        let written = Primitives {
            bytes_pending: MSS,
            ..Primitives::default()
        };
        flow.run(start_ns, &written);
        flow
    }

    /// How often the program did not run to its end, and reports that were lost.
    pub fn failures(&self) -> (u64, u64) {
        (self.failed, self.dropped)
    }

    fn set(&mut self, cwnd: Option<u64>, rate: Option<u64>) {
        if let Some(bytes) = cwnd.filter(|bytes| *bytes > 0) {
            self.cwnd = (bytes / MSS).max(MIN_WINDOW);
        }
        if let Some(rate) = rate.filter(|rate| *rate > 0) {
            self.rate = rate;
        }
    }

    /// Losses less those that were none, which the datapaths set off against the next ones, but no more than are in
    /// flight.
    fn lost(&mut self, ack: &Ack) -> u64 {
        self.spurious += ack.spurious;
        let set_off = ack.lost.min(self.spurious);
        self.spurious = (self.spurious - set_off).min(ack.in_flight);
        ack.lost - set_off
    }

    fn run(&mut self, now_ns: u64, ack: &Primitives) {
        let cwnd = self.cwnd * MSS;
        let clock_us = UPTIME_US + now_ns / 1000;
        let outcome = self.machine.invoke(clock_us, ack, cwnd, self.rate);
        self.failed += u64::from(outcome.error.is_some());
        self.set(outcome.cwnd, outcome.rate);
        if let Some(report) = outcome.report {
            if self.reports.len() < MAX_REPORTS {
                self.reports.push_back((now_ns + self.latency_ns, report));
            } else {
                self.dropped += 1;
            }
        }
    }
}

impl<A: Agent> Controller for CcpFlow<A> {
    fn sending(&self) -> Sending {
        Sending {
            cwnd: self.cwnd,
            rate: (self.rate > 0).then_some(self.rate),
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        // The kernel's stamps are whole microseconds, of which it takes the difference: it takes packets of one burst
        // to be sent at one time.
        let since_sent_us = |rtt_ns: u64| (rtt_ns + 999 - ack.now_ns % 1000) / 1000;
        // What arrived twice was also sent twice.
        let misordered = ack.misordered + ack.duplicates;
        let primitives = Primitives {
            bytes_acked: (ack.delivered - ack.misordered) * MSS,
            bytes_misordered: misordered * MSS,
            lost_pkts_sample: self.lost(ack),
            packets_acked: ack.delivered - ack.misordered,
            packets_misordered: misordered,
            bytes_in_flight: ack.in_flight * MSS,
            bytes_pending: ack.pending_bytes,
            packets_in_flight: ack.in_flight,
            rate_incoming: ack.delivery_rate,
            rate_outgoing: ack.send_rate,
            rtt_sample_us: ack.rtt_ns.map_or(0, |ns| since_sent_us(ns).max(1)),
            was_timeout: std::mem::take(&mut self.timed_out),
            ..Primitives::default()
        };
        self.run(ack.now_ns, &primitives);
    }

    fn on_timeout(&mut self, _: u64) {
        self.timed_out = true;
        self.cwnd = 1; // the kernel's, until the program's next word
    }

    fn wake_at_ns(&self) -> Option<u64> {
        self.reports.front().map(|(due, _)| *due)
    }

    fn wake(&mut self, now_ns: u64) {
        while self.reports.front().is_some_and(|(due, _)| *due <= now_ns)
            && let Some((_, report)) = self.reports.pop_front()
        {
            let Some(updates) = self.agent.on_report(report.fields()) else {
                continue;
            };
            self.set(updates.get(Updates::CWND), updates.get(Updates::RATE));
            // There is a program, so it takes updates.
            self.failed += u64::from(self.machine.update(&updates).is_err());
        }
    }
}
