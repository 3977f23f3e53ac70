//! Algorithms as others write them: against portus' API alone, without a thought for this datapath.

mod bbr;
mod cubic;
mod reno;

pub(crate) use bbr::Bbr;
pub(crate) use cubic::Cubic;
pub(crate) use reno::Reno;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the flows of an algorithm were told of.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) losses: AtomicU64,
    pub(crate) timeouts: AtomicU64,
}

impl Tally {
    fn add(&self, losses: u64, timeouts: u64) {
        self.losses.fetch_add(losses, Relaxed);
        self.timeouts.fetch_add(timeouts, Relaxed);
    }
}
