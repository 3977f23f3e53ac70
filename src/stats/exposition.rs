//! The statistics in Prometheus' text format, version 0.0.4.
//!
//! Nothing here is per flow, and every label has a fixed set of values, so the number of series does not depend on what
//! the agent meets.

use super::{Kind, Snapshot, Value};
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
            Value::Histogram(histogram) => {
                let mut below = 0;
                for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
                    below += count;
                    writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {below}")?;
                }
                let count = histogram.count();
                writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}")?;
                writeln!(text, "{name}_sum {}\n{name}_count {count}", histogram.sum)?;
            }
        }
    }
    Ok(())
}
