//! A CCP program as the agent sends it, decoded and validated.
//!
//! libccp's machine (`machine.c`) defines what a program means. It trusts what it is sent; this
//! validator does not: every index, count and register is checked, so that what passes can be
//! translated and terminates (jumps only go forward).

use crate::layout::{NUM_CONTROL, NUM_IMPLICIT, NUM_LOCAL, NUM_PRIM, NUM_REPORT, NUM_TMP};
use std::ops::Range;

/// libccp counts instructions in a byte and never gets past the 256th.
pub(crate) const MAX_INSTRUCTIONS: usize = 255;
/// portus sends one event per `when`; each has at least one instruction.
pub(crate) const MAX_EVENTS: usize = MAX_INSTRUCTIONS;
/// Instructions after events that share ranges are written out, a bound on the translation.
const MAX_EXPANDED: usize = 1024;

/// How portus writes +infinity in a DEF.
const DEF_INFINITY: u32 = 0x3fff_ffff;
/// What libccp then stores.
const INFINITY: u64 = 0xffff_ffff;

const WORD: usize = 16;
const HEADER_LEN: usize = 12;

/// Why a program was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidProgram {
    /// The bytes do not hold what the counts announce.
    #[error("program of {actual} bytes where its counts need {expected}")]
    Length {
        /// What the counts need.
        expected: usize,
        /// What was given.
        actual: usize,
    },
    /// More than a datapath holds.
    #[error("{count} {what}, the limit is {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// An event's condition or body is not a range of instructions.
    #[error("event {event} spans instructions {start}+{len} of {count}")]
    Range {
        /// Index of the event.
        event: usize,
        /// Its first instruction.
        start: u32,
        /// Its number of instructions.
        len: u32,
        /// Instructions of the program.
        count: usize,
    },
    /// An operation that does not exist, or a DEF where none may be.
    #[error("instruction {index} has operation {op}, which may not stand there")]
    Operation {
        /// Index of the instruction.
        index: usize,
        /// The operation's number.
        op: u8,
    },
    /// A register that does not exist, or may not be written.
    #[error("instruction {index} names register {value} of type {kind}")]
    Register {
        /// Index of the instruction.
        index: usize,
        /// libccp's register type.
        kind: u8,
        /// The register's index.
        value: u32,
    },
}

/// An operation, numbered as in libccp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Bind,
    Div,
    Equiv,
    Ewma,
    Gt,
    If,
    Lt,
    Max,
    MaxWrap,
    Min,
    Mul,
    NotIf,
    Sub,
}

const DEF: u8 = 2;

impl Op {
    fn parse(op: u8) -> Option<Self> {
        Some(match op {
            0 => Self::Add,
            1 => Self::Bind,
            3 => Self::Div,
            4 => Self::Equiv,
            5 => Self::Ewma,
            6 => Self::Gt,
            7 => Self::If,
            8 => Self::Lt,
            9 => Self::Max,
            10 => Self::MaxWrap,
            11 => Self::Min,
            12 => Self::Mul,
            13 => Self::NotIf,
            14 => Self::Sub,
            _ => return None,
        })
    }
}

/// A register; the index is in range for its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    Immediate(u32),
    Report(u8),
    Control(u8),
    Implicit(u8),
    Local(u8),
    Tmp(u8),
    Primitive(u8),
}

impl Reg {
    pub(crate) const FLAG: Self = Self::Implicit(0);
    pub(crate) const FALLTHROUGH: Self = Self::Implicit(1);
    pub(crate) const MICROS: Self = Self::Implicit(3);

    fn parse(kind: u8, value: u32) -> Option<Self> {
        let below = |limit: u8| u8::try_from(value).ok().filter(|i| *i < limit);
        Some(match kind {
            0 | 8 => Self::Control(below(NUM_CONTROL)?),
            1 => Self::Immediate(value),
            2 => Self::Implicit(below(NUM_IMPLICIT)?),
            3 => Self::Local(below(NUM_LOCAL)?),
            4 => Self::Primitive(below(NUM_PRIM)?),
            5 | 6 => Self::Report(below(NUM_REPORT)?),
            7 => Self::Tmp(below(NUM_TMP)?),
            _ => return None,
        })
    }

    fn is_writable(self) -> bool {
        !matches!(self, Self::Immediate(_) | Self::Primitive(_))
    }
}

/// `ret = left op right`; EWMA also reads `ret`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    pub(crate) ret: Reg,
    pub(crate) left: Reg,
    pub(crate) right: Reg,
}

/// `(when condition body)`: ranges of [`Program::instructions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) condition: Range<usize>,
    pub(crate) body: Range<usize>,
}

/// The initial value of a report or control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) register: Reg,
    pub(crate) value: u64,
    /// Reset to `value` after each report.
    pub(crate) volatile: bool,
}

/// A program that may be translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) uid: u32,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) events: Vec<Event>,
    /// Without the definitions.
    pub(crate) instructions: Vec<Instruction>,
}

impl Program {
    /// Report registers that go into each report.
    pub(crate) fn num_report(&self) -> u32 {
        let reports = self
            .definitions
            .iter()
            .filter(|d| matches!(d.register, Reg::Report(_)));
        reports.count() as u32
    }

    /// Decodes the payload of an INSTALL message.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, InvalidProgram> {
        let word = |at: usize| {
            let slice = bytes.get(at..at + 4)?;
            Some(u32::from_le_bytes(
                slice.try_into().expect("the slice has 4 bytes"),
            ))
        };
        let short = |expected| InvalidProgram::Length {
            expected,
            actual: bytes.len(),
        };
        let header = |at| word(at).ok_or(short(HEADER_LEN));
        let (uid, num_events, num_instrs) = (header(0)?, header(4)? as usize, header(8)? as usize);
        limit("events", num_events, MAX_EVENTS)?;
        limit("instructions", num_instrs, MAX_INSTRUCTIONS)?;
        let expected = HEADER_LEN + (num_events + num_instrs) * WORD;
        if bytes.len() != expected {
            return Err(short(expected));
        }
        let (events, instrs) = bytes[HEADER_LEN..].split_at(num_events * WORD);

        let mut instrs = instrs.chunks_exact(WORD).enumerate().peekable();
        let mut definitions = Vec::new();
        while let Some((index, raw)) = instrs.next_if(|(_, raw)| raw[0] == DEF) {
            definitions.push(parse_definition(index, raw)?);
        }
        limit(
            "definitions",
            definitions.len(),
            usize::from(NUM_REPORT + NUM_CONTROL),
        )?;
        let instructions = instrs
            .map(|(index, raw)| parse_instruction(index, raw))
            .collect::<Result<Vec<_>, _>>()?;
        let events = events
            .chunks_exact(WORD)
            .enumerate()
            .map(|(event, raw)| parse_event(event, raw, definitions.len(), instructions.len()))
            .collect::<Result<Vec<_>, _>>()?;
        let expanded = events
            .iter()
            .map(|e| e.condition.len() + e.body.len())
            .sum();
        limit("instructions of all events", expanded, MAX_EXPANDED)?;
        Ok(Self {
            uid,
            definitions,
            events,
            instructions,
        })
    }
}

fn limit(what: &'static str, count: usize, limit: usize) -> Result<(), InvalidProgram> {
    if count > limit {
        return Err(InvalidProgram::TooMany { what, count, limit });
    }
    Ok(())
}

/// The (type, index) pair at `at` of an instruction.
fn parse_register(index: usize, raw: &[u8], at: usize) -> Result<Reg, InvalidProgram> {
    let kind = raw[at];
    let value = u32::from_le_bytes(
        raw[at + 1..at + 5]
            .try_into()
            .expect("the slice has 4 bytes"),
    );
    Reg::parse(kind, value).ok_or(InvalidProgram::Register { index, kind, value })
}

fn parse_instruction(index: usize, raw: &[u8]) -> Result<Instruction, InvalidProgram> {
    let op = Op::parse(raw[0]).ok_or(InvalidProgram::Operation { index, op: raw[0] })?;
    let ret = parse_register(index, raw, 1)?;
    if !ret.is_writable() {
        let value = u32::from_le_bytes(raw[2..6].try_into().expect("the slice has 4 bytes"));
        return Err(InvalidProgram::Register {
            index,
            kind: raw[1],
            value,
        });
    }
    let left = parse_register(index, raw, 6)?;
    let right = parse_register(index, raw, 11)?;
    Ok(Instruction {
        op,
        ret,
        left,
        right,
    })
}

fn parse_definition(index: usize, raw: &[u8]) -> Result<Definition, InvalidProgram> {
    let refuse = |at: usize| {
        let value = u32::from_le_bytes(raw[at + 1..at + 5].try_into().expect("4 bytes"));
        InvalidProgram::Register {
            index,
            kind: raw[at],
            value,
        }
    };
    let register = parse_register(index, raw, 6)?;
    if !matches!(register, Reg::Report(_) | Reg::Control(_)) {
        return Err(refuse(6));
    }
    let value = match parse_register(index, raw, 11)? {
        Reg::Immediate(DEF_INFINITY) => INFINITY,
        Reg::Immediate(value) => value.into(),
        _ => return Err(refuse(11)),
    };
    Ok(Definition {
        register,
        value,
        volatile: matches!(raw[6], 5 | 8),
    })
}

fn parse_event(
    event: usize,
    raw: &[u8],
    definitions: usize,
    instructions: usize,
) -> Result<Event, InvalidProgram> {
    let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("4 bytes"));
    let range = |at: usize| {
        let (start, len) = (word(at), word(at + 4));
        let count = definitions + instructions;
        let refuse = InvalidProgram::Range {
            event,
            start,
            len,
            count,
        };
        let (first, len) = (start as usize, len as usize);
        match first.checked_add(len) {
            // An empty range may stand anywhere; another must not reach into the definitions.
            Some(_) if len == 0 => Ok(0..0),
            Some(end) if first >= definitions && end <= count => {
                Ok(first - definitions..end - definitions)
            }
            _ => Err(refuse),
        }
    };
    Ok(Event {
        condition: range(0)?,
        body: range(8)?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use portus::lang;

    /// Compiles a program and gives the payload of its INSTALL message.
    pub(crate) fn compile(source: &str) -> Vec<u8> {
        let (bin, scope) = lang::compile(source.as_bytes(), &[]).unwrap();
        let mut bytes = scope.program_uid.to_le_bytes().to_vec();
        bytes.extend((bin.events.len() as u32).to_le_bytes());
        bytes.extend((bin.instrs.len() as u32).to_le_bytes());
        bytes.extend(bin.serialize().unwrap());
        bytes
    }

    const SOURCE: &str = "
        (def (Report (volatile acked 0) (minrtt +infinity)) (volatile spent 5) (limit 7))
        (when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (fallthrough))
        (when (> Micros limit) (:= Micros 0) (report))";

    #[test]
    fn a_program_of_portus_is_understood() {
        let program = Program::parse(&compile(SOURCE)).unwrap();
        let defs: Vec<_> = program
            .definitions
            .iter()
            .map(|d| (d.register, d.value, d.volatile))
            .collect();
        assert_eq!(defs.len(), 4);
        assert!(defs.contains(&(Reg::Report(0), 0, true)));
        assert!(defs.contains(&(Reg::Report(1), INFINITY, false)));
        assert_eq!(
            defs.iter()
                .filter(|d| matches!(d.0, Reg::Control(_)) && d.2)
                .count(),
            1
        );
        assert_eq!(program.num_report(), 2);
        assert_eq!(program.events.len(), 2);
    }

    #[test]
    fn every_prefix_and_every_wild_byte_is_refused_or_valid() {
        let good = compile(SOURCE);
        for cut in 0..good.len() {
            assert!(Program::parse(&good[..cut]).is_err(), "{cut} bytes");
        }
        for at in 0..good.len() {
            for value in [0u8, 1, 7, 15, 16, 110, 255] {
                let mut wild = good.clone();
                wild[at] = value;
                if let Ok(program) = Program::parse(&wild) {
                    for event in &program.events {
                        assert!(event.condition.end <= program.instructions.len());
                        assert!(event.body.end <= program.instructions.len());
                    }
                }
            }
        }
    }

    fn raw(events: &[[u32; 4]], instrs: &[[u8; 16]]) -> Vec<u8> {
        let mut bytes = 1u32.to_le_bytes().to_vec();
        bytes.extend((events.len() as u32).to_le_bytes());
        bytes.extend((instrs.len() as u32).to_le_bytes());
        bytes.extend(events.iter().flatten().flat_map(|w| w.to_le_bytes()));
        bytes.extend(instrs.iter().flatten());
        bytes
    }

    const BIND: [u8; 16] = [1, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 1, 0, 0, 0];

    #[test]
    fn what_breaks_libccp_is_refused() {
        // An end index that a byte cannot reach: libccp loops for ever.
        let many = vec![BIND; 256];
        assert!(matches!(
            Program::parse(&raw(&[[0, 1, 1, 255]], &many)),
            Err(InvalidProgram::TooMany {
                what: "instructions",
                ..
            })
        ));
        // Ranges past the end, also by wrapping around.
        for bad in [
            [0, 1, 1, 1],
            [0, 2, 0, 0],
            [u32::MAX, 2, 0, 1],
            [0, 1, 0, u32::MAX],
        ] {
            let result = Program::parse(&raw(&[bad], &[BIND]));
            assert!(
                matches!(result, Err(InvalidProgram::Range { .. })),
                "{bad:?}"
            );
        }
        // Registers past the end of their file, and a write to a primitive.
        for (kind, index) in [
            (5, 16),
            (0, 16),
            (8, 200),
            (3, 6),
            (7, 8),
            (2, 6),
            (4, 0),
            (1, 0),
        ] {
            let mut bad = BIND;
            bad[1] = kind;
            bad[2] = index;
            let result = Program::parse(&raw(&[[0, 1, 0, 1]], &[bad]));
            assert!(
                matches!(result, Err(InvalidProgram::Register { .. })),
                "{kind} {index}"
            );
        }
        // More definitions than registers.
        let def = [2, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        assert!(matches!(
            Program::parse(&raw(&[], &[def; 111])),
            Err(InvalidProgram::TooMany {
                what: "definitions",
                ..
            })
        ));
        // A definition behind an instruction, an operation that is none, an event over a DEF.
        assert!(Program::parse(&raw(&[], &[BIND, def])).is_err());
        let mut unknown = BIND;
        unknown[0] = 15;
        assert!(Program::parse(&raw(&[], &[unknown])).is_err());
        assert!(Program::parse(&raw(&[[0, 1, 1, 1]], &[def, BIND])).is_err());
    }
}
