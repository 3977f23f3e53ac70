//! What outlives the agent, pinned in one directory of a BPF file system: the maps, and one
//! registration per name (`link-NAME`, or `ops-NAME` on kernels before 6.4).

use crate::error::Error;
use crate::kernel;
use crate::sys;
use libbpf_rs::{Link, MapHandle};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Pinned maps, by their names in the object.
pub(crate) const MAPS: [&str; 6] = [
    "flows",
    "free_slots",
    "events",
    "program_tables",
    "programs",
    "control",
];

// A BPF file system takes no dots in names.
const LINK: &str = "link-";
const OPS: &str = "ops-";

pub(crate) fn link(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{LINK}{name}"))
}

pub(crate) fn ops(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{OPS}{name}"))
}

/// Whether the registration of a name is pinned.
pub(crate) fn has(dir: &Path, name: &str) -> bool {
    link(dir, name).exists() || ops(dir, name).exists()
}

/// The names whose registrations are pinned.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let what = || format!("reading {}", dir.display());
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Error::io(what()))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let file = entry.map_err(Error::io(what()))?.file_name();
        let file = file.to_string_lossy();
        names.extend(
            file.strip_prefix(LINK)
                .or(file.strip_prefix(OPS))
                .map(str::to_owned),
        );
    }
    Ok(names)
}

/// Opens a pinned map.
pub(crate) fn open_map(dir: &Path, name: &str) -> Result<MapHandle, Error> {
    let path = dir.join(name);
    let what = format!("opening the pinned map {}", path.display());
    MapHandle::from_pinned_path(&path).map_err(Error::bpf(what))
}

/// Takes a name out of the list; sockets that use it go on. Returns when it has left.
pub(crate) fn unregister(dir: &Path, name: &str) -> Result<(), Error> {
    if !has(dir, name) {
        return Ok(());
    }
    let ops = ops(dir, name);
    if ops.exists() {
        let what = format!("opening {}", ops.display());
        let map = MapHandle::from_pinned_path(&ops).map_err(Error::bpf(what))?;
        let what = format!("unregistering '{name}'");
        sys::unregister_struct_ops(map.as_fd()).map_err(Error::io(what))?;
    }
    remove(&ops)?;
    let link = link(dir, name);
    // The kernel frees a link some time after its last name goes; from 6.11 it can be told to
    // unregister at once. Before, the removal below does it.
    if link.exists()
        && let Ok(pinned) = Link::open(&link)
    {
        let _ = pinned.detach();
    }
    remove(&link)?;
    if !kernel::leaves(name)? {
        warn!(name, "the kernel has not yet unregistered this name");
    }
    Ok(())
}

/// Takes all names out of the list and removes the directory with our pins, and nothing else.
pub(crate) fn remove_all(dir: &Path) -> Result<(), Error> {
    for name in names(dir)? {
        unregister(dir, &name)?;
    }
    for map in MAPS {
        remove(&dir.join(map))?;
    }
    match fs::remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", dir.display()))(e))
        }
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()))(e))
        }
        _ => Ok(()),
    }
}
