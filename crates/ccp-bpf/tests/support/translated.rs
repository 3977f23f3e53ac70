//! A translated program against the reference machine: the same ACKs, the same registers.
//!
//! [`Translated`] is a program that has been translated and runs somewhere: in the kernel, or in
//! [`Emulated`], which knows the few BPF instructions that the translation uses and is stricter
//! than the verifier about jumps: they go forward. What surrounds a program on an ACK
//! (`ccp.bpf.c`) is done here, register by register.

use crate::generate::{Case, Sent, Step};
use crate::layout::*;
use crate::translate::{Frame, Target, translate};
use ccp_vm::{Machine, NUM_IMPLICIT, NUM_LOCAL, Program, Reg, Updates};

/// Where a translated program runs.
pub(crate) trait Translated {
    fn get(&self, register: usize) -> u64;
    fn set(&mut self, register: usize, value: u64);
    fn time_zero_us(&self) -> u64;
    fn set_time_zero_us(&mut self, value: u64);
    fn errors(&self) -> u64;
    /// Runs the program; whether it reached its end.
    fn run(&mut self) -> bool;
}

/// Place of a register in the flow; `None` for an immediate.
pub(crate) fn place(reg: Reg) -> Option<usize> {
    let place = match reg {
        Reg::Immediate(_) => return None,
        Reg::Report(i) => REG_REPORT + i,
        Reg::Control(i) => REG_CONTROL + i,
        Reg::Implicit(i) => REG_IMPLICIT + i,
        Reg::Local(i) => REG_LOCAL + i,
        Reg::Tmp(i) => REG_TMP + i,
        Reg::Primitive(i) => REG_PRIM + i,
    };
    Some(place.into())
}

/// Everything that a machine keeps, and that can be seen: an intermediate result need not be in its
/// place behind its use.
fn kept() -> impl Iterator<Item = Reg> {
    (0..NUM_REPORT)
        .map(Reg::Report)
        .chain((0..NUM_CONTROL).map(Reg::Control))
        .chain((0..NUM_IMPLICIT).map(Reg::Implicit))
        .chain((0..NUM_LOCAL).map(Reg::Local))
}

struct Run<'a, T> {
    program: &'a Program,
    translated: &'a mut T,
}

impl<T: Translated> Run<'_, T> {
    fn set(&mut self, reg: Reg, value: u64) {
        self.translated.set(place(reg).unwrap(), value);
    }

    fn get(&self, reg: Reg) -> u64 {
        self.translated.get(place(reg).unwrap())
    }

    fn define(&mut self, which: impl Fn(bool) -> bool) {
        for def in self.program.definitions() {
            if which(def.volatile) {
                self.set(def.register, def.initial());
            }
        }
    }

    /// What `ccp.bpf.c` does before the program, with what the mailbox has collected.
    fn prepare(&mut self, step: &Step, now_us: u64, staged: &Updates, change: bool) {
        if change {
            self.define(|_| true);
            self.translated.set_time_zero_us(now_us);
        }
        for entry in 0..Updates::CWND {
            if let Some(value) = staged.get(entry) {
                self.set(Reg::Control(entry as u8), value);
            }
        }
        self.set(Reg::FLAG, 0);
        self.set(Reg::FALLTHROUGH, 0);
        self.set(Reg::REPORT, 0);
        let zero = self.translated.time_zero_us();
        self.set(Reg::MICROS, now_us.wrapping_sub(zero));
        self.set(Reg::CWND, staged.get(Updates::CWND).unwrap_or(step.cwnd));
        self.set(Reg::RATE, staged.get(Updates::RATE).unwrap_or(step.rate));
        for (i, value) in step.ack.values(now_us).into_iter().enumerate() {
            self.set(Reg::Primitive(i as u8), value);
        }
    }
}

/// What a case came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) steps: u32,
    pub(crate) reports: u32,
    pub(crate) errors: u32,
}

/// Runs a case both ways and compares after every step.
pub(crate) fn conforms(case: &Case, translated: &mut impl Translated) -> Seen {
    let mut machine = Machine::new();
    let program = std::sync::Arc::new(case.program.clone());
    let mut run = Run {
        program: &program,
        translated,
    };
    for reg in 0..NUM_REGS {
        run.translated.set(reg, 0);
    }
    let errors_before = run.translated.errors();
    let (mut now_us, mut seen) = (1_000_000u64, Seen::default());
    for (i, step) in case.steps.iter().enumerate() {
        now_us += step.after_us;
        let (mut staged, mut changed) = (Updates::default(), false);
        for Sent { change, updates } in &step.sent {
            if *change {
                machine.change_program(program.clone(), updates);
                (staged, changed) = (updates.clone(), true);
            } else {
                machine.update(updates).unwrap();
                staged.merge(updates);
            }
        }
        let outcome = machine.invoke(now_us, &step.ack, step.cwnd, step.rate);

        run.prepare(step, now_us, &staged, changed);
        let ended = run.translated.run();
        assert_eq!(
            ended,
            outcome.error.is_none(),
            "step {i}: {:?}",
            outcome.error
        );
        let positive = |value: u64| Some(value).filter(|v| *v > 0);
        let staged = |entry| staged.get(entry).and_then(positive);
        let (mut cwnd, mut rate) = (staged(Updates::CWND), staged(Updates::RATE));
        if ended {
            cwnd = positive(run.get(Reg::CWND)).or(cwnd);
            rate = positive(run.get(Reg::RATE)).or(rate);
        }
        assert_eq!((cwnd, rate), (outcome.cwnd, outcome.rate), "step {i}");
        let reports = ended && run.get(Reg::REPORT) != 0;
        assert_eq!(reports, outcome.report.is_some(), "step {i}");
        if let Some(report) = outcome.report {
            for (field, value) in report.fields().iter().enumerate() {
                assert_eq!(
                    run.get(Reg::Report(field as u8)),
                    *value,
                    "step {i}: {field}"
                );
            }
            run.define(|volatile| volatile);
        }
        for reg in kept() {
            assert_eq!(
                Some(run.get(reg)),
                machine.register(reg),
                "step {i}: {reg:?}"
            );
        }
        let micros = now_us.wrapping_sub(run.translated.time_zero_us());
        assert_eq!(Some(micros), machine.register(Reg::MICROS), "step {i}");
        seen.steps += 1;
        seen.reports += u32::from(reports);
        seen.errors += u32::from(!ended);
    }
    let errors = run.translated.errors() - errors_before;
    assert_eq!(errors, u64::from(seen.errors), "errors are counted");
    seen
}

/// A translated program on one flow, in this process.
pub(crate) struct Emulated {
    code: Vec<u64>,
    flow: [u64; FLOW_SIZE / 8],
}

const SLOT: u64 = 5;
const SLOT_OFFSET: i16 = 1304;
const FLOWS: i32 = 3;
const PROGRAMS: i32 = 4;

/// What an address points into; addresses are area << 32 plus an offset.
const CONTEXT: u64 = 1;
const SOCKET: u64 = 2;
const FLOW: u64 = 3;
/// R10 is at the end of the stack.
const STACK: u64 = 4;
const STACK_END: u64 = STACK << 32 | 512;

impl Emulated {
    pub(crate) fn new(program: &Program) -> Self {
        let frame = Frame::Socket {
            slot_offset: SLOT_OFFSET,
            programs: PROGRAMS,
        };
        let code = translate(
            program,
            Target {
                flows: FLOWS,
                frame,
            },
        );
        let flow = [0; FLOW_SIZE / 8];
        Self { code, flow }
    }

    /// Whether there is something for the epilogue, given window and rate as they were before.
    fn has_work(&self, settings: [u64; 2]) -> bool {
        let now = [Reg::CWND, Reg::RATE].map(|reg| self.get(place(reg).unwrap()));
        self.get(place(Reg::REPORT).unwrap()) != 0 || now != settings
    }

    fn load(&self, address: u64) -> u64 {
        let (area, offset) = (address >> 32, address & 0xffff_ffff);
        match area {
            CONTEXT if offset == 0 => SOCKET << 32,
            SOCKET if offset == SLOT_OFFSET as u64 => SLOT + 1,
            FLOW if offset.is_multiple_of(8) => self.flow[offset as usize / 8],
            _ => panic!("load from {address:#x}"),
        }
    }

    /// Executes the program; whether it came to its end. There it calls the epilogue if and only if
    /// that has something to do.
    fn execute(&mut self) -> bool {
        // A register without a value may not be read.
        let mut regs = [None; 11];
        (regs[1], regs[10]) = (Some(CONTEXT << 32), Some(STACK_END));
        let mut key = None;
        let errors = self.errors();
        let settings = [Reg::CWND, Reg::RATE].map(|reg| self.get(place(reg).unwrap()));
        let mut at = 0;
        loop {
            let insn = self.code[at];
            let (code, imm) = (insn as u8, (insn >> 32) as i32);
            let (dst, src) = ((insn >> 8) as usize & 15, (insn >> 12) as usize & 15);
            let offset = (insn >> 16) as i16;
            let value = |reg: usize| -> u64 { regs[reg].expect("a register without a value") };
            let near = |base: u64| base.wrapping_add_signed(offset.into());
            let right = if code & 8 != 0 && matches!(code & 7, 4 | 5 | 7) {
                value(src)
            } else {
                imm as u64
            };
            at += 1;
            match code {
                0x18 => {
                    regs[dst] = Some(u64::from(imm as u32) | self.code[at] & !0xffff_ffff);
                    at += 1;
                }
                0x79 => regs[dst] = Some(self.load(near(value(src)))),
                0x63 => {
                    assert_eq!(near(value(dst)), STACK_END - 4);
                    key = Some(value(src) as u32);
                }
                0x7b => {
                    let to = near(value(dst));
                    assert_eq!((to >> 32, to % 8), (FLOW, 0), "store to {to:#x}");
                    self.flow[(to & 0xffff_ffff) as usize / 8] = value(src);
                }
                0x85 => {
                    let map = value(2 - usize::from(imm == 1)) as i32;
                    match imm {
                        1 => {
                            assert_eq!((map, value(2)), (FLOWS, STACK_END - 4));
                            let found = key.map(u64::from) == Some(SLOT);
                            regs[0] = Some(if found { FLOW << 32 } else { 0 });
                        }
                        12 => {
                            assert_eq!((value(1), map, value(3)), (CONTEXT << 32, PROGRAMS, 0));
                            assert!(self.has_work(settings), "an epilogue for nothing");
                            return true;
                        }
                        other => panic!("helper {other}"),
                    }
                    regs[1..6].fill(None);
                }
                0x95 => {
                    assert_eq!(regs[0], Some(0));
                    let ended = self.errors() == errors;
                    assert!(!(ended && self.has_work(settings)), "no epilogue");
                    return ended;
                }
                0xb7 | 0xbf => regs[dst] = Some(right),
                0xbc => regs[dst] = Some(right as u32 as u64),
                0x07 | 0x0f => regs[dst] = Some(value(dst).wrapping_add(right)),
                0x1f => regs[dst] = Some(value(dst).wrapping_sub(right)),
                0x2f => regs[dst] = Some(value(dst).wrapping_mul(right)),
                0x37 | 0x3f => regs[dst] = Some(value(dst).checked_div(right).unwrap_or(0)),
                0x15 | 0x1d | 0x2d | 0x3d | 0x55 | 0x5d | 0xad => {
                    let left = value(dst);
                    let taken = match code & 0xf0 {
                        0x10 => left == right,
                        0x20 => left > right,
                        0x30 => left >= right,
                        0x50 => left != right,
                        _ => left < right,
                    };
                    assert!(offset >= 0, "a jump goes back");
                    if taken {
                        at += offset as usize;
                    }
                }
                other => panic!("instruction {other:#x} at {}", at - 1),
            }
        }
    }
}

impl Translated for Emulated {
    fn get(&self, register: usize) -> u64 {
        self.flow[FLOW_REGS_OFF as usize / 8 + register]
    }

    fn set(&mut self, register: usize, value: u64) {
        self.flow[FLOW_REGS_OFF as usize / 8 + register] = value;
    }

    fn time_zero_us(&self) -> u64 {
        self.flow[FLOW_TIME_ZERO_OFF as usize / 8]
    }

    fn set_time_zero_us(&mut self, value: u64) {
        self.flow[FLOW_TIME_ZERO_OFF as usize / 8] = value;
    }

    fn errors(&self) -> u64 {
        self.flow[FLOW_ERRORS_OFF as usize / 8]
    }

    fn run(&mut self) -> bool {
        self.execute()
    }
}
