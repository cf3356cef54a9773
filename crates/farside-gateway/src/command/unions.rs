//! What is made of several sorted sets, of which some may be sets: ZUNION, ZINTER, ZDIFF, ZINTERCARD, and what stores them.
//!
//! On the path: all keys are read at one instant, and what is made of them goes into the reply, or under another key.
//! Arguments are checked in the order of Redis 7.2, which looks at the types of the values before it looks at the options.

use farside_kv::Transaction;
use farside_value::packed::algebra::{self, Aggregate, Operation};
use farside_value::packed::sorted;
use farside_value::{Edit, parse_score};

use super::sorted_sets::{SORTED_SET, members};
use super::values::{at_least, integer, together};
use super::{Call, Handled, Refusal, SYNTAX};
use crate::reply::Reply;
use crate::request::Request;

/// What becomes of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// It is replied.
    Reply,
    /// Its members are counted.
    Count,
    /// It is stored under the key that is argument 1.
    Store,
}

/// What may stand behind the keys.
#[derive(Clone, PartialEq, Debug, Default)]
struct Options {
    /// Those of the sources; none: all are 1.
    weights: Vec<f64>,
    aggregate: Aggregate,
    has_scores: bool,
    /// How many members are counted; 0: all.
    limit: u64,
}

impl Options {
    /// Reads what stands from argument `index` on, behind so many keys.
    fn parse(
        request: &Request<'_>,
        mut index: usize,
        keys: usize,
        operation: Operation,
        usage: Use,
    ) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let is_weighted = operation != Operation::Difference && usage != Use::Count;
        while index < request.len() {
            let further = request.len() - index - 1;
            if is_weighted && further >= keys && request.arg_is(index, "weights") {
                options.weights.clear();
                for weight in request.args(index + 1).take(keys) {
                    options
                        .weights
                        .push(parse_score(weight).ok_or("ERR weight value is not a float")?);
                }
                index += 1 + keys;
            } else if is_weighted && further >= 1 && request.arg_is(index, "aggregate") {
                options.aggregate = aggregate(request, index + 1)?;
                index += 2;
            } else if usage == Use::Reply && request.arg_is(index, "withscores") {
                options.has_scores = true;
                index += 1;
            } else if usage == Use::Count && further >= 1 && request.arg_is(index, "limit") {
                let limit = at_least(0, request.arg(index + 1), "ERR LIMIT can't be negative")?;
                options.limit = limit.unsigned_abs();
                index += 2;
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(options)
    }
}

fn aggregate(request: &Request<'_>, at: usize) -> Result<Aggregate, Refusal> {
    if request.arg_is(at, "sum") {
        Ok(Aggregate::Sum)
    } else if request.arg_is(at, "min") {
        Ok(Aggregate::Min)
    } else if request.arg_is(at, "max") {
        Ok(Aggregate::Max)
    } else {
        Err(SYNTAX.into())
    }
}

/// Reads the sources and makes something of them. `name` is that of the command.
async fn combine(call: &mut Call<'_>, name: &str, operation: Operation, usage: Use) -> Handled {
    let request = call.request;
    // Where the number of keys stands.
    let at = if usage == Use::Store { 2 } else { 1 };
    let count = integer(request.arg(at))?;
    if count < 1 {
        return Err(format!("ERR at least 1 input key is needed for '{name}' command").into());
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > request.len() - at - 1 {
        return Err(SYNTAX.into());
    }
    let options = Options::parse(request, at + 1 + count, count, operation, usage);
    let mut keys: Vec<&[u8]> = request.args(at + 1).take(count).collect();
    if usage == Use::Store {
        keys.push(request.arg(1));
    }
    let options = match options {
        Ok(options) => options,
        Err(refusal) => {
            // A value that is no set is refused before.
            let body = &mut |transaction: &mut Transaction, _: &mut Reply| {
                Ok(transaction.sources(&keys[..count]).map(drop)?)
            };
            together(call, &keys, body).await?;
            return Err(refusal);
        }
    };
    let body = &mut |transaction: &mut Transaction, reply: &mut Reply| {
        let sources = transaction.sources(&keys[..count])?;
        if usage == Use::Count {
            reply.count(algebra::intersection_count(&sources, options.limit)?);
            return Ok(());
        }
        let entries = algebra::entries(operation, options.aggregate, &sources, &options.weights)?;
        if usage == Use::Reply {
            members(reply, &entries, options.has_scores);
            return Ok(());
        }
        reply.count(entries.len() as u64);
        let edit = sorted::build(entries);
        store(transaction, keys[count], edit)?;
        Ok(())
    };
    together(call, &keys, body).await
}

/// Puts a sorted set in place of what a key has; nothing is made if it is empty.
pub(super) fn store(transaction: &mut Transaction, key: &[u8], edit: Edit) -> Handled {
    // A key that is not there is not made in order to be deleted.
    if edit != Edit::Delete || transaction.expiry_ms(key)?.is_some() {
        transaction.replace(key, SORTED_SET, edit)?;
    }
    Ok(())
}

pub(crate) async fn zunion(call: &mut Call<'_>) -> Handled {
    combine(call, "zunion", Operation::Union, Use::Reply).await
}

pub(crate) async fn zinter(call: &mut Call<'_>) -> Handled {
    combine(call, "zinter", Operation::Intersection, Use::Reply).await
}

pub(crate) async fn zdiff(call: &mut Call<'_>) -> Handled {
    combine(call, "zdiff", Operation::Difference, Use::Reply).await
}

pub(crate) async fn zintercard(call: &mut Call<'_>) -> Handled {
    combine(call, "zintercard", Operation::Intersection, Use::Count).await
}

pub(crate) async fn zunionstore(call: &mut Call<'_>) -> Handled {
    combine(call, "zunionstore", Operation::Union, Use::Store).await
}

pub(crate) async fn zinterstore(call: &mut Call<'_>) -> Handled {
    combine(call, "zinterstore", Operation::Intersection, Use::Store).await
}

pub(crate) async fn zdiffstore(call: &mut Call<'_>) -> Handled {
    combine(call, "zdiffstore", Operation::Difference, Use::Store).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::refused;
    use crate::request::Scratch;

    fn parsed(line: &str, keys: usize, operation: Operation, usage: Use) -> Result<Options, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        Options::parse(&request, 2 + keys, keys, operation, usage).map_err(refused)
    }

    #[test]
    fn the_last_of_equal_options_counts() {
        let options = parsed(
            "ZUNION 2 a b WEIGHTS 1 2 aggregate min WITHSCORES weights 0x10 -inf AGGREGATE Max",
            2,
            Operation::Union,
            Use::Reply,
        );
        let expected = Options {
            weights: vec![16.0, f64::NEG_INFINITY],
            aggregate: Aggregate::Max,
            has_scores: true,
            limit: 0,
        };
        assert_eq!(options, Ok(expected));
        let options = parsed("ZINTERCARD 1 a LIMIT 1 LIMIT 7", 1, Operation::Intersection, Use::Count);
        assert_eq!(options.map(|options| options.limit), Ok(7));
        let options = parsed("ZINTER 1 a", 1, Operation::Intersection, Use::Reply);
        assert_eq!(options, Ok(Options::default()));
    }

    #[test]
    fn each_command_has_its_own_options() {
        use Operation::{Difference, Intersection, Union};
        for (options, operation, usage, error) in [
            ("WEIGHTS 1", Union, Use::Reply, SYNTAX),
            ("WEIGHTS 1 x", Union, Use::Reply, "ERR weight value is not a float"),
            (
                "WEIGHTS 1 nan what",
                Union,
                Use::Store,
                "ERR weight value is not a float",
            ),
            ("WEIGHTS 1 1", Difference, Use::Reply, SYNTAX),
            ("WEIGHTS 1 1", Intersection, Use::Count, SYNTAX),
            ("AGGREGATE", Union, Use::Store, SYNTAX),
            ("AGGREGATE avg", Union, Use::Store, SYNTAX),
            ("AGGREGATE sum", Difference, Use::Store, SYNTAX),
            ("WITHSCORES", Union, Use::Store, SYNTAX),
            ("WITHSCORES", Intersection, Use::Count, SYNTAX),
            ("LIMIT 1", Intersection, Use::Reply, SYNTAX),
            ("LIMIT", Intersection, Use::Count, SYNTAX),
            ("LIMIT -1", Intersection, Use::Count, "ERR LIMIT can't be negative"),
            ("LIMIT x", Intersection, Use::Count, "ERR LIMIT can't be negative"),
        ] {
            let line = format!("COMMAND 2 a b {options}");
            assert_eq!(
                parsed(&line, 2, operation, usage),
                Err(error.to_owned()),
                "{options} {operation:?} {usage:?}"
            );
        }
    }
}
