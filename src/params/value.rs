//! The kinds of values that parameters have, and how each is read and written.

use crate::units::{Micros, Rate, Ratio, UnitError};
use std::fmt;
use std::str::FromStr;

/// What kind of value a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A [`Rate`], such as `50mbit`.
    Rate,
    /// A duration, [`Micros`], such as `2ms`.
    Duration,
    /// A [`Ratio`], such as `5%`.
    Ratio,
    /// A plain number, such as `2.5`.
    Number,
    /// A whole number, such as `12`.
    Count,
    /// A list of [`Handbrake`] names, such as `loss,queue`.
    Handbrakes,
    /// The name of an [`Algorithm`].
    Algorithm,
    /// `on` or `off`; a flag without a value means `on`.
    Switch,
}

impl Kind {
    /// Placeholder for help texts.
    #[must_use]
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Rate => "RATE",
            Self::Duration => "TIME",
            Self::Ratio => "RATIO",
            Self::Number => "NUMBER",
            Self::Count => "COUNT",
            Self::Handbrakes => "NAME[,NAME]",
            Self::Algorithm => "NAME",
            Self::Switch => "on|off",
        }
    }
}

/// A type that a parameter may have.
pub(super) trait Value: Copy + PartialOrd + fmt::Display {
    const KIND: Kind;
    fn read(text: &str) -> Result<Self, UnitError>;
    fn range(low: Self, high: Self) -> String {
        format!("{low} to {high}")
    }
}

impl Value for Rate {
    const KIND: Kind = Kind::Rate;
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl Value for Micros {
    const KIND: Kind = Kind::Duration;
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl Value for Ratio {
    const KIND: Kind = Kind::Ratio;
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl Value for f64 {
    const KIND: Kind = Kind::Number;
    fn read(text: &str) -> Result<Self, UnitError> {
        let number = text.trim().parse().ok().filter(|n: &Self| n.is_finite());
        number.ok_or_else(|| UnitError {
            text: text.to_owned(),
            kind: "number",
            expected: "a plain number, such as 2.5",
        })
    }
}

impl Value for u32 {
    const KIND: Kind = Kind::Count;
    fn read(text: &str) -> Result<Self, UnitError> {
        text.trim().parse().map_err(|_| UnitError {
            text: text.to_owned(),
            kind: "count",
            expected: "a whole number, such as 12",
        })
    }
}

/// A rule beside the utility function that can be switched off, see [`crate::handbrake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handbrake {
    /// Cut on heavy or congestive loss.
    Loss,
    /// Cut and drain on a standing queue.
    Queue,
    /// Keep a share beside flows that fill the queue.
    Compete,
    /// Start fast again on a path that grew.
    Restart,
    /// Never far above what was ever delivered.
    Ceiling,
    /// Back below what arrives after a step that filled the queue.
    Overshoot,
    /// Equal additions on the way back to an edge, where others share the path.
    Sharing,
    /// Do as BBR does beside BBR.
    Bbr,
    /// Ride at the edge of a path that is the flow's own.
    Cruise,
    /// Hear what other flows to the same address know of the path.
    Ensemble,
    /// No faster than a shaper, once its rate has shown.
    Shaper,
}

/// A set of [`Handbrake`]s. Written as names separated by commas; the empty set is written `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub struct HandbrakeSet(u16);

impl HandbrakeSet {
    /// No handbrake.
    pub(super) const NONE: Self = Self(0);
    /// Every handbrake.
    pub(super) const EVERY: Self = Self(u16::MAX >> (u16::BITS as usize - Self::ALL.len()));
    const ALL: [(Handbrake, &str); 11] = [
        (Handbrake::Loss, "loss"),
        (Handbrake::Queue, "queue"),
        (Handbrake::Compete, "compete"),
        (Handbrake::Restart, "restart"),
        (Handbrake::Ceiling, "ceiling"),
        (Handbrake::Overshoot, "overshoot"),
        (Handbrake::Sharing, "sharing"),
        (Handbrake::Bbr, "bbr"),
        (Handbrake::Cruise, "cruise"),
        (Handbrake::Ensemble, "ensemble"),
        (Handbrake::Shaper, "shaper"),
    ];

    /// Whether `handbrake` is in the set.
    #[must_use]
    pub fn contains(self, handbrake: Handbrake) -> bool {
        self.0 & (1 << handbrake as u16) != 0
    }
}

impl FromStr for HandbrakeSet {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == "none" {
            return Ok(Self(0));
        }
        text.split(',').try_fold(Self(0), |set, part| {
            let known = Self::ALL.iter().find(|(_, name)| *name == part.trim());
            known
                .map(|(handbrake, _)| Self(set.0 | 1 << *handbrake as u16))
                .ok_or_else(|| UnitError {
                    text: text.to_owned(),
                    kind: "list of handbrakes",
                    expected: "loss, queue, compete, restart, ceiling, overshoot, sharing, bbr, cruise, ensemble, shaper or none, several separated by commas",
                })
        })
    }
}

impl fmt::Display for HandbrakeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (_, name) in Self::ALL
            .iter()
            .filter(|(handbrake, _)| self.contains(*handbrake))
        {
            write!(f, "{between}{name}")?;
            between = ",";
        }
        if self.0 == 0 {
            f.write_str("none")
        } else {
            Ok(())
        }
    }
}

impl Value for HandbrakeSet {
    const KIND: Kind = Kind::Handbrakes;
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
    }
    fn range(_: Self, high: Self) -> String {
        format!("none, or some of {high}")
    }
}

/// What a controller follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// This project's algorithm.
    Pk3c,
    /// The bare core as published.
    Vivace,
    /// The decisions of the upstream kernel module.
    Upstream,
}

/// Which algorithm drives a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub enum Algorithm {
    /// Vivace with the fast start, the handbrakes, the climber and the loss floor: this project's algorithm.
    #[default]
    Pk3c,
    /// The bare core as published, for comparison: its own start, no handbrake, no climber, every loss counts.
    Vivace,
    /// The decisions of the upstream kernel module, for comparison; see [`crate::upstream`].
    Upstream,
    /// The fast starter of a course, for comparison: a program of its own without a controller, see [`crate::exp`].
    /// A flow has it from its start; a [`crate::controller::Controller`] with it is that of `Pk3c`.
    Exp,
}

impl Algorithm {
    const ALL: [(Self, &str); 4] = [
        (Self::Pk3c, "pk3c"),
        (Self::Vivace, "vivace"),
        (Self::Upstream, "upstream"),
        (Self::Exp, "exp"),
    ];

    /// All names, for messages.
    #[must_use]
    pub fn names() -> &'static str {
        "pk3c, vivace, upstream or exp"
    }
}

impl FromStr for Algorithm {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text.trim());
        known
            .map(|(algorithm, _)| *algorithm)
            .ok_or_else(|| UnitError {
                text: text.to_owned(),
                kind: "algorithm",
                expected: Self::names(),
            })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::ALL.iter().find(|(algorithm, _)| algorithm == self);
        f.pad(known.map_or("pk3c", |(_, name)| name))
    }
}

impl Value for Algorithm {
    const KIND: Kind = Kind::Algorithm;
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
    }
    fn range(_: Self, _: Self) -> String {
        Self::names().to_owned()
    }
}

/// A thing that is on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub struct Switch(pub bool);

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.0 { "on" } else { "off" })
    }
}

impl Value for Switch {
    const KIND: Kind = Kind::Switch;
    fn read(text: &str) -> Result<Self, UnitError> {
        match text.trim() {
            "on" => Ok(Self(true)),
            "off" => Ok(Self(false)),
            _ => Err(UnitError {
                text: text.to_owned(),
                kind: "switch",
                expected: "on or off",
            }),
        }
    }
    fn range(_: Self, _: Self) -> String {
        "on or off".to_owned()
    }
}
