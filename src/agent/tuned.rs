//! The parameters as configured, and as flows have them.

use crate::params::Params;
use crate::policy::{Policies, PolicyError};
use crate::units::Micros;
use std::sync::Arc;

pub(super) struct Tuned {
    pub(super) configured: Params,
    /// Of each policy's flows.
    by_policy: Vec<Params>,
    /// The governor's shortest interval.
    pub(super) floor: Micros,
    in_force: Arc<Params>,
    in_force_by_policy: Vec<Arc<Params>>,
}

impl Tuned {
    pub(super) fn new(
        configured: Params,
        policies: &Policies,
        floor: Micros,
    ) -> Result<Self, PolicyError> {
        let by_policy = policies.params(&configured)?;
        Ok(Self::with(configured, by_policy, floor))
    }

    fn with(configured: Params, by_policy: Vec<Params>, floor: Micros) -> Self {
        let floored = |params: &Params| {
            Arc::new(Params {
                mi_min: params.mi_min.max(floor),
                ..params.clone()
            })
        };
        Self {
            in_force: floored(&configured),
            in_force_by_policy: by_policy.iter().map(floored).collect(),
            configured,
            by_policy,
            floor,
        }
    }

    /// With another shortest interval.
    pub(super) fn floored(&self, floor: Micros) -> Self {
        Self::with(self.configured.clone(), self.by_policy.clone(), floor)
    }

    /// The least of all flows' shortest intervals, as configured.
    pub(super) fn mi_min(&self) -> Micros {
        let policies = self.by_policy.iter().map(|params| params.mi_min);
        policies.fold(self.configured.mi_min, Micros::min)
    }

    /// Parameters in force of a policy's flows, or of those without one.
    pub(super) fn of(&self, policy: Option<usize>) -> Arc<Params> {
        let found = policy.and_then(|index| self.in_force_by_policy.get(index));
        found.unwrap_or(&self.in_force).clone()
    }
}
