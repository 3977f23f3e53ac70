//! What pictures share: round axes, colours, text that is safe in markup.

/// Colours for lines that differ for most eyes, on white and on black.
pub const COLOURS: [&str; 7] = [
    "#2f7ec7", "#d9622b", "#109c74", "#b565a7", "#c9920e", "#4fa8d8", "#8d6ad4",
];

/// The colour of one of several things: of [`COLOURS`] if these are enough, else hues of the same brightness.
pub fn colour(index: usize, count: usize) -> String {
    if count <= COLOURS.len() {
        return COLOURS[index % COLOURS.len()].to_owned();
    }
    // Steps of the golden angle keep neighbours apart, however many there are.
    format!(
        "hsl({:.0},55%,50%)",
        (210.0 + index as f64 * 137.508) % 360.0
    )
}

/// Text between tags or in a quoted attribute of HTML or SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A range with round ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Its lower end.
    pub low: f64,
    /// Its upper end, above the lower one.
    pub high: f64,
}

impl Scale {
    /// From 0, or from a round number below the values where `above_zero` allows it, to a round number above.
    pub fn new(values: impl Iterator<Item = f64>, above_zero: bool) -> Self {
        let (lowest, highest) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let step = nice_step(highest, 5);
        let low = if above_zero && lowest.is_finite() && lowest > highest / 2.0 {
            let step = nice_step(highest - lowest * 0.97, 5);
            (lowest / step + 1e-9).floor() * step
        } else {
            0.0
        };
        let step = if low > 0.0 {
            nice_step(highest - low, 5)
        } else {
            step
        };
        let high = (highest / step).ceil().max(1.0) * step;
        Self {
            low,
            high: if high > low { high } else { low + step },
        }
    }

    /// Where a value is: 0 at the lower end, 1 at the upper one; values outside are at the ends.
    pub fn part(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten: the least that divides a range into no more than so many parts.
fn nice_step(range: f64, parts: u32) -> f64 {
    let least = (range / f64::from(parts)).max(1e-9);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power * 10.0)
}

/// Round numbers in a range.
pub fn ticks(low: f64, high: f64, parts: u32) -> Vec<f64> {
    let step = nice_step(high - low, parts);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

/// A tick's number without digits that mean nothing.
pub fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_begin_and_end_on_round_numbers() {
        let scale = |values: &[f64], above_zero| {
            let scale = Scale::new(values.iter().copied(), above_zero);
            (scale.low, scale.high)
        };
        assert_eq!(scale(&[0.0, 48.3], false), (0.0, 50.0));
        assert_eq!(scale(&[], false), (0.0, 1.0));
        assert_eq!(scale(&[40.0, 46.0], true), (40.0, 46.0));
        assert_eq!(scale(&[40.0, 900.0], true), (0.0, 1000.0));
        let (low, high) = scale(&[40.0, 40.0], true);
        assert!(low <= 40.0 && high > 40.0);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(
            ticks(0.0, 30.0, 8),
            [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
        );
        assert_eq!(ticks(38.0, 46.0, 5), [38.0, 40.0, 42.0, 44.0, 46.0]);
        assert_eq!(
            [0.5, 20.0, 1500.0, 0.0].map(short),
            ["0.5", "20", "1500", "0"]
        );
    }

    #[test]
    fn markup_in_names_is_text() {
        assert_eq!(
            escaped("<a href='x'>\"&\""),
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;"
        );
    }
}
