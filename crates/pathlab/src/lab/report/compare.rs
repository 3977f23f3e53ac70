//! One scheme against another, scenario by scenario, by Student's t.

use serde::Serialize;

use super::group::Groups;
use super::measure::{Better, Measure, measure};
use crate::lab::format::printf::g;
use crate::lab::statistics::{Comparison, Sample, compare};

/// What is compared, where both schemes have it.
const COMPARED: [&str; 4] = [
    "goodput_mbps",
    "rtt_p95_ms",
    "retransmitted_percent",
    "completion_p50_s",
];

/// A measure of a scenario under two schemes.
pub struct Row<'a> {
    /// The scenario's id.
    pub scenario: &'a str,
    /// What was compared.
    pub measure: &'static Measure,
    /// Repetitions of the reference and of the scheme.
    pub counts: (usize, usize),
    /// Of these, repetitions in which what is measured never came, as a transfer that did not finish.
    pub never: (usize, usize),
    /// The test; `None` if there are too few repetitions for one, or one has no number.
    pub comparison: Option<Comparison>,
}

/// What a test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The scheme is better.
    Better,
    /// It is worse.
    Worse,
    /// No difference is proven.
    NoDifference,
    /// There are too few repetitions.
    TooFew,
    /// In a repetition what is measured never came: there is no mean to test.
    NeverFinished,
}

impl Row<'_> {
    /// The verdict for the scheme.
    pub fn verdict(&self) -> Verdict {
        match self.comparison {
            None if self.never != (0, 0) => Verdict::NeverFinished,
            None => Verdict::TooFew,
            Some(comparison) if !comparison.differs() => Verdict::NoDifference,
            Some(comparison) => {
                let more = comparison.difference > 0.0;
                if more == (self.measure.better == Better::More) {
                    Verdict::Better
                } else {
                    Verdict::Worse
                }
            }
        }
    }

    /// The verdict and its numbers.
    pub fn words(&self) -> String {
        let Some(comparison) = self.comparison else {
            if self.never != (0, 0) {
                return format!(
                    "no test: {} of {} and {} of {} never finished",
                    self.never.0, self.counts.0, self.never.1, self.counts.1
                );
            }
            return format!(
                "too few repetitions ({} and {})",
                self.counts.0, self.counts.1
            );
        };
        let numbers = format!(
            "{} +/- {}",
            g(comparison.difference, 6),
            g(comparison.interval, 6)
        );
        if comparison.pooled <= 1e-9 * comparison.difference.abs() {
            let change = format!("{:+.1} %", comparison.difference_percent);
            return match self.verdict() {
                Verdict::Better => format!("better: {change}; the repetitions do not differ"),
                Verdict::Worse => format!("worse: {change}; the repetitions do not differ"),
                _ => "equal, as are the repetitions".to_owned(),
            };
        }
        let percent = format!(
            "{:+.1} % +/- {:.1} %",
            comparison.difference_percent, comparison.interval_percent
        );
        match self.verdict() {
            Verdict::Better => format!("better: {numbers} ({percent})"),
            Verdict::Worse => format!("worse: {numbers} ({percent})"),
            _ => format!("no difference proven ({numbers})"),
        }
    }
}

/// All comparisons of a scheme with a reference.
pub fn all<'a>(groups: &Groups<'a>, reference: &str, scheme: &str) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for scenario in groups.scenarios() {
        let find = |name: &str| scenario.iter().find(|group| group.scheme == name);
        let (Some(first), Some(second)) = (find(reference), find(scheme)) else {
            continue;
        };
        for measure in COMPARED.into_iter().filter_map(measure) {
            let (one, other) = (first.values(measure), second.values(measure));
            if one.is_empty() && other.is_empty() {
                continue;
            }
            let never = (never(&one), never(&other));
            let samples = Sample::new(reference, &one).zip(Sample::new(scheme, &other));
            let comparison = samples.and_then(|(one, other)| compare(&one, &other));
            rows.push(Row {
                scenario: first.scenario,
                measure,
                counts: (one.len(), other.len()),
                never,
                comparison: comparison.filter(|_| never == (0, 0)),
            });
        }
    }
    rows
}

fn never(values: &[f64]) -> usize {
    values.iter().filter(|value| value.is_infinite()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::read::{Loaded, Results};
    use crate::lab::report::sample::{measured, results};
    use crate::lab::result::Completion;

    #[test]
    fn verdicts_know_what_is_better() {
        let mut results = Results::default();
        let mut push = |run| {
            results.runs.push(Loaded {
                path: "x.json".into(),
                run,
            });
        };
        for (goodput, seed) in [20.9, 20.9, 21.0].into_iter().zip(1..) {
            push(measured("F4", "cubic", seed, goodput));
        }
        for (goodput, seed) in [23.4, 23.6, 23.9].into_iter().zip(1..) {
            push(measured("F4", "pk3c", seed, goodput));
        }
        push(measured("P1", "cubic", 1, 20.0));
        push(measured("P1", "pk3c", 1, 20.0));
        let groups = Groups::of(&results);
        let rows = all(&groups, "cubic", "pk3c");
        let verdicts: Vec<_> = rows
            .iter()
            .map(|row| (row.scenario, row.measure.key, row.verdict()))
            .collect();
        assert_eq!(verdicts[0], ("F4", "goodput_mbps", Verdict::Better));
        assert_eq!(verdicts[1], ("F4", "rtt_p95_ms", Verdict::NoDifference));
        assert_eq!(verdicts[3], ("P1", "goodput_mbps", Verdict::TooFew));
        // The numbers are ministat's for the same samples in the document.
        assert_eq!(
            rows[0].words(),
            "better: 2.7 +/- 0.413822 (+12.9 % +/- 2.0 %)"
        );
        assert_eq!(all(&groups, "pk3c", "cubic")[0].verdict(), Verdict::Worse);
        assert!(all(&groups, "cubic", "bbr").is_empty());
    }

    #[test]
    fn transfers_that_never_finished_are_named_and_not_tested() {
        let mut runs = Vec::new();
        for (scheme, last_s) in [("cubic", Some(4.2)), ("pk3c", None)] {
            for (seconds, seed) in [Some(4.0), Some(4.1), last_s].into_iter().zip(1..) {
                let mut run = measured("B2", scheme, seed, 20.0);
                run.flows[0].completions.push(Completion {
                    round: 1,
                    start_s: 0.0,
                    seconds,
                    bytes: 10_000_000,
                });
                runs.push(run);
            }
        }
        let results = results(runs);
        let groups = Groups::of(&results);
        let rows = all(&groups, "cubic", "pk3c");
        let row = rows.last().unwrap();
        assert_eq!(row.measure.key, "completion_p50_s");
        assert_eq!(row.verdict(), Verdict::NeverFinished);
        assert_eq!(row.words(), "no test: 0 of 3 and 1 of 3 never finished");
    }
}
