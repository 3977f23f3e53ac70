//! The bottleneck: a rate, a queue, and what happens to packets on the way there.
//!
//! ```text
//!   offer ──▶ loss in front ──▶ policer ──▶ limit ──▶ queue ──▶ shaper ──▶ rate ──▶ loss behind ──▶ jitter ──▶ leaves
//! ```
//! A [`Link`] has neither clock nor input nor output: times come from the caller, in nanoseconds from the
//! path's beginning, and chance from a seed. So the simulator and an emulator that carries real packets share
//! this model. Propagation is the caller's: it is a time to add to that at which a packet leaves.
//!
//! Behind a drop-tail queue packets leave in the order in which they came, so a packet's departure
//! is known when it arrives, and the queue needs no events of its own: it is the list of departures
//! that are still to come. PIE drops packets that come, and so has the same list. CoDel and sfq
//! decide when a packet's turn comes; their queues are of packets, and the link asks to be served at each turn. CoDel
//! and PIE mark instead what is [`Markable`].

mod bucket;
mod capacity;
mod chance;
mod codel;
mod pie;
mod queue;
mod sfq;

pub use chance::Losses;

use crate::scenario::{
    InvalidScenario, LossPlace, PathSpec, QueueDiscipline, QueueLimit, RateSchedule,
};
use bucket::Bucket;
use capacity::Capacity;
use chance::Jitterer;
use pie::Verdict;
use queue::{Fifo, Waiting};
use std::collections::VecDeque;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<T> {
    /// The queue was full, or its discipline or the policer dropped it.
    Dropped,
    /// Lost at random.
    Lost,
    /// Reaches the end of the link at this time, ns, propagation not counted.
    Leaves(u64),
    /// The same, and the queue has marked it.
    Marked(u64),
    /// Waits for its turn. If there is a time, ns, the link must be [served](Link::serve) then.
    Waits(Option<u64>),
    /// Waits for its turn, and this other packet is dropped for it.
    Displaces(T),
}

/// What a managed queue may mark instead of dropping it (ECN, RFC 3168).
pub trait Markable {
    /// Whether the ends of the packet understand marks; by default they do not.
    fn is_markable(&self) -> bool {
        false
    }
}

/// The waiting packets; `T` is what they carry.
enum Queue<T> {
    /// Departures to come, ns, and lengths, bytes; the first packet is in transmission.
    Departures {
        departures: VecDeque<(u64, u32)>,
        bytes: u64,
    },
    CoDel {
        controller: codel::Controller,
        waiting: Fifo<T>,
    },
    Sfq(sfq::Buckets<T>),
}

/// One direction's bottleneck; `T` stands for a packet.
pub struct Link<T> {
    capacity: Capacity,
    policer: Option<Bucket>,
    limit: QueueLimit,
    queue: Queue<T>,
    pie: Option<pie::Controller>,
    /// Whether a turn is to come.
    due: bool,
    /// Packets on the way there, and how many it holds.
    held: usize,
    held_limit: usize,
    losses: Losses,
    loss_place: LossPlace,
    jitter: Jitterer,
    peak: usize,
}

impl<T> std::fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            limit, held, peak, ..
        } = self;
        write!(
            f,
            "Link {{ limit: {limit:?}, held: {held}, peak: {peak}, .. }}"
        )
    }
}

impl<T: Markable> Link<T> {
    /// An idle link. Equal seeds make equal decisions about equal packets.
    ///
    /// # Errors
    /// [`InvalidScenario`] names the value of the path that is out of range.
    pub fn new(path: &PathSpec, seed: u64) -> Result<Self, InvalidScenario> {
        path.check()?;
        let queue = match path.discipline {
            QueueDiscipline::DropTail | QueueDiscipline::Pie(_) => Queue::Departures {
                departures: VecDeque::new(),
                bytes: 0,
            },
            QueueDiscipline::CoDel(codel) => Queue::CoDel {
                controller: codel::Controller::new(codel),
                waiting: Fifo::default(),
            },
            QueueDiscipline::Sfq(sfq) => Queue::Sfq(sfq::Buckets::new(sfq, seed)),
        };
        let pie = match path.discipline {
            QueueDiscipline::Pie(pie) => Some(pie::Controller::new(pie, seed)),
            _ => None,
        };
        Ok(Self {
            capacity: Capacity::new(path.rate.clone(), path.shaper),
            policer: path.policer.map(Bucket::new),
            limit: path.queue,
            queue,
            pie,
            due: false,
            held: 0,
            held_limit: path.delay_limit_packets.map_or(usize::MAX, |n| n as usize),
            losses: Losses::there(path.loss, seed),
            loss_place: path.loss_place,
            jitter: Jitterer::new(path.jitter, seed),
            peak: 0,
        })
    }

    /// Packets that wait at a time, ns, without the one in transmission. Times must not go back.
    pub fn waiting(&mut self, now_ns: u64) -> usize {
        self.backlog(now_ns).0
    }

    /// Most packets that waited at a time.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// What the link can carry, over time.
    pub fn rate(&self) -> &RateSchedule {
        self.capacity.rate()
    }

    /// Packets and bytes that wait, without the one in transmission.
    fn backlog(&mut self, now_ns: u64) -> (usize, u64) {
        match &mut self.queue {
            Queue::Departures { departures, bytes } => {
                while let Some((_, length)) = departures.front().filter(|(at, _)| *at <= now_ns) {
                    *bytes -= u64::from(*length);
                    departures.pop_front();
                }
                let first = departures.front().map_or(0, |(_, length)| *length);
                (
                    departures.len().saturating_sub(1),
                    *bytes - u64::from(first),
                )
            }
            Queue::CoDel { waiting, .. } => (waiting.len(), waiting.bytes()),
            Queue::Sfq(buckets) => (buckets.len(), buckets.bytes()),
        }
    }

    /// Takes a packet of so many bytes (at least 1) of a flow. Times must not go back.
    pub fn offer(&mut self, now_ns: u64, flow: u64, bytes: u32, packet: T) -> Fate<T> {
        if self.loss_place == LossPlace::InFront && self.losses.is_next_lost() {
            return Fate::Lost;
        }
        if let Some(bucket) = &mut self.policer
            && !bucket.passes(now_ns, bytes)
        {
            return Fate::Dropped;
        }
        if self.held >= self.held_limit {
            return Fate::Dropped;
        }
        let (packets, backlog) = self.backlog(now_ns);
        let is_full = match self.limit {
            QueueLimit::Packets(limit) => packets >= limit as usize,
            QueueLimit::Bytes(limit) => backlog + u64::from(bytes) > limit,
        };
        let waiting = |packet| Waiting {
            since_ns: now_ns,
            bytes,
            packet,
        };
        match &mut self.queue {
            Queue::Sfq(buckets) => {
                let own = buckets.push(flow, waiting(packet));
                if is_full {
                    return match buckets.drop_of_longest() {
                        Some((longest, victim)) if longest != own => Fate::Displaces(victim),
                        // The last one there is the one that has just come.
                        _ => Fate::Dropped,
                    };
                }
                self.peak = self.peak.max(buckets.len());
            }
            _ if is_full => return Fate::Dropped,
            Queue::Departures {
                departures,
                bytes: sum,
            } => {
                let empty_ns = departures.back().map_or(now_ns, |(at_ns, _)| *at_ns);
                let verdict = match &mut self.pie {
                    Some(pie) => pie.verdict(now_ns, empty_ns, backlog, packet.is_markable()),
                    None => Verdict::Pass,
                };
                if verdict == Verdict::Drop {
                    return Fate::Dropped;
                }
                let departure_ns = self.capacity.send(now_ns, bytes);
                departures.push_back((departure_ns, bytes));
                *sum += u64::from(bytes);
                self.peak = self.peak.max(departures.len() - 1);
                self.held += 1;
                return self.pass(departure_ns, verdict == Verdict::Mark);
            }
            Queue::CoDel { waiting: fifo, .. } => {
                fifo.push(waiting(packet));
                self.peak = self.peak.max(fifo.len());
            }
        }
        self.held += 1;
        let first = !std::mem::replace(&mut self.due, true);
        Fate::Waits(first.then(|| self.capacity.turn_ns(now_ns)))
    }

    /// A turn that [`Fate::Waits`] or the last turn asked for: `fate` takes the packet whose turn it is, and those that
    /// are dropped instead. Returns the time of the next turn, ns, if packets wait.
    pub fn serve(&mut self, now_ns: u64, mut fate: impl FnMut(T, Fate<T>)) -> Option<u64> {
        let mut dropped = 0;
        let first = match &mut self.queue {
            Queue::Departures { .. } => return None,
            Queue::CoDel {
                controller,
                waiting,
            } => controller.dequeue(now_ns, waiting, |packet| {
                dropped += 1;
                fate(packet, Fate::Dropped);
            }),
            Queue::Sfq(buckets) => buckets.pop().map(|packet| (packet, false)),
        };
        self.held -= dropped;
        if let Some((Waiting { bytes, packet, .. }, marked)) = first {
            let departure_ns = self.capacity.send(now_ns, bytes);
            fate(packet, self.pass(departure_ns, marked));
        }
        self.due = match &self.queue {
            Queue::Departures { .. } => false,
            Queue::CoDel { waiting, .. } => !waiting.is_empty(),
            Queue::Sfq(buckets) => !buckets.is_empty(),
        };
        self.due.then(|| self.capacity.turn_ns(now_ns))
    }

    /// A packet that [left](Fate::Leaves) is at the end of its way: with a limit on the delay line, the caller
    /// must say so.
    pub fn arrived(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// How many of the packets whose turn is to come are such.
    #[cfg(test)]
    pub(crate) fn waiting_of(&self, such: impl Fn(&T) -> bool) -> usize {
        match &self.queue {
            Queue::Departures { .. } => 0,
            Queue::CoDel { waiting, .. } => waiting.iter().filter(|of| such(&of.packet)).count(),
            Queue::Sfq(buckets) => buckets.iter().filter(|of| such(of)).count(),
        }
    }

    /// Behind the bottleneck.
    fn pass(&mut self, departure_ns: u64, marked: bool) -> Fate<T> {
        if self.loss_place == LossPlace::Behind && self.losses.is_next_lost() {
            self.held -= 1;
            return Fate::Lost;
        }
        let exit_ns = self.jitter.exit_ns(departure_ns);
        if marked {
            Fate::Marked(exit_ns)
        } else {
            Fate::Leaves(exit_ns)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Markable for () {}
    impl Markable for u64 {}

    use crate::MILLISECOND;
    use crate::scenario::{CoDel, Jitter, Loss, RateSchedule, TokenBucket, Trace};
    use std::sync::Arc;

    fn path() -> PathSpec {
        PathSpec::clean(12_000_000, 10 * MILLISECOND) // 1 ms per packet, 10 packets
    }

    fn link<T: Markable>(path: &PathSpec, seed: u64) -> Link<T> {
        Link::new(path, seed).unwrap()
    }

    #[test]
    fn the_queue_holds_its_limit_and_the_packet_in_transmission() {
        let mut link = link(&path(), 1);
        let fates: Vec<_> = (0..13).map(|_| link.offer(0, 0, 1500, ())).collect();
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
        assert_eq!(link.peak(), 10);
        assert_eq!(
            link.offer(20 * MILLISECOND, 0, 1500, ()),
            Fate::Leaves(21 * MILLISECOND)
        );
    }

    #[test]
    fn a_packet_may_span_a_step() {
        let mut path = path();
        let half = MILLISECOND / 2;
        path.rate = RateSchedule::Steps(vec![(0, 12_000_000), (half, 1_200_000)]);
        let mut link = link(&path, 1);
        assert_eq!(
            link.offer(0, 0, 1500, ()),
            Fate::Leaves(half + 5 * MILLISECOND)
        );
        assert_eq!(
            link.offer(0, 0, 1500, ()),
            Fate::Leaves(half + 15 * MILLISECOND)
        );
    }

    #[test]
    fn a_trace_gives_one_packet_per_opportunity() {
        let mut path = path();
        path.rate = RateSchedule::Trace(Arc::new(Trace::parse("1\n1\n4\n").unwrap()));
        let mut link = link(&path, 1);
        let times = [1, 1, 4, 5].map(|ms| Fate::Leaves(ms * MILLISECOND));
        assert_eq!([(); 4].map(|()| link.offer(0, 0, 1500, ())), times);
        assert_eq!(
            link.offer(6 * MILLISECOND, 0, 1500, ()),
            Fate::Leaves(8 * MILLISECOND)
        );
    }

    fn lost(loss: Loss, packets: u64) -> (f64, f64) {
        let mut link = link(&PathSpec { loss, ..path() }, 7);
        let fates: Vec<_> = (0..packets)
            .map(|i| link.offer(i * MILLISECOND, 0, 1500, ()) == Fate::Lost)
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
            let jitter = Jitter::Uniform {
                max_ns: 5 * MILLISECOND,
                reorder,
            };
            let mut link = link(&PathSpec { jitter, ..path() }, 3);
            let exits = (0..1000).map(|i| match link.offer(i * MILLISECOND, 0, 1500, ()) {
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

    #[test]
    fn loss_in_front_uses_no_capacity() {
        let mut path = path();
        path.queue = QueueLimit::Packets(1000);
        path.loss = Loss::Random(0.5);
        let last = |place| {
            path.loss_place = place;
            let mut link = link(&path, 1);
            let fates: Vec<_> = (0..1000).map(|_| link.offer(0, 0, 1500, ())).collect();
            let passed = fates.iter().filter(|fate| **fate != Fate::Lost).count() as u64;
            (passed, link.capacity.turn_ns(0) / MILLISECOND)
        };
        let places = [LossPlace::Behind, LossPlace::InFront];
        let [(behind, all), (in_front, only_those)] = places.map(last);
        assert_eq!((behind, all), (in_front, 1000));
        assert_eq!(only_those, in_front);
    }

    #[test]
    fn a_policer_drops_what_its_bucket_has_no_tokens_for() {
        let mut path = path();
        path.queue = QueueLimit::Packets(1000);
        path.policer = Some(TokenBucket {
            rate_bps: 3_000_000,
            burst_bytes: 15_000,
        });
        let mut link = link(&path, 1);
        // As fast as the link: a bucket of 10, and one of four.
        let passed = (0..1000)
            .map(|ms| link.offer(ms * MILLISECOND, 0, 1500, ()))
            .filter(|fate| *fate != Fate::Dropped)
            .count();
        assert!((255..=260).contains(&passed), "{passed}");
        assert_eq!(link.peak(), 0, "what is dropped never waits");
    }

    #[test]
    fn a_shaper_lets_its_burst_leave_at_the_links_rate_and_holds_the_rest() {
        let mut path = path();
        path.shaper = Some(TokenBucket {
            rate_bps: 3_000_000,
            burst_bytes: 7_500,
        });
        let mut link = link(&path, 1);
        let fates: Vec<_> = (0..13).map(|_| link.offer(0, 0, 1500, ())).collect();
        // Five that the bucket holds, one for which tokens have come meanwhile, then one every 4 ms.
        let times = [1, 2, 3, 4, 5, 6, 9, 13, 17, 21, 25].map(|ms| Fate::Leaves(ms * MILLISECOND));
        assert_eq!(fates[..11], times);
        assert_eq!(fates[11..], [Fate::Dropped; 2], "the queue's limit holds");
        assert_eq!(path.capacity_bytes(0, 1_000_000_000), 375_000.0);
    }

    /// Turn by turn, as drop-tail would have it, as long as nothing waits for too long.
    #[test]
    fn a_codel_queue_is_first_in_first_out() {
        let mut path = path();
        path.discipline = QueueDiscipline::CoDel(CoDel::default());
        let mut link = link(&path, 1);
        assert_eq!(link.offer(0, 0, 1500, 0_u64), Fate::Waits(Some(0)));
        let fates: Vec<_> = (1..12)
            .map(|number| link.offer(0, 0, 1500, number))
            .collect();
        let mut expected = vec![Fate::Waits(None); 9];
        expected.extend([Fate::Dropped; 2]);
        assert_eq!(fates, expected);
        let (mut out, mut next) = (Vec::new(), Some(0));
        while let Some(now_ns) = next {
            next = link.serve(now_ns, |number, fate| out.push((number, fate)));
        }
        let expected = (0..10).map(|n| (n, Fate::Leaves((n + 1) * MILLISECOND)));
        assert_eq!(out, expected.collect::<Vec<_>>());
        // The last is in transmission until 10 ms.
        let turn = Fate::Waits(Some(10 * MILLISECOND));
        assert_eq!(link.offer(9 * MILLISECOND, 0, 1500, 12), turn);
    }
}
