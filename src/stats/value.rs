//! Values of statistics: what they are made of, their units, and how people and machines read them.

use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;

/// The unit of a statistic; rates, times and shares are shown with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// A number that names something.
    Id,
    /// Words.
    Text,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes per second: Prometheus' base unit of rates.
    BytesPerSecond,
    /// Bits per second: what people call rates by.
    BitsPerSecond,
    /// A share, 0 to 1.
    Ratio,
}

impl Unit {
    /// A value for people, in at most eight characters.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        let scaled = |units: &[(f64, &str)]| {
            let (size, name) = units
                .iter()
                .find(|(size, _)| value >= *size)
                .or(units.last())
                .copied()
                .unwrap_or((1.0, ""));
            let number = value / size;
            let digits = match number {
                _ if number < 9.995 => 2,
                _ if number < 99.95 => 1,
                _ => 0,
            };
            format!("{number:.digits$}{name}")
        };
        match self {
            Self::Count | Self::Id | Self::Text => format!("{value}"),
            Self::Seconds if value >= 86_400.0 => format!("{:.1}d", value / 86_400.0),
            Self::Seconds if value >= 3_600.0 => format!("{:.1}h", value / 3_600.0),
            Self::Seconds if value >= 100.0 => format!("{value:.0}s"),
            Self::Seconds => scaled(&[(1.0, "s"), (1e-3, "ms"), (1e-6, "us")]),
            Self::Bytes => scaled(&[
                (1e12, "TB"),
                (1e9, "GB"),
                (1e6, "MB"),
                (1e3, "kB"),
                (1.0, "B"),
            ]),
            Self::BytesPerSecond => Self::Bytes.show(value) + "/s",
            Self::BitsPerSecond => scaled(&[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "b")]),
            Self::Ratio if value >= 0.9995 => "100%".to_owned(),
            Self::Ratio => format!("{:.1}%", 100.0 * value),
        }
    }
}

/// One value of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// In the field's unit.
    Number(f64),
    /// Words.
    Text(String),
}

impl From<Cell> for Json {
    fn from(cell: Cell) -> Self {
        match cell {
            Cell::Number(number) => number_json(number),
            Cell::Text(text) => Self::from(text),
        }
    }
}

/// Whole numbers without a fraction: counters are not `7.0`.
fn number_json(number: f64) -> Json {
    if number.fract() == 0.0 && (0.0..9e15).contains(&number) {
        Json::from(number as u64)
    } else {
        Json::from(number)
    }
}

/// Counts of observations by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Upper ends of the classes; the last class has none.
    pub bounds: &'static [f64],
    /// Observations of each class, one more than there are bounds.
    pub counts: Vec<u64>,
    /// Sum of all observations.
    pub sum: f64,
}

impl Histogram {
    /// No observations.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Adds an observation; a value equal to a bound is below it.
    pub fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }

    /// Number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Mean of the observations, if there are any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum / count as f64)
    }

    /// The bound below which at least a share of the observations lies; infinite in the last class.
    #[must_use]
    pub fn quantile_bound(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let wanted = (count as f64 * share).ceil() as u64;
        let mut below = 0;
        let class = self.counts.iter().position(|n| {
            below += n;
            below >= wanted.max(1)
        })?;
        Some(self.bounds.get(class).copied().unwrap_or(f64::INFINITY))
    }
}

/// The value of a statistic.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number.
    Number(f64),
    /// A number for each value of the statistic's label.
    ByLabel(Vec<(Cow<'static, str>, f64)>),
    /// Many observations.
    Histogram(Histogram),
    /// Many observations for each value of the statistic's label.
    Histograms(Vec<(String, Histogram)>),
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        match value {
            Value::Number(number) => number_json(*number),
            Value::ByLabel(values) => {
                let entry = |(label, value): &(Cow<'_, str>, f64)| {
                    (label.clone().into_owned(), number_json(*value))
                };
                Self::Object(values.iter().map(entry).collect::<Map<_, _>>())
            }
            Value::Histogram(histogram) => histogram_json(histogram),
            Value::Histograms(histograms) => {
                let entry =
                    |(label, one): &(String, Histogram)| (label.clone(), histogram_json(one));
                Self::Object(histograms.iter().map(entry).collect::<Map<_, _>>())
            }
        }
    }
}

fn histogram_json(histogram: &Histogram) -> Json {
    json!({
        "count": histogram.count(), "sum": histogram.sum,
        "bounds": histogram.bounds, "counts": histogram.counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        for (unit, value, shown) in [
            (Unit::BitsPerSecond, 47_830_000.0, "47.8M"),
            (Unit::BitsPerSecond, 9_999_999.0, "10.0M"),
            (Unit::BitsPerSecond, 0.0, "0.00b"),
            (Unit::BitsPerSecond, 1.25e9, "1.25G"),
            (Unit::Seconds, 0.0421, "42.1ms"),
            (Unit::Seconds, 0.0000021, "2.10us"),
            (Unit::Seconds, 4_000.0, "1.1h"),
            (Unit::Seconds, 125.0, "125s"),
            (Unit::Ratio, 0.0123, "1.2%"),
            (Unit::Ratio, 1.0, "100%"),
            (Unit::Bytes, 1_234_567.0, "1.23MB"),
            (Unit::Count, 12.0, "12"),
        ] {
            assert_eq!(unit.show(value), shown);
            assert!(shown.len() <= 8);
        }
    }

    #[test]
    fn histograms_count_by_class() {
        let mut histogram = Histogram::new(&[1.0, 10.0]);
        assert_eq!(
            (histogram.mean(), histogram.quantile_bound(0.5)),
            (None, None)
        );
        for value in [0.5, 1.0, 2.0, 30.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.counts, [2, 1, 1]);
        assert_eq!(histogram.mean(), Some(33.5 / 4.0));
        assert_eq!(histogram.quantile_bound(0.5), Some(1.0));
        assert_eq!(histogram.quantile_bound(0.75), Some(10.0));
        assert_eq!(histogram.quantile_bound(0.99), Some(f64::INFINITY));
    }
}
