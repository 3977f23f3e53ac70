//! What each handbrake and mechanism is worth: the goals and the comparison table in the simulator, with each switched
//! off in turn by its flag, as two Markdown tables.
//!
//! ```text
//! cargo run --release --example ablation -- [--program FILE] [--out FOLDER] [--reps N]
//! ```
//!
//! Results go to the folder, and what is there is not made again. What has no flag is not here: the mirrored order of
//! the trials, the amplifier of Vivace's steps, the drain, the competitor's law.

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// What is switched off, and how.
const SWITCHES: [(&str, &str); 22] = [
    ("nothing", ""),
    ("loss handbrake", "--no-handbrake loss"),
    ("queue handbrake", "--no-handbrake queue"),
    ("compete handbrake", "--no-handbrake compete"),
    ("restart handbrake", "--no-handbrake restart"),
    ("ceiling", "--no-handbrake ceiling"),
    ("overshoot handbrake", "--no-handbrake overshoot"),
    ("additions beside others", "--no-handbrake sharing"),
    ("shaper's rate", "--no-handbrake shaper"),
    ("BBR's model beside BBR", "--no-handbrake bbr"),
    ("cruise", "--no-handbrake cruise"),
    (
        "what others to the same address know",
        "--no-handbrake ensemble",
    ),
    (
        "all eleven",
        "--no-handbrake loss,queue,compete,restart,ceiling,overshoot,sharing,bbr,cruise,ensemble,shaper",
    ),
    (
        "loss handbrake's lower limit at a full queue",
        "--hb-loss-congestive 0%",
    ),
    ("loss floor", "--loss-floor-max 0%"),
    (
        "slopes must stand out",
        "--rtt-gradient-floor 0 --rtt-gradient-sigmas 0",
    ),
    ("latency in the utility", "--latency-coeff 0"),
    ("loss in the utility", "--loss-coeff 0"),
    (
        "climber below 15 packets per RTT (4)",
        "--low-enter 4 --low-exit 5",
    ),
    ("trials that widen", "--probe-step-max 3%"),
    ("bound that grows", "--change-bound-step 0%"),
    ("all but the core", "--algorithm vivace"),
];
/// Cells that are named of each row.
const SHOWN: usize = 3;
/// Beside figures as small as this, changes are noise.
const NOISE: f64 = 0.002;

/// What each handbrake and mechanism is worth, as two Markdown tables; about a minute for each of twenty variants.
#[derive(Parser)]
struct Options {
    /// The agent, which simulates
    #[arg(long, value_name = "FILE", default_value = "target/release/pk3c-ccp")]
    program: PathBuf,
    /// Where results go; what is there is not made again
    #[arg(long, value_name = "FOLDER", default_value = "target/ablation")]
    out: PathBuf,
    /// Seeds of each scenario
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    reps: u32,
}

/// Figures by where they are from: scenario and goal, or scenario and column.
type Figures = BTreeMap<(String, String), f64>;

/// What a variant showed.
struct Shown {
    /// Kept and judged goals of each family.
    families: BTreeMap<String, (u64, u64)>,
    total: (u64, u64),
    goals: Figures,
    comparison: Figures,
}

impl Options {
    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = Command::new(&self.program).args(arguments).output();
        let output = output.with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("{arguments:?}"))
    }

    /// The goals' scenarios under a scheme, into a folder of its own.
    fn simulate(&self, scheme: &str, name: &str, flags: &str) -> Result<String> {
        let out = self.out.join(name).display().to_string();
        let reps = self.reps.to_string();
        let mut command = Command::new(&self.program);
        command.args([
            "lab",
            "run",
            "--scenarios",
            "scenarios/goals.toml",
            "--backend",
            "sim",
        ]);
        command.args(["--cc", scheme, "--reps", &reps, "--out", &out]);
        command.args(["--agent-args", flags]);
        let output = command.output()?;
        if !output.status.success() {
            bail!(
                "{scheme} {flags}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(out)
    }

    fn show(&self, number: usize, flags: &str, cubic: &str) -> Result<Shown> {
        let out = self.simulate("pk3c", &format!("{number:02}"), flags)?;
        let scenarios = ["--scenarios", "scenarios/goals.toml"];
        let score =
            self.json(&[&["lab", "score", "--json", &out, cubic], &scenarios[..]].concat())?;
        let reps = self.reps.to_string();
        let mut table = vec!["sim", "table", "scenarios/comparison.toml", "--json"];
        table.extend(["--cc", "pk3c", "--seeds", &reps]);
        table.extend(flags.split_whitespace());
        Ok(Shown::of(&score, &self.json(&table)?))
    }
}

fn tally(value: &Value) -> (u64, u64) {
    let count = |name: &str| value[name].as_u64().unwrap_or(0);
    (count("kept"), count("goals"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Shown {
    fn of(score: &Value, table: &Value) -> Self {
        let mut goals = Figures::new();
        for scenario in list(&score["scenarios"]) {
            for goal in list(&scenario["goals"]) {
                let key = (text(&scenario["scenario"]), text(&goal["what"]));
                goals.insert(key, goal["figure"].as_f64().unwrap_or(f64::INFINITY));
            }
        }
        let mut comparison = Figures::new();
        for row in list(&table["rows"]) {
            for column in ["use", "rtt_p95_ms", "loss", "jain", "own_share"] {
                if let Some(figure) = row[column].as_f64() {
                    comparison.insert((text(&row["scenario"]), column.to_owned()), figure);
                }
            }
        }
        let families = score["families"].as_object().into_iter().flatten();
        Self {
            families: families
                .map(|(name, it)| (name.clone(), tally(it)))
                .collect(),
            total: tally(&score["total"]),
            goals,
            comparison,
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The cells whose figures differ most, by their ratio.
fn most_changed(base: &Figures, shown: &Figures) -> String {
    let change = |a: f64, b: f64| ((a + NOISE) / (b + NOISE)).ln().abs();
    let mut cells: Vec<_> = base
        .iter()
        .filter_map(|(key, was)| Some((key, *was, *shown.get(key)?)))
        .filter(|(_, was, is)| was.is_finite() || is.is_finite())
        .collect();
    cells.sort_by(|a, b| change(b.1, b.2).total_cmp(&change(a.1, a.2)));
    let cells = cells.iter().take(SHOWN).map(|((scenario, what), was, is)| {
        format!("`{scenario}` {what} {} to {}", short(*was), short(*is))
    });
    cells.collect::<Vec<_>>().join("; ")
}

fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let cubic = options.simulate("cubic", "cubic", "")?;
    let mut shown = Vec::new();
    for (number, (name, flags)) in SWITCHES.iter().enumerate() {
        eprintln!("without {name}");
        shown.push((name, flags, options.show(number, flags, &cubic)?));
    }
    let Some((_, _, base)) = shown.first() else {
        bail!("no variants");
    };
    println!("| without | kept | families |\n|---|---|---|");
    for (name, flags, it) in &shown {
        let families = it.families.iter().filter_map(|(family, (kept, goals))| {
            let (was, _) = base.families.get(family)?;
            let is_base = std::ptr::eq(it, base);
            (is_base || was != kept).then(|| {
                if is_base {
                    format!("{family} {kept} of {goals}")
                } else {
                    format!("{family} {was} to {kept}")
                }
            })
        });
        let families = families.collect::<Vec<_>>().join(", ");
        let flags = if flags.is_empty() {
            String::new()
        } else {
            format!(" (`{flags}`)")
        };
        println!(
            "| {name}{flags} | {} of {} | {families} |",
            it.total.0, it.total.1
        );
    }
    println!("\n| without | goals' figures | comparison table |\n|---|---|---|");
    for (name, _, it) in shown.iter().skip(1) {
        let goals = most_changed(&base.goals, &it.goals);
        let comparison = most_changed(&base.comparison, &it.comparison);
        println!("| {name} | {goals} | {comparison} |");
    }
    Ok(())
}
