//! Sets: SADD, SREM, SISMEMBER, SMISMEMBER, SCARD, SMEMBERS, SPOP, SRANDMEMBER, SSCAN, SMOVE. What is made of several sets is
//! in [`set_algebra`](super::set_algebra).

use farside_kv::Tag;
use farside_value::packed::set;
use farside_value::{Draw, Edit, format};

use super::element_scan::{self, Wanted};
use super::values::{change, count, edit, element, read, symmetric, together};
use super::{Call, Handled, Refusal, SYNTAX, draws};
use crate::reply::Reply;

pub(crate) async fn sadd(call: &mut Call<'_>) -> Handled {
    let members: Vec<&[u8]> = call.request.args(2).collect();
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, added) = set::add(old, &members)?;
        reply.count(added.into());
        Ok(edit)
    };
    change(call, Tag::Set, body).await
}

pub(crate) async fn srem(call: &mut Call<'_>) -> Handled {
    let members: Vec<&[u8]> = call.request.args(2).collect();
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, removed) = set::remove(old, &members)?;
        reply.count(removed.into());
        Ok(edit)
    };
    change(call, Tag::Set, body).await
}

pub(crate) async fn sismember(call: &mut Call<'_>) -> Handled {
    let member = call.request.arg(2);
    let (value, reply, _) = read(call, Tag::Set).await?;
    reply.integer(set::contains(value, member)?.into());
    Ok(())
}

pub(crate) async fn smismember(call: &mut Call<'_>) -> Handled {
    let members: Vec<&[u8]> = call.request.args(2).collect();
    let (value, reply, _) = read(call, Tag::Set).await?;
    let found = set::contains_many(value, &members)?;
    reply.array(found.len());
    found.iter().for_each(|&is_there| reply.integer(is_there.into()));
    Ok(())
}

pub(crate) async fn scard(call: &mut Call<'_>) -> Handled {
    let (value, reply, _) = read(call, Tag::Set).await?;
    reply.count(format::count(value)?.into());
    Ok(())
}

pub(crate) async fn smembers(call: &mut Call<'_>) -> Handled {
    let (value, reply, _) = read(call, Tag::Set).await?;
    reply.set(format::count(value)? as usize);
    set::each(value, &mut |member| element(reply, &member))?;
    Ok(())
}

pub(crate) async fn spop(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let wanted = match request.len() {
        2 => None,
        3 => Some(count(request.arg(2))?),
        _ => return Err(SYNTAX.into()),
    };
    let context = call.context;
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let random = &mut |bound| context.store.endpoint().random_below(bound);
        let (edit, popped) = set::pop(old, wanted.unwrap_or(1), random)?;
        match (wanted, popped.first()) {
            (Some(_), _) => {
                reply.set(popped.len());
                popped.iter().for_each(|member| element(reply, member));
            }
            (None, Some(member)) => element(reply, member),
            (None, None) => reply.null(),
        }
        Ok(edit)
    };
    change(call, Tag::Set, body).await
}

pub(crate) async fn srandmember(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    match request.len() {
        2 => return one_by_chance(call).await,
        3 => {}
        _ => return Err(SYNTAX.into()),
    }
    let count = symmetric(request.arg(2))?;
    draws::draw(
        call,
        (Tag::Set, count),
        &format::count,
        1,
        &mut |value, draw, random, reply| Ok(set::random(value, draw, random, &mut |member| element(reply, &member))?),
    )
    .await
}

async fn one_by_chance(call: &mut Call<'_>) -> Handled {
    let (value, reply, context) = read(call, Tag::Set).await?;
    if value.is_none() {
        reply.null();
        return Ok(());
    }
    let random = &mut |bound| context.store.endpoint().random_below(bound);
    set::random(value, Draw::Distinct(1), random, &mut |member| element(reply, &member))?;
    Ok(())
}

pub(crate) async fn sscan(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let cursor = element_scan::cursor(request)?;
    let (value, reply, context) = read(call, Tag::Set).await?;
    if value.is_none() {
        element_scan::head(reply, 0, 0);
        return Ok(());
    }
    let (wanted, seed) = (Wanted::parse(request)?, context.store.seed());
    let mut count = 0;
    let next = set::scan(value, cursor, seed, &mut |member| {
        count += usize::from(wanted.has(&member));
    })?;
    element_scan::head(reply, next, count);
    set::scan(value, cursor, seed, &mut |member| {
        if wanted.has(&member) {
            element(reply, &member);
        }
    })?;
    Ok(())
}

pub(crate) async fn smove(call: &mut Call<'_>) -> Handled {
    let [from, to, member] = [1, 2, 3].map(|index| call.request.arg(index));
    together(call, &[from, to], &mut |transaction, reply| {
        let source = transaction.value(from, Tag::Set)?;
        let is_there = source.is_some();
        let is_member = set::contains(source, member)?;
        if is_there {
            // That it is a set counts even if nothing is moved.
            transaction.value(to, Tag::Set)?;
        }
        if is_member && from != to {
            // The one that may get too long at first: then nothing has been changed.
            let add = &mut |old: Option<&[u8]>| -> Result<Edit, Refusal> { Ok(set::add(old, &[member])?.0) };
            edit(transaction, to, Tag::Set, add)?;
            let remove = &mut |old: Option<&[u8]>| -> Result<Edit, Refusal> { Ok(set::remove(old, &[member])?.0) };
            edit(transaction, from, Tag::Set, remove)?;
        }
        reply.integer(is_member.into());
        Ok(())
    })
    .await
}
