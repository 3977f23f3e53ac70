//! One report, read: the interval's rates, losses and RTTs, each with what real TCP does to it taken out.

use crate::program::{RawReport, Slot};
use crate::units::{Micros, Rate};

/// RTTs are clamped below this by the program (2^22 µs).
pub(super) const RTT_LIMIT_US: f64 = 4_194_303.0;
/// A slot that sent less than this part of its rate was limited by the application or the window.
const FULL_SEND: f64 = 0.85;
/// A burst of late ACKs can arrive faster than anything was sent; no more than by this is believed.
const LATE_ACKS: f64 = 1.1;
/// Fewer samples or packets than this make no slope. Source: half the smallest interval, with delayed ACKs.
pub(super) const SLOPE_MIN_SAMPLES: f64 = 6.0;
pub(super) const SLOPE_MIN_PKTS: f64 = 12.0;

/// Packets and samples below which ACK spacing tells nothing. Source: delayed ACKs on a real stack.
const SPACING_MIN_PKTS: f64 = 24.0;
const SPACING_MIN_SAMPLES: f64 = 8.0;

/// Slope, s/s, and its standard errors, from which on a holding slot's time is corrected. Source: smaller ones are
/// within an ACK's part of the rate, or jitter.
const HELD_SLOPE: f64 = 0.1;
const HELD_SLOPE_SIGMAS: f64 = 3.0;

/// What is known of a slot besides its report.
#[derive(Clone, Copy, Debug)]
pub struct SlotContext {
    /// The rate asked for; `None` for a slot without one, or of an old plan.
    pub asked: Option<Rate>,
    /// The intended length.
    pub length: Micros,
    /// Segment size.
    pub mss_bytes: f64,
}

/// RTT statistics of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RttStats {
    /// Mean over the samples.
    pub mean: Micros,
    /// Smallest.
    pub min: Micros,
    /// Largest.
    pub max: Micros,
    /// Growth of the RTT per second of sending, s/s. 0 if there are too few samples for a regression.
    pub slope: f64,
    /// Standard error of the slope, s/s.
    pub slope_se: f64,
    /// Standard deviation of the samples about a line through them: a queue that grows steadily has none. Zero for
    /// fewer than three.
    pub deviation: Micros,
}

/// One monitor interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mi {
    /// Which part of its plan it was.
    pub slot: Slot,
    /// The rate asked for, unless the slot had none or belongs to an old plan.
    pub asked: Option<Rate>,
    /// How long it was being sent.
    pub sent_for: Micros,
    /// Packets delivered.
    pub delivered_pkts: f64,
    /// Packets lost.
    pub lost_pkts: f64,
    /// RTT samples.
    pub samples: f64,
    /// RTT statistics, if there were samples.
    pub rtt: Option<RttStats>,
    /// Mean RTT at the losses, if it is known.
    pub rtt_at_loss: Option<Micros>,
    /// Rate at which the packets were sent, on the pacer's scale. 0 if unknown.
    pub send_rate: Rate,
    /// Rate at which packets arrived, from the spacing of ACKs, on the pacer's scale. 0 if unknown.
    pub goodput: Rate,
    /// Much less was sent than asked, without loss: the application or the window was the limit.
    pub limited: bool,
    /// The interval lasted far longer than planned, so its averages span a silence.
    pub stalled: bool,
}

impl Mi {
    /// Packets delivered or lost.
    #[must_use]
    pub fn pkts(&self) -> f64 {
        self.delivered_pkts + self.lost_pkts
    }

    /// Lost part of the packets, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.lost_pkts / self.pkts().max(1.0)
    }

    /// Rate at which the packets arrived, as far as late ACKs can be believed. 0 if unknown.
    #[must_use]
    pub fn arrived(&self) -> Rate {
        self.goodput.min(self.send_rate * LATE_ACKS)
    }

    /// Packets per ACK, at least 1.
    #[must_use]
    pub fn pkts_per_ack(&self) -> f64 {
        (self.delivered_pkts / self.samples.max(1.0)).max(1.0)
    }

    /// Whether there are packets and ACKs enough for the spacing of the latter to tell how packets arrived.
    #[must_use]
    pub fn tells_spacing(&self) -> bool {
        self.pkts() >= SPACING_MIN_PKTS
            && self.samples >= SPACING_MIN_SAMPLES
            && self.delivered_pkts > 0.0
            && self.goodput > Rate::ZERO
    }

    /// Rate at which what was sent came out of the path, losses counted as arrived. 0 if unknown.
    #[must_use]
    pub fn arrival_rate(&self) -> Rate {
        self.goodput * (self.pkts() / self.delivered_pkts.max(1.0))
    }

    /// Whether much less was sent than this rate, without loss.
    #[must_use]
    pub fn sent_less_than(&self, rate: Rate) -> bool {
        let lumps = self.pkts_per_ack() / self.pkts().max(1.0);
        self.lost_pkts < 1.0 && self.send_rate < rate * (FULL_SEND - lumps)
    }

    /// The asked rate, if the interval may judge it: sent in full, without a silence, and with RTT samples.
    #[must_use]
    pub fn judged_rate(&self) -> Option<Rate> {
        self.asked
            .filter(|_| !self.limited && !self.stalled && self.rtt.is_some())
    }
}

/// Reads a report. `pkt_bytes` are the bytes of a packet as the pacer counts them.
pub(super) fn read(raw: &RawReport, context: SlotContext, pkt_bytes: f64, srtt: Micros) -> Mi {
    let n = raw.n as f64;
    // The counter is a sum modulo 2^32; no interval holds more packets than that.
    let delivered_pkts = f64::from(raw.dlv as u32);
    let lost_pkts = f64::from(raw.lost.min(u64::from(u32::MAX)) as u32);
    let pkts = delivered_pkts + lost_pkts;
    let rtt = rtt_stats(raw, pkts);
    let acked_for = Micros::new(raw.sdur);
    let sent_for = sending_time(raw.slot(), acked_for, rtt);
    let send_rate = if raw.sdur > 0 {
        Rate::from_bytes_in(pkts * pkt_bytes, sent_for)
    } else {
        Rate::ZERO
    };
    // The first ACK's packets arrived before the span between the ACKs.
    let goodput = if raw.n >= 2 && raw.a1 > raw.a0 {
        let span = Micros::new(raw.a1 - raw.a0);
        Rate::from_bytes_in(delivered_pkts * (1.0 - 1.0 / n) * pkt_bytes, span)
    } else {
        Rate::ZERO
    };
    let mut mi = Mi {
        slot: raw.slot(),
        asked: context.asked,
        sent_for,
        delivered_pkts,
        lost_pkts,
        samples: n,
        rtt,
        rtt_at_loss: (raw.nl > 0)
            .then(|| Micros::from_secs((raw.srl as f64 / raw.nl as f64).min(RTT_LIMIT_US) * 1e-6)),
        send_rate,
        goodput,
        limited: false,
        stalled: acked_for > context.length * 2.0 + srtt,
    };
    mi.limited = context.asked.is_some_and(|asked| mi.sent_less_than(asked));
    mi
}

/// How long the packets of a slot were being sent. A holding slot has no rate of its own that would mark its end in the
/// stream, so it is as long as its ACKs took to come; where each came later after its packet than the one before, the
/// packets took less.
fn sending_time(slot: Slot, acked_for: Micros, rtt: Option<RttStats>) -> Micros {
    let grows =
        |rtt: &RttStats| rtt.slope > HELD_SLOPE && rtt.slope > HELD_SLOPE_SIGMAS * rtt.slope_se;
    match rtt.filter(|rtt| slot == Slot::Hold && grows(rtt)) {
        Some(rtt) => acked_for * (1.0 / (1.0 + rtt.slope)),
        None => acked_for,
    }
}

/// The RTT at the end of the interval's regression line, as the largest queue it met. The largest sample would not do:
/// one delayed ACK adds 40 ms, and beside that any queue looks empty. So the largest sample is left out of the mean,
/// and the line may rise above the mean by no more than the smallest sample lies below it.
pub(super) fn fitted_max_us(raw: &RawReport, rtt: &RttStats) -> f64 {
    let (min, max) = (raw.rmin as f64, raw.rmax as f64);
    let mean = ((raw.sr as f64 - max) / (raw.n as f64 - 1.0).max(1.0)).clamp(min, max);
    let rise = rtt.slope.max(0.0) * raw.sdur as f64 / 2.0;
    (mean + rise.min(mean - min)).min(max)
}

/// Least-squares regression of RTT on send time, from the sums.
pub(super) fn rtt_stats(raw: &RawReport, pkts: f64) -> Option<RttStats> {
    let n = raw.n as f64;
    let (min, max) = (raw.rmin as f64, raw.rmax as f64);
    let mean = raw.sr as f64 / n;
    // Zero samples, or sums that no program produces.
    if raw.n == 0
        || !(1.0..=RTT_LIMIT_US).contains(&min)
        || !(min..=RTT_LIMIT_US).contains(&max)
        || mean < min - 1.0
        || mean > max + 1.0
    {
        return None;
    }
    let [st, sr, srt, stt, srr] = [raw.st, raw.sr, raw.srt, raw.stt, raw.srr].map(|sum| sum as f64);
    let t_var = stt - st * st / n;
    let r_var = (srr - sr * sr / n).max(0.0);
    // Few samples already tell how far they are from a line, though not which line.
    let fits = n > 2.0 && t_var > n;
    let (line, deviation) = if fits {
        let covariance = srt - st * sr / n;
        let line = covariance / t_var;
        let residual = (r_var - line * covariance).max(0.0);
        (line, (residual / (n - 2.0)).sqrt())
    } else {
        (0.0, 0.0)
    };
    let (slope, slope_se) = if fits && n >= SLOPE_MIN_SAMPLES && pkts >= SLOPE_MIN_PKTS {
        (line, deviation / t_var.sqrt())
    } else {
        (0.0, 0.0)
    };
    Some(RttStats {
        mean: Micros::from_secs(mean * 1e-6),
        min: Micros::new(raw.rmin),
        max: Micros::new(raw.rmax),
        slope,
        slope_se,
        deviation: Micros::from_secs(deviation * 1e-6),
    })
}
