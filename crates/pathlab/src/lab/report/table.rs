//! Results for the terminal: a table per scenario, a line per scheme.
//!
//! Cells are medians over the runs; use stands with its 95 % interval. The best of a column has a star, where its
//! values differ as shown. Columns that no scheme has values for are left out, and what does not fit [`WIDTH`] goes on
//! in a second block.

use std::fmt::Write;

use super::compare;
use super::group::{Group, Groups, heading};
use super::measure::{Better, MEASURES, Measure};
use super::read::Results;

/// Columns of a terminal that lines fit into.
pub const WIDTH: usize = 100;
/// Measures that the table shows; JSON has all.
pub const SHOWN: usize = 13;

struct Column {
    heading: [String; 2],
    cells: Vec<String>,
    best: Vec<bool>,
}

/// All results, with what to know about them at the end.
pub fn render(results: &Results, groups: &Groups<'_>) -> String {
    let mut text = String::new();
    for scenario in groups.scenarios() {
        text += &self::scenario(scenario);
        text.push('\n');
    }
    text += &legend(groups);
    text += &notes(results, groups);
    text
}

/// Void runs and warnings; nothing if there are none.
pub fn notes(results: &Results, groups: &Groups<'_>) -> String {
    let mut text = String::new();
    let void: Vec<_> = groups.void().collect();
    if !void.is_empty() {
        let _ = writeln!(text, "\nvoid, in no figure:");
        for (loaded, reason) in void {
            let inputs = &loaded.run.inputs;
            let line = format!(
                "{} {} seed {}: {reason}",
                inputs.scenario, inputs.scheme, inputs.seed
            );
            text += &wrapped(&line, "  ");
        }
    }
    let warnings = results.warnings();
    if !warnings.is_empty() {
        let _ = writeln!(text, "\nwarnings:");
        for warning in warnings {
            text += &wrapped(&warning, "  ");
        }
    }
    text
}

/// The schemes of one scenario.
pub fn scenario(groups: &[Group<'_>]) -> String {
    let mut text = String::new();
    if let Some(run) = groups.first().and_then(Group::any) {
        text += &wrapped(&heading(run), "");
    }
    let name = groups
        .iter()
        .map(|group| group.scheme.chars().count())
        .max()
        .unwrap_or(0)
        .clamp(6, 24);
    let mut block: Vec<&Column> = Vec::new();
    let mut width = name + 1;
    let columns = columns(groups);
    for column in &columns {
        let wide = column_width(column) + 2;
        if width + wide > WIDTH && !block.is_empty() {
            put(&mut text, groups, name, &block);
            block.clear();
            width = name + 1;
        }
        width += wide;
        block.push(column);
    }
    put(&mut text, groups, name, &block);
    text
}

fn columns(groups: &[Group<'_>]) -> Vec<Column> {
    let runs = Column {
        heading: ["reps".into(), String::new()],
        cells: groups
            .iter()
            .map(|group| match group.void.len() {
                0 => group.runs.len().to_string(),
                void => format!("{}+{void}v", group.runs.len()),
            })
            .collect(),
        best: vec![false; groups.len()],
    };
    let mut columns = vec![runs];
    for measure in MEASURES.iter().take(SHOWN) {
        let medians: Vec<_> = groups.iter().map(|group| group.interval(measure)).collect();
        if medians.iter().all(Option::is_none) {
            continue;
        }
        let cell =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| number(measure, value));
        let cells: Vec<_> = medians
            .iter()
            .map(|interval| cell(interval.map(|i| i.median)))
            .collect();
        columns.push(Column {
            heading: measure.heading.map(str::to_owned),
            best: best(
                measure,
                &medians
                    .iter()
                    .map(|i| i.map(|i| i.median))
                    .collect::<Vec<_>>(),
            ),
            cells,
        });
        if measure.key == MEASURES[0].key {
            let ends = medians.iter().map(|interval| {
                interval.map_or("-".to_owned(), |i| {
                    format!("{}-{}", number(measure, i.low), number(measure, i.high))
                })
            });
            columns.push(Column {
                heading: ["95 %".into(), "interval".into()],
                cells: ends.collect(),
                best: vec![false; groups.len()],
            });
        }
    }
    columns
}

/// A value with the digits of its measure.
pub fn number(measure: &Measure, value: f64) -> String {
    if value.is_infinite() {
        return "never".to_owned();
    }
    format!("{value:.*}", measure.digits)
}

/// Which values are the best as shown; none if all are the same.
pub fn best(measure: &Measure, values: &[Option<f64>]) -> Vec<bool> {
    let sign = match measure.better {
        Better::More => 1.0,
        Better::Less => -1.0,
    };
    let top = values
        .iter()
        .flatten()
        .map(|value| value * sign)
        .fold(f64::NEG_INFINITY, f64::max)
        * sign;
    let shown = number(measure, top);
    let best: Vec<_> = values
        .iter()
        .map(|value| value.is_some_and(|value| number(measure, value) == shown))
        .collect();
    let compared = values.iter().flatten().count();
    if compared < 2 || best.iter().filter(|best| **best).count() == compared {
        return vec![false; values.len()];
    }
    best
}

fn column_width(column: &Column) -> usize {
    let texts = column.heading.iter().chain(&column.cells);
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn put(text: &mut String, groups: &[Group<'_>], name: usize, columns: &[&Column]) {
    let mut lines = vec![format!("{:<name$} ", "scheme"), format!("{:<name$} ", "")];
    let short = |scheme: &str| scheme.chars().take(name).collect::<String>();
    lines.extend(
        groups
            .iter()
            .map(|group| format!("{:<name$} ", short(group.scheme))),
    );
    for column in columns {
        let width = column_width(column);
        let cells = column.heading.iter().map(|text| (text, false));
        let cells = cells.chain(column.cells.iter().zip(column.best.iter().copied()));
        for (line, (cell, best)) in lines.iter_mut().zip(cells) {
            // Writing to a string cannot fail.
            let _ = write!(line, " {cell:>width$}{}", if best { '*' } else { ' ' });
        }
    }
    for line in lines {
        let line = line.trim_end();
        if !line.is_empty() {
            text.push_str(line);
            text.push('\n');
        }
    }
}

fn legend(groups: &Groups<'_>) -> String {
    let shown = MEASURES.iter().take(SHOWN).filter(|measure| {
        groups
            .0
            .iter()
            .any(|group| !group.values(measure).is_empty())
    });
    let parts: Vec<_> = shown
        .map(|measure| format!("{}: {}", measure.heading[0], measure.about))
        .collect();
    let mut text = wrapped(
        "Medians over the repetitions (reps; +1v: one more was void); * best of a column; interval: bootstrap, 95 %.",
        "",
    );
    text += &wrapped(&(parts.join("; ") + "."), "");
    text
}

/// The verdicts of ministat between two schemes, per scenario.
pub fn comparison(groups: &Groups<'_>, reference: &str, scheme: &str) -> String {
    let rows = compare::all(groups, reference, scheme);
    let mut text = format!("{scheme} against {reference}, Student's t, 95 %\n");
    let name = rows
        .iter()
        .map(|row| row.scenario.len())
        .max()
        .unwrap_or(0)
        .max(8);
    let what = rows
        .iter()
        .map(|row| row.measure.key.len())
        .max()
        .unwrap_or(0);
    for row in &rows {
        let _ = writeln!(
            text,
            "{:<name$} {:<what$} {}",
            row.scenario,
            row.measure.key,
            row.words()
        );
    }
    if rows.is_empty() {
        let _ = writeln!(text, "no scenario has results of both");
    }
    text
}

/// Lines of at most [`WIDTH`] columns, each behind an indent; a longer word stays whole.
pub fn wrapped(words: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty()
            && indent.len() + line.chars().count() + 1 + word.chars().count() > WIDTH
        {
            let _ = writeln!(text, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    let _ = writeln!(text, "{indent}{line}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::sample::{measured, quantiles, results};
    use crate::lab::result::Completion;

    #[test]
    fn a_line_for_each_scheme_with_the_best_marked() {
        let mut runs = Vec::new();
        for (scheme, goodputs) in [("cubic", [40.0, 41.0, 43.0]), ("pk3c", [46.0, 45.0, 47.0])] {
            for (goodput, seed) in goodputs.into_iter().zip(1..) {
                runs.push(measured("P1", scheme, seed, goodput));
            }
        }
        runs[5].void = Some("late".into());
        let results = results(runs);
        let text = render(&results, &Groups::of(&results));
        let lines: Vec<_> = text.lines().take(5).collect();
        assert_eq!(
            lines,
            [
                "P1: title of P1; 50 Mbit/s, 40 ms, 167 packets, 30 s, host",
                "scheme  reps   use       95 %  goodput  RTT50  RTT95  RTT99  retr",
                "                 %   interval   Mbit/s     ms     ms     ms     %",
                "cubic      3  84.9  82.9-89.1    41.00   41.0   60.0   66.0  0.00",
                "pk3c    2+1v  94.3* 93.2-95.3    45.50*  41.0   60.0   66.0  0.00",
            ]
        );
        assert!(
            text.contains("void, in no figure:\n  P1 pk3c seed 3: late\n"),
            "{text}"
        );
    }

    #[test]
    fn all_columns_fit_the_terminal() {
        let mut run = measured("B1", "agent:pk3c-with-a-long-name-that-goes-on", 1, 480.123);
        run.inputs.title = Some("word ".repeat(60));
        run.total.owd_ms = Some(quantiles(1041.0, 10_160.0));
        run.total.rtt_ms = run.total.owd_ms;
        run.total.loss = Some(0.0123);
        (run.cpu.sender_s, run.cpu.agent_s) = (Some(12.0), Some(0.3));
        let transfer = Completion {
            round: 1,
            start_s: 0.0,
            seconds: Some(12.0),
            bytes: 1,
        };
        run.flows[0].completions.push(transfer);
        let second = run.flows[0].clone();
        run.flows.push(second);
        let results = results(vec![run]);
        let text = render(&results, &Groups::of(&results));
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{}: {line}", line.len());
        }
        for heading in ["OWD95", "Jain", "done95", "CPU", "1016"] {
            assert!(text.contains(heading), "{heading} is missing in\n{text}");
        }
    }

    #[test]
    fn equal_values_are_not_best() {
        let measure = &MEASURES[0];
        assert_eq!(best(measure, &[Some(1.0), Some(1.01)]), [false; 2]);
        assert_eq!(best(measure, &[Some(1.0), None]), [false; 2]);
        assert_eq!(
            best(measure, &[Some(2.0), None, Some(1.0), Some(2.0)]),
            [true, false, false, true]
        );
    }
}
