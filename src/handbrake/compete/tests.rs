use super::*;
use crate::handbrake::tests::{RATE, interval, view};

/// What the rule makes of a drain that ended at `rtt`, by `spread` µs above its smallest, long after the one before.
fn drain(rule: &mut CompeteRule, params: &Params, rtt: u64, spread: u64) -> Effect {
    rule.returned = 0;
    drain_soon(rule, params, rtt, spread)
}

/// The same soon after the one before.
fn drain_soon(rule: &mut CompeteRule, params: &Params, rtt: u64, spread: u64) -> Effect {
    wait(rule);
    with_view(params, rtt, spread, 1, |view| rule.drained(view, false))
}

/// A back-off of the climber, half a second after the one before.
fn back_off(rule: &mut CompeteRule, params: &Params, rtt: u64) -> Effect {
    wait(rule);
    with_view(params, rtt, 2000, 1, |view| rule.backed_off(view, false))
}

/// Half a second passes, in which the queue goes on standing if it stood.
fn wait(rule: &mut CompeteRule) {
    rule.suspected = rule.suspected.map(|since| since.min(Micros::new(1)));
}

fn with_view<T>(
    params: &Params,
    rtt: u64,
    spread: u64,
    lost_every: u64,
    tell: impl FnOnce(&View<'_>) -> T,
) -> T {
    let mut seen = interval(RATE, rtt, lost_every);
    if let Some(stats) = &mut seen.1.rtt {
        stats.mean = stats.min + Micros::new(spread);
    }
    tell(&view(params, &seen))
}

#[test]
fn a_drain_that_works_means_nothing() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    for _ in 0..10 {
        assert_eq!(drain(&mut rule, &params, 42_000, 0), Effect::Fine);
    }
    assert_eq!(rule.in_vain, 0);
}

#[test]
fn a_queue_that_comes_back_after_drain_after_drain_is_shared() {
    let params = Params::default();
    let effects = |rtts: [u64; 5]| {
        let mut rule = CompeteRule::default();
        drain(&mut rule, &params, 42_000, 2000);
        rtts.map(|rtt| drain_soon(&mut rule, &params, rtt, 2000))
    };
    let shared = effects([42_000; 5]).map(|effect| effect == Effect::Shared);
    assert_eq!(shared, [false, false, true, false, false]);
    let mixed = effects([60_000, 42_000, 60_000, 42_000, 60_000]);
    assert!(mixed.contains(&Effect::Shared), "{mixed:?}");
    let in_vain = effects([60_000, 64_000, 68_000, 72_000, 76_000]);
    assert!(!in_vain.contains(&Effect::Shared), "{in_vain:?}");
}

#[test]
fn a_flat_rtt_that_no_drain_lowers_is_the_paths() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    assert_eq!(
        drain(&mut rule, &params, 75_000, 100),
        Effect::Fine,
        "once is not enough"
    );
    let longer = Effect::LongerPath(Micros::new(75_000));
    assert_eq!(drain(&mut rule, &params, 75_000, 100), longer);
}

#[test]
fn among_others_it_takes_twice_as_many() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    let effects = [(); 4].map(|()| {
        rule.returned = 0;
        with_view(&params, 75_000, 100, 1, |view| rule.drained(view, true))
    });
    assert_eq!(effects[..3], [Effect::Fine; 3]);
    assert_eq!(effects[3], Effect::LongerPath(Micros::new(75_000)));
}

#[test]
fn a_full_queue_is_flat_but_loses_packets() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    for _ in 0..3 {
        let effect = with_view(&params, 79_000, 0, 10, |view| rule.drained(view, false));
        assert_eq!(effect, Effect::Fine);
    }
}

#[test]
fn a_queue_that_stands_and_moves_is_a_competitors() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    for rtt in [60_000, 64_000, 68_000, 72_000] {
        assert_eq!(drain(&mut rule, &params, rtt, 2000), Effect::Fine);
    }
    let Effect::Competitor {
        until,
        from,
        window_pkts,
    } = drain(&mut rule, &params, 76_000, 2000)
    else {
        panic!()
    };
    assert_eq!((from, window_pkts), (RATE, None));
    let first = with_view(&params, 76_000, 0, 1, |view| until - view.est.now());
    assert_eq!(first, params.compete_secs);
    // Again at once: fewer actions are enough, it goes on where it was, and lasts twice as long.
    let now = with_view(&params, 76_000, 0, 1, |view| view.est.now());
    rule.competed(321.0, now, &params);
    assert_eq!(drain(&mut rule, &params, 60_000, 2000), Effect::Fine);
    let Effect::Competitor {
        until, window_pkts, ..
    } = drain(&mut rule, &params, 70_000, 2000)
    else {
        panic!()
    };
    assert_eq!(window_pkts, Some(321.0));
    let second = with_view(&params, 70_000, 0, 1, |view| until - view.est.now());
    assert_eq!(second, params.compete_secs * 2.0);
}

#[test]
fn a_queue_that_has_not_stood_for_long_is_nobodys_yet() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    let act = |rule: &mut CompeteRule, round: u64| {
        with_view(&params, 60_000 + round * 1500, 2000, 1, |view| {
            rule.drained(view, false)
        })
    };
    for round in 0..10 {
        assert_eq!(act(&mut rule, round), Effect::Fine, "all at one time");
    }
    wait(&mut rule);
    assert!(matches!(act(&mut rule, 10), Effect::Competitor { .. }));
}

#[test]
fn an_empty_queue_ends_all_suspicion() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    for round in 0..20 {
        assert_eq!(
            drain(&mut rule, &params, 60_000 + round * 500, 2000),
            Effect::Fine
        );
        if round % 3 == 2 {
            with_view(&params, 41_000, 0, 1, |view| rule.note(view));
        }
    }
}

#[test]
fn it_can_be_switched_off_and_routes_are_still_followed() {
    let params = Params {
        no_handbrake: "compete".parse().unwrap(),
        ..Params::default()
    };
    let mut rule = CompeteRule::default();
    for round in 0..20 {
        assert_eq!(
            drain(&mut rule, &params, 60_000 + round * 1500, 2000),
            Effect::Fine
        );
    }
    drain(&mut rule, &params, 75_000, 0);
    let longer = Effect::LongerPath(Micros::new(75_000));
    assert_eq!(drain(&mut rule, &params, 75_000, 0), longer);
}

#[test]
fn a_fall_below_an_adopted_rtt_makes_it_doubtful() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    drain(&mut rule, &params, 75_000, 0);
    assert!(matches!(
        drain(&mut rule, &params, 75_000, 0),
        Effect::LongerPath(_)
    ));
    with_view(&params, 60_000, 0, 1, |view| rule.note(view));
    for _ in 0..4 {
        assert_eq!(
            drain(&mut rule, &params, 75_000, 0),
            Effect::Fine,
            "not believed again"
        );
    }
    let fifth = drain(&mut rule, &params, 75_000, 0);
    assert!(matches!(fifth, Effect::Competitor { .. }), "{fifth:?}");
}

#[test]
fn back_offs_that_lower_the_queue_are_no_suspicion() {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    for rtt in [78_000, 70_000, 62_000, 79_000, 71_000, 63_000] {
        let effect = with_view(&params, rtt, 2000, 1, |view| rule.backed_off(view, false));
        assert_eq!(effect, Effect::Fine);
    }
    assert!(rule.in_vain <= 1, "{}", rule.in_vain);
}

#[test]
fn who_leaves_less_of_the_rtt_than_cubic_is_no_competitor() {
    let params = Params::default();
    // A dozen drains that each find a queue, and swing between these RTTs.
    let competes = |low: u64, high: u64| {
        let mut rule = CompeteRule::default();
        let mut rtts = [low, (low + high) / 2, high].into_iter().cycle().take(12);
        rtts.any(|rtt| {
            matches!(
                drain(&mut rule, &params, rtt, 2000),
                Effect::Competitor { .. }
            )
        })
    };
    assert!(competes(100_000, 140_000), "as Cubic's, which leaves .7");
    assert!(!competes(90_000, 140_000), "others yield");
}

#[test]
fn a_crowd_that_starts_is_no_competitor_while_its_queue_shrinks() {
    let params = Params::default();
    let competes_after = |rtt: fn(u64) -> u64| {
        let mut rule = CompeteRule::default();
        let competes = |k| {
            with_view(&params, rtt(k), 2000, 1, |view| rule.note(view));
            matches!(
                back_off(&mut rule, &params, rtt(k)),
                Effect::Competitor { .. }
            )
        };
        (0..40).position(competes)
    };
    // From four times the path's 40 ms; up every second time, so that each back-off seems to lower it now and then.
    let goes_on = |k| 160_000 + 12_000 * (k % 2);
    let shrinks = |k: u64| 40_000 + (120e3 * 0.9_f64.powi((k / 2) as i32)) as u64 + 4000 * (k % 2);
    assert_eq!(competes_after(goes_on), Some(11));
    let suspected = competes_after(shrinks);
    assert!(suspected.is_none_or(|k| k > 20), "{suspected:?}");
}

/// A rule after its first competition, which ended at 321 packets.
fn after_a_competition(params: &Params) -> CompeteRule {
    let mut rule = CompeteRule::default();
    for rtt in [60_000, 64_000, 68_000, 72_000, 76_000] {
        drain(&mut rule, params, rtt, 2000);
    }
    let now = with_view(params, 76_000, 0, 1, |view| view.est.now());
    rule.competed(321.0, now, params);
    rule
}

#[test]
fn a_queue_that_is_empty_at_the_test_is_still_expected_again() {
    let params = Params::default();
    let mut rule = after_a_competition(&params);
    assert_eq!(drain(&mut rule, &params, 42_000, 0), Effect::Fine);
    assert_eq!(drain(&mut rule, &params, 60_000, 2000), Effect::Fine);
    let second = drain(&mut rule, &params, 64_000, 2000);
    assert!(
        matches!(second, Effect::Competitor { window_pkts: Some(pkts), .. } if pkts == 321.0),
        "{second:?}"
    );
    // Long afterwards it is forgotten.
    let mut rule = after_a_competition(&params);
    rule.expected_until = Micros::ZERO;
    for rtt in [42_000, 60_000, 64_000, 68_000, 72_000] {
        assert_eq!(drain(&mut rule, &params, rtt, 2000), Effect::Fine, "{rtt}");
    }
    let fifth = drain(&mut rule, &params, 76_000, 2000);
    assert!(
        matches!(
            fifth,
            Effect::Competitor {
                window_pkts: None,
                ..
            }
        ),
        "{fifth:?}"
    );
}

#[test]
fn after_others_have_yielded_suspicion_begins_anew() {
    let params = Params::default();
    let mut rule = after_a_competition(&params);
    rule.yielded_to();
    for rtt in [60_000, 64_000, 68_000, 72_000] {
        assert_eq!(drain(&mut rule, &params, rtt, 2000), Effect::Fine);
    }
}

#[test]
fn a_queue_that_stands_through_a_dozen_back_offs_is_a_competitors() {
    let params = Params::default();
    // Up and down, so that each back-off seems to lower it now and then.
    let back_off = |rule: &mut CompeteRule, k: u64| {
        let rtt = if k.is_multiple_of(2) { 64_000 } else { 58_000 };
        back_off(rule, &params, rtt)
    };
    let effects = |had: f64| {
        let mut rule = CompeteRule {
            from: RATE * had,
            ..CompeteRule::default()
        };
        (0..12).map(|k| back_off(&mut rule, k)).collect::<Vec<_>>()
    };
    assert_eq!(effects(2.0)[..11], [Effect::Fine; 11]);
    let begins_at = |had| match effects(had)[11] {
        Effect::Competitor { from, .. } => from,
        other => panic!("{other:?}"),
    };
    assert_eq!(begins_at(2.0), RATE * 2.0, "what it had");
    assert_eq!(begins_at(17.0), RATE * AT_ONCE, "but not much more at once");
    // A crowd's queue is tolerable after a few.
    let mut rule = CompeteRule::default();
    for k in 0..100 {
        assert_eq!(back_off(&mut rule, k), Effect::Fine);
        if k % 11 == 10 {
            rule.climbed();
        }
    }
}

#[test]
fn where_flows_to_the_same_address_have_all_the_queue_is_theirs() {
    let params = Params::default();
    let competes = |is_all_ours| {
        let mut rule = CompeteRule::default();
        assert!(!rule.suspects());
        (0..40).any(|k| {
            rule.hear(is_all_ours);
            let effect = back_off(&mut rule, &params, 160_000 + 12_000 * (k % 2));
            assert!(rule.suspects(), "a queue stands");
            matches!(effect, Effect::Competitor { .. })
        })
    };
    assert!(competes(false));
    assert!(!competes(true));
}

#[test]
fn where_much_is_lost_meanwhile_a_crowd_holds_the_queue() {
    let params = Params::default();
    let competes = |lost_every: u64| {
        let mut rule = CompeteRule::default();
        (0..12).any(|_| {
            with_view(&params, 64_000, 2000, lost_every, |view| rule.note(view));
            back_off(&mut rule, &params, 64_000) != Effect::Fine
        })
    };
    assert!(competes(50), "of a fiftieth");
    assert!(!competes(15));
}

#[test]
fn who_loses_more_than_beside_cubic_competes_with_a_crowd() {
    let params = Params::default();
    let seen_after = |lost_every: u64| {
        let mut rule = CompeteRule::default();
        (0..1000).position(|_| {
            with_view(&params, 64_000, 2000, lost_every, |view| {
                rule.is_crowd(view)
            })
        })
    };
    assert_eq!(seen_after(50), None, "of a fiftieth");
    let seen = seen_after(15).unwrap();
    assert!(seen > 2, "one overflow takes many at once: {seen}");
}

/// Whether a climber competes that backs off at these RTTs, in ms, and climbs before each of them.
fn competes(rtts: impl IntoIterator<Item = u64>) -> bool {
    let (params, mut rule) = (Params::default(), CompeteRule::default());
    rtts.into_iter().any(|rtt| {
        rule.climbed();
        with_view(&params, rtt * 1000 - 500, 2000, 1, |view| rule.note(view));
        matches!(
            back_off(&mut rule, &params, rtt * 1000),
            Effect::Competitor { .. }
        )
    })
}

#[test]
fn a_queue_that_grows_through_back_offs_is_a_competitors() {
    assert!(competes((60..76).step_by(2)));
    assert!(!competes((60..74).step_by(2)), "seven");
    assert!(
        !competes([60, 62, 61, 63, 62, 64, 63, 64]),
        "it does not grow"
    );
    let crowd = [60, 68, 76, 54, 60, 68, 76, 54, 60, 68, 76, 54];
    assert!(!competes(crowd), "it falls, since all yield");
}

#[test]
fn a_queue_that_was_empty_in_one_competition_is_not_empty_since_then_in_the_next() {
    let params = Params::default();
    let mut rule = after_a_competition(&params);
    let is_alone =
        |rule: &mut CompeteRule| with_view(&params, 40_000, 0, 1, |view| rule.is_alone(view));
    assert!(!is_alone(&mut rule));
    with_view(&params, 70_000, 2000, 1, |view| rule.competitor(view));
    assert_eq!(rule.gone_since, Micros::ZERO);
}
