//! Child processes that never outlive us: killed on drop, on a deadline, on an interrupt, and by
//! the kernel if we die first.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often a waiting loop looks again. Short against a run, long against the cost of a look.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A request to stop early, shared by everything that waits.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// An interrupt that SIGINT, SIGTERM and SIGHUP raise from now on.
    ///
    /// # Errors
    /// If a signal handler cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            signal_hook::flag::register(signal as i32, Arc::clone(&interrupt.0))?;
        }
        Ok(interrupt)
    }

    /// An interrupt that SIGTERM and SIGHUP raise from now on. SIGINT, which a terminal sends to all programs alike,
    /// does nothing to us.
    ///
    /// # Errors
    /// If a signal handler cannot be installed.
    pub fn on_termination() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [Signal::SIGTERM, Signal::SIGHUP] {
            signal_hook::flag::register(signal as i32, Arc::clone(&interrupt.0))?;
        }
        signal_hook::flag::register(Signal::SIGINT as i32, Arc::default())?;
        Ok(interrupt)
    }

    /// Asks everything that waits to stop.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked to stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the kernel sends to a child whose parent has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGKILL, for tools without a state.
    Kill,
    /// SIGTERM, for an agent that has to put things back.
    Terminate,
}

/// A command whose process the kernel signals when the thread that spawned it ends.
pub(crate) fn dies_with_parent(program: &str, signal: Signalled) -> Command {
    let mut command = Command::new("setpriv");
    command.args(match signal {
        Signalled::Kill => ["--pdeathsig", "KILL"],
        Signalled::Terminate => ["--pdeathsig", "TERM"],
    });
    command.arg("--").arg(program);
    command
}

/// Why waiting for a process ended without its exit.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// It did not end in time.
    #[error("it did not end within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
    /// The kernel would not say.
    #[error("cannot wait for it: {0}")]
    Wait(io::Error),
}

/// A child process that is killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self {
            child: command.spawn()?,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Ends the process at once.
    pub(crate) fn kill(&mut self) {
        // Both fail only if the process is gone, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the end, at most `limit`.
    pub(crate) fn wait(
        &mut self,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<ExitStatus, WaitError> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exited().map_err(WaitError::Wait)? {
                return Ok(status);
            }
            if interrupt.is_raised() {
                return Err(WaitError::Interrupted);
            }
            if start.elapsed() >= limit {
                return Err(WaitError::TimedOut(limit));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks the process to end (SIGTERM) and waits at most `limit`, whatever the interrupt says.
    /// `None` means that it did not end.
    pub(crate) fn terminate(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.exited()? {
            return Ok(Some(status));
        }
        // Not reaped yet, so the id still is this child's.
        if let Ok(pid) = i32::try_from(self.child.id()) {
            kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        }
        match self.wait(limit, &Interrupt::default()) {
            Ok(status) => Ok(Some(status)),
            Err(WaitError::Wait(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a pipe to its end in a thread, so that the writer never blocks on a full one.
pub(crate) fn read_all(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error still helps to explain it.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// As many lines as fit an error message.
pub(crate) const EXCERPT_LINES: usize = 20;

/// The last lines that a process wrote, but empty ones.
#[derive(Debug, Default)]
pub(crate) struct Tail(VecDeque<String>);

impl Tail {
    pub(crate) fn push(&mut self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        if self.0.len() == EXCERPT_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn text(&self) -> String {
        self.0
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// The last lines of a text, but empty ones.
pub(crate) fn last_lines(text: &str) -> String {
    let mut tail = Tail::default();
    text.lines().for_each(|line| tail.push(line.to_owned()));
    tail.text()
}

/// Hands every line of a process' standard error to `take`, in a thread.
pub(crate) fn each_line(
    pipe: ChildStderr,
    mut take: impl FnMut(String) + Send + 'static,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            take(String::from_utf8_lossy(&line).into_owned());
        }
    })
}
