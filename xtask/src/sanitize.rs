//! `cargo xtask sanitize`: the tests in which threads share memory, under the thread sanitizer.
//!
//! The sanitizer sees races only in code that it has instrumented, so the standard library is built along (`-Zbuild-std`).
//! That takes a nightly toolchain with the component rust-src; where they are missing, the command says so and fails.
//! It is no part of `ci`, which must pass with the stable toolchain alone.

use anyhow::{Result, bail};

use crate::step;
use crate::test::IT;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What runs: the package, and what of it. Tests that start other processes are left out of none of these.
const TESTS: &[&[&str]] = &[
    &["--package", "farside-fabric", "--lib", "--", "shm", "region", "tcp"],
    &[
        "--package",
        "farside-fabric",
        "--test",
        IT,
        "--",
        "conformance::shm",
        "conformance::tcp",
        "conformance::on_shm",
        "conformance::on_tcp",
    ],
    &["--package", "farside-pool", "--lib"],
    &["--package", "farside-kv", "--test", IT, "--", "model::"],
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only tests of this crate
    #[arg(long, short)]
    package: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Some(sysroot) = step::nightly_sysroot() else {
        bail!("the thread sanitizer needs a nightly toolchain: `rustup toolchain install nightly -c rust-src`");
    };
    if !sysroot.join("lib/rustlib/src/rust/library").exists() {
        bail!("the thread sanitizer needs the sources of the library: `rustup +nightly component add rust-src`");
    }
    let is_wanted = |tests: &&[&str]| options.package.as_deref().is_none_or(|package| tests[1] == package);
    let mut failures = Vec::new();
    for tests in TESTS.iter().copied().filter(is_wanted) {
        let mut command = step::nightly_cargo()?;
        command
            .args(["test", "-Zbuild-std", "--target", TRIPLE])
            .args(tests)
            .env("CARGO_TARGET_DIR", step::workspace_root().join("target/sanitize"))
            .env("CARGO_ENCODED_RUSTFLAGS", "-Zsanitizer=thread")
            // A report is a failure, and so are all that follow: print them first.
            .env("TSAN_OPTIONS", "halt_on_error=0 exitcode=66");
        if let Err(error) = step::run(&mut command) {
            eprintln!("xtask: {error:#}");
            failures.push(tests[1]);
        }
    }
    if !failures.is_empty() {
        bail!("the thread sanitizer found something in {}", failures.join(", "));
    }
    Ok(())
}
