//! `pk3c-ccp demo`: the first comparison, on this machine, in a guest under virtual time, or in the simulator.

mod simulated;

use super::{NAME, doctor, show};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use pathlab::Interrupt;
use pathlab::demo::{DemoError, DemoOptions, run_demo};
use pathlab::guest;
use pathlab::requirements::{self, Missing};
use pathlab::row::Row;
use pathlab::scenario::Scheme;
use pathlab::table;
use serde::Serialize;
use std::fmt::Display;
use std::process::ExitCode;

/// Options of `pk3c-ccp demo`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Print one JSON object, and nothing else, on standard output
    #[arg(long)]
    json: bool,
    /// What carries the runs: this kernel and an emulated path in real time; a QEMU guest with a
    /// Debian kernel in virtual time (slower, and repeatable whatever else this machine does); or
    /// the simulator (no root, seconds) [default: host where that works, else sim]
    #[arg(long, value_enum)]
    backend: Option<BackendArg>,
    /// The guest's kernel [default: 6.12]
    #[arg(long, value_name = "VERSION")]
    kernel: Option<guest::KernelVersion>,
    /// In the guest: one flow only, for 10 s
    #[arg(long)]
    quick: bool,
    /// Parameters for the agent, as one text: --agent-args '--hb-queue 50%'
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    agent_args: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BackendArg {
    /// This machine
    Host,
    /// A QEMU guest
    Guest,
    /// The simulator
    Sim,
}

/// A report that says what carried its runs.
#[derive(Serialize)]
struct Carried<'a, R> {
    backend: &'static str,
    #[serde(flatten)]
    report: &'a R,
}

/// Prints the report on standard output.
fn print<R: Serialize + Display>(args: &DemoArgs, backend: &'static str, report: &R) -> Result<()> {
    if args.json {
        let carried = Carried { backend, report };
        show(&format!("{}\n", serde_json::to_string(&carried)?))?;
    } else {
        show(&format!("{report}\n"))?;
    }
    Ok(())
}

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let guest_only = [("quick", args.quick), ("kernel", args.kernel.is_some())];
    if let Some((flag, _)) = guest_only.iter().find(|(_, given)| *given)
        && !matches!(args.backend, Some(BackendArg::Guest))
    {
        bail!("--{flag} is for the guest: add --backend guest, or leave it out");
    }
    let rows = match args.backend {
        Some(BackendArg::Host) => on_host(args)?,
        Some(BackendArg::Guest) => in_guest(args)?,
        Some(BackendArg::Sim) => in_simulator(args, vec!["--backend sim".to_owned()])?,
        None => match obstacles(args)? {
            none if none.is_empty() => on_host(args)?,
            obstacles => in_simulator(args, obstacles)?,
        },
    };
    let void = rows.iter().filter(|row| row.is_void()).count();
    if void > 0 {
        tell!("{void} rows are void: the agent drove their flows for less than 99 % of the time");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The kernel's two, and an agent that runs `program`.
fn schemes(program: String, args: &DemoArgs) -> Vec<Scheme> {
    let mut command = vec![program, "run".into(), "--log-format".into(), "json".into()];
    command.extend(args.agent_args.split_whitespace().map(str::to_owned));
    vec![
        Scheme::Kernel("cubic".into()),
        Scheme::Kernel("bbr".into()),
        Scheme::Agent {
            name: NAME.into(),
            command,
        },
    ]
}

fn this_program() -> Result<String> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    match program.into_os_string().into_string() {
        Ok(path) => Ok(path),
        Err(path) => bail!(
            "the path of this program is not UTF-8: {}",
            path.to_string_lossy()
        ),
    }
}

fn on_host(args: &DemoArgs) -> Result<Vec<Row>> {
    doctor::no_agent_runs().context("cannot compare on this machine")?;
    let interrupt = Interrupt::on_signals().context("cannot handle signals")?;
    let options = DemoOptions::new(schemes(this_program()?, args));
    let done = run_demo(&options, &interrupt, &mut |line| tell!("{line}"));
    if let Err(DemoError::Interrupted { report, .. }) = &done
        && !report.rows.is_empty()
    {
        print(args, "host", report)?;
    }
    let report = done?;
    print(args, "host", &report)?;
    Ok(report.rows)
}

/// What keeps the comparison from running on this machine.
fn obstacles(args: &DemoArgs) -> Result<Vec<String>> {
    let mut obstacles = doctor::obstacles();
    // Modules that this loads are unloaded here, and loaded again for the runs.
    if let Err(Missing(missing)) = requirements::check(&schemes(this_program()?, args)) {
        obstacles.extend(missing);
    }
    Ok(obstacles)
}

fn in_simulator(args: &DemoArgs, why: Vec<String>) -> Result<Vec<Row>> {
    tell!(
        "SIMULATED: what follows comes from pk3c-ccp's simulator, not from a kernel's TCP, because of"
    );
    why.iter().for_each(|reason| tell!("  - {reason}"));
    let report = simulated::compare(&args.agent_args, why)?;
    print(args, "sim", &report)?;
    Ok(report.rows)
}

fn in_guest(args: &DemoArgs) -> Result<Vec<Row>> {
    let config = guest::Config {
        kernel: args.kernel.unwrap_or_default(),
        agent: Some(this_program()?.into()),
        jobs: std::thread::available_parallelism()?,
        interrupt: Interrupt::on_signals().context("cannot handle signals")?,
        ..guest::Config::default()
    };
    let schemes = schemes("/bin/pk3c-ccp".into(), args);
    let report = guest::demo(&config, &schemes, args.quick, &mut |progress| {
        let row = table::row(&progress.outcome.row);
        tell!(
            "[{:>2}/{}] {}",
            progress.done,
            progress.total,
            row.trim_end()
        );
    })?;
    print(args, "guest", &report)?;
    Ok(report.rows)
}
