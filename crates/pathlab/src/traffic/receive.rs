//! The receiving side: listeners, and what arrives on them.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};

use super::counters::Bins;
use super::plan::{FlowPlan, FlowTraffic, Plan};
use super::udp::{self, Account, Datagrams};
use super::window;
use super::{ANSWER, Shared, TrafficError};

/// How often the receivers look whether the run is over.
const POLL: Duration = Duration::from_millis(10);

/// Bytes taken from a connection at once.
const TAKE_BYTES: usize = 1 << 20;

/// Connections that may wait to be accepted; a flow has one at a time.
const BACKLOG: u32 = 16;

/// Room for datagrams while the receiver waits for its turn.
const DATAGRAM_BUFFER_BYTES: usize = 8 << 20;

/// What arrived of a flow.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) bins: Bins,
    /// When the last bytes did.
    pub(super) last: Option<Duration>,
    pub(super) datagrams: Option<Datagrams>,
}

impl Received {
    fn add(&mut self, at: Duration, bytes: usize) {
        self.bins.add(at, bytes as u64);
        self.last = Some(at);
    }
}

enum Listener {
    Tcp(TcpListener),
    Udp(UdpSocket),
    None,
}

/// What all receivers of a run share.
struct Server {
    plan: Arc<Plan>,
    epoch: Instant,
    shared: Arc<Shared>,
    flows: Vec<RefCell<Received>>,
    /// Where bytes go that nobody reads.
    sink: RefCell<Vec<u8>>,
}

/// Receives until the run has ended. Gives `ready` the means to set the start of the run, once all listeners are there.
pub(super) fn run(
    plan: &Arc<Plan>,
    address: Ipv4Addr,
    completed: Vec<UnboundedSender<Instant>>,
    ready: &mpsc::Sender<oneshot::Sender<Instant>>,
    shared: &Arc<Shared>,
) -> Result<Vec<Received>, TrafficError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(TrafficError::Start)?;
    LocalSet::new().block_on(&runtime, async {
        let listeners: Vec<Listener> = (0..)
            .zip(&plan.flows)
            .map(|(flow, spec)| listen(flow, spec, address))
            .collect::<Result<_, _>>()?;
        let (epoch_in, epoch) = oneshot::channel();
        if ready.send(epoch_in).is_err() {
            return Err(TrafficError::Interrupted);
        }
        let Ok(epoch) = epoch.await else {
            return Err(TrafficError::Interrupted);
        };
        let server = Rc::new(Server {
            plan: Arc::clone(plan),
            epoch,
            shared: Arc::clone(shared),
            flows: plan.flows.iter().map(|_| RefCell::default()).collect(),
            sink: RefCell::new(vec![0; TAKE_BYTES]),
        });
        // Tasks that still run are ended with the set.
        let mut tasks = JoinSet::new();
        for (flow, (listener, completed)) in listeners.into_iter().zip(completed).enumerate() {
            let server = Rc::clone(&server);
            match listener {
                Listener::Tcp(listener) => {
                    tasks.spawn_local(server.accept(flow, listener, completed));
                }
                Listener::Udp(socket) => {
                    tasks.spawn_local(async move { server.datagrams(flow, &socket).await });
                }
                Listener::None => {}
            }
        }
        while !shared.ended.load(Ordering::Relaxed) {
            tokio::time::sleep(POLL).await;
        }
        tasks.abort_all();
        Ok(server.flows.iter().map(RefCell::take).collect())
    })
}

fn listen(flow: usize, spec: &FlowPlan, address: Ipv4Addr) -> Result<Listener, TrafficError> {
    let at = SocketAddr::from((address, Plan::port(flow)));
    let stream = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        if let Some(bytes) = spec.window {
            window::set_buffer(&socket, bytes as usize)?;
        }
        socket.bind(at)?;
        socket.listen(BACKLOG).map(Listener::Tcp)
    };
    let datagrams = || {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        window::set_buffer(&socket, DATAGRAM_BUFFER_BYTES)?;
        UdpSocket::from_std(socket).map(Listener::Udp)
    };
    let listener = match spec.traffic {
        FlowTraffic::Tcp { .. } => stream(),
        FlowTraffic::Udp(_) => datagrams(),
        FlowTraffic::Elsewhere => Ok(Listener::None),
    };
    listener.map_err(|cause| TrafficError::Flow {
        flow: flow as u32 + 1,
        what: format!("listen at {at}"),
        cause,
    })
}

/// Takes so many bytes off those that are still to come, if any are; whether none are left now.
fn is_the_last(left: &mut Option<u64>, bytes: usize) -> bool {
    *left = left.map(|left| left.saturating_sub(bytes as u64));
    left.take_if(|left| *left == 0).is_some()
}

impl Server {
    fn fail(&self, flow: usize, what: &str, cause: io::Error) {
        self.shared.fail(TrafficError::Flow {
            flow: flow as u32 + 1,
            what: what.to_owned(),
            cause,
        });
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Serves the connections of a flow, one after the other.
    async fn accept(
        self: Rc<Self>,
        flow: usize,
        listener: TcpListener,
        completed: UnboundedSender<Instant>,
    ) {
        let mut connections = JoinSet::new();
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // The sender gave up before its turn came.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return self.fail(flow, "accept its connection", error),
            };
            if let Some(bytes) = self.plan.flows[flow].window {
                let mut windows = self
                    .shared
                    .windows
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = windows.watch(flow, bytes, &stream) {
                    return self.fail(flow, "watch its receive window", error);
                }
            }
            let (server, completed) = (Rc::clone(&self), completed.clone());
            connections.spawn_local(async move { server.take(flow, stream, &completed).await });
        }
    }

    /// Counts what arrives over a connection until its end.
    async fn take(&self, flow: usize, stream: TcpStream, completed: &UnboundedSender<Instant>) {
        let mut missing = self.plan.flows[flow].size();
        let mut unanswered = self.plan.flows[flow].handshake;
        loop {
            let taken = match stream.readable().await {
                Ok(()) => stream.try_io(Interest::READABLE, || self.discard(&stream)),
                Err(error) => Err(error),
            };
            match taken {
                Ok(0) => break,
                Ok(bytes) => {
                    let at = self.now();
                    if at < self.plan.duration {
                        self.flows[flow].borrow_mut().add(at, bytes);
                    }
                    if is_the_last(&mut unanswered, bytes) {
                        // A connection with nothing to send has room for a byte, and one that breaks is the sender's to
                        // tell.
                        let _ = stream.try_write(&ANSWER);
                    }
                    if is_the_last(&mut missing, bytes) {
                        // Nobody listens if the run is just over.
                        let _ = completed.send(self.epoch + at);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A flow's stop; a failure of the path is the sender's to tell.
                Err(_) => return,
            }
        }
        // Its counters are read at the end of the run; until then, the connection stays.
        std::future::pending::<()>().await;
    }

    /// Takes bytes from a connection without copying them.
    fn discard(&self, stream: &TcpStream) -> io::Result<usize> {
        let sink = &mut self.sink.borrow_mut();
        Ok(recv(stream.as_raw_fd(), sink, MsgFlags::MSG_TRUNC)?)
    }

    async fn datagrams(&self, flow: usize, socket: &UdpSocket) {
        let mut account = Account::default();
        let mut payload = [0; udp::PAYLOAD_BYTES];
        loop {
            match socket.recv(&mut payload).await {
                Ok(bytes) => {
                    let at = self.now();
                    let Some((number, due)) = udp::read_head(&payload[..bytes]) else {
                        continue;
                    };
                    if at < self.plan.duration {
                        account.take(number, due, at);
                        let mut received = self.flows[flow].borrow_mut();
                        received.add(at, bytes);
                        received.datagrams = Some(account.result());
                    }
                }
                Err(error) => return self.fail(flow, "receive its datagrams", error),
            }
        }
    }
}
