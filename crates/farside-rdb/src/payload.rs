//! What DUMP answers and RESTORE takes: one value, with a version and a checksum.

use crate::writer::put_string;
use crate::{CRC, RdbError, Reader, Record, TYPE_STRING, VERSION, VERSION_MAX};

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
    /// It is a value that is no string.
    #[error("the payload is {kind}: only strings can be restored here")]
    Other {
        /// What it is, with its article.
        kind: &'static str,
    },
}

/// The payload of a string.
#[must_use]
pub fn dump(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(1 + 9 + value.len() + TAIL_BYTES);
    payload.push(TYPE_STRING);
    put_string(&mut payload, value);
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = CRC.checksum(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The string of a payload.
///
/// # Errors
/// See [`PayloadError`].
pub fn restore(payload: &[u8]) -> Result<Vec<u8>, PayloadError> {
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
        Ok(Some(Record::String { value, .. })) => Ok(value),
        Ok(Some(Record::Other { kind, .. })) => Err(PayloadError::Other { kind }),
        Ok(None) | Err(_) => Err(PayloadError::Format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use proptest::prelude::*;

    fn file(items: &[(Vec<u8>, Vec<u8>, u64)]) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.aux("made-by", "a test");
        writer.database(0);
        let mut bytes = Vec::new();
        for (key, value, expiry_ms) in items {
            writer.string(key, value, *expiry_ms);
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

    proptest! {
        #[test]
        fn files_survive_writing(items in proptest::collection::vec((strings(), strings(), any::<u64>()), 0..20)) {
            let found = read(&file(&items)).expect("a file");
            let wanted: Vec<_> = items
                .into_iter()
                .map(|(key, value, expiry_ms)| Record::String { database: 0, key, value, expiry_ms })
                .collect();
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn a_damaged_file_is_noticed(items in proptest::collection::vec((strings(), strings(), any::<u64>()), 1..4), at: usize, flip in 1_u8..=255) {
            let mut bytes = file(&items);
            let end = bytes.len();
            bytes[at % end] ^= flip;
            prop_assert!(read(&bytes).is_err());
        }

        #[test]
        fn a_file_that_is_cut_off_is_noticed(items in proptest::collection::vec((strings(), strings(), any::<u64>()), 1..4), at: usize) {
            let bytes = file(&items);
            prop_assert!(read(&bytes[..at % bytes.len()]).is_err());
        }

        #[test]
        fn payloads_survive(value in strings()) {
            prop_assert_eq!(restore(&dump(&value)), Ok(value));
        }

        #[test]
        fn no_payload_panics(mut payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assume!(restore(&payload) == Err(PayloadError::Wrong));
            payload.extend_from_slice(&9_u16.to_le_bytes());
            let checksum = CRC.checksum(&payload);
            payload.extend_from_slice(&checksum.to_le_bytes());
            let _ = restore(&payload);
        }
    }

    /// As redis-server 7 answers.
    #[test]
    fn payloads_are_those_of_redis() {
        // SET k 10; DUMP k
        let ten = b"\x00\xc0\x0a\x0b\x00";
        let mut payload = ten.to_vec();
        payload.extend_from_slice(&CRC.checksum(ten).to_le_bytes());
        assert_eq!(restore(&payload), Ok(b"10".to_vec()));
        // The check value of the polynomial that Redis documents.
        assert_eq!(CRC.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        // RPUSH l a, as a quicklist of version 11.
        let list = b"\x12\x01\x01\x01a\x0b\x00";
        let mut payload = list.to_vec();
        payload.extend_from_slice(&CRC.checksum(list).to_le_bytes());
        assert_eq!(restore(&payload), Err(PayloadError::Other { kind: "a list" }));
    }
}
