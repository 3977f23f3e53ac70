//! A path as a command's flags describe it, or a file.

use super::aqm::Aqm;
use super::values::{self, Queue};
use super::{PathParts, Plan, bucket, losses, read_for, trace, uniform_jitter};
use anyhow::{Result, bail};
use pathsim::{PathSpec, RateSchedule};
use std::path::{Path, PathBuf};

/// Where a path's description is: in a scenario file, or in the other flags.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Path")]
pub(in crate::cli) struct Described {
    /// Read the scenario from a TOML file instead of flags (every key: docs/scenarios.md)
    #[arg(long, value_name = "FILE", conflicts_with = "PathFlags")]
    scenario: Option<PathBuf>,
    /// Which scenario of a file that holds several
    #[arg(long, value_name = "ID", requires = "scenario")]
    only: Option<String>,
    #[command(flatten)]
    flags: PathFlags,
}

/// Flags that describe a path.
#[derive(clap::Args, Clone, Debug)]
struct PathFlags {
    /// Rate of the bottleneck, counted on IP packets
    #[arg(long, value_name = "RATE", default_value = "50mbit", value_parser = values::rate)]
    rate: u64,
    /// Use the capacity of a mahimahi trace instead of a constant rate
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<PathBuf>,
    /// Two-way propagation delay, half of it each way
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = values::time)]
    rtt: u64,
    /// Queue: packets, bytes as in 64kB, or bandwidth-delay products as in 0.5bdp [default: 1bdp, or
    /// 127 packets under sfq]
    #[arg(long, value_name = "SIZE")]
    queue: Option<Queue>,
    /// How the queue drops
    #[arg(long, value_enum, default_value = "none")]
    aqm: Aqm,
    /// Random loss on the way there, behind the bottleneck
    #[arg(long, value_name = "RATIO", default_value = "0%", value_parser = values::loss)]
    loss: f64,
    /// Lose packets in bursts of this mean length (Gilbert-Elliott)
    #[arg(long, value_name = "PACKETS", requires = "loss", value_parser = values::burst)]
    loss_burst: Option<f64>,
    /// Random loss on the way back
    #[arg(long, value_name = "RATIO", default_value = "0%", value_parser = values::loss)]
    ack_loss: f64,
    /// Random extra delay of each packet on the way there, from 0 to this
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = values::time)]
    jitter: u64,
    /// Jitter may reorder packets
    #[arg(long, requires = "jitter")]
    reorder: bool,
    /// Drop what comes faster than this in front of the bottleneck, as operators police a subscriber
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    police: Option<u64>,
    /// Bytes of it that may come at once [default: 100 ms of its rate]
    #[arg(long, value_name = "SIZE", requires = "police", value_parser = values::size)]
    police_burst: Option<u64>,
    /// Let no more than this leave the queue once a burst has left at the link's rate, as operators shape a subscriber
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    shape: Option<u64>,
    /// Bytes of it that may leave at once [default: 100 ms of its rate]
    #[arg(long, value_name = "SIZE", requires = "shape", value_parser = values::size)]
    shape_burst: Option<u64>,
}

impl Described {
    /// The file's scenario that is meant, for runs of this length if it is not the file's; `None` without a file.
    pub(in crate::cli) fn in_file(&self, length_ns: Option<u64>) -> Result<Option<Plan>> {
        match &self.scenario {
            Some(file) => pick(file, length_ns, self.only.as_deref()).map(Some),
            None => Ok(None),
        }
    }

    /// The path that flags describe.
    pub(in crate::cli) fn in_flags(&self) -> Result<PathSpec> {
        let flags = &self.flags;
        let rate = match &flags.trace {
            Some(file) => trace(file)?,
            None => RateSchedule::Constant(flags.rate),
        };
        let parts = PathParts {
            rate,
            rtt_ns: flags.rtt,
            queue: flags.queue.unwrap_or(flags.aqm.usual_queue()),
            loss: flags.loss,
            loss_burst: flags.loss_burst,
            jitter: uniform_jitter(flags.jitter, flags.reorder),
            policer: bucket(flags.police, flags.police_burst),
            shaper: bucket(flags.shape, flags.shape_burst),
        };
        Ok(PathSpec {
            ack_loss: losses(flags.ack_loss, None),
            discipline: flags.aqm.discipline(),
            ..parts.path()
        })
    }
}

/// The scenario of that name, or the only one.
fn pick(file: &Path, length_ns: Option<u64>, only: Option<&str>) -> Result<Plan> {
    let mut plans = read_for(file, length_ns)?;
    let index = match only {
        Some(only) => plans.iter().position(|plan| plan.id == only),
        None => (plans.len() == 1).then_some(0),
    };
    if let Some(index) = index {
        return Ok(plans.swap_remove(index));
    }
    let ids: Vec<_> = plans.iter().map(|plan| plan.id.as_str()).collect();
    let (file, ids) = (file.display(), ids.join(", "));
    match only {
        Some(only) => bail!("{file} has no scenario `{only}`; it has {ids}"),
        None => bail!("{file} has several scenarios: choose one with --only: {ids}"),
    }
}
