//! Hashes: HSET, HMSET, HSETNX, HGET, HMGET, HDEL, HLEN, HEXISTS, HSTRLEN, HKEYS, HVALS, HGETALL, HINCRBY, HINCRBYFLOAT,
//! HRANDFIELD, HSCAN. What concerns the times of fields is in [`field_expiry`](super::field_expiry).

use farside_kv::Tag;
use farside_value::packed::hash;
use farside_value::{Draw, Text, ValueError};

use super::element_scan::{self, Wanted};
use super::values::{change, element, integer, read, symmetric};
use super::{Call, Handled, SYNTAX, draws, wrong_arity};
use crate::context::Context;
use crate::reply::{Protocol, Reply};

/// The time, as hashes know it.
fn now_ms(context: &Context) -> u64 {
    context.store.endpoint().unix_ms()
}

/// Sets the fields that the arguments name; answers how many are new.
async fn set_fields(call: &mut Call<'_>, name: &str) -> Result<u32, super::Refusal> {
    let request = call.request;
    if !request.len().is_multiple_of(2) {
        return Err(wrong_arity(name).into());
    }
    let places = (2..request.len()).step_by(2);
    let pairs: Vec<_> = places.map(|at| (request.arg(at), request.arg(at + 1))).collect();
    let now_ms = now_ms(call.context);
    let mut added = 0;
    let body = &mut |old: Option<&[u8]>, _: &mut Reply| {
        let (edit, new) = hash::set(old, &pairs, now_ms)?;
        added = new;
        Ok(edit)
    };
    change(call, Tag::Hash, body).await?;
    Ok(added)
}

pub(crate) async fn hset(call: &mut Call<'_>) -> Handled {
    let added = set_fields(call, "hset").await?;
    call.reply.count(added.into());
    Ok(())
}

pub(crate) async fn hmset(call: &mut Call<'_>) -> Handled {
    set_fields(call, "hmset").await?;
    call.reply.ok();
    Ok(())
}

pub(crate) async fn hsetnx(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let now_ms = now_ms(call.context);
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, is_set) = hash::set_if_absent(old, request.arg(2), request.arg(3), now_ms)?;
        reply.integer(is_set.into());
        Ok(edit)
    };
    change(call, Tag::Hash, body).await
}

pub(crate) async fn hdel(call: &mut Call<'_>) -> Handled {
    let fields: Vec<&[u8]> = call.request.args(2).collect();
    let now_ms = now_ms(call.context);
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, removed) = hash::remove(old, &fields, now_ms)?;
        reply.count(removed.into());
        Ok(edit)
    };
    change(call, Tag::Hash, body).await
}

pub(crate) async fn hincrby(call: &mut Call<'_>) -> Handled {
    let field = call.request.arg(2);
    let by = integer(call.request.arg(3))?;
    let now_ms = now_ms(call.context);
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, sum) = hash::increment(old, field, by, now_ms)?;
        reply.integer(sum);
        Ok(edit)
    };
    change(call, Tag::Hash, body).await
}

pub(crate) async fn hincrbyfloat(call: &mut Call<'_>) -> Handled {
    let (field, by) = (call.request.arg(2), call.request.arg(3));
    let now_ms = now_ms(call.context);
    // As in Redis, what is added is looked at before the key.
    hash::increment_float(None, field, by, now_ms)?;
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, sum) = hash::increment_float(old, field, by, now_ms)?;
        reply.bulk(sum.as_bytes());
        Ok(edit)
    };
    change(call, Tag::Hash, body).await
}

pub(crate) async fn hget(call: &mut Call<'_>) -> Handled {
    let field = call.request.arg(2);
    let (value, reply, context) = read(call, Tag::Hash).await?;
    element_or_null(reply, hash::get(value, field, now_ms(context))?.as_ref());
    Ok(())
}

fn element_or_null(reply: &mut Reply, text: Option<&Text<'_>>) {
    match text {
        Some(text) => element(reply, text),
        None => reply.null(),
    }
}

pub(crate) async fn hmget(call: &mut Call<'_>) -> Handled {
    let fields: Vec<&[u8]> = call.request.args(2).collect();
    let (value, reply, context) = read(call, Tag::Hash).await?;
    let found = hash::get_many(value, &fields, now_ms(context))?;
    reply.array(found.len());
    found.iter().for_each(|text| element_or_null(reply, text.as_ref()));
    Ok(())
}

pub(crate) async fn hexists(call: &mut Call<'_>) -> Handled {
    let field = call.request.arg(2);
    let (value, reply, context) = read(call, Tag::Hash).await?;
    let found = hash::get(value, field, now_ms(context))?;
    reply.integer(found.is_some().into());
    Ok(())
}

pub(crate) async fn hstrlen(call: &mut Call<'_>) -> Handled {
    let field = call.request.arg(2);
    let (value, reply, context) = read(call, Tag::Hash).await?;
    let found = hash::get(value, field, now_ms(context))?;
    reply.count(found.map_or(0, |text| text.len()) as u64);
    Ok(())
}

pub(crate) async fn hlen(call: &mut Call<'_>) -> Handled {
    let (value, reply, context) = read(call, Tag::Hash).await?;
    reply.count(hash::live_count(value, now_ms(context))?.into());
    Ok(())
}

pub(crate) async fn hgetall(call: &mut Call<'_>) -> Handled {
    show_all(call, Reply::map, &mut |reply, name, text| {
        reply.bulk(name);
        element(reply, &text);
    })
    .await
}

pub(crate) async fn hkeys(call: &mut Call<'_>) -> Handled {
    show_all(call, Reply::array, &mut |reply, name, _| reply.bulk(name)).await
}

pub(crate) async fn hvals(call: &mut Call<'_>) -> Handled {
    show_all(call, Reply::array, &mut |reply, _, text| element(reply, &text)).await
}

/// Shows each field in the reply, behind a head that says how many there are.
async fn show_all(
    call: &mut Call<'_>,
    head: fn(&mut Reply, usize),
    show: &mut dyn FnMut(&mut Reply, &[u8], Text<'_>),
) -> Handled {
    let (value, reply, context) = read(call, Tag::Hash).await?;
    let now_ms = now_ms(context);
    let count = hash::live_count(value, now_ms)?;
    head(reply, count as usize);
    let mut shown = 0;
    hash::each(value, now_ms, &mut |name, text| {
        shown += 1;
        show(reply, name, text);
    })?;
    check_shown(shown, count.into())
}

/// A reply whose head says another number than there are elements in it would be read as something else. That can only be
/// so of a damaged value.
fn check_shown(shown: u64, promised: u64) -> Handled {
    match shown == promised {
        true => Ok(()),
        false => Err(ValueError::Damaged("a field is past its time before the earliest").into()),
    }
}

pub(crate) async fn hrandfield(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    if request.len() == 2 {
        return one_by_chance(call).await;
    }
    let count = symmetric(request.arg(2))?;
    let has_values = match request.len() {
        3 => false,
        4 if request.arg_is(3, "withvalues") => true,
        _ => return Err(SYNTAX.into()),
    };
    // Fields and values together are as many as a number can be.
    if has_values && count.unsigned_abs() > (i64::MAX / 2).unsigned_abs() {
        return Err("ERR value is out of range".into());
    }
    let now_ms = now_ms(call.context);
    let are_pairs = has_values && call.reply.protocol() == Protocol::Resp3;
    let width = if has_values && !are_pairs { 2 } else { 1 };
    let fields = &|value: Option<&[u8]>| hash::live_count(value, now_ms);
    draws::draw(
        call,
        (Tag::Hash, count),
        fields,
        width,
        &mut |value, draw, random, reply| {
            let mut shown = 0;
            hash::random(value, draw, now_ms, random, &mut |name, text| {
                shown += 1;
                if are_pairs {
                    reply.array(2);
                }
                reply.bulk(name);
                if has_values {
                    element(reply, &text);
                }
            })?;
            let (Draw::Distinct(wanted) | Draw::Repeated(wanted)) = draw;
            check_shown(shown, wanted)
        },
    )
    .await
}

async fn one_by_chance(call: &mut Call<'_>) -> Handled {
    let (value, reply, context) = read(call, Tag::Hash).await?;
    let random = &mut |bound| context.store.endpoint().random_below(bound);
    let mut is_drawn = false;
    hash::random(value, Draw::Distinct(1), now_ms(context), random, &mut |name, _| {
        is_drawn = true;
        reply.bulk(name);
    })?;
    if !is_drawn {
        reply.null();
    }
    Ok(())
}

pub(crate) async fn hscan(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let cursor = element_scan::cursor(request)?;
    let (value, reply, context) = read(call, Tag::Hash).await?;
    if value.is_none() {
        element_scan::head(reply, 0, 0);
        return Ok(());
    }
    let (wanted, has_values) = Wanted::parse_fields(request)?;
    let (now_ms, seed) = (now_ms(context), context.store.seed());
    let is_wanted = |name: &[u8]| wanted.has(&Text::Bytes(name));
    let mut count = 0;
    let next = hash::scan(value, cursor, seed, now_ms, &mut |name, _| {
        count += usize::from(is_wanted(name));
    })?;
    element_scan::head(reply, next, if has_values { 2 * count } else { count });
    hash::scan(value, cursor, seed, now_ms, &mut |name, text| {
        if is_wanted(name) {
            reply.bulk(name);
            if has_values {
                element(reply, &text);
            }
        }
    })?;
    Ok(())
}
