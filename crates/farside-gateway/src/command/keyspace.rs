//! Where a command finds its keys.
//!
//! On the path: between a command and the store. A command by itself goes to the session; one that EXEC runs goes to the
//! transaction that holds its keys, where nothing has to be waited for.

use std::borrow::Cow;

use farside_kv::{
    Alteration, Decide, Decision, Expiry, Item, KvError, Session, SetOptions, SetOutcome, Tag, Transaction, decision,
};

use farside_value::Edited;

use super::Refusal;

/// The keys of a command.
pub(crate) enum Keys<'a> {
    /// Each for itself.
    Apart(&'a mut Session),
    /// As one with those of other commands.
    Together(&'a mut Transaction),
}

/// Another string for a key, whose expiry stays.
pub(crate) fn replaced<'v>(stored: Option<Item<'_>>, value: Vec<u8>) -> Decision<'v> {
    Decision::Put {
        value: Cow::Owned(value),
        expiry_ms: stored.map_or(0, |item| item.expiry_ms),
        tag: Tag::String,
        regardless: false,
    }
}

/// What a change is for.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    Strings,
    AnyType,
}

/// Operations as a session has them.
impl Keys<'_> {
    /// The session, for commands that look at more than the keys which they name.
    pub(crate) fn session(&mut self) -> Result<&mut Session, Refusal> {
        match self {
            Self::Apart(session) => Ok(session),
            Self::Together(_) => Err(super::transactions::NOT_INSIDE.into()),
        }
    }

    #[inline]
    pub(crate) async fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError> {
        match self {
            Self::Apart(session) => session.get(key).await,
            Self::Together(transaction) => transaction.get(key),
        }
    }

    /// See [`Session::value`].
    pub(crate) async fn value(&mut self, key: &[u8], tag: Tag) -> Result<Option<&[u8]>, KvError> {
        match self {
            Self::Apart(session) => session.value(key, tag).await,
            Self::Together(transaction) => transaction.value(key, tag),
        }
    }

    /// See [`Session::edit`].
    pub(crate) async fn edit<T>(
        &mut self,
        key: &[u8],
        tag: Tag,
        edit: impl FnMut(Option<&[u8]>) -> Edited<T>,
    ) -> Result<T, Refusal> {
        let edited = match self {
            Self::Apart(session) => session.edit(key, tag, edit).await?,
            Self::Together(transaction) => transaction.edit(key, tag, edit)?,
        };
        Ok(edited?)
    }

    /// What is stored under a key, whatever its type.
    pub(crate) async fn item<'a>(&'a mut self, key: &'a [u8]) -> Result<Option<Item<'a>>, KvError> {
        match self {
            Self::Apart(session) => session.item(key).await,
            Self::Together(transaction) => transaction.item(key),
        }
    }

    /// See [`Session::set_value`].
    pub(crate) async fn set_value(
        &mut self,
        key: &[u8],
        tag: Tag,
        value: Vec<u8>,
        options: SetOptions,
    ) -> Result<bool, KvError> {
        match self {
            Self::Apart(session) => session.set_value(key, tag, value, options).await,
            Self::Together(transaction) => transaction.set_value(key, tag, value, options),
        }
    }

    /// The type of the value of a key, which is not used by that.
    pub(crate) async fn tag(&mut self, key: &[u8]) -> Result<Option<Tag>, KvError> {
        match self {
            Self::Apart(session) => session.tag(key).await,
            Self::Together(transaction) => transaction.tag(key),
        }
    }

    /// Uses a key; returns whether it is there.
    pub(crate) async fn touch(&mut self, key: &[u8]) -> Result<bool, KvError> {
        match self {
            Self::Apart(session) => session.touch(key).await,
            Self::Together(transaction) => Ok(transaction.item(key)?.is_some()),
        }
    }

    pub(crate) async fn expiry_ms(&mut self, key: &[u8]) -> Result<Option<u64>, KvError> {
        match self {
            Self::Apart(session) => session.expiry_ms(key).await,
            Self::Together(transaction) => transaction.expiry_ms(key),
        }
    }

    #[inline]
    pub(crate) async fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<SetOutcome, KvError> {
        match self {
            Self::Apart(session) => session.set(key, value, options).await,
            Self::Together(transaction) => transaction.set(key, value, options),
        }
    }

    /// Changes a string that may get longer.
    pub(crate) async fn grow<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<(), KvError> {
        if let Self::Apart(session) = self {
            session.make_room(key, 0).await?;
        }
        self.change(key, decide).await
    }

    /// Changes a string that does not get longer.
    pub(crate) async fn change<'v>(&mut self, key: &[u8], decide: Decide<'_, 'v>) -> Result<(), KvError> {
        match self {
            Self::Apart(session) => session.change(key, decide).await.map(drop),
            Self::Together(transaction) => transaction.change(key, decide),
        }
    }

    pub(crate) async fn alter<'v>(
        &mut self,
        key: &[u8],
        now_ms: impl Fn() -> u64,
        mut decide: impl FnMut(Option<(&[u8], u64)>) -> Alteration<'v>,
    ) -> Result<(), KvError> {
        let decide = &mut |stored: Option<Item<'_>>| {
            let alteration = decide(stored.map(|item| (item.value, item.expiry_ms)));
            decision::alter(stored, alteration, &now_ms)
        };
        self.grow(key, decide).await
    }

    pub(crate) async fn update<R>(
        &mut self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    ) -> Result<Result<(), R>, KvError> {
        let mut result = Ok(());
        self.grow(key, &mut |stored| decision::update(stored, &mut update, &mut result))
            .await?;
        Ok(result)
    }

    /// See [`Session::expire`]; of a string alone, another type is refused.
    pub(crate) async fn expire<R>(
        &mut self,
        (key, of): (&[u8], Of),
        now_ms: impl Fn() -> u64,
        mut decide: impl FnMut(&[u8], u64) -> (Expiry, R),
    ) -> Result<Option<R>, KvError> {
        let mut answer = None;
        let decide = &mut |stored: Option<Item<'_>>| {
            // What an attempt before this one saw does not count.
            answer = None;
            decision::expire(stored, &mut decide, &mut answer, &now_ms)
        };
        match (self, of) {
            (Self::Apart(session), Of::AnyType) => session.change_any(key, decide).await.map(drop)?,
            (Self::Apart(session), Of::Strings) => session.change(key, decide).await.map(drop)?,
            (Self::Together(transaction), Of::AnyType) => transaction.change_any(key, decide)?,
            (Self::Together(transaction), Of::Strings) => transaction.change(key, decide)?,
        }
        Ok(answer)
    }

    /// Removes keys; returns how many were there, or the first error, after all were tried.
    pub(crate) async fn delete_many(&mut self, keys: &[&[u8]]) -> Result<u64, KvError> {
        let (mut count, mut result) = (0, Ok(()));
        let mut note = |deleted: Result<bool, KvError>| match deleted {
            Ok(was_there) => count += u64::from(was_there),
            Err(error) if result.is_ok() => result = Err(error),
            Err(_) => {}
        };
        match self {
            Self::Apart(session) => session.delete_many(keys, note).await,
            Self::Together(transaction) => keys.iter().for_each(|key| note(transaction.delete(key))),
        }
        result.map(|()| count)
    }

    pub(crate) async fn take(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match self {
            Self::Apart(session) => session.take(key).await,
            Self::Together(transaction) => transaction.take(key),
        }
    }

    /// Does something with several keys as one. `body` may be asked several times.
    pub(crate) async fn together<R>(
        &mut self,
        keys: &[&[u8]],
        mut body: impl FnMut(&mut Transaction) -> Result<R, KvError>,
    ) -> Result<R, KvError> {
        match self {
            Self::Apart(session) => session.transaction_on(keys, body).await,
            Self::Together(transaction) => body(transaction),
        }
    }
}
