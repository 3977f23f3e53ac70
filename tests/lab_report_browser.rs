//! The page of `pk3c-ccp lab report --html` in a real browser: Chromium, headless, without a network.
//!
//! A harness page holds the report in a frame of a given width and measures it: whether anything is wider than the
//! frame, whether every figure is drawn and its text large enough to read, and how text contrasts with its background.
//! What pages write to the console comes from Chromium's log. The harness is shown a broken page, too: an instrument
//! that finds nothing proves nothing. Without Chromium (Debian: `chromium`) the tests say so and are skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::agent::PROGRAM;
use common::eventually;
use serde_json::{Value, json};

/// A page is measured within a second or two, also on a busy machine within that.
const LIMIT: Duration = Duration::from_secs(90);
/// Points of the smallest text that is read without effort on a phone.
const TEXT_MIN_PX: f64 = 10.0;
/// WCAG 2.2 §1.4.3, level AA.
const CONTRAST_MIN: f64 = 4.5;

/// Measures the frame and puts what it found into the document.
const HARNESS: &str = r#"<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" style="border:0;height:900px"></iframe><pre id="findings"></pre>
<script>
const page = PAGE;
const frame = document.getElementById('frame');
frame.width = WIDTH;
frame.onload = () => {
  const view = frame.contentWindow, doc = frame.contentDocument;
  const light = rgb => {
    const [r, g, b] = rgb.match(/[\d.]+/g).map(Number)
      .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = light(view.getComputedStyle(doc.body).backgroundColor);
  const contrast = rgb => {
    const l = light(rgb);
    return (Math.max(l, back) + 0.05) / (Math.min(l, back) + 0.05);
  };
  const figures = [...doc.querySelectorAll('svg')].map(svg => {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')];
    const scale = box.width / svg.viewBox.baseVal.width;
    const inside = texts.every(text => {
      const t = text.getBoundingClientRect();
      return t.left >= box.left - 1 && t.right <= box.right + 1 && t.top >= box.top - 1 && t.bottom <= box.bottom + 1;
    });
    const drawn = [...svg.querySelectorAll('path.line,circle,rect')].filter(shape => {
      const b = shape.getBBox();
      return (b.width > 0 || b.height > 0) && b.x >= 0 && b.y >= 0 && b.x + b.width <= 341 && b.y + b.height <= 217;
    }).length;
    return {
      title: svg.getAttribute('aria-label') || '', width: box.width, height: box.height, drawn, inside,
      text: Math.min(...texts.map(text => parseFloat(view.getComputedStyle(text).fontSize) * scale)),
      contrast: Math.min(...texts.map(text => contrast(view.getComputedStyle(text).fill))),
    };
  });
  document.getElementById('findings').textContent = JSON.stringify({
    inner: view.innerWidth, scroll: doc.documentElement.scrollWidth, figures,
    headings: [...doc.querySelectorAll('h1,h2')].map(heading => heading.textContent),
    tables: doc.querySelectorAll('table').length, scripts: doc.scripts.length,
    contrast: Math.min(...[...doc.querySelectorAll('p,td,th,figcaption,a,li')]
      .filter(one => !one.closest('.warn,.best')).map(one => contrast(view.getComputedStyle(one).color))),
    dark: back < 0.2,
  });
};
frame.srcdoc = page;
</script>"#;

/// What the harness found, and what the pages wrote to the console.
struct Shown {
    findings: Value,
    console: Vec<String>,
}

/// A folder that goes when the test ends, however it ends.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pk3c-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The browser's name; says that the test is skipped if there is none.
fn chromium(test: &str) -> Option<&'static str> {
    let there = |name: &&str| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    };
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(there);
    if found.is_none() {
        println!("SKIPPED {test}: no chromium (Debian: apt-get install chromium)");
    }
    found
}

/// Shows a page in a frame so many points wide.
fn show(browser: &str, place: &Path, page: &str, width: u32, dark: bool) -> Shown {
    // A closing tag within the text would end the script.
    let text = serde_json::to_string(page).unwrap().replace("</", "<\\/");
    let harness = HARNESS
        .replace("WIDTH", &width.to_string())
        .replace("PAGE", &text);
    let file = place.join("harness.html");
    fs::write(&file, harness).unwrap();
    let scheme = if dark { 0 } else { 1 };
    let (out, log) = (place.join("dom.html"), place.join("log"));
    let mut child = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ])
        .args([
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--window-size={},900", width.max(600)))
        .arg(format!(
            "--user-data-dir={}",
            place.join("profile").display()
        ))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut status = None;
    eventually(LIMIT, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let log = fs::read_to_string(log).unwrap();
    let dom = fs::read_to_string(out).unwrap();
    let found = dom
        .split_once("<pre id=\"findings\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let found = found.map(|(found, _)| {
        found
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&")
    });
    let findings = found.and_then(|found| serde_json::from_str(&found).ok());
    Shown {
        findings: findings
            .unwrap_or_else(|| panic!("the harness found nothing within {LIMIT:?}: {log}\n{dom}")),
        console: log
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .map(str::to_owned)
            .collect(),
    }
}

/// What is wrong with a page, in words.
fn faults(shown: &Shown) -> Vec<String> {
    let found = &shown.findings;
    let mut faults = shown.console.clone();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    if number(&found["scroll"]) > number(&found["inner"]) {
        faults.push(format!("{} wide in {}", found["scroll"], found["inner"]));
    }
    // A value that is no number is a fault, too.
    let least = |value: f64, least: f64| {
        !matches!(
            value.partial_cmp(&least),
            Some(std::cmp::Ordering::Greater | std::cmp::Ordering::Equal)
        )
    };
    if least(number(&found["contrast"]), CONTRAST_MIN) {
        faults.push(format!("text with a contrast of {}", found["contrast"]));
    }
    for figure in found["figures"].as_array().unwrap() {
        let title = &figure["title"];
        if least(number(&figure["width"]), 250.0) || least(number(&figure["height"]), 100.0) {
            faults.push(format!(
                "{title}: {} x {}",
                figure["width"], figure["height"]
            ));
        }
        if figure["drawn"] == 0 {
            faults.push(format!("{title}: nothing drawn"));
        }
        if figure["inside"] != true {
            faults.push(format!("{title}: text outside of the figure"));
        }
        if least(number(&figure["text"]), TEXT_MIN_PX) {
            faults.push(format!("{title}: text of {} px", figure["text"]));
        }
        if least(number(&figure["contrast"]), CONTRAST_MIN) {
            faults.push(format!("{title}: contrast {}", figure["contrast"]));
        }
        if title == "" {
            faults.push("a figure without a title".to_owned());
        }
    }
    faults
}

fn program(arguments: &[&str]) {
    let out = Command::new(PROGRAM).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{arguments:?}: {said}");
}

/// Results as the lab makes them, simulated; one of them void, one with names that are markup.
fn page(place: &Path) -> String {
    let results = place.join("results");
    let folder = results.to_str().unwrap();
    let suite = [
        "lab",
        "run",
        "E1",
        "B2-6",
        "P8",
        "V1-100",
        "--backend",
        "sim",
        "--quick",
        "--cc",
        "cubic,pk3c",
    ];
    program(&[&suite[..], &["--reps", "3", "--no-cache", "--out", folder]].concat());
    let change = |name: &str, change: &dyn Fn(&mut Value)| {
        let file = results.join(name);
        let mut result: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        change(&mut result);
        fs::write(&file, result.to_string()).unwrap();
    };
    change("P8-cubic-3.json", &|result| {
        result["void"] = json!("the emulator was 4 ms late <img src=x onerror=console.error(1)>");
    });
    change("E1-pk3c-1.json", &|result| {
        result["inputs"]["scheme"] = json!("</text><script>console.error('markup')</script>");
        result["conditions"]["revision"] = json!("r".repeat(400));
    });
    let page = place.join("report.html");
    program(&["lab", "report", folder, "--html", page.to_str().unwrap()]);
    fs::read_to_string(page).unwrap()
}

#[test]
fn the_page_is_drawn_at_every_width_in_both_colours() {
    let name = "the_page_is_drawn_at_every_width_in_both_colours";
    let Some(browser) = chromium(name) else {
        return;
    };
    let place = Place::new("page");
    let page = page(&place.0);
    let figures = page.matches("<svg").count();
    for (width, dark) in [(360, false), (360, true), (1200, false), (1200, true)] {
        let shown = show(browser, &place.0, &page, width, dark);
        assert_eq!(
            faults(&shown),
            Vec::<String>::new(),
            "{width} px, dark: {dark}"
        );
        let found = &shown.findings;
        assert_eq!(
            (&found["inner"], &found["dark"]),
            (&json!(width), &json!(dark))
        );
        assert_eq!(found["figures"].as_array().unwrap().len(), figures);
        assert_eq!(found["scripts"], 0);
        let titles: Vec<_> = found["figures"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["title"].as_str())
            .collect();
        for wanted in [
            "Throughput against delay.",
            "Distribution of delay.",
            "Completion times.",
            "Fairness.",
            "cubic: throughput over time.",
            "pk3c: delay over time.",
        ] {
            assert!(titles.contains(&wanted), "{wanted} is missing: {titles:?}");
        }
        let headings = found["headings"].to_string();
        assert!(
            headings.contains("Conditions") && headings.contains("Void runs"),
            "{headings}"
        );
    }
    assert!(page.contains("the emulator was 4 ms late"));
}

#[test]
fn the_browser_finds_what_is_broken() {
    let name = "the_browser_finds_what_is_broken";
    let Some(browser) = chromium(name) else {
        return;
    };
    let place = Place::new("broken");
    let broken = "<!doctype html><body style='background:#fff;color:#bbb'><p style='width:900px'>pale</p>\
         <svg viewBox='0 0 340 216' style='width:340px;height:216px'><text x='330' y='20' font-size='6'>too far out</text></svg>\
         <script>console.error('broken');nowhere()</script>";
    let faults = faults(&show(browser, &place.0, broken, 360, false)).join("\n");
    for fault in [
        "\"broken\"",
        "nowhere is not defined",
        "wide in 360",
        "contrast of",
        "nothing drawn",
        "outside",
        "text of 6 px",
        "without a title",
    ] {
        assert!(faults.contains(fault), "{fault} was not found: {faults}");
    }
}
