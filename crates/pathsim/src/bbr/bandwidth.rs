//! The largest delivery rate of the last ten round trips.

use crate::control::RateSample;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Round trips that a rate is remembered: a cycle of eight gains, and two.
const ROUNDS: u64 = 10;

/// The filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Bandwidth {
    round: u64,
    /// Round and rate in packets/s: falling rates, so that the first is the largest.
    rates: VecDeque<(u64, f64)>,
    /// Packets sent with these deliveries were held back by PROBE_RTT.
    limited: Option<RangeInclusive<u64>>,
}

impl Bandwidth {
    /// The estimate, packets/s.
    pub(super) fn max(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// What is in flight now and what follows it is limited.
    pub(super) fn limit(&mut self, delivered: u64, in_flight: u64) {
        let from = self
            .limited
            .as_ref()
            .filter(|limited| *limited.end() >= delivered)
            .map_or(delivered, |limited| *limited.start());
        self.limited = Some(from..=delivered + in_flight);
    }

    pub(super) fn on_sample(&mut self, sample: &RateSample, round_start: bool) {
        self.round += u64::from(round_start);
        let rate = sample.rate();
        let held_back = self
            .limited
            .as_ref()
            .is_some_and(|limited| limited.contains(&sample.prior_delivered));
        if (sample.app_limited || held_back) && rate < self.max() {
            return;
        }
        while self.rates.back().is_some_and(|(_, less)| *less <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self
            .rates
            .front()
            .is_some_and(|(round, _)| self.round - round >= ROUNDS)
        {
            self.rates.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;

    fn sample(packets: u64, prior_delivered: u64) -> RateSample {
        RateSample {
            delivered: packets,
            prior_delivered,
            interval_ns: SECOND,
            app_limited: false,
        }
    }

    #[test]
    fn the_largest_of_ten_rounds_counts() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.on_sample(&sample(100, 0), true);
        for round in 1..10 {
            bandwidth.on_sample(&sample(50 + round, 100), true);
            assert_eq!(bandwidth.max(), 100.0, "{round}");
        }
        bandwidth.on_sample(&sample(10, 100), true);
        assert_eq!(bandwidth.max(), 59.0);
    }

    #[test]
    fn what_was_held_back_only_raises_it() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.on_sample(&sample(100, 0), true);
        bandwidth.limit(500, 4);
        for _ in 0..20 {
            bandwidth.on_sample(&sample(4, 502), true);
        }
        assert_eq!(bandwidth.max(), 100.0);
        bandwidth.on_sample(&sample(4, 505), true);
        assert_eq!(bandwidth.max(), 4.0);
    }
}
