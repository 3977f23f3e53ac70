//! A run over time as one picture: rate and RTT of each flow, the queue, and what the agents decided.
//!
//! The picture is SVG that needs nothing else, dark or light as the reader's screen is. As a page it comes with the
//! table of the same runs. Lines have at most [`series::POINTS`] points, and marks on one lane keep a distance, so that
//! the size of the picture does not grow with the length of the run.

mod lanes;
mod legend;
mod scale;
mod series;

use super::runs::Outcome;
use super::summary::Summary;
use crate::cli::scenario::Plan;
use pathlab::chart::{colour, escaped, short, ticks};
use pathsim::{QueueLimit, RateSchedule, SECOND};
use scale::Scale;
use series::{BINS_PER_SECOND, Line, stepped, thinned};
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 178.0;
const PANEL: f64 = 170.0;
const GAP: f64 = 44.0;
const TOP: f64 = 54.0;
/// Flows in the legend, and with a lane for their decisions, at most.
const NAMES: usize = 12;
const LANES: usize = 20;
/// Flows whose decided rate is drawn beside their goodput, at most: more would hide the goodput.
const DECIDED: usize = 2;
/// Limits are drawn up to so many times the highest value.
const LIMIT_ABOVE: f64 = 3.0;
const STYLE: &str = "\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#39424e}\
.title{font-size:14px;font-weight:600;fill:#1b222b}.note{font-size:11px;fill:#66707d}\
.back{fill:#fff}.grid{stroke:#e4e7eb}.axis{stroke:#9aa3ae}.limit{stroke:#66707d;stroke-dasharray:2 3}\
.line{fill:none;stroke-width:1.4;stroke-linejoin:round}.asked{fill:none;stroke-width:1;stroke-dasharray:4 2;opacity:.75}\
.drop{stroke:#d03b3b;opacity:.8}.idle{fill:#eef0f3}\
.startup{fill:#8ec7e8}.drain{fill:#f0c36d}.vivace{fill:#a9d8b5}.cruise{fill:#d9e28f}.aimd{fill:#cdb7e6}.compete{fill:#f2a9a0}.upstream,.other{fill:#c5cbd3}\
.mark-full{fill:#14628f}.mark-loss{fill:#c22f2f}.mark-queue{fill:#a86800}.mark-timeout{fill:#000}.mark-mode{fill:#7a2fb0}\
@media (prefers-color-scheme:dark){text{fill:#c3cad3}.title{fill:#eef1f5}.note{fill:#8f99a6}\
.back{fill:#13171d}.grid{stroke:#2a313a}.axis{stroke:#5b6672}.limit{stroke:#8f99a6}.drop{stroke:#f06a6a}.idle{fill:#1c222a}\
.startup{fill:#235f85}.drain{fill:#8a6414}.vivace{fill:#2b6a41}.cruise{fill:#5f6b1c}.aimd{fill:#5b4285}.compete{fill:#8c3a31}.upstream,.other{fill:#4a525c}\
.mark-full{fill:#8fd0f5}.mark-loss{fill:#ff8a8a}.mark-queue{fill:#ffc861}.mark-timeout{fill:#fff}.mark-mode{fill:#d6a4ff}}";
/// Phases that have a colour of their own, in the order of the legend.
const PHASES: [&str; 7] = [
    "startup", "drain", "vivace", "cruise", "aimd", "compete", "upstream",
];

/// Draws a run that kept its series and decisions.
pub(super) fn svg(outcome: &Outcome, plan: &Plan) -> String {
    let picture = Picture::new(outcome, plan);
    picture.draw()
}

/// The picture on a page of its own, with the table.
pub(super) fn page(svg: &str, plan: &Plan, summary: &Summary) -> String {
    let title = escaped(&heading(plan));
    let table = escaped(&summary.to_string());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{margin:1.2rem auto;max-width:1100px;padding:0 1rem;\
         font-family:system-ui,sans-serif;background:#fff;color:#1b222b}}svg{{width:100%;height:auto}}\
         pre{{overflow-x:auto;font-size:.8rem}}@media (prefers-color-scheme:dark){{body{{background:#13171d;color:#dfe4ea}}}}\
         </style>\n{svg}\n<pre>{table}</pre>\n<p>The picture shows the first run; the table shows the means of all runs. \
         share: goodput over what the path can carry, rate × 1448/1500 × (1 − loss).</p>\n</html>\n"
    )
}

fn heading(plan: &Plan) -> String {
    plan.title.clone().unwrap_or_else(|| {
        let path = &plan.scenario.path;
        let rate = match &path.rate {
            RateSchedule::Constant(bps) => format!("{} Mbit/s", *bps as f64 / 1e6),
            RateSchedule::Steps(_) => "a rate in steps".to_owned(),
            RateSchedule::Trace(_) => "the rate of a trace".to_owned(),
        };
        let queue = match path.queue {
            QueueLimit::Packets(packets) => format!("{packets} packets"),
            QueueLimit::Bytes(bytes) => format!("{bytes} bytes"),
        };
        let loss = match path.loss.ratio() * 100.0 {
            0.0 => String::new(),
            percent => format!(", {percent} % random loss"),
        };
        format!(
            "{rate}, RTT {} ms, queue of {queue}{loss}",
            path.rtt_ns as f64 / 1e6
        )
    })
}

struct Picture<'a> {
    outcome: &'a Outcome,
    plan: &'a Plan,
    seconds: f64,
    svg: String,
}

impl<'a> Picture<'a> {
    fn new(outcome: &'a Outcome, plan: &'a Plan) -> Self {
        Self {
            outcome,
            plan,
            seconds: outcome.results.duration_s.max(1e-3),
            svg: String::new(),
        }
    }

    /// Adds a piece; writing to a string cannot fail.
    fn put(&mut self, piece: std::fmt::Arguments<'_>) {
        let _ = self.svg.write_fmt(piece);
        self.svg.push('\n');
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (seconds / self.seconds).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn colour(&self, flow: usize) -> String {
        colour(flow, self.outcome.results.flows.len())
    }

    fn draw(mut self) -> String {
        let lanes = self.lanes();
        let lane_height = match lanes.len() {
            0 => 0.0,
            1..=2 => 26.0,
            3..=10 => 17.0,
            _ => 11.0,
        };
        let decisions = if lanes.is_empty() {
            0.0
        } else {
            lane_height * lanes.len() as f64 + GAP
        };
        let height = (TOP + 3.0 * (PANEL + GAP) + decisions + 8.0).max(self.legend_height());
        self.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"22\">{title}</text>",
            title = escaped(&heading(self.plan)),
        ));
        let lines = self.rates();
        // A limit far above what flows reach would flatten their lines.
        let highest = lines
            .iter()
            .flat_map(|line| &line.points)
            .filter_map(|(_, value)| *value)
            .fold(0.0, f64::max);
        let mut capacity = self.capacity();
        if capacity
            .iter()
            .any(|(_, value)| value.is_some_and(|mbps| mbps > LIMIT_ABOVE * highest))
        {
            capacity.clear();
        }
        self.panel(0, "goodput, Mbit/s", false, &lines, capacity);
        let lines = self.rtts();
        let base = vec![
            (0.0, Some(self.plan.scenario.path.rtt_ns as f64 / 1e6)),
            (
                self.seconds,
                Some(self.plan.scenario.path.rtt_ns as f64 / 1e6),
            ),
        ];
        self.panel(1, "RTT, ms", true, &lines, base);
        self.queue();
        if !lanes.is_empty() {
            self.decisions(&lanes, lane_height);
        }
        self.legend(!lanes.is_empty());
        self.svg + "</svg>\n"
    }

    fn rates(&self) -> Vec<Line> {
        let flows = &self.outcome.results.flows;
        let specs = &self.plan.scenario.flows;
        let mut lines: Vec<_> = flows
            .iter()
            .zip(specs)
            .enumerate()
            .map(|(index, (flow, spec))| Line {
                points: thinned(
                    flow.series
                        .iter()
                        .map(|bin| Some(bin.goodput_mbps))
                        .collect(),
                    self.life(spec),
                ),
                class: "line",
                colour: self.colour(index),
            })
            .collect();
        let with_agent = self
            .outcome
            .decisions
            .iter()
            .enumerate()
            .filter(|(_, (events, _))| !events.is_empty());
        let with_agent: Vec<_> = with_agent.collect();
        if with_agent.len() <= DECIDED {
            for (index, (events, _)) in with_agent {
                let end = self.life(&specs[index]).1;
                lines.push(Line {
                    points: stepped(events, end),
                    class: "asked",
                    colour: self.colour(index),
                });
            }
        }
        lines
    }

    fn rtts(&self) -> Vec<Line> {
        let flows = self
            .outcome
            .results
            .flows
            .iter()
            .zip(&self.plan.scenario.flows)
            .enumerate();
        flows
            .map(|(index, (flow, spec))| {
                let values = flow
                    .series
                    .iter()
                    .map(|bin| Some(bin.rtt_ms).filter(|ms| *ms > 0.0));
                Line {
                    points: thinned(values.collect(), self.life(spec)),
                    class: "line",
                    colour: self.colour(index),
                }
            })
            .collect()
    }

    /// Start and end of a flow, s.
    fn life(&self, spec: &pathsim::FlowSpec) -> (f64, f64) {
        let seconds = |ns: u64| ns as f64 / SECOND as f64;
        (
            seconds(spec.start_ns),
            spec.stop_ns.map_or(self.seconds, seconds).min(self.seconds),
        )
    }

    /// What the path can carry as goodput, Mbit/s.
    fn capacity(&self) -> Vec<(f64, Option<f64>)> {
        let path = &self.plan.scenario.path;
        let passes = path.limited_bps().unwrap_or(u64::MAX);
        let goodput =
            |bps: u64| bps.min(passes) as f64 / 1e6 * (1448.0 / 1500.0) * (1.0 - path.loss.ratio());
        match &path.rate {
            RateSchedule::Constant(bps) => vec![
                (0.0, Some(goodput(*bps))),
                (self.seconds, Some(goodput(*bps))),
            ],
            RateSchedule::Steps(steps) => {
                let ends = steps.iter().skip(1).map(|next| next.0).chain([u64::MAX]);
                let span = |(&(at, bps), end): (&(u64, u64), u64)| {
                    let at = at as f64 / SECOND as f64;
                    let end = (end as f64 / SECOND as f64).min(self.seconds);
                    [(at, Some(goodput(bps))), (end, Some(goodput(bps)))]
                };
                let points = steps.iter().zip(ends).flat_map(span);
                points.filter(|(at, _)| *at <= self.seconds).collect()
            }
            RateSchedule::Trace(_) => Vec::new(),
        }
    }

    /// A panel with its lines, and a dotted line for a limit.
    fn panel(
        &mut self,
        row: usize,
        title: &str,
        above_zero: bool,
        lines: &[Line],
        limit: Vec<(f64, Option<f64>)>,
    ) {
        let values = || {
            lines
                .iter()
                .flat_map(|line| &line.points)
                .chain(&limit)
                .filter_map(|(_, value)| *value)
        };
        let scale = Scale::new(values(), above_zero, TOP + row as f64 * (PANEL + GAP));
        self.axes(&scale, title);
        for line in lines {
            let path = self.path(&line.points, &scale);
            self.put(format_args!(
                "<path class=\"{}\" stroke=\"{}\" d=\"{path}\"/>",
                line.class, line.colour
            ));
        }
        let path = self.path(&limit, &scale);
        if !path.is_empty() {
            self.put(format_args!("<path class=\"line limit\" d=\"{path}\"/>"));
        }
    }

    fn axes(&mut self, scale: &Scale, title: &str) {
        let (right, bottom) = (WIDTH - RIGHT, scale.top + PANEL);
        self.put(format_args!(
            "<text x=\"{LEFT}\" y=\"{:.0}\">{title}</text>",
            scale.top - 7.0
        ));
        for value in ticks(scale.range.low, scale.range.high, 5) {
            let y = scale.y(value);
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(value)
            ));
        }
        self.times(scale.top, bottom);
    }

    /// The axis of time, with its grid.
    fn times(&mut self, top: f64, bottom: f64) {
        for at in ticks(0.0, self.seconds, 8) {
            let x = self.x(at);
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{} s</text>",
                bottom + 16.0,
                short(at)
            ));
        }
        let right = WIDTH - RIGHT;
        self.put(format_args!(
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>"
        ));
    }

    fn path(&self, points: &[(f64, Option<f64>)], scale: &Scale) -> String {
        let mut path = String::new();
        let mut pen_down = false;
        for (at, value) in points {
            if let Some(value) = value {
                let verb = if pen_down { 'L' } else { 'M' };
                let _ = write!(path, "{verb}{:.1} {:.1}", self.x(*at), scale.y(*value));
            }
            pen_down = value.is_some();
        }
        path
    }

    fn queue(&mut self) {
        let series = &self.outcome.results.link_series;
        let values = series.iter().map(|bin| Some(f64::from(bin.queue_packets)));
        let line = Line {
            points: thinned(values.collect(), (0.0, self.seconds)),
            class: "line",
            colour: "#7d8793".to_owned(),
        };
        let highest = series
            .iter()
            .map(|bin| bin.queue_packets)
            .max()
            .unwrap_or(0);
        // A limit far above what was ever used would flatten the line.
        let limit = match self.plan.scenario.path.queue {
            QueueLimit::Packets(packets) if u64::from(packets) <= 2 * u64::from(highest) => {
                let value = Some(f64::from(packets));
                vec![(0.0, value), (self.seconds, value)]
            }
            _ => Vec::new(),
        };
        let title = "queue, packets (most in 100 ms); red: packets lost or dropped";
        self.panel(2, title, false, &[line], limit);
        let bottom = TOP + 2.0 * (PANEL + GAP) + PANEL;
        let mut last = f64::NEG_INFINITY;
        let lost: Vec<_> = series
            .iter()
            .enumerate()
            .filter(|(_, bin)| bin.lost > 0)
            .map(|(bin, _)| bin)
            .collect();
        for bin in lost {
            let x = self.x(bin as f64 / BINS_PER_SECOND);
            if x - last >= 1.0 {
                last = x;
                self.put(format_args!("<line class=\"drop\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.0}\"/>", bottom - 7.0));
            }
        }
    }
}
