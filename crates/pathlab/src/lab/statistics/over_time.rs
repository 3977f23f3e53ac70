//! How a run went over time: when flows settled at their fair shares, and its worst second.
//!
//! A flow is *settled* from the first time, counted from its start, from which its goodput over the last second stays
//! within a tolerance of its fair share until the set of flows changes: until a flow starts or ends. Its fair share is
//! the goodput of all flows together in that second over their number, so that a path whose rate changes has one, too;
//! a flow alone is measured against its mean in the second half of that time. A flow that leaves the band again before
//! the change has not settled, and one that has less than a second is not judged.

use crate::lab::report::measure::seconds;
use crate::lab::result::{FlowResult, RunResult};

/// Goodput is averaged over so long, s: shorter, and the sawtooth of a window decides.
const WINDOW_S: f64 = 1.0;

/// When a flow settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Settled {
    /// So many seconds after its start.
    After(f64),
    /// Not before the set of flows changed.
    Never,
}

/// When the flows under test settled within so large a part of their fair share (0.25: ± 25 %), in their order;
/// `None` of flows without a series or with less than a second before the next change.
pub fn settling(run: &RunResult, tolerance: f64) -> Vec<Option<Settled>> {
    let flows = run.flows.iter().filter(|flow| flow.under_test);
    flows.map(|flow| settled(run, flow, tolerance)).collect()
}

/// The longest settling of the flows under test, s: infinite if one never settled, `None` if none can be judged.
pub fn longest_settling_s(run: &RunResult, tolerance: f64) -> Option<f64> {
    let settled = settling(run, tolerance).into_iter().flatten();
    let seconds = settled.map(|settled| match settled {
        Settled::After(seconds) => seconds,
        Settled::Never => f64::INFINITY,
    });
    seconds.reduce(f64::max)
}

fn settled(run: &RunResult, flow: &FlowResult, tolerance: f64) -> Option<Settled> {
    let bin_s = Some(flow.series.bin_s).filter(|bin_s| *bin_s > 0.0)?;
    let changes = run
        .flows
        .iter()
        .flat_map(|other| [other.start_s, other.end_s]);
    // Flows that start or end within a second of it do so together with it.
    let end_s = changes
        .filter(|change| *change > flow.start_s + WINDOW_S)
        .fold(seconds(run), f64::min);
    let (first, last) = (
        (flow.start_s / bin_s).round() as usize,
        (end_s / bin_s) as usize,
    );
    let last = last.min(flow.series.goodput_mbps.len());
    let window = ((WINDOW_S / bin_s).round() as usize).max(1);
    if last < first + window {
        return None;
    }
    let together: Vec<_> = run
        .flows
        .iter()
        .filter(|other| {
            other.start_s < flow.start_s + WINDOW_S && other.end_s > flow.start_s + WINDOW_S
        })
        .collect();
    let over = |of: &FlowResult, end: usize| -> f64 {
        let bins = of.series.goodput_mbps.iter().take(end).skip(end - window);
        bins.sum::<f64>() / window as f64
    };
    let fair = |end: usize| {
        let all: f64 = together.iter().map(|of| over(of, end)).sum();
        all / together.len().max(1) as f64
    };
    let fits = |end: usize| {
        // Alone, a flow is measured against what it reaches in the end, not against itself at that time.
        let fair = if together.len() > 1 {
            fair(end)
        } else {
            let bins = flow.series.goodput_mbps.get(first..last).unwrap_or(&[]);
            let later = bins.get(bins.len() / 2..).unwrap_or(&[]);
            later.iter().sum::<f64>() / later.len().max(1) as f64
        };
        fair > 0.0 && (over(flow, end) / fair - 1.0).abs() <= tolerance
    };
    let outside = (first + window..=last).rev().find(|end| !fits(*end));
    Some(match outside {
        None => Settled::After(WINDOW_S.min(end_s - flow.start_s)),
        Some(end) if end == last => Settled::Never,
        Some(end) => Settled::After((end + 1 - first) as f64 * bin_s),
    })
}

/// The least goodput that the flows under test had together in any second of a time of the run, Mbit/s; `None` if
/// the time has no whole second with a series.
pub fn worst_second(run: &RunResult, from_s: f64, to_s: f64) -> Option<f64> {
    let flows: Vec<_> = run
        .flows
        .iter()
        .filter(|flow| flow.under_test && flow.series.bin_s > 0.0)
        .collect();
    let bin_s = flows.first()?.series.bin_s;
    let window = ((WINDOW_S / bin_s).round() as usize).max(1);
    let bins = flows
        .iter()
        .map(|flow| flow.series.goodput_mbps.len())
        .max()?;
    let (first, last) = (
        (from_s / bin_s).ceil() as usize,
        ((to_s / bin_s) as usize).min(bins),
    );
    let total = |bin: usize| -> f64 {
        let of = |flow: &&FlowResult| flow.series.goodput_mbps.get(bin).copied();
        flows.iter().filter_map(of).sum()
    };
    let totals: Vec<f64> = (first..last).map(total).collect();
    let seconds = totals
        .windows(window)
        .map(|second| second.iter().sum::<f64>() / window as f64);
    seconds.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::sample::{flow, run};

    /// 20 s of 100 ms bins with a rate for each second.
    fn rates(seconds: &[f64]) -> Vec<f64> {
        seconds.iter().flat_map(|rate| [*rate; 10]).collect()
    }

    fn two(first: &[f64], second: &[f64], start_s: f64) -> RunResult {
        let mut result = run("late", "pk3c", 1);
        let duration_s = first.len() as f64;
        result.inputs.duration_s = duration_s;
        result.flows = vec![
            flow(1, 0.0, duration_s, rates(first)),
            flow(2, start_s, duration_s, rates(second)),
        ];
        result
    }

    #[test]
    fn the_late_flow_settles_when_it_stays_near_its_half() {
        let first = [[10.0; 4].as_slice(), &[8.0, 7.0, 6.0], &[5.0; 9]].concat();
        let second = [[0.0; 4].as_slice(), &[2.0, 3.0, 4.0], &[5.0; 9]].concat();
        let settled = settling(&two(&first, &second, 4.0), 0.25);
        // Alone the first is at its share from its first second; the second is within 25 % of 5 once 3.75 of its
        // last second, which the step to 4 reaches 8 bins in.
        assert_eq!(settled[0], Some(Settled::After(1.0)));
        let Some(Settled::After(seconds)) = settled[1] else {
            panic!("{settled:?}")
        };
        assert!((seconds - 2.8).abs() < 0.11, "{seconds}");
    }

    #[test]
    fn who_leaves_the_band_again_never_settles() {
        let first = [[5.0; 15].as_slice(), &[9.0]].concat();
        let second = [[5.0; 15].as_slice(), &[1.0]].concat();
        assert_eq!(
            settling(&two(&first, &second, 0.0), 0.25),
            [Some(Settled::Never); 2]
        );
        assert_eq!(
            longest_settling_s(&two(&first, &second, 0.0), 0.25),
            Some(f64::INFINITY)
        );
        let short = two(&[5.0; 16], &[5.0; 16], 15.5);
        let late = RunResult {
            flows: short.flows[1..].to_vec(),
            ..short
        };
        assert_eq!(longest_settling_s(&late, 0.25), None);
    }

    #[test]
    fn the_worst_second_need_not_begin_on_a_whole_one() {
        let mut result = two(&[10.0; 6], &[0.0; 6], 0.0);
        for bin in 25..35 {
            result.flows[0].series.goodput_mbps[bin] = 1.0;
        }
        assert_eq!(worst_second(&result, 0.0, 6.0), Some(1.0));
        assert_eq!(worst_second(&result, 3.6, 6.0), Some(10.0));
        assert_eq!(worst_second(&result, 5.5, 6.0), None);
    }
}
