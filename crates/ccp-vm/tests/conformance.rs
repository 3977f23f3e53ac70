//! The same programs on the same ACKs in libccp's machine and in ours: the same settings, reports,
//! errors and registers. Where libccp is wrong, the difference is a test of its own (`differs_*`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/edges.rs"]
mod edges;
#[path = "support/generate.rs"]
mod generate;
#[path = "support/libccp_flow.rs"]
mod libccp_flow;
#[path = "support/scripted.rs"]
mod scripted;

use ccp_vm::*;
use edges::{SET_FLAG, raw};
use generate::{Case, Choices, SPARE_CONTROL, Sent};
use libccp::LibccpError;
use libccp_flow::{libccp, without_clock};
use proptest::prelude::*;
use scripted::compile;

fn same_error(ours: Option<MachineError>, theirs: Result<(), LibccpError>) -> bool {
    match ours {
        None => theirs.is_ok(),
        Some(MachineError::AddOverflow { .. }) => {
            matches!(theirs, Err(LibccpError::LibccpAddIntOverflow))
        }
        Some(MachineError::MulOverflow { .. }) => {
            matches!(theirs, Err(LibccpError::LibccpMulIntOverflow))
        }
        Some(MachineError::SubUnderflow { .. }) => {
            matches!(theirs, Err(LibccpError::LibccpSubIntUnderflow))
        }
        Some(MachineError::DivByZero { .. }) => {
            matches!(theirs, Err(LibccpError::LibccpDivByZero))
        }
        Some(MachineError::NoProgram) => matches!(theirs, Err(LibccpError::LibccpProgIsNull)),
    }
}

/// What a case came to, so that a suite can say that it has seen everything.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    steps: u32,
    reports: u32,
    errors: u32,
}

/// Runs a case through both machines and compares after every step.
fn conforms(case: &Case) -> Seen {
    let libccp = libccp();
    libccp.install_alone(&without_clock(&case.program));
    let mut theirs = libccp.open();
    let mut datapath = Datapath::new(Limits::default());
    let mut out = Vec::new();
    let sid = datapath.open(&FlowInfo::default(), &mut out).unwrap();
    let install = Message::Install(case.program.clone());
    datapath.deliver(&install.encode()).unwrap();
    let mut seen = Seen::default();
    let (mut now_us, mut micros_zero_us) = (1_000_000u64, 0);
    for (i, step) in case.steps.iter().enumerate() {
        now_us += step.after_us;
        for Sent { change, updates } in step.sent.iter().cloned() {
            let uid = 1;
            let message = if change {
                micros_zero_us = now_us;
                theirs.change_program(uid, updates.clone());
                Message::ChangeProgram { sid, uid, updates }
            } else {
                theirs.update(updates.clone());
                Message::Update { sid, updates }
            };
            datapath.deliver(&message.encode()).unwrap();
        }
        let mut clock = Updates::default();
        clock.set(SPARE_CONTROL.into(), now_us.wrapping_sub(micros_zero_us));
        theirs.update(clock);

        let mut ack = step.ack;
        ack.rate_incoming = now_us;
        out.clear();
        let ours = datapath
            .invoke(sid, now_us, &step.ack, step.cwnd, step.rate, &mut out)
            .unwrap();
        let result = theirs.invoke(&ack, step.cwnd, step.rate);
        assert!(
            same_error(ours.error, result),
            "step {i}: {:?} and {result:?}",
            ours.error
        );
        let settings = theirs.take_settings();
        let low = |value: Option<u64>| value.map(|v| v as u32);
        assert_eq!(settings.cwnd, low(ours.cwnd), "step {i}: window");
        assert_eq!(settings.rate, low(ours.rate), "step {i}: rate");
        let mut reports = libccp.take_sent();
        for report in &mut reports {
            report[4..8].copy_from_slice(&sid.to_le_bytes());
        }
        assert_eq!(reports.concat(), out, "step {i}: report");

        let machine = datapath.machine(sid).unwrap();
        micros_zero_us = now_us.wrapping_sub(machine.register(Reg::MICROS).unwrap());
        seen.steps += 1;
        seen.reports += u32::from(ours.report.is_some());
        seen.errors += u32::from(ours.error.is_some());
    }
    let machine = datapath.machine(sid).unwrap();
    for (register, value) in theirs.registers() {
        if register != Reg::Control(SPARE_CONTROL) {
            assert_eq!(machine.register(register), Some(value), "{register:?}");
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_run_as_in_libccp(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        conforms(&Choices(&bytes).case());
    }
}

/// The random cases are worth their name: they report, they fail, and they run to their ends.
#[test]
fn random_cases_reach_reports_and_errors() {
    let mut total = Seen::default();
    let mut state = 1u64;
    for _ in 0..300 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(2000)
        .collect();
        let seen = conforms(&Choices(&bytes).case());
        total.steps += seen.steps;
        total.reports += seen.reports;
        total.errors += seen.errors;
    }
    println!("{total:?}");
    assert!(total.reports > total.steps / 10, "{total:?}");
    assert!(total.errors > total.steps / 20, "{total:?}");
    assert!(total.errors < total.steps / 2, "{total:?}");
}

#[test]
fn events_end_the_run_unless_they_fall_through() {
    let seen = conforms(&edges::fallthrough());
    // The fallthrough is sticky: nothing ends these runs before the report.
    assert_eq!((seen.reports, seen.errors), (7, 0));
}

#[test]
fn every_operation_on_every_edge() {
    let errors: u32 = edges::operations().map(|case| conforms(&case).errors).sum();
    assert!(errors > 200, "{errors}");
}

#[test]
fn pk3c_on_scripted_acks() {
    let seen = conforms(&scripted::pk3c());
    println!("{seen:?}");
    assert_eq!((seen.steps, seen.errors), (20_000, 0));
    assert!(seen.reports > 300, "{seen:?}");
}

// ---------------------------------------------------------------- where libccp is wrong

fn ours() -> Datapath {
    Datapath::new(Limits::default())
}

/// libccp installs all of these; to run them would read and write out of bounds, or never end.
#[test]
fn differs_libccp_installs_what_it_must_not_run() {
    let libccp = libccp();
    for (what, message) in edges::unsound() {
        libccp
            .deliver(&message)
            .unwrap_or_else(|e| panic!("{what}: libccp says {e}"));
        let refused = ours().deliver(&message);
        assert!(
            matches!(
                refused,
                Err(DatapathError::Message(InvalidMessage::Program(_)))
            ),
            "{what}: {refused:?}"
        );
    }
}

/// `u8 index = 300; index < 300` never ends in libccp, though there is nothing to execute.
#[test]
fn differs_an_empty_range_may_stand_anywhere() {
    let message = raw(1, &[[0, 1, 300, 0]], &[SET_FLAG]);
    assert_eq!(ours().deliver(&message), Ok(()));
}

#[test]
fn differs_a_failed_install_leaves_nothing_behind() {
    let libccp = libccp();
    let mut unknown = SET_FLAG;
    unknown[0] = 15;
    let (good, bad) = (raw(2, &[], &[SET_FLAG]), raw(2, &[], &[unknown]));
    libccp.install_alone(&Program::new(1, vec![], vec![], vec![]).unwrap());
    let mut datapath = ours();
    for _ in 0..20 {
        let theirs = libccp.deliver(&bad);
        assert!(theirs.is_err());
        assert!(datapath.deliver(&bad).is_err());
    }
    let full = libccp.deliver(&good);
    assert!(
        matches!(full, Err(LibccpError::LibccpProgTableFull)),
        "{full:?}"
    );
    assert_eq!(datapath.deliver(&good), Ok(()));
}

#[test]
fn differs_uid_1_replaces_only_itself() {
    let libccp = libccp();
    let (first, second) = (
        raw(1, &[[0, 1, 0, 0]], &[SET_FLAG]),
        raw(2, &[[0, 1, 0, 0]], &[SET_FLAG]),
    );
    let ack = Primitives::default();
    libccp.deliver(&first).unwrap();
    libccp.deliver(&second).unwrap();
    let mut flow = libccp.open();
    flow.change_program(2, Updates::default());
    flow.invoke(&ack, 1, 1).unwrap();
    libccp.deliver(&first).unwrap();
    let lost = flow.invoke(&ack, 1, 1);
    assert!(
        matches!(lost, Err(LibccpError::LibccpProgIsNull)),
        "{lost:?}"
    );

    let mut datapath = ours();
    let out = &mut Vec::new();
    let sid = datapath.open(&FlowInfo::default(), out).unwrap();
    for message in [&first, &second] {
        datapath.deliver(message).unwrap();
    }
    let (uid, updates) = (2, Updates::default());
    let change = Message::ChangeProgram { sid, uid, updates }.encode();
    datapath.deliver(&change).unwrap();
    datapath.deliver(&first).unwrap();
    assert_eq!(
        datapath.invoke(sid, 1, &ack, 1, 1, out).unwrap().error,
        None
    );
    assert_eq!(datapath.deliver(&change), Ok(()));
}

/// libccp takes the CREATE of a flow in a slot that was used less than 100 ms ago for a repeated
/// one: it sends none, and until one is sent the flow runs no program.
#[test]
fn differs_a_slot_is_used_again_at_once() {
    let libccp = libccp();
    let flow = libccp.open_new();
    let theirs = libccp.reopen(flow);
    assert_eq!(theirs.len(), 1, "the close, and no CREATE: {theirs:?}");
    let mut datapath = Datapath::new(Limits {
        flows: 1,
        ..Limits::default()
    });
    let mut out = Vec::new();
    let first = datapath.open(&FlowInfo::default(), &mut out).unwrap();
    datapath.close(first, &mut out).unwrap();
    out.clear();
    let second = datapath.open(&FlowInfo::default(), &mut out).unwrap();
    assert_ne!(first, second);
    assert_eq!((out.len(), &out[..2]), (96, &[0, 0][..]), "a CREATE");
}

/// libccp gives back the length of the message's header, which is no error code of its own.
#[test]
fn differs_an_unknown_program_is_an_error() {
    let libccp = libccp();
    libccp.install_alone(&Program::new(1, vec![], vec![], vec![]).unwrap());
    let flow = libccp.open();
    let change = |sid| {
        let (uid, updates) = (12, Updates::default());
        Message::ChangeProgram { sid, uid, updates }.encode()
    };
    let theirs = libccp.deliver(&change(flow.sid));
    assert!(
        matches!(theirs, Err(LibccpError::OtherError(_))),
        "{theirs:?}"
    );
    let mut datapath = ours();
    let sid = datapath
        .open(&FlowInfo::default(), &mut Vec::new())
        .unwrap();
    assert_eq!(
        datapath.deliver(&change(sid)),
        Err(DatapathError::UnknownProgram { uid: 12 })
    );
}

#[test]
fn differs_cwnd_and_rate_keep_64_bits() {
    let (program, _) = compile("(def (Report (x 0))) (when true (:= Rate (* 1000000 5000)))");
    let libccp = libccp();
    libccp.install_alone(&program);
    let mut flow = libccp.open();
    flow.change_program(1, Updates::default());
    flow.invoke(&Primitives::default(), 1, 1).unwrap();
    assert_eq!(flow.take_settings().rate, Some(5_000_000_000u64 as u32));
    let mut machine = Machine::new();
    machine.change_program(program.into(), &Updates::default());
    let outcome = machine.invoke(0, &Primitives::default(), 1, 1);
    assert_eq!(outcome.rate, Some(5_000_000_000));
}

/// libccp takes what a program writes to Micros for a time in its clock's unit, which is ns in the
/// crate: a second becomes a millisecond.
#[test]
fn differs_micros_is_in_microseconds() {
    let source = "
        (def (Report (elapsed 0)) (set 0))
        (when (== set 0) (:= set 1) (:= Micros 1000000000))
        (when true (:= Report.elapsed Micros) (report))";
    let (program, _) = compile(source);
    let libccp = libccp();
    libccp.install_alone(&program);
    let mut flow = libccp.open();
    flow.change_program(1, Updates::default());
    flow.invoke(&Primitives::default(), 1, 1).unwrap();
    flow.invoke(&Primitives::default(), 1, 1).unwrap();
    let reports = flow.take_reports();
    assert!(reports[0].1[0] < 1_000_000_000, "{reports:?}");
    let mut machine = Machine::new();
    machine.change_program(program.into(), &Updates::default());
    machine.invoke(5, &Primitives::default(), 1, 1);
    let report = machine.invoke(12, &Primitives::default(), 1, 1).report;
    assert_eq!(report.unwrap().fields(), [1_000_000_007]);
}

/// libccp reads the clock whenever a program asks for it; ours stands still during an invocation.
#[test]
fn differs_the_clock_stands_still() {
    let reads = "(:= Report.last Ack.now)".repeat(60);
    let source = format!(
        "(def (Report (first 0) (last 0))) (when true (:= Report.first Ack.now) {reads} (report))"
    );
    let (program, _) = compile(&source);
    let mut machine = Machine::new();
    machine.change_program(program.into(), &Updates::default());
    let report = machine.invoke(77, &Primitives::default(), 1, 1).report;
    assert_eq!(report.unwrap().fields(), [77, 77]);
}

#[test]
fn differs_a_flow_without_a_program_takes_no_updates() {
    let libccp = libccp();
    libccp.install_alone(&Program::new(1, vec![], vec![], vec![]).unwrap());
    let mut flow = libccp.open_new();
    let mut updates = Updates::default();
    updates.set(Updates::CWND, 99);
    flow.update(updates.clone());
    assert!(flow.invoke(&Primitives::default(), 1, 1).is_err());
    assert_eq!(flow.take_settings().cwnd, Some(99));
    let mut datapath = ours();
    let out = &mut Vec::new();
    let sid = datapath.open(&FlowInfo::default(), out).unwrap();
    let refused = datapath.deliver(&Message::Update { sid, updates }.encode());
    assert_eq!(refused, Err(DatapathError::NoProgram { sid }));
    let outcome = datapath.invoke(sid, 1, &Primitives::default(), 1, 1, out);
    assert_eq!(outcome.unwrap().cwnd, None);
}

/// An UPDATE_FIELDS message: its count, then (type, index, value).
fn update(sid: u32, count: u32, fields: &[(u8, u32, u64)]) -> Vec<u8> {
    let mut message = vec![3, 0];
    message.extend((12 + 13 * fields.len() as u16).to_le_bytes());
    message.extend(sid.to_le_bytes());
    message.extend(count.to_le_bytes());
    for (kind, index, value) in fields {
        message.push(*kind);
        message.extend(index.to_le_bytes());
        message.extend(value.to_le_bytes());
    }
    message
}

/// libccp stages the fields before the bad one, goes by the lowest byte of the count (and takes it
/// for signed), ignores implicit registers that cannot be set, and takes what follows a message.
#[test]
fn differs_an_update_is_taken_whole_or_not_at_all() {
    let source = "(def (Report (x 0)) (c 0)) (when true (:= Report.x c) (report))";
    let (program, _) = compile(source);
    let libccp = libccp();
    libccp.install_alone(&program);
    let mut flow = libccp.open();
    flow.change_program(1, Updates::default());
    let mut datapath = ours();
    let sid = datapath
        .open(&FlowInfo::default(), &mut Vec::new())
        .unwrap();
    let install = Message::Install(program).encode();
    datapath.deliver(&install).unwrap();
    let (uid, updates) = (1, Updates::default());
    datapath
        .deliver(&Message::ChangeProgram { sid, uid, updates }.encode())
        .unwrap();

    let trailing = |sid| {
        let mut message = update(sid, 1, &[(0, 0, 5)]);
        message.push(0);
        message
    };
    let long = vec![(0, 0, 9); 128];
    let cases: [(&str, [Vec<u8>; 2], bool, bool); 5] = [
        (
            "a bad field after a good one",
            [flow.sid, sid].map(|s| update(s, 2, &[(0, 0, 7), (5, 0, 7)])),
            false,
            false,
        ),
        (
            "a count of 256",
            [flow.sid, sid].map(|s| update(s, 256, &[])),
            true,
            false,
        ),
        (
            "128 fields",
            [flow.sid, sid].map(|s| update(s, 128, &long)),
            false,
            true,
        ),
        (
            "Micros",
            [flow.sid, sid].map(|s| update(s, 1, &[(2, 3, 7)])),
            true,
            false,
        ),
        (
            "a byte too many",
            [flow.sid, sid].map(trailing),
            true,
            false,
        ),
    ];
    let ack = Primitives::default();
    for (what, [theirs, mine], they_take, we_take) in cases {
        assert_eq!(libccp.deliver(&theirs).is_ok(), they_take, "{what}");
        assert_eq!(datapath.deliver(&mine).is_ok(), we_take, "{what}");
        flow.take_reports();
        flow.invoke(&ack, 1, 1).unwrap();
        let out = &mut Vec::new();
        let report = datapath
            .invoke(sid, 1, &ack, 1, 1, out)
            .unwrap()
            .report
            .unwrap();
        let (_, fields) = flow.take_reports().remove(0);
        if what.starts_with("a bad field") {
            assert_eq!((fields[0], report.fields()[0]), (7, 0), "staged in part");
        }
    }
}
