use super::*;
use crate::lab::report::sample::{measured, results};
use crate::lab::result::{Completion, LinkResult, RunResult};
use pathsim::{FlowSpec, MILLISECOND, PathSpec, RateSchedule, SECOND};

fn scenario(bps: u64) -> Scenario {
    Scenario {
        path: PathSpec::clean(bps, 40 * MILLISECOND),
        flows: vec![FlowSpec::new("")],
        duration_ns: 30 * SECOND,
        seed: 1,
        series: false,
    }
}

fn judged(id: &str, scenario: &Scenario, runs: Vec<RunResult>) -> Option<Judged> {
    let results = results(runs);
    judge(id, scenario, "pk3c", &Groups::of(&results))
}

fn verdicts(judged: &Judged) -> Vec<Verdict> {
    judged.goals.iter().map(Goal::verdict).collect()
}

/// Use .97, RTT p95 44 ms and a third of Cubic's loss: kept with those figures, missed with slightly worse ones.
#[test]
fn a_clean_path_has_lines_for_use_rtt_and_loss() {
    let scenario = scenario(50_000_000);
    let of = |used: f64, rtt_ms: f64, loss: f64| {
        let mut own = measured("clean-x", "pk3c", 1, 48.0);
        own.total.use_run = Some(used);
        own.total.rtt_ms.as_mut().unwrap().p95 = rtt_ms;
        own.total.loss = Some(loss);
        let mut cubic = measured("clean-x", "cubic", 1, 48.0);
        cubic.total.loss = Some(0.003);
        judged("clean-x", &scenario, vec![own, cubic]).unwrap()
    };
    use Verdict::{Kept, Missed};
    assert_eq!(verdicts(&of(0.97, 44.0, 0.001)), [Kept; 3]);
    assert_eq!(verdicts(&of(0.969, 44.1, 0.0011)), [Missed; 3]);
}

#[test]
fn what_never_came_keeps_no_line() {
    let goal = |figure, line| Goal {
        what: "completion, s",
        figure: Some(figure),
        line: Some(Line::AtMost(line)),
        cubic: Some(line),
        bbr: None,
    };
    let never = f64::INFINITY;
    assert_eq!(goal(never, never).verdict(), Verdict::Missed);
    assert_eq!(goal(2.0, never).verdict(), Verdict::Kept);
}

#[test]
fn figures_are_medians_and_void_runs_do_not_count() {
    let mut runs = Vec::new();
    for (seed, used) in [(1, 0.90), (2, 0.98), (3, 0.99), (4, 0.10), (5, 0.20)] {
        let mut run = measured("staggered-x", "pk3c", seed, 48.0);
        run.total.jain_second_half = Some(used);
        run.void = (seed > 3).then(|| "late".to_owned());
        runs.push(run);
    }
    let judged = judged("staggered-x", &scenario(50_000_000), runs).unwrap();
    assert_eq!((judged.runs, judged.goals[0].figure), (3, Some(0.98)));
    assert_eq!(verdicts(&judged), [Verdict::Kept]);
}

#[test]
fn without_cubic_its_lines_are_not_judged_and_with_bbr_there_are_more() {
    let one = |scheme: &str, seconds: f64| {
        let mut run = measured("start-x", scheme, 1, 8.0);
        run.flows[0].completions = vec![Completion {
            round: 1,
            start_s: 0.0,
            seconds: Some(seconds),
            bytes: 1_000_000,
        }];
        run.total.loss = Some(0.0);
        run
    };
    let scenario = scenario(50_000_000);
    let alone = judged("start-x", &scenario, vec![one("pk3c", 0.9)]).unwrap();
    use Verdict::{Kept, Missed, Unjudged};
    // Nobody watched the queue either.
    assert_eq!(verdicts(&alone), [Unjudged, Unjudged, Kept]);
    let runs = vec![one("pk3c", 0.9), one("cubic", 1.0)];
    let beside_cubic = judged("start-x", &scenario, runs).unwrap();
    assert_eq!(verdicts(&beside_cubic)[0], Kept);
    let runs = vec![one("pk3c", 0.9), one("cubic", 1.0), one("bbr", 0.9)];
    let beside_both = judged("start-x", &scenario, runs).unwrap();
    assert_eq!(verdicts(&beside_both)[0], Missed);
    assert_eq!(beside_both.goals[0].bbr, Some(0.9));
}

/// 30 to 10 Mbit/s after 15 s: the queue is gone in the fourth bin after it, 10 RTTs of 40 ms, and 8 + a bin are
/// allowed.
#[test]
fn a_queue_is_drained_when_a_bin_after_the_change_is_small() {
    let mut scenario = scenario(30_000_000);
    scenario.path.rate = RateSchedule::Steps(vec![(0, 30_000_000), (15 * SECOND, 10_000_000)]);
    let of = |bins_of_queue: usize| {
        let mut run = measured("change-x", "pk3c", 1, 8.0);
        let mut queue = vec![0; 300];
        queue[150..150 + bins_of_queue].fill(100);
        run.link = Some(LinkResult {
            bin_s: 0.1,
            queue_packets: queue,
            ..LinkResult::default()
        });
        let judged = judged("change-x", &scenario, vec![run]).unwrap();
        (judged.goals[0].figure.unwrap(), verdicts(&judged)[0])
    };
    let (rtts, verdict) = of(3);
    assert!((rtts - 10.0).abs() < 1e-9, "{rtts}");
    assert_eq!(verdict, Verdict::Kept);
    assert_eq!(of(4).1, Verdict::Missed);
    assert_eq!(of(150), (f64::INFINITY, Verdict::Missed));
}

#[test]
fn what_has_no_goals_or_no_runs_is_not_judged() {
    let scenario = scenario(50_000_000);
    let runs = || vec![measured("P1", "pk3c", 1, 48.0)];
    assert_eq!(judged("P1", &scenario, runs()), None);
    assert!(!has_goals("P1") && has_goals("clean-10m-10ms"));
    let cubic = vec![measured("clean-x", "cubic", 1, 48.0)];
    assert_eq!(judged("clean-x", &scenario, cubic), None);
}

#[test]
fn every_family_has_goals() {
    for family in families::FAMILIES {
        let id = format!("{family}-x");
        let runs = vec![measured(&id, "pk3c", 1, 48.0)];
        let judged = judged(&id, &scenario(50_000_000), runs);
        assert!(
            judged.is_some_and(|judged| !judged.goals.is_empty()),
            "{family}"
        );
    }
}

#[test]
fn the_table_shows_what_is_missed_and_counts_all() {
    let goal = |figure, line| Goal {
        what: "use",
        figure,
        line,
        cubic: Some(0.99),
        bbr: None,
    };
    let judged = [Judged {
        scenario: "deep-x".into(),
        runs: 1,
        goals: vec![
            goal(Some(0.98), Some(Line::AtLeast(0.97))),
            goal(Some(0.9), Some(Line::AtLeast(0.97))),
            goal(None, Some(Line::AtLeast(0.97))),
        ],
    }];
    let text = show::markdown(&judged, "pk3c", true);
    assert!(text.contains("| `deep-x` | use | 0.900 | >= 0.970 | 0.990 |  | missed |"));
    assert!(!text.contains("0.980"), "{text}");
    assert!(text.contains("| deep | 2 | 1 |") && text.contains("1 more are not judged"));
    let json: serde_json::Value =
        serde_json::from_str(&show::json(&judged, "pk3c", "0").unwrap()).unwrap();
    assert_eq!(json["total"]["kept"], 1);
    assert_eq!(json["scenarios"][0]["goals"][1]["verdict"], "missed");
}
