//! What starting, stopping and crashing agents does to the machine and its sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use common::agent::{Agent, PROGRAM};
use common::load::{Demand, Load, congestion_of, set_congestion};
use common::machine::{self, KernelTest};
use common::{NAME, NOBODY, PIN_DIR, eventually};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Enough for several reports of a flow that starts at a few Mbit/s.
const TRANSFER: Demand = Demand::Transfer { bytes: 4_000_000 };
const TRANSFER_LIMIT: Duration = Duration::from_secs(60);
/// Until the agent has logged a flow; not what is measured here.
const FLOW_LIMIT: Duration = Duration::from_secs(10);

/// Transfers until the agent has logged one of them. The first may be over before the agent, which
/// has just begun, takes flows.
fn transfer_under(agent: &Agent, address: IpAddr) {
    let logged = eventually(FLOW_LIMIT, || {
        let port = transfer(address);
        eventually(Duration::from_secs(1), || agent.flow_start(port).is_some())
    });
    assert!(logged, "the agent drives no flow:\n{}", agent.log_text());
}

/// A transfer over loopback from a socket that chooses our name; returns the sender's port.
fn transfer(address: IpAddr) -> u16 {
    let load = Load::over_loopback(address, NAME, 1, TRANSFER);
    let port = load.ports()[0];
    assert!(
        load.wait_complete(TRANSFER_LIMIT),
        "a transfer did not complete in {TRANSFER_LIMIT:?}"
    );
    load.finish().assert_intact();
    port
}

#[test]
fn kernel_a_clean_stop_leaves_nothing() {
    let Some(test) = KernelTest::begin("kernel_a_clean_stop_leaves_nothing") else {
        return;
    };
    for _ in 0..2 {
        let agent = Agent::start(&[]);
        assert!(
            Path::new(PIN_DIR).is_dir(),
            "a running agent has its pins in {PIN_DIR}"
        );
        transfer_under(&agent, LOOPBACK);
        agent.stop();
        assert!(
            !machine::is_registered(),
            "{NAME} is still listed after a clean stop"
        );
        assert!(
            !Path::new(PIN_DIR).exists(),
            "{PIN_DIR} is still there after a clean stop"
        );
    }
    test.end();
}

#[test]
fn kernel_ipv6_flows_are_driven_too() {
    let name = "kernel_ipv6_flows_are_driven_too";
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return machine::skipped(name, "needs IPv6 on loopback");
    }
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let agent = Agent::start(&[]);
    transfer_under(&agent, IpAddr::V6(Ipv6Addr::LOCALHOST));
    agent.stop();
    test.end();
}

#[test]
fn kernel_a_second_agent_is_refused() {
    let Some(test) = KernelTest::begin("kernel_a_second_agent_is_refused") else {
        return;
    };
    let first = Agent::start(&[]);
    let mut second = Agent::spawn(&[]);
    let status = second.wait(Duration::from_secs(10));
    assert!(
        status.is_some_and(|status| !status.success()),
        "the second agent was not refused: {status:?}"
    );
    let said = second.log_text();
    assert!(
        said.contains("another agent") && said.contains("stop"),
        "no reason and remedy in: {said}"
    );
    // The refused one has not disturbed the first.
    assert!(machine::is_registered());
    transfer(LOOPBACK);
    first.stop();
    test.end();
}

#[test]
fn kernel_a_killed_agents_pins_are_adopted() {
    let Some(test) = KernelTest::begin("kernel_a_killed_agents_pins_are_adopted") else {
        return;
    };
    Agent::start(&[]).kill9();
    assert!(
        machine::is_registered(),
        "without an agent, new sockets can still choose {NAME}"
    );
    assert!(Path::new(PIN_DIR).is_dir());
    transfer(LOOPBACK);

    let agent = Agent::start(&[]);
    transfer_under(&agent, LOOPBACK);
    agent.stop();
    test.end();
}

#[test]
fn kernel_default_is_set_and_restored() {
    let Some(test) = KernelTest::begin("kernel_default_is_set_and_restored") else {
        return;
    };
    let before = machine::default_congestion();
    let agent = Agent::start(&["--default"]);
    assert_eq!(machine::default_congestion(), NAME);
    agent.stop();
    assert_eq!(machine::default_congestion(), before);
    test.end();
}

#[test]
fn kernel_default_is_restored_although_an_agent_died() {
    let Some(test) = KernelTest::begin("kernel_default_is_restored_although_an_agent_died") else {
        return;
    };
    let before = machine::default_congestion();
    Agent::start(&["--default"]).kill9();
    assert_eq!(
        machine::default_congestion(),
        NAME,
        "a crash changes nothing for new connections"
    );
    // The next agent knows what the default was before the first one, whether it is asked to be the
    // default itself or not.
    Agent::start(&["--default"]).kill9();
    Agent::start(&[]).stop();
    assert_eq!(machine::default_congestion(), before);
    test.end();
}

#[test]
fn kernel_a_start_that_fails_leaves_what_it_found() {
    let Some(test) = KernelTest::begin("kernel_a_start_that_fails_leaves_what_it_found") else {
        return;
    };
    let before = machine::default_congestion();
    // The last that can fail, with the datapath ready.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let fail = || {
        let mut agent = Agent::spawn(&["--default", "--metrics", &port]);
        let status = agent.wait(TRANSFER_LIMIT);
        let said = agent.log_text();
        assert!(status.is_some_and(|status| !status.success()), "{said}");
        assert!(said.contains(&port), "{said}");
    };
    fail();
    assert!(!machine::is_registered() && !Path::new(PIN_DIR).exists());
    assert_eq!(machine::default_congestion(), before);

    // What an agent that crashed has left waits for one that does start.
    Agent::start(&["--default"]).kill9();
    fail();
    assert!(machine::is_registered() && Path::new(PIN_DIR).is_dir());
    assert_eq!(machine::default_congestion(), NAME);
    let agent = Agent::start(&[]);
    transfer_under(&agent, LOOPBACK);
    agent.stop();
    assert_eq!(machine::default_congestion(), before);
    test.end();
}

#[test]
fn kernel_default_is_restored_by_a_next_agent_that_is_not_to_be_it() {
    let name = "kernel_default_is_restored_by_a_next_agent_that_is_not_to_be_it";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let before = machine::default_congestion();
    Agent::start(&["--default"]).leave();
    assert_eq!(machine::default_congestion(), NAME);
    let agent = Agent::start(&[]);
    assert_eq!(machine::default_congestion(), before);
    agent.stop();
    test.end();
}

#[test]
fn kernel_detach_removes_what_a_killed_agent_left() {
    let Some(test) = KernelTest::begin("kernel_detach_removes_what_a_killed_agent_left") else {
        return;
    };
    let before = machine::default_congestion();
    let agent = Agent::start(&["--default"]);
    let detach = || Command::new(PROGRAM).arg("detach").output().unwrap();
    let output = detach();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("another agent"),
        "{said}"
    );
    assert!(machine::is_registered() && Path::new(PIN_DIR).is_dir());
    assert_eq!(machine::default_congestion(), NAME);

    agent.kill9();
    let output = detach();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(machine::default_congestion(), before);
    assert!(!machine::is_registered() && !Path::new(PIN_DIR).exists());
    test.end();
}

#[test]
fn kernel_a_default_that_someone_else_chose_meanwhile_is_kept() {
    let Some(test) =
        KernelTest::begin("kernel_a_default_that_someone_else_chose_meanwhile_is_kept")
    else {
        return;
    };
    let before = machine::default_congestion();
    let agent = Agent::start(&["--default"]);
    machine::set_default_congestion("reno");
    agent.stop();
    assert_eq!(machine::default_congestion(), "reno");
    machine::set_default_congestion(&before);
    test.end();
}

/// iperf3 as `nobody`, ended by `timeout` if it hangs.
fn iperf3_as_nobody(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["20", "iperf3"])
        .args(arguments)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    command
}

#[test]
fn kernel_any_user_may_choose_it() {
    let name = "kernel_any_user_may_choose_it";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    if Command::new("iperf3").arg("--version").output().is_err() {
        return machine::skipped(name, "needs iperf3");
    }
    let agent = Agent::start(&[]);
    let port = {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let mut server = iperf3_as_nobody(&["-s", "-1", "-p", &port])
        .stdout(File::create("/dev/null").unwrap())
        .spawn()
        .unwrap();
    let client = || -> Output {
        iperf3_as_nobody(&["-c", "127.0.0.1", "-p", &port, "-C", NAME, "-t", "1", "-J"])
            .output()
            .unwrap()
    };
    let mut output = client();
    // The server may not listen yet.
    eventually(Duration::from_secs(3), || {
        let refused = String::from_utf8_lossy(&output.stdout).contains("Connection refused");
        if refused {
            output = client();
        }
        !refused
    });
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["end"]["sender_tcp_congestion"], NAME, "{report}");
    assert!(
        report["end"]["sum_received"]["bytes"].as_u64().unwrap() > 0,
        "{report}"
    );
    server.wait().unwrap();
    agent.stop();
    test.end();
}

/// Sends `bytes` over an accepted connection and fails unless all of it arrives.
fn push(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    to.set_read_timeout(Some(TRANSFER_LIMIT)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![0; bytes]).unwrap());
        to.read_exact(&mut vec![0; bytes]).unwrap();
    });
}

#[test]
fn kernel_children_of_a_listener_inherit_and_survive() {
    let Some(test) = KernelTest::begin("kernel_children_of_a_listener_inherit_and_survive") else {
        return;
    };
    const BYTES: usize = 1_000_000;
    let agent = Agent::start(&[]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    set_congestion(&listener, NAME).unwrap();
    let address = listener.local_addr().unwrap();
    let child_of_listener = || {
        let client = TcpStream::connect(address).unwrap();
        (client, listener.accept().unwrap().0)
    };

    let (mut first_client, mut first) = child_of_listener();
    assert_eq!(congestion_of(&first), NAME);
    push(&mut first, &mut first_client, BYTES);

    agent.kill9();
    push(&mut first, &mut first_client, BYTES);
    let (mut second_client, mut second) = child_of_listener();
    assert_eq!(congestion_of(&second), NAME);
    push(&mut second, &mut second_client, BYTES);

    Agent::start(&[]).stop();
    push(&mut first, &mut first_client, BYTES);
    push(&mut second, &mut second_client, BYTES);
    let (mut third_client, mut third) = child_of_listener();
    push(&mut third, &mut third_client, BYTES);

    drop((
        listener,
        first,
        first_client,
        second,
        second_client,
        third,
        third_client,
    ));
    test.end();
}
