//! What a policy asks of a connection: its cgroup, our port, the other end's network.

use super::Connection;
use ipnet::{IpNet, Ipv4Net};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

/// Ports, from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = String;

    /// `443`, or `8000-8099`.
    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!(
                "`{text}` is neither a port nor a range: write 1 to 65535, as in 443 or \"8000-8099\""
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last {
            write!(f, "{first}")
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

/// A network from text: `10.0.0.0/8`, `2001:db8::/32`, or one address. A network of IPv4-mapped addresses is the IPv4
/// one.
///
/// # Errors
/// Say what to write.
pub fn network(text: &str) -> Result<IpNet, String> {
    let one = |ip: IpAddr| IpNet::from(ip);
    let read = text.parse::<IpNet>().or_else(|_| text.parse().map(one));
    let given = read.map_err(|_| {
        format!("`{text}` is not a network: write it as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7")
    })?;
    if given.addr() != given.network() {
        return Err(format!(
            "`{text}` has bits behind its prefix: write {}",
            given.trunc()
        ));
    }
    Ok(canonical(given))
}

fn canonical(net: IpNet) -> IpNet {
    let IpNet::V6(v6) = net else { return net };
    let mapped = v6
        .addr()
        .to_ipv4_mapped()
        .zip(v6.prefix_len().checked_sub(96));
    let v4 = mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok());
    v4.map_or(net, IpNet::V4)
}

/// The path of a cgroup from text: below the root of all cgroups, as systemd and `/proc/PID/cgroup` have it.
///
/// # Errors
/// Say what to write.
pub fn cgroup_path(text: &str) -> Result<Arc<str>, String> {
    let form = "write it below /sys/fs/cgroup, as in /system.slice/video.service";
    if text.starts_with("/sys/fs/cgroup") || !text.starts_with('/') {
        return Err(format!("`{text}` is not the path of a cgroup: {form}"));
    }
    let parts: Vec<_> = text.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| [".", ".."].contains(part)) {
        return Err(format!("`{text}` goes up and down: {form}"));
    }
    Ok(format!("/{}", parts.join("/")).into())
}

/// Whether a cgroup is another, or below it.
fn is_within(cgroup: &str, whole: &str) -> bool {
    let rest = cgroup.strip_prefix(whole.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a policy asks for. Without values a condition holds for every connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Cgroups, each with those below it; as [`cgroup_path`] makes them.
    pub cgroups: Vec<Arc<str>>,
    /// Our ports.
    pub local_ports: Vec<Ports>,
    /// Networks of the other end; as [`network`] makes them.
    pub destinations: Vec<IpNet>,
}

/// The first condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The cgroup is none of those.
    Cgroup {
        /// The connection's; `None` if it is not known.
        is: Option<Arc<str>>,
        /// Those asked for.
        wanted: Vec<Arc<str>>,
    },
    /// Our port is none of those.
    LocalPort {
        /// The connection's; `None` if it is not known.
        is: Option<u16>,
        /// Those asked for.
        wanted: Vec<Ports>,
    },
    /// The other end is in none of those networks.
    Destination {
        /// The connection's.
        is: IpAddr,
        /// Those asked for.
        wanted: Vec<IpNet>,
    },
}

fn listed(values: &[impl fmt::Display]) -> String {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    values.join(", ")
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup {
                is: Some(is),
                wanted,
            } => {
                write!(f, "its cgroup {is} is not within {}", listed(wanted))
            }
            Self::Cgroup { is: None, wanted } => {
                write!(
                    f,
                    "its cgroup is not known, and {} is asked for",
                    listed(wanted)
                )
            }
            Self::LocalPort {
                is: Some(is),
                wanted,
            } => {
                write!(f, "its local port {is} is not in {}", listed(wanted))
            }
            Self::LocalPort { is: None, wanted } => {
                write!(
                    f,
                    "its local port is not known, and {} is asked for",
                    listed(wanted)
                )
            }
            Self::Destination { is, wanted } => {
                write!(f, "its destination {is} is not in {}", listed(wanted))
            }
        }
    }
}

impl Conditions {
    /// Whether they hold for every connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they hold for a connection.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self, connection: &Connection) -> Result<(), Mismatch> {
        let cgroup = connection.cgroup.as_deref();
        let within = |wanted: &Arc<str>| cgroup.is_some_and(|cgroup| is_within(cgroup, wanted));
        if !self.cgroups.is_empty() && !self.cgroups.iter().any(within) {
            return Err(Mismatch::Cgroup {
                is: connection.cgroup.clone(),
                wanted: self.cgroups.clone(),
            });
        }
        let port = connection.local_port;
        let listed = |ports: &Ports| port.is_some_and(|port| ports.0.contains(&port));
        if !self.local_ports.is_empty() && !self.local_ports.iter().any(listed) {
            return Err(Mismatch::LocalPort {
                is: port,
                wanted: self.local_ports.clone(),
            });
        }
        let is = connection.remote.ip().to_canonical();
        if !self.destinations.is_empty() && !self.destinations.iter().any(|net| net.contains(&is)) {
            return Err(Mismatch::Destination {
                is,
                wanted: self.destinations.clone(),
            });
        }
        Ok(())
    }
}
