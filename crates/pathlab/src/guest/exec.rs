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

impl Executed {
    /// The output for a log in which it must not pass for what this side says: each line marked.
    pub fn quoted(&self) -> String {
        let lines = self.output.lines().map(|line| format!("| {line}\n"));
        lines.collect()
    }
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
        console: qemu::excerpt(&ended.console),
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    const FAULTS: &str = "\
[   12.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000
[   12.000000] BUG ccp_flow (Tainted: G           O      ): Poison overwritten
[   12.000000] BUG kmalloc-64 (Not tainted): Right Redzone overwritten
[   12.000000] kernel BUG at mm/slub.c:435!
[   12.000000] invalid opcode: 0000 [#1] PREEMPT SMP NOPTI
[   12.000000] WARNING: CPU: 0 PID: 61 at net/ipv4/tcp_input.c:2671 tcp_fastretrans_alert+0x5e1/0x7f0
[   12.000000] INFO: possible recursive locking detected
";
    const HARMLESS: &str = "\
[    0.000000] **   This means that this is a DEBUG kernel and it is **
[    0.000000] Running RCU self tests, DEBUG_LOCK_ALLOC is on: #1
[    3.000000] tcp_ccp: agent pk3c-ccp[61] has come
";

    #[test]
    fn faults_in_the_kernel_s_log_are_seen() {
        let init = include_str!("../../guest/init.sh");
        let (_, pattern) = init.split_once("\nTROUBLE='").unwrap();
        let (pattern, _) = pattern.split_once('\'').unwrap();
        let script = r#"printf %s "$2" | grep -E "$1""#;
        let grep = Command::new("sh")
            .args(["-c", script, "sh", pattern, &[HARMLESS, FAULTS].concat()])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&grep.stdout), FAULTS);
    }
}
