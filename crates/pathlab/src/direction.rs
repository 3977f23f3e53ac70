//! One direction of an emulated path, without any input or output.
//!
//! ```text
//!   there  ──▶ pathsim's link: queue, rate, random loss, jitter ──▶ delay line ──▶ release
//!   back   ──▶ random loss ─────────────────────────────────────▶ delay line ──▶ release
//! ```
//!
//! The model is the simulator's ([`pathsim::link`]), so that both backends mean the same by the same words. It
//! keeps a virtual clock: a packet's departure follows from when it arrived, not from when the caller had time to
//! look. A caller that releases packets late delays those packets, but neither the queue nor any later departure,
//! so its timing errors never add up and the capacity stays exact. Turns of CoDel and sfq are taken at the time at
//! which they are due, for the same reason.
//!
//! Time is in nanoseconds from the path's beginning and comes from the caller, as does the seed of chance.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use pathsim::link::{Fate, Link, Losses, Markable};
use pathsim::{InvalidScenario, PathSpec};
use serde::Serialize;

use crate::ecn::Ecn;

/// Packets that a direction holds at most, waiting or travelling. 2^18 full-size packets are 3 Gbit,
/// for example 10 Gbit/s over 300 ms.
pub const MAX_HELD_PACKETS: u64 = 1 << 18;

/// What stands for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where the caller keeps it.
    pub slot: u32,
    /// Number of its flow.
    pub flow: u32,
    /// Length of the IP packet, bytes.
    pub bytes: u32,
    /// When it arrived, ns.
    pub arrived_ns: u64,
    /// Two-way propagation delay of its flow beyond the path's, ns.
    pub extra_rtt_ns: u64,
    /// What its header says of marks.
    pub ecn: Ecn,
}

impl Markable for Packet {
    fn is_markable(&self) -> bool {
        self.ecn != Ecn::NotCapable
    }
}

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The queue had no room, or its discipline dropped it.
    Dropped,
    /// It was lost at random.
    Lost,
    /// The direction held [`MAX_HELD_PACKETS`] already.
    Overflow,
}

/// Packets and bytes of a direction since the path's beginning.
/// `arrived = queue_drops + losses + overflows + released + held` at all times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets dropped because the queue was full, or by its discipline.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub losses: u64,
    /// Packets dropped because the emulator held too many.
    pub overflows: u64,
    /// Packets released at the far end.
    pub released: u64,
    /// Of them those that the queue had marked (ECN).
    pub marked: u64,
    /// Bytes released at the far end.
    pub released_bytes: u64,
    /// Packets still on their way, waiting or travelling.
    pub held: u64,
}

/// A packet at the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// When it was due, ns.
    pub due_ns: u64,
    /// The packet.
    pub packet: Packet,
}

/// One direction of a path.
#[derive(Debug)]
pub struct Direction {
    path: Arc<PathSpec>,
    seed: u64,
    way: Way,
    line: BinaryHeap<Reverse<Travelling>>,
    /// Packets that entered the delay line so far: those due at the same time keep their order.
    entered: u64,
    /// What becomes of packets in the link's turn; kept for its memory.
    fates: Vec<(Packet, Fate<Packet>)>,
    counters: Counters,
}

#[derive(Debug)]
enum Way {
    There {
        link: Box<Link<Packet>>,
        /// The link's next turn, ns.
        turn_ns: Option<u64>,
    },
    Back(Box<Losses>),
}

#[derive(Debug)]
struct Travelling {
    due_ns: u64,
    number: u64,
    packet: Packet,
}

impl Travelling {
    fn key(&self) -> (u64, u64) {
        (self.due_ns, self.number)
    }
}

impl PartialEq for Travelling {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Travelling {}

impl PartialOrd for Travelling {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Travelling {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Way {
    fn there(path: &PathSpec, seed: u64) -> Result<Self, InvalidScenario> {
        Ok(Self::There {
            link: Box::new(Link::new(path, seed)?),
            turn_ns: None,
        })
    }

    fn back(path: &PathSpec, seed: u64) -> Self {
        Self::Back(Box::new(Losses::back(path.ack_loss, seed)))
    }
}

impl Direction {
    /// The way of the data, through the bottleneck.
    ///
    /// # Errors
    /// [`InvalidScenario`] names the value of the path that is out of range.
    pub fn there(path: Arc<PathSpec>, seed: u64) -> Result<Self, InvalidScenario> {
        let way = Way::there(&path, seed)?;
        Ok(Self::new(path, seed, way))
    }

    /// The way of the acknowledgements, which has no rate limit.
    pub fn back(path: Arc<PathSpec>, seed: u64) -> Self {
        let way = Way::back(&path, seed);
        Self::new(path, seed, way)
    }

    fn new(path: Arc<PathSpec>, seed: u64, way: Way) -> Self {
        Self {
            path,
            seed,
            way,
            line: BinaryHeap::new(),
            entered: 0,
            fates: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Begins anew: the time that now is `now_ns` is 0 from now on, and counts are those since then. What is on its
    /// way stays so; `gone` takes what is dropped at once.
    ///
    /// # Errors
    /// None for a path that [`Direction::there`] took.
    pub fn restart(
        &mut self,
        now_ns: u64,
        gone: impl FnMut(Packet, Gone),
    ) -> Result<(), InvalidScenario> {
        // Whatever waits leaves the old link, as fast as that sends.
        self.advance(u64::MAX, gone);
        for Reverse(mut travelling) in std::mem::take(&mut self.line) {
            travelling.due_ns = travelling.due_ns.saturating_sub(now_ns);
            travelling.packet.arrived_ns = travelling.packet.arrived_ns.saturating_sub(now_ns);
            self.line.push(Reverse(travelling));
        }
        self.way = match self.way {
            Way::There { .. } => Way::there(&self.path, self.seed)?,
            Way::Back(_) => Way::back(&self.path, self.seed),
        };
        let held = self.line.len() as u64;
        self.counters = Counters {
            arrived: held,
            held,
            ..Counters::default()
        };
        Ok(())
    }

    /// Takes in a packet; its `arrived_ns` must not go back from call to call. `gone` takes all that are dropped or
    /// lost by now.
    pub fn offer(&mut self, packet: Packet, mut gone: impl FnMut(Packet, Gone)) {
        let now_ns = packet.arrived_ns;
        self.advance(now_ns, &mut gone);
        self.counters.arrived += 1;
        self.counters.held += 1;
        if self.counters.held > MAX_HELD_PACKETS {
            return self.remove(packet, Gone::Overflow, &mut gone);
        }
        let fate = match &mut self.way {
            Way::There { link, turn_ns } => {
                let fate = link.offer(now_ns, packet.flow.into(), packet.bytes, packet);
                if let Fate::Waits(Some(at_ns)) = fate {
                    *turn_ns = Some(at_ns);
                }
                fate
            }
            Way::Back(losses) => match losses.is_next_lost() {
                true => Fate::Lost,
                false => Fate::Leaves(now_ns),
            },
        };
        self.settle(now_ns, packet, fate, &mut gone);
        // A turn may be due at once.
        self.advance(now_ns, gone);
    }

    /// Takes the link's turns up to a time.
    pub fn advance(&mut self, now_ns: u64, mut gone: impl FnMut(Packet, Gone)) {
        while let Way::There { link, turn_ns } = &mut self.way
            && let Some(at_ns) = turn_ns.filter(|at_ns| *at_ns <= now_ns)
        {
            let mut fates = std::mem::take(&mut self.fates);
            *turn_ns = link.serve(at_ns, |packet, fate| fates.push((packet, fate)));
            for (packet, fate) in fates.drain(..) {
                self.settle(at_ns, packet, fate, &mut gone);
            }
            self.fates = fates;
        }
    }

    fn settle(
        &mut self,
        now_ns: u64,
        mut packet: Packet,
        fate: Fate<Packet>,
        gone: &mut impl FnMut(Packet, Gone),
    ) {
        match fate {
            Fate::Dropped => self.remove(packet, Gone::Dropped, gone),
            Fate::Lost => self.remove(packet, Gone::Lost, gone),
            Fate::Displaces(other) => self.remove(other, Gone::Dropped, gone),
            Fate::Waits(_) => {}
            Fate::Leaves(at_ns) | Fate::Marked(at_ns) => {
                if matches!(fate, Fate::Marked(_)) {
                    packet.ecn = Ecn::Marked;
                }
                self.entered += 1;
                let travelling = Travelling {
                    due_ns: at_ns.saturating_add(self.propagation_ns(now_ns, packet.extra_rtt_ns)),
                    number: self.entered,
                    packet,
                };
                self.line.push(Reverse(travelling));
            }
        }
    }

    fn remove(&mut self, packet: Packet, why: Gone, gone: &mut impl FnMut(Packet, Gone)) {
        self.counters.held -= 1;
        match why {
            Gone::Dropped => self.counters.queue_drops += 1,
            Gone::Lost => self.counters.losses += 1,
            Gone::Overflow => self.counters.overflows += 1,
        }
        gone(packet, why);
    }

    /// Of what sets out now, ns.
    fn propagation_ns(&self, now_ns: u64, extra_rtt_ns: u64) -> u64 {
        let rtt_ns = self.path.rtt_at_ns(now_ns).saturating_add(extra_rtt_ns);
        match self.way {
            Way::There { .. } => rtt_ns / 2,
            Way::Back(_) => rtt_ns - rtt_ns / 2,
        }
    }

    /// When there is something to do: a packet due at the far end, or a turn of the link, ns.
    pub fn next_ns(&self) -> Option<u64> {
        let due_ns = self.line.peek().map(|Reverse(first)| first.due_ns);
        let turn_ns = match self.way {
            Way::There { turn_ns, .. } => turn_ns,
            Way::Back(_) => None,
        };
        [due_ns, turn_ns].into_iter().flatten().min()
    }

    /// Hands out the next packet that is due, if there is one. [Advance](Self::advance) first.
    pub fn release(&mut self, now_ns: u64) -> Option<Released> {
        let Reverse(first) = self.line.peek()?;
        if first.due_ns > now_ns {
            return None;
        }
        let Reverse(Travelling { due_ns, packet, .. }) = self.line.pop()?;
        if let Way::There { link, .. } = &mut self.way {
            link.arrived();
        }
        self.counters.held -= 1;
        self.counters.released += 1;
        self.counters.marked += u64::from(packet.ecn == Ecn::Marked);
        self.counters.released_bytes += u64::from(packet.bytes);
        Some(Released { due_ns, packet })
    }

    /// Packets that wait for the bottleneck, without the one in transmission.
    pub fn waiting(&mut self, now_ns: u64) -> usize {
        match &mut self.way {
            Way::There { link, .. } => link.waiting(now_ns),
            Way::Back(_) => 0,
        }
    }

    /// Most packets that waited at a time.
    pub fn queue_peak(&self) -> usize {
        match &self.way {
            Way::There { link, .. } => link.peak(),
            Way::Back(_) => 0,
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
