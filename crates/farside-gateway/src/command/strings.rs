//! Strings: GET, MGET, MSET, APPEND and their like.

use bytes::BytesMut;
use farside_fabric::{Endpoint, interleave};
use farside_kv::{Condition, Expiry, KvError, Session, SetOptions, VALUE_BYTES_MAX};
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;

use super::{Call, Handled, wrong_arity};
use crate::connection::{REPLY_BYTES_MAX, flush};
use crate::context::Context;

/// How many keys of one MGET are looked up at a time, so that their cache misses overlap.
const LANES: usize = 16;
/// A value longer than this is not copied through a lane, but read by itself.
const LANE_BYTES_MAX: usize = 64 << 10;

pub(crate) async fn get<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let value = call.session.get(call.request.arg(1)).await?;
    count_lookup(call.context, value.is_some());
    call.reply.bulk_or_null(value);
    Ok(())
}

fn count_lookup<E: Endpoint>(context: &Context<E>, is_there: bool) {
    let statistics = context.statistics();
    if is_there {
        statistics.hits.add(1);
    } else {
        statistics.misses.add(1);
    }
}

pub(crate) async fn strlen<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let value = call.session.get(call.request.arg(1)).await?;
    count_lookup(call.context, value.is_some());
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

/// One of the lookups of an MGET that run at the same time.
struct Lane<'a, E> {
    key: &'a [u8],
    session: Session<E>,
    /// The encoded value, if it was found and is short.
    reply: BytesMut,
    found: Result<Found, KvError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Short,
    Long,
}

impl<E: Endpoint> Lane<'_, E> {
    async fn look_up(&mut self, context: &Context<E>) -> Result<Found, KvError> {
        let Some(value) = self.session.get(self.key).await? else {
            return Ok(Found::Nothing);
        };
        if value.len() > LANE_BYTES_MAX {
            // Its buffer has grown: sixteen of them would be a lot.
            self.session = context.store.pipelined_session(&context.pipeline);
            return Ok(Found::Long);
        }
        extend_encode_borrowed(&mut self.reply, &BorrowedFrame::BulkString(value), false)
            .expect("the codec makes the buffer as long as the frame");
        Ok(Found::Short)
    }
}

pub(crate) async fn mget<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let count = call.request.len() - 1;
    call.reply.array(count);
    let context = call.context;
    let mut lanes: Vec<Lane<'_, E>> = (0..count.min(LANES))
        .map(|_| Lane {
            key: &[],
            session: context.take_lane(),
            reply: BytesMut::new(),
            found: Ok(Found::Nothing),
        })
        .collect();
    let mut result = Ok(());
    for first in (0..count).step_by(LANES) {
        let used = &mut lanes[..LANES.min(count - first)];
        for (lane, key) in used.iter_mut().zip(call.request.args(1 + first)) {
            lane.key = key;
            lane.reply.clear();
        }
        let look_ups = used
            .iter_mut()
            .map(async |lane| lane.found = lane.look_up(context).await);
        interleave(&context.pipeline, look_ups.collect()).await;
        result = hand_over(call, used).await;
        if result.is_err() {
            break;
        }
    }
    for lane in lanes {
        context.give_lane(lane.session);
    }
    result
}

/// Appends what the lanes found, in their order.
async fn hand_over<E: Endpoint>(call: &mut Call<'_, E>, lanes: &[Lane<'_, E>]) -> Handled {
    for lane in lanes {
        match lane.found.clone()? {
            Found::Nothing => call.reply.null(),
            Found::Short => call.reply.append(&lane.reply),
            Found::Long => {
                // It may have changed since; any value it had during the command will do.
                let value = call.session.get(lane.key).await?;
                call.reply.bulk_or_null(value);
            }
        }
        count_lookup(call.context, lane.found != Ok(Found::Nothing));
        if call.reply.len() > REPLY_BYTES_MAX && !flush(call.stream, call.reply, call.context).await? {
            return Err("ERR this gateway is closing".into());
        }
    }
    Ok(())
}
