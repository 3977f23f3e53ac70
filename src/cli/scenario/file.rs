//! The TOML of scenarios: which keys there are, and what they mean for the simulator. docs/scenarios.md explains them.

use super::reader::{Source, Table};
use super::values::{self, Queue, Scheme};
use super::{AGENT_LATENCY_NS, DURATION_NS, PathParts, Plan, SEED, STAGGER_NS, losses};
use anyhow::Result;
use pathsim::{
    AckPolicy, CoDel, FlowSpec, LossPlace, PathSpec, QueueDiscipline, RateSchedule, RouteChange,
    SECOND, Scenario, Source as Data,
};
use std::path::Path;

const SCENARIO_KEYS: &[&str] = &[
    "id",
    "title",
    "source",
    "measure",
    "duration",
    "seed",
    "agent-latency",
    "path",
    "flows",
];
const PATH_KEYS: &[&str] = &[
    "rate",
    "steps",
    "trace",
    "rtt",
    "rtt-steps",
    "queue",
    "aqm",
    "codel-target",
    "codel-interval",
    "loss",
    "loss-burst",
    "loss-place",
    "ack-loss",
    "ack-loss-burst",
    "jitter",
    "reorder",
];
const FLOW_KEYS: &[&str] = &[
    "scheme",
    "count",
    "start",
    "stagger",
    "stop",
    "size",
    "app-rate",
    "app-chunk",
    "extra-rtt",
    "ack-every",
    "ack-delay",
    "ack-aggregation",
    "ack-compression",
    "receive-window",
    "burst",
];

/// `folder` is where a trace without a full path is looked for; `id` names a file's only scenario.
pub(super) fn parse(source: Source<'_>, folder: &Path, id: &str) -> Result<Vec<Plan>> {
    let mut top = source.table()?;
    if !top.has("scenario") {
        return Ok(vec![one(top, folder, Some(id))?]);
    }
    top.expect(&["scenario"])?;
    let tables = top.tables("scenario")?.unwrap_or_default();
    tables
        .into_iter()
        .map(|table| one(table, folder, None))
        .collect()
}

fn one(mut table: Table<'_>, folder: &Path, id: Option<&str>) -> Result<Plan> {
    table.expect(SCENARIO_KEYS)?;
    let id = match (table.take("id", values::id)?, id) {
        (Some(id), _) => id,
        (None, Some(id)) => id.to_owned(),
        (None, None) => {
            return Err(table.wrong_here("the key `id` is missing: write a short name in quotes"));
        }
    };
    let title = table.take("title", values::line)?;
    table.take("source", values::line)?;
    let measure = table.take("measure", str::parse)?.unwrap_or_default();
    let duration_ns = table
        .take("duration", values::duration)?
        .unwrap_or(DURATION_NS);
    let seed = table.take("seed", values::seed)?.unwrap_or(SEED);
    let agent_latency_ns = table
        .take("agent-latency", values::time)?
        .unwrap_or(AGENT_LATENCY_NS);
    let Some(path) = table.table("path")? else {
        return Err(table.wrong_here("there is no path: write [path] with rate and rtt"));
    };
    let path = read_path(path, folder)?;
    let mut flows = Vec::new();
    let mut schemes = Vec::new();
    let entries = table.tables("flows")?.unwrap_or_default();
    if entries.is_empty() {
        return Err(table.wrong_here("there are no flows: write [[flows]] at least once"));
    }
    for entry in entries {
        read_flows(entry, &mut flows, &mut schemes)?;
    }
    Ok(Plan {
        id,
        title,
        measure,
        scenario: Scenario {
            path,
            flows,
            duration_ns,
            seed,
            series: false,
        },
        schemes,
        agent_latency_ns,
    })
}

fn read_path(mut table: Table<'_>, folder: &Path) -> Result<PathSpec> {
    table.expect(PATH_KEYS)?;
    let rate = table.take("rate", values::rate)?;
    let steps = table.tables("steps")?;
    let file = table.take("trace", values::line)?;
    let rate = match (rate, steps, file) {
        (Some(bps), None, None) => RateSchedule::Constant(bps),
        (None, Some(steps), None) => RateSchedule::Steps(read_steps(
            steps,
            &table,
            "rate",
            "a rate as in 50mbit",
            values::rate,
        )?),
        (None, None, Some(file)) => super::trace(&folder.join(file))
            .map_err(|error| table.wrong_here(format_args!("{error:#}")))?,
        _ => return Err(table.wrong_here("give one of the keys rate, steps and trace")),
    };
    let (rtt_ns, route_changes) = read_delay(&mut table)?;
    let parts = PathParts {
        rate,
        rtt_ns,
        queue: table
            .take("queue", str::parse)?
            .unwrap_or(Queue::Products(1.0)),
        loss: table.take("loss", values::loss)?.unwrap_or(0.0),
        loss_burst: table.take("loss-burst", values::burst)?,
        jitter_ns: table.take("jitter", values::time)?.unwrap_or(0),
        reorder: table.take("reorder", values::yes_or_no)?.unwrap_or(false),
    };
    // A state that loses everything is entered from the other one: the bursts must be long enough for the ratio.
    if parts
        .loss_burst
        .is_some_and(|burst| parts.loss > burst / (burst + 1.0))
    {
        return Err(table.wrong_here(
            "loss-burst is too short for so much loss: loss may be loss-burst / (loss-burst + 1)",
        ));
    }
    let mut path = parts.path();
    path.route_changes = route_changes;
    path.discipline = read_discipline(&mut table)?;
    path.loss_place = table.take("loss-place", loss_place)?.unwrap_or_default();
    let ack_loss = table.take("ack-loss", values::loss)?.unwrap_or(0.0);
    path.ack_loss = losses(ack_loss, table.take("ack-loss-burst", values::burst)?);
    Ok(path)
}

/// One RTT, or several from times on.
fn read_delay(table: &mut Table<'_>) -> Result<(u64, Vec<RouteChange>)> {
    const FORM: &str = "a time as in \"40ms\"";
    let Some(steps) = table.tables("rtt-steps")? else {
        return Ok((table.need("rtt", FORM, values::time)?, Vec::new()));
    };
    if table.has("rtt") {
        return Err(table.wrong_here("give one of the keys rtt and rtt-steps"));
    }
    let steps = read_steps(steps, table, "rtt", FORM, values::time)?;
    let changes = steps.iter().skip(1);
    let changes = changes.map(|&(at_ns, rtt_ns)| RouteChange { at_ns, rtt_ns });
    Ok((steps[0].1, changes.collect()))
}

fn read_discipline(table: &mut Table<'_>) -> Result<QueueDiscipline> {
    let is_codel = table.take("aqm", aqm)?.unwrap_or(false);
    let target_ns = table.take("codel-target", values::duration)?;
    let interval_ns = table.take("codel-interval", values::duration)?;
    let usual = CoDel::default();
    match (is_codel, target_ns.or(interval_ns)) {
        (true, _) => Ok(QueueDiscipline::CoDel(CoDel {
            target_ns: target_ns.unwrap_or(usual.target_ns),
            interval_ns: interval_ns.unwrap_or(usual.interval_ns),
        })),
        (false, None) => Ok(QueueDiscipline::DropTail),
        (false, Some(_)) => {
            Err(table.wrong_here("codel-target and codel-interval need aqm = \"codel\""))
        }
    }
}

/// Whether it is CoDel.
fn aqm(text: &str) -> Result<bool, String> {
    match text {
        "none" => Ok(false),
        "codel" => Ok(true),
        _ => Err(format!(
            "`{text}` is not a queue discipline: write none or codel"
        )),
    }
}

/// Segments sent at once, 1 to 44.
fn burst_segments(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=44).contains(n));
    number.ok_or_else(|| format!("`{text}` is not a burst: write 1 to 44 segments"))
}

fn loss_place(text: &str) -> Result<LossPlace, String> {
    match text {
        "behind" => Ok(LossPlace::Behind),
        "in-front" => Ok(LossPlace::InFront),
        _ => Err(format!(
            "`{text}` is not a place for loss: write behind or in-front (of the bottleneck)"
        )),
    }
}

/// Values from times on: `[{ at = "0s", key = … }, …]`.
fn read_steps<T>(
    steps: Vec<Table<'_>>,
    path: &Table<'_>,
    key: &'static str,
    form: &str,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(u64, T)>> {
    let mut read: Vec<(u64, T)> = Vec::new();
    for mut step in steps {
        step.expect(&["at", key])?;
        let at = step.need("at", "a time as in \"10s\"", values::time)?;
        let in_order = read.last().map_or(at == 0, |last| last.0 < at);
        if !in_order {
            return Err(step.wrong_here("the times `at` must ascend, the first one be 0s"));
        }
        read.push((at, step.need(key, form, &value)?));
    }
    if read.is_empty() {
        return Err(path.wrong_here("there are no steps: write at least the one at 0s"));
    }
    Ok(read)
}

fn read_flows(
    mut table: Table<'_>,
    flows: &mut Vec<FlowSpec>,
    schemes: &mut Vec<Option<Scheme>>,
) -> Result<()> {
    table.expect(FLOW_KEYS)?;
    let linux = AckPolicy::default();
    let scheme = table.take("scheme", str::parse)?;
    let count = table.take("count", values::count)?.unwrap_or(1);
    let start = table.take("start", values::time)?;
    let stagger = table.take("stagger", values::time)?;
    let size = table.take("size", values::size)?;
    let app_rate = table.take("app-rate", values::rate)?;
    let chunk = table.take("app-chunk", values::size)?;
    let spec = FlowSpec {
        stop_ns: table.take("stop", values::time)?,
        source: match (size, app_rate, chunk) {
            (None, None, None) => Data::Endless,
            (Some(bytes), None, None) => Data::Bytes(bytes),
            (None, Some(bps), None) => Data::Rate(bps),
            (None, Some(bps), Some(bytes)) => Data::Chunks {
                bytes,
                period_ns: (u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(bps)) as u64,
            },
            (Some(_), Some(_), _) => {
                return Err(table.wrong_here("a flow has either size or app-rate, not both"));
            }
            (_, None, Some(_)) => return Err(table.wrong_here("app-chunk needs app-rate")),
        },
        extra_rtt_ns: table.take("extra-rtt", values::time)?.unwrap_or(0),
        acks: AckPolicy {
            every: table
                .take("ack-every", values::per_ack)?
                .unwrap_or(linux.every),
            delay_ns: table
                .take("ack-delay", values::time)?
                .unwrap_or(linux.delay_ns),
            aggregation_ns: table.take("ack-aggregation", values::time)?.unwrap_or(0),
            compression_ns: table
                .take("ack-compression", values::time)?
                .unwrap_or(linux.compression_ns),
        },
        receive_window: table.take("receive-window", values::size)?,
        burst_segments: table
            .take("burst", burst_segments)?
            .unwrap_or(FlowSpec::new("").burst_segments),
        ..FlowSpec::new("")
    };
    // Flows that are not told when start one after the other, over all entries.
    let (first, between) = match (start, stagger) {
        (None, None) => (flows.len() as u64 * STAGGER_NS, STAGGER_NS),
        (start, stagger) => (start.unwrap_or(0), stagger.unwrap_or(0)),
    };
    for number in 0..u64::from(count) {
        let start_ns = first + number * between;
        if spec.stop_ns.is_some_and(|stop| stop <= start_ns) {
            return Err(table.wrong_here("stop must be after the start of every flow"));
        }
        flows.push(FlowSpec {
            start_ns,
            ..spec.clone()
        });
        schemes.push(scheme);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathsim::{Loss, MILLISECOND, QueueLimit};

    const FILE: &str = r#"
duration = "10s"
seed = 7
[path]
steps = [{ at = "0s", rate = "50mbit" }, { at = "5s", rate = "20mbit" }]
rtt-steps = [{ at = "0s", rtt = "40ms" }, { at = "5s", rtt = "80ms" }]
queue = "64kB"
aqm = "codel"
loss = "1%"
loss-burst = 3.0
ack-loss = 0.02
jitter = "3ms"
reorder = true
[[flows]]
scheme = "pk3c"
count = 2
receive-window = "64kB"
[[flows]]
scheme = "udp:5mbit"
start = "1s"
stop = "2s"
extra-rtt = "10ms"
ack-aggregation = "5ms"
[[flows]]
count = 2
start = "3s"
stagger = "1s"
size = "1MB"
"#;

    fn plan(text: &str) -> Result<Plan> {
        let source = Source {
            name: "f.toml",
            text,
        };
        parse(source, Path::new(""), "f").map(|mut plans| plans.remove(0))
    }

    #[test]
    fn a_file_with_everything_is_understood() {
        let plan = plan(FILE).unwrap();
        let scenario = &plan.scenario;
        assert_eq!((scenario.duration_ns, scenario.seed), (10 * SECOND, 7));
        let path = &scenario.path;
        assert_eq!(
            path.rate,
            RateSchedule::Steps(vec![(0, 50_000_000), (5 * SECOND, 20_000_000)])
        );
        assert_eq!(
            (path.rtt_ns, path.route_changes.len()),
            (40 * MILLISECOND, 1)
        );
        assert_eq!(path.queue, QueueLimit::Bytes(64_000));
        assert_eq!(path.discipline, QueueDiscipline::CoDel(CoDel::default()));
        let loss = Loss::Bursts {
            ratio: 0.01,
            mean_length: 3.0,
        };
        assert_eq!((path.loss, path.ack_loss), (loss, Loss::Random(0.02)));
        let udp = Scheme::Udp(5_000_000);
        assert_eq!(
            plan.schemes,
            [
                Some(Scheme::Pk3c),
                Some(Scheme::Pk3c),
                Some(udp),
                None,
                None
            ]
        );
        let flows = &scenario.flows;
        assert_eq!(
            (flows[1].start_ns, flows[1].receive_window),
            (100 * MILLISECOND, Some(64_000))
        );
        assert_eq!(
            (flows[2].start_ns, flows[2].stop_ns),
            (SECOND, Some(2 * SECOND))
        );
        assert_eq!(flows[2].acks.aggregation_ns, 5 * MILLISECOND);
        assert_eq!(
            (flows[4].start_ns, flows[4].source),
            (4 * SECOND, Data::Bytes(1_000_000))
        );
    }

    #[test]
    fn an_error_names_line_key_and_remedy() {
        let cases = [
            (
                "rtt = \"40ms\"",
                "rtt = \"40\"",
                "f.toml:6: key `rtt`",
                "such as 500us",
            ),
            (
                "scheme = \"pk3c\"",
                "scheme = \"bbr\"",
                "f.toml:15: key `scheme` of [[flows]]",
                "write pk3c",
            ),
            (
                "jitter",
                "jiter",
                "f.toml:12: key `jiter` of [path]",
                "did you mean `jitter`?",
            ),
            (
                "queue = \"64kB\"",
                "queue = \"many\"",
                "f.toml:7: key `queue`",
                "0.5bdp",
            ),
            (
                "steps = [{ at = \"0s\", rate",
                "rate = \"1mbit\"\nsteps = [{ at = \"0s\", rate",
                "f.toml:4: [path]",
                "one of the keys rate, steps",
            ),
            (
                "size = \"1MB\"",
                "size = \"1MB\"\napp-rate = \"1mbit\"",
                "f.toml:24: [[flows]]",
                "not both",
            ),
            (
                "at = \"5s\", rtt",
                "at = \"0s\", rtt",
                "f.toml:6: [[rtt-steps]]",
                "ascend",
            ),
            (
                "stop = \"2s\"",
                "stop = \"1s\"",
                "f.toml:18: [[flows]]",
                "after the start",
            ),
            (
                "aqm = \"codel\"",
                "codel-target = \"5ms\"",
                "f.toml:4: [path]",
                "aqm = \"codel\"",
            ),
            (
                "seed = 7",
                "seed = [7]",
                "f.toml:3: key `seed`",
                "write one value",
            ),
            (
                "reorder = true",
                "reorder = true\nrate =",
                "f.toml:14: not TOML",
                "",
            ),
            (
                "loss = \"1%\"",
                "loss = \"90%\"",
                "f.toml:4: [path]",
                "loss-burst",
            ),
            (
                "count = 2",
                "count = 0",
                "f.toml:16: key `count`",
                "1 to 100000",
            ),
        ];
        for (good, bad, place, remedy) in cases {
            assert!(FILE.contains(good), "{good}");
            let said = format!("{:#}", plan(&FILE.replacen(good, bad, 1)).unwrap_err());
            assert!(
                said.starts_with(place) && said.contains(remedy),
                "{bad}: {said}"
            );
        }
    }

    #[test]
    fn several_scenarios_in_a_file_need_ids() {
        let two = "[[scenario]]\nid = \"a\"\npath = { rate = \"1mbit\", rtt = \"1ms\" }\nflows = [{}]\n[[scenario]]\n";
        let source = |text| Source {
            name: "f.toml",
            text,
        };
        let said = format!("{:#}", parse(source(two), Path::new(""), "f").unwrap_err());
        assert!(
            said.starts_with("f.toml:5: [[scenario]]: the key `id`"),
            "{said}"
        );
        let one = two.rsplit_once("[[").unwrap().0;
        assert_eq!(parse(source(one), Path::new(""), "f").unwrap()[0].id, "a");
    }

    /// What can be written is explained, and what is explained can be written.
    #[test]
    fn every_key_is_documented() {
        let text = include_str!("../../../docs/scenarios.md");
        let rows = text
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let documented: Vec<_> = rows.collect();
        for key in [SCENARIO_KEYS, PATH_KEYS, FLOW_KEYS].concat() {
            assert!(
                documented.contains(&key),
                "{key} is not in docs/scenarios.md"
            );
        }
    }

    #[test]
    fn the_scenarios_that_come_along_are_understood() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        assert!(super::super::read_all(&[folder]).unwrap().len() >= 30);
    }
}
