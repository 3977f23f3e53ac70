//! The report for programs.
//!
//! `{"format", "warnings", "groups": [{"scenario", "scheme", "runs", "void", "measures": {KEY: {"median", "low",
//! "high", "mean", "standard_deviation", "values"}}}], "void": [{"file", "scenario", "scheme", "seed", "reason"}],
//! "comparisons": [...]}`; the keys are those of [`MEASURES`], a value that never came is `null`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compare::{self, Verdict};
use super::group::Groups;
use super::measure::MEASURES;
use super::read::Results;
use crate::lab::statistics::{Comparison, Interval, mean, standard_deviation};

/// Version of the format.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    warnings: Vec<String>,
    groups: Vec<GroupReport<'a>>,
    void: Vec<Void<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    comparisons: Vec<Compared<'a>>,
}

#[derive(Serialize)]
struct GroupReport<'a> {
    scenario: &'a str,
    scheme: &'a str,
    runs: usize,
    void: usize,
    measures: BTreeMap<&'static str, Measured>,
}

#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    interval: Interval,
    mean: Option<f64>,
    standard_deviation: Option<f64>,
    values: Vec<f64>,
}

#[derive(Serialize)]
struct Void<'a> {
    file: String,
    scenario: &'a str,
    scheme: &'a str,
    seed: u64,
    reason: &'a str,
}

#[derive(Serialize)]
struct Compared<'a> {
    scenario: &'a str,
    measure: &'static str,
    reference: &'a str,
    scheme: &'a str,
    verdict: Verdict,
    #[serde(flatten)]
    comparison: Option<Comparison>,
}

/// All results as JSON, with the comparison of two schemes (reference first) if asked for.
///
/// # Errors
/// None in practice: all values are numbers, text and lists of these.
pub fn render(
    results: &Results,
    groups: &Groups<'_>,
    pair: Option<(&str, &str)>,
) -> serde_json::Result<String> {
    let of_groups = groups.0.iter().map(|group| {
        let measures = MEASURES.iter().filter_map(|measure| {
            let values = group.values(measure);
            let measured = Measured {
                interval: group.interval(measure)?,
                mean: mean(&values),
                standard_deviation: standard_deviation(&values),
                values,
            };
            Some((measure.key, measured))
        });
        GroupReport {
            scenario: group.scenario,
            scheme: group.scheme,
            runs: group.runs.len(),
            void: group.void.len(),
            measures: measures.collect(),
        }
    });
    let void = groups.void().map(|(loaded, reason)| Void {
        file: loaded.path.display().to_string(),
        scenario: &loaded.run.inputs.scenario,
        scheme: &loaded.run.inputs.scheme,
        seed: loaded.run.inputs.seed,
        reason,
    });
    let comparisons = pair.map(|(reference, scheme)| {
        let rows = compare::all(groups, reference, scheme).into_iter();
        let rows = rows.map(|row| Compared {
            scenario: row.scenario,
            measure: row.measure.key,
            reference,
            scheme,
            verdict: row.verdict(),
            comparison: row.comparison,
        });
        rows.collect()
    });
    serde_json::to_string_pretty(&Report {
        format: FORMAT,
        warnings: results.warnings(),
        groups: of_groups.collect(),
        void: void.collect(),
        comparisons: comparisons.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::read::Loaded;
    use crate::lab::report::sample::measured;

    #[test]
    fn the_documented_keys_are_there() {
        let mut results = Results::default();
        for (scheme, seed, goodput) in [("cubic", 1, 40.0), ("cubic", 2, 42.0), ("cubic", 3, 1.0)] {
            let mut run = measured("P1", scheme, seed, goodput);
            run.void = (seed == 3).then(|| "late".into());
            results.runs.push(Loaded {
                path: format!("P1-cubic-{seed}.json").into(),
                run,
            });
        }
        let groups = Groups::of(&results);
        let text = render(&results, &groups, Some(("cubic", "cubic"))).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let goodput = &json["groups"][0]["measures"]["goodput_mbps"];
        assert_eq!(goodput["median"], 41.0);
        assert_eq!(goodput["values"], serde_json::json!([40.0, 42.0]));
        assert_eq!(json["void"][0]["file"], "P1-cubic-3.json");
        assert_eq!(json["void"][0]["reason"], "late");
        assert_eq!(json["comparisons"][0]["verdict"], "no_difference");
        assert_eq!(json["comparisons"][0]["difference"], 0.0);
    }
}
