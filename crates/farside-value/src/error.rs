//! Why an operation on a value is refused.

/// An operation is refused. The messages, but the first, are Redis's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The bytes are not what any writer has written.
    #[error("damaged value: {0}")]
    Damaged(&'static str),
    /// HINCRBY of a field that is no integer.
    #[error("hash value is not an integer")]
    NotAnInteger,
    /// HINCRBYFLOAT of a field that is no number.
    #[error("hash value is not a float")]
    NotAFloat,
    /// What is to be added is no number.
    #[error("value is not a valid float")]
    InvalidFloat,
    /// What is to be added is infinite.
    #[error("value is NaN or Infinity")]
    InfiniteIncrement,
    /// The sum of two integers has more than 64 bits.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// A sum has no finite value.
    #[error("increment would produce NaN or Infinity")]
    Infinite,
    /// A score plus an increment is not a number.
    #[error("resulting score is not a number (NaN)")]
    NotANumber,
    /// LSET of a place that the list does not have.
    #[error("index out of range")]
    OutOfRange,
    /// LSET of a key that is absent.
    #[error("no such key")]
    NoSuchKey,
}
