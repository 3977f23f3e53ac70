//! Figures over time: throughput and delay of each flow of a run.

use super::figure::{Axis, Figure};
use super::scenario::{FLOWS, Points};
use crate::chart::{Scale, colour};
use crate::lab::report::group::Group;
use crate::lab::report::measure::is_udp;
use crate::lab::result::{FlowResult, RunResult};
use crate::lab::statistics::mean;

/// Points of all lines of a figure together, and of one line, at most.
const POINTS: usize = 6000;
const LINE_POINTS: usize = 300;
/// Flows named in a legend, at most.
const NAMED: usize = 7;
/// A limit is drawn up to so many times the highest value: further off it would flatten the lines.
const LIMIT_ABOVE: f64 = 1.6;

pub(super) fn throughput(group: &Group<'_>, run: &RunResult) -> Option<String> {
    let flows = drawn(run);
    let lines = lines(&flows, |flow| {
        flow.series.goodput_mbps.iter().copied().map(Some).collect()
    })?;
    let highest = highest(&lines);
    let capacity: Option<Points> = run
        .link
        .as_ref()
        .filter(|link| link.bin_s > 0.0)
        .map(|link| {
            let goodput = |mbps: &f64| Some(mbps * 1448.0 / 1500.0 * (1.0 - run.inputs.loss));
            thinned(
                &link.capacity_mbps.iter().map(goodput).collect::<Vec<_>>(),
                link.bin_s,
                LINE_POINTS,
            )
        });
    let capacity = capacity.or_else(|| {
        let mbps = Some(run.inputs.capacity_mbps?);
        Some(vec![(0.0, mbps), (run.inputs.duration_s, mbps)])
    });
    let near = |points: &Points| {
        points
            .iter()
            .filter_map(|point| point.1)
            .fold(0.0, f64::max)
            <= LIMIT_ABOVE * highest
    };
    let limit = capacity.filter(near).unwrap_or_default();
    let title = format!("{}: throughput over time.", group.scheme);
    let note = "Dotted: what the path carries net of headers and random loss.";
    Some(over_time(
        &title,
        note,
        "goodput, Mbit/s",
        run,
        &flows,
        &lines,
        limit,
        false,
    ))
}

pub(super) fn delay(group: &Group<'_>, run: &RunResult) -> Option<String> {
    let flows = drawn(run);
    let one_way =
        lines(&flows, |flow| flow.series.owd_ms.clone()).filter(|lines| highest(lines) > 0.0);
    let (lines, label, base) = match one_way {
        Some(lines) => (lines, "one-way delay p95, ms", run.inputs.rtt_ms / 2.0),
        None => (
            lines(&flows, |flow| flow.series.rtt_ms.clone())?,
            "smoothed RTT, ms",
            run.inputs.rtt_ms,
        ),
    };
    let limit = vec![(0.0, Some(base)), (run.inputs.duration_s, Some(base))];
    let title = format!("{}: delay over time.", group.scheme);
    Some(over_time(
        &title,
        "Dotted: without a queue.",
        label,
        run,
        &flows,
        &lines,
        limit,
        true,
    ))
}

#[allow(
    clippy::too_many_arguments,
    reason = "two callers, each with all of it"
)]
fn over_time(
    title: &str,
    note: &str,
    label: &str,
    run: &RunResult,
    flows: &[&FlowResult],
    lines: &[Points],
    limit: Points,
    above_zero: bool,
) -> String {
    let values = lines
        .iter()
        .chain([&limit])
        .flatten()
        .filter_map(|point| point.1);
    let seconds = Scale {
        low: 0.0,
        // Downloads may end long before the run would.
        high: flows
            .iter()
            .map(|flow| flow.end_s)
            .fold(0.0, f64::max)
            .clamp(1e-3, run.inputs.duration_s.max(1e-3)),
    };
    let mut caption = format!(
        "Seed {}, the run with the median goodput. {note}",
        run.inputs.seed
    );
    let all = run.flows.iter().filter(|flow| !is_udp(flow)).count();
    if all > flows.len() {
        caption += &format!(" {} of {all} flows.", flows.len());
    }
    let y = Axis::linear(label, values, above_zero);
    let mut figure = Figure::new(title, &caption, Axis::over("s", seconds), y);
    for ((index, flow), points) in flows.iter().enumerate().zip(lines) {
        let colour = colour(index, flows.len());
        let name = format!("flow {} ({})", flow.flow, flow.scheme);
        figure.line(points, "line", &colour, &name);
        if flows.len() <= NAMED && flows.len() > 1 {
            figure.key(&colour, &name);
        }
    }
    figure.line(&limit, "limit", "", "limit of the path");
    figure.finish()
}

/// The flows of TCP that are drawn: evenly spread where there are too many.
fn drawn(run: &RunResult) -> Vec<&FlowResult> {
    let flows: Vec<_> = run.flows.iter().filter(|flow| !is_udp(flow)).collect();
    let step = flows.len().div_ceil(FLOWS).max(1);
    flows.into_iter().step_by(step).collect()
}

/// A line for each flow; `None` if no flow has values.
fn lines(
    flows: &[&FlowResult],
    of: impl Fn(&FlowResult) -> Vec<Option<f64>>,
) -> Option<Vec<Points>> {
    let points = (POINTS / flows.len().max(1)).clamp(30, LINE_POINTS);
    let line = |flow: &&FlowResult| -> Points {
        let (start, end) = (flow.start_s, flow.end_s);
        let points = thinned(&of(flow), flow.series.bin_s, points);
        points
            .into_iter()
            .filter(|(at, _)| *at >= start && *at <= end)
            .collect()
    };
    let lines: Vec<_> = flows.iter().map(line).collect();
    let any = lines.iter().flatten().any(|point| point.1.is_some());
    any.then_some(lines)
}

fn highest(lines: &[Points]) -> f64 {
    lines
        .iter()
        .flatten()
        .filter_map(|point| point.1)
        .fold(0.0, f64::max)
}

/// Bins at the middle of each; where there are too many, means of neighbours.
fn thinned(bins: &[Option<f64>], bin_s: f64, most: usize) -> Points {
    let group = bins.len().div_ceil(most).max(1);
    let groups = bins.chunks(group).enumerate();
    groups
        .map(|(index, bins)| {
            let there: Vec<_> = bins.iter().flatten().copied().collect();
            let at = (index * group) as f64 + bins.len() as f64 / 2.0;
            (at * bin_s, mean(&there))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_averaged_and_gaps_kept() {
        let bins = [Some(1.0), Some(3.0), None, None, Some(5.0)];
        assert_eq!(
            thinned(&bins, 0.5, 3),
            [(0.5, Some(2.0)), (1.5, None), (2.25, Some(5.0))]
        );
    }
}
