//! One run in a QEMU guest under virtual time: the same program, the same run, the kernel of the guest.
//!
//! ```text
//!   this machine: order.json ──▶ guest: pk3c-ccp lab traffic --run order.json ──▶ result.json
//! ```
//!
//! The guest's clock counts instructions, so a run does not depend on what else this machine does.
//! Paths that the kernel's netem can make are its own, with fq at the sender; others are emulated as
//! on the host, [`Conditions::line`](super::result::Conditions::line) says which. CPU times are those of a machine of
//! 500 million instructions per second.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host::{self, HostOptions, LATENESS_BOUND, LineKind, RunError};
use super::result::{Conditions, Inputs, RunResult};
use super::run::{FlowScheme, Run};
use crate::guest::{self, Config, Error, Payload};
use crate::process::Interrupt;
use crate::scenario::Scheme;

/// Where the guest finds what to do.
const ORDER: &str = "order.json";

/// Stands between what the program said and its result.
const MARK: &str = "== result ==";

/// The congestion controls that every guest has.
const PRESENT: [&str; 3] = ["bbr", "cubic", "reno"];

/// What a guest is told to do, and what its host knows of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The run.
    pub run: Run,
    /// What determines it.
    pub inputs: Inputs,
    /// What is known of its conditions.
    pub conditions: Conditions,
    /// What is to carry the packets.
    pub line: LineKind,
}

impl Order {
    /// Carries the order out, on the machine that this is.
    ///
    /// # Errors
    /// As [`host::run`].
    pub fn carry_out(self, interrupt: &Interrupt) -> Result<RunResult, RunError> {
        let options = HostOptions {
            conditions: self.conditions,
            line: self.line,
            lateness_bound: LATENESS_BOUND,
            ..HostOptions::new(self.inputs)
        };
        host::run(&self.run, &options, interrupt)
    }
}

/// Why a run in a guest has no result.
#[derive(Debug, thiserror::Error)]
pub enum GuestRunError {
    /// The guest.
    #[error(transparent)]
    Guest(#[from] Error),
    /// The run cannot be made there.
    #[error("{0}")]
    Impossible(String),
    /// The run failed.
    #[error("the run failed in the guest: {0}")]
    Failed(String),
    /// What came back is no result.
    #[error("cannot understand the guest's result: {0}; it said:\n{1}")]
    Result(String, String),
}

/// Carries out an order in a guest. `config` says which kernel; its seed is the run's. `program` is a binary of this
/// project, which the guest runs.
///
/// # Errors
/// [`GuestRunError`], also when interrupted.
pub fn run(order: &Order, config: &Config, program: &Path) -> Result<RunResult, GuestRunError> {
    let (order, binaries) = for_guest(order, program)?;
    let modules = modules(&order.run);
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    let json = serde_json::to_vec(&order)
        .map_err(|error| GuestRunError::Impossible(format!("the run is no JSON: {error}")))?;
    let config = Config {
        seed: order.run.scenario.seed,
        ..config.clone()
    };
    let payload = Payload {
        binaries: &binaries,
        files: &[(ORDER, &json)],
        modules: &modules,
        script: &format!(
            "pk3c-ccp lab traffic --run /{ORDER} >/tmp/result.json || exit 1\necho \"{MARK}\"; cat /tmp/result.json\n"
        ),
    };
    let executed = guest::exec_payload(&config, &payload, wall_limit(&order.run))?;
    if executed.status != 0 {
        return Err(GuestRunError::Failed(executed.output.trim().to_owned()));
    }
    let (said, json) = executed
        .output
        .split_once(MARK)
        .unwrap_or((&executed.output, ""));
    serde_json::from_str(json)
        .map_err(|error| GuestRunError::Result(error.to_string(), said.trim().to_owned()))
}

/// The order as the guest can carry it out, and the binaries that it takes.
fn for_guest(
    order: &Order,
    program: &Path,
) -> Result<(Order, Vec<(PathBuf, String)>), GuestRunError> {
    let mut order = order.clone();
    let mut binaries = vec![(program.to_owned(), "pk3c-ccp".to_owned())];
    let own = program.canonicalize();
    for scheme in &mut order.run.schemes {
        match scheme {
            FlowScheme::Tcp(Scheme::Agent { name, command }) => {
                let Some(binary) = command.first_mut() else {
                    let problem = format!("the agent of {name} has no command");
                    return Err(GuestRunError::Impossible(problem));
                };
                let is_own = matches!((&own, Path::new(binary).canonicalize()), (Ok(own), Ok(it)) if *own == it);
                let inside = if is_own {
                    "pk3c-ccp".to_owned()
                } else {
                    format!("agent-{name}")
                };
                if !binaries.iter().any(|(_, taken)| *taken == inside) {
                    binaries.push((PathBuf::from(&*binary), inside.clone()));
                }
                *binary = format!("/bin/{inside}");
            }
            FlowScheme::Command { name, .. } => {
                let problem =
                    format!("{name}: programs do not run in guests; use this machine itself");
                return Err(GuestRunError::Impossible(problem));
            }
            _ => {}
        }
    }
    Ok((order, binaries))
}

/// Modules for what the run does: looking at sockets, and congestion controls that are none of the usual.
fn modules(run: &Run) -> Vec<String> {
    let mut modules = vec!["tcp_diag".to_owned()];
    for scheme in &run.schemes {
        if let FlowScheme::Tcp(Scheme::Kernel(name)) = scheme
            && !PRESENT.contains(&name.as_str())
        {
            modules.push(format!("tcp_{name}"));
        }
    }
    modules.sort();
    modules.dedup();
    modules
}

/// Many times what a run takes alone on a core; that grows with its rate and its flows.
fn wall_limit(run: &Run) -> Duration {
    let seconds = Duration::from_nanos(run.scenario.duration_ns).as_secs_f64();
    let path = &run.scenario.path;
    let mbps = path.capacity_bytes(0, run.scenario.duration_ns) * 8e-6 / seconds.max(1e-3);
    let slowness = (mbps / 50.0).max(1.0) + run.scenario.flows.len() as f64 / 50.0;
    Duration::from_secs(180) + Duration::from_secs_f64(10.0 * slowness * seconds)
}
