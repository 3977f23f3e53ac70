//! Runs as Stanford's Pantheon reports them: statistics of each run, and the table of means.
//!
//! Pantheon measures what leaves its tunnel, so throughput here is the payload with its headers, × 1500/1448. Its delay
//! is the 95th percentile of the packets' one-way delays. Its loss counts packets that were still queued at the end as
//! lost, which for seconds of queue is most of it; ours does not. Both are shown where the emulator counted all
//! packets.

use std::fmt::Write;
use std::time::Duration;

mod means;

pub(super) use means::published_total;

use super::claims;
use super::published::{PantheonRun, Tunnel};
use crate::lab::report::measure::{seconds, under_test};
use crate::lab::report::{Group, Groups};
use crate::lab::result::RunResult;
use crate::lab::statistics::mean;

/// Bytes of a packet over bytes of its payload.
const WIRE_PER_PAYLOAD: f64 = 1500.0 / 1448.0;

/// What a block of statistics shows.
pub struct Block {
    /// Name of the scheme.
    pub scheme: String,
    /// Number of the run.
    pub run: u32,
    /// When it began and ended, UTC.
    pub times: [String; 2],
    /// Offsets of the receiver's and the sender's clocks, ms; none where both are one machine.
    pub clock_offsets_ms: Option<[f64; 2]>,
    /// When the statistics were made, UTC.
    pub generated: String,
    /// What the path carried, Mbit/s, if that is known.
    pub capacity_mbps: Option<f64>,
    /// All flows together.
    pub total: Option<Tunnel>,
    /// Loss of all flows without what was still queued at the end, %.
    pub settled_loss_percent: Option<f64>,
    /// Each flow.
    pub flows: Vec<Tunnel>,
}

impl Block {
    /// A run of the report itself.
    pub fn published(run: &PantheonRun, generated: &str) -> Self {
        Self {
            scheme: run.scheme.clone(),
            run: run.run,
            times: [run.start_utc.clone(), run.end_utc.clone()],
            clock_offsets_ms: Some([run.local_clock_offset_ms, run.remote_clock_offset_ms]),
            generated: generated.to_owned(),
            capacity_mbps: None,
            total: run.total(),
            settled_loss_percent: None,
            flows: run.flows(),
        }
    }

    /// A run of ours.
    pub fn ours(run: &RunResult, number: u32) -> Self {
        let (began, ended) = times(run);
        let settled = run.total.loss.map(|loss| loss * 100.0);
        // Without a queue at the end both are the same but for how they were counted.
        let all = all_lost(run).filter(|all| settled.is_none_or(|settled| *all > settled));
        Self {
            scheme: run.inputs.scheme.clone(),
            run: number,
            times: [began, ended.clone()],
            clock_offsets_ms: None,
            generated: ended,
            capacity_mbps: wire_capacity(run),
            total: tunnel(
                run.total.goodput_mbps,
                run.total.owd_ms.map(|owd| owd.p95),
                all.or(settled),
            ),
            settled_loss_percent: all.and(settled),
            flows: under_test(run)
                .filter_map(|flow| {
                    let loss = flow.loss.map(|loss| loss * 100.0);
                    tunnel(flow.goodput_mbps, flow.owd_ms.map(|owd| owd.p95), loss)
                })
                .collect(),
        }
    }
}

fn tunnel(goodput_mbps: f64, p95_ms: Option<f64>, loss_percent: Option<f64>) -> Option<Tunnel> {
    Some(Tunnel {
        mbps: goodput_mbps * WIRE_PER_PAYLOAD,
        p95_ms: p95_ms?,
        loss_percent: loss_percent?,
    })
}

/// Packets that did not arrive before the end over packets sent, %, as Pantheon counts; only where no other traffic
/// is among them.
fn all_lost(run: &RunResult) -> Option<f64> {
    let link = run.link.as_ref().filter(|link| link.arrived > 0)?;
    let lost = 1.0 - link.delivered as f64 / link.arrived as f64;
    run.flows
        .iter()
        .all(|flow| flow.under_test)
        .then_some(lost * 100.0)
}

/// What the bottleneck carried, if there was one, Mbit/s on the wire: as measured, or from the capacity for payload.
fn wire_capacity(run: &RunResult) -> Option<f64> {
    let measured = run.link.as_ref().and_then(|link| mean(&link.capacity_mbps));
    measured.or_else(|| {
        let payload_mbps = run.inputs.capacity_mbps?;
        Some(payload_mbps * WIRE_PER_PAYLOAD / (1.0 - run.inputs.loss).max(1e-9))
    })
}

/// Begin and end in Pantheon's form.
fn times(run: &RunResult) -> (String, String) {
    let shown = |time| {
        let text = humantime::format_rfc3339_seconds(time).to_string();
        text.replace('T', " ").trim_end_matches('Z').to_owned()
    };
    let began = &run.conditions.began;
    let length = Duration::try_from_secs_f64(seconds(run)).unwrap_or_default();
    match humantime::parse_rfc3339_weak(began) {
        Ok(time) => (shown(time), shown(time + length)),
        Err(_) => (began.clone(), began.clone()),
    }
}

/// The statistics of a run.
pub fn block(block: &Block) -> String {
    let mut text = format!(
        "Run {}: Statistics of {}\nStart at: {}\nEnd at: {}\n",
        block.run, block.scheme, block.times[0], block.times[1]
    );
    if let Some([local, remote]) = block.clock_offsets_ms {
        let _ = write!(
            text,
            "Local clock offset: {local:.3} ms\nRemote clock offset: {remote:.3} ms\n"
        );
    }
    let _ = write!(
        text,
        "\n# Below is generated by plot.py at {}\n# Datalink statistics\n",
        block.generated
    );
    let Some(total) = block.total else {
        return text + "(no one-way delays were measured)\n";
    };
    let _ = writeln!(text, "-- Total of {} flows:", block.flows.len());
    let mut utilization = String::new();
    if let Some(capacity) = block.capacity_mbps {
        let _ = writeln!(text, "Average capacity: {capacity:.2} Mbit/s");
        utilization = format!(" ({:.1}% utilization)", total.mbps / capacity * 100.0);
    }
    text += &statistics(&total, &utilization);
    if let Some(loss) = block.settled_loss_percent {
        let _ = writeln!(text, "Loss rate without packets still queued: {loss:.2}%");
    }
    for (flow, number) in block.flows.iter().zip(1..) {
        let _ = writeln!(text, "-- Flow {number}:");
        text += &statistics(flow, "");
    }
    text
}

fn statistics(tunnel: &Tunnel, utilization: &str) -> String {
    format!(
        "Average throughput: {:.2} Mbit/s{utilization}\n95th percentile per-packet one-way delay: {:.3} ms\nLoss rate: {:.2}%\n",
        tunnel.mbps, tunnel.p95_ms, tunnel.loss_percent
    )
}

/// All scenarios: heading, table of means beside the report's, statistics of each run.
pub fn render(groups: &Groups<'_>) -> String {
    let mut text = String::new();
    for scenario in groups.scenarios() {
        let Some(run) = scenario.first().and_then(Group::any) else {
            continue;
        };
        text += &head(run, scenario);
        text += &means::table(scenario, run);
        for group in scenario {
            for (run, number) in group.runs.iter().zip(1..) {
                text.push('\n');
                text += &block(&Block::ours(run, number));
            }
        }
        text.push('\n');
    }
    text + &claims::render("pantheon", groups)
}

fn head(run: &RunResult, scenario: &[Group<'_>]) -> String {
    let starts: Vec<_> = under_test(run).map(|flow| flow.start_s).collect();
    let interval = starts
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    let repetitions = scenario
        .iter()
        .map(|group| group.runs.len())
        .max()
        .unwrap_or(0);
    format!(
        "{}: {}\nRepeated the test of {} congestion control schemes {repetitions} times.\n\
         Each test lasted for {} seconds running {} flows with {interval}-second interval between two flows.\n\
         Losses of single flows are without packets that were still queued at the end.\n\
         Sender's gso_max_segs {}; kernel {}; git summary: {}\n\n",
        run.inputs.scenario,
        run.inputs.path,
        scenario.len(),
        run.inputs.duration_s,
        starts.len(),
        run.inputs.settings.gso_max_segs,
        run.conditions.kernel,
        run.conditions.revision
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::format::published::pantheon_runs;
    use crate::lab::report::read::{Loaded, Results};
    use crate::lab::report::sample::{flow, quantiles, run};
    use crate::lab::result::LinkResult;

    #[test]
    fn a_published_run_comes_out_as_printed() {
        let published = pantheon_runs()
            .iter()
            .find(|run| (run.scheme.as_str(), run.run) == ("TCP BBR", 1));
        let text = block(&Block::published(published.unwrap(), "2017-08-13 07:46:29"));
        let expected = "\
Run 1: Statistics of TCP BBR
Start at: 2017-08-13 05:49:54
End at: 2017-08-13 05:50:24
Local clock offset: 0.503 ms
Remote clock offset: -2.947 ms

# Below is generated by plot.py at 2017-08-13 07:46:29
# Datalink statistics
-- Total of 3 flows:
Average throughput: 2.40 Mbit/s
95th percentile per-packet one-way delay: 1278.218 ms
Loss rate: 4.20%
-- Flow 1:
Average throughput: 1.61 Mbit/s
95th percentile per-packet one-way delay: 1248.763 ms
Loss rate: 3.47%
";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(text.matches("-- Flow").count(), 3);
    }

    fn three_flows(scheme: &str) -> RunResult {
        let mut result = run("E1", scheme, 1);
        result.inputs.capacity_mbps = Some(2.365);
        for (number, start) in [(1, 0.0), (2, 10.0), (3, 20.0)] {
            let mut flow = flow(number, start, 30.0, vec![0.8; 300]);
            (flow.owd_ms, flow.loss) = (Some(quantiles(200.0, 531.25)), Some(0.02));
            flow.goodput_mbps = 1448.0 / 1500.0;
            result.flows.push(flow);
        }
        result.total.goodput_mbps = 2.0 * 1448.0 / 1500.0;
        (result.total.owd_ms, result.total.loss) = (Some(quantiles(200.0, 541.0)), Some(0.02));
        result.link = Some(LinkResult {
            arrived: 1000,
            delivered: 950,
            ..LinkResult::default()
        });
        result
    }

    #[test]
    fn our_runs_have_the_same_form_with_both_losses() {
        let text = block(&Block::ours(&three_flows("cubic"), 2));
        let expected = "\
Run 2: Statistics of cubic
Start at: 2026-11-21 05:49:54
End at: 2026-11-21 05:50:24

# Below is generated by plot.py at 2026-11-21 05:50:24
# Datalink statistics
-- Total of 3 flows:
Average capacity: 2.45 Mbit/s
Average throughput: 2.00 Mbit/s (81.6% utilization)
95th percentile per-packet one-way delay: 541.000 ms
Loss rate: 5.00%
Loss rate without packets still queued: 2.00%
-- Flow 1:
Average throughput: 1.00 Mbit/s
95th percentile per-packet one-way delay: 531.250 ms
Loss rate: 2.00%
";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn our_means_stand_above_the_published_ones() {
        let mut results = Results::default();
        for scheme in ["cubic", "pk3c"] {
            results.runs.push(Loaded {
                path: "x.json".into(),
                run: three_flows(scheme),
            });
        }
        let text = render(&Groups::of(&results));
        let lines: Vec<_> = text
            .lines()
            .skip_while(|line| !line.starts_with("cubic"))
            .take(4)
            .collect();
        assert_eq!(
            lines,
            [
                "cubic                  1     1.00   1.00   1.00    531.25   531.25   531.25     2.00   2.00   2.00",
                "  TCP Cubic            3     1.65   0.66   0.86    499.20   530.51   545.14     2.40   4.05   8.46",
                "  difference                 -39%   +52%   +17%       +6%      +0%      -3%    -0.40  -2.05  -6.46",
                "pk3c                   1     1.00   1.00   1.00    531.25   531.25   531.25     2.00   2.00   2.00",
            ],
            "{text}"
        );
        assert!(
            text.contains("running 3 flows with 10-second interval"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}
