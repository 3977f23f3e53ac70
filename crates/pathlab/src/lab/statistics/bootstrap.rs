//! The interval of a median by resampling.
//!
//! Percentile bootstrap (Efron 1979): draw as many values as there are, with replacement, take the median, and repeat
//! this 2000 times; the interval holds the middle 95 % of these medians. It assumes nothing about the distribution. Of
//! few values it is narrow and coarse: of three it is their range, of fewer there is none. The draws come from ChaCha8
//! with a constant seed, so that the same results always make the same table.

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

/// The medians of two groups, and how far they are apart.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct MedianDifference {
    /// Of the first group and of the second.
    pub medians: [f64; 2],
    /// The first less the second.
    pub difference: f64,
    /// Lower end of the difference's 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The difference of two groups' medians with its 95 % interval; `None` if one has no values. A group is a list of
/// units, each with the values that were observed of it: units are drawn whole, since values of one are not
/// independent.
pub fn median_difference(first: &[Vec<f64>], second: &[Vec<f64>]) -> Option<MedianDifference> {
    let median = |group: &[Vec<f64>]| median_of(&mut group.concat());
    let medians = [median(first)?, median(second)?];
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut pool = Vec::new();
    let mut drawn = |group: &[Vec<f64>]| {
        pool.clear();
        for _ in 0..group.len() {
            pool.extend_from_slice(&group[random.random_range(0..group.len())]);
        }
        median_of(&mut pool)
    };
    let draws = (0..RESAMPLES).filter_map(|_| Some(drawn(first)? - drawn(second)?));
    let differences = sorted(&draws.collect::<Vec<_>>());
    let difference = medians[0] - medians[1];
    let end = |part| quantile_of_sorted(&differences, part).unwrap_or(difference);
    Some(MedianDifference {
        medians,
        difference,
        low: end(0.025),
        high: end(0.975),
    })
}

/// The median of values, which are put into another order; without sorting them all.
fn median_of(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp);
    Some(match lower {
        Some(lower) if even => (lower + *upper) / 2.0,
        _ => *upper,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(values: impl IntoIterator<Item = f64>) -> Vec<Vec<f64>> {
        values.into_iter().map(|value| vec![value]).collect()
    }

    #[test]
    fn a_median_without_sorting_is_the_median() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for length in 1..40 {
            let values: Vec<f64> = (0..length)
                .map(|_| f64::from(random.random_range(0..9u8)))
                .collect();
            let by_order = median_of_sorted(&sorted(&values));
            assert_eq!(median_of(&mut values.clone()), by_order, "{values:?}");
        }
        assert_eq!(median_of(&mut []), None);
    }

    #[test]
    fn a_difference_that_is_there_is_found_and_one_that_is_not_is_not() {
        // Medians 50 and 80, each with a standard error of 99 / (2 sqrt(99)) = 5, so the interval is about -44 to -16.
        let (first, second) = (
            alone((1..=99).map(f64::from)),
            alone((31..=129).map(f64::from)),
        );
        let apart = median_difference(&first, &second).unwrap();
        assert_eq!((apart.medians, apart.difference), ([50.0, 80.0], -30.0));
        assert!(
            (-50.0..-22.0).contains(&apart.low) && (-38.0..-10.0).contains(&apart.high),
            "{apart:?}"
        );
        let same = median_difference(&first, &first).unwrap();
        assert!(same.low < 0.0 && same.high > 0.0, "{same:?}");
        assert_eq!(median_difference(&first, &[]), None);
    }

    /// Of 60 experiments without a difference, 5 % find one: 3, and 8 is three standard deviations more.
    #[test]
    fn few_experiments_find_what_is_not_there() {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let mut draw = || {
            alone(
                (0..40)
                    .map(|_| -(1.0 - random.random::<f64>()).ln())
                    .collect::<Vec<_>>(),
            )
        };
        let found = (0..60).filter(|_| {
            let difference = median_difference(&draw(), &draw()).unwrap();
            !(difference.low..=difference.high).contains(&0.0)
        });
        assert!(found.count() <= 8);
    }

    /// Values that come in tens from one unit say no more than their unit.
    #[test]
    fn units_are_drawn_whole() {
        let units: Vec<_> = (1..=9).map(f64::from).collect();
        let tens: Vec<_> = units.iter().map(|value| vec![*value; 10]).collect();
        let by_unit = median_difference(&tens, &alone([0.0])).unwrap();
        let singly = median_difference(&alone(tens.concat()), &alone([0.0])).unwrap();
        let width = |of: MedianDifference| of.high - of.low;
        assert!(
            width(by_unit) >= 2.0 * width(singly),
            "{by_unit:?} {singly:?}"
        );
    }

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
