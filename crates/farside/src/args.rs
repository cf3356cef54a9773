//! The command line, and one line for whatever is wrong with it.

use std::ffi::OsString;

use clap::builder::styling::Styles;
use clap::{Args, Parser, Subcommand};

use farside_cli::{Failure, LogFormat};

use farside_watch::top;

use crate::{backup, config, doctor, fsck, gateway, health, kv, node, pool, rdma, serve};

/// A key-value store for far memory: memory that processes or machines share.
#[derive(Debug, Parser)]
#[command(name = "farside", version, styles = Styles::plain(), infer_long_args = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// The format of events on standard error; RUST_LOG selects which
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
    /// Ask a server that was started with --metrics whether it is ready to serve clients
    Health(health::HealthArgs),
    /// Read, change and list keys directly in the memory, without a gateway
    Kv(kv::KvArgs),
    /// Show the memory nodes of a pool, add one, or drain one, while clients work
    #[command(arg_required_else_help = false)]
    Pool(pool::PoolCommand),
    /// Write all keys, as they are at one instant, to a file that Redis reads
    Export(backup::ExportArgs),
    /// Store the keys of such a file, or of a Redis server's
    Import(backup::ImportArgs),
    /// Walk every structure of a pool and report what is wrong
    Fsck(fsck::FsckArgs),
    /// Look at this machine and at a pool, say what is wrong, and which command helps; exit status 1 if anything is
    Doctor(doctor::DoctorArgs),
    /// Check a settings file as the servers read it, or print an example
    Config(config::ConfigArgs),
    /// Show this machine's RDMA devices, test them, and report which verbs are native and which are emulated
    RdmaCheck(rdma::CheckArgs),
    /// Show fabrics, indexes, schemes, locks and commands
    List,
    #[command(flatten)]
    Moved(Moved),
}

/// What the laboratory does, a program of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Moved {
    #[command(hide = true, disable_help_flag = true)]
    Bench(Rest),
    #[command(hide = true, disable_help_flag = true)]
    Figure(Rest),
    #[command(hide = true, disable_help_flag = true)]
    Report(Rest),
}

/// Arguments for another program.
#[derive(Debug, Args)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Moved {
    /// Says which command it is now.
    pub(crate) fn refuse(&self) -> Failure {
        let (name, rest) = match self {
            Self::Bench(rest) => ("bench", rest),
            Self::Figure(rest) => ("figure", rest),
            Self::Report(rest) => ("report", rest),
        };
        let mut command = format!("./lab {name}");
        for argument in &rest.arguments {
            command.push(' ');
            command.push_str(&argument.to_string_lossy());
        }
        Failure::usage(format!(
            "measurements and figures are the laboratory's, the program farside-lab: {command}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn line(arguments: &[&str]) -> String {
        let arguments = ["farside"].iter().chain(arguments);
        farside_cli::one_line(
            &Cli::try_parse_from(arguments).expect_err("it is wrong"),
            "farside",
            "serve",
        )
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
            (&["serve", "--maxmemory", "some"], "such as 1GiB, or 0"),
            (&["serve", "--maxclients", "0"], "--maxclients"),
            (&["serve", "--timeout", "2147483648"], "--timeout"),
            (&["serve", "--slowlog-log-slower-than", "-2"], "-1.."),
            (&["config"], "example"),
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
            (&["health", "--connect", "9121"], "HOST:PORT"),
            (&["kv", "--pool", "shm:/x"], "get"),
            (&["fsck", "--pool", "rdma:x"], "rdma:HOST:PORT"),
            (&["doctor", "--pool", "here"], "shm:PATH"),
            (&["doctor", "--secret-file", "/x"], "--pool"),
            (
                &["pool"],
                "status, add-node, add-backup, replace, promote, remove-backup, drain",
            ),
            (&["pool", "promote", "--pool", "tcp:a:1"], "HOST:PORT"),
            (
                &["node", "--segment", "/x", "--mirrored", "--backup-of", "a:1"],
                "--backup-of",
            ),
            (&["node", "--segment", "/x", "--lease", "5"], "50..=60000"),
            (&["pool", "status"], "--pool"),
            (&["pool", "add-node", "--pool", "shm:/x", "here"], "shm:PATH"),
            (&["pool", "add-node", "--pool", "shm:/x", "rdma:a:1"], "tcp:HOST:PORT"),
            (&["pool", "drain", "--pool", "shm:/x", "512"], "0..512"),
            (&["rdma-check", "--rdma-port", "0"], "--rdma-port"),
        ] {
            let line = line(arguments);
            assert!(line.contains(hint) && !line.contains('\n'), "{arguments:?}: {line}");
        }
    }

    #[test]
    fn what_the_laboratory_does_is_named_with_its_arguments() {
        for (arguments, command) in [
            (
                &["farside", "bench", "lock", "--fabric", "sim", "--help"][..],
                "./lab bench lock --fabric sim --help",
            ),
            (&["farside", "figure", "cider-1"], "./lab figure cider-1"),
            (&["farside", "report"], "./lab report"),
        ] {
            let Ok(Command::Moved(moved)) = Cli::try_parse_from(arguments).map(|cli| cli.command) else {
                panic!("{arguments:?} is known");
            };
            let line = format!("{:?}", moved.refuse());
            assert!(line.contains(&format!("{command}\"")), "{line}");
        }
    }
}
