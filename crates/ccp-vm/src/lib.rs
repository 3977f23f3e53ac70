//! The CCP machine in safe Rust: it validates what an agent sends and runs CCP programs.
//!
//! The congestion control plane (CCP) splits congestion control in two. A *datapath* measures every
//! ACK and sets the window and the rate; an *agent* (a [portus](https://crates.io/crates/portus)
//! algorithm) sends the datapath small programs that say what to measure and when to report. This
//! crate is a datapath without a network: no input or output, no threads, and time is an argument,
//! so that it runs in a simulator's virtual time as well as in a test.
//!
//! - [`Message`] and [`Program`] decode and validate every byte of the agent. What they accept is
//!   safe to run, and ends. All datapaths of this project share them.
//! - [`Machine`] runs one flow's program on given [`Primitives`]. It is the reference: the
//!   translation to BPF is tested against it, and it is tested against libccp's `machine.c`.
//! - [`Datapath`] is programs and flows around it, with portus' messages on both sides.
//!
//! ```
//! use ccp_vm::{Datapath, FlowInfo, Limits, Primitives};
//!
//! let mut datapath = Datapath::new(Limits::default());
//! let mut to_agent = datapath.ready(1).to_vec();
//! let sid = datapath.open(&FlowInfo::default(), &mut to_agent)?;
//! // The agent's answers go to `datapath.deliver(message)`. Then, per ACK:
//! let (now_us, cwnd, rate) = (1_000_000, 14_480, 1_250_000);
//! let ack = Primitives { bytes_acked: 1448, ..Primitives::default() };
//! let outcome = datapath.invoke(sid, now_us, &ack, cwnd, rate, &mut to_agent)?;
//! assert!(outcome.error.is_some(), "no agent has given this flow a program");
//! # Ok::<(), ccp_vm::DatapathError>(())
//! ```
//!
//! # Where this is not libccp
//! Programs run as in libccp's `machine.c`, errors and odd corners included; `tests/conformance.rs`
//! compares the two. But libccp trusts the agent. What differs on purpose is a test there, named
//! `differs_*`:
//!
//! - Registers out of range, ranges past the end, end indices that a byte cannot hold, too many
//!   definitions, definitions out of place: refused. libccp would read and write out of bounds, or
//!   never end. A register defined twice is refused, too: its report would be longer than its file.
//! - A message is taken whole or not at all, and must end where it says; a failed install leaves
//!   nothing behind; a uid installed again replaces only itself; a program that is not installed
//!   is an error.
//! - A slot can be used again at once, under another id.
//! - Cwnd and Rate keep their 64 bits; libccp passes on the lower 32.
//! - `Ack.now` and Micros stand still during an invocation, and a program sets Micros in µs.
//! - A flow without a program takes no updates.
#![forbid(unsafe_code)]

mod datapath;
mod machine;
mod message;
mod program;
mod register;

pub use datapath::{Datapath, DatapathError, FlowInfo, Limits};
pub use machine::{Machine, MachineError, Outcome, Primitives, Report};
pub use message::{InvalidMessage, Message, Updates};
pub use program::{Definition, Event, Instruction, InvalidProgram, MAX_INSTRUCTIONS, Op, Program};
pub use register::{
    NO_RTT_SAMPLE, NUM_CONTROL, NUM_IMPLICIT, NUM_LOCAL, NUM_PRIMITIVE, NUM_REPORT, NUM_TMP, Reg,
};
