//! The run: events in order of time, and what they do to senders, link and receivers.
//!
//! Events at the same time happen in the order in which they were made. A flow has at most one
//! wake-up that counts; others in the queue are stale and do nothing.

use crate::control::Controller;
use crate::link::{Fate, Link};
use crate::receiver::{Answer, Packet, Receiver};
use crate::results::{Bin, Distribution, FlowResult, LinkBin, Results, jain};
use crate::scenario::{FlowSpec, InvalidScenario, Scenario, Source, Transport};
use crate::sender::Sender;
use crate::{MILLISECOND, MSS, SECOND, WIRE};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const BIN_NS: u64 = 100 * MILLISECOND;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The sender may have something to do.
    Wake,
    /// A packet is at the receiver.
    Arrive(Packet),
    /// A delayed ACK's timer.
    DelayedAck(u64),
    /// An ACK for so many packets is at the sender.
    Ack(u32),
}

#[derive(Default)]
struct BinSums {
    bytes: u64,
    rtt_us: u64,
    samples: u64,
}

struct Flow<'a> {
    spec: FlowSpec,
    controller: Box<dyn Controller + 'a>,
    sender: Sender,
    receiver: Receiver,
    forward_ns: u64,
    back_ns: u64,
    last_release_ns: u64,
    end_ns: u64,
    wake_ns: u64,
    udp: Udp,
    goodput: u64,
    goodput_half: u64,
    arrived: u64,
    missing: u64,
    completed_ns: Option<u64>,
    rtts: Distribution,
    bins: Vec<BinSums>,
}

#[derive(Default)]
struct Udp {
    sent: u64,
    next_ns: u64,
}

/// A scenario in progress.
pub struct Simulation<'a> {
    scenario: Scenario,
    queue: BinaryHeap<Reverse<(u64, u64, u32, Event)>>,
    made: u64,
    handled: u64,
    now_ns: u64,
    link: Link,
    link_bins: Vec<LinkBin>,
    flows: Vec<Flow<'a>>,
}

impl<'a> Simulation<'a> {
    /// A scenario with one controller per flow, in their order.
    ///
    /// # Errors
    /// [`InvalidScenario`] names the value that is out of range.
    pub fn new(
        scenario: Scenario,
        controllers: Vec<Box<dyn Controller + 'a>>,
    ) -> Result<Self, InvalidScenario> {
        scenario.check()?;
        if scenario.flows.len() != controllers.len() {
            return Err(InvalidScenario::Controllers {
                flows: scenario.flows.len(),
                controllers: controllers.len(),
            });
        }
        let flows = scenario.flows.iter().cloned().zip(controllers);
        let flows = flows.map(|(spec, controller)| {
            let rtt_ns = scenario.path.rtt_ns + spec.extra_rtt_ns;
            Flow {
                controller,
                sender: Sender::new(spec.source, spec.start_ns),
                receiver: Receiver::new(spec.acks),
                forward_ns: rtt_ns / 2,
                back_ns: rtt_ns - rtt_ns / 2,
                last_release_ns: 0,
                end_ns: spec.stop_ns.unwrap_or(u64::MAX).min(scenario.duration_ns),
                wake_ns: u64::MAX,
                udp: Udp {
                    sent: 0,
                    next_ns: spec.start_ns,
                },
                goodput: 0,
                goodput_half: 0,
                arrived: 0,
                missing: 0,
                completed_ns: None,
                rtts: Distribution::default(),
                bins: Vec::new(),
                spec,
            }
        });
        let mut simulation = Self {
            link: Link::new(&scenario.path, scenario.seed),
            flows: flows.collect(),
            queue: BinaryHeap::new(),
            made: 0,
            handled: 0,
            now_ns: 0,
            link_bins: Vec::new(),
            scenario,
        };
        for index in 0..simulation.flows.len() {
            let start_ns = simulation.flows[index].spec.start_ns;
            simulation.flows[index].wake_ns = start_ns;
            simulation.push(start_ns, index, Event::Wake);
        }
        Ok(simulation)
    }

    /// Runs to the end.
    pub fn run(mut self) -> Results {
        while self.step() {}
        self.results()
    }

    /// Runs to the end, and says every simulated second how far it is (s).
    pub fn run_with_progress(mut self, mut progress: impl FnMut(u64)) -> Results {
        let mut second = 0;
        while self.step() {
            if self.now_ns / SECOND > second {
                second = self.now_ns / SECOND;
                progress(second);
            }
        }
        self.results()
    }

    /// Handles one event; `false` at the end of the run.
    fn step(&mut self) -> bool {
        let Some(Reverse((now_ns, _, index, event))) = self.queue.pop() else {
            return false;
        };
        if now_ns >= self.scenario.duration_ns {
            return false;
        }
        self.now_ns = now_ns;
        self.handled += 1;
        let index = index as usize;
        match event {
            Event::Wake if self.flows[index].wake_ns == now_ns => self.wake(index),
            Event::Wake => {}
            Event::Arrive(packet) => self.arrive(index, packet),
            Event::DelayedAck(number) => {
                if let Some(answer) = self.flows[index].receiver.delayed(number) {
                    self.answer(index, answer);
                }
            }
            Event::Ack(packets) => self.ack(index, packets),
        }
        true
    }

    fn push(&mut self, at_ns: u64, flow: usize, event: Event) {
        self.made += 1;
        self.queue
            .push(Reverse((at_ns, self.made, flow as u32, event)));
    }

    fn wake(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let flow = &mut self.flows[index];
        flow.wake_ns = u64::MAX;
        if now_ns >= flow.end_ns {
            return;
        }
        if flow.spec.transport == Transport::Udp {
            self.send_datagram(index);
            return;
        }
        if flow.controller.wake_at_ns().is_some_and(|at| at <= now_ns) {
            flow.controller.wake(now_ns);
        }
        if flow.sender.on_timers(now_ns, flow.controller.as_mut())
            && let Some(packet) = flow.sender.probe(now_ns)
        {
            self.transmit(index, packet);
        }
        self.send(index);
    }

    /// Lets a sender send, and sets its next wake-up.
    fn send(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let Self {
            flows,
            link,
            link_bins,
            queue,
            made,
            scenario,
            ..
        } = self;
        let flow = &mut flows[index];
        if now_ns >= flow.end_ns {
            return;
        }
        let (forward_ns, missing) = (flow.forward_ns, &mut flow.missing);
        flow.sender
            .send(now_ns, flow.controller.as_ref(), |packet| {
                let fate = link.offer(now_ns);
                if scenario.series {
                    note(link_bins, now_ns, link, fate);
                }
                match fate {
                    Fate::Leaves(at_ns) => {
                        *made += 1;
                        let event = Event::Arrive(packet);
                        queue.push(Reverse((at_ns + forward_ns, *made, index as u32, event)));
                    }
                    Fate::Dropped | Fate::Lost => *missing += 1,
                }
            });
        let sender = flow.sender.wake_at_ns();
        let next = [sender, flow.controller.wake_at_ns()];
        let next = next.into_iter().flatten().min().unwrap_or(u64::MAX);
        let next = next.max(now_ns + 1);
        if next < flow.wake_ns {
            flow.wake_ns = next;
            if next < flow.end_ns {
                self.push(next, index, Event::Wake);
            }
        }
    }

    fn transmit(&mut self, index: usize, packet: Packet) {
        let fate = self.link.offer(self.now_ns);
        if self.scenario.series {
            note(&mut self.link_bins, self.now_ns, &mut self.link, fate);
        }
        match fate {
            Fate::Leaves(at_ns) => {
                let at_ns = at_ns + self.flows[index].forward_ns;
                self.push(at_ns, index, Event::Arrive(packet));
            }
            Fate::Dropped | Fate::Lost => self.flows[index].missing += 1,
        }
    }

    fn send_datagram(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let done = match flow.spec.source {
            Source::Bytes(bytes) => flow.udp.sent * MSS >= bytes,
            Source::Endless | Source::Rate(_) => false,
        };
        if done {
            return;
        }
        let number = flow.udp.sent;
        flow.udp.sent += 1;
        let own = flow.controller.sending().rate.unwrap_or(1);
        let rate = match flow.spec.source {
            Source::Rate(bps) => own.min(bps / 8),
            Source::Endless | Source::Bytes(_) => own,
        };
        // From the start on, so that roundings do not add up.
        let elapsed =
            u128::from(flow.udp.sent * MSS) * u128::from(SECOND) / u128::from(rate.max(1));
        let next_ns = flow.spec.start_ns + elapsed as u64;
        (flow.udp.next_ns, flow.wake_ns) = (next_ns, next_ns);
        self.push(next_ns, index, Event::Wake);
        let packet = Packet {
            tx: number,
            segment: number,
        };
        self.transmit(index, packet);
    }

    fn arrive(&mut self, index: usize, packet: Packet) {
        let now_ns = self.now_ns;
        let half = now_ns >= self.scenario.duration_ns / 2;
        let flow = &mut self.flows[index];
        flow.arrived += 1;
        if now_ns >= flow.end_ns {
            return;
        }
        let (new, answer) = match flow.spec.transport {
            Transport::Tcp => flow.receiver.arrive(packet),
            Transport::Udp => (true, Answer::Wait),
        };
        if new {
            flow.goodput += MSS;
            if half {
                flow.goodput_half += MSS;
            }
            if let Source::Bytes(bytes) = flow.spec.source
                && flow.goodput >= bytes
            {
                flow.completed_ns.get_or_insert(now_ns);
            }
            if self.scenario.series {
                bin(&mut flow.bins, now_ns).bytes += MSS;
            }
        }
        self.answer(index, answer);
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        let flow = &mut self.flows[index];
        match answer {
            Answer::Ack(packets) => {
                // ACKs do not overtake each other.
                let release_ns = flow.receiver.release_ns(self.now_ns);
                flow.last_release_ns = flow.last_release_ns.max(release_ns);
                let at_ns = flow.last_release_ns + flow.back_ns;
                self.push(at_ns, index, Event::Ack(packets));
            }
            Answer::Delay(number) => {
                let at_ns = self.now_ns + flow.receiver.delay_ns();
                self.push(at_ns, index, Event::DelayedAck(number));
            }
            Answer::Wait => {}
        }
    }

    fn ack(&mut self, index: usize, packets: u32) {
        let now_ns = self.now_ns;
        let flow = &mut self.flows[index];
        let packets = flow.receiver.take(packets);
        if now_ns >= flow.end_ns {
            return;
        }
        let rtt_ns = flow
            .sender
            .on_ack(now_ns, packets, flow.controller.as_mut());
        if let Some(rtt_ns) = rtt_ns {
            flow.rtts.add(rtt_ns / 1000);
            if self.scenario.series {
                let bin = bin(&mut flow.bins, now_ns);
                bin.rtt_us += rtt_ns / 1000;
                bin.samples += 1;
            }
        }
        if flow.sender.is_complete() {
            flow.end_ns = now_ns;
            return;
        }
        // An agent without latency answers before the next packet.
        if flow.controller.wake_at_ns().is_some_and(|at| at <= now_ns) {
            flow.controller.wake(now_ns);
        }
        self.send(index);
    }

    fn results(self) -> Results {
        let scenario = &self.scenario;
        let duration_ns = scenario.duration_ns;
        let half_ns = duration_ns / 2;
        let usable = MSS as f64 / WIRE as f64 * (1.0 - scenario.path.loss.ratio());
        let capacity = |from, to| scenario.path.rate.capacity_bytes(from, to) * usable;
        let mbps = |bytes: u64, ns: u64| bytes as f64 * 8e3 / ns.max(1) as f64;
        let mut rtts = Distribution::default();
        let (mut sent, mut missing, mut goodput, mut goodput_half) = (0, 0, 0, 0);
        let bins = if scenario.series {
            duration_ns.div_ceil(BIN_NS) as usize
        } else {
            0
        };
        let mut flows = Vec::with_capacity(self.flows.len());
        for mut flow in self.flows {
            rtts.merge(&flow.rtts);
            let stats = flow.sender.stats;
            let flow_sent = stats.sent + flow.udp.sent;
            sent += flow_sent;
            missing += flow.missing;
            goodput += flow.goodput;
            goodput_half += flow.goodput_half;
            let start_ns = flow.spec.start_ns.min(duration_ns);
            let end_ns = flow.completed_ns.unwrap_or(flow.end_ns).max(start_ns);
            let half_start_ns = start_ns.max(half_ns);
            let [rtt_p50_ms, rtt_p95_ms, rtt_mean_ms] = flow.rtts.summary_ms();
            let possible = capacity(start_ns, end_ns);
            flow.bins.resize_with(bins, BinSums::default);
            flows.push(FlowResult {
                scheme: flow.spec.scheme,
                goodput_mbps: mbps(flow.goodput, end_ns - start_ns),
                goodput_second_half_mbps: (end_ns > half_start_ns)
                    .then(|| mbps(flow.goodput_half, end_ns - half_start_ns)),
                share: if possible > 0.0 {
                    flow.goodput as f64 / possible
                } else {
                    0.0
                },
                rtt_p50_ms,
                rtt_p95_ms,
                rtt_mean_ms,
                loss: flow.missing as f64 / flow_sent.max(1) as f64,
                packets_sent: flow_sent,
                retransmissions: stats.retransmitted,
                spurious_retransmissions: stats.spurious,
                timeouts: stats.timeouts,
                completion_s: flow
                    .completed_ns
                    .map(|at| (at - start_ns) as f64 / SECOND as f64),
                series: flow.bins.iter().map(BinSums::bin).collect(),
            });
        }
        let [rtt_p50_ms, rtt_p95_ms, _] = rtts.summary_ms();
        let mut link_series = self.link_bins;
        link_series.resize(bins, LinkBin::default());
        Results {
            seed: scenario.seed,
            duration_s: duration_ns as f64 / SECOND as f64,
            goodput_mbps: mbps(goodput, duration_ns),
            share: goodput as f64 / capacity(0, duration_ns),
            share_second_half: goodput_half as f64 / capacity(half_ns, duration_ns),
            rtt_p95_ms,
            rtt_p50_ms,
            loss: missing as f64 / sent.max(1) as f64,
            jain: jain(
                flows
                    .iter()
                    .map(|f| f.goodput_second_half_mbps.unwrap_or(0.0)),
            ),
            queue_peak_packets: self.link.peak as u64,
            events: self.handled,
            flows,
            link_series,
        }
    }

    /// Packets that were sent, arrived, were dropped or lost, and are on their way, of one flow; for tests.
    #[cfg(test)]
    fn account(&self, index: usize) -> (u64, u64, u64, u64) {
        let flow = &self.flows[index];
        let on_the_way = self.queue.iter().filter(|Reverse((_, _, of, event))| {
            *of as usize == index && matches!(event, Event::Arrive(_))
        });
        let sent = flow.sender.stats.sent + flow.udp.sent;
        (sent, flow.arrived, flow.missing, on_the_way.count() as u64)
    }
}

impl BinSums {
    fn bin(&self) -> Bin {
        Bin {
            goodput_mbps: self.bytes as f64 * 8e3 / BIN_NS as f64,
            rtt_ms: self.rtt_us as f64 / 1e3 / self.samples.max(1) as f64,
        }
    }
}

fn bin<T: Default>(bins: &mut Vec<T>, now_ns: u64) -> &mut T {
    let index = (now_ns / BIN_NS) as usize;
    if bins.len() <= index {
        bins.resize_with(index + 1, T::default);
    }
    &mut bins[index]
}

fn note(bins: &mut Vec<LinkBin>, now_ns: u64, link: &mut Link, fate: Fate) {
    let waiting = link.waiting(now_ns) as u32;
    let bin = bin(bins, now_ns);
    bin.queue_packets = bin.queue_packets.max(waiting);
    bin.lost += u32::from(!matches!(fate, Fate::Leaves(_)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cubic, FixedRate, Jitter, Loss, PathSpec, Reno};

    /// Nothing appears or vanishes: at any time, what was sent has arrived, is lost, or is on its way, and
    /// the sender's counts are right.
    #[test]
    fn packets_are_conserved() {
        let mut path = PathSpec::clean(20_000_000, 30 * MILLISECOND);
        path.loss = Loss::Random(0.02);
        path.jitter = Jitter {
            max_ns: 6 * MILLISECOND,
            reorder: true,
        };
        let mut flows = vec![
            FlowSpec::new("reno"),
            FlowSpec::new("cubic"),
            FlowSpec::new("udp"),
        ];
        flows[2].transport = Transport::Udp;
        let scenario = Scenario {
            path,
            flows,
            duration_ns: 10 * SECOND,
            seed: 3,
            series: false,
        };
        let controllers: Vec<Box<dyn Controller>> = vec![
            Box::new(Reno::default()),
            Box::new(Cubic::default()),
            Box::new(FixedRate { rate: 500_000 }),
        ];
        let mut simulation = Simulation::new(scenario, controllers).unwrap();
        let mut steps = 0u64;
        while simulation.step() {
            steps += 1;
            if steps.is_multiple_of(997) {
                for flow in 0..3 {
                    let (sent, arrived, missing, on_the_way) = simulation.account(flow);
                    assert_eq!(sent, arrived + missing + on_the_way, "flow {flow}");
                    simulation.flows[flow].sender.check();
                }
            }
        }
        assert!(steps > 20_000, "{steps}");
        assert!(simulation.flows.iter().all(|flow| flow.missing > 10));
    }
}
