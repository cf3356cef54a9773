//! The tables of a document: what the last full run of each figure has found, and whether the document still says so.
//!
//! A table stands between two comments, of which the first says which figure it is of and what it was made from:
//!
//! ```text
//! <!-- figure shiftlock-4 file=0123456789abcdef table=0123456789abcdef -->
//! ...
//! <!-- end -->
//! ```
//!
//! `file` is a hash of the figure's file without its comments, and of the NICs that it names; `table` one of what stands between the
//! comments. So a figure or NIC that has changed since, and a table that was changed by hand, are noticed without a run.

use core::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_64;

use super::claim::{Verdict, short};
use super::file::Figure;
use super::outcome::nics_of;
use super::{by_id, text_of};

const BEGIN: &str = "<!-- figure ";
const END: &str = "<!-- end -->";
/// How long the lines of a list are at most.
const LINE_MAX: usize = 125;

/// A table in a document.
struct Block<'a> {
    id: &'a str,
    /// What else the first comment says.
    marks: &'a str,
    body: &'a str,
}

/// Writes the tables of a document anew, each from the verdicts that `found` has for its figure; one without any stays as
/// it is. Returns the document, and how many tables were written.
///
/// # Errors
/// In words, if a comment is not as it should be, or names no figure.
pub fn fill(document: &str, found: impl Fn(&Figure) -> Option<Vec<Verdict>>) -> Result<(String, usize), String> {
    let (mut text, mut count) = (String::new(), 0);
    parts(document, |before, block| {
        text.push_str(before);
        let Some(block) = block else { return Ok(()) };
        let figure = by_id(block.id).map_err(|error| error.to_string())?;
        let Some(verdicts) = found(&figure) else {
            let _ = write!(text, "{BEGIN}{}{} -->{}{END}", block.id, block.marks, block.body);
            return Ok(());
        };
        count += 1;
        let body = table(&figure, &verdicts);
        let [file, table] = [file_hash(&figure), hash(&body)];
        let _ = write!(text, "{BEGIN}{} file={file} table={table} -->{body}{END}", figure.id);
        Ok(())
    })?;
    Ok((text, count))
}

/// What is not as the last run of each figure has left it, one line for each table; nothing, if all is well.
///
/// # Errors
/// As [`fill`].
pub fn differences(document: &str) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    parts(document, |_, block| {
        let Some(block) = block else { return Ok(()) };
        let figure = by_id(block.id).map_err(|error| error.to_string())?;
        let mark = |name: &str| block.marks.split(' ').find_map(|mark| mark.strip_prefix(name));
        if mark("table=") != Some(hash(block.body).as_str()) {
            lines.push(format!("{}: its table is not what a run has written", block.id));
        } else if mark("file=") != Some(file_hash(&figure).as_str()) {
            lines.push(format!(
                "{}: its file or its NIC has changed since its table was written",
                block.id
            ));
        }
        Ok(())
    })?;
    Ok(lines)
}

/// Gives each table, with what stands before it, to `each`; at the end the rest, without a table.
fn parts<'a>(
    document: &'a str,
    mut each: impl FnMut(&'a str, Option<Block<'a>>) -> Result<(), String>,
) -> Result<(), String> {
    let mut rest = document;
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        let head = from[BEGIN.len()..].split_once(" -->");
        let (head, from) = head.ok_or_else(|| format!("`{BEGIN}` has no end"))?;
        let (body, after) = from
            .split_once(END)
            .ok_or_else(|| format!("the table of {head} has no `{END}`"))?;
        let (id, marks) = head.split_at(head.find(' ').unwrap_or(head.len()));
        each(before, Some(Block { id, marks, body }))?;
        rest = after;
    }
    each(rest, None)
}

fn hash(text: &str) -> String {
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// Of all but comments, and of the NICs.
fn file_hash(figure: &Figure) -> String {
    let text = text_of(&figure.id).unwrap_or_default();
    let counts = |line: &&str| !line.starts_with('#') && !line.is_empty();
    hash(&(text.lines().filter(counts).collect::<Vec<_>>().join("\n") + &nics_of(figure)))
}

/// Claims, and why those are missed that are.
fn table(figure: &Figure, verdicts: &[Verdict]) -> String {
    let mut text = "\n| claim | paper | ours | ratio | |\n|---|---|---|---|---|\n".to_owned();
    let mut reasons: Vec<&str> = Vec::new();
    for (claim, verdict) in figure.claims.iter().zip(verdicts) {
        let [paper, ratio] = [verdict.paper, verdict.ratio].map(|value| value.map(short).unwrap_or_default());
        let missed = if verdict.is_ok { "" } else { "missed" };
        let _ = writeln!(
            text,
            "| {} | {paper} | {} | {ratio} | {missed} |",
            claim.text,
            short(verdict.ours)
        );
        if let (Some(reason), false) = (&claim.known, verdict.is_ok)
            && !reasons.contains(&reason.as_str())
        {
            reasons.push(reason);
        }
    }
    if !reasons.is_empty() {
        text.push_str("\nNotes on the misses:\n\n");
        reasons.iter().for_each(|reason| text.push_str(&item(reason)));
    }
    text
}

/// A sentence as an item of a list.
fn item(sentence: &str) -> String {
    let mut text = String::new();
    let mut line = "-".to_owned();
    let begin = sentence.split_at(sentence.char_indices().nth(1).map_or(sentence.len(), |(at, _)| at));
    let sentence = format!("{}{}.", begin.0.to_uppercase(), begin.1.trim_end_matches('.'));
    for word in sentence.split(' ') {
        if line.len() + 1 + word.len() > LINE_MAX {
            text.push_str(&line);
            text.push('\n');
            line = " ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(figure: &Figure) -> Vec<Verdict> {
        let verdict = |(index, claim): (usize, &super::super::claim::Claim)| Verdict {
            figure: figure.id.clone(),
            claim: claim.text.clone(),
            paper: claim.paper,
            ours: 12.345,
            ratio: claim.paper.map(|paper| 12.345 / paper),
            is_ok: index == 0,
            known: None,
        };
        figure.claims.iter().enumerate().map(verdict).collect()
    }

    #[test]
    fn a_table_that_is_written_is_what_the_check_expects() {
        let document = "before\n<!-- figure shiftlock-retry -->\nold\n<!-- end -->\nafter\n";
        let (text, count) = fill(document, |figure| Some(verdicts(figure))).expect("a figure");
        assert_eq!(count, 1);
        assert!(text.starts_with("before\n<!-- figure shiftlock-retry file="), "{text}");
        assert!(text.ends_with("<!-- end -->\nafter\n"), "{text}");
        assert!(
            text.contains("| goodput without back-off, ops/s | 15500 | 12.3 | 0.0008 |  |\n"),
            "{text}"
        );
        assert_eq!(differences(&text), Ok(Vec::new()));
        // Once more is the same, and without a result nothing changes.
        assert_eq!(fill(&text, |figure| Some(verdicts(figure))), Ok((text.clone(), 1)));
        assert_eq!(fill(&text, |_| None), Ok((text.clone(), 0)));
        for (changed, reason) in [
            (text.replacen("12.3", "12.4", 1), "not what a run has written"),
            (text.replacen("file=", "file=0", 1), "has changed since its table"),
            (document.to_owned(), "not what a run has written"),
        ] {
            let lines = differences(&changed).expect("a figure");
            assert_eq!(lines.len(), 1);
            assert!(lines[0].contains(reason), "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_table_is_said() {
        for (document, reason) in [
            ("<!-- figure shiftlock-4", "has no end"),
            ("<!-- figure shiftlock-4 -->", "has no `<!-- end -->`"),
            ("<!-- figure shiftlock-99 --><!-- end -->", "is not a figure"),
        ] {
            let error = fill(document, |_| None).expect_err(document);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn items_are_sentences_of_several_lines() {
        assert_eq!(item("not explained"), "- Not explained.\n");
        let long = item("word ".repeat(40).trim_end());
        assert!(long.lines().all(|line| line.len() <= LINE_MAX), "{long}");
        assert_eq!(long.lines().count(), 2);
        assert!(long.lines().nth(1).is_some_and(|line| line.starts_with("  word")));
    }
}
