//! The handle of a store that threads pass around.

use std::sync::Arc;

use farside_kv::IndexKind;

use super::keeper::Keeper;
use super::session::Session;
use crate::embed::error::Error;
use crate::embed::options::Options;

/// An open store, for any thread. Clones are the same; each thread makes a [`Session`] to work with.
///
/// The store is left when the last clone and the last session are dropped, which takes some milliseconds.
/// Memory in a file and on nodes stays, anonymous memory ends with the last clone of its [`Options`].
///
/// A process that forks without executing another program must not use it in the child.
#[derive(Clone, Debug)]
pub struct Store {
    keeper: Arc<Keeper>,
}

impl Store {
    /// Opens the store; creates it if the memory is new. Starts the thread that stands in for sessions.
    ///
    /// # Errors
    /// If the memory cannot be reached, is too small, or is not Farside's.
    ///
    /// ```
    /// use farside::{Options, blocking::Store};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("cache.segment");
    /// let store = Store::open(Options::segment(&path, 64 << 20))?;
    /// store.session()?.put(b"key", b"value")?;
    /// store.close();
    ///
    /// // What is in a file stays.
    /// let store = Store::open(Options::pool(&format!("shm:{}", path.display()))?)?;
    /// assert_eq!(store.session()?.get(b"key")?, Some(&b"value"[..]));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn open(options: Options) -> Result<Self, Error> {
        Ok(Self {
            keeper: Arc::new(Keeper::start(options.locate()?)?),
        })
    }

    /// A session, for the thread that calls this.
    ///
    /// # Errors
    /// If the memory cannot be reached, or has no room for another client.
    pub fn session(&self) -> Result<Session, Error> {
        Session::open(Arc::clone(&self.keeper))
    }

    /// How many keys this store has evicted since it was opened; see [`Options::eviction`].
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.keeper.watch.located.quota.evicted()
    }

    /// The index of the memory.
    #[must_use]
    pub fn index(&self) -> IndexKind {
        self.keeper.index
    }

    /// Whether all of the memory is mapped, so that an operation is a function call.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.keeper.watch.located.is_mapped()
    }

    /// The same as dropping it: the store is left with the last clone and the last session.
    pub fn close(self) {}
}
