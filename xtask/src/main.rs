//! Development commands: `cargo xtask` lists them.
//!
//! Each command is a thin layer over cargo, so that what CI does can be done, step by step, by hand. Nothing here is
//! part of the product, and no crate of the product may depend on it.

#![forbid(unsafe_code)]

mod book;
mod c;
mod ci;
mod clients;
mod deny;
mod fuzz;
mod generated;
mod header;
mod loom;
mod memcheck;
mod package;
mod python;
mod sanitize;
mod sim;
mod soak;
mod step;
mod test;
mod tidy;
mod vm;
mod weight;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Development commands of the Farside workspace"
)]
#[command(arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything a change must pass before a push: format, tidy, clippy, documentation, dependencies, tests, simulator
    Ci(ci::Options),
    /// The tests of the whole workspace; arguments go to `cargo test` (`cargo xtask test -p farside-pool epoch`)
    Test(test::Options),
    /// Check layers, file headers, forbidden names and marks, manifests, links, and ratchets
    Tidy,
    /// Run the simulated scenarios (`tests/it/simulation.rs` of every crate that has one) over a range of seeds
    Sim(sim::Options),
    /// Plant one bug after the other and demand that the simulator's checks notice each; `--generated`: any change of the
    /// protocols, and any test
    Mutants(generated::Options),
    /// Compare what fixed plans and scripts cost, exactly, with what is written down (`crates/*/ledger`)
    Ledger(sim::LedgerOptions),
    /// Kill, stop and cut off real processes at random, then check everything they did (`crates/farside/tests/it/soak`)
    Soak(soak::Options),
    /// Build the fuzz targets and run each for a few seconds
    Fuzz(fuzz::Options),
    /// Model-check the protocols between threads (`tests/loom.rs`)
    Loom(loom::Options),
    /// Run the tests that share memory between threads under the thread sanitizer (needs nightly with rust-src)
    Sanitize(sanitize::Options),
    /// Run the tests of the fabric, where nearly all `unsafe` is, under valgrind's memcheck
    Memcheck,
    /// Make packages: a Debian package with services, man pages and completions, and a container image
    Package(package::Options),
    /// Build the library for C, and run its suite, also under valgrind, and the tests of the Go package
    C,
    /// Write the header of the library for C, or check it (`--check`)
    Header(header::Options),
    /// Make the wheel for Python
    Python(python::Options),
    /// Try Redis clients of several languages, and redis-py's own tests, against the gateway
    Clients(clients::Options),
    /// Make the documents a site (needs mdbook)
    Book(book::Options),
    /// Run every block of the documents, and look for the options that they name
    Blocks(book::BlockOptions),
    /// Audit licences, advisories, sources and duplicates of the dependencies (needs cargo-deny)
    Deny,
    /// What the store weighs, against its budget: build time, code by crate, copies, instructions of a call (needs valgrind)
    Weight(weight::Options),
    /// Run a command in a virtual machine with a soft-RoCE device (`cargo xtask vm -- COMMAND...`)
    Vm(vm::Options),
    /// Run the tests that need an RDMA device, in that virtual machine
    VmTests(vm::suites::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Ci(options) => ci::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Tidy => tidy::run(),
        Command::Sim(options) => sim::run(&options),
        Command::Mutants(options) if options.is_generated() => generated::run(&options),
        Command::Mutants(options) => sim::mutants(options.rate()),
        Command::Ledger(options) => sim::ledger(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Loom(options) => loom::run(&options),
        Command::Sanitize(options) => sanitize::run(&options),
        Command::Memcheck => memcheck::run(),
        Command::Package(options) => package::run(&options),
        Command::C => c::run(),
        Command::Header(options) => header::run(&options),
        Command::Python(options) => python::run(&options),
        Command::Clients(options) => clients::run(&options),
        Command::Book(options) => book::run(&options),
        Command::Blocks(options) => book::run_blocks(&options),
        Command::Deny => deny::run(),
        Command::Weight(options) => weight::run(&options),
        // The status of what ran there is ours.
        Command::VmTests(options) => return vm::suites::run(&options).unwrap_or_else(|error| failed(&error)),
        Command::Vm(options) => return vm::run(&options).unwrap_or_else(|error| failed(&error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}
