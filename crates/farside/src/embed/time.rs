//! The lifetime of keys, as durations.

use core::time::Duration;

use farside_fabric::host::HostClock;
use farside_kv::Expiry;

/// The remaining lifetime of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    /// The key is not there.
    Absent,
    /// It stays until it is deleted.
    Unlimited,
    /// It expires after this time.
    Left(Duration),
}

impl Lifetime {
    /// From what the store knows: milliseconds since the Unix epoch, 0 for never.
    pub(crate) fn until(expiry_ms: Option<u64>) -> Self {
        match expiry_ms {
            None => Self::Absent,
            Some(0) => Self::Unlimited,
            Some(at_ms) => Self::Left(Duration::from_millis(at_ms.saturating_sub(HostClock.unix_ms()))),
        }
    }
}

/// The expiry of a key that is to expire `duration` from now, by the clock of this machine, in whole milliseconds.
///
/// ```
/// use core::time::Duration;
/// use farside::{Expiry, after};
///
/// assert!(matches!(after(Duration::from_secs(60)), Expiry::AtMs(_)));
/// ```
#[must_use]
pub fn after(duration: Duration) -> Expiry {
    let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Expiry::AtMs(HostClock.unix_ms().saturating_add(duration_ms))
}
