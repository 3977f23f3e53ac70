use super::*;
use crate::estimate::tests::report;
use crate::estimate::{Estimator, Mi, RttStats, SlotContext};
use crate::params::Params;
use crate::program::Slot;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const PKT: f64 = 1000.0;
const RATE: Rate = Rate::from_bytes_per_sec(2e6);

/// Feeds one interval of 40 ms sent in full at `rate`, of which every `lost_every`-th packet is lost (0 for none),
/// on a path that adds `slope` s/s.
fn feed(
    upstream: &mut Upstream,
    index: usize,
    rate: Rate,
    slope: f64,
    lost_every: u64,
    rng: &mut Xoshiro256PlusPlus,
) -> Option<Reason> {
    let params = Params::default();
    let mut est = Estimator::new(&params);
    let context = SlotContext {
        asked: Some(rate),
        length: Micros::new(40_000),
        mss_bytes: PKT,
    };
    let gap = 1e6 * PKT / rate.bytes_per_sec();
    let acks: Vec<_> = (0..(40_000.0 / gap) as u64)
        .map(|i| {
            let t = i as f64 * gap;
            let lost = u64::from(lost_every > 0 && i % lost_every == 0);
            (t as u64, 40_000 + (slope * t) as u64, lost)
        })
        .collect();
    let mi = est.observe(&report(33, 0, &acks, 40_000), context);
    let view = View {
        mi: &mi,
        est: &est,
        rate,
        pkt_bytes: PKT,
        params: &params,
    };
    upstream.on_mi(index, &view, rng)
}

fn rng() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(1)
}

#[test]
fn it_starts_by_half_more_while_utility_rises() {
    let (mut rng, mut rate) = (rng(), RATE);
    let mut upstream = Upstream::new(rate, false, &mut rng);
    for _ in 0..3 {
        assert_eq!(
            feed(&mut upstream, 0, rate, 0.0, 0, &mut rng),
            Some(Reason::Grow)
        );
        assert!(
            (upstream.rate() / rate - 1.5).abs() < 1e-6,
            "{}",
            upstream.rate()
        );
        rate = upstream.rate();
    }
    // A third of the packets is lost: utility falls, and the start ends at the throughput.
    assert_eq!(
        feed(&mut upstream, 0, rate, 0.0, 2, &mut rng),
        Some(Reason::FullLoss)
    );
    assert_eq!(upstream.rate(), upstream.best_throughput());
}

#[test]
fn pairs_that_agree_move_it_and_others_widen_the_trials() {
    let mut rng = rng();
    let mut upstream = Upstream::new(RATE, true, &mut rng);
    let trials = upstream.trials();
    let mut last = None;
    for (index, rate) in trials.into_iter().enumerate() {
        last = feed(&mut upstream, index, rate, 0.0, 0, &mut rng);
    }
    assert_eq!(last, Some(Reason::MoveUp));
    assert!((upstream.rate() / RATE - 1.05).abs() < 1e-6);
    let mut upstream = Upstream::new(RATE, true, &mut rng);
    let trials = upstream.trials();
    for (index, rate) in trials.into_iter().enumerate() {
        let slope = if index < 2 {
            0.0
        } else {
            (rate / RATE - 1.0).max(0.0) * 5.0
        };
        last = feed(&mut upstream, index, rate, slope, 0, &mut rng);
    }
    assert_eq!(last, Some(Reason::ProbeAgain));
    let [a, b, ..] = upstream.trials();
    assert!((a.max(b) / RATE - 1.1).abs() < 1e-6);
}

#[test]
fn the_loss_handbrake_cuts_once_and_then_holds_off() {
    let mut rng = rng();
    let mut upstream = Upstream::new(RATE, true, &mut rng);
    upstream.fastest = RATE * 1.1;
    assert_eq!(
        feed(&mut upstream, 0, RATE, 0.0, 10, &mut rng),
        Some(Reason::LossCut)
    );
    // The rate itself is the slowest so far, so it is in the low quarter.
    assert!((upstream.rate() / RATE - CUT_LOW).abs() < 1e-6);
    assert_eq!(upstream.holdoff, CUT_HOLDOFF_LOW);
    assert_eq!(
        feed(&mut upstream, 0, RATE, 0.0, 10, &mut rng),
        Some(Reason::Probe)
    );
    assert_eq!(
        feed(&mut upstream, 0, RATE, 0.0, 10, &mut rng),
        None,
        "held off"
    );
    let mut upstream = Upstream::new(RATE, true, &mut rng);
    upstream.slowest = RATE * 0.6;
    assert_eq!(
        feed(&mut upstream, 0, RATE, 0.0, 10, &mut rng),
        Some(Reason::LossCut)
    );
    assert!((upstream.rate() / RATE - CUT).abs() < 1e-6);
}

#[test]
fn utility_is_linear_and_negative_beyond_four_percent_of_loss() {
    let mi = |slope: f64, lost: f64| Mi {
        slot: Slot::Trial(0),
        asked: Some(RATE),
        sent_for: Micros::from_millis(40),
        delivered_pkts: 100.0 - lost,
        lost_pkts: lost,
        samples: 100.0,
        rtt: Some(RttStats {
            mean: Micros::ZERO,
            min: Micros::ZERO,
            max: Micros::ZERO,
            slope,
            slope_se: 0.0,
            deviation: Micros::ZERO,
        }),
        rtt_at_loss: None,
        send_rate: RATE,
        goodput: RATE,
        limited: false,
        stalled: false,
    };
    let (params, est) = (Params::default(), Estimator::new(&Params::default()));
    let value = |mi: Mi| {
        utility(&View {
            mi: &mi,
            est: &est,
            rate: RATE,
            pkt_bytes: PKT,
            params: &params,
        }) / RATE.bytes_per_sec()
    };
    assert_eq!(value(mi(0.0, 0.0)), 1.0);
    assert_eq!(value(mi(0.009, 0.0)), 1.0, "filtered");
    assert!(
        (value(mi(-0.02, 0.0)) - 1.5).abs() < 1e-9,
        "a falling RTT is rewarded"
    );
    assert!((value(mi(0.0, 4.0))).abs() < 1e-9);
    assert!(value(mi(0.0, 5.0)) < 0.0);
}
