//! `pk3c-ccp lab run`: scenarios under schemes, several times each, into a folder of results.

use super::backend::{Backend, Ready, check_paths, cpus};
use super::lineup;
use super::scenarios::SourceArgs;
use crate::cli::params::ParamArgs;
use crate::cli::scenario::Scheme;
use crate::cli::show;
use anyhow::{Context, Result, bail};
use clap::{Args, Command, FromArgMatches};
use pathlab::Interrupt;
use pathlab::guest::KernelVersion;
use pathlab::lab::report::{self, Groups, table};
use pathlab::lab::result::Conditions;
use pathlab::lab::suite::{Cache, Found, Store, Suite, SuiteRecord, Task, now};
use pk3c_ccp::params::Params;
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Options of `pk3c-ccp lab run`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Which scenarios: ids, beginnings of ids (B1 is B1-1, B1-6, …), or patterns such as 'P?'
    #[arg(value_name = "ID", required_unless_present_any = ["document", "scenarios"])]
    ids: Vec<String>,
    #[command(flatten)]
    source: SourceArgs,
    /// Schemes for the flows under test [default: what the scenario compares, mostly cubic,bbr,pk3c]
    #[arg(long, value_name = "SCHEME,…", value_delimiter = ',')]
    cc: Vec<Scheme>,
    /// Runs of each scenario under each scheme, with seeds from the first one on
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Folder for the results: one JSON file per run, and suite.json; what it has already is kept
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// What carries the runs
    #[arg(long, value_enum, default_value = "host")]
    backend: Backend,
    /// The guest's kernel
    #[arg(long, value_name = "VERSION", default_value = "6.12")]
    kernel: KernelVersion,
    /// The short forms of the scenarios
    #[arg(long)]
    quick: bool,
    /// First seed [default: each scenario's own]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Parameters for the agent, as one text: --agent-args '--hb-queue 50%'
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    agent_args: String,
    /// Runs side by side, where they do not take real time [default: one per core]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<NonZero<usize>>,
    /// Folder in which results of the kernel's own schemes are kept for later suites [default:
    /// pk3c-ccp/lab in the user's cache folder]
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Take no results from the cache, and put none there
    #[arg(long)]
    no_cache: bool,
    /// On the host, do without the null sender that checks the emulator on every path before; the
    /// results say so, and no cache is used
    #[arg(long)]
    no_self_check: bool,
}

const EXAMPLES: &str = "\
Examples:
  pk3c-ccp lab run C10 P12 --cc cubic,bbr,pk3c --reps 5 --out results/loss
  pk3c-ccp lab run --document geni --backend sim --quick --out results/geni-sim
  pk3c-ccp lab run 'B?-1' --cc pk3c --agent-args '--hb-queue 50%' --out results/b
The same command goes on where it was interrupted. Exit status 1 if a run has no good result.";

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let lineups = lineup::read(
        &args.source,
        &args.ids,
        &args.cc,
        (args.backend, args.quick),
    )?;
    let params = params(&args.agent_args)?;
    let carrier = args.backend.carrier(args.kernel)?;
    let subjects = lineup::subjects(&lineups, args.reps, args.seed);
    let mut tasks = lineup::tasks(&subjects, &carrier, &args.agent_args, args.quick)?;
    let interrupt = Interrupt::on_signals().context("cannot handle signals")?;
    // A limit of file sizes shall be an error to tell, not a signal to die from.
    flag::register(SIGXFSZ, Arc::default()).context("cannot handle signals")?;
    let conditions = conditions(args);
    let agent = (args.agent_args.as_str(), &params);
    let backend = (args.backend, args.kernel);
    let ready = Ready::new(backend, &subjects, agent, conditions.clone(), &interrupt)?;
    let store = Store::open(&args.out)?;
    // What was measured without a check is no baseline for later suites.
    let unchecked = args.backend.is_real_time() && args.no_self_check;
    let cache = match (&args.cache, args.no_cache || unchecked) {
        (_, true) => None,
        (Some(folder), false) => Some(Cache::new(folder)),
        (None, false) => Cache::of_user(),
    };
    let mut record = SuiteRecord {
        command: std::env::args().collect(),
        backend: args.backend.name().to_owned(),
        quick: args.quick,
        scenarios: lineups
            .iter()
            .map(|lineup| lineup.plan.id.clone())
            .collect(),
        order: lineup::orders(&lineups, args.reps),
        conditions,
        ..SuiteRecord::new()
    };
    state_order(&record, tasks.len());
    if args.backend.is_real_time() && !unchecked {
        let is_pending = is_pending(&tasks, &store, cache.as_ref());
        record.self_checks = check_paths(&subjects, &mut tasks, &is_pending, &interrupt)?;
    }
    record.self_check_skipped = unchecked;
    let jobs = args.jobs.or(NonZero::new(cpus()));
    let suite = Suite {
        tasks: &tasks,
        store: &store,
        cache: cache.as_ref(),
        jobs: jobs
            .filter(|_| !args.backend.is_real_time())
            .unwrap_or(NonZero::<usize>::MIN),
        real_time: args.backend.is_real_time(),
        interrupt: &interrupt,
    };
    let conduct = |index: usize| {
        let result = ready.conduct(index, &tasks[index]);
        result.map_err(|error| format!("{error:#}"))
    };
    let mut tell = |line: &str| tell!("{line}");
    suite.carry_out(&mut record, &conduct, &mut tell)?;
    conclude(&record, &tasks, &store, &interrupt)
}

/// The algorithm's parameters, as the agent would read them.
fn params(agent_args: &str) -> Result<Params> {
    let command = ParamArgs::augment_args(Command::new("--agent-args").no_binary_name(true));
    let matches = command.try_get_matches_from(agent_args.split_whitespace())?;
    Ok(ParamArgs::from_arg_matches(&matches)?.0)
}

fn conditions(args: &RunArgs) -> Conditions {
    let agent_args = args.agent_args.trim();
    Conditions {
        began: now(),
        kernel: args.backend.kernel(args.kernel),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: env!("PK3C_REVISION").to_owned(),
        algorithm: env!("PK3C_ALGORITHM").to_owned(),
        cpus: cpus(),
        agent_args: (!agent_args.is_empty()).then(|| agent_args.to_owned()),
        ..Conditions::default()
    }
}

/// Which runs have no result yet, neither in the folder nor in the cache.
fn is_pending(tasks: &[Task], store: &Store, cache: Option<&Cache>) -> Vec<bool> {
    let is_there = |task: &Task| {
        let cache = cache.filter(|_| task.reusable);
        matches!(store.find(&task.inputs), Found::Result(_))
            || cache.is_some_and(|cache| cache.find(&task.inputs).is_some())
    };
    tasks.iter().map(|task| !is_there(task)).collect()
}

fn state_order(record: &SuiteRecord, runs: usize) {
    let orders: Vec<_> = record.order.iter().map(|order| order.join(" ")).collect();
    let shown = orders.len().min(3);
    let more = if orders.len() > shown { " | …" } else { "" };
    tell!(
        "{runs} runs on {}; the schemes take turns: {}{more}",
        record.backend,
        orders[..shown].join(" | ")
    );
}

fn conclude(
    record: &SuiteRecord,
    tasks: &[Task],
    store: &Store,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    // Of this suite alone, whatever else is in the folder.
    let mut files: Vec<_> = tasks
        .iter()
        .map(|task| store.file_of(&task.inputs))
        .collect();
    files.retain(|file| file.exists());
    if !files.is_empty() {
        let results = report::read(&files)?;
        show(&table::render(&results, &Groups::of(&results)))?;
    }
    let counts = record.counts;
    let folder = store.folder().display();
    tell!(
        "{} of {} runs have a result in {folder}: {} made, {} kept, {} reused",
        counts.good(),
        counts.total,
        counts.made,
        counts.kept,
        counts.reused
    );
    for failure in &record.failures {
        let (scenario, scheme, seed) = (&failure.scenario, &failure.scheme, failure.seed);
        tell!(
            "FAILED: {scenario} {scheme}, seed {seed}: {}",
            failure.error
        );
    }
    if interrupt.is_raised() {
        bail!("interrupted: give the same command again to go on");
    }
    Ok(if counts.good() == counts.total {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
