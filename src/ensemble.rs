//! What the flows to one address know of their path together.
//!
//! A newcomer knows nothing of its path, and cannot: behind a queue that others keep full, the smallest RTT that it
//! meets has the queue in it already, and its fast start takes from them what it may not have. Flows of the same host
//! to the same address know better. This is the ensemble sharing of RFC 9040, where a flow alone cannot find out:
//!
//! ```text
//!   every flow tells with each report       its smallest RTT, the longest RTTs of the last two intervals, what
//!                                           arrives, and what its first ACKs said the path carries
//!   one that starts, or starts again, asks, and hears of those whose RTTs are what it meets itself
//!       the smallest of their RTTs          so that it sees the queue, and its start ends as before a queue of its own
//!       what each would have with one more  no start ends below one and a half of that
//!       how many take what they can get     so that it divides what its first ACKs say the path carries
//!       what one of them knows it to carry  so that it divides that, if its own first ACKs say nothing
//!   one that sees a queue that no action empties asks, too
//!       whether they have all of the path   then the queue is theirs, and there is nobody to compete with
//!   and one that is about to take the path for its own, since it loses at the same rate again and again
//!       whether any take what they can get  then it is not
//! ```
//!
//! Where a queue stands already when the first ACKs are in, there is nothing to find out: the start ends there, with a
//! share. So a crowd that comes one after the other fills the path once, and not once for each of its flows.
//!
//! One address need not be one path: there may be many hosts behind it, and several ways to it. So a flow hears nothing
//! of those whose RTTs differ from its own; what a queue does between two reports, and one that a smallest RTT has in
//! it, makes no difference. Nor does it believe for long: a smallest RTT that is another path's is a queue that no drain
//! empties, which ends as any other ([`crate::handbrake::compete`]).
//!
//! In all else a flow decides alone, since flows of other hosts would not share in an agreement.
//!
//! Limits: two paths of the same RTT behind one address are taken for one; then a share may be far more than the slower
//! one carries, until its queue shows. Flows of which nothing was heard for a second are not counted.

use crate::controller::Controller;
use crate::estimate::Mi;
use crate::plan::Decision;
use crate::program::RawReport;
use crate::units::{Micros, Rate};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was told counts for so long, and for so many RTTs.
const RECENT: Micros = Micros::new(1_000_000);
const RECENT_RTTS: f64 = 2.0;
/// Who has told nothing for so many RTTs sends nothing now: intervals that tell last one. Source: simulated, 16 paths to
/// one address on which downloads follow each other: the slowest takes .90 of its time before, 1.47 where all that are
/// recent count, .97 with 2; 40 crowds lose 2.38, 2.34 and 2.34 %.
const ACTIVE_RTTS: f64 = 1.5;
/// RTTs are the same up to this part of them, and this: what a queue grows from one report to the next.
const SAME_PART: f64 = 0.1;
const SAME: Micros = Micros::new(1000);
/// This part of what the path carries is all of it: whoever else is on it, the queue is theirs. Source: simulated, two
/// seeds, Jain's index of 31 random crowds of 30 flows and more: .795 if nobody knows, .859 with .85, .880 with this,
/// .889 with .65; the same share of 74 paths beside Cubic and BBR, but one Cubic beside ten flows, whose share is .09,
/// has .23 on a bandwidth-delay product, and .28 with .65.
const ALL: f64 = 0.75;
/// Flows that tell, at most: who asks looks at all of them.
const MEMBERS_MAX: usize = 1024;

/// What a flow hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Smallest RTT of the path.
    pub rtt_min: Micros,
    /// What arrives of each flow, in the mean, if there were one more. Whole bytes per second, as a record has it.
    pub share: Rate,
    /// What the path carries arrives of these flows and the one that hears it, or most of that.
    pub is_all: bool,
    /// How many of them take what they can get now.
    pub active: u32,
    /// What the path carries, if one of them or the one that hears it knows. Whole bytes per second.
    pub carries: Option<Rate>,
}

/// As a record has it: smallest RTT, us, share, bytes/s, and whether they have all; how many are active; and what the
/// path carries, bytes/s.
pub type Heard = ((u64, u32, bool), u32, Option<u32>);

impl From<Known> for Heard {
    fn from(known: Known) -> Self {
        let path = (known.rtt_min.us(), known.share.to_wire(), known.is_all);
        let carries = known.carries.map(Rate::to_wire);
        (path, known.active, carries)
    }
}

impl From<Heard> for Known {
    fn from(((rtt_min_us, share, is_all), active, carries): Heard) -> Self {
        let rate = |bytes: u32| Rate::from_bytes_per_sec(bytes.into());
        Self {
            rtt_min: Micros::new(rtt_min_us),
            share: rate(share),
            is_all,
            active,
            carries: carries.map(rate),
        }
    }
}

/// What a flow tells of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// The smallest RTT that it knows.
    pub rtt_min: Micros,
    /// What arrives of it.
    pub arrives: Rate,
    /// Whether that is a measure of what each may have.
    pub is_share: bool,
    /// What the path carries, if it knows.
    pub carries: Option<Rate>,
}

/// The same, with when that was, and up to which RTT it is of the same path as others: the longest of its last two
/// reports, since a queue that is going is reported by some of those who met it when others have reported less. Small,
/// and in whole numbers, because who asks looks at all of them.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Micros,
    rtt_min_us: u32,
    /// Longest RTT of the last report.
    rtt_max_us: u32,
    /// RTTs up to here are met on the same path.
    reach_us: u32,
    /// Bytes per second, as are those that the path carries; 0 if it is not known.
    arrives: u32,
    carries: u32,
    is_share: bool,
}

/// Who asks, and what that makes of entries: reckoned once, since there may be a thousand of them.
struct Asker {
    now: Micros,
    rtt_us: u32,
    /// Smallest RTTs up to here are of the same path.
    reach_us: u32,
    /// What was told so long ago counts, and is of one that is active.
    recent: Micros,
    active: Micros,
}

impl Asker {
    fn new(now: Micros, rtt: Micros) -> Self {
        Self {
            now,
            rtt_us: rtt.to_wire(),
            reach_us: nearly(rtt).to_wire(),
            recent: RECENT.max(rtt * RECENT_RTTS),
            active: rtt * ACTIVE_RTTS,
        }
    }

    /// Whether the flow that told this is on the same path, as far as that tells.
    fn meets(&self, entry: &Entry) -> bool {
        let recent = self.now - entry.at <= self.recent;
        recent && entry.rtt_min_us <= self.reach_us && self.rtt_us <= entry.reach_us
    }
}

/// The longest RTT that is the same as this one.
fn nearly(rtt: Micros) -> Micros {
    rtt * (1.0 + SAME_PART) + SAME
}

/// Places of flows; those that left are taken again.
#[derive(Debug, Default)]
struct Places {
    entries: Vec<Option<Entry>>,
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
            let next = places.entries.len();
            (next < MEMBERS_MAX).then(|| {
                // Most addresses have one flow.
                if next == 0 {
                    places.entries.reserve_exact(1);
                }
                places.entries.push(None);
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
        places.free.len() == places.entries.len()
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
    /// Has the flow's controller answer a report: first it hears what others know, if it asks, and then they hear what
    /// the report showed. Also returns what it heard, and what the report was taken to mean.
    pub fn answer(
        &self,
        controller: &mut Controller,
        raw: &RawReport,
    ) -> (Option<Known>, Mi, Decision) {
        let known = if controller.asks() {
            self.ask(raw)
        } else {
            None
        };
        controller.hear(known);
        let (mi, decision) = controller.on_report_measured(raw);
        self.tell(raw, controller.tells(&mi));
        (known, mi, decision)
    }

    /// Tells what this report showed.
    fn tell(&self, raw: &RawReport, told: Told) {
        if let Some(place) = self.place.filter(|_| raw.n > 0) {
            let entry = &mut self.ensemble.places().entries[place];
            let before = entry.map_or(0, |entry| entry.rtt_max_us);
            let last = Micros::new(raw.rmax).to_wire();
            *entry = Some(Entry {
                at: Micros::new(raw.a1),
                rtt_min_us: told.rtt_min.to_wire(),
                rtt_max_us: last,
                reach_us: nearly(Micros::new(last.max(before).into())).to_wire(),
                arrives: told.arrives.to_wire(),
                carries: told.carries.map_or(0, Rate::to_wire),
                is_share: told.is_share,
            });
        }
    }

    /// What others know of the path on which this report was measured, if any of them is on it.
    fn ask(&self, raw: &RawReport) -> Option<Known> {
        if raw.n == 0 {
            return None;
        }
        let asker = Asker::new(Micros::new(raw.a1), Micros::new(raw.rmin));
        let places = self.ensemble.places();
        let (mut all, mut shares) = (Sum::default(), Sum::default());
        let (mut rtt_min_us, mut active) = (u32::MAX, 0);
        for (place, entry) in places.entries.iter().enumerate() {
            let met = entry.as_ref().filter(|entry| asker.meets(entry));
            let Some(entry) = met.filter(|_| Some(place) != self.place) else {
                continue;
            };
            rtt_min_us = rtt_min_us.min(entry.rtt_min_us);
            all.add(entry);
            if entry.is_share {
                shares.add(entry);
                active += u32::from(asker.now - entry.at <= asker.active);
            }
        }
        if all.flows == 0 {
            return None;
        }
        if let Some(own) = self.place.and_then(|place| places.entries[place]) {
            all.add(&own);
        }
        let share = shares.arrives as f64 / (shares.flows + 1) as f64;
        let carries = (all.carries > 0).then_some(all.carries);
        let most = carries.map(|carries| f64::from(carries) * ALL);
        let is_all = most.is_some_and(|most| all.arrives as f64 >= most);
        let share = Rate::from_bytes_per_sec(share).to_wire();
        let path = (rtt_min_us.into(), share, is_all);
        Some(Known::from((path, active, carries)))
    }
}

/// Flows, what arrives of them, and the most that one of them knows the path to carry, bytes/s.
#[derive(Default)]
struct Sum {
    flows: u64,
    arrives: u64,
    carries: u32,
}

impl Sum {
    fn add(&mut self, entry: &Entry) {
        self.flows += 1;
        self.arrives += u64::from(entry.arrives);
        self.carries = self.carries.max(entry.carries);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut places = self.ensemble.places();
            places.entries[place] = None;
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
        let told = Told {
            rtt_min: Micros::new(least_us),
            arrives: Rate::from_mbit(arrives),
            is_share: true,
            carries: None,
        };
        member.tell(&meets(rtt_us), told);
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
        let known = |rtt_min, share, active| Known {
            rtt_min: Micros::new(rtt_min),
            share: Rate::from_mbit(share),
            is_all: false,
            active,
            carries: None,
        };
        tells(&first, [40_000, 60_000], 50.0);
        assert_eq!(asks(), Some(known(40_000, 25.0, 1)));
        tells(&second, [50_000, 60_000], 40.0);
        assert_eq!(asks(), Some(known(40_000, 30.0, 2)));
        let limited = Told {
            rtt_min: Micros::new(30_000),
            arrives: Rate::from_mbit(1.0),
            is_share: false,
            carries: None,
        };
        third.tell(&meets(60_000), limited);
        assert_eq!(asks(), Some(known(30_000, 30.0, 2)), "its RTT alone counts");
        let mut later = meets(60_000);
        later.a1 += 90_000;
        assert_eq!(newcomer.ask(&later), Some(known(30_000, 30.0, 2)));
        later.a1 += 1;
        let silent = Some(known(30_000, 30.0, 0));
        assert_eq!(newcomer.ask(&later), silent, "they send nothing now");
        drop((first, second, third));
        assert_eq!(asks(), None, "they have left");
    }

    #[test]
    fn all_of_the_path_is_theirs_if_its_rate_is_known() {
        let ensemble = Ensemble::default();
        let [first, second] = [(); 2].map(|()| ensemble.join());
        let is_all = |arrives: [f64; 2], carries: Option<f64>| {
            let told = |arrives, carries: Option<f64>| Told {
                rtt_min: Micros::new(40_000),
                arrives: Rate::from_mbit(arrives),
                is_share: false,
                carries: carries.map(Rate::from_mbit),
            };
            let met = meets(60_000);
            first.tell(&met, told(arrives[0], carries));
            second.tell(&met, told(arrives[1], None));
            [&first, &second].map(|member| member.ask(&met).unwrap().is_all)
        };
        assert_eq!(is_all([30.0, 8.0], Some(50.0)), [true; 2]);
        assert_eq!(is_all([30.0, 7.0], Some(50.0)), [false; 2], "somebody else");
        assert_eq!(is_all([30.0, 8.0], None), [false; 2], "who knows");
        let met = meets(60_000);
        assert_eq!(second.ask(&met).unwrap().carries, None);
        is_all([30.0, 8.0], Some(50.0));
        let carries = [&first, &second].map(|member| member.ask(&met).unwrap().carries);
        assert_eq!(carries, [Some(Rate::from_mbit(50.0)); 2]);
    }

    #[test]
    fn who_meets_other_rtts_is_on_another_path() {
        let ensemble = Ensemble::default();
        let [other, newcomer] = [(); 2].map(|()| ensemble.join());
        tells(&other, [40_000, 60_000], 10.0);
        let hears = |rtt| newcomer.ask(&meets(rtt)).is_some();
        assert!(hears(40_000) && hears(66_000));
        assert!(hears(36_000), "others' smallest RTT may have a queue in it");
        assert!(!hears(35_000) && !hears(90_000));
        tells(&other, [40_000, 50_000], 10.0);
        assert!(hears(66_000), "the queue is going");
        tells(&other, [40_000, 50_000], 10.0);
        assert!(!hears(66_000) && hears(55_000), "it has gone");
        let mut later = meets(50_000);
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
        assert_eq!(ensemble.places().entries.len(), MEMBERS_MAX);
        assert!(!ensemble.is_empty());
        drop(members);
        assert!(ensemble.is_empty(), "the one without a place is left");
        assert_eq!(late.ask(&met), None);
    }
}
