//! Runs in the simulator: virtual time, no root, no load on the machine that could disturb them.
//!
//! Rounds of downloads are one simulation each, with seeds of their own: a round begins with the bin of 100 ms after
//! the one in which the last transfer of the round before was complete. What there is between rounds on a real path,
//! queues that drain and connections that are set up, is not simulated.

use crate::cli::scenario::{Plan, Scheme};
use crate::cli::sim::runs::{self, Job, Keep};
use anyhow::{Result, bail};
use pathlab::Interrupt;
use pathlab::lab::inputs::capacity_mbps;
use pathlab::lab::result::{
    Completion, Conditions, Cpu, FORMAT, FlowResult, FlowSeries, Inputs, LinkResult, RunResult,
    Total,
};
use pathlab::lab::statistics::{quantiles_of, ratio};
use pathsim::{Distribution, MSS, Results, SECOND, Source};
use pk3c_ccp::params::Params;
use pk3c_ccp::simulate::Simulator;

const BIN_NS: u64 = SECOND / 10;
const BIN_S: f64 = 0.1;
/// Far from every other run's seed and from those of its repetitions.
const SEEDS_PER_ROUND: u64 = 1_000_003;

/// Carries out a run.
///
/// # Errors
/// A scenario that cannot be simulated, or an interrupt.
pub(super) fn conduct(
    simulator: &Simulator,
    (plan, scheme): (&Plan, &Scheme),
    inputs: &Inputs,
    params: &Params,
    interrupt: &Interrupt,
) -> Result<RunResult> {
    let duration_ns = plan.scenario.duration_ns;
    let under_test: Vec<_> = plan.schemes.iter().map(Option::is_none).collect();
    let mut sums = Sums::new(plan, scheme);
    let mut begin_ns = 0;
    for round in 1..=plan.settings.rounds {
        if begin_ns >= duration_ns {
            break;
        }
        let mut part = plan.clone();
        part.scenario.duration_ns = duration_ns - begin_ns;
        bound_bursts(&mut part);
        let job = Job {
            plan: &part,
            scheme: scheme.clone(),
            seed: inputs
                .seed
                .wrapping_add(u64::from(round - 1) * SEEDS_PER_ROUND),
        };
        let keep = Keep {
            series: true,
            decisions: 0,
        };
        let shorter = if round < plan.settings.rounds {
            cut(simulator, &job, params, interrupt)?
        } else {
            None
        };
        let part = shorter.as_ref().unwrap_or(&part);
        let job = Job { plan: part, ..job };
        let (simulation, _) = runs::prepare(simulator, &job, params, keep)?;
        let Ok(results) = simulation.run_while(|_| !interrupt.is_raised()) else {
            bail!("interrupted");
        };
        let end_ns = begin_ns + complete_ns(&results).unwrap_or(part.scenario.duration_ns);
        sums.add(part, results, round, (begin_ns, end_ns));
        sums.run_ns = end_ns;
        begin_ns = (end_ns / BIN_NS + 1) * BIN_NS;
    }
    Ok(sums.result(plan, inputs, &under_test))
}

/// What TCP may hand to a device at once bounds the bursts here, too, or a scenario would not mean the same as with the
/// kernel's TCP.
fn bound_bursts(plan: &mut Plan) {
    let segments = plan.settings.gso_max_segs;
    if segments > 0 {
        for flow in &mut plan.scenario.flows {
            flow.burst_segments = flow.burst_segments.min(segments);
        }
    }
}

/// A round in which transfers are beside flows without a size, ending with its transfers; `None` of any other, or if a
/// transfer is not complete in its time.
fn cut(
    simulator: &Simulator,
    job: &Job<'_>,
    params: &Params,
    interrupt: &Interrupt,
) -> Result<Option<Plan>> {
    let flows = &job.plan.scenario.flows;
    if flows
        .iter()
        .all(|flow| matches!(flow.source, Source::Bytes(_)))
    {
        return Ok(None);
    }
    let (simulation, _) = runs::prepare(simulator, job, params, Keep::default())?;
    let end_ns = simulation.transfers_end_ns(|_| !interrupt.is_raised());
    Ok(end_ns.map(|end_ns| {
        let mut part = job.plan.clone();
        part.scenario.duration_ns = end_ns + 1;
        part
    }))
}

/// When the last transfer was complete, if all flows are transfers and complete.
fn complete_ns(results: &Results) -> Option<u64> {
    let ends = results.flows.iter();
    let ends = ends.map(|flow| flow.completion_s.map(|_| flow.end_s));
    let last_s = ends.sum::<Option<f64>>().map(|_| {
        let ends = results.flows.iter().map(|flow| flow.end_s);
        ends.fold(0.0, f64::max)
    })?;
    Some((last_s * SECOND as f64).round() as u64)
}

/// A flow over all rounds.
#[derive(Default)]
struct FlowSums {
    result: FlowResult,
    active_s: f64,
    packets: u64,
    lost: u64,
    srtts: Distribution,
    one_way: Distribution,
}

/// All rounds.
struct Sums {
    flows: Vec<FlowSums>,
    link: LinkResult,
    /// How long the run was: shorter than planned if all transfers were complete before.
    run_ns: u64,
}

impl Sums {
    fn new(plan: &Plan, scheme: &Scheme) -> Self {
        let (scenario, _) = plan.under_test(scheme);
        let bins = plan.scenario.duration_ns.div_ceil(BIN_NS) as usize;
        let flows = scenario
            .flows
            .iter()
            .zip(1..)
            .map(|(spec, number)| FlowSums {
                result: FlowResult {
                    flow: number,
                    scheme: spec.scheme.clone(),
                    start_s: spec.start_ns as f64 / SECOND as f64,
                    series: FlowSeries {
                        bin_s: BIN_S,
                        goodput_mbps: vec![0.0; bins],
                        rtt_ms: vec![None; bins],
                        owd_ms: vec![None; bins],
                        cwnd_packets: vec![None; bins],
                    },
                    ..FlowResult::default()
                },
                ..FlowSums::default()
            });
        let capacities = (0..bins as u64).map(|bin| {
            let (from, to) = (bin * BIN_NS, (bin + 1) * BIN_NS);
            plan.scenario.path.capacity_bytes(from, to) * 8e-6 / BIN_S
        });
        Self {
            flows: flows.collect(),
            link: LinkResult {
                bin_s: BIN_S,
                queue_packets: vec![0; bins],
                capacity_mbps: capacities.collect(),
                ..LinkResult::default()
            },
            run_ns: plan.scenario.duration_ns,
        }
    }

    /// Adds a round that took the part of the run between two times.
    fn add(&mut self, plan: &Plan, results: Results, round: u32, (begin_ns, end_ns): (u64, u64)) {
        let first_bin = (begin_ns / BIN_NS) as usize;
        let bins = (end_ns.div_ceil(BIN_NS) as usize).saturating_sub(first_bin);
        let begin_s = begin_ns as f64 / SECOND as f64;
        let (mut sent, mut missing) = (0, 0);
        for ((sums, flow), spec) in self
            .flows
            .iter_mut()
            .zip(results.flows)
            .zip(&plan.scenario.flows)
        {
            sent += flow.packets_sent;
            missing += flow.packets_lost;
            sums.add(spec, flow, (round, begin_s), (first_bin, bins), end_ns);
        }
        let link = &mut self.link;
        link.arrived += sent;
        link.random_losses += results.random_losses;
        link.queue_drops += missing.saturating_sub(results.random_losses);
        link.queue_peak_packets = link.queue_peak_packets.max(results.queue_peak_packets);
        let queues = link.queue_packets.iter_mut().skip(first_bin).take(bins);
        for (queue, bin) in queues.zip(&results.link_series) {
            *queue = (*queue).max(bin.queue_packets);
        }
    }

    fn result(self, plan: &Plan, inputs: &Inputs, under_test: &[bool]) -> RunResult {
        let Self {
            flows,
            mut link,
            run_ns,
        } = self;
        let run_s = run_ns as f64 / SECOND as f64;
        let bins = run_ns.div_ceil(BIN_NS) as usize;
        link.queue_packets.truncate(bins);
        link.capacity_mbps.truncate(bins);
        let (mut srtts, mut one_way) = (Distribution::default(), Distribution::default());
        let (mut bytes, mut bytes_half) = (0, 0.0);
        let (mut packets, mut lost, mut total) = (0, 0, Total::default());
        let mut done = Vec::with_capacity(flows.len());
        for (sums, &under_test) in flows.into_iter().zip(under_test) {
            link.delivered += sums.one_way.samples();
            if under_test {
                srtts.merge(&sums.srtts);
                one_way.merge(&sums.one_way);
                bytes += sums.result.received_bytes;
                bytes_half += sums.second_half_bytes(run_s);
                packets += sums.packets;
                lost += sums.lost;
                total.retransmissions += sums.result.retransmissions;
            }
            done.push(sums.result(under_test, run_s, bins));
        }
        let path = &plan.scenario.path;
        let capacity = capacity_mbps(path, 0, run_ns);
        let capacity_half = capacity_mbps(path, run_ns / 2, run_ns);
        let tested = || done.iter().filter(|flow| flow.under_test);
        let halves = tested().filter_map(|flow| flow.goodput_second_half_mbps);
        let halves: Vec<_> = halves.collect();
        total.seconds = (run_ns < plan.scenario.duration_ns).then_some(run_s);
        total.goodput_mbps = mbps(bytes as f64, run_s);
        total.use_run = Some(ratio(total.goodput_mbps, capacity));
        total.use_second_half =
            (capacity_half > 0.0).then(|| mbps(bytes_half, run_s / 2.0) / capacity_half);
        total.jain = pathsim::jain(tested().map(|flow| flow.goodput_mbps));
        total.jain_second_half = (!halves.is_empty()).then(|| pathsim::jain(halves));
        total.retransmission_ratio = total.retransmissions as f64 / (bytes / MSS).max(1) as f64;
        total.rtt_ms = quantiles_of(&srtts);
        total.owd_ms = quantiles_of(&one_way);
        total.loss = (packets > 0).then(|| lost as f64 / packets as f64);
        RunResult {
            format: FORMAT,
            inputs: Inputs {
                capacity_mbps: Some(capacity),
                ..inputs.clone()
            },
            conditions: Conditions {
                kernel: "simulator".to_owned(),
                line: "simulator".to_owned(),
                ..Conditions::default()
            },
            void: None,
            total,
            flows: done,
            link: Some(link),
            agent: None,
            cpu: Cpu::default(),
        }
    }
}

impl FlowSums {
    fn add(
        &mut self,
        spec: &pathsim::FlowSpec,
        flow: pathsim::FlowResult,
        (round, begin_s): (u32, f64),
        (first_bin, bins): (usize, usize),
        end_ns: u64,
    ) {
        let result = &mut self.result;
        let start_s = begin_s + spec.start_ns as f64 / SECOND as f64;
        let end_s = (begin_s + flow.end_s).min(end_ns as f64 / SECOND as f64);
        result.end_s = end_s;
        result.received_bytes += flow.received_bytes;
        result.sent_bytes += (flow.packets_sent - flow.retransmissions) * MSS;
        result.retransmissions += flow.retransmissions;
        if let Source::Bytes(bytes) = spec.source {
            result.completions.push(Completion {
                round,
                start_s,
                seconds: flow.completion_s,
                bytes,
            });
        }
        if spec.transport == pathsim::Transport::Udp {
            result.jitter_ms = Some(flow.jitter_ms);
            *result.datagrams_sent.get_or_insert(0) += flow.packets_sent;
            *result.datagrams_lost.get_or_insert(0) += flow.packets_lost;
        }
        self.active_s += (end_s - start_s).max(0.0);
        self.packets += flow.packets_sent;
        self.lost += flow.packets_lost;
        self.srtts.merge(&flow.srtts);
        self.one_way.merge(&flow.one_way);
        let series = &mut result.series;
        for (bin, from) in (first_bin..series.goodput_mbps.len())
            .take(bins)
            .zip(&flow.series)
        {
            series.goodput_mbps[bin] = from.goodput_mbps;
            series.rtt_ms[bin] = from.srtt_ms;
            series.owd_ms[bin] = from.owd_p95_ms;
            // A sender that no window holds back has none to show.
            let cwnd = from.cwnd_packets.filter(|cwnd| *cwnd < u64::from(u32::MAX));
            series.cwnd_packets[bin] = cwnd.map(|packets| packets as f64);
        }
    }

    /// What arrived in the second half of the run; of the bin that is in both, its part.
    fn second_half_bytes(&self, run_s: f64) -> f64 {
        let bins = self.result.series.goodput_mbps.iter().enumerate();
        let bytes = bins.map(|(bin, mbps)| {
            let end_s = (bin + 1) as f64 * BIN_S;
            let part = ((end_s - run_s / 2.0) / BIN_S).clamp(0.0, 1.0);
            mbps * BIN_S / 8e-6 * part
        });
        bytes.sum()
    }

    fn result(mut self, under_test: bool, run_s: f64, bins: usize) -> FlowResult {
        let half_s = self.result.end_s - self.result.start_s.max(run_s / 2.0);
        let half_bytes = self.second_half_bytes(run_s);
        let series = &mut self.result.series;
        series.goodput_mbps.truncate(bins);
        series.rtt_ms.truncate(bins);
        series.owd_ms.truncate(bins);
        series.cwnd_packets.truncate(bins);
        FlowResult {
            under_test,
            goodput_mbps: mbps(self.result.received_bytes as f64, self.active_s),
            goodput_second_half_mbps: (half_s > 0.0).then(|| mbps(half_bytes, half_s)),
            rtt_ms: quantiles_of(&self.srtts),
            owd_ms: quantiles_of(&self.one_way),
            loss: (self.packets > 0).then(|| self.lost as f64 / self.packets as f64),
            ..self.result
        }
    }
}

fn mbps(bytes: f64, seconds: f64) -> f64 {
    ratio(bytes * 8e-6, seconds)
}
