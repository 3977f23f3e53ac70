//! TCP connections under load, watched at the receiver.
//!
//! The client side of every connection sends under the chosen congestion control: as fast as it
//! may, in portions, or a fixed amount. One thread sends and one receives for all connections; the
//! receiver notes how much arrived in each 100 ms of each connection, so that a test can ask for
//! rates, stalls and completeness. Sockets keep the network namespace in which they were made, so
//! only opening them happens inside the namespaces.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    getsockopt, listen, setsockopt, socket, sockopt,
};
use pathlab::netns::Netns;
use pathlab::path::{self, Path};

use super::NAME;

/// Width of a progress bin.
pub(crate) const BIN: Duration = Duration::from_millis(100);
/// How long connections may take to be established, and to end after their last byte: the kernel may hold megabytes of
/// a flow that Cubic has at 2 % loss.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest sleep of a thread: bounds how late it sees a portion due or the stop flag.
const TICK_MS: u8 = 10;

/// What every connection sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand {
    /// As much as TCP takes, until the load is stopped.
    Greedy,
    /// So many bytes, once every so often, until the load is stopped.
    Portions { bytes: usize, every: Duration },
    /// So many bytes in all; then the connection ends.
    Transfer { bytes: u64 },
}

/// The congestion control of a socket.
pub(crate) fn congestion_of(socket: &impl AsFd) -> String {
    let name = getsockopt(socket, sockopt::TcpCongestion).unwrap();
    name.to_string_lossy().trim_end_matches('\0').to_owned()
}

/// The congestion control of this namespace's connection from a local port, if it is one of those we know.
pub(crate) fn congestion_from(port: u16) -> Option<&'static str> {
    let output = Command::new("ss")
        .args([
            "-tinOH",
            "state",
            "established",
            &format!("sport = :{port}"),
        ])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let known = ["cubic", "reno", NAME];
    known
        .into_iter()
        .find(|name| words.split_whitespace().any(|word| word == *name))
}

/// Sets the congestion control of a socket.
pub(crate) fn set_congestion(socket: &impl AsFd, name: &str) -> nix::Result<()> {
    setsockopt(socket, sockopt::TcpCongestion, &name.into())
}

fn tcp_socket(address: IpAddr) -> OwnedFd {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    socket(
        family,
        SockType::Stream,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        SockProtocol::Tcp,
    )
    .unwrap()
}

/// A listener with room for a thousand connections at once, as `std` does not offer.
fn listener(address: IpAddr) -> TcpListener {
    let socket = tcp_socket(address);
    bind(
        socket.as_raw_fd(),
        &SockaddrStorage::from(SocketAddr::new(address, 0)),
    )
    .unwrap();
    listen(&socket, Backlog::new(4096).unwrap()).unwrap();
    TcpListener::from(socket)
}

fn start_connecting(to: SocketAddr, congestion: &str) -> TcpStream {
    let socket = tcp_socket(to.ip());
    set_congestion(&socket, congestion)
        .unwrap_or_else(|error| panic!("cannot choose {congestion}: {error}"));
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => TcpStream::from(socket),
        Err(error) => panic!("cannot connect to {to}: {error}"),
    }
}

/// Waits until `interest` holds for some of the sockets, at most one tick, and returns which.
fn ready<'a>(
    sockets: impl Iterator<Item = (usize, &'a TcpStream)>,
    interest: PollFlags,
) -> Vec<usize> {
    let (indices, mut fds): (Vec<_>, Vec<_>) = sockets
        .map(|(index, socket)| (index, PollFd::new(socket.as_fd(), interest)))
        .unzip();
    if fds.is_empty() {
        std::thread::sleep(Duration::from_millis(TICK_MS.into()));
        return Vec::new();
    }
    poll(&mut fds, PollTimeout::from(TICK_MS)).unwrap();
    let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
    indices
        .into_iter()
        .zip(&fds)
        .filter_map(|(index, fd)| is_ready(fd).then_some(index))
        .collect()
}

/// One connection as its receiver saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes that arrived in each [`BIN`] since the load's start.
    pub(crate) bins: Vec<u64>,
    /// The sender closed the connection, and everything before that arrived.
    pub(crate) ended: bool,
    /// The connection broke.
    pub(crate) error: Option<String>,
}

impl Progress {
    /// Bytes that arrived in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.bins.iter().sum()
    }

    fn add(&mut self, bin: usize, bytes: usize) {
        self.bins.resize(self.bins.len().max(bin + 1), 0);
        self.bins[bin] += bytes as u64;
    }
}

/// A load in progress; dropped, it ends.
pub(crate) struct Load {
    start: Instant,
    ports: Vec<u16>,
    stop: Arc<AtomicBool>,
    progress: Arc<Mutex<Vec<Progress>>>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
}

impl Load {
    /// Connects over a path, client to server, and starts to send.
    pub(crate) fn over(path: &Path, congestion: &str, connections: usize, demand: Demand) -> Self {
        let ends = Some((path.client(), path.server()));
        Self::connect(
            ends,
            IpAddr::V4(path::SERVER),
            congestion,
            connections,
            demand,
        )
    }

    /// The same over loopback, in the root namespace.
    pub(crate) fn over_loopback(
        address: IpAddr,
        congestion: &str,
        connections: usize,
        demand: Demand,
    ) -> Self {
        Self::connect(None, address, congestion, connections, demand)
    }

    fn connect(
        ends: Option<(&Netns, &Netns)>,
        address: IpAddr,
        congestion: &str,
        connections: usize,
        demand: Demand,
    ) -> Self {
        let listener = match ends {
            Some((_, server)) => server.enter(|| listener(address)).unwrap(),
            None => listener(address),
        };
        let to = listener.local_addr().unwrap();
        let open = || {
            (0..connections)
                .map(|_| start_connecting(to, congestion))
                .collect::<Vec<_>>()
        };
        let clients = match ends {
            Some((client, _)) => client.enter(open).unwrap(),
            None => open(),
        };
        let servers = accept_all(&listener, connections);
        // Accepted in any order: the client's port says which connection it is.
        let ports: Vec<_> = clients
            .iter()
            .map(|client| client.local_addr().unwrap().port())
            .collect();
        let of_port: HashMap<u16, usize> = ports.iter().copied().zip(0..).collect();
        let mut servers: Vec<_> = servers
            .into_iter()
            .map(|server| (of_port[&server.peer_addr().unwrap().port()], server))
            .collect();
        servers.sort_by_key(|(index, _)| *index);
        let servers = servers.into_iter().map(|(_, server)| server).collect();

        let start = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Mutex::new(vec![Progress::default(); connections]));
        let (stop_sender, sink) = (Arc::clone(&stop), Arc::clone(&progress));
        let sender = std::thread::spawn(move || send(clients, demand, &stop_sender));
        let receiver = std::thread::spawn(move || receive(servers, start, &sink));
        Self {
            start,
            ports,
            stop,
            progress,
            sender: Some(sender),
            receiver: Some(receiver),
        }
    }

    /// When the connections had been established.
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// Local ports of the senders.
    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Waits until every connection has ended by itself; false after `limit`.
    pub(crate) fn wait_complete(&self, limit: Duration) -> bool {
        super::eventually(limit, || {
            self.progress
                .lock()
                .unwrap()
                .iter()
                .all(|flow| flow.ended || flow.error.is_some())
        })
    }

    /// Stops sending, waits until everything that was sent has arrived, and returns what did.
    pub(crate) fn finish(mut self) -> Outcome {
        let stopped = Instant::now();
        self.stop.store(true, Ordering::Relaxed);
        self.sender.take().unwrap().join().unwrap();
        // Failing here, rather than waiting for ever, is what a dead path deserves.
        self.wait_complete(PATIENCE);
        let flows = self.progress.lock().unwrap().clone();
        Outcome {
            flows,
            seconds: (stopped - self.start).as_secs_f64(),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The receiver ends with the connections, or with the process: it is not waited for, since
        // a broken path would keep it.
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
        drop(self.receiver.take());
    }
}

fn accept_all(listener: &TcpListener, connections: usize) -> Vec<TcpStream> {
    let mut accepted = Vec::with_capacity(connections);
    let complete = super::eventually(PATIENCE, || {
        while accepted.len() < connections {
            match listener.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(true).unwrap();
                    accepted.push(socket);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("cannot accept: {error}"),
            }
        }
        true
    });
    assert!(
        complete,
        "only {} of {connections} connections were established",
        accepted.len()
    );
    accepted
}

/// What a connection may still send.
struct Budget {
    bytes: u64,
    next_portion: Instant,
}

fn send(clients: Vec<TcpStream>, demand: Demand, stop: &AtomicBool) {
    let chunk = vec![0u8; 64 * 1024];
    let start = Instant::now();
    let spread = clients.len().max(1) as u32;
    let mut budgets: Vec<_> = (0..clients.len() as u32)
        .map(|index| match demand {
            Demand::Greedy => Budget {
                bytes: u64::MAX,
                next_portion: start,
            },
            // Spread over one period, so that they do not all send at once.
            Demand::Portions { every, .. } => Budget {
                bytes: 0,
                next_portion: start + every * index / spread,
            },
            Demand::Transfer { bytes } => Budget {
                bytes,
                next_portion: start,
            },
        })
        .collect();
    let mut open: Vec<Option<TcpStream>> = clients.into_iter().map(Some).collect();
    while open.iter().any(Option::is_some) {
        let unlimited = !matches!(demand, Demand::Transfer { .. });
        if unlimited && stop.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        if let Demand::Portions { bytes, every } = demand {
            for budget in budgets
                .iter_mut()
                .filter(|budget| budget.next_portion <= now)
            {
                // Not added up: a slow connection has one portion waiting, not a backlog.
                budget.bytes = bytes as u64;
                budget.next_portion += every;
            }
        }
        let eager = open
            .iter()
            .enumerate()
            .filter_map(|(index, socket)| Some((index, socket.as_ref()?)))
            .filter(|(index, _)| budgets[*index].bytes > 0);
        for index in ready(eager, PollFlags::POLLOUT) {
            let Some(mut socket) = open[index].as_ref() else {
                continue;
            };
            let budget = &mut budgets[index].bytes;
            let length = chunk
                .len()
                .min(usize::try_from(*budget).unwrap_or(usize::MAX));
            match socket.write(&chunk[..length]) {
                Ok(written) => *budget -= written as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The receiver reports it.
                Err(_) => open[index] = None,
            }
            if budgets[index].bytes == 0 && !unlimited {
                open[index] = None;
            }
        }
    }
}

fn receive(servers: Vec<TcpStream>, start: Instant, sink: &Mutex<Vec<Progress>>) {
    let mut buffer = vec![0u8; 256 * 1024];
    let mut open: Vec<Option<TcpStream>> = servers.into_iter().map(Some).collect();
    while open.iter().any(Option::is_some) {
        let listening = open
            .iter()
            .enumerate()
            .filter_map(|(index, socket)| Some((index, socket.as_ref()?)));
        let readable = ready(listening, PollFlags::POLLIN);
        let bin = (start.elapsed().as_millis() / BIN.as_millis()) as usize;
        let mut progress = sink.lock().unwrap();
        for index in readable {
            let Some(mut socket) = open[index].as_ref() else {
                continue;
            };
            match socket.read(&mut buffer) {
                Ok(0) => {
                    progress[index].ended = true;
                    open[index] = None;
                }
                Ok(bytes) => progress[index].add(bin, bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    progress[index].error = Some(error.to_string());
                    open[index] = None;
                }
            }
        }
    }
}

/// What a load came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The connections, in the order of [`Load::ports`].
    pub(crate) flows: Vec<Progress>,
    /// From the start until sending was stopped.
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Goodput of all connections together between two times since the start, in Mbit/s.
    pub(crate) fn goodput_mbps(&self, from: Duration, to: Duration) -> f64 {
        let (first, last) = (bin_of(from), bin_of(to));
        assert!(first < last, "no time between {from:?} and {to:?}");
        let in_range = |flow: &Progress| flow.bins.iter().take(last).skip(first).sum::<u64>();
        let bytes: u64 = self.flows.iter().map(in_range).sum();
        bytes as f64 * 8e-6 / ((last - first) as f64 * BIN.as_secs_f64())
    }

    /// The longest time in which some connection received nothing, up to `until` since the start or
    /// the connection's end.
    pub(crate) fn longest_stall(&self, until: Duration) -> Duration {
        let longest = self.flows.iter().map(|flow| {
            let end = if flow.ended {
                flow.bins.len().min(bin_of(until))
            } else {
                bin_of(until)
            };
            let arrived = (0..end).map(|bin| flow.bins.get(bin).is_some_and(|&bytes| bytes > 0));
            let (longest, _) = arrived.fold((0, 0), |(longest, current), arrived| {
                let current = if arrived { 0 } else { current + 1 };
                (current.max(longest), current)
            });
            longest
        });
        BIN * longest.max().unwrap_or(0)
    }

    /// Number of connections that received nothing between two times since the start.
    pub(crate) fn silent_since(&self, from: Duration, to: Duration) -> usize {
        let (first, last) = (bin_of(from), bin_of(to));
        let received = |flow: &Progress| {
            flow.bins
                .iter()
                .take(last)
                .skip(first)
                .any(|&bytes| bytes > 0)
        };
        self.flows.iter().filter(|flow| !received(flow)).count()
    }

    /// Fails the test if a connection broke or did not deliver everything.
    pub(crate) fn assert_intact(&self) {
        for (index, flow) in self.flows.iter().enumerate() {
            assert_eq!(flow.error, None, "connection {index} broke");
            assert!(
                flow.ended,
                "connection {index} did not deliver what was sent: {} bytes so far",
                flow.bytes()
            );
        }
    }
}

fn bin_of(time: Duration) -> usize {
    (time.as_millis() / BIN.as_millis()) as usize
}
