//! PK3C congestion control.
//!
//! A datapath in the kernel runs a small program on every ACK ([`program`]) and reports once per monitor interval; the
//! algorithm here answers with rates and a congestion window. It is PCC Vivace's online learning with a fast start,
//! five handbrakes, a cruise for flows that have all of their path, and an additive climber for slow paths and small
//! buffers.
//!
//! ```text
//!   RawReport ──▶ estimate ──▶ controller: startup │ drain │ compete │ handbrake │ cruise │ aimd │ vivace ──▶ Decision
//!   (program)     (Mi, what      (one per flow, pure: no I/O, no clock, seeded chance)                       (plan)
//!                  is known)
//! ```
//!
//! A flow that starts, suspects competitors, or is about to take a path for its own hears from others to the same
//! address what they know of the path ([`ensemble`]): the only thing that flows tell each other, and an input like the
//! reports.
//!
//! [`agent`] is portus' side, the only module with a clock and logs; [`stats`] declares what it counts and tells while
//! it runs; [`record`] writes what went in and out, on a thread of its own ([`spool`]); [`simulate`] runs the same
//! controllers and program (through portus' compiler) in virtual time. Everything else is a function of parameters,
//! seed and inputs, and can be replayed from a record. Its floating-point functions are [`libm`]'s or exact in IEEE
//! 754, so a decision is the same on every machine.
//!
//! For comparisons there are two more algorithms on the same reports, the bare core (`--algorithm vivace`) and the
//! decisions of the upstream kernel module ([`upstream`]), and one that is a program of its own ([`exp`]).

pub mod agent;
pub mod aimd;
pub mod compete;
pub mod controller;
pub mod cruise;
pub mod ensemble;
pub mod estimate;
pub mod exp;
pub mod governor;
pub mod handbrake;
pub mod params;
pub mod plan;
pub mod policy;
pub mod program;
pub mod record;
pub mod simulate;
pub mod spool;
pub mod startup;
pub mod stats;
pub mod units;
pub mod upstream;
pub mod vivace;
