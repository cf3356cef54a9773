//! Bytes of true chance, from the operating system.

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `target` with random bytes.
pub(super) fn fill(target: &mut [u8]) {
    let count = getrandom(&mut *target, GetRandomFlags::empty());
    // Requests of up to 256 bytes are answered whole and never interrupted (getrandom(2)).
    assert_eq!(count, Ok(target.len()), "the system gives a few random bytes");
}
