//! Values as people type them, in flags and in files alike: text in, a checked value or a sentence with the remedy out.

use pk3c_ccp::units::{Micros, Rate, Ratio};
use std::str::FromStr;

/// Flows of one entry.
const MAX_FLOWS: u32 = 100_000;
/// Rounds of one run.
const MAX_ROUNDS: u32 = 10_000;
/// Of ip-link(8): `gso_max_segs` is below 65536.
const MAX_GSO: u32 = 65_535;
/// A kernel's int.
const MAX_REORDERING: u32 = i32::MAX as u32;
/// Packets of a queue or a delay line.
const MAX_PACKETS: u32 = 10_000_000;
/// Longest time anywhere in a scenario, s: what leaves room in nanoseconds of 64 bits.
const MAX_SECONDS: u64 = 100_000;
const NANOS_PER_MICRO: u64 = 1000;

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
                .filter(|n| (1..=MAX_PACKETS).contains(n))
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
    const POSSIBLE: &str = "1kbit to 34gbit are possible";
    let rate = text.trim().parse::<Rate>().map_err(|error| {
        if error.kind == Rate::TOO_FAST {
            format!("`{text}` is too fast: {POSSIBLE}")
        } else {
            error.to_string()
        }
    })?;
    let bps = (rate.bytes_per_sec() * 8.0).round() as u64;
    if bps < 1000 {
        return Err(format!("`{text}` is too slow: {POSSIBLE}"));
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

/// So many rounds.
pub(in crate::cli) fn rounds(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok();
    let number = number.filter(|n| (1..=MAX_ROUNDS).contains(n));
    number.ok_or_else(|| format!("`{text}` is not a number of rounds: write 1 to {MAX_ROUNDS}"))
}

/// Segments that a device takes at once; 0 leaves the kernel's limit.
pub(in crate::cli) fn gso(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| *n <= MAX_GSO);
    number.ok_or_else(|| {
        format!(
            "`{text}` is not a gso_max_segs: write 1 to {MAX_GSO} segments, or 0 for the kernel's own"
        )
    })
}

/// Packets out of order that Linux takes for a loss.
pub(in crate::cli) fn reordering(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok();
    let number = number.filter(|n| (1..=MAX_REORDERING).contains(n));
    number.ok_or_else(|| {
        format!("`{text}` is not a tcp_reordering: write 1 to {MAX_REORDERING} packets")
    })
}

/// Packets on their way.
pub(in crate::cli) fn packets(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok();
    let number = number.filter(|n| (1..=MAX_PACKETS).contains(n));
    number.ok_or_else(|| format!("`{text}` is not a number of packets: write 1 to {MAX_PACKETS}"))
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
    fn every_refusal_says_what_to_write() {
        for (said, remedy) in [
            (rate("50").unwrap_err(), "50mbit"),
            (rate("1bit").unwrap_err(), "is too slow: 1kbit"),
            (rate("35gbit").unwrap_err(), "is too fast: 1kbit to 34gbit"),
            (time("40").unwrap_err(), "500us"),
            (time("1000000s").unwrap_err(), "100000s"),
            (duration("0s").unwrap_err(), "1ms"),
            (loss("100%").unwrap_err(), "less than 100%"),
            (burst("0.5").unwrap_err(), "from 1"),
            (size("0B").unwrap_err(), "1MB"),
            ("many".parse::<Queue>().unwrap_err(), "0.5bdp"),
            ("100B".parse::<Queue>().unwrap_err(), "1500B"),
            (yes_or_no("maybe").unwrap_err(), "true"),
            (id("a b").unwrap_err(), "letters"),
        ] {
            assert!(said.contains(remedy), "{remedy} is not in: {said}");
        }
    }
}
