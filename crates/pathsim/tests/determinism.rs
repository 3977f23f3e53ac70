//! The same scenario and seed give the same results, to the last bit, on every machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathsim::{
    CoDel, Controller, Cubic, FixedRate, FlowSpec, Jitter, Loss, MILLISECOND, PathSpec, Pie,
    QueueDiscipline, QueueLimit, RateSchedule, Reno, RouteChange, SECOND, Scenario, Simulation,
    Source, Trace, Transport,
};
use std::sync::Arc;

/// All kinds of flows, over all kinds of trouble.
fn scenario(discipline: QueueDiscipline, rate: RateSchedule) -> Scenario {
    let mut path = PathSpec::clean(50_000_000, 40 * MILLISECOND);
    path.rate = rate;
    path.discipline = discipline;
    path.queue = QueueLimit::Packets(300);
    path.route_changes = vec![RouteChange {
        at_ns: 4 * SECOND,
        rtt_ns: 25 * MILLISECOND,
    }];
    path.loss = Loss::Bursts {
        ratio: 0.002,
        mean_length: 2.5,
    };
    path.ack_loss = Loss::Random(0.05);
    path.jitter = Jitter::Uniform {
        max_ns: 2 * MILLISECOND,
        reorder: true,
    };
    let mut flows = ["cubic", "reno", "cubic", "cubic", "reno", "udp"].map(FlowSpec::new);
    flows[1].extra_rtt_ns = 30 * MILLISECOND;
    flows[2].source = Source::Chunks {
        bytes: 300_000,
        period_ns: 700 * MILLISECOND,
    };
    flows[3].receive_window = Some(40_000);
    flows[3].acks.aggregation_ns = 3 * MILLISECOND;
    flows[4].source = Source::Bytes(2_000_000);
    flows[4].start_ns = SECOND;
    flows[5].transport = Transport::Udp;
    flows[5].stop_ns = Some(6 * SECOND);
    Scenario {
        path,
        flows: flows.to_vec(),
        duration_ns: 8 * SECOND,
        seed: 11,
        series: true,
    }
}

fn run(scenario: Scenario) -> String {
    let controllers = scenario.flows.iter();
    let controllers = controllers.map(|flow| -> Box<dyn Controller> {
        match flow.scheme.as_str() {
            "reno" => Box::new(Reno::default()),
            "udp" => Box::new(FixedRate { rate: 250_000 }),
            _ => Box::new(Cubic::default()),
        }
    });
    let controllers = controllers.collect();
    let results = Simulation::new(scenario, controllers).unwrap().run();
    serde_json::to_string(&results).unwrap()
}

/// FNV-1a, 64 bits.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn steps() -> RateSchedule {
    RateSchedule::Steps(vec![(0, 50_000_000), (5 * SECOND, 20_000_000)])
}

#[test]
fn another_seed_is_another_run_and_the_same_seed_the_same() {
    let mut scenario = scenario(QueueDiscipline::DropTail, steps());
    let first = run(scenario.clone());
    assert_eq!(first, run(scenario.clone()));
    scenario.seed += 1;
    assert_ne!(first, run(scenario));
}

/// A difference here on another machine is a dependence on that machine. A change of the simulator's model may
/// change the figures; then they are to be set anew.
#[test]
fn results_are_the_same_on_every_machine() {
    let trace: String = (1..=500)
        .map(|number| format!("{}\n", number * 7 / 13 + 1))
        .collect();
    let trace = RateSchedule::Trace(Arc::new(Trace::parse(&trace).unwrap()));
    let codel = QueueDiscipline::CoDel(CoDel::default());
    let pie = QueueDiscipline::Pie(Pie::default());
    let found = [
        hash(&run(scenario(QueueDiscipline::DropTail, steps()))),
        hash(&run(scenario(codel, steps()))),
        hash(&run(scenario(codel, trace))),
        hash(&run(scenario(pie, steps()))),
    ];
    let expected: [u64; 4] = [
        206_614_647_767_993_548,
        9_429_874_071_926_821_574,
        3_730_003_464_676_903_216,
        9_698_235_601_563_094_576,
    ];
    assert_eq!(found, expected, "{found:#x?}");
}
