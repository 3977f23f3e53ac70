use super::*;
use crate::estimate::tests::report;
use crate::params::Algorithm;

const MSS: u64 = 1000;

fn new(resume: Option<(Rate, Micros)>, cwnd: u64) -> (Controller, Decision) {
    let start = FlowStart {
        mss: Bytes::new(MSS),
        init_cwnd: Bytes::new(cwnd),
        resume,
    };
    Controller::new(Arc::new(Params::default()), 1, start)
}

/// A path of 40 ms and a capacity of `bytes_per_sec` with a deep buffer, as seen by one slot of `plan` sent at
/// `rate`: the report, and the queue (us) it leaves.
fn slot(
    tag: u64,
    at: u64,
    plan: &Plan,
    rate: Rate,
    bytes_per_sec: f64,
    queue: &mut f64,
) -> RawReport {
    let gap = MSS as f64 / rate.bytes_per_sec() * 1e6;
    let count = (plan.length.us() as f64 / gap).max(4.0) as u64;
    let growth = rate.bytes_per_sec() / bytes_per_sec - 1.0;
    let acks: Vec<_> = (0..count)
        .map(|i| {
            let t = i as f64 * gap;
            (t as u64, 40_000 + (*queue + growth * t).max(0.0) as u64, 0)
        })
        .collect();
    // The holding slot is as long as its ACKs take to come.
    let per_ack = if tag % 32 > 4 { growth.max(0.0) } else { 0.0 };
    let sent_for = count as f64 * gap;
    let sdur = (sent_for * (1.0 + per_ack)) as u64;
    *queue = (*queue + growth * sent_for).max(0.0);
    report(tag, at, &acks, sdur)
}

/// A decision in a trajectory.
fn line(decision: &Decision) -> String {
    format!(
        "{} {} {:.1}",
        decision.phase,
        decision.reason,
        decision.rate.mbit()
    )
}

/// The first twenty commands on a path of 40 Mbit/s.
fn trajectory(no_handbrake: &str) -> Vec<String> {
    let mut params = Params::default();
    params.set("no-handbrake", no_handbrake).unwrap();
    let start = FlowStart {
        mss: Bytes::new(MSS),
        init_cwnd: Bytes::new(10 * MSS),
        resume: None,
    };
    let (mut controller, first) = Controller::new(Arc::new(params), 1, start);
    let mut lines = vec![format!("{} {} {}", first.phase, first.reason, first.rate)];
    let (mut now, mut queue) = (100_000, 0.0);
    // The initial window's ACKs come at the path's rate: a packet in 200 us.
    for ack in 0..8 {
        let acked = [(0, 40_000 + 200 * ack, 0)];
        let decision = controller.on_report(&report(9, now, &acked, 1000));
        if decision.command.is_some() {
            lines.push(line(&decision));
        }
    }
    let mut plan = controller.plan;
    let mut index = 0_usize;
    while lines.len() < 20 {
        let trial = index.checked_sub(1).and_then(|trial| plan.rates.get(trial));
        let rate = *trial.unwrap_or(&plan.hold);
        let tag = u64::from(plan.number) * 32 + index as u64;
        // In a drain the window lets the queue out.
        if matches!(controller.phase, Phase::Drain { .. }) {
            queue = 0.0;
        }
        now += plan.length.us();
        let mut raw = slot(tag, now, &plan, rate, 5e6, &mut queue);
        if index == 0 {
            raw.sdur = 0;
        }
        let decision = controller.on_report(&raw);
        index = match decision.command {
            Some(Command::Run { .. }) => 0,
            _ => (index + 1).min(5),
        };
        plan = controller.plan;
        if let Some(Command::Run { .. } | Command::Steer { .. }) = decision.command {
            lines.push(line(&decision));
        }
    }
    lines
}

#[test]
fn trajectory_snapshot_of_a_start_on_a_path_of_40_mbit() {
    let expected = [
        "startup start 3145.728kbit",
        "startup first-rtt 6.0",
        "startup path-rate 31.1",
        "startup grow 40.0",
        "startup grow 46.0",
        "drain full-slope 39.2",
        "cruise cruise 39.2",
        "cruise cruise 39.2",
        "cruise cruise 39.4",
        "cruise cruise-queue 39.2",
        "cruise cruise 40.3",
        "cruise cruise 40.3",
        "cruise cruise 40.4",
        "cruise cruise-queue 39.2",
        "cruise cruise 40.3",
        "cruise cruise 40.4",
        "cruise cruise-queue 39.2",
        "cruise cruise 40.3",
        "cruise cruise 40.4",
        "cruise cruise-queue 39.3",
    ];
    assert_eq!(trajectory("none"), expected);
}

#[test]
fn trajectory_snapshot_of_vivace_after_it() {
    let expected = [
        "drain full-slope 39.2",
        "vivace probe 39.2",
        "vivace move-up 41.3",
        "vivace overshoot 37.9",
        "vivace move-up 38.3",
        "vivace move-up 38.7",
        "vivace move-up 39.1",
        "vivace move-up 39.5",
        "vivace move-up 39.9",
        "vivace move-up 40.3",
    ];
    assert_eq!(trajectory("cruise")[5..15], expected);
}

/// The first decision after the initial window's ACKs have met RTTs of 90 ms, where others know of 40 ms and a share of
/// 10 Mbit/s.
fn behind_others(no_handbrake: &str) -> Decision {
    let (mut controller, _) = new(None, 10 * MSS);
    let mut params = Params::default();
    params.set("no-handbrake", no_handbrake).unwrap();
    controller.set_params(Arc::new(params));
    controller.hear(Some(Known {
        rtt_min: Micros::new(40_000),
        share: Rate::from_mbit(10.0),
        is_all: false,
        active: 1,
        carries: None,
    }));
    controller.on_report(&report(9, 100_000, &[(0, 90_000, 0); 10], 1000))
}

#[test]
fn where_others_fill_the_path_a_newcomer_begins_with_a_share() {
    let decision = behind_others("none");
    assert_eq!(line(&decision), "drain share 15.0");
    let alone = behind_others("ensemble");
    assert_eq!(alone.phase, PhaseName::Startup, "{alone:?}");
}

#[test]
fn what_others_know_matters_while_a_flow_starts() {
    let (mut controller, _) = new(Some((Rate::from_mbit(10.0), Micros::new(40_000))), 100_000);
    assert!(!controller.asks(), "it runs already");
    let known = Known {
        rtt_min: Micros::new(20_000),
        share: Rate::from_mbit(100.0),
        is_all: true,
        active: 1,
        carries: None,
    };
    controller.hear(Some(known));
    controller.on_report(&report(9, 100_000, &[(0, 40_000, 0); 10], 1000));
    assert_eq!(controller.estimator().rtt_min(), Micros::new(40_000));
}

/// A climber that loses 5 packets of 100 at one rate again and again, and hears of others when it asks, if there are
/// any: how often it has lost when it first asks, and whether it cruises in the end.
fn at_the_same_edge(others: u32) -> (Option<u32>, bool) {
    let resume = Some((Rate::from_mbit(20.0), Micros::new(40_000)));
    let (mut controller, _) = new(resume, 100 * MSS);
    controller.on_report(&report(33, 0, &[(0, 40_000, 0); 8], 1000));
    controller.climb_on(Aimd::after_loss(Micros::ZERO, Micros::new(40_000)));
    let (mut asked, mut now) = (None, 200_000);
    for loss in 0..8 {
        // A long run tells that the path loses nothing by itself.
        let clean = if loss == 0 { 30 } else { 3 };
        for interval in 0..=clean {
            controller.rate = Rate::from_mbit(20.0);
            let lost = if interval == clean { 5 } else { 0 };
            let acks: Vec<_> = (0..100)
                .map(|i| (i * 400, 40_000, u64::from(i < lost)))
                .collect();
            if controller.asks() {
                asked.get_or_insert(loss);
                controller.hear(Some(Known {
                    rtt_min: Micros::new(40_000),
                    share: Rate::from_mbit(20.0),
                    is_all: false,
                    active: others,
                    carries: None,
                }));
            }
            now += 50_000;
            let tag = u64::from(controller.plan.number) * 32 + 5;
            controller.on_report(&report(tag, now, &acks, 40_000));
        }
    }
    (asked, controller.phase.name() == PhaseName::Cruise)
}

#[test]
fn a_climber_asks_before_it_takes_the_path_for_its_own() {
    assert_eq!(at_the_same_edge(0), (Some(3), true));
    assert_eq!(at_the_same_edge(1), (Some(3), false));
}

#[test]
fn an_application_of_short_messages_keeps_the_initial_window_per_rtt() {
    let (mut controller, _) = new(None, 10 * MSS);
    // A whole initial window first.
    controller.on_report(&report(9, 100_000, &[(0, 40_000, 0); 10], 1000));
    let mut reasons = Vec::new();
    // A message of five packets every 200 ms; the receiver holds the last ACK back.
    for n in 1..200 {
        let tag = u64::from(controller.plan.number) * 32 + 1;
        let acks: Vec<_> = (0..4).map(|i| (i * 1000, 40_000, 0)).collect();
        let message = report(tag, n * 200_000, &acks, 100_000);
        let last = report(tag, n * 200_000 + 100_000, &[(0, 80_000, 0)], 100_000);
        reasons.extend([message, last].map(|raw| controller.on_report(&raw).reason));
    }
    assert!(reasons.contains(&Reason::Plateau), "{reasons:?}");
    let srtt = controller.est.srtt();
    let pkts = controller.rate.bytes_in(srtt) / MSS as f64;
    assert!(pkts > 9.9, "{pkts} packets in {srtt}");
}

#[test]
fn acks_of_the_initial_window_that_come_in_a_bunch_tell_no_rate() {
    let (mut controller, _) = new(None, 10 * MSS);
    let mut ack = |at: u64, pkts: usize| {
        let decision = controller.on_report(&report(9, at, &vec![(0, 40_000, 0); pkts], 1000));
        (decision.reason, decision.command)
    };
    // The first alone, the others together, as a link makes them that collects ACKs.
    assert!(matches!(
        ack(100_000, 1),
        (Reason::FirstRtt, Some(Command::Steer { .. }))
    ));
    let (reason, command) = ack(106_000, 9);
    assert_eq!(reason, Reason::FirstRtt);
    let Some(Command::Run { plan, .. }) = command else {
        panic!("{command:?}")
    };
    // Three initial windows of 10 kB in 40 ms.
    assert_eq!(plan.rates[0], Rate::from_bytes_per_sec(750e3));
}

#[test]
fn after_half_of_the_initial_window_is_lost_the_second_rtt_is_sent_with_half() {
    let second = |lost: u64| {
        let (mut controller, _) = new(None, 10 * MSS);
        controller.on_report(&report(9, 100_000, &[(0, 40_000, 0)], 1000));
        let rest = [
            (0, 40_000, lost),
            (0, 40_000, 0),
            (0, 40_000, 0),
            (0, 40_000, 0),
        ];
        match controller
            .on_report(&report(9, 140_000, &rest, 1000))
            .command
        {
            Some(Command::Run { plan, .. }) => plan.rates,
            command => panic!("{command:?}"),
        }
    };
    // Three initial windows of 10 kB in 40 ms, and half of that.
    assert_eq!(second(4)[0], Rate::from_bytes_per_sec(750e3));
    assert_eq!(second(5), [Rate::from_bytes_per_sec(375e3); 4]);
}

#[test]
fn a_timeout_halves_the_rate_whatever_the_phase_and_old_reports_decide_nothing() {
    let srtt = Micros::new(40_000);
    let (mut controller, first) = new(Some((Rate::from_mbit(40.0), srtt)), 200 * MSS);
    assert_eq!(
        (first.phase, first.reason),
        (PhaseName::Vivace, Reason::Resume)
    );
    let decision = controller.on_report(&RawReport {
        tag: 32 + 16 + 2,
        ..RawReport::default()
    });
    assert_eq!(
        (decision.phase, decision.reason),
        (PhaseName::Aimd, Reason::Timeout)
    );
    assert_eq!(decision.rate, Rate::from_mbit(20.0));
    let old = report(32 + 2, 100_000, &[(0, 40_000, 5); 20], 40_000);
    assert_eq!(controller.on_report(&old).reason, Reason::Stale);
    for _ in 0..50 {
        controller.on_report(&RawReport {
            tag: 16,
            ..RawReport::default()
        });
    }
    // Two packets per RTT of 40 ms.
    assert_eq!(controller.rate, Rate::from_bytes_per_sec(50_000.0));
}

#[test]
fn a_timeout_before_any_rtt_leaves_no_more_than_the_window_per_second() {
    let (mut controller, _) = new(None, 16 * MSS);
    let timeout = RawReport {
        tag: 9 + 16,
        ..RawReport::default()
    };
    let decision = controller.on_report(&timeout);
    assert_eq!(
        (decision.phase, decision.reason),
        (PhaseName::Aimd, Reason::Timeout)
    );
    assert_eq!(
        decision.rate,
        Rate::from_bytes_in((16 * MSS) as f64, Micros::new(1_000_000))
    );
    controller.on_report(&timeout);
    assert_eq!(controller.rate, decision.rate * 0.5);
}

#[test]
fn few_packets_per_rtt_are_for_the_climber_and_many_for_vivace() {
    let srtt = Micros::new(10_000);
    let (controller, _) = new(Some((Rate::from_bytes_per_sec(1.4e6), srtt)), 200 * MSS);
    assert_eq!(controller.phase.name(), PhaseName::Aimd, "14 packets");
    let (controller, _) = new(Some((Rate::from_bytes_per_sec(1.6e6), srtt)), 200 * MSS);
    assert_eq!(controller.phase.name(), PhaseName::Vivace, "16 packets");
}

#[test]
fn the_window_is_slow_starts_first_and_twice_the_rates_later() {
    let (mut controller, first) = new(None, 10 * MSS);
    assert_eq!(first.cwnd, Bytes::new(10 * MSS));
    let first = controller.on_report(&report(9, 100_000, &[(0, 40_000, 0); 2], 1000));
    assert_eq!(
        first.cwnd,
        Bytes::new(10 * MSS),
        "most ACKs are yet to come"
    );
    let begun = controller.on_report(&report(9, 101_000, &[(0, 40_000, 0); 8], 1000));
    assert_eq!(
        begun.cwnd,
        Bytes::new(25 * MSS),
        "initial window plus one and a half times the delivered, which that is at least"
    );
    let (_, resumed) = new(
        Some((Rate::from_bytes_per_sec(5e6), Micros::new(40_000))),
        20 * MSS,
    );
    // 1.03 x 5 MB/s x 41 ms x 2.
    assert_eq!(resumed.cwnd, Bytes::new(422_300));
    let (_, tiny) = new(None, 0);
    assert_eq!(tiny.cwnd, Bytes::new(4 * MSS));
}

#[test]
fn behind_a_queue_what_arrives_bounds_the_window() {
    let rate = Rate::from_bytes_per_sec(250e3);
    let (mut controller, _) = new(Some((rate, Micros::new(40_000))), 20 * MSS);
    // Ten packets per RTT on the empty path; then they arrive in four times that, through a queue of 60 ms.
    for (at, rtt, gap) in [(0, 40_000, 4_000), (1_000_000, 100_000, 16_000)] {
        let acks: Vec<_> = (0..10).map(|i| (i * gap, rtt, 0)).collect();
        let tag = u64::from(controller.plan.number) * 32 + 5;
        controller.on_report(&report(tag, at, &acks, 40_000));
    }
    let est = controller.estimator();
    let arrived = est.last_goodput().unwrap();
    assert!((arrived / (rate * 0.25) - 1.0).abs() < 0.01, "{arrived}");
    let (sent, window) = (controller.rate, controller.cwnd.get() as f64);
    let most = 1.5 * arrived.bytes_in(est.srtt() + Micros::from_millis(1))
        + sent.bytes_in(Micros::new(40_000));
    assert!((window - most).abs() < 1.0, "{window} of {most}");
    assert!(
        window < 1.7 * sent.bytes_in(est.srtt()),
        "{window} of {sent}"
    );
}

/// 40 packets per RTT of 1 ms: trials elsewhere, here the climber, and a window that ACKs clock.
#[test]
fn to_a_near_receiver_acks_clock_the_climber() {
    let resume = Some((Rate::from_bytes_per_sec(40e6), Micros::new(1_000)));
    let (mut controller, _) = new(resume, 20 * MSS);
    let mut now = 0;
    let mut step = |controller: &mut Controller| {
        let acks: Vec<_> = (0..40).map(|i| (i * 25, 1_000, 0)).collect();
        let tag = u64::from(controller.plan.number) * 32 + 5;
        now += 10_000;
        controller.on_report_measured(&report(tag, now, &acks, 1_000))
    };
    for _ in 0..3 {
        step(&mut controller);
    }
    assert_eq!(controller.phase.name(), PhaseName::Aimd);
    let rate = controller.rate;
    let rtt = controller.estimator().srtt() + Micros::new(100);
    let window = rate.bytes_in(rtt) + (2 * MSS) as f64;
    let told = controller.cwnd.get() as f64;
    assert!(
        (told / window - 1.0).abs() < 0.01,
        "{told} bytes for {window}"
    );
    assert_eq!(controller.plan.hold, rate * 1.5);
    // What arrives is what ACKs let go, not what the pacer would.
    let (mi, decision) = step(&mut controller);
    assert!(!mi.limited);
    assert_eq!(decision.reason, Reason::Climb);
}

fn with(params: Params, resume: Option<(Rate, Micros)>) -> Controller {
    let start = FlowStart {
        mss: Bytes::new(MSS),
        init_cwnd: Bytes::new(10 * MSS),
        resume,
    };
    Controller::new(Arc::new(params), 1, start).0
}

fn of(algorithm: Algorithm) -> Params {
    Params {
        algorithm,
        ..Params::default()
    }
}

#[test]
fn a_running_flow_goes_from_any_algorithm_to_any_other_at_its_rate() {
    let all = [Algorithm::Pk3c, Algorithm::Vivace, Algorithm::Upstream];
    let rate = Rate::from_mbit(40.0);
    for from in all {
        for to in all.into_iter().filter(|to| *to != from) {
            let mut controller = with(of(from), Some((rate, Micros::new(40_000))));
            controller.set_params(Arc::new(of(to)));
            let plan = controller.plan;
            let mut queue = 0.0;
            let tag = u64::from(plan.number) * 32 + 1;
            let raw = slot(tag, 100_000, &plan, plan.rates[0], 1e9, &mut queue);
            let decision = controller.on_report(&raw);
            assert_eq!(
                (decision.reason, decision.rate),
                (Reason::Switch, rate),
                "{from} to {to}"
            );
            let expected = match to {
                Algorithm::Upstream => PhaseName::Upstream,
                Algorithm::Pk3c | Algorithm::Vivace | Algorithm::Exp => PhaseName::Vivace,
            };
            assert_eq!(decision.phase, expected);
            assert!(matches!(decision.command, Some(Command::Run { .. })));
        }
    }
}

#[test]
fn a_running_flow_is_told_of_a_rate_that_is_no_longer_allowed() {
    let rate = Rate::from_mbit(40.0);
    let mut controller = with(of(Algorithm::Pk3c), Some((rate, Micros::new(40_000))));
    let max_rate = Rate::from_mbit(2.0);
    let start_rate = Rate::from_mbit(1.0);
    controller.set_params(Arc::new(Params {
        max_rate,
        start_rate,
        ..Params::default()
    }));
    let plan = controller.plan;
    let tag = u64::from(plan.number) * 32 + 1;
    let raw = slot(tag, 100_000, &plan, plan.rates[0], 1e9, &mut 0.0);
    let decision = controller.on_report(&raw);
    assert_eq!((decision.reason, decision.rate), (Reason::Switch, max_rate));
    let told = match decision.command {
        Some(Command::Run { plan, .. }) => plan.highest(),
        Some(Command::Steer { rate, .. }) => rate,
        other => panic!("the datapath is not told: {other:?}"),
    };
    assert!(told <= max_rate, "{told}");
}

#[test]
fn a_switch_before_the_first_rtt_begins_the_other_start() {
    let mut controller = with(of(Algorithm::Pk3c), None);
    controller.set_params(Arc::new(of(Algorithm::Upstream)));
    let first = controller.on_report(&RawReport {
        tag: 9,
        ..RawReport::default()
    });
    assert_eq!(
        (first.phase, first.reason),
        (PhaseName::Upstream, Reason::Switch)
    );
    let begun = controller.on_report(&report(9, 100_000, &[(0, 40_000, 0)], 1000));
    assert_eq!(
        (begun.phase, begun.reason),
        (PhaseName::Upstream, Reason::FirstRtt)
    );
}

#[test]
fn changed_parameters_hold_from_the_next_report_on() {
    let mut controller = with(
        Params::default(),
        Some((Rate::from_mbit(40.0), Micros::new(40_000))),
    );
    controller.set_params(Arc::new(Params {
        max_rate: Rate::from_mbit(10.0),
        ..Params::default()
    }));
    let plan = controller.plan;
    for index in 0..4 {
        let tag = u64::from(plan.number) * 32 + 1 + index;
        let rate = plan.rates[index as usize];
        let raw = slot(tag, 100_000 * (index + 1), &plan, rate, 1e9, &mut 0.0);
        let decision = controller.on_report(&raw);
        assert!(decision.rate <= Rate::from_mbit(10.0), "{decision:?}");
        if let Some(Command::Run { plan, .. }) = decision.command {
            assert!(plan.highest() <= Rate::from_mbit(10.0));
        }
    }
}

/// A flow of 8 Mbit/s that has just seen the RTT of 40 ms of an empty path.
fn on_an_empty_path() -> Controller {
    let mut controller = with(
        Params::default(),
        Some((Rate::from_mbit(8.0), Micros::new(40_000))),
    );
    let plan = controller.plan;
    controller.on_report(&report(
        u64::from(plan.number) * 32 + 1,
        0,
        &[(0, 40_000, 0); 20],
        40_000,
    ));
    controller
}

/// Queue actions in vain, whose reports the controller gets as fast as it asks for them.
fn stubborn(controller: &mut Controller, rtt: impl Fn(u64) -> u64, reports: u64) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for i in 0..reports {
        let plan = controller.plan;
        let at = 1_000_000 + i * 50_000;
        let acks: Vec<_> = (0..40)
            .map(|k| (k * 1000, rtt(at) + 100 * (k % 20), 0))
            .collect();
        let decision =
            controller.on_report(&report(u64::from(plan.number) * 32 + 5, at, &acks, 40_000));
        reasons.push(decision.reason);
    }
    reasons
}

#[test]
fn a_queue_that_stands_whatever_is_done_ends_in_a_competition_and_that_in_a_test() {
    let mut controller = on_an_empty_path();
    // It grows for as long as it is watched, by more than noise.
    let reasons = stubborn(&mut controller, |at| 70_000 + at / 200, 600);
    let count = |wanted| reasons.iter().filter(|reason| **reason == wanted).count();
    assert!(count(Reason::QueueCut) >= 3, "{reasons:?}");
    assert!(
        count(Reason::CompeteStart) >= 1 && count(Reason::CompeteEnd) >= 1,
        "{reasons:?}"
    );
    assert_eq!(count(Reason::LongerPath), 0);
}

#[test]
fn an_rtt_that_has_doubled_for_good_is_adopted() {
    let mut controller = on_an_empty_path();
    let mut reasons = Vec::new();
    for i in 0..100 {
        let plan = controller.plan;
        let acks: Vec<_> = (0..40).map(|k| (k * 1000, 80_000, 0)).collect();
        let tag = u64::from(plan.number) * 32 + 5;
        reasons.push(
            controller
                .on_report(&report(tag, 1_000_000 + i * 50_000, &acks, 40_000))
                .reason,
        );
    }
    assert!(reasons.contains(&Reason::LongerPath), "{reasons:?}");
    assert_eq!(controller.estimator().rtt_min(), Micros::new(80_000));
}

/// Thousands of flows must fit: 1 KiB each, of which nothing is on the heap but the parameters, which all share.
#[test]
fn a_flow_takes_less_than_a_kibibyte() {
    assert!(
        size_of::<Controller>() <= 1024,
        "{}",
        size_of::<Controller>()
    );
}

#[test]
fn another_segment_size_changes_neither_rate_nor_phase() {
    let rate = Rate::from_mbit(40.0);
    for mss in [6 * MSS, MSS / 6] {
        let mut controller = with(of(Algorithm::Pk3c), Some((rate, Micros::new(40_000))));
        let (plan, mut queue) = (controller.plan, 0.0);
        let tag = u64::from(plan.number) * 32 + 1;
        let raw = slot(tag, 100_000, &plan, plan.rates[0], 1e9, &mut queue);
        let cwnd = controller.on_report(&raw).cwnd;
        controller.set_mss(Bytes::new(mss));
        // Segments of the old size are still acknowledged: no goodput beyond what was sent.
        let raw = slot(tag + 1, 120_000, &plan, plan.rates[1], 1e9, &mut queue);
        let (mi, decision) = controller.on_report_measured(&raw);
        assert!(mi.goodput <= plan.highest() * 1.1, "{}", mi.goodput);
        assert_eq!(
            (decision.phase, decision.rate),
            (PhaseName::Vivace, rate),
            "{mss}"
        );
        // The window in bytes is told again.
        let told = decision.command;
        assert_eq!(
            told,
            Some(Command::Window {
                cwnd: decision.cwnd
            }),
            "{mss}"
        );
        let ratio = decision.cwnd.get() as f64 / cwnd.get() as f64;
        assert!((0.5..1.25).contains(&ratio), "{mss}: {ratio}");
        // Some reports later the new size counts.
        for late in 0..u64::from(RESIZED_REPORTS) {
            controller.on_report(&report(9, 200_000 + late, &[(0, 40_000, 0)], 1000));
        }
        let acks: Vec<_> = (0..20).map(|i| (i * 1000, 40_000, 0)).collect();
        let (mi, _) = controller.on_report_measured(&report(tag + 3, 300_000, &acks, 20_000));
        let sent = mi.send_rate.bytes_per_sec() / (1e3 * mss as f64);
        assert!((0.9..1.2).contains(&sent), "{mss}: {sent}");
    }
}

#[test]
fn a_request_before_the_initial_window_hides_no_path() {
    let (mut controller, _) = new(None, 10 * MSS);
    // The request's ACK took long, since the receiver had no answer yet; a packet of the window came with it.
    let first = [(0, 52_000, 0), (10, 41_000, 0)];
    controller.on_report(&report(9, 100_000, &first, 1000));
    for ack in 1..9 {
        let acked = [(0, 41_000 + 1_000 * ack, 0)];
        controller.on_report(&report(9, 100_010, &acked, 1000));
    }
    let carries = controller.rules.path.carries().unwrap();
    assert!((carries.mbit() - 8.0).abs() < 0.5, "{}", carries.mbit());
}

#[test]
fn acks_that_come_together_lift_no_flow_beyond_what_it_sent() {
    let (mut controller, _) = new(None, 10 * MSS);
    controller.on_report(&report(9, 100_000, &[(0, 40_000, 0); 10], 1000));
    let (mut highest, mut plateaus) = (controller.plan.highest(), 0);
    // Four packets every 60 ms, whose ACKs come within 3 us.
    for n in 0..400 {
        let tag = u64::from(controller.plan.number) * 32 + n % 2;
        let acks: Vec<_> = (0..4).map(|i| (i, 40_000, 0)).collect();
        let decision = controller.on_report(&report(tag, 200_000 + n * 60_000, &acks, 0));
        plateaus += usize::from(decision.reason == Reason::Plateau);
        let most = highest * 1.5;
        assert!(decision.rate <= most, "{} {most}", decision.rate);
        highest = highest.max(controller.plan.highest());
    }
    assert!(plateaus > 0);
}

#[test]
fn a_drain_that_tells_no_goodput_keeps_its_rate() {
    let mut controller = on_an_empty_path();
    controller.drain_to(Rate::from_mbit(7.0));
    let before = controller.rate;
    let tag = u64::from(controller.plan.number) * 32 + 1;
    // Half of forty packets are lost, and all ACKs come in one microsecond.
    let decision = controller.on_report(&report(tag, 20_000, &[(0, 60_000, 1); 20], 20_000));
    assert_eq!((decision.reason, decision.rate), (Reason::Wait, before));
}

#[test]
fn a_flow_of_which_only_repetitions_arrive_goes_on_at_what_passes() {
    let after = |no_handbrake: &str, lost: u64| {
        let mut controller = on_an_empty_path();
        let mut params = Params::default();
        params.set("no-handbrake", no_handbrake).unwrap();
        controller.set_params(Arc::new(params));
        let tag = u64::from(controller.plan.number) * 32 + 5;
        // What was sent again has no RTT below 20 ms.
        let raw = RawReport {
            dlv: 10,
            lost,
            ..report(tag, 0, &[], 40_000)
        };
        let decision = controller.on_report(&raw);
        (decision.reason, decision.rate)
    };
    let (reason, rate) = after("none", 90);
    assert_eq!(reason, Reason::LossCut);
    // Ten packets in 40 ms.
    let passes = Rate::from_bytes_in(10.0 * MSS as f64, Micros::new(40_000));
    assert!(rate <= passes * 1.1, "{rate}");
    assert_ne!(after("none", 0).0, Reason::LossCut, "none is lost");
    assert_ne!(after("loss", 90).0, Reason::LossCut);
}

#[test]
fn another_algorithm_does_not_resume_a_start() {
    // Most packets take long, the fastest do not: no queue.
    let slot = |plan: &Plan, at| {
        let acks: Vec<_> = (0..20)
            .map(|i| (i * 1000, if i == 3 { 41_000 } else { 90_000 }, 0))
            .collect();
        report(u64::from(plan.number) * 32 + 1, at, &acks, 40_000)
    };
    let resumes = |switches: bool| {
        let mut controller = on_an_empty_path();
        let (mi, _) = controller.on_report_measured(&slot(&controller.plan, 100_000));
        let ended = Startup::new(Micros::ZERO);
        controller.long_rtt = ended.long_rtt(&mi, &controller.est);
        if switches {
            controller.set_params(Arc::new(of(Algorithm::Vivace)));
        }
        (2..5).any(|n| {
            let raw = slot(&controller.plan, 100_000 * n);
            controller.on_report(&raw).reason == Reason::Restart
        })
    };
    assert!(resumes(false) && !resumes(true));
}
