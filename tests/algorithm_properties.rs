//! Properties that must hold whatever a datapath reports.

use pk3c_ccp::controller::{Controller, FlowStart};
use pk3c_ccp::params::{Algorithm, Params};
use pk3c_ccp::plan::{Command, Decision};
use pk3c_ccp::program::RawReport;
use pk3c_ccp::units::{Bytes, Micros, Rate};
use proptest::prelude::*;
use std::sync::Arc;

const MSS: u64 = 1448;

/// Numbers of every size, the odd ones included.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..100_000_u64,
        2 => 0..u64::from(u32::MAX) * 2,
        1 => any::<u64>(),
        1 => Just(0),
        1 => Just(u64::MAX),
    ]
}

/// Any sixteen numbers.
fn wild() -> impl Strategy<Value = RawReport> {
    proptest::array::uniform16(number()).prop_map(RawReport::from_fields)
}

/// Sums that a real interval could have, with random slope, loss and gaps.
fn plausible() -> impl Strategy<Value = RawReport> {
    (
        1..400_u64,
        50..400_000_u64,
        -0.3..0.6_f64,
        0..60_u64,
        100..3000_u64,
        0..3u64,
    )
        .prop_map(|(n, rtt, slope, lost, gap, silent)| {
            let mut raw = RawReport {
                sdur: n * gap,
                rmin: u64::from(u32::MAX),
                ..RawReport::default()
            };
            for i in 0..n {
                let t = i * gap;
                let rtt = (rtt as f64 + slope * t as f64).max(20.0) as u64;
                raw.n += 1;
                raw.st += t;
                raw.sr += rtt;
                raw.srt += t * rtt;
                raw.stt += t * t;
                raw.srr += rtt * rtt;
                raw.rmin = raw.rmin.min(rtt);
                raw.rmax = raw.rmax.max(rtt);
                raw.a1 = t + rtt;
                if i == 0 {
                    raw.a0 = raw.a1;
                }
            }
            raw.dlv = n;
            raw.lost = lost;
            raw.nl = lost;
            raw.srl = lost * rtt;
            if silent == 0 {
                raw.n = 0;
            }
            raw
        })
}

/// Sums of a real interval whose smallest and largest RTT are about the mean, each above or below the other.
fn crossed() -> impl Strategy<Value = RawReport> {
    (plausible(), 0..4_u64, 0..4_u64).prop_map(|(mut raw, above, below)| {
        let mean = raw.sr / raw.n.max(1);
        raw.rmin = mean + above - 1;
        raw.rmax = mean + 2 - below;
        raw
    })
}

#[derive(Clone, Debug)]
struct Event {
    raw: RawReport,
    /// Replace the tag by one of the current plan, with this slot.
    slot: Option<u64>,
    elapsed_us: u64,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let raw = prop_oneof![1 => wild(), 1 => crossed(), 6 => plausible()];
    let event = (
        raw,
        prop_oneof![1 => Just(None), 8 => (0..6_u64).prop_map(Some), 1 => (16..20_u64).prop_map(Some)],
        0..500_000_u64,
    );
    prop::collection::vec(
        event.prop_map(|(raw, slot, elapsed_us)| Event {
            raw,
            slot,
            elapsed_us,
        }),
        1..150,
    )
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::Pk3c),
        Just(Algorithm::Vivace),
        Just(Algorithm::Upstream)
    ]
}

fn check(decision: &Decision, params: &Params) -> Result<(), TestCaseError> {
    let allowed = params.min_rate..=params.max_rate;
    prop_assert!(allowed.contains(&decision.rate), "{decision:?}");
    let cwnd = match decision.command {
        None => decision.cwnd,
        Some(Command::Window { cwnd }) => cwnd,
        Some(Command::Steer {
            rate,
            hold,
            now,
            length,
            cwnd,
        }) => {
            let rates = [rate, hold, now];
            prop_assert!(
                rates.iter().all(|rate| allowed.contains(rate)) && length > Micros::ZERO,
                "{decision:?}"
            );
            cwnd
        }
        Some(Command::Run { plan, cwnd }) => {
            prop_assert!(
                plan.rates
                    .iter()
                    .chain([&plan.hold])
                    .all(|rate| allowed.contains(rate)),
                "{decision:?}"
            );
            prop_assert!(
                plan.length > Micros::ZERO && plan.length < Micros::new(6_000_000),
                "{decision:?}"
            );
            prop_assert!(plan.number >= 1 && plan.number < 1 << 24);
            cwnd
        }
    };
    prop_assert!(
        cwnd == decision.cwnd && cwnd.get() >= 4 * MSS && cwnd.get() <= u64::from(u32::MAX),
        "{decision:?}"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_reports_give_sane_commands(
        events in events(),
        seed in any::<u64>(),
        cwnd in number(),
        resume in prop::option::of((0.0..1e10_f64, number())),
        // 64 bit/s to 34 Gbit/s, which is what a CCP field carries.
        bounds in prop_oneof![
            Just((4e3, 1.25e9)), Just((1e6, 1e6)), Just((8.0, 4_294_967_295.0)), Just((8.0, 16.0)),
            Just((4_294_967_294.0, 4_294_967_295.0)),
        ],
        algorithm in algorithm(),
        switch in prop::option::of((0..150_usize, algorithm())),
    ) {
        let params = |algorithm| Arc::new(Params {
            min_rate: Rate::from_bytes_per_sec(bounds.0),
            max_rate: Rate::from_bytes_per_sec(bounds.1),
            algorithm,
            ..Params::default()
        });
        let mut params_now = params(algorithm);
        let resume = resume.map(|(rate, rtt)| (Rate::from_bytes_per_sec(rate), Micros::new(rtt)));
        let start = FlowStart { mss: Bytes::new(MSS), init_cwnd: Bytes::new(cwnd), resume };
        let (mut controller, first) = Controller::new(params_now.clone(), seed, start);
        let mut replayed = Controller::new(params_now.clone(), seed, start).0;
        check(&first, &params_now)?;
        let plan_of = |decision: &Decision| match decision.command {
            Some(Command::Run { plan, .. }) => Some(u64::from(plan.number)),
            _ => None,
        };
        let mut plan = plan_of(&first).unwrap_or(0);
        let mut now = 0;
        for (number, Event { mut raw, slot, elapsed_us }) in events.into_iter().enumerate() {
            if let Some((_, other)) = switch.filter(|(at, _)| *at == number) {
                params_now = params(other);
                controller.set_params(params_now.clone());
                replayed.set_params(params_now.clone());
            }
            now += elapsed_us;
            if let Some(slot) = slot {
                raw.tag = plan * 32 + slot;
                raw.a0 = raw.a0.saturating_add(now);
                raw.a1 = raw.a1.saturating_add(now);
            }
            let decision = controller.on_report(&raw);
            check(&decision, &params_now)?;
            prop_assert_eq!(&decision, &replayed.on_report(&raw), "the same reports, the same decisions");
            plan = plan_of(&decision).unwrap_or(plan);
        }
    }
}
