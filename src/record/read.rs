//! Reading a record line by line, in memory for one line.

use super::{FORMAT, Line, Texts, VERSION, params};
use crate::params::{ParamError, Params};
use crate::program::REPORT_FIELDS;
use serde::Deserialize;
use std::io::{self, BufRead, Read};

/// No line that is written here comes near; a longer one is another kind of file.
const MAX_LINE_BYTES: u64 = 1 << 18;

/// Why a record cannot be read. The text names the line, what is wrong with it, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("line {line}: cannot read: {source}")]
    Io {
        /// Line number, from 1.
        line: usize,
        /// The cause.
        source: io::Error,
    },
    /// There is not a single line.
    #[error(
        "the file is empty: a record begins with its header, as `pk3c-ccp run --record FILE` writes it"
    )]
    Empty,
    /// The first line is not a record's header.
    #[error(
        "line 1 is not the header of a pk3c record: give a file that `pk3c-ccp run --record FILE` wrote"
    )]
    NotARecord,
    /// The record is of a version that is not known here.
    #[error(
        "line 1: the record has version {found}, this program reads version {VERSION}: use the pk3c-ccp that wrote it"
    )]
    Version {
        /// The record's version.
        found: u64,
    },
    /// The reports have other fields than the program's here.
    #[error("line 1: the reports' fields are {found}, here they are {here}: use the pk3c-ccp that wrote the record",
        here = REPORT_FIELDS.join(" "))]
    Fields {
        /// The fields that the record names, or what it has instead.
        found: String,
    },
    /// A line is not what the format says.
    #[error(
        "line {line} is not a line of a pk3c record: {source}; the file was changed: restore it, or record again"
    )]
    Malformed {
        /// Line number, from 1.
        line: usize,
        /// The cause.
        source: serde_json::Error,
    },
    /// The last line is cut off.
    #[error(
        "line {line}, the last, is cut off, as after a crash or on a full disk: delete it (`sed -i '$d' FILE`) to use the whole lines before it"
    )]
    Truncated {
        /// Line number, from 1.
        line: usize,
    },
    /// A line is longer than any that is written.
    #[error(
        "line {line} has more than {MAX_LINE_BYTES} bytes: this is no pk3c record, or a damaged one"
    )]
    TooLong {
        /// Line number, from 1.
        line: usize,
    },
    /// A second header.
    #[error("line {line} is a second header: give records that were joined one by one")]
    SecondHeader {
        /// Line number, from 1.
        line: usize,
    },
    /// Parameters that are refused here.
    #[error(
        "line {line}: the recorded parameters are not valid here: {source}; use the pk3c-ccp that wrote the record"
    )]
    Params {
        /// Line number, from 1.
        line: usize,
        /// The cause.
        source: ParamError,
    },
    /// Parameters that are valid, but not with the changes that were asked for.
    #[error("line {line}: the changed parameters do not go with the recorded ones: {source}")]
    Change {
        /// Line number, from 1.
        line: usize,
        /// The cause.
        source: ParamError,
    },
    /// A line names a flow that is not there.
    #[error(
        "line {line} belongs to flow {flow}, which has not started or has ended: lines are missing; record again"
    )]
    UnknownFlow {
        /// Line number, from 1.
        line: usize,
        /// Flow number.
        flow: u64,
    },
    /// A flow starts that runs already.
    #[error(
        "line {line} starts flow {flow}, which runs already: lines are missing or doubled; record again"
    )]
    RunningFlow {
        /// Line number, from 1.
        line: usize,
        /// Flow number.
        flow: u64,
    },
}

/// The lines of a record after its header, which is checked. Empty lines are skipped.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    number: usize,
    text: String,
    params: Params,
}

impl<R: BufRead> Reader<R> {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// If this is no record, or one that cannot be read here.
    pub fn new(input: R) -> Result<Self, RecordError> {
        let mut reader = Self {
            input,
            number: 0,
            text: String::new(),
            params: Params::default(),
        };
        if !reader.advance().map_err(|error| match error {
            RecordError::TooLong { .. } => RecordError::NotARecord,
            other => other,
        })? {
            return Err(RecordError::Empty);
        }
        reader.params = header(&reader.text)?;
        Ok(reader)
    }

    /// The header's parameters.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Number of the line read last, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The line read last as it stands in the file, with its end.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The next line, or `None` at the end.
    ///
    /// # Errors
    /// If there is a next line and it cannot be read.
    pub fn next_line(&mut self) -> Result<Option<Line>, RecordError> {
        if !self.advance()? {
            return Ok(None);
        }
        let line = self.number;
        match serde_json::from_str(&self.text) {
            Ok(Line::Header { .. }) => Err(RecordError::SecondHeader { line }),
            Ok(parsed) => Ok(Some(parsed)),
            Err(_) if !self.text.ends_with('\n') => Err(RecordError::Truncated { line }),
            Err(source) => Err(RecordError::Malformed { line, source }),
        }
    }

    /// Reads the next line that is not empty into `text`; false at the end.
    fn advance(&mut self) -> Result<bool, RecordError> {
        loop {
            self.text.clear();
            let line = self.number + 1;
            let mut input = (&mut self.input).take(MAX_LINE_BYTES + 1);
            let read = input
                .read_line(&mut self.text)
                .map_err(|source| RecordError::Io { line, source })?;
            if read == 0 {
                return Ok(false);
            }
            self.number = line;
            if self.text.len() as u64 > MAX_LINE_BYTES {
                return Err(RecordError::TooLong { line });
            }
            if !self.text.trim().is_empty() {
                return Ok(true);
            }
        }
    }
}

/// The header, whatever its version says of the rest.
#[derive(Deserialize)]
struct Header {
    line: String,
    format: String,
    version: u64,
    #[serde(flatten)]
    rest: serde_json::Value,
}

fn header(text: &str) -> Result<Params, RecordError> {
    let header: Header = serde_json::from_str(text).map_err(|_| RecordError::NotARecord)?;
    if header.line != "header" || header.format != FORMAT {
        return Err(RecordError::NotARecord);
    }
    if header.version != u64::from(VERSION) {
        let found = header.version;
        return Err(RecordError::Version { found });
    }
    if header.rest["fields"] != serde_json::json!(REPORT_FIELDS) {
        let found = header.rest["fields"].to_string();
        return Err(RecordError::Fields { found });
    }
    let malformed = |source| RecordError::Malformed { line: 1, source };
    let texts: Texts = serde_json::from_value(header.rest["params"].clone()).map_err(malformed)?;
    params(&texts).map_err(|source| RecordError::Params { line: 1, source })
}
