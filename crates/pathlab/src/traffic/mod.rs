//! The lab's own senders and receivers: real TCP and UDP between two network namespaces, on one clock.
//!
//! ```text
//!   thread "sends", in the client's namespace        thread "receives", in the server's namespace
//!   a task per TCP flow: connect, write      ──▶     a listener per flow, a task per connection: read, count
//!   a thread for all UDP flows: pace, send   ──▶     a task per UDP flow: count, jitter
//!   every 10 or 100 ms: sock_diag, all flows         completions ──▶ the sender's task (the next round)
//! ```
//!
//! A socket belongs to the namespace of the thread that made it, so each side has a thread that entered one, with a
//! tokio runtime of its own. Both are parts of one process: what is sent at one end and complete at the other is timed
//! by the same clock.
//!
//! Every flow has a port of its own at the receiver, [`Plan::port`], and so every packet on the path names its flow.
//! A flow with a handshake waits for a byte from there once.
//!
//! All sockets stay open until the kernel's last counters have been read, and close with a reset: a flow stops when it
//! is told to, and leaves neither data to be sent later nor sockets that linger. What arrives after the end is not
//! counted.

mod counters;
mod plan;
mod receive;
mod rounds;
mod sample;
mod send;
mod udp;
mod window;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::flows::FlowKey;
use crate::lab::result::Completion;
use crate::netns::{Netns, NetnsError};
use crate::process::Interrupt;

pub use counters::Bins;
pub use plan::{FlowPlan, FlowTraffic, ImpossiblePlan, Plan};
pub use sample::{Sample, SampleError};
pub use udp::Datagrams;

/// What a receiver answers a handshake with.
const ANSWER: [u8; 1] = [0];

/// Why traffic did not come about.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// It cannot be.
    #[error(transparent)]
    Plan(#[from] ImpossiblePlan),
    /// A namespace.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The counters of the sockets.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A socket.
    #[error("flow {flow} cannot {what}: {cause}")]
    Flow {
        /// Its number, from 1.
        flow: u32,
        /// The attempt.
        what: String,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// The process may not open enough files.
    #[error("{needed} sockets are more than this process may open: {cause}; raise `ulimit -n`")]
    Files {
        /// How many it takes.
        needed: u64,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// A thread's event loop could not be made.
    #[error("cannot start the senders and receivers: {0}")]
    Start(std::io::Error),
    /// A defect of the traffic engine.
    #[error("the receivers ended before the senders; this is a defect, please report it")]
    ReceiversEnded,
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The two ends that traffic goes between.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// Where senders live.
    pub client: &'a Netns,
    /// Where receivers live.
    pub server: &'a Netns,
    /// The receivers' address.
    pub server_address: Ipv4Addr,
}

/// What came of the traffic.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// From the first possible start to the end; shorter than planned if all flows were complete before.
    pub duration: Duration,
    /// The flows, in the order of the plan.
    pub flows: Vec<FlowReport>,
    /// CPU time of the sending thread: user and system, without what the kernel does in interrupts.
    pub sender_cpu: Duration,
}

/// What came of a flow. Times are since the start of the run.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// When it started.
    pub start: Duration,
    /// When its last byte arrived, if it was complete then; else when it was stopped.
    pub end: Duration,
    /// Payload handed to the kernel, bytes.
    pub sent_bytes: u64,
    /// Payload at the receiver.
    pub received: Bins,
    /// The same of programs, which do not tell it: what the link delivered, without a time, bytes.
    pub received_at_link: Option<u64>,
    /// Transfers of a size.
    pub completions: Vec<Completion>,
    /// TCP's samples, in ascending order of their times.
    pub samples: Vec<Sample>,
    /// The client's address and port of its connections: what tells its packets from others.
    pub keys: Vec<FlowKey>,
    /// Segments sent again, all connections.
    pub retransmissions: u64,
    /// Segments that the receiver has acknowledged, all connections.
    pub delivered_segments: u64,
    /// What became of datagrams.
    pub datagrams: Option<Datagrams>,
}

/// What both sides know of the run's progress.
#[derive(Debug)]
struct Shared {
    /// Set by the side that ends first.
    ended: AtomicBool,
    /// The receiving ends of flows with a window of their own.
    windows: Mutex<window::Windows>,
    error: Mutex<Option<TrafficError>>,
}

impl Shared {
    /// Keeps the first error, which is the cause of later ones, and ends the run.
    fn fail(&self, error: TrafficError) {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Carries out a plan between two ends. When all receivers listen, `begin` is asked for the time 0 of the run.
/// Everything that is opened is closed when this returns: within the plan's duration and a second, or 0.2 s after an
/// interrupt.
///
/// # Errors
/// [`TrafficError`]; the first one that befalls a flow ends the run.
pub fn carry(
    plan: &Plan,
    ends: &Ends<'_>,
    begin: &mut (dyn FnMut() -> Instant + Send),
    interrupt: &Interrupt,
) -> Result<Report, TrafficError> {
    plan.check()?;
    let plan = &Arc::new(plan.clone());
    plan::allow_files(plan.files())?;
    let shared = Arc::new(Shared {
        ended: AtomicBool::new(false),
        windows: Mutex::default(),
        error: Mutex::default(),
    });
    let (completed, completions) = plan.flows.iter().map(|_| send::channel()).unzip();
    let (ready, listening) = mpsc::channel();
    let result = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let receive = || receive::run(plan, ends.server_address, completed, &ready, &shared);
            ends.server.enter(receive)?
        });
        // The receivers say when they listen; they cannot, if they failed.
        let sent = match listening.recv_timeout(Duration::from_secs(10)) {
            Ok(epoch_in) => {
                let begin = move || {
                    let epoch = begin();
                    // Nobody waits for it if the receivers have failed meanwhile, and then they say why.
                    let _ = epoch_in.send(epoch);
                    epoch
                };
                let sends = || send::run(plan, ends, begin, completions, &shared, interrupt);
                ends.client.enter(sends).map_err(TrafficError::from)
            }
            Err(_) => Ok(Err(TrafficError::ReceiversEnded)),
        };
        shared.ended.store(true, Ordering::Relaxed);
        let received = receiving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, received)
    });
    let cause = shared
        .error
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if interrupt.is_raised() {
        return Err(TrafficError::Interrupted);
    }
    if let Some(cause) = cause {
        return Err(cause);
    }
    let (sent, received) = result;
    // The receivers' error comes first: without them, nothing could be sent.
    let received = received?;
    let mut report = sent??;
    for (flow, received) in report.flows.iter_mut().zip(received) {
        flow.take_received(received, report.duration);
    }
    Ok(report)
}

impl FlowReport {
    /// Payload at the receiver, bytes.
    pub fn received_bytes(&self) -> u64 {
        self.received_at_link.unwrap_or(self.received.total())
    }

    /// Adds the receiver's account to the sender's.
    fn take_received(&mut self, received: receive::Received, run: Duration) {
        self.received = received.bins.cut(run);
        self.datagrams = self.datagrams.map(|Datagrams { sent, .. }| Datagrams {
            sent,
            ..received.datagrams.unwrap_or_default()
        });
        // Whoever has all its bytes ends with the last of them.
        let complete = !self.completions.is_empty()
            && self
                .completions
                .iter()
                .all(|transfer| transfer.seconds.is_some());
        if let (true, Some(last)) = (complete, received.last) {
            self.end = last.min(run);
        }
    }
}
