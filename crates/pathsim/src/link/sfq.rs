//! Stochastic fairness queueing (McKenney, INFOCOM 1990), as Linux' sfq does it.
//!
//! ```text
//!   packet ──▶ hash of its flow ──▶ one of many buckets, each first in, first out
//!   turn   ──▶ the buckets that hold packets, in a circle, a quantum of bytes each
//!   full   ──▶ drops the last packet of the longest bucket
//! ```
//! Every bucket gets the same share of the link, however much its flows send, and a flow that keeps its
//! queue short neither waits long nor loses packets to those that do not. Flows that share a bucket share
//! its turn; the hash depends on the seed, so that other seeds have other collisions. (Linux can change the
//! hash as time goes by, `perturb`; its default does not.)

use super::queue::{Fifo, Waiting};
use crate::scenario::Sfq;
use std::collections::VecDeque;

pub(super) struct Buckets<T> {
    quantum_bytes: i64,
    perturbation: u64,
    buckets: Vec<Bucket<T>>,
    /// Those that hold packets; the first has its turn.
    circle: VecDeque<usize>,
    packets: usize,
    bytes: u64,
}

struct Bucket<T> {
    waiting: Fifo<T>,
    /// What it may still send in this round, bytes; below 0 if the last packet was longer than that.
    credit: i64,
}

impl<T> Buckets<T> {
    pub(super) fn new(sfq: Sfq, seed: u64) -> Self {
        let bucket = || Bucket {
            waiting: Fifo::default(),
            credit: 0,
        };
        Self {
            quantum_bytes: sfq.quantum_bytes.into(),
            perturbation: seed,
            buckets: std::iter::repeat_with(bucket)
                .take(sfq.buckets as usize)
                .collect(),
            circle: VecDeque::new(),
            packets: 0,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.packets
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a packet, whatever waits already; returns its bucket.
    pub(super) fn push(&mut self, flow: u64, waiting: Waiting<T>) -> usize {
        let index = self.bucket_of(flow);
        let bucket = &mut self.buckets[index];
        if bucket.waiting.is_empty() {
            bucket.credit = self.quantum_bytes;
            self.circle.push_back(index);
        }
        self.packets += 1;
        self.bytes += u64::from(waiting.bytes);
        bucket.waiting.push(waiting);
        index
    }

    /// The packet whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Waiting<T>> {
        let index = loop {
            let first = *self.circle.front()?;
            let bucket = &mut self.buckets[first];
            if bucket.credit > 0 {
                break first;
            }
            bucket.credit += self.quantum_bytes;
            self.circle.rotate_left(1);
        };
        let bucket = &mut self.buckets[index];
        let first = bucket.waiting.pop()?;
        bucket.credit -= i64::from(first.bytes);
        if bucket.waiting.is_empty() {
            self.circle.pop_front();
        }
        self.packets -= 1;
        self.bytes -= u64::from(first.bytes);
        Some(first)
    }

    /// Takes out the last packet of the longest bucket, and says which that is.
    pub(super) fn drop_of_longest(&mut self) -> Option<(usize, T)> {
        let length = |at: &usize| self.buckets[*at].waiting.len();
        // The first of equals.
        let index = self.circle.iter().copied().rev().max_by_key(length)?;
        let Waiting { bytes, packet, .. } = self.buckets[index].waiting.pop_last()?;
        if self.buckets[index].waiting.is_empty() {
            self.circle.retain(|other| *other != index);
        }
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
        Some((index, packet))
    }

    fn bucket_of(&self, flow: u64) -> usize {
        // The finalizer of SplitMix64: every bit of the flow and of the seed reaches every bit of the hash.
        let mut hash = flow ^ self.perturbation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((hash ^ (hash >> 31)) % self.buckets.len() as u64) as usize
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let waiting = self.buckets.iter().flat_map(|bucket| bucket.waiting.iter());
        waiting.map(|waiting| &waiting.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(flow: u64, bytes: u32) -> Waiting<u64> {
        Waiting {
            since_ns: 0,
            bytes,
            packet: flow,
        }
    }

    fn buckets() -> Buckets<u64> {
        let sfq = Buckets::new(Sfq::default(), 1);
        assert_ne!(sfq.bucket_of(1), sfq.bucket_of(2), "these flows collide");
        sfq
    }

    #[test]
    fn flows_take_turns_by_bytes() {
        let mut sfq = buckets();
        for _ in 0..300 {
            sfq.push(1, packet(1, 1500));
            for _ in 0..3 {
                sfq.push(2, packet(2, 500));
            }
        }
        let sent: Vec<u64> = std::iter::from_fn(|| sfq.pop())
            .map(|first| first.packet)
            .take(400)
            .collect();
        let of_1 = sent.iter().filter(|flow| **flow == 1).count();
        assert_eq!(of_1, 100, "{sent:?}");
    }

    #[test]
    fn a_short_queue_does_not_wait_behind_a_long_one() {
        let mut sfq = buckets();
        (0..100).for_each(|_| {
            sfq.push(1, packet(1, 1500));
        });
        sfq.push(2, packet(2, 1500));
        let next = [sfq.pop(), sfq.pop()].map(|first| first.unwrap().packet);
        assert_eq!(next, [1, 2]);
    }

    #[test]
    fn the_longest_bucket_loses_its_last_packet() {
        let mut sfq = buckets();
        for number in 0..10 {
            sfq.push(1, packet(number, 1500));
        }
        let of_2 = sfq.push(2, packet(100, 1500));
        let (of_1, dropped) = sfq.drop_of_longest().unwrap();
        assert_eq!(dropped, 9);
        assert_ne!(of_1, of_2);
        assert_eq!((sfq.len(), sfq.bytes()), (10, 15_000));
        // Down to nothing: every packet comes out once.
        let mut rest: Vec<_> = std::iter::from_fn(|| sfq.drop_of_longest()).collect();
        rest.sort_unstable_by_key(|(_, packet)| *packet);
        let numbers: Vec<_> = rest.iter().map(|(_, packet)| *packet).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 100]);
        assert!(sfq.is_empty() && sfq.circle.is_empty() && sfq.bytes() == 0);
    }

    #[test]
    fn flows_spread_over_the_buckets_as_the_seed_says() {
        let places = |seed| {
            let sfq = Buckets::<()>::new(Sfq::default(), seed);
            (0..1000)
                .map(|flow| sfq.bucket_of(flow))
                .collect::<Vec<_>>()
        };
        let mut used = places(1);
        assert_ne!(used, places(2));
        used.sort_unstable();
        used.dedup();
        // Of 1024 buckets, 1000 flows at random leave 1024 × e^(-1000/1024) empty: they use 638.
        assert!((600..=676).contains(&used.len()), "{}", used.len());
    }
}
