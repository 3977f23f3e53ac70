//! What the datapath's kernel tests share: a datapath with an agent in a thread, sockets, and a
//! look at the maps.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of the harness"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a harness that cannot go on fails the test with the cause"
)]
#![allow(unsafe_code, reason = "socket options, epoll and mapped memory")]

pub(crate) mod agent;
pub(crate) mod crowd;
pub(crate) mod log;
pub(crate) mod maps;
pub(crate) mod mark;
pub(crate) mod peer;
pub(crate) mod talk;
pub(crate) mod tcp;

use ccp_bpf::{Config, Datapath};
use pathlab::netns::Netns;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the names of all congestion controls stand.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Whether a kernel test can run here; says so by name if not.
pub(crate) fn can_run(test: &str) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() == 0 };
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let obstacle = if !root {
        "needs root"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF)"
    } else if !mounts.contains(" /sys/fs/bpf bpf ") {
        "needs bpffs on /sys/fs/bpf (scripts/setup.sh mounts it)"
    } else {
        return true;
    };
    println!("SKIPPED {test}: {obstacle}");
    false
}

/// Starts a datapath that must start.
pub(crate) fn start(config: &Config) -> Datapath {
    Datapath::start(config.clone())
        .unwrap_or_else(|error| panic!("the datapath of {:?}: {error}", config.names))
}

/// Removes what an earlier failure left, and what a failure of this test would leave.
pub(crate) struct Guard(Config);

impl Guard {
    pub(crate) fn new(config: &Config) -> Self {
        ccp_bpf::detach(config).unwrap();
        Self(config.clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = ccp_bpf::detach(&self.0);
        }
    }
}

/// Whether a congestion control can be chosen now.
pub(crate) fn is_listed(name: &str) -> bool {
    let list = std::fs::read_to_string(AVAILABLE).unwrap();
    list.split_whitespace().any(|listed| listed == name)
}

/// Nothing of the datapath is left: no name in the list, no pin, no registration in the kernel.
pub(crate) fn assert_gone(config: &Config) {
    assert!(!config.pin_dir.exists(), "{}", config.pin_dir.display());
    for name in &config.names {
        wait_until("the name leaves the list", || !is_listed(name));
        // After several grace periods of RCU, each of which waits for every task of a busy machine.
        let gone = eventually(Duration::from_secs(60), || maps::registrations(name) == 0);
        assert!(gone, "the kernel still holds a registration of {name}");
    }
}

/// Polls until a condition holds; false when it still does not after `limit`.
pub(crate) fn eventually(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a condition that must come to hold.
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    const LIMIT: Duration = Duration::from_secs(20);
    assert!(eventually(LIMIT, holds), "not within {LIMIT:?}: {what}");
}

/// A namespace with a loopback device that has Ethernet's MTU.
pub(crate) fn loopback() -> Netns {
    let netns = Netns::new().unwrap();
    let up = ["link", "set", "lo", "mtu", "1500", "up"];
    netns.configure("ip", &up).unwrap();
    netns
}
