//! Keys and values as bytes. A value is made from its number and its key, so that whoever reads it can tell whether
//! it is whole, and a history needs to name the number only.
//!
//! On the path: workers store what [`value_of`] makes and hand what they read to [`number_of`].
//!
//! Layout: the number and the key, 8 bytes each, then a filling whose length and words follow from both. Every word
//! of it differs between two numbers, so half of one value and half of another are never taken for a whole one.

use super::dice::mix;

const HEAD_BYTES: usize = 16;

/// A value that nobody wrote as a whole.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Torn {
    #[error("a value of {bytes} bytes has no room for number and key")]
    Short { bytes: usize },
    #[error("a value of {bytes} bytes holds the number {number}, which takes {expected} bytes")]
    Length { number: u64, bytes: usize, expected: usize },
    #[error("the value {number} was found at key {key}, but written to key {owner}")]
    Stray { number: u64, key: u64, owner: u64 },
    #[error("the value {number} of {bytes} bytes is not what was written from byte {at} on")]
    Filling { number: u64, bytes: usize, at: usize },
}

pub(crate) fn key_bytes(key: u64) -> Vec<u8> {
    format!("soak:{key}").into_bytes()
}

/// Most values are small; one in 300 is longer than 64 KiB, one in 3000 longer than a chunk.
fn filling_bytes(key: u64, number: u64) -> usize {
    let chance = mix(number ^ key.rotate_left(32));
    let length = chance >> 32;
    let bytes = match chance % 3000 {
        0 => (1 << 20) + length % (1 << 20),
        1..=10 => (64 << 10) + length % (192 << 10),
        11..=200 => 1024 + length % (7 << 10),
        _ => length % 200,
    };
    bytes as usize
}

/// The words of the filling.
fn words(key: u64, number: u64) -> impl Iterator<Item = u64> {
    let first = mix(number).wrapping_add(mix(!key));
    (0_u64..).map(move |index| first.wrapping_add(index.wrapping_mul(0x0101_0101_0101_0101)))
}

/// The bytes that stand for a number at a key.
pub(crate) fn value_of(key: u64, number: u64) -> Vec<u8> {
    let bytes = HEAD_BYTES + filling_bytes(key, number);
    let mut value = Vec::with_capacity(bytes + 8);
    value.extend(number.to_le_bytes());
    value.extend(key.to_le_bytes());
    for word in words(key, number).take((bytes - HEAD_BYTES).div_ceil(8)) {
        value.extend(word.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The number that a value stands for.
///
/// # Errors
/// What is wrong with it, if it is not byte for byte what [`value_of`] makes of some number.
pub(crate) fn number_of(key: u64, value: &[u8]) -> Result<u64, Torn> {
    let bytes = value.len();
    let (head, filling) = value.split_at_checked(HEAD_BYTES).ok_or(Torn::Short { bytes })?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let (number, owner) = (word(0), word(8));
    if owner != key {
        return Err(Torn::Stray { number, key, owner });
    }
    let expected = HEAD_BYTES + filling_bytes(key, number);
    if bytes != expected {
        return Err(Torn::Length {
            number,
            bytes,
            expected,
        });
    }
    for (index, (chunk, word)) in filling.chunks(8).zip(words(key, number)).enumerate() {
        if chunk != &word.to_le_bytes()[..chunk.len()] {
            let at = HEAD_BYTES + 8 * index;
            return Err(Torn::Filling { number, bytes, at });
        }
    }
    Ok(number)
}

#[test]
fn values_of_all_sizes_say_their_number() {
    let sizes: Vec<usize> = (0..20_000)
        .map(|number| {
            let value = value_of(7, number);
            assert_eq!(number_of(7, &value), Ok(number));
            value.len()
        })
        .collect();
    assert!(sizes.iter().any(|&bytes| bytes < 32));
    assert!(sizes.iter().any(|&bytes| (2 << 10..64 << 10).contains(&bytes)));
    assert!(sizes.iter().any(|&bytes| (64 << 10..1 << 20).contains(&bytes)));
    assert!(sizes.iter().any(|&bytes| bytes > 1 << 20));
}

#[test]
fn torn_values_are_seen() {
    let long = (0..).find(|&number| value_of(7, number).len() > 3000);
    let number = long.expect("one in 15 is long");
    let whole = value_of(7, number);
    let mut torn = whole.clone();
    torn[2000] ^= 1;
    assert!(matches!(number_of(7, &torn), Err(Torn::Filling { .. })));
    // The head of one value and the rest of another, of the same length.
    let twin = (number + 1..).find(|&other| value_of(7, other).len() == whole.len());
    let mut mixed = value_of(7, twin.expect("lengths repeat"));
    mixed[1000..1064].copy_from_slice(&whole[1000..1064]);
    assert!(matches!(number_of(7, &mixed), Err(Torn::Filling { .. })));
    assert!(matches!(number_of(7, &whole[..2000]), Err(Torn::Length { .. })));
    assert!(matches!(number_of(8, &whole), Err(Torn::Stray { .. })));
    assert!(matches!(number_of(7, &whole[..9]), Err(Torn::Short { .. })));
}
