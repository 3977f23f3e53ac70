//! Results as Markdown, a table for each document: a line per scenario, a column per scheme, and in every cell what the
//! document published of the same scheme on the path that the scenario re-creates.
//!
//! Cells are medians over the runs. `docs/results.md` is made of these tables.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{bequant, claims, iperf, ministat, pantheon, plain};
use crate::lab::report::measure::measure;
use crate::lab::report::table;
use crate::lab::report::{Group, Groups};
use crate::lab::statistics::median;

/// A document: its name in `claims.toml`, its title, and the first letters of its scenarios.
struct Document {
    name: &'static str,
    title: &'static str,
    ids: &'static str,
}

const DOCUMENTS: [Document; 5] = [
    Document {
        name: "pk3c",
        title: "PK3C's README",
        ids: "PCVNS",
    },
    Document {
        name: "pantheon",
        title: "Pantheon, Mexico",
        ids: "E",
    },
    Document {
        name: "bequant",
        title: "Bequant's study",
        ids: "B",
    },
    Document {
        name: "freebsd",
        title: "FreeBSD's loopback",
        ids: "F",
    },
    Document {
        name: "geni",
        title: "GENI's assignment",
        ids: "G",
    },
];

/// The order of columns; others follow by name.
const FIRST: [&str; 4] = ["cubic", "reno", "bbr", "pk3c"];

/// The documents' ids are a capital letter and a digit first, those of our own scenarios are not.
fn is_of(document: &Document, scenario: &str) -> bool {
    let mut letters = scenario.chars();
    let (first, second) = (letters.next(), letters.next());
    first.is_some_and(|letter| document.ids.contains(letter))
        && second.is_some_and(|digit| digit.is_ascii_digit())
}

/// Tables of all documents that there are results of, then one of all other scenarios.
pub fn render(groups: &Groups<'_>) -> String {
    let mut text = String::new();
    let scenarios: Vec<_> = groups.scenarios().collect();
    for document in &DOCUMENTS {
        let of_document: Vec<_> = scenarios
            .iter()
            .copied()
            .filter(|scenario| is_of(document, scenario[0].scenario))
            .collect();
        if of_document.is_empty() {
            continue;
        }
        let _ = writeln!(text, "### {}\n", document.title);
        text += &if document.name == "bequant" {
            bequant::markdown(&of_document)
        } else {
            self::scenarios(&of_document)
        };
        text.push('\n');
        text += &claims::markdown(document.name, groups);
        text.push('\n');
    }
    let others: Vec<_> = scenarios
        .into_iter()
        .filter(|scenario| {
            DOCUMENTS
                .iter()
                .all(|document| !is_of(document, scenario[0].scenario))
        })
        .collect();
    if !others.is_empty() {
        text += &self::scenarios(&others);
        text.push('\n');
    }
    text
}

fn scenarios(scenarios: &[&[Group<'_>]]) -> String {
    let names: BTreeSet<_> = scenarios
        .iter()
        .flat_map(|groups| groups.iter().map(|group| plain(group.scheme)))
        .collect();
    let first = FIRST.iter().copied().filter(|name| names.contains(name));
    let others = names.iter().copied().filter(|name| !FIRST.contains(name));
    let columns: Vec<_> = first.chain(others).collect();

    let mut text = format!("| scenario | {} |\n", columns.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(columns.len() + 1));
    for groups in scenarios {
        let Some(run) = groups.iter().find_map(Group::any) else {
            continue;
        };
        let inputs = &run.inputs;
        let flows = run.flows.iter().filter(|flow| flow.under_test).count();
        let short = if inputs.quick { ", short form" } else { "" };
        let plural = if flows == 1 { "" } else { "s" };
        let _ = write!(
            text,
            "| **{}** {flows} flow{plural}, {}, {} s{short}",
            inputs.scenario, inputs.path, inputs.duration_s
        );
        for column in &columns {
            let cell = groups
                .iter()
                .find(|group| plain(group.scheme) == *column && !group.runs.is_empty())
                .map(cell);
            let _ = write!(text, " | {}", cell.unwrap_or_default());
        }
        text += " |\n";
    }
    text
}

/// What was measured, and in brackets what was published.
fn cell(group: &Group<'_>) -> String {
    let loopback = group.any().is_some_and(|run| run.inputs.settings.loopback);
    let keys: &[&str] = if loopback {
        &["goodput_mbps", "cpu_percent"]
    } else if group.scenario.starts_with('E') {
        &["goodput_mbps", "owd_p95_ms", "loss_percent", "jain"]
    } else {
        &[
            "goodput_mbps",
            "rtt_p95_ms",
            "retransmitted_percent",
            "jain",
            "share_beside_percent",
        ]
    };
    let value = |key: &&str| {
        let measure = measure(key)?;
        let value = median(&group.values(measure))?;
        Some(table::number(measure, value))
    };
    let ours: Vec<_> = keys.iter().filter_map(value).collect();
    let published = if loopback {
        ministat::published_mean(group.scheme).map(|gbps| format!("{:.0}", gbps * 1e3))
    } else if group.scenario.starts_with('E') {
        pantheon::published_total(group.scheme).map(|total| {
            format!(
                "{:.2} / {:.0} / {:.2}",
                total.mbps, total.p95_ms, total.loss_percent
            )
        })
    } else {
        let sums: Vec<_> = iperf::published(group.scenario, group.scheme)
            .iter()
            .filter_map(|listing| listing.sum_mbps)
            .map(|sum| sum.to_string())
            .collect();
        (!sums.is_empty()).then(|| sums.join(", "))
    };
    let published = published.map_or(String::new(), |text| format!(" (_{text}_)"));
    format!("{}{published}", ours.join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::sample::{measured, results};

    #[test]
    fn documents_have_tables_with_what_was_published() {
        let runs = vec![
            measured("P6", "cubic", 1, 90.0),
            measured("P6", "pk3c", 1, 100.0),
            measured("E1", "bbr", 1, 2.3),
            measured("B1-1", "cubic", 1, 300.0),
            measured("B1-1", "pk3c", 1, 310.0),
            measured("clean", "pk3c", 1, 95.0),
        ];
        let results = results(runs);
        let text = render(&Groups::of(&results));
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found
                .unwrap_or_else(|| panic!("no {start} in {text}"))
                .to_owned()
        };
        let published = iperf::published("P6", "pk3c")[0].sum_mbps.unwrap();
        assert!(
            line("| **P6**").contains(&format!("(_{published}_)")),
            "{text}"
        );
        assert!(
            line("| **E1**").contains("(_2.37 / 1795 / 6.62_)"),
            "{text}"
        );
        assert!(line("| **B1-1**").contains("cubic"), "{text}");
        assert!(line("| C1 |").contains("NO"), "{text}");
        assert!(line("| **clean**").contains("95.00"), "{text}");
        let headings = text.lines().filter(|line| line.starts_with("### "));
        assert_eq!(headings.count(), 3);
    }

    #[test]
    fn only_the_documents_ids_are_theirs() {
        let of = |id| {
            DOCUMENTS
                .iter()
                .filter(|document| is_of(document, id))
                .count()
        };
        assert_eq!(
            [
                "P1", "C10-1", "V1-100", "N1000", "S1", "E2", "B1-6", "F3", "G9a-1"
            ]
            .map(of),
            [1; 9]
        );
        assert_eq!(["clean", "ramp", "P", "", "low_rtt"].map(of), [0; 5]);
    }
}
