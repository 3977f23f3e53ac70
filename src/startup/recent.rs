//! What was delivered in the last RTT of a fast start.

use crate::estimate::Estimator;
use crate::units::{Micros, Rate};

/// Reports remembered: more than an RTT of slots.
const HISTORY: usize = 8;

/// The last reports.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// (time in us, packets delivered so far), both modulo 2^32.
    history: [(u32, u32); HISTORY],
    /// How many there were, modulo 2^16.
    reports: u16,
}

impl Recent {
    /// Whether there were more reports than are remembered.
    pub(super) fn is_full(&self) -> bool {
        self.reports > HISTORY as u16
    }

    /// Notes what is delivered by now; returns the goodput over the last RTT or a little more, once there is that much
    /// history.
    pub(super) fn note(&mut self, est: &Estimator, pkt_bytes: f64) -> Option<Rate> {
        // `as` for whole numbers beyond 2^32 is their remainder.
        let now = (est.now().us() as u32, est.delivered_pkts() as u64 as u32);
        let since = |(us, pkts): (u32, u32)| {
            let elapsed = Micros::new(now.0.wrapping_sub(us).into());
            (elapsed, f64::from(now.1.wrapping_sub(pkts)))
        };
        let (depth, reports) = (HISTORY, usize::from(self.reports));
        let newest_first =
            (1..=reports.min(depth)).map(|back| self.history[(reports - back) % depth]);
        let old = newest_first
            .map(since)
            .find(|(elapsed, _)| *elapsed >= est.srtt());
        let newest = (reports > 0).then(|| since(self.history[(reports - 1) % depth]).0);
        if newest.is_none_or(|elapsed| elapsed * (depth as f64 - 2.0) >= est.srtt()) {
            self.history[reports % depth] = now;
            self.reports = self.reports.wrapping_add(1).max(1);
        }
        old.map(|(elapsed, pkts)| Rate::from_bytes_in(pkts * pkt_bytes, elapsed))
    }
}
