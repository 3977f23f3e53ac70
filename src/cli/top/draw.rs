//! How `top` looks: 80 columns and 24 lines are enough.

use super::app::{App, Page};
use crate::cli::status::{cell, field};
use pk3c_ccp::stats::{FLOW_FIELDS, Unit};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState};
use serde_json::Value;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of the list, by field, and their widths; what is left is the sparkline's.
const COLUMNS: [(&str, u16); 7] = [
    ("remote", 21),
    ("rate_bits_per_second", 6),
    ("goodput_bits_per_second", 7),
    ("rtt_seconds", 6),
    ("loss_ratio", 5),
    ("phase", 7),
    ("reason", 11),
];
/// Columns of the intervals: heading, width, and where in an interval they are.
const INTERVALS: [(&str, u16); 8] = [
    ("time s", 9),
    ("slot", 6),
    ("asked", 7),
    ("sent", 7),
    ("loss", 6),
    ("rtt ms", 6),
    ("queue", 6),
    ("decision", 24),
];
/// Statistics that count what should not happen.
const TROUBLES: [&str; 9] = [
    "offers_dropped",
    "closes_dropped",
    "reports_dropped",
    "program_errors",
    "flows_without_slot",
    "programs_missing",
    "records_malformed",
    "messages_rejected",
    "commands_failed",
];
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws everything.
pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(summary(app)), top);
    match app.page() {
        Page::List => list(app, frame, middle),
        Page::Flow(flow) => page(app, flow, frame, middle),
    }
    frame.render_widget(footer(app), bottom);
}

fn number(app: &App, name: &str) -> f64 {
    app.status["stats"][name].as_f64().unwrap_or(0.0)
}

fn summary(app: &App) -> Vec<Line<'static>> {
    let stats = &app.status["stats"];
    let of = |name: &str, label: &str| stats[name][label].as_f64().unwrap_or(0.0);
    let version = app.status["agent"]["version"].as_str().unwrap_or("");
    let times = &stats["report_time_seconds"];
    let mean =
        times["sum"].as_f64().unwrap_or(0.0) / times["count"].as_f64().unwrap_or(0.0).max(1.0);
    let reports = app
        .reports_per_s
        .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}/s"));
    let troubles: f64 = TROUBLES.iter().map(|name| number(app, name)).sum();
    let trouble = if troubles > 0.0 {
        Style::new().fg(Color::Red)
    } else {
        Style::new()
    };
    let left: f64 = ["shadow", "control", "kernel"]
        .iter()
        .map(|state| of("flows", state))
        .sum();
    let left = if left > 0.0 {
        format!(", {left} with Cubic by policy")
    } else {
        String::new()
    };
    let drained = if number(app, "draining") > 0.0 {
        "  DRAINED"
    } else {
        ""
    };
    vec![
        Line::from(vec![
            Span::styled(format!("pk3c-ccp {version}"), BOLD),
            Span::raw(format!(
                "  up {}  flows {} driven, {} in fallback{left}",
                Unit::Seconds.show(number(app, "uptime_seconds")),
                of("flows", "driven"),
                of("flows", "fallback"),
            )),
            Span::styled(drained, Style::new().fg(Color::Yellow)),
        ]),
        Line::from(vec![
            Span::raw(format!(
                "reports {reports}, {} each  ",
                Unit::Seconds.show(mean)
            )),
            Span::raw(format!(
                "fallback episodes {}  ",
                number(app, "fallback_episodes")
            )),
            Span::styled(format!("drops and errors {troubles}"), trouble),
        ]),
        Line::from(format!(
            "handbrakes: loss {}, queue {}, compete {}, restart {}",
            of("handbrake_actions", "loss"),
            of("handbrake_actions", "queue"),
            of("handbrake_actions", "compete"),
            of("handbrake_actions", "restart"),
        )),
    ]
}

fn list(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let used: u16 = COLUMNS.iter().map(|(_, width)| width + 1).sum();
    let spark = area.width.saturating_sub(used).clamp(4, 60);
    let mut widths: Vec<_> = COLUMNS
        .iter()
        .map(|(_, width)| Constraint::Length(*width))
        .collect();
    widths.push(Constraint::Length(spark));
    let headings = COLUMNS.iter().map(|(name, width)| {
        let field = field(name);
        let style = if Some(*name) == app.sort() {
            BOLD.add_modifier(Modifier::UNDERLINED)
        } else {
            BOLD
        };
        let text = aligned(field.heading, *width, field.unit == Unit::Text);
        Cell::from(text).style(style)
    });
    let header = Row::new(headings.chain([Cell::from("lately")]));
    let rows = app.flows.iter().map(|flow| row(app, flow, spark.into()));
    let table = Table::new(rows, widths)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(app.selected());
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(app: &App, flow: &Value, spark: usize) -> Row<'static> {
    let cells = COLUMNS.iter().map(|(name, width)| {
        let field = field(name);
        let loss = *name == "loss_ratio" && flow[name].as_f64().is_some_and(|loss| loss >= 0.01);
        let style = if loss {
            Style::new().fg(Color::Red)
        } else {
            Style::new()
        };
        let mut text = cell(field, flow);
        if *name == "rate_bits_per_second" && is_watched(flow) && text != "-" {
            // What it would be, not what it is.
            text.insert(0, '~');
        }
        let text = aligned(&text, *width, field.unit == Unit::Text);
        Cell::from(text).style(style)
    });
    let history = app.history(flow);
    let skip = history.len().saturating_sub(spark);
    let values: Vec<_> = history.skip(skip).collect();
    let cells: Vec<_> = cells.chain([Cell::from(bars(&values))]).collect();
    let style = if flow["state"] == "fallback" {
        Style::new().fg(Color::Yellow)
    } else if is_watched(flow) || flow["state"] == "kernel" {
        Style::new().fg(Color::Cyan)
    } else {
        Style::new()
    };
    Row::new(cells).style(style)
}

/// Whether the agent only says what it would do.
fn is_watched(flow: &Value) -> bool {
    ["shadow", "control"]
        .iter()
        .any(|state| flow["state"] == *state)
}

/// Words to the left, numbers to the right; too long a word loses its beginning, where addresses differ least.
fn aligned(text: &str, width: u16, left: bool) -> String {
    let width = usize::from(width);
    let length = text.chars().count();
    if length > width {
        let tail: String = text.chars().skip(length + 1 - width).collect();
        return format!("…{tail}");
    }
    if left {
        format!("{text:<width$}")
    } else {
        format!("{text:>width$}")
    }
}

/// One character per value, from nothing to the largest of them.
fn bars(values: &[f64]) -> String {
    let most = values.iter().copied().fold(1.0, f64::max);
    let level = |value: &f64| (value / most * (BARS.len() - 1) as f64).round() as usize;
    values
        .iter()
        .map(|value| BARS[level(value).min(BARS.len() - 1)])
        .collect()
}

fn page(app: &App, number: u64, frame: &mut Frame<'_>, area: Rect) {
    let Some(flow) = app.flow(number) else {
        let gone =
            format!("flow {number} is not there: it has ended, or the filter hides it (Esc)");
        frame.render_widget(Paragraph::new(gone), area);
        return;
    };
    let lines = FLOW_FIELDS.len().div_ceil(3) as u16;
    let areas = Layout::vertical([
        Constraint::Length(lines),
        Constraint::Length(4),
        Constraint::Min(3),
    ]);
    let [facts, spark, intervals] = areas.areas(area);
    let texts: Vec<_> = FLOW_FIELDS
        .iter()
        .map(|field| (field.heading, cell(field, flow)))
        .collect();
    for (texts, area) in texts.chunks(lines.into()).zip(
        Layout::horizontal([
            Constraint::Min(34),
            Constraint::Length(23),
            Constraint::Length(22),
        ])
        .areas::<3>(facts),
    ) {
        let lines = texts.iter().map(|(heading, value)| {
            Line::from(vec![
                Span::styled(format!("{heading:8} "), DIM),
                Span::raw(value.clone()),
            ])
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
    }
    let history = app.history(flow);
    let skip = history.len().saturating_sub(spark.width.into());
    let values: Vec<u64> = history.skip(skip).map(|bps| bps as u64).collect();
    let most = values.iter().copied().max().unwrap_or(0);
    let title = format!("goodput, up to {}", Unit::BitsPerSecond.show(most as f64));
    let widget = Sparkline::default()
        .block(Block::new().title(title))
        .data(values);
    frame.render_widget(widget, spark);
    frame.render_widget(interval_table(app, intervals.height), intervals);
}

/// The newest intervals, newest first.
fn interval_table(app: &App, height: u16) -> Table<'static> {
    let headings = INTERVALS
        .iter()
        .map(|(name, width)| aligned(name, *width, *name == "decision" || *name == "slot"));
    let newest = app.intervals.iter().rev().take(height.into());
    let rows = newest.map(|interval| {
        let measured = &interval["measured"];
        let decision = &interval["decision"];
        let float = |value: &Value, digits: usize| {
            value
                .as_f64()
                .map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
        };
        let slot = match measured["slot"].as_u64() {
            Some(0) => "before".to_owned(),
            Some(n @ 1..=4) => format!("trial{n}"),
            _ => "hold".to_owned(),
        };
        let told = format!(
            "{}, {:.2}",
            decision["reason"].as_str().unwrap_or("-"),
            decision["rate"].as_f64().unwrap_or(0.0) * 8e-6
        );
        let texts = [
            float(&interval["at_s"], 3),
            slot,
            float(&measured["asked_mbps"], 2),
            float(&measured["sent_mbps"], 2),
            measured["loss"]
                .as_f64()
                .map_or_else(|| "-".to_owned(), |loss| Unit::Ratio.show(loss)),
            float(&measured["rtt_mean_ms"], 1),
            float(&measured["queue_ms"], 1),
            told,
        ];
        let cells = texts
            .into_iter()
            .zip(INTERVALS)
            .map(|(text, (name, width))| {
                aligned(&text, width, name == "decision" || name == "slot")
            });
        Row::new(cells.collect::<Vec<_>>())
    });
    Table::new(
        rows.collect::<Vec<_>>(),
        INTERVALS.map(|(_, width)| Constraint::Length(width)),
    )
    .header(Row::new(headings.collect::<Vec<_>>()).style(BOLD))
    .column_spacing(1)
}

fn footer(app: &App) -> Line<'static> {
    if let Some(error) = &app.error {
        return Line::styled(error.clone(), Style::new().fg(Color::Red));
    }
    if app.typing {
        return Line::raw(format!(
            "filter: {}_  (Enter keeps it, Esc clears it)",
            app.filter()
        ));
    }
    let keys = match app.page() {
        Page::List => "↑↓ select  Enter flow  s sort  / filter  q quit",
        Page::Flow(_) => "Esc back  q quit   rates in Mbit/s",
    };
    let filter = match app.filter() {
        "" => String::new(),
        filter => format!(", with \"{filter}\""),
    };
    let shown = format!(
        "   {} of {} flows by {}{filter}",
        app.flows.len(),
        app.total,
        app.sort_heading()
    );
    Line::styled(format!("{keys}{shown}"), DIM)
}

#[cfg(test)]
mod tests;
