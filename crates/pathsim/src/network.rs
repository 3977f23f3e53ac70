//! What flows share: the link, and the queue of events, in which everything on its way is one.

use crate::WIRE;
use crate::flow::bin;
use crate::link::{Fate, Link, Losses, Markable};
use crate::receiver::Packet;
use crate::results::LinkBin;
use crate::scenario::{InvalidScenario, Scenario};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The sender may have something to do.
    Wake,
    /// A packet is at the receiver.
    Arrive(Packet),
    /// A delayed ACK's timer.
    DelayedAck(u64),
    /// An ACK for all arrivals before this one is at the sender.
    Ack(u64),
    /// The link's next turn; of no flow.
    Turn,
}

/// What the link carries: a flow's packet.
pub(crate) type OfFlow = (u32, Packet);

/// No end understands ECN.
impl Markable for OfFlow {}

/// The link and the events to come.
pub(crate) struct Network {
    pub(crate) queue: BinaryHeap<Reverse<(u64, u64, u32, Event)>>,
    made: u64,
    pub(crate) link: Link<OfFlow>,
    pub(crate) ack_losses: Losses,
    pub(crate) link_bins: Vec<LinkBin>,
    series: bool,
    /// Flows of packets that were dropped for others' since this was looked at.
    pub(crate) displaced: Vec<u32>,
    /// Packets that were lost at random.
    pub(crate) random_losses: u64,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, InvalidScenario> {
        Ok(Self {
            queue: BinaryHeap::new(),
            made: 0,
            link: Link::new(&scenario.path, scenario.seed)?,
            ack_losses: Losses::back(scenario.path.ack_loss, scenario.seed),
            link_bins: Vec::new(),
            series: scenario.series,
            displaced: Vec::new(),
            random_losses: 0,
        })
    }

    pub(crate) fn push(&mut self, at_ns: u64, flow: usize, event: Event) {
        self.made += 1;
        self.queue
            .push(Reverse((at_ns, self.made, flow as u32, event)));
    }

    /// Puts a packet on the link, which has so far to the receiver; returns whether it is already known not to arrive.
    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        flow: usize,
        packet: Packet,
        forward_ns: u64,
    ) -> bool {
        let fate = self
            .link
            .offer(now_ns, flow as u64, WIRE as u32, (flow as u32, packet));
        match fate {
            Fate::Waits(Some(turn_ns)) => self.push(turn_ns, 0, Event::Turn),
            Fate::Displaces((victim, _)) => self.displaced.push(victim),
            _ => {}
        }
        self.pass(now_ns, flow, packet, fate, forward_ns)
    }

    pub(crate) fn pass(
        &mut self,
        now_ns: u64,
        flow: usize,
        packet: Packet,
        fate: Fate<OfFlow>,
        forward_ns: u64,
    ) -> bool {
        let gone = matches!(fate, Fate::Dropped | Fate::Lost);
        self.random_losses += u64::from(matches!(fate, Fate::Lost));
        let one_less = gone || matches!(fate, Fate::Displaces(_));
        if self.series {
            let waiting = self.link.waiting(now_ns) as u32;
            let bin = bin(&mut self.link_bins, now_ns);
            bin.queue_packets = bin.queue_packets.max(waiting);
            bin.lost += u32::from(one_less);
        }
        if let Fate::Leaves(at_ns) | Fate::Marked(at_ns) = fate {
            self.push(at_ns + forward_ns, flow, Event::Arrive(packet));
        }
        gone
    }
}
