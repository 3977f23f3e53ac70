//! `pk3c-ccp replay` as a command: exit status, texts, and what it does to files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of one test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pk3c-replay-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn trace(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    dir.join(format!("{name}.jsonl"))
        .to_str()
        .unwrap()
        .to_owned()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pk3c-ccp"));
    command.arg("replay").args(args);
    command
}

/// Exit status, standard output and standard error.
fn replay(args: &[&str]) -> (i32, String, String) {
    ended(command(args).output().unwrap())
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[track_caller]
fn assert_has(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

/// The record with another rate in its 20th decision, whose line number is returned.
fn tampered(text: &str) -> (String, usize) {
    let at = text.match_indices("\"rate\":").nth(20).unwrap().0;
    let line = 1 + text[..at].matches('\n').count();
    (
        format!("{}\"rate\":9{}", &text[..at], &text[at + 7..]),
        line,
    )
}

#[test]
fn an_unchanged_record_is_confirmed() {
    let (status, out, err) = replay(&[&trace("clean"), &trace("loss-1")]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert_eq!(
        out.lines()
            .filter(|line| line.ends_with("all as recorded"))
            .count(),
        2,
        "{out}"
    );
    let (status, out, _) = replay(&["--json", &trace("clean")]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status, 0);
    assert_eq!(json["same"], true);
    assert!(json["files"][0]["decisions"].as_u64().unwrap() > 50);
    assert_eq!(json["files"][0]["differ"], 0);
}

#[test]
fn a_difference_is_shown_beside_what_was_recorded() {
    let folder = Folder::new("difference");
    let text = fs::read_to_string(trace("clean")).unwrap();
    let (other, line) = tampered(&text);
    let file = folder.file("other.jsonl", &other);
    let (status, out, _) = replay(&[&file]);
    assert_eq!(status, 1);
    assert_has(
        &out,
        &[
            &format!("line {line}, flow 1"),
            "recorded ",
            "now ",
            "1 of ",
            "mean rate",
        ],
    );
    let (status, out, _) = replay(&["--json", &file]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &json["same"]), (1, &Value::Bool(false)));
    assert_eq!(json["files"][0]["first"][0]["line"], line);
    let (status, out, _) = replay(&["--explain", &file]);
    assert_eq!(status, 1);
    assert_has(&out, &["differs; recorded: "]);
}

#[test]
fn a_parameter_s_effect_is_shown_and_changes_the_status() {
    let trace = trace("clean");
    let (status, out, _) = replay(&[
        "--param",
        "startup-gain=1.5",
        "--param",
        "hb-loss=6%",
        &trace,
    ]);
    assert_eq!(status, 1);
    assert_has(
        &out,
        &[
            "would change with --startup-gain 1.5 --hb-loss 6%",
            "startup grow",
            "mean rate",
        ],
    );
    // What the record has already changes nothing.
    let (status, out, _) = replay(&["--param", "startup-gain=2", &trace]);
    assert_eq!(status, 0, "{out}");
    assert_has(&out, &["none would change with --startup-gain 2"]);
    for (param, parts) in [
        ("warp=9", ["--warp", "no parameter"]),
        ("hb-loss=60%", ["--hb-loss 60%", "0% to 50%"]),
        ("hb-loss", ["NAME=VALUE", "--help"]),
        ("min-rate=1gbit", ["--min-rate 1gbit", "must not exceed"]),
    ] {
        let (status, _, err) = replay(&["--param", param, &trace]);
        assert_eq!(status, 2, "{err}");
        assert_has(&err, &parts);
    }
    let (status, _, err) = replay(&["--param", "startup-gain=1.5", "--accept", &trace]);
    assert_eq!(status, 2);
    assert_has(&err, &["--accept"]);
}

#[test]
fn accepting_restores_the_decisions_and_only_them() {
    let folder = Folder::new("accept");
    let text = fs::read_to_string(trace("clean")).unwrap();
    let file = folder.file("other.jsonl", &tampered(&text).0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.0.join("link.jsonl");
    std::os::unix::fs::symlink("other.jsonl", &link).unwrap();
    let (status, out, err) = replay(&["--accept", link.to_str().unwrap()]);
    assert_eq!(status, 0, "{err}");
    assert_has(&out, &["1 decisions were written"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "byte for byte");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert!(link.is_symlink());
    assert_eq!(
        fs::read_dir(&folder.0).unwrap().count(),
        2,
        "nothing is left beside it"
    );
    assert_eq!(replay(&[&file]).0, 0);
    // A record that cannot be read to its end is not touched.
    let cut = folder.file("cut.jsonl", &tampered(&text).0[..text.len() - 30]);
    let before = fs::read(&cut).unwrap();
    assert_eq!(replay(&["--accept", &cut]).0, 2);
    assert_eq!(fs::read(&cut).unwrap(), before);
    let mut child = command(&["--accept", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(tampered(&text).0.as_bytes())
        .unwrap();
    let (status, _, err) = ended(child.wait_with_output().unwrap());
    assert_eq!(status, 2);
    assert_has(&err, &["standard input", "instead of -"]);
}

#[test]
fn bad_records_are_named_with_line_fault_and_remedy() {
    let folder = Folder::new("bad");
    let text = fs::read_to_string(trace("clean")).unwrap();
    let lines = text.lines().count();
    let cases = [
        ("empty", String::new(), vec!["is empty", "run --record"]),
        (
            "other",
            "GET / HTTP/1.1\n".to_owned(),
            vec!["line 1", "run --record"],
        ),
        (
            "newer",
            text.replacen("\"version\":1", "\"version\":2", 1),
            vec!["line 1", "version 2", "version 1"],
        ),
        (
            "cut",
            text[..text.len() - 9].to_owned(),
            vec![&*format!("line {lines}"), "cut off", "sed -i"],
        ),
        (
            "broken",
            text.replacen("\"raw\":[", "\"raw\":[x", 9),
            vec!["line ", "record again"],
        ),
    ]
    .map(|(name, text, parts)| {
        (
            name,
            text,
            parts.into_iter().map(str::to_owned).collect::<Vec<_>>(),
        )
    });
    for (name, text, parts) in cases {
        let file = folder.file(name, &text);
        let (status, out, err) = replay(&[&file]);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        let parts: Vec<_> = parts
            .iter()
            .map(String::as_str)
            .chain([file.as_str()])
            .collect();
        assert_has(&err, &parts);
        let (status, out, _) = replay(&["--json", &file]);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(status, 2);
        assert!(json["files"][0]["error"].is_string(), "{out}");
    }
    let missing = folder.0.join("missing").to_str().unwrap().to_owned();
    let (status, _, err) = replay(&[&missing]);
    assert_eq!(status, 2);
    assert_has(&err, &[&missing, "No such file"]);
    let (status, _, err) = replay(&[folder.0.to_str().unwrap()]);
    assert_eq!(status, 2);
    assert_has(&err, &["folder", "*.jsonl"]);
    // Good files beside a bad one are still told of.
    let (status, out, err) = replay(&[&missing, &trace("clean")]);
    assert_eq!(status, 2);
    assert_has(&out, &["all as recorded"]);
    assert_has(&err, &[&missing]);
    assert_eq!(replay(&[]).0, 2);
}

#[test]
fn an_explanation_has_a_row_per_decision_and_the_reason_of_each_change() {
    let trace = trace("loss-1");
    let (status, out, _) = replay(&["--explain", &trace]);
    assert_eq!(status, 0);
    let decisions = fs::read_to_string(&trace)
        .unwrap()
        .matches("\"decision\":")
        .count();
    let rows = |text: &str| {
        text.lines()
            .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
            .count()
    };
    assert_eq!(rows(&out), decisions);
    assert_has(
        &out,
        &[
            "begins: 10.1.0.1",
            "% random",
            "=> startup: ",
            "The first RTT sample",
            " ms each",
        ],
    );
    let (status, part, _) = replay(&[
        "--explain",
        "--flow",
        "1",
        "--from",
        "2",
        "--to",
        "2500ms",
        &trace,
    ]);
    assert_eq!(status, 0);
    assert!((5..50).contains(&rows(&part)), "{part}");
    let (_, json, _) = replay(&["--explain", "--json", "--flow", "1", &trace]);
    let objects: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(objects.len() > 50 && objects.iter().all(|object| object["flow"] == 1));
    let loss: f64 = objects
        .iter()
        .filter_map(|object| object["measured"]["lost_pkts"].as_f64())
        .sum();
    assert!(loss > 50.0, "{loss}");
    assert_eq!(
        replay(&["--from", "2", &trace]).0,
        2,
        "--from is for --explain"
    );
}

#[test]
fn a_flow_that_is_not_in_the_record_is_told() {
    let clean = trace("clean");
    for arguments in [
        &["--flow", "1", "--flow", "3"][..],
        &["--flow", "3", "--json"],
    ] {
        let explain = [&["--explain"], arguments, &[&*clean]].concat();
        let (status, _, err) = replay(&explain);
        assert_eq!(status, 2);
        assert_has(&err, &["no flow has the number 3: there are 1, 2"]);
    }
}

#[test]
fn a_flow_is_found_by_the_number_that_status_has_of_it() {
    let clean = trace("clean");
    let told = |number| replay(&["--explain", "--json", "--flow", number, &clean]);
    let by_number = told("2");
    assert!(by_number.0 == 0 && by_number.1.contains("\"sock_id\":65538"));
    assert_eq!(told("65538"), by_number);
}

#[test]
fn a_result_that_cannot_be_written_is_no_difference() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&[&*trace("clean")]).stdout(full).output().unwrap();
    let (status, _, err) = ended(output);
    assert_eq!(status, 2);
    assert_has(&err, &["cannot write what was found"]);
}

#[test]
fn standard_input_is_read_and_a_closed_output_is_no_error() {
    let mut child = command(&["--explain", "-"])
        .stdin(fs::File::open(trace("clean")).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (status, _, err) = ended(child.wait_with_output().unwrap());
    assert_eq!((status, err.as_str()), (0, ""));
    let output = command(&["-"])
        .stdin(fs::File::open(trace("clean")).unwrap())
        .output()
        .unwrap();
    let (status, out, _) = ended(output);
    assert_eq!(status, 0);
    assert_has(&out, &["standard input: ", "all as recorded"]);
}
