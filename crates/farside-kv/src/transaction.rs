//! Transactions: several keys read and changed as if nobody else were there.
//!
//! On the path: the keys are named before; all of them are looked for under one pin, the body of the transaction decides on what was
//! found, without waiting for anything, and the index replaces what it says, all or nothing ([`Index::commit`]). If another
//! client has been quicker with one of the keys, everything begins again.
//!
//! [`Index::commit`]: farside_index::Index::commit

use core::fmt;
use std::borrow::Cow;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, OpContext};
use farside_index::{
    Commit, Decision, GONE_MS, IndexError, Item, KEY_BYTES_MAX, Located, Replacement, Spot, VALUE_BYTES_MAX,
};
use farside_pool::{PoolError, Purpose};

use crate::error::{KvError, Pending};
use crate::expiry::Expiry;
use crate::session::Session;
use crate::store::Store;

/// How many keys a transaction may name.
pub const TRANSACTION_KEYS_MAX: usize = 1 << 16;
/// For how long a transaction is tried if a session's operations have no deadline, in nanoseconds.
const TRY_NS: u64 = 10_000_000_000;
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
    /// Others were quicker, again and again.
    #[error("the transaction lost against others {rounds} times: try again later, or with fewer keys at once")]
    Contended {
        /// How often it was tried.
        rounds: u64,
    },
}

/// What becomes of a key.
enum After {
    Put { value: Vec<u8>, expiry_ms: u64 },
    Delete,
}

/// A key of a transaction.
struct Held {
    key: Vec<u8>,
    /// Its value and its expiry, if it is there.
    before: Option<(Vec<u8>, u64)>,
    /// Where it was found, even if what is there has expired.
    spot: Option<Spot>,
    after: Option<After>,
    is_read: bool,
}

/// Several keys, as they were at one instant, and what becomes of them.
pub struct Transaction {
    /// In the order of the keys.
    held: Vec<Held>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("keys", &self.held.len()).finish()
    }
}

impl Transaction {
    fn held(&mut self, key: &[u8]) -> Result<&mut Held, KvError> {
        match self.held.binary_search_by(|held| held.key.as_slice().cmp(key)) {
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
        let held = self.held(key)?;
        Ok(match &held.after {
            Some(After::Put { value, expiry_ms }) => Some((value, *expiry_ms)),
            Some(After::Delete) => None,
            None => {
                held.is_read = true;
                held.before
                    .as_ref()
                    .map(|(value, expiry_ms)| (value.as_slice(), *expiry_ms))
            }
        })
    }

    /// Stores a value for good.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.set(key, value, Expiry::Never)
    }

    /// Stores a value.
    pub fn set(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), KvError> {
        let bytes = value.len();
        if bytes > VALUE_BYTES_MAX {
            return Err(IndexError::ValueTooLong { bytes }.into());
        }
        let before_ms = match expiry {
            Expiry::Keep => self.get_with_expiry(key)?.map_or(0, |(_, expiry_ms)| expiry_ms),
            Expiry::Never | Expiry::AtMs(_) => 0,
        };
        self.held(key)?.after = Some(After::Put {
            value: value.to_vec(),
            expiry_ms: expiry.resolve(before_ms),
        });
        Ok(())
    }

    /// Removes a key; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, KvError> {
        let was_there = self.get(key)?.is_some();
        self.held(key)?.after = Some(After::Delete);
        Ok(was_there)
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
            let now = |session: &Self| session.store.endpoint.now_ns();
            let until_ns = now(self).saturating_add(self.store.timeout_ns.unwrap_or(TRY_NS));
            let (mut rounds, mut pause_ns, mut has_room) = (0, PAUSE_NS.0, false);
            // Ends: nobody is in the way, or time is up.
            loop {
                self.cx.shrink();
                if self.store.timeout_ns.is_some() {
                    self.cx.set_deadline(Deadline(until_ns));
                }
                match self.round(&sorted, has_room, body).await? {
                    Round::Done => return Ok(()),
                    Round::Missing(keys) => {
                        for key in keys {
                            self.store.hold_place(&mut self.cx, &key).await?;
                        }
                    }
                    Round::Short { bytes, count } => {
                        let pool = self.store.pool();
                        let restocked = pool.restock(bytes, count, Purpose::Overwrite).await;
                        if let Err(error) = restocked {
                            self.make_room_for(error, bytes).await?;
                        }
                    }
                    Round::Tight { bytes } => {
                        Box::pin(self.store.make_room(bytes)).await?;
                        has_room = true;
                    }
                    Round::Lost(key) => {
                        if now(self) >= until_ns {
                            return Err(TransactionError::Contended { rounds }.into());
                        }
                        self.cx.count_retry();
                        if let Some(key) = key {
                            self.store.clear_way(&mut self.cx, &key).await?;
                        }
                        let pause = pause_ns + self.store.endpoint.random_below(pause_ns);
                        self.store.endpoint.sleep(pause).await;
                        pause_ns = (pause_ns * 2).min(PAUSE_NS.1);
                        rounds += 1;
                    }
                }
            }
        })
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
    ) -> Result<Round, KvError> {
        let Self { store, cx, .. } = self;
        let pin = store.pool().pin();
        let mut transaction = Transaction { held: Vec::new() };
        for &key in keys {
            let (spot, before) = match store.index.locate(cx, key).await? {
                Located::Busy => return Ok(Round::Lost(Some(key.to_vec()))),
                Located::Absent => (None, None),
                Located::Here(spot, found) => {
                    let found = store.unless_expired(Some(found));
                    let before = found.map(|found| (cx.buffer()[found.value.range()].to_vec(), found.expiry_ms));
                    (Some(spot), before)
                }
            };
            transaction.held.push(Held {
                key: key.to_vec(),
                before,
                spot,
                after: None,
                is_read: false,
            });
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
        let bytes: u64 = replacements.iter().map(|replacement| replacement.item.bytes()).sum();
        if !has_room && !store.has_room(bytes) {
            return Ok(Round::Tight { bytes });
        }
        let commit = Box::pin(store.index.commit(cx, &read, &replacements)).await?;
        drop(pin);
        match commit {
            Commit::Conflict => return Ok(Round::Lost(None)),
            Commit::Short { bytes, count } => return Ok(Round::Short { bytes, count }),
            Commit::Done => {}
        }
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
    /// Stores an item that has expired under a key that is not there, for a transaction to replace.
    async fn hold_place(&self, cx: &mut OpContext, key: &[u8]) -> Result<(), KvError> {
        let mut decide = |stored: Option<Item<'_>>| match stored {
            Some(_) => Decision::Keep,
            None => Decision::Put {
                value: Cow::Borrowed(&[]),
                expiry_ms: GONE_MS,
                regardless: false,
            },
        };
        self.index.change(cx, key, None, &mut decide).await?;
        // If the transaction does not come to it, the sweeper removes it.
        self.expiry_mark.set();
        Ok(())
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

    /// Removes an item that a transaction has left as gone. If that fails the sweeper does it: the transaction has not failed.
    pub(crate) async fn remove_gone(&self, cx: &mut OpContext, key: &[u8]) {
        self.expiry_mark.set();
        let mut decide = |stored: Option<Item<'_>>| match stored {
            Some(item)
                if item.expiry_ms == GONE_MS || is_planted("transaction: a key removed that was stored anew") =>
            {
                Decision::Delete { regardless: false }
            }
            _ => Decision::Keep,
        };
        if let Err(error) = self.index.change(cx, key, None, &mut decide).await {
            tracing::debug!("what a transaction has deleted stays until it is swept: {error}");
        }
    }
}
