//! Policy: which connections get which algorithm, parameters and limits.
//!
//! ```text
//!   connection ──▶ policy 1 ──no──▶ policy 2 ──no──▶ ... ──no──▶ the default: the agent's own parameters
//!                    │ yes             │ yes
//!                    ▼                 ▼
//!           kernel │ shadow │ drive │ an experiment: drive or control, by a hash of the addresses
//! ```
//!
//! Policies are looked at in their order, and the first whose conditions all hold decides. A condition that a policy
//! does not have holds for every connection; one with several values holds if one of them fits. Everything here is a
//! function of the connection and the policies: no clock, no chance, no I/O. [`Cgroups`] alone looks at the machine.

mod cgroup;
mod condition;
mod experiment;

pub use cgroup::Cgroups;
pub use condition::{Conditions, Mismatch, Ports, cgroup_path, network};
pub use experiment::{Arm, By, Experiment};

use crate::params::{ParamError, Params, START_RATE};
use crate::units::{Rate, Ratio};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Policies, at most: each has its own series in the metrics.
pub const POLICIES_MAX: usize = 32;
/// Characters of a policy's name, at most.
pub const NAME_MAX: usize = 32;
/// What connections without a policy have instead of its name.
pub const DEFAULT: &str = "default";
/// Parameters that are the agent's as a whole.
pub const NOT_PER_POLICY: [&str; 2] = ["max-reports", "upstream-compat"];

/// A connection, as far as policies look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Our address; `None` in a dry run that does not say it.
    pub local_ip: Option<IpAddr>,
    /// Our port; `None` in a dry run that does not say it.
    pub local_port: Option<u16>,
    /// The other end.
    pub remote: SocketAddr,
    /// The cgroup of the socket, as the path below the root of all cgroups; `None` if it is not known.
    pub cgroup: Option<Arc<str>>,
}

impl Connection {
    /// A connection of which all is known but for the cgroup, perhaps. IPv4 in IPv6's clothes counts as IPv4.
    #[must_use]
    pub fn new(local: SocketAddr, remote: SocketAddr, cgroup: Option<Arc<str>>) -> Self {
        Self {
            local_ip: Some(local.ip().to_canonical()),
            local_port: Some(local.port()),
            remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
            cgroup,
        }
    }
}

/// Limits that the datapath keeps, whatever the agent asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The slowest rate.
    pub min_rate: Option<Rate>,
    /// The fastest rate.
    pub max_rate: Option<Rate>,
    /// The largest share of packets that may be lost before the fallback takes over.
    pub max_loss: Option<Ratio>,
}

impl Limits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What happens to the connections of a policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// They stay with the kernel's Cubic, and send no reports.
    Kernel,
    /// They stay with the kernel's Cubic; the agent says what it would do.
    Shadow,
    /// The agent drives them.
    Drive,
    /// Some are driven, the others stay with the kernel's Cubic and are measured.
    Compare(Experiment),
}

/// One policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name, see [`check_name`].
    pub name: Arc<str>,
    /// Which connections it is for.
    pub conditions: Conditions,
    /// What happens to them.
    pub action: Action,
    /// Parameters that differ from the agent's: flag and text.
    pub overrides: Vec<(&'static str, String)>,
    /// What the datapath enforces while the agent drives.
    pub limits: Limits,
}

impl Policy {
    /// The parameters of its connections.
    ///
    /// # Errors
    /// If they do not fit each other.
    pub fn params(&self, base: &Params) -> Result<Params, ParamError> {
        let mut params = base.clone();
        for (flag, text) in &self.overrides {
            params.set(flag, text)?;
        }
        if !self.overrides.iter().any(|(flag, _)| *flag == START_RATE) {
            params.bound_start_rate();
        }
        params.validate()?;
        Ok(params)
    }

    /// Whether a datapath must be able to keep flows from the agent, or to limit it.
    #[must_use]
    pub fn needs_governance(&self) -> bool {
        self.action != Action::Drive || !self.limits.is_empty()
    }
}

/// Whether a policy may have this name.
///
/// # Errors
/// Say what a name is made of.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
        return Err(format!(
            "`{name}` is no name: write 1 to {NAME_MAX} of a-z, 0-9, - and _"
        ));
    }
    if name == DEFAULT {
        return Err(format!(
            "`{DEFAULT}` stands for connections without a policy: choose another name"
        ));
    }
    Ok(())
}

/// Who drives a flow, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The agent drives it.
    Driven,
    /// The kernel's Cubic drives it, and the agent says what it would do.
    Shadow,
    /// The same, to be compared with those that the agent drives.
    Control,
    /// The kernel's Cubic drives it, unobserved.
    Kernel,
}

impl Role {
    /// The stable short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Driven => "driven",
            Self::Shadow => "shadow",
            Self::Control => "control",
            Self::Kernel => "kernel",
        }
    }

    /// Whether it reports without being driven.
    #[must_use]
    pub fn is_observed(self) -> bool {
        matches!(self, Self::Shadow | Self::Control)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What was found for a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Index of the policy; `None` for the default.
    pub policy: Option<usize>,
    /// Its name.
    pub name: Arc<str>,
    /// Who drives.
    pub role: Role,
    /// In an experiment, the arm and the unit of chance that the connection belongs to.
    pub arm: Option<(Arm, u64)>,
    /// What the datapath enforces.
    pub limits: Limits,
}

/// All policies, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    policies: Vec<Policy>,
    default: Arc<str>,
}

impl Default for Policies {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Policies {
    /// Policies in their order. More than [`POLICIES_MAX`] are cut off; whoever reads them says so before.
    #[must_use]
    pub fn new(mut policies: Vec<Policy>) -> Self {
        policies.truncate(POLICIES_MAX);
        Self {
            policies,
            default: DEFAULT.into(),
        }
    }

    /// The policies.
    #[must_use]
    pub fn all(&self) -> &[Policy] {
        &self.policies
    }

    /// Whether there is only the default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether the cgroup of connections matters.
    #[must_use]
    pub fn ask_cgroups(&self) -> bool {
        self.policies
            .iter()
            .any(|policy| !policy.conditions.cgroups.is_empty())
    }

    /// The policy of a connection.
    #[must_use]
    pub fn decide(&self, connection: &Connection) -> Verdict {
        let mut policies = self.policies.iter().enumerate();
        let found = policies.find(|(_, policy)| policy.conditions.check(connection).is_ok());
        let Some((index, policy)) = found else {
            return Verdict {
                policy: None,
                name: self.default.clone(),
                role: Role::Driven,
                arm: None,
                limits: Limits::default(),
            };
        };
        let (role, arm) = match &policy.action {
            Action::Kernel => (Role::Kernel, None),
            Action::Shadow => (Role::Shadow, None),
            Action::Drive => (Role::Driven, None),
            Action::Compare(experiment) => {
                let (arm, unit) = experiment.assign(connection);
                let role = match arm {
                    Arm::Treatment => Role::Driven,
                    Arm::Control => Role::Control,
                };
                (role, Some((arm, unit)))
            }
        };
        Verdict {
            policy: Some(index),
            name: policy.name.clone(),
            role,
            arm,
            limits: policy.limits,
        }
    }

    /// Why the policies before that of a connection are not for it; of each its index and reason.
    #[must_use]
    pub fn passed_over(&self, connection: &Connection) -> Vec<(usize, Mismatch)> {
        let checked = self.policies.iter().enumerate();
        let mismatches = checked
            .map_while(|(index, policy)| Some((index, policy.conditions.check(connection).err()?)));
        mismatches.collect()
    }

    /// The parameters of each policy's connections, in their order.
    ///
    /// # Errors
    /// Names the policy whose parameters do not fit each other.
    pub fn params(&self, base: &Params) -> Result<Vec<Params>, PolicyError> {
        let params = self.policies.iter().map(|policy| {
            policy.params(base).map_err(|source| PolicyError {
                policy: policy.name.clone(),
                source,
            })
        });
        params.collect()
    }
}

/// Parameters that do not fit together in a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("with the policy `{policy}`: {source}")]
pub struct PolicyError {
    /// The policy's name.
    pub policy: Arc<str>,
    /// What is wrong.
    pub source: ParamError,
}

#[cfg(test)]
mod tests;
