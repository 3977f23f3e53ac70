//! Verdicts as Markdown and as JSON.

use super::{Goal, Judged, Line, Verdict};
use serde::Serialize;
use std::fmt::Write;

/// Goals of a family, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Judged: kept or missed.
    pub goals: usize,
    /// Kept.
    pub kept: usize,
    /// Of which figure or line is unknown.
    pub unjudged: usize,
}

impl Tally {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Unjudged => self.unjudged += 1,
            Verdict::Kept | Verdict::Missed => self.goals += 1,
        }
        self.kept += usize::from(verdict == Verdict::Kept);
    }
}

/// Families in the order of the scenarios, each with its goals.
pub fn families(judged: &[Judged]) -> Vec<(String, Tally)> {
    let mut families: Vec<(String, Tally)> = Vec::new();
    for scenario in judged {
        let known = families
            .iter()
            .position(|(name, _)| name == scenario.family());
        let at = known.unwrap_or_else(|| {
            families.push((scenario.family().to_owned(), Tally::default()));
            families.len() - 1
        });
        for goal in &scenario.goals {
            families[at].1.add(goal.verdict());
        }
    }
    families
}

/// All goals.
pub fn total(judged: &[Judged]) -> Tally {
    let mut total = Tally::default();
    for goal in judged.iter().flat_map(|scenario| &scenario.goals) {
        total.add(goal.verdict());
    }
    total
}

/// Every goal with its figure and its line, or those that are not kept; then what each family kept.
pub fn markdown(judged: &[Judged], scheme: &str, only_missed: bool) -> String {
    let mut text = format!("| scenario | goal | {scheme} | line | cubic | bbr | |\n");
    text += "|---|---|---|---|---|---|---|\n";
    for scenario in judged {
        for goal in &scenario.goals {
            let verdict = match goal.verdict() {
                Verdict::Kept if only_missed => continue,
                Verdict::Kept => "",
                Verdict::Missed => "missed",
                Verdict::Unjudged => "not judged",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {} | {verdict} |",
                scenario.scenario,
                goal.what,
                figure(goal.figure),
                line(goal),
                figure(goal.cubic),
                figure(goal.bbr),
            );
        }
    }
    text += "\n| family | goals | kept |\n|---|---|---|\n";
    for (family, tally) in families(judged) {
        let _ = writeln!(text, "| {family} | {} | {} |", tally.goals, tally.kept);
    }
    let all = total(judged);
    let _ = writeln!(text, "| all | {} | {} |", all.goals, all.kept);
    if all.unjudged > 0 {
        let _ = writeln!(
            text,
            "\n{} more are not judged: their figure is not measured there, or runs of cubic are missing.",
            all.unjudged
        );
    }
    text
}

fn line(goal: &Goal) -> String {
    match goal.line {
        None => String::new(),
        Some(Line::AtLeast(least)) => format!(">= {}", short(least)),
        Some(Line::AtMost(most)) => format!("<= {}", short(most)),
        Some(Line::Between(least, most)) => format!("{least} to {most}"),
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(String::new, short)
}

fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        size if size < 0.02 => format!("{value:.5}"),
        _ => format!("{value:.3}"),
    }
}

/// The whole as one object: `{"scheme", ..., "scenarios": [{"scenario", "runs", "goals": [{"what", "figure", "line",
/// "cubic", "bbr", "verdict"}]}], "families": {NAME: {"goals", "kept", "unjudged"}}, "total": {...}}`. What is unknown
/// or never came is `null`.
///
/// # Errors
/// None that is known: there is nothing in it that JSON lacks.
pub fn json(judged: &[Judged], scheme: &str, algorithm: &str) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Score<'a> {
        scheme: &'a str,
        algorithm: &'a str,
        scenarios: Vec<Scenario<'a>>,
        families: serde_json::Map<String, serde_json::Value>,
        total: Tally,
    }
    #[derive(Serialize)]
    struct Scenario<'a> {
        scenario: &'a str,
        runs: usize,
        goals: Vec<Told<'a>>,
    }
    #[derive(Serialize)]
    struct Told<'a> {
        #[serde(flatten)]
        goal: &'a Goal,
        verdict: Verdict,
    }
    let scenarios = judged.iter().map(|judged| Scenario {
        scenario: &judged.scenario,
        runs: judged.runs,
        goals: judged
            .goals
            .iter()
            .map(|goal| Told {
                verdict: goal.verdict(),
                goal,
            })
            .collect(),
    });
    let families = families(judged).into_iter();
    let families = families.map(|(name, tally)| Ok((name, serde_json::to_value(tally)?)));
    serde_json::to_string_pretty(&Score {
        scheme,
        algorithm,
        scenarios: scenarios.collect(),
        families: families.collect::<serde_json::Result<_>>()?,
        total: total(judged),
    })
}
