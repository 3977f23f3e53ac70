//! Paths as text: `rate=50mbit,rtt=40ms,queue=10,loss=1%`.

use std::time::Duration;

use crate::scenario::PathSpec;

/// Reads a path from `key=value` pairs, separated by commas, or one of the demo's paths by name.
///
/// - `rate`: bits per second with `bit`, `kbit`, `mbit` or `gbit`; required, 8 kbit to 10 Gbit.
/// - `rtt`: with `us`, `ms` or `s`; required, 0 to 10 s.
/// - `queue`: packets, or multiples of the bandwidth-delay product as in `0.5bdp`; `1bdp` unless
///   given, 1 to 1,000,000 packets.
/// - `loss`: percent, as in `0.1%`; `0%` unless given, below 100 %.
/// - `name`: for tables; made of the other values unless given.
///
/// # Errors
/// [`ParsePathError`] names the key, the value and what is possible.
pub fn parse_path(text: &str) -> Result<PathSpec, ParsePathError> {
    if let Some(path) = PathSpec::demo().into_iter().find(|path| path.name == text) {
        return Ok(path);
    }
    let (mut name, mut rate, mut rtt, mut queue, mut loss) = (None, None, None, "1bdp", 0.0);
    for pair in text.split(',') {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| ParsePathError::NotAPair(pair.trim().to_owned()))?;
        let (key, value) = (key.trim(), value.trim());
        let bad = |range| ParsePathError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            range,
        };
        match key {
            "name" if !value.is_empty() => name = Some(value.to_owned()),
            "name" => return Err(bad("a word")),
            "rate" => rate = Some(rate_bps(value).ok_or_else(|| bad(RATE_RANGE))?),
            "rtt" => rtt = Some(duration(value).ok_or_else(|| bad(RTT_RANGE))?),
            "queue" => queue = value,
            "loss" => loss = ratio(value).ok_or_else(|| bad("a share like 1%, below 100%"))?,
            _ => return Err(ParsePathError::Key(key.to_owned())),
        }
    }
    let rate_bps = rate.ok_or(ParsePathError::Missing("rate"))?;
    let rtt = rtt.ok_or(ParsePathError::Missing("rtt"))?;
    let mut path = PathSpec {
        name: String::new(),
        rate_bps,
        rtt,
        queue_packets: 1,
        loss,
    };
    path.queue_packets =
        queue_packets(queue, path.bdp_packets()).ok_or_else(|| ParsePathError::Value {
            key: "queue".into(),
            value: queue.to_owned(),
            range: "1 to 1000000 packets, or multiples of the bandwidth-delay product like 0.5bdp",
        })?;
    path.name = name.unwrap_or_else(|| default_name(&path));
    Ok(path)
}

const RATE_RANGE: &str = "8kbit to 10gbit, with the unit bit, kbit, mbit or gbit";
const RTT_RANGE: &str = "0ms to 10s, with the unit us, ms or s";

/// A text that describes no path.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePathError {
    /// A part is no `key=value`.
    #[error("path: {0:?} is neither key=value nor one of the paths clean, loss1, shallow")]
    NotAPair(String),
    /// A key that no path has.
    #[error("path: unknown key {0:?}: the keys are name, rate, rtt, queue, loss")]
    Key(String),
    /// A required key is not there.
    #[error("path: {0} is missing, as in rate=50mbit,rtt=40ms,queue=10,loss=1%")]
    Missing(&'static str),
    /// A value that its key cannot have.
    #[error("path: {key} is {value:?}, must be {range}")]
    Value {
        /// The key.
        key: String,
        /// The value as given.
        value: String,
        /// What is possible.
        range: &'static str,
    },
}

/// The number before a unit, and the unit's factor. Longer units come first in the table.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim_end().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

fn rate_bps(text: &str) -> Option<u64> {
    let rate = quantity(
        text,
        &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)],
    )?;
    (8e3..=1e10).contains(&rate).then_some(rate.round() as u64)
}

fn duration(text: &str) -> Option<Duration> {
    let micros = quantity(text, &[("us", 1.0), ("ms", 1e3), ("s", 1e6)])?;
    (micros <= 1e7).then(|| Duration::from_micros(micros.round() as u64))
}

fn ratio(text: &str) -> Option<f64> {
    quantity(text, &[("%", 0.01)]).filter(|ratio| *ratio < 1.0)
}

fn queue_packets(text: &str, bdp_packets: u32) -> Option<u32> {
    let packets = match quantity(text, &[("bdp", f64::from(bdp_packets))]) {
        Some(packets) => packets.round().max(1.0),
        None => f64::from(text.parse::<u32>().ok()?),
    };
    (1.0..=1e6).contains(&packets).then_some(packets as u32)
}

fn default_name(path: &PathSpec) -> String {
    let rate = path.rate_bps as f64 / 1e6;
    let rtt = path.rtt.as_secs_f64() * 1e3;
    let loss = if path.loss > 0.0 {
        format!("-{}%", path.loss * 100.0)
    } else {
        String::new()
    };
    format!("{rate}mbit-{rtt}ms-{}p{loss}", path.queue_packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_description() {
        let path = parse_path("rate=50mbit,rtt=40ms,queue=10,loss=1%").unwrap();
        assert_eq!(
            path,
            PathSpec {
                name: "50mbit-40ms-10p-1%".into(),
                rate_bps: 50_000_000,
                rtt: Duration::from_millis(40),
                queue_packets: 10,
                loss: 0.01,
            }
        );
    }

    #[test]
    fn demo_paths_by_name_and_defaults() {
        assert_eq!(parse_path("loss1").unwrap(), PathSpec::demo()[1]);
        let path = parse_path("name=wan, rate=1.5gbit, rtt=250us").unwrap();
        assert_eq!(
            (path.name.as_str(), path.rate_bps, path.loss),
            ("wan", 1_500_000_000, 0.0)
        );
        assert_eq!(
            (path.rtt, path.queue_packets),
            (Duration::from_micros(250), 31)
        );
        assert_eq!(
            parse_path("rate=512kbit,rtt=0.1s,queue=2bdp")
                .unwrap()
                .queue_packets,
            8
        );
    }

    #[test]
    fn errors_name_key_value_and_range() {
        for (text, expected) in [
            ("fast", "\"fast\" is neither"),
            ("rate=50mbit", "rtt is missing"),
            ("rtt=1ms", "rate is missing"),
            ("rate=50,rtt=1ms", "rate is \"50\", must be 8kbit to 10gbit"),
            ("rate=1kbit,rtt=1ms", "rate is \"1kbit\""),
            ("rate=50mbit,rtt=11s", "rtt is \"11s\", must be 0ms to 10s"),
            ("rate=50mbit,rtt=-1ms", "rtt is \"-1ms\""),
            (
                "rate=50mbit,rtt=1ms,queue=0",
                "queue is \"0\", must be 1 to",
            ),
            ("rate=50mbit,rtt=1ms,loss=100%", "loss is \"100%\""),
            ("rate=50mbit,rtt=1ms,loss=0.01", "loss is \"0.01\""),
            ("rate=50mbit,rtt=NaNms", "rtt is \"NaNms\""),
            ("rate=50mbit,rtt=1ms,jitter=1ms", "unknown key \"jitter\""),
        ] {
            let error = parse_path(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
