//! One flow as portus runs it: reports in, commands out, a line in the log at its end.

use super::Shared;
use super::fact::{local_and_remote, resume};
use super::kept::ends;
use super::state::State;
use crate::ensemble::Heard;
use crate::plan::{Command, Decision, Reason};
use crate::policy::Role;
use crate::program::{self, REPORT_FIELDS, RawReport};
use crate::record::{Decided, Line, Measured};
use crate::stats::{Carried, Interval};
use portus::ipc::Ipc;
use portus::{Datapath, DatapathInfo, DatapathTrait, Flow, Report};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One flow under the agent.
pub struct Pk3cFlow<I: Ipc> {
    shared: Arc<Shared>,
    datapath: Datapath<I>,
    /// In a box, because portus' table of flows has more room than flows.
    state: Option<Box<State>>,
}

impl<I: Ipc> Pk3cFlow<I> {
    /// Takes a flow that the datapath tells of: a new one, or one it took back before.
    pub(super) fn begin(shared: Arc<Shared>, datapath: Datapath<I>, info: &DatapathInfo) -> Self {
        let sock_id = info.sock_id;
        let fact = shared.facts(sock_id);
        let resume = resume(fact, info.init_cwnd);
        let kept = shared.kept.take(sock_id, ends(info));
        let readopted = kept.is_some();
        shared.stats.counters.flow_started(readopted);
        let (state, first) = match kept {
            Some(mut state) => {
                let first = state.readopt(info, fact, resume, &shared);
                (state, first)
            }
            None => State::begin(&shared, info, fact, resume),
        };
        let (local, remote) = local_and_remote(info, fact);
        tracing::info!(
            target: "flow",
            sock_id, %local, %remote, mss = info.mss, init_cwnd = info.init_cwnd, resumed = resume.is_some(), readopted,
            policy = &*state.verdict.name, role = state.verdict.role.name(),
            "flow start"
        );
        let mut flow = Self {
            shared,
            datapath,
            state: Some(state),
        };
        if !flow.is_left() {
            flow.install(&first);
        }
        flow
    }

    /// Whether a policy leaves the flow to the kernel.
    fn is_left(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.verdict.role == Role::Kernel)
    }

    /// Installs the program with the first rate, window and plan.
    fn install(&mut self, first: &Decision) {
        let (Some(command), Some(state)) = (first.command, &mut self.state) else {
            return;
        };
        let installed =
            command.fields(|fields| self.datapath.set_program(program::NAME, Some(fields)));
        state.send_failed = false;
        state.scope = match installed {
            Ok(scope) => Some(self.shared.share(scope)),
            Err(error) => {
                self.shared.stats.counters.command_failed();
                tracing::error!(target: "flow", sock_id = self.datapath.get_sock_id(), "cannot install the program, the datapath drives this flow alone: {}", error.0);
                None
            }
        };
    }

    fn send(&mut self, command: Command) {
        let Some(state) = &mut self.state else { return };
        let Some(scope) = &state.scope else { return };
        let sent = command.fields(|fields| self.datapath.update_field(scope, fields));
        if let Err(error) = sent {
            self.shared.stats.counters.command_failed();
            if std::mem::replace(&mut state.send_failed, true) {
                return;
            }
            tracing::warn!(target: "flow", sock_id = self.datapath.get_sock_id(), "cannot send a command (further failures are not logged): {}", error.0);
        }
    }

    fn read(&self, report: &Report) -> Option<RawReport> {
        let scope = self.state.as_ref()?.scope.as_ref()?;
        let mut fields = [0; REPORT_FIELDS.len()];
        for (value, name) in fields.iter_mut().zip(REPORT_FIELDS) {
            *value = report.get_field(name, scope).ok()?;
        }
        Some(RawReport::from_fields(fields))
    }
}

impl<I: Ipc> Flow for Pk3cFlow<I> {
    fn on_report(&mut self, sock_id: u32, report: Report) {
        let Some(raw) = self.read(&report) else {
            tracing::debug!(target: "flow", sock_id, program = report.program_uid, "report of another program ignored");
            self.shared.stats.counters.report_foreign();
            return;
        };
        let Some(state) = &mut self.state else { return };
        let shared = &self.shared;
        let stats = &shared.stats;
        let arrived = stats.counters.report_arrived();
        self.shared.govern(&mut state.governed);
        let version = self.shared.params_version.load(Ordering::Acquire);
        if version != state.params_version {
            state.take_changes(sock_id, shared, version);
        }
        let mss = state.take_mss(shared.mss(sock_id));
        let (known, mi, decision) = state.member.answer(&mut state.controller, &raw);
        state.count(&raw, &decision);
        if stats.live.explains() {
            stats.live.note(sock_id, || Interval {
                at_s: shared.at_s(),
                measured: Measured::new(&raw, mi, state.controller.estimator()),
                decision,
            });
        }
        if stats.live.is_due(&mut state.told) {
            stats.live.publish(sock_id, state.live(&decision));
        }
        let flow = state.flow;
        tracing::debug!(
            target: "decision",
            sock_id,
            rate_mbit = decision.rate.mbit(),
            cwnd = decision.cwnd.get(),
            phase = decision.phase.name(),
            reason = decision.reason.name(),
            plan = raw.plan(),
            slot = raw.tag % 32,
            role = state.verdict.role.name(),
        );
        self.shared.record(|| {
            let heard = known.map(Heard::from);
            Line::Report {
                flow,
                raw: raw.fields(),
                mss,
                stale: decision.reason == Reason::Stale,
                known: heard.map(|(known, ..)| known),
                active: heard.map(|(_, active, _)| active),
                carries: heard.and_then(|(.., carries)| carries),
                decision: Decided::from(&decision),
            }
        });
        let taken_over = state.take_over(&self.shared, mi.send_rate);
        let command = taken_over.unwrap_or(decision).command;
        if let Some(command) = command.filter(|_| !self.is_left()) {
            self.send(command);
        }
        let counters = &self.shared.stats.counters;
        counters.report_answered(decision.reason, arrived);
    }

    fn close(&mut self) {
        let Some(state) = self.state.take() else {
            return;
        };
        self.shared.record(|| Line::End {
            flow: state.flow,
            at_s: self.shared.at_s(),
        });
        let sock_id = self.datapath.get_sock_id();
        self.shared.stats.counters.flow_ended();
        self.shared.stats.live.forget(sock_id);
        self.shared.assignments.forget(sock_id);
        let fact = self.shared.facts(sock_id);
        let known_s = self.shared.at_s() - state.began_s;
        let duration_s = fact.map_or(known_s, |fact| fact.age.as_secs_f64());
        let bytes_acked = fact.map_or(
            (state.delivered_pkts() * f64::from(state.mss)) as u64,
            |fact| fact.bytes_acked,
        );
        let by_reports = [state.delivered_pkts(), state.lost_pkts].map(|packets| packets as u32);
        let [packets_delivered, packets_lost] = fact.map_or(by_reports, |fact| {
            [fact.packets_delivered, fact.packets_lost]
        });
        let carried = Carried {
            bytes_acked,
            packets_delivered,
            packets_lost,
        };
        let outcome = state.outcome(carried, Duration::from_secs_f64(duration_s.max(0.0)));
        self.shared.stats.policies.end(sock_id, carried, outcome);
        let observed = state.verdict.role.is_observed() && state.reports() > 0;
        tracing::info!(
            target: "flow",
            sock_id,
            duration_s,
            agent_driven = fact.map(|fact| fact.driven.as_secs_f64() / fact.age.as_secs_f64().max(1e-6)),
            reports = state.reports(),
            decisions = state.decisions(),
            bytes_acked,
            goodput_mbit = bytes_acked as f64 * 8e-6 / duration_s.max(1e-6),
            rtt_min_ms = state.rtt_min(1e-3),
            rtt_mean_ms = state.rtt_mean(1e-3),
            loss = carried.loss().unwrap_or(0.0),
            fallback_episodes = fact.map(|fact| fact.fallback_episodes),
            policy = &*state.verdict.name,
            role = state.verdict.role.name(),
            would_rate_mbit = observed.then(|| state.rate_sum_mbit / state.reports() as f64),
            "flow end"
        );
    }
}

impl<I: Ipc> Drop for Pk3cFlow<I> {
    /// A flow that is dropped without an end comes back: the datapath took it over, and will create it again.
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            let sock_id = self.datapath.get_sock_id();
            self.shared.stats.live.forget(sock_id);
            self.shared.assignments.forget(sock_id);
            self.shared.kept.keep(sock_id, state);
        }
    }
}
