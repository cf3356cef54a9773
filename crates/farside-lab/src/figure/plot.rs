//! Draws a figure as SVG: one panel above the other, lines over what is swept, or bars if
//! each series has one point only.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::file::{Figure, Panel};
use super::sweep::Point;
use crate::error::BenchError;
use crate::quantity::with_prefix;

const WIDTH: u32 = 760;
const PANEL_HEIGHT: u32 = 360;
/// Colours that people who see few colours tell apart (Okabe and Ito).
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// A line: its label, its points.
struct Line {
    label: String,
    points: Vec<(f64, f64)>,
}

/// The picture as text.
///
/// # Errors
/// [`BenchError::Figure`] if it cannot be drawn.
pub fn svg(figure: &Figure, points: &[Point]) -> Result<String, BenchError> {
    let mut text = String::new();
    draw(figure, points, &mut text).map_err(|error| BenchError::Figure {
        id: figure.id.clone(),
        reason: format!("cannot be drawn: {error}"),
    })?;
    Ok(text)
}

type DrawResult = Result<(), Box<dyn std::error::Error>>;

fn draw(figure: &Figure, points: &[Point], text: &mut String) -> DrawResult {
    let height = PANEL_HEIGHT * figure.panels.len() as u32;
    let area = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let rows = area.split_evenly((figure.panels.len(), 1));
    for (index, (panel, row)) in figure.panels.iter().zip(&rows).enumerate() {
        let (x_label, is_log) = figure.x_of(panel);
        let lines: Vec<Line> = figure
            .series
            .iter()
            .filter(|series| panel.shows(series))
            .map(|series| line(&series.name, &series.label, panel, points, is_log))
            .collect();
        let title = if index == 0 {
            format!("{} ({})", figure.title, figure.source)
        } else {
            String::new()
        };
        if lines.iter().all(|line| line.points.len() <= 1) {
            draw_bars(row, &title, panel, &lines)?;
        } else {
            draw_lines(row, &title, (x_label, is_log), panel, &lines)?;
        }
    }
    area.present()?;
    Ok(())
}

fn line(name: &str, label: &str, panel: &Panel, points: &[Point], is_log: bool) -> Line {
    let place = |x: f64| if is_log { x.log10() } else { x };
    let of_series = points.iter().filter(|point| point.series == name);
    Line {
        label: label.to_owned(),
        points: of_series
            .filter_map(|point| Some((place(point.x), point.number(&panel.key)?)))
            .collect(),
    }
}

fn highest(lines: &[Line]) -> f64 {
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    values.fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.1
}

fn draw_lines(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    (x_label, is_log): (&str, bool),
    panel: &Panel,
    lines: &[Line],
) -> DrawResult {
    let last = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.0)
        .fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..last * 1.02, 0.0..highest(lines))?;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc(panel.label.as_str())
        .x_label_formatter(&|x| short(if is_log { 10_f64.powf(*x) } else { *x }))
        .y_label_formatter(&|y| with_prefix(*y).trim_end().to_owned())
        .light_line_style(WHITE.mix(0.0))
        .draw()?;
    for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
        let color = *color;
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
            .label(line.label.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
        chart.draw_series(line.points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// A number at an axis, without the zeros behind the point.
fn short(value: f64) -> String {
    let text = with_prefix(value);
    let (digits, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let digits = match digits.split_once('.') {
        Some((whole, "0" | "00")) => whole,
        _ => digits,
    };
    format!("{digits} {prefix}").trim_end().to_owned()
}

fn draw_bars(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, panel: &Panel, lines: &[Line]) -> DrawResult {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..lines.len() as f64, 0.0..highest(lines))?;
    let label_at = |x: &f64| {
        let line = lines.get(*x as usize).filter(|_| (x.fract() - 0.5).abs() < 1e-6);
        line.map_or_else(String::new, |line| line.label.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(lines.len() * 2 + 1)
        .x_label_formatter(&label_at)
        .y_desc(panel.label.as_str())
        .y_label_formatter(&|y| with_prefix(*y).trim_end().to_owned())
        .light_line_style(WHITE.mix(0.0))
        .draw()?;
    for (index, (line, color)) in lines.iter().zip(COLORS.iter().cycle()).enumerate() {
        let (left, right) = (index as f64 + 0.25, index as f64 + 0.75);
        let bars = line
            .points
            .iter()
            .map(|&(_, value)| Rectangle::new([(left, 0.0), (right, value)], color.filled()));
        chart.draw_series(bars)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plot_names_its_axes_and_series() {
        let figure = super::super::by_id("cider-1").expect("a figure");
        let point = |x| Point {
            series: figure.series[0].name.clone(),
            x,
            report: json!({"throughput_ops_s": 1e6 * x, "per_op": {"retries": 0.5}}),
        };
        let text = svg(&figure, &[point(1.0), point(8.0), point(512.0)]).expect("a plot");
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        for part in [figure.panels[0].label.as_str(), &figure.series[0].label, "clients"] {
            assert!(text.contains(part), "{part}");
        }
        let bars = svg(&figure, &[point(8.0)]).expect("a plot");
        assert!(bars.contains("<rect"));
    }
}
