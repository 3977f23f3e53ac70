//! Writing a record while flows run.

use super::{FORMAT, Line, VERSION, texts};
use crate::params::Params;
use crate::program::REPORT_FIELDS;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

struct Open {
    file: BufWriter<File>,
    written: u64,
    /// One line, kept so that a report allocates nothing.
    text: Vec<u8>,
}

/// Writes a record, buffered, up to a size. Shared by all flows of an agent.
pub struct Recorder {
    path: PathBuf,
    limit_bytes: u64,
    open: Mutex<Option<Open>>,
}

impl Recorder {
    /// Creates the file, or truncates it, and writes the header.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(path: &Path, limit_bytes: u64, params: &Params) -> io::Result<Self> {
        let open = Open {
            file: BufWriter::with_capacity(1 << 16, File::create(path)?),
            written: 0,
            text: Vec::new(),
        };
        let recorder = Self {
            path: path.to_owned(),
            limit_bytes,
            open: Mutex::new(Some(open)),
        };
        let header = Line::Header {
            format: FORMAT.into(),
            version: VERSION,
            params: texts(params),
            fields: REPORT_FIELDS.map(Cow::from).into(),
        };
        let mut guard = recorder.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = guard.as_mut() {
            open.append(&header, limit_bytes)?;
            open.file.flush()?;
        }
        drop(guard);
        Ok(recorder)
    }

    /// Appends a line. When the size limit is reached or the disk refuses, recording ends with one warning; flows are
    /// never disturbed.
    pub fn write(&self, line: &Line) {
        let mut guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = guard.as_mut() else { return };
        let result = open.append(line, self.limit_bytes);
        let result = match line {
            Line::End { .. } => result.and_then(|more| open.file.flush().map(|()| more)),
            _ => result,
        };
        let problem = match result {
            Ok(true) => return,
            Ok(false) => "the size limit is reached".to_owned(),
            Err(error) => error.to_string(),
        };
        let flushed = open.file.flush().is_ok();
        tracing::warn!(target: "record", path = %self.path.display(), limit_bytes = self.limit_bytes, flushed, "recording stopped: {problem}");
        *guard = None;
    }

    /// Whether lines are still written.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }
}

impl Open {
    /// False if the line would exceed the limit; nothing is written then.
    fn append(&mut self, line: &Line, limit_bytes: u64) -> io::Result<bool> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line)?;
        self.text.push(b'\n');
        let size = self.text.len() as u64;
        if self.written + size > limit_bytes {
            return Ok(false);
        }
        self.file.write_all(&self.text)?;
        self.written += size;
        Ok(true)
    }
}
