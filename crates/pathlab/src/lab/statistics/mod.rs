//! Statistics of repeated runs: what a table may say about a handful of numbers.
//!
//! Runs are few and their distributions are skewed (a flow that never leaves its timeout is not a normal deviate from
//! one that did), so tables show medians, with an interval by [`bootstrap`]. Where a document compares by Student's t,
//! as FreeBSD's does with ministat, [`student`] does the same, to the digit. [`over_time`] judges single runs.

pub mod bootstrap;
pub mod over_time;
pub mod student;

pub use bootstrap::{Interval, median_interval};
pub use over_time::{Settled, settling, worst_second};
pub use pathsim::jain;
pub use student::{Comparison, Sample, compare};

use pathsim::Distribution;

use super::result::Quantiles;

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation of a sample (n - 1); `None` of fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() as f64 - 1.0)).sqrt())
}

/// The values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// Median; of an even number of values the mean of the middle two. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

fn median_of_sorted(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) {
        (values[middle - 1] + upper) / 2.0
    } else {
        upper
    })
}

/// A quantile by nearest rank: the least value that at least so large a part of all does not exceed. `part` is from
/// 0 to 1; `None` of nothing.
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), part)
}

/// [`quantile`] of values in ascending order.
pub fn quantile_of_sorted(values: &[f64], part: f64) -> Option<f64> {
    // 0.95 × 20 is a little more than 19 in binary, and must not become rank 20.
    let rank = (part.clamp(0.0, 1.0) * values.len() as f64 - 1e-9).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// Quantiles of values, nearest rank; `None` of none.
pub fn quantiles(values: impl Iterator<Item = f64>) -> Option<Quantiles> {
    let values = sorted(&values.collect::<Vec<_>>());
    let at = |part| quantile_of_sorted(&values, part);
    Some(Quantiles {
        p50: at(0.5)?,
        p95: at(0.95)?,
        p99: at(0.99)?,
        min: *values.first()?,
        mean: mean(&values)?,
        max: *values.last()?,
    })
}

/// Quantiles of a distribution, to 0.4 %; `None` without samples.
pub fn quantiles_of(of: &Distribution) -> Option<Quantiles> {
    let (min, max) = of.range_ms()?;
    let at = |part| of.quantile_ms(part).map(|ms| ms.clamp(min, max));
    Some(Quantiles {
        p50: at(0.5)?,
        p95: at(0.95)?,
        p99: at(0.99)?,
        min,
        mean: of.mean_ms()?,
        max,
    })
}

/// A part over the whole; 0 of nothing.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_deviation_and_median_of_a_known_sample() {
        // NIST's example of a standard deviation: 2, 4, 4, 4, 5, 5, 7, 9 has mean 5 and 32/7 as variance.
        let values = [9.0, 2.0, 4.0, 5.0, 4.0, 7.0, 4.0, 5.0];
        assert_eq!(mean(&values), Some(5.0));
        let deviation = standard_deviation(&values).unwrap_or_default();
        assert!((deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(median(&values), Some(4.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let of = |part| quantile(&values, part);
        assert_eq!(
            [of(0.0), of(0.5), of(0.95), of(0.951), of(1.0)],
            [1.0, 10.0, 19.0, 20.0, 20.0].map(Some)
        );
    }

    #[test]
    fn nothing_has_no_statistics() {
        assert_eq!(
            (mean(&[]), median(&[]), quantile(&[], 0.5)),
            (None, None, None)
        );
        assert_eq!(standard_deviation(&[1.0]), None);
    }
}
