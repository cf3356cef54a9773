//! How many instructions one call takes: a simulated processor counts them, exactly and whatever else the machine does.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::step;

/// How many calls the two runs make: the difference leaves out what happens once.
const CALLS: (u64, u64) = (1_000, 6_000);

/// By how much more than is recorded a call may take.
pub(super) const MORE_PERCENT: u64 = 3;

/// What one call of each kind took when that was recorded; the crate `farside-calls` says what the kinds are.
pub(super) struct Recorded {
    pub(super) kinds: Vec<(String, u64)>,
}

impl Recorded {
    fn path() -> PathBuf {
        step::workspace_root().join("xtask/calls.tsv")
    }

    pub(super) fn read() -> Result<Self> {
        let path = Self::path();
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let kinds = text.lines().map(|line| {
            let parts = line.split_once('\t');
            let parts = parts.and_then(|(kind, count)| Some((kind.to_owned(), count.parse().ok()?)));
            parts.with_context(|| format!("{}: `{line}` is no kind and no count", path.display()))
        });
        Ok(Self {
            kinds: kinds.collect::<Result<_>>()?,
        })
    }

    pub(super) fn write(&self) -> Result<()> {
        let mut text = String::new();
        for (kind, instructions) in &self.kinds {
            writeln!(text, "{kind}\t{instructions}")?;
        }
        let path = Self::path();
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
    }
}

/// The most that a call may take.
pub(super) fn most(recorded: u64) -> u64 {
    recorded + recorded * MORE_PERCENT / 100
}

/// Instructions of one call of this kind.
pub(super) fn count(program: &Path, kind: &str) -> Result<u64> {
    let few = instructions(program, kind, CALLS.0)?;
    let many = instructions(program, kind, CALLS.1)?;
    Ok(many.saturating_sub(few) / (CALLS.1 - CALLS.0))
}

fn instructions(program: &Path, kind: &str, calls: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args([kind, &calls.to_string()]);
    let output = command
        .output()
        .context("failed to start valgrind, which counts instructions (Debian: valgrind; or say --no-calls)")?;
    let report = String::from_utf8_lossy(&output.stderr);
    match total(&report) {
        Some(total) if output.status.success() => Ok(total),
        _ => bail!("{kind} failed under valgrind: {report}"),
    }
}

/// The number of instructions in a report: `==1234== I refs: 557,494`.
fn total(report: &str) -> Option<u64> {
    let line = report
        .lines()
        .find(|line| line.contains("I ") && line.contains("refs:"))?;
    line.rsplit(' ').next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_may_take_a_little_more() {
        assert_eq!((most(1000), most(33)), (1030, 33));
    }

    #[test]
    fn the_total_is_found_in_a_report() {
        let report = "==7== Cachegrind\n==7== \n==7== I   refs:      557,494\n";
        assert_eq!(total(report), Some(557_494));
        assert_eq!(total("==7== Process terminating\n"), None);
    }
}
