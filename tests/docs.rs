//! What the pages say of the repository is so: links lead somewhere, and the algorithm's constants are all there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const ALGORITHM: &str = "docs/algorithm.md";
/// Modules whose constants need not be there: formats, parameters, other algorithms.
const NO_FIGURES: [&str; 13] = [
    "agent", "bin", "cli", "exp", "params", "policy", "program", "record", "simulate", "spool",
    "stats", "units", "upstream",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below with this extension, but for what is built, and what belongs to others.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a folder that nobody changes").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "libccp" {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

/// The text of a page without its examples.
fn prose(page: &str) -> String {
    let mut is_code = false;
    page.lines()
        .filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        })
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// What stands in `](…)`.
fn links(page: &str) -> Vec<&str> {
    page.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
        .collect()
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then_some(c),
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let pages: BTreeMap<PathBuf, String> = files(root(), "md")
        .into_iter()
        .map(|path| {
            let text = prose(&fs::read_to_string(&path).unwrap());
            (path.canonicalize().unwrap(), text)
        })
        .collect();
    let mut broken = Vec::new();
    for (path, page) in &pages {
        for link in links(page) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Ok(path.clone()),
                file => path.parent().unwrap().join(file).canonicalize(),
            };
            let is_there = target.is_ok_and(|target| {
                let page = pages.get(&target).filter(|_| !heading.is_empty());
                page.is_none_or(|page| {
                    let mut headings = page.lines().filter(|line| line.starts_with('#'));
                    headings.any(|line| anchor(line) == heading)
                })
            });
            if !is_there {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(pages.len() > 10, "{}", pages.len());
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The names in backquotes.
fn names(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// Constants at the beginning of a line, and in no test.
fn constants(source: &str) -> impl Iterator<Item = String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().filter_map(|line| {
        let line = line.strip_prefix("pub(super) ").unwrap_or(line);
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let (name, _) = line.strip_prefix("const ")?.split_once(':')?;
        Some(name.to_owned())
    })
}

/// What the algorithm's page tells: modules and their constants.
fn told() -> BTreeSet<(String, String)> {
    let page = fs::read_to_string(root().join(ALGORITHM)).expect("the algorithm's page");
    let mut told = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, constants, _, _, modules, ..] = cells[..] else {
            continue;
        };
        for module in modules.split(", ").filter(|name| name.ends_with(".rs")) {
            told.extend(names(constants).map(|name| (module.to_owned(), name)));
        }
    }
    told
}

/// What the modules have.
fn found() -> BTreeSet<(String, String)> {
    let sources = root().join("src");
    let mut found = BTreeSet::new();
    for path in files(&sources, "rs") {
        let module = path.strip_prefix(&sources).expect("a file below it");
        let module = module.to_string_lossy();
        let source = fs::read_to_string(&path).expect("a source file");
        found.extend(constants(&source).map(|name| (module.to_string(), name)));
    }
    found
}

fn has_figures(module: &str) -> bool {
    let top = module.split(['/', '.']).next().unwrap_or_default();
    !NO_FIGURES.contains(&top) && !module.ends_with("tests.rs")
}

#[test]
fn the_algorithms_constants_are_those_of_its_page() {
    let (told, found) = (told(), found());
    let made_up: Vec<_> = told.difference(&found).collect();
    let unsaid = found.difference(&told);
    let unsaid: Vec<_> = unsaid.filter(|(module, _)| has_figures(module)).collect();
    assert!(told.len() > 200, "{}", told.len());
    assert!(made_up.is_empty(), "only {ALGORITHM} has {made_up:#?}");
    assert!(unsaid.is_empty(), "{ALGORITHM} lacks {unsaid:#?}");
}
