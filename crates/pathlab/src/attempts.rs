//! Tests that measure real time on a machine which others use too.
//!
//! Load from elsewhere can spoil a measurement, but not improve it: a bound that holds in one of three attempts is
//! kept. What must hold on any machine (bytes, counts, states) is asserted as usual, and a failed assertion ends the
//! test at once. What was stolen of the processors' time is told with a bound that was missed: whether the machine was
//! at fault.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

const ATTEMPTS: u32 = 3;

struct Missed(String);

/// Ends the attempt for a bound that was missed; [`measured!`](crate::measured) is the way to call it.
///
/// # Panics
/// Always: caught by [`attempts`].
pub fn missed(message: String) -> ! {
    panic_any(Missed(message))
}

/// Asserts a bound on something measured, inside [`attempts`].
#[macro_export]
macro_rules! measured {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            $crate::attempts::missed(format!($($message)+));
        }
    };
}

/// Runs a test until its measured bounds hold once, three times at most. Bounds that were missed are printed.
///
/// # Panics
/// With the message of the last attempt, if none held; with any other panic of the test at once.
pub fn attempts(test: impl Fn()) {
    for attempt in 1..=ATTEMPTS {
        let before = CpuTime::now();
        let Err(cause) = catch_unwind(AssertUnwindSafe(&test)) else {
            return;
        };
        match cause.downcast::<Missed>() {
            Ok(missed) => {
                let stolen = CpuTime::stolen_since(before);
                println!("attempt {attempt} of {ATTEMPTS}: {}{stolen}", missed.0);
                if attempt == ATTEMPTS {
                    panic!("in all of {ATTEMPTS} attempts: {}{stolen}", missed.0);
                }
            }
            Err(other) => resume_unwind(other),
        }
    }
}

/// Clock ticks of all processors since boot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuTime {
    all: u64,
    /// Those in which a processor of this machine had to wait for one of its host's.
    stolen: u64,
}

impl CpuTime {
    /// `None` where the kernel does not tell.
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// From the text of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; what guests used
    /// is part of the first two.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = fields
            .split_whitespace()
            .take(8)
            .map_while(|field| field.parse().ok())
            .collect();
        let ticks = <[u64; 8]>::try_from(ticks).ok()?;
        Some(Self {
            all: ticks.iter().sum(),
            stolen: ticks[7],
        })
    }

    /// Which part was stolen since then, as a remark; empty where that is unknown.
    fn stolen_since(before: Option<Self>) -> String {
        let Some((before, now)) = before.zip(Self::now()) else {
            return String::new();
        };
        let all = now.all.saturating_sub(before.all).max(1);
        let stolen = now.stolen.saturating_sub(before.stolen);
        let percent = 100.0 * stolen as f64 / all as f64;
        format!(" ({percent:.1} % of the processors' time was stolen)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// How often a test ran, and whether it passed.
    fn run(test: impl Fn(u32)) -> (u32, bool) {
        let count = Cell::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            attempts(|| {
                count.set(count.get() + 1);
                test(count.get());
            });
        }));
        (count.get(), outcome.is_ok())
    }

    #[test]
    fn only_missed_bounds_are_tried_again() {
        assert_eq!(run(|_| ()), (1, true));
        assert_eq!(run(|n| measured!(n == 3, "{n}")), (3, true));
        assert_eq!(run(|_| measured!(false, "never")), (3, false));
        assert_eq!(run(|n| assert_eq!(n, 2)), (1, false));
    }

    #[test]
    fn stolen_time_is_read_where_it_is_told() {
        let stat = "cpu  10 1 2 80 1 0 1 5 7 0\ncpu0 10 1 2 80 1 0 1 5 7 0\n";
        let told = CpuTime {
            all: 100,
            stolen: 5,
        };
        assert_eq!(CpuTime::parse(stat), Some(told));
        assert_eq!(CpuTime::parse("cpu  10 1 2 80\n"), None);
        assert_eq!(CpuTime::parse("intr 1 2 3\n"), None);
        assert!(CpuTime::stolen_since(CpuTime::now()).contains(" % of the processors' time"));
    }
}
