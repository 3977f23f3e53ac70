use super::*;
use crate::estimate::SlotContext;
use crate::estimate::tests::report;
use crate::units::Ratio;

pub(crate) const PKT: f64 = 1000.0;
pub(crate) const RATE: Rate = Rate::from_bytes_per_sec(5e6);

/// What is known of an interval of 20 ms.
pub(super) fn context(asked: Option<Rate>) -> SlotContext {
    SlotContext {
        asked,
        length: Micros::new(20_000),
        mss_bytes: PKT,
    }
}

/// An estimator that saw an RTT of 40 ms.
pub(super) fn empty_path() -> Estimator {
    let mut est = Estimator::new(&Params::default());
    est.observe(&report(9, 0, &[(0, 40_000, 0)], 1000), context(None));
    est
}

/// An estimator that saw RTTs of 40 to 80 ms, and an interval of 100 packets sent 0.2 ms apart at `asked`, of which
/// every so-manieth is lost (with 1, none).
pub(crate) fn interval(asked: Rate, rtt: u64, lost_every: u64) -> (Estimator, Mi) {
    let mut est = empty_path();
    est.observe(&report(9, 1, &[(0, 80_000, 0); 8], 1000), context(None));
    let acks: Vec<_> = (0..100)
        .map(|i| (i * 200, rtt, u64::from(i % lost_every == 1)))
        .collect();
    let mi = est.observe(&report(33, 500_000, &acks, 20_000), context(Some(asked)));
    (est, mi)
}

/// 100 packets over the empty path, one each 0.2 ms (5 MB/s), whose RTTs are what `rtt` makes of their number.
pub(super) fn sent(rtt: impl Fn(u64) -> u64) -> (Estimator, Mi) {
    let mut est = empty_path();
    let mi = sent_at(&mut est, 500_000, 200, rtt);
    (est, mi)
}

/// 100 packets, one each `gap_us`, reported at `at`.
pub(crate) fn sent_at(est: &mut Estimator, at: u64, gap_us: u64, rtt: impl Fn(u64) -> u64) -> Mi {
    let acks: Vec<_> = (0..100).map(|i| (i * gap_us, rtt(i), 0)).collect();
    let asked = Rate::from_bytes_in(PKT, Micros::new(gap_us));
    est.observe(&report(33, at, &acks, 100 * gap_us), context(Some(asked)))
}

/// What a rule sees of an interval at [`RATE`].
pub(crate) fn view<'a>(params: &'a Params, (est, mi): &'a (Estimator, Mi)) -> View<'a> {
    View {
        mi,
        est,
        rate: RATE,
        pkt_bytes: PKT,
        params,
    }
}

pub(super) fn check(
    rule: &mut impl Rule,
    params: &Params,
    seen: &(Estimator, Mi),
) -> Option<Action> {
    rule.check(&view(params, seen))
}

#[test]
fn short_paths_tolerate_their_own_bursts() {
    // 150 Mbit/s over 3 ms: 1 ms bursts.
    let rate = Rate::from_mbit(150.0);
    assert!((burst_time(rate, 1448.0).us() as i64 - 977).abs() < 2);
    assert!(
        (burst_time(Rate::from_mbit(5.0), 1448.0).us() as i64 - 2317).abs() < 2,
        "single packets"
    );
    assert!(burst_time(Rate::from_mbit(10_000.0), 1448.0) < Micros::new(60));
}

#[test]
fn a_crowd_s_queue_is_no_jitter_and_what_is_far_beyond_is() {
    let params = Params::default();
    let jitter = |deviation_us| {
        let mut seen = interval(RATE, 50_000, 1);
        if let Some(rtt) = &mut seen.1.rtt {
            rtt.deviation = Micros::new(deviation_us);
        }
        let view = view(&params, &seen);
        assert_eq!(view.tolerated_queue(), Micros::from_millis(10));
        view.jitter()
    };
    assert_eq!(jitter(1500), Micros::new(1500));
    assert_eq!(
        jitter(2000),
        Micros::new(2000),
        "a fifth of what is tolerated"
    );
    assert_eq!(jitter(5000), Micros::new(17_000), "3 ms are beyond");
}

#[test]
fn without_a_part_of_the_rtt_a_high_queue_is_more_than_is_tolerated() {
    let off = Params {
        hb_queue: Ratio::new(0.0),
        ..Params::default()
    };
    let is_high = |rtt| view(&off, &interval(RATE, rtt, 1)).stands_high();
    assert!(!is_high(40_010) && is_high(70_000));
}
