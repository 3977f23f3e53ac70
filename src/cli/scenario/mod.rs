//! What to simulate, from flags or from TOML files.
//!
//! A file holds one scenario (`[path]` and `[[flows]]`) or several (`[[scenario]]`, each with its own). Flows without a
//! scheme are those under test: who runs the scenario says which scheme they get.

mod aqm;
pub(super) mod described;
mod file;
mod flows;
mod path;
mod plan;
pub(super) mod reader;
mod scheme;
#[cfg(test)]
mod shipped;
pub(super) mod values;

use anyhow::{Context, Result, bail};
use pathsim::{
    FlowSpec, Jitter, Loss, PathSpec, QueueLimit, RateSchedule, Scenario, TokenBucket, Trace, WIRE,
};
pub(super) use plan::{Measure, Plan};
use reader::Source;
pub(super) use scheme::{Flows, Scheme};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use values::Queue;

pub(in crate::cli) const DURATION_NS: u64 = 30_000_000_000;
pub(in crate::cli) const SEED: u64 = 1;
pub(in crate::cli) const AGENT_LATENCY_NS: u64 = 100_000;
/// Stands in until the path's own rate is set.
const MIN_RATE_BPS: u64 = 1000;
/// Between the starts of flows that are not told when.
pub(in crate::cli) const STAGGER_NS: u64 = 100_000_000;

/// A path as given, before what depends on all of it.
#[derive(Clone, Debug)]
struct PathParts {
    rate: RateSchedule,
    rtt_ns: u64,
    queue: Queue,
    loss: f64,
    loss_burst: Option<f64>,
    jitter: Jitter,
    policer: Option<TokenBucket>,
    shaper: Option<TokenBucket>,
}

impl PathParts {
    fn path(self) -> PathSpec {
        let mut path = PathSpec {
            rate: self.rate,
            rtt_ns: self.rtt_ns,
            loss: losses(self.loss, self.loss_burst),
            jitter: self.jitter,
            policer: self.policer,
            shaper: self.shaper,
            ..PathSpec::clean(MIN_RATE_BPS, 0)
        };
        path.queue = match self.queue {
            Queue::Packets(packets) => QueueLimit::Packets(packets),
            Queue::Bytes(bytes) => QueueLimit::Bytes(bytes),
            Queue::Products(products) => QueueLimit::Packets(path.bdp_packets(products)),
        };
        path
    }
}

fn losses(ratio: f64, burst: Option<f64>) -> Loss {
    match burst {
        _ if ratio == 0.0 => Loss::None,
        Some(mean_length) => Loss::Bursts { ratio, mean_length },
        None => Loss::Random(ratio),
    }
}

/// A policer or a shaper, with the burst that goes without saying: what it lets pass in 100 ms, as operators choose it
/// at least.
fn bucket(rate_bps: Option<u64>, burst_bytes: Option<u64>) -> Option<TokenBucket> {
    rate_bps.map(|rate_bps| TokenBucket {
        rate_bps,
        burst_bytes: burst_bytes.unwrap_or((rate_bps / 80).max(WIRE)),
    })
}

/// Uniform delay from 0 to a limit, if that is above 0.
fn uniform_jitter(max_ns: u64, reorder: bool) -> Jitter {
    match max_ns {
        0 => Jitter::None,
        _ => Jitter::Uniform { max_ns, reorder },
    }
}

/// A scenario of flags.
pub(in crate::cli) fn of_flags(path: PathSpec, flows: &Flows, agent_latency_ns: u64) -> Plan {
    let spec = |number: u64| FlowSpec {
        start_ns: number * STAGGER_NS,
        ..FlowSpec::new("")
    };
    let scenario = Scenario {
        path,
        flows: (0..flows.0.len() as u64).map(spec).collect(),
        duration_ns: DURATION_NS,
        seed: SEED,
        series: false,
    };
    let schemes = flows.0.iter().cloned().map(Some).collect();
    Plan::new("flags".to_owned(), scenario, schemes, agent_latency_ns)
}

/// Reads a mahimahi trace.
fn trace(file: &Path) -> Result<RateSchedule> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the trace {}", file.display()))?;
    let trace = Trace::parse(&text).with_context(|| file.display().to_string())?;
    Ok(RateSchedule::Trace(Arc::new(trace)))
}

/// Reads scenario files, and all `*.toml` of folders in the order of their names.
pub(in crate::cli) fn read_all(places: &[PathBuf]) -> Result<Vec<Plan>> {
    let mut plans: Vec<Plan> = Vec::new();
    for place in places {
        for file in files(place)? {
            for plan in read(&file)? {
                if plans.iter().any(|other| other.id == plan.id) {
                    bail!(
                        "{}: the id `{}` occurs twice: give each scenario its own",
                        file.display(),
                        plan.id
                    );
                }
                plans.push(plan);
            }
        }
    }
    Ok(plans)
}

fn files(place: &Path) -> Result<Vec<PathBuf>> {
    if !place.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let unreadable = || format!("cannot read the folder {}", place.display());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(place).with_context(unreadable)?.collect();
    let mut files: Vec<_> = entries
        .with_context(unreadable)?
        .iter()
        .map(std::fs::DirEntry::path)
        .collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "toml")
    });
    files.sort();
    if files.is_empty() {
        bail!(
            "the folder {} has no scenario: they end in .toml",
            place.display()
        );
    }
    Ok(files)
}

/// Reads scenarios that the program carries with it. They have no traces.
pub(in crate::cli) fn read_text(name: &str, text: &str) -> Result<Vec<Plan>> {
    let stem = name.trim_end_matches(".toml");
    file::parse(Source { name, text }, Path::new(""), stem, None)
}

/// Reads a file of one or more scenarios.
pub(in crate::cli) fn read(file: &Path) -> Result<Vec<Plan>> {
    read_for(file, None)
}

/// The same for runs of another length than the file's: a rate that is drawn lasts for so long.
fn read_for(file: &Path, length_ns: Option<u64>) -> Result<Vec<Plan>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the scenario {}", file.display()))?;
    let name = file.display().to_string();
    let source = Source {
        name: &name,
        text: &text,
    };
    let stem = file
        .file_stem()
        .map_or("scenario".into(), |stem| stem.to_string_lossy());
    file::parse(
        source,
        file.parent().unwrap_or(Path::new("")),
        &stem,
        length_ns,
    )
}
