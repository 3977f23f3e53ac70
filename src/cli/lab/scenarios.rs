//! Which scenarios are meant: those of the program or of files, by id, by the beginning of ids, by pattern.

use crate::cli::SIMILAR;
use crate::cli::scenario::{self, Plan};
use anyhow::{Result, bail};
use std::path::PathBuf;

/// The files below `scenarios/` that the program was built with: name and text.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));
/// Ids in a message, at most.
const SHOWN: usize = 12;

/// Where scenarios come from.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct SourceArgs {
    /// Read scenarios from these files, or from all .toml files of these folders, instead of those
    /// that the program carries with it
    #[arg(long, value_name = "FILE|FOLDER")]
    scenarios: Vec<PathBuf>,
    /// Only those of this document
    #[arg(long, value_name = "NAME")]
    document: Option<String>,
}

impl SourceArgs {
    /// The scenarios, of the document if one was named.
    pub(super) fn read(&self) -> Result<Vec<Plan>> {
        let mut plans = if self.scenarios.is_empty() {
            shipped()?
        } else {
            scenario::read_all(&self.scenarios)?
        };
        if let Some(document) = &self.document {
            let mut known: Vec<_> = plans
                .iter()
                .filter_map(|plan| plan.document.clone())
                .collect();
            known.dedup();
            plans.retain(|plan| plan.document.as_ref() == Some(document));
            if plans.is_empty() {
                bail!(
                    "there is no scenario of a document `{document}`; there are {}",
                    known.join(", ")
                );
            }
        }
        Ok(plans)
    }

    /// Whether files or a document were named.
    pub(super) fn is_limited(&self) -> bool {
        self.document.is_some() || !self.scenarios.is_empty()
    }
}

fn shipped() -> Result<Vec<Plan>> {
    let mut plans = Vec::new();
    for (name, text) in SHIPPED.iter().filter(|(name, _)| name.ends_with(".toml")) {
        plans.extend(scenario::read_text(name, text)?);
    }
    Ok(plans)
}

/// Scenarios that patterns mean, in their own order, and whether each is meant by its full id.
///
/// # Errors
/// The first pattern that means none, with similar ids.
pub(super) fn select(plans: Vec<Plan>, patterns: &[String]) -> Result<Vec<(Plan, bool)>> {
    let unknown = |pattern: &&String| !plans.iter().any(|plan| is_meant(&plan.id, pattern));
    if let Some(unknown) = patterns.iter().find(unknown) {
        bail!(
            "there is no scenario `{unknown}`: {}",
            instead(&plans, unknown)
        );
    }
    // What is an id means that scenario alone, also where it is the beginning of others.
    let (ids, groups): (Vec<_>, Vec<_>) = patterns
        .iter()
        .partition(|pattern| plans.iter().any(|plan| plan.id == **pattern));
    let meant = plans.into_iter().filter_map(|plan| {
        let is_named = ids.contains(&&plan.id);
        let is_meant = is_named || groups.iter().any(|pattern| is_meant(&plan.id, pattern));
        is_meant.then_some((plan, is_named))
    });
    Ok(meant.collect())
}

/// Whether a pattern means an id: itself, its beginning up to a `-`, or with `*` and `?` as in a shell.
fn is_meant(id: &str, pattern: &str) -> bool {
    let of_group = id
        .strip_prefix(pattern)
        .is_some_and(|rest| rest.starts_with('-'));
    id == pattern
        || of_group
        || (pattern.contains(['*', '?']) && fits(id.as_bytes(), pattern.as_bytes()))
}

fn fits(id: &[u8], pattern: &[u8]) -> bool {
    match (pattern.split_first(), id.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=id.len()).any(|skipped| fits(&id[skipped..], rest)),
        (Some((b'?', rest)), Some((_, left))) => fits(left, rest),
        (Some((wanted, rest)), Some((found, left))) => wanted == found && fits(left, rest),
        _ => false,
    }
}

fn instead(plans: &[Plan], unknown: &str) -> String {
    let ids = plans.iter().map(|plan| plan.id.as_str());
    let mut similar: Vec<_> = ids
        .map(|id| {
            let alike = strsim::jaro_winkler(&id.to_lowercase(), &unknown.to_lowercase());
            (alike, id)
        })
        .filter(|(alike, _)| *alike >= SIMILAR)
        .collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    let similar: Vec<_> = similar.iter().map(|(_, id)| *id).take(SHOWN).collect();
    if similar.is_empty() {
        "`pk3c-ccp lab list` shows all".to_owned()
    } else {
        format!(
            "did you mean {}? `pk3c-ccp lab list` shows all",
            similar.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_scenarios_can_be_read_and_have_ids_of_their_own() {
        let plans = shipped().unwrap();
        assert!(plans.len() > 30, "{}", plans.len());
        let mut ids: Vec<_> = plans.iter().map(|plan| &plan.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), plans.len());
    }

    #[test]
    fn a_pattern_means_an_id_a_group_or_what_a_shell_would_take() {
        for (id, pattern, meant) in [
            ("B1-1", "B1-1", true),
            ("B1-1", "B1", true),
            ("B10-1", "B1", false),
            ("P10", "P1", false),
            ("P10", "P*", true),
            ("P10", "P?", false),
            ("C10-2", "*-2", true),
            ("C10-2", "*", true),
            ("C10-2", "c10-2", false),
        ] {
            assert_eq!(is_meant(id, pattern), meant, "{id} {pattern}");
        }
    }
}
