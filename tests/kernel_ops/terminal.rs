//! `top` on a real terminal.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::{File, Guarded, KNOWN, await_flows, flow_of, is_driven, refused};
use crate::common::agent::{Agent, PROGRAM};
use crate::common::load::{Demand, Load};
use crate::common::machine::{self, KernelTest};
use crate::common::{NAME, eventually, path};

#[test]
fn kernel_ops_top_shows_the_flows_on_a_terminal() {
    let name = "kernel_ops_top_shows_the_flows_on_a_terminal";
    if Command::new("script").arg("--version").output().is_err() {
        return machine::skipped(name, "needs script (Debian's package bsdutils)");
    }
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let said = refused(&["top"]);
    assert!(
        said.contains("needs a terminal") && said.contains("status"),
        "{said}"
    );
    let path = path::open(&path::spec(20, 20, 0.0));
    let agent = Agent::start(&[]);
    let load = Load::over(&path, NAME, 2, Demand::Greedy);
    let last = await_flows(&load, "driven", is_driven);
    let flow = flow_of(&last, load.ports()[0]).unwrap();
    let remote = flow["remote"].as_str().unwrap();

    let screen = File::new("screen");
    let command = format!("stty rows 24 cols 80; exec {PROGRAM} top --interval 0.3");
    let attach = || {
        Guarded(
            Command::new("script")
                .args(["-qfec", &command, screen.name()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    };
    let mut top = attach();
    let mut keys = top.0.stdin.take().unwrap();
    let text = || {
        fs::read(&screen.0)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    };
    let shows = |part: &str| {
        assert!(
            eventually(KNOWN, || text().contains(part)),
            "{part} is not on the screen:\n{}",
            text()
        );
    };
    shows(remote);
    shows("handbrakes:");
    keys.write_all(b"\r").unwrap();
    shows("acked");
    shows("decision");
    keys.write_all(b"q").unwrap();
    let mut ended = None;
    eventually(KNOWN, || {
        ended = top.0.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    assert!(
        text().contains("\u{1b}[?1049l"),
        "the terminal is as it was"
    );
    drop(keys);

    // A terminal that vanishes takes its view along.
    let mut lost = attach();
    shows("handbrakes:");
    let views = || {
        let line =
            |process: fs::DirEntry| fs::read(process.path().join("cmdline")).unwrap_or_default();
        let lines = fs::read_dir("/proc").unwrap().flatten().map(line);
        let wanted = format!("{PROGRAM}\0top\0").into_bytes();
        lines.filter(|line| line.starts_with(&wanted)).count()
    };
    assert!(eventually(KNOWN, || views() == 1));
    lost.0.kill().unwrap();
    assert!(
        eventually(KNOWN, || views() == 0),
        "the view goes on without a terminal"
    );
    load.finish().assert_intact();
    path::close(path);
    agent.stop();
    test.end();
}
