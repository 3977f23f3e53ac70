//! Cases that are written by hand: programs in portus' language on scripted ACKs.

use crate::generate::{Case, Sent, Step};
use ccp_vm::{Primitives, Program, Updates};
use portus::lang::{Reg, Scope};

/// A program of portus' own language, which has no comments before the first expression.
pub(crate) fn compile(source: &str) -> (Program, Scope) {
    let (bin, scope) = portus::lang::compile(source.as_bytes(), &[]).unwrap();
    let mut payload = 1u32.to_le_bytes().to_vec();
    payload.extend((bin.events.len() as u32).to_le_bytes());
    payload.extend((bin.instrs.len() as u32).to_le_bytes());
    payload.extend(bin.serialize().unwrap());
    (Program::parse(&payload).unwrap(), scope)
}

/// One ACK. What is sent before the first one is a change of program.
pub(crate) fn step(index: usize, entries: &[(usize, u64)], ack: Primitives) -> Step {
    let mut updates = Updates::default();
    for (entry, value) in entries {
        updates.set(*entry, *value);
    }
    let change = index == 0;
    Step {
        after_us: 1000,
        sent: vec![Sent { change, updates }],
        ack,
        cwnd: 100_000,
        rate: 1_000_000,
    }
}

/// The real program on a path whose RTT, losses, timeouts and missing samples are scripted, with
/// a new plan every few hundred ACKs. It reports and never fails.
pub(crate) fn pk3c() -> Case {
    let lines = include_str!("../../../../src/program/pk3c.ccp").lines();
    let source: Vec<_> = lines.filter(|line| !line.starts_with('#')).collect();
    let (program, scope) = compile(&source.join("\n"));
    let entry = |name| match scope.get(name) {
        Some(Reg::Control(i, ..)) => usize::from(*i),
        other => panic!("{name} is {other:?}"),
    };
    let plan = |number: u64| {
        let rate = 1_000_000 + 10_000 * (number % 50);
        let (above, below) = (rate * 105 / 100, rate * 95 / 100);
        let mi = 10_000 + 500 * (number % 7);
        let names = ["plan", "r1", "r2", "r3", "r4", "hold", "mi", "tx"];
        let values = [number, above, below, below, above, rate, mi, 0];
        names.map(entry).into_iter().zip(values)
    };
    let ack = |i: u64| Primitives {
        bytes_acked: 1448 * (1 + i % 2),
        packets_acked: 1 + i % 2,
        packets_misordered: u64::from(i.is_multiple_of(50)),
        lost_pkts_sample: if i.is_multiple_of(97) { 3 } else { 0 },
        // A sawtooth of 10 to 40 ms stands for a queue that fills and drains.
        rtt_sample_us: if i.is_multiple_of(11) {
            0
        } else {
            10_000 + 30 * (i % 1000)
        },
        rate_outgoing: 1_000_000,
        was_timeout: i.is_multiple_of(911),
        ..Primitives::default()
    };
    let steps = (0..20_000u64).map(|i| {
        let plan: Vec<_> = if i.is_multiple_of(313) {
            plan(i / 313).collect()
        } else {
            vec![]
        };
        let pause_us = if i.is_multiple_of(911) { 200_000 } else { 0 };
        let mut step = step(i as usize % 7000, &plan, ack(i));
        step.after_us = 20 + 700 * (i % 3) + pause_us;
        step
    });
    Case {
        program,
        steps: steps.collect(),
    }
}
