//! The goals of performance, and whether results keep them.
//!
//! A scenario's family, the part of its id before the first `-`, says which goals hold (`families.rs`). Their figures
//! are medians over the runs of a scheme (`figures.rs`). Many lines are drawn by Cubic's or BBR's figure on the same
//! path: without results of those, the goal is not judged. Neither is one whose figure the backend does not measure, as
//! a guest's queue over time. "No more than Cubic loses" always allows ten packets.

mod families;
mod figures;
pub mod show;

use super::report::Groups;
use figures::{Facts, Outcome};
use pathsim::Scenario;
use serde::Serialize;

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
    /// Within these, both included.
    Between(f64, f64),
}

/// What became of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The figure is as it must be.
    Kept,
    /// It is not.
    Missed,
    /// Figure or line is unknown.
    Unjudged,
}

/// A goal in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// Of what, with its unit.
    pub what: &'static str,
    /// The scheme's figure; `None` if it was not measured.
    pub figure: Option<f64>,
    /// What it must be; `None` if results that it depends on are not there.
    pub line: Option<Line>,
    /// Cubic's figure.
    pub cubic: Option<f64>,
    /// BBR's figure.
    pub bbr: Option<f64>,
}

impl Goal {
    /// Whether it is kept.
    pub fn verdict(&self) -> Verdict {
        let (Some(figure), Some(line)) = (self.figure, self.line) else {
            return Verdict::Unjudged;
        };
        let kept = match line {
            Line::AtLeast(least) => figure >= least,
            Line::AtMost(most) => figure <= most,
            Line::Between(least, most) => (least..=most).contains(&figure),
        };
        // What never came keeps nothing, even beside a scheme for which it never came either.
        if kept && figure.is_finite() {
            Verdict::Kept
        } else {
            Verdict::Missed
        }
    }
}

/// The goals of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Its id.
    pub scenario: String,
    /// Runs that count, of the scheme under judgement.
    pub runs: usize,
    /// The goals of its family.
    pub goals: Vec<Goal>,
}

impl Judged {
    /// The part of the id before the first `-`.
    pub fn family(&self) -> &str {
        family(&self.scenario)
    }
}

fn family(id: &str) -> &str {
    id.split('-').next().unwrap_or_default()
}

/// Whether a scenario with this id has goals.
pub fn has_goals(id: &str) -> bool {
    families::FAMILIES.contains(&family(id))
}

/// Judges what a scheme showed in a scenario; `None` if the scenario has no goals, or the scheme no runs in it that
/// count.
pub fn judge(id: &str, scenario: &Scenario, scheme: &str, groups: &Groups<'_>) -> Option<Judged> {
    let outcome = |scheme: &str| {
        let group = groups.find(id, scheme)?;
        (!group.runs.is_empty()).then(|| Outcome(&group.runs))
    };
    let facts = Facts::of(scenario);
    let schemes = families::Schemes {
        own: outcome(scheme)?,
        cubic: outcome("cubic"),
        bbr: outcome("bbr"),
    };
    Some(Judged {
        scenario: id.to_owned(),
        runs: schemes.own.0.len(),
        goals: families::goals(family(id), id, &facts, &schemes)?,
    })
}

#[cfg(test)]
mod tests;
