//! Quantities with their unit in the type.
//!
//! A unit mistake is the classic bug of congestion control (bits or bytes? ratio or percent?), so a bare number never
//! crosses a public function here. Text goes in and out in the units people type: `50mbit`, `2ms`, `5%`; what
//! `Display` prints, `FromStr` reads back as the same value.

use std::fmt;
use std::ops::{Add, Div, Mul, Sub};
use std::str::FromStr;

/// Text that is not a quantity of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {kind}: write {expected}")]
pub struct UnitError {
    /// What was typed.
    pub text: String,
    /// What kind of quantity was wanted.
    pub kind: &'static str,
    /// How one is written.
    pub expected: &'static str,
}

/// Splits `12.5kbit` into 12.5 and `kbit`. The number must be plain (no exponent), finite and not negative.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    number.is_finite().then(|| (number, unit.trim()))
}

/// The nearest whole number, 0 for a negative one and not-a-number, and the largest for those beyond. `f64::round` is a
/// call on processors as old as the build allows, and was 6 % of the CPU of an agent with a thousand flows.
fn nearest(number: f64) -> u64 {
    (number + 0.5) as u64
}

/// A rate in bytes per second: finite, 0 to [`Rate::MAX`]. Arithmetic saturates at both ends; not-a-number becomes 0.
///
/// A rate is what the datapath is asked to pace, so it counts the bytes its pacer counts. The wire format is a whole
/// number of bytes per second, rounded to the nearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// No rate.
    pub const ZERO: Self = Self(0.0);
    /// The largest rate a CCP field carries: 2^32 - 1 bytes per second (34 Gbit/s).
    pub const MAX: Self = Self(4_294_967_295.0);
    /// What [`UnitError::kind`] is for a rate above [`Rate::MAX`].
    pub const TOO_FAST: &'static str = "rate of 34gbit or less";

    /// A rate in bytes per second.
    #[must_use]
    pub const fn from_bytes_per_sec(value: f64) -> Self {
        if value > 0.0 {
            if value < Self::MAX.0 {
                Self(value)
            } else {
                Self::MAX
            }
        } else {
            Self::ZERO
        }
    }

    /// A rate in megabits (10^6) per second.
    #[must_use]
    pub const fn from_mbit(value: f64) -> Self {
        Self::from_bytes_per_sec(value * 125_000.0)
    }

    /// Bytes in a time; zero time gives [`Rate::MAX`].
    #[must_use]
    pub fn from_bytes_in(bytes: f64, time: Micros) -> Self {
        if time == Micros::ZERO {
            return Self::MAX;
        }
        Self::from_bytes_per_sec(bytes / time.as_secs())
    }

    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_sec(self) -> f64 {
        self.0
    }

    /// Megabits (10^6) per second, the unit of Vivace's utility.
    #[must_use]
    pub const fn mbit(self) -> f64 {
        self.0 / 125_000.0
    }

    /// Rounded to whole bytes per second, as a datapath field carries it.
    #[must_use]
    pub fn to_wire(self) -> u32 {
        nearest(self.0) as u32 // in range by the type's invariant
    }

    /// Bytes sent at this rate within `time`.
    #[must_use]
    pub fn bytes_in(self, time: Micros) -> f64 {
        self.0 * time.as_secs()
    }

    /// Time to send `bytes` at this rate; a zero rate gives [`Micros::MAX`].
    #[must_use]
    pub fn time_for(self, bytes: f64) -> Micros {
        Micros::from_secs(bytes / self.0)
    }

    /// The smaller of two rates.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    /// The larger of two rates.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    /// This rate, moved into `low..=high`. Where the bounds cross, `high` wins.
    #[must_use]
    pub fn within(self, low: Self, high: Self) -> Self {
        self.max(low).min(high)
    }
}

impl Mul<f64> for Rate {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self::from_bytes_per_sec(self.0 * factor)
    }
}

impl Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::from_bytes_per_sec(self.0 + other.0)
    }
}

impl Div for Rate {
    type Output = f64;
    /// How many times `other` fits; a zero divisor counts as one byte per second.
    fn div(self, other: Self) -> f64 {
        self.0 / other.0.max(1.0)
    }
}

const RATE_UNITS: [(&str, f64); 10] = [
    ("Gbit", 125e6),
    ("Mbit", 125e3),
    ("kbit", 125.0),
    ("bit", 0.125),
    ("GBps", 1e9),
    ("MBps", 1e6),
    ("kBps", 1e3),
    ("Bps", 1.0),
    ("GB", 1e9),
    ("B", 1.0),
];

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError {
            text: text.to_owned(),
            kind: "rate",
            expected: "a number with bit, kbit, mbit, gbit (per second) or Bps, kBps, MBps, GBps (bytes per second), \
                       such as 16kbit or 50mbit",
        };
        let (number, unit) = split(text).ok_or_else(error)?;
        let bits = unit.to_ascii_lowercase().ends_with("bit");
        let (_, factor) = RATE_UNITS
            .iter()
            .find(|(name, _)| *name == unit || (bits && name.eq_ignore_ascii_case(unit)))
            .ok_or_else(error)?;
        let value = number * factor;
        if value > Self::MAX.0 {
            return Err(UnitError {
                kind: Self::TOO_FAST,
                expected: "a smaller one",
                ..error()
            });
        }
        Ok(Self(value))
    }
}

impl fmt::Display for Rate {
    /// The largest bit unit with at most three decimals, else bytes per second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in &RATE_UNITS[..4] {
            let value = (self.0 / factor * 1e3).round() / 1e3;
            if (value >= 1.0 || *name == "bit") && value * factor == self.0 {
                return write!(f, "{value}{}", name.to_ascii_lowercase());
            }
        }
        write!(f, "{}Bps", self.0)
    }
}

/// A duration, or a time on the datapath's clock, in whole microseconds: 0 to 2^64 - 1. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(u64);

impl Micros {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The largest value.
    pub const MAX: Self = Self(u64::MAX);

    /// Whole microseconds.
    #[must_use]
    pub const fn new(us: u64) -> Self {
        Self(us)
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// Seconds, rounded to the nearest microsecond; negative and not-a-number become 0.
    #[must_use]
    pub fn from_secs(secs: f64) -> Self {
        Self(nearest(secs * 1e6))
    }

    /// Microseconds.
    #[must_use]
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Seconds.
    #[must_use]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// As a datapath field carries it: at most 2^32 - 1 µs (71 minutes).
    #[must_use]
    pub fn to_wire(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl Add for Micros {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Micros {
    type Output = Self;
    /// Zero if `other` is the larger.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<f64> for Micros {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(nearest(self.0 as f64 * factor))
    }
}

impl Div for Micros {
    type Output = f64;
    /// How many times `other` fits; a zero divisor counts as 1 µs.
    fn div(self, other: Self) -> f64 {
        self.0 as f64 / other.0.max(1) as f64
    }
}

const TIME_UNITS: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1000), ("us", 1)];

impl FromStr for Micros {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError {
            text: text.to_owned(),
            kind: "duration",
            expected: "a number with us, ms or s, such as 500us or 10s",
        };
        let (number, unit) = split(text).ok_or_else(error)?;
        let (_, factor) = TIME_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(error)?;
        Ok(Self(nearest(number * *factor as f64)))
    }
}

impl fmt::Display for Micros {
    /// The largest unit in which the value is whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) = TIME_UNITS
            .iter()
            .find(|(_, factor)| self.0.is_multiple_of(*factor) && self.0 > 0)
            .unwrap_or(&TIME_UNITS[1]);
        write!(f, "{}{name}", self.0 / factor)
    }
}

/// A dimensionless part of a whole, 1.0 = 100 %. Finite and not negative, rounding as in `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    /// A ratio; negative and not-a-number become 0.
    #[must_use]
    pub const fn new(value: f64) -> Self {
        if value > 0.0 && value <= f64::MAX {
            Self(value)
        } else {
            Self(0.0)
        }
    }

    /// The value, 1.0 = 100 %.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Ratio {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError {
            text: text.to_owned(),
            kind: "ratio",
            expected: "a percentage or a plain number, such as 5% or 0.05",
        };
        match split(text).ok_or_else(error)? {
            (number, "%") => Ok(Self(number / 100.0)),
            (number, "") => Ok(Self(number)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Ratio {
    /// In percent where that reads back exactly, else as a plain number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.0 * 1e8).round() / 1e6;
        if percent / 100.0 == self.0 {
            write!(f, "{percent}%")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// A number of bytes, whole. Arithmetic on it is done in `f64` and comes back rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(u64);

impl Bytes {
    /// Whole bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Rounded to the nearest byte; negative and not-a-number become 0.
    #[must_use]
    pub fn from_f64(bytes: f64) -> Self {
        Self(nearest(bytes))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As a datapath field carries it: at most 2^32 - 1 bytes.
    #[must_use]
    pub fn to_wire(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
