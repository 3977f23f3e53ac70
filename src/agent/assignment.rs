//! Which flow is under which policy, and what the datapath is told of it.

use super::FlowFact;
use crate::policy::{Cgroups, Connection, Limits, Policies, Role, Verdict};
use crate::stats::{Assigned, PolicyStats};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Flows that are left to the kernel and remembered, at most: as many as a datapath can have.
const LEFT_MAX: usize = 65_535;

/// A datapath that keeps flows from the agent, and the agent within limits. Asked when a flow begins, and for every
/// flow when policies change.
pub trait Enforcer: Send + Sync {
    /// How a flow may be driven from its next ACK on; `false` if it is not known any more.
    fn enforce(&self, sock_id: u32, role: Role, limits: &Limits) -> bool;
}

/// The policies in force and what follows from them.
pub(super) struct Assignments {
    policies: RwLock<Arc<Policies>>,
    cgroups: Mutex<Cgroups>,
    enforcer: Option<Arc<dyn Enforcer>>,
    /// Flows that are left to the kernel send no reports, so a change of policies must look for them.
    left: Mutex<HashMap<u32, Connection>>,
}

impl Assignments {
    pub(super) fn new(enforcer: Option<Arc<dyn Enforcer>>) -> Self {
        Self {
            policies: RwLock::default(),
            cgroups: Mutex::default(),
            enforcer,
            left: Mutex::default(),
        }
    }

    pub(super) fn policies(&self) -> Arc<Policies> {
        let policies = self.policies.read();
        policies.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The flow as policies look at it.
    pub(super) fn connection(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        fact: Option<FlowFact>,
    ) -> Connection {
        let number = fact.and_then(|fact| fact.cgroup);
        let asked = self.policies().ask_cgroups();
        let cgroup = number
            .filter(|_| asked)
            .and_then(|number| self.cgroup(number));
        Connection::new(local, remote, cgroup)
    }

    fn cgroup(&self, number: u64) -> Option<Arc<str>> {
        let mut cgroups = self.cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        cgroups.path(number)
    }

    /// The cgroup of a connection, if policies have begun to ask for it.
    pub(super) fn complete(&self, connection: &mut Connection, fact: Option<FlowFact>) {
        if connection.cgroup.is_none() && self.policies().ask_cgroups() {
            let number = fact.and_then(|fact| fact.cgroup);
            connection.cgroup = number.and_then(|number| self.cgroup(number));
        }
    }

    /// Puts a flow under its policy.
    pub(super) fn assign(
        &self,
        sock_id: u32,
        connection: &Connection,
        stats: &PolicyStats,
    ) -> Verdict {
        // Before the decision, so that no change of policies falls between it and the note below.
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = self.policies().decide(connection);
        self.tell(sock_id, &verdict, stats);
        if verdict.role != Role::Kernel {
            left.remove(&sock_id);
        } else if left.len() < LEFT_MAX {
            left.insert(sock_id, connection.clone());
        }
        verdict
    }

    fn tell(&self, sock_id: u32, verdict: &Verdict, stats: &PolicyStats) {
        if let Some(enforcer) = &self.enforcer {
            // A flow that has ended meanwhile needs nothing.
            enforcer.enforce(sock_id, verdict.role, &verdict.limits);
        }
        stats.assign(
            sock_id,
            Assigned {
                policy: verdict.name.clone(),
                role: verdict.role,
            },
        );
    }

    /// A flow is over, or will be offered again.
    pub(super) fn forget(&self, sock_id: u32) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.remove(&sock_id);
    }

    /// Other policies are in force. The flows that the kernel has are looked at here, with the facts that these
    /// policies may be the first to ask for; the others when they report.
    pub(super) fn replace(
        &self,
        policies: Arc<Policies>,
        stats: &PolicyStats,
        facts: impl Fn(u32) -> Option<FlowFact>,
    ) {
        *self
            .policies
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policies.clone();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|sock_id, connection| {
            self.complete(connection, facts(*sock_id));
            let verdict = policies.decide(connection);
            // Taken from the kernel, it is offered to the agent.
            self.tell(*sock_id, &verdict, stats);
            verdict.role == Role::Kernel
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Action, Conditions, Policy};
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    fn policy(action: Action, conditions: Conditions) -> Policies {
        Policies::new(vec![Policy {
            name: "some".into(),
            conditions,
            action,
            overrides: Vec::new(),
            limits: Limits::default(),
        }])
    }

    #[test]
    fn policies_that_ask_for_cgroups_find_those_of_flows_left_to_the_kernel() {
        let root = std::env::temp_dir().join(format!("pk3c-left-{}", std::process::id()));
        std::fs::create_dir_all(root.join("video")).unwrap();
        let video = std::fs::metadata(root.join("video")).unwrap().ino();
        let assignments = Assignments {
            cgroups: Mutex::new(Cgroups::new(root.clone())),
            ..Assignments::new(None)
        };
        let ends = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let fact = Some(FlowFact {
            local: ends[0],
            remote: ends[1],
            age: Duration::ZERO,
            driven: Duration::ZERO,
            fallback_episodes: 0,
            bytes_acked: 0,
            srtt: None,
            pacing_rate: None,
            packets_delivered: 0,
            packets_lost: 0,
            cgroup: Some(video),
        });
        let stats = PolicyStats::default();
        let all = policy(Action::Kernel, Conditions::default());
        assignments.replace(Arc::new(all), &stats, |_| fact);
        let connection = assignments.connection((ends[0], ends[1]), fact);
        assert_eq!(connection.cgroup, None, "nobody asks");
        assignments.assign(5, &connection, &stats);
        let of_video = Conditions {
            cgroups: vec!["/video".into()],
            ..Conditions::default()
        };
        let watched = policy(Action::Shadow, of_video);
        assignments.replace(Arc::new(watched), &stats, |_| fact);
        assert_eq!(stats.assigned()[&5].role, Role::Shadow);
        std::fs::remove_dir_all(root).unwrap();
    }
}
