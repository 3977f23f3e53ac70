//! How often is PK3C worse than Cubic? Counts and means over the rows of a table with both, for many paths at once.
//!
//! ```text
//! pk3c-ccp sim table scenarios/random.toml --cc cubic,pk3c --seeds 3 --json | cargo run --release --example summarize
//! ```
//!
//! A set of paths is what an id has before its first `-`; downloads, whose ids end in their size, make a set per size.
//! A slowest flow that downloads has its rate from its first to its last packet, so that rates are times.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Table {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    scenario: String,
    scheme: String,
    use_run: f64,
    use_min: f64,
    loss: f64,
    jain: f64,
    rtt_p95_ms: f64,
    worst_flow_mbps: f64,
}

/// Added to both losses before one is divided by the other, since Cubic often loses nothing.
const LOSS_UNIT: f64 = 0.002;

/// Whether PK3C does on this path what nobody wants, beside what Cubic does there.
type Bad = fn(&Row, &Row) -> bool;

/// A figure of one path, of PK3C's row and Cubic's.
type Figure = fn(&Row, &Row) -> f64;

const BAD: [(&str, Bad); 6] = [
    ("use below 0.85", |own, _| own.use_run < 0.85),
    ("a seed below 0.6", |own, _| own.use_min < 0.6),
    ("Jain below 0.9", |own, _| own.jain < 0.9),
    ("Jain below 0.7", |own, _| own.jain < 0.7),
    ("loss over twice Cubic's + 2 %", |own, cubic| {
        own.loss > cubic.loss * 2.0 + 0.02
    }),
    ("RTT p95 over Cubic's + 10 % + 3 ms", |own, cubic| {
        own.rtt_p95_ms > cubic.rtt_p95_ms * 1.1 + 3.0
    }),
];

/// What an id has before its first `-`, and the size of a download.
fn set_of(id: &str) -> String {
    let set = id.split('-').next().unwrap_or(id);
    match id.rsplit('-').next() {
        Some(size) if size.ends_with("MB") => format!("{set}, {size}"),
        _ => set.to_owned(),
    }
}

fn main() -> Result<()> {
    let table: Table = serde_json::from_reader(std::io::stdin())
        .context("read standard input: `pk3c-ccp sim table … --json` writes what belongs there")?;
    let of = |scheme: &str| -> BTreeMap<&str, &Row> {
        let rows = table.rows.iter().filter(|row| row.scheme == scheme);
        rows.map(|row| (row.scenario.as_str(), row)).collect()
    };
    let cubic = of("cubic");
    let mut sets: BTreeMap<String, Vec<(&Row, &Row)>> = BTreeMap::new();
    for (id, own) in of("pk3c") {
        let beside = cubic
            .get(id)
            .with_context(|| format!("{id} has no row under cubic: `--cc cubic,pk3c`"))?;
        sets.entry(set_of(id)).or_default().push((own, beside));
    }
    for (set, rows) in sets {
        println!("{set}: {} paths", rows.len());
        for (what, bad) in BAD {
            let count = rows.iter().filter(|(own, cubic)| bad(own, cubic)).count();
            println!("  {what:36}{count:6}");
        }
        let mean = |part: Figure| {
            let sum: f64 = rows.iter().map(|(own, cubic)| part(own, cubic)).sum();
            sum / rows.len() as f64
        };
        let means: [(&str, Figure); 6] = [
            ("mean use", |own, _| own.use_run),
            ("mean use, Cubic", |_, cubic| cubic.use_run),
            ("mean Jain", |own, _| own.jain),
            ("mean Jain, Cubic", |_, cubic| cubic.jain),
            ("mean of loss over Cubic's", |own, cubic| {
                (own.loss + LOSS_UNIT) / (cubic.loss + LOSS_UNIT)
            }),
            ("mean of RTT p95 over Cubic's", |own, cubic| {
                own.rtt_p95_ms / cubic.rtt_p95_ms
            }),
        ];
        for (what, part) in means {
            println!("  {what:36}{:6.3}", mean(part));
        }
        let slower = mean(|own, cubic| (cubic.worst_flow_mbps / own.worst_flow_mbps).ln());
        println!(
            "  {:36}{:6.3}",
            "slowest flow's time over Cubic's",
            slower.exp()
        );
    }
    Ok(())
}
