//! What losses mean: where they happened, and how much the path loses whatever we do.

use super::Mi;
use crate::units::Micros;

/// Packets before the loss floor, or what passes in a row, is believed.
const MIN_PKTS: f64 = 200.0;
/// Above this many the floor's counters are scaled down, so that it follows a changing path.
const MEMORY_PKTS: f64 = 3000.0;
/// Most by which losses are believed to vary more than independent ones. Source: bursts of 8 packets, lengths
/// geometric.
const DISPERSION_MAX: f64 = 16.0;
/// Loss floor while the class of losses is unknown: so much at least, and what short runs tell at most. Source:
/// simulated, six seeds, 60 paths that lose .3 to 10 %: .922 of them are used with the runs, .916 without; 40 paths
/// that wide flows share at small buffers have a Jain's index of .918 and .912, and 48 crowds lose the same.
pub(super) const UNKNOWN: f64 = 0.02;
/// If packets are lost independently, a run of `LONGEST_RUN` times the mean distance between losses is rare (one in
/// 150). `RUN_FADES` is what is kept of the longest run per interval with losses. Source: simulated, four seeds, 45
/// paths that lose .3 to 10 % at random and 32 that six flows share with 5 to 20 packets: one flow uses .899 of the
/// former with 5, .900 with 6, .893 with 4, and the others' Jain's index is .975, .970, .973; later, with .985, .98 and
/// .99 kept, .897, .894, .896 and .977, .974, .980.
const LONGEST_RUN: f64 = 5.0;
const RUN_FADES: f64 = 0.985;
/// Short runs never say more than this of the path, or flows that make each other lose much would all believe it.
/// Source: the loss handbrake's; simulated: six flows at 300 Mbit/s and 6 packets lose 4.6 % for 14.5, and 60 paths
/// that lose up to 10 % are the same.
pub(super) const MOST_OWN: f64 = 0.05;

/// Where a loss happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossClass {
    /// Nothing was lost.
    None,
    /// The queue was low, or losses lie as a path's own do: not our doing.
    Random,
    /// The queue was in the upper half of its range.
    Congestive,
    /// No queue was ever seen, so there is nothing to compare with, and nothing else tells.
    Unknown,
}

/// The loss floor: losses over packets of intervals without congestive losses, with a fading memory.
///
/// Where a queue was full when the flow came, its whole range is the last few packets of it, and what is lost in the
/// lower half of those is learnt. When the smallest RTT falls, the floor must stand the test again: one that was learnt
/// at what is a long queue now is forgotten.
#[derive(Clone, Debug)]
pub(super) struct LossFloor {
    lost_pkts: f64,
    pkts: f64,
    /// Squared distances of the intervals' losses from what the floor lets expect.
    spread: f32,
    /// Sum of the RTTs that these losses met, us.
    met_us: f32,
    max: f32,
    /// Packets that have passed since the last loss, and the most that lately did.
    run_pkts: u16,
    longest_pkts: u16,
}

impl LossFloor {
    pub(super) fn new(max: f64) -> Self {
        Self {
            lost_pkts: 0.0,
            pkts: 0.0,
            spread: 0.0,
            met_us: 0.0,
            max: max as f32,
            run_pkts: 0,
            longest_pkts: 0,
        }
    }

    pub(super) fn set_max(&mut self, max: f64) {
        self.max = max as f32;
    }

    /// Counts what passes in a row, wherever that is.
    pub(super) fn pass(&mut self, mi: &Mi) {
        let passed = (mi.pkts() / (mi.lost_pkts + 1.0)) as u16;
        self.run_pkts = self.run_pkts.saturating_add(passed);
        if mi.lost_pkts >= 1.0 {
            let faded = (f64::from(self.longest_pkts) * RUN_FADES) as u16;
            self.longest_pkts = self.run_pkts.max(faded);
            self.run_pkts = 0;
        }
    }

    /// The most that the path may lose by itself: with more, so many packets would not have passed in a row.
    pub(super) fn most(&self) -> f64 {
        if self.pkts < MIN_PKTS {
            return 1.0;
        }
        self.by_runs().min(MOST_OWN)
    }

    /// The same for losses one by one, as far as only the longest run tells.
    fn by_runs(&self) -> f64 {
        let passed = f64::from(self.run_pkts.max(self.longest_pkts));
        LONGEST_RUN / passed.max(LONGEST_RUN)
    }

    pub(super) fn learn(&mut self, mi: &Mi, class: LossClass) {
        // A queue that was full from the start looks like no queue: what is learnt then stays small, or a flow
        // that came last would take the others' congestion for its path's nature.
        let lost_pkts = match class {
            LossClass::Congestive => return,
            LossClass::Unknown => mi.lost_pkts.min(self.unknown() * mi.pkts()),
            LossClass::None | LossClass::Random => mi.lost_pkts,
        };
        self.lost_pkts += lost_pkts;
        self.pkts += mi.pkts();
        let expected = self.mean() * mi.pkts();
        self.spread += (lost_pkts - expected).powi(2) as f32;
        let met = mi.rtt_at_loss.or(mi.rtt.map(|rtt| rtt.mean));
        self.met_us += (met.unwrap_or_default().us() as f64 * lost_pkts) as f32;
        if self.pkts > MEMORY_PKTS {
            let keep = 0.9 * MEMORY_PKTS / self.pkts;
            self.lost_pkts *= keep;
            self.pkts *= keep;
            self.spread *= keep as f32;
            self.met_us *= keep as f32;
        }
    }

    /// The mean RTT that its losses met; `None` without any.
    pub(super) fn met(&self) -> Option<Micros> {
        let mean_us = f64::from(self.met_us) / self.lost_pkts;
        (self.lost_pkts > 0.0).then(|| Micros::new(mean_us as u64))
    }

    /// Learns anew.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.max.into());
    }

    fn mean(&self) -> f64 {
        self.lost_pkts / self.pkts.max(1.0)
    }

    /// Variance of the losses over that of independent ones, as of a quasi-binomial model. Bursts of n packets make it
    /// n, those whose lengths vary up to 2n.
    pub(super) fn dispersion(&self) -> f64 {
        let mean = self.mean();
        let independent = mean * (1.0 - mean) * self.pkts;
        if self.pkts < MIN_PKTS || independent < 1.0 {
            return 1.0;
        }
        (f64::from(self.spread) / independent).clamp(1.0, DISPERSION_MAX)
    }

    /// The highest floor while it is unknown where packets are lost.
    fn unknown(&self) -> f64 {
        if self.pkts < MIN_PKTS {
            UNKNOWN
        } else {
            self.most().max(UNKNOWN)
        }
    }

    /// The floor; a small one while the range of the queue is unknown. The path's own losses vary `dispersion` times as
    /// much as independent ones.
    pub(super) fn get(&self, range_unknown: bool, dispersion: f64) -> f64 {
        if self.pkts < MIN_PKTS {
            return 0.0;
        }
        let max = f64::from(self.max);
        let cap = if range_unknown {
            max.min(self.unknown())
        } else {
            max
        };
        // Bursts are further apart than single losses.
        self.mean().min(cap).min(self.by_runs() * dispersion)
    }
}
