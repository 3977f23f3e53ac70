//! CCP programs to BPF instructions.
//!
//! The result is the middle of the chain `cong_control` → program → epilogue: it finds the flow of
//! its socket, works on the flow's registers in place, and tail-calls the epilogue. Semantics are
//! those of libccp's `machine.c`, instruction by instruction:
//!
//! - an overflowing `+` or `*`, a `-` below zero and a division by zero end the run at once: the
//!   error is counted, and neither Cwnd nor Rate nor a report leaves it;
//! - after an event whose flag is true the run ends, unless the (sticky) fallthrough is set;
//! - writing Micros moves its zero to now minus the value;
//! - `if` and `!if` read both operands and only then decide whether to write.
//!
//! Only forward jumps are made, so every program terminates.
//!
//! Every ACK pays for each instruction, so what is known is not computed again: a result that the next instruction
//! reads stays in its BPF register, an intermediate result that nothing else reads is not stored, and the epilogue is
//! not called when there is neither a report nor a new window or rate.

mod assembler;

use crate::layout::{
    FLOW_ERRORS_OFF, FLOW_REGS_OFF, FLOW_TIME_ZERO_OFF, REG_CONTROL, REG_IMPLICIT, REG_LOCAL,
    REG_PRIM, REG_REPORT, REG_TMP,
};
use assembler::{Assembler, CTX, FLOW, Label, OLD_CWND, OLD_RATE, R0, R1, R2, R3, R4, STACK};
use ccp_vm::{Event, Instruction, Op, Program, Reg};
use libbpf_sys::{
    BPF_ADD, BPF_ALU64, BPF_DIV, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JLT, BPF_JNE, BPF_K, BPF_MEM,
    BPF_MUL, BPF_STX, BPF_SUB, BPF_W,
};
use std::os::fd::RawFd;

const HELPER_MAP_LOOKUP: i32 = libbpf_sys::BPF_FUNC_map_lookup_elem as i32;
const HELPER_TAIL_CALL: i32 = libbpf_sys::BPF_FUNC_tail_call as i32;

/// Denominator of EWMA's weight.
const EWMA_WHOLE: i32 = 10;

/// What a translation refers to in the kernel it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The map of flows.
    pub(crate) flows: RawFd,
    /// Which flow the program works on, and how it ends.
    pub(crate) frame: Frame,
}

/// The two ends of a translated program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame {
    /// As a `cong_control`: on the flow of the socket; ends in the epilogue.
    Socket {
        /// Offset in `struct sock` of the word that holds the flow's slot + 1.
        slot_offset: i16,
        /// The program array; entry 0 is the epilogue.
        programs: RawFd,
    },
    /// On one slot, for tests and measurements: returns 1 at the end, 0 after an error.
    #[cfg(test)]
    Slot(u32),
}

/// Translates a valid program. The instructions are in the kernel's encoding.
pub(crate) fn translate(program: &Program, target: Target) -> Vec<u64> {
    let mut asm = Assembler::default();
    let writes = |reg| program.instructions().iter().any(|i| i.ret == reg);
    let (new_cwnd, new_rate) = (writes(Reg::CWND), writes(Reg::RATE));
    asm.prologue(target);
    if new_cwnd {
        asm.load(OLD_CWND, Reg::CWND);
    }
    if new_rate {
        asm.load(OLD_RATE, Reg::RATE);
    }
    let passing = passing_results(program);
    for (index, event) in program.events().iter().enumerate() {
        let (all, body) = (sequence(program, event), event.condition.len());
        for (at, instruction) in all.iter().enumerate() {
            if at == body {
                asm.jump_unless(Reg::FLAG, Label::EventEnd(index));
            }
            let passes = passing && is_passing(&all[at..], at + 1 != body);
            asm.instruction(instruction, passes);
        }
        if all[body..].iter().any(|i| i.ret == Reg::FLAG) || all.len() == body {
            asm.jump_unless(Reg::FLAG, Label::EventEnd(index));
        }
        asm.jump_unless(Reg::FALLTHROUGH, Label::Done);
        asm.bind(Label::EventEnd(index));
    }
    asm.bind(Label::Done);
    asm.jump_to_epilogue(new_cwnd, new_rate);
    asm.leave(target);
    asm.bind(Label::Epilogue);
    asm.end(target);
    // The verifier takes no unreachable code.
    if asm.jumps.iter().any(|(_, label)| *label == Label::Error) {
        asm.bind(Label::Error);
        asm.count_error();
    }
    asm.finish()
}

/// The instructions of an event in their order: condition, body.
fn sequence<'a>(program: &'a Program, event: &Event) -> Vec<&'a Instruction> {
    let part = |range: &std::ops::Range<usize>| &program.instructions()[range.clone()];
    part(&event.condition)
        .iter()
        .chain(part(&event.body))
        .collect()
}

/// Whether an instruction reads a register.
fn reads(i: &Instruction, reg: Reg) -> bool {
    let left = i.left == reg && i.op != Op::Bind;
    left || i.right == reg || (i.ret == reg && i.op == Op::Ewma)
}

/// Whether it writes a register whatever the operands are.
fn writes_always(i: &Instruction, reg: Reg) -> bool {
    i.ret == reg && !matches!(i.op, Op::If | Op::NotIf)
}

/// Whether intermediate results never leave their event: each is written before it is read.
fn passing_results(program: &Program) -> bool {
    program.events().iter().all(|event| {
        let all = sequence(program, event);
        all.iter().enumerate().all(|(at, i)| {
            let written = |reg| all[..at].iter().any(|earlier| writes_always(earlier, reg));
            [i.left, i.right, i.ret]
                .into_iter()
                .filter(|reg| matches!(reg, Reg::Tmp(_)) && reads(i, *reg))
                .all(written)
        })
    })
}

/// Whether the result of the first instruction is an intermediate one that at most the next one
/// reads, and `directly` follows.
fn is_passing(rest: &[&Instruction], directly: bool) -> bool {
    let (first, rest) = (rest[0], &rest[1..]);
    let tmp = first.ret;
    if !matches!(tmp, Reg::Tmp(_)) || !writes_always(first, tmp) {
        return false;
    }
    for (distance, i) in rest.iter().enumerate() {
        let at_hand = distance == 0 && directly && !(i.ret == tmp && i.op == Op::Ewma);
        if reads(i, tmp) && !at_hand {
            return false;
        }
        if writes_always(i, tmp) {
            return true;
        }
    }
    true
}

impl Assembler {
    /// Jumps when a register is 0.
    fn jump_unless(&mut self, reg: Reg, to: Label) {
        let at = self.value(reg, R1);
        self.jump_if(BPF_JEQ, at, 0, to);
    }

    /// Jumps when there is something to do for the epilogue.
    fn jump_to_epilogue(&mut self, new_cwnd: bool, new_rate: bool) {
        self.load(R1, Reg::REPORT);
        self.jump_if(BPF_JNE, R1, 0, Label::Epilogue);
        if new_cwnd {
            self.load(R1, Reg::CWND);
            self.jump_if_reg(BPF_JNE, R1, OLD_CWND, Label::Epilogue);
        }
        if new_rate {
            self.load(R1, Reg::RATE);
            self.jump_if_reg(BPF_JNE, R1, OLD_RATE, Label::Epilogue);
        }
    }

    fn prologue(&mut self, target: Target) {
        self.mov(CTX, R1);
        match target.frame {
            Frame::Socket { slot_offset, .. } => {
                self.load_word(R2, CTX, 0); // the socket is the first argument
                self.load_word(R2, R2, slot_offset);
                self.emit(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, -1);
            }
            #[cfg(test)]
            Frame::Slot(slot) => self.mov_imm(R2, slot as i32),
        }
        self.emit(BPF_STX | BPF_MEM | BPF_W, STACK, R2, -4, 0);
        self.load_map(R1, target.flows);
        self.mov(R2, STACK);
        self.emit(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, -4);
        self.call(HELPER_MAP_LOOKUP);
        self.skip_if(BPF_JNE, R0, 0, 2);
        self.exit();
        self.mov(FLOW, R0);
    }

    /// The end of a program that leaves nothing to do.
    fn leave(&mut self, target: Target) {
        match target.frame {
            Frame::Socket { .. } => self.exit(),
            #[cfg(test)]
            Frame::Slot(_) => self.exit_with(1),
        }
    }

    fn end(&mut self, target: Target) {
        match target.frame {
            Frame::Socket { programs, .. } => {
                self.mov(R1, CTX);
                self.load_map(R2, programs);
                self.mov_imm(R3, 0);
                self.call(HELPER_TAIL_CALL);
                self.exit();
            }
            #[cfg(test)]
            Frame::Slot(_) => self.leave(target),
        }
    }

    fn count_error(&mut self) {
        self.load_word(R1, FLOW, FLOW_ERRORS_OFF);
        self.emit(BPF_ALU64 | BPF_ADD | BPF_K, R1, 0, 0, 1);
        self.store_word(FLOW, FLOW_ERRORS_OFF, R1);
        self.exit();
    }

    fn load(&mut self, dst: u8, reg: Reg) {
        match reg {
            Reg::Immediate(value) => match i32::try_from(value) {
                Ok(small) => self.mov_imm(dst, small),
                Err(_) => self.wide_imm(dst, 0, value as i32, 0),
            },
            _ => self.load_word(dst, FLOW, flow_offset(reg)),
        }
    }

    /// The BPF register that has a register's value: the one where it is at hand, or `scratch`.
    fn value(&mut self, reg: Reg, scratch: u8) -> u8 {
        match self.at_hand {
            Some((known, at)) if known == reg => at,
            _ => {
                // What was at hand may have been in this very register.
                self.at_hand = None;
                self.load(scratch, reg);
                scratch
            }
        }
    }

    /// The operands into R1 and R2.
    fn operands(&mut self, i: &Instruction) {
        match self.at_hand.take() {
            Some((known, at)) if known == i.left && i.op != Op::Bind => {
                self.copy(R1, at);
                if i.right == known {
                    self.copy(R2, at);
                } else {
                    self.load(R2, i.right);
                }
            }
            Some((known, at)) if known == i.right => {
                self.copy(R2, at);
                if i.op != Op::Bind {
                    self.load(R1, i.left);
                }
            }
            _ => {
                if i.op != Op::Bind {
                    self.load(R1, i.left);
                }
                self.load(R2, i.right);
            }
        }
    }

    fn copy(&mut self, to: u8, from: u8) {
        if to != from {
            self.mov(to, from);
        }
    }

    /// Stores what an instruction computed, unless it only passes to the next one.
    fn result(&mut self, reg: Reg, at: u8, passing: bool) {
        if !passing {
            self.store(reg, at);
        }
        self.at_hand = Some((reg, at));
    }

    fn store(&mut self, reg: Reg, src: u8) {
        self.store_word(FLOW, flow_offset(reg), src);
        if reg == Reg::MICROS {
            self.load(R4, Reg::Primitive(5)); // Ack.now
            self.alu(BPF_SUB, R4, src);
            self.store_word(FLOW, FLOW_TIME_ZERO_OFF, R4);
        }
    }

    /// One instruction; its result may be one that only `passes` to the next.
    fn instruction(&mut self, i: &Instruction, passes: bool) {
        self.operands(i);
        let at = match i.op {
            Op::Add => {
                self.alu(BPF_ADD, R1, R2);
                self.jump_if_reg(BPF_JLT, R1, R2, Label::Error);
                R1
            }
            Op::Sub => {
                self.jump_if_reg(BPF_JLT, R1, R2, Label::Error);
                self.alu(BPF_SUB, R1, R2);
                R1
            }
            Op::Mul => {
                // libccp's test of overflow: the product is below the left factor.
                self.mov(R3, R1);
                self.alu(BPF_MUL, R3, R2);
                self.skip_if_reg(BPF_JGE, R3, R1, 1);
                self.jump_if(BPF_JNE, R2, 0, Label::Error);
                R3
            }
            Op::Div => {
                self.jump_if(BPF_JEQ, R2, 0, Label::Error);
                self.alu(BPF_DIV, R1, R2);
                R1
            }
            Op::Bind => R2,
            Op::Equiv => self.compare(BPF_JEQ),
            Op::Gt => self.compare(BPF_JGT),
            Op::Lt => self.compare(BPF_JLT),
            Op::Max => self.choose(BPF_JGT),
            Op::Min => self.choose(BPF_JLT),
            Op::MaxWrap => self.max_wrap(),
            Op::Ewma => {
                // (old * weight + new * (10 - weight)) / 10, or new when old is 0
                self.load(R3, i.ret);
                self.mov(R4, R2);
                self.skip_if(BPF_JEQ, R3, 0, 6);
                self.mov_imm(R4, EWMA_WHOLE);
                self.alu(BPF_SUB, R4, R1);
                self.alu(BPF_MUL, R4, R2);
                self.alu(BPF_MUL, R3, R1);
                self.alu(BPF_ADD, R4, R3);
                self.emit(BPF_ALU64 | BPF_DIV | BPF_K, R4, 0, 0, EWMA_WHOLE);
                self.mov(R3, R4);
                R3
            }
            Op::If => return self.write_unless(BPF_JEQ, i.ret),
            Op::NotIf => return self.write_unless(BPF_JNE, i.ret),
        };
        self.result(i.ret, at, passes);
    }

    /// R1 cond R2 as 0 or 1; returns where it is, as all of these do.
    fn compare(&mut self, cond: u32) -> u8 {
        self.mov_imm(R3, 1);
        self.skip_if_reg(cond, R1, R2, 1);
        self.mov_imm(R3, 0);
        R3
    }

    /// R1 if R1 cond R2, else R2.
    fn choose(&mut self, cond: u32) -> u8 {
        self.skip_if_reg(cond, R1, R2, 1);
        self.mov(R1, R2);
        R1
    }

    /// Writes R2 to `ret` unless `R1 cond 0`.
    fn write_unless(&mut self, cond: u32, ret: Reg) {
        let writes = if ret == Reg::MICROS { 4 } else { 1 };
        self.skip_if(cond, R1, 0, writes);
        self.store(ret, R2);
    }

    /// The later of two 32-bit counters that may have wrapped; 0 stands for none.
    fn max_wrap(&mut self) -> u8 {
        let start = self.code.len();
        // R3 is the result so far: R2, unless R1 turns out to be later.
        self.mov(R3, R2);
        self.skip_if(BPF_JEQ, R1, 0, 17); // no left: right
        self.mov(R3, R1);
        self.skip_if(BPF_JEQ, R2, 0, 15); // no right: left
        // 32-bit halves from here, as libccp compares them.
        self.truncate(R1);
        self.truncate(R2);
        // R3 = dif32(R1 -> R2), R4 = dif32(R2 -> R1)
        self.mov(R3, R2);
        self.alu(BPF_SUB, R3, R1);
        self.mov(R4, R1);
        self.alu(BPF_SUB, R4, R2);
        // dif32 walks over the top when it does not go up: one less than modulo 2^32.
        self.skip_if_reg(BPF_JGT, R2, R1, 2);
        self.wrap_difference(R3);
        self.skip_if_reg(BPF_JGT, R1, R2, 2);
        self.wrap_difference(R4);
        self.skip_if_reg(BPF_JLT, R4, R3, 1);
        self.mov(R1, R2);
        self.mov(R3, R1);
        debug_assert_eq!(self.code.len() - start, 19);
        R3
    }

    /// Adds 2^32 - 1 to a difference that is not positive.
    fn wrap_difference(&mut self, reg: u8) {
        self.emit(BPF_ALU64 | BPF_ADD | BPF_K, reg, 0, 0, -1);
        self.truncate(reg);
    }
}

/// Offset of a register in the flow. Immediates have none and are never asked for.
fn flow_offset(reg: Reg) -> i16 {
    let index = match reg {
        Reg::Report(i) => REG_REPORT + i,
        Reg::Control(i) => REG_CONTROL + i,
        Reg::Implicit(i) => REG_IMPLICIT + i,
        Reg::Local(i) => REG_LOCAL + i,
        Reg::Tmp(i) => REG_TMP + i,
        Reg::Primitive(i) => REG_PRIM + i,
        Reg::Immediate(_) => unreachable!("an immediate has no place in the flow"),
    };
    FLOW_REGS_OFF + i16::from(index) * 8
}
