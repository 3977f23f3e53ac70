//! The demo's comparison in the simulator, for users and machines that cannot have it with real TCP.

use crate::cli::params::ParamArgs;
use crate::cli::scenario::{Plan, Scheme};
use crate::cli::sim::runs::{self, Job, Keep};
use anyhow::Result;
use clap::{Args, Command, FromArgMatches};
use pathlab::row::Row;
use pathlab::scenario::PathSpec;
use pathlab::table;
use pathsim::{FlowSpec, Loss, QueueLimit, Results, SECOND, Scenario};
use serde::Serialize;
use std::fmt;

const FLOWS: [u32; 2] = [1, 4];
const DURATION_S: u64 = 30;
/// Between the starts of flows: those of a client are never at quite the same time.
const STAGGER_NS: u64 = 10_000_000;
const SEED: u64 = 1;
/// Of an agent on the same machine.
const AGENT_LATENCY_NS: u64 = 100_000;

/// The comparison's result; serialized, the demo's JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// One row per path, number of flows and scheme, as the other backends have them.
    pub(super) rows: Vec<Row>,
    /// Why it is simulated.
    why: Vec<String>,
    simulator: Simulator,
}

#[derive(Debug, Serialize)]
struct Simulator {
    run_s: u64,
    seed: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", table::render(&self.rows))?;
        writeln!(
            f,
            "SIMULATED ({DURATION_S} s of virtual time per run, seed {SEED}): no kernel took part.\n\
             share: goodput / (rate x 1448/1500 x (1 - loss)); RTT: every sample, not smoothed"
        )
    }
}

/// All runs, with these flags of the algorithm.
///
/// # Errors
/// A flag that the algorithm does not have.
pub(super) fn compare(flags: &str, why: Vec<String>) -> Result<Report> {
    let command = ParamArgs::augment_args(Command::new("--agent-args").no_binary_name(true));
    let params =
        ParamArgs::from_arg_matches(&command.try_get_matches_from(flags.split_whitespace())?)?;
    let paths = PathSpec::demo();
    let plans: Vec<_> = paths
        .iter()
        .flat_map(|path| FLOWS.map(|flows| plan(path, flows)))
        .collect();
    let jobs: Vec<_> = plans
        .iter()
        .flat_map(|plan| {
            schemes().map(|scheme| Job {
                plan,
                scheme,
                seed: SEED,
            })
        })
        .collect();
    let rows = runs::carry_out(&jobs, &params.0, Keep::default(), None, |job, outcome| {
        row(job, &outcome.results)
    })?;
    Ok(Report {
        rows,
        why,
        simulator: Simulator {
            run_s: DURATION_S,
            seed: SEED,
        },
    })
}

fn schemes() -> [Scheme; 3] {
    [Scheme::kernel("cubic"), Scheme::kernel("bbr"), Scheme::PK3C]
}

fn plan(path: &PathSpec, flows: u32) -> Plan {
    let rtt_ns = u64::try_from(path.rtt.as_nanos()).unwrap_or(u64::MAX);
    let mut simulated = pathsim::PathSpec::clean(path.rate_bps, rtt_ns);
    simulated.queue = QueueLimit::Packets(path.queue_packets);
    if path.loss > 0.0 {
        simulated.loss = Loss::Random(path.loss);
    }
    let flow = |number: u32| FlowSpec {
        start_ns: u64::from(number) * STAGGER_NS,
        ..FlowSpec::new("")
    };
    let scenario = Scenario {
        path: simulated,
        flows: (0..flows).map(flow).collect(),
        duration_ns: DURATION_S * SECOND,
        seed: SEED,
        series: false,
    };
    Plan::under_comparison(path.name.clone(), scenario, AGENT_LATENCY_NS)
}

fn row(job: &Job<'_>, run: &Results) -> Row {
    let retransmissions = run.flows.iter().map(|flow| flow.retransmissions);
    Row {
        path: job.plan.id.clone(),
        scheme: job.scheme.to_string(),
        flows: run.flows.len() as u32,
        goodput_mbps: run.goodput_mbps,
        share: run.share,
        rtt_p50_ms: run.rtt_p50_ms.unwrap_or(0.0),
        rtt_p95_ms: run.rtt_p95_ms.unwrap_or(0.0),
        retransmits: retransmissions.sum(),
        jain: pathsim::jain(run.flows.iter().map(|flow| flow.goodput_mbps)),
        // A simulated agent never fails, and has no process whose time could be taken.
        agent_driven: (job.scheme == Scheme::PK3C).then_some(1.0),
        agent_cpu: None,
    }
}
