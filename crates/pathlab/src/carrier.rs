//! The emulator's thread: reads packets, gives them to the model, writes them when they are due.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use pathsim::PathSpec;

use crate::buffers::Buffers;
use crate::direction::{Direction, Gone, Packet};
use crate::ecn::{self, Ecn};
use crate::emulator::{EmulatorError, EmulatorReport, Recording};
use crate::flows::{FlowKey, Flows};
use crate::lateness::Lateness;
use crate::packet_log::{PacketLog, Record};
use crate::scheduling::{Scheduling, go_first};

/// Packets read from one side before due ones are looked at again.
const READ_BATCH: usize = 64;

/// Low among real-time priorities: enough to go before every ordinary thread.
const FIFO_PRIORITY: u8 = 10;

/// The thread's state. Index 0 is the client and the direction away from it, 1 the server.
pub(crate) struct Carrier {
    devices: [File; 2],
    directions: [Direction; 2],
    observer: Observer,
    path: Arc<PathSpec>,
    extra_rtts: Vec<(Ipv4Addr, u64)>,
    epoch: Instant,
    lateness: Lateness,
    refused: u64,
    bin: Duration,
    queue_packets: Vec<u32>,
}

/// What hears of every packet's end.
struct Observer {
    buffers: Buffers,
    flows: Flows,
    log: Option<PacketLog>,
}

impl Observer {
    fn gone(&mut self, side: usize, packet: Packet, why: Gone, now_ns: u64) {
        if side == 0 {
            self.flows.gone(packet.flow, why);
        }
        self.log(side, packet, Some(why), now_ns);
        self.buffers.give_back(packet.slot);
    }

    fn delivered(&mut self, side: usize, packet: Packet, now_ns: u64) {
        if side == 0 {
            let Packet { flow, bytes, .. } = packet;
            self.flows.delivered(flow, bytes, packet.arrived_ns, now_ns);
        }
        self.log(side, packet, None, now_ns);
        self.buffers.give_back(packet.slot);
    }

    fn log(&mut self, side: usize, packet: Packet, gone: Option<Gone>, now_ns: u64) {
        if let Some(log) = &mut self.log {
            log.add(Record {
                arrived_ns: packet.arrived_ns,
                left_ns: now_ns,
                there: side == 0,
                flow: self.flows.key(packet.flow),
                bytes: packet.bytes,
                gone,
            });
        }
    }
}

impl Carrier {
    pub(crate) fn new(
        devices: [File; 2],
        path: &PathSpec,
        extra_rtts: &[(Ipv4Addr, u64)],
        seed: u64,
        recording: &Recording,
    ) -> Result<Self, EmulatorError> {
        let path = Arc::new(path.clone());
        let log = recording.packet_log.as_deref();
        Ok(Self {
            devices,
            directions: [
                Direction::there(Arc::clone(&path), seed)?,
                Direction::back(Arc::clone(&path), seed),
            ],
            observer: Observer {
                buffers: Buffers::default(),
                flows: Flows::new(recording.bin),
                log: log.map(PacketLog::create).transpose()?,
            },
            path,
            extra_rtts: extra_rtts.to_vec(),
            epoch: Instant::now(),
            lateness: Lateness::default(),
            refused: 0,
            bin: recording.bin.max(Duration::from_millis(1)),
            queue_packets: Vec::new(),
        })
    }

    /// To the end, which comes when the other end of `controls` is closed.
    pub(crate) fn carry(
        mut self,
        mut controls: io::PipeReader,
        begins: &SyncSender<Instant>,
    ) -> Result<EmulatorReport, EmulatorError> {
        let scheduling = go_first(FIFO_PRIORITY);
        if let Scheduling::Ordinary(reason) = &scheduling {
            tracing::warn!(%reason, "no SCHED_FIFO for the emulator: packets will be later");
        }
        loop {
            let next_ns = self.directions.iter().filter_map(Direction::next_ns).min();
            let wait = next_ns.map(|due_ns| {
                TimeSpec::from(Duration::from_nanos(due_ns.saturating_sub(self.now_ns())))
            });
            let mut polled = [
                PollFd::new(self.devices[0].as_fd(), PollFlags::POLLIN),
                PollFd::new(self.devices[1].as_fd(), PollFlags::POLLIN),
                PollFd::new(controls.as_fd(), PollFlags::POLLIN),
            ];
            match ppoll(&mut polled, wait, None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(device("wait for packets", errno.into())),
            }
            let [client, server, control] = polled.map(|fd| fd.any().unwrap_or(true));
            if control {
                match controls.read(&mut [0]) {
                    Ok(1) => {
                        let now = self.begin()?;
                        // Nobody waits any more if the path was dropped meanwhile.
                        let _ = begins.send(now);
                    }
                    _ => return self.report(scheduling),
                }
            }
            for (side, readable) in [client, server].into_iter().enumerate() {
                if readable {
                    self.take_in(side)?;
                }
            }
            self.release();
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn begin(&mut self) -> Result<Instant, EmulatorError> {
        let now = Instant::now();
        let now_ns = (now - self.epoch).as_nanos() as u64;
        for (side, direction) in self.directions.iter_mut().enumerate() {
            let observer = &mut self.observer;
            direction.restart(now_ns, |packet, why| {
                observer.gone(side, packet, why, now_ns);
            })?;
        }
        self.observer.flows.restart();
        self.lateness = Lateness::default();
        self.refused = 0;
        self.queue_packets.clear();
        self.epoch = now;
        Ok(now)
    }

    /// Reads what one device has for the path.
    fn take_in(&mut self, side: usize) -> Result<(), EmulatorError> {
        for _ in 0..READ_BATCH {
            let slot = self.observer.buffers.take();
            let buffer = self.observer.buffers.at(slot);
            let length = match (&self.devices[side]).read(buffer) {
                Ok(length) => length,
                Err(error) => {
                    self.observer.buffers.give_back(slot);
                    match error.kind() {
                        ErrorKind::WouldBlock => break,
                        ErrorKind::Interrupted => continue,
                        _ => return Err(device("read a packet", error)),
                    }
                }
            };
            let key = FlowKey::of(&buffer[..length], side == 0);
            let ecn = Ecn::of(&buffer[..length]);
            let now_ns = self.now_ns();
            let packet = Packet {
                slot,
                flow: self.observer.flows.number(key),
                bytes: length as u32,
                arrived_ns: now_ns,
                extra_rtt_ns: self.extra_rtt_ns(key.address),
                ecn,
            };
            if side == 0 {
                self.observer.flows.arrived(packet.flow, packet.bytes);
            }
            let (direction, observer) = (&mut self.directions[side], &mut self.observer);
            direction.offer(packet, |packet, why| {
                observer.gone(side, packet, why, now_ns);
            });
            if side == 0 {
                self.note_queue(now_ns);
            }
            let mut next = self.directions.iter().filter_map(Direction::next_ns);
            if next.any(|due_ns| due_ns <= now_ns) {
                break;
            }
        }
        Ok(())
    }

    fn extra_rtt_ns(&self, client: Ipv4Addr) -> u64 {
        let mut extra = self.extra_rtts.iter();
        extra
            .find(|(address, _)| *address == client)
            .map_or(0, |(_, ns)| *ns)
    }

    fn note_queue(&mut self, now_ns: u64) {
        let bin = (u128::from(now_ns) / self.bin.as_nanos()) as usize;
        if self.queue_packets.len() <= bin {
            self.queue_packets.resize(bin + 1, 0);
        }
        let waiting = self.directions[0].waiting(now_ns) as u32;
        self.queue_packets[bin] = self.queue_packets[bin].max(waiting);
    }

    /// Writes what is due to the device at the far end.
    fn release(&mut self) {
        for side in [0, 1] {
            let (direction, observer) = (&mut self.directions[side], &mut self.observer);
            let mut now_ns = elapsed_ns(self.epoch);
            direction.advance(now_ns, |packet, why| {
                observer.gone(side, packet, why, now_ns);
            });
            while let Some(released) = direction.release(now_ns) {
                let late_ns = now_ns - released.due_ns;
                self.lateness.record(Duration::from_nanos(late_ns));
                let packet = released.packet;
                let bytes = &mut observer.buffers.at(packet.slot)[..packet.bytes as usize];
                if packet.ecn == Ecn::Marked {
                    ecn::mark(bytes);
                }
                if (&self.devices[1 - side]).write(bytes).is_err() {
                    self.refused += 1;
                }
                observer.delivered(side, packet, now_ns);
                now_ns = elapsed_ns(self.epoch);
                direction.advance(now_ns, |packet, why| {
                    observer.gone(side, packet, why, now_ns);
                });
            }
        }
    }

    fn report(self, scheduling: Scheduling) -> Result<EmulatorReport, EmulatorError> {
        let now_ns = self.now_ns();
        let cpu =
            clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from);
        let bin_ns = u64::try_from(self.bin.as_nanos()).unwrap_or(u64::MAX);
        let bins = now_ns.div_ceil(bin_ns);
        let capacity_mbps = (0..bins).map(|bin| {
            let (from_ns, to_ns) = (bin * bin_ns, (bin + 1) * bin_ns);
            self.path.capacity_bytes(from_ns, to_ns) * 8.0 / 1e6 / self.bin.as_secs_f64()
        });
        let mut queue_packets = self.queue_packets;
        queue_packets.resize(bins as usize, 0);
        let Observer { flows, log, .. } = self.observer;
        let [there, back] = &self.directions;
        Ok(EmulatorReport {
            lateness: self.lateness,
            scheduling,
            data: there.counters(),
            acks: back.counters(),
            refused: self.refused,
            per_flow: flows.finish(),
            queue_peak_packets: there.queue_peak() as u64,
            bin: self.bin,
            queue_packets,
            capacity_mbps: capacity_mbps.collect(),
            cpu,
            log: log.map(PacketLog::finish).transpose()?,
        })
    }
}

fn elapsed_ns(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn device(what: &'static str, cause: io::Error) -> EmulatorError {
    EmulatorError::Device { what, cause }
}
