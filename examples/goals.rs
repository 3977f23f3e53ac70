//! The performance goals, judged in the simulator: runs the scenarios of a file under PK3C and under Cubic, and prints
//! every goal with its figure and its line, then what each family kept.
//!
//! ```text
//! cargo run --release --example goals -- [--program FILE] [--scenarios FILE] [--seeds N] [--only WORD] [--missed] [-- OPTION…]
//! ```
//!
//! A family is the part of a scenario's id before the first `-`, and says which goals hold. Figures are medians over the
//! seeds. Options after `--` go to `pk3c-ccp sim`, such as `--no-handbrake loss`. The simulator knows no BBR: goals against
//! the better of Cubic and BBR are judged against Cubic alone. "No more than Cubic loses" allows ten packets always.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Packets that may always be lost, whatever Cubic loses.
const FREE_LOSSES: f64 = 10.0;
const BIN_S: f64 = 0.1;

struct Options {
    program: PathBuf,
    scenarios: PathBuf,
    seeds: u32,
    only: String,
    missed: bool,
    passed_on: Vec<String>,
}

fn options() -> Result<Options> {
    let mut options = Options {
        program: "target/release/pk3c-ccp".into(),
        scenarios: "scenarios/goals.toml".into(),
        seeds: 5,
        only: String::new(),
        missed: false,
        passed_on: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--program" => options.program = value()?.into(),
            "--scenarios" => options.scenarios = value()?.into(),
            "--seeds" => options.seeds = value()?.parse().context("--seeds needs a number")?,
            "--only" => options.only = value()?,
            "--missed" => options.missed = true,
            "--" => options.passed_on = arguments.by_ref().collect(),
            other => bail!("unknown option {other}; see the head of examples/goals.rs"),
        }
    }
    Ok(options)
}

/// What the file says of a scenario, as far as goals depend on it.
struct Scenario {
    id: String,
    rtt_s: f64,
    loss: f64,
    /// Rates over time, Mbit/s; and the change of the RTT, if any.
    rates: Vec<f64>,
    longer_rtt_s: Option<f64>,
    flows: usize,
    /// When the last flow starts, s.
    last_start_s: f64,
    duration_s: f64,
}

impl Scenario {
    fn bdp_pkts(&self) -> f64 {
        self.rates[0] * 1e6 * self.rtt_s / 12_000.0
    }
}

/// `40ms`, `200us`, `2s` in seconds; `50mbit`, `64kbit` in Mbit/s; `1%` as a ratio.
fn number(text: &str) -> Result<f64> {
    let units = [
        ("mbit", 1.0),
        ("kbit", 1e-3),
        ("gbit", 1e3),
        ("ms", 1e-3),
        ("us", 1e-6),
        ("s", 1.0),
        ("%", 0.01),
    ];
    let (digits, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1.0));
    let value: f64 = digits
        .parse()
        .with_context(|| format!("{text}: no number"))?;
    Ok(value * factor)
}

fn scenarios(options: &Options) -> Result<Vec<Scenario>> {
    let text = std::fs::read_to_string(&options.scenarios)
        .with_context(|| format!("cannot read {}", options.scenarios.display()))?;
    let file: toml::Table = toml::from_str(&text)?;
    let list = file.get("scenario").and_then(toml::Value::as_array);
    list.context("the file has no [[scenario]]")?
        .iter()
        .map(|entry| read(entry).with_context(|| format!("scenario {:?}", entry.get("id"))))
        .filter(|scenario| {
            scenario
                .as_ref()
                .map_or(true, |it| it.id.contains(&options.only))
        })
        .collect()
}

fn read(entry: &toml::Value) -> Result<Scenario> {
    let text = |table: &toml::Value, key: &str| Some(table.get(key)?.as_str()?.to_owned());
    let path = entry.get("path").context("no path")?;
    let steps = |key: &str, value: &str| -> Result<Vec<f64>> {
        let list = path.get(key).and_then(toml::Value::as_array);
        let list = list.into_iter().flatten();
        list.map(|step| number(&text(step, value).context("a step without its value")?))
            .collect()
    };
    let constant = |key: &str| text(path, key).map(|value| number(&value)).transpose();
    let mut rates = steps("steps", "rate")?;
    rates.extend(constant("rate")?);
    let rtts = steps("rtt-steps", "rtt")?;
    let rtt_s = match constant("rtt")? {
        Some(rtt) => rtt,
        None => *rtts.first().context("no rtt")?,
    };
    let (mut flows, mut last_start_s) = (0, 0.0_f64);
    for flow in entry
        .get("flows")
        .and_then(toml::Value::as_array)
        .context("no flows")?
    {
        let count = flow
            .get("count")
            .and_then(toml::Value::as_integer)
            .unwrap_or(1) as usize;
        let time = |key: &str| text(flow, key).map_or(Ok(0.0), |value| number(&value));
        last_start_s = last_start_s.max(time("start")? + time("stagger")? * (count - 1) as f64);
        flows += count;
    }
    Ok(Scenario {
        id: text(entry, "id").context("no id")?,
        rtt_s,
        loss: constant("loss")?.unwrap_or(0.0),
        rates,
        longer_rtt_s: rtts.get(1).copied(),
        flows,
        last_start_s,
        duration_s: constant_of(entry, "duration")?.unwrap_or(30.0),
    })
}

fn constant_of(table: &toml::Value, key: &str) -> Result<Option<f64>> {
    table
        .get(key)
        .and_then(toml::Value::as_str)
        .map(number)
        .transpose()
}

/// All runs of one scenario under one scheme.
struct Outcome(Vec<Value>);

impl Outcome {
    fn simulate(options: &Options, scenario: &Scenario, scheme: &str) -> Result<Self> {
        let output = Command::new(&options.program)
            .args([
                "sim",
                "--json",
                "--series",
                "--jobs",
                "1",
                "--cc",
                scheme,
                "--only",
                &scenario.id,
            ])
            .args(["--seeds", &options.seeds.to_string(), "--scenario"])
            .arg(&options.scenarios)
            .args(&options.passed_on)
            .output()
            .with_context(|| format!("cannot run {}", options.program.display()))?;
        if !output.status.success() {
            bail!(
                "{}: {}",
                scenario.id,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let mut result: Value = serde_json::from_slice(&output.stdout)?;
        let Value::Array(runs) = result["runs"].take() else {
            bail!("{}: no runs in the result", scenario.id)
        };
        Ok(Self(runs))
    }

    /// Median over the runs.
    fn median(&self, figure: impl Fn(&Value) -> f64) -> f64 {
        let mut values: Vec<f64> = self.0.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        }
    }

    fn field(&self, name: &str) -> f64 {
        self.median(|run| run[name].as_f64().unwrap_or(f64::NAN))
    }

    fn lost_pkts(&self) -> f64 {
        self.median(|run| {
            each_flow(run, |flow| flow["retransmissions"].as_f64().unwrap_or(0.0)).sum()
        })
    }

    fn sent_pkts(&self) -> f64 {
        self.median(|run| each_flow(run, |flow| flow["packets_sent"].as_f64().unwrap_or(0.0)).sum())
    }

    /// Loss that is allowed where Cubic's is: a ratio of our packets.
    fn allowed(&self, own: &Self, factor: f64) -> f64 {
        self.field("loss").max(FREE_LOSSES / own.sent_pkts()) * factor
    }
}

fn each_flow<'a>(
    run: &'a Value,
    figure: impl Fn(&Value) -> f64 + 'a,
) -> impl Iterator<Item = f64> + 'a {
    run["flows"].as_array().into_iter().flatten().map(figure)
}

/// Goodput of a flow in each bin, Mbit/s.
fn goodputs(flow: &Value) -> Vec<f64> {
    let bins = flow["series"].as_array().into_iter().flatten();
    bins.map(|bin| bin["goodput_mbps"].as_f64().unwrap_or(0.0))
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn bins(from_s: f64, to_s: f64) -> std::ops::Range<usize> {
    (from_s / BIN_S).round() as usize..(to_s / BIN_S).round() as usize
}

fn between(values: &[f64], from_s: f64, to_s: f64) -> &[f64] {
    let range = bins(from_s, to_s);
    values
        .get(range.start..range.end.min(values.len()))
        .unwrap_or(&[])
}

#[derive(Clone, Copy)]
enum Line {
    AtLeast(f64),
    AtMost(f64),
    Between(f64, f64),
}

struct Goal {
    what: &'static str,
    figure: f64,
    cubic: f64,
    line: Line,
}

impl Goal {
    fn kept(&self) -> bool {
        match self.line {
            Line::AtLeast(least) => self.figure >= least,
            Line::AtMost(most) => self.figure <= most,
            Line::Between(least, most) => (least..=most).contains(&self.figure),
        }
    }

    fn line(&self) -> String {
        match self.line {
            Line::AtLeast(least) => format!(">= {}", short(least)),
            Line::AtMost(most) => format!("<= {}", short(most)),
            Line::Between(least, most) => format!("{least} to {most}"),
        }
    }
}

fn short(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else if value != 0.0 && value.abs() < 0.02 {
        format!("{value:.5}")
    } else {
        format!("{value:.3}")
    }
}

/// The goals of the scenario's family.
fn goals(scenario: &Scenario, own: &Outcome, cubic: &Outcome) -> Result<Vec<Goal>> {
    use Line::{AtLeast, AtMost, Between};
    let family = scenario.id.split('-').next().unwrap_or_default();
    let goal = |what, figure: &dyn Fn(&Outcome) -> f64, line| Goal {
        what,
        figure: figure(own),
        cubic: figure(cubic),
        line,
    };
    let of_use = |least| goal("use", &|it| it.field("share"), AtLeast(least));
    let loss = |most| goal("loss", &|it| it.field("loss"), AtMost(most));
    let jain = |least| goal("Jain", &|it| it.field("jain"), AtLeast(least));
    let p95 = |most| goal("RTT p95, ms", &|it| it.field("rtt_p95_ms"), AtMost(most));
    let rtt_ms = scenario.rtt_s * 1e3;
    let rate = scenario.rates[0];
    Ok(match family {
        "clean" => vec![
            of_use(0.97),
            p95(rtt_ms + (0.1 * rtt_ms).max(3.0)),
            loss(cubic.allowed(own, 1.0 / 3.0)),
        ],
        "loss" => {
            let table = [(0.001, 0.97), (0.02, 0.96), (0.05, 0.95), (1.0, 0.93)];
            let least = table.iter().find(|(loss, _)| scenario.loss <= *loss);
            let path_lost = own.sent_pkts() * scenario.loss;
            vec![
                of_use(least.map_or(0.93, |(_, least)| *least)),
                goal(
                    "retransmissions",
                    &Outcome::lost_pkts,
                    AtMost(1.2 * path_lost),
                ),
            ]
        }
        "shallow1" => vec![of_use(if rate >= 200.0 { 0.90 } else { 0.95 }), loss(0.01)],
        "shallow6" => vec![of_use(0.96), jain(0.95)],
        "deep" => vec![of_use(0.97), p95(rtt_ms + (0.25 * rtt_ms).max(5.0))],
        "many" => {
            let least = match scenario.flows {
                ..20 => 0.97,
                20..=50 => 0.95,
                _ => 0.93,
            };
            vec![of_use(0.97), jain(least), loss(cubic.allowed(own, 1.0))]
        }
        "staggered" => vec![jain(0.95)],
        "newcomer" => vec![goal(
            "share after 4 to 5 s",
            &|it| newcomer(it, scenario),
            AtLeast(0.7),
        )],
        "coexist" => vec![goal("own share", &own_share, Between(0.40, 0.57))],
        "rtts" => vec![goal(
            "highest over lowest",
            &|it| it.median(spread),
            AtMost(2.0),
        )],
        "start" => {
            let seconds =
                |it: &Outcome| it.median(|run| each_flow(run, completion).fold(0.0, f64::max));
            let queue = |it: &Outcome| it.field("queue_peak_packets") / scenario.bdp_pkts();
            vec![
                goal("seconds", &seconds, AtMost(0.95 * seconds(cubic))),
                goal("peak queue, BDP", &queue, AtMost(1.5)),
                loss(0.01),
            ]
        }
        "change" => changes(scenario, own, cubic),
        "low" => vec![of_use(0.92), p95(0.5 * cubic.field("rtt_p95_ms"))],
        "near" => vec![of_use(0.95), loss(0.001)],
        "jitter" => vec![of_use(if scenario.id.contains("50ms") {
            0.80
        } else {
            0.85
        })],
        "satellite" => {
            let start = |it: &Outcome| {
                it.median(|run| filled_s(run, 0.8 * payload(rate) * (1.0 - scenario.loss)))
            };
            vec![
                goal(
                    "use after the start",
                    &|it| it.field("share_second_half"),
                    AtLeast(0.9),
                ),
                goal("start, s", &start, AtMost(start(cubic))),
            ]
        }
        "video" => {
            let least = if rate > 105.0 { 4.5 } else { 4.2 };
            vec![goal(
                "worst second, Mbit/s",
                &|it| worst_second(it, scenario),
                AtLeast(least),
            )]
        }
        other => bail!("no goals for the family {other}"),
    })
}

fn payload(rate: f64) -> f64 {
    rate * 1448.0 / 1500.0
}

fn completion(flow: &Value) -> f64 {
    flow["completion_s"].as_f64().unwrap_or(f64::INFINITY)
}

/// Part of its fair share that the last flow has in the fifth second of its life.
fn newcomer(it: &Outcome, scenario: &Scenario) -> f64 {
    let fair = payload(scenario.rates[0]) / scenario.flows as f64;
    let from = scenario.last_start_s + 4.0;
    it.median(|run| {
        let flows = run["flows"].as_array().map_or(&[][..], Vec::as_slice);
        flows.last().map_or(0.0, |flow| {
            mean(between(&goodputs(flow), from, from + 1.0)) / fair
        })
    })
}

/// Part of the flows under test of all goodput in the second half: the first half of the flows are those under test.
fn own_share(it: &Outcome) -> f64 {
    it.median(|run| {
        let all: Vec<f64> = each_flow(run, |flow| {
            flow["goodput_second_half_mbps"].as_f64().unwrap_or(0.0)
        })
        .collect();
        all[..all.len() / 2].iter().sum::<f64>() / all.iter().sum::<f64>()
    })
}

fn spread(run: &Value) -> f64 {
    let all = each_flow(run, |flow| {
        flow["goodput_second_half_mbps"].as_f64().unwrap_or(0.0)
    });
    let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    high / low
}

/// End of the first bin in which the first flow reaches this goodput, s.
fn filled_s(run: &Value, least: f64) -> f64 {
    let flow = run["flows"].get(0).map(goodputs).unwrap_or_default();
    flow.iter()
        .position(|rate| *rate >= least)
        .map_or(f64::INFINITY, |bin| (bin + 1) as f64 * BIN_S)
}

fn worst_second(it: &Outcome, scenario: &Scenario) -> f64 {
    let first = (scenario.last_start_s + 5.0).ceil() as u32;
    it.median(|run| {
        each_flow(run, |flow| {
            let series = goodputs(flow);
            let seconds = (first..scenario.duration_s as u32).map(f64::from);
            seconds
                .map(|from| mean(between(&series, from, from + 1.0)))
                .fold(f64::INFINITY, f64::min)
        })
        .fold(f64::INFINITY, f64::min)
    })
}

/// After a change at half time: RTTs until 80 % of a higher rate, or until the queue of a lower one or of a longer route is
/// gone.
fn changes(scenario: &Scenario, own: &Outcome, cubic: &Outcome) -> Vec<Goal> {
    let change = bins(0.0, scenario.duration_s / 2.0).end;
    let rtt_s = scenario.longer_rtt_s.unwrap_or(scenario.rtt_s);
    let after = |run: &Value, done: &dyn Fn(usize) -> bool| {
        let last = run["link_series"].as_array().map_or(0, Vec::len);
        let bin = (change..last).find(|bin| done(*bin));
        bin.map_or(f64::INFINITY, |bin| {
            (bin + 1 - change) as f64 * BIN_S / rtt_s
        })
    };
    let to = *scenario.rates.last().unwrap_or(&0.0);
    let goal = |what, figure: &dyn Fn(&Value) -> f64, most: f64| Goal {
        what,
        figure: own.median(figure),
        cubic: cubic.median(figure),
        // A bin's width beside the goal: what ends within a bin counts as ending with it.
        line: Line::AtMost(most + BIN_S / rtt_s),
    };
    let reached = |run: &Value| {
        let flow = run["flows"].get(0).map(goodputs).unwrap_or_default();
        after(run, &|bin| {
            flow.get(bin).is_some_and(|rate| *rate >= 0.8 * payload(to))
        })
    };
    let drained = |run: &Value| {
        let small = (0.25 * to * 1e6 * rtt_s / 12_000.0).max(10.0);
        let queue = |bin: usize| {
            run["link_series"][bin]["queue_packets"]
                .as_f64()
                .unwrap_or(0.0)
        };
        // The bin of the change may be empty still.
        after(run, &|bin| bin > change && queue(bin) <= small)
    };
    if scenario.longer_rtt_s.is_some() {
        let settled = |run: &Value| {
            let flow = run["flows"].get(0).map(goodputs).unwrap_or_default();
            let from = (change as f64) * BIN_S;
            mean(between(&flow, from + 1.0, from + 10.0)) / payload(to)
        };
        vec![Goal {
            what: "use, 1 to 10 s after",
            figure: own.median(settled),
            cubic: cubic.median(settled),
            line: Line::AtLeast(0.9),
        }]
    } else if to > scenario.rates[0] {
        vec![goal("RTTs to 80 %", &reached, 10.0)]
    } else {
        vec![goal("RTTs to drain", &drained, 8.0)]
    }
}

fn main() -> Result<()> {
    let options = options()?;
    let list = scenarios(&options)?;
    let next = AtomicUsize::new(0);
    let judged: Mutex<BTreeMap<usize, Result<Vec<Goal>>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = list.get(index) else {
                        break;
                    };
                    let outcome = Outcome::simulate(&options, scenario, "pk3c").and_then(|own| {
                        goals(
                            scenario,
                            &own,
                            &Outcome::simulate(&options, scenario, "cubic")?,
                        )
                    });
                    if let Ok(mut judged) = judged.lock() {
                        judged.insert(index, outcome);
                    }
                }
            });
        }
    });
    let judged = judged.into_inner().ok().context("a thread has panicked")?;
    println!("| scenario | goal | pk3c | line | cubic | |\n|---|---|---|---|---|---|");
    let mut families: Vec<(String, usize, usize)> = Vec::new();
    for (index, goals) in judged {
        let id = &list[index].id;
        let family = id.split('-').next().unwrap_or_default().to_owned();
        if families.last().is_none_or(|(last, ..)| *last != family) {
            families.push((family, 0, 0));
        }
        for goal in goals? {
            let kept = goal.kept();
            if let Some((_, kept_so_far, all)) = families.last_mut() {
                *kept_so_far += usize::from(kept);
                *all += 1;
            }
            if !(kept && options.missed) {
                println!(
                    "| `{id}` | {} | {} | {} | {} | {} |",
                    goal.what,
                    short(goal.figure),
                    goal.line(),
                    short(goal.cubic),
                    if kept { "" } else { "missed" }
                );
            }
        }
    }
    println!("\n| family | goals | kept |\n|---|---|---|");
    for (family, kept, all) in &families {
        println!("| {family} | {all} | {kept} |");
    }
    let (kept, all) = families
        .iter()
        .fold((0, 0), |(k, a), (_, kept, all)| (k + kept, a + all));
    println!("| all | {all} | {kept} |");
    Ok(())
}
