//! BPF instructions one after the other, in the kernel's encoding, with jumps to places that come later.

use ccp_vm::Reg;
use libbpf_sys::{
    BPF_ALU, BPF_ALU64, BPF_CALL, BPF_DW, BPF_EXIT, BPF_IMM, BPF_JMP, BPF_K, BPF_LD, BPF_LDX,
    BPF_MEM, BPF_MOV, BPF_PSEUDO_MAP_FD, BPF_STX, BPF_X,
};
use std::os::fd::RawFd;

/// BPF registers.
pub(super) const R0: u8 = 0;
pub(super) const R1: u8 = 1;
pub(super) const R2: u8 = 2;
pub(super) const R3: u8 = 3;
pub(super) const R4: u8 = 4;
/// The program's context, kept for the tail call.
pub(super) const CTX: u8 = 6;
/// The flow.
pub(super) const FLOW: u8 = 7;
/// Window and rate as they were before the program.
pub(super) const OLD_CWND: u8 = 8;
pub(super) const OLD_RATE: u8 = 9;
pub(super) const STACK: u8 = 10;

/// Where a jump goes, before the place is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    /// Behind the event with this index.
    EventEnd(usize),
    /// Behind the last event.
    Done,
    /// To the epilogue.
    Epilogue,
    /// Counts an error and ends.
    Error,
}

#[derive(Default)]
pub(super) struct Assembler {
    pub(super) code: Vec<u64>,
    /// The register whose value a BPF register still has: the last result.
    pub(super) at_hand: Option<(Reg, u8)>,
    /// Jumps to be completed: position, destination.
    pub(super) jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    pub(super) fn emit(&mut self, code: u32, dst: u8, src: u8, off: i16, imm: i32) {
        let regs = u64::from(dst) | u64::from(src) << 4;
        let (off, imm) = (u64::from(off as u16), u64::from(imm as u32));
        self.code
            .push(u64::from(code as u8) | regs << 8 | off << 16 | imm << 32);
    }

    pub(super) fn mov(&mut self, dst: u8, src: u8) {
        self.emit(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
    }

    pub(super) fn mov_imm(&mut self, dst: u8, imm: i32) {
        self.emit(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm);
    }

    /// dst = dst op src
    pub(super) fn alu(&mut self, op: u32, dst: u8, src: u8) {
        self.emit(BPF_ALU64 | op | BPF_X, dst, src, 0, 0);
    }

    pub(super) fn wide_imm(&mut self, dst: u8, src: u8, low: i32, high: i32) {
        self.emit(BPF_LD | BPF_IMM | BPF_DW, dst, src, 0, low);
        self.emit(0, 0, 0, 0, high);
    }

    pub(super) fn load_map(&mut self, dst: u8, map: RawFd) {
        self.wide_imm(dst, BPF_PSEUDO_MAP_FD as u8, map, 0);
    }

    pub(super) fn load_word(&mut self, dst: u8, base: u8, off: i16) {
        self.emit(BPF_LDX | BPF_MEM | BPF_DW, dst, base, off, 0);
    }

    pub(super) fn store_word(&mut self, base: u8, off: i16, src: u8) {
        self.emit(BPF_STX | BPF_MEM | BPF_DW, base, src, off, 0);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.emit(BPF_JMP | BPF_CALL, 0, 0, 0, helper);
    }

    pub(super) fn exit(&mut self) {
        self.exit_with(0);
    }

    pub(super) fn exit_with(&mut self, value: i32) {
        self.mov_imm(R0, value);
        self.emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }

    /// Jumps when `dst cond imm`.
    pub(super) fn jump_if(&mut self, cond: u32, dst: u8, imm: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(BPF_JMP | cond | BPF_K, dst, 0, 0, imm);
    }

    /// Jumps when `dst cond src`.
    pub(super) fn jump_if_reg(&mut self, cond: u32, dst: u8, src: u8, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(BPF_JMP | cond | BPF_X, dst, src, 0, 0);
    }

    /// Skips the next `count` instructions when `dst cond src`.
    pub(super) fn skip_if_reg(&mut self, cond: u32, dst: u8, src: u8, count: i16) {
        self.emit(BPF_JMP | cond | BPF_X, dst, src, count, 0);
    }

    pub(super) fn skip_if(&mut self, cond: u32, dst: u8, imm: i32, count: i16) {
        self.emit(BPF_JMP | cond | BPF_K, dst, 0, count, imm);
    }

    pub(super) fn bind(&mut self, label: Label) {
        self.at_hand = None;
        self.labels.push((label, self.code.len()));
    }

    pub(super) fn truncate(&mut self, reg: u8) {
        self.emit(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
    }

    pub(super) fn finish(mut self) -> Vec<u64> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target = self.labels.iter().find(|(l, _)| *l == label);
            let (_, target) = target.expect("every label that is jumped to is bound");
            let distance = i16::try_from(target - at - 1)
                .expect("an accepted program translates to less than 2^15 instructions");
            self.code[at] |= u64::from(distance as u16) << 16;
        }
        self.code
    }
}
