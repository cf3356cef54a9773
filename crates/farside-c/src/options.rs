//! Where the memory of a store is, and how it is used, as a C program says it.

use core::mem::MaybeUninit;
use core::time::Duration;

use farside::{EvictionPolicy, IndexKind, Options};

use crate::border::{Text, given};
use crate::fault::{Fault, Status, answer};

/// As a time to live: the key stays until it is deleted. As a timeout: wait for as long as it takes.
pub const FARSIDE_FOREVER: u64 = u64::MAX;

/// Where the memory of a store is, and how it is used. farside_options_init() fills it in; then set what is wanted. Texts and
/// files are read by the function that opens the store, and not needed later.
#[repr(C)]
pub struct StoreOptions {
    /// The size of this struct, which farside_options_init() sets.
    pub size: usize,
    /// A segment file, which processes of this machine share; it is made with `bytes` bytes of memory if it is not there.
    pub segment: Text,
    /// Memory nodes: "tcp:HOST:PORT" for a `farside node`, "shm:PATH" for a segment file, "rdma:HOST:PORT"; several with commas
    /// between them. Neither this nor `segment`: `bytes` bytes of memory of this process alone.
    pub pool: Text,
    /// How large new memory is.
    pub bytes: u64,
    /// The index of new memory: "race" (if NULL), or one that keeps keys in order, as "chime" does.
    pub index: Text,
    /// The file with the secret that memory nodes want to hear, or NULL.
    pub secret_file: Text,
    /// How long an operation may take, in milliseconds; 0: ten seconds over a connection, as long as it takes over mapped
    /// memory.
    pub timeout_ms: u64,
    /// How many bytes keys and values may take, of all clients together; 0: all there is.
    pub memory_max: u64,
    /// Which keys go when memory is full: "noeviction" (if NULL), "allkeys-lru" and the others of Redis.
    pub eviction: Text,
    /// Who takes locks, for those who ask for the holder; if NULL, process and machine.
    pub owner: Text,
    /// How long a client may be silent before it can lose its locks, in milliseconds, the same for all clients; 0: one second.
    pub lock_lease_ms: u64,
}

/// Fills in options of which none is chosen.
#[unsafe(no_mangle)]
pub extern "C" fn farside_options_init(options: Option<&mut MaybeUninit<StoreOptions>>) -> Status {
    answer(|| {
        given(options, "options")?.write(StoreOptions {
            size: size_of::<StoreOptions>(),
            segment: Text::NONE,
            pool: Text::NONE,
            bytes: 0,
            index: Text::NONE,
            secret_file: Text::NONE,
            timeout_ms: 0,
            memory_max: 0,
            eviction: Text::NONE,
            owner: Text::NONE,
            lock_lease_ms: 0,
        });
        Ok(())
    })
}

impl StoreOptions {
    pub(crate) fn read(&self) -> Result<Options, Fault> {
        if self.size != size_of::<Self>() {
            return Err(Fault::invalid(
                "the options are not filled in: call farside_options_init() first",
            ));
        }
        let mut options = match (self.segment.text("segment")?, self.pool.text("pool")?) {
            (Some(_), Some(_)) => return Err(Fault::invalid("`segment` and `pool` are both set: choose one")),
            (Some(path), None) => Options::segment(path, self.bytes),
            (None, Some(nodes)) => Options::pool(nodes)?,
            (None, None) if self.bytes == 0 => {
                let text = "where is the memory? set `segment`, `pool`, or `bytes` for memory of this process alone";
                return Err(Fault::invalid(text));
            }
            (None, None) => Options::anonymous(self.bytes),
        };
        if let Some(name) = self.index.text("index")? {
            let known = IndexKind::ALL.map(|(_, name, _)| name);
            let index = IndexKind::by_name(name).ok_or_else(|| unknown("index", name, &known))?;
            options = options.index(index);
        }
        if let Some(name) = self.eviction.text("eviction")? {
            let known = EvictionPolicy::ALL.map(|(_, name)| name);
            let policy = EvictionPolicy::by_name(name).ok_or_else(|| unknown("eviction policy", name, &known))?;
            options = options.eviction(policy);
        }
        if let Some(path) = self.secret_file.text("secret_file")? {
            options = options.secret_file(path)?;
        }
        if self.timeout_ms > 0 {
            options = options.timeout(Duration::from_millis(self.timeout_ms));
        }
        if let Some(owner) = self.owner.text("owner")? {
            options = options.owner(owner);
        }
        if self.lock_lease_ms > 0 {
            options = options.lock_lease(Duration::from_millis(self.lock_lease_ms));
        }
        Ok(options.memory_max(self.memory_max))
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> Fault {
    Fault::invalid(format!("there is no {what} `{name}`; there are: {}", known.join(", ")))
}
