//! Congestion controls on emulated paths inside a QEMU guest under virtual time.
//!
//! ```text
//! cargo run --release -p pathlab --example guest -- --schemes cubic,bbr --flows 1,4 --secs 30 \
//!     --path clean --path rate=20mbit,rtt=80ms,queue=1bdp,loss=0.5%
//! ```

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use pathlab::Interrupt;
use pathlab::guest::{self, AGENT_BINARY, Action, Config, Event, KernelVersion, Report};
use pathlab::scenario::{PathSpec, Scheme};

/// Compares congestion controls on emulated paths in a QEMU guest under virtual time.
#[derive(Parser)]
struct Options {
    /// Kernel of the guest: 6.1 or 6.12.
    #[arg(long, default_value_t)]
    kernel: KernelVersion,
    /// The agent's binary; any scheme but cubic, reno and bbr is one that it registers.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// The agent's arguments, separated by blanks.
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "run",
        allow_hyphen_values = true
    )]
    agent_args: String,
    /// Congestion controls to compare.
    #[arg(long, value_delimiter = ',', default_value = "cubic,bbr,pk3c")]
    schemes: Vec<String>,
    /// Numbers of flows that share the path.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    flows: Vec<u32>,
    /// Duration of every run, in seconds of the guest's time.
    #[arg(long, default_value_t = 30)]
    secs: u32,
    /// A path: clean, loss1, shallow, or rate=50mbit,rtt=40ms,queue=10,loss=1%. May be repeated;
    /// the three named ones unless given.
    #[arg(long = "path", value_parser = guest::parse_path, value_name = "PATH")]
    paths: Vec<PathSpec>,
    /// Something that befalls the agent: kill, stop, continue or restart, at a second of every run.
    #[arg(long = "event", value_parser = event, value_name = "ACTION@SECS")]
    events: Vec<Event>,
    /// Seed of the guest's randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Guests side by side.
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// A kernel module that every guest loads, built for its kernel; may be repeated.
    #[arg(long = "module", value_name = "FILE")]
    modules: Vec<PathBuf>,
    /// Let TCP send bursts, as over a device with segmentation offload.
    #[arg(long)]
    bursts: bool,
    /// Keep every run's iperf3 report, agent log and console here.
    #[arg(long, value_name = "DIR")]
    keep_logs: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

fn event(text: &str) -> Result<Event, String> {
    let (action, at) = text
        .split_once('@')
        .ok_or("an event is ACTION@SECS, as in kill@10")?;
    let action = match action {
        "kill" => Action::Kill,
        "stop" => Action::Stop,
        "continue" => Action::Continue,
        "restart" => Action::Restart,
        _ => {
            return Err(format!(
                "{action:?} is none of kill, stop, continue, restart"
            ));
        }
    };
    let at = at
        .parse()
        .map_err(|_| format!("{at:?} is no number of seconds"))?;
    let at = Duration::try_from_secs_f64(at).map_err(|error| error.to_string())?;
    Ok(Event { at, action })
}

impl Options {
    fn scheme(&self, name: &str) -> anyhow::Result<Scheme> {
        if matches!(name, "cubic" | "reno" | "bbr") {
            return Ok(Scheme::Kernel(name.to_owned()));
        }
        self.agent
            .as_ref()
            .with_context(|| format!("scheme {name} needs --agent FILE"))?;
        let arguments = self.agent_args.split_whitespace();
        let command = [AGENT_BINARY]
            .into_iter()
            .chain(arguments)
            .map(str::to_owned)
            .collect();
        Ok(Scheme::Agent {
            name: name.to_owned(),
            command,
        })
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let schemes: Vec<_> = options
        .schemes
        .iter()
        .map(|name| options.scheme(name))
        .collect::<Result<_, _>>()?;
    let paths = if options.paths.is_empty() {
        PathSpec::demo()
    } else {
        options.paths.clone()
    };
    let mut runs = guest::matrix(&paths, &schemes, &options.flows, options.secs);
    for run in runs
        .iter_mut()
        .filter(|run| matches!(run.scheme, Scheme::Agent { .. }))
    {
        run.events.clone_from(&options.events);
    }
    let config = Config {
        kernel: options.kernel,
        agent: options.agent,
        seed: options.seed,
        jobs: options.jobs,
        bursts: options.bursts,
        modules: options.modules.clone(),
        keep_logs: options.keep_logs,
        interrupt: Interrupt::on_signals()?,
        ..Config::default()
    };
    let outcomes = guest::run(&config, &runs, &mut |progress| eprintln!("{progress}"))?;
    let report = Report::new(&config, outcomes);
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}
