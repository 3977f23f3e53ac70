//! Programs of the user's choice inside a namespace, with all that they start.
//!
//! A program runs in a process namespace of its own, so that whatever it starts ends with it, and with us even if we are
//! killed: the kernel kills `unshare` with its parent (`PR_SET_PDEATHSIG`), the shell that is process 1 with `unshare`
//! (`--kill-child`), and everything else with process 1. The shell is there because signals that a program does not
//! handle do nothing to a process 1, and Ctrl-C shall.

use std::io;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use crate::netns::Netns;
use crate::process::{Interrupt, POLL_INTERVAL, Process, WaitError};

/// Process 1: runs its arguments and passes their exit status on.
const FIRST: &str = "\"$@\"; exit $?";

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
        let mut command = netns.command("unshare");
        command
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
            .args(["sh", "-c", FIRST, "sh"])
            .args(program)
            .envs(environment.iter().map(|(key, value)| (key, value)));
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
