//! What an interval was worth: the utility of its rate, with the slope of the RTT and the losses that are credible.

use crate::estimate::Mi;
use crate::handbrake::View;
use crate::params::Params;
use crate::units::{Micros, Rate};

/// What an interval was worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Its rate.
    pub rate: Rate,
    /// Its utility.
    pub utility: f64,
    /// Its mean RTT.
    pub rtt: Micros,
    /// Whether the queue grew through it.
    pub grew: bool,
}

impl Score {
    /// Vivace's utility of an interval sent at `rate`, with the RTT gradient and loss that are credible; `calm` is the
    /// mean RTT before the present steps.
    #[must_use]
    pub fn new(rate: Rate, view: &View<'_>, calm: Option<Micros>) -> Self {
        let &View {
            mi,
            est,
            pkt_bytes,
            params,
            ..
        } = view;
        let gradient = credible_gradient(rate, mi, params, pkt_bytes, calm);
        Self {
            rate,
            utility: utility_of(rate.mbit(), gradient, est.excess_loss(mi), params),
            rtt: mi.rtt.map_or(Micros::ZERO, |rtt| rtt.mean),
            grew: gradient > 0.0,
        }
    }

    /// Rate in Mbit/s, and utility.
    pub(super) fn point(self) -> (f64, f64) {
        (self.rate.mbit(), self.utility)
    }
}

/// The formula: `x` in Mbit/s, RTT gradient in s/s, loss as a ratio.
fn utility_of(x: f64, gradient: f64, loss: f64, params: &Params) -> f64 {
    libm::pow(x, params.throughput_exponent)
        - params.latency_coeff * x * gradient
        - params.loss_coeff * x * loss
}

/// The RTT slope, or 0 where it is negative, below the floor, within its noise, or where the RTT rose by less than two
/// packets' time, in the interval and since `calm`.
fn credible_gradient(
    rate: Rate,
    mi: &Mi,
    params: &Params,
    pkt_bytes: f64,
    calm: Option<Micros>,
) -> f64 {
    let Some(rtt) = mi.rtt else { return 0.0 };
    let rise_secs = rtt.slope * mi.sent_for.as_secs();
    let since_calm_secs = calm.map_or(0.0, |calm| (rtt.mean - calm).as_secs() + rise_secs / 2.0);
    let smallest_rise_secs = rate.time_for(2.0 * pkt_bytes).as_secs().max(1e-4);
    if rtt.slope < params.rtt_gradient_floor.get()
        || rtt.slope < params.rtt_gradient_sigmas * rtt.slope_se
        || rise_secs.max(since_calm_secs) < smallest_rise_secs
    {
        0.0
    } else {
        rtt.slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::RttStats;
    use crate::program::Slot;

    #[test]
    fn utility_is_the_papers() {
        let params = Params::default();
        // 50^0.9 = 33.8122; 900 * 50 * 0.01 = 450; 11.35 * 50 * 0.02 = 11.35.
        assert!((utility_of(50.0, 0.0, 0.0, &params) - 33.8122).abs() < 1e-3);
        assert!((utility_of(50.0, 0.01, 0.0, &params) - (33.8122 - 450.0)).abs() < 1e-3);
        assert!((utility_of(50.0, 0.0, 0.02, &params) - (33.8122 - 11.35)).abs() < 1e-3);
        assert!((utility_of(1.0, 0.0, 0.05, &params) - (1.0 - 0.5675)).abs() < 1e-9);
    }

    #[test]
    fn a_gradient_counts_only_beyond_its_noise() {
        let params = Params::default();
        let mi = |slope, slope_se, ms| Mi {
            slot: Slot::Trial(0),
            asked: None,
            sent_for: Micros::from_millis(ms),
            delivered_pkts: 100.0,
            lost_pkts: 0.0,
            samples: 100.0,
            rtt: Some(RttStats {
                mean: Micros::new(41_000),
                min: Micros::ZERO,
                max: Micros::ZERO,
                slope,
                slope_se,
                deviation: Micros::ZERO,
            }),
            rtt_at_loss: None,
            send_rate: Rate::ZERO,
            goodput: Rate::ZERO,
            limited: false,
            stalled: false,
        };
        let since = |mi, calm| credible_gradient(Rate::from_mbit(50.0), &mi, &params, 1500.0, calm);
        let credible = |mi| since(mi, None);
        assert_eq!(credible(mi(0.05, 0.01, 40)), 0.05);
        assert_eq!(credible(mi(-0.05, 0.01, 40)), 0.0);
        assert_eq!(credible(mi(0.009, 0.001, 400)), 0.0, "below the floor");
        assert_eq!(credible(mi(0.05, 0.03, 40)), 0.0, "within its noise");
        assert_eq!(
            credible(mi(0.05, 0.01, 8)),
            0.0,
            "a rise of less than two packets"
        );
        let calm = |us| Some(Micros::new(us));
        let short = || mi(0.05, 0.01, 8);
        assert_eq!(
            since(short(), calm(40_000)),
            0.05,
            "a rise of 1.2 ms in all"
        );
        assert_eq!(since(short(), calm(40_900)), 0.0);
        assert_eq!(since(mi(-0.05, 0.01, 8), calm(30_000)), 0.0, "it falls");
    }
}
