//! What the kernel tests share: a guard over the machine's state, the agent under test, emulated
//! paths, and a traffic generator that sees every connection's progress.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of the harness"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a harness that cannot go on fails the test with the cause"
)]

pub(crate) mod agent;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod path;

use std::time::{Duration, Instant};

/// The congestion control's name.
pub(crate) const NAME: &str = "pk3c";
/// Where a running agent pins its link and maps.
pub(crate) const PIN_DIR: &str = "/sys/fs/bpf/pk3c-ccp";
/// User and group id of `nobody` on every Linux system.
pub(crate) const NOBODY: u32 = 65534;

/// Polls until a condition holds; false when it still does not after `limit`.
pub(crate) fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
