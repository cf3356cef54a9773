//! The async session: operations on keys, one at a time.

use core::ops::{Range, RangeBounds};
use core::time::Duration;

use farside_kv as kv;
use farside_kv::{Expiry, KeyValue, SetOptions, SetOutcome, Transaction};

use super::error::Error;
use super::operations::{boxed, delete_many, get_many_into, memory_used, transaction, visit_many};
use super::store::Store;
use super::time::{Lifetime, after};
use super::walk::Walk;

/// Operations on a store, one at a time; each is linearizable. Cancelling one, by dropping its future, leaves the store
/// consistent, but it is not known whether the operation took effect.
///
/// ```
/// # farside::run(async {
/// # use farside::{Options, Store};
/// # let store = Store::open(Options::anonymous(64 << 20)).await?;
/// let mut session = store.session();
/// session.put(b"visits", b"41").await?;
/// let increment = |stored: Option<&[u8]>| {
///     let number = stored.map_or("0", |bytes| core::str::from_utf8(bytes).unwrap_or("0"));
///     number.parse::<u64>().map(|number| (number + 1).to_string().into_bytes())
/// };
/// assert_eq!(session.update(b"visits", increment).await?, Ok(()));
/// assert_eq!(session.get(b"visits").await?, Some(&b"42"[..]));
/// # store.close().await
/// # })??;
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Debug)]
pub struct Session {
    inner: kv::Session,
    _store: Store,
}

/// All operations fail with [`Error::Operation`].
impl Session {
    pub(crate) fn new(store: Store, inner: kv::Session) -> Self {
        Self { inner, _store: store }
    }

    /// The value of a key, in the session's buffer until the next operation.
    ///
    /// # Errors
    /// If the memory cannot be reached or is damaged; likewise for all operations below.
    #[inline]
    pub async fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        Ok(self.inner.get(key).await?)
    }

    /// The values of many keys one after the other; sixteen are read at a time. They are no snapshot: each key is read
    /// by itself.
    ///
    /// ```
    /// # farside::run(async {
    /// # use farside::{Options, Store};
    /// # let store = Store::open(Options::anonymous(64 << 20)).await?;
    /// # let mut session = store.session();
    /// session.put(b"one", b"1").await?;
    /// let mut values = session.values(&[b"one", b"two"]);
    /// assert_eq!(values.next().await?, Some(&b"1"[..]));
    /// assert_eq!(values.next().await?, None);
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn values<'k>(&mut self, keys: &'k [&'k [u8]]) -> Values<'_, 'k> {
        Values(self.inner.get_many(keys))
    }

    /// The values of many keys, in their order; sixteen are read at a time.
    pub async fn get_many(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut values = Vec::with_capacity(keys.len());
        let visit = |_, value: Option<&[u8]>| values.push(value.map(<[u8]>::to_vec));
        boxed(visit_many(&mut self.inner, keys, visit)).await?;
        Ok(values)
    }

    /// Like [`Session::get_many`], but into buffers of the caller: `values` receives the values one after another, and
    /// `places`, for each key, the range of its value, if it has one. Previous contents are discarded; buffers with
    /// enough capacity are not reallocated.
    ///
    /// # Errors
    /// Both buffers are then empty.
    ///
    /// ```
    /// # farside::run(async {
    /// # use farside::{Options, Store};
    /// # let store = Store::open(Options::anonymous(64 << 20)).await?;
    /// # let mut session = store.session();
    /// session.put(b"one", b"first").await?;
    /// let (mut values, mut places) = (Vec::new(), Vec::new());
    /// session.get_many_into(&[b"two", b"one"], &mut values, &mut places).await?;
    /// assert_eq!((&values[..], &places[..]), (&b"first"[..], &[None, Some(0..5)][..]));
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn get_many_into(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        values: &mut Vec<u8>,
        places: &mut Vec<Option<Range<usize>>>,
    ) -> Result<(), Error> {
        Ok(boxed(get_many_into(&mut self.inner, keys, values, places)).await?)
    }

    /// Stores a value without expiry, whatever was there before.
    pub async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        Ok(self.inner.put(key, value).await?)
    }

    /// Removes many keys, sixteen at a time; returns how many were there.
    ///
    /// # Errors
    /// The first error. Some of the keys are then removed, in no particular order.
    pub async fn delete_many(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<u64, Error> {
        Ok(boxed(delete_many(&mut self.inner, keys)).await?)
    }

    /// Stores a value that expires after `duration`.
    pub async fn put_for(&mut self, key: &[u8], value: &[u8], duration: Duration) -> Result<(), Error> {
        let options = SetOptions {
            expiry: after(duration),
            ..SetOptions::default()
        };
        self.set(key, value, options).await.map(drop)
    }

    /// Stores a value under a condition, with an expiry, or returning the previous value.
    ///
    /// ```
    /// # farside::run(async {
    /// # use farside::{Options, Store};
    /// # let store = Store::open(Options::anonymous(64 << 20)).await?;
    /// # let mut session = store.session();
    /// use farside::{Condition, SetOptions};
    ///
    /// let first = SetOptions { condition: Condition::IfAbsent, ..SetOptions::default() };
    /// assert!(session.set(b"leader", b"me", first).await?.is_stored);
    /// assert!(!session.set(b"leader", b"you", first).await?.is_stored);
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, Error> {
        Ok(self.inner.set(key, value, options).await?)
    }

    /// Removes a key; returns whether it was there.
    pub async fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.inner.delete(key).await?)
    }

    /// Removes a key; returns the value it had.
    pub async fn take(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.inner.take(key).await?)
    }

    /// Replaces the value of a key by the result of `update`, atomically; the expiry stays. `update` may be called
    /// several times, if others change the key meanwhile. It may refuse: nothing is changed then, and the inner result
    /// has its error.
    pub async fn update<R>(
        &mut self,
        key: &[u8],
        update: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    ) -> Result<Result<(), R>, Error> {
        Ok(self.inner.update(key, update).await?)
    }

    /// Reads and changes some keys in isolation: `body` sees them as they were at one instant, and its changes take
    /// effect at that instant, all or none of them, even if the client dies. If another client changes one of the keys
    /// first, `body` is called again; its last answer counts. It can use only the keys that are named, and not the
    /// session.
    ///
    /// # Errors
    /// The error of the body, which leaves everything unchanged; [`TransactionError`](crate::TransactionError).
    ///
    /// ```
    /// # farside::run(async {
    /// # use farside::{Options, Store};
    /// # let store = Store::open(Options::anonymous(64 << 20)).await?;
    /// # let mut session = store.session();
    /// session.put(b"alice", b"100").await?;
    /// session.put(b"bob", b"0").await?;
    /// let balance = |value: Option<&[u8]>| -> i64 {
    ///     let digits = core::str::from_utf8(value.unwrap_or(b"0"));
    ///     digits.ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    /// };
    /// let made = session.transaction_on(&["alice", "bob"], |transaction| {
    ///     let (alice, bob) = (balance(transaction.get(b"alice")?), balance(transaction.get(b"bob")?));
    ///     if alice < 30 {
    ///         return Ok(false); // nothing is changed
    ///     }
    ///     transaction.put(b"alice", (alice - 30).to_string().as_bytes())?;
    ///     transaction.put(b"bob", (bob + 30).to_string().as_bytes())?;
    ///     Ok(true)
    /// }).await?;
    /// assert!(made);
    /// assert_eq!(session.get(b"bob").await?, Some(&b"30"[..]));
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn transaction_on<R>(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        body: impl FnMut(&mut Transaction) -> Result<R, Error>,
    ) -> Result<R, Error> {
        boxed(transaction(&mut self.inner, keys, body)).await?
    }

    /// Reads and changes keys in isolation; `body` decides on the way which ones. Either all of its changes are made at
    /// one instant, at which everything that it has read is still unchanged, or none is made. If other clients changed
    /// something first, `body` is called again; its last answer counts. In an attempt that fails, the values that it
    /// reads may be inconsistent with each other: it must terminate whatever it reads, and do nothing that must not be
    /// repeated. [`Session::transaction_on`] takes fewer round trips if the keys are known.
    ///
    /// # Errors
    /// The error of the body, which leaves everything unchanged; [`TransactionError`](crate::TransactionError).
    ///
    /// ```
    /// # farside::run(async {
    /// # use farside::{Options, Store};
    /// # let store = Store::open(Options::anonymous(64 << 20)).await?;
    /// # let mut session = store.session();
    /// session.put(b"newest", b"article:17").await?;
    /// session.put(b"article:17", b"draft").await?;
    /// let published = session.transaction(async |transaction| {
    ///     let Some(name) = transaction.get(b"newest").await?.map(<[u8]>::to_vec) else {
    ///         return Ok(None);
    ///     };
    ///     transaction.put(&name, b"published").await?;
    ///     transaction.delete(b"newest").await?;
    ///     Ok::<_, farside::Error>(Some(name))
    /// }).await?;
    /// assert_eq!(published.as_deref(), Some(&b"article:17"[..]));
    /// assert_eq!(session.get(b"article:17").await?, Some(&b"published"[..]));
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn transaction<R>(
        &mut self,
        body: impl AsyncFnMut(&mut kv::Interactive<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        boxed(self.inner.transaction(body)).await
    }

    /// Changes when a key expires; returns whether the key is there.
    pub async fn expire(&mut self, key: &[u8], expiry: Expiry) -> Result<bool, Error> {
        let decide = |_: &[u8], _| (expiry, ());
        let changed = self.inner.expire(key, decide).await?;
        Ok(changed.is_some())
    }

    /// The remaining lifetime of a key.
    pub async fn lifetime(&mut self, key: &[u8]) -> Result<Lifetime, Error> {
        let expiry_ms = self.inner.expiry_ms(key).await?;
        Ok(Lifetime::until(expiry_ms))
    }

    /// All items, in the order of keys if the index keeps it ([`Session::range`]). An item that is there throughout is
    /// returned once, any other at most once.
    ///
    /// ```
    /// # farside::run(async {
    /// # use farside::{Options, Store};
    /// # let store = Store::open(Options::anonymous(64 << 20)).await?;
    /// # let mut session = store.session();
    /// session.put(b"key", b"value").await?;
    /// let mut items = session.items();
    /// while let Some((key, value)) = items.next().await? {
    ///     assert_eq!((&key[..], &value[..]), (&b"key"[..], &b"value"[..]));
    /// }
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn items(&mut self) -> Items<'_> {
        Items {
            page: Vec::new().into_iter(),
            walk: Walk::all(self.inner.store().index().kind()),
            session: self,
        }
    }

    /// All keys; like [`Session::items`].
    pub fn keys(&mut self) -> Keys<'_> {
        Keys {
            page: Vec::new().into_iter(),
            walk: Walk::all(self.inner.store().index().kind()),
            session: self,
        }
    }

    /// The items whose keys are in a range, in lexicographic order of their bytes. Needs an index that keeps keys in
    /// order: [`Options::index`](crate::Options::index) with `IndexKind::Chime`, `Sherman`, `Marlin`, `Smart`, `Rolex`
    /// or `ChimeLearned`; with any other the first item is an error. An item that is there throughout is returned once,
    /// any other at most once. Several are read at a time, few of them beyond the end.
    /// [`with_prefix`](crate::with_prefix) is the range of all keys with a common prefix.
    ///
    /// ```
    /// # farside::run(async {
    /// use farside::{IndexKind, Options, Store};
    ///
    /// let store = Store::open(Options::anonymous(64 << 20).index(IndexKind::Chime)).await?;
    /// let mut session = store.session();
    /// for day in ["2026-11-03", "2026-10-30", "2026-11-01"] {
    ///     session.put(day.as_bytes(), b"took place").await?;
    /// }
    /// let mut november = session.range("2026-11".."2026-12");
    /// while let Some((day, _)) = november.next().await? {
    ///     assert!(day.starts_with(b"2026-11"));
    /// }
    /// # store.close().await
    /// # })??;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&mut self, keys: impl RangeBounds<K>) -> Items<'_> {
        Items {
            session: self,
            page: Vec::new().into_iter(),
            walk: Walk::over(&keys),
        }
    }

    /// The keys in a range; like [`Session::range`].
    pub fn range_keys<K: AsRef<[u8]>>(&mut self, keys: impl RangeBounds<K>) -> Keys<'_> {
        Keys {
            session: self,
            page: Vec::new().into_iter(),
            walk: Walk::over(&keys),
        }
    }

    /// How many keys there are, including expired ones that have not been removed yet. Reads the whole index.
    pub async fn count(&mut self) -> Result<u64, Error> {
        Ok(boxed(self.inner.count()).await?)
    }

    /// Removes every key; returns how many there were.
    pub async fn clear(&mut self) -> Result<u64, Error> {
        Ok(boxed(self.inner.clear()).await?)
    }

    /// Bytes of the blocks that hold keys and values, which [`Options::memory_max`](crate::Options::memory_max) limits.
    /// The numbers of other clients are those of their last tick, at most a millisecond or so ago.
    pub async fn memory_held(&mut self) -> Result<u64, Error> {
        Ok(boxed(self.inner.store().held()).await?)
    }

    /// Bytes of memory in use or reserved by clients, including tables.
    pub async fn memory_used(&mut self) -> Result<u64, Error> {
        Ok(boxed(memory_used(&self.inner)).await?)
    }
}

/// The values of many keys; see [`Session::values`].
#[derive(Debug)]
pub struct Values<'s, 'k>(kv::Values<'s, 'k>);

impl Values<'_, '_> {
    /// The value of the next key, in the session's buffer until the next call.
    ///
    /// # Errors
    /// See [`Session::get`]; the keys after this one can still be read.
    ///
    /// # Panics
    /// If all keys have been read.
    #[inline]
    pub async fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        Ok(self.0.next().await?)
    }
}

/// The items of a store, or of a range; see [`Session::items`] and [`Session::range`].
#[derive(Debug)]
pub struct Items<'s> {
    session: &'s mut Session,
    page: std::vec::IntoIter<KeyValue>,
    walk: Walk,
}

impl Items<'_> {
    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// See [`Session::get`]; the next call continues.
    pub async fn next(&mut self) -> Result<Option<KeyValue>, Error> {
        loop {
            if let Some(item) = self.page.next() {
                return Ok(Some(item));
            }
            if self.walk.is_over() {
                return Ok(None);
            }
            let walk = &mut self.walk;
            let page = walk.next_items(&mut self.session.inner).await;
            self.page = page?.into_iter();
        }
    }
}

/// The keys of a store, or of a range; see [`Session::keys`] and [`Session::range_keys`].
#[derive(Debug)]
pub struct Keys<'s> {
    session: &'s mut Session,
    page: std::vec::IntoIter<Vec<u8>>,
    walk: Walk,
}

impl Keys<'_> {
    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// See [`Session::get`]; the next call continues.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(key) = self.page.next() {
                return Ok(Some(key));
            }
            if self.walk.is_over() {
                return Ok(None);
            }
            let walk = &mut self.walk;
            let page = walk.next_keys(&mut self.session.inner).await;
            self.page = page?.into_iter();
        }
    }
}
