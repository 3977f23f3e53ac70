//! The bottleneck: a rate, a queue, and what happens to packets on the way there.
//!
//! Behind a drop-tail queue packets leave in the order in which they came, so a packet's departure
//! is known when it arrives, and the queue needs no events of its own: it is the list of departures
//! that are still to come. CoDel decides when a packet's turn comes; its queue is one of packets, and
//! the link asks to be served at each turn.

mod capacity;
mod chance;
mod codel;

pub(crate) use chance::Losses;

use crate::WIRE;
use crate::scenario::{LossPlace, PathSpec, QueueDiscipline, QueueLimit};
use capacity::Capacity;
use chance::Jitterer;
use std::collections::VecDeque;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The queue was full, or its discipline dropped it.
    Dropped,
    /// Lost at random.
    Lost,
    /// Reaches the end of the link at this time, ns, propagation not counted.
    Leaves(u64),
    /// Waits for its turn. If there is a time, ns, the link must be served then.
    Waits(Option<u64>),
}

/// The waiting packets; `T` is what they carry.
enum Queue<T> {
    /// Departures to come, ns; the first packet is in transmission.
    Departures(VecDeque<u64>),
    CoDel {
        controller: codel::Controller,
        waiting: VecDeque<codel::Waiting<T>>,
        /// Whether a turn is to come.
        due: bool,
    },
}

pub(crate) struct Link<T> {
    capacity: Capacity,
    limit_packets: usize,
    queue: Queue<T>,
    losses: Losses,
    loss_place: LossPlace,
    jitter: Jitterer,
    /// Most packets that waited at a time.
    pub(crate) peak: usize,
}

impl<T> Link<T> {
    pub(crate) fn new(path: &PathSpec, seed: u64) -> Self {
        let limit_packets = match path.queue {
            QueueLimit::Packets(packets) => packets as usize,
            QueueLimit::Bytes(bytes) => (bytes / WIRE) as usize,
        };
        let queue = match path.discipline {
            QueueDiscipline::DropTail => Queue::Departures(VecDeque::new()),
            QueueDiscipline::CoDel(codel) => Queue::CoDel {
                controller: codel::Controller::new(codel),
                waiting: VecDeque::new(),
                due: false,
            },
        };
        Self {
            capacity: Capacity::new(path.rate.clone()),
            limit_packets,
            queue,
            losses: Losses::there(path.loss, seed),
            loss_place: path.loss_place,
            jitter: Jitterer::new(path.jitter, seed),
            peak: 0,
        }
    }

    /// Packets that wait at a time, without the one in transmission.
    pub(crate) fn waiting(&mut self, now_ns: u64) -> usize {
        match &mut self.queue {
            Queue::Departures(departures_ns) => {
                while departures_ns.front().is_some_and(|at| *at <= now_ns) {
                    departures_ns.pop_front();
                }
                departures_ns.len().saturating_sub(1)
            }
            Queue::CoDel { waiting, .. } => waiting.len(),
        }
    }

    /// Takes a packet of full size. Times must not go back.
    pub(crate) fn offer(&mut self, now_ns: u64, packet: T) -> Fate {
        if self.loss_place == LossPlace::InFront && self.losses.next() {
            return Fate::Lost;
        }
        if self.waiting(now_ns) >= self.limit_packets {
            return Fate::Dropped;
        }
        match &mut self.queue {
            Queue::Departures(departures_ns) => {
                let departure_ns = self.capacity.send(now_ns);
                departures_ns.push_back(departure_ns);
                self.peak = self.peak.max(departures_ns.len() - 1);
                self.pass(departure_ns)
            }
            Queue::CoDel { waiting, due, .. } => {
                waiting.push_back((now_ns, packet));
                self.peak = self.peak.max(waiting.len());
                let first = !std::mem::replace(due, true);
                Fate::Waits(first.then(|| self.capacity.turn_ns(now_ns)))
            }
        }
    }

    /// A turn that [`Fate::Waits`] or the last turn asked for: `fate` takes the packet whose turn it is, and those that
    /// are dropped instead. Returns the time of the next turn, ns, if packets wait.
    pub(crate) fn serve(&mut self, now_ns: u64, mut fate: impl FnMut(T, Fate)) -> Option<u64> {
        let Queue::CoDel {
            controller,
            waiting,
            due,
        } = &mut self.queue
        else {
            return None;
        };
        let packet = controller.dequeue(now_ns, waiting, |packet| fate(packet, Fate::Dropped));
        *due = !waiting.is_empty();
        let more = *due;
        if let Some(packet) = packet {
            let departure_ns = self.capacity.send(now_ns);
            fate(packet, self.pass(departure_ns));
        }
        more.then(|| self.capacity.turn_ns(now_ns))
    }

    /// How many of the packets whose turn is to come are such.
    #[cfg(test)]
    pub(crate) fn waiting_of(&self, such: impl Fn(&T) -> bool) -> usize {
        match &self.queue {
            Queue::Departures(_) => 0,
            Queue::CoDel { waiting, .. } => waiting.iter().filter(|(_, of)| such(of)).count(),
        }
    }

    /// Behind the bottleneck.
    fn pass(&mut self, departure_ns: u64) -> Fate {
        if self.loss_place == LossPlace::Behind && self.losses.next() {
            return Fate::Lost;
        }
        Fate::Leaves(self.jitter.exit_ns(departure_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;
    use crate::scenario::{CoDel, Jitter, Loss, RateSchedule, Trace};
    use std::sync::Arc;

    fn path() -> PathSpec {
        PathSpec::clean(12_000_000, 10 * MILLISECOND) // 1 ms per packet, 10 packets
    }

    #[test]
    fn the_queue_holds_its_limit_and_the_packet_in_transmission() {
        let mut link = Link::new(&path(), 1);
        let fates: Vec<_> = (0..13).map(|_| link.offer(0, ())).collect();
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
        assert_eq!(
            link.offer(20 * MILLISECOND, ()),
            Fate::Leaves(21 * MILLISECOND)
        );
    }

    #[test]
    fn a_packet_may_span_a_step() {
        let mut path = path();
        let half = MILLISECOND / 2;
        path.rate = RateSchedule::Steps(vec![(0, 12_000_000), (half, 1_200_000)]);
        let mut link = Link::new(&path, 1);
        assert_eq!(link.offer(0, ()), Fate::Leaves(half + 5 * MILLISECOND));
        assert_eq!(link.offer(0, ()), Fate::Leaves(half + 15 * MILLISECOND));
    }

    #[test]
    fn a_trace_gives_one_packet_per_opportunity() {
        let mut path = path();
        path.rate = RateSchedule::Trace(Arc::new(Trace::parse("1\n1\n4\n").unwrap()));
        let mut link = Link::new(&path, 1);
        let times = [1, 1, 4, 5].map(|ms| Fate::Leaves(ms * MILLISECOND));
        assert_eq!([(); 4].map(|()| link.offer(0, ())), times);
        assert_eq!(
            link.offer(6 * MILLISECOND, ()),
            Fate::Leaves(8 * MILLISECOND)
        );
    }

    fn lost(loss: Loss, packets: u64) -> (f64, f64) {
        let mut link = Link::new(&PathSpec { loss, ..path() }, 7);
        let fates: Vec<_> = (0..packets)
            .map(|i| link.offer(i * MILLISECOND, ()) == Fate::Lost)
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
            let exits = (0..1000).map(|i| match link.offer(i * MILLISECOND, ()) {
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
            let mut link = Link::new(&path, 1);
            let fates: Vec<_> = (0..1000).map(|_| link.offer(0, ())).collect();
            let passed = fates.iter().filter(|fate| **fate != Fate::Lost).count() as u64;
            (passed, link.capacity.turn_ns(0) / MILLISECOND)
        };
        let places = [LossPlace::Behind, LossPlace::InFront];
        let [(behind, all), (in_front, only_those)] = places.map(last);
        assert_eq!((behind, all), (in_front, 1000));
        assert_eq!(only_those, in_front);
    }

    /// Turn by turn, as drop-tail would have it, as long as nothing waits for too long.
    #[test]
    fn a_codel_queue_is_first_in_first_out() {
        let mut path = path();
        path.discipline = QueueDiscipline::CoDel(CoDel::default());
        let mut link = Link::new(&path, 1);
        assert_eq!(link.offer(0, 0), Fate::Waits(Some(0)));
        let fates: Vec<_> = (1..12).map(|number| link.offer(0, number)).collect();
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
        assert_eq!(link.offer(9 * MILLISECOND, 12), turn);
    }
}
