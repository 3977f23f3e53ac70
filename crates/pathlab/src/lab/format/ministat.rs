//! Samples as FreeBSD's ministat(1) shows them, down to its plot.
//!
//! The plot has a column for each of 74 equal parts of the span of all values and of all means ± standard deviations. A
//! value is its set's symbol in its part, above others of its set in the same part; sets that share a part have the
//! symbol of both numbers' bits together. As ministat does, the plot shows as many rows as the *last* set has. Below, a
//! line for each set (`ministat -s`) has a bar from mean - s to mean + s, M at the median, A over it at the mean.

use std::fmt::Write;

use super::printf::g;
use super::published::{Loopback, loopback};
use super::{claims, plain};
use crate::lab::report::measure::measure;
use crate::lab::report::{Group, Groups};
use crate::lab::result::RunResult;
use crate::lab::run::Traffic;
use crate::lab::statistics::{Comparison, Sample, compare, mean};

/// Symbols of sets: none, then up to seven.
const SYMBOLS: [char; 8] = [' ', 'x', '+', '*', '%', '#', '@', 'O'];
/// Sets in one block, at most.
pub const SETS: usize = SYMBOLS.len() - 1;
/// Columns of the plot.
const COLUMNS: usize = 74;

/// A block for up to [`SETS`] samples; the first is the reference of all others, more are left out.
pub fn block(samples: &[Sample]) -> String {
    let samples = &samples[..samples.len().min(SETS)];
    let mut text = String::new();
    for (sample, symbol) in samples.iter().zip(&SYMBOLS[1..]) {
        let _ = writeln!(text, "{symbol} {}", sample.name);
    }
    text += &plot(samples);
    text += "    N           Min           Max        Median           Avg        Stddev\n";
    for (index, sample) in samples.iter().enumerate() {
        let _ = write!(text, "{} {:3}", SYMBOLS[index + 1], sample.count());
        let values = [
            sample.min(),
            sample.max(),
            sample.median(),
            sample.mean(),
            sample.deviation(),
        ];
        for value in values {
            let _ = write!(text, " {:>13}", g(value, 8));
        }
        text.push('\n');
        if index > 0 {
            text += &compare(&samples[0], sample).map_or_else(
                || "Too few values to compare\n".to_owned(),
                |comparison| verdict(&comparison),
            );
        }
    }
    text
}

/// The verdict in ministat's words.
pub fn verdict(comparison: &Comparison) -> String {
    if !comparison.differs() {
        return "No difference proven at 95.0% confidence\n".to_owned();
    }
    let number = |value| g(value, 6);
    format!(
        "Difference at 95.0% confidence\n\t{} +/- {}\n\t{}% +/- {}%\n\t(Student's t, pooled s = {})\n",
        number(comparison.difference),
        number(comparison.interval),
        number(comparison.difference_percent),
        number(comparison.interval_percent),
        number(comparison.pooled)
    )
}

fn plot(samples: &[Sample]) -> String {
    let deviation = |sample: &Sample| Some(sample.deviation()).filter(|s| s.is_finite());
    let ends = samples.iter().flat_map(|sample| {
        let (mean, s) = (sample.mean(), deviation(sample).unwrap_or(0.0));
        [sample.min(), sample.max(), mean - s, mean + s]
    });
    let (min, max) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), end| {
        (min.min(end), max.max(end))
    });
    let span = max - min;
    if span.is_nan() || span <= 0.0 {
        return "[no plot, span is zero width]\n".to_owned();
    }
    let step = span / (COLUMNS as f64 - 1.0);
    let start = min - 0.5 * step;
    let column = |value: f64| (((value - start) / step) as usize).min(COLUMNS - 1);

    let mut rows: Vec<[usize; COLUMNS]> = Vec::new();
    let mut height = 0;
    let mut bars = Vec::new();
    for (sample, number) in samples.iter().zip(1..) {
        height = 0;
        let mut stacked = [0; COLUMNS];
        for value in sample.values() {
            let at = column(*value);
            let row = stacked[at];
            stacked[at] += 1;
            if rows.len() <= row {
                rows.push([0; COLUMNS]);
            }
            rows[row][at] |= number;
            height = height.max(row + 1);
        }
        let mean = sample.mean();
        let mut bar = [' '; COLUMNS];
        if let Some(s) = deviation(sample) {
            let (from, to) = (column(mean - s), column(mean + s));
            for mark in bar.iter_mut().take(to).skip(from + 1) {
                *mark = '_';
            }
            (bar[to], bar[from]) = ('|', '|');
        }
        bar[column(sample.median())] = 'M';
        bar[column(mean)] = 'A';
        bars.push(bar.iter().collect::<String>());
    }
    let frame = format!("+{}+\n", "-".repeat(COLUMNS));
    let mut text = frame.clone();
    for row in rows.iter().take(height).rev() {
        let symbols: String = row
            .iter()
            .map(|set| SYMBOLS[*set % SYMBOLS.len()])
            .collect();
        let _ = writeln!(text, "|{symbols}|");
    }
    for bar in bars {
        let _ = writeln!(text, "|{bar}|");
    }
    text + &frame
}

/// Goodputs of all scenarios: a block for each, the first scheme as the reference, and the document's numbers.
pub fn render(groups: &Groups<'_>) -> String {
    let mut text = String::new();
    for scenario in groups.scenarios() {
        let gigabit = scenario.iter().any(is_loopback);
        let samples: Vec<_> = scenario
            .iter()
            .filter_map(|group| sample(group, gigabit))
            .collect();
        let Some((reference, others)) = samples.split_first() else {
            continue;
        };
        let unit = if gigabit { "Gbit/s" } else { "Mbit/s" };
        let _ = writeln!(text, "goodput, {unit}");
        if others.is_empty() {
            text += &block(&samples);
        }
        for others in others.chunks(SETS - 1) {
            let sets: Vec<_> = std::iter::once(reference).chain(others).cloned().collect();
            text += &block(&sets);
        }
        text.push('\n');
        if gigabit {
            text += &beside(scenario);
        }
    }
    text + &claims::render("freebsd", groups)
}

fn is_loopback(group: &Group<'_>) -> bool {
    group.any().is_some_and(|run| run.inputs.settings.loopback)
}

fn sample(group: &Group<'_>, gigabit: bool) -> Option<Sample> {
    let values = group.values(measure("goodput_mbps")?);
    let unit = if gigabit { 1000.0 } else { 1.0 };
    let values: Vec<_> = values.iter().map(|mbps| mbps / unit).collect();
    Sample::new(format!("{}.{}", group.scenario, group.scheme), &values)
}

/// The document's mean of a data set, Gbit/s.
fn published(tool: &str, stack: &str, cca: &str) -> Option<f64> {
    let same = |set: &&Loopback| {
        (set.tool.as_str(), set.stack.as_str(), set.cca.as_str()) == (tool, stack, cca)
    };
    let set = loopback().iter().find(same);
    set.and_then(|set| mean(&set.samples))
}

/// The document's name of a scheme; Linux calls `newreno` reno.
fn published_name(scheme: &str) -> &str {
    match plain(scheme) {
        "reno" => "newreno",
        name => name,
    }
}

/// The document's mean of a scheme on its default stack, by iperf3, Gbit/s.
pub fn published_mean(scheme: &str) -> Option<f64> {
    published("iperf3", "freebsd", published_name(scheme))
}

/// The document's means beside ours, Gbit/s.
fn beside(scenario: &[Group<'_>]) -> String {
    let mut text = String::from(
        "published means (FreeBSD 15 on an EPYC 7502P), Gbit/s; difference: ours to its default stack, to iperf3 there\n\
         if ours was made with iperf3, else to iperf\n\
         scheme        iperf3.freebsd  iperf3.rack   iperf3.bbr  iperf.freebsd       ours  difference\n",
    );
    let iperf3 = |run: &RunResult| run.inputs.settings.traffic == Traffic::Iperf3;
    let tool = if scenario.iter().filter_map(Group::any).all(iperf3) {
        "iperf3"
    } else {
        "iperf"
    };
    for group in scenario {
        let cca = published_name(group.scheme);
        let ours = sample(group, true).map(|sample| sample.mean());
        let theirs = published(tool, "freebsd", cca);
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let change = ours
            .zip(theirs)
            .map(|(ours, theirs)| (ours / theirs - 1.0) * 100.0);
        let _ = writeln!(
            text,
            "{:<12} {:>15} {:>12} {:>12} {:>14} {:>10} {:>11}",
            group.scheme,
            cell(published("iperf3", "freebsd", cca)),
            cell(published("iperf3", "rack", cca)),
            cell(published("iperf3", "bbr", cca)),
            cell(published("iperf", "freebsd", cca)),
            cell(ours),
            change.map_or("-".to_owned(), |change| format!("{change:+.1} %"))
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::format::published::comparisons;
    use crate::lab::report::read::{Loaded, Results};
    use crate::lab::report::sample::measured;

    fn set(name: &str) -> Sample {
        let set = loopback()
            .iter()
            .find(|set| set.name() == name)
            .expect(name);
        Sample::new(name, &set.samples).unwrap()
    }

    #[test]
    fn the_documents_block_comes_out_of_its_samples() {
        let expected = "\
x iperf.rack.chd
+ iperf3.rack.chd
+--------------------------------------------------------------------------+
| x x                                                         +    +      +|
||A_|                                                                      |
|                                                            |_____MA_____||
+--------------------------------------------------------------------------+
    N           Min           Max        Median           Avg        Stddev
x   3          20.9            21          20.9     20.933333   0.057735027
+   3          23.4          23.9          23.6     23.633333    0.25166115
Difference at 95.0% confidence
	2.7 +/- 0.413822
	12.8981% +/- 1.99038%
	(Student's t, pooled s = 0.182574)
";
        let ours = block(&[set("iperf.rack.chd"), set("iperf3.rack.chd")]);
        assert_eq!(ours, expected, "\n{ours}");
    }

    /// All 85: verdicts, and the five numbers of each, as printed. Where the document printed a verdict only, the
    /// numbers are those recomputed from its samples by others.
    #[test]
    fn every_published_comparison_is_reproduced() {
        let mut numbers = 0;
        for published in comparisons() {
            let comparison = compare(&set(&published.reference), &set(&published.name)).unwrap();
            let label = format!("{} against {}", published.name, published.reference);
            assert_eq!(comparison.differs(), published.differs, "{label}");
            let said = verdict(&comparison);
            if let Some([difference, interval, percent, percent_interval, pooled]) =
                &published.printed
            {
                let expected = format!(
                    "Difference at 95.0% confidence\n\t{difference} +/- {interval}\n\t{percent}% +/- {percent_interval}%\n\
                     \t(Student's t, pooled s = {pooled})\n"
                );
                assert_eq!(said, expected, "{label}");
                numbers += 5;
            } else {
                assert_eq!(
                    said, "No difference proven at 95.0% confidence\n",
                    "{label}"
                );
            }
            let recomputed = [
                comparison.difference,
                comparison.interval,
                comparison.interval_percent,
            ]
            .map(|v| g(v, 6));
            assert_eq!(recomputed, published.recomputed, "{label}");
        }
        assert_eq!((comparisons().len(), numbers), (85, 36 * 5));
    }

    #[test]
    fn the_published_summaries_are_reproduced() {
        for published in loopback() {
            let sample = set(&published.name());
            let ours = [
                sample.min(),
                sample.max(),
                sample.median(),
                sample.mean(),
                sample.deviation(),
            ];
            assert_eq!(
                ours.map(|value| g(value, 8)),
                published.printed,
                "{}",
                published.name()
            );
        }
        assert_eq!(loopback().len(), 42);
    }

    #[test]
    fn equal_values_have_no_plot() {
        let flat = Sample::new("flat", &[5.0, 5.0, 5.0]).unwrap();
        assert!(block(&[flat.clone(), flat]).contains("[no plot, span is zero width]"));
    }

    #[test]
    fn loopback_runs_stand_beside_the_documents() {
        let mut results = Results::default();
        for (scheme, seed) in [
            ("kernel:cubic", 1),
            ("kernel:cubic", 2),
            ("reno", 1),
            ("pk3c", 1),
        ] {
            let mut run = measured("F1", scheme, seed, 37_900.0 + seed as f64);
            run.inputs.settings.loopback = true;
            results.runs.push(Loaded {
                path: "x.json".into(),
                run,
            });
        }
        let text = render(&Groups::of(&results));
        assert!(text.contains("+ F1.reno\n* F1.pk3c\n"), "{text}");
        let line = |name: &str| {
            text.lines()
                .rfind(|line| line.starts_with(name))
                .unwrap()
                .to_owned()
        };
        let mean = mean(set("iperf3.freebsd.cubic").values()).unwrap();
        assert!(
            line("kernel:cubic").contains(&format!("{mean:.2}")),
            "{text}"
        );
        assert!(
            line("reno").ends_with('%') && line("pk3c").ends_with('-'),
            "{text}"
        );
    }
}
