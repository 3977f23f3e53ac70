//! `pk3c-ccp lab` on the command line: what it lists, suites that are killed and go on, and what it says when it
//! cannot. Runs are simulated here, so none of this needs root; tests/kernel_lab.rs has those with the kernel's TCP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use flate2::read::GzDecoder;
use pathlab::lab::result::RunResult;
use pathlab::lab::suite::SuiteRecord;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pk3c-ccp");

/// Two scenarios, of seconds in a debug build.
const SCENARIOS: &str = r#"
[[scenario]]
id = "T1-short"
title = "a short queue"
document = "test"
duration = "4s"
path = { rate = "20mbit", rtt = "20ms", queue = 10 }
flows = [{ count = 2 }]
[[scenario]]
id = "T1-downloads"
document = "test"
duration = "20s"
rounds = 3
path = { rate = "20mbit", rtt = "20ms", queue = "1bdp", loss = "1%" }
flows = [{ size = "1MB" }]
"#;

/// A folder of a test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pk3c-lab-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("two.toml"), SCENARIOS).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `lab run` of the two scenarios, with a cache of its own.
    fn lab_run(&self, arguments: &[&str]) -> Command {
        let mut command = self.lab(&["run", "--backend", "sim", "--jobs", "1"]);
        command.arg("--scenarios").arg(self.path("two.toml"));
        command.arg("--out").arg(self.path("out"));
        command.args(arguments);
        command
    }

    fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command.arg("lab").args(arguments).stdin(Stdio::null());
        command
    }

    /// Names of the results.
    fn results(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "suite.json").collect();
        names.sort();
        names
    }

    fn result(&self, name: &str) -> RunResult {
        serde_json::from_slice(&fs::read(self.path("out").join(name)).unwrap()).unwrap()
    }

    fn record(&self) -> SuiteRecord {
        serde_json::from_slice(&fs::read(self.path("out/suite.json")).unwrap()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(&output.stderr)
    );
    output
}

/// What a command says that fails.
#[track_caller]
fn refusal(command: &mut Command, parts: &[&str]) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(
        output.status.code().map(|code| code != 0),
        Some(true),
        "{command:?}: {said}"
    );
    for part in parts {
        assert!(
            said.contains(part),
            "{command:?} does not say {part:?}: {said}"
        );
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn bursts_are_as_large_as_tcp_hands_them_over() {
    let scratch = Scratch::new("bursts");
    let scenario = |id: &str, gso: u32| {
        format!(
            "[[scenario]]\nid = \"{id}\"\nduration = \"3s\"\ngso = {gso}\n\
             path = {{ rate = \"200mbit\", rtt = \"20ms\", queue = 10 }}\nflows = [{{}}]\n"
        )
    };
    let both = scenario("packet-by-packet", 1) + &scenario("as-the-kernel", 0);
    fs::write(scratch.path("two.toml"), both).unwrap();
    succeeds(&mut scratch.lab_run(&["*", "--cc", "pk3c", "--reps", "1"]));
    let goodput = |name: &str| scratch.result(name).total.goodput_mbps;
    let apart = goodput("packet-by-packet-pk3c-1.json");
    let together = goodput("as-the-kernel-pk3c-1.json");
    assert!(
        apart > together * 1.2,
        "17 packets at once do not fit into 10: {apart} and {together} Mbit/s"
    );
}

#[test]
fn what_is_listed_is_whole() {
    let scratch = Scratch::new("list");
    let output = succeeds(&mut scratch.lab(&["list", "--json"]));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    for document in [
        "pk3c", "pantheon", "bequant", "freebsd", "geni", "nsperf", "goals",
    ] {
        let of = rows.iter().filter(|row| row["document"] == document);
        assert!(of.count() > 0, "{document}");
    }
    for row in &rows {
        let (full, quick) = (
            row["duration_s"].as_f64().unwrap(),
            row["quick_s"].as_f64().unwrap(),
        );
        assert!(0.0 < quick && quick <= full, "{row}");
        assert!(row["flows"].as_u64().unwrap() > 0, "{row}");
        assert!(!row["schemes"].as_array().unwrap().is_empty(), "{row}");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), rows.len());
    let goals = text(&succeeds(&mut scratch.lab(&["list", "--document", "goals"])).stdout);
    assert!(goals.contains("jitter-20m-40ms-50ms"), "{goals}");
    let table = text(&succeeds(&mut scratch.lab(&["list"])).stdout);
    assert!(ids.iter().all(|id| table.contains(id)));
    assert!(
        table.contains(&format!("{} scenarios", rows.len())),
        "{table}"
    );
}

#[test]
fn a_suite_that_was_killed_goes_on_with_what_is_missing() {
    let scratch = Scratch::new("resume");
    let arguments = ["T1", "--cc", "cubic,pk3c", "--reps", "2", "--no-cache"];
    let mut suite = scratch
        .lab_run(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while scratch
        .results()
        .iter()
        .filter(|name| !name.starts_with('.'))
        .count()
        < 3
    {
        assert!(Instant::now() < deadline, "no results come");
        thread::sleep(Duration::from_millis(2));
    }
    suite.kill().unwrap();
    assert_eq!(suite.wait().unwrap().signal(), Some(9));
    let whole = scratch.results();
    let whole: Vec<_> = whole.iter().filter(|name| !name.starts_with('.')).collect();
    assert!(whole.len() < 8, "the suite was over before it was killed");
    let times: Vec<SystemTime> = whole.iter().map(|name| changed(&scratch, name)).collect();
    assert_eq!(scratch.record().ended, None);

    // What a killed writer would leave, a result that is none, and one that must not be used.
    fs::write(scratch.path("out/.x.json.unfinished"), "{").unwrap();
    let spoilt = whole[0].as_str();
    fs::write(scratch.path("out").join(spoilt), "{\"format\": 1").unwrap();
    let mut void = scratch.result(whole[1]);
    void.void = Some("a test says so".to_owned());
    let void_text = serde_json::to_vec(&void).unwrap();
    fs::write(scratch.path("out").join(whole[1]), void_text).unwrap();

    let said = text(&succeeds(&mut scratch.lab_run(&arguments)).stderr);
    assert!(said.contains("it is no result"), "{said}");
    assert!(said.contains("it is void: a test says so"), "{said}");
    assert_eq!(scratch.results().len(), 8, "{:?}", scratch.results());
    let record = scratch.record();
    assert!(
        record.ended.is_some() && record.failures.is_empty(),
        "{record:?}"
    );
    assert_eq!(record.counts.kept, whole.len() - 2);
    assert_eq!(record.counts.made, 8 - record.counts.kept);
    for (name, time) in whole.iter().zip(&times).skip(2) {
        assert_eq!(changed(&scratch, name), *time, "{name} was made again");
    }
    assert_eq!(record.order, [["cubic", "pk3c"], ["pk3c", "cubic"]]);

    let again = succeeds(&mut scratch.lab_run(&arguments));
    assert_eq!(scratch.record().counts.kept, 8);
    assert!(
        text(&again.stdout).contains("T1-short"),
        "{}",
        text(&again.stdout)
    );
}

fn changed(scratch: &Scratch, name: &str) -> SystemTime {
    let file = scratch.path("out").join(name);
    fs::metadata(file).unwrap().modified().unwrap()
}

#[test]
fn a_result_tells_its_run() {
    let scratch = Scratch::new("result");
    succeeds(&mut scratch.lab_run(&["*", "--cc", "cubic", "--reps", "1", "--seed", "5"]));
    assert_eq!(
        scratch.results(),
        ["T1-downloads-cubic-5.json", "T1-short-cubic-5.json"]
    );
    let short = scratch.result("T1-short-cubic-5.json");
    assert_eq!(short.inputs.path, "20 Mbit/s, 20 ms, 10 packets");
    assert_eq!((short.inputs.seed, short.inputs.duration_s), (5, 4.0));
    assert_eq!(short.inputs.title.as_deref(), Some("a short queue"));
    let sum: f64 = short
        .flows
        .iter()
        .map(|flow| flow.received_bytes as f64 * 8e-6 / 4.0)
        .sum();
    assert!((short.total.goodput_mbps / sum - 1.0).abs() < 1e-9);
    assert!(
        (0.5..=1.0).contains(&short.total.use_run.unwrap()),
        "{:?}",
        short.total
    );
    let link = short.link.unwrap();
    assert!(link.queue_drops > 0 && link.random_losses == 0, "{link:?}");
    assert!(
        link.arrived >= link.delivered + link.queue_drops,
        "{link:?}"
    );
    let owd = short.total.owd_ms.unwrap();
    // Half the RTT, and at most 11 packets of 0.6 ms.
    assert!(owd.min >= 10.6 && owd.max <= 17.3, "{owd:?}");
    for flow in &short.flows {
        assert_eq!(flow.series.goodput_mbps.len(), 40);
        let bytes: f64 = flow
            .series
            .goodput_mbps
            .iter()
            .map(|mbps| mbps * 0.1 / 8e-6)
            .sum();
        assert!(
            (bytes / flow.received_bytes as f64 - 1.0).abs() < 1e-6,
            "{bytes}"
        );
    }
    let downloads = scratch.result("T1-downloads-cubic-5.json");
    let flow = &downloads.flows[0];
    let rounds: Vec<_> = flow.completions.iter().map(|done| done.round).collect();
    assert_eq!(rounds, [1, 2, 3]);
    assert!(
        flow.completions
            .iter()
            .all(|done| done.seconds.unwrap() > 0.4 && done.bytes == 1_000_000)
    );
    let seconds: Vec<_> = flow
        .completions
        .iter()
        .map(|done| done.seconds.unwrap().to_bits())
        .collect();
    assert!(
        seconds[0] != seconds[1] && seconds[1] != seconds[2],
        "{seconds:?}"
    );
    assert!(
        flow.completions
            .windows(2)
            .all(|pair| pair[1].start_s > pair[0].start_s)
    );
    // It ends with its last transfer.
    assert_eq!(downloads.total.seconds, Some(flow.end_s));
    assert!(downloads.link.unwrap().random_losses > 0);
}

/// A download of 1 MB takes less than two seconds of the six, so all three are made, whatever is beside them.
#[test]
fn rounds_end_with_their_transfers_beside_other_flows() {
    let scratch = Scratch::new("rounds");
    let file = scratch.path("two.toml");
    fs::write(
        &file,
        r#"
id = "T2"
duration = "6s"
rounds = 3
path = { rate = "20mbit", rtt = "20ms", queue = "1bdp" }
flows = [{ size = "1MB", start = "0s" }, { scheme = "udp:5mbit", start = "0s" }]
"#,
    )
    .unwrap();
    succeeds(&mut scratch.lab_run(&["T2", "--cc", "cubic", "--reps", "1"]));
    let result = scratch.result("T2-cubic-1.json");
    let [download, datagrams] = &result.flows[..] else {
        panic!("{:?}", result.flows)
    };
    let done = download.completions.iter();
    let rounds: Vec<_> = done
        .filter_map(|done| done.seconds.map(|_| done.round))
        .collect();
    assert_eq!(rounds, [1, 2, 3]);
    assert_eq!((result.total.seconds, datagrams.end_s), (None, 6.0));
    // As much as was sent, without the rests of bins between the rounds.
    assert!(
        (3_500_000..3_750_000).contains(&datagrams.received_bytes),
        "{datagrams:?}"
    );
}

#[test]
fn baselines_are_reused_and_the_agent_s_runs_are_not() {
    let scratch = Scratch::new("cache");
    let arguments = ["T1-short", "--cc", "cubic,pk3c", "--reps", "1"];
    succeeds(&mut scratch.lab_run(&arguments));
    let first = scratch.result("T1-short-cubic-1.json");
    assert!(!first.conditions.reused);
    fs::remove_dir_all(scratch.path("out")).unwrap();
    succeeds(&mut scratch.lab_run(&arguments));
    let counts = scratch.record().counts;
    assert_eq!((counts.made, counts.reused), (1, 1));
    let reused = scratch.result("T1-short-cubic-1.json");
    assert!(reused.conditions.reused);
    assert_eq!((reused.total, reused.flows), (first.total, first.flows));
    // Another seed, and another path, are other runs.
    fs::remove_dir_all(scratch.path("out")).unwrap();
    succeeds(&mut scratch.lab_run(&["T1-short", "--cc", "cubic", "--reps", "1", "--seed", "2"]));
    assert_eq!(scratch.record().counts.reused, 0);
    let other = SCENARIOS.replace("queue = 10", "queue = 11");
    fs::write(scratch.path("two.toml"), other).unwrap();
    succeeds(&mut scratch.lab_run(&["T1-short", "--cc", "cubic", "--reps", "1"]));
    assert_eq!(scratch.record().counts.reused, 0);
}

#[test]
fn other_parameters_replace_the_agent_s_results_only() {
    let scratch = Scratch::new("parameters");
    let arguments = ["T1-short", "--cc", "cubic,pk3c", "--reps", "1"];
    succeeds(&mut scratch.lab_run(&arguments));
    let before = scratch.result("T1-short-pk3c-1.json").inputs.hash;
    let mut with_parameters = scratch.lab_run(&arguments);
    with_parameters.args(["--agent-args", "--hb-loss 50%"]);
    let said = text(&succeeds(&mut with_parameters).stderr);
    assert!(
        said.contains("pk3c, seed 1: anew: what is there has other inputs"),
        "{said}"
    );
    let counts = scratch.record().counts;
    assert_eq!((counts.made, counts.kept), (1, 1));
    let after = scratch.result("T1-short-pk3c-1.json");
    assert_ne!(after.inputs.hash, before);
    assert_eq!(
        after.conditions.agent_args.as_deref(),
        Some("--hb-loss 50%")
    );
}

#[test]
fn results_become_flent_s_files() {
    let scratch = Scratch::new("flent");
    succeeds(&mut scratch.lab_run(&["T1-short", "--cc", "cubic", "--reps", "1"]));
    let out = scratch.path("out");
    succeeds(scratch.lab(&["export", "--format", "flent"]).arg(&out));
    let packed = fs::File::open(out.join("T1-short-cubic-1.flent.gz")).unwrap();
    let data: serde_json::Value = serde_json::from_reader(GzDecoder::new(packed)).unwrap();
    assert_eq!(data["version"], 4);
    assert_eq!(data["metadata"]["NAME"], "tcp_nup");
    assert_eq!(data["metadata"]["TEST_PARAMETERS"]["upload_streams"], "2");
    let bins = data["x_values"].as_array().unwrap().len();
    let results = data["results"].as_object().unwrap();
    let expected = [
        "Ping (ms) ICMP",
        "TCP upload avg",
        "TCP upload sum",
        "TCP upload::1",
        "TCP upload::2",
    ];
    let mut names: Vec<_> = results.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    for (name, series) in results {
        assert_eq!(series.as_array().unwrap().len(), bins, "{name}");
        assert!(
            !data["raw_values"][name].as_array().unwrap().is_empty(),
            "{name}"
        );
    }
    let sum = &results["TCP upload sum"][20].as_f64().unwrap();
    let parts = ["TCP upload::1", "TCP upload::2"].map(|name| results[name][20].as_f64().unwrap());
    assert!((sum - parts[0] - parts[1]).abs() < 1e-9);
    refusal(
        scratch
            .lab(&["export", "--format", "flent"])
            .arg(scratch.path("cache/none")),
        &["has no results", "lab run"],
    );
}

#[test]
fn every_refusal_has_a_remedy() {
    let scratch = Scratch::new("refusals");
    let run = |arguments: &[&str]| scratch.lab_run(arguments);
    refusal(
        &mut run(&["T1-shrot"]),
        &["no scenario `T1-shrot`", "did you mean T1-short"],
    );
    refusal(
        &mut run(&["T1-short", "--cc", "cubci"]),
        &["no cubci", "did you mean `cubic`?"],
    );
    refusal(
        &mut run(&["T1-short", "--cc", "vegas"]),
        &["no vegas", "--backend host"],
    );
    refusal(
        &mut run(&["T1-short", "--cc", "QUIC!"]),
        &["not a scheme", "cubic"],
    );
    refusal(
        &mut run(&["T1-short", "--agent-args", "--hb-lss 5%"]),
        &["--hb-lss", "--hb-loss"],
    );
    refusal(
        &mut run(&["T1-short", "--document", "nobody"]),
        &["`nobody`", "there are test"],
    );
    assert!(
        !scratch.path("out").exists(),
        "a refused suite has left a folder"
    );

    for (bad, said) in [
        ("queue = 10", ("queue = 0", "is not a queue")),
        (
            "rate = \"20mbit\"",
            ("trace = \"gone.trace\"", "cannot read the trace"),
        ),
        ("rtt = \"20ms\"", ("rtt = \"20\"", "two.toml:7")),
    ] {
        fs::write(scratch.path("two.toml"), SCENARIOS.replacen(bad, said.0, 1)).unwrap();
        refusal(&mut run(&["T1-short"]), &["two.toml", said.1]);
    }
    fs::write(scratch.path("two.toml"), SCENARIOS).unwrap();
    let mut elsewhere = scratch.lab(&[
        "run",
        "T1-short",
        "--backend",
        "sim",
        "--out",
        "/dev/null/x",
    ]);
    elsewhere.arg("--scenarios").arg(scratch.path("two.toml"));
    refusal(
        &mut elsewhere,
        &["cannot use /dev/null/x", "can be written to"],
    );
    refusal(
        scratch
            .lab(&["run", "T1-short", "--backend", "sim", "--out", "/x"])
            .arg("--scenarios")
            .arg(scratch.path("none.toml")),
        &["cannot read the scenario", "none.toml"],
    );
}

/// Two suites into one folder would overwrite each other's results.
#[test]
fn one_suite_at_a_time_writes_to_a_folder() {
    let scratch = Scratch::new("lock");
    let store = pathlab::lab::suite::Store::open(&scratch.path("out")).unwrap();
    refusal(
        &mut scratch.lab_run(&["T1-short"]),
        &["another suite is writing", "another folder"],
    );
    drop(store);
    succeeds(&mut scratch.lab_run(&["T1-short", "--cc", "cubic", "--reps", "1"]));
}

/// A full disk, as the kernel tells it of a file that may not grow: the suite ends, says why, and keeps what it has.
#[test]
fn a_full_disk_ends_the_suite_and_keeps_its_results() {
    let scratch = Scratch::new("full");
    let arguments = ["T1", "--cc", "cubic", "--reps", "2", "--no-cache"];
    // The results of T1-short have series of two flows, those of T1-downloads of one for a shorter time.
    succeeds(&mut scratch.lab_run(&["T1-downloads", "--cc", "cubic", "--reps", "1", "--no-cache"]));
    let size = |name: &str| fs::metadata(scratch.path("out").join(name)).unwrap().len();
    let room = size("T1-downloads-cubic-1.json").div_ceil(1024) + 1;
    let full = scratch.lab_run(&arguments);
    let mut limited = Command::new("bash");
    limited
        .arg("-c")
        .arg(format!("ulimit -f {room}; exec \"$@\""))
        .arg("bash");
    limited
        .arg(full.get_program())
        .args(full.get_args())
        .env("XDG_CACHE_HOME", scratch.path("cache"));
    refusal(
        &mut limited,
        &["cannot write", "T1-short-cubic-1.json", "make room"],
    );
    assert_eq!(scratch.results(), ["T1-downloads-cubic-1.json"]);
    succeeds(&mut scratch.lab_run(&arguments));
    assert_eq!(scratch.results().len(), 4);
    assert_eq!(scratch.record().counts.kept, 1);
}

#[test]
fn a_suite_whose_progress_nobody_reads_goes_on() {
    let scratch = Scratch::new("unread");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut suite = scratch.lab_run(&["T1", "--cc", "cubic", "--reps", "2", "--no-cache"]);
    suite.stdout(Stdio::null()).stderr(writer);
    assert!(suite.status().unwrap().success());
    assert_eq!(scratch.results().len(), 4);
}

/// A folder that cannot be made, whoever asks.
#[test]
fn a_suite_does_without_a_cache_that_cannot_be_written() {
    let scratch = Scratch::new("uncached");
    fs::write(scratch.path("cache"), "no folder").unwrap();
    let mut suite = scratch.lab_run(&["T1-short", "--cc", "cubic", "--reps", "1"]);
    let output = suite.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("--no-cache") && said.contains("--cache names"),
        "{said}"
    );
    assert_eq!(scratch.results().len(), 1);
}

#[test]
fn an_interrupted_suite_says_how_to_go_on() {
    let scratch = Scratch::new("interrupt");
    let mut command = scratch.lab_run(&["T1", "--cc", "cubic,pk3c", "--reps", "50"]);
    let suite = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while scratch.results().is_empty() {
        assert!(Instant::now() < deadline, "no results come");
        thread::sleep(Duration::from_millis(5));
    }
    let pid = nix::unistd::Pid::from_raw(suite.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let told = Instant::now();
    let output = suite.wait_with_output().unwrap();
    assert!(told.elapsed() < Duration::from_secs(10));
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("give the same command again"),
        "{said}"
    );
    let record = scratch.record();
    assert!(
        record.ended.is_none() && record.failures.is_empty(),
        "{record:?}"
    );
    assert_eq!(record.counts.made, scratch.results().len());
    assert!(only_whole_files(&scratch.path("out")));
}

fn only_whole_files(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).unwrap();
    entries.all(|entry| {
        !entry
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with('.')
    })
}
