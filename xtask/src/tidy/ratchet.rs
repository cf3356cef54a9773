//! Ratchets: counts of things we want fewer of. A count may fall and never rise.
//!
//! When a count falls, its limit here must fall with it in the same change; so the limits always say what is true.

use std::path::Path;

use super::Violation;
use super::workspace::{TextFile, Workspace};

/// One count over all source files.
struct Ratchet {
    what: &'static str,
    count: fn(&TextFile) -> usize,
    limit: usize,
}

const RATCHETS: &[Ratchet] = &[
    // An exception to a lint is an argument; without a reason it is only silence.
    Ratchet {
        what: "lint exceptions without a reason",
        count: exceptions_without_reason,
        limit: 0,
    },
    // `expect` complains when it is no longer needed, `allow` stays for ever.
    Ratchet {
        what: "`allow` attributes (use `expect`)",
        count: allow_attributes,
        limit: 0,
    },
];

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    RATCHETS
        .iter()
        .flat_map(|ratchet| check_ratchet(ratchet, &workspace.files))
        .collect()
}

fn check_ratchet(ratchet: &Ratchet, files: &[TextFile]) -> Vec<Violation> {
    let counts = files
        .iter()
        .map(|file| (file, (ratchet.count)(file)))
        .filter(|(_, count)| *count > 0);
    let total: usize = counts.clone().map(|(_, count)| count).sum();
    let Ratchet { what, limit, .. } = ratchet;
    if total > *limit {
        // Which of them is the new one is for git to say; name every file that has some.
        counts
            .map(|(file, count)| {
                Violation::of_file(
                    &file.path,
                    format!("has {count} of {total} {what}; the limit is {limit}"),
                )
            })
            .collect()
    } else if total < *limit {
        let message = format!("only {total} {what} are left; lower the limit from {limit}");
        vec![Violation::of_file(Path::new("xtask/src/tidy/ratchet.rs"), message)]
    } else {
        Vec::new()
    }
}

fn exceptions_without_reason(file: &TextFile) -> usize {
    ["allow(", "expect("]
        .into_iter()
        .flat_map(|name| attributes(&file.text, name))
        .filter(|arguments| !arguments.contains("reason"))
        .count()
}

fn allow_attributes(file: &TextFile) -> usize {
    attributes(&file.text, "allow(").count()
}

/// The text inside the parentheses of every `#[name(..)]` and `#![name(..)]` that starts a line. Code that is quoted in a
/// comment or a string is not at the start of a line, and an attribute always is: rustfmt sees to that.
fn attributes<'a>(text: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(newline, _)| newline + 1));
    line_starts.filter_map(move |start| {
        let line = text[start..].trim_start_matches(' ');
        let arguments = line
            .strip_prefix("#[")
            .or_else(|| line.strip_prefix("#!["))?
            .strip_prefix(name)?;
        Some(&arguments[..arguments.find(")]").unwrap_or(arguments.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::super::assert_only_violation;
    use super::super::workspace::samples;
    use super::*;

    const PATH: &str = "crates/farside-pool/src/chunk.rs";

    fn file(text: &str) -> TextFile {
        TextFile {
            path: PATH.into(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn exception_without_a_reason_is_caught() {
        for attribute in [
            "#[expect(dead_code)]",
            "#![expect(dead_code)]",
            "    #[expect(\n    dead_code,\n)]",
        ] {
            let mut workspace = samples::workspace();
            samples::add_file(
                &mut workspace,
                PATH,
                &format!("//! A file.\n{attribute}\nfn f() {{}}\n"),
            );
            assert_only_violation(&check(&workspace), PATH, "1 of 1 lint exceptions without a reason");
        }
    }

    #[test]
    fn allow_is_caught_even_with_a_reason() {
        let mut workspace = samples::workspace();
        samples::add_file(
            &mut workspace,
            PATH,
            "//! A file.\n#[allow(dead_code, reason = \"why (so)\")]\nfn f() {}\n",
        );
        assert_only_violation(&check(&workspace), PATH, "use `expect`");
    }

    #[test]
    fn exception_with_a_reason_passes() {
        let text =
            "//! A file.\n#[expect(\n    dead_code,\n    reason = \"the next layer calls it (soon)\"\n)]\nfn f() {}\n";
        let mut workspace = samples::workspace();
        samples::add_file(&mut workspace, PATH, text);
        assert_eq!(check(&workspace), []);
    }

    #[test]
    fn count_may_neither_rise_nor_fall_unnoticed() {
        let ratchet = |limit| Ratchet {
            what: "lines",
            count: |file| file.text.lines().count(),
            limit,
        };
        let files = [file("a\nb\n")];
        assert_eq!(check_ratchet(&ratchet(2), &files), []);
        assert_only_violation(
            &check_ratchet(&ratchet(1), &files),
            PATH,
            "2 of 2 lines; the limit is 1",
        );
        assert_only_violation(
            &check_ratchet(&ratchet(3), &files),
            "xtask/src/tidy/ratchet.rs",
            "lower the limit from 3",
        );
    }
}
