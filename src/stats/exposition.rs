//! The statistics in Prometheus' text format, version 0.0.4.
//!
//! Nothing here is per flow, and every label has a fixed set of values, so the number of series does not depend on what
//! the agent meets: only on how many policies its configuration has.

use super::{Histogram, Kind, Snapshot, Value};
use std::fmt::{self, Write};

const PREFIX: &str = "pk3c_";

/// The whole text.
#[must_use]
pub fn exposition(snapshot: &Snapshot) -> String {
    let mut text = String::with_capacity(16 << 10);
    write(&mut text, snapshot).expect("writing to a string does not fail");
    text
}

fn write(text: &mut String, snapshot: &Snapshot) -> fmt::Result {
    for (spec, value) in snapshot.iter() {
        let suffix = if spec.kind == Kind::Counter {
            "_total"
        } else {
            ""
        };
        let name = format!("{PREFIX}{}{suffix}", spec.name);
        writeln!(text, "# HELP {name} {}", spec.help)?;
        writeln!(text, "# TYPE {name} {}", spec.kind.name())?;
        match value {
            Value::Number(number) => writeln!(text, "{name} {number}")?,
            Value::ByLabel(values) => {
                let label = spec.label.unwrap_or("name");
                for (is, number) in values {
                    writeln!(text, "{name}{{{label}=\"{is}\"}} {number}")?;
                }
            }
            Value::Histogram(histogram) => write_histogram(text, &name, "", histogram)?,
            Value::Histograms(histograms) => {
                let label = spec.label.unwrap_or("name");
                for (is, histogram) in histograms {
                    write_histogram(text, &name, &format!("{label}=\"{is}\""), histogram)?;
                }
            }
        }
    }
    Ok(())
}

/// `label` is the label of its series, besides those of the classes.
fn write_histogram(text: &mut String, name: &str, label: &str, of: &Histogram) -> fmt::Result {
    let (comma, braced) = if label.is_empty() {
        ("", String::new())
    } else {
        (",", format!("{{{label}}}"))
    };
    let mut below = 0;
    for (bound, count) in of.bounds.iter().zip(&of.counts) {
        below += count;
        writeln!(
            text,
            "{name}_bucket{{{label}{comma}le=\"{bound}\"}} {below}"
        )?;
    }
    let count = of.count();
    writeln!(text, "{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}")?;
    writeln!(
        text,
        "{name}_sum{braced} {}\n{name}_count{braced} {count}",
        of.sum
    )
}
