//! The agent under test: `pk3c-ccp run` as a child process.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde_json::Value;

use super::{eventually, machine};

/// Loading and verifying the programs takes well under a second on an idle core.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A clean stop unregisters, moves live sockets and unpins.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_pk3c-ccp");

/// One line of the agent's log and when it was read.
#[derive(Clone, Debug)]
pub(crate) struct LogLine {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

impl LogLine {
    /// The line as a JSON object; null for what is none, such as the last words of a failure.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The local port, if this is the start of a flow.
    pub(crate) fn flow_start_port(&self) -> Option<u16> {
        let line = self.json();
        let local = line["local"]
            .as_str()
            .filter(|_| line["message"] == "flow start")?;
        local.rsplit_once(':')?.1.parse().ok()
    }
}

/// A running agent; dropped, it is stopped cleanly if it still lives.
pub(crate) struct Agent {
    child: Child,
    log: Arc<Mutex<Vec<LogLine>>>,
    reader: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts `pk3c-ccp run` with further arguments and waits until its name can be chosen and the
    /// agent says that it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut agent = Self::spawn(arguments);
        let ready = eventually(START_LIMIT, || {
            let ended = agent.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the agent ended ({ended:?}) at its start:\n{}",
                agent.log_text()
            );
            machine::is_registered() && agent.is_ready()
        });
        assert!(
            ready,
            "the agent is not ready after {START_LIMIT:?}:\n{}",
            agent.log_text()
        );
        agent
    }

    /// Starts the agent without waiting for anything.
    pub(crate) fn spawn(arguments: &[&str]) -> Self {
        Self::spawn_with(&[], arguments)
    }

    /// The same, with variables in its environment.
    pub(crate) fn spawn_with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        // The agent gets SIGTERM if the test is killed.
        let mut child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "TERM",
                "--",
                PROGRAM,
                "run",
                "--log-format",
                "json",
            ])
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for text in BufReader::new(stderr).lines().map_while(Result::ok) {
                sink.lock().unwrap().push(LogLine {
                    at: Instant::now(),
                    text,
                });
            }
        });
        Self {
            child,
            log,
            reader: Some(reader),
        }
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.id().try_into().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Kills the agent without a chance to clean up, and waits until it is gone.
    pub(crate) fn kill9(mut self) {
        self.signal(Signal::SIGKILL);
        let status = self.child.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(Signal::SIGKILL as i32),
            "the agent had ended before: {}",
            self.log_text()
        );
    }

    /// Has the agent read its configuration again.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Freezes the agent.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a frozen agent go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Stops the agent as an operator does; fails the test if it does not end with success in time.
    /// Returns its whole log.
    pub(crate) fn stop(self) -> Vec<LogLine> {
        self.end(Signal::SIGTERM)
    }

    /// Ends the agent as an upgrade does: the datapath stays.
    pub(crate) fn leave(self) -> Vec<LogLine> {
        self.end(Signal::SIGUSR2)
    }

    fn end(mut self, signal: Signal) -> Vec<LogLine> {
        self.signal(signal);
        let status = self.wait(STOP_LIMIT);
        assert!(
            status.is_some_and(|status| status.success()),
            "the agent did not stop cleanly ({status:?}):\n{}",
            self.log_text()
        );
        self.reader.take().unwrap().join().unwrap();
        let log = self.log();
        let odd = log.iter().find(|line| !line.json().is_object());
        assert!(
            odd.is_none(),
            "the log has a line that is no JSON object: {odd:?}"
        );
        log
    }

    /// Waits for the agent to end by itself.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        eventually(limit, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status
    }

    /// The agent's log so far.
    pub(crate) fn log(&self) -> Vec<LogLine> {
        self.log.lock().unwrap().clone()
    }

    /// The reader of the log takes nothing while this is held.
    pub(crate) fn stall_log(&self) -> MutexGuard<'_, Vec<LogLine>> {
        self.log.lock().unwrap()
    }

    /// The agent's log so far, as text for messages.
    pub(crate) fn log_text(&self) -> String {
        self.log()
            .into_iter()
            .map(|line| line.text)
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn is_ready(&self) -> bool {
        let says_ready = |line: &LogLine| {
            line.json()["message"]
                .as_str()
                .is_some_and(|message| message.starts_with("ready"))
        };
        self.log().iter().any(says_ready)
    }

    /// When the agent first logged the start of the flow from this local port.
    pub(crate) fn flow_start(&self, local_port: u16) -> Option<Instant> {
        let start = self
            .log()
            .into_iter()
            .find(|line| line.flow_start_port() == Some(local_port))?;
        Some(start.at)
    }

    /// Number of flows whose end the agent has logged.
    pub(crate) fn flow_ends(&self) -> usize {
        self.log()
            .iter()
            .filter(|line| line.text.contains("\"flow end\""))
            .count()
    }

    /// Of every flow whose start and end are in a log: the share of its life that the agent drove
    /// it, by the flow's local port.
    pub(crate) fn driven_shares(log: &[LogLine]) -> HashMap<u16, f64> {
        let id = |line: &Value| line["sock_id"].as_u64();
        let ports: HashMap<_, _> = log
            .iter()
            .filter_map(|line| Some((id(&line.json())?, line.flow_start_port()?)))
            .collect();
        let ends = log
            .iter()
            .map(LogLine::json)
            .filter(|line| line["message"] == "flow end");
        ends.filter_map(|end| Some((*ports.get(&id(&end)?)?, end["agent_driven"].as_f64()?)))
            .collect()
    }

    /// CPU time that the agent has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        let clock = clock_getcpuclockid(self.pid()).unwrap();
        clock_gettime(clock).unwrap().into()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        // A frozen agent must go on to hear SIGTERM.
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGTERM);
        if self.wait(STOP_LIMIT).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
