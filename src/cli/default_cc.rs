//! `--default`: the system's congestion control, and what it was before.
//!
//! The previous value is kept in a file until it is restored, so that a start after a crash, or
//! `detach`, can still restore it. A value that somebody else has set meanwhile is left alone.

use super::NAME;
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The system default as this process may change it.
pub(crate) struct DefaultCc {
    kept: PathBuf,
}

impl DefaultCc {
    pub(crate) fn new() -> Self {
        Self {
            kept: Path::new("/run/pk3c-ccp").join("previous-default"),
        }
    }

    /// Makes ours the default and keeps the old one.
    pub(crate) fn take(&self) -> Result<()> {
        let current = read(SYSCTL)?;
        if current != NAME {
            let folder = self.kept.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            fs::write(&self.kept, &current)
                .with_context(|| format!("cannot write {}", self.kept.display()))?;
        }
        fs::write(SYSCTL, NAME).with_context(|| format!("cannot set {SYSCTL} to {NAME}"))?;
        tracing::info!(
            previous = current,
            "{NAME} is the system's congestion control"
        );
        Ok(())
    }

    /// Whether sockets can choose a congestion control.
    pub(crate) fn is_available(name: &str) -> Result<bool> {
        let available = read(AVAILABLE)?;
        Ok(available.split_whitespace().any(|it| it == name))
    }

    /// Whether an agent has made ours the default, and none has put the old one back.
    pub(crate) fn is_taken(&self) -> bool {
        self.kept.exists()
    }

    /// The machine's default, or what it was before ours; `None` if ours is all that is known.
    pub(crate) fn before_ours(&self) -> Result<Option<String>> {
        let current = read(SYSCTL)?;
        if current != NAME {
            return Ok(Some(current));
        }
        match fs::read_to_string(&self.kept) {
            Ok(kept) => Ok(Some(kept.trim().to_owned())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", self.kept.display())),
        }
    }

    /// Puts the old default back if ours is in force. Says what it is now, if it changed.
    pub(crate) fn restore(&self) -> Result<Option<String>> {
        let kept = match fs::read_to_string(&self.kept) {
            Ok(kept) => Some(kept.trim().to_owned()),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => {
                return Err(e).with_context(|| format!("cannot read {}", self.kept.display()));
            }
        };
        let mut restored = None;
        if read(SYSCTL)? == NAME {
            let available = read(AVAILABLE)?;
            let other = |name: &&str| *name != NAME;
            let choice = kept
                .as_deref()
                .filter(|kept| available.split_whitespace().any(|name| name == *kept))
                .or_else(|| available.split_whitespace().find(|name| *name == "cubic"))
                .or_else(|| available.split_whitespace().find(other))
                .context("no other congestion control is available to restore")?;
            fs::write(SYSCTL, choice)
                .with_context(|| format!("cannot set {SYSCTL} to {choice}"))?;
            restored = Some(choice.to_owned());
        }
        if kept.is_some() {
            fs::remove_file(&self.kept)
                .with_context(|| format!("cannot remove {}", self.kept.display()))?;
        }
        // Ours alone; it stays if something else is in it.
        let _ = self.kept.parent().map(fs::remove_dir);
        Ok(restored)
    }
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}
