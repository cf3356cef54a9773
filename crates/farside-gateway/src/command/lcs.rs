//! LCS: what two strings have in common.

use farside_kv::KvError;
use farside_value::integer;

use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::lcs::common;

/// The most pairs of prefixes of both strings, each with a length of four bytes, that may be compared: Redis has a limit for
/// the memory of its table.
const PAIRS_MAX: usize = (256 << 20) / 4;
const NO_STRINGS: &str = "ERR The specified keys must contain string values";
const TOO_MANY_PAIRS: &str = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";

pub(crate) async fn lcs(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let keys: Vec<&[u8]> = request.args(1).take(2).collect();
    let read = call.keys.together(&keys, |transaction| {
        let first = transaction.get(keys[0])?.map(<[u8]>::to_vec);
        Ok([first, transaction.get(keys[1])?.map(<[u8]>::to_vec)])
    });
    // Redis looks at the types before it looks at the options.
    let values = read.await.map_err(|error| match error {
        KvError::WrongType { .. } => NO_STRINGS.into(),
        error => Refusal::from(error),
    })?;
    let (mut wants_length, mut wants_pieces, mut with_lengths, mut shortest) = (false, false, false, 0);
    let mut index = 3;
    while index < request.len() {
        if request.arg_is(index, "idx") {
            wants_pieces = true;
        } else if request.arg_is(index, "len") {
            wants_length = true;
        } else if request.arg_is(index, "withmatchlen") {
            with_lengths = true;
        } else if request.arg_is(index, "minmatchlen") && index + 1 < request.len() {
            index += 1;
            shortest = integer::parse(request.arg(index)).ok_or(NOT_AN_INTEGER)?;
        } else {
            return Err(SYNTAX.into());
        }
        index += 1;
    }
    if wants_pieces && wants_length {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    values
        .iter()
        .for_each(|value| call.context.count_lookup(value.is_some()));
    let [first, second] = values.map(Option::unwrap_or_default);
    if (first.len() + 1) * (second.len() + 1) > PAIRS_MAX {
        return Err(TOO_MANY_PAIRS.into());
    }
    let found = common(&first, &second);
    let reply = &mut *call.reply;
    if wants_length {
        reply.count(found.bytes.len() as u64);
    } else if wants_pieces {
        let long_enough = |length: usize| shortest <= 0 || length as u64 >= shortest as u64;
        let pieces = found.pieces.iter().filter(|piece| long_enough(piece.first.len()));
        reply.map(2);
        reply.bulk(b"matches");
        reply.array(pieces.clone().count());
        for piece in pieces {
            reply.array(2 + usize::from(with_lengths));
            for range in [&piece.first, &piece.second] {
                reply.array(2);
                reply.count(range.start as u64);
                reply.count(range.end as u64 - 1);
            }
            if with_lengths {
                reply.count(piece.first.len() as u64);
            }
        }
        reply.bulk(b"len");
        reply.count(found.bytes.len() as u64);
    } else {
        reply.bulk(&found.bytes);
    }
    Ok(())
}
