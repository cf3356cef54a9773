//! Transactions: several keys read and changed as if nobody else were there.
//!
//! On the path: the keys are named before; all of them are looked for under one pin, the body of the transaction decides on what was
//! found, without waiting for anything, and the index replaces what it says, all or nothing ([`Index::commit`]). If another
//! client has been quicker with one of the keys, everything begins again.
//!
//! [`Index::commit`]: farside_index::Index::commit

use core::fmt;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, LocalFuture, OpContext, RemoteAddr, join_all};
use farside_index::{
    Change, Commit, Decide, Decision, GONE_MS, IndexError, Item, KEY_BYTES_MAX, KEYS_AT_ONCE, Located, Replacement,
    Spot, VALUE_BYTES_MAX,
};
use farside_pool::{PoolError, Purpose};

use crate::decision;
use crate::error::{KvError, Pending};
use crate::expiry::{Expiry, is_there};
use crate::session::{Alteration, Session, SetOptions, SetOutcome};
use crate::store::Store;

/// How many keys a transaction may name.
pub const TRANSACTION_KEYS_MAX: usize = 1 << 16;
/// For how long a transaction is tried if a session's operations have no deadline, in nanoseconds.
const TRY_NS: u64 = 10_000_000_000;
/// How often blocks are fetched before it is known that there are too few of them, for no key at all.
const FETCHES_MIN: usize = 16;
/// Bytes of values that a transaction may read and store.
pub const TRANSACTION_BYTES_MAX: u64 = 512 << 20;
/// The pause after a conflict: the first, and the longest.
const PAUSE_NS: (u64, u64) = (2_000, 1_000_000);

/// A transaction failed; nothing was changed by it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// It uses a key that it has not named.
    #[error("the transaction uses the key {key:?}, which is not among those that it was begun with")]
    Undeclared {
        /// The key, as text.
        key: String,
    },
    /// It names too many keys.
    #[error("the transaction names {count} keys, at most {TRANSACTION_KEYS_MAX} are allowed")]
    TooManyKeys {
        /// How many.
        count: usize,
    },
    /// It reads and stores too much.
    #[error("the transaction reads and stores values of more than {TRANSACTION_BYTES_MAX} bytes")]
    TooLarge,
    /// Others were quicker, again and again.
    #[error("the transaction lost against others {rounds} times: try again later, or with fewer keys at once")]
    Contended {
        /// How often it was tried.
        rounds: u64,
    },
}

/// What becomes of a key.
#[derive(Clone)]
pub(crate) enum After {
    Put { value: Vec<u8>, expiry_ms: u64 },
    Delete,
}

/// A key of a transaction.
pub(crate) struct Held {
    pub(crate) key: Vec<u8>,
    /// Its value and its expiry, if it is there.
    pub(crate) before: Option<(Vec<u8>, u64)>,
    /// Where it was found, even if what is there has expired.
    spot: Option<Spot>,
    /// Whether another transaction is changing it, or it is moving.
    is_busy: bool,
    /// Whether nobody has looked what is there.
    pub(crate) is_unread: bool,
    pub(crate) after: Option<After>,
    is_read: bool,
}

/// Several keys, as they were at one instant, and what becomes of them. The same operations as a session's, which see what this
/// transaction has done before.
pub struct Transaction {
    /// In the order of the keys.
    pub(crate) held: Vec<Held>,
    now_ms: u64,
    /// Bytes of all values that were copied for it.
    copied: u64,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("keys", &self.held.len()).finish()
    }
}

/// What a key was when [`Transaction::watch`] saw it.
#[derive(Clone, Debug)]
pub struct Watched {
    key: Vec<u8>,
    /// If it was there.
    seen: Option<Seen>,
    /// How its value is hashed: nobody can know two values that look alike.
    hasher: RandomState,
}

/// Where an item stands, its expiry, and a hash of its value. The place tells apart what was stored twice; it may come back with
/// something else, so all three count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    block: RemoteAddr,
    expiry_ms: u64,
    value: (usize, u64),
}

impl Watched {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Transaction {
    pub(crate) fn new(now_ms: u64, key_count: usize) -> Self {
        Self {
            held: Vec::with_capacity(key_count),
            now_ms,
            copied: 0,
        }
    }

    /// Adds a key that was looked for.
    fn add(&mut self, held: Held) -> Result<(), KvError> {
        let bytes = held.before.as_ref().map_or(0, |(value, _)| value.len());
        self.held.push(held);
        self.copy(bytes)
    }

    /// Notes that a value was copied.
    fn copy(&mut self, bytes: usize) -> Result<(), KvError> {
        self.copied += bytes as u64;
        self.check_size()
    }

    fn check_size(&self) -> Result<(), KvError> {
        match self.copied > TRANSACTION_BYTES_MAX {
            true => Err(TransactionError::TooLarge.into()),
            false => Ok(()),
        }
    }

    /// Where among its keys one is, or would be.
    pub(crate) fn place(&self, key: &[u8]) -> Result<usize, usize> {
        self.held.binary_search_by(|held| held.key.as_slice().cmp(key))
    }

    pub(crate) fn held(&mut self, key: &[u8]) -> Result<&mut Held, KvError> {
        match self.place(key) {
            Ok(index) => Ok(&mut self.held[index]),
            Err(_) => Err(TransactionError::Undeclared {
                key: String::from_utf8_lossy(key).into_owned(),
            }
            .into()),
        }
    }

    /// The value of a key, as this transaction has left it.
    ///
    /// # Errors
    /// [`TransactionError::Undeclared`]; likewise for all methods.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError> {
        Ok(self.get_with_expiry(key)?.map(|(value, _)| value))
    }

    /// The same, with when it expires, in milliseconds since the Unix epoch (0: never).
    pub fn get_with_expiry(&mut self, key: &[u8]) -> Result<Option<(&[u8], u64)>, KvError> {
        let now_ms = self.now_ms;
        let held = self.held(key)?;
        let now = match &held.after {
            Some(After::Put { value, expiry_ms }) => Some((value.as_slice(), *expiry_ms)),
            Some(After::Delete) => None,
            None => {
                held.is_read = true;
                let before = held.before.as_ref();
                before.map(|(value, expiry_ms)| (value.as_slice(), *expiry_ms))
            }
        };
        Ok(now.filter(|&(_, expiry_ms)| is_there(expiry_ms, || now_ms)))
    }

    /// When a key expires: `None` if it is not there, 0 if it never does.
    pub fn expiry_ms(&mut self, key: &[u8]) -> Result<Option<u64>, KvError> {
        Ok(self.get_with_expiry(key)?.map(|(_, expiry_ms)| expiry_ms))
    }

    /// See [`Session::change`].
    pub fn change<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<(), KvError> {
        // Once it is too large it is refused, so nothing more need be made for it.
        self.check_size()?;
        let stored = self.get_with_expiry(key)?;
        let stored = stored.map(|(value, expiry_ms)| Item { key, value, expiry_ms });
        let after = match decide(stored) {
            Decision::Keep => return Ok(()),
            Decision::Delete { .. } => After::Delete,
            Decision::Put { value, .. } if value.len() > VALUE_BYTES_MAX => {
                return Err(IndexError::ValueTooLong { bytes: value.len() }.into());
            }
            Decision::Put { value, expiry_ms, .. } => {
                let value = value.into_owned();
                self.copy(value.len())?;
                After::Put { value, expiry_ms }
            }
        };
        self.held(key)?.after = Some(after);
        Ok(())
    }

    /// Stores a value for good.
    ///
    /// # Errors
    /// Also if the value is too long; likewise for whatever stores one.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.set(key, value, SetOptions::default()).map(drop)
    }

    /// See [`Session::set`].
    pub fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, KvError> {
        let mut outcome = SetOutcome::default();
        self.change(key, &mut |stored| decision::set(stored, value, options, &mut outcome))?;
        Ok(outcome)
    }

    /// See [`Session::alter`].
    pub fn alter<'v>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<(&[u8], u64)>) -> Alteration<'v>,
    ) -> Result<(), KvError> {
        let now_ms = self.now_ms;
        self.change(key, &mut |stored| {
            let alteration = decide(stored.map(|item| (item.value, item.expiry_ms)));
            decision::alter(stored, alteration, || now_ms)
        })
    }

    /// See [`Session::update`].
    ///
    /// # Errors
    /// What `update` refuses stands in the inner result.
    pub fn update<R>(
        &mut self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    ) -> Result<Result<(), R>, KvError> {
        let mut result = Ok(());
        self.change(key, &mut |stored| decision::update(stored, &mut update, &mut result))?;
        Ok(result)
    }

    /// See [`Session::expire`].
    pub fn expire<R>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(&[u8], u64) -> (Expiry, R),
    ) -> Result<Option<R>, KvError> {
        let (mut answer, now_ms) = (None, self.now_ms);
        self.change(key, &mut |stored| {
            decision::expire(stored, &mut decide, &mut answer, || now_ms)
        })?;
        Ok(answer)
    }

    /// Removes a key; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, KvError> {
        Ok(self.take(key)?.is_some())
    }

    /// Removes a key; returns the value it had.
    pub fn take(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let mut taken = None;
        self.change(key, &mut |stored| {
            taken = stored.map(|item| item.value.to_vec());
            Decision::Delete { regardless: false }
        })?;
        Ok(taken)
    }

    /// Notes what a key is, for a later transaction to ask whether it [has stayed](Self::is_as_watched) so. What this transaction
    /// does to it does not count.
    pub fn watch(&mut self, key: &[u8]) -> Result<Watched, KvError> {
        let held = self.held(key)?;
        held.is_read = true;
        let hasher = RandomState::new();
        Ok(Watched {
            key: key.to_vec(),
            seen: held.seen(&hasher),
            hasher,
        })
    }

    /// Whether a key has not been stored, removed or given another expiry since it was watched, nor has expired. A key that was not
    /// there, was stored and is not there again counts as unchanged.
    pub fn is_as_watched(&mut self, watched: &Watched) -> Result<bool, KvError> {
        let held = self.held(&watched.key)?;
        held.is_read = true;
        Ok(held.seen(&watched.hasher) == watched.seen)
    }

    /// Takes back everything that was to be changed.
    pub fn give_up(&mut self) {
        self.held.iter_mut().for_each(|held| held.after = None);
    }
}

/// What a round of a transaction has come to.
enum Round {
    Done,
    /// Others are in the way, of this key if it is known which.
    Lost(Option<Vec<u8>>),
    /// Keys that are not there have to be stored as items that have expired.
    Missing(Vec<Vec<u8>>),
    Short {
        bytes: u64,
        count: usize,
    },
    /// The limit of memory would be passed by so many bytes.
    Tight {
        bytes: u64,
    },
}

/// The keys under which a transaction has stored an item that nobody sees, to be removed where nothing else comes there.
type Places = Vec<Vec<u8>>;

/// How long a transaction is tried.
#[derive(Debug)]
pub(crate) struct Patience {
    until_ns: u64,
    pause_ns: u64,
    rounds: u64,
}

impl Patience {
    pub(crate) fn new(session: &Session) -> Self {
        let try_ns = session.store.timeout_ns.unwrap_or(TRY_NS);
        Self {
            until_ns: session.store.endpoint.now_ns().saturating_add(try_ns),
            pause_ns: PAUSE_NS.0,
            rounds: 0,
        }
    }

    fn check(&self, session: &Session) -> Result<(), KvError> {
        match session.store.endpoint.now_ns() < self.until_ns {
            true => Ok(()),
            false => Err(TransactionError::Contended { rounds: self.rounds }.into()),
        }
    }

    /// Pauses after a conflict; what came before the first one does not count.
    ///
    /// # Errors
    /// [`TransactionError::Contended`] if time is up.
    pub(crate) async fn pause(&mut self, session: &mut Session) -> Result<(), KvError> {
        if self.rounds == 0 {
            *self = Self::new(session);
        }
        self.check(session)?;
        let endpoint = session.store.endpoint.clone();
        session.cx.count_retry();
        let pause_ns = self.pause_ns + endpoint.random_below(self.pause_ns);
        endpoint.sleep(pause_ns).await;
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_NS.1);
        self.rounds += 1;
        Ok(())
    }
}

impl Session {
    /// Reads and changes some keys as if nobody else were there: `body` sees them as they were at one instant, and what it changes
    /// is changed at that instant, all of it or, on an error, nothing. The body may be called several times; its last answer
    /// counts. It changes nothing if all it does is read: so several keys are read as of one instant.
    ///
    /// # Errors
    /// [`TransactionError`], and what the body answers; otherwise as for all operations. After an error of the fabric nobody knows
    /// whether all was changed or nothing.
    pub async fn transaction_on<R>(
        &mut self,
        keys: &[&[u8]],
        mut body: impl FnMut(&mut Transaction) -> Result<R, KvError>,
    ) -> Result<R, KvError> {
        let mut answer = None;
        self.run_transaction(keys, &mut |transaction| {
            let answered = body(transaction);
            let is_refused = answered.is_err();
            answer = Some(answered);
            is_refused
        })
        .await?;
        answer.expect("the body was called")
    }

    /// `body` says whether it refuses to change anything.
    fn run_transaction<'f>(
        &'f mut self,
        keys: &'f [&'f [u8]],
        body: &'f mut dyn FnMut(&mut Transaction) -> bool,
    ) -> Pending<'f, ()> {
        Box::pin(async move {
            let mut sorted: Vec<&[u8]> = keys.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            if sorted.len() > TRANSACTION_KEYS_MAX {
                let count = sorted.len();
                return Err(TransactionError::TooManyKeys { count }.into());
            }
            if let Some(key) = sorted.iter().find(|key| key.len() > KEY_BYTES_MAX) {
                return Err(IndexError::KeyTooLong { bytes: key.len() }.into());
            }
            let mut places = Places::new();
            let result = self.try_until_done(&sorted, body, &mut places).await;
            for key in &places {
                if !self.store.remove_gone(&mut self.cx, key).await {
                    break;
                }
            }
            result
        })
    }

    /// Tries until nobody is in the way, or time is up.
    async fn try_until_done(
        &mut self,
        keys: &[&[u8]],
        body: &mut dyn FnMut(&mut Transaction) -> bool,
        places: &mut Places,
    ) -> Result<(), KvError> {
        let mut patience = Patience::new(self);
        let mut has_room = false;
        // Blocks of different lengths may be had, but not all of them: fetching one kind then costs another.
        let fetches_max = 2 * keys.len() + FETCHES_MIN;
        let mut fetches_left = fetches_max;
        loop {
            self.cx.shrink();
            if self.store.timeout_ns.is_some() {
                self.cx.set_deadline(Deadline(patience.until_ns));
            }
            match self.round(keys, has_room, body, places).await? {
                Round::Done => return Ok(()),
                Round::Missing(keys) => {
                    patience.check(self)?;
                    for key in keys {
                        self.make_room(&key, 0).await?;
                        if self.store.hold_place(&mut self.cx, &key).await? {
                            places.push(key);
                        }
                    }
                }
                Round::Short { bytes, count } => {
                    let pool = self.store.pool();
                    let restocked = match fetches_left {
                        0 => Err(PoolError::OutOfMemory { bytes }),
                        _ => pool.restock(bytes, count, Purpose::Overwrite).await,
                    };
                    fetches_left = fetches_left.saturating_sub(1);
                    if let Err(error) = restocked {
                        self.make_room_for(error, bytes).await?;
                        fetches_left = fetches_max;
                    }
                }
                Round::Tight { bytes } => {
                    Box::pin(self.store.make_room(bytes)).await?;
                    has_room = true;
                }
                Round::Lost(key) => {
                    if let Some(key) = key {
                        self.store.clear_way(&mut self.cx, &key).await?;
                    }
                    patience.pause(self).await?;
                }
            }
        }
    }

    async fn make_room_for(&mut self, error: PoolError, bytes: u64) -> Result<(), KvError> {
        let is_short = matches!(error, PoolError::OutOfMemory { .. });
        let evicts = is_short && self.store.quota.policy().evicts();
        if !evicts || !Box::pin(self.store.evict_blocks_for(bytes)).await? {
            return Err(error.into());
        }
        Ok(())
    }

    /// One attempt, under one pin. It may not look once more whether there is room.
    async fn round(
        &mut self,
        keys: &[&[u8]],
        has_room: bool,
        body: &mut dyn FnMut(&mut Transaction) -> bool,
        places: &mut Places,
    ) -> Result<Round, KvError> {
        let Self {
            store,
            cx,
            many,
            looking,
            ..
        } = self;
        let pin = store.pool().pin();
        let mut transaction = Transaction::new(store.endpoint.unix_ms(), keys.len());
        for some in keys.chunks(KEYS_AT_ONCE) {
            if some.len() == 1 || store.endpoint.is_mapped() {
                if some.len() > 1 {
                    store.index.approach(cx, some, many);
                }
                for key in some {
                    let looked = store.look(cx, key).await?;
                    transaction.add(looked)?;
                }
            } else {
                for looked in store.look_together(cx, looking, some).await {
                    transaction.add(looked?)?;
                }
            }
            let mut looked = transaction.held.iter().rev().take(some.len());
            if let Some(busy) = looked.find(|held| held.is_busy) {
                return Ok(Round::Lost(Some(busy.key.clone())));
            }
        }
        let absent: Vec<&[u8]> = transaction
            .held
            .iter()
            .filter(|held| held.spot.is_none())
            .map(|held| held.key.as_slice())
            .collect();
        if absent.len() > 1 {
            // That one key is not there can be seen at an instant; of several it takes something that would change.
            return Ok(Round::Missing(absent.iter().map(|key| key.to_vec()).collect()));
        }
        let all: Vec<&Spot> = transaction.held.iter().filter_map(|held| held.spot.as_ref()).collect();
        if keys.len() > 1
            && !is_planted("transaction: a body that sees several instants")
            && !store.index.holds(cx, absent.first().copied(), &all).await?
        {
            return Ok(Round::Lost(None));
        }
        let is_refused = body(&mut transaction);
        transaction.check_size()?;
        if is_refused {
            transaction.give_up();
        }
        let mut held = transaction.held;
        for held in &mut held {
            // There is nothing to delete.
            if held.before.is_none() && matches!(held.after, Some(After::Delete)) {
                (held.after, held.is_read) = (None, true);
            }
        }
        if held.iter().all(|held| held.after.is_none()) {
            let there = held.iter().filter(|held| held.before.is_some());
            there.for_each(|held| store.note_use(&held.key));
            return Ok(Round::Done);
        }
        // While others change, what is not there takes something that would change with it.
        let is_missing = |held: &&Held| held.spot.is_none() && (held.after.is_some() || held.is_read);
        let missing: Vec<_> = held.iter().filter(is_missing).map(|held| held.key.clone()).collect();
        if !missing.is_empty() {
            return Ok(Round::Missing(missing));
        }
        let read = held.iter().filter(|held| held.is_read && held.after.is_none());
        let read: Vec<&Spot> = read.filter_map(|held| held.spot.as_ref()).collect();
        let replacements: Vec<Replacement<'_>> = held.iter().filter_map(Held::replacement).collect();
        // By so much more than what is there: what only gives memory back needs no room.
        let stored = held.iter().filter(|held| matches!(held.after, Some(After::Put { .. })));
        let growth = stored.filter_map(Held::replacement).map(|replacement| {
            let bytes = replacement.item.bytes();
            bytes.saturating_sub(replacement.spot.bytes())
        });
        let bytes: u64 = growth.sum();
        if bytes > 0 && !has_room && !store.has_room(bytes) {
            return Ok(Round::Tight { bytes });
        }
        let commit = Box::pin(store.index.commit(cx, &read, &replacements)).await?;
        drop(pin);
        match commit {
            Commit::Conflict => return Ok(Round::Lost(None)),
            Commit::Short { bytes, count } => return Ok(Round::Short { bytes, count }),
            Commit::Done => {}
        }
        // The keys are in their order.
        let has_changed = |key: &Vec<u8>| {
            let place = held.binary_search_by(|held| held.key.cmp(key));
            place.is_ok_and(|place| held[place].after.is_some())
        };
        places.retain(|key| !has_changed(key));
        for held in &held {
            match &held.after {
                Some(After::Put { expiry_ms, .. }) => {
                    store.note_use(&held.key);
                    if *expiry_ms != 0 {
                        store.expiry_mark.set();
                    }
                }
                Some(After::Delete) => {
                    store.forget_use(&held.key);
                    store.remove_gone(cx, &held.key).await;
                }
                None if held.before.is_some() => store.note_use(&held.key),
                None => {}
            }
        }
        Ok(Round::Done)
    }
}

impl Held {
    /// A key of which nothing is known.
    pub(crate) fn unknown(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            before: None,
            spot: None,
            is_busy: false,
            is_unread: true,
            after: None,
            is_read: false,
        }
    }

    /// What a watch notes of it, if it is there.
    fn seen(&self, hasher: &RandomState) -> Option<Seen> {
        let (value, expiry_ms) = self.before.as_ref()?;
        Some(Seen {
            block: self.spot.as_ref()?.block(),
            expiry_ms: *expiry_ms,
            value: (value.len(), hasher.hash_one(value)),
        })
    }

    fn replacement(&self) -> Option<Replacement<'_>> {
        let (value, expiry_ms) = match self.after.as_ref()? {
            After::Put { value, expiry_ms } => (value.as_slice(), *expiry_ms),
            After::Delete => (&[][..], GONE_MS),
        };
        Some(Replacement {
            spot: self.spot.as_ref()?,
            item: Item {
                key: &self.key,
                value,
                expiry_ms,
            },
        })
    }
}

impl Store {
    /// Looks for a key, and copies its value.
    async fn look(&self, cx: &mut OpContext, key: &[u8]) -> Result<Held, KvError> {
        let mut held = Held {
            is_unread: false,
            ..Held::unknown(key)
        };
        match self.index.locate(cx, key).await? {
            Located::Busy => held.is_busy = true,
            Located::Absent => {}
            Located::Here(spot, found) => {
                let found = self.unless_expired(Some(found));
                held.before = found.map(|found| (cx.buffer()[found.value.range()].to_vec(), found.expiry_ms));
                held.spot = Some(spot);
            }
        }
        Ok(held)
    }

    /// Looks for a few keys, each with one of the contexts in `own`: in as many round trips as one takes.
    async fn look_together(
        &self,
        cx: &OpContext,
        own: &mut Vec<OpContext>,
        keys: &[&[u8]],
    ) -> Vec<Result<Held, KvError>> {
        while own.len() < keys.len() {
            own.push(OpContext::new(self.endpoint.clone()));
        }
        let looks = own.iter_mut().zip(keys).map(|(own, key)| -> LocalFuture<'_, _> {
            own.set_deadline(cx.deadline());
            Box::pin(self.look(own, key))
        });
        let looked = join_all(looks.collect()).await;
        own.iter_mut().for_each(OpContext::shrink);
        looked
    }

    /// Stores an item that has expired under a key that is not there, for a transaction to replace; returns whether it did.
    async fn hold_place(&self, cx: &mut OpContext, key: &[u8]) -> Result<bool, KvError> {
        let mut decide = |stored: Option<Item<'_>>| match stored {
            Some(_) => Decision::Keep,
            None => Decision::Put {
                value: Cow::Borrowed(&[]),
                expiry_ms: GONE_MS,
                regardless: false,
            },
        };
        let change = self.index.change(cx, key, None, &mut decide).await?;
        // If the transaction does not come to its end, the sweeper removes it.
        self.expiry_mark.set();
        Ok(!matches!(change, Change::Kept))
    }

    /// Waits until a key can be changed, as whoever changes it does: by storing what is there once more.
    async fn clear_way(&self, cx: &mut OpContext, key: &[u8]) -> Result<(), KvError> {
        let mut decide = |stored: Option<Item<'_>>| match stored {
            None => Decision::Keep,
            Some(item) => Decision::Put {
                value: Cow::Owned(item.value.to_vec()),
                expiry_ms: item.expiry_ms,
                regardless: false,
            },
        };
        self.index.change(cx, key, None, &mut decide).await?;
        Ok(())
    }

    /// Removes an item that a transaction has left as gone. If that fails, which is false, the sweeper does it: the transaction has
    /// not failed.
    pub(crate) async fn remove_gone(&self, cx: &mut OpContext, key: &[u8]) -> bool {
        self.expiry_mark.set();
        let mut decide = |stored: Option<Item<'_>>| match stored {
            Some(item)
                if item.expiry_ms == GONE_MS || is_planted("transaction: a key removed that was stored anew") =>
            {
                Decision::Delete { regardless: false }
            }
            _ => Decision::Keep,
        };
        let changed = self.index.change(cx, key, None, &mut decide).await;
        if let Err(error) = &changed {
            tracing::debug!("what a transaction has deleted stays until it is swept: {error}");
        }
        changed.is_ok()
    }
}
