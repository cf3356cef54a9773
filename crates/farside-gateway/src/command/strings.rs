//! Strings: GET, MGET, MSET, APPEND, GETRANGE and their like.

use core::convert::Infallible;
use core::ops::Range;
use std::io;

use farside_kv::{Condition, Expiry, KvError, Session, SetOptions, VALUE_BYTES_MAX};
use farside_value::integer;

use super::table::Id;
use super::transactions::ANSWERS_BYTES_MAX;
use super::{Call, Handled, Keys, NOT_AN_INTEGER, Refusal, count_several, refuse, wrong_arity};
use crate::client::{Client, Replies};
use crate::connection::{REPLY_BYTES_MAX, flush, flush_with};
use crate::context::Context;
use crate::reply::Reply;
use crate::request::Request;
use crate::stream::Stream;

/// A value of so many bytes is written out from where it stands, if nothing speaks against that: a copy among the replies would
/// take longer than one more call of the system.
const LONG_BYTES: usize = 128 << 10;

pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

pub(crate) async fn get(call: &mut Call<'_>) -> Handled {
    let may_write = matches!(call.keys, Keys::Apart(_)) && call.client.may_go_together();
    let value = call.keys.get(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    match value {
        Some(value) if may_write && value.len() >= LONG_BYTES => {
            reply_long(call.context, call.stream, call.reply, call.client, value).await?;
        }
        value => call.reply.bulk_or_null(value),
    }
    Ok(())
}

/// Replies with a long value that stands in the buffer of a session.
async fn reply_long(
    context: &Context,
    stream: &mut Stream,
    reply: &mut Reply,
    client: &Client,
    value: &[u8],
) -> io::Result<()> {
    reply.bulk_head(value.len());
    flush_with(stream, reply, client, context, value).await?;
    reply.bulk_end();
    Ok(())
}

pub(crate) async fn strlen(call: &mut Call<'_>) -> Handled {
    let value = call.keys.get(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    call.reply.count(value.map_or(0, <[u8]>::len) as u64);
    Ok(())
}

pub(crate) async fn getset(call: &mut Call<'_>) -> Handled {
    let options = SetOptions {
        returns_old: true,
        ..SetOptions::default()
    };
    let outcome = call.keys.set(call.request.arg(1), call.request.arg(2), options).await?;
    call.reply.bulk_or_null(outcome.old.as_deref());
    Ok(())
}

pub(crate) async fn setnx(call: &mut Call<'_>) -> Handled {
    let options = SetOptions {
        condition: Condition::IfAbsent,
        expiry: Expiry::Never,
        returns_old: false,
    };
    let outcome = call.keys.set(call.request.arg(1), call.request.arg(2), options).await?;
    call.reply.integer(outcome.is_stored.into());
    Ok(())
}

pub(crate) async fn append(call: &mut Call<'_>) -> Handled {
    let more = call.request.arg(2);
    let mut length = 0;
    let appended = call.keys.update(call.request.arg(1), |value| {
        let value = value.unwrap_or_default();
        length = value.len() + more.len();
        if length > VALUE_BYTES_MAX {
            return Err(TOO_LONG);
        }
        Ok([value, more].concat())
    });
    appended.await??;
    call.reply.count(length as u64);
    Ok(())
}

pub(crate) async fn getdel(call: &mut Call<'_>) -> Handled {
    let value = call.keys.take(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    call.reply.bulk_or_null(value.as_deref());
    Ok(())
}

pub(crate) async fn getrange(call: &mut Call<'_>) -> Handled {
    let first = integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let last = integer::parse(call.request.arg(3)).ok_or(NOT_AN_INTEGER)?;
    let value = call.keys.get(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    let value = value.unwrap_or_default();
    call.reply.bulk(&value[range(value.len(), first, last)]);
    Ok(())
}

pub(crate) async fn substr(call: &mut Call<'_>) -> Handled {
    getrange(call).await
}

/// Which of so many bytes stand from `first` to `last`, both included; negative: from the end.
fn range(bytes: usize, first: i64, last: i64) -> Range<usize> {
    // A length fits, and adding it to a negative number cannot overflow.
    let length = bytes as i64;
    let from_start = |index: i64| if index < 0 { index + length } else { index };
    let (start, end) = (from_start(first).max(0), from_start(last).min(length - 1) + 1);
    // Redis takes an end before the first byte for the first byte, unless both ends are counted
    // from the end and stand the wrong way round.
    let end = if first < 0 && last < 0 && first > last {
        0
    } else {
        end.max(1).min(length)
    };
    if start < end {
        start as usize..end as usize
    } else {
        0..0
    }
}

pub(crate) async fn setrange(call: &mut Call<'_>) -> Handled {
    let offset = integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let offset = usize::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    let patch = call.request.arg(3);
    if patch.is_empty() {
        // It changes nothing, and makes no key.
        let value = call.keys.get(call.request.arg(1)).await?;
        call.reply.count(value.map_or(0, <[u8]>::len) as u64);
        return Ok(());
    }
    let end = offset.checked_add(patch.len()).filter(|&end| end <= VALUE_BYTES_MAX);
    let end = end.ok_or(TOO_LONG)?;
    let mut length = 0;
    let patched = call.keys.update(call.request.arg(1), |value| {
        let mut value = value.unwrap_or_default().to_vec();
        value.resize(value.len().max(end), 0);
        value[offset..end].copy_from_slice(patch);
        length = value.len();
        Ok::<_, Infallible>(value)
    });
    let Ok(()) = patched.await?;
    call.reply.count(length as u64);
    Ok(())
}

/// The keys of MSET and MSETNX, each with its value.
fn pairs<'a>(request: &Request<'a>, name: &str) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone, Refusal> {
    if request.len().is_multiple_of(2) {
        return Err(wrong_arity(name).into());
    }
    let pairs = (1..request.len()).step_by(2);
    Ok(pairs.map(|at| (request.arg(at), request.arg(at + 1))))
}

pub(crate) async fn msetnx(call: &mut Call<'_>) -> Handled {
    let pairs = pairs(call.request, "msetnx")?;
    let keys: Vec<&[u8]> = pairs.clone().map(|(key, _)| key).collect();
    let set = call.keys.together(&keys, |transaction| {
        for key in &keys {
            if transaction.item(key)?.is_some() {
                return Ok(false);
            }
        }
        for (key, value) in pairs.clone() {
            transaction.put(key, value)?;
        }
        Ok(true)
    });
    let is_set = set.await?;
    call.reply.integer(is_set.into());
    Ok(())
}

/// Each key is set for itself; together, if they are many, they would be in the way of others.
pub(crate) async fn mset(call: &mut Call<'_>) -> Handled {
    for (key, value) in pairs(call.request, "mset")? {
        call.keys.set(key, value, SetOptions::default()).await?;
    }
    call.reply.ok();
    Ok(())
}

/// MGET takes what is no string for absent.
fn unless_other(value: Result<Option<&[u8]>, KvError>) -> Result<Option<&[u8]>, KvError> {
    match value {
        Err(KvError::WrongType { .. }) => Ok(None),
        value => value,
    }
}

pub(crate) async fn mget(call: &mut Call<'_>) -> Handled {
    let keys: Vec<&[u8]> = call.request.args(1).collect();
    call.reply.array(keys.len());
    let session = match &mut call.keys {
        Keys::Apart(session) => session,
        Keys::Together(transaction) => {
            for key in keys {
                let value = unless_other(transaction.get(key))?;
                call.context.count_lookup(value.is_some());
                call.reply.bulk_or_null(value);
                if call.reply.len() > ANSWERS_BYTES_MAX {
                    // EXEC refuses it.
                    break;
                }
            }
            return Ok(());
        }
    };
    let mut values = session.get_many(&keys);
    for _ in &keys {
        let value = unless_other(values.next().await)?;
        call.context.count_lookup(value.is_some());
        call.reply.bulk_or_null(value);
        // Replies that the client does not want are taken back in the end.
        if call.reply.len() > REPLY_BYTES_MAX && call.client.replies == Replies::On {
            flush(call.stream, call.reply, call.client, call.context).await?;
        }
    }
    Ok(())
}

/// Several GETs of one burst.
///
/// # Errors
/// If the connection broke.
pub(crate) async fn get_all(
    context: &Context,
    stream: &mut Stream,
    reply: &mut Reply,
    client: &mut Client,
    session: &mut Session,
    keys: &[&[u8]],
) -> io::Result<()> {
    let mut values = session.get_many(keys);
    for _ in keys {
        match values.next().await {
            Ok(value) => {
                context.count_lookup(value.is_some());
                match value {
                    Some(value) if value.len() >= LONG_BYTES => {
                        reply_long(context, stream, reply, client, value).await?;
                    }
                    value => reply.bulk_or_null(value),
                }
            }
            Err(error) => refuse(context, reply, error.into()),
        }
        if reply.len() > REPLY_BYTES_MAX {
            flush(stream, reply, client, context).await?;
        }
    }
    count_several(Id::get, keys.iter().copied(), client, context);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_those_of_redis() {
        for (bytes, first, last, expected) in [
            (5, 0, 2, 0..3),
            (5, 0, -1, 0..5),
            (5, -3, -1, 2..5),
            (5, -100, 100, 0..5),
            (5, 3, 1, 0..0),
            (5, -1, -3, 0..0),
            (5, 5, 9, 0..0),
            (5, 0, -9, 0..1),
            (5, -9, -8, 0..1),
            (0, 0, -1, 0..0),
            (0, 0, 0, 0..0),
            (5, i64::MIN, i64::MAX, 0..5),
            (5, i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(range(bytes, first, last), expected, "{bytes} {first} {last}");
        }
    }
}
