//! How the agent hears of reports: woken by each, or looking for them now and then.
//!
//! To wake a thread costs both sides more than a report does: a thousand a second are tens of milliseconds of CPU. So
//! where reports are many the datapath wakes nobody, and the agent looks. How often depends on the flow that reports
//! most often: it tells about one report per monitor interval, and a decision that is late by a small part of that is
//! not late.
//!
//! ```text
//!                more than WORTH records per look
//!    woken  ───────────────────────────────────────►  looking, every 1/LOOKS of the shortest interval,
//!           ◄───────────────────────────────────────           at least SHORTEST, at most LONGEST
//!                fewer than half of that
//! ```
//!
//! A new flow wakes the agent in any case: it waits for its first rate.
//!
//! Limits: the load is a window old. A flow that reports more often than any did before may have to wait for
//! [`LONGEST_US`], for a window. Where intervals are shorter than [`SHORTEST_US`] times [`LOOKS`] each decision may be
//! late by more than that part of them: reports of near receivers are many, and waking for each costs a core.

use std::time::Duration;

/// The load is judged over this long.
const WINDOW_US: u64 = 100_000;
/// Looks in the time between two reports of the flow that reports most often. Source: measured, a thousand flows at 50
/// ms cost 5.4 % of a core with looks of 4 ms at most, 4.7 with half as many, of 8 ms at most (medians of three in
/// turns). Simulated, 200 random paths with several flows, where the agent is late by half of a look of 16, 8 and by
/// nothing: Jain's index .963, .964 and .962, loss 5.44, 5.49 and 5.43 %.
const LOOKS: u64 = 16;
/// What looks are held to.
const SHORTEST_US: u64 = 1_000;
const LONGEST_US: u64 = 8_000;
/// Records per look above which looking is cheaper than being woken; where looks are as long as they should be, and
/// where they are longer.
const WORTH: u64 = 2;
const WORTH_LATE: u64 = 4;

/// Records of one flow in a window.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    window: u16,
    records: u16,
}

/// What came in the present window, and what the last one said.
#[derive(Default)]
pub(crate) struct Load {
    window: u16,
    since_us: u64,
    records: u64,
    /// Records of the flow that had most.
    most: u16,
    look_us: Option<u64>,
}

impl Load {
    /// Notes a record of a flow.
    pub(crate) fn count(&mut self, flow: &mut Counted) {
        if flow.window != self.window {
            (flow.window, flow.records) = (self.window, 0);
        }
        flow.records = flow.records.saturating_add(1);
        self.records += 1;
        self.most = self.most.max(flow.records);
    }

    /// How long the agent may wait before it looks; `None` if it should be woken.
    pub(crate) fn judge(&mut self, now_us: u64) -> Option<Duration> {
        let elapsed_us = now_us.saturating_sub(self.since_us);
        if elapsed_us >= WINDOW_US {
            let fitting_us = elapsed_us / (LOOKS * u64::from(self.most.max(1)));
            let look_us = fitting_us.clamp(SHORTEST_US, LONGEST_US);
            let late = look_us > fitting_us;
            let worth = elapsed_us / look_us * if late { WORTH_LATE } else { WORTH };
            // Hysteresis: the way back is at half the load.
            let least = if self.look_us.is_some() {
                worth / 2
            } else {
                worth
            };
            self.look_us = (self.records > least).then_some(look_us);
            (self.since_us, self.records, self.most) = (now_us, 0, 0);
            self.window = self.window.wrapping_add(1);
        }
        self.look_us.map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows that each report every so many µs, until the second window has been judged.
    fn looks(load: &mut Load, now_us: &mut u64, flows: &[u64]) -> Option<Duration> {
        let mut counted = vec![Counted::default(); flows.len()];
        let end_us = *now_us + 2 * WINDOW_US;
        load.judge(*now_us);
        while *now_us < end_us {
            *now_us += 500;
            load.judge(*now_us);
            for (flow, every_us) in counted.iter_mut().zip(flows) {
                if now_us.is_multiple_of(*every_us) {
                    load.count(flow);
                }
            }
        }
        load.judge(*now_us)
    }

    #[test]
    fn looks_follow_the_flow_that_reports_most_often() {
        let (mut load, mut now) = (Load::default(), WINDOW_US);
        let mut looks = |flows: &[u64]| looks(&mut load, &mut now, flows);
        let many = |every_us: u64, count: usize| vec![every_us; count];
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(looks(&many(50_000, 1)), None);
        assert_eq!(looks(&many(50_000, 20)), None, "a wake-up each is less");
        assert_eq!(looks(&many(50_000, 1000)).unwrap().as_micros(), 3_125);
        assert_eq!(looks(&many(100_000, 1000)).unwrap().as_micros(), 6_250);
        let mut flows = many(50_000, 3);
        flows.resize(23, 3_000_000);
        assert_eq!(looks(&flows), None, "too few");
        let mut flows = many(100_000, 1000);
        flows[7] = 10_000;
        assert_eq!(looks(&flows), ms(1), "one has a short path");
    }

    #[test]
    fn reports_of_near_receivers_are_waited_for_until_they_are_many() {
        let (mut load, mut now) = (Load::default(), WINDOW_US);
        let mut looks = |flows: &[u64]| looks(&mut load, &mut now, flows);
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(looks(&[1_000; 4]), None);
        assert_eq!(looks(&[1_000; 5]), ms(1));
        assert_eq!(looks(&[1_000; 3]), ms(1), "hysteresis");
        assert_eq!(looks(&[1_000; 2]), None);
    }
}
