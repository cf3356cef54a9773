//! Strings: GET, MGET, MSET, APPEND and their like.

use std::io;

use farside_fabric::Endpoint;
use farside_kv::{Condition, Expiry, Session, SetOptions, VALUE_BYTES_MAX};
use tokio::net::TcpStream;

use super::{Call, Handled, refuse, wrong_arity};
use crate::connection::{REPLY_BYTES_MAX, flush};
use crate::context::Context;
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
    let mut values = call.session.get_many(&keys);
    for _ in &keys {
        let value = values.next().await?;
        call.context.count_lookup(value.is_some());
        call.reply.bulk_or_null(value);
        if call.reply.len() > REPLY_BYTES_MAX {
            flush(call.stream, call.reply, call.context).await?;
        }
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
    let mut values = session.get_many(keys);
    for _ in keys {
        match values.next().await {
            Ok(value) => {
                context.count_lookup(value.is_some());
                reply.bulk_or_null(value);
            }
            Err(error) => refuse(context, reply, error.into()),
        }
        if reply.len() > REPLY_BYTES_MAX {
            flush(stream, reply, context).await?;
        }
    }
    context.statistics().commands.add(keys.len() as u64);
    Ok(())
}
