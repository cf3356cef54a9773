//! What came out of a figure, and whether what an earlier run has written can stand for a new one.
//!
//! It can if it comes from the same figure file and the same constants of the NIC model, with the same `--quick`, by the same
//! version of the program: its [`Origin`]. What is damaged, say because the run was ended while it wrote, counts as not there.

use std::collections::BTreeSet;
use std::path::Path;

use farside_fabric::sim::Profile;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::claim::{self, Verdict};
use super::file::Figure;
use super::sweep::Point;
use super::variation::Variation;

/// The runs of a figure and what they say of its claims.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every run.
    pub points: Vec<Point>,
    /// One for each claim, in the order of the file.
    pub verdicts: Vec<Verdict>,
}

/// What decided the numbers of a figure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// A hash of what is run, from the figure's file, and of the NICs that it names.
    pub file: String,
    /// Whether the set-up was the smaller one.
    pub quick: bool,
    /// Version of the program.
    pub version: String,
    /// What was otherwise than the figure's file says.
    #[serde(default)]
    pub variation: Variation,
}

/// What is read of the file that `output` writes.
#[derive(Deserialize)]
struct Stored {
    origin: Origin,
    runs: Vec<Point>,
}

impl Origin {
    /// Of a figure that is run now.
    #[must_use]
    pub fn of(figure: &Figure, is_quick: bool) -> Self {
        let file = what_is_run(super::text_of(&figure.id).unwrap_or_default());
        Self {
            file: format!("{:016x}", xxh3_64((file + &nics_of(figure)).as_bytes())),
            quick: is_quick,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            variation: figure.variation.clone(),
        }
    }
}

/// The constants of the NICs that a figure names.
pub(super) fn nics_of(figure: &Figure) -> String {
    let names: BTreeSet<&str> = figure.series.iter().map(|series| series.profile.as_str()).collect();
    let profiles = names.into_iter().filter_map(Profile::named);
    profiles.map(|profile| format!("\n{profile:?}")).collect()
}

/// What decides the numbers in the text of a figure's file: neither comments nor claims, which are judged anew.
fn what_is_run(text: &str) -> String {
    let mut is_claim = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            is_claim = line.starts_with("[[claim]]");
        }
        if !is_claim && !line.starts_with('#') && !line.is_empty() {
            lines.push(line);
        }
    }
    lines.join("\n")
}

impl Outcome {
    /// What an earlier run has left in a folder, if it is what a run would give now.
    #[must_use]
    pub fn stored(figure: &Figure, is_quick: bool, folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join(format!("{}.json", figure.id))).ok()?;
        let stored: Stored = serde_json::from_str(&text).ok()?;
        if stored.origin != Origin::of(figure, is_quick) {
            return None;
        }
        // Judged anew: a point that is missing makes it damaged, too.
        let verdicts = claim::judge(figure, &stored.runs).ok()?;
        Some(Self {
            points: stored.runs,
            verdicts,
        })
    }

    /// How many claims hold.
    #[must_use]
    pub fn held(&self) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.is_ok).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{by_id, output};
    use serde_json::json;

    /// A figure, and what might have come out of it.
    fn example() -> (Figure, Outcome) {
        let figure = by_id("shiftlock-retry").expect("a figure");
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
        (figure, Outcome { points, verdicts })
    }

    #[test]
    fn neither_claims_nor_comments_decide_the_numbers() {
        let text = "# Why\nid = 'f'\n\n[[claim]]\ntext = 'a'\n[[series]]\nname = 's'\n[[claim]]\nknown = 'b'\n";
        assert_eq!(what_is_run(text), "id = 'f'\n[[series]]\nname = 's'");
    }

    #[test]
    fn what_was_written_is_taken_up_by_the_same_figure_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (figure, outcome) = example();
        assert!(Outcome::stored(&figure, true, folder.path()).is_none(), "nothing there");
        output::write(&figure, true, &outcome, folder.path()).expect("writable");
        let stored = Outcome::stored(&figure, true, folder.path()).expect("the same");
        assert_eq!(stored.points.len(), outcome.points.len());
        assert_eq!(stored.held(), outcome.held());
        assert_eq!(stored.verdicts.len(), figure.claims.len());
        assert!(
            Outcome::stored(&figure, false, folder.path()).is_none(),
            "another set-up"
        );

        let path = folder.path().join("shiftlock-retry.json");
        let text = std::fs::read_to_string(&path).expect("it was written");
        let hash = Origin::of(&figure, true).file;
        let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
        for (old, new) in [
            (hash.as_str(), "0123456789abcdef"),
            (&version, "\"version\": \"0.0.1\""),
            ("\"throughput_ops_s\"", "\"speed\""),
        ] {
            assert!(text.contains(old), "{old}");
            std::fs::write(&path, text.replace(old, new)).expect("writable");
            assert!(Outcome::stored(&figure, true, folder.path()).is_none(), "{old}");
        }
        std::fs::write(&path, &text[..text.len() / 2]).expect("writable");
        assert!(Outcome::stored(&figure, true, folder.path()).is_none(), "cut short");
    }
}
