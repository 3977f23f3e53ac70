//! NewReno (RFC 5681) in user space: slow start, a segment per round trip, half after a loss. It
//! sets a window and no rate.

use super::Tally;
use portus::ipc::Ipc;
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report};
use std::collections::HashMap;
use std::sync::Arc;

/// Reports every round trip, and at once after a loss or a timeout.
pub(super) const PROGRAM: &str = "
    (def (Report (volatile acked 0) (volatile loss 0) (volatile timeout 0) (volatile rtt +infinity)))
    (when true
        (:= Report.acked (+ Report.acked Ack.bytes_acked))
        (:= Report.loss (+ Report.loss Ack.lost_pkts_sample))
        (:= Report.timeout (if Flow.was_timeout (+ Report.timeout 1)))
        (:= Report.rtt (min Report.rtt Flow.rtt_sample_us))
        (fallthrough))
    (when (> (+ Report.loss Report.timeout) 0) (:= Micros 0) (report))
    (when (> Micros Flow.rtt_sample_us) (:= Micros 0) (report))";

#[derive(Clone, Default)]
pub(crate) struct Reno(pub(crate) Arc<Tally>);

pub(crate) struct RenoFlow<I: Ipc> {
    datapath: Datapath<I>,
    scope: Scope,
    tally: Arc<Tally>,
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes still to be acknowledged of the window in which the last loss was: their losses are
    /// of the same congestion.
    recovering: u64,
}

impl<I: Ipc> CongAlg<I> for Reno {
    type Flow = RenoFlow<I>;

    fn name() -> &'static str {
        "reno"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("reno", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut datapath: Datapath<I>, info: DatapathInfo) -> RenoFlow<I> {
        let scope = datapath
            .set_program("reno", Some(&[("Cwnd", info.init_cwnd)]))
            .unwrap();
        RenoFlow {
            datapath,
            scope,
            tally: Arc::clone(&self.0),
            mss: info.mss.into(),
            cwnd: info.init_cwnd.into(),
            ssthresh: u64::MAX,
            recovering: 0,
        }
    }
}

impl<I: Ipc> Flow for RenoFlow<I> {
    fn on_report(&mut self, _: u32, report: Report) {
        let get = |field: &str| report.get_field(field, &self.scope).unwrap();
        let (acked, loss, timeout) = (
            get("Report.acked"),
            get("Report.loss"),
            get("Report.timeout"),
        );
        self.tally.add(loss, timeout);
        self.recovering = self.recovering.saturating_sub(acked);
        if timeout > 0 {
            self.ssthresh = (self.cwnd / 2).max(2 * self.mss);
            self.cwnd = 4 * self.mss;
            self.recovering = 0;
        } else if loss > 0 && self.recovering == 0 {
            self.recovering = self.cwnd;
            self.ssthresh = (self.cwnd / 2).max(2 * self.mss);
            self.cwnd = self.ssthresh;
        } else if self.recovering == 0 && self.cwnd < self.ssthresh {
            self.cwnd += acked;
        } else if self.recovering == 0 {
            self.cwnd += self.mss * acked / self.cwnd;
        }
        let fields = [("Cwnd", self.cwnd as u32)];
        self.datapath.update_field(&self.scope, &fields).unwrap();
    }
}
