//! Sorted sets: members and their scores. `ranges.rs` has what looks at several of them in order, `unions.rs` what is made of
//! several sorted sets.
//!
//! Arguments are checked in the order of Redis 7.2.

use farside_kv::Tag;
use farside_value::packed::sorted::{self, AddOptions, Comparison, Direction, Entry, Existence};
use farside_value::{Draw, format, parse_score};

use super::element_scan::{self, Wanted};
use super::lists::{most, numbered_keys, pop_first};
use super::values::{change, count, element, read, symmetric};
use super::{Call, Handled, Refusal, SYNTAX, draws, wrong_arity};
use crate::reply::{Protocol, Reply};
use crate::request::Request;

pub(super) const SORTED_SET: Tag = Tag::SortedSet;
const NOT_A_FLOAT: &str = "ERR value is not a valid float";

/// Appends members with their scores: in RESP3 as pairs, in RESP2 one behind the other.
pub(super) fn entries(reply: &mut Reply, entries: &[Entry<'_>]) {
    let is_paired = reply.protocol() == Protocol::Resp3;
    reply.array(if is_paired { entries.len() } else { 2 * entries.len() });
    entries.iter().for_each(|entry| pair(reply, *entry, is_paired));
}

/// Appends members with their scores, or without.
pub(super) fn members(reply: &mut Reply, found: &[Entry<'_>], has_scores: bool) {
    if has_scores {
        return entries(reply, found);
    }
    reply.array(found.len());
    found.iter().for_each(|(member, _)| element(reply, member));
}

fn pair(reply: &mut Reply, (member, score): Entry<'_>, is_array: bool) {
    if is_array {
        reply.array(2);
    }
    element(reply, &member);
    reply.double(score);
}

fn double_or_null(reply: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

pub(crate) async fn zadd(call: &mut Call<'_>) -> Handled {
    add(call, false).await
}

/// As in Redis it is ZADD INCR, which also takes options in place of an increment.
pub(crate) async fn zincrby(call: &mut Call<'_>) -> Handled {
    add(call, true).await
}

/// What ZADD and ZINCRBY are asked for.
#[derive(PartialEq, Debug)]
struct Addition<'a> {
    entries: Vec<(f64, &'a [u8])>,
    options: AddOptions,
    /// Whether members count whose score has changed.
    counts_updated: bool,
}

impl<'a> Addition<'a> {
    fn parse(request: &Request<'a>, is_increment: bool) -> Result<Self, Refusal> {
        let (mut is_new, mut is_old, mut is_greater, mut is_less) = (false, false, false, false);
        let (mut is_increment, mut counts_updated) = (is_increment, false);
        let mut index = 2;
        loop {
            let option = if request.arg_is(index, "nx") {
                &mut is_new
            } else if request.arg_is(index, "xx") {
                &mut is_old
            } else if request.arg_is(index, "gt") {
                &mut is_greater
            } else if request.arg_is(index, "lt") {
                &mut is_less
            } else if request.arg_is(index, "ch") {
                &mut counts_updated
            } else if request.arg_is(index, "incr") {
                &mut is_increment
            } else {
                break;
            };
            *option = true;
            index += 1;
        }
        let count = request.len() - index;
        if count == 0 || count % 2 == 1 {
            return Err(SYNTAX.into());
        }
        let existence = match (is_new, is_old) {
            (true, true) => return Err("ERR XX and NX options at the same time are not compatible".into()),
            (true, false) => Existence::New,
            (false, true) => Existence::Old,
            (false, false) => Existence::Any,
        };
        let comparison = match (is_greater, is_less) {
            (false, false) => Comparison::Any,
            (true, false) if !is_new => Comparison::Greater,
            (false, true) if !is_new => Comparison::Less,
            _ => return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into()),
        };
        if is_increment && count > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        let mut entries = Vec::with_capacity(count / 2);
        for at in (index..request.len()).step_by(2) {
            let score = parse_score(request.arg(at)).ok_or(NOT_A_FLOAT)?;
            entries.push((score, request.arg(at + 1)));
        }
        let options = AddOptions {
            existence,
            comparison,
            is_increment,
        };
        Ok(Self {
            entries,
            options,
            counts_updated,
        })
    }
}

async fn add(call: &mut Call<'_>, is_increment: bool) -> Handled {
    let wanted = Addition::parse(call.request, is_increment)?;
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, done) = sorted::add(old, &wanted.entries, wanted.options)?;
        if wanted.options.is_increment {
            double_or_null(reply, done.score);
        } else {
            let updated = if wanted.counts_updated { done.updated } else { 0 };
            reply.count(u64::from(done.added) + u64::from(updated));
        }
        Ok(edit)
    };
    change(call, SORTED_SET, body).await
}

pub(crate) async fn zrem(call: &mut Call<'_>) -> Handled {
    let members: Vec<&[u8]> = call.request.args(2).collect();
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, removed) = sorted::remove(old, &members)?;
        reply.count(removed.into());
        Ok(edit)
    };
    change(call, SORTED_SET, body).await
}

pub(crate) async fn zcard(call: &mut Call<'_>) -> Handled {
    let (value, reply, _) = read(call, SORTED_SET).await?;
    reply.count(format::count(value)?.into());
    Ok(())
}

pub(crate) async fn zscore(call: &mut Call<'_>) -> Handled {
    let member = call.request.arg(2);
    let (value, reply, _) = read(call, SORTED_SET).await?;
    double_or_null(reply, sorted::score(value, member)?);
    Ok(())
}

pub(crate) async fn zmscore(call: &mut Call<'_>) -> Handled {
    let members: Vec<&[u8]> = call.request.args(2).collect();
    let (value, reply, _) = read(call, SORTED_SET).await?;
    let scores = sorted::scores(value, &members)?;
    reply.array(scores.len());
    scores.into_iter().for_each(|score| double_or_null(reply, score));
    Ok(())
}

pub(crate) async fn zrank(call: &mut Call<'_>) -> Handled {
    rank(call, "zrank", Direction::Ascending).await
}

pub(crate) async fn zrevrank(call: &mut Call<'_>) -> Handled {
    rank(call, "zrevrank", Direction::Descending).await
}

async fn rank(call: &mut Call<'_>, name: &str, direction: Direction) -> Handled {
    let request = call.request;
    let has_score = match request.len() {
        3 => false,
        4 if request.arg_is(3, "withscore") => true,
        4 => return Err(SYNTAX.into()),
        _ => return Err(wrong_arity(name).into()),
    };
    let (value, reply, _) = read(call, SORTED_SET).await?;
    match sorted::rank(value, request.arg(2), direction)? {
        Some((rank, score)) if has_score => {
            reply.array(2);
            reply.integer(rank.into());
            reply.double(score);
        }
        Some((rank, _)) => reply.integer(rank.into()),
        None if has_score => reply.null_array(),
        None => reply.null(),
    }
    Ok(())
}

pub(crate) async fn zpopmin(call: &mut Call<'_>) -> Handled {
    pop(call, Direction::Ascending).await
}

pub(crate) async fn zpopmax(call: &mut Call<'_>) -> Handled {
    pop(call, Direction::Descending).await
}

async fn pop(call: &mut Call<'_>, direction: Direction) -> Handled {
    let most = match call.request.len() {
        2 => None,
        3 => Some(count(call.request.arg(2))?),
        _ => return Err(SYNTAX.into()),
    };
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, popped) = sorted::pop(old, direction, most.unwrap_or(1))?;
        match (most, popped.first()) {
            // One that nobody has counted is not paired.
            (None, Some(&entry)) => {
                reply.array(2);
                pair(reply, entry, false);
            }
            _ => entries(reply, &popped),
        }
        Ok(edit)
    };
    change(call, SORTED_SET, body).await
}

pub(crate) async fn zmpop(call: &mut Call<'_>) -> Handled {
    let (keys, at) = numbered_keys(call.request, 1, "ERR numkeys should be greater than 0")?;
    let direction = if call.request.arg_is(at, "min") {
        Direction::Ascending
    } else if call.request.arg_is(at, "max") {
        Direction::Descending
    } else {
        return Err(SYNTAX.into());
    };
    let most = most(call.request, at + 1)?;
    pop_first(call, &keys, SORTED_SET, &mut |key, old, reply| {
        let (edit, popped) = sorted::pop(old, direction, most)?;
        if !popped.is_empty() {
            reply.array(2);
            reply.bulk(key);
            reply.array(popped.len());
            popped.iter().for_each(|entry| pair(reply, *entry, true));
        }
        Ok(edit)
    })
    .await
}

/// What ZRANDMEMBER draws, and whether with scores.
fn draw(request: &Request<'_>) -> Result<(i64, bool), Refusal> {
    let count = symmetric(request.arg(2))?;
    match request.len() {
        3 => Ok((count, false)),
        4 if request.arg_is(3, "withscores") => match count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
            true => Err("ERR value is out of range".into()),
            false => Ok((count, true)),
        },
        _ => Err(SYNTAX.into()),
    }
}

pub(crate) async fn zrandmember(call: &mut Call<'_>) -> Handled {
    if call.request.len() > 2 {
        let (count, has_scores) = draw(call.request)?;
        let is_paired = has_scores && call.reply.protocol() == Protocol::Resp3;
        let width = if has_scores && !is_paired { 2 } else { 1 };
        let show: draws::Show<'_> = &mut |value, draw, random, reply| {
            sorted::random(value, draw, random, &mut |member, score| match has_scores {
                true => pair(reply, (member, score), is_paired),
                false => element(reply, &member),
            })?;
            Ok(())
        };
        return draws::draw(call, (SORTED_SET, count), &format::count, width, show).await;
    }
    let (value, reply, context) = read(call, SORTED_SET).await?;
    if value.is_none() {
        reply.null();
        return Ok(());
    }
    let random = &mut |bound| context.store.endpoint().random_below(bound);
    sorted::random(value, Draw::Repeated(1), random, &mut |member, _| {
        element(reply, &member);
    })?;
    Ok(())
}

pub(crate) async fn zscan(call: &mut Call<'_>) -> Handled {
    let cursor = element_scan::cursor(call.request)?;
    let wanted = Wanted::parse(call.request);
    let (value, reply, context) = read(call, SORTED_SET).await?;
    let mut found = Vec::new();
    let mut next = 0;
    // As in Redis, nobody looks at the options if the key is not there.
    if value.is_some() {
        let wanted = wanted?;
        next = sorted::scan(value, cursor, context.store.seed(), &mut |member, score| {
            if wanted.has(&member) {
                found.push((member, score));
            }
        })?;
    }
    element_scan::head(reply, next, 2 * found.len());
    for (member, score) in found {
        element(reply, &member);
        reply.double_bulk(score);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOT_AN_INTEGER;
    use crate::command::tests::refused;
    use crate::request::Scratch;

    fn with_request<R>(line: &str, look: impl FnOnce(&Request<'_>) -> Result<R, Refusal>) -> Result<R, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        look(&request).map_err(refused)
    }

    #[test]
    fn options_of_zadd_combine() {
        let options = |line: &str| {
            with_request(line, |request| {
                let wanted = Addition::parse(request, false)?;
                Ok((wanted.options, wanted.counts_updated, wanted.entries.len()))
            })
        };
        let plain = AddOptions::default();
        assert_eq!(options("ZADD a 1 b"), Ok((plain, false, 1)));
        // Behind a score, everything is a member.
        assert_eq!(options("ZADD a 1 nx 2 ch"), Ok((plain, false, 2)));
        let greater = AddOptions {
            existence: Existence::Old,
            comparison: Comparison::Greater,
            is_increment: true,
        };
        assert_eq!(options("ZADD a ch xx GT incr xx 1 b"), Ok((greater, true, 1)));
    }

    #[test]
    fn options_of_zadd_are_refused_in_their_order() {
        let exclusive = "ERR GT, LT, and/or NX options at the same time are not compatible";
        for (line, error) in [
            ("ZADD a nx xx 1", SYNTAX),
            ("ZADD a nx xx", SYNTAX),
            ("ZADD a 1 b 2", SYNTAX),
            (
                "ZADD a nx xx gt x b",
                "ERR XX and NX options at the same time are not compatible",
            ),
            ("ZADD a nx gt incr x b 1 c", exclusive),
            ("ZADD a nx lt 1 b", exclusive),
            ("ZADD a gt lt 1 b", exclusive),
            (
                "ZADD a incr x b 1 c",
                "ERR INCR option supports a single increment-element pair",
            ),
            ("ZADD a 1 b x c", NOT_A_FLOAT),
            ("ZADD a nan b", NOT_A_FLOAT),
        ] {
            let parsed = with_request(line, |request| Addition::parse(request, false).map(drop));
            assert_eq!(parsed, Err(error.to_owned()), "{line}");
        }
    }

    #[test]
    fn draws_may_have_scores() {
        let drawn = |line: &str| with_request(line, draw);
        assert_eq!(drawn("ZRANDMEMBER a -9223372036854775807"), Ok((-i64::MAX, false)));
        assert_eq!(
            drawn("ZRANDMEMBER a 4611686018427387903 withscores"),
            Ok((i64::MAX / 2, true))
        );
        let range = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
        for (line, error) in [
            ("ZRANDMEMBER a x what", NOT_AN_INTEGER),
            ("ZRANDMEMBER a -9223372036854775808", range),
            ("ZRANDMEMBER a 1 what", SYNTAX),
            ("ZRANDMEMBER a 1 withscores more", SYNTAX),
            (
                "ZRANDMEMBER a 4611686018427387904 withscores",
                "ERR value is out of range",
            ),
            (
                "ZRANDMEMBER a -4611686018427387904 withscores",
                "ERR value is out of range",
            ),
        ] {
            assert_eq!(drawn(line), Err(error.to_owned()), "{line}");
        }
    }
}
