//! A queue that empties every ten seconds: BBR's.
//!
//! BBR (version 1) looks for the path's RTT when it has not seen a smaller one for ten seconds: for 200 ms and an RTT
//! all of its flows have four packets in flight, and then at once what they had before. Whoever shares the queue sees
//! it go, and come back as suddenly:
//!
//! ```text
//!   queue  ~~~~~~~~\     /~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\     /~~~~~~~~~
//!                   \___/                                        \___/
//!                  0.2 s  <------- 10 s and what a probe takes ------>
//! ```
//!
//! Cubic's queue falls after a loss, too, but comes back over seconds; that of a crowd of our own swells before all
//! yield to it, and goes little by little. So a dip is a queue that was steady, goes within an interval, stays away for
//! about as long as such a probe, and is back within a few intervals. Dips that follow each other at this distance, or
//! twice it where one was missed, with none between them, show BBR: two if the queue was quite steady before both of
//! them, three or four else. BBR keeps the queue between its probes: one that is low there, later than it takes to come
//! back, is another's, and forgets what the dips told. What was begun because of them goes on to its end (simulated, 99
//! runs beside BBR: own share within .40 and .57 in .616 of them, .586 if that ends at once).
//!
//! Limits: nothing is seen in a buffer that BBR leaves empty between its probes, as one of a quarter of a
//! bandwidth-delay product, where RTTs jitter by as much as the queue, or where a probe is too short for the queue to
//! go, as in buffers of several such products.

use super::View;
use crate::units::Micros;

/// BBR probes when its smallest RTT is so old, for so long and some RTTs more, in which what is in flight arrives, and
/// in which it sees an RTT. Source: Linux `bbr_min_rtt_win_sec`, `bbr_probe_rtt_mode_ms`; simulated, dips begin 10.03 s
/// to 10.2 s + 3 RTTs apart, and measured, on Linux 6.18 and a path of 40 ms, 10.26 to 10.36 s.
const EVERY: Micros = Micros::new(10_000_000);
pub(crate) const PROBE: Micros = Micros::new(200_000);
const APART_RTTS: f64 = 3.0;
const APART_LATE: Micros = Micros::new(100_000);
/// A dip leaves less than this part of the queue, and it is over when this part of it stands again.
pub(crate) const EMPTY: f64 = 0.2;
const BACK: f32 = 0.25;
/// It lasts half a probe at least, since it begins when the queue is gone and may end with the next interval; a probe,
/// so many RTTs and so much more at most.
const SHORTEST: Micros = Micros::new(100_000);
const LONGEST_RTTS: f64 = 4.0;
const LONGEST_LATE: Micros = Micros::new(300_000);
/// The queue is back so many RTTs after less than this part of it stood. Source: simulated beside 1 and 4 flows of BBR,
/// own shares on .5 and 1 bandwidth-delay product with 1.8, 2.5 and 3.5: .21, .43, .49; measured beside one, Linux
/// 6.18: .9 to 4.6.
const RISE_RTTS: f64 = 5.0;
const GONE: f32 = 0.1;
/// A queue is steady if, of the last `INTERVALS` intervals, all but the newest differ by no more than a factor of
/// `STEADY` (`QUITE_STEADY` for quite steady). The newest may already be falling, down to `BEGUN` of the shortest.
/// Source: simulated. Beside BBR the factor is 1.05 to 1.3, and 1.4 to 2 where the queue of a crowd goes.
const INTERVALS: usize = 5;
const BEGUN: f32 = 0.3;
const STEADY: f32 = 1.6;
const QUITE_STEADY: f32 = 1.25;
/// What a dip tells if the queue was steady and quite steady before it, and what is enough. Source: simulated. Of 539
/// paths that flows of our own share, BBR is seen on 2, of 40 beside Cubic on none; with 3 on 6 and 1, with 3 and one
/// factor of 1.33 on 16.
const TELLS: u8 = 1;
const TELLS_MORE: u8 = 2;
const ENOUGH: u8 = 4;
/// Later after a dip than one takes, less than this part of its queue, in so many intervals, contradicts what the dips
/// told. Source: simulated, 100 flows at 160 Mbit/s whose queue swings and dips by chance: one took itself for a
/// neighbour of BBR, and a third of the path (Jain's index .08 for .97).
const LOW: f32 = 0.3;
const LOW_INTERVALS: u8 = 3;
const LOW_LATE: Micros = Micros::new(1_000_000);
const LOW_RTTS: f64 = 5.0;
/// With fewer RTT samples all of an interval's may be of ACKs that were held back; the smaller of its queue and the
/// last one's counts.
const SAMPLES: f64 = 4.0;
/// A queue of less than this part of the smallest RTT, or less than this, dips by chance.
const QUEUE_MIN_RTTS: f64 = 0.05;
const QUEUE_MIN: Micros = Micros::new(500);
/// Without an interval for so many RTTs it is not known what the queue did.
const SILENT_RTTS: f64 = 6.0;

/// A queue that is gone.
#[derive(Clone, Copy, Debug)]
struct Dip {
    since: Micros,
    /// When it was last as good as empty.
    empty: Micros,
    /// What it was before, us, and what the dip tells if it is one.
    before: f32,
    tells: u8,
}

/// What is known of dips.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dips {
    /// The queue of the last intervals, us, the newest first, and how many are known.
    queue: [f32; INTERVALS],
    known: u8,
    /// The last interval's own.
    interval: f32,
    /// What the dips so far tell.
    told: u8,
    /// When the last interval was.
    seen: Micros,
    now: Option<Dip>,
    /// Begin of the last dip, zero for none; the queue before it, us, and how often it was low since, though no dip.
    last: Micros,
    stood: f32,
    low: u8,
    /// Until when the next one is expected; zero if these are not BBR's.
    until: Micros,
}

impl Dips {
    /// Until when BBR is known to share the path, if it is.
    pub(super) fn bbr_until(&self, now: Micros) -> Option<Micros> {
        (now < self.until).then_some(self.until)
    }

    /// What the queue does now is our own doing.
    pub(super) fn interrupt(&mut self) {
        self.known = 0;
        self.now = None;
    }

    /// Sees an interval outside startup and drain.
    pub(super) fn note(&mut self, view: &View<'_>) {
        if view.mi.rtt.is_none() {
            return;
        }
        let standing = us(view.standing_queue());
        let before = std::mem::replace(&mut self.interval, standing);
        let queue = if view.mi.samples < SAMPLES {
            standing.min(before)
        } else {
            standing
        };
        let least = (view.est.rtt_min() * QUEUE_MIN_RTTS).max(QUEUE_MIN);
        self.see(queue, us(least), view.est.now(), view.est.srtt());
    }

    /// Sees that so much of a queue stands, us, of which less than `least` dips by chance.
    fn see(&mut self, standing: f32, least: f32, now: Micros, srtt: Micros) {
        let since = now - std::mem::replace(&mut self.seen, now);
        if since > srtt * SILENT_RTTS {
            self.interrupt();
        }
        if let Some(dip) = self.now {
            self.go_on(dip, standing, now, srtt);
            return;
        }
        if let Some((before, tells)) = self.steady()
            && before > least
            && standing < before * EMPTY as f32
        {
            self.now = Some(Dip {
                since: now,
                empty: now,
                before,
                tells,
            });
            return;
        }
        self.contradict(standing, now, srtt);
        self.queue.rotate_right(1);
        self.queue[0] = standing;
        self.known = (self.known + 1).min(INTERVALS as u8);
    }

    /// The queue, if it was steady, and what a dip tells now.
    fn steady(&self) -> Option<(f32, u8)> {
        let [newest, others @ ..] = &self.queue;
        let shortest = others.iter().copied().fold(f32::MAX, f32::min);
        let longest = others.iter().copied().fold(0.0, f32::max);
        let is_known = usize::from(self.known) == INTERVALS;
        let holds = (shortest * BEGUN..=longest * STEADY).contains(newest);
        let tells = if longest <= shortest * QUITE_STEADY {
            TELLS_MORE
        } else {
            TELLS
        };
        let is_steady = is_known && holds && longest <= shortest * STEADY;
        is_steady.then_some(((shortest + longest) / 2.0, tells))
    }

    fn go_on(&mut self, mut dip: Dip, standing: f32, now: Micros, srtt: Micros) {
        if standing < dip.before * GONE {
            dip.empty = now;
        }
        let lasted = now - dip.since;
        let is_back = standing >= dip.before * BACK;
        if is_back && lasted >= SHORTEST && now - dip.empty <= srtt * RISE_RTTS {
            self.dipped(dip, srtt);
        }
        if is_back || lasted > PROBE + srtt * LONGEST_RTTS + LONGEST_LATE {
            self.interrupt();
        } else {
            self.now = Some(dip);
        }
    }

    /// BBR's queue stands between its probes: one that is low there is another's.
    fn contradict(&mut self, standing: f32, now: Micros, srtt: Micros) {
        if now - self.last > LOW_LATE + srtt * LOW_RTTS && standing < self.stood * LOW {
            self.low = self.low.saturating_add(1);
            if self.low >= LOW_INTERVALS {
                self.told = 0;
            }
        }
    }

    fn dipped(&mut self, dip: Dip, srtt: Micros) {
        let before = std::mem::replace(&mut self.last, dip.since);
        (self.stood, self.low) = (dip.before, 0);
        let latest = EVERY + PROBE + APART_LATE + srtt * APART_RTTS;
        let apart = dip.since - before;
        let follows = |times: f64| (EVERY * times..=latest * times).contains(&apart);
        let told = if follows(1.0) || follows(2.0) {
            self.told
        } else {
            0
        };
        self.told = told.saturating_add(dip.tells);
        self.until = if self.told >= ENOUGH {
            dip.since + latest * 2.0 + LONGEST_LATE
        } else {
            Micros::ZERO
        };
    }
}

/// Precise enough for a queue.
fn us(time: Micros) -> f32 {
    time.us() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_MS: u64 = 50;

    /// Sees intervals of 50 ms for a minute, with a queue of so many ms at each time, in ms.
    fn sees_bbr(queue: impl Fn(u64) -> f64) -> Option<u64> {
        let mut dips = Dips::default();
        (0..60_000).step_by(RTT_MS as usize).find(|at| {
            let now = Micros::from_millis(1000 + at);
            let standing = queue(*at) * 1000.0;
            dips.see(standing as f32, 2000.0, now, Micros::from_millis(RTT_MS));
            dips.bbr_until(now).is_some()
        })
    }

    /// A queue of 20 ms that is gone for `gone` ms, every `every` ms, and swings by this part of it.
    fn dipping(every: u64, gone: u64, swing: f64) -> impl Fn(u64) -> f64 {
        move |at| {
            let wave = (at / RTT_MS % 4) as f64 / 3.0;
            if at > every / 2 && at % every < gone {
                0.2
            } else {
                20.0 * (1.0 + swing * wave)
            }
        }
    }

    #[test]
    fn a_steady_queue_that_empties_twice_is_bbrs() {
        let seen = sees_bbr(dipping(10_300, 250, 0.05));
        assert!(
            seen.is_some_and(|at| (20_600..21_500).contains(&at)),
            "{seen:?}"
        );
    }

    #[test]
    fn one_that_swings_must_empty_four_times() {
        let seen = sees_bbr(dipping(10_300, 250, 0.5));
        assert!(
            seen.is_some_and(|at| (41_200..42_100).contains(&at)),
            "{seen:?}"
        );
    }

    #[test]
    fn other_distances_and_lengths_are_others() {
        for (every, gone) in [
            (8000, 250),
            (11_500, 250),
            (5150, 250),
            (10_300, 1200),
            (10_300, 50),
        ] {
            assert_eq!(sees_bbr(dipping(every, gone, 0.05)), None, "{every} {gone}");
        }
    }

    #[test]
    fn a_queue_that_is_low_between_its_dips_is_anothers() {
        let dips = dipping(10_300, 250, 0.05);
        // It swings for half a second, in the middle.
        let swings = |at: u64| {
            if (5_000..5_500).contains(&(at % 10_300)) {
                5.0
            } else {
                dips(at)
            }
        };
        assert_eq!(sees_bbr(swings), None);
        let once = |at: u64| if at == 15_000 { 5.0 } else { dips(at) };
        assert!(sees_bbr(once).is_some(), "a single interval");
    }

    /// After a loss Cubic's queue comes back by the cube of time.
    #[test]
    fn a_queue_that_comes_back_slowly_is_cubics() {
        let cubic = |at: u64| {
            let part = (at % 10_300) as f64 / 9000.0;
            20.0 + 19.0 * (part - 1.0).powi(3).min(0.0)
        };
        assert_eq!(sees_bbr(cubic), None);
    }

    /// All of a crowd yield when the queue is long, and it goes over some RTTs.
    #[test]
    fn a_queue_that_swells_and_goes_is_a_crowds() {
        let crowd = |at: u64| {
            let into = (at % 10_300) as f64 / 50.0;
            if into < 12.0 {
                (20.0 - 3.0 * into).max(0.0)
            } else {
                (into - 12.0).min(10.0)
                    + if into > 198.0 {
                        (into - 198.0) * 2.5
                    } else {
                        0.0
                    }
            }
        };
        assert_eq!(sees_bbr(crowd), None);
    }

    #[test]
    fn bbr_that_is_gone_is_not_expected_for_long() {
        let mut dips = Dips::default();
        let queue = dipping(10_300, 250, 0.05);
        let until = (0..60_000).step_by(RTT_MS as usize).filter(|at| {
            let now = Micros::from_millis(1000 + at);
            let standing = if *at < 31_500 { queue(*at) } else { 20.0 };
            dips.see(
                standing as f32 * 1000.0,
                2000.0,
                now,
                Micros::from_millis(RTT_MS),
            );
            dips.bbr_until(now).is_some()
        });
        let last = until.last();
        assert!(
            last.is_some_and(|at| (50_000..54_000).contains(&at)),
            "{last:?}"
        );
    }
}
