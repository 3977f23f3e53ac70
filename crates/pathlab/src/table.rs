//! Results for the eye: one line per row, aligned.

use std::fmt::Write;

use crate::row::Row;

/// Headings with their units, and the width of each column.
const COLUMNS: [(&str, &str, usize); 11] = [
    ("path", "", 8),
    ("scheme", "", 8),
    ("flows", "", 5),
    ("goodput", "Mbit/s", 8),
    ("share", "%", 6),
    ("RTT p50", "ms", 8),
    ("RTT p95", "ms", 8),
    ("retrans.", "segments", 9),
    ("Jain", "", 6),
    ("driven", "%", 7),
    ("CPU", "%", 6),
];

/// Columns that name the row; they are aligned to the left and come first.
const NAMES: usize = 2;

/// The rows under their headings, with an empty line between one path or number of flows and the
/// next. A void row says why instead of its figures. `driven` and `CPU` are of the agent.
pub fn render(rows: &[Row]) -> String {
    let mut table = line(COLUMNS.map(|(heading, ..)| heading.to_owned()));
    table += &line(COLUMNS.map(|(_, unit, _)| unit.to_owned()));
    let mut last: Option<&Row> = None;
    for row in rows {
        if last.is_none_or(|last| (&last.path, last.flows) != (&row.path, row.flows)) {
            table.push('\n');
        }
        table += &self::row(row);
        last = Some(row);
    }
    table
}

/// One row, as a line of the table.
pub fn row(row: &Row) -> String {
    let percent =
        |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1}", share * 100.0));
    let cells = [
        row.path.clone(),
        row.scheme.clone(),
        row.flows.to_string(),
        format!("{:.2}", row.goodput_mbps),
        percent(Some(row.share)),
        format!("{:.1}", row.rtt_p50_ms),
        format!("{:.1}", row.rtt_p95_ms),
        row.retransmits.to_string(),
        format!("{:.3}", row.jain),
        percent(row.agent_driven),
        percent(row.agent_cpu),
    ];
    if !row.is_void() {
        return line(cells);
    }
    let mut text = String::new();
    for (cell, column) in cells.iter().zip(0..=NAMES) {
        push(&mut text, cell, column);
    }
    let driven = percent(row.agent_driven);
    text + &format!("  void: agent drove {driven} %\n")
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let mut text = String::new();
    for (column, cell) in cells.iter().enumerate() {
        push(&mut text, cell, column);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn push(text: &mut String, cell: &str, column: usize) {
    let width = COLUMNS[column].2;
    // Writing to a string cannot fail.
    let _ = if column < NAMES {
        write!(text, "{cell:<width$}")
    } else {
        write!(text, "{cell:>width$}")
    };
    text.push(' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(path: &str, scheme: &str, agent_driven: Option<f64>) -> Row {
        Row {
            path: path.into(),
            scheme: scheme.into(),
            flows: 4,
            goodput_mbps: 47.638,
            share: 0.98697,
            rtt_p50_ms: 61.25,
            rtt_p95_ms: 79.04,
            retransmits: 123,
            jain: 0.99951,
            agent_driven,
            agent_cpu: agent_driven.map(|_| 0.0312),
        }
    }

    #[test]
    fn rows_are_aligned_and_grouped() {
        let rows = [
            example("clean", "cubic", None),
            example("clean", "pk3c", Some(1.0)),
            example("loss1", "cubic", None),
        ];
        assert_eq!(
            render(&rows).lines().collect::<Vec<_>>(),
            [
                "path     scheme   flows  goodput  share  RTT p50  RTT p95  retrans.   Jain  driven    CPU",
                "                          Mbit/s      %       ms       ms  segments              %      %",
                "",
                "clean    cubic        4    47.64   98.7     61.2     79.0       123  1.000       -      -",
                "clean    pk3c         4    47.64   98.7     61.2     79.0       123  1.000   100.0    3.1",
                "",
                "loss1    cubic        4    47.64   98.7     61.2     79.0       123  1.000       -      -",
            ]
        );
    }

    #[test]
    fn a_void_row_shows_no_figures() {
        let text = row(&example("clean", "pk3c", Some(0.421)));
        assert_eq!(text, "clean    pk3c         4   void: agent drove 42.1 %\n");
        assert!(!row(&example("clean", "pk3c", Some(0.99))).contains("void"));
    }
}
