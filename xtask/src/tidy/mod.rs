//! `cargo xtask tidy`: what neither rustc nor clippy can see, checked on every push.
//!
//! One module per subject, each a plain function from the loaded workspace to violations, so that its tests can plant a
//! violation in a workspace made up in memory:
//!
//! - `layers`: which crate may depend on which, from the dependency graph of cargo;
//! - `manifest`: folder names, shared lints, dependencies declared once and with a reason;
//! - `document`: links between documents and files;
//! - `source`: headers, forbidden names and marks, length, `forbid(unsafe_code)`;
//! - `ratchet`: numbers that may only go down;
//! - that what `survivors.tsv` lists is still there.

mod document;
mod layers;
mod manifest;
mod ratchet;
mod source;
mod workspace;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{generated, step};
pub(crate) use document::normalized;
use workspace::Workspace;

/// One thing to mend, where, and what would be right.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: PathBuf,
    /// Counted from 1; absent when the file as a whole is meant.
    line: Option<usize>,
    message: String,
}

impl Violation {
    fn of_file(path: &Path, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    fn of_line(path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line: Some(line),
            message: message.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.message)
    }
}

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::load(step::workspace_root())?;
    let violations = check(&workspace);
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("tidy found {} to mend", violations.len());
    }
    generated::check_list()?;
    eprintln!(
        "    tidy: {} crates, {} source files",
        workspace.crates.len(),
        workspace.files.len()
    );
    Ok(())
}

fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = layers::check(workspace);
    violations.extend(manifest::check(workspace));
    violations.extend(document::check(workspace));
    violations.extend(source::check(workspace));
    violations.extend(ratchet::check(workspace));
    violations.sort();
    violations
}

/// Asserts that `violations` is exactly one, that it is about `path`, and that its message contains `words`.
#[cfg(test)]
fn assert_only_violation(violations: &[Violation], path: &str, words: &str) {
    let [violation] = violations else {
        panic!("expected one violation about {path}, found {violations:#?}")
    };
    assert_eq!(violation.path, Path::new(path), "{violation}");
    assert!(violation.message.contains(words), "`{words}` is not in `{violation}`");
}

#[cfg(test)]
mod tests {
    use super::workspace::samples;
    use super::*;

    #[test]
    fn clean_workspace_has_no_violation() {
        assert_eq!(check(&samples::workspace()), []);
    }

    #[test]
    fn violation_reads_like_a_compiler_message() {
        let path = Path::new("crates/farside-kv/src/lib.rs");
        assert_eq!(
            Violation::of_line(path, 7, "why").to_string(),
            "crates/farside-kv/src/lib.rs:7: why"
        );
        assert_eq!(
            Violation::of_file(path, "why").to_string(),
            "crates/farside-kv/src/lib.rs: why"
        );
    }
}
