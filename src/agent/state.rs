//! What an agent knows of one flow: its controller, its policy, and its sums.

use super::Shared;
use super::fact::{FlowFact, local_and_remote};
use super::kept::{Ends, KEEP, ends};
use crate::controller::{Controller, FlowStart};
use crate::ensemble::Member;
use crate::plan::{Decision, Reason};
use crate::policy::{Arm, Connection, Role, Verdict};
use crate::program::RawReport;
use crate::record::{self, Decided, Line};
use crate::stats::{Carried, FlowLive, Outcome};
use crate::units::{Bytes, Micros, Rate};
use portus::DatapathInfo;
use portus::lang::Scope;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What outlives a spell of the datapath's fallback.
pub(super) struct State {
    /// Number in records.
    pub(super) flow: u64,
    pub(super) ends: Ends,
    pub(super) mss: u32,
    /// When it began, in [`Shared::at_s`].
    pub(super) began_s: f64,
    /// The registers of the program, once it is installed.
    pub(super) scope: Option<Arc<Scope>>,
    pub(super) send_failed: bool,
    pub(super) controller: Controller,
    /// Its place among the flows to the same address.
    pub(super) member: Member,
    pub(super) params_version: u32,
    /// The flow as policies look at it.
    connection: Connection,
    pub(super) verdict: Verdict,
    /// It is to be taken over from the kernel with the next report that tells what it sends.
    handed_over: bool,
    /// How old it was when it came under its policy.
    met_at: Duration,
    /// How much of its life the datapath had driven it alone when it last came to the agent or under another policy, s.
    alone_s: f32,
    /// The governor's mark.
    pub(super) governed: u32,
    /// The round of [`crate::stats::Live`] in which the flow last told its numbers.
    pub(super) told: u32,
    decisions: [u32; Reason::ALL.len()],
    pub(super) lost_pkts: f64,
    rtt_sum_us: f64,
    rtt_samples: f64,
    rtt_min_us: u64,
    /// Sum of the rates asked for, one for each report, Mbit/s.
    pub(super) rate_sum_mbit: f64,
}

impl State {
    /// A new flow under its policy, and what is decided first.
    pub(super) fn begin(
        shared: &Shared,
        info: &DatapathInfo,
        fact: Option<FlowFact>,
        resume: Option<(Rate, Micros)>,
    ) -> (Box<Self>, Decision) {
        let params_version = shared.params_version.load(Ordering::Acquire);
        let assignments = &shared.assignments;
        let ends_known = local_and_remote(info, fact);
        let connection = assignments.connection(ends_known, fact);
        let verdict = assignments.assign(info.sock_id, &connection, &shared.stats.policies);
        let (flow, controller, first) = start(shared, info, fact, resume, &verdict);
        let state = Self {
            flow,
            ends: ends(info),
            mss: info.mss,
            began_s: shared.at_s(),
            scope: None,
            send_failed: false,
            controller,
            member: shared.ensembles.join(ends_known),
            params_version,
            connection,
            verdict,
            handed_over: false,
            met_at: fact.map_or(Duration::ZERO, |fact| fact.age),
            alone_s: fact.map_or(0.0, |fact| fact.alone_s()),
            governed: 0,
            told: 0,
            decisions: [0; Reason::ALL.len()],
            lost_pkts: 0.0,
            rtt_sum_us: 0.0,
            rtt_samples: 0.0,
            rtt_min_us: u64::MAX,
            rate_sum_mbit: 0.0,
        };
        (Box::new(state), first)
    }

    /// The segment size if it is another than before, as after a change of the path's MTU.
    pub(super) fn take_mss(&mut self, now: Option<u32>) -> Option<u64> {
        let mss = now.filter(|mss| *mss != self.mss)?;
        self.mss = mss;
        self.controller.set_mss(Bytes::new(u64::from(mss)));
        Some(u64::from(mss))
    }

    /// The datapath hands a flow back that it took: goes on with its controller, unless the path may have become
    /// another since. When the last report was read does not tell, since reports wait for an agent that hangs. Of an
    /// observed flow, which the datapath always drives, they come all the time.
    pub(super) fn readopt(
        &mut self,
        info: &DatapathInfo,
        fact: Option<FlowFact>,
        resume: Option<(Rate, Micros)>,
        shared: &Shared,
    ) -> Decision {
        let alone_s = fact.map_or(self.alone_s, |fact| fact.alone_s());
        let is_old =
            alone_s - self.alone_s >= KEEP.as_secs_f32() && !self.verdict.role.is_observed();
        self.alone_s = alone_s;
        self.reassign(info.sock_id, shared);
        if is_old {
            shared.record(|| Line::End {
                flow: self.flow,
                at_s: shared.at_s(),
            });
            self.mss = info.mss;
            let first;
            (self.flow, self.controller, first) = start(shared, info, fact, resume, &self.verdict);
            return first;
        }
        let mss = self.take_mss(Some(info.mss));
        let init_cwnd = Bytes::new(u64::from(info.init_cwnd));
        self.go_on(mss, init_cwnd, resume, shared)
    }

    /// From this window, rate and RTT; `mss` only says what has changed.
    fn go_on(
        &mut self,
        mss: Option<u64>,
        cwnd: Bytes,
        resume: Option<(Rate, Micros)>,
        shared: &Shared,
    ) -> Decision {
        let decision = self.controller.readopt(cwnd, resume);
        shared.record(|| Line::Readopt {
            flow: self.flow,
            at_s: shared.at_s(),
            mss,
            init_cwnd: cwnd.get(),
            resume: record::resumed(resume),
            decision: Decided::from(&decision),
        });
        decision
    }

    /// Puts a flow under the policy that is in force for it now; says under which role it was before.
    fn reassign(&mut self, sock_id: u32, shared: &Shared) -> Role {
        let fact = shared.facts(sock_id);
        shared.assignments.complete(&mut self.connection, fact);
        let stats = &shared.stats.policies;
        let verdict = shared.assignments.assign(sock_id, &self.connection, stats);
        let is_new = (&verdict.name, verdict.role) != (&self.verdict.name, self.verdict.role);
        if is_new {
            let age = fact.map(|fact| fact.age);
            self.met_at = age.unwrap_or(self.met_at);
            self.alone_s = fact.map_or(self.alone_s, |fact| fact.alone_s());
            tracing::info!(
                target: "flow",
                sock_id, policy = &*verdict.name, role = verdict.role.name(), was = self.verdict.role.name(),
                "flow under another policy"
            );
        }
        std::mem::replace(&mut self.verdict, verdict).role
    }

    pub(super) fn count(&mut self, raw: &RawReport, decision: &Decision) {
        let count = &mut self.decisions[decision.reason as usize];
        *count = count.saturating_add(1);
        self.rate_sum_mbit += decision.rate.mbit();
        self.lost_pkts += raw.lost as f64;
        if raw.n > 0 {
            self.rtt_sum_us += raw.sr as f64;
            self.rtt_samples += raw.n as f64;
            self.rtt_min_us = self.rtt_min_us.min(raw.rmin);
        }
    }

    pub(super) fn reports(&self) -> u64 {
        self.decisions.iter().copied().map(u64::from).sum()
    }

    pub(super) fn delivered_pkts(&self) -> f64 {
        self.controller.estimator().delivered_pkts()
    }

    /// Parameters, and policies, have changed: the next report is answered under the new ones.
    pub(super) fn take_changes(&mut self, sock_id: u32, shared: &Shared, version: u32) {
        self.params_version = version;
        let before = self.reassign(sock_id, shared);
        let (flow, params) = (self.flow, shared.params(self.verdict.policy));
        shared.record(|| Line::Params {
            flow: Some(flow),
            params: record::texts(&params),
        });
        self.controller.set_params(params);
        let is_driven = self.verdict.role == Role::Driven;
        self.handed_over = is_driven && (self.handed_over || before.is_observed());
    }

    /// The kernel hands the flow over while its program runs: goes on from what it sends now, not from what it would
    /// have sent, as soon as a report tells that.
    pub(super) fn take_over(&mut self, shared: &Shared, sent: Rate) -> Option<Decision> {
        let srtt = self.controller.estimator().srtt();
        if !self.handed_over || sent == Rate::ZERO || srtt == Micros::ZERO {
            return None;
        }
        self.handed_over = false;
        let resume = record::resume(record::resumed(Some((sent, srtt))));
        let cwnd = Bytes::from_f64(sent.bytes_in(srtt));
        Some(self.go_on(None, cwnd, resume, shared))
    }

    /// The mean RTT sample in units of which a microsecond is `unit`, if there were any.
    pub(super) fn rtt_mean(&self, unit: f64) -> Option<f64> {
        (self.rtt_samples > 0.0).then(|| self.rtt_sum_us * unit / self.rtt_samples)
    }

    /// The smallest, likewise.
    pub(super) fn rtt_min(&self, unit: f64) -> Option<f64> {
        (self.rtt_samples > 0.0).then_some(self.rtt_min_us as f64 * unit)
    }

    /// How the flow fared, and in which arm of an experiment.
    pub(super) fn outcome(&self, carried: Carried, duration: Duration) -> Option<(Arm, Outcome)> {
        let (arm, unit) = self.verdict.arm?;
        let outcome = Outcome {
            unit,
            duration,
            bytes: carried.bytes_acked,
            rtt_s: self.rtt_mean(1e-6),
            rtt_min_s: self.rtt_min(1e-6),
            loss: carried.loss(),
            met_at: self.met_at,
        };
        Some((arm, outcome))
    }

    /// What is shown of the flow while it runs.
    pub(super) fn live(&self, decision: &Decision) -> FlowLive {
        let est = self.controller.estimator();
        FlowLive {
            phase: decision.phase,
            reason: decision.reason,
            rate: decision.rate,
            cwnd: decision.cwnd,
            srtt: est.srtt(),
            rtt_min: est.rtt_min(),
            reports: self.reports(),
        }
    }

    /// `reason=count` of every kind of decision that happened.
    pub(super) fn decisions(&self) -> String {
        let counted = Reason::ALL
            .iter()
            .map(|reason| (reason.name(), self.decisions[*reason as usize]));
        let texts: Vec<_> = counted
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name}={count}"))
            .collect();
        texts.join(" ")
    }
}

/// A number, a controller that knows nothing of the path, and what it decides first.
fn start(
    shared: &Shared,
    info: &DatapathInfo,
    fact: Option<FlowFact>,
    resume: Option<(Rate, Micros)>,
    verdict: &Verdict,
) -> (u64, Controller, Decision) {
    let flow = shared.flows.fetch_add(1, Ordering::Relaxed) + 1;
    let seed = shared.seed.wrapping_add(flow);
    let params = shared.params(verdict.policy);
    if shared.params_version.load(Ordering::Acquire) > 0 {
        shared.record(|| Line::Params {
            flow: None,
            params: record::texts(&params),
        });
    }
    let start = FlowStart {
        mss: Bytes::new(u64::from(info.mss)),
        init_cwnd: Bytes::new(u64::from(info.init_cwnd)),
        resume,
    };
    let (controller, first) = Controller::new(params, seed, start);
    let (local, remote) = local_and_remote(info, fact);
    shared.record(|| Line::Start {
        flow,
        at_s: shared.at_s(),
        sock_id: info.sock_id,
        local,
        remote,
        mss: u64::from(info.mss),
        init_cwnd: u64::from(info.init_cwnd),
        seed,
        resume: record::resumed(resume),
        decision: Decided::from(&first),
    });
    (flow, controller, first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Config, Pk3c};

    fn begin(agent: &Pk3c) -> (Box<State>, Decision) {
        let info = DatapathInfo {
            sock_id: 5,
            init_cwnd: 100_000,
            mss: 1000,
            src_ip: 7,
            src_port: 1234,
            dst_ip: 9,
            dst_port: 80,
        };
        State::begin(&agent.shared, &info, None, None)
    }

    #[test]
    fn counts_of_decisions_end_at_their_largest_value() {
        let (mut state, first) = begin(&Pk3c::new(Config::default()));
        state.decisions[Reason::Start as usize] = u32::MAX - 1;
        for _ in 0..3 {
            state.count(&RawReport::default(), &first);
        }
        assert_eq!(state.decisions(), "start=4294967295");
    }
}
