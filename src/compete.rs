//! The competitor: a share beside flows that fill the queue.
//!
//! A flow that yields to every queue gets nothing beside flows that do not. While the compete handbrake says so, the
//! flow therefore does as they do:
//!
//! ```text
//!   a queue that no action empties          Cubic's window law ([`cubic`])
//!   one that empties every ten seconds      BBR's model ([`bbr`])
//! ```
//!
//! A flow that goes on growing without a loss by Cubic's law, while no high queue stands for longer than one of BBR's
//! probes, takes what others yield: they are none that fill the queue. So does one whose rate has grown at the end of
//! its time, whatever stands: beside Cubic packets were lost by then, or the queue grew more than the window; beside
//! BBR it was let out. The competition is then over, and the flow goes back to what it had before that growth. It is
//! over as well, at the present rate, when the compete handbrake finds that more is lost than beside Cubic.

mod bbr;
mod cubic;

use crate::estimate::Estimator;
use crate::handbrake::View;
use crate::plan::Reason;
use crate::units::{Micros, Rate};
use bbr::Bbr;
use cubic::Cubic;

/// Why a competition is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// Its time is.
    Time,
    /// Those who share the queue yield. This part of the rate is what the flow had before it took theirs.
    OthersYield(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    Cubic(Cubic),
    Bbr(Bbr),
}

/// A flow that competes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Competitor {
    until: Micros,
    law: Law,
}

impl Competitor {
    /// Begins with a window of `window_pkts` by Cubic's law, and ends at `until`.
    #[must_use]
    pub fn beside_cubic(window_pkts: f64, est: &Estimator, until: Micros) -> Self {
        Self {
            until,
            law: Law::Cubic(Cubic::new(window_pkts, est)),
        }
    }

    /// Begins at `rate` by BBR's model, with the gain of number `turn`, and ends at `until`.
    #[must_use]
    pub fn beside_bbr(rate: Rate, turn: u8, until: Micros) -> Self {
        Self {
            until,
            law: Law::Bbr(Bbr::new(rate, turn)),
        }
    }

    /// Whether it follows BBR's model.
    #[must_use]
    pub fn follows_bbr(&self) -> bool {
        matches!(self.law, Law::Bbr(_))
    }

    /// BBR was seen again: goes on until `until`.
    pub fn go_on(&mut self, until: Micros) {
        self.until = self.until.max(until);
    }

    /// Whether the competition is over, and why: the queue is then tested.
    #[must_use]
    pub fn end(&self, view: &View<'_>) -> Option<End> {
        let over = view.est.now() >= self.until;
        if let Law::Cubic(cubic) = &self.law {
            let grown = cubic.kept(view.est);
            let kept = grown.or_else(|| cubic.kept_at_end(view.est).filter(|_| over));
            if let Some(part) = kept {
                return Some(End::OthersYield(part));
            }
        }
        over.then_some(End::Time)
    }

    /// Packets in flight that it aims at.
    #[must_use]
    pub fn window_pkts(&self, est: &Estimator, pkt_bytes: f64) -> f64 {
        match &self.law {
            Law::Cubic(cubic) => cubic.window_pkts(),
            Law::Bbr(bbr) => bbr.window_pkts(est, pkt_bytes),
        }
    }

    /// The rate that it holds.
    #[must_use]
    pub fn rate(&self, est: &Estimator, pkt_bytes: f64) -> Rate {
        match &self.law {
            Law::Cubic(cubic) => cubic.rate(est, pkt_bytes),
            Law::Bbr(bbr) => bbr.rate(),
        }
    }

    /// The pacer's rate over that one: by Cubic's law the window decides, by BBR's model both.
    #[must_use]
    pub fn pacing_gain(&self) -> f64 {
        match &self.law {
            Law::Cubic(_) => cubic::PACING_GAIN,
            Law::Bbr(bbr) => bbr.gain(),
        }
    }

    /// The rate after one interval, on a path that carries so much, if that is known.
    pub fn on_mi(&mut self, view: &View<'_>, carries: Option<Rate>) -> (Rate, Reason) {
        match &mut self.law {
            Law::Cubic(cubic) => cubic.on_mi(view, carries),
            Law::Bbr(bbr) => {
                let reason = bbr.on_mi(view);
                (bbr.rate(), reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handbrake::tests::{RATE, interval, sent_at, view};
    use crate::params::Params;

    #[test]
    fn others_that_yield_end_it_before_its_time() {
        let params = Params::default();
        // With a window that has grown so much, after intervals that meet these RTTs, one every 50 ms.
        let end = |grown: f64, rtts: &[u64]| {
            let mut seen = interval(RATE, rtts[0], 1);
            let mut cubic = Cubic::new(100.0, &seen.0);
            let mut end = None;
            for (i, &rtt) in (1..).zip(rtts) {
                seen.1 = sent_at(&mut seen.0, 500_000 + i * 50_000, 200, |_| rtt);
                let view = view(&params, &seen);
                cubic.on_mi(&view, None);
                let competitor = Competitor {
                    until: Micros::MAX,
                    law: Law::Cubic(cubic.grown(grown)),
                };
                end = competitor.end(&view);
            }
            end
        };
        let yielded = Some(End::OthersYield(0.25));
        assert_eq!(end(4.0, &[55_000; 10]), yielded);
        assert_eq!(end(2.9, &[55_000; 10]), None, "it may be Cubic's plateau");
        assert_eq!(end(4.0, &[75_000; 10]), None, "nobody yields to 35 ms");
        assert_eq!(end(4.0, &[55_000; 4]), None, "as BBR does for a moment");
        let dips = [
            75_000, 75_000, 41_000, 41_000, 41_000, 41_000, 41_000, 75_000,
        ];
        assert_eq!(end(4.0, &dips), None, "which is over");
    }
}
