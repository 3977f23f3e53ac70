//! The command line: one module per verb.

#![warn(clippy::print_stdout, clippy::print_stderr)]

/// A line on standard error, as `eprintln!` writes it, but what goes on ends for nobody who does not listen: standard
/// error may be closed or full.
macro_rules! tell {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($line)*);
    }};
}

mod adopt;
mod config;
mod control;
mod datapath;
mod default_cc;
mod demo;
mod detach;
mod doctor;
mod generate;
mod lab;
mod log;
mod operate;
mod params;
mod policy;
mod privileges;
mod replay;
mod run;
mod scenario;
mod sim;
mod status;
mod top;
mod tune;

use anyhow::Error;
use clap::{Parser, Subcommand};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The congestion control's name, for sockets and for `net.ipv4.tcp_congestion_control`.
const NAME: &str = "pk3c";
/// Where the pins of the eBPF datapath are.
const PIN_DIR: &str = "/sys/fs/bpf/pk3c-ccp";
/// Names as similar as this are offered instead of an unknown one.
const SIMILAR: f64 = 0.75;

/// PK3C congestion control for TCP, decided in user space.
#[derive(Parser)]
#[command(name = "pk3c-ccp", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
First steps:
  pk3c-ccp doctor                 can this machine run it?
  pk3c-ccp sim                    see it beside cubic in a simulation
  pk3c-ccp demo                   see it beside cubic and bbr on emulated paths (root)
  pk3c-ccp run                    make 'pk3c' available to sockets (root)
  iperf3 -c HOST -C pk3c          a connection that uses it
  pk3c-ccp run --default          use it for every new connection of this machine";

#[derive(Subcommand)]
enum Verb {
    /// Run the agent: sockets can choose the congestion control 'pk3c' until SIGINT or SIGTERM
    Run(Box<run::RunArgs>),
    /// Say what a running agent does: its statistics and its flows
    Status(status::StatusArgs),
    /// Show the flows of a running agent, live
    Top(top::TopArgs),
    /// Say why a flow of a running agent does what it does, interval by interval
    Explain(operate::ExplainArgs),
    /// Change parameters of a running agent, for all its flows at once; or list them
    Set(operate::SetArgs),
    /// Have a running agent read its configuration file again, as SIGHUP does; one that was started
    /// without --config has none, and refuses
    Reload(operate::ReloadArgs),
    /// Change what a running agent logs
    Log(operate::LogArgs),
    /// Say which connections get what (policies of a configuration file), and what experiments found
    #[command(subcommand)]
    Policy(policy::PolicyVerb),
    /// Have a running agent hand all its flows to the kernel's Cubic, or take them back
    Drain(operate::DrainArgs),
    /// Compare cubic, bbr and pk3c on three emulated paths, in under three minutes
    Demo(demo::DemoArgs),
    /// Simulate flows over a bottleneck, in virtual time: no root, the same result everywhere
    Sim(Box<sim::SimArgs>),
    /// Carry out the source documents' experiments again, and measure on emulated paths
    #[command(subcommand)]
    Lab(lab::LabVerb),
    /// Take the decisions of a record again: do they come out the same, what would change, and why
    /// were they taken?
    Replay(replay::ReplayArgs),
    /// Say whether this machine can run the agent, and what to change
    Doctor(doctor::DoctorArgs),
    /// Remove what an agent that was killed left: the registration, its pins, the default
    Detach(detach::DetachArgs),
    /// Show what PK3C wants of the kernel's settings and why, change them, or put them back
    Tune(tune::TuneArgs),
    /// Write manual pages, completions and a configuration file, for packages
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// Runs the command that the process was started with.
pub(crate) fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Run(_) => run::run(),
        Verb::Status(args) => status::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Top(args) => top::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Explain(args) => operate::explain(&args).map(|()| ExitCode::SUCCESS),
        Verb::Set(args) => operate::set(&args).map(|()| ExitCode::SUCCESS),
        Verb::Reload(args) => operate::reload(&args).map(|()| ExitCode::SUCCESS),
        Verb::Log(args) => operate::log(&args).map(|()| ExitCode::SUCCESS),
        Verb::Policy(verb) => policy::run(&verb).map(|()| ExitCode::SUCCESS),
        Verb::Drain(args) => operate::drain(&args).map(|()| ExitCode::SUCCESS),
        Verb::Demo(args) => demo::run(&args),
        Verb::Sim(args) => sim::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Lab(verb) => lab::run(&verb),
        Verb::Replay(args) => replay::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Detach(args) => detach::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Tune(args) => tune::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Generate(args) => generate::run(&args).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("pk3c-ccp: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints on standard output; that its reader has seen enough is no error.
fn show(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Whether the reader of standard output has seen enough. Broken pipes to others say what they are in front.
fn is_closed(error: &Error) -> bool {
    let io = error.chain().next().and_then(|error| error.downcast_ref());
    io.is_some_and(|error: &io::Error| error.kind() == ErrorKind::BrokenPipe)
}

/// The known name that somebody probably meant.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(name, known), known));
    let nearest = alike.max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest
        .filter(|(alike, _)| *alike >= SIMILAR)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
