//! The restart handbrake: start fast again on a path that has grown.
//!
//! Vivace finds freed capacity by steps of at most a quarter per two RTTs, which takes a minute where a long fat path
//! grew tenfold, or where a fast start ended too early (at a burst of random loss, say). The rule remembers what the
//! path bore when it last pushed back. Delivery far beyond that, with nothing pushing back, is another path: the fast
//! start goes on from the present rate, more carefully than the first one.
//!
//! Limits: it needs Vivace to find the first quarter. A restart that gained nothing is not repeated soon.

use super::{Action, Rule, View};
use crate::estimate::LossClass;
use crate::params::Handbrake;
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Delivery beyond the known capacity that means another path. Source: above two of Vivace's first steps, so that the
/// search for the edge never looks like it.
const GROWN: f64 = 1.25;
/// A restart that ends below this many times its first rate was in vain.
const IN_VAIN: f64 = 1.2;
/// Silence after a restart in vain, doubled each time up to the limit. Source: upstream design, not derived anew.
const PAUSE: Micros = Micros::new(3_000_000);
const PAUSE_MAX: Micros = Micros::new(60_000_000);

/// Restart on a path that grew.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestartRule {
    silent_until: Micros,
    /// What arrived when the path last pushed back.
    known: Option<Rate>,
    /// First rate of the running restart.
    from: Option<Rate>,
    pause: Micros,
}

impl RestartRule {
    /// A fast start has ended at `rate`: that is what the path bears.
    pub fn started(&mut self, rate: Rate, now: Micros) {
        self.known = Some(rate);
        let Some(from) = self.from.take() else { return };
        if rate < from * IN_VAIN {
            self.pause = (self.pause * 2.0).clamp(PAUSE, PAUSE_MAX);
            self.silent_until = self.silent_until.max(now + self.pause);
        } else {
            self.pause = Micros::ZERO;
        }
    }
}

/// Whether the interval shows that the path is full.
fn pushes_back(view: &View<'_>) -> bool {
    let &View { mi, est, .. } = view;
    let Some(rtt) = mi.rtt else { return false };
    let queue = rtt.mean - est.rtt_min();
    let lossy = est.class(mi) == LossClass::Congestive || est.excess_loss(mi) > 0.0;
    lossy || queue > view.tolerated_queue() * 0.5
}

impl Rule for RestartRule {
    fn reason(&self) -> Reason {
        Reason::Restart
    }

    fn check(&mut self, view: &View<'_>) -> Option<Action> {
        let &View {
            mi,
            est,
            rate,
            params,
            ..
        } = view;
        mi.judged_rate()?;
        let arrived = mi.goodput.min(mi.send_rate);
        if pushes_back(view) {
            self.known = Some(arrived);
            return None;
        }
        let off = params.no_handbrake.contains(Handbrake::Restart);
        let known = *self.known.get_or_insert(arrived);
        if off || est.now() < self.silent_until || arrived < known * GROWN {
            return None;
        }
        self.from = Some(rate);
        Some(Action::Restart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{RATE, check, interval};
    use crate::params::Params;

    /// 100 packets in 20 ms are 5 MB/s; the RTT tells whether the path pushes back.
    #[test]
    fn delivery_beyond_what_the_path_bore_starts_fast_again() {
        let params = Params::default();
        let (free, full) = (interval(RATE, 41_000, 1), interval(RATE, 70_000, 1));
        let mut rule = RestartRule::default();
        rule.started(RATE * 0.7, Micros::ZERO);
        assert_eq!(check(&mut rule, &params, &free), Some(Action::Restart));
        assert_eq!(
            check(&mut rule, &params, &full),
            None,
            "a queue tells what the path bears"
        );
        assert_eq!(
            check(&mut rule, &params, &free),
            None,
            "no more than it bore"
        );
        let off = Params {
            no_handbrake: "restart".parse().unwrap(),
            ..params
        };
        let mut rule = RestartRule::default();
        rule.started(RATE * 0.7, Micros::ZERO);
        assert_eq!(check(&mut rule, &off, &free), None);
    }

    #[test]
    fn a_restart_in_vain_is_not_repeated_soon() {
        let params = Params::default();
        let free = interval(RATE, 41_000, 1);
        let mut rule = RestartRule::default();
        rule.started(RATE * 0.7, Micros::ZERO);
        assert_eq!(check(&mut rule, &params, &free), Some(Action::Restart));
        rule.started(RATE * 0.7, free.0.now());
        assert_eq!(check(&mut rule, &params, &free), None, "it pauses");
        rule.silent_until = Micros::ZERO;
        assert_eq!(check(&mut rule, &params, &free), Some(Action::Restart));
        rule.started(RATE * 3.0, free.0.now());
        assert_eq!(rule.pause, Micros::ZERO, "a success ends the pauses");
    }
}
