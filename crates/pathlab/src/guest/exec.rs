//! Any programs of this machine on the guest's kernel: tests, above all.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Config, Error, host, image, obtain_kernel, qemu, root_archive};

/// What programs in a guest came to.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The script's exit status.
    pub status: i32,
    /// What it wrote, standard output and error together.
    pub output: String,
    /// The guest's `uname -r`.
    pub kernel: String,
    /// Lines of the kernel's log that speak of a fault of the kernel or a module: `BUG`, `WARNING`,
    /// what lockdep, RCU and KASAN report; empty if all is well.
    pub kernel_trouble: String,
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
    let payload = Payload {
        binaries,
        script,
        ..Payload::default()
    };
    exec_payload(config, &payload, limit)
}

/// What a guest gets of this machine, and what it does with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payload<'a> {
    /// Binaries, with their names in the guest's `PATH`.
    pub binaries: &'a [(PathBuf, String)],
    /// Files: their paths in the guest, relative to its root, and their content.
    pub files: &'a [(&'a str, &'a [u8])],
    /// Modules of the guest's kernel to load, beside those that every guest has.
    pub modules: &'a [&'a str],
    /// Shell text.
    pub script: &'a str,
}

/// [`exec`] with more to choose.
///
/// # Errors
/// As [`run`](super::run).
pub fn exec_payload(
    config: &Config,
    payload: &Payload<'_>,
    limit: Duration,
) -> Result<Executed, Error> {
    let host = host::Host::probe()?;
    let kernel = obtain_kernel(config)?;
    let root = root_archive(config, &host, &kernel)?;
    let mut own = image::Archive::default();
    for (source, name) in payload.binaries {
        own.binary(source, &format!("bin/{name}"))?;
    }
    for tool in ["nsenter", "setpriv"] {
        own.binary(
            &host::need_program(tool, "util-linux")?,
            &format!("bin/{tool}"),
        )?;
    }
    let modules = [&["tun"], payload.modules].concat();
    for (order, (name, object)) in kernel.modules(&modules)?.iter().enumerate() {
        own.file(&format!("modules/50{order:02}-{name}.ko"), object);
    }
    for (path, content) in payload.files {
        own.file(path, content);
    }
    own.file("script", payload.script.as_bytes());
    let began = Instant::now();
    let archives = [&root[..], &own.finish()];
    let guest = qemu::Qemu::boot(&kernel.image, &archives, config.seed, config.racing)?;
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
        kernel_trouble: text("kernel.trouble"),
        wall: began.elapsed(),
    })
}
