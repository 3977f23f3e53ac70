//! How far a suite is, and how long it will still take.

use std::collections::HashMap;
use std::time::Duration;

/// Between two runs on real time: namespaces, devices, the agent.
const OVERHEAD_S: f64 = 2.0;

/// What the runs of a kind took.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    runs: usize,
    nominal_s: f64,
    took_s: f64,
}

/// Runs of a kind that are still to come.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    runs: usize,
    nominal_s: f64,
}

/// The work of a suite. A run costs what others of its kind (its scenario and scheme) took, and before there is one,
/// its length times what a second of length took so far: downloads end long before their limit.
#[derive(Debug)]
pub struct Progress {
    total: usize,
    done: usize,
    jobs: usize,
    /// By kind: runs to come, and runs made.
    kinds: HashMap<String, (Left, Taken)>,
    /// Of all runs that were made.
    taken: Taken,
    /// Whether runs take as long as they say.
    real_time: bool,
}

impl Progress {
    /// Of runs of these kinds and lengths, s, so many at a time.
    pub fn new(
        runs: impl IntoIterator<Item = (String, f64)>,
        jobs: usize,
        real_time: bool,
    ) -> Self {
        let mut kinds: HashMap<String, (Left, Taken)> = HashMap::new();
        let mut total = 0;
        for (kind, length_s) in runs {
            let (left, _) = kinds.entry(kind).or_default();
            left.runs += 1;
            left.nominal_s += length_s;
            total += 1;
        }
        Self {
            total,
            done: 0,
            jobs: jobs.max(1),
            kinds,
            taken: Taken::default(),
            real_time,
        }
    }

    /// A run was made.
    pub fn made(&mut self, kind: &str, length_s: f64, took: Duration) {
        let of_kind = self.kinds.get_mut(kind).map(|(_, taken)| taken);
        for taken in of_kind.into_iter().chain([&mut self.taken]) {
            taken.runs += 1;
            taken.nominal_s += length_s;
            taken.took_s += took.as_secs_f64();
        }
        self.skipped(kind, length_s);
    }

    /// A run need not be made.
    pub fn skipped(&mut self, kind: &str, length_s: f64) {
        if let Some((left, _)) = self.kinds.get_mut(kind) {
            left.runs = left.runs.saturating_sub(1);
            left.nominal_s -= length_s;
        }
        self.done += 1;
    }

    /// `[ 3/60]`
    pub fn count(&self) -> String {
        let width = self.total.to_string().len();
        format!("[{:>width$}/{}]", self.done, self.total)
    }

    /// `, 12 min left`; nothing at the end, or while nobody knows.
    pub fn left(&self) -> String {
        if self.done >= self.total {
            return String::new();
        }
        let all = self.taken;
        if all.runs == 0 && !self.real_time {
            return String::new();
        }
        let cost = |(left, taken): &(Left, Taken)| {
            if taken.runs > 0 {
                left.runs as f64 * taken.took_s / taken.runs as f64
            } else if all.nominal_s > 0.0 {
                left.nominal_s * all.took_s / all.nominal_s
            } else {
                left.nominal_s + OVERHEAD_S * left.runs as f64
            }
        };
        let left_s: f64 = self.kinds.values().map(cost).sum();
        format!(", {} left", words(left_s / self.jobs as f64))
    }
}

/// A time as people say it.
pub fn words(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_was_measured() {
        let runs = [("a", 10.0), ("a", 10.0), ("b", 20.0), ("c", 60.0)];
        let runs = runs.map(|(kind, length_s)| (kind.to_owned(), length_s));
        let mut progress = Progress::new(runs, 1, true);
        let shown = |progress: &Progress| (progress.count(), progress.left());
        assert_eq!(shown(&progress), ("[0/4]".into(), ", 2 min left".into()));
        progress.made("a", 10.0, Duration::from_secs(15));
        assert_eq!(progress.left(), ", 2 min left"); // 15 s, and 80 s x 1.5
        progress.skipped("c", 60.0);
        assert_eq!(shown(&progress), ("[2/4]".into(), ", 45 s left".into()));
        progress.skipped("a", 10.0);
        progress.skipped("b", 20.0);
        assert_eq!(progress.left(), "");
        assert_eq!(Progress::new([("a".into(), 5.0)], 2, false).left(), "");
    }

    #[test]
    fn downloads_that_end_early_are_known_after_the_first() {
        let runs = ["slow", "fast", "slow", "fast"].map(|kind| (kind.to_owned(), 60.0));
        let mut progress = Progress::new(runs, 1, true);
        progress.made("slow", 60.0, Duration::from_secs(60));
        progress.made("fast", 60.0, Duration::from_secs(6));
        assert_eq!(progress.left(), ", 66 s left");
        progress.made("slow", 60.0, Duration::from_secs(60));
        assert_eq!(progress.left(), ", 6 s left");
    }
}
