//! A discrete-event simulator of TCP flows that share one bottleneck, in virtual time.
//!
//! ```text
//!   Sender ──▶ Link (rate, queue, loss, jitter) ──▶ propagation ──▶ Receiver
//!     ▲  └ Controller: Reno, Cubic, Bbr, CcpFlow(program + Agent)       │
//!     └──────────────── ACKs, with their delay and loss ────────────────┘
//! ```
//!
//! The [`link`] is public: an emulator of real packets uses the same model.
//!
//! Packets, not bytes, are simulated: every segment is [`MSS`] bytes of payload in [`WIRE`] bytes on
//! the link. Time is integer nanoseconds, chance is ChaCha with the scenario's seed, and roots
//! come from `libm`, so the same scenario and seed give the same result on every machine.
//!
//! Sender and receiver do what Linux does: SACK and RACK with tail loss probes, PRR under Reno and Cubic,
//! pacing in bursts, delayed and compressed ACKs. `docs/simulator.md` compares whole runs with a real kernel's.
//!
//! What is simplified:
//! - the way back has no queue; ACKs can be lost, and carry all that has arrived, not three blocks of it;
//! - a receiver's application reads at once, so that the receive window is constant;
//! - there is no handshake, and a flow knows no RTT before its first ACK;
//! - segments are all of full size and never split; there is no ECN;
//! - hosts are infinitely fast; what Linux keeps in its own queues (TSQ, fq) has not been sent yet here;
//! - a probe that repairs a loss at the tail does not reduce the window.
#![forbid(unsafe_code)]

mod bbr;
mod ccp;
mod control;
mod cubic;
mod distribution;
mod flow;
pub mod link;
mod network;
mod prr;
mod receiver;
mod reno;
mod results;
mod scenario;
mod sender;
mod simulation;

pub use bbr::Bbr;
pub use ccp::{Agent, CcpFlow, UPTIME_US};
pub use control::{Ack, Controller, FixedRate, RateSample, Sending};
pub use cubic::Cubic;
pub use distribution::Distribution;
pub use reno::Reno;
pub use results::{Bin, FlowResult, LinkBin, Results, jain};
pub use scenario::{
    AckPolicy, CoDel, FlowSpec, InvalidScenario, Jitter, Lie, Loss, LossPlace, PathSpec, Pie,
    QueueDiscipline, QueueLimit, RateSchedule, RouteChange, Scenario, Sfq, Source, TokenBucket,
    Trace, Transport,
};
pub use simulation::Simulation;

/// Payload of a segment, bytes.
pub const MSS: u64 = 1448;
/// A segment on the link, bytes: MSS with headers of TCP (timestamps) and IPv4.
pub const WIRE: u64 = 1500;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a microsecond.
const MICROSECOND: u64 = 1000;

fn seconds(ns: u64) -> f64 {
    ns as f64 / SECOND as f64
}
