//! Carries packets between two TUN devices as a path description says.
//!
//! ```text
//!   client device ──▶ [rate, queue, loss, jitter, half the RTT] ──▶ server device
//!   client device ◀── [half the RTT, loss of ACKs, never full] ◀─── server device
//! ```
//!
//! One thread does everything: it sleeps in `ppoll` until a packet arrives or the next one is due,
//! stamps arrivals as it reads them, and writes what is due. It runs under SCHED_FIFO, because an
//! ordinary thread waits milliseconds for its turn on a busy machine. Where the kernel refuses that,
//! the path works, later, and the report says so. The thread's sleep is short of work at all usual
//! rates, and the kernel's throttle of real-time threads (95 %) is left in place. Processors are kept awake meanwhile
//! (`awake.rs`).

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pathsim::{InvalidScenario, PathSpec};

use crate::awake::KeptAwake;
use crate::carrier::Carrier;
use crate::direction::Counters;
use crate::flows::{FlowKey, FlowReport};
use crate::lateness::Lateness;
use crate::packet_log::{LogError, LogReport};
use crate::scheduling::Scheduling;

/// Why a path could not be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The path's figures are impossible.
    #[error(transparent)]
    Invalid(#[from] InvalidScenario),
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
    /// The packet log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// It had ended before, which [`Emulator::stop`] explains.
    #[error("the emulator has ended early")]
    Ended,
    /// A defect of the emulator.
    #[error("the emulator's thread panicked; this is a defect, please report it")]
    Panicked,
}

/// What is kept of the packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Length of a bin of all series.
    pub bin: Duration,
    /// Where to write a line for every packet ([`crate::packet_log`]), if at all.
    pub packet_log: Option<PathBuf>,
}

impl Default for Recording {
    /// Bins of 100 ms, no log.
    fn default() -> Self {
        Self {
            bin: Duration::from_millis(100),
            packet_log: None,
        }
    }
}

/// What an emulator did from the path's beginning to its stop.
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
    /// Every flow of the client, in the order of their first packets.
    pub per_flow: Vec<(FlowKey, FlowReport)>,
    /// Most packets that waited at a time.
    pub queue_peak_packets: u64,
    /// Length of a bin of the series.
    pub bin: Duration,
    /// Most packets that waited, per bin.
    pub queue_packets: Vec<u32>,
    /// What the bottleneck could carry, Mbit/s on the wire, per bin.
    pub capacity_mbps: Vec<f64>,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// The packet log, if there is one.
    pub log: Option<LogReport>,
}

/// A path in use. Dropping it stops the emulation.
#[derive(Debug)]
pub struct Emulator {
    /// A byte asks to begin anew; closing it ends the thread.
    control: Option<PipeWriter>,
    begun: Receiver<Instant>,
    thread: Option<JoinHandle<Result<EmulatorReport, EmulatorError>>>,
    _awake: KeptAwake,
}

impl Emulator {
    /// Starts to carry packets between two devices from [`crate::tun::attach`]. Chance follows from `seed`.
    /// Packets from and to an address of the client in `extra_rtts` take that many ns longer in all.
    ///
    /// # Errors
    /// [`EmulatorError::Invalid`], [`EmulatorError::Log`] and [`EmulatorError::Start`].
    pub fn start(
        client: File,
        server: File,
        path: &PathSpec,
        extra_rtts: &[(Ipv4Addr, u64)],
        seed: u64,
        recording: &Recording,
    ) -> Result<Self, EmulatorError> {
        let (controls, control) = io::pipe().map_err(EmulatorError::Start)?;
        let (begins, begun) = sync_channel(1);
        let carrier = Carrier::new([client, server], path, extra_rtts, seed, recording)?;
        let thread = thread::Builder::new()
            .name("emulator".into())
            .spawn(move || carrier.carry(controls, &begins))
            .map_err(EmulatorError::Start)?;
        Ok(Self {
            control: Some(control),
            begun,
            thread: Some(thread),
            _awake: KeptAwake::start(),
        })
    }

    /// Begins anew, with counts of 0 and an empty queue: the instant that is returned is the path's time 0, of its
    /// schedules and of all series. Packets that travel arrive nevertheless.
    ///
    /// # Errors
    /// [`EmulatorError::Ended`] if the emulation had failed before.
    pub fn begin(&mut self) -> Result<Instant, EmulatorError> {
        let asked = match &mut self.control {
            Some(control) => control.write_all(b"b").is_ok(),
            None => false,
        };
        let begun = asked.then(|| self.begun.recv().ok());
        begun.flatten().ok_or(EmulatorError::Ended)
    }

    /// Ends the emulation. Packets still on their way are gone.
    ///
    /// # Errors
    /// [`EmulatorError`] if the emulation had failed before.
    pub fn stop(mut self) -> Result<EmulatorReport, EmulatorError> {
        self.join().unwrap_or(Err(EmulatorError::Panicked))
    }

    fn join(&mut self) -> Option<Result<EmulatorReport, EmulatorError>> {
        self.control = None;
        self.thread.take()?.join().ok()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
