//! A comparison made in guests, for the eye and as JSON.

use std::fmt;

use serde::Serialize;

use super::{Config, Outcome};
use crate::row::Row;
use crate::table;

/// Rows and what made them; serialized, a JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One row per run, in the order of the runs.
    pub rows: Vec<Row>,
    /// The guests.
    pub guest: GuestSummary,
}

/// What all guests of a comparison had in common, and what they took.
#[derive(Clone, Debug, Serialize)]
pub struct GuestSummary {
    /// Release of the kernel; empty if there was no run.
    pub kernel: String,
    /// Seed of the guests' randomness.
    pub seed: u64,
    /// Whether TCP could send bursts to the sender's device.
    pub bursts: bool,
    /// Wall time of all guests, one after the other, in seconds.
    pub wall_s: f64,
}

impl Report {
    /// The report of `outcomes`, which [`run`](super::run) made under `config`.
    pub fn new(config: &Config, outcomes: Vec<Outcome>) -> Self {
        let guest = GuestSummary {
            kernel: outcomes
                .first()
                .map(|outcome| outcome.kernel.clone())
                .unwrap_or_default(),
            seed: config.seed,
            bursts: config.bursts,
            wall_s: outcomes
                .iter()
                .map(|outcome| outcome.wall.as_secs_f64())
                .sum(),
        };
        Self {
            rows: outcomes.into_iter().map(|outcome| outcome.row).collect(),
            guest,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GuestSummary {
            kernel,
            seed,
            bursts,
            wall_s,
        } = &self.guest;
        writeln!(f, "{}", table::render(&self.rows))?;
        let sends = if *bursts {
            "in bursts"
        } else {
            "packet by packet (gso_max_segs 1)"
        };
        writeln!(
            f,
            "share: goodput at the receiver / (rate x 1448/1500 x (1 - loss)); TCP sends {sends}\n\
             guest: Linux {kernel}, virtual time, seed {seed}; {wall_s:.0} s of wall time"
        )
    }
}
