//! What a decision consists of: commands for the datapath, and the reason they were given.

use crate::units::{Bytes, Micros, Rate};
use std::fmt;

/// Slots of the fast start per RTT: no intervals are shorter.
pub const STARTUP_SLOTS_PER_RTT: f64 = 4.0;

/// Four rates, each sent for one interval, then a rate to hold until the next plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Number in the tag of the reports; grows by one per plan and wraps to 1 at 2^24.
    pub number: u32,
    /// The four rates, in sending order.
    pub rates: [Rate; 4],
    /// The rate afterwards.
    pub hold: Rate,
    /// Length of every interval.
    pub length: Micros,
}

impl Plan {
    /// The highest rate in the plan.
    #[must_use]
    pub fn highest(&self) -> Rate {
        self.rates
            .iter()
            .fold(self.hold, |highest, rate| highest.max(*rate))
    }

    /// The number after `number`.
    #[must_use]
    pub fn next_number(number: u32) -> u32 {
        (number % ((1 << 24) - 1)) + 1
    }
}

/// What the datapath is told. Every part of one command takes effect together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    /// Start a new plan at the next ACK.
    Run {
        /// The plan.
        plan: Plan,
        /// The congestion window.
        cwnd: Bytes,
    },
    /// Change to one rate without a new plan: reports go on under the old number.
    Steer {
        /// The rate, for all remaining intervals; before the first plan, after every other ACK.
        rate: Rate,
        /// The same; before the first plan, after the ACK of all that was written.
        hold: Rate,
        /// The rate until then.
        now: Rate,
        /// Length of the intervals.
        length: Micros,
        /// The congestion window.
        cwnd: Bytes,
    },
    /// Change the congestion window only.
    Window {
        /// The congestion window.
        cwnd: Bytes,
    },
}

impl Command {
    /// Hands the command to `send` as fields of the program, to be written by one update.
    pub fn fields<R>(&self, send: impl FnOnce(&[(&str, u32)]) -> R) -> R {
        match self {
            Self::Run { plan, cwnd } => {
                let [r1, r2, r3, r4] = plan.rates.map(Rate::to_wire);
                send(&[
                    ("plan", plan.number),
                    ("r1", r1),
                    ("r2", r2),
                    ("r3", r3),
                    ("r4", r4),
                    ("hold", plan.hold.to_wire()),
                    ("mi", plan.length.to_wire()),
                    ("tx", 0),
                    ("Rate", r1),
                    ("Cwnd", cwnd.to_wire()),
                ])
            }
            Self::Steer {
                rate,
                hold,
                now,
                length,
                cwnd,
            } => {
                let rate = rate.to_wire();
                send(&[
                    ("r1", rate),
                    ("r2", rate),
                    ("r3", rate),
                    ("r4", rate),
                    ("hold", hold.to_wire()),
                    ("mi", length.to_wire()),
                    ("Rate", now.to_wire()),
                    ("Cwnd", cwnd.to_wire()),
                ])
            }
            Self::Window { cwnd } => send(&[("Cwnd", cwnd.to_wire())]),
        }
    }
}

/// The state of the controller, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseName {
    /// Fast start.
    Startup,
    /// Emptying the queue.
    Drain,
    /// Vivace: comparing rates.
    Vivace,
    /// Riding at the edge of a path that is the flow's own.
    Cruise,
    /// The climber for few packets per RTT.
    Aimd,
    /// Competing with flows that fill the queue.
    Compete,
    /// The upstream module's rules.
    Upstream,
}

impl PhaseName {
    /// The stable short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Vivace => "vivace",
            Self::Cruise => "cruise",
            Self::Aimd => "aimd",
            Self::Compete => "compete",
            Self::Upstream => "upstream",
        }
    }
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

macro_rules! reasons {
    ($($variant:ident $name:literal $help:literal;)*) => {
        /// Why a decision was taken. The names are stable: logs, records and metrics use them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $help] $variant,)*
        }

        impl Reason {
            /// All reasons; a reason's index is `reason as usize`.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable short name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// One sentence for people.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => $help,)*
                }
            }
        }
    };
}

reasons! {
    Start "start" "A new flow: hold the first rate until the first RTT sample.";
    Resume "resume" "A running flow was taken over: go on from its rate, without a fast start.";
    Stale "stale" "The report belongs to an old plan: it only feeds the estimators.";
    Wait "wait" "The report alone decides nothing.";
    FirstRtt "first-rtt" "The first RTT sample: begin the fast start.";
    PathRate "path-rate" "The ACKs of the initial window tell the path's rate: begin the fast start near it.";
    Share "share" "Others to the same address fill the path: begin with a share, without a fast start.";
    Grow "grow" "The path keeps up: multiply the rate.";
    GrowLess "grow-less" "The path keeps up, with a first sign of a queue: grow a little.";
    Longer "longer" "Too few ACKs in a slot: send longer ones.";
    Watch "watch" "The RTT is long, but perhaps not for a queue: hold the rate and see whether it grows on.";
    AppLimited "app-limited" "The application sends less than it may: no growth.";
    Plateau "plateau" "The rate has not grown for some RTTs: something else limits the flow, and the fast start ends.";
    FullSpacing "full-spacing" "Packets arrive slower than they were sent: the fast start ends.";
    FullSlope "full-slope" "The RTT grows: the fast start ends.";
    FullQueue "full-queue" "A queue stands: the fast start ends.";
    FullLoss "full-loss" "Loss beyond the tolerance: the fast start ends.";
    FullUtility "full-utility" "Utility fell: the plain start ends.";
    Probe "probe" "Compare a higher and a lower rate.";
    ProbeAgain "probe-again" "The comparisons disagreed: compare again, further apart.";
    ProbeRepeat "probe-repeat" "An interval could not be judged: compare again.";
    MoveUp "move-up" "A higher rate is better: step up.";
    MoveDown "move-down" "A lower rate is better: step down.";
    MoveOver "move-over" "The last step did not help: return and compare again.";
    Overshoot "overshoot" "The last step only filled the queue: back below what arrived.";
    LossCut "loss-cut" "Loss handbrake.";
    QueueCut "queue-cut" "Queue handbrake.";
    LongerPath "longer-path" "A queue that no drain empties and that never moves: it is the path's own RTT.";
    CompeteStart "compete-start" "A queue that no drain empties: others fill it, compete with them.";
    Compete "compete" "Competing: grow.";
    CompeteBbr "compete-bbr" "The queue empties as BBR empties it: do as BBR does.";
    CompeteLoss "compete-loss" "Competing: loss, back off.";
    CompeteEnd "compete-end" "Competed long enough: test whether the queue empties.";
    Restart "restart" "The path bears far more than it did: start fast again.";
    Switch "switch" "The parameters chose another algorithm or forbid the rate: go on from here.";
    ClimbStart "climb-start" "Few packets per RTT: climb additively.";
    Climb "climb" "Few packets per RTT: add a little.";
    ClimbLoss "climb-loss" "Loss while climbing: back off.";
    ClimbQueue "climb-queue" "A standing queue while climbing: take it back.";
    Cruise "cruise" "All of the path is the flow's own: ride at its edge.";
    CruiseQueue "cruise-queue" "A queue at the edge: go below what arrives until it is out.";
    CruiseLoss "cruise-loss" "Loss at the edge: go below what arrives.";
    CruiseEnd "cruise-end" "Less arrives than all of the path: others share it, search.";
    Timeout "timeout" "A retransmission timeout: halve the rate.";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The answer to one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The state after the decision.
    pub phase: PhaseName,
    /// Why.
    pub reason: Reason,
    /// The central rate after the decision; trials lie around it.
    pub rate: Rate,
    /// The congestion window after the decision.
    pub cwnd: Bytes,
    /// What to tell the datapath, if anything changes.
    pub command: Option<Command>,
}
