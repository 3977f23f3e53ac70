//! The few things that need `unsafe`: shared memory of maps, and loading a raw program.

use crate::error::Error;
use libbpf_sys::{bpf_insn, bpf_prog_load_opts};
use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// The values of an mmapable array map, shared with the kernel.
///
/// `T` consists of atomics only and mirrors the map's value (checked by its size), so that
/// references into the mapping are sound whatever the other side does.
pub(crate) struct SharedArray<T> {
    base: NonNull<u8>,
    bytes: usize,
    len: usize,
    stride: usize,
    values: PhantomData<T>,
}

// SAFETY: the mapping is process-wide and T is made of atomics; see `SharedValue`.
unsafe impl<T: SharedValue> Send for SharedArray<T> {}
// SAFETY: as above; all access is through shared references to atomics.
unsafe impl<T: SharedValue> Sync for SharedArray<T> {}

/// Marks the types that may be shared with the kernel.
///
/// # Safety
/// The type is `repr(C)`, consists of atomic integers only, and every bit pattern is valid.
pub(crate) unsafe trait SharedValue {}

// SAFETY: repr(C), atomics only.
unsafe impl SharedValue for crate::layout::FlowSlot {}
// SAFETY: repr(C), atomics only.
unsafe impl SharedValue for crate::layout::ProgramTable {}
// SAFETY: repr(C), atomics only.
unsafe impl SharedValue for crate::layout::Control {}

impl<T: SharedValue> SharedArray<T> {
    /// Maps the `len` values of `map`, whose values have `value_size` bytes.
    pub(crate) fn map(map: BorrowedFd<'_>, value_size: u32, len: usize) -> Result<Self, Error> {
        let stride = (value_size as usize).next_multiple_of(8);
        if stride < size_of::<T>() {
            let what = format!(
                "a shared map has values of {stride} bytes, not {}",
                size_of::<T>()
            );
            return Err(Error::io(what)(io::ErrorKind::InvalidData.into()));
        }
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let bytes = (stride * len).next_multiple_of(page);
        // SAFETY: a fresh mapping of an fd that is open; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::io("mapping a BPF map into memory")(
                io::Error::last_os_error(),
            ));
        }
        let base = NonNull::new(base.cast()).expect("mmap without a hint never maps page 0");
        Ok(Self {
            base,
            bytes,
            len,
            stride,
            values: PhantomData,
        })
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The value with this index.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index >= self.len {
            return None;
        }
        // SAFETY: in bounds of the mapping (index < len), aligned (the stride is a multiple of 8
        // from a page), alive as long as self, and valid for every bit pattern (SharedValue).
        Some(unsafe { &*self.base.as_ptr().add(index * self.stride).cast::<T>() })
    }
}

impl<T> Drop for SharedArray<T> {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped; references cannot outlive self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The user that this process acts as.
pub(crate) fn user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    user() == 0
}

/// µs of CLOCK_MONOTONIC, which is the clock of `tcp_mstamp`.
pub(crate) fn monotonic_us() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: now is a valid timespec to write to; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// Loads a program of type struct_ops for one member of `tcp_congestion_ops`.
///
/// On refusal the error comes with the verifier's log.
pub(crate) fn load_struct_ops_program(
    name: &str,
    code: &[u64],
    attach_btf_id: u32,
    member: u32,
) -> Result<OwnedFd, (io::Error, String)> {
    let name = CString::new(name).expect("program names have no NUL");
    let load = |log: &mut Vec<u8>| {
        let opts = bpf_prog_load_opts {
            sz: size_of::<bpf_prog_load_opts>() as _,
            attach_btf_id,
            expected_attach_type: member,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() {
                std::ptr::null_mut()
            } else {
                log.as_mut_ptr().cast()
            },
            ..Default::default()
        };
        let mut opts = opts;
        // SAFETY: all pointers outlive the call; bpf_insn is 8 bytes without padding, as u64 is,
        // and less aligned; counts and sizes are those of the buffers.
        unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_STRUCT_OPS,
                name.as_ptr(),
                c"GPL".as_ptr(),
                code.as_ptr().cast::<bpf_insn>(),
                code.len() as _,
                &mut opts,
            )
        }
    };
    let fd = load(&mut Vec::new());
    if fd >= 0 {
        // SAFETY: the call returned a new descriptor that nobody else owns.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let error = io::Error::from_raw_os_error(-fd);
    let mut log = vec![0; 1 << 20];
    let again = load(&mut log);
    if again >= 0 {
        // SAFETY: as above. The first attempt failed for a passing reason.
        return Ok(unsafe { OwnedFd::from_raw_fd(again) });
    }
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    Err((error, String::from_utf8_lossy(&log[..end]).into_owned()))
}

/// Points a struct_ops link to another map; the link keeps the name registered meanwhile.
pub(crate) fn update_link(link: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open, and no options are given.
    let result =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), map.as_raw_fd(), std::ptr::null()) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}

/// Unregisters the struct_ops of a map without a link. It is done also if it was before: the entry then goes with the
/// last socket that uses it (EINPROGRESS), or was never there.
pub(crate) fn unregister_struct_ops(map: BorrowedFd<'_>) -> io::Result<()> {
    let key = 0u32;
    // SAFETY: the descriptor is open, and the key of a struct_ops map is a u32 that outlives the call.
    let result =
        unsafe { libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), (&raw const key).cast()) };
    match -result {
        0 | libc::ENOENT | libc::EINPROGRESS => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Whether `path` lies in a BPF file system.
pub(crate) fn is_bpffs(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    let mut info = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: path is NUL-terminated, info is large enough; it is read only on success.
    unsafe {
        libc::statfs(path.as_ptr(), info.as_mut_ptr()) == 0
            && info.assume_init().f_type == libc::BPF_FS_MAGIC as libc::c_long
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A program of type SCHED_CLS, which the kernel runs on demand.
    pub(crate) struct ClassifierRun(OwnedFd);

    pub(crate) fn load_classifier(code: &[u64]) -> ClassifierRun {
        let load = |log: &mut [u8]| {
            let mut opts = bpf_prog_load_opts {
                sz: size_of::<bpf_prog_load_opts>() as _,
                log_size: log.len() as u32,
                log_level: u32::from(!log.is_empty()),
                log_buf: if log.is_empty() {
                    std::ptr::null_mut()
                } else {
                    log.as_mut_ptr().cast()
                },
                ..Default::default()
            };
            // SAFETY: as in `load_struct_ops_program`.
            unsafe {
                libbpf_sys::bpf_prog_load(
                    libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
                    c"ccp_test".as_ptr(),
                    c"GPL".as_ptr(),
                    code.as_ptr().cast::<bpf_insn>(),
                    code.len() as _,
                    &mut opts,
                )
            }
        };
        // A log that does not fit its buffer is an error, also of a program that is accepted.
        let fd = load(&mut []);
        if fd < 0 {
            let mut log = vec![0u8; 1 << 20];
            load(&mut log);
            let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
            let error = io::Error::from_raw_os_error(-fd);
            panic!("{error}\n{}", String::from_utf8_lossy(&log[..end]));
        }
        // SAFETY: a new descriptor that nobody else owns.
        ClassifierRun(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    impl ClassifierRun {
        /// Runs the program and returns its result.
        pub(crate) fn once(&self) -> u32 {
            self.repeat(1).0
        }

        /// Runs the program many times; its last result, and the mean duration in ns.
        pub(crate) fn repeat(&self, times: i32) -> (u32, u32) {
            let packet = [0u8; 64];
            let mut opts = libbpf_sys::bpf_test_run_opts {
                sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
                data_in: packet.as_ptr().cast(),
                data_size_in: packet.len() as u32,
                repeat: times,
                ..Default::default()
            };
            // SAFETY: the descriptor is open, and the packet outlives the call.
            let result =
                unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut opts) };
            assert_eq!(result, 0);
            (opts.retval, opts.duration)
        }
    }
}
