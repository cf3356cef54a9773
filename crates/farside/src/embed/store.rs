//! The async store: one client of the memory, on the thread that opened it.

use std::sync::Arc;

use farside_kv as kv;
use farside_kv::stack;

use super::error::Error;
use super::operations::{boxed, put_many};
use super::options::Options;
use super::runtime::require_local_set;
use super::session::Session;

/// An open store. Clones share one client of the memory.
///
/// It belongs to the thread that opened it: neither it nor its futures are `Send`, and it runs on that thread's tokio
/// runtime, inside a `LocalSet`. A program with several threads opens a store on each. Tasks that it starts on the
/// `LocalSet` renew its lease and reclaim memory, so the thread must not block for long: meanwhile other clients cannot
/// reclaim memory, and over a connection this client is cut off after a second.
///
/// [`close`](Store::close) leaves the memory in order. If the last clone is dropped without it, the other clients
/// notice when the lease has expired, and take over what this client held; nothing is lost.
#[derive(Clone, Debug)]
pub struct Store {
    inner: kv::Store,
    _housekeeping: std::rc::Rc<Housekeeping>,
}

/// Ends with the last clone of a store, and the tasks with it.
#[derive(Debug)]
struct Housekeeping(kv::Store);

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.0.clone().abandon();
    }
}

/// The store with this quota, and with a task that evicts beside its operations if that is wanted.
pub(crate) fn keep_within(store: kv::Store, quota: &Arc<kv::Quota>) -> kv::Store {
    let store = store.with_quota(Arc::clone(quota));
    if quota.policy().evicts() {
        let pace = kv::EvictionPace::default();
        store.endpoint().spawn(store.clone().keep_within_quota(pace));
    }
    store
}

impl Store {
    /// Opens the store; creates it if the memory is new.
    ///
    /// # Errors
    /// [`Error::NoLocalSet`] outside a tokio runtime with a `LocalSet`; if the memory cannot be reached, is too small,
    /// or was not made by Farside.
    ///
    /// ```
    /// use farside::{Options, Store};
    ///
    /// farside::run(async {
    ///     let store = Store::open(Options::anonymous(64 << 20)).await?;
    ///     let mut session = store.session();
    ///     session.put(b"key", b"value").await?;
    ///     assert_eq!(session.get(b"key").await?, Some(&b"value"[..]));
    ///     store.close().await
    /// })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn open(options: Options) -> Result<Self, Error> {
        require_local_set()?;
        let located = options.locate()?;
        let endpoint = stack::connect(located.nodes, located.secret).await?;
        let store = boxed(kv::Store::open(endpoint, located.config)).await?;
        let inner = keep_within(store, &located.quota);
        Ok(Self {
            _housekeeping: std::rc::Rc::new(Housekeeping(inner.clone())),
            inner,
        })
    }

    /// A session, which does one operation at a time. Make one for each operation that should be in flight; each takes
    /// 16 KiB.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::new(self.clone(), self.inner.session())
    }

    /// Stores many items, sixteen at a time; returns how many. Of several with the same key the last one stays.
    ///
    /// # Errors
    /// The first error. Some of the items are then stored, in no particular order.
    ///
    /// ```
    /// # farside::run(async {
    /// # use farside::{Options, Store};
    /// # let store = Store::open(Options::anonymous(64 << 20)).await?;
    /// let items = (0..1000_u32).map(|number| (number.to_be_bytes(), b"value"));
    /// assert_eq!(store.put_many(items).await?, 1000);
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn put_many<K, V>(&self, items: impl IntoIterator<Item = (K, V)>) -> Result<u64, Error>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let items = items.into_iter();
        let mut session = self.inner.session();
        let (stored, result) = boxed(put_many(&mut session, items)).await;
        Ok(result.map(|()| stored)?)
    }

    /// How many keys this store has evicted since it was opened; see [`Options::eviction`].
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.inner.quota().evicted()
    }

    /// The index of the memory.
    #[must_use]
    pub fn index(&self) -> kv::IndexKind {
        self.inner.index().kind()
    }

    /// Leaves the memory and gives back what this client held. That takes a few milliseconds, in which other clients
    /// finish operations under way. Remaining sessions and clones fail from then on.
    ///
    /// # Errors
    /// If the memory cannot be reached; the other clients clean up then.
    pub async fn close(self) -> Result<(), Error> {
        Ok(boxed(self.inner.clone().close()).await?)
    }
}
