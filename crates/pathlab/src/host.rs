//! One run on this machine: iperf3 over an emulated path under one congestion control.

use std::time::Duration;

use crate::agent::{Agent, AgentError};
use crate::iperf::{self, IperfError, Server};
use crate::path::{self, Path, PathError, PathReport};
use crate::process::Interrupt;
use crate::row::Row;
use crate::scenario::{PathSpec, Scheme};
use crate::tun::EndSettings;

/// After its client, the server needs a few round trips to close its connections, and the agent to
/// hear of it.
const CLOSING: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Over which path.
    pub path: PathSpec,
    /// Under which congestion control.
    pub scheme: Scheme,
    /// Flows that share the path, 1 to 128.
    pub flows: u32,
    /// How long they send, in whole seconds, at least one.
    pub duration: Duration,
    /// What the path's random losses follow from.
    pub seed: u64,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The result.
    pub row: Row,
    /// What carried it.
    pub path: PathReport,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The traffic.
    #[error(transparent)]
    Iperf(#[from] IperfError),
    /// The agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Carries out one run. Everything it starts ends with it, in success and in failure.
///
/// # Errors
/// [`RunError`], also when interrupted.
pub fn run(run: &Run, interrupt: &Interrupt) -> Result<RunResult, RunError> {
    let path = Path::open(&run.path.to_path(), &EndSettings::default(), run.seed)?;
    let mut agent = match &run.scheme {
        Scheme::Kernel(_) => None,
        Scheme::Agent { name, command } => Some(Agent::start(name, command, interrupt)?),
    };
    let server = Server::start(path.server(), path::SERVER, interrupt)?;
    let cpu_before = agent.as_ref().map(Agent::cpu_time).transpose()?;
    let sent = iperf::run_client(
        path.client(),
        path::SERVER,
        run.scheme.name(),
        run.flows,
        run.duration,
        interrupt,
    );
    // An agent that died explains more than iperf3 can.
    if let (Err(_), Some(agent), false) = (&sent, &mut agent, interrupt.is_raised()) {
        agent.check()?;
    }
    let summary = sent?;
    server.finish(CLOSING);
    let (mut agent_driven, mut agent_cpu) = (None, None);
    if let (Some(agent), Some(before)) = (agent, cpu_before) {
        let used = agent.cpu_time()?.saturating_sub(before);
        agent_cpu = Some(used.as_secs_f64() / run.duration.as_secs_f64());
        agent.wait_for_flow_ends(run.flows, CLOSING);
        agent_driven = Some(agent.stop()?);
    }
    let row = Row {
        agent_driven,
        agent_cpu,
        ..Row::new(&run.path, &run.scheme, run.flows, &summary)
    };
    Ok(RunResult {
        row,
        path: path.close()?,
    })
}
