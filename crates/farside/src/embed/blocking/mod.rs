//! The store for threads: calls that return when they are done.
//!
//! ```
//! use farside::{Options, blocking::Store};
//!
//! let store = Store::open(Options::anonymous(64 << 20))?;
//! let threads: Vec<_> = (0..2_u8)
//!     .map(|number| {
//!         let store = store.clone();
//!         std::thread::spawn(move || store.session()?.put(&[number], b"from a thread"))
//!     })
//!     .collect();
//! for thread in threads {
//!     thread.join().expect("no panic")?;
//! }
//! assert_eq!(store.session()?.count()?, 2);
//! # Ok::<(), farside::Error>(())
//! ```
//!
//! # How it works
//! A [`Store`] is a handle for any thread. A [`Session`] is what a thread works with: a separate client of the memory,
//! whose operations the thread executes itself. Over mapped memory an operation completes within the call: no other
//! thread takes part, nothing is locked, and the interface adds only one atomic swap in local memory. Over a connection
//! the thread runs a small event loop until the answer has arrived.
//!
//! A client also has duties: it renews its lease, publishes its progress, and looks for what dead clients held. While a
//! thread uses its session, the session does this in passing, every millisecond. While the thread does something else,
//! the *keeper* stands in for its sessions: one thread per opened store, itself a client. So no client has to wait for
//! a sleeping thread.
//!
//! 1. Each operation first declares the thread present, by swapping the session's state, and at its end away.
//! 2. Each millisecond the keeper marks every session. It takes over each one that was not used since the previous
//!    mark: from then on it renews that lease.
//! 3. The swap of step 1 detects this. The thread waits for a renewal under way to finish, takes over the epoch, and
//!    continues.
//! 4. If a client has died somewhere, all others have to look for what it held. A session whose thread is away cannot,
//!    so the keeper gives it up, and its next operation joins the pool anew, unnoticed by the caller.
//!
//! The session and the keeper share a few words (`presence.rs`); `farside_pool::rest` defines what a resting session
//! means for the far memory.
//!
//! # When the lease is lost
//! A lease is lost over a connection if the whole process stalls for longer than it, or its node restarts. An operation
//! under way then fails with an error for which [`is_cut_off`](crate::Error::is_cut_off) is true; the next one opens
//! the session anew. If nothing was under way, there is no error.

mod client;
mod interactive;
mod keeper;
mod locks;
mod presence;
mod session;
mod shared;
mod store;

pub use interactive::{Begun, Interactive};
pub use locks::{LockGuard, Locks};
pub use session::{Items, Keys, Session};
pub use shared::SharedStore;
pub use store::Store;

pub use super::walk::Walk;
