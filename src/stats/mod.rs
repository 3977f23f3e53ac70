//! Statistics, each declared once: name, kind, unit, help, and where its value comes from.
//!
//! [`SPECS`] are the statistics of the agent as a whole, [`FLOW_FIELDS`] what is told of one flow. The control socket's
//! JSON, `pk3c-ccp status` and `top`, and the Prometheus endpoint all derive from these two tables.

mod counters;
mod exposition;
mod flow;
mod live;
mod monitor;
mod policies;
mod value;

pub use counters::Counters;
pub use exposition::exposition;
pub use flow::{Carried, FLOW_FIELDS, FlowField, FlowSample, FlowView, Lately};
pub use live::{FlowLive, Interval, Live};
pub use monitor::{DatapathCounts, DatapathView, Monitor};
pub use policies::{Assigned, Collected, OUTCOMES_MAX, Outcome, PolicyStats, Trial};
pub use value::{Cell, Histogram, Unit, Value};

use crate::plan::Reason;
use flow::STATES;
use monitor::PolicyCounts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What an agent counts, and what its flows tell.
#[derive(Default)]
pub struct Stats {
    /// Counts of the agent as a whole.
    pub counters: Counters,
    /// Numbers of single flows.
    pub live: Live,
    /// What is known by policy.
    pub policies: PolicyStats,
}

/// What kind of statistic it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the agent runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations by size; only grow.
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One statistic.
pub struct Spec {
    /// Its name, with the unit; Prometheus' has the prefix `pk3c_`, and `_total` behind a counter's.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// What its values are told apart by, if there are several.
    pub label: Option<&'static str>,
    /// One line for people.
    pub help: &'static str,
    read: fn(&View<'_>) -> Value,
}

/// What statistics are read from.
struct View<'a> {
    agent: &'a Counters,
    datapath: DatapathCounts,
    by_state: [(&'static str, usize); STATES.len()],
    by_policy: &'a BTreeMap<Arc<str>, PolicyCounts>,
    uptime: Duration,
    draining: bool,
}

impl View<'_> {
    fn decided(&self, reason: Reason) -> f64 {
        self.agent.decisions[reason as usize].load(Relaxed) as f64
    }

    fn by_policy(&self, read: impl Fn(&PolicyCounts) -> f64) -> Value {
        let counts = self.by_policy.iter();
        Value::ByLabel(
            counts
                .map(|(label, counts)| (label.to_string().into(), read(counts)))
                .collect(),
        )
    }

    fn histograms(&self, read: impl Fn(&PolicyCounts) -> &Histogram) -> Value {
        let counts = self.by_policy.iter();
        Value::Histograms(
            counts
                .map(|(label, counts)| (label.to_string(), read(counts).clone()))
                .collect(),
        )
    }
}

/// The reasons that are a handbrake's actions. The ceiling bounds rates without an action of its own.
const ACTIONS: &[(&str, &[Reason])] = &[
    ("loss", &[Reason::LossCut]),
    ("queue", &[Reason::QueueCut]),
    ("compete", &[Reason::CompeteStart, Reason::LongerPath]),
    ("restart", &[Reason::Restart]),
    ("overshoot", &[Reason::Overshoot]),
];

fn count(counter: &AtomicU64) -> Value {
    Value::Number(counter.load(Relaxed) as f64)
}

fn whole(number: u64) -> Value {
    Value::Number(number as f64)
}

macro_rules! statistics {
    ($($name:literal $kind:ident $unit:ident $label:expr, $help:literal $read:expr;)*) => {
        /// All statistics of the agent as a whole.
        pub const SPECS: &[Spec] = &[$(Spec {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            label: $label,
            help: $help,
            read: $read,
        },)*];
    };
}

statistics! {
    "build_info" Gauge Count Some("version"), "The program's version" |_| Value::ByLabel(vec![(env!("CARGO_PKG_VERSION").into(), 1.0)]);
    "uptime_seconds" Gauge Seconds None, "Time since the agent began" |v| Value::Number(v.uptime.as_secs_f64());
    "draining" Gauge Count None, "1 while flows are kept in the fallback on purpose" |v| whole(v.draining.into());
    "flows" Gauge Count Some("state"), "Live flows, by who drives them" |v| Value::ByLabel(
        v.by_state.iter().map(|(state, flows)| ((*state).into(), *flows as f64)).collect());
    "policy_flows" Gauge Count Some("policy"), "Live flows, by policy" |v| v.by_policy(|counts| counts.flows as f64);
    "flows_started" Counter Count None, "Flows that the agent took for the first time" |v| count(&v.agent.flows_started);
    "flows_readopted" Counter Count None, "Times that the agent took a flow back from the fallback" |v| count(&v.agent.flows_readopted);
    "flows_ended" Counter Count None, "Flows that ended under the agent" |v| count(&v.agent.flows_ended);
    "fallback_episodes" Counter Count None, "Times that a flow went to the fallback" |v| whole(v.datapath.fallbacks);
    "fallback_episodes_loss" Counter Count None, "Those of them because it lost more than its policy's max-loss" |v| whole(v.datapath.fallbacks_loss);
    "reports" Counter Count None, "Reports that arrived" |v| count(&v.agent.reports);
    "decisions" Counter Count Some("reason"), "Answers to reports, by reason" |v| Value::ByLabel(
        Reason::ALL.iter().map(|reason| (reason.name().into(), v.decided(*reason))).collect());
    "handbrake_actions" Counter Count Some("handbrake"), "Times that a handbrake overrode Vivace; the ceiling has no actions" |v| Value::ByLabel(
        ACTIONS.iter().map(|(name, reasons)| ((*name).into(), reasons.iter().map(|reason| v.decided(*reason)).sum())).collect());
    "report_time_seconds" Histogram Seconds None, "Time from a report's arrival to its answer, of every eighth" |v| {
        let (counts, sum) = v.agent.report_times.load();
        Value::Histogram(Histogram { bounds: &counters::TIME_BOUNDS_S, counts, sum })
    };
    "flow_goodput_bytes_per_second" Histogram BytesPerSecond Some("policy"), "Payload acknowledged per second, one observation per flow and second" |v| v.histograms(|counts| &counts.goodput);
    "flow_rtt_seconds" Histogram Seconds Some("policy"), "Smoothed RTT, one observation per flow and second" |v| v.histograms(|counts| &counts.rtt);
    "flow_loss_ratio" Histogram Ratio Some("policy"), "Lost part of the packets, one observation per flow and second with packets" |v| v.histograms(|counts| &counts.loss);
    "policy_acked_bytes" Counter Bytes Some("policy"), "Payload acknowledged, by policy" |v| v.by_policy(|counts| counts.bytes as f64);
    "policy_packets_delivered" Counter Count Some("policy"), "Packets delivered, by policy" |v| v.by_policy(|counts| counts.delivered as f64);
    "policy_packets_lost" Counter Count Some("policy"), "Packets lost, by policy" |v| v.by_policy(|counts| counts.lost as f64);
    "offers_dropped" Counter Count None, "New flows whose offer a full ring lost (offered again)" |v| whole(v.datapath.offers_dropped);
    "closes_dropped" Counter Count None, "Ends of flows that a full ring lost (found by a scan)" |v| whole(v.datapath.closes_dropped);
    "reports_dropped" Counter Count None, "Reports that a full ring lost, counted when their flow ends" |v| whole(v.datapath.reports_dropped);
    "program_errors" Counter Count None, "Program runs given up (overflow, underflow, division by 0), counted when their flow ends" |v| whole(v.datapath.program_errors);
    "flows_without_slot" Counter Count None, "Flows beyond --max-flows, which stay in the fallback" |v| whole(v.datapath.flows_without_slot);
    "programs_missing" Counter Count None, "ACKs that found their program gone" |v| whole(v.datapath.programs_missing);
    "updates_stale" Counter Count None, "Updates for flows that had ended or were no longer driven" |v| whole(v.datapath.updates_stale);
    "records_malformed" Counter Count None, "Records of the datapath that the agent did not understand" |v| whole(v.datapath.records_malformed);
    "messages_rejected" Counter Count None, "Messages of the agent that the datapath refused" |v| whole(v.datapath.messages_rejected);
    "commands_failed" Counter Count None, "Commands and programs that could not be sent" |v| count(&v.agent.commands_failed);
    "reports_foreign" Counter Count None, "Reports of a program that is not the agent's" |v| count(&v.agent.reports_foreign);
}

/// The statistics at one moment, in the order of [`SPECS`].
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(Vec<Value>);

impl Snapshot {
    fn take(view: &View<'_>) -> Self {
        Self(SPECS.iter().map(|spec| (spec.read)(view)).collect())
    }

    /// Every statistic with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Spec, &Value)> {
        SPECS.iter().zip(&self.0)
    }

    /// As one JSON object, by name.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let entry = |(spec, value): (&'static Spec, &Value)| (spec.name.to_owned(), value.into());
        serde_json::Value::Object(self.iter().map(entry).collect())
    }
}

/// A flow as a JSON object, by the names of [`FLOW_FIELDS`]; what is not known is null.
#[must_use]
pub fn flow_json(flow: &FlowView) -> serde_json::Value {
    let entry = |field: &FlowField| (field.name.to_owned(), field.read(flow).into());
    serde_json::Value::Object(FLOW_FIELDS.iter().map(entry).collect())
}

#[cfg(test)]
mod tests;
