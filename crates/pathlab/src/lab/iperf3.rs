//! iperf3 as the traffic of a run: for each scheme under test a client and a server, whose reports tell all flows.
//!
//! Goodput is what the server counted. iperf3's own clock begins when its connections are made, two round trips and the
//! start of a program after the path's.

use std::fs;
use std::net::SocketAddrV4;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pathsim::{MSS, Source};
use serde::Deserialize;

use super::line::Line;
use super::run::{FlowScheme, Run};
use crate::flows::FlowKey;
use crate::iperf::listens;
use crate::netns::Netns;
use crate::process::{self, Interrupt, POLL_INTERVAL, Process};
use crate::traffic::{FlowReport, Sample};

/// The first pair's port; below those of the lab's own flows.
const FIRST_PORT: u16 = 5201;
/// Streams of a client, at most.
const MAX_STREAMS: usize = 128;
/// A server that has started listens within this time.
const LISTEN_LIMIT: Duration = Duration::from_secs(5);
/// After its client, a server closes its connections within this time.
const CLOSING: Duration = Duration::from_secs(2);
/// IANA's number of TCP.
const TCP: u8 = 6;

/// Why iperf3 made no traffic.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3Error {
    /// It cannot do that.
    #[error(
        "iperf3 sends 1 to 128 endless flows per scheme, which start together, for whole seconds; {0}: use the lab's own traffic"
    )]
    Asked(String),
    /// It failed.
    #[error("iperf3 under {scheme}: {problem}")]
    Failed {
        /// The congestion control.
        scheme: String,
        /// What went wrong.
        problem: String,
    },
}

/// A client and a server, with the flows that they make.
#[derive(Debug)]
pub(super) struct Pair {
    scheme: String,
    flows: Vec<usize>,
    port: u16,
    address: std::net::Ipv4Addr,
    own: std::net::Ipv4Addr,
    server: Process,
    server_report: JoinHandle<String>,
    client: Option<(Process, JoinHandle<String>, JoinHandle<String>)>,
}

/// Starts a server for each scheme under test.
pub(super) fn prepare(
    run: &Run,
    line: &Line,
    interrupt: &Interrupt,
) -> Result<Vec<Pair>, Iperf3Error> {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (flow, spec) in run.scenario.flows.iter().enumerate() {
        let FlowScheme::Tcp(scheme) = &run.schemes[flow] else {
            continue;
        };
        if !run.under_test[flow] {
            continue;
        }
        let simple = spec.source == Source::Endless
            && spec.start_ns == 0
            && spec.stop_ns.is_none()
            && spec.receive_window.is_none()
            && spec.handshake.is_none()
            && spec.extra_rtt_ns == 0;
        if !simple {
            return Err(Iperf3Error::Asked(format!("flow {} does not", flow + 1)));
        }
        match groups.iter_mut().find(|(name, _)| *name == scheme.name()) {
            Some((_, flows)) => flows.push(flow),
            None => groups.push((scheme.name(), vec![flow])),
        }
    }
    let whole = run.scenario.duration_ns.is_multiple_of(1_000_000_000);
    if !whole || run.scenario.duration_ns == 0 {
        return Err(Iperf3Error::Asked(
            "the run does not last whole seconds".into(),
        ));
    }
    if let Some((scheme, flows)) = groups.iter().find(|(_, flows)| flows.len() > MAX_STREAMS) {
        return Err(Iperf3Error::Asked(format!(
            "{scheme} has {} flows",
            flows.len()
        )));
    }
    let pairs = groups.into_iter().zip(FIRST_PORT..);
    let serve = |((scheme, flows), port)| Pair::serve(line, (scheme, flows), port, interrupt);
    pairs.map(serve).collect()
}

/// What iperf3 calls itself: `iperf 3.12`.
pub(super) fn version() -> Option<String> {
    let output = Command::new("iperf3").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.split(" (").next()?.trim().to_owned())
}

impl Pair {
    fn serve(
        line: &Line,
        (scheme, flows): (&str, Vec<usize>),
        port: u16,
        interrupt: &Interrupt,
    ) -> Result<Self, Iperf3Error> {
        let address = line.server_address();
        let failed = |problem: String| Iperf3Error::Failed {
            scheme: scheme.to_owned(),
            problem,
        };
        let mut command = line.server().command("iperf3");
        command.args(["--server", "--one-off", "--json", "--interval", "0.1"]);
        command.args(["--bind", &address.to_string(), "--port", &port.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let spawned = Process::spawn(&mut command);
        let mut server = spawned.map_err(|error| failed(format!("cannot start it: {error}")))?;
        let Some(pipe) = server.child().stdout.take() else {
            return Err(failed("its output is not piped".into()));
        };
        let server_report = process::read_all(pipe);
        let table = format!("/proc/{}/net/tcp", server.id());
        let start = Instant::now();
        let local = SocketAddrV4::new(address, port);
        while !fs::read_to_string(&table).is_ok_and(|table| listens(&table, local)) {
            if let Ok(Some(status)) = server.exited() {
                return Err(failed(format!("the server ended with {status}")));
            }
            if interrupt.is_raised() || start.elapsed() > LISTEN_LIMIT {
                return Err(failed("the server does not listen".into()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Self {
            scheme: scheme.to_owned(),
            flows,
            port,
            address,
            own: line.client_address(0).unwrap_or(address),
            server,
            server_report,
            client: None,
        })
    }

    fn failed(&self, problem: impl Into<String>) -> Iperf3Error {
        Iperf3Error::Failed {
            scheme: self.scheme.clone(),
            problem: problem.into(),
        }
    }

    pub(super) fn start(&mut self, client: &Netns, duration: Duration) -> Result<(), Iperf3Error> {
        let mut command = client.command("iperf3");
        command.args([
            "--client",
            &self.address.to_string(),
            "--port",
            &self.port.to_string(),
        ]);
        command.args(["--json", "--interval", "0.1", "--connect-timeout", "5000"]);
        command.args(["--congestion", &self.scheme]);
        command.args(["--parallel", &self.flows.len().to_string()]);
        command.args(["--time", &duration.as_secs().to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spawned = Process::spawn(&mut command);
        let mut process =
            spawned.map_err(|error| self.failed(format!("cannot start it: {error}")))?;
        let (Some(out), Some(err)) = (process.child().stdout.take(), process.child().stderr.take())
        else {
            return Err(self.failed("its output is not piped"));
        };
        self.client = Some((process, process::read_all(out), process::read_all(err)));
        Ok(())
    }

    /// Whether the client still sends; an error if it is too late for that.
    pub(super) fn is_busy(&mut self, late: bool) -> Result<bool, Iperf3Error> {
        let Some((process, ..)) = &mut self.client else {
            return Ok(false);
        };
        match process.exited() {
            Ok(Some(_)) => Ok(false),
            Ok(None) if late => {
                Err(self.failed("the client hangs; it does when its path vanishes"))
            }
            Ok(None) => Ok(true),
            Err(error) => Err(self.failed(format!("cannot watch the client: {error}"))),
        }
    }

    /// The flows as both ends tell them, and the CPU time of the sender.
    pub(super) fn finish(
        mut self,
        duration: Duration,
    ) -> Result<(Vec<(usize, FlowReport)>, Duration), Iperf3Error> {
        // It only has its report to write; a server that hangs is killed.
        let waited = self.server.wait(CLOSING, &Interrupt::default());
        if waited.is_err() {
            self.server.kill();
        }
        let Some((_, report, complaint)) = self.client.take() else {
            return Err(self.failed("the client was not started"));
        };
        let (sent, complaint) = (report.join().unwrap_or_default(), complaint.join());
        let reader = std::mem::replace(&mut self.server_report, thread::spawn(String::new));
        let received = reader.join().unwrap_or_default();
        if sent.trim().is_empty() {
            return Err(self.failed(complaint.unwrap_or_default().trim()));
        }
        let read = read(&sent, &received, self.own, duration);
        let (flows, cpu) = read.map_err(|problem| self.failed(problem))?;
        if flows.len() != self.flows.len() {
            return Err(self.failed(format!("it reports {} flows", flows.len())));
        }
        Ok((self.flows.into_iter().zip(flows).collect(), cpu))
    }
}

#[derive(Deserialize)]
struct Told {
    error: Option<String>,
    #[serde(default)]
    start: Begin,
    #[serde(default)]
    intervals: Vec<Interval>,
    end: Option<End>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Begin {
    connected: Vec<Connected>,
}

#[derive(Deserialize)]
struct Connected {
    local_port: u16,
}

#[derive(Deserialize)]
struct Interval {
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    start: f64,
    end: f64,
    bytes: u64,
    #[serde(default)]
    retransmits: u32,
    #[serde(default)]
    snd_cwnd: u64,
    #[serde(default)]
    snd_wnd: u32,
    #[serde(default)]
    rtt: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct End {
    cpu_utilization_percent: Cpu,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cpu {
    host_total: f64,
}

/// Reads the reports of a client that sent for `duration` and of its server.
fn read(
    sent: &str,
    received: &str,
    own: std::net::Ipv4Addr,
    duration: Duration,
) -> Result<(Vec<FlowReport>, Duration), String> {
    let parse = |side: &str, json: &str| -> Result<Told, String> {
        let told: Told =
            serde_json::from_str(json).map_err(|error| format!("the {side}'s report: {error}"))?;
        told.error
            .as_ref()
            .map_or(Ok(()), |error| Err(error.clone()))?;
        Ok(told)
    };
    let sent = parse("client", sent)?;
    let received = parse("server", received)?;
    let mut flows: Vec<FlowReport> = sent
        .start
        .connected
        .iter()
        .map(|connection| FlowReport {
            end: duration,
            keys: vec![FlowKey {
                address: own,
                port: connection.local_port,
                protocol: TCP,
            }],
            ..FlowReport::default()
        })
        .collect();
    let time = |s: f64| Duration::try_from_secs_f64(s).unwrap_or_default();
    for interval in &sent.intervals {
        for (flow, stream) in flows.iter_mut().zip(&interval.streams) {
            flow.sent_bytes += stream.bytes;
            flow.retransmissions += u64::from(stream.retransmits);
            // 0 before the first measurement.
            if stream.rtt > 0 {
                flow.samples.push(Sample {
                    at: time(stream.end),
                    srtt: Duration::from_micros(stream.rtt),
                    cwnd_packets: u32::try_from(stream.snd_cwnd / MSS).unwrap_or(u32::MAX),
                    retransmissions: u32::try_from(flow.retransmissions).unwrap_or(u32::MAX),
                    acked_bytes: flow.sent_bytes,
                    delivered_segments: 0,
                    window_bytes: stream.snd_wnd,
                });
            }
        }
    }
    for interval in &received.intervals {
        for (flow, stream) in flows.iter_mut().zip(&interval.streams) {
            flow.received
                .add(time((stream.start + stream.end) / 2.0), stream.bytes);
        }
    }
    for flow in &mut flows {
        flow.received = std::mem::take(&mut flow.received).cut(duration);
        flow.delivered_segments = flow.received.total().div_ceil(MSS);
    }
    let busy = sent
        .end
        .unwrap_or_default()
        .cpu_utilization_percent
        .host_total
        / 100.0;
    Ok((flows, duration.mul_f64(busy.max(0.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = r#"{"start": {"connected": [{"local_port": 40000}, {"local_port": 40002}]},
        "intervals": [
        {"streams": [{"start": 0, "end": 0.1, "bytes": 2896, "retransmits": 0, "snd_cwnd": 14480, "snd_wnd": 65535, "rtt": 0},
                     {"start": 0, "end": 0.1, "bytes": 1448, "retransmits": 1, "snd_cwnd": 14480, "snd_wnd": 65535, "rtt": 40000}]},
        {"streams": [{"start": 0.1, "end": 0.2, "bytes": 2896, "retransmits": 2, "snd_cwnd": 28960, "snd_wnd": 65535, "rtt": 41000},
                     {"start": 0.1, "end": 0.2, "bytes": 1448, "retransmits": 0, "snd_cwnd": 14480, "snd_wnd": 65535, "rtt": 42000}]}],
        "end": {"cpu_utilization_percent": {"host_total": 5.0}}}"#;
    const SERVER: &str = r#"{"intervals": [
        {"streams": [{"start": 0, "end": 0.1, "bytes": 1448}, {"start": 0, "end": 0.1, "bytes": 0}]},
        {"streams": [{"start": 0.1, "end": 0.2, "bytes": 2896}, {"start": 0.1, "end": 0.2, "bytes": 1448}]}]}"#;

    #[test]
    fn flows_are_those_of_both_reports() {
        let own = [10, 77, 0, 1].into();
        let (flows, cpu) = read(CLIENT, SERVER, own, Duration::from_secs(1)).unwrap();
        let [first, second] = flows.as_slice() else {
            panic!("{flows:?}")
        };
        assert_eq!((first.sent_bytes, first.received.total()), (5792, 4344));
        assert_eq!((first.retransmissions, second.retransmissions), (2, 1));
        assert_eq!((first.samples.len(), second.samples.len()), (1, 2));
        assert_eq!(first.samples[0].cwnd_packets, 20);
        assert_eq!(first.keys[0].to_string(), "10.77.0.1:40000");
        assert_eq!(
            first
                .received
                .between(Duration::from_millis(100), Duration::from_secs(1)),
            2896
        );
        assert_eq!(cpu, Duration::from_millis(50));
    }

    #[test]
    fn an_error_in_a_report_is_told() {
        let own = [10, 77, 0, 1].into();
        let error = read(
            r#"{"error": "no route"}"#,
            SERVER,
            own,
            Duration::from_secs(1),
        );
        assert_eq!(error.unwrap_err(), "no route");
        let error = read(&CLIENT[..50], SERVER, own, Duration::from_secs(1)).unwrap_err();
        assert!(error.contains("client's report"), "{error}");
    }
}
