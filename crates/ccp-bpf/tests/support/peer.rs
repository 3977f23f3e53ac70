//! A receiver of TCP that chooses its ACKs.

use super::wait_until;
use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub(crate) const PORT: u16 = 5000;
const ISN: u32 = 1000;
pub(crate) const MSS: u32 = 1000;
/// Between the SYN and its answer.
pub(crate) const RTT: Duration = Duration::from_millis(200);
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A receiver of TCP without any TCP behind it.
pub(crate) struct Peer {
    device: File,
    /// The sender's port, and the first byte of its data.
    port: u16,
    first: u32,
}

impl Peer {
    /// Takes the connection that is being opened.
    pub(crate) fn accept(device: File) -> Self {
        let mut peer = Self {
            device,
            port: 0,
            first: 0,
        };
        wait_until("a SYN", || {
            let Some(tcp) = peer.receive().filter(|tcp| tcp[13] == SYN) else {
                return false;
            };
            peer.port = u16::from_be_bytes([tcp[0], tcp[1]]);
            peer.first = 1 + u32::from_be_bytes(tcp[4..8].try_into().unwrap());
            true
        });
        sleep(RTT);
        // The segment size, and that SACK is understood.
        let [high, low] = (MSS as u16).to_be_bytes();
        peer.send(ISN, SYN | ACK, 0, &[2, 4, high, low, 4, 2, 1, 1]);
        peer
    }

    /// The next packet's TCP header and data.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut packet = [0; 2048];
        let length = (&self.device).read(&mut packet).ok()?;
        let is_tcp = packet[0] == 0x45 && packet[9] == 6;
        is_tcp.then(|| packet[20..length].to_vec())
    }

    /// Acknowledges that many packets, and these behind a hole.
    pub(crate) fn ack(&self, packets: u32, sack: [u32; 2]) {
        let edges = sack.map(|edge| (self.first + edge * MSS).to_be_bytes());
        let options = [&[1, 1, 5, 10][..], &edges.concat()].concat();
        self.send(ISN + 1, ACK, packets * MSS, &options);
    }

    fn send(&self, seq: u32, flags: u8, acked: u32, options: &[u8]) {
        let mut tcp = [PORT.to_be_bytes(), self.port.to_be_bytes()].concat();
        tcp.extend(seq.to_be_bytes());
        tcp.extend((self.first + acked).to_be_bytes());
        tcp.extend([
            ((20 + options.len()) * 4) as u8,
            flags,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
        ]);
        tcp.extend(options);
        let addresses = [PEER.octets(), OURS.octets()].concat();
        let pseudo = [&addresses[..], &[0, 6, 0, tcp.len() as u8], &tcp].concat();
        tcp[16..18].copy_from_slice(&checksum(&pseudo));
        let mut ip = vec![0x45, 0, 0, 20 + tcp.len() as u8, 0, 1, 0, 0, 64, 6, 0, 0];
        ip.extend(addresses);
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum);
        (&self.device).write_all(&[ip, tcp].concat()).unwrap();
    }
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!(sum as u16 + (sum >> 16) as u16)).to_be_bytes()
}
