//! The verbs: they tell the truth about live flows, and change what these do.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{File, KNOWN, SOCKET, await_flows, flow_of, is_driven, refused, told, verb};
use crate::common::agent::{Agent, PROGRAM};
use crate::common::load::{Demand, Load};
use crate::common::machine::{self, KernelTest};
use crate::common::{NAME, eventually, path};
use serde_json::Value;

#[test]
fn kernel_ops_status_and_explain_tell_of_live_flows() {
    let Some(test) = KernelTest::begin("kernel_ops_status_and_explain_tell_of_live_flows") else {
        return;
    };
    let spec = path::spec(20, 20, 0.0);
    let path = path::open(&spec);
    let agent = Agent::start(&[]);
    let load = Load::over(&path, NAME, 2, Demand::Greedy);
    let fast = |flow: &Value| {
        let goodput = flow["goodput_bits_per_second"].as_f64();
        is_driven(flow) && goodput.is_some_and(|bps| bps > 2e6)
    };
    let last = await_flows(&load, "driven and fast", fast);
    for port in load.ports() {
        let flow = flow_of(&last, *port).unwrap();
        let number = |name: &str| flow[name].as_f64().unwrap();
        assert!((0.019..0.5).contains(&number("rtt_seconds")), "{flow}");
        assert!((0.019..0.1).contains(&number("rtt_min_seconds")), "{flow}");
        assert!(
            (1e6..60e6).contains(&number("rate_bits_per_second")),
            "{flow}"
        );
        assert!(number("goodput_bits_per_second") < 22e6, "{flow}");
        assert!(
            number("driven_ratio") > 0.5 && number("acked_bytes") > 1e5,
            "{flow}"
        );
        assert!(
            flow["reason"].is_string() && flow["phase"].is_string(),
            "{flow}"
        );
    }
    let stats = &last["stats"];
    assert_eq!(stats["flows_started"], stats["flows"]["driven"]);
    let reports = stats["reports"].as_u64().unwrap();
    let decisions = stats["decisions"].as_object().unwrap().values();
    let decided: u64 = decisions.map(|count| count.as_u64().unwrap()).sum();
    // The agent goes on while it is asked.
    assert!(
        reports > 50 && decided.abs_diff(reports) <= 2,
        "{reports} reports, {decided} decisions"
    );
    assert!(stats["report_time_seconds"]["count"].as_u64().unwrap() >= reports / 8);
    let text = told(&["status", "--sort", "goodput_bits_per_second"]);
    assert!(
        text.contains("flows_started") && text.contains(&format!(":{}", load.ports()[0])),
        "{text}"
    );

    let port = format!(":{}", load.ports()[1]);
    let text = told(&["explain", &port, "--seconds", "2"]);
    assert!(text.contains("=> ") && text.contains("Mbit/s"), "{text}");
    let lines = told(&["explain", &port, "--seconds", "1", "--json"]);
    let intervals: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(intervals.len() > 10, "{} intervals", intervals.len());
    assert!(
        intervals
            .windows(2)
            .all(|pair| pair[0]["at_s"].as_f64() <= pair[1]["at_s"].as_f64())
    );
    assert!(intervals.iter().all(|one| one["decision"]["reason"].is_string() && one["measured"]["loss"].is_number()));
    let said = refused(&["explain", ":1"]);
    assert!(
        said.contains("no live flow") && said.contains("status"),
        "{said}"
    );
    let said = refused(&["status", "--sort", "beauty"]);
    assert!(
        said.contains("beauty") && said.contains("loss_ratio"),
        "{said}"
    );

    load.finish().assert_intact();
    path::close(path);
    agent.stop();
    assert!(
        !Path::new(SOCKET).exists(),
        "a clean stop removes the socket"
    );
    let said = refused(&["status"]);
    assert!(
        said.contains("no agent listens") && said.contains("pk3c-ccp run"),
        "{said}"
    );
    test.end();
}

#[test]
fn kernel_ops_parameters_change_while_flows_run() {
    let Some(test) = KernelTest::begin("kernel_ops_parameters_change_while_flows_run") else {
        return;
    };
    let file = File::with("reload.toml", "hb-loss = \"6%\"\nmax-rate = \"1gbit\"\n");
    let path = path::open(&path::spec(20, 20, 0.0));
    let agent = Agent::start(&["--config", file.name()]);
    let load = Load::over(&path, NAME, 2, Demand::Greedy);
    await_flows(&load, "driven", is_driven);

    // As a whole or not at all: the last two values do not fit each other.
    let said = refused(&["set", "hb-loss=9%", "max-rate=2mbit", "start-rate=3mbit"]);
    assert!(
        said.contains("start-rate") && said.contains("max-rate"),
        "{said}"
    );
    assert!(refused(&["set", "hb-loss=90%"]).contains("0% to 50%"));
    assert!(refused(&["set", "max-reports=5000"]).contains("start"));
    assert!(refused(&["set", "speed=1"]).contains("speed"));
    let listed = told(&["set"]);
    let line = listed
        .lines()
        .find(|line| line.starts_with("hb-loss="))
        .unwrap();
    assert!(
        line.starts_with("hb-loss=6% ") && line.ends_with("reload.toml:1"),
        "{line}"
    );

    let changed = told(&["set", "max-rate=2mbit", "start-rate=1mbit"]);
    assert!(changed.contains("max-rate: 1gbit -> 2mbit"), "{changed}");
    let slow = |flow: &Value| {
        let at_most = |name: &str, bps| flow[name].as_f64().is_some_and(|is| is <= bps);
        at_most("rate_bits_per_second", 2.001e6) && at_most("goodput_bits_per_second", 2.4e6)
    };
    await_flows(&load, "slow", slow);

    // What cannot be read changes nothing, not even what was set.
    fs::write(&file.0, "hb-loss = \"7%\"\nmax-rate = \"fast\"\n").unwrap();
    agent.hang_up();
    let is_said = |part: &str| agent.log().iter().any(|line| line.text.contains(part));
    assert!(eventually(KNOWN, || is_said("the old one stays")
        && is_said("reload.toml:2")));
    assert!(refused(&["reload"]).contains("reload.toml:2"));
    assert!(told(&["set"]).contains("hb-loss=6% "));
    fs::write(&file.0, "hb-loss = \"7%\"\nmax-flows = 9\n").unwrap();
    agent.hang_up();
    assert!(eventually(KNOWN, || told(&["set"]).contains("hb-loss=7% ")));
    let waits = eventually(KNOWN, || is_said("at the next start"));
    assert!(waits, "{}", agent.log_text());
    let fast = |flow: &Value| {
        flow["goodput_bits_per_second"]
            .as_f64()
            .is_some_and(|bps| bps > 3e6)
    };
    await_flows(&load, "fast again", fast);

    told(&["log", "info,decision=debug"]);
    assert!(
        eventually(KNOWN, || is_said("\"plan\":")),
        "decisions are logged now"
    );
    assert!(refused(&["log", "decision=loud"]).contains("level"));
    load.finish().assert_intact();
    path::close(path);
    agent.stop();
    test.end();
}

#[test]
fn kernel_ops_drained_flows_go_on_and_come_back() {
    let Some(test) = KernelTest::begin("kernel_ops_drained_flows_go_on_and_come_back") else {
        return;
    };
    let path = path::open(&path::spec(20, 20, 0.0));
    let agent = Agent::start(&[]);
    let load = Load::over(&path, NAME, 3, Demand::Greedy);
    await_flows(&load, "driven", is_driven);
    told(&["drain"]);
    let from = load.start().elapsed();
    let fallen = |flow: &Value| flow["state"] == "fallback" && flow["phase"].is_null();
    let last = await_flows(&load, "in fallback", |flow| flow["state"] == "fallback");
    assert_eq!(last["stats"]["draining"], 1);
    let late = Load::over(&path, NAME, 1, Demand::Greedy);
    await_flows(&late, "in fallback from the start", fallen);
    let until = load.start().elapsed();
    told(&["drain", "--undo"]);
    await_flows(&load, "driven again", is_driven);
    let last = await_flows(&late, "driven", is_driven);
    assert!(
        last["stats"]["flows_readopted"].as_u64().unwrap() >= 3,
        "{last:#}"
    );
    let late = late.finish();
    let outcome = load.finish();
    outcome.assert_intact();
    late.assert_intact();
    let silent = outcome.silent_since(from, until + Duration::from_millis(200));
    assert_eq!(silent, 0, "flows go on while they are drained");
    path::close(path);
    agent.stop();
    test.end();
}

#[test]
fn kernel_ops_a_start_that_cannot_be_says_what_is_wrong() {
    let Some(test) = KernelTest::begin("kernel_ops_a_start_that_cannot_be_says_what_is_wrong")
    else {
        return;
    };
    let module = "insmod";
    for (arguments, said) in [
        (&["--pin-dir", "/sys/fs/bpf"][..], "name a directory in it"),
        (
            &["--pin-dir", "/sys/fs/bpf/pk3c-none/x"],
            "/sys/fs/bpf/pk3c-none does not exist",
        ),
        (&["--pin-dir", "/tmp/x"], "mount -t bpf"),
    ] {
        let heard = refused(&[&["run"], arguments].concat());
        assert!(heard.contains(said) && !heard.contains(module), "{heard}");
    }
    // A device, but not one of CCP.
    let heard = refused(&["run", "--datapath", "char", "--device", "/dev/null"]);
    assert!(
        heard.contains("/dev/null") && heard.contains(module),
        "{heard}"
    );
    test.end();
}

#[test]
fn kernel_ops_what_starts_an_agent_names_the_one_that_runs() {
    let name = "kernel_ops_what_starts_an_agent_names_the_one_that_runs";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let agent = Agent::start(&[]);
    let heard = refused(&["run"]);
    assert!(
        heard.contains("another agent is running") && !heard.contains("insmod"),
        "{heard}"
    );
    let out = File::new("refused");
    for arguments in [
        &["demo", "--backend", "host"][..],
        &["lab", "run", "low_rtt", "--cc", "pk3c", "--out", out.name()],
    ] {
        let heard = refused(arguments);
        let process = format!("process {}", agent.id());
        assert!(heard.contains(&process), "{arguments:?}: {heard}");
    }
    assert!(!out.0.exists());
    let doctor = verb(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mut checks = found["checks"].as_array().unwrap().iter();
    let demo = checks.find(|check| check["name"] == "demo").unwrap();
    assert_eq!(demo["status"], "warning", "{demo}");
    agent.stop();
    test.end();
}

#[test]
fn kernel_ops_detach_says_what_it_cannot_remove() {
    let Some(test) = KernelTest::begin("kernel_ops_detach_says_what_it_cannot_remove") else {
        return;
    };
    let elsewhere = ["--pin-dir", "/sys/fs/bpf/pk3c-ccp-elsewhere"];
    Agent::start(&[&["--default"], &elsewhere[..]].concat()).kill9();
    let heard = refused(&["detach"]);
    assert!(
        heard.contains("still registered") && heard.contains("--pin-dir"),
        "{heard}"
    );
    assert!(refused(&["run"]).contains("pins elsewhere"));
    // Nobody has to read what comes of it.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut detach = Command::new(PROGRAM);
    let output = detach.arg("detach").args(elsewhere).stdout(full).output();
    let heard = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(
        heard.contains("space") && !heard.contains("panicked"),
        "{heard}"
    );
    assert!(!machine::is_registered());
    test.end();
}
