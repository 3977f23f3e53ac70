//! Algorithms written for portus, not for this datapath, run on it as they are: alone they fill a
//! path, in pairs they share it, and they live through losses and an outage.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod foreign;
mod support;

use ccp_bpf::{BpfIpc, Config};
use foreign::{Bbr, Cubic, Reno, Tally};
use pathlab::attempts::attempts;
use pathlab::measured;
use pathlab::path::{CLIENT, Path, SERVER};
use pathlab::scenario::PathSpec;
use pathlab::tun::EndSettings;
use portus::{CongAlg, Flow, RunBuilder};
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use support::agent::Running;
use support::tcp::{self, TcpInfo};
use support::{Guard, can_run, wait_until};

const RATE_BPS: u64 = 20_000_000;
const ALONE: Duration = Duration::from_secs(4);
const TOGETHER: Duration = Duration::from_secs(7);
const OUTAGE: Duration = Duration::from_millis(700);
const AFTER: Duration = Duration::from_secs(3);
/// Left out at the beginning of each part.
const SETTLE: Duration = Duration::from_secs(1);

/// A greedy sender; dropped, it breaks off.
struct Sender {
    socket: std::net::TcpStream,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    receiver: Option<std::thread::JoinHandle<u64>>,
}

impl Sender {
    fn start(path: &Path, congestion: &str) -> Self {
        let listener = path
            .server()
            .enter(|| TcpListener::bind((SERVER, 0)).unwrap())
            .unwrap();
        let to = listener.local_addr().unwrap();
        let receiver = tcp::sink(listener);
        let connect = || tcp::connect(to, congestion).unwrap();
        let socket = path.client().enter(connect).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = spawn({
            let (stop, mut socket) = (Arc::clone(&stop), socket.try_clone().unwrap());
            move || {
                while !stop.load(SeqCst) {
                    let Ok(()) = socket.write_all(&[0; 16_384]) else {
                        break;
                    };
                }
            }
        });
        Self {
            socket,
            stop,
            thread: Some(thread),
            receiver: Some(receiver),
        }
    }

    fn acked(&self) -> u64 {
        TcpInfo::of(&self.socket).bytes_acked()
    }

    /// Ends the connection and waits for its last byte.
    fn end(mut self) {
        self.stop.store(true, SeqCst);
        self.thread.take().unwrap().join().unwrap();
        self.socket.shutdown(std::net::Shutdown::Write).unwrap();
        self.receiver.take().unwrap().join().unwrap();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.thread.is_some() {
            tcp::drop_on_close(&self.socket);
            self.stop.store(true, SeqCst);
            let _ = self.socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Shares of the path's payload capacity that the senders get in this time.
fn shares(senders: &[&Sender], lasts: Duration) -> Vec<f64> {
    sleep(SETTLE);
    let start = Instant::now();
    let acked = || senders.iter().map(|sender| sender.acked());
    let then: Vec<_> = acked().collect();
    sleep(lasts - SETTLE);
    let seconds = start.elapsed().as_secs_f64();
    let capacity = RATE_BPS as f64 / 8.0 * 1448.0 / 1500.0;
    let share = |(now, then): (u64, u64)| (now - then) as f64 / seconds / capacity;
    acked().zip(then).map(share).collect()
}

/// What an algorithm got of the path.
struct Outcome {
    alone: f64,
    together: Vec<f64>,
    after: f64,
}

fn run<A>(test: &str, name: &str, alg: A) -> Option<Outcome>
where
    A: CongAlg<BpfIpc> + Send + 'static,
    A::Flow: Flow,
{
    if !can_run(test) {
        return None;
    }
    let config = Config {
        max_flows: 16,
        // A busy machine is not what is tested here.
        silence: Duration::from_millis(500),
        ..Config::new(name)
    };
    let _guard = Guard::new(&config);
    let agent = Running::with(support::start(&config), |backend, go_on| {
        RunBuilder::new(backend)
            .default_alg(alg)
            .with_stop_handle(go_on)
            .run()
    });
    let mut spec = PathSpec {
        name: "20 Mbit/s, 20 ms".into(),
        rate_bps: RATE_BPS,
        rtt: Duration::from_millis(20),
        queue_packets: 0,
        loss: 0.0,
    };
    spec.queue_packets = spec.bdp_packets();
    let path = Path::open(&spec.to_path(), &EndSettings::default(), 1).unwrap();
    let first = Sender::start(&path, name);
    let alone = shares(&[&first], ALONE)[0];
    let second = Sender::start(&path, name);
    let together = shares(&[&first, &second], TOGETHER);
    second.end();

    let answer = |action| {
        let to = CLIENT.to_string();
        let rule = ["rule", action, "to", &to, "blackhole"];
        path.server().configure("ip", &rule).unwrap();
    };
    answer("add");
    sleep(OUTAGE);
    answer("del");
    let after = shares(&[&first], AFTER)[0];
    let counters = agent.observer().counters();
    println!(
        "{name}: alone {:.1} %, together {:.1} % and {:.1} %, after an outage {:.1} %; agent {:?}, {counters:?}",
        100.0 * alone,
        100.0 * together[0],
        100.0 * together[1],
        100.0 * after,
        agent.cpu_time()
    );
    assert_eq!(counters.missing_programs, 0);
    first.end();
    // The path must carry the last FIN, or the connection has no end yet.
    wait_until("all flows end", || agent.observer().live_flows() == 0);
    path.close().unwrap();
    agent.stop();
    support::assert_gone(&config);
    Some(Outcome {
        alone,
        together,
        after,
    })
}

/// Fills the path, shares it, hears of losses and timeouts, and comes back from an outage.
fn judge(outcome: &Outcome, tally: &Tally, least_share: f64) {
    println!("{tally:?}");
    let sum: f64 = outcome.together.iter().sum();
    let least = outcome
        .together
        .iter()
        .copied()
        .fold(f64::INFINITY, f64::min);
    measured!(outcome.alone > 0.85, "alone: {}", outcome.alone);
    measured!((0.85..1.02).contains(&sum), "together: {sum}");
    measured!(
        least / sum > least_share,
        "the smaller share: {least} of {sum}"
    );
    measured!(outcome.after > 0.7, "after an outage: {}", outcome.after);
    measured!(tally.timeouts.load(SeqCst) > 0, "no timeout was reported");
    measured!(tally.losses.load(SeqCst) > 0, "no loss was reported");
}

#[test]
fn kernel_a_foreign_reno_runs() {
    attempts(|| {
        let alg = Reno::default();
        let tally = Arc::clone(&alg.0);
        if let Some(outcome) = run("kernel_a_foreign_reno_runs", "ccpreno", alg) {
            judge(&outcome, &tally, 0.25);
        }
    });
}

#[test]
fn kernel_a_foreign_cubic_runs() {
    attempts(|| {
        let alg = Cubic::default();
        let tally = Arc::clone(&alg.0);
        if let Some(outcome) = run("kernel_a_foreign_cubic_runs", "ccpcubic", alg) {
            judge(&outcome, &tally, 0.2);
        }
    });
}

#[test]
fn kernel_a_foreign_bbr_runs() {
    attempts(|| {
        let alg = Bbr::default();
        let tally = Arc::clone(&alg.0);
        if let Some(outcome) = run("kernel_a_foreign_bbr_runs", "ccpbbr", alg) {
            judge(&outcome, &tally, 0.2);
        }
    });
}
