//! What the fuzz targets do with their bytes. Each function panics on a bug and only then.
//!
//! The translation to BPF is taken from `ccp-bpf`'s source, without that crate's need of a kernel,
//! and its output runs in the emulator of `ccp-bpf`'s tests.
#![forbid(unsafe_code)]

#[path = "../../crates/ccp-vm/tests/support/generate.rs"]
mod generate;
#[allow(dead_code)]
#[path = "../../crates/ccp-bpf/src/layout.rs"]
mod layout;
#[path = "../../crates/ccp-bpf/src/translate/mod.rs"]
mod translate;
#[path = "../../crates/ccp-bpf/tests/support/translated.rs"]
mod translated;

use ccp_vm::*;
use generate::{Case, Choices};
use translated::{Emulated, conforms};

/// Any bytes as a message: refused, or the same again when it is encoded.
pub fn message(data: &[u8]) {
    if let Ok(message) = Message::parse(data) {
        let encoded = message.encode();
        assert_eq!(Message::parse(&encoded), Ok(message));
    }
}

/// Any bytes as a program, then what happens to it: refused, or it runs as its translation does.
pub fn program(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk() else {
        return;
    };
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    let (payload, rest) = rest.split_at(len);
    let Ok(program) = Program::parse(payload) else {
        return;
    };
    assert_eq!(Program::parse(&program.encode()), Ok(program.clone()));
    let steps = Choices(rest).case().steps;
    conforms(
        &Case {
            program: program.clone(),
            steps,
        },
        &mut Emulated::new(&program),
    );
}

/// A random valid program on random ACKs: the machine and the translation agree.
pub fn translation(data: &[u8]) {
    let case = Choices(data).case();
    conforms(&case, &mut Emulated::new(&case.program));
}

/// An agent that sends anything, at any time, to flows that come and go: the datapath stays within
/// its limits, and what it sends is well-formed.
pub fn datapath(data: &[u8]) {
    const LIMITS: Limits = Limits {
        flows: 3,
        programs: 2,
    };
    let mut datapath = Datapath::new(LIMITS);
    let mut choices = Choices(data);
    let (mut live, mut now_us): (Vec<u32>, u64) = (Vec::new(), 0);
    let mut out = Vec::new();
    while !choices.0.is_empty() {
        let some = usize::from(choices.byte());
        let flow = live.get(some % 4).copied();
        match (choices.byte() % 6, flow) {
            (0, _) => match datapath.open(&FlowInfo::default(), &mut out) {
                Ok(sid) => {
                    assert!(!live.contains(&sid));
                    live.push(sid);
                }
                Err(e) => assert_eq!(
                    (e, live.len()),
                    (DatapathError::TooManyFlows { limit: 3 }, 3)
                ),
            },
            (1, Some(sid)) => {
                datapath.close(sid, &mut out).expect("the flow lives");
                live.retain(|other| *other != sid);
            }
            (2, Some(sid)) => {
                now_us += u64::from(choices.byte()) << 8;
                let ack = Primitives {
                    bytes_acked: choices.byte().into(),
                    rtt_sample_us: choices.byte().into(),
                    ..Primitives::default()
                };
                let outcome = datapath.invoke(sid, now_us, &ack, 14_480, 1_000_000, &mut out);
                let outcome = outcome.expect("the flow lives");
                assert!(outcome.cwnd != Some(0) && outcome.rate != Some(0));
            }
            (3, _) => {
                let program = choices.program(some as u32 % 4);
                // The table may be full; then nothing has changed.
                let _ = datapath.deliver(&Message::Install(program).encode());
            }
            (4, flow) => {
                let mut updates = Updates::default();
                updates.set(some % Updates::ENTRIES, choices.byte().into());
                let (sid, uid) = (flow.unwrap_or(some as u32), choices.byte().into());
                let message = match choices.byte() % 2 {
                    0 => Message::Update { sid, updates },
                    _ => Message::ChangeProgram { sid, uid, updates },
                };
                let taken = datapath.deliver(&message.encode());
                assert!(taken.is_err() || flow.is_some());
            }
            (_, _) => {
                let (raw, rest) = choices.0.split_at(some.min(choices.0.len()));
                choices.0 = rest;
                let _ = datapath.deliver(raw);
            }
        }
        check(&out);
        out.clear();
    }
}

/// Whole messages, none longer than what an agent reads at once.
fn check(mut sent: &[u8]) {
    while !sent.is_empty() {
        let len = usize::from(u16::from_le_bytes([sent[2], sent[3]]));
        assert!((12..=144).contains(&len));
        sent = &sent[len..];
    }
}
