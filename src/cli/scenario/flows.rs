//! Keys of `[[flows]]`.

use super::STAGGER_NS;
use super::reader::Table;
use super::scheme::{CommandLines, Scheme};
use super::values;
use anyhow::Result;
use pathsim::{AckPolicy, FlowSpec, SECOND, Source as Data};

pub(super) const FLOW_KEYS: &[&str] = &[
    "scheme",
    "count",
    "start",
    "stagger",
    "stop",
    "size",
    "handshake",
    "app-rate",
    "app-chunk",
    "extra-rtt",
    "ack-every",
    "ack-delay",
    "ack-aggregation",
    "ack-compression",
    "receive-window",
    "burst",
];
pub(super) const COMMAND_KEYS: &[&str] = &["name", "sender", "receiver"];

/// Flows of one kind.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    spec: FlowSpec,
    scheme: Option<Scheme>,
    count: u32,
    start_ns: Option<u64>,
    stagger_ns: Option<u64>,
}

/// What a short form changes of the flows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shorter {
    /// So many flows of an entry at most.
    pub(super) count: Option<u32>,
    /// Between the starts of an entry's flows, where it says how long.
    pub(super) stagger_ns: Option<u64>,
    /// Bytes of those that have a size.
    pub(super) size: Option<u64>,
}

impl Entry {
    /// So many flows it has.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// When its flows start, ns, if so many are `before` it: those that are not told when start one after the other,
    /// over all entries.
    fn starts(&self, before: usize, shorter: Shorter) -> impl Iterator<Item = u64> + use<> {
        let (first, between) = match (self.start_ns, self.stagger_ns) {
            (None, None) => (before as u64 * STAGGER_NS, STAGGER_NS),
            (start, None) => (start.unwrap_or(0), 0),
            (start, Some(stagger)) => (start.unwrap_or(0), shorter.stagger_ns.unwrap_or(stagger)),
        };
        let count = self.count.min(shorter.count.unwrap_or(u32::MAX));
        (0..u64::from(count)).map(move |number| first + number * between)
    }
}

/// The flows of all entries, and their schemes.
pub(super) fn expand(entries: &[Entry], shorter: Shorter) -> (Vec<FlowSpec>, Vec<Option<Scheme>>) {
    let (mut flows, mut schemes) = (Vec::new(), Vec::new());
    for entry in entries {
        for start_ns in entry.starts(flows.len(), shorter) {
            let mut spec = FlowSpec {
                start_ns,
                ..entry.spec.clone()
            };
            if let (Data::Bytes(bytes), Some(size)) = (&mut spec.source, shorter.size) {
                *bytes = (*bytes).min(size);
            }
            flows.push(spec);
            schemes.push(entry.scheme.clone());
        }
    }
    (flows, schemes)
}

/// A scheme by name, or as a table of command lines.
pub(super) fn command(mut table: Table<'_>) -> Result<Scheme> {
    table.expect(COMMAND_KEYS)?;
    let words = |text: &str| {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err("is empty: write a program and its arguments".to_owned());
        }
        Ok(words)
    };
    let form = "a command line as in \"iperf3 -c {address} -p {port}\"";
    Ok(Scheme::Command(CommandLines {
        name: table.need("name", "a short name", values::id)?,
        sender: table.need("sender", form, words)?,
        receiver: table.need("receiver", form, words)?,
    }))
}

/// `before`: so many flows the entries before have.
pub(super) fn read(mut table: Table<'_>, before: usize) -> Result<Entry> {
    table.expect(FLOW_KEYS)?;
    let linux = AckPolicy::default();
    let scheme = table.value_or_table("scheme", str::parse, command)?;
    let count = table.take("count", values::count)?.unwrap_or(1);
    let start = table.take("start", values::time)?;
    let stagger = table.take("stagger", values::time)?;
    let size = table.take("size", values::size)?;
    let app_rate = table.take("app-rate", values::rate)?;
    let chunk = table.take("app-chunk", values::size)?;
    let spec = FlowSpec {
        stop_ns: table.take("stop", values::time)?,
        source: match (size, app_rate, chunk) {
            (None, None, None) => Data::Endless,
            (Some(bytes), None, None) => Data::Bytes(bytes),
            (None, Some(bps), None) => Data::Rate(bps),
            (None, Some(bps), Some(bytes)) => Data::Chunks {
                bytes,
                period_ns: (u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(bps)) as u64,
            },
            (Some(_), Some(_), _) => {
                return Err(table.wrong_here("a flow has either size or app-rate, not both"));
            }
            (_, None, Some(_)) => return Err(table.wrong_here("app-chunk needs app-rate")),
        },
        handshake: table.take("handshake", values::size)?,
        extra_rtt_ns: table.take("extra-rtt", values::time)?.unwrap_or(0),
        acks: AckPolicy {
            every: table
                .take("ack-every", values::per_ack)?
                .unwrap_or(linux.every),
            delay_ns: table
                .take("ack-delay", values::time)?
                .unwrap_or(linux.delay_ns),
            aggregation_ns: table.take("ack-aggregation", values::time)?.unwrap_or(0),
            compression_ns: table
                .take("ack-compression", values::time)?
                .unwrap_or(linux.compression_ns),
        },
        receive_window: table.take("receive-window", values::size)?,
        burst_segments: table
            .take("burst", burst_segments)?
            .unwrap_or(FlowSpec::new("").burst_segments),
        ..FlowSpec::new("")
    };
    let entry = Entry {
        spec,
        scheme,
        count,
        start_ns: start,
        stagger_ns: stagger,
    };
    let last = entry.starts(before, Shorter::default()).last();
    if entry.spec.stop_ns.is_some_and(|stop| Some(stop) <= last) {
        return Err(table.wrong_here("stop must be after the start of every flow"));
    }
    Ok(entry)
}

/// Segments sent at once, 1 to 44.
fn burst_segments(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=44).contains(n));
    number.ok_or_else(|| format!("`{text}` is not a burst: write 1 to 44 segments"))
}
