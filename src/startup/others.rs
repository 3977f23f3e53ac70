//! What a start hears of others to the same address ([`crate::ensemble`]), and what it does with that.
//!
//! The path that the train tells is divided among those who take what they can get: the second RTT has a part of it,
//! though no less than if the train told nothing, and a start ends with no more than its part. Where the train told
//! nothing, what one of them knows is divided, and a start ends with no more than one and a half of its part. Nor does
//! any sign end it below one and a half of what each would have if there were one more; and if the first ACKs show that
//! they fill the path, the start ends there. A start again grows no further than its part: what it finds free is others'
//! as well, who may climb more slowly.

use crate::cruise::OwnPath;
use crate::ensemble::Known;
use crate::units::{Micros, Rate};

/// A start among others ends with so many times its share, at least: who begins with just that stays behind those who
/// were there first. Source: simulated, 389 paths that several flows share: with 1, 1.5 and 2 shares 80 crowds lose
/// 4.0, 4.3 and 4.7 % at a Jain's index of .913, .930 and .939, and 12 staggered flows' is .933, .946 and .955.
const SHARES: f64 = 1.5;

/// The others, as far as was heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Others {
    /// The smallest RTT that they know, until it is taken; zero for nothing.
    rtt_min: Micros,
    /// What the flow ends its start with, at least; zero for nothing.
    least: Rate,
    /// How many take what they can get.
    active: u32,
    /// What one of them knows of the path.
    path: OwnPath,
}

impl Others {
    /// So many, of which no more is known.
    pub(super) fn of(active: u32) -> Self {
        Self {
            active,
            ..Self::default()
        }
    }

    /// They know this of the path. One that is the flow's own has no others who have a share.
    pub(super) fn hear(&mut self, known: Known, on_own_path: bool) {
        (self.rtt_min, self.active) = (known.rtt_min, known.active);
        self.path.learn(known.carries);
        if !on_own_path {
            self.least = known.share * SHARES;
        }
    }

    /// How many take what they can get.
    pub(super) fn active(&self) -> u32 {
        self.active
    }

    /// The smallest RTT that they know, if that was heard since the last time.
    pub(super) fn take_rtt_min(&mut self) -> Option<Micros> {
        let heard = std::mem::replace(&mut self.rtt_min, Micros::ZERO);
        (heard > Micros::ZERO).then_some(heard)
    }

    /// What a start ends with, at least; zero for nothing.
    pub(super) fn least(&self) -> Rate {
        self.least
    }

    /// What it ends with, at most, on a path whose rate the train tells, or does not: its part of that, or else a
    /// start's share of what one of them knows.
    pub(super) fn most(&self, told: Option<Rate>) -> Option<Rate> {
        let told = told.filter(|_| self.active > 0);
        let heard = || Some(self.part()? * SHARES);
        told.map(|path| self.part_of(path)).or_else(heard)
    }

    /// Its part of what one of them knows.
    pub(super) fn part(&self) -> Option<Rate> {
        let path = self.path.carries().filter(|_| self.active > 0)?;
        Some(self.part_of(path))
    }

    /// What each of those who take what they can get may have of this.
    pub(super) fn part_of(&self, rate: Rate) -> Rate {
        rate * (1.0 / (1.0 + f64::from(self.active)))
    }
}
