//! What is sent: flows in terms of sockets.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pathsim::{FlowSpec, Source};

use super::TrafficError;

/// The port of flow 1; the others follow.
const FIRST_PORT: u16 = 10_000;

/// Flows at most: as many as there are ports from the first one on.
const MAX_FLOWS: usize = (u16::MAX - FIRST_PORT) as usize;

/// Open files besides those of flows: the runtimes, the path, agents, what a program has open anyway.
const OTHER_FILES: u64 = 200;

/// Time between samples of long flows.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// The same of transfers, which may last less than that.
const SAMPLE_TRANSFERS_EVERY: Duration = Duration::from_millis(10);
/// With more flows than this, ten samples of all in 100 ms would be work of its own.
const MANY_FLOWS: usize = 64;

/// Flows, their times and how they are watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The flows, at least one.
    pub flows: Vec<FlowPlan>,
    /// Length of the run, if the flows are not all complete before.
    pub duration: Duration,
    /// How often flows of a size transfer it, each time over a new connection, all together when all are complete.
    pub rounds: u32,
}

/// A flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// When it starts, since the start of the run.
    pub start: Duration,
    /// When it stops, at the latest.
    pub stop: Option<Duration>,
    /// The sender's address.
    pub address: Ipv4Addr,
    /// What the receiver takes beyond the last byte in order, bytes; `None` for as much as the kernel likes.
    pub window: Option<u64>,
    /// So many bytes of its stream are sent first, and the rest when the receiver has answered them.
    pub handshake: Option<u64>,
    /// What it sends.
    pub traffic: FlowTraffic,
}

/// What a flow sends.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowTraffic {
    /// A stream.
    Tcp {
        /// Name for `TCP_CONGESTION`.
        congestion: String,
        /// What the application has to send.
        source: Source,
    },
    /// Datagrams at a rate of payload, bit/s.
    Udp(u64),
    /// Nothing: something else makes the traffic of this flow.
    Elsewhere,
}

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpossiblePlan {
    /// Too many flows, or none.
    #[error("{0} flows cannot have a port each: 1 to {MAX_FLOWS} are possible")]
    Flows(usize),
    /// A size without rounds.
    #[error("0 rounds of transfers are no traffic; give 1 or more")]
    Rounds,
    /// A flow that starts when the run is over.
    #[error("flow {0} starts when the run is over: let it start earlier, or the run last longer")]
    Late(u32),
    /// Sockets are made with a buffer of this size, in 31 bits.
    #[error(
        "flow {flow} asks for a receive window of {bytes} bytes: 2896 to 500000000 are possible"
    )]
    Window {
        /// Its number.
        flow: u32,
        /// The window.
        bytes: u64,
    },
}

impl FlowPlan {
    /// A scenario's flow.
    pub fn new(spec: &FlowSpec, address: Ipv4Addr, traffic: FlowTraffic) -> Self {
        Self {
            start: Duration::from_nanos(spec.start_ns),
            stop: spec.stop_ns.map(Duration::from_nanos),
            address,
            window: spec.receive_window,
            handshake: spec.handshake.map(|bytes| match spec.source {
                Source::Bytes(size) => bytes.min(size),
                _ => bytes,
            }),
            traffic,
        }
    }

    /// The size of a flow that has one, bytes.
    pub fn size(&self) -> Option<u64> {
        match self.traffic {
            FlowTraffic::Tcp {
                source: Source::Bytes(bytes),
                ..
            } => Some(bytes),
            _ => None,
        }
    }

    /// When it stops if nothing stops it before, in a run of that length.
    pub(super) fn stops(&self, run: Duration) -> Duration {
        self.stop.map_or(run, |stop| stop.min(run))
    }
}

impl Plan {
    /// The receiver's port of a flow, by its place in the plan.
    pub fn port(flow: usize) -> u16 {
        // `check` refuses more flows than ports.
        FIRST_PORT + flow.min(MAX_FLOWS) as u16
    }

    /// The flow of a receiver's port, if it is one.
    pub fn flow(port: u16) -> Option<usize> {
        port.checked_sub(FIRST_PORT).map(usize::from)
    }

    /// Time between two samples of TCP's state.
    pub fn sample_every(&self) -> Duration {
        let transfers = self.flows.iter().any(|flow| flow.size().is_some());
        if transfers && self.flows.len() <= MANY_FLOWS {
            SAMPLE_TRANSFERS_EVERY
        } else {
            SAMPLE_EVERY
        }
    }

    /// Files that the flows have open at once: a listener each, and both ends of all connections.
    pub(super) fn files(&self) -> u64 {
        let of_flow = |flow: &FlowPlan| match flow.size() {
            Some(_) => 1 + 2 * u64::from(self.rounds),
            None => 3,
        };
        OTHER_FILES + self.flows.iter().map(of_flow).sum::<u64>()
    }

    pub(super) fn check(&self) -> Result<(), ImpossiblePlan> {
        if !(1..=MAX_FLOWS).contains(&self.flows.len()) {
            return Err(ImpossiblePlan::Flows(self.flows.len()));
        }
        if self.rounds == 0 {
            return Err(ImpossiblePlan::Rounds);
        }
        for (flow, plan) in (1..).zip(&self.flows) {
            if plan.start >= self.duration {
                return Err(ImpossiblePlan::Late(flow));
            }
            if let Some(bytes) = plan.window
                && !(2896..=500_000_000).contains(&bytes)
            {
                return Err(ImpossiblePlan::Window { flow, bytes });
            }
        }
        Ok(())
    }
}

/// Makes sure that this process may open so many files.
pub(super) fn allow_files(needed: u64) -> Result<(), TrafficError> {
    let refused = |errno: nix::Error| TrafficError::Files {
        needed,
        cause: io::Error::from(errno),
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(refused)?;
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(flows: usize) -> Plan {
        let congestion = "cubic".to_owned();
        let source = Source::Endless;
        let traffic = FlowTraffic::Tcp { congestion, source };
        let flow = FlowPlan::new(&FlowSpec::new("cubic"), Ipv4Addr::LOCALHOST, traffic);
        Plan {
            flows: vec![flow; flows],
            duration: Duration::from_secs(10),
            rounds: 1,
        }
    }

    #[test]
    fn every_flow_has_a_port_that_names_it() {
        for flow in [0, 1, 999, MAX_FLOWS - 1] {
            assert_eq!(Plan::flow(Plan::port(flow)), Some(flow));
        }
        assert_eq!(Plan::flow(22), None);
    }

    #[test]
    fn impossible_plans_say_why() {
        let refused = |change: fn(&mut Plan)| {
            let mut plan = plan(2);
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert_eq!(plan(2).check(), Ok(()));
        assert!(refused(|plan| plan.flows.clear()).contains("0 flows"));
        assert!(refused(|plan| plan.rounds = 0).contains("rounds"));
        assert!(refused(|plan| plan.flows[1].start = plan.duration).contains("flow 2 starts"));
        assert!(refused(|plan| plan.flows[0].window = Some(1)).contains("window of 1 bytes"));
    }

    #[test]
    fn transfers_are_watched_more_closely_unless_there_are_many() {
        let mut plan = plan(2);
        assert_eq!(plan.sample_every(), SAMPLE_EVERY);
        let congestion = "cubic".to_owned();
        let source = Source::Bytes(1_000_000);
        plan.flows[0].traffic = FlowTraffic::Tcp { congestion, source };
        assert_eq!(plan.sample_every(), SAMPLE_TRANSFERS_EVERY);
        assert_eq!(plan.files(), OTHER_FILES + 6);
        plan.rounds = 10;
        assert_eq!(plan.files(), OTHER_FILES + 24);
        plan.flows = vec![plan.flows[0].clone(); 1000];
        assert_eq!(plan.sample_every(), SAMPLE_EVERY);
    }
}
