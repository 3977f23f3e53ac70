//! Cases at the edges of what a program can be, for every interpreter; and messages that are beyond them.

use crate::generate::Case;
use crate::scripted::{compile, step};
use ccp_vm::*;

/// Conditions that are true and fall through, and one that does not.
pub(crate) fn fallthrough() -> Case {
    let source = "
        (def (Report (volatile first 0) (volatile second 0) (volatile third 0)) (limit 5))
        (when (> Ack.bytes_acked limit) (:= Report.first 1) (fallthrough))
        (when (> Ack.bytes_acked (* 2 limit)) (:= Report.second 1) (:= Micros 0))
        (when true (:= Report.third 1) (report))";
    let acked = [3, 7, 20, 5, 6, 10, 11].into_iter().enumerate();
    let steps = acked.map(|(i, bytes_acked)| {
        let ack = Primitives {
            bytes_acked,
            ..Primitives::default()
        };
        step(i, &[], ack)
    });
    Case {
        program: compile(source).0,
        steps: steps.collect(),
    }
}

/// Each operation on all pairs of values where something changes; more than 200 of them fail.
pub(crate) fn operations() -> impl Iterator<Item = Case> {
    const EDGES: [u64; 15] = [
        0,
        1,
        2,
        9,
        10,
        11,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_fffe,
        0xffff_ffff,
        0x1_0000_0000,
        0x1_0000_0001,
        u64::MAX / 2 + 1,
        u64::MAX - 1,
        u64::MAX,
    ];
    Op::ALL.into_iter().map(|op| {
        // Report 1 (volatile) begins at 77, so that ewma has an old value.
        let define = |i, value| Definition {
            register: Reg::Report(i),
            value,
            volatile: true,
        };
        let instruction = |op, ret, left, right| Instruction {
            op,
            ret,
            left,
            right,
        };
        let one = Reg::Immediate(1);
        let instructions = vec![
            instruction(Op::Bind, Reg::FLAG, one, one),
            instruction(Op::Bind, Reg::REPORT, one, one),
            instruction(op, Reg::Report(1), Reg::Control(0), Reg::Control(1)),
        ];
        let event = Event {
            condition: 0..1,
            body: 1..3,
        };
        let defs = vec![define(0, 3), define(1, 77)];
        let program = Program::new(1, defs, vec![event], instructions).unwrap();
        let pairs = EDGES.iter().flat_map(|a| EDGES.map(|b| (*a, b)));
        let steps = pairs
            .enumerate()
            .map(|(i, (a, b))| step(i, &[(0, a), (1, b)], Primitives::default()))
            .collect();
        Case { program, steps }
    })
}

/// The bytes of an instruction that sets the event flag.
pub(crate) const SET_FLAG: [u8; 16] = [1, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 1, 0, 0, 0];
const DEFINE: [u8; 16] = [2, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// An INSTALL message with any payload.
pub(crate) fn install(payload: Vec<u8>) -> Vec<u8> {
    let mut message = vec![2, 0];
    message.extend((8 + payload.len() as u16).to_le_bytes());
    message.extend([0; 4]);
    message.extend(payload);
    message
}

/// The INSTALL of a program, sound or not.
pub(crate) fn raw(uid: u32, events: &[[u32; 4]], instructions: &[[u8; 16]]) -> Vec<u8> {
    let counts = [uid, events.len() as u32, instructions.len() as u32];
    let words = counts.iter().chain(events.iter().flatten());
    let words = words.flat_map(|word| word.to_le_bytes());
    install(
        words
            .chain(instructions.iter().flatten().copied())
            .collect(),
    )
}

fn with_result(kind: u8, index: u8) -> [u8; 16] {
    let mut instruction = SET_FLAG;
    (instruction[1], instruction[2]) = (kind, index);
    instruction
}

/// What libccp installs and must not run: it would read or write out of bounds, or never end.
pub(crate) fn unsound() -> Vec<(&'static str, Vec<u8>)> {
    let long = vec![SET_FLAG; 256];
    let mut read = SET_FLAG;
    (read[11], read[12]) = (5, 200);
    let mut copy = DEFINE;
    copy[11] = 5;
    vec![
        ("a read out of bounds", raw(1, &[[0, 1, 0, 0]], &[read])),
        (
            "a control register that portus has not",
            raw(1, &[[0, 1, 0, 0]], &[with_result(0, 16)]),
        ),
        (
            "a local register that portus has not",
            raw(1, &[[0, 1, 0, 0]], &[with_result(3, 6)]),
        ),
        ("an end index of 256", raw(1, &[[0, 1, 1, 255]], &long)),
        ("a range past the end", raw(1, &[[0, 1, 1, 9]], &[SET_FLAG])),
        (
            "a range that wraps",
            raw(1, &[[u32::MAX, 2, 0, 1]], &[SET_FLAG]),
        ),
        ("111 definitions", raw(1, &[], &[DEFINE; 111])),
        (
            "a definition in an event",
            raw(1, &[[0, 1, 0, 1]], &[DEFINE, SET_FLAG]),
        ),
        (
            "a definition behind an instruction",
            raw(1, &[[0, 1, 0, 0]], &[SET_FLAG, DEFINE]),
        ),
        ("a register defined twice", raw(1, &[], &[DEFINE, DEFINE])),
        ("a definition from a register", raw(1, &[], &[copy])),
    ]
}
