//! What a datapath knows of its flows beyond CCP's messages, and where a running flow goes on.

use crate::record;
use crate::units::{Micros, Rate};
use portus::DatapathInfo;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A flow older than this was running before: it resumes instead of starting fast.
pub(crate) const RUNNING_AGE: Duration = Duration::from_secs(1);

/// Facts about a flow that CCP's messages do not carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowFact {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Time since the flow began.
    pub age: Duration,
    /// How much of it the agent drove the flow, rather than the datapath's fallback.
    pub driven: Duration,
    /// How often the fallback took over.
    pub fallback_episodes: u32,
    /// Bytes acknowledged over the flow's life.
    pub bytes_acked: u64,
    /// The kernel's smoothed RTT, if it has one.
    pub srtt: Option<Micros>,
    /// The kernel's pacing rate, bytes/s.
    pub pacing_rate: Option<u64>,
    /// Packets delivered over the flow's life, modulo 2^32.
    pub packets_delivered: u32,
    /// Packets lost, modulo 2^32.
    pub packets_lost: u32,
    /// Number of the socket's cgroup, if it is known.
    pub cgroup: Option<u64>,
}

impl FlowFact {
    /// How much of its life the datapath drove the flow by itself, s.
    pub(super) fn alone_s(&self) -> f32 {
        self.age.saturating_sub(self.driven).as_secs_f32()
    }
}

/// A datapath that knows more of its flows. Asked when a flow starts, when it ends, and when policies change.
pub trait FlowFacts: Send + Sync {
    /// Facts of one flow; `None` if it is not, or no longer, known.
    fn lookup(&self, sock_id: u32) -> Option<FlowFact>;

    /// Segment size of a live flow now, bytes; `None` if it is not known. Asked with every report.
    fn mss(&self, sock_id: u32) -> Option<u32> {
        let _ = sock_id;
        None
    }
}

/// A flow's ends: as the datapath knows them, or as CREATE has them, which is IPv4 only.
pub(crate) fn local_and_remote(
    info: &DatapathInfo,
    fact: Option<FlowFact>,
) -> (SocketAddr, SocketAddr) {
    let v4 = |ip: u32, port: u32| {
        let port = u16::try_from(port).unwrap_or(0);
        SocketAddr::from((Ipv4Addr::from(ip.to_le_bytes()), port))
    };
    fact.map_or_else(
        || {
            let local = v4(info.src_ip, info.src_port);
            (local, v4(info.dst_ip, info.dst_port))
        },
        |fact| (fact.local, fact.remote),
    )
}

/// Rate and RTT to go on with, if the flow was running: what it sends per RTT now, or paces, whichever is less.
pub(super) fn resume(fact: Option<FlowFact>, cwnd: u32) -> Option<(Rate, Micros)> {
    let fact = fact.filter(|fact| fact.age > RUNNING_AGE)?;
    let srtt = fact.srtt.filter(|srtt| *srtt > Micros::ZERO)?;
    let by_window = Rate::from_bytes_in(f64::from(cwnd), srtt);
    let paced = fact
        .pacing_rate
        .filter(|rate| *rate > 0)
        .map_or(Rate::MAX, |rate| Rate::from_bytes_per_sec(rate as f64));
    record::resume(record::resumed(Some((by_window.min(paced), srtt))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(age_s: u64, srtt: Option<u64>, pacing_rate: Option<u64>) -> Option<FlowFact> {
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        Some(FlowFact {
            local: end,
            remote: end,
            age: Duration::from_secs(age_s),
            driven: Duration::ZERO,
            fallback_episodes: 0,
            bytes_acked: 0,
            srtt: srtt.map(Micros::new),
            pacing_rate,
            packets_delivered: 0,
            packets_lost: 0,
            cgroup: None,
        })
    }

    #[test]
    fn only_running_flows_with_an_rtt_resume() {
        assert_eq!(resume(None, 100_000), None);
        assert_eq!(
            resume(fact(0, Some(50_000), None), 100_000),
            None,
            "a new flow"
        );
        assert_eq!(resume(fact(9, None, None), 100_000), None, "no RTT");
        let rate =
            |pacing| resume(fact(9, Some(50_000), pacing), 100_000).map(|(rate, _)| rate.to_wire());
        assert_eq!(rate(None), Some(2_000_000));
        assert_eq!(rate(Some(1_500_000)), Some(1_500_000));
        assert_eq!(rate(Some(u64::MAX)), Some(2_000_000), "unlimited pacing");
    }
}
