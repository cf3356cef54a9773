//! The page as text; `tests/it/page.rs` looks at it in a browser.

use super::*;
use crate::figure::by_id;
use crate::figure::claim;
use crate::figure::outcome::Outcome;
use crate::figure::sweep::Point;
use serde_json::json;

/// A figure whose texts are as unkind as texts can be.
fn hostile() -> Entry {
    let mut figure = by_id("shiftlock-retry").expect("a figure");
    figure.setup = "<img src=x onerror=alert(1)> & \"quotes\"".to_owned();
    figure.title = "</script><script>alert(2)</script>".to_owned();
    figure.panels[0].label = "<script>alert(4)</script>".to_owned();
    figure.series[0].label = "</script><script>alert(3)</script>".to_owned();
    figure.claims[0].text = "a < b".to_owned();
    let points: Vec<Point> = figure
        .series
        .iter()
        .map(|series| Point {
            series: series.name.clone(),
            x: figure.xs_of(series, true)[0],
            report: json!({"throughput_ops_s": 2e5, "retry_rate": 0.5}),
        })
        .collect();
    let verdicts = claim::judge(&figure, &points).expect("every claim finds its point");
    Entry {
        figure,
        result: Ok(Outcome { points, verdicts }),
    }
}

#[test]
fn texts_stay_texts() {
    let html = html(&[hostile()], true);
    for number in 1..=4 {
        assert!(!html.contains(&format!("<script>alert({number})")), "{number}");
    }
    assert!(!html.contains("<img"));
    assert!(html.contains("a &#60; b") || html.contains("a &lt; b"));
    // The script's data is read back as it was.
    let (_, rest) = html.split_once("id=\"charts\">").expect("the data");
    let (data, _) = rest.split_once("</script>").expect("its end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    let panel = &data["shiftlock-retry"]["panels"][0];
    assert_eq!(panel["series"][0]["label"], "</script><script>alert(3)</script>");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let html = html(&[hostile()], true);
    let library = first_script(&html[html.find("<script id=\"library\"").expect("the library")..]);
    assert!(library.contains("plotly.js v"), "with its licence");
    // What sets formulas has two megabytes.
    assert!(html.len() + 2_000_000 < plotly::Plot::offline_js_sources().len());
    // Plotly's own text names addresses; ours does not.
    let ours = html.replace(library, "");
    for address in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!ours.contains(address), "{address}");
    }
}

#[test]
fn every_claim_has_a_row_and_every_panel_a_place() {
    let entry = hostile();
    let html = html(&[entry, failed()], false);
    let figure = by_id("shiftlock-retry").expect("a figure");
    // Once in the table of all verdicts, once with its figure.
    assert_eq!(html.matches("<tr data-verdict=").count(), 2 * figure.claims.len());
    assert_eq!(html.matches("<div class=\"plot\"").count(), figure.panels.len());
    assert!(html.contains("<code>farside-lab figure shiftlock-retry</code>"));
}

fn failed() -> Entry {
    Entry {
        figure: by_id("cider-1").expect("a figure"),
        result: Err("there is no profile `cx9`".to_owned()),
    }
}

#[test]
fn a_figure_that_failed_is_named_with_the_reason() {
    let html = html(&[failed()], true);
    assert!(html.contains("Not measured: <a href=\"#cider-1\">cider-1</a>"));
    assert!(html.contains("there is no profile `cx9`"));
    assert!(html.contains("<code>farside-lab figure cider-1 --quick</code>"));
    assert!(!html.contains("<div class=\"plot\""));
}
