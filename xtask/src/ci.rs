//! `cargo xtask ci`: everything a change must pass, cheapest first.
//!
//! A failed step does not stop the later ones: one run shows everything there is to mend. Each step is a process of its
//! own, so that what it printed last can be said again at the end, where one looks for it.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::{deny, fuzz, loom, sim, step, test, tidy, vm};

/// How much of what a failed step printed is said again.
const LINES_SAID_AGAIN: usize = 60;

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
    /// Only the step of this name
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
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

    if let Some(name) = &options.only {
        let Some((_, step)) = steps.iter().find(|(known, _)| known == name) else {
            let known: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
            bail!("there is no step `{name}`; there are: {}", known.join(", "));
        };
        return step();
    }

    let count = steps.len();
    let mut failures = Vec::new();
    for (number, (name, _)) in (1..).zip(&steps) {
        eprintln!("==> [{number}/{count}] {name}");
        let (failure, seconds) = timed(|| run_alone(name));
        eprintln!("    {name} took {seconds} s");
        failures.extend(failure?.map(|lines| (*name, lines)));
    }
    for (name, lines) in &failures {
        eprintln!("==> {name} failed; it printed last:");
        for line in lines {
            eprintln!("    {line}");
        }
    }
    if !failures.is_empty() {
        let names: Vec<_> = failures.iter().map(|(name, _)| *name).collect();
        bail!("{} of {count} steps failed: {}", failures.len(), names.join(", "));
    }
    eprintln!("==> all {count} steps passed");
    Ok(())
}

/// Runs one step with our arguments; what it printed last if it failed.
fn run_alone(name: &str) -> Result<Option<VecDeque<String>>> {
    let (output, writer) = std::io::pipe().context("failed to open a pipe")?;
    let mut command = Command::new(std::env::current_exe().context("this program has no path")?);
    command
        .args(std::env::args_os().skip(1))
        .args(["--only", name])
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("failed to start the step `{name}`"))?;
    // The command keeps the writing ends, and the pipe would never end.
    drop(command);
    let mut lines = VecDeque::with_capacity(LINES_SAID_AGAIN);
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(std::io::stderr(), "{line}")?;
        if lines.len() == LINES_SAID_AGAIN {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    Ok((!child.wait()?.success()).then_some(lines))
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
