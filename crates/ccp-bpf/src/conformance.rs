//! Tests: translated programs do what the reference machine does, in the kernel and emulated.
//!
//! Every program here has passed the validator. The kernel's verifier must take its translation,
//! as the struct_ops program that is used and as a classifier, which the kernel runs on demand.

use crate::generate::{Case, Choices};
use crate::kernel::Kernel;
use crate::layout::{FLOW_SIZE, FlowSlot};
use crate::scripted::{self, step};
use crate::sys::tests::{ClassifierRun, load_classifier};
use crate::sys::{SharedArray, load_struct_ops_program};
use crate::translate::{Frame, Target, translate};
use crate::translated::{Emulated, Seen, Translated, conforms};
use ccp_vm::*;
use libbpf_rs::{MapHandle, MapType};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One flow in a map of its own, on which translated programs run in the kernel.
struct Bench {
    map: MapHandle,
    programs: MapHandle,
    kernel: Kernel,
    flow: SharedArray<FlowSlot>,
}

impl Bench {
    /// `None`, said aloud, where BPF programs cannot be loaded.
    fn new(test: &str) -> Option<Self> {
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let size = FLOW_SIZE as u32;
        let map = match MapHandle::create(MapType::Array, Some("bench"), 4, size, 1, &opts) {
            Ok(map) => map,
            Err(e) => {
                println!("SKIPPED {test}: no BPF maps can be made here ({e})");
                return None;
            }
        };
        let kernel = match Kernel::probe() {
            Ok(kernel) => kernel,
            Err(e) => {
                println!("SKIPPED {test}: {e}");
                return None;
            }
        };
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let programs =
            MapHandle::create(MapType::ProgArray, Some("bench"), 4, 4, 1, &opts).unwrap();
        let flow = SharedArray::map(map.as_fd(), size, 1).unwrap();
        Some(Self {
            map,
            programs,
            kernel,
            flow,
        })
    }

    /// Loads the program as a `cong_control`, as the datapath does.
    fn load_as_used(&self, program: &Program) {
        let target = Target {
            flows: self.map.as_fd().as_raw_fd(),
            frame: Frame::Socket {
                slot_offset: self.kernel.slot_offset,
                programs: self.programs.as_fd().as_raw_fd(),
            },
        };
        let code = translate(program, target);
        let (id, member) = (self.kernel.ops_btf_id, self.kernel.cong_control);
        if let Err((e, log)) = load_struct_ops_program("ccp_test", &code, id, member) {
            panic!("{e} for {program:?}\n{log}");
        }
    }

    fn load(&self, program: &Program) -> InKernel<'_> {
        let target = Target {
            flows: self.map.as_fd().as_raw_fd(),
            frame: Frame::Slot(0),
        };
        InKernel {
            program: load_classifier(&translate(program, target)),
            flow: self.flow.get(0).unwrap(),
        }
    }

    fn conforms(&self, case: &Case) -> Seen {
        self.load_as_used(&case.program);
        let in_kernel = conforms(case, &mut self.load(&case.program));
        let emulated = conforms(case, &mut Emulated::new(&case.program));
        assert_eq!(in_kernel.errors, emulated.errors);
        in_kernel
    }
}

/// A translated program in the kernel.
struct InKernel<'a> {
    program: ClassifierRun,
    flow: &'a FlowSlot,
}

impl InKernel<'_> {
    fn register(&self, register: usize) -> &AtomicU64 {
        &self.flow.regs[register]
    }
}

impl Translated for InKernel<'_> {
    fn get(&self, register: usize) -> u64 {
        self.register(register).load(Relaxed)
    }

    fn set(&mut self, register: usize, value: u64) {
        self.register(register).store(value, Relaxed);
    }

    fn time_zero_us(&self) -> u64 {
        self.flow.time_zero_us.load(Relaxed)
    }

    fn set_time_zero_us(&mut self, value: u64) {
        self.flow.time_zero_us.store(value, Relaxed);
    }

    fn errors(&self) -> u64 {
        self.flow.errors.load(Relaxed)
    }

    fn run(&mut self) -> bool {
        self.program.once() == 1
    }
}

fn instruction(op: Op, ret: Reg, left: Reg, right: Reg) -> Instruction {
    Instruction {
        op,
        ret,
        left,
        right,
    }
}

fn event(condition: std::ops::Range<usize>, body: std::ops::Range<usize>) -> Event {
    Event { condition, body }
}

/// Every operation on pairs of edge values. The result goes to a report register that is 77
/// before, to Micros, or to the flag.
fn operations() -> impl Iterator<Item = Case> {
    const EDGES: [u64; 13] = [
        0,
        1,
        2,
        9,
        10,
        11,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
        0x1_0000_0001,
        u64::MAX - 1,
        u64::MAX,
    ];
    let results = [Reg::Report(3), Reg::MICROS, Reg::FLAG];
    let cases = Op::ALL
        .into_iter()
        .flat_map(move |op| results.map(|ret| (op, ret)));
    cases.map(|(op, ret)| {
        let before = instruction(Op::Bind, ret, Reg::FLAG, Reg::Immediate(77));
        let operate = instruction(op, ret, Reg::Control(0), Reg::Control(1));
        let program = Program::new(1, vec![], vec![event(0..2, 0..0)], vec![before, operate]);
        let pairs = EDGES.iter().flat_map(|a| EDGES.map(|b| [(0, *a), (1, b)]));
        Case {
            program: program.unwrap(),
            steps: pairs
                .enumerate()
                .map(|(i, pair)| step(i, &pair, Primitives::default()))
                .collect(),
        }
    })
}

/// What can be accepted and looks odd to a verifier: nothing, no operation that can fail, events
/// without instructions, constant conditions, jumps over nothing, operands that are always wrong.
fn oddities() -> Vec<Program> {
    let one = Reg::Immediate(1);
    let zero = Reg::Immediate(0);
    let flag = |value| instruction(Op::Bind, Reg::FLAG, Reg::FLAG, value);
    let program = |events: &[Event], instructions: &[Instruction]| {
        Program::new(1, vec![], events.to_vec(), instructions.to_vec()).unwrap()
    };
    let mut programs = vec![
        program(&[], &[]),
        program(&[], &[flag(one)]),
        program(&[event(0..0, 0..0)], &[]),
        program(&vec![event(0..0, 0..0); 255], &[]),
        program(&[event(0..1, 0..0), event(0..1, 0..1)], &[flag(one)]),
        program(
            &[event(0..1, 1..2), event(0..1, 0..1)],
            &[flag(zero), flag(one)],
        ),
        program(&vec![event(0..1, 0..1); 255], &[flag(one)]),
    ];
    // The result of a condition, read by the body behind the test of another one.
    let add = |ret, left| instruction(Op::Add, ret, left, Reg::Immediate(5));
    programs.push(program(
        &[event(0..2, 2..3)],
        &[
            flag(one),
            add(Reg::Report(0), Reg::Control(0)),
            add(Reg::Report(1), Reg::Report(0)),
        ],
    ));
    // Constant operands, of which the verifier knows what comes of them.
    for op in Op::ALL {
        for (left, right) in [
            (one, zero),
            (zero, one),
            (zero, zero),
            (Reg::Immediate(u32::MAX), one),
        ] {
            let operate = instruction(op, Reg::FLAG, left, right);
            programs.push(program(&[event(0..1, 0..1), event(0..1, 0..0)], &[operate]));
        }
    }
    programs
}

/// The most that an invocation may execute, of each operation, in few events and in many.
fn largest() -> Vec<Program> {
    let wide = Reg::Immediate(u32::MAX);
    let with_events = |instruction: Instruction, events: Vec<Event>| {
        Program::new(1, vec![], events, vec![instruction; 255]).unwrap()
    };
    let mut programs = Vec::new();
    for op in Op::ALL {
        for (left, right) in [(wide, wide), (Reg::Control(0), Reg::Control(1))] {
            let operate = instruction(op, Reg::MICROS, left, right);
            programs.push(with_events(operate, vec![event(0..1, 0..255); 4]));
            programs.push(with_events(operate, vec![event(0..2, 0..2); 255]));
            let operate = instruction(op, Reg::FLAG, left, right);
            programs.push(with_events(operate, vec![event(0..2, 0..2); 255]));
        }
    }
    programs
}

fn seeded_cases(count: u64) -> impl Iterator<Item = Case> {
    (0..count).map(|seed| {
        let mut state = seed;
        let bytes = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1 + 2 * seed);
            (state >> 56) as u8
        });
        Choices(&bytes.take(2500).collect::<Vec<_>>()).case()
    })
}

fn add(total: &mut Seen, seen: Seen) {
    total.steps += seen.steps;
    total.reports += seen.reports;
    total.errors += seen.errors;
}

#[test]
fn emulated_operations_and_random_programs_conform() {
    let mut total = Seen::default();
    for case in operations().chain(seeded_cases(3000)) {
        let seen = conforms(&case, &mut Emulated::new(&case.program));
        add(&mut total, seen);
    }
    println!("{total:?}");
    assert!(total.reports > 1000 && total.errors > 1000, "{total:?}");
}

#[test]
fn kernel_every_operation_conforms() {
    let Some(bench) = Bench::new("kernel_every_operation_conforms") else {
        return;
    };
    let mut total = Seen::default();
    for case in operations() {
        add(&mut total, bench.conforms(&case));
    }
    println!("{total:?}");
    assert!(total.errors > 400, "{total:?}");
}

/// Every accepted program loads, ends, and computes what the machine does.
#[test]
fn kernel_random_programs_conform() {
    let Some(bench) = Bench::new("kernel_random_programs_conform") else {
        return;
    };
    let mut total = Seen::default();
    for case in seeded_cases(3000) {
        add(&mut total, bench.conforms(&case));
    }
    println!("{total:?}");
    assert!(total.reports > 1000 && total.errors > 1000, "{total:?}");
}

#[test]
fn kernel_odd_and_large_programs_load_and_conform() {
    let Some(bench) = Bench::new("kernel_odd_and_large_programs_load_and_conform") else {
        return;
    };
    for program in oddities().into_iter().chain(largest()) {
        let ack = Primitives::default();
        let steps = vec![
            step(0, &[(0, 3), (1, 7)], ack),
            step(1, &[(0, 0), (1, 0)], ack),
        ];
        bench.conforms(&Case { program, steps });
    }
}

/// pk3c's own program on scripted ACKs, with a plan now and then.
#[test]
fn kernel_pk3c_conforms_on_scripted_acks() {
    let Some(bench) = Bench::new("kernel_pk3c_conforms_on_scripted_acks") else {
        return;
    };
    let seen = bench.conforms(&scripted::pk3c());
    println!("{seen:?}");
    assert_eq!((seen.steps, seen.errors), (20_000, 0));
    assert!(seen.reports > 300, "{seen:?}");
}

#[test]
fn the_largest_program_stays_within_reach_of_a_jump() {
    let frame = Frame::Socket {
        slot_offset: 1000,
        programs: 4,
    };
    let lengths = largest()
        .into_iter()
        .map(|program| translate(&program, Target { flows: 3, frame }).len());
    let longest = lengths.max().unwrap();
    assert!(longest < 1 << 15, "{longest} instructions");
}
