//! Puts together what agent and datapath know, for everything that shows statistics.
//!
//! Somebody calls [`Monitor::tick`] about once a second. Each tick begins a round in which flows tell their numbers,
//! compares every flow with the tick before (goodput and loss are differences of counters), and adds one observation per
//! flow to the histograms of rates, RTTs and losses: their counts are flow-seconds, which only grow, so that a share of
//! two of them is the share of flows during that time. Nothing here runs on the agent's own thread.

use super::flow::{FlowSample, FlowView, Lately};
use super::value::Histogram;
use super::{Snapshot, Stats, View};
use std::collections::HashMap;
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
    /// New flows whose offer a full ring lost; they are offered again.
    pub offers_dropped: u64,
    /// Ends of flows that a full ring lost; a scan finds them.
    pub closes_dropped: u64,
    /// Reports that a full ring lost, counted when their flow ends.
    pub reports_dropped: u64,
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
    flows: FlowHistograms,
}

/// Flow-seconds by rate, RTT and loss.
#[derive(Clone, Debug)]
pub(super) struct FlowHistograms {
    pub(super) goodput: Histogram,
    pub(super) rtt: Histogram,
    pub(super) loss: Histogram,
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
        Self {
            stats,
            datapath,
            began: now,
            looked: Mutex::new(Looked {
                at: now,
                samples: HashMap::new(),
                lately: HashMap::new(),
                flows: FlowHistograms {
                    goodput: Histogram::new(RATE_BOUNDS_BYTES),
                    rtt: Histogram::new(RTT_BOUNDS_S),
                    loss: Histogram::new(LOSS_BOUNDS),
                },
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
        drop(looked);
        self.observe();
    }

    fn observe(&self) {
        let flows = self.flows();
        let mut looked = self.looked();
        for flow in &flows {
            let histograms = &mut looked.flows;
            if let Some(lately) = flow.lately {
                histograms.goodput.observe(lately.goodput_bps / 8.0);
                if let Some(loss) = lately.loss {
                    histograms.loss.observe(loss);
                }
            }
            if let Some(srtt) = flow.srtt() {
                histograms.rtt.observe(srtt.as_secs_f64());
            }
        }
    }

    /// The flows as of the last tick, those of the longest life first.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        let live = self.stats.live.flows();
        let looked = self.looked();
        let mut flows: Vec<_> = looked
            .samples
            .values()
            .map(|sample| FlowView {
                sample: *sample,
                live: live.get(&sample.sock_id).copied(),
                lately: looked.lately.get(&sample.sock_id).copied(),
            })
            .collect();
        flows.sort_by_key(|flow| (std::cmp::Reverse(flow.sample.age), flow.sample.sock_id));
        flows
    }

    /// All statistics but the single flows.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let looked = self.looked();
        let driven = looked.samples.values().filter(|flow| flow.is_driven);
        Snapshot::take(&View {
            agent: &self.stats.counters,
            datapath: self.datapath.counts(),
            flows_driven: driven.count(),
            flows_live: looked.samples.len(),
            flows: &looked.flows,
            uptime: now.saturating_duration_since(self.began),
            draining: self.datapath.is_draining(),
        })
    }
}
