//! What was measured and decided, as points of lines.

use pk3c_ccp::simulate::Decided;

pub(super) const BINS_PER_SECOND: f64 = 10.0;
/// Points of a line, at most.
const POINTS: usize = 900;

/// A line of a panel: its points, and how it looks.
pub(super) struct Line {
    /// (Seconds, value); `None` leaves a gap.
    pub(super) points: Vec<(f64, Option<f64>)>,
    pub(super) class: &'static str,
    pub(super) colour: String,
}

/// Bins within a life in seconds, at the middle of each; where there are too many, means of neighbours.
pub(super) fn thinned(bins: Vec<Option<f64>>, (start, end): (f64, f64)) -> Vec<(f64, Option<f64>)> {
    let group = bins.len().div_ceil(POINTS).max(1);
    let groups = bins.chunks(group).enumerate();
    let points = groups.map(|(index, bins)| {
        let (count, sum) = bins
            .iter()
            .flatten()
            .fold((0, 0.0), |(n, sum), value| (n + 1, sum + value));
        let middle = (index * group) as f64 + bins.len() as f64 / 2.0;
        (
            middle / BINS_PER_SECOND,
            (count > 0).then(|| sum / f64::from(count)),
        )
    });
    points
        .filter(|(at, _)| *at >= start && *at <= end)
        .collect()
}

/// The decided rate as steps; where decisions are many, only those that change it by more than a part in a hundred.
pub(super) fn stepped(events: &[Decided], end: f64) -> Vec<(f64, Option<f64>)> {
    let mut points: Vec<(f64, Option<f64>)> = Vec::new();
    let mut last: Option<f64> = None;
    let coarse = events.len() > POINTS;
    for event in events {
        let (at, rate) = (event.at.as_secs(), event.rate.mbit());
        if let Some(last) = last {
            if rate == last || (coarse && (rate / last - 1.0).abs() < 0.01) {
                continue;
            }
            points.push((at, Some(last)));
        }
        points.push((at, Some(rate)));
        last = Some(rate);
    }
    points.push((end, last));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_have_no_more_points() {
        let points = thinned(vec![Some(2.0); 36_000], (0.0, 3600.0));
        assert!(points.len() <= POINTS && points.iter().all(|(_, value)| *value == Some(2.0)));
    }
}
