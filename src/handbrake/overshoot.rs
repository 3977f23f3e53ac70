//! The overshoot handbrake: a step up that only filled the queue has told what the path bears.
//!
//! Vivace goes back to the rate before such a step. On a narrow path that is often beyond the capacity, too, by less
//! than stands out, and on any other just at it, so that the queue stays until the queue handbrake drains it. But what
//! arrived while the queue grew is known. So the flow goes back below that, as far as lets out within two intervals
//! what stands in the queue by then, and its next steps know where the edge is:
//!
//! ```text
//!   beyond the edge    |          step: the queue grows          |
//!   edge               |  step   |       |                 step  |  step
//!   half of the way    |         |       |            step       |
//!   trials' rate       | trials          | back; trials          |
//!                      '--------------------------------------------------> time
//! ```
//!
//! The kernel's own bursts are no such queue: at 1 ms of RTT they are most of what stands, and they come and go.
//!
//! Limits: jitter makes RTTs climb, too. A rise counts that is a line, twice as high as RTTs deviate from it. Where
//! jitter is as long as the RTT, some of the path is lost to it (`queued` in `scenarios/disturbed.toml`).

use super::{BELOW_GOODPUT, View, burst_time};
use crate::params::Handbrake;
use crate::units::{Micros, Rate};

/// The RTT must rise by so many times its deviation from a line. Source: simulated; 12 paths with jitter that lets no
/// packet overtake another are used by .09 less with none, .04 with 1, as without the handbrake with 2. The kernel's
/// bursts make short intervals deviate: with none the RTTs of 35 clean paths are shorter by .006.
const LINE: f64 = 2.0;
/// Bursts of the kernel that must stand in the queue. Source: measured on this kernel at 300 Mbit/s and 1 ms, two runs:
/// 250 and 263 Mbit/s with none, 263 and 275 with 1, 281 and 281 with 2, 282 and 283 without the handbrake.
const BURSTS: f64 = 2.0;
/// Intervals in which the queue goes. Source: simulated, 35 clean paths: with 1.5, 2, 3 and 4 all use .98 of them.
const DRAIN_INTERVALS: f64 = 2.0;
/// Least and largest part of what arrived that is left to the queue. Source: the least is what other cuts leave.
/// Simulated, 35 clean paths alone and eight that several share: .978, .978, .977 and .974 of the former used with .03,
/// .04, .05 and .06; Jain's index of the latter .952 with .02 and .953 with .03, .962 with .05. The largest makes no
/// difference (.07, .15).
const LEAST: f64 = 1.0 - BELOW_GOODPUT;
const LARGEST: f64 = 0.10;

/// Where less arrives than this part of the rate before, which filled no queue, the path is another: longer, narrower,
/// or entered by others. Source: simulated, 20 Mbit/s from 100 to 200 ms, use of the ten seconds after: .77 without,
/// .93 with .9 or .8.
const OTHER_PATH: f64 = 0.9;

/// What a step has told that filled the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overshoot {
    /// What the path bears: what arrived, and what the path itself lost of it.
    pub edge: Rate,
    /// The rate that lets the queue out.
    pub below: Rate,
    /// How long that takes, once it shows.
    pub lets_out_for: Micros,
}

/// What the interval of a step up from the rate `before` tells through which the queue grew; nothing where that might
/// be jitter or another path, or where it is too short to tell.
#[must_use]
pub fn overshoot(view: &View<'_>, before: Rate) -> Option<Overshoot> {
    let &View {
        mi, est, params, ..
    } = view;
    let off = params.no_handbrake.contains(Handbrake::Overshoot);
    if off || !params.is_pk3c() || !mi.tells_spacing() {
        return None;
    }
    let rtt = mi.rtt?;
    let rise = mi.sent_for * rtt.slope;
    if rise <= rtt.deviation * LINE {
        return None;
    }
    let edge = est.let_through(mi);
    if edge < before * OTHER_PATH {
        return None;
    }
    let stands = rtt.mean + rise * 0.5 - est.rtt_min();
    if stands <= burst_time(view.rate, view.pkt_bytes) * BURSTS {
        return None;
    }
    // It goes on growing until another rate shows.
    let queue = stands + est.srtt() * rtt.slope;
    let interval = mi.sent_for.max(est.srtt());
    let lets_out_for = interval * DRAIN_INTERVALS;
    let part = (queue / lets_out_for).clamp(LEAST, LARGEST);
    Some(Overshoot {
        edge,
        below: edge * (1.0 - part),
        lets_out_for,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{RATE, sent, view};
    use crate::params::{Algorithm, Params};

    /// A step to 5 MB/s, one packet each 0.2 ms, on a path that carries one in `carried_us`; RTTs are up to
    /// `scatter_us` longer, in turn.
    fn step(params: &Params, carried_us: u64, scatter_us: u64) -> Option<Overshoot> {
        let rtt = |i| 40_000 + i * (carried_us - 200) + scatter_us * (i * 7 % 10) / 10;
        overshoot(&view(params, &sent(rtt)), RATE * 0.9)
    }

    #[test]
    fn a_step_that_filled_the_queue_tells_what_the_path_bears() {
        let told = step(&Params::default(), 225, 0).unwrap();
        assert!(
            (told.edge / (RATE * (200.0 / 225.0)) - 1.0).abs() < 0.005,
            "{told:?}"
        );
        // 2.5 ms stand in the queue at its end, 5.0 more an RTT of 40 ms later: a tenth of it in two of these.
        assert!((told.below / told.edge - 0.906).abs() < 0.003, "{told:?}");
        assert_eq!(step(&Params::default(), 210, 0), None, "1 ms is a burst");
    }

    #[test]
    fn far_less_than_before_is_no_overshoot() {
        let rtt = |i| 40_000 + i * 25;
        let told = |before| overshoot(&view(&Params::default(), &sent(rtt)), before);
        assert!(told(RATE * 0.95).is_some());
        assert_eq!(told(RATE), None, "the path is another");
    }

    #[test]
    fn jitter_tells_nothing_and_neither_does_a_rule_that_is_off() {
        assert_eq!(
            step(&Params::default(), 225, 8000),
            None,
            "deviates by 2.3 ms"
        );
        let mut off = Params::default();
        off.set("no-handbrake", "overshoot").unwrap();
        assert_eq!(step(&off, 225, 0), None);
        let bare = Params {
            algorithm: Algorithm::Vivace,
            ..Params::default()
        };
        assert_eq!(step(&bare, 225, 0), None);
    }
}
