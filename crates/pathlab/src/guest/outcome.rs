//! From what a guest sent to a row of the comparison.

use std::time::Duration;

use serde::Deserialize;

use super::Error;
use super::plan::GuestRun;
use super::stream::Transcript;
use crate::agent::FlowEnds;
use crate::iperf::{self, IperfError};
use crate::process;
use crate::row::Row;
use crate::scenario::Scheme;

/// What one run in a guest showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The run's row.
    pub row: Row,
    /// What the receiver got in each 0.2 s, all flows together, in order.
    pub received: Vec<Interval>,
    /// The agent's log, empty for a kernel scheme.
    pub agent_log: String,
    /// What went wrong without spoiling the run, such as an agent that had to be killed; one line
    /// each.
    pub remarks: String,
    /// The guest's kernel, as `uname -r` says it.
    pub kernel: String,
    /// As [`Executed::kernel_trouble`](super::Executed::kernel_trouble).
    pub kernel_trouble: String,
    /// Wall time from boot to the end of the guest.
    pub wall: Duration,
}

/// A reporting interval of the receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// When it ended, after the flows' start.
    pub end: Duration,
    /// How long it was.
    pub length: Duration,
    /// Payload that arrived in it.
    pub bytes: u64,
}

impl Outcome {
    /// The longest time in which nothing arrived, to 0.2 s.
    pub fn longest_stall(&self) -> Duration {
        let (mut longest, mut current) = (Duration::ZERO, Duration::ZERO);
        for interval in &self.received {
            current = if interval.bytes == 0 {
                current + interval.length
            } else {
                Duration::ZERO
            };
            longest = longest.max(current);
        }
        longest
    }

    pub(super) fn read(
        run: &GuestRun,
        transcript: &Transcript,
        wall: Duration,
    ) -> Result<Self, Error> {
        let text = |name| transcript.text(name).unwrap_or_default();
        let (agent_log, remarks) = (text("agent.log"), text("remarks"));
        if let Some(reason) = &transcript.failure {
            let (reason, agent_log) = (reason.clone(), process::last_lines(&agent_log));
            return Err(Error::Guest {
                run: run.label(),
                reason,
                agent_log,
            });
        }
        let unusable = |cause| {
            let complaints = text("iperf.err") + &remarks;
            Error::Iperf {
                run: run.label(),
                cause,
                complaints,
            }
        };
        let summary = iperf::parse(&text("client.json")).map_err(unusable)?;
        let received = intervals(&text("server.json")).map_err(unusable)?;
        let (mut agent_driven, mut agent_cpu) = (None, None);
        if let Scheme::Agent { .. } = run.scheme {
            let mut ends = FlowEnds::default();
            agent_log.lines().for_each(|line| ends.take(line));
            agent_driven = Some(ends.agent_driven());
            agent_cpu = transcript
                .text("agent.ticks")
                .and_then(|ticks| cpu_share(&ticks, run.secs));
        }
        let row = Row {
            agent_driven,
            agent_cpu,
            ..Row::new(&run.path, &run.scheme, run.flows, &summary)
        };
        Ok(Self {
            row,
            received,
            agent_log,
            remarks,
            kernel: transcript.release.clone(),
            kernel_trouble: text("kernel.trouble"),
            wall,
        })
    }
}

/// CPU time in the guest's ticks of 1/100 s, over the run's duration.
fn cpu_share(ticks: &str, secs: u32) -> Option<f64> {
    let ticks: u32 = ticks.trim().parse().ok()?;
    Some(f64::from(ticks) / 100.0 / f64::from(secs))
}

#[derive(Deserialize)]
struct ServerReport {
    intervals: Vec<ServerInterval>,
}

#[derive(Deserialize)]
struct ServerInterval {
    sum: ServerSum,
}

#[derive(Deserialize)]
struct ServerSum {
    end: f64,
    seconds: f64,
    bytes: u64,
}

/// The intervals in the report of a receiving server.
fn intervals(json: &str) -> Result<Vec<Interval>, IperfError> {
    let unusable = |problem: String| IperfError::Report(format!("of the server: {problem}"));
    let report: ServerReport =
        serde_json::from_str(json).map_err(|error| unusable(error.to_string()))?;
    let interval = |ServerInterval { sum }: ServerInterval| {
        let end = Duration::try_from_secs_f64(sum.end)?;
        let length = Duration::try_from_secs_f64(sum.seconds)?;
        Ok(Interval {
            end,
            length,
            bytes: sum.bytes,
        })
    };
    let intervals = report
        .intervals
        .into_iter()
        .map(interval)
        .collect::<Result<_, _>>();
    intervals.map_err(|error: std::time::TryFromFloatSecsError| unusable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::PathSpec;

    fn run(scheme: Scheme) -> GuestRun {
        let path = PathSpec::demo().remove(0);
        GuestRun {
            path,
            scheme,
            flows: 2,
            secs: 2,
            events: Vec::new(),
        }
    }

    fn agent() -> Scheme {
        Scheme::Agent {
            name: "pk3c".into(),
            command: vec!["/bin/pk3c-ccp".into()],
        }
    }

    const SERVER: &str = r#"{"intervals": [
        {"streams": [], "sum": {"start": 0, "end": 0.2, "seconds": 0.2, "bytes": 1000}},
        {"streams": [], "sum": {"start": 0.2, "end": 0.4, "seconds": 0.2, "bytes": 0}},
        {"streams": [], "sum": {"start": 0.4, "end": 0.6, "seconds": 0.2, "bytes": 0}},
        {"streams": [], "sum": {"start": 0.6, "end": 0.8, "seconds": 0.2, "bytes": 5}},
        {"streams": [], "sum": {"start": 0.8, "end": 1.0, "seconds": 0.2, "bytes": 0}}]}"#;

    fn transcript(files: &[(&str, &str)]) -> Transcript {
        let files = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        Transcript {
            release: "6.12".into(),
            files: files.collect(),
            failure: None,
        }
    }

    #[test]
    fn an_agent_s_row_has_its_share_and_its_cpu() {
        let log = "{\"message\":\"flow end\",\"agent_driven\":0.75,\"duration_s\":2.0}\n";
        let files = [
            ("client.json", include_str!("../iperf_two_flows.json")),
            ("server.json", SERVER),
            ("agent.log", log),
            ("agent.ticks", "10\n"),
        ];
        let outcome = Outcome::read(&run(agent()), &transcript(&files), Duration::ZERO).unwrap();
        assert_eq!(outcome.row.agent_driven, Some(0.75));
        assert_eq!(outcome.row.agent_cpu, Some(0.05));
        assert!(
            outcome.row.share > 0.0 && outcome.row.share < 1.0,
            "{}",
            outcome.row.share
        );
        assert_eq!(outcome.longest_stall(), Duration::from_millis(400));
        assert_eq!(outcome.received[3].end, Duration::from_millis(800));

        let outcome =
            Outcome::read(&run(agent()), &transcript(&files[..2]), Duration::ZERO).unwrap();
        assert!(outcome.row.is_void());
        assert_eq!(outcome.row.agent_cpu, None);
        let kernel = run(Scheme::Kernel("bbr".into()));
        let outcome = Outcome::read(&kernel, &transcript(&files[..2]), Duration::ZERO).unwrap();
        assert_eq!(outcome.row.agent_driven, None);
    }

    #[test]
    fn failures_say_what_the_guest_said() {
        let mut failed = transcript(&[("agent.log", "no BTF\n")]);
        failed.failure = Some("the agent did not register pk3c within 30 s".into());
        let error = Outcome::read(&run(agent()), &failed, Duration::ZERO).unwrap_err();
        assert_eq!(
            error.to_string(),
            "clean, pk3c, 2 flows: the guest gave up: the agent did not register pk3c within 30 s; \
             agent's log:\nno BTF"
        );
        let cut = [("client.json", "{"), ("iperf.err", "hangup\n")];
        let error = Outcome::read(&run(agent()), &transcript(&cut), Duration::ZERO).unwrap_err();
        assert!(
            error.to_string().ends_with("iperf3's complaints:\nhangup"),
            "{error}"
        );
    }
}
