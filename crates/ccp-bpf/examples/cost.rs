//! What the datapath costs, beside the kernel's own congestion controls on the same veth pair.
//!
//! `cargo run --release -p ccp-bpf --example cost` (root, iperf3). Throughput is the median of five
//! alternating runs of one unlimited flow; ns per callback come from the kernel's own counters
//! (kernel.bpf_stats_enabled) in a run of their own, because counting costs too.

use ccp_bpf::{Config, Datapath as BpfDatapath};
use libbpf_rs::query::ProgInfoIter;
use pathlab::netns::Netns;
use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

const NAME: &str = "ccpcost";
const RUNS: usize = 5;
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

struct Unlimited(Arc<AtomicU64>);

struct UnlimitedFlow(Arc<AtomicU64>, #[allow(dead_code)] Scope);

impl<I: Ipc> CongAlg<I> for Unlimited {
    type Flow = UnlimitedFlow;

    fn name() -> &'static str {
        "unlimited"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("mi", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut control: Datapath<I>, _: DatapathInfo) -> UnlimitedFlow {
        let fields = [("Rate", u32::MAX), ("Cwnd", 16 << 20)];
        let scope = control
            .set_program("mi", Some(&fields))
            .expect("the program is installed");
        UnlimitedFlow(self.0.clone(), scope)
    }
}

impl Flow for UnlimitedFlow {
    fn on_report(&mut self, _: u32, _: Report) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One unlimited flow; Gbit/s at the receiver.
fn transfer(client: &Netns, server: &Netns, cc: &str, seconds: u32) -> Result<f64, Box<dyn Error>> {
    let mut sink = server
        .command("iperf3")
        .args(["-s", "-1"])
        .stdout(Stdio::null())
        .spawn()?;
    sleep(Duration::from_millis(300));
    let out = client
        .command("iperf3")
        .args(["-c", "10.9.0.2", "-C", cc, "-J", "-t", &seconds.to_string()])
        .output()?;
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
    Ok(digits.trim().parse::<f64>()? / 1e9)
}

/// (runs, ns) of a program of ours so far.
fn callback(name: &str) -> (u64, u64) {
    let ours = ProgInfoIter::default().filter(|info| info.name == name[..name.len().min(15)]);
    ours.fold((0, 0), |sum, info| {
        (sum.0 + info.run_cnt, sum.1 + info.run_time_ns)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (client, server) = (Netns::new()?, Netns::new()?);
    let mut holder = server.command("sleep").arg("300").spawn()?;
    sleep(Duration::from_millis(100));
    let ip =
        |netns: &Netns, line: &str| netns.configure("ip", &line.split(' ').collect::<Vec<_>>());
    ip(
        &client,
        &format!("link add v0 type veth peer name v1 netns {}", holder.id()),
    )?;
    ip(&client, "addr add 10.9.0.1/24 dev v0")?;
    ip(&client, "link set v0 up")?;
    ip(&server, "addr add 10.9.0.2/24 dev v1")?;
    ip(&server, "link set v1 up")?;
    holder.kill()?;
    holder.wait()?;

    let datapath = BpfDatapath::start(Config {
        max_flows: 64,
        ..Config::new(NAME)
    })?;
    let go_on = Arc::new(AtomicBool::new(true));
    let reports = Arc::new(AtomicU64::new(0));
    let agent = {
        let sock = datapath.ipc()?;
        let (go_on, reports) = (go_on.clone(), reports.clone());
        spawn(move || {
            let builder = RunBuilder::new(BackendBuilder { sock }).default_alg(Unlimited(reports));
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
    let _ = Command::new("modprobe").args(["-q", "tcp_bbr"]).status();
    let mut rates: HashMap<&str, Vec<f64>> = HashMap::new();
    for run in 0..RUNS {
        for cc in ["cubic", "bbr", NAME] {
            let rate = transfer(&client, &server, cc, 4)?;
            eprintln!("[{}/{RUNS}] {cc}: {rate:.1} Gbit/s", run + 1);
            rates.entry(cc).or_default().push(rate);
        }
    }
    println!("one unlimited flow, Gbit/s: median (smallest - largest) of {RUNS}");
    for cc in ["cubic", "bbr", NAME] {
        let list = rates.get_mut(cc).expect("every congestion control has run");
        list.sort_by(f64::total_cmp);
        println!(
            "  {cc:<8} {:5.1} ({:.1} - {:.1})",
            list[RUNS / 2],
            list[0],
            list[RUNS - 1]
        );
    }

    let before = fs::read_to_string(STATS)?;
    fs::write(STATS, "1")?;
    let names = [
        "ccp_cong_control",
        "ccp_cong_control2",
        "ccp_min_tso_segs",
        "ccp_pkts_acked",
    ];
    let start = names.map(callback);
    let counted = reports.load(Ordering::Relaxed);
    let result = transfer(&client, &server, NAME, 4);
    fs::write(STATS, before.trim())?;
    let rate = result?;
    println!(
        "ns per callback, tail calls included, at {rate:.1} Gbit/s (the kernel's clock adds some 40):"
    );
    for (name, start) in names.into_iter().zip(start) {
        let end = callback(name);
        let runs = end.0.saturating_sub(start.0);
        if runs > 0 {
            println!(
                "  {name:<18} {:>6.0} over {runs} runs",
                (end.1 - start.1) as f64 / runs as f64
            );
        }
    }
    println!(
        "reports in that run: {}",
        reports.load(Ordering::Relaxed) - counted
    );

    go_on.store(false, Ordering::SeqCst);
    agent
        .join()
        .map_err(|_| "the agent panicked")?
        .map_err(|e| e.0)?;
    datapath.stop()?;
    Ok(())
}
