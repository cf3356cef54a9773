//! Registered memory: the local side of READ and WRITE.
//!
//! On the path: each operation owns one [`Buffer`]; verbs name slices of it. A NIC reads and writes
//! the bytes while the verb is in flight, so a backend that completes later [`Buffer::take`]s the
//! memory when it posts and [`Buffer::restore`]s it when the verb completes. A future that is
//! dropped (or leaked) in between leaves an empty buffer behind, never memory that a NIC still
//! writes to: the in-flight operation keeps the memory until its completion arrives.
//!
//! The simulator also notes in the memory which of its bytes are *torn*: a WRITE was being executed
//! while they were read. No other backend does, and what looks at the notes is free without any.

use core::ops::{Deref, DerefMut, Range};

#[cfg(not(loom))]
use std::sync::Arc;

use zerocopy::IntoBytes;

#[cfg(not(loom))]
use crate::rdma::{Device, MemoryRegion, RdmaError};

/// Bytes that the fabric may read and write, aligned to 8 bytes.
#[derive(Default, Debug)]
pub struct Buffer {
    memory: Memory,
}

/// The memory of a [`Buffer`], as it travels with an operation in flight.
#[derive(Default, Debug)]
pub struct Memory {
    /// What makes the words known to a network card. Before them: it ends before they are freed.
    #[cfg(not(loom))]
    registration: Option<Box<MemoryRegion>>,
    words: Box<[u64]>,
    /// One pointer, so that memory without torn bytes is no larger to move.
    torn: Option<Box<Torn>>,
}

/// Which bytes of a buffer are torn. Never empty, and no range of it is.
#[derive(Clone, Debug)]
struct Torn(Vec<Range<usize>>);

#[cfg(not(loom))]
impl Memory {
    /// Makes the bytes known to a device, unless they are.
    ///
    /// # Errors
    /// [`RdmaError::Registration`].
    pub(crate) fn register(&mut self, device: &Arc<Device>) -> Result<(), RdmaError> {
        const ACCESS: core::ffi::c_int = crate::rdma::ffi::ACCESS_LOCAL_WRITE;
        let is_known = self.registration.as_ref().is_some_and(|region| region.is_of(device));
        if is_known || self.words.is_empty() {
            return Ok(());
        }
        // First: memory that two devices know is freed by neither.
        self.registration = None;
        let bytes = size_of_val(&*self.words) as u64;
        // SAFETY: the words stay where they are as long as this memory, which drops the registration before them; while a
        // verb is in flight nobody can look at them, since the operation has taken the memory.
        let region = unsafe { MemoryRegion::new(device, self.words.as_mut_ptr().cast(), bytes, ACCESS) }?;
        self.registration = Some(Box::new(region));
        Ok(())
    }

    /// What names the bytes to the device that knows them.
    pub(crate) fn local_key(&self) -> Option<u32> {
        self.registration.as_ref().map(|region| region.local_key())
    }

    /// What the memory holds, where a card may still be writing: for a caller that does not wait for it any longer.
    #[cold]
    pub(crate) fn copy_in_flight(&mut self) -> Self {
        let words = self.words.as_mut_ptr();
        // SAFETY: inside the allocation; volatile, since a card may change the words meanwhile.
        let copy = (0..self.words.len()).map(|index| unsafe { words.add(index).read_volatile() });
        Self {
            words: copy.collect(),
            ..Self::default()
        }
    }
}

impl Memory {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.words.as_bytes()
    }

    /// The bytes, to change.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.words.as_mut_bytes()
    }

    /// Notes that bytes which a READ brings are torn; for the simulator.
    #[cold]
    pub fn mark_torn(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.torn
                .get_or_insert_with(|| Box::new(Torn(Vec::new())))
                .0
                .push(range);
        }
    }

    /// Whether any bytes are torn.
    #[inline]
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.torn.is_some()
    }

    /// The first torn bytes within `range`.
    #[inline]
    #[must_use]
    pub fn torn_within(&self, range: Range<usize>) -> Option<Range<usize>> {
        let torn = self.torn.as_ref()?;
        let common = torn
            .0
            .iter()
            .map(|torn| torn.start.max(range.start)..torn.end.min(range.end));
        common
            .filter(|common| !common.is_empty())
            .min_by_key(|common| common.start)
    }

    /// Takes the notes back within `range`: the bytes are read anew, or nobody uses them.
    #[inline]
    pub fn clear_torn(&mut self, range: Range<usize>) {
        if self.torn.is_some() {
            self.cut_torn(range);
        }
    }

    #[cold]
    fn cut_torn(&mut self, range: Range<usize>) {
        let Some(mut torn) = self.torn.take() else { return };
        let outside = |torn: Range<usize>| {
            [
                torn.start..torn.end.min(range.start),
                torn.start.max(range.end)..torn.end,
            ]
        };
        torn.0 = torn
            .0
            .into_iter()
            .flat_map(outside)
            .filter(|torn| !torn.is_empty())
            .collect();
        self.torn = (!torn.0.is_empty()).then_some(torn);
    }
}

impl Buffer {
    /// A buffer of at least `bytes` bytes, all zero. Backends call this; everyone else asks an
    /// endpoint ([`Endpoint::buffer`](crate::Endpoint::buffer)), which also registers it.
    #[must_use]
    pub fn unregistered(bytes: usize) -> Self {
        Self {
            memory: Memory {
                words: vec![0; bytes.div_ceil(8)].into_boxed_slice(),
                ..Memory::default()
            },
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

    /// The memory, to look at its notes.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The memory, to change its notes.
    #[inline]
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Takes over what `before` held, its notes included, as far as there is room.
    pub fn replace(&mut self, mut before: Self) {
        let bytes = self.len().min(before.len());
        self[..bytes].copy_from_slice(&before[..bytes]);
        self.memory.torn = before.memory.torn.take();
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

    #[test]
    fn notes_of_torn_bytes_are_kept_by_range() {
        let mut buffer = Buffer::unregistered(100);
        buffer.memory_mut().mark_torn(10..50);
        buffer.memory_mut().mark_torn(60..60);
        buffer.memory_mut().clear_torn(20..30);
        let torn = |buffer: &Buffer, range| buffer.memory().torn_within(range);
        assert_eq!(torn(&buffer, 0..10), None);
        assert_eq!(torn(&buffer, 15..40), Some(15..20));
        assert_eq!(torn(&buffer, 20..30), None);
        assert_eq!(torn(&buffer, 25..100), Some(30..50));
        let mut larger = Buffer::unregistered(200);
        larger.replace(buffer);
        assert_eq!(torn(&larger, 20..200), Some(30..50));
        larger.memory_mut().clear_torn(0..200);
        assert!(!larger.memory().is_torn());
    }
}
