//! Figures against what is promised, with a table of the promises that are not kept yet.

use std::fmt::{self, Write};

/// Sums of tenths of a second differ by this at most.
const ROUNDING: f64 = 1e-9;

/// A promise that is not kept in one case: the test holds that it is still missed, so that a fix is noticed and this
/// line removed, and that it is not missed by more than `bound`. Pass lines stay as they are.
pub(crate) struct Gap {
    pub(crate) case: &'static str,
    pub(crate) bound: f64,
    pub(crate) why: &'static str,
}

/// What a figure must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    AtLeast(f64),
    AtMost(f64),
}

impl Line {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(line) => value >= line - ROUNDING,
            Self::AtMost(line) => value <= line + ROUNDING,
        }
    }

    fn with(self, bound: f64) -> Self {
        match self {
            Self::AtLeast(_) => Self::AtLeast(bound),
            Self::AtMost(_) => Self::AtMost(bound),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(line) => write!(f, "at least {line:.3}"),
            Self::AtMost(line) => write!(f, "at most {line:.3}"),
        }
    }
}

/// The cases of one promise.
pub(crate) struct Judge {
    gaps: &'static [Gap],
    seen: Vec<String>,
    failures: String,
}

impl Judge {
    /// A judge who knows these gaps.
    pub(crate) fn new(gaps: &'static [Gap]) -> Self {
        Self {
            gaps,
            seen: Vec::new(),
            failures: String::new(),
        }
    }

    /// Holds a figure against its line.
    pub(crate) fn hold(&mut self, case: &str, value: f64, line: Line) {
        let gap = self.gaps.iter().find(|gap| gap.case == case);
        self.seen.push(case.to_owned());
        let (verdict, is_failure) = match (gap, line.is_met(value)) {
            (None, true) => ("kept", false),
            (None, false) => ("MISSED", true),
            (Some(_), true) => ("KEPT NOW: take it off the list of gaps", true),
            (Some(gap), false) if line.with(gap.bound).is_met(value) => (gap.why, false),
            (Some(_), false) => ("WORSE than the known gap", true),
        };
        let verdict = match gap {
            Some(_) if !is_failure => format!("known gap: {verdict}"),
            _ => verdict.to_owned(),
        };
        let text = format!("{case:44} {value:9.3}  ({line}): {verdict}");
        println!("{text}");
        if is_failure {
            // Writing to a string cannot fail.
            let _ = writeln!(self.failures, "{text}");
        }
    }

    /// Fails with all that is wrong.
    pub(crate) fn end(self) {
        for gap in self.gaps {
            assert!(
                self.seen.iter().any(|case| case == gap.case),
                "no case is called {:?}",
                gap.case
            );
        }
        assert!(self.failures.is_empty(), "\n{}", self.failures);
    }
}
