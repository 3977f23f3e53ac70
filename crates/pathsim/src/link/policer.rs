//! A token bucket without a queue: what comes faster than its rate is dropped.

use crate::SECOND;
use crate::scenario::Policer;

/// The bucket. Tokens are kept in parts of a bit, one for each nanosecond of a second, so that no time between packets
/// rounds any of them away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    policer: Policer,
    tokens: u128,
    filled_ns: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(policer: Policer) -> Self {
        Self {
            policer,
            tokens: parts(policer.burst_bytes),
            filled_ns: 0,
        }
    }

    /// Whether a packet of so many bytes may pass. Times must not go back.
    pub(super) fn passes(&mut self, now_ns: u64, bytes: u32) -> bool {
        let elapsed = u128::from(now_ns.saturating_sub(self.filled_ns));
        self.filled_ns = now_ns;
        let more = elapsed * u128::from(self.policer.rate_bps);
        self.tokens = (self.tokens + more).min(parts(self.policer.burst_bytes));
        let left = self.tokens.checked_sub(parts(bytes.into()));
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

fn parts(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * u128::from(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;

    const POLICER: Policer = Policer {
        rate_bps: 12_000_000,
        burst_bytes: 15_000,
    };

    #[test]
    fn a_full_bucket_passes_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(POLICER);
        let at_once = (0..20).filter(|_| bucket.passes(SECOND, 1500)).count();
        assert_eq!(at_once, 10);
        // Four times its rate, 1 ms per packet.
        let passed = (1..=4000_u64).filter(|n| bucket.passes(SECOND + n * MILLISECOND / 4, 1500));
        assert_eq!(passed.count(), 1000);
    }

    #[test]
    fn what_is_dropped_takes_no_tokens() {
        let mut bucket = Bucket::new(POLICER);
        assert!((0..9).all(|_| bucket.passes(0, 1500)));
        assert!(!bucket.passes(0, 1501), "1500 are left");
        assert!(bucket.passes(0, 1500));
    }

    #[test]
    fn a_slow_sender_loses_nothing_and_saves_no_more_than_the_burst() {
        let mut bucket = Bucket::new(POLICER);
        assert!((0..1000).all(|n| bucket.passes(n * MILLISECOND, 1500)));
        let later = (0..100).filter(|_| bucket.passes(100 * SECOND, 1500));
        assert_eq!(later.count(), 10);
    }
}
