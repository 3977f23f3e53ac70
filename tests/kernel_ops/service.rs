//! What a service manager sees of the agent.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use super::{File, KNOWN, await_flows, is_driven, status};
use crate::common::agent::Agent;
use crate::common::load::{Demand, Load};
use crate::common::machine::{self, KernelTest};
use crate::common::{NAME, eventually, path};

#[test]
fn kernel_ops_the_service_manager_is_told_and_capabilities_are_given_up() {
    let name = "kernel_ops_the_service_manager_is_told_and_capabilities_are_given_up";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let place = File::new("notify");
    let manager = UnixDatagram::bind(&place.0).unwrap();
    manager.set_read_timeout(Some(KNOWN)).unwrap();
    let variables = [("NOTIFY_SOCKET", place.name()), ("WATCHDOG_USEC", "600000")];
    let config = File::with("service.toml", "log = \"info\"\n");
    let agent = Agent::spawn_with(&variables, &["--config", config.name()]);
    // Always heard, or ten signs of life would fill the socket and hold the agent up.
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok(length) = manager.recv(&mut buffer) {
            let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if tell.send(said).is_err() {
                break;
            }
        }
    });
    // Every datagram is a list of lines; signs of life come in between.
    let hear = |wanted: &str| {
        for _ in 0..1000 {
            let said = told
                .recv_timeout(KNOWN)
                .unwrap_or_else(|error| panic!("no {wanted}: {error}"));
            if said.lines().any(|line| line == wanted) {
                return said;
            }
        }
        panic!("{wanted} was not said");
    };
    hear("READY=1");
    for _ in 0..3 {
        hear("WATCHDOG=1");
    }
    let capabilities = || -> Vec<(String, u64)> {
        let threads = fs::read_dir(format!("/proc/{}/task", agent.id())).unwrap();
        threads
            .map(|thread| {
                let folder = thread.unwrap().path();
                let status = fs::read_to_string(folder.join("status")).unwrap();
                let field = |name: &str| {
                    status
                        .lines()
                        .find_map(|line| line.strip_prefix(name).map(str::trim))
                };
                let set = u64::from_str_radix(field("CapPrm:").unwrap(), 16).unwrap();
                (field("Name:").unwrap().to_owned(), set)
            })
            .collect()
    };
    const NET_ADMIN: u64 = 1 << 12;
    // One thread, which puts the default back.
    let reduced = || {
        let sets = capabilities().into_iter().map(|(_, set)| set);
        sets.filter(|set| *set != 0).eq([NET_ADMIN])
    };
    assert!(eventually(KNOWN, reduced), "{:?}", capabilities());
    assert!(capabilities().len() >= 3, "{:?}", capabilities());
    agent.hang_up();
    assert!(hear("RELOADING=1").contains("MONOTONIC_USEC="));
    hear("READY=1");

    // Without capabilities it drives flows all the same.
    let path = path::open(&path::spec(20, 20, 0.0));
    let load = Load::over(&path, NAME, 1, Demand::Greedy);
    await_flows(&load, "driven", is_driven);
    load.finish().assert_intact();
    path::close(path);

    agent.stop();
    hear("STOPPING=1");
    assert!(!machine::is_registered());
    test.end();
}

#[test]
fn kernel_ops_a_log_and_a_record_that_nobody_takes_hold_up_no_flow() {
    let name = "kernel_ops_a_log_and_a_record_that_nobody_takes_hold_up_no_flow";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let record = File::new("record");
    mkfifo(&record.0, Mode::S_IRWXU).unwrap();
    let reader = fs::File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(&record.0)
        .unwrap();
    let agent = Agent::start(&["--log", "debug", "--record", record.name()]);
    let path = path::open(&path::spec(20, 20, 0.0));
    let load = Load::over(&path, NAME, 8, Demand::Greedy);
    await_flows(&load, "driven", is_driven);
    let reports = |status: &Value| status["stats"]["reports"].as_u64().unwrap();
    let stalled = agent.stall_log();
    let from = reports(&status());
    // Each of them is more than 150 bytes of both, and a pipe holds 64 kB.
    assert!(eventually(4 * KNOWN, || reports(&status()) > from + 1000));
    let last = await_flows(&load, "driven", is_driven);
    assert_eq!(last["stats"]["fallback_episodes"], 0, "{last:#}");
    drop((stalled, reader));
    assert!(eventually(KNOWN, || agent
        .log_text()
        .contains("recording stopped")));
    load.finish().assert_intact();
    path::close(path);
    agent.stop();
    test.end();
}

#[test]
fn kernel_ops_a_start_that_fails_leaves_the_record_and_another_keeps_it() {
    let name = "kernel_ops_a_start_that_fails_leaves_the_record_and_another_keeps_it";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let (record, old) = (File::new("kept"), File::new("kept.old"));
    let text = |file: &File| fs::read_to_string(&file.0).unwrap_or_default();
    fs::write(&record.0, "precious").unwrap();
    let fails = |arguments: &[&str]| {
        let mut agent = Agent::spawn(&[&["--record", record.name()], arguments].concat());
        let ended = agent.wait(KNOWN);
        assert!(ended.is_some_and(|ended| !ended.success()), "{arguments:?}");
    };
    fails(&["--pin-dir", "/tmp"]);
    fails(&["--control", "/dev/null"]);
    let folder = File::new("no-folder");
    fails(&["--control", folder.0.join("socket").to_str().unwrap()]);
    assert!(!folder.0.exists());
    fails(&["--metrics", "192.0.2.1:9"]);
    assert_eq!((text(&record), text(&old)), ("precious".into(), "".into()));

    let agent = Agent::start(&["--record", record.name()]);
    assert_eq!(text(&old), "precious");
    let header = text(&record);
    assert!(header.contains("pk3c-record"), "{header}");
    fails(&[]);
    assert_eq!((text(&record), text(&old)), (header, "precious".into()));
    agent.stop();
    test.end();
}
