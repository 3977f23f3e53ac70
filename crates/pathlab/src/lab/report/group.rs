//! Results by scenario and scheme.

use super::measure::Measure;
use super::read::{Loaded, Results};
use crate::lab::result::RunResult;
use crate::lab::statistics::{Interval, median_interval, quantile};

/// The runs of one scheme in one scenario; at least one, void ones included.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The scenario's id.
    pub scenario: &'a str,
    /// The scheme under test.
    pub scheme: &'a str,
    /// Runs that count.
    pub runs: Vec<&'a RunResult>,
    /// Runs that do not, and why.
    pub void: Vec<(&'a Loaded, &'a str)>,
}

impl<'a> Group<'a> {
    /// The values of a measure, run by run; runs without one are left out.
    pub fn values(&self, measure: &Measure) -> Vec<f64> {
        self.runs
            .iter()
            .filter_map(|run| (measure.of)(run))
            .collect()
    }

    /// Its median with the interval.
    pub fn interval(&self, measure: &Measure) -> Option<Interval> {
        median_interval(&self.values(measure))
    }

    /// Any run of the group, for what all have in common.
    pub fn any(&self) -> Option<&'a RunResult> {
        let void = self.void.first().map(|(loaded, _)| &loaded.run);
        self.runs.first().copied().or(void)
    }

    /// The run whose goodput is the (lower) median, to be drawn; `None` if none counts.
    pub fn typical(&self) -> Option<&'a RunResult> {
        let goodputs: Vec<_> = self.runs.iter().map(|run| run.total.goodput_mbps).collect();
        let middle = quantile(&goodputs, 0.5)?;
        let at = goodputs.iter().position(|goodput| *goodput == middle)?;
        self.runs.get(at).copied()
    }
}

/// All groups, by scenario and scheme in natural order.
#[derive(Clone, Debug, Default)]
pub struct Groups<'a>(pub Vec<Group<'a>>);

impl<'a> Groups<'a> {
    /// Groups results.
    pub fn of(results: &'a Results) -> Self {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for loaded in &results.runs {
            let inputs = &loaded.run.inputs;
            let same = |group: &Group<'_>| {
                (group.scenario, group.scheme) == (inputs.scenario.as_str(), inputs.scheme.as_str())
            };
            let at = groups.iter().position(same).unwrap_or_else(|| {
                groups.push(Group {
                    scenario: &inputs.scenario,
                    scheme: &inputs.scheme,
                    runs: Vec::new(),
                    void: Vec::new(),
                });
                groups.len() - 1
            });
            match &loaded.run.void {
                Some(reason) => groups[at].void.push((loaded, reason)),
                None => groups[at].runs.push(&loaded.run),
            }
        }
        Self(groups)
    }

    /// The groups of each scenario.
    pub fn scenarios(&self) -> impl Iterator<Item = &[Group<'a>]> {
        self.0.chunk_by(|a, b| a.scenario == b.scenario)
    }

    /// The group of a scenario and scheme.
    pub fn find(&self, scenario: &str, scheme: &str) -> Option<&Group<'a>> {
        let same = |group: &&Group<'_>| (group.scenario, group.scheme) == (scenario, scheme);
        self.0.iter().find(same)
    }

    /// All void runs.
    pub fn void(&self) -> impl Iterator<Item = (&'a Loaded, &'a str)> + '_ {
        self.0.iter().flat_map(|group| group.void.iter().copied())
    }
}

/// Id, title, path, and what was changed: the heading of a scenario.
pub fn heading(run: &RunResult) -> String {
    let inputs = &run.inputs;
    let mut text = inputs.scenario.clone();
    if let Some(title) = &inputs.title {
        text += &format!(": {title}");
    }
    format!("{text}; {}", facts(run))
}

/// Path, length, backend and what was changed.
pub fn facts(run: &RunResult) -> String {
    let inputs = &run.inputs;
    let mut text = format!(
        "{}, {} s, {}",
        inputs.path, inputs.duration_s, inputs.backend
    );
    if inputs.quick {
        text += ", short form";
    }
    if let Some(scaled) = &inputs.scaled {
        text += &format!("; scaled: {scaled}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::measure::measure;
    use crate::lab::report::sample::{measured, results};

    #[test]
    fn void_runs_are_listed_and_never_counted() {
        let mut runs: Vec<_> = [40.0, 44.0, 10.0]
            .into_iter()
            .zip(1..)
            .map(|(goodput, seed)| measured("P1", "pk3c", seed, goodput))
            .collect();
        runs[2].void = Some("the agent drove 42 %".into());
        runs.push(measured("P2", "pk3c", 1, 30.0));
        let results = results(runs);
        let groups = Groups::of(&results);
        assert_eq!(
            groups.scenarios().map(<[_]>::len).collect::<Vec<_>>(),
            [1, 1]
        );
        let group = groups.find("P1", "pk3c").unwrap();
        let goodput = measure("goodput_mbps").unwrap();
        assert_eq!(group.values(goodput), [40.0, 44.0]);
        assert_eq!(group.interval(goodput).unwrap().median, 42.0);
        assert_eq!(group.typical().unwrap().total.goodput_mbps, 40.0);
        let void: Vec<_> = groups.void().map(|(_, reason)| reason).collect();
        assert_eq!(void, ["the agent drove 42 %"]);
    }
}
