//! `farside-lab report`: every figure on one page, which a browser shows without a network.
//!
//! A figure whose result is in the folder already is not run again, so that a report that was interrupted goes on
//! where it was. A figure that fails does not stop the others: the page names it, and the report says so at its end.

use core::fmt;
use std::path::{Path, PathBuf};

use super::file::Figure;
use super::outcome::Outcome;
use super::variation::Variation;
use super::{FIGURES, by_id, measure, output, page, tables};
use crate::error::BenchError;
use crate::side_by_side::{on_all_cores, on_cores};
use crate::stage::Prepared;

/// A figure of the report: what came out, or what went wrong.
#[derive(Debug)]
pub struct Entry {
    /// The figure.
    pub figure: Figure,
    /// Its runs and verdicts, or why there are none.
    pub result: Result<Outcome, String>,
}

/// What became of a report.
#[derive(Debug)]
pub struct Written {
    /// The page.
    pub path: PathBuf,
    /// How many figures failed.
    pub failures: usize,
    /// The figures.
    pub entries: Vec<Entry>,
}

/// Runs what has not been run yet of the named figures, or of all if none is named, and writes `report.html`: first what is
/// simulated, on all cores, then what is measured on this machine, alone. `say` is given a line for each figure when it is there.
///
/// # Errors
/// An unknown name, or a folder that cannot be written. A figure that fails is no error, nor is a claim that is missed.
///
/// # Panics
/// If a figure does.
pub fn run(
    ids: &[String],
    is_quick: bool,
    folder: &Path,
    mut say: impl FnMut(&str) + Send,
) -> Result<Written, BenchError> {
    let entries = run_all(chosen(ids)?, is_quick, folder, &mut say)?;
    let path = folder.join("report.html");
    std::fs::write(&path, page::html(&entries, is_quick)).map_err(|error| output::failed(&path, &error))?;
    let failures = entries.iter().filter(|entry| entry.result.is_err()).count();
    Ok(Written {
        path,
        failures,
        entries,
    })
}

/// Runs those of some figures that have not been run yet, and returns all of them in their order.
fn run_all(
    figures: Vec<Figure>,
    is_quick: bool,
    folder: &Path,
    mut say: impl FnMut(&str) + Send,
) -> Result<Vec<Entry>, BenchError> {
    output::make_folder(folder)?;
    let count = figures.len();
    let mut done = 0;
    let mut tell = |(_, is_stored, entry): &(usize, bool, Entry)| {
        done += 1;
        say(&format!("[{done}/{count}] {}", line(entry, *is_stored)));
    };
    let work = |(place, figure): (usize, Figure), memory: &mut Option<Prepared>| {
        let stored = Outcome::stored(&figure, is_quick, folder);
        let is_stored = stored.is_some();
        let result = match stored {
            Some(outcome) => Ok(outcome),
            None => measure(&figure, is_quick, memory, folder).map_err(|error| error.to_string()),
        };
        (place, is_stored, Entry { figure, result })
    };
    let (on_this_machine, simulated) = (0..)
        .zip(figures)
        .partition(|(_, figure)| measures_this_machine(figure));
    let mut found = on_all_cores(simulated, work, &mut tell);
    found.extend(on_cores(1, on_this_machine, work, &mut tell));
    found.sort_unstable_by_key(|(place, ..)| *place);
    Ok(found.into_iter().map(|(.., entry)| entry).collect())
}

/// What became of the claims with numbers that nothing was chosen by.
#[derive(Debug)]
pub struct HeldOut {
    /// How many claims there are.
    pub claims: usize,
    /// Those that are judged otherwise than with the numbers of the files, each a line.
    pub differ: Vec<String>,
}

impl fmt::Display for HeldOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = self.claims - self.differ.len();
        write!(f, "held out: {same} of {} claims are judged the same", self.claims)?;
        self.differ.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// Runs those figures of a report that are simulated once more, with [other numbers](Variation::held_out), whose results go into a
/// folder of their own; compares the verdicts. `say` is given a line for each figure when it is there.
///
/// # Errors
/// A folder that cannot be written, or a figure that fails.
///
/// # Panics
/// If a figure does.
pub fn held_out(
    mut entries: Vec<Entry>,
    is_quick: bool,
    folder: &Path,
    mut say: impl FnMut(&str) + Send,
) -> Result<HeldOut, BenchError> {
    entries.retain(|entry| !measures_this_machine(&entry.figure));
    let mut figures: Vec<Figure> = entries.iter().map(|entry| entry.figure.clone()).collect();
    for figure in &mut figures {
        figure.variation = Variation::held_out();
    }
    let varied = run_all(figures, is_quick, &folder.join("held-out"), &mut say)?;
    let (mut claims, mut differ) = (0, Vec::new());
    for (one, other) in entries.into_iter().zip(varied) {
        let id = one.figure.id;
        let failed = |reason| BenchError::Figure { id: id.clone(), reason };
        let (one, other) = (one.result.map_err(failed)?, other.result.map_err(failed)?);
        claims += one.verdicts.len();
        let pairs = one.verdicts.iter().zip(&other.verdicts);
        differ.extend(
            pairs
                .filter(|(one, other)| one.is_ok != other.is_ok)
                .map(|(one, other)| format!("{one}\n  held out: {other}")),
        );
    }
    Ok(HeldOut { claims, differ })
}

/// Whether a figure has a series that is no simulation.
fn measures_this_machine(figure: &Figure) -> bool {
    figure.series.iter().any(|series| series.bank.is_some())
}

/// Writes the tables of a document anew, of all figures that have been run in full with their results in `folder`; returns
/// how many.
///
/// # Errors
/// If the document cannot be read or written, or something in it is no table.
pub fn write_tables(document: &Path, folder: &Path) -> Result<usize, BenchError> {
    let failed = |reason: String| BenchError::Argument(format!("{}: {reason}", document.display()));
    let text = std::fs::read_to_string(document).map_err(|error| failed(error.to_string()))?;
    let found = |figure: &Figure| Outcome::stored(figure, false, folder).map(|outcome| outcome.verdicts);
    let (text, count) = tables::fill(&text, found).map_err(failed)?;
    std::fs::write(document, text).map_err(|error| failed(error.to_string()))?;
    Ok(count)
}

/// The named figures, each once; all of them if none is named.
fn chosen(ids: &[String]) -> Result<Vec<Figure>, BenchError> {
    if ids.is_empty() {
        return FIGURES.iter().map(|(id, _)| by_id(id)).collect();
    }
    let mut figures: Vec<Figure> = Vec::new();
    for id in ids {
        let figure = by_id(id)?;
        if figures.iter().all(|known| known.id != figure.id) {
            figures.push(figure);
        }
    }
    Ok(figures)
}

/// One figure and its verdicts, in the order of its claims.
fn line(entry: &Entry, is_stored: bool) -> String {
    let id = &entry.figure.id;
    match &entry.result {
        Err(reason) => format!("{id:16} failed: {reason}"),
        Ok(outcome) => {
            let verdicts = outcome.verdicts.iter();
            let words: Vec<&str> = verdicts
                .map(|verdict| if verdict.is_ok { "ok" } else { "missed" })
                .collect();
            let remark = if is_stored { " [of an earlier run]" } else { "" };
            let (held, count) = (outcome.held(), words.len());
            format!("{id:16} {held} of {count} claims hold: {}{remark}", words.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_chosen_once_each_and_all_if_none_is_named() {
        let ids = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        assert_eq!(chosen(&[]).expect("all").len(), FIGURES.len());
        let twice = chosen(&ids(&["cider-1", "shiftlock-retry", "cider-1"])).expect("known");
        let twice: Vec<&str> = twice.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(twice, ["cider-1", "shiftlock-retry"]);
        let error = chosen(&ids(&["cider-1", "cider-99"])).expect_err("no such figure");
        assert!(error.to_string().contains("`cider-99`"), "{error}");
    }

    #[test]
    fn an_interrupted_report_goes_on_and_a_failure_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let ids = ["shiftlock-retry".to_owned()];
        let report = |expected: &str| {
            let mut lines = Vec::new();
            let written = run(&ids, true, folder.path(), |line| lines.push(line.to_owned())).expect("writable");
            assert_eq!(lines.len(), 1);
            assert!(lines[0].contains(expected), "{}", lines[0]);
            written
        };
        let first = report("claims hold: ok");
        assert_eq!((first.failures, first.path.exists()), (0, true));
        report("[of an earlier run]");

        // Whatever cannot be read is no result, and where nothing can be written the figure fails.
        let path = folder.path().join("shiftlock-retry.json");
        std::fs::remove_file(&path).expect("it was written");
        std::fs::create_dir(&path).expect("writable");
        let second = report("failed: ");
        assert_eq!(second.failures, 1);
        let html = std::fs::read_to_string(&second.path).expect("a page");
        assert!(html.contains("shiftlock-retry.json"), "the page says what went wrong");
    }
}
