//! What to simulate, from flags or from TOML files.
//!
//! A file holds one scenario (`[path]` and `[[flows]]`) or several (`[[scenario]]`, each with its own). Flows without a
//! scheme are those under test: who runs the scenario says which scheme they get.

mod file;
mod reader;
pub(super) mod values;

use anyhow::{Context, Result, bail};
use pathsim::{
    FlowSpec, Jitter, Loss, PathSpec, QueueLimit, RateSchedule, Scenario, Trace, Transport,
};
use reader::Source;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use values::{Flows, Queue, Scheme};

pub(in crate::cli) const DURATION_NS: u64 = 30_000_000_000;
pub(in crate::cli) const SEED: u64 = 1;
pub(in crate::cli) const AGENT_LATENCY_NS: u64 = 100_000;
/// Stands in until the path's own rate is set.
const MIN_RATE_BPS: u64 = 1000;
/// Between the starts of flows that are not told when.
pub(in crate::cli) const STAGGER_NS: u64 = 100_000_000;

/// Which part of a run counts for a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) enum Measure {
    /// The second half: how the scheme does once it has settled.
    #[default]
    SecondHalf,
    /// All of it: for paths that change.
    Run,
}

impl std::str::FromStr for Measure {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "second-half" => Ok(Self::SecondHalf),
            "run" => Ok(Self::Run),
            _ => Err(format!(
                "`{text}` is not a part of a run: write second-half or run"
            )),
        }
    }
}

/// A scenario, and what drives its flows.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Plan {
    pub(in crate::cli) id: String,
    pub(in crate::cli) title: Option<String>,
    pub(in crate::cli) measure: Measure,
    pub(in crate::cli) scenario: Scenario,
    /// One for each flow; `None` for the scheme under test.
    pub(in crate::cli) schemes: Vec<Option<Scheme>>,
    pub(in crate::cli) agent_latency_ns: u64,
}

impl Plan {
    /// A scenario in which every flow is under test.
    pub(in crate::cli) fn under_comparison(
        id: String,
        scenario: Scenario,
        agent_latency_ns: u64,
    ) -> Self {
        Self {
            id,
            title: None,
            measure: Measure::default(),
            schemes: vec![None; scenario.flows.len()],
            scenario,
            agent_latency_ns,
        }
    }

    /// Gives the flows under test their scheme.
    pub(in crate::cli) fn under_test(&self, scheme: Scheme) -> (Scenario, Vec<Scheme>) {
        let schemes: Vec<_> = self
            .schemes
            .iter()
            .map(|given| given.unwrap_or(scheme))
            .collect();
        let mut scenario = self.scenario.clone();
        for (spec, scheme) in scenario.flows.iter_mut().zip(&schemes) {
            spec.scheme = scheme.to_string();
            spec.transport = match scheme {
                Scheme::Udp(_) => Transport::Udp,
                _ => Transport::Tcp,
            };
        }
        (scenario, schemes)
    }
}

/// A path as given, before what depends on all of it.
#[derive(Clone, Debug)]
pub(in crate::cli) struct PathParts {
    pub(in crate::cli) rate: RateSchedule,
    pub(in crate::cli) rtt_ns: u64,
    pub(in crate::cli) queue: Queue,
    pub(in crate::cli) loss: f64,
    pub(in crate::cli) loss_burst: Option<f64>,
    pub(in crate::cli) jitter_ns: u64,
    pub(in crate::cli) reorder: bool,
}

impl PathParts {
    pub(in crate::cli) fn path(self) -> PathSpec {
        let mut path = PathSpec {
            rate: self.rate,
            rtt_ns: self.rtt_ns,
            loss: losses(self.loss, self.loss_burst),
            jitter: Jitter {
                max_ns: self.jitter_ns,
                reorder: self.reorder,
            },
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

pub(in crate::cli) fn losses(ratio: f64, burst: Option<f64>) -> Loss {
    match burst {
        _ if ratio == 0.0 => Loss::None,
        Some(mean_length) => Loss::Bursts { ratio, mean_length },
        None => Loss::Random(ratio),
    }
}

/// A scenario of flags.
pub(in crate::cli) fn of_flags(path: PathSpec, flows: &Flows, agent_latency_ns: u64) -> Plan {
    let spec = |number: u64| FlowSpec {
        start_ns: number * STAGGER_NS,
        ..FlowSpec::new("")
    };
    Plan {
        id: "flags".to_owned(),
        title: None,
        measure: Measure::default(),
        scenario: Scenario {
            path,
            flows: (0..flows.0.len() as u64).map(spec).collect(),
            duration_ns: DURATION_NS,
            seed: SEED,
            series: false,
        },
        schemes: flows.0.iter().copied().map(Some).collect(),
        agent_latency_ns,
    }
}

/// Reads a mahimahi trace.
pub(in crate::cli) fn trace(file: &Path) -> Result<RateSchedule> {
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

/// Reads a file of one or more scenarios.
pub(in crate::cli) fn read(file: &Path) -> Result<Vec<Plan>> {
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
    file::parse(source, file.parent().unwrap_or(Path::new("")), &stem)
}
