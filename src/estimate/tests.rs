use super::interval::rtt_stats;
use super::loss::MOST_OWN;
use super::*;

/// Sums over (send time, rtt, lost) of ACKs of one packet each, as the program adds them. The ACK arrives at
/// `origin + t + rtt`.
pub(crate) fn report(tag: u64, origin_us: u64, acks: &[(u64, u64, u64)], sdur: u64) -> RawReport {
    let mut raw = RawReport {
        tag,
        sdur,
        rmin: u64::from(u32::MAX),
        ..RawReport::default()
    };
    for &(t, rtt, lost) in acks {
        raw.dlv += 1;
        raw.lost += lost;
        raw.n += 1;
        raw.st += t;
        raw.sr += rtt;
        raw.srt += t * rtt;
        raw.stt += t * t;
        raw.srr += rtt * rtt;
        raw.rmin = raw.rmin.min(rtt);
        raw.rmax = raw.rmax.max(rtt);
        raw.srl += lost * rtt;
        raw.nl += lost;
        raw.a1 = origin_us + t + rtt;
        if raw.n == 1 {
            raw.a0 = raw.a1;
        }
    }
    raw
}

fn context(asked: f64) -> SlotContext {
    SlotContext {
        asked: Some(Rate::from_bytes_per_sec(asked)),
        length: Micros::new(20_000),
        mss_bytes: 1000.0,
    }
}

#[test]
fn slope_and_error_match_a_regression_done_by_hand() {
    // t = 0, 1000, ..., 11000; rtt = 20000 + 0.1 t, then +-50 us alternating.
    let line: Vec<_> = (0..12).map(|i| (i * 1000, 20_000 + i * 100, 0)).collect();
    let stats = rtt_stats(&report(33, 0, &line, 12_000), 12.0).unwrap();
    assert!(
        (stats.slope - 0.1).abs() < 1e-9 && stats.slope_se < 1e-6,
        "{stats:?}"
    );
    assert_eq!(stats.mean, Micros::new(20_550));

    let noisy: Vec<_> = (0..12)
        .map(|i| (i * 1000, 20_050 + i * 100 - 100 * (i % 2), 0))
        .collect();
    let stats = rtt_stats(&report(33, 0, &noisy, 12_000), 12.0).unwrap();
    // By hand: S_tt = 143e6; S_xt of the alternating part = -50 * 6 * 1000 = -300e3 => slope 0.1 - 300e3 / 143e6;
    // its sum of squares 12 * 2500 = 30e3, residual 30e3 - (300e3)^2 / 143e6; se = sqrt(residual / 10 / 143e6).
    let shift = 300e3 / 143e6;
    let se = ((30e3 - 300e3 * shift) / 10.0 / 143e6_f64).sqrt();
    assert!((stats.slope - (0.1 - shift)).abs() < 1e-9, "{stats:?}");
    assert!((stats.slope_se - se).abs() < 1e-9, "{stats:?} {se}");
    let deviation = se * 143e6_f64.sqrt();
    assert_eq!(stats.deviation, Micros::from_secs(deviation * 1e-6));
}

#[test]
fn a_holding_slot_that_fills_a_queue_was_sent_faster_than_acknowledged() {
    // A packet each 500 us on a path that carries one each 1000: 20 ms of ACKs for 10 ms of sending.
    let acks: Vec<_> = (0..20).map(|i| (i * 500, 20_000 + i * 500, 0)).collect();
    let sent = |slot: u64, acks: &[(u64, u64, u64)]| {
        let mut est = Estimator::new(&Params::default());
        let mi = est.observe(&report(32 + slot, 0, acks, 20_000), context(2e6));
        mi.send_rate.bytes_per_sec()
    };
    assert!((sent(5, &acks) - 2e6).abs() < 1.0, "{}", sent(5, &acks));
    assert_eq!(
        sent(1, &acks),
        1e6,
        "the other slots' time is that of sending"
    );
    let drains: Vec<_> = (0..20).map(|i| (i * 500, 30_000 - i * 250, 0)).collect();
    assert_eq!(sent(5, &drains), 1e6, "a queue that goes");
}

#[test]
fn too_few_samples_give_rtts_but_no_slope() {
    let stats = rtt_stats(&report(33, 0, &[(0, 10, 0), (5, 90, 0)], 10), 2.0).unwrap();
    assert_eq!(
        (stats.slope, stats.min, stats.max),
        (0.0, Micros::new(10), Micros::new(90))
    );
    assert_eq!(stats.deviation, Micros::ZERO, "two are always on a line");
    let three = |last| {
        let acks = [(0, 10_000, 0), (100, 10_100, 0), (200, last, 0)];
        rtt_stats(&report(33, 0, &acks, 300), 3.0).unwrap()
    };
    assert_eq!(three(10_200).deviation, Micros::ZERO, "a queue that grows");
    // By hand: residuals -50, 100, -50 us about the flat line, one degree of freedom.
    let scattered = three(10_000);
    assert_eq!(scattered.slope, 0.0, "three tell no slope");
    assert_eq!(scattered.deviation, Micros::new(82));
    assert!(rtt_stats(&report(33, 0, &[], 10), 0.0).is_none());
}

#[test]
fn rates_come_from_send_time_and_ack_spacing() {
    let mut est = Estimator::new(&Params::default());
    // 20 packets of 1000 B sent over 20 ms (1 MB/s), arriving 1.25 ms apart (0.8 MB/s).
    let acks: Vec<_> = (0..20).map(|i| (i * 1000, 20_000 + i * 250, 0)).collect();
    let mi = est.observe(&report(33, 0, &acks, 20_000), context(1e6));
    assert!((mi.send_rate.bytes_per_sec() - 1e6).abs() < 1.0);
    assert!(
        (mi.goodput.bytes_per_sec() - 0.8e6).abs() < 1.0,
        "{}",
        mi.goodput
    );
    assert!(!mi.limited && !mi.stalled);
    assert_eq!(est.goodput_max(), Some(mi.goodput));
    let mi = est.observe(&report(33, 100_000, &acks[..12], 20_000), context(1e6));
    assert!(mi.limited, "sent 60 %");
    let mi = est.observe(&report(33, 200_000, &acks, 80_000), context(0.25e6));
    assert!(mi.stalled);
}

#[test]
fn the_bytes_of_a_packet_are_learnt_from_the_pacer() {
    let mut est = Estimator::new(&Params::default());
    // fq counts 46 bytes of headers: at an asked 1 MB/s it lets through 0.956 MB/s of payload.
    let acks: Vec<_> = (0..40).map(|i| (i * 1046, 10_000, 0)).collect();
    for i in 0..60 {
        est.observe(&report(33, i * 50_000, &acks, 40 * 1046), context(1e6));
    }
    assert!(
        (est.pkt_bytes(1000.0) - 1046.0).abs() < 2.0,
        "{}",
        est.pkt_bytes(1000.0)
    );
}

/// An estimator that has seen RTTs of 40 to 80 ms.
fn with_queue_range() -> Estimator {
    let mut est = Estimator::new(&Params::default());
    est.observe(&report(33, 0, &[(0, 40_000, 0)], 20_000), context(1e6));
    est.observe(&report(33, 1, &[(0, 80_000, 0); 8], 20_000), context(1e6));
    est
}

/// RTTs of interval `i` in the lowest tenth of that range, as a path's own losses meet them.
fn anywhere_low(i: u64) -> u64 {
    40_100 + 130 * (i * 7 % 31)
}

#[test]
fn losses_are_classed_by_the_queue_they_met() {
    let mut est = with_queue_range();
    let at = |rtt| {
        (0..30)
            .map(|i| (i * 600, rtt, u64::from(i % 10 == 0)))
            .collect::<Vec<_>>()
    };
    let low = est.observe(&report(33, 100_000, &at(45_000), 20_000), context(1e6));
    assert_eq!(est.class(&low), LossClass::Random);
    let high = est.observe(&report(33, 200_000, &at(75_000), 20_000), context(1e6));
    assert_eq!(est.class(&high), LossClass::Congestive);
    let mut flat = Estimator::new(&Params::default());
    let loss = flat.observe(&report(33, 0, &at(45_000), 20_000), context(1e6));
    assert_eq!(flat.class(&loss), LossClass::Unknown);
    let clean = est.observe(
        &report(33, 300_000, &[(0, 40_000, 0)], 20_000),
        context(1e6),
    );
    assert_eq!(est.class(&clean), LossClass::None);
}

/// After a host's pause of 8 ms, 1 ms of queue looks like none: a floor that is learnt there stays small.
#[test]
fn a_near_receivers_losses_are_never_random() {
    let mut est = Estimator::new(&Params::default());
    let at = |rtt, lost_every: u64| {
        (0..200)
            .map(|i| (i * 100, rtt, u64::from(i % lost_every == 3)))
            .collect::<Vec<_>>()
    };
    est.observe(&report(33, 0, &at(1_000, 1000), 20_000), context(1e7));
    let paused = est.observe(&report(33, 50_000, &at(9_000, 10), 20_000), context(1e7));
    assert!(est.is_near());
    assert_eq!(est.class(&paused), LossClass::Congestive);
    for i in 2..40 {
        let full = est.observe(
            &report(33, i * 50_000, &at(2_000, 10), 20_000),
            context(1e7),
        );
        assert_eq!(est.class(&full), LossClass::Unknown);
    }
    assert!(est.loss_floor() <= 0.05, "{}", est.loss_floor());
}

/// After a host's pause of 8 ms, the .8 ms of a short buffer are the lowest tenth of the range. Losses at a full one
/// lie close together there.
#[test]
fn a_pause_does_not_hide_a_short_buffer() {
    let mut est = Estimator::new(&Params::default());
    let mut observe = |origin: u64, rtt, is_full| {
        let acks: Vec<_> = (0..95)
            .map(|i| (i * 200, rtt, u64::from(is_full && i % 20 == 3)))
            .collect();
        let mi = est.observe(&report(33, origin, &acks, 20_000), context(1e6));
        (est.class(&mi), est.loss_floor())
    };
    observe(0, 6_000, false);
    observe(25_000, 14_000, true);
    let seen: Vec<_> = (2..400)
        .map(|i| match i % 3 {
            0 => observe(i * 25_000, 6_200, false),
            _ => observe(i * 25_000, 6_800 + i % 4 * 20, true),
        })
        .collect();
    assert_eq!(seen[0].0, LossClass::Random, "nothing tells yet");
    assert!(
        seen.iter().any(|seen| seen.1 > 0.02),
        "nor that it is no floor"
    );
    assert!(seen[300..].iter().all(|seen| seen.0 != LossClass::Random));
    assert!(seen[300..].iter().all(|seen| seen.1 < 0.01), "{seen:?}");
}

#[test]
fn random_loss_is_forgiven_and_congestive_loss_is_not() {
    let mut est = with_queue_range();
    let acks = |rtt, lost_every: u64| {
        (0..95)
            .map(|i| (i * 200, rtt, u64::from(i % lost_every == 3)))
            .collect::<Vec<_>>()
    };
    let mut mi = est.observe(
        &report(33, 100_000, &acks(42_000, 19), 20_000),
        context(1e6),
    );
    assert!(est.excess_loss(&mi) > 0.04, "not believed yet");
    for i in 2..40 {
        mi = est.observe(
            &report(33, i * 100_000, &acks(anywhere_low(i), 19), 20_000),
            context(1e6),
        );
    }
    assert!(
        (est.loss_floor() - 0.05).abs() < 0.003,
        "{}",
        est.loss_floor()
    );
    assert_eq!(est.excess_loss(&mi), 0.0);
    let congested = est.observe(
        &report(33, 4_100_000, &acks(79_000, 5), 20_000),
        context(1e6),
    );
    assert!((est.excess_loss(&congested) - (congested.loss() - est.loss_floor())).abs() < 1e-12);
    assert!(est.excess_loss(&congested) > 0.1);
}

#[test]
fn an_unknown_queue_limits_the_floor() {
    // A tenth of all packets is lost: of each interval's, or all in one interval of ten.
    let floor = |lossy_every: u64| {
        let mut est = Estimator::new(&Params::default());
        for i in 0..40 {
            let lost =
                |k: u64| u64::from(i % lossy_every == 0 && k.is_multiple_of(10 / lossy_every));
            let acks: Vec<_> = (0..95).map(|k| (k * 200, 42_000, lost(k))).collect();
            est.observe(&report(33, i * 100_000, &acks, 20_000), context(1e6));
        }
        est.loss_floor()
    };
    assert!(floor(10) < loss::UNKNOWN, "{}", floor(10));
    let short_runs = floor(1);
    assert!((0.04..=0.05).contains(&short_runs), "{short_runs}");
}

#[test]
fn losses_at_a_low_queue_teach_nothing_while_it_is_mostly_full() {
    let mut est = with_queue_range();
    // Each time the queue is full something is dropped, behind which it is low for a moment.
    let acks = |low| -> Vec<_> {
        let rtt = |i| if i % 5 == 0 { low } else { 78_000 };
        (0..100)
            .map(|i| (i * 200, rtt(i), u64::from(i % 20 == 0)))
            .collect()
    };
    for i in 2..40 {
        let raw = report(33, i * 100_000, &acks(anywhere_low(i)), 20_000);
        let mi = est.observe(&raw, context(1e6));
        assert_eq!(est.class(&mi), LossClass::Random);
    }
    assert_eq!(est.loss_floor(), 0.0);
}

#[test]
fn a_queue_that_hardly_moves_hides_no_losses() {
    let floor = |high: u64| {
        let mut est = Estimator::new(&Params::default());
        est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(1e6));
        // Mostly in the upper half of its range, and lower where something was lost.
        let rtt = |i| if i % 5 == 0 { 40_000 } else { high };
        let acks: Vec<_> = (0..100)
            .map(|i| (i * 200, rtt(i), u64::from(i % 20 == 0)))
            .collect();
        for i in 1..40 {
            let mi = est.observe(&report(33, i * 100_000, &acks, 20_000), context(1e6));
            assert_eq!(est.class(&mi), LossClass::Random);
        }
        est.loss_floor()
    };
    assert!((0.04..0.06).contains(&floor(41_900)), "{}", floor(41_900));
    assert_eq!(floor(45_000), 0.0);
}

#[test]
fn losses_while_a_queue_stands_teach_a_small_floor_to_a_small_window() {
    // A twelfth of 100 packets in 20 ms: at a rate of 5 MB/s a window of 200 packets, at .5 MB/s one of 20.
    let floor = |stands: bool, slower: u64| {
        let mut est = with_queue_range();
        for i in 2..60 {
            // 0 to 4 ms, or 4 to 16.
            let low = anywhere_low(i);
            let rtt = if stands {
                44_000 + (low - 40_000) * 3
            } else {
                low
            };
            let acks: Vec<_> = (0..100)
                .map(|k| (k * 200 * slower, rtt, u64::from(k % 12 == 3)))
                .collect();
            let raw = report(33, i * 400_000, &acks, 20_000 * slower);
            let mi = est.observe(&raw, context(5e6 / slower as f64));
            assert_eq!(est.class(&mi), LossClass::Random);
        }
        est.loss_floor()
    };
    let learnt = 0.07..0.09;
    for (stands, slower) in [(false, 10), (false, 1), (true, 1)] {
        let floor = floor(stands, slower);
        assert!(learnt.contains(&floor), "{stands} {slower}: {floor}");
    }
    assert!(floor(true, 10) <= MOST_OWN, "{}", floor(true, 10));
}

#[test]
fn a_floor_that_was_learnt_at_a_long_queue_is_forgotten() {
    let mut est = Estimator::new(&Params::default());
    // The flow came when the queue was full, and knows the last 1.9 ms of it.
    let rtt = |i| if i % 5 == 0 { 40_000 } else { 41_900 };
    let acks: Vec<_> = (0..100)
        .map(|i| (i * 200, rtt(i), u64::from(i % 20 == 0)))
        .collect();
    for i in 0..40 {
        est.observe(&report(33, i * 100_000, &acks, 20_000), context(1e6));
    }
    let floor_after = |est: &mut Estimator, rtt: u64| {
        let origin = est.now().us() + 100_000;
        est.observe(&report(33, origin, &[(0, rtt, 0)], 20_000), context(1e6));
        est.loss_floor()
    };
    let learnt = est.loss_floor();
    assert!((0.04..0.06).contains(&learnt), "{learnt}");
    let hardly_less = floor_after(&mut est, 39_700);
    assert!((hardly_less / learnt - 1.0).abs() < 0.01, "{hardly_less}");
    assert_eq!(
        floor_after(&mut est, 34_000),
        0.0,
        "it was the others' congestion"
    );
}

#[test]
fn a_delayed_ack_is_not_taken_for_a_queue() {
    let mut est = Estimator::new(&Params::default());
    let mut acks: Vec<_> = (0..12).map(|i| (i * 1500, 40_000 + 100 * i, 0)).collect();
    est.observe(&report(33, 0, &acks, 18_000), context(1e6));
    let range = est.rtt_range();
    assert!(
        range > Micros::new(900) && range <= Micros::new(1100),
        "a queue of 1.1 ms: {range}"
    );
    acks[7].1 += 40_000;
    est.observe(&report(33, 100_000, &acks, 18_000), context(1e6));
    assert!(est.rtt_range() <= Micros::new(1300), "{}", est.rtt_range());
}

#[test]
fn a_queue_that_is_always_full_teaches_little_loss() {
    // 15 % lost at a constant RTT, as a flow sees it that comes last; then the queue moves for the first time.
    let mut est = Estimator::new(&Params::default());
    let acks: Vec<_> = (0..100)
        .map(|i| (i * 200, 80_000, u64::from(i % 6 == 0)))
        .collect();
    for i in 0..20 {
        est.observe(&report(33, i * 100_000, &acks, 20_000), context(1e6));
    }
    est.observe(
        &report(33, 2_100_000, &[(0, 70_000, 0)], 20_000),
        context(1e6),
    );
    let mi = est.observe(&report(33, 2_200_000, &acks, 20_000), context(1e6));
    assert_eq!(est.class(&mi), LossClass::Congestive);
    assert!(
        est.loss_floor() <= 0.0201 && est.excess_loss(&mi) > 0.1,
        "{}",
        est.loss_floor()
    );
}

#[test]
fn window_extremes_expire() {
    let mut max = WindowMax::new(Micros::new(8000));
    max.push(Micros::new(0), 9.0);
    max.push(Micros::new(5000), 4.0);
    assert_eq!(max.get(Micros::new(7999)), Some(9.0));
    assert_eq!(max.get(Micros::new(8000)), Some(4.0));
    assert_eq!(max.get(Micros::new(50_000)), None);
}

#[test]
fn losses_that_come_in_bursts_deviate_more_from_their_floor() {
    let excess = |bursts: bool| {
        let mut est = with_queue_range();
        let acks = |rtt: u64, lost: u64| -> Vec<_> {
            (0..200)
                .map(|i| (i * 200, rtt, if i == 100 { lost } else { 0 }))
                .collect()
        };
        // 1 %: two in every interval, or eight in every fourth.
        for i in 2..80 {
            let lost = match (bursts, i % 4) {
                (false, _) => 2,
                (true, 0) => 8,
                (true, _) => 0,
            };
            let raw = report(33, i * 100_000, &acks(anywhere_low(i / 4), lost), 40_000);
            est.observe(&raw, context(5e6));
        }
        assert!((est.loss_floor() - 0.01).abs() < 0.004);
        let mi = est.observe(
            &report(33, 9_000_000, &acks(42_000, 8), 40_000),
            context(5e6),
        );
        assert_eq!(est.class(&mi), LossClass::Random);
        est.excess_loss(&mi)
    };
    assert!(excess(false) > 0.01, "8 of 208 where two are usual");
    assert_eq!(excess(true), 0.0, "where eight are");
}

#[test]
fn time_goes_on_in_reports_without_an_rtt() {
    let mut est = with_queue_range();
    let before = est.now();
    let silent = RawReport {
        tag: 33,
        sdur: 20_000,
        lost: 30,
        ..RawReport::default()
    };
    est.observe(&silent, context(5e6));
    assert_eq!(est.now(), before + Micros::new(20_000));
}

#[test]
fn what_passes_in_a_row_tells_how_much_a_path_may_lose() {
    let mut est = Estimator::new(&Params::default());
    let mut step = |at: u64, lost: u64| {
        let acks: Vec<_> = (0..100)
            .map(|i| (i * 100, 40_000, u64::from(i < lost)))
            .collect();
        let mi = est.observe(&report(33, at * 10_000, &acks, 10_000), context(10e6));
        est.clear_loss(&mi, 3.0)
    };
    for at in 1..=3 {
        step(at, 0);
    }
    assert!(step(4, 5) <= f64::EPSILON, "no more than 300 have passed");
    for at in 5..=40 {
        step(at, 0);
    }
    assert!(step(41, 5) > 0.02, "3600 have");
    for at in 42..=300 {
        step(at, 5);
    }
    assert!(step(301, 5) <= f64::EPSILON, "long ago");
}

/// A range of 1 ms on a path of 40 ms tells nothing, but that losses lie anywhere in it does, and bursts are then as
/// long as they were before.
#[test]
fn bursts_on_an_empty_path_are_its_own() {
    let tells = |heights: &[u64]| {
        let mut est = Estimator::new(&Params::default());
        let mut step = |i: u64, height: u64, lost: u64| {
            let acks: Vec<_> = (0..200)
                .map(|k| {
                    (
                        i * 40_000 + k * 200,
                        40_000 + height,
                        u64::from(k == 100) * lost,
                    )
                })
                .collect();
            let mi = est.observe(&report(33, i * 40_000, &acks, 40_000), context(5e6));
            (est.class(&mi), est.clear_loss(&mi, 2.5))
        };
        for i in 0..400 {
            let is_lossy = i % 4 == 1;
            let height = heights[(i / 4) as usize % heights.len()];
            step(
                i,
                if is_lossy { height } else { i % 3 * 20 },
                u64::from(is_lossy) * 8,
            );
        }
        step(401, heights[0], 8)
    };
    assert_eq!(tells(&[40, 80, 40, 60, 1_000]), (LossClass::Random, 0.0));
    // Where several flows keep a buffer of a few packets filled.
    let (class, clear) = tells(&[500, 700, 900, 600, 1_000]);
    assert_eq!(class, LossClass::Unknown);
    assert!(clear > 0.01, "{clear}");
}

/// Class and loss floor after 60 intervals of 100 packets on a path of 15 ms. Two of each are lost, at these heights
/// above it in turn; a pause makes one interval late, which loses none.
fn after_a_pause(heights: &[u64]) -> (LossClass, f64) {
    let mut est = Estimator::new(&Params::default());
    let mut class = LossClass::None;
    for i in 0..60 {
        let (late, lost) = if i == 1 { (4_000, 0) } else { (0, 1) };
        let height = heights[i as usize % heights.len()];
        let acks: Vec<_> = (0..100)
            .map(|k| match k {
                48 | 49 => (k * 100, 15_000 + late + height, lost),
                _ => (k * 100, 15_000 + late + k * 5, 0),
            })
            .collect();
        let mi = est.observe(&report(33, i * 15_000, &acks, 10_000), context(12e6));
        class = est.class(&mi);
    }
    assert!(est.rtt_range() > Micros::new(3_500));
    (class, est.loss_floor())
}

#[test]
fn a_pause_hides_no_queue_of_half_a_millisecond() {
    let full = after_a_pause(&[500, 480, 520, 490]);
    assert_eq!(full, (LossClass::Congestive, 0.0));
    let (class, floor) = after_a_pause(&[20, 400, 60, 0, 250, 30]);
    assert_eq!(class, LossClass::Random);
    assert!((floor - 0.02).abs() < 0.005, "{floor}");
}

/// The loss floor where eight of the 200 packets of every fourth interval are lost together, 1 % of all, and the range
/// of the queue is this, us.
fn floor_of_bursts(queue: u64) -> f64 {
    let mut est = Estimator::new(&Params::default());
    for i in 0..400 {
        let lost = |k| u64::from(i % 4 == 1 && k == 100) * 8;
        // The range is seen now and then; what is lost meets the lower half of it.
        let top = if i % 40 == 0 { queue } else { queue / 4 };
        let acks: Vec<_> = (0..200)
            .map(|k| (k * 50, 15_000 + k % 20 * top / 20, lost(k)))
            .collect();
        est.observe(&report(33, i * 15_000, &acks, 10_000), context(24e6));
    }
    est.loss_floor()
}

#[test]
fn bursts_at_a_small_buffer_are_no_sign_of_the_paths_own() {
    let (long, short) = (floor_of_bursts(20_000), floor_of_bursts(1_000));
    assert!((long - 0.01).abs() < 0.002, "{long}");
    assert!(short < 0.008, "no more than lets 800 pass: {short}");
}

#[test]
fn a_queue_is_measured_from_full_packets_on_a_narrow_path() {
    let floor = |packet_time: u64| {
        let mut est = Estimator::new(&Params::default());
        est.learn_packet_time(Micros::new(packet_time));
        // A request's packet, then full ones.
        est.observe(&report(9, 0, &[(0, 10_000, 0)], 1000), context(1e6));
        assert_eq!(est.rtt_floor(), Micros::new(10_000));
        let acks: Vec<_> = (0..20).map(|i| (1_200 * i, 11_100, 0)).collect();
        est.observe(&report(33, 50_000, &acks, 24_000), context(1e6));
        assert_eq!(est.rtt_min(), Micros::new(10_000));
        est.rtt_floor().us()
    };
    assert_eq!(floor(1_200), 11_100);
    assert_eq!(floor(700), 10_700, "no more than a packet's time");
    assert_eq!(floor(100), 10_000, "a hundred packets");
    assert_eq!(floor(0), 10_000, "not known");
}
