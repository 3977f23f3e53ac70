//! `pk3c-ccp doctor`: says whether this machine can run the agent, and what to change.
//!
//! It only reads: `/proc`, `/sys` and what `ethtool -k` prints. It loads no BPF program, so "ok" means that everything
//! the agent needs is there, not that a start was tried.

mod checks;
mod host;

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;

/// Options of `pk3c-ccp doctor`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// How one check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// Nothing to do.
    Ok,
    /// The agent runs, but something costs performance or is probably not meant.
    Warning,
    /// The agent cannot run until the remedy is applied.
    Failed,
    /// This user may not look.
    Unknown,
}

impl Status {
    /// Every status, in the order of the summary.
    const ALL: [Self; 4] = [Self::Ok, Self::Warning, Self::Failed, Self::Unknown];
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        })
    }
}

/// What a check found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(found: impl Into<String>) -> Self {
        Self {
            status: Status::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn warning(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            status: Status::Warning,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn failed(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            status: Status::Failed,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn unknown(found: impl Into<String>) -> Self {
        let remedy = Some("run `pk3c-ccp doctor` as root".to_owned());
        Self {
            status: Status::Unknown,
            found: found.into(),
            remedy,
        }
    }
}

/// One question about the machine.
struct Check {
    name: &'static str,
    run: fn() -> Finding,
}

/// A check's answer, as the JSON output has it.
#[derive(Serialize)]
struct Answer {
    name: &'static str,
    #[serde(flatten)]
    finding: Finding,
}

/// All answers; the serialized field names are a public format.
#[derive(Serialize)]
struct Report {
    /// Nothing failed.
    usable: bool,
    checks: Vec<Answer>,
}

impl Report {
    fn of(checks: &[Check]) -> Self {
        let checks: Vec<_> = checks
            .iter()
            .map(|check| Answer {
                name: check.name,
                finding: (check.run)(),
            })
            .collect();
        let usable = checks
            .iter()
            .all(|answer| answer.finding.status != Status::Failed);
        Self { usable, checks }
    }

    /// What failed, with its remedy.
    fn failures(&self) -> impl Iterator<Item = String> {
        let failed = |answer: &&Answer| answer.finding.status == Status::Failed;
        self.checks.iter().filter(failed).map(|answer| {
            let remedy = answer.finding.remedy.as_ref();
            let remedy = remedy.map_or(String::new(), |remedy| format!("; {remedy}"));
            format!("{}: {}{remedy}", answer.name, answer.finding.found)
        })
    }

    fn count(&self, status: Status) -> usize {
        self.checks
            .iter()
            .filter(|answer| answer.finding.status == status)
            .count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .checks
            .iter()
            .map(|answer| answer.name.len())
            .max()
            .unwrap_or(0);
        for Answer { name, finding } in &self.checks {
            writeln!(f, "{name:width$}  {:7}  {}", finding.status, finding.found)?;
            if let Some(remedy) = &finding.remedy {
                writeln!(f, "{:width$}  {:7}  -> {remedy}", "", "")?;
            }
        }
        let counts: Vec<_> = Status::ALL
            .into_iter()
            .filter(|&status| self.count(status) > 0)
            .map(|status| format!("{} {status}", self.count(status)))
            .collect();
        let verdict = if self.usable {
            "pk3c-ccp can run here"
        } else {
            "pk3c-ccp cannot run here yet"
        };
        write!(f, "{verdict}: {}", counts.join(", "))
    }
}

/// Why the agent cannot run here, a sentence each; empty if it can.
pub(super) fn obstacles() -> Vec<String> {
    Report::of(checks::ALL).failures().collect()
}

/// Makes sure that an agent which is to be started will not be the second one.
///
/// # Errors
/// Names the one that runs.
pub(super) fn no_agent_runs() -> anyhow::Result<()> {
    match host::agents().first() {
        None => Ok(()),
        Some(pid) => anyhow::bail!(
            "an agent runs as process {pid}, and a second one would be refused: end it first (kill {pid})"
        ),
    }
}

/// Prints what was found; the exit code is non-zero if anything the agent needs is missing.
///
/// # Errors
/// Only if the report cannot be written.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let report = Report::of(checks::ALL);
    let text = if args.json {
        serde_json::to_string(&report)?
    } else {
        report.to_string()
    };
    super::show(&(text + "\n"))?;
    Ok(if report.usable {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &[Check] = &[
        Check {
            name: "kernel",
            run: || Finding::ok("6.12.1"),
        },
        Check {
            name: "bpffs",
            run: || Finding::failed("not mounted", "mount it"),
        },
        Check {
            name: "jit",
            run: || Finding::unknown("may not read"),
        },
    ];

    #[test]
    fn one_failure_makes_the_machine_unusable_and_is_shown_with_its_remedy() {
        let report = Report::of(MIXED);
        assert!(!report.usable);
        let table = report.to_string();
        assert!(
            table.contains("bpffs   failed   not mounted\n                 -> mount it\n"),
            "{table}"
        );
        assert!(
            table.ends_with("cannot run here yet: 1 ok, 1 failed, 1 unknown"),
            "{table}"
        );
    }

    #[test]
    fn what_this_user_may_not_see_is_no_failure() {
        assert!(
            Report::of(&[Check {
                name: "jit",
                run: || Finding::unknown("may not read")
            }])
            .usable
        );
    }

    #[test]
    fn json_carries_status_finding_and_remedy_only_where_there_is_one() {
        let json = serde_json::to_value(Report::of(MIXED)).unwrap();
        assert_eq!(json["usable"], false);
        assert_eq!(
            json["checks"][1],
            serde_json::json!({"name": "bpffs", "status": "failed", "found": "not mounted", "remedy": "mount it"})
        );
        assert!(json["checks"][0].get("remedy").is_none());
    }
}
