//! The `farside` binary: one file per command.
//!
//! Exit status: 0 done; 1 done, and the answer is no (an absent key, a damaged pool), or it failed
//! under way; 2 wrong arguments, files or addresses, with one line that says what would be right.

#![forbid(unsafe_code)]

mod args;
mod fsck;
mod gateway;
mod kv;
mod list;
mod listen;
mod listeners;
mod metrics;
mod node;
#[cfg(test)]
mod package;
mod rdma;
mod scalar;
mod serve;
mod signal;
mod store;
mod top;
mod unix_socket;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use farside_cli::{explain, start_logging};

/// What messages begin with.
const PROGRAM: &str = "farside";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error, PROGRAM, "serve"),
    };
    if let Err(failure) = start_logging(cli.log_format) {
        return failure.report(PROGRAM);
    }
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Node(args) => node::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Kv(args) => kv::run(args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Top(args) => top::run(args),
        Command::RdmaCheck(args) => rdma::run(&args),
        Command::List => list::run(),
        Command::Moved(moved) => Err(moved.refuse()),
    };
    result.unwrap_or_else(|failure| failure.report(PROGRAM))
}
