//! PK3C congestion control.
//!
//! A datapath in the kernel runs a small program on every ACK ([`program`]) and reports once per monitor interval; the
//! algorithm here answers with rates and a congestion window. It is PCC Vivace's online learning with a fast start,
//! handbrakes for heavy loss and standing queues, and a climber for slow paths.
//!
//! ```text
//!   RawReport ──▶ estimate ──▶ controller: startup │ drain │ handbrake │ aimd │ vivace ──▶ Decision
//!   (program)     (Mi, what      (one per flow, pure: no I/O, no clock, seeded chance)      (plan)
//!                  is known)
//! ```
//!
//! [`agent`] is portus' side, the only module with a clock and logs; [`record`] writes what went in and out;
//! [`simulate`] runs the same controllers and program (through portus' compiler) in virtual time. Everything else is a
//! function of parameters, seed and reports, and can be replayed from a record.
//!
//! Left to later versions, and named again where they belong: a mode to compete with buffer-filling flows, a restart
//! of the fast start on a path that grew, and compatibility with the upstream module's decisions.

pub mod agent;
pub mod aimd;
pub mod controller;
pub mod estimate;
pub mod governor;
pub mod handbrake;
pub mod params;
pub mod plan;
pub mod program;
pub mod record;
pub mod simulate;
pub mod startup;
pub mod units;
pub mod vivace;
