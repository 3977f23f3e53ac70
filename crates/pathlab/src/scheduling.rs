//! Threads that must not be late: how the kernel schedules them, and whether it agreed to.
//!
//! What an emulator writes to a device, the kernel takes through TCP before the write returns: an ACK, and whatever it
//! lets the sender send. Behind a thousand losses that takes milliseconds. So the emulator keeps a CPU for itself, and the
//! kernel takes its packets through TCP on the others (receive packet steering).

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, unshare};
use nix::sys::prctl;
use nix::unistd::Pid;
use serde::Serialize;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// How the kernel schedules a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// SCHED_FIFO with this priority.
    Fifo(u8),
    /// Like any other thread, for this reason.
    Ordinary(String),
}

impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fifo(_) => write!(f, "fifo"),
            Self::Ordinary(reason) => write!(f, "{reason}"),
        }
    }
}

/// Asks the kernel to let this thread go before ordinary ones (SCHED_FIFO of a priority of 1 to 99), and to wake it to
/// the nanosecond.
pub(crate) fn go_first(priority: u8) -> Scheduling {
    if let Err(error) = prctl::set_timerslack(1) {
        tracing::warn!(%error, "a thread keeps the default timer slack of 50 µs");
    }
    let asked = priority.try_into().and_then(|priority| {
        set_thread_priority_and_policy(
            thread_native_id(),
            ThreadPriority::Crossplatform(priority),
            ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
        )
        .map_err(|error| match error {
            thread_priority::Error::OS(errno) => Errno::from_raw(errno).to_string(),
            other => other.to_string(),
        })
    });
    match asked {
        Ok(()) => Scheduling::Fifo(priority),
        Err(reason) => Scheduling::Ordinary(reason),
    }
}

/// The CPU for emulators, and those for everything else. `None` if this process may use one only.
fn division() -> Option<(usize, Vec<usize>)> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let mut cpus: Vec<_> = (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .collect();
    let own = cpus.pop()?;
    (!cpus.is_empty()).then_some((own, cpus))
}

/// Keeps this thread on the emulators' CPU.
pub(crate) fn keep_to_own_cpu() {
    let Some((own, _)) = division() else { return };
    let mut set = CpuSet::new();
    let kept = set
        .set(own)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    if let Err(error) = kept {
        tracing::warn!(%error, cpu = own, "the emulator has no CPU of its own: packets may be later");
    }
}

/// Has what is written to a device of this thread's network namespace taken through TCP on other CPUs than the
/// emulators'. For a thread that ends after it: it gets mounts of its own.
///
/// # Errors
/// What the kernel says; the device works without it.
pub(crate) fn steer_away(device: &str) -> io::Result<()> {
    let Some((_, others)) = division() else {
        return Ok(());
    };
    // The files of a namespace's devices are in the sysfs that is mounted there.
    unshare(CloneFlags::CLONE_NEWNS)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
    mount(
        Some("sysfs"),
        "/sys",
        Some("sysfs"),
        MsFlags::empty(),
        None::<&str>,
    )?;
    let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    fs::write(file, mask(&others))
}

/// CPUs as the kernel reads them: words of 32 bits in hexadecimal, the highest first.
fn mask(cpus: &[usize]) -> String {
    let highest = cpus.iter().max().map_or(0, |cpu| cpu / 32);
    let word = |index: usize| {
        let bits = cpus.iter().filter(|cpu| *cpu / 32 == index);
        bits.fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let words: Vec<_> = (0..=highest)
        .rev()
        .map(|index| format!("{:08x}", word(index)))
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_written_as_the_kernel_reads_them() {
        assert_eq!(mask(&[0]), "00000001");
        assert_eq!(mask(&[1, 3, 31]), "8000000a");
        assert_eq!(mask(&[0, 33, 64]), "00000001,00000002,00000001");
    }
}
