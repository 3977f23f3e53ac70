//! Numbered datagrams over an emulated path: when they were sent, when they arrived, and when they should have.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use pathsim::{PathSpec, SECOND};

use crate::direction::{Direction, Packet};
use crate::ecn::Ecn;
use crate::lateness::Lateness;
use crate::netns::Netns;
use crate::path::{self, Path};
use crate::process::Interrupt;
use crate::scheduling::go_first;
use crate::self_check::SelfCheckError;
use crate::tun::EndSettings;

/// IPv4 and UDP.
const HEADERS: u32 = 28;
/// Below the emulator's.
const FIFO_PRIORITY: u8 = 5;
/// How long a sender sleeps, and a receiver waits, before it looks again.
const LOOK: Duration = Duration::from_micros(500);
const LISTEN: Duration = Duration::from_millis(20);
/// What may come later than it should, and is waited for.
const STRAGGLERS: Duration = Duration::from_millis(60);

/// Datagrams by number, ns of the path's clock.
pub(crate) struct Sample {
    pub(crate) sent_ns: Vec<u64>,
    /// When they arrived, if they did.
    pub(crate) arrived_ns: Vec<Option<u64>>,
    /// When the model says that they should have.
    pub(crate) model_ns: Vec<Option<u64>>,
}

impl Sample {
    pub(crate) fn lost(&self) -> usize {
        self.arrived_ns.iter().filter(|at| at.is_none()).count()
    }

    /// Those that arrived and should have: number, when they arrived, when they should have.
    pub(crate) fn both(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let times = self.arrived_ns.iter().zip(&self.model_ns).enumerate();
        times.filter_map(|(number, (arrived, model))| Some((number, (*arrived)?, (*model)?)))
    }
}

/// Sends as many datagrams as `due` says for each time, and compares with the model.
pub(crate) fn sample(
    spec: &PathSpec,
    bytes: u32,
    length_ns: u64,
    due: impl Fn(u64) -> u64 + Send,
    seed: u64,
    interrupt: &Interrupt,
    lateness: &mut Lateness,
) -> Result<Sample, SelfCheckError> {
    let mut path = Path::open(spec, &EndSettings::default(), seed)?;
    let from = socket(path.client(), path::CLIENT)?;
    let to = socket(path.server(), path::SERVER)?;
    let address = to.local_addr().map_err(failed("read its address"))?;
    from.connect(address).map_err(failed("connect"))?;
    let zero = path.begin()?;
    let total = due(length_ns) as usize;
    let done = AtomicBool::new(false);
    let (sent_ns, model_ns, arrived_ns) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&to, total, zero, &done));
        let sender = scope.spawn(|| send(&from, bytes, total, zero, due, interrupt));
        let sent_ns = sender.join().unwrap_or_else(|panic| resume(panic));
        let (sent_ns, model_ns) = match sent_ns {
            Ok(sent_ns) => {
                let model_ns = modelled(spec, seed, bytes, &sent_ns);
                let last_ns = model_ns.iter().flatten().max().copied().unwrap_or(0);
                let last_ns = last_ns.min(30 * SECOND);
                let end = zero + Duration::from_nanos(last_ns) + STRAGGLERS;
                while Instant::now() < end && !interrupt.is_raised() {
                    thread::sleep(LISTEN.min(end - Instant::now()));
                }
                (Ok(sent_ns), model_ns)
            }
            Err(error) => (Err(error), Vec::new()),
        };
        done.store(true, Ordering::Relaxed);
        let arrived_ns = receiver.join().unwrap_or_else(|panic| resume(panic));
        (sent_ns, model_ns, arrived_ns)
    });
    let report = path.close()?;
    lateness.merge(&report.emulator.lateness);
    if interrupt.is_raised() {
        return Err(SelfCheckError::Interrupted);
    }
    Ok(Sample {
        sent_ns: sent_ns?,
        arrived_ns: arrived_ns?,
        model_ns,
    })
}

fn resume(panic: Box<dyn std::any::Any + Send>) -> ! {
    std::panic::resume_unwind(panic)
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> SelfCheckError {
    move |cause| SelfCheckError::Socket { what, cause }
}

fn socket(netns: &Netns, address: Ipv4Addr) -> Result<UdpSocket, SelfCheckError> {
    let bound = netns.enter(|| UdpSocket::bind((address, 0)))?;
    let socket = bound.map_err(failed("open a socket"))?;
    let room = setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20));
    room.map_err(|errno| failed("enlarge its buffer")(errno.into()))?;
    let timeout = socket.set_read_timeout(Some(LISTEN));
    timeout.map_err(failed("set a time-out"))?;
    Ok(socket)
}

fn send(
    from: &UdpSocket,
    bytes: u32,
    total: usize,
    zero: Instant,
    due: impl Fn(u64) -> u64 + Send,
    interrupt: &Interrupt,
) -> Result<Vec<u64>, SelfCheckError> {
    go_first(FIFO_PRIORITY);
    let mut sent_ns = Vec::with_capacity(total);
    let mut datagram = vec![0; (bytes - HEADERS) as usize];
    while sent_ns.len() < total && !interrupt.is_raised() {
        let now_ns = since_ns(zero);
        for number in sent_ns.len()..total.min(due(now_ns) as usize) {
            datagram[..8].copy_from_slice(&(number as u64).to_be_bytes());
            sent_ns.push(since_ns(zero));
            from.send(&datagram).map_err(failed("send"))?;
        }
        thread::sleep(LOOK);
    }
    Ok(sent_ns)
}

fn receive(
    to: &UdpSocket,
    total: usize,
    zero: Instant,
    done: &AtomicBool,
) -> Result<Vec<Option<u64>>, SelfCheckError> {
    go_first(FIFO_PRIORITY);
    let mut arrived_ns = vec![None; total];
    let mut datagram = [0; 2048];
    loop {
        match to.recv(&mut datagram) {
            Ok(_) => {
                let now_ns = since_ns(zero);
                let number = datagram
                    .first_chunk()
                    .map(|number| u64::from_be_bytes(*number));
                if let Some(place) = number.and_then(|number| arrived_ns.get_mut(number as usize)) {
                    *place = Some(now_ns);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if done.load(Ordering::Relaxed) {
                    return Ok(arrived_ns);
                }
            }
            Err(error) => return Err(failed("receive")(error)),
        }
    }
}

/// When the model delivers datagrams that were sent then, if it does.
pub(crate) fn modelled(
    spec: &PathSpec,
    seed: u64,
    bytes: u32,
    sent_ns: &[u64],
) -> Vec<Option<u64>> {
    let mut due_ns = vec![None; sent_ns.len()];
    let Ok(mut model) = Direction::there(Arc::new(spec.clone()), seed) else {
        return due_ns;
    };
    for (slot, arrived_ns) in (0..).zip(sent_ns.iter().copied()) {
        let packet = Packet {
            slot,
            flow: 1,
            bytes,
            arrived_ns,
            extra_rtt_ns: 0,
            ecn: Ecn::NotCapable,
        };
        model.offer(packet, |_, _| {});
        while let Some(released) = model.release(arrived_ns) {
            due_ns[released.packet.slot as usize] = Some(released.due_ns);
        }
    }
    model.advance(u64::MAX, |_, _| {});
    while let Some(released) = model.release(u64::MAX) {
        due_ns[released.packet.slot as usize] = Some(released.due_ns);
    }
    due_ns
}

fn since_ns(zero: Instant) -> u64 {
    u64::try_from(zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
