//! The bottleneck: a rate, a drop-tail queue, and what happens to packets behind it.
//!
//! Packets leave in the order in which they came, so a packet's departure is known when it arrives,
//! and the queue needs no events of its own: it is the list of departures that are still to come.

use crate::scenario::{Jitter, Loss, PathSpec, QueueLimit, RateSchedule};
use crate::{SECOND, WIRE};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The queue was full.
    Dropped,
    /// Lost behind the bottleneck.
    Lost,
    /// Reaches the end of the link at this time, ns, propagation not counted.
    Leaves(u64),
}

pub(crate) struct Link {
    rate: RateSchedule,
    /// The step in force, or the next unused opportunity.
    cursor: u64,
    limit_packets: usize,
    busy_until_ns: u64,
    /// Departures to come; the first packet is in transmission.
    departures_ns: VecDeque<u64>,
    loss: Loss,
    in_burst: bool,
    jitter: Jitter,
    last_exit_ns: u64,
    loss_rng: ChaCha8Rng,
    jitter_rng: ChaCha8Rng,
    /// Most packets that waited at a time.
    pub(crate) peak: usize,
}

impl Link {
    pub(crate) fn new(path: &PathSpec, seed: u64) -> Self {
        let stream = |number| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number);
            rng
        };
        let limit_packets = match path.queue {
            QueueLimit::Packets(packets) => packets as usize,
            QueueLimit::Bytes(bytes) => (bytes / WIRE) as usize,
        };
        Self {
            rate: path.rate.clone(),
            cursor: 0,
            limit_packets,
            busy_until_ns: 0,
            departures_ns: VecDeque::new(),
            loss: path.loss,
            in_burst: false,
            jitter: path.jitter,
            last_exit_ns: 0,
            loss_rng: stream(1),
            jitter_rng: stream(2),
            peak: 0,
        }
    }

    /// Packets that wait at a time, without the one in transmission.
    pub(crate) fn waiting(&mut self, now_ns: u64) -> usize {
        while self.departures_ns.front().is_some_and(|at| *at <= now_ns) {
            self.departures_ns.pop_front();
        }
        self.departures_ns.len().saturating_sub(1)
    }

    /// Takes a packet of full size. Times must not go back.
    pub(crate) fn offer(&mut self, now_ns: u64) -> Fate {
        let waiting = self.waiting(now_ns);
        if waiting >= self.limit_packets {
            return Fate::Dropped;
        }
        let departure = self.departure(now_ns);
        self.busy_until_ns = departure;
        self.departures_ns.push_back(departure);
        self.peak = self.peak.max(self.departures_ns.len() - 1);
        if self.loses() {
            return Fate::Lost;
        }
        Fate::Leaves(self.exit(departure))
    }

    fn departure(&mut self, now_ns: u64) -> u64 {
        let start = self.busy_until_ns.max(now_ns);
        match &self.rate {
            RateSchedule::Constant(bps) => start + transmission_ns(*bps),
            RateSchedule::Steps(steps) => {
                // The bits that are left, over the steps that the packet spans.
                let (mut at, mut bits) = (start, (WIRE * 8) as f64);
                loop {
                    let step = self.cursor as usize;
                    let end = steps.get(step + 1).map_or(u64::MAX, |next| next.0);
                    if at >= end {
                        self.cursor += 1;
                        continue;
                    }
                    let bps = steps[step].1 as f64;
                    let needed = (bits * SECOND as f64 / bps) as u64;
                    if at + needed <= end {
                        return at + needed;
                    }
                    bits -= (end - at) as f64 * bps / SECOND as f64;
                    at = end;
                }
            }
            RateSchedule::Trace(trace) => {
                let next = self.cursor.max(trace.first_at(now_ns));
                self.cursor = next + 1;
                trace.time_ns(next)
            }
        }
    }

    fn loses(&mut self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Random(ratio) => ratio > 0.0 && self.loss_rng.random::<f64>() < ratio,
            Loss::Bursts { ratio, mean_length } => {
                let leave = 1.0 / mean_length;
                let change = if self.in_burst {
                    leave
                } else {
                    ratio * leave / (1.0 - ratio)
                };
                self.in_burst ^= self.loss_rng.random::<f64>() < change;
                self.in_burst
            }
        }
    }

    fn exit(&mut self, departure_ns: u64) -> u64 {
        if self.jitter.max_ns == 0 {
            return departure_ns;
        }
        let late = departure_ns + self.jitter_rng.random_range(0..=self.jitter.max_ns);
        if self.jitter.reorder {
            return late;
        }
        self.last_exit_ns = self.last_exit_ns.max(late);
        self.last_exit_ns
    }
}

fn transmission_ns(bps: u64) -> u64 {
    WIRE * 8 * SECOND / bps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;
    use crate::scenario::Trace;
    use std::sync::Arc;

    fn path() -> PathSpec {
        PathSpec::clean(12_000_000, 10 * MILLISECOND) // 1 ms per packet, 10 packets
    }

    #[test]
    fn the_queue_holds_its_limit_and_the_packet_in_transmission() {
        let mut link = Link::new(&path(), 1);
        let fates: Vec<_> = (0..13).map(|_| link.offer(0)).collect();
        for (index, fate) in fates.iter().enumerate() {
            let at = (index as u64 + 1) * MILLISECOND;
            let expected = if index < 11 {
                Fate::Leaves(at)
            } else {
                Fate::Dropped
            };
            assert_eq!(*fate, expected, "packet {index}");
        }
        assert_eq!(link.waiting(3 * MILLISECOND), 7);
        assert_eq!(link.peak, 10);
        assert_eq!(link.offer(20 * MILLISECOND), Fate::Leaves(21 * MILLISECOND));
    }

    #[test]
    fn a_packet_may_span_a_step() {
        let mut path = path();
        let half = MILLISECOND / 2;
        path.rate = RateSchedule::Steps(vec![(0, 12_000_000), (half, 1_200_000)]);
        let mut link = Link::new(&path, 1);
        assert_eq!(link.offer(0), Fate::Leaves(half + 5 * MILLISECOND));
        assert_eq!(link.offer(0), Fate::Leaves(half + 15 * MILLISECOND));
    }

    #[test]
    fn a_trace_gives_one_packet_per_opportunity() {
        let mut path = path();
        path.rate = RateSchedule::Trace(Arc::new(Trace::parse("1\n1\n4\n").unwrap()));
        let mut link = Link::new(&path, 1);
        let times = [1, 1, 4, 5].map(|ms| Fate::Leaves(ms * MILLISECOND));
        assert_eq!([(); 4].map(|()| link.offer(0)), times);
        assert_eq!(link.offer(6 * MILLISECOND), Fate::Leaves(8 * MILLISECOND));
    }

    fn lost(loss: Loss, packets: u64) -> (f64, f64) {
        let mut link = Link::new(&PathSpec { loss, ..path() }, 7);
        let fates: Vec<_> = (0..packets)
            .map(|i| link.offer(i * MILLISECOND) == Fate::Lost)
            .collect();
        let lost = fates.iter().filter(|lost| **lost).count() as f64;
        let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        (lost / packets as f64, lost / bursts)
    }

    #[test]
    fn losses_come_as_often_and_as_long_as_asked() {
        let (ratio, burst) = lost(Loss::Random(0.02), 200_000);
        assert!(
            (ratio - 0.02).abs() < 0.001 && (burst - 1.0 / 0.98).abs() < 0.02,
            "{ratio} {burst}"
        );
        let bursts = Loss::Bursts {
            ratio: 0.02,
            mean_length: 5.0,
        };
        let (ratio, burst) = lost(bursts, 400_000);
        assert!(
            (ratio - 0.02).abs() < 0.002 && (burst - 5.0).abs() < 0.3,
            "{ratio} {burst}"
        );
    }

    #[test]
    fn only_reordering_jitter_reorders() {
        let exits = |reorder| {
            let jitter = Jitter {
                max_ns: 5 * MILLISECOND,
                reorder,
            };
            let mut link = Link::new(&PathSpec { jitter, ..path() }, 3);
            let exits = (0..1000).map(|i| match link.offer(i * MILLISECOND) {
                Fate::Leaves(at) => at,
                other => panic!("{other:?}"),
            });
            exits.collect::<Vec<_>>()
        };
        assert!(exits(false).is_sorted());
        assert!(!exits(true).is_sorted());
        for (index, at) in exits(true).into_iter().enumerate() {
            let delay = at - (index as u64 + 1) * MILLISECOND;
            assert!(delay <= 5 * MILLISECOND);
        }
    }
}
