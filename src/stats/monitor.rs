//! Puts together what agent and datapath know, for everything that shows statistics.
//!
//! Somebody calls [`Monitor::tick`] about once a second. Each tick begins a round in which flows tell their numbers,
//! compares every flow with the tick before (goodput and loss are differences of counters), and adds one observation
//! per flow to its policy's histograms of rates, RTTs and losses: their counts are flow-seconds, which only grow, so
//! that a share of two of them is the share of flows during that time. Nothing here runs on the agent's own thread.

use super::flow::{Carried, FlowSample, FlowView, Lately, STATES, packets, state};
use super::policies::Assigned;
use super::value::Histogram;
use super::{Snapshot, Stats, View};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const RATE_BOUNDS_BYTES: &[f64] = &[1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8, 1e9];
const RTT_BOUNDS_S: &[f64] = &[
    0.001, 0.003, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 3.0,
];
const LOSS_BOUNDS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];

/// What a datapath counted that nobody wants to see grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatapathCounts {
    /// Times that a flow went from the agent to the fallback.
    pub fallbacks: u64,
    /// Those of them because the flow lost more than its policy allows.
    pub fallbacks_loss: u64,
    /// New flows whose offer a full ring lost; they are offered again.
    pub offers_dropped: u64,
    /// Ends of flows that a full ring lost; a scan finds them.
    pub closes_dropped: u64,
    /// Reports that a full ring lost, counted when their flow ends.
    pub reports_dropped: u64,
    /// Runs of the program given up, counted when their flow ends.
    pub program_errors: u64,
    /// Flows that found the table of flows full, and stay in the fallback.
    pub flows_without_slot: u64,
    /// ACKs that found their program gone.
    pub programs_missing: u64,
    /// Updates for flows that had ended or were no longer driven.
    pub updates_stale: u64,
    /// Records of the datapath that the agent did not understand.
    pub records_malformed: u64,
    /// Messages of the agent that the datapath refused.
    pub messages_rejected: u64,
}

/// A datapath that can be watched and told to stop driving. Asked from any thread but the agent's, about once a second.
pub trait DatapathView: Send + Sync {
    /// All live flows.
    fn flows(&self) -> Vec<FlowSample>;
    /// The counters since the datapath was loaded.
    fn counts(&self) -> DatapathCounts;
    /// Hands all flows to the fallback and takes no new ones, or takes them all back. `false` if it cannot.
    fn drain(&self, drain: bool) -> bool;
    /// Whether flows are kept in the fallback on purpose.
    fn is_draining(&self) -> bool;
    /// Time since the agent's own loop last gave a sign of life, if the datapath watches for it.
    fn agent_silence(&self) -> Option<Duration>;
}

struct Looked {
    at: Instant,
    samples: HashMap<u32, FlowSample>,
    lately: HashMap<u32, Lately>,
    /// What of each flow is accounted for. The datapath may have let go of a flow whose end the agent has yet to hear.
    accounted: HashMap<u32, Carried>,
    /// By the label's value: always those of the policies in force, and no others.
    policies: BTreeMap<Arc<str>, PolicyCounts>,
}

/// What the flows of one policy have carried since the agent began, and their seconds by rate, RTT and loss.
#[derive(Clone, Debug)]
pub(super) struct PolicyCounts {
    /// Live ones.
    pub(super) flows: u64,
    pub(super) bytes: u64,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) goodput: Histogram,
    pub(super) rtt: Histogram,
    pub(super) loss: Histogram,
}

impl Default for PolicyCounts {
    fn default() -> Self {
        Self {
            flows: 0,
            bytes: 0,
            delivered: 0,
            lost: 0,
            goodput: Histogram::new(RATE_BOUNDS_BYTES),
            rtt: Histogram::new(RTT_BOUNDS_S),
            loss: Histogram::new(LOSS_BOUNDS),
        }
    }
}

impl PolicyCounts {
    /// Adds what a flow has carried from one moment to another.
    fn add(&mut self, before: Carried, after: Carried) {
        self.bytes += after.bytes_acked.saturating_sub(before.bytes_acked);
        let delivered = packets(before.packets_delivered, after.packets_delivered);
        self.delivered += u64::from(delivered);
        self.lost += u64::from(packets(before.packets_lost, after.packets_lost));
    }
}

/// The whole of the statistics.
pub struct Monitor {
    stats: Arc<Stats>,
    datapath: Arc<dyn DatapathView>,
    began: Instant,
    looked: Mutex<Looked>,
}

impl Monitor {
    /// Watches an agent that began at `now`.
    #[must_use]
    pub fn new(stats: Arc<Stats>, datapath: Arc<dyn DatapathView>, now: Instant) -> Self {
        let labels = stats.policies.labels().into_iter();
        let policies = labels.map(|label| (label, PolicyCounts::default()));
        let policies = policies.collect();
        Self {
            stats,
            datapath,
            began: now,
            looked: Mutex::new(Looked {
                at: now,
                samples: HashMap::new(),
                lately: HashMap::new(),
                accounted: HashMap::new(),
                policies,
            }),
        }
    }

    /// What the agent itself counts and tells.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The datapath.
    #[must_use]
    pub fn datapath(&self) -> &dyn DatapathView {
        &*self.datapath
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time between the last two looks' ends, if the last one is `now`: how old the numbers are.
    #[must_use]
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.looked().at)
    }

    /// Looks at all flows; see the module's text.
    pub fn tick(&self, now: Instant) {
        let live = &self.stats.live;
        live.ask();
        live.expire(now);
        let samples: HashMap<_, _> = self
            .datapath
            .flows()
            .into_iter()
            .map(|sample| (sample.sock_id, sample))
            .collect();
        let mut looked = self.looked();
        let apart = now.saturating_duration_since(looked.at);
        let lately = samples.iter().filter_map(|(sock_id, sample)| {
            let before = looked.samples.get(sock_id)?;
            Some((*sock_id, Lately::between(before, sample, apart)?))
        });
        looked.lately = lately.collect();
        looked.samples = samples;
        looked.at = now;
        self.account(&mut looked, now);
        drop(looked);
        self.observe();
    }

    /// Adds to each policy what its flows have carried since the tick before. A flow that is met in the middle of its
    /// life, as after a restart of the agent, counts from then on.
    fn account(&self, looked: &mut Looked, now: Instant) {
        let stats = &self.stats.policies;
        let ((ended, assigned), labels) = (stats.take_ended(), stats.labels());
        let mut policies = std::mem::take(&mut looked.policies);
        let kept = |label: Arc<str>| {
            let counts = policies.remove(&label).unwrap_or_default();
            (label, PolicyCounts { flows: 0, ..counts })
        };
        let mut policies: BTreeMap<_, _> = labels.into_iter().map(kept).collect();
        let mut accounted = std::mem::take(&mut looked.accounted);
        let mut is_over = HashSet::new();
        for flow in ended {
            is_over.insert(flow.sock_id);
            let before = accounted.remove(&flow.sock_id).unwrap_or_default();
            if let Some(counts) = policies.get_mut(&flow.label) {
                counts.add(before, flow.carried);
            }
        }
        accounted.retain(|sock_id, _| {
            assigned.contains_key(sock_id) || looked.samples.contains_key(sock_id)
        });
        let uptime = now.saturating_duration_since(self.began);
        for (sock_id, sample) in &looked.samples {
            let label = assigned.get(sock_id).map(Assigned::label);
            let mut counts = label.and_then(|label| policies.get_mut(&label));
            if let Some(counts) = &mut counts {
                counts.flows += 1;
            }
            // Of a number that somebody else has already, the sample may be the old flow's.
            let Some(carried) = sample.carried.filter(|_| !is_over.contains(sock_id)) else {
                continue;
            };
            let before = accounted.insert(*sock_id, carried).unwrap_or_else(|| {
                let is_old = sample.age > uptime;
                if is_old { carried } else { Carried::default() }
            });
            if let Some(counts) = counts {
                counts.add(before, carried);
            }
        }
        looked.accounted = accounted;
        looked.policies = policies;
    }

    fn observe(&self) {
        let flows = self.flows();
        let mut looked = self.looked();
        for flow in &flows {
            let label = flow.assigned.as_ref().map(Assigned::label);
            let Some(counts) = label.and_then(|label| looked.policies.get_mut(&label)) else {
                continue;
            };
            if let Some(lately) = flow.lately {
                counts.goodput.observe(lately.goodput_bps / 8.0);
                if let Some(loss) = lately.loss {
                    counts.loss.observe(loss);
                }
            }
            if let Some(srtt) = flow.srtt() {
                counts.rtt.observe(srtt.as_secs_f64());
            }
        }
    }

    /// The flows as of the last tick, those of the longest life first.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        let live = self.stats.live.flows();
        let mut assigned = self.stats.policies.assigned();
        let looked = self.looked();
        let mut flows: Vec<_> = looked
            .samples
            .values()
            .map(|sample| FlowView {
                sample: *sample,
                live: live.get(&sample.sock_id).copied(),
                lately: looked.lately.get(&sample.sock_id).copied(),
                assigned: assigned.remove(&sample.sock_id),
            })
            .collect();
        flows.sort_by_key(|flow| (std::cmp::Reverse(flow.sample.age), flow.sample.sock_id));
        flows
    }

    /// All statistics but the single flows.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let assigned = self.stats.policies.assigned();
        let looked = self.looked();
        let states = looked.samples.iter();
        let states: Vec<_> = states
            .map(|(sock_id, sample)| state(sample, assigned.get(sock_id)))
            .collect();
        let in_state = |state| states.iter().filter(|one| **one == state).count();
        Snapshot::take(&View {
            agent: &self.stats.counters,
            datapath: self.datapath.counts(),
            by_state: STATES.map(|state| (state, in_state(state))),
            by_policy: &looked.policies,
            uptime: now.saturating_duration_since(self.began),
            draining: self.datapath.is_draining(),
        })
    }
}
