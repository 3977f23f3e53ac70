//! Capacity over time: constant, in steps, or recorded.

use super::{InvalidScenario, MAX_TIME_NS, in_range};
use crate::{MILLISECOND, SECOND, WIRE};
use std::sync::Arc;

/// Slowest and fastest link, bits per second.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 1_000..=100_000_000_000;

/// When a link of varying capacity can send: one packet per opportunity, as in mahimahi.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateSchedule {
    /// Bits per second, 1 kbit/s to 100 Gbit/s.
    Constant(u64),
    /// (Time in ns, bits per second from then on), ascending, the first at 0.
    Steps(Vec<(u64, u64)>),
    /// Recorded opportunities of one packet each.
    Trace(Arc<Trace>),
}

impl RateSchedule {
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

    pub(super) fn check(&self) -> Result<(), InvalidScenario> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
