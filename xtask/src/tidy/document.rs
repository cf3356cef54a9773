//! Documents: a link to a file of the project leads somewhere.
//!
//! Web addresses and headings are not followed: the first need a network, the second a parser.

use std::path::{Component, Path, PathBuf};

use super::Violation;
use super::workspace::{TextFile, Workspace};

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace
        .documents
        .iter()
        .flat_map(|document| check_links(document, |path| workspace.paths.contains(path)))
        .collect()
}

fn check_links(document: &TextFile, exists: impl Fn(&Path) -> bool) -> Vec<Violation> {
    let folder = document.path.parent().unwrap_or(Path::new(""));
    let mut violations = Vec::new();
    for (number, line) in (1..).zip(document.text.lines()) {
        for target in link_targets(line) {
            let path = target.split('#').next().unwrap_or(target);
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            if !exists(&normalized(&folder.join(path))) {
                violations.push(Violation::of_line(
                    &document.path,
                    number,
                    format!("links to {path}, which is not there"),
                ));
            }
        }
    }
    violations
}

/// The `target` of every `[text](target)`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](")
        .filter_map(|(start, opening)| line[start + opening.len()..].split(')').next())
}

/// Without `.` and `..`, so that paths can be compared as text.
pub(crate) fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = parts.pop(),
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::assert_only_violation;
    use super::super::workspace::samples;
    use super::*;

    fn check_with(path: &str, text: &str) -> Vec<Violation> {
        let mut workspace = samples::workspace();
        workspace.documents.push(TextFile {
            path: path.into(),
            text: text.to_owned(),
        });
        check(&workspace)
    }

    #[test]
    fn link_to_a_missing_file_is_caught() {
        assert_only_violation(
            &check_with("README.md", "\nSee [this](docs/gone.md#part).\n"),
            "README.md",
            "docs/gone.md",
        );
        assert_only_violation(&check_with("docs/a.md", "[b](crates)\n"), "docs/a.md", "crates");
    }

    #[test]
    fn links_to_files_folders_headings_and_the_web_pass() {
        let text =
            "[a](crates/farside-pool/src/lib.rs) [b](crates/farside-pool) [c](#part) [d](https://example.org/x)\n";
        assert_eq!(check_with("README.md", text), []);
        assert_eq!(
            check_with("docs/a.md", "[a](../crates/farside-pool/src/./lib.rs)\n"),
            []
        );
    }
}
