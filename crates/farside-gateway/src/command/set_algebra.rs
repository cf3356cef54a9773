//! What is made of several sets: SINTER, SINTERCARD, SUNION, SDIFF, SINTERSTORE, SUNIONSTORE, SDIFFSTORE.
//!
//! On the path: all sets are seen at one instant, that of the transaction.

use farside_kv::{KvError, Tag, Transaction};
use farside_value::packed::algebra::{self, Operation, Source};
use farside_value::packed::set;

use super::values::{at_least, element, together};
use super::{Call, Handled, Refusal, SYNTAX};
use crate::request::Request;

pub(crate) async fn sinter(call: &mut Call<'_>) -> Handled {
    show(call, Operation::Intersection).await
}

pub(crate) async fn sunion(call: &mut Call<'_>) -> Handled {
    show(call, Operation::Union).await
}

pub(crate) async fn sdiff(call: &mut Call<'_>) -> Handled {
    show(call, Operation::Difference).await
}

pub(crate) async fn sinterstore(call: &mut Call<'_>) -> Handled {
    store(call, Operation::Intersection).await
}

pub(crate) async fn sunionstore(call: &mut Call<'_>) -> Handled {
    store(call, Operation::Union).await
}

pub(crate) async fn sdiffstore(call: &mut Call<'_>) -> Handled {
    store(call, Operation::Difference).await
}

fn sets<'t>(transaction: &'t mut Transaction, keys: &[&[u8]]) -> Result<Vec<Source<'t>>, KvError> {
    let values = transaction.values(keys, Tag::Set)?.into_iter();
    Ok(values.map(|value| value.map_or(Source::Absent, Source::Set)).collect())
}

/// Replies with the members.
async fn show(call: &mut Call<'_>, operation: Operation) -> Handled {
    let keys: Vec<&[u8]> = call.request.args(1).collect();
    together(call, &keys, &mut |transaction, reply| {
        let sources = sets(transaction, &keys)?;
        let members = algebra::members(operation, &sources)?;
        reply.set(members.len());
        members.iter().for_each(|member| element(reply, member));
        Ok(())
    })
    .await
}

/// Puts them in place of whatever the first key has.
async fn store(call: &mut Call<'_>, operation: Operation) -> Handled {
    let keys: Vec<&[u8]> = call.request.args(1).collect();
    together(call, &keys, &mut |transaction, reply| {
        let sources = sets(transaction, &keys[1..])?;
        let members = algebra::members(operation, &sources)?;
        let count = members.len() as u64;
        let edit = set::build(&members);
        transaction.replace(keys[0], Tag::Set, edit)?;
        reply.count(count);
        Ok(())
    })
    .await
}

pub(crate) async fn sintercard(call: &mut Call<'_>) -> Handled {
    let (keys, limit) = keys_and_limit(call.request)?;
    together(call, &keys, &mut |transaction, reply| {
        let sources = sets(transaction, &keys)?;
        reply.count(algebra::intersection_count(&sources, limit)?);
        Ok(())
    })
    .await
}

/// The keys, behind their number, and how many members are enough; 0: all.
fn keys_and_limit<'a>(request: &Request<'a>) -> Result<(Vec<&'a [u8]>, u64), Refusal> {
    let count = at_least(1, request.arg(1), "ERR numkeys should be greater than 0")?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > request.len() - 2 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let mut limit = 0;
    for index in (2 + count..request.len()).step_by(2) {
        if !request.arg_is(index, "limit") || index + 1 == request.len() {
            return Err(SYNTAX.into());
        }
        limit = at_least(0, request.arg(index + 1), "ERR LIMIT can't be negative")?.unsigned_abs();
    }
    Ok((request.args(2).take(count).collect(), limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    fn parsed(line: &str) -> Result<(usize, u64), String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        match keys_and_limit(&request) {
            Ok((keys, limit)) => Ok((keys.len(), limit)),
            Err(Refusal::Text(text)) => Err(text.into_owned()),
            Err(other) => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_limit_stands_behind_as_many_keys_as_announced() {
        assert_eq!(parsed("SINTERCARD 2 a b"), Ok((2, 0)));
        assert_eq!(parsed("SINTERCARD 1 limit LIMIT 7"), Ok((1, 7)));
        assert_eq!(parsed("SINTERCARD 1 a LIMIT 7 limit 3"), Ok((1, 3)));
        for (line, error) in [
            ("SINTERCARD x a", "ERR numkeys should be greater than 0"),
            ("SINTERCARD 0 a", "ERR numkeys should be greater than 0"),
            (
                "SINTERCARD 2 a",
                "ERR Number of keys can't be greater than number of args",
            ),
            (
                "SINTERCARD 9223372036854775807 a",
                "ERR Number of keys can't be greater than number of args",
            ),
            ("SINTERCARD 1 a b", SYNTAX),
            ("SINTERCARD 1 a LIMIT", SYNTAX),
            ("SINTERCARD 1 a LIMIT 1 b", SYNTAX),
            ("SINTERCARD 1 a LIMIT -1", "ERR LIMIT can't be negative"),
            ("SINTERCARD 1 a LIMIT x", "ERR LIMIT can't be negative"),
        ] {
            assert_eq!(parsed(line), Err(error.to_owned()), "{line}");
        }
    }
}
