use super::*;
use crate::program::{self, tests::ack};
use crate::simulate::Simulator;
use crate::units::Micros;
use ccp_vm::Primitives;
use pathsim::{
    Controller, FlowSpec, Loss, MILLISECOND, PathSpec, QueueLimit, Reno, Results, SECOND, Scenario,
    Simulation,
};
use portus::lang::compile;

fn run(path: PathSpec, duration_ns: u64, controller: Box<dyn Controller>) -> Results {
    let scenario = Scenario {
        path,
        flows: vec![FlowSpec::new("")],
        duration_ns,
        seed: 1,
        series: true,
    };
    Simulation::new(scenario, vec![controller]).unwrap().run()
}

fn exp() -> Box<dyn Controller> {
    Box::new(Simulator::new().unwrap().exp_flow(Micros::ZERO))
}

fn reno() -> Box<dyn Controller> {
    Box::<Reno>::default()
}

#[test]
fn the_program_fits_a_datapath() {
    let (bin, _) = compile(text().as_bytes(), &[]).unwrap();
    assert!(bin.instrs.len() <= 255, "{}", bin.instrs.len());
    bin.serialize().unwrap();
    Simulator::new().unwrap();
}

/// 10 Gbit/s and 100 ms: what arrives in a bin of 100 ms is what was sent in an RTT.
#[test]
fn without_loss_slow_start_triples_per_rtt() {
    let path = PathSpec::clean(10_000_000_000, 100 * MILLISECOND);
    let results = run(path, SECOND, exp());
    let bins = &results.flows[0].series;
    let rates: Vec<_> = bins.iter().map(|bin| bin.goodput_mbps).collect();
    for pair in rates[1..7].windows(2) {
        let growth = pair[1] / pair[0];
        assert!((2.8..3.1).contains(&growth), "{growth}: {rates:?}");
    }
}

#[test]
fn a_loss_leaves_three_quarters_of_the_window() {
    // The queue is a quarter of what is needed for a cut to 3/4 to leave it empty, so the path stays full.
    let mut path = PathSpec::clean(20_000_000, 100 * MILLISECOND);
    path.queue = QueueLimit::Packets(path.bdp_packets(0.34));
    let kept = |controller| run(path.clone(), 120 * SECOND, controller).share_second_half;
    let (exp, reno) = (kept(exp()), kept(reno()));
    assert!(exp > 0.99, "{exp}");
    assert!(reno < 0.97, "{reno}");
}

/// The assignment's own claim, on its path.
#[test]
fn a_single_flow_beats_reno_at_random_loss() {
    let mut path = PathSpec::clean(97_500_000, 10 * MILLISECOND);
    path.loss = Loss::Random(0.05);
    let goodput = |controller| run(path.clone(), 60 * SECOND, controller).goodput_mbps;
    let (exp, reno) = (goodput(exp()), goodput(reno()));
    assert!(exp > 1.2 * reno, "{exp} against {reno}");
}

#[test]
fn it_comes_back_after_an_outage() {
    let mut path = PathSpec::clean(20_000_000, 40 * MILLISECOND);
    // Long bursts of loss bring timeouts.
    path.loss = Loss::Bursts {
        ratio: 0.05,
        mean_length: 100.0,
    };
    let results = run(path.clone(), 60 * SECOND, exp());
    assert!(results.flows[0].timeouts > 0, "{results:?}");
    let reno = run(path, 60 * SECOND, reno());
    assert!(
        results.share > 0.8 * reno.share,
        "{} against {}",
        results.share,
        reno.share
    );
}

#[test]
fn a_running_flow_keeps_its_window() {
    assert!(registers(1448, 100_000, true).contains(&("ssthresh", 100_000)));
    assert!(
        !registers(1448, 14_480, false)
            .iter()
            .any(|(name, _)| *name == "ssthresh")
    );
}

#[test]
fn a_mark_is_a_loss_once_per_window() {
    let mut machine = program::tests::machine(&text());
    let mut w = 0;
    // Avoidance from 20 packets on: a first loss.
    let lossy = Primitives {
        lost_pkts_sample: 1,
        ..ack(false)
    };
    machine.invoke(1_000_000, &lossy, 0, 0);
    let mut cuts = Vec::new();
    for i in 1..60 {
        // From the 21st ACK on everything is marked until the 20 packets in flight are acknowledged.
        let out = machine.invoke(1_000_000 + 3000 * i, &ack((21..31).contains(&i)), 0, 0);
        assert_eq!(out.error, None);
        let now = out.cwnd.unwrap();
        if now < w {
            cuts.push((i, now as f64 / w as f64));
        }
        w = now;
    }
    assert_eq!(cuts.len(), 1, "{cuts:?}");
    assert!(
        cuts[0].0 == 21 && (cuts[0].1 - 0.75).abs() < 0.01,
        "{cuts:?}"
    );
}
