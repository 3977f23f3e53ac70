//! The portus side: takes reports from a datapath, gives them to the controllers, and sends their commands.
//!
//! This is the only module that knows portus, wall-clock time or logs. It resolves nothing and allocates nothing per
//! report beyond what portus itself does. Log targets: `flow` (one line at the start and one at the end of each flow)
//! and `decision` (every decision, at debug level).
//!
//! Flows that a policy keeps with the kernel's Cubic ([`Role::Shadow`], [`Role::Control`]) have a controller like all
//! others, and are sent its commands: the program needs them to measure, and the datapath lets nothing of theirs reach
//! the socket.
//!
//! [`Role::Shadow`]: crate::policy::Role::Shadow
//! [`Role::Control`]: crate::policy::Role::Control

mod assignment;
mod ensembles;
mod fact;
mod flow;
mod kept;
mod state;
mod tuned;

pub use assignment::Enforcer;
pub use fact::{FlowFact, FlowFacts};
pub(crate) use fact::{RUNNING_AGE, local_and_remote};
pub use flow::Pk3cFlow;

use crate::governor::Governor;
use crate::params::Params;
use crate::policy::{Policies, PolicyError};
use crate::program;
use crate::record::{Line, Recorder};
use crate::stats::Stats;
use crate::units::Micros;
use assignment::Assignments;
use ensembles::Ensembles;
use kept::KeptFlows;
use portus::ipc::Ipc;
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tuned::Tuned;

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
    kept: KeptFlows,
    ensembles: Ensembles,
}

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
                kept: KeptFlows::default(),
                ensembles: Ensembles::default(),
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
            let facts = |sock_id| shared.facts(sock_id);
            shared.assignments.replace(policies, stats, facts);
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

    /// Keeps the sum of all flows' reports within bounds; `seen` is the flow's mark for the governor.
    fn govern(&self, seen: &mut u32) {
        let now = Micros::new(self.began.elapsed().as_micros() as u64);
        let mut governor = self.governor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(floor) = governor.on_report(now, seen) else {
            return;
        };
        drop(governor);
        let (before, configured) = {
            let mut tuned = self.tuned.write().unwrap_or_else(PoisonError::into_inner);
            let before = tuned.floor;
            // Also one that no flow notices: it holds once shorter intervals are configured.
            *tuned = tuned.floored(floor);
            (before, tuned.mi_min())
        };
        if floor.max(before) <= configured {
            return;
        }
        self.params_version.fetch_add(1, Ordering::Release);
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
    }

    fn facts(&self, sock_id: u32) -> Option<FlowFact> {
        self.facts.as_ref().and_then(|facts| facts.lookup(sock_id))
    }

    fn mss(&self, sock_id: u32) -> Option<u32> {
        self.facts.as_ref().and_then(|facts| facts.mss(sock_id))
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
        Pk3cFlow::begin(self.shared.clone(), datapath, &info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_floor_below_what_is_configured_holds_once_less_is_configured() {
        let (flows, limit) = (3_000, 2_000_000);
        let mut agent = Pk3c::new(Config {
            params: Params {
                max_reports: limit,
                ..Params::default()
            },
            ..Config::default()
        });
        for _ in 0..flows {
            agent.shared.govern(&mut 0);
        }
        // The window of the count ends.
        let shared = Arc::get_mut(&mut agent.shared).unwrap();
        shared.began -= Duration::from_secs(1);
        shared.govern(&mut 0);
        let floor = Micros::new(1_500);
        assert!(shared.params(None).mi_min > floor, "no flow notices");
        let shortest = Micros::new(500);
        agent
            .set_params(Params {
                mi_min: shortest,
                ..agent.params()
            })
            .unwrap();
        assert_eq!(agent.shared.params(None).mi_min, floor);
    }
}
