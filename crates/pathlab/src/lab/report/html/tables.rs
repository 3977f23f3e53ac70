//! The page's tables: scores, conditions, self-check, void runs.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::chart::escaped;
use crate::lab::report::group::{Group, Groups};
use crate::lab::report::measure::MEASURES;
use crate::lab::report::read::Results;
use crate::lab::report::table::{SHOWN, best, number};
use crate::lab::result::{Checked, RunResult, SelfCheck};

/// Begin and end of the runs.
pub(super) fn span(results: &Results) -> String {
    let began = results
        .runs
        .iter()
        .map(|loaded| loaded.run.conditions.began.as_str());
    let began: Vec<_> = began.filter(|began| !began.is_empty()).collect();
    match (began.iter().min(), began.iter().max()) {
        (Some(first), Some(last)) if first != last => format!("Made from {first} to {last}."),
        (Some(only), _) => format!("Made at {only}."),
        _ => String::new(),
    }
}

pub(super) fn warnings(results: &Results) -> String {
    let warnings = results.warnings();
    if warnings.is_empty() {
        return String::new();
    }
    let items: String = warnings
        .iter()
        .map(|warning| format!("<li>{}</li>", escaped(warning)))
        .collect();
    format!("<div class=\"warn\" role=\"note\"><b>Warnings</b><ul>{items}</ul></div>\n")
}

/// What the columns of the scores mean.
pub(super) fn legend(groups: &Groups<'_>) -> String {
    let shown = MEASURES.iter().filter(|measure| {
        groups
            .0
            .iter()
            .any(|group| !group.values(measure).is_empty())
    });
    let items: Vec<_> = shown
        .map(|measure| {
            format!(
                "<b>{}</b> {}",
                escaped(measure.heading[0]),
                escaped(measure.about)
            )
        })
        .collect();
    format!(
        "<p>Scores are medians over the repetitions; small: the 95 % interval of the median by bootstrap. The best of a column is \
         marked. {}.</p>\n",
        items.join("; ")
    )
}

/// The scores of a scenario.
pub(super) fn scores(groups: &[Group<'_>]) -> String {
    // All measures of the terminal and more: a page can be scrolled.
    let measures: Vec<_> = MEASURES
        .iter()
        .enumerate()
        .filter(|(_, measure)| groups.iter().any(|group| !group.values(measure).is_empty()))
        .collect();
    let intervals: Vec<Vec<_>> = measures
        .iter()
        .map(|(_, measure)| groups.iter().map(|group| group.interval(measure)).collect())
        .collect();
    let mut text = format!(
        "{}<thead><tr><th scope=\"col\">scheme</th><th scope=\"col\">reps</th>",
        open("scores", "")
    );
    for (_, measure) in &measures {
        let [what, unit] = measure.heading;
        let _ = write!(
            text,
            "<th scope=\"col\" title=\"{}\">{}<br>{}</th>",
            escaped(measure.about),
            escaped(what),
            escaped(unit)
        );
    }
    text += "</tr></thead><tbody>\n";
    for (row, group) in groups.iter().enumerate() {
        let void = match group.void.len() {
            0 => String::new(),
            void => format!(" <small>+{void} void</small>"),
        };
        let _ = write!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{}{void}</td>",
            escaped(group.scheme),
            group.runs.len()
        );
        for ((index, measure), column) in measures.iter().zip(&intervals) {
            let medians: Vec<_> = column
                .iter()
                .map(|interval| interval.map(|i| i.median))
                .collect();
            let class = if *index < SHOWN && best(measure, &medians)[row] {
                " class=\"best\""
            } else {
                ""
            };
            match column[row] {
                None => text += "<td>-</td>",
                Some(interval) => {
                    let of = |value| number(measure, value);
                    let ends = if group.runs.len() > 1 {
                        format!(
                            "<br><small>{}&#8211;{}</small>",
                            of(interval.low),
                            of(interval.high)
                        )
                    } else {
                        String::new()
                    };
                    let _ = write!(text, "<td{class}>{}{ends}</td>", of(interval.median));
                }
            }
        }
        text += "</tr>\n";
    }
    text + CLOSE
}

const CLOSE: &str = "</tbody></table></div>\n";

/// A table that scrolls by itself where the screen is narrow, also from the keyboard.
fn open(label: &str, class: &str) -> String {
    format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"{label}\" tabindex=\"0\"><table{class}>"
    )
}

/// Conditions that differ are listed with their number of runs.
pub(super) fn conditions(results: &Results) -> String {
    let mut text = String::from(
        "<section aria-labelledby=\"conditions\">\n<h2 id=\"conditions\">Conditions</h2>\n",
    );
    text += &open("conditions", " class=\"text\"");
    text += "<tbody>\n";
    let number = |value: u32| value.to_string();
    type Of = Box<dyn Fn(&RunResult) -> String>;
    let rows: [(&str, Of); 14] = [
        ("kernel", Box::new(|run| run.conditions.kernel.clone())),
        ("version", Box::new(|run| run.conditions.version.clone())),
        ("revision", Box::new(|run| run.conditions.revision.clone())),
        ("backend", Box::new(|run| run.inputs.backend.clone())),
        (
            "packets carried by",
            Box::new(|run| run.conditions.line.clone()),
        ),
        ("CPUs", Box::new(|run| run.conditions.cpus.to_string())),
        (
            "iperf3",
            Box::new(|run| run.conditions.iperf3.clone().unwrap_or_default()),
        ),
        (
            "agent",
            Box::new(|run| run.conditions.agent_args.clone().unwrap_or_default()),
        ),
        (
            "form",
            Box::new(|run| if run.inputs.quick { "quick" } else { "full" }.to_owned()),
        ),
        (
            "gso_max_segs",
            Box::new(move |run| number(run.inputs.settings.gso_max_segs)),
        ),
        (
            "SACK",
            Box::new(|run| {
                if run.inputs.settings.sack {
                    "on"
                } else {
                    "off"
                }
                .to_owned()
            }),
        ),
        (
            "scheduling of the emulator",
            Box::new(|run| lateness(run, |late| late.scheduling.clone())),
        ),
        (
            "latest release of a packet, p99",
            Box::new(|run| lateness(run, |late| format!("{:.0} µs", late.p99_us))),
        ),
        (
            "from the cache",
            Box::new(|run| if run.conditions.reused { "yes" } else { "" }.to_owned()),
        ),
    ];
    for (name, of) in &rows {
        let mut values: BTreeMap<String, usize> = BTreeMap::new();
        for loaded in &results.runs {
            *values.entry(of(&loaded.run)).or_default() += 1;
        }
        values.remove("");
        put_values(&mut text, name, &values);
    }
    let mut sysctls: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for (key, value) in results
        .runs
        .iter()
        .flat_map(|loaded| &loaded.run.conditions.sysctls)
    {
        *sysctls
            .entry(key)
            .or_default()
            .entry(value.clone())
            .or_default() += 1;
    }
    for (key, values) in sysctls {
        put_values(&mut text, key, &values);
    }
    text += CLOSE;
    text += &self_checks(results);
    text + "</section>\n"
}

/// Different values of one condition in a cell, at most.
const VALUES: usize = 6;

fn put_values(text: &mut String, name: &str, values: &BTreeMap<String, usize>) {
    if values.is_empty() {
        return;
    }
    let one = values.len() == 1;
    let shown = values.iter().take(VALUES).map(|(value, runs)| {
        let count = if one {
            String::new()
        } else {
            format!(" ({runs} runs)")
        };
        format!("{}{count}", escaped(value))
    });
    let mut shown: Vec<_> = shown.collect();
    if values.len() > VALUES {
        shown.push(format!("and {} more values", values.len() - VALUES));
    }
    let _ = writeln!(
        text,
        "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
        escaped(name),
        shown.join("<br>")
    );
}

fn lateness(run: &RunResult, of: impl Fn(&crate::lab::result::Lateness) -> String) -> String {
    let lateness = run.link.as_ref().and_then(|link| link.lateness.as_ref());
    lateness.map(of).unwrap_or_default()
}

/// What the emulator did to a null sender, once for each path.
fn self_checks(results: &Results) -> String {
    let mut checks: BTreeMap<&str, &SelfCheck> = BTreeMap::new();
    for check in results
        .runs
        .iter()
        .filter_map(|loaded| loaded.run.conditions.self_check.as_ref())
    {
        checks.entry(&check.path).or_insert(check);
    }
    let mut text = String::from("<h3>Self-check of the emulator</h3>\n");
    if checks.is_empty() {
        return text
            + "<p>None: these runs were not made with the emulator of the host, or without a check.</p>\n";
    }
    text += "<p>What a null sender found before the runs: asked for, and measured.</p>\n";
    text += &open("self-check", "");
    text += "<thead><tr><th scope=\"col\">path</th><th scope=\"col\">capacity, Mbit/s</th><th scope=\"col\">delay, ms</th>\
             <th scope=\"col\">loss, %</th><th scope=\"col\">lateness p99, µs</th><th scope=\"col\">passed</th></tr></thead><tbody>\n";
    for check in checks.values() {
        let pair = |of: &Checked, scale: f64, digits: usize| {
            format!(
                "{:.*} / {:.*}",
                digits,
                of.asked * scale,
                digits,
                of.measured * scale
            )
        };
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&check.path),
            pair(&check.capacity_mbps, 1.0, 2),
            pair(&check.delay_ms, 1.0, 2),
            pair(&check.loss, 100.0, 2),
            pair(&check.late_p99_us, 1.0, 0),
            if check.passed { "yes" } else { "NO" }
        );
    }
    text + CLOSE
}

pub(super) fn void(groups: &Groups<'_>) -> String {
    let mut text =
        String::from("<section aria-labelledby=\"void\">\n<h2 id=\"void\">Void runs</h2>\n");
    let runs: Vec<_> = groups.void().collect();
    if runs.is_empty() {
        return text + "<p>None.</p>\n</section>\n";
    }
    text += "<p>In no figure and no score.</p>\n";
    text += &open("void runs", " class=\"text\"");
    text += "<thead><tr><th scope=\"col\">scenario</th><th scope=\"col\">scheme</th><th scope=\"col\">seed</th>\
             <th scope=\"col\">why</th></tr></thead><tbody>\n";
    for (loaded, reason) in runs {
        let inputs = &loaded.run.inputs;
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&inputs.scenario),
            escaped(&inputs.scheme),
            inputs.seed,
            escaped(reason)
        );
    }
    text + CLOSE + "</section>\n"
}
