//! Privileges after the start. Loading BPF takes capabilities, driving flows takes none: each thread gives up what it no
//! longer needs. Capabilities belong to threads, so the agent's own thread does it in its run loop, when its programs
//! are in place.

use caps::{CapSet, Capability, CapsHashSet};
use portus::ipc::Ipc;
use std::cell::Cell;
use tracing::{debug, warn};

/// Receives until everything is loaded: the first one returns the datapath's greeting, which the run loop answers with
/// its programs.
const RECEIVES: u8 = 1;

/// Keeps of the calling thread's capabilities only these.
pub(crate) fn keep_only(kept: &[Capability]) {
    let kept: CapsHashSet = kept.iter().copied().collect();
    let reduced = caps::read(None, CapSet::Permitted).and_then(|now| {
        let left: CapsHashSet = now.intersection(&kept).copied().collect();
        caps::set(None, CapSet::Effective, &left)?;
        caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
        caps::set(None, CapSet::Permitted, &left)
    });
    match reduced {
        Ok(()) => debug!(?kept, "other capabilities of this thread are given up"),
        Err(error) => warn!(%error, "this thread keeps its capabilities"),
    }
}

/// A transport whose thread has no capabilities once its programs are loaded.
pub(crate) struct Confined<I> {
    inner: I,
    receives: Cell<u8>,
}

impl<I> Confined<I> {
    pub(crate) fn new(inner: I) -> Self {
        let receives = Cell::new(0);
        Self { inner, receives }
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
            if receives == RECEIVES {
                keep_only(&[]);
            }
        }
        self.inner.recv(message)
    }

    fn close(&mut self) -> portus::Result<()> {
        self.inner.close()
    }
}
