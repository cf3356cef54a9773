//! When a key expires.

use farside_index::GONE_MS;

/// What becomes of a key's expiry when a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Expiry {
    /// The key stays until it is deleted.
    #[default]
    Never,
    /// It keeps its present expiry.
    Keep,
    /// It expires at this time, in milliseconds since the Unix epoch.
    AtMs(u64),
}

impl Expiry {
    /// The expiry to store, given the one that is there (0 = never).
    pub(crate) fn resolve(self, before_ms: u64) -> u64 {
        match self {
            Self::Never => 0,
            Self::Keep => before_ms,
            // 0 means never, and 1 that nobody has seen the key; the first milliseconds of 1970 are past either way.
            Self::AtMs(at_ms) => at_ms.max(GONE_MS + 1),
        }
    }
}

/// Whether an item with this stored expiry is still there; `now_ms` is asked only if needed.
#[inline]
pub(crate) fn is_there(expiry_ms: u64, now_ms: impl FnOnce() -> u64) -> bool {
    expiry_ms == 0 || expiry_ms > now_ms()
}
