//! Keeps the processors from falling asleep while a path is in use.
//!
//! A processor that idles stops, and a virtual one is then taken off the real one: waking it takes 50 to 100 µs, and a
//! packet on an otherwise idle path wakes three threads in turn (the sender, the emulator, the receiver). A tenth of a
//! millisecond each is the whole RTT of a local network. So a thread under SCHED_IDLE spins on every processor: the
//! kernel runs it when nothing else wants to, takes any other thread before it at once, and counts its processor as
//! idle.
//!
//! The price is that nothing sleeps, for as long as the path is there. The threads never spin at an ordinary priority:
//! where the kernel refuses SCHED_IDLE, processors fall asleep as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::scheduling::go_last;

/// Spins until dropped.
#[derive(Debug)]
pub(crate) struct KeptAwake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl KeptAwake {
    /// Starts a thread for every processor that this thread may use.
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = usable()
            .into_iter()
            .filter_map(|cpu| {
                let stop = Arc::clone(&stop);
                thread::Builder::new()
                    .name("awake".into())
                    .spawn(move || spin(cpu, &stop))
                    .ok()
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for KeptAwake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The processors that this thread may use.
fn usable() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
        return Vec::new();
    };
    (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect()
}

/// On this processor alone, below every other thread.
fn spin(cpu: usize, stop: &AtomicBool) {
    let mut alone = CpuSet::new();
    let pinned = alone
        .set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &alone));
    let pinned = pinned.map_err(|errno| errno.to_string());
    if let Err(error) = pinned.and_then(|()| go_last()) {
        tracing::warn!(%error, cpu, "a processor may fall asleep: packets will be later");
        return;
    }
    // Without the processor's hint for spinning: hypervisors take it for waiting in vain, and take the processor away.
    while !stop.load(Ordering::Relaxed) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, Instant};

    /// Policies of this process's threads of that name; 5 is SCHED_IDLE (field 41 of stat, proc(5)).
    fn policies() -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let stats =
            tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok());
        stats
            .filter_map(|stat| {
                let (name, rest) = stat.rsplit_once(')')?;
                name.ends_with("(awake")
                    .then(|| rest.split_whitespace().nth(38).map(str::to_owned))?
            })
            .collect()
    }

    #[test]
    fn every_processor_has_a_thread_below_all_others_until_the_end() {
        // A thread has its name and policy a little after its start, and is listed for a little after its end.
        let until = |wanted: &[String]| {
            let since = Instant::now();
            while policies() != wanted {
                let there = policies();
                assert!(since.elapsed() < Duration::from_secs(10), "{there:?}");
                thread::sleep(Duration::from_millis(10));
            }
        };
        let kept = KeptAwake::start();
        until(&vec!["5".to_owned(); usable().len()]);
        drop(kept);
        until(&[]);
    }
}
