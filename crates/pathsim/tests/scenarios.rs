//! Whole runs: what theory and the RFCs say of Reno, Cubic and BBR holds in the simulator. Every test has bounds in
//! numbers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathsim::{
    Bbr, Controller, Cubic, FixedRate, FlowSpec, Jitter, Loss, MILLISECOND, PathSpec, QueueLimit,
    RateSchedule, Reno, Results, SECOND, Scenario, Simulation, Source, Trace, Transport,
};
use std::sync::Arc;

/// 50 Mbit/s, 40 ms, a queue of one BDP (167 packets).
fn path() -> PathSpec {
    PathSpec::clean(50_000_000, 40 * MILLISECOND)
}

fn scenario(path: PathSpec, schemes: &[&str]) -> Scenario {
    let flows = schemes.iter().zip(0..).map(|(scheme, number)| FlowSpec {
        start_ns: number * 100 * MILLISECOND,
        ..FlowSpec::new(scheme)
    });
    Scenario {
        path,
        flows: flows.collect(),
        duration_ns: 30 * SECOND,
        seed: 7,
        series: false,
    }
}

fn controller(scheme: &str) -> Box<dyn Controller> {
    match scheme {
        "reno" => Box::new(Reno::default()),
        "cubic" => Box::new(Cubic::default()),
        "rfc9438" => Box::new(Cubic::rfc9438()),
        "bbr" => Box::new(Bbr::new(7)),
        other => panic!("{other}"),
    }
}

fn run(scenario: Scenario) -> Results {
    let controllers = scenario.flows.iter().map(|flow| controller(&flow.scheme));
    let controllers = controllers.collect();
    Simulation::new(scenario, controllers).unwrap().run()
}

#[test]
fn a_clean_path_is_filled_and_never_overfilled() {
    for scheme in ["reno", "cubic"] {
        let out = run(scenario(path(), &[scheme]));
        assert!((0.95..=1.0).contains(&out.share), "{scheme}: {}", out.share);
        assert!(out.queue_peak_packets <= 167);
        let (p50, p95) = (out.rtt_p50_ms.unwrap(), out.rtt_p95_ms.unwrap());
        // The propagation delay, a full queue, and the transmissions.
        assert!(
            p50 >= 40.0 && p95 <= 40.0 + 168.0 * 0.24 + 1.0,
            "{scheme}: {p50} {p95}"
        );
        assert_eq!(out.flows[0].timeouts, 0);
    }
}

/// Reno on a drop-tail queue of one BDP halves from twice the BDP, so the queue just runs empty; on a queue of 10
/// packets it lies between 1/2 and 1 of the path's capacity: 3/4 on average, and a little more for the queue.
#[test]
fn reno_halves() {
    let mut shallow = path();
    shallow.queue = QueueLimit::Packets(10);
    let mut long = scenario(shallow, &["reno"]);
    long.duration_ns = 120 * SECOND;
    let out = run(long);
    assert!(
        (0.70..0.85).contains(&out.share_second_half),
        "{}",
        out.share_second_half
    );
}

/// Mathis et al. 1997: rate = MSS / RTT × sqrt(3 / 2) / sqrt(p), with an ACK for every packet. The constant is
/// for independent losses 1.31 or 1.22 by model; timeouts and the reduction for a second loss within
/// recovery lower it. 30 % either way.
#[test]
fn reno_under_loss_is_what_mathis_says() {
    for ratio in [0.001, 0.01] {
        let mut lossy = path();
        lossy.rate = RateSchedule::Constant(1_000_000_000);
        lossy.queue = QueueLimit::Packets(3000);
        lossy.loss = Loss::Random(ratio);
        let mut scenario = scenario(lossy, &["reno"]);
        scenario.duration_ns = 300 * SECOND;
        let out = run(scenario);
        let expected = 1448.0 * 8e-6 / 0.04 * 1.22 / ratio.sqrt();
        let found = out.flows[0].goodput_mbps;
        assert!(
            (found / expected - 1.0).abs() < 0.3,
            "{ratio}: {found} for {expected}"
        );
    }
}

/// RFC 9438 §5.1: the average window is 1.054 (RTT / p)^(3/4) where that is above Reno's. That is for one loss every
/// 1 / p packets; independent losses of the same mean are 30 % around it.
#[test]
fn cubic_under_loss_is_what_its_rfc_says() {
    let (ratio, rtt_s): (f64, f64) = (0.0001, 0.1);
    let mut lossy = path();
    lossy.rate = RateSchedule::Constant(1_000_000_000);
    lossy.queue = QueueLimit::Packets(10_000);
    lossy.rtt_ns = 100 * MILLISECOND;
    lossy.loss = Loss::Random(ratio);
    let mut scenario = scenario(lossy, &["rfc9438"]);
    scenario.duration_ns = 600 * SECOND;
    let out = run(scenario);
    let expected = 1.054 * (rtt_s / ratio).powf(0.75) * 1448.0 * 8e-6 / rtt_s;
    let found = out.flows[0].goodput_mbps;
    println!("{found:.2} Mbit/s, the RFC says {expected:.2}");
    assert!(
        (found / expected - 1.0).abs() < 0.3,
        "{found} for {expected}"
    );
}

#[test]
fn reordering_collapses_nobody() {
    for scheme in ["reno", "cubic"] {
        let mut reordering = path();
        reordering.jitter = Jitter::Uniform {
            max_ns: 6 * MILLISECOND,
            reorder: true,
        };
        let out = run(scenario(reordering, &[scheme]));
        assert!(out.share >= 0.93, "{scheme}: {}", out.share);
        let flow = &out.flows[0];
        let needless = flow.spurious_retransmissions as f64 / flow.packets_sent as f64;
        assert!(needless < 0.01, "{scheme}: {needless}");
    }
}

#[test]
fn sparse_and_collected_acks_cost_little() {
    for (every, aggregation_ns) in [(1, 0), (2, 0), (8, 0), (2, 8 * MILLISECOND)] {
        let mut scenario = scenario(path(), &["cubic"]);
        scenario.flows[0].acks.every = every;
        scenario.flows[0].acks.aggregation_ns = aggregation_ns;
        let out = run(scenario);
        assert!(
            out.share >= 0.93,
            "every {every}, {aggregation_ns} ns: {}",
            out.share
        );
    }
}

#[test]
fn equals_share_equally_and_short_rtts_win_under_reno() {
    let mut four = scenario(path(), &["cubic"; 4]);
    four.duration_ns = 60 * SECOND;
    let out = run(four);
    assert!(
        out.jain >= 0.9 && out.share >= 0.97,
        "{} {}",
        out.jain,
        out.share
    );

    let mut two = scenario(path(), &["reno"; 2]);
    two.flows[1].extra_rtt_ns = 80 * MILLISECOND;
    two.duration_ns = 120 * SECOND;
    let out = run(two);
    let [short, long] = [0, 1].map(|i| out.flows[i].goodput_second_half_mbps.unwrap());
    assert!(short > 1.3 * long, "{short} {long}");
    assert!(out.flows[1].rtt_p50_ms.unwrap() >= 120.0);
}

#[test]
fn transfers_end_and_say_when() {
    let mut scenario = scenario(path(), &["cubic"]);
    scenario.path.queue = QueueLimit::Packets(1000);
    scenario.flows[0].source = Source::Bytes(1_000_000);
    let out = run(scenario.clone());
    // 691 segments from a window of 10 are seven rounds of 40 ms, the last ones longer by a queue.
    let seconds = out.flows[0].completion_s.unwrap();
    assert!((0.25..0.40).contains(&seconds), "{seconds}");
    assert_eq!(out.flows[0].packets_sent, 691);

    // The last packets may be lost, and then a probe or a timeout repairs it.
    scenario.path.loss = Loss::Random(0.05);
    for seed in 0..50 {
        scenario.seed = seed;
        let out = run(scenario.clone());
        let seconds = out.flows[0].completion_s.unwrap();
        assert!((0.25..15.0).contains(&seconds), "seed {seed}: {seconds}");
        assert!(out.flows[0].retransmissions > 0);
    }
}

#[test]
fn an_application_below_capacity_gets_its_rate_without_a_queue() {
    let mut scenario = scenario(path(), &["cubic", "reno"]);
    for flow in &mut scenario.flows {
        flow.source = Source::Rate(5_000_000);
    }
    let out = run(scenario);
    for flow in &out.flows {
        assert!(
            (flow.goodput_mbps - 5.0).abs() < 0.05,
            "{}",
            flow.goodput_mbps
        );
        assert!(flow.rtt_p95_ms.unwrap() < 44.0, "{:?}", flow.rtt_p95_ms);
        assert_eq!(flow.retransmissions, 0);
    }
}

#[test]
fn datagrams_take_what_they_are_told_and_no_more() {
    let mut scenario = scenario(path(), &["cubic"]);
    let mut udp = FlowSpec::new("udp");
    udp.transport = Transport::Udp;
    udp.start_ns = 5 * SECOND;
    udp.stop_ns = Some(25 * SECOND);
    scenario.flows.push(udp);
    let controllers: Vec<Box<dyn Controller>> = vec![
        Box::new(Cubic::default()),
        Box::new(FixedRate { rate: 1_250_000 }),
    ];
    let out = Simulation::new(scenario, controllers).unwrap().run();
    let udp = &out.flows[1];
    assert!(
        (udp.goodput_mbps - 10.0).abs() < 0.2,
        "{}",
        udp.goodput_mbps
    );
    assert!(out.share > 0.95 && out.share <= 1.0, "{}", out.share);
    assert!(udp.rtt_p50_ms.is_none());
}

#[test]
fn a_link_that_varies_is_followed() {
    let mut steps = path();
    steps.rate = RateSchedule::Steps(vec![
        (0, 50_000_000),
        (10 * SECOND, 10_000_000),
        (20 * SECOND, 30_000_000),
    ]);
    let out = run(scenario(steps, &["cubic"]));
    assert!((0.9..=1.0).contains(&out.share), "{}", out.share);

    // Four packets each ms for 100 ms, then 100 ms without one: 24 Mbit/s on average.
    let burst: String = (1..=100)
        .flat_map(|ms| std::iter::repeat_n(format!("{ms}\n"), 4))
        .collect();
    let text = burst + "200\n";
    let mut trace = path();
    trace.rate = RateSchedule::Trace(Arc::new(Trace::parse(&text).unwrap()));
    trace.queue = QueueLimit::Packets(500);
    let out = run(scenario(trace, &["cubic"]));
    assert!((0.8..=1.0).contains(&out.share), "{}", out.share);
}

/// Ten thousand flows, whose memory is their own and the queue's: what is not in use is small.
#[test]
fn ten_thousand_flows_run() {
    let mut scenario = scenario(
        PathSpec::clean(1_000_000_000, 20 * MILLISECOND),
        &["reno"; 10_000],
    );
    for (flow, number) in scenario.flows.iter_mut().zip(0..) {
        flow.start_ns = number * MILLISECOND / 10;
    }
    scenario.duration_ns = 3 * SECOND / 2;
    let out = run(scenario);
    assert!(out.share_second_half > 0.95, "{}", out.share_second_half);
    assert!(out.flows.iter().all(|flow| flow.packets_sent > 0));
    assert!(out.queue_peak_packets <= 1667);
}

/// With much room: it takes a fraction of a second.
#[test]
fn a_minute_of_ten_flows_at_100_mbit_takes_less_than_15_s() {
    let mut scenario = scenario(
        PathSpec::clean(100_000_000, 40 * MILLISECOND),
        &["cubic"; 10],
    );
    scenario.duration_ns = 60 * SECOND;
    let began = std::time::Instant::now();
    let out = run(scenario);
    assert!(out.events > 1_000_000, "{}", out.events);
    assert!(began.elapsed().as_secs() < 15, "{:?}", began.elapsed());
}

/// Its model keeps the queue below one bandwidth-delay product however deep the buffer is, and it ignores losses.
#[test]
fn bbr_follows_its_model_and_no_losses() {
    let mut path = path();
    path.queue = QueueLimit::Packets(8 * 167);
    path.loss = Loss::Random(0.02);
    let out = run(scenario(path.clone(), &["bbr"]));
    assert!(out.share > 0.95, "{}", out.share);
    let p95 = out.rtt_p95_ms.unwrap();
    assert!(p95 < 60.0, "{p95}");
    let cubic = run(scenario(path, &["cubic"]));
    assert!(cubic.share < 0.2, "{}", cubic.share);
}

/// Every ten seconds it lets the queue out, to see the path's RTT: all of its flows at the same time.
#[test]
fn bbr_lets_the_queue_out_every_ten_seconds() {
    let mut scenario = scenario(path(), &["bbr", "bbr"]);
    scenario.duration_ns = 50 * SECOND;
    scenario.series = true;
    let out = run(scenario);
    let empty = |bins: &[pathsim::Bin]| -> Vec<usize> {
        let low = |bin: &pathsim::Bin| bin.rtt_ms > 0.0 && bin.rtt_ms < 43.0;
        let begins = |at: &usize| low(&bins[*at]) && !low(&bins[*at - 1]);
        (100..bins.len()).filter(begins).collect()
    };
    let seen = empty(&out.flows[0].series);
    assert!((4..=5).contains(&seen.len()), "{seen:?}");
    let gaps = seen.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(
        gaps.clone().all(|gap| (100..=108).contains(&gap)),
        "{seen:?}"
    );
}

/// Beside Cubic it takes most of a short buffer, and gets little of a deep one.
#[test]
fn bbr_beside_cubic_depends_on_the_buffer() {
    let own = |queue: f64| {
        let mut path = path();
        path.queue = QueueLimit::Packets((queue * 167.0) as u32);
        let out = run(scenario(path, &["bbr", "cubic"]));
        out.flows[0].goodput_mbps / out.goodput_mbps
    };
    let (short, deep) = (own(0.5), own(8.0));
    assert!(short > 0.7, "{short}");
    assert!(deep < 0.3, "{deep}");
}
