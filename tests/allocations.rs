//! What the agent allocates: nothing per report, and little per flow.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../benches/common/mod.rs"]
mod common;

use allocation_counter::measure;
use common::{Event, Script, Trace};
use pk3c_ccp::agent::{Config, Pk3c, Pk3cFlow};
use pk3c_ccp::plan::Command;
use pk3c_ccp::program::{self, REPORT_FIELDS};
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report};
use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::sync::{Arc, Mutex};

/// The seed that the traces were recorded with.
const SEED: u64 = 1;
/// A flow may take so much of the agent's memory: a KiB for its controller, the rest for its connection and policy, and
/// for what is known of its address.
const MAX_FLOW_BYTES: u64 = 1664;

#[test]
fn a_controller_allocates_nothing() {
    for trace in common::traces() {
        let (mut controllers, reports) = common::controllers(&trace);
        let counted = measure(|| {
            for (flow, raw) in &reports {
                black_box(controllers[*flow].on_report(raw));
            }
        });
        assert!(reports.len() > 10);
        assert_eq!(
            counted.count_total,
            0,
            "{}: {} reports",
            trace.name,
            reports.len()
        );
    }
}

/// Does with portus what the agent does, and nothing else: reads all fields, sends the commands that it was given.
struct Parrot(Arc<Mutex<VecDeque<Option<Command>>>>);

struct ParrotFlow {
    commands: Arc<Mutex<VecDeque<Option<Command>>>>,
    datapath: Datapath<Script>,
    scope: Scope,
}

impl Parrot {
    /// The commands that the algorithm gives for a trace.
    fn of(trace: &Trace) -> Self {
        let (mut controllers, reports) = common::controllers(trace);
        let answer = |(flow, raw): &(usize, _)| controllers[*flow].on_report(raw).command;
        Self(Arc::new(Mutex::new(reports.iter().map(answer).collect())))
    }
}

impl CongAlg<Script> for Parrot {
    type Flow = ParrotFlow;

    fn name() -> &'static str {
        program::NAME
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([(program::NAME, program::text())])
    }

    fn new_flow(&self, mut datapath: Datapath<Script>, _: DatapathInfo) -> ParrotFlow {
        let scope = datapath.set_program(program::NAME, None).unwrap();
        ParrotFlow {
            commands: self.0.clone(),
            datapath,
            scope,
        }
    }
}

impl Flow for ParrotFlow {
    fn on_report(&mut self, _: u32, report: Report) {
        for name in REPORT_FIELDS {
            black_box(report.get_field(name, &self.scope).unwrap());
        }
        if let Some(command) = self.commands.lock().unwrap().pop_front().unwrap() {
            command
                .fields(|fields| self.datapath.update_field(&self.scope, fields))
                .unwrap();
        }
    }

    fn close(&mut self) {}
}

fn config(trace: &Trace) -> Config {
    Config {
        params: trace.params.clone(),
        seed: SEED,
        ..Config::default()
    }
}

/// Whatever is allocated for a report between its arrival and the answer is portus' own.
#[test]
fn the_agent_allocates_nothing_per_report_beside_portus() {
    let mut compared = 0;
    for trace in common::traces() {
        // Flows end with the run, so that both halves have the same ones.
        let events: Vec<_> = trace
            .events
            .iter()
            .filter(|event| !matches!(event, Event::End { .. }))
            .copied()
            .collect();
        let Some(half) = events
            .iter()
            .rposition(|event| matches!(event, Event::Start { .. }))
            .map(|last| (last + 1 + events.len()) / 2)
        else {
            continue;
        };
        let (first, whole) = (common::messages(&events[..half]), common::messages(&events));
        let agent =
            |messages| measure(|| common::run(Pk3c::new(config(&trace)), messages)).count_total;
        let parrot = |messages| {
            let parrot = Parrot::of(&trace);
            measure(|| common::run(parrot, messages)).count_total
        };
        let (ours, theirs) = (
            agent(&whole) - agent(&first),
            parrot(&whole) - parrot(&first),
        );
        let reports = events.len() - half;
        if reports < 50 {
            continue;
        }
        println!(
            "{:14} {reports} reports: {ours} allocations, {theirs} of them portus'",
            trace.name
        );
        assert_eq!(ours, theirs, "{}", trace.name);
        compared += 1;
    }
    assert!(compared >= 8, "{compared} traces");
}

/// So many flows, of which each has reported fifty times.
fn flows(count: u64) -> Arc<[Vec<u8>]> {
    let clean = common::traces()
        .into_iter()
        .find(|trace| trace.name == "clean")
        .unwrap();
    let mut starts = clean.events.iter().filter_map(|event| match *event {
        Event::Start { start, .. } => Some(start),
        _ => None,
    });
    let start = starts.next().unwrap();
    let reports = clean.events.iter().filter_map(|event| match *event {
        Event::Report { flow: 1, raw } => Some(raw),
        _ => None,
    });
    let mut events: Vec<_> = (1..=count)
        .map(|flow| Event::Start {
            flow,
            seed: 0,
            start,
        })
        .collect();
    for raw in reports.take(50) {
        events.extend((1..=count).map(|flow| Event::Report { flow, raw }));
    }
    common::messages(&events)
}

/// Two numbers of flows between which portus' table of flows, whose size is a power of two, does not grow.
const FEW: u64 = 900;
const MANY: u64 = 1700;

/// Beside the table, every flow takes the same; in the table, an entry that begins with portus' own part.
#[test]
fn a_flow_takes_little_of_the_agent() {
    let peak = |count| {
        let messages = flows(count);
        let agent = Pk3c::new(Config::default());
        measure(|| common::run(agent, &messages)).bytes_max
    };
    let beside = (peak(MANY) - peak(FEW)).div_ceil(MANY - FEW);
    let entry = size_of::<Pk3cFlow<Script>>() - size_of::<Datapath<Script>>();
    println!("{beside} + {entry} bytes per flow");
    assert!(
        beside + entry as u64 <= MAX_FLOW_BYTES,
        "{beside} + {entry}"
    );
}
