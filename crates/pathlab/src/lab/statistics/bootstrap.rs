//! The interval of a median by resampling.
//!
//! Percentile bootstrap (Efron 1979): draw as many values as there are, with replacement, take the median, and repeat
//! this 2000 times; the interval holds the middle 95 % of these medians. It assumes nothing about the
//! distribution. Of few values it is narrow and coarse: of three it is their range, of fewer there is none. The draws come from
//! ChaCha8 with a constant seed, so that the same results always make the same table.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{median_of_sorted, quantile_of_sorted, sorted};

/// Medians that are drawn: the ends of the interval then vary by less than they are wide by chance (Efron and
/// Tibshirani 1993 §14.6: at least 1000 for percentiles).
const RESAMPLES: usize = 2000;
/// Seed of the draws; any number would do.
const SEED: u64 = 0x6d65_6469_616e;

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Median of the values.
    pub median: f64,
    /// Lower end; the median itself of one value.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The median of values with its 95 % interval; `None` of nothing.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let values = sorted(values);
    let median = median_of_sorted(&values)?;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut resample = vec![0.0; values.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for value in &mut resample {
            *value = values[random.random_range(0..values.len())];
        }
        resample.sort_by(f64::total_cmp);
        medians.extend(median_of_sorted(&resample));
    }
    medians.sort_by(f64::total_cmp);
    let end = |part| quantile_of_sorted(&medians, part).unwrap_or(median);
    Some(Interval {
        median,
        low: end(0.025),
        high: end(0.975),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_three_values_is_their_range() {
        // The least of three is the median of a resample with probability 7/27 > 2.5 %.
        let interval = median_interval(&[23.9, 20.9, 21.0]).unwrap();
        assert_eq!(
            (interval.low, interval.median, interval.high),
            (20.9, 21.0, 23.9)
        );
        assert_eq!(median_interval(&[]), None);
        assert_eq!(median_interval(&[5.0]).unwrap().low, 5.0);
    }

    #[test]
    fn the_interval_is_that_of_the_binomial() {
        // Of 1..=99 the median is rank 50; ranks 40 and 60 bound it with 95 % (binomial, 99 draws of 1/2).
        let values: Vec<f64> = (1..=99).map(f64::from).collect();
        let interval = median_interval(&values).unwrap();
        assert_eq!(interval.median, 50.0);
        assert!((interval.low - 40.0).abs() <= 2.0, "{interval:?}");
        assert!((interval.high - 60.0).abs() <= 2.0, "{interval:?}");
    }

    #[test]
    fn most_intervals_hold_the_true_median() {
        // 150 samples of 15 from a skewed distribution (exponential, median ln 2).
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let held = (0..150)
            .filter(|_| {
                let sample: Vec<f64> = (0..15)
                    .map(|_| -(1.0 - random.random::<f64>()).ln())
                    .collect();
                let interval = median_interval(&sample).unwrap();
                (interval.low..=interval.high).contains(&2f64.ln())
            })
            .count();
        assert!((134..=148).contains(&held), "{held} of 150");
    }

    #[test]
    fn the_same_values_have_the_same_interval() {
        let values = [1.0, 9.0, 4.0, 4.5, 7.25];
        assert_eq!(median_interval(&values), median_interval(&values));
    }
}
