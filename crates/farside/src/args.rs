//! The command line, and one line for whatever is wrong with it.

use std::process::ExitCode;

use clap::builder::styling::Styles;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::logging::LogFormat;
use crate::{fsck, gateway, kv, node, rdma, serve, top};

/// A key-value store for far memory: memory that processes or machines share.
#[derive(Debug, Parser)]
#[command(name = "farside", version, styles = Styles::plain(), infer_long_args = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How events are printed on standard error; RUST_LOG chooses them
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// One per file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a store that Redis clients can use: memory node and gateway in one process
    Serve(serve::ServeArgs),
    /// Start a memory node; clients map its segment or use TCP
    Node(node::NodeArgs),
    /// Start a stateless gateway for Redis clients to a pool of memory nodes
    Gateway(gateway::GatewayArgs),
    /// Watch a gateway: throughput, latencies, hot keys, memory
    Top(top::TopArgs),
    /// Read, change and list keys straight in the memory, without a gateway
    Kv(kv::KvArgs),
    /// Walk every structure of a pool and say what is wrong
    Fsck(fsck::FsckArgs),
    /// Measure a lock, a store, a fabric or the latency of a GET
    Bench(farside_bench::cli::BenchArgs),
    /// Run the sweep of a published figure and judge its claims
    Figure(farside_bench::cli::FigureArgs),
    /// Run every figure that has no result yet, and put all of them on one HTML page
    Report(farside_bench::cli::ReportArgs),
    /// Show this machine's RDMA devices, try them, and say which verbs are native and which emulated
    RdmaCheck(rdma::CheckArgs),
    /// Show fabrics, indexes, schemes and commands
    List,
}

/// Prints help or version; reduces an error to one line with a hint.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed pipe is the reader's choice.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    eprintln!("farside: {}", one_line(error));
    ExitCode::from(2)
}

fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "name a command, such as `farside serve`; `farside --help` lists them".to_owned();
    }
    let text = error.to_string();
    let mut what = Vec::new();
    let mut tips = Vec::new();
    let mut is_head = true;
    for line in text.lines().map(str::trim) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            tips.push(tip.to_owned());
        } else if line.is_empty() || line.starts_with("Usage:") {
            is_head = false;
        } else if is_head {
            what.push(line.strip_prefix("error: ").unwrap_or(line).to_owned());
        } else if line.starts_with("[possible values") {
            what.push(line.to_owned());
        }
    }
    // The usage names the command whose help explains more.
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
    let words = usage.unwrap_or("farside").split(' ');
    let command: Vec<&str> = words.take_while(|word| !word.starts_with(['-', '[', '<'])).collect();
    let mut line = what.join(" ");
    for tip in tips {
        line = format!("{line}; {tip}");
    }
    format!("{line}; see `{} --help`", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn line(arguments: &[&str]) -> String {
        let arguments = ["farside"].iter().chain(arguments);
        one_line(&Cli::try_parse_from(arguments).expect_err("it is wrong"))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn errors_are_one_line_that_says_what_would_be_right() {
        for (arguments, hint) in [
            (&[][..], "name a command"),
            (&["sevre"], "serve"),
            (&["serve", "--memry", "1GiB"], "--memory"),
            (&["serve", "--memory", "lots"], "such as 1GiB"),
            (&["serve", "--listen", "6380"], "HOST:PORT"),
            (&["serve", "--index", "hash"], "race, pointer-array"),
            (&["serve", "--sync", "pessimistic"], "optimistic"),
            (&["serve", "--threads", "0"], "--threads"),
            (&["serve", "--maxmemory", "0"], "such as 1GiB"),
            (&["serve", "--maxmemory-policy", "lru"], "allkeys-lru"),
            (&["gateway", "--pool", "shm:/x", "--maxmemory-samples", "65"], "64"),
            (&["node"], "--segment"),
            (&["gateway"], "--pool"),
            (&["gateway", "--pool", "/tmp/x"], "shm:PATH"),
            (&["serve", "--metrics", "9121"], "HOST:PORT"),
            (&["serve", "--metrics-public"], "--metrics"),
            (&["serve", "--log-format", "xml"], "text, json"),
            (&["top", "--connect", "here"], "HOST:PORT"),
            (&["top", "--json"], "--once"),
            (&["kv", "--pool", "shm:/x"], "get"),
            (&["fsck", "--pool", "rdma:x"], "rdma:HOST:PORT"),
            (&["rdma-check", "--rdma-port", "0"], "--rdma-port"),
        ] {
            let line = line(arguments);
            assert!(line.contains(hint) && !line.contains('\n'), "{arguments:?}: {line}");
        }
    }
}
