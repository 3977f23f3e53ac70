//! Bounds how many reports all flows together send, so that the agent keeps up with many of them.
//!
//! A flow reports about once per monitor interval, so with *n* active flows an interval of *n / limit* seconds bounds
//! the sum to about *limit* reports per second, whatever their RTTs are. The governor counts the flows that reported in
//! each window and derives that floor; the agent raises the flows' shortest interval (`--mi-min`) to it. Only flows
//! with shorter intervals notice. The price is a slower reaction of low-RTT flows on a crowded server, instead of an
//! agent that falls behind for all of them.
//!
//! Limits: a plan begins with a report of what came before it, so that a flow of Vivace reports up to twice per
//! interval where its RTT is far below that. An interval is never longer than five seconds. The count is a window old,
//! so a burst of new flows is felt for one window. The fast start's slots, and the intervals of climber and competitor,
//! follow the RTT below `--mi-min`, too, and are not governed; they last for eight and four packets at least, so that
//! what the path carries bounds their reports.

use crate::units::Micros;

/// How long flows are counted, and in floors: a flow that reports once in a floor is seen in every window.
const WINDOW: Micros = Micros::new(500_000);
const WINDOW_FLOORS: f64 = 2.0;
/// The floor follows the count only when it would change by more than this factor, so that flows are not told of every
/// coming and going.
const CHANGE: f64 = 1.25;

/// Counts active flows and says how long their intervals must be.
#[derive(Clone, Debug)]
pub struct Governor {
    limit_per_s: f64,
    window: u32,
    window_end: Option<Micros>,
    active: u32,
    floor: Micros,
}

impl Governor {
    /// A governor for at most `limit` reports per second of all flows.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            limit_per_s: f64::from(limit.max(1)),
            window: 1,
            window_end: None,
            active: 0,
            floor: Micros::ZERO,
        }
    }

    /// Notes a report of a flow that was last seen in window `seen` (0 for never), which is updated. Returns the
    /// shortest interval that flows should have from now on, when it has changed.
    pub fn on_report(&mut self, now: Micros, seen: &mut u32) -> Option<Micros> {
        let end = *self.window_end.get_or_insert(now + WINDOW);
        let changed = if now >= end { self.turn(now) } else { None };
        if *seen != self.window {
            *seen = self.window;
            self.active += 1;
        }
        changed
    }

    fn turn(&mut self, now: Micros) -> Option<Micros> {
        let needed = f64::from(self.active) / self.limit_per_s * 1e6;
        let floor = self.floor.us() as f64;
        let changes = needed > floor * CHANGE || needed * CHANGE < floor;
        if changes {
            self.floor = Micros::new(needed as u64);
        }
        self.window = self.window.checked_add(1).unwrap_or(1);
        self.window_end = Some(now + WINDOW.max(self.floor * WINDOW_FLOORS));
        self.active = 0;
        changes.then_some(self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `flows` flows report every `every` µs for a second; the last floor.
    fn run(governor: &mut Governor, start: u64, flows: usize, every: u64) -> Option<Micros> {
        let mut seen = vec![0; flows];
        let mut floor = None;
        for at in (start..start + 1_000_000).step_by(every as usize) {
            for seen in &mut seen {
                floor = governor.on_report(Micros::new(at), seen).or(floor);
            }
        }
        floor
    }

    #[test]
    fn the_floor_bounds_the_sum_of_reports() {
        let mut governor = Governor::new(10_000);
        let floor = run(&mut governor, 0, 1_000, 50_000).unwrap();
        assert_eq!(floor, Micros::new(100_000), "1,000 flows, 10,000 reports/s");
        let floor = run(&mut governor, 1_000_000, 10, 50_000).unwrap();
        assert_eq!(floor, Micros::new(1_000), "the crowd has gone");
    }

    #[test]
    fn small_changes_are_not_worth_telling() {
        let mut governor = Governor::new(10_000);
        run(&mut governor, 0, 1_000, 50_000);
        assert_eq!(run(&mut governor, 1_000_000, 1_100, 50_000), None);
        assert_eq!(run(&mut governor, 2_000_000, 900, 50_000), None);
    }

    #[test]
    fn flows_that_keep_to_a_long_floor_are_all_seen() {
        let mut governor = Governor::new(1_000);
        let mut seen = vec![0; 2_000];
        // One flow each millisecond, and every flow each 2 s, as it must be then.
        let floors: Vec<_> = (0..20_000)
            .filter_map(|ms| {
                governor.on_report(Micros::from_millis(ms), &mut seen[ms as usize % 2_000])
            })
            .collect();
        let grows = [500, 1_000, 2_000].map(Micros::from_millis);
        assert_eq!(floors, grows);
    }
}
