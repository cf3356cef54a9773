//! The numbers of a figure as `templates/report.js` draws them: per panel its lines, or bars where few values are swept,
//! and where a claim is about a single point, the paper's value beside ours.

use serde_json::{Value, json};

use super::palette::Palette;
use crate::figure::claim::{Claim, Measure};
use crate::figure::file::{Figure, Panel, Series};
use crate::figure::outcome::Outcome;
use crate::figure::sweep::Point;

/// Up to so many values of what is swept, bars are easier to compare than lines.
const BAR_GROUPS: usize = 3;
/// Where the largest value is so many times the median, most lines would lie on the axis.
const WIDE: f64 = 30.0;

/// How a panel is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// One bar for each series, which has one point only.
    Bars,
    /// For each value that is swept, a bar for each series.
    Groups,
    /// Lines over what is swept.
    Lines,
}

/// The points of one line of a panel.
pub(super) struct Line<'a> {
    pub(super) series: &'a Series,
    pub(super) points: Vec<(f64, f64)>,
}

/// The lines of a panel; a series without a number for its key is none.
pub(super) fn lines<'a>(figure: &'a Figure, panel: &Panel, points: &[Point]) -> Vec<Line<'a>> {
    let shown = figure.series.iter().filter(|series| panel.shows(series));
    let line = |series: &'a Series| {
        let of_series = points.iter().filter(|point| point.series == series.name);
        Line {
            series,
            points: of_series
                .filter_map(|point| Some((point.x, point.number(&panel.key)?)))
                .collect(),
        }
    };
    shown.map(line).filter(|line| !line.points.is_empty()).collect()
}

/// How these lines are drawn.
pub(super) fn form(lines: &[Line<'_>]) -> Form {
    if lines.iter().all(|line| line.points.len() <= 1) {
        Form::Bars
    } else if xs(lines).len() <= BAR_GROUPS {
        Form::Groups
    } else {
        Form::Lines
    }
}

/// Every value that is swept in one of these lines, least first.
pub(super) fn xs(lines: &[Line<'_>]) -> Vec<f64> {
    let mut xs: Vec<f64> = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.0)
        .collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

/// Whether equal factors should be equally far apart at first: else one line would press all others onto the axis.
fn is_wide(lines: &[Line<'_>]) -> bool {
    let mut values: Vec<f64> = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.1)
        .collect();
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return false;
    };
    form(lines) != Form::Bars && *least > 0.0 && *most > WIDE * values[values.len() / 2]
}

/// Everything that is drawn of a figure.
pub(super) fn of(figure: &Figure, outcome: &Outcome, palette: &Palette) -> Value {
    let panels = figure.panels.iter().map(|panel| {
        let lines = lines(figure, panel, &outcome.points);
        let form = match form(&lines) {
            Form::Bars => "bars",
            Form::Groups => "groups",
            Form::Lines => "lines",
        };
        let series: Vec<Value> = lines
            .iter()
            .map(|line| {
                let (xs, ys): (Vec<f64>, Vec<f64>) = line.points.iter().copied().unzip();
                json!({
                    "name": line.series.name,
                    "label": line.series.label,
                    "slot": palette.slot(figure, &line.series.label),
                    "x": xs,
                    "y": ys,
                })
            })
            .collect();
        let published = |claim: &Claim| published(claim, panel, &lines);
        let published: Vec<Value> = figure.claims.iter().filter_map(published).collect();
        let (x, x_log) = figure.x_of(panel);
        json!({
            "form": form,
            "x": x,
            "x_log": x_log,
            "log": is_wide(&lines),
            "series": series,
            "published": published,
        })
    });
    json!({
        "panels": panels.collect::<Vec<_>>(),
    })
}

/// The paper's value of a claim about one point, in the unit of the panel.
fn published(claim: &Claim, panel: &Panel, lines: &[Line<'_>]) -> Option<Value> {
    let Measure::Value {
        series,
        x,
        key,
        scale,
        per: None,
    } = &claim.measure
    else {
        return None;
    };
    let line = lines.iter().find(|line| line.series.name == *series)?;
    // A panel may show the key of a claim in another unit; then the two are not the same number.
    if *key != panel.key {
        return None;
    }
    Some(json!({
        "series": series,
        "label": line.series.label,
        "x": x,
        "y": claim.paper? / scale,
        "text": claim.text,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::by_id;

    fn outcome(figure: &Figure, xs: &[f64]) -> Outcome {
        let point = |series: &Series, x: f64| Point {
            series: series.name.clone(),
            x,
            report: json!({"per_op": {"atomics": 2.0 * x}}),
        };
        let points = figure
            .series
            .iter()
            .flat_map(|series| xs.iter().map(move |&x| point(series, x)));
        Outcome {
            points: points.collect(),
            verdicts: Vec::new(),
        }
    }

    #[test]
    fn few_values_are_bars_and_many_are_lines() {
        let figure = by_id("shiftlock-6").expect("a figure");
        let panel = &figure.panels[0];
        for (xs, wanted) in [
            (&[0.5][..], Form::Bars),
            (&[0.5, 0.95], Form::Groups),
            (&[0.0, 0.5, 0.95, 1.0], Form::Lines),
        ] {
            let outcome = outcome(&figure, xs);
            assert_eq!(form(&lines(&figure, panel, &outcome.points)), wanted, "{xs:?}");
        }
    }

    #[test]
    fn one_line_far_above_the_others_asks_for_a_logarithm() {
        let figure = by_id("shiftlock-7").expect("a figure");
        let line = |value: f64| Line {
            series: &figure.series[0],
            points: vec![(1.0, value), (2.0, value)],
        };
        assert!(is_wide(&[line(1.0), line(2.0), line(90.0)]));
        assert!(!is_wide(&[line(1.0), line(2.0), line(40.0)]));
        assert!(!is_wide(&[line(0.0), line(2.0), line(90.0)]), "zero has no logarithm");
        assert!(!is_wide(&[]));
    }

    #[test]
    fn a_claim_about_a_point_brings_the_published_value() {
        let figure = by_id("shiftlock-6").expect("a figure");
        let palette = Palette::for_figures(&[&figure]);
        let chart = of(&figure, &outcome(&figure, &[0.5, 0.95]), &palette);
        let atomics = &chart["panels"][0];
        assert_eq!(atomics["series"][0]["y"], json!([1.0, 1.9]));
        let published = atomics["published"].as_array().expect("a list");
        let shiftlock = published.iter().find(|value| value["series"] == "shiftlock");
        let shiftlock = shiftlock.expect("figure 6 says how many atomics a cycle takes");
        assert_eq!((&shiftlock["x"], &shiftlock["y"]), (&json!(0.5), &json!(2.01)));
        assert_eq!(atomics["log"], false);
        // There was no number for READs.
        assert_eq!(chart["panels"][1]["series"], json!([]));
        assert_eq!(chart["panels"][1]["published"], json!([]));
    }
}
