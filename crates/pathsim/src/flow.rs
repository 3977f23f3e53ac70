//! A flow in a run: its two ends, and what is counted of it.

use crate::control::Controller;
use crate::distribution::Distribution;
use crate::receiver::Receiver;
use crate::results::{Bin, FlowResult};
use crate::scenario::{FlowSpec, Scenario, Source};
use crate::sender::Sender;
use crate::{MILLISECOND, MSS, SECOND, WIRE};

pub(crate) const BIN_NS: u64 = 100 * MILLISECOND;
/// Time between two readings of the smoothed RTT.
const SRTT_EVERY_NS: u64 = 200 * MILLISECOND;
/// The same for what looks closely.
const SRTT_OFTEN_NS: u64 = 10 * MILLISECOND;

#[derive(Default)]
pub(crate) struct BinSums {
    bytes: u64,
    rtt_us: u64,
    samples: u64,
    srtt_ns: Option<u64>,
    cwnd: Option<u64>,
    owd_p95_us: Option<u64>,
}

/// What is counted.
#[derive(Default)]
pub(crate) struct Counts {
    /// Payload that arrived for the first time, in the whole run and in its second half.
    pub(crate) goodput: u64,
    pub(crate) goodput_half: u64,
    /// Packets that reached the receiver.
    pub(crate) arrived: u64,
    /// Packets that were dropped or lost.
    pub(crate) missing: u64,
    pub(crate) completed_ns: Option<u64>,
    pub(crate) rtts: Distribution,
    pub(crate) srtts: Distribution,
    srtts_often: Distribution,
    one_way: Distribution,
    /// The last packet's one-way delay, and how much it differs from one to the next (RFC 3550 §6.4.1), ns.
    last_way_ns: Option<u64>,
    jitter_ns: f64,
    bins: Vec<BinSums>,
    /// One-way delays in the bin with this number, µs.
    ways_us: (u64, Vec<u64>),
}

/// A sender without ACKs.
#[derive(Default)]
pub(crate) struct Udp {
    pub(crate) sent: u64,
}

pub(crate) struct Flow<'a> {
    pub(crate) spec: FlowSpec,
    pub(crate) controller: Box<dyn Controller + 'a>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) udp: Udp,
    /// ACKs leave in order: not before this time.
    pub(crate) last_release_ns: u64,
    /// When it stops, at the latest.
    pub(crate) end_ns: u64,
    /// Its one wake-up that counts; `u64::MAX` for none.
    pub(crate) wake_ns: u64,
    srtt_due_ns: u64,
    srtt_often_due_ns: u64,
    pub(crate) counts: Counts,
}

impl<'a> Flow<'a> {
    pub(crate) fn new(
        spec: FlowSpec,
        controller: Box<dyn Controller + 'a>,
        scenario: &Scenario,
    ) -> Self {
        let rtt_ns = scenario.path.rtt_at_ns(spec.start_ns) + spec.extra_rtt_ns;
        Self {
            controller,
            sender: Sender::new(&spec),
            receiver: Receiver::new(spec.acks, rtt_ns, spec.lie),
            udp: Udp::default(),
            last_release_ns: 0,
            end_ns: spec.stop_ns.unwrap_or(u64::MAX).min(scenario.duration_ns),
            wake_ns: u64::MAX,
            srtt_due_ns: spec.start_ns + SRTT_EVERY_NS,
            srtt_often_due_ns: spec.start_ns + SRTT_OFTEN_NS,
            counts: Counts::default(),
            spec,
        }
    }

    /// A packet has arrived.
    pub(crate) fn note_arrival(&mut self, now_ns: u64, sent_ns: u64, series: bool) {
        let counts = &mut self.counts;
        let way_ns = now_ns - sent_ns;
        counts.arrived += 1;
        counts.one_way.add(way_ns / 1000);
        if let Some(last_ns) = counts.last_way_ns.replace(way_ns) {
            counts.jitter_ns += (way_ns.abs_diff(last_ns) as f64 - counts.jitter_ns) / 16.0;
        }
        if series {
            if counts.ways_us.0 != now_ns / BIN_NS {
                counts.close_bin();
                counts.ways_us.0 = now_ns / BIN_NS;
            }
            counts.ways_us.1.push(way_ns / 1000);
        }
    }

    /// Payload has arrived that was not there.
    pub(crate) fn note_goodput(&mut self, now_ns: u64, scenario: &Scenario) {
        let counts = &mut self.counts;
        counts.goodput += MSS;
        if now_ns >= scenario.duration_ns / 2 {
            counts.goodput_half += MSS;
        }
        if let Source::Bytes(bytes) = self.spec.source
            && counts.goodput >= bytes
        {
            counts.completed_ns.get_or_insert(now_ns);
        }
        if scenario.series {
            bin(&mut counts.bins, now_ns).bytes += MSS;
        }
    }

    /// An ACK comes: the smoothed RTT was this until now.
    pub(crate) fn note_srtt(&mut self, now_ns: u64) {
        let srtt_ns = self.sender.srtt_ns();
        while self.srtt_due_ns <= now_ns {
            self.srtt_due_ns += SRTT_EVERY_NS;
            if srtt_ns > 0 {
                self.counts.srtts.add(srtt_ns / 1000);
            }
        }
        while self.srtt_often_due_ns <= now_ns {
            self.srtt_often_due_ns += SRTT_OFTEN_NS;
            if srtt_ns > 0 {
                self.counts.srtts_often.add(srtt_ns / 1000);
            }
        }
    }

    pub(crate) fn note_rtt(&mut self, now_ns: u64, rtt_ns: u64, series: bool) {
        self.counts.rtts.add(rtt_ns / 1000);
        if series {
            let cwnd = self.controller.sending().cwnd;
            let bin = bin(&mut self.counts.bins, now_ns);
            bin.rtt_us += rtt_ns / 1000;
            bin.samples += 1;
            bin.srtt_ns = Some(self.sender.srtt_ns());
            bin.cwnd = Some(cwnd);
        }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sender.stats.sent + self.udp.sent
    }

    /// Its part of the results, with so many bins.
    pub(crate) fn result(mut self, scenario: &Scenario, bins: usize) -> FlowResult {
        let duration_ns = scenario.duration_ns;
        let stats = self.sender.stats;
        let sent = self.sent();
        let counts = &mut self.counts;
        counts.close_bin();
        let start_ns = self.spec.start_ns.min(duration_ns);
        let end_ns = counts.completed_ns.unwrap_or(self.end_ns).max(start_ns);
        let half_start_ns = start_ns.max(duration_ns / 2);
        let [rtt_p50_ms, rtt_p95_ms, rtt_mean_ms] = counts.rtts.summary_ms();
        let [_, srtt_p95_ms, _] = counts.srtts.summary_ms();
        let possible = usable_bytes(scenario, start_ns, end_ns);
        counts.bins.resize_with(bins, BinSums::default);
        FlowResult {
            scheme: self.spec.scheme,
            goodput_mbps: mbps(counts.goodput, end_ns - start_ns),
            goodput_second_half_mbps: (end_ns > half_start_ns)
                .then(|| mbps(counts.goodput_half, end_ns - half_start_ns)),
            share: if possible > 0.0 {
                counts.goodput as f64 / possible
            } else {
                0.0
            },
            rtt_p50_ms,
            rtt_p95_ms,
            rtt_mean_ms,
            srtt_p95_ms,
            loss: counts.missing as f64 / sent.max(1) as f64,
            packets_sent: sent,
            retransmissions: stats.retransmitted,
            spurious_retransmissions: stats.spurious,
            timeouts: stats.timeouts,
            completion_s: counts
                .completed_ns
                .map(|at| (at - start_ns) as f64 / SECOND as f64),
            series: counts.bins.iter().map(BinSums::bin).collect(),
            end_s: end_ns as f64 / SECOND as f64,
            received_bytes: counts.goodput,
            packets_lost: counts.missing,
            jitter_ms: counts.jitter_ns / MILLISECOND as f64,
            rtts: std::mem::take(&mut counts.rtts),
            srtts: std::mem::take(&mut counts.srtts_often),
            one_way: std::mem::take(&mut counts.one_way),
        }
    }
}

impl BinSums {
    fn bin(&self) -> Bin {
        Bin {
            goodput_mbps: self.bytes as f64 * 8e3 / BIN_NS as f64,
            rtt_ms: self.rtt_us as f64 / 1e3 / self.samples.max(1) as f64,
            srtt_ms: self.srtt_ns.map(|ns| ns as f64 / MILLISECOND as f64),
            owd_p95_ms: self.owd_p95_us.map(|us| us as f64 / 1e3),
            cwnd_packets: self.cwnd,
        }
    }
}

impl Counts {
    /// The bin of the one-way delays is over.
    fn close_bin(&mut self) {
        let (number, ways_us) = &mut self.ways_us;
        // Nearest rank.
        let rank = (ways_us.len() * 95).div_ceil(100);
        if let Some(index) = rank.checked_sub(1) {
            let p95 = *ways_us.select_nth_unstable(index).1;
            bin(&mut self.bins, *number * BIN_NS).owd_p95_us = Some(p95);
        }
        ways_us.clear();
    }
}

/// Payload that the path can carry between two times: capacity × 1448/1500 × (1 - random loss behind the bottleneck).
pub(crate) fn usable_bytes(scenario: &Scenario, from_ns: u64, to_ns: u64) -> f64 {
    let path = &scenario.path;
    let usable = MSS as f64 / WIRE as f64 * (1.0 - path.wasted());
    path.capacity_bytes(from_ns, to_ns) * usable
}

pub(crate) fn mbps(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 8e3 / ns.max(1) as f64
}

/// The bin of a time, made if it is not there.
pub(crate) fn bin<T: Default>(bins: &mut Vec<T>, now_ns: u64) -> &mut T {
    let index = (now_ns / BIN_NS) as usize;
    if bins.len() <= index {
        bins.resize_with(index + 1, T::default);
    }
    &mut bins[index]
}
