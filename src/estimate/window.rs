//! Extremes over a sliding window, in constant space.

use crate::units::Micros;

/// Largest value of a sliding window, exact to an eighth of it, in constant space. Values are kept to 24 bits, and the
/// eighths are counted in 32: of a second, the shortest window, enough for 17 years of a monotonic clock.
#[derive(Clone, Debug)]
pub(super) struct WindowMax {
    width_us: u32,
    /// Number of the eighth that was last written.
    newest: u32,
    /// Largest value of each eighth; the eighth with number `n` is at `n % BUCKETS`. Negative infinity if empty.
    buckets: [f32; Self::BUCKETS],
}

impl WindowMax {
    const BUCKETS: usize = 8;

    pub(super) fn new(window: Micros) -> Self {
        Self {
            width_us: u32::try_from(window.us() / Self::BUCKETS as u64)
                .unwrap_or(u32::MAX)
                .max(1),
            newest: 0,
            buckets: [f32::NEG_INFINITY; Self::BUCKETS],
        }
    }

    /// Changes the length of the window; the extreme of the old one is kept as if it were seen now.
    pub(super) fn set_window(&mut self, now: Micros, window: Micros) {
        let fresh = Self::new(window);
        if fresh.width_us != self.width_us {
            let kept = self.get(now);
            *self = fresh;
            if let Some(value) = kept {
                self.push(now, value);
            }
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.buckets = [f32::NEG_INFINITY; Self::BUCKETS];
    }

    /// Adds a value. Time does not go back: an older time counts as the newest.
    pub(super) fn push(&mut self, now: Micros, value: f64) {
        let epoch = self.epoch(now);
        let passed = (epoch - self.newest).min(Self::BUCKETS as u32);
        for skipped in 0..passed {
            self.buckets[Self::at(epoch - skipped)] = f32::NEG_INFINITY;
        }
        self.newest = epoch;
        let bucket = &mut self.buckets[Self::at(epoch)];
        *bucket = bucket.max(value as f32);
    }

    /// The largest value of the window that ends now.
    pub(super) fn get(&self, now: Micros) -> Option<f64> {
        let epoch = self.epoch(now);
        let passed = (epoch - self.newest).min(Self::BUCKETS as u32);
        let live = (passed..Self::BUCKETS as u32).map(|age| {
            let number = self.newest.wrapping_sub(age - passed);
            self.buckets[Self::at(number)]
        });
        let largest = live.reduce(f32::max).filter(|value| value.is_finite());
        largest.map(f64::from)
    }

    /// Number of the eighth of this time, or the newest.
    fn epoch(&self, now: Micros) -> u32 {
        let epoch = now.us() / u64::from(self.width_us);
        u32::try_from(epoch).unwrap_or(u32::MAX).max(self.newest)
    }

    fn at(epoch: u32) -> usize {
        epoch as usize % Self::BUCKETS
    }
}
