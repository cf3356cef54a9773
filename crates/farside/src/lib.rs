//! Farside as a library: a key-value store in memory that processes or machines share.
//!
//! A store is a memory with a name, and any number of clients that work on it: threads, processes, machines. There is
//! no server: each client reads and writes the memory itself, and sees at once what the others have done. Keys and
//! values are bytes. Operations on one key are linearizable, even if clients die.
//!
//! ```
//! use farside::{Options, blocking::Store};
//!
//! let store = Store::open(Options::anonymous(64 << 20))?;
//! let mut session = store.session()?;
//! session.put(b"greeting", b"hello from afar")?;
//! assert_eq!(session.get(b"greeting")?, Some(&b"hello from afar"[..]));
//! # drop(session);
//! # store.close();
//! # Ok::<(), farside::Error>(())
//! ```
//!
//! # Where the memory is
//! [`Options`] choose it: memory of this process alone, a file that the processes of one machine map, or memory nodes
//! that are reached over connections (`farside node`). The rest of a program stays the same.
//!
//! # Which of the two interfaces
//! - [`blocking`]: for threads. A GET over mapped memory is a function call of a few hundred nanoseconds, and involves
//!   no other thread.
//! - [`Store`] and [`Session`]: for async programs on one thread per core. Futures are not `Send`; they run on a tokio
//!   current-thread runtime with a `LocalSet`, which [`run`] provides.
//!
//! # What fails, and how
//! Everything returns [`Error`]. Full memory is an error that changes nothing ([`Error::is_out_of_memory`]). A client
//! that was cut off from the memory (its node went away, or the client stalled for longer than its lease) reports
//! [`Error::is_cut_off`]: the operation may or may not have taken effect. The blocking interface opens the store again
//! with the next operation; an async program opens it again itself.

#![forbid(unsafe_code)]

mod embed;

pub use embed::blocking;
pub use embed::error::Error;
pub use embed::locks::{LockGuard, Locks};
pub use embed::options::Options;
pub use embed::runtime::run;
pub use embed::session::{Items, Keys, Session, Values};
pub use embed::store::Store;
pub use embed::time::{Lifetime, after};
pub use embed::walk::with_prefix;

pub use farside_fabric::fork::forks;
pub use farside_fabric::tcp::Secret;
pub use farside_kv::locks::{Holder, LOCK_NAME_BYTES_MAX, LocksError, Mode};
pub use farside_kv::{Alteration, Condition, EvictionPolicy, Expiry, IndexKind, KeyValue, SetOptions, SetOutcome};
pub use farside_kv::{
    Interactive, TRANSACTION_BYTES_MAX, TRANSACTION_KEYS_MAX, Transaction, TransactionError, Watched,
};
pub use farside_kv::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
