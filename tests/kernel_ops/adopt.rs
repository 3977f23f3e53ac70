//! Connections that ran before the agent, and go on without it.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::{KNOWN, await_flows, flow_of, is_driven, refused, status, told};
use crate::common::agent::Agent;
use crate::common::load::{Demand, Load, congestion_from, congestion_of, set_congestion};
use crate::common::machine::{self, KernelTest};
use crate::common::{NAME, eventually};

/// 4 Mbit/s, whatever drives them.
const DEMAND: Demand = Demand::Portions {
    bytes: 50_000,
    every: Duration::from_millis(100),
};

#[test]
fn kernel_ops_running_connections_are_adopted_and_handed_back() {
    let Some(test) =
        KernelTest::begin("kernel_ops_running_connections_are_adopted_and_handed_back")
    else {
        return;
    };
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let load = Load::over_loopback(here, "reno", 3, DEMAND);
    let other = Load::over_loopback(here, "reno", 1, DEMAND);
    let ports: Vec<_> = load.ports().iter().map(u16::to_string).collect();

    // A start that fails has adopted nothing.
    let taken = TcpListener::bind((here, 0)).unwrap();
    let metrics = taken.local_addr().unwrap().port().to_string();
    let mut failing = Agent::spawn(&["--adopt", "--adopt-from", "reno", "--metrics", &metrics]);
    let ended = failing.wait(KNOWN);
    assert!(ended.is_some_and(|ended| !ended.success()));
    for port in load.ports() {
        assert_eq!(congestion_from(*port), Some("reno"), "port {port}");
    }

    let agent = Agent::start(&["--adopt", &ports.join(","), "--adopt-from", "reno,nosuch"]);
    assert!(agent.log_text().contains("called nosuch"));
    await_flows(&load, "driven", is_driven);
    for port in load.ports() {
        assert_eq!(congestion_from(*port), Some(NAME), "port {port}");
    }
    let [bystander] = other.ports() else { panic!() };
    assert_eq!(congestion_from(*bystander), Some("reno"));

    assert!(refused(&["drain", "--hand-back", "nosuch"]).contains("nosuch"));
    told(&["drain", "--hand-back", "reno"]);
    let gone = || {
        let status = status();
        load.ports()
            .iter()
            .all(|port| flow_of(&status, *port).is_none())
    };
    assert!(eventually(KNOWN, gone), "{:#}", status());
    for port in load.ports() {
        assert_eq!(congestion_from(*port), Some("reno"), "port {port}");
    }
    for load in [load, other] {
        load.finish().assert_intact();
    }
    agent.stop();
    test.end();
}

#[test]
fn kernel_ops_what_a_stop_has_left_is_adopted() {
    let Some(test) = KernelTest::begin("kernel_ops_what_a_stop_has_left_is_adopted") else {
        return;
    };
    const ADOPT: &[&str] = &["--adopt", "--adopt-from", NAME];
    let adopted = |agent: &Agent| {
        let lines = agent.log().into_iter().map(|line| line.json());
        lines
            .filter_map(|line| line["adopted"].as_u64())
            .collect::<Vec<_>>()
    };
    let agent = Agent::start(&[]);
    let load = Load::over_loopback(IpAddr::V4(Ipv4Addr::LOCALHOST), NAME, 3, DEMAND);
    await_flows(&load, "driven", is_driven);
    agent.stop();
    let agent = Agent::start(ADOPT);
    assert_eq!(adopted(&agent), [3], "{}", agent.log_text());
    await_flows(&load, "driven", is_driven);

    // What the running datapath has already goes on as it is.
    agent.leave();
    let agent = Agent::start(ADOPT);
    assert_eq!(adopted(&agent), [0], "{}", agent.log_text());
    await_flows(&load, "driven", is_driven);
    load.finish().assert_intact();
    agent.stop();
    test.end();
}

#[test]
fn kernel_ops_a_hand_back_needs_no_agent_that_answers() {
    let name = "kernel_ops_a_hand_back_needs_no_agent_that_answers";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    for is_left in [false, true] {
        let agent = Agent::start(&["--control", "none"]);
        let load = Load::over_loopback(IpAddr::V4(Ipv4Addr::LOCALHOST), NAME, 3, DEMAND);
        let agent = (!is_left).then_some(agent);
        assert!(refused(&["drain"]).contains("no agent listens"));
        told(&["drain", "--hand-back", "reno"]);
        for port in load.ports() {
            assert_eq!(congestion_from(*port), Some("reno"), "port {port}");
        }
        load.finish().assert_intact();
        drop(agent);
    }
    test.end();
}

#[test]
fn kernel_ops_a_hand_back_ends_the_default_but_chooses_for_nobody() {
    let name = "kernel_ops_a_hand_back_ends_the_default_but_chooses_for_nobody";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let before = machine::default_congestion();
    let other = if before == "reno" { "cubic" } else { "reno" };
    let agent = Agent::start(&["--default"]);
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (follows, chose) = (listen(), listen());
    set_congestion(&chose, NAME).unwrap();
    let accepted_by = |listener: &TcpListener| {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let open = [accepted_by(&follows), accepted_by(&chose)];

    told(&["drain", "--hand-back", other]);
    assert_eq!(machine::default_congestion(), before);
    for (client, accepted) in &open {
        assert_eq!(congestion_of(client), other);
        assert_eq!(congestion_of(accepted), other);
    }
    assert_eq!(congestion_of(&chose), other);
    assert_eq!(congestion_of(&accepted_by(&chose).1), other);
    assert_eq!(congestion_of(&accepted_by(&follows).1), before);
    assert_eq!(congestion_of(&accepted_by(&follows).0), before);
    agent.stop();
    assert_eq!(machine::default_congestion(), before);
    drop((open, follows, chose));
    test.end();
}
