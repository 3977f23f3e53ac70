//! What drives a flow, as people name it.

use super::values;
use crate::cli::nearest;
use pk3c_ccp::params::Algorithm;
use pk3c_ccp::units::Rate;
use std::fmt;
use std::str::FromStr;

/// Longest name of a kernel's congestion control. Source: `TCP_CA_NAME_MAX`, which counts the final zero.
const MAX_NAME: usize = 15;

/// What the simulator has, but for udp.
const SIMULATED: [&str; 7] = ["pk3c", "vivace", "upstream", "exp", "cubic", "reno", "bbr"];
/// Those that come with Linux, and the later BBRs.
const LINUX: [&str; 20] = [
    "bbr",
    "bbr1",
    "bbr2",
    "bbr3",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

/// What drives a flow.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum Scheme {
    /// An algorithm of this project's agent. `pk3c` is also what `--algorithm` of the agent says.
    Agent(Algorithm),
    /// A congestion control of the kernel by its name. The simulator has cubic, reno and bbr.
    Kernel(String),
    /// Packets without congestion control, bit/s of payload.
    Udp(u64),
    /// Programs that send and receive by themselves.
    Command(CommandLines),
}

/// A sender and a receiver, as a shell would start them.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct CommandLines {
    /// Short name, for tables.
    pub(in crate::cli) name: String,
    /// Program and arguments of the sender.
    pub(in crate::cli) sender: Vec<String>,
    /// Program and arguments of the receiver.
    pub(in crate::cli) receiver: Vec<String>,
}

impl Scheme {
    /// This project's algorithm.
    pub(in crate::cli) const PK3C: Self = Self::Agent(Algorithm::Pk3c);

    /// A congestion control of the kernel.
    pub(in crate::cli) fn kernel(name: &str) -> Self {
        Self::Kernel(name.to_owned())
    }

    /// Whether the simulator has it.
    pub(in crate::cli) fn is_simulated(&self) -> bool {
        match self {
            Self::Agent(_) | Self::Udp(_) => true,
            Self::Kernel(name) => {
                SIMULATED.contains(&name.as_str()) && name.parse::<Algorithm>().is_err()
            }
            Self::Command(_) => false,
        }
    }

    /// Whether it takes a kernel: a congestion control of Linux, or programs.
    pub(in crate::cli) fn is_of_linux(&self) -> bool {
        match self {
            Self::Agent(_) => false,
            Self::Kernel(name) => {
                LINUX.contains(&name.as_str()) || name.parse::<Algorithm>().is_ok()
            }
            Self::Udp(_) | Self::Command(_) => true,
        }
    }

    /// What the simulator has, if this is probably a slip of it.
    pub(in crate::cli) fn probably_meant(&self) -> Option<&'static str> {
        match self {
            Self::Kernel(name) if !self.is_of_linux() => nearest(name, SIMULATED),
            _ => None,
        }
    }
}

impl FromStr for Scheme {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.split_once(':') {
            None => match text.parse() {
                Ok(algorithm) => Ok(Self::Agent(algorithm)),
                Err(_) => kernel_name(text),
            },
            Some(("agent", name)) => name.parse().map(Self::Agent).map_err(|e| e.to_string()),
            Some(("kernel", name)) => kernel_name(name),
            Some(("udp", payload)) => values::rate(payload)
                .map(Self::Udp)
                .map_err(|error| format!("udp: {error}")),
            Some(_) => Err(unknown(text)),
        }
    }
}

fn kernel_name(text: &str) -> Result<Scheme, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(fits) {
        return Err(unknown(text));
    }
    Ok(Scheme::kernel(text))
}

fn unknown(text: &str) -> String {
    format!(
        "`{text}` is not a scheme: write an algorithm of the agent ({}), a congestion control of the kernel such as \
         cubic or kernel:vegas, or udp with its rate as in udp:5mbit",
        Algorithm::names()
    )
}

/// The form that [`Scheme::from_str`] reads; of command lines the name.
impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(algorithm) => algorithm.fmt(f),
            Self::Kernel(name) if name.parse::<Algorithm>().is_ok() => write!(f, "kernel:{name}"),
            Self::Kernel(name) => f.pad(name),
            Self::Udp(bps) => write!(f, "udp:{}", Rate::from_bytes_per_sec(*bps as f64 / 8.0)),
            Self::Command(lines) => f.pad(&lines.name),
        }
    }
}

/// `pk3c*2,cubic`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Flows(pub(super) Vec<Scheme>);

impl FromStr for Flows {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut flows = Vec::new();
        for part in text.split(',') {
            let (scheme, number) = part.split_once('*').unwrap_or((part, "1"));
            let number = values::count(number).map_err(|error| format!("{error}, as in pk3c*2"))?;
            let scheme: Scheme = scheme.trim().parse()?;
            flows.extend((0..number).map(|_| scheme.clone()));
        }
        Ok(Self(flows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_the_agent_s_algorithms_first_and_the_kernel_s_otherwise() {
        let read = |text: &str| text.parse::<Scheme>().unwrap();
        assert_eq!(read("pk3c"), Scheme::PK3C);
        assert_eq!(read("agent:exp"), Scheme::Agent(Algorithm::Exp));
        assert_eq!(read("bbr"), Scheme::kernel("bbr"));
        assert_eq!(read("kernel:pk3c"), Scheme::kernel("pk3c"));
        assert_ne!(read("kernel:pk3c"), read("pk3c"));
        for text in ["pk3c", "vivace", "upstream", "exp", "bbr", "kernel:pk3c"] {
            assert_eq!(read(text).to_string(), text);
        }
        for bad in [
            "",
            "agent:bbr",
            "kernel:",
            "BBR",
            "quic:x",
            "a_name_too_long_",
        ] {
            let said = bad.parse::<Scheme>().unwrap_err();
            assert!(said.contains("pk3c"), "{bad}: {said}");
        }
    }

    #[test]
    fn the_simulator_knows_what_it_has() {
        for (text, simulated) in [
            ("pk3c", true),
            ("exp", true),
            ("cubic", true),
            ("udp:1mbit", true),
            ("bbr", true),
            ("vegas", false),
            ("kernel:pk3c", false),
        ] {
            let scheme: Scheme = text.parse().unwrap();
            assert_eq!(scheme.is_simulated(), simulated, "{text}");
        }
    }

    #[test]
    fn flows_are_counted() {
        let flows: Flows = "pk3c*2, cubic,udp:5mbit".parse().unwrap();
        assert_eq!(
            flows.0,
            [
                Scheme::PK3C,
                Scheme::PK3C,
                Scheme::kernel("cubic"),
                Scheme::Udp(5_000_000)
            ]
        );
        assert_eq!(flows.0[3].to_string(), "udp:5mbit");
        for bad in ["", "pk3c*0", "udp:fast", "pk3c*2*2", "cubic*100001"] {
            assert!(bad.parse::<Flows>().is_err(), "{bad}");
        }
    }
}
