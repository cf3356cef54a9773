//! `cargo xtask memcheck`: the tests of the fabric under valgrind's memcheck. All `unsafe` is there, but for that of the edges to other
//! languages: `cargo xtask c` runs the library for C in the same way, and `cargo xtask python --check` the extension module.
//!
//! It runs the test programs that `./test` has built; processes that they start run outside of it.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::step;
use crate::test::{IT, Program};

/// What runs: the target, and which of its tests.
const TESTS: &[(&str, &[&str])] = &[
    ("farside_fabric", &[]),
    (IT, &["conformance::shm", "conformance::on_tcp_and_mapped"]),
];

pub(crate) fn run() -> Result<()> {
    // All of them: asked for libraries by name, cargo would also build that for Python, which no test needs.
    let programs = Program::build(&[])?;
    for &(target, tests) in TESTS {
        let program = Program::find(&programs, "farside-fabric", target)?;
        let mut command = program.wrapped("valgrind", &["--quiet", "--error-exitcode=9", "--leak-check=no"]);
        command.args(tests).arg("--quiet");
        run_one(&mut command)?;
    }
    Ok(())
}

fn run_one(command: &mut Command) -> Result<()> {
    let line = step::command_line(command);
    eprintln!("    $ {line}");
    let status = command
        .status()
        .context("failed to start valgrind (Debian: valgrind)")?;
    if status.code() == Some(9) {
        bail!("`{line}` has used memory that is not its own, or has no value; see above");
    }
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}
