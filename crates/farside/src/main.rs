//! The `farside` binary: one file per command.
//!
//! Exit status: 0 done; 1 done, and the answer is no (an absent key, a damaged pool), or it failed
//! under way; 2 wrong arguments, files or addresses, with one line that says what would be right.

#![forbid(unsafe_code)]

mod args;
mod failure;
mod fsck;
mod gateway;
mod kv;
mod list;
mod listen;
mod listeners;
mod node;
mod scalar;
mod serve;
mod signal;
mod unix_socket;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::explain(&error),
    };
    start_logging();
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Node(args) => node::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Kv(args) => kv::run(args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Bench(args) => Ok(args.run()),
        Command::Figure(args) => Ok(args.run()),
        Command::List => list::run(),
    };
    result.unwrap_or_else(Failure::report)
}

/// Events go to standard error; RUST_LOG chooses them.
fn start_logging() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .compact()
        .init();
}
