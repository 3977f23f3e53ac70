//! Student's t test as FreeBSD's ministat(1) does it.
//!
//! Two samples are taken to be of one variance s² (pooled); with n₁ + n₂ - 2 degrees of freedom
//!
//! ```text
//! d = mean₂ - mean₁      e = t s √(1/n₁ + 1/n₂)
//! ```
//!
//! and a difference is proven at 95 % if |d| > e. The relative interval is that of ministat since FreeBSD 12, by
//! propagation of both variances: `t √(((n₂-1)v₂ + (n₁-1)v₁(mean₂/mean₁)²)(n₁+n₂)/(n₁n₂(n₁+n₂-2))) / mean₁`.

use super::{mean, median_of_sorted, sorted, standard_deviation};

/// Two-sided 95 % quantiles of Student's t for 1 to 100 degrees of freedom, to the three decimals that ministat
/// has; agreement with its printed numbers takes the same rounding.
const T_95: [f64; 100] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, //
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, //
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042, //
    2.040, 2.037, 2.035, 2.032, 2.030, 2.028, 2.026, 2.024, 2.023, 2.021, //
    2.020, 2.018, 2.017, 2.015, 2.014, 2.013, 2.012, 2.011, 2.010, 2.009, //
    2.008, 2.007, 2.006, 2.005, 2.004, 2.003, 2.002, 2.002, 2.001, 2.000, //
    2.000, 1.999, 1.998, 1.998, 1.997, 1.997, 1.996, 1.995, 1.995, 1.994, //
    1.994, 1.993, 1.993, 1.993, 1.992, 1.992, 1.991, 1.991, 1.990, 1.990, //
    1.990, 1.989, 1.989, 1.989, 1.988, 1.988, 1.988, 1.987, 1.987, 1.987, //
    1.986, 1.986, 1.986, 1.986, 1.985, 1.985, 1.985, 1.984, 1.984, 1.984,
];
/// The same for more.
const T_95_NORMAL: f64 = 1.960;

/// Two-sided 95 % quantile of Student's t, to three decimals; infinite without degrees of freedom.
pub fn t_95(degrees: usize) -> f64 {
    match degrees {
        0 => f64::INFINITY,
        _ => *T_95.get(degrees - 1).unwrap_or(&T_95_NORMAL),
    }
}

/// A named sample in ascending order, of at least one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What the values are of.
    pub name: String,
    values: Vec<f64>,
}

impl Sample {
    /// A sample of finite values; `None` if there is none.
    pub fn new(name: impl Into<String>, values: &[f64]) -> Option<Self> {
        let values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        (!values.is_empty()).then(|| Self {
            name: name.into(),
            values: sorted(&values),
        })
    }

    /// The values, ascending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Least value.
    pub fn min(&self) -> f64 {
        self.values[0]
    }

    /// Greatest value.
    pub fn max(&self) -> f64 {
        self.values[self.values.len() - 1]
    }

    /// Median.
    pub fn median(&self) -> f64 {
        median_of_sorted(&self.values).unwrap_or(f64::NAN)
    }

    /// Mean.
    pub fn mean(&self) -> f64 {
        mean(&self.values).unwrap_or(f64::NAN)
    }

    /// Standard deviation (n - 1); not a number of one value.
    pub fn deviation(&self) -> f64 {
        standard_deviation(&self.values).unwrap_or(f64::NAN)
    }

    /// Sum of squared distances from the mean.
    fn squares(&self) -> f64 {
        let mean = self.mean();
        self.values.iter().map(|v| (v - mean).powi(2)).sum()
    }
}

/// What the test says of a sample against a reference.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Mean of the sample less that of the reference.
    pub difference: f64,
    /// Half of the 95 % interval of the difference.
    pub interval: f64,
    /// Difference over the reference's mean, %.
    pub difference_percent: f64,
    /// Half of its 95 % interval, %.
    pub interval_percent: f64,
    /// Pooled standard deviation.
    pub pooled: f64,
}

impl Comparison {
    /// Whether the difference is proven at 95 % confidence.
    pub fn differs(&self) -> bool {
        self.difference.abs() > self.interval
    }
}

/// Compares a sample with a reference. `None` where there are not at least three values together to estimate the
/// variance with.
pub fn compare(reference: &Sample, sample: &Sample) -> Option<Comparison> {
    let (n1, n2) = (reference.count() as f64, sample.count() as f64);
    let degrees = (reference.count() + sample.count()).checked_sub(2)?;
    if degrees == 0 {
        return None;
    }
    let t = t_95(degrees);
    let (squares1, squares2) = (reference.squares(), sample.squares());
    let freedom = degrees as f64;
    let pooled = ((squares1 + squares2) / freedom).sqrt();
    let (mean1, mean2) = (reference.mean(), sample.mean());
    let relative =
        (squares2 + squares1 * (mean2 / mean1).powi(2)) * (n1 + n2) / (n1 * n2 * freedom);
    Some(Comparison {
        difference: mean2 - mean1,
        interval: t * pooled * (1.0 / n1 + 1.0 / n2).sqrt(),
        difference_percent: (mean2 - mean1) * 100.0 / mean1,
        interval_percent: t * relative.sqrt() * 100.0 / mean1,
        pooled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part of Student's distribution above a value, by Simpson's rule over its density with t = √ν tan θ.
    fn above(t: f64, degrees: usize) -> f64 {
        let freedom = degrees as f64;
        let density = |theta: f64| theta.cos().powf(freedom - 1.0);
        let integral = |from: f64, to: f64| {
            let parts = 2000;
            let step = (to - from) / f64::from(parts);
            let sum: f64 = (0..=parts)
                .map(|part| {
                    let weight = match part {
                        0 => 1.0,
                        _ if part == parts => 1.0,
                        _ if part % 2 == 1 => 4.0,
                        _ => 2.0,
                    };
                    weight * density(from + f64::from(part) * step)
                })
                .sum();
            sum * step / 3.0
        };
        let quarter = std::f64::consts::FRAC_PI_2;
        integral((t / freedom.sqrt()).atan(), quarter) / (2.0 * integral(0.0, quarter))
    }

    #[test]
    fn the_table_is_students_distribution() {
        for degrees in 1..=100 {
            let t = t_95(degrees);
            let (low, high) = (above(t + 0.0005, degrees), above(t - 0.0005, degrees));
            assert!(
                low <= 0.025 + 1e-6 && high >= 0.025 - 1e-6,
                "{degrees}: {t} has {low} to {high} above it"
            );
        }
        assert_eq!((t_95(101), t_95(0)), (1.96, f64::INFINITY));
    }

    #[test]
    fn geni_repeated_its_runs_with_and_without_sack() {
        // GENI 8: 2.35 against 1.54 Mbit/s, difference .81 +- .39, t(8) = 2.306, pooled s .269.
        let with = Sample::new("sack", &[1.97, 2.13, 2.70, 2.30, 2.67]).unwrap();
        let without = Sample::new("no sack", &[1.39, 1.59, 1.87, 1.40, 1.47]).unwrap();
        let comparison = compare(&without, &with).unwrap();
        assert!((comparison.difference - 0.81).abs() < 0.005);
        assert!((comparison.interval - 0.39).abs() < 0.005);
        assert!((comparison.pooled - 0.269).abs() < 0.0005);
        assert!(comparison.differs());
    }

    #[test]
    fn two_single_values_prove_nothing() {
        let single = |value| Sample::new("", &[value]).unwrap();
        assert_eq!(compare(&single(1.0), &single(9.0)), None);
        assert!(Sample::new("none", &[f64::NAN]).is_none());
    }
}
