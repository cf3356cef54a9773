//! Strings: GET, MGET, MSET, APPEND and their like.

use std::io;

use farside_fabric::Endpoint;
use farside_kv::{Condition, Expiry, KvError, Session, SetOptions, VALUE_BYTES_MAX};
use tokio::net::TcpStream;

use super::{Call, Handled, refuse, wrong_arity};
use crate::connection::{REPLY_BYTES_MAX, flush};
use crate::context::Context;
use crate::lanes::{Found, LANES, Lanes};
use crate::reply::Reply;

pub(crate) async fn get<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let value = call.session.get(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    call.reply.bulk_or_null(value);
    Ok(())
}

pub(crate) async fn strlen<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let value = call.session.get(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    call.reply.count(value.map_or(0, <[u8]>::len) as u64);
    Ok(())
}

pub(crate) async fn getset<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let options = SetOptions {
        returns_old: true,
        ..SetOptions::default()
    };
    let outcome = call
        .session
        .set(call.request.arg(1), call.request.arg(2), options)
        .await?;
    call.reply.bulk_or_null(outcome.old.as_deref());
    Ok(())
}

pub(crate) async fn setnx<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let options = SetOptions {
        condition: Condition::IfAbsent,
        expiry: Expiry::Never,
        returns_old: false,
    };
    let outcome = call
        .session
        .set(call.request.arg(1), call.request.arg(2), options)
        .await?;
    call.reply.integer(outcome.is_stored.into());
    Ok(())
}

pub(crate) async fn append<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let more = call.request.arg(2);
    let mut length = 0;
    let appended = call.session.update(call.request.arg(1), |value| {
        let value = value.unwrap_or_default();
        length = value.len() + more.len();
        if length > VALUE_BYTES_MAX {
            return Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        }
        Ok([value, more].concat())
    });
    appended.await??;
    call.reply.count(length as u64);
    Ok(())
}

pub(crate) async fn mset<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let count = call.request.len();
    if count.is_multiple_of(2) {
        return Err(wrong_arity("mset").into());
    }
    for index in (1..count).step_by(2) {
        call.session
            .put(call.request.arg(index), call.request.arg(index + 1))
            .await?;
    }
    call.reply.ok();
    Ok(())
}

pub(crate) async fn mget<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let keys: Vec<&[u8]> = call.request.args(1).collect();
    call.reply.array(keys.len());
    let mut lanes = call.context.take_lanes();
    let mut result = Ok(());
    for keys in keys.chunks(LANES) {
        lanes.look_up(call.context, keys).await;
        result = hand_over(call, &lanes, keys).await;
        if result.is_err() {
            break;
        }
    }
    call.context.give_lanes(lanes);
    result
}

/// Appends what the lanes found, in their order.
async fn hand_over<E: Endpoint>(call: &mut Call<'_, E>, lanes: &Lanes<E>, keys: &[&[u8]]) -> Handled {
    for (lane, key) in keys.iter().enumerate() {
        append_value(call.context, call.reply, call.session, lanes.result(lane)?, key).await?;
        if call.reply.len() > REPLY_BYTES_MAX {
            flush(call.stream, call.reply, call.context).await?;
        }
    }
    Ok(())
}

async fn append_value<E: Endpoint>(
    context: &Context<E>,
    reply: &mut Reply,
    session: &mut Session<E>,
    (found, encoded): (Found, &[u8]),
    key: &[u8],
) -> Result<(), KvError> {
    context.count_lookup(found != Found::Nothing);
    match found {
        Found::Nothing => reply.null(),
        Found::Short => reply.append(encoded),
        // It may have changed since; any value it had during the command will do.
        Found::Long => reply.bulk_or_null(session.get(key).await?),
    }
    Ok(())
}

/// Several GETs of one burst.
///
/// # Errors
/// If the connection broke.
pub(crate) async fn get_all<E: Endpoint>(
    context: &Context<E>,
    stream: &mut TcpStream,
    reply: &mut Reply,
    session: &mut Session<E>,
    keys: &[&[u8]],
) -> io::Result<()> {
    let mut lanes = context.take_lanes();
    lanes.look_up(context, keys).await;
    for (lane, key) in keys.iter().enumerate() {
        let appended = match lanes.result(lane) {
            Ok(result) => append_value(context, reply, session, result, key).await,
            Err(error) => Err(error),
        };
        if let Err(error) = appended {
            refuse(context, reply, error.into());
        }
        if reply.len() > REPLY_BYTES_MAX {
            flush(stream, reply, context).await?;
        }
    }
    context.statistics().commands.add(keys.len() as u64);
    context.give_lanes(lanes);
    Ok(())
}
