//! Writes what a figure's sweep gave: `<id>.csv`, `<id>.json`, `<id>.svg`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::file::Figure;
use super::outcome::{Origin, Outcome};
use super::plot;
use super::sweep::Point;
use crate::error::BenchError;

/// Makes the folder that all three go to, if there is none.
///
/// # Errors
/// [`BenchError::Output`].
pub fn make_folder(folder: &Path) -> Result<(), BenchError> {
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))
}

/// That something in the folder of `--out`, or the folder, cannot be written.
pub(super) fn failed(path: &Path, error: &std::io::Error) -> BenchError {
    BenchError::Output {
        path: path.to_owned(),
        reason: format!("{error}; --out takes a folder that can be written to"),
    }
}

/// Writes all three into a folder.
///
/// # Errors
/// [`BenchError::Output`].
pub fn write(figure: &Figure, is_quick: bool, outcome: &Outcome, folder: &Path) -> Result<(), BenchError> {
    let save = |extension: &str, text: String| {
        let path = folder.join(format!("{}.{extension}", figure.id));
        std::fs::write(&path, text).map_err(|error| failed(&path, &error))
    };
    save("csv", csv(&outcome.points))?;
    save("svg", plot::svg(figure, &outcome.points)?)?;
    // The last one: where it is whole, so are the others.
    save("json", json_text(figure, is_quick, outcome))
}

fn json_text(figure: &Figure, is_quick: bool, outcome: &Outcome) -> String {
    let axes: BTreeMap<&str, &str> = figure
        .series
        .iter()
        .map(|series| (series.name.as_str(), figure.x_label_of(series)))
        .collect();
    let all = json!({
        "id": figure.id,
        "title": figure.title,
        "source": figure.source,
        "setup": figure.setup,
        "x": figure.series.first().map_or("", |series| figure.x_label_of(series)),
        "axes": axes,
        "quick": is_quick,
        "origin": Origin::of(figure, is_quick),
        "verdicts": outcome.verdicts,
        "runs": outcome.points,
    });
    format!("{all:#}\n")
}

/// One line per run, one column per key of the reports.
fn csv(points: &[Point]) -> String {
    let rows: Vec<Vec<(String, String)>> = points
        .iter()
        .map(|point| {
            let mut cells = vec![
                ("series".to_owned(), point.series.clone()),
                ("x".to_owned(), point.x.to_string()),
            ];
            flatten("", &point.report, &mut cells);
            cells
        })
        .collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut text = columns.join(",") + "\n";
    for row in &rows {
        let cell = |column: &&str| {
            row.iter()
                .find(|(name, _)| name == column)
                .map_or("", |(_, value)| value.as_str())
        };
        text += &columns.iter().map(cell).collect::<Vec<_>>().join(",");
        text.push('\n');
    }
    text
}

fn flatten(prefix: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    let name = |part: &str| {
        if prefix.is_empty() {
            part.to_owned()
        } else {
            format!("{prefix}.{part}")
        }
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(part, value)| flatten(&name(part), value, cells)),
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                flatten(&name(&index.to_string()), value, cells);
            }
        }
        Value::String(text) => cells.push((prefix.to_owned(), text.clone())),
        other => cells.push((prefix.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_is_an_empty_cell() {
        let point = |x, report| Point {
            series: "s".to_owned(),
            x,
            report,
        };
        let points = [
            point(
                1.0,
                json!({"clients": 1, "per_op": {"reads": 1.5}, "nodes": [{"verbs_s": 2}]}),
            ),
            point(2.0, json!({"clients": 2, "nodes": [{"verbs_s": 3}], "lock": "cas"})),
        ];
        let text = csv(&points);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("series,x,clients,nodes.0.verbs_s,per_op.reads,lock"));
        assert_eq!(lines.next(), Some("s,1,1,2,1.5,"));
        assert_eq!(lines.next(), Some("s,2,2,3,,cas"));
    }
}
