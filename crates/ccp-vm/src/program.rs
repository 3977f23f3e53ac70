//! A CCP program: decoded and validated, so that it can be run or translated as it is.
//!
//! libccp's machine (`machine.c`) defines what a program means, but trusts what it is sent. Here
//! every index, count and register is checked, whichever way a [`Program`] is made; so an accepted
//! program touches no memory but its registers, and ends (events run once, in order).

use crate::register::{NUM_CONTROL, NUM_REPORT, Reg};
use std::ops::Range;

/// Instructions of a program, definitions included. libccp counts them in a byte, and loops for
/// ever once an event ends behind the 255th.
pub const MAX_INSTRUCTIONS: usize = 255;
/// portus sends one event per `when`; each has at least one instruction.
const MAX_EVENTS: usize = MAX_INSTRUCTIONS;
/// Events may share instructions; this bounds what one invocation executes, and a translation.
const MAX_EXPANDED: usize = 1024;

/// How portus writes +infinity in a definition, and what it stands for.
const DEF_INFINITY: u32 = 0x3fff_ffff;
const INFINITY: u64 = 0xffff_ffff;

const HEADER_LEN: usize = 12;
/// Length of an event, and of an instruction.
const ITEM_LEN: usize = 16;
const DEF: u8 = 2;

/// Why a program was refused.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
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
    /// An operation that does not exist, or a definition where none may be.
    #[error("instruction {index} has operation {op}, which may not stand there")]
    Operation {
        /// Index of the instruction.
        index: usize,
        /// The operation's number.
        op: u8,
    },
    /// A register that does not exist, may not be written, or may not be defined.
    #[error("instruction {index} names register {value} of type {kind}")]
    Register {
        /// Index of the instruction.
        index: usize,
        /// libccp's register type.
        kind: u8,
        /// The register's index.
        value: u32,
    },
    /// A register has two initial values.
    #[error("instruction {index} defines {register:?} a second time")]
    DefinedTwice {
        /// Index of the second definition.
        index: usize,
        /// What it defines.
        register: Reg,
    },
}

/// An operation on two values, numbered as in libccp.
///
/// Arithmetic is on unsigned 64-bit integers; an operation that fails ends the invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// The sum; fails when it overflows.
    Add = 0,
    /// The right value.
    Bind = 1,
    /// The quotient, rounded down; fails when the right value is 0.
    Div = 3,
    /// 1 if equal, else 0.
    Equiv = 4,
    /// (left × old + (10 - left) × right) / 10 modulo 2⁶⁴, where old is the result register's
    /// value; the right value when old is 0.
    Ewma = 5,
    /// 1 if left is above right, else 0.
    Gt = 6,
    /// Writes the right value if left is not 0, else nothing.
    If = 7,
    /// 1 if left is below right, else 0.
    Lt = 8,
    /// The larger value.
    Max = 9,
    /// The later of two 32-bit counters that may have wrapped; 0 stands for none.
    MaxWrap = 10,
    /// The smaller value.
    Min = 11,
    /// The product. Fails when it, modulo 2⁶⁴, is below the left value; so do most products that
    /// overflow, but not all.
    Mul = 12,
    /// Writes the right value if left is 0, else nothing.
    NotIf = 13,
    /// The difference; fails when it is below 0.
    Sub = 14,
}

impl Op {
    /// All operations, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Add,
        Self::Bind,
        Self::Div,
        Self::Equiv,
        Self::Ewma,
        Self::Gt,
        Self::If,
        Self::Lt,
        Self::Max,
        Self::MaxWrap,
        Self::Min,
        Self::Mul,
        Self::NotIf,
        Self::Sub,
    ];

    fn decode(op: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == op)
    }
}

/// `ret = left op right`; [`Op::Ewma`] also reads `ret`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What to compute.
    pub op: Op,
    /// Where the result goes: not an immediate, not a primitive.
    pub ret: Reg,
    /// The left operand.
    pub left: Reg,
    /// The right operand.
    pub right: Reg,
}

/// `(when condition body)`: ranges of [`Program::instructions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Always executed; leaves its result in [`Reg::FLAG`].
    pub condition: Range<usize>,
    /// Executed if the flag is not 0.
    pub body: Range<usize>,
}

/// The initial value of a report or control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// A [`Reg::Report`] or [`Reg::Control`].
    pub register: Reg,
    /// The value as sent; see [`Definition::initial`].
    pub value: u32,
    /// Whether the register is reset after each report.
    pub volatile: bool,
}

impl Definition {
    /// What the register is set to: the value, where 0x3fffffff (portus' +infinity) is 2³² - 1.
    pub fn initial(&self) -> u64 {
        match self.value {
            DEF_INFINITY => INFINITY,
            value => value.into(),
        }
    }
}

/// A valid program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    uid: u32,
    definitions: Vec<Definition>,
    events: Vec<Event>,
    instructions: Vec<Instruction>,
}

impl Program {
    /// Makes a program from its parts.
    ///
    /// # Errors
    /// If a register does not exist or may not stand where it does, a range does not fit, or a
    /// limit is passed. Instructions are counted from the first definition.
    pub fn new(
        uid: u32,
        definitions: Vec<Definition>,
        events: Vec<Event>,
        instructions: Vec<Instruction>,
    ) -> Result<Self, InvalidProgram> {
        limit("events", events.len(), MAX_EVENTS)?;
        let count = definitions.len() + instructions.len();
        limit("instructions", count, MAX_INSTRUCTIONS)?;
        check_definitions(&definitions)?;
        for (i, instruction) in instructions.iter().enumerate() {
            instruction.check(definitions.len() + i)?;
        }
        for (event, Event { condition, body }) in events.iter().enumerate() {
            for range in [condition, body] {
                if range.start > range.end || range.end > instructions.len() {
                    return Err(InvalidProgram::Range {
                        event,
                        start: (range.start + definitions.len()) as u32,
                        len: range.len() as u32,
                        count,
                    });
                }
            }
        }
        let expanded = events.iter().map(|e| e.condition.len() + e.body.len());
        limit("instructions of all events", expanded.sum(), MAX_EXPANDED)?;
        Ok(Self {
            uid,
            definitions,
            events,
            instructions,
        })
    }

    /// Decodes the payload of an INSTALL message.
    ///
    /// # Errors
    /// As [`Program::new`], and if the bytes are not exactly what their counts announce.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidProgram> {
        let short = |expected| InvalidProgram::Length {
            expected,
            actual: bytes.len(),
        };
        let (header, items) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(short(HEADER_LEN))?;
        let uid = word(header, 0);
        let (num_events, num_instrs) = (word(header, 4) as usize, word(header, 8) as usize);
        limit("events", num_events, MAX_EVENTS)?;
        limit("instructions", num_instrs, MAX_INSTRUCTIONS)?;
        let (items, rest) = items.as_chunks::<ITEM_LEN>();
        if items.len() != num_events + num_instrs || !rest.is_empty() {
            return Err(short(HEADER_LEN + (num_events + num_instrs) * ITEM_LEN));
        }
        let (events, instrs) = items.split_at(num_events);
        let num_defs = instrs.iter().take_while(|raw| raw[0] == DEF).count();
        let (defs, instrs) = instrs.split_at(num_defs);
        let definitions = decode_all(defs, decode_definition)?;
        let instructions = decode_all(instrs, |i, raw| decode_instruction(num_defs + i, raw))?;
        let events = decode_all(events, |i, raw| decode_event(i, raw, num_defs, num_instrs))?;
        Self::new(uid, definitions, events, instructions)
    }

    /// The payload of an INSTALL message: what [`Program::parse`] decodes to this program.
    pub fn encode(&self) -> Vec<u8> {
        let num_defs = self.definitions.len();
        let mut out = Vec::new();
        let counts = [self.events.len(), num_defs + self.instructions.len()];
        out.extend(self.uid.to_le_bytes());
        out.extend(counts.into_iter().flat_map(|n| (n as u32).to_le_bytes()));
        for range in self.events.iter().flat_map(|e| [&e.condition, &e.body]) {
            out.extend(((range.start + num_defs) as u32).to_le_bytes());
            out.extend((range.len() as u32).to_le_bytes());
        }
        let mut item = |op: u8, registers: [(u8, u32); 3]| {
            out.push(op);
            for (kind, value) in registers {
                out.push(kind);
                out.extend(value.to_le_bytes());
            }
        };
        for def in &self.definitions {
            let register = def.register.encode(def.volatile);
            let value = Reg::Immediate(def.value).encode(false);
            item(DEF, [register, register, value]);
        }
        for i in &self.instructions {
            item(
                i.op as u8,
                [i.ret, i.left, i.right].map(|reg| reg.encode(false)),
            );
        }
        out
    }

    /// The agent's name for the program.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Initial values, at most one per register.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// The events, in the order in which they are looked at.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The instructions of all events, without the definitions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// How many fields a report has: as many as report registers are defined, from the first on.
    pub fn num_report(&self) -> u8 {
        let reports = self
            .definitions
            .iter()
            .filter(|d| matches!(d.register, Reg::Report(_)));
        reports.count() as u8 // each register once: at most NUM_REPORT
    }
}

impl Instruction {
    fn check(&self, index: usize) -> Result<(), InvalidProgram> {
        let exist = [self.ret, self.left, self.right]
            .into_iter()
            .find(|reg| !reg.exists());
        let bad = exist.or((!self.ret.is_writable()).then_some(self.ret));
        bad.map_or(Ok(()), |reg| Err(refuse_register(index, reg)))
    }
}

fn refuse_register(index: usize, reg: Reg) -> InvalidProgram {
    let (kind, value) = reg.encode(false);
    InvalidProgram::Register { index, kind, value }
}

fn check_definitions(definitions: &[Definition]) -> Result<(), InvalidProgram> {
    let most = usize::from(NUM_REPORT + NUM_CONTROL);
    limit("definitions", definitions.len(), most)?;
    for (index, def) in definitions.iter().enumerate() {
        let register = def.register;
        if !register.exists() || !matches!(register, Reg::Report(_) | Reg::Control(_)) {
            return Err(refuse_register(index, register));
        }
        if definitions[..index].iter().any(|d| d.register == register) {
            return Err(InvalidProgram::DefinedTwice { index, register });
        }
    }
    Ok(())
}

fn limit(what: &'static str, count: usize, limit: usize) -> Result<(), InvalidProgram> {
    if count > limit {
        return Err(InvalidProgram::TooMany { what, count, limit });
    }
    Ok(())
}

/// The little-endian word at `at`, which is inside `bytes`.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn decode_all<T>(
    items: &[[u8; ITEM_LEN]],
    decode: impl Fn(usize, &[u8; ITEM_LEN]) -> Result<T, InvalidProgram>,
) -> Result<Vec<T>, InvalidProgram> {
    let decoded = items.iter().enumerate().map(|(i, raw)| decode(i, raw));
    decoded.collect()
}

/// The register (type, index) at `at` of an instruction.
fn decode_register(index: usize, raw: &[u8; ITEM_LEN], at: usize) -> Result<Reg, InvalidProgram> {
    let (kind, value) = (raw[at], word(raw, at + 1));
    Reg::decode(kind, value).ok_or(InvalidProgram::Register { index, kind, value })
}

fn decode_instruction(index: usize, raw: &[u8; ITEM_LEN]) -> Result<Instruction, InvalidProgram> {
    let op = raw[0];
    Ok(Instruction {
        op: Op::decode(op).ok_or(InvalidProgram::Operation { index, op })?,
        ret: decode_register(index, raw, 1)?,
        left: decode_register(index, raw, 6)?,
        right: decode_register(index, raw, 11)?,
    })
}

/// libccp goes by the left register of a definition, and ignores the first.
fn decode_definition(index: usize, raw: &[u8; ITEM_LEN]) -> Result<Definition, InvalidProgram> {
    let register = decode_register(index, raw, 6)?;
    let value = match decode_register(index, raw, 11)? {
        Reg::Immediate(value) => value,
        other => return Err(refuse_register(index, other)),
    };
    Ok(Definition {
        register,
        value,
        volatile: matches!(raw[6], 5 | 8),
    })
}

fn decode_event(
    event: usize,
    raw: &[u8; ITEM_LEN],
    definitions: usize,
    count: usize,
) -> Result<Event, InvalidProgram> {
    let range = |at: usize| {
        let (start, len) = (word(raw, at), word(raw, at + 4));
        let (first, end) = (start as usize, (start as usize).checked_add(len as usize));
        match end {
            // An empty range may stand anywhere; another must not reach into the definitions.
            _ if len == 0 => Ok(0..0),
            Some(end) if first >= definitions && end <= count => {
                Ok(first - definitions..end - definitions)
            }
            _ => Err(InvalidProgram::Range {
                event,
                start,
                len,
                count,
            }),
        }
    };
    Ok(Event {
        condition: range(0)?,
        body: range(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portus::lang;

    /// Compiles a program and gives the payload of its INSTALL message.
    fn compile(source: &str) -> Vec<u8> {
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
            .definitions()
            .iter()
            .map(|d| (d.register, d.initial(), d.volatile))
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
        assert_eq!(program.events().len(), 2);
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
                    for event in program.events() {
                        assert!(event.condition.end <= program.instructions().len());
                        assert!(event.body.end <= program.instructions().len());
                    }
                    assert_eq!(Program::parse(&program.encode()), Ok(program));
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
    /// A second initial value would make the report longer than its registers, and which of the
    /// two holds would depend on the datapath.
    #[test]
    fn a_register_is_defined_once() {
        let def = [2, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let mut not_volatile = def;
        (not_volatile[1], not_volatile[6]) = (6, 6);
        let twice = InvalidProgram::DefinedTwice {
            index: 1,
            register: Reg::Report(0),
        };
        for second in [def, not_volatile] {
            let refused = Program::parse(&raw(&[], &[def, second, BIND]));
            assert_eq!(refused, Err(twice.clone()));
        }
    }

    #[test]
    fn parts_are_validated_as_bytes_are() {
        let instruction = |ret| Instruction {
            op: Op::Bind,
            ret,
            left: Reg::FLAG,
            right: Reg::Immediate(1),
        };
        let event = Event {
            condition: 0..1,
            body: 1..2,
        };
        let new = |instructions| Program::new(1, vec![], vec![event.clone()], instructions);
        assert!(new(vec![instruction(Reg::FLAG), instruction(Reg::CWND)]).is_ok());
        for ret in [Reg::Report(16), Reg::NOW, Reg::Immediate(3), Reg::Tmp(8)] {
            let refused = new(vec![instruction(Reg::FLAG), instruction(ret)]);
            let expected = refuse_register(1, ret);
            assert_eq!(refused, Err(expected));
        }
        assert!(matches!(
            new(vec![instruction(Reg::FLAG)]),
            Err(InvalidProgram::Range { event: 0, .. })
        ));
    }
}
