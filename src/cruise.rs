//! Cruise: a flow that has all of its path rides at the edge of it.
//!
//! Vivace learns the best rate by comparing others with it, some per cent away; on the way back from each overshoot,
//! and in each trial below, it leaves the path that much. It must, where it knows neither the path's rate nor who else
//! is there. A flow whose first ACKs have told what the path carries, and that gets all of it ([`OwnPath`]), knows
//! both: nobody is there to be compared with, and the best rate is the one at which the queue does not grow. So it
//! stays there, and lets the queue itself tell:
//!
//! ```text
//!                            _.-'|                _.-'|          climbs by half a per cent per RTT, less near the tolerated queue, more
//!                     ___.--'    |         ___.--'    |          the further beyond the edge, until more than a packet stands
//!   edge     - - - - | - - - - - | - - - - | - - - - - | - -     comes back a little beyond it
//!                    |           |         |           |
//!                    |           '---------'           '-----    then below what arrived, by as much as lets the queue out in
//!            --------'                                           two RTTs, and back when no more than a packet stands
//! ```
//!
//! The queue is what even the fastest packets of an interval met, less the jitter, as the climber sees it, and the
//! climb slows towards the tolerated one in the same way. A packet's time that stands at any rate is none: the kernel
//! sends at least two packets at once, the second of which waits for the first. Loss beyond the path's own counts as a
//! full queue, since a short buffer has no other sign. Where an RTT holds few packets, an interval tells what arrives
//! within one or two of them: then an edge that is met again moves by a quarter of what it differs.
//!
//! It ends where the path is no longer the flow's own:
//!
//! ```text
//!   less arrives at a full queue than all of the path    others have come: search, by Vivace or the climber (cruise-end)
//!   a queue stands that is not tolerated, or RTTs climb  the queue handbrake drains, as it does Vivace's (queue-cut)
//!   more arrives beyond an edge that was met, no queue   the path has become wider: a restart finds how much (restart)
//! ```
//!
//! Where losses told of the edge, less arrived between them than the path carries, and a little more is no wider path:
//! there more must arrive than the path is known to carry.
//!
//! After a drain it comes back by itself, where as much as before can be had.
//!
//! Limits: on a path whose rate the train did not tell, on one of less than two of the kernel's bursts (2 ms up to 500
//! Mbit/s) or of eight packets, and for flows that a new agent takes over, there is no cruise. A flow that leaves no
//! queue to speak of does not see another one in the queue, only that less arrives.

mod own_path;

use crate::aimd::{self, Aimd, Evidence};
use crate::estimate::{Estimator, Mi};
use crate::handbrake::{View, burst_time};
use crate::params::Params;
use crate::plan::Reason;
use crate::units::{Micros, Rate};
use crate::vivace::Edge;
pub use own_path::OwnPath;

/// Queue tolerated, in packets, or in smallest RTTs and at most absolutely, if that is more; never more than the
/// climber's. Source: simulated, 65 narrow paths: 2 packets keep 119 of 153 goals, 1 keeps 122, half of one 123;
/// measured on Linux 6.18 at 10 Mbit/s, 10 and 20 ms, with bursts of two: 9.41 and 9.45 Mbit/s with 1, 9.36 and 9.12
/// with half of one. 83 clean and deep paths: 1 ms for 0.5 the same. 22 paths below 3 ms: without the part of the RTT
/// RTTs p95 are a fifth longer, and .24 % is lost for .18.
const QUEUE_PKTS: f64 = 1.0;
const QUEUE_RTTS: f64 = 0.2;
const QUEUE_MOST: Micros = Micros::new(500);
/// RTTs in which a queue is let out. Source: simulated, the same paths and 39 shallow ones: use .989 and .984 with 1,
/// .991 and .987 with 2 and 3.
const DRAIN_RTTS: f64 = 2.0;
/// Part of what arrives that is left to the queue: at least, at least after a loss, and at most. Source: less does not
/// show among bursts; simulated, 39 shallow buffers keep 108 and 109 of 117 goals with .05 and .03 after a loss; as the
/// climber's.
const LET_OUT_LEAST: f64 = 0.02;
const LET_OUT_AFTER_LOSS: f64 = 0.05;
const LET_OUT_MOST: f64 = 0.25;
/// Climb per RTT, in packets and as a part of the window, at least; and how far beyond the edge it is twice that.
/// Source: simulated, the same paths: 193 goals for 197 with a part of .01, for longer queues; twice that .00375 or
/// .015 beyond makes no difference.
const CLIMB_PKTS: f64 = 0.125;
const CLIMB_PART: f64 = 0.005;
const TWICE_BEYOND: f64 = 0.0075;
/// So far beyond the edge, and so much more arriving, with less than this part of the tolerated queue, shows a wider
/// path. Source: simulated, 91 goals with newcomers and paths that change: 80 with 1.025, 77 with 1.015 and 1.035,
/// within chance.
const WIDER_RATE: f64 = 1.025;
const WIDER_ARRIVES: f64 = 1.02;
const WIDER_QUEUE: f64 = 0.25;
/// And so many packets per RTT beyond it: a narrow path's edge is known within one or two. Source: measured at 10
/// Mbit/s, 10 ms: .19 % lost without, in restarts on a path that is no wider, .01 with; simulated, with 2 five of 38
/// paths that change are found later.
const WIDER_PKTS: f64 = 1.0;
/// Weight of what arrives in an edge that is met again, where they differ by no more than one ACK tells of. Source:
/// measured at the same, RTT p95 14.3 ms with it, 16.4 without.
const EDGE_WEIGHT: f64 = 0.25;
/// An RTT holds so many of the kernel's bursts, at least, or they are all of the queue that is seen. Source: measured
/// on Linux 6.18, five and seven runs at 300 Mbit/s and 1 ms: .87 to .89 of the path used at the edge, .90 to .95 by
/// Vivace; at 150 Mbit/s and 3 ms both .97.
const RTT_BURSTS: f64 = 2.0;
/// Packets of an RTT, at least; and where the path loses more than so much by itself, which few packets cannot tell
/// from a full queue. Source: simulated, 65 narrow paths: with 6 two of five packets are used by .92 for .99; without
/// the last four with loss are used by .955 for .961.
const LEAST_PKTS: f64 = 8.0;
const LEAST_PKTS_LOSSY: f64 = 15.0;
const LOSSY: f64 = 0.005;
/// Where it comes back to a queue's edge, over that. Source: simulated, 24 paths that triple at four times each: 47 of 96
/// are used by 80 % later than 10 RTTs and one, 29 with this, 25 and 18 with 1.01 and 1.015. It costs a queue: 35 clean
/// paths have an RTT p95 longer by 1.2 % with this, 2.1 and 3 % with those.
const BACK_BEYOND: f64 = 1.0075;
/// So much more than the edge arriving, without a queue, says that none is to come. Source: the same: 21 are late for 29,
/// and the clean paths' RTTs are the same. Half of it does the same.
const MORE_ARRIVES: f64 = 1.004;
/// Intervals after which a step back shows; and RTTs in which what was sent before the cruise is reported.
const HOLDOFF: f64 = 2.0;
const FIRST_HOLDOFF_RTTS: f64 = 2.0;

/// Whether, and by what, the edge was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Not yet.
    Never,
    /// A queue that was full.
    Queue,
    /// Losses, between which less arrives than the path carries.
    Loss,
}

/// A flow that rides at the edge.
#[derive(Clone, Copy, Debug)]
pub struct Cruise {
    /// What arrived when the queue was last full; what is known of the path before.
    edge: Rate,
    met: Met,
    patient_until: Micros,
    /// The smallest queue so far.
    least: Micros,
    evidence: Evidence,
}

/// What an interval means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ride {
    /// Goes on, at this rate.
    On(Rate, Reason),
    /// Less than all of the path arrives: others share it. Search, from this rate on, below this edge.
    Shared(Rate, Edge),
    /// The path carries more than it did.
    Wider,
}

impl Cruise {
    /// Begins on a path that bears `edge`; `met` says whether so much arrived at a full queue.
    #[must_use]
    pub fn new(edge: Rate, met: Met, est: &Estimator) -> Self {
        Self {
            edge,
            met,
            patient_until: est.now() + est.srtt() * FIRST_HOLDOFF_RTTS,
            least: Micros::MAX,
            evidence: Evidence::default(),
        }
    }

    /// Whether an RTT at this rate holds packets enough to steer by, and more than the flow's own bursts.
    #[must_use]
    pub fn can_steer(est: &Estimator, rate: Rate, pkt_bytes: f64) -> bool {
        let pkts = rate.bytes_in(est.rtt_min()) / pkt_bytes;
        let enough = if est.loss_floor() > LOSSY {
            LEAST_PKTS_LOSSY
        } else {
            LEAST_PKTS
        };
        pkts >= enough && est.rtt_min() >= burst_time(rate, pkt_bytes) * RTT_BURSTS
    }

    /// Length of the intervals to report.
    #[must_use]
    pub fn interval(est: &Estimator, rate: Rate, pkt_bytes: f64, params: &Params) -> Micros {
        Aimd::interval(est, rate, pkt_bytes).max(params.mi_min)
    }

    /// What one interval means, on a path that carries so much.
    pub fn on_mi(&mut self, view: &View<'_>, path: OwnPath) -> Ride {
        let &View { mi, est, rate, .. } = view;
        if mi.rtt.is_none() {
            return Ride::On(rate, Reason::Wait);
        }
        let queue = self.queue(view) - view.jitter();
        let tolerated = tolerated_queue(view);
        let patient = est.now() < self.patient_until;
        let lossy = self.evidence.counts(view, patient);
        if lossy || queue > tolerated {
            if patient || !aimd::tells_goodput(mi) {
                return Ride::On(rate, Reason::Wait);
            }
            return self.step_back(view, path, queue, lossy);
        }
        if mi.limited || mi.stalled {
            return Ride::On(rate, Reason::AppLimited);
        }
        if rate >= self.edge {
            return self.climb(view, path, queue, tolerated);
        }
        Ride::On(self.beyond_edge(), Reason::Cruise)
    }

    /// Where it comes back to, after a step back: the sooner beyond the edge, the sooner a wider path shows. Losses
    /// would come at once.
    fn beyond_edge(&self) -> Rate {
        match self.met {
            Met::Queue => self.edge * BACK_BEYOND,
            Met::Never | Met::Loss => self.edge,
        }
    }

    /// The queue that even the fastest packets met, less what is there at any rate: where bursts are of two packets the
    /// second one waits for the first.
    fn queue(&mut self, view: &View<'_>) -> Micros {
        let standing = view.standing_queue();
        self.least = self.least.min(standing);
        standing - self.least.min(self.edge.time_for(view.pkt_bytes))
    }

    /// The edge, where so much arrives at a full queue. Few packets tell it within one or two.
    fn edge_at(&self, arrives: Rate, mi: &Mi) -> Rate {
        let grain = mi.pkts_per_ack() / mi.pkts();
        if self.met != Met::Never && (arrives / self.edge - 1.0).abs() < grain {
            self.edge * (1.0 - EDGE_WEIGHT) + arrives * EDGE_WEIGHT
        } else {
            arrives
        }
    }

    /// The queue is full: what arrives is the edge. Goes below it, as far as lets the queue out.
    fn step_back(&mut self, view: &View<'_>, path: OwnPath, queue: Micros, lossy: bool) -> Ride {
        let &View { mi, est, rate, .. } = view;
        let edge = self.edge_at(est.let_through(mi), mi);
        let (least, reason) = if lossy {
            (LET_OUT_AFTER_LOSS, Reason::CruiseLoss)
        } else {
            (LET_OUT_LEAST, Reason::CruiseQueue)
        };
        let part = (queue / (est.srtt() * DRAIN_RTTS)).clamp(least, LET_OUT_MOST);
        let below = edge * (1.0 - part);
        if !path.is_all(edge) {
            let edge = Edge {
                rate: edge,
                lost: lossy,
            };
            // ACKs that come together make more of it than was sent.
            return Ride::Shared(below.min(rate), edge);
        }
        let interval = Self::interval(est, rate, view.pkt_bytes, view.params);
        self.patient_until = est.now() + interval * HOLDOFF;
        self.edge = edge;
        self.met = if lossy { Met::Loss } else { Met::Queue };
        Ride::On(below, reason)
    }

    /// Looks for more than the edge, the faster the longer none has come.
    fn climb(&self, view: &View<'_>, path: OwnPath, queue: Micros, tolerated: Micros) -> Ride {
        let &View { mi, rate, .. } = view;
        let no_queue = queue <= tolerated * WIDER_QUEUE;
        let arrives = |beyond| no_queue && mi.goodput > self.edge * beyond;
        let beyond_pkts = view.window_pkts() * (1.0 - self.edge / rate);
        let far = rate > self.edge * WIDER_RATE && beyond_pkts > WIDER_PKTS;
        let shows = match self.met {
            Met::Never => false,
            Met::Queue => true,
            Met::Loss => !path.is_all(mi.goodput),
        };
        if shows && far && arrives(WIDER_ARRIVES) {
            return Ride::Wider;
        }
        let beyond = (rate / self.edge - 1.0).max(0.0);
        let part = CLIMB_PART * (1.0 + beyond / TWICE_BEYOND);
        let per_rtt = CLIMB_PKTS.max(view.window_pkts() * part);
        // The last step's packets are still on their way: they look like a queue to come.
        let step = if self.met == Met::Queue && arrives(MORE_ARRIVES) {
            aimd::free_step(view, per_rtt)
        } else {
            aimd::climb_step(view, per_rtt, queue, tolerated)
        };
        Ride::On(rate + step, Reason::Cruise)
    }
}

/// The queue that is tolerated.
fn tolerated_queue(view: &View<'_>) -> Micros {
    let pkts = view.rate.time_for(QUEUE_PKTS * view.pkt_bytes);
    let part = (view.est.rtt_min() * QUEUE_RTTS).min(QUEUE_MOST);
    aimd::tolerated_queue(view).min(pkts.max(part))
}

#[cfg(test)]
mod tests;
