//! What an agent may do with a flow: drive it, watch it or leave it alone, and within which limits.
//!
//! The agent writes this per flow into the flow table ([`crate::Observer::govern`]), the kernel reads it at each use.
//! So a limit binds whatever the algorithm asks for, and goes on binding a flow whose agent is gone, until the flow
//! ends or the next agent begins with its own. It does not bind a process that writes into the flow table behind this
//! API; the limits of [`crate::Config`] do.

use crate::layout::{ANY_LOSS_PPM, DRIVE, LEAVE, OBSERVE, SharedGovernance};
use std::sync::atomic::Ordering::*;

/// Who decides about a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The agent.
    #[default]
    Drive,
    /// The fallback. The agent's program runs beside it and reports as if it drove, but neither its window nor its rate
    /// take effect; in the program, `Cwnd` and `Rate` read those in force.
    Observe,
    /// The fallback. The flow is not offered to the agent and runs no program; its totals are counted.
    Leave,
}

/// Bounds for what an agent makes of a flow. They hold in [`Mode::Drive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Smallest pacing rate in bytes/s, 0 for none; the window is kept large enough for it. It does not bind the
    /// fallback.
    pub min_rate: u64,
    /// Largest pacing rate in bytes/s, `u64::MAX` for none but [`crate::Config::max_flow_rate`]. It beats `min_rate`,
    /// and binds the fallback, too. No limit is below [`crate::Config::min_rate`].
    pub max_rate: u64,
    /// Share of packets that may be lost, in millionths; from 1,000,000 every share may. Judged over windows of at
    /// least 1 s and 200 packets: a flow that lost more goes to the fallback for 10 s
    /// ([`crate::Counters::fallbacks_loss`]), and is offered to the agent again after that.
    pub max_loss_ppm: u32,
}

impl Limits {
    /// No limits but those of the datapath.
    pub const NONE: Self = Self {
        min_rate: 0,
        max_rate: u64::MAX,
        max_loss_ppm: ANY_LOSS_PPM,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::NONE
    }
}

/// How a flow may be driven. By default without limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Governance {
    /// Who decides.
    pub mode: Mode,
    /// Within which bounds the agent decides.
    pub limits: Limits,
}

impl SharedGovernance {
    pub(crate) fn load(&self) -> Governance {
        let mode = match self.mode.load(Relaxed) {
            DRIVE => Mode::Drive,
            OBSERVE => Mode::Observe,
            _ => Mode::Leave,
        };
        let limits = Limits {
            min_rate: self.min_rate.load(Relaxed),
            max_rate: self.max_rate.load(Relaxed),
            max_loss_ppm: self.max_loss_ppm.load(Relaxed),
        };
        Governance { mode, limits }
    }

    /// The limits are there when the mode is. No flow may go faster than `ceiling`, bytes/s.
    pub(crate) fn store(&self, governance: &Governance, ceiling: u64) {
        let Limits {
            min_rate,
            max_rate,
            max_loss_ppm,
        } = governance.limits;
        self.min_rate.store(min_rate, Relaxed);
        self.max_rate.store(max_rate.min(ceiling), Relaxed);
        self.max_loss_ppm.store(max_loss_ppm, Relaxed);
        let mode = match governance.mode {
            Mode::Drive => DRIVE,
            Mode::Observe => OBSERVE,
            Mode::Leave => LEAVE,
        };
        self.mode.store(mode, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded_and_unknown_modes_leave_the_flow_alone() {
        let shared = SharedGovernance::default();
        for mode in [Mode::Drive, Mode::Observe, Mode::Leave] {
            let governance = Governance {
                mode,
                limits: Limits {
                    min_rate: 1,
                    max_rate: 2,
                    max_loss_ppm: 3,
                },
            };
            shared.store(&governance, u64::MAX);
            assert_eq!(shared.load(), governance);
            shared.store(&governance, 1);
            assert_eq!(shared.load().limits.max_rate, 1);
        }
        shared.mode.store(77, Relaxed);
        assert_eq!(shared.load().mode, Mode::Leave);
    }
}
