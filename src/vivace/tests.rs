use super::*;
use crate::params::Algorithm;
use crate::units::Micros;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const WIDE: Limits = Limits {
    low: Rate::from_mbit(0.1),
    high: Rate::from_mbit(5000.0),
    near_edge: Rate::from_mbit(0.2),
    shared: false,
};

/// The core with the paper's constants.
fn bare() -> Params {
    Params {
        algorithm: Algorithm::Vivace,
        ..Params::default()
    }
}

/// A score without a queue.
fn score(rate: Rate, utility: f64) -> Option<Score> {
    Some(Score {
        rate,
        utility,
        rtt: Micros::from_millis(40),
        grew: false,
    })
}

/// Runs rounds in a field of utility and returns (rate, reason) after each.
fn walk(start: f64, rounds: usize, seed: u64, field: impl Fn(f64) -> f64) -> Vec<(f64, Reason)> {
    let (params, mut rng) = (bare(), Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut core = Vivace::new(Rate::from_mbit(start), &params, &mut rng);
    let mut path = Vec::new();
    while path.len() < rounds {
        for (index, rate) in core.trials().into_iter().enumerate() {
            let judged = score(rate, field(rate.mbit()));
            if let Some(reason) = core.judge(index, judged, WIDE, &params, &mut rng) {
                path.push((core.rate().mbit(), reason));
                break;
            }
        }
    }
    path
}

#[test]
fn it_climbs_to_the_peak_of_a_concave_field_from_both_sides() {
    for seed in 0..5 {
        for start in [4.0, 400.0] {
            let path = walk(start, 120, seed, |x| -(x / 40.0).ln().powi(2) * 30.0);
            let end = path.iter().rev().take(20).map(|(x, _)| x).sum::<f64>() / 20.0;
            assert!(
                (end / 40.0 - 1.0).abs() < 0.15,
                "seed {seed} from {start}: {end}"
            );
        }
    }
}

#[test]
fn trajectory_snapshot_up_a_slope_and_back_from_an_edge() {
    // Utility x^0.9 up to 20 Mbit/s, and a queue beyond.
    let field = |x: f64| {
        if x <= 20.0 {
            x.powf(0.9)
        } else {
            x.powf(0.9) - 900.0 * (x - 20.0)
        }
    };
    let path = walk(10.0, 12, 1, field);
    let text: Vec<_> = path
        .iter()
        .map(|(x, reason)| format!("{x:.2} {reason}"))
        .collect();
    assert_eq!(
        text,
        [
            "11.02 move-up",
            "11.57 move-up",
            "12.73 move-up",
            "14.63 move-up",
            "17.56 move-up",
            "21.95 move-up",
            "17.56 move-over",
            "19.09 move-up",
            "20.04 move-up",
            "19.09 move-over",
            "17.23 move-down",
            "18.13 move-over",
        ]
    );
}

#[test]
fn trials_are_mirrored_whichever_comes_first() {
    let params = bare();
    let mut seen = [false; 2];
    for seed in 0..20 {
        let core = Vivace::new(
            Rate::from_mbit(10.0),
            &params,
            &mut Xoshiro256PlusPlus::seed_from_u64(seed),
        );
        let [a, b, c, d] = core.trials();
        assert_eq!((a, b), (d, c));
        assert!((a.max(b).mbit() - 10.5).abs() < 1e-9 && (a.min(b).mbit() - 9.5).abs() < 1e-9);
        seen[usize::from(a > b)] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_linear_drift_decides_nothing() {
    let (params, mut rng) = (bare(), Xoshiro256PlusPlus::seed_from_u64(3));
    for drift in [-5.0, 5.0] {
        let mut core = Vivace::new(Rate::from_mbit(10.0), &params, &mut rng);
        let trials = core.trials();
        let verdict = (0..4).find_map(|i| {
            core.judge(
                i,
                score(trials[i], drift * i as f64),
                WIDE,
                &params,
                &mut rng,
            )
        });
        assert_eq!(verdict, Some(Reason::ProbeAgain));
    }
}

#[test]
fn steps_keep_their_bounds_and_undecided_probes_theirs() {
    let steep = walk(10.0, 8, 1, |x| 1e6 * x);
    for (before, after) in steep.iter().zip(&steep[1..]) {
        assert!(after.0 / before.0 <= 1.25 + 1e-9, "{before:?} {after:?}");
    }
    assert!(
        (steep[0].0 - 10.5 * 1.05).abs() < 1e-9,
        "the first step is bounded by 5 %: {steep:?}"
    );
    let flat = walk(10.0, 2, 1, |x| 1e-9 * x);
    assert!(
        (flat[1].0 / flat[0].0 - 1.01).abs() < 1e-9,
        "at least 1 %: {flat:?}"
    );

    let (params, mut rng) = (bare(), Xoshiro256PlusPlus::seed_from_u64(3));
    let mut core = Vivace::new(Rate::from_mbit(10.0), &params, &mut rng);
    for _ in 0..30 {
        let trials = core.trials();
        for (i, rate) in trials.into_iter().enumerate() {
            core.judge(i, score(rate, 0.0), WIDE, &params, &mut rng);
        }
    }
    assert!(core.spread <= params.probe_step_max.get());
}

#[test]
fn steps_near_an_edge_are_small_until_it_is_passed() {
    let edge = 12.0;
    let (params, mut rng) = (bare(), Xoshiro256PlusPlus::seed_from_u64(1));
    let mut core = Vivace::new(Rate::from_mbit(10.0), &params, &mut rng);
    core.set_edge(Some(Edge {
        rate: Rate::from_mbit(edge),
        lost: false,
    }));
    let mut last = 10.5;
    let mut forgotten = false;
    for _ in 0..30 {
        for (index, rate) in core.trials().into_iter().enumerate() {
            let judged = score(rate, 1e6 * rate.mbit());
            if core.judge(index, judged, WIDE, &params, &mut rng).is_some() {
                break;
            }
        }
        let rate = core.rate().mbit();
        let least = last * 0.01;
        let near = WIDE.near_edge.mbit();
        if forgotten {
            assert!(rate - last > 2.0 * least, "{last} to {rate}");
        } else {
            let most = ((edge - last) / 2.0).max(last - edge).max(near);
            assert!(rate - last <= most + 1e-9, "{last} to {rate}");
        }
        forgotten = rate >= edge * 1.1;
        assert_eq!(core.edge().is_none(), forgotten);
        last = rate;
    }
    assert!(forgotten, "{last}");
}

#[test]
fn beside_others_all_come_back_to_an_edge_by_the_same_steps() {
    let shared = Limits {
        shared: true,
        near_edge: Rate::from_mbit(0.5),
        ..WIDE
    };
    let (params, mut rng) = (bare(), Xoshiro256PlusPlus::seed_from_u64(1));
    let mut first_step = |rate, lost| {
        let mut core = Vivace::new(Rate::from_mbit(rate), &params, &mut rng);
        let edge = Rate::from_mbit(rate * 1.2);
        core.set_edge(Some(Edge { rate: edge, lost }));
        for (index, rate) in core.trials().into_iter().enumerate() {
            core.judge(
                index,
                score(rate, 1e6 * rate.mbit()),
                shared,
                &params,
                &mut rng,
            );
        }
        core.rate().mbit() - rate
    };
    assert!((first_step(10.0, false) - 0.5).abs() < 1e-9);
    assert!((first_step(40.0, false) - 0.5).abs() < 1e-9);
    assert!(
        first_step(40.0, true) > 1.0,
        "half of the way where it lost packets"
    );
}

#[test]
fn it_remembers_the_shortest_rtt_of_the_trials_that_chose() {
    let (params, mut rng) = (bare(), Xoshiro256PlusPlus::seed_from_u64(3));
    let mut core = Vivace::new(Rate::from_mbit(10.0), &params, &mut rng);
    for (i, rtt) in [42, 41, 43, 44].into_iter().enumerate() {
        assert_eq!(core.calm(), None);
        let trial = Score {
            rtt: Micros::from_millis(rtt),
            ..score(core.trials()[i], core.trials()[i].mbit()).unwrap()
        };
        core.judge(i, Some(trial), WIDE, &params, &mut rng);
    }
    assert_eq!(core.calm(), Some(Micros::from_millis(41)));
    let worse = score(core.rate(), 0.0);
    assert_eq!(
        core.judge(0, worse, WIDE, &params, &mut rng),
        Some(Reason::MoveOver)
    );
    assert_eq!(core.calm(), None);
}

#[test]
fn rounds_that_cannot_be_judged_are_repeated() {
    let (params, mut rng) = (bare(), Xoshiro256PlusPlus::seed_from_u64(3));
    let mut core = Vivace::new(Rate::from_mbit(10.0), &params, &mut rng);
    let trials = core.trials();
    assert_eq!(core.judge(0, None, WIDE, &params, &mut rng), None);
    for (i, rate) in trials.into_iter().enumerate().skip(1).take(2) {
        assert_eq!(
            core.judge(i, score(rate, 1.0), WIDE, &params, &mut rng),
            None
        );
    }
    assert_eq!(
        core.judge(3, score(trials[3], 1.0), WIDE, &params, &mut rng),
        Some(Reason::ProbeRepeat)
    );
    assert_eq!(core.rate(), Rate::from_mbit(10.0));
}

#[test]
fn at_the_highest_rate_a_better_trial_leads_no_lower() {
    let (params, most) = (bare(), Rate::from_mbit(10.0));
    let limits = Limits { high: most, ..WIDE };
    for seed in 0..8 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut core = Vivace::new(most, &params, &mut rng);
        let trials = core.trials().map(|rate| rate.min(most));
        let verdict = (0..4).find_map(|i| {
            let judged = score(trials[i], trials[i].mbit());
            core.judge(i, judged, limits, &params, &mut rng)
        });
        assert_eq!((verdict, core.rate()), (Some(Reason::MoveUp), most));
    }
}
