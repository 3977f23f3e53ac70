//! What is measured: a path, the congestion control that sends over it, and how many flows share it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One bottleneck between a sender and a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Short name, used in tables and JSON.
    pub name: String,
    /// Bottleneck rate in bits per second, counted on IP packets.
    pub rate_bps: u64,
    /// Two-way propagation delay, without queueing.
    pub rtt: Duration,
    /// Drop-tail queue of the bottleneck, in packets, not counting the one in transmission.
    pub queue_packets: u32,
    /// Probability in `0.0..=1.0` that the path loses a data packet at random.
    pub loss: f64,
}

impl PathSpec {
    /// Full-size packets in one bandwidth-delay product, at least 1.
    pub fn bdp_packets(&self) -> u32 {
        let bits = self.rate_bps as f64 * self.rtt.as_secs_f64();
        (bits / (8.0 * 1500.0)).round().max(1.0) as u32
    }

    /// As the emulator takes it.
    pub fn to_path(&self) -> pathsim::PathSpec {
        let rtt_ns = u64::try_from(self.rtt.as_nanos()).unwrap_or(u64::MAX);
        pathsim::PathSpec {
            queue: pathsim::QueueLimit::Packets(self.queue_packets),
            loss: match self.loss {
                0.0 => pathsim::Loss::None,
                loss => pathsim::Loss::Random(loss),
            },
            ..pathsim::PathSpec::clean(self.rate_bps, rtt_ns)
        }
    }

    /// What TCP can deliver over the path at most, in Mbit/s: full segments carry 1448 bytes of
    /// 1500 (IPv4, timestamps), and random loss takes its part.
    pub fn goodput_ceiling_mbps(&self) -> f64 {
        self.rate_bps as f64 / 1e6 * (1448.0 / 1500.0) * (1.0 - self.loss)
    }

    /// The three paths of the first comparison: 50 Mbit/s and 40 ms with a queue of one BDP,
    /// clean and with 1 % random loss, and the same with a queue of 10 packets.
    pub fn demo() -> Vec<Self> {
        let clean = Self {
            name: "clean".into(),
            rate_bps: 50_000_000,
            rtt: Duration::from_millis(40),
            queue_packets: 0,
            loss: 0.0,
        };
        let bdp = clean.bdp_packets();
        let clean = Self {
            queue_packets: bdp,
            ..clean
        };
        let loss1 = Self {
            name: "loss1".into(),
            loss: 0.01,
            ..clean.clone()
        };
        let shallow = Self {
            name: "shallow".into(),
            queue_packets: 10,
            ..clean.clone()
        };
        vec![clean, loss1, shallow]
    }
}

/// The congestion control under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scheme {
    /// An algorithm of the kernel, by the name in `tcp_available_congestion_control`.
    Kernel(String),
    /// An agent that the run starts and stops.
    Agent {
        /// The congestion control's name that the agent registers.
        name: String,
        /// The command that starts the agent in the foreground; it ends on SIGTERM and
        /// writes its log as JSON lines to standard error.
        command: Vec<String>,
    },
}

impl Scheme {
    /// The name that sockets give to `TCP_CONGESTION`.
    pub fn name(&self) -> &str {
        match self {
            Self::Kernel(name) | Self::Agent { name, .. } => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_s_paths_have_the_stated_figures() {
        let demo = PathSpec::demo();
        let figures: Vec<_> = demo
            .iter()
            .map(|path| (path.name.as_str(), path.queue_packets, path.loss))
            .collect();
        assert_eq!(
            figures,
            [
                ("clean", 167, 0.0),
                ("loss1", 167, 0.01),
                ("shallow", 10, 0.0)
            ]
        );
        assert!((demo[0].goodput_ceiling_mbps() - 48.267).abs() < 0.001);
        assert!((demo[1].goodput_ceiling_mbps() - 47.784).abs() < 0.001);
    }
}
