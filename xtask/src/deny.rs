//! `cargo xtask deny`: the audit of the dependencies, by cargo-deny under the rules of deny.toml.

use anyhow::{Result, bail};

use crate::step;

pub(crate) fn run() -> Result<()> {
    if !is_installed() {
        bail!("cargo-deny is not installed; `cargo install --locked cargo-deny` builds it in a few minutes");
    }
    step::run(&mut step::cargo(["deny", "check"]))
}

/// The part that needs no network: what is judged is in Cargo.lock and in the crates themselves. Advisories come from a
/// database that changes from day to day, and a push should not fail for somebody else's news.
pub(crate) fn run_offline_part() -> Result<()> {
    if !is_installed() {
        eprintln!("    skipped: cargo-deny is not installed (`cargo install --locked cargo-deny`)");
        return Ok(());
    }
    step::run(&mut step::cargo(["deny", "check", "bans", "licenses", "sources"]))
}

fn is_installed() -> bool {
    step::cargo(["deny", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}
