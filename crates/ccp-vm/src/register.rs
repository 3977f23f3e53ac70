//! The registers of a CCP program.
//!
//! On the wire a register is a type (one byte) and an index or value (four bytes). The numbers of
//! registers are portus' limits, not libccp's (which has 110 report and control registers, and 8
//! local ones): no portus program can name more, and a flow's memory is spent on what can be used.

/// Report registers: what a report carries.
pub const NUM_REPORT: u8 = 16;
/// Control registers: what the agent can set.
pub const NUM_CONTROL: u8 = 16;
/// Implicit registers: event flag, fallthrough, report, Micros, Cwnd, Rate.
pub const NUM_IMPLICIT: u8 = 6;
/// Registers for names that a program binds without defining them.
pub const NUM_LOCAL: u8 = 6;
/// Registers for intermediate results.
pub const NUM_TMP: u8 = 8;
/// Measurements of the current ACK.
pub const NUM_PRIMITIVE: u8 = 15;

/// What `Flow.rtt_sample_us` reads on an ACK without an RTT sample.
pub const NO_RTT_SAMPLE: u64 = 0xffff_ffff;

/// A register of a program, or an immediate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reg {
    /// A constant.
    Immediate(u32),
    /// Goes into reports; index below [`NUM_REPORT`].
    Report(u8),
    /// Set by the agent or the program; index below [`NUM_CONTROL`].
    Control(u8),
    /// One of [`Reg::FLAG`] to [`Reg::RATE`]; index below [`NUM_IMPLICIT`].
    Implicit(u8),
    /// Keeps its value between invocations; index below [`NUM_LOCAL`].
    Local(u8),
    /// An intermediate result; index below [`NUM_TMP`].
    Tmp(u8),
    /// A measurement, read only; index below [`NUM_PRIMITIVE`].
    Primitive(u8),
}

impl Reg {
    /// Whether the present event is taken.
    pub const FLAG: Self = Self::Implicit(0);
    /// Whether events after one that was taken are looked at, too.
    pub const FALLTHROUGH: Self = Self::Implicit(1);
    /// Whether to report when the program has ended.
    pub const REPORT: Self = Self::Implicit(2);
    /// µs since the program last set it, or since it began.
    pub const MICROS: Self = Self::Implicit(3);
    /// The congestion window in bytes.
    pub const CWND: Self = Self::Implicit(4);
    /// The pacing rate in bytes per second.
    pub const RATE: Self = Self::Implicit(5);
    /// The time of this invocation in µs.
    pub const NOW: Self = Self::Primitive(5);
    /// Delivery rate of this ACK's packets in bytes per second.
    pub const RATE_INCOMING: Self = Self::Primitive(11);
    /// Send rate of this ACK's packets in bytes per second.
    pub const RATE_OUTGOING: Self = Self::Primitive(12);

    /// Whether the index is in range for the kind.
    pub(crate) fn exists(self) -> bool {
        match self {
            Self::Immediate(_) => true,
            Self::Report(i) => i < NUM_REPORT,
            Self::Control(i) => i < NUM_CONTROL,
            Self::Implicit(i) => i < NUM_IMPLICIT,
            Self::Local(i) => i < NUM_LOCAL,
            Self::Tmp(i) => i < NUM_TMP,
            Self::Primitive(i) => i < NUM_PRIMITIVE,
        }
    }

    pub(crate) fn is_writable(self) -> bool {
        !matches!(self, Self::Immediate(_) | Self::Primitive(_))
    }

    /// From the wire; `None` if there is no such register.
    pub(crate) fn decode(kind: u8, value: u32) -> Option<Self> {
        // What does not fit a byte is in range for no kind.
        let index = u8::try_from(value).unwrap_or(u8::MAX);
        let reg = match kind {
            0 | 8 => Self::Control(index),
            1 => Self::Immediate(value),
            2 => Self::Implicit(index),
            3 => Self::Local(index),
            4 => Self::Primitive(index),
            5 | 6 => Self::Report(index),
            7 => Self::Tmp(index),
            _ => return None,
        };
        reg.exists().then_some(reg)
    }

    /// Type and value as on the wire. Only a definition cares whether a register is volatile.
    pub(crate) fn encode(self, volatile: bool) -> (u8, u32) {
        match self {
            Self::Control(i) => (if volatile { 8 } else { 0 }, i.into()),
            Self::Immediate(value) => (1, value),
            Self::Implicit(i) => (2, i.into()),
            Self::Local(i) => (3, i.into()),
            Self::Primitive(i) => (4, i.into()),
            Self::Report(i) => (if volatile { 5 } else { 6 }, i.into()),
            Self::Tmp(i) => (7, i.into()),
        }
    }
}
