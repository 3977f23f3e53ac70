//! A discrete-event simulator of TCP flows that share one bottleneck, in virtual time.
//!
//! ```text
//!   Sender ──▶ Link (rate, drop-tail queue, loss, delay, jitter) ──▶ Receiver
//!     ▲  └ Controller: Reno, Cubic, CcpFlow(program + Agent)            │
//!     └──────────────── ACKs, with their delay ─────────────────────────┘
//! ```
//!
//! Packets, not bytes, are simulated: every segment is [`MSS`] bytes of payload in [`WIRE`] bytes on
//! the link. Time is integer nanoseconds, chance is ChaCha with the scenario's seed, and cube roots
//! come from `libm`, so the same scenario and seed give the same result on every machine.
//!
//! What is simplified: the way back loses nothing and has no queue, receivers take all that comes,
//! there is no handshake, segments are never split, and random loss falls behind the bottleneck
//! (a lost packet has used its capacity).
#![forbid(unsafe_code)]

mod ccp;
mod control;
mod cubic;
mod link;
mod receiver;
mod reno;
mod results;
mod scenario;
mod sender;
mod simulation;

pub use ccp::{Agent, CcpFlow};
pub use control::{Ack, Controller, FixedRate, Sending};
pub use cubic::Cubic;
pub use reno::Reno;
pub use results::{Bin, FlowResult, LinkBin, Results, jain};
pub use scenario::{
    AckPolicy, FlowSpec, InvalidScenario, Jitter, Loss, PathSpec, QueueLimit, RateSchedule,
    Scenario, Source, Trace, Transport,
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
