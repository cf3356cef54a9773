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
//! A [`Store`] is a handle for any thread. A [`Session`] is what a thread works with: a client of the
//! memory in its own right, which the thread itself carries out. Over mapped memory an operation is done
//! when the call is: no other thread takes part, nothing is locked, and what the interface adds to the
//! operation is one atomic swap in local memory. Over a connection the thread runs a small event loop until
//! the answer is there.
//!
//! A client has duties, though: renew its lease, publish how far it has come, look for what dead clients
//! held. While a thread works, its session does that in passing, every millisecond. While the thread does
//! something else, the *keeper* stands in for its sessions: one thread for each opened store, a client
//! itself. Nobody has to wait for a thread that sleeps.
//!
//! 1. Each operation says first that the thread is here, by swapping the session's state, and at its
//!    end that it is away.
//! 2. Each millisecond the keeper marks every session. One that was not seen since the mark before, it
//!    takes: from now on it renews that lease.
//! 3. The swap of step 1 finds out. The thread waits until the keeper is done with a renewal under way, takes
//!    over the epoch, and goes on.
//! 4. If a client has died somewhere, all others have to search for what it held. A session whose thread is
//!    away cannot, so the keeper gives it up, and the next operation joins the pool anew, unnoticed.
//!
//! What the session and the keeper share is a few words (`presence.rs`); the far memory, and what it means
//! to rest, is `farside_pool::rest`.
//!
//! # When the lease is lost
//! Over a connection, if the whole process stood still for longer than its lease, or its node restarted. An
//! operation under way then fails with an error that says [`is_cut_off`](crate::Error::is_cut_off); the next
//! one opens the session anew. If nothing was under way, no error is seen.

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
