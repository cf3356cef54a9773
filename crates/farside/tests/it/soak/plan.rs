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
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
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
}

/// The kinds of faults that can be asked for, by the name that the user writes.
const KINDS: [(&str, &[Fault]); 3] = [
    ("kill", &[Fault::Kill]),
    ("stop", &[Fault::Stop]),
    ("node", &[Fault::NodeKill, Fault::NodeStop]),
];

/// Everything about a run that is chosen.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) fabric: Fabric,
    /// How long there are faults.
    pub(crate) seconds: u64,
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
    /// What the environment asks for; all faults for eight seconds if it says nothing.
    ///
    /// # Panics
    /// If a variable does not say what it should.
    pub(crate) fn from_env(fabric: Fabric) -> Self {
        let names = variable::<String>("FAULTS").unwrap_or_else(|| "kill,stop,node".to_owned());
        let mut faults: Vec<Fault> = (names.split(',').map(str::trim).filter(|name| !name.is_empty()))
            .flat_map(|name| {
                let kind = KINDS.iter().find(|kind| kind.0 == name);
                kind.unwrap_or_else(|| panic!("FARSIDE_SOAK_FAULTS: `{name}` is none of kill, stop, node"))
                    .1
            })
            .copied()
            .collect();
        if fabric == Fabric::Shm {
            // Nobody serves a segment that all map.
            faults.retain(|fault| !matches!(fault, Fault::NodeKill | Fault::NodeStop));
        }
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
        format!(
            "cargo xtask soak --fabric {} --seconds {} --seed {} --workers {} --faults '{}' --index {} --sync {}",
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
