//! `pk3c-ccp lab score` on results that the simulator made: what it judges, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SCENARIOS: &str = "\
[[scenario]]
id = \"clean-x\"
duration = \"10s\"
path = { rate = \"10mbit\", rtt = \"20ms\" }
flows = [{}]

[[scenario]]
id = \"other\"
duration = \"1s\"
path = { rate = \"10mbit\", rtt = \"20ms\" }
flows = [{}]
";

/// A folder that goes with its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pk3c-score-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("goals.toml"), SCENARIOS).unwrap();
        Self(folder)
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        let program = env!("CARGO_BIN_EXE_pk3c-ccp");
        let mut command = Command::new(program);
        command.current_dir(&self.0).arg("lab").args(arguments);
        command
            .args(["--scenarios", "goals.toml"])
            .output()
            .unwrap()
    }

    /// Two runs of each scenario under each scheme.
    fn fill(&self, schemes: &str) {
        let output = self.lab(&[
            "run",
            "--cc",
            schemes,
            "--backend",
            "sim",
            "--reps",
            "2",
            "--no-cache",
            "--out",
            "out",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    fn change_one(&self, change: impl FnOnce(&mut Value)) -> PathBuf {
        let of_own = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.contains("clean-x") && name.contains("pk3c")
        };
        let entries = fs::read_dir(self.0.join("out")).unwrap();
        let mut files = entries.map(|entry| entry.unwrap().path());
        let file = files.find(of_own).unwrap();
        let mut result: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        change(&mut result);
        fs::write(&file, result.to_string()).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn goals_are_judged_and_what_has_none_is_named() {
    let folder = Folder::new("judged");
    folder.fill("cubic,pk3c");
    let output = folder.lab(&["score", "out", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no goals for other"));
    let score: Value = serde_json::from_slice(&output.stdout).unwrap();
    let scenario = &score["scenarios"][0];
    assert_eq!(
        (&scenario["scenario"], &scenario["runs"]),
        (&"clean-x".into(), &2.into())
    );
    let goals = scenario["goals"].as_array().unwrap();
    let names: Vec<_> = goals
        .iter()
        .map(|goal| goal["what"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["use", "RTT p95, ms", "loss"]);
    for goal in goals {
        let (figure, line) = (goal["figure"].as_f64().unwrap(), &goal["line"]);
        let kept = match (line["at_least"].as_f64(), line["at_most"].as_f64()) {
            (Some(least), None) => figure >= least,
            (None, Some(most)) => figure <= most,
            _ => panic!("{goal}"),
        };
        assert_eq!(
            goal["verdict"],
            if kept { "kept" } else { "missed" },
            "{goal}"
        );
    }
    let table = text(&folder.lab(&["score", "out"]).stdout);
    assert!(
        table.contains("| `clean-x` | use |") && table.contains("| all | 3 |"),
        "{table}"
    );
}

#[test]
fn results_of_another_revision_of_the_algorithm_are_named_and_refused() {
    let folder = Folder::new("revision");
    folder.fill("cubic,pk3c");
    let file = folder.change_one(|result| {
        result["conditions"]["algorithm"] = "0123456789abcdef".into();
    });
    let output = folder.lab(&["score", "out"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(output.stdout.is_empty());
    assert!(
        error.contains(&name(&file)) && error.contains("0123456789abcdef"),
        "{error}"
    );
    assert!(
        error.contains("1 of 8 results are of another revision"),
        "{error}"
    );
    // A result that does not say what it is of is no better.
    folder.change_one(|result| {
        result["conditions"]
            .as_object_mut()
            .unwrap()
            .remove("algorithm");
    });
    let error = text(&folder.lab(&["score", "out"]).stderr);
    assert!(
        error.contains("a revision that it does not name"),
        "{error}"
    );
}

#[test]
fn results_of_other_parameters_are_not_mixed() {
    let folder = Folder::new("parameters");
    folder.fill("cubic,pk3c");
    folder.change_one(|result| result["conditions"]["agent_args"] = "--hb-queue 50%".into());
    let output = folder.lab(&["score", "out"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("several arguments of the agent (--hb-queue 50%; none)"),
        "{error}"
    );
}
