//! `cargo xtask vm-tests`: the tests that need an RDMA device, in the virtual machine.
//!
//! Everywhere else they are ignored. Here one that finds no device fails, and so does a suite of which no test is left.
//! An emulated machine takes its time, so of the locks only some are run unless all are asked for.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Artifact, Message};

use crate::step;

/// Some tests.
struct Suite {
    /// The package they are in.
    package: &'static str,
    /// The target they are in, as cargo names it.
    target: &'static str,
    /// A part of the name of each of them.
    all: &'static str,
    /// Those that are run unless all are asked for: one part or another of their names.
    usual: &'static [&'static str],
}

const SUITES: [Suite; 5] = [
    Suite {
        package: "farside-fabric",
        target: "farside_fabric",
        all: "rdma",
        usual: &["rdma"],
    },
    Suite {
        package: "farside-fabric",
        target: "conformance",
        all: "on_rdma",
        usual: &["on_rdma"],
    },
    Suite {
        package: "farside-lock",
        target: "conformance",
        all: "over_rdma",
        // A word that is swapped, one that is added to, a queue of clients, a queue at the node, and one that is refused.
        usual: &[
            "cas::over_rdma",
            "dslr::over_rdma",
            "mcs::over_rdma",
            "declock::over_rdma",
            "shiftlock::over_rdma",
        ],
    },
    Suite {
        package: "farside",
        target: "rdma",
        all: "rdma",
        usual: &["rdma"],
    },
    Suite {
        package: "farside-lab",
        target: "rdma",
        all: "rdma",
        usual: &["rdma"],
    },
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only tests whose names contain this
    filter: Option<String>,
    /// Every lock, not only one of each kind
    #[arg(long)]
    all: bool,
    /// After so many seconds they have failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

impl Options {
    fn wants(&self, suite: &Suite, test: &str) -> bool {
        match &self.filter {
            Some(part) => test.contains(part),
            None => self.all || suite.usual.iter().any(|part| test.contains(part)),
        }
    }
}

/// What CI wants.
pub(crate) fn run_all() -> Result<()> {
    let options = Options {
        filter: None,
        all: false,
        timeout: 600,
    };
    if run(&options)? == ExitCode::SUCCESS {
        return Ok(());
    }
    bail!("tests failed in the virtual machine");
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut script = String::from("status=0\n");
    let built = build_tests()?;
    for suite in &SUITES {
        let binary = binary_of(suite, &built)?;
        let tests: Vec<String> = list(&binary, suite.all)?
            .iter()
            .filter(|name| options.wants(suite, name))
            .map(|name| step::quoted(name))
            .collect();
        if tests.is_empty() && options.filter.is_none() {
            bail!(
                "no test is left of `{}` in {} of {}",
                suite.all,
                suite.target,
                suite.package
            );
        }
        if !tests.is_empty() {
            let (binary, tests) = (step::quoted(&binary.to_string_lossy()), tests.join(" "));
            // One at a time: some take the link down.
            script.push_str(&format!(
                "{binary} --ignored --exact {tests} --test-threads 1 --color never || status=1\n"
            ));
        }
    }
    script.push_str("exit $status");
    let command = ["bash", "-c", &script].map(str::to_owned);
    super::run(&super::Options {
        timeout: options.timeout,
        command: command.to_vec(),
        ..super::Options::default()
    })
}

/// Builds the tests of the whole workspace, as `./test` does: one package alone has other features, and everything below
/// it would be built once more.
fn build_tests() -> Result<Vec<Artifact>> {
    let mut command = step::cargo([
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    command.stdout(Stdio::piped());
    let line = step::command_line(&command);
    eprintln!("    $ {line}");
    let mut child = command.spawn().with_context(|| format!("failed to start `{line}`"))?;
    let output = child.stdout.take().expect("it was asked for");
    let mut built = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
        {
            built.push(artifact);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(built)
}

/// Where the tests of a suite are.
fn binary_of(suite: &Suite, built: &[Artifact]) -> Result<PathBuf> {
    let folder = format!("/{}#", suite.package);
    let found = built
        .iter()
        .find(|artifact| artifact.target.name == suite.target && artifact.package_id.repr.contains(&folder));
    let binary = found.and_then(|artifact| artifact.executable.clone());
    let binary = binary.with_context(|| format!("there is no test {} in {}", suite.target, suite.package))?;
    Ok(binary.into_std_path_buf())
}

/// The tests that are ignored elsewhere.
fn list(binary: &Path, part: &str) -> Result<Vec<String>> {
    let output = Command::new(binary)
        .args(["--list", "--ignored", part])
        .output()
        .with_context(|| format!("failed to start {}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reaches_every_lock_and_nothing_else_does_but_all() {
        let options = |filter: Option<&str>, all| Options {
            filter: filter.map(str::to_owned),
            all,
            timeout: 1,
        };
        let locks = &SUITES[2];
        for (filter, all, name, expected) in [
            (None, false, "cas::over_rdma::x", true),
            (None, false, "cas_rw::over_rdma::x", false),
            (None, true, "cas_rw::over_rdma::x", true),
            (Some("cas_rw"), false, "cas_rw::over_rdma::x", true),
            (Some("cas_rw"), true, "cas::over_rdma::x", false),
        ] {
            assert_eq!(
                options(filter, all).wants(locks, name),
                expected,
                "{filter:?} {all} {name}"
            );
        }
    }
}
