//! `cargo xtask sim`: the simulated scenarios over a range of seeds; `cargo xtask mutants`: the harness tested by planted
//! bugs.
//!
//! A crate keeps its simulated scenarios in the module `simulation` of its `tests/it`; every such test is found by its name,
//! there is no list. The contract with the test are environment variables:
//!
//! - `FARSIDE_SEED`: the first seed (default 1);
//! - `FARSIDE_SEEDS`: how many seeds to run, counting up (a small number by default, so that plain `cargo test` is quick);
//! - for the harness (`farside-sim`) also `FARSIDE_EACH`, `FARSIDE_SECONDS`, `FARSIDE_TARGET`, `FARSIDE_PLAN` and
//!   `FARSIDE_SHRINK`; see its test.
//!
//! The test runs its scenarios with every seed and panics with the seed that failed. The programs are those that `./test`
//! runs, with the bugs planted and none of them switched on, so nothing is built for this alone.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::step;
use crate::test::{IT, Program};

/// How the names of the tests begin that understand the variables.
const SCENARIOS: &str = "simulation::";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many seeds to run
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// So many seeds of each target instead, all alike
    #[arg(long, value_name = "SEEDS", conflicts_with = "seeds")]
    each: Option<u64>,
    /// As many seeds of each target as fit in so many minutes, fresh ones unless `--seed` says where to begin
    #[arg(long, conflicts_with_all = ["seeds", "each"])]
    minutes: Option<f64>,
    /// The first seed; 1 if nothing else is said
    #[arg(long)]
    seed: Option<u64>,
    /// Begin with a seed that nobody has chosen; it is printed
    #[arg(long, conflicts_with = "seed")]
    fresh: bool,
    /// Only this crate
    #[arg(long, short)]
    package: Option<String>,
    /// Only stores and locks with this in their name, such as `lock:` or `pointer-array`
    #[arg(long)]
    target: Option<String>,
    /// Replay this plan (a file that a failing run has kept) instead of seeds
    #[arg(long, conflicts_with_all = ["seed", "fresh"])]
    plan: Option<PathBuf>,
    /// Make a failing plan small with at most so many runs; 0 leaves it as it is
    #[arg(long)]
    shrink: Option<u64>,
    /// Only scenarios whose name contains this
    scenario: Option<String>,
    /// Show only what failing scenarios print
    #[arg(long)]
    quiet: bool,
}

/// The crate of the harness, which alone knows targets and plans.
const HARNESS: &str = "farside-sim";

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.seeds == 0 {
        bail!("--seeds must be at least 1");
    }
    if let Some(plan) = &options.plan {
        std::fs::metadata(plan).with_context(|| format!("there is no plan at {}", plan.display()))?;
    }
    let seconds = options.minutes.map(|minutes| (minutes * 60.0).ceil().max(1.0) as u64);
    let is_for_harness =
        options.target.is_some() || options.plan.is_some() || options.each.is_some() || seconds.is_some();
    let package = options.package.as_deref().or(is_for_harness.then_some(HARNESS));
    let programs = scenarios(package, options.scenario.as_deref())?;
    let first = match options.seed {
        Some(seed) => seed,
        None if options.fresh || seconds.is_some() => fresh_seed(),
        None => 1,
    };
    let mut failures = Vec::new();
    for (program, tests) in &programs {
        let package = &program.package;
        let mut command = program.command();
        if let Some(plan) = &options.plan {
            eprintln!("==> {package}: the plan of {}", plan.display());
            command.env("FARSIDE_PLAN", std::path::absolute(plan)?);
        } else {
            match (options.each, seconds) {
                (Some(count), _) => eprintln!("==> {package}: {count} seeds of each target from {first}"),
                (_, Some(seconds)) => eprintln!("==> {package}: {seconds} s of seeds of each target from {first}"),
                _ => eprintln!("==> {package}: {} seeds from {first}", options.seeds),
            }
            command
                .env("FARSIDE_SEED", first.to_string())
                .env("FARSIDE_SEEDS", options.seeds.to_string());
        }
        let settings = [
            ("FARSIDE_EACH", options.each.map(|count| count.to_string())),
            ("FARSIDE_SECONDS", seconds.map(|seconds| seconds.to_string())),
            ("FARSIDE_TARGET", options.target.clone()),
            ("FARSIDE_SHRINK", options.shrink.map(|runs| runs.to_string())),
        ];
        for (name, value) in settings {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        match options.scenario {
            Some(_) => command.arg("--exact").args(tests),
            None => command.arg(SCENARIOS),
        };
        if !options.quiet {
            command.arg("--nocapture");
        }
        if let Err(error) = step::run(&mut command) {
            eprintln!("xtask: {error:#}");
            failures.push(package.as_str());
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    // The seed means nothing without the code it was drawn for.
    bail!(
        "scenarios failed in {} at commit {}; replay one with `cargo xtask sim --seeds 1 --seed SEED -p CRATE SCENARIO`",
        failures.join(", "),
        commit().as_deref().unwrap_or("(unknown)")
    );
}

/// Plants one bug after the other and demands that the harness notices each; or says how many of so many seeds do.
pub(crate) fn mutants(rate: Option<u64>) -> Result<()> {
    let programs = Program::build(&["--test", IT])?;
    let harness = Program::find(&programs, HARNESS, IT)?;
    let mut command = harness.command();
    if let Some(seeds) = rate {
        command.env("FARSIDE_RATE", seeds.to_string());
    }
    step::run(command.args(["mutants::", "--nocapture"]))
}

#[derive(clap::Args)]
pub(crate) struct LedgerOptions {
    /// Write down what is so now
    #[arg(long)]
    renew: bool,
}

/// How the names of the tests begin that compare with what is written down.
const LEDGERS: &str = "ledger::";

/// Compares what plans and operations cost with the ledgers, or renews them.
pub(crate) fn ledger(options: &LedgerOptions) -> Result<()> {
    let mut has_failed = Vec::new();
    for program in Program::build(&["--test", IT])? {
        if program.tests(&[LEDGERS])?.is_empty() {
            continue;
        }
        let mut command = program.command();
        if options.renew {
            command.env("FARSIDE_RENEW", "1");
        }
        if let Err(error) = step::run(command.arg(LEDGERS)) {
            eprintln!("xtask: {error:#}");
            has_failed.push(program.package);
        }
    }
    if !has_failed.is_empty() {
        bail!("{} cost something else than before", has_failed.join(" and "));
    }
    Ok(())
}

/// A seed that differs from run to run, and leaves room above it.
pub(crate) fn fresh_seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a seed from outside is what is wanted here")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_micros() as u64 % 1_000_000_000_000)
}

/// Runs `seeds` seeds of everything there is, half of them always the same, half of them fresh, and for some time fresh ones
/// of each target.
pub(crate) fn run_seeds(seeds: u64, minutes: f64) -> Result<()> {
    let half = |fresh| Options {
        seeds: seeds.div_ceil(2),
        each: None,
        minutes: None,
        seed: None,
        fresh,
        package: None,
        target: None,
        plan: None,
        shrink: None,
        scenario: None,
        quiet: true,
    };
    let each = Options {
        minutes: Some(minutes),
        quiet: false,
        ..half(true)
    };
    run(&half(false))?;
    run(&half(true))?;
    if minutes > 0.0 { run(&each) } else { Ok(()) }
}

/// The programs that have scenarios with this in their names, and these names; of one package, if one is given.
fn scenarios(package: Option<&str>, part: Option<&str>) -> Result<Vec<(Program, Vec<String>)>> {
    let part = part.unwrap_or_default();
    let mut found = Vec::new();
    for program in Program::build(&["--test", IT])? {
        if package.is_none_or(|package| program.package == package) {
            let mut tests = program.tests(&[SCENARIOS])?;
            tests.retain(|test| test.strip_prefix(SCENARIOS).is_some_and(|name| name.contains(part)));
            found.push((program, tests));
        }
    }
    found.retain(|(_, tests)| !tests.is_empty());
    if found.is_empty() {
        bail!(
            "there is no test `{SCENARIOS}...{part}` in {}",
            package.unwrap_or("any crate")
        );
    }
    Ok(found)
}

/// The commit checked out, marked when files differ from it. A tree without git is no reason to fail.
fn commit() -> Option<String> {
    let output = std::process::Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(step::workspace_root())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
