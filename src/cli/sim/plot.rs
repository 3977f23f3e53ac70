//! A run over time as one SVG picture: goodput and RTT of each flow, and the queue.

use pathsim::{FlowResult, Results};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const PANEL: f64 = 200.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const GAP: f64 = 50.0;
const BINS_PER_SECOND: f64 = 10.0;
/// Colours that differ for most eyes (Okabe and Ito); they repeat after eight flows.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

/// Draws a run that kept its series.
pub(super) fn svg(run: &Results) -> String {
    let height = 3.0 * (PANEL + GAP) + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let flows = |value: fn(&pathsim::Bin) -> f64| -> Vec<Vec<f64>> {
        let series = |flow: &FlowResult| flow.series.iter().map(value).collect();
        run.flows.iter().map(series).collect()
    };
    let queue = run
        .link_series
        .iter()
        .map(|bin| f64::from(bin.queue_packets))
        .collect();
    panel(
        &mut svg,
        0,
        "goodput, Mbit/s",
        &flows(|bin| bin.goodput_mbps),
        run.duration_s,
    );
    panel(
        &mut svg,
        1,
        "RTT, ms",
        &flows(|bin| bin.rtt_ms),
        run.duration_s,
    );
    panel(
        &mut svg,
        2,
        "queue, packets (most in 100 ms)",
        &[queue],
        run.duration_s,
    );
    for (index, flow) in run.flows.iter().enumerate().take(30) {
        let y = 30.0 + 16.0 * index as f64;
        let (x, colour) = (WIDTH - RIGHT + 15.0, COLOURS[index % COLOURS.len()]);
        // The name is a scheme's, without anything to escape. Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{} {}</text>",
            index + 1,
            flow.scheme
        );
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, row: usize, title: &str, lines: &[Vec<f64>], seconds: f64) {
    let top = 20.0 + row as f64 * (PANEL + GAP);
    let bottom = top + PANEL;
    let right = WIDTH - RIGHT;
    let highest = nice(lines.iter().flatten().copied().fold(0.0, f64::max));
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.0}\">{title}</text>",
        top - 6.0
    );
    for step in 0..=4 {
        let part = f64::from(step) / 4.0;
        let y = bottom - part * PANEL;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            highest * part
        );
        let x = LEFT + part * (right - LEFT);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{:.1} s</text>",
            bottom + 16.0,
            seconds * part
        );
    }
    for (index, values) in lines.iter().enumerate() {
        let mut points = String::new();
        for (bin, value) in values.iter().enumerate() {
            let x = LEFT + (bin as f64 / BINS_PER_SECOND / seconds) * (right - LEFT);
            let y = bottom - value / highest * PANEL;
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        let colour = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\"/>",
            points.trim_end()
        );
    }
}

/// The next of 1, 2, 4, 10 and their powers of ten.
fn nice(value: f64) -> f64 {
    let mut limit = 1.0;
    loop {
        for factor in [1.0, 2.0, 4.0] {
            if limit * factor >= value {
                return limit * factor;
            }
        }
        limit *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_on_round_numbers() {
        for (value, limit) in [
            (0.0, 1.0),
            (1.5, 2.0),
            (3.0, 4.0),
            (41.0, 100.0),
            (390.0, 400.0),
        ] {
            assert_eq!(nice(value), limit);
        }
    }
}
