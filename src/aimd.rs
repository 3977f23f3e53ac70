//! The climber: additive increase, for where intervals are too short, or too lossy, for comparing utilities.
//!
//! Below some 15 packets per RTT an interval holds too few packets. And where flows share a small buffer, each sees so
//! little of the loss it causes that Vivace's flows stay as unequal as they began. In both places the flow climbs
//! additively, by one packet per RTT while the window is tiny and half of one above, and backs off by a factor:
//!
//! ```text
//!   climb     rate += (1 - queue to come / tolerated) packet / RTT        half of it above 8 packets,
//!                                                                         a quarter of tiny windows beyond the edge, and at a policer
//!                                                                         less of those while a queue stands and 4 % are lost;
//!                                                                         more with each RTT on a path long found empty
//!   loss      rate *= 0.8; 2.4 packets of 8 to 12, 0.3 of less given up; 0.15 for a single packet of 16 or more;
//!                     1 - 1.5 x loss if a full queue loses a quarter
//!   queue     rate *= 1 - a fifth of the queue's share of the RTT
//! ```
//!
//! Equal additions and multiplicative cuts make flows equal (Chiu and Jain, 1989). This contains upstream's "fast
//! moving". The climb hands back to Vivace above 25 packets per RTT, and not before losses have been rare for 50 RTTs;
//! a wide window at a small buffer, which climbs slowly, waits for longer, and twice as long where Vivace would lose by
//! its bursts.
//!
//! The edge is what arrived when it last backed off. Up to there a tiny window climbs fast; beyond, a packet more is an
//! eighth to half of what it has, and stands in the queue before a report tells of it.
//!
//! In a crowd even that is too much: a quarter of a packet more for each of a hundred flows of two packets is an eighth
//! of the path. What they lose at a full queue is the same for all of them, and slows all of them alike, but only while
//! a queue stands: one that comes and goes with others' pauses leaves room to be taken.
//!
//! A path that is known to hold a whole bandwidth-delay product tells in time that it becomes full. There a climb that
//! has met neither queue nor loss for a while grows: the path carries more than it did, as a radio link may in seconds.
//!
//! The queue is what even the fastest packets of an interval met, less the jitter; the queue to come is that, and what
//! is sent faster than it arrives until a report tells of it. Where ACKs are collected on their way, two or three of
//! them all come late now and then: there a queue must stand for two intervals.
//!
//! A queue of more than half an RTT takes several back-offs to drain. What those beyond the first give up is taken back
//! when the queue is gone, if nobody else took it: whoever is alone sees as much arrive as before, however little it
//! sends, until the queue is gone; among others, less of what arrives is its own.
//!
//! To a near receiver ACKs clock the window, so that a queue stands for good, and who came while it stood takes it for
//! the path. There it is let out now and then, with a back-off for it: all flows meet the same queue and do so
//! together, and see how short the path is.
//!
//! Whether losses are the path's own is weighed ([`Evidence`]). A wide flow at a buffer that no RTT shows has only them
//! to go by: it answers few, and gives up little; it puts to the test what it bears for long (`doubt.rs`); and it knows
//! that it is alone where it meets them again and again at the same rate. Flows in step do, too: so it asks whether
//! others to the same address are there, and gives up more once. What it alone gave up, others take a part of.
//!
//! It needs no attribution: the rate is steered without a new plan, and every report moves it a little. Growth is
//! never credited to intervals that were not sent in full.
//!
//! Limits: reports come an RTT late, so that ten flows of ten packets lose twice what Cubic's lose. Who comes last to a
//! crowd loses most, and so finds its share later. On a path of under three packets per RTT the floor of two packets
//! per RTT is itself a queue; only where losses show a policer it is lower.

mod doubt;
mod evidence;

use crate::estimate::{Estimator, LossClass, Mi};
use crate::handbrake::View;
use crate::plan::Reason;
use crate::units::{Micros, Rate};
use doubt::{Doubt, Verdict};
pub use evidence::Evidence;
use evidence::SMALL_PKTS;

/// Back-off after congestive loss; what a small window gives up, in packets, and what it keeps at least; for a single
/// packet, which is little evidence. Source: simulated, 4 to 100 flows at 10 to 20 packets and at 1 BDP: 0.7 for all
/// wastes 4 % of the path, 0.8 for all doubles the loss of 100 flows. In packets: of the drawn goals' 96 of six flows
/// at a small buffer 90 are kept, 86 with 0.7 below 16 packets; 48 crowds lose 7.56 % for 7.42.
const LOSS_FACTOR: f64 = 0.8;
const SMALL_CUT_PKTS: f64 = 2.4;
const SMALL_LOSS_FACTOR: f64 = 0.7;
const ONE_LOSS_FACTOR: f64 = 0.85;
/// Above so many packets per RTT, at a small buffer, the loss that counts is so little (see [`evidence`]) that less
/// needs to be given up. Source: simulated, 40 paths with 2 to 8 wide flows at 5 to 25 packets: with .9 .970 of the
/// path is used and Jain's index .862, with .85 .966 and .856.
const WIDE_PKTS: f64 = 64.0;
const WIDE_LOSS_FACTOR: f64 = 0.9;
/// Loss beyond the path's own at a full queue that shows a crowd: a third more than the path carries is being sent, and
/// the factors above take seconds to end that; how many times it is given up, and what is left at least. Source:
/// simulated, three seeds: 48 crowds of 8 to 100 flows lose 8.61 % for 9.22, 389 random paths 4.42 for 4.56, at .978
/// and .979 of the path; from .15 on, and twice the loss, 8.37 and 4.37 %, but 30 small buffers are used by .978 for
/// .981.
const HEAVY_LOSS: f64 = 0.25;
const HEAVY_LOSS_GAIN: f64 = 1.5;
const HEAVY_LOSS_FLOOR: f64 = 0.3;
/// RTTs without congestive loss after which losses count as rare. Source: the climber regains a fifth of 50 packets in
/// 20.
const CALM_RTTS: f64 = 50.0;
/// The same, per packet of a wide window at a small buffer, which regains a tenth in a fifth of an RTT for each; and
/// where no more than two of the kernel's bursts were ever seen to fit in, so that Vivace loses packets at many a rate
/// below the path's. Source: three times that, and six times; the latter simulated, use with .6 there, this and 2.5: one
/// flow on 30 paths of the drawn goals .929, .952, .952, on 10 that become wider .856, .897, .913; on 25 that lose in
/// bursts .809 and .798 with .6 and this.
const CALM_RTTS_PER_PKT: f64 = 0.6;
const SHORT_CALM_RTTS_PER_PKT: f64 = 1.2;
const SHORT_RANGE: Micros = Micros::new(2_000);
/// Edges that are so near to each other are the same, and one that is met again so often in a row shows that nobody
/// shares the path. Source: simulated, the goals' 117 for one flow at a small buffer: 109 kept with 4 and
/// no test, 105 without; of flows that share one Jain's index is .894 and .901.
const SAME_EDGE: f64 = 0.025;
const SAME_EDGES: u8 = 3;
/// So much more of the rate is given up before the last of them, of windows that are not small: among others the edge is
/// another then. Source: simulated, three seeds, the goals' 81 paths of one and six flows at small buffers: .0006 less
/// used by one, Jain's index of six .9752 for .9719; a cut to .7 costs one .006.
const TEST_CUT: f64 = 0.1;
/// Queue tolerated, in smallest RTTs, in packets, and absolutely. Source of the first: simulated; RTT p95 of 16 narrow
/// paths alone is .976 with .2 and .961 with .15 of what it is with .25, but Jain's index of ten flows with 3 % loss
/// .92 and .83 for .95.
const QUEUE_RTTS: f64 = 0.2;
const QUEUE_PKTS: f64 = 1.5;
const QUEUE_MIN: Micros = Micros::new(500);
/// The same in packets and absolutely, within this part of the known range of the queue. Flows of Vivace bear one and a
/// half of their bursts of 1 ms, and longer paths a longer queue: who yields sooner than they do leaves them the path.
/// Source: simulated, Jain's index of 40 paths of mixed RTTs .909 to .932, 40 below 9 ms .897 to .979; without the
/// range twice as much more is lost, with 3 packets RTTs of 389 random paths grow by a twentieth.
const FAIR_PKTS: f64 = 2.5;
const FAIR_MIN: Micros = Micros::new(1_500);
const FAIR_PART: f64 = 0.5;
/// Part of the queue's share of the RTT that one back-off takes away, and its bounds. Source: simulated, the goals'
/// paths: all flows of a crowd back off at once, and what is below the capacity then has to be climbed again. Half of
/// the share, 6 % at least, left 6 % of the path unused with 30 and 50 flows, where this leaves 3 %.
const QUEUE_SHARE: f64 = 0.2;
const QUEUE_BACKOFF: (f64, f64) = (0.02, 0.25);
/// RTTs until a report shows the effect of a rate: what the climb must see ahead. And the excess of the rate over the
/// goodput that is believed. Source: simulated at 8 packets per RTT: rates passed the capacity by 20 % and lost, .913
/// of the path used; with this .978.
const AHEAD_RTTS: f64 = 2.0;
const EXCESS_MAX: f64 = 0.5;
/// RTT samples that make a goodput.
const GOODPUT_SAMPLES: f64 = 3.0;
/// No queue back-off goes below this part of the rate.
const BACKOFF_FLOOR: f64 = 0.6;
/// Queue that takes several back-offs to drain, in smallest RTTs; part of what arrived at the first of them that must
/// still arrive at the next; and how many of those in a row show that nobody shares the path. Source: simulated. One
/// flow at 100 Mbit/s and 0.5 ms uses .992 of the path for .973, .952 for .939 with 5 % of loss. Without the first and
/// the last, flows of a crowd that back off together take back what they should leave to each other: Jain .68 of 50
/// flows for .97.
const SLOW_DRAIN_RTTS: f64 = 0.5;
const STILL_ARRIVES: f64 = 0.9;
const ALONE_AFTER: u8 = 3;
/// Packets per RTT below which the climb is a whole packet per RTT, and a cut is soon regained.
const TINY_PKTS: f64 = 8.0;
/// Climb in packets per RTT, below that and above; and beyond the edge, as a part of the window, at least. Source:
/// simulated on 193 random paths, see docs/changes/earlier.md: with whole packets beyond the edge tiny windows lose half
/// as much again as Cubic's.
const TINY_CLIMB: f64 = 1.0;
const CLIMB: f64 = 0.5;
const EDGE_CLIMB_PART: f64 = 1.0 / 16.0;
const EDGE_CLIMB_MIN: f64 = 0.25;
/// The part of so many packets that is lost slows a tiny window's climb beyond the edge, from this on, by so many times
/// what is beyond; all of that from this part of the tolerated queue on. Source: simulated, see docs/changes/crowds.md
/// ("Slower where a crowd loses"): crowds of 30 to 100 flows lose 4.71 % for 5.05. Below the edge as well, whatever the
/// queue, it is 4.29 %, but where others pause .87 of the path are used for .95; with the queue alone 4.51 % and .91.
const SLOW_PKTS: f64 = 100.0;
const SLOW_FROM: f64 = 0.04;
const SLOW_GAIN: f64 = 100.0;
const SLOW_QUEUE_PART: f64 = 0.25;
/// RTTs, none taken as shorter than this, that a climb must have met neither queue nor loss until it grows; by how many
/// packets per RTT with each further one; and the part of the window that it adds at most. Source: simulated, 96 paths
/// whose rate wanders (`wandering.toml`), see docs/changes/alone.md ("A path long found empty").
const EMPTY_RTTS: f64 = 4.0;
const EMPTY_RTT: Micros = Micros::new(30_000);
const EMPTY_CLIMB: f64 = 0.25;
const EMPTY_CLIMB_PART: f64 = 0.25;
/// No climb is faster, and no slowest rate higher, than on a path of this RTT. Source of the former: simulated, 80
/// paths of .2 to 3 ms (`near.toml`): one flow loses .08 % for .11, and .05 with 2 ms, which uses less of lossy paths.
const SHORTEST_RTT: Micros = Micros::new(1000);
/// RTTs between two intervals that let a near receiver's queue out. Source: simulated, 40 paths (`near.toml`,
/// `pulsed`), Jain's index of several flows and use of one: .75 and .999 without, .91 and .993 with 20, .89 and .996
/// with 50, .91 and .997 with this.
const LET_OUT_RTTS: f64 = 100.0;
/// Part of the climb that is left at the tolerated queue.
const LEAST_CLIMB: f64 = 0.1;
/// Slowest rate, in packets per RTT, where no policer is. Source: upstream.
const FLOOR_PKTS: f64 = 2.0;
/// Where losses follow the rate, or one interval loses so much without a full queue, the slowest rate is that of a path
/// of this RTT at least: four packets, which make a fast retransmission, take half of the shortest timeout (200 ms).
/// Source: simulated, 32 policed paths: one flow loses 9.3 % for 10.4, several 18.0 for 19.2; without a bound on RTT or
/// loss 150 paths that flows share lose 1.83 % for 2.15, at a Jain's index of .935 for .947.
const POLICED_LOSS: f64 = 0.15;
const POLICED_RTT: Micros = Micros::new(50_000);
/// The same of the mean over many packets: an interval of four tells little. Source: simulated, two seeds, 32 policed
/// paths lose 12.5 % for 13.9, at a Jain's index of .931 for .914, 48 crowds 4.6 for 4.8.
const POLICED_MEAN: f32 = 0.1;
/// Packets and ACKs in an interval, at least.
const INTERVAL_PKTS: f64 = 4.0;
const INTERVAL_ACKS: f64 = 2.0;
/// With more packets per ACK than this, ACKs are collected on their way; fewer RTT samples than that tell of a queue
/// only together with the interval before. Source: simulated, 60 paths whose ACKs are for 4 to 32 packets or come
/// together every 2 to 20 ms: .916 to .971 of them used; wherever the windows are small, 60 short paths lose a
/// twentieth more.
const COLLECTED_PKTS: f64 = 3.0;
const QUEUE_SAMPLES: f64 = 4.0;
/// RTTs (or so many intervals' packets) after a back-off until the next.
const HOLDOFF: f64 = 2.0;

/// The climber.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aimd {
    patient_until: Micros,
    /// When congestive loss was last seen.
    lossy_at: Option<Micros>,
    /// What arrived when it last backed off.
    edge: Option<Rate>,
    /// The first back-off from a long queue that still stands.
    drain: Option<Drain>,
    /// How often in a row it sent less and as much arrived.
    alone: u8,
    evidence: Evidence,
    /// The part of the last packets that was lost at a full queue, beyond the path's own losses.
    crowd_loss: f32,
    /// The same where no full queue was met, as at a policer.
    policed_loss: f32,
    /// The queue that stood through the last interval.
    stood: Micros,
    /// How often in a row losses were met at the same rate.
    same_edges: u8,
    doubt: Doubt,
    /// Whether the queue is let out now, and when it last was.
    lets_out: bool,
    let_out_at: Micros,
    /// Since when it has climbed, and lost nothing.
    empty_since: Option<Micros>,
}

/// Where the first back-off from a long queue went, and what arrived then, the path's own losses counted as arrived.
#[derive(Clone, Copy, Debug)]
struct Drain {
    target: Rate,
    arrived: Rate,
}

impl Aimd {
    /// Begins; no back-off before `patient_until`.
    #[must_use]
    pub fn new(patient_until: Micros) -> Self {
        Self {
            patient_until,
            ..Self::default()
        }
    }

    /// Begins after a cut for congestive loss.
    #[must_use]
    pub fn after_loss(now: Micros, srtt: Micros) -> Self {
        Self {
            patient_until: now + srtt * HOLDOFF,
            lossy_at: Some(now),
            ..Self::default()
        }
    }

    /// What arrived when it last backed off.
    #[must_use]
    pub fn edge(&self) -> Option<Rate> {
        self.edge
    }

    /// Whether the next loss may show that nobody shares the path.
    #[must_use]
    pub fn may_find_its_own(&self) -> bool {
        self.same_edges == SAME_EDGES - 1
    }

    /// Others are known to share the path.
    pub fn shares(&mut self) {
        self.same_edges = 0;
    }

    /// The edge, if losses were met at it again and again: nobody shares the path.
    #[must_use]
    pub fn own_edge(&self) -> Option<Rate> {
        self.edge.filter(|_| self.same_edges >= SAME_EDGES)
    }

    /// Whether no more should be in flight now than lets the queue out.
    #[must_use]
    pub fn lets_out(&self) -> bool {
        self.lets_out
    }

    /// Whether congestive loss has long not been seen.
    #[must_use]
    pub fn is_calm(&self, view: &View<'_>) -> bool {
        let est = view.est;
        let per_pkt = if !is_wide(view) {
            0.0
        } else if est.rtt_range() < SHORT_RANGE {
            SHORT_CALM_RTTS_PER_PKT
        } else {
            CALM_RTTS_PER_PKT
        };
        let rtts = CALM_RTTS.max(per_pkt * view.window_pkts());
        let is_long = |at: Micros| est.now() - at > est.srtt() * rtts;
        self.lossy_at.is_none_or(is_long)
    }

    /// Length of the intervals to report.
    #[must_use]
    pub fn interval(est: &Estimator, rate: Rate, pkt_bytes: f64) -> Micros {
        let pkts = INTERVAL_PKTS.max(INTERVAL_ACKS * est.pkts_per_ack());
        est.srtt().max(rate.time_for(pkts * pkt_bytes))
    }

    /// The slowest rate that makes sense: with fewer packets per RTT, every loss waits for a timeout.
    #[must_use]
    pub fn floor(srtt: Micros, pkt_bytes: f64) -> Rate {
        Rate::from_bytes_in(FLOOR_PKTS * pkt_bytes, srtt.max(SHORTEST_RTT))
    }

    /// The slowest rate after a back-off. A policer may let pass less than is worth while elsewhere, and no queue slows
    /// the ACKs of more.
    fn slowest(&self, view: &View<'_>) -> Rate {
        let &View { mi, est, .. } = view;
        let unlike_a_queue = est.class(mi) != LossClass::Congestive && !est.is_bursty();
        let heavy = unlike_a_queue && est.excess_loss(mi) > POLICED_LOSS;
        let rtt = if self.is_policed(est) || heavy {
            est.srtt().max(POLICED_RTT)
        } else {
            est.srtt()
        };
        Self::floor(rtt, view.pkt_bytes)
    }

    /// The rate after one interval.
    pub fn on_mi(&mut self, view: &View<'_>) -> (Rate, Reason) {
        self.lets_out = false;
        self.note_loss(view);
        let queue = self.standing_queue(view) - view.jitter();
        let tolerated = tolerated_queue(view);
        let patient = self.is_patient(view.est);
        let lossy = self.evidence.counts(view, patient);
        let borne = !patient && !lossy && queue <= tolerated && is_wide(view);
        let tested = if borne { self.doubt.weigh(view) } else { None };
        if !borne && !patient {
            self.doubt.forget();
        }
        if lossy || tested == Some(Verdict::Test) {
            self.lossy_at = Some(view.est.now());
            self.back_off(view, None)
        } else if queue > tolerated {
            self.back_off(view, Some(queue))
        } else if let Some(Verdict::InVain(before)) = tested {
            (before.max(view.rate), Reason::Climb)
        } else {
            self.climb(view, queue, tolerated)
        }
    }

    /// Takes what an interval lost, at a full queue and elsewhere.
    fn note_loss(&mut self, view: &View<'_>) {
        let &View { mi, est, .. } = view;
        let weight = (mi.pkts() / SLOW_PKTS).min(1.0) as f32;
        let beyond = est.loss_beyond(mi, 0.0) as f32;
        let (crowd, policed) = match est.class(mi) {
            LossClass::Congestive => (beyond, 0.0),
            LossClass::None | LossClass::Random | LossClass::Unknown => (0.0, beyond),
        };
        self.crowd_loss += weight * (crowd - self.crowd_loss);
        self.policed_loss += weight * (policed - self.policed_loss);
    }

    /// Whether losses are an answer to the rate, and no queue is.
    fn is_policed(&self, est: &Estimator) -> bool {
        est.losses_follow_rate() || self.policed_loss > POLICED_MEAN
    }

    /// How many times slower a tiny window climbs for what was lost, while so much of the tolerated queue stands.
    fn slowed(&self, queue_part: f64) -> f64 {
        let stands = (queue_part / SLOW_QUEUE_PART).clamp(0.0, 1.0);
        1.0 + SLOW_GAIN * (f64::from(self.crowd_loss) - SLOW_FROM).max(0.0) * stands
    }

    /// The queue that even the fastest packets met.
    fn standing_queue(&mut self, view: &View<'_>) -> Micros {
        let now = view.standing_queue();
        let before = std::mem::replace(&mut self.stood, now);
        if view.mi.samples < QUEUE_SAMPLES && view.est.pkts_per_ack() > COLLECTED_PKTS {
            now.min(before)
        } else {
            now
        }
    }

    /// Whether the last back-off is too recent for another.
    fn is_patient(&self, est: &Estimator) -> bool {
        est.now() < self.patient_until
    }

    /// Takes part of the rate back: for this queue, or for losses.
    fn back_off(&mut self, view: &View<'_>, queue: Option<Micros>) -> (Rate, Reason) {
        let &View { mi, est, rate, .. } = view;
        let srtt = est.srtt();
        self.empty_since = None;
        if self.is_patient(est) {
            return (rate, Reason::Wait);
        }
        self.patient_until = est.now() + Self::interval(est, rate, view.pkt_bytes) * HOLDOFF;
        if tells_goodput(mi) {
            let edge = mi.goodput.min(rate);
            let is_same = |before: Rate| (edge / before - 1.0).abs() < SAME_EDGE;
            let again = queue.is_none() && self.edge.is_some_and(is_same);
            self.same_edges = if again {
                self.same_edges.saturating_add(1)
            } else {
                0
            };
            self.edge = Some(edge);
        }
        let (target, reason) = match queue {
            Some(queue) => {
                let due = est.now() - self.let_out_at > srtt * LET_OUT_RTTS;
                if due && est.is_near() {
                    (self.lets_out, self.let_out_at) = (true, est.now());
                }
                (self.below_arrival(view, queue), Reason::ClimbQueue)
            }
            None => {
                self.drain = None;
                let tests = self.may_find_its_own() && view.window_pkts() >= SMALL_PKTS;
                let deeper = if tests { TEST_CUT } else { 0.0 };
                (rate * (loss_factor(view) - deeper), Reason::ClimbLoss)
            }
        };
        (target.max(self.slowest(view).min(rate)), reason)
    }

    /// What arrives, less a part for this queue to drain.
    fn below_arrival(&mut self, view: &View<'_>, queue: Micros) -> Rate {
        let &View { mi, est, rate, .. } = view;
        let mean = mi.rtt.map_or(est.srtt(), |rtt| rtt.mean);
        let share = (QUEUE_SHARE * (queue / mean)).clamp(QUEUE_BACKOFF.0, QUEUE_BACKOFF.1);
        if !tells_goodput(mi) {
            return rate * (1.0 - share);
        }
        let target = (rate.min(mi.goodput) * (1.0 - share)).max(rate * BACKOFF_FLOOR);
        let long = queue > est.rtt_min() * SLOW_DRAIN_RTTS;
        self.drains(target, est.let_through(mi), long);
        target
    }

    /// Adds to the rate, the less the nearer the queue is to the tolerated one.
    fn climb(&mut self, view: &View<'_>, queue: Micros, tolerated: Micros) -> (Rate, Reason) {
        let &View { mi, rate, .. } = view;
        let drained = self.drain.take();
        if mi.limited || mi.stalled {
            self.empty_since = None;
            return (rate, Reason::AppLimited);
        }
        let window_pkts = view.window_pkts();
        let from = match drained {
            Some(drain) if self.alone >= ALONE_AFTER => rate.max(drain.target),
            _ => rate,
        };
        // At a policer no queue slows the climb.
        let careful = self.is_policed(view.est) || self.edge.is_some_and(|edge| from > edge);
        let per_rtt = if window_pkts >= TINY_PKTS {
            CLIMB
        } else if careful {
            (window_pkts * EDGE_CLIMB_PART).max(EDGE_CLIMB_MIN) / self.slowed(queue / tolerated)
        } else {
            TINY_CLIMB
        };
        let per_rtt = self.on_empty_path(view, per_rtt);
        let rate = from + climb_step(view, per_rtt, queue, tolerated);
        (rate, Reason::Climb)
    }

    /// The climb in packets per RTT, more than usual where the path has been empty for long; tiny windows climb fast as
    /// it is.
    fn on_empty_path(&mut self, view: &View<'_>, usual: f64) -> f64 {
        let &View { mi, est, .. } = view;
        if mi.lost_pkts > 0.0 {
            self.empty_since = None;
            return usual;
        }
        let since = *self.empty_since.get_or_insert(est.now());
        let window_pkts = view.window_pkts();
        if window_pkts < TINY_PKTS || est.rtt_range() < est.rtt_min() {
            return usual;
        }
        let rtts = (est.now() - since) / est.srtt().max(EMPTY_RTT);
        let grown = usual + EMPTY_CLIMB * (rtts - EMPTY_RTTS).max(0.0);
        grown.min(window_pkts * EMPTY_CLIMB_PART)
    }

    /// A back-off to `target` while so much arrives; `long` says that the queue takes several.
    fn drains(&mut self, target: Rate, arrived: Rate, long: bool) {
        let Some(first) = &mut self.drain else {
            self.drain = long.then_some(Drain { target, arrived });
            return;
        };
        if arrived >= first.arrived * STILL_ARRIVES {
            self.alone = self.alone.saturating_add(1);
        } else {
            self.alone = 0;
            first.target = first.target.min(target);
        }
    }
}

/// Whether the interval tells how fast packets arrive.
#[must_use]
pub fn tells_goodput(mi: &Mi) -> bool {
    mi.samples >= GOODPUT_SAMPLES && !mi.limited && mi.goodput > Rate::ZERO
}

/// What an interval adds to the rate of a flow that climbs by so many packets per RTT: the less, the nearer the queue
/// to come is to the tolerated one, or every climb would end in an overshoot; and only for the time that was sent.
#[must_use]
pub fn climb_step(view: &View<'_>, pkts_per_rtt: f64, queue: Micros, tolerated: Micros) -> Rate {
    let &View { mi, est, rate, .. } = view;
    let srtt = est.srtt();
    // What is sent faster than it arrives comes to stand in the queue before a slower rate shows. Losses count as
    // arrived, or random loss would look like a queue.
    let excess = if tells_goodput(mi) {
        rate / mi.arrival_rate() - 1.0
    } else {
        0.0
    };
    let coming = queue + srtt * (AHEAD_RTTS * excess.clamp(0.0, EXCESS_MAX));
    free_step(
        view,
        pkts_per_rtt * (1.0 - coming / tolerated).max(LEAST_CLIMB),
    )
}

/// The same where no queue is to come.
#[must_use]
pub fn free_step(view: &View<'_>, pkts_per_rtt: f64) -> Rate {
    let srtt = view.est.srtt();
    let rtts = (view.mi.sent_for / srtt).min(1.0);
    Rate::from_bytes_in(pkts_per_rtt * view.pkt_bytes, srtt.max(SHORTEST_RTT)) * rtts
}

/// The queue that is tolerated: more where its range is known, so that it stays well below what is lost.
#[must_use]
pub fn tolerated_queue(view: &View<'_>) -> Micros {
    let &View { est, rate, .. } = view;
    let time_for = |pkts: f64| rate.time_for(pkts * view.pkt_bytes);
    let own = (est.rtt_min() * QUEUE_RTTS)
        .max(time_for(QUEUE_PKTS))
        .max(QUEUE_MIN);
    // To a near receiver all flows climb.
    if est.is_near() {
        return own;
    }
    let fair = time_for(FAIR_PKTS).max(FAIR_MIN);
    own.max(fair.min(est.rtt_range() * FAIR_PART))
}

/// The part that an interval lost at a full queue, beyond the path's own losses.
fn loss_at_full_queue(view: &View<'_>) -> f64 {
    let &View { mi, est, .. } = view;
    match est.class(mi) {
        LossClass::Congestive => est.excess_loss(mi),
        LossClass::None | LossClass::Random | LossClass::Unknown => 0.0,
    }
}

/// What losses leave of the rate.
fn loss_factor(view: &View<'_>) -> f64 {
    let (lost, window_pkts) = (loss_at_full_queue(view), view.window_pkts());
    if lost > HEAVY_LOSS {
        (1.0 - HEAVY_LOSS_GAIN * lost).max(HEAVY_LOSS_FLOOR)
    } else if window_pkts < SMALL_PKTS {
        (1.0 - SMALL_CUT_PKTS / window_pkts).clamp(SMALL_LOSS_FACTOR, LOSS_FACTOR)
    } else if view.mi.lost_pkts < 2.0 {
        ONE_LOSS_FACTOR
    } else if is_wide(view) {
        WIDE_LOSS_FACTOR
    } else {
        LOSS_FACTOR
    }
}

/// Whether a flow with many packets per RTT is at a buffer that is full before RTTs tell: what it loses is all that
/// tells.
fn is_wide(view: &View<'_>) -> bool {
    view.est.has_small_buffer() && view.window_pkts() > WIDE_PKTS
}

#[cfg(test)]
mod tests;
