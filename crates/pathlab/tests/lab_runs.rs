//! What a run of the lab promises, on real devices and real TCP. These tests need root, /dev/net/tun, iproute2,
//! util-linux and iperf3, and say so where they cannot run.

// A test fails by panicking, in its helpers too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pathlab::Interrupt;
use pathlab::attempts::attempts;
use pathlab::lab::host::{self, HostOptions, RunError};
use pathlab::lab::inputs::{About, Carrier};
use pathlab::lab::result::{FlowResult, Inputs, RunResult};
use pathlab::lab::run::{FlowScheme, Run, Settings, Traffic};
use pathlab::measured;
use pathlab::requirements;
use pathlab::scenario::Scheme;
use pathsim::{
    FlowSpec, Loss, MILLISECOND, PathSpec, QueueLimit, SECOND, Scenario, Source, Transport,
};

/// Timing tests take turns: there are few cores.
static TURN: Mutex<()> = Mutex::new(());

/// Asks for a turn; `None`, said aloud, where the test cannot run.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    if let Err(missing) = requirements::check(&[Scheme::Kernel("cubic".into())]) {
        // Not println!: the harness would keep it to itself.
        let missing = missing.0.join("; ");
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {missing}");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// 50 Mbit/s, 40 ms, a queue of one bandwidth-delay product.
fn path() -> PathSpec {
    PathSpec::clean(50_000_000, 40 * MILLISECOND)
}

fn cubic() -> FlowScheme {
    FlowScheme::Tcp(Scheme::Kernel("cubic".into()))
}

/// A run of flows of Cubic, all under test.
fn run(path: PathSpec, flows: Vec<FlowSpec>, seconds: u64) -> Run {
    let count = flows.len();
    Run {
        id: "test".into(),
        scheme: "cubic".into(),
        scenario: Scenario {
            path,
            flows,
            duration_ns: seconds * SECOND,
            seed: 1,
            series: false,
        },
        schemes: vec![cubic(); count],
        under_test: vec![true; count],
        settings: Settings::default(),
    }
}

fn endless() -> FlowSpec {
    FlowSpec::new("cubic")
}

fn sized(bytes: u64) -> FlowSpec {
    FlowSpec {
        source: Source::Bytes(bytes),
        ..endless()
    }
}

fn udp(bps: u64) -> (FlowSpec, FlowScheme) {
    let spec = FlowSpec {
        scheme: "udp".into(),
        transport: Transport::Udp,
        source: Source::Rate(bps),
        ..endless()
    };
    (spec, FlowScheme::Udp(bps))
}

fn try_run(run: &Run, interrupt: &Interrupt) -> Result<RunResult, RunError> {
    let inputs = Inputs::of(run, &About::default(), &Carrier::default());
    host::run(run, &HostOptions::new(inputs), interrupt)
}

fn carry_out(run: &Run) -> RunResult {
    try_run(run, &Interrupt::default()).unwrap()
}

/// Sum of a flow's goodput between two times in s, Mbit/s on average.
fn goodput(flow: &FlowResult, from_s: f64, to_s: f64) -> f64 {
    let bin = |s: f64| (s / flow.series.bin_s).round() as usize;
    let bins = &flow.series.goodput_mbps[bin(from_s)..bin(to_s)];
    bins.iter().sum::<f64>() / bins.len() as f64
}

/// What a run must leave as it was.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    named_namespaces: BTreeSet<String>,
    root_devices: BTreeSet<String>,
    default_congestion_control: String,
    children: BTreeSet<String>,
    open_files: usize,
}

impl Machine {
    fn now() -> Self {
        let list = |folder: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        };
        let sysctl = "/proc/sys/net/ipv4/tcp_congestion_control";
        let children = fs::read_dir("/proc/self/task")
            .unwrap()
            .flatten()
            .flat_map(|task| {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                children
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            });
        Self {
            named_namespaces: list("/run/netns"),
            root_devices: list("/sys/class/net"),
            default_congestion_control: fs::read_to_string(sysctl).unwrap(),
            children: children.collect(),
            open_files: list("/proc/self/fd").len(),
        }
    }
}

#[test]
fn kernel_flows_start_and_stop_when_they_are_told_to() {
    attempts(flows_start_and_stop_when_they_are_told_to);
}

fn flows_start_and_stop_when_they_are_told_to() {
    let Some(_turn) = turn("kernel_flows_start_and_stop_when_they_are_told_to") else {
        return;
    };
    let before = Machine::now();
    let staggered = |second: u64, stop: Option<u64>| FlowSpec {
        start_ns: second * SECOND,
        stop_ns: stop.map(|second| second * SECOND),
        ..endless()
    };
    let flows = vec![
        staggered(0, None),
        staggered(1, Some(3)),
        staggered(2, None),
    ];
    let result = carry_out(&run(path(), flows, 5));
    assert_eq!(Machine::now(), before);
    for (flow, (start_s, end_s)) in result
        .flows
        .iter()
        .zip([(0.0, 5.0), (1.0, 3.0), (2.0, 5.0)])
    {
        assert_eq!((flow.start_s, flow.end_s), (start_s, end_s));
        assert_eq!(
            goodput(flow, 0.0, start_s.max(0.1)) > 0.0,
            start_s == 0.0,
            "{start_s} s"
        );
        assert_eq!(flow.series.goodput_mbps.len(), 50);
        assert_eq!(flow.series.rtt_ms.len(), 50);
        let rtt = flow.rtt_ms.unwrap();
        measured!(rtt.min >= 40.0 && rtt.max < 100.0, "{rtt:?}");
        let owd = flow.owd_ms.unwrap();
        measured!(owd.min >= 20.0 && owd.max < 75.0, "{owd:?}");
        measured!(flow.goodput_mbps > 1.0, "{}", flow.goodput_mbps);
    }
    // What is on its way when a flow stops arrives within the RTT and the queue.
    assert_eq!(goodput(&result.flows[1], 3.2, 5.0), 0.0);
    let total = &result.total;
    measured!((0.8..1.0).contains(&total.use_run.unwrap()), "{total:?}");
    measured!(
        (0.85..1.01).contains(&total.use_second_half.unwrap()),
        "{total:?}"
    );
    let link = result.link.unwrap();
    // Every segment that TCP sent again is one that the queue dropped, but for a few needless ones.
    let (sent_again, drops) = (total.retransmissions, link.queue_drops);
    measured!(
        sent_again.abs_diff(drops) <= 20 + drops / 5,
        "{sent_again} for {drops} drops"
    );
    assert_eq!(link.queue_packets.len(), link.capacity_mbps.len());
    assert!(result.conditions.sysctls["net.ipv4.tcp_sack"] == "1");
    assert!(result.cpu.sender_s.unwrap() > 0.0 && result.cpu.emulator_s.unwrap() > 0.0);
}

#[test]
fn kernel_a_download_is_timed_at_the_receiver() {
    attempts(a_download_is_timed_at_the_receiver);
}

fn a_download_is_timed_at_the_receiver() {
    let Some(_turn) = turn("kernel_a_download_is_timed_at_the_receiver") else {
        return;
    };
    // Ten segments in the first round trip, then twice as many in each: 150 (the last 217 kB) after the fourth, and no
    // pause at the receiver any more once the window is above the 42 segments that 10 Mbit/s and 50 ms hold.
    let path = PathSpec {
        queue: QueueLimit::Packets(2000),
        ..PathSpec::clean(10_000_000, 50 * MILLISECOND)
    };
    let mut download = run(path, vec![sized(1_000_000)], 20);
    download.settings.rounds = 3;
    let result = carry_out(&download);
    let completions = &result.flows[0].completions;
    assert_eq!(
        completions.iter().map(|it| it.round).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(result.flows[0].received_bytes, 3_000_000);
    let seconds = result
        .total
        .seconds
        .expect("the run ends with its last transfer");
    measured!(seconds < 4.5, "{seconds} s");
    // The first three windows (10, 20 and 40 segments) are sent within an RTT each: after 150 ms, 70 segments are on
    // their way, and from the first of the fourth window on the link is busy. It arrives 25 ms after it was sent.
    let segments = (1_000_000_f64 / 1448.0).ceil();
    let theory_s = 0.150 + 0.025 + (segments - 70.0) * 12_000.0 / 10e6;
    for completion in completions {
        let seconds = completion.seconds.unwrap();
        println!(
            "round {}: {seconds:.4} s, {theory_s:.4} s in theory",
            completion.round
        );
        measured!((seconds / theory_s - 1.0).abs() < 0.05, "{seconds} s");
    }
}

#[test]
fn kernel_rounds_start_together() {
    attempts(rounds_start_together);
}

fn rounds_start_together() {
    let Some(_turn) = turn("kernel_rounds_start_together") else {
        return;
    };
    let mut downloads = run(
        path(),
        vec![sized(300_000), sized(600_000), sized(50_000)],
        30,
    );
    downloads.settings.rounds = 4;
    let result = carry_out(&downloads);
    for round in 0..4 {
        let of_round = || result.flows.iter().map(|flow| flow.completions[round]);
        let starts = || of_round().map(|it| it.start_s);
        let (first, last) = (
            starts().fold(f64::MAX, f64::min),
            starts().fold(0.0, f64::max),
        );
        measured!(
            last - first < 0.010,
            "round {round} starts from {first} to {last} s"
        );
        if round > 0 {
            let ended = result.flows.iter().map(|flow| {
                let before = flow.completions[round - 1];
                before.start_s + before.seconds.unwrap()
            });
            assert!(ended.fold(0.0, f64::max) <= first);
        }
    }
}

#[test]
fn kernel_tcp_bears_as_much_reordering_as_is_asked() {
    let Some(_turn) = turn("kernel_tcp_bears_as_much_reordering_as_is_asked") else {
        return;
    };
    for packets in [3, 100_000, i32::MAX as u32] {
        let mut short = run(path(), vec![sized(50_000)], 5);
        short.settings.reordering = Some(packets);
        let result = carry_out(&short);
        let set = &result.conditions.sysctls["net.ipv4.tcp_reordering"];
        assert_eq!(*set, packets.to_string());
        assert!(result.flows[0].completions[0].seconds.is_some());
    }
}

#[test]
fn kernel_an_app_limited_stream_gets_what_it_asks_for() {
    attempts(an_app_limited_stream_gets_what_it_asks_for);
}

fn an_app_limited_stream_gets_what_it_asks_for() {
    let Some(_turn) = turn("kernel_an_app_limited_stream_gets_what_it_asks_for") else {
        return;
    };
    let stream = |source| FlowSpec {
        source,
        ..endless()
    };
    let chunks = Source::Chunks {
        bytes: 250_000,
        period_ns: SECOND,
    };
    let flows = vec![stream(Source::Rate(5_000_000)), stream(chunks)];
    let result = carry_out(&run(path(), flows, 4));
    let [steady, chunky] = result.flows.as_slice() else {
        panic!("{:?}", result.flows)
    };
    let mbps = goodput(steady, 1.0, 4.0);
    measured!((mbps / 5.0 - 1.0).abs() < 0.02, "{mbps} Mbit/s");
    assert_eq!(chunky.received_bytes, 1_000_000);
    // A chunk takes half a second at most, and then there is a pause.
    let pause = goodput(chunky, 1.6, 1.9);
    measured!(pause == 0.0, "{pause} Mbit/s between chunks");
    measured!(result.total.retransmissions == 0, "{:?}", result.total);
}

#[test]
fn kernel_a_handshake_takes_a_round_trip_before_the_rest() {
    attempts(a_handshake_takes_a_round_trip_before_the_rest);
}

fn a_handshake_takes_a_round_trip_before_the_rest() {
    let Some(_turn) = turn("kernel_a_handshake_takes_a_round_trip_before_the_rest") else {
        return;
    };
    let shaken = |bytes| FlowSpec {
        handshake: Some(4_000),
        ..sized(bytes)
    };
    let path = PathSpec::clean(50_000_000, 100 * MILLISECOND);
    // Ten segments leave at once, and arrive after half a round trip; behind a handshake after one and a half.
    let flows = vec![sized(10_000), shaken(10_000), shaken(2_000)];
    let result = carry_out(&run(path, flows, 2));
    let seconds = |flow: usize| result.flows[flow].completions[0].seconds.unwrap();
    for (flow, expected) in [(0, 0.05), (1, 0.15), (2, 0.05)] {
        let took = seconds(flow);
        measured!((took - expected).abs() < 0.02, "flow {flow}: {took} s");
    }
}

#[test]
fn kernel_datagrams_that_are_missing_are_those_that_the_link_lost() {
    attempts(datagrams_that_are_missing_are_those_that_the_link_lost);
}

fn datagrams_that_are_missing_are_those_that_the_link_lost() {
    let Some(_turn) = turn("kernel_datagrams_that_are_missing_are_those_that_the_link_lost") else {
        return;
    };
    let path = PathSpec {
        loss: Loss::Random(0.02),
        ..path()
    };
    let (spec, scheme) = udp(20_000_000);
    let spec = FlowSpec {
        stop_ns: Some(2 * SECOND),
        ..spec
    };
    let mut datagrams = run(path, vec![spec], 3);
    datagrams.schemes = vec![scheme];
    let result = carry_out(&datagrams);
    let (flow, link) = (&result.flows[0], result.link.unwrap());
    let sent = flow.datagrams_sent.unwrap();
    // 20 Mbit/s of 1470 bytes for 2 s: as many as begin in that time.
    assert_eq!(sent, 3402);
    assert_eq!(link.arrived + link.unseen, sent);
    let received = flow.received_bytes / 1470;
    // A sender that had to wait for its turn makes up for it, which the queue may have no room for.
    let missing = link.random_losses + link.queue_drops + link.unseen;
    assert_eq!(sent - received, missing);
    // The last ones may be among the lost, which no receiver can know.
    let lost = flow.datagrams_lost.unwrap();
    assert!(
        lost <= missing && missing - lost < 5,
        "{lost} of {missing} lost"
    );
    let gone = (link.random_losses + link.queue_drops) as f64;
    assert_eq!(flow.loss, Some(gone / link.arrived as f64));
    measured!(flow.jitter_ms.unwrap() < 5.0, "{:?}", flow.jitter_ms);
}

#[test]
fn kernel_two_hundred_flows_at_once() {
    attempts(two_hundred_flows_at_once);
}

fn two_hundred_flows_at_once() {
    let Some(_turn) = turn("kernel_two_hundred_flows_at_once") else {
        return;
    };
    let before = Machine::now();
    // A queue that has room for all flows' first packets: the timeout of a lost SYN is a second.
    let path = PathSpec {
        queue: QueueLimit::Packets(3000),
        ..path()
    };
    let result = carry_out(&run(path, vec![endless(); 200], 4));
    assert_eq!(Machine::now(), before);
    assert_eq!(result.flows.len(), 200);
    let silent = result
        .flows
        .iter()
        .filter(|flow| flow.received_bytes == 0)
        .count();
    measured!(silent == 0, "{silent} flows did not get anything through");
    measured!(
        (0.85..1.0).contains(&result.total.use_run.unwrap()),
        "{:?}",
        result.total
    );
    assert!(result.flows.iter().all(|flow| flow.rtt_ms.is_some()));
}

#[test]
fn kernel_a_receive_window_limits_as_asked() {
    attempts(a_receive_window_limits_as_asked);
}

fn a_receive_window_limits_as_asked() {
    let Some(_turn) = turn("kernel_a_receive_window_limits_as_asked") else {
        return;
    };
    let path = PathSpec::clean(50_000_000, 100 * MILLISECOND);
    let limited = FlowSpec {
        receive_window: Some(200_000),
        ..endless()
    };
    let result = carry_out(&run(path, vec![limited], 5));
    let flow = &result.flows[0];
    let window = flow.receive_window_bytes.unwrap();
    measured!(
        (window as f64 / 200_000.0 - 1.0).abs() < 0.02,
        "{window} bytes"
    );
    // A window per round trip, and the time that its last packet takes.
    let mbps = goodput(flow, 2.0, 5.0);
    measured!((mbps / 16.0 - 1.0).abs() < 0.04, "{mbps} Mbit/s");
    measured!(result.void.is_none(), "{:?}", result.void);
}

#[test]
fn kernel_extra_rtts_are_those_of_their_flows() {
    attempts(extra_rtts_are_those_of_their_flows);
}

fn extra_rtts_are_those_of_their_flows() {
    let Some(_turn) = turn("kernel_extra_rtts_are_those_of_their_flows") else {
        return;
    };
    let stream = |extra_ms: u64| FlowSpec {
        source: Source::Rate(2_000_000),
        extra_rtt_ns: extra_ms * MILLISECOND,
        ..endless()
    };
    let result = carry_out(&run(path(), vec![stream(0), stream(60)], 2));
    for (flow, rtt_ms) in result.flows.iter().zip([40.0, 100.0]) {
        let rtt = flow.rtt_ms.unwrap();
        measured!(
            (rtt.p50 - rtt_ms).abs() < 3.0,
            "{rtt:?} instead of {rtt_ms} ms"
        );
    }
}

#[test]
fn kernel_cross_traffic_is_told_apart() {
    let Some(_turn) = turn("kernel_cross_traffic_is_told_apart") else {
        return;
    };
    let (spec, scheme) = udp(10_000_000);
    let mut mixed = run(path(), vec![endless(), spec], 3);
    mixed.schemes[1] = scheme;
    mixed.under_test[1] = false;
    let result = carry_out(&mixed);
    let [tcp, udp] = result.flows.as_slice() else {
        panic!("{:?}", result.flows)
    };
    assert!(tcp.under_test && !udp.under_test);
    assert_eq!(
        result.total.goodput_mbps,
        tcp.received_bytes as f64 * 8.0 / 1e6 / 3.0
    );
    assert_eq!(result.total.jain, 1.0);
    assert!(udp.datagrams_sent.unwrap() > 2_500);
}

#[test]
fn kernel_iperf3_makes_the_same_traffic() {
    attempts(iperf3_makes_the_same_traffic);
}

fn iperf3_makes_the_same_traffic() {
    let Some(_turn) = turn("kernel_iperf3_makes_the_same_traffic") else {
        return;
    };
    let before = Machine::now();
    let mut iperf = run(path(), vec![endless(), endless(), endless()], 4);
    iperf.settings.traffic = Traffic::Iperf3;
    // Two schemes: two clients.
    iperf.schemes[2] = FlowScheme::Tcp(Scheme::Kernel("reno".into()));
    let result = carry_out(&iperf);
    assert_eq!(Machine::now(), before);
    assert!(result.conditions.iperf3.unwrap().starts_with("iperf 3"));
    measured!(
        (0.8..1.0).contains(&result.total.use_run.unwrap()),
        "{:?}",
        result.total
    );
    for flow in &result.flows {
        measured!(flow.goodput_mbps > 1.0, "{}", flow.goodput_mbps);
        assert!(flow.rtt_ms.unwrap().min >= 40.0 && flow.owd_ms.is_some());
    }
    assert!(result.cpu.sender_s.unwrap() > 0.0);

    let mut impossible = iperf.clone();
    impossible.scenario.flows[1].start_ns = SECOND;
    let error = try_run(&impossible, &Interrupt::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("flow 2 does not"), "{error}");
}

/// Whether no process of the machine has this command line, within a second: the kernel takes its time to end them.
fn gone(command: &str) -> bool {
    let runs = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").trim_end() == command
    };
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        if !processes.any(|entry| runs(&entry)) {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn kernel_programs_are_measured_at_the_link() {
    attempts(programs_are_measured_at_the_link);
}

fn programs_are_measured_at_the_link() {
    let Some(_turn) = turn("kernel_programs_are_measured_at_the_link") else {
        return;
    };
    let before = Machine::now();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    // A child that neither asks nor waits: it must be gone, too.
    let left = format!("sleep {}.25", 100_000 + std::process::id());
    let sender = "exec iperf3 -c {address} -p {port} -u -b 8M -l 1000 -t 60";
    let scheme = FlowScheme::Command {
        name: "iperf3-udp".into(),
        sender: ["sh", "-c", &format!("{left} & {sender}")]
            .map(str::to_owned)
            .to_vec(),
        receiver: words("iperf3 -s -p {port}"),
    };
    let late = FlowSpec {
        start_ns: SECOND,
        ..endless()
    };
    let mut programs = run(path(), vec![endless(), late], 4);
    programs.schemes = vec![scheme.clone(), scheme];
    let result = carry_out(&programs);
    assert_eq!(Machine::now(), before);
    assert!(gone(&left), "`{left}` goes on");
    for (flow, seconds) in result.flows.iter().zip([4.0, 3.0]) {
        // 8 Mbit/s once the control connection stands.
        let mbps = flow.goodput_mbps;
        measured!((6.0..8.5).contains(&mbps), "{mbps} Mbit/s in {seconds} s");
        assert!((flow.end_s - flow.start_s - seconds).abs() < 1e-9);
        assert!(flow.owd_ms.unwrap().p50 >= 20.0);
    }

    programs.schemes[1] = FlowScheme::Command {
        name: "broken".into(),
        sender: vec!["sh".into(), "-c".into(), "echo lost >&2; exit 3".into()],
        receiver: words("sleep 60"),
    };
    let error = try_run(&programs, &Interrupt::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("flow 2: `sh -c"), "{error}");
    assert!(
        error.contains("before its time") && error.contains("lost"),
        "{error}"
    );
    assert_eq!(Machine::now(), before);
}

/// A script in the place of an agent: the name is reno's, which is always there.
#[test]
fn kernel_flows_of_an_agent_are_judged_by_its_log() {
    let Some(_turn) = turn("kernel_flows_of_an_agent_are_judged_by_its_log") else {
        return;
    };
    let agent = |driven: f64| {
        let line =
            format!(r#"{{\"message\":\"flow end\",\"agent_driven\":{driven},\"duration_s\":2}}"#);
        let script = format!(
            "echo up >&2; trap 'echo \"{line}\" >&2; exit 0' TERM; while :; do sleep 0.05; done"
        );
        let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let name = "reno".into();
        FlowScheme::Tcp(Scheme::Agent { name, command })
    };
    let mut mixed = run(path(), vec![endless(), endless()], 2);
    mixed.schemes[1] = agent(1.0);
    let result = carry_out(&mixed);
    assert_eq!(result.agent.unwrap().driven, 1.0);
    assert!(result.cpu.agent_s.unwrap() < 0.5);
    mixed.schemes[1] = agent(0.9);
    let void = carry_out(&mixed).void.unwrap();
    assert!(void.contains("90.0 %"), "{void}");
}

#[test]
fn kernel_an_interrupt_ends_a_lab_run_and_leaves_nothing_behind() {
    let Some(_turn) = turn("kernel_an_interrupt_ends_a_lab_run_and_leaves_nothing_behind") else {
        return;
    };
    let before = Machine::now();
    let (spec, scheme) = udp(5_000_000);
    let mut long = run(path(), vec![endless(), sized(100_000_000_000), spec], 60);
    long.schemes[2] = scheme;
    let mut by_iperf = run(path(), vec![endless()], 60);
    by_iperf.settings.traffic = Traffic::Iperf3;
    for run in [long, by_iperf] {
        let interrupt = Interrupt::default();
        let raise = interrupt.clone();
        let raiser = thread::spawn(move || {
            thread::sleep(Duration::from_millis(1500));
            raise.raise();
            Instant::now()
        });
        let error = try_run(&run, &interrupt).unwrap_err();
        let took = raiser.join().unwrap().elapsed();
        assert!(matches!(error, RunError::Interrupted), "{error}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(Machine::now(), before);
    }
}

#[test]
fn kernel_errors_say_what_failed_on_what() {
    let Some(_turn) = turn("kernel_errors_say_what_failed_on_what") else {
        return;
    };
    let mut unknown = run(path(), vec![endless()], 1);
    unknown.schemes = vec![FlowScheme::Tcp(Scheme::Kernel("nonesuch".into()))];
    let error = try_run(&unknown, &Interrupt::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("flow 1 cannot use the congestion control nonesuch"),
        "{error}"
    );
    let mut odd = run(path(), vec![endless()], 1);
    odd.under_test.clear();
    let error = try_run(&odd, &Interrupt::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("1 flows, but 1 schemes, and 0"), "{error}");
}
