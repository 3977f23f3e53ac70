//! What the emulated path promises, on real devices and real TCP. These tests need root, /dev/net/tun,
//! iproute2, util-linux and iperf3, and say so where they cannot run.

// A test fails by panicking, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use pathlab::Interrupt;
use pathlab::agent::AgentError;
use pathlab::attempts::attempts;
use pathlab::host::{self, Run, RunError};
use pathlab::measured;
use pathlab::netns::Netns;
use pathlab::path::{self, Path};
use pathlab::requirements;
use pathlab::scenario::{PathSpec, Scheme};
use pathlab::scheduling::Scheduling;
use pathlab::tun::EndSettings;

/// Timing tests take turns: there are few cores.
static TURN: Mutex<()> = Mutex::new(());

/// Asks for a turn; `None`, said aloud, where the test cannot run.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    if let Err(missing) = requirements::check(&[Scheme::Kernel("cubic".into())]) {
        // Not println!: the harness would keep it to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: {}",
            missing.0.join("; ")
        );
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn clean() -> PathSpec {
    PathSpec::demo().remove(0)
}

fn open(spec: &PathSpec, seed: u64) -> Path {
    Path::open(&spec.to_path(), &EndSettings::default(), seed).unwrap()
}

/// What a run must leave as it was.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    named_namespaces: BTreeSet<String>,
    root_devices: BTreeSet<String>,
    congestion_controls: String,
    default_congestion_control: String,
    global_rmem: String,
}

impl Machine {
    fn now() -> Self {
        let list = |folder| {
            fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        };
        let sysctl = |key: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap();
        Self {
            named_namespaces: list("/run/netns"),
            root_devices: list("/sys/class/net"),
            congestion_controls: sysctl("tcp_available_congestion_control"),
            default_congestion_control: sysctl("tcp_congestion_control"),
            global_rmem: sysctl("tcp_rmem"),
        }
    }
}

fn inode(netns: &Netns) -> u64 {
    fs::metadata(netns.location()).unwrap().ino()
}

/// Processes that run in one of the network namespaces.
fn inhabitants(namespaces: &[u64]) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            fs::metadata(process.path().join("ns/net"))
                .is_ok_and(|ns| namespaces.contains(&ns.ino()))
        })
        .map(|process| fs::read_to_string(process.path().join("comm")).unwrap_or_default())
        .collect()
}

fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    condition()
}

fn socket(netns: &Netns, address: Ipv4Addr) -> UdpSocket {
    let socket = netns.enter(|| UdpSocket::bind((address, 7000)));
    let socket = socket.unwrap().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    // Room for all of a test's packets, should the receiving thread wait for its turn.
    setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    socket
}

/// Sends `count` numbered packets of `bytes` on the wire, `batch` of them every `gap`, and returns
/// when each was sent, and when which arrived.
fn probe(
    from: UdpSocket,
    to: (UdpSocket, SocketAddr),
    (count, batch, gap): (u32, u32, Duration),
    bytes: usize,
) -> (Vec<Instant>, Vec<(u32, Instant)>) {
    let (receiver, address) = to;
    let receive = thread::spawn(move || {
        let mut arrivals = Vec::new();
        let mut packet = [0; 2048];
        loop {
            match receiver.recv(&mut packet) {
                Ok(_) => {
                    let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
                    arrivals.push((number, Instant::now()));
                }
                // The first may take longer than the time-out to arrive.
                Err(error) if error.kind() == ErrorKind::WouldBlock && arrivals.is_empty() => {}
                Err(_) => return arrivals,
            }
        }
    });
    let (start, mut sent) = (Instant::now(), Vec::new());
    let mut packet = vec![0; bytes - 28];
    for number in 0..count {
        let due = start + gap * (number / batch);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        packet[..4].copy_from_slice(&number.to_be_bytes());
        sent.push(Instant::now());
        from.send_to(&packet, address).unwrap();
    }
    (sent, receive.join().unwrap())
}

fn data_direction(path: &Path) -> (UdpSocket, (UdpSocket, SocketAddr)) {
    let sender = socket(path.client(), path::CLIENT);
    (
        sender,
        (
            socket(path.server(), path::SERVER),
            (path::SERVER, 7000).into(),
        ),
    )
}

fn ack_direction(path: &Path) -> (UdpSocket, (UdpSocket, SocketAddr)) {
    let sender = socket(path.server(), path::SERVER);
    (
        sender,
        (
            socket(path.client(), path::CLIENT),
            (path::CLIENT, 7000).into(),
        ),
    )
}

/// Median of the one-way delays in ms.
fn median_delay_ms((sent, arrivals): (Vec<Instant>, Vec<(u32, Instant)>)) -> f64 {
    assert_eq!(arrivals.len(), sent.len(), "a clean path loses nothing");
    let mut delays: Vec<Duration> = arrivals
        .iter()
        .map(|(number, arrived)| *arrived - sent[*number as usize])
        .collect();
    delays.sort_unstable();
    delays[delays.len() / 2].as_secs_f64() * 1e3
}

#[test]
fn kernel_capacity_is_the_set_rate() {
    attempts(capacity_is_the_set_rate);
}

fn capacity_is_the_set_rate() {
    let Some(_turn) = turn("kernel_capacity_is_the_set_rate") else {
        return;
    };
    let path = open(&clean(), 1);
    let (from, to) = data_direction(&path);
    // 120 Mbit/s for 1.5 s.
    let (sent, arrivals) = probe(from, to, (15_000, 10, Duration::from_millis(1)), 1500);
    let span = arrivals.last().unwrap().1 - arrivals[0].1;
    let mbps = (arrivals.len() - 1) as f64 * 12_000.0 / span.as_secs_f64() / 1e6;
    let report = path.close().unwrap();
    println!(
        "{} of {} arrived, {mbps:.3} Mbit/s, {report:?}",
        arrivals.len(),
        sent.len()
    );
    assert!(
        arrivals.is_sorted_by_key(|(number, _)| *number),
        "packets were reordered"
    );
    let (data, unseen) = (report.emulator.data, report.unseen);
    assert_eq!(data.arrived + unseen, 15_000);
    assert_eq!(data.released, arrivals.len() as u64);
    assert_eq!(data.queue_drops + data.released, data.arrived);
    measured!(
        (mbps / 50.0 - 1.0).abs() < 0.02,
        "{mbps} Mbit/s instead of 50"
    );
}

#[test]
fn kernel_delay_is_half_the_rtt_each_way() {
    attempts(delay_is_half_the_rtt_each_way);
}

fn delay_is_half_the_rtt_each_way() {
    let Some(_turn) = turn("kernel_delay_is_half_the_rtt_each_way") else {
        return;
    };
    let path = open(&clean(), 1);
    let schedule = (200, 1, Duration::from_millis(5));
    let (from, to) = data_direction(&path);
    let there_ms = median_delay_ms(probe(from, to, schedule, 125));
    let (from, to) = ack_direction(&path);
    let back_ms = median_delay_ms(probe(from, to, schedule, 125));
    let lateness = path.close().unwrap().emulator.lateness.summary();
    println!("{there_ms:.3} ms there, {back_ms:.3} ms back, {lateness:?}");
    // 125 bytes take 20 µs at 50 Mbit/s.
    measured!((there_ms - 20.02).abs() < 0.5, "{there_ms} ms there");
    measured!((back_ms - 20.0).abs() < 0.5, "{back_ms} ms back");
}

#[test]
fn kernel_loss_is_as_set_and_follows_from_the_seed() {
    attempts(loss_is_as_set_and_follows_from_the_seed);
}

fn loss_is_as_set_and_follows_from_the_seed() {
    let Some(_turn) = turn("kernel_loss_is_as_set_and_follows_from_the_seed") else {
        return;
    };
    let spec = PathSpec {
        loss: 0.05,
        rtt: Duration::from_millis(2),
        ..clean()
    };
    let arrivals = |seed| {
        let path = open(&spec, seed);
        let (from, to) = data_direction(&path);
        let (_, arrivals) = probe(from, to, (3_000, 2, Duration::from_micros(500)), 200);
        let report = path.close().unwrap();
        // A sender that had to wait for its turn makes up for it, which the queue may have no room for.
        let drops = report.emulator.data.queue_drops;
        measured!(drops == 0, "{drops} packets dropped by the queue");
        assert_eq!(report.emulator.data.losses, 3_000 - arrivals.len() as u64);
        arrivals
            .into_iter()
            .map(|(number, _)| number)
            .collect::<Vec<_>>()
    };
    let first = arrivals(1);
    // 150 expected, standard deviation 12: five of them.
    assert!(
        (90..=210).contains(&(3_000 - first.len())),
        "{} of 3000 lost",
        3_000 - first.len()
    );
    assert_eq!(first, arrivals(1));
    assert_ne!(first, arrivals(2));
}

#[test]
fn kernel_the_emulator_says_how_it_is_scheduled() {
    let Some(_turn) = turn("kernel_the_emulator_says_how_it_is_scheduled") else {
        return;
    };
    let path = open(&clean(), 1);
    let policy = || -> Option<u32> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .map(|task| fs::read_to_string(task.path().join("stat")).unwrap_or_default())
            .find(|stat| stat.contains("(emulator)"))
            // proc(5) field 41, `policy`, is the 39th after the name.
            .and_then(|stat| {
                stat.rsplit_once(')')?
                    .1
                    .split_whitespace()
                    .nth(38)?
                    .parse()
                    .ok()
            })
    };
    const SCHED_FIFO: u32 = 1;
    let is_fifo = wait_until(Duration::from_secs(2), || policy() == Some(SCHED_FIFO));
    match path.close().unwrap().emulator.scheduling {
        Scheduling::Fifo(_) => assert!(is_fifo, "the report says SCHED_FIFO, the kernel does not"),
        Scheduling::Ordinary(reason) => assert!(!is_fifo && !reason.is_empty()),
    }
}

#[test]
fn kernel_cubic_fills_a_clean_path_and_leaves_nothing_behind() {
    attempts(cubic_fills_a_clean_path_and_leaves_nothing_behind);
}

fn cubic_fills_a_clean_path_and_leaves_nothing_behind() {
    let Some(_turn) = turn("kernel_cubic_fills_a_clean_path_and_leaves_nothing_behind") else {
        return;
    };
    let before = Machine::now();
    let run = Run {
        path: clean(),
        scheme: Scheme::Kernel("cubic".into()),
        flows: 1,
        duration: Duration::from_secs(5),
        seed: 1,
    };
    let result = host::run(&run, &Interrupt::default()).unwrap();
    println!("{result:?}");
    let row = &result.row;
    assert_eq!(row.jain, 1.0);
    assert_eq!((row.agent_driven, row.agent_cpu), (None, None));
    assert_eq!(Machine::now(), before);
    measured!((0.85..=1.0).contains(&row.share), "share {}", row.share);
    // 40 ms of delay and at most 40 ms of queue.
    measured!(
        (40.0..=82.0).contains(&row.rtt_p50_ms),
        "p50 {} ms",
        row.rtt_p50_ms
    );
    measured!(
        (row.rtt_p50_ms..=85.0).contains(&row.rtt_p95_ms),
        "p95 {} ms",
        row.rtt_p95_ms
    );
    // What TCP sent again is what the queue dropped, but for a few needless ones.
    let drops = result.path.emulator.data.queue_drops;
    measured!(
        drops > 0 && row.retransmits.abs_diff(drops) <= 20 + drops / 5,
        "{row:?}, {drops} drops"
    );
    measured!(
        result.path.emulator.refused == 0,
        "the emulator's device refused packets"
    );
}

/// A script in the place of an agent: the name is reno's, which is always there.
fn under_a_script(script: &str) -> Result<pathlab::row::Row, RunError> {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let run = Run {
        path: clean(),
        scheme: Scheme::Agent {
            name: "reno".into(),
            command,
        },
        flows: 2,
        duration: Duration::from_secs(2),
        seed: 1,
    };
    host::run(&run, &Interrupt::default()).map(|result| result.row)
}

#[test]
fn kernel_an_agent_s_run_is_judged_by_its_log() {
    let Some(_turn) = turn("kernel_an_agent_s_run_is_judged_by_its_log") else {
        return;
    };
    let line = |driven| {
        format!(r#"{{\"message\":\"flow end\",\"agent_driven\":{driven},\"duration_s\":2}}"#)
    };
    let agent = |first, second| {
        format!(
            "echo up >&2; trap 'echo \"{}\" >&2; echo \"{}\" >&2; exit 0' TERM
             while :; do sleep 0.05; done",
            line(first),
            line(second)
        )
    };
    let row = under_a_script(&agent(1.0, 1.0)).unwrap();
    assert_eq!((row.agent_driven, row.is_void()), (Some(1.0), false));
    let row = under_a_script(&agent(1.0, 0.5)).unwrap();
    assert_eq!((row.agent_driven, row.is_void()), (Some(0.75), true));
    let silent = under_a_script("echo up >&2; exec sleep 60").unwrap();
    assert_eq!((silent.agent_driven, silent.is_void()), (Some(0.0), true));
    assert!(silent.agent_cpu.unwrap() < 0.1);
}

#[test]
fn kernel_an_agent_that_dies_in_the_run_is_an_error_that_shows_its_last_words() {
    let test = "kernel_an_agent_that_dies_in_the_run_is_an_error_that_shows_its_last_words";
    let Some(_turn) = turn(test) else { return };
    match under_a_script("echo up >&2; sleep 1; echo killed by a bug >&2; exit 7") {
        Err(RunError::Agent(AgentError::Died { stderr, .. })) => {
            assert!(stderr.contains("killed by a bug"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn kernel_an_interrupt_ends_a_run_at_once_and_leaves_nothing_behind() {
    let Some(_turn) = turn("kernel_an_interrupt_ends_a_run_at_once_and_leaves_nothing_behind")
    else {
        return;
    };
    let before = Machine::now();
    let interrupt = Interrupt::default();
    let run = Run {
        path: clean(),
        scheme: Scheme::Kernel("cubic".into()),
        flows: 1,
        duration: Duration::from_secs(60),
        seed: 1,
    };
    let raise = interrupt.clone();
    let raiser = thread::spawn(move || {
        thread::sleep(Duration::from_secs(2));
        raise.raise();
        Instant::now()
    });
    let error = host::run(&run, &interrupt).unwrap_err();
    let took = raiser.join().unwrap().elapsed();
    assert!(error.to_string().contains("interrupted"), "{error}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(Machine::now(), before);
}

const HOLD: &str = "PATHLAB_TEST_HOLD";

/// Not a test by itself: the child of the next one, which it kills.
#[test]
fn hold_a_path_until_killed() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let path = open(&clean(), 1);
    let mut sleeper = path.server().command("sleep").arg("600").spawn().unwrap();
    println!(
        "\nholding {} {}",
        inode(path.client()),
        inode(path.server())
    );
    sleeper.wait().unwrap();
}

#[test]
fn kernel_sigkill_leaves_nothing_behind() {
    let Some(_turn) = turn("kernel_sigkill_leaves_nothing_behind") else {
        return;
    };
    let before = Machine::now();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_a_path_until_killed", "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let held = lines.find_map(|line| {
        let (_, inodes) = line.split_once("holding ")?;
        Some(
            inodes
                .split(' ')
                .map(|inode| inode.parse().unwrap())
                .collect::<Vec<u64>>(),
        )
    });
    let held = held.expect("the child holds a path");
    let lived_in = wait_until(Duration::from_secs(5), || {
        inhabitants(&held)
            .iter()
            .any(|program| program.trim() == "sleep")
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(lived_in, "no program ran inside the path's namespaces");
    let empty = wait_until(Duration::from_secs(5), || inhabitants(&held).is_empty());
    assert!(empty, "left behind: {:?}", inhabitants(&held));
    assert_eq!(Machine::now(), before);
}
