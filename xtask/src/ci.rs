//! `cargo xtask ci`: everything a change must pass.
//!
//! Steps are in *lanes*, which run at the same time: builds keep all processors busy, tests wait for much of their time.
//! A failed step does not stop the others: one run shows everything there is to mend. Each step is a process of its own;
//! its lines are printed with its name in front, and what it printed last is said again at the end, where one looks for it.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};

use crate::{
    book, c, clients, deny, fuzz, generated, header, loom, memcheck, package, python, sim, step, tidy, vm, weight,
};

/// How much of what a failed step printed is said again.
const LINES_SAID_AGAIN: usize = 60;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out the tests of the workspace; simulator seeds stay in
    #[arg(long)]
    no_test: bool,
    /// Also the tests that need an RDMA device, in a virtual machine (Debian on x86-64)
    #[arg(long)]
    vm: bool,
    /// Simulator seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// For how many minutes fresh seeds of each target run
    #[arg(long, default_value_t = 0.5)]
    minutes: f64,
    /// How many generated mutants are run; 0 leaves them out
    #[arg(long, default_value_t = 10)]
    mutants: usize,
    /// How long each fuzz target runs; 0 leaves them out
    #[arg(long, default_value_t = 4)]
    fuzz_seconds: u32,
    /// Also what needs valgrind: the instructions of calls, and the fabric's tests under memcheck
    #[arg(long)]
    calls: bool,
    /// Also packages (Debian)
    #[arg(long)]
    packages: bool,
    /// Also the library for C, and the Go package over it (needs valgrind and a C++ compiler; Go if there is one)
    #[arg(long)]
    c: bool,
    /// Also the wheel for Python (3.11 or newer, with its module venv)
    #[arg(long)]
    python: bool,
    /// Also Redis clients of several languages, as far as their tools are there (Go, Java with Maven, Python, Node, hiredis)
    #[arg(long)]
    clients: bool,
    /// Only the step of this name
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
}

type Step<'a> = (&'static str, Box<dyn Fn() -> Result<()> + Send + Sync + 'a>);

/// Two lanes, and what whichever of them ends first goes on with.
fn lanes(options: &Options) -> [Vec<Step<'_>>; 3] {
    let checks: Vec<Step<'_>> = vec![
        (
            "format",
            Box::new(|| step::run(&mut step::cargo(["fmt", "--all", "--check"]))),
        ),
        ("tidy", Box::new(tidy::run)),
        ("header", Box::new(header::check)),
        ("dependencies", Box::new(deny::run_offline_part)),
        ("clippy", Box::new(clippy)),
        ("documentation", Box::new(documentation)),
        ("book", Box::new(book::check)),
        ("weight", Box::new(|| weight::run(&weight::Options::all(options.calls)))),
        ("loom", Box::new(|| loom::run(&loom::Options::ALL))),
    ];
    let mut either: Vec<Step<'_>> = Vec::new();
    if options.vm {
        either.push(("tests on an RDMA device", Box::new(vm::suites::run_all)));
    }
    if options.clients {
        either.push(("clients", Box::new(|| clients::run(&clients::Options::ALL))));
    }
    if options.fuzz_seconds > 0 {
        either.push((
            "fuzz",
            Box::new(|| fuzz::run(&fuzz::Options::all(options.fuzz_seconds))),
        ));
    }
    if options.mutants > 0 {
        either.push((
            "generated mutants",
            Box::new(|| generated::run(&generated::Options::brief(options.mutants))),
        ));
    }
    // What runs the test programs: they are built once.
    let mut tests: Vec<Step<'_>> = Vec::new();
    if !options.no_test {
        tests.push(("tests", Box::new(all_tests)));
    }
    tests.push(("blocks", Box::new(|| book::run_blocks(&book::BlockOptions::ALL))));
    if options.seeds > 0 {
        tests.push(("simulator", Box::new(|| sim::run_seeds(options.seeds, options.minutes))));
        if options.no_test {
            // They are among the tests.
            tests.push(("planted bugs", Box::new(|| sim::mutants(None))));
        }
    }
    if options.calls {
        tests.push(("memcheck", Box::new(memcheck::run)));
    }
    if options.packages {
        tests.push(("packages", Box::new(|| package::run(&package::Options::checked()))));
    }
    if options.c {
        tests.push(("c and go", Box::new(c::run)));
    }
    if options.python {
        tests.push(("python", Box::new(|| python::run(&python::Options::CHECKED))));
    }
    [checks, tests, either]
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let lanes = lanes(options);
    if let Some(name) = &options.only {
        let steps = || lanes.iter().flatten();
        let Some((_, step)) = steps().find(|(known, _)| known == name) else {
            let known: Vec<_> = steps().map(|(name, _)| *name).collect();
            bail!("there is no step `{name}`; there are: {}", known.join(", "));
        };
        let outcome = step();
        if let Ok(seconds) = step::processor_seconds() {
            eprintln!("    processors worked {seconds} s for it");
        }
        return outcome;
    }

    let count = lanes.iter().flatten().count();
    let failures = Mutex::new(Vec::new());
    let [checks, tests, either] = &lanes;
    let either = Mutex::new(either.iter());
    let next = || either.lock().expect("nobody panics while it is locked").next();
    let idle = step::idle_seconds();
    let ((), seconds) = step::timed(|| {
        std::thread::scope(|scope| {
            for steps in [checks, tests] {
                let (failures, next) = (&failures, &next);
                scope.spawn(move || {
                    for (name, _) in steps.iter().chain(core::iter::from_fn(next)) {
                        if let Err(failed) = run_step(name) {
                            failures
                                .lock()
                                .expect("nobody panics while it is locked")
                                .push((*name, failed));
                        }
                    }
                });
            }
        });
    });
    if let (Ok(before), Ok(after)) = (idle, step::idle_seconds()) {
        // More lanes would help if this were much.
        eprintln!("==> {seconds} s; processors had nothing to do for {} s", after - before);
    }
    let failures = failures.into_inner().expect("nobody panics while it is locked");
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

/// Runs one step and says how long that took; what it printed last if it failed.
fn run_step(name: &str) -> Result<(), VecDeque<String>> {
    eprintln!("==> {name}");
    let (outcome, seconds) = step::timed(|| run_alone(name));
    eprintln!("==> {name} took {seconds} s");
    match outcome {
        Ok(None) => Ok(()),
        Ok(Some(lines)) => Err(lines),
        Err(error) => Err(VecDeque::from([format!("{error:#}")])),
    }
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
        writeln!(std::io::stderr(), "[{name}] {line}")?;
        if lines.len() == LINES_SAID_AGAIN {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    Ok((!child.wait()?.success()).then_some(lines))
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

/// `./test` would build this program in its own way again, after CI has built it together with the tests.
fn all_tests() -> Result<()> {
    let mut command = Command::new("./test");
    command.env("XTASK", std::env::current_exe().context("this program has no path")?);
    step::run(command.current_dir(step::workspace_root()))
}

/// A link to an item that is gone is a warning of rustdoc.
fn documentation() -> Result<()> {
    let mut command = step::cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    step::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}
