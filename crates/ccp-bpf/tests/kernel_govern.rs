//! What an agent asks for beyond the limits of a flow has no effect, and what it only watches is not disturbed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::{Config, FlowInfo, Governance, Limits, Mode, Observer};
use pathlab::attempts::attempts;
use pathlab::measured;
use pathlab::path::{Path, SERVER};
use pathlab::scenario::PathSpec;
use pathlab::tun::EndSettings;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use support::agent::{Running, Steering};
use support::talk::Talk;
use support::tcp::{self, TcpInfo, sink};
use support::{Guard, can_run, maps, wait_until};

fn config(name: &str) -> Config {
    Config {
        max_flows: 16,
        // The tests' own load must not look like an agent's death.
        silence: Duration::from_secs(2),
        ..Config::new(name)
    }
}

fn governance(mode: Mode, limits: Limits) -> Governance {
    Governance { mode, limits }
}

/// An agent that asks for the same whatever happens, and governs every flow the same way.
fn agent(
    config: &Config,
    rule: support::agent::Rule,
    governed: Option<Governance>,
) -> (Running, Steering) {
    let datapath = support::start(config);
    let mut steering = Steering::new(rule);
    steering.governance = governed.map(|governance| (datapath.observer(), governance));
    (Running::steering(datapath, &steering), steering)
}

fn flow(observer: &Observer, port: u16) -> Option<(u32, FlowInfo)> {
    let mut flows = observer.flows().into_iter();
    flows.find(|(_, flow)| flow.local.port() == port)
}

/// A path, and a connection over it that always has something to send.
struct Greedy {
    path: Path,
    socket: std::net::TcpStream,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<u64>,
}

impl Greedy {
    fn new(congestion: &str, loss: f64) -> Self {
        let spec = PathSpec {
            name: "govern".into(),
            rate_bps: 20_000_000,
            rtt: Duration::from_millis(20),
            queue_packets: 60,
            loss,
        };
        let path = Path::open(&spec.to_path(), &EndSettings::default(), 3).unwrap();
        let listener = path
            .server()
            .enter(|| TcpListener::bind((SERVER, 0)).unwrap());
        let listener = listener.unwrap();
        let to = listener.local_addr().unwrap();
        let receiver = sink(listener);
        let socket = path
            .client()
            .enter(|| tcp::connect(to, congestion).unwrap())
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let sender = spawn({
            let (stop, mut socket) = (stop.clone(), socket.try_clone().unwrap());
            move || {
                while !stop.load(SeqCst) {
                    socket.write_all(&[7; 8_192]).unwrap();
                }
            }
        });
        Self {
            path,
            socket,
            stop,
            sender,
            receiver,
        }
    }

    fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    fn info(&self) -> TcpInfo {
        TcpInfo::of(&self.socket)
    }

    /// Bytes/s that arrive over some time.
    fn goodput(&self, time: Duration) -> f64 {
        let (before, start) = (self.info().bytes_acked(), Instant::now());
        sleep(time);
        (self.info().bytes_acked() - before) as f64 / start.elapsed().as_secs_f64()
    }

    /// Ends when both sides have closed: a FIN that meets a path which is gone is repeated for more than a minute, and
    /// its socket keeps the congestion control.
    fn end(mut self) {
        self.stop.store(true, SeqCst);
        self.sender.join().unwrap();
        self.socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            self.socket.read(&mut [0]).unwrap(),
            0,
            "the sink says nothing"
        );
        drop(self.socket);
        self.receiver.join().unwrap();
        self.path.close().unwrap();
    }
}

#[test]
fn kernel_a_huge_rate_is_capped_also_after_the_agent_s_death() {
    if !can_run("kernel_a_huge_rate_is_capped_also_after_the_agent_s_death") {
        return;
    }
    const CAP: u64 = 300_000;
    let config = config("ccpcap");
    let _guard = Guard::new(&config);
    let talk = Talk::new(8_000); // 2 MB/s
    let limits = Limits {
        max_rate: CAP,
        ..Limits::NONE
    };
    let governed = governance(Mode::Drive, limits);
    let (first, _) = agent(&config, |_| (u32::MAX, u32::MAX), Some(governed));
    let observer = first.observer().clone();
    let ports = talk.open("ccpcap", 2);
    talk.wait_paced(&ports, CAP);
    let held = |time: Duration| {
        let start = Instant::now();
        let before: Vec<_> = ports.iter().map(|p| talk.info(*p).bytes_acked()).collect();
        while start.elapsed() < time {
            for port in &ports {
                let rate = talk.info(*port).pacing_rate();
                assert!(rate <= CAP, "paced at {rate} bytes/s");
            }
            sleep(Duration::from_millis(1));
        }
        let elapsed = start.elapsed().as_secs_f64();
        for (port, before) in ports.iter().zip(before) {
            let rate = (talk.info(*port).bytes_acked() - before) as f64 / elapsed;
            println!("{port}: {rate:.0} bytes/s under a limit of {CAP}");
            // And a burst that was under way when the time began.
            assert!(rate < CAP as f64 + 65_536.0 / elapsed, "{rate:.0} bytes/s");
        }
    };
    held(Duration::from_secs(1));
    let (sid, info) = flow(&observer, ports[0]).unwrap();
    assert!(info.is_driven && info.governance == governed, "{info:?}");
    // A lower limit takes effect on what was asked for before.
    let mut lower = governed;
    lower.limits.max_rate = CAP / 2;
    assert!(observer.govern(sid, lower));
    talk.wait_paced(&ports[..1], CAP / 2);
    // One that is beyond all rates of CCP's messages, but for the one that asks for no limit.
    let mut higher = governed;
    higher.limits.max_rate = 5_000_000_000;
    assert!(observer.govern(sid, higher));
    talk.wait_paced(&ports[..1], 5_000_000_000);
    assert!(observer.govern(sid, governed));
    talk.wait_paced(&ports, CAP);

    // The agent dies: Cubic's window, but the limit stays.
    first.leave();
    wait_until("the fallback takes over", || {
        !flow(&observer, ports[0]).unwrap().1.is_driven
    });
    sleep(Duration::from_millis(300));
    held(Duration::from_secs(1));

    // The next agent has no limits for single flows, but one for all.
    let all = Config {
        max_flow_rate: 4_000_000,
        ..config.clone()
    };
    let (second, _) = agent(&all, |_| (5_000_000, 200_000), None);
    talk.wait_paced(&ports, 4_000_000);
    let now = flow(second.observer(), ports[0]).unwrap().1.governance;
    let whole = Limits {
        max_rate: 4_000_000,
        ..Limits::NONE
    };
    assert_eq!(now, governance(Mode::Drive, whole));
    // It binds what is governed as well, and flows that begin.
    assert!(second.observer().govern(sid, Governance::default()));
    let more = talk.open("ccpcap", 1);
    talk.wait_paced(&more, 4_000_000);
    talk.wait_paced(&ports, 4_000_000);
    talk.finish();
    assert!(
        !second.observer().govern(sid, governed),
        "the flow has ended"
    );
    second.stop();
    support::assert_gone(&config);
}

#[test]
fn kernel_a_flow_keeps_its_smallest_rate() {
    attempts(keeps_its_smallest_rate);
}

fn keeps_its_smallest_rate() {
    if !can_run("kernel_a_flow_keeps_its_smallest_rate") {
        return;
    }
    const FLOOR: u64 = 1_000_000;
    let config = config("ccpleast");
    let _guard = Guard::new(&config);
    let limits = Limits {
        min_rate: FLOOR,
        ..Limits::NONE
    };
    // Neither the least rate and window that can be asked for, nor no rate and no window.
    let asks: [support::agent::Rule; 2] = [|_| (1, 1), |_| (0, 0)];
    for rule in asks {
        let (agent, _) = agent(&config, rule, Some(governance(Mode::Drive, limits)));
        let greedy = Greedy::new("ccpleast", 0.0);
        let observer = agent.observer().clone();
        wait_until("the agent drives the flow", || {
            flow(&observer, greedy.port()).is_some_and(|(_, flow)| flow.is_driven)
        });
        sleep(Duration::from_millis(300));
        let goodput = greedy.goodput(Duration::from_secs(1));
        println!("{goodput:.0} bytes/s where at least {FLOOR} are wanted");
        assert!(greedy.info().pacing_rate() >= FLOOR);
        measured!(goodput > 0.9 * FLOOR as f64, "{goodput:.0} bytes/s");
        greedy.end();
        agent.stop();
    }
    support::assert_gone(&config);
}

#[test]
fn kernel_a_flow_that_loses_too_much_goes_to_the_fallback() {
    if !can_run("kernel_a_flow_that_loses_too_much_goes_to_the_fallback") {
        return;
    }
    let config = config("ccplossy");
    let _guard = Guard::new(&config);
    let limits = |max_loss_ppm| Limits {
        max_loss_ppm,
        ..Limits::NONE
    };
    // One packet of ten is lost, and the agent does not mind.
    let tolerant = governance(Mode::Drive, limits(300_000));
    let (agent, steering) = agent(&config, |_| (600_000, 400_000), Some(tolerant));
    let observer = agent.observer().clone();
    let greedy = Greedy::new("ccplossy", 0.1);
    let driven = || flow(&observer, greedy.port()).is_some_and(|(_, flow)| flow.is_driven);
    wait_until("the agent drives the flow", driven);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        assert!(driven(), "within its limit");
        sleep(Duration::from_millis(10));
    }
    assert_eq!(observer.counters().fallbacks_loss, 0);

    let (sid, _) = flow(&observer, greedy.port()).unwrap();
    assert!(observer.govern(sid, governance(Mode::Drive, limits(30_000))));
    wait_until("the flow goes to the fallback", || !driven());
    let (barred, counters) = (Instant::now(), observer.counters());
    assert_eq!((counters.fallbacks_loss, counters.fallbacks), (1, 1));
    let (_, info) = flow(&observer, greedy.port()).unwrap();
    assert!(info.barred_for > Duration::from_secs(9), "{info:?}");
    let reports = steering.flow(greedy.port()).unwrap().reports.load(SeqCst);
    while barred.elapsed() < Duration::from_secs(9) {
        assert!(!driven(), "after {:?}", barred.elapsed());
        sleep(Duration::from_millis(10));
    }
    let known = steering.flow(greedy.port()).unwrap();
    // One may have been under way.
    assert!(known.reports.load(SeqCst) <= reports + 1);
    assert_eq!(known.creates.load(SeqCst), 1);
    // After 10 s the agent may try again.
    wait_until("the agent has it again", driven);
    assert!(barred.elapsed() > Duration::from_secs(9));
    assert_eq!(known.creates.load(SeqCst), 2);
    greedy.end();
    agent.stop();
    support::assert_gone(&config);
}

#[test]
fn kernel_a_flow_that_is_watched_stays_cubic_s() {
    attempts(watched_stays_cubic_s);
}

fn watched_stays_cubic_s() {
    if !can_run("kernel_a_flow_that_is_watched_stays_cubic_s") {
        return;
    }
    const ASKED: u64 = 50_000;
    const WARM_UP: Duration = Duration::from_secs(2);
    const LASTS: Duration = Duration::from_secs(5);
    let cubic = {
        let greedy = Greedy::new("cubic", 0.0);
        sleep(WARM_UP);
        let goodput = greedy.goodput(LASTS);
        greedy.end();
        goodput
    };
    let config = config("ccpwatch");
    let _guard = Guard::new(&config);
    // The limits are for what is driven.
    let limits = Limits {
        max_rate: 60_000,
        max_loss_ppm: 0,
        ..Limits::NONE
    };
    let watching = governance(Mode::Observe, limits);
    let (agent, steering) = agent(&config, |_| (ASKED as u32, 1), Some(watching));
    let observer = agent.observer().clone();
    let greedy = Greedy::new("ccpwatch", 0.0);
    sleep(WARM_UP);
    let known = steering.flow(greedy.port()).unwrap();
    let reports = || known.reports.load(SeqCst);
    let before = reports();
    let goodput = greedy.goodput(LASTS);
    let (sid, info) = flow(&observer, greedy.port()).unwrap();
    println!(
        "cubic {cubic:.0} bytes/s, watched {goodput:.0}, {} reports",
        reports() - before
    );
    assert!(info.is_observed && !info.is_driven, "{info:?}");
    assert_eq!(info.driven, Duration::ZERO);
    // One every 10 ms.
    measured!(reports() - before > 250, "{} reports", reports() - before);
    measured!(goodput > 0.9 * cubic, "{goodput:.0} of {cubic:.0} bytes/s");
    let told = known.bytes.load(SeqCst);
    assert!(
        told as f64 > goodput * LASTS.as_secs_f64(),
        "{told} bytes told"
    );
    assert_eq!(
        (observer.counters().fallbacks, info.stats.reports_dropped),
        (0, 0)
    );

    // Driven, it does as it is told; then it is left alone.
    assert!(observer.govern(sid, Governance::default()));
    wait_until("the agent drives the flow", || {
        greedy.info().pacing_rate() == ASKED && greedy.info().snd_cwnd() == 4
    });
    assert_eq!(known.creates.load(SeqCst), 2);
    assert!(observer.govern(sid, governance(Mode::Leave, Limits::NONE)));
    wait_until("Cubic has it", || greedy.info().pacing_rate() > ASKED);
    sleep(Duration::from_millis(500));
    let silent = reports();
    sleep(Duration::from_secs(1));
    assert_eq!(reports(), silent, "it is left alone");
    let (_, info) = flow(&observer, greedy.port()).unwrap();
    assert!(!info.is_driven && !info.is_observed, "{info:?}");
    assert!(
        info.driven > Duration::ZERO && info.stats.bytes_acked > told,
        "{info:?}"
    );
    greedy.end();
    wait_until("portus knows no flow", || steering.open().is_empty());
    maps::assert_all_free(&config.pin_dir, config.max_flows);
    agent.stop();
    support::assert_gone(&config);
}

/// A cgroup v2 of the test's own, and how the process gets back.
struct Cgroup {
    child: PathBuf,
    home: PathBuf,
    /// Where the test has mounted the hierarchy, if nobody else had.
    mounted: Option<PathBuf>,
}

impl Cgroup {
    fn new(test: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let field = |line: &str, at: usize| line.split(' ').nth(at).unwrap_or("").to_owned();
        let there = mounts.lines().find(|line| field(line, 2) == "cgroup2");
        let mut mounted = None;
        let root = match there {
            Some(line) => PathBuf::from(field(line, 1)),
            None => {
                let place = std::env::temp_dir().join("ccp-bpf-cgroup2");
                fs::create_dir_all(&place).unwrap();
                let mut mount = std::process::Command::new("mount");
                let status = mount.args(["-t", "cgroup2", "none"]).arg(&place).status();
                if !status.is_ok_and(|status| status.success()) {
                    println!("SKIPPED {test}: cgroup v2 cannot be mounted here");
                    return None;
                }
                mounted = Some(place.clone());
                place
            }
        };
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .unwrap();
        let home = root.join(own);
        let child = home.join("ccp-bpf-test");
        fs::create_dir_all(&child).unwrap();
        Some(Self {
            child,
            home,
            mounted,
        })
    }

    fn enter(&self, place: &std::path::Path) {
        fs::write(place.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.enter(&self.home);
        let _ = fs::remove_dir(&self.child);
        if let Some(place) = &self.mounted {
            let _ = std::process::Command::new("umount").arg(place).status();
            let _ = fs::remove_dir(place);
        }
    }
}

#[test]
fn kernel_flows_are_known_by_their_cgroup() {
    const TEST: &str = "kernel_flows_are_known_by_their_cgroup";
    if !can_run(TEST) {
        return;
    }
    let Some(cgroup) = Cgroup::new(TEST) else {
        return;
    };
    let config = config("ccpcgroup");
    let _guard = Guard::new(&config);
    let datapath = support::start(&config);
    let observer = datapath.observer();
    let netns = support::loopback();
    let id = |place: &PathBuf| fs::metadata(place).unwrap().ino();
    // A listener made in the child cgroup, what it accepts, and a connection made at home.
    cgroup.enter(&cgroup.child);
    let (listener, to) = netns
        .enter(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            tcp::set_congestion(&listener, "ccpcgroup").unwrap();
            let to = listener.local_addr().unwrap();
            (listener, to)
        })
        .unwrap();
    cgroup.enter(&cgroup.home);
    let active = netns
        .enter(|| tcp::connect(to, "ccpcgroup").unwrap())
        .unwrap();
    let (passive, _) = listener.accept().unwrap();
    let of = |port: u16| flow(&observer, port).unwrap().1.cgroup_id;
    let ids = [of(active.local_addr().unwrap().port()), of(to.port())];
    assert_eq!(ids, [id(&cgroup.home), id(&cgroup.child)]);
    assert_ne!(ids[0], ids[1]);
    drop((active, passive, listener));
    datapath.stop().unwrap();
}
