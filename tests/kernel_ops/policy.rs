//! Policies: who drives a running flow, within which limits, and what an experiment notes of it.

use std::fs;

use super::{File, KNOWN, await_flows, is_driven, refused, told};
use crate::common::agent::Agent;
use crate::common::load::{Demand, Load};
use crate::common::machine::KernelTest;
use crate::common::{NAME, eventually, path};
use serde_json::Value;

fn goodput(flow: &Value) -> f64 {
    flow["goodput_bits_per_second"].as_f64().unwrap_or(0.0)
}

/// A policy for all connections.
fn policy(rest: &str) -> String {
    format!("[[policy]]\nname = \"all\"\n{rest}\n")
}

#[test]
fn kernel_ops_policies_move_running_flows() {
    let Some(test) = KernelTest::begin("kernel_ops_policies_move_running_flows") else {
        return;
    };
    let file = File::with("policy.toml", &policy("mode = \"shadow\""));
    let path = path::open(&path::spec(20, 20, 0.0));
    let agent = Agent::start(&["--config", file.name()]);
    let load = Load::over(&path, NAME, 2, Demand::Greedy);
    let reload = |text: &str| {
        fs::write(&file.0, text).unwrap();
        told(&["reload"]);
    };

    // The agent says what it would do, and Cubic goes on as ever.
    let shadow = |flow: &Value| {
        flow["state"] == "shadow" && flow["rate_bits_per_second"].is_number() && goodput(flow) > 3e6
    };
    let last = await_flows(&load, "in the shadow, at Cubic's rate", shadow);
    let stats = &last["stats"];
    assert!(
        stats["policy_flows"]["all"].as_u64().unwrap() >= 2,
        "{stats}"
    );
    assert!(stats["flow_rtt_seconds"]["all"]["count"].as_u64().unwrap() > 0);
    assert_eq!(stats["flows"]["driven"], 0, "{stats}");

    // The datapath keeps the limit, and the flows are the agent's.
    reload(&policy("max-rate = \"2mbit\"\nstart-rate = \"1mbit\""));
    let slow = |flow: &Value| is_driven(flow) && (1e5..2.4e6).contains(&goodput(flow));
    await_flows(&load, "driven within the limit", slow);

    reload(&policy("algorithm = \"kernel\""));
    let left = |flow: &Value| flow["state"] == "kernel" && goodput(flow) > 3e6;
    await_flows(&load, "the kernel's, at Cubic's rate", left);

    // What cannot be read changes nothing.
    fs::write(&file.0, policy("mode = \"dance\"")).unwrap();
    assert!(refused(&["reload"]).contains("policy.toml:3"));
    await_flows(&load, "still the kernel's", left);

    reload("");
    let fast = |flow: &Value| is_driven(flow) && flow["policy"] == "default" && goodput(flow) > 3e6;
    await_flows(&load, "driven as if there had been no policy", fast);
    load.finish().assert_intact();
    path::close(path);
    agent.stop();
    test.end();
}

#[test]
fn kernel_ops_an_experiment_notes_both_arms() {
    let Some(test) = KernelTest::begin("kernel_ops_an_experiment_notes_both_arms") else {
        return;
    };
    let file = File::with("experiment.toml", &policy("ab = \"50%\""));
    let path = path::open(&path::spec(100, 20, 0.0));
    let agent = Agent::start(&["--config", file.name()]);
    // All in one arm once in half a million runs; of twelve, once in two thousand.
    let load = Load::over(&path, NAME, 20, Demand::Greedy);
    let placed = |flow: &Value| {
        ["driven", "control"]
            .iter()
            .any(|state| flow["state"] == *state)
    };
    let last = await_flows(&load, "in an arm", |flow| {
        placed(flow) && goodput(flow) > 0.0
    });
    let senders = load.ports().len() as u64;
    let is_control = |flow: &&Value| flow["state"] == "control";
    let control = last["flows"].as_array().unwrap().iter().filter(is_control);
    assert!(control.count() > 0, "{last:#}");
    load.finish().assert_intact();

    let report = || -> Value {
        let answer: Value = serde_json::from_str(&told(&["policy", "report", "--json"])).unwrap();
        answer["experiments"][0].clone()
    };
    let flows = |report: &Value, arm: &str| report["arms"][arm]["flows"].as_u64().unwrap();
    let all = |report: &Value| flows(report, "treatment") + flows(report, "control");
    assert!(
        eventually(KNOWN, || all(&report()) >= senders),
        "{:#}",
        report()
    );
    let noted = report();
    for arm in ["treatment", "control"] {
        for outcome in noted["arms"][arm]["outcomes"].as_array().unwrap() {
            let number = |name: &str| outcome[name].as_f64().unwrap();
            assert!(
                number("bytes") > 1e4 && number("duration_s") > 0.5,
                "{outcome}"
            );
            assert!((0.019..1.0).contains(&number("rtt_s")), "{outcome}");
            assert!((0.0..0.5).contains(&number("loss")), "{outcome}");
        }
    }
    let text = told(&["policy", "report", "all"]);
    assert!(
        text.contains("warning") && text.contains("goodput"),
        "{text}"
    );
    assert!(refused(&["policy", "report", "none"]).contains("all"));
    path::close(path);
    agent.stop();
    test.end();
}
