//! A value that a flag refuses: the program ends at once, without touching the kernel, and says
//! which flag, which value, and what is allowed. None of this needs root.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::agent::PROGRAM;
use common::{NOBODY, eventually, machine};
use pk3c_ccp::params::{Kind, SPECS};

/// Arguments are read before anything else happens.
const LIMIT: Duration = Duration::from_secs(5);

/// What the program said on its way to a failure.
fn refusal(command: &mut Command) -> std::io::Result<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut status = None;
    eventually(LIMIT, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said)?;
    let status =
        status.unwrap_or_else(|| panic!("{command:?} went on instead of refusing: {said}"));
    assert!(!status.success(), "{command:?} ended with success: {said}");
    Ok(said)
}

fn refusal_of_run(arguments: &[&str]) -> String {
    refusal(Command::new(PROGRAM).arg("run").args(arguments)).unwrap()
}

#[track_caller]
fn assert_names(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(
            said.contains(part),
            "the error does not name {part:?}: {said}"
        );
    }
}

/// A value of the right form that no parameter of this kind allows.
fn out_of_range(kind: Kind) -> &'static str {
    match kind {
        Kind::Rate => "1bit",
        Kind::Duration => "99999s",
        Kind::Ratio => "99999%",
        Kind::Number => "99999",
        Kind::Count => "99999999",
        Kind::Handbrakes | Kind::Algorithm | Kind::Switch => "everything",
    }
}

#[test]
fn every_parameter_refuses_a_value_out_of_range() {
    for spec in SPECS {
        let value = out_of_range(spec.kind);
        let said = refusal_of_run(&[&format!("--{}", spec.flag), value]);
        assert_names(&said, &[&format!("--{}", spec.flag), value, &spec.range()]);
    }
}

#[test]
fn every_parameter_refuses_a_malformed_value() {
    for spec in SPECS {
        for value in ["plenty", "", "-1", "1 2"] {
            let said = refusal_of_run(&[&format!("--{}={value}", spec.flag)]);
            assert_names(&said, &[&format!("--{}", spec.flag), value, &spec.range()]);
        }
    }
}

#[test]
fn values_that_contradict_each_other_are_both_named() {
    let said = refusal_of_run(&[
        "--min-rate",
        "1gbit",
        "--max-rate",
        "1mbit",
        "--start-rate",
        "1mbit",
    ]);
    assert_names(&said, &["--min-rate", "1gbit", "1mbit"]);
}

#[test]
fn an_unknown_flag_is_named() {
    assert_names(
        &refusal_of_run(&["--speed", "1mbit"]),
        &["--speed", "--help"],
    );
}

#[test]
fn a_flag_without_effect_is_refused() {
    for (arguments, needed) in [
        (&["sim", "--loss-burst", "5"][..], "--loss <RATIO>"),
        (&["sim", "--reorder"], "--jitter <TIME>"),
        (&["sim", "--police-burst", "64kB"], "--police <RATE>"),
        (
            &["lab", "path", "--loss-burst", "5", "--", "true"],
            "--loss <RATIO>",
        ),
        (&["demo", "--backend", "sim", "--quick"], "--backend guest"),
        (&["demo", "--kernel", "6.1"], "--backend guest"),
    ] {
        let said = refusal(Command::new(PROGRAM).args(arguments)).unwrap();
        assert_names(&said, &[needed]);
    }
}

#[test]
fn the_log_format_names_its_choices() {
    assert_names(
        &refusal_of_run(&["--log-format", "xml"]),
        &["--log-format", "xml", "json"],
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/comparison.toml");
    for (arguments, succeeds) in [
        (&["sim", "--duration", "1s"][..], true),
        (&["sim", "--duration", "1s", "--json"], true),
        (
            &[
                "sim", "table", scenarios, "--only", "clean", "--cc", "cubic",
            ],
            true,
        ),
        (&["run", "--print-config"], true),
        (&["policy", "list", "--config", "/dev/null"], true),
        (&["tune"], true),
        (&["lab", "list"], true),
        // What it found is its status.
        (&["doctor"], false),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(PROGRAM)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(writer)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert_eq!(said, "", "{arguments:?}: {status}");
        assert!(status.success() || !succeeds, "{arguments:?}: {status}");
    }
}

#[test]
fn a_user_without_privileges_is_told_what_to_do() {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--log-format", "json"]);
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    match refusal(&mut command) {
        Ok(said) => {
            assert_names(&said, &["root"]);
            let mut lines = said.lines().map(serde_json::from_str::<serde_json::Value>);
            assert!(lines.all(|line| line.is_ok()), "{said}");
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => machine::skipped(
            "a_user_without_privileges_is_told_what_to_do",
            "nobody may not execute the program where it was built",
        ),
        Err(error) => panic!("{error}"),
    }
}
