//! Beside BBR: its own model (version 1, Cardwell et al., 2016).
//!
//! ```text
//!   bandwidth = most that arrived in one of the last ten RTTs     rate = gain x bandwidth, gains 1.25, 0.75, then 1 for six RTTs
//!   window    = 2 x bandwidth x smallest RTT
//! ```
//!
//! BBR answers no losses. Whoever does is left an eighth of a path with a buffer below some one and a half
//! bandwidth-delay products, Cubic, too. The same model beside the same model is as fair as BBR's flows are to each
//! other, and with a deeper buffer the queue is as short as BBR's: one bandwidth-delay product, where Cubic's law would
//! fill the buffer.
//!
//! Limits: like BBR it loses a twentieth and more where the buffer is short, and it takes most of such a path from
//! others than BBR. So it goes on only while BBR is seen to be there ([`crate::handbrake::compete`]). Where windows and
//! not rates limit all flows, as at just one bandwidth-delay product, they become equal slowly.

use crate::estimate::Estimator;
use crate::handbrake::View;
use crate::plan::Reason;
use crate::units::Rate;

/// RTTs that a rate is remembered. Source: Linux `bbr_bw_rtts`.
const REMEMBERED: usize = 10;
/// Gains of the pacing rate, each for an RTT. Source: Linux `bbr_pacing_gain`.
const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// What is paced is a little less than that, so that no queue is left. Source: Linux `bbr_pacing_margin_percent`.
const PACING_MARGIN: f64 = 0.99;
/// Window over the bandwidth-delay product. Source: Linux `bbr_cwnd_gain`.
const WINDOW_GAIN: f64 = 2.0;
/// Packets more, for three of the kernel's least bursts. Source: Linux `bbr_quantization_budget`.
const WINDOW_SLACK_PKTS: f64 = 6.0;

/// What arrived lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bbr {
    /// Bytes/s of the last intervals.
    rates: [f32; REMEMBERED],
    /// Intervals so far, modulo 40: a place among those, and a gain.
    turn: u8,
}

impl Bbr {
    /// Begins at a rate, with the gain of this number.
    pub(super) fn new(rate: Rate, turn: u8) -> Self {
        Self {
            rates: [rate.bytes_per_sec() as f32; REMEMBERED],
            turn: turn % GAINS.len() as u8,
        }
    }

    /// The bandwidth.
    pub(super) fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(f64::from(self.rates.iter().copied().fold(0.0, f32::max)))
    }

    /// The pacer's rate over the bandwidth.
    pub(super) fn gain(&self) -> f64 {
        GAINS[usize::from(self.turn) % GAINS.len()] * PACING_MARGIN
    }

    pub(super) fn window_pkts(&self, est: &Estimator, pkt_bytes: f64) -> f64 {
        self.rate().bytes_in(est.rtt_min()) / pkt_bytes * WINDOW_GAIN + WINDOW_SLACK_PKTS
    }

    /// Takes what arrived in one interval, which lasts an RTT.
    pub(super) fn on_mi(&mut self, view: &View<'_>) -> Reason {
        let window = self.window_pkts(view.est, view.pkt_bytes) * view.pkt_bytes;
        let paced = view.mi.asked.unwrap_or(Rate::ZERO);
        let allowed = paced.min(Rate::from_bytes_in(window, view.est.srtt()));
        // As its rate samples: what arrived, in the time that it took to send or to arrive, whichever is longer.
        let arrived = view.mi.goodput.min(view.mi.send_rate);
        let limited = view.mi.sent_less_than(allowed) || view.mi.stalled;
        self.turn = (self.turn + 1) % (REMEMBERED * GAINS.len() / 2) as u8;
        if limited && arrived < self.rate() {
            return Reason::AppLimited;
        }
        self.rates[usize::from(self.turn) % REMEMBERED] = arrived.bytes_per_sec() as f32;
        Reason::CompeteBbr
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{PKT, RATE, interval};
    use crate::params::Params;

    /// An interval in which this part of the rate arrived.
    fn arrives(bbr: &mut Bbr, part: f64) -> Reason {
        let params = Params::default();
        let (est, mut mi) = interval(RATE, 60_000, 10);
        mi.goodput = RATE * part;
        mi.send_rate = RATE * 2.0;
        bbr.on_mi(&View {
            mi: &mi,
            est: &est,
            rate: RATE,
            pkt_bytes: PKT,
            params: &params,
        })
    }

    fn part_of(bbr: &Bbr) -> f64 {
        bbr.rate().bytes_per_sec() / RATE.bytes_per_sec()
    }

    #[test]
    fn the_bandwidth_is_the_most_of_ten_intervals() {
        let mut bbr = Bbr::new(RATE * 0.5, 0);
        arrives(&mut bbr, 1.0);
        for _ in 1..10 {
            assert_eq!(arrives(&mut bbr, 0.8), Reason::CompeteBbr);
            assert!((part_of(&bbr) - 1.0).abs() < 1e-6);
        }
        arrives(&mut bbr, 0.8);
        assert!((part_of(&bbr) - 0.8).abs() < 1e-6, "losses are no reason");
    }

    #[test]
    fn its_gains_are_bbrs() {
        let mut bbr = Bbr::new(RATE, 6);
        let gains: Vec<_> = (0..8)
            .map(|_| {
                arrives(&mut bbr, 1.0);
                (bbr.gain() / PACING_MARGIN * 100.0).round()
            })
            .collect();
        assert_eq!(
            gains,
            [100.0, 125.0, 75.0, 100.0, 100.0, 100.0, 100.0, 100.0]
        );
    }
}
