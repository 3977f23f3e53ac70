//! What the flows to one address know of their path together.
//!
//! A newcomer knows nothing of its path, and cannot: behind a queue that others keep full, the smallest RTT that it
//! meets has the queue in it already, and its fast start takes from them what it may not have. Flows of the same host
//! to the same address know better. This is the ensemble sharing of RFC 9040, for the beginning of a flow alone:
//!
//! ```text
//!   every flow tells with each report       its smallest RTT, the longest RTT of the interval, and what arrives
//!   one that starts, or starts again, asks, and hears of those whose RTTs are what it meets itself
//!       the smallest of their RTTs          so that it sees the queue, and its start ends as before a queue of its own
//!       what each would have with one more  no start ends below one and a half of that
//! ```
//!
//! Where a queue stands already when the first ACKs are in, there is nothing to find out: the start ends there, with a
//! share. So a crowd that comes one after the other fills the path once, and not once for each of its flows.
//!
//! One address need not be one path: there may be many hosts behind it, and several ways to it. So a flow hears nothing
//! of those whose RTTs differ from its own. Nor does it believe for long: a smallest RTT that is another path's is a
//! queue that no drain empties, which ends as any other ([`crate::handbrake::compete`]).
//!
//! After its start a flow decides alone again, since flows of other hosts would not share in such an agreement.
//!
//! Limits: two paths of the same RTT behind one address are taken for one; then a share may be far more than the slower
//! one carries, until its queue shows. Flows of which nothing was heard for a second are not counted.

use crate::controller::Controller;
use crate::program::RawReport;
use crate::units::{Micros, Rate};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was told counts for so long, and for so many RTTs.
const RECENT: Micros = Micros::new(1_000_000);
const RECENT_RTTS: f64 = 2.0;
/// RTTs are the same up to this part of the longest that was told, and this: what a queue grows from one report to the
/// next.
const SAME_PART: f64 = 0.1;
const SAME: Micros = Micros::new(1000);
/// Flows that tell, at most: each start looks at all of them.
const MEMBERS_MAX: usize = 1024;

/// What a flow that starts hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Smallest RTT of the path.
    pub rtt_min: Micros,
    /// What arrives of each flow, in the mean, if there were one more. Whole bytes per second, as a record has it.
    pub share: Rate,
}

/// As a record has it: smallest RTT, us, and share, bytes/s.
impl From<Known> for (u64, u32) {
    fn from(known: Known) -> Self {
        (known.rtt_min.us(), known.share.to_wire())
    }
}

impl From<(u64, u32)> for Known {
    fn from((rtt_min_us, share): (u64, u32)) -> Self {
        Self {
            rtt_min: Micros::new(rtt_min_us),
            share: Rate::from_bytes_per_sec(share.into()),
        }
    }
}

/// What a flow told last.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: Micros,
    rtt_min: Micros,
    rtt_max: Micros,
    /// `None` if that is no measure of a share.
    arrives: Option<Rate>,
}

impl Told {
    /// Whether a flow that meets this RTT now is on the same path, as far as that tells.
    fn is_met(&self, now: Micros, rtt: Micros) -> bool {
        let recent = now - self.at <= RECENT.max(rtt * RECENT_RTTS);
        recent && rtt >= self.rtt_min && rtt <= self.rtt_max * (1.0 + SAME_PART) + SAME
    }
}

/// Places of flows; those that left are taken again.
#[derive(Debug, Default)]
struct Places {
    told: Vec<Option<Told>>,
    free: Vec<usize>,
}

/// The flows from one address to another. Clones are the same ensemble.
#[derive(Clone, Debug, Default)]
pub struct Ensemble(Arc<Mutex<Places>>);

impl Ensemble {
    /// A place for one more flow.
    #[must_use]
    pub fn join(&self) -> Member {
        let mut places = self.places();
        let place = places.free.pop().or_else(|| {
            let next = places.told.len();
            (next < MEMBERS_MAX).then(|| {
                // Most addresses have one flow.
                if next == 0 {
                    places.told.reserve_exact(1);
                }
                places.told.push(None);
                next
            })
        });
        drop(places);
        Member {
            ensemble: self.clone(),
            place,
        }
    }

    /// Whether no flow has a place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let places = self.places();
        places.free.len() == places.told.len()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flow's place in its ensemble, which it leaves when this is dropped.
#[derive(Debug)]
pub struct Member {
    ensemble: Ensemble,
    /// `None` if there was no room: such a flow asks, and tells nothing.
    place: Option<usize>,
}

impl Member {
    /// Tells what a report showed: the RTTs, the smallest that the flow knows, and what arrives of the flow, if it counts.
    pub fn tell(&self, raw: &RawReport, rtt_min: Micros, arrives: Option<Rate>) {
        if let Some(place) = self.place.filter(|_| raw.n > 0) {
            self.ensemble.places().told[place] = Some(Told {
                at: Micros::new(raw.a1),
                rtt_min,
                rtt_max: Micros::new(raw.rmax),
                arrives,
            });
        }
    }

    /// Tells the flow's controller what others know, if it asks; before it sees the report. Returns that.
    pub fn inform(&self, controller: &mut Controller, raw: &RawReport) -> Option<Known> {
        if !controller.is_starting() {
            return None;
        }
        let known = self.ask(raw)?;
        controller.hear(known);
        Some(known)
    }

    /// What others know of the path on which this report was measured, if any of them is on it.
    #[must_use]
    pub fn ask(&self, raw: &RawReport) -> Option<Known> {
        if raw.n == 0 {
            return None;
        }
        let (now, rtt) = (Micros::new(raw.a1), Micros::new(raw.rmin));
        let places = self.ensemble.places();
        let others = places.told.iter().enumerate();
        let mut rtt_min = None;
        let (mut flows, mut arrives) = (1.0, 0.0);
        for (_, told) in others.filter(|(place, _)| Some(*place) != self.place) {
            let Some(told) = told.filter(|told| told.is_met(now, rtt)) else {
                continue;
            };
            rtt_min = Some(rtt_min.map_or(told.rtt_min, |least: Micros| least.min(told.rtt_min)));
            if let Some(one) = told.arrives {
                flows += 1.0;
                arrives += one.bytes_per_sec();
            }
        }
        let share = Rate::from_bytes_per_sec(arrives / flows);
        Some(Known::from((rtt_min?.us(), share.to_wire())))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut places = self.ensemble.places();
            places.told[place] = None;
            places.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::report;

    /// A flow that has met an RTT of `least_us`, meets this one now, and gets so much.
    fn tells(member: &Member, [least_us, rtt_us]: [u64; 2], arrives: f64) {
        let arrives = (arrives > 0.0).then(|| Rate::from_mbit(arrives));
        member.tell(&meets(rtt_us), Micros::new(least_us), arrives);
    }

    /// The report of a flow that meets this RTT.
    fn meets(rtt_us: u64) -> RawReport {
        report(33, 1_000_000, &[(0, rtt_us, 0); 10], 100_000)
    }

    #[test]
    fn a_newcomer_hears_the_smallest_rtt_and_its_share() {
        let ensemble = Ensemble::default();
        let [first, second, third, newcomer] = [(); 4].map(|()| ensemble.join());
        let asks = || newcomer.ask(&meets(60_000));
        tells(&newcomer, [20_000, 60_000], 50.0);
        assert_eq!(asks(), None, "of itself it learns nothing");
        let known = |rtt_min, share| Known {
            rtt_min: Micros::new(rtt_min),
            share: Rate::from_mbit(share),
        };
        tells(&first, [40_000, 60_000], 50.0);
        assert_eq!(asks(), Some(known(40_000, 25.0)));
        tells(&second, [50_000, 60_000], 40.0);
        assert_eq!(asks(), Some(known(40_000, 30.0)));
        tells(&third, [30_000, 60_000], 0.0);
        assert_eq!(asks(), Some(known(30_000, 30.0)), "its RTT alone counts");
        drop((first, second, third));
        assert_eq!(asks(), None, "they have left");
    }

    #[test]
    fn who_meets_other_rtts_is_on_another_path() {
        let ensemble = Ensemble::default();
        let [other, newcomer] = [(); 2].map(|()| ensemble.join());
        tells(&other, [40_000, 60_000], 10.0);
        let hears = |rtt| newcomer.ask(&meets(rtt)).is_some();
        assert!(hears(40_000) && hears(66_000));
        assert!(!hears(39_000) && !hears(90_000));
        let mut later = meets(60_000);
        later.a1 += RECENT.us();
        assert!(newcomer.ask(&later).is_some());
        later.a1 += 1;
        assert_eq!(newcomer.ask(&later), None, "too long ago");
    }

    #[test]
    fn places_are_bounded_and_taken_again() {
        let ensemble = Ensemble::default();
        let mut members: Vec<_> = (0..=MEMBERS_MAX).map(|_| ensemble.join()).collect();
        let late = members.pop().unwrap();
        tells(&members[0], [40_000; 2], 10.0);
        let met = meets(40_000);
        assert!(late.ask(&met).is_some(), "without a place one may ask");
        tells(&late, [20_000, 40_000], 10.0);
        assert_eq!(members[1].ask(&met).unwrap().rtt_min, Micros::new(40_000));
        members.truncate(1);
        members.push(ensemble.join());
        assert_eq!(ensemble.places().told.len(), MEMBERS_MAX);
        assert!(!ensemble.is_empty());
        drop(members);
        assert!(ensemble.is_empty(), "the one without a place is left");
        assert_eq!(late.ask(&met), None);
    }
}
