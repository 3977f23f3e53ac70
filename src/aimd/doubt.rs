//! Losses that are borne for long are put to the test: are they the path's own?
//!
//! Flows that fill a small buffer together lose something all the time as long as nobody yields, and each learns that the path loses
//! so much. Passively that cannot be told from a path that does. Whoever has much of the path can find out: it sends a fifth less.
//! If the losses go, they were its own, and the fifth is the others'; if they stay, it takes the fifth back, and asks half as
//! often.
//!
//! ```text
//!   borne     losses in 6 intervals in a row, each too little to be clear
//!   test      4/5 of the rate; two intervals that were sent at that
//!   verdict   half of the loss or more is left: back to the rate before, and the next test after twice as many intervals
//! ```
//!
//! Who has a sixth of the path and sends a fifth less takes 3 % off what is sent, which is about what such flows lose together. With a
//! tenth less most of the losses stay, and each of six flows learns that they are the path's.
//!
//! Limits: a flow that has little of the path asks in vain, and bears what the others make it lose. That is as it should be: the
//! others have more to give.

use crate::handbrake::View;
use crate::units::Rate;

/// What is left of the rate for a test; how many intervals that lose something in a row are borne before the first; and how many a test
/// lasts. Source: simulated, two seeds: the 42 paths of the goals that six flows share at 5 to 20 packets, Jain's index, the lowest, and the
/// part that is used: .977, .69, .969 with these; .979, .76, .968 with 0.75; .976, .66, .969 with 10 for 6; .962, .55, .968 with
/// 0.9, 10 and 1, and only above 64 packets per RTT.
pub(super) const TEST_FACTOR: f64 = 0.8;
const BORNE: u8 = 6;
const TEST: u8 = 2;
/// How often the first is doubled at most, after tests in vain.
const DOUBLED_MOST: u8 = 4;
/// The losses have gone if less than this part of them is left.
const GONE: f64 = 0.5;

/// What a flow that bears losses should do.
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
    /// Intervals with losses in a row, or of the test that is on; what was lost in them, and of how many packets.
    intervals: u8,
    lost_pkts: f32,
    pkts: f32,
    /// Tests in a row that were in vain.
    in_vain: u8,
    /// The rate and the loss before the test that is on.
    test: Option<(Rate, f32)>,
}

impl Doubt {
    /// An interval in which nothing else was to be done, and whose rate no cut has just changed.
    pub(super) fn weigh(&mut self, view: &View<'_>) -> Option<Verdict> {
        let mi = view.mi;
        if self.test.is_none() && mi.lost_pkts < 1.0 {
            self.begin();
            return None;
        }
        self.intervals = self.intervals.saturating_add(1);
        self.lost_pkts += mi.lost_pkts as f32;
        self.pkts += mi.pkts() as f32;
        let loss = self.lost_pkts / self.pkts.max(1.0);
        if let Some((rate, before)) = self.test {
            if self.intervals < TEST {
                return None;
            }
            self.test = None;
            self.begin();
            let stays = f64::from(loss) > GONE * f64::from(before);
            self.in_vain = if stays {
                self.in_vain.saturating_add(1)
            } else {
                0
            };
            return stays.then_some(Verdict::InVain(rate));
        }
        if self.intervals < BORNE << self.in_vain.min(DOUBLED_MOST) {
            return None;
        }
        self.test = Some((view.rate, loss));
        self.begin();
        Some(Verdict::Test)
    }

    fn begin(&mut self) {
        (self.intervals, self.lost_pkts, self.pkts) = (0, 0.0, 0.0);
    }
}
