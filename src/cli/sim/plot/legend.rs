//! Who is who, and what the colours and marks mean.

use super::lanes::shape;
use super::{DECIDED, NAMES, PHASES, Picture, RIGHT, TOP, WIDTH, escaped};
use crate::cli::sim::decisions::Mark;

impl Picture<'_> {
    pub(super) fn legend_height(&self) -> f64 {
        let flows = self.outcome.results.flows.len().min(NAMES + 1);
        TOP + 17.0 * (flows as f64 + 5.0 + PHASES.len() as f64 + Mark::ALL.len() as f64 + 3.0)
    }

    pub(super) fn legend(&mut self, with_decisions: bool) {
        let x = WIDTH - RIGHT + 20.0;
        let mut y = TOP + 4.0;
        let outcome = self.outcome;
        let flows = &outcome.results.flows;
        for (index, flow) in flows.iter().enumerate().take(NAMES) {
            let colour = self.colour(index);
            let share = flow.share * 100.0;
            self.put(format_args!(
                "<line x1=\"{x}\" x2=\"{:.0}\" y1=\"{y:.0}\" y2=\"{y:.0}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
                 <text x=\"{:.0}\" y=\"{:.0}\">{} {}, {share:.1} %</text>",
                x + 16.0,
                x + 22.0,
                y + 4.0,
                index + 1,
                escaped(&flow.scheme)
            ));
            y += 17.0;
        }
        let mut notes = Vec::new();
        if flows.len() > NAMES {
            notes.push(format!("and {} more flows", flows.len() - NAMES));
        }
        notes.push("%: share of the path".to_owned());
        notes.push("dotted: the path's limits".to_owned());
        let with_agent = self
            .outcome
            .decisions
            .iter()
            .filter(|(events, _)| !events.is_empty())
            .count();
        if (1..=DECIDED).contains(&with_agent) {
            notes.push("dashed: the decided rate".to_owned());
        }
        for note in notes {
            self.put(format_args!(
                "<text class=\"note\" x=\"{x}\" y=\"{:.0}\">{note}</text>",
                y + 4.0
            ));
            y += 16.0;
        }
        if !with_decisions {
            return;
        }
        y += 14.0;
        let phases = || {
            self.outcome
                .decisions
                .iter()
                .flat_map(|(events, _)| events)
                .map(|event| event.phase.name())
        };
        let present: Vec<_> = PHASES
            .into_iter()
            .filter(|phase| phases().any(|there| there == *phase))
            .collect();
        for phase in present {
            self.put(format_args!(
                "<rect class=\"{phase}\" x=\"{x}\" y=\"{:.0}\" width=\"16\" height=\"11\"/><text x=\"{:.0}\" y=\"{:.0}\">{phase}</text>",
                y - 5.0,
                x + 22.0,
                y + 4.0
            ));
            y += 17.0;
        }
        let reasons = || {
            self.outcome
                .decisions
                .iter()
                .flat_map(|(events, _)| events)
                .map(|event| event.reason.name())
        };
        let present: Vec<_> = Mark::ALL
            .into_iter()
            .filter(|mark| reasons().any(|reason| Mark::of(reason) == Some(*mark)))
            .collect();
        for mark in present {
            let shape = shape(mark, x + 8.0, y, 5.0);
            self.put(format_args!(
                "{shape}</path><text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                x + 22.0,
                y + 4.0,
                mark.legend()
            ));
            y += 17.0;
        }
    }
}
