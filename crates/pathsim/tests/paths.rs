//! What a path can do to flows, one effect at a time: queue discipline, route changes, lost ACKs, receive windows,
//! bursts, and applications that pause. Every test has bounds in numbers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathsim::{
    Ack, CoDel, Controller, Cubic, FixedRate, FlowResult, FlowSpec, Jitter, Lie, Loss, MILLISECOND,
    MSS, PathSpec, Pie, QueueDiscipline, QueueLimit, Results, RouteChange, SECOND, Scenario,
    Sending, Sfq, Simulation, Source, Transport,
};
use std::cell::RefCell;
use std::rc::Rc;

/// One endless flow over 50 Mbit/s, 40 ms, and a queue of one BDP, for 30 s.
fn scenario() -> Scenario {
    Scenario {
        path: PathSpec::clean(50_000_000, 40 * MILLISECOND),
        flows: vec![FlowSpec::new("cubic")],
        duration_ns: 30 * SECOND,
        seed: 7,
        series: true,
    }
}

fn run(scenario: Scenario) -> Results {
    let controllers = scenario.flows.iter();
    let controllers = controllers.map(|_| -> Box<dyn Controller> { Box::new(Cubic::default()) });
    let controllers = controllers.collect();
    Simulation::new(scenario, controllers).unwrap().run()
}

fn run_at(scenario: Scenario, rate: u64) -> Results {
    let controllers: Vec<Box<dyn Controller>> = vec![Box::new(FixedRate { rate })];
    Simulation::new(scenario, controllers).unwrap().run()
}

/// Mean RTT of a flow between two times in s, ms.
fn rtt_ms(flow: &FlowResult, from_s: usize, to_s: usize) -> f64 {
    let bins = &flow.series[from_s * 10..to_s * 10];
    bins.iter().map(|bin| bin.rtt_ms).sum::<f64>() / bins.len() as f64
}

#[test]
fn codel_keeps_a_greedy_flow_near_its_target() {
    let mut scenario = scenario();
    scenario.path.queue = QueueLimit::Packets(scenario.path.bdp_packets(8.0));
    let bloated = run(scenario.clone());
    scenario.path.discipline = QueueDiscipline::CoDel(CoDel::default());
    let controlled = run(scenario);
    let wait_ms = |out: &Results| rtt_ms(&out.flows[0], 5, 30) - 40.0;
    assert!(wait_ms(&bloated) > 150.0, "{}", wait_ms(&bloated));
    // Between drops the wait goes above the target of 5 ms, and after them below.
    let wait = wait_ms(&controlled);
    assert!((1.0..6.0).contains(&wait), "{wait}");
    assert!(controlled.share > 0.9, "{}", controlled.share);
    assert_eq!(controlled.flows[0].timeouts, 0);
}

#[test]
fn pie_keeps_a_greedy_flow_near_its_target() {
    let mut scenario = scenario();
    scenario.path.queue = QueueLimit::Packets(scenario.path.bdp_packets(8.0));
    for target_ms in [15, 40] {
        let target_ns = target_ms * MILLISECOND;
        scenario.path.discipline = QueueDiscipline::Pie(Pie { target_ns });
        let out = run(scenario.clone());
        let wait = rtt_ms(&out.flows[0], 5, 30) - 40.0;
        let target = target_ms as f64;
        assert!((target * 0.6..target * 1.2).contains(&wait), "{wait}");
        assert!(out.share > 0.95, "{}", out.share);
    }
}

/// Cubic beside datagrams at the rate of the link: in one queue these leave it next to nothing, under sfq each has
/// half.
#[test]
fn sfq_protects_a_flow_from_one_that_does_not_give_way() {
    let mut scenario = scenario();
    scenario.flows.push(FlowSpec {
        transport: Transport::Udp,
        ..FlowSpec::new("udp")
    });
    let goodput = |scenario: Scenario| {
        let rate = 50_000_000 / 8;
        let flood: Box<dyn Controller> = Box::new(FixedRate { rate });
        let controllers = vec![Box::new(Cubic::default()) as Box<dyn Controller>, flood];
        let out = Simulation::new(scenario, controllers).unwrap().run();
        out.flows[0].goodput_mbps
    };
    let unprotected = goodput(scenario.clone());
    assert!(unprotected < 5.0, "{unprotected}");
    scenario.path.discipline = QueueDiscipline::Sfq(Sfq::default());
    scenario.path.queue = QueueLimit::Packets(Sfq::LINUX_LIMIT_PACKETS);
    let protected = goodput(scenario);
    assert!((20.0..25.0).contains(&protected), "{protected}");
}

/// 10 % too many packets, 417 per second, that nothing slows down. The time between drops, 0.1 s / √n, makes 50 t drops
/// per second after t seconds: enough at 8.3 s, when 417 t - 25 t² = 1740 packets wait, and twice that at 16.7 s, when
/// the queue is empty.
#[test]
fn codel_drops_ever_faster_until_an_unresponsive_flow_fits() {
    let mut scenario = scenario();
    scenario.path.queue = QueueLimit::Packets(100_000);
    scenario.path.discipline = QueueDiscipline::CoDel(CoDel::default());
    scenario.flows[0].transport = Transport::Udp;
    scenario.duration_ns = 20 * SECOND;
    let overload = 55_000_000 / 8 * MSS / 1500;
    let out = run_at(scenario, overload);
    let waiting: Vec<_> = out
        .link_series
        .iter()
        .map(|bin| bin.queue_packets)
        .collect();
    let (peak, packets) = waiting.iter().enumerate().max_by_key(|bin| bin.1).unwrap();
    assert!((75..95).contains(&peak), "{peak}");
    assert!((1600..1900).contains(packets), "{packets}");
    // The most in 100 ms: what waits for the target, and an interval's excess.
    let least = waiting[peak..].iter().min().unwrap();
    assert!(*least < 21 + 42, "{least}");
}

#[test]
fn a_route_change_changes_the_rtt_and_costs_little() {
    let mut scenario = scenario();
    let change = |s, ms| RouteChange {
        at_ns: s * SECOND,
        rtt_ns: ms * MILLISECOND,
    };
    scenario.path.route_changes = vec![change(10, 100), change(20, 20)];
    // Too little traffic for a queue.
    scenario.flows[0].source = Source::Rate(5_000_000);
    let out = run(scenario);
    let flow = &out.flows[0];
    for (from_s, to_s, expected_ms) in [(1, 10, 40.0), (11, 20, 100.0), (21, 30, 20.0)] {
        let found_ms = rtt_ms(flow, from_s, to_s);
        assert!(
            (found_ms - expected_ms).abs() < 1.5,
            "{from_s} to {to_s} s: {found_ms}"
        );
    }
    assert!(
        (flow.goodput_mbps - 5.0).abs() < 0.1,
        "{}",
        flow.goodput_mbps
    );
    // The shorter route overtakes 40 ms of packets, once.
    assert!(flow.retransmissions < 40, "{}", flow.retransmissions);
    assert_eq!(flow.timeouts, 0);
}

#[test]
fn lost_acks_lose_no_data() {
    let mut scenario = scenario();
    for loss in [
        Loss::Random(0.3),
        Loss::Bursts {
            ratio: 0.1,
            mean_length: 4.0,
        },
    ] {
        scenario.path.ack_loss = loss;
        let out = run(scenario.clone());
        let flow = &out.flows[0];
        assert!(out.share > 0.95, "{loss:?}: {}", out.share);
        assert!(
            flow.spurious_retransmissions <= 3,
            "{loss:?}: {}",
            flow.spurious_retransmissions
        );
    }
    // A transfer ends although its last ACKs may be lost.
    scenario.path.ack_loss = Loss::Random(0.5);
    scenario.flows[0].source = Source::Bytes(50_000);
    for seed in 0..50 {
        scenario.seed = seed;
        let seconds = run(scenario.clone()).flows[0].completion_s;
        assert!(seconds.unwrap() < 5.0, "seed {seed}: {seconds:?}");
    }
}

/// What a sender at a fixed rate was told in all.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    delivered: u64,
    lost: u64,
    spurious: u64,
    duplicates: u64,
    sent: u64,
}

struct Accountant {
    rate: FixedRate,
    told: Rc<RefCell<Told>>,
}

impl Controller for Accountant {
    fn sending(&self) -> Sending {
        self.rate.sending()
    }

    fn on_ack(&mut self, ack: &Ack) {
        let mut told = self.told.borrow_mut();
        told.delivered += ack.delivered;
        told.lost += ack.lost;
        told.spurious += ack.spurious;
        told.duplicates += ack.duplicates;
        told.sent = ack.sent;
    }

    fn on_timeout(&mut self, _: u64) {}
}

/// A transfer of 4 MB at 20 Mbit/s.
fn account(path: PathSpec, lie: Option<Lie>) -> Told {
    let mut scenario = scenario();
    scenario.path = path;
    scenario.duration_ns = 10 * SECOND;
    scenario.flows[0].source = Source::Bytes(4_000_000);
    scenario.flows[0].lie = lie;
    let told = Rc::new(RefCell::new(Told::default()));
    let accountant = Accountant {
        rate: FixedRate { rate: 2_500_000 },
        told: told.clone(),
    };
    Simulation::new(scenario, vec![Box::new(accountant)])
        .unwrap()
        .run();
    let told = *told.borrow();
    println!("{told:?}");
    told
}

/// What was taken for lost and was late comes to light: before it is sent again, or by a D-SACK. The rest the receiver
/// has thrown away, since what was sent later had filled a gap.
#[test]
fn packets_that_were_late_are_found_not_to_be_lost() {
    let mut late = scenario().path;
    late.jitter = Jitter::Uniform {
        max_ns: 100 * MILLISECOND,
        reorder: true,
    };
    let told = account(late, None);
    assert!(told.lost > 200, "{told:?}");
    assert!(
        told.spurious <= told.lost && told.spurious > told.lost / 2,
        "{told:?}"
    );
    assert!(told.duplicates <= told.spurious, "{told:?}");
    // The transfer ends when the last packet has arrived, not when the last D-SACK has.
    let known = told.delivered + told.lost - told.spurious + told.duplicates;
    assert!(told.sent >= known && told.sent - known < 100, "{told:?}");

    let mut lossy = scenario().path;
    lossy.loss = Loss::Random(0.05);
    let told = account(lossy.clone(), None);
    assert!(told.lost > 100, "{told:?}");
    assert_eq!((told.spurious, told.duplicates), (0, 0), "{told:?}");
    let told = account(lossy, Some(Lie::DenyLosses));
    assert!(told.spurious > told.lost * 9 / 10, "{told:?}");
}

/// Cubic, and what it was told.
struct Watched {
    cubic: Cubic,
    /// Largest window, and the largest one that was said to be a limit after the first second.
    seen: Rc<RefCell<(u64, u64)>>,
}

impl Controller for Watched {
    fn sending(&self) -> Sending {
        self.cubic.sending()
    }

    fn on_ack(&mut self, ack: &Ack) {
        let mut seen = self.seen.borrow_mut();
        let cwnd = self.cubic.sending().cwnd;
        seen.0 = seen.0.max(cwnd);
        if ack.window_limited && ack.now_ns > SECOND {
            seen.1 = seen.1.max(cwnd);
        }
        self.cubic.on_ack(ack);
    }

    fn on_loss(&mut self, now_ns: u64, in_flight: u64) {
        self.cubic.on_loss(now_ns, in_flight);
    }

    fn on_timeout(&mut self, now_ns: u64) {
        self.cubic.on_timeout(now_ns);
    }
}

/// A flow that its receiver holds sends one receive window per RTT, and its congestion window neither counts as
/// a limit nor grows beyond twice of what it uses (as in Linux).
#[test]
fn a_receive_window_caps_goodput_and_is_no_congestion_window() {
    let mut scenario = scenario();
    scenario.flows[0].receive_window = Some(64 * 1024);
    let seen = Rc::new(RefCell::new((0, 0)));
    let controllers: Vec<Box<dyn Controller>> = vec![Box::new(Watched {
        cubic: Cubic::default(),
        seen: seen.clone(),
    })];
    let out = Simulation::new(scenario, controllers).unwrap().run();
    let segments = 64 * 1024 / MSS;
    // A window per RTT of 40 ms and the transmission of the packets that an ACK waits for.
    let expected = (segments * MSS * 8) as f64 / 0.0405 / 1e6;
    let found = out.flows[0].goodput_mbps;
    assert!(
        (found / expected - 1.0).abs() < 0.03,
        "{found} for {expected}"
    );
    assert!(out.flows[0].rtt_p95_ms.unwrap() < 42.0);
    let (largest, limit) = *seen.borrow();
    assert!(largest <= 2 * segments, "{largest}");
    assert_eq!(limit, 0);
}

/// A sender at half of the link's rate: bursts wait behind themselves, single packets do not.
#[test]
fn a_burst_is_as_long_as_asked() {
    let peak = |burst_segments| {
        let mut scenario = scenario();
        scenario.path = PathSpec::clean(400_000_000, 20 * MILLISECOND);
        scenario.flows[0].burst_segments = burst_segments;
        scenario.flows[0].start_ns = 1;
        scenario.duration_ns = 5 * SECOND;
        let out = run_at(scenario, 200_000_000 / 8);
        // Without the initial window, which is never paced.
        let bins = &out.link_series[10..];
        bins.iter().map(|bin| bin.queue_packets).max().unwrap()
    };
    assert_eq!(peak(1), 0);
    assert_eq!(peak(4), 3);
    // A millisecond of the rate: 17 segments.
    assert_eq!(peak(44), 16);
}

/// A rate and a window, whatever happens.
struct Windowed(Sending);

impl Controller for Windowed {
    fn sending(&self) -> Sending {
        self.0
    }
    fn on_ack(&mut self, _: &Ack) {}
    fn on_timeout(&mut self, _: u64) {}
}

/// To a near receiver a burst is longer, as Linux' is, but two of them are in flight.
#[test]
fn a_near_receiver_gets_longer_bursts() {
    let peak = |rtt_ns, cwnd| {
        let mut scenario = scenario();
        scenario.path = PathSpec::clean(400_000_000, rtt_ns);
        scenario.path.queue = QueueLimit::Packets(1000);
        scenario.flows[0].start_ns = 1;
        scenario.duration_ns = 5 * SECOND;
        let sending = Sending {
            rate: Some(200_000_000 / 8),
            cwnd,
        };
        let out = Simulation::new(scenario, vec![Box::new(Windowed(sending))])
            .unwrap()
            .run();
        let bins = &out.link_series[10..];
        bins.iter().map(|bin| bin.queue_packets).max().unwrap()
    };
    // 17 segments are a millisecond; 45, 22 and 5 more at 0.2, 0.6 and 1.7 ms, and 44 at most.
    assert_eq!(peak(200_000, 1000), 43);
    assert_eq!(peak(600_000, 1000), 38);
    assert_eq!(peak(1_700_000, 1000), 21);
    assert_eq!(peak(600_000, 20), 9);
}

#[test]
fn chunks_come_and_go() {
    let mut scenario = scenario();
    scenario.flows[0].source = Source::Chunks {
        bytes: 1_000_000,
        period_ns: 2 * SECOND,
    };
    let out = run(scenario);
    let flow = &out.flows[0];
    // 15 chunks of 691 segments.
    let expected = (15 * 691 * MSS * 8) as f64 / 30e6;
    assert!((flow.goodput_mbps / expected - 1.0).abs() < 1e-9);
    let busy = flow.series.iter().filter(|bin| bin.goodput_mbps > 0.0);
    // Each chunk takes 0.2 s of the path, and a little more in the first slow start.
    assert!((30..80).contains(&busy.count()));
    assert!(flow.rtt_p50_ms.unwrap() < 60.0, "{:?}", flow.rtt_p50_ms);
}

/// Where frequent losses leave small windows, Linux is slower than the RFC, whose estimate of Reno grows by 1 once it
/// is back where a loss came: √(1 / 0.53) = 1.37 at most, less because both begin with 0.53.
#[test]
fn cubic_of_linux_is_slower_than_the_rfc_s_under_loss() {
    let goodput = |cubic: Cubic| {
        let mut scenario = scenario();
        scenario.path.loss = Loss::Random(0.01);
        scenario.duration_ns = 600 * SECOND;
        scenario.series = false;
        let controllers: Vec<Box<dyn Controller>> = vec![Box::new(cubic)];
        let out = Simulation::new(scenario, controllers).unwrap().run();
        out.goodput_mbps
    };
    let factor = goodput(Cubic::rfc9438()) / goodput(Cubic::default());
    assert!((1.1..1.37).contains(&factor), "{factor}");
}

/// The timestamps of what was sent again in vain tell the RTT, so that the next timeout waits for it.
#[test]
fn a_flow_that_starts_behind_a_queue_of_seconds_learns_its_rtt() {
    let mut scenario = scenario();
    scenario.path = PathSpec::clean(500_000, 40 * MILLISECOND);
    scenario.path.queue = QueueLimit::Packets(200);
    scenario.duration_ns = 60 * SECOND;
    scenario.flows.push(FlowSpec {
        start_ns: 20 * SECOND,
        ..FlowSpec::new("cubic")
    });
    let out = run(scenario);
    let late = &out.flows[1];
    assert!(
        late.rtt_mean_ms.is_some_and(|ms| ms > 2000.0),
        "{:?}",
        late.rtt_mean_ms
    );
    assert!(late.timeouts < 5, "{}", late.timeouts);
}
