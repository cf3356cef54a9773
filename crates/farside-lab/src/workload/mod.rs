//! What clients do, and with which keys.

pub mod keys;
pub mod objects;
pub(crate) mod published;
pub mod trace;
pub mod transactions;
pub mod ycsb;
pub mod zipf;

pub use keys::{Keys, Population};
pub use objects::{OBJECT_WORKLOADS, ObjectWorkload};
pub use trace::{Request, Trace};
pub use transactions::{LOCKS_MAX, TRANSACTIONS, Transaction, TransactionKind, TransactionWorkload};
pub use ycsb::{Operation, Popularity, SCAN_ITEMS_MAX, WORKLOADS, Workload};
pub use zipf::{Scatter, Zipf};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// The random numbers of one client: from the seed of the run and its own number, on every fabric.
#[must_use]
pub fn client_random(seed: u64, client: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed ^ (client + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
