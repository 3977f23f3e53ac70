//! Privileges after the start. Loading BPF takes capabilities, driving flows takes none: each thread gives up what it
//! no longer needs. Capabilities belong to threads, so the agent's own thread does it in its run loop, when its
//! programs are in place.

use anyhow::{Context, Result, bail};
use caps::{CapSet, Capability, CapsHashSet};
use portus::ipc::Ipc;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{debug, error};

/// Receives until everything is loaded: the first one returns the datapath's greeting, which the run loop answers with
/// its programs.
const RECEIVES: u8 = 1;

/// Keeps of the calling thread's capabilities only these.
///
/// # Errors
/// If the thread still has others after that.
pub(crate) fn keep_only(kept: &[Capability]) -> Result<()> {
    let kept: CapsHashSet = kept.iter().copied().collect();
    let now =
        || caps::read(None, CapSet::Permitted).context("cannot read this thread's capabilities");
    if now()?.is_subset(&kept) {
        return Ok(());
    }
    let reduced = now().and_then(|now| {
        let left: CapsHashSet = now.intersection(&kept).copied().collect();
        caps::set(None, CapSet::Effective, &left)?;
        caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
        Ok(caps::set(None, CapSet::Permitted, &left)?)
    });
    const REMEDY: &str = "cannot give up capabilities that are no longer needed: allow the system call capset (a seccomp \
                          filter or a security module forbids it)";
    reduced.context(REMEDY)?;
    let more: Vec<_> = now()?.difference(&kept).map(ToString::to_string).collect();
    if !more.is_empty() {
        bail!("{REMEDY}: {} stay", more.join(", "));
    }
    debug!(?kept, "other capabilities of this thread are given up");
    Ok(())
}

/// Why an agent's thread ended itself, for whoever waits for its end.
pub(crate) type Refusal = Arc<Mutex<Option<anyhow::Error>>>;

/// A transport whose thread has no capabilities once its programs are loaded.
pub(crate) struct Confined<I> {
    inner: I,
    receives: Cell<u8>,
    /// Cleared when they cannot be given up; nothing is driven then.
    go_on: Arc<AtomicBool>,
    refusal: Refusal,
}

impl<I> Confined<I> {
    pub(crate) fn new(inner: I, go_on: Arc<AtomicBool>, refusal: Refusal) -> Self {
        let receives = Cell::new(0);
        Self {
            inner,
            receives,
            go_on,
            refusal,
        }
    }
}

impl<I: Ipc> Ipc for Confined<I> {
    type Addr = I::Addr;

    fn name() -> String {
        I::name()
    }

    fn send(&self, message: &[u8], to: &Self::Addr) -> portus::Result<()> {
        self.inner.send(message, to)
    }

    fn recv(&self, message: &mut [u8]) -> portus::Result<(usize, Self::Addr)> {
        let receives = self.receives.get();
        if receives <= RECEIVES {
            self.receives.set(receives + 1);
            if receives == RECEIVES
                && let Err(error) = keep_only(&[])
            {
                error!("{error:#}");
                // portus takes an error of a receive for a passing one.
                self.go_on.store(false, Ordering::SeqCst);
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return Err(portus::Error("this thread keeps its capabilities".into()));
            }
        }
        self.inner.recv(message)
    }

    fn close(&mut self) -> portus::Result<()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_may_and_nothing_else() {
        std::thread::spawn(|| {
            let had = caps::read(None, CapSet::Permitted).unwrap();
            let all: Vec<_> = had.iter().copied().collect();
            keep_only(&all).unwrap();
            assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), had);
            keep_only(&[Capability::CAP_NET_ADMIN]).unwrap();
            let left = caps::read(None, CapSet::Permitted).unwrap();
            assert!(
                left.iter().all(|one| *one == Capability::CAP_NET_ADMIN),
                "{left:?}"
            );
            keep_only(&[]).unwrap();
            assert!(caps::read(None, CapSet::Permitted).unwrap().is_empty());
        })
        .join()
        .unwrap();
    }
}
