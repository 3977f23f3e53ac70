//! What to simulate, from flags or from a TOML file.
//!
//! Values are text in the units people type. An error of a file names the file, the line, the key and what is possible.

use anyhow::{Context, Result, anyhow};
use pathsim::{
    AckPolicy, FlowSpec, Jitter, Loss, PathSpec, QueueLimit, RateSchedule, Scenario, Source, Trace,
    Transport,
};
use pk3c_ccp::units::{Micros, Rate, Ratio};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

const DURATION: Micros = Micros::from_millis(30_000);
const SEED: u64 = 1;
/// Flows of one entry.
const MAX_COUNT: u32 = 100_000;
/// Between the starts of flows that are not told when.
const STAGGER: Micros = Micros::from_millis(100);

/// A scenario, and what drives its flows.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    /// One for each flow.
    pub(super) schemes: Vec<Scheme>,
    pub(super) agent_latency: Micros,
}

/// What drives a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scheme {
    Pk3c,
    Cubic,
    Reno,
    Udp(Rate),
}

impl FromStr for Scheme {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "pk3c" => Ok(Self::Pk3c),
            None if text == "cubic" => Ok(Self::Cubic),
            None if text == "reno" => Ok(Self::Reno),
            Some(("udp", rate)) => Ok(Self::Udp(rate.parse().map_err(|e| format!("udp: {e}"))?)),
            _ => Err(format!(
                "`{text}` is not a scheme: write pk3c, cubic, reno, or udp with its rate as in udp:5mbit"
            )),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pk3c => f.write_str("pk3c"),
            Self::Cubic => f.write_str("cubic"),
            Self::Reno => f.write_str("reno"),
            Self::Udp(rate) => write!(f, "udp:{rate}"),
        }
    }
}

/// `pk3c*2,cubic`.
#[derive(Clone, Debug)]
pub(super) struct Flows(Vec<Scheme>);

impl FromStr for Flows {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut flows = Vec::new();
        for part in text.split(',') {
            let (scheme, count) = part.split_once('*').unwrap_or((part, "1"));
            let count = count
                .trim()
                .parse::<u32>()
                .ok()
                .filter(|count| (1..=MAX_COUNT).contains(count));
            let count = count.ok_or_else(|| {
                format!("`{part}`: the number of flows must be 1 to 100000, as in pk3c*2")
            })?;
            let scheme: Scheme = scheme.trim().parse()?;
            flows.extend((0..count).map(|_| scheme));
        }
        Ok(Self(flows))
    }
}

/// The size of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queue {
    Packets(u32),
    Bytes(u64),
    Products(f64),
}

impl FromStr for Queue {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |unit: &str| {
            text.strip_suffix(unit)?
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|n| *n > 0.0 && *n < 1e9)
        };
        if let Some(products) = number("bdp") {
            return Ok(Self::Products(products));
        }
        if let Ok(packets) = text.trim().parse() {
            return Ok(Self::Packets(packets));
        }
        let bytes = bytes(text).map(Self::Bytes);
        bytes.ok_or_else(|| format!("`{text}` is not a queue: write packets as in 100, bytes as in 64kB, or bandwidth-delay products as in 0.5bdp"))
    }
}

fn bytes(text: &str) -> Option<u64> {
    let units = [("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("B", 1.0)];
    let (number, factor) = units
        .into_iter()
        .find_map(|(unit, factor)| Some((text.trim().strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number > 0.0 && number * factor < 1e15).then_some((number * factor).round() as u64)
}

/// An amount of data: `1MB`.
#[derive(Clone, Copy, Debug)]
struct Size(u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        bytes(text).map(Self).ok_or_else(|| {
            format!("`{text}` is not a size: write a number with B, kB, MB or GB, as in 1MB")
        })
    }
}

pub(super) fn nanos(time: Micros) -> u64 {
    time.us().saturating_mul(1000)
}

fn bits(rate: Rate) -> u64 {
    (rate.bytes_per_sec() * 8.0).round() as u64
}

/// A scenario's parts from flags.
pub(super) struct Parts<'a> {
    pub(super) rate: Rate,
    pub(super) trace: Option<&'a Path>,
    pub(super) rtt: Micros,
    pub(super) queue: Queue,
    pub(super) loss: Ratio,
    pub(super) loss_burst: Option<f64>,
    pub(super) jitter: Micros,
    pub(super) reorder: bool,
    pub(super) flows: &'a Flows,
    pub(super) agent_latency: Micros,
}

pub(super) fn plan(parts: Parts<'_>) -> Result<Plan> {
    let rate = match parts.trace {
        Some(file) => read_trace(file)?,
        None => RateSchedule::Constant(bits(parts.rate)),
    };
    let mut path = PathSpec {
        rate,
        rtt_ns: nanos(parts.rtt),
        queue: QueueLimit::Packets(1),
        loss: loss(parts.loss, parts.loss_burst),
        jitter: Jitter {
            max_ns: nanos(parts.jitter),
            reorder: parts.reorder,
        },
    };
    path.queue = limit(parts.queue, &path);
    let flows = parts
        .flows
        .0
        .iter()
        .zip(0u64..)
        .map(|(scheme, number)| FlowSpec {
            start_ns: number * nanos(STAGGER),
            transport: transport(*scheme),
            ..FlowSpec::new(&scheme.to_string())
        });
    Ok(Plan {
        scenario: Scenario {
            path,
            flows: flows.collect(),
            duration_ns: nanos(DURATION),
            seed: SEED,
            series: false,
        },
        schemes: parts.flows.0.clone(),
        agent_latency: parts.agent_latency,
    })
}

fn loss(ratio: Ratio, burst: Option<f64>) -> Loss {
    match burst {
        _ if ratio.get() == 0.0 => Loss::None,
        Some(mean_length) => Loss::Bursts {
            ratio: ratio.get(),
            mean_length,
        },
        None => Loss::Random(ratio.get()),
    }
}

fn limit(queue: Queue, path: &PathSpec) -> QueueLimit {
    match queue {
        Queue::Packets(packets) => QueueLimit::Packets(packets),
        Queue::Bytes(bytes) => QueueLimit::Bytes(bytes),
        Queue::Products(products) => QueueLimit::Packets(path.bdp_packets(products)),
    }
}

fn transport(scheme: Scheme) -> Transport {
    match scheme {
        Scheme::Udp(_) => Transport::Udp,
        Scheme::Pk3c | Scheme::Cubic | Scheme::Reno => Transport::Tcp,
    }
}

fn read_trace(file: &Path) -> Result<RateSchedule> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the trace {}", file.display()))?;
    let trace = Trace::parse(&text).with_context(|| file.display().to_string())?;
    Ok(RateSchedule::Trace(Arc::new(trace)))
}

/// A value that is written as text in the file.
#[derive(Clone, Copy, Debug)]
struct Typed<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Typed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ScenarioFile {
    duration: Option<Typed<Micros>>,
    seed: Option<u64>,
    agent_latency: Option<Typed<Micros>>,
    path: PathTable,
    flows: Vec<FlowTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PathTable {
    rate: Option<Typed<Rate>>,
    steps: Option<Vec<StepTable>>,
    trace: Option<String>,
    rtt: Typed<Micros>,
    queue: Option<Typed<Queue>>,
    loss: Option<Typed<Ratio>>,
    loss_burst: Option<f64>,
    jitter: Option<Typed<Micros>>,
    #[serde(default)]
    reorder: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    at: Typed<Micros>,
    rate: Typed<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FlowTable {
    scheme: Typed<Scheme>,
    count: Option<u32>,
    start: Option<Typed<Micros>>,
    stop: Option<Typed<Micros>>,
    extra_rtt: Option<Typed<Micros>>,
    size: Option<Typed<Size>>,
    app_rate: Option<Typed<Rate>>,
    ack_every: Option<u32>,
    ack_delay: Option<Typed<Micros>>,
    ack_aggregation: Option<Typed<Micros>>,
}

/// Reads a scenario file.
pub(super) fn read(file: &Path) -> Result<Plan> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the scenario {}", file.display()))?;
    parse(&text, file.parent()).with_context(|| format!("scenario {}", file.display()))
}

/// `folder` is where a trace without a full path is looked for.
fn parse(text: &str, folder: Option<&Path>) -> Result<Plan> {
    // The error shows line, column and the text there.
    let file: ScenarioFile = toml::from_str(text).map_err(|error| anyhow!("{error}"))?;
    let rate = match (&file.path.rate, &file.path.steps, &file.path.trace) {
        (Some(rate), None, None) => RateSchedule::Constant(bits(rate.0)),
        (None, Some(steps), None) => {
            let steps = steps
                .iter()
                .map(|step| (nanos(step.at.0), bits(step.rate.0)));
            RateSchedule::Steps(steps.collect())
        }
        (None, None, Some(trace)) => read_trace(&folder.unwrap_or(Path::new("")).join(trace))?,
        _ => {
            return Err(at_table(
                text,
                "[path]",
                "give one of the keys rate, steps and trace",
            ));
        }
    };
    let mut path = PathSpec {
        rate,
        rtt_ns: nanos(file.path.rtt.0),
        queue: QueueLimit::Packets(1),
        loss: loss(
            file.path.loss.map_or(Ratio::default(), |loss| loss.0),
            file.path.loss_burst,
        ),
        jitter: Jitter {
            max_ns: file.path.jitter.map_or(0, |jitter| nanos(jitter.0)),
            reorder: file.path.reorder,
        },
    };
    path.queue = limit(
        file.path
            .queue
            .map_or(Queue::Products(1.0), |queue| queue.0),
        &path,
    );
    let (mut flows, mut schemes) = (Vec::new(), Vec::new());
    for table in &file.flows {
        let spec = flow(table).ok_or_else(|| {
            at_table(
                text,
                "[[flows]]",
                "a flow has either size or app-rate, not both",
            )
        })?;
        let count = table.count.unwrap_or(1);
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(at_table(
                text,
                "[[flows]]",
                &format!("count is {count}: must be 1 to {MAX_COUNT}"),
            ));
        }
        for _ in 0..count {
            let staggered = flows.len() as u64 * nanos(STAGGER);
            let start_ns = table.start.map_or(staggered, |start| nanos(start.0));
            flows.push(FlowSpec {
                start_ns,
                ..spec.clone()
            });
            schemes.push(table.scheme.0);
        }
    }
    Ok(Plan {
        scenario: Scenario {
            path,
            flows,
            duration_ns: nanos(file.duration.map_or(DURATION, |duration| duration.0)),
            seed: file.seed.unwrap_or(SEED),
            series: false,
        },
        schemes,
        agent_latency: file
            .agent_latency
            .map_or(Micros::new(100), |latency| latency.0),
    })
}

/// `None` if it is told twice what to send.
fn flow(table: &FlowTable) -> Option<FlowSpec> {
    let source = match (table.size, table.app_rate) {
        (None, None) => Source::Endless,
        (Some(size), None) => Source::Bytes(size.0.0),
        (None, Some(rate)) => Source::Rate(bits(rate.0)),
        (Some(_), Some(_)) => return None,
    };
    let linux = AckPolicy::default();
    Some(FlowSpec {
        stop_ns: table.stop.map(|stop| nanos(stop.0)),
        transport: transport(table.scheme.0),
        source,
        extra_rtt_ns: table.extra_rtt.map_or(0, |rtt| nanos(rtt.0)),
        acks: AckPolicy {
            every: table.ack_every.unwrap_or(linux.every),
            delay_ns: table
                .ack_delay
                .map_or(linux.delay_ns, |delay| nanos(delay.0)),
            aggregation_ns: table.ack_aggregation.map_or(0, |time| nanos(time.0)),
        },
        ..FlowSpec::new(&table.scheme.0.to_string())
    })
}

/// What is wrong with a table as a whole, with the line on which it begins.
fn at_table(text: &str, table: &str, remedy: &str) -> anyhow::Error {
    let line = text
        .lines()
        .position(|line| line.trim_start().starts_with(table));
    match line {
        Some(line) => anyhow!("line {}, {table}: {remedy}", line + 1),
        None => anyhow!("{table}: {remedy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathsim::{MILLISECOND, SECOND};

    const FILE: &str = r#"
duration = "10s"
seed = 7
[path]
steps = [{ at = "0s", rate = "50mbit" }, { at = "5s", rate = "20mbit" }]
rtt = "40ms"
queue = "64kB"
loss = "1%"
loss-burst = 3.0
jitter = "3ms"
reorder = true
[[flows]]
scheme = "pk3c"
count = 2
[[flows]]
scheme = "udp:5mbit"
start = "1s"
stop = "2s"
extra-rtt = "10ms"
ack-aggregation = "5ms"
"#;

    #[test]
    fn a_file_with_everything_is_understood() {
        let plan = parse(FILE, None).unwrap();
        let scenario = &plan.scenario;
        assert_eq!((scenario.duration_ns, scenario.seed), (10 * SECOND, 7));
        assert_eq!(
            scenario.path.rate,
            RateSchedule::Steps(vec![(0, 50_000_000), (5 * SECOND, 20_000_000)])
        );
        assert_eq!(scenario.path.queue, QueueLimit::Bytes(64_000));
        assert_eq!(
            scenario.path.loss,
            Loss::Bursts {
                ratio: 0.01,
                mean_length: 3.0
            }
        );
        assert_eq!(
            plan.schemes,
            [
                Scheme::Pk3c,
                Scheme::Pk3c,
                Scheme::Udp(Rate::from_mbit(5.0))
            ]
        );
        let udp = &scenario.flows[2];
        assert_eq!((udp.start_ns, udp.stop_ns), (SECOND, Some(2 * SECOND)));
        assert_eq!(udp.transport, Transport::Udp);
        assert_eq!(udp.acks.aggregation_ns, 5 * MILLISECOND);
        assert_eq!(scenario.flows[1].start_ns, 100 * MILLISECOND);
    }

    #[test]
    fn an_error_names_line_key_and_remedy() {
        let cases = [
            (
                "rtt = \"40ms\"",
                "rtt = \"40\"",
                ["line 6", "rtt", "such as 500us or 10s"],
            ),
            (
                "scheme = \"pk3c\"",
                "scheme = \"bbr\"",
                ["line 13", "scheme", "write pk3c, cubic"],
            ),
            ("jitter", "jiter", ["line 10", "jiter", "expected one of"]),
            (
                "queue = \"64kB\"",
                "queue = \"many\"",
                ["line 7", "queue", "0.5bdp"],
            ),
            (
                "steps",
                "rate = \"1mbit\"\nsteps",
                ["line 4", "[path]", "one of the keys rate, steps"],
            ),
            (
                "stop = \"2s\"",
                "size = \"1MB\"\napp-rate = \"1mbit\"",
                ["line 12", "[[flows]]", "not both"],
            ),
            ("rtt = \"40ms\"", "", ["line 4", "rtt", "missing field"]),
        ];
        for (good, bad, expected) in cases {
            assert!(FILE.contains(good));
            let error = format!(
                "{:#}",
                parse(&FILE.replacen(good, bad, 1), None).unwrap_err()
            );
            for part in expected {
                assert!(error.contains(part), "{bad}: {part} is not in: {error}");
            }
        }
    }

    #[test]
    fn flows_are_counted() {
        let flows: Flows = "pk3c*2, cubic,udp:5mbit".parse().unwrap();
        assert_eq!(flows.0.len(), 4);
        for bad in ["", "pk3c*0", "vegas", "udp:fast", "pk3c*2*2"] {
            assert!(bad.parse::<Flows>().is_err(), "{bad}");
        }
    }
}
