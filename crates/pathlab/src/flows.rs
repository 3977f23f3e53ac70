//! What an emulator sees of each flow: its packets, their one-way delays, and what became of them.
//!
//! A flow is an address and a port of the client, with the transport protocol. One-way delays are those between
//! the emulator's reading a packet and its writing it at the far end, on one clock, so that no clocks have to be
//! aligned; they are kept in histograms with classes of 0.8 % width.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use pathsim::Distribution;

use crate::direction::Gone;

/// Flows that are told apart; packets of later ones are counted as those of one unknown flow.
pub const MAX_FLOWS: usize = 16_384;

/// Which flow a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The client's address.
    pub address: Ipv4Addr,
    /// The client's port; 0 for packets without ports.
    pub port: u16,
    /// The transport protocol (IANA): 6 for TCP, 17 for UDP.
    pub protocol: u8,
}

impl FlowKey {
    /// Packets that belong to no known flow.
    pub const UNKNOWN: Self = Self {
        address: Ipv4Addr::UNSPECIFIED,
        port: 0,
        protocol: 0,
    };

    /// The flow of an IP packet from the client, or to it.
    pub fn of(packet: &[u8], from_client: bool) -> Self {
        Self::parse(packet, from_client).unwrap_or(Self::UNKNOWN)
    }

    fn parse(packet: &[u8], from_client: bool) -> Option<Self> {
        let (version, header) = (packet.first()? >> 4, usize::from(packet[0] & 15) * 4);
        if version != 4 || packet.len() < 20 {
            return None;
        }
        // RFC 791 §3.1: source and destination address; RFC 9293 §3.1, RFC 768: source and destination port.
        let (address_at, port_at) = if from_client { (12, 0) } else { (16, 2) };
        let address: [u8; 4] = packet.get(address_at..address_at + 4)?.try_into().ok()?;
        let protocol = packet[9];
        let first_fragment = packet[6] & 0x1f == 0 && packet[7] == 0;
        let port = match protocol {
            6 | 17 if first_fragment => {
                let at = header + port_at;
                u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?)
            }
            _ => 0,
        };
        Some(Self {
            address: address.into(),
            port,
            protocol,
        })
    }
}

impl std::fmt::Display for FlowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.address, self.port)
    }
}

/// A flow's packets on the way there.
/// `arrived = queue_drops + losses + delivered + held` at all times.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// Packets that arrived.
    pub arrived: u64,
    /// Their bytes.
    pub arrived_bytes: u64,
    /// Packets dropped by the queue.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub losses: u64,
    /// Packets delivered at the far end.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets still on their way at the end. Pantheon counts them as lost.
    pub held: u64,
    /// One-way delays of the delivered ones, µs.
    pub owd: Distribution,
    /// 95th percentile of the one-way delays, ms, per bin of the report's series, by time of delivery.
    pub owd_p95_ms: Vec<Option<f64>>,
    /// The bin that is being filled.
    bin: Distribution,
}

impl FlowReport {
    fn close_bin(&mut self) {
        self.owd_p95_ms.push(self.bin.quantile_ms(0.95));
        self.bin.clear();
    }
}

/// All flows of a path.
#[derive(Debug)]
pub(crate) struct Flows {
    numbers: HashMap<FlowKey, u32>,
    /// Number 0 is the unknown flow.
    flows: Vec<(FlowKey, FlowReport)>,
    last: (FlowKey, u32),
    bin_ns: u64,
}

impl Flows {
    pub(crate) fn new(bin: Duration) -> Self {
        let unknown = (FlowKey::UNKNOWN, FlowReport::default());
        Self {
            numbers: HashMap::from([(FlowKey::UNKNOWN, 0)]),
            flows: vec![unknown],
            last: (FlowKey::UNKNOWN, 0),
            bin_ns: u64::try_from(bin.as_nanos()).unwrap_or(u64::MAX).max(1),
        }
    }

    /// Forgets what was counted, but not the flows.
    pub(crate) fn restart(&mut self) {
        for (_, report) in &mut self.flows {
            *report = FlowReport::default();
        }
    }

    /// The number of a packet's flow.
    pub(crate) fn number(&mut self, key: FlowKey) -> u32 {
        if self.last.0 == key {
            return self.last.1;
        }
        let room = self.flows.len() < MAX_FLOWS;
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None if room => {
                let number = self.flows.len() as u32;
                self.numbers.insert(key, number);
                self.flows.push((key, FlowReport::default()));
                number
            }
            None => 0,
        };
        self.last = (key, number);
        number
    }

    pub(crate) fn key(&self, number: u32) -> FlowKey {
        self.flows[number as usize].0
    }

    pub(crate) fn arrived(&mut self, number: u32, bytes: u32) {
        let flow = &mut self.flows[number as usize].1;
        flow.arrived += 1;
        flow.arrived_bytes += u64::from(bytes);
        flow.held += 1;
    }

    pub(crate) fn gone(&mut self, number: u32, why: Gone) {
        let flow = &mut self.flows[number as usize].1;
        flow.held = flow.held.saturating_sub(1);
        match why {
            Gone::Dropped | Gone::Overflow => flow.queue_drops += 1,
            Gone::Lost => flow.losses += 1,
        }
    }

    pub(crate) fn delivered(&mut self, number: u32, bytes: u32, arrived_ns: u64, now_ns: u64) {
        let flow = &mut self.flows[number as usize].1;
        // What arrived before the path's beginning does not count.
        let Some(held) = flow.held.checked_sub(1) else {
            return;
        };
        flow.held = held;
        flow.delivered += 1;
        flow.delivered_bytes += u64::from(bytes);
        let owd_us = now_ns.saturating_sub(arrived_ns) / 1000;
        flow.owd.add(owd_us);
        let bin = (now_ns / self.bin_ns) as usize;
        while flow.owd_p95_ms.len() < bin {
            flow.close_bin();
        }
        flow.bin.add(owd_us);
    }

    /// Every flow that sent something.
    pub(crate) fn finish(self) -> Vec<(FlowKey, FlowReport)> {
        let mut flows = self.flows;
        flows.retain(|(_, report)| report.arrived > 0);
        for (_, report) in &mut flows {
            if report.delivered > 0 {
                report.close_bin();
            }
        }
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, options: usize) -> Vec<u8> {
        let header = 20 + options;
        let mut packet = vec![0; header + 8];
        packet[0] = 0x40 | (header / 4) as u8;
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&[10, 77, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 77, 0, 2]);
        packet[header..header + 4].copy_from_slice(&[0x9c, 0x40, 0x14, 0x51]);
        packet
    }

    #[test]
    fn a_packet_and_its_answer_are_of_one_flow() {
        for options in [0, 12] {
            let there = FlowKey::of(&packet(6, options), true);
            assert_eq!(there.to_string(), "10.77.0.1:40000");
            let back = FlowKey::of(&packet(6, options), false);
            assert_eq!(back.to_string(), "10.77.0.2:5201");
        }
        assert_eq!(FlowKey::of(&packet(1, 0), true).port, 0);
        for broken in [&[][..], &[0x60; 60], &[0x45; 19], &[0x4f; 24]] {
            let key = FlowKey::of(broken, true);
            assert!(key == FlowKey::UNKNOWN || key.port == 0, "{key:?}");
        }
    }

    #[test]
    fn delays_are_counted_by_flow_and_by_bin() {
        let mut flows = Flows::new(Duration::from_millis(100));
        let key = FlowKey::of(&packet(17, 0), true);
        let number = flows.number(key);
        assert_eq!((flows.number(key), flows.key(number)), (number, key));
        let ms = 1_000_000;
        for (sent, took) in [(0, 20), (10, 20), (250, 40)] {
            flows.arrived(number, 1500);
            flows.delivered(number, 1500, sent * ms, (sent + took) * ms);
        }
        flows.arrived(number, 1500);
        flows.gone(number, Gone::Lost);
        flows.arrived(number, 1500);
        let [(found, report)] = flows.finish().try_into().unwrap();
        assert_eq!((found, report.arrived, report.delivered), (key, 5, 3));
        assert_eq!((report.losses, report.held), (1, 1));
        let bins: Vec<_> = report
            .owd_p95_ms
            .iter()
            .map(|ms| ms.map(f64::round))
            .collect();
        assert_eq!(bins, [Some(20.0), None, Some(40.0)]);
    }

    #[test]
    fn the_number_of_flows_is_bounded() {
        let mut flows = Flows::new(Duration::from_secs(1));
        for n in 0..2 * MAX_FLOWS as u32 {
            let key = FlowKey {
                address: n.into(),
                port: 1,
                protocol: 6,
            };
            let number = flows.number(key);
            flows.arrived(number, 40);
        }
        let reports = flows.finish();
        assert_eq!(reports.len(), MAX_FLOWS);
        assert_eq!(reports[0].0, FlowKey::UNKNOWN);
        assert_eq!(reports[0].1.arrived as usize, MAX_FLOWS + 1);
    }
}
