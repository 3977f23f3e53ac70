//! The agent's log on standard error, whose level can change while it runs. A thread of its own writes it: standard
//! error may be a terminal that somebody has stopped, and flows do not wait. Lines for which there is no more room, or
//! that it refuses, are lost, and the log says how many once it goes on.

use super::nearest;
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use pk3c_ccp::spool::Spool;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tracing::warn;
use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// Changes what is logged.
pub(crate) struct LogLevel(Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>);

impl LogLevel {
    /// Logs what a filter selects from now on.
    ///
    /// # Errors
    /// If the text is no filter; then nothing changes.
    pub(crate) fn set(&self, text: &str) -> Result<()> {
        (self.0)(EnvFilter::new(
            filter(text).map_err(|error| anyhow!(error))?,
        ))
    }

    /// Of a log that nobody reads.
    #[cfg(test)]
    pub(crate) fn deaf() -> Self {
        Self(Box::new(|_| Ok(())))
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A flag's text, if it is a filter.
pub(crate) fn filter(text: &str) -> Result<String, String> {
    // A word alone would be a target, and silence all others.
    if !text.contains(['=', ',']) && !LEVELS.iter().any(|level| text.eq_ignore_ascii_case(level)) {
        let hint = match nearest(&text.to_lowercase(), LEVELS) {
            Some(level) => format!("did you mean `{level}`?"),
            None => format!(
                "give {}, or a filter such as info,decision=debug",
                LEVELS.join(", ")
            ),
        };
        return Err(format!("`{text}` is not a level: {hint}"));
    }
    let checked = EnvFilter::try_new(text).map(|_| text.to_owned());
    let levels = LEVELS.join(", ");
    checked.map_err(|e| format!("{e}; give a level ({levels}) or a filter"))
}

/// Bytes that may wait for standard error: some thousand lines.
const WAITING_MAX: usize = 1 << 20;

/// Keeps the log going: dropped, it has everything written that was logged.
pub(crate) struct Written(Arc<Spool>);

impl Drop for Written {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Takes lines of the log for the thread that writes them.
#[derive(Clone)]
struct Lines {
    spool: Arc<Spool>,
    lost: Arc<AtomicU64>,
}

impl Lines {
    /// Lines to a writer; `tell` is told how many were lost once it takes some again.
    fn to(
        writer: impl Write + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let lost = Arc::<AtomicU64>::default();
        let missed = lost.clone();
        let mut sink = Sink {
            writer,
            is_torn: false,
        };
        let spool = Spool::start("log", WAITING_MAX, move |text| {
            let refused = sink.take(text);
            let lines = missed.fetch_add(refused, Relaxed);
            // While the log cannot be written nobody can be told.
            if refused == 0 && lines > 0 {
                tell(missed.swap(0, Relaxed));
            }
            true
        })?;
        let spool = Arc::new(spool);
        Ok(Self { spool, lost })
    }
}

/// What the log is written to.
struct Sink<W> {
    writer: W,
    /// The last line lacks its end.
    is_torn: bool,
}

impl<W: Write> Sink<W> {
    /// Writes lines; returns how many of them were refused.
    fn take(&mut self, lines: &[u8]) -> u64 {
        // What comes now is no part of a line that was cut off.
        self.is_torn = self.is_torn && self.writer.write_all(b"\n").is_err();
        let mut rest = lines;
        while !self.is_torn && !rest.is_empty() {
            match self.writer.write(rest) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(written) => rest = &rest[written..],
            }
        }
        let written = &lines[..lines.len() - rest.len()];
        self.is_torn |= !rest.is_empty() && written.last().is_some_and(|byte| *byte != b'\n');
        rest.iter().filter(|byte| **byte == b'\n').count() as u64
    }
}

impl Write for Lines {
    /// A whole line, as the log is made of them.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.spool.push(line, true) {
            self.lost.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to log.
///
/// # Errors
/// If there can be no thread that writes it.
pub(crate) fn start(level: &str, format: LogFormat) -> Result<(LogLevel, Written)> {
    let tell = |lines| {
        warn!(
            lines,
            "lines of the log are lost: standard error took no more"
        );
    };
    let lines = Lines::to(io::stderr(), tell).context("cannot log")?;
    let written = Written(lines.spool.clone());
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_writer(move || lines.clone());
    let level = match format {
        LogFormat::Text => {
            let log = log.with_ansi(io::stderr().is_terminal());
            let log = log.with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            LogLevel(Box::new(move |filter| Ok(handle.reload(filter)?)))
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            LogLevel(Box::new(move |filter| Ok(handle.reload(filter)?)))
        }
    };
    Ok((level, written))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for (text, hint) in [
            ("warning", "did you mean `warn`?"),
            ("Debgu", "did you mean `debug`?"),
            ("nope", "off, error, warn, info, debug, trace"),
            ("", "off, error"),
            ("info,decision=loud", "give a level"),
        ] {
            let said = filter(text).unwrap_err();
            assert!(said.contains(hint), "{text}: {said}");
        }
        for text in ["off", "WARN", "trace", "info,decision=debug", "flow=off"] {
            assert_eq!(filter(text).as_deref(), Ok(text));
        }
    }

    /// A terminal that takes nothing until it is told to.
    struct Stopped(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Write for Stopped {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            // Once nobody can tell it any more, it goes on.
            let _ = self.0.recv();
            let _ = self.1.send(text.to_vec());
            Ok(text.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_nobody_takes_holds_up_nobody_and_counts_what_it_loses() {
        let ((go_on, wait), (told, shown)) = (mpsc::channel(), mpsc::channel());
        let (lost, losses) = mpsc::channel();
        let tell = move |lines| lost.send(lines).unwrap();
        let mut lines = Lines::to(Stopped(wait, told), tell).unwrap();
        let (line, began) = ([b'x'; 1 << 10], Instant::now());
        for _ in 0..4096 {
            lines.write_all(&line).unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{began:?}");
        drop(go_on);
        drop(Written(lines.spool.clone()));
        let shown: usize = shown.try_iter().map(|text| text.len()).sum();
        let lost: u64 = losses.try_iter().sum();
        assert!(lost > 0 && shown.is_multiple_of(line.len()));
        assert_eq!(shown / line.len() + lost as usize, 4096);
    }

    /// A disk with room for so many bytes.
    #[derive(Default)]
    struct Disk {
        room: usize,
        file: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let fit = text.len().min(self.room);
            if fit == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= fit;
            self.file.extend_from_slice(&text[..fit]);
            Ok(fit)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_refuses_are_counted_and_none_is_glued_to_them() {
        let mut sink = Sink {
            writer: Disk::default(),
            is_torn: false,
        };
        sink.writer.room = 9;
        assert_eq!(sink.take(b"first\nsecond\nthird\n"), 2);
        assert_eq!(sink.take(b"fourth\n"), 1);
        sink.writer.room = 100;
        assert_eq!(sink.take(b"fifth\n"), 0);
        assert_eq!(sink.take(b"sixth\n"), 0);
        assert_eq!(sink.writer.file, b"first\nsec\nfifth\nsixth\n");
    }
}
