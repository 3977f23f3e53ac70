//! Writing a record anew with today's decisions, for `replay --accept`.

use super::replay::Advance;
use super::{RecordError, Replay};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{self, BufRead, Write};

/// Why a record could not be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The new one cannot be written.
    #[error("cannot write the new record: {0}")]
    Write(#[from] io::Error),
}

/// The part of a line that is replaced.
#[derive(Deserialize)]
struct Decision<'a> {
    #[serde(borrow)]
    decision: &'a RawValue,
}

/// Copies a record with the decisions that are taken now in the place of the recorded ones; every other byte stays.
/// `go_on` is asked before every line. Returns how many decisions changed, or `None` if it was told to stop.
///
/// # Errors
/// If the record cannot be read to its end, or the copy cannot be written. It is then incomplete.
pub fn accept(
    input: impl BufRead,
    mut output: impl Write,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<usize>, AcceptError> {
    let mut replay = Replay::new(input, &[])?;
    let mut changed = 0;
    output.write_all(replay.reader().text().as_bytes())?;
    loop {
        if !go_on() {
            return Ok(None);
        }
        let advance = replay.advance()?;
        let text = replay.reader().text();
        match advance {
            Advance::End => break,
            Advance::Step(step) if step.differs() => {
                let line = replay.reader().number();
                let malformed = |source| RecordError::Malformed { line, source };
                let old: Decision<'_> = serde_json::from_str(text).map_err(malformed)?;
                let old = old.decision.get();
                // A borrowed value is a part of the text, so its place follows from the addresses.
                let begin = old.as_ptr() as usize - text.as_ptr() as usize;
                output.write_all(&text.as_bytes()[..begin])?;
                serde_json::to_writer(&mut output, &step.replayed).map_err(io::Error::from)?;
                output.write_all(&text.as_bytes()[begin + old.len()..])?;
                changed += 1;
            }
            Advance::Other | Advance::Step(_) => output.write_all(text.as_bytes())?,
        }
    }
    output.flush()?;
    Ok(Some(changed))
}
