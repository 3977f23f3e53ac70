//! What carries the packets of a run between its two ends.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::netem::{Netem, NetemError, Steps};
use super::result::LinkResult;
use super::run::{Run, Settings};
use crate::emulator::{Emulator, Recording};
use crate::netns::{Netns, NetnsError};
use crate::path::{CLIENT, Path, PathError, PathReport, SERVER};
use crate::tun::EndSettings;

/// Which kind of line a run gets, if its settings do not say `loopback`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineKind {
    /// The lab's own emulator, between TUN devices: every path, per-packet delays, all in user space.
    #[default]
    Emulated,
    /// The kernel's netem, and fq at the sender, where they can make the path; else the emulator.
    Netem,
}

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The emulated path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The kernel's.
    #[error(transparent)]
    Netem(#[from] NetemError),
    /// The loopback device.
    #[error(transparent)]
    Netns(#[from] NetnsError),
}

/// A line in use. All of it ends with the value.
#[derive(Debug)]
pub(super) enum Line {
    Emulated(Box<Path>),
    Netem(Netem),
    Loopback(Netns),
}

/// What a line saw.
#[derive(Debug)]
pub(super) enum Closed {
    Emulated(Box<PathReport>),
    Netem(LinkResult),
    Loopback,
}

/// What lets a line's time begin.
pub(super) enum Start<'a> {
    Emulator(&'a mut Emulator),
    Steps(&'a mut Steps),
    Clock,
}

impl Start<'_> {
    pub(super) fn begin(&mut self) -> Instant {
        match self {
            // A failed emulator says so when the path is closed; until then, nothing arrives.
            Self::Emulator(emulator) => emulator.begin().unwrap_or_else(|_| Instant::now()),
            Self::Steps(steps) => steps.begin(),
            Self::Clock => Instant::now(),
        }
    }
}

impl Line {
    pub(super) fn open(
        run: &Run,
        kind: LineKind,
        packet_log: Option<PathBuf>,
    ) -> Result<Self, LineError> {
        if run.settings.loopback {
            return Ok(Self::Loopback(loopback(&run.settings)?));
        }
        let ends = ends(run);
        if kind == LineKind::Netem && Netem::can_make(run) {
            return Ok(Self::Netem(Netem::open(&run.scenario.path, &ends)?));
        }
        let recording = Recording {
            packet_log,
            ..Recording::default()
        };
        let (path, seed) = (&run.scenario.path, run.scenario.seed);
        let path = Path::open_recording(path, &ends, seed, &recording)?;
        Ok(Self::Emulated(Box::new(path)))
    }

    /// Its name in results.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Emulated(_) => "emulator",
            Self::Netem(_) => "netem",
            Self::Loopback(_) => "loopback",
        }
    }

    pub(super) fn client(&self) -> &Netns {
        match self {
            Self::Emulated(path) => path.client(),
            Self::Netem(netem) => netem.client(),
            Self::Loopback(netns) => netns,
        }
    }

    pub(super) fn server(&self) -> &Netns {
        match self {
            Self::Emulated(path) => path.server(),
            Self::Netem(netem) => netem.server(),
            Self::Loopback(netns) => netns,
        }
    }

    /// Both ends, and what lets the run begin while they are in use.
    pub(super) fn parts(&mut self) -> (&Netns, &Netns, Start<'_>) {
        match self {
            Self::Emulated(path) => {
                let (client, server, emulator) = path.split();
                (client, server, Start::Emulator(emulator))
            }
            Self::Netem(netem) => {
                let (client, server, steps) = netem.split();
                (client, server, Start::Steps(steps))
            }
            Self::Loopback(netns) => (netns, netns, Start::Clock),
        }
    }

    pub(super) fn server_address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback(_) => Ipv4Addr::LOCALHOST,
            _ => SERVER,
        }
    }

    /// The address of clients with this extra RTT, ns.
    pub(super) fn client_address(&self, extra_rtt_ns: u64) -> Option<Ipv4Addr> {
        match self {
            Self::Emulated(path) => path.client_address(extra_rtt_ns),
            Self::Netem(_) => (extra_rtt_ns == 0).then_some(CLIENT),
            Self::Loopback(_) => (extra_rtt_ns == 0).then_some(Ipv4Addr::LOCALHOST),
        }
    }

    /// Ends the line.
    pub(super) fn close(self) -> Result<Closed, LineError> {
        match self {
            Self::Emulated(path) => Ok(Closed::Emulated(Box::new(path.close()?))),
            Self::Netem(netem) => Ok(Closed::Netem(netem.close()?)),
            Self::Loopback(_) => Ok(Closed::Loopback),
        }
    }
}

fn ends(run: &Run) -> EndSettings {
    let flows = run.scenario.flows.iter();
    EndSettings {
        extra_rtts_ns: flows.map(|flow| flow.extra_rtt_ns).collect(),
        ..run.settings.ends()
    }
}

/// A namespace whose loopback device is all of the path.
fn loopback(settings: &Settings) -> Result<Netns, NetnsError> {
    let netns = Netns::new()?;
    netns.configure("ip", &["link", "set", "lo", "up"])?;
    netns.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    netns.sysctl("net/ipv4/tcp_congestion_control", "reno")?;
    netns.sysctl("net/ipv4/tcp_sack", if settings.sack { "1" } else { "0" })?;
    Ok(netns)
}
