//! SET with its options; SETEX and PSETEX, which are the same with the time in front.

use std::io;

use farside_kv::{Condition, Expiry, KvError, Session, SetOptions};

use super::expiry::Unit;
use super::table::Id;
use super::{Call, Handled, Refusal, SYNTAX, count_several, refuse};
use crate::client::Client;
use crate::connection::{REPLY_BYTES_MAX, flush};
use crate::context::Context;
use crate::reply::Reply;
use crate::request::Request;
use crate::stream::Stream;

pub(crate) async fn set(call: &mut Call<'_>) -> Handled {
    let (key, value) = (call.request.arg(1), call.request.arg(2));
    let options = match call.request.len() {
        3 => SetOptions::default(),
        _ => options(call.request, || call.context.store.endpoint().unix_ms())?,
    };
    let outcome = call.keys.set(key, value, options).await?;
    match options.returns_old {
        true => call.reply.bulk_or_null(outcome.old.as_deref()),
        false if outcome.is_stored => call.reply.ok(),
        false => call.reply.null(),
    }
    Ok(())
}

/// Several SETs of one burst.
///
/// # Errors
/// If the connection broke.
pub(crate) async fn set_all(
    context: &Context,
    stream: &mut Stream,
    reply: &mut Reply,
    client: &mut Client,
    session: &mut Session,
    items: &[(&[u8], &[u8])],
) -> io::Result<()> {
    let stored = |stored: Result<(), KvError>| match stored {
        Ok(()) => reply.ok(),
        Err(error) => refuse(context, reply, error.into()),
    };
    session.put_many(items, stored).await;
    count_several(Id::set, items.iter().map(|&(key, _)| key), client, context);
    if reply.len() > REPLY_BYTES_MAX {
        flush(stream, reply, client, context).await?;
    }
    Ok(())
}

pub(crate) async fn setex(call: &mut Call<'_>) -> Handled {
    set_for(call, "setex", Unit::SECONDS).await
}

pub(crate) async fn psetex(call: &mut Call<'_>) -> Handled {
    set_for(call, "psetex", Unit::MILLISECONDS).await
}

async fn set_for(call: &mut Call<'_>, name: &str, unit: Unit) -> Handled {
    let at_ms = unit.at_ms(name, call.request.arg(2), || call.context.store.endpoint().unix_ms())?;
    let options = SetOptions {
        expiry: Expiry::AtMs(at_ms),
        ..SetOptions::default()
    };
    call.keys.set(call.request.arg(1), call.request.arg(3), options).await?;
    call.reply.ok();
    Ok(())
}

/// Reads what stands behind the value.
fn options(request: &Request<'_>, now_ms: impl FnOnce() -> u64) -> Result<SetOptions, Refusal> {
    let mut options = SetOptions::default();
    let mut expiry: Option<(Unit, &[u8])> = None;
    let mut index = 3;
    while index < request.len() {
        let is = |word| request.arg_is(index, word);
        if is("nx") && options.condition != Condition::IfPresent {
            options.condition = Condition::IfAbsent;
        } else if is("xx") && options.condition != Condition::IfAbsent {
            options.condition = Condition::IfPresent;
        } else if is("get") {
            options.returns_old = true;
        } else if is("keepttl") && expiry.is_none() {
            options.expiry = Expiry::Keep;
        } else if let Some(unit) = Unit::named(is).filter(|unit| {
            // Twice the same option is allowed: the last one counts.
            let fits = expiry.is_none_or(|(before, _)| before == *unit) && options.expiry != Expiry::Keep;
            fits && index + 1 < request.len()
        }) {
            index += 1;
            expiry = Some((unit, request.arg(index)));
        } else {
            return Err(SYNTAX.into());
        }
        index += 1;
    }
    if let Some((unit, number)) = expiry {
        options.expiry = Expiry::AtMs(unit.at_ms("set", number, now_ms)?);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOT_AN_INTEGER;
    use crate::request::Scratch;

    const INVALID_EXPIRE: &str = "ERR invalid expire time in 'set' command";

    const NOW_MS: u64 = 1_000_000;

    fn parse(line: &str) -> Result<SetOptions, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        options(&request, || NOW_MS).map_err(|refusal| match refusal {
            Refusal::Text(text) => text.into_owned(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn options_combine() {
        let all = parse("SET k v px 5 NX get").expect("they fit");
        assert_eq!(
            all,
            SetOptions {
                condition: Condition::IfAbsent,
                expiry: Expiry::AtMs(NOW_MS + 5),
                returns_old: true,
            }
        );
        assert_eq!(parse("SET k v EX 2").expect("fits").expiry, Expiry::AtMs(NOW_MS + 2000));
        assert_eq!(parse("SET k v EXAT 2").expect("fits").expiry, Expiry::AtMs(2000));
        assert_eq!(parse("SET k v PXAT 2").expect("fits").expiry, Expiry::AtMs(2));
        assert_eq!(
            parse("SET k v EX 1 EX 2").expect("fits").expiry,
            Expiry::AtMs(NOW_MS + 2000)
        );
        assert_eq!(parse("SET k v keepttl xx").expect("fits").expiry, Expiry::Keep);
    }

    #[test]
    fn what_does_not_fit_is_a_syntax_error() {
        for line in [
            "SET k v NX XX",
            "SET k v XX NX",
            "SET k v EX",
            "SET k v EX 1 PX 1",
            "SET k v KEEPTTL EX 1",
            "SET k v EX 1 KEEPTTL",
            "SET k v what",
            "SET k v EX 1 2",
            "SET k v EX 1 EXAT 1",
        ] {
            assert_eq!(parse(line), Err(SYNTAX.to_owned()), "{line}");
        }
    }

    #[test]
    fn times_are_checked() {
        assert_eq!(parse("SET k v EX a"), Err(NOT_AN_INTEGER.to_owned()));
        for line in [
            "SET k v EX 0",
            "SET k v PX -1",
            "SET k v EX 9223372036854775807",
            "SET k v PX 9223372036854775807",
        ] {
            assert_eq!(parse(line), Err(INVALID_EXPIRE.to_owned()), "{line}");
        }
    }
}
