//! What one direction of an emulated path does to packets, without devices and without real time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use pathlab::direction::{Direction, Gone, MAX_HELD_PACKETS, Packet, Released};
use pathlab::ecn::Ecn;
use pathsim::{
    CoDel, Jitter, Loss, LossPlace, MILLISECOND, PathSpec, Pie, QueueDiscipline, QueueLimit,
    RateSchedule, RouteChange, SECOND, Sfq, Trace,
};
use proptest::prelude::*;

fn spec(rate_bps: u64, queue_packets: u32) -> PathSpec {
    PathSpec {
        queue: QueueLimit::Packets(queue_packets),
        ..PathSpec::clean(rate_bps, 0)
    }
}

fn there(path: PathSpec) -> Direction {
    Direction::there(Arc::new(path), 1).unwrap()
}

fn packet(slot: u32, at_ns: u64, bytes: u32) -> Packet {
    Packet {
        slot,
        flow: 0,
        bytes,
        arrived_ns: at_ns,
        extra_rtt_ns: 0,
        ecn: Ecn::NotCapable,
    }
}

/// Offers a packet; returns what is gone by it.
fn offer(direction: &mut Direction, packet: Packet) -> Vec<(u32, Gone)> {
    let mut gone = Vec::new();
    direction.offer(packet, |packet, why| gone.push((packet.slot, why)));
    gone
}

/// Looks only when something is due, as an emulator that is never late.
fn drain(direction: &mut Direction) -> Vec<Released> {
    let mut released = Vec::new();
    while let Some(at_ns) = direction.next_ns() {
        direction.advance(at_ns, |_, _| {});
        released.extend(std::iter::from_fn(|| direction.release(at_ns)));
    }
    released
}

fn dues_ms(direction: &mut Direction) -> Vec<u64> {
    let released = drain(direction).into_iter();
    released
        .map(|released| released.due_ns / MILLISECOND)
        .collect()
}

#[test]
fn an_idle_link_adds_service_time_and_delay() {
    let mut direction = there(PathSpec {
        rtt_ns: 40 * MILLISECOND,
        ..spec(12_000_000, 5)
    });
    offer(&mut direction, packet(1, 7 * MILLISECOND, 1500));
    assert_eq!(direction.next_ns(), Some(28 * MILLISECOND));
    assert_eq!(direction.release(28 * MILLISECOND - 1), None);
    let due_ns = 28 * MILLISECOND;
    let released = direction.release(due_ns).unwrap();
    assert_eq!((released.due_ns, released.packet.slot), (due_ns, 1));
    assert_eq!(direction.next_ns(), None);
}

#[test]
fn the_queue_does_not_count_the_packet_in_transmission() {
    let mut direction = there(spec(12_000_000, 2));
    let dropped = (0..5).map(|n| offer(&mut direction, packet(n, 0, 1500)));
    assert_eq!(
        dropped.flatten().collect::<Vec<_>>(),
        [(3, Gone::Dropped), (4, Gone::Dropped)]
    );
    // One millisecond later the second is in transmission, and one place is free.
    assert_eq!(offer(&mut direction, packet(5, MILLISECOND, 1500)), []);
    let late = offer(&mut direction, packet(6, MILLISECOND, 1500));
    assert_eq!(late, [(6, Gone::Dropped)]);
}

#[test]
fn a_queue_in_bytes_has_room_for_more_small_packets() {
    let mut path = spec(12_000_000, 1);
    path.queue = QueueLimit::Bytes(3000);
    let waiting = |bytes| {
        let mut direction = there(path.clone());
        (0..100).for_each(|n| {
            offer(&mut direction, packet(n, 0, bytes));
        });
        direction.waiting(0)
    };
    assert_eq!((waiting(1500), waiting(100)), (2, 30));
}

/// What a managed queue would drop of packets that cannot be marked, it marks of those that can.
#[test]
fn a_managed_queue_marks_what_can_be_marked() {
    let managed = [
        QueueDiscipline::CoDel(CoDel::default()),
        QueueDiscipline::Pie(Pie::default()),
    ];
    for discipline in managed {
        let counts = |ecn| {
            let mut direction = there(PathSpec {
                discipline,
                ..spec(12_000_000, 10_000)
            });
            // Three in a hundred too many, and not for longer: PIE drops also these where it would drop more than a
            // tenth.
            let mut marked = 0;
            for n in 0..1700 {
                let at_ns = u64::from(n) * MILLISECOND * 100 / 103;
                let packet = Packet {
                    ecn,
                    ..packet(n, at_ns, 1500)
                };
                direction.offer(packet, |_, _| {});
                direction.advance(at_ns, |_, _| {});
                while let Some(released) = direction.release(at_ns) {
                    marked += u64::from(released.packet.ecn == Ecn::Marked);
                }
            }
            let counters = direction.counters();
            assert_eq!(counters.marked, marked, "{discipline:?}");
            (counters.queue_drops, marked)
        };
        let (dropped, none) = counts(Ecn::NotCapable);
        let (nothing, marked) = counts(Ecn::Capable);
        assert!(dropped > 0 && marked > 0, "{dropped} {marked}");
        assert_eq!((nothing, none), (0, 0), "{discipline:?}");
    }
}

#[test]
fn late_releases_do_not_move_later_departures() {
    let disciplines = [
        QueueDiscipline::DropTail,
        QueueDiscipline::CoDel(CoDel::default()),
        QueueDiscipline::Sfq(Sfq::default()),
    ];
    for discipline in disciplines {
        let mut direction = there(PathSpec {
            discipline,
            ..spec(12_000_000, 10)
        });
        for n in 0..3 {
            offer(&mut direction, packet(n, 0, 1500));
        }
        // Nobody looks until here; the fourth finds the third in transmission.
        offer(&mut direction, packet(3, 2 * MILLISECOND + 500_000, 1500));
        direction.advance(50 * MILLISECOND, |_, _| {});
        let released = std::iter::from_fn(|| direction.release(50 * MILLISECOND));
        let dues: Vec<_> = released.map(|packet| packet.due_ns / MILLISECOND).collect();
        assert_eq!(dues, [1, 2, 3, 4], "{discipline:?}");
    }
}

#[test]
fn small_packets_share_an_opportunity_of_a_trace() {
    let mut path = spec(12_000_000, 100);
    path.rate = RateSchedule::Trace(Arc::new(Trace::parse("1\n3\n4\n").unwrap()));
    let mut direction = there(path);
    // 500 + 500 + 500 in the first, 1000 and a half of the next in the second ...
    for (n, bytes) in [500, 500, 500, 1000, 1000, 1500].into_iter().enumerate() {
        offer(&mut direction, packet(n as u32, 0, bytes));
    }
    assert_eq!(dues_ms(&mut direction), [1, 1, 1, 3, 4, 5]);
    // What an opportunity had left at 5 ms is lost by 6 ms, and the trace begins again after 4 ms.
    offer(&mut direction, packet(9, 6 * MILLISECOND, 40));
    assert_eq!(dues_ms(&mut direction), [7]);
}

#[test]
fn flows_with_an_extra_rtt_take_longer_both_ways() {
    let path = Arc::new(PathSpec {
        rtt_ns: 20 * MILLISECOND,
        ..spec(12_000_000_000, 100)
    });
    let mut there = Direction::there(Arc::clone(&path), 1).unwrap();
    let mut back = Direction::back(path, 1);
    for direction in [&mut there, &mut back] {
        let far = Packet {
            extra_rtt_ns: 60 * MILLISECOND,
            ..packet(1, 0, 1500)
        };
        offer(direction, far);
        offer(direction, packet(2, 0, 1500));
        assert_eq!(dues_ms(direction), [10, 40]);
    }
}

#[test]
fn a_shorter_route_lets_later_packets_overtake() {
    let mut path = PathSpec {
        rtt_ns: 100 * MILLISECOND,
        ..spec(12_000_000, 100)
    };
    path.route_changes = vec![RouteChange {
        at_ns: 10 * MILLISECOND,
        rtt_ns: 20 * MILLISECOND,
    }];
    let mut direction = there(path);
    offer(&mut direction, packet(1, 0, 1500));
    offer(&mut direction, packet(2, 10 * MILLISECOND, 1500));
    let order: Vec<_> = drain(&mut direction)
        .iter()
        .map(|released| (released.packet.slot, released.due_ns / MILLISECOND))
        .collect();
    assert_eq!(order, [(2, 21), (1, 51)]);
}

#[test]
fn a_delay_limit_counts_what_waits_and_what_travels() {
    for discipline in [
        QueueDiscipline::DropTail,
        QueueDiscipline::Sfq(Sfq::default()),
    ] {
        let mut direction = there(PathSpec {
            rtt_ns: 100 * MILLISECOND,
            delay_limit_packets: Some(20),
            discipline,
            ..spec(12_000_000, 1000)
        });
        let dropped = (0..30).flat_map(|n| offer(&mut direction, packet(n, 0, 1500)));
        assert_eq!(dropped.count(), 10, "{discipline:?}");
        // At 40 ms all have left the queue, but none has arrived.
        let full = offer(&mut direction, packet(30, 40 * MILLISECOND, 1500));
        assert_eq!(full, [(30, Gone::Dropped)], "{discipline:?}");
        assert_eq!(direction.waiting(40 * MILLISECOND), 0);
        direction.advance(60 * MILLISECOND, |_, _| {});
        while direction.release(60 * MILLISECOND).is_some() {}
        let room = offer(&mut direction, packet(31, 60 * MILLISECOND, 1500));
        assert_eq!(room, [], "{discipline:?}");
    }
}

#[test]
fn sfq_shares_between_a_flood_and_a_trickle() {
    let mut direction = there(PathSpec {
        discipline: QueueDiscipline::Sfq(Sfq::default()),
        ..spec(12_000_000, Sfq::LINUX_LIMIT_PACKETS)
    });
    let (mut gone, mut out) = ([0u32; 2], Vec::new());
    for ms in 0..1000u64 {
        // Flow 0: 4 packets a millisecond, which is four times the rate; flow 1: one in 4 ms, a quarter of it.
        for n in 0..5 {
            if n == 4 && ms % 4 > 0 {
                continue;
            }
            let packet = Packet {
                flow: u32::from(n == 4),
                ..packet(0, ms * MILLISECOND, 1500)
            };
            direction.offer(packet, |packet, _| gone[packet.flow as usize] += 1);
        }
        out.extend(std::iter::from_fn(|| direction.release(ms * MILLISECOND)));
    }
    assert_eq!(gone[1], 0, "the trickle lost packets");
    let delay_ms =
        |released: &Released| (released.due_ns - released.packet.arrived_ns) / MILLISECOND;
    let of_trickle = out.iter().filter(|released| released.packet.flow == 1);
    assert!(of_trickle.clone().count() >= 249);
    let longest = of_trickle.map(delay_ms).max().unwrap();
    assert!(longest <= 3, "a packet of the trickle took {longest} ms");
    let of_flood = out.iter().filter(|released| released.packet.flow == 0);
    let flood_ms = of_flood.map(delay_ms).max().unwrap();
    assert!(flood_ms > 100, "the flood's queue took only {flood_ms} ms");
}

#[test]
fn exponential_jitter_has_its_mean_and_keeps_the_order() {
    let jitter = Jitter::Exponential {
        mean_ns: 4 * MILLISECOND,
    };
    // Packets so far apart that none waits for the one before.
    let mut direction = there(PathSpec {
        jitter,
        ..spec(12_000_000_000, 100)
    });
    (0..20_000).for_each(|n| {
        offer(&mut direction, packet(n, u64::from(n) * SECOND, 1500));
    });
    let out = drain(&mut direction);
    let late = out
        .iter()
        .map(|released| released.due_ns - released.packet.arrived_ns);
    let mean_ms = late.sum::<u64>() as f64 / 20_000.0 / MILLISECOND as f64;
    // The standard deviation of the mean is 4 / √20000 = 0.028 ms: five of them.
    assert!((mean_ms - 4.0).abs() < 0.142, "{mean_ms}");
    // And so close together that most wait.
    let mut direction = there(PathSpec {
        jitter,
        ..spec(12_000_000, 100_000)
    });
    (0..10_000).for_each(|n| {
        offer(&mut direction, packet(n, 0, 1500));
    });
    let order = drain(&mut direction);
    assert!(order.is_sorted_by_key(|released| released.packet.slot));
}

#[test]
fn lost_packets_use_the_link_unless_they_are_lost_in_front() {
    for (place, last_ms) in [(LossPlace::Behind, 1000), (LossPlace::InFront, 500)] {
        let mut direction = there(PathSpec {
            loss: Loss::Random(0.5),
            loss_place: place,
            ..spec(12_000_000, 1000)
        });
        let lost: usize = (0..1000)
            .map(|n| offer(&mut direction, packet(n, 0, 1500)).len())
            .sum();
        // Five standard deviations of 16.
        assert!(lost.abs_diff(500) < 80, "{lost}");
        let last = dues_ms(&mut direction).pop().unwrap();
        assert!(last.abs_diff(last_ms) < 80, "{place:?}: {last} ms");
    }
}

#[test]
fn loss_of_acks_is_of_the_way_back() {
    let path = Arc::new(PathSpec {
        ack_loss: Loss::Random(0.2),
        ..spec(12_000_000, 1000)
    });
    let mut back = Direction::back(path, 1);
    let lost: usize = (0..10_000)
        .map(|n| offer(&mut back, packet(n, 0, 52)).len())
        .sum();
    // Five standard deviations of 40.
    assert!(lost.abs_diff(2000) < 200, "{lost}");
}

#[test]
fn a_direction_holds_a_bounded_number_of_packets() {
    let mut back = Direction::back(Arc::new(PathSpec::clean(1_000_000, SECOND)), 1);
    for n in 0..MAX_HELD_PACKETS as u32 {
        assert_eq!(offer(&mut back, packet(n, 0, 40)), []);
    }
    assert_eq!(offer(&mut back, packet(7, 0, 40)), [(7, Gone::Overflow)]);
}

#[test]
fn a_restart_begins_the_schedule_anew_and_delivers_what_travels() {
    let mut path = PathSpec {
        rtt_ns: 20 * MILLISECOND,
        discipline: QueueDiscipline::CoDel(CoDel::default()),
        ..spec(12_000_000, 100)
    };
    path.rate = RateSchedule::Steps(vec![(0, 12_000_000), (SECOND, 1_200_000)]);
    let mut direction = there(path);
    for n in 0..3 {
        offer(&mut direction, packet(n, 5 * SECOND, 1500));
    }
    let mut gone = 0;
    direction.restart(5 * SECOND, |_, _| gone += 1).unwrap();
    assert_eq!((gone, direction.counters().held), (0, 3));
    offer(&mut direction, packet(3, 0, 1500));
    // Those of before at a tenth of the rate, the new one at the rate of the beginning.
    assert_eq!(dues_ms(&mut direction), [11, 20, 30, 40]);
    let counters = direction.counters();
    assert_eq!((counters.arrived, counters.released), (4, 4));
}

/// All kinds of paths.
fn any_path() -> impl Strategy<Value = PathSpec> {
    let rate = prop_oneof![
        (10_000u64..1_000_000_000).prop_map(RateSchedule::Constant),
        (100_000u64..100_000_000, 1u64..500).prop_map(|(bps, ms)| RateSchedule::Steps(vec![
            (0, bps),
            (ms * MILLISECOND, bps / 3 + 1_000),
        ])),
        prop::collection::vec(0u64..40, 1..100).prop_map(|mut ms| {
            ms.push(1);
            ms.sort_unstable();
            let lines: Vec<_> = ms.iter().map(u64::to_string).collect();
            RateSchedule::Trace(Arc::new(Trace::parse(&lines.join("\n")).unwrap()))
        }),
    ];
    let discipline = prop_oneof![
        Just(QueueDiscipline::DropTail),
        Just(QueueDiscipline::CoDel(CoDel::default())),
        Just(QueueDiscipline::Pie(Pie::default())),
        (1u32..2000).prop_map(|buckets| QueueDiscipline::Sfq(Sfq {
            buckets,
            ..Sfq::default()
        })),
    ];
    let jitter = prop_oneof![
        Just(Jitter::None),
        (0u64..10_000_000).prop_map(|max_ns| Jitter::Uniform {
            max_ns,
            reorder: false
        }),
        (0u64..10_000_000).prop_map(|mean_ns| Jitter::Exponential { mean_ns }),
    ];
    let limit = prop::option::of(1u32..200);
    let place = prop_oneof![Just(LossPlace::Behind), Just(LossPlace::InFront)];
    (
        rate,
        discipline,
        jitter,
        limit,
        place,
        0.0f64..0.9,
        1u32..50,
        0u64..100_000_000,
    )
        .prop_map(
            |(rate, discipline, jitter, limit, loss_place, loss, queue, rtt_ns)| PathSpec {
                rate,
                rtt_ns,
                discipline,
                jitter,
                loss: Loss::Random(loss),
                loss_place,
                delay_limit_packets: limit,
                ..spec(1_000_000, queue)
            },
        )
}

proptest! {
    /// A backlogged link delivers its rate to a nanosecond per packet, whatever rate and lengths.
    #[test]
    fn capacity_is_exact(
        rate_bps in 1_000u64..100_000_000_000,
        lengths in prop::collection::vec(1u32..=65_535, 1..200),
    ) {
        let mut direction = there(spec(rate_bps, 10_000));
        for (n, bytes) in lengths.iter().enumerate() {
            offer(&mut direction, packet(n as u32, MILLISECOND, *bytes));
        }
        let bits: u128 = lengths.iter().map(|bytes| u128::from(*bytes) * 8).sum();
        let exact_ns = (bits * 1_000_000_000 / u128::from(rate_bps)) as u64;
        let took_ns = drain(&mut direction).pop().unwrap().due_ns - MILLISECOND;
        prop_assert!(took_ns <= exact_ns && exact_ns - took_ns <= lengths.len() as u64);
    }

    /// Under any arrivals over any path: packets are conserved, flows keep their order, nothing arrives before it can,
    /// and the queue never exceeds its bound.
    #[test]
    fn any_traffic_is_carried_honestly(
        path in any_path(),
        seed: u64,
        arrivals in prop::collection::vec((0u64..5_000, 40u32..=1500, 0u32..5, any::<bool>()), 1..300),
    ) {
        let QueueLimit::Packets(limit) = path.queue else { unreachable!() };
        let rtt_ns = path.rtt_ns;
        let mut direction = Direction::there(Arc::new(path), seed).unwrap();
        let (mut now_ns, mut gone, mut out) = (0, Vec::new(), Vec::<Released>::new());
        let mut arrived_at = Vec::new();
        for (n, (gap_us, bytes, flow, looks)) in arrivals.iter().enumerate() {
            now_ns += gap_us * 1000;
            arrived_at.push(now_ns);
            let packet = Packet { flow: *flow, ..packet(n as u32, now_ns, *bytes) };
            direction.offer(packet, |packet, _| gone.push(packet.slot));
            prop_assert!(direction.waiting(now_ns) <= limit as usize);
            if *looks {
                out.extend(std::iter::from_fn(|| direction.release(now_ns)));
            }
            let counters = direction.counters();
            prop_assert_eq!(
                counters.arrived,
                counters.queue_drops + counters.losses + counters.released + counters.held
            );
            prop_assert_eq!(counters.queue_drops + counters.losses, gone.len() as u64);
            prop_assert_eq!(counters.released, out.len() as u64);
        }
        while let Some(at_ns) = direction.next_ns() {
            direction.advance(at_ns, |packet, _| gone.push(packet.slot));
            out.extend(std::iter::from_fn(|| direction.release(at_ns)));
        }
        // Every packet ends once.
        let mut ends: Vec<u32> = out.iter().map(|released| released.packet.slot).collect();
        ends.extend(&gone);
        ends.sort_unstable();
        prop_assert!(ends.iter().copied().eq(0..arrivals.len() as u32));
        prop_assert_eq!(direction.counters().held, 0);
        for flow in 0..5 {
            let slots = out.iter().filter(|released| released.packet.flow == flow);
            prop_assert!(slots.is_sorted_by_key(|released| released.packet.slot));
        }
        for released in &out {
            prop_assert!(released.due_ns >= arrived_at[released.packet.slot as usize] + rtt_ns / 2);
        }
    }
}
