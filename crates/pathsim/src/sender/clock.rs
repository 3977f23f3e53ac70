//! Round-trip times, and the timers made of them (RFC 6298, RFC 8985 §7).

use crate::{MILLISECOND, SECOND};

const RTO_MIN_NS: u64 = 200 * MILLISECOND;
/// Before the first RTT sample (RFC 6298).
const RTO_INITIAL_NS: u64 = SECOND;
const RTO_MAX_NS: u64 = 120 * SECOND;
/// A probe of a single packet waits for the receiver's delayed ACK, too.
const PROBE_SLACK_NS: u64 = 200 * MILLISECOND;

pub(super) struct Clock {
    /// Smoothed; 0 before the first sample.
    pub(super) srtt_ns: u64,
    rttvar_ns: u64,
    pub(super) min_rtt_ns: u64,
    backoff: u32,
    pub(super) rto_deadline_ns: Option<u64>,
    pub(super) probe_deadline_ns: Option<u64>,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            srtt_ns: 0,
            rttvar_ns: 0,
            min_rtt_ns: u64::MAX,
            backoff: 0,
            rto_deadline_ns: None,
            probe_deadline_ns: None,
        }
    }

    /// The RTT of the newest packet that an ACK delivered counts for the minimum.
    pub(super) fn sample_newest(&mut self, rtt_ns: u64) {
        self.min_rtt_ns = self.min_rtt_ns.min(rtt_ns);
    }

    /// That of the oldest is smoothed: it contains what the receiver waited for.
    pub(super) fn sample_oldest(&mut self, rtt_ns: u64) {
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.rttvar_ns) = (rtt_ns, rtt_ns / 2);
            return;
        }
        let error = self.srtt_ns.abs_diff(rtt_ns);
        self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / 4 + error / 4;
        self.srtt_ns = self.srtt_ns - self.srtt_ns / 8 + rtt_ns / 8;
    }

    fn rto_ns(&self) -> u64 {
        let base = match self.srtt_ns {
            0 => RTO_INITIAL_NS,
            srtt => srtt + RTO_MIN_NS.max(4 * self.rttvar_ns),
        };
        (base << self.backoff.min(10)).min(RTO_MAX_NS)
    }

    pub(super) fn back_off(&mut self) {
        self.backoff += 1;
    }

    pub(super) fn progress(&mut self) {
        self.backoff = 0;
    }

    pub(super) fn disarm(&mut self) {
        (self.rto_deadline_ns, self.probe_deadline_ns) = (None, None);
    }

    /// From now on. A probe is for packets in flight of which nothing is known.
    pub(super) fn arm(&mut self, now_ns: u64, probe_for: Option<u64>) {
        self.rto_deadline_ns = Some(now_ns + self.rto_ns());
        self.arm_probe(now_ns, probe_for);
    }

    pub(super) fn arm_probe(&mut self, now_ns: u64, probe_for: Option<u64>) {
        let rto = self.rto_deadline_ns.unwrap_or(u64::MAX);
        let probe_for = probe_for.filter(|_| self.srtt_ns > 0);
        self.probe_deadline_ns = probe_for.map(|in_flight| {
            let slack = if in_flight == 1 {
                PROBE_SLACK_NS
            } else {
                2 * MILLISECOND
            };
            (now_ns + 2 * self.srtt_ns + slack).min(rto)
        });
    }
}
