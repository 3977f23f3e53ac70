//! Runs as iperf3 and iperf2 list them: the PK3C README's listings are of iperf3, the GENI page's of iperf2.
//!
//! The listing is of one run, the one with the median goodput; the table below it has the medians of all runs beside
//! the document's. A sender's row counts what was handed to TCP, a receiver's what arrived.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

mod row;

use super::printf::g;
use super::published::{Listing, listings};
use super::{claims, plain};
use crate::lab::report::measure::{is_udp, measure, under_test};
use crate::lab::report::{Group, Groups};
use crate::lab::result::{FlowResult, RunResult};
use crate::lab::statistics::{mean, median};
use row::{HEAD_2, HEAD_3, Row, Side, row_2, row_3, row_udp};

const SEPARATOR: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -\n";
/// Intervals of the slow-start view, s, and the flows it is given for, at most.
const INTERVALS_S: u32 = 10;
const INTERVAL_FLOWS: usize = 10;

/// Rows of a run's flows at one side, and their sum if there are several.
fn rows(flows: &[&FlowResult], first_id: u32, step: u32, sent: bool) -> Vec<(Row, u64)> {
    let of = |(index, flow): (u32, &&FlowResult)| {
        let seconds = (flow.end_s - flow.start_s).max(1e-9);
        let bytes = if sent {
            flow.sent_bytes
        } else {
            flow.received_bytes
        } as f64;
        let row = Row {
            id: Some(first_id + step * index),
            interval: [0.0, seconds],
            bytes,
            mbps: bytes * 8.0 / 1e6 / seconds,
        };
        (row, flow.retransmissions)
    };
    let mut rows: Vec<_> = (0..).zip(flows).map(of).collect();
    if rows.len() > 1 {
        // As iperf: all bytes over the longest interval.
        let seconds = rows
            .iter()
            .map(|(row, _)| row.interval[1])
            .fold(0.0, f64::max);
        let bytes: f64 = rows.iter().map(|(row, _)| row.bytes).sum();
        let row = Row {
            id: None,
            interval: [0.0, seconds],
            bytes,
            mbps: bytes * 8.0 / 1e6 / seconds,
        };
        rows.push((
            row,
            rows.iter()
                .map(|(_, retransmissions)| retransmissions)
                .sum(),
        ));
    }
    rows
}

/// A run as iperf3 lists it.
pub fn listing_3(run: &RunResult) -> String {
    let flows: Vec<_> = under_test(run).filter(|flow| !is_udp(flow)).collect();
    let mut text = intervals(&flows);
    text += HEAD_3;
    let (senders, receivers) = (rows(&flows, 5, 2, true), rows(&flows, 5, 2, false));
    for ((sender, retransmissions), (receiver, _)) in senders.iter().zip(&receivers) {
        text += &row_3(sender, Side::Sender(*retransmissions));
        text += &row_3(receiver, Side::Receiver);
    }
    text
}

/// The first seconds at the receiver: the slow start.
fn intervals(flows: &[&FlowResult]) -> String {
    let mut text = String::new();
    if flows.len() > INTERVAL_FLOWS {
        return text;
    }
    for second in 0..INTERVALS_S {
        let row = |id: u32, flow: &FlowResult| -> Option<Row> {
            let bin_s = Some(flow.series.bin_s).filter(|bin_s| *bin_s > 0.0)?;
            let (from, to) = (f64::from(second) / bin_s, f64::from(second + 1) / bin_s);
            let bins = flow
                .series
                .goodput_mbps
                .get(from.round() as usize..to.round() as usize)?;
            let mbps = mean(bins)?;
            Some(Row {
                id: Some(id),
                interval: [f64::from(second), f64::from(second + 1)],
                bytes: mbps * 1e6 / 8.0,
                mbps,
            })
        };
        let rows: Vec<_> = (0..)
            .zip(flows)
            .filter_map(|(index, flow)| row(5 + 2 * index, flow))
            .collect();
        let Some(first) = rows.first() else { break };
        for row in &rows {
            text += &row_3(row, Side::Interval);
        }
        if rows.len() > 1 {
            let sum = Row {
                id: None,
                bytes: rows.iter().map(|row| row.bytes).sum(),
                mbps: rows.iter().map(|row| row.mbps).sum(),
                ..*first
            };
            text += &row_3(&sum, Side::Interval);
        }
        text += SEPARATOR;
    }
    text
}

/// A run as iperf2 lists it, its cross traffic of datagrams last.
pub fn listing_2(run: &RunResult) -> String {
    let flows: Vec<_> = under_test(run).filter(|flow| !is_udp(flow)).collect();
    let mut text = HEAD_2.to_owned();
    for (row, _) in rows(&flows, 3, 1, false) {
        text += &row_2(&row);
    }
    let datagrams: Vec<_> = run.flows.iter().filter(|flow| is_udp(flow)).collect();
    for (flow, (row, _)) in datagrams.iter().zip(rows(&datagrams, 3, 1, false)) {
        // The simulator counts no datagrams: they are its packets.
        let sent = flow
            .datagrams_sent
            .unwrap_or(flow.sent_bytes / pathsim::MSS);
        let lost = (flow.loss.unwrap_or(0.0) * sent as f64).round() as u64;
        let lost = flow.datagrams_lost.unwrap_or(lost);
        text += &row_udp(&row, flow.jitter_ms.unwrap_or(0.0), lost, sent);
    }
    text
}

/// Listings of our scenarios: scenario, scheme, ids.
static LISTED: LazyLock<BTreeMap<String, BTreeMap<String, Vec<String>>>> = LazyLock::new(|| {
    let text = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../data/published/listings.toml"
    ));
    toml::from_str(text).expect("the embedded map is constant, and a test reads it")
});

/// The document's runs of a scenario under a scheme.
pub fn published(scenario: &str, scheme: &str) -> Vec<&'static Listing> {
    let ids = LISTED
        .get(scenario)
        .and_then(|schemes| schemes.get(plain(scheme)));
    let of = |id: &String| listings().iter().find(|listing| listing.id == *id);
    ids.into_iter().flatten().filter_map(of).collect()
}

/// The scenarios that have listings of the documents.
pub fn listed_scenarios() -> impl Iterator<Item = &'static str> {
    LISTED.keys().map(String::as_str)
}

/// All scenarios.
pub fn render(groups: &Groups<'_>) -> String {
    let mut text = String::new();
    for scenario in groups.scenarios() {
        for group in scenario {
            let Some(run) = group.typical() else { continue };
            let _ = writeln!(
                text,
                "{}, {}, seed {} (median of {} runs); {}",
                group.scenario,
                group.scheme,
                run.inputs.seed,
                group.runs.len(),
                run.inputs.path
            );
            text += &if group.scenario.starts_with('G') {
                listing_2(run)
            } else {
                listing_3(run)
            };
            text.push('\n');
        }
        text += &beside(scenario);
    }
    text += &claims::render("pk3c", groups);
    text + &claims::render("geni", groups)
}

/// Ours beside the document's: medians of sums, retransmissions, flows and Jain's index.
fn beside(scenario: &[Group<'_>]) -> String {
    let mut lines = String::new();
    for group in scenario {
        let listings = published(group.scenario, group.scheme);
        if listings.is_empty() {
            continue;
        }
        let of = |key: &str| measure(key).and_then(|measure| median(&group.values(measure)));
        let ours = [
            of("goodput_mbps"),
            median(
                &group
                    .runs
                    .iter()
                    .map(|run| sent_mbps(run))
                    .collect::<Vec<_>>(),
            ),
            median(
                &group
                    .runs
                    .iter()
                    .map(|run| run.total.retransmissions as f64)
                    .collect::<Vec<_>>(),
            ),
            of("min_flow_mbps"),
            median(
                &group
                    .runs
                    .iter()
                    .filter_map(|run| fastest(run))
                    .collect::<Vec<_>>(),
            ),
            of("jain"),
        ];
        let _ = writeln!(
            lines,
            "{:<34}{}",
            format!("{}, ours", group.scheme),
            cells(&ours)
        );
        for listing in listings {
            let published = [
                listing.sum_mbps,
                listing.sum_sender_mbps,
                listing.retransmits.map(|count| count as f64),
                listing.flow_min_mbps,
                listing.flow_max_mbps,
                listing.jain.filter(|_| listing.n_flows > 1),
            ];
            let _ = writeln!(
                lines,
                "{:<34}{}",
                format!("  {}", listing.id),
                cells(&published)
            );
            let _ = writeln!(
                lines,
                "{:<34}{}",
                "  difference",
                changes(&ours, &published)
            );
        }
    }
    if lines.is_empty() {
        return lines;
    }
    let head = ["receiver", "sender", "retr", "least", "most", "Jain"];
    let head: String = head.iter().map(|name| format!("{name:>10}")).collect();
    format!("Mbit/s beside the published{:>7}{head}\n{lines}\n", "")
}

fn sent_mbps(run: &RunResult) -> f64 {
    let flows: Vec<_> = under_test(run).collect();
    rows(&flows, 5, 2, true)
        .last()
        .map_or(0.0, |(row, _)| row.mbps)
}

fn fastest(run: &RunResult) -> Option<f64> {
    under_test(run)
        .map(|flow| flow.goodput_mbps)
        .max_by(f64::total_cmp)
}

fn cells(values: &[Option<f64>; 6]) -> String {
    let cell =
        |value: &Option<f64>| format!("{:>10}", value.map_or("-".to_owned(), |value| g(value, 4)));
    values.iter().map(cell).collect()
}

fn changes(ours: &[Option<f64>; 6], published: &[Option<f64>; 6]) -> String {
    let change = |(ours, published): (&Option<f64>, &Option<f64>)| {
        let pair = ours.zip(published.filter(|value| *value != 0.0));
        let text = pair.map_or("-".to_owned(), |(ours, published)| {
            format!("{:+.1}%", (ours / published - 1.0) * 100.0)
        });
        format!("{text:>10}")
    };
    ours.iter().zip(published).map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::read::{Loaded, Results};
    use crate::lab::report::sample::{flow, run};

    const MBYTE: f64 = 1_048_576.0;

    #[test]
    fn the_sum_is_all_bytes_over_the_longest_flow() {
        // GENI 3, cubic: 30 flows of 57 to 60.5 s have 648 MBytes and 89.8 Mbit/s together.
        let mut early = flow(1, 0.0, 57.0, Vec::new());
        early.received_bytes = (600.0 * MBYTE) as u64;
        let mut late = flow(2, 0.0, 60.5, Vec::new());
        late.received_bytes = (48.0 * MBYTE) as u64;
        let rows = rows(&[&early, &late], 3, 1, false);
        assert_eq!(
            row_2(&rows[2].0),
            "[SUM] 0.0-60.5 sec  648 MBytes  89.8 Mbits/sec\n"
        );
    }

    fn two_flows(id: &str, scheme: &str) -> RunResult {
        let mut result = run(id, scheme, 1);
        result.inputs.duration_s = 60.0;
        for number in 1..=2 {
            let mut one = flow(number, 0.0, 60.0, vec![41.0; 600]);
            (one.sent_bytes, one.retransmissions) = (one.received_bytes + 5_000_000, 40);
            result.flows.push(one);
        }
        result.total.goodput_mbps = 82.0;
        result.total.retransmissions = 80;
        result
    }

    #[test]
    fn a_run_is_listed_with_its_first_seconds_and_beside_the_published_one() {
        let mut results = Results::default();
        for scheme in ["cubic", "agent:pk3c"] {
            results.runs.push(Loaded {
                path: "x.json".into(),
                run: two_flows("P8", scheme),
            });
        }
        let text = render(&Groups::of(&results));
        assert!(
            text.contains("[  7]   0.00-1.00   sec  4.89 MBytes  41.0 Mbits/sec\n"),
            "{text}"
        );
        assert!(
            text.contains("[SUM]   9.00-10.00  sec  9.78 MBytes  82.0 Mbits/sec\n"),
            "{text}"
        );
        assert!(
            text.contains("83.3 Mbits/sec   80             sender\n[SUM]"),
            "{text}"
        );
        // README, kernel 3: 85.9 Mbit/s for cubic.
        let line = text
            .lines()
            .skip_while(|line| !line.contains("wan107_k3_cubic_n2_t60"))
            .nth(1)
            .unwrap();
        assert!(line.contains("-4.5%"), "{text}");
        assert!(text.contains("wan107_k3_pk3c_n2_t60"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }

    #[test]
    fn every_listing_of_the_map_exists() {
        for (scenario, schemes) in LISTED.iter() {
            for (scheme, ids) in schemes {
                assert_eq!(
                    published(scenario, scheme).len(),
                    ids.len(),
                    "{scenario} {scheme}: {ids:?}"
                );
            }
        }
        assert!(LISTED.len() > 20);
    }
}
