use super::*;
use crate::estimate::tests::report;
use crate::estimate::{Estimator, SlotContext};
use crate::params::Params;
use crate::program::RawReport;

const PKT: f64 = 1000.0;
const RATE: Rate = Rate::from_bytes_per_sec(100e3);

/// What is known of an interval of 100 ms.
fn context(asked: Option<Rate>) -> SlotContext {
    SlotContext {
        asked,
        length: Micros::new(100_000),
        mss_bytes: PKT,
    }
}

/// What it makes of this report, where the smoothed RTT is `srtt_us`.
fn decide(
    climber: &mut Aimd,
    est: &mut Estimator,
    raw: &RawReport,
    rate: Rate,
    srtt_us: u64,
) -> (Rate, Reason) {
    let mi = est.observe(raw, context(Some(rate)));
    est.assume_rtt(Micros::new(srtt_us));
    climber.on_mi(&View {
        mi: &mi,
        est,
        rate,
        pkt_bytes: PKT,
        params: &Params::default(),
    })
}

/// 100 ms at 100 kB/s: 10 packets, on a path of 50 to 150 ms.
fn step(climber: &mut Aimd, at: u64, rtt: u64, lost: u64) -> (Rate, Reason) {
    step_at(RATE, climber, at, rtt, lost)
}

fn step_at(rate: Rate, climber: &mut Aimd, at: u64, rtt: u64, lost: u64) -> (Rate, Reason) {
    step_with(rate, rate, climber, at, |_| rtt, lost)
}

/// So much arrives, whatever the rate; `rtt` by number of the ACK.
fn step_with(
    arrived: Rate,
    rate: Rate,
    climber: &mut Aimd,
    at: u64,
    rtt: impl Fn(u64) -> u64,
    lost: u64,
) -> (Rate, Reason) {
    step_on(150_000, arrived, rate, climber, at, rtt, lost)
}

/// The same on a path of 50 ms to so many us.
fn step_on(
    longest_us: u64,
    arrived: Rate,
    rate: Rate,
    climber: &mut Aimd,
    at: u64,
    rtt: impl Fn(u64) -> u64,
    lost: u64,
) -> (Rate, Reason) {
    let mut est = Estimator::new(&Params::default());
    est.observe(&report(9, 0, &[(0, 50_000, 0)], 1000), context(None));
    let longest = report(9, 1, &[(0, longest_us, 0); 8], 1000);
    est.observe(&longest, context(None));
    let gap = (1e6 * PKT / arrived.bytes_per_sec()) as u64;
    let acks: Vec<_> = (0..100_000 / gap)
        .map(|i| (i * gap, rtt(i), u64::from(i < lost)))
        .collect();
    let raw = report(33, at, &acks, 100_000);
    decide(climber, &mut est, &raw, rate, rtt(0))
}

#[test]
fn it_climbs_by_up_to_a_packet_or_half_of_one_per_rtt() {
    let climbed = |rtt| {
        let (rate, reason) = step(&mut Aimd::default(), 1_000_000, rtt, 0);
        assert_eq!(reason, Reason::Climb);
        (rate.bytes_per_sec() - 100e3) * rtt as f64 * 1e-6 / PKT
    };
    assert!((climbed(50_000) - 1.0).abs() < 1e-6, "an empty path");
    // 5 of the 25 ms that two and a half packets take.
    assert!((climbed(55_000) - 0.8).abs() < 1e-3, "{}", climbed(55_000));
    let wide = step_at(RATE * 4.0, &mut Aimd::default(), 1_000_000, 50_000, 0).0;
    let pkts = (wide.bytes_per_sec() - 400e3) * 0.05 / PKT;
    assert!(
        (pkts - 0.5).abs() < 1e-6,
        "20 packets in the window: {pkts}"
    );
}

/// What a climb adds, in packets per RTT of 50 ms, in an interval that ends then, 0 for a back-off; 20 packets are in
/// the window. RTTs were up to `longest_us`.
fn climbed(climber: &mut Aimd, at: u64, longest_us: u64, lost: u64) -> f64 {
    let rate = RATE * 4.0;
    let (next, reason) = step_on(longest_us, rate, rate, climber, at, |_| 50_000, lost);
    assert_eq!(reason == Reason::Climb, next > rate, "{reason:?}");
    let pkts = (next.bytes_per_sec() - rate.bytes_per_sec()) * 0.05 / PKT;
    pkts.max(0.0)
}

#[test]
fn a_climb_on_a_path_long_found_empty_grows() {
    let mut climber = Aimd::default();
    for (at_ms, pkts) in [
        (1000, 0.5),
        (1200, 0.5),
        (1300, 1.0),
        (1400, 1.5),
        (9000, 5.0),
    ] {
        let climbed = climbed(&mut climber, at_ms * 1000, 100_000, 0);
        assert!((climbed - pkts).abs() < 1e-6, "{at_ms} ms: {climbed}");
    }
    let mut after_a_loss = climber;
    assert_eq!(climbed(&mut after_a_loss, 9_100_000, 100_000, 2), 0.0);
    assert_eq!(climbed(&mut after_a_loss, 9_300_000, 100_000, 0), 0.5);
    let mut after_a_queue = climber;
    let (_, reason) = step(&mut after_a_queue, 9_100_000, 140_000, 0);
    assert_eq!(reason, Reason::ClimbQueue);
    assert_eq!(climbed(&mut after_a_queue, 9_300_000, 100_000, 0), 0.5);
    let of_small_buffer = climbed(&mut climber, 9_100_000, 90_000, 0);
    assert_eq!(of_small_buffer, 0.5, "it holds less than the path");
}

#[test]
fn more_queue_is_borne_where_its_range_leaves_room() {
    let borne_ms = |rate: Rate, largest: u64| {
        let mut est = Estimator::new(&Params::default());
        est.observe(&report(9, 0, &[(0, 8_000, 0)], 1000), context(None));
        let longest = report(9, 1, &[(0, largest, 0); 8], 1000);
        let mi = est.observe(&longest, context(None));
        let borne = tolerated_queue(&View {
            mi: &mi,
            est: &est,
            rate,
            pkt_bytes: PKT,
            params: &Params::default(),
        });
        borne.us() as f64 / 1e3
    };
    let (slow, fast) = (RATE * 5.0, RATE * 100.0);
    assert_eq!(borne_ms(slow, 8_000), 3.0, "1.5 packets, or");
    assert_eq!(borne_ms(slow, 28_000), 5.0, "2.5 packets");
    assert_eq!(borne_ms(slow, 16_000), 4.0, "half of the range");
    assert_eq!(borne_ms(fast, 28_000), 1.6, "a fifth of the RTT");
}

#[test]
fn beyond_the_edge_a_tiny_window_climbs_by_a_sixteenth() {
    let mut climber = Aimd::default();
    // 100 kB/s for a queue of 50 ms: backs off, and knows that 100 kB/s arrived.
    let backed_off = step(&mut climber, 1_000_000, 100_000, 0);
    assert_eq!(backed_off.1, Reason::ClimbQueue);
    let climbed = |climber: &mut Aimd, rate: Rate| {
        let (next, reason) = step_at(rate, climber, 3_000_000, 50_000, 0);
        assert_eq!(reason, Reason::Climb);
        (next.bytes_per_sec() - rate.bytes_per_sec()) * 0.05 / PKT
    };
    let below = climbed(&mut climber, RATE * 0.9);
    let beyond = climbed(&mut climber, RATE * 1.2);
    assert!((below - 1.0).abs() < 1e-6, "{below}");
    assert!((beyond - 6.0 / 16.0).abs() < 1e-6, "{beyond}");
}

#[test]
fn what_a_crowd_loses_slows_a_tiny_window_while_a_queue_stands() {
    // So many packets of each of 30 intervals are lost at a full queue.
    let climbed = |lost: u64, rtt: u64| {
        let mut climber = Aimd::default();
        for at in 0..30 {
            step(&mut climber, 1_000_000 + at * 100_000, 140_000, lost);
        }
        climber.edge = Some(RATE * 0.9);
        let (rate, reason) = step(&mut climber, 9_000_000, rtt, 0);
        assert_eq!(reason, Reason::Climb);
        rate.bytes_per_sec() - RATE.bytes_per_sec()
    };
    let of_a_lossy_crowd = |rtt| climbed(1, rtt) / climbed(0, rtt);
    assert!((of_a_lossy_crowd(50_000) - 1.0).abs() < 1e-6, "no queue");
    let slowed = of_a_lossy_crowd(70_000);
    assert!((0.1..0.3).contains(&slowed), "a fifth: {slowed}");
}

#[test]
fn it_climbs_less_when_it_sends_more_than_arrives() {
    // Acknowledged at 90 kB/s: 11 % of 100 ms of RTT will stand after two RTTs.
    let slower = |i: u64| 50_000 + i * 1_111;
    let (rate, reason) = step_with(RATE, RATE, &mut Aimd::default(), 1_000_000, slower, 0);
    assert_eq!(reason, Reason::Climb);
    let all = step(&mut Aimd::default(), 1_000_000, 50_000, 0).0;
    assert!(rate / RATE - 1.0 < (all / RATE - 1.0) * 0.8, "{rate} {all}");
}

#[test]
fn jitter_is_no_queue() {
    let jitter = |i: u64| 78_000 + 30_000 * (i % 2);
    let (_, reason) = step_with(RATE, RATE, &mut Aimd::default(), 1_000_000, jitter, 0);
    assert_eq!(
        reason,
        Reason::Climb,
        "15 ms about a line, a queue of 28 ms"
    );
    let (_, reason) = step(&mut Aimd::default(), 1_000_000, 78_000, 0);
    assert_eq!(reason, Reason::ClimbQueue);
}

#[test]
fn where_acks_are_collected_a_queue_stands_for_two_intervals() {
    let answers = |pkts_per_ack: u64| {
        let mut est = Estimator::new(&Params::default());
        let mut climber = Aimd::default();
        let mut interval = |at: u64, rtt: u64| {
            let mut raw = report(33, at, &[(0, rtt, 0), (50_000, rtt, 0)], 100_000);
            raw.dlv = 2 * pkts_per_ack;
            decide(&mut climber, &mut est, &raw, RATE, 100_000).1
        };
        for n in 0..20 {
            interval(n * 100_000, 50_000);
        }
        [3_000_000, 3_300_000, 3_600_000, 3_900_000]
            .into_iter()
            .zip([90_000, 50_000, 90_000, 90_000])
            .map(|(at, rtt)| interval(at, rtt) == Reason::ClimbQueue)
            .collect::<Vec<_>>()
    };
    assert_eq!(answers(5), [false, false, false, true]);
    assert_eq!(answers(2), [true, false, true, true]);
}

#[test]
fn it_backs_off_from_loss_by_the_window_and_the_number_of_losses() {
    let small = |part: f64| step_at(RATE * part, &mut Aimd::default(), 1_000_000, 140_000, 1);
    let expected = |from: f64, left| (RATE * from * left, Reason::ClimbLoss);
    assert_eq!(small(1.0), expected(1.0, 0.8), "14 packets");
    let (rate, _) = small(0.7);
    assert!(
        (rate / (RATE * (0.7 - 0.24 / 1.4)) - 1.0).abs() < 1e-3,
        "2.4 of 9.8 packets: {rate}"
    );
    assert_eq!(small(0.4), expected(0.4, 0.7), "2 of 5.6 packets");
    let wide = |lost| step_at(RATE * 2.0, &mut Aimd::default(), 1_000_000, 140_000, lost);
    assert_eq!(
        wide(1),
        (RATE * 2.0 * 0.85, Reason::ClimbLoss),
        "28 packets, one lost"
    );
    assert_eq!(wide(2), (RATE * 2.0 * 0.8, Reason::ClimbLoss));
    let (_, reason) = step(&mut Aimd::default(), 1_000_000, 55_000, 1);
    assert_eq!(reason, Reason::ClimbLoss, "a loss in eleven is not rare");
}

#[test]
fn it_gives_up_more_where_a_crowd_loses_a_quarter() {
    let part = |rtt, lost| {
        let (rate, reason) = step(&mut Aimd::default(), 1_000_000, rtt, lost);
        assert_eq!(reason, Reason::ClimbLoss);
        rate / RATE
    };
    assert_eq!(part(140_000, 3), 0.8, "3 of 13");
    assert!((part(140_000, 5) - 0.5).abs() < 0.02, "5 of 15");
    assert_eq!(part(140_000, 10), 0.3, "10 of 20");
    assert_eq!(part(55_000, 10), 0.7, "not at a full queue");
}

/// Two packets per RTT of 10 ms, of which a part is lost.
#[test]
fn where_an_empty_queue_loses_much_its_slowest_rate_is_lower() {
    let slowest = RATE * 2.0;
    let after = |rtt_us: u64, lost: u64| {
        let mut est = Estimator::new(&Params::default());
        est.observe(&report(9, 0, &[(0, 10_000, 0)], 1000), context(None));
        est.observe(&report(9, 1, &[(0, 30_000, 0); 8], 1000), context(None));
        let acks: Vec<_> = (0..20)
            .map(|i| (i * 5000, rtt_us, u64::from(i < lost)))
            .collect();
        let raw = report(33, 1_000_000, &acks, 100_000);
        decide(&mut Aimd::default(), &mut est, &raw, slowest, 10_000).0
    };
    assert_eq!(after(10_000, 8), slowest * SMALL_LOSS_FACTOR, "a policer");
    assert_eq!(after(10_000, 2), slowest);
    assert_eq!(after(30_000, 8), slowest, "a full queue");
}

#[test]
fn a_wide_window_bears_what_vivace_bears() {
    let answer = |lost| {
        let mut climber = Aimd::default();
        step_at(RATE * 6.0, &mut climber, 1_000_000, 140_000, lost).1
    };
    assert_ne!(answer(1), Reason::ClimbLoss, "1.6 %");
    assert_eq!(answer(2), Reason::ClimbLoss, "3.2 %");
}

#[test]
fn it_does_not_back_off_from_the_paths_own_losses() {
    let mut est = Estimator::new(&Params::default());
    let interval = |rtt, lost| {
        (0..20)
            .map(move |i| (i * 5_000, rtt, u64::from(i < lost)))
            .collect()
    };
    let report_of = |at, acks: Vec<_>| report(33, at, &acks, 100_000);
    est.observe(&report_of(1, vec![(0, 150_000, 0); 8]), context(None));
    // 5 % at an empty queue.
    for n in 1..30 {
        est.observe(&report_of(n * 100_000, interval(50_000, 1)), context(None));
    }
    let mut answer = |rtt, lost| {
        let raw = report_of(4_000_000, interval(rtt, lost));
        decide(&mut Aimd::default(), &mut est, &raw, RATE * 2.0, rtt).1
    };
    assert_ne!(answer(140_000, 1), Reason::ClimbLoss, "one of 21");
    assert_ne!(
        answer(140_000, 3),
        Reason::ClimbLoss,
        "three, where one is the path's"
    );
    assert_eq!(answer(140_000, 5), Reason::ClimbLoss);
}

/// A flow on a path that loses 1 % at an empty queue, for 12 s.
fn with_a_floor_of_a_hundredth() -> Estimator {
    let mut est = Estimator::new(&Params::default());
    est.observe(
        &report(33, 1, &[(0, 150_000, 0); 8], 100_000),
        context(None),
    );
    for n in 1..120 {
        let acks: Vec<_> = (0..10)
            .map(|i| (i * 10_000, 50_000, u64::from(i == 0 && n % 10 == 0)))
            .collect();
        est.observe(&report(33, n * 100_000, &acks, 100_000), context(None));
    }
    let floor = est.loss_floor();
    assert!((floor - 0.01).abs() < 0.002, "{floor}");
    est
}

/// Answers of a flow with 5 packets per RTT to so many losses in turn, at an RTT.
fn answers(est: &mut Estimator, climber: &mut Aimd, rtt: u64, losses: &[u64]) -> Vec<Reason> {
    let times = (13_000_000..).step_by(100_000);
    let reports = losses.iter().zip(times).map(|(&lost, at)| {
        let acks: Vec<_> = (0..10)
            .map(|i| (i * 10_000, rtt, u64::from(i < lost)))
            .collect();
        decide(climber, est, &report(33, at, &acks, 100_000), RATE, rtt).1
    });
    reports.collect()
}

#[test]
fn a_small_window_weighs_losses_over_intervals() {
    let mut est = with_a_floor_of_a_hundredth();
    let one = answers(
        &mut est.clone(),
        &mut Aimd::default(),
        51_000,
        &[1, 0, 0, 1],
    );
    assert!(
        !one.contains(&Reason::ClimbLoss),
        "each for itself: {one:?}"
    );
    let four = answers(&mut est.clone(), &mut Aimd::default(), 51_000, &[1; 4]);
    let first = four.iter().position(|r| *r == Reason::ClimbLoss);
    assert_eq!(first, Some(3), "together: {four:?}");
    let full = answers(&mut est, &mut Aimd::default(), 140_000, &[1]);
    assert_eq!(full, [Reason::ClimbLoss], "at a full queue");
}

#[test]
fn losses_before_a_cut_do_not_count_after_it() {
    let mut est = with_a_floor_of_a_hundredth();
    let mut climber = Aimd::default();
    let reasons = answers(&mut est, &mut climber, 51_000, &[3, 0, 0, 0, 1]);
    assert_eq!(reasons[0], Reason::ClimbLoss, "{reasons:?}");
    assert_eq!(reasons[4], Reason::Climb, "{reasons:?}");
}

#[test]
fn it_is_calm_when_losses_have_long_been_rare() {
    let params = Params::default();
    let mut est = Estimator::new(&params);
    est.assume_rtt(Micros::from_millis(10));
    let is_calm_at = |rtt, climber: Aimd, est: &mut Estimator, at, rate| {
        let mi = est.observe(&report(9, at, &[(0, rtt, 0)], 1000), context(None));
        let view = View::new(&mi, est, rate, PKT, &params);
        climber.is_calm(&view)
    };
    let is_calm =
        |climber, est: &mut Estimator, at, rate| is_calm_at(10_000, climber, est, at, rate);
    assert!(is_calm(Aimd::default(), &mut est, 1, RATE));
    let climber = Aimd::after_loss(est.now(), est.srtt());
    assert!(!is_calm(climber, &mut est, 10_000, RATE));
    assert!(is_calm(climber, &mut est, 600_000, RATE), "60 RTTs later");
    let wide = RATE * 200.0;
    assert!(!is_calm(climber, &mut est, 600_001, wide), "200 packets");
    assert!(!is_calm(climber, &mut est, 1_300_000, wide));
    assert!(is_calm(climber, &mut est, 2_500_000, wide));
    let mut est = Estimator::new(&params);
    est.assume_rtt(Micros::from_millis(20));
    est.observe(&report(9, 1, &[(0, 22_500, 0); 8], 1000), context(None));
    let calm = is_calm_at(20_000, climber, &mut est, 4_000_000, wide * 0.5);
    assert!(est.has_small_buffer());
    assert!(calm, "a buffer of several bursts");
}

/// A window of 100 packets at a buffer of one, whose queue no RTT shows; intervals of an RTT of 100 ms.
struct Wide {
    est: Estimator,
    climber: Aimd,
    rate: Rate,
    at: u64,
}

impl Wide {
    /// After so many intervals without a loss.
    fn after(clean: usize) -> Self {
        let mut est = Estimator::new(&Params::default());
        est.observe(&report(9, 0, &[(0, 100_000, 0); 8], 1000), context(None));
        let mut wide = Self {
            est,
            climber: Aimd::default(),
            rate: RATE * 10.0,
            at: 1_000_000,
        };
        for _ in 0..clean {
            assert_eq!(wide.step(RATE * 10.0, 0), Reason::Climb);
        }
        wide.rate = RATE * 10.0;
        wide
    }

    /// An interval in which so much arrives and so much is lost of what was sent.
    fn step(&mut self, arrives: Rate, lost: u64) -> Reason {
        let gap = (1e6 * PKT / arrives.bytes_per_sec()) as u64;
        let acks: Vec<_> = (0..100_000 / gap)
            .map(|i| (i * gap, 100_000, u64::from(i < lost)))
            .collect();
        self.at += 100_000;
        let raw = report(33, self.at, &acks, 100_000);
        let mi = self.est.observe(&raw, context(Some(self.rate)));
        let params = Params::default();
        let view = View::new(&mi, &self.est, self.rate, PKT, &params);
        let (rate, reason) = self.climber.on_mi(&view);
        self.rate = rate;
        reason
    }
}

#[test]
fn a_wide_window_at_a_small_buffer_answers_a_packet_and_gives_up_a_tenth() {
    let mut wide = Wide::after(5);
    let before = wide.rate;
    assert_ne!(
        wide.step(before, 2),
        Reason::ClimbLoss,
        "600 packets may pass in a row"
    );
    let mut wide = Wide::after(30);
    assert_eq!(wide.step(before, 2), Reason::ClimbLoss);
    assert!((wide.rate / before - WIDE_LOSS_FACTOR).abs() < 1e-9);
}

/// Whether a wide flow that loses at these parts of the path's rate takes the path for its own after each, and what it
/// keeps then; `heard` says after which others tell it that they share the path.
fn meets_losses_at(parts: &[f64], heard: Option<usize>) -> Vec<(bool, f64)> {
    let mut flow = Wide::after(30);
    let meet = |(number, part): (usize, &f64)| {
        let edge = RATE * (10.0 * part);
        flow.rate = edge;
        assert_eq!(flow.step(edge, 6), Reason::ClimbLoss);
        let keeps = (flow.rate / edge * 1e3).round() / 1e3;
        for _ in 0..3 {
            flow.step(flow.rate, 0);
        }
        if heard == Some(number) {
            assert!(flow.climber.may_find_its_own());
            flow.climber.shares();
        }
        (flow.climber.own_edge().is_some(), keeps)
    };
    parts.iter().enumerate().map(meet).collect()
}

#[test]
fn losses_at_the_same_rate_again_and_again_tell_a_flow_that_it_is_alone() {
    let (no, own) = ((false, WIDE_LOSS_FACTOR), (true, WIDE_LOSS_FACTOR));
    let tested = (false, WIDE_LOSS_FACTOR - TEST_CUT);
    let same = [1.0, 1.01, 0.99, 1.0, 1.005];
    assert_eq!(meets_losses_at(&same, None), [no, no, tested, own, own]);
    assert_eq!(
        meets_losses_at(&same, Some(2)),
        [no, no, tested, no, tested],
        "others are there"
    );
    let lower = [1.0, 1.01, 0.99, 0.95, 0.96];
    assert_eq!(
        meets_losses_at(&lower, None),
        [no, no, tested, no, no],
        "others took a part of what it gave up"
    );
    let others = [1.0, 1.04, 1.01, 1.05, 1.02, 1.05, 1.08, 1.05];
    assert_eq!(meets_losses_at(&others, None), [no; 8]);
}

/// How often it yields in 200 intervals of which one packet in fifty is lost, as it has learnt, and the part of the
/// path that it has then; `own` says that nothing is lost below the path.
fn yields(own: bool) -> (usize, f64) {
    let mut wide = Wide::after(0);
    let path = wide.rate;
    for _ in 0..5 {
        wide.climber = Aimd::default();
        wide.step(path, 2);
        wide.rate = path;
    }
    assert!(wide.est.loss_floor() > 0.019);
    wide.climber = Aimd::default();
    let yields = (0..200).filter(|_| {
        let lost = if own && wide.rate < path { 0 } else { 2 };
        wide.step(wide.rate, lost) == Reason::ClimbLoss
    });
    (yields.count(), wide.rate / path)
}

#[test]
fn losses_that_are_borne_are_put_to_the_test_and_less_often_if_they_are_the_paths() {
    let (tests, rate) = yields(false);
    assert!((3..=4).contains(&tests), "after 10, 20, 40, 80: {tests}");
    assert!(rate > 1.5, "all of each is taken back: {rate}");
    let (tests, rate) = yields(true);
    assert!(tests > 6 && rate < 1.1, "{tests}, {rate}");
}

#[test]
fn it_takes_back_a_standing_queue_once_per_two_intervals() {
    let mut climber = Aimd::default();
    let (rate, reason) = step(&mut climber, 1_000_000, 100_000, 0);
    assert_eq!(reason, Reason::ClimbQueue);
    assert!(rate < RATE * 0.94 && rate >= RATE * 0.6, "{rate}");
    assert_eq!(
        step(&mut climber, 1_010_000, 100_000, 0),
        (RATE, Reason::Wait)
    );
}

/// Back-offs from a queue of an RTT at 1 MB/s, with so much arriving from the second on, until it is gone; the rate
/// then, and where the first went.
fn drained(climber: &mut Aimd, begun: u64, arrived: Rate) -> (Rate, Rate) {
    let full = RATE * 10.0;
    let (first, _) = step_with(full, full, climber, begun, |_| 100_000, 0);
    let mut rate = first;
    for n in 1..4 {
        let at = begun + n * 1_000_000;
        let (next, reason) = step_with(arrived, rate, climber, at, |_| 100_000, 0);
        assert_eq!(reason, Reason::ClimbQueue);
        rate = next;
    }
    let at = begun + 4_000_000;
    let (rate, reason) = step_with(rate, rate, climber, at, |_| 50_000, 0);
    assert_eq!(reason, Reason::Climb);
    (rate, first)
}

#[test]
fn alone_it_takes_back_what_it_gave_up_for_a_drain() {
    let mut climber = Aimd::default();
    let (rate, first) = drained(&mut climber, 1_000_000, RATE * 10.0);
    assert!(rate >= first && rate < first * 1.1, "{rate} for {first}");
    // Others have taken it.
    let (rate, first) = drained(&mut climber, 11_000_000, RATE * 8.0);
    assert!(rate < first * 0.95, "{rate} for {first}");
    // Once is not enough to believe it alone again.
    let at = 21_000_000;
    let full = RATE * 10.0;
    let (first, _) = step_with(full, full, &mut climber, at, |_| 100_000, 0);
    let (second, _) = step_with(full, first, &mut climber, at + 1_000_000, |_| 100_000, 0);
    let (rate, _) = step_with(full, second, &mut climber, at + 2_000_000, |_| 50_000, 0);
    assert!(rate < first, "{rate} for {first}");
}

#[test]
fn a_short_queue_is_no_drain() {
    let mut climber = Aimd::default();
    let full = RATE * 10.0;
    let mut rate = full;
    for n in 1..6 {
        (rate, _) = step_with(full, rate, &mut climber, n * 1_000_000, |_| 70_000, 0);
    }
    let (climbed, _) = step_with(rate, rate, &mut climber, 7_000_000, |_| 50_000, 0);
    assert!(climbed < rate * 1.1, "{climbed} for {rate}");
}
