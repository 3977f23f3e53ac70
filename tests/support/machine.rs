//! The CCP machine, as far as a program that is not hostile needs it: it runs the compiled bytes of the real program with
//! libccp's semantics, so that these tests see the program and not a retelling of it.

use portus::lang::{self, Reg, Scope};

/// What one ACK (or a timeout) shows the program.
#[derive(Clone, Copy, Default)]
pub(crate) struct Primitives {
    pub(crate) now_us: u64,
    pub(crate) rtt_us: Option<u64>,
    pub(crate) packets_acked: u64,
    pub(crate) lost: u64,
    pub(crate) timeout: bool,
}

#[derive(Clone, Copy)]
struct Operand {
    kind: u8,
    value: u64,
}

struct Instruction {
    op: u8,
    result: Operand,
    left: Operand,
    right: Operand,
}

/// Register files by the wire's type number: 0 control, 2 implicit, 3 local, 5 report, 7 temporary.
pub(crate) struct Machine {
    scope: Scope,
    events: Vec<[usize; 4]>,
    instructions: Vec<Instruction>,
    files: [[u64; 16]; 8],
    staged: Vec<(u8, usize, u64)>,
    micros_zero: u64,
    /// Invocations that an overflow, underflow or division by zero ended.
    pub(crate) aborted: u64,
}

const IMPLICIT: usize = 2;
const REPORT: usize = 5;
const INFINITY: u64 = 0xffff_ffff;

impl Machine {
    pub(crate) fn new(program: &str) -> Self {
        let (bin, scope) = lang::compile(program.as_bytes(), &[]).expect("the program compiles");
        let count = bin.events.len();
        let bytes = bin.serialize().expect("the program serializes");
        let u32_at =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let operand = |at: usize| {
            let kind = if bytes[at] == 8 {
                0
            } else if bytes[at] == 6 {
                5
            } else {
                bytes[at]
            };
            Operand {
                kind,
                value: u64::from(u32_at(at + 1)),
            }
        };
        let mut machine = Self {
            events: (0..count)
                .map(|i| [0, 4, 8, 12].map(|f| u32_at(16 * i + f) as usize))
                .collect(),
            instructions: (count..bytes.len() / 16)
                .map(|i| 16 * i)
                .map(|at| Instruction {
                    op: bytes[at],
                    result: operand(at + 1),
                    left: operand(at + 6),
                    right: operand(at + 11),
                })
                .collect(),
            scope,
            files: [[0; 16]; 8],
            staged: Vec::new(),
            micros_zero: 0,
            aborted: 0,
        };
        machine.reset(|_| true);
        machine
    }

    /// Sets registers to what their DEF says.
    fn reset(&mut self, which: impl Fn(u8) -> bool) {
        for def in self
            .instructions
            .iter()
            .take_while(|i| i.op == 2)
            .filter(|i| which(i.left.kind))
        {
            let value = if def.right.value == 0x3fff_ffff {
                INFINITY
            } else {
                def.right.value
            };
            self.files[def.left.kind as usize][def.left.value as usize] = value;
        }
    }

    /// Stages updates; they take effect together at the next invocation.
    pub(crate) fn update(&mut self, fields: &[(&str, u32)]) {
        for (name, value) in fields {
            let (kind, index) = match self.scope.get(name) {
                Some(Reg::Control(index, ..)) => (0, *index),
                Some(Reg::Implicit(index @ 4..=5, _)) => (2, *index),
                other => panic!("{name} cannot be updated: {other:?}"),
            };
            self.staged
                .push((kind, usize::from(index), u64::from(*value)));
        }
    }

    /// Window in bytes and rate in bytes per second, as set last; 0 before.
    pub(crate) fn cwnd_and_rate(&self) -> (u64, u64) {
        (self.files[IMPLICIT][4], self.files[IMPLICIT][5])
    }

    /// Runs the program once. Returns the report, if it made one.
    pub(crate) fn invoke(&mut self, ack: &Primitives) -> Option<[u64; 16]> {
        for (kind, index, value) in self.staged.drain(..) {
            self.files[usize::from(kind)][index] = value;
        }
        self.files[IMPLICIT][..3].fill(0);
        self.files[IMPLICIT][3] = ack.now_us - self.micros_zero;
        for event in 0..self.events.len() {
            let [flag, flags, body, bodies] = self.events[event];
            if self.run(flag, flags, ack).is_none() {
                self.aborted += 1;
                return None;
            }
            if self.files[IMPLICIT][0] != 0 {
                if self.run(body, bodies, ack).is_none() {
                    self.aborted += 1;
                    return None;
                }
                if self.files[IMPLICIT][1] == 0 {
                    break;
                }
            }
        }
        (self.files[IMPLICIT][2] != 0).then(|| {
            let report = self.files[REPORT];
            self.reset(|kind| kind == 5);
            report
        })
    }

    fn run(&mut self, from: usize, count: usize, ack: &Primitives) -> Option<()> {
        for at in from..from + count {
            let Instruction {
                op,
                result,
                left,
                right,
            } = self.instructions[at];
            let (a, b) = (self.read(left, ack), self.read(right, ack));
            let value = match op {
                0 => a.checked_add(b)?,
                1 => b,
                3 => a.checked_div(b)?,
                4 => u64::from(a == b),
                6 => u64::from(a > b),
                7 if a == 0 => continue,
                13 if a != 0 => continue,
                7 | 13 => b,
                8 => u64::from(a < b),
                9 => a.max(b),
                11 => a.min(b),
                12 => a.checked_mul(b)?,
                14 => a.checked_sub(b)?,
                other => panic!("operation {other} is not used by the program"),
            };
            if (result.kind, result.value) == (2, 3) {
                self.micros_zero = ack.now_us - value;
            }
            self.files[result.kind as usize][result.value as usize] = value;
        }
        Some(())
    }

    fn read(&self, from: Operand, ack: &Primitives) -> u64 {
        match (from.kind, from.value) {
            (1, value) => value,
            (4, 4) => ack.lost,
            (4, 5) => ack.now_us,
            (4, 6) => ack.packets_acked,
            // Something is always waiting to be acknowledged.
            (4, 9) => 1,
            (4, 13) => ack.rtt_us.unwrap_or(INFINITY),
            (4, 14) => u64::from(ack.timeout),
            (4, _) => 0,
            (kind, index) => self.files[kind as usize][index as usize],
        }
    }
}
