//! `farside bench` alone: what it takes is built in a fraction of the time that all of `farside` takes.
//!
//!     cargo run --profile sim -p farside-bench --features peers --example bench -- bench embedded --ordered

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farside_bench::cli::BenchArgs;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure.
    Bench(BenchArgs),
}

fn main() -> ExitCode {
    let Command::Bench(args) = Arguments::parse().command;
    args.run()
}
