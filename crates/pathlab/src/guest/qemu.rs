//! One QEMU process: a machine under virtual time, its console, and the port that carries results.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::stream::{StreamError, Transcript};
use super::{Error, INSTRUCTION_SHIFT};
use crate::process::{self, EXCERPT_LINES, Process, Signalled};

/// How much of the console is kept for a diagnosis.
const CONSOLE_TAIL_BYTES: usize = 64 << 10;
/// Words with which the kernel begins to tell of a fault of its own.
const FAULTS: [&str; 3] = ["BUG: ", "Oops: ", "Kernel panic"];
/// How often a waiting run looks whether it was called off.
const POLL: Duration = Duration::from_millis(100);

/// A running guest; dropped, it is gone.
pub(super) struct Qemu {
    process: Process,
}

/// What a guest left: its transcript, or why there is none, and its console.
pub(super) struct Ended {
    pub(super) transcript: Result<Transcript, StreamError>,
    /// The last lines of QEMU's messages and the kernel's console.
    pub(super) console: String,
}

impl Qemu {
    /// Boots `kernel` with the root file system `root` (one or more cpio archives). `seed` fixes
    /// the guest's randomness; `racing` guests have two CPUs and no virtual time.
    ///
    /// The root file system travels as the process's standard input and the results as its
    /// standard output, so that nothing is left on disk however this process ends; the
    /// guest ends with us even if we are killed.
    pub(super) fn boot(
        kernel: &Path,
        root: &[&[u8]],
        seed: u64,
        racing: bool,
    ) -> Result<Self, Error> {
        let memory = memfd_create(c"guest-root", MFdFlags::empty())
            .map_err(|errno| Error::io("keep the root file system in", "memory")(errno.into()))?;
        let mut file = std::fs::File::from(memory);
        for part in root {
            file.write_all(part)
                .map_err(Error::io("keep the root file system in", "memory"))?;
        }
        let mut command = process::dies_with_parent("qemu-system-x86_64", Signalled::Kill);
        command
            .args(machine(seed, racing))
            .arg("-kernel")
            .arg(kernel);
        command
            .stdin(file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = Process::spawn(&mut command).map_err(|cause| Error::Command {
            command: "qemu-system-x86_64".into(),
            problem: cause.to_string(),
        })?;
        Ok(Self { process })
    }

    /// Waits until the guest has sent everything, at most `limit` of wall time, or until `stop`
    /// says so; then ends it.
    pub(super) fn finish(
        mut self,
        limit: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Ended, Error> {
        let pipes = (
            self.process.child().stdout.take(),
            self.process.child().stderr.take(),
        );
        let (Some(output), Some(errors)) = pipes else {
            let cause = io::Error::other("QEMU's output is not piped").into();
            return Ok(Ended {
                transcript: Err(cause),
                console: String::new(),
            });
        };
        let (sender, receiver) = mpsc::channel();
        let console = thread::spawn(move || tail(errors));
        thread::spawn(move || {
            // Nobody receives if the run was given up meanwhile.
            let _ = sender.send(Transcript::read(&mut BufReader::new(output)));
        });
        let deadline = Instant::now() + limit;
        let transcript = loop {
            match receiver.recv_timeout(POLL) {
                Ok(transcript) => break transcript,
                Err(_) if Instant::now() >= deadline => break Err(StreamError::TimedOut(limit)),
                Err(RecvTimeoutError::Disconnected) => break Err(StreamError::Silent),
                Err(RecvTimeoutError::Timeout) if stop() => return Err(Error::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        // Ctrl-C in a terminal reaches QEMU too, and cuts the output short.
        if transcript.is_err() && stop() {
            return Err(Error::Interrupted);
        }
        // Everything that counts has arrived; the guest has no disk to lose.
        drop(self);
        Ok(Ended {
            transcript,
            console: console.join().unwrap_or_default(),
        })
    }
}

/// The machine: one CPU that executes an instruction each 2 ns of virtual time and never waits
/// for the wall clock, so that a run does not depend on what else the host does. The clock and
/// all random seeds are fixed: the same run gives the same result. A `racing` one gives that up for
/// two CPUs that run at once (and for the memory that a kernel with its checks on takes).
///
/// No cmpxchg16b: QEMU 7.2 leaves a part of an address in the flags when an interrupt comes right behind one, and so,
/// now and then, the direction flag set in a kernel that then clears memory backwards. One in some fifty guests under
/// load ended in a panic.
fn machine(seed: u64, racing: bool) -> Vec<String> {
    let words = "-cpu max,-cx16 -nodefaults -no-user-config -display none -no-reboot \
                 -chardev file,id=console,path=/dev/stderr -serial chardev:console \
                 -chardev file,id=results,path=/dev/stdout -serial chardev:results -initrd /dev/stdin";
    let time = if racing {
        "-accel tcg,thread=multi -smp 2 -m 3072".to_owned()
    } else {
        format!(
            "-accel tcg,thread=single -smp 1 -m 1024 -rtc base=2025-01-01,clock=vm \
             -icount shift={INSTRUCTION_SHIFT},sleep=off"
        )
    };
    let words = format!("{time} {words} -seed {seed}");
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    words.extend([
        "-append".into(),
        "console=ttyS0 quiet panic=-1 random.trust_cpu=on".into(),
    ]);
    words
}

/// Reads to the end and keeps the last part.
fn tail(mut input: impl Read) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = input.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        if kept.len() > 2 * CONSOLE_TAIL_BYTES {
            kept.drain(..kept.len() - CONSOLE_TAIL_BYTES);
        }
    }
    String::from_utf8_lossy(&kept).replace('\r', "")
}

/// As much of a console as fits an error message: where the kernel begins to tell of a fault of its own, or the end.
pub(super) fn excerpt(console: &str) -> String {
    let is_fault = |line: &str| FAULTS.iter().any(|word| line.contains(word));
    let from_fault = console.lines().skip_while(|line| !is_fault(line));
    let written = from_fault.filter(|line| !line.trim().is_empty());
    let lines: Vec<_> = written.take(EXCERPT_LINES).collect();
    if lines.is_empty() {
        return process::last_lines(console);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_told_from_its_fault_or_by_its_end() {
        let lines = |range: std::ops::Range<u32>| {
            let lines: Vec<_> = range.map(|line| format!("line {line}")).collect();
            lines.join("\n")
        };
        assert_eq!(excerpt(&lines(0..30)), lines(10..30));
        let fault = "[    7.339273] BUG: kernel NULL pointer dereference";
        let console = format!("{}\n\n{fault}\n{}", lines(0..30), lines(30..60));
        assert_eq!(excerpt(&console), format!("{fault}\n{}", lines(30..49)));
    }
}
