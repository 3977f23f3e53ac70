//! Tests of what comes along in `scenarios/`.

use super::*;
use pk3c_ccp::params::Algorithm;
use std::collections::BTreeSet;

/// The documents' files and their scenarios.
const DOCUMENTS: &[(&str, &[&str])] = &[
    (
        "pk3c",
        &[
            "P1",
            "P2",
            "P3",
            "P4-30",
            "P4-55",
            "P4-60",
            "P5-30",
            "P5-60",
            "P6",
            "P7",
            "P8",
            "P9",
            "P10",
            "P11",
            "P12",
            "P13",
            "P14",
            "C10-1",
            "C10-2",
            "C10-5",
            "V1-100",
            "V1-110",
            "V1-100-loss1",
            "V1-110-loss1",
            "N1000",
            "S1",
        ],
    ),
    ("pantheon", &["E1", "E2"]),
    (
        "bequant",
        &[
            "B1-1",
            "B1-6",
            "B1-mixed-cubic",
            "B1-mixed-bbr",
            "B2-1",
            "B2-6",
            "B2-mixed-cubic",
            "B2-mixed-bbr",
            "B3-1",
            "B3-6",
            "B3-mixed-cubic",
            "B3-mixed-bbr",
            "B4-1",
            "B4-6",
            "B4-mixed-cubic",
            "B4-mixed-bbr",
            "B5-1",
            "B5-6",
            "B5-mixed-cubic",
            "B5-mixed-bbr",
            "B6-1",
            "B6-6",
            "B6-mixed-cubic",
            "B6-mixed-bbr",
            "B7-1",
            "B7-6",
            "B7-mixed-cubic",
            "B7-mixed-bbr",
            "B8-1",
            "B8-6",
            "B8-mixed-cubic",
            "B8-mixed-bbr",
        ],
    ),
    ("freebsd", &["F1", "F2", "F3", "F4"]),
    (
        "geni",
        &[
            "G1",
            "G2",
            "G2-open",
            "G3",
            "G4-5",
            "G4-10",
            "G5",
            "G6",
            "G7-0",
            "G7-3",
            "G7-100",
            "G7-100000",
            "G7-max",
            "G8-sack",
            "G8-nosack",
            "G9a-1",
            "G9a-30",
            "G9b-1",
            "G9b-30",
            "G9c-1",
            "G9c-30",
        ],
    ),
    (
        "nsperf",
        &[
            "coexist-0.1",
            "coexist-1",
            "coexist-2",
            "coexist-4",
            "coexist-8",
            "coexist-16",
            "random_loss-0.001",
            "random_loss-0.01",
            "random_loss-0.1",
            "random_loss-0.5",
            "random_loss-1",
            "random_loss-2",
            "random_loss-3",
            "random_loss-10",
            "random_loss-15",
            "shallow-1",
            "shallow-10",
            "shallow-30",
            "shallow-60",
            "shallow-100",
            "bufferbloat-1",
            "bufferbloat-10",
            "bufferbloat-50",
            "bufferbloat-100",
        ],
    ),
    (
        "own",
        &[
            "rtt_fair",
            "staggered",
            "ramp",
            "low_rate",
            "low_rtt",
            "fct",
        ],
    ),
];

/// What the simulator lacks: id, and what it says.
const NOT_SIMULATED: &[(&str, &str)] = &[
    ("F1", "without a bottleneck"),
    ("F2", "without a bottleneck"),
    ("F3", "without a bottleneck"),
    ("F4", "without a bottleneck"),
    ("G7-3", "tcp_reordering"),
    ("G7-100", "tcp_reordering"),
    ("G7-100000", "tcp_reordering"),
    ("G7-max", "tcp_reordering"),
    ("G8-nosack", "SACK"),
    ("marked-codel-1", "ECN"),
    ("marked-codel-4", "ECN"),
    ("marked-codel-8", "ECN"),
    ("marked-pie-4", "ECN"),
    ("marked-codel-2-cubic", "ECN"),
    ("marked-pie-2-cubic", "ECN"),
    ("marked-codel-2-bbr", "ECN"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn plans(document: &str) -> Vec<Plan> {
    read(&folder().join(format!("{document}.toml"))).unwrap()
}

#[test]
fn all_are_understood_and_no_id_occurs_twice() {
    assert!(read_all(&[folder()]).unwrap().len() >= 150);
}

#[test]
fn each_document_has_its_scenarios() {
    for (document, ids) in DOCUMENTS {
        let plans = plans(document);
        let found: Vec<_> = plans.iter().map(|plan| plan.id.as_str()).collect();
        assert_eq!(&found, ids, "{document}");
        for plan in &plans {
            assert_eq!(plan.document.as_deref(), Some(*document), "{}", plan.id);
            assert!(plan.title.is_some() && plan.source.is_some(), "{}", plan.id);
        }
    }
}

/// The full form of a document takes 2 h at most with 3 repetitions and 2 s around each run. Downloads end before
/// their time, which is a limit; how long they take is in the file.
#[test]
fn a_document_takes_two_hours_at_most() {
    for (document, _) in DOCUMENTS.iter().filter(|(name, _)| *name != "bequant") {
        let plans = plans(document);
        let seconds = plans.iter().map(|plan| {
            let run_s = plan.scenario.duration_ns as f64 / 1e9;
            3.0 * plan.compared.len() as f64 * (run_s + 2.0)
        });
        let hours = seconds.sum::<f64>() / 3600.0;
        assert!(hours <= 2.0, "{document}: {hours} h");
    }
}

#[test]
fn every_document_has_short_forms_of_seconds() {
    for (document, _) in DOCUMENTS {
        for plan in plans(document) {
            let short = plan.in_short();
            assert!(plan.quick.is_some(), "{}", plan.id);
            assert!(short.scenario.duration_ns <= 20_000_000_000, "{}", plan.id);
            let run = short.run(&Scheme::PK3C, &["agent".to_owned()], 7).unwrap();
            assert_eq!((run.id.as_str(), run.scenario.seed), (plan.id.as_str(), 7));
            assert_eq!(run.schemes.len(), run.scenario.flows.len(), "{}", plan.id);
        }
    }
}

/// Each scenario can be simulated with this project's algorithm, or says why not.
#[test]
fn every_scenario_is_simulated_or_says_why_not() {
    let lacking = |plan: &Plan| {
        let refusal = plan.check_simulated(&Scheme::PK3C).err()?;
        Some((plan.id.clone(), format!("{refusal:#}")))
    };
    let all = read_all(&[folder()]).unwrap();
    let refused: Vec<_> = all.iter().filter_map(lacking).collect();
    let ids: BTreeSet<_> = refused.iter().map(|(id, _)| id.as_str()).collect();
    let expected: BTreeSet<_> = NOT_SIMULATED.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, expected);
    for (id, said) in &refused {
        let (_, why) = NOT_SIMULATED.iter().find(|(known, _)| known == id).unwrap();
        assert!(
            said.contains(why) && said.contains("--backend"),
            "{id}: {said}"
        );
    }
    for plan in all.iter().filter(|plan| !ids.contains(plan.id.as_str())) {
        let (scenario, schemes) = plan.in_short().under_test(&Scheme::kernel("reno"));
        let controllers: Vec<Box<dyn pathsim::Controller>> = schemes
            .iter()
            .map(|_| Box::new(pathsim::Reno::default()) as Box<dyn pathsim::Controller>)
            .collect();
        pathsim::Simulation::new(scenario, controllers)
            .unwrap_or_else(|e| panic!("{}: {e}", plan.id));
    }
    let vegas = plans("own")[0].check_simulated(&Scheme::kernel("vegas"));
    let said = vegas.unwrap_err().to_string();
    assert!(
        said.starts_with("the simulator has no vegas: use "),
        "{said}"
    );
}

#[test]
fn windows_and_delay_lines_are_those_of_the_assignment() {
    for plan in plans("geni") {
        let flow = &plan.scenario.flows[0];
        let is_far = plan.scenario.path.rtt_ns >= 300_000_000;
        let is_open = plan.id == "G2-open";
        let is_limited = (is_far && !is_open) || plan.id.starts_with("G7");
        assert_eq!(
            flow.receive_window,
            is_limited.then_some(1_170_000),
            "{}",
            plan.id
        );
        let limit = plan.scenario.path.delay_limit_packets;
        let expected = match plan.id.as_str() {
            "G3" | "G2-open" => Some(2500),
            _ if is_limited && plan.scenario.flows.len() == 30 => Some(500),
            _ if is_limited => Some(1000),
            _ => None,
        };
        assert_eq!(limit, expected, "{}", plan.id);
    }
    let exp = plans("geni").pop().unwrap();
    assert_eq!(exp.compared[1], Scheme::Agent(Algorithm::Exp));
}
