//! Takes GETs, or SETs without options, that stand one behind the other in a burst all at once.
//!
//! On the path: they are executed together, and nobody looks at them once more. What is not exactly one of them, as clients
//! send it, is left to the guard.

use arrayvec::ArrayVec;
use farside_kv::KEYS_AT_ONCE;

use crate::guard::{self, BULK_BYTES_MAX, ProtocolError};

/// How a GET, and a SET without options, begin.
const GET_HEAD: &[u8; 8] = b"*2\r\n$3\r\n";
const SET_HEAD: &[u8; 8] = b"*3\r\n$3\r\n";
/// Bytes of the head and the name with its line's end.
const NAMED_BYTES: usize = 8 + 5;

/// What several commands are about, as many as the store wants to hear of at once.
pub(crate) type Several<T> = ArrayVec<T, KEYS_AT_ONCE>;

/// A key and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// The keys and values of the SETs that stand whole at the start of the input, if there are two at least, and how many bytes
/// they take.
#[inline]
pub(crate) fn sets(input: &[u8]) -> Option<(Several<Pair<'_>>, usize)> {
    several(input, set)
}

/// The keys of the GETs, likewise.
#[inline]
pub(crate) fn gets(input: &[u8]) -> Option<(Several<&[u8]>, usize)> {
    several(input, get)
}

#[inline(always)]
fn several<'a, T>(input: &'a [u8], command: impl Fn(&'a [u8]) -> Option<(T, usize)>) -> Option<(Several<T>, usize)> {
    let mut all = Several::new();
    let mut at = 0;
    while !all.is_full()
        && let Some((one, bytes)) = command(&input[at..])
    {
        all.push(one);
        at += bytes;
    }
    (all.len() > 1).then_some((all, at))
}

/// The key of the GET at the start of the input, and how many bytes the command takes.
#[inline]
fn get(input: &[u8]) -> Option<(&[u8], usize)> {
    starts_with(input, GET_HEAD, *b"get").then(|| bulk(input, NAMED_BYTES))?
}

/// Key and value of the SET at the start of the input, and how many bytes the command takes.
#[inline]
fn set(input: &[u8]) -> Option<(Pair<'_>, usize)> {
    if !starts_with(input, SET_HEAD, *b"set") {
        return None;
    }
    let (key, at) = bulk(input, NAMED_BYTES)?;
    let (value, at) = bulk(input, at)?;
    Some(((key, value), at))
}

/// Whether a command begins so, its name in any case.
#[inline]
fn starts_with(input: &[u8], head: &[u8; 8], name: [u8; 3]) -> bool {
    let Some(start) = input.first_chunk::<NAMED_BYTES>() else {
        return false;
    };
    let lower = [start[8], start[9], start[10]].map(|byte| byte.to_ascii_lowercase());
    start[..8] == head[..] && lower == name && start[11..] == *b"\r\n"
}

/// The string at `at`, if it may be a key or a value, and where what follows it starts.
#[inline(always)]
fn bulk(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    if *input.get(at)? != b'$' {
        return None;
    }
    let (length, start) = guard::head(input, at, ProtocolError::LengthTooLong, ProtocolError::Length).ok()??;
    let length = usize::try_from(length).ok()?;
    if length > BULK_BYTES_MAX {
        return None;
    }
    let (end, next) = (start + length, start + length + 2);
    (next <= input.len() && input[end..next] == *b"\r\n").then(|| (&input[start..end], next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nxy\r\n";

    fn taken(input: &[u8]) -> [Option<(usize, usize)>; 2] {
        let gets = gets(input).map(|(keys, bytes)| (keys.len(), bytes));
        [gets, sets(input).map(|(items, bytes)| (items.len(), bytes))]
    }

    #[test]
    fn what_stands_one_behind_the_other_is_taken_together() {
        let lower_get = b"*2\r\n$3\r\ngEt\r\n$0\r\n\r\n";
        let lower_set = b"*3\r\n$3\r\nsEt\r\n$0\r\n\r\n$0\r\n\r\n";
        let all = [GET, lower_get, SET, lower_set, GET].concat();
        let both = GET.len() + lower_get.len();
        assert_eq!(taken(&all), [Some((2, both)), None]);
        let (items, bytes) = sets(&all[both..]).expect("there are two");
        assert_eq!(items[..], [(&b"a"[..], &b"xy"[..]), (b"", b"")]);
        assert_eq!(bytes, SET.len() + lower_set.len());
        for one in [GET, SET] {
            // Alone it goes the usual way, and so does what has not arrived.
            assert_eq!(taken(one), [None, None]);
            assert_eq!(taken(&one.repeat(2)[..2 * one.len() - 1]), [None, None]);
            let many = taken(&one.repeat(100)).into_iter().flatten().next();
            assert_eq!(many, Some((KEYS_AT_ONCE, KEYS_AT_ONCE * one.len())));
        }
    }

    #[test]
    fn what_is_spelt_otherwise_is_left_to_the_guard() {
        let too_long = format!("${}\r\n", BULK_BYTES_MAX + 1);
        for wrong in [
            "$1\r\nabc",
            "$01\r\na\r\n",
            "$+1\r\na\r\n",
            "$-1\r\n",
            ":1\r\na\r\n",
            "$1\na\r\n",
            "$1\r\na\r",
            "$9223372036854775807\r\na\r\n",
            "$18446744073709551615\r\na\r\n",
            too_long.as_str(),
        ] {
            let get = [GET, &GET[..NAMED_BYTES], wrong.as_bytes()].concat();
            let set = [SET, &SET[..NAMED_BYTES], b"$1\r\na\r\n", wrong.as_bytes()].concat();
            assert_eq!([taken(&get), taken(&set)], [[None; 2]; 2], "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 0..=60_usize) {
            for two in [GET.repeat(2), SET.repeat(2)] {
                let input = [&two[..cut.min(two.len())], &bytes].concat();
                for (count, bytes) in taken(&input).into_iter().flatten() {
                    prop_assert!(bytes <= input.len() && (2..=KEYS_AT_ONCE).contains(&count));
                }
            }
        }
    }
}
