//! What flows tell of themselves while they run, to whoever looks.
//!
//! A flow's state belongs to the thread that answers its reports. It is shown without a lock on that path: whoever
//! looks begins a **round**, and every flow writes its numbers into the table here with its first report of a round.
//! So the agent pays for the looking, at most once per flow and round, and nothing while nobody looks. Flows that are
//! idle keep what they wrote in the last round in which they reported.
//!
//! The intervals of single flows are kept for those that somebody asked about lately, and for no others.

use crate::plan::{Decision, PhaseName, Reason};
use crate::record::Measured;
use crate::units::{Bytes, Micros, Rate};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Flows in the table, at most: as many as a datapath can have.
const FLOWS_MAX: usize = 65_535;
/// Flows whose intervals are kept, at most.
const HISTORIES_MAX: usize = 16;
/// Intervals of such a flow: a few seconds of a fast one.
const INTERVALS_MAX: usize = 128;
/// A flow that nobody asked about for so long is not kept any more.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A flow's numbers as of its last report in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowLive {
    /// State of its controller.
    pub phase: PhaseName,
    /// Why its last decision was taken.
    pub reason: Reason,
    /// Central rate after it.
    pub rate: Rate,
    /// Congestion window after it.
    pub cwnd: Bytes,
    /// Smoothed RTT.
    pub srtt: Micros,
    /// Smallest RTT that is remembered.
    pub rtt_min: Micros,
    /// Reports so far.
    pub reports: u64,
}

/// One report of a flow and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// When it was answered, s since the agent began.
    pub at_s: f64,
    /// What was measured.
    pub measured: Measured,
    /// What was decided.
    pub decision: Decision,
}

struct History {
    asked: Instant,
    intervals: VecDeque<Interval>,
}

/// The table of flows, and the kept intervals.
#[derive(Default)]
pub struct Live {
    round: AtomicU32,
    flows: Mutex<HashMap<u32, FlowLive>>,
    /// How many histories there are: what a report looks at.
    explained: AtomicU32,
    histories: Mutex<HashMap<u32, History>>,
}

impl Live {
    /// Begins a round: every flow writes its numbers with its next report.
    pub fn ask(&self) {
        self.round.fetch_add(1, Relaxed);
    }

    /// What flows have written, by socket id.
    pub fn flows(&self) -> HashMap<u32, FlowLive> {
        self.table().clone()
    }

    /// Number of flows that have written.
    pub fn len(&self) -> usize {
        self.table().len()
    }

    /// Whether no flow has written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u32, FlowLive>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn histories(&self) -> MutexGuard<'_, HashMap<u32, History>> {
        self.histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a flow has yet to write in this round; `mark` is the flow's.
    pub(crate) fn is_due(&self, mark: &mut u32) -> bool {
        let round = self.round.load(Relaxed);
        std::mem::replace(mark, round) != round
    }

    pub(crate) fn publish(&self, sock_id: u32, flow: FlowLive) {
        let mut table = self.table();
        if table.len() < FLOWS_MAX || table.contains_key(&sock_id) {
            table.insert(sock_id, flow);
        }
    }

    /// A flow is over, or no longer driven.
    pub(crate) fn forget(&self, sock_id: u32) {
        self.table().remove(&sock_id);
    }

    /// Whether any flow's intervals are kept.
    pub(crate) fn explains(&self) -> bool {
        self.explained.load(Relaxed) > 0
    }

    /// Keeps an interval, if somebody asked about the flow.
    pub(crate) fn note(&self, sock_id: u32, interval: impl FnOnce() -> Interval) {
        let mut histories = self.histories();
        let Some(history) = histories.get_mut(&sock_id) else {
            return;
        };
        if history.intervals.len() == INTERVALS_MAX {
            history.intervals.pop_front();
        }
        history.intervals.push_back(interval());
    }

    /// The kept intervals of a flow, oldest first. From now on they are kept, until a minute passes without a question;
    /// of too many flows, the one longest not asked about is dropped.
    pub fn explain(&self, sock_id: u32, now: Instant) -> Vec<Interval> {
        let mut histories = self.histories();
        if !histories.contains_key(&sock_id) && histories.len() >= HISTORIES_MAX {
            let oldest = histories
                .iter()
                .min_by_key(|(_, history)| history.asked)
                .map(|(sock_id, _)| *sock_id);
            oldest.map(|sock_id| histories.remove(&sock_id));
        }
        let history = histories.entry(sock_id).or_insert_with(|| History {
            asked: now,
            intervals: VecDeque::with_capacity(INTERVALS_MAX),
        });
        history.asked = now;
        let intervals = history.intervals.iter().cloned().collect();
        self.count(&histories);
        intervals
    }

    /// Drops what nobody asked about for a minute.
    pub fn expire(&self, now: Instant) {
        if self.explains() {
            let mut histories = self.histories();
            histories.retain(|_, history| now.duration_since(history.asked) < FORGET_AFTER);
            self.count(&histories);
        }
    }

    fn count(&self, histories: &HashMap<u32, History>) {
        self.explained.store(histories.len() as u32, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Estimator, SlotContext};
    use crate::params::Params;
    use crate::program::{REPORT_FIELDS, RawReport};

    fn flow(reports: u64) -> FlowLive {
        FlowLive {
            phase: PhaseName::Vivace,
            reason: Reason::Probe,
            rate: Rate::from_mbit(1.0),
            cwnd: Bytes::new(10_000),
            srtt: Micros::new(1),
            rtt_min: Micros::new(1),
            reports,
        }
    }

    fn interval(at_s: f64) -> Interval {
        let raw = RawReport::from_fields([0; REPORT_FIELDS.len()]);
        let mut est = Estimator::new(&Params::default());
        let context = SlotContext {
            asked: None,
            length: Micros::new(1),
            mss_bytes: 1448.0,
        };
        let mi = est.observe(&raw, context);
        Interval {
            at_s,
            measured: Measured::new(&raw, mi, &est),
            decision: Decision {
                phase: PhaseName::Vivace,
                reason: Reason::Probe,
                rate: Rate::from_mbit(1.0),
                cwnd: Bytes::new(1),
                command: None,
            },
        }
    }

    #[test]
    fn a_flow_writes_once_per_round() {
        let live = Live::default();
        let mut mark = 0;
        assert!(!live.is_due(&mut mark), "nobody has looked yet");
        live.ask();
        assert!(live.is_due(&mut mark) && !live.is_due(&mut mark));
        live.publish(7, flow(1));
        live.publish(7, flow(2));
        assert_eq!(live.flows(), HashMap::from([(7, flow(2))]));
        live.forget(7);
        assert!(live.is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let live = Live::default();
        for sock_id in 0..FLOWS_MAX as u32 + 10 {
            live.publish(sock_id, flow(0));
        }
        live.publish(3, flow(9));
        assert_eq!(live.len(), FLOWS_MAX);
        assert_eq!(live.flows()[&3].reports, 9);
    }

    #[test]
    fn intervals_are_kept_of_flows_that_were_asked_about() {
        let live = Live::default();
        let now = Instant::now();
        assert!(!live.explains());
        live.note(7, || unreachable!("nobody asked"));
        assert!(live.explain(7, now).is_empty() && live.explains());
        for number in 0..INTERVALS_MAX + 3 {
            live.note(7, || interval(number as f64));
        }
        live.note(8, || unreachable!("nobody asked about this one"));
        let kept = live.explain(7, now);
        assert_eq!(kept.len(), INTERVALS_MAX);
        assert_eq!(kept[0].at_s, 3.0);
        for sock_id in 100..100 + HISTORIES_MAX as u32 {
            live.explain(sock_id, now + Duration::from_secs(1));
        }
        assert!(live.explain(7, now).is_empty(), "dropped for newer ones");
        live.expire(now + Duration::from_secs(3600));
        assert!(!live.explains());
    }
}
