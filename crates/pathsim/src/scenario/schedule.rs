//! Capacity over time: constant, in steps, or recorded.

use super::{InvalidScenario, MAX_TIME_NS, in_range};
use crate::{MILLISECOND, SECOND, WIRE};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Slowest and fastest link, bits per second.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 1_000..=100_000_000_000;

/// Opportunities of a drawn trace at most; 100 MB of memory.
const MAX_DRAWN: u64 = 12_000_000;

/// Steps in a period of a rate that swings, enough for a sine within 8 % of its amplitude.
const STEPS_PER_SWING: u64 = 40;

/// Steps of a rate that wanders, at most.
const MAX_WANDERED: u64 = 400_000;

/// When a link of varying capacity can send: one packet per opportunity, as in mahimahi.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Opportunities in ms, ascending; a time may occur several times, or not at all.
    opportunities_ms: Vec<u64>,
}

impl Trace {
    /// Reads a mahimahi trace: one time in ms a line. After its last time it begins anew.
    ///
    /// # Errors
    /// [`InvalidScenario::Trace`] names the first line that is not a time, or goes back.
    pub fn parse(text: &str) -> Result<Self, InvalidScenario> {
        let mut opportunities_ms = Vec::new();
        let bad = |line: usize, text: &str| InvalidScenario::Trace {
            line,
            text: text.to_owned(),
        };
        for (index, text) in text.lines().enumerate() {
            let ms = text.trim().parse().map_err(|_| bad(index + 1, text))?;
            if opportunities_ms.last().is_some_and(|last| *last > ms)
                || ms > MAX_TIME_NS / MILLISECOND
            {
                return Err(bad(index + 1, text));
            }
            opportunities_ms.push(ms);
        }
        match opportunities_ms.last() {
            Some(1..) => Ok(Self { opportunities_ms }),
            _ => Err(bad(opportunities_ms.len(), "")),
        }
    }

    fn period_ms(&self) -> u64 {
        self.opportunities_ms.last().copied().unwrap_or(1)
    }

    /// When opportunity `number` (from 0, over all repetitions) comes, ns.
    pub(crate) fn time_ns(&self, number: u64) -> u64 {
        let count = self.opportunities_ms.len() as u64;
        let within = self.opportunities_ms[(number % count) as usize];
        (number / count * self.period_ms() + within) * MILLISECOND
    }

    /// The first opportunity at or after a time.
    pub(crate) fn first_at(&self, ns: u64) -> u64 {
        let ms = ns.div_ceil(MILLISECOND);
        let (round, within) = (ms / self.period_ms(), ms % self.period_ms());
        let count = self.opportunities_ms.len() as u64;
        // At the very end of a period the last ones of the round before are still to come.
        let round = if within == 0 && round > 0 {
            round - 1
        } else {
            round
        };
        let within = if within == 0 && ms > 0 {
            self.period_ms()
        } else {
            within
        };
        let index = self.opportunities_ms.partition_point(|at| *at < within);
        round * count + index as u64
    }

    /// Opportunities before a time.
    fn count_before(&self, ns: u64) -> u64 {
        self.first_at(ns)
    }
}

/// Capacity of the link over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RateSchedule {
    /// Bits per second, 1 kbit/s to 100 Gbit/s.
    Constant(u64),
    /// (Time in ns, bits per second from then on), ascending, the first at 0.
    Steps(Vec<(u64, u64)>),
    /// Recorded opportunities of one packet each.
    Trace(Arc<Trace>),
}

impl RateSchedule {
    /// Deliveries as a Poisson process: between opportunities of one packet pass exponentially distributed times, of a
    /// mean that makes `mean_bps`. The trace has times of whole milliseconds, as mahimahi's, and begins anew after
    /// `length_ns`.
    ///
    /// # Errors
    /// [`InvalidScenario::Range`] for a rate out of 1 kbit/s to 100 Gbit/s, or a length that holds less than 10 or
    /// more than 12 million packets.
    pub fn poisson(mean_bps: u64, length_ns: u64, seed: u64) -> Result<Self, InvalidScenario> {
        Self::Constant(mean_bps).check()?;
        let mean_ns = (WIRE * 8 * SECOND) as f64 / mean_bps as f64;
        let expected = (length_ns as f64 / mean_ns) as u64;
        let range = "long enough for 10 packets, and for 12 million at most";
        in_range("a drawn trace's packets", expected, 10..=MAX_DRAWN, range)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut at_ns, mut opportunities_ms) = (0.0, Vec::new());
        let length_ms = length_ns.div_ceil(MILLISECOND);
        loop {
            at_ns += exponential(&mut rng) * mean_ns;
            let ms = (at_ns / MILLISECOND as f64).ceil() as u64;
            if ms > length_ms {
                break;
            }
            opportunities_ms.push(ms);
        }
        // A trace lasts until its last opportunity.
        match opportunities_ms.last_mut() {
            Some(last) => *last = length_ms,
            None => opportunities_ms.push(length_ms),
        }
        Ok(Self::Trace(Arc::new(Trace { opportunities_ms })))
    }

    /// A rate that swings about `mean_bps` as a sine, by `amplitude_bps` up and down, for `length_ns`; after that it
    /// keeps its last value. It begins at the mean, upwards, and has 40 steps per period.
    ///
    /// # Errors
    /// [`InvalidScenario::Range`] for rates out of 1 kbit/s to 100 Gbit/s, a period under 1 ms, or a length of more
    /// than 10,000 periods.
    pub fn swing(
        mean_bps: u64,
        amplitude_bps: u64,
        period_ns: u64,
        length_ns: u64,
    ) -> Result<Self, InvalidScenario> {
        let period = MILLISECOND..=MAX_TIME_NS;
        let range = "1 ms to 100000 s";
        in_range("a swing's period in ns", period_ns, period, range)?;
        let most = period_ns.saturating_mul(10_000).min(MAX_TIME_NS);
        let range = "10000 periods at most";
        in_range("a swing's length in ns", length_ns, 0..=most, range)?;
        Self::Constant(mean_bps.saturating_add(amplitude_bps)).check()?;
        Self::Constant(mean_bps.saturating_sub(amplitude_bps)).check()?;
        let step_at = |number| number * period_ns / STEPS_PER_SWING;
        let steps = (0..).take_while(|number| *number == 0 || step_at(*number) < length_ns);
        let steps = steps.map(|number| {
            let turns = (number % STEPS_PER_SWING) as f64 + 0.5;
            let phase = std::f64::consts::TAU * turns / STEPS_PER_SWING as f64;
            let bps = mean_bps as f64 + amplitude_bps as f64 * libm::sin(phase);
            (step_at(number), bps.round() as u64)
        });
        Ok(Self::Steps(steps.collect()))
    }

    /// A rate that wanders about `median_bps` for `length_ns`, as a radio link's; after that it keeps its last value.
    /// Its logarithm is an Ornstein-Uhlenbeck process of standard deviation `deviation`, which forgets where it was
    /// within `memory_ns` (to 1/e), seen every `step_ns`. It begins at the median.
    ///
    /// # Errors
    /// [`InvalidScenario::Range`] for a median out of 1 kbit/s to 100 Gbit/s, between which the rate is held, a
    /// deviation out of 0 to 1, steps under 1 ms or longer than the memory, or a length of more than 400,000 steps.
    pub fn wander(
        median_bps: u64,
        deviation: f64,
        step_ns: u64,
        memory_ns: u64,
        length_ns: u64,
        seed: u64,
    ) -> Result<Self, InvalidScenario> {
        Self::Constant(median_bps).check()?;
        if !(0.0..=1.0).contains(&deviation) {
            return Err(InvalidScenario::Range {
                what: "the deviation of a rate that wanders",
                value: deviation.to_string(),
                range: "0 to 1",
            });
        }
        let range = "1 ms to the memory";
        let steps = MILLISECOND..=memory_ns.min(MAX_TIME_NS);
        in_range("a wandering rate's step in ns", step_ns, steps, range)?;
        let most = step_ns.saturating_mul(MAX_WANDERED).min(MAX_TIME_NS);
        let range = "400000 steps at most";
        in_range(
            "a wandering rate's length in ns",
            length_ns,
            0..=most,
            range,
        )?;
        let kept = libm::exp(-(step_ns as f64) / memory_ns as f64);
        let scatter = deviation * libm::sqrt(1.0 - kept * kept);
        let (low, high) = (*RATE_RANGE.start() as f64, *RATE_RANGE.end() as f64);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut logarithm = 0.0;
        let times = (0..).map(|number| number * step_ns);
        let times = times.take_while(|at_ns| *at_ns == 0 || *at_ns < length_ns);
        let steps = times.map(|at_ns| {
            let bps = median_bps as f64 * libm::exp(logarithm);
            logarithm = kept * logarithm + scatter * normal(&mut rng);
            (at_ns, bps.clamp(low, high).round() as u64)
        });
        Ok(Self::Steps(steps.collect()))
    }

    /// Bytes that the link can carry between two times in ns.
    pub fn capacity_bytes(&self, from_ns: u64, to_ns: u64) -> f64 {
        let to_ns = to_ns.max(from_ns);
        let bytes = |bps: u64, ns: u64| bps as f64 / 8.0 * (ns as f64 / SECOND as f64);
        match self {
            Self::Constant(bps) => bytes(*bps, to_ns - from_ns),
            Self::Steps(steps) => {
                let mut sum = 0.0;
                for (index, (at, bps)) in steps.iter().enumerate() {
                    let end = steps.get(index + 1).map_or(u64::MAX, |next| next.0);
                    let (start, end) = ((*at).max(from_ns), end.min(to_ns));
                    sum += bytes(*bps, end.saturating_sub(start));
                }
                sum
            }
            Self::Trace(trace) => {
                let count = trace.count_before(to_ns) - trace.count_before(from_ns);
                (count * WIRE) as f64
            }
        }
    }

    /// Whether the rates are possible, and in order.
    ///
    /// # Errors
    /// [`InvalidScenario::Range`] names the value that is not.
    pub fn check(&self) -> Result<(), InvalidScenario> {
        let rate = |bps: u64| {
            in_range(
                "the rate in bit/s",
                bps,
                RATE_RANGE,
                "1 kbit/s to 100 Gbit/s",
            )
        };
        match self {
            Self::Constant(bps) => rate(*bps),
            Self::Steps(steps) => {
                let ascending = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
                if steps.first().is_none_or(|first| first.0 != 0) || !ascending {
                    return Err(InvalidScenario::Range {
                        what: "the rate's steps",
                        value: format!("at {:?} ns", steps.iter().map(|s| s.0).collect::<Vec<_>>()),
                        range: "in ascending order, the first at 0",
                    });
                }
                steps.iter().try_for_each(|(_, bps)| rate(*bps))
            }
            Self::Trace(_) => Ok(()),
        }
    }
}

/// Exponentially distributed, of mean 1.
pub(crate) fn exponential(rng: &mut impl Rng) -> f64 {
    // Of a number above 0.
    -libm::log(1.0 - rng.random::<f64>())
}

/// Normally distributed, of mean 0 and variance 1 (Box and Muller, 1958).
fn normal(rng: &mut impl Rng) -> f64 {
    let radius = libm::sqrt(2.0 * exponential(rng));
    radius * libm::cos(std::f64::consts::TAU * rng.random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_deliveries_have_the_rate_and_the_scatter() {
        let schedule = RateSchedule::poisson(12_000_000, 100 * SECOND, 5).unwrap();
        let RateSchedule::Trace(trace) = &schedule else {
            panic!("{schedule:?}")
        };
        // 1000 packets/s expected; five standard deviations of 100,000 are 1.6 %.
        let bytes = schedule.capacity_bytes(0, 100 * SECOND);
        assert!((bytes / 150e6 - 1.0).abs() < 0.016, "{bytes}");
        let mut counts = vec![0u32; 100_001];
        trace
            .opportunities_ms
            .iter()
            .for_each(|ms| counts[*ms as usize] += 1);
        // The counts of 1 ms are Poisson distributed with mean 1: variance 1, and e^-1 of them 0.
        let empty = counts.iter().filter(|count| **count == 0).count() as f64 / 1e5;
        assert!((empty - (-1f64).exp()).abs() < 0.01, "{empty}");
        let variance = counts
            .iter()
            .map(|count| (f64::from(*count) - 1.0).powi(2))
            .sum::<f64>()
            / 1e5;
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
        assert_eq!(
            schedule,
            RateSchedule::poisson(12_000_000, 100 * SECOND, 5).unwrap()
        );
        assert_ne!(
            schedule,
            RateSchedule::poisson(12_000_000, 100 * SECOND, 6).unwrap()
        );
        let error = RateSchedule::poisson(12_000_000, MILLISECOND, 5).unwrap_err();
        assert!(error.to_string().contains("10 packets"), "{error}");
    }

    #[test]
    fn a_swing_is_a_sine_about_its_mean() {
        let swing = RateSchedule::swing(50_000_000, 20_000_000, 10 * SECOND, 60 * SECOND).unwrap();
        swing.check().unwrap();
        let mbps = |from_s: u64, to_s: u64| {
            swing.capacity_bytes(from_s * SECOND, to_s * SECOND) * 8.0
                / 1e6
                / (to_s - from_s) as f64
        };
        assert!((mbps(0, 10) - 50.0).abs() < 1e-3, "{}", mbps(0, 10));
        // The mean of half a sine is 2/π.
        let half = 20.0 * std::f64::consts::FRAC_2_PI;
        assert!((mbps(0, 5) - 50.0 - half).abs() < 0.1, "{}", mbps(0, 5));
        assert!((mbps(15, 20) - 50.0 + half).abs() < 0.1, "{}", mbps(15, 20));
        let error = RateSchedule::swing(10_000_000, 10_000_000, SECOND, SECOND).unwrap_err();
        assert!(error.to_string().contains("rate in bit/s is 0"), "{error}");
    }

    #[test]
    fn a_rate_that_wanders_scatters_about_its_median_and_forgets() {
        let wander = |deviation, step_ns, seed| {
            RateSchedule::wander(
                10_000_000,
                deviation,
                step_ns,
                2 * SECOND,
                20_000 * SECOND,
                seed,
            )
        };
        let schedule = wander(0.6, 500 * MILLISECOND, 3).unwrap();
        schedule.check().unwrap();
        let RateSchedule::Steps(steps) = &schedule else {
            panic!("{schedule:?}")
        };
        assert_eq!((steps.len(), steps[0]), (40_000, (0, 10_000_000)));
        let logs: Vec<f64> = steps.iter().map(|s| (s.1 as f64 / 1e7).ln()).collect();
        // Of 40,000 values about 5,000 are independent: five standard errors of mean and deviation.
        let mean = logs.iter().sum::<f64>() / 4e4;
        assert!(mean.abs() < 0.042, "{mean}");
        let covariance = |lag: usize| {
            let pairs = logs.iter().zip(&logs[lag..]);
            pairs.map(|(a, b)| a * b).sum::<f64>() / (logs.len() - lag) as f64
        };
        assert!(
            (covariance(0).sqrt() - 0.6).abs() < 0.03,
            "{}",
            covariance(0)
        );
        // After four steps, which are the memory, 1/e is left.
        let left = covariance(4) / covariance(0);
        assert!((left - (-1f64).exp()).abs() < 0.05, "{left}");
        assert_eq!(schedule, wander(0.6, 500 * MILLISECOND, 3).unwrap());
        assert_ne!(schedule, wander(0.6, 500 * MILLISECOND, 4).unwrap());
        for (deviation, step_ns, told) in [
            (1.5, SECOND, "is 1.5"),
            (0.5, 3 * SECOND, "1 ms to the memory"),
            (0.5, MILLISECOND, "400000 steps"),
        ] {
            let error = wander(deviation, step_ns, 1).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_trace_wraps_around_and_skips_empty_milliseconds() {
        let trace = Trace::parse("1\n1\n4\n").unwrap();
        let times: Vec<_> = (0..7).map(|n| trace.time_ns(n) / MILLISECOND).collect();
        assert_eq!(times, [1, 1, 4, 5, 5, 8, 9]);
        for (ms, first) in [
            (0, 0),
            (1, 0),
            (2, 2),
            (4, 2),
            (5, 3),
            (6, 5),
            (8, 5),
            (9, 6),
        ] {
            assert_eq!(trace.first_at(ms * MILLISECOND), first, "{ms} ms");
        }
        let steady = RateSchedule::Trace(Arc::new(trace));
        assert_eq!(
            steady.capacity_bytes(0, 4000 * MILLISECOND),
            (3000 - 1) as f64 * 1500.0
        );
    }

    #[test]
    fn a_bad_trace_is_named_by_line() {
        for (text, line) in [("1\nx\n", 2), ("3\n2\n", 2), ("", 0), ("0\n", 1)] {
            let error = Trace::parse(text).unwrap_err();
            assert!(
                matches!(error, InvalidScenario::Trace { line: at, .. } if at == line),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn steps_add_up() {
        let steps = RateSchedule::Steps(vec![(0, 8_000_000), (SECOND, 16_000_000)]);
        assert_eq!(steps.capacity_bytes(0, 2 * SECOND), 3e6);
        assert_eq!(steps.capacity_bytes(SECOND / 2, SECOND), 0.5e6);
    }
}
