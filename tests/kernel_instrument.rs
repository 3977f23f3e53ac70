//! The instruments of the kernel tests, tried on what the kernel itself does: if these fail, the
//! other tests' figures mean nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::load::{Demand, Load};
use common::machine::{KernelState, KernelTest};
use common::{load, path};
use pathlab::attempts::attempts;
use pathlab::measured;

#[test]
fn kernel_cubic_fills_a_clean_path() {
    attempts(cubic_fills_a_clean_path);
}

fn cubic_fills_a_clean_path() {
    let Some(test) = KernelTest::begin("kernel_cubic_fills_a_clean_path") else {
        return;
    };
    let spec = path::spec(50, 40, 0.0);
    let path = path::open(&spec);
    let load = Load::over(&path, "cubic", 4, Demand::Greedy);
    std::thread::sleep(Duration::from_secs(4));
    let until = load.start().elapsed();
    let outcome = load.finish();
    path::close(path);

    outcome.assert_intact();
    let share = outcome.goodput_mbps(Duration::from_secs(1), until) / path::capacity_mbps(&spec);
    test.end();
    measured!(
        (0.9..1.01).contains(&share),
        "cubic reached {share:.3} of the path's capacity"
    );
    assert_eq!(outcome.silent_since(Duration::ZERO, until), 0);
    let stall = outcome.longest_stall(until);
    measured!(
        stall < Duration::from_secs(1),
        "a connection of a filled path paused for {stall:?}"
    );
}

#[test]
fn kernel_a_pause_of_the_sender_is_seen_as_a_stall() {
    attempts(a_pause_of_the_sender_is_seen_as_a_stall);
}

fn a_pause_of_the_sender_is_seen_as_a_stall() {
    let Some(test) = KernelTest::begin("kernel_a_pause_of_the_sender_is_seen_as_a_stall") else {
        return;
    };
    let path = path::open(&path::spec(50, 40, 0.0));
    let portions = Demand::Portions {
        bytes: 10_000,
        every: Duration::from_secs(1),
    };
    let load = Load::over(&path, "reno", 2, portions);
    std::thread::sleep(Duration::from_millis(2500));
    let until = load.start().elapsed();
    let outcome = load.finish();
    path::close(path);
    let stall = outcome.longest_stall(until);
    test.end();
    measured!(
        (700..=1000).contains(&stall.as_millis()),
        "portions a second apart show a stall of {stall:?}"
    );
}

#[test]
fn kernel_a_transfer_arrives_completely() {
    let Some(test) = KernelTest::begin("kernel_a_transfer_arrives_completely") else {
        return;
    };
    let path = path::open(&path::spec(50, 40, 0.01));
    let load = Load::over(&path, "cubic", 3, Demand::Transfer { bytes: 300_000 });
    assert!(load.wait_complete(Duration::from_secs(10)));
    let outcome = load.finish();
    path::close(path);
    outcome.assert_intact();
    assert!(
        outcome.flows.iter().all(|flow| flow.bytes() == 300_000),
        "{outcome:?}"
    );
    test.end();
}

#[test]
fn kernel_what_a_test_leaves_behind_is_seen() {
    let Some(test) = KernelTest::begin("kernel_what_a_test_leaves_behind_is_seen") else {
        return;
    };
    let before = KernelState::capture();
    let folder = std::path::Path::new("/sys/fs/bpf/pk3c-ccp-instrument-test");
    std::fs::create_dir(folder).unwrap();
    let changes = before.changes();
    std::fs::remove_dir(folder).unwrap();
    assert_eq!(changes, [format!("new: {}", folder.display())]);
    test.end();
}

#[test]
fn kernel_sockets_tell_their_congestion_control() {
    let Some(test) = KernelTest::begin("kernel_sockets_tell_their_congestion_control") else {
        return;
    };
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    load::set_congestion(&listener, "reno").unwrap();
    assert_eq!(load::congestion_of(&listener), "reno");
    assert!(load::set_congestion(&listener, "no_such_name").is_err());
    drop(listener);
    test.end();
}
