//! Closed loops: the real program and controller over a model path. Each test holds a bound on the seeds in [`SEEDS`]
//! and prints the figures; it guards against regressions and is no proof for other seeds.
//!
//! `cargo test --test algorithm_closed_loop -- --nocapture` shows the table.

mod support;

use support::{Outcome, Path};

const SEEDS: [u64; 3] = [1, 2, 3];

fn rows(name: &str, path: &Path, check: impl FnMut(&Outcome)) {
    rows_of(SEEDS, name, path, check);
}

fn rows_of(
    seeds: impl IntoIterator<Item = u64>,
    name: &str,
    path: &Path,
    mut check: impl FnMut(&Outcome),
) {
    for seed in seeds {
        let out = path.run(seed);
        let end = path.seconds;
        println!(
            "{name:24} seed {seed}: share {:.3} second half {:.3} rtt p50 {:.1} p95 {:.1} ms loss {:.2}% jain {:.3} timeouts {}",
            out.share(0.0, end),
            out.share(end / 2.0, end),
            out.rtt_quantile(0.5),
            out.rtt_quantile(0.95),
            100.0 * out.loss(),
            out.jain(end / 2.0, end),
            out.timeouts,
        );
        assert_eq!(out.aborted, 0, "the program must never abort");
        check(&out);
    }
}

#[test]
fn clean_path_is_filled_with_a_short_queue() {
    rows("clean 50M 40ms", &Path::new(50.0, 40.0), |out| {
        assert!(out.share(0.0, 20.0) >= 0.93);
        assert!(out.rtt_quantile(0.95) <= 60.0);
    });
}

#[test]
fn alone_on_a_narrow_path_a_flow_keeps_off_the_queue() {
    // 31 packets fit, and 31 the queue: without the overshoot handbrake half an RTT stands there.
    rows("clean 15M 25ms", &Path::new(15.0, 25.0), |out| {
        assert!(out.share(0.0, 20.0) >= 0.95);
        assert!(out.rtt_quantile(0.95) <= 33.0);
    });
}

#[test]
fn one_percent_loss_costs_little() {
    rows(
        "1% loss 50M 40ms",
        &Path {
            loss: 0.01,
            ..Path::new(50.0, 40.0)
        },
        |out| {
            assert!(out.share(0.0, 20.0) >= 0.90);
        },
    );
}

#[test]
fn five_percent_loss_costs_little() {
    rows(
        "5% loss 50M 40ms",
        &Path {
            loss: 0.05,
            ..Path::new(50.0, 40.0)
        },
        |out| {
            assert!(out.share(0.0, 20.0) >= 0.85);
        },
    );
}

#[test]
fn ten_packets_of_buffer_are_enough() {
    rows(
        "10 packets 50M 40ms",
        &Path {
            buffer_pkts: 10.0,
            ..Path::new(50.0, 40.0)
        },
        |out| {
            assert!(out.share(0.0, 20.0) >= 0.85);
        },
    );
}

#[test]
fn a_slow_path_is_filled() {
    rows(
        "0.5M 80ms",
        &Path {
            buffer_pkts: 20.0,
            ..Path::new(0.5, 80.0)
        },
        |out| {
            assert!(out.share(0.0, 20.0) >= 0.85);
        },
    );
}

#[test]
fn four_flows_share_fairly() {
    let path = Path {
        starts_s: vec![0.0, 0.1, 0.2, 0.3],
        ..Path::new(50.0, 40.0)
    };
    rows("4 flows 50M 40ms", &path, |out| {
        assert!(out.jain(10.0, 20.0) >= 0.93);
        assert!(out.share(0.0, 20.0) >= 0.88);
    });
}

#[test]
fn a_fast_short_path_is_filled() {
    rows(
        "1G 1ms",
        &Path {
            seconds: 5.0,
            ..Path::new(1000.0, 1.0)
        },
        |out| {
            assert!(out.share(0.0, 5.0) >= 0.90);
        },
    );
}

#[test]
fn a_late_joiner_gets_its_share() {
    let path = Path {
        starts_s: vec![0.0, 10.0],
        seconds: 30.0,
        ..Path::new(50.0, 40.0)
    };
    rows("joiner at 10 s", &path, |out| {
        let late: f64 = out.delivered[1][200..300].iter().sum();
        let early: f64 = out.delivered[0][200..300].iter().sum();
        assert!(
            late / (late + early) >= 0.35,
            "{:.3}",
            late / (late + early)
        );
    });
}

#[test]
fn ten_flows_share_ten_packets_of_buffer() {
    let starts_s = (0..10).map(|i| f64::from(i) * 0.1).collect();
    let path = Path {
        starts_s,
        buffer_pkts: 10.0,
        ..Path::new(50.0, 23.0)
    };
    rows("10 flows, 10 packets", &path, |out| {
        assert!(out.jain(10.0, 20.0) >= 0.95);
        assert!(out.share(0.0, 20.0) >= 0.90);
    });
}

#[test]
fn four_flows_share_ten_packets_of_buffer() {
    let path = Path {
        starts_s: vec![0.0, 0.1, 0.2, 0.3],
        buffer_pkts: 10.0,
        ..Path::new(50.0, 23.0)
    };
    let mut jains = 0.0;
    rows("4 flows, 10 packets", &path, |out| {
        // By chance: with 24 seeds `pk3c-ccp sim` has .966 to 1.000, in the median .999.
        assert!(out.jain(10.0, 20.0) >= 0.95);
        jains += out.jain(10.0, 20.0);
        assert!(out.share(0.0, 20.0) >= 0.90);
        assert!(out.loss() <= 0.025);
    });
    assert!(jains / SEEDS.len() as f64 >= 0.97);
}

#[test]
fn thirty_flows_share_although_the_last_find_a_full_queue() {
    let path = Path {
        starts_s: (0..30).map(|i| f64::from(i) * 0.1).collect(),
        seconds: 40.0,
        ..Path::new(100.0, 40.0)
    };
    // Where some take the others for flows of Cubic, which is by chance, they fill the queue and have more: with two of
    // these seeds before the train was measured behind its late packets, with three since.
    let mut jains = Vec::new();
    rows_of(1..=12, "30 flows 100M 40ms", &path, |out| {
        jains.push(out.jain(20.0, 40.0));
        assert!(out.share(0.0, 40.0) >= 0.88);
    });
    jains.sort_by(f64::total_cmp);
    assert!(jains[3] >= 0.95, "nine of twelve share evenly: {jains:?}");
    assert!(jains[0] >= 0.5, "none is left with nothing: {jains:?}");
}

#[test]
fn one_ack_for_eight_packets_slows_only_the_start() {
    rows(
        "ACK per 8 packets",
        &Path {
            ack_every: 8,
            ..Path::new(50.0, 40.0)
        },
        |out| {
            assert!(out.share(10.0, 20.0) >= 0.93);
        },
    );
}
