//! How a flow begins: the first RTT, and the verdicts of the fast start.

use super::plans::FIRST_REPORT;
use super::{Controller, Phase};
use crate::aimd::Aimd;
use crate::estimate::Mi;
use crate::plan::{Decision, Reason};
use crate::startup::{FIRST_GAIN, MIN_SAMPLES, Startup, Verdict};
use crate::units::{Micros, Rate};

/// The loss rule is silent for so long after the fast start, whose losses were answered by leaving it.
const STARTUP_LOSS_RTTS: f64 = 3.5;
/// The queue rule, likewise.
const STARTUP_QUEUE_RTTS: f64 = 4.0;
/// The first RTT sample sets the rate to that, but does not raise it by more than this.
const FIRST_JUMP: f64 = 64.0;
/// The timeout of a flow without an RTT. Source: RFC 6298, section 2.1.
const FIRST_TIMEOUT: Micros = Micros::new(1_000_000);

impl Controller {
    /// Before the first plan: the first RTT sample.
    pub(super) fn on_first_rtt(&mut self, mi: &Mi, ends_flight: bool) -> Decision {
        if self.params.is_pk3c() {
            return self.on_first_acks(mi, ends_flight);
        }
        if mi.rtt.is_none() {
            return self.wait(Reason::Wait);
        }
        if let Phase::Startup(_) = self.phase {
            self.phase = Phase::Startup(Startup::new(self.est.now()));
        }
        let command = self.first_plan();
        self.decide(Reason::FirstRtt, Some(command))
    }

    /// ACKs of the initial window: the first begins the second RTT, and together they may tell the path's rate.
    fn on_first_acks(&mut self, mi: &Mi, ends_flight: bool) -> Decision {
        let (now, srtt) = (self.est.now(), self.est.srtt());
        let Phase::Startup(startup) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let train = startup.note_acks(now, mi, ends_flight);
        let Some(rtt) = mi.rtt else {
            return self.wait(Reason::Wait);
        };
        let share = startup.share_at_once(&rtt, &self.est);
        let others = startup.others();
        let window_rate = self.init_window_in(srtt);
        if train.is_first() {
            // No higher, either: what the window cannot carry leaves in a burst and tells nothing of the path.
            self.rate = self.bounded((window_rate * FIRST_GAIN).min(self.rate * FIRST_JUMP));
        }
        let init_pkts = self.init_pkts();
        if !train.is_over(init_pkts, srtt) {
            if !train.is_first() && !ends_flight {
                return self.wait(Reason::Wait);
            }
            // Said again at the end of a flight: the command for its first ACK may have come after its last one.
            let command = self.steered_for(FIRST_REPORT, ends_flight);
            return self.decide(Reason::FirstRtt, Some(command));
        }
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        if let Some(share) = share {
            let floor = Aimd::floor(srtt, pkt_bytes);
            return self.end_start(self.allowed(share.max(floor)), Reason::Share);
        }
        if let Some(rest) = train.rest(init_pkts) {
            self.rate = self.bounded(window_rate * (FIRST_GAIN * rest));
            self.phase = Phase::Startup(Startup::in_crowd(now));
            let command = self.held_startup_plan();
            return self.decide(Reason::GrowLess, Some(command));
        }
        let path = train.rate(pkt_bytes);
        let carries = path.filter(|_| train.is_burst(rtt.mean));
        if let Some(rate) = carries {
            self.est.learn_packet_time(rate.time_for(pkt_bytes));
        }
        self.rules.path.learn(carries);
        let startup = Startup::on_path(now, path, others);
        let second_rate = startup.second_rate(window_rate);
        self.rate = second_rate.map_or(self.rate, |rate| self.bounded(rate));
        self.phase = Phase::Startup(startup);
        let command = self.first_plan();
        let reason = if second_rate.is_some() {
            Reason::PathRate
        } else {
            Reason::FirstRtt
        };
        self.decide(reason, Some(command))
    }

    /// Packets of the initial window.
    pub(super) fn init_pkts(&self) -> f64 {
        self.init_cwnd.get() as f64 / self.mss_bytes
    }

    /// The rate of an initial window per `time`.
    pub(super) fn init_window_in(&self, time: Micros) -> Rate {
        Rate::from_bytes_in(self.init_cwnd.get() as f64, time)
    }

    /// The rate after a timeout before any RTT: an initial window per first timeout (RFC 6298). The path holds more
    /// than that of others' packets, or has lost the whole window, and the start rate is no evidence of anything.
    pub(super) fn rate_without_rtt(&self) -> Rate {
        self.init_window_in(FIRST_TIMEOUT).min(self.rate * 0.5)
    }

    pub(super) fn on_startup(&mut self, mi: &Mi) -> Decision {
        let pkt_bytes = self.est.pkt_bytes(self.mss_bytes);
        let Phase::Startup(startup) = &mut self.phase else {
            return self.wait(Reason::Wait);
        };
        let on_own_path = startup.is_on_own_path();
        match startup.on_mi(mi, &self.est, self.rate, pkt_bytes, &self.params) {
            Verdict::Wait(reason) => self.wait(reason),
            Verdict::Longer => {
                let command = self.held_startup_plan();
                self.decide(Reason::Longer, Some(command))
            }
            Verdict::Grow(rate, reason) => {
                let rate = self.allowed(rate);
                if rate <= self.rate {
                    return self.wait(Reason::Wait);
                }
                self.rate = rate;
                let command = self.steered();
                self.decide(reason, Some(command))
            }
            Verdict::Leave(rate, reason) => {
                if reason == Reason::FullQueue {
                    self.long_rtt = startup.long_rtt(mi, &self.est);
                }
                // What an application does not send tells nothing of the path.
                let srtt = self.est.srtt();
                let floor = if mi.limited || reason == Reason::Plateau {
                    self.init_window_in(srtt)
                } else {
                    Aimd::floor(srtt, pkt_bytes)
                };
                let rate = self.allowed(rate.max(floor.min(self.rate)));
                let queue = matches!(
                    reason,
                    Reason::FullQueue | Reason::FullSlope | Reason::FullSpacing
                );
                if on_own_path && queue {
                    self.rules.path.learn(Some(rate));
                }
                self.end_start(rate, reason)
            }
        }
    }

    /// Goes on at this rate, whatever was delivered before.
    fn end_start(&mut self, rate: Rate, reason: Reason) -> Decision {
        let (now, srtt) = (self.est.now(), self.est.srtt());
        self.rate = rate;
        self.rules.started(
            self.rate,
            now,
            srtt * STARTUP_LOSS_RTTS,
            srtt * STARTUP_QUEUE_RTTS,
        );
        let command = self.drain(self.rate);
        self.decide(reason, Some(command))
    }

    /// After the drain: goes on with the start if what ended it was no queue. What the train told is then not the
    /// path's.
    pub(super) fn resume_start(&mut self, mi: &Mi) -> Option<Decision> {
        let judged = !matches!(self.phase, Phase::Startup(_) | Phase::Drain { .. });
        let rtt = mi.rtt.filter(|_| judged && mi.samples >= MIN_SAMPLES)?;
        let foreign = std::mem::take(&mut self.long_rtt).stays(&rtt, &self.est)?;
        self.rules.path.learn(None);
        self.phase = Phase::Startup(Startup::resumed(self.est.now(), foreign));
        let command = self.startup_plan();
        Some(self.decide(Reason::Restart, Some(command)))
    }
}
