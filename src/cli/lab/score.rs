//! `pk3c-ccp lab score`: which goals of performance results keep, of the algorithm as it is.

use super::scenarios::SourceArgs;
use crate::cli::scenario::Plan;
use crate::cli::show;
use anyhow::{Context, Result, bail};
use pathlab::lab::inputs::path_in_words;
use pathlab::lab::report::{self, Group, Groups, Results};
use pathlab::lab::result::RunResult;
use pathlab::lab::score::{self, Judged, show as shown};
use pathsim::SECOND;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// The algorithm that this program was built with.
const ALGORITHM: &str = env!("PK3C_ALGORITHM");
/// Files in a message, at most.
const NAMED: usize = 5;

/// Options of `pk3c-ccp lab score`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  pk3c-ccp lab run --document goals --cc cubic,pk3c --backend sim --reps 3 --out results/goals
  pk3c-ccp lab score results/goals --missed
Figures are medians over the runs. Exit status 1 if results are of another revision of the algorithm: they are named, and
nothing is judged. That goals are missed is no failure.")]
pub(crate) struct ScoreArgs {
    /// Directories with results of `lab run --out`, or single files
    #[arg(required = true, value_name = "DIR")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    /// The scheme to judge
    #[arg(long, value_name = "SCHEME", default_value = "pk3c")]
    scheme: String,
    /// Only goals that are not kept, and the sums
    #[arg(long, conflicts_with = "json")]
    missed: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ScoreArgs) -> Result<ExitCode> {
    let results = report::read(&args.places)?;
    for (path, reason) in &results.unreadable {
        tell!("pk3c-ccp: {} was not read: {reason}", path.display());
    }
    refuse_others(&results, &args.scheme)?;
    let judged = judge(args, &results)?;
    let text = if args.json {
        shown::json(&judged, &args.scheme, ALGORITHM)? + "\n"
    } else {
        shown::markdown(&judged, &args.scheme, args.missed)
    };
    show(&text).context("cannot print the goals")?;
    Ok(ExitCode::SUCCESS)
}

/// Results that cannot be judged together, or not with this program.
fn refuse_others(results: &Results, scheme: &str) -> Result<()> {
    let others: Vec<_> = results
        .runs
        .iter()
        .filter(|loaded| is_agent_in(&loaded.run) && loaded.run.conditions.algorithm != ALGORITHM)
        .collect();
    if !others.is_empty() {
        for loaded in others.iter().take(NAMED) {
            let conditions = &loaded.run.conditions;
            let of = match conditions.algorithm.as_str() {
                "" => "a revision that it does not name",
                algorithm => algorithm,
            };
            let (path, revision) = (loaded.path.display(), &conditions.revision);
            tell!("pk3c-ccp: {path}: the algorithm is {of} (program {revision})");
        }
        bail!(
            "{} of {} results are of another revision of the algorithm than this program's, {ALGORITHM}: make them anew \
             with `pk3c-ccp lab run`, or score them with the program that made them",
            others.len(),
            results.runs.len()
        );
    }
    one_of(
        results
            .runs
            .iter()
            .map(|loaded| &*loaded.run.inputs.backend),
        "backends",
    )?;
    let own = results.runs.iter().map(|loaded| &loaded.run);
    let own = own.filter(|run| run.inputs.scheme == scheme);
    let arguments = own.map(|run| run.conditions.agent_args.as_deref().unwrap_or("none"));
    one_of(arguments, "arguments of the agent")
}

fn one_of<'a>(values: impl Iterator<Item = &'a str>, what: &str) -> Result<()> {
    let values: BTreeSet<_> = values.collect();
    if values.len() > 1 {
        let values: Vec<_> = values.into_iter().collect();
        bail!(
            "the results are of several {what} ({}): give a directory for each, one at a time",
            values.join("; ")
        );
    }
    Ok(())
}

/// Whether the algorithm drove one of the flows.
fn is_agent_in(run: &RunResult) -> bool {
    let is_agent = |scheme: &str| matches!(scheme, "pk3c" | "vivace" | "upstream");
    is_agent(&run.inputs.scheme) || run.flows.iter().any(|flow| is_agent(&flow.scheme))
}

/// Goals depend on the scenario, so it must be the one that was run.
fn check_scenario(plan: &Plan, group: &Group<'_>) -> Result<()> {
    let path = path_in_words(&plan.scenario.path);
    let duration_s = plan.scenario.duration_ns as f64 / SECOND as f64;
    for run in &group.runs {
        let inputs = &run.inputs;
        if inputs.path != path || inputs.duration_s != duration_s {
            bail!(
                "the results of {} are of {} s on {}, and the scenario is {duration_s} s on {path}: make them anew, or name \
                 the file of their scenarios with --scenarios",
                plan.id,
                inputs.duration_s,
                inputs.path
            );
        }
    }
    Ok(())
}

fn judge(args: &ScoreArgs, results: &Results) -> Result<Vec<Judged>> {
    let plans = args.source.read()?;
    let groups = Groups::of(results);
    let mut judged = Vec::new();
    let mut without = BTreeSet::new();
    for plan in &plans {
        let Some(group) = groups.find(&plan.id, &args.scheme) else {
            continue;
        };
        check_scenario(plan, group)?;
        match score::judge(&plan.id, &plan.scenario, &args.scheme, &groups) {
            Some(goals) => judged.push(goals),
            None if score::has_goals(&plan.id) => tell!(
                "pk3c-ccp: {} is not judged: none of its runs under {} counts",
                plan.id,
                args.scheme
            ),
            None => {
                without.insert(plan.id.as_str());
            }
        }
    }
    if !without.is_empty() {
        let without: Vec<_> = without.into_iter().collect();
        tell!("pk3c-ccp: no goals for {}", without.join(", "));
    }
    if judged.is_empty() {
        bail!(
            "no result under {} is of a scenario with goals: `pk3c-ccp lab run --document goals` makes some",
            args.scheme
        );
    }
    Ok(judged)
}
