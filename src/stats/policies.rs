//! What is known of flows by policy: who has which, what those that ended have carried, and how the two arms of an
//! experiment fared.
//!
//! All of it is bounded. Of an experiment's flows a uniform sample of [`OUTCOMES_MAX`] is kept for each arm (Vitter's
//! algorithm R), so that an experiment may run for weeks and its sample still stands for the whole of it. A policy that
//! changes begins its experiment anew; outcomes before and after are not of the same kind.

use super::flow::Carried;
use crate::policy::{Action, Arm, DEFAULT, Experiment, Policies, Policy, Role};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Outcomes that are kept of an arm.
pub const OUTCOMES_MAX: usize = 4096;
/// Flows whose end nobody has looked at yet, and flows with an assignment, at most.
const FLOWS_MAX: usize = 65_535;
/// A flow that the agent met later in its life is not a flow of the experiment: most of it happened before.
const MET_LATE: Duration = Duration::from_secs(1);

/// What a flow is under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The policy's name.
    pub policy: Arc<str>,
    /// Who drives the flow.
    pub role: Role,
}

impl Assigned {
    /// The value of the label `policy`: an experiment's control arm has its own.
    #[must_use]
    pub fn label(&self) -> Arc<str> {
        match self.role {
            Role::Control => control_label(&self.policy),
            Role::Driven | Role::Shadow | Role::Kernel => self.policy.clone(),
        }
    }
}

fn control_label(policy: &str) -> Arc<str> {
    format!("{policy}:control").into()
}

/// The last words of a flow.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    /// Its number.
    pub sock_id: u32,
    /// What it was under.
    pub label: Arc<str>,
    /// What it has carried over its life.
    pub carried: Carried,
}

/// How a flow fared over its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The unit that was assigned to the arm: the connection, or its host.
    pub unit: u64,
    /// How long it lived.
    pub duration: Duration,
    /// Payload acknowledged, bytes.
    pub bytes: u64,
    /// Mean RTT over the samples, s; `None` without samples.
    pub rtt_s: Option<f64>,
    /// Smallest RTT, s.
    pub rtt_min_s: Option<f64>,
    /// Lost part of the packets, 0 to 1; `None` without packets.
    pub loss: Option<f64>,
    /// How old it was when the agent met it.
    pub met_at: Duration,
}

impl Outcome {
    /// Payload per second of its life, bytes/s.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.bytes as f64 / self.duration.as_secs_f64().max(1e-6)
    }
}

/// One arm's flows.
#[derive(Clone, Debug)]
pub struct Collected {
    /// Flows that ended, without those left out.
    pub flows: u64,
    /// Flows left out because they began before the agent met them.
    pub met_late: u64,
    /// Flows left out because nothing of theirs was acknowledged.
    pub empty: u64,
    /// A uniform sample of the flows.
    pub outcomes: Vec<Outcome>,
    random: Xoshiro256PlusPlus,
}

impl Collected {
    fn new(seed: u64) -> Self {
        Self {
            flows: 0,
            met_late: 0,
            empty: 0,
            outcomes: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    fn add(&mut self, outcome: Outcome) {
        if outcome.met_at > MET_LATE {
            self.met_late += 1;
            return;
        }
        if outcome.bytes == 0 {
            self.empty += 1;
            return;
        }
        self.flows += 1;
        if self.outcomes.len() < OUTCOMES_MAX {
            self.outcomes.push(outcome);
            return;
        }
        let place = self.random.random_range(0..self.flows);
        if let Some(kept) = usize::try_from(place)
            .ok()
            .and_then(|place| self.outcomes.get_mut(place))
        {
            *kept = outcome;
        }
    }
}

/// An experiment so far.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The policy's name.
    pub policy: Arc<str>,
    /// How flows are assigned.
    pub experiment: Experiment,
    /// Both arms, in the order of [`Arm::ALL`].
    pub arms: [Collected; 2],
}

#[derive(Default)]
struct State {
    /// The policies in force.
    policies: Vec<Policy>,
    labels: Vec<Arc<str>>,
    trials: BTreeMap<Arc<str>, Trial>,
}

/// Statistics by policy.
#[derive(Default)]
pub struct PolicyStats {
    state: Mutex<State>,
    ended: Mutex<Vec<Ended>>,
    assigned: Mutex<HashMap<u32, Assigned>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PolicyStats {
    /// These policies are in force from now on; experiments of policies that are as they were go on. `seed` is for the
    /// samples.
    pub fn define(&self, policies: &Policies, seed: u64) {
        let mut state = lock(&self.state);
        let same = |policy: &Policy| state.policies.contains(policy);
        let mut trials = BTreeMap::new();
        let mut labels = vec![Arc::from(DEFAULT)];
        for policy in policies.all() {
            labels.push(policy.name.clone());
            let Action::Compare(experiment) = &policy.action else {
                continue;
            };
            labels.push(control_label(&policy.name));
            let kept = state.trials.get(&policy.name).filter(|_| same(policy));
            let trial = kept.cloned().unwrap_or_else(|| Trial {
                policy: policy.name.clone(),
                experiment: experiment.clone(),
                arms: [Collected::new(seed), Collected::new(seed.wrapping_add(1))],
            });
            trials.insert(policy.name.clone(), trial);
        }
        *state = State {
            policies: policies.all().to_vec(),
            labels,
            trials,
        };
    }

    /// All values of the label `policy`.
    #[must_use]
    pub fn labels(&self) -> Vec<Arc<str>> {
        let labels = lock(&self.state).labels.clone();
        if labels.is_empty() {
            return vec![DEFAULT.into()];
        }
        labels
    }

    /// All experiments so far.
    #[must_use]
    pub fn trials(&self) -> Vec<Trial> {
        lock(&self.state).trials.values().cloned().collect()
    }

    /// A flow is under a policy from now on.
    pub(crate) fn assign(&self, sock_id: u32, assigned: Assigned) {
        let mut flows = lock(&self.assigned);
        if flows.len() < FLOWS_MAX || flows.contains_key(&sock_id) {
            flows.insert(sock_id, assigned);
        }
    }

    /// What flows are under, by number.
    #[must_use]
    pub fn assigned(&self) -> HashMap<u32, Assigned> {
        lock(&self.assigned).clone()
    }

    /// A flow is over.
    pub(crate) fn end(&self, sock_id: u32, carried: Carried, trial: Option<(Arm, Outcome)>) {
        let mut flows = lock(&self.assigned);
        let Some(assigned) = flows.remove(&sock_id) else {
            return;
        };
        let mut ended = lock(&self.ended);
        if ended.len() < FLOWS_MAX {
            ended.push(Ended {
                sock_id,
                label: assigned.label(),
                carried,
            });
        }
        drop((ended, flows));
        if let Some((arm, outcome)) = trial
            && let Some(trial) = lock(&self.state).trials.get_mut(&assigned.policy)
        {
            trial.arms[arm as usize].add(outcome);
        }
    }

    /// The flows that ended since this was asked last, and what all others are under: no flow is neither.
    pub(super) fn take_ended(&self) -> (Vec<Ended>, HashMap<u32, Assigned>) {
        let flows = lock(&self.assigned);
        (std::mem::take(&mut *lock(&self.ended)), flows.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{By, Conditions, Limits};
    use crate::units::Ratio;

    fn outcome(bytes: u64) -> Outcome {
        Outcome {
            unit: bytes,
            duration: Duration::from_secs(2),
            bytes,
            rtt_s: None,
            rtt_min_s: None,
            loss: None,
            met_at: Duration::ZERO,
        }
    }

    fn policies(share: f64) -> Policies {
        Policies::new(vec![Policy {
            name: "web".into(),
            conditions: Conditions::default(),
            action: Action::Compare(Experiment {
                share: Ratio::new(share),
                by: By::Connection,
                key: "web".to_owned(),
            }),
            overrides: Vec::new(),
            limits: Limits::default(),
        }])
    }

    fn assigned() -> Assigned {
        Assigned {
            policy: "web".into(),
            role: Role::Control,
        }
    }

    #[test]
    fn the_sample_is_bounded_and_uniform() {
        let mut collected = Collected::new(7);
        let flows = 20 * OUTCOMES_MAX as u64;
        for bytes in 1..=flows {
            collected.add(outcome(bytes));
        }
        assert_eq!(
            (collected.flows, collected.outcomes.len()),
            (flows, OUTCOMES_MAX)
        );
        let mean = collected
            .outcomes
            .iter()
            .map(|one| one.bytes as f64)
            .sum::<f64>()
            / OUTCOMES_MAX as f64;
        // The mean of 1..=n is n/2; four standard errors of a sample of 4096 are 1.8 % of n.
        assert!((mean / flows as f64 - 0.5).abs() < 0.018, "{mean}");
    }

    #[test]
    fn what_says_nothing_is_left_out_and_counted() {
        let mut collected = Collected::new(7);
        collected.add(outcome(0));
        collected.add(Outcome {
            met_at: Duration::from_secs(2),
            ..outcome(5)
        });
        collected.add(outcome(5));
        assert_eq!(
            (collected.flows, collected.empty, collected.met_late),
            (1, 1, 1)
        );
        assert_eq!(collected.outcomes[0].goodput(), 2.5);
    }

    #[test]
    fn a_changed_policy_begins_its_experiment_anew_and_others_go_on() {
        let stats = PolicyStats::default();
        stats.define(&policies(0.5), 1);
        let labels: Vec<_> = stats.labels().iter().map(ToString::to_string).collect();
        assert_eq!(labels, ["default", "web", "web:control"]);
        stats.assign(3, assigned());
        assert_eq!(stats.assigned()[&3], assigned());
        stats.end(3, Carried::default(), Some((Arm::Control, outcome(9))));
        stats.end(3, Carried::default(), Some((Arm::Control, outcome(9))));
        let control = |stats: &PolicyStats| stats.trials()[0].arms[Arm::Control as usize].flows;
        assert_eq!(control(&stats), 1, "a flow ends once");
        assert_eq!(stats.take_ended().0.len(), 1);
        let (ended, assigned) = stats.take_ended();
        assert!(ended.is_empty() && assigned.is_empty());
        stats.define(&policies(0.5), 1);
        assert_eq!(control(&stats), 1);
        stats.define(&policies(0.4), 1);
        assert_eq!(control(&stats), 0);
    }
}
