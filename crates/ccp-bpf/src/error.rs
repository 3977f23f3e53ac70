//! What can go wrong with the datapath, and what to do about it.

use crate::sys::is_root;
use ccp_vm::InvalidMessage;
use std::io;
use std::path::PathBuf;

/// An error of the datapath.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process may not load BPF programs.
    #[error(
        "loading BPF programs is not permitted: run as root (or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)"
    )]
    Privilege,
    /// The kernel has no type information.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux): a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed; Debian's and Ubuntu's are"
    )]
    NoBtf,
    /// The kernel cannot run a congestion control in BPF, or not this one.
    #[error(
        "this kernel cannot run a congestion control in BPF ({missing}): Linux 6.1 or later with CONFIG_BPF_JIT=y is needed"
    )]
    Kernel {
        /// What was looked for and not found.
        missing: &'static str,
    },
    /// Pins cannot be there, though there is a BPF file system.
    #[error("{} cannot hold the pins, as {why}", path.display())]
    PinDir {
        /// The directory for the pins.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// There is no BPF file system where the pins should go.
    #[error("{} is not in a BPF file system: mount one with `mount -t bpf bpf /sys/fs/bpf`", path.display())]
    NoBpfFs {
        /// The directory for the pins.
        path: PathBuf,
    },
    /// A directory that must be ours is not, or others can change it.
    #[error("{} cannot be used, as {unsafe_because}: remove it, or name another directory", path.display())]
    ForeignDir {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        unsafe_because: String,
    },
    /// Another process drives this congestion control.
    #[error("another agent is running for congestion control '{name}' (it holds {}): stop it first", lock.display())]
    Running {
        /// The congestion control's name.
        name: String,
        /// The lock it holds.
        lock: PathBuf,
    },
    /// The name is registered by something else.
    #[error(
        "the congestion control '{name}' is already registered by something else (a kernel module, or an agent with pins elsewhere): unload that first, name the agent's directory of pins, or choose another name"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The pins are of a version that this one cannot take over.
    #[error("{} holds the maps of an incompatible version (layout {found}, this agent has {ours}): remove them with `pk3c-ccp detach`; connections that use them go on under the kernel's algorithm", path.display())]
    Layout {
        /// The directory of the pins.
        path: PathBuf,
        /// Their layout version.
        found: u32,
        /// Ours.
        ours: u32,
    },
    /// A configuration value is out of range.
    #[error("{what} is {value}, allowed is {allowed}")]
    Config {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: String,
        /// The range.
        allowed: &'static str,
    },
    /// libbpf or the kernel refused something.
    #[error("{what}: {source}")]
    Bpf {
        /// What was tried.
        what: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The verifier refused a translated program; that is a bug of the translation.
    #[error("the kernel refused the translation of program {uid}: {source}\n{log}")]
    Translation {
        /// The program's id.
        uid: u32,
        /// The system's error.
        source: io::Error,
        /// The verifier's log.
        log: String,
    },
    /// The agent sent something that is not valid.
    #[error("refused a message of the agent: {0}")]
    Message(#[from] InvalidMessage),
    /// The agent named a program that it has not installed.
    #[error("program {uid} is not installed")]
    UnknownProgram {
        /// The program's id.
        uid: u32,
    },
    /// The program array is full.
    #[error("more than {} programs are installed", crate::layout::MAX_PROGS - 1)]
    TooManyPrograms,
}

impl Error {
    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.into();
        |source| match source.kind() {
            // The verifier refuses with the same error, but what it refuses is a bug of ours.
            libbpf_rs::ErrorKind::PermissionDenied if !is_root() => Self::Privilege,
            _ => Self::Bpf { what, source },
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}
