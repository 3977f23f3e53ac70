//! Values as people type them, in flags and in files alike: text in, a checked value or a sentence with the remedy out.

use pk3c_ccp::units::{Micros, Rate, Ratio};
use std::fmt;
use std::str::FromStr;

/// Flows of one entry.
const MAX_FLOWS: u32 = 100_000;
/// Longest time anywhere in a scenario, s: what leaves room in nanoseconds of 64 bits.
const MAX_SECONDS: u64 = 100_000;
const NANOS_PER_MICRO: u64 = 1000;

/// What drives a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cli) enum Scheme {
    /// This project's algorithm, or what `--algorithm` says.
    Pk3c,
    /// Its core without handbrakes: PCC Vivace as published.
    Vivace,
    /// The decisions of the upstream kernel module.
    Upstream,
    /// The kernel's default, RFC 9438.
    Cubic,
    /// RFC 5681 and 6582.
    Reno,
    /// Packets without congestion control, bit/s of payload.
    Udp(u64),
}

impl FromStr for Scheme {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().split_once(':') {
            None if text == "pk3c" => Ok(Self::Pk3c),
            None if text == "vivace" => Ok(Self::Vivace),
            None if text == "upstream" => Ok(Self::Upstream),
            None if text == "cubic" => Ok(Self::Cubic),
            None if text == "reno" => Ok(Self::Reno),
            Some(("udp", payload)) => {
                Ok(Self::Udp(rate(payload).map_err(|e| format!("udp: {e}"))?))
            }
            _ => Err(format!(
                "`{text}` is not a scheme: write pk3c, vivace, upstream, cubic, reno, or udp with its rate as in udp:5mbit"
            )),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pk3c => f.write_str("pk3c"),
            Self::Vivace => f.write_str("vivace"),
            Self::Upstream => f.write_str("upstream"),
            Self::Cubic => f.write_str("cubic"),
            Self::Reno => f.write_str("reno"),
            Self::Udp(bps) => write!(f, "udp:{}", Rate::from_bytes_per_sec(*bps as f64 / 8.0)),
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
            let number = count(number).map_err(|error| format!("{error}, as in pk3c*2"))?;
            let scheme: Scheme = scheme.trim().parse()?;
            flows.extend((0..number).map(|_| scheme));
        }
        Ok(Self(flows))
    }
}

/// The size of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cli) enum Queue {
    Packets(u32),
    Bytes(u64),
    /// Bandwidth-delay products of the path.
    Products(f64),
}

impl FromStr for Queue {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let products = |text: &str| -> Option<f64> {
            let number = text.trim().strip_suffix("bdp")?.trim().parse().ok()?;
            (number > 0.0 && number <= 1e6).then_some(number)
        };
        let packets = |text: &str| {
            text.trim()
                .parse()
                .ok()
                .filter(|n| (1..=10_000_000).contains(n))
        };
        let queue = products(text)
            .map(Self::Products)
            .or_else(|| packets(text).map(Self::Packets))
            .or_else(|| {
                bytes(text)
                    .filter(|n| (1500..=15_000_000_000).contains(n))
                    .map(Self::Bytes)
            });
        queue.ok_or_else(|| {
            format!(
                "`{text}` is not a queue: write packets as in 100 (1 to 10000000), bytes as in 64kB (1500B to 15GB), \
                 or bandwidth-delay products as in 0.5bdp"
            )
        })
    }
}

fn bytes(text: &str) -> Option<u64> {
    let units = [("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("B", 1.0)];
    let (number, factor) = units
        .into_iter()
        .find_map(|(unit, factor)| Some((text.trim().strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number > 0.0 && number * factor < 1e15).then_some((number * factor).round() as u64)
}

/// An amount of data, bytes.
pub(in crate::cli) fn size(text: &str) -> Result<u64, String> {
    bytes(text).filter(|n| *n > 0).ok_or_else(|| {
        format!("`{text}` is not a size: write a number with B, kB, MB or GB, as in 1MB, of 1B to 1000GB")
    })
}

/// Bits per second.
pub(in crate::cli) fn rate(text: &str) -> Result<u64, String> {
    let rate: Rate = text.trim().parse().map_err(|error| format!("{error}"))?;
    let bps = (rate.bytes_per_sec() * 8.0).round() as u64;
    if bps < 1000 {
        return Err(format!(
            "`{text}` is too slow: 1kbit to 34gbit are possible"
        ));
    }
    Ok(bps)
}

/// A time of 0 or more, ns.
pub(in crate::cli) fn time(text: &str) -> Result<u64, String> {
    let time: Micros = text.trim().parse().map_err(|error| format!("{error}"))?;
    if time.us() > MAX_SECONDS * 1_000_000 {
        return Err(format!(
            "`{text}` is too long: 0s to {MAX_SECONDS}s are possible"
        ));
    }
    Ok(time.us() * NANOS_PER_MICRO)
}

/// The length of a run, ns.
pub(in crate::cli) fn duration(text: &str) -> Result<u64, String> {
    match time(text)? {
        ns if ns < 1_000_000 => Err(format!(
            "`{text}` is too short: 1ms to {MAX_SECONDS}s are possible"
        )),
        ns => Ok(ns),
    }
}

/// A part of all packets, below 1.
pub(in crate::cli) fn loss(text: &str) -> Result<f64, String> {
    let ratio: Ratio = text.trim().parse().map_err(|error| format!("{error}"))?;
    if ratio.get() >= 1.0 {
        return Err(format!(
            "`{text}` is too much: 0% or more and less than 100% are possible"
        ));
    }
    Ok(ratio.get())
}

/// Mean length of bursts of loss, packets.
pub(in crate::cli) fn burst(text: &str) -> Result<f64, String> {
    number(text, 1.0, 1e6).ok_or_else(|| {
        format!("`{text}` is not the mean length of a burst: write a number of packets from 1 to 1000000")
    })
}

/// So many flows.
pub(in crate::cli) fn count(text: &str) -> Result<u32, String> {
    let number = text
        .trim()
        .parse()
        .ok()
        .filter(|n| (1..=MAX_FLOWS).contains(n));
    number.ok_or_else(|| format!("`{text}` is not a number of flows: write 1 to {MAX_FLOWS}"))
}

/// Packets per ACK.
pub(in crate::cli) fn per_ack(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=1000).contains(n));
    number.ok_or_else(|| format!("`{text}` is not a number of packets per ACK: write 1 to 1000"))
}

/// Where chance begins.
pub(in crate::cli) fn seed(text: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is not a seed: write a whole number from 0 on"))
}

/// Yes or no.
pub(in crate::cli) fn yes_or_no(text: &str) -> Result<bool, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is neither true nor false: write one of them"))
}

/// A name for tables and files.
pub(in crate::cli) fn id(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 40 || !text.chars().all(fits) {
        return Err(format!(
            "`{text}` is not an id: write up to 40 letters, digits, `-`, `_` and `.`"
        ));
    }
    Ok(text.to_owned())
}

/// Any text in one line.
pub(in crate::cli) fn line(text: &str) -> Result<String, String> {
    if text.contains(['\n', '\r']) {
        return Err("the text has several lines: write one".to_owned());
    }
    Ok(text.to_owned())
}

fn number(text: &str, low: f64, high: f64) -> Option<f64> {
    text.trim()
        .parse()
        .ok()
        .filter(|n| (low..=high).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_counted() {
        let flows: Flows = "pk3c*2, cubic,udp:5mbit".parse().unwrap();
        assert_eq!(
            flows.0,
            [
                Scheme::Pk3c,
                Scheme::Pk3c,
                Scheme::Cubic,
                Scheme::Udp(5_000_000)
            ]
        );
        assert_eq!(flows.0[3].to_string(), "udp:5mbit");
        for bad in [
            "",
            "pk3c*0",
            "vegas",
            "udp:fast",
            "pk3c*2*2",
            "cubic*100001",
        ] {
            assert!(bad.parse::<Flows>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_refusal_says_what_to_write() {
        for (said, remedy) in [
            (rate("50").unwrap_err(), "50mbit"),
            (rate("1bit").unwrap_err(), "1kbit"),
            (time("40").unwrap_err(), "500us"),
            (time("1000000s").unwrap_err(), "100000s"),
            (duration("0s").unwrap_err(), "1ms"),
            (loss("100%").unwrap_err(), "less than 100%"),
            (burst("0.5").unwrap_err(), "from 1"),
            (size("0B").unwrap_err(), "1MB"),
            ("many".parse::<Queue>().unwrap_err(), "0.5bdp"),
            ("100B".parse::<Queue>().unwrap_err(), "1500B"),
            ("bbr".parse::<Scheme>().unwrap_err(), "cubic"),
            (yes_or_no("maybe").unwrap_err(), "true"),
            (id("a b").unwrap_err(), "letters"),
        ] {
            assert!(said.contains(remedy), "{remedy} is not in: {said}");
        }
    }
}
