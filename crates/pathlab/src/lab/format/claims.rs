//! What the documents claim, whether their own numbers support it, and what we measured.
//!
//! `data/published/claims.toml` has the claims. Each has checks: a measure of a scheme in a scenario, alone or over
//! that of another scheme or scenario, with bounds. A claim that its document's numbers do not support is marked,
//! whatever our runs show; so is one that they support and our runs do not.

use std::fmt::Write;
use std::sync::LazyLock;

use serde::Deserialize;

use super::plain;
use super::printf::g;
use crate::lab::report::measure::measure;
use crate::lab::report::table::wrapped;
use crate::lab::report::{Group, Groups};
use crate::lab::statistics::median;

/// Whether numbers support a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// They do.
    Yes,
    /// Some do.
    Partly,
    /// They do not.
    No,
    /// There are none.
    Unpublished,
}

/// A claim of a document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// `C1`, `T1` ...
    pub id: String,
    /// `pk3c`, `pantheon`, `bequant`, `freebsd` or `geni`.
    pub document: String,
    /// What it says.
    pub says: String,
    /// The document's own numbers on it.
    pub numbers: String,
    /// Whether these support it.
    pub supported: Support,
    /// How to see it in our results; none if they cannot show it.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// A bound on what was measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The scenario's id.
    pub scenario: String,
    /// The scheme.
    pub scheme: String,
    /// Key of the measure.
    pub measure: String,
    /// The scheme to divide by, if any.
    pub over: Option<String>,
    /// The scenario to divide by, if it is another one.
    pub over_scenario: Option<String>,
    /// Greatest over least of the runs instead of their median.
    #[serde(default)]
    pub spread: bool,
    /// The value is at least that.
    pub min: Option<f64>,
    /// The value is at most that.
    pub max: Option<f64>,
}

#[derive(Deserialize)]
struct File {
    claim: Vec<Claim>,
}

static CLAIMS: LazyLock<Vec<Claim>> = LazyLock::new(|| {
    let text = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../data/published/claims.toml"
    ));
    let file: File =
        toml::from_str(text).expect("the embedded claims are constant, and a test reads them");
    file.claim
});

/// All claims.
pub fn claims() -> &'static [Claim] {
    &CLAIMS
}

/// A check against our results: its value and whether it holds; `None` if it was not measured.
pub fn evaluate(check: &Check, groups: &Groups<'_>) -> Option<(f64, bool)> {
    let of = |scenario: &str, scheme: &str| -> Option<f64> {
        let values = find(groups, scenario, scheme)?.values(measure(&check.measure)?);
        if check.spread {
            let (least, most) = values
                .iter()
                .fold((f64::INFINITY, 0.0f64), |(low, high), v| {
                    (low.min(*v), high.max(*v))
                });
            return (values.len() > 1).then_some(most / least);
        }
        median(&values)
    };
    let mut value = of(&check.scenario, &check.scheme)?;
    if check.over.is_some() || check.over_scenario.is_some() {
        let scenario = check.over_scenario.as_ref().unwrap_or(&check.scenario);
        value /= of(scenario, check.over.as_ref().unwrap_or(&check.scheme))?;
    }
    let holds =
        check.min.is_none_or(|min| value >= min) && check.max.is_none_or(|max| value <= max);
    value.is_finite().then_some((value, holds))
}

/// The group of a scenario and a scheme, whether it is written as `cubic` or `kernel:cubic`.
fn find<'g, 'a>(groups: &'g Groups<'a>, scenario: &str, scheme: &str) -> Option<&'g Group<'a>> {
    let same = |group: &&Group<'a>| group.scenario == scenario && plain(group.scheme) == scheme;
    groups.0.iter().find(same)
}

impl Support {
    /// In words; capital letters where the numbers do not support the claim wholly.
    fn words(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "PARTLY",
            Self::No => "NO",
            Self::Unpublished => "NO NUMBERS PUBLISHED",
        }
    }
}

/// The claims of a document with what we measured, as a table of Markdown.
pub fn markdown(document: &str, groups: &Groups<'_>) -> String {
    let mut text = String::from(
        "| | the document claims | its own numbers support it | here |\n|---|---|---|---|\n",
    );
    for claim in claims().iter().filter(|claim| claim.document == document) {
        let _ = writeln!(
            text,
            "| {} | {} | **{}**: {} | {} |",
            claim.id,
            claim.says,
            claim.supported.words(),
            claim.numbers,
            measured(claim, groups).replace('_', "\\_")
        );
    }
    text
}

/// The claims of a document with what we measured.
pub fn render(document: &str, groups: &Groups<'_>) -> String {
    let mut text = format!("claims of the document ({document}) and what supports them\n");
    for claim in claims().iter().filter(|claim| claim.document == document) {
        let own = claim.supported.words();
        let _ = write!(
            text,
            "{}",
            wrapped(&format!("{}: {}", claim.id, claim.says), "")
        );
        let supported = format!(
            "supported by the document's own numbers: {own}; {}",
            claim.numbers
        );
        text += &wrapped(&supported, "    ");
        text += &wrapped(
            &format!("measured here: {}", measured(claim, groups)),
            "    ",
        );
    }
    text
}

fn measured(claim: &Claim, groups: &Groups<'_>) -> String {
    if claim.checks.is_empty() {
        return "no number stands for it; see the figures above where there are any".to_owned();
    }
    let (mut parts, mut held) = (Vec::new(), 0);
    for check in &claim.checks {
        let Some((value, holds)) = evaluate(check, groups) else {
            continue;
        };
        held += u32::from(holds);
        let number = |value: &f64| g(*value, 3);
        let bounds = match (&check.min, &check.max) {
            (Some(min), Some(max)) => format!("{} to {}", number(min), number(max)),
            (Some(min), None) => format!("at least {}", number(min)),
            (None, Some(max)) => format!("at most {}", number(max)),
            (None, None) => "any".to_owned(),
        };
        let over = match (&check.over, &check.over_scenario) {
            (None, None) => String::new(),
            (over, scenario) => {
                let names = scenario.iter().chain(over).map(String::as_str);
                format!(" over {}", names.collect::<Vec<_>>().join(" "))
            }
        };
        let spread = if check.spread { "spread of " } else { "" };
        let verdict = if holds { "holds" } else { "does not hold" };
        parts.push(format!(
            "{} {} {spread}{}{over} = {} ({bounds}: {verdict})",
            check.scenario,
            check.scheme,
            check.measure,
            number(&value)
        ));
    }
    if parts.is_empty() {
        let mut scenarios: Vec<_> = claim
            .checks
            .iter()
            .map(|check| check.scenario.as_str())
            .collect();
        scenarios.dedup();
        return format!("not in these results; run {}", scenarios.join(", "));
    }
    format!("{held} of {} hold: {}", parts.len(), parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::read::{Loaded, Results};
    use crate::lab::report::sample::measured as run;

    #[test]
    fn every_claim_can_be_checked() {
        let ids: Vec<_> = claims().iter().map(|claim| claim.id.as_str()).collect();
        let expected: Vec<_> = [("C", 10), ("T", 6), ("Q", 10), ("F", 4), ("H", 10)]
            .iter()
            .flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}")))
            .collect();
        assert_eq!(ids, expected);
        for claim in claims() {
            for check in &claim.checks {
                assert!(
                    measure(&check.measure).is_some(),
                    "{}: {}",
                    claim.id,
                    check.measure
                );
                assert!(check.min.or(check.max).is_some(), "{}", claim.id);
            }
        }
    }

    #[test]
    fn checks_and_listings_name_scenarios_that_exist() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let files = ["pk3c", "pantheon", "bequant", "freebsd", "geni"];
        let files =
            files.map(|name| std::fs::read_to_string(format!("{place}/{name}.toml")).unwrap());
        let there = |id: &str| {
            files
                .iter()
                .any(|file| file.contains(&format!("\nid = \"{id}\"\n")))
        };
        let checks = claims().iter().flat_map(|claim| &claim.checks);
        let named =
            checks.flat_map(|check| std::iter::once(&check.scenario).chain(&check.over_scenario));
        let listed = crate::lab::format::iperf::listed_scenarios();
        for id in named.map(String::as_str).chain(listed) {
            assert!(there(id), "no scenario {id}");
        }
    }

    #[test]
    fn a_claim_without_support_is_marked_beside_what_was_measured() {
        let mut results = Results::default();
        for (scheme, goodput) in [("kernel:cubic", 100.0), ("agent:pk3c", 103.0)] {
            results.runs.push(Loaded {
                path: "x.json".into(),
                run: run("P4-60", scheme, 1, goodput),
            });
        }
        let text = render("pk3c", &Groups::of(&results));
        let claim: String = text
            .lines()
            .skip_while(|line| !line.starts_with("C1:"))
            .take(8)
            .collect::<Vec<_>>()
            .join(" ");
        let words = claim.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("supported by the document's own numbers: NO;"),
            "{text}"
        );
        assert!(
            words.contains("measured here: 0 of 1 hold: P4-60 pk3c goodput_mbps over cubic = 1.03 (at least 1.16: does not hold)"),
            "{text}"
        );
        assert!(text.contains("not in these results; run P12"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}
