//! One result: what a scheme reached on a path.

use serde::Serialize;

use crate::iperf::Summary;
use crate::scenario::{PathSpec, Scheme};

/// What one run showed. The serialized field names are a public format.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The path's name.
    pub path: String,
    /// The congestion control's name.
    pub scheme: String,
    /// Flows that shared the path.
    pub flows: u32,
    /// Goodput of all flows together at the receiver, over the whole run, in Mbit/s.
    pub goodput_mbps: f64,
    /// Goodput over what the path can carry: rate × 1448/1500 × (1 - random loss).
    pub share: f64,
    /// Median of the sender's smoothed RTT samples, in ms.
    pub rtt_p50_ms: f64,
    /// 95th percentile of the sender's smoothed RTT samples, in ms.
    pub rtt_p95_ms: f64,
    /// Retransmitted segments, all flows together.
    pub retransmits: u64,
    /// Jain's fairness index of the flows' goodputs, 1/n..=1.
    pub jain: f64,
    /// Share of the flows' lifetime that the agent, not the fallback, drove them; `None` for
    /// kernel schemes.
    pub agent_driven: Option<f64>,
    /// Agent CPU time over the run's duration, 1.0 = one core; `None` for kernel schemes.
    pub agent_cpu: Option<f64>,
}

impl Row {
    /// The row of a run of `flows` flows whose iperf3 reports say `summary`; a kernel's, until
    /// `agent_driven` and `agent_cpu` are set.
    pub(crate) fn new(path: &PathSpec, scheme: &Scheme, flows: u32, summary: &Summary) -> Self {
        Self {
            path: path.name.clone(),
            scheme: scheme.name().to_owned(),
            flows,
            goodput_mbps: summary.goodput_mbps,
            share: summary.goodput_mbps / path.goodput_ceiling_mbps(),
            rtt_p50_ms: summary.rtt_p50_ms,
            rtt_p95_ms: summary.rtt_p95_ms,
            retransmits: summary.retransmits,
            jain: summary.jain(),
            agent_driven: None,
            agent_cpu: None,
        }
    }

    /// An agent's row is void when the agent drove its flows for less than 99 % of their time.
    pub fn is_void(&self) -> bool {
        self.agent_driven.is_some_and(|driven| driven < 0.99)
    }
}
