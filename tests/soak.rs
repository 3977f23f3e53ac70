//! A day in virtual time: memory stays as it is, and no clock or counter wraps.
//!
//! ```text
//! make soak
//! ```
//!
//! Some flows live all day in one simulation, endless ones and streams with pauses. Beside it, hour by hour, downloads
//! come and go in a simulation of their own, whose clock goes on where the last one's ended. What a simulation keeps of
//! an ended flow are its results, so it is dropped at the hour's end, and nothing of it may stay.
//!
//! `a_day_of_flows` is left out of `cargo test`; `hours_of_flows` is its short form.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathsim::{
    Ack, CcpFlow, Controller, FlowSpec, MILLISECOND, MSS, PathSpec, Results, SECOND, Scenario,
    Sending, Simulation, Source,
};
use pk3c_ccp::ensemble::Ensemble;
use pk3c_ccp::params::Params;
use pk3c_ccp::simulate::{Pk3cAgent, Simulator};
use pk3c_ccp::units::Micros;
use std::cell::RefCell;
use std::fs;
use std::rc::Rc;
use std::sync::Arc;

const HOUR_S: u64 = 3600;
const RATE_BPS: u64 = 1_000_000;
const RTT_NS: u64 = 60 * MILLISECOND;
/// Endless flows, and streams: a chunk from time to time.
const ENDLESS: u64 = 2;
const STREAMS: u64 = 4;
const CHUNK_BYTES: u64 = 50_000;
const CHUNK_EVERY_S: u64 = 10;
/// From the start of one download to that of the next.
const DOWNLOAD_EVERY_S: u64 = 60;
const DOWNLOAD_BYTES: u64 = 300_000;
/// By so much resident memory may vary after the first hour: what the allocator keeps.
const SLACK_KB: u64 = 1024;

/// What all flows did in an hour.
#[derive(Clone, Copy, Debug, Default)]
struct Hour {
    delivered_bytes: u64,
    /// Invocations of the program that did not end, and reports lost.
    failures: u64,
}

type Hours = Rc<RefCell<Vec<Hour>>>;

/// A flow that books what is delivered, by the hour.
struct Booked {
    flow: CcpFlow<Pk3cAgent>,
    hours: Hours,
    failures: u64,
}

impl Controller for Booked {
    fn sending(&self) -> Sending {
        self.flow.sending()
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.flow.on_ack(ack);
        let (failed, dropped) = self.flow.failures();
        let hour = (ack.now_ns / SECOND / HOUR_S) as usize;
        let hour = &mut self.hours.borrow_mut()[hour];
        hour.delivered_bytes += ack.delivered * MSS;
        hour.failures += failed + dropped - self.failures;
        self.failures = failed + dropped;
    }

    fn on_loss(&mut self, now_ns: u64, in_flight: u64) {
        self.flow.on_loss(now_ns, in_flight);
    }

    fn on_spurious_loss(&mut self) {
        self.flow.on_spurious_loss();
    }

    fn on_timeout(&mut self, now_ns: u64) {
        self.flow.on_timeout(now_ns);
    }

    fn wake_at_ns(&self) -> Option<u64> {
        self.flow.wake_at_ns()
    }

    fn wake(&mut self, now_ns: u64) {
        self.flow.wake(now_ns);
    }
}

/// Resident memory of this process, kB.
fn resident_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Simulates flows from the begin of one hour to that of another.
fn simulate(
    flows: Vec<FlowSpec>,
    end_hour: u64,
    hours: &Hours,
    mut every_hour: impl FnMut(),
) -> Results {
    let simulator = Simulator::new().unwrap();
    let params = Arc::new(Params::default());
    let ensemble = Ensemble::default();
    let controllers = flows.iter().zip(1..).map(|(spec, seed)| {
        let start = Micros::new(spec.start_ns / 1000);
        Box::new(Booked {
            flow: simulator.flow(params.clone(), seed, start, Micros::new(100), &ensemble),
            hours: hours.clone(),
            failures: 0,
        }) as Box<dyn Controller>
    });
    let controllers = controllers.collect();
    let scenario = Scenario {
        path: PathSpec::clean(RATE_BPS, RTT_NS),
        flows,
        duration_ns: end_hour * HOUR_S * SECOND,
        seed: end_hour,
        series: false,
    };
    let simulation = Simulation::new(scenario, controllers).unwrap();
    let mut last = 0;
    simulation.run_with_progress(|second| {
        if second / HOUR_S > last {
            last = second / HOUR_S;
            every_hour();
        }
    })
}

fn no_hours(count: u64) -> Hours {
    Rc::new(RefCell::new(vec![Hour::default(); count as usize]))
}

/// The path was used in every hour, and the program never failed.
fn check_hours(what: &str, hours: &Hours) {
    let possible = RATE_BPS as f64 / 8.0 * HOUR_S as f64 * MSS as f64 / 1500.0;
    let hours = hours.borrow();
    let used = hours.iter().map(|hour| {
        assert_eq!(hour.failures, 0, "{what}: {hour:?}");
        hour.delivered_bytes as f64 / possible
    });
    let used: Vec<_> = used.collect();
    let least = used.iter().copied().fold(f64::INFINITY, f64::min);
    let most = used.iter().copied().fold(0.0, f64::max);
    println!("{what}: use of each hour {least:.3} to {most:.3}");
    assert!(least > 0.9 && most < 1.001, "{what}: {used:.3?}");
}

fn check_memory(what: &str, memory_kb: &[u64]) {
    let first = memory_kb[0];
    let most = memory_kb.iter().copied().fold(0, u64::max);
    println!("{what}: {first} kB after an hour, at most {most} kB later");
    assert!(most <= first + SLACK_KB, "{what}: {memory_kb:?} kB");
}

/// Flows that live all the time.
fn steady(count: u64) {
    let flow = |number: u64| FlowSpec {
        start_ns: number * SECOND,
        source: if number < ENDLESS {
            Source::Endless
        } else {
            Source::Chunks {
                bytes: CHUNK_BYTES,
                period_ns: CHUNK_EVERY_S * SECOND,
            }
        },
        ..FlowSpec::new("pk3c")
    };
    let flows = (0..ENDLESS + STREAMS).map(flow).collect();
    let hours = no_hours(count);
    let mut memory_kb = Vec::new();
    let results = simulate(flows, count, &hours, || memory_kb.push(resident_kb()));
    memory_kb.push(resident_kb());
    println!("flows that live all the time: {} events", results.events);
    check_hours("flows that live all the time", &hours);
    check_memory("flows that live all the time", &memory_kb);
}

/// Flows that come and go.
fn churn(count: u64) {
    let hours = no_hours(count);
    let mut memory_kb = Vec::new();
    let (mut downloads, mut slowest) = (0, 0.0_f64);
    for hour in 0..count {
        let begin_s = hour * HOUR_S;
        let endless = FlowSpec {
            start_ns: begin_s * SECOND,
            ..FlowSpec::new("pk3c")
        };
        let mut flows = vec![endless];
        // The last one has the time that each has until the next.
        let starts = (DOWNLOAD_EVERY_S..HOUR_S).step_by(DOWNLOAD_EVERY_S as usize);
        flows.extend(starts.map(|at_s| FlowSpec {
            start_ns: (begin_s + at_s) * SECOND,
            source: Source::Bytes(DOWNLOAD_BYTES),
            ..FlowSpec::new("pk3c")
        }));
        let results = simulate(flows, hour + 1, &hours, || ());
        for download in &results.flows[1..] {
            downloads += 1;
            slowest = slowest.max(download.completion_s.unwrap_or(f64::INFINITY));
        }
        drop(results);
        memory_kb.push(resident_kb());
    }
    println!("{downloads} downloads came and went, the slowest in {slowest:.1} s");
    assert!(slowest < DOWNLOAD_EVERY_S as f64, "{slowest} s");
    check_hours("flows that come and go", &hours);
    check_memory("flows that come and go", &memory_kb);
}

/// Beyond 2^32 us, 71.6 minutes.
#[test]
fn hours_of_flows() {
    steady(2);
    churn(2);
}

#[test]
#[ignore = "half a minute of CPU; make soak runs it"]
fn a_day_of_flows() {
    steady(24);
    churn(24);
}
