//! Which flow is under which policy, and what the datapath is told of it.

use super::FlowFact;
use crate::policy::{Cgroups, Connection, Limits, Policies, Role, Verdict};
use crate::stats::{Assigned, PolicyStats};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Flows that are left to the kernel and remembered, at most: as many as a datapath can have.
const LEFT_MAX: usize = 65_535;

/// A datapath that keeps flows from the agent, and the agent within limits. Asked when a flow begins, and for every flow
/// when policies change.
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

    /// Other policies are in force. Those that the kernel has are looked at here; the others when they report.
    pub(super) fn replace(&self, policies: Arc<Policies>, stats: &PolicyStats) {
        *self
            .policies
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policies.clone();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|sock_id, connection| {
            let verdict = policies.decide(connection);
            // Taken from the kernel, it is offered to the agent.
            self.tell(*sock_id, &verdict, stats);
            verdict.role == Role::Kernel
        });
    }
}
