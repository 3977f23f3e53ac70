//! `pk3c-ccp lab run` with the kernel's TCP over emulated paths: as root, because of namespaces and TUN devices.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::machine::KernelTest;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use pathlab::lab::result::RunResult;
use pathlab::lab::suite::SuiteRecord;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pk3c-ccp");

/// Slow enough for any machine and any build.
const SCENARIOS: &str = r#"
[[scenario]]
id = "K-loss"
duration = "4s"
path = { rate = "10mbit", rtt = "30ms", queue = "1bdp", loss = "1%" }
flows = [{ count = 2, start = "0s" }]
[[scenario]]
id = "K-downloads"
duration = "20s"
rounds = 2
path = { rate = "10mbit", rtt = "30ms", queue = "1bdp" }
flows = [{ count = 2, start = "0s", size = "1MB" }]
"#;

struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let name = format!("pk3c-kernel-lab-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("two.toml"), SCENARIOS).unwrap();
        Self(folder)
    }

    fn lab_run(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.env("XDG_CACHE_HOME", self.0.join("cache"));
        command
            .args(["lab", "run"])
            .args(arguments)
            .stdin(Stdio::null());
        command.arg("--scenarios").arg(self.0.join("two.toml"));
        command.arg("--out").arg(self.0.join("out"));
        command
    }

    fn results(&self) -> Vec<RunResult> {
        let entries = fs::read_dir(self.0.join("out")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| !file.ends_with("suite.json"));
        files.sort();
        let read = |file: &PathBuf| serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        files.iter().map(read).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn kernel_a_suite_on_this_machine_has_a_good_result_for_every_run() {
    let Some(test) =
        KernelTest::begin("kernel_a_suite_on_this_machine_has_a_good_result_for_every_run")
    else {
        return;
    };
    let scratch = Scratch::new("suite");
    let arguments = ["K", "--cc", "cubic,pk3c", "--reps", "1"];
    let output = scratch
        .lab_run(Path::new(PROGRAM), &arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("self-check of 10 Mbit/s, 30 ms"), "{said}");
    let results = scratch.results();
    assert_eq!(results.len(), 4);
    for result in &results {
        let name = format!("{} {}", result.inputs.scenario, result.inputs.scheme);
        assert_eq!(result.void, None, "{name}");
        assert!(
            result.conditions.self_check.as_ref().unwrap().passed,
            "{name}"
        );
        assert!(!result.conditions.kernel.is_empty() && !result.conditions.revision.is_empty());
        assert!(
            result.flows.iter().all(|flow| flow.goodput_mbps > 0.1),
            "{name}: {result:?}"
        );
        let lossy = result.inputs.scenario == "K-loss";
        assert_eq!(
            result.link.as_ref().unwrap().random_losses > 0,
            lossy,
            "{name}"
        );
        if lossy {
            assert!(result.flows.iter().all(|flow| flow.completions.is_empty()));
        } else {
            let done = |flow: &pathlab::lab::result::FlowResult| {
                flow.completions
                    .iter()
                    .filter(|done| done.seconds.is_some())
                    .count()
            };
            assert!(
                result.flows.iter().all(|flow| done(flow) == 2),
                "{name}: {:?}",
                result.flows
            );
        }
        let is_pk3c = result.inputs.scheme == "pk3c";
        assert_eq!(
            result.agent.as_ref().map(|agent| agent.driven > 0.99),
            is_pk3c.then_some(true)
        );
    }
    // A second suite takes cubic's runs from the cache, and makes the agent's anew.
    fs::remove_dir_all(scratch.0.join("out")).unwrap();
    let again = scratch
        .lab_run(Path::new(PROGRAM), &arguments)
        .output()
        .unwrap();
    assert!(
        again.status.success(),
        "{}",
        String::from_utf8_lossy(&again.stderr)
    );
    let record = fs::read(scratch.0.join("out/suite.json")).unwrap();
    let record: SuiteRecord = serde_json::from_slice(&record).unwrap();
    assert_eq!((record.counts.made, record.counts.reused), (2, 2));
    test.end();
}

/// Without root there is nothing to measure with, and that is said before anything is made.
#[test]
fn kernel_without_root_the_host_is_refused_with_a_remedy() {
    let Some(test) = KernelTest::begin("kernel_without_root_the_host_is_refused_with_a_remedy")
    else {
        return;
    };
    let scratch = Scratch::new("nobody");
    // Where that user may read and run it.
    let program = scratch.0.join("pk3c-ccp");
    fs::copy(PROGRAM, &program).unwrap();
    let mut command = scratch.lab_run(&program, &["K-loss", "--cc", "cubic"]);
    let output = command
        .uid(common::NOBODY)
        .gid(common::NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("not root") && said.contains("--backend sim"),
        "{said}"
    );
    assert!(!scratch.0.join("out").exists());
    test.end();
}

/// A terminal's Ctrl-C, which iperf3 gets, too.
#[test]
fn kernel_an_interrupted_demo_says_how_far_it_came() {
    let Some(test) = KernelTest::begin("kernel_an_interrupted_demo_says_how_far_it_came") else {
        return;
    };
    let mut demo = Command::new(PROGRAM)
        .args(["demo", "--backend", "host"])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(demo.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    assert!(first.starts_with("[ 1/18]"), "{first}");
    let group = Pid::from_raw(demo.id().try_into().unwrap());
    killpg(group, Signal::SIGINT).unwrap();
    let said: Vec<_> = told.map(Result::unwrap).collect();
    assert!(!demo.wait().unwrap().success());
    assert_eq!(said, ["pk3c-ccp: interrupted after 0 of 18 runs"]);
    test.end();
}
