//! The datapath's life: load and register, adopt what a crashed agent left, unregister.
//!
//! While the pins are there, sockets can choose the congestion control, agent or not; without an
//! agent the flows run under the datapath's fallback. A start that finds pins adopts them, so live
//! flows are offered to the new agent; a clean stop removes them all.

use crate::error::Error;
use crate::flows::{Counters, FlowInfo, Flows};
use crate::governance::Governance;
use crate::ipc::{self, BpfIpc};
use crate::kernel::{self, Kernel};
use crate::layout::{Control, LAYOUT_VERSION, MAX_PROGS};
use crate::own_dir::{self, Lock};
use crate::programs::Programs;
use crate::sys::{self, SharedArray};
use crate::{object, pins};
use libbpf_rs::{MapCore, MapHandle};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use tracing::{info, warn};

/// What the datapath is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// The congestion control's names, 1-15 bytes each. A flow's CREATE carries the name that its
    /// socket chose, and portus picks the algorithm of that name.
    pub names: Vec<String>,
    /// Flows that can be driven at once, 1..=65535. Each takes 976 bytes of kernel memory.
    pub max_flows: u32,
    /// Size of the ring of events in bytes, a power of two of at least 4096.
    pub ring_bytes: u32,
    /// The agent counts as gone when it gives no sign of life for this long.
    pub silence: Duration,
    /// Smallest congestion window an agent can set, in packets.
    pub min_cwnd: u32,
    /// Smallest pacing rate an agent can set, in bytes/s. An armed pacing timer is not shortened,
    /// so a rate of a packet per minute would stop the flow for a minute.
    pub min_rate: u64,
    /// Largest pacing rate an agent can set, in bytes/s; 2^32 - 1, the default, is no limit. Like the two above it is
    /// part of the code that is loaded: sockets of before keep that of their time, whoever comes later.
    pub max_rate: u64,
    /// Largest pacing rate of any flow under this agent, in bytes/s: an upper bound of every
    /// [`crate::Limits::max_rate`], for the flows of an agent before it, too.
    pub max_flow_rate: u64,
    /// Directory for the pins, in a BPF file system.
    pub pin_dir: PathBuf,
    /// Directory for the lock that keeps a second agent out. Nobody else may be able to change it, nor that of the
    /// pins.
    pub lock_dir: PathBuf,
}

impl Config {
    /// The defaults for a congestion control of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            pin_dir: Path::new("/sys/fs/bpf").join(format!("{name}-ccp")),
            lock_dir: Path::new("/run").join(format!("{name}-ccp")),
            names: vec![name],
            max_flows: 16_384,
            ring_bytes: 4 << 20,
            silence: Duration::from_millis(100),
            min_cwnd: 4,
            min_rate: 2_000,
            max_rate: u64::from(u32::MAX),
            max_flow_rate: u64::MAX,
        }
    }

    fn validate(&self) -> Result<(), Error> {
        let check = |ok: bool, what, value: String, allowed| {
            if ok {
                Ok(())
            } else {
                Err(Error::Config {
                    what,
                    value,
                    allowed,
                })
            }
        };
        let count = self.names.len();
        check(
            (1..=16).contains(&count),
            "the number of names",
            count.to_string(),
            "1..=16",
        )?;
        for (index, name) in self.names.iter().enumerate() {
            let name_ok = (1..=15).contains(&name.len())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            check(
                name_ok,
                "a name",
                name.clone(),
                "1-15 letters, digits, '_' or '-'",
            )?;
            let unique = !self.names[..index].contains(name);
            check(unique, "a name given twice", name.clone(), "each name once")?;
        }
        let flows_ok = (1..=65_535).contains(&self.max_flows);
        check(
            flows_ok,
            "the number of flows",
            self.max_flows.to_string(),
            "1..=65535",
        )?;
        let ring_ok = self.ring_bytes.is_power_of_two() && self.ring_bytes >= 4096;
        check(
            ring_ok,
            "the ring",
            self.ring_bytes.to_string(),
            "a power of two from 4096 bytes",
        )?;
        let silence = self.silence.as_micros();
        let silence_ok = (50_000..=60_000_000).contains(&silence);
        check(
            silence_ok,
            "the silence",
            format!("{silence} us"),
            "50 ms to 60 s",
        )?;
        let cwnd_ok = (1..=1_000_000).contains(&self.min_cwnd);
        check(
            cwnd_ok,
            "the smallest cwnd",
            self.min_cwnd.to_string(),
            "1..=1000000 packets",
        )?;
        let rates_ok = 0 < self.min_rate && self.min_rate <= self.max_rate.min(self.max_flow_rate);
        let rates = format!("{}..{}", self.min_rate, self.max_rate);
        check(
            rates_ok,
            "the range of rates",
            rates,
            "0 < smallest <= largest",
        )
    }
}

/// How this start came by the datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Loaded and registered anew.
    Loaded,
    /// A previous agent's, as it was.
    Adopted,
    /// A previous agent's maps and registration, under this version's code or with other limits.
    /// Sockets of before go on under the old ones, and are driven too.
    Upgraded,
}

/// A registered congestion control, ready for an agent.
pub struct Datapath {
    config: Config,
    kernel: Kernel,
    origin: Origin,
    flows: Arc<Flows>,
    maps: Maps,
    /// Given up at the end; gone after a clean one.
    lock: Option<Lock>,
}

/// The maps by handle; they stay when the object that made them goes.
struct Maps {
    flows: MapHandle,
    events: MapHandle,
    program_tables: MapHandle,
    programs: MapHandle,
    control: MapHandle,
}

impl Maps {
    fn open(dir: &Path) -> Result<Self, Error> {
        Ok(Self {
            flows: pins::open_map(dir, "flows")?,
            events: pins::open_map(dir, "events")?,
            program_tables: pins::open_map(dir, "program_tables")?,
            programs: pins::open_map(dir, "programs")?,
            control: pins::open_map(dir, "control")?,
        })
    }

    fn control(&self) -> Result<SharedArray<Control>, Error> {
        SharedArray::map(self.control.as_fd(), self.control.value_size(), 1)
    }

    fn share(&self) -> Result<Flows, Error> {
        let slots = self.flows.max_entries() as usize;
        let slots = SharedArray::map(self.flows.as_fd(), self.flows.value_size(), slots)?;
        Ok(Flows::new(slots, self.control()?))
    }
}

impl Datapath {
    /// Makes the congestion control available to sockets, or adopts it.
    ///
    /// # Errors
    /// Each names its remedy: privileges, kernel, BPF file system, a second agent, a name that is
    /// taken, pins of an incompatible version.
    pub fn start(config: Config) -> Result<Self, Error> {
        config.validate()?;
        let lock = lock(&config)?;
        let kernel = Kernel::probe()?;
        check_place(&config.pin_dir)?;
        own_dir::is_there(&config.pin_dir)?;
        if !kernel.has_cubic {
            warn!("this kernel has no Cubic for BPF to call: Reno is the fallback");
        }
        let registered = kernel::available()?;
        let foreign =
            |name: &&String| registered.contains(name) && !pins::has(&config.pin_dir, name);
        for name in config.names.iter().filter(foreign) {
            // It may be on its way out.
            if !kernel::leaves(name)? {
                return Err(Error::NameTaken { name: name.clone() });
            }
        }
        let pinned = pins::names(&config.pin_dir)?;
        let (origin, (maps, flows)) = if pinned.iter().any(|name| registered.contains(name)) {
            let origin = adopt(&config, kernel, &pinned, &registered)?;
            (origin, take_over(&config)?)
        } else {
            // Pins without a registration: a start or a stop that was cut short.
            pins::remove_all(&config.pin_dir)?;
            let loaded = load(&config, kernel).inspect_err(|_| {
                let _ = pins::remove_all(&config.pin_dir);
            })?;
            (Origin::Loaded, loaded)
        };
        info!(names = ?config.names, ?origin, max_flows = flows.slots.len(), "datapath ready");
        Ok(Self {
            config,
            kernel,
            origin,
            flows: Arc::new(flows),
            maps,
            lock: Some(lock),
        })
    }

    /// How this start came by the datapath.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The connection for portus' run loop. There is one agent, so call it once.
    ///
    /// # Errors
    /// If the ring of events cannot be opened.
    pub fn ipc(&self) -> Result<BpfIpc, Error> {
        let tables = SharedArray::map(
            self.maps.program_tables.as_fd(),
            self.maps.program_tables.value_size(),
            MAX_PROGS,
        )?;
        let duplicate = |map: &MapHandle| {
            MapHandle::try_from(map).map_err(Error::bpf("duplicating a map's descriptor"))
        };
        let programs = Programs::new(
            self.kernel,
            tables,
            duplicate(&self.maps.flows)?,
            duplicate(&self.maps.programs)?,
        );
        BpfIpc::new(
            self.flows.clone(),
            &self.maps.events,
            programs,
            self.config.silence,
        )
    }

    /// A handle to look at flows and counters, for any thread.
    pub fn observer(&self) -> Observer {
        Observer {
            flows: self.flows.clone(),
        }
    }

    /// Takes the congestion control out of the list and removes the pins. Live sockets go on
    /// under the fallback; their memory is freed with the last of them.
    ///
    /// # Errors
    /// If the registration or a pin cannot be removed.
    pub fn stop(mut self) -> Result<(), Error> {
        pins::remove_all(&self.config.pin_dir)?;
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
        Ok(())
    }
}

impl Drop for Datapath {
    /// Without [`Datapath::stop`] everything stays for the next agent, but flows need not wait for
    /// the silence to see that this one is gone. Their time until now stays its own.
    fn drop(&mut self) {
        let silence_us = self.config.silence.as_micros() as u64;
        let gone = ipc::sign_of_life(sys::monotonic_us(), true, silence_us);
        self.flows.control().beat_us.fetch_min(gone, AcqRel);
    }
}

/// A handle to look at flows and counters.
#[derive(Clone)]
pub struct Observer {
    flows: Arc<Flows>,
}

impl Observer {
    /// What is known of a flow that lives or has just closed, by portus' socket id.
    pub fn flow(&self, sock_id: u32) -> Option<FlowInfo> {
        self.flows.info(sock_id)
    }

    /// The segment size of a live flow in bytes, as of its last ACK: it changes with the MTU of the path. A look at
    /// shared memory, cheap enough for every report.
    pub fn mss(&self, sock_id: u32) -> Option<u32> {
        self.flows.mss(sock_id)
    }

    /// Sets how a flow may be driven, from its next ACK or transmission on; returns false if it has ended.
    ///
    /// Call it when the flow is created, before the agent installs a program on it. It holds until the flow ends or the
    /// next agent starts, also when this one is gone. A flow whose [`crate::Mode`] changes goes to the fallback, and is
    /// offered to the agent again (created anew) unless it is to be left alone. Any thread may call it.
    pub fn govern(&self, sock_id: u32, governance: Governance) -> bool {
        self.flows.govern(sock_id, &governance)
    }

    /// The counters of the datapath.
    pub fn counters(&self) -> Counters {
        self.flows.counters()
    }

    /// All live flows, by portus' socket id. Looks at every slot of the table.
    pub fn flows(&self) -> Vec<(u32, FlowInfo)> {
        self.flows.all()
    }

    /// Hands all flows to the fallback, and keeps new ones there, although an agent is running; or lets the agent drive
    /// again: then flows are offered to it with their next ACKs. Takes effect within 25 ms.
    pub fn drain(&self, drain: bool) {
        self.flows.drained.store(drain, Release);
    }

    /// Whether flows are kept in the fallback by [`Observer::drain`].
    pub fn is_drained(&self) -> bool {
        self.flows.drained.load(Acquire)
    }

    /// Time since the agent's last sign of life, which it gives at least every 25 ms; longer by [`Config::silence`] and
    /// 10 ms while it is drained.
    pub fn agent_silence(&self) -> Duration {
        let last = self.flows.control().beat_us.load(Acquire);
        Duration::from_micros(sys::monotonic_us().saturating_sub(last))
    }

    /// Number of live flows.
    pub fn live_flows(&self) -> usize {
        let slots = &self.flows.slots;
        let live = |i: &usize| {
            slots
                .get(*i)
                .is_some_and(|slot| slot.live.load(Relaxed) == 1)
        };
        (0..slots.len()).filter(live).count()
    }
}

/// Removes what an agent that did not stop cleanly left: its registrations and pins.
///
/// # Errors
/// If an agent is running, or something cannot be removed.
pub fn detach(config: &Config) -> Result<bool, Error> {
    let lock = lock(config)?;
    let found = own_dir::is_there(&config.pin_dir)?;
    if found {
        pins::remove_all(&config.pin_dir)?;
    }
    lock.remove();
    Ok(found)
}

/// The lock is by the first name: it stands for the pins.
fn lock(config: &Config) -> Result<Lock, Error> {
    let name = &config.names[0];
    let file = format!("{name}.lock");
    let lock = Lock::take(&config.lock_dir, &file)?;
    lock.ok_or_else(|| Error::Running {
        name: name.clone(),
        lock: config.lock_dir.join(file),
    })
}

/// Whether pins can go there: into a directory of their own, in a BPF file system.
fn check_place(pin_dir: &Path) -> Result<(), Error> {
    let path = pin_dir.to_owned();
    let parent = pin_dir.parent().unwrap_or(Path::new("/"));
    if sys::is_bpffs(parent) {
        return Ok(());
    }
    let why = if sys::is_bpffs(pin_dir) {
        "it is a BPF file system itself: name a directory in it".to_owned()
    } else if !parent.exists() {
        let parent = parent.display();
        format!("{parent} does not exist: create it, or name another directory")
    } else {
        return Err(Error::NoBpfFs { path });
    };
    Err(Error::PinDir { path, why })
}

/// The names come last: from then on sockets choose them, and what is not set by then holds for the first connections.
fn load(config: &Config, kernel: Kernel) -> Result<(Maps, Flows), Error> {
    object::create_maps(config, kernel)?;
    let taken = take_over(config)?;
    let control = taken.1.control();
    control.layout_version.store(LAYOUT_VERSION, Relaxed);
    let version = object::version(config, kernel);
    control.object_hash.store(version, Relaxed);
    let mut names = config.names.iter();
    names.try_for_each(|name| object::register(config, kernel, name))?;
    Ok(taken)
}

/// Makes the maps this agent's.
fn take_over(config: &Config) -> Result<(Maps, Flows), Error> {
    let maps = Maps::open(&config.pin_dir)?;
    let flows = maps.share()?;
    flows.begin_anew(config.max_flow_rate);
    flows.control().epoch.fetch_add(1, AcqRel);
    Ok((maps, flows))
}

/// Takes over running registrations and their maps.
fn adopt(
    config: &Config,
    kernel: Kernel,
    pinned: &[String],
    registered: &[String],
) -> Result<Origin, Error> {
    let maps = Maps::open(&config.pin_dir)?;
    let control = maps.control()?;
    let control = control.get(0).expect("the control map has one value");
    let found = control.layout_version.load(Relaxed);
    if found != LAYOUT_VERSION {
        let path = config.pin_dir.clone();
        return Err(Error::Layout {
            path,
            found,
            ours: LAYOUT_VERSION,
        });
    }
    let kept = maps.flows.max_entries();
    if kept != config.max_flows {
        warn!(
            kept,
            asked = config.max_flows,
            "the running datapath keeps its number of flows"
        );
    }
    for name in pinned.iter().filter(|name| !config.names.contains(name)) {
        info!(name, "no longer offered");
        pins::unregister(&config.pin_dir, name)?;
    }
    let version = object::version(config, kernel);
    let same = control.object_hash.load(Relaxed) == version;
    for name in &config.names {
        match (pinned.contains(name) && registered.contains(name), same) {
            (true, true) => {}
            (true, false) => object::exchange(config, kernel, name)?,
            (false, _) => {
                // A pin without a registration: a start that was cut short, or somebody else's detaching.
                pins::unregister(&config.pin_dir, name)?;
                object::register(config, kernel, name)?;
            }
        }
    }
    control.object_hash.store(version, Relaxed);
    Ok(if same {
        Origin::Adopted
    } else {
        Origin::Upgraded
    })
}
