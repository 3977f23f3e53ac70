//! Reading the results of directories.
//!
//! A directory holds one JSON file for each run; other files in it are none of ours. A file that cannot be read does
//! not stop a report over the others, but is named in it: results that vanish in silence would make a table lie.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::lab::result::{FORMAT, RunResult};

/// Why there is nothing to report.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A directory cannot be listed.
    #[error("cannot read the directory {}; give a directory that `lab run --out` wrote", path.display())]
    Directory {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// None of the files is a result.
    #[error("no results in {0}; `pk3c-ccp lab run ID --out DIR` makes some{1}")]
    None(String, String),
}

/// A run and where it is from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub run: RunResult,
}

/// The results of some directories.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Runs, void ones too, by scenario, scheme and seed in natural order (B2 before B10).
    pub runs: Vec<Loaded>,
    /// Files that should be results and are not, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// Reads all results of directories, or single files.
///
/// # Errors
/// If a directory cannot be read, or if there is no result at all.
pub fn read(places: &[impl AsRef<Path>]) -> Result<Results, ReadError> {
    let mut results = Results::default();
    let mut seen = BTreeSet::new();
    for place in places {
        for path in files(place.as_ref())? {
            // The same place given twice must not count its runs twice.
            if !seen.insert(fs::canonicalize(&path).unwrap_or_else(|_| path.clone())) {
                continue;
            }
            match load(&path) {
                Ok(Some(run)) => results.runs.push(Loaded { path, run }),
                Ok(None) => {}
                Err(reason) => results.unreadable.push((path, reason)),
            }
        }
    }
    if results.runs.is_empty() {
        let names: Vec<_> = places
            .iter()
            .map(|place| place.as_ref().display().to_string())
            .collect();
        let first = results.unreadable.first();
        let reason = first.map(|(path, reason)| format!(" ({}: {reason})", path.display()));
        return Err(ReadError::None(
            names.join(", "),
            reason.unwrap_or_default(),
        ));
    }
    results.runs.sort_by_cached_key(|loaded| {
        let inputs = &loaded.run.inputs;
        (
            natural(&inputs.scenario),
            natural(&inputs.scheme),
            inputs.seed,
            loaded.path.clone(),
        )
    });
    Ok(results)
}

fn files(place: &Path) -> Result<Vec<PathBuf>, ReadError> {
    if place.is_file() {
        return Ok(vec![place.to_owned()]);
    }
    let failed = |source| ReadError::Directory {
        path: place.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(place).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
            && path.is_file()
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A result; `None` for JSON that is something else.
fn load(path: &Path) -> Result<Option<RunResult>, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("no JSON: {error}"))?;
    if value.get("inputs").is_none() {
        return Ok(None);
    }
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    if format != Some(u64::from(FORMAT)) {
        let found = format.map_or("none".to_owned(), |format| format.to_string());
        return Err(format!(
            "format {found}, this program reads {FORMAT}: repeat the run"
        ));
    }
    // Not from the value: its errors have no line.
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// A key that sorts numbers within names by their value.
pub(crate) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, u64)> = vec![Default::default()];
    let mut in_number = false;
    for letter in name.chars() {
        let last = parts.len() - 1;
        match letter.to_digit(10) {
            Some(digit) => {
                parts[last].1 = parts[last]
                    .1
                    .saturating_mul(10)
                    .saturating_add(digit.into());
                in_number = true;
            }
            None if in_number => {
                parts.push((letter.to_string(), 0));
                in_number = false;
            }
            None => parts[last].0.push(letter),
        }
    }
    parts
}

impl Results {
    /// What a reader of any figure of them should know: files that were not read, several revisions, kernels or
    /// forms in one comparison.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self
            .unreadable
            .iter()
            .map(|(path, reason)| format!("{} was not read: {reason}", path.display()))
            .collect();
        let mut differing = |what: &str, of: fn(&RunResult) -> &str| {
            let values: BTreeSet<_> = self.runs.iter().map(|loaded| of(&loaded.run)).collect();
            if values.len() > 1 {
                let values: Vec<_> = values.into_iter().collect();
                warnings.push(format!("mixed {what}: {}", values.join(", ")));
            }
        };
        differing("revisions", |run| &run.conditions.revision);
        differing("kernels", |run| &run.conditions.kernel);
        differing("backends", |run| &run.inputs.backend);
        differing(
            "forms",
            |run| if run.inputs.quick { "quick" } else { "full" },
        );
        let quick = self
            .runs
            .iter()
            .filter(|loaded| loaded.run.inputs.quick)
            .count();
        if quick > 0 {
            warnings.push(format!(
                "{quick} of {} runs are short forms: they show that it works, and do not compare with published figures",
                self.runs.len()
            ));
        }
        let dirty = self
            .runs
            .iter()
            .filter(|loaded| loaded.run.conditions.revision.ends_with("-dirty"));
        match dirty.count() {
            0 => {}
            count => warnings.push(format!(
                "{count} of {} runs are of a tree with uncommitted changes",
                self.runs.len()
            )),
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::sample::measured;

    fn place(name: &str) -> PathBuf {
        let place =
            std::env::temp_dir().join(format!("pathlab-read-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        place
    }

    fn write(place: &Path, name: &str, text: &str) {
        fs::write(place.join(name), text).unwrap();
    }

    #[test]
    fn results_are_read_in_order_and_others_are_named() {
        let place = place("order");
        for (id, scheme, seed) in [("B10", "cubic", 1), ("B2", "pk3c", 2), ("B2", "cubic", 1)] {
            let run = measured(id, scheme, seed, 40.0);
            let name = format!("{id}-{scheme}-{seed}.json");
            write(&place, &name, &serde_json::to_string(&run).unwrap());
        }
        write(&place, "broken.json", "{\"inputs\": ");
        write(&place, "old.json", "{\"format\": 0, \"inputs\": {}}");
        write(&place, "suite.json", "{\"progress\": 3}");
        write(&place, "notes.txt", "no result");
        // The same place twice is the same results once.
        let results = read(&[&place, &place]).unwrap();
        fs::remove_dir_all(&place).unwrap();
        let order: Vec<_> = results
            .runs
            .iter()
            .map(|loaded| {
                (
                    loaded.run.inputs.scenario.as_str(),
                    loaded.run.inputs.scheme.as_str(),
                )
            })
            .collect();
        assert_eq!(order, [("B2", "cubic"), ("B2", "pk3c"), ("B10", "cubic")]);
        let warnings = results.warnings();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("broken.json was not read: no JSON"));
        assert!(warnings[1].contains("old.json was not read: format 0, this program reads 1"));
    }

    #[test]
    fn an_empty_or_missing_place_is_an_error_that_says_what_to_do() {
        let place = place("empty");
        let error = read(&[&place]).unwrap_err().to_string();
        fs::remove_dir_all(&place).unwrap();
        assert!(
            error.contains("no results in") && error.contains("lab run"),
            "{error}"
        );
        let error = read(&[&place]).unwrap_err().to_string();
        assert!(error.contains("cannot read the directory"), "{error}");
    }

    #[test]
    fn mixed_revisions_are_flagged() {
        let mut results = Results::default();
        for (seed, revision) in [(1, "0123abc"), (2, "0123abd-dirty")] {
            let mut run = measured("P1", "cubic", seed, 40.0);
            run.conditions.revision = revision.into();
            results.runs.push(Loaded {
                path: PathBuf::new(),
                run,
            });
        }
        assert_eq!(
            results.warnings(),
            [
                "mixed revisions: 0123abc, 0123abd-dirty",
                "1 of 2 runs are of a tree with uncommitted changes"
            ]
        );
    }

    #[test]
    fn names_sort_by_their_numbers() {
        let mut names = ["P10", "P2", "C10", "G9a", "B1-6", "B1-3+3", "P1"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["B1-3+3", "B1-6", "C10", "G9a", "P1", "P2", "P10"]);
    }
}
