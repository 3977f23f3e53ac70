//! Messages from the agent, parsed and validated completely before anything is touched.
//!
//! The format is portus' (`portus::serialize`): an 8-byte header (type, length, socket id), then
//! the fields. Everything is little-endian.

use crate::layout::{MBOX_CWND, MBOX_RATE, NUM_CONTROL};
use crate::program::{InvalidProgram, Program};

const INSTALL: u16 = 2;
const UPDATE_FIELDS: u16 = 3;
const CHANGE_PROGRAM: u16 = 4;

const HEADER_LEN: usize = 8;
const UPDATE_LEN: usize = 13;

/// Why a message was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Updates {
    /// Which of `value` are set: 0..16 control registers, then Cwnd (bytes), Rate (bytes/s).
    pub(crate) mask: u32,
    pub(crate) value: [u64; NUM_CONTROL as usize + 2],
}

/// A message that may be acted on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Install(Program),
    Update {
        sid: u32,
        updates: Updates,
    },
    ChangeProgram {
        sid: u32,
        uid: u32,
        updates: Updates,
    },
}

impl Message {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, InvalidMessage> {
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
                Self::ChangeProgram {
                    sid,
                    uid,
                    updates: reader.updates()?,
                }
            }
            other => return Err(InvalidMessage::Type(other)),
        };
        Ok(message)
    }
}

/// Takes little-endian numbers from the front of a message.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], InvalidMessage> {
        let end = self.at + N;
        let length = InvalidMessage::Length {
            expected: end,
            actual: self.bytes.len(),
        };
        let taken = self.bytes.get(self.at..end).ok_or(length)?;
        self.at = end;
        Ok(taken.try_into().expect("the slice has N bytes"))
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
            let entry = match (kind, index) {
                (0 | 8, i) if i < u32::from(NUM_CONTROL) => i as usize,
                (2, 4) => MBOX_CWND,
                (2, 5) => MBOX_RATE,
                _ => return Err(InvalidMessage::Register { kind, index }),
            };
            updates.mask |= 1 << entry;
            updates.value[entry] = value;
        }
        Ok(updates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sid: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(((HEADER_LEN + payload.len()) as u16).to_le_bytes());
        bytes.extend(sid.to_le_bytes());
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
        assert_eq!(updates.mask, 1 << 3 | 1 << MBOX_RATE | 1 << 15);
        assert_eq!((updates.value[3], updates.value[MBOX_RATE]), (8, 1000));
    }

    #[test]
    fn registers_outside_the_contract_are_refused() {
        for (kind, index) in [
            (0, 16),
            (8, 110),
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
}
