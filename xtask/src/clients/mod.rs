//! `cargo xtask clients [NAME...]`: Redis clients of several languages, each by a program of ours in its own language, against
//! `farside serve`; and redis-py's own tests. docs/clients.md has the table.
//!
//! Clients come in the versions of their lock files (`go.sum`, `SHA256SUMS`, `Cargo.lock`, `requirements.txt`) and go to
//! `target/clients`. One whose tool this machine does not have is skipped, and that is said. A program prints `restart` when the
//! server is to be killed and started again on the same segment, waits for a line, and prints `done` at its end.

mod python;
mod server;
mod tried;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use self::server::Server;
use crate::{package, step, weight};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Options {
    /// What CI wants.
    pub(crate) const ALL: Self = Self { names: Vec::new() };
}

/// What became of one client.
enum Outcome {
    Tried,
    /// Why not.
    Skipped(String),
}

/// How a client is tried.
type Trial = fn(&Workplace) -> Result<Outcome>;

const CLIENTS: &[(&str, Trial)] = &[
    ("go-redis", tried::go_redis),
    ("redis_exporter", tried::exporter),
    ("jedis", tried::jedis),
    ("lettuce", tried::lettuce),
    ("hiredis", tried::hiredis),
    ("redis-rs", tried::redis_rs),
    ("node", tried::node),
    ("memtier", tried::memtier),
    ("redis-py", python::programs),
    ("redis-py-suite", python::suite),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let known = || CLIENTS.iter().map(|(name, _)| *name);
    if let Some(stranger) = options.names.iter().find(|name| !known().any(|known| known == *name)) {
        let known: Vec<_> = known().collect();
        bail!("there is no client `{stranger}`; there are: {}", known.join(", "));
    }
    let workplace = Workplace::prepare()?;
    let (mut failures, mut skipped) = (Vec::new(), Vec::new());
    for (name, trial) in CLIENTS {
        if !options.names.is_empty() && !options.names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let (outcome, seconds) = step::timed(|| trial(&workplace));
        match outcome {
            Ok(Outcome::Tried) => eprintln!("    {name} is well ({seconds} s)"),
            Ok(Outcome::Skipped(why)) => {
                eprintln!("    {name} is skipped: {why}");
                skipped.push(*name);
            }
            Err(error) => {
                eprintln!("    {name} FAILED ({seconds} s): {error:#}");
                failures.push(*name);
            }
        }
    }
    if !skipped.is_empty() {
        eprintln!(
            "    skipped, since this machine does not have what they need: {}",
            skipped.join(", ")
        );
    }
    if !failures.is_empty() {
        bail!("clients that failed: {}", failures.join(", "));
    }
    Ok(())
}

/// What all trials use.
struct Workplace {
    /// `farside`.
    program: PathBuf,
    /// Where clients and segments lie.
    folder: PathBuf,
    /// Our programs.
    sources: PathBuf,
}

impl Workplace {
    fn prepare() -> Result<Self> {
        let root = step::workspace_root();
        let folder = root.join("target/clients");
        std::fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
        // Says to backup programs and to `cargo xtask tidy` that nothing here is ours to keep.
        std::fs::write(
            folder.join("CACHEDIR.TAG"),
            "Signature: 8a477f597d28d172789f06886806bc55\n",
        )?;
        Ok(Self {
            program: weight::release_program()?,
            folder,
            sources: root.join("crates/farside/tests/clients"),
        })
    }

    /// Where the versions of what is not ours are written down.
    fn versions(&self) -> PathBuf {
        step::workspace_root().join("scripts/clients")
    }

    /// Runs a program over TCP, and over TLS with the certificate as a further argument if it takes one.
    fn run(&self, name: &str, command: impl Fn() -> Command, transports: &[Transport]) -> Result<()> {
        for transport in transports {
            let mut server = Server::start(self, name, *transport)?;
            let mut command = command();
            command.arg(server.url());
            if *transport == Transport::Tls {
                command.arg(server.certificate());
            }
            server.converse(&mut command)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Tls,
}

/// What is missing of the tools of a client, if anything is.
fn missing(tools: &[(&str, &str)]) -> Option<Outcome> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (name, package) = tools
        .iter()
        .find(|(name, _)| !std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))?;
    Some(Outcome::Skipped(format!("there is no {name} ({package})")))
}

/// Whether a folder was filled in by this version of a file; `fill` does that anew otherwise. One that is there is whole.
fn filled(folder: &Path, version: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let wanted = std::fs::read(version).with_context(|| format!("failed to read {}", version.display()))?;
    let mark = folder.join("version");
    if std::fs::read(&mark).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    package::remade(folder)?;
    fill(folder)?;
    std::fs::write(mark, wanted)?;
    Ok(())
}
