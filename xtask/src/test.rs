//! `cargo xtask test`: the tests of the whole workspace, and nothing else.
//!
//! It is what `./test` runs on a machine that has just been set up, so it asks for a C linker, Rust and redis-cli only.
//! Format, lints and tidy judge the text of a change, not whether it works; they belong to `cargo xtask ci`.

use anyhow::Result;

use crate::step;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passed to `cargo test`; without `-p` the whole workspace is meant
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    workspace(&options.arguments)
}

/// Builds every test first, so that a compile error shows before any test has run.
pub(crate) fn workspace(arguments: &[String]) -> Result<()> {
    let (for_cargo, for_tests) = split(arguments);
    let scope: &[&str] = if names_a_package(for_cargo) {
        &[]
    } else {
        &["--workspace"]
    };

    eprintln!("==> building the tests");
    // A test binary can be built without being run, a documentation test cannot: `--doc` has nothing to build.
    if !for_cargo.iter().any(|argument| argument == "--doc") {
        step::run(step::cargo(["test", "--no-run"]).args(scope).args(for_cargo))?;
    }

    eprintln!("==> running the tests");
    step::run(
        step::cargo(["test", "--no-fail-fast"])
            .args(scope)
            .args(for_cargo)
            .args(for_tests),
    )
}

/// What cargo reads, and what the test binaries read (from `--` on).
fn split(arguments: &[String]) -> (&[String], &[String]) {
    let end = arguments
        .iter()
        .position(|argument| argument == "--")
        .unwrap_or(arguments.len());
    arguments.split_at(end)
}

fn names_a_package(arguments: &[String]) -> bool {
    arguments
        .iter()
        .any(|argument| argument == "--package" || argument.starts_with("--package=") || argument.starts_with("-p"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_after_two_dashes_go_to_the_test_binaries() {
        let arguments = words("-p farside-pool epoch -- --nocapture");
        let (for_cargo, for_tests) = split(&arguments);
        assert_eq!(for_cargo, words("-p farside-pool epoch"));
        assert_eq!(for_tests, words("-- --nocapture"));
    }

    #[test]
    fn workspace_is_meant_unless_a_package_is_named() {
        for line in [
            "-p farside-pool",
            "-pfarside-pool",
            "--package farside-pool",
            "--package=farside-pool",
        ] {
            assert!(names_a_package(&words(line)), "{line}");
        }
        for line in ["", "epoch", "--doc"] {
            assert!(!names_a_package(&words(line)), "{line}");
        }
    }
}
