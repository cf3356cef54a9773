//! `cargo xtask soak`: real processes, killed, stopped and cut off at random, for as long as you like.
//!
//! The run itself is a test, `crates/farside/tests/it/soak.rs`, which `cargo test` runs for some seconds. The contract with it
//! is a set of environment variables, `FARSIDE_SOAK_SECONDS`, `_KILLS`, `_SEED`, `_WORKERS`, `_FAULTS`, `_INDEX` and `_SYNC`, and one test
//! for each fabric. The release profile is used: the faster the workers are, the more they meet.
//!
//! `--locks N` runs another one instead, `crates/farside-lock/tests/it/soak.rs`: N acquisitions of each lock that survives its
//! holders, which are killed. Its variables are `FARSIDE_LOCK_SOAK_ACQUISITIONS`, `_KILLS`, `_SEED` and `_WORKERS`.

use anyhow::{Result, bail};

use crate::step;
use crate::test::IT;

/// What workers reach the memory by, and the test that runs it.
const FABRICS: [(&str, &str); 3] = [
    ("shm", "soak::mapped_memory_survives_what_happens_to_its_processes"),
    (
        "tcp",
        "soak::memory_nodes_survive_what_happens_to_them_and_their_clients",
    ),
    (
        "mirrored",
        "soak::mirrored_nodes_survive_what_happens_to_them_etcd_a_gateway_and_clients",
    ),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only workers that map the memory (shm), or only memory nodes and their clients (tcp), or only mirrored nodes under etcd,
    /// which has to be installed (mirrored); one after the other if not given
    #[arg(long, value_parser = ["shm", "tcp", "mirrored"])]
    fabric: Option<String>,
    /// For how long things happen to the processes; longer if not every kind of fault has come by then
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides operations and faults; a new one each time if not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many worker processes
    #[arg(long, default_value_t = 4)]
    workers: u64,
    /// What happens, separated by commas: kill and stop workers; kill and stop the memory nodes (node; tcp only); of mirrored nodes
    /// kill and stop a primary, a backup, cut either off, stop and kill etcd, kill the gateway
    #[arg(long, default_value = "kill,stop,node,primary,backup,cut,etcd,gateway")]
    faults: String,
    /// The index that finds data pointers: race, pointer-array, chime, sherman, marlin, smart, rolex or chime-learned
    #[arg(long, default_value = "race")]
    index: String,
    /// The scheme by which they are replaced, such as cider-no-ca, whose updates all queue up
    #[arg(long, default_value = "farside")]
    sync: String,
    /// Instead of the store: so many acquisitions of each lock that survives its holders, by processes that are killed
    #[arg(long, value_name = "ACQUISITIONS", conflicts_with_all = ["fabric", "seconds", "faults", "index", "sync"])]
    locks: Option<u64>,
    /// Go on until so many faults have come to others than workers (shm: to workers), if that is later than --seconds; with `--locks`:
    /// about how often a process is killed per lock [default: one for 10000 acquisitions]
    #[arg(long)]
    kills: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.workers == 0 {
        bail!("--workers must be at least 1");
    }
    if let Some(acquisitions) = options.locks {
        return soak_locks(options, acquisitions);
    }
    let known = ["kill", "stop", "node", "primary", "backup", "cut", "etcd", "gateway"];
    let is_unknown = |name: &&str| !name.is_empty() && !known.contains(name);
    if let Some(name) = options.faults.split(',').map(str::trim).find(is_unknown) {
        bail!("--faults knows {}, not `{name}`", known.join(", "));
    }
    let wanted = FABRICS
        .iter()
        .filter(|(name, _)| options.fabric.as_deref().is_none_or(|fabric| fabric == *name));
    let mut failures = Vec::new();
    for (name, test) in wanted {
        let mut command = step::cargo(["test", "--release", "--package", "farside", "--test", IT]);
        command.args(["--", "--exact", "--nocapture", test]);
        command
            .env("FARSIDE_SOAK_SECONDS", options.seconds.to_string())
            .env("FARSIDE_SOAK_KILLS", options.kills.unwrap_or(0).to_string())
            .env("FARSIDE_SOAK_WORKERS", options.workers.to_string())
            .env("FARSIDE_SOAK_FAULTS", &options.faults)
            .env("FARSIDE_SOAK_INDEX", &options.index)
            .env("FARSIDE_SOAK_SYNC", &options.sync);
        if let Some(seed) = options.seed {
            command.env("FARSIDE_SOAK_SEED", seed.to_string());
        }
        if let Err(error) = step::run(&mut command) {
            eprintln!("xtask: {error:#}");
            failures.push(*name);
        }
    }
    if !failures.is_empty() {
        bail!("the soak failed over {}", failures.join(" and "));
    }
    Ok(())
}

fn soak_locks(options: &Options, acquisitions: u64) -> Result<()> {
    let mut command = step::cargo(["test", "--release", "--package", "farside-lock", "--test", IT]);
    command.args(["--", "--nocapture", "survives_its_holders"]);
    let kills = options.kills.unwrap_or(acquisitions / 10_000);
    command
        .env("FARSIDE_LOCK_SOAK_ACQUISITIONS", acquisitions.to_string())
        .env("FARSIDE_LOCK_SOAK_KILLS", kills.to_string())
        .env("FARSIDE_LOCK_SOAK_WORKERS", options.workers.to_string());
    if let Some(seed) = options.seed {
        command.env("FARSIDE_LOCK_SOAK_SEED", seed.to_string());
    }
    step::run(&mut command)
}
