//! The published start of Vivace, for comparison: double the rate once per RTT until utility falls.

use crate::units::Rate;

/// What to do after one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Send at this rate.
    Grow(Rate),
    /// Utility fell: learn from this rate on.
    Leave(Rate),
}

/// The start: (Mbit/s, utility) of the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlainStart {
    last: Option<(f64, f64)>,
}

impl PlainStart {
    /// Takes the utility of an interval sent at `rate`.
    pub fn judge(&mut self, rate: Rate, utility: f64) -> Next {
        match self.last.replace((rate.mbit(), utility)) {
            Some((last_rate, last_utility)) if utility < last_utility => {
                Next::Leave(Rate::from_mbit(last_rate))
            }
            _ => Next::Grow(rate * 2.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_until_utility_falls_and_goes_back_by_one() {
        let mut start = PlainStart::default();
        let rate = Rate::from_mbit;
        assert_eq!(start.judge(rate(4.0), 3.0), Next::Grow(rate(8.0)));
        assert_eq!(start.judge(rate(8.0), 6.0), Next::Grow(rate(16.0)));
        assert_eq!(start.judge(rate(16.0), -100.0), Next::Leave(rate(8.0)));
    }
}
