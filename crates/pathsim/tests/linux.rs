//! Cubic in the simulator against Cubic in a real kernel: Linux 6.12 in a QEMU guest under virtual time, behind netem
//! and fq. The kernel's figures are the measured ones of docs/simulator.md, which says how to measure them again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathsim::{
    Controller, Cubic, FlowSpec, Loss, LossPlace, MILLISECOND, PathSpec, QueueLimit, Results,
    SECOND, Scenario, Simulation,
};

/// A path, and what so many flows showed in 30 s.
struct Measured {
    rate_mbps: u64,
    rtt_ms: u64,
    queue_packets: u32,
    loss: f64,
    flows: u64,
    goodput_mbps: f64,
    /// Of the smoothed RTT, read every 200 ms.
    rtt_p95_ms: f64,
}

const fn measured(
    path: (u64, u64, u32, f64),
    flows: u64,
    goodput_mbps: f64,
    rtt_p95_ms: f64,
) -> Measured {
    let (rate_mbps, rtt_ms, queue_packets, loss) = path;
    Measured {
        rate_mbps,
        rtt_ms,
        queue_packets,
        loss,
        flows,
        goodput_mbps,
        rtt_p95_ms,
    }
}

const LINUX: [Measured; 13] = [
    measured((50, 40, 167, 0.0), 1, 48.00, 79.9),
    measured((50, 40, 167, 0.0), 4, 48.11, 80.8),
    measured((50, 40, 10, 0.0), 1, 43.80, 42.6),
    measured((50, 40, 10, 0.0), 4, 45.24, 43.4),
    measured((50, 40, 167, 0.01), 1, 3.10, 46.8),
    measured((50, 40, 167, 0.01), 4, 11.79, 47.1),
    measured((5, 40, 136, 0.0), 1, 4.82, 366.5),
    measured((10, 100, 10, 0.0), 1, 9.01, 113.4),
    measured((20, 100, 167, 0.005), 1, 2.31, 112.3),
    measured((20, 30, 100, 0.02), 10, 19.20, 59.2),
    measured((100, 10, 166, 0.0), 4, 96.46, 30.2),
    measured((150, 20, 250, 0.0), 1, 144.25, 39.6),
    measured((100, 40, 2664, 0.0), 10, 95.97, 360.4),
];
/// Runs whose mean is compared: without losses they hardly differ.
const fn seeds(case: &Measured) -> u64 {
    if case.loss > 0.0 { 10 } else { 2 }
}

/// As the guest is: netem loses in front of the bottleneck, and TCP sends packet by packet.
fn run(case: &Measured, seed: u64) -> Results {
    let mut path = PathSpec::clean(case.rate_mbps * 1_000_000, case.rtt_ms * MILLISECOND);
    path.queue = QueueLimit::Packets(case.queue_packets);
    path.loss = Loss::Random(case.loss);
    path.loss_place = LossPlace::InFront;
    let flow = |number| FlowSpec {
        start_ns: number * MILLISECOND + seed * MILLISECOND / 7,
        burst_segments: 1,
        ..FlowSpec::new("cubic")
    };
    let scenario = Scenario {
        path,
        flows: (0..case.flows).map(flow).collect(),
        duration_ns: 30 * SECOND,
        seed,
        series: false,
    };
    let controllers = scenario.flows.iter();
    let controllers = controllers.map(|_| -> Box<dyn Controller> { Box::new(Cubic::default()) });
    let controllers = controllers.collect();
    Simulation::new(scenario, controllers).unwrap().run()
}

#[test]
fn cubic_does_as_linux_does() {
    let mut beyond = Vec::new();
    for case in &LINUX {
        let seeds = seeds(case);
        let runs: Vec<_> = (1..=seeds).map(|seed| run(case, seed)).collect();
        let mean = |value: fn(&Results) -> f64| runs.iter().map(value).sum::<f64>() / seeds as f64;
        let goodput = mean(|run| run.goodput_mbps);
        let rtt = mean(|run| run.srtt_p95_ms.unwrap());
        let (expected, expected_rtt) = (case.goodput_mbps, case.rtt_p95_ms);
        let goodput_agrees =
            (goodput - expected).abs() <= (0.05 * expected).max(0.02 * case.rate_mbps as f64);
        let rtt_agrees = (rtt - expected_rtt).abs() <= (0.05 * expected_rtt).max(2.0);
        if !(goodput_agrees && rtt_agrees) {
            beyond.push(format!(
                "{} Mbit/s, {} ms, {} packets, loss {}, {} flows: {goodput:.2} Mbit/s for {expected}, {rtt:.1} ms for {expected_rtt}",
                case.rate_mbps, case.rtt_ms, case.queue_packets, case.loss, case.flows
            ));
        }
    }
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
}
