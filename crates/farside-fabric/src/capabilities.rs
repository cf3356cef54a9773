//! Which verbs a backend has beyond the plain ones.

/// What code may ask for before it relies on it. Plain READ, WRITE, 8-byte compare-and-swap and
/// fetch-and-add, SEND and RECEIVE are everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Masked compare-and-swap and fetch-and-add of 8 bytes.
    pub masked_atomics: bool,
    /// Compare-and-swap and fetch-and-add of 16 bytes, masked or not.
    pub wide_atomics: bool,
}

impl Capabilities {
    /// What both have: what one node cannot do, its pool cannot.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            masked_atomics: self.masked_atomics && other.masked_atomics,
            wide_atomics: self.wide_atomics && other.wide_atomics,
        }
    }
}
