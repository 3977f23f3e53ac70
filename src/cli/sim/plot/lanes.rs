//! What the agents decided: a lane for each flow, with a band for each stay in a phase and a mark for each brake.

use super::{GAP, LANES, LEFT, PANEL, PHASES, Picture, RIGHT, TOP, WIDTH};
use crate::cli::sim::decisions::Mark;
use pk3c_ccp::simulate::Decided;

/// Distance of two marks on a lane, at least.
const MARK_GAP: f64 = 8.0;

impl Picture<'_> {
    /// Flows with decisions, at most [`LANES`].
    pub(super) fn lanes(&self) -> Vec<usize> {
        let flows = self.outcome.decisions.iter().enumerate();
        flows
            .filter(|(_, (events, _))| !events.is_empty())
            .map(|(index, _)| index)
            .take(LANES)
            .collect()
    }

    pub(super) fn decisions(&mut self, lanes: &[usize], height: f64) {
        let top = TOP + 3.0 * (PANEL + GAP);
        let all = self
            .outcome
            .decisions
            .iter()
            .filter(|(events, _)| !events.is_empty())
            .count();
        let note = if all > lanes.len() {
            format!(" (first {} of {all} flows)", lanes.len())
        } else {
            String::new()
        };
        self.put(format_args!(
            "<text x=\"{LEFT}\" y=\"{:.0}\">decisions{note}</text>",
            top - 7.0
        ));
        self.times(top, top + lanes.len() as f64 * height);
        let outcome = self.outcome;
        for (row, flow) in lanes.iter().enumerate() {
            let y = top + row as f64 * height;
            let Some((events, _)) = outcome.decisions.get(*flow) else {
                continue;
            };
            let end = self.life(&self.plan.scenario.flows[*flow]).1;
            self.put(format_args!(
                "<text class=\"note\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <rect class=\"idle\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                LEFT - 6.0,
                y + height / 2.0 + 3.0,
                flow + 1,
                WIDTH - LEFT - RIGHT,
                height - 2.0
            ));
            self.bands(events, end, y, height - 2.0);
            self.marks(
                events,
                y + (height - 2.0) / 2.0,
                ((height - 2.0) / 2.0).min(5.0),
            );
        }
    }

    /// One band for each stay in a phase.
    fn bands(&mut self, events: &[Decided], end: f64, y: f64, height: f64) {
        for stay in events.chunk_by(|a, b| a.phase == b.phase) {
            let Some(first) = stay.first() else { continue };
            let from = first.at.as_secs();
            // Up to the first decision of the next phase.
            let next = events
                .iter()
                .find(|event| event.at > first.at && event.phase != first.phase);
            let to = next.map_or(end, |event| event.at.as_secs());
            let phase = first.phase.name();
            let class = if PHASES.contains(&phase) {
                phase
            } else {
                "other"
            };
            let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(0.5));
            self.put(format_args!(
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
                 <title>{phase}, {from:.2} to {to:.2} s</title></rect>"
            ));
        }
    }

    fn marks(&mut self, events: &[Decided], y: f64, size: f64) {
        let mut last = [f64::NEG_INFINITY; Mark::ALL.len()];
        for event in events {
            let Some(mark) = Mark::of(event.reason.name()) else {
                continue;
            };
            let x = self.x(event.at.as_secs());
            let last = &mut last[mark as usize];
            if x - *last < MARK_GAP {
                continue;
            }
            *last = x;
            let title = format!(
                "{:.2} s: {}, then {:.2} Mbit/s",
                event.at.as_secs(),
                event.reason.name(),
                event.rate.mbit()
            );
            let shape = shape(mark, x, y, size);
            self.put(format_args!("{}<title>{title}</title></path>", shape));
        }
    }
}

/// An open path element; each kind of mark has its form, so that colour is not all that tells them apart.
pub(super) fn shape(mark: Mark, x: f64, y: f64, r: f64) -> String {
    let (class, form) = match mark {
        Mark::Full => (
            "full",
            format!("M{:.1} {:.1}h2.4v{:.1}h-2.4z", x - 1.2, y - r, 2.0 * r),
        ),
        Mark::Loss => (
            "loss",
            format!(
                "M{:.1} {:.1}h{:.1}L{x:.1} {:.1}z",
                x - r,
                y - r * 0.7,
                2.0 * r,
                y + r
            ),
        ),
        Mark::Queue => (
            "queue",
            format!(
                "M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}z",
                y - r,
                x + r,
                y + r,
                x - r
            ),
        ),
        Mark::Timeout => {
            let (half, arm) = (r * 0.35, r * 0.65);
            let form = format!(
                "M{:.1} {:.1}h{w:.1}v{arm:.1}h{arm:.1}v{w:.1}h-{arm:.1}v{arm:.1}h-{w:.1}v-{arm:.1}h-{arm:.1}v-{w:.1}h{arm:.1}z",
                x - half,
                y - r,
                w = 2.0 * half
            );
            ("timeout", form)
        }
        Mark::Mode => (
            "mode",
            format!(
                "M{:.1} {y:.1}a{r:.1} {r:.1} 0 1 0 {:.1} 0a{r:.1} {r:.1} 0 1 0 {:.1} 0z",
                x - r,
                2.0 * r,
                -2.0 * r
            ),
        ),
    };
    format!("<path class=\"mark-{class}\" d=\"{form}\">")
}
