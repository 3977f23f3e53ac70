//! The core of BBR: paces at the highest delivery rate of the last ten rounds, times a gain that
//! probes (1.25) and drains (0.75) in turn, with a window of two bandwidth-delay products. Without
//! BBR's ProbeRTT and long-term sampling. It sets both rate and window.

use super::Tally;
use portus::ipc::Ipc;
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A report per round trip, with the best delivery rate in it.
const PROGRAM: &str = "
    (def (Report (volatile bandwidth 0) (volatile rtt +infinity) (volatile loss 0) (volatile timeout 0)))
    (when true
        (:= Report.bandwidth (max Report.bandwidth (min Flow.rate_incoming Flow.rate_outgoing)))
        (:= Report.rtt (min Report.rtt Flow.rtt_sample_us))
        (:= Report.loss (+ Report.loss Ack.lost_pkts_sample))
        (:= Report.timeout (if Flow.was_timeout (+ Report.timeout 1)))
        (fallthrough))
    (when (> Micros Flow.rtt_sample_us) (:= Micros 0) (report))";

/// 2 / ln 2: the smallest gain that doubles the delivery rate per round.
const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const BANDWIDTH_ROUNDS: usize = 10;

#[derive(Clone, Default)]
pub(crate) struct Bbr(pub(crate) Arc<Tally>);

enum State {
    /// Rounds in which the bandwidth has not grown by a quarter, and what it was.
    Startup {
        flat_rounds: u32,
        last: u64,
    },
    Drain,
    ProbeBandwidth {
        phase: usize,
    },
}

pub(crate) struct BbrFlow<I: Ipc> {
    datapath: Datapath<I>,
    scope: Scope,
    tally: Arc<Tally>,
    mss: u64,
    state: State,
    /// Bytes/s of the last rounds.
    bandwidths: VecDeque<u64>,
    min_rtt_us: u64,
}

impl<I: Ipc> CongAlg<I> for Bbr {
    type Flow = BbrFlow<I>;

    fn name() -> &'static str {
        "bbr"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("bbr", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut datapath: Datapath<I>, info: DatapathInfo) -> BbrFlow<I> {
        let scope = datapath
            .set_program("bbr", Some(&[("Cwnd", info.init_cwnd)]))
            .unwrap();
        BbrFlow {
            datapath,
            scope,
            tally: Arc::clone(&self.0),
            mss: info.mss.into(),
            state: State::Startup {
                flat_rounds: 0,
                last: 0,
            },
            bandwidths: VecDeque::new(),
            min_rtt_us: u64::MAX,
        }
    }
}

impl<I: Ipc> Flow for BbrFlow<I> {
    fn on_report(&mut self, _: u32, report: Report) {
        let get = |field: &str| report.get_field(field, &self.scope).unwrap();
        let (bandwidth, rtt_us) = (get("Report.bandwidth"), get("Report.rtt"));
        self.tally.add(get("Report.loss"), get("Report.timeout"));
        self.min_rtt_us = self.min_rtt_us.min(rtt_us);
        if bandwidth == 0 || self.min_rtt_us > 10_000_000 {
            return; // nothing was measured yet
        }
        self.bandwidths.push_back(bandwidth);
        if self.bandwidths.len() > BANDWIDTH_ROUNDS {
            self.bandwidths.pop_front();
        }
        let bandwidth = self.bandwidths.iter().copied().max().unwrap_or(0);
        let gain = match self.state {
            State::Startup { flat_rounds, last } => {
                let grows = bandwidth as f64 > 1.25 * last as f64;
                self.state = match (grows, flat_rounds) {
                    (true, _) => State::Startup {
                        flat_rounds: 0,
                        last: bandwidth,
                    },
                    (false, 2..) => State::Drain,
                    (false, _) => State::Startup {
                        flat_rounds: flat_rounds + 1,
                        last,
                    },
                };
                HIGH_GAIN
            }
            State::Drain => {
                self.state = State::ProbeBandwidth { phase: 2 };
                1.0 / HIGH_GAIN
            }
            State::ProbeBandwidth { phase } => {
                self.state = State::ProbeBandwidth {
                    phase: (phase + 1) % CYCLE.len(),
                };
                CYCLE[phase]
            }
        };
        let bdp = bandwidth * self.min_rtt_us / 1_000_000;
        let window = (gain.max(2.0) * bdp as f64) as u64;
        let fields = [
            ("Rate", (gain * bandwidth as f64) as u32),
            ("Cwnd", window.max(4 * self.mss) as u32),
        ];
        self.datapath.update_field(&self.scope, &fields).unwrap();
    }
}
