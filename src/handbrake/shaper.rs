//! A shaper: bursts pass, and then no more than its rate.
//!
//! Operators limit subscribers with a token bucket. While there are tokens in it, all that is sent arrives at once, as
//! fast as the line behind it; then what is beyond the shaper's rate waits in its queue. To the rest of the algorithm
//! such a path looks wide whenever the flow has yielded a little, since tokens come for what it does not send, and is
//! full all of a sudden: it climbs far beyond the rate in vain, again and again, and loses the most of a queue each
//! time.
//!
//! ```text
//!   arrives       .-'|       .-'|                     tokens    |\          |\
//!              .-'   |    .-'   |                               | \_        | \_
//!   rate  - - / - - -|- -/- - - |- - - - - - - -                |   '-.     |   '-.
//!           _/       | _/       | _                             |      '-._ |      '-._
//!                    |          |                     empty  - -'          \'          \-
//!                  full       full                            ^ full      ^ full      ^ full
//! ```
//!
//! Whenever the queue is full the bucket is empty, so what arrives between two such times is the shaper's rate times
//! the time between them, and so is what arrives while it is full; but in between more than that arrived without a
//! queue. No other path does all of that: where others come and go, the two differ, and alone on a path without a
//! bucket nothing arrives faster than while the queue is full. Two stretches that say so, at the same rate, tell the
//! rate. From then on the tokens are counted, and the flow sends no more than the rate and what would use them up
//! slowly.
//!
//! ```text
//!   most = 1.02 rate + |tokens| / (8 srtt)        tokens = rate x time - arrived, since the bucket was empty
//! ```
//!
//! More that arrives than there were tokens for, with no queue, is another path: the more it is, the more may be sent,
//! until all is forgotten.
//!
//! Limits: of flows that share a shaper each sees what others leave, and knows its rate only while they stay as they
//! are. Flows that share another path may by chance show the same; the bound is their share then, and lifts itself
//! when there is more. A bucket that an application lets become full lets more pass than was counted on; it is empty
//! soon. A policer has no queue, and its losses come one by one: the loss floor sees to them ([`crate::estimate`]).

use super::View;
use crate::estimate::LossClass;
use crate::params::{Handbrake, Params};
use crate::units::{Micros, Rate};

/// Loss beyond the most that can be the path's own, and deviations of it, that shows a full queue.
const FULL_LOSS: f64 = 0.02;
const FULL_SIGMAS: f64 = 3.0;
/// ACKs and packets of an interval that tell how fast they arrived.
const TELLS_SAMPLES: f64 = 4.0;
const TELLS_PKTS: f64 = 8.0;
/// What stands at most of the tolerated queue while tokens are used.
const NO_QUEUE: f64 = 0.5;
/// A stretch between two full queues, at least.
const STRETCH_RTTS: f64 = 4.0;
/// What arrived without a queue, over what arrived at a full one and in the mean; and what arrived beyond the rate, in
/// that of an RTT. Source: simulated, one seed of twelve files of paths without a shaper and that of shaped ones: with
/// a burst of 1.1 a shaper is found 1,970 and 125 times without the latter, 416 and 103 with .5, 130 and 60 with 1. One
/// flow's and several flows' loss of shaped paths: 2.0 and 5.0 % with 1.1, 2.1 and 5.0 with this, 2.2 and 5.0 with 1.2;
/// Jain's index of four and six flows at small buffers: .953, .961, .961, as without.
const BURST: f64 = 1.15;
const BURST_RTTS: f64 = 0.5;
/// How far the mean of a stretch, and what arrives at a full queue, may differ; and the means of two.
const SAME_AS_FULL: f64 = 0.1;
const SAME_AS_BEFORE: f64 = 0.05;
/// What arrives at a full queue differs by more than that: the path is another.
const OTHER_RATE: f64 = 0.15;
/// Beyond the rate, so that a path that carries more shows; and beyond that in trials.
const BEYOND: f64 = 1.02;
const TRIALS: f64 = 1.05;
/// RTTs in which tokens are used up.
const USED_RTTS: f64 = 8.0;
/// What arrived for which there were no tokens, in RTTs and seconds of the rate, that is another path.
const OTHER_RTTS: f64 = 4.0;
const OTHER_TIME: Micros = Micros::new(100_000);

/// What is known of a shaper.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shaper {
    /// When the bucket was empty last; zero for never.
    empty: Micros,
    /// Bytes that arrived since, ...
    arrived: f64,
    /// ... the most that arrived of them without a queue, ...
    burst: Kept,
    /// ... and bytes beyond the rate that the stretch before has shown: now, and at most.
    excess: f32,
    most_excess: f32,
    /// The stretch that ended when the queue became full.
    full: Option<Full>,
    /// The rate that the stretch before has shown; zero for none.
    shown: Kept,
    /// The shaper's rate; zero for none.
    rate: Kept,
    /// Bytes that may pass beyond the rate.
    tokens: f32,
}

/// A rate in half of its space, bytes/s.
#[derive(Clone, Copy, Debug, Default)]
struct Kept(f32);

impl Kept {
    fn new(rate: Rate) -> Self {
        Self(rate.bytes_per_sec() as f32)
    }

    fn get(self) -> Rate {
        Rate::from_bytes_per_sec(self.0.into())
    }
}

/// A queue that is full.
#[derive(Clone, Copy, Debug)]
struct Full {
    /// What arrived since the one before, on average; zero if that was just now.
    mean: Kept,
    /// The most that arrived without a queue; zero for nothing.
    burst: Kept,
    /// The least that arrives while it is full; zero for unknown.
    least: Kept,
}

impl Shaper {
    /// Takes a report.
    pub fn note(&mut self, view: &View<'_>) {
        let &View { mi, est, .. } = view;
        let (now, since) = (est.now(), est.reported_after());
        let bytes = mi.delivered_pkts * view.pkt_bytes;
        self.arrived += bytes;
        if mi.rtt.is_none() {
            return;
        }
        let queue = view.standing_queue();
        let tells = mi.samples >= TELLS_SAMPLES
            && mi.delivered_pkts >= TELLS_PKTS
            && mi.goodput > Rate::ZERO;
        let is_full = queue > view.tolerated_queue()
            || est.class(mi) == LossClass::Congestive
            || est.clear_loss(mi, FULL_SIGMAS) > FULL_LOSS;
        if is_full {
            let full = self.full.unwrap_or_else(|| self.stretch(now, est.srtt()));
            let least = match full.least.get() {
                before if !tells => before,
                Rate::ZERO => mi.goodput,
                before => before.min(mi.goodput),
            };
            *self = Self {
                empty: now,
                full: Some(Full {
                    least: Kept::new(least),
                    ..full
                }),
                most_excess: self.most_excess,
                shown: self.shown,
                rate: self.rate,
                ..Self::default()
            };
            return;
        }
        if let Some(full) = self.full.take() {
            self.learn(full, est.srtt());
        }
        if tells && mi.lost_pkts == 0.0 && queue <= view.tolerated_queue() * NO_QUEUE {
            self.burst = Kept::new(mi.arrived().max(self.burst.get()));
        }
        let excess = f64::from(self.excess) + bytes - self.shown.get().bytes_in(since);
        self.excess = excess.max(0.0) as f32;
        self.most_excess = self.most_excess.max(self.excess);
        if self.rate.get() > Rate::ZERO {
            self.count(now, est.srtt());
        }
    }

    /// Counts the tokens.
    fn count(&mut self, now: Micros, srtt: Micros) {
        let rate = self.rate.get();
        let tokens = rate.bytes_in(now - self.empty) - self.arrived;
        self.tokens = tokens as f32;
        let other = (srtt * OTHER_RTTS).max(OTHER_TIME);
        if tokens < -rate.bytes_in(other) {
            self.forget();
        }
    }

    /// What arrived since the bucket was empty.
    fn stretch(&self, now: Micros, srtt: Micros) -> Full {
        let time = now - self.empty;
        let known = self.empty > Micros::ZERO && time > Micros::ZERO;
        Full {
            mean: if known {
                Kept::new(Rate::from_bytes_in(self.arrived, time))
            } else {
                Kept::default()
            },
            burst: if time > srtt * STRETCH_RTTS {
                self.burst
            } else {
                Kept::default()
            },
            least: Kept::default(),
        }
    }

    /// The queue is no longer full: what the stretch before it tells.
    fn learn(&mut self, full: Full, srtt: Micros) {
        let excess = f64::from(std::mem::take(&mut self.most_excess));
        let [mean, burst, least] = [full.mean, full.burst, full.least].map(Kept::get);
        let (rate, shown) = (self.rate.get(), self.shown.get());
        if mean == Rate::ZERO || least == Rate::ZERO {
            self.shown = Kept::default();
        } else if rate > Rate::ZERO {
            if are_near(mean, rate, SAME_AS_FULL) {
                self.rate = Kept::new((rate + mean) * 0.5);
            } else if !are_near(least, rate, OTHER_RATE) {
                self.forget();
            }
        } else {
            let shows = burst > least.max(mean) * BURST && are_near(mean, least, SAME_AS_FULL);
            let again = are_near(mean, shown, SAME_AS_BEFORE);
            if shows && again && excess >= shown.bytes_in(srtt) * BURST_RTTS {
                self.rate = full.mean;
            }
            // A stretch without a burst shows nothing else.
            if shows {
                self.shown = full.mean;
            } else if !again {
                self.shown = Kept::default();
            }
        }
    }

    /// The path is another one.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The most that may be sent, if a shaper is known.
    #[must_use]
    pub fn most(&self, srtt: Micros, params: &Params) -> Rate {
        let rate = self.rate.get();
        let off = !params.is_pk3c() || params.no_handbrake.contains(Handbrake::Shaper);
        if rate == Rate::ZERO || off {
            return Rate::MAX;
        }
        let tokens = f64::from(self.tokens.abs());
        rate * BEYOND + Rate::from_bytes_in(tokens, srtt * USED_RTTS)
    }

    /// The same for a trial, or for the growth of a start.
    #[must_use]
    pub fn most_tried(&self, srtt: Micros, params: &Params) -> Rate {
        self.most(srtt, params) * TRIALS
    }
}

fn are_near(one: Rate, other: Rate, by: f64) -> bool {
    let most = 1.0 + by;
    one < other * most && other < one * most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimator;
    use crate::handbrake::tests::{PKT, empty_path, sent_at};

    /// Microseconds between packets at 5 MB/s, the shaper's rate, and around it.
    const RATE: u64 = 200;
    const SLOWER: u64 = 250;
    const FASTER: u64 = 160;
    const SRTT: Micros = Micros::new(40_000);

    /// A flow whose packets arrive in intervals of a hundred.
    struct Flow {
        est: Estimator,
        shaper: Shaper,
        params: Params,
        arrives_at: u64,
    }

    impl Flow {
        fn new() -> Self {
            Self {
                est: empty_path(),
                shaper: Shaper::default(),
                params: Params::default(),
                arrives_at: 1_000_000,
            }
        }

        fn intervals(&mut self, count: usize, gap_us: u64, rtt: u64) {
            for _ in 0..count {
                let mi = sent_at(&mut self.est, self.arrives_at - rtt, gap_us, |_| rtt);
                self.arrives_at += 100 * gap_us;
                let view = View {
                    mi: &mi,
                    est: &self.est,
                    rate: Rate::from_bytes_in(PKT, Micros::new(gap_us)),
                    pkt_bytes: PKT,
                    params: &self.params,
                };
                self.shaper.note(&view);
            }
        }

        fn is_full(&mut self) {
            self.intervals(3, RATE, 80_000);
        }

        /// Slow intervals, and as many fast ones as use up the tokens.
        fn stretch(&mut self) {
            self.intervals(8, SLOWER, 40_000);
            self.intervals(10, FASTER, 40_000);
            self.is_full();
        }

        fn most_mbyte(&self) -> f64 {
            self.shaper.most(SRTT, &self.params).bytes_per_sec() / 1e6
        }

        fn knows_none(&self) -> bool {
            self.shaper.most(SRTT, &self.params) == Rate::MAX
        }
    }

    /// One that has met a full queue three times, with tokens in between.
    fn shaped() -> Flow {
        let mut flow = Flow::new();
        flow.is_full();
        flow.stretch();
        flow.stretch();
        flow.intervals(1, RATE, 40_000);
        flow
    }

    #[test]
    fn two_stretches_at_one_rate_tell_it() {
        let mut flow = Flow::new();
        flow.is_full();
        flow.stretch();
        flow.intervals(1, SLOWER, 40_000);
        assert!(flow.knows_none(), "one stretch may be chance");
        let flow = shaped();
        let most = flow.most_mbyte();
        assert!((5.0..5.3).contains(&most), "{most} MB/s");
    }

    #[test]
    fn nothing_is_known_where_it_is_switched_off() {
        let mut flow = shaped();
        flow.params.no_handbrake = "shaper".parse().unwrap();
        assert!(flow.knows_none());
        let mut bare = shaped();
        bare.params.algorithm = "vivace".parse().unwrap();
        assert!(bare.knows_none(), "the core alone has no handbrakes");
    }

    #[test]
    fn a_path_without_bursts_has_no_shaper() {
        let mut flow = Flow::new();
        flow.is_full();
        for _ in 0..4 {
            // All that it carries, and a little less on the way there.
            flow.intervals(4, 205, 40_000);
            flow.intervals(14, RATE, 40_000);
            flow.is_full();
        }
        flow.intervals(1, RATE, 40_000);
        assert!(flow.knows_none());
    }

    #[test]
    fn others_that_come_and_go_are_none() {
        let mut flow = Flow::new();
        flow.is_full();
        for _ in 0..4 {
            // More arrives while they are away, and nothing is given back for it.
            flow.intervals(18, FASTER, 40_000);
            flow.is_full();
        }
        flow.intervals(1, RATE, 40_000);
        assert!(flow.knows_none());
    }

    #[test]
    fn tokens_may_be_used_slowly() {
        let mut flow = shaped();
        flow.intervals(20, SLOWER, 40_000);
        // A fifth of 2 MB was saved; an eighth of it per RTT.
        let most = flow.most_mbyte();
        assert!((6.0..6.8).contains(&most), "{most} MB/s");
        flow.is_full();
        let most = flow.most_mbyte();
        assert!((5.0..5.2).contains(&most), "empty: {most} MB/s");
    }

    #[test]
    fn more_than_there_were_tokens_for_is_another_path() {
        let mut flow = shaped();
        // 0.18 MB beyond the rate; four RTTs of it are 0.8.
        flow.intervals(9, FASTER, 40_000);
        assert!(!flow.knows_none());
        flow.intervals(50, FASTER, 40_000);
        assert!(flow.knows_none());
    }

    #[test]
    fn another_rate_at_a_full_queue_is_another_path() {
        let mut flow = shaped();
        flow.intervals(8, SLOWER, 40_000);
        flow.intervals(3, 2 * RATE, 80_000);
        flow.intervals(1, 2 * RATE, 40_000);
        assert!(flow.knows_none());
    }
}
