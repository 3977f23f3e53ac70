//! What the ACKs of the initial window tell of the path.
//!
//! Its packets leave at one time and come out of the bottleneck one after the other, so that the spacing of their ACKs
//! is the path's rate (Dovrolis, Ramanathan and Moore, 2004). The fast start need not find that by doubling.
//!
//! A receiver, a radio link or a card that collects ACKs makes bunches of them, whose spacing is its own. A train in
//! which one gap is more than half of the whole therefore tells nothing, nor does one of few gaps, nor packets that an
//! application sent later.
//!
//! What wakes up for the first packets, a host that slept or a card that waits for more, is late for them and not for
//! those behind: their gaps are too short, and the path looks faster than it is. So the rate is that of all gaps or of
//! those behind the first packets, whichever is less.
//!
//! On a slow path the train lasts longer than an RTT, and all that is sent before it tells the rate comes to stand in
//! the queue. So until it is over the window is the initial one: what its ACKs let out arrives no faster than they do.
//!
//! A server that first shakes hands (TLS) sends a few packets, and its first full window with its answer, an RTT or
//! more later. So where all that was written is acknowledged and tells nothing, what comes next is a train of its own,
//! and the datapath lets it leave as one burst.
//!
//! Where others fill the path's queue already, most of the window meets no room. A flow that has lost half of it is a
//! newcomer in a crowd, or behind a buffer of a few packets: nothing here tells them apart, but either way more of the
//! same would be lost.
//!
//! Limits: other flows' packets are between those of the train only if they came with them, so that it tells the path's
//! rate, not what is left of it. A shaper that lets a bucket of packets pass tells the rate of the line.

use crate::units::{Micros, Rate};

/// The train is over when `ENOUGH` of the initial window is acknowledged, or after `PATIENCE_RTTS` if there are gaps
/// enough to tell a rate, or after `LONGEST_RTTS` regardless. A later flight's first ACKs may be mixed with the last
/// ones of the flight before, so it also needs those gaps, or the whole window. A first flight does not: waiting for
/// gaps would take bunches for a rate (simulated, 24 paths that jitter: used by .87 for .90). Source: simulated, 1 to
/// 50 flows on 389 random paths, a quarter below 2 Mbit/s: loss over Cubic's 1.055 and 1.10 to .966 and .991 against a
/// quarter of an RTT for both; downloads over still paths take as long, over those whose ACKs are collected for 12 ms a
/// tenth less, where RTTs jitter by 12 ms 2 % more. That is with .7 and with .8, which are the same where a receiver
/// acknowledges every second packet; with .95 and .98 clean paths are used by .989 for .995, 60 that jitter by .862 for
/// .899.
const ENOUGH: f64 = 0.8;
const PATIENCE_RTTS: f64 = 0.25;
const LONGEST_RTTS: f64 = 1.0;
/// Flights that may tell nothing: a sender whose buffer holds less than the window, and whose ACKs come all in one,
/// never sends another.
const FLIGHTS: u8 = 3;
/// Gaps between ACKs, at least, and the largest one as a part of them all, at most. Source: simulated, 32 downloads
/// over paths that collect ACKs for 4 and 12 ms: without, 1 MB takes 1.8 and 2.7 of Cubic's time; at .65 as at .5.
const MIN_GAPS: u8 = 3;
const WIDEST_PART: f64 = 0.5;
/// First packets, whose ACKs may come too late for their gaps to tell, and packets behind them that do. Source: of 12
/// trains each on this machine's TCP at 50, 100 and 200 Mbit/s, the rate over the path's is 1.04, 1.08 and 1.30 in the
/// median over the first seven packets (1.07, 1.15, 1.80 at most), 1.01 from the fourth to the eighth (1.01, 1.04, and
/// 1.05 but for one). Simulated, where nothing is late: 802 for 790 of 872 drawn goals.
const LATE_PKTS: u16 = 4;
const TELLING_PKTS: u16 = 4;
/// Part of the train's length by which the last packet's RTT is longer than the first one's, at least, if all left
/// together. Source: it is all of it then, and none for packets that were sent at the rate at which they arrive.
/// Simulated, streams of video: the worst second of one that took its own spacing for the path's was 3.8 Mbit/s for
/// 4.5.
const BURST_PART: f64 = 0.5;

/// Lost part of the initial window from which on a flow goes on with what arrived. Source: simulated, 40 crowds of 8 to
/// 100 flows: loss 3.94 % without, 3.49 % with this, 3.51 % with .4, 3.58 % with .7; 42 paths with six flows at 5 to 20
/// packets: Jain's index .965, .963, .961, .960.
const LOST_PART: f64 = 0.5;

/// The ACKs of the initial window so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Train {
    acks: u8,
    /// When the first came, us, modulo 2^32.
    first: u32,
    /// From the first to the last, and the widest gap, us.
    span: u32,
    widest: u32,
    /// The same up to the ACK behind which none is late, us.
    late: u32,
    pkts: u16,
    /// Packets of the first ACK, which arrived before the first gap, and those that arrived up to the other one; zero
    /// before.
    first_pkts: u8,
    late_pkts: u8,
    /// Packets found lost.
    lost_pkts: u8,
    /// RTT of the first, us.
    first_rtt: u32,
    /// All that was sent is acknowledged.
    over: bool,
    /// Flights before it.
    flights: u8,
}

impl Train {
    /// ACKs of so many packets at this time, which took so long if they tell, and whether all is acknowledged now.
    pub fn note(&mut self, now: Micros, pkts: f64, rtt: Option<Micros>, over: bool) {
        if self.over {
            *self = Self {
                flights: self.flights.saturating_add(u8::from(self.acks > 0)),
                ..Self::default()
            };
        }
        self.over = over;
        // `as` saturates for fractions, and is the remainder for whole numbers.
        let (pkts, now) = (pkts as u16, now.us() as u32);
        let Some(rtt) = rtt else {
            if self.acks > 0 {
                self.pkts = self.pkts.saturating_add(pkts);
            }
            return;
        };
        if self.acks == 0 {
            (self.first, self.first_rtt) = (now, rtt.us() as u32);
            self.first_pkts = pkts.min(u8::MAX.into()) as u8;
        }
        let span = now.wrapping_sub(self.first);
        self.widest = self.widest.max(span.saturating_sub(self.span));
        self.span = span;
        self.pkts = self.pkts.saturating_add(pkts);
        self.acks = self.acks.saturating_add(1);
        if self.late_pkts == 0 && self.pkts >= LATE_PKTS {
            (self.late, self.late_pkts) = (span, self.pkts.min(u8::MAX.into()) as u8);
        }
    }

    /// The same ACKs show that so many were lost.
    pub fn note_lost(&mut self, pkts: f64) {
        self.lost_pkts = self.lost_pkts.saturating_add(pkts as u8);
    }

    /// Whether there was one report of ACKs so far.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.acks == 1
    }

    /// Whether to wait no longer, with an initial window of `init_pkts`.
    #[must_use]
    pub fn is_over(&self, init_pkts: f64, srtt: Micros) -> bool {
        let patience = if self.acks > MIN_GAPS {
            PATIENCE_RTTS
        } else {
            LONGEST_RTTS
        };
        let pkts = f64::from(self.pkts);
        let enough = pkts >= init_pkts * ENOUGH && (self.flights == 0 || self.acks > MIN_GAPS);
        let tried = self.flights >= FLIGHTS;
        enough || tried || pkts >= init_pkts || self.span() >= srtt * patience
    }

    /// The path's rate, if the train tells one.
    #[must_use]
    pub fn rate(&self, pkt_bytes: f64) -> Option<Rate> {
        let even = f64::from(self.widest) <= f64::from(self.span) * WIDEST_PART;
        if self.acks <= MIN_GAPS || !even || self.span == 0 {
            return None;
        }
        let over = |pkts: u16, us: u32| {
            Rate::from_bytes_in(f64::from(pkts) * pkt_bytes, Micros::new(us.into()))
        };
        let all = over(self.pkts - u16::from(self.first_pkts), self.span);
        let (pkts, us) = (self.pkts - u16::from(self.late_pkts), self.span - self.late);
        let tells = self.late_pkts > 0 && pkts >= TELLING_PKTS && us > 0;
        Some(if tells { all.min(over(pkts, us)) } else { all })
    }

    /// Whether the packets left together, the last of which took so long, so that each came out of the bottleneck later
    /// after it was sent than the one before. What an application sent little by little has the RTT of an empty path,
    /// and its own spacing.
    #[must_use]
    pub fn is_burst(&self, last_rtt: Micros) -> bool {
        let later = last_rtt - Micros::new(self.first_rtt.into());
        later >= self.span() * BURST_PART
    }

    /// The part of an initial window of `init_pkts` that arrived, if half of it was lost.
    #[must_use]
    pub fn rest(&self, init_pkts: f64) -> Option<f64> {
        let lost = f64::from(self.lost_pkts) >= init_pkts * LOST_PART;
        lost.then(|| (f64::from(self.pkts) / init_pkts).min(1.0))
    }

    fn span(&self) -> Micros {
        Micros::new(self.span.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PKT: f64 = 1000.0;
    const SRTT: Micros = Micros::new(40_000);
    const START: Micros = Micros::new(1_000_000);

    /// ACKs of two packets each at these times, in us.
    fn train(times: &[u64]) -> Train {
        let mut train = Train::default();
        for at in times {
            train.note(START + Micros::new(*at), 2.0, Some(SRTT), false);
        }
        train
    }

    #[test]
    fn first_packets_that_come_late_do_not_make_the_path_faster() {
        let single = |times: [u64; 8]| {
            let mut train = Train::default();
            for at in times {
                train.note(START + Micros::new(at), 1.0, Some(SRTT), false);
            }
            train.rate(PKT)
        };
        let tells = Rate::from_bytes_per_sec(1e7);
        assert_eq!(single([0, 100, 200, 300, 400, 500, 600, 700]), Some(tells));
        assert_eq!(
            single([180, 190, 210, 300, 400, 500, 600, 700]),
            Some(tells)
        );
        // One late packet at the end does not make it faster, either.
        let late_last = single([0, 100, 200, 300, 400, 500, 600, 800]).unwrap();
        assert!(late_last < tells && late_last > tells * 0.7);
    }

    #[test]
    fn even_gaps_tell_the_paths_rate() {
        let even = train(&[0, 2000, 4000, 6000]);
        assert!(even.is_over(10.0, SRTT), "8 of 10");
        assert_eq!(even.rate(PKT), Some(Rate::from_bytes_per_sec(1e6)));
    }

    #[test]
    fn packets_that_left_together_have_rtts_that_grow() {
        let even = train(&[0, 2000, 4000, 6000]);
        assert!(even.is_burst(SRTT + Micros::new(6000)));
        assert!(!even.is_burst(SRTT), "little by little");
    }

    #[test]
    fn half_of_the_window_lost_leaves_what_arrived() {
        let mut crowded = train(&[0, 2000]);
        crowded.note_lost(4.0);
        assert_eq!(crowded.rest(10.0), None, "less than half");
        crowded.note_lost(1.0);
        assert_eq!(crowded.rest(10.0), Some(0.4));
        crowded.note_lost(1e9);
        crowded.over = true;
        crowded.note(START + SRTT, 2.0, Some(SRTT), false);
        assert_eq!(crowded.rest(10.0), None, "another flight");
    }

    #[test]
    fn what_comes_after_all_was_acknowledged_is_a_train_of_its_own() {
        let mut answer = train(&[0, 1000]);
        answer.note(START + Micros::new(2000), 2.0, Some(SRTT), true);
        assert!(!answer.is_over(10.0, SRTT) && !answer.is_first());
        for at in [80_000, 82_000, 84_000, 86_000] {
            answer.note(START + Micros::new(at), 2.0, Some(SRTT), false);
            assert_eq!(answer.is_first(), at == 80_000);
        }
        assert!(answer.is_over(10.0, SRTT), "8 of 10");
        assert_eq!(answer.rate(PKT), Some(Rate::from_bytes_per_sec(1e6)));
    }

    #[test]
    fn flights_that_tell_nothing_are_not_waited_for_without_end() {
        let mut train = Train::default();
        for flight in 1..=4 {
            let at = Micros::new(50_000) * f64::from(flight);
            train.note(START + at, 8.0, Some(SRTT), true);
            assert_eq!(train.is_over(14.0, SRTT), flight == 4, "{flight}");
        }
    }

    #[test]
    fn an_ack_without_a_sample_is_no_gap() {
        let mut even = train(&[0, 2000, 4000]);
        even.note(START + Micros::new(6000), 2.0, None, false);
        even.note(START + Micros::new(8000), 2.0, Some(SRTT), false);
        assert_eq!(even.rate(PKT), Some(Rate::from_bytes_per_sec(1e6)));
    }

    #[test]
    fn bunches_and_few_acks_tell_nothing() {
        assert_eq!(train(&[0, 10, 20, 6000]).rate(PKT), None);
        assert_eq!(train(&[0, 2000, 4000]).rate(PKT), None);
        assert_eq!(train(&[0; 5]).rate(PKT), None);
        assert_eq!(Train::default().rate(PKT), None);
    }

    #[test]
    fn it_waits_for_most_of_the_window_or_a_quarter_of_the_rtt() {
        let is_over = |times: &[u64]| train(times).is_over(12.0, SRTT);
        assert!(!is_over(&[]));
        assert!(!is_over(&[0, 1000, 2000, 3000]), "8 of 12");
        assert!(is_over(&[0, 1000, 2000, 3000, 4000]), "10 of 12");
        assert!(is_over(&[0, 3000, 6000, 10_000]), "10 ms");
        let mut bunches = train(&[0, 1, 2, 3, 4]);
        assert!(bunches.is_over(12.0, SRTT), "10 of 12");
        bunches.over = true;
        for at in [50_000, 50_001, 50_002] {
            bunches.note(START + Micros::new(at), 4.0, Some(SRTT), false);
        }
        assert!(!bunches.is_over(14.0, SRTT), "two gaps of another flight");
        assert!(bunches.is_over(12.0, SRTT), "all of the window");
    }

    #[test]
    fn it_waits_for_gaps_enough_for_up_to_an_rtt() {
        assert!(!train(&[0, 20_000]).is_over(10.0, SRTT));
        assert!(!train(&[0, 15_000, 30_000]).is_over(10.0, SRTT));
        assert!(train(&[0, 40_000]).is_over(10.0, SRTT));
    }
}
