//! COPY, RENAME and RENAMENX: a value goes from one key to another, both at one instant.
//!
//! On the path: each is a transaction over both keys.

use farside_kv::{Item, KvError, Transaction};
use farside_value::integer;

use super::{Call, Handled, NOT_AN_INTEGER, SYNTAX};

const NO_SUCH_KEY: &str = "ERR no such key";

/// Whether a key that is there is overwritten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Any,
    Absent,
}

/// What has become of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// There is no source.
    Absent,
    /// The destination is there.
    Taken,
}

/// Stores the source's value and expiry under the destination, too.
fn copy_to(
    transaction: &mut Transaction,
    from: &[u8],
    to: &[u8],
    destination: Destination,
) -> Result<Outcome, KvError> {
    let Some(item) = transaction.item(from)? else {
        return Ok(Outcome::Absent);
    };
    let (value, expiry_ms, tag) = (item.value.to_vec(), item.expiry_ms, item.tag);
    if destination == Destination::Absent && transaction.item(to)?.is_some() {
        return Ok(Outcome::Taken);
    }
    transaction.put_item(Item::of(to, &value, expiry_ms).tagged(tag))?;
    Ok(Outcome::Done)
}

pub(crate) async fn copy(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let mut destination = Destination::Absent;
    let mut index = 3;
    while index < request.len() {
        if request.arg_is(index, "replace") {
            destination = Destination::Any;
        } else if request.arg_is(index, "db") && index + 1 < request.len() {
            index += 1;
            let number = integer::parse(request.arg(index)).ok_or(NOT_AN_INTEGER)?;
            if number != 0 {
                return Err("ERR DB index is out of range".into());
            }
        } else {
            return Err(SYNTAX.into());
        }
        index += 1;
    }
    let (from, to) = (request.arg(1), request.arg(2));
    if from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let keys = [from, to];
    let copied = call
        .keys
        .together(&keys, |transaction| copy_to(transaction, from, to, destination));
    let is_copied = copied.await? == Outcome::Done;
    call.reply.integer(is_copied.into());
    Ok(())
}

pub(crate) async fn rename(call: &mut Call<'_>) -> Handled {
    match move_key(call, Destination::Any).await? {
        Outcome::Absent => return Err(NO_SUCH_KEY.into()),
        Outcome::Done | Outcome::Taken => call.reply.ok(),
    }
    Ok(())
}

pub(crate) async fn renamenx(call: &mut Call<'_>) -> Handled {
    match move_key(call, Destination::Absent).await? {
        Outcome::Absent => return Err(NO_SUCH_KEY.into()),
        outcome => call.reply.integer((outcome == Outcome::Done).into()),
    }
    Ok(())
}

async fn move_key(call: &mut Call<'_>, destination: Destination) -> Result<Outcome, KvError> {
    let (from, to) = (call.request.arg(1), call.request.arg(2));
    let keys = [from, to];
    let moved = call.keys.together(&keys, |transaction| {
        if from == to {
            // It is there already, or there is nothing to move.
            let is_there = transaction.item(from)?.is_some();
            return Ok(if is_there { Outcome::Taken } else { Outcome::Absent });
        }
        let outcome = copy_to(transaction, from, to, destination)?;
        if outcome == Outcome::Done {
            transaction.delete(from)?;
        }
        Ok(outcome)
    });
    moved.await
}
