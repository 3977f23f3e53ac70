//! The loaded module, from the agent's side: what it refuses, and that it goes on as before.
//!
//! These tests need root and the module (`insmod ccp-kernel/ccp.ko`); `make test-kernel` runs them in guests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../ccp-vm/tests/support/generate.rs"]
#[allow(dead_code, reason = "only its programs are used")]
mod generate;
#[path = "support/messages.rs"]
mod messages;

use ccp_char::{CharIpc, DEVICE, Error, Observer, counters};
use messages::{Messages, installs, is_acceptable};
use nix::sys::socket::{setsockopt, sockopt};
use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::Scope;
use portus::{CCPHandle, CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const MESSAGES: usize = 100_000;
const SEED: u64 = 6;
/// What libccp's table has room for.
const PROGRAMS: usize = 63;

/// The device is for one at a time, the tests too.
static ALONE: Mutex<()> = Mutex::new(());

/// The device, opened; `None` if it is not there, which is said aloud.
fn device(test: &str) -> Option<(MutexGuard<'static, ()>, File)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match open() {
        Ok(file) => Some((alone, file)),
        Err(error) => {
            println!("SKIPPED {test}: cannot open {DEVICE}: {error}");
            None
        }
    }
}

fn open() -> std::io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

fn counter(name: &str) -> u64 {
    let all = counters();
    let found = all.iter().find(|counter| counter.name == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {all:?}"))
        .value
}

/// How long the module lets an agent be silent, until dropped. The one CPU of a guest, a thousand threads on it, leaves
/// the agent's one thread waiting for longer than the module does; what is asked here is not how fast the machine is.
struct Silence {
    before: String,
}

impl Silence {
    const FILE: &str = "/sys/module/tcp_ccp/parameters/silence_ms";

    fn allow(silence: Duration) -> Self {
        let before = std::fs::read_to_string(Self::FILE).unwrap();
        std::fs::write(Self::FILE, silence.as_millis().to_string()).unwrap();
        Self { before }
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        std::fs::write(Self::FILE, &self.before).unwrap();
    }
}

fn rejected() -> u64 {
    let all = counters();
    let rejected = all.iter().filter(|c| c.name.starts_with("rejected/"));
    rejected.map(|counter| counter.value).sum()
}

#[test]
fn kernel_a_hundred_thousand_malformed_messages_are_refused() {
    let Some((_alone, mut file)) =
        device("kernel_a_hundred_thousand_malformed_messages_are_refused")
    else {
        return;
    };
    let before = rejected();
    let (mut refused, mut accepted) = (0, 0);
    let mut installed = HashSet::new();
    for message in Messages::new(SEED).take(MESSAGES) {
        if installed.len() == PROGRAMS {
            drop(file);
            file = open().unwrap();
            installed.clear();
        }
        let result = (&file).write(&message);
        let why = result.as_ref().err().map(std::io::Error::kind);
        if why.is_some() {
            refused += 1;
        }
        if !is_acceptable(&message) {
            assert_eq!(why, Some(ErrorKind::InvalidInput), "{message:02x?}");
            continue;
        }
        match (installs(&message), why) {
            (Some(uid), None) => assert!(installed.insert(uid), "{uid} twice"),
            (Some(uid), Some(ErrorKind::AlreadyExists)) => assert!(installed.contains(&uid)),
            // libccp would forget the others.
            (Some(1), Some(ErrorKind::InvalidInput)) => assert!(!installed.is_empty()),
            (None, Some(ErrorKind::NotFound)) => {} // the program is not installed
            (None, None) => accepted += 1,
            other => panic!("{other:?}: {message:02x?}"),
        }
    }
    println!("{refused} refused, {accepted} to flows that do not exist");
    assert_eq!(
        rejected() - before,
        refused,
        "each is counted under a reason"
    );
    assert!(refused > MESSAGES as u64 / 3 && accepted > 100);
}

fn message(kind: u16, sid: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend((8 + payload.len() as u16).to_le_bytes());
    bytes.extend(sid.to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// `op result left right`, each register a type and an index.
fn instruction(op: u8, registers: [(u8, u32); 3]) -> Vec<u8> {
    let mut bytes = vec![op];
    for (kind, index) in registers {
        bytes.push(kind);
        bytes.extend(index.to_le_bytes());
    }
    bytes
}

fn install(uid: u32, events: &[[u32; 4]], instructions: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = words(&[uid, events.len() as u32, instructions.len() as u32]);
    payload.extend(events.iter().flat_map(|event| words(event)));
    payload.extend(instructions.concat());
    message(2, 0, &payload)
}

/// What was found to break libccp, one message each.
#[test]
fn kernel_what_breaks_libccp_does_not_reach_it() {
    let Some((_alone, file)) = device("kernel_what_breaks_libccp_does_not_reach_it") else {
        return;
    };
    let bind = || instruction(1, [(2, 0), (2, 0), (1, 1)]);
    let define = |index| instruction(2, [(5, index), (5, index), (1, 0)]);
    let update = |kind: u8, index: u32| [&[kind][..], &index.to_le_bytes(), &[0; 8]].concat();
    let cases = [
        (
            "more instructions than bytes",
            message(2, 0, &words(&[9, 0, 255])),
        ),
        (
            "more events than bytes",
            message(2, 0, &words(&[9, 255, 0])),
        ),
        (
            "counts that overflow",
            message(2, 0, &words(&[9, u32::MAX, u32::MAX])),
        ),
        ("300 instructions", install(9, &[], &vec![bind(); 300])),
        (
            "111 definitions of one register",
            install(9, &[], &vec![define(0); 111]),
        ),
        (
            "an event that ends behind the 255th",
            install(9, &[[0, 256, 0, 0]], &vec![bind(); 255]),
        ),
        (
            "an empty event at 256",
            install(9, &[[256, 0, 0, 0]], &[bind()]),
        ),
        (
            "an event whose end overflows",
            install(9, &[[u32::MAX, 2, 0, 0]], &[bind()]),
        ),
        (
            "a control register 110",
            install(9, &[], &[instruction(1, [(0, 110), (1, 0), (1, 0)])]),
        ),
        (
            "a read of report register 2^31",
            install(9, &[], &[instruction(0, [(7, 0), (5, 1 << 31), (1, 0)])]),
        ),
        (
            "an update of control register 2^31",
            message(3, 1, &[words(&[1]), update(0, 1 << 31)].concat()),
        ),
        (
            "an update of implicit register 6",
            message(3, 1, &[words(&[1]), update(2, 6)].concat()),
        ),
        (
            "256 updates that read as none",
            message(3, 1, &words(&[256])),
        ),
        (
            "128 updates that read as -128",
            message(3, 1, &words(&[128])),
        ),
        (
            "updates that are not there",
            message(4, 1, &words(&[9, 20])),
        ),
        ("a header alone", message(3, 1, &[])),
        ("half a header", vec![2, 0, 8]),
        ("a length of 0", vec![2, 0, 0, 0, 0, 0, 0, 0]),
        ("a READY", message(5, 0, &words(&[1]))),
    ];
    for (what, bytes) in &cases {
        let error = (&file).write(bytes).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}");
    }

    // A failed installation keeps no slot, an unknown program is no success, and number 1 forgets nothing.
    for _ in 0..2 * PROGRAMS {
        (&file)
            .write(&install(9, &[[0, 2, 0, 0]], &[bind()]))
            .expect_err("a bad range");
    }
    for uid in 2..2 + PROGRAMS as u32 {
        (&file)
            .write_all(&install(uid, &[[0, 1, 0, 0]], &[bind()]))
            .unwrap();
    }
    let full = (&file).write(&install(99, &[], &[])).expect_err("full");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    let again = (&file).write(&install(2, &[], &[])).expect_err("twice");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let first = (&file)
        .write(&install(1, &[], &[]))
        .expect_err("after others");
    assert_eq!(first.kind(), ErrorKind::InvalidInput);
    let unknown = (&file)
        .write(&message(4, 1, &words(&[100, 0])))
        .expect_err("unknown");
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let stale = counter("counters/stale");
    (&file).write_all(&message(4, 77, &words(&[2, 0]))).unwrap();
    assert_eq!(
        counter("counters/stale"),
        stale + 1,
        "a flow that has ended is no error"
    );
}

#[test]
fn kernel_a_second_agent_is_turned_away() {
    let Some((_alone, file)) = device("kernel_a_second_agent_is_turned_away") else {
        return;
    };
    let error = CharIpc::open(Path::new(DEVICE)).err().expect("it is open");
    assert!(matches!(error, Error::Running { .. }), "{error}");
    let mut ready = [0; 1024];
    assert_eq!((&file).read(&mut ready).unwrap(), 12);
    assert_eq!(ready[..4], [5, 0, 12, 0]);
    drop(file);
    let sock = CharIpc::open(Path::new(DEVICE)).expect("it is free again");
    assert_eq!(
        sock.recv(&mut ready).map(|(len, ())| len).map_err(|e| e.0),
        Ok(12)
    );
}

/// Every ACK's primitives, added up in the datapath and reported each 10 ms.
const SUMS: &str = "
    (def (Report (bytes 0) (delivered 0) (lost 0) (now 0) (cwnd 0)))
    (when true
        (:= Report.bytes (+ Report.bytes Ack.bytes_acked))
        (:= Report.delivered (+ Report.delivered (+ Ack.packets_acked Ack.packets_misordered)))
        (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
        (:= Report.now Ack.now)
        (:= Report.cwnd Cwnd)
        (fallthrough))
    (when (> Micros 10000) (:= Micros 0) (report))";

#[derive(Clone)]
struct Sums {
    /// Bytes/s.
    rate: u32,
    /// Bytes.
    cwnd: u32,
    seen: Arc<Mutex<Vec<Seen>>>,
    observer: Observer,
}

/// The end of a flow: the last report, and what the module says.
struct Seen {
    last: HashMap<&'static str, u64>,
    reports: usize,
    clock_runs_back: bool,
    info: ccp_char::FlowInfo,
}

struct SumsFlow {
    shared: Sums,
    sock_id: u32,
    scope: Scope,
    last: HashMap<&'static str, u64>,
    reports: usize,
    clock_runs_back: bool,
}

impl<I: Ipc> CongAlg<I> for Sums {
    type Flow = SumsFlow;

    fn name() -> &'static str {
        "sums"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("sums", SUMS.to_owned())])
    }

    fn new_flow(&self, mut datapath: Datapath<I>, info: DatapathInfo) -> SumsFlow {
        let scope = datapath
            .set_program("sums", Some(&[("Rate", self.rate), ("Cwnd", self.cwnd)]))
            .unwrap();
        SumsFlow {
            shared: self.clone(),
            sock_id: info.sock_id,
            scope,
            last: HashMap::new(),
            reports: 0,
            clock_runs_back: false,
        }
    }
}

impl Flow for SumsFlow {
    fn on_report(&mut self, _: u32, report: Report) {
        for field in ["bytes", "delivered", "lost", "now", "cwnd"] {
            let value = report
                .get_field(&format!("Report.{field}"), &self.scope)
                .unwrap();
            let old = self.last.insert(field, value);
            self.clock_runs_back |= field == "now" && old.is_some_and(|old| old >= value);
        }
        self.reports += 1;
    }

    fn close(&mut self) {
        let info = self.shared.observer.flow(self.sock_id).unwrap();
        let seen = Seen {
            last: std::mem::take(&mut self.last),
            reports: self.reports,
            clock_runs_back: self.clock_runs_back,
            info,
        };
        self.shared.seen.lock().unwrap().push(seen);
    }
}

/// Sends `len` bytes over each of `flows` connections at once, over loopback under the module's congestion control;
/// `connected` runs once all have it and none has sent.
fn send(address: &str, flows: usize, len: usize, connected: impl FnOnce()) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let small = |run: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(run).unwrap()
    };
    let acceptor = std::thread::spawn(move || {
        let receive = |_| {
            let (mut stream, _) = listener.accept().unwrap();
            small(Box::new(move || {
                let received = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
                assert_eq!(received, len as u64);
            }))
        };
        let receivers: Vec<_> = (0..flows).map(receive).collect();
        receivers
            .into_iter()
            .for_each(|receiver| receiver.join().unwrap());
    });
    let connect = |_| {
        let stream = TcpStream::connect(to).unwrap();
        let name = "ccp".into();
        setsockopt(&stream, sockopt::TcpCongestion, &name).unwrap();
        stream
    };
    let streams: Vec<_> = (0..flows).map(connect).collect();
    connected();
    let sender = |stream: TcpStream| {
        small(Box::new(move || {
            (&stream).write_all(&vec![0; len]).unwrap();
        }))
    };
    let senders: Vec<_> = streams.into_iter().map(sender).collect();
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
    acceptor.join().unwrap();
}

/// Runs `traffic` under [`Sums`] at this rate per flow; the ends of all `flows`.
fn under_sums(rate: u32, flows: usize, traffic: impl FnOnce(&Observer)) -> Vec<Seen> {
    // A window that the module must not obey.
    under(rate, 1, flows, traffic)
}

/// [`Sums`], running.
struct Running {
    agent: CCPHandle,
    go_on: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Seen>>>,
    observer: Observer,
}

impl Running {
    fn start(rate: u32, cwnd: u32) -> Self {
        let sock = CharIpc::open(Path::new(DEVICE)).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observer = sock.observer();
        let sums = Sums {
            rate,
            cwnd,
            seen: seen.clone(),
            observer: observer.clone(),
        };
        let go_on = Arc::new(AtomicBool::new(true));
        let agent = RunBuilder::new(BackendBuilder { sock })
            .default_alg(sums)
            .with_stop_handle(go_on.clone())
            .spawn_thread()
            .run()
            .unwrap();
        std::thread::sleep(Duration::from_millis(200));
        Self {
            agent,
            go_on,
            seen,
            observer,
        }
    }

    fn stop(self) -> Vec<Seen> {
        self.go_on.store(false, Ordering::SeqCst);
        self.agent.wait().unwrap();
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

fn under(rate: u32, cwnd: u32, flows: usize, traffic: impl FnOnce(&Observer)) -> Vec<Seen> {
    let sums = Running::start(rate, cwnd);
    let observer = &sums.observer;
    traffic(observer);
    let deadline = Instant::now() + Duration::from_secs(20);
    let told = || sums.seen.lock().unwrap().len();
    while (told() < flows || !observer.is_empty()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        observer.is_empty(),
        "{} flows are not forgotten, {} have ended",
        observer.len(),
        told()
    );
    let seen = sums.stop();
    assert_eq!(seen.len(), flows);
    seen
}

/// An algorithm that knows only portus: its sums are the module's, its rate is kept, its window has a floor.
#[test]
fn kernel_a_portus_algorithm_gets_exact_sums() {
    let Some((_alone, file)) = device("kernel_a_portus_algorithm_gets_exact_sums") else {
        return;
    };
    drop(file);
    const LEN: usize = 1_500_000;
    for address in ["127.0.0.1", "::1"] {
        let mut took = Duration::ZERO;
        let flow = &under_sums(1_000_000, 1, |_| {
            let begun = Instant::now();
            send(address, 1, LEN, || ());
            took = begun.elapsed();
        })[0];
        let Seen { last, info, .. } = flow;
        println!(
            "{address}: {took:?}, {} reports, {last:?}, {info:?}",
            flow.reports
        );
        assert_eq!(info.remote.ip().to_string(), address);
        // The last report is 10 ms old at the end: a tenth of this rate's 100 ms per 100 kB.
        let behind = info.bytes_acked - last["bytes"];
        assert!(behind < 200_000, "{behind} bytes behind");
        assert_eq!(info.bytes_acked, LEN as u64 + 1, "all bytes and the FIN");
        assert!(u64::from(info.packets_delivered) >= last["delivered"]);
        assert!(u64::from(info.packets_lost) >= last["lost"]);
        assert!(!flow.clock_runs_back);
        assert_eq!(info.program_errors, 0);
        // The initial window goes out before the agent has spoken.
        let (least, most) = (Duration::from_millis(1000), Duration::from_millis(1700));
        assert!(
            (least..most).contains(&took),
            "{LEN} bytes at 10^6 bytes/s took {took:?}"
        );
        assert!(
            last["cwnd"] >= 4 * 1448,
            "a window of {} bytes",
            last["cwnd"]
        );
    }
}

#[test]
fn kernel_five_hundred_flows_are_driven_at_once() {
    let Some((_alone, file)) = device("kernel_five_hundred_flows_are_driven_at_once") else {
        return;
    };
    drop(file);
    const FLOWS: usize = 500;
    const LEN: usize = 600_000;
    let _patient = Silence::allow(Duration::from_secs(5));
    let lost = || {
        let names = ["reports_dropped", "flows_refused", "fallbacks"];
        names.map(|name| counter(&format!("counters/{name}")))
    };
    let before = lost();
    // A flow that sends before the agent has met it is the kernel's, and soon at its end.
    let all_met = |observer: &Observer| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while observer.len() < FLOWS && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(observer.len(), FLOWS, "flows that the agent knows");
    };
    let seen = under_sums(100_000, FLOWS, |observer| {
        send("127.0.0.1", FLOWS, LEN, || all_met(observer));
    });
    assert!(
        seen.iter()
            .all(|flow| flow.info.bytes_acked == LEN as u64 + 1)
    );
    let driven = |flow: &Seen| flow.info.driven.as_secs_f64() / flow.info.age.as_secs_f64();
    let least = seen.iter().map(driven).fold(1.0, f64::min);
    let reports: usize = seen.iter().map(|flow| flow.reports).sum();
    println!("{reports} reports, the agent drove each flow for at least {least:.3} of its life");
    assert!(least > 0.5 && reports > 2 * FLOWS);
    assert_eq!(lost(), before, "reports, flows and fallbacks");
}

/// What a flow carries is known while it lives. Drained, it goes on under CUBIC, without the agent's rate; afterwards,
/// flows are the agent's again.
#[test]
fn kernel_a_drained_agent_has_no_flows_until_it_wants_them() {
    let Some((_alone, file)) = device("kernel_a_drained_agent_has_no_flows_until_it_wants_them")
    else {
        return;
    };
    drop(file);
    const RATE: u32 = 1_000_000;
    let fallbacks = counter("counters/fallbacks");
    let (mut drained, mut driven) = (Duration::ZERO, Duration::ZERO);
    let seen = under_sums(RATE, 2, |observer| {
        let begun = Instant::now();
        let sender = std::thread::spawn(|| send("127.0.0.1", 1, 4_000_000, || ()));
        std::thread::sleep(Duration::from_millis(700));
        let live = observer.flows();
        println!("after 0.7 s: {live:?}");
        assert!(live.len() == 1 && live[0].1.bytes_acked > 200_000);
        observer.drain(true).unwrap();
        sender.join().unwrap();
        drained = begun.elapsed();
        observer.drain(false).unwrap();
        let begun = Instant::now();
        send("127.0.0.1", 1, 1_000_000, || {
            std::thread::sleep(Duration::from_millis(200));
        });
        driven = begun.elapsed();
    });
    println!("4 MB, drained after 0.7 s: {drained:?}; 1 MB, driven: {driven:?}");
    assert!(drained < Duration::from_secs(2), "{drained:?}");
    assert!(driven > Duration::from_millis(700), "{driven:?}");
    assert_eq!(counter("counters/fallbacks"), fallbacks + 1);
    assert!(seen.iter().all(|flow| flow.reports > 0));
}

/// A flow that is idle when its agent goes has no ACK that would see it, until the next agent is there.
#[test]
fn kernel_the_time_without_an_agent_is_not_driven() {
    let Some((_alone, file)) = device("kernel_the_time_without_an_agent_is_not_driven") else {
        return;
    };
    drop(file);
    const ABSENCE: Duration = Duration::from_secs(2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let receiver = std::thread::spawn(move || {
        std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap()
    });
    let first = Running::start(1_000_000, 1);
    setsockopt(&stream, sockopt::TcpCongestion, &"ccp".into()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    stream.write_all(&[0; 500_000]).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    first.stop();
    std::thread::sleep(ABSENCE);
    let seen = under(1_000_000, 1, 1, |_| {
        stream.write_all(&[0; 100_000]).unwrap();
        drop(stream);
        receiver.join().unwrap();
    });
    let info = &seen[0].info;
    println!("driven for {:?} of {:?}", info.driven, info.age);
    assert!(info.driven > Duration::from_millis(700), "{info:?}");
    assert!(info.age - info.driven > ABSENCE, "{info:?}");
}

/// The window, in packets, with which a flow ends that its agent has drained. `traffic` is given the socket, and what
/// drains.
fn window_without_agent(
    rate: u32,
    packets: u32,
    traffic: impl FnOnce(&mut TcpStream, &dyn Fn()),
) -> f64 {
    const MSS: u32 = 1448;
    let _ethernet = Mtu::set(1500);
    let fallbacks = counter("counters/fallbacks");
    let seen = under(rate, packets * MSS, 1, |observer| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        setsockopt(&stream, sockopt::TcpCongestion, &"ccp".into()).unwrap();
        let receiver = std::thread::spawn(move || {
            std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap()
        });
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(&[0]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        traffic(&mut stream, &|| observer.drain(true).unwrap());
        drop(stream);
        receiver.join().unwrap();
    });
    assert_eq!(counter("counters/fallbacks"), fallbacks + 1);
    // The fallback paces at 1.2 windows per round trip.
    let info = &seen[0].info;
    let srtt = f64::from(info.srtt_us) / 1e6;
    let window = info.pacing_rate as f64 * srtt / 1.2 / f64::from(MSS);
    println!("{window:.2} packets: {info:?}");
    window
}

#[test]
fn kernel_the_fallback_begins_with_no_larger_window_than_the_agent_s() {
    let Some((_alone, file)) =
        device("kernel_the_fallback_begins_with_no_larger_window_than_the_agent_s")
    else {
        return;
    };
    drop(file);
    let window = window_without_agent(100_000, 4, |stream, drain| {
        drain();
        stream.write_all(&[0]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    });
    assert!((3.5..4.5).contains(&window), "{window:.2} packets");
}

/// Loopback loses everything, until dropped.
struct Outage;

impl Outage {
    fn begin() -> Self {
        Self::tc("add", &["netem", "loss", "100%"]);
        Self
    }

    fn tc(what: &str, how: &[&str]) {
        let mut tc = Command::new("tc");
        tc.args(["qdisc", what, "dev", "lo", "root"]).args(how);
        assert!(tc.status().unwrap().success(), "{tc:?}");
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        Self::tc("del", &[]);
    }
}

#[test]
fn kernel_the_fallback_grows_back_to_what_a_timeout_has_made_smaller() {
    let Some((_alone, file)) =
        device("kernel_the_fallback_grows_back_to_what_a_timeout_has_made_smaller")
    else {
        return;
    };
    drop(file);
    let window = window_without_agent(u32::MAX, 10, |stream, drain| {
        let outage = Outage::begin();
        stream.write_all(&[0; 8 * 1448]).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        drain();
        drop(outage);
        std::thread::sleep(Duration::from_secs(1));
    });
    // Slow start: a packet for each that arrived. Growing by one per round trip from 2, it is 3.
    assert!(window > 6.5, "{window:.2} packets");
}

/// Loopback's MTU, as it was before when dropped.
struct Mtu {
    before: String,
}

impl Mtu {
    const FILE: &str = "/sys/class/net/lo/mtu";

    fn set(bytes: u32) -> Self {
        let before = std::fs::read_to_string(Self::FILE).unwrap();
        std::fs::write(Self::FILE, bytes.to_string()).unwrap();
        Self { before }
    }
}

impl Drop for Mtu {
    fn drop(&mut self) {
        std::fs::write(Self::FILE, self.before.trim()).unwrap();
    }
}

#[test]
fn kernel_another_segment_size_is_told_while_the_flow_lives() {
    let Some((_alone, file)) = device("kernel_another_segment_size_is_told_while_the_flow_lives")
    else {
        return;
    };
    drop(file);
    let _jumbo = Mtu::set(9001);
    let seen = under_sums(1_000_000, 1, |observer| {
        let sender = std::thread::spawn(|| send("127.0.0.1", 1, 2_000_000, || ()));
        let mss = || observer.flows().first().and_then(|(_, info)| info.mss);
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(mss(), Some(8949));
        let small = Mtu::set(1500);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(mss(), Some(1448));
        sender.join().unwrap();
        drop(small);
    });
    assert!(seen[0].reports > 0);
}
