//! iperf3 as the source and the sink of a run, and what its JSON report says.
//!
//! Goodput is what the *receiver* counted, over the whole run, start-up included. RTT samples are
//! the sender's smoothed RTT (`tcpi_rtt`) of every flow in every reporting interval.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::netns::Netns;
use crate::process::{self, Interrupt, POLL_INTERVAL, Process, WaitError};

/// iperf3's default port.
const PORT: u16 = 5201;

/// Time between two reports, and so between two RTT samples of a flow.
const INTERVAL: Duration = Duration::from_millis(200);

/// Beyond its duration, a run that has not ended after this time hangs: iperf3 does when its path
/// vanishes. Set-up and tear-down over a lossy path take a few retransmission timeouts.
const GRACE: Duration = Duration::from_secs(10);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum IperfError {
    /// iperf3 cannot do what was asked for.
    #[error("iperf3 cannot send {flows} flows for {} s; it takes 1 to 128 flows and 1 to 86400 whole seconds",
        .duration.as_secs_f64())]
    Asked {
        /// Number of flows.
        flows: u32,
        /// Time to send.
        duration: Duration,
    },
    /// It could not be started.
    #[error("cannot start iperf3: {0}")]
    Start(io::Error),
    /// The server did not listen.
    #[error("the iperf3 server does not listen: {0}")]
    Server(String),
    /// It ran into a time limit, or the user stopped it.
    #[error("iperf3: {0}")]
    Wait(WaitError),
    /// iperf3 says itself why it failed.
    #[error("iperf3 failed: {0}")]
    Failed(String),
    /// Its report is not what version 3.12 prints.
    #[error("cannot understand the report of iperf3: {0}")]
    Report(String),
}

/// What one run of iperf3 measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// All flows together at the receiver, over the whole run, in Mbit/s (10^6 bits).
    pub goodput_mbps: f64,
    /// Each flow at the receiver, over the whole run, in Mbit/s.
    pub flow_goodputs_mbps: Vec<f64>,
    /// Median of the RTT samples, in ms.
    pub rtt_p50_ms: f64,
    /// 95th percentile of the RTT samples, in ms.
    pub rtt_p95_ms: f64,
    /// Retransmitted segments of all flows.
    pub retransmits: u64,
    /// How long the receiver received, in seconds.
    pub seconds: f64,
}

impl Summary {
    /// Jain's fairness index of the flows' goodputs: 1 if all are equal, 1/n if one has all.
    /// (Jain, Chiu, Hawe 1984.) Without any goodput there is nothing unequal: 1.
    pub fn jain(&self) -> f64 {
        pathsim::jain(self.flow_goodputs_mbps.iter().copied())
    }
}

#[derive(Deserialize)]
struct Report {
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<Interval>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct Interval {
    streams: Vec<IntervalStream>,
}

#[derive(Deserialize)]
struct IntervalStream {
    /// Smoothed RTT in µs; 0 before the first sample, absent at the receiver.
    #[serde(default)]
    rtt: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct End {
    streams: Vec<EndStream>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct EndStream {
    receiver: Sum,
}

/// A total of one side. `end` is that side's own clock; `seconds` of a receiving flow would be the
/// sender's.
#[derive(Deserialize)]
struct Sum {
    start: f64,
    end: f64,
    bytes: u64,
    retransmits: Option<u64>,
}

impl Sum {
    fn seconds(&self) -> f64 {
        self.end - self.start
    }

    fn mbps(&self) -> f64 {
        if self.seconds() > 0.0 {
            self.bytes as f64 * 8.0 / self.seconds() / 1e6
        } else {
            0.0
        }
    }
}

/// Reads the report (`-J`) of a sending client.
///
/// # Errors
/// [`IperfError::Failed`] if the report names an error, [`IperfError::Report`] if it is no report
/// of a completed TCP run.
pub fn parse(json: &str) -> Result<Summary, IperfError> {
    let report: Report =
        serde_json::from_str(json).map_err(|error| IperfError::Report(error.to_string()))?;
    if let Some(error) = report.error {
        return Err(IperfError::Failed(error));
    }
    let missing = |what: &str| IperfError::Report(format!("it has no {what}"));
    let end = report.end.ok_or_else(|| missing("end"))?;
    let received = end
        .sum_received
        .ok_or_else(|| missing("end.sum_received"))?;
    let sent = end.sum_sent.ok_or_else(|| missing("end.sum_sent"))?;
    let retransmits = sent
        .retransmits
        .ok_or_else(|| missing("end.sum_sent.retransmits"))?;
    let samples = report
        .intervals
        .iter()
        .flat_map(|interval| &interval.streams);
    let mut rtts_us: Vec<u64> = samples
        .map(|stream| stream.rtt)
        .filter(|rtt| *rtt > 0)
        .collect();
    if rtts_us.is_empty() {
        return Err(missing("RTT samples"));
    }
    rtts_us.sort_unstable();
    Ok(Summary {
        goodput_mbps: received.mbps(),
        flow_goodputs_mbps: end
            .streams
            .iter()
            .map(|stream| stream.receiver.mbps())
            .collect(),
        rtt_p50_ms: nearest_rank(&rtts_us, 50) as f64 / 1e3,
        rtt_p95_ms: nearest_rank(&rtts_us, 95) as f64 / 1e3,
        retransmits,
        seconds: received.seconds(),
    })
}

/// The smallest value that at least `percent` of the sorted, non-empty values do not exceed.
fn nearest_rank(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

/// A server that serves one run and ends.
#[derive(Debug)]
pub struct Server {
    process: Process,
}

impl Server {
    /// Starts a server at `address` inside `netns` and waits until it listens.
    ///
    /// # Errors
    /// [`IperfError`] if it cannot start or does not listen within 5 s.
    pub fn start(
        netns: &Netns,
        address: Ipv4Addr,
        interrupt: &Interrupt,
    ) -> Result<Self, IperfError> {
        let mut command = netns.command("iperf3");
        command.args(["--server", "--one-off", "--bind", &address.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::spawn(&mut command).map_err(IperfError::Start)?;
        let mut server = Self { process };
        server.wait_for_listening(SocketAddrV4::new(address, PORT), interrupt)?;
        Ok(server)
    }

    fn wait_for_listening(
        &mut self,
        local: SocketAddrV4,
        interrupt: &Interrupt,
    ) -> Result<(), IperfError> {
        const LIMIT: Duration = Duration::from_secs(5);
        let table = format!("/proc/{}/net/tcp", self.process.id());
        let start = Instant::now();
        while !std::fs::read_to_string(&table).is_ok_and(|table| listens(&table, local)) {
            let exited = self.process.exited().map_err(IperfError::Start)?;
            if let Some(status) = exited {
                return Err(IperfError::Server(format!("it ended with {status}")));
            }
            if interrupt.is_raised() {
                return Err(IperfError::Wait(WaitError::Interrupted));
            }
            if start.elapsed() > LIMIT {
                return Err(IperfError::Server(format!(
                    "not within {} s",
                    LIMIT.as_secs()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits at most `limit` for the server to have closed its connections; kills it then.
    pub fn finish(mut self, limit: Duration) {
        if let Err(error) = self.process.wait(limit, &Interrupt::default()) {
            tracing::debug!(%error, "the iperf3 server is killed");
        }
    }
}

/// Whether a table in the format of `/proc/net/tcp` has a listener (state 0A) at `local`. A process that has yet to
/// enter its namespace shows the host's table, where the port may be taken.
pub(crate) fn listens(table: &str, local: SocketAddrV4) -> bool {
    let address = u32::from_ne_bytes(local.ip().octets());
    let local = format!("{address:08X}:{:04X}", local.port());
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(&*local) && fields.nth(1) == Some("0A")
    })
}

/// Sends from `netns` to the server at `address` for `duration` (1 to 86400 whole seconds), over 1 to
/// 128 connections under the congestion control `scheme`.
///
/// # Errors
/// [`IperfError`]; a client that hangs is killed 10 s after its time.
pub fn run_client(
    netns: &Netns,
    address: Ipv4Addr,
    scheme: &str,
    flows: u32,
    duration: Duration,
    interrupt: &Interrupt,
) -> Result<Summary, IperfError> {
    let whole = duration.subsec_nanos() == 0 && (1..=86_400).contains(&duration.as_secs());
    if !whole || !(1..=128).contains(&flows) {
        return Err(IperfError::Asked { flows, duration });
    }
    let mut command = netns.command("iperf3");
    command.args([
        "--client",
        &address.to_string(),
        "--json",
        "--connect-timeout",
        "5000",
    ]);
    command.args(["--congestion", scheme, "--parallel", &flows.to_string()]);
    command.args(["--time", &duration.as_secs().to_string()]);
    command.args(["--interval", &INTERVAL.as_secs_f64().to_string()]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut client = Process::spawn(&mut command).map_err(IperfError::Start)?;
    let pipes = (client.child().stdout.take(), client.child().stderr.take());
    let (Some(stdout), Some(stderr)) = pipes else {
        return Err(IperfError::Start(io::Error::other(
            "its output is not piped",
        )));
    };
    let (report, complaint) = (process::read_all(stdout), process::read_all(stderr));
    let status = client
        .wait(duration + GRACE, interrupt)
        .map_err(IperfError::Wait)?;
    let report = report.join().unwrap_or_default();
    if report.trim().is_empty() {
        let complaint = complaint.join().unwrap_or_default();
        return Err(IperfError::Failed(format!(
            "{status}, {}",
            complaint.trim()
        )));
    }
    parse(&report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by iperf3 3.12 for two flows of 2 s under Cubic on an emulated path of 50 Mbit/s
    /// and 40 ms; reduced to three intervals.
    const TWO_FLOWS: &str = include_str!("iperf_two_flows.json");

    #[test]
    fn a_report_of_two_flows() {
        let summary = parse(TWO_FLOWS).unwrap();
        // 4552512 bytes in 2.05717 s; 2887312 and 1665200 bytes of the two flows.
        assert!((summary.goodput_mbps - 17.70398).abs() < 1e-4);
        assert!((summary.flow_goodputs_mbps[0] - 11.22829).abs() < 1e-4);
        assert!((summary.flow_goodputs_mbps[1] - 6.47569).abs() < 1e-4);
        assert!((summary.seconds - 2.05717).abs() < 1e-9);
        // Samples in µs: 54948, 57332, 58029, 58865, 63294, 65969.
        assert_eq!((summary.rtt_p50_ms, summary.rtt_p95_ms), (58.029, 65.969));
        assert_eq!(summary.retransmits, 7);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let values: Vec<u64> = (1..=20).collect();
        assert_eq!(nearest_rank(&values, 50), 10);
        assert_eq!(nearest_rank(&values, 95), 19);
        assert_eq!(nearest_rank(&[7], 95), 7);
    }

    #[test]
    fn jain_is_one_for_equals_and_a_half_for_one_of_two() {
        let of = |flow_goodputs_mbps: Vec<f64>| {
            let summary = parse(TWO_FLOWS).unwrap();
            Summary {
                flow_goodputs_mbps,
                ..summary
            }
            .jain()
        };
        assert!((of(vec![5.0, 5.0, 5.0]) - 1.0).abs() < 1e-12);
        assert!((of(vec![5.0, 0.0]) - 0.5).abs() < 1e-12);
        assert_eq!(of(vec![0.0, 0.0]), 1.0);
    }

    #[test]
    fn errors_are_told_apart() {
        let refused = parse(r#"{"start": {}, "intervals": [], "end": {}, "error": "no route"}"#);
        assert!(matches!(refused, Err(IperfError::Failed(message)) if message == "no route"));
        let cut = parse(&TWO_FLOWS[..TWO_FLOWS.len() / 2]);
        assert!(matches!(cut, Err(IperfError::Report(_))));
        assert!(matches!(
            parse(r#"{"intervals": []}"#),
            Err(IperfError::Report(_))
        ));
        assert!(matches!(
            parse(r#"{"intervals": [], "end": {}}"#),
            Err(IperfError::Report(_))
        ));
    }

    #[test]
    fn listeners_are_found_in_the_kernel_s_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n   \
                     0: 02004D0A:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n   \
                     1: 02004D0A:1452 01004D0A:C350 01 00000000:00000000 00:00000000 00000000\n";
        let at = |address, port| listens(table, SocketAddrV4::new(address, port));
        let server = Ipv4Addr::new(10, 77, 0, 2);
        assert!(at(server, 5201));
        assert!(!at(server, 5202));
        assert!(!at(Ipv4Addr::LOCALHOST, 5201), "another namespace's");
        assert!(!listens("", SocketAddrV4::new(server, 5201)));
    }
}
