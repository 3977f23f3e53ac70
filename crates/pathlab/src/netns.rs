//! Network namespaces without a name.
//!
//! A namespace lives as long as something refers to it. Ours has no name under `/run/netns`: it is
//! held by an open file of this process and by the programs that run inside it, and these die with
//! us (`PR_SET_PDEATHSIG`). So nothing is left behind, not even after SIGKILL, and there is nothing
//! to clean up at the next start. To look inside while a run lasts, use
//! `nsenter --net=/proc/PID/fd/N`, as printed by [`Netns::location`].

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use crate::process::{self, Signalled};

/// Why a namespace could not be made or set up.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The kernel refused a new namespace.
    #[error("cannot create a network namespace: {0}; run as root (CAP_SYS_ADMIN)")]
    Create(io::Error),
    /// A thread could not move into the namespace.
    #[error("cannot enter the network namespace {location}: {cause}")]
    Enter {
        /// Where the namespace is found.
        location: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A sysctl of the namespace could not be set.
    #[error("cannot set {key}={value} in a network namespace: {cause}")]
    Sysctl {
        /// Path below `/proc/sys`.
        key: String,
        /// What was to be written.
        value: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A configuration command failed inside the namespace.
    #[error("{command} failed in a network namespace: {message}")]
    Command {
        /// The command line.
        command: String,
        /// Its complaint.
        message: String,
    },
}

/// A network namespace of our own. Dropping it lets the kernel free it, as soon as no program runs
/// inside any more.
#[derive(Debug)]
pub struct Netns {
    handle: File,
}

impl Netns {
    /// A new namespace, empty but for a loopback device that is down.
    ///
    /// # Errors
    /// [`NetnsError::Create`] without CAP_SYS_ADMIN or past the limit on namespaces.
    pub fn new() -> Result<Self, NetnsError> {
        // The thread leaves the new namespace with its end; only the file keeps it.
        let create = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let handle = in_own_thread(create).map_err(NetnsError::Create)?;
        Ok(Self { handle })
    }

    /// The path by which other programs of this machine reach the namespace while we run.
    pub fn location(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.handle.as_raw_fd()
        )
    }

    /// Runs `work` in a thread of its own inside the namespace. What it opens there (sockets,
    /// devices) belongs to the namespace wherever it is used later.
    ///
    /// # Errors
    /// [`NetnsError::Enter`] if the thread may not enter.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        in_own_thread(|| {
            setns(&self.handle, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
        .map_err(|cause| NetnsError::Enter {
            location: self.location(),
            cause,
        })
    }

    /// A command that runs `program` inside the namespace, and is killed when the thread that
    /// spawned it ends.
    pub fn command(&self, program: &str) -> Command {
        let mut command = process::dies_with_parent("nsenter", Signalled::Kill);
        command
            .arg(format!("--net={}", self.location()))
            .arg("--")
            .arg(program);
        command
    }

    /// Sets a sysctl of the namespace; `key` is its path below `/proc/sys`.
    ///
    /// # Errors
    /// [`NetnsError::Sysctl`] if it does not exist or refuses the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NetnsError> {
        self.enter(|| fs::write(format!("/proc/sys/{key}"), value))?
            .map_err(|cause| NetnsError::Sysctl {
                key: key.to_owned(),
                value: value.to_owned(),
                cause,
            })
    }

    /// Runs a configuration command, such as `ip link set lo up`, inside the namespace to its end
    /// and returns what it printed.
    ///
    /// # Errors
    /// [`NetnsError::Command`] if it cannot be started or fails.
    pub fn configure(&self, program: &str, arguments: &[&str]) -> Result<String, NetnsError> {
        let failure = |message| NetnsError::Command {
            command: format!("{program} {}", arguments.join(" ")),
            message,
        };
        let output = self
            .command(program)
            .args(arguments)
            .output()
            .map_err(|error| failure(format!("cannot start nsenter (util-linux): {error}")))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(failure(format!("{}, {}", output.status, stderr.trim())))
        }
    }
}

/// Namespaces are a property of the thread, so every visit takes a thread that ends there.
fn in_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let visitor = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)?;
        visitor
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
