//! The queue that losses meet, where it is always the same.
//!
//! A host's pause of some milliseconds makes a whole interval late, and hides a shorter queue for as long as the
//! largest RTT is remembered: all of it is in the lower half of such a range, so that what is lost at a full buffer
//! seems to have met an empty one. How the losses' RTTs lie tells more than the range does: at a full buffer they all
//! lie close together, and well above the smallest RTT. A path's own losses lie wherever RTTs are: near the smallest
//! mostly, and as far apart as they are above it.
//!
//! Losses that lie so are the path's own where no queue is long enough to place them in, also if they come in bursts.
//!
//! A single interval moves neither the mean nor the spread by much: not one whose losses met a pause, nor one that lost
//! a burst.
//!
//! Limits: where a queue stands that others keep, or the path jitters so that it looks like one, or an interval has
//! tens of losses, a path's own losses lie close together, too. So this is asked only of queues that a pause can hide:
//! some milliseconds on paths below some 30 ms, in proportion less on longer ones.

use super::whose::NO_QUEUE;
use crate::plan::STARTUP_SLOTS_PER_RTT;
use crate::units::Micros;

/// Intervals with losses before they tell, and how many are remembered.
const MIN_SEEN: u8 = 16;
const MEMORY: u8 = 32;
/// Losses lie close together if they are so many deviations above the smallest RTT. Source: in records of two and three
/// flows on this machine's TCP at 5 to 20 packets, 3 to 9; simulated, on five paths that lose 1 to 5 %, .6 to 1.7, with
/// jitter of a tenth of an RTT up to 3.5. With 4 one of 28 simulated paths that jitter and lose is used less, with 3
/// another by half; six flows at 180 Mbit/s and 8 packets lose 1.7 to 2.1 % in three runs with 3, 2.0 to 9.6 with 5,
/// but three at 500 Mbit/s with 3 % of loss use .41 of the path for .95.
const DEVIATIONS: f32 = 5.0;
/// Losses lie anywhere if they are less than so many deviations above the smallest RTT. Source: simulated, 20 packets
/// on 200 and 300 Mbit/s, 40 ms, that lose .3 and 2 % in bursts: .6 to .9 while a climber takes them for others', 1.3
/// to 1.9 at first; six flows that share 5 to 9 packets, 1.8 to 2.6. At 20 packets, 1 % in bursts of 5, .76 of the path
/// is used with 1.3, .85 with this, .90 with 1.5; flows that share 3 to 12 lose 2.75, 2.82, 3.03 %.
const ANYWHERE: f32 = 1.4;
/// No single interval's RTT counts as further from the mean than this part of the mean's height, nor as more losses
/// than this. Source: on this machine's TCP three flows at 201 Mbit/s and 10 packets lose .7 to .9 % in three runs with
/// 3, 1.8 to 3.4 % with 8, .9 to 7.5 % with all.
const OUTLIER: f32 = 0.5;
const LOSSES_MAX: f32 = 3.0;
/// Most pauses are no longer. Source: on this machine they make ranges of 4 to 5 ms, sometimes 11, on paths of 6 to 8
/// ms.
const PAUSE: Micros = Micros::new(7000);

/// Mean and spread of the RTTs that losses met, with a fading memory of intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MetQueue {
    mean_us: f32,
    /// Variance of a single loss's RTT, us^2.
    variance: f32,
    seen: u8,
}

impl MetQueue {
    /// Takes the mean RTT at the losses of an interval, on a path of this smallest RTT.
    pub(super) fn learn(&mut self, at_loss: Micros, lost_pkts: f64, rtt_min: Micros) {
        let height_us = self.mean_us - rtt_min.us() as f32;
        if height_us < 0.0 {
            // None yet, or of a path that was shorter.
            *self = Self::default();
        }
        self.seen = (self.seen + 1).min(MEMORY);
        let part = 1.0 / f32::from(self.seen);
        let mut off = at_loss.us() as f32 - self.mean_us;
        if self.seen > MIN_SEEN / 4 {
            // From an empty queue another is learnt as fast as from a short one.
            let most = OUTLIER * height_us.max(NO_QUEUE.us() as f32);
            off = off.clamp(-most, most);
        }
        self.mean_us += off * part;
        // The mean of so many losses varies less than each of them.
        let single = off * off * (1.0 - part) * (lost_pkts as f32).min(LOSSES_MAX);
        self.variance += (single - self.variance) * part;
    }

    /// Whether losses lie as a path's own do: as far apart as they are above the smallest RTT.
    pub(super) fn lies_anywhere(&self, rtt_min: Micros) -> bool {
        let height_us = self.mean_us - rtt_min.us() as f32;
        self.seen >= MIN_SEEN && height_us < ANYWHERE * self.variance.sqrt()
    }

    /// How far above the smallest RTT the losses lie, if all lie close together there, and at least so far.
    pub(super) fn height(&self, rtt_min: Micros, least: Micros) -> Option<Micros> {
        let height = Micros::new(self.mean_us as u64) - rtt_min;
        let is_hidden = height > least && height <= hidden_max(rtt_min);
        let is_one = || height.us() as f32 > DEVIATIONS * self.variance.sqrt();
        (self.seen >= MIN_SEEN && is_hidden && is_one()).then_some(height)
    }
}

/// The longest queue that a pause hides. The packets of a pause wait for half of it in the mean; an interval that is
/// longer has others, too, so that its mean rises less; a fast start's are the shortest. Source of that: on this
/// machine's TCP one of six flows at 110 Mbit/s, 24 ms and 18 packets, 2 ms, takes the path in three of eight runs with
/// intervals of an RTT, in none of ten with this; simulated, no difference but for one path of 45 that lose at random
/// (.95 to .88 of it used).
fn hidden_max(rtt_min: Micros) -> Micros {
    let interval = rtt_min * (1.0 / STARTUP_SLOTS_PER_RTT);
    PAUSE * (PAUSE / interval).min(1.0) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Micros = Micros::new(6_000);
    const LEAST: Micros = Micros::new(250);

    fn learnt(rtts_us: impl IntoIterator<Item = u64>) -> MetQueue {
        let mut met = MetQueue::default();
        for rtt_us in rtts_us {
            met.learn(Micros::new(rtt_us), 2.0, MIN);
        }
        met
    }

    fn after(rtts_us: impl IntoIterator<Item = u64>) -> Option<Micros> {
        learnt(rtts_us).height(MIN, LEAST)
    }

    #[test]
    fn losses_at_a_full_buffer_lie_close_together() {
        let full = (0..100).map(|n| 6_750 + 20 * (n % 6));
        let height = after(full.clone()).unwrap();
        assert!(
            (Micros::new(750)..Micros::new(850)).contains(&height),
            "{height}"
        );
        assert_eq!(after(full.take(15)), None);
    }

    #[test]
    fn a_paths_own_lie_anywhere() {
        assert_eq!(after((0..100).map(|n| 6_000 + 53 * (n * 7 % 31))), None);
        let at_an_empty_queue = (0..100).map(|n| 6_020 + n % 5);
        assert_eq!(after(at_an_empty_queue), None);
    }

    #[test]
    fn only_a_paths_own_lie_as_far_apart_as_they_are_high() {
        // Mostly low, now and then high.
        let own = |n: u64| 6_000 + [900, 20, 50, 80, 110][n as usize % 5];
        assert!(learnt((0..100).map(own)).lies_anywhere(MIN));
        assert!(
            !learnt((0..15).map(own)).lies_anywhere(MIN),
            "too few to tell yet"
        );
        let shared = |n: u64| 6_100 + 53 * (n * 7 % 17);
        assert!(!learnt((0..100).map(shared)).lies_anywhere(MIN));
        assert!(
            !learnt((0..100).map(|_| 6_000)).lies_anywhere(MIN),
            "a policer has no queue"
        );
    }

    #[test]
    fn a_pause_now_and_then_hides_nothing() {
        let paused = (0..200).map(|n| if n % 50 == 49 { 17_000 } else { 6_780 });
        assert!(after(paused).is_some());
    }

    #[test]
    fn a_longer_path_and_a_queue_after_none_are_learnt() {
        let mut met = MetQueue::default();
        for (rtt_min, rtt_us) in [(6_000, 6_020), (6_000, 6_800), (12_000, 12_900)] {
            let rtt_min = Micros::new(rtt_min);
            for _ in 0..200 {
                met.learn(Micros::new(rtt_us), 2.0, rtt_min);
            }
            let is_queue = rtt_us - rtt_min.us() > 100;
            assert_eq!(met.height(rtt_min, LEAST).is_some(), is_queue, "{rtt_us}");
        }
    }

    #[test]
    fn a_queue_that_no_pause_hides_is_left_to_the_range() {
        assert_eq!(after((0..100).map(|_| 12_000)), None);
        let (short, long) = (hidden_max(MIN), hidden_max(Micros::new(200_000)));
        assert!(short >= Micros::new(3_500) && long < Micros::new(500));
    }
}
