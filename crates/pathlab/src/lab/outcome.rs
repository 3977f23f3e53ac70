//! From what senders, receivers, the emulator and agents say of a run to its result.

use std::collections::HashMap;
use std::time::Duration;

use pathsim::Distribution;

use super::inputs::capacity_mbps;
use super::line::Closed;
use super::result::{
    AgentResult, Conditions, Cpu, FORMAT, FlowResult, FlowSeries, Inputs, Lateness, LinkResult,
    RunResult, Total,
};
use super::run::Run;
use super::statistics::{jain, quantiles, quantiles_of, ratio};
use crate::emulator::EmulatorReport;
use crate::flows::{self, FlowKey};
use crate::path::PathReport;
use crate::traffic::{Bins, FlowReport, Report, Sample};

/// An agent must have driven its flows for at least this share of their time.
const LEAST_DRIVEN: f64 = 0.99;

/// A receive window may be so much larger than asked for.
const WINDOW_TOLERANCE: f64 = 0.05;

/// What is known of a run at its end.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) run: &'a Run,
    pub(super) inputs: &'a Inputs,
    pub(super) conditions: Conditions,
    pub(super) traffic: Report,
    /// What carried it.
    pub(super) line: Closed,
    /// Of each agent, the share of its flows' time in which it drove them; `None` if no flow lasted a second.
    pub(super) driven: Vec<Option<f64>>,
    pub(super) agent_cpu: Option<Duration>,
    /// The 99th percentile of lateness that voids a run.
    pub(super) lateness_bound: Duration,
}

impl Parts<'_> {
    pub(super) fn result(self) -> RunResult {
        let path = match &self.line {
            Closed::Emulated(path) => Some(&**path),
            _ => None,
        };
        let seen = Seen::of(path);
        let run_time = self.traffic.duration;
        let planned = Duration::from_nanos(self.run.scenario.duration_ns);
        let flows: Vec<FlowResult> = (0..self.traffic.flows.len())
            .map(|index| self.flow(index, &seen))
            .collect();
        let mut inputs = self.inputs.clone();
        inputs.capacity_mbps = self.capacity(Duration::ZERO, run_time);
        let total = Total {
            seconds: (run_time < planned).then_some(run_time.as_secs_f64()),
            ..self.total(&flows, &seen, inputs.capacity_mbps)
        };
        let least_driven = self.driven.iter().copied().flatten().reduce(f64::min);
        RunResult {
            format: FORMAT,
            void: self.void(&flows),
            total,
            flows,
            link: match &self.line {
                Closed::Emulated(path) => Some(link(path)),
                Closed::Netem(link) => Some(link.clone()),
                Closed::Loopback => None,
            },
            agent: least_driven.map(|driven| AgentResult { driven }),
            cpu: Cpu {
                sender_s: Some(self.traffic.sender_cpu.as_secs_f64()),
                agent_s: self.agent_cpu.map(|cpu| cpu.as_secs_f64()),
                emulator_s: path.map(|path| path.emulator.cpu.as_secs_f64()),
            },
            inputs,
            conditions: self.conditions,
        }
    }

    /// Capacity of the path between two times, Mbit/s of payload; `None` if there is no path.
    fn capacity(&self, from: Duration, to: Duration) -> Option<f64> {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let is_there = !self.run.settings.loopback;
        is_there.then(|| capacity_mbps(&self.run.scenario.path, ns(from), ns(to)))
    }

    fn flow(&self, index: usize, seen: &Seen<'_>) -> FlowResult {
        let report = &self.traffic.flows[index];
        let run = self.traffic.duration;
        let spec = &self.run.scenario.flows[index];
        let link = seen.sum(report);
        let life = life(report);
        let half = run / 2;
        let half_life = report.end.saturating_sub(report.start.max(half));
        let second_half = report.received.between(half, run);
        let timed = report.received_at_link.is_none();
        let datagrams = report.datagrams;
        FlowResult {
            flow: index as u32 + 1,
            scheme: spec.scheme.clone(),
            under_test: self.run.under_test[index],
            start_s: report.start.as_secs_f64(),
            end_s: report.end.as_secs_f64(),
            sent_bytes: report.sent_bytes,
            received_bytes: report.received_bytes(),
            goodput_mbps: mbps(report.received_bytes(), life),
            goodput_second_half_mbps: (!half_life.is_zero() && timed)
                .then(|| mbps(second_half, half_life)),
            retransmissions: report.retransmissions,
            rtt_ms: quantiles(rtts_ms(&report.samples)),
            owd_ms: quantiles_of(&link.owd),
            loss: link.loss(),
            completions: report.completions.clone(),
            jitter_ms: datagrams.map(|datagrams| datagrams.jitter.as_secs_f64() * 1e3),
            datagrams_sent: datagrams.map(|datagrams| datagrams.sent),
            datagrams_lost: datagrams.map(|datagrams| datagrams.lost),
            receive_window_bytes: spec.receive_window.and(greatest_window(report)),
            series: series(report, &link, run),
        }
    }

    fn total(&self, flows: &[FlowResult], seen: &Seen<'_>, capacity_mbps: Option<f64>) -> Total {
        let run = self.traffic.duration;
        let tested = || flows.iter().filter(|flow| flow.under_test);
        let reports = self.traffic.flows.iter().zip(&self.run.under_test);
        let reports = || {
            reports
                .clone()
                .filter(|(_, tested)| **tested)
                .map(|(report, _)| report)
        };
        let (mut link, mut received) = (LinkSum::default(), Bins::default());
        for report in reports() {
            link.add(&seen.sum(report));
            received.merge(&report.received);
        }
        let timed = reports().all(|report| report.received_at_link.is_none());
        let goodput_mbps = mbps(reports().map(FlowReport::received_bytes).sum(), run);
        let half_capacity = self.capacity(run / 2, run);
        let half_mbps = mbps(received.between(run / 2, run), run - run / 2);
        let retransmissions: u64 = tested().map(|flow| flow.retransmissions).sum();
        let delivered: u64 = reports().map(|report| report.delivered_segments).sum();
        let halves: Vec<f64> = tested()
            .filter_map(|flow| flow.goodput_second_half_mbps)
            .collect();
        Total {
            seconds: None,
            goodput_mbps,
            use_run: capacity_mbps.map(|capacity| ratio(goodput_mbps, capacity)),
            use_second_half: half_capacity
                .filter(|capacity| *capacity > 0.0 && timed)
                .map(|capacity| half_mbps / capacity),
            jain: jain(tested().map(|flow| flow.goodput_mbps)),
            jain_second_half: (!halves.is_empty()).then(|| jain(halves)),
            retransmissions,
            retransmission_ratio: ratio(retransmissions as f64, delivered as f64),
            rtt_ms: quantiles(reports().flat_map(|report| rtts_ms(&report.samples))),
            owd_ms: quantiles_of(&link.owd),
            loss: link.loss(),
        }
    }

    /// Why the result must not be used.
    fn void(&self, flows: &[FlowResult]) -> Option<String> {
        let run = self.traffic.duration;
        for driven in &self.driven {
            match driven {
                Some(driven) if *driven < LEAST_DRIVEN => {
                    return Some(format!(
                        "the agent drove its flows for {:.1} % of their time: the kernel's fallback did the rest",
                        driven * 100.0
                    ));
                }
                None if run >= Duration::from_secs(2) => {
                    return Some("the agent told of no flow that it drove".into());
                }
                _ => {}
            }
        }
        if let Closed::Emulated(path) = &self.line {
            let late = path.emulator.lateness.summary().p99_lateness_us;
            if u128::from(late) > self.lateness_bound.as_micros() {
                return Some(format!(
                    "the emulator was late: one packet in 100 by {late} µs or more, and {} µs are the bound",
                    self.lateness_bound.as_micros()
                ));
            }
            let (unseen, refused) = (path.unseen, path.emulator.refused);
            if unseen + refused > 0 {
                return Some(format!(
                    "packets were lost outside the emulated path: {unseen} before it and {refused} behind it"
                ));
            }
        }
        flows.iter().zip(&self.run.scenario.flows).find_map(|(flow, spec)| {
            let (asked, is) = (spec.receive_window?, flow.receive_window_bytes?);
            (is as f64 > asked as f64 * (1.0 + WINDOW_TOLERANCE)).then(|| {
                let number = flow.flow;
                format!("the receive window of flow {number} was {is} bytes, and {asked} were asked for")
            })
        })
    }
}

/// How long a flow lived; of transfers, how long they took together.
fn life(report: &FlowReport) -> Duration {
    if report.completions.is_empty() {
        return report.end.saturating_sub(report.start);
    }
    let end_s = report.end.as_secs_f64();
    let seconds = report.completions.iter().map(|transfer| {
        let unfinished = end_s - transfer.start_s;
        transfer.seconds.unwrap_or(unfinished.max(0.0))
    });
    Duration::from_secs_f64(seconds.sum())
}

fn mbps(bytes: u64, time: Duration) -> f64 {
    ratio(bytes as f64 * 8.0 / 1e6, time.as_secs_f64())
}

fn rtts_ms(samples: &[Sample]) -> impl Iterator<Item = f64> {
    samples.iter().map(|sample| sample.srtt.as_secs_f64() * 1e3)
}

/// The greatest window that was offered in the second half of the samples, when corrections are over.
fn greatest_window(report: &FlowReport) -> Option<u64> {
    let samples = &report.samples[report.samples.len() / 2..];
    samples
        .iter()
        .map(|sample| sample.window_bytes.into())
        .max()
}

fn series(report: &FlowReport, link: &LinkSum, run: Duration) -> FlowSeries {
    let bins = Bins::count(run);
    let (mut rtt_ms, mut cwnd_packets) = (vec![None; bins], vec![None; bins]);
    for sample in &report.samples {
        // A sample tells of the time before it; the last of a bin stands for it.
        let before = sample.at.saturating_sub(Duration::from_nanos(1));
        let bin = Bins::bin(before).min(bins - 1);
        rtt_ms[bin] = Some(sample.srtt.as_secs_f64() * 1e3);
        cwnd_packets[bin] = Some(f64::from(sample.cwnd_packets));
    }
    let mut owd_ms = link.owd_p95_ms.clone();
    owd_ms.resize(bins, None);
    FlowSeries {
        bin_s: Bins::LENGTH.as_secs_f64(),
        // What programs received is known without its times.
        goodput_mbps: match report.received_at_link {
            None => report.received.mbps(),
            Some(_) => Vec::new(),
        },
        rtt_ms,
        owd_ms,
        cwnd_packets,
    }
}

/// What the emulator saw of each connection.
struct Seen<'a>(HashMap<FlowKey, &'a flows::FlowReport>);

/// What the emulator saw of a flow, all connections.
#[derive(Clone, Debug, Default)]
struct LinkSum {
    arrived: u64,
    gone: u64,
    owd: Distribution,
    owd_p95_ms: Vec<Option<f64>>,
}

impl<'a> Seen<'a> {
    fn of(path: Option<&'a PathReport>) -> Self {
        let flows = path.into_iter().flat_map(|path| &path.emulator.per_flow);
        Self(flows.map(|(key, report)| (*key, report)).collect())
    }

    fn sum(&self, flow: &FlowReport) -> LinkSum {
        let mut sum = LinkSum::default();
        let connections = flow.keys.iter().filter_map(|key| self.0.get(key));
        for connection in connections {
            sum.add(&LinkSum {
                arrived: connection.arrived,
                gone: connection.queue_drops + connection.losses,
                owd: connection.owd.clone(),
                owd_p95_ms: connection.owd_p95_ms.clone(),
            });
        }
        sum
    }
}

impl LinkSum {
    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.gone += other.gone;
        self.owd.merge(&other.owd);
        if self.owd_p95_ms.len() < other.owd_p95_ms.len() {
            self.owd_p95_ms.resize(other.owd_p95_ms.len(), None);
        }
        // Connections of a flow follow each other: at most one of them has much to say of a bin.
        for (own, others) in self.owd_p95_ms.iter_mut().zip(&other.owd_p95_ms) {
            *own = own.map_or(*others, |own| {
                Some(others.map_or(own, |other| other.max(own)))
            });
        }
    }

    fn loss(&self) -> Option<f64> {
        (self.arrived > 0).then(|| self.gone as f64 / self.arrived as f64)
    }
}

fn link(path: &PathReport) -> LinkResult {
    let EmulatorReport {
        lateness,
        scheduling,
        data,
        ..
    } = &path.emulator;
    let late = lateness.summary();
    LinkResult {
        arrived: data.arrived,
        queue_drops: data.queue_drops + data.overflows,
        random_losses: data.losses,
        delivered: data.released,
        marked: data.marked,
        queue_peak_packets: path.emulator.queue_peak_packets,
        bin_s: path.emulator.bin.as_secs_f64(),
        queue_packets: path.emulator.queue_packets.clone(),
        capacity_mbps: path.emulator.capacity_mbps.clone(),
        lateness: Some(Lateness {
            mean_us: late.mean_lateness_us,
            p99_us: late.p99_lateness_us as f64,
            max_us: late.max_lateness_us as f64,
            scheduling: scheduling.to_string(),
        }),
        unseen: path.unseen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::inputs::{About, Carrier};
    use crate::lab::result::Completion;
    use crate::lab::run::{FlowScheme, Settings};
    use crate::scenario::Scheme;
    use pathsim::{FlowSpec, MILLISECOND, PathSpec, SECOND, Scenario};

    const S: Duration = Duration::from_secs(1);

    fn run(flows: usize) -> Run {
        Run {
            id: "x".into(),
            scheme: "cubic".into(),
            scenario: Scenario {
                path: PathSpec::clean(15_000_000, 40 * MILLISECOND),
                flows: vec![FlowSpec::new("cubic"); flows],
                duration_ns: 4 * SECOND,
                seed: 1,
                series: false,
            },
            schemes: vec![FlowScheme::Tcp(Scheme::Kernel("cubic".into())); flows],
            under_test: vec![true; flows],
            settings: Settings::default(),
        }
    }

    fn sample(at: Duration, srtt_ms: u64, window_bytes: u32) -> Sample {
        Sample {
            at,
            srtt: Duration::from_millis(srtt_ms),
            cwnd_packets: 10,
            retransmissions: 0,
            acked_bytes: 0,
            delivered_segments: 0,
            window_bytes,
        }
    }

    /// A flow of 100 kB in each second from `start` to `end`.
    fn flow(start: u64, end: u64) -> FlowReport {
        let mut received = Bins::default();
        (start..end).for_each(|second| received.add(second as u32 * S + S / 2, 100_000));
        FlowReport {
            start: start as u32 * S,
            end: end as u32 * S,
            received: received.cut(4 * S),
            retransmissions: 3,
            delivered_segments: 100,
            samples: (start..end)
                .map(|s| sample((s + 1) as u32 * S, 40 + s, 90_000))
                .collect(),
            ..FlowReport::default()
        }
    }

    fn result(run: &Run, flows: Vec<FlowReport>, driven: Vec<Option<f64>>) -> RunResult {
        let traffic = Report {
            duration: 4 * S,
            flows,
            sender_cpu: S / 4,
        };
        Parts {
            run,
            inputs: &Inputs::of(run, &About::default(), &Carrier::default()),
            conditions: Conditions::default(),
            traffic,
            line: Closed::Loopback,
            driven,
            agent_cpu: None,
            lateness_bound: Duration::from_millis(1),
        }
        .result()
    }

    #[test]
    fn flows_count_over_their_own_lives_and_all_over_the_run() {
        let run = run(2);
        let result = result(&run, vec![flow(0, 4), flow(3, 4)], Vec::new());
        let [first, second] = result.flows.as_slice() else {
            panic!("{:?}", result.flows)
        };
        assert_eq!((first.goodput_mbps, second.goodput_mbps), (0.8, 0.8));
        assert_eq!(second.goodput_second_half_mbps, Some(0.8));
        let total = &result.total;
        assert_eq!((total.goodput_mbps, total.jain), (1.0, 1.0));
        assert!(
            (total.use_run.unwrap() - 1.0 / 14.48).abs() < 1e-9,
            "{total:?}"
        );
        assert!((total.use_second_half.unwrap() - 1.2 / 14.48).abs() < 1e-9);
        assert_eq!(
            (total.retransmissions, total.retransmission_ratio),
            (6, 0.03)
        );
        let rtt = total.rtt_ms.unwrap();
        assert_eq!((rtt.min, rtt.p50, rtt.max), (40.0, 42.0, 43.0));
        assert_eq!(
            first.series.rtt_ms[9],
            Some(40.0),
            "the sample at 1 s tells of what was before"
        );
        assert_eq!((result.void, result.cpu.sender_s), (None, Some(0.25)));
    }

    #[test]
    fn cross_traffic_is_in_no_total() {
        let mut run = run(2);
        run.under_test[1] = false;
        let result = result(&run, vec![flow(0, 4), flow(0, 4)], Vec::new());
        assert_eq!(
            (result.total.goodput_mbps, result.total.retransmissions),
            (0.8, 3)
        );
        assert!(!result.flows[1].under_test);
    }

    #[test]
    fn transfers_count_over_the_time_that_they_took() {
        let transfer = |round: u32, seconds| Completion {
            round,
            start_s: f64::from(round),
            seconds,
            bytes: 200_000,
        };
        let run = run(1);
        let report = FlowReport {
            completions: vec![
                transfer(1, Some(0.5)),
                transfer(2, Some(0.25)),
                transfer(3, None),
            ],
            ..flow(0, 4)
        };
        // 0.75 s, and a second that was not enough.
        let result = result(&run, vec![report], Vec::new());
        assert!((result.flows[0].goodput_mbps - 3.2 / 1.75).abs() < 1e-9);
    }

    #[test]
    fn runs_are_void_for_agents_and_windows_that_were_not_what_they_should_be() {
        let void = |driven| result(&run(1), vec![flow(0, 4)], driven).void;
        assert_eq!(void(vec![Some(0.995)]), None);
        assert!(
            void(vec![Some(1.0), Some(0.98)])
                .unwrap()
                .contains("98.0 %")
        );
        assert!(void(vec![None]).unwrap().contains("told of no flow"));
        let mut limited = run(1);
        let mut void = |bytes| {
            limited.scenario.flows[0].receive_window = Some(bytes);
            result(&limited, vec![flow(0, 4)], Vec::new()).void
        };
        assert_eq!(void(89_000), None);
        assert!(void(80_000).unwrap().contains("was 90000 bytes, and 80000"));
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        let of = quantiles((1..=100).rev().map(f64::from)).unwrap();
        assert_eq!((of.p50, of.p95, of.p99), (50.0, 95.0, 99.0));
        assert_eq!((of.min, of.mean, of.max), (1.0, 50.5, 100.0));
        assert_eq!(quantiles(std::iter::empty()), None);
    }

    #[test]
    fn the_delay_of_a_bin_is_the_worst_of_its_connections() {
        let connection = |owd_p95_ms: Vec<Option<f64>>| LinkSum {
            arrived: 10,
            gone: 1,
            owd_p95_ms,
            ..LinkSum::default()
        };
        let mut sum = connection(vec![Some(1.0), None]);
        sum.add(&connection(vec![Some(2.0), Some(3.0), None]));
        assert_eq!(sum.owd_p95_ms, [Some(2.0), Some(3.0), None]);
        assert_eq!(sum.loss(), Some(0.1));
    }
}
