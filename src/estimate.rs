//! From raw reports to what the decisions need: one [`Mi`] per report, and what is remembered between them.
//!
//! A **monitor interval** is a stretch of *sending* at one rate. Its packets' fate comes back an RTT later as sums over
//! ACKs, from which follow the rate that was really sent, the rate at which packets arrived, the loss, and the slope
//! of the RTT over the send time. The slope is the heart of Vivace: queue growth in seconds per second, equal to
//! (sent - capacity) / capacity while a queue builds. Its standard error says how far to trust it.
//!
//! What real TCP does to these numbers, and what is done about it:
//! - One ACK covers several packets (delayed ACKs, GRO). Counts then come in lumps, so every test on a count or a
//!   spacing is widened by packets per ACK.
//! - A pacer counts headers or not: `fq` paces wire bytes, TCP's internal timer paces payload. The bytes per packet
//!   *as paced* are therefore learnt from full intervals, and rates are compared on the pacer's scale.
//! - Not all loss is congestion. A loss is judged by the queue it met: the mean RTT at the losses, placed in the range of
//!   RTTs seen lately. Losses at an empty queue feed a **loss floor** that the utility forgives.
//!
//! - A single delayed ACK adds up to 40 ms to one sample. The range of RTTs is therefore taken from means and fitted
//!   lines, never from the largest sample.
//!
//! Limits: the RTT range needs a queue now and then to mean something; below 2 % of the RTT the class is "unknown" and
//! the floor may only reach 2 %. After a route change to a longer path the smallest RTT is wrong for up to its window.

use crate::params::Params;
use crate::program::{RawReport, Slot};
use crate::units::{Micros, Rate, Ratio};

/// RTTs are clamped below this by the program (2^22 µs).
const RTT_LIMIT_US: f64 = 4_194_303.0;
/// A slot that sent less than this part of its rate was limited by the application or the window.
const FULL_SEND: f64 = 0.85;
/// Fewer samples or packets than this make no slope. Source: half the smallest interval, with delayed ACKs.
const SLOPE_MIN_SAMPLES: f64 = 6.0;
const SLOPE_MIN_PKTS: f64 = 12.0;
/// Packets before the loss floor is believed.
const FLOOR_MIN_PKTS: f64 = 200.0;
/// Above this many the floor's counters are scaled down, so that it follows a changing path.
const FLOOR_MEMORY_PKTS: f64 = 3000.0;
/// Loss floor while the class of losses is unknown.
const FLOOR_UNKNOWN: f64 = 0.02;
/// Packets per ACK believed at most. Source: a 64 kB GRO bundle of 9000-byte to 536-byte segments, several merged.
const PKTS_PER_ACK_MAX: f64 = 256.0;
/// How long the largest RTT is remembered: long enough to hold a few full queues, short enough to forget a startup.
const RTT_MAX_WINDOW: Micros = Micros::new(30_000_000);

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

    /// Packets per ACK, at least 1.
    #[must_use]
    pub fn pkts_per_ack(&self) -> f64 {
        (self.delivered_pkts / self.samples.max(1.0)).max(1.0)
    }

    /// The asked rate, if the interval may judge it: sent in full, without a silence, and with RTT samples.
    #[must_use]
    pub fn judged_rate(&self) -> Option<Rate> {
        self.asked
            .filter(|_| !self.limited && !self.stalled && self.rtt.is_some())
    }
}

/// Where a loss happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossClass {
    /// Nothing was lost.
    None,
    /// The queue was low: not our doing.
    Random,
    /// The queue was in the upper half of its range.
    Congestive,
    /// No queue was ever seen, so there is nothing to compare with.
    Unknown,
}

/// Largest value of a sliding window, exact to an eighth of it, in constant space.
#[derive(Clone, Debug)]
struct WindowMax {
    width_us: u64,
    buckets: [Option<(u64, f64)>; Self::BUCKETS],
}

impl WindowMax {
    const BUCKETS: usize = 8;

    fn new(window: Micros) -> Self {
        Self {
            width_us: (window.us() / Self::BUCKETS as u64).max(1),
            buckets: [None; Self::BUCKETS],
        }
    }

    fn push(&mut self, now: Micros, value: f64) {
        let epoch = now.us() / self.width_us;
        let at = usize::try_from(epoch % Self::BUCKETS as u64).unwrap_or(0);
        self.buckets[at] = match self.buckets[at] {
            Some((kept, old)) if kept == epoch && old >= value => Some((kept, old)),
            _ => Some((epoch, value)),
        };
    }

    fn get(&self, now: Micros) -> Option<f64> {
        let epoch = now.us() / self.width_us;
        let live = |kept: u64| epoch.saturating_sub(kept) < Self::BUCKETS as u64;
        let values = self
            .buckets
            .iter()
            .flatten()
            .filter(|(kept, _)| live(*kept));
        values.map(|(_, value)| *value).reduce(f64::max)
    }
}

/// What is remembered between reports.
#[derive(Clone, Debug)]
pub struct Estimator {
    now: Micros,
    srtt: Option<Micros>,
    shortest_neg: WindowMax,
    longest: WindowMax,
    goodput: WindowMax,
    floor_lost_pkts: f64,
    floor_pkts: f64,
    floor_max: f64,
    /// Bytes per packet as the pacer counts them, over the segment size: 1.0 to 1.1.
    wire_factor: f64,
    pkts_per_ack: f64,
    delivered_pkts: f64,
}

impl Estimator {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self {
            now: Micros::ZERO,
            srtt: None,
            shortest_neg: WindowMax::new(params.rtt_window),
            longest: WindowMax::new(RTT_MAX_WINDOW),
            goodput: WindowMax::new(params.rate_window),
            floor_lost_pkts: 0.0,
            floor_pkts: 0.0,
            floor_max: params.loss_floor_max.get(),
            wire_factor: 1.0,
            pkts_per_ack: 1.0,
            delivered_pkts: 0.0,
        }
    }

    /// Takes an RTT known from elsewhere, before the first report.
    pub fn assume_rtt(&mut self, rtt: Micros) {
        self.srtt = Some(rtt.clamp(Micros::new(1), Micros::new(RTT_LIMIT_US as u64)));
    }

    /// Changes the most that may be learnt as the loss floor.
    pub fn set_loss_floor_max(&mut self, loss_floor_max: Ratio) {
        self.floor_max = loss_floor_max.get();
    }

    /// Reads one report and remembers what it tells.
    pub fn observe(&mut self, raw: &RawReport, context: SlotContext) -> Mi {
        self.now = self.now.max(Micros::new(raw.a1));
        let mi = self.read(raw, context);
        self.delivered_pkts += mi.delivered_pkts;
        if let Some(rtt) = mi.rtt {
            self.shortest_neg.push(self.now, -(rtt.min.us() as f64));
            if mi.samples >= SLOPE_MIN_SAMPLES {
                self.longest.push(self.now, fitted_max_us(raw, &rtt));
            }
            self.srtt = Some(self.srtt.map_or(rtt.mean, |old| (old + rtt.mean) * 0.5));
        }
        if mi.samples >= 1.0 {
            let now = mi.pkts_per_ack().min(PKTS_PER_ACK_MAX);
            self.pkts_per_ack += (now - self.pkts_per_ack) / 4.0;
        }
        let whole = mi.asked.is_some() && mi.sent_for > self.srtt() * 0.5 && !mi.stalled;
        if whole && mi.samples >= 4.0 {
            // A burst of late ACKs can arrive faster than anything was sent.
            let arrived = mi.goodput.min(mi.send_rate * 1.1);
            self.goodput.push(self.now, arrived.bytes_per_sec());
        }
        if let Some(asked) = mi.asked.filter(|_| whole && mi.pkts() >= SLOPE_MIN_PKTS) {
            let factor = asked.bytes_in(mi.sent_for) / (mi.pkts() * context.mss_bytes);
            if (0.9..1.15).contains(&factor) {
                self.wire_factor =
                    (self.wire_factor + (factor - self.wire_factor) / 8.0).clamp(1.0, 1.1);
            }
        }
        let class = self.class(&mi);
        if class != LossClass::Congestive {
            // A queue that was full from the start looks like no queue: what is learnt then stays small, or a flow
            // that came last would take the others' congestion for its path's nature.
            let unknown_cap = if class == LossClass::Unknown {
                FLOOR_UNKNOWN * mi.pkts()
            } else {
                f64::MAX
            };
            self.floor_lost_pkts += mi.lost_pkts.min(unknown_cap);
            self.floor_pkts += mi.pkts();
            if self.floor_pkts > FLOOR_MEMORY_PKTS {
                let keep = 0.9 * FLOOR_MEMORY_PKTS / self.floor_pkts;
                self.floor_lost_pkts *= keep;
                self.floor_pkts *= keep;
            }
        }
        mi
    }

    fn read(&self, raw: &RawReport, context: SlotContext) -> Mi {
        let n = raw.n as f64;
        // The counter is a sum modulo 2^32; no interval holds more packets than that.
        let delivered_pkts = f64::from(raw.dlv as u32);
        let lost_pkts = f64::from(raw.lost.min(u64::from(u32::MAX)) as u32);
        let pkts = delivered_pkts + lost_pkts;
        let sent_for = Micros::new(raw.sdur);
        let pkt_bytes = context.mss_bytes * self.wire_factor;
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
        let lumps = (delivered_pkts / n.max(1.0)).max(1.0) / pkts.max(1.0);
        let limited = lost_pkts < 1.0
            && context
                .asked
                .is_some_and(|asked| send_rate < asked * (FULL_SEND - lumps));
        Mi {
            slot: raw.slot(),
            asked: context.asked,
            sent_for,
            delivered_pkts,
            lost_pkts,
            samples: n,
            rtt: rtt_stats(raw, pkts),
            rtt_at_loss: (raw.nl > 0).then(|| {
                Micros::from_secs((raw.srl as f64 / raw.nl as f64).min(RTT_LIMIT_US) * 1e-6)
            }),
            send_rate,
            goodput,
            limited,
            stalled: sent_for > context.length * 2.0 + self.srtt(),
        }
    }

    /// Time of the last ACK with an RTT sample, on the datapath's clock.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Whether any RTT is known.
    #[must_use]
    pub fn has_rtt(&self) -> bool {
        self.srtt.is_some()
    }

    /// Smoothed RTT; 100 ms before the first sample.
    #[must_use]
    pub fn srtt(&self) -> Micros {
        self.srtt.unwrap_or(Micros::from_millis(100))
    }

    /// Smallest RTT in its window; the smoothed one while there is none.
    #[must_use]
    pub fn rtt_min(&self) -> Micros {
        let shortest = self.shortest_neg.get(self.now);
        shortest.map_or(self.srtt(), |neg| Micros::from_secs(-neg * 1e-6))
    }

    /// Largest minus smallest RTT of the last half minute: the queue the path was seen to hold.
    #[must_use]
    pub fn rtt_range(&self) -> Micros {
        let longest = self.longest.get(self.now).unwrap_or(0.0);
        Micros::from_secs(longest * 1e-6) - self.rtt_min()
    }

    /// Largest goodput in its window, if any was measured.
    #[must_use]
    pub fn goodput_max(&self) -> Option<Rate> {
        self.goodput.get(self.now).map(Rate::from_bytes_per_sec)
    }

    /// Bytes per packet as the pacer counts them.
    #[must_use]
    pub fn pkt_bytes(&self, mss_bytes: f64) -> f64 {
        mss_bytes * self.wire_factor
    }

    /// Packets per ACK, smoothed, at least 1.
    #[must_use]
    pub fn pkts_per_ack(&self) -> f64 {
        self.pkts_per_ack
    }

    /// Packets delivered over the flow's life, as far as reported.
    #[must_use]
    pub fn delivered_pkts(&self) -> f64 {
        self.delivered_pkts
    }

    /// Whether the queue range is too small to place losses in it.
    fn range_unknown(&self) -> bool {
        self.rtt_range() < (self.rtt_min() * 0.02).max(Micros::new(500))
    }

    /// Where this interval's losses happened.
    #[must_use]
    pub fn class(&self, mi: &Mi) -> LossClass {
        if mi.lost_pkts < 1.0 {
            return LossClass::None;
        }
        let Some(at) = mi.rtt_at_loss.filter(|_| !self.range_unknown()) else {
            return LossClass::Unknown;
        };
        if (at - self.rtt_min()) / self.rtt_range() >= 0.5 {
            LossClass::Congestive
        } else {
            LossClass::Random
        }
    }

    /// The share of packets that this path loses whatever we do.
    #[must_use]
    pub fn loss_floor(&self) -> f64 {
        if self.floor_pkts < FLOOR_MIN_PKTS {
            return 0.0;
        }
        let cap = if self.range_unknown() {
            self.floor_max.min(FLOOR_UNKNOWN)
        } else {
            self.floor_max
        };
        (self.floor_lost_pkts / self.floor_pkts).min(cap)
    }

    /// Loss beyond what the floor explains: beyond its mean for congestive losses, beyond two deviations for others.
    #[must_use]
    pub fn excess_loss(&self, mi: &Mi) -> f64 {
        let floor = self.loss_floor();
        let noise = if self.class(mi) == LossClass::Congestive || floor < 5e-4 {
            0.0
        } else {
            2.0 * (floor * (1.0 - floor) / mi.pkts().max(1.0)).sqrt()
        };
        (mi.loss() - floor - noise).max(0.0)
    }
}

/// The RTT at the end of the interval's regression line, as the largest queue it met. The largest sample would not do:
/// one delayed ACK adds 40 ms, and beside that any queue looks empty. So the largest sample is left out of the mean, and
/// the line may rise above the mean by no more than the smallest sample lies below it.
fn fitted_max_us(raw: &RawReport, rtt: &RttStats) -> f64 {
    let (min, max) = (raw.rmin as f64, raw.rmax as f64);
    let mean = ((raw.sr as f64 - max) / (raw.n as f64 - 1.0).max(1.0)).clamp(min, max);
    let rise = rtt.slope.max(0.0) * raw.sdur as f64 / 2.0;
    (mean + rise.min(mean - min)).min(max)
}

/// Least-squares regression of RTT on send time, from the sums.
fn rtt_stats(raw: &RawReport, pkts: f64) -> Option<RttStats> {
    let n = raw.n as f64;
    let (min, max) = (raw.rmin as f64, raw.rmax as f64);
    let mean = raw.sr as f64 / n;
    // Zero samples, or sums that no program produces.
    if raw.n == 0
        || !(1.0..=RTT_LIMIT_US).contains(&min)
        || max > RTT_LIMIT_US
        || mean < min - 1.0
        || mean > max + 1.0
    {
        return None;
    }
    let [st, sr, srt, stt, srr] = [raw.st, raw.sr, raw.srt, raw.stt, raw.srr].map(|sum| sum as f64);
    let t_var = stt - st * st / n;
    let (slope, slope_se) = if n < SLOPE_MIN_SAMPLES || pkts < SLOPE_MIN_PKTS || t_var <= n {
        (0.0, 0.0)
    } else {
        let slope = (srt - st * sr / n) / t_var;
        let residual = (srr - sr * sr / n - slope * (srt - st * sr / n)).max(0.0);
        (slope, (residual / (n - 2.0) / t_var).sqrt())
    };
    Some(RttStats {
        mean: Micros::from_secs(mean * 1e-6),
        min: Micros::new(raw.rmin),
        max: Micros::new(raw.rmax),
        slope,
        slope_se,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Sums over (send time, rtt, lost) of ACKs of one packet each, as the program adds them. The ACK arrives at
    /// `origin + t + rtt`.
    pub(crate) fn report(
        tag: u64,
        origin_us: u64,
        acks: &[(u64, u64, u64)],
        sdur: u64,
    ) -> RawReport {
        let mut raw = RawReport {
            tag,
            sdur,
            rmin: u64::from(u32::MAX),
            ..RawReport::default()
        };
        for &(t, rtt, lost) in acks {
            raw.dlv += 1;
            raw.lost += lost;
            raw.n += 1;
            raw.st += t;
            raw.sr += rtt;
            raw.srt += t * rtt;
            raw.stt += t * t;
            raw.srr += rtt * rtt;
            raw.rmin = raw.rmin.min(rtt);
            raw.rmax = raw.rmax.max(rtt);
            raw.srl += lost * rtt;
            raw.nl += lost;
            raw.a1 = origin_us + t + rtt;
            if raw.n == 1 {
                raw.a0 = raw.a1;
            }
        }
        raw
    }

    fn context(asked: f64) -> SlotContext {
        SlotContext {
            asked: Some(Rate::from_bytes_per_sec(asked)),
            length: Micros::new(20_000),
            mss_bytes: 1000.0,
        }
    }

    #[test]
    fn slope_and_error_match_a_regression_done_by_hand() {
        // t = 0, 1000, ..., 11000; rtt = 20000 + 0.1 t, then +-50 us alternating.
        let line: Vec<_> = (0..12).map(|i| (i * 1000, 20_000 + i * 100, 0)).collect();
        let stats = rtt_stats(&report(33, 0, &line, 12_000), 12.0).unwrap();
        assert!(
            (stats.slope - 0.1).abs() < 1e-9 && stats.slope_se < 1e-6,
            "{stats:?}"
        );
        assert_eq!(stats.mean, Micros::new(20_550));

        let noisy: Vec<_> = (0..12)
            .map(|i| (i * 1000, 20_050 + i * 100 - 100 * (i % 2), 0))
            .collect();
        let stats = rtt_stats(&report(33, 0, &noisy, 12_000), 12.0).unwrap();
        // By hand: S_tt = 143e6; S_xt of the alternating part = -50 * 6 * 1000 = -300e3 => slope 0.1 - 300e3 / 143e6;
        // its sum of squares 12 * 2500 = 30e3, residual 30e3 - (300e3)^2 / 143e6; se = sqrt(residual / 10 / 143e6).
        let shift = 300e3 / 143e6;
        let se = ((30e3 - 300e3 * shift) / 10.0 / 143e6_f64).sqrt();
        assert!((stats.slope - (0.1 - shift)).abs() < 1e-9, "{stats:?}");
        assert!((stats.slope_se - se).abs() < 1e-9, "{stats:?} {se}");
    }

    #[test]
    fn too_few_samples_give_rtts_but_no_slope() {
        let stats = rtt_stats(&report(33, 0, &[(0, 10, 0), (5, 90, 0)], 10), 2.0).unwrap();
        assert_eq!(
            (stats.slope, stats.min, stats.max),
            (0.0, Micros::new(10), Micros::new(90))
        );
        assert!(rtt_stats(&report(33, 0, &[], 10), 0.0).is_none());
    }

    #[test]
    fn rates_come_from_send_time_and_ack_spacing() {
        let mut est = Estimator::new(&Params::default());
        // 20 packets of 1000 B sent over 20 ms (1 MB/s), arriving 1.25 ms apart (0.8 MB/s).
        let acks: Vec<_> = (0..20).map(|i| (i * 1000, 20_000 + i * 250, 0)).collect();
        let mi = est.observe(&report(33, 0, &acks, 20_000), context(1e6));
        assert!((mi.send_rate.bytes_per_sec() - 1e6).abs() < 1.0);
        assert!(
            (mi.goodput.bytes_per_sec() - 0.8e6).abs() < 1.0,
            "{}",
            mi.goodput
        );
        assert!(!mi.limited && !mi.stalled);
        assert_eq!(est.goodput_max(), Some(mi.goodput));
        let mi = est.observe(&report(33, 100_000, &acks[..12], 20_000), context(1e6));
        assert!(mi.limited, "sent 60 %");
        let mi = est.observe(&report(33, 200_000, &acks, 80_000), context(0.25e6));
        assert!(mi.stalled);
    }

    #[test]
    fn the_bytes_of_a_packet_are_learnt_from_the_pacer() {
        let mut est = Estimator::new(&Params::default());
        // fq counts 46 bytes of headers: at an asked 1 MB/s it lets through 0.956 MB/s of payload.
        let acks: Vec<_> = (0..40).map(|i| (i * 1046, 10_000, 0)).collect();
        for i in 0..60 {
            est.observe(&report(33, i * 50_000, &acks, 40 * 1046), context(1e6));
        }
        assert!(
            (est.pkt_bytes(1000.0) - 1046.0).abs() < 2.0,
            "{}",
            est.pkt_bytes(1000.0)
        );
    }

    /// An estimator that has seen RTTs of 40 to 80 ms.
    fn with_queue_range() -> Estimator {
        let mut est = Estimator::new(&Params::default());
        est.observe(&report(33, 0, &[(0, 40_000, 0)], 20_000), context(1e6));
        est.observe(&report(33, 1, &[(0, 80_000, 0); 8], 20_000), context(1e6));
        est
    }

    #[test]
    fn losses_are_classed_by_the_queue_they_met() {
        let mut est = with_queue_range();
        let at = |rtt| {
            (0..30)
                .map(|i| (i * 600, rtt, u64::from(i % 10 == 0)))
                .collect::<Vec<_>>()
        };
        let low = est.observe(&report(33, 100_000, &at(45_000), 20_000), context(1e6));
        assert_eq!(est.class(&low), LossClass::Random);
        let high = est.observe(&report(33, 200_000, &at(75_000), 20_000), context(1e6));
        assert_eq!(est.class(&high), LossClass::Congestive);
        let mut flat = Estimator::new(&Params::default());
        let loss = flat.observe(&report(33, 0, &at(45_000), 20_000), context(1e6));
        assert_eq!(flat.class(&loss), LossClass::Unknown);
        let clean = est.observe(
            &report(33, 300_000, &[(0, 40_000, 0)], 20_000),
            context(1e6),
        );
        assert_eq!(est.class(&clean), LossClass::None);
    }

    #[test]
    fn random_loss_is_forgiven_and_congestive_loss_is_not() {
        let mut est = with_queue_range();
        let acks = |rtt, lost_every: u64| {
            (0..95)
                .map(|i| (i * 200, rtt, u64::from(i % lost_every == 3)))
                .collect::<Vec<_>>()
        };
        let mut mi = est.observe(
            &report(33, 100_000, &acks(42_000, 19), 20_000),
            context(1e6),
        );
        assert!(est.excess_loss(&mi) > 0.04, "not believed yet");
        for i in 2..40 {
            mi = est.observe(
                &report(33, i * 100_000, &acks(42_000, 19), 20_000),
                context(1e6),
            );
        }
        assert!(
            (est.loss_floor() - 0.05).abs() < 0.003,
            "{}",
            est.loss_floor()
        );
        assert_eq!(est.excess_loss(&mi), 0.0);
        let congested = est.observe(
            &report(33, 4_100_000, &acks(79_000, 5), 20_000),
            context(1e6),
        );
        assert!(
            (est.excess_loss(&congested) - (congested.loss() - est.loss_floor())).abs() < 1e-12
        );
        assert!(est.excess_loss(&congested) > 0.1);
    }

    #[test]
    fn an_unknown_queue_limits_the_floor() {
        let mut est = Estimator::new(&Params::default());
        let acks: Vec<_> = (0..95)
            .map(|i| (i * 200, 42_000, u64::from(i % 10 == 0)))
            .collect();
        for i in 0..40 {
            est.observe(&report(33, i * 100_000, &acks, 20_000), context(1e6));
        }
        assert_eq!(est.loss_floor(), FLOOR_UNKNOWN);
    }

    #[test]
    fn a_delayed_ack_is_not_taken_for_a_queue() {
        let mut est = Estimator::new(&Params::default());
        let mut acks: Vec<_> = (0..12).map(|i| (i * 1500, 40_000 + 100 * i, 0)).collect();
        est.observe(&report(33, 0, &acks, 18_000), context(1e6));
        let range = est.rtt_range();
        assert!(
            range > Micros::new(900) && range <= Micros::new(1100),
            "a queue of 1.1 ms: {range}"
        );
        acks[7].1 += 40_000;
        est.observe(&report(33, 100_000, &acks, 18_000), context(1e6));
        assert!(est.rtt_range() <= Micros::new(1300), "{}", est.rtt_range());
    }

    #[test]
    fn a_queue_that_is_always_full_teaches_little_loss() {
        // 15 % lost at a constant RTT, as a flow sees it that comes last; then the queue moves for the first time.
        let mut est = Estimator::new(&Params::default());
        let acks: Vec<_> = (0..100)
            .map(|i| (i * 200, 80_000, u64::from(i % 6 == 0)))
            .collect();
        for i in 0..20 {
            est.observe(&report(33, i * 100_000, &acks, 20_000), context(1e6));
        }
        est.observe(
            &report(33, 2_100_000, &[(0, 70_000, 0)], 20_000),
            context(1e6),
        );
        let mi = est.observe(&report(33, 2_200_000, &acks, 20_000), context(1e6));
        assert_eq!(est.class(&mi), LossClass::Congestive);
        assert!(
            est.loss_floor() <= 0.0201 && est.excess_loss(&mi) > 0.1,
            "{}",
            est.loss_floor()
        );
    }

    #[test]
    fn window_extremes_expire() {
        let mut max = WindowMax::new(Micros::new(8000));
        max.push(Micros::new(0), 9.0);
        max.push(Micros::new(5000), 4.0);
        assert_eq!(max.get(Micros::new(7999)), Some(9.0));
        assert_eq!(max.get(Micros::new(8000)), Some(4.0));
        assert_eq!(max.get(Micros::new(50_000)), None);
    }
}
