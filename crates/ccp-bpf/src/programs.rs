//! The programs of the running agent: translated, loaded, and entered into the program array.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::layout::{
    MAX_PROGS, NUM_DEF, NUM_REPORT, ProgramTable, REG_CONTROL, REG_REPORT, USES_RATES,
};
use crate::sys::{SharedArray, load_struct_ops_program};
use crate::translate::{Frame, Target, translate};
use ccp_vm::{Program, Reg};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::*;
use tracing::debug;

const _: () = assert!(NUM_DEF == 2 * NUM_REPORT as usize);
const _: () = assert!(REG_REPORT == 0 && REG_CONTROL == NUM_REPORT);

/// Installed programs, by the agent's id.
pub(crate) struct Programs {
    kernel: Kernel,
    tables: SharedArray<ProgramTable>,
    flows: MapHandle,
    array: MapHandle,
    /// uid of entry 1, 2, ...
    installed: Vec<u32>,
}

impl Programs {
    pub(crate) fn new(
        kernel: Kernel,
        tables: SharedArray<ProgramTable>,
        flows: MapHandle,
        array: MapHandle,
    ) -> Self {
        Self {
            kernel,
            tables,
            flows,
            array,
            installed: Vec::new(),
        }
    }

    /// The entry of a program in the program array.
    pub(crate) fn index_of(&self, uid: u32) -> Option<u32> {
        // An id that was installed again means the later program.
        let position = self
            .installed
            .iter()
            .rposition(|installed| *installed == uid)?;
        Some(position as u32 + 1)
    }

    pub(crate) fn install(&mut self, program: &Program) -> Result<(), Error> {
        let index = self.installed.len() + 1;
        let table = self.tables.get(index).filter(|_| index < MAX_PROGS);
        let table = table.ok_or(Error::TooManyPrograms)?;
        let target = Target {
            flows: self.flows.as_fd().as_raw_fd(),
            frame: Frame::Socket {
                slot_offset: self.kernel.slot_offset,
                programs: self.array.as_fd().as_raw_fd(),
            },
        };
        let code = translate(program, target);
        let loaded = load_struct_ops_program(
            "ccp_program",
            &code,
            self.kernel.ops_btf_id,
            self.kernel.cong_control,
        )
        .map_err(|(source, log)| Error::Translation {
            uid: program.uid(),
            source,
            log,
        })?;

        let (mut volatile_mask, mut defined_mask) = (0u32, 0u32);
        for definition in program.definitions() {
            let entry = match definition.register {
                Reg::Report(i) => REG_REPORT + i,
                Reg::Control(i) => REG_CONTROL + i,
                _ => {
                    unreachable!("the validator lets only report and control registers be defined")
                }
            };
            defined_mask |= 1 << entry;
            volatile_mask |= u32::from(definition.volatile) << entry;
            table.initial[usize::from(entry)].store(definition.initial(), Relaxed);
        }
        table.uid.store(program.uid(), Relaxed);
        table
            .num_report
            .store(u32::from(program.num_report()), Relaxed);
        let uses_rates = program.instructions().iter().any(|i| {
            let operands = [i.left, i.right];
            operands.contains(&Reg::RATE_INCOMING) || operands.contains(&Reg::RATE_OUTGOING)
        });
        let uses = if uses_rates { USES_RATES } else { 0 };
        table.uses.store(uses, Relaxed);
        table.volatile_mask.store(volatile_mask, Relaxed);
        table.defined_mask.store(defined_mask, Release);

        let fd = loaded.as_raw_fd();
        self.array
            .update(
                &(index as u32).to_ne_bytes(),
                &fd.to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(Error::bpf("entering a program into the program array"))?;
        self.installed.push(program.uid());
        debug!(
            uid = program.uid(),
            index,
            ccp_instructions = program.instructions().len(),
            bpf_instructions = code.len(),
            "installed a program"
        );
        Ok(())
    }
}
