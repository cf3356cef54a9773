//! Where the memory of a store is, and how it is used.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use farside_fabric::shm::{Segment, SegmentOptions};
use farside_fabric::tcp::{NodeLocation, Secret};
use farside_kv::stack::TCP_TIMEOUT_NS;
use farside_kv::{EvictionPolicy, IndexKind, LocksOptions, PoolSpec, Quota, StoreConfig};

use super::error::Error;

/// Where the memory of a store is, and how it is used.
///
/// ```no_run
/// use core::time::Duration;
/// use farside::{Options, blocking::Store};
///
/// // A file that processes of this machine share; made with this size if it is not there.
/// let store = Store::open(Options::segment("/dev/shm/cache.segment", 1 << 30))?;
///
/// // A memory node on another machine, which `farside node` serves.
/// let options = Options::pool("tcp:10.0.0.7:7380")?
///     .secret_file("/etc/farside.secret")?
///     .timeout(Duration::from_secs(2));
/// let store = Store::open(options)?;
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    memory: Memory,
    index: Option<IndexKind>,
    secret: Option<Secret>,
    timeout: Option<Duration>,
    locks: LocksOptions,
    memory_max: u64,
    eviction: EvictionPolicy,
    eviction_samples: Option<u32>,
}

#[derive(Clone, Debug)]
enum Memory {
    Pool(PoolSpec),
    Segment {
        path: PathBuf,
        bytes: u64,
    },
    Anonymous {
        bytes: u64,
        made: Arc<Mutex<Option<Segment>>>,
    },
}

/// The same, found and opened.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) nodes: Vec<NodeLocation>,
    pub(crate) secret: Option<Secret>,
    pub(crate) config: StoreConfig,
    pub(crate) locks: LocksOptions,
    /// Of all clients that this opening makes.
    pub(crate) quota: Arc<Quota>,
}

impl Located {
    /// Whether every node is mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        let is_mapped = |node: &NodeLocation| {
            matches!(
                node,
                NodeLocation::Mapped(_) | NodeLocation::Absent | NodeLocation::Unusable(_)
            )
        };
        self.nodes.iter().all(is_mapped)
    }
}

impl Options {
    fn new(memory: Memory) -> Self {
        Self {
            memory,
            index: None,
            secret: None,
            timeout: None,
            locks: LocksOptions::default(),
            memory_max: 0,
            eviction: EvictionPolicy::NoEviction,
            eviction_samples: None,
        }
    }

    /// The memory nodes with these names: `shm:PATH` for a segment file on this machine, `tcp:HOST:PORT` for a `farside
    /// node`; several are separated by commas, in the same order for all clients.
    ///
    /// # Errors
    /// If the text is not a list of nodes. Whether they exist is checked when a store is opened.
    ///
    /// ```
    /// use farside::Options;
    ///
    /// assert!(Options::pool("shm:/dev/shm/first,tcp:10.0.0.7:7380").is_ok());
    /// let error = Options::pool("/dev/shm/first").expect_err("which fabric?");
    /// assert!(error.to_string().contains("shm:PATH"));
    /// ```
    pub fn pool(nodes: &str) -> Result<Self, Error> {
        Ok(Self::new(Memory::Pool(nodes.parse()?)))
    }

    /// A segment file, which is created with `bytes` bytes of memory if it is absent or empty. An existing one keeps
    /// its size. On `/dev/shm` it lasts until the machine restarts, elsewhere longer.
    pub fn segment(path: impl AsRef<Path>, bytes: u64) -> Self {
        Self::new(Memory::Segment {
            path: path.as_ref().to_path_buf(),
            bytes,
        })
    }

    /// `bytes` bytes of memory of this process, shared by its threads only. Stores that are opened with clones of these
    /// options share the memory, which exists as long as one of them.
    #[must_use]
    pub fn anonymous(bytes: u64) -> Self {
        Self::new(Memory::Anonymous {
            bytes,
            made: Arc::default(),
        })
    }

    /// The index of new memory; existing memory with another index is refused. The default is RACE for new memory. All
    /// indexes but RACE and the pointer array keep keys in order, so that ranges can be read.
    #[must_use]
    pub fn index(mut self, index: IndexKind) -> Self {
        self.index = Some(index);
        self
    }

    /// The secret that memory nodes require of those that connect to them.
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The secret from a file, without surrounding white space.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no secret.
    pub fn secret_file(self, path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(self.secret(Secret::from_file(path.as_ref())?))
    }

    /// How long an operation may take before it fails. The default is ten seconds over a connection, and no limit over
    /// mapped memory.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many bytes all clients together may have in use, as counted by [`memory_held`](crate::Session::memory_held);
    /// 0, the default, means no limit but the memory itself. An operation that needs more evicts keys if
    /// [`eviction`](Options::eviction) allows it, and fails otherwise
    /// ([`Error::is_out_of_memory`](crate::Error::is_out_of_memory)).
    ///
    /// The limit applies to clients that open the memory with these options, so all should set the same.
    #[must_use]
    pub fn memory_max(mut self, bytes: u64) -> Self {
        self.memory_max = bytes;
        self
    }

    /// Which keys are evicted when [`memory_max`](Options::memory_max) is reached, or only a tenth of the memory is
    /// left; by default none. Each process tracks the uses of keys for itself.
    ///
    /// ```
    /// use farside::{EvictionPolicy, Options, blocking::Store};
    ///
    /// let options = Options::anonymous(64 << 20)
    ///     .memory_max(4 << 20)
    ///     .eviction(EvictionPolicy::AllKeysLru);
    /// let cache = Store::open(options)?;
    /// let mut session = cache.session()?;
    /// for page in 0..10_000_u32 {
    ///     session.put(&page.to_be_bytes(), &[0; 1000])?;
    /// }
    /// assert!(cache.evicted() > 5000);
    /// assert!(session.get(&9_999_u32.to_be_bytes())?.is_some());
    /// # Ok::<(), farside::Error>(())
    /// ```
    #[must_use]
    pub fn eviction(mut self, policy: EvictionPolicy) -> Self {
        self.eviction = policy;
        self
    }

    /// How many keys an eviction chooses from, 1 to 64; the default is 5. More give a better choice, which takes
    /// longer.
    #[must_use]
    pub fn eviction_samples(mut self, count: u32) -> Self {
        self.eviction_samples = Some(count);
        self
    }

    fn quota(&self) -> Quota {
        let quota = Quota::default();
        quota.set_bytes_max(self.memory_max);
        quota.set_policy(self.eviction);
        if let Some(count) = self.eviction_samples {
            quota.set_samples(count);
        }
        quota
    }

    /// The name under which [`Locks::holder`](crate::Locks::holder) shows this client as a holder of locks; by default
    /// the process and its machine. Only the first 96 bytes are used.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.locks.owner = owner.into();
        self
    }

    /// How long a client may be silent before it can lose the locks that it holds; the default is one second. Locks of
    /// a dead client become available after a time of that order. All clients of a memory use the same.
    #[must_use]
    pub fn lock_lease(mut self, lease: Duration) -> Self {
        self.locks.lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// Whether the memory is this process's alone.
    pub(crate) fn is_anonymous(&self) -> bool {
        matches!(self.memory, Memory::Anonymous { .. })
    }

    /// Opens or makes the segments.
    pub(crate) fn locate(&self) -> Result<Located, Error> {
        let nodes = match &self.memory {
            Memory::Pool(spec) => spec.locate()?,
            Memory::Segment { path, bytes } => {
                let options = SegmentOptions::with_memory(*bytes);
                vec![NodeLocation::Mapped(Segment::open_or_create(path, options)?)]
            }
            Memory::Anonymous { bytes, made } => {
                let mut made = made.lock().expect("nothing panics while it is held");
                let segment = match &*made {
                    Some(segment) => segment.clone(),
                    None => made.insert(Segment::anonymous(*bytes)?).clone(),
                };
                vec![NodeLocation::Mapped(segment)]
            }
        };
        let wanted_ns = self
            .timeout
            .map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let mut located = Located {
            nodes,
            secret: self.secret.clone(),
            config: StoreConfig {
                index: self.index,
                ..StoreConfig::default()
            },
            locks: self.locks.clone(),
            quota: Arc::new(self.quota()),
        };
        located.config.timeout_ns = wanted_ns.or((!located.is_mapped()).then_some(TCP_TIMEOUT_NS));
        Ok(located)
    }
}

/// The same as [`Options::pool`].
impl FromStr for Options {
    type Err = Error;

    fn from_str(nodes: &str) -> Result<Self, Error> {
        Self::pool(nodes)
    }
}
