//! Transactions: several keys are read and changed in isolation.
//!
//! On the path: the keys are named before; all of them are looked for under one pin, the body of the transaction decides on what was
//! found, without waiting for anything, and the index replaces what it says, all or nothing ([`Index::commit`]). If another
//! client has been quicker with one of the keys, everything begins again.
//!
//! [`Index::commit`]: farside_index::Index::commit

mod keys;

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::borrow::Cow;
use std::rc::Rc;

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, LocalFuture, OpContext, join_all};
use farside_index::{
    Approach, Change, Commit, Decision, Found, GONE_MS, IndexError, Item, KEY_BYTES_MAX, KEYS_AT_ONCE, Located,
    Replacement, SearchMany, Spot, Tag,
};
use farside_pool::{PoolError, Purpose};

use self::keys::{After, Stored};
pub use self::keys::{Transaction, Watched};
use crate::error::{KvError, Pending};
use crate::session::Session;
use crate::store::Store;
use crate::turns::{Turn, Turns};

/// How many keys a transaction may name.
pub const TRANSACTION_KEYS_MAX: usize = 1 << 16;
/// For how long a transaction is retried if a session's operations have no deadline, in nanoseconds.
const TRY_NS: u64 = 10_000_000_000;
/// How often blocks are fetched before it is known that there are too few of them, for no key at all.
const FETCHES_MIN: usize = 16;
/// Bytes of values that a transaction may read and store.
pub const TRANSACTION_BYTES_MAX: u64 = 512 << 20;
/// Steps by which memory is approached before it is looked at: buckets, and items.
const APPROACH_STEPS: usize = 2;
/// The pause after a conflict: the first, and the longest.
const PAUSE_NS: (u64, u64) = (2_000, 1_000_000);
/// After how long whoever waits for a turn looks whether time is up. One alarm at the end would be left behind by each who did not need it.
const TURN_POLL_NS: u64 = 500_000;

/// A transaction failed; nothing was changed by it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// It uses a key that it did not name.
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
    /// There were conflicts with other clients until time ran out.
    #[error(
        "the transaction conflicted with others until its time was up ({rounds} failed attempts): try again later, or with fewer keys \
         at once"
    )]
    Contended {
        /// How often it was tried; 0 if its turn never came.
        rounds: u64,
    },
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

    /// Counts a conflict; what came before the first one does not count.
    ///
    /// # Errors
    /// [`TransactionError::Contended`] if time is up; likewise below.
    fn count(&mut self, session: &mut Session) -> Result<(), KvError> {
        if self.rounds == 0 {
            *self = Self::new(session);
        }
        self.check(session)?;
        session.cx.count_retry();
        self.rounds += 1;
        Ok(())
    }

    /// Pauses after a conflict.
    pub(crate) async fn pause(&mut self, session: &mut Session) -> Result<(), KvError> {
        self.count(session)?;
        let endpoint = &session.store.endpoint;
        let pause_ns = self.pause_ns + endpoint.random_below(self.pause_ns);
        endpoint.sleep(pause_ns).await;
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_NS.1);
        Ok(())
    }

    /// Waits until it is the turn of these keys.
    async fn take_turn<'t>(&self, session: &Session, turns: &'t Turns, keys: &[&[u8]]) -> Result<Turn<'t>, KvError> {
        let mut turn = pin!(turns.take(keys));
        loop {
            self.check(session)?;
            let mut a_while = pin!(session.store.endpoint.sleep(TURN_POLL_NS));
            let taken = poll_fn(|context| match turn.as_mut().poll(context) {
                Poll::Ready(turn) => Poll::Ready(Some(turn)),
                Poll::Pending => a_while.as_mut().poll(context).map(|()| None),
            });
            if let Some(turn) = taken.await {
                return Ok(turn);
            }
        }
    }
}

impl Session {
    /// Reads and changes some keys in isolation: `body` sees them as they were at one instant, and its changes take
    /// effect at that instant, all of them or, on an error, none. The body may be called several times; its last answer
    /// counts. A body that only reads changes nothing: this reads several keys as of one instant.
    ///
    /// # Errors
    /// [`TransactionError`], and the error of the body; otherwise as for all operations. After an error of the fabric
    /// it is not known whether all changes were made or none.
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
            self.transaction.shrink();
            if let Some(space) = &mut self.space {
                space.shrink();
            }
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
        let turns = Rc::clone(&self.store.turns);
        let mut turn = None;
        let mut waits = turns.are_taken(keys);
        // Blocks of different lengths may be had, but not all of them: fetching one kind then costs another.
        let fetches_max = 2 * keys.len() + FETCHES_MIN;
        let mut fetches_left = fetches_max;
        loop {
            if waits && turn.is_none() {
                turn = Some(patience.take_turn(self, &turns, keys).await?);
            }
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
                    match turn {
                        Some(_) => patience.pause(self).await?,
                        None => patience.count(self)?,
                    }
                    waits = true;
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
            beside,
            transaction,
            space,
            ..
        } = self;
        let space = &mut **space.get_or_insert_default();
        let pin = store.pool().pin_to_change(keys.len()).await?;
        transaction.begin(store.endpoint.unix_ms());
        for some in keys.chunks(KEYS_AT_ONCE) {
            if some.len() == 1 || store.endpoint.is_mapped() {
                let found = store.look_now(cx, many, transaction, some)?;
                for key in &some[found..] {
                    let looked = store.look(cx, key).await?;
                    if looked.is_busy {
                        return Ok(Round::Lost(Some(key.to_vec())));
                    }
                    transaction.add(key, looked, cx.buffer())?;
                }
            } else {
                let all = store.look_together(cx, beside, some).await;
                for ((key, looked), own) in some.iter().zip(all).zip(&mut *beside) {
                    let looked = looked?;
                    if looked.is_busy {
                        return Ok(Round::Lost(Some(key.to_vec())));
                    }
                    transaction.add(key, looked, own.buffer())?;
                }
                beside.iter_mut().for_each(OpContext::shrink);
            }
        }
        let absent = transaction.held.iter().filter(|held| held.spot.is_none());
        let absent: Vec<Vec<u8>> = absent.map(|held| transaction.key(held).to_vec()).collect();
        if absent.len() > 1 {
            // That one key is not there can be seen at an instant; of several it takes something that would change.
            return Ok(Round::Missing(absent));
        }
        let all: Vec<&Spot> = transaction.held.iter().filter_map(|held| held.spot.as_ref()).collect();
        if keys.len() > 1
            && !is_planted("transaction: a body that sees several instants")
            && !store
                .index
                .holds(cx, space, absent.first().map(Vec::as_slice), &all)
                .await?
        {
            return Ok(Round::Lost(None));
        }
        let is_refused = body(transaction);
        transaction.check_size()?;
        if is_refused {
            transaction.give_up();
        }
        for held in &mut transaction.held {
            // There is nothing to delete.
            if held.before.is_none() && matches!(held.after, Some(After::Delete)) {
                (held.after, held.is_read) = (None, true);
            }
        }
        let transaction = &*transaction;
        let held = &transaction.held;
        if held.iter().all(|held| held.after.is_none()) {
            let there = held.iter().filter(|held| held.before.is_some());
            there.for_each(|held| store.note_use(transaction.key(held)));
            return Ok(Round::Done);
        }
        // While others change, what is not there takes something that would change with it.
        if held
            .iter()
            .any(|held| held.spot.is_none() && (held.after.is_some() || held.is_read))
        {
            return Ok(Round::Missing(absent));
        }
        let read = held.iter().filter(|held| held.is_read && held.after.is_none());
        let read: Vec<&Spot> = read.filter_map(|held| held.spot.as_ref()).collect();
        let replacements = held.iter().filter_map(|held| transaction.replacement(held));
        let replacements: Vec<Replacement<'_>> = replacements.collect();
        // By so much more than what is there: what only gives memory back needs no room.
        let stored = replacements
            .iter()
            .filter(|replacement| replacement.item.expiry_ms != GONE_MS);
        let growth = stored.map(|replacement| replacement.item.bytes().saturating_sub(replacement.spot.bytes()));
        let bytes: u64 = growth.sum();
        if bytes > 0 && !has_room && !store.has_room(bytes) {
            return Ok(Round::Tight { bytes });
        }
        let commit = Box::pin(store.index.commit(cx, space, &read, &replacements)).await?;
        drop(pin);
        match commit {
            Commit::Conflict => return Ok(Round::Lost(None)),
            Commit::Short { bytes, count } => return Ok(Round::Short { bytes, count }),
            Commit::Done => {}
        }
        places.retain(|key| {
            let place = transaction.place(key);
            !place.is_ok_and(|place| held[place].after.is_some())
        });
        for held in held {
            let key = transaction.key(held);
            match held.after {
                Some(After::Put(Stored { expiry_ms, .. })) => {
                    store.note_use(key);
                    if expiry_ms != 0 {
                        store.expiry_mark.set();
                    }
                }
                Some(After::Delete) => {
                    store.forget_use(key);
                    store.remove_gone(cx, key).await;
                }
                None if held.before.is_some() => store.note_use(key),
                None => {}
            }
        }
        Ok(Round::Done)
    }
}

/// What was found of a key.
#[derive(Default)]
struct Looked {
    /// Where, even if what is there has expired.
    spot: Option<Spot>,
    /// What, in the context's buffer.
    found: Option<Found>,
    /// Whether another transaction is changing it, or it is moving.
    is_busy: bool,
}

impl Store {
    /// Looks for a key.
    async fn look(&self, cx: &mut OpContext, key: &[u8]) -> Result<Looked, KvError> {
        Ok(self.looked(self.index.locate(cx, key).await?))
    }

    fn looked(&self, located: Located) -> Looked {
        match located {
            Located::Busy => Looked {
                is_busy: true,
                ..Looked::default()
            },
            Located::Absent => Looked::default(),
            Located::Here(spot, found) => Looked {
                spot: Some(spot),
                found: self.unless_expired(Some(found)),
                is_busy: false,
            },
        }
    }

    /// Looks for a few keys over mapped memory, where the cache misses of all of them overlap, up to one that something has to be
    /// waited for. Adds those before it, and returns how many they are.
    fn look_now(
        &self,
        cx: &mut OpContext,
        many: &mut SearchMany,
        transaction: &mut Transaction,
        keys: &[&[u8]],
    ) -> Result<usize, KvError> {
        let mut approaches: ArrayVec<Approach, KEYS_AT_ONCE> = ArrayVec::new();
        if keys.len() > 1 {
            if self.index.approaches_in_steps() {
                approaches.extend(keys.iter().map(|_| self.index.approach_key()));
                for _ in 0..APPROACH_STEPS {
                    for (key, approach) in keys.iter().zip(&mut approaches) {
                        self.index.approach_next(&self.endpoint, key, approach);
                    }
                }
            } else {
                drop(self.index.approach_each(cx, keys, many));
            }
        }
        for (at, key) in keys.iter().enumerate() {
            let Some(located) = self.index.locate_now(cx, key, approaches.get(at)) else {
                return Ok(at);
            };
            let looked = self.looked(located?);
            if looked.is_busy {
                return Ok(at);
            }
            transaction.add(key, looked, cx.buffer())?;
        }
        Ok(keys.len())
    }

    /// Looks for a few keys, each with one of the contexts in `own`, which have what was found: in as many round trips as one takes.
    async fn look_together(
        &self,
        cx: &OpContext,
        own: &mut Vec<OpContext>,
        keys: &[&[u8]],
    ) -> Vec<Result<Looked, KvError>> {
        let own = self.contexts(cx, own, keys.len());
        let looks = own.iter_mut().zip(keys);
        let looks = looks.map(|(own, key)| -> LocalFuture<'_, _> { Box::pin(self.look(own, key)) });
        join_all(looks.collect()).await
    }

    /// Stores an item that has expired under a key that is not there, for a transaction to replace; returns whether it did.
    async fn hold_place(&self, cx: &mut OpContext, key: &[u8]) -> Result<bool, KvError> {
        let mut decide = |stored: Option<Item<'_>>| match stored {
            Some(_) => Decision::Keep,
            None => Decision::Put {
                value: Cow::Borrowed(&[]),
                expiry_ms: GONE_MS,
                tag: Tag::String,
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
                tag: item.tag,
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
