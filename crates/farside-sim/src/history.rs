//! Histories: what clients asked of a store or a lock, and what they were told, with times.
//!
//! On the path: actors of a run write them, checkers read them. Times are of one clock that all actors
//! share: simulated time, or the monotonic clock of one machine.

/// What was asked about one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Call {
    /// Read the value.
    Get,
    /// Store a value in any case.
    Put(u64),
    /// Store a value if the key is not there.
    Insert(u64),
    /// Store a value if the key is there.
    Update(u64),
    /// Remove the key.
    Delete,
    /// Remove the key, and answer the value that it had. Evictions and sweeps are recorded as such, too.
    Take,
    /// Add to the number that is stored, 0 if the key is not there, and store the sum.
    Add(u64),
}

impl Call {
    /// The value that it stores.
    pub(crate) fn value(self) -> Option<u64> {
        match self {
            Self::Put(value) | Self::Insert(value) | Self::Update(value) => Some(value),
            Self::Get | Self::Delete | Self::Take | Self::Add(_) => None,
        }
    }
}

/// What was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Answer {
    /// To [`Call::Get`] and [`Call::Take`]: the value.
    Value(Option<u64>),
    /// To [`Call::Put`].
    Done,
    /// To [`Call::Insert`] and [`Call::Update`]: whether the value was stored; to [`Call::Delete`]: whether
    /// the key was there.
    Happened(bool),
    /// To [`Call::Add`]: the sum.
    Sum(u64),
}

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Operation {
    /// Who asked. One client asks one thing at a time.
    pub client: u32,
    /// Which key.
    pub key: u64,
    /// What was asked.
    pub call: Call,
    /// When, in nanoseconds.
    pub start_ns: u64,
    /// When the answer came, and what it was. `None` if none came: the client crashed, or got an error
    /// that leaves the outcome open. The operation may then have taken effect at any later time, or never.
    pub end: Option<(u64, Answer)>,
}

/// How long a client believed that it held a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Hold {
    /// Who asked.
    pub client: u32,
    /// Which lock.
    pub lock: u64,
    /// Whether others may hold it at the same time in shared mode.
    pub is_shared: bool,
    /// When it asked.
    pub asked_ns: u64,
    /// When it was granted; `None` if the client gave up or crashed before.
    pub granted_ns: Option<u64>,
    /// When it gave up waiting, began to release, knew that it had lost the lock, or crashed: from then on it did
    /// nothing under the lock. `None` if it was still waiting or holding at the end of the run.
    pub ended_ns: Option<u64>,
}
