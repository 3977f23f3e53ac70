//! The demo's comparison with the kernel's congestion controls only.
//!
//! As root: `cargo run --release -p pathlab --example kernel_schemes -- [SECONDS [SCHEME...]]`

use std::env;
use std::time::Duration;

use pathlab::Interrupt;
use pathlab::demo::{DemoOptions, run_demo};
use pathlab::scenario::Scheme;

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(7), |seconds| seconds.parse())?;
    let mut schemes: Vec<Scheme> = arguments.map(Scheme::Kernel).collect();
    if schemes.is_empty() {
        schemes = ["cubic", "bbr"]
            .map(|name| Scheme::Kernel(name.into()))
            .to_vec();
    }
    let options = DemoOptions {
        duration: Duration::from_secs(seconds),
        ..DemoOptions::new(schemes)
    };
    let report = run_demo(&options, &Interrupt::on_signals()?, &mut |line| {
        eprintln!("{line}");
    })?;
    println!("{report}");
    Ok(())
}
