//! `pk3c-ccp status`: what a running agent does, once.

use super::control::{AgentArgs, Client, Request};
use anyhow::Result;
use pk3c_ccp::stats::{FLOW_FIELDS, FlowField, Kind, SPECS, Spec, Unit};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// What is shown of each flow, by name of the field.
const COLUMNS: [&str; 13] = [
    "flow",
    "local",
    "remote",
    "age_seconds",
    "state",
    "policy",
    "phase",
    "rate_bits_per_second",
    "goodput_bits_per_second",
    "rtt_seconds",
    "rtt_min_seconds",
    "loss_ratio",
    "reason",
];

/// Options of `pk3c-ccp status`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// One JSON object: `agent`, `stats`, `flows[]`
    #[arg(long)]
    json: bool,
    /// Flows shown, at most
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    flows: usize,
    /// Field by which flows are sorted, largest first; the oldest first without it
    #[arg(long, value_name = "FIELD")]
    sort: Option<String>,
    /// Only flows of which an end, the state, the phase or the last reason contains TEXT
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Asks the agent and prints its answer.
pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let mut client = Client::connect(&args.agent)?;
    let mut status = client.ask(&Request::Status {})?;
    let flows = client.ask(&Request::Flows {
        sort: args.sort.clone(),
        filter: args.filter.clone(),
        limit: Some(args.flows),
    })?;
    if args.json {
        for key in ["flows", "total", "matching"] {
            status[key] = flows[key].clone();
        }
        writeln!(io::stdout(), "{status}")?;
        return Ok(());
    }
    let text = summary(&status) + &table(&flows);
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// The statistics that are not 0, one per line.
fn summary(status: &Value) -> String {
    let mut text = String::new();
    let agent = &status["agent"];
    let config = agent["config"].as_str().unwrap_or("no file");
    let _ = writeln!(
        text,
        "{} {}, process {}, configuration: {config}",
        agent["program"].as_str().unwrap_or_default(),
        agent["version"].as_str().unwrap_or_default(),
        agent["pid"],
    );
    for spec in SPECS.iter().filter(|spec| spec.name != "build_info") {
        let value = &status["stats"][spec.name];
        if spec.kind == Kind::Histogram && spec.label.is_some() {
            for (label, histogram) in value.as_object().into_iter().flatten() {
                if let Some(value) = shown(spec, histogram) {
                    let _ = writeln!(text, "{:28} {label}: {value}", spec.name);
                }
            }
        } else if let Some(value) = shown(spec, value) {
            let _ = writeln!(text, "{:28} {value}", spec.name);
        }
    }
    text
}

fn shown(spec: &Spec, value: &Value) -> Option<String> {
    let show = |value: f64| spec.unit.show(value);
    if let Some(number) = value.as_f64() {
        return (number != 0.0).then(|| show(number));
    }
    let object = value.as_object()?;
    let Some(count) = value["count"]
        .as_u64()
        .filter(|_| value["counts"].is_array())
    else {
        let mut labelled: Vec<_> = object
            .iter()
            .filter_map(|(label, value)| Some((label, value.as_f64()?)))
            .filter(|(_, value)| *value != 0.0)
            .collect();
        labelled.sort_by(|a, b| b.1.total_cmp(&a.1));
        let texts: Vec<_> = labelled
            .iter()
            .map(|(label, value)| format!("{label} {}", show(*value)))
            .collect();
        return (!texts.is_empty()).then(|| texts.join(", "));
    };
    let mean = value["sum"].as_f64()? / count as f64;
    let below = |share: f64| {
        let wanted = (count as f64 * share).ceil() as u64;
        let counts = value["counts"].as_array()?;
        let mut sum = 0;
        let class = counts.iter().position(|n| {
            sum += n.as_u64().unwrap_or(0);
            sum >= wanted
        })?;
        Some(match value["bounds"][class].as_f64() {
            Some(bound) => format!("at most {}", show(bound)),
            None => "more than the last class".to_owned(),
        })
    };
    (count > 0).then(|| {
        let (half, most) = (below(0.5), below(0.95));
        format!(
            "mean {}, half {}, 95% {} ({count} observations)",
            show(mean),
            half.unwrap_or_default(),
            most.unwrap_or_default()
        )
    })
}

/// A value of a flow for people; `-` if it is not known.
pub(crate) fn cell(field: &FlowField, flow: &Value) -> String {
    let value = &flow[field.name];
    if field.unit == Unit::Text {
        return value.as_str().unwrap_or("-").to_owned();
    }
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |number| field.unit.show(number))
}

/// A field of flows by its name.
pub(crate) fn field(name: &str) -> &'static FlowField {
    let found = FLOW_FIELDS.iter().find(|field| field.name == name);
    found.expect("the names of columns are those of fields, which a test looks after")
}

fn table(flows: &Value) -> String {
    let shown = flows["flows"].as_array().map_or(&[][..], Vec::as_slice);
    let fields: Vec<_> = COLUMNS.iter().map(|name| field(name)).collect();
    let mut rows = vec![
        fields
            .iter()
            .map(|field| field.heading.to_owned())
            .collect::<Vec<_>>(),
    ];
    rows.extend(
        shown
            .iter()
            .map(|flow| fields.iter().map(|field| cell(field, flow)).collect()),
    );
    let mut text = String::new();
    let (total, matching) = (&flows["total"], &flows["matching"]);
    if total == &json!(0) {
        return "\nno flows\n".to_owned();
    }
    let _ = writeln!(
        text,
        "\n{} of {matching} flows ({total} in all)",
        shown.len()
    );
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..fields.len()).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for ((value, width), field) in row.iter().zip(&widths).zip(&fields) {
            let _ = match field.unit {
                Unit::Text => write!(line, "{value:<width$}  "),
                _ => write!(line, "{value:>width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_fields() {
        for name in COLUMNS {
            field(name);
        }
    }

    #[test]
    fn a_status_is_shown_with_units_and_without_zeros() {
        let stats = json!({
            "uptime_seconds": 42.0, "reports": 1200, "reports_dropped": 0,
            "flows": {"driven": 2, "fallback": 0},
            "flow_rtt_seconds": {"web": {"count": 4, "sum": 0.2, "bounds": [0.04, 0.08], "counts": [1, 2, 1]}},
        });
        let agent = json!({"program": "pk3c-ccp", "version": "1.2.3", "pid": 7, "config": null});
        let text = summary(&json!({"agent": agent, "stats": stats}));
        for part in [
            "pk3c-ccp 1.2.3, process 7, configuration: no file",
            "uptime_seconds               42.0s",
            "flows                        driven 2",
            "flow_rtt_seconds             web: mean 50.0ms, half at most 80.0ms, 95% more than the last class (4 observations)",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(!text.contains("reports_dropped"));
        let flow = json!({"flow": 3, "local": "192.0.2.1:80", "state": "driven", "rate_bits_per_second": 8.5e6});
        let text = table(&json!({"flows": [flow], "total": 5, "matching": 1}));
        assert!(
            text.contains("1 of 1 flows (5 in all)") && text.contains("8.50M"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 4);
        assert_eq!(table(&json!({"flows": [], "total": 0})), "\nno flows\n");
    }
}
