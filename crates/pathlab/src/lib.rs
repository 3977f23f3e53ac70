//! Emulated network paths with real TCP: what does a congestion control reach on this path?
//!
//! ```text
//!   iperf3 -C scheme        emulator: one thread, SCHED_FIFO              iperf3 -s
//!   client namespace ── TUN ──[ rate, queue, loss, delay ]── TUN ── server namespace
//! ```
//!
//! - [`direction`] is one direction of a path, without input or output; [`emulator`] applies two of them
//!   to packets, and counts them by flow ([`flows`], [`packet_log`]); [`path`] puts them between two network
//!   namespaces ([`netns`], [`tun`]).
//! - [`self_check`] measures what the emulator makes of a path, [`accuracy`] has the paths on which that is stated.
//! - [`program`] runs any program on a path, with all that it starts.
//! - [`host`] carries out one run: traffic by [`iperf`], the [`agent`] of a scheme that has one.
//! - [`demo`] compares schemes over several paths; [`table`] shows its [`row`]s.
//! - [`requirements`] says beforehand what a machine lacks.
//! - [`guest`] carries runs out in a virtual machine instead, in virtual time and without root.
//!
//! All but the guest takes root. It leaves nothing behind, however it ends: namespaces have no names,
//! devices live with their open files, and the kernel ends child processes with their parent.
//!
//! ```no_run
//! use std::time::Duration;
//! use pathlab::{Interrupt, host, scenario::{PathSpec, Scheme}};
//!
//! let run = host::Run {
//!     path: PathSpec::demo().remove(0),
//!     scheme: Scheme::Kernel("cubic".into()),
//!     flows: 1,
//!     duration: Duration::from_secs(5),
//!     seed: 1,
//! };
//! let result = host::run(&run, &Interrupt::on_signals()?)?;
//! println!("{:.1} Mbit/s", result.row.goodput_mbps);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod accuracy;
pub mod agent;
pub mod attempts;
mod awake;
mod buffers;
mod carrier;
pub mod chart;
pub mod demo;
pub mod direction;
pub mod ecn;
pub mod emulator;
pub mod flows;
pub mod guest;
pub mod host;
pub mod iperf;
pub mod lab;
pub mod lateness;
pub mod netns;
mod null_sender;
pub mod packet_log;
pub mod path;
mod process;
pub mod program;
pub mod requirements;
pub mod row;
pub mod scenario;
pub mod scheduling;
pub mod self_check;
pub mod table;
pub mod traffic;
pub mod tun;

pub use process::{Interrupt, WaitError};
