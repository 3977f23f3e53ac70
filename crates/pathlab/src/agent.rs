//! A congestion control agent for the length of a run: started, watched and stopped.
//!
//! The agent runs in the namespaces of the caller (a congestion control registered there serves
//! all network namespaces). It is ready when its name is among the kernel's congestion controls.
//! Its log tells who drove each flow: a JSON object per line on standard error, and at the end of
//! a flow one whose `message` is `flow end`, with `agent_driven` (0 to 1) and `duration_s`, at its
//! top level or in `fields`.

use std::fs;
use std::io;
use std::process::{ChildStderr, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};
use serde_json::Value;

use crate::process::{self, Interrupt, POLL_INTERVAL, Process, Signalled, Tail};

/// The kernel's list of congestion controls, the same in every namespace.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Loading and verifying BPF programs takes a second or two on a slow machine.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Time to unregister and to write the last lines.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Reading the rest of a pipe whose writer has ended takes no time.
const READ_LIMIT: Duration = Duration::from_millis(500);

/// Shorter flows are no measured ones.
const SHORTEST_FLOW_S: f64 = 1.0;

/// What went wrong with the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The command could not be started.
    #[error("cannot start the agent `{command}`: {cause}")]
    Start {
        /// The command line.
        command: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// It ended before its congestion control was there.
    #[error("the agent ended with {status} before it registered {name}; it wrote:\n{stderr}")]
    EndedEarly {
        /// The congestion control.
        name: String,
        /// Exit status.
        status: String,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// It runs, but its congestion control did not appear.
    #[error("the agent did not register {name} within {} s; it wrote:\n{stderr}", START_LIMIT.as_secs())]
    NotRegistered {
        /// The congestion control.
        name: String,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// It ended during the run.
    #[error("the agent of {name} ended with {status} during the run; it wrote:\n{stderr}")]
    Died {
        /// The congestion control.
        name: String,
        /// Exit status.
        status: String,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// It did not stop when asked to.
    #[error("the agent of {name} did not stop within {} s of SIGTERM and was killed; it wrote:\n{stderr}",
        STOP_LIMIT.as_secs())]
    DidNotStop {
        /// The congestion control.
        name: String,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
    /// The kernel does not tell about the process.
    #[error("cannot watch the agent: {0}")]
    Watch(io::Error),
}

/// Whether the kernel has the congestion control `name` (loaded modules only).
pub fn is_available(name: &str) -> bool {
    fs::read_to_string(AVAILABLE).is_ok_and(|list| list.split_whitespace().any(|item| item == name))
}

/// What the log said about ended flows. Only sums are kept, whatever the number of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FlowEnds {
    /// All flows that ended.
    ended: u32,
    /// Those that are measured.
    flows: u32,
    seconds: f64,
    driven_seconds: f64,
}

impl FlowEnds {
    /// Counts a line of the log, if it is the end of a measured flow.
    pub(crate) fn take(&mut self, line: &str) {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let field = |name| line.get(name).or_else(|| line.get("fields")?.get(name));
        if field("message").and_then(Value::as_str) != Some("flow end") {
            return;
        }
        let number = |name| field(name).and_then(Value::as_f64);
        let (Some(driven), Some(seconds)) = (number("agent_driven"), number("duration_s")) else {
            return;
        };
        self.ended += 1;
        if seconds >= SHORTEST_FLOW_S {
            self.flows += 1;
            self.seconds += seconds;
            self.driven_seconds += driven * seconds;
        }
    }

    /// Share of all measured flows' lifetime, 0 if there is none.
    pub(crate) fn agent_driven(&self) -> f64 {
        self.measured().unwrap_or_default()
    }

    /// The same; `None` if there is none.
    fn measured(&self) -> Option<f64> {
        (self.flows > 0).then(|| self.driven_seconds / self.seconds)
    }
}

#[derive(Debug, Default)]
struct Log {
    ends: FlowEnds,
    tail: Tail,
}

/// A running agent. Dropping it stops it too, but [`Agent::stop`] tells what it did.
#[derive(Debug)]
pub struct Agent {
    name: String,
    process: Process,
    log: Arc<Mutex<Log>>,
    reader: JoinHandle<()>,
}

impl Agent {
    /// Starts `command` and waits until it has registered the congestion control `name`.
    ///
    /// # Errors
    /// [`AgentError`], with the last lines that the agent wrote.
    pub fn start(
        name: &str,
        command: &[String],
        interrupt: &Interrupt,
    ) -> Result<Self, AgentError> {
        let failed = |cause| AgentError::Start {
            command: command.join(" "),
            cause,
        };
        let Some((program, arguments)) = command.split_first() else {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the command is empty",
            )));
        };
        // A name that outlived a crashed agent says nothing about this one; its first line does.
        let was_listed = is_available(name);
        let mut command = process::dies_with_parent(program, Signalled::Terminate);
        command.args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command).map_err(failed)?;
        let log = Arc::new(Mutex::new(Log::default()));
        let Some(stderr) = process.child().stderr.take() else {
            return Err(failed(io::Error::other("its standard error is not piped")));
        };
        let reader = follow(stderr, Arc::clone(&log));
        let mut agent = Self {
            name: name.to_owned(),
            process,
            log,
            reader,
        };
        agent.wait_for_name(was_listed, interrupt)?;
        Ok(agent)
    }

    fn wait_for_name(&mut self, was_listed: bool, interrupt: &Interrupt) -> Result<(), AgentError> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.exited().map_err(AgentError::Watch)? {
                let (name, status) = (self.name.clone(), status.to_string());
                return Err(AgentError::EndedEarly {
                    name,
                    status,
                    stderr: self.last_words(),
                });
            }
            if is_available(&self.name) && (!was_listed || !self.log().tail.is_empty()) {
                return Ok(());
            }
            if interrupt.is_raised() {
                return Err(AgentError::Interrupted);
            }
            if start.elapsed() > START_LIMIT {
                let stderr = self.log().tail.text();
                return Err(AgentError::NotRegistered {
                    name: self.name.clone(),
                    stderr,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Makes sure that the agent still runs.
    ///
    /// # Errors
    /// [`AgentError::Died`] if it does not.
    pub fn check(&mut self) -> Result<(), AgentError> {
        match self.process.exited().map_err(AgentError::Watch)? {
            None => Ok(()),
            Some(status) => {
                let (name, status) = (self.name.clone(), status.to_string());
                Err(AgentError::Died {
                    name,
                    status,
                    stderr: self.last_words(),
                })
            }
        }
    }

    /// CPU time that the agent has used so far, user and system, all threads; the kernel counts
    /// in ticks of usually 10 ms.
    ///
    /// # Errors
    /// [`AgentError::Watch`] if the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, AgentError> {
        let path = format!("/proc/{}/stat", self.process.id());
        let stat = fs::read_to_string(&path).map_err(AgentError::Watch)?;
        let ticks = cpu_ticks(&stat).ok_or_else(|| {
            AgentError::Watch(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{path}: {stat}"),
            ))
        })?;
        let per_second = match sysconf(SysconfVar::CLK_TCK) {
            Ok(Some(per_second)) if per_second > 0 => per_second as f64,
            _ => {
                return Err(AgentError::Watch(io::Error::other(
                    "the length of a tick is unknown",
                )));
            }
        };
        Ok(Duration::from_secs_f64(ticks as f64 / per_second))
    }

    /// Waits at most `limit` until the log has told the end of `flows` flows.
    pub fn wait_for_flow_ends(&self, flows: u32, limit: Duration) {
        let start = Instant::now();
        while self.log().ends.ended < flows && start.elapsed() < limit {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Stops the agent and returns the share of its flows' lifetime, 0 to 1, during which it, not
    /// its fallback, drove them. Flows shorter than 1 s do not count; without any it is 0.
    ///
    /// # Errors
    /// [`AgentError::Died`] if it had ended on its own, [`AgentError::DidNotStop`] if it had to be
    /// killed.
    pub fn stop(self) -> Result<f64, AgentError> {
        Ok(self.finish()?.unwrap_or_default())
    }

    /// [`Agent::stop`], with `None` where no flow lasted a second.
    ///
    /// # Errors
    /// As [`Agent::stop`].
    pub fn finish(mut self) -> Result<Option<f64>, AgentError> {
        self.check()?;
        let stopped = self
            .process
            .terminate(STOP_LIMIT)
            .map_err(AgentError::Watch)?;
        if stopped.is_none() {
            self.process.kill();
            let (name, stderr) = (self.name.clone(), self.last_words());
            return Err(AgentError::DidNotStop { name, stderr });
        }
        self.finish_reading();
        Ok(self.log().ends.measured())
    }

    /// What an agent that has ended wrote last.
    fn last_words(&self) -> String {
        self.finish_reading();
        self.log().tail.text()
    }

    /// Waits until all that the agent wrote is read. The pipe ends with the agent, unless it left
    /// a child behind; that one is not waited for.
    fn finish_reading(&self) {
        let start = Instant::now();
        while !self.reader.is_finished() && start.elapsed() < READ_LIMIT {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It gets its time to put things back; what does not end then is killed with `process`.
        if let Err(error) = self.process.terminate(STOP_LIMIT) {
            tracing::warn!(%error, name = self.name, "the agent could not be stopped");
        }
    }
}

fn follow(stderr: ChildStderr, log: Arc<Mutex<Log>>) -> JoinHandle<()> {
    process::each_line(stderr, move |line| {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.ends.take(&line);
        log.tail.push(line);
    })
}

/// `utime` + `stime` of a line of `/proc/PID/stat`, proc(5) fields 14 and 15. The second field, the
/// program's name, may contain anything, so count from its closing bracket.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    Some(utime + stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Result<Agent, AgentError> {
        let command = ["sh", "-c", script].map(str::to_owned);
        Agent::start(name, &command, &Interrupt::default())
    }

    #[test]
    fn the_share_is_weighted_by_duration_and_ignores_short_flows() {
        let mut ends = FlowEnds::default();
        for line in [
            r#"{"message":"flow end","agent_driven":1.0,"duration_s":9}"#,
            r#"{"level":"INFO","fields":{"message":"flow end","agent_driven":0.5,"duration_s":3.0}}"#,
            r#"{"message":"flow end","agent_driven":0.0,"duration_s":0.9}"#,
            r#"{"message":"flow start","agent_driven":0.0,"duration_s":50}"#,
            r#"{"message":"flow end"}"#,
            "flow end agent_driven=0 duration_s=10",
        ] {
            ends.take(line);
        }
        assert_eq!(ends.flows, 2);
        assert!((ends.agent_driven() - 0.875).abs() < 1e-12);
        assert_eq!(FlowEnds::default().agent_driven(), 0.0);
    }

    #[test]
    fn cpu_ticks_survive_any_program_name() {
        let stat = "7 (a) 1 2) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 4 0 100";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a"), None);
    }

    #[test]
    fn an_agent_that_fails_shows_its_last_words() {
        let error = shell("no_such_cc", "echo no BTF here >&2; exit 3").unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, AgentError::EndedEarly { .. }), "{text}");
        assert!(text.contains("no BTF here") && text.contains("3"), "{text}");
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let error = Agent::start(
            "no_such_cc",
            &["/no/such/agent".to_owned()],
            &Interrupt::default(),
        );
        assert!(error.unwrap_err().to_string().contains("/no/such/agent"));
    }

    /// reno is always there, so a script can play the agent that adopts its name.
    #[test]
    fn stop_collects_what_the_agent_wrote_on_sigterm() {
        let script = r#"echo ready >&2
            trap 'echo "{\"message\":\"flow end\",\"agent_driven\":0.75,\"duration_s\":5}" >&2; exit 0' TERM
            while :; do sleep 0.05; done"#;
        let agent = shell("reno", script).unwrap();
        assert!(agent.cpu_time().unwrap() < Duration::from_secs(5));
        assert_eq!(agent.stop().unwrap(), 0.75);
    }

    #[test]
    fn a_dropped_agent_gets_to_put_things_back() {
        let trace = std::env::temp_dir().join(format!("pathlab-dropped-{}", std::process::id()));
        let script = format!(
            "trap 'touch {}; exit 0' TERM; echo ready >&2; while :; do sleep 0.05; done",
            trace.display()
        );
        drop(shell("reno", &script).unwrap());
        fs::remove_file(&trace).expect("the script wrote its trace before it ended");
    }

    #[test]
    fn an_agent_that_died_meanwhile_is_an_error() {
        let agent = shell("reno", "echo ready >&2; sleep 0.1; echo oops >&2; exit 1").unwrap();
        thread::sleep(Duration::from_millis(500));
        let error = agent.stop().unwrap_err();
        assert!(
            matches!(&error, AgentError::Died { stderr, .. } if stderr.contains("oops")),
            "{error}"
        );
    }
}
