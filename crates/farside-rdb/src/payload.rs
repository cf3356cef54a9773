//! What DUMP answers and RESTORE takes: one value, with a version and a checksum.

use farside_value::ValueError;
use farside_value::format::Tag;

use crate::value::put_value;
use crate::{CRC, RdbError, Reader, Record, VERSION, VERSION_MAX};

/// Bytes of version and checksum.
const TAIL_BYTES: usize = 10;

/// A payload cannot be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// It was changed, or comes from a later server.
    #[error("DUMP payload version or checksum are wrong")]
    Wrong,
    /// It is whole, and makes no sense.
    #[error("Bad data format")]
    Format,
    /// It is a stream or a value of a module.
    #[error("the payload is {kind}, which cannot be restored here")]
    Other {
        /// What it is, with its article.
        kind: &'static str,
    },
}

/// The payload of a value: a string, or the packed value of another type.
///
/// # Errors
/// If the value is damaged.
pub fn dump(tag: Tag, value: &[u8]) -> Result<Vec<u8>, ValueError> {
    let mut payload = Vec::with_capacity(1 + 9 + value.len() + TAIL_BYTES);
    put_value(&mut payload, (tag, value), |_| ())?;
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = CRC.checksum(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    Ok(payload)
}

/// The value of a payload, and what it is.
///
/// # Errors
/// See [`PayloadError`].
pub fn restore(payload: &[u8]) -> Result<(Tag, Vec<u8>), PayloadError> {
    let (contents, checksum) = payload.split_last_chunk().ok_or(PayloadError::Wrong)?;
    let (value, version) = contents.split_last_chunk().ok_or(PayloadError::Wrong)?;
    // A server that computes none writes 0.
    let checksum = u64::from_le_bytes(*checksum);
    let is_whole = checksum == 0 || checksum == CRC.checksum(contents);
    if !is_whole || u16::from_le_bytes(*version) > VERSION_MAX {
        return Err(PayloadError::Wrong);
    }
    let Some((&kind, value)) = value.split_first() else {
        return Err(PayloadError::Format);
    };
    // As if it stood in a file, under the empty key.
    let head: &[u8] = &[b'R', b'E', b'D', b'I', b'S', b'0', b'0', b'0', b'9', kind, 0];
    let file = std::io::Read::chain(head, value);
    let record = Reader::new(file).and_then(|mut reader| {
        let record = reader.next_record()?;
        let is_used = reader.position() == (head.len() + value.len()) as u64;
        is_used.then_some(record).ok_or(RdbError::Foreign)
    });
    match record {
        Ok(Some(Record::Value { tag, value, .. })) => Ok((tag, value)),
        Ok(Some(Record::Other { kind, .. })) => Err(PayloadError::Other { kind }),
        Ok(None) | Err(_) => Err(PayloadError::Format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use farside_value::Edit;
    use farside_value::packed::{hash, list, set, sorted};
    use proptest::prelude::*;

    type Stored = (Vec<u8>, (Tag, Vec<u8>), u64);

    fn file(items: &[Stored]) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.aux("made-by", "a test");
        writer.database(0);
        let mut bytes = Vec::new();
        for (key, (tag, value), expiry_ms) in items {
            writer.value(key, (*tag, value), *expiry_ms).expect("it is whole");
            bytes.extend(writer.take());
        }
        bytes.extend(writer.finish().0);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, RdbError> {
        let mut reader = Reader::new(bytes)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok(records)
    }

    fn strings() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            (-300_i64..300).prop_map(|number| number.to_string().into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..100),
            (0_usize..70_000).prop_map(|bytes| vec![b'x'; bytes]),
        ]
    }

    fn put((edit, _): (Edit, impl Sized)) -> Vec<u8> {
        match edit {
            Edit::Put(value) => value,
            other => panic!("elements make a value, not {other:?}"),
        }
    }

    /// Values of every type, of at least one element.
    fn values() -> impl Strategy<Value = (Tag, Vec<u8>)> {
        let elements = || proptest::collection::vec(strings(), 1..20);
        let scores = || proptest::collection::vec((strings(), any::<f64>()), 1..20);
        let fields = || proptest::collection::vec((strings(), strings(), prop_oneof![Just(0), 1..u64::MAX]), 1..20);
        prop_oneof![
            strings().prop_map(|value| (Tag::String, value)),
            elements().prop_map(|elements| {
                let elements: Vec<_> = elements.iter().map(Vec::as_slice).collect();
                (
                    Tag::List,
                    put(list::push(None, list::End::Tail, &elements).expect("a list")),
                )
            }),
            elements().prop_map(|members| {
                let members: Vec<_> = members.iter().map(Vec::as_slice).collect();
                (Tag::Set, put(set::add(None, &members).expect("a set")))
            }),
            scores().prop_map(|entries| {
                let entries = entries
                    .iter()
                    .map(|(member, score)| (if score.is_nan() { 0.0 } else { *score }, &member[..]));
                let entries: Vec<_> = entries.collect();
                let added = sorted::add(None, &entries, sorted::AddOptions::default());
                (Tag::SortedSet, put(added.expect("a sorted set")))
            }),
            fields().prop_map(|fields| {
                let fields: std::collections::BTreeMap<_, _> = fields
                    .into_iter()
                    .map(|(name, value, expiry_ms)| (name, (value, expiry_ms)))
                    .collect();
                let fields = fields
                    .iter()
                    .map(|(name, (value, expiry_ms))| (&name[..], &value[..], *expiry_ms));
                let edit = hash::build(&fields.collect::<Vec<_>>()).expect("names are different");
                (Tag::Hash, put((edit, ())))
            }),
        ]
    }

    fn items(count: core::ops::Range<usize>) -> impl Strategy<Value = Vec<Stored>> {
        proptest::collection::vec((strings(), values(), any::<u64>()), count)
    }

    proptest! {
        #[test]
        fn files_survive_writing(items in items(0..20)) {
            let found = read(&file(&items)).expect("a file");
            let wanted: Vec<_> = items
                .into_iter()
                .map(|(key, (tag, value), expiry_ms)| Record::Value { database: 0, key, tag, value, expiry_ms })
                .collect();
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn a_damaged_file_is_noticed(items in items(1..4), at: usize, flip in 1_u8..=255) {
            let mut bytes = file(&items);
            let end = bytes.len();
            bytes[at % end] ^= flip;
            prop_assert!(read(&bytes).is_err());
        }

        #[test]
        fn a_file_that_is_cut_off_is_noticed(items in items(1..4), at: usize) {
            let bytes = file(&items);
            prop_assert!(read(&bytes[..at % bytes.len()]).is_err());
        }

        #[test]
        fn payloads_survive((tag, value) in values()) {
            prop_assert_eq!(restore(&dump(tag, &value).expect("it is whole")), Ok((tag, value)));
        }

        #[test]
        fn no_payload_panics(mut payload in proptest::collection::vec(any::<u8>(), 0..100), kind in 0_u8..26) {
            prop_assume!(restore(&payload) == Err(PayloadError::Wrong));
            payload.insert(0, kind);
            payload.extend_from_slice(&9_u16.to_le_bytes());
            let checksum = CRC.checksum(&payload);
            payload.extend_from_slice(&checksum.to_le_bytes());
            let _ = restore(&payload);
        }
    }

    fn payload(contents: &[u8]) -> Vec<u8> {
        let mut payload = contents.to_vec();
        payload.extend_from_slice(b"\x0b\x00");
        payload.extend_from_slice(&CRC.checksum(&payload).to_le_bytes());
        payload
    }

    #[test]
    fn what_makes_no_value_is_refused() {
        let refused =
            |contents: &[u8]| assert_eq!(restore(&payload(contents)), Err(PayloadError::Format), "{contents:?}");
        // Without elements, twice the same one, a score that is no number, half of a pair.
        refused(b"\x01\x00");
        refused(b"\x02\x02\x01a\x01a");
        refused(b"\x05\x02\x01a\0\0\0\0\0\0\0\0\x01a\0\0\0\0\0\0\xf0?");
        refused(b"\x03\x01\x01a\xfd");
        refused(b"\x04\x02\x01a\x01b\x01a\x01c");
        refused(b"\x11\x0a\x0a\0\0\0\x01\0\x81a\x02\xff");
        // A value of a module.
        assert_eq!(
            restore(&payload(b"\x07\x01\x00")),
            Err(PayloadError::Other {
                kind: "a value of a module"
            })
        );
        assert!(dump(Tag::Set, b"").is_err() && dump(Tag::Stream, b"\0\x01\0").is_err());
        let mut writer = Writer::new();
        let before = writer.pending();
        assert!(writer.value(b"key", (Tag::Hash, b"\0\x01"), 7).is_err());
        assert_eq!(writer.pending(), before, "nothing of it is written");
    }

    #[test]
    fn fields_keep_their_time() {
        let (names, never) = ([&b"one"[..], b"two"], 0);
        let value = hash::build(&[(b"one", b"1", 2000), (b"two", b"2", never), (b"three", b"3", 1000)]);
        let value = put((value.expect("names are different"), ()));
        let dumped = dump(Tag::Hash, &value).expect("it is whole");
        let expected = b"\x18\xe8\x03\0\0\0\0\0\0\x03\x43\xe9\x03one\xc0\x01\x00\x03two\xc0\x02\x01\x05three\xc0\x03";
        assert_eq!(dumped[..expected.len()], expected[..]);
        let (_, restored) = restore(&dumped).expect("it is whole");
        let expiries = hash::expiries(Some(&restored), &names, 0).expect("it is whole");
        assert_eq!(expiries, [hash::FieldExpiry::At(2000), hash::FieldExpiry::Never]);
        // The release before wrote times as they are.
        let early = b"\x16\x02\x47\xd0\x01a\x01b\x00\x01c\x01d";
        let expected = hash::build(&[(b"a", b"b", 2000), (b"c", b"d", 0)]).expect("names are different");
        assert_eq!(restore(&payload(early)), Ok((Tag::Hash, put((expected, ())))));
        // In a listpack, with and without the earliest in front.
        let pack = b"\x81a\x02\x81b\x02\xc7\xd0\x02\xff";
        let pack = [&b"\x16\0\0\0\x03\0"[..], pack].concat();
        let expected = put((hash::build(&[(b"a", b"b", 2000)]).expect("one name"), ()));
        for head in [&b"\x17"[..], b"\x19\xd0\x07\0\0\0\0\0\0"] {
            let contents = [head, &[pack.len() as u8], &pack].concat();
            assert_eq!(restore(&payload(&contents)), Ok((Tag::Hash, expected.clone())));
        }
    }

    /// As redis-server 7 answers.
    #[test]
    fn payloads_are_those_of_redis() {
        // SET k 10; DUMP k
        assert_eq!(restore(&payload(b"\x00\xc0\x0a")), Ok((Tag::String, b"10".to_vec())));
        // The check value of the polynomial that Redis documents.
        assert_eq!(CRC.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        // RPUSH l a, as a quicklist of version 11.
        let list = put(list::push(None, list::End::Tail, &[b"a"]).expect("a list"));
        let pack = b"\x0a\x0a\0\0\0\x01\0\x81a\x02\xff";
        let packed = [&b"\x12\x01\x02"[..], pack].concat();
        for contents in [&b"\x12\x01\x01\x01a"[..], &packed, b"\x01\x01\x01a"] {
            assert_eq!(restore(&payload(contents)), Ok((Tag::List, list.clone())));
        }
        // SADD s 1 2, ZADD z 1.5 a with its score in text, ZADD z 1.5 a as a listpack.
        let set = put(set::add(None, &[b"1", b"2"]).expect("a set"));
        let contents = b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x01\0\x02\0";
        assert_eq!(restore(&payload(contents)), Ok((Tag::Set, set)));
        let added = sorted::add(None, &[(1.5, b"a")], sorted::AddOptions::default());
        let sorted = put(added.expect("a sorted set"));
        for contents in [
            &b"\x03\x01\x01a\x031.5"[..],
            b"\x11\x0f\x0f\0\0\0\x02\0\x81a\x02\x831.5\x04\xff",
            b"\x05\x01\x01a\0\0\0\0\0\0\xf8?",
        ] {
            assert_eq!(restore(&payload(contents)), Ok((Tag::SortedSet, sorted.clone())));
        }
    }
}
