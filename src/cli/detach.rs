//! `pk3c-ccp detach`: tidies up after an agent that was killed.

use super::default_cc::DefaultCc;
use super::{NAME, PIN_DIR, control, show};
use anyhow::{Context, Result, bail};
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
    control::remove_abandoned(control::SOCKET.as_ref())
        .context("cannot remove the control socket")?;
    if let Some(default) = &restored {
        show(&format!(
            "the system's congestion control is {default} again\n"
        ))?;
    }
    let pins = args.pin_dir.display();
    if removed {
        show(&format!(
            "removed the registration and pins in {pins}\n\
             connections that used {NAME} go on under the kernel's Cubic from inside it\n"
        ))?;
    } else if Path::new(ccp_char::DEVICE).exists() {
        show(
            "nothing to remove: the kernel module has the names, and without an agent its flows run CUBIC \
             (rmmod tcp_ccp removes it, once no connection uses it)\n",
        )?;
    } else if DefaultCc::is_available(NAME)? {
        bail!(
            "{NAME} is still registered, and not by pins in {pins}: if an agent was started with another --pin-dir, \
             give detach the same; else `bpftool struct_ops` or `lsmod` finds its owner"
        );
    } else if restored.is_none() {
        show(&format!("nothing to remove: no pins in {pins}\n"))?;
    }
    Ok(())
}
