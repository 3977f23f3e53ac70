//! `exp`, a Reno that starts faster and yields less, for comparison (`--algorithm exp`).
//!
//! ```text
//!   SLOW START ------------------> AVOIDANCE <---+
//!     w += 2 per byte acknowledged   w += 1 mss   |  first loss of a window:
//!     (x 3 per RTT) until ssthresh   per window --+    ssthresh = w = 3/4 w, no growth until w is acknowledged
//!        ^                                |
//!        +---- timeout: ssthresh = 3/4 w, w = 1 mss
//! ```
//!
//! It is the exercise of a course on congestion control (GENI's TCP assignment): slow start with the factor 3 in place
//! of 2, and three quarters of the window kept at a loss in place of a half. Else it is Reno (RFC 5681, 6582). The
//! whole algorithm is the datapath's program `program/exp.ccp`, which decides on every ACK; no agent round trip takes
//! part, and the reports only feed the log. It shows what CCP can do without a controller.
//!
//! Limits: the window is never below the datapath's four segments, also after a timeout; during recovery the window is
//! the reduced one at once (Linux approaches it, RFC 6937); a reduction that turns out to be wrong is not undone.

use crate::agent::{FlowFact, FlowFacts, RUNNING_AGE, local_and_remote};
use portus::ipc::Ipc;
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Name under which the program is installed.
pub const NAME: &str = "exp";

/// The program as the portus compiler takes it.
#[must_use]
pub fn text() -> String {
    crate::program::without_comments(include_str!("program/exp.ccp"))
}

/// What the program begins with: registers and their values.
#[must_use]
pub fn registers(mss: u32, cwnd_bytes: u32, running: bool) -> Vec<(&'static str, u32)> {
    let mut registers = vec![("mss", mss), ("w", cwnd_bytes)];
    if running {
        registers.push(("ssthresh", cwnd_bytes));
    }
    registers
}

/// The algorithm, as portus runs it.
#[derive(Clone, Default)]
pub struct Exp {
    facts: Option<Arc<dyn FlowFacts>>,
}

impl Exp {
    /// An agent; `facts` tells more of its flows.
    #[must_use]
    pub fn new(facts: Option<Arc<dyn FlowFacts>>) -> Self {
        Self { facts }
    }

    fn fact(&self, sock_id: u32) -> Option<FlowFact> {
        self.facts.as_ref().and_then(|facts| facts.lookup(sock_id))
    }
}

/// One flow under the program.
pub struct ExpFlow<I: Ipc> {
    exp: Exp,
    datapath: Datapath<I>,
    began: Instant,
    /// The registers of the program, if it is installed.
    scope: Option<Scope>,
    mss: u32,
    acked_bytes: u64,
    lost_pkts: u64,
    reports: u64,
}

impl<I: Ipc> CongAlg<I> for Exp {
    type Flow = ExpFlow<I>;

    fn name() -> &'static str {
        NAME
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([(NAME, text())])
    }

    fn new_flow(&self, mut datapath: Datapath<I>, info: DatapathInfo) -> ExpFlow<I> {
        let sock_id = info.sock_id;
        let fact = self.fact(sock_id);
        let (local, remote) = local_and_remote(&info, fact);
        let running = fact.is_some_and(|fact| fact.age > RUNNING_AGE);
        tracing::info!(
            target: "flow",
            sock_id, %local, %remote, mss = info.mss, init_cwnd = info.init_cwnd, resumed = running,
            "flow start"
        );
        let registers = registers(info.mss.max(1), info.init_cwnd, running);
        let scope = match datapath.set_program(NAME, Some(&registers)) {
            Ok(scope) => Some(scope),
            Err(error) => {
                tracing::error!(target: "flow", sock_id, "cannot install the program, the datapath drives this flow alone: {}", error.0);
                None
            }
        };
        ExpFlow {
            exp: self.clone(),
            datapath,
            began: Instant::now(),
            scope,
            mss: info.mss.max(1),
            acked_bytes: 0,
            lost_pkts: 0,
            reports: 0,
        }
    }
}

impl<I: Ipc> Flow for ExpFlow<I> {
    fn on_report(&mut self, sock_id: u32, report: Report) {
        let Some(scope) = &self.scope else { return };
        self.reports += 1;
        let field = |name| report.get_field(name, scope).unwrap_or(0);
        self.acked_bytes += field("Report.acked");
        self.lost_pkts += field("Report.lost");
        let facts = self.exp.facts.as_ref();
        let mss = facts.and_then(|facts| facts.mss(sock_id));
        if let Some(mss) = mss.filter(|mss| *mss != self.mss) {
            match self.datapath.update_field(scope, &[("mss", mss)]) {
                Ok(()) => self.mss = mss,
                Err(error) => {
                    tracing::warn!(target: "flow", sock_id, "cannot tell the segment size: {}", error.0);
                }
            }
        }
    }

    fn close(&mut self) {
        let sock_id = self.datapath.get_sock_id();
        let fact = self.exp.fact(sock_id);
        let age = fact.map_or_else(|| self.began.elapsed(), |fact| fact.age);
        let duration_s = age.as_secs_f64();
        let bytes_acked = fact.map_or(self.acked_bytes, |fact| fact.bytes_acked);
        tracing::info!(
            target: "flow",
            sock_id,
            duration_s,
            agent_driven = fact.map(|fact| fact.driven.as_secs_f64() / fact.age.as_secs_f64().max(1e-6)),
            reports = self.reports,
            bytes_acked,
            goodput_mbit = bytes_acked as f64 * 8e-6 / duration_s.max(1e-6),
            lost_pkts = fact.map_or(self.lost_pkts, |fact| fact.packets_lost.into()),
            fallback_episodes = fact.map(|fact| fact.fallback_episodes),
            "flow end"
        );
    }
}

#[cfg(test)]
mod tests;
