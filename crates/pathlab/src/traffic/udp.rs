//! Datagrams at a rate: cross traffic that does not care.
//!
//! Each has the length that iperf2 gives them, and begins with its number and the time when it was due. The receiver
//! counts, and takes the interarrival jitter from the times (RFC 3550 §6.4.1).

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::{Shared, TrafficError};
use crate::flows::FlowKey;

/// Payload of a datagram: 1498 bytes with IPv4 and UDP, as iperf2's.
pub(super) const PAYLOAD_BYTES: usize = 1470;

/// IANA's number of the protocol.
const UDP: u8 = 17;

/// What became of a flow's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Datagrams {
    /// Handed to the kernel.
    pub sent: u64,
    /// Arrived before the end of the run.
    pub received: u64,
    /// Missing among those up to the last one that arrived.
    pub lost: u64,
    /// Interarrival jitter at the end.
    pub jitter: Duration,
}

/// A flow to be sent.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) flow: usize,
    pub(super) socket: UdpSocket,
    pub(super) to: SocketAddr,
    pub(super) start: Duration,
    pub(super) stop: Duration,
    /// Time between two datagrams.
    pub(super) gap: Duration,
    pub(super) sent: u64,
}

impl Stream {
    /// Time between datagrams at a rate of payload in bit/s.
    pub(super) fn gap(bps: u64) -> Duration {
        Duration::from_secs_f64(PAYLOAD_BYTES as f64 * 8.0 / bps.max(1) as f64)
    }

    /// When the next datagram is due, if one is.
    fn next(&self) -> Option<Duration> {
        let due = self.start + self.gap.mul_f64(self.sent as f64);
        (due < self.stop).then_some(due)
    }

    fn send(&mut self, due: Duration) -> std::io::Result<()> {
        let mut payload = [0; PAYLOAD_BYTES];
        write_head(&mut payload, self.sent, due);
        self.sent += 1;
        match self.socket.send_to(&payload, self.to) {
            // A full device is one of the ways in which datagrams get lost.
            Err(error) if error.raw_os_error() != Some(nix::libc::ENOBUFS) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Sends all streams until they or the run end, and returns of each its flow, how many datagrams it sent, and what
/// they are told by. Sleeps in a thread are more punctual than timers of an event loop, which tick in milliseconds.
pub(super) fn send(
    mut streams: Vec<Stream>,
    epoch: Instant,
    shared: &Shared,
) -> Vec<(usize, u64, Option<FlowKey>)> {
    const LONGEST_SLEEP: Duration = Duration::from_millis(50);
    let next = |streams: &[Stream]| {
        let due = streams.iter().enumerate();
        due.filter_map(|(index, stream)| Some((stream.next()?, index)))
            .min()
    };
    while let Some((due, index)) = next(&streams) {
        if shared.ended.load(Ordering::Relaxed) {
            break;
        }
        let wait = (epoch + due).saturating_duration_since(Instant::now());
        if wait > LONGEST_SLEEP {
            thread::sleep(LONGEST_SLEEP);
            continue;
        }
        thread::sleep(wait);
        if let Err(cause) = streams[index].send(due) {
            let what = format!("send a datagram to {}", streams[index].to);
            let flow = streams[index].flow as u32 + 1;
            shared.fail(TrafficError::Flow { flow, what, cause });
            break;
        }
    }
    let sent = streams.iter().map(|stream| {
        let own = stream.socket.local_addr().ok();
        (
            stream.flow,
            stream.sent,
            own.and_then(|own| super::send::key(own, UDP)),
        )
    });
    sent.collect()
}

fn write_head(payload: &mut [u8; PAYLOAD_BYTES], number: u64, due: Duration) {
    let nanos = u64::try_from(due.as_nanos()).unwrap_or(u64::MAX);
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload[8..16].copy_from_slice(&nanos.to_be_bytes());
}

/// Number and due time of a datagram; `None` if it is none of ours.
pub(super) fn read_head(payload: &[u8]) -> Option<(u64, Duration)> {
    let word = |at: usize| Some(u64::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    Some((word(0)?, Duration::from_nanos(word(8)?)))
}

/// The receiver's account of a flow.
#[derive(Debug, Default)]
pub(super) struct Account {
    received: u64,
    /// One past the highest number.
    expected: u64,
    last_transit_s: Option<f64>,
    jitter_s: f64,
}

impl Account {
    pub(super) fn take(&mut self, number: u64, due: Duration, arrived: Duration) {
        self.received += 1;
        self.expected = self.expected.max(number + 1);
        let transit_s = arrived.as_secs_f64() - due.as_secs_f64();
        if let Some(last) = self.last_transit_s.replace(transit_s) {
            self.jitter_s += ((transit_s - last).abs() - self.jitter_s) / 16.0;
        }
    }

    pub(super) fn result(&self) -> Datagrams {
        Datagrams {
            sent: 0,
            received: self.received,
            lost: self.expected.saturating_sub(self.received),
            jitter: Duration::from_secs_f64(self.jitter_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_in_the_numbers_are_losses_and_the_order_does_not_matter() {
        let ms = Duration::from_millis;
        let mut account = Account::default();
        for number in [0, 1, 3, 2, 6] {
            account.take(number, ms(10 * number), ms(10 * number + 5));
        }
        let result = account.result();
        assert_eq!((result.received, result.lost), (5, 2));
        assert_eq!(result.jitter, Duration::ZERO);
    }

    #[test]
    fn jitter_is_the_sixteenth_of_each_difference() {
        let ms = Duration::from_millis;
        let mut account = Account::default();
        account.take(0, ms(0), ms(10));
        account.take(1, ms(10), ms(36));
        // 16 ms more than before, of which a sixteenth counts.
        assert!((account.result().jitter.as_secs_f64() - 0.001).abs() < 1e-9);
    }

    #[test]
    fn a_datagram_tells_its_number_and_time() {
        let mut payload = [0; PAYLOAD_BYTES];
        write_head(&mut payload, 7, Duration::from_micros(1500));
        assert_eq!(read_head(&payload), Some((7, Duration::from_micros(1500))));
        assert_eq!(read_head(&payload[..15]), None);
    }

    #[test]
    fn the_rate_is_one_of_payload() {
        // 20 Mbit/s of 1470 bytes: 1700.68 a second.
        assert!((1.0 / Stream::gap(20_000_000).as_secs_f64() - 1700.68).abs() < 0.01);
    }
}
