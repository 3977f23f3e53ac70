//! One flow's machine: what CCP's `machine.c` does on an ACK, with the clock as an argument.
//!
//! An invocation applies what the agent has staged, all of it together; clears flag, fallthrough
//! and report; and looks at the events in order. A condition is always executed, its body if it
//! left the flag set. An event whose flag is still set after its body is the last one, unless the
//! fallthrough is set; that is sticky for the rest of the invocation. At the end, Cwnd and Rate
//! are set to their registers (0 means leave it), and if a report is due it goes out and the
//! volatile registers start anew.
//!
//! An operation that fails ends the invocation on the spot: what was written stays written, but
//! neither Cwnd, Rate nor a report leaves it. Only what was staged has taken effect.

use crate::message::Updates;
use crate::program::{Instruction, Op, Program};
use crate::register::{
    NO_RTT_SAMPLE, NUM_CONTROL, NUM_IMPLICIT, NUM_LOCAL, NUM_REPORT, NUM_TMP, Reg,
};
use std::ops::Range;
use std::sync::Arc;

/// Denominator of the weight of [`Op::Ewma`].
const EWMA_WHOLE: u64 = 10;

const FLAG: usize = 0;
const FALLTHROUGH: usize = 1;
const REPORT: usize = 2;
const MICROS: usize = 3;
const CWND: usize = 4;
const RATE: usize = 5;

/// What a datapath measured on one ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Primitives {
    /// Bytes newly acknowledged in order.
    pub bytes_acked: u64,
    /// Bytes newly acknowledged out of order.
    pub bytes_misordered: u64,
    /// Bytes of packets marked with ECN.
    pub ecn_bytes: u64,
    /// Packets marked with ECN.
    pub ecn_packets: u64,
    /// Packets newly found lost.
    pub lost_pkts_sample: u64,
    /// Packets newly acknowledged in order.
    pub packets_acked: u64,
    /// Packets newly acknowledged out of order.
    pub packets_misordered: u64,
    /// Bytes sent and neither acknowledged nor lost.
    pub bytes_in_flight: u64,
    /// Bytes that the application has given and that are not acknowledged.
    pub bytes_pending: u64,
    /// Packets sent and neither acknowledged nor lost.
    pub packets_in_flight: u64,
    /// Delivery rate in bytes per second.
    pub rate_incoming: u64,
    /// Send rate in bytes per second.
    pub rate_outgoing: u64,
    /// RTT in µs; 0 for no sample, which a program reads as [`NO_RTT_SAMPLE`].
    pub rtt_sample_us: u64,
    /// Whether a retransmission timeout came before this ACK.
    pub was_timeout: bool,
}

impl Primitives {
    /// The values as a program reads them, by index of [`Reg::Primitive`].
    pub fn values(&self, now_us: u64) -> [u64; 15] {
        [
            self.bytes_acked,
            self.bytes_misordered,
            self.ecn_bytes,
            self.ecn_packets,
            self.lost_pkts_sample,
            now_us,
            self.packets_acked,
            self.packets_misordered,
            self.bytes_in_flight,
            self.bytes_pending,
            self.packets_in_flight,
            self.rate_incoming,
            self.rate_outgoing,
            match self.rtt_sample_us {
                0 => NO_RTT_SAMPLE,
                sample => sample,
            },
            self.was_timeout.into(),
        ]
    }
}

/// Why an invocation ended early.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum MachineError {
    /// A sum above 2⁶⁴ - 1.
    #[error("instruction {instruction}: the sum overflows")]
    AddOverflow {
        /// Index into [`Program::instructions`].
        instruction: usize,
    },
    /// A product above 2⁶⁴ - 1.
    #[error("instruction {instruction}: the product overflows")]
    MulOverflow {
        /// Index into [`Program::instructions`].
        instruction: usize,
    },
    /// A difference below 0.
    #[error("instruction {instruction}: the difference is below 0")]
    SubUnderflow {
        /// Index into [`Program::instructions`].
        instruction: usize,
    },
    /// A quotient with divisor 0.
    #[error("instruction {instruction}: division by 0")]
    DivByZero {
        /// Index into [`Program::instructions`].
        instruction: usize,
    },
    /// The flow has no program: nothing was done.
    #[error("the flow has no program; the agent must give it one first")]
    NoProgram,
}

/// A report as it goes to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The program's uid.
    pub uid: u32,
    num_fields: u8,
    fields: [u64; NUM_REPORT as usize],
}

impl Report {
    /// The report registers, from the first to the last one that the program defines.
    pub fn fields(&self) -> &[u64] {
        &self.fields[..usize::from(self.num_fields)]
    }
}

/// What an invocation asks of the datapath.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The congestion window to set, in bytes.
    pub cwnd: Option<u64>,
    /// The pacing rate to set, in bytes per second.
    pub rate: Option<u64>,
    /// What to report to the agent.
    pub report: Option<Report>,
    /// Why the program did not run to its end.
    pub error: Option<MachineError>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Registers {
    report: [u64; NUM_REPORT as usize],
    control: [u64; NUM_CONTROL as usize],
    implicit: [u64; NUM_IMPLICIT as usize],
    local: [u64; NUM_LOCAL as usize],
    tmp: [u64; NUM_TMP as usize],
}

/// The registers and the program of one flow.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    registers: Registers,
    /// When Micros was 0.
    time_zero_us: u64,
    program: Option<Arc<Program>>,
    staged_program: Option<Arc<Program>>,
    staged: Updates,
}

impl Machine {
    /// A machine without a program; all registers are 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stages updates for the next invocation, beside those that wait already.
    ///
    /// # Errors
    /// [`MachineError::NoProgram`] if there is no program, neither running nor staged.
    pub fn update(&mut self, updates: &Updates) -> Result<(), MachineError> {
        if self.program.is_none() && self.staged_program.is_none() {
            return Err(MachineError::NoProgram);
        }
        self.staged.merge(updates);
        Ok(())
    }

    /// Stages a program for the next invocation, and the updates to begin with. What was staged
    /// before is dropped.
    ///
    /// The registers that the program defines take their initial values and Micros is 0; then come
    /// the updates. All other registers keep their values.
    pub fn change_program(&mut self, program: Arc<Program>, updates: &Updates) {
        self.staged_program = Some(program);
        self.staged = updates.clone();
    }

    /// The value of a register after the last invocation; `None` for what is not kept here.
    pub fn register(&self, reg: Reg) -> Option<u64> {
        let r = &self.registers;
        let (file, index): (&[u64], u8) = match reg {
            Reg::Report(i) => (&r.report, i),
            Reg::Control(i) => (&r.control, i),
            Reg::Implicit(i) => (&r.implicit, i),
            Reg::Local(i) => (&r.local, i),
            Reg::Tmp(i) => (&r.tmp, i),
            Reg::Immediate(_) | Reg::Primitive(_) => return None,
        };
        file.get(usize::from(index)).copied()
    }

    /// Runs the program on one ACK. Allocates nothing.
    ///
    /// `now_us` is any clock in µs that does not go back; `cwnd` (bytes) and `rate` (bytes per
    /// second) are what the flow has now.
    pub fn invoke(&mut self, now_us: u64, ack: &Primitives, cwnd: u64, rate: u64) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(program) = self.staged_program.take() {
            self.registers.define(&program, |_| true);
            self.time_zero_us = now_us;
            self.program = Some(program);
        }
        let Some(program) = &self.program else {
            outcome.error = Some(MachineError::NoProgram);
            return outcome;
        };
        let r = &mut self.registers;
        r.implicit[CWND] = cwnd;
        r.implicit[RATE] = rate;
        r.apply(&std::mem::take(&mut self.staged), &mut outcome);
        r.implicit[FLAG] = 0;
        r.implicit[FALLTHROUGH] = 0;
        r.implicit[REPORT] = 0;
        r.implicit[MICROS] = now_us.wrapping_sub(self.time_zero_us);

        let mut run = Run {
            registers: r,
            primitives: ack.values(now_us),
            time_zero_us: &mut self.time_zero_us,
        };
        if let Err(error) = run.events(program) {
            outcome.error = Some(error);
            return outcome;
        }
        let r = &mut self.registers;
        set_if_positive(&mut outcome.cwnd, r.implicit[CWND]);
        set_if_positive(&mut outcome.rate, r.implicit[RATE]);
        if r.implicit[REPORT] != 0 {
            outcome.report = Some(Report {
                uid: program.uid(),
                num_fields: program.num_report(),
                fields: r.report,
            });
            r.define(program, |volatile| volatile);
        }
        outcome
    }
}

fn set_if_positive(to: &mut Option<u64>, value: u64) {
    if value > 0 {
        *to = Some(value);
    }
}

impl Registers {
    /// Sets the registers that a program defines to their initial values, if `which(volatile)`.
    fn define(&mut self, program: &Program, which: impl Fn(bool) -> bool) {
        for def in program.definitions().iter().filter(|d| which(d.volatile)) {
            *self.writable(def.register) = def.initial();
        }
    }

    fn apply(&mut self, updates: &Updates, outcome: &mut Outcome) {
        if updates.mask() == 0 {
            return;
        }
        for (entry, register) in self.control.iter_mut().enumerate() {
            if let Some(value) = updates.get(entry) {
                *register = value;
            }
        }
        if let Some(cwnd) = updates.get(Updates::CWND) {
            self.implicit[CWND] = cwnd;
            set_if_positive(&mut outcome.cwnd, cwnd);
        }
        if let Some(rate) = updates.get(Updates::RATE) {
            self.implicit[RATE] = rate;
            set_if_positive(&mut outcome.rate, rate);
        }
    }

    fn writable(&mut self, reg: Reg) -> &mut u64 {
        match reg {
            Reg::Report(i) => &mut self.report[usize::from(i)],
            Reg::Control(i) => &mut self.control[usize::from(i)],
            Reg::Implicit(i) => &mut self.implicit[usize::from(i)],
            Reg::Local(i) => &mut self.local[usize::from(i)],
            Reg::Tmp(i) => &mut self.tmp[usize::from(i)],
            Reg::Immediate(_) | Reg::Primitive(_) => {
                unreachable!("a valid program writes neither immediates nor primitives")
            }
        }
    }
}

/// A program while it runs.
struct Run<'a> {
    registers: &'a mut Registers,
    primitives: [u64; 15],
    time_zero_us: &'a mut u64,
}

impl Run<'_> {
    fn events(&mut self, program: &Program) -> Result<(), MachineError> {
        for event in program.events() {
            self.instructions(program, &event.condition)?;
            if self.registers.implicit[FLAG] != 0 {
                self.instructions(program, &event.body)?;
            }
            let implicit = &self.registers.implicit;
            if implicit[FLAG] != 0 && implicit[FALLTHROUGH] == 0 {
                break;
            }
        }
        Ok(())
    }

    fn instructions(
        &mut self,
        program: &Program,
        range: &Range<usize>,
    ) -> Result<(), MachineError> {
        for index in range.clone() {
            self.instruction(index, &program.instructions()[index])?;
        }
        Ok(())
    }

    fn instruction(&mut self, instruction: usize, i: &Instruction) -> Result<(), MachineError> {
        let (left, right) = (self.read(i.left), self.read(i.right));
        let result = match i.op {
            Op::Add => left
                .checked_add(right)
                .ok_or(MachineError::AddOverflow { instruction })?,
            Op::Sub => left
                .checked_sub(right)
                .ok_or(MachineError::SubUnderflow { instruction })?,
            Op::Div => left
                .checked_div(right)
                .ok_or(MachineError::DivByZero { instruction })?,
            Op::Mul => {
                let product = left.wrapping_mul(right);
                if product < left && right > 0 {
                    return Err(MachineError::MulOverflow { instruction });
                }
                product
            }
            Op::Bind => right,
            Op::Equiv => (left == right).into(),
            Op::Gt => (left > right).into(),
            Op::Lt => (left < right).into(),
            Op::Max => left.max(right),
            Op::Min => left.min(right),
            Op::MaxWrap => later(left, right),
            Op::Ewma => ewma(left, self.read(i.ret), right),
            Op::If if left == 0 => return Ok(()),
            Op::NotIf if left != 0 => return Ok(()),
            Op::If | Op::NotIf => right,
        };
        *self.registers.writable(i.ret) = result;
        if i.ret == Reg::MICROS {
            *self.time_zero_us = self.read(Reg::NOW).wrapping_sub(result);
        }
        Ok(())
    }

    fn read(&self, reg: Reg) -> u64 {
        let r = &self.registers;
        match reg {
            Reg::Immediate(value) => value.into(),
            Reg::Report(i) => r.report[usize::from(i)],
            Reg::Control(i) => r.control[usize::from(i)],
            Reg::Implicit(i) => r.implicit[usize::from(i)],
            Reg::Local(i) => r.local[usize::from(i)],
            Reg::Tmp(i) => r.tmp[usize::from(i)],
            Reg::Primitive(i) => self.primitives[usize::from(i)],
        }
    }
}

fn ewma(weight: u64, old: u64, new: u64) -> u64 {
    if old == 0 {
        return new;
    }
    let new = EWMA_WHOLE.wrapping_sub(weight).wrapping_mul(new);
    weight.wrapping_mul(old).wrapping_add(new) / EWMA_WHOLE
}

/// The later of two 32-bit counters: the one that is a shorter way up from the other.
fn later(a: u64, b: u64) -> u64 {
    if a == 0 || b == 0 {
        return a | b;
    }
    let (a, b) = (a as u32, b as u32);
    u64::from(if way_up(b, a) < way_up(a, b) { a } else { b })
}

/// libccp's distance, which is one too short when it passes 2³², and 2³² - 1 between equals.
fn way_up(from: u32, to: u32) -> u32 {
    if to > from {
        to - from
    } else {
        (u32::MAX - from).wrapping_add(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Definition, Event};

    fn instruction(op: Op, ret: Reg, left: Reg, right: Reg) -> Instruction {
        Instruction {
            op,
            ret,
            left,
            right,
        }
    }

    fn bind(ret: Reg, value: u32) -> Instruction {
        instruction(Op::Bind, ret, ret, Reg::Immediate(value))
    }

    /// One event that is always taken; reports 0 (volatile, from 5) and 1 (from 6) are defined.
    fn always(body: &[Instruction]) -> Arc<Program> {
        let define = |i, value, volatile| Definition {
            register: Reg::Report(i),
            value,
            volatile,
        };
        let mut instructions = vec![bind(Reg::FLAG, 1)];
        instructions.extend_from_slice(body);
        let event = Event {
            condition: 0..1,
            body: 1..instructions.len(),
        };
        let defs = vec![define(0, 5, true), define(1, 6, false)];
        Arc::new(Program::new(9, defs, vec![event], instructions).unwrap())
    }

    fn started(body: &[Instruction]) -> Machine {
        let mut machine = Machine::new();
        machine.change_program(always(body), &Updates::default());
        machine
    }

    fn updates(entries: &[(usize, u64)]) -> Updates {
        let mut updates = Updates::default();
        for (entry, value) in entries {
            updates.set(*entry, *value);
        }
        updates
    }

    fn ack() -> Primitives {
        Primitives {
            bytes_acked: 1448,
            ..Primitives::default()
        }
    }

    #[test]
    fn a_report_resets_what_is_volatile() {
        let add = |i| instruction(Op::Add, Reg::Report(i), Reg::Report(i), Reg::Primitive(0));
        let mut machine = started(&[add(0), add(1), bind(Reg::REPORT, 1)]);
        for round in 1..=2 {
            let outcome = machine.invoke(100, &ack(), 10, 20);
            let report = outcome.report.unwrap();
            assert_eq!(report.uid, 9);
            assert_eq!(report.fields(), [5 + 1448, 6 + round * 1448]);
            assert_eq!((outcome.cwnd, outcome.rate), (Some(10), Some(20)));
        }
    }

    #[test]
    fn what_is_staged_is_applied_together_and_once() {
        let mut machine = started(&[instruction(
            Op::Add,
            Reg::Control(2),
            Reg::Control(0),
            Reg::Control(1),
        )]);
        machine.update(&updates(&[(0, 1), (1, 2)])).unwrap();
        machine
            .update(&updates(&[(1, 20), (Updates::RATE, 7), (Updates::CWND, 0)]))
            .unwrap();
        let outcome = machine.invoke(0, &ack(), 10, 20);
        assert_eq!(machine.register(Reg::Control(2)), Some(21));
        assert_eq!(outcome.rate, Some(7));
        assert_eq!(outcome.cwnd, None, "a window of 0 is no window");
        let outcome = machine.invoke(0, &ack(), 10, 20);
        assert_eq!(outcome.rate, Some(20), "an update acts once");
        // A new program drops what was staged for the old one.
        machine.update(&updates(&[(0, 99), (3, 99)])).unwrap();
        machine.change_program(always(&[]), &updates(&[(0, 4)]));
        machine.invoke(0, &ack(), 10, 20);
        let control = [0, 1, 2, 3].map(|i| machine.register(Reg::Control(i)).unwrap());
        assert_eq!(control, [4, 20, 21, 0]);
    }

    #[test]
    fn micros_count_from_the_program_and_from_where_it_puts_them() {
        let mut machine = started(&[]);
        machine.invoke(1_000_000, &ack(), 0, 0);
        assert_eq!(machine.register(Reg::MICROS), Some(0));
        machine.invoke(1_000_700, &ack(), 0, 0);
        assert_eq!(machine.register(Reg::MICROS), Some(700));
        machine.change_program(always(&[bind(Reg::MICROS, 50)]), &Updates::default());
        machine.invoke(1_000_800, &ack(), 0, 0);
        machine.change_program(always(&[]), &Updates::default());
        machine.invoke(1_000_900, &ack(), 0, 0);
        assert_eq!(machine.register(Reg::MICROS), Some(0), "a change resets");

        let read = instruction(Op::Bind, Reg::Local(0), Reg::FLAG, Reg::MICROS);
        let mut machine = started(&[read, bind(Reg::MICROS, 50)]);
        machine.invoke(1_000, &ack(), 0, 0);
        machine.invoke(1_600, &ack(), 0, 0);
        assert_eq!(machine.register(Reg::Local(0)), Some(650));
    }

    #[test]
    fn an_error_keeps_what_was_written_and_lets_nothing_out() {
        let mut machine = started(&[
            bind(Reg::CWND, 77),
            bind(Reg::Control(1), 3),
            bind(Reg::REPORT, 1),
            instruction(Op::Sub, Reg::Local(0), Reg::Immediate(1), Reg::Primitive(0)),
            bind(Reg::Control(2), 3),
        ]);
        machine.update(&updates(&[(Updates::CWND, 55)])).unwrap();
        let outcome = machine.invoke(0, &ack(), 10, 20);
        assert_eq!(
            outcome,
            Outcome {
                cwnd: Some(55),
                error: Some(MachineError::SubUnderflow { instruction: 4 }),
                ..Outcome::default()
            }
        );
        assert_eq!(machine.register(Reg::Control(1)), Some(3));
        assert_eq!(machine.register(Reg::Control(2)), Some(0));
    }

    #[test]
    fn without_a_program_nothing_happens() {
        let mut machine = Machine::new();
        let refused = machine.update(&updates(&[(Updates::CWND, 1)]));
        assert_eq!(refused, Err(MachineError::NoProgram));
        let outcome = machine.invoke(0, &ack(), 10, 20);
        assert_eq!(
            outcome,
            Outcome {
                error: Some(MachineError::NoProgram),
                ..Outcome::default()
            }
        );
    }

    #[test]
    fn an_ack_without_an_rtt_sample_reads_the_largest_32_bit_number() {
        assert_eq!(ack().values(7)[13], NO_RTT_SAMPLE);
        let sampled = Primitives {
            rtt_sample_us: 250,
            ..ack()
        };
        assert_eq!(sampled.values(7)[13], 250);
        assert_eq!(sampled.values(7)[5], 7);
    }
}
