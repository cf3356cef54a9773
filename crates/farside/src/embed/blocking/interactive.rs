//! A transaction that decides on its keys on the way, for threads.

use farside_kv::{Expiry, Journal, SetOptions, SetOutcome, Transaction};

use super::session::Session;
use crate::embed::error::Error;

/// A transaction that has begun and not ended; see [`Session::begin`].
#[derive(Debug)]
pub struct Begun {
    pub(super) journal: Journal,
}

/// See [`Session::transaction`]. It has the operations of a session, which see what this transaction has done before.
#[derive(Debug)]
pub struct Interactive<'s> {
    session: &'s mut Session,
    journal: &'s mut Journal,
}

/// All operations fail like those of a session.
impl<'s> Interactive<'s> {
    pub(super) fn new(session: &'s mut Session, journal: &'s mut Journal) -> Self {
        Self { session, journal }
    }

    /// A key and those that were used before.
    fn with(&mut self, key: &[u8]) -> Result<&mut Transaction, Error> {
        self.session.get_to_know(self.journal, key, false)?;
        Ok(self.journal.known())
    }

    /// The value of a key, with the changes of this transaction.
    ///
    /// # Errors
    /// If the memory cannot be reached or is damaged; likewise for all operations below.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        Ok(self.with(key)?.get(key)?)
    }

    /// Stores a value without expiry. The key is not read.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.set(key, value, SetOptions::default()).map(drop)
    }

    /// See [`Session::set`]. The key is read only if its present value matters.
    pub fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, Error> {
        let is_blind = farside_kv::decision::is_regardless(options);
        self.session.get_to_know(self.journal, key, is_blind)?;
        Ok(self.journal.known().set(key, value, options)?)
    }

    /// See [`Session::update`].
    pub fn update<R>(
        &mut self,
        key: &[u8],
        update: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    ) -> Result<Result<(), R>, Error> {
        Ok(self.with(key)?.update(key, update)?)
    }

    /// Changes when a key expires; returns whether the key is there.
    pub fn expire(&mut self, key: &[u8], expiry: Expiry) -> Result<bool, Error> {
        let changed = self.with(key)?.expire(key, |_, _| (expiry, ()));
        Ok(changed?.is_some())
    }

    /// Removes a key; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.with(key)?.delete(key)?)
    }

    /// Removes a key; returns the value it had.
    pub fn take(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.with(key)?.take(key)?)
    }

    /// Discards all changes of this transaction.
    pub fn give_up(&mut self) {
        self.journal.known().give_up();
    }
}
