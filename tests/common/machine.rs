//! The machine's state around a test: what it must have, and that it is afterwards as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::{NAME, PIN_DIR, eventually};

/// BPF objects and network namespaces are freed some time after their last holder is gone.
const SETTLE: Duration = Duration::from_secs(30);

/// Settings that the agent, the paths or the tests could touch, in the root namespace.
const SYSCTLS: &[&str] = &[
    "kernel/sched_rt_runtime_us",
    "net/core/default_qdisc",
    "net/core/rmem_max",
    "net/core/somaxconn",
    "net/core/wmem_max",
    "net/ipv4/ip_forward",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_allowed_congestion_control",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
];

fn read_sysctl(name: &str) -> Option<String> {
    Some(
        fs::read_to_string(format!("/proc/sys/{name}"))
            .ok()?
            .trim()
            .to_owned(),
    )
}

/// The congestion controls that a socket can choose now.
pub(crate) fn available() -> BTreeSet<String> {
    let names = read_sysctl("net/ipv4/tcp_available_congestion_control").unwrap();
    names.split_whitespace().map(str::to_owned).collect()
}

/// Whether our name can be chosen now.
pub(crate) fn is_registered() -> bool {
    available().contains(NAME)
}

/// The congestion control of new sockets in the root namespace.
pub(crate) fn default_congestion() -> String {
    read_sysctl("net/ipv4/tcp_congestion_control").unwrap()
}

/// Sets the congestion control of new sockets in the root namespace.
pub(crate) fn set_default_congestion(name: &str) {
    fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name).unwrap();
}

fn names_in(folder: impl AsRef<Path>) -> BTreeSet<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

fn pins(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for path in names_in(folder) {
        if path.is_dir() {
            found.append(&mut pins(&path));
        }
        found.insert(path);
    }
    found
}

/// Group that a process belongs to, from the text of its `/proc/PID/stat`. A command in parentheses
/// comes first, then the state, the parent and the group.
fn process_group(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(2)?
        .parse()
        .ok()
}

/// The living processes of our group, one line each with its network namespace. What a test starts
/// joins this group and stays in it as an orphan; others' processes do not matter.
fn our_processes() -> BTreeSet<String> {
    let group = nix::unistd::getpgrp().as_raw();
    let describe = |process: &PathBuf| {
        let stat = fs::read_to_string(process.join("stat")).ok()?;
        let (id_and_name, _) = stat.split_once(") ")?;
        // A zombie has no namespace any more.
        let namespace = fs::read_link(process.join("ns/net")).ok()?;
        let ours = process_group(&stat) == Some(group);
        ours.then(|| format!("process {id_and_name}) in {}", namespace.display()))
    };
    names_in("/proc").iter().filter_map(describe).collect()
}

/// Everything that a test must leave as it found it.
#[derive(Debug)]
pub(crate) struct KernelState {
    sysctls: BTreeMap<&'static str, String>,
    /// One line for each congestion control, setting, process, namespace, link and pin.
    facts: BTreeSet<String>,
}

impl KernelState {
    /// The state now.
    pub(crate) fn capture() -> Self {
        let setting = |&name| Some((name, read_sysctl(name)?));
        let sysctls: BTreeMap<_, _> = SYSCTLS.iter().filter_map(setting).collect();
        let mut facts = BTreeSet::new();
        facts.extend(
            available()
                .iter()
                .map(|name| format!("congestion control {name}")),
        );
        facts.extend(
            sysctls
                .iter()
                .map(|(name, value)| format!("{name} = {value}")),
        );
        facts.append(&mut our_processes());
        let files = [
            names_in("/run/netns"),
            names_in("/sys/class/net"),
            pins("/sys/fs/bpf".as_ref()),
        ];
        facts.extend(
            files
                .iter()
                .flatten()
                .map(|path| path.display().to_string()),
        );
        Self { sysctls, facts }
    }

    /// What differs now from this state, as one line for each difference.
    pub(crate) fn changes(&self) -> Vec<String> {
        let now = Self::capture().facts;
        let new = now
            .difference(&self.facts)
            .map(|fact| format!("new: {fact}"));
        let gone = self
            .facts
            .difference(&now)
            .map(|fact| format!("gone: {fact}"));
        new.chain(gone).collect()
    }

    /// Fails the test if something differs after what the kernel frees late is gone.
    pub(crate) fn assert_unchanged(&self) {
        if !eventually(SETTLE, || self.changes().is_empty()) {
            panic!(
                "the test left the machine changed:\n{}",
                self.changes().join("\n")
            );
        }
    }

    /// Puts back, as far as possible, what a failed test left: the next test must be able to run.
    fn restore(&self) {
        for (name, value) in &self.sysctls {
            if read_sysctl(name).as_ref() != Some(value) {
                let _ = fs::write(format!("/proc/sys/{name}"), value);
            }
        }
        let _ = fs::remove_dir_all(PIN_DIR);
    }
}

/// Why kernel tests cannot run here, if they cannot.
fn obstacle() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        Some("needs root")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Some("needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF)")
    } else if !fs::read_to_string("/proc/mounts")
        .is_ok_and(|mounts| mounts.contains(" /sys/fs/bpf bpf "))
    {
        Some("needs bpffs on /sys/fs/bpf (scripts/setup.sh mounts it)")
    } else {
        None
    }
}

/// Says past the test runner's capture that a test did not run.
pub(crate) fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Whether a test that needs root, BTF and bpffs can run; says so by name if not.
pub(crate) fn require_root_bpf(test: &str) -> bool {
    if let Some(reason) = obstacle() {
        skipped(test, reason);
    }
    obstacle().is_none()
}

/// A kernel test in progress. Only one runs on the machine at a time, because all register one name.
pub(crate) struct KernelTest {
    before: KernelState,
    _turn: Flock<File>,
}

impl KernelTest {
    /// Waits for its turn; `None`, and a line that says why, where the test cannot run.
    pub(crate) fn begin(test: &str) -> Option<Self> {
        if !require_root_bpf(test) {
            return None;
        }
        let file = File::create(std::env::temp_dir().join("pk3c-ccp-kernel-test.lock")).unwrap();
        let turn = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .unwrap();
        assert!(
            eventually(SETTLE, || !is_registered()) && !Path::new(PIN_DIR).exists(),
            "{NAME} is registered or pinned in {PIN_DIR} already: stop the agent (pk3c-ccp run, then Ctrl-C) first"
        );
        Some(Self {
            before: KernelState::capture(),
            _turn: turn,
        })
    }

    /// The end of a test that went well: nothing is left behind.
    pub(crate) fn end(self) {
        self.before.assert_unchanged();
    }
}

impl Drop for KernelTest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.before.restore();
        }
    }
}
