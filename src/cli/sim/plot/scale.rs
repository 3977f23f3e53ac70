//! Values against height, in a panel of the picture.

use super::PANEL;
use pathlab::chart;

/// The scale of a panel.
pub(super) struct Scale {
    pub(super) range: chart::Scale,
    pub(super) top: f64,
}

impl Scale {
    /// From 0, or from a round number below where `above_zero` allows it, to a round number above.
    pub(super) fn new(values: impl Iterator<Item = f64>, above_zero: bool, top: f64) -> Self {
        Self {
            range: chart::Scale::new(values, above_zero),
            top,
        }
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.top + PANEL * (1.0 - self.range.part(value))
    }
}
