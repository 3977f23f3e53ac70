//! The datapath's life: load and register, adopt what a crashed agent left, unregister.
//!
//! Everything that has to outlive the agent is pinned in one directory of a BPF file system:
//! the maps, and the registration (`link`, or `ops` on kernels before 6.4). While the pins are
//! there, sockets can choose the congestion control, agent or not; without an agent the flows run
//! under the datapath's fallback. A start that finds pins of this version adopts them, so live
//! flows are offered to the new agent; a clean stop removes them all.

use crate::error::Error;
use crate::flows::{Counters, FlowInfo, Flows};
use crate::ipc::BpfIpc;
use crate::kernel::{self, Kernel};
use crate::layout::{LAYOUT_VERSION, LoadConfig};
use crate::programs::Programs;
use crate::sys::{self, SharedArray};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use tracing::{debug, info, warn};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ccp.bpf.o"));
static SOURCES: [&str; 3] = [
    include_str!("bpf/ccp.bpf.c"),
    include_str!("bpf/intf.h"),
    include_str!("bpf/kernel.h"),
];

/// Map flag that asks for registration through a link; unknown before Linux 6.4.
const BPF_F_LINK: u32 = 1 << 13;

/// Pinned maps, by their names in the object.
const MAPS: [&str; 6] = [
    "flows",
    "free_slots",
    "events",
    "program_tables",
    "programs",
    "control",
];

/// What the datapath is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// The congestion control's name, 1-15 bytes.
    pub name: String,
    /// Flows that can be driven at once, 1..=65535. Each takes 896 bytes of kernel memory.
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
    /// Largest pacing rate an agent can set, in bytes/s.
    pub max_rate: u64,
    /// Directory for the pins, in a BPF file system.
    pub pin_dir: PathBuf,
    /// Directory for the lock that keeps a second agent out.
    pub lock_dir: PathBuf,
}

impl Config {
    /// The defaults for a congestion control of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            pin_dir: Path::new("/sys/fs/bpf").join(format!("{name}-ccp")),
            lock_dir: "/run/lock".into(),
            name,
            max_flows: 16_384,
            ring_bytes: 4 << 20,
            silence: Duration::from_millis(100),
            min_cwnd: 4,
            min_rate: 2_000,
            max_rate: u64::from(u32::MAX),
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
        let name_ok = (1..=15).contains(&self.name.len())
            && self
                .name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        check(
            name_ok,
            "the name",
            self.name.clone(),
            "1-15 letters, digits, '_' or '-'",
        )?;
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
        let rates_ok = 0 < self.min_rate && self.min_rate <= self.max_rate;
        let rates = format!("{}..{}", self.min_rate, self.max_rate);
        check(
            rates_ok,
            "the range of rates",
            rates,
            "0 < smallest <= largest",
        )
    }

    fn pin(&self, what: &str) -> PathBuf {
        self.pin_dir.join(what)
    }
}

/// How this start came by the datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Loaded and registered anew.
    Loaded,
    /// A previous agent's, as it was.
    Adopted,
    /// A previous agent's maps and registration, under this version's code. Sockets of before go
    /// on under the old code, and are driven too.
    Upgraded,
}

/// A registered congestion control, ready for an agent.
pub struct Datapath {
    config: Config,
    kernel: Kernel,
    origin: Origin,
    flows: Arc<Flows>,
    maps: Maps,
    _lock: File,
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
    fn open(config: &Config) -> Result<Self, Error> {
        let open = |name: &str| {
            let path = config.pin(name);
            let what = format!("opening the pinned map {}", path.display());
            MapHandle::from_pinned_path(&path).map_err(Error::bpf(what))
        };
        Ok(Self {
            flows: open("flows")?,
            events: open("events")?,
            program_tables: open("program_tables")?,
            programs: open("programs")?,
            control: open("control")?,
        })
    }

    fn share(&self) -> Result<Flows, Error> {
        let slots = self.flows.max_entries() as usize;
        let slots = SharedArray::map(self.flows.as_fd(), self.flows.value_size(), slots)?;
        let control = SharedArray::map(self.control.as_fd(), self.control.value_size(), 1)?;
        Ok(Flows::new(slots, control))
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
        let parent = config.pin_dir.parent().unwrap_or(Path::new("/"));
        if !sys::is_bpffs(parent) {
            return Err(Error::NoBpfFs {
                path: config.pin_dir.clone(),
            });
        }
        if !kernel.has_cubic {
            warn!("this kernel has no Cubic for BPF to call: Reno is the fallback");
        }
        let registered = kernel::available()?.contains(&config.name);
        let pinned = config.pin("link").exists() || config.pin("ops").exists();
        let origin = match (registered, pinned) {
            (true, false) => {
                return Err(Error::NameTaken {
                    name: config.name.clone(),
                });
            }
            (true, true) => adopt(&config, kernel)?,
            (false, _) => {
                // Pins without a registration: a start or a stop that was cut short.
                remove_pins(&config.pin_dir)?;
                load(&config, kernel).inspect_err(|_| {
                    let _ = remove_pins(&config.pin_dir);
                })?;
                Origin::Loaded
            }
        };
        let maps = Maps::open(&config)?;
        let flows = maps.share()?;
        flows.clear_mailboxes();
        flows.control().epoch.fetch_add(1, AcqRel);
        info!(
            name = config.name,
            ?origin,
            max_flows = flows.slots.len(),
            "datapath ready"
        );
        Ok(Self {
            config,
            kernel,
            origin,
            flows: Arc::new(flows),
            maps,
            _lock: lock,
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
            crate::layout::MAX_PROGS,
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
            &self.config.name,
            self.flows.clone(),
            &self.maps.events,
            programs,
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
    pub fn stop(self) -> Result<(), Error> {
        self.flows.control().beat_us.store(0, Release);
        unregister(&self.config.pin_dir)
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

    /// The counters of the datapath.
    pub fn counters(&self) -> Counters {
        self.flows.counters()
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

/// Removes what an agent that did not stop cleanly left: its registration and pins.
///
/// # Errors
/// If an agent is running, or something cannot be removed.
pub fn detach(config: &Config) -> Result<bool, Error> {
    let _lock = lock(config)?;
    if !config.pin_dir.exists() {
        return Ok(false);
    }
    unregister(&config.pin_dir)?;
    Ok(true)
}

fn lock(config: &Config) -> Result<File, Error> {
    let path = config
        .lock_dir
        .join(format!("ccp-bpf-{}.lock", config.name));
    let what = || format!("opening the lock {}", path.display());
    fs::create_dir_all(&config.lock_dir).map_err(Error::io(what()))?;
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => Error::Privilege,
            _ => Error::io(what())(e),
        })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::Running {
            name: config.name.clone(),
            lock: path,
        }),
        Err(fs::TryLockError::Error(e)) => Err(Error::io(what())(e)),
    }
}

/// FNV-1a over the sources, which unlike the object do not depend on where they were built.
fn object_hash() -> u64 {
    let bytes = SOURCES.iter().flat_map(|source| source.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn open_object(config: &Config, kernel: Kernel) -> Result<OpenObject, Error> {
    let mut open = ObjectBuilder::default()
        .name("ccp_bpf")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(Error::bpf("opening the BPF object"))?;
    let wanted = ops_name(kernel);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let failed = |step: &str| Error::bpf(format!("{step} of map {name}"));
        match name.as_str() {
            "flows" | "free_slots" => {
                map.set_max_entries(config.max_flows)
                    .map_err(failed("setting the size"))?;
            }
            "events" => map
                .set_max_entries(config.ring_bytes)
                .map_err(failed("setting the size"))?,
            "ccp_ops" | "ccp_ops2" | "ccp_type" => {
                map.set_autocreate(name == wanted || name == "ccp_type")
                    .map_err(failed("choosing the signature"))?;
                if name == wanted
                    && let Some(value) = map.initial_value_mut()
                {
                    // The object's struct begins with the name, NUL-terminated by its zeros.
                    value[..config.name.len()].copy_from_slice(config.name.as_bytes());
                }
                if !kernel.has_links {
                    let flags = map.map_flags() & !BPF_F_LINK;
                    map.set_map_flags(flags)
                        .map_err(failed("clearing the link flag"))?;
                }
            }
            _ if name.ends_with(".rodata.config") => {
                let settings = LoadConfig {
                    silence_us: config.silence.as_micros() as u32,
                    create_retry_us: 100_000,
                    min_cwnd: config.min_cwnd,
                    have_cubic: kernel.has_cubic,
                    min_rate: config.min_rate,
                    max_rate: config.max_rate,
                };
                let value = map.initial_value_mut();
                let value = value.ok_or(Error::Kernel {
                    missing: "read-only data",
                })?;
                value[..32].copy_from_slice(&settings.encode());
            }
            _ => {}
        }
    }
    Ok(open)
}

fn ops_name(kernel: Kernel) -> &'static str {
    if kernel.two_arguments {
        "ccp_ops2"
    } else {
        "ccp_ops"
    }
}

/// The name a map is pinned under; `None` for those that are not shared with the agent.
fn pin_name(map: &str) -> Option<&'static str> {
    let plain = if map.ends_with(".data.control") {
        "control"
    } else {
        map
    };
    MAPS.into_iter().find(|name| *name == plain)
}

fn load(config: &Config, kernel: Kernel) -> Result<(), Error> {
    let open = open_object(config, kernel)?;
    let mut object = open
        .load()
        .map_err(Error::bpf("loading the BPF programs"))?;
    fs::create_dir_all(&config.pin_dir)
        .map_err(Error::io(format!("creating {}", config.pin_dir.display())))?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(pin) = pin_name(&name) {
            let path = config.pin(pin);
            let what = format!("pinning {}", path.display());
            map.pin(&path).map_err(Error::bpf(what))?;
        }
    }
    let free_slots = find_map(&object, "free_slots")?;
    for slot in 0..config.max_flows {
        free_slots
            .update(&[], &slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::bpf("filling the list of free slots"))?;
    }
    set_epilogue(&object)?;
    let maps = Maps::open(config)?;
    let flows = maps.share()?;
    flows
        .control()
        .layout_version
        .store(LAYOUT_VERSION, Relaxed);
    flows.control().object_hash.store(object_hash(), Relaxed);
    register(config, kernel, &mut object)
}

fn find_map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>, Error> {
    object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(|| Error::io(format!("the BPF object has no map {name}"))(not_found()))
}

fn not_found() -> std::io::Error {
    std::io::ErrorKind::NotFound.into()
}

/// Entry 0 of the program array: where every translated program ends.
fn set_epilogue(object: &Object) -> Result<(), Error> {
    let epilogue = object
        .progs()
        .find(|program| program.name() == "ccp_epilogue")
        .ok_or_else(|| Error::io("the BPF object has no epilogue")(not_found()))?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&epilogue.as_fd());
    find_map(object, "programs")?
        .update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf("putting the epilogue into the program array"))
}

fn register(config: &Config, kernel: Kernel, object: &mut Object) -> Result<(), Error> {
    let wanted = ops_name(kernel);
    let mut map = object
        .maps_mut()
        .find(|map| map.name() == wanted)
        .ok_or_else(|| Error::io(format!("the BPF object has no map {wanted}"))(not_found()))?;
    let what = format!("registering the congestion control '{}'", config.name);
    if kernel.has_links {
        let mut link = map.attach_struct_ops().map_err(Error::bpf(what))?;
        link.pin(config.pin("link"))
            .map_err(Error::bpf("pinning the registration"))?;
    } else {
        map.pin(config.pin("ops"))
            .map_err(Error::bpf("pinning the registration"))?;
        let mut link = map.attach_struct_ops().map_err(Error::bpf(what))?;
        link.disconnect(); // it is the map's entry that registers, and that stays
    }
    Ok(())
}

/// Takes over a running registration and its maps.
fn adopt(config: &Config, kernel: Kernel) -> Result<Origin, Error> {
    let maps = Maps::open(config)?;
    let control: SharedArray<crate::layout::Control> =
        SharedArray::map(maps.control.as_fd(), maps.control.value_size(), 1)?;
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
    if maps.flows.max_entries() != config.max_flows {
        warn!(
            kept = maps.flows.max_entries(),
            asked = config.max_flows,
            "the running datapath keeps its number of flows"
        );
    }
    if control.object_hash.load(Relaxed) == object_hash() {
        debug!("the pins are of this version");
        return Ok(Origin::Adopted);
    }
    upgrade(config, kernel)?;
    control.object_hash.store(object_hash(), Relaxed);
    Ok(Origin::Upgraded)
}

/// Puts this version's code behind the registered name, on the maps that are there.
fn upgrade(config: &Config, kernel: Kernel) -> Result<(), Error> {
    let mut open = open_object(config, kernel)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(pin) = pin_name(&name) {
            let path = config.pin(pin);
            let what = format!("reusing {}", path.display());
            map.reuse_pinned_map(&path).map_err(Error::bpf(what))?;
        }
    }
    let mut object = open
        .load()
        .map_err(Error::bpf("loading the BPF programs"))?;
    set_epilogue(&object)?;
    if !kernel.has_links {
        // No way to exchange the code behind a name: leave the list for an instant.
        unregister_only(&config.pin_dir)?;
        return register(config, kernel, &mut object);
    }
    let link = Link::open(config.pin("link")).map_err(Error::bpf("opening the pinned link"))?;
    let mut map = object
        .maps_mut()
        .find(|map| map.name() == ops_name(kernel))
        .ok_or_else(|| Error::io("the BPF object has no struct_ops")(not_found()))?;
    // This registration is refused, as the name is there, but it readies the map for the update.
    drop(map.attach_struct_ops());
    sys::update_link(link.as_fd(), map.as_fd()).map_err(Error::io(
        "exchanging the code behind the congestion control",
    ))
}

fn unregister_only(pin_dir: &Path) -> Result<(), Error> {
    let (link, ops) = (pin_dir.join("link"), pin_dir.join("ops"));
    if ops.exists() {
        let map = MapHandle::from_pinned_path(&ops)
            .map_err(Error::bpf(format!("opening {}", ops.display())))?;
        match map.delete(&0u32.to_ne_bytes()) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => {
                return Err(Error::bpf("unregistering the congestion control")(e));
            }
            _ => {}
        }
    }
    for path in [link, ops] {
        if path.exists() {
            fs::remove_file(&path).map_err(Error::io(format!("removing {}", path.display())))?;
        }
    }
    Ok(())
}

fn unregister(pin_dir: &Path) -> Result<(), Error> {
    unregister_only(pin_dir)?;
    remove_pins(pin_dir)
}

/// Removes the directory and the pins of ours in it, and nothing else.
fn remove_pins(pin_dir: &Path) -> Result<(), Error> {
    for name in MAPS.into_iter().chain(["link", "ops"]) {
        let path = pin_dir.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", path.display()))(e));
            }
            _ => {}
        }
    }
    match fs::remove_dir(pin_dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", pin_dir.display()))(e))
        }
        _ => Ok(()),
    }
}
