//! Queue disciplines by name, for scenarios and flags.

use super::values::Queue;
use clap::ValueEnum;
use pathsim::{CoDel, Pie, QueueDiscipline, Sfq};

/// Queue disciplines.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aqm {
    /// Drop-tail
    None,
    /// CoDel, RFC 8289
    #[value(name = "codel")]
    CoDel,
    /// PIE, RFC 8033
    Pie,
    /// Stochastic fairness queueing, as Linux' sfq
    Sfq,
}

impl Aqm {
    /// The one of that name.
    pub(super) fn named(text: &str) -> Result<Self, String> {
        Self::from_str(text, false).map_err(|_| {
            format!("`{text}` is not a queue discipline: write none, codel, pie or sfq")
        })
    }

    /// What its queue holds if nothing else is said.
    pub(super) fn usual_queue(self) -> Queue {
        match self {
            Self::Sfq => Queue::Packets(Sfq::LINUX_LIMIT_PACKETS),
            Self::None | Self::CoDel | Self::Pie => Queue::Products(1.0),
        }
    }

    /// The discipline with its usual settings.
    pub(super) fn discipline(self) -> QueueDiscipline {
        match self {
            Self::None => QueueDiscipline::DropTail,
            Self::CoDel => QueueDiscipline::CoDel(CoDel::default()),
            Self::Pie => QueueDiscipline::Pie(Pie::default()),
            Self::Sfq => QueueDiscipline::Sfq(Sfq::default()),
        }
    }
}
