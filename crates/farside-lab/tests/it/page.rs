//! The report in a browser: what a reader sees is there, in light and dark and on a phone.
//!
//! `page/look.cjs` drives Debian's Chromium through playwright-core; `./test` installs both (`scripts/setup.bash`), and
//! without them these tests fail. Screenshots go to `out/report-*.png`, for people to look at.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farside_lab::figure::claim::{Measure, judge};
use farside_lab::figure::file::{Figure, Panel};
use farside_lab::figure::outcome::Outcome;
use farside_lab::figure::report::{self, Entry};
use farside_lab::figure::sweep::Point;
use farside_lab::figure::{by_id, list, page};
use serde_json::{Map, Value, json};

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Shows a page to the browser; `figures` are those with plots.
fn look(page: &Path, name: &str, figures: &[Figure]) {
    let libraries = project().join("target/clients/node/node_modules");
    assert!(
        libraries.join("playwright-core").exists(),
        "playwright-core is missing: run ./test once, it installs it"
    );
    let browser = std::env::var_os("FARSIDE_BROWSER").map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    assert!(
        browser.exists(),
        "{} is missing: run ./test once, it installs Chromium, or name another with FARSIDE_BROWSER",
        browser.display()
    );
    let screenshots = project().join("out");
    std::fs::create_dir_all(&screenshots).expect("writable");
    let series = figures.iter().map(|figure| {
        let shown = |panel: &Panel| figure.series.iter().filter(|series| panel.shows(series)).count();
        let counts: Vec<usize> = figure.panels.iter().map(shown).collect();
        (figure.id.clone(), json!(counts))
    });
    let expected = json!({
        "claims": figures.iter().map(|figure| figure.claims.len()).sum::<usize>(),
        "figures": Value::Object(series.collect()),
        "isShort": figures.len() == 1,
    });
    let output = Command::new("node")
        .arg(project().join("crates/farside-lab/tests/it/page/look.cjs"))
        .arg(page)
        .arg(screenshots.join(format!("report-{name}")))
        .arg(expected.to_string())
        .env("NODE_PATH", libraries)
        .env("FARSIDE_BROWSER", browser)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("node cannot be run ({error}): run ./test once, it installs it"));
    let [said, complained] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{name}: {complained}");
    assert!(said.ends_with("done\n"), "{name} ended early: {said}{complained}");
}

#[test]
fn a_measured_figure_can_be_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let ids = ["shiftlock-retry".to_owned()];
    let written = report::run(&ids, true, folder.path(), |_| {}).expect("the smallest figure");
    assert_eq!(written.failures, 0);
    look(&written.path, "quick", &[by_id(&ids[0]).expect("a figure")]);
}

/// Every figure there is, with numbers that nobody measured: what is looked at is the page.
#[test]
fn every_figure_can_be_seen() {
    let figures: Vec<Figure> = list().iter().map(|(id, _)| by_id(id).expect("a figure")).collect();
    let entries: Vec<Entry> = figures.iter().map(|figure| invented(figure.clone())).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.html");
    std::fs::write(&path, page::html(&entries, false)).expect("writable");
    look(&path, "all", &figures);
}

/// A figure with invented numbers under every key that it speaks of.
fn invented(figure: Figure) -> Entry {
    let mut keys: Vec<&str> = figure.panels.iter().map(|panel| panel.key.as_str()).collect();
    keys.extend(figure.claims.iter().flat_map(|claim| keys_of(&claim.measure)));
    let mut points = Vec::new();
    for (number, series) in (1..).zip(&figure.series) {
        for x in figure.xs_of(series, false) {
            let value = 1e6 * f64::from(number) * (1.0 + x.max(0.0)).ln().mul_add(0.3, 1.0);
            let mut report = Value::Object(Map::new());
            for key in &keys {
                set(&mut report, key, value);
            }
            points.push(Point {
                series: series.name.clone(),
                x,
                report,
            });
        }
    }
    let verdicts = judge(&figure, &points).expect("every claim finds its numbers");
    Entry {
        figure,
        result: Ok(Outcome { points, verdicts }),
    }
}

/// The key of a claim, and the one below the line.
fn keys_of(measure: &Measure) -> Vec<&str> {
    match measure {
        Measure::Value { key, per, .. } | Measure::Highest { key, per, .. } => {
            [key].into_iter().chain(per).map(String::as_str).collect()
        }
        Measure::PeakAt { key, .. }
        | Measure::Fall { key, .. }
        | Measure::Quotient { key, .. }
        | Measure::UpTo { key, .. }
        | Measure::Recovery { key, .. }
        | Measure::Against { key, .. } => vec![key],
    }
}

/// Sets a number of a report; parts of the key are joined with dots.
fn set(report: &mut Value, key: &str, value: f64) {
    let mut place = report;
    for part in key.split('.') {
        place = &mut place[part];
    }
    *place = json!(value);
}
