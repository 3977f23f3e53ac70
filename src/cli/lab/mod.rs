//! `pk3c-ccp lab`: the experiments of the source documents, carried out again; one module per verb.

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

mod backend;
mod check;
mod export;
mod lineup;
mod list;
mod path;
mod report;
mod run;
mod scenarios;
mod score;
mod sim;
mod traffic;

/// Verbs of `pk3c-ccp lab`.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum LabVerb {
    /// List the scenarios: where they come from, how long they take, what can carry them
    List(list::ListArgs),
    /// Carry out scenarios under schemes, several times each; resumable
    Run(Box<run::RunArgs>),
    /// Show results: tables, JSON, a page, or the documents' own forms beside their numbers
    Report(report::ReportArgs),
    /// Judge results by the goals of performance
    Score(score::ScoreArgs),
    /// Check how exactly the emulator works on this machine
    Check(check::CheckArgs),
    /// Run any command inside an emulated path, as mahimahi's shells do
    Path(Box<path::PathArgs>),
    /// Write results in the formats of other programs
    Export(export::ExportArgs),
    /// Carry out one run that is given as JSON; what guests do
    #[command(hide = true)]
    Traffic(traffic::TrafficArgs),
}

pub(crate) fn run(verb: &LabVerb) -> Result<ExitCode> {
    match verb {
        LabVerb::List(args) => list::run(args),
        LabVerb::Run(args) => run::run(args),
        LabVerb::Report(args) => report::run(args),
        LabVerb::Score(args) => score::run(args),
        LabVerb::Check(args) => check::run(args),
        LabVerb::Path(args) => path::run(args),
        LabVerb::Export(args) => export::run(args),
        LabVerb::Traffic(args) => traffic::run(args),
    }
}
