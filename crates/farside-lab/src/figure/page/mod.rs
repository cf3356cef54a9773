//! The page of a report: HTML that a person can read without the papers.
//!
//! One file with everything in it: text and tables (the template `templates/report.html`, which escapes what it is
//! given), the numbers as JSON, a style sheet, a script, and plotly.js, which draws. No request leaves the page, and its
//! content security policy would forbid one. Without scripts the tables stay.
//!
//! Nothing here knows a figure by name: panels, series, axis and claims are shown as they come.

mod chart;
mod gauge;
mod glossary;
mod palette;
mod section;

use askama::Template;
use farside_fabric::sim::Profile;
use serde_json::Value;

use super::file::Figure;
use super::report::Entry;
use glossary::{Glossary, Term};
use palette::Palette;
use section::{Section, readable};

/// Everything that the template shows.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    version: &'static str,
    is_quick: bool,
    profiles: Vec<Card>,
    sections: Vec<Section<'a>>,
    terms: &'a [Term],
    charts: Value,
    style: &'static str,
    script: &'static str,
    library: &'a str,
}

/// A NIC profile in numbers that its makers and papers publish.
struct Card {
    name: String,
    about: &'static str,
    verbs_s: String,
    address_s: String,
    wire_us: f64,
    gbit_s: u64,
    units: u32,
}

impl Page<'_> {
    fn claims(&self) -> usize {
        self.sections.iter().map(|section| section.claims.len()).sum()
    }

    fn held(&self) -> usize {
        self.sections.iter().map(Section::held).sum()
    }

    fn failures(&self) -> impl Iterator<Item = &Section<'_>> {
        self.sections.iter().filter(|section| section.failure.is_some())
    }
}

/// The page as text.
///
/// # Panics
/// If the template cannot be filled in, which it can whatever the figures are.
#[must_use]
pub fn html(entries: &[Entry], is_quick: bool) -> String {
    let glossary = Glossary::of_the_project();
    let figures: Vec<&Figure> = entries.iter().map(|entry| &entry.figure).collect();
    let palette = Palette::for_figures(&figures);
    let sections = entries.iter().map(|entry| Section::new(entry, is_quick, &glossary));
    let charts = entries.iter().filter_map(|entry| {
        let outcome = entry.result.as_ref().ok()?;
        let chart = chart::of(&entry.figure, outcome, &palette);
        Some((entry.figure.id.clone(), chart))
    });
    let scripts = plotly::Plot::offline_js_sources();
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        is_quick,
        profiles: cards(entries),
        sections: sections.collect(),
        terms: glossary.terms(),
        charts: Value::Object(charts.collect()),
        style: include_str!("../../../templates/report.css"),
        script: include_str!("../../../templates/report.js"),
        library: first_script(&scripts),
    };
    page.render().expect("it is written to memory, from plain text")
}

/// What stands in the first of several script elements: plotly.js. The one behind it sets formulas, of which we have none.
fn first_script(elements: &str) -> &str {
    let (_, script) = elements.split_once('>').expect("it begins with a script element");
    let (script, _) = script.split_once("</script>").expect("the element ends");
    script
}

/// The profiles that the figures use, oldest NIC first.
fn cards(entries: &[Entry]) -> Vec<Card> {
    let is_used = |profile: &Profile| {
        let mut series = entries.iter().flat_map(|entry| &entry.figure.series);
        series.any(|series| series.profile == profile.name)
    };
    let card = |profile: Profile| Card {
        about: match profile.name.as_str() {
            "cx4" => "ConnectX-4, 100 Gbit/s",
            "cx5" => "ConnectX-5, 100 Gbit/s",
            "cx6" => "ConnectX-6, 100 Gbit/s",
            _ => "",
        },
        verbs_s: readable(1e9 * f64::from(profile.units) / profile.unit_ns as f64),
        address_s: readable(1e9 / profile.address_ns as f64),
        wire_us: profile.wire_ns as f64 / 1000.0,
        // One byte per microsecond is 8 kbit/s.
        gbit_s: profile.bytes_per_us * 8 / 1000,
        units: profile.units,
        name: profile.name,
    };
    Profile::all().into_iter().filter(is_used).map(card).collect()
}

#[cfg(test)]
mod tests;
