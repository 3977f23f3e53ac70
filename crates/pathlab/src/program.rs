//! Programs of the user's choice inside a namespace, with all that they start.
//!
//! A program runs in a process namespace of its own, so that whatever it starts ends with it, and with us even if we
//! are killed: the kernel kills `unshare` with its parent (`PR_SET_PDEATHSIG`), the shell that is process 1 with
//! `unshare` (`--kill-child`), and everything else with process 1. The shell is there because signals that a program
//! does not handle do nothing to a process 1, and Ctrl-C shall.

use std::fs;
use std::io;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::netns::Netns;
use crate::process::{Interrupt, POLL_INTERVAL, Process, WaitError};

/// Process 1: runs its arguments and passes their exit status on.
const FIRST: &str = "\"$@\"; exit $?";

/// What runs a program with its arguments in a namespace, and ends with it all that it has started.
pub(crate) fn command(netns: &Netns, program: &[String]) -> Command {
    let mut command = netns.command("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .args(["sh", "-c", FIRST, "sh"])
        .args(program);
    command
}

/// Asks a program that [`command`] has started to end (SIGTERM) and waits at most `limit`; then it is killed with all
/// that it has started.
pub(crate) fn end(process: &mut Process, limit: Duration) {
    // What is asked is the program itself: `unshare` and process 1 do not heed the signal.
    let program = child(process.id()).and_then(child);
    if let Some(program) = program.and_then(|id| i32::try_from(id).ok()) {
        // It fails only if the program is gone, as does the wait's only other error.
        let _ = kill(Pid::from_raw(program), Signal::SIGTERM);
        let _ = process.wait(limit, &Interrupt::default());
    }
    process.kill();
}

/// The first child of a process.
fn child(id: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// A program in a namespace. Dropping it kills it and all that it has started.
#[derive(Debug)]
pub struct Program {
    process: Process,
}

impl Program {
    /// Starts a program with its arguments and some more variables in its environment. Input and output are ours.
    ///
    /// # Errors
    /// If `setpriv`, `nsenter` or `unshare` (util-linux) cannot be started. A program that is not found exits with
    /// status 127.
    pub fn start(
        netns: &Netns,
        program: &[String],
        environment: &[(&str, String)],
    ) -> io::Result<Self> {
        let mut command = command(netns, program);
        command.envs(environment.iter().map(|(key, value)| (key, value)));
        Ok(Self {
            process: Process::spawn(&mut command)?,
        })
    }

    /// Waits for its end. An interrupt gives it `grace`, as a terminal's Ctrl-C reaches it, too; then it is killed.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] if it had to be killed, and [`WaitError::Wait`].
    pub fn wait(
        &mut self,
        interrupt: &Interrupt,
        grace: Duration,
    ) -> Result<ExitStatus, WaitError> {
        let mut raised = None;
        loop {
            if let Some(status) = self.process.exited().map_err(WaitError::Wait)? {
                return Ok(status);
            }
            if interrupt.is_raised() && raised.get_or_insert_with(Instant::now).elapsed() >= grace {
                self.process.kill();
                return Err(WaitError::Interrupted);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether it has ended, and how.
    ///
    /// # Errors
    /// [`WaitError::Wait`].
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, WaitError> {
        self.process.exited().map_err(WaitError::Wait)
    }
}
