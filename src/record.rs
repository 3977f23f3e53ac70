//! Records of what went in and out of the controllers: written by `run --record`, read by `replay`.
//!
//! A record is a text file of JSON lines. The first line is [`Line::Header`]; every later line is one of the other
//! kinds, told apart by its `"line"` member. **Version 1**:
//!
//! | `line` | members |
//! |---|---|
//! | `header` | `format` "pk3c-record", `version`, `params` (flag → value), `fields` (names of `raw`, in order) |
//! | `start` | `flow` (number, unique in the file), `at_s` (s since the record began), `sock_id`, `local` and `remote` (address and port), `mss` and `init_cwnd` (bytes), `seed`, `resume` ([bytes/s, srtt µs], or null for a new flow), and `decision` |
//! | `readopt` | `flow`, `at_s`, `init_cwnd`, `resume` as above, `decision`: the same controller goes on after a fallback |
//! | `report` | `flow`, `raw` (the 16 fields of [`crate::program::RawReport`]), `stale` (true if it came after a newer plan was sent; absent otherwise), `decision` |
//! | `params` | `flow`, `params`: the flow's parameters change; with `flow` null, those of the flows that start later |
//! | `end` | `flow`, `at_s` |
//!
//! A `decision` holds `phase`, `reason`, `rate` (bytes/s), `cwnd` (bytes), and `told`: null, `{"run": {plan, rates, hold,
//! mi_us}}`, `{"steer": {rate, mi_us}}` or `"window"`. Rates are rounded to whole bytes per second, as they are sent.
//! Everything else is an input. `docs/records.md` explains each member.
//!
//! Since a controller is a function of parameters, seed and reports, [`Replay`] repeats every decision of a record.
//! Readers ignore members they do not know; a change of meaning raises the version.

mod accept;
mod read;
mod replay;
mod write;

pub use accept::{AcceptError, accept};
pub use read::{Reader, RecordError};
pub use replay::{Input, Measured, Replay, Step, align};
pub use write::Recorder;

use crate::params::{ParamError, Params};
use crate::plan::{Command, Decision};
use crate::units::{Micros, Rate};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Version of the format.
pub const VERSION: u32 = 1;
const FORMAT: &str = "pk3c-record";

/// A decision as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Name of the phase after it.
    pub phase: Cow<'static, str>,
    /// Name of its reason.
    pub reason: Cow<'static, str>,
    /// Central rate, bytes/s.
    pub rate: u32,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// What the datapath was told.
    pub told: Option<Told>,
}

/// A command as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// A new plan.
    Run {
        /// Its number.
        plan: u32,
        /// The four rates, bytes/s.
        rates: [u32; 4],
        /// The rate afterwards, bytes/s.
        hold: u32,
        /// Length of each interval, µs.
        mi_us: u32,
    },
    /// One rate at once.
    Steer {
        /// Bytes/s.
        rate: u32,
        /// Length of the intervals, µs.
        mi_us: u32,
    },
    /// The window only.
    Window,
}

impl From<&Decision> for Decided {
    fn from(decision: &Decision) -> Self {
        Self {
            phase: decision.phase.name().into(),
            reason: decision.reason.name().into(),
            rate: decision.rate.to_wire(),
            cwnd: decision.cwnd.get(),
            told: decision.command.map(|command| match command {
                Command::Run { plan, .. } => Told::Run {
                    plan: plan.number,
                    rates: plan.rates.map(Rate::to_wire),
                    hold: plan.hold.to_wire(),
                    mi_us: plan.length.to_wire(),
                },
                Command::Steer { rate, length, .. } => Told::Steer {
                    rate: rate.to_wire(),
                    mi_us: length.to_wire(),
                },
                Command::Window { .. } => Told::Window,
            }),
        }
    }
}

/// Rate (bytes/s) and smoothed RTT (µs) of a flow that was running.
pub type Resumed = Option<(u32, u64)>;

/// Parameters, flag → value.
pub type Texts = BTreeMap<Cow<'static, str>, String>;

/// Parameters as recorded.
#[must_use]
pub fn texts(params: &Params) -> Texts {
    params
        .to_text()
        .map(|(flag, value)| (flag.into(), value))
        .collect()
}

/// The inverse of [`texts`]; a parameter that the record does not name has its default.
///
/// # Errors
/// If a parameter is unknown here, or its value is not allowed.
pub fn params(texts: &Texts) -> Result<Params, ParamError> {
    let mut params = Params::default();
    for (flag, value) in texts {
        params.set(flag, value)?;
    }
    Ok(params)
}

/// One line of a record. The members are explained at the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
#[allow(missing_docs)] // the table above is their documentation
pub enum Line {
    Header {
        format: Cow<'static, str>,
        version: u32,
        params: Texts,
        fields: Vec<Cow<'static, str>>,
    },
    Start {
        flow: u64,
        at_s: f64,
        sock_id: u32,
        local: SocketAddr,
        remote: SocketAddr,
        mss: u64,
        init_cwnd: u64,
        seed: u64,
        resume: Resumed,
        decision: Decided,
    },
    Readopt {
        flow: u64,
        at_s: f64,
        init_cwnd: u64,
        resume: Resumed,
        decision: Decided,
    },
    Params {
        flow: Option<u64>,
        params: Texts,
    },
    Report {
        flow: u64,
        raw: [u64; 16],
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stale: bool,
        decision: Decided,
    },
    End {
        flow: u64,
        at_s: f64,
    },
}

/// Rounds to what a record holds, so that a replay starts from the same value.
#[must_use]
pub fn resumed(resume: Option<(Rate, Micros)>) -> Resumed {
    resume.map(|(rate, srtt)| (rate.to_wire(), srtt.us()))
}

/// The inverse of [`resumed`].
#[must_use]
pub fn resume(resumed: Resumed) -> Option<(Rate, Micros)> {
    resumed.map(|(rate, srtt)| (Rate::from_bytes_per_sec(f64::from(rate)), Micros::new(srtt)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Controller, FlowStart};
    use crate::estimate::tests::report;
    use crate::plan::Reason;
    use crate::units::Bytes;
    use std::io;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pk3c-record-{name}-{}", std::process::id()))
    }

    /// Records a flow fed by hand-made reports and returns the file's path and the decisions.
    fn record(name: &str, limit_bytes: u64) -> (PathBuf, usize) {
        let path = temporary(name);
        let params = Params {
            start_rate: Rate::from_mbit(8.0),
            ..Params::default()
        };
        let recorder = Recorder::create(&path, limit_bytes, &params).unwrap();
        let start = FlowStart {
            mss: Bytes::new(1000),
            init_cwnd: Bytes::new(10_000),
            resume: None,
        };
        let (mut controller, first) = Controller::new(Arc::new(params), 7, start);
        let decision = Decided::from(&first);
        recorder.write(&Line::Start {
            flow: 1,
            at_s: 0.0,
            sock_id: 5,
            local: ([10, 0, 0, 1], 4000).into(),
            remote: ([10, 0, 0, 2], 80).into(),
            mss: 1000,
            init_cwnd: 10_000,
            seed: 7,
            resume: None,
            decision,
        });
        let mut plan = 0;
        for round in 0..60_u64 {
            let acks: Vec<_> = (0..30)
                .map(|i| {
                    (
                        i * 1000,
                        20_000 + 30 * i * (round % 3),
                        u64::from(i == round),
                    )
                })
                .collect();
            let raw = report(
                u64::from(plan) * 32 + 1 + round % 4,
                round * 50_000,
                &acks,
                30_000,
            );
            let decision = controller.on_report(&raw);
            if let Some(Command::Run { plan: new, .. }) = decision.command {
                plan = new.number;
            }
            recorder.write(&Line::Report {
                flow: 1,
                raw: raw.fields(),
                stale: decision.reason == Reason::Stale,
                decision: Decided::from(&decision),
            });
        }
        let slower = Params {
            max_rate: Rate::from_mbit(6.0),
            ..Params::default()
        };
        recorder.write(&Line::Params {
            flow: Some(1),
            params: texts(&slower),
        });
        controller.set_params(Arc::new(slower));
        let again = controller.readopt(
            Bytes::new(50_000),
            Some((Rate::from_mbit(4.0), Micros::new(30_000))),
        );
        let resume = Some((500_000, 30_000));
        recorder.write(&Line::Readopt {
            flow: 1,
            at_s: 3.0,
            init_cwnd: 50_000,
            resume,
            decision: Decided::from(&again),
        });
        recorder.write(&Line::End { flow: 1, at_s: 3.0 });
        (path, 62)
    }

    fn text(name: &str) -> (String, usize) {
        let (path, decisions) = record(name, 1 << 20);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        (text, decisions)
    }

    fn changes(flag: &str, value: &str) -> Vec<(String, String)> {
        vec![(flag.to_owned(), value.to_owned())]
    }

    /// Every decision, or the first error.
    fn steps(text: &str, changes: &[(String, String)]) -> Result<Vec<Step>, RecordError> {
        Replay::new(text.as_bytes(), changes)?.collect()
    }

    #[test]
    fn a_record_replays_to_the_same_decisions() {
        let (text, decisions) = text("replay");
        let same = steps(&text, &[]).unwrap();
        assert_eq!(same.len(), decisions);
        assert!(
            same.iter()
                .all(|step| !step.differs() && step.changed.is_none())
        );
        let times: Vec<_> = same.iter().map(|step| step.at_s).collect();
        assert!(times.is_sorted() && times[30] > 0.5, "{times:?}");
        // A record that was tampered with does not.
        let at = text.rfind("\"cwnd\":").unwrap();
        let tampered = format!("{}\"cwnd\":1{}", &text[..at], &text[at + 7..]);
        let differ = steps(&tampered, &[])
            .unwrap()
            .iter()
            .filter(|step| step.differs())
            .count();
        assert_eq!(differ, 1);
    }

    #[test]
    fn a_change_is_judged_at_every_decision_from_the_recorded_history() {
        let (text, decisions) = text("change");
        let all = steps(&text, &changes("startup-gain", "1.25")).unwrap();
        assert_eq!(all.len(), decisions);
        assert!(
            all.iter().all(|step| !step.differs()),
            "the record itself is as it was"
        );
        let grown: Vec<_> = all
            .iter()
            .filter(|step| step.recorded.reason == "grow")
            .collect();
        assert!(!grown.is_empty());
        for step in grown {
            assert!(
                step.changed.as_ref().unwrap().rate <= step.recorded.rate,
                "{step:?}"
            );
        }
        let slower = all
            .iter()
            .filter(|step| step.recorded.reason == "grow" && step.would_change());
        assert!(slower.count() > 0, "some growth was bounded by the gain");
        let none = steps(&text, &changes("startup-gain", "2")).unwrap();
        assert!(
            none.iter()
                .all(|step| step.changed.is_some() && !step.would_change())
        );
        let conflict = steps(&text, &changes("min-rate", "1gbit")).unwrap_err();
        assert!(
            matches!(conflict, RecordError::Change { line: 1, .. }),
            "{conflict}"
        );
    }

    #[test]
    fn accepting_changes_decisions_and_nothing_else() {
        let (text, _) = text("accept");
        let other = text.replace("\"reason\":\"wait\"", "\"reason\":\"dawdle\"");
        let changed = text.matches("\"reason\":\"wait\"").count();
        assert!(changed > 5);
        let mut written = Vec::new();
        let count = accept(other.as_bytes(), &mut written, || true).unwrap();
        assert_eq!(count, Some(changed));
        assert_eq!(String::from_utf8(written).unwrap(), text);
        let mut lines = 0;
        let stopped = accept(other.as_bytes(), io::sink(), || {
            lines += 1;
            lines < 10
        });
        assert_eq!(stopped.unwrap(), None);
    }

    #[test]
    fn a_plan_more_or_less_leaves_the_later_reports_current() {
        // An algorithm whose plans had other numbers made this record.
        let (text, _) = text("align");
        let renumbered: Vec<_> = text
            .lines()
            .map(|text| match serde_json::from_str(text).unwrap() {
                Line::Report {
                    flow,
                    mut raw,
                    stale,
                    decision,
                } => {
                    if raw[0] >= 32 {
                        raw[0] += 32 * 5;
                    }
                    let line = Line::Report {
                        flow,
                        raw,
                        stale,
                        decision,
                    };
                    serde_json::to_string(&line).unwrap()
                }
                _ => text.to_owned(),
            })
            .collect();
        let all = steps(&renumbered.join("\n"), &[]).unwrap();
        assert!(all.iter().all(|step| !step.differs()));
    }

    #[test]
    fn the_limit_stops_the_record_and_leaves_whole_lines() {
        let (path, _) = record("limit", 8000);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(text.len() <= 8000 && text.len() > 4000, "{}", text.len());
        assert!(text.ends_with('\n'));
        assert!(steps(&text, &[]).unwrap().len() > 5);
    }

    /// What is wrong with a text.
    fn refusal(text: &str) -> String {
        steps(text, &[]).unwrap_err().to_string()
    }

    #[test]
    fn bad_records_are_refused_with_line_fault_and_remedy() {
        let (text, _) = text("refuse");
        let header = text.lines().next().unwrap();
        let second = text.lines().nth(1).unwrap();
        let third = text.lines().nth(2).unwrap();
        let cut = &text[..text.len() - 20];
        let last = text.lines().count();
        let cases = [
            (String::new(), vec!["the file is empty"]),
            (
                "{}".to_owned(),
                vec!["line 1 is not the header", "run --record"],
            ),
            (
                "\u{1f}\u{8b} no text".to_owned(),
                vec!["line 1 is not the header"],
            ),
            ("x".repeat(1 << 20), vec!["line 1 is not the header"]),
            (
                text.replacen("\"version\":1", "\"version\":7", 1),
                vec![
                    "line 1",
                    "version 7",
                    "reads version 1",
                    "use the pk3c-ccp that wrote it",
                ],
            ),
            (
                text.replacen("Report.sdur", "Report.other", 1),
                vec!["line 1", "Report.other"],
            ),
            (
                text.replacen("probe-step", "leap", 1),
                vec!["line 1", "--leap"],
            ),
            (
                text.replacen("\"hb-loss\":\"5%\"", "\"hb-loss\":\"99%\"", 1),
                vec!["line 1", "0% to 50%"],
            ),
            (
                cut.to_owned(),
                vec!["is cut off", "sed -i", &format!("line {last}")],
            ),
            (
                format!("{header}\n{second}\n{{\"line\":\"rep\n{third}\n"),
                vec!["line 3", "restore it"],
            ),
            (
                format!("{header}\n{third}\n"),
                vec!["line 2", "flow 1", "not started"],
            ),
            (
                format!("{header}\n{second}\n{second}\n"),
                vec!["line 3", "flow 1", "runs already"],
            ),
            (
                format!("{text}{text}"),
                vec![&format!("line {}", last + 1), "second header"],
            ),
            (
                format!("{header}\n{}\n", " x".repeat(1 << 20)),
                vec!["line 2 has more than"],
            ),
        ]
        .map(|(text, parts)| {
            (
                text,
                parts.into_iter().map(str::to_owned).collect::<Vec<_>>(),
            )
        });
        for (text, parts) in cases {
            let said = refusal(&text);
            for part in parts {
                assert!(said.contains(&part), "{part} is not in: {said}");
            }
        }
        // Not an error: a last line without its end, empty lines, members of later versions.
        let odd = text
            .replace("\"stale\"", "\"odd\":[1],\"stale\"")
            .replace('\n', "\n\n");
        assert!(steps(odd.trim_end(), &[]).is_ok());
    }
}
