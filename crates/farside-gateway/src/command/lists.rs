//! Lists: LPUSH, LPOP, LRANGE, LPOS, LMOVE and their like.
//!
//! Arguments are checked in the order of Redis 7: some of them only once it is known that the key is there.

use farside_kv::{Tag, Transaction};
use farside_value::packed::list::{self, End, Search, Side};
use farside_value::{Edit, Text, ValueError, format};

use super::values::{at_least, change, change_key, count, edit, element, integer, read, symmetric, together};
use super::{Call, Handled, Refusal, SYNTAX, wrong_arity};
use crate::reply::Reply;
use crate::request::Request;

const LIST: Tag = Tag::List;

pub(crate) async fn lpush(call: &mut Call<'_>) -> Handled {
    push(call, End::Head, true).await
}

pub(crate) async fn rpush(call: &mut Call<'_>) -> Handled {
    push(call, End::Tail, true).await
}

pub(crate) async fn lpushx(call: &mut Call<'_>) -> Handled {
    push(call, End::Head, false).await
}

pub(crate) async fn rpushx(call: &mut Call<'_>) -> Handled {
    push(call, End::Tail, false).await
}

/// Adds elements at an end, if there is a list or one may be made.
async fn push(call: &mut Call<'_>, end: End, makes_lists: bool) -> Handled {
    let elements: Vec<&[u8]> = call.request.args(2).collect();
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        if old.is_none() && !makes_lists {
            reply.integer(0);
            return Ok(Edit::Keep);
        }
        let (edit, length) = list::push(old, end, &elements)?;
        reply.count(length);
        Ok(edit)
    };
    change(call, LIST, body).await
}

pub(crate) async fn lpop(call: &mut Call<'_>) -> Handled {
    pop(call, "lpop", End::Head).await
}

pub(crate) async fn rpop(call: &mut Call<'_>) -> Handled {
    pop(call, "rpop", End::Tail).await
}

async fn pop(call: &mut Call<'_>, name: &str, end: End) -> Handled {
    let most = match call.request.len() {
        2 => None,
        3 => Some(count(call.request.arg(2))?),
        _ => return Err(wrong_arity(name).into()),
    };
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, popped) = list::pop(old, end, most.unwrap_or(1))?;
        match (most, old) {
            (None, _) => element_or_null(reply, popped.first()),
            (Some(_), None) => reply.null_array(),
            (Some(_), Some(_)) => all(reply, &popped),
        }
        Ok(edit)
    };
    change(call, LIST, body).await
}

fn element_or_null(reply: &mut Reply, text: Option<&Text<'_>>) {
    match text {
        Some(text) => element(reply, text),
        None => reply.null(),
    }
}

fn all(reply: &mut Reply, elements: &[Text<'_>]) {
    reply.array(elements.len());
    elements.iter().for_each(|text| element(reply, text));
}

pub(crate) async fn llen(call: &mut Call<'_>) -> Handled {
    let (value, reply, _) = read(call, LIST).await?;
    reply.count(format::count(value)?.into());
    Ok(())
}

pub(crate) async fn lindex(call: &mut Call<'_>) -> Handled {
    let index = integer(call.request.arg(2));
    let (value, reply, _) = read(call, LIST).await?;
    let found = match value {
        Some(_) => list::index(value, index?)?,
        None => None,
    };
    element_or_null(reply, found.as_ref());
    Ok(())
}

pub(crate) async fn lrange(call: &mut Call<'_>) -> Handled {
    let (start, stop) = (integer(call.request.arg(2))?, integer(call.request.arg(3))?);
    let (value, reply, _) = read(call, LIST).await?;
    all(reply, &list::range(value, start, stop)?);
    Ok(())
}

pub(crate) async fn lset(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        if old.is_none() {
            return Err(ValueError::NoSuchKey.into());
        }
        let (edit, ()) = list::set(old, integer(request.arg(2))?, request.arg(3))?;
        reply.ok();
        Ok(edit)
    };
    change(call, LIST, body).await
}

pub(crate) async fn linsert(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let side = if request.arg_is(2, "after") {
        Side::After
    } else if request.arg_is(2, "before") {
        Side::Before
    } else {
        return Err(SYNTAX.into());
    };
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, length) = list::insert(old, side, request.arg(3), request.arg(4))?;
        match (length, old) {
            (Some(length), _) => reply.count(length),
            (None, Some(_)) => reply.integer(-1),
            (None, None) => reply.integer(0),
        }
        Ok(edit)
    };
    change(call, LIST, body).await
}

pub(crate) async fn lrem(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let most = integer(request.arg(2))?;
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, removed) = list::remove(old, most, request.arg(3))?;
        reply.count(removed.into());
        Ok(edit)
    };
    change(call, LIST, body).await
}

pub(crate) async fn ltrim(call: &mut Call<'_>) -> Handled {
    let (start, stop) = (integer(call.request.arg(2))?, integer(call.request.arg(3))?);
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, ()) = list::trim(old, start, stop)?;
        reply.ok();
        Ok(edit)
    };
    change(call, LIST, body).await
}

/// What LPOS looks for, and whether it answers an array.
fn search(request: &Request<'_>) -> Result<(Search, bool), Refusal> {
    let mut search = Search::default();
    let mut is_array = false;
    for index in (3..request.len()).step_by(2) {
        let value = request.arg(index + 1);
        let has_value = index + 1 < request.len();
        if has_value && request.arg_is(index, "rank") {
            search.rank = symmetric(value)?;
            if search.rank == 0 {
                return Err(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                     negative to start from the end of the list"
                        .into(),
                );
            }
        } else if has_value && request.arg_is(index, "count") {
            search.count = at_least(0, value, "ERR COUNT can't be negative")?.unsigned_abs();
            is_array = true;
        } else if has_value && request.arg_is(index, "maxlen") {
            search.compared_max = at_least(0, value, "ERR MAXLEN can't be negative")?.unsigned_abs();
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok((search, is_array))
}

pub(crate) async fn lpos(call: &mut Call<'_>) -> Handled {
    let (search, is_array) = search(call.request)?;
    let wanted = call.request.arg(2);
    let (value, reply, _) = read(call, LIST).await?;
    let places = list::positions(value, wanted, search)?;
    if is_array {
        reply.array(places.len());
        places.iter().for_each(|&place| reply.integer(place.into()));
    } else {
        match places.first() {
            Some(&place) => reply.integer(place.into()),
            None => reply.null(),
        }
    }
    Ok(())
}

/// An end by its name.
fn end(request: &Request<'_>, at: usize) -> Result<End, Refusal> {
    if request.arg_is(at, "left") {
        Ok(End::Head)
    } else if request.arg_is(at, "right") {
        Ok(End::Tail)
    } else {
        Err(SYNTAX.into())
    }
}

pub(crate) async fn lmove(call: &mut Call<'_>) -> Handled {
    let (from, to) = (end(call.request, 3)?, end(call.request, 4)?);
    move_element(call, from, to).await
}

pub(crate) async fn rpoplpush(call: &mut Call<'_>) -> Handled {
    move_element(call, End::Tail, End::Head).await
}

/// Moves an element from an end of the first key to an end of the second.
async fn move_element(call: &mut Call<'_>, from_end: End, to_end: End) -> Handled {
    let (from, to) = (call.request.arg(1), call.request.arg(2));
    if from == to {
        let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
            let (edit, moved) = list::rotate(old, from_end, to_end)?;
            element_or_null(reply, moved.as_ref());
            Ok(edit)
        };
        return change(call, LIST, body).await;
    }
    let keys = [from, to];
    let body = &mut |transaction: &mut Transaction, reply: &mut Reply| {
        let index = if from_end == End::Head { 0 } else { -1 };
        let value = transaction.value(from, LIST)?;
        let Some(moved) = list::index(value, index)?.map(|text| text.to_vec()) else {
            reply.null();
            return Ok(());
        };
        // First what may be refused: an element is never in neither list.
        edit(transaction, to, LIST, &mut |old| {
            Ok(list::push(old, to_end, &[&moved])?.0)
        })?;
        edit(transaction, from, LIST, &mut |old| Ok(list::pop(old, from_end, 1)?.0))?;
        reply.bulk(&moved);
        Ok(())
    };
    together(call, &keys, body).await
}

pub(crate) async fn lmpop(call: &mut Call<'_>) -> Handled {
    let (keys, at) = numbered_keys(call.request, 1, "ERR numkeys should be greater than 0")?;
    let from = end(call.request, at)?;
    let most = most(call.request, at + 1)?;
    pop_first(call, &keys, LIST, &mut |key, old, reply| {
        let (edit, popped) = list::pop(old, from, most)?;
        if !popped.is_empty() {
            reply.array(2);
            reply.bulk(key);
            all(reply, &popped);
        }
        Ok(edit)
    })
    .await
}

/// The keys of a command that says how many there are in argument `at`, and the place behind them. `message` says what is wrong
/// if there is none.
pub(super) fn numbered_keys<'a>(
    request: &Request<'a>,
    at: usize,
    message: &'static str,
) -> Result<(Vec<&'a [u8]>, usize), Refusal> {
    let count = at_least(1, request.arg(at), message)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // At least one argument follows.
    if count >= request.len() - at - 1 {
        return Err(SYNTAX.into());
    }
    Ok((request.args(at + 1).take(count).collect(), at + 1 + count))
}

/// What LMPOP and ZMPOP have behind the end from which they pop: `COUNT`, at most once.
pub(super) fn most(request: &Request<'_>, at: usize) -> Result<u64, Refusal> {
    match request.len() - at {
        0 => Ok(1),
        1 => Err(SYNTAX.into()),
        further => {
            if !request.arg_is(at, "count") {
                return Err(SYNTAX.into());
            }
            let count = at_least(1, request.arg(at + 1), "ERR count should be greater than 0")?;
            match further {
                2 => Ok(count.unsigned_abs()),
                _ => Err(SYNTAX.into()),
            }
        }
    }
}

/// Pops from a value under a key, and replies if there was anything.
pub(super) type Pop<'p> = &'p mut dyn FnMut(&[u8], Option<&[u8]>, &mut Reply) -> Result<Edit, Refusal>;

/// Pops from the first of several keys that has anything.
pub(super) async fn pop_first(call: &mut Call<'_>, keys: &[&[u8]], tag: Tag, pop: Pop<'_>) -> Handled {
    // Mostly there is something in the first one, which is enough to change then.
    let mark = call.reply.mark();
    for key in keys {
        change_key(call, key, tag, &mut |old, reply| pop(key, old, reply)).await?;
        if call.reply.mark() > mark {
            return Ok(());
        }
    }
    // Each was empty when it was looked at; whether all are at one instant is yet to be seen.
    let body = &mut |transaction: &mut Transaction, reply: &mut Reply| {
        for key in keys {
            let before = reply.mark();
            edit(transaction, key, tag, &mut |old| pop(key, old, reply))?;
            if reply.mark() > before {
                return Ok(());
            }
        }
        reply.null_array();
        Ok(())
    };
    match keys.len() {
        1 => {
            call.reply.null_array();
            Ok(())
        }
        _ => together(call, keys, body).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOT_AN_INTEGER;
    use crate::command::tests::refused;
    use crate::request::Scratch;

    #[test]
    fn searches_have_a_rank_a_count_and_an_end() {
        let searched = |line: &str| {
            let mut scratch = Scratch::default();
            let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
            search(&request).map_err(refused)
        };
        let wanted = |rank, count, compared_max| Search {
            rank,
            count,
            compared_max,
        };
        assert_eq!(searched("LPOS a b"), Ok((wanted(1, 1, 0), false)));
        assert_eq!(searched("LPOS a b rank -2 COUNT 0"), Ok((wanted(-2, 0, 0), true)));
        assert_eq!(
            searched("LPOS a b MAXLEN 9 COUNT 3 COUNT 4"),
            Ok((wanted(1, 4, 9), true))
        );
        let range = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
        for (options, error) in [
            ("RANK", SYNTAX),
            ("what 1", SYNTAX),
            ("RANK x", NOT_AN_INTEGER),
            ("RANK -9223372036854775808", range),
            ("COUNT -1", "ERR COUNT can't be negative"),
            ("COUNT x", "ERR COUNT can't be negative"),
            ("MAXLEN -1", "ERR MAXLEN can't be negative"),
        ] {
            assert_eq!(
                searched(&format!("LPOS a b {options}")),
                Err(error.to_owned()),
                "{options}"
            );
        }
        let zero = searched("LPOS a b RANK 0").expect_err("there is no such rank");
        assert!(
            zero.starts_with("ERR RANK can't be zero: use 1 to start from"),
            "{zero}"
        );
    }

    #[test]
    fn a_count_is_given_once() {
        let counted = |line: &str| {
            let mut scratch = Scratch::default();
            let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
            most(&request, 4).map_err(refused)
        };
        assert_eq!(counted("LMPOP 1 a LEFT"), Ok(1));
        assert_eq!(counted("LMPOP 1 a LEFT count 7"), Ok(7));
        for (options, error) in [
            ("COUNT", SYNTAX),
            ("what 1", SYNTAX),
            ("COUNT 0", "ERR count should be greater than 0"),
            ("COUNT x", "ERR count should be greater than 0"),
            ("COUNT x COUNT 1", "ERR count should be greater than 0"),
            ("COUNT 1 COUNT 1", SYNTAX),
        ] {
            assert_eq!(
                counted(&format!("LMPOP 1 a LEFT {options}")),
                Err(error.to_owned()),
                "{options}"
            );
        }
    }
}
