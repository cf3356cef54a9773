//! What an operation makes of what is stored under its key: the same by itself and within a transaction.
//!
//! On the path: a session asks from within a change of the index, a transaction when its body calls it.

use std::borrow::Cow;

use farside_fabric::mutant::is_planted;
use farside_index::{Change, Decision, Item, Tag};

use crate::expiry::{Expiry, is_there};
use crate::session::{Alteration, Condition, SetOptions, SetOutcome};

/// Whether a value is stored unconditionally.
pub fn is_regardless(options: SetOptions) -> bool {
    options.condition == Condition::Always && options.expiry != Expiry::Keep && !options.returns_old
}

/// A value of this type is to be stored.
#[inline]
pub fn set<'v>(
    stored: Option<Item<'_>>,
    (tag, value): (Tag, &'v [u8]),
    options: SetOptions,
    outcome: &mut SetOutcome,
) -> Decision<'v> {
    outcome.is_stored = match options.condition {
        Condition::Always => true,
        Condition::IfAbsent => stored.is_none() || is_planted("kv: an insert over what is there"),
        Condition::IfPresent => stored.is_some(),
    };
    outcome.old = stored.filter(|_| options.returns_old).map(|item| item.value.to_vec());
    if !outcome.is_stored {
        return Decision::Keep;
    }
    Decision::Put {
        value: Cow::Borrowed(value),
        expiry_ms: options.expiry.resolve(stored.map_or(0, |item| item.expiry_ms)),
        tag,
        regardless: is_regardless(options),
    }
}

/// A key is to be removed, and somebody wants to know whether it was there.
#[derive(Clone, Copy, Default, Debug)]
pub struct Deletion {
    was_there: bool,
}

impl Deletion {
    /// What becomes of the key. It may be asked several times.
    #[inline]
    pub fn decision<'v>(&mut self, is_there: bool) -> Decision<'v> {
        let was_there_before = self.was_there && is_planted("kv: an answer of the first of two attempts");
        self.was_there = was_there_before || is_there;
        // An item that has expired may have been replaced by one that is there.
        Decision::Delete { regardless: is_there }
    }

    /// Whether the change has removed what was there, unless that had been removed by a transaction meanwhile.
    #[inline]
    #[must_use]
    pub fn has_removed(self, change: Change) -> bool {
        change == Change::Deleted && self.was_there
    }
}

/// Whoever saw the value, a string, and the expiry said what becomes of them.
pub fn alter<'v>(stored: Option<Item<'_>>, alteration: Alteration<'v>, now_ms: impl FnOnce() -> u64) -> Decision<'v> {
    let before_ms = stored.map_or(0, |item| item.expiry_ms);
    let (value, expiry) = match alteration {
        Alteration::Keep => return Decision::Keep,
        Alteration::Delete => return Decision::Delete { regardless: false },
        Alteration::Expire(expiry) => match stored {
            Some(item) => (Cow::Owned(item.value.to_vec()), expiry),
            None => return Decision::Keep,
        },
        Alteration::Put { value, expiry } => (Cow::Borrowed(value), expiry),
    };
    until((value, Tag::String), expiry.resolve(before_ms), now_ms)
}

/// A value, unless its time is over already.
fn until((value, tag): (Cow<'_, [u8]>, Tag), expiry_ms: u64, now_ms: impl FnOnce() -> u64) -> Decision<'_> {
    match is_there(expiry_ms, now_ms) {
        true => Decision::Put {
            value,
            expiry_ms,
            tag,
            regardless: false,
        },
        false => Decision::Delete { regardless: false },
    }
}

/// `decide` sees value and expiry, says until when the key stays, and answers the caller.
pub fn expire<R>(
    stored: Option<Item<'_>>,
    decide: &mut impl FnMut(&[u8], u64) -> (Expiry, R),
    answer: &mut Option<R>,
    now_ms: impl FnOnce() -> u64,
) -> Decision<'static> {
    let Some(item) = stored else {
        return Decision::Keep;
    };
    let (expiry, reply) = decide(item.value, item.expiry_ms);
    *answer = Some(reply);
    match expiry.resolve(item.expiry_ms) {
        same if same == item.expiry_ms => Decision::Keep,
        expiry_ms => until((Cow::Owned(item.value.to_vec()), item.tag), expiry_ms, now_ms),
    }
}

/// `update` makes a string of the one that is there, or refuses; the expiry stays.
pub fn update<R>(
    stored: Option<Item<'_>>,
    update: &mut impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, R>,
    result: &mut Result<(), R>,
) -> Decision<'static> {
    match update(stored.map(|item| item.value)) {
        Ok(value) => {
            *result = Ok(());
            Decision::Put {
                value: Cow::Owned(value),
                expiry_ms: stored.map_or(0, |item| item.expiry_ms),
                tag: Tag::String,
                regardless: false,
            }
        }
        Err(refusal) => {
            *result = Err(refusal);
            Decision::Keep
        }
    }
}
