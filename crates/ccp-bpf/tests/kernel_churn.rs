//! Connections that come and go by the thousand every second, through a small table: every slot is
//! used again and again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::Config;
use libbpf_rs::{MapCore, MapFlags};
use pathlab::attempts::attempts;
use pathlab::measured;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use support::agent::{Running, Steering};
use support::{Guard, can_run, loopback, maps, tcp, wait_until};

const NAME: &str = "ccpchurn";
/// Connections per second.
const PER_SECOND: u32 = 2_000;
/// Connections that stay, and whose settings are checked all the while.
const RESIDENTS: usize = 30;
const SLOTS: u32 = 512;
/// What a short connection sends.
const BYTES: usize = 6_000;
const THREADS: u32 = 2;

static ARRIVED: AtomicU64 = AtomicU64::new(0);

/// Every port has a rate and a window of its own.
fn rule(port: u32) -> (u32, u32) {
    (50_000_000 + port * 1_000, (20 + port % 997) * 1448)
}

/// Reads every connection to its end, a thread for all of them.
fn serve(listener: TcpListener) {
    spawn(move || {
        let mut open: Vec<TcpStream> = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        listener.set_nonblocking(true).unwrap();
        loop {
            while let Ok((socket, _)) = listener.accept() {
                socket.set_nonblocking(true).unwrap();
                open.push(socket);
            }
            open.retain_mut(|socket| {
                loop {
                    match socket.read(&mut buffer) {
                        Ok(0) => return false,
                        Ok(n) => {
                            ARRIVED.fetch_add(n as u64, SeqCst);
                        }
                        Err(e) => return e.kind() == std::io::ErrorKind::WouldBlock,
                    }
                }
            });
            sleep(Duration::from_millis(1));
        }
    });
}

/// Opens, uses and closes connections at the pace; returns how many.
fn churn(to: SocketAddr, seconds: u64) -> u64 {
    let (start, gap) = (
        Instant::now(),
        Duration::from_secs(1) / (PER_SECOND / THREADS),
    );
    let mut living = std::collections::VecDeque::new();
    let mut count = 0u32;
    while start.elapsed() < Duration::from_secs(seconds) {
        let mut socket = tcp::connect(to, NAME).unwrap();
        // Every third leaves in the middle of its transfer.
        if count.is_multiple_of(3) {
            tcp::drop_on_close(&socket);
        }
        socket.write_all(&[0; BYTES]).unwrap();
        living.push_back(socket);
        // Some live for a few ms, so that the agent's updates come late for them.
        if living.len() > 40 {
            living.pop_front();
        }
        count += 1;
        if let Some(early) = (start + gap * count).checked_duration_since(Instant::now()) {
            sleep(early);
        }
    }
    count.into()
}

fn churn_for(test: &str, seconds: u64) {
    if !can_run(test) {
        return;
    }
    let config = Config {
        max_flows: SLOTS,
        silence: Duration::from_millis(500),
        ..Config::new(NAME)
    };
    let _guard = Guard::new(&config);
    let steering = Steering {
        every_us: 1_000,
        haunts: true,
        ..Steering::new(|info| rule(info.src_port))
    };
    let datapath = support::start(&config);
    // The generations of all slots are about to begin anew.
    let flows = maps::open(&config.pin_dir, "flows");
    for slot in 0..SLOTS {
        let mut value = flows
            .lookup(&slot.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap();
        value[..4].copy_from_slice(&(0xfff8_0000 | (slot + 1)).to_ne_bytes());
        flows
            .update(&slot.to_ne_bytes(), &value, MapFlags::ANY)
            .unwrap();
    }
    let agent = Running::steering(datapath, &steering);
    let netns = loopback();
    // Closed connections must not use up the ports.
    netns.sysctl("net/ipv4/tcp_max_tw_buckets", "100").unwrap();
    let listener = netns
        .enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .unwrap();
    let to = listener.local_addr().unwrap();
    serve(listener);
    let residents: Vec<_> = netns
        .enter(|| {
            (0..RESIDENTS)
                .map(|_| tcp::connect(to, NAME).unwrap())
                .collect()
        })
        .unwrap();
    let speak = |mut socket: &TcpStream| socket.write_all(&[0; 500]).unwrap();
    let is_steered = |socket: &TcpStream| {
        let info = tcp::TcpInfo::of(socket);
        let (rate, cwnd) = rule(socket.local_addr().unwrap().port().into());
        (info.pacing_rate(), info.snd_cwnd() * 1448) == (rate.into(), cwnd.into())
    };
    wait_until("the residents are driven", || {
        // The datapath looks for its orders when there is something to send or acknowledged.
        residents.iter().for_each(speak);
        residents.iter().all(is_steered)
    });

    let start = Instant::now();
    let churning: Vec<_> = (0..THREADS)
        .map(|_| {
            let netns_work = netns.enter(|| spawn(move || churn(to, seconds)));
            netns_work.unwrap()
        })
        .collect();
    let mut looks = 0;
    while churning.iter().any(|thread| !thread.is_finished()) {
        for socket in &residents {
            speak(socket);
            let info = tcp::TcpInfo::of(socket);
            assert!(
                is_steered(socket),
                "{socket:?} at {} bytes/s, {} packets",
                info.pacing_rate(),
                info.snd_cwnd()
            );
            looks += 1;
        }
        sleep(Duration::from_millis(20));
    }
    let opened: u64 = churning
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    let rate = opened as f64 / start.elapsed().as_secs_f64();
    drop(residents);
    wait_until("no flow is left", || agent.observer().live_flows() == 0);
    wait_until("portus knows no flow", || steering.open().is_empty());

    let counters = agent.observer().counters();
    let flows = steering.flows();
    let reports = steering.seen.reports.load(SeqCst);
    println!(
        "{opened} connections at {rate:.0}/s through {SLOTS} slots, {} heard of, {reports} reports, \
         {looks} looks at residents, {} MB arrived, {counters:?}",
        flows.len(),
        ARRIVED.load(SeqCst) / 1_000_000
    );
    steering.assert_right();
    let wrong = flows
        .iter()
        .filter(|flow| flow.closes.load(SeqCst) != 1)
        .count();
    assert_eq!(wrong, 0, "flows that were not closed exactly once");
    assert_eq!(counters.no_slot, 0);
    maps::assert_all_free(&config.pin_dir, SLOTS);
    agent.stop();
    support::assert_gone(&config);
    measured!(
        rate > 0.9 * f64::from(PER_SECOND),
        "{rate:.0} connections/s"
    );
    // What ended before the agent saw the offer is not heard of; that is the exception.
    measured!(
        flows.len() as f64 > 0.9 * opened as f64,
        "{} of {opened} heard of",
        flows.len()
    );
    measured!(
        counters.stale_updates > 0,
        "no update came late: {counters:?}"
    );
}

#[test]
fn kernel_connections_that_come_and_go_leak_nothing() {
    let test = "kernel_connections_that_come_and_go_leak_nothing";
    attempts(|| churn_for(test, 8));
}

#[test]
#[ignore = "runs for a minute"]
fn kernel_a_minute_of_connections_that_come_and_go() {
    let test = "kernel_a_minute_of_connections_that_come_and_go";
    attempts(|| churn_for(test, 60));
}
