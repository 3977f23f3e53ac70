//! `pk3c-ccp lab traffic`: carries out one run that is given as JSON, in a guest; not for people.

use crate::cli::show;
use anyhow::{Context, Result};
use pathlab::Interrupt;
use pathlab::lab::guest::Order;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `pk3c-ccp lab traffic`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TrafficArgs {
    /// The run, as its host wrote it
    #[arg(long, value_name = "FILE")]
    run: PathBuf,
}

pub(crate) fn run(args: &TrafficArgs) -> Result<ExitCode> {
    let shown = args.run.display();
    let text = std::fs::read(&args.run).with_context(|| format!("cannot read {shown}"))?;
    let order: Order =
        serde_json::from_slice(&text).with_context(|| format!("{shown} is no run"))?;
    let interrupt = Interrupt::on_signals().context("cannot handle signals")?;
    let result = order.carry_out(&interrupt)?;
    show(&(serde_json::to_string(&result)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
