//! What is carried out: a scenario in which every flow has its scheme.

use pathsim::Scenario;
use serde::{Deserialize, Serialize};

use crate::scenario::Scheme;
use crate::tun::EndSettings;

/// One run of an experiment. Equal runs differ by chance only, and with equal seeds only by what the
/// backend cannot repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Short name of the scenario, as in its file.
    pub id: String,
    /// Name of the scheme under test, for tables: `cubic`, `pk3c`.
    pub scheme: String,
    /// The path, the flows, the duration and the seed. The flows' scheme names are those of `schemes`.
    pub scenario: Scenario,
    /// What drives each flow, in the order of the scenario's flows.
    pub schemes: Vec<FlowScheme>,
    /// Whether each flow is under test; others are cross traffic with a scheme of their own.
    pub under_test: Vec<bool>,
    /// How the ends are set up, the same for all schemes.
    pub settings: Settings,
}

/// What drives a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FlowScheme {
    /// A congestion control of TCP. Flows with equal agents share one.
    Tcp(Scheme),
    /// Datagrams at a rate of payload, in bit/s, whatever happens to them.
    Udp(u64),
    /// Programs that send and receive by themselves, each with its arguments. In them `{address}` stands for the
    /// receiver's address and `{port}` for a free port of it. The receiver starts first.
    Command {
        /// Short name, for tables.
        name: String,
        /// The sender.
        sender: Vec<String>,
        /// The receiver.
        receiver: Vec<String>,
    },
}

/// How the ends of a path are set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What makes and measures the traffic.
    pub traffic: Traffic,
    /// Segments that TCP hands to the device at once, at most: `gso_max_segs` of ip-link(8). 1 sends packet by
    /// packet; 0 leaves the kernel's own limit.
    pub gso_max_segs: u32,
    /// `net.ipv4.tcp_sack` of both ends.
    pub sack: bool,
    /// `net.ipv4.tcp_reordering` of the sender, if not the kernel's own (3).
    pub reordering: Option<u32>,
    /// Whether both ends negotiate ECN: `net.ipv4.tcp_ecn`.
    pub ecn: bool,
    /// Rounds of downloads: flows with a size connect and transfer again, all of a round together, when all of the
    /// round before are complete.
    pub rounds: u32,
    /// Both ends in one namespace, over its loopback device: no bottleneck, no emulator. The path of the scenario
    /// then means nothing.
    pub loopback: bool,
}

impl Settings {
    /// The same for a path's ends, without extra RTTs.
    #[must_use]
    pub fn ends(&self) -> EndSettings {
        EndSettings {
            gso_max_segs: self.gso_max_segs,
            sack: self.sack,
            reordering: self.reordering,
            ecn: self.ecn,
            extra_rtts_ns: Vec::new(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            traffic: Traffic::Own,
            gso_max_segs: 1,
            sack: true,
            reordering: None,
            ecn: false,
            rounds: 1,
            loopback: false,
        }
    }
}

/// What makes and measures the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// The lab's own senders and receivers: any number of flows with their own starts, sizes and rates, timed at
    /// the receiver.
    #[default]
    Own,
    /// `iperf3`, for documents that were measured with it: endless flows that start together, 128 at most.
    Iperf3,
}
