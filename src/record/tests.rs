use super::*;
use crate::controller::{Controller, FlowStart};
use crate::ensemble::{Heard, Known};
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
    record_hearing(None, name, limit_bytes)
}

/// The same of a flow that hears this of others with its first three reports.
fn record_hearing(known: Option<Heard>, name: &str, limit_bytes: u64) -> (PathBuf, usize) {
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
        let known = known.filter(|_| round < 3);
        controller.hear(known.map(Known::from));
        let decision = controller.on_report(&raw);
        if let Some(Command::Run { plan: new, .. }) = decision.command {
            plan = new.number;
        }
        recorder.write(&Line::Report {
            flow: 1,
            raw: raw.fields(),
            mss: None,
            stale: decision.reason == Reason::Stale,
            known: known.map(|(known, ..)| known),
            active: known.map(|(_, active, _)| active),
            carries: known.and_then(|(.., carries)| carries),
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
    controller.set_mss(Bytes::new(1400));
    let again = controller.readopt(
        Bytes::new(50_000),
        Some((Rate::from_mbit(4.0), Micros::new(30_000))),
    );
    let resume = Some((500_000, 30_000));
    recorder.write(&Line::Readopt {
        flow: 1,
        at_s: 3.0,
        mss: Some(1400),
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
                mss,
                stale,
                known,
                active,
                carries,
                decision,
            } => {
                if raw[0] >= 32 {
                    raw[0] += 32 * 5;
                }
                let line = Line::Report {
                    flow,
                    raw,
                    mss,
                    stale,
                    known,
                    active,
                    carries,
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
fn what_others_knew_is_an_input() {
    let (path, _) = record_hearing(
        Some(((15_000, 2_000_000, false), 2, Some(9_000_000))),
        "known",
        1 << 20,
    );
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let heard = ",\"known\":[15000,2000000,false],\"active\":2,\"carries\":9000000";
    assert_eq!(text.matches(heard).count(), 3);
    let differ = |text: &str, changes: &[_]| {
        let all = steps(text, changes).unwrap();
        all.iter().any(|step| {
            step.differs()
                || step
                    .changed
                    .as_ref()
                    .is_some_and(|changed| *changed != step.replayed)
        })
    };
    assert!(!differ(&text, &[]));
    assert!(differ(&text.replace(heard, ""), &[]));
    assert!(differ(&text, &changes("no-handbrake", "ensemble")));
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
