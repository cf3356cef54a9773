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
mod logging;
mod metrics;
mod node;
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
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::explain(&error),
    };
    if let Err(failure) = logging::start(cli.log_format) {
        return failure.report();
    }
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Node(args) => node::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Kv(args) => kv::run(args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Bench(args) => Ok(args.run()),
        Command::Figure(args) => Ok(args.run()),
        Command::Report(args) => Ok(args.run()),
        Command::Top(args) => top::run(args),
        Command::RdmaCheck(args) => rdma::run(&args),
        Command::List => list::run(),
    };
    result.unwrap_or_else(Failure::report)
}
