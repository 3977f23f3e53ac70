//! The figures of one scenario.

use super::Colours;
use super::figure::{Axis, Figure};
use super::over_time::{delay, throughput};
use crate::chart::Scale;
use crate::lab::report::group::Group;
use crate::lab::report::measure::{completions_s, measure, under_test};
use crate::lab::result::{FlowResult, RunResult};
use crate::lab::statistics::{median, quantile_of_sorted, sorted};

/// Flows drawn one by one, at most.
pub(super) const FLOWS: usize = 60;
/// Points of a distribution.
const STEPS: usize = 150;
/// Points of a line: value on the horizontal axis, value.
pub(super) type Points = Vec<(f64, Option<f64>)>;

pub(super) fn figures(groups: &[Group<'_>], colours: &Colours<'_>) -> String {
    let mut text = String::from("<div class=\"figures\">\n");
    text += &scatter(groups, colours).unwrap_or_default();
    text += &delays(groups, colours).unwrap_or_default();
    text += &completions(groups, colours).unwrap_or_default();
    text += &fairness(groups, colours).unwrap_or_default();
    for group in groups {
        if let Some(run) = group.typical() {
            text += &throughput(group, run).unwrap_or_default();
            text += &delay(group, run).unwrap_or_default();
        }
    }
    text + "</div>\n"
}

/// Pantheon's: throughput against the 95th percentile of delay, better to the upper right.
fn scatter(groups: &[Group<'_>], colours: &Colours<'_>) -> Option<String> {
    let throughput = measure("goodput_mbps")?;
    let one_way = groups.iter().all(|group| {
        !group.runs.is_empty() && group.runs.iter().all(|run| run.total.owd_ms.is_some())
    });
    let (key, label) = if one_way {
        ("owd_p95_ms", "p95 of one-way delay, ms")
    } else {
        ("rtt_p95_ms", "p95 of RTT, ms")
    };
    let delay = measure(key)?;
    let of_runs = |group: &Group<'_>| -> Vec<(f64, f64)> {
        let point = |run: &&RunResult| Some(((delay.of)(run)?, (throughput.of)(run)?));
        group.runs.iter().filter_map(point).collect()
    };
    let points: Vec<_> = groups.iter().map(of_runs).collect();
    let all = || points.iter().flatten();
    all().next()?;
    let x = Axis::reversed_log(label, all().map(|point| point.0));
    let y = Axis::linear(
        "goodput, Mbit/s",
        all().flat_map(|point| [point.1, point.1 * 1.02]),
        true,
    );
    let caption =
        "Large: medians; small: runs. Delay is less to the right: better is up and to the right.";
    let mut figure = Figure::new("Throughput against delay.", caption, x, y);
    let mut named: Vec<(f64, f64)> = Vec::new();
    for (group, runs) in groups.iter().zip(&points) {
        let colour = colours.get(group.scheme);
        for run in runs {
            let name = format!("{}: {:.2} Mbit/s, {:.1} ms", group.scheme, run.1, run.0);
            figure.dot(*run, 3.0, "run", &colour, &name);
        }
        let middle = |of: fn(&(f64, f64)) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>());
        let (Some(x), Some(y)) = (middle(|point| point.0), middle(|point| point.1)) else {
            continue;
        };
        figure.dot(
            (x, y),
            6.0,
            "median",
            &colour,
            &format!("{}, median: {y:.2} Mbit/s, {x:.1} ms", group.scheme),
        );
        // Names of schemes that lie together go below each other.
        let at = (figure.x(x), figure.y(y));
        let near = named
            .iter()
            .filter(|other| (other.0 - at.0).abs() < 70.0 && (other.1 - at.1).abs() < 13.0);
        let row = near.count() as f64;
        named.push(at);
        figure.name((x, y), row, group.scheme);
        figure.key(&colour, group.scheme);
    }
    Some(figure.finish())
}

/// Distribution of the RTTs of all runs, or of one-way delays where there are no RTTs.
fn delays(groups: &[Group<'_>], colours: &Colours<'_>) -> Option<String> {
    let of = |of: fn(&FlowResult) -> &[Option<f64>]| -> Vec<Vec<f64>> {
        let values = |group: &Group<'_>| {
            let flows = group.runs.iter().flat_map(|run| under_test(run));
            sorted(&flows.flat_map(of).copied().flatten().collect::<Vec<_>>())
        };
        groups.iter().map(values).collect()
    };
    let mut label = "smoothed RTT, ms";
    let mut values = of(|flow| &flow.series.rtt_ms);
    if values.iter().all(Vec::is_empty) {
        label = "one-way delay (p95 of a bin), ms";
        values = of(|flow| &flow.series.owd_ms);
    }
    let caption = "Bins of all runs; 99.5 % of the values.";
    distribution(
        "Distribution of delay.",
        caption,
        label,
        groups,
        &values,
        0.995,
        colours,
    )
}

/// Distribution of completion times.
fn completions(groups: &[Group<'_>], colours: &Colours<'_>) -> Option<String> {
    let values = |group: &Group<'_>| {
        sorted(
            &group
                .runs
                .iter()
                .flat_map(|run| completions_s(run))
                .collect::<Vec<_>>(),
        )
    };
    let values: Vec<_> = groups.iter().map(values).collect();
    let caption = "Until the last byte is at the receiver; what never came keeps a line below 1.";
    distribution(
        "Completion times.",
        caption,
        "s",
        groups,
        &values,
        1.0,
        colours,
    )
}

fn distribution(
    title: &str,
    caption: &str,
    label: &str,
    groups: &[Group<'_>],
    values: &[Vec<f64>],
    up_to: f64,
    colours: &Colours<'_>,
) -> Option<String> {
    let curve = |values: &Vec<f64>| -> Points {
        let part = |step: usize| step as f64 / STEPS as f64 * up_to;
        let point = |step: usize| {
            let value = quantile_of_sorted(values, part(step)).filter(|value| value.is_finite())?;
            Some((value, Some(part(step))))
        };
        (0..=STEPS).filter_map(point).collect()
    };
    let curves: Vec<_> = values.iter().map(curve).collect();
    let all = || curves.iter().flatten().map(|point| point.0);
    all().next()?;
    let x = Axis::linear(label, all(), true);
    let y = Axis::over(
        "part of all",
        Scale {
            low: 0.0,
            high: 1.0,
        },
    );
    let mut figure = Figure::new(title, caption, x, y);
    for (group, curve) in groups
        .iter()
        .zip(&curves)
        .filter(|(_, curve)| !curve.is_empty())
    {
        let colour = colours.get(group.scheme);
        figure.line(curve, "line", &colour, group.scheme);
        figure.key(&colour, group.scheme);
    }
    Some(figure.finish())
}

/// A bar for each flow of the typical run of each scheme.
fn fairness(groups: &[Group<'_>], colours: &Colours<'_>) -> Option<String> {
    let runs: Vec<_> = groups
        .iter()
        .filter_map(|group| Some((group, group.typical()?)))
        .collect();
    let most = runs.iter().map(|(_, run)| run.flows.len()).max()?;
    if most < 2 {
        return None;
    }
    let rates = runs
        .iter()
        .flat_map(|(_, run)| run.flows.iter().map(|flow| flow.goodput_mbps));
    let names = runs.iter().enumerate().map(|(at, (group, _))| {
        let letters = 40 / runs.len().max(1);
        let short: String = group.scheme.chars().take(letters.max(4)).collect();
        (at as f64 + 0.5, short)
    });
    let width = Scale {
        low: 0.0,
        high: runs.len() as f64,
    };
    let x = Axis::over("", width).named(names.collect());
    let y = Axis::linear("goodput, Mbit/s", rates, false);
    let caption = "Each flow over its life in the run with the median goodput; grey or another colour: flows that are not under test.";
    let mut figure = Figure::new("Fairness.", caption, x, y);
    for (at, (group, run)) in runs.iter().enumerate() {
        let mut flows: Vec<_> = run.flows.iter().collect();
        if flows.len() > FLOWS {
            // So many bars are an outline: from the slowest to the fastest.
            flows.sort_by(|a, b| a.goodput_mbps.total_cmp(&b.goodput_mbps));
        }
        let step = 0.86 / flows.len().max(1) as f64;
        for (index, flow) in flows.into_iter().enumerate() {
            let from = at as f64 + 0.07 + index as f64 * step;
            let scheme = if flow.under_test {
                group.scheme
            } else {
                &flow.scheme
            };
            let name = format!(
                "flow {} ({scheme}): {:.2} Mbit/s",
                flow.flow, flow.goodput_mbps
            );
            figure.bar(
                (from, from + step * 0.85),
                flow.goodput_mbps,
                &colours.get(scheme),
                &name,
            );
        }
        let jain = measure("jain")
            .map(|measure| group.values(measure))
            .and_then(|values| median(&values));
        if let Some(jain) = jain {
            figure.key(
                &colours.get(group.scheme),
                &format!("{}: Jain {jain:.3}", group.scheme),
            );
        }
    }
    Some(figure.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::sample::{flow, measured, run};

    #[test]
    fn every_dot_lies_where_its_value_is() {
        let runs: Vec<_> = [(1, 74.8), (2, 75.1)]
            .map(|(seed, goodput)| measured("G5", "cubic", seed, goodput))
            .into();
        let group = Group {
            scenario: "G5",
            scheme: "cubic",
            runs: runs.iter().collect(),
            void: Vec::new(),
        };
        let text = scatter(&[group], &Colours(vec!["cubic"])).unwrap();
        let heights = text
            .split(" cy=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        let heights: Vec<f64> = heights.map(|height| height.parse().unwrap()).collect();
        // Run, run, and the median in the middle of them; none on the edge.
        assert_eq!(heights.len(), 3, "{text}");
        assert!(
            heights[0] > heights[1] && heights[0] < 178.0 && heights[1] > 10.0,
            "{heights:?}"
        );
        assert!(
            (heights[2] - (heights[0] + heights[1]) / 2.0).abs() < 0.11,
            "{heights:?}"
        );
    }

    #[test]
    fn a_thousand_flows_stay_small() {
        let mut result = run("N1000", "cubic", 1);
        result.flows = (1..=1000)
            .map(|number| flow(number, 0.0, 30.0, vec![0.1; 300]))
            .collect();
        let group = Group {
            scenario: "N1000",
            scheme: "cubic",
            runs: vec![&result],
            void: Vec::new(),
        };
        let text = figures(&[group], &Colours(vec!["cubic"]));
        assert!(text.len() < 300_000, "{}", text.len());
        assert!(text.contains("59 of 1000 flows."), "{text}");
    }
}
