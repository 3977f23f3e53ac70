//! The module's interpreter against the machine in safe Rust: libccp's sources behind `ccp-kernel/validate.c`, compiled
//! for user space with sanitizers, must do the same as `ccp_vm` with every program, on every ACK: the same window,
//! rate, errors, reports, and values of all registers. Where libccp is wrong, its message does not reach it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../ccp-vm/tests/support/edges.rs"]
mod edges;
#[path = "../../ccp-vm/tests/support/generate.rs"]
mod generate;
#[path = "support/interpreter.rs"]
mod interpreter;
#[path = "support/messages.rs"]
#[allow(dead_code, reason = "shared with the test in the kernel")]
mod messages;
#[path = "../../ccp-vm/tests/support/scripted.rs"]
mod scripted;

use ccp_vm::*;
use generate::{Case, Choices, Sent};
use interpreter::{Interpreter, Verdict};
use messages::Messages;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The fields of a CCP message's header that name the flow.
const SID: std::ops::Range<usize> = 4..8;

/// libccp's code for what the machine says; `LIBCCP_*` in `ccp_error.h`.
fn code(error: Option<MachineError>) -> u64 {
    match error {
        None => 0,
        Some(MachineError::AddOverflow { .. }) => 91,
        Some(MachineError::DivByZero { .. }) => 92,
        Some(MachineError::MulOverflow { .. }) => 93,
        Some(MachineError::SubUnderflow { .. }) => 94,
        Some(MachineError::NoProgram) => 96,
    }
}

/// What cases came to, so that a suite can say that it has seen everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    steps: u32,
    reports: u32,
    errors: u32,
}

/// Runs a case through both machines and compares after every step.
fn conforms(module: &mut Interpreter, case: &Case, seen: &mut Seen) {
    module.begin();
    let mut datapath = Datapath::new(Limits::default());
    let sid = datapath
        .open(&FlowInfo::default(), &mut Vec::new())
        .unwrap();
    let both = |module: &mut Interpreter, datapath: &mut Datapath, message: Message| {
        let message = message.encode();
        datapath.deliver(&message).unwrap();
        assert_eq!(module.deliver(&message), Verdict::Taken, "{message:02x?}");
    };
    both(
        module,
        &mut datapath,
        Message::Install(case.program.clone()),
    );
    let mut now_us = 1_000_000u64;
    for (i, step) in case.steps.iter().enumerate() {
        now_us += step.after_us;
        for Sent { change, updates } in step.sent.iter().cloned() {
            let uid = 1;
            let message = if change {
                Message::ChangeProgram { sid, uid, updates }
            } else {
                Message::Update { sid, updates }
            };
            both(module, &mut datapath, message);
        }
        let mut out = Vec::new();
        let ours = datapath
            .invoke(sid, now_us, &step.ack, step.cwnd, step.rate, &mut out)
            .unwrap();
        let theirs = module.invoke(now_us, &step.ack, step.cwnd, step.rate);
        assert_eq!(theirs.error, code(ours.error), "step {i}: {:?}", ours.error);
        assert_eq!(theirs.cwnd, ours.cwnd, "step {i}: window");
        assert_eq!(theirs.rate, ours.rate, "step {i}: rate");
        let mut report = theirs.sent;
        if let Some(place) = report.get_mut(SID) {
            place.copy_from_slice(&sid.to_le_bytes());
        }
        assert_eq!(report, out, "step {i}: report");
        let machine = datapath.machine(sid).unwrap();
        for (register, value) in theirs.registers {
            assert_eq!(
                machine.register(register),
                Some(value),
                "step {i}: {register:?}"
            );
        }
        seen.steps += 1;
        seen.reports += u32::from(ours.report.is_some());
        seen.errors += u32::from(ours.error.is_some());
    }
}

#[test]
fn random_programs_run_as_in_the_machine() {
    let Some(mut module) = Interpreter::start("random_programs_run_as_in_the_machine") else {
        return;
    };
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut seen = Seen::default();
    for _ in 0..3000 {
        let mut bytes = vec![0; random.random_range(0..3000)];
        random.fill(&mut bytes[..]);
        conforms(&mut module, &Choices(&bytes).case(), &mut seen);
    }
    println!("{seen:?}");
    assert!(seen.reports > seen.steps / 10, "{seen:?}");
    assert!(seen.errors > seen.steps / 20, "{seen:?}");
    assert!(seen.errors < seen.steps / 2, "{seen:?}");
}

#[test]
fn programs_at_the_edges_run_as_in_the_machine() {
    let Some(mut module) = Interpreter::start("programs_at_the_edges_run_as_in_the_machine") else {
        return;
    };
    let mut seen = Seen::default();
    conforms(&mut module, &edges::fallthrough(), &mut seen);
    assert_eq!((seen.reports, seen.errors), (7, 0));
    for case in edges::operations() {
        conforms(&mut module, &case, &mut seen);
    }
    assert!(seen.errors > 200, "{seen:?}");
}

#[test]
fn pk3c_runs_as_in_the_machine() {
    let Some(mut module) = Interpreter::start("pk3c_runs_as_in_the_machine") else {
        return;
    };
    let mut seen = Seen::default();
    conforms(&mut module, &scripted::pk3c(), &mut seen);
    println!("{seen:?}");
    assert_eq!((seen.steps, seen.errors), (20_000, 0));
    assert!(seen.reports > 300, "{seen:?}");
}

/// Of a rate or window beyond 32 bits, libccp's callbacks get the lower half; the module reads the register.
#[test]
fn rates_and_windows_keep_64_bits() {
    let Some(mut module) = Interpreter::start("rates_and_windows_keep_64_bits") else {
        return;
    };
    let source = "(def (Report (x 0)))
        (when true (:= Rate (* 1000000 5000)) (:= Cwnd (* 1000000 6000)))";
    let case = Case {
        program: scripted::compile(source).0,
        steps: vec![scripted::step(0, &[], Primitives::default())],
    };
    conforms(&mut module, &case, &mut Seen::default());
    module.begin();
    let install = Message::Install(case.program).encode();
    assert_eq!(module.deliver(&install), Verdict::Taken);
    let (sid, uid, updates) = (1, 1, Updates::default());
    let change = Message::ChangeProgram { sid, uid, updates }.encode();
    assert_eq!(module.deliver(&change), Verdict::Taken);
    let result = module.invoke(1, &Primitives::default(), 1, 1);
    assert_eq!(
        (result.rate, result.cwnd),
        (Some(5_000_000_000), Some(6_000_000_000))
    );
}

/// What libccp would install and must not run is refused; and so is what the machine can bear and libccp cannot: an
/// empty range that begins behind the 255th instruction, where libccp's 8-bit index never arrives.
#[test]
fn what_libccp_cannot_bear_does_not_reach_it() {
    let Some(mut module) = Interpreter::start("what_libccp_cannot_bear_does_not_reach_it") else {
        return;
    };
    for (what, message) in edges::unsound() {
        assert!(
            matches!(module.deliver(&message), Verdict::Refused(_)),
            "{what}"
        );
    }
    let empty = edges::raw(1, &[[0, 1, 300, 0]], &[edges::SET_FLAG]);
    assert!(Message::parse(&empty).is_ok());
    assert!(matches!(module.deliver(&empty), Verdict::Refused(_)));
}

/// A flow without a program takes nothing from an UPDATE: the machine refuses it, and the module forgets it when the
/// program arrives, because a change of program does.
#[test]
fn an_update_before_the_program_is_forgotten() {
    let Some(mut module) = Interpreter::start("an_update_before_the_program_is_forgotten") else {
        return;
    };
    let source = "(def (Report (x 0)) (c 3)) (when true (:= Report.x c) (report))";
    let install = Message::Install(scripted::compile(source).0).encode();
    assert_eq!(module.deliver(&install), Verdict::Taken);
    let (sid, uid) = (1, 1);
    let mut updates = Updates::default();
    updates.set(0, 9);
    updates.set(Updates::CWND, 99);
    let update = Message::Update { sid, updates }.encode();
    assert_eq!(module.deliver(&update), Verdict::Taken);
    let updates = Updates::default();
    let change = Message::ChangeProgram { sid, uid, updates }.encode();
    assert_eq!(module.deliver(&change), Verdict::Taken);
    let result = module.invoke(1, &Primitives::default(), 14480, 1);
    assert_eq!(result.cwnd, Some(14480));
    assert_eq!(result.sent[16..], 3u64.to_le_bytes());
}

/// The mad agent of the test in the kernel, with ACKs in between: a sanitizer ends the interpreter at the first step
/// out of bounds, and a loop without an end would hang here.
#[test]
fn what_the_validator_passes_libccp_survives() {
    let Some(mut module) = Interpreter::start("what_the_validator_passes_libccp_survives") else {
        return;
    };
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let (mut taken, mut refused, mut ran) = (0, 0, 0);
    for (i, message) in Messages::new(5).take(40_000).enumerate() {
        if i % 60 == 0 {
            module.begin();
        }
        match module.deliver(&message) {
            Verdict::Refused(_) => refused += 1,
            Verdict::Failed(_) => {}
            Verdict::Taken => {
                taken += 1;
                // Whatever it has installed, run it.
                if let Some(uid) = messages::installs(&message) {
                    let (sid, updates) = (1, Updates::default());
                    module.deliver(&Message::ChangeProgram { sid, uid, updates }.encode());
                }
                let ack = Primitives {
                    bytes_acked: random.random::<u32>().into(),
                    rtt_sample_us: random.random(),
                    ..Primitives::default()
                };
                ran += u32::from(module.invoke(i as u64, &ack, 14480, 1 << 20).error == 0);
            }
        }
    }
    println!("taken {taken}, refused {refused}, runs to the end {ran}");
    assert!(
        taken > 5000 && refused > 5000 && ran > 2000,
        "{taken} {refused} {ran}"
    );
}
