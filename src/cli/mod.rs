//! The command line: one module per verb.

mod default_cc;
mod demo;
mod detach;
mod doctor;
mod params;
mod replay;
mod run;
mod scenario;
mod sim;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The congestion control's name, for sockets and for `net.ipv4.tcp_congestion_control`.
const NAME: &str = "pk3c";
/// Where the pins of the eBPF datapath are.
const PIN_DIR: &str = "/sys/fs/bpf/pk3c-ccp";

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
    /// Compare cubic, bbr and pk3c on three emulated paths, in under three minutes
    Demo(demo::DemoArgs),
    /// Simulate flows over a bottleneck, in virtual time: no root, the same result everywhere
    Sim(Box<sim::SimArgs>),
    /// Take the decisions of a record again: do they come out the same, what would change, and why
    /// were they taken?
    Replay(replay::ReplayArgs),
    /// Say whether this machine can run the agent, and what to change
    Doctor(doctor::DoctorArgs),
    /// Remove what an agent that was killed left: the registration, its pins, the default
    Detach(detach::DetachArgs),
}

/// Runs the command that the process was started with.
pub(crate) fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Run(args) => run::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Demo(args) => demo::run(&args),
        Verb::Sim(args) => sim::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Replay(args) => replay::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Detach(args) => detach::run(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("pk3c-ccp: {error:#}");
        ExitCode::FAILURE
    })
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
