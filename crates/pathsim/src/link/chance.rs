//! Random loss and random delay.

use crate::scenario::{Jitter, Loss, exponential};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Each use of chance has a stream of its own, so that one does not shift the others.
pub(super) fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}

/// Decides packet by packet which are lost.
#[derive(Debug)]
pub struct Losses {
    loss: Loss,
    in_burst: bool,
    rng: ChaCha8Rng,
}

impl Losses {
    pub(super) fn there(loss: Loss, seed: u64) -> Self {
        Self::new(loss, stream(seed, 1))
    }

    /// Of ACKs on the way back. Equal seeds make equal decisions.
    pub fn back(loss: Loss, seed: u64) -> Self {
        Self::new(loss, stream(seed, 3))
    }

    fn new(loss: Loss, rng: ChaCha8Rng) -> Self {
        Self {
            loss,
            in_burst: false,
            rng,
        }
    }

    /// Whether the next packet is lost.
    pub fn is_next_lost(&mut self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Random(ratio) => ratio > 0.0 && self.rng.random::<f64>() < ratio,
            Loss::Bursts { ratio, mean_length } => {
                let leave = 1.0 / mean_length;
                let change = if self.in_burst {
                    leave
                } else {
                    ratio * leave / (1.0 - ratio)
                };
                self.in_burst ^= self.rng.random::<f64>() < change;
                self.in_burst
            }
        }
    }
}

/// Delays packet by packet.
pub(super) struct Jitterer {
    jitter: Jitter,
    last_exit_ns: u64,
    rng: ChaCha8Rng,
}

impl Jitterer {
    pub(super) fn new(jitter: Jitter, seed: u64) -> Self {
        Self {
            jitter,
            last_exit_ns: 0,
            rng: stream(seed, 2),
        }
    }

    /// When a packet that leaves the bottleneck then has passed, ns.
    pub(super) fn exit_ns(&mut self, departure_ns: u64) -> u64 {
        let late = match self.jitter {
            Jitter::None | Jitter::Uniform { max_ns: 0, .. } => return departure_ns,
            Jitter::Uniform { max_ns, reorder } => {
                let late = departure_ns + self.rng.random_range(0..=max_ns);
                if reorder {
                    return late;
                }
                late
            }
            Jitter::Exponential { mean_ns } => {
                departure_ns + (exponential(&mut self.rng) * mean_ns as f64) as u64
            }
        };
        self.last_exit_ns = self.last_exit_ns.max(late);
        self.last_exit_ns
    }
}
