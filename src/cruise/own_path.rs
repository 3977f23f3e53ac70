//! What the path carries, and whether all of that is the flow's.
//!
//! The train of the initial window tells the rate of the path, whoever else is on it ([`crate::startup::train`]). What
//! arrives at a full queue tells what the path bears of the flow. Where both are the same nobody else is there; where
//! less arrives, others have the rest, or the path is another.
//!
//! Limits: others that begin later show only when less arrives, so a flow among idle ones takes the path for its own
//! until then. A shaper behind a faster line makes the train tell the line, and the flow never knows that it is alone.

use crate::units::Rate;

/// Parts of the path that count as all of it. Source: the train tells within some per cent; simulated, 91 goals with
/// newcomers, flows that come one after the other, other RTTs and paths that change: .85, .9 and .93 keep 80; two flows
/// that start together have Jain's index .978 in 20 s where a rate of .85 is enough to begin with, .986 with .9, as
/// without a cruise.
const ALL_LEAST: f64 = 0.9;
const ALL_MOST: f64 = 1.12;

/// The rate that the path carries, if it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnPath {
    /// Mbit/s; zero for unknown.
    carries: f32,
}

impl OwnPath {
    /// The path carries so much, or it is not known how much.
    pub fn learn(&mut self, carries: Option<Rate>) {
        self.carries = carries.map_or(0.0, |rate| rate.mbit() as f32);
    }

    /// What the path carries.
    #[must_use]
    pub fn carries(self) -> Option<Rate> {
        (self.carries > 0.0).then(|| Rate::from_mbit(self.carries.into()))
    }

    /// Whether so much is all of it.
    #[must_use]
    pub fn is_all(self, arrives: Rate) -> bool {
        let of = |carries| (ALL_LEAST..=ALL_MOST).contains(&(arrives / carries));
        self.carries().is_some_and(of)
    }

    /// Whether it is known to carry clearly more than that, so that others may have the rest.
    #[must_use]
    pub fn carries_more_than(self, rate: Rate) -> bool {
        self.carries()
            .is_some_and(|carries| rate < carries * ALL_LEAST)
    }

    /// Whether others may have a part of it, as far as is known.
    #[must_use]
    pub fn may_be_shared(self, rate: Rate) -> bool {
        self.carries().is_none() || self.carries_more_than(rate)
    }

    /// The edge for a flow whose rate is all of the path: what arrived at best, as far as the path carries it.
    #[must_use]
    pub fn edge(self, rate: Rate, best: Option<Rate>) -> Option<Rate> {
        let carries = self.carries().filter(|_| self.is_all(rate))?;
        Some(best.map_or(carries, |best| best.min(carries)).max(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(rate: f64) -> Rate {
        Rate::from_mbit(rate)
    }

    #[test]
    fn a_tenth_less_than_the_path_carries_is_all_of_it_and_a_half_is_not() {
        let mut path = OwnPath::default();
        assert!(!path.is_all(mbit(0.0)), "nothing is known");
        assert!(path.may_be_shared(mbit(50.0)));
        path.learn(Some(mbit(50.0)));
        assert!(path.is_all(mbit(45.1)) && path.is_all(mbit(55.9)));
        assert!(path.may_be_shared(mbit(44.9)) && !path.may_be_shared(mbit(45.1)));
        assert!(!path.is_all(mbit(44.0)) && !path.is_all(mbit(25.0)));
        assert!(!path.is_all(mbit(57.0)), "the path is another");
        path.learn(None);
        assert!(!path.is_all(mbit(50.0)));
    }

    #[test]
    fn the_edge_is_the_best_that_arrived_within_the_path() {
        let mut path = OwnPath::default();
        assert_eq!(path.edge(mbit(50.0), None), None);
        path.learn(Some(mbit(50.0)));
        let edge = |rate, best: Option<f64>| {
            let edge = path.edge(mbit(rate), best.map(mbit));
            edge.map(|edge| (edge.mbit() * 1e3).round() / 1e3)
        };
        assert_eq!(edge(46.0, Some(48.0)), Some(48.0));
        assert_eq!(edge(46.0, Some(60.0)), Some(50.0));
        assert_eq!(edge(46.0, None), Some(50.0));
        assert_eq!(edge(52.0, Some(48.0)), Some(52.0));
        assert_eq!(edge(43.0, Some(48.0)), None, "far below");
    }
}
