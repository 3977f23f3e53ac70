//! What a guest sends to the host: a header, the files of its run, an end mark.
//!
//! ```text
//! guest 1 6.12.1-cloud-amd64
//! file client.json 4711
//! ...4711 bytes...
//! fail the agent did not register pk3c within 30 s
//! end
//! ```
//! Lines of text, except that a file's bytes follow its line as they are, closed by a newline.
//! `fail` appears only if the run could not be made.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::time::Duration;

/// No run's file is longer; a larger announcement is a corrupt one.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Everything one guest sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Transcript {
    /// The guest's `uname -r`.
    pub(super) release: String,
    /// The run's files by name.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// Why the guest could not make the run.
    pub(super) failure: Option<String>,
}

impl Transcript {
    /// A file as text; `None` if the guest did not send it. Bytes that are no text are replaced.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.files
            .get(name)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Reads up to the end mark.
    pub(super) fn read(input: &mut impl BufRead) -> Result<Self, StreamError> {
        let header = line(input)?.ok_or(StreamError::Silent)?;
        let release = header
            .strip_prefix("guest 1 ")
            .ok_or_else(|| StreamError::Unexpected(header.clone()))?;
        let mut transcript = Self {
            release: release.to_owned(),
            ..Self::default()
        };
        loop {
            let line = line(input)?.ok_or(StreamError::Truncated { inside: None })?;
            match line.split_once(' ') {
                None if line == "end" => return Ok(transcript),
                Some(("fail", reason)) => transcript.failure = Some(reason.to_owned()),
                Some(("file", announced)) => {
                    let (name, bytes) = file(input, announced)?;
                    transcript.files.insert(name, bytes);
                }
                _ => return Err(StreamError::Unexpected(line)),
            }
        }
    }
}

fn line(input: &mut impl BufRead) -> Result<Option<String>, StreamError> {
    let mut bytes = Vec::new();
    input.take(4096).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    match bytes.pop() {
        Some(b'\n') => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        _ => Err(StreamError::Truncated { inside: None }),
    }
}

fn file(input: &mut impl BufRead, announced: &str) -> Result<(String, Vec<u8>), StreamError> {
    let unexpected = || StreamError::Unexpected(format!("file {announced}"));
    let (name, size) = announced.split_once(' ').ok_or_else(unexpected)?;
    let size: u64 = size.parse().map_err(|_| unexpected())?;
    if size > MAX_FILE_BYTES {
        return Err(unexpected());
    }
    let mut bytes = Vec::new();
    input.take(size + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= size {
        return Err(StreamError::Truncated {
            inside: Some(name.to_owned()),
        });
    }
    match bytes.pop() {
        Some(b'\n') => Ok((name.to_owned(), bytes)),
        _ => Err(StreamError::Overlong {
            name: name.to_owned(),
            size,
        }),
    }
}

/// The guest's output is not what a guest sends.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It sent nothing at all.
    #[error("the guest ended without sending anything")]
    Silent,
    /// It ended before its end mark.
    #[error("the guest's output ends early{}", inside.as_ref().map(|name| format!(", inside {name}")).unwrap_or_default())]
    Truncated {
        /// The file that was being sent.
        inside: Option<String>,
    },
    /// A file is longer than announced.
    #[error("the guest's output is corrupt: {name} does not end after its {size} bytes")]
    Overlong {
        /// The file.
        name: String,
        /// Its announced length in bytes.
        size: u64,
    },
    /// A line that no guest sends.
    #[error("the guest's output is corrupt: unexpected line {0:?}")]
    Unexpected(String),
    /// It did not end in time.
    #[error("the guest did not end within {} s of wall time", .0.as_secs())]
    TimedOut(Duration),
    /// The pipe from QEMU failed.
    #[error("cannot read the guest's output: {0}")]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"guest 1 6.12.0-cloud\nfile a.json 7\n{\"a\":\n1\nfile log 0\n\nend\n";

    #[test]
    fn files_arrive_byte_for_byte() {
        let transcript = Transcript::read(&mut &WHOLE[..]).unwrap();
        assert_eq!(transcript.release, "6.12.0-cloud");
        assert_eq!(transcript.text("a.json").as_deref(), Some("{\"a\":\n1"));
        assert_eq!(transcript.text("log").as_deref(), Some(""));
        assert_eq!(transcript.text("other"), None);
        assert_eq!(transcript.failure, None);
    }

    #[test]
    fn failure_is_kept_with_the_files() {
        let text = b"guest 1 6.1.0\nfile agent.log 4\nno!\n\nfail no pk3c\nend\n";
        let transcript = Transcript::read(&mut &text[..]).unwrap();
        assert_eq!(transcript.failure.as_deref(), Some("no pk3c"));
        assert_eq!(transcript.text("agent.log").as_deref(), Some("no!\n"));
    }

    #[test]
    fn every_truncation_is_an_error() {
        assert!(matches!(
            Transcript::read(&mut &b""[..]),
            Err(StreamError::Silent)
        ));
        for length in 1..WHOLE.len() {
            let result = Transcript::read(&mut &WHOLE[..length]);
            assert!(
                matches!(result, Err(StreamError::Truncated { .. })),
                "cut at {length}: {result:?}"
            );
        }
        let error = Transcript::read(&mut &WHOLE[..38]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the guest's output ends early, inside a.json"
        );
    }

    #[test]
    fn corruption_is_named() {
        let errors = [
            (
                &b"Linux version 6\n"[..],
                "unexpected line \"Linux version 6\"",
            ),
            (
                b"guest 1 x\nfile a 2\nabc\nend\n",
                "a does not end after its 2 bytes",
            ),
            (b"guest 1 x\nfile a\nend\n", "unexpected line \"file a\""),
            (
                b"guest 1 x\nfile a 99999999999999\n",
                "unexpected line \"file a 99999999999999\"",
            ),
            (b"guest 1 x\nfile a -1\n", "unexpected line \"file a -1\""),
            (b"guest 1 x\nmore\n", "unexpected line \"more\""),
        ];
        for (text, expected) in errors {
            let error = Transcript::read(&mut &text[..]).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
