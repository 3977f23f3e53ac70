//! CUBIC (RFC 9438) in user space, without HyStart and without the TCP-friendly region: after a
//! loss the window follows W(t) = C (t - K)^3 + W_max. It sets a window and no rate.

use super::Tally;
use super::reno::PROGRAM;
use portus::ipc::Ipc;
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// RFC 9438 section 5: segments per s^3, and what a loss leaves of the window.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

#[derive(Clone, Default)]
pub(crate) struct Cubic(pub(crate) Arc<Tally>);

/// The growth since the last loss; windows in segments.
struct Epoch {
    start: Instant,
    w_max: f64,
    k_seconds: f64,
}

pub(crate) struct CubicFlow<I: Ipc> {
    datapath: Datapath<I>,
    scope: Scope,
    tally: Arc<Tally>,
    mss: f64,
    /// In segments.
    cwnd: f64,
    ssthresh: f64,
    epoch: Option<Epoch>,
    /// Segments still to be acknowledged of the window in which the last loss was.
    recovering: f64,
}

impl<I: Ipc> CongAlg<I> for Cubic {
    type Flow = CubicFlow<I>;

    fn name() -> &'static str {
        "cubic"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("cubic", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut datapath: Datapath<I>, info: DatapathInfo) -> CubicFlow<I> {
        let scope = datapath
            .set_program("cubic", Some(&[("Cwnd", info.init_cwnd)]))
            .unwrap();
        CubicFlow {
            datapath,
            scope,
            tally: Arc::clone(&self.0),
            mss: info.mss.into(),
            cwnd: f64::from(info.init_cwnd) / f64::from(info.mss),
            ssthresh: f64::INFINITY,
            epoch: None,
            recovering: 0.0,
        }
    }
}

impl<I: Ipc> CubicFlow<I> {
    fn reduce(&mut self, now: Instant) {
        // Fast convergence: a flow whose maximum sinks gives way.
        let last = self.epoch.as_ref().map_or(0.0, |epoch| epoch.w_max);
        let w_max = if self.cwnd < last {
            self.cwnd * (1.0 + BETA) / 2.0
        } else {
            self.cwnd
        };
        self.ssthresh = (self.cwnd * BETA).max(2.0);
        self.cwnd = self.ssthresh;
        self.epoch = Some(Epoch {
            start: now,
            w_max,
            k_seconds: ((w_max - self.cwnd).max(0.0) / C).cbrt(),
        });
    }

    fn grow(&mut self, segments: f64, now: Instant, rtt_seconds: f64) {
        match &self.epoch {
            Some(epoch) if self.cwnd >= self.ssthresh => {
                let t = now.duration_since(epoch.start).as_secs_f64() + rtt_seconds;
                let target = C * (t - epoch.k_seconds).powi(3) + epoch.w_max;
                let target = target.clamp(self.cwnd, 1.5 * self.cwnd);
                self.cwnd += (target - self.cwnd) / self.cwnd * segments;
            }
            _ => self.cwnd += segments,
        }
    }
}

impl<I: Ipc> Flow for CubicFlow<I> {
    fn on_report(&mut self, _: u32, report: Report) {
        let get = |field: &str| report.get_field(field, &self.scope).unwrap();
        let (loss, timeout) = (get("Report.loss"), get("Report.timeout"));
        let segments = get("Report.acked") as f64 / self.mss;
        let rtt_seconds = get("Report.rtt").min(1_000_000) as f64 / 1e6;
        let now = Instant::now();
        self.tally.add(loss, timeout);
        self.recovering = (self.recovering - segments).max(0.0);
        if timeout > 0 {
            self.reduce(now);
            self.cwnd = 4.0;
            self.recovering = 0.0;
        } else if loss > 0 && self.recovering == 0.0 {
            self.recovering = self.cwnd;
            self.reduce(now);
        } else if self.recovering == 0.0 {
            self.grow(segments, now, rtt_seconds);
        }
        let fields = [("Cwnd", (self.cwnd * self.mss) as u32)];
        self.datapath.update_field(&self.scope, &fields).unwrap();
    }
}
