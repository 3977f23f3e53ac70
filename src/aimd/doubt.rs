//! Losses that are borne for long are put to the test: are they the path's own?
//!
//! Flows that fill a small buffer together lose something all the time as long as nobody yields, and each learns that
//! the path loses so much. Passively that cannot be told from a path that does. Whoever has much of the path can find
//! out: it sends a tenth less. If the losses go, they were its own, and the tenth is the others'; if they stay, it
//! takes the tenth back, and asks half as often.
//!
//! Limits: a flow that has little of the path asks in vain, and bears what the others make it lose. That is as it
//! should be: the others have more to give.

use crate::handbrake::View;
use crate::units::Rate;

/// Intervals with losses in a row that are borne before the first test. Source: simulated, 40 paths with 2 to 8 wide
/// flows at 5 to 25 packets: the lowest Jain's index is .40 with this, .27 without a test.
const BORNE: u8 = 10;
/// How often that is doubled at most, after tests in vain.
const DOUBLED_MOST: u8 = 4;
/// The losses have gone if less than this part of the loss floor is left, which is what the flow takes for the path's.
/// Source: simulated; with the mean loss of the borne intervals instead 40 wide paths have a Jain's index of .894 for
/// .898, the goals of six flows are the same.
const GONE: f64 = 0.5;

/// What a wide flow that bears losses should do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Yield, and see.
    Test,
    /// They stay: back to the rate before.
    InVain(Rate),
}

/// Losses that were borne, and what was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// Intervals with losses in a row.
    lossy: u8,
    /// Tests in a row that were in vain.
    in_vain: u8,
    /// The rate and the loss floor before the test that is on.
    test: Option<(Rate, f32)>,
}

impl Doubt {
    /// Something else was done: the rate before a test is no longer the flow's.
    pub(super) fn forget(&mut self) {
        (self.test, self.lossy) = (None, 0);
    }

    /// An interval in which nothing else was to be done, and whose rate no cut has just changed.
    pub(super) fn weigh(&mut self, view: &View<'_>) -> Option<Verdict> {
        let (mi, is_lossy) = (view.mi, view.mi.lost_pkts >= 1.0);
        if let Some((before, floor)) = self.test.take() {
            self.lossy = 0;
            if mi.loss() > GONE * f64::from(floor) {
                self.in_vain = self.in_vain.saturating_add(1);
                return Some(Verdict::InVain(before));
            }
            self.in_vain = 0;
        }
        self.lossy = if is_lossy {
            self.lossy.saturating_add(1)
        } else {
            0
        };
        if self.lossy < BORNE << self.in_vain.min(DOUBLED_MOST) {
            return None;
        }
        self.test = Some((view.rate, view.est.loss_floor() as f32));
        Some(Verdict::Test)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{RATE, interval, view};
    use crate::params::Params;

    #[test]
    fn a_test_ends_with_whatever_else_is_done() {
        let (params, seen) = (Params::default(), interval(RATE, 41_000, 50));
        let mut doubt = Doubt::default();
        let weigh = |doubt: &mut Doubt| doubt.weigh(&view(&params, &seen));
        let first = (0..BORNE).find_map(|_| weigh(&mut doubt));
        assert_eq!(first, Some(Verdict::Test));
        let mut cut = doubt;
        cut.forget();
        assert_eq!(weigh(&mut cut), None, "what it had is not taken back");
        assert_eq!(weigh(&mut doubt), Some(Verdict::InVain(RATE)));
    }
}
