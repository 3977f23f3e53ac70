//! One direction of an emulated path, without any input or output.
//!
//! ```text
//!            drop-tail queue      bottleneck        random loss      delay line
//!  arrive ──▶ (packets, bound) ──▶ (rate) ─────────▶ (probability) ──▶ (fixed) ──▶ release
//!                 └─ queue drop                        └─ loss
//! ```
//!
//! The bottleneck keeps a virtual clock: when a packet arrives, its service begins when the one
//! before it ends (or at once), and its departure follows from its length and the rate. Every
//! decision is thus made at arrival, from arrival times alone. A caller that releases packets late
//! delays those packets, but neither the queue nor any later departure, so its timing errors never
//! add up and the capacity stays exact. What a division leaves is carried to the next packet.
//!
//! Loss comes *after* the bottleneck: a lost packet has used its share of the link, so a path of
//! rate R and loss p delivers at most R × (1 - p).
//!
//! Packets are never reordered. Time is a [`Duration`] since any fixed origin, and comes from the
//! caller, as does the seed of the random numbers.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Packets that a link holds at most, waiting or travelling. 2^18 full-size packets are 3 Gbit,
/// for example 10 Gbit/s over 300 ms.
pub const MAX_HELD_PACKETS: usize = 1 << 18;

/// Where packets wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Rate in bits per second, counted on whole IP packets.
    pub rate_bps: u64,
    /// Packets that may wait, not counting the one in transmission.
    pub queue_packets: u32,
}

/// One direction of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// The rate limit and its queue; `None` passes packets on at once.
    pub bottleneck: Option<Bottleneck>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Probability in `0.0..=1.0` that a packet is lost after the bottleneck.
    pub loss: f64,
}

/// Why a [`LinkSpec`] describes no link.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidLink {
    /// Nothing would ever leave the link.
    #[error("a link rate of 0 bit/s carries nothing; give at least 1")]
    ZeroRate,
    /// Not a probability.
    #[error("a loss of {0} is not a probability; give 0.0 to 1.0")]
    Loss(f64),
}

/// What happened to an arriving packet. A packet that goes no further is handed back.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<P> {
    /// It will be released, unless the link is dropped before.
    Accepted,
    /// The queue was full.
    QueueFull(P),
    /// It was lost at random, after having used the link.
    Lost(P),
    /// The link held [`MAX_HELD_PACKETS`] already.
    Overflow(P),
}

/// Packets and bytes of a link since its start.
/// `arrived = queue_drops + losses + overflows + released + held` at all times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets dropped because the queue was full.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub losses: u64,
    /// Packets dropped because the link held too many.
    pub overflows: u64,
    /// Packets released at the far end.
    pub released: u64,
    /// Bytes released at the far end.
    pub released_bytes: u64,
}

/// A packet at the far end of the link.
#[derive(Debug, PartialEq, Eq)]
pub struct Released<P> {
    /// When it was due.
    pub due: Duration,
    /// The packet.
    pub packet: P,
}

#[derive(Debug)]
struct Held<P> {
    due: Duration,
    bytes: u32,
    packet: P,
}

/// One direction of a path; `P` is whatever stands for a packet.
#[derive(Debug)]
pub struct Link<P> {
    spec: LinkSpec,
    /// When the bottleneck ends the service of the last accepted packet.
    free_at: Duration,
    /// What the last division left of `free_at`, in nanoseconds / `rate_bps`.
    remainder: u64,
    /// Begin of service of accepted packets that may still wait.
    waiting: VecDeque<Duration>,
    held: VecDeque<Held<P>>,
    rng: ChaCha8Rng,
    counters: Counters,
}

impl<P> Link<P> {
    /// An idle link whose random losses follow from `seed`.
    ///
    /// # Errors
    /// [`InvalidLink`] if the rate is 0 or the loss is not a probability.
    pub fn new(spec: LinkSpec, seed: u64) -> Result<Self, InvalidLink> {
        if spec
            .bottleneck
            .is_some_and(|bottleneck| bottleneck.rate_bps == 0)
        {
            return Err(InvalidLink::ZeroRate);
        }
        if !(0.0..=1.0).contains(&spec.loss) {
            return Err(InvalidLink::Loss(spec.loss));
        }
        Ok(Self {
            spec,
            free_at: Duration::ZERO,
            remainder: 0,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            counters: Counters::default(),
        })
    }

    /// Takes in a packet of `bytes` at `now`. Times must not run backwards from call to call.
    pub fn arrive(&mut self, now: Duration, bytes: u32, packet: P) -> Verdict<P> {
        self.counters.arrived += 1;
        if self.held.len() >= MAX_HELD_PACKETS {
            self.counters.overflows += 1;
            return Verdict::Overflow(packet);
        }
        let departs = match self.spec.bottleneck {
            None => now,
            Some(bottleneck) => {
                if self.waiting_packets(now) >= bottleneck.queue_packets as usize
                    && self.free_at > now
                {
                    self.counters.queue_drops += 1;
                    return Verdict::QueueFull(packet);
                }
                self.serve(now, bytes, bottleneck.rate_bps)
            }
        };
        if self.spec.loss > 0.0 && self.rng.random::<f64>() < self.spec.loss {
            self.counters.losses += 1;
            return Verdict::Lost(packet);
        }
        self.held.push_back(Held {
            due: departs + self.spec.delay,
            bytes,
            packet,
        });
        Verdict::Accepted
    }

    /// Packets that wait for their transmission to begin, at `now`.
    pub fn waiting_packets(&mut self, now: Duration) -> usize {
        while self.waiting.front().is_some_and(|begin| *begin <= now) {
            self.waiting.pop_front();
        }
        self.waiting.len()
    }

    /// Puts a packet on the virtual clock and returns its departure.
    fn serve(&mut self, now: Duration, bytes: u32, rate_bps: u64) -> Duration {
        let begin = if self.free_at > now {
            self.waiting.push_back(self.free_at);
            self.free_at
        } else {
            self.remainder = 0;
            now
        };
        // 2^32 bytes × 8 × 10^9 fits in u128 whatever the length.
        let work = u128::from(bytes) * 8_000_000_000 + u128::from(self.remainder);
        let rate = u128::from(rate_bps);
        self.remainder = (work % rate) as u64;
        let service_ns = u64::try_from(work / rate).unwrap_or(u64::MAX);
        self.free_at = begin.saturating_add(Duration::from_nanos(service_ns));
        self.free_at
    }

    /// When the next packet is due at the far end.
    pub fn next_due(&self) -> Option<Duration> {
        self.held.front().map(|held| held.due)
    }

    /// Hands out the next packet that is due at `now`, if there is one.
    pub fn release(&mut self, now: Duration) -> Option<Released<P>> {
        if self.next_due()? > now {
            return None;
        }
        let Held { due, bytes, packet } = self.held.pop_front()?;
        self.counters.released += 1;
        self.counters.released_bytes += u64::from(bytes);
        Some(Released { due, packet })
    }

    /// Packets on their way, waiting or travelling.
    pub fn held_packets(&self) -> usize {
        self.held.len()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn bottleneck(rate_bps: u64, queue_packets: u32) -> LinkSpec {
        LinkSpec {
            bottleneck: Some(Bottleneck {
                rate_bps,
                queue_packets,
            }),
            delay: Duration::ZERO,
            loss: 0.0,
        }
    }

    fn drain(link: &mut Link<u32>) -> Vec<Released<u32>> {
        std::iter::from_fn(|| link.release(Duration::MAX)).collect()
    }

    #[test]
    fn an_idle_link_adds_service_time_and_delay() {
        let spec = LinkSpec {
            delay: 20 * MS,
            ..bottleneck(12_000_000, 5)
        };
        let mut link = Link::new(spec, 0).unwrap();
        assert_eq!(link.arrive(7 * MS, 1500, 1), Verdict::Accepted);
        assert_eq!(link.next_due(), Some(28 * MS));
        assert_eq!(link.release(28 * MS - Duration::from_nanos(1)), None);
        assert_eq!(
            link.release(28 * MS),
            Some(Released {
                due: 28 * MS,
                packet: 1
            })
        );
        assert_eq!(link.next_due(), None);
    }

    #[test]
    fn the_queue_does_not_count_the_packet_in_transmission() {
        let mut link = Link::new(bottleneck(12_000_000, 2), 0).unwrap();
        let accepted = (0..5)
            .filter(|n| link.arrive(Duration::ZERO, 1500, *n) == Verdict::Accepted)
            .count();
        assert_eq!(accepted, 3);
        // One millisecond later the second is in transmission, and one place is free.
        assert_eq!(link.arrive(MS, 1500, 5), Verdict::Accepted);
        assert_eq!(link.arrive(MS, 1500, 6), Verdict::QueueFull(6));
        assert_eq!(link.counters().queue_drops, 3);
    }

    #[test]
    fn a_queue_of_none_still_transmits() {
        let mut link = Link::new(bottleneck(12_000_000, 0), 0).unwrap();
        assert_eq!(link.arrive(Duration::ZERO, 1500, 0), Verdict::Accepted);
        assert_eq!(link.arrive(MS / 2, 1500, 1), Verdict::QueueFull(1));
        assert_eq!(link.arrive(MS, 1500, 2), Verdict::Accepted);
    }

    #[test]
    fn late_releases_do_not_move_later_departures() {
        let mut link = Link::new(bottleneck(12_000_000, 10), 0).unwrap();
        for n in 0..3 {
            link.arrive(Duration::ZERO, 1500, n);
        }
        link.release(50 * MS);
        link.arrive(2 * MS + MS / 2, 1500, 3);
        assert_eq!(drain(&mut link).last().map(|last| last.due), Some(4 * MS));
    }

    #[test]
    fn random_loss_is_as_frequent_as_asked_and_repeatable() {
        let spec = LinkSpec {
            bottleneck: None,
            delay: MS,
            loss: 0.01,
        };
        let lost = |seed| {
            let mut link = Link::new(spec, seed).unwrap();
            let fates: Vec<bool> = (0..200_000)
                .map(|n| {
                    link.release(Duration::from_millis(n));
                    link.arrive(Duration::from_millis(n), 1500, ()) == Verdict::Lost(())
                })
                .collect();
            (link.counters().losses, fates)
        };
        let (count, fates) = lost(1);
        // 2000 expected, standard deviation 44: five of them.
        assert!((1780..=2220).contains(&count), "{count} of 200000 lost");
        assert_eq!(fates, lost(1).1);
        assert_ne!(fates, lost(2).1);
    }

    #[test]
    fn lost_packets_use_the_link() {
        let spec = LinkSpec {
            loss: 1.0,
            ..bottleneck(12_000_000, 1)
        };
        let mut link = Link::new(spec, 0).unwrap();
        assert_eq!(link.arrive(Duration::ZERO, 1500, 0), Verdict::Lost(0));
        assert_eq!(link.arrive(Duration::ZERO, 1500, 1), Verdict::Lost(1));
        assert_eq!(link.arrive(Duration::ZERO, 1500, 2), Verdict::QueueFull(2));
    }

    #[test]
    fn a_link_holds_a_bounded_number_of_packets() {
        let spec = LinkSpec {
            bottleneck: None,
            delay: MS,
            loss: 0.0,
        };
        let mut link = Link::new(spec, 0).unwrap();
        for _ in 0..MAX_HELD_PACKETS {
            assert_eq!(link.arrive(Duration::ZERO, 40, ()), Verdict::Accepted);
        }
        assert_eq!(link.arrive(Duration::ZERO, 40, ()), Verdict::Overflow(()));
    }

    #[test]
    fn impossible_links_are_refused() {
        assert_eq!(
            Link::<()>::new(bottleneck(0, 1), 0).err(),
            Some(InvalidLink::ZeroRate)
        );
        for loss in [-0.1, 1.1, f64::NAN] {
            let spec = LinkSpec {
                loss,
                ..bottleneck(1, 1)
            };
            assert!(matches!(
                Link::<()>::new(spec, 0),
                Err(InvalidLink::Loss(_))
            ));
        }
    }

    proptest! {
        /// A backlogged link delivers its rate to the nanosecond, whatever rate and lengths.
        #[test]
        fn capacity_is_exact(
            rate_bps in 1_000u64..100_000_000_000,
            lengths in prop::collection::vec(1u32..=65_535, 1..200),
        ) {
            let mut link = Link::new(bottleneck(rate_bps, u32::MAX), 0).unwrap();
            for bytes in &lengths {
                link.arrive(MS, *bytes, 0);
            }
            let bits: u128 = lengths.iter().map(|bytes| u128::from(*bytes) * 8).sum();
            let exact_ns = bits * 1_000_000_000 / u128::from(rate_bps);
            let last = drain(&mut link).pop().unwrap();
            prop_assert_eq!((last.due - MS).as_nanos(), exact_ns);
        }

        /// Under any arrivals: packets are conserved, keep their order, never depart faster than
        /// the rate nor before they arrived, and the queue never exceeds its bound.
        #[test]
        fn any_traffic_is_carried_honestly(
            rate_bps in 10_000u64..1_000_000_000,
            queue_packets in 0u32..50,
            delay_us in 0u64..100_000,
            loss in 0.0f64..=1.0,
            seed: u64,
            arrivals in prop::collection::vec((0u64..5_000, 40u32..=1500, any::<bool>()), 1..300),
        ) {
            let delay = Duration::from_micros(delay_us);
            let spec = LinkSpec { delay, loss, ..bottleneck(rate_bps, queue_packets) };
            let mut link = Link::new(spec, seed).unwrap();
            let mut now = Duration::ZERO;
            let mut arrived_at = Vec::new();
            let mut out: Vec<Released<u32>> = Vec::new();
            for (n, (gap_us, bytes, releases)) in arrivals.iter().enumerate() {
                now += Duration::from_micros(*gap_us);
                arrived_at.push(now);
                link.arrive(now, *bytes, n as u32);
                prop_assert!(link.waiting_packets(now) <= queue_packets as usize);
                if *releases {
                    out.extend(std::iter::from_fn(|| link.release(now)));
                }
                let counters = link.counters();
                prop_assert_eq!(
                    counters.arrived,
                    counters.queue_drops + counters.losses + counters.released
                        + link.held_packets() as u64
                );
            }
            out.extend(drain(&mut link));
            prop_assert_eq!(out.len() as u64, link.counters().released);
            let bytes = |n: u32| arrivals[n as usize].1;
            prop_assert_eq!(
                link.counters().released_bytes,
                out.iter().map(|released| u64::from(bytes(released.packet))).sum::<u64>()
            );
            for released in &out {
                let service = u64::from(bytes(released.packet)) * 8_000_000_000 / rate_bps;
                let earliest = arrived_at[released.packet as usize] + delay;
                prop_assert!(released.due >= earliest + Duration::from_nanos(service));
            }
            for pair in out.windows(2) {
                prop_assert!(pair[0].packet < pair[1].packet);
                let service = u64::from(bytes(pair[1].packet)) * 8_000_000_000 / rate_bps;
                prop_assert!(pair[1].due - pair[0].due >= Duration::from_nanos(service));
            }
        }
    }
}
