//! `cargo xtask fuzz`: the fuzz targets, a few seconds each.
//!
//! The targets are the binaries of the workspace in `fuzz/`, which links libFuzzer. They are built without cargo-fuzz:
//! all it takes is the flags below, and a target triple on the command line, so that build scripts and procedural macros
//! stay as they are.
//!
//! - On the stable toolchain the coverage pass of LLVM guides the fuzzer, and debug assertions and overflow checks are on.
//! - `--nightly` adds the address sanitizer, which only a nightly toolchain has.
//!
//! What a run learns stays in `target/fuzz/corpus`; the committed inputs in `fuzz/corpus` are only read. An input that
//! fails is written to `target/fuzz/artifacts`: add it to the committed corpus together with the correction.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::step;

/// What libFuzzer needs: counters of edges, and the operands of comparisons.
const COVERAGE_FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// An input takes milliseconds; one that takes this long does not end.
const INPUT_SECONDS_MAX: u32 = 20;
/// Everything a target keeps, in MiB; with the sanitizer, its shadow memory too.
const MEMORY_MIB_MAX: u32 = 2048;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this target
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// With the address sanitizer, on the nightly toolchain
    #[arg(long)]
    nightly: bool,
}

impl Options {
    /// Every target, for so long each.
    pub(crate) fn all(seconds: u32) -> Self {
        Self {
            target: None,
            seconds,
            nightly: false,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = step::workspace_root().join("fuzz");
    let mut targets = targets(&folder)?;
    if let Some(target) = &options.target {
        let known = targets.join(", ");
        targets.retain(|name| name == target);
        if targets.is_empty() {
            bail!("there is no target {target}; there are {known}");
        }
    }
    install_tools()?;
    let output = step::workspace_root().join("target/fuzz");
    step::run(&mut build(&folder, &output, options.nightly)?)?;

    let mut failures = Vec::new();
    for target in &targets {
        eprintln!("==> {target}: {} s", options.seconds);
        if let Err(error) = run_target(&folder, &output, target, options) {
            eprintln!("xtask: {error:#}");
            failures.push(target.as_str());
        }
    }
    if !failures.is_empty() {
        bail!(
            "{} failed; the inputs are in target/fuzz/artifacts (add them to fuzz/corpus with the correction)",
            failures.join(", ")
        );
    }
    Ok(())
}

/// A target is a file of this folder.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let sources = folder.join("fuzz_targets");
    let entries = fs::read_dir(&sources).with_context(|| format!("failed to list {}", sources.display()))?;
    let mut targets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().context("a source file has a name")?;
            targets.push(name.to_string_lossy().into_owned());
        }
    }
    targets.sort();
    Ok(targets)
}

/// libFuzzer is C++.
fn install_tools() -> Result<()> {
    let mut command = Command::new("bash");
    command
        .current_dir(step::workspace_root())
        .args(["-c", "source scripts/setup.bash && need_fuzz_tools"]);
    step::run(&mut command)
}

fn build(folder: &Path, output: &Path, nightly: bool) -> Result<Command> {
    let mut flags = COVERAGE_FLAGS.to_vec();
    let mut command = if nightly {
        flags.push("-Zsanitizer=address");
        step::nightly_cargo()?
    } else {
        step::cargo::<&str>([])
    };
    command
        .current_dir(folder)
        .args([
            "build",
            "--release",
            "--bins",
            "--features",
            "targets",
            "--target",
            TRIPLE,
        ])
        .env("CARGO_TARGET_DIR", build_folder(output, nightly))
        // Not RUSTFLAGS, which are split at spaces.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    Ok(command)
}

fn run_target(folder: &Path, output: &Path, target: &str, options: &Options) -> Result<()> {
    let learned = output.join("corpus").join(target);
    let artifacts = output.join("artifacts").join(target);
    for made in [&learned, &artifacts] {
        fs::create_dir_all(made).with_context(|| format!("failed to make {}", made.display()))?;
    }
    let binary = build_folder(output, options.nightly)
        .join(TRIPLE)
        .join("release")
        .join(target);
    let mut command = Command::new(binary);
    command
        .arg(format!("-max_total_time={}", options.seconds))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        // What is new goes to the first folder, the second is only read.
        .arg(learned)
        .arg(folder.join("corpus").join(target));
    let log = output.join(format!("{target}.log"));
    let file = fs::File::create(&log).with_context(|| format!("failed to write {}", log.display()))?;
    command.stderr(file);
    let outcome = step::run(&mut command);
    let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.with_context(|| format!("failed to read {}", log.display()))?;
    eprint!("{}", summary(&text, outcome.is_ok()));
    outcome
}

/// The last lines of a log: what was run, or what went wrong. The rest is progress.
fn summary(log: &str, is_success: bool) -> String {
    const LINES_OF_FAILURE: usize = 60;
    let mut lines: Vec<&str> = log.lines().collect();
    let kept: Vec<&str> = if is_success {
        lines
            .into_iter()
            .filter(|line| line.contains("DONE") || line.starts_with("Done "))
            .collect()
    } else {
        lines.split_off(lines.len().saturating_sub(LINES_OF_FAILURE))
    };
    kept.iter().map(|line| format!("    {line}\n")).collect()
}

/// Each toolchain keeps its own, so that they do not undo each other's work.
fn build_folder(output: &Path, nightly: bool) -> std::path::PathBuf {
    output.join(if nightly { "nightly" } else { "stable" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds() {
        let folder = step::workspace_root().join("fuzz");
        let targets = targets(&folder).expect("the targets are there");
        assert_eq!(targets.len(), 6);
        for target in targets {
            let seeds = fs::read_dir(folder.join("corpus").join(&target));
            assert!(seeds.is_ok_and(|mut seeds| seeds.next().is_some()), "{target}");
        }
    }

    #[test]
    fn a_failure_keeps_its_last_lines() {
        let log = "#1 NEW\n".repeat(100) + "panicked\n#9 DONE cov: 1\n";
        assert_eq!(summary(&log, true), "    #9 DONE cov: 1\n");
        assert!(summary(&log, false).contains("panicked"));
        assert_eq!(summary(&log, false).lines().count(), 60);
    }
}
