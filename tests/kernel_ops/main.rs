//! What an operator does with a running agent, and what it does with an operator who means it no good.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod adopt;
mod metrics;
mod policy;
mod service;
mod socket;
mod terminal;
mod verbs;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;

use common::agent::PROGRAM;
use common::eventually;
use common::load::Load;
use serde_json::Value;

const SOCKET: &str = "/run/pk3c-ccp/control.sock";
/// Flows are known a second after they began, and their rates a second later.
const KNOWN: Duration = Duration::from_secs(10);

/// One of the agent's verbs.
fn verb(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

/// What it printed; fails the test if the verb failed.
fn told(arguments: &[&str]) -> String {
    let output = verb(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} failed: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Why it refused; fails the test if it did not.
fn refused(arguments: &[&str]) -> String {
    let output = verb(arguments);
    assert!(!output.status.success(), "{arguments:?} did not fail");
    String::from_utf8(output.stderr).unwrap()
}

fn status() -> Value {
    serde_json::from_str(&told(&["status", "--json", "--flows", "1000"])).unwrap()
}

/// The senders among the flows: by the local port.
fn flow_of(status: &Value, port: u16) -> Option<Value> {
    let flows = status["flows"].as_array().unwrap().iter();
    let ends = format!(":{port}");
    let mut ours = flows.filter(|flow| flow["local"].as_str().unwrap().ends_with(&ends));
    ours.next().cloned()
}

/// Waits until all of the load's flows are told of with what is asked of them; the last status.
fn await_flows(load: &Load, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let all = eventually(KNOWN, || {
        last = status();
        let flow = |port: &u16| flow_of(&last, *port);
        load.ports()
            .iter()
            .all(|port| flow(port).is_some_and(|flow| holds(&flow)))
    });
    assert!(all, "not all flows are {what} after {KNOWN:?}: {last:#}");
    last
}

fn is_driven(flow: &Value) -> bool {
    flow["state"] == "driven" && flow["rate_bits_per_second"].as_f64().is_some()
}

/// A file of this test, removed at its end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("pk3c-ops-{}-{name}", std::process::id())))
    }

    fn with(name: &str, text: &str) -> Self {
        let file = Self::new(name);
        fs::write(&file.0, text).unwrap();
        file
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A child that is stopped with the test.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
