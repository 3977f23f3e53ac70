//! The ceiling: where nothing pushes back (an application limit, a receiver's window) utility rewards any rate, so the
//! rate stays within a factor of the best goodput seen; but the initial window per RTT may always be sent.

use crate::estimate::Estimator;
use crate::params::{Handbrake, Params};
use crate::units::Rate;

/// The ceiling over the best goodput. Source: earlier simulation, not derived anew.
const CEILING: f64 = 1.5;

/// A bound on the central rate rather than an event: it holds for every step, whoever takes it.
#[must_use]
pub fn ceiling(est: &Estimator, params: &Params) -> Rate {
    if params.no_handbrake.contains(Handbrake::Ceiling) {
        return Rate::MAX;
    }
    est.goodput_max().map_or(Rate::MAX, |best| best * CEILING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::SlotContext;
    use crate::estimate::tests::report;
    use crate::handbrake::tests::{PKT, RATE};
    use crate::units::Micros;

    #[test]
    fn the_ceiling_follows_the_best_goodput() {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let acks: Vec<_> = (0..250).map(|i| (i * 200, 41_000, 0)).collect();
        let context = SlotContext {
            asked: Some(RATE),
            length: Micros::new(50_000),
            mss_bytes: PKT,
        };
        let mi = est.observe(&report(33, 0, &acks, 50_000), context);
        assert_eq!(ceiling(&est, &params), mi.goodput * 1.5);
        assert_eq!(ceiling(&Estimator::new(&params), &params), Rate::MAX);
        let off = Params {
            no_handbrake: "ceiling".parse().unwrap(),
            ..params
        };
        assert_eq!(ceiling(&est, &off), Rate::MAX);
    }
}
