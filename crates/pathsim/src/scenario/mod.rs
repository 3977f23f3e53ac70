//! What is simulated: a path and the flows over it.

mod flow;
mod path;
mod schedule;

pub use flow::{AckPolicy, FlowSpec, Lie, Source, Transport};
pub use path::{
    CoDel, Jitter, Loss, LossPlace, PathSpec, Pie, QueueDiscipline, QueueLimit, RouteChange, Sfq,
    TokenBucket,
};
pub(crate) use schedule::exponential;
pub use schedule::{RateSchedule, Trace};

use crate::{MILLISECOND, SECOND};
use serde::{Deserialize, Serialize};

/// Longest run, propagation delay or start time: what leaves room in nanoseconds of 64 bits.
const MAX_TIME_NS: u64 = 100_000 * SECOND;

/// A scenario that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidScenario {
    /// A value out of its range.
    #[error("{what} is {value}: must be {range}")]
    Range {
        /// Which value.
        what: &'static str,
        /// The value as given.
        value: String,
        /// What is possible.
        range: &'static str,
    },
    /// A line of a mahimahi trace that is not a time.
    #[error(
        "line {line} of the trace is {text:?}: a trace has one time in ms a line, in ascending order, the last above 0"
    )]
    Trace {
        /// Number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// Datagrams are sent at a rate, not in chunks.
    #[error("a UDP flow sends chunks: give it a rate, or make it a TCP flow")]
    ChunksOverUdp,
    /// A handshake is a part of what is sent, and answered.
    #[error(
        "a UDP flow or one whose application has a rate has a handshake: only an endless TCP flow or one with a size can have one"
    )]
    Handshake,
    /// As many controllers as flows are needed.
    #[error("{flows} flows but {controllers} controllers: give one for each flow, in their order")]
    Controllers {
        /// Flows of the scenario.
        flows: usize,
        /// Controllers given.
        controllers: usize,
    },
}

/// A path, flows, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The path.
    pub path: PathSpec,
    /// The flows, at least one.
    pub flows: Vec<FlowSpec>,
    /// Length of the run, ns.
    pub duration_ns: u64,
    /// Seed of all chance of the path.
    pub seed: u64,
    /// Whether to keep series over time, 100 ms a bin.
    pub series: bool,
}

impl Scenario {
    pub(crate) fn check(&self) -> Result<(), InvalidScenario> {
        in_range(
            "the duration in ns",
            self.duration_ns,
            MILLISECOND..=MAX_TIME_NS,
            "1 ms to 100000 s",
        )?;
        self.path.check()?;
        in_range(
            "the number of flows",
            self.flows.len() as u64,
            1..=100_000,
            "1 to 100000",
        )?;
        self.flows.iter().try_for_each(FlowSpec::check)
    }
}

fn in_range(
    what: &'static str,
    value: u64,
    possible: std::ops::RangeInclusive<u64>,
    range: &'static str,
) -> Result<(), InvalidScenario> {
    if possible.contains(&value) {
        return Ok(());
    }
    let value = value.to_string();
    Err(InvalidScenario::Range { what, value, range })
}

fn time(what: &'static str, ns: u64) -> Result<(), InvalidScenario> {
    in_range(what, ns, 0..=MAX_TIME_NS, "0 to 100000 s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_scenarios_are_refused() {
        let good = Scenario {
            path: PathSpec::clean(50_000_000, 40 * MILLISECOND),
            flows: vec![FlowSpec::new("reno")],
            duration_ns: SECOND,
            seed: 1,
            series: false,
        };
        assert_eq!(good.check(), Ok(()));
        let refused = |change: fn(&mut Scenario)| {
            let mut bad = good.clone();
            change(&mut bad);
            bad.check().unwrap_err().to_string()
        };
        assert!(refused(|s| s.path.loss = Loss::Random(1.0)).contains("loss ratio is 1"));
        assert!(refused(|s| s.path.rate = RateSchedule::Constant(0)).contains("1 kbit/s"));
        assert!(
            refused(|s| s.path.rate = RateSchedule::Steps(vec![(5, 1_000_000)]))
                .contains("first at 0")
        );
        assert!(refused(|s| s.flows.clear()).contains("number of flows is 0"));
        assert!(refused(|s| s.path.queue = QueueLimit::Packets(0)).contains("queue in packets"));
        assert!(refused(|s| s.flows[0].stop_ns = Some(0)).contains("after its start"));
        assert!(refused(|s| s.path.ack_loss = Loss::Random(-0.1)).contains("loss ratio is -0.1"));
        assert!(refused(|s| s.flows[0].receive_window = Some(1448)).contains("two segments"));
        assert!(refused(|s| s.flows[0].burst_segments = 0).contains("1 to 44"));
        let change = |s: &mut Scenario| {
            let change = RouteChange {
                at_ns: 5,
                rtt_ns: 1,
            };
            s.path.route_changes = vec![change, change];
        };
        assert!(refused(change).contains("the route's changes is at [5, 5] ns"));
        let codel = |s: &mut Scenario| {
            s.path.discipline = QueueDiscipline::CoDel(CoDel {
                target_ns: 0,
                ..CoDel::default()
            });
        };
        assert!(refused(codel).contains("CoDel's target in ns is 0"));
        let chunks = |s: &mut Scenario| {
            s.flows[0].transport = Transport::Udp;
            s.flows[0].source = Source::Chunks {
                bytes: 1000,
                period_ns: SECOND,
            };
        };
        assert!(refused(chunks).contains("UDP"));
        let handshake = |s: &mut Scenario| {
            s.flows[0].source = Source::Rate(1_000_000);
            s.flows[0].handshake = Some(4_000);
        };
        assert!(refused(handshake).contains("has a handshake"));
    }
}
