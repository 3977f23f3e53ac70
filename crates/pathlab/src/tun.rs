//! The ends of an emulated path: one TUN device in each of two namespaces.
//!
//! A TUN device without offloads hands over packets of at most one MTU, but TCP still gives whole
//! bursts (GSO) to the device, which cuts them at once. In front of a small queue that would be a
//! line-rate burst no network card makes, so `gso_max_segs 1` (the default of [`EndSettings`]) has TCP send packet by
//! packet. It is the same for every scheme. The device has no queueing discipline (`noqueue`), on every kernel
//! and whatever `net.core.default_qdisc` says: the only queue of the path is the emulated one.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use tun_rs::{DeviceBuilder, Layer};

use crate::netns::{Netns, NetnsError};

/// MTU of the devices in bytes; a full-size TCP segment carries 1448 of them (with timestamps).
pub const MTU_BYTES: u16 = 1500;

/// Packets that a device holds for the emulator to read. It is no queue of the path: only an
/// emulator that is late by more than their arrival time loses one, and that is counted.
const DEVICE_RING_PACKETS: u32 = 4096;

pub(crate) const DEVICE: &str = "path0";

/// Why a device could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The device could not be made.
    #[error("cannot create a TUN device: {0}; it takes root and /dev/net/tun (modprobe tun)")]
    Create(io::Error),
    /// It could not be configured.
    #[error(transparent)]
    Configure(#[from] NetnsError),
    /// Its statistics could not be read.
    #[error("cannot read the statistics of the TUN device: {0}")]
    Statistics(String),
}

/// How TCP is set up at both ends of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndSettings {
    /// Segments that TCP hands to the device at once at most: `gso_max_segs` of ip-link(8). 1 sends packet by packet;
    /// 0 leaves the kernel's own limit.
    pub gso_max_segs: u32,
    /// `net.ipv4.tcp_sack`.
    pub sack: bool,
    /// `net.ipv4.tcp_reordering`, if not the kernel's own.
    pub reordering: Option<u32>,
    /// Whether both ends negotiate ECN: `net.ipv4.tcp_ecn`.
    pub ecn: bool,
    /// Extra RTTs of flows, ns, each of which gets an address at the client; 0 and repetitions do not matter.
    pub extra_rtts_ns: Vec<u64>,
}

impl Default for EndSettings {
    /// Packet by packet, with SACK, without ECN.
    fn default() -> Self {
        Self {
            gso_max_segs: 1,
            sack: true,
            reordering: None,
            ecn: false,
            extra_rtts_ns: Vec::new(),
        }
    }
}

/// Makes the namespace one end of a path: creates its device, gives it `own` and a route to
/// `peer`, and sets what TCP's fair measurement needs. The returned file reads and writes whole IP
/// packets and never blocks; the device lives until it is closed.
///
/// # Errors
/// [`TunError`] without root, TUN support or iproute2.
pub fn attach(
    netns: &Netns,
    own: Ipv4Addr,
    peer: Ipv4Addr,
    ends: &EndSettings,
) -> Result<File, TunError> {
    set_up_tcp(netns, ends)?;
    let device = netns.enter(open)?.map_err(TunError::Create)?;
    // No router solicitations among the measured packets; absent where IPv6 is not built in.
    if let Err(error) = netns.sysctl(&format!("net/ipv6/conf/{DEVICE}/disable_ipv6"), "1") {
        tracing::debug!(%error, "IPv6 stays as it is");
    }
    let mtu = MTU_BYTES.to_string();
    let ring = DEVICE_RING_PACKETS.to_string();
    let (own, peer) = (own.to_string(), peer.to_string());
    netns.configure("ip", &["link", "set", "lo", "up"])?;
    netns.configure(
        "ip",
        &["address", "add", &own, "peer", &peer, "dev", DEVICE],
    )?;
    netns.configure(
        "tc",
        &["qdisc", "replace", "dev", DEVICE, "root", "noqueue"],
    )?;
    let mut link = vec!["link", "set", DEVICE, "mtu", &mtu, "txqueuelen", &ring];
    let segments = ends.gso_max_segs.to_string();
    if ends.gso_max_segs > 0 {
        link.extend(["gso_max_segs", &segments]);
    }
    link.push("up");
    netns.configure("ip", &link)?;
    Ok(device)
}

/// The kernel's own `tcp_max_reordering`.
const KERNEL_MAX_REORDERING: u32 = 300;

/// Sets TCP up in a namespace for a fair measurement, and as asked.
pub(crate) fn set_up_tcp(netns: &Netns, ends: &EndSettings) -> Result<(), NetnsError> {
    // A run must not inherit the last one's cwnd, and the windows must never be the bottleneck.
    netns.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    netns.sysctl("net/ipv4/tcp_rmem", "4096 131072 67108864")?;
    netns.sysctl("net/ipv4/tcp_wmem", "4096 65536 67108864")?;
    // Connections that choose none (iperf3's control connection) must not be flows of the agent.
    netns.sysctl("net/ipv4/tcp_congestion_control", "reno")?;
    netns.sysctl("net/ipv4/tcp_sack", if ends.sack { "1" } else { "0" })?;
    netns.sysctl("net/ipv4/tcp_ecn", if ends.ecn { "1" } else { "0" })?;
    if let Some(packets) = ends.reordering {
        if packets > KERNEL_MAX_REORDERING {
            // New kernels accept no more than this.
            netns.sysctl("net/ipv4/tcp_max_reordering", &packets.to_string())?;
        }
        netns.sysctl("net/ipv4/tcp_reordering", &packets.to_string())?;
    }
    Ok(())
}

/// Gives the client more addresses, and the server routes to them.
///
/// # Errors
/// [`TunError`] without iproute2.
pub fn add_addresses(
    client: &Netns,
    server: &Netns,
    addresses: impl Iterator<Item = Ipv4Addr>,
) -> Result<(), TunError> {
    for address in addresses {
        let host = format!("{address}/32");
        client.configure("ip", &["address", "add", &host, "dev", DEVICE])?;
        server.configure("ip", &["route", "add", &host, "dev", DEVICE])?;
    }
    Ok(())
}

fn open() -> io::Result<File> {
    let device = DeviceBuilder::new()
        .name(DEVICE)
        .layer(Layer::L3)
        .offload(false)
        .enable(false)
        .build_sync()?;
    device.set_nonblocking(true)?;
    Ok(File::from(device.as_fd().try_clone_to_owned()?))
}

/// Packets that TCP sent but the emulator never saw, because it did not read them in time.
///
/// # Errors
/// [`TunError`] if the device is gone or `ip` prints something unknown.
pub fn unseen_packets(netns: &Netns) -> Result<u64, TunError> {
    let printed = netns.configure(
        "ip",
        &["-json", "-statistics", "link", "show", "dev", DEVICE],
    )?;
    let links: serde_json::Value =
        serde_json::from_str(&printed).map_err(|error| TunError::Statistics(error.to_string()))?;
    links[0]["stats64"]["tx"]["dropped"]
        .as_u64()
        .ok_or_else(|| TunError::Statistics("no stats64.tx.dropped in what ip printed".into()))
}
