//! A long RTT, watched: does it grow on, as a flow's own queue does?
//!
//! Where packets wait for each other and are held back at random (a radio link, a card that collects ACKs) all of them
//! come as late as the latest: the RTT stands far above the smallest without any queue, and the faster packets follow
//! each other the less does it vary. To the fast start that looks like a full path, in its first RTTs and at a
//! hundredth of what the path carries.
//!
//! But a queue of the flow's own grows on while the rate is held, and what holds packets back does not. So where the
//! initial window's ACKs told nothing of the path's rate ([`super::train`]), or were wrong about it, and nothing has
//! been lost, the rate is held while the RTT is long. If one and a half RTTs later it has not grown, that much of it is
//! foreign, and only what comes on top counts as a queue. Where it was short in between, the rate has grown, and says
//! so the more.
//!
//! Where packets overtake each other the train's gaps are even, but not the path's, and what is late counts as lost at
//! first: so there a long RTT does end the start. But a queue is gone once it was let out. If the RTT is as long
//! without it, while the fastest packet met nothing, packets only come in another order: the start goes on where it
//! left, and knows that much of the RTT ([`LongRtt`]).
//!
//! Limits: a rate held at more than the path carries adds to the queue what it is too high by, for up to two RTTs.
//! Others' queues do not grow by what one flow sends, either; but their flows' trains are mostly even, and they lose
//! packets.

use crate::estimate::{Estimator, RttStats};
use crate::units::Micros;

/// How long the rate is held, in RTTs. Source: simulated on 60 paths with jitter of .25 to 1.5 of the RTT, mean use:
/// .64 without, .91 with 1.5 and .90 with 1; with half of the growth that ends it .88.
const HELD_RTTS: f64 = 1.5;

/// Part of what ended a start that must still be there once it was let out, and part of the long RTT that its fastest
/// packet may have met. Source: simulated, 27 paths whose packets overtake each other by up to a whole RTT: .89 of them
/// used, .80 without; .5 for the first is as good, .7 for the second lengthens the queues of narrow paths.
const STAYS: f64 = 0.7;
const SCATTERED: f64 = 0.5;

/// What is known of long RTTs. Times are in us, those of the clock modulo 2^32.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// When the RTT was first long since the last judgement, and its mean then; that is zero for never.
    since: u32,
    first: u32,
    /// What stands in the RTT without being a queue.
    foreign: u32,
}

impl Watch {
    /// Knows that so much of a long RTT is no queue.
    #[must_use]
    pub fn knowing(foreign: Micros) -> Self {
        Self {
            foreign: foreign.us() as u32,
            ..Self::default()
        }
    }

    /// The long RTT that ends a start; none if its fastest packet has met most of it, as it does in a queue.
    #[must_use]
    pub fn ended_by(&self, rtt: &RttStats, est: &Estimator) -> LongRtt {
        if !is_scattered(rtt, est) {
            return LongRtt::default();
        }
        LongRtt {
            queue: (est.mean_queue(rtt) - self.foreign()).us() as u32,
            foreign: self.foreign,
        }
    }

    /// What stands in the RTT beside the smallest, and is no queue.
    #[must_use]
    pub fn foreign(&self) -> Micros {
        Micros::new(self.foreign.into())
    }

    /// Whether to hold the rate and look on, for an RTT that is long by more than `tolerated`.
    pub fn holds(&mut self, rtt: &RttStats, tolerated: Micros, est: &Estimator) -> bool {
        // `as` is the remainder; RTTs are far below 2^32 us.
        let (now, mean) = (est.now().us() as u32, rtt.mean.us() as u32);
        if self.first == 0 {
            (self.since, self.first) = (now, mean);
        }
        if rtt.mean > Micros::new(self.first.into()) + tolerated {
            return false;
        }
        if Micros::new(now.wrapping_sub(self.since).into()) > est.srtt() * HELD_RTTS {
            self.foreign = self.foreign.max(est.mean_queue(rtt).us() as u32);
            self.first = 0;
        }
        true
    }
}

/// A long RTT that ended a start, us.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongRtt {
    /// What of it was taken for a queue, zero for nothing; and what was known to be none.
    queue: u32,
    foreign: u32,
}

impl LongRtt {
    /// What stands in the RTT beside the smallest after the queue was let out, if that shows that there was none: most
    /// of it is still there, and the fastest packet has met little of it.
    #[must_use]
    pub fn stays(self, rtt: &RttStats, est: &Estimator) -> Option<Micros> {
        let beside = est.mean_queue(rtt);
        let (queue, foreign) = (self.queue.into(), Micros::new(self.foreign.into()));
        let is_long = queue > 0 && beside - foreign > Micros::new(queue) * STAYS;
        (is_long && is_scattered(rtt, est)).then_some(beside)
    }
}

/// Whether the fastest packet has met little of a long RTT.
fn is_scattered(rtt: &RttStats, est: &Estimator) -> bool {
    rtt.min - est.rtt_min() < est.mean_queue(rtt) * SCATTERED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::SlotContext;
    use crate::estimate::tests::report;
    use crate::params::Params;

    #[test]
    fn a_long_rtt_that_stays_without_its_queue_was_none() {
        let mut est = Estimator::new(&Params::default());
        let mut see = |rtts_us: [u64; 4]| {
            let acks: Vec<_> = (0..)
                .zip(rtts_us)
                .map(|(i, rtt)| (i * 1000, rtt, 0))
                .collect();
            let context = SlotContext {
                asked: None,
                length: Micros::new(4000),
                mss_bytes: 1000.0,
            };
            let rtt = est.observe(&report(33, 0, &acks, 4000), context).rtt;
            (rtt.unwrap(), est.clone())
        };
        let (left, est) = see([40_000, 80_000, 50_000, 70_000]);
        let ended = Watch::default().ended_by(&left, &est);
        let mut stays = |rtts_us| {
            let (rtt, est) = see(rtts_us);
            ended.stays(&rtt, &est)
        };
        let scattered = stays([75_000, 42_000, 65_000, 58_000]);
        assert_eq!(scattered, Some(Micros::new(20_000)), "as before");
        assert_eq!(stays([41_000, 52_000, 43_000, 44_000]), None, "it went");
        assert_eq!(stays([62_000, 64_000, 61_000, 63_000]), None, "a queue");
        let (queue, est) = see([62_000, 64_000, 61_000, 63_000]);
        assert_eq!(Watch::default().ended_by(&queue, &est).queue, 0);
        let knows = Watch::knowing(Micros::new(20_000));
        assert_eq!(knows.foreign(), Micros::new(20_000));
    }
}
