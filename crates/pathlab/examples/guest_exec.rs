//! Runs programs of this machine on a guest's kernel.
//!
//! `cargo run --release -p pathlab --example guest_exec -- 6.1 1200 'SCRIPT' BINARY...` copies each
//! BINARY to the guest's /bin under its file name without the hash that cargo adds, runs SCRIPT
//! within 1200 s of wall time, prints its output and ends with its status.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use pathlab::Interrupt;
use pathlab::guest::{self, Config};

const USAGE: &str = "usage: guest_exec KERNEL SECONDS SCRIPT BINARY...";

/// `deps/name-0123456789abcdef` is `name`.
fn plain_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let hashed = name.rsplit_once('-').filter(|(_, hash)| hash.len() == 16);
    Some(hashed.map_or(name, |(plain, _)| plain).to_owned())
}

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let config = Config {
        kernel: arguments.next().context(USAGE)?.parse()?,
        interrupt: Interrupt::on_signals()?,
        ..Config::default()
    };
    let limit = Duration::from_secs(arguments.next().context(USAGE)?.parse().context(USAGE)?);
    let script = arguments.next().context(USAGE)?;
    let binaries = arguments
        .map(|file| {
            let file = PathBuf::from(file);
            let name = plain_name(&file).context("a binary without a name")?;
            Ok((file, name))
        })
        .collect::<Result<Vec<_>>>()?;
    let executed = guest::exec(&config, &binaries, &script, limit)?;
    print!("{}", executed.output);
    println!(
        "Linux {}, {} s of wall time",
        executed.kernel,
        executed.wall.as_secs()
    );
    Ok(ExitCode::from(u8::try_from(executed.status).unwrap_or(1)))
}
