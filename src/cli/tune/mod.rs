//! `pk3c-ccp tune`: the kernel's settings as PK3C wants them, and back.
//!
//! Nothing changes without `--apply`. What a setting was is saved first; so `--revert` restores it exactly, also after
//! a crash half-way, and a second `--apply` does not take our own value for the original. A value that is larger
//! already, or that somebody else has set meanwhile, is left alone. Both the settings and what is saved are gone with
//! the next boot: lasting settings belong into `/etc/sysctl.d`.

mod saved;
mod settings;

use anyhow::{Context, Result, anyhow, bail};
use saved::{Change, Folder};
use serde::Serialize;
use settings::{ALL, Setting, Verdict};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// Options of `pk3c-ccp tune`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TuneArgs {
    /// Change the settings until --revert or the next boot (root)
    #[arg(long, conflicts_with = "revert")]
    apply: bool,
    /// Put back what --apply changed (root)
    #[arg(long)]
    revert: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the settings, changes them, or puts them back.
pub(crate) fn run(args: &TuneArgs) -> Result<()> {
    let tuner = Tuner {
        settings: "/proc/sys".into(),
        saved: "/run/pk3c-ccp-tune".into(),
    };
    if args.revert {
        let reverted = tuner.revert()?;
        return show(args.json, "reverted", &reverted, || {
            describe_reverted(&reverted)
        });
    }
    if args.apply {
        tuner.apply()?;
    }
    let rows = tuner.look();
    show(args.json, "settings", &rows, || describe(&rows))
}

fn show<T: Serialize>(json: bool, name: &str, rows: &[T], text: impl Fn() -> String) -> Result<()> {
    let text = if json {
        serde_json::json!({ name: rows }).to_string()
    } else {
        text()
    };
    Ok(super::show(&(text + "\n"))?)
}

/// The settings of a machine.
#[derive(Debug)]
struct Tuner {
    /// Where the kernel's settings are, `/proc/sys`.
    settings: PathBuf,
    /// Folder that keeps what they were, until the next boot.
    saved: PathBuf,
}

/// A setting as it is.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    current: Option<String>,
    #[serde(flatten)]
    verdict: Verdict,
    /// What it was before `--apply`; absent if `--apply` has not changed it, and for whoever may not read that.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    why: &'static str,
    source: &'static str,
}

/// A setting after `--revert`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Reverted {
    name: String,
    current: String,
    /// Otherwise somebody else has changed it since, and it was left alone.
    restored: bool,
}

impl Tuner {
    fn file(&self, name: &str) -> PathBuf {
        self.settings.join(name.replace('.', "/"))
    }

    /// The value in one form: words with single spaces.
    fn value(&self, name: &str) -> Result<String> {
        let file = self.file(name);
        let text = fs::read_to_string(&file)
            .with_context(|| format!("cannot read {name} ({})", file.display()))?;
        Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Writes a value and checks that the kernel has taken it.
    fn set(&self, name: &str, value: &str) -> Result<()> {
        let file = self.file(name);
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&file)
            .and_then(|mut open| open.write_all(value.as_bytes()))
            .with_context(|| format!("cannot set {name} to {value} ({})", file.display()))?;
        let taken = self.value(name)?;
        if taken != value {
            bail!("{name} is {taken} after {value} was written: the kernel does not take it");
        }
        Ok(())
    }

    /// All settings as they are.
    fn look(&self) -> Vec<Row> {
        // For users who may not look, the settings alone.
        let changes = Folder::open(&self.saved)
            .and_then(|folder| folder.map_or_else(|| Ok(Vec::new()), |folder| folder.read()))
            .unwrap_or_default();
        self.rows(&changes)
    }

    fn rows(&self, changes: &[Change]) -> Vec<Row> {
        let row = |setting: &Setting| {
            let current = self.value(setting.name).ok();
            let verdict = current
                .as_deref()
                .map_or(Verdict::Unknown, |current| setting.judge(current));
            let change = changes.iter().find(|change| change.name == setting.name);
            Row {
                name: setting.name,
                current,
                verdict,
                before: change.map(|change| change.before.clone()),
                why: setting.why,
                source: setting.source,
            }
        };
        ALL.iter().map(row).collect()
    }

    /// Changes what is too small, after saving what it was.
    fn apply(&self) -> Result<()> {
        let folder = Folder::create(&self.saved)?;
        let mut changes = folder.read()?;
        let mut wanted = Vec::new();
        for row in self.rows(&changes) {
            let (Some(current), Verdict::Change(value)) = (row.current, row.verdict) else {
                continue;
            };
            match changes.iter_mut().find(|change| change.name == row.name) {
                Some(change) => change.again(&current, &value),
                None => changes.push(Change {
                    name: row.name.to_owned(),
                    before: current,
                    ours: vec![value.clone()],
                }),
            }
            wanted.push((row.name, value));
        }
        if wanted.is_empty() {
            return if changes.is_empty() {
                folder.remove()
            } else {
                Ok(())
            };
        }
        folder.write(&changes)?;
        let results = wanted.iter().map(|(name, value)| self.set(name, value));
        all(results, "pk3c-ccp tune --revert puts back what was changed")
    }

    /// Puts back what `apply` changed.
    fn revert(&self) -> Result<Vec<Reverted>> {
        let Some(folder) = Folder::open(&self.saved)? else {
            return Ok(Vec::new());
        };
        let mut reverted = Vec::new();
        let mut results = Vec::new();
        for Change { name, before, ours } in folder.read()? {
            // One of ours or, after a crash between saving and changing, the original.
            let result = self.value(&name).and_then(|current| {
                if ours.contains(&current) {
                    self.set(&name, &before)?;
                }
                let current = self.value(&name)?;
                reverted.push(Reverted {
                    restored: current == before,
                    name,
                    current,
                });
                Ok(())
            });
            results.push(result);
        }
        let kept = format!("what they were stays in {}", self.saved.display());
        all(results.into_iter(), &kept)?;
        folder.remove()?;
        Ok(reverted)
    }
}

impl Change {
    /// A further change to `value`, now that the setting is `current`.
    fn again(&mut self, current: &str, value: &str) {
        if !self.ours.iter().any(|ours| ours == current) {
            // The original, or what somebody has chosen since.
            current.clone_into(&mut self.before);
            self.ours.clear();
        }
        if !self.ours.iter().any(|ours| ours == value) {
            self.ours.push(value.to_owned());
        }
    }
}

/// One error of several, with what remains to be done.
fn all(results: impl Iterator<Item = Result<()>>, remedy: &str) -> Result<()> {
    let failed: Vec<_> = results
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(anyhow!("{}; {remedy}", failed.join("; ")))
    }
}

fn describe(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut to_change = 0;
    for row in rows {
        let current = row.current.as_deref().unwrap_or("not there");
        let (mark, wanted) = match &row.verdict {
            Verdict::Ok => ("ok", String::new()),
            Verdict::Leave => ("leave", String::new()),
            Verdict::Unknown => ("unknown", String::new()),
            Verdict::Change(value) => ("change", format!(", wanted {value}")),
        };
        to_change += usize::from(mark == "change");
        let before = row.before.as_ref();
        let before = before.map_or_else(String::new, |before| format!(", before {before}"));
        text += &format!(
            "{mark:<7} {} = {current}{wanted}{before}\n        {} [{}]\n",
            row.name, row.why, row.source
        );
    }
    text += &match to_change {
        0 => "nothing to change".to_owned(),
        count => {
            format!("{count} to change: pk3c-ccp tune --apply; --revert or the next boot undoes it")
        }
    };
    text
}

fn describe_reverted(reverted: &[Reverted]) -> String {
    if reverted.is_empty() {
        return "nothing to revert: tune --apply has changed nothing since the last boot or revert"
            .to_owned();
    }
    let line = |one: &Reverted| {
        let what = if one.restored {
            "as before"
        } else {
            "somebody else has changed it since, left alone"
        };
        format!("{} = {}: {what}", one.name, one.current)
    };
    reverted.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
