//! What agents decided, for JSON and for the picture.

use super::runs::Decisions;
use serde::Serialize;

/// The decisions of one flow. The serialized field names are a public format.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FlowDecisions {
    /// Number of the flow, from 1, in the order of `flows`.
    flow: usize,
    /// In order of time: what told the datapath something, or changed rate or phase.
    events: Vec<Event>,
    /// Later decisions, which were not kept.
    not_kept: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Event {
    at_s: f64,
    phase: &'static str,
    reason: &'static str,
    rate_mbps: f64,
    cwnd_bytes: u64,
}

impl FlowDecisions {
    /// Those of the flows that have an agent.
    pub(super) fn of_run(decisions: &[Decisions]) -> Vec<Self> {
        let flows = decisions.iter().zip(1..);
        let with_agent = flows.filter(|((events, _), _)| !events.is_empty());
        with_agent
            .map(|((events, not_kept), flow)| Self {
                flow,
                events: events
                    .iter()
                    .map(|event| Event {
                        at_s: event.at.as_secs(),
                        phase: event.phase.name(),
                        reason: event.reason.name(),
                        rate_mbps: event.rate.mbit(),
                        cwnd_bytes: event.cwnd.get(),
                    })
                    .collect(),
                not_kept: *not_kept,
            })
            .collect()
    }
}

/// Decisions that a picture marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The fast start ended.
    Full,
    /// Less, because of loss.
    Loss,
    /// Less, because of a standing queue.
    Queue,
    /// A retransmission timeout.
    Timeout,
    /// Competing with flows that fill the queue, or a new fast start.
    Mode,
}

impl Mark {
    pub(super) const ALL: [Self; 5] = [
        Self::Full,
        Self::Loss,
        Self::Queue,
        Self::Timeout,
        Self::Mode,
    ];

    /// The mark of a reason, by the reason's stable name; most have none.
    pub(super) fn of(reason: &str) -> Option<Self> {
        let has = |part| reason.split('-').any(|word| word == part);
        match reason {
            "timeout" => Some(Self::Timeout),
            _ if has("full") => Some(Self::Full),
            _ if has("restart") || (has("compete") && (has("start") || has("end"))) => {
                Some(Self::Mode)
            }
            _ if has("loss") => Some(Self::Loss),
            _ if has("queue") => Some(Self::Queue),
            _ => None,
        }
    }

    pub(super) fn legend(self) -> &'static str {
        match self {
            Self::Full => "fast start ends",
            Self::Loss => "loss handbrake",
            Self::Queue => "queue handbrake",
            Self::Timeout => "timeout",
            Self::Mode => "compete or restart",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pk3c_ccp::plan::Reason;

    #[test]
    fn every_kind_of_mark_but_modes_has_a_reason() {
        for mark in [Mark::Full, Mark::Loss, Mark::Queue, Mark::Timeout] {
            assert!(
                Reason::ALL
                    .iter()
                    .any(|reason| Mark::of(reason.name()) == Some(mark)),
                "{mark:?}"
            );
        }
        assert_eq!(Mark::of("move-up"), None);
    }
}
