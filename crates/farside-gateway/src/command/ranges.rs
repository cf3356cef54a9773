//! Ranges of sorted sets: ZRANGE and its like, ZCOUNT, ZREMRANGEBYSCORE and their like.
//!
//! Arguments are checked in the order of Redis 7.2.

use farside_kv::Transaction;
use farside_value::packed::sorted::{self, Direction, LexBound, Limit, Range, ScoreBound};

use super::sorted_sets::{SORTED_SET, members};
use super::unions::store;
use super::values::{change, integer, read, together};
use super::{Call, Handled, Refusal, SYNTAX};
use crate::reply::Reply;
use crate::request::Request;

/// By what a range is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Index,
    Score,
    Lex,
}

/// A range from argument `min` to argument `max`.
fn range<'a>(request: &Request<'a>, kind: Kind, min: usize, max: usize) -> Result<Range<'a>, Refusal> {
    let (min, max) = (request.arg(min), request.arg(max));
    Ok(match kind {
        Kind::Index => Range::Index {
            start: integer(min)?,
            stop: integer(max)?,
        },
        Kind::Score => {
            let bound = |text| ScoreBound::parse(text).ok_or("ERR min or max is not a float");
            Range::Score {
                min: bound(min)?,
                max: bound(max)?,
            }
        }
        Kind::Lex => {
            let bound = |text| LexBound::parse(text).ok_or("ERR min or max not valid string range item");
            Range::Lex {
                min: bound(min)?,
                max: bound(max)?,
            }
        }
    })
}

/// What a command of ranges is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Wanted<'a> {
    range: Range<'a>,
    direction: Direction,
    limit: Limit,
    has_scores: bool,
}

/// Reads arguments: the key is `key`, behind it are the bounds and then options. The name of the command may say what else is an
/// option.
fn wanted<'a>(
    request: &Request<'a>,
    key: usize,
    mut kind: Option<Kind>,
    mut direction: Option<Direction>,
) -> Result<Wanted<'a>, Refusal> {
    let is_stored = key == 2;
    let mut limit = Limit::NONE;
    let mut has_scores = false;
    let mut index = key + 3;
    while index < request.len() {
        if !is_stored && request.arg_is(index, "withscores") {
            has_scores = true;
        } else if request.arg_is(index, "limit") && index + 2 < request.len() {
            limit = Limit {
                offset: integer(request.arg(index + 1))?,
                count: integer(request.arg(index + 2))?,
            };
            index += 2;
        } else if direction.is_none() && request.arg_is(index, "rev") {
            direction = Some(Direction::Descending);
        } else if kind.is_none() && request.arg_is(index, "bylex") {
            kind = Some(Kind::Lex);
        } else if kind.is_none() && request.arg_is(index, "byscore") {
            kind = Some(Kind::Score);
        } else {
            return Err(SYNTAX.into());
        }
        index += 1;
    }
    let kind = kind.unwrap_or(Kind::Index);
    let direction = direction.unwrap_or(Direction::Ascending);
    if kind == Kind::Index && limit.count != Limit::NONE.count {
        let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(text.into());
    }
    if kind == Kind::Lex && has_scores {
        return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX".into());
    }
    let range = match (kind, direction) {
        // The upper bound stands first.
        (Kind::Score | Kind::Lex, Direction::Descending) => range(request, kind, key + 2, key + 1)?,
        _ => range(request, kind, key + 1, key + 2)?,
    };
    // What says nothing of a range of places.
    let limit = if kind == Kind::Index { Limit::NONE } else { limit };
    Ok(Wanted {
        range,
        direction,
        limit,
        has_scores,
    })
}

async fn show(call: &mut Call<'_>, kind: Option<Kind>, direction: Option<Direction>) -> Handled {
    let wanted = wanted(call.request, 1, kind, direction)?;
    let (value, reply, _) = read(call, SORTED_SET).await?;
    let found = sorted::range(value, &wanted.range, wanted.direction, wanted.limit)?;
    members(reply, &found, wanted.has_scores);
    Ok(())
}

pub(crate) async fn zrange(call: &mut Call<'_>) -> Handled {
    show(call, None, None).await
}

pub(crate) async fn zrevrange(call: &mut Call<'_>) -> Handled {
    show(call, Some(Kind::Index), Some(Direction::Descending)).await
}

pub(crate) async fn zrangebyscore(call: &mut Call<'_>) -> Handled {
    show(call, Some(Kind::Score), Some(Direction::Ascending)).await
}

pub(crate) async fn zrevrangebyscore(call: &mut Call<'_>) -> Handled {
    show(call, Some(Kind::Score), Some(Direction::Descending)).await
}

pub(crate) async fn zrangebylex(call: &mut Call<'_>) -> Handled {
    show(call, Some(Kind::Lex), Some(Direction::Ascending)).await
}

pub(crate) async fn zrevrangebylex(call: &mut Call<'_>) -> Handled {
    show(call, Some(Kind::Lex), Some(Direction::Descending)).await
}

pub(crate) async fn zrangestore(call: &mut Call<'_>) -> Handled {
    let wanted = wanted(call.request, 2, None, None)?;
    let (to, from) = (call.request.arg(1), call.request.arg(2));
    let body = &mut |transaction: &mut Transaction, reply: &mut Reply| {
        let value = transaction.value(from, SORTED_SET)?;
        let found = sorted::range(value, &wanted.range, wanted.direction, wanted.limit)?;
        let count = found.len();
        let edit = sorted::build(found);
        reply.count(count as u64);
        store(transaction, to, edit)
    };
    together(call, &[to, from], body).await
}

async fn count(call: &mut Call<'_>, kind: Kind) -> Handled {
    let range = range(call.request, kind, 2, 3)?;
    let (value, reply, _) = read(call, SORTED_SET).await?;
    reply.count(sorted::count(value, &range)?.into());
    Ok(())
}

pub(crate) async fn zcount(call: &mut Call<'_>) -> Handled {
    count(call, Kind::Score).await
}

pub(crate) async fn zlexcount(call: &mut Call<'_>) -> Handled {
    count(call, Kind::Lex).await
}

async fn remove(call: &mut Call<'_>, kind: Kind) -> Handled {
    let range = range(call.request, kind, 2, 3)?;
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (edit, removed) = sorted::remove_range(old, &range)?;
        reply.count(removed.into());
        Ok(edit)
    };
    change(call, SORTED_SET, body).await
}

pub(crate) async fn zremrangebyrank(call: &mut Call<'_>) -> Handled {
    remove(call, Kind::Index).await
}

pub(crate) async fn zremrangebyscore(call: &mut Call<'_>) -> Handled {
    remove(call, Kind::Score).await
}

pub(crate) async fn zremrangebylex(call: &mut Call<'_>) -> Handled {
    remove(call, Kind::Lex).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOT_AN_INTEGER;
    use crate::command::tests::refused;
    use crate::request::Scratch;

    fn with_wanted<R>(
        line: &str,
        (key, kind, direction): (usize, Option<Kind>, Option<Direction>),
        look: impl FnOnce(Wanted<'_>) -> R,
    ) -> Result<R, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        wanted(&request, key, kind, direction).map(look).map_err(refused)
    }

    const ZRANGE: (usize, Option<Kind>, Option<Direction>) = (1, None, None);
    const ZRANGESTORE: (usize, Option<Kind>, Option<Direction>) = (2, None, None);
    const ZREVRANGEBYSCORE: (usize, Option<Kind>, Option<Direction>) =
        (1, Some(Kind::Score), Some(Direction::Descending));

    #[test]
    fn the_upper_bound_of_a_reversed_range_stands_first() {
        let bound = |score, is_exclusive| ScoreBound { score, is_exclusive };
        for (line, command) in [
            ("ZRANGE a (5 2 BYSCORE REV LIMIT 1 -7 WITHSCORES", ZRANGE),
            ("ZREVRANGEBYSCORE a (5 2 withscores limit 1 -7", ZREVRANGEBYSCORE),
        ] {
            let expected = Wanted {
                range: Range::Score {
                    min: bound(2.0, false),
                    max: bound(5.0, true),
                },
                direction: Direction::Descending,
                limit: Limit { offset: 1, count: -7 },
                has_scores: true,
            };
            assert_eq!(
                with_wanted(line, command, |wanted| wanted == expected),
                Ok(true),
                "{line}"
            );
        }
        let index = with_wanted("ZRANGE a 1 -2 REV", ZRANGE, |wanted| {
            wanted.range == Range::Index { start: 1, stop: -2 } && wanted.direction == Direction::Descending
        });
        assert_eq!(index, Ok(true));
        let lex = with_wanted("ZRANGESTORE a b [x + BYLEX LIMIT 0 1", ZRANGESTORE, |wanted| {
            let (min, max) = (LexBound::Inclusive(b"x"), LexBound::Highest);
            wanted.range == Range::Lex { min, max } && wanted.limit == Limit { offset: 0, count: 1 }
        });
        assert_eq!(lex, Ok(true));
        // A limit that is none is none of places either.
        let all = with_wanted("ZRANGE a 0 1 LIMIT 5 -1", ZRANGE, |wanted| wanted.limit);
        assert_eq!(all, Ok(Limit::NONE));
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let limit = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        let scores = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
        for (line, command, error) in [
            ("ZRANGE a 0 1 LIMIT 0 1", ZRANGE, limit),
            ("ZRANGE a x y LIMIT 0 1", ZRANGE, limit),
            ("ZRANGE a x y BYLEX WITHSCORES", ZRANGE, scores),
            ("ZRANGE a x y", ZRANGE, NOT_AN_INTEGER),
            ("ZRANGE a x y BYSCORE", ZRANGE, "ERR min or max is not a float"),
            (
                "ZRANGE a x y BYLEX",
                ZRANGE,
                "ERR min or max not valid string range item",
            ),
            ("ZRANGE a 0 1 LIMIT 0 x", ZRANGE, NOT_AN_INTEGER),
            ("ZRANGE a 0 1 LIMIT 0", ZRANGE, SYNTAX),
            ("ZRANGE a 0 1 REV REV", ZRANGE, SYNTAX),
            ("ZRANGE a 0 1 BYSCORE BYLEX", ZRANGE, SYNTAX),
            ("ZRANGE a 0 1 what", ZRANGE, SYNTAX),
            ("ZRANGESTORE a b 0 1 WITHSCORES", ZRANGESTORE, SYNTAX),
            ("ZREVRANGEBYSCORE a 0 1 REV", ZREVRANGEBYSCORE, SYNTAX),
            ("ZREVRANGEBYSCORE a 0 1 BYSCORE", ZREVRANGEBYSCORE, SYNTAX),
        ] {
            assert_eq!(with_wanted(line, command, |_| ()), Err(error.to_owned()), "{line}");
        }
    }
}
