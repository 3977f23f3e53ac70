//! What paths do besides rate, delay and loss, on real devices: queue disciplines, several RTTs, the packet log, the
//! self-check, high rates, programs inside. These tests need root, /dev/net/tun, iproute2 and util-linux, and say so
//! where they cannot run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use pathlab::attempts::attempts;
use pathlab::emulator::Recording;
use pathlab::flows::FlowReport;
use pathlab::lateness::P99_BOUND_US;
use pathlab::path::{self, Path, PathReport};
use pathlab::program::Program;
use pathlab::tun::EndSettings;
use pathlab::{Interrupt, WaitError, accuracy, measured, requirements, self_check};
use pathsim::{CoDel, Loss, MILLISECOND, PathSpec, QueueDiscipline, QueueLimit, Sfq, TokenBucket};

/// Timing tests take turns: there are few cores.
static TURN: Mutex<()> = Mutex::new(());

/// Asks for a turn; `None`, said aloud, where the test cannot run.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    if let Err(missing) = requirements::check_path() {
        // Not println!: the harness would keep it to itself.
        let missing = missing.0.join("; ");
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {missing}");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn open(spec: &PathSpec) -> Path {
    Path::open(spec, &EndSettings::default(), 1).unwrap()
}

fn client(path: &Path, address: Ipv4Addr) -> UdpSocket {
    let socket = path.client().enter(|| UdpSocket::bind((address, 0)));
    let socket = socket.unwrap().unwrap();
    socket.connect((path::SERVER, 9000)).unwrap();
    socket
}

/// What is sent to; without it the far end would answer that nobody is there.
fn server(path: &Path) -> UdpSocket {
    let socket = path
        .server()
        .enter(|| UdpSocket::bind((path::SERVER, 9000)));
    socket.unwrap().unwrap()
}

/// What a flow's port saw, by its socket.
fn flow(report: &PathReport, socket_port: u16) -> &FlowReport {
    let mut flows = report.emulator.per_flow.iter();
    &flows.find(|(key, _)| key.port == socket_port).unwrap().1
}

#[test]
fn kernel_flows_with_an_extra_rtt_take_longer() {
    attempts(flows_with_an_extra_rtt_take_longer);
}

fn flows_with_an_extra_rtt_take_longer() {
    let Some(_turn) = turn("kernel_flows_with_an_extra_rtt_take_longer") else {
        return;
    };
    let ends = EndSettings {
        extra_rtts_ns: vec![60 * MILLISECOND, 20 * MILLISECOND],
        ..EndSettings::default()
    };
    let path = Path::open(&PathSpec::clean(50_000_000, 20 * MILLISECOND), &ends, 1).unwrap();
    assert_eq!(path.client_address(5), None);
    let server = server(&path);
    server
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    for extra_ms in [0, 20, 60] {
        let address = path.client_address(extra_ms * MILLISECOND).unwrap();
        let socket = client(&path, address);
        let mut trips_ms: Vec<f64> = (0..20)
            .map(|_| {
                let began = Instant::now();
                socket.send(&[7; 100]).unwrap();
                let (bytes, from) = server.recv_from(&mut [0; 200]).unwrap();
                server.send_to(&[7; 100][..bytes], from).unwrap();
                socket.recv(&mut [0; 200]).unwrap();
                began.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        trips_ms.sort_unstable_by(f64::total_cmp);
        let expected = 20.0 + extra_ms as f64;
        measured!(
            (trips_ms[10] - expected).abs() < 1.0,
            "an RTT of {} ms for {expected}",
            trips_ms[10]
        );
    }
    path.close().unwrap();
}

#[test]
fn kernel_sfq_keeps_a_trickle_apart_from_a_flood() {
    attempts(sfq_keeps_a_trickle_apart_from_a_flood);
}

fn sfq_keeps_a_trickle_apart_from_a_flood() {
    let Some(_turn) = turn("kernel_sfq_keeps_a_trickle_apart_from_a_flood") else {
        return;
    };
    let shared = |discipline| {
        let path = open(&PathSpec {
            discipline,
            queue: QueueLimit::Packets(Sfq::LINUX_LIMIT_PACKETS),
            ..PathSpec::clean(12_000_000, 10 * MILLISECOND)
        });
        let _server = server(&path);
        let (flood, trickle) = (client(&path, path::CLIENT), client(&path, path::CLIENT));
        for _ in 0..100 {
            // 24 Mbit/s and 1.2 Mbit/s.
            (0..20).for_each(|_| {
                flood.send(&[0; 1472]).unwrap();
            });
            trickle.send(&[0; 1472]).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        let ports = [&flood, &trickle].map(|socket| socket.local_addr().unwrap().port());
        thread::sleep(Duration::from_millis(200));
        let report = path.close().unwrap();
        ports.map(|port| flow(&report, port).clone())
    };
    let [flood, trickle] = shared(QueueDiscipline::Sfq(Sfq::default()));
    assert_eq!((trickle.arrived, trickle.queue_drops), (100, 0));
    assert!(flood.queue_drops > 100, "{} drops", flood.queue_drops);
    let p95_ms = |flow: &FlowReport| flow.owd.quantile_ms(0.95).unwrap();
    measured!(
        p95_ms(&trickle) < p95_ms(&flood) / 3.0,
        "{} and {} ms",
        p95_ms(&trickle),
        p95_ms(&flood)
    );
    let [_, trickle] = shared(QueueDiscipline::DropTail);
    measured!(
        p95_ms(&trickle) > 60.0,
        "{} ms in one queue",
        p95_ms(&trickle)
    );
}

/// Packets over a path: what became of them, and how many seconds it took to send them.
fn carried(spec: &PathSpec, send: impl FnOnce(&UdpSocket)) -> (FlowReport, f64) {
    let path = open(spec);
    let _server = server(&path);
    let socket = client(&path, path::CLIENT);
    let began = Instant::now();
    send(&socket);
    let seconds = began.elapsed().as_secs_f64();
    thread::sleep(Duration::from_millis(300));
    let port = socket.local_addr().unwrap().port();
    let report = path.close().unwrap();
    let seen = flow(&report, port).clone();
    assert_eq!(seen.arrived, seen.delivered + seen.queue_drops);
    (seen, seconds)
}

/// Counts, and no times: what passes depends on how long the flood took, which is measured.
#[test]
fn kernel_a_policer_lets_its_rate_pass() {
    let Some(_turn) = turn("kernel_a_policer_lets_its_rate_pass") else {
        return;
    };
    let policed = PathSpec {
        policer: Some(TokenBucket {
            rate_bps: 6_000_000,
            burst_bytes: 30_000,
        }),
        ..PathSpec::clean(50_000_000, 10 * MILLISECOND)
    };
    // 24 Mbit/s.
    let (seen, seconds) = carried(&policed, |socket| {
        for _ in 0..100 {
            (0..20).for_each(|_| {
                socket.send(&[0; 1472]).unwrap();
            });
            thread::sleep(Duration::from_millis(10));
        }
    });
    // A bucket of 20 packets, and 500 a second. The last burst may have met a full bucket or an empty one.
    let expected = 20.0 + 500.0 * seconds;
    let off = (seen.delivered as f64 - expected).abs();
    assert!(off <= 25.0, "{} delivered of {expected}", seen.delivered);
}

/// Counts, and no times, as above: what is in the bucket passes, and the queue holds ten packets more.
#[test]
fn kernel_a_shaper_lets_its_burst_pass_and_holds_the_rest() {
    let Some(_turn) = turn("kernel_a_shaper_lets_its_burst_pass_and_holds_the_rest") else {
        return;
    };
    let shaped = |burst_bytes| PathSpec {
        shaper: Some(TokenBucket {
            rate_bps: 1_200_000,
            burst_bytes,
        }),
        queue: QueueLimit::Packets(10),
        ..PathSpec::clean(500_000_000, 10 * MILLISECOND)
    };
    for burst in [1, 60] {
        let (seen, seconds) = carried(&shaped(burst * 1500), |socket| {
            (0..100).for_each(|_| {
                socket.send(&[0; 1472]).unwrap();
                // No faster than the link.
                thread::sleep(Duration::from_micros(100));
            });
        });
        let (passed, meanwhile) = (seen.delivered as f64, 100.0 * seconds);
        // The bucket, what is in transmission, the queue, and what is shaped while they are sent.
        let expected = burst as f64 + 11.0;
        assert!(
            passed >= expected - 1.0 && passed <= expected + meanwhile + 2.0,
            "{passed} delivered of a bucket of {burst}, {meanwhile} shaped meanwhile"
        );
    }
}

/// The far end's kernel takes no packet whose header's checksum is wrong.
#[test]
fn kernel_marked_packets_arrive() {
    let Some(_turn) = turn("kernel_marked_packets_arrive") else {
        return;
    };
    let path = open(&PathSpec {
        discipline: QueueDiscipline::CoDel(CoDel::default()),
        queue: QueueLimit::Packets(10_000),
        ..PathSpec::clean(6_000_000, 10 * MILLISECOND)
    });
    let server = server(&path);
    let socket = client(&path, path::CLIENT);
    // ECT(0), at twice the rate.
    setsockopt(&socket, sockopt::Ipv4Tos, &0b10).unwrap();
    let silence = Duration::from_secs(1);
    server.set_read_timeout(Some(silence)).unwrap();
    let arrived =
        thread::spawn(move || std::iter::from_fn(|| server.recv(&mut [0; 2000]).ok()).count());
    for _ in 0..100 {
        (0..10).for_each(|_| {
            socket.send(&[0; 1472]).unwrap();
        });
        thread::sleep(Duration::from_millis(10));
    }
    let arrived = arrived.join().unwrap();
    let data = path.close().unwrap().emulator.data;
    assert!(data.marked > 10, "{data:?}");
    assert_eq!((data.queue_drops, arrived as u64), (0, data.released));
    assert_eq!(arrived, 1000);
}

#[test]
fn kernel_the_packet_log_tells_of_every_packet() {
    let Some(_turn) = turn("kernel_the_packet_log_tells_of_every_packet") else {
        return;
    };
    let file = std::env::temp_dir().join(format!("path-{}.csv", std::process::id()));
    let recording = Recording {
        packet_log: Some(file.clone()),
        ..Recording::default()
    };
    let spec = PathSpec {
        loss: Loss::Random(0.1),
        queue: QueueLimit::Packets(5),
        ..PathSpec::clean(12_000_000, 20 * MILLISECOND)
    };
    let mut path = Path::open_recording(&spec, &EndSettings::default(), 1, &recording).unwrap();
    path.begin().unwrap();
    let _server = server(&path);
    let socket = client(&path, path::CLIENT);
    for _ in 0..50 {
        (0..10).for_each(|_| {
            socket.send(&[0; 972]).unwrap();
        });
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(100));
    let own = socket.local_addr().unwrap();
    let report = path.close().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let mut fates = BTreeMap::<String, u64>::new();
    for line in text.lines().skip(1) {
        let columns: Vec<_> = line.split(',').collect();
        let [arrived, left, way, client, protocol, bytes, fate] = columns[..] else {
            panic!("{line}");
        };
        if way != "there" || client != own.to_string() {
            continue;
        }
        assert_eq!((protocol, bytes), ("17", "1000"), "{line}");
        let (arrived, left): (u64, u64) = (arrived.parse().unwrap(), left.parse().unwrap());
        let least_ns = if fate == "delivered" {
            10 * MILLISECOND
        } else {
            0
        };
        assert!(left - arrived >= least_ns, "{line}");
        *fates.entry(fate.to_owned()).or_default() += 1;
    }
    let seen = flow(&report, own.port());
    let expected = [
        ("delivered".to_owned(), seen.delivered),
        ("dropped".to_owned(), seen.queue_drops),
        ("lost".to_owned(), seen.losses),
    ];
    assert_eq!(fates, BTreeMap::from(expected));
    assert_eq!((seen.arrived, seen.held), (500, 0));
    assert_eq!(report.emulator.log.unwrap().left_out, 0);
}

#[test]
fn kernel_a_begun_path_counts_from_then_on() {
    let Some(_turn) = turn("kernel_a_begun_path_counts_from_then_on") else {
        return;
    };
    let mut path = open(&PathSpec::clean(12_000_000, 400 * MILLISECOND));
    let _server = server(&path);
    let socket = client(&path, path::CLIENT);
    (0..10).for_each(|_| {
        socket.send(&[0; 100]).unwrap();
    });
    thread::sleep(Duration::from_millis(50));
    path.begin().unwrap();
    socket.send(&[0; 100]).unwrap();
    thread::sleep(Duration::from_millis(100));
    let report = path.close().unwrap();
    let own = flow(&report, socket.local_addr().unwrap().port());
    // The one since then is still under way.
    assert_eq!((own.arrived, own.held, own.delivered), (1, 1, 0));
    let data = report.emulator.data;
    assert_eq!((data.arrived, data.held), (11, 11));
}

#[test]
fn kernel_the_self_check_passes_on_sound_paths_up_to_500_mbit() {
    let Some(_turn) = turn("kernel_the_self_check_passes_on_sound_paths_up_to_500_mbit") else {
        return;
    };
    let chosen = [
        "12 Mbit/s",
        "500 Mbit/s",
        "5 % loss",
        "reordering",
        "outages",
    ];
    for (words, spec) in accuracy::paths().unwrap() {
        if chosen.iter().any(|part| words.contains(part)) {
            attempts(|| the_self_check_passes(words, &spec));
        }
    }
}

fn the_self_check_passes(words: &str, spec: &PathSpec) {
    let began = Instant::now();
    let check = self_check::run(words, spec, P99_BOUND_US, 1, &Interrupt::default()).unwrap();
    let took = began.elapsed();
    println!("{check:?} in {took:?}");
    measured!(check.passed, "{check:?}");
    measured!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn kernel_the_self_check_refuses_what_the_machine_cannot_do() {
    let Some(_turn) = turn("kernel_the_self_check_refuses_what_the_machine_cannot_do") else {
        return;
    };
    let spec = PathSpec::clean(50_000_000, 20 * MILLISECOND);
    // No emulator is never late.
    let check = self_check::run("impossible", &spec, 0, 1, &Interrupt::default()).unwrap();
    assert!(!check.passed, "{check:?}");
}

#[test]
fn kernel_programs_end_with_all_that_they_start() {
    let Some(_turn) = turn("kernel_programs_end_with_all_that_they_start") else {
        return;
    };
    let path = open(&PathSpec::clean(50_000_000, 20 * MILLISECOND));
    let interrupt = Interrupt::default();
    let shell = |script: &str| {
        let program = ["sh", "-c", script].map(str::to_owned);
        Program::start(path.client(), &program, &[("GREETING", "7".to_owned())]).unwrap()
    };
    let status = shell("exit $GREETING")
        .wait(&interrupt, Duration::ZERO)
        .unwrap();
    assert_eq!(status.code(), Some(7));
    // Neither a child in the background nor one that ignores signals stays.
    let marker = format!("60{}", std::process::id());
    let mut stubborn = shell(&format!(
        "trap '' INT TERM; sleep {marker} & sleep {marker}"
    ));
    let is_there = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let commands = processes.map(|it| fs::read(it.path().join("cmdline")).unwrap_or_default());
        let sleeping = format!("sleep\0{marker}\0").into_bytes();
        commands.filter(|command| *command == sleeping).count()
    };
    let until = |count| {
        let began = Instant::now();
        while is_there() != count {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{} there",
                is_there()
            );
            thread::sleep(Duration::from_millis(10));
        }
    };
    until(2);
    interrupt.raise();
    let error = stubborn
        .wait(&interrupt, Duration::from_millis(50))
        .unwrap_err();
    assert!(matches!(error, WaitError::Interrupted), "{error}");
    until(0);
}
