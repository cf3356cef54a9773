//! A session: operations on keys, one at a time.
//!
//! On the path: this is where a protocol's command becomes a search or a change of the index, and
//! where expiry is decided: an expired item is treated as absent, and replaced or removed by the
//! next change of its key.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, OpContext};
use farside_index::CommitSpace;
use farside_index::item::item_bytes;
use farside_index::{Approach, Change, Decide, Decision, Found, Index, Item, Likely, SearchMany, Wanted};

use crate::decision::{self, Deletion};
use crate::error::{KvError, Pending};
use crate::expiry::{self, Expiry};
use crate::store::Store;
use crate::sweep::Expired;
use crate::transaction::Transaction;
use crate::value;
use farside_index::GONE_MS;
use farside_value::format::Tag;

/// Under which condition a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only if the key is not there.
    IfAbsent,
    /// Only if the key is there.
    IfPresent,
}

/// How a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SetOptions {
    /// When.
    pub condition: Condition,
    /// For how long.
    pub expiry: Expiry,
    /// Whether to return the previous value.
    pub returns_old: bool,
}

/// The outcome of storing a value.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SetOutcome {
    /// Whether the condition held.
    pub is_stored: bool,
    /// The previous value, if it was requested and there was one.
    pub old: Option<Vec<u8>>,
}

/// What becomes of a key; see [`Session::alter`]. An expiry in the past removes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alteration<'v> {
    /// It stays as it is.
    Keep,
    /// It is removed.
    Delete,
    /// Its value stays, if there is one, and gets this expiry.
    Expire(Expiry),
    /// It gets this value.
    Put {
        /// The value.
        value: &'v [u8],
        /// Its expiry.
        expiry: Expiry,
    },
}

/// A key.
pub type Key = Vec<u8>;

/// A key and the type of its value.
pub type KeyTag = (Key, Tag);

/// A key and its value.
pub type KeyValue = (Key, Vec<u8>);

/// A shorter value is copied again sooner than looked for with its key alone.
const READ_APART_BYTES: usize = 4 << 10;

/// How many items of a range with an end are read first, and
const RANGE_STEP_FIRST: usize = 16;
/// how many together at most.
const RANGE_STEP_MAX: usize = 256;

/// The smallest key after all keys that begin with `prefix`: the end of their range. `None` if there is no such key.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Operations on a store, one at a time.
#[derive(Debug)]
pub struct Session {
    pub(crate) store: Store,
    pub(crate) cx: OpContext,
    pub(crate) many: SearchMany,
    /// For keys among many that take a SEARCH of their own.
    pub(crate) apart: Option<OpContext>,
    /// For keys that are changed at the same time, or looked for by a transaction.
    pub(crate) beside: Vec<OpContext>,
    /// The one that is tried, or was.
    pub(crate) transaction: Transaction,
    /// For its commit.
    pub(crate) space: Option<Box<CommitSpace>>,
}

impl Session {
    pub(crate) fn new(store: Store, cx: OpContext) -> Self {
        Self {
            store,
            cx,
            many: SearchMany::default(),
            apart: None,
            beside: Vec::new(),
            transaction: Transaction::default(),
            space: None,
        }
    }

    /// The context, with its counts of retries.
    #[must_use]
    pub fn context(&self) -> &OpContext {
        &self.cx
    }

    /// How often its operations have been retried so far because another client was faster.
    #[inline]
    #[must_use]
    pub fn retries(&self) -> u64 {
        let others = self.apart.iter().chain(&self.beside);
        self.cx.retries() + others.map(OpContext::retries).sum::<u64>()
    }

    /// Bytes of its buffers: they stay as large as the largest value read recently, or as a transaction that was
    /// dropped before its end.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        let others = self.apart.iter().chain(&self.beside);
        let others: usize = others.map(|cx| cx.buffer().len()).sum();
        self.cx.buffer().len() + others + self.transaction.bytes()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    #[inline]
    pub(crate) fn start(&mut self) {
        // What a large value before this operation needed.
        self.cx.shrink();
        if let Some(timeout_ns) = self.store.timeout_ns {
            let deadline = Deadline(self.store.endpoint.now_ns().saturating_add(timeout_ns));
            self.cx.set_deadline(deadline);
        }
    }

    /// The value of a key, in the session's buffer until the next operation.
    ///
    /// # Errors
    /// See [`KvError`]; likewise for all operations below.
    pub async fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError> {
        let found = match self.search_now(key) {
            Some(Some(found)) if found.tag == Tag::String => return Ok(Some(&self.cx.buffer()[found.value.range()])),
            Some(found) => found,
            None => self.search_later(key).await?,
        };
        match found {
            Some(found) if found.tag == Tag::String => Ok(Some(&self.cx.buffer()[found.value.range()])),
            None => Ok(None),
            Some(found) => Err(value::wrong(found.tag, Tag::String)),
        }
    }

    /// Reads the value of a key into `target`, if it fits; returns how many bytes it has.
    pub async fn get_into(&mut self, key: &[u8], target: &mut [u8]) -> Result<Option<usize>, KvError> {
        if target.len() >= READ_APART_BYTES
            && let Some(found) = self.store.index.read_now(&mut self.cx, key, target)
        {
            self.start();
            let found = self.store.seen(key, Some(found));
            let bytes = |found: Found| value::check(found.tag, Tag::String).map(|()| found.value.bytes as usize);
            return found.map(bytes).transpose();
        }
        let value = self.get(key).await?;
        Ok(value.map(|value| {
            if let Some(target) = target.get_mut(..value.len()) {
                target.copy_from_slice(value);
            }
            value.len()
        }))
    }

    /// What is there of a key. Also notes that it was used.
    pub(crate) async fn search(&mut self, key: &[u8]) -> Result<Option<Found>, KvError> {
        match self.search_now(key) {
            Some(found) => Ok(found),
            None => self.search_later(key).await,
        }
    }

    /// The same in a plain call, if nothing has to be waited for, and the others of a pipeline need not run meanwhile.
    #[inline]
    fn search_now(&mut self, key: &[u8]) -> Option<Option<Found>> {
        self.start();
        if self.cx.is_pipelined() {
            return None;
        }
        let found = self.store.index.search_now(&mut self.cx, key)?;
        Some(self.store.seen(key, found))
    }

    async fn search_later(&mut self, key: &[u8]) -> Result<Option<Found>, KvError> {
        let found = match self.cx.is_pipelined() {
            true => self.search_in_turn(key).await,
            false => None,
        };
        let found = match found {
            Some(found) => found,
            None => self.store.index.search(&mut self.cx, key).await?,
        };
        Ok(self.store.seen(key, found))
    }

    /// In a pipeline: lets the others run while the memory is fetched that a look for a key sees, then looks, if nothing has
    /// to be waited for.
    async fn search_in_turn(&mut self, key: &[u8]) -> Option<Option<Found>> {
        let approach = self.approach_in_turn(key).await;
        let Self { store, cx, .. } = self;
        match store.index.approached(cx, key, &approach) {
            Some(found) => Some(Some(found)),
            None => store.index.search_now(cx, key),
        }
    }

    async fn approach_in_turn(&self, key: &[u8]) -> Approach {
        let mut approach = self.store.index.approach_key();
        while self.store.index.approach_next(self.cx.endpoint(), key, &mut approach) {
            self.cx.turn().await;
        }
        approach
    }

    /// Marks a key as used, as a read does; returns whether it is there.
    pub async fn touch(&mut self, key: &[u8]) -> Result<bool, KvError> {
        Ok(self.search(key).await?.is_some())
    }

    /// When a key expires, in milliseconds since the Unix epoch: `None` if it is not there, 0 if it never expires.
    pub async fn expiry_ms(&mut self, key: &[u8]) -> Result<Option<u64>, KvError> {
        Ok(self.look(key).await?.map(|found| found.expiry_ms))
    }

    /// What is there of a key, which is no use of it.
    pub(crate) async fn look(&mut self, key: &[u8]) -> Result<Option<Found>, KvError> {
        self.start();
        let found = self.store.index.search(&mut self.cx, key).await?;
        Ok(self.store.unless_expired(found))
    }

    /// The value of a key and when it expires, in milliseconds since the Unix epoch (0: never), both at the same
    /// instant.
    pub async fn get_with_expiry(&mut self, key: &[u8]) -> Result<Option<(&[u8], u64)>, KvError> {
        match self.search(key).await? {
            Some(found) => {
                let value = value::bytes(found, Tag::String, self.cx.buffer())?;
                Ok(Some((value, found.expiry_ms)))
            }
            None => Ok(None),
        }
    }

    /// Bytes of memory that a key takes: the header, key and value of its item, and the pointer to it. Its block may be
    /// slightly larger. `None` if the key is not there.
    pub async fn stored_bytes(&mut self, key: &[u8]) -> Result<Option<u64>, KvError> {
        let found = self.look(key).await?;
        let bytes = |value_bytes: usize| (size_of::<u64>() + item_bytes(key.len(), value_bytes)) as u64;
        Ok(found.map(|found| bytes(found.value.bytes as usize)))
    }

    /// Stores a value without expiry.
    pub async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        if let Some(room) = self.room_for(key, value.len()) {
            room.await?;
        }
        let likely = Likely::for_good(value);
        let mut decide = |_: Option<Item<'_>>| likely.decision();
        self.change_likely(key, Some(likely), &mut decide).await.map(drop)
    }

    /// Stores a value under a condition, whatever the type of the one that is there, unless that is to be returned.
    pub async fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, KvError> {
        if let Some(room) = self.room_for(key, value.len()) {
            room.await?;
        }
        let mut outcome = SetOutcome {
            // Whoever combines it with another write does not ask.
            is_stored: options.condition == Condition::Always,
            old: None,
        };
        // Unless what is stored decides.
        let is_known = options.condition != Condition::IfAbsent && options.expiry != Expiry::Keep;
        let likely = is_known.then_some(Likely {
            value,
            expiry_ms: options.expiry.resolve(0),
            regardless: decision::is_regardless(options),
        });
        let mut decide = |stored: Option<Item<'_>>| decision::set(stored, (Tag::String, value), options, &mut outcome);
        match options.returns_old {
            true => self.change_typed(key, (Tag::String, likely), &mut decide).await?,
            false => self.change_likely(key, likely, &mut decide).await?,
        };
        Ok(outcome)
    }

    /// Changes a key atomically, as `decide` says, which is given its value and its expiry (0: never), or `None` if it
    /// is not there. `decide` may be called several times; the last answer counts.
    pub async fn alter<'v>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<(&[u8], u64)>) -> Alteration<'v>,
    ) -> Result<(), KvError> {
        self.make_room(key, 0).await?;
        let endpoint = self.store.endpoint.clone();
        self.change(key, &mut |stored| {
            let alteration = decide(stored.map(|item| (item.value, item.expiry_ms)));
            decision::alter(stored, alteration, || endpoint.unix_ms())
        })
        .await
        .map(drop)
    }

    /// Removes a key; returns whether it was there.
    pub async fn delete(&mut self, key: &[u8]) -> Result<bool, KvError> {
        let mut deletion = Deletion::default();
        let change = self
            .change_any(key, &mut |stored| deletion.decision(stored.is_some()))
            .await?;
        Ok(deletion.has_removed(change))
    }

    /// Removes a key if `decide` says so, which is given its value and its expiry (0: never); returns its answer, or
    /// `None` if the key is not there. `decide` may be called several times.
    pub async fn delete_if(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(&[u8], u64) -> bool,
    ) -> Result<Option<bool>, KvError> {
        let mut answer = None;
        self.change(key, &mut |stored| {
            answer = stored.map(|item| decide(item.value, item.expiry_ms));
            match answer {
                Some(true) => Decision::Delete { regardless: false },
                _ => Decision::Keep,
            }
        })
        .await?;
        Ok(answer)
    }

    /// Removes a key if it has this value, which is how the holder of a lock releases it; returns whether it had, or
    /// `None` if the key is not there.
    pub async fn delete_if_equal(&mut self, key: &[u8], value: &[u8]) -> Result<Option<bool>, KvError> {
        self.delete_if(key, |stored, _| stored == value).await
    }

    /// Changes when a key expires if it has this value, which is how the holder of a lock keeps it; returns whether it
    /// had, or `None` if the key is not there. An expiry in the past removes the key.
    pub async fn expire_if_equal(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<Option<bool>, KvError> {
        let mut answer = None;
        let endpoint = self.store.endpoint.clone();
        let mut decide = |stored: &[u8], _| match stored == value {
            true => (expiry, true),
            false => (Expiry::Keep, false),
        };
        self.change(key, &mut |stored| {
            answer = None;
            decision::expire(stored, &mut decide, &mut answer, || endpoint.unix_ms())
        })
        .await?;
        Ok(answer)
    }

    /// Removes a key for good if it has expired; returns when that was. To everybody else it was gone before.
    pub(crate) fn delete_expired<'f>(&'f mut self, key: &'f [u8]) -> Pending<'f, Option<u64>> {
        Box::pin(async move {
            self.start();
            let endpoint = self.store.endpoint.clone();
            let mut expired = None;
            let mut decide = |stored: Option<Item<'_>>| {
                let is_over = |item: &Item<'_>| {
                    (!expiry::is_there(item.expiry_ms, || endpoint.unix_ms()) && item.expiry_ms != GONE_MS)
                        || is_planted("sweep: a key removed that was stored anew")
                };
                expired = stored.filter(is_over).map(|item| item.expiry_ms);
                match expired {
                    Some(_) => Decision::Delete { regardless: false },
                    None => Decision::Keep,
                }
            };
            self.store.index.change(&mut self.cx, key, None, &mut decide).await?;
            Ok(expired)
        })
    }

    /// The keys of the page at `cursor` that are past their time.
    pub(crate) fn scan_expired<'f>(&'f mut self, cursor: u64) -> Pending<'f, Expired> {
        Box::pin(async move {
            self.start();
            let endpoint = self.store.endpoint.clone();
            let (mut keys, mut expiring) = (Vec::new(), 0);
            let mut visit = |item: Item<'_>| {
                expiring += u64::from(item.expiry_ms != 0);
                if !expiry::is_there(item.expiry_ms, || endpoint.unix_ms()) {
                    keys.push((item.key.to_vec(), item.expiry_ms));
                }
            };
            let next = self
                .store
                .upkeep
                .scan(&mut self.cx, cursor, (Wanted::Keys, &mut visit))
                .await?;
            Ok(Expired { keys, expiring, next })
        })
    }

    /// Removes a key; returns the value it had.
    pub async fn take(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let mut taken = None;
        self.change(key, &mut |stored| {
            taken = stored.map(|item| item.value.to_vec());
            Decision::Delete { regardless: false }
        })
        .await?;
        Ok(taken)
    }

    /// Changes when a key expires, atomically; the value stays, whatever its type. `decide` is given the value and the expiry (0: never)
    /// and returns the new expiry, which removes the key if it is in the past, and an answer for the caller. It may be
    /// called several times; returns its last answer, or `None` if the key is not there.
    pub async fn expire<R>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(&[u8], u64) -> (Expiry, R),
    ) -> Result<Option<R>, KvError> {
        let mut answer = None;
        let endpoint = self.store.endpoint.clone();
        self.change_any(key, &mut |stored| {
            // What an attempt before this one saw does not count.
            answer = None;
            decision::expire(stored, &mut decide, &mut answer, || endpoint.unix_ms())
        })
        .await?;
        Ok(answer)
    }

    /// Replaces the value of a key by the result of `update`, atomically; the expiry stays. `update` may be called
    /// several times, and may refuse.
    ///
    /// # Errors
    /// The outer result has those of the store, the inner one the refusal of `update`: nothing was changed.
    pub async fn update<R>(
        &mut self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    ) -> Result<Result<(), R>, KvError> {
        self.make_room(key, 0).await?;
        let mut result = Ok(());
        let decide = &mut |stored: Option<Item<'_>>| decision::update(stored, &mut update, &mut result);
        self.change_typed(key, (Tag::String, None), decide).await?;
        Ok(result)
    }

    /// Makes room for an item, if it would exceed the limit of memory.
    pub async fn make_room(&mut self, key: &[u8], value_bytes: usize) -> Result<(), KvError> {
        match self.room_for(key, value_bytes) {
            None => Ok(()),
            Some(room) => room.await,
        }
    }

    /// What makes room for an item, if that is needed.
    #[inline]
    pub(crate) fn room_for(&self, key: &[u8], value_bytes: usize) -> Option<Pending<'_, ()>> {
        let bytes = item_bytes(key.len(), value_bytes) as u64;
        (!self.store.has_room(bytes)).then(|| self.store.make_room(bytes))
    }

    /// Changes a key as `decide` says, which is given its item, a string, or `None` if it is not there. `decide` may be
    /// called several times; the last answer counts.
    ///
    /// # Errors
    /// See [`KvError`]: also if the value has another type. If there is a limit of memory, the caller has to make room
    /// first ([`Session::make_room`]).
    pub async fn change<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<Change, KvError> {
        self.change_typed(key, (Tag::String, None), decide).await
    }

    /// The same for a value of any type. All other changes are based on this; [`decision`] has their decisions.
    ///
    /// # Errors
    /// Likewise, but for the type.
    #[inline]
    pub async fn change_any<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<Change, KvError> {
        self.change_likely(key, None, decide).await
    }

    /// The same for a value of one type.
    #[inline]
    pub(crate) async fn change_typed<'v>(
        &mut self,
        key: &[u8],
        (tag, likely): (Tag, Option<Likely<'_>>),
        decide: &mut (impl FnMut(Option<Item<'_>>) -> Decision<'v> + ?Sized),
    ) -> Result<Change, KvError> {
        // Of the last time that it was asked.
        let mut other = None;
        let mut decide = |stored: Option<Item<'_>>| {
            other = stored.map(|item| item.tag).filter(|&found| found != tag);
            match other {
                None => decide(stored),
                Some(_) => Decision::Keep,
            }
        };
        let change = self.change_likely(key, likely, &mut decide).await?;
        match other {
            None => Ok(change),
            Some(found) => Err(KvError::WrongType { found, wanted: tag }),
        }
    }

    /// Changes a key; `decide` does not see an item that has expired.
    #[inline]
    async fn change_likely<'v>(
        &mut self,
        key: &[u8],
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
    ) -> Result<Change, KvError> {
        self.start();
        let changed = match self.cx.is_pipelined() {
            true => {
                let approach = self.approach_in_turn(key).await;
                self.store
                    .change_now(&mut self.cx, key, Some(&approach), likely, decide)
            }
            false => self.store.change_now(&mut self.cx, key, None, likely, decide),
        };
        match changed {
            Some(changed) => changed,
            None => self.store.change_later(&mut self.cx, key, likely, decide).await,
        }
    }

    /// How many keys are stored, including expired ones that have not been removed yet.
    pub fn count<'f>(&'f mut self) -> Pending<'f, u64> {
        Box::pin(async move {
            self.cx.set_deadline(Deadline::NEVER);
            Ok(self.store.index.count(&mut self.cx).await?)
        })
    }

    /// Some of the keys that have strings, with these, from `cursor` on, which is 0 at first; and the next cursor, 0 at the end. A
    /// key that is there throughout is returned once, any other at most once; the order is arbitrary unless the index
    /// keeps keys in order.
    pub fn scan<'f>(&'f mut self, cursor: u64) -> Pending<'f, (Vec<KeyValue>, u64)> {
        Box::pin(async move {
            let mut found = Vec::new();
            let visit = |item: Item<'_>| {
                if item.tag == Tag::String {
                    found.push((item.key.to_vec(), item.value.to_vec()));
                }
            };
            let next = self.visit(|store| &store.index, cursor, (Wanted::Items, visit)).await?;
            Ok((found, next))
        })
    }

    /// Like [`Session::scan`], without the values, and of all types.
    pub fn scan_keys<'f>(&'f mut self, cursor: u64) -> Pending<'f, (Vec<Vec<u8>>, u64)> {
        Box::pin(async move {
            self.visit_keys(|store| &store.index, cursor, |key, _| key.to_vec())
                .await
        })
    }

    /// The same, and what type the value of each key has.
    pub fn scan_tags<'f>(&'f mut self, cursor: u64) -> Pending<'f, (Vec<KeyTag>, u64)> {
        Box::pin(async move {
            let show = |key: &[u8], tag| (key.to_vec(), tag);
            self.visit_keys(|store| &store.index, cursor, show).await
        })
    }

    /// A random cursor for [`Session::random_keys`].
    #[must_use]
    pub fn random_cursor(&self) -> u64 {
        self.store.upkeep.random_cursor(&self.store.endpoint)
    }

    /// Like [`Session::scan_keys`], from a random cursor to the end, so that it returns only some of the keys. Its
    /// cursors are separate from those of scans, so that these stay valid however many random keys are requested.
    ///
    /// # Errors
    /// As for a scan.
    pub fn random_keys<'f>(&'f mut self, cursor: u64) -> Pending<'f, (Vec<Vec<u8>>, u64)> {
        Box::pin(async move {
            self.visit_keys(|store| &store.upkeep, cursor, |key, _| key.to_vec())
                .await
        })
    }

    /// The key at which a scan continues for `cursor`, if the index keeps keys in order: [`Session::range`] can start
    /// from it.
    ///
    /// # Errors
    /// If the cursor is so old that it is no longer known, or was given out by another store.
    pub fn key_at(&self, cursor: u64) -> Result<Option<Box<[u8]>>, KvError> {
        Ok(self.store.index.key_at(cursor)?)
    }

    /// A cursor for a scan that continues with this key.
    #[must_use]
    pub fn cursor_at(&self, key: &[u8]) -> u64 {
        self.store.index.cursor_at(key)
    }

    /// The strings from the key `from` on, and before the key `to` if there is one, in lexicographic order of their keys'
    /// bytes; and the key to continue with, `None` at the end. A key that is there throughout is returned once, any
    /// other at most once.
    ///
    /// It looks at `limit` items at most and leaves out those of other types or that have expired, so it may return fewer, or none,
    /// before the end. All are read within the deadline of one operation: request some hundreds, and continue from
    /// there.
    ///
    /// # Errors
    /// If the index does not keep keys in order ([`KvError::is_unordered`]); otherwise as for all operations.
    pub fn range<'f>(
        &'f mut self,
        from: &'f [u8],
        to: Option<&'f [u8]>,
        limit: usize,
    ) -> Pending<'f, (Vec<KeyValue>, Option<Key>)> {
        Box::pin(async move {
            let mut found = Vec::with_capacity(limit.min(RANGE_STEP_MAX));
            let visit = |item: Item<'_>| {
                if item.tag == Tag::String {
                    found.push((item.key.to_vec(), item.value.to_vec()));
                }
            };
            let next = self.visit_range(from, to, limit, (Wanted::Items, visit)).await?;
            Ok((found, next))
        })
    }

    /// Like [`Session::range`], without the values, and of all types.
    pub fn range_keys<'f>(
        &'f mut self,
        from: &'f [u8],
        to: Option<&'f [u8]>,
        limit: usize,
    ) -> Pending<'f, (Vec<Key>, Option<Key>)> {
        Box::pin(async move {
            let (found, next) = self.range_tags(from, to, limit).await?;
            Ok((found.into_iter().map(|(key, _)| key).collect(), next))
        })
    }

    /// The same, and what type the value of each key has.
    pub fn range_tags<'f>(
        &'f mut self,
        from: &'f [u8],
        to: Option<&'f [u8]>,
        limit: usize,
    ) -> Pending<'f, (Vec<KeyTag>, Option<Key>)> {
        Box::pin(async move {
            let mut found = Vec::new();
            let visit = |item: Item<'_>| found.push((item.key.to_vec(), item.tag));
            let next = self.visit_range(from, to, limit, (Wanted::Keys, visit)).await?;
            Ok((found, next))
        })
    }

    /// Visits the items of a range that are there, and returns the key to go on with.
    async fn visit_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        (wanted, mut visit): (Wanted, impl FnMut(Item<'_>)),
    ) -> Result<Option<Vec<u8>>, KvError> {
        self.start();
        let Self { store, cx, .. } = self;
        // Where the range ends is found out by reading beyond it, so nobody reads far before it is known to be long.
        let mut step = if to.is_some() { RANGE_STEP_FIRST } else { limit };
        let (mut next, mut left) = (from.to_vec(), limit);
        loop {
            let is_behind = to.is_some_and(|to| next.as_slice() >= to);
            let (count, mut is_past) = (step.min(left), is_behind);
            let mut look = |item: Item<'_>| {
                is_past |= to.is_some_and(|to| item.key >= to);
                if !is_past && store.is_there(item.expiry_ms) {
                    visit(item);
                }
            };
            // Also asked if nothing is to be read: whether the index is in order.
            let count_read = if is_behind { 0 } else { count };
            let read = store.index.range(cx, &next, count_read, (wanted, &mut look));
            let behind = read.await?.filter(|_| !is_past);
            left -= count;
            match behind {
                Some(key) if left > 0 => next = key,
                behind => return Ok(behind.filter(|key| to.is_none_or(|to| key.as_slice() < to))),
            }
            step = (step * 2).min(RANGE_STEP_MAX);
        }
    }

    /// Some of the keys that are there from `cursor` on, as `show` shows them, and the next cursor.
    async fn visit_keys<K>(
        &mut self,
        index: fn(&Store) -> &Index,
        cursor: u64,
        show: fn(&[u8], Tag) -> K,
    ) -> Result<(Vec<K>, u64), KvError> {
        let mut found = Vec::new();
        let visit = |item: Item<'_>| found.push(show(item.key, item.tag));
        let next = self.visit(index, cursor, (Wanted::Keys, visit)).await?;
        Ok((found, next))
    }

    /// Visits some of the items that are there from `cursor` on, and returns the next cursor. `index` is that of scans, or the
    /// one whose cursors are the store's own.
    async fn visit(
        &mut self,
        index: fn(&Store) -> &Index,
        cursor: u64,
        (wanted, mut visit): (Wanted, impl FnMut(Item<'_>)),
    ) -> Result<u64, KvError> {
        self.start();
        let endpoint = self.store.endpoint.clone();
        let mut visit = |item: Item<'_>| {
            if expiry::is_there(item.expiry_ms, || endpoint.unix_ms()) {
                visit(item);
            }
        };
        let index = index(&self.store);
        Ok(index.scan(&mut self.cx, cursor, (wanted, &mut visit)).await?)
    }

    /// Removes every key; returns how many there were.
    pub fn clear<'f>(&'f mut self) -> Pending<'f, u64> {
        Box::pin(async move {
            self.cx.set_deadline(Deadline::NEVER);
            Ok(self.store.index.clear(&mut self.cx).await?)
        })
    }
}
