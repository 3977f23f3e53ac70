//! The BPF object: opened for one congestion control's name, loaded, registered.
//!
//! Each name is a load of its own of the same object, on the same maps, with its own read-only
//! configuration; so any number of names can be there at once, and each can be exchanged for newer
//! code by itself.

use crate::datapath::Config;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::layout::LoadConfig;
use crate::own_dir;
use crate::pins::{self, MAPS};
use crate::sys;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ccp.bpf.o"));
static SOURCES: [&str; 8] = [
    include_str!("bpf/ccp.bpf.c"),
    include_str!("bpf/fallback.h"),
    include_str!("bpf/intf.h"),
    include_str!("bpf/kernel.h"),
    include_str!("bpf/mailbox.h"),
    include_str!("bpf/measure.h"),
    include_str!("bpf/modes.h"),
    include_str!("bpf/state.h"),
];

/// Map flag that asks for registration through a link; unknown before Linux 6.4.
const BPF_F_LINK: u32 = 1 << 13;

/// A flow that got no answer is offered to the agent again after this long.
const CREATE_RETRY_US: u32 = 100_000;

/// Tells one version of the BPF code from another: FNV-1a over the sources, which, unlike the
/// object, do not depend on where they were built, and over the limits, which are fixed at load.
pub(crate) fn version(config: &Config, kernel: Kernel) -> u64 {
    let sources = SOURCES.iter().flat_map(|source| source.bytes());
    let bytes = sources.chain(load_config(config, kernel, "").encode());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What one load's read-only data is to say.
fn load_config<'a>(config: &Config, kernel: Kernel, name: &'a str) -> LoadConfig<'a> {
    LoadConfig {
        silence_us: config.silence.as_micros() as u32,
        create_retry_us: CREATE_RETRY_US,
        min_cwnd: config.min_cwnd,
        have_cubic: kernel.has_cubic,
        min_rate: config.min_rate,
        max_rate: config.max_rate,
        name,
    }
}

/// The struct_ops whose callbacks are those of the running kernel.
fn ops_name(kernel: Kernel) -> &'static str {
    if kernel.two_arguments {
        "ccp_ops2"
    } else if kernel.has_tx_start {
        "ccp_ops3"
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

fn open(config: &Config, kernel: Kernel, name: &str) -> Result<OpenObject, Error> {
    let mut open = ObjectBuilder::default()
        .name("ccp_bpf")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(Error::bpf("opening the BPF object"))?;
    let wanted = ops_name(kernel);
    for mut map in open.maps_mut() {
        let map_name = map.name().to_string_lossy().into_owned();
        let failed = |step: &str| Error::bpf(format!("{step} of map {map_name}"));
        match map_name.as_str() {
            "flows" | "free_slots" => {
                map.set_max_entries(config.max_flows)
                    .map_err(failed("setting the size"))?;
            }
            "events" => map
                .set_max_entries(config.ring_bytes)
                .map_err(failed("setting the size"))?,
            "ccp_ops" | "ccp_ops2" | "ccp_ops3" | "ccp_type" => {
                map.set_autocreate(map_name == wanted || map_name == "ccp_type")
                    .map_err(failed("choosing the signature"))?;
                if map_name == wanted
                    && let Some(value) = map.initial_value_mut()
                {
                    // The object's struct begins with the name, NUL-terminated by its zeros.
                    value[..name.len()].copy_from_slice(name.as_bytes());
                }
                if !kernel.has_links {
                    let flags = map.map_flags() & !BPF_F_LINK;
                    map.set_map_flags(flags)
                        .map_err(failed("clearing the link flag"))?;
                }
            }
            _ if map_name.ends_with(".rodata.config") => {
                let settings = load_config(config, kernel, name).encode();
                let value = map.initial_value_mut();
                let value = value.ok_or(Error::Kernel {
                    missing: "read-only data",
                })?;
                value[..settings.len()].copy_from_slice(&settings);
            }
            _ => {}
        }
    }
    Ok(open)
}

fn load(open: OpenObject) -> Result<Object, Error> {
    open.load().map_err(Error::bpf("loading the BPF programs"))
}

/// Loads the object with maps of its own, and pins those. Nothing is registered yet.
pub(crate) fn create_maps(config: &Config, kernel: Kernel) -> Result<(), Error> {
    let mut object = load(open(config, kernel, &config.names[0])?)?;
    own_dir::create(&config.pin_dir)?;
    for mut map in object.maps_mut() {
        if let Some(pin) = pin_name(&map.name().to_string_lossy()) {
            let path = config.pin_dir.join(pin);
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
    Ok(())
}

/// Loads the object on the pinned maps.
fn load_on_maps(config: &Config, kernel: Kernel, name: &str) -> Result<Object, Error> {
    let mut open = open(config, kernel, name)?;
    for mut map in open.maps_mut() {
        if let Some(pin) = pin_name(&map.name().to_string_lossy()) {
            let path = config.pin_dir.join(pin);
            let what = format!("reusing {}", path.display());
            map.reuse_pinned_map(&path).map_err(Error::bpf(what))?;
        }
    }
    let object = load(open)?;
    set_epilogue(&object)?;
    Ok(object)
}

/// Registers a name with this version's code.
pub(crate) fn register(config: &Config, kernel: Kernel, name: &str) -> Result<(), Error> {
    let mut object = load_on_maps(config, kernel, name)?;
    let mut map = object
        .maps_mut()
        .find(|map| map.name() == ops_name(kernel))
        .ok_or_else(|| missing(ops_name(kernel)))?;
    let what = format!("registering the congestion control '{name}'");
    if kernel.has_links {
        let mut link = map.attach_struct_ops().map_err(Error::bpf(what))?;
        let pinned = link.pin(pins::link(&config.pin_dir, name));
        return pinned.map_err(Error::bpf("pinning the registration"));
    }
    let ops = pins::ops(&config.pin_dir, name);
    map.pin(&ops)
        .map_err(Error::bpf("pinning the registration"))?;
    let attached = map.attach_struct_ops().map_err(Error::bpf(what));
    let mut link = attached.inspect_err(|_| {
        let _ = fs::remove_file(&ops);
    })?;
    link.disconnect(); // it is the map's entry that registers, and that stays
    Ok(())
}

/// Puts this version's code behind a registered name. With links the name never leaves the list.
pub(crate) fn exchange(config: &Config, kernel: Kernel, name: &str) -> Result<(), Error> {
    if !kernel.has_links {
        pins::unregister(&config.pin_dir, name)?;
        return register(config, kernel, name);
    }
    let mut object = load_on_maps(config, kernel, name)?;
    let link = Link::open(pins::link(&config.pin_dir, name))
        .map_err(Error::bpf(format!("opening the pinned link of '{name}'")))?;
    let mut map = object
        .maps_mut()
        .find(|map| map.name() == ops_name(kernel))
        .ok_or_else(|| missing(ops_name(kernel)))?;
    // This registration is refused, as the name is there, but it readies the map for the update.
    drop(map.attach_struct_ops());
    sys::update_link(link.as_fd(), map.as_fd())
        .map_err(Error::io(format!("exchanging the code behind '{name}'")))
}

/// Entry 0 of the program array: where every translated program ends.
fn set_epilogue(object: &Object) -> Result<(), Error> {
    let epilogue = object
        .progs()
        .find(|program| program.name() == "ccp_epilogue")
        .ok_or_else(|| missing("ccp_epilogue"))?;
    let fd = epilogue.as_fd().as_raw_fd();
    find_map(object, "programs")?
        .update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf("putting the epilogue into the program array"))
}

fn find_map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>, Error> {
    object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(|| missing(name))
}

fn missing(part: &str) -> Error {
    Error::io(format!("the BPF object has no {part}"))(ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code of another version that passed for the same would be kept by a new agent.
    #[test]
    fn every_source_of_the_object_counts_for_its_version() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf");
        let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let mut count = 0;
        for file in files {
            let name = file.file_name().into_string().unwrap();
            if !name.starts_with("move.") {
                let text = fs::read_to_string(file.path()).unwrap();
                assert!(SOURCES.contains(&text.as_str()), "{name}");
                count += 1;
            }
        }
        assert_eq!(count, SOURCES.len());
    }
}
