//! Threads that must not be late, or never in the way: how the kernel schedules them, and whether it agreed to.

use nix::errno::Errno;
use nix::sys::prctl;
use serde::Serialize;
use thread_priority::{
    NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
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
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let asked = priority
        .try_into()
        .and_then(|priority| ask(ThreadPriority::Crossplatform(priority), fifo));
    match asked {
        Ok(()) => Scheduling::Fifo(priority),
        Err(reason) => Scheduling::Ordinary(reason),
    }
}

/// Asks the kernel to run this thread only where no other wants to run (SCHED_IDLE).
pub(crate) fn go_last() -> Result<(), String> {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    ask(ThreadPriority::Min, idle)
}

fn ask(priority: ThreadPriority, policy: ThreadSchedulePolicy) -> Result<(), String> {
    set_thread_priority_and_policy(thread_native_id(), priority, policy).map_err(
        |error| match error {
            thread_priority::Error::OS(errno) => Errno::from_raw(errno).to_string(),
            other => other.to_string(),
        },
    )
}
