//! A new agent takes over what an agent of another version left: names, maps and live sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::{Config, Error, Origin};
use libbpf_rs::btf::types::Struct;
use libbpf_rs::{Link, MapCore, MapHandle};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::spawn;
use support::agent::{Rule, Running, Steering};
use support::talk::Talk;
use support::{Guard, can_run, is_listed, maps, wait_until};

const CWND: u32 = 1_000_000;

fn config(name: &str) -> Config {
    Config {
        max_flows: 64,
        ..Config::new(name)
    }
}

/// The pins now say that other BPF code made them.
fn make_foreign(config: &Config) {
    let control = maps::open(&config.pin_dir, "control");
    maps::patch(&control, maps::OBJECT_HASH, &[0x5a; 8]);
}

fn pins(config: &Config) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&config.pin_dir).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Reads the list of congestion controls all the time; a name must be there at every look.
struct Watch {
    links: bool,
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Watch {
    fn start(name: &'static str) -> Self {
        let btf = libbpf_rs::btf::Btf::from_vmlinux().unwrap();
        let links = btf
            .type_by_name::<Struct<'_>>("bpf_struct_ops_link")
            .is_some();
        if !links {
            println!("before Linux 6.4 a name leaves the list for the moment of its exchange");
        }
        let (stop, looks) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let thread = spawn({
            let (stop, looks) = (Arc::clone(&stop), Arc::clone(&looks));
            move || {
                while links && !stop.load(SeqCst) {
                    assert!(is_listed(name), "{name} has left the list");
                    looks.fetch_add(1, SeqCst);
                }
            }
        });
        Self {
            links,
            stop,
            looks,
            thread,
        }
    }

    /// Returns how often it looked.
    fn end(self) -> u64 {
        self.stop.store(true, SeqCst);
        self.thread.join().unwrap();
        let looks = self.looks.load(SeqCst);
        assert!(looks > 1000 || !self.links, "{looks} looks");
        looks
    }
}

#[test]
fn kernel_an_upgrade_keeps_the_name_and_drives_old_sockets() {
    if !can_run("kernel_an_upgrade_keeps_the_name_and_drives_old_sockets") {
        return;
    }
    const NAME: &str = "ccpupgrade";
    const RATES: [u32; 4] = [1_000_000, 1_500_000, 2_000_000, 2_500_000];
    let rules: [Rule; 4] = [
        |_| (RATES[0], CWND),
        |_| (RATES[1], CWND),
        |_| (RATES[2], CWND),
        |_| (RATES[3], CWND),
    ];
    let config = config(NAME);
    let _guard = Guard::new(&config);
    let talk = Talk::new(500);
    let datapath = support::start(&config);
    assert_eq!(datapath.origin(), Origin::Loaded);
    let mut agent = Running::steering(datapath, &Steering::new(rules[0]));
    let watch = Watch::start(NAME);
    let mut ports = talk.open(NAME, 3);
    talk.wait_paced(&ports, RATES[0].into());

    for version in 1..RATES.len() {
        agent.leave();
        make_foreign(&config);
        let datapath = support::start(&config);
        assert_eq!(datapath.origin(), Origin::Upgraded);
        let steering = Steering::new(rules[version]);
        agent = Running::steering(datapath, &steering);
        // Sockets of all versions so far, and new ones.
        ports.extend(talk.open(NAME, 3));
        talk.wait_paced(&ports, RATES[version].into());
        wait_until("all flows report", || {
            let heard = |port: &u16| {
                let flow = steering.flow(*port);
                flow.is_some_and(|flow| flow.reports.load(SeqCst) > 3)
            };
            ports.iter().all(heard)
        });
        assert_eq!(agent.observer().live_flows(), ports.len());
        steering.assert_right();
        // Each version's code stays as long as its sockets do.
        assert_eq!(maps::registrations(NAME), version + 1);
    }
    let counters = agent.observer().counters();
    let looks = watch.end();
    println!(
        "{} sockets of 4 versions driven, {looks} looks at the list, {counters:?}",
        ports.len()
    );
    assert_eq!((counters.missing_programs, counters.no_slot), (0, 0));

    talk.finish();
    wait_until("old code goes with its last socket", || {
        maps::registrations(NAME) == 1
    });
    wait_until("all flows end", || agent.observer().live_flows() == 0);
    maps::assert_all_free(&config.pin_dir, config.max_flows);
    agent.stop();
    support::assert_gone(&config);
}

#[test]
fn kernel_an_unknown_layout_is_refused_and_left_alone() {
    if !can_run("kernel_an_unknown_layout_is_refused_and_left_alone") {
        return;
    }
    const NAME: &str = "ccplayout";
    let config = config(NAME);
    let _guard = Guard::new(&config);
    let talk = Talk::new(500);
    let rule = |_: &portus::DatapathInfo| (1_000_000, CWND);
    let agent = Running::steering(support::start(&config), &Steering::new(rule));
    let ports = talk.open(NAME, 3);
    talk.wait_paced(&ports, 1_000_000);
    agent.leave();

    let control = maps::open(&config.pin_dir, "control");
    let ours = maps::patch(&control, maps::LAYOUT_VERSION, &99u32.to_ne_bytes());
    let before = pins(&config);
    let refused = ccp_bpf::Datapath::start(config.clone()).err();
    let Some(error @ Error::Layout { found: 99, .. }) = refused else {
        panic!("{refused:?}");
    };
    let text = error.to_string();
    println!("{text}");
    assert!(
        text.contains("layout 99") && text.contains("detach"),
        "{text}"
    );
    assert_eq!(pins(&config), before);
    assert!(is_listed(NAME));
    // The sockets go on under the fallback, and new ones can be made.
    let bytes = |port: &u16| talk.info(*port).bytes_acked();
    let then: Vec<_> = ports.iter().map(bytes).collect();
    wait_until("the sockets go on", || {
        ports
            .iter()
            .zip(&then)
            .all(|(port, then)| bytes(port) > *then)
    });
    let later = talk.open(NAME, 1);

    // Its own version takes over as if nothing had been.
    maps::patch(&control, maps::LAYOUT_VERSION, &ours);
    let datapath = support::start(&config);
    assert_eq!(datapath.origin(), Origin::Adopted);
    let agent = Running::steering(datapath, &Steering::new(rule));
    talk.wait_paced(&ports, 1_000_000);
    talk.wait_paced(&later, 1_000_000);
    talk.finish();
    agent.stop();
    drop(control);
    support::assert_gone(&config);
}

/// The limits are fixed in loaded code, so other limits are other code.
#[test]
fn kernel_a_restart_with_other_limits_puts_them_in_force() {
    if !can_run("kernel_a_restart_with_other_limits_puts_them_in_force") {
        return;
    }
    const NAME: &str = "ccplimits";
    let first = config(NAME);
    let rule = |_: &portus::DatapathInfo| (4_000_000, 1448);
    let _guard = Guard::new(&first);
    let talk = Talk::new(500);
    let agent = Running::steering(support::start(&first), &Steering::new(rule));
    let ports = talk.open(NAME, 2);
    talk.wait_paced(&ports, 4_000_000);
    wait_until("the window's floor", || talk.info(ports[0]).snd_cwnd() == 4);
    agent.leave();

    let second = Config {
        max_rate: 1_000_000,
        min_cwnd: 7,
        ..first
    };
    let datapath = support::start(&second);
    assert_eq!(datapath.origin(), Origin::Upgraded);
    let agent = Running::steering(datapath, &Steering::new(rule));
    let ports = talk.open(NAME, 2);
    talk.wait_paced(&ports, 1_000_000);
    wait_until("the new window's floor", || {
        talk.info(ports[0]).snd_cwnd() == 7
    });
    talk.finish();
    agent.leave();
    let datapath = support::start(&second);
    assert_eq!(datapath.origin(), Origin::Adopted);
    datapath.stop().unwrap();
    support::assert_gone(&second);
}

/// Takes a name out of the list and leaves its pin.
fn unregister(config: &Config, name: &str) {
    let ops = config.pin_dir.join(format!("ops-{name}"));
    if ops.exists() {
        let map = MapHandle::from_pinned_path(&ops).unwrap();
        map.delete(&0u32.to_ne_bytes()).unwrap();
    } else {
        let link = Link::open(config.pin_dir.join(format!("link-{name}"))).unwrap();
        link.detach().unwrap();
    }
    assert!(!is_listed(name));
}

/// Unregistered, but the pins are there, and a socket keeps the struct_ops in use.
#[test]
fn kernel_a_stop_that_was_cut_short_is_completed_by_the_next_start() {
    const TEST: &str = "kernel_a_stop_that_was_cut_short_is_completed_by_the_next_start";
    const NAME: &str = "ccpcut";
    if !can_run(TEST) {
        return;
    }
    let config = config(NAME);
    let _guard = Guard::new(&config);
    let first = support::start(&config);
    let talk = Talk::new(500);
    talk.open(NAME, 1);
    drop(first);
    unregister(&config, NAME);
    let second = support::start(&config);
    assert_eq!(second.origin(), Origin::Loaded);
    assert!(is_listed(NAME));
    second.stop().unwrap();
    talk.finish();
    support::assert_gone(&config);
}

/// The other name's registration is adopted, with its sockets.
#[test]
fn kernel_a_name_that_has_only_its_pin_left_is_registered_again() {
    const TEST: &str = "kernel_a_name_that_has_only_its_pin_left_is_registered_again";
    const NAMES: [&str; 2] = ["ccpkept", "ccplost"];
    if !can_run(TEST) {
        return;
    }
    let config = Config {
        names: NAMES.map(str::to_owned).to_vec(),
        ..config(NAMES[0])
    };
    let _guard = Guard::new(&config);
    drop(support::start(&config));
    let talk = Talk::new(500);
    talk.open(NAMES[0], 1);
    unregister(&config, NAMES[1]);
    let second = support::start(&config);
    assert_eq!(second.origin(), Origin::Adopted);
    assert!(NAMES.into_iter().all(is_listed));
    talk.open(NAMES[1], 1);
    talk.finish();
    second.stop().unwrap();
    support::assert_gone(&config);
}
