//! Registered memory: the local side of READ and WRITE.
//!
//! On the path: each operation owns one [`Buffer`]; verbs name slices of it. A NIC reads and writes
//! the bytes while the verb is in flight, so a backend that completes later [`Buffer::take`]s the
//! memory when it posts and [`Buffer::restore`]s it when the verb completes. A future that is
//! dropped (or leaked) in between leaves an empty buffer behind, never memory that a NIC still
//! writes to: the in-flight operation keeps the memory until its completion arrives.

use core::ops::{Deref, DerefMut};

use zerocopy::IntoBytes;

/// Bytes that the fabric may read and write, aligned to 8 bytes.
#[derive(Default, Debug)]
pub struct Buffer {
    memory: Memory,
}

/// The memory of a [`Buffer`], as it travels with an operation in flight.
#[derive(Default, Debug)]
pub struct Memory(Box<[u64]>);

impl Memory {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes, to change.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

impl Buffer {
    /// A buffer of at least `bytes` bytes, all zero. Backends call this; everyone else asks an
    /// endpoint ([`Verbs::buffer`](crate::Verbs::buffer)), which also registers it.
    #[must_use]
    pub fn unregistered(bytes: usize) -> Self {
        Self {
            memory: Memory(vec![0; bytes.div_ceil(8)].into_boxed_slice()),
        }
    }

    /// Moves the memory out, for the time that a verb is in flight. The buffer is empty meanwhile.
    #[must_use]
    pub fn take(&mut self) -> Memory {
        core::mem::take(&mut self.memory)
    }

    /// Puts the memory back once the verb has completed.
    pub fn restore(&mut self, memory: Memory) {
        self.memory = memory;
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_memory_leaves_an_empty_buffer() {
        let mut buffer = Buffer::unregistered(13);
        buffer[3] = 7;
        let memory = buffer.take();
        assert!(buffer.is_empty());
        buffer.restore(memory);
        assert_eq!((buffer.len(), buffer[3]), (16, 7));
    }
}
