//! The compete handbrake: who holds the queue?
//!
//! After a queue action the queue should be gone. Where it still stands, there are three possible reasons, which look
//! the same in one interval and are told apart over several:
//!
//! ```text
//!   RTT after our rate was taken back       what it is               what follows
//!   -------------------------------------------------------------------------------------------
//!   falls                                   our queue                nothing: the action worked
//!   falls, four times in short succession   a shared queue           climb: equal flows of few packets
//!   flat twice, or four times the same      a longer path            it is the new smallest RTT
//!   that twice as often, among others       the same
//!   stands, several times in a row          flows that fill it       compete for a while
//!   stands through twelve back-offs of a climber in a row            the same
//!   grows through eight back-offs of a climber ([`rise`])            the same
//!   empties every ten seconds ([`dips`])    BBR's                    compete while that lasts
//! ```
//!
//! In a drain we have less than a bandwidth-delay product in flight. If we are alone, the queue is then empty, so all
//! packets see the same RTT, that of the path; if others drain as well, each drain comes down to it. Flows that fill
//! the queue make it vary, except for moments (Cubic near its plateau). Such a moment may be taken for a longer path;
//! the next fall below the adopted RTT shows the mistake, and for as long as the smallest RTT is remembered, no other
//! adoption is believed. BBR's queue is flat for ten seconds. So a flow that knows what the path carries, and never has
//! all of it, asks for twice the evidence.
//!
//! Alone, a flow of Vivace sees the slope of its own queue and seldom needs a drain. Among climbers it sees none, since
//! they yield to it: it would keep what it has, drain after drain. So it becomes one of them.
//!
//! The first time, the queue must have stood for half a second as well: flows that start one after the other make it
//! stand, too. And a crowd of this algorithm that has started backs off together, for seconds, so that its queue grows
//! while all find their shares, and goes when all of them yield. Cubic leaves .7 of its window when it loses, and so at
//! least .7 of the RTT. Where that falls further others yield, and suspicion begins anew. It also loses seldom: where
//! three hundredths are lost while the queue stands, a crowd holds it, and competing with it would only take from those
//! who yield. Nor is there anybody to compete with where flows to the same address have all that the path carries
//! ([`crate::ensemble`]): the queue is theirs.
//!
//! A competition lasts `--compete-secs`, twice that if it comes again at once, and so on; then the queue is tested
//! again. Where it stands, the flow goes on with the window it had before the test, or every test would cost it a third
//! of its share. When it is found empty, it was somebody's who has left (or did not compete for it), or the buffer is
//! short; for as long as the competition lasted, two actions in vain are then enough to go on with it. It also ends
//! when the queue stays empty, or the flow grows without a loss: then those who share it yield, and would go on
//! yielding; and when it loses what Cubic does not: then it was a crowd.
//!
//! Limits: flows of this algorithm that wrongly compete hold each other there, until a test of one of them finds the
//! queue empty, or they lose too much. Where RTTs jitter, one that is far below the others makes a longer path
//! doubtful, which is then competed with until the window of the smallest RTT ends.

pub(crate) mod dips;
mod rise;

use super::View;
use super::queue::HOLDOFF_RTTS;
use crate::estimate::RttStats;
use crate::params::{Handbrake, Params};
use crate::units::{Micros, Rate};
use dips::Dips;
use rise::Rise;

/// The RTT is flat if its mean is above its smallest by less than this part, or by less than so many packets.
const FLAT: f64 = 0.01;
const FLAT_PKTS: f64 = 2.0;
const FLAT_MIN_SAMPLES: f64 = 8.0;
const FLAT_MIN: Micros = Micros::new(300);
/// The queue is gone when less than this part of what is tolerated stands.
const GONE: f64 = 0.5;
/// So many actions that end at the same lowest RTT show a longer path; a flat RTT counts for two.
const MET_ENOUGH: u8 = 4;
const MET_FLAT: u8 = 2;
/// The same among others. Source: simulated, 74 paths beside Cubic and BBR: own share within .40 and .57 in .67 and .57
/// of the runs with 4, .75 and .58 with 8, .74 and .58 with 12; 95th percentile of the RTT where two own flows' path
/// becomes longer, 40 to 80 ms: 85, 86, 111.
const MET_AMONG_OTHERS: u8 = 8;
/// After so many others the lowest RTT is forgotten: the path may have become longer meanwhile.
const MISSED_MAX: u8 = 8;
/// The queue may be empty for so many RTTs in a competition: Cubic has filled an eighth of a bandwidth-delay product in
/// 6.
const ALONE_RTTS: f64 = 16.0;
/// A climber's back-off worked if this part of the standing queue went.
const FELL: f64 = 0.1;
/// A climber whose queue stood through so many back-offs in a row, with no interval of a tolerable queue between them,
/// shares it with others that fill it. Source: simulated; a crowd of our own backs off together, and its queue is
/// tolerable after 2 to 4 back-offs, 8 while it starts. Beside Cubic it stands through 12 to 20. With 8 the own share of
/// 33 paths beside BBR is within .40 and .57, over the whole run, in .495 of the runs for .374, but Jain's index of six
/// crowds of 30 to 100 flows to as many addresses is .866 for .911.
const IN_A_ROW: u8 = 12;
/// What Cubic leaves of its window, and so of the RTT: below this part of the highest RTT since the suspicion began,
/// others yield. Source: RFC 9438, section 4.6; simulated, 8 to 50 own flows in 70 buffers of 1.6 to 47 bandwidth-delay
/// products: Jain's index .815 without, .840 with it; 40 paths beside one Cubic: own share .415, .411. At .75 .844 and
/// .407.
const CUBIC_LEAVES: f64 = 0.7;
/// Drains that follow the one before within so many RTTs, and how many show that the queue is shared. Source:
/// simulated; the queue rule may act every 8 RTTs. One such drain takes a change of the path for it (48 RTTs to use a
/// rate that tripled, not 13).
const SOON_RTTS: f64 = 20.0;
const RETURNS: u8 = 3;
/// Actions in vain that are enough to compete again.
const AGAIN: u32 = 2;
/// A queue must have stood for so long until it is competed for, the first time: on a path of few milliseconds all of
/// these actions take less than others need to come one after the other and find their shares. Source: simulated,
/// Jain's index on 81 paths on which crowds are unfair, and own share on 40 beside Cubic: .695, .396; .5 s .704, .396;
/// 1 s .714, .387.
const SUSPECTED_FOR: Micros = Micros::new(500_000);
/// With a greater part of the packets lost since the queue was last empty, beyond what the path loses itself, a crowd
/// holds it. Source: simulated, what was lost before first competitions: beside 1 and 4 Cubics .000 to .014 but for one
/// path (.035 to .066), in crowds of 30 to 100 flows of our own .02 to .21. Jain's index of 40 crowds .971 without,
/// .980 with .1, .982 with .05 and .03 (6, 3, 2, 2 of 160 runs below .9), and .981 from the first suspicion on; the own
/// share of 74 paths beside Cubic and BBR is the same. Since tiny windows climb slower for their losses, 24 of the
/// crowds have .949 with .05 and .954 with .03.
const CROWD_LOSS: f64 = 0.03;
/// A competition is one with a crowd where so many packets, and so many windows, more are lost than that part: one
/// overflow of a long queue takes many at once. Source: simulated, Jain's index and loss of six flows on 60 paths
/// like the goals' of 30 Mbit/s, 3 ms and 10 packets: .956 and 5.3 % without, .992 and 4.7 % with it; half a window
/// instead of two costs 16 paths beside Cubic in deep buffers .018 of their share of .255.
const CROWD_PKTS: f64 = 20.0;
const CROWD_WINDOWS: f64 = 2.0;
/// A competition begins at no more than so many times the present rate: the flow may have yielded to a crowd that is
/// starting, and what it had before was never its share. Source: simulated, 100 flows; without it Jain's index was .4,
/// with 2.5 to 3 it is .93 to .98.
const AT_ONCE: f64 = 3.0;
/// The longest competition, in first ones.
const LONGEST: f64 = 6.0;

/// Whether the queue is empty.
fn is_gone(view: &View<'_>) -> bool {
    view.standing_queue() <= view.tolerated_queue() * GONE
}

/// How much RTTs may differ that are taken for the same.
fn level(rtt: &RttStats, view: &View<'_>) -> Micros {
    let bottleneck = view.est.goodput_max().unwrap_or(view.rate);
    (rtt.min * FLAT)
        .max(bottleneck.time_for(FLAT_PKTS * view.pkt_bytes))
        .max(FLAT_MIN)
        .max(view.scatter())
}

/// Packets that an interval lost beyond the path's own losses, less those that Cubic might lose.
fn lost_beyond_cubic(view: &View<'_>) -> f64 {
    (view.est.excess_loss(view.mi) - CROWD_LOSS) * view.mi.pkts()
}

fn is_off(params: &Params) -> bool {
    params.compete_after == 0 || params.no_handbrake.contains(Handbrake::Compete)
}

/// Actions in vain that a flow begins with that has competed: few more are enough to go on with it.
fn in_vain_to_resume(params: &Params) -> u8 {
    // At most 100, by the parameter's range.
    params.compete_after.saturating_sub(AGAIN) as u8
}

/// What a queue action achieved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// The queue went, or it is too early to tell.
    Fine,
    /// The queue goes, and soon comes back: others share it.
    Shared,
    /// The RTT that still stands is that of a longer path.
    LongerPath(Micros),
    /// Others hold the queue: compete until then, from the rate that the flow had before it yielded.
    Competitor {
        /// End of the competition.
        until: Micros,
        /// The flow's highest rate since the queue was last empty, or three times the present one if that is less.
        from: Rate,
        /// The window of the last competition, if this one goes on with it.
        window_pkts: Option<f64>,
    },
}

/// Judges queue actions.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompeteRule {
    /// When the last drain ended (zero for none), and how many came soon after the one before.
    drained_at: Micros,
    returned: u8,
    in_vain: u8,
    /// Smallest RTT after the last action in vain; zero for none.
    lowest_after_action: Micros,
    from: Rate,
    /// Lowest RTT since the suspicion began, and how often queue actions ended there.
    lowest: Option<Micros>,
    met: u8,
    /// Actions since it was last met.
    missed: u8,
    /// The climber's back-offs since the queue was last tolerable.
    in_a_row: u8,
    /// Whether it grows through them.
    rise: Rise,
    /// Whether it empties as BBR's does.
    dips: Dips,
    /// When the first queue action was whose queue still stands.
    suspected: Option<Micros>,
    /// The highest of the smallest RTTs since then.
    highest: Micros,
    /// What was [lost beyond Cubic's](lost_beyond_cubic) since the queue was last empty, or others yielded.
    lost_beyond: f32,
    /// The same since the competition began, at least 0.
    lost_competing: f32,
    /// Since when the queue is empty during a competition; zero for not.
    gone_since: Micros,
    /// When the climber's back-offs are judged again.
    next: Micros,
    adopted: Option<Micros>,
    doubtful_until: Micros,
    period: Micros,
    /// The window at the end of the last competition, packets, unless others were seen to yield.
    window_pkts: Option<f64>,
    /// Until when those who filled the queue are expected to come again.
    expected_until: Micros,
    /// With other flows to the same address it has all of the path.
    is_all_ours: bool,
}

impl CompeteRule {
    /// Whether a queue stands that may be somebody else's.
    #[must_use]
    pub fn suspects(&self) -> bool {
        self.suspected.is_some()
    }

    /// Whether the flow and others to the same address have all of the path, as far as they know: asked for while it
    /// [suspects](Self::suspects), before the interval.
    pub fn hear(&mut self, is_all_ours: bool) {
        self.is_all_ours = is_all_ours;
    }

    /// Sees every interval outside startup and drain: an empty queue ends all suspicion.
    pub fn note(&mut self, view: &View<'_>) {
        self.lost_beyond += lost_beyond_cubic(view) as f32;
        let Some(rtt) = view.mi.rtt else { return };
        self.contradict(&rtt, view);
        self.rise.note(view);
        self.note_yielding(&rtt, view);
        if is_gone(view) {
            self.clear(view.est.now(), view.params);
        }
    }

    /// Sees every interval of a competition. Whether nobody else fills the queue: then it stays empty for long, and the
    /// competition must end, since those who share it yield to it.
    pub fn is_alone(&mut self, view: &View<'_>) -> bool {
        let Some(rtt) = view.mi.rtt else { return false };
        self.contradict(&rtt, view);
        self.lowest = self.lowest.map(|lowest| lowest.min(rtt.min));
        if !is_gone(view) {
            self.gone_since = Micros::ZERO;
            return false;
        }
        let now = view.est.now();
        if self.gone_since == Micros::ZERO {
            self.gone_since = now;
        }
        let alone = now - self.gone_since > view.est.srtt() * ALONE_RTTS;
        if alone {
            self.expected_until = Micros::ZERO;
            self.clear(now, view.params);
            self.period = Micros::ZERO;
        }
        alone
    }

    /// Sees every interval of a competition by Cubic's law. Whether more is lost than beside Cubic.
    pub fn is_crowd(&mut self, view: &View<'_>) -> bool {
        let lost = f64::from(self.lost_competing) + lost_beyond_cubic(view);
        self.lost_competing = lost.max(0.0) as f32;
        lost > CROWD_PKTS.max(view.window_pkts() * CROWD_WINDOWS)
    }

    /// Sees every interval outside startup and drain. Until when BBR is known to share the path, if it is.
    pub fn note_bbr(&mut self, view: &View<'_>) -> Option<Micros> {
        if is_off(view.params) || view.params.no_handbrake.contains(Handbrake::Bbr) {
            return None;
        }
        self.dips.note(view);
        self.dips.bbr_until(view.est.now())
    }

    /// Ends all suspicion. A short buffer is empty now and then, whoever fills it: so for some time after a
    /// competition, few actions in vain are enough for the next one, which begins where it ended.
    fn clear(&mut self, now: Micros, params: &Params) {
        let expected = now < self.expected_until;
        self.in_vain = if expected {
            in_vain_to_resume(params)
        } else {
            0
        };
        self.window_pkts = self.window_pkts.filter(|_| expected);
        self.lowest_after_action = Micros::ZERO;
        self.from = Rate::ZERO;
        self.lowest = None;
        self.met = 0;
        self.missed = 0;
        self.in_a_row = 0;
        (self.suspected, self.lost_beyond) = (None, 0.0);
        self.highest = Micros::ZERO;
        self.gone_since = Micros::ZERO;
    }

    /// Suspicion begins anew where the queue falls by more than those would let it who fill it. A flow that has
    /// competed had a part of the queue itself.
    fn note_yielding(&mut self, rtt: &RttStats, view: &View<'_>) {
        if self.suspected.is_none() || self.window_pkts.is_some() {
            return;
        }
        self.highest = self.highest.max(rtt.min);
        if rtt.min < self.highest * CUBIC_LEAVES {
            (self.suspected, self.highest) = (Some(view.est.now()), rtt.min);
            self.lost_beyond = 0.0;
            (self.in_a_row, self.in_vain) = (0, 0);
        }
    }

    /// The climber saw a tolerable queue.
    pub fn climbed(&mut self) {
        self.in_a_row = 0;
    }

    /// An RTT far below an adopted one shows that the path had not become longer.
    fn contradict(&mut self, rtt: &RttStats, view: &View<'_>) {
        if let Some(adopted) = self.adopted
            && rtt.min + view.tolerated_queue() * GONE + view.scatter() < adopted
        {
            self.adopted = None;
            self.doubtful_until = view.est.now() + view.params.rtt_window;
        }
    }

    /// The end of a drain: `view` is its last interval, with the rate from before it. `among_others`: others are known
    /// to have a part of the path.
    pub fn drained(&mut self, view: &View<'_>, among_others: bool) -> Effect {
        let Some(rtt) = view.mi.rtt else {
            return Effect::Fine;
        };
        self.contradict(&rtt, view);
        self.dips.interrupt();
        self.note_yielding(&rtt, view);
        let now = view.est.now();
        let before = std::mem::replace(&mut self.drained_at, now);
        let soon = before > Micros::ZERO && now - before < view.est.srtt() * SOON_RTTS;
        self.returned = if soon {
            self.returned.saturating_add(1)
        } else {
            0
        };
        let effect = if is_gone(view) {
            self.clear(now, view.params);
            self.period = Micros::ZERO;
            Effect::Fine
        } else {
            self.acted_in_vain(&rtt, view, among_others)
        };
        // Where none of the drains had an effect, it is still open who holds the queue.
        let had_effect = self.in_vain < self.returned;
        if effect == Effect::Fine && self.returned >= RETURNS && had_effect {
            self.returned = 0;
            return Effect::Shared;
        }
        effect
    }

    /// A back-off of the climber; `view` is the interval that called for it. What the back-offs before achieved is
    /// judged by whether anything of the queue went, as often as the queue rule would act. `among_others` as for a
    /// drain.
    pub fn backed_off(&mut self, view: &View<'_>, among_others: bool) -> Effect {
        let Some(rtt) = view.mi.rtt else {
            return Effect::Fine;
        };
        let now = view.est.now();
        let standing = view.standing_queue();
        self.suspect(view);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let grows = self.rise.backed_off(view);
        let stands = grows || self.in_a_row >= IN_A_ROW;
        if stands && self.may_compete(view) {
            return self.competitor(view);
        }
        let fell = rtt.min + standing * FELL < self.lowest_after_action;
        if self.lowest_after_action == Micros::ZERO || fell {
            self.in_vain = 0;
            self.lowest_after_action = rtt.min;
        } else if now >= self.next {
            self.next = now + view.est.srtt() * HOLDOFF_RTTS;
            return self.acted_in_vain(&rtt, view, among_others);
        } else {
            return Effect::Fine;
        }
        self.next = now + view.est.srtt() * HOLDOFF_RTTS;
        Effect::Fine
    }

    /// Whether the RTT is flat. A full drop-tail queue is flat, too, but it loses packets.
    pub fn is_flat(view: &View<'_>) -> bool {
        let flat = |rtt: RttStats| rtt.mean - rtt.min <= level(&rtt, view);
        let enough = view.mi.samples >= FLAT_MIN_SAMPLES;
        enough && view.mi.rtt.is_some_and(flat) && view.est.excess_loss(view.mi) <= 0.0
    }

    /// The first action begins the suspicion; the highest rate is what the flow had before it yielded.
    fn suspect(&mut self, view: &View<'_>) {
        self.suspected.get_or_insert(view.est.now());
        self.from = self.from.max(view.rate);
    }

    /// Whether the suspicion is old enough, or was confirmed before, it is no crowd's queue nor that of flows to the
    /// same address, and competing is allowed.
    fn may_compete(&self, view: &View<'_>) -> bool {
        let is_long = |since| view.est.now() - since >= SUSPECTED_FOR;
        let lasted = self.suspected.is_some_and(is_long);
        let crowded = self.lost_beyond > 0.0;
        let others = !crowded && !self.is_all_ours;
        (self.window_pkts.is_some() || lasted) && others && !is_off(view.params)
    }

    fn acted_in_vain(&mut self, rtt: &RttStats, view: &View<'_>, among_others: bool) -> Effect {
        let now = view.est.now();
        self.suspect(view);
        self.in_vain = self.in_vain.saturating_add(1);
        let level = level(rtt, view);
        let lossless = view.est.excess_loss(view.mi) <= 0.0;
        let flat = Self::is_flat(view);
        self.lowest_after_action = rtt.min;
        self.meet(rtt.min, level, flat);
        let enough = if among_others {
            MET_AMONG_OTHERS
        } else {
            MET_ENOUGH
        };
        if now >= self.doubtful_until && self.met >= enough && lossless {
            let path = self.lowest.unwrap_or(rtt.min);
            self.expected_until = Micros::ZERO;
            self.clear(now, view.params);
            self.adopted = Some(path);
            return Effect::LongerPath(path);
        }
        let too_few = u32::from(self.in_vain) < view.params.compete_after;
        if too_few || !self.may_compete(view) {
            return Effect::Fine;
        }
        self.competitor(view)
    }

    /// Competes, each time for longer.
    fn competitor(&mut self, view: &View<'_>) -> Effect {
        let first = view.params.compete_secs;
        self.period = (self.period * 2.0).clamp(first, first * LONGEST);
        self.in_a_row = 0;
        self.gone_since = Micros::ZERO;
        self.lost_competing = 0.0;
        self.rise = Rise::default();
        Effect::Competitor {
            until: view.est.now() + self.period,
            from: self.from.min(view.rate * AT_ONCE),
            window_pkts: self.window_pkts,
        }
    }

    /// A drain ended at this RTT. Counts how often the lowest one was met; twice for a flat one.
    fn meet(&mut self, rtt: Micros, level: Micros, flat: bool) {
        let worth = if flat { MET_FLAT } else { 1 };
        match self.lowest {
            Some(lowest) if rtt > lowest + level && self.missed < MISSED_MAX => self.missed += 1,
            Some(lowest) if rtt <= lowest + level && rtt + level >= lowest => {
                self.met = self.met.saturating_add(worth);
                self.missed = 0;
                self.lowest = Some(lowest.min(rtt));
            }
            Some(_) | None => {
                self.met = worth;
                self.missed = 0;
                self.lowest = Some(rtt);
            }
        }
    }

    /// The time of a competition is over, at this window: where the queue does not go now, few actions in vain are
    /// enough for the next, which goes on where this one ended. To yield costs the others nothing: what they take is
    /// taken back.
    pub fn competed(&mut self, window_pkts: f64, now: Micros, params: &Params) {
        self.in_vain = in_vain_to_resume(params);
        self.lowest_after_action = Micros::ZERO;
        self.from = Rate::ZERO;
        self.window_pkts = Some(window_pkts);
        self.expected_until = now + self.period;
    }

    /// A competition is over because others yielded, or BBR is gone: suspicion begins anew.
    pub fn yielded_to(&mut self) {
        self.in_vain = 0;
        self.lowest_after_action = Micros::ZERO;
        self.from = Rate::ZERO;
        self.highest = Micros::ZERO;
        self.window_pkts = None;
        self.expected_until = Micros::ZERO;
    }
}

#[cfg(test)]
mod tests;
