//! Experiments: flows over a path, carried out with real TCP, and what they showed.

mod elsewhere;
pub mod flent;
pub mod format;
pub mod guest;
pub mod host;
pub mod inputs;
mod iperf3;
mod line;
mod netem;
mod outcome;
pub mod report;
pub mod result;
pub mod run;
pub mod score;
pub mod statistics;
pub mod suite;
