//! What the datapath measures and does, against what the kernel says of the same socket: real TCP
//! under a small agent written against portus' API alone.
#![allow(clippy::unwrap_used)]

mod support;

use ccp_bpf::{Config, Governance, Limits, Mode, Observer};
use pathlab::attempts::attempts;
use pathlab::measured;
use pathlab::netns::Netns;
use pathlab::path::{Path, SERVER};
use pathlab::scenario::PathSpec;
use pathlab::tun::{self, EndSettings};
use pathsim::Jitter;
use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};
use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use support::peer::{MSS, OURS, PEER, PORT, Peer, RTT};
use support::tcp::{self, TcpInfo, deafen, hear, set_option, sink};
use support::{Guard, can_run, loopback, mark, wait_until};

/// Totals that no report resets, so that a lost report loses nothing.
const PROGRAM: &str = "
    (def (Report (bytes 0) (packets 0) (lost 0) (marked 0) (timeouts 0) (rtt +infinity) (reports 0)))
    (when true
        (:= Report.bytes (+ Report.bytes Ack.bytes_acked))
        (:= Report.packets (+ Report.packets (+ Ack.packets_acked Ack.packets_misordered)))
        (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
        (:= Report.marked (+ Report.marked Ack.ecn_packets))
        (:= Report.timeouts (if Flow.was_timeout (+ Report.timeouts 1)))
        (:= Report.rtt (min Report.rtt Flow.rtt_sample_us))
        (fallthrough))
    (when (> Micros 10000) (:= Micros 0) (:= Report.reports (+ Report.reports 1)) (report))";

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    bytes: u64,
    packets: u64,
    lost: u64,
    marked: u64,
    timeouts: u64,
    rtt_us: u64,
}

#[derive(Clone)]
struct Meter {
    rate: u32,
    cwnd: u32,
    seen: Arc<Mutex<HashMap<u32, (DatapathInfo, Totals)>>>,
}

struct MeterFlow {
    scope: Scope,
    seen: Arc<Mutex<HashMap<u32, (DatapathInfo, Totals)>>>,
}

impl<I: Ipc> CongAlg<I> for Meter {
    type Flow = MeterFlow;

    fn name() -> &'static str {
        "meter"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("meter", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut control: Datapath<I>, info: DatapathInfo) -> MeterFlow {
        let fields = [("Rate", self.rate), ("Cwnd", self.cwnd)];
        let scope = control.set_program("meter", Some(&fields)).unwrap();
        self.seen
            .lock()
            .unwrap()
            .insert(info.sock_id, (info, Totals::default()));
        MeterFlow {
            scope,
            seen: self.seen.clone(),
        }
    }
}

impl Flow for MeterFlow {
    fn on_report(&mut self, sock_id: u32, report: Report) {
        let get = |field: &str| report.get_field(field, &self.scope).unwrap();
        let totals = Totals {
            bytes: get("Report.bytes"),
            packets: get("Report.packets"),
            lost: get("Report.lost"),
            marked: get("Report.marked"),
            timeouts: get("Report.timeouts"),
            rtt_us: get("Report.rtt"),
        };
        self.seen.lock().unwrap().get_mut(&sock_id).unwrap().1 = totals;
    }
}

/// The agent in a thread; dropped, it stops cleanly.
struct Agent {
    name: &'static str,
    meter: Meter,
    observer: Observer,
    go_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// `None`, said aloud, without root.
    fn start(test: &str, name: &'static str, rate: u32, cwnd: u32) -> Option<Self> {
        let config = Config {
            max_flows: 16,
            ..Config::new(name)
        };
        let datapath = match ccp_bpf::Datapath::start(config) {
            Err(e @ (ccp_bpf::Error::Privilege | ccp_bpf::Error::NoBtf)) => {
                println!("SKIPPED {test}: {e}");
                return None;
            }
            Err(e @ (ccp_bpf::Error::NoBpfFs { .. } | ccp_bpf::Error::Kernel { .. })) => {
                println!("SKIPPED {test}: {e}");
                return None;
            }
            other => other.unwrap(),
        };
        let meter = Meter {
            rate,
            cwnd,
            seen: Arc::default(),
        };
        let go_on = Arc::new(AtomicBool::new(true));
        let observer = datapath.observer();
        let thread = {
            let (meter, go_on) = (meter.clone(), go_on.clone());
            spawn(move || {
                let sock = datapath.ipc().unwrap();
                RunBuilder::new(BackendBuilder { sock })
                    .default_alg(meter)
                    .with_stop_handle(go_on)
                    .run()
                    .unwrap();
                datapath.stop().unwrap();
            })
        };
        Some(Self {
            name,
            meter,
            observer,
            go_on,
            thread: Some(thread),
        })
    }

    /// Whether it has met the sender from this port.
    fn drives(&self, port: u16) -> bool {
        let seen = self.meter.seen.lock().unwrap();
        seen.values()
            .any(|(info, _)| info.src_port == u32::from(port))
    }

    /// What the agent knows of the sender from this port.
    fn flow(&self, port: u16) -> (DatapathInfo, Totals) {
        let seen = self.meter.seen.lock().unwrap();
        let flow = seen
            .values()
            .find(|(info, _)| info.src_port == u32::from(port));
        flow.unwrap_or_else(|| panic!("no flow from port {port}: {seen:?}"))
            .clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.go_on.store(false, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
            let list = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let list = std::fs::read_to_string(list).unwrap();
            assert!(!list.contains(self.name), "still registered: {list}");
            assert!(!std::path::Path::new("/sys/fs/bpf").join(self.name).exists());
        }
    }
}

/// Connects first and chooses then, as a program does that changes its mind.
fn connect(to: SocketAddr, congestion_control: &str) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    set_option(
        &socket,
        libc::IPPROTO_TCP,
        libc::TCP_CONGESTION,
        congestion_control.as_bytes(),
    );
    socket
}

/// A connection over a path that the agent drives, and what its other end reads.
fn driven_over(path: &Path, agent: &Agent) -> (TcpStream, JoinHandle<u64>) {
    let listen = || TcpListener::bind((SERVER, 0)).unwrap();
    let listener = path.server().enter(listen).unwrap();
    let to = listener.local_addr().unwrap();
    let receiver = sink(listener);
    let socket = path.client().enter(|| connect(to, agent.name)).unwrap();
    let port = socket.local_addr().unwrap().port();
    wait_until("the agent drives the flow", || agent.drives(port));
    (socket, receiver)
}

#[test]
fn kernel_totals_agree_with_the_socket_under_loss() {
    const TEST: &str = "kernel_totals_agree_with_the_socket_under_loss";
    const BYTES: usize = 6_000_000;
    let Some(agent) = Agent::start(TEST, "ccptotals", 2_000_000, 400_000) else {
        return;
    };
    let spec = PathSpec {
        name: "2 % loss".into(),
        rate_bps: 50_000_000,
        rtt: Duration::from_millis(20),
        queue_packets: 1000,
        loss: 0.02,
    };
    let path = Path::open(&spec.to_path(), &EndSettings::default(), 5).unwrap();
    let (mut socket, receiver) = driven_over(&path, &agent);
    let port = socket.local_addr().unwrap().port();
    let before = TcpInfo::of(&socket);
    socket.write_all(&vec![7; BYTES]).unwrap();
    wait_until("everything is acknowledged", || {
        let info = TcpInfo::of(&socket);
        info.unacked() == 0 && info.bytes_acked() >= BYTES as u64
    });
    let info = TcpInfo::of(&socket);
    // The last ACKs come after the last report: one more ACK brings one more report.
    sleep(Duration::from_millis(50));
    socket.write_all(&[7]).unwrap();
    wait_until("the last report", || {
        agent.flow(port).1.bytes > (info.bytes_acked() - before.bytes_acked())
    });
    let last = TcpInfo::of(&socket);
    let (known, totals) = agent.flow(port);
    println!("{totals:?}; retransmitted {}", last.total_retrans());
    assert_eq!(
        totals.bytes,
        last.bytes_acked() - before.bytes_acked(),
        "bytes acked"
    );
    assert_eq!(
        totals.packets,
        last.delivered() - before.delivered() + last.dsack_dups(),
        "packets delivered, and those of probes that were needless"
    );
    // Every loss is retransmitted once, and nothing else is, but for a tail loss probe.
    let retransmitted = last.total_retrans();
    assert!(
        retransmitted >= 40,
        "2 % of 4,145 packets are 83: {retransmitted}"
    );
    assert!(
        totals.lost <= retransmitted && retransmitted <= totals.lost + 3,
        "{} lost, {retransmitted} retransmitted",
        totals.lost
    );
    // TCP_INFO's minimum is windowed and may be that of the handshake.
    assert!(
        totals.rtt_us >= 20_000 && totals.rtt_us >= last.min_rtt_us(),
        "{totals:?}"
    );
    assert_eq!(u64::from(known.mss), last.snd_mss());
    let flow = agent.observer.flow(known.sock_id).unwrap();
    assert_eq!(
        (flow.local.port(), flow.remote),
        (port, socket.peer_addr().unwrap())
    );
    drop(socket);
    assert_eq!(receiver.join().unwrap(), BYTES as u64 + 1);
    path.close().unwrap();
}

/// Packets overtake each other by more than the kernel waits for: it takes hundreds for lost, and none is.
#[test]
fn kernel_packets_that_were_late_do_not_count_as_lost() {
    const TEST: &str = "kernel_packets_that_were_late_do_not_count_as_lost";
    const BYTES: usize = 4_000_000;
    let Some(agent) = Agent::start(TEST, "ccplate", 1_000_000, 400_000) else {
        return;
    };
    let spec = pathsim::PathSpec {
        jitter: Jitter::Uniform {
            max_ns: 60_000_000,
            reorder: true,
        },
        ..pathsim::PathSpec::clean(50_000_000, 20_000_000)
    };
    let path = Path::open(&spec, &EndSettings::default(), 5).unwrap();
    // With timestamps the receiver discards what is older than what fills a hole, and loses it indeed (PAWS, RFC 7323).
    let timestamps = path.client().sysctl("net/ipv4/tcp_timestamps", "0");
    timestamps.unwrap();
    let (mut socket, receiver) = driven_over(&path, &agent);
    let port = socket.local_addr().unwrap().port();
    let before = TcpInfo::of(&socket);
    socket.write_all(&vec![7; BYTES]).unwrap();
    wait_until("everything is acknowledged", || {
        TcpInfo::of(&socket).unacked() == 0
    });
    sleep(Duration::from_millis(200)); // the last D-SACKs
    let bytes = TcpInfo::of(&socket).bytes_acked() - before.bytes_acked();
    wait_until("the last report", || {
        socket.write_all(&[7]).unwrap();
        sleep(Duration::from_millis(20));
        agent.flow(port).1.bytes > bytes
    });
    let (known, totals) = agent.flow(port);
    let info = TcpInfo::of(&socket);
    let (again, twice) = (info.total_retrans(), info.dsack_dups());
    println!("{totals:?}; {again} sent again, {twice} arrived twice");
    assert!(again >= 100 && twice * 10 >= again * 9, "{again}, {twice}");
    assert!(totals.lost * 5 <= again, "{} lost", totals.lost);
    // All that was sent has arrived, some of it twice.
    let sent = info.delivered() + again;
    assert!(
        totals.packets <= sent && totals.packets * 20 >= sent * 19,
        "{sent} sent"
    );
    let stats = agent.observer.flow(known.sock_id).unwrap().stats;
    assert!(u64::from(stats.packets_lost) * 5 <= again, "{stats:?}");
    drop(socket);
    receiver.join().unwrap();
    path.close().unwrap();
}

/// A flow that sends at full tilt.
struct Measured {
    /// Bytes acknowledged per second after the start.
    rate: f64,
    /// Bytes acknowledged in the first 300 ms, over what was taken as their time.
    start: (u64, Duration),
    info: TcpInfo,
}

fn measure(agent: &Agent, netns: &Netns, ip: IpAddr, max_rate: Option<u64>) -> Measured {
    let listener = netns.enter(|| TcpListener::bind((ip, 0)).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let receiver = sink(listener);
    let mut socket = netns.enter(|| connect(to, agent.name)).unwrap();
    if let Some(rate) = max_rate {
        set_option(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            &rate.to_ne_bytes(),
        );
    }
    // On a busy machine the agent's answer may take a while; until then the fallback paces. Where
    // the agent was late the flow offers itself again with an ACK.
    let port = u32::from(socket.local_addr().unwrap().port());
    wait_until("the agent drives the flow", || {
        socket.write_all(&[0]).unwrap();
        let seen = agent.meter.seen.lock().unwrap();
        seen.values().any(|(info, _)| info.src_port == port)
    });
    let reader = socket.try_clone().unwrap();
    let born = Instant::now();
    let sender = spawn(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1_700) {
            socket.write_all(&[0; 16_384]).unwrap();
        }
        socket
    });
    sleep(Duration::from_millis(300));
    let first = TcpInfo::of(&reader).bytes_acked();
    let start = Instant::now();
    sleep(Duration::from_millis(1_200));
    let info = TcpInfo::of(&reader);
    let rate = (info.bytes_acked() - first) as f64 / start.elapsed().as_secs_f64();
    drop((sender.join().unwrap(), reader));
    receiver.join().unwrap();
    Measured {
        rate,
        start: (first, start - born),
        info,
    }
}

#[test]
fn kernel_flows_are_paced_at_the_rate_asked_for() {
    attempts(paced_at_the_rate_asked_for);
}

fn paced_at_the_rate_asked_for() {
    const TEST: &str = "kernel_flows_are_paced_at_the_rate_asked_for";
    const RATE: u32 = 5_000_000;
    let Some(agent) = Agent::start(TEST, "ccppaced", RATE, 2_000_000) else {
        return;
    };
    let netns = loopback();
    for ip in [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        let Measured { rate, start, .. } = measure(&agent, &netns, ip, None);
        println!("{ip}: asked {RATE}, measured {rate:.0} bytes/s; at first {start:?}");
        measured!(
            (rate / f64::from(RATE) - 1.0).abs() < 0.05,
            "{ip}: {rate:.0} bytes/s"
        );
        // TCP sends its first 10 packets at once, everything else is paced from the first packet.
        let (bytes, time) = start;
        let paced = f64::from(RATE) * 1.05 * time.as_secs_f64();
        let initial = 10 * 1448 + 65_536; // and what one burst of segments may be ahead
        measured!(
            bytes as f64 <= paced + f64::from(initial),
            "{ip}: {start:?}"
        );
    }
    // The socket's own limit goes above what the agent asks for.
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let limited = measure(&agent, &netns, ip, Some(1_000_000)).rate;
    measured!(
        (limited / 1e6 - 1.0).abs() < 0.08,
        "{limited:.0} bytes/s under a limit of 1,000,000"
    );
}

#[test]
fn kernel_cwnd_has_a_floor_of_four_packets() {
    const TEST: &str = "kernel_cwnd_has_a_floor_of_four_packets";
    let Some(agent) = Agent::start(TEST, "ccpfloor", 100_000_000, 1) else {
        return;
    };
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let Measured { rate, info, .. } = measure(&agent, &loopback(), ip, None);
    assert_eq!(info.snd_cwnd(), 4);
    assert!(rate > 1e5, "the flow goes on: {rate:.0} bytes/s");
}

#[test]
fn kernel_timeouts_are_reported() {
    const TEST: &str = "kernel_timeouts_are_reported";
    let Some(agent) = Agent::start(TEST, "ccptimeout", 1_000_000, 400_000) else {
        return;
    };
    let netns = loopback();
    let listener = netns
        .enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .unwrap();
    let to = listener.local_addr().unwrap();
    let receiver = sink(listener);
    let mut socket = netns.enter(|| connect(to, agent.name)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let sender = spawn(move || {
        for _ in 0..250 {
            socket.write_all(&[0; 8_000]).unwrap();
        }
    });
    sleep(Duration::from_millis(400));
    assert_eq!(agent.flow(port).1.timeouts, 0);
    netns
        .configure("ip", &["link", "set", "lo", "down"])
        .unwrap();
    sleep(Duration::from_millis(700));
    netns.configure("ip", &["link", "set", "lo", "up"]).unwrap();
    sender.join().unwrap();
    assert_eq!(receiver.join().unwrap(), 2_000_000);
    let totals = agent.flow(port).1;
    assert!((1..=5).contains(&totals.timeouts), "{totals:?}");
}

/// A connection over loopback under the agent's window, its other end, and its socket id.
fn driven(agent: &Agent, netns: &Netns, packets: u64) -> (TcpStream, TcpStream, u32) {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listener = netns.enter(listen).unwrap();
    let to = listener.local_addr().unwrap();
    let mut socket = netns.enter(|| connect(to, agent.name)).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    let port = socket.local_addr().unwrap().port();
    wait_until("the agent's window is in force", || {
        socket.write_all(&[0]).unwrap();
        TcpInfo::of(&socket).snd_cwnd() == packets && agent.drives(port)
    });
    wait_until("all has arrived", || TcpInfo::of(&socket).unacked() == 0);
    let sid = agent.flow(port).0.sock_id;
    (socket, receiver, sid)
}

/// With its next ACK the flow is the fallback's.
fn let_go(agent: &Agent, sid: u32) {
    let governance = Governance {
        mode: Mode::Leave,
        limits: Limits::NONE,
    };
    assert!(agent.observer.govern(sid, governance));
}

fn wait_let_go(agent: &Agent, sid: u32, socket: &TcpStream) -> TcpInfo {
    wait_until("the fallback has the flow, and all has arrived", || {
        let flow = agent.observer.flow(sid).unwrap();
        flow.stats.fallbacks == 1 && TcpInfo::of(socket).unacked() == 0
    });
    TcpInfo::of(socket)
}

#[test]
fn kernel_the_fallback_begins_with_no_larger_window_than_the_agent_s() {
    const TEST: &str = "kernel_the_fallback_begins_with_no_larger_window_than_the_agent_s";
    // Far less than a packet per round trip.
    let Some(agent) = Agent::start(TEST, "ccpsmall", 100_000, 1) else {
        return;
    };
    let netns = loopback();
    let (mut socket, _receiver, sid) = driven(&agent, &netns, 4);
    let_go(&agent, sid);
    socket.write_all(&[0]).unwrap();
    let info = wait_let_go(&agent, sid, &socket);
    assert_eq!((info.snd_cwnd(), info.snd_ssthresh()), (4, 4));
}

#[test]
fn kernel_the_fallback_grows_back_to_what_a_timeout_has_made_smaller() {
    const TEST: &str = "kernel_the_fallback_grows_back_to_what_a_timeout_has_made_smaller";
    // What a rate is taken to need at least, so that the RTT does not matter.
    const WINDOW: u32 = 10;
    let Some(agent) = Agent::start(TEST, "ccpgrow", u32::MAX, WINDOW * 1448) else {
        return;
    };
    let netns = loopback();
    let (mut socket, receiver, sid) = driven(&agent, &netns, u64::from(WINDOW));
    deafen(&receiver);
    socket.write_all(&[0; 8 * 1448]).unwrap();
    wait_until("a timeout", || TcpInfo::of(&socket).in_loss());
    assert!(TcpInfo::of(&socket).snd_cwnd() < 4);
    let_go(&agent, sid);
    hear(&receiver);
    let info = wait_let_go(&agent, sid, &socket);
    assert_eq!(info.snd_ssthresh(), u64::from(WINDOW));
    assert!((4..=10).contains(&info.snd_cwnd()), "{}", info.snd_cwnd());
}

/// What may be sent is sent by then: the flow is paced at 12 packets per round trip.
const SENT: Duration = Duration::from_millis(36);

/// The window after each of five ACKs that leave snd_una where it is: the last 3 of 10 packets have arrived, then the
/// repetitions of the second, third, fourth and fifth.
fn windows_in_recovery(congestion: &str) -> Vec<u64> {
    let netns = Netns::new().unwrap();
    let device = tun::attach(&netns, OURS, PEER, &EndSettings::default()).unwrap();
    netns.sysctl("net/ipv4/tcp_timestamps", "0").unwrap();
    let connect = || tcp::connect(SocketAddr::from((PEER, PORT)), congestion).unwrap();
    let (peer, mut socket) = std::thread::scope(|scope| {
        let socket = scope.spawn(|| netns.enter(connect).unwrap());
        let peer = Peer::accept(device);
        (peer, socket.join().unwrap())
    });
    tcp::drop_on_close(&socket);
    socket.write_all(&[0; 12 * MSS as usize]).unwrap();
    wait_until("the initial window is on its way", || {
        TcpInfo::of(&socket).unacked() == 10
    });
    sleep(RTT); // until it has passed again, no repetition is taken for lost
    let sacks = [[7, 10], [1, 2], [1, 3], [1, 4], [1, 5]];
    let windows = sacks.map(|sack| {
        peer.ack(0, sack);
        sleep(SENT);
        TcpInfo::of(&socket).snd_cwnd()
    });
    windows.to_vec()
}

#[test]
fn kernel_the_fallback_reduces_its_window_as_the_kernel_does() {
    attempts(reduces_its_window_as_the_kernel_does);
}

fn reduces_its_window_as_the_kernel_does() {
    const NAME: &str = "ccpreduction";
    if !can_run("kernel_the_fallback_reduces_its_window_as_the_kernel_does") {
        return;
    }
    let config = Config {
        max_flows: 16,
        ..Config::new(NAME)
    };
    let _guard = Guard::new(&config);
    let datapath = support::start(&config);
    let (ours, cubic) = (windows_in_recovery(NAME), windows_in_recovery("cubic"));
    println!("windows {ours:?}, cubic {cubic:?}");
    datapath.stop().unwrap();
    support::assert_gone(&config);
    measured!(ours == cubic, "windows {ours:?}, cubic {cubic:?}");
}

#[test]
fn kernel_segment_size_follows_the_mtu_of_the_path() {
    const TEST: &str = "kernel_segment_size_follows_the_mtu_of_the_path";
    let Some(agent) = Agent::start(TEST, "ccpmtu", 1_000_000, 400_000) else {
        return;
    };
    let netns = loopback();
    let mtu = |bytes| {
        let arguments = ["link", "set", "lo", "mtu", bytes];
        netns.configure("ip", &arguments).unwrap();
    };
    mtu("9001");
    let listener = netns
        .enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .unwrap();
    let receiver = sink(listener.try_clone().unwrap());
    let to = listener.local_addr().unwrap();
    let mut socket = netns.enter(|| connect(to, agent.name)).unwrap();
    let port = u32::from(socket.local_addr().unwrap().port());
    let known = |agent: &Agent| {
        let seen = agent.meter.seen.lock().unwrap();
        let flow = seen.values().find(|(info, _)| info.src_port == port);
        flow.map(|(info, _)| info.clone())
    };
    for bytes in ["9001", "1500", "4000"] {
        mtu(bytes);
        wait_until("the agent sees the socket's segment size", || {
            socket.write_all(&[0; 8_000]).unwrap();
            let mss = known(&agent).and_then(|info| agent.observer.mss(info.sock_id));
            let expected: u64 = bytes.parse::<u64>().unwrap() - 52;
            TcpInfo::of(&socket).snd_mss() == expected && mss.map(u64::from) == Some(expected)
        });
    }
    let info = known(&agent).unwrap();
    assert_eq!(info.mss, 8949, "CREATE has that of the beginning");
    drop(socket);
    receiver.join().unwrap();
    assert_eq!(agent.observer.mss(info.sock_id), None, "a flow that ended");
}

#[test]
fn kernel_marks_are_counted_for_as_long_as_the_peer_repeats_them() {
    const TEST: &str = "kernel_marks_are_counted_for_as_long_as_the_peer_repeats_them";
    let Some(agent) = Agent::start(TEST, "ccpmarks", 2_000_000, 400_000) else {
        return;
    };
    let netns = loopback();
    netns.sysctl("net/ipv4/tcp_ecn", "1").unwrap();
    if let Err(obstacle) = mark::one_in_8(&netns) {
        println!("SKIPPED {TEST}: {obstacle}");
        return;
    }
    let listener = netns
        .enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .unwrap();
    let to = listener.local_addr().unwrap();
    let receiver = sink(listener);
    let mut socket = netns.enter(|| connect(to, agent.name)).unwrap();
    let port = socket.local_addr().unwrap().port();
    wait_until("the agent drives the flow", || agent.drives(port));
    wait_until("marks are reported, all of them", || {
        socket.write_all(&[0; 16_384]).unwrap();
        sleep(Duration::from_millis(30));
        let marked = agent.flow(port).1.marked;
        marked > 10 && marked == TcpInfo::of(&socket).delivered_ce()
    });
    let (totals, info) = (agent.flow(port).1, TcpInfo::of(&socket));
    println!("{totals:?}");
    assert!(totals.marked <= totals.packets, "marked is delivered");
    assert_eq!((totals.lost, info.total_retrans()), (0, 0));
    assert_eq!(info.snd_cwnd(), 400_000 / info.snd_mss(), "the agent's");
    drop(socket);
    receiver.join().unwrap();
}
