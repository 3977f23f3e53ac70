//! What goals ask for: of a scenario its facts, of a scheme's runs the figures, as medians.

use crate::lab::result::{FlowResult, RunResult};
use crate::lab::statistics::{mean, median, ratio};
use pathsim::{MSS, RateSchedule, SECOND, Scenario, WIRE};
use std::ops::Range;

/// What a scenario says, as far as goals depend on it.
pub(super) struct Facts {
    pub(super) rtt_s: f64,
    /// After a change of the route.
    pub(super) longer_rtt_s: Option<f64>,
    pub(super) loss: f64,
    /// Rates over time, Mbit/s on the wire.
    pub(super) rates: Vec<f64>,
    pub(super) flows: usize,
    /// When the last flow starts, s.
    pub(super) last_start_s: f64,
    pub(super) duration_s: f64,
}

impl Facts {
    pub(super) fn of(scenario: &Scenario) -> Self {
        let seconds = |ns: u64| ns as f64 / SECOND as f64;
        let path = &scenario.path;
        let bps = match &path.rate {
            RateSchedule::Constant(bps) => vec![*bps],
            RateSchedule::Steps(steps) => steps.iter().map(|(_, bps)| *bps).collect(),
            RateSchedule::Trace(_) => Vec::new(),
        };
        let starts = scenario.flows.iter().map(|flow| flow.start_ns);
        Self {
            rtt_s: seconds(path.rtt_ns),
            longer_rtt_s: path
                .route_changes
                .last()
                .map(|change| seconds(change.rtt_ns)),
            loss: path.loss.ratio(),
            rates: bps.into_iter().map(|bps| bps as f64 * 1e-6).collect(),
            flows: scenario.flows.len(),
            last_start_s: seconds(starts.max().unwrap_or(0)),
            duration_s: seconds(scenario.duration_ns),
        }
    }

    /// The rate at the start, Mbit/s; 0 for a trace.
    pub(super) fn rate(&self) -> f64 {
        self.rates.first().copied().unwrap_or(0.0)
    }

    pub(super) fn bdp_packets(&self) -> f64 {
        packets(self.rate(), self.rtt_s)
    }
}

/// Full packets that a rate in Mbit/s carries in a time in s.
pub(super) fn packets(rate: f64, seconds: f64) -> f64 {
    rate * 1e6 * seconds / (8.0 * WIRE as f64)
}

/// Payload of a rate on the wire.
pub(super) fn payload(rate: f64) -> f64 {
    rate * MSS as f64 / WIRE as f64
}

/// All runs of a scheme in a scenario; at least one.
pub(super) struct Outcome<'a>(pub(super) &'a [&'a RunResult]);

impl Outcome<'_> {
    /// Median over the runs; `None` if one of them does not have it.
    pub(super) fn median(&self, figure: impl Fn(&RunResult) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.0.iter().map(|run| figure(run)).collect();
        median(&values?)
    }

    pub(super) fn used(&self) -> Option<f64> {
        self.median(|run| run.total.use_run)
    }

    pub(super) fn used_second_half(&self) -> Option<f64> {
        self.median(|run| run.total.use_second_half)
    }

    pub(super) fn jain(&self) -> Option<f64> {
        self.median(|run| run.total.jain_second_half)
    }

    /// 95th percentile of the smoothed RTT, ms.
    pub(super) fn rtt_p95_ms(&self) -> Option<f64> {
        self.median(|run| Some(run.total.rtt_ms?.p95))
    }

    pub(super) fn loss(&self) -> Option<f64> {
        self.median(loss)
    }

    pub(super) fn sent_again(&self) -> Option<f64> {
        self.median(|run| Some(run.total.retransmissions as f64))
    }

    /// Packets that the flows under test sent: those that arrived, and those that were sent again.
    pub(super) fn sent(&self) -> Option<f64> {
        self.median(|run| {
            let bytes: u64 = tested(run).map(|flow| flow.received_bytes).sum();
            Some((bytes / MSS + run.total.retransmissions) as f64)
        })
    }

    /// Time of the slowest transfer, s; infinite if one was not complete.
    pub(super) fn completion_s(&self) -> Option<f64> {
        self.median(|run| {
            let transfers = tested(run).flat_map(|flow| &flow.completions);
            let seconds = transfers.map(|transfer| transfer.seconds.unwrap_or(f64::INFINITY));
            seconds.reduce(f64::max)
        })
    }

    /// Most packets that waited; guests do not see them.
    pub(super) fn peak_queue(&self) -> Option<f64> {
        self.median(|run| {
            let link = run.link.as_ref()?;
            let is_seen = !link.queue_packets.is_empty();
            is_seen.then_some(link.queue_peak_packets as f64)
        })
    }

    /// Part of the flows under test of all goodput in the second half.
    pub(super) fn own_share(&self) -> Option<f64> {
        self.median(|run| {
            let of = |flow: &FlowResult| flow.goodput_second_half_mbps.unwrap_or(0.0);
            let all: f64 = run.flows.iter().map(of).sum();
            (all > 0.0).then(|| tested(run).map(of).sum::<f64>() / all)
        })
    }

    /// Highest over lowest goodput of the second half.
    pub(super) fn spread(&self) -> Option<f64> {
        self.median(|run| {
            let all = tested(run).map(|flow| flow.goodput_second_half_mbps.unwrap_or(0.0));
            let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(low, high), goodput| {
                (low.min(goodput), high.max(goodput))
            });
            (low > 0.0).then(|| high / low).or(Some(f64::INFINITY))
        })
    }

    /// Mean goodput of the flow that came last, in part of a run, Mbit/s.
    pub(super) fn of_last(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.median(|run| between(run.flows.last()?, from_s, to_s))
    }

    /// The same of the first flow.
    pub(super) fn of_first(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.median(|run| between(run.flows.first()?, from_s, to_s))
    }

    /// The least goodput that a flow had in a whole second of part of the run, Mbit/s.
    pub(super) fn worst_second(&self, from_s: u32, to_s: u32) -> Option<f64> {
        self.median(|run| {
            let of_flow = |flow: &FlowResult| {
                let seconds = (from_s..to_s).map(f64::from);
                let goodputs = seconds.map(|at| between(flow, at, at + 1.0));
                goodputs
                    .collect::<Option<Vec<_>>>()?
                    .into_iter()
                    .reduce(f64::min)
            };
            let worst: Option<Vec<f64>> = tested(run).map(of_flow).collect();
            worst?.into_iter().reduce(f64::min)
        })
    }

    /// From a time until the first flow has such a goodput for a bin, s; a bin counts as its end.
    pub(super) fn reached_s(&self, from_s: f64, goodput_mbps: f64) -> Option<f64> {
        self.median(|run| {
            let series = &run.flows.first()?.series;
            after(&series.goodput_mbps, series.bin_s, from_s, |_, mbps| {
                *mbps >= goodput_mbps
            })
        })
    }

    /// From a time until no more than so many packets wait, s; `None` if nobody watches the queue.
    pub(super) fn drained_s(&self, from_s: f64, most: f64) -> Option<f64> {
        self.median(|run| {
            let link = run.link.as_ref()?;
            // The bin of the change may be empty still.
            after(&link.queue_packets, link.bin_s, from_s, |bin, packets| {
                bin > 0 && f64::from(*packets) <= most
            })
        })
    }

    /// Length of the bins of series, s.
    pub(super) fn bin_s(&self) -> f64 {
        let flow = self.0.first().and_then(|run| run.flows.first());
        flow.map_or(0.0, |flow| flow.series.bin_s)
    }
}

fn tested(run: &RunResult) -> impl Iterator<Item = &FlowResult> {
    run.flows.iter().filter(|flow| flow.under_test)
}

/// Lost part of the packets: of the flows under test where they are told apart, else of all on the way there, else what
/// was sent again.
fn loss(run: &RunResult) -> Option<f64> {
    let link = run.link.as_ref().filter(|link| link.arrived > 0);
    let of_link = link.map(|link| {
        let gone = link.queue_drops + link.random_losses;
        ratio(gone as f64, link.arrived as f64)
    });
    let known = run.total.loss.or(of_link);
    known.or(Some(run.total.retransmission_ratio))
}

fn range(bin_s: f64, from_s: f64, to_s: f64) -> Option<Range<usize>> {
    (bin_s > 0.0).then(|| (from_s / bin_s).round() as usize..(to_s / bin_s).round() as usize)
}

/// Mean goodput of part of a run; `None` if the flow has no series of it.
fn between(flow: &FlowResult, from_s: f64, to_s: f64) -> Option<f64> {
    let series = &flow.series;
    let range = range(series.bin_s, from_s, to_s)?;
    let end = range.end.min(series.goodput_mbps.len());
    mean(series.goodput_mbps.get(range.start..end)?)
}

/// From a time to the end of the first bin of which something holds, by its number after that time, s; infinite if it
/// never does, `None` without a series.
fn after<T>(
    series: &[T],
    bin_s: f64,
    from_s: f64,
    holds: impl Fn(usize, &T) -> bool,
) -> Option<f64> {
    let from = range(bin_s, 0.0, from_s)?.end;
    let found = series.get(from..)?.iter().enumerate();
    let mut found = found.filter(|(bin, value)| holds(*bin, value));
    let bins = found.next().map(|(bin, _)| bin + 1);
    (!series.is_empty()).then(|| bins.map_or(f64::INFINITY, |bins| bins as f64 * bin_s))
}
