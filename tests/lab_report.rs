//! `pk3c-ccp lab report` on results that the lab made: every form of output, and what is wrong with its input.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::agent::PROGRAM;
use serde_json::Value;

/// A folder that goes with its test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pk3c-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// With the results of a simulated suite: two documents' scenarios, two schemes, two repetitions.
    fn with_results(name: &str) -> Self {
        static MADE: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
        let place = Self::new(name);
        let files = MADE.get_or_init(|| {
            let suite = Self::new("suite");
            let folder = suite.0.to_str().unwrap();
            let run = [
                "lab",
                "run",
                "E1",
                "P12",
                "B2-1",
                "G4-5",
                "--backend",
                "sim",
                "--quick",
                "--no-cache",
            ];
            let out = said(
                &[
                    &run[..],
                    &["--cc", "cubic,pk3c", "--reps", "2", "--out", folder],
                ]
                .concat(),
            );
            assert!(
                out.status.success(),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
            let files = fs::read_dir(&suite.0)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            files
                .map(|path| {
                    (
                        path.file_name().unwrap().to_str().unwrap().to_owned(),
                        fs::read(&path).unwrap(),
                    )
                })
                .collect()
        });
        for (name, text) in files {
            fs::write(place.0.join(name), text).unwrap();
        }
        place
    }

    fn report(&self, arguments: &[&str]) -> Output {
        said(&[&["lab", "report", self.0.to_str().unwrap()], arguments].concat())
    }

    fn text(&self, arguments: &[&str]) -> String {
        let out = self.report(arguments);
        assert!(
            out.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn said(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

#[test]
fn every_form_shows_every_scenario() {
    let place = Place::with_results("forms");
    let table = place.text(&[]);
    assert!(
        table.lines().all(|line| line.chars().count() <= 100),
        "{table}"
    );
    assert!(
        table.contains("short forms") && table.contains("95 %"),
        "{table}"
    );
    let forms = [
        (
            "pantheon",
            "95th percentile per-packet one-way delay: ",
            "T1: ",
        ),
        (
            "ministat",
            "    N           Min           Max        Median           Avg        Stddev",
            "F1: ",
        ),
        (
            "iperf",
            "[ ID] Interval           Transfer     Bitrate         Retr",
            "C1: ",
        ),
        ("bequant", "  published", "Q1: "),
    ];
    for (form, line, claim) in forms {
        let text = place.text(&["--format", form]);
        assert!(text.contains(line), "{form}: {text}");
        assert!(
            text.lines().any(|line| line.starts_with(claim)),
            "{form}: {text}"
        );
        assert!(
            text.contains("supported by the document's own numbers: "),
            "{form}: {text}"
        );
    }
    let compared = place.text(&["--compare", "cubic,pk3c"]);
    for id in ["E1", "P12", "B2-1", "G4-5"] {
        assert!(
            table.contains(&format!("{id}: ")) && compared.contains(id),
            "{id}: {table}{compared}"
        );
    }
    let only = place.text(&["--only", "P12"]);
    assert!(only.contains("P12: ") && !only.contains("E1: "), "{only}");
}

#[test]
fn the_figures_are_those_of_the_results() {
    let place = Place::with_results("figures");
    let json: Value = serde_json::from_str(&place.text(&["--json"])).unwrap();
    let groups = json["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 8);
    for group in groups {
        let name = |key: &str| group[key].as_str().unwrap();
        let mut goodputs: Vec<f64> = (1..=2)
            .map(|seed| {
                let file = place.0.join(format!(
                    "{}-{}-{seed}.json",
                    name("scenario"),
                    name("scheme")
                ));
                let run: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
                run["total"]["goodput_mbps"].as_f64().unwrap()
            })
            .collect();
        goodputs.sort_by(f64::total_cmp);
        let measured = &group["measures"]["goodput_mbps"];
        let median = measured["median"].as_f64().unwrap();
        assert!(
            (median - (goodputs[0] + goodputs[1]) / 2.0).abs() < 1e-9,
            "{group}"
        );
        assert!(
            measured["low"].as_f64() >= Some(goodputs[0])
                && measured["high"].as_f64() <= Some(goodputs[1])
        );
    }
}

#[test]
fn void_and_broken_results_are_named_and_the_rest_is_shown() {
    let place = Place::with_results("broken");
    let void = place.0.join("P12-cubic-1.json");
    let mut run: Value = serde_json::from_str(&fs::read_to_string(&void).unwrap()).unwrap();
    run["void"] = "the agent drove its flows for 42 % of their time".into();
    run["conditions"]["revision"] = "fedcba9".into();
    fs::write(&void, run.to_string()).unwrap();
    fs::write(
        place.0.join("E1-pk3c-2.json"),
        "{\"format\": 1, \"inputs\": {\"scena",
    )
    .unwrap();
    for form in ["table", "pantheon", "ministat", "iperf", "bequant"] {
        let text = place.text(&["--format", form]);
        assert!(
            text.contains("P12 cubic seed 1: the agent drove its flows for 42 % of their time"),
            "{form}: {text}"
        );
        assert!(
            text.contains("E1-pk3c-2.json was not read: no JSON"),
            "{form}: {text}"
        );
        assert!(text.contains("mixed revisions"), "{form}: {text}");
    }
    let json: Value = serde_json::from_str(&place.text(&["--json"])).unwrap();
    assert_eq!(json["void"][0]["scenario"], "P12");
    let group = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["scenario"] == "P12" && group["scheme"] == "cubic");
    assert_eq!(
        (&group.unwrap()["runs"], &group.unwrap()["void"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn what_cannot_be_reported_is_refused_with_a_remedy() {
    let empty = Place::new("empty");
    let place = Place::with_results("refused");
    let refused = |out: Output, parts: &[&str]| {
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success(), "{said}");
        for part in parts {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
    };
    refused(empty.report(&[]), &["no results in", "lab run"]);
    refused(
        said(&["lab", "report", "/nonexistent/results"]),
        &["/nonexistent/results", "No such file", "lab run --out"],
    );
    refused(
        place.report(&["--only", "P99"]),
        &["no results of the scenario P99", "P12"],
    );
    refused(
        place.report(&["--compare", "cubic,bbr"]),
        &["no results of the scheme bbr", "pk3c"],
    );
    refused(
        place.report(&["--compare", "cubic"]),
        &["--compare", "two schemes"],
    );
    refused(
        place.report(&["--format", "netperf"]),
        &["netperf", "pantheon"],
    );
    refused(
        place.report(&["--html", "/nonexistent/report.html"]),
        &["cannot write the page /nonexistent/report.html"],
    );
}
