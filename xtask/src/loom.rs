//! `cargo xtask loom`: small pieces of the protocols between threads, in every order that the memory model allows.
//!
//! The tests are the files `tests/loom.rs` of the crates. `--cfg loom` swaps the atomics of the fabric's regions for those
//! of loom, which runs each test again and again: every interleaving of its threads with at most so many preemptions,
//! and every value that a load may return. The build has a folder of its own below `target/`, since the flag
//! concerns every crate.

use anyhow::{Result, bail};

use crate::step;

/// The crates that have such tests.
const PACKAGES: [&str; 2] = ["farside-fabric", "farside-pool"];
/// What runs for most of the time, beside them.
const OPTIMISED: [&str; 2] = ["loom", "generator"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this crate
    #[arg(long, short)]
    package: Option<String>,
    /// How many preemptions an interleaving has at most, instead of what each test says
    #[arg(long)]
    preemptions: Option<u32>,
    /// Only tests whose name contains this
    test: Option<String>,
}

impl Options {
    /// Every test, as it says itself.
    pub(crate) const ALL: Self = Self {
        package: None,
        preemptions: None,
        test: None,
    };
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let packages: Vec<&str> = PACKAGES
        .into_iter()
        .filter(|&name| options.package.as_deref().is_none_or(|only| only == name))
        .collect();
    if packages.is_empty() {
        bail!("only {} have loom tests", PACKAGES.join(" and "));
    }
    // All at once: one after the other would build what is below with other features again.
    let mut command = step::cargo(["test", "--release", "--no-fail-fast", "--test", "loom"]);
    for package in packages {
        command.args(["--package", package]);
    }
    command
        .env("CARGO_TARGET_DIR", step::workspace_root().join("target/loom"))
        .env("CARGO_ENCODED_RUSTFLAGS", "--cfg=loom")
        // The linking of a program that runs once would take longer than it does, and so would the optimising of what is
        // outside the workspace, but for loom itself.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .args(["--config", r#"profile.release.package."*".opt-level=0"#])
        .args(OPTIMISED.map(|name| format!("--config=profile.release.package.{name}.opt-level=3")))
        .args(&options.test);
    if let Some(preemptions) = options.preemptions {
        command.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    step::run(&mut command)
}
