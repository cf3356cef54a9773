//! `cargo xtask ci`: everything a change must pass, cheapest first.
//!
//! A failed step does not stop the later ones: one run shows everything there is to mend.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::{deny, fuzz, loom, sim, step, test, tidy, vm};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out the tests of the workspace (`./test` runs those); simulator seeds stay in
    #[arg(long)]
    no_test: bool,
    /// Also the tests that need an RDMA device, in a virtual machine (Debian on x86-64)
    #[arg(long)]
    vm: bool,
    /// Simulator seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// How long each fuzz target runs; 0 leaves them out
    #[arg(long, default_value_t = 4)]
    fuzz_seconds: u32,
}

type Step<'a> = (&'a str, Box<dyn Fn() -> Result<()> + 'a>);

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut steps: Vec<Step<'_>> = vec![
        (
            "format",
            Box::new(|| step::run(&mut step::cargo(["fmt", "--all", "--check"]))),
        ),
        ("tidy", Box::new(tidy::run)),
        ("clippy", Box::new(clippy)),
        ("documentation", Box::new(documentation)),
        ("dependencies", Box::new(deny::run_offline_part)),
    ];
    if !options.no_test {
        steps.push(("tests", Box::new(|| test::workspace(&[]))));
    }
    if options.seeds > 0 {
        steps.push(("simulator", Box::new(|| sim::run_seeds(options.seeds))));
        steps.push(("planted bugs", Box::new(sim::mutants)));
    }

    if options.vm {
        steps.push(("tests on an RDMA device", Box::new(vm::suites::run_all)));
    }
    steps.push(("loom", Box::new(|| loom::run(&loom::Options::ALL))));
    if options.fuzz_seconds > 0 {
        steps.push((
            "fuzz",
            Box::new(|| fuzz::run(&fuzz::Options::all(options.fuzz_seconds))),
        ));
    }

    let count = steps.len();
    let mut failures = Vec::new();
    for (number, (name, step)) in (1..).zip(&steps) {
        eprintln!("==> [{number}/{count}] {name}");
        let (passed, seconds) = timed(step);
        if let Err(error) = passed {
            eprintln!("xtask: {error:#}");
            failures.push(*name);
        }
        eprintln!("    {name} took {seconds} s");
    }
    if !failures.is_empty() {
        bail!("{} of {count} steps failed: {}", failures.len(), failures.join(", "));
    }
    eprintln!("==> all {count} steps passed");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a command of the developer takes real time")]
fn timed<T>(step: impl Fn() -> T) -> (T, u64) {
    let start = Instant::now();
    let result = step();
    (result, start.elapsed().as_secs())
}

/// Warnings are errors here, and warnings on your desk: `-D` reaches clippy alone, so ordinary builds keep their cache.
fn clippy() -> Result<()> {
    step::run(&mut step::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

/// A link to an item that is gone is a warning of rustdoc.
fn documentation() -> Result<()> {
    let mut command = step::cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    step::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}
