//! Rows: how a table's row is called in the store, and how its fields are written.
//!
//! A key is the tag of the table, one byte, and the numbers of the row, four bytes each, the most significant first: in an
//! ordered index the rows of a table stand together, in the order of their numbers. A value has the fields one after the other,
//! little-endian, without gaps.

use farside_kv::{Interactive, Session, Transaction};

use crate::error::BenchError;

/// A row with its key.
pub(super) type Stored = (Vec<u8>, Vec<u8>);

/// The key of a row.
pub(super) fn key_of<const N: usize>(table: u8, numbers: [u64; N]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 4 * N);
    key.push(table);
    for number in numbers {
        let number = u32::try_from(number).expect("numbers are checked before anything begins");
        key.extend(number.to_be_bytes());
    }
    key
}

/// The numbers in a key of this table.
///
/// # Errors
/// [`BenchError::Unsound`] if it has not so many.
pub(super) fn numbers_of<const N: usize>(key: &[u8]) -> Result<[u64; N], BenchError> {
    let stray = || BenchError::Unsound(format!("there is a row under the key {key:02x?}, which no table has"));
    let (words, rest) = key.get(1..).unwrap_or_default().as_chunks();
    let words: &[[u8; 4]; N] = words.try_into().map_err(|_| stray())?;
    if !rest.is_empty() {
        return Err(stray());
    }
    Ok(words.map(|word| u64::from(u32::from_be_bytes(word))))
}

/// What stands in a row.
pub(super) trait Field: Sized {
    /// Appends it.
    fn write(&self, bytes: &mut Vec<u8>);
    /// Takes it from the front; `None` if there is too little.
    fn take(bytes: &mut &[u8]) -> Option<Self>;
}

impl<const N: usize> Field for [u8; N] {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (field, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(*field)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn write(&self, bytes: &mut Vec<u8>) {
                self.to_le_bytes().write(bytes);
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Field::take(bytes).map(Self::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i64);

/// A row of a table.
pub(super) trait Row: Sized {
    /// What a row is called in messages.
    const NAME: &'static str;

    /// Appends its fields.
    fn write(&self, bytes: &mut Vec<u8>);
    /// Takes its fields from the front; `None` if there is too little.
    fn take(bytes: &mut &[u8]) -> Option<Self>;

    /// Its bytes.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        self.write(&mut bytes);
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`BenchError::Unsound`] if it has another length.
    fn decode(bytes: &[u8]) -> Result<Self, BenchError> {
        let mut rest = bytes;
        let row = Self::take(&mut rest).filter(|_| rest.is_empty());
        row.ok_or_else(|| {
            let (name, count) = (Self::NAME, bytes.len());
            BenchError::Unsound(format!("{name} of {count} bytes was read, which nobody has stored"))
        })
    }
}

/// Declares rows, with a name for messages.
macro_rules! rows {
    ($($(#[$about:meta])* $name:ident as $text:literal { $($(#[$note:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub(super) struct $name { $($(#[$note])* pub(super) $field: $type,)* }

        impl $crate::applications::row::Row for $name {
            const NAME: &'static str = $text;

            fn write(&self, bytes: &mut Vec<u8>) {
                $($crate::applications::row::Field::write(&self.$field, bytes);)*
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::applications::row::Field::take(bytes)?,)* })
            }
        }
    )*};
}
pub(super) use rows;

/// The row that these bytes are, if there are any.
fn decoded<R: Row>(bytes: Option<&[u8]>) -> Result<Option<R>, BenchError> {
    bytes.map(R::decode).transpose()
}

/// A row that no transaction ever removes.
fn required<R: Row>(row: Option<R>, key: &[u8]) -> Result<R, BenchError> {
    row.ok_or_else(|| BenchError::Unsound(format!("{} is missing: nothing is under the key {key:02x?}", R::NAME)))
}

/// A row as a transaction sees it, if it is there.
///
/// # Errors
/// Of the store, and [`Row::decode`]'s; likewise for all below.
pub(super) fn find<R: Row>(transaction: &mut Transaction, key: &[u8]) -> Result<Option<R>, BenchError> {
    decoded(transaction.get(key)?)
}

/// A row that must be there, as a transaction sees it.
pub(super) fn read<R: Row>(transaction: &mut Transaction, key: &[u8]) -> Result<R, BenchError> {
    required(find(transaction, key)?, key)
}

/// A row as a transaction sees it that learns its keys on the way, if it is there.
pub(super) async fn find_next<R: Row>(transaction: &mut Interactive<'_>, key: &[u8]) -> Result<Option<R>, BenchError> {
    decoded(transaction.get(key).await?)
}

/// The same of a row that must be there.
pub(super) async fn read_next<R: Row>(transaction: &mut Interactive<'_>, key: &[u8]) -> Result<R, BenchError> {
    required(find_next(transaction, key).await?, key)
}

/// A row that must be there, outside of any transaction.
pub(super) async fn read_alone<R: Row>(session: &mut Session, key: &[u8]) -> Result<R, BenchError> {
    required(decoded(session.get(key).await?)?, key)
}

/// Rows outside of any transaction, those that are there, all looked for at the same time.
pub(super) async fn find_alone<R: Row>(session: &mut Session, keys: &[Vec<u8>]) -> Result<Vec<Option<R>>, BenchError> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut values = session.get_many(&keys);
    let mut rows = Vec::with_capacity(keys.len());
    for _ in &keys {
        rows.push(decoded(values.next().await?)?);
    }
    Ok(rows)
}

/// The same of rows that must all be there.
pub(super) async fn read_all_alone<R: Row>(session: &mut Session, keys: &[Vec<u8>]) -> Result<Vec<R>, BenchError> {
    let rows = find_alone(session, keys).await?;
    rows.into_iter()
        .zip(keys)
        .map(|(row, key)| required(row, key))
        .collect()
}

/// Runs a transaction on some keys. What `body` refuses for a reason of its own comes out of a transaction that has only read: so
/// what it has seen was so at one instant.
///
/// # Errors
/// Those of the store and of the body.
pub(super) async fn transact<R>(
    session: &mut Session,
    keys: &[Vec<u8>],
    mut body: impl FnMut(&mut Transaction) -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let answer = session.transaction_on(&keys, |transaction| match body(transaction) {
        Ok(answer) => Ok(Ok(answer)),
        Err(BenchError::Kv(error)) => Err(error),
        Err(error) => {
            transaction.give_up();
            Ok(Err(error))
        }
    });
    answer.await?
}

#[cfg(test)]
mod tests {
    use super::*;

    rows! {
        /// One of each kind.
        Sample as "a sample" {
            small: u8,
            sign: i64,
            text: [u8; 3],
            large: u32,
        }
    }

    #[test]
    fn rows_are_as_long_as_their_fields_and_read_as_written() {
        let sample = Sample {
            small: 7,
            sign: -2,
            text: *b"abc",
            large: 0x0102_0304,
        };
        let bytes = sample.encode();
        assert_eq!(bytes[9..], [b'a', b'b', b'c', 4, 3, 2, 1]);
        assert_eq!(Sample::decode(&bytes).expect("a row"), sample);
        for wrong in [&bytes[1..], &[&bytes[..], &[0]].concat()] {
            let error = Sample::decode(wrong).expect_err("of another length").to_string();
            assert!(error.contains("a sample of"), "{error}");
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_numbers() {
        let keys = [[0, 1], [0, 256], [1, 0], [256, 0]].map(|numbers| key_of(3, numbers));
        assert!(keys.is_sorted());
        assert_eq!(numbers_of(&keys[1]).expect("a key"), [0, 256]);
        for wrong in [&keys[0][..8], &[&keys[0][..], &[0]].concat(), b""] {
            numbers_of::<2>(wrong).expect_err("of another length");
        }
    }
}
