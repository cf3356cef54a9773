//! The keys of a transaction, as its body sees and changes them.
//!
//! On the path: [`Session::transaction_on`] adds what it has found, the body reads and changes, and a commit has the replacements.
//! Nothing is waited for.

use core::fmt;
use std::hash::{BuildHasher, RandomState};

use farside_fabric::RemoteAddr;
use farside_index::{Decide, Decision, Found, GONE_MS, IndexError, Item, Replacement, Spot, Tag, VALUE_BYTES_MAX};

use super::{Looked, TRANSACTION_BYTES_MAX, TransactionError};
use crate::decision;
use crate::error::KvError;
use crate::expiry::{Expiry, is_there};
#[cfg(doc)]
use crate::session::Session;
use crate::session::{Alteration, SetOptions, SetOutcome};
use crate::value;

/// A session keeps room for so many bytes and keys from one transaction to the next.
const KEEP_BYTES_MAX: usize = 64 << 10;
const KEEP_KEYS_MAX: usize = 64;

/// What becomes of a key.
#[derive(Clone, Copy)]
pub(super) enum After {
    Put(Stored),
    Delete,
}

/// What is stored under a key, or will be.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    value: Span,
    pub(super) expiry_ms: u64,
    tag: Tag,
}

/// A key of a transaction.
pub(super) struct Held {
    key: Span,
    /// If it is there.
    pub(super) before: Option<Stored>,
    /// Where it was found, even if what is there has expired.
    pub(super) spot: Option<Spot>,
    /// Whether nobody has looked what is there.
    is_unread: bool,
    pub(super) after: Option<After>,
    pub(super) is_read: bool,
}

/// Bytes of a [`Copies`].
#[derive(Clone, Copy)]
pub(super) struct Span {
    start: usize,
    bytes: u32,
}

/// The keys and values of a transaction, copied one behind the other.
#[derive(Default)]
struct Copies(Vec<u8>);

impl Copies {
    #[inline]
    fn add(&mut self, bytes: &[u8]) -> Span {
        let start = self.0.len();
        self.0.extend_from_slice(bytes);
        Span {
            start,
            bytes: bytes.len() as u32,
        }
    }

    /// Adds bytes in place of others that nobody needs any more.
    fn replace(&mut self, old: Span, bytes: &[u8]) -> Span {
        if old.start + old.bytes as usize == self.0.len() {
            self.0.truncate(old.start);
        } else if bytes.len() <= old.bytes as usize {
            self.0[old.start..][..bytes.len()].copy_from_slice(bytes);
            return Span {
                start: old.start,
                bytes: bytes.len() as u32,
            };
        }
        self.add(bytes)
    }

    #[inline]
    fn of(&self, span: Span) -> &[u8] {
        &self.0[span.start..][..span.bytes as usize]
    }
}

/// Several keys as they were at one instant, and their changes. It has the operations of a session, which see what this
/// transaction has done before.
#[derive(Default)]
pub struct Transaction {
    /// In the order of the keys.
    pub(super) held: Vec<Held>,
    copies: Copies,
    now_ms: u64,
    /// Bytes of all values that were copied for it.
    copied: u64,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("keys", &self.held.len()).finish()
    }
}

/// The state of a key when it was [watched](Transaction::watch).
#[derive(Clone, Debug)]
pub struct Watched {
    key: Vec<u8>,
    /// If it was there.
    seen: Option<Seen>,
    /// How its value is hashed: nobody can know two values that look alike.
    hasher: RandomState,
}

/// Where an item stands, its expiry, and its type with a hash of its value. The place tells apart what was stored twice; it may
/// come back with something else, so all of them count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    block: RemoteAddr,
    expiry_ms: u64,
    tag: Tag,
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
    /// One of no keys.
    pub(crate) fn new(now_ms: u64) -> Self {
        let mut new = Self::default();
        new.begin(now_ms);
        new
    }

    /// Forgets everything.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.held.clear();
        self.copies.0.clear();
        (self.now_ms, self.copied) = (now_ms, 0);
    }

    /// Bytes that its copies take.
    pub(crate) fn bytes(&self) -> usize {
        self.copies.0.capacity()
    }

    /// Gives back what was needed only once.
    pub(super) fn shrink(&mut self) {
        if self.copies.0.capacity() > KEEP_BYTES_MAX || self.held.capacity() > KEEP_KEYS_MAX {
            *self = Self::default();
        }
    }

    /// Adds a key that was looked for, behind all others. What was found of it stands in the buffer.
    pub(super) fn add(&mut self, key: &[u8], looked: Looked, buffer: &[u8]) -> Result<(), KvError> {
        let key = self.copies.add(key);
        let before = match looked.found {
            Some(Found { value, expiry_ms, tag }) => Some(Stored {
                value: self.copy(&buffer[value.range()])?,
                expiry_ms,
                tag,
            }),
            None => None,
        };
        self.held.push(Held {
            key,
            before,
            spot: looked.spot,
            is_unread: false,
            after: None,
            is_read: false,
        });
        Ok(())
    }

    /// Copies a value.
    fn copy(&mut self, value: &[u8]) -> Result<Span, KvError> {
        self.copied += value.len() as u64;
        self.check_size()?;
        Ok(self.copies.add(value))
    }

    /// Adds a key or what was found of it: of one that is unread nothing is known.
    pub(crate) fn learn(&mut self, key: &[u8], before: Option<Item<'_>>, is_unread: bool) -> Result<(), KvError> {
        let before = match before {
            Some(item) => Some(Stored {
                value: self.copy(item.value)?,
                expiry_ms: item.expiry_ms,
                tag: item.tag,
            }),
            None => None,
        };
        let held = Held {
            key: self.copies.add(key),
            before,
            spot: None,
            is_unread,
            after: None,
            is_read: false,
        };
        match self.place(key) {
            Ok(place) => self.held[place] = held,
            Err(place) => self.held.insert(place, held),
        }
        Ok(())
    }

    /// Whether a key is among its own, and what is there, or will be.
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        let place = self.place(key);
        place.is_ok_and(|place| !self.held[place].is_unread || self.held[place].after.is_some())
    }

    /// The keys that it changes.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &[u8]> {
        let changed = self.held.iter().filter(|held| held.after.is_some());
        changed.map(|held| self.key(held))
    }

    /// Makes the changes of another one.
    ///
    /// # Errors
    /// As for all methods.
    pub(crate) fn repeat(&mut self, other: &Self) -> Result<(), KvError> {
        for held in &other.held {
            let after = match held.after {
                None => continue,
                Some(After::Delete) => After::Delete,
                Some(After::Put(stored)) => After::Put(Stored {
                    // It was counted when the other one got it.
                    value: self.copies.add(other.copies.of(stored.value)),
                    ..stored
                }),
            };
            let place = self.held(other.key(held))?;
            self.held[place].after = Some(after);
        }
        Ok(())
    }

    pub(super) fn key(&self, held: &Held) -> &[u8] {
        self.copies.of(held.key)
    }

    pub(super) fn check_size(&self) -> Result<(), KvError> {
        match self.copied > TRANSACTION_BYTES_MAX {
            true => Err(TransactionError::TooLarge.into()),
            false => Ok(()),
        }
    }

    /// Where among its keys one is, or would be.
    pub(super) fn place(&self, key: &[u8]) -> Result<usize, usize> {
        self.held.binary_search_by(|held| self.key(held).cmp(key))
    }

    /// Where among its keys one is.
    fn held(&self, key: &[u8]) -> Result<usize, KvError> {
        let undeclared = |_| TransactionError::Undeclared {
            key: String::from_utf8_lossy(key).into_owned(),
        };
        Ok(self.place(key).map_err(undeclared)?)
    }

    /// What one of its keys has, as this transaction has left it.
    fn read(&mut self, place: usize) -> Option<Item<'_>> {
        let held = &mut self.held[place];
        held.is_read |= held.after.is_none();
        self.read_again(place)
    }

    /// The same, of a key that has been read.
    fn read_again(&self, place: usize) -> Option<Item<'_>> {
        let held = &self.held[place];
        let now = match held.after {
            Some(After::Put(stored)) => Some(stored),
            Some(After::Delete) => None,
            None => held.before,
        };
        let stored = now.filter(|stored| is_there(stored.expiry_ms, || self.now_ms))?;
        Some(self.item_of(&self.held[place], stored))
    }

    fn item_of(&self, held: &Held, stored: Stored) -> Item<'_> {
        let value = self.copies.of(stored.value);
        Item::of(self.key(held), value, stored.expiry_ms).tagged(stored.tag)
    }

    /// What is stored under several keys, beside each other, in the order of the keys.
    pub(crate) fn items(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Item<'_>>>, KvError> {
        let mut places = Vec::with_capacity(keys.len());
        for key in keys {
            let place = self.held(key)?;
            self.read(place);
            places.push(place);
        }
        Ok(places.into_iter().map(|place| self.read_again(place)).collect())
    }

    /// The value of a key, with the changes of this transaction.
    ///
    /// # Errors
    /// [`TransactionError::Undeclared`]; likewise for all methods.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError> {
        Ok(self.get_with_expiry(key)?.map(|(value, _)| value))
    }

    /// The same, and when the key expires, in milliseconds since the Unix epoch (0: never).
    pub fn get_with_expiry(&mut self, key: &[u8]) -> Result<Option<(&[u8], u64)>, KvError> {
        match self.item(key)? {
            Some(item) => {
                value::check(item.tag, Tag::String)?;
                Ok(Some((item.value, item.expiry_ms)))
            }
            None => Ok(None),
        }
    }

    /// What is stored under a key, whatever its type, with the changes of this transaction.
    pub fn item(&mut self, key: &[u8]) -> Result<Option<Item<'_>>, KvError> {
        let place = self.held(key)?;
        Ok(self.read(place))
    }

    /// When a key expires, in milliseconds since the Unix epoch: `None` if it is not there, 0 if it never expires.
    pub fn expiry_ms(&mut self, key: &[u8]) -> Result<Option<u64>, KvError> {
        Ok(self.item(key)?.map(|item| item.expiry_ms))
    }

    /// See [`Session::change`].
    pub fn change<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<(), KvError> {
        self.change_typed(key, Tag::String, decide)
    }

    /// The same for a value of one type.
    pub(crate) fn change_typed<'v>(&mut self, key: &[u8], tag: Tag, decide: Decide<'_, 'v>) -> Result<(), KvError> {
        self.check_size()?;
        let place = self.held(key)?;
        if let Some(item) = self.read(place) {
            value::check(item.tag, tag)?;
        }
        self.change_any(key, decide)
    }

    /// See [`Session::change_any`].
    pub fn change_any<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<(), KvError> {
        // Once it is too large it is refused, so nothing more need be made for it.
        self.check_size()?;
        let place = self.held(key)?;
        let after = match decide(self.read(place)) {
            Decision::Keep => return Ok(()),
            Decision::Delete { .. } => After::Delete,
            Decision::Put { value, .. } if value.len() > VALUE_BYTES_MAX => {
                return Err(IndexError::ValueTooLong { bytes: value.len() }.into());
            }
            Decision::Put {
                value, expiry_ms, tag, ..
            } => {
                self.copied += value.len() as u64;
                self.check_size()?;
                let value = match self.held[place].after {
                    Some(After::Put(Stored { value: old, .. })) => self.copies.replace(old, &value),
                    _ => self.copies.add(&value),
                };
                After::Put(Stored { value, expiry_ms, tag })
            }
        };
        self.held[place].after = Some(after);
        Ok(())
    }

    /// Stores a value without expiry.
    ///
    /// # Errors
    /// Also if the value is too long; likewise for all methods that store one.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.set(key, value, SetOptions::default()).map(drop)
    }

    /// See [`Session::set`].
    pub fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, KvError> {
        let mut outcome = SetOutcome::default();
        let mut decide = |stored: Option<Item<'_>>| decision::set(stored, (Tag::String, value), options, &mut outcome);
        match options.returns_old {
            true => self.change(key, &mut decide)?,
            false => self.change_any(key, &mut decide)?,
        }
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
    /// The inner result has the refusal of `update`.
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
        self.change_any(key, &mut |stored| {
            decision::expire(stored, &mut decide, &mut answer, || now_ms)
        })?;
        Ok(answer)
    }

    /// Removes a key; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, KvError> {
        let mut was_there = false;
        self.change_any(key, &mut |stored| {
            was_there = stored.is_some();
            Decision::Delete { regardless: false }
        })?;
        Ok(was_there)
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

    /// Records the state of a key, for a later transaction to check whether it is [unchanged](Self::is_as_watched).
    /// Changes of this transaction do not count.
    pub fn watch(&mut self, key: &[u8]) -> Result<Watched, KvError> {
        let place = self.held(key)?;
        self.held[place].is_read = true;
        let hasher = RandomState::new();
        Ok(Watched {
            key: key.to_vec(),
            seen: self.seen(place, &hasher),
            hasher,
        })
    }

    /// Whether a key was neither stored, removed nor given another expiry since it was watched, and has not expired. A
    /// key that was absent, was stored and is absent again counts as unchanged.
    pub fn is_as_watched(&mut self, watched: &Watched) -> Result<bool, KvError> {
        let place = self.held(&watched.key)?;
        self.held[place].is_read = true;
        Ok(self.seen(place, &watched.hasher) == watched.seen)
    }

    /// What a watch notes of one of its keys, if it is there.
    fn seen(&self, place: usize, hasher: &RandomState) -> Option<Seen> {
        let held = &self.held[place];
        let Stored { value, expiry_ms, tag } = held.before?;
        Some(Seen {
            block: held.spot.as_ref()?.block(),
            expiry_ms,
            tag,
            value: (value.bytes as usize, hasher.hash_one(self.copies.of(value))),
        })
    }

    pub(super) fn replacement<'t>(&'t self, held: &'t Held) -> Option<Replacement<'t>> {
        Some(Replacement {
            spot: held.spot.as_ref()?,
            item: match held.after? {
                After::Put(stored) => self.item_of(held, stored),
                After::Delete => Item::of(self.key(held), &[], GONE_MS),
            },
        })
    }

    /// Discards all changes of this transaction.
    pub fn give_up(&mut self) {
        self.held.iter_mut().for_each(|held| held.after = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_place_of_the_one_before_it_if_it_can() {
        let mut copies = Copies::default();
        let (one, other) = (copies.add(b"four"), copies.add(b"others"));
        let one = copies.replace(one, b"tiny");
        assert_eq!((copies.of(one), copies.0.len()), (&b"tiny"[..], 10));
        let one = copies.replace(one, b"no");
        assert_eq!((copies.of(one), copies.0.len()), (&b"no"[..], 10));
        let one = copies.replace(one, b"longer");
        assert_eq!((copies.of(one), copies.0.len()), (&b"longer"[..], 16));
        // The last one may be of any length.
        let one = copies.replace(one, b"the longest");
        assert_eq!((copies.of(one), copies.0.len()), (&b"the longest"[..], 21));
        assert_eq!(copies.of(other), b"others");
    }

    #[test]
    fn a_large_transaction_leaves_no_memory_behind_and_a_small_one_does() {
        let mut transaction = Transaction::new(0);
        transaction.copies.add(&[0; KEEP_BYTES_MAX + 1]);
        transaction.shrink();
        assert_eq!(transaction.bytes(), 0);
        transaction.copies.add(b"small");
        transaction.shrink();
        assert!(transaction.bytes() >= 5);
        transaction.held.reserve(KEEP_KEYS_MAX + 1);
        transaction.shrink();
        assert_eq!((transaction.bytes(), transaction.held.capacity()), (0, 0));
    }
}
