//! The `farside` binary: one file per command.
//!
//! Exit status: 0 done; 1 done, and the answer is no (an absent key, a damaged pool), or it failed
//! under way; 2 wrong arguments, files or addresses, with one line that says what would be right.

#![forbid(unsafe_code)]

mod args;
mod backup;
mod config;
mod doctor;
mod fsck;
mod gateway;
mod group;
mod health;
mod kv;
mod list;
mod listen;
mod listeners;
mod metrics;
mod mirror;
mod node;
#[cfg(test)]
mod package;
mod pool;
mod rdma;
mod serve;
mod settings;
mod signal;
mod store;
mod unix_socket;

use std::process::ExitCode;

use args::Command;
use farside_cli::{explain, start_logging};
use farside_watch::top;
use settings::{Environment, Wrong};

/// What messages begin with.
const PROGRAM: &str = "farside";

fn main() -> ExitCode {
    let environment = Environment::new(std::env::vars_os());
    let (cli, warnings) = match settings::parse(std::env::args_os().collect(), &environment) {
        Ok(parsed) => parsed,
        Err(Wrong::Arguments(error)) => return explain(&error, PROGRAM, "serve"),
        Err(Wrong::Settings(failure)) => return failure.report(PROGRAM),
    };
    if let Err(failure) = start_logging(cli.log_format) {
        return failure.report(PROGRAM);
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Node(args) => node::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Config(args) => config::run(&args, &environment),
        Command::Kv(args) => kv::run(args),
        Command::Pool(args) => pool::run(args),
        Command::Export(args) => backup::export(args),
        Command::Import(args) => backup::import(args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Doctor(args) => doctor::run(args),
        Command::Top(args) => top::run(args),
        Command::Health(args) => health::run(&args),
        Command::RdmaCheck(args) => rdma::run(&args),
        Command::List => list::run(),
        Command::Moved(moved) => Err(moved.refuse()),
    };
    result.unwrap_or_else(|failure| failure.report(PROGRAM))
}
