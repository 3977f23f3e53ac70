//! Every tunable of the algorithm, declared once.
//!
//! One table gives each parameter its field, flag, default, range, help and source. The command line builds its flags
//! from [`SPECS`], records store [`Params::to_text`], and the algorithm reads plain typed fields.

mod value;

use crate::units::{Micros, Rate, Ratio, UnitError};
use std::fmt;
use value::Value;
pub use value::{Algorithm, Core, Handbrake, HandbrakeSet, Kind, Switch};

/// Why a parameter was refused. The text names the flag, the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No parameter has this name.
    #[error("there is no parameter --{0}: `pk3c-ccp run --help` lists them")]
    Unknown(String),
    /// The text is not of the parameter's kind.
    #[error("--{flag}: {cause}; allowed is {range}")]
    Malformed {
        /// The flag, without dashes.
        flag: &'static str,
        /// What was wrong with the text; the error says it, so it is no source.
        cause: UnitError,
        /// The allowed range, as in [`Spec::range`].
        range: String,
    },
    /// The value is of the right kind but not allowed.
    #[error("--{flag} {value} is out of range: allowed is {range}")]
    OutOfRange {
        /// The flag, without dashes.
        flag: &'static str,
        /// The refused value, as typed.
        value: String,
        /// The allowed range, as in [`Spec::range`].
        range: String,
    },
    /// Two values are each allowed, but not together.
    #[error("--{low} {low_value} must {relation} --{high} {high_value}")]
    Conflict {
        /// Flag of the value that must be the smaller.
        low: &'static str,
        /// Its value.
        low_value: String,
        /// "not exceed" or "be below".
        relation: &'static str,
        /// Flag of the value that must be the larger.
        high: &'static str,
        /// Its value.
        high_value: String,
    },
}

/// One parameter, as the command line and the documentation see it.
pub struct Spec {
    /// Flag name, without dashes.
    pub flag: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// One line of help.
    pub help: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
    range: fn() -> String,
    get: fn(&Params) -> String,
    set: fn(&mut Params, &str) -> Result<(), ParamError>,
}

impl Spec {
    /// The allowed range, in the units of the parameter.
    #[must_use]
    pub fn range(&self) -> String {
        (self.range)()
    }

    /// The default, in the units of the parameter.
    #[must_use]
    pub fn default_value(&self) -> String {
        (self.get)(&Params::default())
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{} {}", self.flag, self.kind.placeholder())
    }
}

fn read<T: Value>(flag: &'static str, text: &str, low: T, high: T) -> Result<T, ParamError> {
    let range = || T::range(low, high);
    let value = T::read(text).map_err(|cause| ParamError::Malformed {
        flag,
        cause,
        range: range(),
    })?;
    if value < low || value > high {
        return Err(ParamError::OutOfRange {
            flag,
            value: text.to_owned(),
            range: range(),
        });
    }
    Ok(value)
}

macro_rules! parameters {
    ($($flag:literal $field:ident: $ty:ty = $default:expr, $low:expr, $high:expr; $help:literal, $source:literal;)*) => {
        /// The tunables. Defaults are the algorithm as measured; each field's range is that of its flag.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Params {
            $(
                #[doc = $help]
                #[doc = concat!(" (`--", $flag, "`; ", $source, ")")]
                pub $field: $ty,
            )*
        }

        impl Default for Params {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// All parameters, in the order of the help text.
        pub const SPECS: &[Spec] = &[$(Spec {
            flag: $flag,
            kind: <$ty as Value>::KIND,
            help: $help,
            source: $source,
            range: || <$ty as Value>::range($low, $high),
            get: |params| params.$field.to_string(),
            set: |params, text| {
                params.$field = read($flag, text, $low, $high)?;
                Ok(())
            },
        },)*];
    };
}

const fn bps(value: f64) -> Rate {
    Rate::from_bytes_per_sec(value)
}
const fn ratio(value: f64) -> Ratio {
    Ratio::new(value)
}
const fn us(value: u64) -> Micros {
    Micros::new(value)
}

/// The parameter that others bound, where it is not given.
pub const START_RATE: &str = "start-rate";
/// Largest first rate.
const START_MAX: Rate = bps(1e9);

parameters! {
    "start-rate" start_rate: Rate = bps(393_216.0), bps(1e3), START_MAX;
        "First rate of a flow, until its RTT is known; not given, within --min-rate and --max-rate", "upstream slow_start_start";
    "min-rate" min_rate: Rate = bps(4e3), bps(1e3), Rate::MAX;
        "No flow is ever slower than this", "half of a 64 kbit/s line, so that two flows fit";
    "max-rate" max_rate: Rate = bps(1.25e9), bps(1e3), Rate::MAX;
        "No flow is ever faster than this", "upstream stops at 1 Gbit/s; a 10 Gbit/s card";
    "startup-gain" startup_gain: f64 = 2.0, 1.25, 2.9;
        "Growth per RTT of the fast start while the path keeps up", "slow start doubles";
    "startup-loss-tolerance" startup_loss_tolerance: Ratio = ratio(0.10), ratio(0.0), ratio(0.5);
        "Loss that does not end the fast start", "upstream";
    "throughput-exponent" throughput_exponent: f64 = 0.9, 0.5, 1.0;
        "Exponent of the rate in the utility", "Vivace, NSDI 2018";
    "latency-coeff" latency_coeff: f64 = 900.0, 0.0, 5000.0;
        "Weight of a growing RTT in the utility", "Vivace, NSDI 2018";
    "loss-coeff" loss_coeff: f64 = 11.35, 0.0, 100.0;
        "Weight of loss in the utility", "Vivace, NSDI 2018";
    "probe-step" probe_step: Ratio = ratio(0.03), ratio(0.01), ratio(0.2);
        "Distance of a trial from the rate it probes; 5% with --algorithm vivace", "simulated: the 5% of Vivace use 1% less of the path, at a longer queue";
    "probe-step-max" probe_step_max: Ratio = ratio(0.10), ratio(0.01), ratio(0.2);
        "Largest distance after undecided probes", "bounded, unlike upstream";
    "step-base" step_base: Rate = Rate::from_mbit(1.0), Rate::from_mbit(0.01), Rate::from_mbit(100.0);
        "Step per unit of utility gradient at 20mbit; scales with the root of the rate", "Vivace, NSDI 2018";
    "change-bound" change_bound: Ratio = ratio(0.05), ratio(0.01), ratio(0.5);
        "Largest change in one step", "Vivace, NSDI 2018";
    "change-bound-step" change_bound_step: Ratio = ratio(0.05), ratio(0.0), ratio(0.5);
        "Growth of that bound each time it is hit", "released Vivace code";
    "change-bound-max" change_bound_max: Ratio = ratio(0.25), ratio(0.01), ratio(0.5);
        "Limit of that bound", "earlier CCP port of Vivace";
    "rtt-gradient-floor" rtt_gradient_floor: Ratio = ratio(0.01), ratio(0.0), ratio(0.2);
        "A smaller RTT slope counts as none", "upstream latency filter";
    "rtt-gradient-sigmas" rtt_gradient_sigmas: f64 = 2.0, 0.0, 10.0;
        "A slope within so many standard errors of zero counts as none", "regression";
    "mi-rtts" mi_rtts: f64 = 1.0, 0.25, 4.0;
        "Length of a monitor interval in RTTs", "Vivace, NSDI 2018";
    "mi-packets" mi_packets: u32 = 12, 4, 200;
        "Packets in a monitor interval, at least", "upstream has 15";
    "mi-min" mi_min: Micros = us(2000), us(500), us(1_000_000);
        "Shortest monitor interval, but for climber and competitor, which follow the RTT", "bounds other reports to 500 per second and flow";
    "max-reports" max_reports: u32 = 100_000, 1_000, 10_000_000;
        "Reports per second of all flows together; beyond, intervals grow that --mi-min bounds", "measured: 2-3 us of CPU per report, make test";
    "loss-floor-max" loss_floor_max: Ratio = ratio(0.10), ratio(0.0), ratio(0.3);
        "Most loss that may be learnt to be random", "earlier simulation, not derived anew";
    "hb-loss" hb_loss: Ratio = ratio(0.05), ratio(0.0), ratio(0.5);
        "Loss handbrake: cut above this loss; 0 disables the test", "upstream";
    "hb-loss-congestive" hb_loss_congestive: Ratio = ratio(0.02), ratio(0.0), ratio(0.5);
        "The same for losses at a full queue (0 disables the test), and what a climber bears above --low-exit", "earlier simulation, not derived anew";
    "hb-loss-cut" hb_loss_cut: Ratio = ratio(0.85), ratio(0.5), ratio(1.0);
        "Loss handbrake: factor on the rate for losses at a full queue", "earlier simulation, not derived anew";
    "hb-loss-holdoff" hb_loss_holdoff: f64 = 3.0, 0.5, 50.0;
        "Loss handbrake: RTTs until it may act again", "a cut needs 2 RTTs to show";
    "hb-queue" hb_queue: Ratio = ratio(0.25), ratio(0.0), ratio(4.0);
        "Queue handbrake: standing queue tolerated, in smallest RTTs; 0 disables it", "earlier simulation, not derived anew";
    "hb-queue-min" hb_queue_min: Micros = us(500), us(50), us(100_000);
        "Queue handbrake: standing queue always tolerated", "timer and burst noise";
    "hb-queue-cut" hb_queue_cut: Ratio = ratio(0.93), ratio(0.5), ratio(1.0);
        "Queue handbrake: factor on the rate", "earlier simulation, not derived anew";
    "compete-after" compete_after: u32 = 5, 0, 100;
        "Compete handbrake: queue actions in a row without effect that mean a competitor; 0 disables it", "simulated: 3 takes thirty starting flows for one, 8 halves the share beside Cubic";
    "compete-secs" compete_secs: Micros = us(10_000_000), us(1_000_000), us(600_000_000);
        "Compete handbrake: how long it competes at first; doubles up to six times this", "a few periods of Cubic";
    "low-enter" low_enter: f64 = 15.0, 4.0, 100.0;
        "Packets per RTT below which the low-rate climber takes over", "upstream T enter";
    "low-exit" low_exit: f64 = 25.0, 4.0, 100.0;
        "Packets per RTT above which it hands back", "upstream T exit";
    "rtt-window" rtt_window: Micros = us(60_000_000), us(1_000_000), us(600_000_000);
        "How long the smallest RTT is remembered", "earlier simulation, not derived anew";
    "rate-window" rate_window: Micros = us(10_000_000), us(1_000_000), us(600_000_000);
        "How long the largest goodput is remembered", "earlier simulation, not derived anew";
    "no-handbrake" no_handbrake: HandbrakeSet = HandbrakeSet::NONE, HandbrakeSet::NONE, HandbrakeSet::EVERY;
        "Handbrakes to switch off, for comparison", "ablation";
    "algorithm" algorithm: Algorithm = Algorithm::Pk3c, Algorithm::Pk3c, Algorithm::Exp;
        "What decides: the whole algorithm, the bare Vivace core, the upstream module's rules, or exp, a Reno that starts faster", "comparison";
    "upstream-compat" upstream_compat: Switch = Switch(false), Switch(false), Switch(true);
        "Decide as the upstream kernel module means to, whatever --algorithm says", "comparison";
}

impl Params {
    /// What a controller with these parameters follows: `exp` has none, and counts as `pk3c`.
    #[must_use]
    pub fn core(&self) -> Core {
        match self.algorithm {
            _ if self.upstream_compat.0 => Core::Upstream,
            Algorithm::Pk3c | Algorithm::Exp => Core::Pk3c,
            Algorithm::Vivace => Core::Vivace,
            Algorithm::Upstream => Core::Upstream,
        }
    }

    /// Whether a controller with these parameters follows this project's algorithm.
    #[must_use]
    pub fn is_pk3c(&self) -> bool {
        self.core() == Core::Pk3c
    }

    /// Whether [`crate::exp`] drives new flows, without a controller.
    #[must_use]
    pub fn is_exp(&self) -> bool {
        self.algorithm == Algorithm::Exp && !self.upstream_compat.0
    }

    /// Sets one parameter by its flag name from text.
    ///
    /// # Errors
    /// If the flag is unknown, or the text is malformed or out of range; `self` is then unchanged. Values that must
    /// fit each other are checked by [`Params::validate`], once all are set.
    pub fn set(&mut self, flag: &str, text: &str) -> Result<(), ParamError> {
        (find(flag)?.set)(self, text)
    }

    /// The value of one parameter as text that [`Params::set`] reads back.
    ///
    /// # Errors
    /// If the flag is unknown.
    pub fn get(&self, flag: &str) -> Result<String, ParamError> {
        Ok((find(flag)?.get)(self))
    }

    /// All parameters as (flag, value) text, in the order of [`SPECS`].
    pub fn to_text(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        SPECS.iter().map(|spec| (spec.flag, (spec.get)(self)))
    }

    /// Bounds the first rate by the smallest and the largest, for where nobody said what it shall be. Bounds that
    /// contradict each other are left to [`Params::validate`].
    pub fn bound_start_rate(&mut self) {
        let low = self.min_rate.min(START_MAX);
        self.start_rate = self.start_rate.within(low, self.max_rate);
    }

    /// Checks the values that must fit each other.
    ///
    /// # Errors
    /// Names the first pair that does not.
    pub fn validate(&self) -> Result<(), ParamError> {
        let ordered = |holds: bool, low: &'static str, relation, high: &'static str| {
            if holds {
                return Ok(());
            }
            Err(ParamError::Conflict {
                low,
                low_value: self.get(low)?,
                relation,
                high,
                high_value: self.get(high)?,
            })
        };
        ordered(
            self.min_rate <= self.max_rate,
            "min-rate",
            "not exceed",
            "max-rate",
        )?;
        ordered(
            self.min_rate <= self.start_rate,
            "min-rate",
            "not exceed",
            "start-rate",
        )?;
        ordered(
            self.start_rate <= self.max_rate,
            "start-rate",
            "not exceed",
            "max-rate",
        )?;
        ordered(
            self.probe_step <= self.probe_step_max,
            "probe-step",
            "not exceed",
            "probe-step-max",
        )?;
        let bound = self.change_bound <= self.change_bound_max;
        ordered(bound, "change-bound", "not exceed", "change-bound-max")?;
        ordered(
            self.low_enter < self.low_exit,
            "low-enter",
            "be below",
            "low-exit",
        )
    }
}

fn find(flag: &str) -> Result<&'static Spec, ParamError> {
    SPECS
        .iter()
        .find(|spec| spec.flag == flag)
        .ok_or_else(|| ParamError::Unknown(flag.to_owned()))
}

#[cfg(test)]
mod tests;
