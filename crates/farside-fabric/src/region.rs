//! The memory of one node, shared by whoever maps it, touched word by word.
//!
//! On the path: shared memory, the TCP node and the simulator all end here. Other processes may
//! write the same bytes at any moment, so every access is an atomic one; bytes that other clients
//! see are never referenced by a `&[u8]`.
//!
//! Orderings:
//! - loads acquire and stores release, so that what one client wrote before it published a pointer
//!   is seen by whoever follows the pointer;
//! - a WRITE ends with a full fence, so that a later READ of the same endpoint is not overtaken by
//!   it (posting order, which hardware queue pairs keep too);
//! - read-modify-writes are sequentially consistent.
//!
//! Invariant: `base..base + bytes` lies inside `mapping`, which lives as long as the region, and
//! `base` is a multiple of 64.

#[cfg(not(loom))]
use core::sync::atomic::AtomicU8;
use std::sync::Arc;

use memmap2::MmapRaw;

use crate::capabilities::Capabilities;
use crate::copy::{LONG_BYTES, copy_in, copy_long_in, copy_long_out, copy_out};
use crate::counters::Counters;
#[cfg(loom)]
use crate::primitive::Byte;
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::verb::{MaskedAdd, MaskedCas, Verb};
use crate::view::{Lines, View};

/// Bytes of a cache line, and of the unit in which a NIC touches memory.
pub const LINE_BYTES: u64 = 64;

/// A node's memory.
#[derive(Clone, Debug)]
pub struct Region {
    #[cfg(not(loom))]
    mapping: Arc<MmapRaw>,
    #[cfg(not(loom))]
    base: *mut u8,
    /// In the model there are words only, and what two regions map is not the same.
    #[cfg(loom)]
    words: Arc<[AtomicU64]>,
    bytes: u64,
}

impl Region {
    /// The part of a mapping from byte `start` on.
    ///
    /// # Panics
    /// If the part is not inside the mapping, or `start` is no multiple of [`LINE_BYTES`].
    #[must_use]
    pub fn new(mapping: Arc<MmapRaw>, start: u64, bytes: u64) -> Self {
        let end = start.checked_add(bytes).expect("a region ends below 2^64");
        assert!(end <= mapping.len() as u64, "a region lies inside its mapping");
        assert!(start.is_multiple_of(LINE_BYTES), "a region starts at a line");
        #[cfg(not(loom))]
        {
            let base = mapping.as_mut_ptr().wrapping_add(start as usize);
            Self { mapping, base, bytes }
        }
        #[cfg(loom)]
        Self::modelled(bytes)
    }

    #[cfg(loom)]
    fn modelled(bytes: u64) -> Self {
        let words = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Self { words, bytes }
    }

    /// Anonymous zeroed memory that only this process sees.
    ///
    /// # Errors
    /// If the system has not that much memory to give.
    #[cfg_attr(
        loom,
        expect(clippy::unnecessary_wraps, reason = "memory of the model never runs out")
    )]
    pub fn anonymous(bytes: u64) -> std::io::Result<Self> {
        #[cfg(loom)]
        return Ok(Self::modelled(bytes));
        #[cfg(not(loom))]
        Self::map_anonymous(bytes)
    }

    #[cfg(not(loom))]
    fn map_anonymous(bytes: u64) -> std::io::Result<Self> {
        let map = memmap2::MmapOptions::new().len(bytes as usize).map_anon()?;
        let mapping = Arc::new(MmapRaw::from(map));
        advise_huge_pages(&mapping);
        Ok(Self::new(mapping, 0, bytes))
    }

    /// The place of the first byte of this region, and none of its bytes.
    pub(crate) fn without_bytes(&self) -> Self {
        Self {
            bytes: 0,
            ..self.clone()
        }
    }

    /// How many bytes there are.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the region starts in this process.
    #[cfg(not(loom))]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The file or anonymous memory behind the region.
    #[cfg(not(loom))]
    #[must_use]
    pub fn mapping(&self) -> &Arc<MmapRaw> {
        &self.mapping
    }

    /// What this machine's processor can do: masked atomics always, by a compare-and-swap loop that
    /// is itself atomic; 16 bytes if it has `cmpxchg16b`.
    #[must_use]
    pub fn capabilities() -> Capabilities {
        Capabilities {
            masked_atomics: true,
            wide_atomics: wide::available(),
        }
    }

    #[inline]
    fn assert_inside(&self, offset: u64, bytes: u64) {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "checked before execution: {bytes} bytes at {offset:#x} are inside the region"
        );
    }

    /// The aligned word at `offset`.
    ///
    /// # Panics
    /// If `offset` is no multiple of 8 or outside the region.
    #[inline]
    #[must_use]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        self.assert_inside(offset, 8);
        assert!(offset.is_multiple_of(8), "checked before execution: words are aligned");
        #[cfg(loom)]
        return &self.words[offset as usize / 8];
        // SAFETY: inside the mapping (asserted) and aligned, since `base` is (type invariant); every
        // access to shared bytes is atomic, so a shared reference to the atomic is sound.
        #[cfg(not(loom))]
        unsafe {
            AtomicU64::from_ptr(self.base.add(offset as usize).cast())
        }
    }

    #[cfg(loom)]
    fn byte(&self, offset: u64) -> Byte<'_> {
        Byte {
            word: &self.words[offset as usize / 8],
            shift: offset as u32 % 8 * 8,
        }
    }

    #[cfg(not(loom))]
    #[inline]
    fn byte(&self, offset: u64) -> &AtomicU8 {
        debug_assert!(offset < self.bytes);
        // SAFETY: callers have asserted that the byte is inside the mapping; see `word`. Words and
        // bytes may overlap: on the supported processors accesses of different size to the same
        // line are coherent, and the contract promises no more than whole words.
        unsafe { AtomicU8::from_ptr(self.base.add(offset as usize)) }
    }

    /// `count` aligned words from `offset` on.
    #[inline]
    fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        if count == 0 {
            return &[];
        }
        debug_assert!(offset.is_multiple_of(8) && offset + count as u64 * 8 <= self.bytes);
        #[cfg(loom)]
        return &self.words[offset as usize / 8..][..count];
        // SAFETY: callers have asserted that the bytes are inside the mapping, and have aligned the
        // offset; see `word`. An `AtomicU64` is a word in memory.
        #[cfg(not(loom))]
        unsafe {
            core::slice::from_raw_parts(self.base.add(offset as usize).cast(), count)
        }
    }

    /// Copies bytes out. May tear between words.
    ///
    /// # Panics
    /// If the bytes are not inside the region.
    pub fn read(&self, offset: u64, target: &mut [u8]) {
        self.assert_inside(offset, target.len() as u64);
        match target.len() < LONG_BYTES {
            true => self.read_by(offset, target, copy_out),
            false => self.read_long(offset, target),
        }
    }

    // Apart, as is the one for writes: a call within would cost the short ones, too.
    #[inline(never)]
    fn read_long(&self, offset: u64, target: &mut [u8]) {
        self.read_by(offset, target, copy_long_out);
    }

    #[inline(always)]
    fn read_by(&self, offset: u64, target: &mut [u8], copy_out: impl Fn(&[AtomicU64], &mut [[u8; 8]])) {
        let head = (offset.wrapping_neg() & 7).min(target.len() as u64) as usize;
        let (first, rest) = target.split_at_mut(head);
        for (byte, at) in first.iter_mut().zip(offset..) {
            *byte = self.byte(at).load(Ordering::Acquire);
        }
        let aligned = offset + head as u64;
        let (words, tail) = rest.as_chunks_mut::<8>();
        let count = words.len();
        copy_out(self.words(aligned, count), words);
        for (byte, at) in tail.iter_mut().zip(aligned + count as u64 * 8..) {
            *byte = self.byte(at).load(Ordering::Acquire);
        }
    }

    /// The aligned words of some bytes, to be read in place; `None` if `offset` or `bytes` is no multiple of 8
    /// or they are not inside the region.
    #[inline]
    #[must_use]
    pub fn view(&self, offset: u64, bytes: u64) -> Option<View<'_>> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let is_aligned = (offset | bytes).is_multiple_of(8);
        (is_inside && is_aligned).then(|| View::new(self.words(offset, bytes as usize / 8)))
    }

    /// The lines of some aligned bytes, likewise.
    #[inline]
    pub(crate) fn lines<'m>(&'m self, offset: u64, bytes: u64, counters: &'m Counters) -> Option<Lines<'m>> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let is_aligned = (offset | bytes).is_multiple_of(8);
        (is_inside && is_aligned).then(|| Lines::new(self.words(offset, bytes as usize / 8), counters))
    }

    /// Copies bytes in. May tear between words.
    ///
    /// # Panics
    /// If the bytes are not inside the region.
    #[inline]
    pub fn write(&self, offset: u64, source: &[u8]) {
        self.assert_inside(offset, source.len() as u64);
        match source.len() < LONG_BYTES {
            true => self.write_by(offset, source, copy_in),
            false => self.write_long(offset, source),
        }
    }

    #[inline(never)]
    fn write_long(&self, offset: u64, source: &[u8]) {
        self.write_by(offset, source, copy_long_in);
    }

    #[inline(always)]
    fn write_by(&self, offset: u64, source: &[u8], copy_in: impl Fn(&[AtomicU64], &[[u8; 8]])) {
        if (offset | source.len() as u64).is_multiple_of(8) {
            let words = source.as_chunks().0;
            return copy_in(self.words(offset, words.len()), words);
        }
        let head = (offset.wrapping_neg() & 7).min(source.len() as u64) as usize;
        let (first, rest) = source.split_at(head);
        for (&byte, at) in first.iter().zip(offset..) {
            self.byte(at).store(byte, Ordering::Release);
        }
        let aligned = offset + head as u64;
        let (words, tail) = rest.as_chunks::<8>();
        copy_in(self.words(aligned, words.len()), words);
        for (&byte, at) in tail.iter().zip(aligned + words.len() as u64 * 8..) {
            self.byte(at).store(byte, Ordering::Release);
        }
    }

    /// Copies two slices to `offset`, one behind the other. What is done later comes later for everybody.
    ///
    /// # Panics
    /// If the bytes are not inside the region.
    pub(crate) fn write_both(&self, offset: u64, [first, second]: [&[u8]; 2]) {
        for (offset, part) in [(offset, first), (offset + first.len() as u64, second)] {
            self.write(offset, part);
        }
        fence(Ordering::SeqCst);
    }

    /// Executes a verb whose bounds and alignment have been checked. The result is the word it
    /// returns, or 0. READ and WRITE use their slice of
    /// `buffer`.
    ///
    /// # Panics
    /// If the verb was not checked.
    // Always: where the verb is known, one arm is left of the match, and no copy of the verb.
    #[inline(always)]
    pub fn execute(&self, verb: &Verb, buffer: &mut [u8]) -> u128 {
        let (addr, _) = verb.target();
        let offset = addr.offset();
        match *verb {
            Verb::Read { target, .. } => {
                self.read(offset, &mut buffer[target.range()]);
                0
            }
            Verb::Write { source, .. } => {
                self.write(offset, &buffer[source.range()]);
                fence(Ordering::SeqCst);
                0
            }
            Verb::ReadWord { .. } => self.word(offset).load(Ordering::Acquire).into(),
            Verb::WriteWord { value, .. } => {
                self.word(offset).store(value, Ordering::SeqCst);
                0
            }
            Verb::CompareSwap { compare, swap, .. } => {
                let word = self.word(offset);
                let old = word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
                old.unwrap_or_else(|old| old).into()
            }
            Verb::FetchAdd { add, .. } => self.word(offset).fetch_add(add, Ordering::SeqCst).into(),
            Verb::MaskedCompareSwap { operands, .. } => self.masked_swap(offset, operands).into(),
            Verb::MaskedFetchAdd { operands, .. } => self.masked_add(offset, operands).into(),
            Verb::WideCompareSwap { operands, .. } => self.wide_update(offset, |word| operands.apply(word)),
            Verb::WideFetchAdd { operands, .. } => self.wide_update(offset, |word| Some(operands.apply(word))),
        }
    }

    fn masked_swap(&self, offset: u64, operands: MaskedCas<u64>) -> u64 {
        self.update(offset, |word| operands.apply(word))
    }

    fn masked_add(&self, offset: u64, operands: MaskedAdd<u64>) -> u64 {
        self.update(offset, |word| Some(operands.apply(word)))
    }

    /// Lock-free: whoever loses the race here has seen somebody else's update succeed.
    fn update(&self, offset: u64, change: impl Fn(u64) -> Option<u64>) -> u64 {
        let word = self.word(offset);
        let old = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
        old.unwrap_or_else(|old| old)
    }

    #[cfg(loom)]
    fn wide_update(&self, _: u64, _: impl Fn(u128) -> Option<u128>) -> u128 {
        panic!("checked before execution: the model has no 16-byte atomics");
    }

    #[cfg(not(loom))]
    fn wide_update(&self, offset: u64, change: impl Fn(u128) -> Option<u128>) -> u128 {
        self.assert_inside(offset, 16);
        assert!(
            offset.is_multiple_of(16),
            "checked before execution: wide words are aligned"
        );
        let low = self.word(offset).load(Ordering::Acquire);
        let high = self.word(offset + 8).load(Ordering::Acquire);
        let mut seen = u128::from(high) << 64 | u128::from(low);
        // Ends: each further turn means that another client changed the word in between.
        loop {
            let new = change(seen);
            // SAFETY: inside the mapping and aligned to 16, and the instruction exists: all asserted above. A guess that the
            // two halves make up is harmless: the swap of a word for itself tells the true one.
            let old = unsafe { wide::compare_swap(self.base.add(offset as usize), seen, new.unwrap_or(seen)) };
            if old == seen {
                return old;
            }
            seen = old;
        }
    }

    /// Asks the processor to fetch the lines that hold these bytes (the first four at most).
    #[inline]
    #[cfg_attr(loom, expect(unused_variables, reason = "the model has no cache"))]
    pub fn prefetch(&self, offset: u64, bytes: u32) {
        #[cfg(not(loom))]
        if offset + u64::from(bytes) <= self.bytes {
            for line in 0..u64::from(bytes).div_ceil(LINE_BYTES).min(4) {
                let target = self.base.wrapping_add((offset + line * LINE_BYTES) as usize);
                crate::prefetch::line(target);
            }
        }
    }
}

/// Asks for huge pages; the mapping works without them, only slower.
pub(crate) fn advise_huge_pages(mapping: &MmapRaw) {
    if let Err(error) = mapping.advise(memmap2::Advice::HugePage) {
        tracing::debug!("no huge pages for this mapping: {error}");
    }
}

/// The model has no word of 16 bytes.
#[cfg(loom)]
mod wide {
    pub(super) fn available() -> bool {
        false
    }
}

/// Compare-and-swap of 16 bytes.
#[cfg(not(loom))]
mod wide {
    #[cfg(target_arch = "x86_64")]
    pub(super) fn available() -> bool {
        std::arch::is_x86_feature_detected!("cmpxchg16b")
    }

    /// # Safety
    /// The processor has the instruction; `target` is valid for reads and writes, aligned to 16, and
    /// accessed atomically only.
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn compare_swap(target: *mut u8, old: u128, new: u128) -> u128 {
        let (mut low, mut high) = (old as u64, (old >> 64) as u64);
        // SAFETY: the caller's promise. `rbx`, which the compiler keeps for itself, is restored; the address
        // has a register of its own, since one of the compiler's choice may be `rbx`. The intrinsic of the
        // standard library is no alternative: unless it is inlined, it calls a library function that need
        // not exist.
        unsafe {
            core::arch::asm!(
                "xchg {new_low}, rbx",
                "lock cmpxchg16b [rdi]",
                "mov rbx, {new_low}",
                new_low = inout(reg) new as u64 => _,
                in("rdi") target,
                in("rcx") (new >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        u128::from(high) << 64 | u128::from(low)
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn available() -> bool {
        false
    }

    /// # Safety
    /// Never called where `available` is false.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) unsafe fn compare_swap(_: *mut u8, _: u128, _: u128) -> u128 {
        unreachable!("16-byte atomics are refused before execution")
    }
}

// SAFETY: `base` points into `mapping`, which is Send and Sync itself; all access is atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_survive_any_alignment(offset in 0_u64..64, bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
            let region = Region::anonymous(4096).expect("a page of memory");
            region.write(0, &[0xee; 4096]);
            region.write(offset, &bytes);
            let mut seen = vec![0; bytes.len() + 2 * 64];
            region.read(offset, &mut seen);
            prop_assert_eq!(&seen[..bytes.len()], &bytes[..]);
            prop_assert!(seen[bytes.len()..].iter().all(|&byte| byte == 0xee));
        }
    }

    #[test]
    fn concurrent_wide_adds_all_count() {
        if !Region::capabilities().wide_atomics {
            return;
        }
        let region = Region::anonymous(4096).expect("a page of memory");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let add = MaskedAdd::whole((1_u128 << 64) | 1);
                        region.wide_update(16, |word| Some(add.apply(word)));
                    }
                });
            }
        });
        assert_eq!(region.word(16).load(Ordering::SeqCst), 4000);
        assert_eq!(region.word(24).load(Ordering::SeqCst), 4000);
    }
}
