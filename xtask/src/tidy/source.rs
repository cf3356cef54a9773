//! Source files: the header, names, marks of unfinished work, length, and where unsafe code may be.

use std::path::Path;

use super::Violation;
use super::workspace::{Crate, TextFile, Workspace};

/// More than this and two nouns live in one file.
const LINES_MAX: usize = 900;

/// Files that are longer for a reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// The crates that may hold unsafe code: the one that touches raw memory, and the edges to other languages; see the comment
/// on it in CONTRIBUTING.md.
const UNSAFE_CRATES: &[&str] = &["farside-fabric", "farside-c", "farside-python"];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["common", "helper", "helpers", "misc", "util", "utils"];

/// What must not be in a finished file. The pieces keep this table from finding itself.
const MARKS: &[(&str, &str)] = &[
    (concat!("todo", "!"), "finish it, or leave the feature out"),
    (concat!("unimplemented", "!"), "finish it, or leave the feature out"),
    (concat!("dbg", "!"), "remove it, or make it a tracing event"),
    (concat!("FIX", "ME"), "mend it, or describe what is true now"),
    (concat!("TO", "DO"), "do it, or describe what is true now"),
    (concat!("XX", "X"), "mend it, or describe what is true now"),
    (
        concat!("#[ig", "nore"),
        "a test that is not run protects nothing; mend or remove it",
    ),
    (concat!("assert!(", "true)"), "a check that cannot fail checks nothing"),
];

/// The trait that the fabric's backends implement: what is generic over it is compiled once for each.
const BACKEND: &str = "Backend";

/// How the attribute of a test ends that CI runs where it can be run.
const RUN_IN_VM: &str = ": cargo xtask vm-tests\"]";

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations: Vec<_> = workspace
        .files
        .iter()
        .flat_map(|file| check_file(file, LONG_FILES))
        .collect();
    violations.extend(
        workspace
            .crates
            .iter()
            .flat_map(|member| check_unsafe(member, &workspace.files)),
    );
    violations.extend(workspace.files.iter().flat_map(check_backend_bounds));
    for (path, _) in LONG_FILES {
        if !workspace.files.iter().any(|file| file.path == Path::new(path)) {
            violations.push(Violation::of_file(
                path.as_ref(),
                "is gone; take it off LONG_FILES in xtask",
            ));
        }
    }
    violations
}

fn check_file(file: &TextFile, long_files: &[(&str, &str)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !file.text.starts_with("//!") {
        violations.push(Violation::of_line(
            &file.path,
            1,
            "must open with `//!`: what this file is, in one sentence",
        ));
    }
    for part in &file.path {
        let stem = Path::new(part).file_stem().unwrap_or(part).to_string_lossy();
        if EMPTY_NAMES.contains(&stem.as_ref()) {
            violations.push(Violation::of_file(
                &file.path,
                format!("`{stem}` names nothing; name the noun inside"),
            ));
        }
    }
    for (number, line) in (1..).zip(file.text.lines()) {
        if line.ends_with(RUN_IN_VM) {
            continue;
        }
        for (mark, advice) in MARKS.iter().filter(|(mark, _)| contains_mark(line, mark)) {
            violations.push(Violation::of_line(&file.path, number, format!("`{mark}`: {advice}")));
        }
    }
    let lines = file.text.lines().count();
    let is_listed = long_files.iter().any(|(path, _)| file.path == Path::new(path));
    if lines > LINES_MAX && !is_listed {
        let message = format!("has {lines} lines; the limit is {LINES_MAX}: which two nouns live in it?");
        violations.push(Violation::of_file(&file.path, message));
    } else if lines <= LINES_MAX && is_listed {
        let message = format!("has only {lines} lines now; take it off LONG_FILES in xtask");
        violations.push(Violation::of_file(&file.path, message));
    }
    violations
}

/// Whether `mark` stands in `line` as a word of its own: `my_todo` followed by a bang is another macro.
fn contains_mark(line: &str, mark: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(mark).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + mark.len()..]);
        let continues_before = mark.starts_with(is_word) && before.ends_with(is_word);
        let continues_after = mark.ends_with(is_word) && after.starts_with(is_word);
        !continues_before && !continues_after
    })
}

/// Above the fabric a client is an `Endpoint`, and nothing is generic over what is below.
fn check_backend_bounds(file: &TextFile) -> Vec<Violation> {
    if !file.path.starts_with("crates") || file.path.starts_with("crates/farside-fabric") {
        return Vec::new();
    }
    let lines = (1..).zip(file.text.lines());
    let bounds = lines.filter(|(_, line)| !line.trim_start().starts_with("//") && bounds_by_backend(line));
    let message = "a type parameter bounded by a backend is compiled once for each; take an `Endpoint`";
    bounds
        .map(|(number, _)| Violation::of_line(&file.path, number, message))
        .collect()
}

/// Whether a line bounds a type by the trait: `E: Backend`, `A: Clone + fabric::Backend` or an argument `impl Backend`. A trait
/// object is one type, and an implementation bounds nothing.
fn bounds_by_backend(line: &str) -> bool {
    line.match_indices(BACKEND).any(|(start, _)| {
        if !contains_mark(&line[start..], BACKEND) {
            return false;
        }
        // In front of the path, if it has one.
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let before = line[..start].trim_end_matches(is_path).trim_end();
        let is_implemented = line[start + BACKEND.len()..].trim_start().starts_with("for ");
        before.ends_with([':', '+']) || (before.ends_with("impl") && !is_implemented)
    })
}

fn check_unsafe(member: &Crate, files: &[TextFile]) -> Vec<Violation> {
    const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";
    if UNSAFE_CRATES.contains(&member.name.as_str()) {
        return Vec::new();
    }
    let roots = files.iter().filter(|file| member.roots.contains(&file.path));
    roots
        .filter(|file| !file.text.lines().any(|line| line == ATTRIBUTE))
        .map(|file| {
            let message = format!(
                "must say `{ATTRIBUTE}`; unsafe code belongs to {}",
                UNSAFE_CRATES.join(", ")
            );
            Violation::of_file(&file.path, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::assert_only_violation;
    use super::super::workspace::samples;
    use super::*;

    fn check_with_file(path: &str, text: &str) -> Vec<Violation> {
        let mut workspace = samples::workspace();
        samples::add_file(&mut workspace, path, text);
        check(&workspace)
    }

    #[test]
    fn a_bound_by_a_backend_is_caught_outside_the_fabric() {
        for bound in [
            "fn f<B: Backend>(endpoint: &B) {}",
            "fn f(endpoint: &impl farside_fabric::Backend) {}",
            "impl<B> T for S<B> where B: Clone + Backend {",
            "    B: farside_fabric::Backend,",
        ] {
            let text = format!("//! A file.\n{bound}\n");
            let path = "crates/farside-pool/src/chunk.rs";
            assert_only_violation(&check_with_file(path, &text), path, "bounded by a backend");
            assert_eq!(check_with_file("crates/farside-fabric/src/chunk.rs", &text), []);
        }
        for other in [
            "impl Backend for Model {",
            "let model: Rc<dyn Backend> = Rc::new(Model);",
            "use farside_fabric::Backend;",
            "struct Backends;",
            "// fn f<B: Backend>() {}",
        ] {
            let text = format!("//! A file.\n{other}\n");
            assert_eq!(
                check_with_file("crates/farside-pool/src/chunk.rs", &text),
                [],
                "{other}"
            );
        }
    }

    #[test]
    fn missing_header_is_caught() {
        let path = "crates/farside-pool/src/chunk.rs";
        for text in [
            "",
            "// A comment.\n",
            "/// Documents the next item, not the file.\n",
            "\n//! Too late.\n",
        ] {
            assert_only_violation(&check_with_file(path, text), path, "must open with `//!`");
        }
    }

    #[test]
    fn empty_names_are_caught_in_files_and_folders() {
        for path in [
            "crates/farside-pool/src/utils.rs",
            "crates/farside-pool/tests/common/mod.rs",
        ] {
            assert_only_violation(&check_with_file(path, "//! A file.\n"), path, "names nothing");
        }
        assert_eq!(
            check_with_file("crates/farside-pool/src/utilisation.rs", "//! A file.\n"),
            []
        );
    }

    #[test]
    fn every_mark_is_caught() {
        let path = "crates/farside-pool/src/chunk.rs";
        for (mark, _) in MARKS {
            let text = format!("//! A file.\nfn f() {{}}\n    {mark} ...\n");
            let violations = check_with_file(path, &text);
            assert_only_violation(&violations, path, mark);
            assert_eq!(violations[0].line, Some(3), "{mark}");
        }
    }

    #[test]
    fn ignored_test_with_a_reason_is_caught() {
        let path = "crates/farside-pool/src/chunk.rs";
        let text = concat!("//! A file.\n#[ig", "nore = \"slow\"]\nfn f() {}\n");
        assert_only_violation(&check_with_file(path, text), path, "protects nothing");
        let run_in_vm = concat!(
            "//! A file.\n#[ig",
            "nore = \"needs a device: cargo xtask vm-tests\"]\nfn f() {}\n"
        );
        assert_eq!(check_with_file(path, run_in_vm), []);
    }

    #[test]
    fn part_of_a_longer_word_is_no_mark() {
        let text = concat!("//! A file.\nmy_to", "do!(); TO", "DOS; MAXX", "X; let to", "do = 1;\n");
        assert_eq!(check_with_file("crates/farside-pool/src/chunk.rs", text), []);
    }

    #[test]
    fn long_file_is_caught_unless_it_is_listed() {
        let path = "crates/farside-pool/src/chunk.rs";
        let text = |lines| format!("//! A file.\n{}", "//\n".repeat(lines - 1));
        assert_only_violation(&check_with_file(path, &text(LINES_MAX + 1)), path, "the limit is 900");
        assert_eq!(check_with_file(path, &text(LINES_MAX)), []);

        let list = [(path, "a table")];
        let file = |lines| TextFile {
            path: path.into(),
            text: text(lines),
        };
        assert_eq!(check_file(&file(LINES_MAX + 1), &list), []);
        assert_only_violation(&check_file(&file(LINES_MAX), &list), path, "take it off LONG_FILES");
    }

    #[test]
    fn long_files_are_listed_with_a_reason() {
        for (path, reason) in LONG_FILES {
            assert!(!reason.is_empty(), "{path}");
        }
    }

    #[test]
    fn crate_that_allows_unsafe_code_is_caught() {
        let root = "crates/farside-pool/src/lib.rs";
        for text in ["//! A crate.\n", "//! A crate.\n// #![forbid(unsafe_code)]\n"] {
            let mut workspace = samples::workspace();
            workspace.files.retain(|file| file.path != Path::new(root));
            samples::add_file(&mut workspace, root, text);
            assert_only_violation(&check(&workspace), root, "must say `#![forbid(unsafe_code)]`");
        }
    }

    #[test]
    fn the_fabric_and_edges_to_other_languages_may_hold_unsafe_code() {
        let mut workspace = samples::workspace();
        samples::add_crate(&mut workspace, "farside-c", &[]);
        for root in ["crates/farside-fabric/src/lib.rs", "crates/farside-c/src/lib.rs"] {
            workspace.files.retain(|file| file.path != Path::new(root));
            samples::add_file(&mut workspace, root, "//! A crate.\n");
        }
        assert_eq!(check(&workspace), []);
    }
}
