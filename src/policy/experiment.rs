//! Comparing by hash: which connections of a policy the agent drives, and which stay with the kernel's Cubic.
//!
//! A connection's arm is a function of its addresses and of a key: the same after a restart of the agent, on every
//! server of a fleet that has the same key, and independent between experiments with different keys. The hash is
//! SipHash-2-4 under a key made from the text, so that who chooses his own addresses cannot choose his arm without
//! knowing it.

use super::Connection;
use crate::units::Ratio;
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};
use std::hash::Hasher;
use std::net::IpAddr;

/// What is assigned to an arm as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Each connection: its four addresses and ports.
    #[default]
    Connection,
    /// Each remote host: its address.
    Host,
}

impl By {
    /// The stable short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Host => "host",
        }
    }
}

/// The two sides of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arm {
    /// Driven by the agent.
    Treatment,
    /// The kernel's Cubic.
    Control,
}

impl Arm {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Treatment, Self::Control];

    /// The stable short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Treatment => "treatment",
            Self::Control => "control",
        }
    }
}

/// An experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Part of the connections (or hosts) in the treatment, 0 to 1.
    pub share: Ratio,
    /// What is assigned.
    pub by: By,
    /// Connections of different experiments are assigned independently if their keys differ.
    pub key: String,
}

impl Experiment {
    /// The arm of a connection, and the number of the unit that is assigned with it. Where one of our addresses is not
    /// known, it counts as zero.
    #[must_use]
    pub fn assign(&self, connection: &Connection) -> (Arm, u64) {
        let mut hasher = self.hasher();
        write_ip(&mut hasher, connection.remote.ip());
        if self.by == By::Connection {
            hasher.write_u16(connection.remote.port().to_le());
            hasher.write_u16(connection.local_port.unwrap_or(0).to_le());
            let ip = connection.local_ip;
            write_ip(&mut hasher, ip.unwrap_or(IpAddr::from([0; 4])));
        }
        let unit = hasher.finish();
        // The upper 53 bits are a number from 0 to 1 that a double holds exactly.
        let place = (unit >> 11) as f64 / (1u64 << 53) as f64;
        let arm = if place < self.share.get() {
            Arm::Treatment
        } else {
            Arm::Control
        };
        (arm, unit)
    }

    fn hasher(&self) -> SipHasher24 {
        let mut key = SipHasher128::new();
        key.write(self.key.as_bytes());
        let key = key.finish128();
        SipHasher24::new_with_keys(key.h1, key.h2)
    }
}

/// All addresses as IPv6, so that no IPv4 address has two forms.
fn write_ip(hasher: &mut SipHasher24, ip: IpAddr) {
    let v6 = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    hasher.write(&v6.octets());
}
