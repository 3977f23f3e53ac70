//! The climber for few packets per RTT.
//!
//! Below some 15 packets per RTT an interval holds too few packets to compare utilities. There the flow climbs
//! additively, by one packet per RTT while the window is tiny and half of one above, and backs off from congestive loss
//! (to 0.7, to 0.85 for a single packet) and from a standing queue (by half of the queue's share of the RTT). This is upstream's "fast moving".
//!
//! It needs no attribution: the rate is steered without a new plan, and every report moves it a little. Growth is
//! never credited to intervals that were not sent in full.
//!
//! Limits: a climber beside Vivace flows on a small buffer can stay far below its share, because it answers every full-queue
//! loss and they tolerate some. On a path of under three packets per RTT the floor of two packets per RTT is itself a queue. Not there yet: the
//! loss-only variant that competes with buffer-filling flows.

use crate::estimate::LossClass;
use crate::handbrake::View;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Back-off after congestive loss. Source: between Cubic's 0.7 and Reno's 0.5.
const LOSS_FACTOR: f64 = 0.7;
/// The same for a single packet, which is little evidence. Source: closed-loop tests, fairness at a 10-packet buffer.
const ONE_LOSS_FACTOR: f64 = 0.85;
/// Loss beyond the floor that counts as congestive without a known queue.
const LOSS_LIMIT: f64 = 0.02;
/// Queue tolerated, in smallest RTTs, in packets, and absolutely.
const QUEUE_RTTS: f64 = 0.25;
const QUEUE_PKTS: f64 = 2.0;
const QUEUE_MIN: Micros = Micros::new(500);
/// Part of the queue's share of the RTT that one back-off takes away, and its bounds.
const QUEUE_SHARE: f64 = 0.5;
const QUEUE_BACKOFF: (f64, f64) = (0.06, 0.25);
/// No queue back-off goes below this part of the rate.
const BACKOFF_FLOOR: f64 = 0.6;
/// Packets per RTT below which the climb is a whole packet per RTT.
const TINY_PKTS: f64 = 8.0;
/// Slowest rate, in packets per RTT. Source: upstream.
const FLOOR_PKTS: f64 = 2.0;
/// Packets in an interval, at least.
const INTERVAL_PKTS: f64 = 4.0;
/// RTTs (or so many intervals' packets) after a back-off until the next.
const HOLDOFF: f64 = 2.0;

/// The climber.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aimd {
    patient_until: Micros,
}

impl Aimd {
    /// Begins; no back-off before `patient_until`.
    #[must_use]
    pub fn new(patient_until: Micros) -> Self {
        Self { patient_until }
    }

    /// Length of the intervals to report.
    #[must_use]
    pub fn interval(srtt: Micros, rate: Rate, pkt_bytes: f64) -> Micros {
        srtt.max(rate.time_for(INTERVAL_PKTS * pkt_bytes))
    }

    /// The slowest rate that makes sense: with fewer packets per RTT, every loss waits for a timeout.
    #[must_use]
    pub fn floor(srtt: Micros, pkt_bytes: f64) -> Rate {
        Rate::from_bytes_in(FLOOR_PKTS * pkt_bytes, srtt.max(Micros::from_millis(1)))
    }

    /// The rate after one interval.
    pub fn on_mi(&mut self, view: &View<'_>) -> (Rate, Reason) {
        let &View {
            mi,
            est,
            rate,
            pkt_bytes,
            ..
        } = view;
        let srtt = est.srtt();
        let lossy = mi.lost_pkts >= 1.0
            && (est.class(mi) == LossClass::Congestive || est.excess_loss(mi) > LOSS_LIMIT);
        let queue = mi.rtt.map_or(Micros::ZERO, |rtt| rtt.min - est.rtt_min());
        let tolerated = (est.rtt_min() * QUEUE_RTTS)
            .max(rate.time_for(QUEUE_PKTS * pkt_bytes))
            .max(QUEUE_MIN);
        let floor = Self::floor(srtt, pkt_bytes);
        if lossy || queue > tolerated {
            if est.now() < self.patient_until {
                return (rate, Reason::Wait);
            }
            self.patient_until = est.now() + Self::interval(srtt, rate, pkt_bytes) * HOLDOFF;
            let (target, reason) = if lossy {
                let factor = if mi.lost_pkts < 2.0 {
                    ONE_LOSS_FACTOR
                } else {
                    LOSS_FACTOR
                };
                (rate * factor, Reason::ClimbLoss)
            } else {
                let mean = mi.rtt.map_or(srtt, |rtt| rtt.mean);
                let share = (QUEUE_SHARE * (queue / mean)).clamp(QUEUE_BACKOFF.0, QUEUE_BACKOFF.1);
                let arrived = if mi.samples >= 3.0 && !mi.limited {
                    mi.goodput
                } else {
                    rate
                };
                (
                    rate.min(arrived).max(rate * BACKOFF_FLOOR) * (1.0 - share),
                    Reason::ClimbQueue,
                )
            };
            return (target.max(rate * BACKOFF_FLOOR).max(floor), reason);
        }
        if mi.limited || mi.stalled {
            return (rate, Reason::AppLimited);
        }
        let window_pkts = rate.bytes_in(srtt) / pkt_bytes;
        let per_rtt = if window_pkts < TINY_PKTS { 1.0 } else { 0.5 };
        let rtts = (mi.sent_for / srtt).min(1.0);
        (
            rate + Rate::from_bytes_in(per_rtt * pkt_bytes, srtt) * rtts,
            Reason::Climb,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::report;
    use crate::estimate::{Estimator, SlotContext};
    use crate::params::Params;

    const PKT: f64 = 1000.0;
    const RATE: Rate = Rate::from_bytes_per_sec(100e3);

    /// One RTT of 100 ms at 100 kB/s: 10 packets, on a path of 50 to 150 ms.
    fn step(climber: &mut Aimd, at: u64, rtt: u64, lost: u64) -> (Rate, Reason) {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let context = |asked| SlotContext {
            asked,
            length: Micros::new(100_000),
            mss_bytes: PKT,
        };
        est.observe(&report(9, 0, &[(0, 50_000, 0)], 1000), context(None));
        est.observe(&report(9, 1, &[(0, 150_000, 0); 8], 1000), context(None));
        let acks: Vec<_> = (0..10)
            .map(|i| (i * 10_000, rtt, u64::from(i < lost)))
            .collect();
        let mi = est.observe(&report(33, at, &acks, 100_000), context(Some(RATE)));
        est.assume_rtt(Micros::new(rtt));
        climber.on_mi(&View {
            mi: &mi,
            est: &est,
            rate: RATE,
            pkt_bytes: PKT,
            params: &params,
        })
    }

    #[test]
    fn it_climbs_by_a_packet_or_half_of_one_per_rtt() {
        let (rate, reason) = step(&mut Aimd::default(), 1_000_000, 55_000, 0);
        assert_eq!(reason, Reason::Climb);
        let pkts = (rate.bytes_per_sec() - 100e3) * 0.055 / PKT;
        assert!((pkts - 1.0).abs() < 1e-6, "{pkts}");
        let (rate, _) = step(&mut Aimd::default(), 1_000_000, 62_000, 0);
        assert!(rate > RATE);
        let wide = step(&mut Aimd::default(), 1_000_000, 69_000, 0).0;
        assert!((wide.bytes_per_sec() - 100e3) * 0.069 / PKT <= 1.0 + 1e-6);
    }

    #[test]
    fn it_backs_off_from_loss_at_a_full_queue_but_not_at_an_empty_one_that_is_rare() {
        let (rate, reason) = step(&mut Aimd::default(), 1_000_000, 140_000, 2);
        assert_eq!((rate, reason), (RATE * 0.7, Reason::ClimbLoss));
        let one = step(&mut Aimd::default(), 1_000_000, 140_000, 1);
        assert_eq!(one, (RATE * 0.85, Reason::ClimbLoss));
        let (_, reason) = step(&mut Aimd::default(), 1_000_000, 55_000, 1);
        assert_eq!(reason, Reason::ClimbLoss, "a loss in eleven is not rare");
    }

    #[test]
    fn it_takes_back_a_standing_queue_once_per_two_intervals() {
        let mut climber = Aimd::default();
        let (rate, reason) = step(&mut climber, 1_000_000, 100_000, 0);
        assert_eq!(reason, Reason::ClimbQueue);
        assert!(rate < RATE * 0.94 && rate >= RATE * 0.6, "{rate}");
        assert_eq!(
            step(&mut climber, 1_010_000, 100_000, 0),
            (RATE, Reason::Wait)
        );
    }
}
