//! Traffic that other programs make: iperf3, and senders and receivers of any kind.
//!
//! Receivers start before the run, senders at their flow's start. A pair of programs is measured at the link, so it may
//! speak whatever protocol it likes: its flow has an address of its own, which the kernel chooses by the receiver's
//! port. What it delivers is counted as IP packets less the headers of IP and UDP (28 bytes), whatever is inside. Each
//! program runs in a process namespace of its own, so that all that it has started ends with it.

use std::io;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use super::iperf3::{self, Pair};
use super::line::Line;
use super::run::{FlowScheme, Run, Traffic};
use crate::netns::{Netns, NetnsError};
use crate::path::{PathReport, SERVER};
use crate::process::{self, Interrupt, POLL_INTERVAL, Process};
use crate::program;
use crate::traffic::{FlowReport, Plan, Report};
use crate::tun::{self, TunError};

/// A program that is asked to end gets so long.
const ENDING: Duration = Duration::from_millis(500);

/// Programs that hang are killed so long after the end of the run.
const GRACE: Duration = Duration::from_secs(10);

/// Receivers get so long to be ready: nothing tells when they are.
const RECEIVER_LEAD: Duration = Duration::from_millis(500);

/// Headers of IPv4 and UDP, bytes.
const HEADERS_BYTES: u64 = 28;

/// Why other programs made no traffic.
#[derive(Debug, thiserror::Error)]
pub enum ElsewhereError {
    /// It cannot be asked of them.
    #[error("{0}")]
    Impossible(String),
    /// A namespace.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// iperf3.
    #[error(transparent)]
    Iperf3(#[from] iperf3::Iperf3Error),
    /// A program could not be started.
    #[error("flow {flow}: cannot start `{command}`: {cause}")]
    Start {
        /// The flow's number.
        flow: u32,
        /// The command line.
        command: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A program failed.
    #[error("flow {flow}: `{command}` ended with {status} before its time; it wrote:\n{stderr}")]
    Failed {
        /// The flow's number.
        flow: u32,
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it wrote to standard error.
        stderr: String,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The programs of a run.
#[derive(Debug)]
pub(super) struct Elsewhere<'a> {
    pairs: Vec<Pair>,
    programs: Vec<Programs<'a>>,
    duration: Duration,
}

/// A sender and a receiver.
#[derive(Debug)]
struct Programs<'a> {
    flow: usize,
    sends: &'a [String],
    receives: &'a [String],
    start: Duration,
    stop: Duration,
    receiver: Running,
    sender: Option<Running>,
    ended: Option<Duration>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    stderr: thread::JoinHandle<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Made {
    flows: Vec<(usize, FlowReport)>,
    sender_cpu: Duration,
}

impl Made {
    pub(super) fn merge_into(self, report: &mut Report) {
        report.sender_cpu += self.sender_cpu;
        for (flow, made) in self.flows {
            report.flows[flow] = FlowReport {
                received: made.received.cut(report.duration),
                ..made
            };
        }
    }
}

impl<'a> Elsewhere<'a> {
    /// Starts the receivers.
    pub(super) fn prepare(
        run: &'a Run,
        line: &Line,
        interrupt: &Interrupt,
    ) -> Result<Self, ElsewhereError> {
        let pairs = match run.settings.traffic {
            Traffic::Own => Vec::new(),
            Traffic::Iperf3 => iperf3::prepare(run, line, interrupt)?,
        };
        let mut programs = Vec::new();
        for (flow, scheme) in run.schemes.iter().enumerate() {
            if let FlowScheme::Command {
                sender, receiver, ..
            } = scheme
            {
                programs.push(Programs::prepare(run, line, flow, (sender, receiver))?);
            }
        }
        if !programs.is_empty() {
            thread::sleep(RECEIVER_LEAD);
        }
        Ok(Self {
            pairs,
            programs,
            duration: Duration::from_nanos(run.scenario.duration_ns),
        })
    }

    /// What iperf3 calls itself, if it is used.
    pub(super) fn iperf3_version(&self) -> Option<String> {
        (!self.pairs.is_empty()).then(iperf3::version).flatten()
    }

    /// Lets all senders send from when the run has `begun`, until they end or one of `stops` is raised.
    pub(super) fn run(
        mut self,
        client: &Netns,
        begun: &Receiver<Instant>,
        stops: &[&Interrupt],
    ) -> Result<Made, ElsewhereError> {
        let mut made = Made::default();
        if self.pairs.is_empty() && self.programs.is_empty() {
            return Ok(made);
        }
        let Ok(epoch) = begun.recv() else {
            return Ok(made);
        };
        self.pairs
            .iter_mut()
            .try_for_each(|pair| pair.start(client, self.duration))?;
        let limit = self.duration + GRACE;
        loop {
            if stops.iter().any(|stop| stop.is_raised()) {
                return Err(ElsewhereError::Interrupted);
            }
            let now = epoch.elapsed();
            let mut busy = false;
            for pair in &mut self.pairs {
                busy |= pair.is_busy(now > limit)?;
            }
            for programs in &mut self.programs {
                busy |= programs.step(client, now)?;
            }
            if !busy {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        for pair in self.pairs {
            let (flows, cpu) = pair.finish(self.duration)?;
            made.flows.extend(flows);
            made.sender_cpu += cpu;
        }
        made.flows.extend(self.programs.iter().map(|programs| {
            let report = FlowReport {
                start: programs.start,
                end: programs.ended.unwrap_or(programs.stop),
                ..FlowReport::default()
            };
            (programs.flow, report)
        }));
        Ok(made)
    }

    /// What programs delivered is known from the link only.
    pub(super) fn measure_at_the_link(run: &Run, path: &PathReport, report: &mut Report) {
        for (flow, scheme) in run.schemes.iter().enumerate() {
            if !matches!(scheme, FlowScheme::Command { .. }) {
                continue;
            }
            let address = address(flow);
            let flow = &mut report.flows[flow];
            let mut received = 0;
            for (key, link) in &path.emulator.per_flow {
                if key.address == address {
                    flow.keys.push(*key);
                    let headers = HEADERS_BYTES * link.delivered;
                    received += link.delivered_bytes.saturating_sub(headers);
                    let headers = HEADERS_BYTES * link.arrived;
                    flow.sent_bytes += link.arrived_bytes.saturating_sub(headers);
                }
            }
            flow.received_at_link = Some(received);
        }
    }
}

/// The address that a flow of programs sends from.
fn address(flow: usize) -> Ipv4Addr {
    let [.., high, low] = ((flow + 1) as u32).to_be_bytes();
    Ipv4Addr::new(10, 78, high, low)
}

impl<'a> Programs<'a> {
    fn prepare(
        run: &Run,
        line: &Line,
        flow: usize,
        (sends, receives): (&'a [String], &'a [String]),
    ) -> Result<Self, ElsewhereError> {
        let spec = &run.scenario.flows[flow];
        let number = flow + 1;
        let Line::Emulated(path) = line else {
            return Err(ElsewhereError::Impossible(format!(
                "flow {number}: programs are measured by the emulator, which this path does not have"
            )));
        };
        if spec.extra_rtt_ns > 0 {
            return Err(ElsewhereError::Impossible(format!(
                "flow {number}: programs cannot have an extra RTT"
            )));
        }
        let (own, port) = (address(flow), Plan::port(flow).to_string());
        tun::add_addresses(path.client(), path.server(), std::iter::once(own))?;
        let (own, table, peer) = (
            own.to_string(),
            (1000 + flow).to_string(),
            SERVER.to_string(),
        );
        let mut route = vec!["route", "add", &peer, "dev", tun::DEVICE];
        route.extend(["src", &own, "table", &table]);
        path.client().configure("ip", &route)?;
        let rule = ["rule", "add", "dport", &port, "lookup", &table];
        path.client().configure("ip", &rule)?;
        let run_time = Duration::from_nanos(run.scenario.duration_ns);
        let stop = spec.stop_ns.map_or(run_time, Duration::from_nanos);
        Ok(Self {
            flow,
            sends,
            receives,
            start: Duration::from_nanos(spec.start_ns),
            stop: stop.min(run_time),
            receiver: start(path.server(), flow, receives)?,
            sender: None,
            ended: None,
        })
    }

    /// Does what is due; true until both have ended.
    fn step(&mut self, client: &Netns, now: Duration) -> Result<bool, ElsewhereError> {
        if self.ended.is_some() {
            return Ok(false);
        }
        if now >= self.stop {
            for running in [self.sender.as_mut(), Some(&mut self.receiver)]
                .into_iter()
                .flatten()
            {
                program::end(&mut running.process, ENDING);
            }
            self.ended = Some(self.stop);
            return Ok(false);
        }
        if self.sender.is_none() && now >= self.start {
            self.sender = Some(start(client, self.flow, self.sends)?);
        }
        self.failed(false)?;
        if self.sender.is_some() && self.failed(true)? {
            self.ended = Some(now);
        }
        Ok(true)
    }

    /// Whether the sender (or the receiver) has ended; an error if it should not have.
    fn failed(&mut self, sender: bool) -> Result<bool, ElsewhereError> {
        let (command, running) = match (sender, &mut self.sender) {
            (true, Some(running)) => (self.sends, running),
            _ => (self.receives, &mut self.receiver),
        };
        let command = command.join(" ");
        let flow = self.flow as u32 + 1;
        let status = match running.process.exited() {
            Ok(None) => return Ok(false),
            Ok(Some(status)) if status.success() && sender => return Ok(true),
            Ok(Some(status)) => status,
            Err(cause) => {
                return Err(ElsewhereError::Start {
                    flow,
                    command,
                    cause,
                });
            }
        };
        // The pipe ends with the program and what it has started.
        thread::sleep(POLL_INTERVAL);
        let stderr = match running.stderr.is_finished() {
            true => std::mem::replace(&mut running.stderr, thread::spawn(String::new))
                .join()
                .unwrap_or_default(),
            false => String::new(),
        };
        Err(ElsewhereError::Failed {
            flow,
            command,
            status: status.to_string(),
            stderr: process::last_lines(&stderr),
        })
    }
}

fn start(netns: &Netns, flow: usize, command: &[String]) -> Result<Running, ElsewhereError> {
    let fill = |word: &String| {
        word.replace("{address}", &SERVER.to_string())
            .replace("{port}", &Plan::port(flow).to_string())
    };
    let words: Vec<String> = command.iter().map(fill).collect();
    let failed = |cause| ElsewhereError::Start {
        flow: flow as u32 + 1,
        command: words.join(" "),
        cause,
    };
    if words.is_empty() {
        let empty = io::Error::new(io::ErrorKind::InvalidInput, "the command is empty");
        return Err(failed(empty));
    }
    let mut spawned = program::command(netns, &words);
    spawned
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut process = Process::spawn(&mut spawned).map_err(failed)?;
    let Some(pipe) = process.child().stderr.take() else {
        return Err(failed(io::Error::other("its standard error is not piped")));
    };
    Ok(Running {
        process,
        stderr: process::read_all(pipe),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_programs_have_addresses_of_their_own() {
        assert_eq!(address(0), Ipv4Addr::new(10, 78, 0, 1));
        assert_eq!(address(299), Ipv4Addr::new(10, 78, 1, 44));
    }
}
