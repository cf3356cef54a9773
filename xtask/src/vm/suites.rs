//! `cargo xtask vm-tests`: the tests that need an RDMA device, in the virtual machine.
//!
//! Everywhere else they are ignored. Here one that finds no device fails, and so does a suite of which no test is left.
//! An emulated machine takes its time, so of the locks only some are run unless all are asked for.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::step;
use crate::test::{IT, Program};

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
        target: IT,
        all: "on_rdma",
        usual: &["on_rdma"],
    },
    Suite {
        package: "farside-lock",
        target: IT,
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
        target: IT,
        all: "rdma::",
        usual: &["rdma::"],
    },
    Suite {
        package: "farside-lab",
        target: IT,
        all: "rdma::",
        usual: &["rdma::"],
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
    let programs = Program::build(&[])?;
    for suite in &SUITES {
        let program = Program::find(&programs, suite.package, suite.target)?;
        // Elsewhere they are ignored.
        let tests: Vec<String> = program
            .tests(&["--ignored", suite.all])?
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
            let (binary, tests) = (step::quoted(&program.binary.to_string_lossy()), tests.join(" "));
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
            (None, false, "conformance::cas::over_rdma::x", true),
            (None, false, "conformance::cas_rw::over_rdma::x", false),
            (None, true, "conformance::cas_rw::over_rdma::x", true),
            (Some("cas_rw"), false, "conformance::cas_rw::over_rdma::x", true),
            (Some("cas_rw"), true, "conformance::cas::over_rdma::x", false),
        ] {
            assert_eq!(
                options(filter, all).wants(locks, name),
                expected,
                "{filter:?} {all} {name}"
            );
        }
    }
}
