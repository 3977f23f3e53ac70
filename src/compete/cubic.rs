//! Beside Cubic: the window law of RFC 9438.
//!
//! ```text
//!   W(t) = C (t - K)^3 + W_max     after a loss: W_max = W, W = 0.7 W     rate = W / RTT
//! ```
//!
//! The same law beside the same law gives the same share at every depth of the queue and every number of flows, which
//! no increase by a fixed part per RTT does: that is too slow at one depth and too fast at another, since Cubic's
//! growth is one per second, not per RTT. Losses at an empty queue are the path's and are ignored.
//!
//! The window is what sends: the pacer is faster than the rate, and only spreads bursts. So a packet follows an ACK,
//! into the place in the queue that was freed. A flow that is paced at W / RTT finds a full queue taken by those who
//! follow their ACKs, and loses more than its share.
//!
//! Beside anyone half of the path is the most that can be a flow's share. So where the path is known
//! ([`crate::cruise`]) a window that has more does not grow, and gives the rest back little by little: BBR has two
//! bandwidth-delay products in flight at most, so that this law takes two thirds from it and more where the buffer is
//! deep. A loss shows that others fill the buffer: beside them the law is fair, and the path may be wider than it was.
//!
//! Limits: Cubic needs several of its periods (10 to 20 s each) until flows are equal; its fairness between flows of
//! different RTTs is Cubic's.

use crate::estimate::{Estimator, LossClass};
use crate::handbrake::View;
use crate::handbrake::compete::dips::{EMPTY, PROBE};
use crate::plan::Reason;
use crate::units::{Micros, Rate};

/// Cubic's growth, packets/s^3. Source: RFC 9438 has 0.4; a quarter more makes up for the tests of the queue, during
/// which the flow yields (simulated share beside one Cubic, 0.5 to 8 BDP: 0.32 to 0.40 with 0.4, 0.37 to 0.42 with
/// 0.5).
const CUBIC_C: f64 = 0.5;
/// What a loss leaves of the window. Source: RFC 9438, section 4.6.
const BETA: f64 = 0.7;
/// Growth of the Reno-friendly window, packets per RTT. Source: RFC 9438, section 4.3.
const FRIENDLY_PKTS: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window grows by at most this factor per RTT. Source: RFC 9438, section 4.2.
const GROWTH_MAX: f64 = 1.5;
/// Growth of the window without a loss, at no high queue, that shows others yielding. Source: simulated, 100 own flows:
/// Jain's index .96 to .99 over four seeds; and without "at no high queue" four flows beside four Cubics, which begin
/// with a hundredth of the path, get .33 of it instead of .45.
const GROWN: f64 = 3.0;
/// For one of BBR's probes, and so many RTTs, no high queue must have stood then: in a probe BBR's queue is gone, too.
/// Source: simulated, 33 paths beside BBR, three seeds: own share within .40 and .57 in .515 of the runs without, .576
/// with it; 1 s and 2 s in place of a probe are no better.
const LOW_RTTS: f64 = 4.0;
/// Growth of the rate over a whole competition, without a loss and without a queue that was let out, that shows the
/// same however high the queue stands; and how long that must have been: BBR lets it out every ten seconds. Source:
/// simulated, 31 crowds of 50 flows, three seeds: Jain's index .773, .797 with this, as with 1.25 and 2; shares beside
/// Cubic and BBR on 90 paths are the same. With any growth of the window .795, but .23 for .25 beside Cubic where its
/// cycles are longer.
const TAKEN: f64 = 1.5;
const LONG_ENOUGH: Micros = Micros::new(10_000_000);
/// Part of the path that is no more than a share, and what of the rest a window gives back per RTT. Source: simulated,
/// 41 paths beside Cubic and 33 beside BBR, six seeds: own share within .40 and .57 in .585 and .399 of the runs
/// without, .671 and .571 with it; with .5 .650 and .551, with .55 .659 and .551, which .5 per RTT leaves as they are.
const SHARE_MAX: f64 = 0.52;
const GIVEN_BACK: f64 = 0.2;
/// The pacer's rate over W / RTT. Source: Linux has 1.2 (`tcp_pacing_ca_ratio`); a little more, so that an interval
/// that follows its ACKs is not taken for one that was paced, from which bytes per packet are learnt. Simulated beside
/// one Cubic, 0.5 to 2 BDP: own shares .30 to .34 with 1.0, .37 to .42 with 1.25.
pub(super) const PACING_GAIN: f64 = 1.25;
/// Smallest window, packets.
const WINDOW_MIN_PKTS: f64 = 2.0;
/// RTTs after a loss until the next counts: the rest of the full queue.
const HOLDOFF_RTTS: f64 = 1.5;

/// The window and its growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cubic {
    /// The window with which it began, or went on after the last loss.
    base_pkts: f64,
    window_pkts: f64,
    /// Window at the last loss.
    max_pkts: f64,
    /// Begin of the present growth, the window then, and its Reno-friendly window.
    epoch: Micros,
    start_pkts: f64,
    friendly_pkts: f64,
    patient_until: Micros,
    seen: Micros,
    /// It has met losses: others fill the buffer.
    contested: bool,
    /// When it began, and the smoothed RTT then.
    begun: Micros,
    first_srtt: Micros,
    /// The longest queue, and whether it was let out.
    longest: Micros,
    emptied: bool,
    /// Since when no high queue stands, unless one does.
    low_since: Option<Micros>,
}

impl Cubic {
    pub(super) fn new(window_pkts: f64, est: &Estimator) -> Self {
        let now = est.now();
        let window_pkts = window_pkts.max(WINDOW_MIN_PKTS);
        Self {
            base_pkts: window_pkts,
            window_pkts,
            max_pkts: window_pkts,
            epoch: now,
            start_pkts: window_pkts,
            friendly_pkts: window_pkts,
            patient_until: Micros::ZERO,
            seen: now,
            contested: false,
            begun: now,
            first_srtt: est.srtt(),
            longest: Micros::ZERO,
            emptied: false,
            low_since: None,
        }
    }

    /// Which part of the window it had before it grew so much, at no high queue, that others must yield to it, if it
    /// did.
    pub(super) fn kept(&self, est: &Estimator) -> Option<f64> {
        let long = PROBE + est.srtt() * LOW_RTTS;
        let is_low = |since: Micros| est.now() - since >= long;
        let grown = self.window_pkts > self.base_pkts * GROWN;
        (grown && self.low_since.is_some_and(is_low)).then(|| self.base_pkts / self.window_pkts)
    }

    /// The same at the end of its time: who fills the queue makes it longer sooner than a window beside it grows, until
    /// packets are lost, or lets it out as BBR does.
    pub(super) fn kept_at_end(&self, est: &Estimator) -> Option<f64> {
        let opposed = self.contested || self.emptied || est.now() - self.begun < LONG_ENOUGH;
        let window = self.window_pkts / self.base_pkts;
        let grown = window > TAKEN * (est.srtt() / self.first_srtt);
        (grown && !opposed).then(|| 1.0 / window)
    }

    pub(super) fn window_pkts(&self) -> f64 {
        self.window_pkts
    }

    pub(super) fn rate(&self, est: &Estimator, pkt_bytes: f64) -> Rate {
        Rate::from_bytes_in(self.window_pkts * pkt_bytes, est.srtt())
    }

    /// The rate after one interval, on a path that carries so much, if that is known.
    pub(super) fn on_mi(&mut self, view: &View<'_>, carries: Option<Rate>) -> (Rate, Reason) {
        let &View {
            mi, est, pkt_bytes, ..
        } = view;
        let (now, srtt) = (est.now(), est.srtt());
        let elapsed = now - self.seen;
        self.seen = now;
        if mi.rtt.is_some() {
            let queue = view.standing_queue();
            self.longest = self.longest.max(queue);
            self.low_since = (!view.stands_high()).then(|| self.low_since.unwrap_or(now));
            self.emptied |= queue < self.longest * EMPTY;
        }
        let class = est.class(mi);
        let lossy = mi.lost_pkts >= 1.0
            && class != LossClass::Random
            && (class == LossClass::Congestive || est.excess_loss(mi) > 0.0);
        if lossy && now >= self.patient_until {
            self.patient_until = now + srtt * HOLDOFF_RTTS;
            self.contested = true;
            // Fast convergence: a flow that could not grow leaves room for others.
            let shrinking = self.window_pkts < self.max_pkts;
            self.max_pkts = self.window_pkts * if shrinking { (1.0 + BETA) / 2.0 } else { 1.0 };
            self.window_pkts = (self.window_pkts * BETA).max(WINDOW_MIN_PKTS);
            (self.epoch, self.start_pkts) = (now, self.window_pkts);
            (self.friendly_pkts, self.base_pkts) = (self.window_pkts, self.window_pkts);
            return (self.rate(est, pkt_bytes), Reason::CompeteLoss);
        }
        if mi.sent_less_than(self.rate(est, pkt_bytes)) || mi.stalled {
            // What was not used does not grow, and the clock of the growth stands still.
            self.epoch = (self.epoch + elapsed).min(now);
            return (self.rate(est, pkt_bytes), Reason::AppLimited);
        }
        let rtts = (elapsed / srtt).min(2.0);
        let too_much = carries.map_or(0.0, |carries| mi.goodput / carries - SHARE_MAX);
        if too_much > 0.0 && !self.contested {
            self.epoch = (self.epoch + elapsed).min(now);
            let left = 1.0 - GIVEN_BACK * too_much.min(1.0) * rtts;
            self.window_pkts = (self.window_pkts * left).max(WINDOW_MIN_PKTS);
            self.start_pkts = self.start_pkts.min(self.window_pkts);
            return (self.rate(est, pkt_bytes), Reason::Compete);
        }
        self.friendly_pkts += FRIENDLY_PKTS * rtts;
        let k = libm::cbrt((self.max_pkts - self.start_pkts).max(0.0) / CUBIC_C);
        let since = (now - self.epoch).as_secs() - k;
        let cubic = CUBIC_C * since * since * since + self.max_pkts;
        let limit = self.window_pkts * (1.0 + (GROWTH_MAX - 1.0) * rtts);
        self.window_pkts = cubic
            .max(self.friendly_pkts)
            .clamp(self.window_pkts, limit.max(self.window_pkts));
        (self.rate(est, pkt_bytes), Reason::Compete)
    }
}

#[cfg(test)]
impl Cubic {
    /// After growth by this factor since it began.
    pub(super) fn grown(mut self, factor: f64) -> Self {
        self.window_pkts = self.base_pkts * factor;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::SlotContext;
    use crate::estimate::tests::report;
    use crate::params::Params;

    const PKT: f64 = 1000.0;
    const RTT_US: u64 = 100_000;

    /// Intervals of 100 ms, one after the other; `lossy` tells in which of them three packets are lost at a full queue.
    fn windows(start_pkts: f64, rounds: u64, lossy: impl Fn(u64) -> bool) -> Vec<(f64, Reason)> {
        windows_on(None, start_pkts, rounds, lossy)
    }

    /// The same on a path of which it is known what it carries.
    fn windows_on(
        carries: Option<Rate>,
        start_pkts: f64,
        rounds: u64,
        lossy: impl Fn(u64) -> bool,
    ) -> Vec<(f64, Reason)> {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let context = |asked| SlotContext {
            asked,
            length: Micros::new(RTT_US),
            mss_bytes: PKT,
        };
        est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
        est.observe(&report(9, 1, &[(0, RTT_US, 0); 8], 1000), context(None));
        let mut competitor = Cubic::new(start_pkts, &est);
        let mut path = Vec::new();
        for round in 1..=rounds {
            let rate = competitor.rate(&est, PKT);
            let gap = (1e6 * PKT / rate.bytes_per_sec()) as u64;
            let acks: Vec<_> = (0..RTT_US / gap)
                .map(|i| (i * gap, RTT_US, u64::from(lossy(round) && i < 3)))
                .collect();
            let raw = report(33, round * RTT_US, &acks, RTT_US);
            let mi = est.observe(&raw, context(Some(rate)));
            let view = View {
                mi: &mi,
                est: &est,
                rate,
                pkt_bytes: PKT,
                params: &params,
            };
            let (_, reason) = competitor.on_mi(&view, carries);
            path.push((competitor.window_pkts(), reason));
        }
        path
    }

    #[test]
    fn the_window_follows_rfc_9438() {
        // A loss at 100 packets: 70, and back at 100 after K = cbrt(30 / 0.5) = 3.9 s.
        let path = windows(100.0, 120, |round| round == 1);
        assert_eq!(path[0].1, Reason::CompeteLoss);
        assert!((path[0].0 - 70.0).abs() < 1e-9, "{path:?}");
        let back = path.iter().position(|(pkts, _)| *pkts >= 99.5).unwrap();
        // The plateau is flat: 99.5 is reached about a second before K.
        assert!((26..=44).contains(&back), "{back}");
        let (end, _) = path[119];
        let since: f64 = 11.9 - 3.915;
        assert!(
            (end - (100.0 + CUBIC_C * since.powi(3))).abs() < 12.0,
            "{end}"
        );
        assert!(path.windows(2).skip(1).all(|pair| pair[1].0 >= pair[0].0));
    }

    #[test]
    fn more_than_half_of_the_path_is_given_back() {
        let carries = Rate::from_bytes_in(150.0 * PKT, Micros::new(RTT_US));
        let path = windows_on(Some(carries), 100.0, 400, |_| false);
        assert!((80.0..100.0).contains(&path[0].0), "{:?}", path[0]);
        let share = path[399].0 / 150.0;
        assert!((0.5..0.6).contains(&share), "{share}");
        let contested = windows_on(Some(carries), 100.0, 60, |round| round == 1);
        assert_eq!(contested, windows(100.0, 60, |round| round == 1));
        let little = windows_on(Some(carries), 20.0, 20, |_| false);
        assert_eq!(little, windows(20.0, 20, |_| false));
    }

    #[test]
    fn who_grows_to_the_end_takes_what_others_yield() {
        let mut est = Estimator::new(&Params::default());
        let context = SlotContext {
            asked: None,
            length: Micros::new(RTT_US),
            mss_bytes: PKT,
        };
        let acked = |at_us| report(9, 1, &[(at_us, RTT_US, 0); 8], 1000);
        est.observe(&acked(RTT_US), context);
        let begun = Cubic::new(100.0, &est);
        est.observe(&acked(9_000_000), context);
        assert_eq!(begun.grown(2.0).kept_at_end(&est), None, "too soon");
        est.observe(&acked(11_000_000), context);
        assert_eq!(begun.grown(2.0).kept_at_end(&est), Some(0.5));
        assert_eq!(begun.grown(1.4).kept_at_end(&est), None);
        let kept_if = |change: fn(&mut Cubic)| {
            let mut cubic = begun.grown(2.0);
            change(&mut cubic);
            cubic.kept_at_end(&est)
        };
        assert_eq!(kept_if(|cubic| cubic.contested = true), None, "Cubic");
        assert_eq!(kept_if(|cubic| cubic.emptied = true), None, "BBR");
        let shorter = |cubic: &mut Cubic| cubic.first_srtt = Micros::new(RTT_US / 2);
        assert_eq!(kept_if(shorter), None, "others' queue grew as much");
    }

    #[test]
    fn a_full_queue_is_answered_once_per_round_trip() {
        let path = windows(100.0, 2, |_| true);
        assert_eq!(path[0].1, Reason::CompeteLoss);
        assert_ne!(path[1].1, Reason::CompeteLoss, "the rest of the same queue");
        let path = windows(2.0, 400, |_| true);
        assert!(
            path.iter()
                .all(|(pkts, _)| *pkts >= WINDOW_MIN_PKTS && pkts.is_finite())
        );
    }
}
