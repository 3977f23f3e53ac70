//! Experiments: flows over a path, carried out with real TCP, and what they showed.

pub mod result;
pub mod run;
