//! The `farside-lab` binary: measurements, published figures, and the report of all of them.
//!
//! Exit status: 0 done; 1 it failed under way, or a figure did; 2 wrong arguments, files or addresses, with one line that
//! says what would be right.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::builder::styling::Styles;
use clap::{Parser, Subcommand};
use farside_cli::{LogFormat, explain, start_logging};
use farside_lab::cli::{BenchArgs, CalibrateArgs, FigureArgs, PROGRAM, ReportArgs, TraceArgs};

/// The laboratory of Farside: measures locks, stores and fabrics, and reproduces published figures.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, styles = Styles::plain(), infer_long_args = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The format of events on standard error; RUST_LOG selects which
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a lock, a store, a fabric or the latency of a GET
    Bench(Box<BenchArgs>),
    /// Run the sweep of a published figure and judge its claims
    Figure(FigureArgs),
    /// Run every figure that has no result yet, and put all of them on one HTML page
    Report(ReportArgs),
    /// Fit the constants of a NIC to its testbed's measurements, and show which claims depend on them
    Calibrate(CalibrateArgs),
    /// Write a trace of requests, for `bench objects --trace`
    Trace(TraceArgs),
    /// Show locks, workloads and figures
    List,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error, PROGRAM, "list"),
    };
    if let Err(failure) = start_logging(cli.log_format) {
        return failure.report(PROGRAM);
    }
    match cli.command {
        Command::Bench(args) => args.run(),
        Command::Figure(args) => args.run(),
        Command::Report(args) => args.run(),
        Command::Calibrate(args) => args.run(),
        Command::Trace(args) => args.run(),
        Command::List => list(),
    }
}

fn list() -> ExitCode {
    let mut text = String::new();
    for (name, lines) in farside_lab::catalogue() {
        text.push_str(&format!("{name}\n"));
        for (name, about) in lines {
            text.push_str(&format!("  {name:<22} {about}\n"));
        }
    }
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
