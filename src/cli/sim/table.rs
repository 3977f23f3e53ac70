//! `pk3c-ccp sim table`: schemes beside each other over many scenarios and seeds.

use super::runs::{self, Job, Keep, Outcome};
use crate::cli::params::ParamArgs;
use crate::cli::scenario::{self, Measure, Plan, Scheme};
use crate::cli::show;
use anyhow::{Result, bail};
use pathsim::{FlowResult, MSS, Results, SECOND, WIRE, jain};
use serde::Serialize;
use std::fmt::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;

/// What counts as the start of a run, in bins of 100 ms.
const START_BINS: usize = 20;
const BIN_S: f64 = 0.1;
/// A mean of use over a wider range than this is shown with its range.
const WIDE: f64 = 0.05;
/// A path counts as filled at this part of what it can carry.
const FILLED: f64 = 0.8;

/// Options of `pk3c-ccp sim table`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct TableArgs {
    /// Scenario files, or folders of them
    #[arg(value_name = "FILE|FOLDER", required = true)]
    scenarios: Vec<PathBuf>,
    /// Only these scenarios
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Schemes for the flows that name none
    #[arg(
        long,
        value_name = "SCHEME,...",
        value_delimiter = ',',
        default_value = "cubic,bbr,upstream,vivace,pk3c"
    )]
    cc: Vec<Scheme>,
    /// Runs of each scenario and scheme, with seeds from the scenario's on; cells are means
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Runs at the same time [default: one per core]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<NonZero<usize>>,
    /// Print one JSON object instead of Markdown
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    params: ParamArgs,
}

const EXAMPLES: &str = "\
Examples:
  pk3c-ccp sim table scenarios/comparison.toml
  pk3c-ccp sim table scenarios --only loss1,shallow --cc cubic,pk3c --seeds 2
  pk3c-ccp sim table my.toml --cc pk3c --no-handbrake queue --json
Where it is installed, scenarios/ is in /usr/share/doc/pk3c-ccp.
The same scenarios, schemes, seeds and parameters give the same table on every machine.";

pub(super) fn run(args: &TableArgs) -> Result<()> {
    let mut plans = scenario::read_all(&args.scenarios)?;
    if let Some(unknown) = args
        .only
        .iter()
        .find(|only| plans.iter().all(|plan| plan.id != **only))
    {
        let ids: Vec<_> = plans.iter().map(|plan| plan.id.as_str()).collect();
        bail!(
            "there is no scenario `{unknown}`; there are {}",
            ids.join(", ")
        );
    }
    plans.retain(|plan| args.only.is_empty() || args.only.contains(&plan.id));
    let jobs: Vec<_> = plans
        .iter()
        .flat_map(|plan| args.cc.iter().map(move |scheme| (plan, scheme)))
        .flat_map(|(plan, scheme)| (0..args.seeds).map(move |number| (plan, scheme, number)))
        .map(|(plan, scheme, number)| Job {
            plan,
            scheme: scheme.clone(),
            seed: plan.scenario.seed.wrapping_add(number),
        })
        .collect();
    let keep = Keep {
        series: true,
        decisions: 0,
    };
    let runs = runs::carry_out(&jobs, &args.params.0, keep, args.jobs, Measures::of)?;
    let rows = jobs
        .chunks(args.seeds as usize)
        .zip(runs.chunks(args.seeds as usize));
    let rows = rows.filter_map(|(jobs, runs)| Some(Row::of(jobs.first()?, runs)));
    let table = Table {
        schemes: args.cc.iter().map(Scheme::to_string).collect(),
        seeds: args.seeds,
        rows: rows.collect(),
    };
    Ok(show(&if args.json {
        serde_json::to_string(&table)? + "\n"
    } else {
        table.to_string()
    })?)
}

/// One run in the figures of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Measures {
    used: f64,
    used_run: f64,
    rtt_mean_ms: Option<f64>,
    rtt_p95_ms: Option<f64>,
    loss: f64,
    jain: f64,
    worst_mbps: f64,
    own_share: Option<f64>,
    filled_s: Option<f64>,
    start_queue_bdp: f64,
    timeouts: f64,
}

impl Measures {
    fn of(job: &Job<'_>, outcome: Outcome) -> Self {
        let (plan, run) = (job.plan, &outcome.results);
        let flows = || run.flows.iter();
        let slowest = flows()
            .map(|flow| goodput_mbps(plan.measure, flow).unwrap_or(flow.goodput_mbps))
            .fold(f64::INFINITY, f64::min);
        let used_run = used_run(plan, run);
        Self {
            used: match plan.measure {
                Measure::SecondHalf => run.share_second_half,
                Measure::Run => used_run,
            },
            used_run,
            rtt_mean_ms: rtt_mean_ms(run),
            rtt_p95_ms: run.rtt_p95_ms,
            loss: run.loss,
            jain: jain(flows().map(|flow| goodput_mbps(plan.measure, flow).unwrap_or(0.0))),
            worst_mbps: slowest,
            own_share: own_share(plan, run),
            filled_s: filled_s(plan, run),
            start_queue_bdp: start_queue_bdp(plan, run),
            timeouts: flows().map(|flow| flow.timeouts as f64).sum(),
        }
    }
}

/// A flow's goodput in the part of the run that counts, Mbit/s; `None` if it has no life there.
fn goodput_mbps(measure: Measure, flow: &FlowResult) -> Option<f64> {
    match measure {
        Measure::SecondHalf => flow.goodput_second_half_mbps,
        Measure::Run => Some(flow.goodput_mbps),
    }
}

/// Goodput over what the path could carry in the whole run, which transfers end with the last completion.
fn used_run(plan: &Plan, run: &Results) -> f64 {
    let mut flows = run.flows.iter();
    let end_s = flows.try_fold(0.0, |end_s, flow| {
        flow.completion_s?;
        Some(flow.end_s.max(end_s))
    });
    let capacity = |s: f64| {
        let path = &plan.scenario.path;
        path.capacity_bytes(0, (s * SECOND as f64) as u64)
    };
    match end_s.map(capacity) {
        Some(bytes) if bytes > 0.0 => run.share * capacity(run.duration_s) / bytes,
        _ => run.share,
    }
}

/// Mean RTT of all packets.
fn rtt_mean_ms(run: &Results) -> Option<f64> {
    let flows = run
        .flows
        .iter()
        .filter_map(|flow| Some((flow.rtt_mean_ms?, flow.packets_sent as f64)));
    let (sum, packets) = flows.fold((0.0, 0.0), |(sum, all), (ms, packets)| {
        (sum + ms * packets, all + packets)
    });
    (packets > 0.0).then(|| sum / packets)
}

/// Beside flows of another scheme: a flow's part of what one of its kind and one of the other have together.
fn own_share(plan: &Plan, run: &Results) -> Option<f64> {
    let mean = |under_test: bool| {
        let flows = run.flows.iter().zip(&plan.schemes);
        let goodputs: Vec<_> = flows
            .filter(|(_, given)| {
                given.is_none() == under_test && !matches!(given, Some(Scheme::Udp(_)))
            })
            .map(|(flow, _)| goodput_mbps(plan.measure, flow).unwrap_or(0.0))
            .collect();
        (!goodputs.is_empty()).then(|| goodputs.iter().sum::<f64>() / goodputs.len() as f64)
    };
    let (own, other) = (mean(true)?, mean(false)?);
    (own + other > 0.0).then(|| own / (own + other))
}

/// Time from the first flow's start to the end of the first 100 ms in which the path is filled.
fn filled_s(plan: &Plan, run: &Results) -> Option<f64> {
    let path = &plan.scenario.path;
    let start_ns = plan.scenario.flows.iter().map(|flow| flow.start_ns).min()?;
    let bins = run.flows.iter().map(|flow| flow.series.len()).max()?;
    let bin = (0..bins).find(|bin| {
        let mbps: f64 = run
            .flows
            .iter()
            .filter_map(|flow| flow.series.get(*bin))
            .map(|bin| bin.goodput_mbps)
            .sum();
        let (from, to) = (*bin as f64 * BIN_S, (*bin + 1) as f64 * BIN_S);
        let ns = |s: f64| (s * SECOND as f64) as u64;
        let bytes = path.capacity_bytes(ns(from), ns(to)) * (1.0 - path.loss.ratio());
        let capacity_mbps = bytes * 8e-6 / BIN_S * (MSS as f64 / WIRE as f64);
        capacity_mbps > 0.0 && mbps >= FILLED * capacity_mbps
    })?;
    Some((bin + 1) as f64 * BIN_S - start_ns as f64 / SECOND as f64)
}

/// The longest queue of the first two seconds.
fn start_queue_bdp(plan: &Plan, run: &Results) -> f64 {
    let peak = run
        .link_series
        .iter()
        .take(START_BINS)
        .map(|bin| bin.queue_packets)
        .max();
    f64::from(peak.unwrap_or(0)) / f64::from(plan.scenario.path.bdp_packets(1.0))
}

/// A scheme on a scenario, means over the seeds. The serialized field names are a public format.
#[derive(Clone, Debug, Serialize)]
struct Row {
    scenario: String,
    title: Option<String>,
    scheme: String,
    flows: usize,
    /// Goodput over what the path can carry, in the part of the run that counts.
    #[serde(rename = "use")]
    used: f64,
    use_min: f64,
    use_max: f64,
    use_run: f64,
    rtt_mean_ms: Option<f64>,
    rtt_p95_ms: Option<f64>,
    loss: f64,
    jain: f64,
    worst_flow_mbps: f64,
    own_share: Option<f64>,
    filled_s: Option<f64>,
    start_queue_bdp: f64,
    timeouts: f64,
}

impl Row {
    fn of(job: &Job<'_>, runs: &[Measures]) -> Self {
        let count = runs.len().max(1) as f64;
        let mean = |value: fn(&Measures) -> f64| runs.iter().map(value).sum::<f64>() / count;
        // A figure that one run lacks has no mean.
        let all = |value: fn(&Measures) -> Option<f64>| -> Option<f64> {
            Some(runs.iter().map(value).sum::<Option<f64>>()? / count)
        };
        let used = || runs.iter().map(|run| run.used);
        Self {
            scenario: job.plan.id.clone(),
            title: job.plan.title.clone(),
            scheme: job.scheme.to_string(),
            flows: job.plan.schemes.len(),
            used: mean(|run| run.used),
            use_min: used().fold(f64::INFINITY, f64::min),
            use_max: used().fold(0.0, f64::max),
            use_run: mean(|run| run.used_run),
            rtt_mean_ms: all(|run| run.rtt_mean_ms),
            rtt_p95_ms: all(|run| run.rtt_p95_ms),
            loss: mean(|run| run.loss),
            jain: mean(|run| run.jain),
            worst_flow_mbps: mean(|run| run.worst_mbps),
            own_share: all(|run| run.own_share),
            filled_s: all(|run| run.filled_s),
            start_queue_bdp: mean(|run| run.start_queue_bdp),
            timeouts: mean(|run| run.timeouts),
        }
    }

    fn cell(&self) -> String {
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        let range = if self.use_max - self.use_min > WIDE {
            format!(" ({:.0}-{:.0})", self.use_min * 100.0, self.use_max * 100.0)
        } else {
            String::new()
        };
        let mut cell = format!(
            "{:.1}{range} / {} / {} / {:.2}",
            self.used * 100.0,
            ms(self.rtt_mean_ms),
            ms(self.rtt_p95_ms),
            self.loss * 100.0
        );
        // Writing to a string cannot fail.
        let _ = match self.own_share {
            Some(share) => write!(cell, " / own {share:.2}"),
            None if self.flows > 1 => write!(cell, " / {:.3}", self.jain),
            None => Ok(()),
        };
        cell
    }

    fn start_cell(&self) -> String {
        let filled = self
            .filled_s
            .map_or("never".to_owned(), |s| format!("{s:.1}"));
        format!("{filled} / {:.2}", self.start_queue_bdp)
    }
}

/// All rows. The serialized field names are a public format.
#[derive(Debug, Serialize)]
struct Table {
    schemes: Vec<String>,
    seeds: u64,
    rows: Vec<Row>,
}

impl Table {
    fn section(
        &self,
        f: &mut fmt::Formatter<'_>,
        of_row: fn(&Row) -> String,
        wanted: fn(&Row) -> bool,
    ) -> fmt::Result {
        let mut lines = vec![vec!["scenario".to_owned()]];
        lines[0].extend(self.schemes.iter().cloned());
        for rows in self.rows.chunks(self.schemes.len()) {
            let Some(first) = rows.first().filter(|row| wanted(row)) else {
                continue;
            };
            let title = first
                .title
                .as_ref()
                .map_or(String::new(), |title| format!(": {title}"));
            let mut line = vec![format!("`{}`{title}", first.scenario)];
            line.extend(rows.iter().map(of_row));
            lines.push(line);
        }
        let width = |column: usize| {
            lines
                .iter()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<_> = (0..=self.schemes.len()).map(width).collect();
        for (number, line) in lines.iter().enumerate() {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(f, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
            if number == 0 {
                let rules = widths.iter().map(|width| "-".repeat(*width));
                writeln!(f, "| {} |", rules.collect::<Vec<_>>().join(" | "))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    /// Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Cells: use % / mean RTT ms / 95th percentile of RTT ms / loss % / Jain's index, or `own`: the part that a flow \
             under test has\nof what it and a flow of the other scheme have together. Means over the seeds ({}); where use \
             differs between seeds\nby more than 5 %, its range, too. Use, Jain and own: second half of the run, or all of it \
             where the path changes; RTT and\nloss: all of it.\n",
            self.seeds
        )?;
        self.section(f, Row::cell, |_| true)?;
        if self.rows.iter().any(|row| row.flows == 1) {
            writeln!(
                f,
                "\nThe start of one flow: s until the end of the first 100 ms at 80 % of the path / longest queue of the first \
                 2 s, in BDP.\n"
            )?;
            self.section(f, Row::start_cell, |row| row.flows == 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pk3c_ccp::params::Params;

    /// Two transfers that are over before the second half of the run begins, the later one a third as fast.
    const DOWNLOADS: &str = r#"
duration = "40s"
measure = "run"
path = { rate = "10mbit", rtt = "20ms", queue = "1bdp" }
flows = [{ size = "2MB", start = "0s" }, { scheme = "reno", size = "2MB", start = "4s", extra-rtt = "600ms" }]
"#;

    fn measures(text: &str) -> Measures {
        let plans = scenario::read_text("downloads.toml", text).unwrap();
        let job = Job {
            plan: &plans[0],
            scheme: "cubic".parse().unwrap(),
            seed: 1,
        };
        let of = runs::carry_out(
            &[job],
            &Params::default(),
            Keep::default(),
            None,
            Measures::of,
        );
        of.unwrap()[0]
    }

    #[test]
    fn transfers_are_measured_while_they_last() {
        let run = measures(DOWNLOADS);
        assert!((0.6..0.95).contains(&run.jain), "{run:?}");
        assert!(run.own_share.unwrap() > 0.6, "{run:?}");
        assert!((0.5..5.0).contains(&run.worst_mbps), "{run:?}");
        // 4 MB in some 10 of 40 s.
        assert!(run.used > 0.2 && run.used == run.used_run, "{run:?}");
        let half = measures(&DOWNLOADS.replace("\"run\"", "\"second-half\""));
        assert_eq!((half.used, half.own_share), (0.0, None));
    }

    #[test]
    fn a_run_with_an_endless_flow_is_used_for_all_of_its_time() {
        let run = measures(&DOWNLOADS.replace("size = \"2MB\", start = \"0s\"", "start = \"0s\""));
        assert!((0.9..1.0).contains(&run.used), "{run:?}");
    }
}
