use super::*;
use crate::estimate::SlotContext;
use crate::estimate::tests::report;

const PKT: f64 = 1000.0;
/// 5 MB/s: a packet in 200 us, 200 in an RTT of 40 ms.
const PATH: Rate = Rate::from_bytes_per_sec(5e6);
const INTERVAL_US: u64 = 40_000;

/// A flow on a path that carries [`PATH`] as far as it knows, and its queue, us.
struct Flow {
    est: Estimator,
    path: OwnPath,
    cruise: Cruise,
    now: u64,
    queue: f64,
}

/// What is known of an interval.
fn context(asked: Option<Rate>) -> SlotContext {
    SlotContext {
        asked,
        length: Micros::new(INTERVAL_US),
        mss_bytes: PKT,
    }
}

impl Flow {
    fn new() -> Self {
        Self::behind(20_000)
    }

    /// Where a queue of so many us was seen.
    fn behind(queue_us: u64) -> Self {
        let mut est = Estimator::new(&Params::default());
        est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
        let longest = [(0, 40_000 + queue_us, 0); 8];
        est.observe(&report(9, 1, &longest, 1000), context(None));
        est.assume_rtt(Micros::new(40_000));
        let mut path = OwnPath::default();
        path.learn(Some(PATH));
        Self {
            cruise: Cruise::new(PATH, Met::Queue, &est),
            est,
            path,
            now: 500_000,
            queue: 0.0,
        }
    }

    /// One interval of which `sent` was sent at `rate`, `carried` arrives, and every so-manieth packet is lost.
    fn interval(&mut self, rate: Rate, sent: f64, carried: Rate, lost_every: u64) -> Ride {
        let gap = PKT / (rate.bytes_per_sec() * sent) * 1e6;
        let growth = (rate * sent) / carried - 1.0;
        let acks: Vec<_> = (0..(INTERVAL_US as f64 / gap) as u64)
            .map(|i| {
                let at = i as f64 * gap;
                let rtt = 40_000.0 + (self.queue + growth * at).max(0.0);
                (at as u64, rtt as u64, u64::from(i % lost_every == 1))
            })
            .collect();
        self.queue = (self.queue + growth * INTERVAL_US as f64).max(0.0);
        self.now += INTERVAL_US;
        let mi = self.est.observe(
            &report(33, self.now, &acks, INTERVAL_US),
            context(Some(rate)),
        );
        let params = Params::default();
        let view = View {
            mi: &mi,
            est: &self.est,
            rate,
            pkt_bytes: PKT,
            params: &params,
        };
        self.cruise.on_mi(&view, self.path)
    }

    /// The first answer other than to climb, from `rate` on, and the rate it came at.
    fn until(&mut self, mut rate: Rate, carried: Rate) -> (Ride, Rate) {
        for _ in 0..200 {
            match self.interval(rate, 1.0, carried, 1) {
                Ride::On(next, Reason::Cruise | Reason::Wait) => rate = next,
                other => return (other, rate),
            }
        }
        panic!("nothing but climbing, to {rate}");
    }
}

#[test]
fn it_stays_within_a_per_cent_of_the_path_and_a_few_packets_of_queue() {
    let mut flow = Flow::new();
    // A report shows the rate before the last one.
    let (mut rate, mut sent) = (PATH * 0.9, PATH * 0.9);
    let (mut rates, mut queues) = (Vec::new(), Vec::new());
    for _ in 0..500 {
        let Ride::On(next, _) = flow.interval(sent, 1.0, PATH, 1) else {
            panic!("left")
        };
        (sent, rate) = (rate, next);
        rates.push(rate / PATH);
        queues.push(flow.queue);
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let settled = &rates[20..];
    assert!((mean(settled) - 1.0).abs() < 0.01, "{}", mean(settled));
    let lowest = settled.iter().copied().fold(f64::MAX, f64::min);
    assert!(lowest > 0.96, "{lowest}");
    // A packet takes 0.2 ms; the rate shows late.
    let longest = queues[20..].iter().copied().fold(0.0, f64::max);
    assert!(longest < 2_000.0, "{longest} us");
}

#[test]
fn a_queue_at_the_edge_is_let_out_and_the_rate_comes_back() {
    let mut flow = Flow::new();
    let (full, _) = flow.until(PATH, PATH);
    let Ride::On(below, Reason::CruiseQueue) = full else {
        panic!("{full:?}")
    };
    assert!((0.95..0.99).contains(&(below / PATH)), "{below}");
    flow.queue = 5_000.0;
    let during = flow.interval(below, 1.0, PATH, 1);
    assert_eq!(during, Ride::On(below, Reason::Wait), "it takes its time");
    flow.queue = 0.0;
    flow.interval(below, 1.0, PATH, 1);
    let Ride::On(back, Reason::Cruise) = flow.interval(below, 1.0, PATH, 1) else {
        panic!("still below")
    };
    let back = back / (PATH * BACK_BEYOND);
    assert!((back - 1.0).abs() < 0.003, "{back}");
}

#[test]
fn loss_beyond_the_path_s_own_is_a_full_queue() {
    let mut flow = Flow::behind(400);
    for _ in 0..3 {
        flow.interval(PATH, 1.0, PATH, 1);
    }
    let ride = flow.interval(PATH, 1.0, PATH, 10);
    assert!(
        matches!(ride, Ride::On(rate, Reason::CruiseLoss) if rate < PATH * 0.96),
        "{ride:?}"
    );
}

#[test]
fn where_less_arrives_others_share_the_path() {
    let mut flow = Flow::new();
    let (ride, _) = flow.until(PATH, PATH * 0.6);
    let Ride::Shared(rate, edge) = ride else {
        panic!("{ride:?}")
    };
    assert!(rate < edge.rate && !edge.lost, "{rate}");
    assert!((edge.rate / PATH - 0.6).abs() < 0.01, "{edge:?}");
}

#[test]
fn a_path_that_takes_more_than_the_edge_has_become_wider() {
    let (ride, at) = Flow::new().until(PATH, PATH * 3.0);
    assert_eq!(ride, Ride::Wider);
    assert!((1.025..1.06).contains(&(at / PATH)), "{at}");
}

#[test]
fn more_than_the_edge_that_arrives_without_a_queue_is_climbed_on_at_once() {
    // What was sent an RTT ago arrives; two per cent beyond the edge are on their way.
    let rate = PATH * 1.02;
    let step = |met, arrives: f64| {
        let mut flow = Flow::new();
        flow.cruise = Cruise::new(PATH, met, &flow.est);
        match flow.interval(rate, arrives / 1.02, PATH * 3.0, 1) {
            Ride::On(next, Reason::Cruise) => (next.mbit() - rate.mbit()) / PATH.mbit(),
            other => panic!("{other:?}"),
        }
    };
    let at_once = step(Met::Queue, 1.008);
    assert!(at_once > 0.01, "{at_once}");
    let edge = step(Met::Queue, 1.0);
    assert!(edge < 0.2 * at_once, "no more than the edge: {edge}");
    let lost = step(Met::Loss, 1.008);
    assert!(lost < 0.2 * at_once, "losses told the edge: {lost}");
}

#[test]
fn a_path_of_less_than_two_bursts_is_none_to_ride_on() {
    let steers = |rtt_us| {
        let mut est = Estimator::new(&Params::default());
        est.assume_rtt(Micros::new(rtt_us));
        Cruise::can_steer(&est, Rate::from_mbit(300.0), PKT)
    };
    assert!(!steers(1_900) && steers(2_000), "bursts of 1 ms");
}

#[test]
fn a_path_of_eight_packets_is_ridden_on_and_one_of_fifteen_if_it_loses() {
    let steers = |pkts: f64, loses: bool| {
        let mut est = Estimator::new(&Params::default());
        let acks: Vec<_> = (0..1000)
            .map(|i| (200 * i, 40_000, u64::from(loses && i % 50 == 1)))
            .collect();
        est.observe(&report(33, 0, &acks, 200_000), context(Some(PATH)));
        assert_eq!(est.loss_floor() > LOSSY, loses, "{}", est.loss_floor());
        let rate = Rate::from_bytes_in(pkts * PKT, Micros::new(40_000));
        Cruise::can_steer(&est, rate, PKT)
    };
    assert!(!steers(7.9, false) && steers(8.1, false));
    assert!(!steers(14.9, true) && steers(15.1, true));
}

#[test]
fn a_packets_time_that_stands_at_any_rate_is_no_queue() {
    // A packet takes 2 ms, and the second of a burst of two waits for the first.
    let narrow = PATH * 0.1;
    let backs_off = |standing_us| {
        let mut flow = Flow::new();
        flow.path.learn(Some(narrow));
        flow.cruise = Cruise::new(narrow, Met::Queue, &flow.est);
        (0..4).any(|_| {
            flow.queue = standing_us;
            let ride = flow.interval(narrow, 1.0, narrow, 1);
            matches!(ride, Ride::On(_, Reason::CruiseQueue))
        })
    };
    assert!(
        !backs_off(3_500.0),
        "a packet's time, and what is tolerated"
    );
    assert!(backs_off(4_500.0));
}

#[test]
fn an_edge_that_is_met_again_moves_by_a_quarter() {
    let mut flow = Flow::new();
    let acks: Vec<_> = (0..10).map(|i| (4_000 * i, 40_000, 0)).collect();
    let mi = flow
        .est
        .observe(&report(33, 1_000_000, &acks, 40_000), context(Some(PATH)));
    let at = |cruise: &Cruise, part: f64| cruise.edge_at(PATH * part, &mi) / PATH;
    let met = Cruise::new(PATH, Met::Queue, &flow.est);
    assert!(
        (at(&met, 0.92) - 0.98).abs() < 1e-9,
        "within one of ten packets"
    );
    assert!((at(&met, 0.8) - 0.8).abs() < 1e-9, "others have come");
    let told = Cruise::new(PATH, Met::Never, &flow.est);
    assert!((at(&told, 0.92) - 0.92).abs() < 1e-9, "was not met before");
}

#[test]
fn a_narrow_path_is_wider_only_if_a_packet_more_passes() {
    // Ten packets in 40 ms.
    let narrow = PATH * 0.05;
    let mut flow = Flow::new();
    flow.path.learn(Some(narrow));
    flow.cruise = Cruise::new(narrow, Met::Queue, &flow.est);
    let (ride, at) = flow.until(narrow, PATH);
    assert_eq!(ride, Ride::Wider);
    assert!((1.1..1.2).contains(&(at / narrow)), "{}", at / narrow);
}

#[test]
fn beyond_an_edge_of_losses_a_path_is_wider_where_it_carries_more_than_is_known() {
    let mut flow = Flow::new();
    let edge = PATH * 0.9;
    flow.cruise = Cruise::new(edge, Met::Queue, &flow.est);
    let (ride, at) = flow.until(edge, PATH * 3.0);
    assert_eq!(ride, Ride::Wider);
    assert!(at < PATH, "{}", at / PATH);
    flow.cruise = Cruise::new(edge, Met::Loss, &flow.est);
    let (ride, at) = flow.until(edge, PATH * 3.0);
    assert_eq!(ride, Ride::Wider);
    assert!((1.1..1.2).contains(&(at / PATH)), "{}", at / PATH);
}

#[test]
fn before_its_edge_was_met_a_flow_only_climbs() {
    let mut flow = Flow::new();
    flow.cruise = Cruise::new(PATH, Met::Never, &flow.est);
    let mut rate = PATH;
    for _ in 0..8 {
        let Ride::On(next, Reason::Cruise | Reason::Wait) = flow.interval(rate, 1.0, PATH * 3.0, 1)
        else {
            panic!("left at {rate}")
        };
        rate = next;
    }
    assert!(
        rate > PATH * 1.1,
        "it finds what little it did not know: {rate}"
    );
}

#[test]
fn an_application_that_sends_less_keeps_the_rate() {
    let mut flow = Flow::new();
    for _ in 0..5 {
        let ride = flow.interval(PATH, 0.3, PATH, 1);
        assert_eq!(ride, Ride::On(PATH, Reason::AppLimited));
    }
}

#[test]
fn acks_that_come_together_end_no_cruise_at_a_higher_rate() {
    let mut flow = Flow::new();
    // Sent in 40 ms, arrived in 20.
    let acks: Vec<_> = (0..200).map(|i| (200 * i, 70_000 - 100 * i, 0)).collect();
    let raw = report(33, 1_000_000, &acks, INTERVAL_US);
    let mi = flow.est.observe(&raw, context(Some(PATH)));
    let params = Params::default();
    let view = View {
        mi: &mi,
        est: &flow.est,
        rate: PATH,
        pkt_bytes: PKT,
        params: &params,
    };
    let ride = flow.cruise.on_mi(&view, flow.path);
    assert!(
        matches!(ride, Ride::Shared(rate, _) | Ride::On(rate, _) if rate <= PATH),
        "{ride:?}"
    );
}
