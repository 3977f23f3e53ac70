//! Records of what went in and out of the controllers: written by `run --record`, read by `replay`.
//!
//! A record is a text file of JSON lines. The first line is [`Line::Header`]; every later line is one of the other
//! kinds, told apart by its `"line"` member. **Version 1**:
//!
//! | `line` | members |
//! |---|---|
//! | `header` | `format` "pk3c-record", `version`, `params` (flag → value), `fields` (names of `raw`, in order) |
//! | `start` | `flow` (number, unique in the file), `at_s` (s since the record began), `sock_id`, `local` and `remote` (address and port), `mss` and `init_cwnd` (bytes), `seed`, `resume` ([bytes/s, srtt µs], or null for a new flow), and `decision` |
//! | `readopt` | `flow`, `at_s`, `mss` (if it has changed), `init_cwnd`, `resume` as above, `decision`: the same controller goes on after a fallback |
//! | `report` | `flow`, `raw` (the 16 fields of [`crate::program::RawReport`]), `mss` (if it has changed), `stale` (true if it came after a newer plan was sent; absent otherwise), `known` ([smallest RTT µs, share bytes/s, whether they have all], what it hears of others, see [`crate::ensemble`]; absent if nothing), `active` (how many of them take what they can get now; absent with `known`, and in older records), `carries` (bytes/s that one of them knows the path to carry; absent if none does, and in older records), `decision` |
//! | `params` | `flow`, `params`: the flow's parameters change; with `flow` null, those of the flows that start later |
//! | `end` | `flow`, `at_s` |
//!
//! A `decision` holds `phase`, `reason`, `rate` (bytes/s), `cwnd` (bytes), and `told`: null, `{"run": {plan, rates,
//! hold, mi_us}}`, `{"steer": {rate, mi_us}}` or `"window"`. Rates are rounded to whole bytes per second, as they are
//! sent. Everything else is an input. `docs/records.md` explains each member.
//!
//! Since a controller is a function of parameters, seed and these inputs, [`Replay`] repeats every decision of a record.
//! Readers ignore members they do not know; a change of meaning raises the version.

mod accept;
mod read;
mod replay;
mod write;

pub use accept::{AcceptError, accept};
pub use read::{Reader, RecordError};
pub use replay::{Input, Measured, Replay, Step, align};
pub use write::Recorder;

use crate::params::{ParamError, Params};
use crate::plan::{Command, Decision};
use crate::units::{Micros, Rate};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Version of the format.
pub const VERSION: u32 = 1;
const FORMAT: &str = "pk3c-record";

/// A decision as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Name of the phase after it.
    pub phase: Cow<'static, str>,
    /// Name of its reason.
    pub reason: Cow<'static, str>,
    /// Central rate, bytes/s.
    pub rate: u32,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// What the datapath was told.
    pub told: Option<Told>,
}

/// A command as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// A new plan.
    Run {
        /// Its number.
        plan: u32,
        /// The four rates, bytes/s.
        rates: [u32; 4],
        /// The rate afterwards, bytes/s.
        hold: u32,
        /// Length of each interval, µs.
        mi_us: u32,
    },
    /// One rate at once.
    Steer {
        /// Bytes/s.
        rate: u32,
        /// Length of the intervals, µs.
        mi_us: u32,
    },
    /// The window only.
    Window,
}

impl From<&Decision> for Decided {
    fn from(decision: &Decision) -> Self {
        Self {
            phase: decision.phase.name().into(),
            reason: decision.reason.name().into(),
            rate: decision.rate.to_wire(),
            cwnd: decision.cwnd.get(),
            told: decision.command.map(|command| match command {
                Command::Run { plan, .. } => Told::Run {
                    plan: plan.number,
                    rates: plan.rates.map(Rate::to_wire),
                    hold: plan.hold.to_wire(),
                    mi_us: plan.length.to_wire(),
                },
                Command::Steer { rate, length, .. } => Told::Steer {
                    rate: rate.to_wire(),
                    mi_us: length.to_wire(),
                },
                Command::Window { .. } => Told::Window,
            }),
        }
    }
}

/// Rate (bytes/s) and smoothed RTT (µs) of a flow that was running.
pub type Resumed = Option<(u32, u64)>;

/// Parameters, flag → value.
pub type Texts = BTreeMap<Cow<'static, str>, String>;

/// Parameters as recorded.
#[must_use]
pub fn texts(params: &Params) -> Texts {
    params
        .to_text()
        .map(|(flag, value)| (flag.into(), value))
        .collect()
}

/// The inverse of [`texts`]; a parameter that the record does not name has its default.
///
/// # Errors
/// If a parameter is unknown here, or its value is not allowed.
pub fn params(texts: &Texts) -> Result<Params, ParamError> {
    let mut params = Params::default();
    for (flag, value) in texts {
        params.set(flag, value)?;
    }
    Ok(params)
}

/// One line of a record. The members are explained at the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
#[allow(missing_docs)] // the table above is their documentation
pub enum Line {
    Header {
        format: Cow<'static, str>,
        version: u32,
        params: Texts,
        fields: Vec<Cow<'static, str>>,
    },
    Start {
        flow: u64,
        at_s: f64,
        sock_id: u32,
        local: SocketAddr,
        remote: SocketAddr,
        mss: u64,
        init_cwnd: u64,
        seed: u64,
        resume: Resumed,
        decision: Decided,
    },
    Readopt {
        flow: u64,
        at_s: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mss: Option<u64>,
        init_cwnd: u64,
        resume: Resumed,
        decision: Decided,
    },
    Params {
        flow: Option<u64>,
        params: Texts,
    },
    Report {
        flow: u64,
        raw: [u64; 16],
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mss: Option<u64>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stale: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<(u64, u32, bool)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        active: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carries: Option<u32>,
        decision: Decided,
    },
    End {
        flow: u64,
        at_s: f64,
    },
}

/// Rounds to what a record holds, so that a replay starts from the same value.
#[must_use]
pub fn resumed(resume: Option<(Rate, Micros)>) -> Resumed {
    resume.map(|(rate, srtt)| (rate.to_wire(), srtt.us()))
}

/// The inverse of [`resumed`].
#[must_use]
pub fn resume(resumed: Resumed) -> Option<(Rate, Micros)> {
    resumed.map(|(rate, srtt)| (Rate::from_bytes_per_sec(f64::from(rate)), Micros::new(srtt)))
}

#[cfg(test)]
mod tests;
