//! `cargo xtask sim`: the simulated scenarios over a range of seeds.
//!
//! A crate keeps its simulated scenarios in `tests/simulation.rs`; every such test is found through cargo, there is no
//! list. The contract with the test is two environment variables:
//!
//! - `FARSIDE_SEED`: the first seed (default 1);
//! - `FARSIDE_SEEDS`: how many seeds to run, counting up (a small number by default, so that plain `cargo test` is quick).
//!
//! The test runs every scenario with every seed in one process and panics with the seed that failed. The release profile
//! is used: many seeds matter more than one quick build.

use anyhow::{Result, bail};
use cargo_metadata::{MetadataCommand, TargetKind};

use crate::step;

/// File name (without `.rs`) of the tests that understand the two variables.
const TARGET: &str = "simulation";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many seeds to run
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this crate
    #[arg(long, short)]
    package: Option<String>,
    /// Only scenarios whose name contains this
    scenario: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.seeds == 0 {
        bail!("--seeds must be at least 1");
    }
    let mut packages = packages_with_scenarios()?;
    if let Some(package) = &options.package {
        packages.retain(|name| name == package);
    }
    if packages.is_empty() {
        let place = options.package.as_deref().unwrap_or("any crate");
        bail!("there is no test named `{TARGET}` in {place}");
    }
    let mut failures = Vec::new();
    for package in &packages {
        eprintln!("==> {package}: {} seeds from {}", options.seeds, options.seed);
        let mut command = step::cargo(["test", "--release", "--package", package, "--test", TARGET]);
        command
            .env("FARSIDE_SEED", options.seed.to_string())
            .env("FARSIDE_SEEDS", options.seeds.to_string());
        command.args(&options.scenario);
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

/// Runs `seeds` seeds of everything there is. Before the first scenario is written there is nothing to run.
pub(crate) fn run_seeds(seeds: u64) -> Result<()> {
    if packages_with_scenarios()?.is_empty() {
        eprintln!("    no crate has a test named `{TARGET}` yet");
        return Ok(());
    }
    run(&Options {
        seeds,
        seed: 1,
        package: None,
        scenario: None,
    })
}

fn packages_with_scenarios() -> Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .cargo_path(step::cargo_path())
        .current_dir(step::workspace_root())
        .no_deps()
        .exec()?;
    let has_scenarios = |package: &cargo_metadata::Package| {
        package
            .targets
            .iter()
            .any(|target| target.is_kind(TargetKind::Test) && target.name == TARGET)
    };
    Ok(metadata
        .packages
        .iter()
        .filter(|package| has_scenarios(package))
        .map(|p| p.name.to_string())
        .collect())
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
