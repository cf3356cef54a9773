//! Looks ahead in a burst: which keys will its SETs change?
//!
//! On the path: before the first of several SETs is executed, the store is told about all of their
//! keys. It is a hint: what looks like a SET here is checked, decoded and executed as if nobody had
//! looked.

use arrayvec::ArrayVec;
use farside_kv::KEYS_AT_ONCE;

use crate::guard::{self, ProtocolError};

/// How a SET without options begins, as clients send it.
const SET_HEAD: &[u8] = b"*3\r\n$3\r\nSET\r\n";

/// The keys of the SETs that stand at the start of the input, as many as the store wants to hear of at
/// once, and how many bytes they take.
#[inline]
pub(crate) fn set_keys(input: &[u8]) -> (ArrayVec<&[u8], KEYS_AT_ONCE>, usize) {
    let mut keys = ArrayVec::new();
    let mut at = 0;
    while !keys.is_full()
        && let Some((key, bytes)) = set_key(&input[at..])
    {
        keys.push(key);
        at += bytes;
    }
    (keys, at)
}

/// The key of the SET at the start of the input, and how many bytes the command takes.
#[inline]
fn set_key(input: &[u8]) -> Option<(&[u8], usize)> {
    let head = input.get(..SET_HEAD.len())?;
    if !head.eq_ignore_ascii_case(SET_HEAD) {
        return None;
    }
    let (key, at) = bulk(input, SET_HEAD.len())?;
    let (_, at) = bulk(input, at)?;
    Some((key, at))
}

/// The string at `at`, and where what follows it starts.
#[inline]
fn bulk(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    if *input.get(at)? != b'$' {
        return None;
    }
    let (length, start) = guard::head(input, at, ProtocolError::LengthTooLong, ProtocolError::Length).ok()??;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    let next = end.checked_add(2)?;
    (next <= input.len()).then(|| (&input[start..end], next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(input: &[u8]) -> (Vec<&[u8]>, usize) {
        let (keys, bytes) = set_keys(input);
        (keys.into_iter().collect(), bytes)
    }

    #[test]
    fn sets_are_seen_up_to_what_is_none() {
        let one = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nxy\r\n";
        let two = b"*3\r\n$3\r\nset\r\n$0\r\n\r\n$0\r\n\r\n";
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        let input = [&one[..], two, get, one].concat();
        assert_eq!(keys(&input), (vec![&b"a"[..], b""], one.len() + two.len()));
        assert_eq!(keys(&input[..one.len() + 20]), (vec![&b"a"[..]], one.len()));
        assert_eq!(keys(&[&one[..]; 100].concat()).0.len(), KEYS_AT_ONCE);
        for wrong in [
            "*3\r\n$3\r\nSET\r\n",
            "*3\r\n$3\r\nSET\r\n:1\r\n",
            "*3\r\n$3\r\nSET\r\n$-1\r\n$1\r\na\r\n",
            "*3\r\n$3\r\nSET\r\n$9223372036854775807\r\n$1\r\n",
            "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$18446744073709551615\r\n",
        ] {
            assert_eq!(keys(wrong.as_bytes()), (vec![], 0), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 0..=27_usize) {
            let input = [&b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"[..cut], &bytes].concat();
            let (keys, bytes) = set_keys(&input);
            prop_assert!(bytes <= input.len() && keys.len() <= KEYS_AT_ONCE);
        }
    }
}
