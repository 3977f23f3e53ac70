//! A queue that grows although a climber yields to it.
//!
//! Flows of this algorithm that share a queue yield together: it falls within some ten RTTs, and then grows again. A
//! flow of Cubic fills it for fifty or more, until it loses. So a queue that has only grown through many back-offs is
//! somebody's who does not yield.
//!
//! A climber of a few packets tolerates as much of a queue as these take at its own rate, which beside others may be
//! most of what Cubic's loss leaves. It then climbs again, or finds the queue gone. Only a queue that falls therefore
//! begins the count anew.
//!
//! Limits: a queue that Cubic fills within eight back-offs, as on paths of few packets, shows in other ways or not at
//! all.

use super::View;
use crate::units::Micros;

/// Back-offs through which the queue has grown, and by what factor. Source: simulated, a newcomer beside 1 to 4 Cubics
/// on 30 paths, own share .285 to .335; with 10 back-offs .315. With 6, 100 flows that share 400 Mbit/s take each other
/// for Cubic's.
const BACK_OFFS: u8 = 8;
const GROWN: f64 = 1.25;
/// The queue has fallen when less than this part of its height is left, or less than half of what is tolerated of the
/// smallest RTT, or than this. Source: Cubic leaves .4 of a queue of one bandwidth-delay product, and more of a deeper
/// one.
const FALLEN: f64 = 0.7;
const LOW: f64 = 0.5;
const LOW_MIN: Micros = Micros::new(2500);

/// A queue that grows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rise {
    back_offs: u8,
    /// What stood at the first of these, and the most since the queue last fell, us.
    first: u32,
    highest: u32,
}

impl Rise {
    /// Sees an interval.
    pub(super) fn note(&mut self, view: &View<'_>) {
        let standing = standing_us(view);
        let low = (view.est.rtt_min() * (view.params.hb_queue.get() * LOW)).max(LOW_MIN);
        let fallen = f64::from(standing) < f64::from(self.highest) * FALLEN;
        if fallen || view.standing_queue() <= low {
            *self = Self::default();
        }
        self.highest = self.highest.max(standing);
    }

    /// Sees an interval that calls for a back-off; whether the queue has grown through enough of them.
    pub(super) fn backed_off(&mut self, view: &View<'_>) -> bool {
        self.note(view);
        let standing = standing_us(view);
        if self.back_offs == 0 {
            self.first = standing;
        }
        self.back_offs = self.back_offs.saturating_add(1);
        self.back_offs >= BACK_OFFS && f64::from(standing) > f64::from(self.first) * GROWN
    }
}

/// The standing queue, us; the program reports no RTT that does not fit.
fn standing_us(view: &View<'_>) -> u32 {
    view.standing_queue().us().try_into().unwrap_or(u32::MAX)
}
