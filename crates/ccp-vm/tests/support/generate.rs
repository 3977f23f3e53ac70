//! Random valid programs and what happens to them, made from bytes.
//!
//! The bytes come from proptest, from a seeded generator or from a fuzzer; every byte string gives
//! a case, and nearby strings give nearby cases. Past the end the bytes are 0.
//!
//! [`SPARE_CONTROL`] and [`SPARE_PRIMITIVE`] are never used: libccp's clock cannot be set, so for
//! libccp they stand for Micros and Ack.now.

use ccp_vm::*;
use std::ops::Range;

pub(crate) const SPARE_CONTROL: u8 = 15;
pub(crate) const SPARE_PRIMITIVE: u8 = 11;

/// What the choices are made from.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// A number below `n`, which is at most 256 and not 0.
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    fn index(&mut self, n: u8) -> u8 {
        self.byte() % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// Any 32-bit number, preferably one where something changes.
    fn u32(&mut self) -> u32 {
        const EDGES: [u32; 14] = [
            0,
            1,
            2,
            9,
            10,
            11,
            1000,
            1 << 16,
            0x3fff_ffff,
            0x7fff_ffff,
            0x8000_0000,
            0x8000_0001,
            u32::MAX - 1,
            u32::MAX,
        ];
        match self.below(4) {
            0 => EDGES[self.below(EDGES.len())],
            1 => u32::from_le_bytes([(); 4].map(|()| self.byte())),
            _ => self.byte().into(),
        }
    }

    fn u64(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::from_le_bytes([(); 8].map(|()| self.byte())),
            1 => u64::MAX - u64::from(self.byte()),
            2 => (1 << 32) + u64::from(self.byte()),
            _ => self.u32().into(),
        }
    }

    fn writable(&mut self) -> Reg {
        match self.below(8) {
            0 | 1 => Reg::Report(self.index(NUM_REPORT)),
            2 | 3 => Reg::Control(self.index(SPARE_CONTROL)),
            4 => Reg::Local(self.index(NUM_LOCAL)),
            5 => Reg::Implicit(self.index(NUM_IMPLICIT)),
            _ => Reg::Tmp(self.index(NUM_TMP)),
        }
    }

    fn operand(&mut self) -> Reg {
        match self.below(4) {
            0 => Reg::Immediate(self.u32()),
            1 => match self.index(NUM_PRIMITIVE) {
                SPARE_PRIMITIVE => Reg::NOW,
                i => Reg::Primitive(i),
            },
            _ => self.writable(),
        }
    }

    fn instruction(&mut self) -> Instruction {
        // What can fail comes less often, or few programs would get far.
        const SAFE: [Op; 10] = [
            Op::Bind,
            Op::Equiv,
            Op::Ewma,
            Op::Gt,
            Op::If,
            Op::Lt,
            Op::Max,
            Op::MaxWrap,
            Op::Min,
            Op::NotIf,
        ];
        let op = if self.one_in(3) {
            Op::ALL[self.below(Op::ALL.len())]
        } else {
            SAFE[self.below(SAFE.len())]
        };
        Instruction {
            op,
            ret: self.writable(),
            left: self.operand(),
            right: self.operand(),
        }
    }

    fn definitions(&mut self) -> Vec<Definition> {
        let mut definitions = Vec::new();
        let reports = (0..NUM_REPORT).map(Reg::Report);
        for register in reports.chain((0..SPARE_CONTROL).map(Reg::Control)) {
            if self.one_in(3) {
                definitions.push(Definition {
                    register,
                    value: self.u32(),
                    volatile: self.one_in(2),
                });
            }
        }
        definitions
    }

    /// A program as portus would lay it out, at times with events that share instructions.
    pub(crate) fn program(&mut self, uid: u32) -> Program {
        let definitions = self.definitions();
        let most = MAX_INSTRUCTIONS - definitions.len();
        let num_events = if self.one_in(16) {
            self.below(60)
        } else {
            self.below(8)
        };
        let (mut events, mut instructions): (Vec<Event>, Vec<Instruction>) = (vec![], vec![]);
        for _ in 0..num_events {
            let start = instructions.len();
            for _ in 0..self.below(3) {
                instructions.push(self.instruction());
            }
            if !self.one_in(8) {
                let mut last = self.instruction();
                last.ret = Reg::FLAG;
                instructions.push(last);
            }
            let middle = instructions.len();
            for _ in 0..self.below(7) {
                let mut next = self.instruction();
                match self.below(8) {
                    0 => next = set(Reg::FALLTHROUGH),
                    1 => next = set(Reg::REPORT),
                    2 => next.ret = Reg::MICROS,
                    _ => {}
                }
                instructions.push(next);
            }
            events.push(Event {
                condition: start..middle,
                body: middle..instructions.len(),
            });
        }
        instructions.truncate(most);
        let end = instructions.len();
        for event in &mut events {
            for range in [&mut event.condition, &mut event.body] {
                *range = range.start.min(end)..range.end.min(end);
                if self.one_in(32) && num_events < 8 {
                    *range = self.range(end);
                }
            }
        }
        Program::new(uid, definitions, events, instructions).expect("what is generated is in range")
    }

    /// Short enough that eight events stay within the limit on what they execute.
    fn range(&mut self, end: usize) -> Range<usize> {
        let start = self.below(end + 1);
        start..(start + self.below(60)).min(end)
    }

    fn updates(&mut self) -> Updates {
        let mut updates = Updates::default();
        for _ in 0..self.below(4) {
            updates.set(self.below(usize::from(SPARE_CONTROL)), self.u64());
        }
        for entry in [Updates::CWND, Updates::RATE] {
            if self.one_in(4) {
                updates.set(entry, self.u64());
            }
        }
        updates
    }

    fn ack(&mut self) -> Primitives {
        let counter = |choices: &mut Self| u64::from(choices.u32());
        Primitives {
            bytes_acked: counter(self),
            bytes_misordered: counter(self),
            ecn_bytes: counter(self),
            ecn_packets: counter(self),
            lost_pkts_sample: counter(self),
            packets_acked: counter(self),
            packets_misordered: counter(self),
            bytes_in_flight: counter(self),
            bytes_pending: counter(self),
            packets_in_flight: counter(self),
            rate_incoming: 0,
            rate_outgoing: self.u64(),
            rtt_sample_us: self.u64(),
            was_timeout: self.one_in(8),
        }
    }

    fn sent(&mut self) -> Sent {
        Sent {
            change: self.one_in(4),
            updates: self.updates(),
        }
    }

    fn step(&mut self) -> Step {
        Step {
            after_us: self.u32().into(),
            sent: (0..self.below(4).saturating_sub(1))
                .map(|_| self.sent())
                .collect(),
            ack: self.ack(),
            cwnd: self.u32().into(),
            rate: self.u64(),
        }
    }

    pub(crate) fn case(&mut self) -> Case {
        let program = self.program(1);
        let mut steps: Vec<_> = (0..1 + self.below(8)).map(|_| self.step()).collect();
        let begin = Sent {
            change: true,
            updates: self.updates(),
        };
        steps[0].sent.insert(0, begin);
        Case { program, steps }
    }
}

fn set(reg: Reg) -> Instruction {
    Instruction {
        op: Op::Bind,
        ret: reg,
        left: reg,
        right: Reg::Immediate(1),
    }
}

/// A program, and the ACKs that it sees.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) steps: Vec<Step>,
}

/// What the agent sends between two ACKs.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// The program, once more, and not only values.
    pub(crate) change: bool,
    pub(crate) updates: Updates,
}

/// One ACK, and what was sent before it. The first one of a case is sent the program.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Time since the step before.
    pub(crate) after_us: u64,
    pub(crate) sent: Vec<Sent>,
    pub(crate) ack: Primitives,
    pub(crate) cwnd: u64,
    pub(crate) rate: u64,
}
