//! What a run does: how long, with whom, and what happens to them.
//!
//! On the path: read from the environment, which `cargo xtask soak` sets, by the tests; followed by the driver.

use std::fmt;
use std::str::FromStr;

use farside_index::IndexKind;
use farside_sync::Scheme;

/// How the workers reach the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fabric {
    /// All map one segment.
    Shm,
    /// Memory nodes serve segments; a worker or two map them all the same.
    Tcp,
    /// Memory nodes are groups whose members etcd decides on; a worker uses a gateway.
    Mirrored,
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Mirrored => "mirrored",
        })
    }
}

/// What is done to processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fault {
    /// SIGKILL a worker, and start another one in its place.
    Kill,
    /// SIGSTOP a worker for longer than its lease, then SIGCONT.
    Stop,
    /// SIGKILL a memory node, and start it again on the same segment and port.
    NodeKill,
    /// SIGSTOP a memory node for a while, then SIGCONT.
    NodeStop,
    /// SIGKILL the primary of a mirrored node, and start it again on the same segment and address.
    PrimaryKill,
    /// SIGSTOP a primary, mostly for longer than its lease, then SIGCONT.
    PrimaryStop,
    /// The same as [`Fault::PrimaryKill`], to a backup.
    BackupKill,
    /// The same as [`Fault::PrimaryStop`], to a backup.
    BackupStop,
    /// Let nothing through to a primary or from it for a while, etcd included.
    PrimaryCut,
    /// The same, to a backup.
    BackupCut,
    /// SIGSTOP etcd, then SIGCONT.
    EtcdStop,
    /// SIGKILL etcd, and start it again on its data.
    EtcdKill,
    /// SIGKILL the gateway, and start it again.
    GatewayKill,
}

/// The kinds of faults that can be asked for, by the name that the user writes.
const KINDS: [(&str, &[Fault]); 8] = [
    ("kill", &[Fault::Kill]),
    ("stop", &[Fault::Stop]),
    ("node", &[Fault::NodeKill, Fault::NodeStop]),
    ("primary", &[Fault::PrimaryKill, Fault::PrimaryStop]),
    ("backup", &[Fault::BackupKill, Fault::BackupStop]),
    ("cut", &[Fault::PrimaryCut, Fault::BackupCut]),
    ("etcd", &[Fault::EtcdStop, Fault::EtcdKill]),
    ("gateway", &[Fault::GatewayKill]),
];

impl Fault {
    /// Whether it is for workers, which every fabric has.
    pub(crate) fn is_of_workers(self) -> bool {
        matches!(self, Self::Kill | Self::Stop)
    }

    /// Whether there is somebody whom it can hit.
    fn applies_to(self, fabric: Fabric) -> bool {
        let is_of_nodes = matches!(self, Self::NodeKill | Self::NodeStop);
        self.is_of_workers()
            || match fabric {
                // Nobody serves a segment that all map.
                Fabric::Shm => false,
                Fabric::Tcp => is_of_nodes,
                Fabric::Mirrored => !is_of_nodes,
            }
    }
}

/// Everything about a run that is chosen.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) fabric: Fabric,
    /// How long there are faults.
    pub(crate) seconds: u64,
    /// How many faults must have come to others than workers, however long that takes.
    pub(crate) kills: u64,
    /// Decides operations and faults.
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) faults: Vec<Fault>,
    /// What finds the data pointers.
    pub(crate) index: IndexKind,
    /// How they are replaced.
    pub(crate) scheme: Scheme,
    /// How many operations every worker must complete once there are no more faults.
    pub(crate) last_operations: u64,
    /// Whether workers acknowledge some writes that they do not make.
    pub(crate) lies: bool,
}

impl Plan {
    /// What the environment asks for; all faults of the fabric for eight seconds if it says nothing.
    ///
    /// # Panics
    /// If a variable does not say what it should.
    pub(crate) fn from_env(fabric: Fabric) -> Self {
        let all = KINDS.map(|kind| kind.0).join(",");
        let names = variable::<String>("FAULTS").unwrap_or_else(|| all.clone());
        let mut faults: Vec<Fault> = (names.split(',').map(str::trim).filter(|name| !name.is_empty()))
            .flat_map(|name| {
                let kind = KINDS.iter().find(|kind| kind.0 == name);
                kind.unwrap_or_else(|| panic!("FARSIDE_SOAK_FAULTS: `{name}` is none of {all}"))
                    .1
            })
            .copied()
            .collect();
        faults.retain(|fault| fault.applies_to(fabric));
        let scheme = variable::<String>("SYNC").map_or(Scheme::Farside, |name| {
            Scheme::by_name(&name).unwrap_or_else(|| panic!("FARSIDE_SOAK_SYNC: `{name}` is no scheme"))
        });
        let index = variable::<String>("INDEX").map_or(IndexKind::Race, |name| {
            IndexKind::by_name(&name).unwrap_or_else(|| panic!("FARSIDE_SOAK_INDEX: `{name}` is no index"))
        });
        let workers = variable("WORKERS").unwrap_or(4);
        assert!(workers > 0, "FARSIDE_SOAK_WORKERS: at least one");
        Self {
            fabric,
            seconds: variable("SECONDS").unwrap_or(8),
            kills: variable("KILLS").unwrap_or(0),
            seed: variable("SEED").unwrap_or_else(|| u64::from(std::process::id())),
            workers,
            faults,
            index,
            scheme,
            last_operations: 200,
            lies: false,
        }
    }

    /// The same with another index, unless the environment asks for one.
    pub(crate) fn of_index(self, index: IndexKind) -> Self {
        match variable::<String>("INDEX") {
            Some(_) => self,
            None => Self { index, ..self },
        }
    }

    /// A short run in which nothing happens to anybody.
    pub(crate) fn quiet(fabric: Fabric) -> Self {
        Self {
            fabric,
            seconds: 0,
            kills: 0,
            seed: u64::from(std::process::id()),
            workers: 3,
            faults: Vec::new(),
            index: IndexKind::Race,
            scheme: Scheme::Farside,
            last_operations: 1500,
            lies: false,
        }
    }

    /// What a user types to run it again.
    pub(crate) fn command(&self) -> String {
        let names: Vec<&str> = (KINDS.iter())
            .filter(|(_, faults)| faults.iter().any(|fault| self.faults.contains(fault)))
            .map(|kind| kind.0)
            .collect();
        let kills = match self.kills {
            0 => String::new(),
            kills => format!(" --kills {kills}"),
        };
        format!(
            "cargo xtask soak --fabric {} --seconds {}{kills} --seed {} --workers {} --faults '{}' --index {} --sync {}",
            self.fabric,
            self.seconds,
            self.seed,
            self.workers,
            names.join(","),
            self.index.name(),
            self.scheme.name()
        )
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let name = format!("FARSIDE_SOAK_{name}");
    let text = std::env::var(&name).ok()?;
    let value = text.parse().ok();
    Some(value.unwrap_or_else(|| panic!("{name}: `{text}` cannot be read")))
}
