//! Messages between agent and datapath, in portus' format (`portus::serialize`).
//!
//! An 8-byte header (type, length, socket id), then the fields; all numbers are little-endian. What
//! comes from the agent is validated completely before anything is touched.

use crate::program::{InvalidProgram, Program};
use crate::register::{NUM_CONTROL, Reg};

const INSTALL: u16 = 2;
const UPDATE_FIELDS: u16 = 3;
const CHANGE_PROGRAM: u16 = 4;

const HEADER_LEN: usize = 8;
/// Length of one (type, index, value).
const UPDATE_LEN: usize = 13;

/// Why a message was refused.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidMessage {
    /// The message ends before its fields do, or goes on after them.
    #[error("message of {actual} bytes where {expected} are needed")]
    Length {
        /// What the header and the counts ask for.
        expected: usize,
        /// What was given.
        actual: usize,
    },
    /// Not a message that a datapath takes.
    #[error("message type {0} is not one for a datapath")]
    Type(u16),
    /// Only control registers, Cwnd and Rate can be updated.
    #[error("register {index} of type {kind} cannot be updated")]
    Register {
        /// libccp's register type.
        kind: u8,
        /// The register's index.
        index: u32,
    },
    /// The program of an INSTALL is not valid.
    #[error(transparent)]
    Program(#[from] InvalidProgram),
}

/// New values for a flow's control registers, Cwnd and Rate; they are applied together.
///
/// Entries 0 to 15 are the control registers, then come [`Updates::CWND`] and [`Updates::RATE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updates {
    mask: u32,
    values: [u64; Self::ENTRIES],
}

impl Updates {
    /// The entry for the congestion window, in bytes; 0 leaves the window as it is.
    pub const CWND: usize = NUM_CONTROL as usize;
    /// The entry for the pacing rate, in bytes per second; 0 leaves the rate as it is.
    pub const RATE: usize = Self::CWND + 1;
    /// The number of entries.
    pub const ENTRIES: usize = Self::RATE + 1;

    /// Sets an entry; the last value counts.
    ///
    /// # Panics
    /// If `entry` is not below [`Updates::ENTRIES`].
    pub fn set(&mut self, entry: usize, value: u64) {
        self.values[entry] = value;
        self.mask |= 1 << entry;
    }

    /// The value of an entry, if it is set.
    pub fn get(&self, entry: usize) -> Option<u64> {
        let value = self.values.get(entry)?;
        (self.mask & 1 << entry != 0).then_some(*value)
    }

    /// Bit i says whether entry i is set.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// The values of all entries; those that are not set are 0.
    pub fn values(&self) -> &[u64; Self::ENTRIES] {
        &self.values
    }

    /// Adds what is set in `later`, which wins.
    pub fn merge(&mut self, later: &Self) {
        for entry in 0..Self::ENTRIES {
            if let Some(value) = later.get(entry) {
                self.set(entry, value);
            }
        }
    }
}

/// A valid message of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Makes a program known, for all flows.
    Install(Program),
    /// Stages new values for a flow.
    Update {
        /// The flow's id.
        sid: u32,
        /// The values.
        updates: Updates,
    },
    /// Stages a program for a flow, with values to begin with.
    ChangeProgram {
        /// The flow's id.
        sid: u32,
        /// The program's id.
        uid: u32,
        /// The values.
        updates: Updates,
    },
}

impl Message {
    /// Decodes and validates one message; `bytes` must end where it does.
    ///
    /// # Errors
    /// If any part of the message is not valid.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidMessage> {
        let mut reader = Reader { bytes, at: 0 };
        let kind = reader.u16()?;
        let claimed = usize::from(reader.u16()?);
        let sid = reader.u32()?;
        if claimed != bytes.len() {
            return Err(InvalidMessage::Length {
                expected: claimed,
                actual: bytes.len(),
            });
        }
        let message = match kind {
            INSTALL => Self::Install(Program::parse(&bytes[HEADER_LEN..])?),
            UPDATE_FIELDS => Self::Update {
                sid,
                updates: reader.updates()?,
            },
            CHANGE_PROGRAM => {
                let uid = reader.u32()?;
                let updates = reader.updates()?;
                Self::ChangeProgram { sid, uid, updates }
            }
            other => return Err(InvalidMessage::Type(other)),
        };
        Ok(message)
    }

    /// The message's bytes: what [`Message::parse`] decodes to it.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, sid, fields) = match self {
            Self::Install(program) => (INSTALL, 0, program.encode()),
            Self::Update { sid, updates } => (UPDATE_FIELDS, *sid, encode_updates(updates)),
            Self::ChangeProgram { sid, uid, updates } => {
                let mut fields = uid.to_le_bytes().to_vec();
                fields.extend(encode_updates(updates));
                (CHANGE_PROGRAM, *sid, fields)
            }
        };
        let mut bytes = header(kind, HEADER_LEN + fields.len(), sid).to_vec();
        bytes.extend(fields);
        bytes
    }
}

/// A message's header. No message is longer than 8180 bytes, that of the longest program.
pub(crate) fn header(kind: u16, len: usize, sid: u32) -> [u8; HEADER_LEN] {
    let len = len as u16;
    let mut bytes = [0; HEADER_LEN];
    bytes[..2].copy_from_slice(&kind.to_le_bytes());
    bytes[2..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..].copy_from_slice(&sid.to_le_bytes());
    bytes
}

fn encode_updates(updates: &Updates) -> Vec<u8> {
    let mut bytes = updates.mask.count_ones().to_le_bytes().to_vec();
    for entry in 0..Updates::ENTRIES {
        let Some(value) = updates.get(entry) else {
            continue;
        };
        let register = match entry {
            Updates::CWND => Reg::CWND,
            Updates::RATE => Reg::RATE,
            control => Reg::Control(control as u8),
        };
        let (kind, index) = register.encode(false);
        bytes.push(kind);
        bytes.extend(index.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    bytes
}

/// Takes little-endian numbers from the front of a message.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], InvalidMessage> {
        let rest = &self.bytes[self.at..];
        let taken = rest.first_chunk().ok_or(InvalidMessage::Length {
            expected: self.at + N,
            actual: self.bytes.len(),
        })?;
        self.at += N;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, InvalidMessage> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, InvalidMessage> {
        self.take().map(u32::from_le_bytes)
    }

    /// A count, then as many (type, index, value), to the end of the message.
    fn updates(&mut self) -> Result<Updates, InvalidMessage> {
        let count = self.u32()? as usize;
        let expected = count.saturating_mul(UPDATE_LEN).saturating_add(self.at);
        if expected != self.bytes.len() {
            return Err(InvalidMessage::Length {
                expected,
                actual: self.bytes.len(),
            });
        }
        let mut updates = Updates::default();
        for _ in 0..count {
            let [kind] = self.take()?;
            let index = self.u32()?;
            let value = u64::from_le_bytes(self.take()?);
            let entry = match Reg::decode(kind, index) {
                Some(Reg::Control(i)) => usize::from(i),
                Some(Reg::CWND) => Updates::CWND,
                Some(Reg::RATE) => Updates::RATE,
                _ => return Err(InvalidMessage::Register { kind, index }),
            };
            updates.set(entry, value);
        }
        Ok(updates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sid: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = header(kind, HEADER_LEN + payload.len(), sid).to_vec();
        bytes.extend(payload);
        bytes
    }

    fn update(kind: u8, index: u32, value: u64) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend(index.to_le_bytes());
        bytes.extend(value.to_le_bytes());
        bytes
    }

    #[test]
    fn updates_are_collected_and_the_last_value_counts() {
        let mut payload = 4u32.to_le_bytes().to_vec();
        for (kind, index, value) in [(0, 3, 7), (2, 5, 1000), (8, 15, u64::MAX), (0, 3, 8)] {
            payload.extend(update(kind, index, value));
        }
        let Ok(Message::Update { sid: 9, updates }) = Message::parse(&message(3, 9, &payload))
        else {
            panic!("not accepted");
        };
        assert_eq!(updates.mask(), 1 << 3 | 1 << Updates::RATE | 1 << 15);
        assert_eq!(
            (updates.get(3), updates.get(Updates::RATE), updates.get(4)),
            (Some(8), Some(1000), None)
        );
    }

    #[test]
    fn registers_outside_the_contract_are_refused() {
        for (kind, index) in [
            (0, 16),
            (8, 110),
            (0, 256),
            (2, 0),
            (2, 3),
            (2, 6),
            (1, 0),
            (5, 0),
            (9, 0),
        ] {
            let mut payload = 1u32.to_le_bytes().to_vec();
            payload.extend(update(kind, index, 1));
            assert_eq!(
                Message::parse(&message(3, 1, &payload)),
                Err(InvalidMessage::Register { kind, index })
            );
        }
    }

    #[test]
    fn lengths_must_agree() {
        let mut payload = 1u32.to_le_bytes().to_vec();
        payload.extend(update(0, 0, 1));
        let whole = message(3, 1, &payload);
        for cut in 0..whole.len() {
            assert!(Message::parse(&whole[..cut]).is_err(), "{cut} bytes");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(Message::parse(&longer).is_err());
        let huge = message(3, 1, &u32::MAX.to_le_bytes());
        assert!(matches!(
            Message::parse(&huge),
            Err(InvalidMessage::Length { .. })
        ));
        assert_eq!(
            Message::parse(&message(7, 1, &[])),
            Err(InvalidMessage::Type(7))
        );
    }

    #[test]
    fn what_is_encoded_is_parsed() {
        let mut updates = Updates::default();
        updates.set(0, u64::MAX);
        updates.set(Updates::CWND, 14_480);
        for message in [
            Message::Update {
                sid: 0x1_0001,
                updates: updates.clone(),
            },
            Message::ChangeProgram {
                sid: 1,
                uid: 7,
                updates,
            },
        ] {
            assert_eq!(Message::parse(&message.encode()), Ok(message));
        }
    }
}
