//! `farside bench` and `farside figure` alone: what they take is built in a fraction of the time that all of `farside` takes.
//!
//!     cargo run --profile sim -p farside-bench --features peers --example bench -- bench embedded --ordered
//!     cargo run --profile sim -p farside-bench --example bench -- figure chime-12 --quick

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farside_bench::cli::{BenchArgs, FigureArgs};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure.
    Bench(Box<BenchArgs>),
    /// Run the sweep of a published figure and judge its claims.
    Figure(FigureArgs),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Bench(args) => args.run(),
        Command::Figure(args) => args.run(),
    }
}
