//! What a thread works with: operations on keys, one at a time.

use core::ops::{Range, RangeBounds};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;

use farside_kv::stack;
use farside_kv::{self as kv, Expiry, KeyValue, KvError, SetOptions, SetOutcome, Transaction};

use super::client::{Client, EventLoop, Host};
use super::interactive::{Begun, Interactive};
use super::keeper::Keeper;
use crate::embed::error::Error;
use crate::embed::operations;
use crate::embed::time::{Lifetime, after};
use crate::embed::walk::Walk;

/// Operations on a store, one at a time; each is linearizable. A session belongs to the thread that made it.
///
/// ```
/// use farside::{Options, blocking::Store};
///
/// let store = Store::open(Options::anonymous(64 << 20))?;
/// let mut session = store.session()?;
/// session.put(b"visits", b"41")?;
/// let increment = |stored: Option<&[u8]>| {
///     let number = stored.map_or("0", |bytes| core::str::from_utf8(bytes).unwrap_or("0"));
///     number.parse::<u64>().map(|number| (number + 1).to_string().into_bytes())
/// };
/// assert_eq!(session.update(b"visits", increment)?, Ok(()));
/// assert_eq!(session.get(b"visits")?, Some(&b"42"[..]));
/// # Ok::<(), farside::Error>(())
/// ```
///
/// Dropping it gives back the memory that it had reserved, which takes a few milliseconds.
#[derive(Debug)]
pub struct Session {
    // First: it leaves the pool while the keeper is still there.
    client: Box<Client>,
    keeper: Arc<Keeper>,
}

/// A client that has joined, and is known to the keeper.
fn join(keeper: &Keeper) -> Result<Box<Client>, Error> {
    let located = keeper.watch.located.clone();
    let connect = stack::connect(located.nodes.clone(), located.secret.clone());
    let (host, endpoint) = if located.is_mapped() {
        let mut connect = core::pin::pin!(connect);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(connected) = connect.as_mut().poll(&mut context) else {
            unreachable!("mapped memory has nothing to wait for");
        };
        (Host::Thread, connected?)
    } else {
        let event_loop = EventLoop::new()?;
        let endpoint = event_loop.block_on(connect)?;
        (Host::EventLoop(event_loop), endpoint)
    };
    let client = Box::new(Client::open(host, endpoint, &located)?);
    keeper.watch.enter(&client.ground.presence);
    Ok(client)
}

/// All operations fail with [`Error::Operation`], or with what opening a session anew reports.
impl Session {
    pub(super) fn open(keeper: Arc<Keeper>) -> Result<Self, Error> {
        let mut client = join(&keeper)?;
        client.ground.leave(false);
        Ok(Self { client, keeper })
    }

    #[inline]
    fn arrive(&mut self) -> Result<(), Error> {
        if self.client.ground.arrive() {
            Ok(())
        } else {
            self.reopen()
        }
    }

    #[cold]
    fn reopen(&mut self) -> Result<(), Error> {
        let client = join(&self.keeper)?;
        let before = core::mem::replace(&mut self.client, client);
        self.keeper.watch.exit(&before.ground.presence);
        Ok(())
    }

    /// Carries an operation out.
    #[inline]
    fn carry_out<'s, T, F>(&'s mut self, operation: impl FnOnce(&'s mut kv::Session) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, KvError>>,
    {
        self.arrive()?;
        let Client { session, ground } = &mut *self.client;
        let result = ground.run(operation(session));
        let is_cut_off = matches!(&result, Err(error) if error.is_cut_off());
        ground.leave(is_cut_off);
        result.map_err(Error::from)
    }

    /// The value of a key, in the session's buffer until the next operation.
    ///
    /// # Errors
    /// If the memory cannot be reached or is damaged; likewise for all operations below.
    #[inline]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        self.carry_out(|session| session.get(key))
    }

    /// Reads the value of a key into `target`; returns how many bytes it has. If it is longer than `target`, that stays
    /// unchanged. Over mapped memory with RACE, a long value is copied only once.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// session.put(b"block", &[7; 100_000])?;
    /// let mut block = vec![0; 1 << 20];
    /// assert_eq!(session.get_into(b"block", &mut block)?, Some(100_000));
    /// assert_eq!(block[99_999..100_001], [7, 0]);
    /// assert_eq!(session.get_into(b"nothing", &mut block)?, None);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn get_into(&mut self, key: &[u8], target: &mut [u8]) -> Result<Option<usize>, Error> {
        self.carry_out(|session| session.get_into(key, target))
    }

    /// The values of many keys, in their order; sixteen are read at a time. They are no snapshot: each key is read by
    /// itself.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// session.put(b"one", b"1")?;
    /// assert_eq!(session.get_many(&[b"one", b"two"])?, [Some(b"1".to_vec()), None]);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn get_many(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut values = Vec::with_capacity(keys.len());
        self.visit_many(keys, |_, value| values.push(value.map(<[u8]>::to_vec)))?;
        Ok(values)
    }

    /// Like [`Session::get_many`], but calls `visit` with the index and the value of each key, without copying it.
    /// `visit` must be quick: while it runs, no client can reclaim memory.
    pub fn visit_many(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Error> {
        self.carry_out(|session| operations::visit_many(session, keys, &mut visit))
    }

    /// Like [`Session::get_many`], but into buffers of the caller: `values` receives the values one after another, and
    /// `places`, for each key, the range of its value, if it has one. Previous contents are discarded; buffers with
    /// enough capacity are not reallocated.
    ///
    /// # Errors
    /// Both buffers are then empty.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// session.put(b"one", b"first")?;
    /// let (mut values, mut places) = (Vec::new(), Vec::new());
    /// session.get_many_into(&[b"two", b"one"], &mut values, &mut places)?;
    /// assert_eq!((&values[..], &places[..]), (&b"first"[..], &[None, Some(0..5)][..]));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn get_many_into(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        values: &mut Vec<u8>,
        places: &mut Vec<Option<Range<usize>>>,
    ) -> Result<(), Error> {
        self.carry_out(|session| operations::get_many_into(session, keys, values, places))
    }

    /// Stores a value without expiry, whatever was there before.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.carry_out(|session| session.put(key, value))
    }

    /// Stores many items, sixteen at a time; returns how many. Of several with the same key the last one stays.
    ///
    /// # Errors
    /// The first error. Some of the items are then stored, in no particular order.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// let items = (0..1000_u32).map(|number| (number.to_be_bytes(), b"value"));
    /// assert_eq!(session.put_many(items)?, 1000);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn put_many<K, V>(&mut self, items: impl IntoIterator<Item = (K, V)>) -> Result<u64, Error>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut items = items.into_iter();
        self.carry_out(async |session| {
            let (stored, result) = operations::boxed(operations::put_many(session, &mut items)).await;
            result.map(|()| stored)
        })
    }

    /// Removes many keys, sixteen at a time; returns how many were there.
    ///
    /// # Errors
    /// The first error. Some of the keys are then removed, in no particular order.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// session.put(b"one", b"1")?;
    /// assert_eq!(session.delete_many(&[b"one", b"two"])?, 1);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn delete_many(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<u64, Error> {
        self.carry_out(|session| operations::boxed(operations::delete_many(session, keys)))
    }

    /// Stores a value that expires after `duration`.
    ///
    /// ```
    /// # use farside::{Lifetime, Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// use core::time::Duration;
    ///
    /// session.put_for(b"ticket", b"one ride", Duration::from_secs(60))?;
    /// assert!(matches!(session.lifetime(b"ticket")?, Lifetime::Left(_)));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn put_for(&mut self, key: &[u8], value: &[u8], duration: Duration) -> Result<(), Error> {
        let options = SetOptions {
            expiry: after(duration),
            ..SetOptions::default()
        };
        self.set(key, value, options).map(drop)
    }

    /// Stores a value under a condition, with an expiry, or returning the previous value.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// use farside::{Condition, SetOptions};
    ///
    /// let first = SetOptions { condition: Condition::IfAbsent, ..SetOptions::default() };
    /// assert!(session.set(b"leader", b"me", first)?.is_stored);
    /// assert!(!session.set(b"leader", b"you", first)?.is_stored);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, Error> {
        self.carry_out(|session| session.set(key, value, options))
    }

    /// Removes a key; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.carry_out(|session| session.delete(key))
    }

    /// Removes a key; returns the value it had.
    pub fn take(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.carry_out(|session| session.take(key))
    }

    /// Replaces the value of a key by the result of `update`, atomically; the expiry stays. `update` may be called
    /// several times, if others change the key meanwhile. It may refuse: nothing is changed then, and the inner result
    /// has its error. It must be quick, and cannot use the session.
    pub fn update<R>(
        &mut self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    ) -> Result<Result<(), R>, Error> {
        self.carry_out(|session| session.update(key, &mut update))
    }

    /// Reads and changes some keys in isolation: `body` sees them as they were at one instant, and its changes take
    /// effect at that instant, all or none of them, even if the client dies. If another client changes one of the keys
    /// first, `body` is called again; its last answer counts. It can use only the keys that are named, and not the
    /// session. It must be quick: while it runs, no client can reclaim memory.
    ///
    /// # Errors
    /// The error of the body, which leaves everything unchanged; [`TransactionError`](crate::TransactionError).
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// session.put(b"alice", b"100")?;
    /// session.put(b"bob", b"0")?;
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
    /// })?;
    /// assert!(made);
    /// assert_eq!(session.get(b"bob")?, Some(&b"30"[..]));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn transaction_on<R>(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        mut body: impl FnMut(&mut Transaction) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.carry_out(|session| operations::boxed(operations::transaction(session, keys, &mut body)))?
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
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// session.put(b"newest", b"article:17")?;
    /// session.put(b"article:17", b"draft")?;
    /// let published = session.transaction(|transaction| {
    ///     let Some(name) = transaction.get(b"newest")?.map(<[u8]>::to_vec) else {
    ///         return Ok(None);
    ///     };
    ///     transaction.put(&name, b"published")?;
    ///     transaction.delete(b"newest")?;
    ///     Ok::<_, farside::Error>(Some(name))
    /// })?;
    /// assert_eq!(published.as_deref(), Some(&b"article:17"[..]));
    /// assert_eq!(session.get(b"article:17")?, Some(&b"published"[..]));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn transaction<R>(
        &mut self,
        mut body: impl FnMut(&mut Interactive<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut begun = self.begin()?;
        loop {
            let answer = body(&mut self.within(&mut begun));
            let is_wanted = answer.is_ok();
            if self.conclude(&mut begun, is_wanted)? {
                return answer;
            }
        }
    }

    /// Begins a transaction without a closure, for programs that decide elsewhere when it ends. It reads and changes
    /// through [`Session::within`], and [`Session::conclude`] makes the changes. Nothing is locked meanwhile; to
    /// abandon the transaction, drop it.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// let mut begun = session.begin()?;
    /// loop {
    ///     let stock: u64 = match session.within(&mut begun).get(b"stock")? {
    ///         Some(digits) => String::from_utf8_lossy(digits).parse().unwrap_or(0),
    ///         None => 10,
    ///     };
    ///     session.within(&mut begun).put(b"stock", (stock - 1).to_string().as_bytes())?;
    ///     if session.conclude(&mut begun, true)? {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(session.get(b"stock")?, Some(&b"9"[..]));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn begin(&mut self) -> Result<Begun, Error> {
        let journal = self.carry_out(async |session| Ok(session.journal()))?;
        Ok(Begun { journal })
    }

    /// The operations of a transaction that has begun.
    pub fn within<'s>(&'s mut self, begun: &'s mut Begun) -> Interactive<'s> {
        Interactive::new(self, &mut begun.journal)
    }

    /// Ends a transaction: makes its changes, if `is_wanted`, provided that everything that it has read is still
    /// unchanged, and returns whether it was. If not, other clients changed something first: nothing was changed, and
    /// `begun` is an empty transaction, to try again.
    ///
    /// # Errors
    /// [`TransactionError`](crate::TransactionError), [`Contended`](crate::TransactionError::Contended) if there have
    /// been conflicts for too long.
    pub fn conclude(&mut self, begun: &mut Begun, is_wanted: bool) -> Result<bool, Error> {
        self.carry_out(|session| session.conclude(&mut begun.journal, is_wanted))
    }

    /// Adds a key to those that a journal knows.
    pub(super) fn get_to_know(&mut self, journal: &mut kv::Journal, key: &[u8], is_blind: bool) -> Result<(), Error> {
        self.carry_out(|session| session.get_to_know(journal, key, is_blind))
    }

    /// Changes when a key expires; returns whether the key is there.
    pub fn expire(&mut self, key: &[u8], expiry: Expiry) -> Result<bool, Error> {
        let decide = |_: &[u8], _| (expiry, ());
        let changed = self.carry_out(|session| session.expire(key, decide));
        Ok(changed?.is_some())
    }

    /// The remaining lifetime of a key.
    pub fn lifetime(&mut self, key: &[u8]) -> Result<Lifetime, Error> {
        let expiry_ms = self.carry_out(|session| session.expiry_ms(key));
        Ok(Lifetime::until(expiry_ms?))
    }

    /// All items, in the order of keys if the index keeps it ([`Session::range`]). An item that is there throughout is
    /// returned once, any other at most once.
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// session.put(b"key", b"value")?;
    /// for item in session.items() {
    ///     let (key, value) = item?;
    ///     assert_eq!((&key[..], &value[..]), (&b"key"[..], &b"value"[..]));
    /// }
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn items(&mut self) -> Items<'_> {
        Items {
            page: Vec::new().into_iter(),
            walk: Walk::all(self.keeper.index),
            session: self,
        }
    }

    /// All keys; like [`Session::items`].
    pub fn keys(&mut self) -> Keys<'_> {
        Keys {
            page: Vec::new().into_iter(),
            walk: Walk::all(self.keeper.index),
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
    /// use farside::{IndexKind, Options, blocking::Store};
    ///
    /// let store = Store::open(Options::anonymous(64 << 20).index(IndexKind::Chime))?;
    /// let mut session = store.session()?;
    /// for day in ["2026-11-03", "2026-10-30", "2026-11-01"] {
    ///     session.put(day.as_bytes(), b"took place")?;
    /// }
    /// let november: Result<Vec<_>, _> = session.range("2026-11".."2026-12").collect();
    /// let days: Vec<_> = november?.into_iter().map(|(day, _)| day).collect();
    /// assert_eq!(days, [b"2026-11-01", b"2026-11-03"]);
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
    pub fn count(&mut self) -> Result<u64, Error> {
        self.carry_out(|session| operations::boxed(session.count()))
    }

    /// Removes every key; returns how many there were.
    pub fn clear(&mut self) -> Result<u64, Error> {
        self.carry_out(|session| operations::boxed(session.clear()))
    }

    /// Bytes of the blocks that hold keys and values, which [`Options::memory_max`](crate::Options::memory_max) limits.
    /// The numbers of other clients are those of their last tick, at most a millisecond or so ago.
    pub fn memory_held(&mut self) -> Result<u64, Error> {
        self.carry_out(|session| operations::boxed(session.store().held()))
    }

    /// Bytes of memory in use or reserved by clients, including tables.
    pub fn memory_used(&mut self) -> Result<u64, Error> {
        self.carry_out(|session| operations::boxed(operations::memory_used(session)))
    }

    /// The next items of a walk; there may be none although it is not over. This is for programs that keep a walk apart
    /// from the session; others use [`Session::items`] and [`Session::range`].
    ///
    /// ```
    /// # use farside::{Options, blocking::Store};
    /// # let store = Store::open(Options::anonymous(64 << 20))?;
    /// # let mut session = store.session()?;
    /// use farside::blocking::Walk;
    ///
    /// session.put(b"key", b"value")?;
    /// let mut walk = Walk::all(store.index());
    /// while !walk.is_over() {
    ///     for (key, _) in session.next_items(&mut walk)? {
    ///         session.delete(&key)?;
    ///     }
    /// }
    /// assert_eq!(session.count()?, 0);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn next_items(&mut self, walk: &mut Walk) -> Result<Vec<KeyValue>, Error> {
        self.carry_out(|session| walk.next_items(session))
    }

    /// The keys of the next items; see [`Session::next_items`].
    pub fn next_keys(&mut self, walk: &mut Walk) -> Result<Vec<Vec<u8>>, Error> {
        self.carry_out(|session| walk.next_keys(session))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nobody stands in for who leaves.
        self.keeper.watch.exit(&self.client.ground.presence);
    }
}

/// The items of a store, or of a range; see [`Session::items`] and [`Session::range`]. After an error the next call
/// continues, unless the error is that the index keeps no order.
#[derive(Debug)]
pub struct Items<'s> {
    session: &'s mut Session,
    page: std::vec::IntoIter<KeyValue>,
    walk: Walk,
}

impl Iterator for Items<'_> {
    type Item = Result<KeyValue, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.page.next() {
                return Some(Ok(item));
            }
            if self.walk.is_over() {
                return None;
            }
            match self.session.next_items(&mut self.walk) {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The keys of a store, or of a range; see [`Session::keys`] and [`Session::range_keys`]. After an error the next call
/// continues, unless the error is that the index keeps no order.
#[derive(Debug)]
pub struct Keys<'s> {
    session: &'s mut Session,
    page: std::vec::IntoIter<Vec<u8>>,
    walk: Walk,
}

impl Iterator for Keys<'_> {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(key) = self.page.next() {
                return Some(Ok(key));
            }
            if self.walk.is_over() {
                return None;
            }
            match self.session.next_keys(&mut self.walk) {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
