//! The pool: blocks of far memory that clients allocate, link into an index, unlink and reuse.
//!
//! On the path: beside the locks. Indexes and synchronisation schemes allocate a block for each new item and retire the
//! block that it replaced; usually neither costs a verb.
//!
//! Two levels: *chunks* are taken from a node with one atomic, *blocks* are cut from chunks locally. Retired blocks are
//! reused when no operation that may have found them is still running ([`epoch`]); the others take over what a client
//! held when it died ([`recovery`]). The words that clients share are described in [`layout`] and [`client`].

#![forbid(unsafe_code)]

pub mod account;
pub mod bulk;
pub mod client;
pub mod drain;
pub mod epoch;
pub mod error;
pub mod grow;
pub mod heap;
pub mod held;
pub mod layout;
pub mod maintenance;
pub mod members;
pub mod pool;
pub mod recovery;
pub mod refill;
pub mod rest;
pub mod size_class;
pub mod snapshot;
pub mod standing;
pub mod superblock;
pub mod usage;

pub use account::{Account, account};
pub use bulk::BulkLoader;
pub use drain::Draining;
pub use epoch::Pin;
pub use error::PoolError;
pub use grow::{GrowStep, identity, lagging_clients, members_of, removed_nodes};
pub use held::held;
pub use layout::Geometry;
pub use members::{Member, NodeState};
pub use pool::{Pool, PoolOptions, Purpose};
pub use recovery::Recovered;
pub use rest::Rest;
pub use snapshot::{Note, Phase, Snapshot};
pub use standing::{Standing, standing};
pub use superblock::{FormatOptions, Root, make_root, open, open_or_format, root};
pub use usage::{Members, Usage, node_usage, usage, usage_of_node};
