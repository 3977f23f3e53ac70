//! `pk3c-ccp lab path`: any command inside an emulated path, as mahimahi's shells do it.

use crate::cli::scenario::aqm::Aqm;
use crate::cli::scenario::values::{self, Queue};
use crate::cli::scenario::{self, PathParts, SEED, uniform_jitter};
use anyhow::{Context, Result, bail};
use pathlab::Interrupt;
use pathlab::WaitError;
use pathlab::emulator::Recording;
use pathlab::lab::inputs::path_in_words;
use pathlab::path::{self, Path, PathReport};
use pathlab::program::Program;
use pathlab::requirements;
use pathlab::tun::EndSettings;
use pathsim::{Distribution, PathSpec, RateSchedule};
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
    /// Take the path from a scenario file instead of flags (every key: docs/scenarios.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = PATH_FLAGS, help_heading = "Path")]
    scenario: Option<PathBuf>,
    /// Which scenario of a file that holds several
    #[arg(long, value_name = "ID", requires = "scenario", help_heading = "Path")]
    only: Option<String>,
    /// Rate of the bottleneck, counted on IP packets
    #[arg(long, value_name = "RATE", default_value = "50mbit", value_parser = values::rate, help_heading = "Path")]
    rate: u64,
    /// Use the capacity of a mahimahi trace instead of a constant rate
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "rate",
        help_heading = "Path"
    )]
    trace: Option<PathBuf>,
    /// Two-way propagation delay, half of it each way
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = values::time, help_heading = "Path")]
    rtt: u64,
    /// Queue: packets, bytes as in 64kB, or bandwidth-delay products as in 0.5bdp [default: 1bdp, or
    /// 127 packets under sfq]
    #[arg(long, value_name = "SIZE", help_heading = "Path")]
    queue: Option<Queue>,
    /// How the queue drops
    #[arg(long, value_enum, default_value = "none", help_heading = "Path")]
    aqm: Aqm,
    /// Random loss on the way there, behind the bottleneck
    #[arg(long, value_name = "RATIO", default_value = "0%", value_parser = values::loss, help_heading = "Path")]
    loss: f64,
    /// Lose packets in bursts of this mean length (Gilbert-Elliott)
    #[arg(long, value_name = "PACKETS", requires = "loss", value_parser = values::burst, help_heading = "Path")]
    loss_burst: Option<f64>,
    /// Random loss on the way back
    #[arg(long, value_name = "RATIO", default_value = "0%", value_parser = values::loss, help_heading = "Path")]
    ack_loss: f64,
    /// Random extra delay of each packet on the way there, from 0 to this
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = values::time, help_heading = "Path")]
    jitter: u64,
    /// Drop what comes faster than this in front of the bottleneck, as operators police a subscriber
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = "Path")]
    police: Option<u64>,
    /// Bytes of it that may come at once [default: 100 ms of its rate]
    #[arg(long, value_name = "SIZE", requires = "police", value_parser = values::size, help_heading = "Path")]
    police_burst: Option<u64>,

    /// Let no more than this leave the queue once a burst has left at the link's rate, as operators shape a subscriber
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = "Path")]
    shape: Option<u64>,

    /// Bytes of it that may leave at once [default: 100 ms of its rate]
    #[arg(long, value_name = "SIZE", requires = "shape", value_parser = values::size, help_heading = "Path")]
    shape_burst: Option<u64>,
    /// Jitter may reorder packets
    #[arg(long, requires = "jitter", help_heading = "Path")]
    reorder: bool,
    /// Seed of all chance
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    seed: u64,
    /// Segments that TCP hands to the device at once; 0 for the kernel's own limit
    #[arg(long, value_name = "SEGMENTS", value_parser = values::gso, default_value = "1")]
    gso_max_segs: u32,
    /// Write a line for every packet to a file (its columns: docs/lab.md)
    #[arg(long, value_name = "FILE.csv")]
    log: Option<PathBuf>,
    /// Print neither the path before nor what it did after
    #[arg(long)]
    quiet: bool,
}

const PATH_FLAGS: [&str; 15] = [
    "rate",
    "trace",
    "rtt",
    "queue",
    "aqm",
    "loss",
    "loss_burst",
    "ack_loss",
    "jitter",
    "reorder",
    "police",
    "police_burst",
    "shape",
    "shape_burst",
    "gso_max_segs",
];

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
    if let Some(file) = &args.scenario {
        return of_file(file, args.only.as_deref());
    }
    let rate = match &args.trace {
        Some(file) => scenario::trace(file)?,
        None => RateSchedule::Constant(args.rate),
    };
    let parts = PathParts {
        rate,
        rtt_ns: args.rtt,
        queue: args.queue.unwrap_or(args.aqm.usual_queue()),
        loss: args.loss,
        loss_burst: args.loss_burst,
        jitter: uniform_jitter(args.jitter, args.reorder),
        policer: scenario::bucket(args.police, args.police_burst),
        shaper: scenario::bucket(args.shape, args.shape_burst),
    };
    let mut path = parts.path();
    path.ack_loss = scenario::losses(args.ack_loss, None);
    path.discipline = args.aqm.discipline();
    let ends = EndSettings {
        gso_max_segs: args.gso_max_segs,
        ..EndSettings::default()
    };
    Ok((path, ends))
}

fn of_file(file: &std::path::Path, only: Option<&str>) -> Result<(PathSpec, EndSettings)> {
    let plans = scenario::read(file)?;
    let ids: Vec<_> = plans.iter().map(|plan| plan.id.clone()).collect();
    let plan = match only {
        Some(id) => plans.into_iter().find(|plan| plan.id == id),
        None if ids.len() == 1 => plans.into_iter().next(),
        None => None,
    };
    let Some(plan) = plan else {
        let (file, ids) = (file.display(), ids.join(", "));
        bail!("{file} holds the scenarios {ids}: choose one with --only ID");
    };
    if plan.settings.loopback {
        bail!("{} runs over the loopback device: it has no path", plan.id);
    }
    Ok((plan.scenario.path, plan.settings.ends()))
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
