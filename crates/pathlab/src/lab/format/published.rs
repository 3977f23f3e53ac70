//! The numbers that the source documents published, from `data/published`.
//!
//! The files are part of the program; their columns are described in `data/published/README.md`. A cell that could not
//! be read in its document is empty there and `None` here.

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;

macro_rules! table {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../data/published/",
            $name
        ))
    };
}

/// Rows of an embedded table.
fn rows<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Result<Vec<T>, _> = reader.deserialize().collect();
    rows.expect("the embedded tables are constant, and tests read all of them")
}

/// A data set of the FreeBSD document: goodput over loopback, Gbit/s.
#[derive(Clone, Debug)]
pub struct Loopback {
    /// `iperf` or `iperf3`.
    pub tool: String,
    /// `freebsd`, `rack` or `bbr`.
    pub stack: String,
    /// Congestion control.
    pub cca: String,
    /// All three runs.
    pub samples: [f64; 3],
    /// Least, greatest, median, mean and standard deviation as printed.
    pub printed: [String; 5],
}

impl Loopback {
    /// Its name in the document's comparisons.
    pub fn name(&self) -> String {
        format!("{}.{}.{}", self.tool, self.stack, self.cca)
    }
}

/// A comparison of the FreeBSD document.
#[derive(Clone, Debug)]
pub struct PublishedComparison {
    /// The reference's name.
    pub reference: String,
    /// The data set's name.
    pub name: String,
    /// The verdict.
    pub differs: bool,
    /// Difference, its interval, both in %, and pooled s, as printed; only of proven differences.
    pub printed: Option<[String; 5]>,
    /// Difference, interval and relative interval, recomputed independently from the samples.
    pub recomputed: [String; 3],
}

#[derive(Deserialize)]
struct LoopbackRow {
    record: String,
    tool: String,
    stack: String,
    cca: String,
    min: String,
    max: String,
    median: String,
    avg: String,
    stddev: String,
    sample_1: Option<f64>,
    sample_2: Option<f64>,
    sample_3: Option<f64>,
    vs: String,
    verdict_95: String,
    diff: String,
    diff_ci95: String,
    diff_pct: String,
    diff_pct_ci95: String,
    pooled_s: String,
    recomputed_diff: String,
    recomputed_ci95: String,
    recomputed_pct_ci95: String,
}

static LOOPBACK: LazyLock<(Vec<Loopback>, Vec<PublishedComparison>)> = LazyLock::new(|| {
    let (mut sets, mut comparisons) = (Vec::new(), Vec::new());
    for row in rows::<LoopbackRow>(table!("freebsd_loopback.csv")) {
        if let (Some(one), Some(two), Some(three)) = (row.sample_1, row.sample_2, row.sample_3) {
            sets.push(Loopback {
                tool: row.tool,
                stack: row.stack,
                cca: row.cca,
                samples: [one, two, three],
                printed: [row.min, row.max, row.median, row.avg, row.stddev],
            });
        } else if row.record == "comparison" {
            let printed = [
                row.diff,
                row.diff_ci95,
                row.diff_pct,
                row.diff_pct_ci95,
                row.pooled_s,
            ];
            comparisons.push(PublishedComparison {
                reference: row.vs,
                name: format!("{}.{}.{}", row.tool, row.stack, row.cca),
                differs: row.verdict_95 == "difference",
                printed: (!printed[0].is_empty()).then_some(printed),
                recomputed: [
                    row.recomputed_diff,
                    row.recomputed_ci95,
                    row.recomputed_pct_ci95,
                ],
            });
        }
    }
    (sets, comparisons)
});

/// The FreeBSD document's data sets.
pub fn loopback() -> &'static [Loopback] {
    &LOOPBACK.0
}

/// Its comparisons.
pub fn comparisons() -> &'static [PublishedComparison] {
    &LOOPBACK.1
}

/// Throughput, delay and loss of a flow, or of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tunnel {
    /// Throughput, Mbit/s.
    pub mbps: f64,
    /// 95th percentile of the one-way delay, ms.
    pub p95_ms: f64,
    /// Loss, %.
    pub loss_percent: f64,
}

/// A run of the Pantheon report that has statistics.
#[derive(Clone, Debug, Deserialize)]
pub struct PantheonRun {
    /// Its scheme, as the report names it.
    pub scheme: String,
    /// Number of the run.
    pub run: u32,
    /// UTC.
    pub start_utc: String,
    /// UTC.
    pub end_utc: String,
    /// Offset of the receiver's clock, ms.
    pub local_clock_offset_ms: f64,
    /// Offset of the sender's clock, ms.
    pub remote_clock_offset_ms: f64,
    total_tput_mbps: Option<f64>,
    total_p95_owd_ms: Option<f64>,
    total_loss_pct: Option<f64>,
    flow1_tput_mbps: Option<f64>,
    flow1_p95_owd_ms: Option<f64>,
    flow1_loss_pct: Option<f64>,
    flow2_tput_mbps: Option<f64>,
    flow2_p95_owd_ms: Option<f64>,
    flow2_loss_pct: Option<f64>,
    flow3_tput_mbps: Option<f64>,
    flow3_p95_owd_ms: Option<f64>,
    flow3_loss_pct: Option<f64>,
}

impl PantheonRun {
    /// All flows together; `None` of a run without statistics.
    pub fn total(&self) -> Option<Tunnel> {
        tunnel(
            self.total_tput_mbps,
            self.total_p95_owd_ms,
            self.total_loss_pct,
        )
    }

    /// The three flows.
    pub fn flows(&self) -> Vec<Tunnel> {
        let flows = [
            tunnel(
                self.flow1_tput_mbps,
                self.flow1_p95_owd_ms,
                self.flow1_loss_pct,
            ),
            tunnel(
                self.flow2_tput_mbps,
                self.flow2_p95_owd_ms,
                self.flow2_loss_pct,
            ),
            tunnel(
                self.flow3_tput_mbps,
                self.flow3_p95_owd_ms,
                self.flow3_loss_pct,
            ),
        ];
        flows.into_iter().flatten().collect()
    }
}

fn tunnel(mbps: Option<f64>, p95_ms: Option<f64>, loss_percent: Option<f64>) -> Option<Tunnel> {
    Some(Tunnel {
        mbps: mbps?,
        p95_ms: p95_ms?,
        loss_percent: loss_percent?,
    })
}

static PANTHEON: LazyLock<Vec<PantheonRun>> =
    LazyLock::new(|| rows(table!("pantheon_mexico_runs.csv")));

/// The Pantheon report's runs, also those without statistics.
pub fn pantheon_runs() -> &'static [PantheonRun] {
    &PANTHEON
}

/// A listing of iperf: one run of the PK3C README or of the GENI page.
#[derive(Clone, Debug, Deserialize)]
pub struct Listing {
    /// Its id in the tables.
    #[serde(rename = "run_id")]
    pub id: String,
    /// Congestion control.
    pub cc: String,
    /// Flows.
    pub n_flows: u32,
    /// Length, s.
    pub duration_s: f64,
    /// Sum at the receiver, Mbit/s.
    #[serde(alias = "sum_mbps", rename = "sum_receiver_mbps")]
    pub sum_mbps: Option<f64>,
    /// Sum at the sender, Mbit/s.
    #[serde(default)]
    pub sum_sender_mbps: Option<f64>,
    /// Retransmissions of all flows.
    #[serde(default)]
    pub retransmits: Option<u64>,
    /// Slowest flow, Mbit/s.
    pub flow_min_mbps: Option<f64>,
    /// Fastest flow, Mbit/s.
    pub flow_max_mbps: Option<f64>,
    /// Jain's index of the listed flows.
    #[serde(alias = "jain_rate")]
    pub jain: Option<f64>,
}

static LISTINGS: LazyLock<Vec<Listing>> = LazyLock::new(|| {
    let mut listings = rows::<Listing>(table!("pk3c_readme.csv"));
    listings.extend(rows::<Listing>(table!("geni.csv")));
    listings
});

/// All listings of iperf.
pub fn listings() -> &'static [Listing] {
    &LISTINGS
}

/// A row of the Bequant report; `None` where a cell could not be read.
#[derive(Clone, Debug, Deserialize)]
pub struct Download {
    /// `fiber_eth_deep` and so on.
    pub scenario: String,
    /// Access network.
    pub access: String,
    /// System of the client.
    pub client_os: String,
    /// Rate limit, Mbit/s; `None` for the network's own.
    pub limit_mbps: Option<f64>,
    /// Packets in the buffer, or words.
    pub buffer_pkts: String,
    /// What Bequant was compared with.
    pub competitor: String,
    /// `1`, `6_same` or `3+3`.
    pub connections: String,
    goodput_bequant_mbps: Option<f64>,
    goodput_other_mbps: Option<f64>,
    #[serde(rename = "ip_volume_bequant_MB")]
    ip_volume_bequant_mb: Option<f64>,
    #[serde(rename = "ip_volume_other_MB")]
    ip_volume_other_mb: Option<f64>,
    throughput_over_goodput_bequant_pct: Option<f64>,
    throughput_over_goodput_other_pct: Option<f64>,
    rtt_max_bequant_ms: Option<f64>,
    rtt_max_other_ms: Option<f64>,
    rtt_avg_bequant_ms: Option<f64>,
    rtt_avg_other_ms: Option<f64>,
    rtt_min_bequant_ms: Option<f64>,
    rtt_min_other_ms: Option<f64>,
}

impl Download {
    /// Bequant's and the other's: average speed (Mbit/s), IP volume (MB), throughput over goodput (%), greatest, mean
    /// and least RTT (ms).
    pub fn pairs(&self) -> [(Option<f64>, Option<f64>); 6] {
        [
            (self.goodput_bequant_mbps, self.goodput_other_mbps),
            (self.ip_volume_bequant_mb, self.ip_volume_other_mb),
            (
                self.throughput_over_goodput_bequant_pct,
                self.throughput_over_goodput_other_pct,
            ),
            (self.rtt_max_bequant_ms, self.rtt_max_other_ms),
            (self.rtt_avg_bequant_ms, self.rtt_avg_other_ms),
            (self.rtt_min_bequant_ms, self.rtt_min_other_ms),
        ]
    }
}

static DOWNLOADS: LazyLock<Vec<Download>> = LazyLock::new(|| rows(table!("bequant.csv")));

/// The Bequant report's rows.
pub fn downloads() -> &'static [Download] {
    &DOWNLOADS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read() {
        assert_eq!((loopback().len(), comparisons().len()), (42, 85));
        assert_eq!(pantheon_runs().len(), 45);
        let with_statistics = pantheon_runs().iter().filter(|run| run.total().is_some());
        assert_eq!(with_statistics.count(), 43);
        assert_eq!(downloads().len(), 72);
        let listing = |id: &str| listings().iter().find(|listing| listing.id == id).unwrap();
        assert_eq!(listing("wan107_k4_pk3c_n10_t60").retransmits, Some(11_728));
        assert_eq!(listing("2_cubic_1800").sum_mbps, Some(31.3));
        assert_eq!(listing("3_reno_n30_60").jain, Some(0.5722));
    }
}
