//! PIE, RFC 8033 §4 and §5: drops or marks (ECN) at random what comes to a queue in which packets wait for too long.
//!
//! ```text
//!   every 15 ms   probability += scale × (α × (wait − target) + β × (wait − wait before))
//!   a packet      is dropped with it, but for the first 150 ms of a queue, and for one that is short already
//! ```
//! Scale is the less, the lower the probability is. The drops are spread: none before the probabilities of the packets
//! since the last one add up to 0.85, one for sure at 8.5.
//!
//! Limits: every packet alike, whatever its length. The wait is that of a packet that comes at the time of the update,
//! which the link knows, where RFC 8033 estimates it from the rate of departures.

use super::chance::stream;
use crate::scenario::Pie;
use crate::{MILLISECOND, WIRE, seconds};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Time between two updates (RFC 8033 §5.2's `T_UPDATE`), and for how long a queue may grow at first (`MAX_BURST`).
const UPDATE_NS: u64 = 15 * MILLISECOND;
const MAX_BURST_NS: u64 = 150 * MILLISECOND;
/// Per second of wait (RFC 8033 §4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Below each probability, how much of a change counts (RFC 8033 §4.2).
const SCALES: [(f64, f64); 6] = [
    (1e-6, 1.0 / 2048.0),
    (1e-5, 1.0 / 512.0),
    (1e-4, 1.0 / 128.0),
    (1e-3, 1.0 / 32.0),
    (1e-2, 1.0 / 8.0),
    (1e-1, 1.0 / 2.0),
];
/// What is left of the probability with each update while nothing waits.
const DECAY: f64 = 0.98;
/// Above the first probability, it grows by no more than the second at once (RFC 8033 §5.5); a wait beyond the time
/// makes it grow by as much in any case.
const HIGH: f64 = 0.1;
const HIGH_STEP: f64 = 0.02;
const LONG_NS: u64 = 250 * MILLISECOND;
/// Below half of the target nothing is dropped with a probability below this (RFC 8033 §4.1).
const SHORT_QUEUE: f64 = 0.2;
/// Up to this probability packets that can be marked are (RFC 8033 §5.1).
const MARK_MOST: f64 = 0.1;
/// Sums of probabilities before which nothing is dropped, and at which a packet is for sure (RFC 8033 §5.4).
const SPREAD: (f64, f64) = (0.85, 8.5);

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Mark,
    Drop,
}

pub(super) struct Controller {
    pie: Pie,
    probability: f64,
    /// The wait at the last update, ns.
    wait_ns: u64,
    next_update_ns: u64,
    burst_ns: u64,
    /// The probabilities of the packets since the last drop.
    sum: f64,
    rng: ChaCha8Rng,
}

impl Controller {
    /// Equal seeds make equal decisions.
    pub(super) fn new(pie: Pie, seed: u64) -> Self {
        Self {
            pie,
            probability: 0.0,
            wait_ns: 0,
            next_update_ns: UPDATE_NS,
            burst_ns: MAX_BURST_NS,
            sum: 0.0,
            rng: stream(seed, 4),
        }
    }

    /// What becomes of a packet that comes now: when what is there already will have left, ns, and its bytes. Times
    /// must not go back.
    pub(super) fn verdict(
        &mut self,
        now_ns: u64,
        empty_ns: u64,
        backlog: u64,
        markable: bool,
    ) -> Verdict {
        while self.next_update_ns <= now_ns {
            let at_ns = self.next_update_ns;
            self.update(empty_ns.saturating_sub(at_ns));
            self.next_update_ns = at_ns + UPDATE_NS;
            if self.is_at_rest() {
                // Nothing changes before something waits.
                let updates = (now_ns - at_ns) / UPDATE_NS;
                self.next_update_ns += updates * UPDATE_NS;
            }
        }
        if self.burst_ns > 0 {
            return Verdict::Pass;
        }
        let short = self.wait_ns < self.pie.target_ns / 2 && self.probability < SHORT_QUEUE;
        if short || backlog <= 2 * WIRE {
            return Verdict::Pass;
        }
        self.sum = if self.probability > 0.0 {
            self.sum + self.probability
        } else {
            0.0
        };
        if self.sum < SPREAD.0 {
            return Verdict::Pass;
        }
        if self.sum < SPREAD.1 && self.rng.random::<f64>() >= self.probability {
            return Verdict::Pass;
        }
        self.sum = 0.0;
        if markable && self.probability <= MARK_MOST {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    /// Whether nothing has waited for long.
    fn is_at_rest(&self) -> bool {
        self.probability == 0.0 && self.wait_ns == 0 && self.burst_ns == MAX_BURST_NS
    }

    /// The control law.
    fn update(&mut self, wait_ns: u64) {
        let (wait, before) = (seconds(wait_ns), seconds(self.wait_ns));
        let scale = SCALES
            .iter()
            .find(|(below, _)| self.probability < *below)
            .map_or(1.0, |(_, scale)| *scale);
        let change =
            scale * (ALPHA * (wait - seconds(self.pie.target_ns)) + BETA * (wait - before));
        self.probability += if self.probability >= HIGH {
            change.min(HIGH_STEP)
        } else {
            change
        };
        if wait_ns > LONG_NS {
            self.probability += HIGH_STEP;
        }
        if wait_ns == 0 && self.wait_ns == 0 {
            self.probability *= DECAY;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_ns = self.burst_ns.saturating_sub(UPDATE_NS);
        let half = self.pie.target_ns / 2;
        if self.probability == 0.0 && wait_ns < half && self.wait_ns < half {
            self.burst_ns = MAX_BURST_NS;
        }
        self.wait_ns = wait_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(seed: u64) -> Controller {
        Controller::new(Pie::default(), seed)
    }

    /// Packets dropped of those that come every ms to a queue of `wait_ms`, from then on for so long, ms.
    fn drops(controller: &mut Controller, wait_ms: u64, from_ms: u64, for_ms: u64) -> Vec<u64> {
        let times = from_ms..from_ms + for_ms;
        let drops = |ms: &u64| {
            let now_ns = ms * MILLISECOND;
            controller.verdict(now_ns, now_ns + wait_ms * MILLISECOND, 15_000, false)
                == Verdict::Drop
        };
        times.filter(drops).collect()
    }

    #[test]
    fn a_wait_below_the_target_costs_nothing() {
        assert_eq!(drops(&mut controller(1), 14, 0, 20_000), []);
    }

    #[test]
    fn a_queue_may_grow_for_a_while_before_any_is_dropped() {
        let dropped = drops(&mut controller(1), 200, 0, 2000);
        assert!(dropped[0] > 150, "{}", dropped[0]);
    }

    /// A wait that stands beyond the target is answered by more and more; at the target nothing changes.
    #[test]
    fn the_probability_grows_until_the_wait_is_the_target() {
        let mut controller = controller(1);
        let seconds: Vec<_> = (0..5)
            .map(|s| drops(&mut controller, 40, s * 1000, 1000).len())
            .collect();
        assert!(
            seconds.is_sorted() && seconds[0] < seconds[4],
            "{seconds:?}"
        );
        drops(&mut controller, 15, 5000, 20);
        let before = controller.probability;
        drops(&mut controller, 15, 5020, 5000);
        assert!((controller.probability / before - 1.0).abs() < 1e-9);
    }

    #[test]
    fn drops_are_spread() {
        let mut controller = controller(3);
        controller.probability = 0.05;
        controller.burst_ns = 0;
        controller.wait_ns = 15 * MILLISECOND;
        let dropped = drops(&mut controller, 15, 0, 20_000);
        let gaps = dropped.windows(2).map(|pair| pair[1] - pair[0]);
        let (least, most) = gaps.fold((u64::MAX, 0), |(least, most), gap| {
            (least.min(gap), most.max(gap))
        });
        assert!(least >= 17 && most <= 171, "{least} {most}");
    }

    /// RFC 8033 §5.1: while few would be dropped.
    #[test]
    fn what_can_be_marked_is_not_dropped() {
        let verdict = |probability| {
            let mut controller = controller(1);
            controller.probability = probability;
            controller.burst_ns = 0;
            controller.wait_ns = 15 * MILLISECOND;
            controller.sum = SPREAD.1;
            controller.verdict(0, 15 * MILLISECOND, 15_000, true)
        };
        assert_eq!(verdict(0.09), Verdict::Mark);
        assert_eq!(verdict(0.11), Verdict::Drop);
    }

    /// RFC 8033 §5.5: a probability that is high already grows by steps.
    #[test]
    fn a_high_probability_does_not_jump() {
        let mut controller = controller(1);
        controller.probability = 0.1;
        controller.update(200 * MILLISECOND);
        assert!((controller.probability - 0.12).abs() < 1e-12);
    }

    #[test]
    fn a_long_pause_ends_in_what_many_short_ones_do() {
        let mut after_pause = controller(1);
        let mut after_steps = controller(1);
        for controller in [&mut after_pause, &mut after_steps] {
            drops(controller, 60, 0, 3000);
        }
        for ms in 3000..60_000 {
            after_steps.verdict(ms * MILLISECOND, 0, 0, false);
        }
        for controller in [&mut after_pause, &mut after_steps] {
            let verdict = controller.verdict(60_000 * MILLISECOND, 0, 0, false);
            assert_eq!(verdict, Verdict::Pass);
        }
        assert_eq!(after_pause.next_update_ns, after_steps.next_update_ns);
        assert!(after_pause.is_at_rest() && after_steps.is_at_rest());
    }
}
