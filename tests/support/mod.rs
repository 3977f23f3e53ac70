//! A deterministic path for closed loops: flows of endless data through one drop-tail bottleneck with random loss, ACK
//! by ACK, under the real program and the real controller. Losses are found by three later arrivals or by a timeout;
//! what is lost is not sent again, which changes nothing for a rate-based sender. Rates pace payload, as TCP's own
//! timer does.

#![allow(dead_code)] // each test binary uses its part

use ccp_vm::{Machine, Primitives, Program, Updates};
use pk3c_ccp::controller::{Controller, FlowStart};
use pk3c_ccp::params::Params;
use pk3c_ccp::plan::{Command, Decision};
use pk3c_ccp::program::{self, RawReport};
use pk3c_ccp::units::Bytes;
use portus::lang::{self, Reg, Scope};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

pub(crate) const MSS: u64 = 1448;
const WIRE: f64 = 1500.0;
const NS: f64 = 1e9;
const DELAYED_ACK_NS: u64 = 40_000_000;

/// The path and what runs over it.
#[derive(Clone)]
pub(crate) struct Path {
    pub(crate) mbit: f64,
    pub(crate) rtt_ms: f64,
    pub(crate) buffer_pkts: f64,
    pub(crate) loss: f64,
    /// Packets per ACK.
    pub(crate) ack_every: usize,
    pub(crate) starts_s: Vec<f64>,
    /// The flow whose reports and decisions are kept.
    pub(crate) traced: usize,
    pub(crate) seconds: f64,
    pub(crate) params: Params,
}

impl Path {
    /// One flow, a buffer of one bandwidth-delay product, no loss, delayed ACKs, 20 s.
    pub(crate) fn new(mbit: f64, rtt_ms: f64) -> Self {
        Self {
            mbit,
            rtt_ms,
            buffer_pkts: (mbit * 1e6 / 8.0 * rtt_ms / 1e3 / WIRE).max(4.0),
            loss: 0.0,
            ack_every: 2,
            starts_s: vec![0.0],
            traced: 0,
            seconds: 20.0,
            params: Params::default(),
        }
    }

    pub(crate) fn run(&self, seed: u64) -> Outcome {
        let mut world = World::new(self.clone(), seed);
        world.run();
        world.outcome()
    }
}

/// What a run showed.
pub(crate) struct Outcome {
    /// Delivered packets per flow and 100 ms.
    pub(crate) delivered: Vec<Vec<f64>>,
    rtts_ms: Vec<f64>,
    pub(crate) lost: f64,
    pub(crate) aborted: u64,
    pub(crate) timeouts: u64,
    path: Path,
    /// Every report and decision of the traced flow.
    pub(crate) trace: Vec<(RawReport, Decision)>,
}

impl Outcome {
    fn bins(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = f64> + '_ {
        let range = (from_s * 10.0).round() as usize..(to_s * 10.0).round() as usize;
        self.delivered
            .iter()
            .map(move |bins| bins.iter().take(range.end).skip(range.start).sum())
    }

    /// Goodput of all flows over what the link can carry, without what it loses at random.
    pub(crate) fn share(&self, from_s: f64, to_s: f64) -> f64 {
        let capacity = self.path.mbit * 1e6 / 8.0 / WIRE * (to_s - from_s) * (1.0 - self.path.loss);
        self.bins(from_s, to_s).sum::<f64>() / capacity
    }

    /// Jain's index of the flows' goodput.
    pub(crate) fn jain(&self, from_s: f64, to_s: f64) -> f64 {
        let flows: Vec<f64> = self.bins(from_s, to_s).collect();
        let sum: f64 = flows.iter().sum();
        sum * sum / (flows.len() as f64 * flows.iter().map(|x| x * x).sum::<f64>())
    }

    /// RTT in ms below which this part of the samples lies.
    pub(crate) fn rtt_quantile(&self, part: f64) -> f64 {
        let mut sorted = self.rtts_ms.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * part) as usize]
    }

    /// Lost part of all packets.
    pub(crate) fn loss(&self) -> f64 {
        self.lost / (self.lost + self.delivered.iter().flatten().sum::<f64>())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    /// A packet (number) at the receiver; the way back is counted into the way there.
    Arrive(usize, u64),
    DelayedAck(usize, u64),
    Timer(usize),
}

struct Packet {
    sent_ns: u64,
    acked: bool,
}

struct Flow {
    machine: Machine,
    /// Bytes, and bytes per second, as the machine set them last.
    cwnd: u64,
    rate: u64,
    /// Invocations that an overflow, underflow or division by zero ended.
    aborted: u64,
    controller: Controller,
    /// Packets sent and not yet accounted for; the first has number `first`.
    flight: VecDeque<Packet>,
    first: u64,
    outstanding: u64,
    next_send_ns: u64,
    send_armed: bool,
    /// Receiver: arrived and not yet acknowledged.
    unacked: Vec<u64>,
    expected: u64,
    last_ack_ns: u64,
    srtt_ns: f64,
    delivered: Vec<f64>,
}

impl Flow {
    /// One ACK, or a timeout, on the machine. Returns the report, if it made one.
    fn invoke(&mut self, now_us: u64, ack: Primitives) -> Option<[u64; 16]> {
        // Something always waits to be acknowledged.
        let ack = Primitives {
            bytes_pending: 1,
            ..ack
        };
        let outcome = self.machine.invoke(now_us, &ack, self.cwnd, self.rate);
        self.cwnd = outcome.cwnd.unwrap_or(self.cwnd);
        self.rate = outcome.rate.unwrap_or(self.rate);
        self.aborted += u64::from(outcome.error.is_some());
        let report = outcome.report?;
        Some(report.fields().try_into().expect("sixteen fields"))
    }
}

struct World {
    path: Path,
    /// Of the program.
    scope: Scope,
    rng: ChaCha8Rng,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events: u64,
    busy_until_ns: f64,
    flows: Vec<Flow>,
    out: Outcome,
}

impl World {
    fn new(path: Path, seed: u64) -> Self {
        let params = Arc::new(path.params.clone());
        let (program, scope) = compiled();
        let mut world = Self {
            scope,
            rng: ChaCha8Rng::seed_from_u64(seed),
            queue: BinaryHeap::new(),
            events: 0,
            busy_until_ns: 0.0,
            flows: Vec::new(),
            out: Outcome {
                delivered: Vec::new(),
                rtts_ms: Vec::new(),
                lost: 0.0,
                aborted: 0,
                timeouts: 0,
                path: path.clone(),
                trace: Vec::new(),
            },
            path,
        };
        for (index, start_s) in world.path.starts_s.clone().into_iter().enumerate() {
            let start = FlowStart {
                mss: Bytes::new(MSS),
                init_cwnd: Bytes::new(10 * MSS),
                resume: None,
            };
            let (controller, first) =
                Controller::new(params.clone(), seed * 1000 + index as u64, start);
            let start_ns = (start_s * NS) as u64;
            let mut flow = Flow {
                machine: Machine::new(),
                cwnd: 0,
                rate: 0,
                aborted: 0,
                controller,
                flight: VecDeque::new(),
                first: 0,
                outstanding: 0,
                next_send_ns: start_ns,
                send_armed: true,
                unacked: Vec::new(),
                expected: 0,
                last_ack_ns: start_ns,
                srtt_ns: 0.0,
                delivered: Vec::new(),
            };
            let command = first.command.expect("the first decision is a command");
            let updates = updates(&world.scope, command);
            flow.machine.change_program(program.clone(), &updates);
            // Sent along with the program, so it holds before the first ACK.
            flow.invoke(start_ns / 1000, Primitives::default());
            world.flows.push(flow);
            world.at(start_ns, Event::Send(index));
            world.at(start_ns, Event::Timer(index));
        }
        world
    }

    fn at(&mut self, ns: u64, event: Event) {
        self.events += 1;
        self.queue.push(Reverse((ns, self.events, event)));
    }

    fn run(&mut self) {
        let end = (self.path.seconds * NS) as u64;
        while let Some(Reverse((now, _, event))) =
            self.queue.pop().filter(|Reverse((now, ..))| *now < end)
        {
            match event {
                Event::Send(flow) => self.send(now, flow),
                Event::Arrive(flow, number) => self.arrive(now, flow, number),
                Event::DelayedAck(flow, number) => {
                    if self.flows[flow].unacked.first() == Some(&number) {
                        self.ack(now, flow);
                    }
                }
                Event::Timer(flow) => self.timer(now, flow),
            }
        }
    }

    fn send(&mut self, now: u64, index: usize) {
        let flow = &mut self.flows[index];
        flow.send_armed = false;
        if flow.outstanding >= flow.cwnd / MSS {
            return;
        }
        let number = flow.first + flow.flight.len() as u64;
        flow.flight.push_back(Packet {
            sent_ns: now,
            acked: false,
        });
        if flow.outstanding == 0 {
            flow.last_ack_ns = now; // the retransmission timer starts
        }
        flow.outstanding += 1;
        flow.next_send_ns = now + (MSS as f64 * NS / flow.rate as f64) as u64;
        flow.send_armed = true;
        let next = flow.next_send_ns;
        self.at(next, Event::Send(index));
        let service = WIRE * 8e3 / self.path.mbit;
        let waiting = (self.busy_until_ns - now as f64).max(0.0) / service;
        let dropped = waiting >= self.path.buffer_pkts + 1.0;
        if dropped {
            return;
        }
        self.busy_until_ns = self.busy_until_ns.max(now as f64) + service;
        // Lost beyond the bottleneck, as on a radio link.
        if self.rng.random::<f64>() >= self.path.loss {
            let arrival = self.busy_until_ns + self.path.rtt_ms * 1e6;
            self.at(arrival as u64, Event::Arrive(index, number));
        }
    }

    fn arrive(&mut self, now: u64, index: usize, number: u64) {
        let flow = &mut self.flows[index];
        let in_order = number == flow.expected;
        flow.expected = number + 1;
        flow.unacked.push(number);
        if !in_order || flow.unacked.len() >= self.path.ack_every {
            self.ack(now, index);
        } else if flow.unacked.len() == 1 {
            self.at(now + DELAYED_ACK_NS, Event::DelayedAck(index, number));
        }
    }

    fn ack(&mut self, now: u64, index: usize) {
        let flow = &mut self.flows[index];
        let mut acked = 0;
        let mut rtt_ns = None;
        for number in flow.unacked.drain(..) {
            let Some(at) = number.checked_sub(flow.first) else {
                continue;
            };
            if let Some(packet) = flow
                .flight
                .get_mut(at as usize)
                .filter(|packet| !packet.acked)
            {
                packet.acked = true;
                acked += 1;
                rtt_ns = Some(now - packet.sent_ns);
            }
        }
        let mut lost = 0;
        while let Some(packet) = flow.flight.front() {
            if !packet.acked {
                if flow.first + 3 >= flow.expected {
                    break;
                }
                lost += 1;
            }
            flow.flight.pop_front();
            flow.first += 1;
        }
        flow.outstanding -= acked + lost;
        flow.last_ack_ns = now;
        let bin = (now / 100_000_000) as usize;
        flow.delivered
            .resize(flow.delivered.len().max(bin + 1), 0.0);
        flow.delivered[bin] += acked as f64;
        self.out.lost += lost as f64;
        if let Some(rtt) = rtt_ns {
            flow.srtt_ns = if flow.srtt_ns == 0.0 {
                rtt as f64
            } else {
                flow.srtt_ns * 0.875 + rtt as f64 * 0.125
            };
            self.out.rtts_ms.push(rtt as f64 * 1e-6);
        }
        let ack = Primitives {
            rtt_sample_us: rtt_ns.map_or(0, |ns| (ns / 1000).max(1)),
            packets_acked: acked,
            lost_pkts_sample: lost,
            ..Primitives::default()
        };
        self.program(now, index, ack);
    }

    fn timer(&mut self, now: u64, index: usize) {
        let flow = &mut self.flows[index];
        let timeout_ns = (2.0 * flow.srtt_ns).max(0.3 * NS) + 0.2 * NS;
        if flow.outstanding > 0 && (now - flow.last_ack_ns) as f64 > timeout_ns {
            self.out.lost += flow.outstanding as f64;
            self.out.timeouts += 1;
            flow.first += flow.flight.len() as u64;
            flow.flight.clear();
            flow.outstanding = 0;
            flow.last_ack_ns = now;
            let expired = Primitives {
                was_timeout: true,
                ..Primitives::default()
            };
            self.program(now, index, expired);
        }
        self.at(now + 50_000_000, Event::Timer(index));
    }

    fn program(&mut self, now: u64, index: usize, primitives: Primitives) {
        let flow = &mut self.flows[index];
        if let Some(fields) = flow.invoke(now / 1000, primitives) {
            let raw = RawReport::from_fields(fields);
            let decision = flow.controller.on_report(&raw);
            if let Some(command) = decision.command {
                let updates = updates(&self.scope, command);
                flow.machine.update(&updates).expect("it has a program");
            }
            if index == self.path.traced {
                self.out.trace.push((raw, decision));
            }
        }
        if !flow.send_armed {
            flow.send_armed = true;
            let at = flow.next_send_ns.max(now);
            self.at(at, Event::Send(index));
        }
    }

    fn outcome(mut self) -> Outcome {
        self.out.aborted = self.flows.iter().map(|flow| flow.aborted).sum();
        self.out.delivered = self.flows.into_iter().map(|flow| flow.delivered).collect();
        self.out
    }
}

/// The program as an agent installs it, and the scope that knows its registers.
fn compiled() -> (Arc<Program>, Scope) {
    let (bin, scope) = lang::compile(program::text().as_bytes(), &[]).expect("it compiles");
    let mut install = scope.program_uid.to_le_bytes().to_vec();
    install.extend((bin.events.len() as u32).to_le_bytes());
    install.extend((bin.instrs.len() as u32).to_le_bytes());
    install.extend(bin.serialize().expect("it serializes"));
    let program = Program::parse(&install).expect("it is valid");
    (Arc::new(program), scope)
}

fn updates(scope: &Scope, command: Command) -> Updates {
    let mut updates = Updates::default();
    command.fields(|fields| {
        for (name, value) in fields {
            let entry = match scope.get(name) {
                Some(Reg::Control(index, ..)) => usize::from(*index),
                Some(Reg::Implicit(4, _)) => Updates::CWND,
                Some(Reg::Implicit(5, _)) => Updates::RATE,
                other => panic!("{name} cannot be updated: {other:?}"),
            };
            updates.set(entry, u64::from(*value));
        }
    });
    updates
}
