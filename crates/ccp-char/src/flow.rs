//! What the module says of a flow beside CCP: `struct ccp_flow_msg` of `ccp-kernel/ccp_wire.h`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Message type of a description.
pub(crate) const FLOW: u16 = 32;
/// Shortest length of one; a later version of the module may append to it.
pub(crate) const FLOW_LEN: usize = 104;

/// The agent wants no flows, and wants them again: headers without content.
const DRAIN: u16 = 33;
const RESUME: u16 = 34;
const DRAIN_LEN: u16 = 8;

/// A flow as the module described it: when it was offered, with a report at most every 100 ms, and when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Time since the flow came under the module's congestion control.
    pub age: Duration,
    /// How much of it an agent drove the flow.
    pub driven: Duration,
    /// The kernel's smoothed RTT in µs, 0 before the first sample.
    pub srtt_us: u32,
    /// Payload bytes acknowledged in that time.
    pub bytes_acked: u64,
    /// The pacing rate in bytes/s; the largest value means unpaced.
    pub pacing_rate: u64,
    /// How often the agent fell silent on it.
    pub fallbacks: u32,
    /// Packets delivered.
    pub packets_delivered: u32,
    /// Packets that the kernel marked as lost.
    pub packets_lost: u32,
    /// Reports that were queued for the agent.
    pub reports: u32,
    /// Reports that a full queue lost.
    pub reports_dropped: u32,
    /// Program runs that were given up: an overflow, an underflow, a division by zero.
    pub program_errors: u32,
    /// Segment size in bytes; `None` if the module is older and does not say.
    pub mss: Option<u32>,
}

impl FlowInfo {
    /// From a whole message; `None` if it is too short.
    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let (message, appended) = message.split_first_chunk::<FLOW_LEN>()?;
        let mss = appended.first_chunk().map(|mss| u32::from_le_bytes(*mss));
        let address = |at: usize, port: usize| {
            let bytes: [u8; 16] = std::array::from_fn(|i| message[at + i]);
            let port = u16::from_le_bytes([message[port], message[port + 1]]);
            let v6 = Ipv6Addr::from(bytes);
            SocketAddr::new(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4), port)
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| message[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| message[at + i]));
        Some(Self {
            local: address(8, 40),
            remote: address(24, 42),
            srtt_us: word(44),
            age: Duration::from_micros(long(48)),
            driven: Duration::from_micros(long(56)),
            bytes_acked: long(64),
            pacing_rate: long(72),
            fallbacks: word(80),
            packets_delivered: word(84),
            packets_lost: word(88),
            reports: word(92),
            reports_dropped: word(96),
            program_errors: word(100),
            mss: mss.filter(|mss| *mss > 0),
        })
    }
}

/// The descriptions of the flows that the agent knows, and whether it wants any.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    flows: Arc<Mutex<HashMap<u32, FlowInfo>>>,
    /// Weak: the module counts an agent as there while the device is open.
    device: Weak<File>,
    drained: Arc<AtomicBool>,
}

impl Observer {
    pub(crate) fn of(device: &Arc<File>) -> Self {
        Self {
            device: Arc::downgrade(device),
            ..Self::default()
        }
    }

    /// Hands all flows to the module's fallback and keeps new ones there, or (`false`) takes that back. The agent
    /// stays; the next one begins with flows.
    ///
    /// # Errors
    /// The agent has closed the device, or its module is another (the original ccp-kernel), which cannot do that.
    pub fn drain(&self, drain: bool) -> io::Result<()> {
        let device = self.device.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let header = [if drain { DRAIN } else { RESUME }, DRAIN_LEN, 0, 0];
        let message = header.map(u16::to_le_bytes);
        (&*device).write_all(message.as_flattened())?;
        self.drained.store(drain, Relaxed);
        Ok(())
    }

    /// Whether the agent wants no flows.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Relaxed)
    }

    /// The last description of a flow, by portus' socket id: that of its end while it is being closed. `None` if it is
    /// not known, or the module does not describe flows.
    pub fn flow(&self, sock_id: u32) -> Option<FlowInfo> {
        self.lock().get(&sock_id).copied()
    }

    /// The last descriptions of all flows that are known.
    pub fn flows(&self) -> Vec<(u32, FlowInfo)> {
        let flows = self.lock();
        flows.iter().map(|(id, info)| (*id, *info)).collect()
    }

    /// Number of flows that are known.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no flow is known.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn insert(&self, sock_id: u32, info: FlowInfo) {
        self.lock().insert(sock_id, info);
    }

    pub(crate) fn forget(&self, sock_ids: &[u32]) {
        let mut flows = self.lock();
        for sock_id in sock_ids {
            flows.remove(sock_id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, FlowInfo>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A description with a different value in every field.
    pub(crate) fn message(sid: u32) -> Vec<u8> {
        let mut bytes = FLOW.to_le_bytes().to_vec();
        bytes.extend((FLOW_LEN as u16).to_le_bytes());
        bytes.extend(sid.to_le_bytes());
        bytes.extend(
            "::ffff:10.0.0.1"
                .parse::<Ipv6Addr>()
                .unwrap_or(Ipv6Addr::LOCALHOST)
                .octets(),
        );
        bytes.extend(Ipv6Addr::LOCALHOST.octets());
        bytes.extend([80u16, 443].map(u16::to_le_bytes).concat());
        bytes.extend(20_000u32.to_le_bytes());
        bytes.extend(
            [5_000_000u64, 4_000_000, 70, 80]
                .map(u64::to_le_bytes)
                .concat(),
        );
        bytes.extend([1u32, 2, 3, 4, 5, 6].map(u32::to_le_bytes).concat());
        bytes
    }

    #[test]
    fn a_description_is_read_field_by_field() {
        let message = message(7);
        assert_eq!(message.len(), FLOW_LEN);
        let info = FlowInfo::decode(&message).expect("it is whole");
        assert_eq!(
            (info.local.to_string(), info.remote.to_string()),
            ("10.0.0.1:80".to_owned(), "[::1]:443".to_owned())
        );
        assert_eq!(
            (info.srtt_us, info.age, info.driven),
            (20_000, Duration::from_secs(5), Duration::from_secs(4))
        );
        assert_eq!((info.bytes_acked, info.pacing_rate), (70, 80));
        let counts = [
            info.fallbacks,
            info.packets_delivered,
            info.packets_lost,
            info.reports,
            info.reports_dropped,
            info.program_errors,
        ];
        assert_eq!(counts, [1, 2, 3, 4, 5, 6]);
        assert_eq!(info.mss, None, "what an older module does not say");
        let appended = [&message[..], &1448u32.to_le_bytes(), &[0; 4]].concat();
        let info = FlowInfo::decode(&appended).expect("a later version");
        assert_eq!((info.program_errors, info.mss), (6, Some(1448)));
        assert_eq!(FlowInfo::decode(&message[..FLOW_LEN - 1]), None);
    }

    #[test]
    fn draining_is_a_header_to_the_device_and_ends_with_it() {
        let mut file = tempfile();
        let device = Arc::new(file.try_clone().expect("a second handle"));
        let observer = Observer::of(&device);
        observer.drain(true).expect("the device is open");
        assert!(observer.is_drained());
        observer.drain(false).expect("the device is open");
        assert!(!observer.is_drained());
        drop(device);
        assert!(observer.drain(true).is_err() && !observer.is_drained());
        let mut written = Vec::new();
        io::Seek::rewind(&mut file).expect("a file");
        io::Read::read_to_end(&mut file, &mut written).expect("a file");
        assert_eq!(written, [33, 0, 8, 0, 0, 0, 0, 0, 34, 0, 8, 0, 0, 0, 0, 0]);
    }

    /// A file without a name.
    fn tempfile() -> File {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        memfd_create(c"device", MFdFlags::empty())
            .expect("memory for a file")
            .into()
    }
}
