//! A figure: axes with round numbers, and what is drawn into them.

use std::fmt::Write;

use crate::chart::{Scale, escaped, short, ticks};

/// Size of the drawing: text keeps its size on a phone, where a figure is about so many points wide.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 216.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 36.0;
/// Letters of a name within a figure, at most; its title has all of it.
const LETTERS: usize = 18;

/// One axis.
pub(super) struct Axis {
    scale: Scale,
    logarithmic: bool,
    reversed: bool,
    label: String,
    /// Values that have a number.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis around values, from 0 unless `above_zero`.
    pub(super) fn linear(label: &str, values: impl Iterator<Item = f64>, above_zero: bool) -> Self {
        Self::over(label, Scale::new(values, above_zero))
    }

    /// A linear axis with given ends.
    pub(super) fn over(label: &str, scale: Scale) -> Self {
        let ticks = ticks(scale.low, scale.high, 5);
        Self {
            scale,
            logarithmic: false,
            reversed: false,
            label: label.to_owned(),
            ticks: ticks
                .into_iter()
                .map(|value| (value, short(value)))
                .collect(),
        }
    }

    /// A logarithmic axis with the smallest value at its right or upper end.
    pub(super) fn reversed_log(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = positive.fold((f64::INFINITY, 0.0f64), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let (low, high) = if low.is_finite() {
            (low / 1.25, high * 1.25)
        } else {
            (1.0, 10.0)
        };
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let round = |factors: &[f64]| -> Vec<f64> {
            let all = decades
                .clone()
                .flat_map(|power| factors.iter().map(move |f| f * 10f64.powi(power)));
            all.filter(|value| (low..=high).contains(value)).collect()
        };
        let fits = |values: &Vec<f64>| (2..=6).contains(&values.len());
        let marks = [
            round(&[1.0]),
            round(&[1.0, 2.0, 5.0]),
            round(&[1.0, 2.0, 3.0, 4.0, 5.0, 7.0]),
        ];
        let marks = marks
            .into_iter()
            .find(fits)
            .unwrap_or_else(|| ticks(low, high, 6));
        Self {
            scale: Scale {
                low: low.log10(),
                high: high.log10(),
            },
            logarithmic: true,
            reversed: true,
            label: label.to_owned(),
            ticks: marks
                .into_iter()
                .map(|value| (value, short(value)))
                .collect(),
        }
    }

    /// Names at places instead of numbers.
    pub(super) fn named(mut self, names: Vec<(f64, String)>) -> Self {
        self.ticks = names;
        self
    }

    fn part(&self, value: f64) -> f64 {
        let value = if self.logarithmic {
            value.max(1e-12).log10()
        } else {
            value
        };
        let part = self.scale.part(value);
        if self.reversed { 1.0 - part } else { part }
    }
}

/// A figure in the making.
pub(super) struct Figure {
    x: Axis,
    y: Axis,
    svg: String,
    caption: String,
    title: String,
    keys: Vec<(String, String)>,
}

impl Figure {
    /// Axes with a title, and a caption that goes on after it.
    pub(super) fn new(title: &str, caption: &str, x: Axis, y: Axis) -> Self {
        let mut figure = Self {
            x,
            y,
            svg: String::new(),
            caption: caption.to_owned(),
            title: title.to_owned(),
            keys: Vec::new(),
        };
        figure.axes();
        figure
    }

    fn put(&mut self, piece: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.svg.write_fmt(piece);
    }

    pub(super) fn x(&self, value: f64) -> f64 {
        LEFT + self.x.part(value) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.part(value) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&mut self) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (value, text) in self.y.ticks.clone() {
            let y = self.y(value);
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.0,
                escaped(&text)
            ));
        }
        for (value, text) in self.x.ticks.clone() {
            let x = self.x(value);
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                bottom + 15.0,
                escaped(&text)
            ));
        }
        let (x_label, y_label) = (escaped(&self.x.label), escaped(&self.y.label));
        let middle = (TOP + bottom) / 2.0;
        self.put(format_args!(
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{x_label}</text>\
             <text transform=\"translate(11 {middle:.0})rotate(-90)\" text-anchor=\"middle\">{y_label}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 5.0
        ));
    }

    /// A line through points; `None` is a gap.
    pub(super) fn line(
        &mut self,
        points: &[(f64, Option<f64>)],
        class: &str,
        colour: &str,
        name: &str,
    ) {
        let mut path = String::new();
        let mut pen_down = false;
        for (x, y) in points {
            if let Some(y) = y {
                let verb = if pen_down { 'L' } else { 'M' };
                let _ = write!(path, "{verb}{:.1} {:.1}", self.x(*x), self.y(*y));
            }
            pen_down = y.is_some();
        }
        if path.is_empty() {
            return;
        }
        let stroke = if colour.is_empty() {
            String::new()
        } else {
            format!(" stroke=\"{colour}\"")
        };
        self.put(format_args!(
            "<path class=\"{class}\"{stroke} d=\"{path}\"><title>{}</title></path>",
            escaped(name)
        ));
    }

    /// A dot.
    pub(super) fn dot(
        &mut self,
        at: (f64, f64),
        radius: f64,
        class: &str,
        colour: &str,
        name: &str,
    ) {
        let (x, y) = (self.x(at.0), self.y(at.1));
        self.put(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"><title>{}</title></circle>",
            escaped(name)
        ));
    }

    /// A name beside a place, on the side where there is more room, `row` lines below it.
    pub(super) fn name(&mut self, at: (f64, f64), row: f64, text: &str) {
        let (x, y) = (self.x(at.0), self.y(at.1));
        let (x, anchor) = if x < WIDTH / 2.0 {
            (x + 8.0, "start")
        } else {
            (x - 8.0, "end")
        };
        let mut short: String = text.chars().take(LETTERS).collect();
        if short.len() < text.len() {
            short.push('…');
        }
        let y = (y + 4.0 + row * 13.0).clamp(TOP + 9.0, HEIGHT - BOTTOM - 3.0);
        self.put(format_args!(
            "<text class=\"name\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(&short)
        ));
    }

    /// A bar from 0, between two values of the x axis.
    pub(super) fn bar(&mut self, (from, to): (f64, f64), value: f64, colour: &str, name: &str) {
        let (x, y) = (self.x(from), self.y(value));
        let (width, height) = ((self.x(to) - x).max(0.4), (HEIGHT - BOTTOM - y).max(0.5));
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"><title>{}</title></rect>",
            escaped(name)
        ));
    }

    /// An entry of the legend.
    pub(super) fn key(&mut self, colour: &str, name: &str) {
        self.keys.push((colour.to_owned(), name.to_owned()));
    }

    /// The figure with its caption and legend.
    pub(super) fn finish(self) -> String {
        let title = escaped(&self.title);
        let mut text = format!(
            "<figure><figcaption><b>{title}</b> {}</figcaption>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\
             <title>{title}</title>{}</svg>\n",
            escaped(&self.caption),
            self.svg
        );
        if !self.keys.is_empty() {
            text += "<ul class=\"keys\">";
            for (colour, name) in &self.keys {
                let _ = write!(
                    text,
                    "<li><span class=\"key\" style=\"background:{colour}\"></span>{}</li>",
                    escaped(name)
                );
            }
            text += "</ul>\n";
        }
        text + "</figure>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_delay_is_further_to_the_right() {
        let x = Axis::reversed_log("ms", [80.0, 9000.0].into_iter());
        let y = Axis::linear("Mbit/s", [2.0].into_iter(), false);
        let figure = Figure::new("t", "c", x, y);
        assert!(figure.x(80.0) > figure.x(800.0) && figure.x(800.0) > figure.x(9000.0));
        // Logarithmic: equal ratios are equal distances.
        let (one, two) = (
            figure.x(100.0) - figure.x(1000.0),
            figure.x(800.0) - figure.x(8000.0),
        );
        assert!((one - two).abs() < 1e-9);
        assert!(figure.svg.contains(">100</text>") && figure.svg.contains(">1000</text>"));
    }

    #[test]
    fn narrow_ranges_have_several_numbers() {
        for (low, high) in [
            (41.0, 44.0),
            (1.85, 1.9),
            (0.5, 0.6),
            (90.0, 210.0),
            (1.0, 1e6),
        ] {
            let axis = Axis::reversed_log("ms", [low, high].into_iter());
            assert!(
                (2..=8).contains(&axis.ticks.len()),
                "{low} to {high}: {:?}",
                axis.ticks
            );
        }
    }
}
