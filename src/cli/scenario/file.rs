//! The TOML of scenarios: which keys there are, and what they mean. docs/scenarios.md explains them.

use super::flows::{self, Entry, Shorter};
use super::path::{self, Setting};
use super::plan::{Form, Plan, usual_comparison};
use super::reader::{Source, Table};
use super::values;
use super::{AGENT_LATENCY_NS, DURATION_NS, SEED, Scheme};
use anyhow::Result;
use pathlab::lab::run::{Settings, Traffic};
use pathsim::Scenario;
use std::path::Path;

const SCENARIO_KEYS: &[&str] = &[
    "id",
    "title",
    "document",
    "source",
    "scaled",
    "schemes",
    "measure",
    "duration",
    "rounds",
    "quick",
    "seed",
    "agent-latency",
    "traffic",
    "gso",
    "sack",
    "reordering",
    "ecn",
    "path",
    "flows",
];
const QUICK_KEYS: &[&str] = &["duration", "rounds", "count", "stagger", "size"];

/// `folder` is where a trace without a full path is looked for; `id` names a file's only scenario; rates that are drawn
/// last for `length_ns`, if that is given, else for the scenario's `duration`. Scenarios of no document are of the
/// file's.
pub(super) fn parse(
    source: Source<'_>,
    folder: &Path,
    id: &str,
    length_ns: Option<u64>,
) -> Result<Vec<Plan>> {
    let mut top = source.table()?;
    let mut plans = if top.has("scenario") {
        top.expect(&["scenario"])?;
        let tables = top.tables("scenario")?.unwrap_or_default();
        let plans = tables.into_iter();
        plans
            .map(|table| one(table, folder, None, length_ns))
            .collect::<Result<_>>()?
    } else {
        vec![one(top, folder, Some(id), length_ns)?]
    };
    for plan in &mut plans {
        plan.document.get_or_insert_with(|| id.to_owned());
    }
    Ok(plans)
}

fn one(
    mut table: Table<'_>,
    folder: &Path,
    id: Option<&str>,
    length_ns: Option<u64>,
) -> Result<Plan> {
    table.expect(SCENARIO_KEYS)?;
    let id = match (table.take("id", values::id)?, id) {
        (Some(id), _) => id,
        (None, Some(id)) => id.to_owned(),
        (None, None) => {
            return Err(table.wrong_here("the key `id` is missing: write a short name in quotes"));
        }
    };
    let duration_ns = table
        .take("duration", values::duration)?
        .unwrap_or(DURATION_NS);
    let seed = table.take("seed", values::seed)?.unwrap_or(SEED);
    let agent_latency_ns = table
        .take("agent-latency", values::time)?
        .unwrap_or(AGENT_LATENCY_NS);
    let mut settings = read_settings(&mut table)?;
    let Some(path) = table.table("path")? else {
        return Err(table.wrong_here("there is no path: write [path] with rate and rtt"));
    };
    let setting = Setting {
        folder,
        length_ns: length_ns.unwrap_or(duration_ns),
        seed,
    };
    let (path, loopback) = path::read(path, setting)?;
    settings.loopback = loopback;
    let entries = read_entries(&mut table)?;
    let (flows, schemes) = flows::expand(&entries, Shorter::default());
    let scenario = Scenario {
        path,
        flows,
        duration_ns,
        seed,
        series: false,
    };
    let quick = match table.table("quick")? {
        Some(quick) => Some(Box::new(read_quick(quick, &entries, &scenario, &settings)?)),
        None => None,
    };
    let compared = table.values_or_tables("schemes", str::parse, flows::command)?;
    if let Some(twice) = compared.as_deref().and_then(repeated) {
        return Err(table.wrong_here(format_args!("the scheme {twice} occurs twice in schemes")));
    }
    Ok(Plan {
        title: table.take("title", values::line)?,
        document: table.take("document", values::id)?,
        source: table.take("source", values::line)?,
        scaled: table.take("scaled", values::line)?,
        measure: table.take("measure", str::parse)?.unwrap_or_default(),
        settings,
        compared: compared.unwrap_or_else(usual_comparison),
        quick,
        ..Plan::new(id, scenario, schemes, agent_latency_ns)
    })
}

fn repeated(schemes: &[Scheme]) -> Option<&Scheme> {
    let numbered = schemes.iter().enumerate();
    let mut twice = numbered.filter(|(number, scheme)| schemes[..*number].contains(scheme));
    twice.next().map(|(_, scheme)| scheme)
}

fn read_entries(table: &mut Table<'_>) -> Result<Vec<Entry>> {
    let tables = table.tables("flows")?.unwrap_or_default();
    if tables.is_empty() {
        return Err(table.wrong_here("there are no flows: write [[flows]] at least once"));
    }
    let mut entries: Vec<Entry> = Vec::new();
    for entry in tables {
        let before = entries.iter().map(Entry::count).sum();
        entries.push(flows::read(entry, before)?);
    }
    Ok(entries)
}

fn read_settings(table: &mut Table<'_>) -> Result<Settings> {
    let usual = Settings::default();
    Ok(Settings {
        traffic: table.take("traffic", traffic)?.unwrap_or(usual.traffic),
        gso_max_segs: table
            .take("gso", values::gso)?
            .unwrap_or(usual.gso_max_segs),
        sack: table.take("sack", values::yes_or_no)?.unwrap_or(usual.sack),
        reordering: table.take("reordering", values::reordering)?,
        ecn: table.take("ecn", values::yes_or_no)?.unwrap_or(usual.ecn),
        rounds: table
            .take("rounds", values::rounds)?
            .unwrap_or(usual.rounds),
        ..usual
    })
}

fn traffic(text: &str) -> Result<Traffic, String> {
    match text {
        "own" => Ok(Traffic::Own),
        "iperf3" => Ok(Traffic::Iperf3),
        _ => Err(format!("`{text}` makes no traffic: write own or iperf3")),
    }
}

fn read_quick(
    mut table: Table<'_>,
    entries: &[Entry],
    full: &Scenario,
    settings: &Settings,
) -> Result<Form> {
    table.expect(QUICK_KEYS)?;
    let duration_ns = table
        .take("duration", values::duration)?
        .unwrap_or(full.duration_ns);
    let rounds = table.take("rounds", values::rounds)?;
    let shorter = Shorter {
        count: table.take("count", values::count)?,
        stagger_ns: table.take("stagger", values::time)?,
        size: table.take("size", values::size)?,
    };
    let (flows, schemes) = flows::expand(entries, shorter);
    if flows.iter().any(|flow| flow.start_ns >= duration_ns) {
        return Err(table.wrong_here("every flow must start within duration: shorten stagger, too"));
    }
    Ok(Form {
        scenario: Scenario {
            flows,
            duration_ns,
            ..full.clone()
        },
        schemes,
        rounds: rounds.unwrap_or(settings.rounds),
    })
}

#[cfg(test)]
mod tests;
