//! The agent's flows for the simulator: the production programs on ccp-vm, and the production controller as their
//! agent.

use crate::controller::{Controller, FlowStart};
use crate::ensemble::{Ensemble, Member};
use crate::exp;
use crate::params::Params;
use crate::plan::{Command, Decision, PhaseName, Reason};
use crate::program::{self, RawReport};
use crate::units::{Bytes, Micros, Rate};
use ccp_vm::{InvalidProgram, Program, Updates};
use pathsim::{Agent, CcpFlow, MSS, UPTIME_US};
use portus::lang::{self, Reg};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Window of a new flow, segments. Source: RFC 6928, and Linux.
const INIT_CWND_PKTS: u64 = 10;
const NANOS_PER_MICRO: u64 = 1000;

/// One decision of a simulated flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decided {
    /// Time of the ACK that brought it about, since the run's start.
    pub at: Micros,
    /// The phase it leads to.
    pub phase: PhaseName,
    /// Why.
    pub reason: Reason,
    /// The rate around which the flow sends from now on.
    pub rate: Rate,
    /// The congestion window, bytes.
    pub cwnd: Bytes,
}

/// The decisions of one flow, in order of time: those that told the datapath something, or changed rate or phase.
/// Clones share one log, so one may be kept while the simulation owns the other. Memory is bounded: beyond its limit,
/// further decisions are only counted.
#[derive(Clone, Debug)]
pub struct DecisionLog(Rc<RefCell<Kept>>);

#[derive(Debug)]
struct Kept {
    limit: usize,
    decisions: Vec<Decided>,
    beyond: u64,
    answers: u64,
}

impl DecisionLog {
    /// An empty log for at most `limit` decisions.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Rc::new(RefCell::new(Kept {
            limit,
            decisions: Vec::new(),
            beyond: 0,
            answers: 0,
        })))
    }

    /// Takes what was kept, and the number of decisions beyond the limit.
    #[must_use]
    pub fn take(&self) -> (Vec<Decided>, u64) {
        let mut kept = self.0.borrow_mut();
        (
            std::mem::take(&mut kept.decisions),
            std::mem::take(&mut kept.beyond),
        )
    }

    /// All decisions so far, also those that changed nothing: the first, and one for each report.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.0.borrow().answers
    }

    fn add(&self, at: Micros, decision: &Decision) {
        let mut kept = self.0.borrow_mut();
        kept.answers += 1;
        let silent = decision.command.is_none()
            && kept
                .decisions
                .last()
                .is_some_and(|last| (last.phase, last.rate) == (decision.phase, decision.rate));
        if silent {
            return;
        }
        if kept.decisions.len() == kept.limit {
            kept.beyond += 1;
            return;
        }
        kept.decisions.push(Decided {
            at,
            phase: decision.phase,
            reason: decision.reason,
            rate: decision.rate,
            cwnd: decision.cwnd,
        });
    }
}

/// The program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// portus does not compile it.
    #[error("portus cannot compile the program {0}: {1}")]
    Compile(&'static str, String),
    /// The machine refuses it.
    #[error("the machine refuses the program {0}: {1}")]
    Program(&'static str, InvalidProgram),
}

/// The compiled programs, shared by all flows.
#[derive(Clone, Debug)]
pub struct Simulator {
    pk3c: Compiled,
    exp: Compiled,
}

#[derive(Clone, Debug)]
struct Compiled {
    program: Arc<Program>,
    entries: Entries,
}

/// Names of what can be updated, with their entries in [`Updates`].
type Entries = Arc<[(String, usize)]>;

impl Compiled {
    fn new(name: &'static str, text: &str, registers: &[&str]) -> Result<Self, SimulateError> {
        let failed = |error: lang::Error| SimulateError::Compile(name, error.to_string());
        let (bin, scope) = lang::compile(text.as_bytes(), &[]).map_err(failed)?;
        let mut install = scope.program_uid.to_le_bytes().to_vec();
        install.extend((bin.events.len() as u32).to_le_bytes());
        install.extend((bin.instrs.len() as u32).to_le_bytes());
        let entries = registers
            .iter()
            .filter_map(|name| match scope.get(name)? {
                Reg::Control(index, ..) => Some(((*name).to_owned(), usize::from(*index))),
                Reg::Implicit(4, _) => Some(((*name).to_owned(), Updates::CWND)),
                Reg::Implicit(5, _) => Some(((*name).to_owned(), Updates::RATE)),
                _ => None,
            })
            .collect();
        install.extend(bin.serialize().map_err(failed)?);
        let program = Program::parse(&install).map_err(|e| SimulateError::Program(name, e))?;
        Ok(Self {
            program: Arc::new(program),
            entries,
        })
    }
}

fn updates(entries: &Entries, fields: &[(&str, u32)]) -> Updates {
    let mut updates = Updates::default();
    for (name, value) in fields {
        if let Some((_, entry)) = entries.iter().find(|(known, _)| known == name) {
            updates.set(*entry, u64::from(*value));
        }
    }
    updates
}

impl Simulator {
    /// Compiles the programs.
    ///
    /// # Errors
    /// [`SimulateError`], which means that program and compiler do not fit together.
    pub fn new() -> Result<Self, SimulateError> {
        let pk3c = [
            "plan", "r1", "r2", "r3", "r4", "hold", "mi", "tx", "Rate", "Cwnd",
        ];
        let exp = ["mss", "w", "ssthresh"];
        Ok(Self {
            pk3c: Compiled::new(program::NAME, &program::text(), &pk3c)?,
            exp: Compiled::new(exp::NAME, &exp::text(), &exp)?,
        })
    }

    /// A flow under [`exp`] that begins at `start`.
    #[must_use]
    pub fn exp_flow(&self, start: Micros) -> CcpFlow<NoAgent> {
        let registers = exp::registers(MSS as u32, (INIT_CWND_PKTS * MSS) as u32, false);
        CcpFlow::new(
            self.exp.program.clone(),
            &updates(&self.exp.entries, &registers),
            NoAgent,
            0,
            start.us() * NANOS_PER_MICRO,
        )
    }

    /// A flow that begins at `start`, with an agent that answers after `latency`; to the same address as the others of
    /// `ensemble`.
    #[must_use]
    pub fn flow(
        &self,
        params: Arc<Params>,
        seed: u64,
        start: Micros,
        latency: Micros,
        ensemble: &Ensemble,
    ) -> CcpFlow<Pk3cAgent> {
        self.logged_flow(params, seed, start, latency, ensemble, None)
    }

    /// The same, with its decisions written to `log`.
    #[must_use]
    pub fn logged_flow(
        &self,
        params: Arc<Params>,
        seed: u64,
        start: Micros,
        latency: Micros,
        ensemble: &Ensemble,
        log: Option<DecisionLog>,
    ) -> CcpFlow<Pk3cAgent> {
        let fresh = FlowStart {
            mss: Bytes::new(MSS),
            init_cwnd: Bytes::new(INIT_CWND_PKTS * MSS),
            resume: None,
        };
        let (controller, first) = Controller::new(params, seed, fresh);
        if let Some(log) = &log {
            log.add(start, &first);
        }
        let agent = Pk3cAgent {
            controller,
            member: ensemble.join(),
            entries: self.pk3c.entries.clone(),
            log,
        };
        let updates = first.command.map(|command| agent.updates(command));
        CcpFlow::new(
            self.pk3c.program.clone(),
            &updates.unwrap_or_default(),
            agent,
            latency.us() * NANOS_PER_MICRO,
            start.us() * NANOS_PER_MICRO,
        )
    }
}

/// The controller behind the program's reports.
#[derive(Debug)]
pub struct Pk3cAgent {
    controller: Controller,
    member: Member,
    entries: Entries,
    log: Option<DecisionLog>,
}

impl Pk3cAgent {
    fn updates(&self, command: Command) -> Updates {
        command.fields(|fields| updates(&self.entries, fields))
    }
}

/// Behind a program that decides by itself.
#[derive(Clone, Copy, Debug)]
pub struct NoAgent;

impl Agent for NoAgent {
    fn on_report(&mut self, _: &[u64]) -> Option<Updates> {
        None
    }
}

impl Agent for Pk3cAgent {
    fn on_report(&mut self, fields: &[u64]) -> Option<Updates> {
        // The program defines all sixteen.
        let raw = RawReport::from_fields(fields.try_into().ok()?);
        let (_, _, decision) = self.member.answer(&mut self.controller, &raw);
        if let Some(log) = &self.log {
            let now = self.controller.estimator().now();
            log.add(now - Micros::new(UPTIME_US), &decision);
        }
        Some(self.updates(decision.command?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::units::Rate;

    /// A name that is not known would silently never be set.
    #[test]
    fn every_field_of_every_command_has_its_register() {
        let simulator = Simulator::new().unwrap();
        let rate = Rate::from_mbit(1.0);
        let plan = Plan {
            number: 1,
            rates: [rate; 4],
            hold: rate,
            length: Micros::new(1),
        };
        let cwnd = Bytes::new(5000);
        let length = Micros::new(1);
        for command in [
            Command::Run { plan, cwnd },
            Command::Steer {
                rate,
                hold: rate,
                now: rate,
                length,
                cwnd,
            },
            Command::Window { cwnd },
        ] {
            command.fields(|fields| {
                for (name, _) in fields {
                    let known = simulator
                        .pk3c
                        .entries
                        .iter()
                        .any(|(known, _)| known == name);
                    assert!(known, "{name}");
                }
            });
        }
        for (name, _) in exp::registers(1, 1, true) {
            let known = simulator.exp.entries.iter().any(|(known, _)| known == name);
            assert!(known, "{name}");
        }
    }
}
