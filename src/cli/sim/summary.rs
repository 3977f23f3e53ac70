//! The results of one or more runs, as a table and as JSON.

use super::decisions::FlowDecisions;
use super::runs::Outcome;
use pathsim::{FlowResult, Results};
use serde::Serialize;
use std::fmt;

/// Means over the runs. The serialized field names are a public format.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    goodput_mbps: f64,
    share: f64,
    share_second_half: f64,
    rtt_p50_ms: Option<f64>,
    rtt_p95_ms: Option<f64>,
    loss: f64,
    jain: f64,
    queue_peak_packets: f64,
    flows: Vec<Flow>,
    runs: Vec<Run>,
}

/// One run, with its seed.
#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    results: Results,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<FlowDecisions>,
}

#[derive(Debug, Serialize)]
struct Flow {
    scheme: String,
    goodput_mbps: f64,
    share: f64,
    share_min: f64,
    share_max: f64,
    rtt_mean_ms: Option<f64>,
    rtt_p50_ms: Option<f64>,
    rtt_p95_ms: Option<f64>,
    loss: f64,
    retransmissions: f64,
    timeouts: f64,
    completion_s: Option<f64>,
}

/// The mean of what is there.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (count, sum) = values
        .flatten()
        .fold((0, 0.0), |(n, sum), x| (n + 1, sum + x));
    (count > 0).then(|| sum / f64::from(count))
}

impl Summary {
    pub(super) fn of(outcomes: Vec<Outcome>) -> Self {
        let runs: Vec<_> = outcomes
            .into_iter()
            .map(|outcome| Run {
                decisions: FlowDecisions::of_run(&outcome.decisions),
                results: outcome.results,
            })
            .collect();
        let results = || runs.iter().map(|run| &run.results);
        let over = |value: &dyn Fn(&Results) -> f64| {
            mean(results().map(|run| Some(value(run)))).unwrap_or(0.0)
        };
        let optional = |value: &dyn Fn(&Results) -> Option<f64>| mean(results().map(value));
        let flows = results().next().map_or(0, |run| run.flows.len());
        let flows =
            (0..flows).map(|index| Flow::of(results().map(|run| &run.flows[index]).collect()));
        Self {
            goodput_mbps: over(&|run| run.goodput_mbps),
            share: over(&|run| run.share),
            share_second_half: over(&|run| run.share_second_half),
            rtt_p50_ms: optional(&|run| run.rtt_p50_ms),
            rtt_p95_ms: optional(&|run| run.rtt_p95_ms),
            loss: over(&|run| run.loss),
            jain: over(&|run| run.jain),
            queue_peak_packets: over(&|run| run.queue_peak_packets as f64),
            flows: flows.collect(),
            runs,
        }
    }
}

impl Flow {
    fn of(runs: Vec<&FlowResult>) -> Self {
        let over = |value: &dyn Fn(&FlowResult) -> f64| {
            mean(runs.iter().map(|run| Some(value(run)))).unwrap_or(0.0)
        };
        let optional =
            |value: &dyn Fn(&FlowResult) -> Option<f64>| mean(runs.iter().map(|run| value(run)));
        let shares = || runs.iter().map(|run| run.share);
        Self {
            scheme: runs
                .first()
                .map_or_else(String::new, |run| run.scheme.clone()),
            goodput_mbps: over(&|run| run.goodput_mbps),
            share: over(&|run| run.share),
            share_min: shares().fold(f64::INFINITY, f64::min),
            share_max: shares().fold(0.0, f64::max),
            rtt_mean_ms: optional(&|run| run.rtt_mean_ms),
            rtt_p50_ms: optional(&|run| run.rtt_p50_ms),
            rtt_p95_ms: optional(&|run| run.rtt_p95_ms),
            loss: over(&|run| run.loss),
            retransmissions: over(&|run| run.retransmissions as f64),
            timeouts: over(&|run| run.timeouts as f64),
            completion_s: optional(&|run| run.completion_s),
        }
    }
}

const HEADINGS: [(&str, &str, usize); 10] = [
    ("flow", "", 14),
    ("goodput", "Mbit/s", 8),
    ("share", "%", 6),
    ("min", "%", 6),
    ("max", "%", 6),
    ("RTT p50", "ms", 8),
    ("RTT p95", "ms", 8),
    ("loss", "%", 6),
    ("retrans.", "segments", 9),
    ("timeouts", "", 8),
];
/// Flows in the table at most; JSON has them all.
const ROWS: usize = 60;

impl fmt::Display for Summary {
    /// A line per flow, and one for all of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, HEADINGS.map(|(heading, ..)| heading.to_owned()))?;
        line(f, HEADINGS.map(|(_, unit, _)| unit.to_owned()))?;
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        let percent = |ratio: f64| format!("{:.1}", ratio * 100.0);
        for (flow, number) in self.flows.iter().zip(1..).take(ROWS) {
            line(
                f,
                [
                    format!("{number} {}", flow.scheme),
                    format!("{:.2}", flow.goodput_mbps),
                    percent(flow.share),
                    percent(flow.share_min),
                    percent(flow.share_max),
                    ms(flow.rtt_p50_ms),
                    ms(flow.rtt_p95_ms),
                    format!("{:.2}", flow.loss * 100.0),
                    format!("{:.0}", flow.retransmissions),
                    format!("{:.1}", flow.timeouts),
                ],
            )?;
        }
        if self.flows.len() > ROWS {
            writeln!(
                f,
                "({} more flows; --json shows all)",
                self.flows.len() - ROWS
            )?;
        }
        writeln!(
            f,
            "\nall: {:.2} Mbit/s, {} % of the path ({} % in the second half), RTT p50 {} p95 {} ms, loss {:.2} %, Jain {:.3}, queue peak {:.0} packets",
            self.goodput_mbps,
            percent(self.share),
            percent(self.share_second_half),
            ms(self.rtt_p50_ms),
            ms(self.rtt_p95_ms),
            self.loss * 100.0,
            self.jain,
            self.queue_peak_packets,
        )
    }
}

fn line(f: &mut fmt::Formatter<'_>, cells: [String; HEADINGS.len()]) -> fmt::Result {
    let mut text = String::new();
    for (column, (cell, (.., width))) in cells.iter().zip(HEADINGS).enumerate() {
        if column == 0 {
            text += &format!("{cell:<width$} ");
        } else {
            text += &format!("{cell:>width$} ");
        }
    }
    writeln!(f, "{}", text.trim_end())
}
