//! One run with real TCP on this machine: a path, the agents of the schemes, the traffic, and what it showed.
//!
//! Everything that a run starts ends with it, in success, failure and interrupt: the path with its namespaces and
//! devices, agents, and programs. A run is void rather than wrong: see [`RunResult::void`].

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::elsewhere::{Elsewhere, ElsewhereError};
use super::line::{Closed, Line};
pub use super::line::{LineError, LineKind};
use super::outcome::Parts;
use super::result::{Conditions, Inputs, RunResult};
use super::run::{FlowScheme, Run, Traffic};
use crate::agent::{Agent, AgentError};
use crate::netns::{Netns, NetnsError};
use crate::path::PathError;
use crate::process::Interrupt;
use crate::scenario::Scheme;
use crate::traffic::{self, Ends, FlowPlan, FlowTraffic, Plan, TrafficError};

/// After the last socket is closed, agents need a moment to hear of it.
const CLOSING: Duration = Duration::from_secs(1);

/// What is late in a path of real time: more than this, by one packet in 100.
pub const LATENESS_BOUND: Duration = Duration::from_millis(1);

/// Settings of the kernel that matter to TCP, below `/proc/sys`.
const SYSCTLS: [&str; 13] = [
    "net/core/default_qdisc",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_ecn",
    "net/ipv4/tcp_moderate_rcvbuf",
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_recovery",
    "net/ipv4/tcp_reordering",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_wmem",
];

/// What a run needs to know beside what is run.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// What determines the run, for its result.
    pub inputs: Inputs,
    /// What is known of its conditions; the kernel and its settings are added.
    pub conditions: Conditions,
    /// What carries the packets.
    pub line: LineKind,
    /// The 99th percentile of the emulator's lateness that makes a run void.
    pub lateness_bound: Duration,
    /// Where to write a line for every packet, if at all; see [`crate::packet_log`].
    pub packet_log: Option<PathBuf>,
}

impl HostOptions {
    /// A run over the emulated path, in real time.
    pub fn new(inputs: Inputs) -> Self {
        Self {
            inputs,
            conditions: Conditions::default(),
            line: LineKind::default(),
            lateness_bound: LATENESS_BOUND,
            packet_log: None,
        }
    }
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It does not fit together.
    #[error("{0}")]
    Impossible(String),
    /// The path.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The emulated path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A namespace.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// Programs that make traffic.
    #[error(transparent)]
    Elsewhere(#[from] ElsewhereError),
    /// An agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Carries out one run.
///
/// # Errors
/// [`RunError`], also when interrupted: within two seconds.
pub fn run(run: &Run, options: &HostOptions, interrupt: &Interrupt) -> Result<RunResult, RunError> {
    check(run)?;
    let outcome = carry_out(run, options, interrupt);
    // What an interrupt broke says nothing of its own.
    if interrupt.is_raised() {
        return Err(RunError::Interrupted);
    }
    outcome
}

fn check(run: &Run) -> Result<(), RunError> {
    let flows = run.scenario.flows.len();
    let lists = [run.schemes.len(), run.under_test.len()];
    if lists.iter().any(|length| *length != flows) {
        return Err(RunError::Impossible(format!(
            "scenario {}: {flows} flows, but {} schemes, and {} of them said to be under test or not",
            run.id, lists[0], lists[1]
        )));
    }
    Ok(())
}

fn carry_out(
    run: &Run,
    options: &HostOptions,
    interrupt: &Interrupt,
) -> Result<RunResult, RunError> {
    let mut line = Line::open(run, options.line, options.packet_log.clone())?;
    let conditions = conditions(&options.conditions, line.client())?;
    let mut agents = Agents::start(run, interrupt)?;
    let plan = plan(run, &line)?;
    let elsewhere = Elsewhere::prepare(run, &line, interrupt)?;
    let conditions = Conditions {
        iperf3: elsewhere.iperf3_version(),
        line: line.name().to_owned(),
        ..conditions
    };
    let cpu_before = agents.cpu_time()?;
    let made = make_traffic(&mut line, &plan, elsewhere, interrupt);
    // An agent that died explains more than what came of it.
    if made.is_err() && !interrupt.is_raised() {
        agents.check()?;
    }
    let mut traffic = made?;
    let agent_cpu = agents
        .cpu_time()?
        .zip(cpu_before)
        .map(|(now, then)| now.saturating_sub(then));
    let driven = agents.finish()?;
    let closed = line.close()?;
    if let Closed::Emulated(path) = &closed {
        Elsewhere::measure_at_the_link(run, path, &mut traffic);
    }
    let parts = Parts {
        run,
        inputs: &options.inputs,
        conditions,
        traffic,
        line: closed,
        driven,
        agent_cpu,
        lateness_bound: options.lateness_bound,
    };
    Ok(parts.result())
}

/// Lets all traffic begin at once, and waits for its end.
fn make_traffic(
    line: &mut Line,
    plan: &Plan,
    elsewhere: Elsewhere<'_>,
    interrupt: &Interrupt,
) -> Result<traffic::Report, RunError> {
    let server_address = line.server_address();
    let (client, server, mut start) = line.parts();
    let ends = Ends {
        client,
        server,
        server_address,
    };
    let (tell, begun) = mpsc::channel();
    let ended = &Interrupt::default();
    thread::scope(|scope| {
        let others = scope.spawn(move || elsewhere.run(client, &begun, &[interrupt, ended]));
        let mut begin = || {
            let at: Instant = start.begin();
            // The others have given up if they do not listen.
            let _ = tell.send(at);
            at
        };
        let own = traffic::carry(plan, &ends, &mut begin, interrupt);
        drop(tell);
        if own.is_err() {
            ended.raise();
        }
        let others = others
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut report = own?;
        others?.merge_into(&mut report);
        Ok(report)
    })
}

/// The flows in terms of sockets; those that programs make are theirs.
fn plan(run: &Run, line: &Line) -> Result<Plan, RunError> {
    let flows = run.scenario.flows.iter().zip(&run.schemes).enumerate();
    let flows = flows.map(|(index, (spec, scheme))| {
        let address = line.client_address(spec.extra_rtt_ns).ok_or_else(|| {
            RunError::Impossible(format!(
                "flow {}: this path has no extra RTT of {} ms for single flows; use the emulated path",
                index + 1,
                spec.extra_rtt_ns as f64 / 1e6
            ))
        })?;
        let iperf3 = run.settings.traffic == Traffic::Iperf3 && run.under_test[index];
        let traffic = match scheme {
            FlowScheme::Tcp(_) if iperf3 => FlowTraffic::Elsewhere,
            FlowScheme::Tcp(scheme) => FlowTraffic::Tcp {
                congestion: scheme.name().to_owned(),
                source: spec.source,
            },
            FlowScheme::Udp(bps) => FlowTraffic::Udp(*bps),
            FlowScheme::Command { .. } => FlowTraffic::Elsewhere,
        };
        Ok(FlowPlan::new(spec, address, traffic))
    });
    Ok(Plan {
        flows: flows.collect::<Result<_, RunError>>()?,
        duration: Duration::from_nanos(run.scenario.duration_ns),
        rounds: run.settings.rounds,
    })
}

/// The agents of a run: one for each different scheme that has one.
struct Agents {
    /// With the number of connections that it will hear of.
    agents: Vec<(Agent, u32)>,
}

impl Agents {
    fn start(run: &Run, interrupt: &Interrupt) -> Result<Self, RunError> {
        let mut wanted: Vec<(&str, &[String], u32)> = Vec::new();
        for (spec, scheme) in run.scenario.flows.iter().zip(&run.schemes) {
            let FlowScheme::Tcp(Scheme::Agent { name, command }) = scheme else {
                continue;
            };
            let connections = match spec.source {
                pathsim::Source::Bytes(_) => run.settings.rounds,
                _ => 1,
            };
            match wanted
                .iter_mut()
                .find(|(other, by, _)| *other == name && *by == command)
            {
                Some((_, _, flows)) => *flows += connections,
                None => wanted.push((name, command, connections)),
            }
        }
        let start = |(name, command, flows): (&str, &[String], u32)| {
            Ok((Agent::start(name, command, interrupt)?, flows))
        };
        let agents = wanted
            .into_iter()
            .map(start)
            .collect::<Result<_, AgentError>>()?;
        Ok(Self { agents })
    }

    fn check(&mut self) -> Result<(), AgentError> {
        self.agents
            .iter_mut()
            .try_for_each(|(agent, _)| agent.check())
    }

    /// CPU time of all together; `None` without any.
    fn cpu_time(&self) -> Result<Option<Duration>, AgentError> {
        let times = self.agents.iter().map(|(agent, _)| agent.cpu_time());
        let times: Vec<Duration> = times.collect::<Result<_, _>>()?;
        Ok((!times.is_empty()).then(|| times.iter().sum()))
    }

    /// Stops all, and returns the share of its flows' time in which each drove them.
    fn finish(self) -> Result<Vec<Option<f64>>, AgentError> {
        let finish = |(agent, flows): (Agent, u32)| {
            agent.wait_for_flow_ends(flows, CLOSING);
            agent.finish()
        };
        self.agents.into_iter().map(finish).collect()
    }
}

/// What is known, with the kernel and its settings in the senders' namespace.
fn conditions(known: &Conditions, client: &Netns) -> Result<Conditions, NetnsError> {
    let read = |key: &&str| {
        let value = fs::read_to_string(format!("/proc/sys/{key}")).ok()?;
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        Some((key.replace('/', "."), value))
    };
    let sysctls: BTreeMap<_, _> = client.enter(|| SYSCTLS.iter().filter_map(read).collect())?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Conditions {
        kernel: release.trim().to_owned(),
        sysctls,
        ..known.clone()
    })
}
