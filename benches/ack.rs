//! What an ACK costs in `ccp-vm`: the production program on the machine in safe Rust, as the simulator runs it. The
//! datapath in the kernel runs the same program translated to eBPF.
//!
//! `cargo bench --bench ack`. The figure is the CPU time of one ACK, reports included: one in a hundred ACKs ends a
//! slot.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod common;

use ccp_vm::{Machine, Primitives, Program, Updates};
use criterion::{Criterion, criterion_group, criterion_main};
use pk3c_ccp::program;
use portus::lang::{self, Reg};
use std::hint::black_box;
use std::sync::Arc;

const RTT_US: u64 = 40_000;
const ACK_EVERY_US: u64 = 400;

fn machine() -> Machine {
    let (bin, scope) = lang::compile(program::text().as_bytes(), &[]).unwrap();
    let mut install = scope.program_uid.to_le_bytes().to_vec();
    install.extend((bin.events.len() as u32).to_le_bytes());
    install.extend((bin.instrs.len() as u32).to_le_bytes());
    install.extend(bin.serialize().unwrap());
    let mut updates = Updates::default();
    let plan = [
        ("plan", 1),
        ("r1", 4_000_000),
        ("r2", 4_000_000),
        ("r3", 4_000_000),
        ("r4", 4_000_000),
        ("hold", 4_000_000),
        ("mi", RTT_US),
    ];
    for (name, value) in plan {
        match scope.get(name) {
            Some(Reg::Control(index, ..)) => updates.set(usize::from(*index), value),
            other => panic!("{name}: {other:?}"),
        }
    }
    let mut machine = Machine::new();
    machine.change_program(Arc::new(Program::parse(&install).unwrap()), &updates);
    machine
}

fn ack(criterion: &mut Criterion) {
    let mut machine = machine();
    let ack = Primitives {
        bytes_acked: 1448,
        packets_acked: 1,
        bytes_in_flight: 145_000,
        packets_in_flight: 100,
        bytes_pending: 290_000,
        rtt_sample_us: RTT_US,
        ..Primitives::default()
    };
    let mut now_us = 1_000_000;
    let mut reports = 0_u64;
    criterion.bench_function("ack", |bencher| {
        bencher.iter_custom(|count| {
            let began = common::cpu_time();
            for _ in 0..count {
                now_us += ACK_EVERY_US;
                let outcome =
                    machine.invoke(black_box(now_us), black_box(&ack), 290_000, 4_000_000);
                assert!(outcome.error.is_none());
                reports += u64::from(outcome.report.is_some());
            }
            common::cpu_time() - began
        });
    });
    assert!(reports > 0, "the program never reported");
}

criterion_group!(benches, ack);
criterion_main!(benches);
