//! How far a suite is, and how long it will still take.

use std::time::Duration;

/// Between two runs on real time: namespaces, devices, the agent.
const OVERHEAD_S: f64 = 2.0;

/// The work of a suite: each run costs its length in seconds of its own time.
#[derive(Debug)]
pub struct Progress {
    total: usize,
    done: usize,
    jobs: usize,
    /// Run time that is still to come, s of the runs' own time.
    left_s: f64,
    /// Of the runs that have been made: their own time, and what they took.
    nominal_s: f64,
    took_s: f64,
    /// Whether runs take as long as they say.
    real_time: bool,
}

impl Progress {
    /// Of runs with these lengths, s, so many at a time.
    pub fn new(lengths_s: impl IntoIterator<Item = f64>, jobs: usize, real_time: bool) -> Self {
        let lengths: Vec<_> = lengths_s.into_iter().collect();
        Self {
            total: lengths.len(),
            done: 0,
            jobs: jobs.max(1),
            left_s: lengths.iter().sum(),
            nominal_s: 0.0,
            took_s: 0.0,
            real_time,
        }
    }

    /// A run was made.
    pub fn made(&mut self, length_s: f64, took: Duration) {
        self.nominal_s += length_s;
        self.took_s += took.as_secs_f64();
        self.skipped(length_s);
    }

    /// A run need not be made.
    pub fn skipped(&mut self, length_s: f64) {
        self.left_s -= length_s;
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
        let left_s = if self.nominal_s > 0.0 {
            self.left_s * self.took_s / self.nominal_s
        } else if self.real_time {
            self.left_s + OVERHEAD_S * (self.total - self.done) as f64
        } else {
            return String::new();
        };
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
        let mut progress = Progress::new([10.0, 10.0, 20.0, 60.0], 1, true);
        assert_eq!(
            (progress.count(), progress.left()),
            ("[0/4]".into(), ", 2 min left".into())
        );
        progress.made(10.0, Duration::from_secs(15));
        assert_eq!(progress.left(), ", 2 min left"); // 90 s x 1.5
        progress.skipped(60.0);
        assert_eq!(
            (progress.count(), progress.left()),
            ("[2/4]".into(), ", 45 s left".into())
        );
        progress.skipped(10.0);
        progress.skipped(20.0);
        assert_eq!(progress.left(), "");
        assert_eq!(Progress::new([5.0], 2, false).left(), "");
    }
}
