//! How commands of types other than strings reach values: one that is read, one that is changed, several at one instant.
//!
//! On the path: between a command, which knows its arguments and writes the reply, and the pure functions of `farside-value`.
//! What is shown of a value goes into the reply while the value is at hand, so nothing is copied in between. An attempt that lost
//! against another client is made again, and what it replied is taken back.

use farside_kv::{KvError, Tag, Transaction};
use farside_value::{Digits, Edit, Text, integer};

use super::{Call, Handled, NOT_AN_INTEGER, Refusal};
use crate::context::Context;
use crate::reply::Reply;

/// Reads the value of the key that is argument 1; the reply beside it, as the value stays borrowed.
pub(super) async fn read<'c>(
    call: &'c mut Call<'_>,
    tag: Tag,
) -> Result<(Option<&'c [u8]>, &'c mut Reply, &'c Context), Refusal> {
    let value = call.keys.value(call.request.arg(1), tag).await?;
    call.context.count_lookup(value.is_some());
    Ok((value, call.reply, call.context))
}

/// Changes a value, and replies. It is given what is there, and says what becomes of that; a refusal changes nothing.
pub(super) type Body<'b> = &'b mut dyn FnMut(Option<&[u8]>, &mut Reply) -> Result<Edit, Refusal>;

/// Changes the value of the key that is argument 1.
pub(super) async fn change(call: &mut Call<'_>, tag: Tag, body: Body<'_>) -> Handled {
    change_key(call, call.request.arg(1), tag, body).await
}

/// Changes the value of a key.
pub(super) async fn change_key(call: &mut Call<'_>, key: &[u8], tag: Tag, body: Body<'_>) -> Handled {
    let mark = call.reply.mark();
    let reply = &mut *call.reply;
    let changed = call.keys.edit(key, tag, |old| {
        reply.take_back(mark);
        Ok(match body(old, reply) {
            Ok(edit) => (edit, Ok(())),
            Err(refusal) => (Edit::Keep, Err(refusal)),
        })
    });
    changed.await?
}

/// Reads and changes several keys at one instant, and replies. Whoever refuses has changed nothing before.
pub(super) async fn together(
    call: &mut Call<'_>,
    keys: &[&[u8]],
    body: &mut dyn FnMut(&mut Transaction, &mut Reply) -> Handled,
) -> Handled {
    let mark = call.reply.mark();
    let reply = &mut *call.reply;
    let done = call.keys.together(keys, |transaction| {
        reply.take_back(mark);
        match body(transaction, reply) {
            Err(Refusal::Store(error)) => Err(error),
            handled => Ok(handled),
        }
    });
    done.await?
}

/// What becomes of a value within a transaction.
pub(super) type Change<'b> = &'b mut dyn FnMut(Option<&[u8]>) -> Result<Edit, Refusal>;

/// Changes a value within a transaction.
pub(super) fn edit(transaction: &mut Transaction, key: &[u8], tag: Tag, body: Change<'_>) -> Handled {
    let edited: Result<_, KvError> = transaction.edit(key, tag, |old| {
        Ok(match body(old) {
            Ok(edit) => (edit, Ok(())),
            Err(refusal) => (Edit::Keep, Err(refusal)),
        })
    });
    edited??
}

/// Appends an element.
pub(super) fn element(reply: &mut Reply, text: &Text<'_>) {
    reply.bulk(text.bytes(&mut Digits::new()));
}

/// An integer.
pub(super) fn integer(text: &[u8]) -> Result<i64, Refusal> {
    integer::parse(text).ok_or_else(|| NOT_AN_INTEGER.into())
}

/// An integer that is not less than `least`; `message` says what else is wrong, with anything.
pub(super) fn at_least(least: i64, text: &[u8], message: &'static str) -> Result<i64, Refusal> {
    let number = integer::parse(text).filter(|&number| number >= least);
    number.ok_or_else(|| message.into())
}

/// How many elements, 0 or more.
pub(super) fn count(text: &[u8]) -> Result<u64, Refusal> {
    at_least(0, text, "ERR value is out of range, must be positive").map(i64::unsigned_abs)
}

/// An integer whose negative is one, too.
pub(super) fn symmetric(text: &[u8]) -> Result<i64, Refusal> {
    match integer(text)? {
        i64::MIN => Err(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )
        .into()),
        number => Ok(number),
    }
}
