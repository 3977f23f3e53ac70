//! Runs a shell script as root in a QEMU guest under virtual time and prints what it wrote.
//!
//! ```text
//! cargo run --release -p pathlab --example script -- --kernel 6.12 --binary target/release/pk3c-ccp=pk3c-ccp SCRIPT
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use pathlab::Interrupt;
use pathlab::guest::{self, Config, KernelVersion};

/// Runs a shell script as root in a QEMU guest under virtual time and prints what it wrote.
#[derive(Parser)]
struct Options {
    /// Kernel of the guest: 6.1 or 6.12.
    #[arg(long, default_value_t)]
    kernel: KernelVersion,
    /// A binary of this machine and its name in the guest's PATH; may be repeated.
    #[arg(long = "binary", value_name = "FILE=NAME", value_parser = binary)]
    binaries: Vec<(PathBuf, String)>,
    /// Shell text put before the script, such as NAME=value; may be repeated.
    #[arg(long = "before", value_name = "TEXT")]
    before: Vec<String>,
    /// A kernel module that the guest loads, built for its kernel; may be repeated.
    #[arg(long = "module", value_name = "FILE")]
    modules: Vec<PathBuf>,
    /// Seed of the guest's randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Wall time after which the guest is ended, in seconds.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// The script, for busybox' sh, beside ip, tc, iperf3, ethtool, nsenter and setpriv.
    script: PathBuf,
}

fn binary(text: &str) -> Result<(PathBuf, String), String> {
    let (file, name) = text.split_once('=').ok_or("write FILE=NAME")?;
    Ok((file.into(), name.to_owned()))
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let script = std::fs::read_to_string(&options.script)
        .with_context(|| format!("cannot read {}", options.script.display()))?;
    let script = [options.before.join("\n"), script].join("\n");
    let config = Config {
        kernel: options.kernel,
        seed: options.seed,
        modules: options.modules,
        interrupt: Interrupt::on_signals()?,
        ..Config::default()
    };
    let limit = Duration::from_secs(options.limit);
    let executed = guest::exec(&config, &options.binaries, &script, limit)?;
    print!("{}", executed.output);
    eprint!("{}", executed.kernel_trouble);
    eprintln!(
        "Linux {}, {:.0} s: status {}",
        executed.kernel,
        executed.wall.as_secs_f64(),
        executed.status
    );
    Ok(u8::try_from(executed.status).map_or(ExitCode::FAILURE, ExitCode::from))
}
