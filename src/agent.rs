//! The portus side: takes reports from a datapath, gives them to the controllers, and sends their commands.
//!
//! This is the only module that knows portus, wall-clock time or logs. It resolves nothing and allocates nothing per
//! report beyond what portus itself does. Log targets: `flow` (one line at the start and one at the end of each flow) and
//! `decision` (every decision, at debug level).
//!
//! Flows that a policy keeps with the kernel's Cubic ([`Role::Shadow`], [`Role::Control`]) have a controller like all
//! others, and are sent its commands: the program needs them to measure, and the datapath lets nothing of theirs reach the
//! socket.

mod assignment;
mod tuned;

pub use assignment::Enforcer;

use crate::controller::{Controller, FlowStart};
use crate::governor::Governor;
use crate::params::Params;
use crate::plan::{Command, Decision, Reason};
use crate::policy::{Arm, Connection, Policies, PolicyError, Role, Verdict};
use crate::program::{self, REPORT_FIELDS, RawReport};
use crate::record::{self, Decided, Line, Measured, Recorder};
use crate::stats::{Carried, FlowLive, Interval, Outcome, Stats};
use crate::units::{Bytes, Micros, Rate};
use assignment::Assignments;
use portus::ipc::Ipc;
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tuned::Tuned;

/// A flow older than this was running before: it resumes instead of starting fast.
pub(crate) const RUNNING_AGE: Duration = Duration::from_secs(1);
/// What is known of a flow is kept for so long while the datapath drives it alone.
const KEEP: Duration = Duration::from_secs(30);
/// Flows of which something is kept, at most.
const KEEP_MAX: usize = 4096;

/// Facts about a flow that CCP's messages do not carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowFact {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Time since the flow began.
    pub age: Duration,
    /// How much of it the agent drove the flow, rather than the datapath's fallback.
    pub driven: Duration,
    /// How often the fallback took over.
    pub fallback_episodes: u32,
    /// Bytes acknowledged over the flow's life.
    pub bytes_acked: u64,
    /// The kernel's smoothed RTT, if it has one.
    pub srtt: Option<Micros>,
    /// The kernel's pacing rate, bytes/s.
    pub pacing_rate: Option<u64>,
    /// Packets delivered over the flow's life, modulo 2^32.
    pub packets_delivered: u32,
    /// Packets lost, modulo 2^32.
    pub packets_lost: u32,
    /// Number of the socket's cgroup, if it is known.
    pub cgroup: Option<u64>,
}

/// A datapath that knows more of its flows. Asked when a flow starts, when it ends, and when policies change.
pub trait FlowFacts: Send + Sync {
    /// Facts of one flow; `None` if it is not, or no longer, known.
    fn lookup(&self, sock_id: u32) -> Option<FlowFact>;
}

/// What an agent runs with.
#[derive(Clone, Default)]
pub struct Config {
    /// The tunables, validated.
    pub params: Params,
    /// Seed of all chance; each flow mixes in its number.
    pub seed: u64,
    /// Where to ask for facts.
    pub facts: Option<Arc<dyn FlowFacts>>,
    /// Where to record.
    pub recorder: Option<Arc<Recorder>>,
    /// Where to count, and to show flows to whoever looks.
    pub stats: Arc<Stats>,
    /// What keeps flows from the agent, and the agent within limits; without it policies choose parameters only.
    pub enforcer: Option<Arc<dyn Enforcer>>,
}

/// The congestion control algorithm, as portus runs it. Clones share everything, so one may be kept to change the
/// parameters while a run loop owns the other.
#[derive(Clone)]
pub struct Pk3c {
    shared: Arc<Shared>,
}

struct Shared {
    tuned: RwLock<Tuned>,
    params_version: AtomicU32,
    governor: Mutex<Governor>,
    seed: u64,
    facts: Option<Arc<dyn FlowFacts>>,
    recorder: Option<Arc<Recorder>>,
    stats: Arc<Stats>,
    assignments: Assignments,
    began: Instant,
    flows: AtomicU64,
    /// The program's registers, shared by the flows of a run loop (every loop compiles its own).
    scope: OnceLock<Arc<Scope>>,
    /// Controllers of flows that the datapath took back without ending them.
    kept: Mutex<HashMap<u32, Kept>>,
}

struct Kept {
    since: Instant,
    state: Box<State>,
}

/// The four numbers that tell one connection from another on the same socket id.
type Ends = (u32, u32, u32, u32);

impl Pk3c {
    /// An agent.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let none = Policies::default();
        config.stats.policies.define(&none, config.seed);
        let governor = Governor::new(config.params.max_reports);
        let tuned = Tuned::new(config.params, &none, Micros::ZERO)
            .expect("without policies there are no parameters that might not fit");
        Self {
            shared: Arc::new(Shared {
                governor: Mutex::new(governor),
                tuned: RwLock::new(tuned),
                assignments: Assignments::new(config.enforcer),
                params_version: AtomicU32::new(0),
                seed: config.seed,
                facts: config.facts,
                recorder: config.recorder,
                stats: config.stats,
                began: Instant::now(),
                flows: AtomicU64::new(0),
                scope: OnceLock::new(),
                kept: Mutex::new(HashMap::new()),
            }),
        }
    }

    /// The parameters as configured; the shortest interval in force may be longer while there are many flows.
    #[must_use]
    pub fn params(&self) -> Params {
        let tuned = self.shared.tuned.read();
        tuned
            .unwrap_or_else(PoisonError::into_inner)
            .configured
            .clone()
    }

    /// Replaces the parameters; running flows take them with their next report. The limit on reports stays that of
    /// the start.
    ///
    /// # Errors
    /// If they do not fit what a policy changes of them; then nothing changes.
    pub fn set_params(&self, params: Params) -> Result<(), PolicyError> {
        self.configure(params, None)
    }

    /// Replaces the policies; running flows are put under theirs at once, or with their next report.
    ///
    /// # Errors
    /// If the parameters of one do not fit each other; then nothing changes.
    pub fn set_policies(&self, policies: Policies) -> Result<(), PolicyError> {
        self.configure(self.params(), Some(policies))
    }

    /// Replaces parameters, and policies if there are others.
    ///
    /// # Errors
    /// If they do not fit each other; then nothing changes.
    pub fn configure(&self, params: Params, policies: Option<Policies>) -> Result<(), PolicyError> {
        let shared = &self.shared;
        let new = policies.map(Arc::new);
        let policies = new.clone().unwrap_or_else(|| shared.assignments.policies());
        {
            let mut tuned = shared.tuned.write().unwrap_or_else(PoisonError::into_inner);
            *tuned = Tuned::new(params, &policies, tuned.floor)?;
        }
        let stats = &shared.stats.policies;
        if let Some(policies) = new {
            stats.define(&policies, shared.seed);
            shared.assignments.replace(policies, stats);
        }
        // Last: who sees the new number sees all that is new.
        shared.params_version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The policies in force.
    #[must_use]
    pub fn policies(&self) -> Arc<Policies> {
        self.shared.assignments.policies()
    }
}

impl Shared {
    fn params(&self, policy: Option<usize>) -> Arc<Params> {
        let tuned = self.tuned.read().unwrap_or_else(PoisonError::into_inner);
        tuned.of(policy)
    }

    /// Another shortest interval for all flows.
    fn stretch(&self, floor: Micros) {
        let mut tuned = self.tuned.write().unwrap_or_else(PoisonError::into_inner);
        *tuned = tuned.floored(floor);
        self.params_version.fetch_add(1, Ordering::Release);
    }

    /// Keeps the sum of all flows' reports within bounds; `seen` is the flow's mark for the governor.
    fn govern(&self, seen: &mut u32) {
        let now = Micros::new(self.began.elapsed().as_micros() as u64);
        let mut governor = self.governor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(floor) = governor.on_report(now, seen) else {
            return;
        };
        drop(governor);
        let configured = {
            let tuned = self.tuned.read().unwrap_or_else(PoisonError::into_inner);
            if floor.max(tuned.floor) <= tuned.mi_min() {
                return; // no flow notices
            }
            tuned.mi_min()
        };
        if floor > configured {
            tracing::warn!(
                mi_min_ms = floor.as_secs() * 1e3,
                "many flows: monitor intervals are stretched"
            );
        } else {
            tracing::info!(
                mi_min_ms = configured.as_secs() * 1e3,
                "monitor intervals are as configured again"
            );
        }
        self.stretch(floor);
    }

    fn facts(&self, sock_id: u32) -> Option<FlowFact> {
        self.facts.as_ref().and_then(|facts| facts.lookup(sock_id))
    }

    fn at_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn record(&self, line: impl FnOnce() -> Line) {
        if let Some(recorder) = &self.recorder {
            recorder.write(&line());
        }
    }

    /// The shared scope, unless this run loop compiled the program anew.
    fn share(&self, scope: Scope) -> Arc<Scope> {
        let shared = self.scope.get_or_init(|| Arc::new(scope.clone()));
        if shared.program_uid == scope.program_uid {
            shared.clone()
        } else {
            Arc::new(scope)
        }
    }

    fn keep(&self, sock_id: u32, kept: Kept) {
        let mut map = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, kept| kept.since.elapsed() < KEEP);
        if map.len() < KEEP_MAX {
            map.insert(sock_id, kept);
        }
    }

    fn take_kept(&self, sock_id: u32, ends: Ends) -> Option<Box<State>> {
        let kept = self
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&sock_id)?;
        (kept.state.ends == ends && kept.since.elapsed() < KEEP).then_some(kept.state)
    }
}

/// A flow's ends: as the datapath knows them, or as CREATE has them, which is IPv4 only.
pub(crate) fn local_and_remote(
    info: &DatapathInfo,
    fact: Option<FlowFact>,
) -> (SocketAddr, SocketAddr) {
    let v4 = |ip: u32, port: u32| {
        let port = u16::try_from(port).unwrap_or(0);
        SocketAddr::from((Ipv4Addr::from(ip.to_le_bytes()), port))
    };
    fact.map_or_else(
        || {
            let local = v4(info.src_ip, info.src_port);
            (local, v4(info.dst_ip, info.dst_port))
        },
        |fact| (fact.local, fact.remote),
    )
}

/// Rate and RTT to go on with, if the flow was running: what it sends per RTT now, or paces, whichever is less.
fn resume(fact: Option<FlowFact>, cwnd: u32) -> Option<(Rate, Micros)> {
    let fact = fact.filter(|fact| fact.age > RUNNING_AGE)?;
    let srtt = fact.srtt.filter(|srtt| *srtt > Micros::ZERO)?;
    let by_window = Rate::from_bytes_in(f64::from(cwnd), srtt);
    let paced = fact
        .pacing_rate
        .filter(|rate| *rate > 0)
        .map_or(Rate::MAX, |rate| Rate::from_bytes_per_sec(rate as f64));
    record::resume(record::resumed(Some((by_window.min(paced), srtt))))
}

/// What outlives a spell of the datapath's fallback.
struct State {
    /// Number in records.
    flow: u64,
    ends: Ends,
    mss: u32,
    /// When it began, in [`Shared::at_s`].
    began_s: f64,
    /// The registers of the program, once it is installed.
    scope: Option<Arc<Scope>>,
    send_failed: bool,
    controller: Controller,
    params_version: u32,
    /// The flow as policies look at it.
    connection: Connection,
    verdict: Verdict,
    /// How old it was when it came under its policy.
    met_at: Duration,
    /// The governor's mark.
    governed: u32,
    /// The round of [`crate::stats::Live`] in which the flow last told its numbers.
    told: u32,
    decisions: [u32; Reason::ALL.len()],
    lost_pkts: f64,
    rtt_sum_us: f64,
    rtt_samples: f64,
    rtt_min_us: u64,
    /// Sum of the rates asked for, one for each report, Mbit/s.
    rate_sum_mbit: f64,
}

/// One flow under the agent.
pub struct Pk3cFlow<I: Ipc> {
    shared: Arc<Shared>,
    datapath: Datapath<I>,
    /// In a box, because portus' table of flows has more room than flows.
    state: Option<Box<State>>,
}

impl<I: Ipc> CongAlg<I> for Pk3c {
    type Flow = Pk3cFlow<I>;

    fn name() -> &'static str {
        program::NAME
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([(program::NAME, program::text())])
    }

    fn new_flow(&self, datapath: Datapath<I>, info: DatapathInfo) -> Pk3cFlow<I> {
        let shared = self.shared.clone();
        let sock_id = info.sock_id;
        let fact = shared.facts(sock_id);
        let resume = resume(fact, info.init_cwnd);
        let ends = (info.src_ip, info.src_port, info.dst_ip, info.dst_port);
        let kept = shared.take_kept(sock_id, ends);
        let (local, remote) = local_and_remote(&info, fact);
        let readopted = kept.is_some();
        shared.stats.counters.flow_started(readopted);
        let (state, first) = match kept {
            Some(mut state) => {
                shared.reassign(sock_id, &mut state);
                let first = state
                    .controller
                    .readopt(Bytes::new(u64::from(info.init_cwnd)), resume);
                let (flow, at_s, init_cwnd) =
                    (state.flow, shared.at_s(), u64::from(info.init_cwnd));
                let (resume, decision) = (record::resumed(resume), Decided::from(&first));
                shared.record(|| Line::Readopt {
                    flow,
                    at_s,
                    init_cwnd,
                    resume,
                    decision,
                });
                (state, first)
            }
            None => begin(&shared, &info, fact, resume),
        };
        tracing::info!(
            target: "flow",
            sock_id, %local, %remote, mss = info.mss, init_cwnd = info.init_cwnd, resumed = resume.is_some(), readopted,
            policy = &*state.verdict.name, role = state.verdict.role.name(),
            "flow start"
        );
        let mut flow = Pk3cFlow {
            shared,
            datapath,
            state: Some(state),
        };
        if !flow.is_left() {
            flow.install(&first);
        }
        flow
    }
}

fn begin(
    shared: &Shared,
    info: &DatapathInfo,
    fact: Option<FlowFact>,
    resume: Option<(Rate, Micros)>,
) -> (Box<State>, Decision) {
    let (local, remote) = local_and_remote(info, fact);
    let flow = shared.flows.fetch_add(1, Ordering::Relaxed) + 1;
    let seed = shared.seed.wrapping_add(flow);
    let start = FlowStart {
        mss: Bytes::new(u64::from(info.mss)),
        init_cwnd: Bytes::new(u64::from(info.init_cwnd)),
        resume,
    };
    let params_version = shared.params_version.load(Ordering::Acquire);
    let assignments = &shared.assignments;
    let connection = assignments.connection((local, remote), fact);
    let verdict = assignments.assign(info.sock_id, &connection, &shared.stats.policies);
    let params = shared.params(verdict.policy);
    if params_version > 0 {
        shared.record(|| Line::Params {
            flow: None,
            params: record::texts(&params),
        });
    }
    let (controller, first) = Controller::new(params, seed, start);
    shared.record(|| Line::Start {
        flow,
        at_s: shared.at_s(),
        sock_id: info.sock_id,
        local,
        remote,
        mss: u64::from(info.mss),
        init_cwnd: u64::from(info.init_cwnd),
        seed,
        resume: record::resumed(resume),
        decision: Decided::from(&first),
    });
    let state = State {
        flow,
        ends: (info.src_ip, info.src_port, info.dst_ip, info.dst_port),
        mss: info.mss,
        began_s: shared.at_s(),
        scope: None,
        send_failed: false,
        controller,
        params_version,
        connection,
        verdict,
        met_at: fact.map_or(Duration::ZERO, |fact| fact.age),
        governed: 0,
        told: 0,
        decisions: [0; Reason::ALL.len()],
        lost_pkts: 0.0,
        rtt_sum_us: 0.0,
        rtt_samples: 0.0,
        rtt_min_us: u64::MAX,
        rate_sum_mbit: 0.0,
    };
    (Box::new(state), first)
}

impl Shared {
    /// Puts a flow under the policy that is in force for it now; says under which role it was before.
    fn reassign(&self, sock_id: u32, state: &mut State) -> Role {
        let fact = self.facts(sock_id);
        self.assignments.complete(&mut state.connection, fact);
        let stats = &self.stats.policies;
        let verdict = self.assignments.assign(sock_id, &state.connection, stats);
        let is_new = (&verdict.name, verdict.role) != (&state.verdict.name, state.verdict.role);
        if is_new {
            let age = fact.map(|fact| fact.age);
            state.met_at = age.unwrap_or(state.met_at);
            tracing::info!(
                target: "flow",
                sock_id, policy = &*verdict.name, role = verdict.role.name(), was = state.verdict.role.name(),
                "flow under another policy"
            );
        }
        std::mem::replace(&mut state.verdict, verdict).role
    }
}

impl<I: Ipc> Pk3cFlow<I> {
    /// Whether a policy leaves the flow to the kernel.
    fn is_left(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.verdict.role == Role::Kernel)
    }

    /// Installs the program with the first rate, window and plan.
    fn install(&mut self, first: &Decision) {
        let (Some(command), Some(state)) = (first.command, &mut self.state) else {
            return;
        };
        let installed =
            command.fields(|fields| self.datapath.set_program(program::NAME, Some(fields)));
        state.send_failed = false;
        state.scope = match installed {
            Ok(scope) => Some(self.shared.share(scope)),
            Err(error) => {
                self.shared.stats.counters.command_failed();
                tracing::error!(target: "flow", sock_id = self.datapath.get_sock_id(), "cannot install the program, the datapath drives this flow alone: {}", error.0);
                None
            }
        };
    }

    fn send(&mut self, command: Command) {
        let Some(state) = &mut self.state else { return };
        let Some(scope) = &state.scope else { return };
        let sent = command.fields(|fields| self.datapath.update_field(scope, fields));
        if let Err(error) = sent {
            self.shared.stats.counters.command_failed();
            if std::mem::replace(&mut state.send_failed, true) {
                return;
            }
            tracing::warn!(target: "flow", sock_id = self.datapath.get_sock_id(), "cannot send a command (further failures are not logged): {}", error.0);
        }
    }

    fn read(&self, report: &Report) -> Option<RawReport> {
        let scope = self.state.as_ref()?.scope.as_ref()?;
        let mut fields = [0; REPORT_FIELDS.len()];
        for (value, name) in fields.iter_mut().zip(REPORT_FIELDS) {
            *value = report.get_field(name, scope).ok()?;
        }
        Some(RawReport::from_fields(fields))
    }
}

impl State {
    fn count(&mut self, raw: &RawReport, decision: &Decision) {
        self.decisions[decision.reason as usize] += 1;
        self.rate_sum_mbit += decision.rate.mbit();
        self.lost_pkts += raw.lost as f64;
        if raw.n > 0 {
            self.rtt_sum_us += raw.sr as f64;
            self.rtt_samples += raw.n as f64;
            self.rtt_min_us = self.rtt_min_us.min(raw.rmin);
        }
    }

    fn reports(&self) -> u64 {
        self.decisions.iter().copied().map(u64::from).sum()
    }

    fn delivered_pkts(&self) -> f64 {
        self.controller.estimator().delivered_pkts()
    }

    /// Parameters, and policies, have changed: the next report is answered under the new ones. Returns whether the agent
    /// takes the flow over from the kernel with it.
    fn take_changes(&mut self, sock_id: u32, shared: &Shared, version: u32) -> bool {
        self.params_version = version;
        let before = shared.reassign(sock_id, self);
        let (flow, params) = (self.flow, shared.params(self.verdict.policy));
        shared.record(|| Line::Params {
            flow: Some(flow),
            params: record::texts(&params),
        });
        self.controller.set_params(params);
        before.is_observed() && self.verdict.role == Role::Driven
    }

    /// The kernel hands the flow over while its program runs: goes on from what it sends now, not from what it would have
    /// sent.
    fn take_over(&mut self, shared: &Shared, sent: Rate) -> Decision {
        let srtt = self.controller.estimator().srtt();
        let known = Some((sent, srtt)).filter(|_| sent > Rate::ZERO && srtt > Micros::ZERO);
        let resume = record::resume(record::resumed(known));
        let cwnd = Bytes::from_f64(sent.bytes_in(srtt));
        let decision = self.controller.readopt(cwnd, resume);
        let (flow, at_s) = (self.flow, shared.at_s());
        shared.record(|| Line::Readopt {
            flow,
            at_s,
            init_cwnd: cwnd.get(),
            resume: record::resumed(resume),
            decision: Decided::from(&decision),
        });
        decision
    }

    /// How the flow fared, and in which arm of an experiment.
    fn outcome(&self, carried: Carried, duration: Duration) -> Option<(Arm, Outcome)> {
        let (arm, unit) = self.verdict.arm?;
        let packets = f64::from(carried.packets_delivered) + f64::from(carried.packets_lost);
        let sampled = self.rtt_samples > 0.0;
        let outcome = Outcome {
            unit,
            duration,
            bytes: carried.bytes_acked,
            rtt_s: sampled.then(|| self.rtt_sum_us * 1e-6 / self.rtt_samples),
            rtt_min_s: sampled.then_some(self.rtt_min_us as f64 * 1e-6),
            loss: (packets > 0.0).then(|| f64::from(carried.packets_lost) / packets),
            met_at: self.met_at,
        };
        Some((arm, outcome))
    }

    /// What is shown of the flow while it runs.
    fn live(&self, decision: &Decision) -> FlowLive {
        let est = self.controller.estimator();
        FlowLive {
            phase: decision.phase,
            reason: decision.reason,
            rate: decision.rate,
            cwnd: decision.cwnd,
            srtt: est.srtt(),
            rtt_min: est.rtt_min(),
            reports: self.reports(),
        }
    }

    /// `reason=count` of every kind of decision that happened.
    fn decisions(&self) -> String {
        let counted = Reason::ALL
            .iter()
            .map(|reason| (reason.name(), self.decisions[*reason as usize]));
        let texts: Vec<_> = counted
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name}={count}"))
            .collect();
        texts.join(" ")
    }
}

impl<I: Ipc> Flow for Pk3cFlow<I> {
    fn on_report(&mut self, sock_id: u32, report: Report) {
        let Some(raw) = self.read(&report) else {
            tracing::debug!(target: "flow", sock_id, program = report.program_uid, "report of another program ignored");
            self.shared.stats.counters.report_foreign();
            return;
        };
        let Some(state) = &mut self.state else { return };
        let shared = &self.shared;
        let stats = &shared.stats;
        let arrived = stats.counters.report_arrived();
        self.shared.govern(&mut state.governed);
        let version = self.shared.params_version.load(Ordering::Acquire);
        let taken_over =
            version != state.params_version && state.take_changes(sock_id, shared, version);
        let (mi, decision) = state.controller.on_report_measured(&raw);
        state.count(&raw, &decision);
        if stats.live.explains() {
            stats.live.note(sock_id, || Interval {
                at_s: shared.at_s(),
                measured: Measured::new(&raw, mi, state.controller.estimator()),
                decision,
            });
        }
        if stats.live.is_due(&mut state.told) {
            stats.live.publish(sock_id, state.live(&decision));
        }
        let flow = state.flow;
        tracing::debug!(
            target: "decision",
            sock_id,
            rate_mbit = decision.rate.mbit(),
            cwnd = decision.cwnd.get(),
            phase = decision.phase.name(),
            reason = decision.reason.name(),
            plan = raw.plan(),
            slot = raw.tag % 32,
            role = state.verdict.role.name(),
        );
        self.shared.record(|| Line::Report {
            flow,
            raw: raw.fields(),
            stale: decision.reason == Reason::Stale,
            decision: Decided::from(&decision),
        });
        let command = if taken_over {
            state.take_over(&self.shared, mi.send_rate).command
        } else {
            decision.command
        };
        if let Some(command) = command.filter(|_| !self.is_left()) {
            self.send(command);
        }
        let counters = &self.shared.stats.counters;
        counters.report_answered(decision.reason, arrived);
    }

    fn close(&mut self) {
        let Some(state) = self.state.take() else {
            return;
        };
        self.shared.record(|| Line::End {
            flow: state.flow,
            at_s: self.shared.at_s(),
        });
        let sock_id = self.datapath.get_sock_id();
        self.shared.stats.counters.flow_ended();
        self.shared.stats.live.forget(sock_id);
        self.shared.assignments.forget(sock_id);
        let fact = self.shared.facts(sock_id);
        let known_s = self.shared.at_s() - state.began_s;
        let duration_s = fact.map_or(known_s, |fact| fact.age.as_secs_f64());
        let bytes_acked = fact.map_or(
            (state.delivered_pkts() * f64::from(state.mss)) as u64,
            |fact| fact.bytes_acked,
        );
        let by_reports = [state.delivered_pkts(), state.lost_pkts].map(|packets| packets as u32);
        let [packets_delivered, packets_lost] = fact.map_or(by_reports, |fact| {
            [fact.packets_delivered, fact.packets_lost]
        });
        let carried = Carried {
            bytes_acked,
            packets_delivered,
            packets_lost,
        };
        let outcome = state.outcome(carried, Duration::from_secs_f64(duration_s.max(0.0)));
        self.shared.stats.policies.end(sock_id, carried, outcome);
        let observed = state.verdict.role.is_observed() && state.reports() > 0;
        tracing::info!(
            target: "flow",
            sock_id,
            duration_s,
            agent_driven = fact.map(|fact| fact.driven.as_secs_f64() / fact.age.as_secs_f64().max(1e-6)),
            reports = state.reports(),
            decisions = state.decisions(),
            bytes_acked,
            goodput_mbit = bytes_acked as f64 * 8e-6 / duration_s.max(1e-6),
            rtt_min_ms = (state.rtt_samples > 0.0).then_some(state.rtt_min_us as f64 * 1e-3),
            rtt_mean_ms = (state.rtt_samples > 0.0).then_some(state.rtt_sum_us * 1e-3 / state.rtt_samples),
            loss = state.lost_pkts / (state.lost_pkts + state.delivered_pkts()).max(1.0),
            fallback_episodes = fact.map(|fact| fact.fallback_episodes),
            policy = &*state.verdict.name,
            role = state.verdict.role.name(),
            would_rate_mbit = observed.then(|| state.rate_sum_mbit / state.reports() as f64),
            "flow end"
        );
    }
}

impl<I: Ipc> Drop for Pk3cFlow<I> {
    /// A flow that is dropped without an end comes back: the datapath took it over, and will create it again.
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            let sock_id = self.datapath.get_sock_id();
            self.shared.stats.live.forget(sock_id);
            self.shared.assignments.forget(sock_id);
            self.shared.keep(
                sock_id,
                Kept {
                    since: Instant::now(),
                    state,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(age_s: u64, srtt: Option<u64>, pacing_rate: Option<u64>) -> Option<FlowFact> {
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        Some(FlowFact {
            local: end,
            remote: end,
            age: Duration::from_secs(age_s),
            driven: Duration::ZERO,
            fallback_episodes: 0,
            bytes_acked: 0,
            srtt: srtt.map(Micros::new),
            pacing_rate,
            packets_delivered: 0,
            packets_lost: 0,
            cgroup: None,
        })
    }

    #[test]
    fn only_running_flows_with_an_rtt_resume() {
        assert_eq!(resume(None, 100_000), None);
        assert_eq!(
            resume(fact(0, Some(50_000), None), 100_000),
            None,
            "a new flow"
        );
        assert_eq!(resume(fact(9, None, None), 100_000), None, "no RTT");
        let rate =
            |pacing| resume(fact(9, Some(50_000), pacing), 100_000).map(|(rate, _)| rate.to_wire());
        assert_eq!(rate(None), Some(2_000_000));
        assert_eq!(rate(Some(1_500_000)), Some(1_500_000));
        assert_eq!(rate(Some(u64::MAX)), Some(2_000_000), "unlimited pacing");
    }
}
