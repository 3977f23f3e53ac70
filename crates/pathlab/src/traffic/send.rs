//! The sending side: connects, writes, watches, and says when the run is over.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use pathsim::{MSS, Source};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep_until, timeout_at};

use super::plan::{FlowTraffic, Plan};
use super::rounds::{Member, Rounds};
use super::sample::Sampler;
use super::udp::{self, Datagrams, Stream};
use super::{ANSWER, Ends, FlowReport, Report, Shared, TrafficError};
use crate::flows::FlowKey;
use crate::lab::result::Completion;
use crate::process::Interrupt;

/// Bytes handed to the kernel at once, at most.
const BLOCK: usize = 1 << 17;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Timers of the event loop are not finer.
const TICK: Duration = Duration::from_millis(1);

/// What tells a sender that the receiver has all of a transfer.
pub(super) fn channel() -> (UnboundedSender<Instant>, UnboundedReceiver<Instant>) {
    unbounded_channel()
}

/// A flow's state.
#[derive(Default)]
struct Flow {
    /// All its connections, until it stops.
    connections: RefCell<Vec<Rc<TcpStream>>>,
    /// Whether it has data that is not there yet.
    transfers: Cell<bool>,
    sent_bytes: Cell<u64>,
    end: Cell<Option<Duration>>,
    completions: RefCell<Vec<Completion>>,
    keys: RefCell<Vec<FlowKey>>,
}

/// What all senders of a run share.
struct Client {
    plan: Arc<Plan>,
    server: Ipv4Addr,
    epoch: Instant,
    shared: Arc<Shared>,
    sampler: RefCell<Sampler>,
    flows: Vec<Flow>,
}

/// Sends all of a plan.
pub(super) fn run(
    plan: &Arc<Plan>,
    ends: &Ends<'_>,
    begin: impl FnOnce() -> Instant,
    completions: Vec<UnboundedReceiver<Instant>>,
    shared: &Arc<Shared>,
    interrupt: &Interrupt,
) -> Result<Report, TrafficError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(TrafficError::Start)?;
    let streams = streams(plan, ends.server_address)?;
    let sampler = RefCell::new(Sampler::new(plan.flows.len())?);
    let epoch = begin();
    let client = Rc::new(Client {
        plan: Arc::clone(plan),
        server: ends.server_address,
        epoch,
        shared: Arc::clone(shared),
        sampler,
        flows: plan.flows.iter().map(|_| Flow::default()).collect(),
    });
    thread::scope(|scope| {
        let datagrams = scope.spawn(|| udp::send(streams, epoch, shared));
        let before = cpu_time();
        let ended =
            LocalSet::new().block_on(&runtime, Rc::clone(&client).carry(completions, interrupt));
        let sender_cpu = cpu_time().saturating_sub(before);
        shared.ended.store(true, Ordering::Relaxed);
        let datagrams = datagrams
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let duration = ended?;
        let mut report = Report {
            duration,
            flows: client.reports(duration),
            sender_cpu,
        };
        for (flow, sent, key) in datagrams {
            let report = &mut report.flows[flow];
            report.keys.extend(key);
            report.sent_bytes = sent * udp::PAYLOAD_BYTES as u64;
            report.datagrams = Some(Datagrams {
                sent,
                ..Datagrams::default()
            });
        }
        Ok(report)
    })
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    // Linux has had this clock for as long as threads.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn streams(plan: &Plan, server: Ipv4Addr) -> Result<Vec<Stream>, TrafficError> {
    let mut streams = Vec::new();
    for (flow, spec) in plan.flows.iter().enumerate() {
        let FlowTraffic::Udp(bps) = spec.traffic else {
            continue;
        };
        let bind = std::net::UdpSocket::bind((spec.address, 0));
        let socket = bind.map_err(|cause| TrafficError::Flow {
            flow: flow as u32 + 1,
            what: format!("send from {}", spec.address),
            cause,
        })?;
        streams.push(Stream {
            flow,
            socket,
            to: (server, Plan::port(flow)).into(),
            start: spec.start,
            stop: spec.stops(plan.duration),
            gap: Stream::gap(bps),
            sent: 0,
        });
    }
    Ok(streams)
}

impl Client {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn at(&self, time: Duration) -> tokio::time::Instant {
        (self.epoch + time).into()
    }

    /// Lets all flows send until they are complete or the run is over, looks at them meanwhile, and closes them.
    /// Returns how long that took.
    async fn carry(
        self: Rc<Self>,
        completions: Vec<UnboundedReceiver<Instant>>,
        interrupt: &Interrupt,
    ) -> Result<Duration, TrafficError> {
        let transfers = self.plan.flows.iter().filter(|flow| flow.size().is_some());
        let rounds = Rounds::new(transfers.count());
        let mut tasks = JoinSet::new();
        // Only a run of nothing but transfers ends when its tasks do. Of other flows, something is still on its way
        // then.
        let only_transfers = self.plan.flows.iter().all(|flow| flow.size().is_some());
        for ((flow, spec), completed) in self.plan.flows.iter().enumerate().zip(completions) {
            let FlowTraffic::Tcp { congestion, source } = &spec.traffic else {
                continue;
            };
            let member = spec.size().map(|_| rounds.member());
            let (this, congestion) = (Rc::clone(&self), congestion.clone());
            let source = *source;
            tasks.spawn_local(async move {
                this.flow(flow, &congestion, source, member, completed)
                    .await
            });
        }
        let every = self.plan.sample_every();
        let mut next_look = every;
        loop {
            let now = self.now();
            if now >= self.plan.duration || (tasks.is_empty() && only_transfers) {
                break;
            }
            if self.shared.ended.load(Ordering::Relaxed) || interrupt.is_raised() {
                return Err(TrafficError::Interrupted);
            }
            if now >= next_look {
                self.look()?;
                while next_look <= now {
                    next_look += every;
                }
            }
            let until = self.at(next_look.min(self.plan.duration));
            if tasks.is_empty() {
                sleep_until(until).await;
            } else if let Ok(Some(ended)) = timeout_at(until, tasks.join_next()).await {
                ended.unwrap_or_else(|error| match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Ok(()),
                })?;
            }
        }
        let duration = self.now().min(self.plan.duration);
        self.look()?;
        tasks.shutdown().await;
        for flow in &self.flows {
            flow.close();
        }
        Ok(duration)
    }

    /// Samples all flows, and corrects the windows of those that have one.
    fn look(&self) -> Result<(), TrafficError> {
        let at = self.now();
        let mut sampler = self.sampler.borrow_mut();
        sampler.look(at, |flow| self.flows[flow].transfers.get())?;
        let windows = &self.shared.windows;
        let mut windows = windows.lock().unwrap_or_else(PoisonError::into_inner);
        for (flow, spec) in self.plan.flows.iter().enumerate() {
            // An older sample may be of another connection.
            if spec.window.is_some()
                && let Some(sample) = sampler.last(flow).filter(|sample| sample.at == at)
            {
                windows
                    .correct(flow, sample)
                    .map_err(|cause| failed(flow, "have its receive window", cause))?;
            }
        }
        Ok(())
    }

    /// A TCP flow from its start to its end.
    async fn flow(
        &self,
        flow: usize,
        congestion: &str,
        source: Source,
        member: Option<Member>,
        mut completed: UnboundedReceiver<Instant>,
    ) -> Result<(), TrafficError> {
        let spec = &self.plan.flows[flow];
        sleep_until(self.at(spec.start)).await;
        let sends = async {
            match (source, member) {
                (Source::Bytes(bytes), Some(member)) => {
                    for round in 1..=self.plan.rounds {
                        self.transfer(flow, congestion, (round, bytes), &mut completed)
                            .await?;
                        if round < self.plan.rounds {
                            member.meet().await;
                        }
                    }
                    Ok(())
                }
                _ => {
                    let stream = self.connect(flow, congestion).await?;
                    let sent = self.stream(flow, &stream, source).await;
                    sent.map_err(|cause| failed(flow, "go on sending", cause))
                }
            }
        };
        // What lasts to the end of the run is ended with it, all flows at once.
        match spec.stop.filter(|stop| *stop < self.plan.duration) {
            None => sends.await?,
            Some(stop) => {
                if let Ok(ended) = timeout_at(self.at(stop), sends).await {
                    ended?;
                } else {
                    self.look()?;
                    self.flows[flow].end.set(Some(stop));
                    self.flows[flow].close();
                }
            }
        }
        self.flows[flow].transfers.set(false);
        Ok(())
    }

    async fn connect(&self, flow: usize, congestion: &str) -> Result<Rc<TcpStream>, TrafficError> {
        let to = SocketAddrV4::new(self.server, Plan::port(flow));
        let from = self.plan.flows[flow].address;
        let socket = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_nodelay(true)?;
            socket.bind(SocketAddr::from((from, 0)))?;
            Ok(socket)
        };
        let socket = socket().map_err(|cause| failed(flow, &format!("send from {from}"), cause))?;
        setsockopt(&socket, sockopt::TcpCongestion, &congestion.into()).map_err(|errno| {
            let what = format!("use the congestion control {congestion}");
            failed(flow, &what, errno.into())
        })?;
        let stream = socket.connect(to.into()).await;
        let stream = stream.map_err(|cause| failed(flow, &format!("connect to {to}"), cause))?;
        let stream = Rc::new(stream);
        let key = stream.local_addr().ok().and_then(|own| key(own, TCP));
        self.flows[flow].keys.borrow_mut().extend(key);
        self.flows[flow]
            .connections
            .borrow_mut()
            .push(Rc::clone(&stream));
        self.flows[flow].transfers.set(true);
        Ok(stream)
    }

    /// One transfer over a connection of its own, complete when the receiver has all of it.
    async fn transfer(
        &self,
        flow: usize,
        congestion: &str,
        (round, bytes): (u32, u64),
        completed: &mut UnboundedReceiver<Instant>,
    ) -> Result<(), TrafficError> {
        let completions = &self.flows[flow].completions;
        completions.borrow_mut().push(Completion {
            round,
            start_s: self.now().as_secs_f64(),
            seconds: None,
            bytes,
        });
        let stream = self.connect(flow, congestion).await?;
        let first = Instant::now();
        self.stream(flow, &stream, Source::Bytes(bytes))
            .await
            .map_err(|cause| failed(flow, "go on sending", cause))?;
        // A connection that breaks is told by its writes, or lasts to the end of the run.
        let Some(last) = completed.recv().await else {
            return Ok(());
        };
        self.flows[flow].transfers.set(false);
        if let Some(completion) = completions.borrow_mut().last_mut() {
            completion.seconds = Some(last.saturating_duration_since(first).as_secs_f64());
        }
        Ok(())
    }

    /// Sends what the source says, after the handshake that is a part of it.
    async fn stream(&self, flow: usize, stream: &TcpStream, source: Source) -> io::Result<()> {
        let shaken = self.shake_hands(flow, stream).await?;
        match source {
            Source::Endless => self.write(flow, stream, u64::MAX).await,
            Source::Bytes(bytes) => self.write(flow, stream, bytes.saturating_sub(shaken)).await,
            Source::Rate(bps) => {
                // Data comes in whole segments, whether or not the kernel takes them: what waits is sent later.
                let segment = Duration::from_secs_f64(MSS as f64 * 8.0 / bps as f64);
                let (start, mut written) = (Instant::now(), 0);
                let (step, mut due) = (segment.max(TICK), Duration::ZERO);
                loop {
                    let come = start.elapsed().as_secs_f64() * bps as f64 / 8.0;
                    let come = come as u64 / MSS * MSS;
                    self.write(flow, stream, come - written).await?;
                    written = come;
                    due = (due + step).max(start.elapsed());
                    sleep_until((start + due).into()).await;
                }
            }
            Source::Chunks { bytes, period_ns } => {
                let mut due = Instant::now();
                loop {
                    self.write(flow, stream, bytes).await?;
                    due += Duration::from_nanos(period_ns);
                    sleep_until(due.into()).await;
                }
            }
        }
    }

    /// Sends the handshake and waits for the answer, if the flow has one; returns its bytes.
    async fn shake_hands(&self, flow: usize, stream: &TcpStream) -> io::Result<u64> {
        let Some(bytes) = self.plan.flows[flow].handshake else {
            return Ok(0);
        };
        self.write(flow, stream, bytes).await?;
        loop {
            stream.readable().await?;
            match stream.try_read(&mut [0; ANSWER.len()]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write(&self, flow: usize, stream: &TcpStream, bytes: u64) -> io::Result<()> {
        let (sent, mut left) = (&self.flows[flow].sent_bytes, bytes);
        while left > 0 {
            stream.writable().await?;
            let block = usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK));
            match stream.try_write(&ZEROS[..block]) {
                Ok(written) => {
                    left -= written as u64;
                    sent.set(sent.get() + written as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reports(&self, run: Duration) -> Vec<FlowReport> {
        let mut sampler = self.sampler.borrow_mut();
        let report = |(number, flow): (usize, &Flow)| {
            let spec = &self.plan.flows[number];
            let (retransmissions, delivered_segments) = sampler.totals(number);
            FlowReport {
                start: spec.start,
                end: flow.end.get().unwrap_or(spec.stops(run)),
                sent_bytes: flow.sent_bytes.get(),
                completions: flow.completions.take(),
                samples: sampler.take_samples(number),
                keys: flow.keys.take(),
                retransmissions,
                delivered_segments,
                ..FlowReport::default()
            }
        };
        self.flows.iter().enumerate().map(report).collect()
    }
}

impl Flow {
    /// Resets all connections: what the kernel has not sent yet is not sent any more.
    fn close(&self) {
        for stream in self.connections.take() {
            // A connection that is gone needs no reset.
            let _ = stream.set_zero_linger();
        }
    }
}

/// IANA's number of the protocol.
const TCP: u8 = 6;

/// What the packets of a socket are told by.
pub(super) fn key(own: SocketAddr, protocol: u8) -> Option<FlowKey> {
    let SocketAddr::V4(own) = own else {
        return None;
    };
    Some(FlowKey {
        address: *own.ip(),
        port: own.port(),
        protocol,
    })
}

fn failed(flow: usize, what: &str, cause: io::Error) -> TrafficError {
    TrafficError::Flow {
        flow: flow as u32 + 1,
        what: what.to_owned(),
        cause,
    }
}
