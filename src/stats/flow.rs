//! What is told of one flow: the numbers, and the one table that declares them.

use super::live::FlowLive;
use super::policies::Assigned;
use super::value::{Cell, Unit};
use crate::policy::Role;
use std::net::SocketAddr;
use std::time::Duration;

/// A flow as its datapath knows it now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSample {
    /// The socket id that the datapath gave it.
    pub sock_id: u32,
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Time since it began.
    pub age: Duration,
    /// How much of it the agent drove the flow.
    pub driven: Duration,
    /// Whether the agent drives it now; otherwise the datapath's fallback does.
    pub is_driven: bool,
    /// How often the fallback took over.
    pub fallback_episodes: u32,
    /// What it has carried until now; `None` if the datapath tells only at the end.
    pub carried: Option<Carried>,
    /// Reports that were lost on their way to the agent.
    pub reports_dropped: u32,
    /// Runs of the program given up: overflow, underflow, division by 0.
    pub program_errors: u64,
    /// The kernel's smoothed RTT at the last report, if it has one.
    pub srtt: Option<Duration>,
}

/// What a flow has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Payload bytes acknowledged.
    pub bytes_acked: u64,
    /// Packets delivered, modulo 2^32.
    pub packets_delivered: u32,
    /// Packets lost, modulo 2^32.
    pub packets_lost: u32,
}

impl Carried {
    /// The lost part of the packets, 0 to 1; `None` if there were none.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        let lost = f64::from(self.packets_lost);
        let packets = f64::from(self.packets_delivered) + lost;
        (packets > 0.0).then(|| lost / packets)
    }
}

/// Packets between two counts modulo 2^32. More than half of that is none: a count that is behind an earlier one, as
/// that of reports is behind the datapath's.
pub(super) fn packets(before: u32, after: u32) -> u32 {
    let packets = after.wrapping_sub(before);
    if packets > u32::MAX / 2 { 0 } else { packets }
}

/// What happened to a flow between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lately {
    /// Payload acknowledged, bit/s.
    pub goodput_bps: f64,
    /// Lost part of the packets, 0 to 1; `None` if there were no packets.
    pub loss: Option<f64>,
}

impl Lately {
    /// From two samples of a flow, `apart` from each other.
    #[must_use]
    pub fn between(before: &FlowSample, after: &FlowSample, apart: Duration) -> Option<Self> {
        let seconds = apart.as_secs_f64();
        if before.sock_id != after.sock_id || seconds < 1e-3 {
            return None;
        }
        let (before, after) = (before.carried?, after.carried?);
        let bytes = after.bytes_acked.saturating_sub(before.bytes_acked);
        let delivered = f64::from(packets(before.packets_delivered, after.packets_delivered));
        let lost = f64::from(packets(before.packets_lost, after.packets_lost));
        Some(Self {
            goodput_bps: bytes as f64 * 8.0 / seconds,
            loss: (delivered + lost > 0.0).then(|| lost / (delivered + lost)),
        })
    }
}

/// Who may drive a flow, as `state` says it.
pub(super) const STATES: [&str; 5] = ["driven", FALLBACK, "shadow", "control", "kernel"];
const FALLBACK: &str = "fallback";

/// Who drives a flow now.
pub(super) fn state(sample: &FlowSample, assigned: Option<&Assigned>) -> &'static str {
    match assigned.map(|assigned| assigned.role) {
        _ if sample.is_driven => Role::Driven.name(),
        Some(role) if role != Role::Driven => role.name(),
        _ => FALLBACK,
    }
}

/// All that is known of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowView {
    /// By the datapath.
    pub sample: FlowSample,
    /// By the agent, as of the flow's last report; `None` before it, and while the fallback drives the flow.
    pub live: Option<FlowLive>,
    /// Since the look before.
    pub lately: Option<Lately>,
    /// What it is under; `None` before the agent has met it.
    pub assigned: Option<Assigned>,
}

impl FlowView {
    /// Who drives the flow now.
    #[must_use]
    pub fn state(&self) -> &'static str {
        state(&self.sample, self.assigned.as_ref())
    }

    /// The agent's smoothed RTT, or the kernel's.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        let known = self.live.map(|live| Duration::from_micros(live.srtt.us()));
        known.or(self.sample.srtt)
    }
}

/// One thing that is told of a flow.
pub struct FlowField {
    /// Its name in JSON, with the unit.
    pub name: &'static str,
    /// Its heading in tables.
    pub heading: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// One line for people.
    pub help: &'static str,
    read: fn(&FlowView) -> Option<Cell>,
}

impl FlowField {
    /// The value, if there is one.
    #[must_use]
    pub fn read(&self, flow: &FlowView) -> Option<Cell> {
        (self.read)(flow)
    }
}

macro_rules! flow_fields {
    ($($name:literal $heading:literal $unit:ident $help:literal $read:expr;)*) => {
        /// All that is told of a flow, in this order.
        pub const FLOW_FIELDS: &[FlowField] = &[$(FlowField {
            name: $name,
            heading: $heading,
            unit: Unit::$unit,
            help: $help,
            read: $read,
        },)*];
    };
}

fn number(value: f64) -> Option<Cell> {
    Some(Cell::Number(value))
}

fn text(value: impl ToString) -> Option<Cell> {
    Some(Cell::Text(value.to_string()))
}

flow_fields! {
    "flow" "flow" Id "Its number, for `explain`" |f| number(f.sample.sock_id.into());
    "local" "local" Text "Our end" |f| text(f.sample.local);
    "remote" "remote" Text "The other end" |f| text(f.sample.remote);
    "age_seconds" "age" Seconds "Time since it began" |f| number(f.sample.age.as_secs_f64());
    "state" "state" Text "driven by the agent; in the datapath's fallback; or with Cubic by policy: shadow, control or kernel" |f| text(f.state());
    "policy" "policy" Text "The policy it is under" |f| text(&f.assigned.as_ref()?.policy);
    "driven_ratio" "driven" Ratio "Share of its life that the agent drove it" |f| number((f.sample.driven.as_secs_f64() / f.sample.age.as_secs_f64().max(1e-6)).min(1.0));
    "fallback_episodes" "falls" Count "How often the fallback took over" |f| number(f.sample.fallback_episodes.into());
    "phase" "phase" Text "State of the controller" |f| text(f.live?.phase);
    "reason" "reason" Text "Why the last decision was taken" |f| text(f.live?.reason);
    "rate_bits_per_second" "rate" BitsPerSecond "Rate that the agent asks for, or in a shadow would ask for" |f| number(f.live?.rate.bytes_per_sec() * 8.0);
    "goodput_bits_per_second" "goodput" BitsPerSecond "Payload acknowledged lately" |f| number(f.lately?.goodput_bps);
    "cwnd_bytes" "cwnd" Bytes "Congestion window" |f| number(f.live?.cwnd.get() as f64);
    "rtt_seconds" "rtt" Seconds "Smoothed RTT" |f| number(f.srtt()?.as_secs_f64());
    "rtt_min_seconds" "rtt min" Seconds "Smallest RTT that is remembered" |f| number(f.live?.rtt_min.as_secs());
    "loss_ratio" "loss" Ratio "Lost part of the packets, lately" |f| number(f.lately?.loss?);
    "acked_bytes" "acked" Bytes "Payload acknowledged" |f| number(f.sample.carried?.bytes_acked as f64);
    "reports" "reports" Count "Reports that the agent has answered" |f| number(f.live?.reports as f64);
    "reports_dropped" "dropped" Count "Reports that a full ring lost" |f| number(f.sample.reports_dropped.into());
    "program_errors" "errors" Count "Program runs given up" |f| number(f.sample.program_errors as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn rates_come_from_two_looks_and_counters_may_wrap() {
        let flow = |bytes_acked, packets_delivered, packets_lost| FlowSample {
            carried: Some(Carried {
                bytes_acked,
                packets_delivered,
                packets_lost,
            }),
            ..sample(1)
        };
        let (before, after) = (flow(1_000, u32::MAX, 5), flow(1_001_000, 97, 7));
        let lately = Lately::between(&before, &after, Duration::from_secs(2)).unwrap();
        assert_eq!((lately.goodput_bps, lately.loss), (4e6, Some(0.02)));
        let idle = Lately::between(&after, &after, Duration::from_secs(2)).unwrap();
        assert_eq!((idle.goodput_bps, idle.loss), (0.0, None));
        assert_eq!(
            Lately::between(&sample(1), &sample(2), Duration::from_secs(1)),
            None
        );
    }
}
