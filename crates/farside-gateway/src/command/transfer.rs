//! COPY and RENAME: a value goes from one key to another.
//!
//! The store changes one key at a time. Both commands are made of steps that are atomic for themselves:
//!  1. read the source, value and expiry of one instant;
//!  2. store both under the destination: from now on both keys are there;
//!  3. RENAME only: remove the source if it still has this value and this expiry. If somebody has changed
//!     it, begin again, so that no acknowledged change is lost; if somebody has removed it, it is gone as
//!     wanted.
//!
//! A reader of the destination sees the value before or the value after, nothing else. Whoever reads both
//! keys may see both. A crash between the steps leaves both; the value is never nowhere. RENAMENX is
//! refused: it is used to claim a key, and two clients could believe that they have claimed the source.

use farside_kv::{Alteration, Expiry};

use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::integer;

const NO_SUCH_KEY: &str = "ERR no such key";
/// How often RENAME begins again when the source changes meanwhile.
const ATTEMPTS_MAX: u32 = 64;

/// Whether a key that is there is overwritten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Any,
    Absent,
}

/// What the source had.
struct Source {
    value: Vec<u8>,
    expiry_ms: u64,
}

async fn read(call: &mut Call<'_>, key: &[u8]) -> Result<Option<Source>, Refusal> {
    let found = call.session.get_with_expiry(key).await?;
    Ok(found.map(|(value, expiry_ms)| Source {
        value: value.to_vec(),
        expiry_ms,
    }))
}

/// Stores what the source had; returns whether the destination could take it.
async fn store(call: &mut Call<'_>, key: &[u8], source: &Source, destination: Destination) -> Result<bool, Refusal> {
    let expiry = match source.expiry_ms {
        0 => Expiry::Never,
        at_ms => Expiry::AtMs(at_ms),
    };
    let mut is_stored = false;
    let stored = call.session.alter(key, |before| {
        is_stored = destination == Destination::Any || before.is_none();
        match is_stored {
            true => Alteration::Put {
                value: &source.value,
                expiry,
            },
            false => Alteration::Keep,
        }
    });
    stored.await?;
    Ok(is_stored)
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
    let is_copied = match read(call, from).await? {
        Some(source) => store(call, to, &source, destination).await?,
        None => false,
    };
    call.reply.integer(is_copied.into());
    Ok(())
}

pub(crate) async fn rename(call: &mut Call<'_>) -> Handled {
    let (from, to) = (call.request.arg(1), call.request.arg(2));
    let mut source = read(call, from).await?.ok_or(NO_SUCH_KEY)?;
    if from == to {
        call.reply.ok();
        return Ok(());
    }
    for _ in 0..ATTEMPTS_MAX {
        store(call, to, &source, Destination::Any).await?;
        let is_same = |value: &[u8], expiry_ms| value == source.value && expiry_ms == source.expiry_ms;
        if call.session.delete_if(from, is_same).await? != Some(false) {
            call.reply.ok();
            return Ok(());
        }
        // Lost to a concurrent change of the source: the destination must get what it is now.
        match read(call, from).await? {
            Some(changed) => source = changed,
            None => {
                call.reply.ok();
                return Ok(());
            }
        }
    }
    Err(
        "ERR the source key changes all the time; the destination has one of its values, and both keys are there"
            .into(),
    )
}

pub(crate) async fn renamenx(_: &mut Call<'_>) -> Handled {
    Err(
        "ERR RENAMENX is not supported: it would have to test and change two keys at one instant. \
         SET with NX tests and sets one"
            .into(),
    )
}
