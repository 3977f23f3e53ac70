//! `pk3c-ccp detach`: tidies up after an agent that was killed.

use super::default_cc::DefaultCc;
use super::{NAME, PIN_DIR, control};
use anyhow::{Context, Result};
use ccp_char::CharIpc;
use std::path::{Path, PathBuf};

/// Options of `pk3c-ccp detach`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DetachArgs {
    /// Directory of the pins, in a BPF file system
    #[arg(long, value_name = "DIR", default_value = PIN_DIR)]
    pin_dir: PathBuf,
}

pub(crate) fn run(args: &DetachArgs) -> Result<()> {
    let config = ccp_bpf::Config {
        pin_dir: args.pin_dir.clone(),
        ..ccp_bpf::Config::new(NAME)
    };
    // Beside a running agent nothing changes, the default that it has taken neither.
    if let Err(error @ ccp_char::Error::Running { .. }) = CharIpc::open(ccp_char::DEVICE.as_ref()) {
        return Err(error).context("cannot detach");
    }
    let removed = ccp_bpf::detach(&config).context("cannot detach")?;
    let restored = DefaultCc::new().restore()?;
    if let Some(default) = &restored {
        println!("the system's congestion control is {default} again");
    }
    control::remove_abandoned(control::SOCKET.as_ref())
        .context("cannot remove the control socket")?;
    if removed {
        println!(
            "removed the registration and pins in {}",
            args.pin_dir.display()
        );
        println!("connections that used {NAME} go on under the kernel's Cubic from inside it");
    } else if Path::new(ccp_char::DEVICE).exists() {
        println!(
            "nothing to remove: the kernel module has the names, and without an agent its flows run CUBIC \
             (rmmod tcp_ccp removes it, once no connection uses it)"
        );
    } else if restored.is_none() {
        println!("nothing to remove: no pins in {}", args.pin_dir.display());
    }
    Ok(())
}
