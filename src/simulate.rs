//! PK3C flows for the simulator: the production program on ccp-vm, and the production controller as its agent.

use crate::controller::{Controller, FlowStart};
use crate::params::Params;
use crate::plan::Command;
use crate::program::{self, RawReport};
use crate::units::{Bytes, Micros};
use ccp_vm::{InvalidProgram, Program, Updates};
use pathsim::{Agent, CcpFlow, MSS};
use portus::lang::{self, Reg};
use std::sync::Arc;

/// Window of a new flow, segments. Source: RFC 6928, and Linux.
const INIT_CWND_PKTS: u64 = 10;
const NANOS_PER_MICRO: u64 = 1000;

/// The program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// portus does not compile it.
    #[error("portus cannot compile the program {name}: {0}", name = program::NAME)]
    Compile(String),
    /// The machine refuses it.
    #[error("the machine refuses the program {name}: {0}", name = program::NAME)]
    Program(#[from] InvalidProgram),
}

/// The compiled program, shared by all flows.
#[derive(Clone, Debug)]
pub struct Simulator {
    program: Arc<Program>,
    /// Names of what can be updated, with their entries in [`Updates`].
    entries: Arc<[(String, usize)]>,
}

impl Simulator {
    /// Compiles the program.
    ///
    /// # Errors
    /// [`SimulateError`], which means that program and compiler do not fit together.
    pub fn new() -> Result<Self, SimulateError> {
        let failed = |error: lang::Error| SimulateError::Compile(error.to_string());
        let (bin, scope) = lang::compile(program::text().as_bytes(), &[]).map_err(failed)?;
        let mut install = scope.program_uid.to_le_bytes().to_vec();
        install.extend((bin.events.len() as u32).to_le_bytes());
        install.extend((bin.instrs.len() as u32).to_le_bytes());
        let entries = [
            "plan", "r1", "r2", "r3", "r4", "hold", "mi", "tx", "Rate", "Cwnd",
        ]
        .into_iter()
        .filter_map(|name| match scope.get(name)? {
            Reg::Control(index, ..) => Some((name.to_owned(), usize::from(*index))),
            Reg::Implicit(4, _) => Some((name.to_owned(), Updates::CWND)),
            Reg::Implicit(5, _) => Some((name.to_owned(), Updates::RATE)),
            _ => None,
        })
        .collect();
        install.extend(bin.serialize().map_err(failed)?);
        Ok(Self {
            program: Arc::new(Program::parse(&install)?),
            entries,
        })
    }

    /// A flow that begins at `start`, with an agent that answers after `latency`.
    #[must_use]
    pub fn flow(
        &self,
        params: Arc<Params>,
        seed: u64,
        start: Micros,
        latency: Micros,
    ) -> CcpFlow<Pk3cAgent> {
        let fresh = FlowStart {
            mss: Bytes::new(MSS),
            init_cwnd: Bytes::new(INIT_CWND_PKTS * MSS),
            resume: None,
        };
        let (controller, first) = Controller::new(params, seed, fresh);
        let agent = Pk3cAgent {
            controller,
            entries: self.entries.clone(),
        };
        let updates = first.command.map(|command| agent.updates(command));
        CcpFlow::new(
            self.program.clone(),
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
    entries: Arc<[(String, usize)]>,
}

impl Pk3cAgent {
    fn updates(&self, command: Command) -> Updates {
        command.fields(|fields| {
            let mut updates = Updates::default();
            for (name, value) in fields {
                if let Some((_, entry)) = self.entries.iter().find(|(known, _)| known == name) {
                    updates.set(*entry, u64::from(*value));
                }
            }
            updates
        })
    }
}

impl Agent for Pk3cAgent {
    fn on_report(&mut self, fields: &[u64]) -> Option<Updates> {
        // The program defines all sixteen.
        let raw = RawReport::from_fields(fields.try_into().ok()?);
        let command = self.controller.on_report(&raw).command?;
        Some(self.updates(command))
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
            Command::Steer { rate, length, cwnd },
            Command::Window { cwnd },
        ] {
            command.fields(|fields| {
                for (name, _) in fields {
                    let known = simulator.entries.iter().any(|(known, _)| known == name);
                    assert!(known, "{name}");
                }
            });
        }
    }
}
