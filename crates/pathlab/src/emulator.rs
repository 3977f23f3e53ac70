//! Carries packets between two TUN devices as a [`PathSpec`] says.
//!
//! ```text
//!   client device ──▶ [rate, queue, loss, half the RTT] ──▶ server device
//!   client device ◀── [half the RTT, never full, no loss] ◀── server device
//! ```
//!
//! One thread does everything: it sleeps in `ppoll` until a packet arrives or the next one is due,
//! stamps arrivals as it reads them, and writes what is due. It runs under SCHED_FIFO, because an
//! ordinary thread waits milliseconds for its turn on a busy machine. Where the kernel refuses that,
//! the path works, later, and the report says so. The thread's sleep is short of work at all usual
//! rates, and the kernel's throttle of real-time threads (95 %) is left in place.

use std::fs::File;
use std::io::{self, ErrorKind, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use serde::Serialize;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use crate::lateness::Lateness;
use crate::link::{Bottleneck, Counters, InvalidLink, Link, LinkSpec, Verdict};
use crate::scenario::PathSpec;

/// Packets read from one side before due ones are looked at again.
const READ_BATCH: usize = 64;

/// Low among real-time priorities: enough to go before every ordinary thread.
const FIFO_PRIORITY: u8 = 10;

/// Room for a packet of any device MTU that we set.
const PACKET_BYTES: usize = 2048;

/// Why a path could not be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The path's figures are impossible.
    #[error(transparent)]
    Invalid(#[from] InvalidLink),
    /// The thread could not be started.
    #[error("cannot start the emulator's thread: {0}")]
    Start(io::Error),
    /// A device failed while the path was in use.
    #[error("the emulator could not {what}: {cause}")]
    Device {
        /// What it tried.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A defect of the emulator.
    #[error("the emulator's thread panicked; this is a defect, please report it")]
    Panicked,
}

/// How the kernel schedules the emulator's thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// SCHED_FIFO with this priority.
    Fifo(u8),
    /// Like any other thread, for this reason.
    Ordinary(String),
}

/// What an emulator did from start to stop.
#[derive(Clone, Debug)]
pub struct EmulatorReport {
    /// How late packets were released, both directions together.
    pub lateness: Lateness,
    /// How the thread ran.
    pub scheduling: Scheduling,
    /// The direction with the bottleneck, client to server.
    pub data: Counters,
    /// The direction of the acknowledgements, server to client.
    pub acks: Counters,
    /// Packets that a device refused when they were due (it was down, or out of memory).
    pub refused: u64,
}

/// A path in use. Dropping it stops the emulation.
#[derive(Debug)]
pub struct Emulator {
    /// Closing it ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<EmulatorReport, EmulatorError>>>,
}

impl Emulator {
    /// Starts to carry packets between two devices from [`crate::tun::attach`]. Random losses
    /// follow from `seed`.
    ///
    /// # Errors
    /// [`EmulatorError::Invalid`] and [`EmulatorError::Start`].
    pub fn start(
        client: File,
        server: File,
        path: &PathSpec,
        seed: u64,
    ) -> Result<Self, EmulatorError> {
        let one_way = path.rtt / 2;
        let bottleneck = Bottleneck {
            rate_bps: path.rate_bps,
            queue_packets: path.queue_packets,
        };
        let data = LinkSpec {
            bottleneck: Some(bottleneck),
            delay: one_way,
            loss: path.loss,
        };
        let acks = LinkSpec {
            bottleneck: None,
            delay: path.rtt - one_way,
            loss: 0.0,
        };
        let (stopped, stop) = io::pipe().map_err(EmulatorError::Start)?;
        let mut carrier = Carrier {
            devices: [client, server],
            links: [Link::new(data, seed)?, Link::new(acks, seed)?],
            pool: Vec::new(),
            epoch: Instant::now(),
            lateness: Lateness::default(),
            refused: 0,
        };
        let carry = move || {
            let scheduling = go_first();
            carrier.carry(&stopped)?;
            Ok(EmulatorReport {
                lateness: carrier.lateness,
                scheduling,
                data: carrier.links[0].counters(),
                acks: carrier.links[1].counters(),
                refused: carrier.refused,
            })
        };
        let thread = thread::Builder::new()
            .name("emulator".into())
            .spawn(carry)
            .map_err(EmulatorError::Start)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends the emulation. Packets still on their way are gone.
    ///
    /// # Errors
    /// [`EmulatorError`] if the emulation had failed before.
    pub fn stop(mut self) -> Result<EmulatorReport, EmulatorError> {
        self.join().unwrap_or(Err(EmulatorError::Panicked))
    }

    fn join(&mut self) -> Option<Result<EmulatorReport, EmulatorError>> {
        self.stop = None;
        self.thread.take()?.join().ok()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// Asks the kernel to let this thread go before ordinary ones, and to wake it to the nanosecond.
fn go_first() -> Scheduling {
    if let Err(error) = prctl::set_timerslack(1) {
        tracing::warn!(%error, "the emulator keeps the default timer slack of 50 µs");
    }
    let asked = FIFO_PRIORITY.try_into().and_then(|priority| {
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
        Ok(()) => Scheduling::Fifo(FIFO_PRIORITY),
        Err(reason) => {
            tracing::warn!(%reason, "no SCHED_FIFO for the emulator: packets will be later");
            Scheduling::Ordinary(reason)
        }
    }
}

/// The thread's state. Index 0 is the client and the direction away from it, 1 the server.
struct Carrier {
    devices: [File; 2],
    links: [Link<Vec<u8>>; 2],
    /// Buffers for reuse.
    pool: Vec<Vec<u8>>,
    epoch: Instant,
    lateness: Lateness,
    refused: u64,
}

impl Carrier {
    fn carry(&mut self, stopped: &impl AsFd) -> Result<(), EmulatorError> {
        loop {
            let next_due = self.links.iter().filter_map(Link::next_due).min();
            let wait = next_due.map(|due| TimeSpec::from(due.saturating_sub(self.epoch.elapsed())));
            let mut polled = [
                PollFd::new(self.devices[0].as_fd(), PollFlags::POLLIN),
                PollFd::new(self.devices[1].as_fd(), PollFlags::POLLIN),
                PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
            ];
            match ppoll(&mut polled, wait, None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    let what = "wait for packets";
                    return Err(EmulatorError::Device {
                        what,
                        cause: errno.into(),
                    });
                }
            }
            let [client, server, stop] = polled.map(|fd| fd.any().unwrap_or(true));
            if stop {
                return Ok(());
            }
            for (side, readable) in [client, server].into_iter().enumerate() {
                if readable {
                    self.take_in(side)?;
                }
            }
            self.release();
        }
    }

    /// Reads what one device has for the path.
    fn take_in(&mut self, side: usize) -> Result<(), EmulatorError> {
        let mut packet = [0; PACKET_BYTES];
        for _ in 0..READ_BATCH {
            let length = match (&self.devices[side]).read(&mut packet) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(cause) => {
                    return Err(EmulatorError::Device {
                        what: "read a packet",
                        cause,
                    });
                }
            };
            let mut buffer = self
                .pool
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(PACKET_BYTES));
            buffer.clear();
            buffer.extend_from_slice(&packet[..length]);
            let now = self.epoch.elapsed();
            match self.links[side].arrive(now, length as u32, buffer) {
                Verdict::Accepted => {}
                Verdict::QueueFull(buffer) | Verdict::Lost(buffer) | Verdict::Overflow(buffer) => {
                    self.pool.push(buffer);
                }
            }
            if self
                .links
                .iter()
                .filter_map(Link::next_due)
                .any(|due| due <= now)
            {
                break;
            }
        }
        Ok(())
    }

    /// Writes what is due to the device at the far end.
    fn release(&mut self) {
        for (side, link) in self.links.iter_mut().enumerate() {
            while let Some(released) = link.release(self.epoch.elapsed()) {
                self.lateness
                    .record(self.epoch.elapsed().saturating_sub(released.due));
                if (&self.devices[1 - side]).write(&released.packet).is_err() {
                    self.refused += 1;
                }
                self.pool.push(released.packet);
            }
        }
    }
}
