//! Comparisons under virtual time: real TCP of a Debian kernel inside QEMU.
//!
//! A shared machine of two cores disturbs every timing that it measures. A guest under TCG with
//! instruction counting does not notice: its clock advances 2 ns with every instruction it
//! executes and jumps over idle time, so the result is that of an undisturbed machine of 500
//! million instructions per second, however long the host takes. It also makes Debian's kernels
//! available wherever QEMU runs, with the netem and fq that the host may lack.
//!
//! Every run boots its own guest, from the same clock and the same random seed. So a run's result
//! depends on nothing but the run, neither on its place in the list nor on what ran before, and
//! guests can run side by side. The guest's root file system is made of binaries of this machine
//! (busybox, iproute2, iperf3, ethtool, the agent); neither root nor KVM is needed.
//!
//! What to mind when reading the figures:
//! - up to 500 Mbit/s or so the guest's CPU is not the bottleneck; above, it is;
//! - the bottleneck is netem and the sender's device has fq, so TCP is paced by fq, not by its
//!   internal timer;
//! - TCP sends packet by packet (`gso_max_segs 1`) unless [`Config::bursts`] says otherwise; then
//!   its bursts meet the bottleneck queue undiluted by an access link;
//! - the agent shares the single CPU with the TCP stack, and its CPU share is one of that CPU.

mod error;
mod exec;
mod host;
mod image;
mod kernel;
mod outcome;
mod path;
mod plan;
mod qemu;
mod report;
mod stream;

use std::env;
use std::fmt;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::Interrupt;
use crate::row::Row;
use crate::scenario::{PathSpec, Scheme};

pub use error::Error;
pub use exec::{Executed, Payload, exec, exec_payload};
pub use kernel::{KernelVersion, UnknownKernel};
pub use outcome::{Interval, Outcome};
pub use path::{ParsePathError, parse_path};
pub use plan::{Action, Event, GuestRun};
pub use report::{GuestSummary, Report};
pub use stream::StreamError;

/// Where the agent's binary is inside the guest.
pub const AGENT_BINARY: &str = "/bin/pk3c-ccp";

/// Virtual time that the guest's CPU takes for an instruction, whatever it is, ns: times in a guest
/// are counts of instructions.
pub const INSTRUCTION_NS: u64 = 1 << INSTRUCTION_SHIFT;
const INSTRUCTION_SHIFT: u32 = 1;

/// iperf3's own limit of parallel streams.
const MAX_FLOWS: u32 = 128;

/// The modules that a run needs, beside what they depend on.
const MODULES: [&str; 4] = ["veth", "sch_netem", "sch_fq", "tcp_bbr"];

/// The applets of busybox that the guest's script uses.
const APPLETS: [&str; 17] = [
    "cat", "dmesg", "echo", "grep", "insmod", "kill", "mount", "mv", "poweroff", "sh", "sleep",
    "stty", "sysctl", "timeout", "tr", "uname", "wc",
];

/// How guests are made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The guest's kernel.
    pub kernel: KernelVersion,
    /// The agent's binary on this machine, for runs with an agent.
    pub agent: Option<PathBuf>,
    /// Seed of the guest's randomness: which packets are lost, above all.
    pub seed: u64,
    /// Guests side by side, each on one host core. Results do not depend on it.
    pub jobs: NonZeroUsize,
    /// Where kernels are kept; `None` for `pk3c-ccp/guest` in the user's cache folder.
    pub cache: Option<PathBuf>,
    /// Where every run leaves its iperf3 report, agent log and console; nowhere if `None`.
    pub keep_logs: Option<PathBuf>,
    /// Whether the sender's device takes bursts of several packets from TCP, as one with
    /// segmentation offload does. Without, TCP sends packet by packet, as it does over the path
    /// emulator of this machine.
    pub bursts: bool,
    /// An unpacked kernel (`boot/vmlinuz-*` and `lib/modules/*`) to use instead of Debian's of the
    /// series that [`Config::kernel`] names: one built to find faults, say.
    pub unpacked_kernel: Option<PathBuf>,
    /// Whether the guest has two CPUs that run side by side, in the wall clock's time: to hunt races,
    /// not to measure.
    pub racing: bool,
    /// Kernel modules of this machine that every guest loads at boot, in this order, after those of
    /// its own kernel.
    pub modules: Vec<PathBuf>,
    /// Raised, ends all guests within a second; [`run`] then fails with [`Error::Interrupted`].
    pub interrupt: Interrupt,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kernel: KernelVersion::default(),
            agent: None,
            seed: 1,
            jobs: NonZeroUsize::MIN,
            cache: None,
            keep_logs: None,
            bursts: false,
            unpacked_kernel: None,
            racing: false,
            modules: Vec::new(),
            interrupt: Interrupt::default(),
        }
    }
}

/// A run has ended; as text, a line that says what it showed.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Runs that have ended so far, this one included.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// The run.
    pub run: &'a GuestRun,
    /// What it showed.
    pub outcome: &'a Outcome,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            done,
            total,
            run,
            outcome,
        } = self;
        let Row {
            share,
            rtt_p95_ms,
            agent_driven,
            ..
        } = &outcome.row;
        write!(
            f,
            "[{done:>2}/{total}] {}: share {share:.3}, RTT p95 {rtt_p95_ms:.1} ms",
            run.label()
        )?;
        if let Some(driven) = agent_driven {
            write!(f, ", driven {driven:.3}")?;
        }
        write!(
            f,
            " ({} s took {:.0} s)",
            run.secs,
            outcome.wall.as_secs_f64()
        )?;
        outcome
            .remarks
            .lines()
            .try_for_each(|remark| write!(f, "; {remark}"))
    }
}

/// Makes all runs, each in a guest of its own, and returns their outcomes in the order of the
/// list. Blocks for one to two seconds of wall time per second of a run at 50 Mbit/s, and about
/// six for each boot.
///
/// # Errors
/// Fails before the first run if something that guests need is missing ([`Error::Missing`]) or
/// the kernel cannot be fetched; later with the first run that cannot be made, which ends all
/// others.
pub fn run(
    config: &Config,
    runs: &[GuestRun],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Vec<Outcome>, Error> {
    for run in runs {
        check(config, run)?;
    }
    let host = host::Host::probe()?;
    let kernel = obtain_kernel(config)?;
    let root = root_archive(config, &host, &kernel)?;

    let failed = AtomicBool::new(false);
    let stop = || failed.load(Ordering::Relaxed) || config.interrupt.is_raised();
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..config.jobs.get().min(runs.len()) {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                while !stop() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(index) else { break };
                    let outcome = run_one(config, &kernel.image, &root, index, run, &stop);
                    failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    if sender.send((index, outcome)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut outcomes: Vec<Option<Outcome>> = runs.iter().map(|_| None).collect();
        for (done, (index, outcome)) in (1..).zip(receiver) {
            let outcome = outcome?;
            progress(&Progress {
                done,
                total: runs.len(),
                run: &runs[index],
                outcome: &outcome,
            });
            outcomes[index] = Some(outcome);
        }
        outcomes
            .into_iter()
            .collect::<Option<_>>()
            .ok_or(Error::Interrupted)
    })
}

/// The first comparison inside guests: the demo's three paths, one flow and four, under each
/// scheme, 30 s a run. `quick` leaves out the four flows and sends for 10 s.
///
/// # Errors
/// As [`run`].
pub fn demo(
    config: &Config,
    schemes: &[Scheme],
    quick: bool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Report, Error> {
    let (flows, secs): (&[u32], u32) = if quick { (&[1], 10) } else { (&[1, 4], 30) };
    let runs = matrix(&PathSpec::demo(), schemes, flows, secs);
    Ok(Report::new(config, run(config, &runs, progress)?))
}

/// Every scheme on every path with every number of flows, in the order of a table.
pub fn matrix(paths: &[PathSpec], schemes: &[Scheme], flows: &[u32], secs: u32) -> Vec<GuestRun> {
    let mut runs = Vec::new();
    for path in paths {
        for &flows in flows {
            for scheme in schemes {
                let (path, scheme) = (path.clone(), scheme.clone());
                runs.push(GuestRun {
                    path,
                    scheme,
                    flows,
                    secs,
                    events: Vec::new(),
                });
            }
        }
    }
    runs
}

fn check(config: &Config, run: &GuestRun) -> Result<(), Error> {
    let bad = |problem| {
        Err(Error::BadRun {
            run: run.label(),
            problem,
        })
    };
    match &run.scheme {
        Scheme::Agent { command, .. } if command.is_empty() => bad("has no command for the agent"),
        Scheme::Agent { command, .. } if command[0] == AGENT_BINARY && config.agent.is_none() => {
            bad("needs an agent, and none is configured")
        }
        Scheme::Kernel(_) if !run.events.is_empty() => bad("has events for an agent, but no agent"),
        _ if !(1..=MAX_FLOWS).contains(&run.flows) => bad("must have 1 to 128 flows"),
        _ if run.secs == 0 => bad("must last at least 1 s"),
        _ => Ok(()),
    }
}

fn run_one(
    config: &Config,
    kernel: &Path,
    root: &[u8],
    index: usize,
    run: &GuestRun,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, Error> {
    let plan = plan::render(run, config.bursts);
    let mut own = image::Archive::default();
    own.file("plan", plan.as_bytes());
    own.file("events", plan::render_events(&run.events).as_bytes());
    let began = Instant::now();
    let guest = qemu::Qemu::boot(kernel, &[root, &own.finish()], config.seed, config.racing)?;
    let ended = guest.finish(wall_limit(run), stop)?;
    let wall = began.elapsed();
    if let Some(dir) = &config.keep_logs {
        keep_logs(&dir.join(log_name(index, run)), &plan, &ended)?;
    }
    let transcript = ended.transcript.map_err(|cause| Error::Stream {
        run: run.label(),
        cause,
        console: qemu::excerpt(&ended.console),
    })?;
    Outcome::read(run, &transcript, wall)
}

/// Ten times what a run takes alone on a core; above 100 Mbit/s the time grows with the rate.
fn wall_limit(run: &GuestRun) -> Duration {
    let slowness = (run.path.rate_bps as f64 / 1e8).max(1.0);
    Duration::from_secs(120) + Duration::from_secs(10).mul_f64(slowness * f64::from(run.secs))
}

fn log_name(index: usize, run: &GuestRun) -> String {
    let name = format!(
        "{:02}-{}-{}-{}",
        index + 1,
        run.path.name,
        run.scheme.name(),
        run.flows
    );
    name.replace(['/', ' '], "_")
}

fn keep_logs(dir: &Path, plan: &str, ended: &qemu::Ended) -> Result<(), Error> {
    let write = |name: &str, content: &[u8]| {
        let file = dir.join(name);
        fs::write(&file, content).map_err(Error::io("write", &file))
    };
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    write("plan", plan.as_bytes())?;
    write("console.log", ended.console.as_bytes())?;
    let files = ended
        .transcript
        .as_ref()
        .map(|transcript| &transcript.files);
    files
        .into_iter()
        .flatten()
        .try_for_each(|(name, content)| write(name, content))
}

fn root_archive(
    config: &Config,
    host: &host::Host,
    kernel: &kernel::Kernel,
) -> Result<Vec<u8>, Error> {
    let mut root = image::Archive::default();
    for dir in ["proc", "sys", "dev", "tmp", "run", "modules"] {
        root.directory(dir);
    }
    root.file("init", include_bytes!("../../guest/init.sh"));
    root.binary(&host.busybox, "bin/busybox")?;
    for applet in APPLETS {
        root.symlink(&format!("bin/{applet}"), "busybox");
    }
    for (binary, name) in [
        (&host.ip, "ip"),
        (&host.tc, "tc"),
        (&host.iperf3, "iperf3"),
        (&host.ethtool, "ethtool"),
    ] {
        root.binary(binary, &format!("bin/{name}"))?;
    }
    if let Some(agent) = &config.agent {
        root.binary(agent, AGENT_BINARY.trim_start_matches('/'))?;
    }
    for (order, (name, object)) in kernel.modules(&MODULES)?.iter().enumerate() {
        root.file(&format!("modules/{order:02}-{name}.ko"), object);
    }
    for (order, file) in config.modules.iter().enumerate() {
        let object = fs::read(file).map_err(Error::io("read", file))?;
        root.file(&format!("modules/90{order:02}.ko"), &object);
    }
    Ok(root.finish())
}

fn obtain_kernel(config: &Config) -> Result<kernel::Kernel, Error> {
    match &config.unpacked_kernel {
        Some(folder) => kernel::Kernel::unpacked(folder),
        None => kernel::Kernel::obtain(config.kernel, &cache_dir(config)?),
    }
}

/// Release of the kernel that guests boot, as `uname -r` says it; the kernel is fetched first if the cache has none.
///
/// # Errors
/// If the kernel cannot be had.
pub fn kernel_release(config: &Config) -> Result<String, Error> {
    Ok(obtain_kernel(config)?.release())
}

fn cache_dir(config: &Config) -> Result<PathBuf, Error> {
    if let Some(dir) = &config.cache {
        return Ok(dir.clone());
    }
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(base.ok_or(Error::NoCache)?.join("pk3c-ccp/guest"))
}
