//! `pk3c-ccp lab path`: any command inside an emulated path, as mahimahi's shells do it.

use crate::cli::scenario::described::Described;
use crate::cli::scenario::{SEED, values};
use anyhow::{Context, Result, bail};
use pathlab::Interrupt;
use pathlab::WaitError;
use pathlab::emulator::Recording;
use pathlab::lab::inputs::path_in_words;
use pathlab::path::{self, Path, PathReport};
use pathlab::program::Program;
use pathlab::requirements;
use pathlab::tun::EndSettings;
use pathsim::{Distribution, PathSpec};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A command that Ctrl-C does not end has so long to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Exit status if we were interrupted: 128 + SIGINT, as shells say it.
const INTERRUPTED: u8 = 130;

/// Options of `pk3c-ccp lab path`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PathArgs {
    /// What to run at the client's end [default: an interactive shell]
    #[arg(value_name = "CMD", last = true)]
    command: Vec<String>,
    /// Run a shell command at the server's end meanwhile
    #[arg(long, value_name = "CMD")]
    server: Option<String>,
    #[command(flatten)]
    path: Described,
    /// Seed of all chance
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    seed: u64,
    /// Segments that TCP hands to the device at once; 0 for the kernel's own limit
    #[arg(long, value_name = "SEGMENTS", value_parser = values::gso, default_value = "1", conflicts_with = "scenario")]
    gso_max_segs: u32,
    /// Write a line for every packet to a file (its columns: docs/lab.md)
    #[arg(long, value_name = "FILE.csv")]
    log: Option<PathBuf>,
    /// Print neither the path before nor what it did after
    #[arg(long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  pk3c-ccp lab path --rate 12mbit --rtt 40ms --queue 1bdp --loss 1%
  pk3c-ccp lab path --rate 12mbit -- ping -c 5 10.77.0.2
  pk3c-ccp lab path --queue 10 --server 'iperf3 -s -1' -- sh -c 'sleep 1; iperf3 -c $PK3C_SERVER -C cubic'
  pk3c-ccp lab path --trace Verizon-LTE-short.up --log packets.csv -- ./my-sender
The client is 10.77.0.1, the server 10.77.0.2 ($PK3C_CLIENT, $PK3C_SERVER); nothing else is reachable. The
bottleneck is on the way from the client to the server. The exit status is CMD's. It takes root.";

pub(crate) fn run(args: &PathArgs) -> Result<ExitCode> {
    let (spec, ends) = described(args)?;
    spec.check()?;
    requirements::check_path()?;
    let recording = Recording {
        packet_log: args.log.clone(),
        ..Recording::default()
    };
    let shell = args.command.is_empty();
    // In a shell Ctrl-C is for what runs in it.
    let interrupt = if shell {
        Interrupt::on_termination()
    } else {
        Interrupt::on_signals()
    };
    let interrupt = interrupt.context("cannot handle signals")?;
    let mut path = Path::open_recording(&spec, &ends, args.seed, &recording)?;
    let environment = [
        ("PK3C_CLIENT", path::CLIENT.to_string()),
        ("PK3C_SERVER", path::SERVER.to_string()),
    ];
    if !args.quiet {
        tell!("{}; the far end is {}", path_in_words(&spec), path::SERVER);
    }
    path.begin()?;
    let server = args.server.as_ref().map(|command| {
        let command = ["sh", "-c", command].map(str::to_owned);
        Program::start(path.server(), &command, &environment)
    });
    let _server = server
        .transpose()
        .context("cannot start the server's command")?;
    let command = if shell {
        vec![user_shell()]
    } else {
        args.command.clone()
    };
    let mut client = Program::start(path.client(), &command, &environment)
        .with_context(|| format!("cannot start {}", command[0]))?;
    let status = match client.wait(&interrupt, GRACE) {
        // A shell's way to say which signal ended a program.
        Ok(status) => status
            .code()
            .or_else(|| Some(128 + status.signal()?))
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX),
        Err(WaitError::Interrupted) => INTERRUPTED,
        Err(error) => bail!("{}: {error}", command[0]),
    };
    let report = path.close()?;
    if !args.quiet {
        tell!("{}", summary(&report).trim_end());
    }
    Ok(ExitCode::from(status))
}

fn user_shell() -> String {
    let shell = std::env::var("SHELL").ok();
    shell
        .filter(|shell| !shell.is_empty())
        .unwrap_or_else(|| "/bin/sh".to_owned())
}

/// The path that flags or a file describe.
fn described(args: &PathArgs) -> Result<(PathSpec, EndSettings)> {
    if let Some(plan) = args.path.in_file(None)? {
        if plan.settings.loopback {
            bail!("{} runs over the loopback device: it has no path", plan.id);
        }
        return Ok((plan.scenario.path, plan.settings.ends()));
    }
    let ends = EndSettings {
        gso_max_segs: args.gso_max_segs,
        ..EndSettings::default()
    };
    Ok((args.path.in_flags()?, ends))
}

/// What the path did, for people.
fn summary(report: &PathReport) -> String {
    let emulator = &report.emulator;
    let (data, late) = (emulator.data, emulator.lateness.summary());
    let mut text = format!(
        "there: {} packets, {} dropped by the queue, {} lost, {} delivered; at most {} waited; back: {} packets, {} lost\n",
        data.arrived,
        data.queue_drops,
        data.losses,
        data.released,
        emulator.queue_peak_packets,
        emulator.acks.arrived,
        emulator.acks.losses,
    );
    let mut owd = Distribution::default();
    emulator
        .per_flow
        .iter()
        .for_each(|(_, flow)| owd.merge(&flow.owd));
    if let (Some(p50), Some(p95)) = (owd.quantile_ms(0.5), owd.quantile_ms(0.95)) {
        text += &format!("one-way delay there: median {p50:.1} ms, 95th percentile {p95:.1} ms\n");
    }
    text += &format!(
        "the emulator was late by {:.0} µs in the mean, by {} µs at the 99th percentile, and took {:.2} s of CPU",
        late.mean_lateness_us,
        late.p99_lateness_us,
        emulator.cpu.as_secs_f64()
    );
    if let Some(log) = emulator.log {
        text += &format!(
            "; {} lines in the packet log, {} left out",
            log.lines, log.left_out
        );
    }
    if report.unseen > 0 {
        text += &format!(
            "; {} packets were never seen: too many at once",
            report.unseen
        );
    }
    text + "\n"
}
