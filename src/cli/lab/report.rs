//! `pk3c-ccp lab report`: results of runs as tables, JSON, a page, or in the documents' forms.

use crate::cli::show;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use pathlab::lab::format::{bequant, iperf, markdown, ministat, pantheon};
use pathlab::lab::report::{self, Groups, html, json, table};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `pk3c-ccp lab report`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  pk3c-ccp lab report results/                          a table per scenario
  pk3c-ccp lab report results/ --compare cubic,pk3c     is pk3c better, and is that proven?
  pk3c-ccp lab report results/ --format pantheon        as Pantheon reports it, beside its numbers
  pk3c-ccp lab report results/ --html report.html       figures, for a browser")]
pub(crate) struct ReportArgs {
    /// Directories with results of `lab run --out`, or single files
    #[arg(required = true, value_name = "DIR")]
    places: Vec<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write a page of HTML that needs nothing else; prints nothing unless something else is asked for, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The form: our table, or that of one of the source documents beside its published numbers
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Compare two schemes by Student's t in each scenario: REFERENCE,SCHEME
    #[arg(long, value_name = "A,B", value_parser = pair, conflicts_with = "format")]
    compare: Option<Pair>,
    /// Only these scenarios, by id
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<String>,
}

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line per scheme
    Table,
    /// Statistics of each run and the table of means, as Stanford's Pantheon
    Pantheon,
    /// Samples with plot and verdicts, as FreeBSD's ministat
    Ministat,
    /// Streams and sums, as iperf3 (iperf2 for G*)
    Iperf,
    /// Triples of ours, other, change, as the Bequant study
    Bequant,
    /// Tables of Markdown, one for each document, with its numbers and claims
    Markdown,
}

/// Reference and scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair(String, String);

fn pair(text: &str) -> Result<Pair, String> {
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') => {
            Ok(Pair(a.to_owned(), b.to_owned()))
        }
        _ => Err("two schemes are needed, the reference first: cubic,pk3c".to_owned()),
    }
}

pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let mut results = report::read(&args.places)?;
    if !args.only.is_empty() {
        for id in &args.only {
            if !results
                .runs
                .iter()
                .any(|loaded| loaded.run.inputs.scenario == *id)
            {
                let mut ids: Vec<_> = results
                    .runs
                    .iter()
                    .map(|loaded| loaded.run.inputs.scenario.as_str())
                    .collect();
                ids.dedup();
                bail!(
                    "no results of the scenario {id}; there are {}",
                    ids.join(", ")
                );
            }
        }
        results
            .runs
            .retain(|loaded| args.only.contains(&loaded.run.inputs.scenario));
    }
    let groups = Groups::of(&results);
    if let Some(Pair(reference, scheme)) = &args.compare {
        for name in [reference, scheme] {
            if !groups.0.iter().any(|group| group.scheme == *name) {
                let mut names: Vec<_> = groups.0.iter().map(|group| group.scheme).collect();
                names.sort_unstable();
                names.dedup();
                bail!(
                    "no results of the scheme {name}; there are {}",
                    names.join(", ")
                );
            }
        }
    }
    if let Some(path) = &args.html {
        std::fs::write(path, html::render(&results, &groups))
            .with_context(|| format!("cannot write the page {}", path.display()))?;
        tell!("pk3c-ccp: wrote {}", path.display());
        if !args.json && args.format.is_none() && args.compare.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let pair = args
        .compare
        .as_ref()
        .map(|Pair(a, b)| (a.as_str(), b.as_str()));
    let text = if args.json {
        json::render(&results, &groups, pair)? + "\n"
    } else if let Some((reference, scheme)) = pair {
        table::comparison(&groups, reference, scheme) + &table::notes(&results, &groups)
    } else {
        match args.format.unwrap_or(Format::Table) {
            Format::Table => table::render(&results, &groups),
            Format::Pantheon => pantheon::render(&groups) + &table::notes(&results, &groups),
            Format::Ministat => ministat::render(&groups) + &table::notes(&results, &groups),
            Format::Iperf => iperf::render(&groups) + &table::notes(&results, &groups),
            Format::Markdown => markdown::render(&groups),
            Format::Bequant => bequant::render(&groups) + &table::notes(&results, &groups),
        }
    };
    show(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_takes_two_names() {
        assert_eq!(pair("cubic,pk3c"), Ok(Pair("cubic".into(), "pk3c".into())));
        for wrong in ["cubic", "cubic,", ",pk3c", "a,b,c", ""] {
            assert!(pair(wrong).is_err(), "{wrong}");
        }
    }
}
