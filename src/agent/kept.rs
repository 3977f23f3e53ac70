//! Flows that the datapath took back without ending them: they come again when it hears the agent anew.
//!
//! portus drops such a flow when it comes again, or with all others when the datapath itself begins anew. So how long
//! the datapath drove a flow alone is not known here, but by [`State::readopt`].

use super::state::State;
use portus::DatapathInfo;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is known of a flow's path is good for so long while the datapath drives it alone.
pub(super) const KEEP: Duration = Duration::from_secs(30);
/// Dropped flows that are kept, at most.
const KEEP_MAX: usize = 4096;

/// The four numbers that tell one connection from another on the same socket id.
pub(super) type Ends = (u32, u32, u32, u32);

/// Those of a flow, as CREATE has them.
pub(super) fn ends(info: &DatapathInfo) -> Ends {
    (info.src_ip, info.src_port, info.dst_ip, info.dst_port)
}

struct Kept {
    since: Instant,
    state: Box<State>,
}

/// The flows that may come back, by socket id.
#[derive(Default)]
pub(super) struct KeptFlows(Mutex<HashMap<u32, Kept>>);

impl KeptFlows {
    /// Keeps a flow, if there is room.
    pub(super) fn keep(&self, sock_id: u32, state: Box<State>) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, kept| kept.since.elapsed() < KEEP);
        if map.len() < KEEP_MAX {
            let since = Instant::now();
            map.insert(sock_id, Kept { since, state });
        }
    }

    /// The flow between these ends, if it was kept and not for too long.
    pub(super) fn take(&self, sock_id: u32, ends: Ends) -> Option<Box<State>> {
        let kept = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&sock_id)?;
        (kept.state.ends == ends && kept.since.elapsed() < KEEP).then_some(kept.state)
    }
}
