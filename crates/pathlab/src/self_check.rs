//! Does the emulator do what it says, here and now? A null sender finds out before anything is measured.
//!
//! ```text
//!   flood   ──▶ more than the path carries, through a queue that holds it all  ──▶ capacity, loss
//!   trickle ──▶ small datagrams far apart, through the path as it is           ──▶ delay, loss
//! ```
//! The datagrams have numbers. Both ends stamp them on one clock, in threads that go before ordinary ones, so that
//! what is found is the emulator's doing (with its devices and namespaces), not that of the null sender. What should be
//! found is what the model, fed with the times at which the datagrams were sent, delivers ([`crate::direction`]): so
//! schedules, traces and jitter are checked as well as constant rates.

use std::io;

use pathsim::{Jitter, Loss, LossPlace, PathSpec, QueueDiscipline, QueueLimit, SECOND, WIRE};

use crate::lab::result::{Checked, SelfCheck};
use crate::lateness::Lateness;
use crate::netns::NetnsError;
use crate::null_sender::{Sample, sample};
use crate::path::PathError;
use crate::process::Interrupt;

/// Capacity and delay may deviate by so much.
const TOLERANCE: f64 = 0.02;
/// Or the delay by so much, ms.
const DELAY_TOLERANCE_MS: f64 = 0.2;
/// Loss by so many standard deviations of its sample: one check in a million fails by chance.
const LOSS_DEVIATIONS: f64 = 5.0;

/// How long the flood lasts, and the trickle, ns.
const FLOOD_NS: u64 = SECOND;
const TRICKLE_NS: u64 = 800_000_000;
/// Length of the trickle's packets, and the least time between them: enough to find the path idle.
const TRICKLE_BYTES: u32 = 64;
const TRICKLE_GAP_NS: u64 = 4_000_000;
/// Backlog with which the flood starts, in packets, and what it adds to the path's rate.
const FLOOD_BACKLOG: u64 = 20;
const FLOOD_EXCESS: f64 = 1.05;

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum SelfCheckError {
    /// The path could not be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The null sender failed.
    #[error("the null sender of the self-check could not {what}: {cause}")]
    Socket {
        /// What it tried.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// Nothing arrived.
    #[error(
        "not one of the self-check's {0} datagrams arrived: the path carries nothing, or takes longer than 30 s"
    )]
    Nothing(usize),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Checks an emulated path; takes 2 to 3 s, and the path's RTT. `words` describes it in the verdict. The 99th
/// percentile of the lateness must be within `late_bound_us`.
///
/// # Errors
/// [`SelfCheckError`] without a verdict. A path that does not do what it should is no error, but a verdict.
pub fn run(
    words: &str,
    spec: &PathSpec,
    late_bound_us: u64,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<SelfCheck, SelfCheckError> {
    let mut lateness = Lateness::default();
    // A policer has no time of its own, and would drop the flood; a shaper's full bucket would let it pass too fast.
    let spec = &PathSpec {
        policer: None,
        shaper: None,
        ..spec.clone()
    };
    let due = |elapsed_ns: u64| {
        let bytes = spec.rate.capacity_bytes(0, elapsed_ns.min(FLOOD_NS));
        (bytes * FLOOD_EXCESS / WIRE as f64) as u64 + FLOOD_BACKLOG
    };
    let flood_spec = flooded(spec, due(FLOOD_NS));
    let flood = sample(
        &flood_spec,
        WIRE as u32,
        FLOOD_NS,
        due,
        seed,
        interrupt,
        &mut lateness,
    )?;
    // Bits in 1 s, from bytes in 10 s.
    let mean_bps = (spec.rate.capacity_bytes(0, 10 * SECOND) * 0.8) as u64;
    let service_ns = u64::from(TRICKLE_BYTES) * 8 * SECOND / mean_bps.max(1);
    let gap_ns = TRICKLE_GAP_NS.max(4 * service_ns);
    let due = |elapsed_ns: u64| elapsed_ns.min(TRICKLE_NS) / gap_ns + 1;
    let trickle = sample(
        spec,
        TRICKLE_BYTES,
        TRICKLE_NS,
        due,
        seed,
        interrupt,
        &mut lateness,
    )?;

    let capacity_mbps = capacity(&flood, spec)?;
    let delay_ms = delay(&trickle)?;
    let sent = flood.sent_ns.len() + trickle.sent_ns.len();
    let lost = flood.lost() + trickle.lost();
    let loss = Checked {
        asked: spec.loss.ratio(),
        measured: lost as f64 / sent as f64,
    };
    let late_p99_us = Checked {
        asked: late_bound_us as f64,
        measured: lateness.summary().p99_lateness_us as f64,
    };
    let off = |checked: Checked| (checked.measured - checked.asked).abs();
    let passed = off(capacity_mbps) <= TOLERANCE * capacity_mbps.asked
        && off(delay_ms) <= DELAY_TOLERANCE_MS.max(TOLERANCE * delay_ms.asked)
        && off(loss) <= loss_bound(&spec.loss, sent)
        && late_p99_us.measured <= late_p99_us.asked;
    Ok(SelfCheck {
        path: words.to_owned(),
        capacity_mbps,
        delay_ms,
        loss,
        late_p99_us,
        passed,
    })
}

/// The path with a queue that drops nothing of the flood, so that a null sender that is late does no harm.
fn flooded(spec: &PathSpec, packets: u64) -> PathSpec {
    PathSpec {
        queue: QueueLimit::Packets(packets.try_into().unwrap_or(u32::MAX)),
        discipline: QueueDiscipline::DropTail,
        jitter: Jitter::None,
        delay_limit_packets: None,
        ..spec.clone()
    }
}

/// Rate at which the flood arrives, from its first to its last packet.
fn capacity(flood: &Sample, spec: &PathSpec) -> Result<Checked, SelfCheckError> {
    let nothing = || SelfCheckError::Nothing(flood.sent_ns.len());
    let (first, began, model_began) = flood.both().next().ok_or_else(nothing)?;
    let (last, ended, model_ended) = flood.both().last().ok_or_else(nothing)?;
    // What was lost behind the bottleneck has used it.
    let packets = match spec.loss_place {
        LossPlace::Behind => last - first,
        LossPlace::InFront => flood.both().count() - 1,
    };
    let mbps = |ns: u64| (packets as u64 * WIRE * 8) as f64 * 1e3 / ns.max(1) as f64;
    Ok(Checked {
        asked: mbps(model_ended - model_began),
        measured: mbps(ended.saturating_sub(began)),
    })
}

/// Median of the one-way delays.
fn delay(trickle: &Sample) -> Result<Checked, SelfCheckError> {
    let median_ms = |mut delays: Vec<u64>| {
        delays.sort_unstable();
        delays.get(delays.len() / 2).map(|ns| *ns as f64 / 1e6)
    };
    let since = |number: usize, at_ns: u64| at_ns.saturating_sub(trickle.sent_ns[number]);
    let delays = trickle.both();
    let (measured, asked) = delays
        .map(|(number, arrived, model)| (since(number, arrived), since(number, model)))
        .unzip();
    let nothing = || SelfCheckError::Nothing(trickle.sent_ns.len());
    Ok(Checked {
        asked: median_ms(asked).ok_or_else(nothing)?,
        measured: median_ms(measured).ok_or_else(nothing)?,
    })
}

/// How far the ratio of a sample may be from that of the path.
fn loss_bound(loss: &Loss, sent: usize) -> f64 {
    let ratio = loss.ratio();
    // Losses in bursts scatter more: each state says something about the next, with this correlation.
    let correlation = match *loss {
        Loss::Bursts { ratio, mean_length } => 1.0 - 1.0 / mean_length / (1.0 - ratio),
        Loss::None | Loss::Random(_) => 0.0,
    };
    let spread = (1.0 + correlation) / (1.0 - correlation).max(f64::EPSILON);
    LOSS_DEVIATIONS * (ratio * (1.0 - ratio) * spread / sent as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_sender::modelled;
    use pathsim::MILLISECOND;

    /// A path that does as the model says, but for a factor on times of arrival and a delay.
    fn arrivals(spec: &PathSpec, sent: u64, slower: f64, later_ns: u64) -> Sample {
        let sent_ns: Vec<u64> = (0..sent).map(|n| n * MILLISECOND).collect();
        let model_ns = modelled(spec, 1, 1500, &sent_ns);
        let arrived = |at_ns: u64| (at_ns as f64 * slower) as u64 + later_ns;
        Sample {
            arrived_ns: model_ns.iter().map(|at| at.map(arrived)).collect(),
            model_ns,
            sent_ns,
        }
    }

    #[test]
    fn deviations_are_found() {
        // Twice as much as it carries.
        let mut spec = flooded(&PathSpec::clean(6_000_000, 20 * MILLISECOND), 1000);
        for loss_place in [LossPlace::Behind, LossPlace::InFront] {
            spec.loss = Loss::Random(0.1);
            spec.loss_place = loss_place;
            let right = capacity(&arrivals(&spec, 1000, 1.0, 0), &spec).unwrap();
            assert!((right.asked - 6.0).abs() < 0.02, "{right:?}");
            assert_eq!(right.asked, right.measured);
            let slow = capacity(&arrivals(&spec, 1000, 1.05, 0), &spec).unwrap();
            assert!((slow.measured - 6.0 / 1.05).abs() < 0.02, "{slow:?}");
        }
        let clean = PathSpec::clean(120_000_000, 20 * MILLISECOND);
        let late = delay(&arrivals(&clean, 100, 1.0, MILLISECOND)).unwrap();
        assert!((late.asked - 10.1).abs() < 0.001, "{late:?}");
        assert!((late.measured - 11.1).abs() < 0.001, "{late:?}");
    }

    #[test]
    fn samples_of_the_asked_loss_pass_and_others_do_not() {
        let burst = Loss::Bursts {
            ratio: 0.05,
            mean_length: 5.0,
        };
        for loss in [Loss::Random(0.05), burst] {
            let spec = PathSpec {
                loss,
                ..PathSpec::clean(120_000_000, MILLISECOND)
            };
            let lost = arrivals(&spec, 10_000, 1.0, 0).lost() as f64 / 1e4;
            assert!((lost - 0.05).abs() < loss_bound(&loss, 10_000), "{lost}");
        }
        assert_eq!(loss_bound(&Loss::None, 1000), 0.0);
        let one = loss_bound(&Loss::Random(0.05), 10_000);
        assert!((one - 0.0109).abs() < 0.0001, "{one}");
        assert!(loss_bound(&burst, 10_000) > 2.0 * one);
    }
}
