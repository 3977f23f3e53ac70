//! Downloads as the Bequant report shows them: ours, the other, and the change, with its own rows under them.
//!
//! A row is one competitor and one set of connections: one alone, six of a kind, or three of each at once. In the last,
//! "other" is the other half of the same runs. Speed is the mean over downloads of their size over their time, timed at
//! the receiver; of one that never finished, of what had arrived over the time that it had. IP volume is what the
//! sender sent for a download: its segments and those sent again, 1500 bytes each. RTTs are TCP's smoothed ones; the
//! report's were from a capture, so its greatest are greater. On a path that is scaled down only the changes compare.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::published::{Download, downloads};
use super::{claims, plain};
use crate::lab::report::measure::{is_udp, under_test};
use crate::lab::report::{Group, Groups};
use crate::lab::result::{FlowResult, RunResult};
use crate::lab::statistics::mean;

const WIRE: f64 = 1500.0;
const PAYLOAD: f64 = 1448.0;
/// Bequant's part in a comparison, if these are among the schemes; otherwise any that is no competitor.
const OURS: &str = "pk3c";
/// The report's competitors.
const COMPETITORS: [&str; 3] = ["cubic", "bbr", "bbr2"];
const HEADINGS: [&str; 6] = [
    "speed Mbit/s",
    "IP volume MB",
    "thr/goodput %",
    "max RTT ms",
    "mean RTT ms",
    "min RTT ms",
];
/// Width of a triple.
const TRIPLE: usize = 20;

/// The six values of one side; see [`Download::pairs`].
pub type Values = [Option<f64>; 6];

/// A triple: ours, other, change in %.
pub fn triple(ours: Option<f64>, other: Option<f64>) -> String {
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    let change = ours.zip(other).map(|(ours, other)| change(ours, other));
    let change = change.map_or("-".to_owned(), |change| {
        if change.abs() < 99.95 {
            format!("{change:+.1}%")
        } else {
            format!("{change:+.0}%")
        }
    });
    format!("{} {} {change}", cell(ours), cell(other))
}

/// The report's change: 100 (a/b - 1).
pub fn change(ours: f64, other: f64) -> f64 {
    (ours / other - 1.0) * 100.0
}

fn digits(value: f64) -> String {
    match value.abs() {
        small if small < 9.995 => format!("{value:.2}"),
        medium if medium < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The values of some flows over several runs.
pub fn values<'a>(flows: impl Iterator<Item = &'a FlowResult>) -> Values {
    let flows: Vec<_> = flows.collect();
    let speeds: Vec<_> = flows.iter().flat_map(|flow| speeds_mbps(flow)).collect();
    let (mut volume, mut payload, mut count) = (0.0, 0.0, 0.0);
    for flow in &flows {
        let segments = flow.received_bytes as f64 / PAYLOAD + flow.retransmissions as f64;
        volume += segments * WIRE;
        payload += flow.received_bytes as f64;
        count += flow.completions.len() as f64;
    }
    let rtt = |of: fn(&crate::lab::result::Quantiles) -> f64| {
        mean(
            &flows
                .iter()
                .filter_map(|flow| flow.rtt_ms.as_ref().map(of))
                .collect::<Vec<_>>(),
        )
    };
    let some = |value: f64| Some(value).filter(|value| value.is_finite() && *value > 0.0);
    [
        mean(&speeds),
        some(volume / count / 1e6),
        some(volume / payload * 100.0 - 100.0),
        rtt(|rtt| rtt.max),
        rtt(|rtt| rtt.mean),
        rtt(|rtt| rtt.min),
    ]
}

/// Speed of each download of a flow, Mbit/s. One that never finished has what arrived beyond the others' data.
fn speeds_mbps(flow: &FlowResult) -> impl Iterator<Item = f64> {
    let downloads = flow.completions.iter();
    let complete = downloads.clone().filter(|one| one.seconds.is_some());
    let complete_bytes: u64 = complete.map(|one| one.bytes).sum();
    let rest_bytes = flow.received_bytes.saturating_sub(complete_bytes);
    downloads.filter_map(move |one| {
        let (bytes, seconds) = match one.seconds {
            Some(seconds) => (one.bytes, seconds),
            None => (rest_bytes, flow.end_s - one.start_s),
        };
        (seconds > 0.0).then(|| bytes as f64 * 8.0 / 1e6 / seconds)
    })
}

fn of_group(group: &Group<'_>) -> Values {
    values(group.runs.iter().flat_map(|run| under_test(run)))
}

/// The kind of connections that a run has, by its flows.
fn connections(run: &RunResult) -> &'static str {
    let tested = under_test(run).count();
    let others = run
        .flows
        .iter()
        .filter(|flow| !flow.under_test && !is_udp(flow))
        .count();
    match (tested, others) {
        (1, 0) => "1",
        (_, 0) => "6_same",
        _ => "3+3",
    }
}

/// The report's name of an access by the number of our scenario.
fn access(scenario: &str) -> Option<&'static str> {
    let number = scenario.strip_prefix('B')?;
    let digits = number
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(number.len());
    Some(match &number[..digits] {
        "1" => "fiber_eth_deep",
        "2" => "fiber_eth_shallow",
        "3" => "fiber_wifi_deep",
        "4" => "fiber_wifi_shallow",
        "5" => "4g_deep",
        "6" => "4g_shallow",
        "7" => "5g_deep",
        "8" => "5g_shallow",
        _ => return None,
    })
}

/// The rows of one scenario: competitor, connections, ours and other.
fn rows<'a>(scenario: &'a [Group<'_>]) -> Vec<(&'a str, &'static str, Values, Values)> {
    let ours = |group: &&Group<'_>| plain(group.scheme) == OURS;
    let no_competitor = |group: &&Group<'_>| !COMPETITORS.contains(&plain(group.scheme));
    let Some(ours) = scenario
        .iter()
        .find(ours)
        .or(scenario.iter().find(no_competitor))
        .or(scenario.first())
    else {
        return Vec::new();
    };
    let Some(run) = ours.runs.first() else {
        return Vec::new();
    };
    let kind = connections(run);
    if kind == "3+3" {
        let mut others: BTreeMap<&str, Vec<&FlowResult>> = BTreeMap::new();
        let flows = ours.runs.iter().flat_map(|run| &run.flows);
        for flow in flows.filter(|flow| !flow.under_test && !is_udp(flow)) {
            others.entry(&flow.scheme).or_default().push(flow);
        }
        let mine = of_group(ours);
        let row = |(scheme, flows): (&'a str, Vec<&FlowResult>)| {
            (scheme, kind, mine, values(flows.into_iter()))
        };
        return others.into_iter().map(row).collect();
    }
    let others = scenario
        .iter()
        .filter(|group| group.scheme != ours.scheme && !group.runs.is_empty());
    others
        .map(|group| (group.scheme, kind, of_group(ours), of_group(group)))
        .collect()
}

/// The report's row of a scenario of ours.
fn published(scenario: &str, competitor: &str, kind: &str) -> Option<&'static Download> {
    let access = access(scenario)?;
    let same = |row: &&Download| {
        row.scenario == access && row.competitor == plain(competitor) && row.connections == kind
    };
    downloads().iter().find(same)
}

/// Scenarios as a table of Markdown: speeds and greatest RTTs as triples, with the report's.
pub fn markdown(scenarios: &[&[Group<'_>]]) -> String {
    let mut text = String::from(
        "| scenario | beside | speed, Mbit/s | published | max RTT, ms | published | throughput over goodput, % | published |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for scenario in scenarios {
        let Some(run) = scenario.iter().find_map(Group::any) else {
            continue;
        };
        let scaled = run.inputs.scaled.as_ref().map_or("", |_| ", scaled");
        for (competitor, kind, ours, other) in rows(scenario) {
            let published = published(&run.inputs.scenario, competitor, kind);
            let pairs = published.map_or([(None, None); 6], Download::pairs);
            let _ = write!(
                text,
                "| **{}** {}{scaled} | {kind} {competitor}",
                run.inputs.scenario, run.inputs.path
            );
            for index in [0, 3, 2] {
                let theirs = published.map_or(String::new(), |_| {
                    let (bequant, competitor) = pairs[index];
                    triple(bequant, competitor)
                });
                let _ = write!(text, " | {} | {theirs}", triple(ours[index], other[index]));
            }
            text += " |\n";
        }
    }
    text
}

/// All scenarios with downloads.
pub fn render(groups: &Groups<'_>) -> String {
    let mut text = String::from(
        "Triples: ours, other, change in % = 100 (ours/other - 1). In the report's rows, \"ours\" is Bequant TCP; below, our\n\
         competitor against theirs, which is the same algorithm on what should be the same path.\n",
    );
    for scenario in groups.scenarios() {
        let rows = rows(scenario);
        let Some(run) = scenario
            .first()
            .and_then(Group::any)
            .filter(|_| !rows.is_empty())
        else {
            continue;
        };
        let _ = writeln!(text, "\n{}: {}", run.inputs.scenario, run.inputs.path);
        if let Some(scaled) = &run.inputs.scaled {
            let _ = writeln!(text, "  scaled: {scaled}");
        }
        let access = access(&run.inputs.scenario);
        if let Some(published) =
            access.and_then(|access| downloads().iter().find(|row| row.scenario == access))
        {
            let limit = published
                .limit_mbps
                .map_or("no limit".to_owned(), |limit| format!("{limit} Mbit/s"));
            let buffer = &published.buffer_pkts;
            let _ = writeln!(
                text,
                "  {}, {}, {limit}, buffer {buffer}",
                published.client_os, published.access
            );
        }
        let head: String = HEADINGS
            .iter()
            .map(|heading| format!(" {heading:>TRIPLE$}"))
            .collect();
        let _ = writeln!(text, "{:<18}{head}", "TCP, connections");
        for (competitor, kind, ours, other) in rows {
            let _ = writeln!(
                text,
                "{:<18}{}",
                format!("{competitor}, {kind}"),
                triples(&ours, &other)
            );
            if let Some(published) = published(&run.inputs.scenario, competitor, kind) {
                let pairs = published.pairs();
                let (theirs, others) = (pairs.map(|pair| pair.0), pairs.map(|pair| pair.1));
                let _ = writeln!(text, "{:<18}{}", "  published", triples(&theirs, &others));
                if run.inputs.scaled.is_none() {
                    let _ = writeln!(text, "{:<18}{}", "  other, both", triples(&other, &others));
                }
            }
        }
    }
    text.push('\n');
    text + &claims::render("bequant", groups)
}

fn triples(ours: &Values, other: &Values) -> String {
    let pairs = ours.iter().zip(other);
    pairs
        .map(|(ours, other)| format!(" {:>TRIPLE$}", triple(*ours, *other)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::sample::{flow, measured, quantiles, results, run};
    use crate::lab::result::Completion;

    #[test]
    fn the_published_changes_follow_from_the_published_values() {
        // Columns: ours, other and change of speed, volume and overhead, where the document printed all three.
        let table = include_str!("../../../../../data/published/bequant.csv");
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        let headers = reader.headers().unwrap().clone();
        let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
        let triples = [
            [
                "goodput_bequant_mbps",
                "goodput_other_mbps",
                "goodput_change_pct",
            ],
            [
                "ip_volume_bequant_MB",
                "ip_volume_other_MB",
                "ip_volume_change_pct",
            ],
            [
                "rtt_max_bequant_ms",
                "rtt_max_other_ms",
                "rtt_max_change_pct",
            ],
        ];
        let mut compared = 0;
        for record in reader.records() {
            let record = record.unwrap();
            for names in triples {
                let cells = names.map(|name| record[column(name)].parse::<f64>().ok());
                if let [Some(ours), Some(other), Some(printed)] = cells {
                    let change = change(ours, other);
                    // Values have five digits or fewer.
                    assert!(
                        (change - printed).abs() <= 0.012 + printed.abs() * 1e-3,
                        "{record:?}: {change}"
                    );
                    compared += 1;
                }
            }
        }
        assert!(compared > 100, "{compared}");
    }

    #[test]
    fn triples_are_as_the_report_prints_them() {
        assert_eq!(triple(Some(308.284), Some(20.496)), "308 20.5 +1404%");
        assert_eq!(triple(Some(79.186), Some(92.086)), "79.2 92.1 -14.0%");
        assert_eq!(triple(None, Some(3.5)), "- 3.50 -");
    }

    fn download(scheme: &str, seconds: f64) -> RunResult {
        let mut result = measured("B2", scheme, 1, 100.0);
        let one = &mut result.flows[0];
        one.completions = vec![Completion {
            round: 1,
            start_s: 0.0,
            seconds: Some(seconds),
            bytes: 10_000_000,
        }];
        (one.received_bytes, one.retransmissions) = (10_000_000, 100);
        one.rtt_ms = Some(quantiles(4.0, 6.0));
        result
    }

    #[test]
    fn a_download_that_never_finished_counts_with_what_arrived() {
        let mut run = download("pk3c", 0.4);
        let flow = &mut run.flows[0];
        flow.completions.push(Completion {
            round: 2,
            start_s: 10.0,
            seconds: None,
            bytes: 10_000_000,
        });
        (flow.received_bytes, flow.end_s) = (12_500_000, 30.0);
        // 200 Mbit/s, and 2.5 MB in 20 s.
        assert_eq!(speeds_mbps(flow).collect::<Vec<_>>(), [200.0, 1.0]);
        assert_eq!(values(run.flows.iter())[0], Some(100.5));
    }

    fn rendered(runs: Vec<RunResult>) -> String {
        render(&Groups::of(&results(runs)))
    }

    #[test]
    fn ours_stands_above_the_published_row() {
        let text = rendered(vec![download("cubic", 4.0), download("pk3c", 0.4)]);
        let lines: Vec<_> = text
            .lines()
            .skip_while(|line| !line.starts_with("cubic, 1"))
            .take(3)
            .collect();
        let first = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            first(lines[0]).starts_with("cubic, 1 200 20.0 +900% 10.5 10.5 +0.0% 5.09 5.09"),
            "{text}"
        );
        assert!(
            first(lines[1])
                .starts_with("published 308 20.5 +1404% 11.0 10.6 +3.6% 10.2 6.30 +61.9%"),
            "{text}"
        );
        // 20 Mbit/s of ours against the document's 20.496.
        assert!(
            first(lines[2]).starts_with("other, both 20.0 20.5 -2.4%"),
            "{text}"
        );
        assert!(
            text.contains("Windows 10, fiber+ethernet, 500 Mbit/s, buffer 10"),
            "{text}"
        );
    }

    #[test]
    fn halves_of_a_mixed_run_are_compared() {
        let mut result = run("B2-3+3", "pk3c", 1);
        for number in 1..=6 {
            let mut one = flow(number, 0.0, 30.0, Vec::new());
            (one.under_test, one.received_bytes) = (number <= 3, 10_000_000);
            one.scheme = if number <= 3 { "pk3c" } else { "cubic" }.into();
            one.completions = vec![Completion {
                round: 1,
                start_s: 0.0,
                seconds: Some(if number <= 3 { 0.5 } else { 10.0 }),
                bytes: 10_000_000,
            }];
            result.flows.push(one);
        }
        let text = rendered(vec![result]);
        let line = text
            .lines()
            .find(|line| line.starts_with("cubic, 3+3"))
            .unwrap();
        assert!(line.contains("160 8.00 +1900%"), "{text}");
        assert!(text.contains("157 8.84 +1678%"), "{text}");
    }
}
