//! `pk3c-ccp policy report`: the two arms of each experiment, side by side.
//!
//! Of every figure the medians of both arms and their difference, treatment less control, with a 95 % interval by
//! bootstrap over the units that were assigned (connections, or hosts with all their connections). An interval that
//! holds 0 shows no difference. The agent keeps a sample of the flows that have ended; what is still running is not in
//! it.

use crate::cli::control::{AgentArgs, Client, Request};
use anyhow::{Result, bail};
use pathlab::lab::statistics::bootstrap::{MedianDifference, median_difference};
use pk3c_ccp::stats::Unit;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Units of an arm from which an interval is worth reading. Of 15 values, one in twenty intervals already misses the
/// median (tests of the bootstrap); a heavy tail, which flows' sizes have, needs more.
const UNITS_MIN: usize = 30;
/// A split this many standard deviations from the configured share is no accident (one in 2000).
const SPLIT_SIGMAS: f64 = 3.5;

/// What is compared: the outcome's member, its heading, its unit, and how it is shown.
const FIGURES: [(&str, &str, Unit); 6] = [
    ("goodput_bps", "goodput", Unit::BitsPerSecond),
    ("rtt_s", "rtt", Unit::Seconds),
    ("rtt_min_s", "rtt min", Unit::Seconds),
    ("loss", "loss", Unit::Ratio),
    ("duration_s", "duration", Unit::Seconds),
    ("bytes", "bytes", Unit::Bytes),
];

/// Options of `pk3c-ccp policy report`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ReportArgs {
    /// Only this policy's experiment
    #[arg(value_name = "POLICY")]
    policy: Option<String>,
    /// One JSON object, with every flow's outcome
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Asks the agent and compares.
pub(super) fn run(args: &ReportArgs) -> Result<()> {
    let answer = Client::connect(&args.agent)?.ask(&Request::Experiments {})?;
    let all = answer["experiments"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let wanted = |one: &&Value| {
        args.policy
            .as_ref()
            .is_none_or(|name| one["policy"] == **name)
    };
    let chosen: Vec<_> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let known: Vec<_> = all
            .iter()
            .filter_map(|one| one["policy"].as_str())
            .collect();
        match (&args.policy, known.is_empty()) {
            (_, true) => {
                bail!("no policy compares: give one `ab = \"50%\"` in the configuration file")
            }
            (name, false) => bail!(
                "there is no experiment `{}`: there are {}",
                name.as_deref().unwrap_or_default(),
                known.join(", ")
            ),
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        let told = chosen.iter().map(|one| {
            let mut told = (*one).clone();
            let compared = Compared::of(one);
            told["figures"] = compared.figures();
            told["warnings"] = json!(compared.warnings);
            told
        });
        writeln!(
            out,
            "{}",
            json!({ "experiments": told.collect::<Vec<_>>() })
        )?;
        return Ok(());
    }
    for one in chosen {
        out.write_all(Compared::of(one).text(one).as_bytes())?;
    }
    Ok(())
}

/// One figure of both arms.
struct Figure {
    name: &'static str,
    heading: &'static str,
    unit: Unit,
    compared: Option<MedianDifference>,
}

struct Compared {
    figures: Vec<Figure>,
    warnings: Vec<String>,
}

const ARMS: [&str; 2] = ["treatment", "control"];

/// The values of a figure, by unit.
fn units(experiment: &Value, arm: &str, figure: &str) -> Vec<Vec<f64>> {
    let outcomes = experiment["arms"][arm]["outcomes"].as_array();
    let mut units: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for outcome in outcomes.into_iter().flatten() {
        if let Some((unit, value)) = outcome["unit"].as_str().zip(outcome[figure].as_f64()) {
            units.entry(unit).or_default().push(value);
        }
    }
    units.into_values().collect()
}

impl Compared {
    fn of(experiment: &Value) -> Self {
        let compare = |(name, heading, unit): (&'static str, &'static str, Unit)| {
            let [treatment, control] = ARMS.map(|arm| units(experiment, arm, name));
            Figure {
                name,
                heading,
                unit,
                compared: median_difference(&treatment, &control),
            }
        };
        Self {
            figures: FIGURES.into_iter().map(compare).collect(),
            warnings: warnings(experiment),
        }
    }

    fn figures(&self) -> Value {
        let figure = |figure: &Figure| {
            let told = figure.compared.map(|compared| {
                json!({
                    "treatment": compared.medians[0], "control": compared.medians[1],
                    "difference": compared.difference, "low": compared.low, "high": compared.high,
                })
            });
            (figure.name.to_owned(), told.into())
        };
        Value::Object(self.figures.iter().map(figure).collect())
    }

    fn text(&self, experiment: &Value) -> String {
        let text_of = |key: &str| experiment[key].as_str().unwrap_or_default().to_owned();
        let share = experiment["share"].as_f64().unwrap_or_default();
        let mut text = format!(
            "{}: {} of {}s driven, key `{}`\n",
            text_of("policy"),
            Unit::Ratio.show(share),
            text_of("by"),
            text_of("key"),
        );
        for arm in ARMS {
            let count = |key: &str| experiment["arms"][arm][key].as_u64().unwrap_or_default();
            let kept = experiment["arms"][arm]["outcomes"]
                .as_array()
                .map_or(0, Vec::len);
            let _ = writeln!(
                text,
                "  {arm:9}  {} flows ended, {kept} kept; left out: {} met late, {} without data",
                count("flows"),
                count("left_out_late"),
                count("left_out_empty"),
            );
        }
        let _ = writeln!(
            text,
            "  {:9} {:>10} {:>10} {:>12}  95% interval",
            "median", ARMS[0], ARMS[1], "difference"
        );
        for figure in &self.figures {
            let Some(compared) = figure.compared else {
                let _ = writeln!(text, "  {:9} {:>10} {:>10}", figure.heading, "-", "-");
                continue;
            };
            let [treatment, control] = compared.medians.map(|median| figure.unit.show(median));
            let change = change(figure.unit, compared.medians[1]);
            let verdict = if compared.low <= 0.0 && compared.high >= 0.0 {
                "  no difference shown"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "  {:9} {treatment:>10} {control:>10} {:>12}  {} to {}{verdict}",
                figure.heading,
                change(compared.difference),
                change(compared.low),
                change(compared.high),
            );
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "  warning: {warning}");
        }
        text
    }
}

/// How a difference is shown: in parts of the control's median, but for shares, which have their own points.
fn change(unit: Unit, control: f64) -> impl Fn(f64) -> String {
    move |difference| {
        if unit == Unit::Ratio {
            format!("{:+.2} points", 100.0 * difference)
        } else if control > 0.0 {
            format!("{:+.1}%", 100.0 * difference / control)
        } else {
            format!("{difference:+.3}")
        }
    }
}

fn warnings(experiment: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for arm in ARMS {
        let units = units(experiment, arm, "bytes").len();
        if units < UNITS_MIN {
            let by = experiment["by"].as_str().unwrap_or("unit");
            warnings.push(format!(
                "the {arm} arm has {units} {by}s: of fewer than {UNITS_MIN} the interval is not to be trusted, wait for more"
            ));
        }
    }
    let [treatment, control] = ARMS.map(|arm| {
        let about = &experiment["arms"][arm];
        let count = |key: &str| about[key].as_f64().unwrap_or_default();
        count("flows") + count("left_out_late") + count("left_out_empty")
    });
    let (flows, share) = (
        treatment + control,
        experiment["share"].as_f64().unwrap_or(0.5),
    );
    let deviation = (flows * share * (1.0 - share)).sqrt();
    // Hosts have unequal numbers of connections, so nothing follows from theirs.
    let by_connection = experiment["by"] == "connection";
    if by_connection && (treatment - share * flows).abs() > SPLIT_SIGMAS * deviation.max(1.0) {
        warnings.push(format!(
            "{treatment} of {flows} flows are in the treatment, which is not {}: the arms lose flows differently, so the comparison may mislead",
            Unit::Ratio.show(share)
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An experiment whose treatment is a given factor faster.
    fn experiment(flows: usize, factor: f64) -> Value {
        let arm = |factor: f64| {
            let outcome = |index: usize| {
                // Sizes and rates that are the same in both arms but for the factor: 1 to 2 Mbit/s.
                let rate = 1e6 * (1.0 + (index * 37 % 101) as f64 / 101.0);
                json!({
                    "unit": format!("{index:016x}"), "duration_s": 8.0, "bytes": 1e6, "goodput_bps": rate * factor,
                    "rtt_s": 0.05, "rtt_min_s": 0.04, "loss": 0.0,
                })
            };
            json!({
                "flows": flows, "left_out_late": 0, "left_out_empty": 0,
                "outcomes": (0..flows).map(outcome).collect::<Vec<_>>(),
            })
        };
        json!({
            "policy": "web", "share": 0.5, "by": "connection", "key": "web",
            "arms": {"treatment": arm(factor), "control": arm(1.0)},
        })
    }

    #[test]
    fn a_difference_is_shown_with_its_interval() {
        let experiment = experiment(400, 1.3);
        let compared = Compared::of(&experiment);
        assert!(compared.warnings.is_empty(), "{:?}", compared.warnings);
        let goodput = &compared.figures()["goodput_bps"];
        let number = |key: &str| goodput[key].as_f64().unwrap();
        assert!((number("treatment") / number("control") - 1.3).abs() < 1e-9);
        let relative = |key: &str| number(key) / number("control");
        assert!(relative("low") > 0.2 && relative("low") < 0.3, "{goodput}");
        assert!(
            relative("high") > 0.3 && relative("high") < 0.4,
            "{goodput}"
        );
        let text = compared.text(&experiment);
        assert!(
            text.contains("+30.0%") && text.contains("400 flows ended"),
            "{text}"
        );
        let rtt = text.lines().find(|line| line.contains("rtt ")).unwrap();
        assert!(rtt.contains("no difference shown"), "{rtt}");
        assert!(text.contains("+0.00 points"), "{text}");
    }

    #[test]
    fn small_samples_and_lopsided_arms_are_warned_of() {
        let few = Compared::of(&experiment(12, 1.3));
        assert_eq!(few.warnings.len(), 2);
        assert!(
            few.warnings[0].contains("12 connections"),
            "{:?}",
            few.warnings
        );
        let mut lopsided = experiment(400, 1.0);
        lopsided["arms"]["control"]["flows"] = 600.into();
        let warnings = warnings(&lopsided);
        assert!(warnings[0].contains("is not 50.0%"), "{warnings:?}");
        lopsided["by"] = "host".into();
        assert!(super::warnings(&lopsided).is_empty());
        let empty =
            json!({"policy": "web", "share": 0.5, "by": "connection", "key": "web", "arms": {}});
        let compared = Compared::of(&empty);
        assert!(
            compared.text(&empty).contains("goodput            -"),
            "{}",
            compared.text(&empty)
        );
    }
}
