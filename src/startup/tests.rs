use super::*;
use crate::estimate::SlotContext;
use crate::estimate::tests::report;

const PKT: f64 = 1000.0;
const RATE: Rate = Rate::from_bytes_per_sec(2e6);

/// What is known of a slot of 20 ms.
fn context(asked: Option<Rate>) -> SlotContext {
    SlotContext {
        asked,
        length: Micros::new(20_000),
        mss_bytes: PKT,
    }
}

/// 40 packets asked for, sent and received at `rate`.
fn full_slot(startup: &mut Startup, est: &mut Estimator, rate: Rate, at: u64) -> Verdict {
    let gap = (1e6 * PKT / rate.bytes_per_sec()) as u64;
    let acks: Vec<_> = (0..40).map(|i| (i * gap, 40_000, 0)).collect();
    let mi = est.observe(&report(33, at, &acks, 40 * gap), context(Some(rate)));
    startup.on_mi(&mi, est, rate, PKT, &Params::default())
}

/// 40 packets sent 0.5 ms apart (2 MB/s) after an idle path of 40 ms was seen; `rtt` and `lost` by packet number.
fn verdict(rtt: impl Fn(u64) -> u64, lost: impl Fn(u64) -> u64) -> Verdict {
    verdicts(1, rtt, lost)[0]
}

/// What arrives of such a slot at this time.
fn slot(est: &mut Estimator, at: u64, rtt: impl Fn(u64) -> u64, lost: impl Fn(u64) -> u64) -> Mi {
    let acks: Vec<_> = (0..40).map(|i| (i * 500, rtt(i), lost(i))).collect();
    est.observe(&report(33, at, &acks, 20_000), context(Some(RATE)))
}

/// The verdicts of some slots that are alike.
fn verdicts(slots: u64, rtt: impl Fn(u64) -> u64, lost: impl Fn(u64) -> u64) -> Vec<Verdict> {
    let params = Params::default();
    let mut est = Estimator::new(&params);
    est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
    let mut startup = Startup::new(Micros::ZERO);
    let judge = |at| {
        let mi = slot(&mut est, at, &rtt, &lost);
        startup.on_mi(&mi, &est, RATE, PKT, &params)
    };
    (1..=slots).map(|i| i * 100_000).map(judge).collect()
}

#[test]
fn it_doubles_per_rtt_since_the_slot_was_sent() {
    // 20 ms of slot and 40 ms of RTT; no report makes more of it than one and a half RTTs.
    let Verdict::Grow(rate, Reason::Grow) = verdict(|i| 40_000 + 20 * (i % 3), |_| 0) else {
        panic!()
    };
    let rtts: f64 = 1.0 + 20.0 / 40.02;
    assert!((rate / (RATE * rtts.exp2()) - 1.0).abs() < 0.01, "{rate}");
}

#[test]
fn it_ends_where_something_else_limits_the_flow() {
    let params = Params::default();
    let mut est = Estimator::new(&params);
    let (mut startup, mut rate) = (Startup::new(Micros::ZERO), RATE);
    for round in 0..60_u64 {
        // 40 packets in 20 ms, whatever the rate.
        let acks: Vec<_> = (0..40).map(|i| (i * 500, 40_000, 0)).collect();
        let raw = report(37, 20_000 * round, &acks, 20_000);
        let mi = est.observe(&raw, context(Some(RATE * 3.0)));
        match startup.on_mi(&mi, &est, rate, PKT, &params) {
            Verdict::Grow(next, _) => rate = next,
            Verdict::Leave(next, reason) => {
                assert_eq!(reason, Reason::Plateau);
                assert!((next / RATE - 1.5).abs() < 0.1, "{next}");
                return;
            }
            _ => {}
        }
        assert!(rate <= RATE * 3.2, "{rate}");
    }
    panic!("it goes on for ever at {rate}");
}

#[test]
fn ten_percent_of_loss_is_tolerated_and_a_third_is_not() {
    let light = verdict(|_| 40_000, |i| u64::from(i % 10 == 0));
    assert!(matches!(light, Verdict::Grow(..)), "{light:?}");
    let heavy = verdict(|_| 40_000, |i| u64::from(i % 2 == 0));
    assert!(
        matches!(heavy, Verdict::Leave(_, Reason::FullLoss)),
        "{heavy:?}"
    );
}

#[test]
fn losses_slow_it_and_their_sum_ends_it() {
    let rtt = |i| 40_000 + 20 * (i % 3);
    let grown = |lost| match verdict(rtt, |i| u64::from(i < lost)) {
        Verdict::Grow(rate, reason) => (rate, reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(grown(1), grown(0), "one tells nothing");
    assert_eq!(grown(2).1, Reason::GrowLess);
    assert!(grown(2).0 < grown(0).0 && grown(4).0 < grown(2).0);
    // A fifth is within the deviations of one slot.
    let fifth = verdicts(2, rtt, |i| u64::from(i % 4 == 0));
    assert!(matches!(fifth[0], Verdict::Wait(_)), "{fifth:?}");
    let ended = matches!(fifth[1], Verdict::Leave(_, Reason::FullLoss));
    assert!(ended, "{fifth:?}");
}

#[test]
fn in_a_crowd_a_slot_that_loses_a_fifth_ends_it() {
    let ends = |mut startup: Startup| {
        let params = Params::default();
        let mut est = Estimator::new(&params);
        let mi = slot(&mut est, 100_000, |_| 40_000, |i| 11 * u64::from(i == 7));
        let verdict = startup.on_mi(&mi, &est, RATE, PKT, &params);
        matches!(verdict, Verdict::Leave(_, Reason::FullLoss))
    };
    assert!(!ends(Startup::new(Micros::ZERO)), "they may be the path's");
    assert!(ends(Startup::in_crowd(Micros::ZERO)));
}

#[test]
fn a_restart_bears_little_more_than_the_paths_own_losses() {
    let params = Params::default();
    let mut est = Estimator::new(&params);
    let losing = |est: &mut Estimator, at: u64, every: u64| {
        let lost = |i| u64::from(i % every == 0);
        slot(est, at * 100_000, |_| 40_000, lost)
    };
    est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
    est.observe(&report(9, 1, &[(0, 140_000, 0); 8], 1000), context(None));
    for at in 1..20 {
        losing(&mut est, at, 20);
    }
    let ends = |mut startup: Startup, every: u64| {
        let mut est = est.clone();
        (20..40).any(|at| {
            let mi = losing(&mut est, at, every);
            let verdict = startup.on_mi(&mi, &est, RATE, PKT, &params);
            matches!(verdict, Verdict::Leave(_, Reason::FullLoss))
        })
    };
    let restart = || Startup::again(&est, false);
    assert!(!ends(restart(), 20), "what the path always loses");
    assert!(ends(restart(), 8), "an eighth");
    assert!(!ends(Startup::new(Micros::ZERO), 8), "a start cannot know");
}

/// The verdicts of a start of which the train told this, on slots of 40 packets, 50 ms apart, at RTTs within 1 ms of
/// these; each slot loses so many packets.
fn after_train(train: Option<Rate>, rtts: &[u64], lost: u64) -> Vec<Verdict> {
    let params = Params::default();
    let mut est = Estimator::new(&params);
    est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
    let mut startup = Startup::on_path(Micros::ZERO, train, 0);
    let verdicts = rtts.iter().zip(1..).map(|(&rtt, i)| {
        let rtt = |n| rtt - 1000 + 1000 * (n % 3);
        let mi = slot(&mut est, i * 50_000, rtt, |n| if n == 7 { lost } else { 0 });
        startup.on_mi(&mi, &est, RATE, PKT, &params)
    });
    verdicts.collect()
}

#[test]
fn a_standing_queue_ends_it() {
    let full = after_train(Some(RATE), &[51_500], 0)[0];
    assert!(
        matches!(full, Verdict::Leave(rate, Reason::FullQueue) if rate <= RATE),
        "{full:?}"
    );
}

#[test]
fn where_the_train_tells_nothing_a_long_rtt_that_does_not_grow_is_no_queue() {
    let reasons = |train, rtts: &[u64], lost| -> Vec<&str> {
        let name = |verdict| match verdict {
            Verdict::Wait(reason) | Verdict::Grow(_, reason) | Verdict::Leave(_, reason) => {
                reason.name()
            }
            Verdict::Longer => "longer",
        };
        let verdicts = after_train(train, rtts, lost);
        verdicts.into_iter().map(name).collect()
    };
    let stays = reasons(None, &[80_000; 5], 0);
    assert_eq!(stays, ["watch", "watch", "watch", "watch", "grow"]);
    let grows = reasons(None, &[80_000, 85_000, 92_000], 0);
    assert_eq!(grows, ["watch", "watch", "full-queue"]);
    assert_eq!(reasons(None, &[80_000], 1), ["full-queue"]);
    // What comes on top of it later is a queue.
    let later = reasons(None, &[80_000, 80_000, 80_000, 80_000, 95_000, 108_000], 0);
    assert_eq!(later[4..], ["watch", "full-queue"]);
}

#[test]
fn jitter_without_loss_is_no_queue() {
    // 20 ms wide: the mean RTT is more than a quarter above the smallest.
    let jitter = |i: u64| 41_000 + 1700 * ((i * 7) % 13);
    let clean = verdict(jitter, |_| 0);
    assert!(matches!(clean, Verdict::Grow(..)), "{clean:?}");
    let lossy = verdict(jitter, |i| u64::from(i == 7));
    assert!(
        matches!(lossy, Verdict::Leave(_, Reason::FullQueue)),
        "{lossy:?}"
    );
}

/// So many others take what they can get of a path of 40 ms that carries so much, if one of them knows.
fn known(active: u32, carries: Option<Rate>) -> Known {
    Known {
        rtt_min: Micros::new(40_000),
        share: Rate::ZERO,
        is_all: false,
        active,
        carries,
    }
}

/// On a path of which the train tells this rate, where so many others take what they can get.
fn on_path(others: u32, path: Rate) -> Startup {
    let mut first = Startup::new(Micros::ZERO);
    first.hear(known(others, None));
    Startup::on_path(Micros::ZERO, Some(path), first.others())
}

#[test]
fn the_path_is_divided_among_those_who_take_what_they_can_get() {
    let second = |others, window: f64| on_path(others, RATE).second_rate(RATE * window).unwrap();
    let part = |rate: Rate| (rate / RATE * 1e3).round() / 1e3;
    assert_eq!(part(second(1, 0.1)), 0.4);
    assert_eq!(part(second(3, 0.05)), 0.2);
    assert_eq!(part(second(9, 0.05)), 0.15, "three initial windows");
    assert_eq!(part(second(9, 1.0)), 0.8, "a narrow path");

    let ends_at = |others| {
        let params = Params::default();
        let (mut startup, mut est) = (on_path(others, RATE), Estimator::new(&params));
        est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
        let mi = slot(&mut est, 100_000, |i| 40_000 + 100 * i, |_| 0);
        match startup.on_mi(&mi, &est, RATE, PKT, &params) {
            Verdict::Leave(rate, Reason::FullSlope) => part(rate),
            other => panic!("{other:?}"),
        }
    };
    assert!(ends_at(0) > 0.8, "all that arrived");
    assert_eq!(ends_at(3), 0.25);
}

#[test]
fn what_others_know_of_the_path_bounds_where_a_start_ends() {
    let most = |mut startup: Startup, others, carries| {
        startup.hear(known(others, carries));
        startup
            .others
            .most(startup.path())
            .map(|rate| (rate / RATE * 1e3).round() / 1e3)
    };
    let first = || Startup::new(Micros::ZERO);
    assert_eq!(most(first(), 2, Some(RATE)), Some(0.5));
    assert_eq!(most(first(), 0, Some(RATE)), None, "nobody takes any of it");
    assert_eq!(most(first(), 2, None), None, "nobody knows");
    let told = || on_path(2, RATE * 0.6);
    assert_eq!(most(told(), 2, Some(RATE)), Some(0.2), "its own train");
}

/// What a start grows to from this rate, which arrives, where three others take what they can get of a path that carries
/// so much.
fn grows_among_others(mut startup: Startup, rate: Rate, carries: Rate) -> Option<f64> {
    let mut est = Estimator::new(&Params::default());
    startup.hear(known(3, Some(carries)));
    match full_slot(&mut startup, &mut est, rate, 100_000) {
        Verdict::Grow(to, _) => Some((to / rate * 1e3).round() / 1e3),
        Verdict::Wait(Reason::AppLimited) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn among_others_a_restart_grows_to_its_part_and_no_further() {
    let est = Estimator::new(&Params::default());
    let again = || Startup::again(&est, false);
    assert_eq!(grows_among_others(again(), RATE, RATE * 4.4), Some(1.1));
    assert_eq!(grows_among_others(again(), RATE, RATE * 3.0), None);
    let free = grows_among_others(again(), RATE, RATE * 100.0);
    assert!(free.is_some_and(|times| times > 1.1), "{free:?}");
    for start in [Startup::wider(&est), Startup::new(Micros::ZERO)] {
        assert!(grows_among_others(start, RATE, RATE * 3.0) > Some(1.1));
    }
}

#[test]
fn what_the_train_tells_bounds_the_ramp_until_more_arrives() {
    let mut est = Estimator::new(&Params::default());
    let mut startup = on_path(0, RATE);
    assert_eq!(startup.second_rate(RATE), Some(RATE * SECOND_PART));
    assert_eq!(startup.second_rate(RATE * 0.01), Some(RATE * 0.16));
    assert_eq!(startup.within_path(RATE * 3.0), RATE);
    let mut grown = |rate, at| full_slot(&mut startup, &mut est, rate, at);
    let to = |verdict: Verdict| match verdict {
        Verdict::Grow(rate, _) => rate / RATE,
        other => panic!("{other:?}"),
    };
    let below = to(grown(RATE * 0.8, 100_000));
    assert!(
        (below - 1.0).abs() < 1e-9,
        "as far as the train tells: {below}"
    );
    let at = to(grown(RATE, 120_000));
    assert!((at - BEYOND_TRAIN).abs() < 0.05, "{at}");
    let low = to(grown(RATE * 1.3, 140_000));
    assert!(low > 1.3 * BEYOND_TRAIN + 0.1, "the train was low: {low}");
    assert!(low < 1.3 * BEYOND_LOW_TRAIN + 1e-9, "{low}");
    let wrong = to(grown(RATE * 2.1, 160_000));
    assert!(
        wrong > 2.1 * BEYOND_TRAIN + 0.1,
        "the train was wrong: {wrong}"
    );
}

#[test]
fn a_growing_queue_ends_it_at_the_rate_that_arrived() {
    // +100 us per 500 us: a capacity of 1 / 1.2 of the rate; the mean queue stays below 4 ms.
    let full = verdict(|i| 40_000 + 100 * i, |_| 0);
    let Verdict::Leave(rate, Reason::FullSlope) = full else {
        panic!("{full:?}")
    };
    assert!((rate / (RATE * LEAVE) - 1.0 / 1.2).abs() < 0.02, "{rate}");
}

#[test]
fn a_growing_queue_within_jitter_ends_it_when_it_goes_on() {
    // +60 us per 500 us, four to five standard errors in RTTs that jitter by 3 ms.
    let rtt = |i: u64| 40_000 + 60 * i + 300 * ((i * 7 + 5) % 11);
    let verdicts = verdicts(2, rtt, |_| 0);
    assert!(
        matches!(
            verdicts[..],
            [
                Verdict::Grow(_, Reason::GrowLess),
                Verdict::Leave(_, Reason::FullSlope)
            ]
        ),
        "{verdicts:?}"
    );
}

#[test]
fn slow_arrivals_end_it() {
    // A step in the RTT of single packets: no slope to speak of, but the ACKs span 1.4 times the sending time.
    let full = verdict(|i| if i < 39 { 40_000 } else { 50_000 }, |_| 0);
    assert!(
        matches!(
            full,
            Verdict::Leave(_, Reason::FullSpacing | Reason::FullSlope)
        ),
        "{full:?}"
    );
}

#[test]
fn a_hint_of_a_slope_grows_less() {
    let hint = verdict(|i| 40_000 + 15 * i, |_| 0);
    let Verdict::Grow(rate, Reason::GrowLess) = hint else {
        panic!("{hint:?}")
    };
    assert!(rate < RATE * 1.25, "{rate}");
}

#[test]
fn half_empty_slots_and_few_samples_do_not_grow() {
    let params = Params::default();
    let mut est = Estimator::new(&params);
    let mut startup = Startup::new(Micros::ZERO);
    let sparse: Vec<_> = (0..10).map(|i| (i * 2000, 40_000, 0)).collect();
    let mi = est.observe(&report(34, 100_000, &sparse, 20_000), context(Some(RATE)));
    assert_eq!(
        startup.on_mi(&mi, &est, RATE, PKT, &params),
        Verdict::Wait(Reason::AppLimited)
    );
    let mi = est.observe(
        &report(33, 200_000, &[(0, 40_000, 0); 3], 1500),
        context(Some(RATE)),
    );
    assert_eq!(
        startup.on_mi(&mi, &est, RATE, PKT, &params),
        Verdict::Wait(Reason::Wait)
    );
}

#[test]
fn bursts_of_an_application_bound_the_rate_by_its_goodput() {
    let mut est = Estimator::new(&Params::default());
    let mut startup = Startup::new(Micros::ZERO);
    let mut rate = RATE;
    // One full slot in ten, each judged alone: 0.2 MB/s in the mean however fast the burst.
    for round in 0..40_u64 {
        if let Verdict::Grow(next, _) = full_slot(&mut startup, &mut est, rate, 200_000 * round) {
            rate = next;
        }
    }
    // The first burst alone cannot be told from a flow that fills its slots.
    assert!(rate <= RATE * 3.0, "{rate}");
}
