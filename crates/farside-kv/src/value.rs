//! Values of types other than strings: lists, sets, sorted sets, hashes.
//!
//! On the path: a command, or a handle of a program, reads the bytes of a value, or changes them by a function of
//! `farside-value`. The type of a value is in the header of its item.

use std::borrow::Cow;

use farside_index::{Decision, Found, Item};
use farside_value::encoding::{self, Limits};
use farside_value::format::Tag;
use farside_value::packed::algebra::Source;
use farside_value::{Edit, Edited, ValueError};

use crate::session::{SetOptions, SetOutcome};
use crate::{KvError, Session, Transaction, decision};

/// Why a value is refused.
#[cold]
pub(crate) fn wrong(found: Tag, wanted: Tag) -> KvError {
    KvError::WrongType { found, wanted }
}

/// Whether a value has the type that is wanted.
#[inline]
pub(crate) fn check(found: Tag, wanted: Tag) -> Result<(), KvError> {
    match found == wanted {
        true => Ok(()),
        false => Err(wrong(found, wanted)),
    }
}

/// The bytes of a value that was found, if it has this type.
#[inline]
pub(crate) fn bytes(found: Found, wanted: Tag, buffer: &[u8]) -> Result<&[u8], KvError> {
    check(found.tag, wanted)?;
    Ok(&buffer[found.value.range()])
}

/// Marks a value that comes from elsewhere, if it is large by the limits of Redis.
fn note_size(tag: Tag, value: &mut [u8]) {
    if tag != Tag::String {
        // What is damaged is found by who reads it.
        let _ = encoding::note_size(tag, value, &Limits::default());
    }
}

/// What becomes of a value of a type. `result` gets the answer of the last call.
fn decide<'v, T>(
    stored: Option<Item<'_>>,
    tag: Tag,
    limits: &Limits,
    edit: &mut impl FnMut(Option<&[u8]>) -> Edited<T>,
    result: &mut Option<Result<T, ValueError>>,
) -> Decision<'v> {
    let edited = edit(stored.map(|item| item.value)).and_then(|(mut edit, answer)| {
        if let Edit::Put(value) = &mut edit {
            encoding::note_size(tag, value, limits)?;
        }
        Ok((edit, answer))
    });
    match edited {
        Ok((edit, answer)) => {
            *result = Some(Ok(answer));
            match edit {
                Edit::Keep => Decision::Keep,
                Edit::Put(value) => Decision::Put {
                    value: Cow::Owned(value),
                    expiry_ms: stored.map_or(0, |item| item.expiry_ms),
                    tag,
                    regardless: false,
                },
                Edit::Delete => Decision::Delete { regardless: false },
            }
        }
        Err(error) => {
            *result = Some(Err(error));
            Decision::Keep
        }
    }
}

impl Session {
    /// The bytes of a value of this type; `None` if the key is not there.
    ///
    /// # Errors
    /// See [`KvError`]: also if the value has another type.
    pub async fn value(&mut self, key: &[u8], tag: Tag) -> Result<Option<&[u8]>, KvError> {
        match self.search(key).await? {
            Some(found) => Ok(Some(bytes(found, tag, self.context().buffer())?)),
            None => Ok(None),
        }
    }

    /// What is stored under a key, whatever its type.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn item<'a>(&'a mut self, key: &'a [u8]) -> Result<Option<Item<'a>>, KvError> {
        let found = self.search(key).await?;
        Ok(found.map(|found| self.item_of(key, found)))
    }

    /// The same, which is no use of the key.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn peek<'a>(&'a mut self, key: &'a [u8]) -> Result<Option<Item<'a>>, KvError> {
        let found = self.look(key).await?;
        Ok(found.map(|found| self.item_of(key, found)))
    }

    fn item_of<'a>(&'a self, key: &'a [u8], Found { value, expiry_ms, tag }: Found) -> Item<'a> {
        let value = &self.context().buffer()[value.range()];
        Item::of(key, value, expiry_ms).tagged(tag)
    }

    /// Stores a value of any type, packed, under a condition, whatever the type of the one that is there; returns whether the
    /// condition held. The old value is not returned.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn set_value(
        &mut self,
        key: &[u8],
        tag: Tag,
        mut value: Vec<u8>,
        options: SetOptions,
    ) -> Result<bool, KvError> {
        note_size(tag, &mut value);
        self.make_room(key, value.len()).await?;
        let mut outcome = SetOutcome::default();
        let mut decide = |stored: Option<Item<'_>>| decision::set(stored, (tag, &value), options, &mut outcome);
        self.change_any(key, &mut decide).await?;
        Ok(outcome.is_stored)
    }

    /// The type of a value; `None` if the key is not there. It is no use of the key.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn tag(&mut self, key: &[u8]) -> Result<Option<Tag>, KvError> {
        Ok(self.look(key).await?.map(|found| found.tag))
    }

    /// Changes a value of this type, or makes one. `edit` is given its bytes, may be called several times, and may refuse;
    /// the last answer counts. The expiry of the key stays.
    ///
    /// # Errors
    /// The outer result has those of the store, and that the value has another type; the inner one the refusal of
    /// `edit`: nothing was changed.
    pub async fn edit<T>(
        &mut self,
        key: &[u8],
        tag: Tag,
        mut edit: impl FnMut(Option<&[u8]>) -> Edited<T>,
    ) -> Result<Result<T, ValueError>, KvError> {
        self.make_room(key, 0).await?;
        let limits = Limits::default();
        let mut result = None;
        let mut decide = |stored: Option<Item<'_>>| decide(stored, tag, &limits, &mut edit, &mut result);
        self.change_typed(key, (tag, None), &mut decide).await?;
        Ok(result.expect("a change asks what to do"))
    }
}

impl Transaction {
    /// See [`Session::value`].
    ///
    /// # Errors
    /// Likewise.
    pub fn value(&mut self, key: &[u8], tag: Tag) -> Result<Option<&[u8]>, KvError> {
        match self.item(key)? {
            Some(item) => {
                check(item.tag, tag)?;
                Ok(Some(item.value))
            }
            None => Ok(None),
        }
    }

    /// See [`Session::tag`].
    ///
    /// # Errors
    /// Likewise.
    pub fn tag(&mut self, key: &[u8]) -> Result<Option<Tag>, KvError> {
        Ok(self.item(key)?.map(|item| item.tag))
    }

    /// See [`Session::edit`].
    ///
    /// # Errors
    /// Likewise.
    pub fn edit<T>(
        &mut self,
        key: &[u8],
        tag: Tag,
        mut edit: impl FnMut(Option<&[u8]>) -> Edited<T>,
    ) -> Result<Result<T, ValueError>, KvError> {
        let limits = Limits::default();
        let mut result = None;
        let mut decide = |stored: Option<Item<'_>>| decide(stored, tag, &limits, &mut edit, &mut result);
        self.change_typed(key, tag, &mut decide)?;
        Ok(result.expect("a change asks what to do"))
    }

    /// The values of several keys of this type beside each other, in the order of the keys. What is made of them needs no
    /// copies.
    ///
    /// # Errors
    /// Likewise.
    pub fn values(&mut self, keys: &[&[u8]], tag: Tag) -> Result<Vec<Option<&[u8]>>, KvError> {
        let items = self.items(keys)?.into_iter();
        let values = items.map(|item| {
            let Some(item) = item else { return Ok(None) };
            check(item.tag, tag).map(|()| Some(item.value))
        });
        values.collect()
    }

    /// The same for values that may be sets or sorted sets.
    ///
    /// # Errors
    /// Likewise, if a value is of neither type.
    pub fn sources(&mut self, keys: &[&[u8]]) -> Result<Vec<Source<'_>>, KvError> {
        let items = self.items(keys)?.into_iter();
        let sources = items.map(|item| {
            Ok(match item {
                None => Source::Absent,
                Some(item) if item.tag == Tag::Set => Source::Set(item.value),
                Some(item) => {
                    check(item.tag, Tag::SortedSet)?;
                    Source::SortedSet(item.value)
                }
            })
        });
        sources.collect()
    }

    /// See [`Session::set_value`].
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn set_value(
        &mut self,
        key: &[u8],
        tag: Tag,
        mut value: Vec<u8>,
        options: SetOptions,
    ) -> Result<bool, KvError> {
        note_size(tag, &mut value);
        let mut outcome = SetOutcome::default();
        let mut decide = |stored: Option<Item<'_>>| decision::set(stored, (tag, &value), options, &mut outcome);
        self.change_any(key, &mut decide)?;
        Ok(outcome.is_stored)
    }

    /// Puts a value of this type in place of whatever the key has, without expiry; or removes the key.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn replace(&mut self, key: &[u8], tag: Tag, edit: Edit) -> Result<(), KvError> {
        match edit {
            Edit::Keep => Ok(()),
            Edit::Put(value) => self.set_value(key, tag, value, SetOptions::default()).map(drop),
            Edit::Delete => self.delete(key).map(drop),
        }
    }

    /// Puts an item in place of whatever its key has.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn put_item(&mut self, item: Item<'_>) -> Result<(), KvError> {
        let Item {
            key,
            value,
            expiry_ms,
            tag,
        } = item;
        let mut decide = |_: Option<Item<'_>>| Decision::Put {
            value: Cow::Borrowed(value),
            expiry_ms,
            tag,
            regardless: true,
        };
        self.change_any(key, &mut decide)
    }
}
