//! `pk3c-ccp lab path` as people use it: the exit status is the command's, and nothing is left behind, however it ends.
//! The tests named `kernel_…` need root, /dev/net/tun, iproute2 and util-linux, and say so where they cannot run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn lab_path(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pk3c-ccp"));
    command.args(["lab", "path"]).args(arguments);
    command
}

/// Whether a test can run; says aloud if not.
fn can_run(test: &str) -> bool {
    let missing = pathlab::requirements::check_path();
    if let Err(missing) = &missing {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: {}",
            missing.0.join("; ")
        );
    }
    missing.is_ok()
}

#[test]
fn bad_input_is_refused_before_anything_is_started() {
    for (arguments, complaint) in [
        (&["--rate", "fast"][..], "fast"),
        (&["--queue", "0"], "not a queue"),
        (&["--loss", "100%"], "too much"),
        (&["--trace", "/no/such/trace"], "/no/such/trace"),
        (&["--scenario", "/no/such/file.toml"], "/no/such/file.toml"),
        (&["--scenario", "x.toml", "--rtt", "1ms"], "--rtt"),
    ] {
        let output = lab_path(arguments).args(["--", "true"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr.contains(complaint), "{arguments:?}: {stderr}");
    }
}

#[test]
fn kernel_the_exit_status_is_the_command_s() {
    if !can_run("kernel_the_exit_status_is_the_command_s") {
        return;
    }
    let path = &["--rate", "12mbit", "--rtt", "20ms", "--"][..];
    for (script, status) in [
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        ("test \"$PK3C_SERVER\" = 10.77.0.2", 0),
    ] {
        let output = lab_path(path).args(["sh", "-c", script]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{script}: {stderr}");
        assert!(stderr.contains("12 Mbit/s, 20 ms"), "{stderr}");
    }
    let missing = lab_path(&["--", "no-such-program"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
}

/// Processes whose command line is this.
fn running(command: &str) -> usize {
    let line = command.replace(' ', "\0") + "\0";
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|it| fs::read(it.path().join("cmdline")).is_ok_and(|own| own == line.as_bytes()))
        .count()
}

fn devices() -> String {
    fs::read_to_string("/proc/net/dev")
        .unwrap()
        .lines()
        .filter_map(|line| {
            line.split_once(':')
                .map(|(name, _)| name.trim().to_owned() + " ")
        })
        .collect()
}

#[test]
fn kernel_no_end_leaves_anything_behind() {
    if !can_run("kernel_no_end_leaves_anything_behind") {
        return;
    }
    let before = (
        devices(),
        fs::read_dir("/run/netns").map_or(0, Iterator::count),
    );
    for (index, signal) in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL]
        .into_iter()
        .enumerate()
    {
        let sleep = format!("sleep 7{index}{}", std::process::id());
        let script = format!("{sleep} & echo there; {sleep}");
        let mut lab = lab_path(&["--server", &sleep, "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(lab.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        let until = |count: usize| {
            let began = Instant::now();
            while running(&sleep) != count {
                let there = running(&sleep);
                assert!(
                    began.elapsed() < Duration::from_secs(8),
                    "{there} after {signal}"
                );
                thread::sleep(Duration::from_millis(20));
            }
        };
        until(3);
        kill(Pid::from_raw(lab.id() as i32), signal).unwrap();
        let status = lab.wait().unwrap();
        assert!(!status.success(), "{signal}: {status}");
        until(0);
    }
    let after = (
        devices(),
        fs::read_dir("/run/netns").map_or(0, Iterator::count),
    );
    assert_eq!(after, before);
}
