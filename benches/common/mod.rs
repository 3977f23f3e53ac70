//! The traces as inputs, for benches and tests: to controllers directly, and to the whole agent over portus' run loop.

#![allow(dead_code, reason = "each user takes a part of it")]
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use nix::time::{ClockId, clock_gettime};
use pk3c_ccp::controller::{Controller, FlowStart};
use pk3c_ccp::params::Params;
use pk3c_ccp::plan::Command;
use pk3c_ccp::program::RawReport;
use pk3c_ccp::record::{Line, Reader, align, resume};
use pk3c_ccp::units::Bytes;
use portus::RunBuilder;
use portus::ipc::{BackendBuilder, Ipc};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// CPU time of this thread: what other processes do to the machine counts less than with a clock on the wall. Reading
/// it is a system call of a quarter of a microsecond.
pub(crate) fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

/// One line of a trace, without its decision.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Start {
        flow: u64,
        seed: u64,
        start: FlowStart,
    },
    Report {
        flow: u64,
        raw: RawReport,
    },
    End {
        flow: u64,
    },
}

/// A recorded run.
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) params: Params,
    pub(crate) events: Vec<Event>,
}

impl Trace {
    pub(crate) fn reports(&self) -> usize {
        let report = |event: &&Event| matches!(event, Event::Report { .. });
        self.events.iter().filter(report).count()
    }
}

/// All traces but those in which the agent took flows over again: without that, their reports would count as stale.
pub(crate) fn traces() -> Vec<Trace> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    files.sort();
    files.iter().filter_map(|path| read(path)).collect()
}

/// Reports get the numbers of the plans that today's controllers are at, see [`align`].
fn read(path: &Path) -> Option<Trace> {
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let params = Arc::new(reader.params().clone());
    let mut events = Vec::new();
    let mut flows: BTreeMap<u64, (Controller, u32)> = BTreeMap::new();
    while let Some(line) = reader.next_line().unwrap() {
        events.push(match line {
            Line::Start {
                flow,
                seed,
                mss,
                init_cwnd,
                resume: resumed,
                ..
            } => {
                let start = FlowStart {
                    mss: Bytes::new(mss),
                    init_cwnd: Bytes::new(init_cwnd),
                    resume: resume(resumed),
                };
                let (controller, _) = Controller::new(params.clone(), seed, start);
                flows.insert(flow, (controller, 0));
                Event::Start { flow, seed, start }
            }
            Line::Report {
                flow, raw, stale, ..
            } => {
                let (controller, plan) = flows.get_mut(&flow).unwrap();
                let raw = align(RawReport::from_fields(raw), stale, *plan);
                if let Some(Command::Run { plan: next, .. }) = controller.on_report(&raw).command {
                    *plan = next.number;
                }
                Event::Report { flow, raw }
            }
            Line::End { flow, .. } => Event::End { flow },
            _ => return None,
        });
    }
    Some(Trace {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        params: reader.params().clone(),
        events,
    })
}

/// Controllers of a trace's flows, by number, before their first reports; and what they get.
pub(crate) fn controllers(trace: &Trace) -> (Vec<Controller>, Vec<(usize, RawReport)>) {
    let params = Arc::new(trace.params.clone());
    let mut controllers = Vec::new();
    let mut places = BTreeMap::new();
    let mut reports = Vec::new();
    for event in &trace.events {
        match *event {
            Event::Start { flow, seed, start } => {
                places.insert(flow, controllers.len());
                controllers.push(Controller::new(params.clone(), seed, start).0);
            }
            Event::Report { flow, raw } => reports.push((places[&flow], raw)),
            Event::End { .. } => {}
        }
    }
    (controllers, reports)
}

/// A datapath that sends prepared messages and takes no notice of the answers.
pub(crate) struct Script {
    messages: Arc<[Vec<u8>]>,
    next: AtomicUsize,
    program: AtomicU32,
    running: Arc<AtomicBool>,
}

const CREATE: u16 = 0;
const MEASURE: u16 = 1;
const INSTALL: [u8; 2] = 2_u16.to_le_bytes();
/// Where a report has its program's number.
const PROGRAM: std::ops::Range<usize> = 8..12;

fn message(kind: u16, flow: u64, body: &[u8]) -> Vec<u8> {
    let length = 8 + body.len() as u16;
    let head = [kind.to_le_bytes(), length.to_le_bytes()].concat();
    [&head, &(flow as u32).to_le_bytes()[..], body].concat()
}

/// A trace as CCP messages.
pub(crate) fn messages(events: &[Event]) -> Arc<[Vec<u8>]> {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let encode = |event: &Event| match *event {
        Event::Start { flow, start, .. } => {
            let (cwnd, mss) = (start.init_cwnd.to_wire(), start.mss.to_wire());
            // Each to an address of its own: here nobody hears of others.
            let ends = words(&[cwnd, mss, 7, 4000, flow as u32, 80]);
            message(CREATE, flow, &[&ends[..], &[0; 64]].concat())
        }
        Event::Report { flow, raw } => {
            let fields: Vec<_> = raw
                .fields()
                .iter()
                .flat_map(|field| field.to_le_bytes())
                .collect();
            message(MEASURE, flow, &[words(&[0, 16]), fields].concat())
        }
        Event::End { flow } => message(MEASURE, flow, &words(&[0, 0])),
    };
    events.iter().map(encode).collect()
}

impl Ipc for Script {
    type Addr = ();

    fn name() -> String {
        "script".to_owned()
    }

    fn send(&self, bytes: &[u8], (): &()) -> portus::Result<()> {
        if bytes[..2] == INSTALL {
            let program = u32::from_le_bytes(bytes[PROGRAM].try_into().unwrap());
            self.program.store(program, Ordering::Relaxed);
        }
        Ok(())
    }

    fn recv(&self, buffer: &mut [u8]) -> portus::Result<(usize, ())> {
        let Some(message) = self.messages.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
            self.running.store(false, Ordering::SeqCst);
            return Ok((0, ()));
        };
        buffer[..message.len()].copy_from_slice(message);
        if message[..2] == MEASURE.to_le_bytes() {
            let program = self.program.load(Ordering::Relaxed);
            buffer[PROGRAM].copy_from_slice(&program.to_le_bytes());
        }
        Ok((message.len(), ()))
    }

    fn close(&mut self) -> portus::Result<()> {
        Ok(())
    }
}

/// Runs an algorithm in portus' loop, in this thread, until the messages are at their end.
pub(crate) fn run<A: portus::CongAlg<Script> + 'static>(algorithm: A, messages: &Arc<[Vec<u8>]>) {
    let running = Arc::new(AtomicBool::new(true));
    let sock = Script {
        messages: messages.clone(),
        next: AtomicUsize::new(0),
        program: AtomicU32::new(0),
        running: running.clone(),
    };
    RunBuilder::new(BackendBuilder { sock })
        .default_alg(algorithm)
        .with_stop_handle(running)
        .run()
        .unwrap();
}
