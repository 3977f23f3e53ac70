//! The run: events in order of time, and what they do to senders, link and receivers.
//!
//! Events at the same time happen in the order in which they were made. A flow has at most one
//! wake-up that counts; others in the queue are stale and do nothing.

use crate::control::Controller;
use crate::flow::Flow;
use crate::link::Fate;
use crate::network::{Event, Network, OfFlow};
use crate::receiver::{Answer, Packet};
use crate::results::Results;
use crate::scenario::{InvalidScenario, Scenario, Source, Transport};
use crate::{MSS, SECOND};
use std::cmp::Reverse;

/// A scenario in progress.
pub struct Simulation<'a> {
    scenario: Scenario,
    network: Network,
    handled: u64,
    now_ns: u64,
    flows: Vec<Flow<'a>>,
    /// What becomes of packets in the link's turn; kept for its memory.
    fates: Vec<(OfFlow, Fate<OfFlow>)>,
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
        let flows = flows
            .map(|(spec, controller)| Flow::new(spec, controller, &scenario))
            .collect();
        let mut simulation = Self {
            network: Network::new(&scenario)?,
            flows,
            fates: Vec::new(),
            handled: 0,
            now_ns: 0,
            scenario,
        };
        for (index, flow) in simulation.flows.iter_mut().enumerate() {
            flow.wake_ns = flow.spec.start_ns;
            simulation.network.push(flow.wake_ns, index, Event::Wake);
        }
        Ok(simulation)
    }

    /// Runs to the end.
    pub fn run(mut self) -> Results {
        while self.step() {}
        self.results()
    }

    /// Runs to the end, and says every simulated second how far it is (s).
    pub fn run_with_progress(self, mut progress: impl FnMut(u64)) -> Results {
        let ended = self.run_while(|second| {
            progress(second);
            true
        });
        // Nothing has asked it to stop.
        ended.unwrap_or_else(|stopped| stopped.results())
    }

    /// Runs to the end, if every simulated second (s) is allowed to begin.
    ///
    /// # Errors
    /// The simulation as far as it is, if one was not.
    #[allow(clippy::result_large_err, reason = "once in a run")]
    pub fn run_while(mut self, mut go_on: impl FnMut(u64) -> bool) -> Result<Results, Self> {
        if self.advance(|_, second| go_on(second)) {
            Ok(self.results())
        } else {
            Err(self)
        }
    }

    /// Time at which the last of the flows with a size is complete, ns; `None` if one never is, if there are none, or
    /// if a simulated second (s) before it was not allowed to begin.
    pub fn transfers_end_ns(mut self, mut go_on: impl FnMut(u64) -> bool) -> Option<u64> {
        self.advance(|run, second| run.completed_ns().is_none() && go_on(second));
        self.completed_ns()
    }

    /// Goes on to the end, if every simulated second (s) is allowed to begin; whether it got there.
    fn advance(&mut self, mut go_on: impl FnMut(&Self, u64) -> bool) -> bool {
        let mut second = 0;
        while self.step() {
            if self.now_ns / SECOND > second {
                second = self.now_ns / SECOND;
                if !go_on(self, second) {
                    return false;
                }
            }
        }
        true
    }

    /// When the flows with a size were complete, if there are some and all are, ns.
    fn completed_ns(&self) -> Option<u64> {
        let flows = self.flows.iter();
        let mut sized = flows.filter(|flow| matches!(flow.spec.source, Source::Bytes(_)));
        let first = sized.next()?.counts.completed_ns?;
        sized.try_fold(first, |last, flow| {
            Some(last.max(flow.counts.completed_ns?))
        })
    }

    /// Handles one event; `false` at the end of the run.
    fn step(&mut self) -> bool {
        let Some(Reverse((now_ns, _, index, event))) = self.network.queue.pop() else {
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
            Event::Arrive(packet) => {
                self.network.link.arrived();
                self.arrive(index, packet);
            }
            Event::DelayedAck(number) => {
                if let Some(answer) = self.flows[index].receiver.delayed(number) {
                    self.answer(index, answer);
                }
            }
            Event::Ack(before) => self.ack(index, before),
            Event::Turn => self.turn(),
        }
        true
    }

    /// Propagation delay of a flow's packets to the receiver, for those that leave now, and of its ACKs, ns.
    fn ways_ns(&self, flow: usize) -> (u64, u64) {
        let path = &self.scenario.path;
        let rtt_ns = path.rtt_at_ns(self.now_ns) + self.flows[flow].spec.extra_rtt_ns;
        (rtt_ns / 2, rtt_ns - rtt_ns / 2)
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
        let (forward_ns, _) = self.ways_ns(index);
        let (flow, network) = (&mut self.flows[index], &mut self.network);
        if now_ns >= flow.end_ns {
            return;
        }
        let missing = &mut flow.counts.missing;
        flow.sender
            .send(now_ns, flow.controller.as_ref(), |packet| {
                *missing += u64::from(network.transmit(now_ns, index, packet, forward_ns));
            });
        self.count_displaced();
        let (flow, network) = (&mut self.flows[index], &mut self.network);
        let sender = flow.sender.wake_at_ns();
        let next = [sender, flow.controller.wake_at_ns()];
        let next = next.into_iter().flatten().min().unwrap_or(u64::MAX);
        let next = next.max(now_ns + 1);
        if next < flow.wake_ns {
            flow.wake_ns = next;
            if next < flow.end_ns {
                network.push(next, index, Event::Wake);
            }
        }
    }

    fn transmit(&mut self, index: usize, packet: Packet) {
        let (forward_ns, _) = self.ways_ns(index);
        let gone = self
            .network
            .transmit(self.now_ns, index, packet, forward_ns);
        self.flows[index].counts.missing += u64::from(gone);
        self.count_displaced();
    }

    /// Other flows' packets that were dropped for one that was sent.
    fn count_displaced(&mut self) {
        for victim in self.network.displaced.drain(..) {
            self.flows[victim as usize].counts.missing += 1;
        }
    }

    /// The link's turn: one packet leaves, and others may be dropped.
    fn turn(&mut self) {
        let now_ns = self.now_ns;
        let mut fates = std::mem::take(&mut self.fates);
        let next = self
            .network
            .link
            .serve(now_ns, |packet, fate| fates.push((packet, fate)));
        for ((index, packet), fate) in fates.drain(..) {
            let index = index as usize;
            let (forward_ns, _) = self.ways_ns(index);
            let gone = self.network.pass(now_ns, index, packet, fate, forward_ns);
            self.flows[index].counts.missing += u64::from(gone);
        }
        self.fates = fates;
        if let Some(next_ns) = next {
            self.network.push(next_ns, 0, Event::Turn);
        }
    }

    fn send_datagram(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let done = match flow.spec.source {
            Source::Bytes(bytes) => flow.udp.sent * MSS >= bytes,
            Source::Endless | Source::Rate(_) | Source::Chunks { .. } => false,
        };
        if done {
            return;
        }
        let number = flow.udp.sent;
        flow.udp.sent += 1;
        let own = flow.controller.sending().rate.unwrap_or(1);
        let rate = match flow.spec.source {
            Source::Rate(bps) => own.min(bps / 8),
            Source::Endless | Source::Bytes(_) | Source::Chunks { .. } => own,
        };
        // From the start on, so that roundings do not add up.
        let elapsed =
            u128::from(flow.udp.sent * MSS) * u128::from(SECOND) / u128::from(rate.max(1));
        let next_ns = flow.spec.start_ns + elapsed as u64;
        flow.wake_ns = next_ns;
        self.network.push(next_ns, index, Event::Wake);
        let packet = Packet {
            tx: number,
            segment: number,
            sent_ns: self.now_ns,
        };
        self.transmit(index, packet);
    }

    fn arrive(&mut self, index: usize, packet: Packet) {
        let now_ns = self.now_ns;
        let flow = &mut self.flows[index];
        flow.note_arrival(now_ns, packet.sent_ns, self.scenario.series);
        if now_ns >= flow.end_ns {
            return;
        }
        if flow.receiver.denies(&packet) {
            return;
        }
        let (new, answer) = match flow.spec.transport {
            Transport::Tcp => flow.receiver.arrive(packet),
            Transport::Udp => (true, Answer::Wait),
        };
        if new {
            flow.note_goodput(now_ns, &self.scenario);
        }
        self.answer(index, answer);
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        let now_ns = self.now_ns;
        match answer {
            Answer::Ack(before) => {
                let (_, back_ns) = self.ways_ns(index);
                let flow = &mut self.flows[index];
                // ACKs leave in order.
                let release_ns = flow.receiver.release_ns(now_ns);
                flow.last_release_ns = flow.last_release_ns.max(release_ns);
                let at_ns = flow.last_release_ns + back_ns;
                if !self.network.ack_losses.is_next_lost() {
                    self.network.push(at_ns, index, Event::Ack(before));
                }
            }
            Answer::Delay(number, ns) => {
                self.network
                    .push(now_ns + ns, index, Event::DelayedAck(number));
            }
            Answer::Wait => {}
        }
    }

    fn ack(&mut self, index: usize, before: u64) {
        let now_ns = self.now_ns;
        let flow = &mut self.flows[index];
        if now_ns >= flow.end_ns {
            return;
        }
        flow.note_srtt(now_ns);
        let rtt_ns = if flow.receiver.is_claiming() {
            let claim = flow.receiver.claim(before).unwrap_or(0);
            let claimed = flow.sender.not_delivered_below(claim);
            if claimed.is_empty() {
                return;
            }
            let (sender, controller) = (&mut flow.sender, flow.controller.as_mut());
            sender.on_ack(now_ns, claimed.into_iter(), controller)
        } else {
            let mut packets = flow.receiver.take(before).peekable();
            if packets.peek().is_none() {
                return; // overtaken by a later ACK
            }
            let (sender, controller) = (&mut flow.sender, flow.controller.as_mut());
            sender.on_ack(now_ns, packets, controller)
        };
        if let Some(rtt_ns) = rtt_ns {
            flow.note_rtt(now_ns, rtt_ns, self.scenario.series);
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
        let Self {
            scenario,
            network,
            flows,
            handled,
            ..
        } = self;
        Results::of(
            &scenario,
            flows,
            network.link.peak(),
            network.link_bins,
            network.random_losses,
            handled,
        )
    }

    /// Packets that were sent, arrived, were dropped or lost, and are on their way, of one flow; for tests.
    #[cfg(test)]
    fn account(&self, index: usize) -> (u64, u64, u64, u64) {
        let flow = &self.flows[index];
        let queue = self.network.queue.iter();
        let on_the_way = queue.filter(|Reverse((_, _, of, event))| {
            *of as usize == index && matches!(event, Event::Arrive(_))
        });
        let waiting = self
            .network
            .link
            .waiting_of(|(of, _)| *of as usize == index);
        let counts = &flow.counts;
        let on_the_way = on_the_way.count() + waiting;
        (
            flow.sent(),
            counts.arrived,
            counts.missing,
            on_the_way as u64,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CoDel, Cubic, FixedRate, FlowSpec, Jitter, Loss, MILLISECOND, PathSpec, QueueDiscipline,
        QueueLimit, Reno, RouteChange, Sfq,
    };

    /// Nothing appears or vanishes: at any time, what was sent has arrived, is lost, or is on its way, and
    /// the sender's counts are right.
    fn conserves_packets(change: impl FnOnce(&mut Scenario)) {
        let mut path = PathSpec::clean(20_000_000, 30 * MILLISECOND);
        path.loss = Loss::Random(0.02);
        path.jitter = Jitter::Uniform {
            max_ns: 6 * MILLISECOND,
            reorder: true,
        };
        let mut flows = vec![
            FlowSpec::new("reno"),
            FlowSpec::new("cubic"),
            FlowSpec::new("udp"),
        ];
        flows[2].transport = Transport::Udp;
        let mut scenario = Scenario {
            path,
            flows,
            duration_ns: 10 * SECOND,
            seed: 3,
            series: false,
        };
        change(&mut scenario);
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
        assert!(steps > 10_000, "{steps}");
        let missing = |flow: &Flow<'_>| flow.counts.missing;
        assert!(simulation.flows.iter().all(|flow| missing(flow) > 10));
    }

    #[test]
    fn packets_are_conserved() {
        conserves_packets(|_| {});
    }

    #[test]
    fn packets_are_conserved_under_sfq_and_a_delay_limit() {
        conserves_packets(|scenario| {
            scenario.path.discipline = QueueDiscipline::Sfq(Sfq::default());
            scenario.path.queue = QueueLimit::Packets(20);
            scenario.path.delay_limit_packets = Some(60);
        });
    }

    #[test]
    fn packets_are_conserved_under_codel_and_everything_else() {
        conserves_packets(|scenario| {
            scenario.path.discipline = QueueDiscipline::CoDel(CoDel::default());
            scenario.path.ack_loss = Loss::Random(0.1);
            let changes = [(3, 80), (6, 5)].map(|(s, ms)| RouteChange {
                at_ns: s * SECOND,
                rtt_ns: ms * MILLISECOND,
            });
            scenario.path.route_changes = changes.to_vec();
            scenario.flows[0].receive_window = Some(30_000);
            scenario.flows[1].acks.aggregation_ns = 7 * MILLISECOND;
        });
    }
}
