//! Pantheon's table of means: of each flow over the runs that have statistics, beside the report's own.

use std::fmt::Write;

use super::Block;
use crate::lab::format::plain;
use crate::lab::format::published::{Tunnel, pantheon_runs};
use crate::lab::report::Group;
use crate::lab::result::RunResult;
use crate::lab::statistics::mean;

/// Means over the runs with statistics, per flow.
#[derive(Clone, Debug, Default, PartialEq)]
struct Means {
    /// Runs with statistics.
    runs: usize,
    /// Each flow.
    flows: Vec<Tunnel>,
    /// All flows together.
    total: Option<Tunnel>,
}

/// The means of runs, given as all flows and each flow; flows that not all runs have are left out.
fn means(runs: &[(Tunnel, Vec<Tunnel>)]) -> Means {
    let of = |tunnels: &[Tunnel]| -> Option<Tunnel> {
        let mean_of =
            |value: fn(&Tunnel) -> f64| mean(&tunnels.iter().map(value).collect::<Vec<_>>());
        Some(Tunnel {
            mbps: mean_of(|tunnel| tunnel.mbps)?,
            p95_ms: mean_of(|tunnel| tunnel.p95_ms)?,
            loss_percent: mean_of(|tunnel| tunnel.loss_percent)?,
        })
    };
    let flows = runs.iter().map(|(_, flows)| flows.len()).min().unwrap_or(0);
    let flow = |index: usize| {
        of(&runs
            .iter()
            .filter_map(|(_, flows)| flows.get(index).copied())
            .collect::<Vec<_>>())
    };
    Means {
        runs: runs.len(),
        flows: (0..flows).filter_map(flow).collect(),
        total: of(&runs.iter().map(|(total, _)| *total).collect::<Vec<_>>()),
    }
}

/// The published means of a scheme by its name in the report.
fn published_means(scheme: &str) -> Means {
    let runs = pantheon_runs().iter().filter(|run| run.scheme == scheme);
    let runs: Vec<_> = runs
        .filter_map(|run| Some((run.total()?, run.flows())))
        .collect();
    means(&runs)
}

/// The report's name of a scheme of ours.
fn published_name(scheme: &str) -> Option<&'static str> {
    Some(match plain(scheme) {
        "bbr" => "TCP BBR",
        "cubic" => "TCP Cubic",
        "vegas" => "TCP Vegas",
        "ledbat" => "LEDBAT",
        "copa" => "Copa",
        "pcc" => "PCC",
        _ => return None,
    })
}

/// The report's means of all flows of a scheme of ours; `None` where it has no such scheme.
pub(in crate::lab::format) fn published_total(scheme: &str) -> Option<Tunnel> {
    published_means(published_name(scheme)?).total
}

/// Flows in the table of means.
const FLOWS: usize = 3;

/// The schemes of a scenario; beside the report's if the path is that of the report.
pub(super) fn table(scenario: &[Group<'_>], run: &RunResult) -> String {
    let mut text = format!(
        "{:<18}{:>6}  {:^22}  {:^26}  {}\n",
        "", "", "mean avg tput (Mbit/s)", "mean 95th-%ile delay (ms)", "mean loss rate (%)"
    );
    let flows = |width: usize| {
        (1..=FLOWS)
            .map(|n| format!("{:>width$}", format!("flow {n}")))
            .collect::<String>()
    };
    let _ = writeln!(
        text,
        "{:<18}{:>6}  {} {}  {}",
        "scheme",
        "# runs",
        flows(7),
        flows(9),
        flows(7)
    );
    // Other paths are not the report's.
    let of_report = matches!(run.inputs.scenario.split('-').next(), Some("E1" | "E2"));
    for group in scenario {
        let runs: Vec<_> = group.runs.iter().map(|run| Block::ours(run, 1)).collect();
        let runs: Vec<_> = runs
            .into_iter()
            .filter_map(|block| Some((block.total?, block.flows)))
            .collect();
        let ours = means(&runs);
        text += &row(group.scheme, &ours);
        if let Some(name) = published_name(group.scheme).filter(|_| of_report) {
            let published = published_means(name);
            text += &row(&format!("  {name}"), &published);
            text += &differences(&ours, &published);
        }
    }
    if of_report {
        text += "\nthe report's schemes, totals: Mbit/s, 95th percentile ms, loss %\n";
        let mut names: Vec<_> = pantheon_runs()
            .iter()
            .map(|run| run.scheme.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let means = published_means(name);
            if let Some(total) = means.total {
                let _ = writeln!(
                    text,
                    "{name:<18}{:>6}  {:>7.2} {:>9.1} {:>7.2}",
                    means.runs, total.mbps, total.p95_ms, total.loss_percent
                );
            }
        }
    }
    text
}

fn row(name: &str, means: &Means) -> String {
    let cells = |width: usize, digits: usize, value: fn(&Tunnel) -> f64| -> String {
        let cell = |index: usize| {
            let value = means.flows.get(index).map(value);
            let text = value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            format!("{text:>width$}")
        };
        (0..FLOWS).map(cell).collect()
    };
    format!(
        "{name:<18}{:>6}  {} {}  {}\n",
        means.runs,
        cells(7, 2, |tunnel| tunnel.mbps),
        cells(9, 2, |tunnel| tunnel.p95_ms),
        cells(7, 2, |tunnel| tunnel.loss_percent)
    )
}

/// Ours against the published: % of rates and delays, percentage points of losses.
fn differences(ours: &Means, published: &Means) -> String {
    let cells = |width: usize, of: fn(&Tunnel, &Tunnel) -> String| -> String {
        let cell = |index: usize| {
            let pair = ours.flows.get(index).zip(published.flows.get(index));
            let text = pair.map_or("-".to_owned(), |(ours, published)| of(ours, published));
            format!("{text:>width$}")
        };
        (0..FLOWS).map(cell).collect()
    };
    format!(
        "{:<18}{:>6}  {} {}  {}\n",
        "  difference",
        "",
        cells(7, |ours, published| percent(ours.mbps, published.mbps)),
        cells(9, |ours, published| percent(ours.p95_ms, published.p95_ms)),
        cells(7, |ours, published| format!(
            "{:+.2}",
            ours.loss_percent - published.loss_percent
        ))
    )
}

fn percent(ours: f64, published: f64) -> String {
    if published == 0.0 {
        return "-".to_owned();
    }
    format!("{:+.0}%", (ours / published - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_means_are_those_of_its_runs() {
        // The table of means as printed: flows' throughput, delay and loss.
        #[derive(serde::Deserialize)]
        struct Row {
            scheme: String,
            runs_in_mean: usize,
            flow1_tput_mbps: f64,
            flow2_p95_owd_ms: f64,
            flow3_loss_pct: f64,
            total_p95_owd_ms_mean_of_runs: f64,
        }
        let table = include_str!("../../../../../../data/published/pantheon_mexico.csv");
        let rows: Vec<Row> = csv::Reader::from_reader(table.as_bytes())
            .deserialize()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(rows.len(), 15);
        for row in rows {
            let means = published_means(&row.scheme);
            assert_eq!(means.runs, row.runs_in_mean, "{}", row.scheme);
            let near = |ours: f64, printed: f64| (ours - printed).abs() <= 0.0051;
            assert!(
                near(means.flows[0].mbps, row.flow1_tput_mbps),
                "{}",
                row.scheme
            );
            assert!(
                near(means.flows[1].p95_ms, row.flow2_p95_owd_ms),
                "{}",
                row.scheme
            );
            assert!(
                near(means.flows[2].loss_percent, row.flow3_loss_pct),
                "{}",
                row.scheme
            );
            assert!(near(
                means.total.unwrap().p95_ms,
                row.total_p95_owd_ms_mean_of_runs
            ));
        }
    }
}
