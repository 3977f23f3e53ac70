//! `pk3c-ccp sim`: flows over a bottleneck, in virtual time.

mod decisions;
mod plot;
pub(super) mod runs;
mod summary;
mod table;

use super::params::ParamArgs;
use super::scenario::described::Described;
use super::scenario::{self, Flows, Scheme, values};
use super::show;
use anyhow::{Context, Result};
use runs::{Job, Keep};
use std::ffi::OsStr;
use std::num::NonZero;
use std::path::PathBuf;
use summary::Summary;

/// Decisions that are kept of each flow for `--decisions` and `--plot`.
const DECISIONS: usize = 20_000;

/// Options of `pk3c-ccp sim`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    verb: Option<SimVerb>,
    #[command(flatten)]
    one: OneArgs,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum SimVerb {
    /// Compare schemes over many scenarios and seeds: one row per scenario, as Markdown or JSON
    Table(table::TableArgs),
}

/// Options of one scenario.
#[derive(clap::Args, Clone, Debug)]
struct OneArgs {
    #[command(flatten)]
    path: Described,
    /// Schemes and how many flows of each: pk3c, vivace, upstream, exp, cubic, reno, bbr, or udp:RATE;
    /// they start 100 ms apart
    #[arg(
        long,
        value_name = "LIST",
        default_value = "pk3c,cubic",
        conflicts_with = "scenario",
        help_heading = "Flows"
    )]
    flows: Flows,
    /// Time from a packet's ACK to the agent's answer
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = values::time, conflicts_with = "scenario", help_heading = "Flows")]
    agent_latency: u64,
    /// Scheme of a file's flows that name none: those under test
    #[arg(
        long,
        value_name = "SCHEME",
        default_value = "pk3c",
        requires = "scenario",
        help_heading = "Flows"
    )]
    cc: Scheme,
    /// Length of the run [default: the file's, or 30s]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    duration: Option<u64>,
    /// Seed of all chance [default: the file's, or 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Runs, with seeds from the first one on; the table shows means
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Runs at the same time [default: one per core]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<NonZero<usize>>,
    /// Print one JSON object, and nothing else, on standard output
    #[arg(long)]
    json: bool,
    /// With --json: goodput, RTT and queue of every run in bins of 100 ms, too
    #[arg(long, requires = "json")]
    series: bool,
    /// With --json: what the agent decided, when and why, too
    #[arg(long, requires = "json")]
    decisions: bool,
    /// Draw rate, RTT, queue and decisions of the first run over time; .html adds the table
    #[arg(long, value_name = "FILE.svg|FILE.html", value_parser = picture)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    params: ParamArgs,
}

const EXAMPLES: &str = "\
Examples:
  pk3c-ccp sim --loss 1% --flows pk3c*2,cubic --duration 30s --seed 7
  pk3c-ccp sim --rate 100mbit --rtt 20ms --queue 10 --flows pk3c*10 --seeds 5
  pk3c-ccp sim --flows pk3c --duration 10s --plot run.html
  pk3c-ccp sim --scenario scenarios/comparison.toml --only loss1 --cc cubic
  pk3c-ccp sim table scenarios/comparison.toml --cc cubic,pk3c --seeds 5
Where it is installed, scenarios/ is in /usr/share/doc/pk3c-ccp.
A scenario file, of which docs/scenarios.md tells every key:
  duration = \"30s\"
  [path]
  rate = \"50mbit\"
  rtt = \"40ms\"
  queue = \"1bdp\"
  loss = \"1%\"
  [[flows]]                       # without a scheme: what --cc says
  count = 2
  [[flows]]
  scheme = \"cubic\"
  start = \"10s\"
share is the goodput over what the path can carry: rate x 1448/1500 x (1 - loss).";

/// A file of a kind that can be drawn.
fn picture(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    match file.extension().and_then(OsStr::to_str) {
        Some("svg" | "html") => Ok(file),
        _ => Err(format!(
            "`{text}` is neither a picture nor a page: write FILE.svg or FILE.html"
        )),
    }
}

pub(crate) fn run(args: &SimArgs) -> Result<()> {
    match &args.verb {
        Some(SimVerb::Table(args)) => table::run(args),
        None => run_one(&args.one),
    }
}

fn run_one(args: &OneArgs) -> Result<()> {
    let mut plan = match args.path.in_file(args.duration)? {
        Some(plan) => plan,
        None => scenario::of_flags(args.path.in_flags()?, &args.flows, args.agent_latency),
    };
    plan.scenario.duration_ns = args.duration.unwrap_or(plan.scenario.duration_ns);
    let first = args.seed.unwrap_or(plan.scenario.seed);
    let seeds = (0..args.seeds).map(|number| first.wrapping_add(number));
    let jobs: Vec<_> = seeds
        .map(|seed| Job {
            plan: &plan,
            scheme: args.cc.clone(),
            seed,
        })
        .collect();
    let keep = Keep {
        series: args.series || args.plot.is_some(),
        decisions: if args.decisions || args.plot.is_some() {
            DECISIONS
        } else {
            0
        },
    };
    let drawn = first;
    let outcomes = runs::carry_out(
        &jobs,
        &args.params.0,
        keep,
        args.jobs,
        |job, mut outcome| {
            let plot =
                (args.plot.is_some() && job.seed == drawn).then(|| plot::svg(&outcome, &plan));
            if !args.series {
                outcome.results.link_series.clear();
                outcome
                    .results
                    .flows
                    .iter_mut()
                    .for_each(|flow| flow.series.clear());
            }
            if !args.decisions {
                outcome.decisions.clear();
            }
            (outcome, plot)
        },
    )?;
    let (outcomes, plots): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
    let summary = Summary::of(outcomes);
    if let (Some(file), Some(Some(svg))) = (&args.plot, plots.into_iter().next()) {
        let html = file
            .extension()
            .is_some_and(|extension| extension == "html");
        let page = if html {
            plot::page(&svg, &plan, &summary)
        } else {
            svg
        };
        std::fs::write(file, page)
            .with_context(|| format!("cannot write the plot to {}", file.display()))?;
    }
    Ok(show(&if args.json {
        serde_json::to_string(&summary)? + "\n"
    } else {
        summary.to_string()
    })?)
}
