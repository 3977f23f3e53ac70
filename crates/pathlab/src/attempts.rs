//! Tests that measure real time on a machine which others use too.
//!
//! Load from elsewhere can spoil a measurement, but not improve it: a bound that holds in one of three attempts is kept.
//! What must hold on any machine (bytes, counts, states) is asserted as usual, and a failed assertion ends the test at
//! once.

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
        let Err(cause) = catch_unwind(AssertUnwindSafe(&test)) else {
            return;
        };
        match cause.downcast::<Missed>() {
            Ok(missed) if attempt == ATTEMPTS => {
                panic!("in all of {ATTEMPTS} attempts: {}", missed.0)
            }
            Ok(missed) => println!("attempt {attempt} of {ATTEMPTS}: {}", missed.0),
            Err(other) => resume_unwind(other),
        }
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
}
