//! `pk3c-ccp lab list`: the scenarios, where they come from, and what can carry them.

use super::scenarios::SourceArgs;
use crate::cli::scenario::{Plan, Scheme};
use crate::cli::show;
use anyhow::Result;
use pathlab::lab::inputs::path_in_words;
use pathlab::lab::suite::words;
use pathsim::{SECOND, Scenario};
use serde::Serialize;
use std::process::ExitCode;

/// Options of `pk3c-ccp lab list`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Print one JSON array instead of a table
    #[arg(long)]
    json: bool,
}

/// A scenario. The serialized field names are a public format.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    title: Option<String>,
    document: Option<String>,
    source: Option<String>,
    flows: usize,
    path: String,
    /// Length of a run, s, in its full and its short form.
    duration_s: f64,
    quick_s: f64,
    rounds: u32,
    /// What is compared unless `--cc` says otherwise.
    schemes: Vec<String>,
    /// What was changed to make it possible here.
    scaled: Option<String>,
    /// Whether programs send and receive; guests do not have them.
    programs: bool,
    /// What the simulator lacks for it, if anything, under the agent's algorithm.
    sim_lacks: Option<String>,
}

impl Row {
    fn of(plan: &Plan) -> Self {
        let seconds = |scenario: &Scenario| scenario.duration_ns as f64 / SECOND as f64;
        let lacks = plan.check_simulated(&Scheme::PK3C);
        Self {
            id: plan.id.clone(),
            title: plan.title.clone(),
            document: plan.document.clone(),
            source: plan.source.clone(),
            flows: plan.scenario.flows.len(),
            path: if plan.settings.loopback {
                "loopback".to_owned()
            } else {
                path_in_words(&plan.scenario.path)
            },
            duration_s: seconds(&plan.scenario),
            quick_s: seconds(&plan.in_short().scenario),
            rounds: plan.settings.rounds,
            schemes: plan.compared.iter().map(ToString::to_string).collect(),
            scaled: plan.scaled.clone(),
            programs: plan.schemes.iter().flatten().any(is_program)
                || plan.compared.iter().all(is_program),
            sim_lacks: lacks.err().map(|error| {
                let text = error.to_string();
                let lacks = text.split(':').next().unwrap_or(&text);
                lacks.trim_start_matches("the simulator has ").to_owned()
            }),
        }
    }

    fn status(&self) -> String {
        let host = match &self.scaled {
            Some(why) => format!("host: scaled ({why})"),
            None => "host: runs".to_owned(),
        };
        let sim = match &self.sim_lacks {
            Some(lacks) => format!("sim: has {lacks}"),
            None => "sim: runs".to_owned(),
        };
        let guest = match self.programs {
            true => "guest: has no programs",
            false => "guest: runs",
        };
        format!("{host}; {guest}; {sim}")
    }
}

fn is_program(scheme: &Scheme) -> bool {
    matches!(scheme, Scheme::Command(_))
}

pub(crate) fn run(args: &ListArgs) -> Result<ExitCode> {
    let plans = args.source.read()?;
    let rows: Vec<_> = plans.iter().map(Row::of).collect();
    let text = if args.json {
        serde_json::to_string(&rows)? + "\n"
    } else {
        table(&rows)
    };
    show(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Row]) -> String {
    let width = |cell: fn(&Row) -> usize| rows.iter().map(cell).max().unwrap_or(0);
    let ids = width(|row| row.id.len());
    let documents = width(|row| row.document.as_deref().unwrap_or("-").len()).max(8);
    let indent = " ".repeat(ids + documents + 29);
    let mut lines = vec![format!(
        "{:<ids$}  {:<documents$}  {:>5}  {:>7}  {:>7}  path; title; what carries it",
        "id", "document", "flows", "full", "quick"
    )];
    for row in rows {
        lines.push(format!(
            "{:<ids$}  {:<documents$}  {:>5}  {:>7}  {:>7}  {}",
            row.id,
            row.document.as_deref().unwrap_or("-"),
            row.flows,
            words(row.duration_s),
            words(row.quick_s),
            row.path
        ));
        lines.extend(row.title.iter().map(|title| format!("{indent}{title}")));
        lines.push(format!("{indent}{}", row.status()));
    }
    lines.push(format!(
        "{} scenarios; `pk3c-ccp lab run ID… --out FOLDER` carries them out\n",
        rows.len()
    ));
    lines.join("\n")
}
