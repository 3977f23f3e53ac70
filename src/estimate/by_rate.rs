//! Whether losses come with the rate.
//!
//! A policer drops what is sent faster than it lets pass, and has no queue: every loss meets an empty one, as a radio
//! link's do. But a link loses the same part of whatever is sent, and a policer only of what is too much. So the losses
//! are fitted to the rates at which they were sent: where a part more of the rate loses a fifth of that part or more,
//! they are an answer to the rate, however little stands in any queue, and nothing of them is the path's own.
//!
//! Limits: it takes rates that differ. A flow that has stayed at one rate, as at its slowest one, is told nothing; and
//! one of many flows moves the sum, and so the losses, by little.

use super::Mi;
use crate::units::Rate;

/// Packets before they tell, and those that are remembered.
const MIN_PKTS: f32 = 200.0;
const MEMORY_PKTS: f32 = 3000.0;
/// Loss per logarithm of the rate that is an answer to it, and its standard errors. A policer alone has 1 - loss.
/// Source: simulated, 32 policed paths, 60 that lose .3 to 10 %, 150 that flows share: with .1 one flow loses 7.7 % for
/// 8.1 at a policer, several 16.3 for 17.9, but of lossy paths .917 are used for .921; with .25 8.5 and 18.8 %, and the
/// same; with 3 errors flows that share lossy paths have a Jain's index of .948 for .957.
const SLOPE: f32 = 0.2;
const SLOPE_ERRORS: f32 = 4.0;
/// Rates that differ less, as the sum of their logarithms' squares, are one.
const NO_SQUARES: f32 = 1e-3;

/// Means of the rate's logarithm and of the loss over packets, and the squares and products of what differs from them,
/// with a fading memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossesByRate {
    pkts: f32,
    log: f32,
    loss: f32,
    squares: f32,
    products: f32,
}

impl LossesByRate {
    /// Takes an interval that was sent at this rate.
    pub(super) fn learn(&mut self, rate: Rate, mi: &Mi) {
        let pkts = mi.pkts() as f32;
        if pkts < 1.0 {
            return;
        }
        let off = libm::log(rate.bytes_per_sec()) as f32 - self.log;
        self.pkts += pkts;
        self.log += off * (pkts / self.pkts);
        self.loss += (mi.loss() as f32 - self.loss) * (pkts / self.pkts);
        // One of both differences is from the mean before, the other from that with this interval (Welford).
        let before = (self.pkts - pkts) / self.pkts;
        self.squares += pkts * off * off * before;
        self.products += pkts * off * (mi.loss() as f32 - self.loss);
        if self.pkts > MEMORY_PKTS {
            let keep = 0.9 * MEMORY_PKTS / self.pkts;
            self.pkts *= keep;
            self.squares *= keep;
            self.products *= keep;
        }
    }

    /// Whether they do, with losses that vary by so much more than independent ones.
    pub(super) fn follow(&self, dispersion: f64) -> bool {
        if self.pkts < MIN_PKTS || self.squares < NO_SQUARES {
            return false;
        }
        let slope = self.products / self.squares;
        let variance = self.loss * (1.0 - self.loss) * dispersion as f32;
        slope > SLOPE && slope > SLOPE_ERRORS * (variance / self.squares).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::SlotContext;
    use crate::estimate::interval::read;
    use crate::estimate::tests::report;
    use crate::units::Micros;

    const LENGTH: Micros = Micros::new(20_000);

    /// A hundred packets, of which so many are lost.
    fn interval(lost: f64) -> Mi {
        let acks: Vec<_> = (0..20).map(|ack| (ack * 1000, 20_000, 0)).collect();
        let context = SlotContext {
            asked: None,
            length: LENGTH,
            mss_bytes: 1000.0,
        };
        Mi {
            lost_pkts: lost,
            delivered_pkts: 100.0 - lost,
            ..read(&report(33, 0, &acks, LENGTH.us()), context, 1000.0, LENGTH)
        }
    }

    /// Whether losses follow that are such a part at rates of .8 to 1.2 times a mean.
    fn follows(intervals: u32, lost: impl Fn(f64) -> f64) -> bool {
        let mut losses = LossesByRate::default();
        for number in 0..intervals {
            let part = 0.8 + 0.05 * f64::from(number % 9);
            let lost = (100.0 * lost(part)).round();
            losses.learn(Rate::from_mbit(10.0) * part, &interval(lost));
        }
        losses.follow(1.0)
    }

    #[test]
    fn a_policer_s_losses_follow_the_rate() {
        let policed = |part: f64| (1.0 - 1.0 / part).max(0.0);
        assert!(follows(27, policed));
        assert!(!follows(1, policed), "a hundred packets");
    }

    #[test]
    fn a_link_s_losses_do_not() {
        assert!(!follows(270, |_| 0.05));
        assert!(!follows(270, |_| 0.0));
        let little_more = |part| 0.1 * part;
        assert!(!follows(270, little_more), "however certain");
    }

    #[test]
    fn one_rate_tells_nothing() {
        let mut losses = LossesByRate::default();
        for number in 0..40 {
            let lost = f64::from(number % 3) * 10.0;
            losses.learn(Rate::from_mbit(10.0), &interval(lost));
        }
        assert!(!losses.follow(1.0));
    }
}
