//! A flow in libccp's own machine, observed from outside.
//!
//! libccp's clock is the real one. So what runs here is the program with Micros and Ack.now put
//! into registers that the test sets ([`without_clock`]). Registers are read by changing to
//! programs that report them.

use super::edges::install;
use super::generate::{SPARE_CONTROL, SPARE_PRIMITIVE};
use ccp_vm::*;
use libccp::{CongestionOps, Connection, Datapath, DatapathBuilder, DatapathOps, LibccpError};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

struct Outbox(Sent);

impl DatapathOps for Outbox {
    fn send_msg(&mut self, message: &[u8]) {
        self.0.lock().unwrap().push(message.to_vec());
    }
}

/// What the machine has asked for since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) cwnd: Option<u32>,
    pub(crate) rate: Option<u32>,
}

struct Socket(Arc<Mutex<Settings>>);

impl CongestionOps for Socket {
    fn set_cwnd(&mut self, cwnd: u32) {
        self.0.lock().unwrap().cwnd = Some(cwnd);
    }

    fn set_rate_abs(&mut self, rate: u32) {
        self.0.lock().unwrap().rate = Some(rate);
    }
}

struct Open {
    connection: Connection<'static, Socket>,
    settings: Arc<Mutex<Settings>>,
    sid: u32,
}

/// libccp with its tables. There is one for all tests: its flow table comes from malloc and is
/// never cleared, so it only works on memory that is 0 by chance, which is likely once.
pub(crate) struct Libccp {
    datapath: &'static Datapath,
    sent: Sent,
    /// Flows that no test uses now. To close one and open another in its slot would not do: for
    /// 100 ms libccp takes the CREATE for a repeated one, sends nothing and runs no program.
    idle: Mutex<Vec<Open>>,
}

static LIBCCP: LazyLock<Mutex<Libccp>> = LazyLock::new(|| {
    let sent = Sent::default();
    let builder = DatapathBuilder::default().with_ops(Outbox(sent.clone()));
    let datapath = Box::leak(Box::new(builder.init().unwrap()));
    let idle = Mutex::default();
    Mutex::new(Libccp {
        datapath,
        sent,
        idle,
    })
});

/// libccp, for this test alone.
pub(crate) fn libccp() -> MutexGuard<'static, Libccp> {
    LIBCCP.lock().unwrap_or_else(|e| e.into_inner())
}

impl Libccp {
    pub(crate) fn deliver(&self, message: &[u8]) -> Result<(), LibccpError> {
        self.datapath.recv_msg(&mut message.to_vec())
    }

    /// Installs a program as the only one: libccp clears its table when it sees uid 1.
    pub(crate) fn install_alone(&self, program: &Program) {
        assert_eq!(program.uid(), 1);
        let install = Message::Install(program.clone()).encode();
        self.deliver(&install).unwrap();
    }

    /// A flow that has never had a program.
    pub(crate) fn open_new(&self) -> Flow<'_> {
        let settings = Arc::new(Mutex::new(Settings::default()));
        let socket = Socket(settings.clone());
        let connection = Connection::start(self.datapath, socket, libccp::FlowInfo::default());
        let connection = connection.expect("libccp's flow table came in memory that is not 0");
        let create = self.take_sent().pop().unwrap();
        let sid = u32::from_le_bytes(create[4..8].try_into().unwrap());
        self.flow(Open {
            connection,
            settings,
            sid,
        })
    }

    /// A flow whose registers are all 0. Installs a program with uid 9.
    pub(crate) fn open(&self) -> Flow<'_> {
        let idle = self.idle.lock().unwrap().pop();
        let mut flow = idle.map_or_else(|| self.open_new(), |open| self.flow(open));
        let registers = [
            (5, NUM_REPORT),
            (0, NUM_CONTROL),
            (3, NUM_LOCAL),
            (7, NUM_TMP),
        ];
        let registers = registers
            .into_iter()
            .flat_map(|(kind, count)| (0..count).map(move |i| (kind, u32::from(i))));
        let clear = copies(9, false, registers.map(|to| (to, (1, 0))));
        self.deliver(&clear).unwrap();
        flow.change_program(9, Updates::default());
        flow.invoke(&Primitives::default(), 0, 0).unwrap();
        self.take_sent();
        flow.take_settings();
        flow
    }

    /// Closes a flow and opens the next one in its slot; what libccp has sent. The slot stays taken.
    pub(crate) fn reopen(&self, mut flow: Flow<'_>) -> Vec<Vec<u8>> {
        self.take_sent();
        drop(flow.open.take());
        let socket = Socket(Arc::default());
        let next = Connection::start(self.datapath, socket, libccp::FlowInfo::default()).unwrap();
        std::mem::forget(next);
        self.take_sent()
    }

    fn flow(&self, open: Open) -> Flow<'_> {
        Flow {
            libccp: self,
            sid: open.sid,
            open: Some(open),
        }
    }

    pub(crate) fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

pub(crate) struct Flow<'a> {
    libccp: &'a Libccp,
    open: Option<Open>,
    pub(crate) sid: u32,
}

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        let idle = self.libccp.idle.lock();
        idle.unwrap_or_else(|e| e.into_inner())
            .extend(self.open.take());
    }
}

impl Flow<'_> {
    pub(crate) fn change_program(&self, uid: u32, updates: Updates) {
        let sid = self.sid;
        let message = Message::ChangeProgram { sid, uid, updates };
        self.libccp.deliver(&message.encode()).unwrap();
    }

    pub(crate) fn update(&self, updates: Updates) {
        let sid = self.sid;
        let message = Message::Update { sid, updates };
        self.libccp.deliver(&message.encode()).unwrap();
    }

    pub(crate) fn invoke(
        &mut self,
        ack: &Primitives,
        cwnd: u64,
        rate: u64,
    ) -> Result<(), LibccpError> {
        let narrow = |value: u64| u32::try_from(value).unwrap();
        let primitives = libccp::Primitives::default()
            .with_bytes_acked(narrow(ack.bytes_acked))
            .with_packets_acked(narrow(ack.packets_acked))
            .with_bytes_misordered(narrow(ack.bytes_misordered))
            .with_packets_misordered(narrow(ack.packets_misordered))
            .with_ecn_bytes(narrow(ack.ecn_bytes))
            .with_ecn_packets(narrow(ack.ecn_packets))
            .with_lost_pkts_sample(narrow(ack.lost_pkts_sample))
            .with_was_timeout(ack.was_timeout)
            .with_rtt_sample_us(ack.rtt_sample_us)
            .with_rate_outgoing(ack.rate_outgoing)
            .with_rate_incoming(ack.rate_incoming)
            .with_bytes_in_flight(narrow(ack.bytes_in_flight))
            .with_packets_in_flight(narrow(ack.packets_in_flight))
            .with_bytes_pending(narrow(ack.bytes_pending))
            .with_snd_cwnd(narrow(cwnd))
            .with_snd_rate(rate);
        let connection = &mut self.open.as_mut().unwrap().connection;
        connection.load_primitives(primitives);
        connection.invoke()
    }

    /// What was set since the last call.
    pub(crate) fn take_settings(&self) -> Settings {
        let settings = &self.open.as_ref().unwrap().settings;
        std::mem::take(&mut settings.lock().unwrap())
    }

    /// The fields of the reports since the last call, each with its program's uid.
    pub(crate) fn take_reports(&self) -> Vec<(u32, Vec<u64>)> {
        let sent = self.libccp.take_sent();
        sent.iter().map(|message| decode_report(message)).collect()
    }

    /// All report, control, local and tmp registers. The flow's program is gone afterwards.
    pub(crate) fn registers(&mut self) -> Vec<(Reg, u64)> {
        // libccp has control registers beyond ours, where the report registers are put aside.
        const ASIDE: u32 = 40;
        let reports = || (0..u32::from(NUM_REPORT)).map(|i| (5, i));
        let aside = || (ASIDE..ASIDE + u32::from(NUM_REPORT)).map(|i| (0, i));
        let controls = || (0..u32::from(NUM_CONTROL)).map(|i| (0, i));
        let locals = (0..u32::from(NUM_LOCAL)).map(|i| (3, i));
        let others = locals.chain((0..u32::from(NUM_TMP)).map(|i| (7, i)));
        let save = copies(2, false, aside().zip(reports()));
        let show = [
            copies(3, true, reports().zip(aside())),
            copies(4, true, reports().zip(controls())),
            copies(5, true, reports().zip(others)),
        ];
        for program in std::iter::once(&save).chain(&show) {
            self.libccp.deliver(program).unwrap();
        }
        let mut values = Vec::new();
        for uid in 2..=5 {
            self.take_reports();
            self.change_program(uid, Updates::default());
            self.invoke(&Primitives::default(), 1, 1).unwrap();
            values.extend(self.take_reports().into_iter().map(|(_, fields)| fields));
        }
        let [reports, controls, others] = values.try_into().unwrap();
        let report = reports.into_iter().enumerate();
        let control = controls.into_iter().enumerate();
        let local = (0..NUM_LOCAL).map(Reg::Local);
        let other = local.chain((0..NUM_TMP).map(Reg::Tmp)).zip(others);
        report
            .map(|(i, v)| (Reg::Report(i as u8), v))
            .chain(control.map(|(i, v)| (Reg::Control(i as u8), v)))
            .chain(other)
            .collect()
    }
}

fn decode_report(message: &[u8]) -> (u32, Vec<u64>) {
    let Ok((portus::serialize::Msg::Ms(report), len)) = portus::serialize::Msg::from_buf(message)
    else {
        panic!("not a report: {message:?}");
    };
    assert_eq!(
        (len, report.fields.len()),
        (message.len(), usize::from(report.num_fields))
    );
    (report.program_uid, report.fields)
}

/// The INSTALL of a program that copies registers, given as on the wire, and may report.
fn copies(uid: u32, report: bool, pairs: impl Iterator<Item = ((u8, u32), (u8, u32))>) -> Vec<u8> {
    let item = |op: u8, registers: [(u8, u32); 3]| {
        let mut bytes = vec![op];
        for (kind, value) in registers {
            bytes.push(kind);
            bytes.extend(value.to_le_bytes());
        }
        bytes
    };
    let (define, bind, one) = (2, 1, (1, 1));
    let mut items: Vec<_> = (0..if report { u32::from(NUM_REPORT) } else { 0 })
        .map(|i| item(define, [(5, i), (5, i), (1, 0)]))
        .collect();
    let definitions = items.len() as u32;
    items.push(item(bind, [(2, 0), (2, 0), one]));
    items.extend(pairs.map(|(to, from)| item(bind, [to, to, from])));
    if report {
        items.push(item(bind, [(2, 2), (2, 2), one]));
    }
    let body = items.len() as u32 - definitions - 1;
    let header = [
        uid,
        1,
        items.len() as u32,
        definitions,
        1,
        definitions + 1,
        body,
    ];
    install(
        header
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .chain(items.concat())
            .collect(),
    )
}

/// The program with registers that the test sets in place of the clock.
pub(crate) fn without_clock(program: &Program) -> Program {
    let replace = |reg| match reg {
        Reg::NOW => Reg::Primitive(SPARE_PRIMITIVE),
        Reg::MICROS => Reg::Control(SPARE_CONTROL),
        other => other,
    };
    let instructions = program.instructions().iter().map(|i| Instruction {
        op: i.op,
        ret: replace(i.ret),
        left: replace(i.left),
        right: replace(i.right),
    });
    Program::new(
        program.uid(),
        program.definitions().to_vec(),
        program.events().to_vec(),
        instructions.collect(),
    )
    .unwrap()
}
