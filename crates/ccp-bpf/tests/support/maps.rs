//! The datapath's maps, seen past its own code: through the pins, as any root process can.

use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::AtomicU32;

/// `struct ccp_control`: offsets of what tests change.
pub(crate) const LAYOUT_VERSION: usize = 0;
pub(crate) const OBJECT_HASH: usize = 24;

/// The clock of the datapath, in µs.
pub(crate) fn monotonic_us() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: now is a valid timespec to write to; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Opens a pinned map.
pub(crate) fn open(dir: &Path, name: &str) -> MapHandle {
    MapHandle::from_pinned_path(dir.join(name)).unwrap()
}

/// The kernel's id of a pinned map.
pub(crate) fn id(dir: &Path, name: &str) -> u32 {
    open(dir, name).info().unwrap().info.id
}

/// Replaces some bytes of the only value of a map and returns those that were there.
pub(crate) fn patch(map: &MapHandle, offset: usize, bytes: &[u8]) -> Vec<u8> {
    let key = 0u32.to_ne_bytes();
    let mut value = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
    let place = &mut value[offset..offset + bytes.len()];
    let old = place.to_vec();
    place.copy_from_slice(bytes);
    map.update(&key, &value, MapFlags::ANY).unwrap();
    old
}

/// The list of free slots, in its order. Only while no socket comes or goes.
pub(crate) fn free_slots(dir: &Path) -> Vec<u32> {
    let map = open(dir, "free_slots");
    let mut slots = Vec::new();
    while let Some(slot) = map.lookup_and_delete(&[]).unwrap() {
        slots.push(u32::from_ne_bytes(slot.try_into().unwrap()));
    }
    for slot in &slots {
        map.update(&[], &slot.to_ne_bytes(), MapFlags::ANY).unwrap();
    }
    slots
}

/// Every slot is free, once.
pub(crate) fn assert_all_free(dir: &Path, count: u32) {
    let mut free = free_slots(dir);
    free.sort_unstable();
    assert!(
        free.iter().copied().eq(0..count),
        "{} of {count} slots are free: {free:?}",
        free.len()
    );
}

/// How many struct_ops maps in the kernel register a name, whoever holds them.
pub(crate) fn registrations(name: &str) -> usize {
    let struct_ops = MapInfoIter::default().filter(|map| map.ty == libbpf_rs::MapType::StructOps);
    let named = |id: u32| {
        // The map may go while we look.
        let value = MapHandle::from_map_id(id)
            .ok()?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .ok()??;
        let mut wanted = name.as_bytes().to_vec();
        wanted.push(0);
        value
            .windows(wanted.len())
            .any(|window| window == wanted)
            .then_some(())
    };
    struct_ops.filter_map(|map| named(map.id)).count()
}

/// Verified instructions and run time of the kernel's programs with a name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramFigures {
    pub(crate) runs: u64,
    pub(crate) run_time_ns: u64,
}

/// Sums over all programs whose names begin so.
pub(crate) fn run_times(prefix: &str) -> ProgramFigures {
    ProgInfoIter::default()
        .filter(|program| program.name.to_string_lossy().starts_with(prefix))
        .fold(ProgramFigures::default(), |sum, program| ProgramFigures {
            runs: sum.runs + program.run_cnt,
            run_time_ns: sum.run_time_ns + program.run_time_ns,
        })
}

/// The kernel counts the run time of BPF programs while this lives.
pub(crate) struct RunTimes(#[allow(dead_code)] std::os::fd::OwnedFd);

impl RunTimes {
    pub(crate) fn enable() -> Self {
        use std::os::fd::FromRawFd;
        // SAFETY: returns a new descriptor, which is checked, and owned by nobody else.
        unsafe {
            let fd = libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME);
            assert!(fd >= 0, "{}", std::io::Error::from_raw_os_error(-fd));
            Self(std::os::fd::OwnedFd::from_raw_fd(fd))
        }
    }
}

/// The memory of an mmapable map, as 32-bit words.
pub(crate) struct Words {
    base: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, and all access is through atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    pub(crate) fn map(map: &MapHandle) -> Self {
        let stride = (map.value_size() as usize).next_multiple_of(8);
        let bytes = stride * map.max_entries() as usize;
        // SAFETY: a fresh shared mapping of an open map, which is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes.next_multiple_of(4096),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes / 4
    }

    pub(crate) fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.len());
        // SAFETY: in bounds, aligned, mapped as long as self; every bit pattern is valid.
        unsafe { &*self.base.cast::<AtomicU32>().add(index) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; references cannot outlive self.
        unsafe { libc::munmap(self.base, self.bytes.next_multiple_of(4096)) };
    }
}
