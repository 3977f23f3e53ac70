//! What the kernel's verifier has to work through to accept the datapath, against the figures in
//! `verifier.toml`: a program that grows more expensive may be refused by another kernel.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::Config;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use std::collections::BTreeMap;
use support::{Guard, can_run, maps};

/// By kernel series, by program.
type Figures = BTreeMap<String, BTreeMap<String, u32>>;

/// A program may take this many times its figure.
const LIMIT: f64 = 1.1;

/// `6.18` of `6.18.44-1-amd64`.
fn kernel_series() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<_> = release.split('.').take(2).collect();
    numbers.join(".")
}

#[test]
fn kernel_verifier_counts_have_not_risen() {
    const TEST: &str = "kernel_verifier_counts_have_not_risen";
    if !can_run(TEST) {
        return;
    }
    let config = Config {
        max_flows: 16,
        ..Config::new("ccpverifier")
    };
    let _guard = Guard::new(&config);
    let datapath = support::start(&config);
    // Ours are those that use our flows; other agents' programs have the same names.
    let flows = maps::id(&config.pin_dir, "flows");
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let found: BTreeMap<_, _> = ProgInfoIter::with_query_opts(options)
        .filter(|program| program.map_ids.contains(&flows))
        .map(|program| {
            (
                program.name.to_string_lossy().into_owned(),
                program.verified_insns,
            )
        })
        .collect();
    datapath.stop().unwrap();
    support::assert_gone(&config);

    let series = kernel_series();
    println!("[\"{series}\"]");
    for (program, count) in &found {
        println!("{program} = {count}");
    }
    assert!(found.len() >= 5, "the datapath's programs: {found:?}");
    let known: Figures = toml::from_str(include_str!("../verifier.toml")).unwrap();
    let Some(known) = known.get(&series) else {
        println!("SKIPPED {TEST}: verifier.toml has no figures of Linux {series}");
        return;
    };
    for (program, count) in found {
        let Some(figure) = known.get(&program) else {
            panic!("{program} is not in verifier.toml: add the lines above");
        };
        assert!(
            f64::from(count) <= LIMIT * f64::from(*figure),
            "{program}: {count} instructions verified, verifier.toml has {figure}"
        );
    }
}
