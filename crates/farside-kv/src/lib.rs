//! The store: keys, values and expiry over an index in far memory.
//!
//! On the path: the gateway, the command line and the benchmarks open a [`Store`] and make a
//! [`Session`] for each operation they want in flight. Which fabric, index and scheme make a store is
//! decided in [`stack`], and nowhere else.
//!
//! # What is promised
//! Operations on one key are linearizable: each takes effect at one instant between its start and
//! its end. An operation that fails with an error of the fabric may or may not have taken effect.
//! [Transactions](transaction) read and change several keys at one instant.

#![forbid(unsafe_code)]

mod background;
pub mod config;
pub mod decision;
pub mod drain;
pub mod error;
pub mod evict;
pub mod expiry;
pub mod export;
pub mod interactive;
pub mod locks;
pub mod many;
pub mod policy;
pub mod quota;
pub mod removal;
pub mod session;
pub mod stack;
pub mod store;
pub mod sweep;
pub mod transaction;
mod turns;
mod uses;
mod value;

pub use config::StoreConfig;
pub use drain::{DrainStep, Drained};
pub use error::{KvError, Pending};
pub use evict::{EvictionPace, KeyUse};
pub use expiry::Expiry;
pub use export::Export;
pub use farside_index::{
    Change, Cursors, Decide, Decision, Index, IndexKind, Item, KEYS_AT_ONCE, LeafOptions, RaceOptions,
};
pub use farside_index::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use farside_pool::{Members, Usage};
pub use farside_value::format::Tag;
pub use interactive::{Interactive, Journal};
pub use locks::{Locks, LocksError, LocksOptions};
pub use many::Values;
pub use policy::EvictionPolicy;
pub use quota::{Quota, SAMPLES_MAX};
pub use removal::{Removal, RemovalWitness};
pub use session::{Alteration, Condition, Key, KeyTag, KeyValue, Session, SetOptions, SetOutcome, prefix_end};
pub use stack::{PoolSpec, StackError};
pub use store::Store;
pub use sweep::{ExpiryMark, SweepPace};
pub use transaction::{TRANSACTION_BYTES_MAX, TRANSACTION_KEYS_MAX, Transaction, TransactionError, Watched};
