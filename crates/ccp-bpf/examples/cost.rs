//! What the datapath costs, beside the kernel's own congestion controls on the same veth pair.
//!
//! - `cargo run --release -p ccp-bpf --example cost -- guest` *counts*: the same in a QEMU guest of one CPU under
//!   virtual time (Linux 6.12; no root needed), where an instruction takes 2 ns whatever it is. The figures are the
//!   same at every run: instructions of the whole machine (sender, network, receiver, agent) for each ACK, and those of
//!   each callback.
//! - `cargo run --release -p ccp-bpf --example cost` *measures* on this machine (root, iperf3): medians of five
//!   alternating runs.
//!
//! Callbacks are timed by the kernel's own counters (kernel.bpf_stats_enabled) in a run of their own, because counting
//! costs too.

use ccp_bpf::{Config, Datapath as BpfDatapath};
use libbpf_rs::query::ProgInfoIter;
use pathlab::guest::{self, INSTRUCTION_NS};
use pathlab::netns::Netns;
use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const NAME: &str = "ccpcost";
/// Of each congestion control, on the machine; counts need no repetition.
const RUNS: usize = 5;
/// One clock tick of /proc/stat.
const TICK: Duration = Duration::from_millis(10);
/// Length of a transfer.
const SECONDS: u32 = 4;
const GUEST_LIMIT: Duration = Duration::from_secs(900);
/// `cong_control` first: of its two forms the one that this kernel has.
const CALLBACKS: [&str; 3] = ["ccp_cong_control", "ccp_pkts_acked", "ccp_cwnd_event"];
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// As much as a monitor interval needs: sums for a regression of the RTT over time.
const PROGRAM: &str = "
    (def (Report
        (volatile acked 0) (volatile packets 0) (volatile lost 0) (volatile n 0)
        (volatile st 0) (volatile sr 0) (volatile srt 0) (volatile stt 0)
        (volatile rmin +infinity) (volatile rmax 0) (volatile inflight 0))
        (interval 1000))
    (when true
        (:= Report.acked (+ Report.acked Ack.bytes_acked))
        (:= Report.packets (+ Report.packets (+ Ack.packets_acked Ack.packets_misordered)))
        (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
        (:= Report.n (+ Report.n 1))
        (:= Report.st (+ Report.st Micros))
        (:= Report.sr (+ Report.sr (min Flow.rtt_sample_us 4000000)))
        (:= Report.srt (+ Report.srt (* Micros (min Flow.rtt_sample_us 4000000))))
        (:= Report.stt (+ Report.stt (* Micros Micros)))
        (:= Report.rmin (min Report.rmin Flow.rtt_sample_us))
        (:= Report.rmax (max Report.rmax (min Flow.rtt_sample_us 4000000)))
        (:= Report.inflight Flow.bytes_in_flight)
        (fallthrough))
    (when (> Micros interval) (:= Micros 0) (report))";

/// What the agent asks of new flows, and what it hears.
#[derive(Default)]
struct Wish {
    /// Time between reports, us.
    interval: AtomicU32,
    /// Hang at the next report: the datapath wakes nobody who has not heard the last one yet.
    hang: AtomicBool,
    reports: AtomicU64,
}

struct Unlimited(Arc<Wish>);

struct UnlimitedFlow(Arc<Wish>, #[allow(dead_code)] Scope);

impl<I: Ipc> CongAlg<I> for Unlimited {
    type Flow = UnlimitedFlow;

    fn name() -> &'static str {
        "unlimited"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("mi", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut control: Datapath<I>, _: DatapathInfo) -> UnlimitedFlow {
        let interval = self.0.interval.load(Ordering::Relaxed);
        let fields = [
            ("Rate", u32::MAX),
            ("Cwnd", 16 << 20),
            ("interval", interval),
        ];
        let scope = control
            .set_program("mi", Some(&fields))
            .expect("the program is installed");
        UnlimitedFlow(self.0.clone(), scope)
    }
}

impl Flow for UnlimitedFlow {
    fn on_report(&mut self, _: u32, _: Report) {
        self.0.reports.fetch_add(1, Ordering::Relaxed);
        while self.0.hang.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(1));
        }
    }
}

/// What one unlimited flow came to.
struct Transfer {
    /// At the receiver.
    gbit: f64,
    /// Segments that the sender got.
    acks: u64,
    /// Time that CPUs were not idle.
    busy: Duration,
}

/// TCP segments that a namespace has received.
fn segments_in(netns: &Netns) -> Result<u64, Box<dyn Error>> {
    let read = || fs::read_to_string("/proc/thread-self/net/snmp");
    let text = netns.enter(read)??;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next(), lines.next());
    let place = names.and_then(|names| names.split(' ').position(|name| name == "InSegs"));
    let value = values
        .zip(place)
        .and_then(|(values, place)| values.split(' ').nth(place));
    Ok(value.ok_or("no InSegs in /proc/net/snmp")?.parse()?)
}

/// Time that all CPUs together were idle since the boot.
fn idle() -> Result<Duration, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/stat")?;
    let all = text.lines().next().unwrap_or_default();
    let field = |n: usize| {
        all.split_whitespace()
            .nth(n)
            .and_then(|field| field.parse::<u32>().ok())
    };
    let (idle, waiting) = field(4).zip(field(5)).ok_or("no idle time in /proc/stat")?;
    Ok(TICK * (idle + waiting))
}

/// One unlimited flow.
fn transfer(
    client: &Netns,
    server: &Netns,
    cc: &str,
    seconds: u32,
) -> Result<Transfer, Box<dyn Error>> {
    let mut sink = server
        .command("iperf3")
        .args(["-s", "-1"])
        .stdout(Stdio::null())
        .spawn()?;
    sleep(Duration::from_millis(300));
    let cpus = u32::try_from(std::thread::available_parallelism()?.get())?;
    let before = (segments_in(client)?, idle()?, Instant::now());
    let out = client
        .command("iperf3")
        .args(["-c", "10.9.0.2", "-C", cc, "-J", "-t", &seconds.to_string()])
        .output()?;
    let busy = (before.2.elapsed() * cpus).saturating_sub(idle()? - before.1);
    let acks = segments_in(client)? - before.0;
    sink.wait()?;
    let json = String::from_utf8(out.stdout)?;
    let received = json
        .rsplit("\"sum_received\"")
        .next()
        .ok_or("no sum in iperf3's report")?;
    let rate = received
        .split("\"bits_per_second\":")
        .nth(1)
        .ok_or("no rate in iperf3's report")?;
    let digits = rate
        .trim_start()
        .split([',', '}', '\n'])
        .next()
        .unwrap_or_default();
    let gbit = digits.trim().parse::<f64>()? / 1e9;
    Ok(Transfer { gbit, acks, busy })
}

/// (runs, ns) of a program of ours so far.
fn callback(name: &str) -> (u64, u64) {
    let ours = ProgInfoIter::default().filter(|info| info.name == name[..name.len().min(15)]);
    ours.fold((0, 0), |sum, info| {
        (sum.0 + info.run_cnt, sum.1 + info.run_time_ns)
    })
}

/// Two namespaces, joined by a veth pair.
fn joined() -> Result<(Netns, Netns), Box<dyn Error>> {
    let (client, server) = (Netns::new()?, Netns::new()?);
    let mut holder = server.command("sleep").arg("300").spawn()?;
    sleep(Duration::from_millis(100));
    let ip =
        |netns: &Netns, line: &str| netns.configure("ip", &line.split(' ').collect::<Vec<_>>());
    let pair = format!("link add v0 type veth peer name v1 netns {}", holder.id());
    ip(&client, &pair)?;
    ip(&client, "addr add 10.9.0.1/24 dev v0")?;
    ip(&client, "link set v0 up")?;
    ip(&server, "addr add 10.9.0.2/24 dev v1")?;
    ip(&server, "link set v1 up")?;
    holder.kill()?;
    holder.wait()?;
    Ok((client, server))
}

/// Median, smallest and largest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

fn compare(
    client: &Netns,
    server: &Netns,
    runs: usize,
    counts: bool,
) -> Result<(), Box<dyn Error>> {
    let _ = Command::new("modprobe").args(["-q", "tcp_bbr"]).status();
    let schemes = ["cubic", "bbr", NAME];
    let mut results = schemes.map(|_| Vec::new());
    for run in 0..runs {
        for (cc, results) in schemes.iter().zip(&mut results) {
            let transfer = transfer(client, server, cc, SECONDS)?;
            eprintln!("[{}/{runs}] {cc}: {:.1} Gbit/s", run + 1, transfer.gbit);
            results.push(transfer);
        }
    }
    println!("one unlimited flow over veth, median (smallest - largest) of {runs}:");
    for (cc, results) in schemes.iter().zip(&results) {
        let of = |value: fn(&Transfer) -> f64| spread(results.iter().map(value).collect());
        let gbit = of(|transfer| transfer.gbit);
        let ns = of(|transfer| transfer.busy.as_nanos() as f64 / transfer.acks as f64);
        print!(
            "  {cc:<8} {:7.3} ({:.3} - {:.3}) Gbit/s",
            gbit.0, gbit.1, gbit.2
        );
        if counts {
            println!(", {:.0} instructions per ACK", ns.0 / INSTRUCTION_NS as f64);
        } else {
            println!(
                ", {:.0} ({:.0} - {:.0}) ns of CPU per ACK",
                ns.0, ns.1, ns.2
            );
        }
    }
    Ok(())
}

/// What our callbacks did in a transfer.
struct Calls {
    /// Of each of [`CALLBACKS`]: calls, and the ns they took together.
    figures: Vec<(u64, u64)>,
    reports: u64,
}

impl Calls {
    /// Mean ns of a call of one of [`CALLBACKS`].
    fn mean(&self, which: usize) -> f64 {
        let (calls, ns) = self.figures[which];
        ns as f64 / calls.max(1) as f64
    }
}

/// One transfer with a report each `interval` us, to an agent that hangs or not.
fn callbacks(
    client: &Netns,
    server: &Netns,
    wish: &Wish,
    (name, interval, hang): (&str, u32, bool),
) -> Result<Calls, Box<dyn Error>> {
    wish.interval.store(interval, Ordering::Relaxed);
    wish.hang.store(hang, Ordering::Relaxed);
    let before = fs::read_to_string(STATS)?;
    fs::write(STATS, "1")?;
    let start = CALLBACKS.map(callback);
    let counted = wish.reports.load(Ordering::Relaxed);
    let result = transfer(client, server, name, SECONDS);
    fs::write(STATS, before.trim())?;
    result?;
    let ends = CALLBACKS.map(callback);
    wish.hang.store(false, Ordering::Relaxed);
    sleep(Duration::from_millis(300));
    let reports = wish.reports.load(Ordering::Relaxed) - counted;
    let figures = ends.iter().zip(start);
    let figures = figures.map(|(end, start)| (end.0 - start.0, end.1 - start.1));
    Ok(Calls {
        figures: figures.collect(),
        reports,
    })
}

fn show_callbacks(
    client: &Netns,
    server: &Netns,
    counts: bool,
    wish: &Wish,
) -> Result<(), Box<dyn Error>> {
    let (unit, each) = if counts {
        ("instructions", INSTRUCTION_NS)
    } else {
        ("ns", 1)
    };
    let rare = callbacks(client, server, wish, (NAME, 1_000_000, false))?;
    println!("{unit} per callback, tail calls and reading the clock included:");
    for (which, name) in CALLBACKS.iter().enumerate() {
        let runs = rare.figures[which].0;
        if runs > 0 {
            let one = rare.mean(which) / each as f64;
            println!("  {name:<18} {one:>6.0} over {runs} runs");
        }
    }
    for (hang, what) in [(true, "a report"), (false, "a report that wakes")] {
        let often = callbacks(client, server, wish, (NAME, 1_000, hang))?;
        let more = (often.mean(0) - rare.mean(0)) * often.figures[0].0 as f64;
        let reports = often.reports - rare.reports;
        let one = more / reports as f64 / each as f64;
        println!("  + {what:<20} {one:>6.0} over {reports} reports");
    }
    let cubic = cubic_alone(client, server, wish)?;
    println!("the same for a flow that found no slot, which runs the kernel's Cubic:");
    for which in [0, 1] {
        let one = cubic.mean(which) / each as f64;
        println!(
            "  {:<18} {one:>6.0} over {} runs",
            CALLBACKS[which], cubic.figures[which].0
        );
    }
    Ok(())
}

#[expect(unsafe_code, reason = "a socket option that std does not know")]
/// What Cubic does on an ACK: of a flow under a datapath whose only slot is taken, our callbacks do nothing but call
/// it.
fn cubic_alone(client: &Netns, server: &Netns, wish: &Wish) -> Result<Calls, Box<dyn Error>> {
    const FULL: &str = "ccpcostfull";
    let datapath = BpfDatapath::start(Config {
        max_flows: 1,
        ..Config::new(FULL)
    })?;
    let listener = server.enter(|| TcpListener::bind("10.9.0.2:0"))??;
    let to = listener.local_addr()?;
    let occupant = client.enter(|| TcpStream::connect(to))??;
    // SAFETY: the name is valid for its length.
    let chosen = unsafe {
        libc::setsockopt(
            occupant.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            FULL.as_ptr().cast(),
            FULL.len() as u32,
        )
    };
    if chosen != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let calls = callbacks(client, server, wish, (FULL, 0, false));
    drop(occupant);
    datapath.stop()?;
    calls
}

/// Everything, on the machine that this runs on.
fn measure(runs: usize, counts: bool) -> Result<(), Box<dyn Error>> {
    let (client, server) = joined()?;
    let datapath = BpfDatapath::start(Config {
        max_flows: 64,
        // The agent hangs for a while, and must count as alive.
        silence: Duration::from_secs(60),
        ..Config::new(NAME)
    })?;
    let go_on = Arc::new(AtomicBool::new(true));
    let wish = Arc::new(Wish::default());
    wish.interval.store(1_000, Ordering::Relaxed);
    let agent = {
        let sock = datapath.ipc()?;
        let (go_on, wish) = (go_on.clone(), wish.clone());
        spawn(move || {
            let builder = RunBuilder::new(BackendBuilder { sock }).default_alg(Unlimited(wish));
            builder.with_stop_handle(go_on).run()
        })
    };
    sleep(Duration::from_millis(300));
    println!("verified instructions: ");
    for info in ProgInfoIter::default() {
        let name = info.name.to_string_lossy().into_owned();
        if name.starts_with("ccp_") {
            println!("  {name:<18} {:>6}", info.verified_insns);
        }
    }
    compare(&client, &server, runs, counts)?;
    show_callbacks(&client, &server, counts, &wish)?;
    go_on.store(false, Ordering::SeqCst);
    agent
        .join()
        .map_err(|_| "the agent panicked")?
        .map_err(|e| e.0)?;
    datapath.stop()?;
    Ok(())
}

/// The same in a guest, by this very program.
fn count_in_guest() -> Result<(), Box<dyn Error>> {
    let own = (std::env::current_exe()?, "cost".to_owned());
    let script = "ip link set lo up; cost in-guest";
    eprintln!("booting Linux 6.12 in QEMU; this takes some minutes");
    let executed = guest::exec(&guest::Config::default(), &[own], script, GUEST_LIMIT)?;
    println!("Linux {}\n{}", executed.kernel, executed.output);
    if executed.status != 0 {
        return Err(format!("the guest's part ended with status {}", executed.status).into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        None => measure(RUNS, false),
        Some("guest") => count_in_guest(),
        Some("in-guest") => measure(1, true),
        Some(other) => {
            Err(format!("{other:?}: give nothing to measure here, or guest to count").into())
        }
    }
}
