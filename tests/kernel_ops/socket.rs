//! The control socket under abuse.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{KNOWN, SOCKET, status, told, verb};
use crate::common::agent::{Agent, PROGRAM};
use crate::common::machine::{self, KernelTest};
use crate::common::{NOBODY, eventually};
use serde_json::{Value, json};

/// A conversation with the control socket by hand.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn open() -> Self {
        let stream = UnixStream::connect(SOCKET).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        // The agent may have hung up: what counts is its answer.
        let _ = self.0.get_mut().write_all(bytes);
    }

    fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.0
            .read_line(&mut line)
            .ok()
            .filter(|length| *length > 0)?;
        Some(serde_json::from_str(&line).unwrap())
    }
}

#[test]
fn kernel_ops_the_control_socket_bears_abuse() {
    let name = "kernel_ops_the_control_socket_bears_abuse";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let agent = Agent::start(&[]);
    let mode = fs::metadata(SOCKET).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");

    let mut raw = Raw::open();
    raw.send(b"{\"v\":1,\"id\":\"a\",\"do\":\"version\"}\n");
    let answer = raw.answer().unwrap();
    assert_eq!(
        (&answer["v"], &answer["id"], &answer["ok"]["protocol"]),
        (&json!(1), &json!("a"), &json!(1))
    );
    for (line, kind) in [
        (&b"nonsense\n"[..], "malformed"),
        (b"\xff\xfe\0\n", "malformed"),
        (b"\n", "malformed"),
        (b"{\"v\":7,\"do\":\"status\"}\n", "version"),
        (b"{\"v\":1,\"do\":\"dance\"}\n", "unknown"),
        (
            b"{\"v\":1,\"do\":\"set\",\"values\":{\"hb-loss\":5}}\n",
            "unknown",
        ),
        (
            b"{\"v\":1,\"do\":\"set\",\"values\":{\"hb-loss\":\"-5%\"}}\n",
            "refused",
        ),
        (
            b"{\"v\":1,\"do\":\"explain\",\"flow\":\"99999999999999999999\"}\n",
            "refused",
        ),
        (b"{\"v\":1,\"do\":\"log\",\"level\":\"=,=\"}\n", "refused"),
    ] {
        raw.send(line);
        let answer = raw.answer().unwrap();
        assert_eq!(
            answer["error"]["kind"],
            kind,
            "{}: {answer}",
            line.escape_ascii()
        );
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    }
    // Two requests in one write, one in two.
    raw.send(b"{\"v\":1,\"do\":\"version\"}\n{\"v\":1,\"do\":");
    raw.send(b"\"status\"}\n");
    assert!(raw.answer().unwrap()["ok"].is_object() && raw.answer().unwrap()["ok"].is_object());
    // A line without an end is cut off.
    raw.send(&[b'['; 100_000]);
    let answer = raw.answer().unwrap();
    assert_eq!(answer["error"]["kind"], "malformed");
    assert_eq!(raw.answer(), None, "the conversation is over");
    // One that leaves in the middle of a line, and one that never reads.
    Raw::open().send(b"{\"v\":1,");
    let mut deaf = Raw::open();
    for _ in 0..200 {
        deaf.send(b"{\"v\":1,\"do\":\"status\"}\n");
    }

    let crowd: Vec<_> = (0..40).map(|_| Raw::open()).collect();
    let turned_away = crowd.into_iter().filter_map(|mut client| {
        let patience = Some(Duration::from_millis(100));
        client.0.get_mut().set_read_timeout(patience).unwrap();
        client.answer().map(|answer| (answer, client))
    });
    // Those that are served hold their places until the count is done.
    let turned_away: Vec<_> = turned_away.collect();
    assert!(
        turned_away.len() >= 20,
        "{} of 40 were turned away",
        turned_away.len()
    );
    assert!(
        turned_away
            .iter()
            .all(|(answer, _)| answer["error"]["kind"] == "busy")
    );
    drop((turned_away, deaf));
    assert!(
        eventually(KNOWN, || verb(&["status"]).status.success()),
        "places are free again"
    );

    let mut nobody = Command::new(PROGRAM);
    nobody
        .arg("status")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    match nobody.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains("root"), "{said}");
        }
        Err(error) => machine::skipped(
            &format!("{name}, its part with another user"),
            &error.to_string(),
        ),
    }
    assert!(!agent.log_text().contains("panic"), "{}", agent.log_text());
    // A crash leaves the socket; the next agent takes its place, and `detach` removes it, too.
    agent.kill9();
    assert!(Path::new(SOCKET).exists());
    Agent::start(&[]).kill9();
    told(&["detach"]);
    assert!(!Path::new(SOCKET).exists(), "detach leaves the socket");
    Agent::start(&["--control", "none"]).stop();
    test.end();
}

#[test]
fn kernel_ops_what_a_client_that_has_gone_has_asked_is_not_done() {
    let name = "kernel_ops_what_a_client_that_has_gone_has_asked_is_not_done";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let agent = Agent::start(&[]);
    let drain = b"{\"v\":1,\"do\":\"drain\",\"drain\":true}\n";
    agent.freeze();
    Raw::open().send(drain);
    let mut patient = Raw::open();
    patient.send(b"{\"v\":1,\"do\":\"status\"}\n");
    agent.thaw();
    // Clients are served in the order in which they came.
    assert_eq!(patient.answer().unwrap()["ok"]["stats"]["draining"], 0);
    assert_eq!(status()["stats"]["draining"], 0);
    // One that listens, but has nothing more to say, is still there.
    let mut last = Raw::open();
    last.send(drain);
    last.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(last.answer().unwrap()["ok"]["draining"], true);
    agent.stop();
    test.end();
}
