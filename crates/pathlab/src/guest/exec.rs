//! Any programs of this machine on the guest's kernel: tests, above all.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Config, Error, cache_dir, host, image, kernel, qemu, root_archive};

/// What programs in a guest came to.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The script's exit status.
    pub status: i32,
    /// What it wrote, standard output and error together.
    pub output: String,
    /// The guest's `uname -r`.
    pub kernel: String,
    /// Wall time that the guest took.
    pub wall: Duration,
}

/// Boots a guest and runs `script`, a shell text, as root in it. The guest has this machine's
/// `binaries` under the names given, in its `PATH`, beside `ip`, `tc`, `nsenter` and `setpriv`;
/// bpffs is mounted, and TUN devices can be made. `limit` is of wall time.
///
/// # Errors
/// As [`run`](super::run). A script that fails is no error; see [`Executed::status`].
pub fn exec(
    config: &Config,
    binaries: &[(PathBuf, String)],
    script: &str,
    limit: Duration,
) -> Result<Executed, Error> {
    let host = host::Host::probe()?;
    let kernel = kernel::Kernel::obtain(config.kernel, &cache_dir(config)?)?;
    let root = root_archive(config, &host, &kernel)?;
    let mut own = image::Archive::default();
    for (source, name) in binaries {
        own.binary(source, &format!("bin/{name}"))?;
    }
    for tool in ["nsenter", "setpriv"] {
        own.binary(
            &host::need_program(tool, "util-linux")?,
            &format!("bin/{tool}"),
        )?;
    }
    for (order, (name, object)) in kernel.modules(&["tun"])?.iter().enumerate() {
        own.file(&format!("modules/50{order:02}-{name}.ko"), object);
    }
    own.file("script", script.as_bytes());
    let began = Instant::now();
    let guest = qemu::Qemu::boot(&kernel.image, &[&root, &own.finish()], config.seed)?;
    let ended = guest.finish(limit, &|| config.interrupt.is_raised())?;
    let transcript = ended.transcript.map_err(|cause| Error::Stream {
        run: "the script".into(),
        cause,
        console: qemu::last_lines(&ended.console),
    })?;
    let text = |name| transcript.text(name).unwrap_or_default();
    let status = text("status").trim().parse().map_err(|_| Error::Guest {
        run: "the script".into(),
        reason: "it left no exit status".into(),
        agent_log: text("output"),
    })?;
    Ok(Executed {
        status,
        output: text("output"),
        kernel: transcript.release.clone(),
        wall: began.elapsed(),
    })
}
