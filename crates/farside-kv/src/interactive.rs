//! Transactions that decide on their keys on the way.
//!
//! On the path: the body reads keys one after the other, each by itself; what it has read and what it changes stands in a
//! [`Journal`]. When it is done, one transaction over all of these keys ([`Session::transaction_on`]) looks whether what was read
//! is still so, and makes the changes. If not, the body begins again: also if it has answered with an error, which may come of things
//! that do not belong together.
//!
//! Nothing is locked meanwhile, so nobody waits for a body, and no order of keys can lead to a deadlock.

use farside_fabric::mutant::is_planted;
use farside_index::{Decide, Item};

use crate::error::{KvError, Pending};
use crate::session::{Alteration, Session, SetOptions, SetOutcome};
use crate::transaction::{Patience, Transaction, Watched};
use crate::{Expiry, decision};

/// What a transaction has read and will change. It belongs to no session, so that callers with another way of waiting
/// can use it, too.
#[derive(Debug)]
pub struct Journal {
    transaction: Transaction,
    /// In the order of their keys.
    watched: Vec<Watched>,
    patience: Patience,
}

impl Journal {
    /// Its known keys, to be read and changed.
    pub fn known(&mut self) -> &mut Transaction {
        &mut self.transaction
    }
}

impl Session {
    /// An empty journal.
    #[must_use]
    pub fn journal(&self) -> Journal {
        Journal {
            transaction: Transaction::new(self.store.endpoint.unix_ms()),
            watched: Vec::new(),
            patience: Patience::new(self),
        }
    }

    /// Adds a key to the known keys of a journal, if it is not among them. The key is read, unless `is_blind`: then it
    /// will be stored whatever is there.
    pub fn get_to_know<'f>(&'f mut self, journal: &'f mut Journal, key: &'f [u8], is_blind: bool) -> Pending<'f, ()> {
        Box::pin(async move {
            let Journal {
                transaction, watched, ..
            } = journal;
            if transaction.knows(key) {
                return Ok(());
            }
            if is_blind {
                return transaction.learn(key, None, true);
            }
            let keys = [key];
            let read = self.transaction_on(&keys, |now| {
                let seen = now.watch(key)?;
                let found = now.item(key)?;
                Ok((seen, found.map(|item| (item.value.to_vec(), item.expiry_ms, item.tag))))
            });
            let (seen, found) = read.await?;
            let before = found.as_ref();
            let before = before.map(|(value, expiry_ms, tag)| Item::of(key, value, *expiry_ms).tagged(*tag));
            transaction.learn(key, before, false)?;
            let place = watched.partition_point(|before| before.key() < key);
            watched.insert(place, seen);
            Ok(())
        })
    }

    /// Makes all changes of a journal if everything that was read is unchanged, and returns whether it is. If not, no
    /// change is made, the journal is empty again, and this client has backed off to let others finish.
    ///
    /// # Errors
    /// [`TransactionError::Contended`](crate::TransactionError::Contended) if there have been conflicts for too long;
    /// otherwise as for all operations.
    pub fn conclude<'f>(&'f mut self, journal: &'f mut Journal, is_wanted: bool) -> Pending<'f, bool> {
        Box::pin(async move {
            let Journal {
                transaction,
                watched,
                patience,
            } = journal;
            if !is_wanted {
                transaction.give_up();
            }
            let mut keys: Vec<&[u8]> = transaction.changed().collect();
            keys.extend(watched.iter().map(Watched::key));
            let is_done = self.transaction_on(&keys, |now| {
                for watched in &*watched {
                    let is_so = now.is_as_watched(watched)?;
                    if !is_so && !is_planted("transaction: what was read on the way not looked at again") {
                        return Ok(false);
                    }
                }
                now.repeat(transaction)?;
                Ok(true)
            });
            let is_done = is_done.await?;
            if !is_done {
                patience.pause(self).await?;
                *transaction = Transaction::new(self.store.endpoint.unix_ms());
                watched.clear();
            }
            Ok(is_done)
        })
    }

    /// Reads and changes keys in isolation; `body` decides on the way which ones. Either all of its changes are made at
    /// one instant, at which everything that it has read is still unchanged, or none is made. If other clients changed
    /// something first, `body` is called again; its last answer counts. In an attempt that fails, the values that it
    /// reads may be inconsistent with each other: it must terminate whatever it reads, and do nothing, except for
    /// reading and changing keys, that must not be repeated.
    ///
    /// [`Session::transaction_on`] takes fewer round trips if the keys are known.
    ///
    /// # Errors
    /// The error of the body, if everything that it has read was valid at one instant; nothing is changed then.
    /// [`TransactionError`](crate::TransactionError); otherwise as for all operations.
    pub async fn transaction<R, E: From<KvError>>(
        &mut self,
        mut body: impl AsyncFnMut(&mut Interactive<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut journal = self.journal();
        loop {
            let mut interactive = Interactive {
                journal: &mut journal,
                session: self,
            };
            let answer = body(&mut interactive).await;
            if self.conclude(&mut journal, answer.is_ok()).await? {
                return answer;
            }
        }
    }
}

/// A transaction that decides on its keys on the way; see [`Session::transaction`]. It has the operations of a session,
/// which see what this transaction has done before.
#[derive(Debug)]
pub struct Interactive<'s> {
    session: &'s mut Session,
    journal: &'s mut Journal,
}

/// All operations fail like those of a session.
impl Interactive<'_> {
    /// A key and those that were used before.
    async fn with(&mut self, key: &[u8]) -> Result<&mut Transaction, KvError> {
        self.session.get_to_know(self.journal, key, false).await?;
        Ok(&mut self.journal.transaction)
    }

    /// The value of a key, with the changes of this transaction.
    ///
    /// # Errors
    /// See [`KvError`]; likewise for all operations below.
    pub async fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError> {
        self.with(key).await?.get(key)
    }

    /// The same, and when the key expires, in milliseconds since the Unix epoch (0: never).
    pub async fn get_with_expiry(&mut self, key: &[u8]) -> Result<Option<(&[u8], u64)>, KvError> {
        self.with(key).await?.get_with_expiry(key)
    }

    /// See [`Session::change`].
    pub async fn change<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<(), KvError> {
        self.with(key).await?.change(key, decide)
    }

    /// Stores a value without expiry. The key is not read.
    pub async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.set(key, value, SetOptions::default()).await.map(drop)
    }

    /// See [`Session::set`]. The key is read only if its present value matters.
    pub async fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, KvError> {
        let is_blind = decision::is_regardless(options);
        self.session.get_to_know(self.journal, key, is_blind).await?;
        self.journal.transaction.set(key, value, options)
    }

    /// See [`Session::alter`].
    pub async fn alter<'v>(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<(&[u8], u64)>) -> Alteration<'v>,
    ) -> Result<(), KvError> {
        self.with(key).await?.alter(key, decide)
    }

    /// See [`Session::update`].
    pub async fn update<R>(
        &mut self,
        key: &[u8],
        update: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    ) -> Result<Result<(), R>, KvError> {
        self.with(key).await?.update(key, update)
    }

    /// See [`Session::expire`].
    pub async fn expire<R>(
        &mut self,
        key: &[u8],
        decide: impl FnMut(&[u8], u64) -> (Expiry, R),
    ) -> Result<Option<R>, KvError> {
        self.with(key).await?.expire(key, decide)
    }

    /// Removes a key; returns whether it was there.
    pub async fn delete(&mut self, key: &[u8]) -> Result<bool, KvError> {
        self.with(key).await?.delete(key)
    }

    /// Removes a key; returns the value it had.
    pub async fn take(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.with(key).await?.take(key)
    }

    /// Discards all changes of this transaction.
    pub fn give_up(&mut self) {
        self.journal.transaction.give_up();
    }
}
