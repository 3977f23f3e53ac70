//! `pk3c-ccp lab check`: how exactly the emulator works on this machine.

use crate::cli::scenario;
use anyhow::{Context, Result};
use pathlab::Interrupt;
use pathlab::lab::inputs::path_in_words;
use pathlab::lab::result::SelfCheck;
use pathlab::{accuracy, lateness, requirements, self_check};
use pathsim::PathSpec;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `pk3c-ccp lab check`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Only paths whose description has this text
    #[arg(value_name = "TEXT")]
    only: Option<String>,
    /// Check the paths of a scenario file instead of the usual ones
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Seed of all chance
    #[arg(long, value_name = "NUMBER", default_value_t = scenario::SEED)]
    seed: u64,
    /// Print one JSON array instead of a table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  pk3c-ccp lab check
  pk3c-ccp lab check 500
  pk3c-ccp lab check --scenario scenarios/geni.toml --json
Where it is installed, scenarios/ is in /usr/share/doc/pk3c-ccp.
A null sender measures what the emulator makes of each path; 2 to 3 s per path. Exit status 1 if a path
deviates: capacity by more than 2 %, delay by more than 2 % and 0.2 ms, loss by more than chance
explains, or if 1 % of the packets are more than 1 ms late. It takes root.";

pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode> {
    requirements::check_path()?;
    let interrupt = Interrupt::on_signals().context("cannot handle signals")?;
    let mut checks = Vec::new();
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(
            out,
            "| path | Mbit/s asked | found | delay ms | found | loss % | found | late p99 µs | |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
    }
    for (words, path) in paths(args)? {
        let bound_us = lateness::P99_BOUND_US;
        let check = self_check::run(&words, &path, bound_us, args.seed, &interrupt)
            .with_context(|| format!("cannot check {words}"))?;
        if !args.json {
            writeln!(out, "{}", row(&check))?;
        }
        checks.push(check);
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&checks)?)?;
    }
    let passed = checks.iter().all(|check| check.passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn paths(args: &CheckArgs) -> Result<Vec<(String, PathSpec)>> {
    let mut paths = match &args.scenario {
        None => accuracy::paths()?
            .into_iter()
            .map(|(words, path)| (words.to_owned(), path))
            .collect(),
        Some(file) => {
            let plans = scenario::read(file)?.into_iter();
            let emulated = plans.filter(|plan| !plan.settings.loopback);
            let path = emulated.map(|plan| {
                let path = plan.scenario.path;
                (format!("{}: {}", plan.id, path_in_words(&path)), path)
            });
            path.collect::<Vec<_>>()
        }
    };
    if let Some(text) = &args.only {
        paths.retain(|(words, _)| words.contains(text));
        anyhow::ensure!(
            !paths.is_empty(),
            "no path has `{text}` in its description: `pk3c-ccp lab check` shows them all"
        );
    }
    Ok(paths)
}

fn row(check: &SelfCheck) -> String {
    let SelfCheck {
        capacity_mbps,
        delay_ms,
        loss,
        late_p99_us,
        ..
    } = check;
    format!(
        "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {} |",
        check.path,
        capacity_mbps.asked,
        capacity_mbps.measured,
        delay_ms.asked,
        delay_ms.measured,
        loss.asked * 100.0,
        loss.measured * 100.0,
        late_p99_us.measured,
        if check.passed { "ok" } else { "deviates" },
    )
}
