//! TCP's state of all flows, from the kernel's sock_diag(7): one request, one answer per socket.
//!
//! A flow's connections are told by their ports; the counters of a flow are those of all its connections. The kernel
//! keeps them until a socket is closed, so a look before that is exact.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};

use super::plan::Plan;

/// Answers come in portions of 32 kB at most.
const PORTION_BYTES: usize = 1 << 16;

/// Why the kernel's counters could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The kernel does not answer.
    #[error(
        "cannot ask the kernel for the state of TCP sockets (sock_diag): {0}; is tcp_diag loaded?"
    )]
    Ask(io::Error),
    /// It answers with something unknown.
    #[error("cannot understand what the kernel says of TCP sockets (sock_diag): {0}")]
    Answer(String),
}

/// TCP's state of a flow at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, since the start of the run.
    pub at: Duration,
    /// Smoothed RTT.
    pub srtt: Duration,
    /// Congestion window, packets.
    pub cwnd_packets: u32,
    /// Segments sent again so far, this connection.
    pub retransmissions: u32,
    /// Bytes acknowledged so far, this connection.
    pub acked_bytes: u64,
    /// Segments acknowledged so far, this connection.
    pub delivered_segments: u32,
    /// What the receiver offers beyond the last byte acknowledged, bytes.
    pub window_bytes: u32,
}

/// Counters of a connection, as of the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    retransmissions: u64,
    delivered_segments: u64,
    acked_bytes: u64,
}

/// Looks at all flows of a plan that send from the namespace it was made in.
pub(super) struct Sampler {
    socket: Socket,
    request: Vec<u8>,
    portion: Vec<u8>,
    /// By flow and the connection's local port.
    connections: HashMap<(usize, u16), Connection>,
    samples: Vec<Vec<Sample>>,
}

impl Sampler {
    /// A sampler of so many flows.
    pub(super) fn new(flows: usize) -> Result<Self, SampleError> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(SampleError::Ask)?;
        socket.bind_auto().map_err(SampleError::Ask)?;
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(SampleError::Ask)?;
        Ok(Self {
            socket,
            request: request(),
            portion: Vec::with_capacity(PORTION_BYTES),
            connections: HashMap::new(),
            samples: vec![Vec::new(); flows],
        })
    }

    /// Takes a sample of every connection that is there. `transfers` says whether a flow still transfers; one that
    /// rests keeps its counters, but its RTT and window say nothing.
    pub(super) fn look(
        &mut self,
        at: Duration,
        transfers: impl Fn(usize) -> bool,
    ) -> Result<(), SampleError> {
        self.socket
            .send(&self.request, 0)
            .map_err(SampleError::Ask)?;
        loop {
            self.portion.clear();
            let size = match self.socket.recv(&mut self.portion, 0) {
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(SampleError::Ask(error)),
            };
            let portion = std::mem::take(&mut self.portion);
            let done = self.take_portion(&portion[..size], at, &transfers);
            self.portion = portion;
            if done? {
                return Ok(());
            }
        }
    }

    /// Takes the messages of a portion; true if the last one was among them.
    fn take_portion(
        &mut self,
        mut bytes: &[u8],
        at: Duration,
        transfers: &impl Fn(usize) -> bool,
    ) -> Result<bool, SampleError> {
        while !bytes.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(bytes)
                .map_err(|error| SampleError::Answer(error.to_string()))?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => return Err(SampleError::Ask(error.to_io())),
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket)) => {
                    let id = &socket.header.socket_id;
                    let flow =
                        Plan::flow(id.destination_port).filter(|flow| *flow < self.samples.len());
                    let info = socket.nlas.iter().find_map(|nla| match nla {
                        Nla::TcpInfo(info) => Some(info),
                        _ => None,
                    });
                    if let (Some(flow), Some(info)) = (flow, info) {
                        self.take(flow, id.source_port, info, at, transfers(flow));
                    }
                }
                _ => {}
            }
            // Messages are padded to four bytes, but for the last one.
            let length = (message.header.length as usize).next_multiple_of(4);
            if length == 0 {
                return Err(SampleError::Answer("a message without length".into()));
            }
            bytes = bytes.get(length..).unwrap_or_default();
        }
        Ok(false)
    }

    fn take(&mut self, flow: usize, port: u16, info: &TcpInfo, at: Duration, transfers: bool) {
        // The kernel counts the SYN, too.
        let acked_bytes = info.bytes_acked.saturating_sub(1);
        let before = self.connections.insert(
            (flow, port),
            Connection {
                retransmissions: info.total_retrans.into(),
                delivered_segments: info.delivered.into(),
                acked_bytes,
            },
        );
        // A connection that has rested since the last look is one of an earlier round.
        let moved =
            before.is_none_or(|before| before.acked_bytes < acked_bytes) || info.unacked > 0;
        // 0 before the first measurement.
        if transfers && moved && info.rtt > 0 {
            self.samples[flow].push(Sample {
                at,
                srtt: Duration::from_micros(info.rtt.into()),
                cwnd_packets: info.snd_cwnd,
                retransmissions: info.total_retrans,
                acked_bytes,
                delivered_segments: info.delivered,
                window_bytes: info.snd_wnd,
            });
        }
    }

    /// The last sample of a flow.
    pub(super) fn last(&self, flow: usize) -> Option<&Sample> {
        self.samples.get(flow)?.last()
    }

    /// Segments sent again and segments delivered, all connections of a flow.
    pub(super) fn totals(&self, flow: usize) -> (u64, u64) {
        let of_flow = self
            .connections
            .iter()
            .filter(|((other, _), _)| *other == flow);
        of_flow.fold((0, 0), |(retransmissions, delivered), (_, connection)| {
            (
                retransmissions + connection.retransmissions,
                delivered + connection.delivered_segments,
            )
        })
    }

    /// The samples of a flow, which are gone then.
    pub(super) fn take_samples(&mut self, flow: usize) -> Vec<Sample> {
        self.samples
            .get_mut(flow)
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

/// "All TCP sockets of IPv4 that have a connection, with their `tcp_info`."
fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut socket_id = SocketId::new_v4();
    socket_id.cookie = [0xff; 8];
    let request = InetRequest {
        family: AF_INET,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::all().difference(StateFlags::LISTEN | StateFlags::TIME_WAIT),
        socket_id,
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Over loopback, without any rights: what was sent is what the kernel says was acknowledged.
    #[test]
    fn counters_of_connections_are_found_by_their_ports() {
        // Some free port of the range, and so some flow.
        let (listener, flow) = (0..500)
            .find_map(|flow| {
                let listener = TcpListener::bind(("127.0.0.1", Plan::port(flow))).ok()?;
                Some((listener, flow))
            })
            .expect("one of 500 ports is free");
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 30_000]).unwrap();
        receiver.read_exact(&mut [0; 30_000]).unwrap();
        let mut sampler = Sampler::new(flow + 1).unwrap();
        sampler.look(Duration::from_millis(5), |_| true).unwrap();
        let sample = *sampler.last(flow).unwrap();
        assert_eq!(sample.acked_bytes, 30_000, "{sample:?}");
        assert!(
            sample.srtt > Duration::ZERO && sample.cwnd_packets >= 2,
            "{sample:?}"
        );
        assert!(sample.window_bytes > 10_000, "{sample:?}");
        let (retransmissions, delivered) = sampler.totals(flow);
        assert_eq!(retransmissions, 0);
        assert!(delivered > 0);
        // At rest, the counters stay, and no sample is taken.
        sampler.look(Duration::from_millis(6), |_| true).unwrap();
        assert_eq!(sampler.take_samples(flow), [sample]);
        assert_eq!(sampler.totals(flow), (retransmissions, delivered));
    }
}
