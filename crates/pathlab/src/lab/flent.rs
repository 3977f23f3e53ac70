//! Results in the data format of flent (<https://flent.org>), version 4, for its plots and its users.
//!
//! A run becomes flent's test `tcp_nup`: a series of throughput for each flow, their sum and mean, and one of delay.
//! Flent measures that with ICMP; here it is TCP's smoothed RTT, the mean of the flows, and the note says so. Datagrams
//! are series of their own, which no plot of this test shows.
//! Source of the format: `flent/resultset.py` and `flent/tests/tcp_nup.conf` of flent 2.1.

use serde_json::{Map, Value, json};
use std::time::UNIX_EPOCH;

use super::result::{FlowResult, RunResult};

const VERSION: u32 = 4;
/// End of the names of its files: gzip is part of the format.
pub const SUFFIX: &str = ".flent.gz";
const DELAY: &str = "Ping (ms) ICMP";

/// A result as flent's JSON, that it keeps compressed in a file of this name and [`SUFFIX`].
pub fn of(result: &RunResult, name: &str) -> Value {
    let inputs = &result.inputs;
    let bin_s = result.flows.first().map_or(0.0, |flow| flow.series.bin_s);
    let bins = result
        .flows
        .iter()
        .map(|flow| flow.series.goodput_mbps.len());
    let bins = bins.max().unwrap_or(0);
    let x_values: Vec<_> = (0..bins).map(|bin| (bin as f64 + 0.5) * bin_s).collect();
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    for flow in &result.flows {
        let of_kind = if flow.jitter_ms.is_some() {
            &mut udp
        } else {
            &mut tcp
        };
        of_kind.push(flow);
    }
    let mut series = Series::new(&result.conditions.began, &x_values);
    for (number, flow) in tcp.iter().enumerate() {
        series.add(
            &format!("TCP upload::{}", number + 1),
            "Mbits/s",
            throughput(flow, bin_s),
        );
    }
    for (number, flow) in udp.iter().enumerate() {
        series.add(
            &format!("UDP upload::{}", number + 1),
            "Mbits/s",
            throughput(flow, bin_s),
        );
    }
    let over = |value: &dyn Fn(&FlowResult, usize) -> Option<f64>, bin: usize| {
        let values: Vec<_> = tcp.iter().filter_map(|flow| value(flow, bin)).collect();
        (values.iter().sum::<f64>(), values.len() as f64)
    };
    let rate = |flow: &FlowResult, bin: usize| throughput_at(flow, bin_s, bin);
    let delay = |flow: &FlowResult, bin: usize| *flow.series.rtt_ms.get(bin)?;
    let mean = |(sum, count): (f64, f64)| (count > 0.0).then(|| sum / count);
    let all = 0..bins;
    series.add(
        "TCP upload sum",
        "Mbits/s",
        all.clone().map(|bin| Some(over(&rate, bin).0)),
    );
    series.add(
        "TCP upload avg",
        "Mbits/s",
        all.clone().map(|bin| mean(over(&rate, bin))),
    );
    series.add(DELAY, "ms", all.map(|bin| mean(over(&delay, bin))));
    let Series {
        results,
        raw,
        about,
        ..
    } = series;
    let began = result.conditions.began.replace('Z', ".000000Z");
    json!({
        "version": VERSION,
        "metadata": {
            "NAME": "tcp_nup",
            "TITLE": format!("{} {} seed {}", inputs.scenario, inputs.scheme, inputs.seed),
            "NOTE": format!("{DELAY} is TCP's smoothed RTT. Path: {}", inputs.path),
            "TIME": began,
            "T0": began,
            "HOST": "receiver",
            "HOSTS": ["receiver"],
            "LOCAL_HOST": "sender",
            "LENGTH": inputs.duration_s,
            "TOTAL_LENGTH": inputs.duration_s,
            "STEP_SIZE": bin_s,
            "IP_VERSION": 4,
            "TEST_PARAMETERS": { "upload_streams": tcp.len().to_string() },
            "DATA_FILENAME": format!("{name}{SUFFIX}"),
            "KERNEL_NAME": "Linux",
            "KERNEL_RELEASE": result.conditions.kernel,
            "SYSCTLS": result.conditions.sysctls,
            "FLENT_VERSION": format!("pk3c-ccp {}", result.conditions.version),
            "BATCH_NAME": inputs.backend,
            "SERIES_META": about,
        },
        "x_values": x_values,
        "results": results,
        "raw_values": raw,
    })
}

fn throughput(flow: &FlowResult, bin_s: f64) -> impl Iterator<Item = Option<f64>> {
    let bins = flow.series.goodput_mbps.len();
    (0..bins).map(move |bin| throughput_at(flow, bin_s, bin))
}

/// Nothing before its start and after its end.
fn throughput_at(flow: &FlowResult, bin_s: f64, bin: usize) -> Option<f64> {
    let lives = (bin + 1) as f64 * bin_s > flow.start_s && (bin as f64) * bin_s < flow.end_s;
    flow.series.goodput_mbps.get(bin).copied().filter(|_| lives)
}

/// Series by name, as flent has them three times: in step, as measured, and described.
struct Series<'a> {
    began_s: f64,
    x_values: &'a [f64],
    results: Map<String, Value>,
    raw: Map<String, Value>,
    about: Map<String, Value>,
}

impl<'a> Series<'a> {
    fn new(began: &str, x_values: &'a [f64]) -> Self {
        let began = humantime::parse_rfc3339(began).unwrap_or(UNIX_EPOCH);
        let since = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            began_s: since.as_secs_f64(),
            x_values,
            results: Map::new(),
            raw: Map::new(),
            about: Map::new(),
        }
    }

    fn add(&mut self, name: &str, units: &str, values: impl Iterator<Item = Option<f64>>) {
        // All series of a file are of one length.
        let values = values.chain(std::iter::repeat(None));
        let values: Vec<_> = values.take(self.x_values.len()).collect();
        let measured = values.iter().zip(self.x_values);
        let measured = measured.filter_map(|(value, x)| value.map(|value| (value, *x)));
        let raw: Vec<_> = measured
            .map(|(value, x)| json!({ "t": self.began_s + x, "val": value }))
            .collect();
        let known: Vec<_> = values.iter().flatten().collect();
        let mean = known.iter().copied().sum::<f64>() / known.len().max(1) as f64;
        let about = json!({ "UNITS": units, "MEAN_VALUE": mean });
        self.results.insert(name.to_owned(), json!(values));
        self.raw.insert(name.to_owned(), json!(raw));
        self.about.insert(name.to_owned(), about);
    }
}
