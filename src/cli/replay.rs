//! `pk3c-ccp replay`: the decisions of a record, taken again.

mod accept;
mod difference;
pub(super) mod explain;

use super::is_closed;
use anyhow::{Context, Result, anyhow};
use difference::Comparison;
use explain::Explanation;
use pk3c_ccp::params::Params;
use pk3c_ccp::record::{Input, RecordError, Replay};
use pk3c_ccp::units::Micros;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `pk3c-ccp replay`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// Records, as `pk3c-ccp run --record FILE` writes them; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show what would have changed with another value of a parameter, named as the flags of
    /// `pk3c-ccp run`; may be repeated
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = param, conflicts_with = "accept")]
    params: Vec<(String, String)>,
    /// Put today's decisions into the files, where they differ. What was measured stays as it is
    #[arg(long, conflicts_with = "explain")]
    accept: bool,
    /// Tell interval by interval what was measured, and why the rate changed
    #[arg(long)]
    explain: bool,
    /// With --explain: only flows with this number, in the record or in `status` and the log; may be
    /// repeated
    #[arg(long = "flow", value_name = "NUMBER", requires = "explain")]
    flows: Vec<u64>,
    /// With --explain: only from this time of the record on, such as 12.5 (seconds) or 500ms
    #[arg(long, value_name = "TIME", requires = "explain", value_parser = seconds)]
    from: Option<f64>,
    /// With --explain: only up to this time of the record
    #[arg(long, value_name = "TIME", requires = "explain", value_parser = seconds)]
    to: Option<f64>,
    /// Differences that are shown for each file
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    show: usize,
    /// Print one JSON object, or with --explain one for each decision, and nothing else
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A record holds every report and every decision of an agent. Decisions follow from parameters, seed and reports alone, so
a replay comes to the same ones, unless the algorithm has changed.

Examples:
  pk3c-ccp run --record FILE                          make a record (root)
  pk3c-ccp replay FILE                                does this version decide the same?
  pk3c-ccp replay --explain --flow 1 --from 12 FILE   why did flow 1 slow down after 12 s?
  pk3c-ccp replay --param hb-loss=10% FILE            what would have been decided otherwise?
  pk3c-ccp replay --accept traces/*.jsonl             take a changed algorithm's decisions as the right ones

With --param each decision is taken anew from the recorded history: which ones would have been others, at that moment. The
network in the record answered the recorded rates, so what a change would achieve is for `pk3c-ccp sim` to show.

Exit status: 0 if all decisions are as recorded (or were accepted), 1 if some differ, 2 if a record or the command is bad,
or the result cannot be written.";

/// Exit status for a record that cannot be read, or a result that cannot be written.
const BAD: u8 = 2;
/// Flows in a message, at most.
const SHOWN: usize = 20;

fn param(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write NAME=VALUE, such as hb-loss=10%; `pk3c-ccp run --help` has the names")?;
    let name = name.trim_start_matches('-');
    let mut params = Params::default();
    let checked = params.set(name, value).map_err(|error| error.to_string());
    checked.map(|()| (name.to_owned(), value.to_owned()))
}

/// A time in seconds, with or without a unit.
fn seconds(text: &str) -> Result<f64, String> {
    let plain = text
        .parse()
        .ok()
        .filter(|s: &f64| s.is_finite() && *s >= 0.0);
    let micros = || text.parse::<Micros>().map_err(|error| error.to_string());
    plain.map_or_else(|| micros().map(Micros::as_secs), Ok)
}

/// What one file came to.
#[derive(Serialize)]
struct Outcome {
    file: String,
    #[serde(flatten)]
    comparison: Comparison,
    /// Decisions that were written into the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Replays the files one after the other; the exit status is that of the worst.
///
/// # Errors
/// If nobody reads the result any more.
pub(crate) fn run(args: &ReplayArgs) -> Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let told = replay_all(args, &mut out).and_then(|status| {
        out.flush()?;
        Ok(status)
    });
    match told {
        // A status that stands for differences must not come of anything else.
        Err(error) if !is_closed(&error) => {
            tell!(
                "pk3c-ccp: {:#}",
                error.context("cannot write what was found")
            );
            Ok(ExitCode::from(BAD))
        }
        told => told.map(ExitCode::from),
    }
}

fn replay_all(args: &ReplayArgs, out: &mut impl Write) -> Result<u8> {
    let mut status = 0;
    let mut outcomes = Vec::new();
    let mut flows = BTreeMap::new();
    for file in &args.files {
        let outcome = replay(args, file, &mut flows, out)?;
        status = status.max(if outcome.error.is_some() {
            BAD
        } else {
            u8::from(outcome.comparison.differ > 0 && outcome.accepted.is_none())
        });
        if let Some(error) = &outcome.error {
            out.flush()?;
            tell!("pk3c-ccp: {}: {error}", outcome.file);
        }
        if !args.json {
            tell(args, &outcome, out)?;
            continue;
        }
        outcomes.push(outcome);
    }
    let is_there = |number: &u64| {
        flows.contains_key(number) || flows.values().any(|sock_id| u64::from(*sock_id) == *number)
    };
    let absent = args.flows.iter().find(|number| !is_there(number));
    if let Some(absent) = absent.filter(|_| status < BAD) {
        out.flush()?;
        tell!(
            "pk3c-ccp: no flow has the number {absent}: {}",
            those(&flows)
        );
        status = BAD;
    }
    if args.json && !args.explain {
        let all = serde_json::json!({ "same": status == 0, "files": outcomes });
        writeln!(out, "{all}")?;
    }
    Ok(status)
}

/// The flows that there are, in words.
fn those(flows: &BTreeMap<u64, u32>) -> String {
    let some: Vec<_> = flows.keys().take(SHOWN).map(u64::to_string).collect();
    let more = match flows.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if some.is_empty() {
        return "there are none".to_owned();
    }
    format!("there are {}{more}", some.join(", "))
}

/// Adds the record's flows to `flows`, with the datapath's numbers of their sockets. Errors of the record are part of
/// the outcome; `Err` is a failure to write the result.
fn replay(
    args: &ReplayArgs,
    file: &Path,
    flows: &mut BTreeMap<u64, u32>,
    out: &mut impl Write,
) -> Result<Outcome> {
    let mut outcome = Outcome {
        file: name(file),
        comparison: Comparison::new(args.show),
        accepted: None,
        error: None,
    };
    let input = match open(file) {
        Ok(input) => input,
        Err(error) => {
            outcome.error = Some(format!("{error:#}"));
            return Ok(outcome);
        }
    };
    let mut explanation = args.explain.then(|| Explanation::new(args));
    match Replay::new(input, &args.params) {
        Err(error) => outcome.error = Some(error.to_string()),
        Ok(replay) => {
            for step in replay {
                let step = match step {
                    Ok(step) => step,
                    Err(error) => {
                        outcome.error = Some(before(&error, &outcome.comparison));
                        break;
                    }
                };
                outcome.comparison.take(&step);
                if let Input::Start { sock_id, .. } = step.input {
                    flows.insert(step.flow, sock_id);
                }
                if let Some(explanation) = &mut explanation {
                    explanation.tell(&step, out)?;
                }
            }
        }
    }
    outcome.comparison.finish();
    if args.accept && outcome.error.is_none() && outcome.comparison.differ > 0 {
        match accept::file(file) {
            Ok(changed) => outcome.accepted = Some(changed),
            Err(error) => outcome.error = Some(format!("{error:#}")),
        }
    }
    Ok(outcome)
}

/// An error in the middle of a record, with what was seen before it.
fn before(error: &RecordError, comparison: &Comparison) -> String {
    let Comparison {
        decisions, differ, ..
    } = comparison;
    format!("{error} ({decisions} decisions before it, {differ} of them differ)")
}

fn name(file: &Path) -> String {
    if is_stdin(file) {
        return "standard input".to_owned();
    }
    file.display().to_string()
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn open(file: &Path) -> Result<Box<dyn BufRead>> {
    if is_stdin(file) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).context("cannot open it")?;
    if opened.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(anyhow!(
            "this is a folder: give the records in it, such as {}/*.jsonl",
            file.display()
        ));
    }
    Ok(Box::new(BufReader::new(opened)))
}

fn tell(args: &ReplayArgs, outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    let Outcome {
        file,
        comparison,
        accepted,
        error,
    } = outcome;
    if error.is_some() {
        return Ok(());
    }
    let changes: Vec<_> = args
        .params
        .iter()
        .map(|(name, value)| format!("--{name} {value}"))
        .collect();
    let with = changes.join(" ");
    write!(out, "{file}: {}", comparison.headline(&with))?;
    match accepted {
        Some(count) => writeln!(out, "; {count} decisions were written into the file"),
        None => {
            writeln!(out)?;
            comparison.details(&with, out)
        }
    }
}
