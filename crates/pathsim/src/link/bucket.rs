//! A token bucket: tells a policer what to drop, and a shaper until when a packet waits.

use crate::SECOND;
use crate::scenario::TokenBucket;

/// The bucket. Tokens are kept in parts of a bit, one for each nanosecond of a second, so that no time between packets
/// rounds any of them away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    spec: TokenBucket,
    tokens: u128,
    filled_ns: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(spec: TokenBucket) -> Self {
        Self {
            spec,
            tokens: parts(spec.burst_bytes),
            filled_ns: 0,
        }
    }

    /// Whether a packet of so many bytes may pass. Times must not go back.
    pub(super) fn passes(&mut self, now_ns: u64, bytes: u32) -> bool {
        self.fill(now_ns);
        self.take(bytes).is_ok()
    }

    /// When there are tokens for a packet of so many bytes, not before now, ns; they are its own then. One that is
    /// longer than the bucket waits for as many as it would take. Times must not go back.
    pub(super) fn ready_ns(&mut self, now_ns: u64, bytes: u32) -> u64 {
        // What the packet before is still waiting for.
        let now_ns = now_ns.max(self.filled_ns);
        self.fill(now_ns);
        let Err(missing) = self.take(bytes) else {
            return now_ns;
        };
        let rate = u128::from(self.spec.rate_bps);
        let wait_ns = missing.div_ceil(rate);
        // Within a nanosecond more come than are missing.
        self.tokens = wait_ns * rate - missing;
        self.filled_ns = now_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        self.filled_ns
    }

    /// Takes a packet's tokens, or says how many are missing.
    fn take(&mut self, bytes: u32) -> Result<(), u128> {
        let needed = parts(bytes.into());
        match self.tokens.checked_sub(needed) {
            Some(left) => self.tokens = left,
            None => return Err(needed - self.tokens),
        }
        Ok(())
    }

    fn fill(&mut self, now_ns: u64) {
        let elapsed = u128::from(now_ns.saturating_sub(self.filled_ns));
        self.filled_ns = now_ns;
        let more = elapsed * u128::from(self.spec.rate_bps);
        self.tokens = (self.tokens + more).min(parts(self.spec.burst_bytes));
    }
}

fn parts(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * u128::from(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;

    const BUCKET: TokenBucket = TokenBucket {
        rate_bps: 12_000_000,
        burst_bytes: 15_000,
    };

    #[test]
    fn a_full_bucket_passes_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(BUCKET);
        let at_once = (0..20).filter(|_| bucket.passes(SECOND, 1500)).count();
        assert_eq!(at_once, 10);
        // Four times its rate, 1 ms per packet.
        let passed = (1..=4000_u64).filter(|n| bucket.passes(SECOND + n * MILLISECOND / 4, 1500));
        assert_eq!(passed.count(), 1000);
    }

    #[test]
    fn what_is_dropped_takes_no_tokens() {
        let mut bucket = Bucket::new(BUCKET);
        assert!((0..9).all(|_| bucket.passes(0, 1500)));
        assert!(!bucket.passes(0, 1501), "1500 are left");
        assert!(bucket.passes(0, 1500));
    }

    #[test]
    fn a_slow_sender_loses_nothing_and_saves_no_more_than_the_burst() {
        let mut bucket = Bucket::new(BUCKET);
        assert!((0..1000).all(|n| bucket.passes(n * MILLISECOND, 1500)));
        let later = (0..100).filter(|_| bucket.passes(100 * SECOND, 1500));
        assert_eq!(later.count(), 10);
    }

    #[test]
    fn who_waits_for_tokens_waits_for_no_more_than_are_missing() {
        let mut bucket = Bucket::new(BUCKET);
        let ready: Vec<_> = (0..13).map(|_| bucket.ready_ns(SECOND, 1500)).collect();
        assert_eq!(ready[..10], [SECOND; 10], "a full bucket");
        let later = [1, 2, 3].map(|ms| SECOND + ms * MILLISECOND);
        assert_eq!(ready[10..], later, "then its rate");
        // Half a packet's tokens have come since the last.
        let half = MILLISECOND / 2;
        let at = SECOND + 3 * MILLISECOND + half;
        assert_eq!(bucket.ready_ns(at, 1500), at + half);
    }

    #[test]
    fn no_rate_is_lost_to_rounding() {
        let spec = TokenBucket {
            rate_bps: 7_000_000,
            burst_bytes: 1500,
        };
        let mut bucket = Bucket::new(spec);
        let last = (0..=70_000).map(|_| bucket.ready_ns(0, 1000)).last();
        // All but the bucket's first 1500 bytes must come.
        let expected = (70_001_000_u64 - 1500) * 8 * SECOND / 7_000_000;
        let off = last.unwrap().abs_diff(expected);
        assert!(off <= 1, "{off} ns");
    }
}
