//! Receivers that lie, in the simulator: which bounds hold, beside what Cubic does for the same receiver.
//!
//! A flow to a liar shares 50 Mbit/s, 40 ms and one bandwidth-delay product of queue with an honest Cubic flow. What
//! the honest flow keeps tells the harm. `cargo test --release --test hostile_receiver -- --nocapture` shows the
//! figures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathsim::{
    AckPolicy, Controller, Cubic, FlowSpec, Lie, MILLISECOND, MSS, PathSpec, Results, SECOND,
    Scenario, Simulation,
};
use pk3c_ccp::ensemble::Ensemble;
use pk3c_ccp::params::Params;
use pk3c_ccp::simulate::{DecisionLog, Simulator};
use pk3c_ccp::units::{Micros, Rate};
use std::sync::Arc;

const RATE_BPS: u64 = 50_000_000;
const RTT_NS: u64 = 40 * MILLISECOND;
const RUN_S: u64 = 20;
const SEEDS: [u64; 6] = [1, 2, 3, 4, 5, 6];
/// In flight at most, whatever is acknowledged, bytes: a socket's buffer. Cubic towards a receiver that hides all
/// losses has no other limit.
const BUFFER: u64 = 1 << 20;
/// What the flow to the liar may send at most, Mbit/s: twice the path.
const MAX_MBPS: f64 = 100.0;
/// What the honest flow keeps of what it has beside another honest Cubic flow, or beside Cubic's to the same liar,
/// whichever is less.
const KEPT: f64 = 0.9;
/// The same where RTTs sway by 200 ms: a flow that has started fast competes for what it had then for seconds, since no
/// queue of its own is seen.
const KEPT_SWAYING: f64 = 0.8;
/// Bursts and the retransmissions of timeouts are not paced.
const SLACK: f64 = 1.05;

/// A receiver by its name.
#[derive(Clone, Copy)]
struct Hostile {
    name: &'static str,
    lie: Option<Lie>,
    acks: AckPolicy,
    receive_window: u64,
    kept: f64,
}

fn hostile(name: &'static str, lie: Lie) -> Hostile {
    Hostile {
        name,
        lie: Some(lie),
        acks: AckPolicy::default(),
        receive_window: BUFFER,
        kept: KEPT,
    }
}

fn all() -> Vec<Hostile> {
    let honest = Hostile {
        name: "honest",
        lie: None,
        acks: AckPolicy::default(),
        receive_window: BUFFER,
        kept: KEPT,
    };
    let bundled = AckPolicy {
        every: 64,
        ..AckPolicy::default()
    };
    vec![
        honest,
        Hostile {
            name: "one ACK for 64 packets",
            acks: bundled,
            ..honest
        },
        Hostile {
            name: "a window of two segments",
            receive_window: 2 * MSS,
            ..honest
        },
        hostile("hides losses", Lie::Ahead(0)),
        hostile("acknowledges 20 packets ahead", Lie::Ahead(20)),
        hostile("acknowledges 100 packets ahead", Lie::Ahead(100)),
        hostile("denies losses", Lie::DenyLosses),
        hostile("invents 1 % loss", Lie::InventLosses(100)),
        hostile("invents 10 % loss", Lie::InventLosses(10)),
        hostile("invents 50 % loss", Lie::InventLosses(2)),
        hostile(
            "sways the RTT by 40 ms in 1 s",
            Lie::SwayRtt(RTT_NS, SECOND),
        ),
        Hostile {
            kept: KEPT_SWAYING,
            ..hostile(
                "sways the RTT by 200 ms in 10 s",
                Lie::SwayRtt(5 * RTT_NS, 10 * SECOND),
            )
        },
    ]
}

/// What a run showed, means over the seeds.
#[derive(Default)]
struct Shown {
    /// Sent by the flow to the liar, Mbit/s of payload.
    sent_mbps: f64,
    /// Goodput of the honest Cubic flow.
    honest_mbps: f64,
    /// Lost part of that flow's packets.
    honest_loss: f64,
}

/// `scheme` drives the flow to the receiver, and Cubic the honest flow beside it.
fn run(receiver: &Hostile, scheme: &str) -> Shown {
    let simulator = Simulator::new().unwrap();
    let mut shown = Shown::default();
    for seed in SEEDS {
        let spec = FlowSpec {
            lie: receiver.lie,
            acks: receiver.acks,
            receive_window: Some(receiver.receive_window),
            ..FlowSpec::new(scheme)
        };
        let scenario = Scenario {
            path: PathSpec::clean(RATE_BPS, RTT_NS),
            flows: vec![spec, FlowSpec::new("cubic")],
            duration_ns: RUN_S * SECOND,
            seed,
            series: false,
        };
        let log = DecisionLog::new(100_000);
        let params = Params {
            max_rate: Rate::from_mbit(MAX_MBPS),
            ..Params::default()
        };
        let lied_to: Box<dyn Controller> = if scheme == "cubic" {
            Box::new(Cubic::default())
        } else {
            let latency = Micros::new(100);
            let params = Arc::new(params.clone());
            let log = Some(log.clone());
            let alone = Ensemble::default();
            Box::new(simulator.logged_flow(params, seed, Micros::ZERO, latency, &alone, log))
        };
        let controllers = vec![lied_to, Box::new(Cubic::default())];
        let results = Simulation::new(scenario, controllers).unwrap().run();
        if scheme == "pk3c" {
            check_decisions(receiver.name, &params, &log);
        }
        shown.add(&results);
    }
    shown
}

impl Shown {
    fn add(&mut self, results: &Results) {
        let [lied_to, honest] = &results.flows[..] else {
            panic!("two flows");
        };
        let runs = SEEDS.len() as f64;
        let seconds = RUN_S as f64;
        self.sent_mbps += (lied_to.packets_sent * MSS) as f64 * 8e-6 / seconds / runs;
        self.honest_mbps += honest.goodput_mbps / runs;
        self.honest_loss += honest.loss / runs;
    }
}

/// Whatever the receiver says, rates are within the limits, and there is always a window.
fn check_decisions(name: &str, params: &Params, log: &DecisionLog) {
    let (decisions, beyond) = log.take();
    assert_eq!(beyond, 0, "{name}: more decisions than the log holds");
    assert!(!decisions.is_empty(), "{name}: no decisions");
    for decided in decisions {
        let rate = decided.rate;
        let within = params.min_rate <= rate && rate <= params.max_rate;
        assert!(within, "{name}: {decided:?}");
        assert!(decided.cwnd.get() >= 4 * MSS, "{name}: {decided:?}");
    }
}

#[test]
fn no_lie_draws_more_than_the_highest_rate_or_takes_more_from_others_than_cubic_does() {
    println!(
        "| receiver | pk3c sends | Cubic sends | honest beside pk3c | honest beside Cubic | its loss | its loss |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    let mut beside_honest = None;
    for receiver in all() {
        let [pk3c, cubic] = ["pk3c", "cubic"].map(|scheme| run(&receiver, scheme));
        let name = receiver.name;
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} % | {:.2} % |",
            pk3c.sent_mbps,
            cubic.sent_mbps,
            pk3c.honest_mbps,
            cubic.honest_mbps,
            pk3c.honest_loss * 100.0,
            cubic.honest_loss * 100.0
        );
        if pk3c.sent_mbps > MAX_MBPS * SLACK {
            wrong.push(format!("{name}: sent {:.1} Mbit/s", pk3c.sent_mbps));
        }
        // The first one is honest.
        let beside_honest = *beside_honest.get_or_insert(cubic.honest_mbps);
        let least = receiver.kept * cubic.honest_mbps.min(beside_honest);
        if pk3c.honest_mbps < least {
            let kept = pk3c.honest_mbps;
            wrong.push(format!(
                "{name}: the honest flow kept {kept:.1} of {least:.1} Mbit/s"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
