//! A line for every packet of a path, for those who want to see for themselves.
//!
//! The file is text, comma-separated, with a line of names on top:
//!
//! | column | meaning |
//! |---|---|
//! | `arrived_ns` | when the emulator read the packet, ns from the path's beginning |
//! | `left_ns` | when it wrote the packet at the far end, dropped it, or stopped |
//! | `way` | `there` (client to server, through the bottleneck) or `back` |
//! | `client` | address and port of the client |
//! | `protocol` | transport protocol: 6 TCP, 17 UDP |
//! | `bytes` | length of the IP packet |
//! | `fate` | `delivered`, `dropped` (queue), `lost` (at random), `overflow` (the emulator's own bound) |
//!
//! Lines are in the order of `left_ns`. Packets on their way at the end have no line; the report counts them. A
//! thread of its own writes the file: when it does not keep up, lines are left out rather than packets delayed,
//! and the report counts those, too.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::direction::Gone;
use crate::flows::FlowKey;

/// Records that wait for the writer, at most: 1 s of 500 Mbit/s.
const WAITING_RECORDS: usize = 1 << 16;

/// What the log says on top.
pub const HEADER: &str = "arrived_ns,left_ns,way,client,protocol,bytes,fate";

/// The file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the packet log {}: {cause}", path.display())]
pub struct LogError {
    path: PathBuf,
    cause: io::Error,
}

/// What was logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Lines written.
    pub lines: u64,
    /// Packets without a line, because the disk was too slow.
    pub left_out: u64,
}

/// A packet's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) arrived_ns: u64,
    pub(crate) left_ns: u64,
    pub(crate) there: bool,
    pub(crate) flow: FlowKey,
    pub(crate) bytes: u32,
    /// `None` if it was delivered.
    pub(crate) gone: Option<Gone>,
}

/// A log in progress.
#[derive(Debug)]
pub(crate) struct PacketLog {
    path: PathBuf,
    records: Option<SyncSender<Record>>,
    writer: Option<JoinHandle<io::Result<u64>>>,
    left_out: u64,
}

impl PacketLog {
    /// Creates the file; overwrites one that is there.
    pub(crate) fn create(path: &Path) -> Result<Self, LogError> {
        let failed = |cause| LogError {
            path: path.to_owned(),
            cause,
        };
        let mut file = BufWriter::with_capacity(1 << 16, File::create(path).map_err(failed)?);
        writeln!(file, "{HEADER}").map_err(failed)?;
        let (records, received) = sync_channel(WAITING_RECORDS);
        let writer = thread::Builder::new()
            .name("packet-log".into())
            .spawn(move || write_all(file, &received))
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            records: Some(records),
            writer: Some(writer),
            left_out: 0,
        })
    }

    pub(crate) fn add(&mut self, record: Record) {
        let taken = self
            .records
            .as_ref()
            .is_some_and(|records| records.try_send(record).is_ok());
        self.left_out += u64::from(!taken);
    }

    /// Waits until all is written.
    pub(crate) fn finish(mut self) -> Result<LogReport, LogError> {
        self.records = None;
        let lines = match self.writer.take().map(JoinHandle::join) {
            Some(Ok(lines)) => lines,
            _ => Err(io::Error::other("its thread panicked")),
        };
        match lines {
            Ok(lines) => Ok(LogReport {
                lines,
                left_out: self.left_out,
            }),
            Err(cause) => Err(LogError {
                path: self.path,
                cause,
            }),
        }
    }
}

fn write_all(mut file: impl Write, records: &Receiver<Record>) -> io::Result<u64> {
    let mut lines = 0;
    for record in records {
        let Record {
            arrived_ns,
            left_ns,
            flow,
            bytes,
            ..
        } = record;
        let way = if record.there { "there" } else { "back" };
        let fate = match record.gone {
            None => "delivered",
            Some(Gone::Dropped) => "dropped",
            Some(Gone::Lost) => "lost",
            Some(Gone::Overflow) => "overflow",
        };
        let protocol = flow.protocol;
        writeln!(
            file,
            "{arrived_ns},{left_ns},{way},{flow},{protocol},{bytes},{fate}"
        )?;
        lines += 1;
    }
    file.flush()?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: u32) -> Record {
        Record {
            arrived_ns: u64::from(n),
            left_ns: u64::from(n) + 20_000_000,
            there: n.is_multiple_of(2),
            flow: FlowKey {
                address: [10, 77, 0, 1].into(),
                port: 40_000,
                protocol: 6,
            },
            bytes: 1500,
            gone: (n == 3).then_some(Gone::Lost),
        }
    }

    #[test]
    fn every_record_is_a_line() {
        let path = std::env::temp_dir().join(format!("packets-{}.csv", std::process::id()));
        let mut log = PacketLog::create(&path).unwrap();
        (0..4).for_each(|n| log.add(record(n)));
        let report = log.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((report.lines, report.left_out), (4, 0));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], HEADER);
        assert_eq!(
            lines[1],
            "0,20000000,there,10.77.0.1:40000,6,1500,delivered"
        );
        assert_eq!(lines[4], "3,20000003,back,10.77.0.1:40000,6,1500,lost");
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let Ok(mut log) = PacketLog::create(Path::new("/dev/full")) else {
            return; // refused at once, which is as well
        };
        (0..10).for_each(|n| log.add(record(n)));
        let error = log.finish().unwrap_err().to_string();
        assert!(
            error.contains("/dev/full") && error.contains("No space"),
            "{error}"
        );
    }

    #[test]
    fn a_log_that_cannot_be_created_says_where() {
        let error = PacketLog::create(Path::new("/nonexistent/log.csv")).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/log.csv"),
            "{error}"
        );
    }
}
