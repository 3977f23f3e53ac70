//! Programs, flows, and the agent's messages around [`Machine`]: a datapath without a network.
//!
//! A socket id is `generation << 16 | slot + 1`, so that a message for a flow that has ended never
//! reaches the next one in its slot. Both tables are bounded.

use crate::machine::{Machine, Outcome, Primitives};
use crate::message::{InvalidMessage, Message, header};
use crate::program::Program;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

const CREATE: u16 = 0;
const MEASURE: u16 = 1;
const READY: u16 = 5;

const CREATE_LEN: usize = 96;
const READY_LEN: usize = 12;
const NAME_LEN: usize = 64;

/// How much a [`Datapath`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows at a time, at most 65535.
    pub flows: u16,
    /// Installed programs.
    pub programs: usize,
}

impl Default for Limits {
    /// 1024 flows and 63 programs, as many as the BPF datapath has room for.
    fn default() -> Self {
        Self {
            flows: 1024,
            programs: 63,
        }
    }
}

/// What the agent is told of a new flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// The initial congestion window, bytes.
    pub init_cwnd: u32,
    /// The maximum segment size, bytes.
    pub mss: u32,
    /// Local address and port.
    pub local: SocketAddrV4,
    /// Remote address and port.
    pub remote: SocketAddrV4,
    /// The name of the algorithm that the flow asks for, at most 63 bytes; empty for the agent's
    /// default.
    pub algorithm: String,
}

impl Default for FlowInfo {
    /// 10 segments of 1448 bytes, no addresses, the agent's default algorithm.
    fn default() -> Self {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Self {
            init_cwnd: 14_480,
            mss: 1448,
            local: nowhere,
            remote: nowhere,
            algorithm: String::new(),
        }
    }
}

/// What a [`Datapath`] cannot do.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum DatapathError {
    /// A message of the agent is not valid; nothing of it was applied.
    #[error("refused a message of the agent: {0}")]
    Message(#[from] InvalidMessage),
    /// The agent named a program that it has not installed.
    #[error("program {uid} is not installed")]
    UnknownProgram {
        /// The program's id.
        uid: u32,
    },
    /// There is no such flow; it may have ended.
    #[error("there is no flow {sid:#x}")]
    UnknownFlow {
        /// The flow's id.
        sid: u32,
    },
    /// The agent updates a flow to which it has given no program.
    #[error("flow {sid:#x} has no program and takes no updates")]
    NoProgram {
        /// The flow's id.
        sid: u32,
    },
    /// The flow table is full.
    #[error("more than {limit} flows")]
    TooManyFlows {
        /// How many there may be.
        limit: u16,
    },
    /// The program table is full.
    #[error("more than {limit} programs are installed")]
    TooManyPrograms {
        /// How many there may be.
        limit: usize,
    },
    /// The algorithm's name does not fit a CREATE message.
    #[error("the name of the algorithm has {len} bytes, at most 63 are allowed")]
    Name {
        /// Its length.
        len: usize,
    },
}

#[derive(Default)]
struct Slot {
    generation: u16,
    machine: Option<Machine>,
}

/// Installed programs and flows.
pub struct Datapath {
    limits: Limits,
    programs: Vec<Arc<Program>>,
    slots: Vec<Slot>,
    free: Vec<u16>,
}

impl Datapath {
    /// A datapath without programs and flows.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            programs: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The READY message, which makes an agent install its programs; `id` is the datapath's.
    pub fn ready(&self, id: u32) -> [u8; READY_LEN] {
        let mut bytes = [0; READY_LEN];
        bytes[..8].copy_from_slice(&header(READY, READY_LEN, 0));
        bytes[8..].copy_from_slice(&id.to_le_bytes());
        bytes
    }

    /// Begins a flow: gives it an id and appends its CREATE message to `out`.
    ///
    /// # Errors
    /// If the table is full or the algorithm's name is too long.
    pub fn open(&mut self, info: &FlowInfo, out: &mut Vec<u8>) -> Result<u32, DatapathError> {
        let len = info.algorithm.len();
        if len >= NAME_LEN {
            return Err(DatapathError::Name { len });
        }
        let index = self.free_slot()?;
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
        slot.machine = Some(Machine::new());
        let sid = u32::from(slot.generation) << 16 | (u32::from(index) + 1);
        out.extend(header(CREATE, CREATE_LEN, sid));
        out.extend(info.init_cwnd.to_le_bytes());
        out.extend(info.mss.to_le_bytes());
        for end in [info.local, info.remote] {
            out.extend(end.ip().octets());
            out.extend(u32::from(end.port()).to_le_bytes());
        }
        out.extend(info.algorithm.as_bytes());
        out.extend(std::iter::repeat_n(0, NAME_LEN - len));
        Ok(sid)
    }

    /// A slot that was freed, or else one that was never used.
    fn free_slot(&mut self) -> Result<u16, DatapathError> {
        let limit = self.limits.flows;
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        let index = u16::try_from(self.slots.len()).ok();
        let index = index.filter(|index| *index < limit);
        let index = index.ok_or(DatapathError::TooManyFlows { limit })?;
        self.slots.push(Slot::default());
        Ok(index)
    }

    /// Ends a flow and appends its closing message (a report of program 0 without fields) to `out`.
    ///
    /// # Errors
    /// If there is no such flow.
    pub fn close(&mut self, sid: u32, out: &mut Vec<u8>) -> Result<(), DatapathError> {
        let index = self.index_of(sid)?;
        self.slots[usize::from(index)].machine = None;
        self.free.push(index);
        measure(sid, 0, &[], out);
        Ok(())
    }

    /// Takes one message of the agent. Updates act at the flow's next invocation.
    ///
    /// A program whose uid is installed already replaces that one; flows that run it go on with
    /// what they have until they are given it anew.
    ///
    /// # Errors
    /// If the message is not valid, or names a flow or program that is not there; then nothing has
    /// changed.
    pub fn deliver(&mut self, message: &[u8]) -> Result<(), DatapathError> {
        match Message::parse(message)? {
            Message::Install(program) => self.install(program),
            Message::Update { sid, updates } => {
                let updated = self.flow(sid)?.update(&updates);
                updated.map_err(|_| DatapathError::NoProgram { sid })
            }
            Message::ChangeProgram { sid, uid, updates } => {
                let installed = self.programs.iter().find(|p| p.uid() == uid);
                let program = installed.ok_or(DatapathError::UnknownProgram { uid })?;
                let program = program.clone();
                self.flow(sid)?.change_program(program, &updates);
                Ok(())
            }
        }
    }

    fn install(&mut self, program: Program) -> Result<(), DatapathError> {
        let limit = self.limits.programs;
        let program = Arc::new(program);
        let same = |p: &&mut Arc<Program>| p.uid() == program.uid();
        if let Some(installed) = self.programs.iter_mut().find(same) {
            *installed = program;
        } else if self.programs.len() < limit {
            self.programs.push(program);
        } else {
            return Err(DatapathError::TooManyPrograms { limit });
        }
        Ok(())
    }

    /// Runs a flow's program on one ACK (see [`Machine::invoke`]) and appends its report to `out`.
    ///
    /// # Errors
    /// If there is no such flow. That a program fails, or that there is none, is in the outcome.
    pub fn invoke(
        &mut self,
        sid: u32,
        now_us: u64,
        ack: &Primitives,
        cwnd: u64,
        rate: u64,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, DatapathError> {
        let outcome = self.flow(sid)?.invoke(now_us, ack, cwnd, rate);
        if let Some(report) = &outcome.report {
            measure(sid, report.uid, report.fields(), out);
        }
        Ok(outcome)
    }

    /// The machine of a flow, to look at its registers.
    pub fn machine(&self, sid: u32) -> Option<&Machine> {
        let index = self.index_of(sid).ok()?;
        self.slots[usize::from(index)].machine.as_ref()
    }

    fn index_of(&self, sid: u32) -> Result<u16, DatapathError> {
        let unknown = DatapathError::UnknownFlow { sid };
        let index = (sid as u16).checked_sub(1).ok_or(unknown.clone())?;
        match self.slots.get(usize::from(index)) {
            Some(slot) if slot.generation == (sid >> 16) as u16 && slot.machine.is_some() => {
                Ok(index)
            }
            _ => Err(unknown),
        }
    }

    fn flow(&mut self, sid: u32) -> Result<&mut Machine, DatapathError> {
        let index = self.index_of(sid)?;
        let machine = self.slots[usize::from(index)].machine.as_mut();
        machine.ok_or(DatapathError::UnknownFlow { sid })
    }
}

/// At most 16 fields.
fn measure(sid: u32, uid: u32, fields: &[u64], out: &mut Vec<u8>) {
    out.extend(header(MEASURE, 16 + 8 * fields.len(), sid));
    out.extend(uid.to_le_bytes());
    out.extend((fields.len() as u32).to_le_bytes());
    out.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Updates;
    use portus::serialize::Msg;

    fn install(uid: u32) -> Vec<u8> {
        Message::Install(Program::new(uid, vec![], vec![], vec![]).unwrap()).encode()
    }

    fn change(sid: u32, uid: u32) -> Vec<u8> {
        let updates = Updates::default();
        Message::ChangeProgram { sid, uid, updates }.encode()
    }

    fn datapath(flows: u16, programs: usize) -> Datapath {
        Datapath::new(Limits { flows, programs })
    }

    #[test]
    fn portus_reads_what_is_sent() {
        let mut datapath = datapath(1, 1);
        let ready = datapath.ready(3);
        assert!(matches!(Msg::from_buf(&ready), Ok((Msg::Rdy(m), 12)) if m.id == 3));
        let info = FlowInfo {
            local: "10.0.0.1:4000".parse().unwrap(),
            remote: "10.0.0.2:5201".parse().unwrap(),
            algorithm: "pk3c".into(),
            ..FlowInfo::default()
        };
        let mut out = Vec::new();
        let sid = datapath.open(&info, &mut out).unwrap();
        let Ok((Msg::Cr(create), 96)) = Msg::from_buf(&out) else {
            panic!("not a CREATE");
        };
        assert_eq!(
            (create.sid, create.init_cwnd, create.mss),
            (sid, 14_480, 1448)
        );
        assert_eq!((create.src_port, create.dst_port), (4000, 5201));
        assert_eq!(create.src_ip.to_le_bytes(), [10, 0, 0, 1]);
        assert_eq!(create.cong_alg.as_deref(), Some("pk3c"));
        out.clear();
        datapath.close(sid, &mut out).unwrap();
        let Ok((Msg::Ms(close), 16)) = Msg::from_buf(&out) else {
            panic!("not a MEASURE");
        };
        assert_eq!((close.sid, close.num_fields), (sid, 0));
    }

    #[test]
    fn a_slot_is_used_again_under_another_id() {
        let mut datapath = datapath(2, 1);
        let out = &mut Vec::new();
        let open = |d: &mut Datapath, out: &mut Vec<u8>| d.open(&FlowInfo::default(), out);
        let [first, second] = [(); 2].map(|()| open(&mut datapath, out).unwrap());
        assert_eq!(
            open(&mut datapath, out),
            Err(DatapathError::TooManyFlows { limit: 2 })
        );
        datapath.close(first, out).unwrap();
        let third = open(&mut datapath, out).unwrap();
        assert_eq!(third & 0xffff, first & 0xffff);
        datapath.deliver(&install(1)).unwrap();
        for stale in [first, 0, 3, u32::MAX] {
            let unknown = Err(DatapathError::UnknownFlow { sid: stale });
            assert_eq!(datapath.deliver(&change(stale, 1)), unknown);
            assert_eq!(datapath.close(stale, out), unknown);
        }
        for live in [second, third] {
            assert_eq!(datapath.deliver(&change(live, 1)), Ok(()));
        }
    }

    #[test]
    fn the_program_table_is_bounded_and_a_uid_replaces_itself() {
        let mut datapath = datapath(1, 2);
        for uid in [1, 2, 1, 2] {
            datapath.deliver(&install(uid)).unwrap();
        }
        assert_eq!(
            datapath.deliver(&install(3)),
            Err(DatapathError::TooManyPrograms { limit: 2 })
        );
        let sid = datapath
            .open(&FlowInfo::default(), &mut Vec::new())
            .unwrap();
        assert_eq!(
            datapath.deliver(&change(sid, 3)),
            Err(DatapathError::UnknownProgram { uid: 3 })
        );
        let update = Message::Update {
            sid,
            updates: Updates::default(),
        };
        assert_eq!(
            datapath.deliver(&update.encode()),
            Err(DatapathError::NoProgram { sid })
        );
        assert_eq!(datapath.deliver(&change(sid, 2)), Ok(()));
        assert_eq!(datapath.deliver(&update.encode()), Ok(()));
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let info = FlowInfo {
            algorithm: "x".repeat(64),
            ..FlowInfo::default()
        };
        let mut out = Vec::new();
        let refused = datapath(1, 1).open(&info, &mut out);
        assert_eq!(refused, Err(DatapathError::Name { len: 64 }));
        assert!(out.is_empty());
    }
}
