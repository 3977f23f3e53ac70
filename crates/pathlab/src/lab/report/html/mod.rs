//! The report as a page of HTML that needs nothing else: no network, no scripts.
//!
//! It is dark or light as the reader's screen is, light in print, and made of small figures that stand side by side on
//! a wide screen and below each other on a phone. What a figure shows stands in its caption; every line and bar has a
//! title. All names come from files, and are escaped.

mod figure;
mod over_time;
mod scenario;
mod style;
mod tables;

use std::fmt::Write;

use super::group::{Groups, facts};
use super::read::Results;
use crate::chart::{colour, escaped};

/// The page.
pub fn render(results: &Results, groups: &Groups<'_>) -> String {
    let colours = Colours::of(groups);
    let mut body = String::new();
    let scenarios: Vec<_> = groups.scenarios().collect();
    let (runs, void) = (results.runs.len(), groups.void().count());
    let _ = write!(
        body,
        "<header><h1>Path lab: report</h1>\n<p>{}, {}, {} that count, {void} void. {}</p>\n",
        counted(scenarios.len(), "scenario"),
        counted(colours.0.len(), "scheme"),
        counted(runs - void, "run"),
        escaped(&tables::span(results))
    );
    body += &tables::warnings(results);
    body += "<nav aria-label=\"Scenarios\"><ul>\n";
    for (index, scenario) in scenarios.iter().enumerate() {
        let id = escaped(scenario[0].scenario);
        let _ = writeln!(body, "<li><a href=\"#s{index}\">{id}</a></li>");
    }
    body += "<li><a href=\"#conditions\">conditions</a></li>";
    body += "<li><a href=\"#void\">void runs</a></li></ul></nav></header>\n<main>\n";
    body += &tables::legend(groups);
    for (index, scenario) in scenarios.iter().enumerate() {
        let Some(run) = scenario[0].any() else {
            continue;
        };
        let title = run.inputs.title.as_deref().unwrap_or_default();
        let _ = write!(
            body,
            "<section aria-labelledby=\"s{index}\">\n<h2 id=\"s{index}\">{} <small>{}</small></h2>\n<p>{}</p>\n",
            escaped(scenario[0].scenario),
            escaped(title),
            escaped(&facts(run))
        );
        if let Some(source) = &run.inputs.source {
            let _ = writeln!(body, "<p>From: {}</p>", escaped(source));
        }
        body += &tables::scores(scenario);
        body += &scenario::figures(scenario, &colours);
        body += "</section>\n";
    }
    body += &tables::conditions(results);
    body += &tables::void(groups);
    body += "</main>\n";
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>Path lab: report</title>\n<style>{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        style::STYLE
    )
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// A colour for each scheme, the same on the whole page.
struct Colours<'a>(Vec<&'a str>);

impl<'a> Colours<'a> {
    fn of(groups: &Groups<'a>) -> Self {
        let mut schemes: Vec<_> = groups.0.iter().map(|group| group.scheme).collect();
        schemes.sort_unstable();
        schemes.dedup();
        Self(schemes)
    }

    /// Grey for what is not under test anywhere.
    fn get(&self, scheme: &str) -> String {
        let at = self.0.iter().position(|other| *other == scheme);
        at.map_or("#7d8793".to_owned(), |index| colour(index, self.0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::read::Loaded;
    use crate::lab::report::sample::measured;

    #[test]
    fn names_cannot_add_markup_and_nothing_comes_from_elsewhere() {
        let mut results = Results::default();
        for (scheme, void) in [("<script>alert(1)</script>", false), ("cubic", true)] {
            let mut run = measured("P1\"><img src=x>", scheme, 1, 40.0);
            run.void = void.then(|| "<blink>late".into());
            run.inputs.title = Some("</h2><i>".into());
            run.inputs.source = Some("<u>".into());
            run.inputs.path = "<s>".into();
            run.conditions.kernel = "<em>".into();
            run.conditions.revision = "<tt>".into();
            run.conditions.sysctls.insert("<q>".into(), "<p>".into());
            results.runs.push(Loaded {
                path: "<a>.json".into(),
                run,
            });
        }
        results.unreadable.push(("<x>.json".into(), "<y>".into()));
        let page = render(&results, &Groups::of(&results));
        for tag in [
            "<script", "<img", "<blink>", "<i>", "<u>", "<s>", "<em>", "<tt>", "<q>", "<a>.json",
            "<x>", "<y>",
        ] {
            assert!(!page.contains(tag), "{tag} in\n{page}");
        }
        for outside in [
            "http:",
            "https:",
            "url(",
            "@import",
            " src=\"",
            "<link rel=\"style",
        ] {
            let found = page
                .replace("http://www.w3.org/2000/svg", "")
                .contains(outside);
            assert!(!found, "{outside} in\n{page}");
        }
        assert!(page.contains("prefers-color-scheme:dark") && page.contains("@media print"));
    }
}
