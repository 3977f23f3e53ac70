//! An agent in a thread, and an algorithm that steers every flow by itself and checks that
//! everything that comes back is that flow's own.

use ccp_bpf::{BpfIpc, Datapath, Governance, Observer};
use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::Scope;
use portus::{CongAlg, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Says with every report which flow's updates the datapath holds (`tag`) and which rate is in
/// force. `every_us` is how often; with 0 it divides by 0 on every ACK.
const PROGRAM: &str = "
    (def (tag 0) (every_us 10000) (Report (volatile bytes 0) (volatile tag 0) (volatile rate 0)))
    (when true
        (:= Report.bytes (+ Report.bytes Ack.bytes_acked))
        (:= Report.tag tag)
        (:= Report.rate Rate)
        (fallthrough))
    (when (> (/ Micros every_us) 0) (:= Micros 0) (report))";

/// A portus agent in a thread of its own. Dropped, it stops cleanly.
pub(crate) struct Running {
    observer: Observer,
    go_on: Arc<AtomicBool>,
    stay: Arc<AtomicBool>,
    tid: Arc<AtomicI32>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Runs what `run` builds on the datapath's connection until the end.
    pub(crate) fn with(
        datapath: Datapath,
        run: impl FnOnce(BackendBuilder<BpfIpc>, Arc<AtomicBool>) -> portus::Result<()> + Send + 'static,
    ) -> Self {
        let observer = datapath.observer();
        let (go_on, stay) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let tid = Arc::new(AtomicI32::new(0));
        let thread = spawn({
            let (go_on, stay, tid) = (Arc::clone(&go_on), Arc::clone(&stay), Arc::clone(&tid));
            move || {
                // SAFETY: gettid has no preconditions and cannot fail.
                tid.store(unsafe { libc::gettid() }, SeqCst);
                let sock = datapath.ipc().unwrap();
                run(BackendBuilder { sock }, go_on).unwrap();
                if !AtomicBool::load(&stay, SeqCst) {
                    datapath.stop().unwrap();
                }
            }
        });
        Self {
            observer,
            go_on,
            stay,
            tid,
            thread: Some(thread),
        }
    }

    /// Steers all flows.
    pub(crate) fn steering(datapath: Datapath, steering: &Steering) -> Self {
        let steering = steering.clone();
        Self::with(datapath, |backend, go_on| {
            RunBuilder::new(backend)
                .default_alg(steering)
                .with_stop_handle(go_on)
                .run()
        })
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// CPU time of the agent's thread.
    pub(crate) fn cpu_time(&self) -> Duration {
        let path = format!("/proc/self/task/{}/schedstat", self.tid.load(SeqCst));
        let text = std::fs::read_to_string(path).unwrap();
        Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
    }

    /// Ends the agent and leaves names and pins, as a crash would.
    pub(crate) fn leave(mut self) {
        self.stay.store(true, SeqCst);
        self.end();
    }

    /// Ends the agent and everything of the datapath.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.go_on.store(false, SeqCst);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the agent knows of one flow.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) info: DatapathInfo,
    /// Times that portus was told of it.
    pub(crate) creates: AtomicU64,
    pub(crate) closes: AtomicU64,
    pub(crate) reports: AtomicU64,
    /// Payload bytes in the reports.
    pub(crate) bytes: AtomicU64,
}

/// What the agent does and sees, shared with the test.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    flows: Mutex<HashMap<u32, Arc<Known>>>,
    pub(crate) reports: AtomicU64,
    /// Reports that carried another flow's tag or rate.
    wrong: Mutex<Vec<String>>,
    /// While set, the agent hangs in `on_report`.
    stall: AtomicBool,
    stalled: AtomicBool,
}

/// Rate in bytes/s and window in bytes of a flow.
pub(crate) type Rule = fn(&DatapathInfo) -> (u32, u32);

/// Gives every flow the rate and window that the test's function says, again with every report.
#[derive(Clone)]
pub(crate) struct Steering {
    pub(crate) seen: Arc<Seen>,
    pub(crate) rule: Rule,
    /// Time between reports of a flow in µs.
    pub(crate) every_us: u32,
    /// Goes on to send updates for flows that are over.
    pub(crate) haunts: bool,
    /// How flows are governed when they are offered for the first time.
    pub(crate) governance: Option<(Observer, Governance)>,
}

impl Steering {
    pub(crate) fn new(rule: Rule) -> Self {
        Self {
            seen: Arc::default(),
            rule,
            every_us: 10_000,
            haunts: false,
            governance: None,
        }
    }

    /// All flows that the agent was ever told of.
    pub(crate) fn flows(&self) -> Vec<Arc<Known>> {
        self.seen.flows.lock().unwrap().values().cloned().collect()
    }

    /// The flow from a local port; the latest, if it was used again.
    pub(crate) fn flow(&self, port: u16) -> Option<Arc<Known>> {
        let flows = self.flows().into_iter();
        flows
            .filter(|flow| flow.info.src_port == u32::from(port))
            .max_by_key(|flow| flow.info.sock_id >> 16)
    }

    /// Socket ids of the flows that portus was told of and not that they are over.
    pub(crate) fn open(&self) -> Vec<u32> {
        let flows = self.flows().into_iter();
        let mut open: Vec<_> = flows
            .filter(|flow| flow.closes.load(SeqCst) == 0)
            .map(|flow| flow.info.sock_id)
            .collect();
        open.sort_unstable();
        open
    }

    /// Fails if a report carried what was not that flow's.
    pub(crate) fn assert_right(&self) {
        let wrong = self.seen.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[0]);
    }

    /// Makes the agent hang at its next report, and waits until it does.
    pub(crate) fn stall(&self) -> Stall {
        let stall = Stall(Arc::clone(&self.seen));
        self.seen.stall.store(true, SeqCst);
        super::wait_until("the agent hangs", || self.seen.stalled.load(SeqCst));
        stall
    }
}

/// The agent hangs as long as this lives.
pub(crate) struct Stall(Arc<Seen>);

impl Drop for Stall {
    fn drop(&mut self) {
        self.0.stall.store(false, SeqCst);
    }
}

/// A flow under [`Steering`].
pub(crate) struct Steered<I: Ipc> {
    datapath: portus::Datapath<I>,
    scope: Scope,
    alg: Steering,
    known: Arc<Known>,
    rate: u32,
    cwnd: u32,
}

impl<I: Ipc> CongAlg<I> for Steering {
    type Flow = Steered<I>;

    fn name() -> &'static str {
        "steering"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("steering", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut datapath: portus::Datapath<I>, info: DatapathInfo) -> Steered<I> {
        let (rate, cwnd) = (self.rule)(&info);
        let is_new = !self.seen.flows.lock().unwrap().contains_key(&info.sock_id);
        if let Some((observer, governance)) = self.governance.as_ref().filter(|_| is_new) {
            observer.govern(info.sock_id, *governance);
        }
        let fields = [
            ("Rate", rate),
            ("Cwnd", cwnd),
            ("tag", info.sock_id),
            ("every_us", self.every_us),
        ];
        let scope = datapath.set_program("steering", Some(&fields)).unwrap();
        let mut flows = self.seen.flows.lock().unwrap();
        let known = flows.entry(info.sock_id).or_insert_with(|| {
            Arc::new(Known {
                info,
                creates: AtomicU64::new(0),
                closes: AtomicU64::new(0),
                reports: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
            })
        });
        known.creates.fetch_add(1, SeqCst);
        Steered {
            datapath,
            scope,
            alg: self.clone(),
            known: Arc::clone(known),
            rate,
            cwnd,
        }
    }
}

impl<I: Ipc> Steered<I> {
    fn update(&self, rate: u32) {
        let sid = self.known.info.sock_id;
        let fields = [("Rate", rate), ("Cwnd", self.cwnd), ("tag", sid)];
        self.datapath.update_field(&self.scope, &fields).unwrap();
    }
}

impl<I: Ipc> Flow for Steered<I> {
    fn on_report(&mut self, sock_id: u32, report: Report) {
        let get = |field: &str| report.get_field(field, &self.scope).unwrap();
        let (sid, rate) = (self.known.info.sock_id, u64::from(self.rate));
        let seen = &self.alg.seen;
        if sock_id != sid || get("Report.tag") != u64::from(sid) || get("Report.rate") != rate {
            let wrong = format!(
                "flow {sid:#x} at {rate} bytes/s: report of {sock_id:#x} with tag {:#x} at {}",
                get("Report.tag"),
                get("Report.rate")
            );
            seen.wrong.lock().unwrap().push(wrong);
        }
        self.known.reports.fetch_add(1, Relaxed);
        self.known.bytes.fetch_add(get("Report.bytes"), Relaxed);
        seen.reports.fetch_add(1, Relaxed);
        self.update(self.rate);
        while seen.stall.load(Relaxed) {
            seen.stalled.store(true, SeqCst);
            sleep(Duration::from_millis(1));
        }
        seen.stalled.store(false, Relaxed);
    }

    fn close(&mut self) {
        self.known.closes.fetch_add(1, SeqCst);
        if self.alg.haunts {
            self.update(u32::MAX);
        }
    }
}
