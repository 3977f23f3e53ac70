//! A policer: two intervals with heavy loss that deliver the same show the rate that it lets pass, which is then kept
//! for a while.

use crate::control::{Ack, RateSample};
use crate::{MILLISECOND, seconds};

/// Round trips of an interval.
const SHORTEST: u32 = 4;
const LONGEST: u32 = 4 * SHORTEST;
/// Loss that counts, per delivered packet.
const HEAVY: f64 = 50.0 / 256.0;
/// Rates are the same within this part.
const SAME: f64 = 1.0 / 8.0;
/// The rate is kept for so many round trips.
const KEPT: u32 = 48;

/// What is known of a policer.
#[derive(Clone, Debug, Default)]
pub(super) struct Policer {
    sampling: Option<Interval>,
    rounds: u32,
    lost: u64,
    /// Of the last interval, packets/s.
    rate: Option<f64>,
    confirmed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    start_ns: u64,
    delivered: u64,
    lost: u64,
}

impl Policer {
    /// The rate to keep, packets/s.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate.filter(|_| self.confirmed)
    }

    /// Forgets all.
    pub(super) fn reset(&mut self) {
        *self = Self {
            lost: self.lost,
            ..Self::default()
        };
    }

    /// Takes a sample; whether a kept rate has had its time, so that probing begins anew.
    pub(super) fn on_sample(
        &mut self,
        ack: &Ack,
        sample: &RateSample,
        round_start: bool,
        steady: bool,
    ) -> bool {
        self.lost += ack.lost;
        if self.confirmed {
            self.rounds += u32::from(round_start && steady);
            let over = self.rounds >= KEPT;
            if over {
                self.reset();
            }
            return over;
        }
        if self.sampling.is_none() {
            if ack.lost == 0 {
                return false;
            }
            self.begin(ack);
        }
        if sample.app_limited {
            self.reset();
            return false;
        }
        self.rounds += u32::from(round_start);
        if self.rounds > LONGEST {
            self.reset();
        } else if self.rounds >= SHORTEST && ack.lost > 0 {
            self.look(ack);
        }
        false
    }

    fn begin(&mut self, ack: &Ack) {
        self.rounds = 0;
        self.sampling = Some(Interval {
            start_ns: ack.now_ns,
            delivered: ack.total_delivered,
            lost: self.lost,
        });
    }

    fn look(&mut self, ack: &Ack) {
        let Some(began) = self.sampling else { return };
        let lost = (self.lost - began.lost) as f64;
        let delivered = (ack.total_delivered - began.delivered) as f64;
        let length_ns = ack.now_ns - began.start_ns;
        if delivered == 0.0 || lost < HEAVY * delivered || length_ns < MILLISECOND {
            return;
        }
        let rate = delivered / seconds(length_ns);
        if let Some(before) = self
            .rate
            .filter(|before| (rate - before).abs() <= SAME * before)
        {
            self.rate = Some((rate + before) / 2.0);
            self.confirmed = true;
            self.rounds = 0;
            return;
        }
        self.rate = Some(rate);
        self.begin(ack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many rounds of 100 ms with these packets delivered and lost; whether probing began anew.
    fn rounds(
        policer: &mut Policer,
        rounds: std::ops::Range<u64>,
        delivered: u64,
        lost: u64,
    ) -> bool {
        let sample = RateSample::default();
        rounds.fold(false, |_, round| {
            let ack = Ack {
                now_ns: round * 100 * MILLISECOND,
                total_delivered: round * delivered,
                lost,
                ..Ack::default()
            };
            policer.on_sample(&ack, &sample, true, true)
        })
    }

    #[test]
    fn heavy_loss_at_one_rate_is_a_policers_for_a_while() {
        let mut policer = Policer::default();
        rounds(&mut policer, 1..9, 100, 30);
        assert_eq!(policer.rate(), Some(1000.0));
        assert!(!rounds(&mut policer, 9..56, 100, 30));
        assert!(rounds(&mut policer, 56..57, 100, 30), "probes again");
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn some_loss_is_none() {
        let mut policer = Policer::default();
        rounds(&mut policer, 1..200, 100, 10);
        assert_eq!(policer.rate(), None);
    }
}
