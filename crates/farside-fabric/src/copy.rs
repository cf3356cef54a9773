//! Copies between words that others may touch meanwhile and memory of this process.
//!
//! On the path: what a READ and a WRITE of mapped memory come to. Each word is loaded or stored whole, and once, in the order of the
//! addresses: loads acquire, stores release.
//!
//! A long copy moves two words at a time, where the processor does that whole: one that has AVX promises that a move of 16 aligned
//! bytes is atomic (Intel's manual, volume 3, 9.1.1; AMD's, volume 2, 7.3.2). The language has no such move, so it stands here in
//! assembly, which the compiler has to take for any access to memory whatever: it moves no other access past it. Nor does the processor,
//! which lets no load pass a load, and no store a store. Twice as fast as word by word, that is about as fast as a copy within the
//! process.

use crate::primitive::{AtomicU64, Ordering};

/// A copy of so many bytes is long: what it takes to begin is less than what it saves.
pub(crate) const LONG_BYTES: usize = 512;

/// Copies words to memory of this process, half a line at a time as far as that goes.
#[inline]
pub(crate) fn copy_out(words: &[AtomicU64], target: &mut [[u8; 8]]) {
    let (halves, rest) = words.as_chunks::<4>();
    let (targets, rest_targets) = target.as_chunks_mut::<4>();
    for (target, words) in targets.iter_mut().zip(halves) {
        *target = words.each_ref().map(|word| word.load(Ordering::Acquire).to_ne_bytes());
    }
    for (target, word) in rest_targets.iter_mut().zip(rest) {
        *target = word.load(Ordering::Acquire).to_ne_bytes();
    }
}

/// Copies memory of this process to words.
#[inline]
pub(crate) fn copy_in(words: &[AtomicU64], source: &[[u8; 8]]) {
    for (&source, word) in source.iter().zip(words) {
        word.store(u64::from_ne_bytes(source), Ordering::Release);
    }
}

/// Copies many words to memory of this process.
///
/// # Panics
/// If there are more or fewer than have room.
pub(crate) fn copy_long_out(words: &[AtomicU64], target: &mut [[u8; 8]]) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    if pairs::are_whole() {
        return pairs::copy_out(words, target);
    }
    copy_out(words, target);
}

/// Copies much memory of this process to words.
///
/// # Panics
/// If there are more or fewer than have room.
pub(crate) fn copy_long_in(words: &[AtomicU64], source: &[[u8; 8]]) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    if pairs::are_whole() {
        return pairs::copy_in(words, source);
    }
    copy_in(words, source);
}

/// Two words at a time.
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod pairs {
    use core::arch::asm;

    use super::AtomicU64;

    const LINE_WORDS: usize = 8;

    type Line = [AtomicU64; LINE_WORDS];
    type OwnLine = [[u8; 8]; LINE_WORDS];

    /// Whether a move of an aligned pair is atomic.
    pub(super) fn are_whole() -> bool {
        std::arch::is_x86_feature_detected!("avx")
    }

    /// How many words come before the first aligned pair.
    fn before(words: &[AtomicU64]) -> usize {
        let is_aligned = words.as_ptr().addr().is_multiple_of(16);
        words.len().min(usize::from(!is_aligned))
    }

    pub(super) fn copy_out(words: &[AtomicU64], target: &mut [[u8; 8]]) {
        assert_eq!(words.len(), target.len(), "each word has a place");
        let before = before(words);
        let (first, words) = words.split_at(before);
        let (first_target, target) = target.split_at_mut(before);
        super::copy_out(first, first_target);
        let (lines, rest) = words.as_chunks();
        let (targets, rest_target) = target.as_chunks_mut();
        load(lines, targets);
        super::copy_out(rest, rest_target);
    }

    pub(super) fn copy_in(words: &[AtomicU64], source: &[[u8; 8]]) {
        assert_eq!(words.len(), source.len(), "each word has a source");
        let before = before(words);
        let (first, words) = words.split_at(before);
        let (first_source, source) = source.split_at(before);
        super::copy_in(first, first_source);
        let (lines, rest) = words.as_chunks();
        let (sources, rest_source) = source.as_chunks();
        store(lines, sources);
        super::copy_in(rest, rest_source);
    }

    /// Moves lines, of which there is one at least, by instructions for the loads and for the stores: the aligned ones are whole.
    macro_rules! move_lines {
        ($load:literal, $store:literal, $from:expr, $to:expr, $count:expr) => {
            asm!(
                "2:",
                "prefetcht0 [{from} + 512]",
                concat!($load, " {a}, [{from}]"),
                concat!($load, " {b}, [{from} + 16]"),
                concat!($load, " {c}, [{from} + 32]"),
                concat!($load, " {d}, [{from} + 48]"),
                concat!($store, " [{to}], {a}"),
                concat!($store, " [{to} + 16], {b}"),
                concat!($store, " [{to} + 32], {c}"),
                concat!($store, " [{to} + 48], {d}"),
                "add {from}, 64",
                "add {to}, 64",
                "dec {count}",
                "jnz 2b",
                from = inout(reg) $from => _,
                to = inout(reg) $to => _,
                count = inout(reg) $count => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            )
        };
    }

    fn load(lines: &[Line], targets: &mut [OwnLine]) {
        let count = lines.len().min(targets.len());
        if count == 0 {
            return;
        }
        // SAFETY: `count` lines are read and as many written, which both slices have, and there is one at least; the words are
        // aligned to a pair, or the processor would say so. Others may store to them meanwhile: the instructions load them as atomics
        // do. What is fetched ahead need not be there.
        unsafe { move_lines!("vmovdqa", "vmovdqu", lines.as_ptr(), targets.as_mut_ptr(), count) }
    }

    fn store(lines: &[Line], sources: &[OwnLine]) {
        let count = lines.len().min(sources.len());
        if count == 0 {
            return;
        }
        // SAFETY: as for `load`; the words may be stored to by whoever has them, since they are atomics.
        unsafe { move_lines!("vmovdqu", "vmovdqa", sources.as_ptr(), lines.as_ptr(), count) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Copies of every length up to some lines more than a long one has, from and to every place within a line, and what is beside
    /// them.
    #[test]
    fn every_length_at_every_place() {
        const ROOM: usize = 128;
        let own: Vec<[u8; 8]> = (0..ROOM as u64).map(|word| (word << 40 | 1).to_ne_bytes()).collect();
        let words: Vec<AtomicU64> = (0..ROOM).map(|_| AtomicU64::new(0)).collect();
        for (at, own_at) in [(0, 0), (1, 0), (3, 1), (6, 7)] {
            for count in 0..100 {
                words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
                copy_long_in(&words[at..][..count], &own[own_at..][..count]);
                let copied = own[own_at..][..count].iter().map(|&word| u64::from_ne_bytes(word));
                let ones = |count| core::iter::repeat_n(u64::MAX, count);
                let expected = ones(at).chain(copied).chain(ones(ROOM - at - count));
                assert!(expected.eq(words.iter().map(|word| word.load(Ordering::Relaxed))));

                let mut seen = vec![[0xee; 8]; ROOM];
                copy_long_out(&words[at..][..count], &mut seen[own_at..][..count]);
                assert_eq!(seen[own_at..][..count], own[own_at..][..count]);
                let mut beside = seen[..own_at].iter().chain(&seen[own_at + count..]);
                assert!(beside.all(|&word| word == [0xee; 8]));
            }
        }
    }

    /// A word is copied whole while others store to it.
    #[test]
    fn no_word_tears() {
        let words: Vec<AtomicU64> = (0..256).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..200_u8 {
                    copy_long_in(&words[1..], &vec![[turn; 8]; 255]);
                }
            });
            let mut seen = vec![[0; 8]; 255];
            while seen[254] != [199; 8] {
                copy_long_out(&words[1..], &mut seen);
                assert!(seen.iter().all(|word| word.iter().all(|&byte| byte == word[0])));
                // Whoever has begun a round has ended the one before: which is seen by who loads in the order of the addresses.
                assert!(seen.windows(2).all(|pair| pair[0][0] <= pair[1][0] + 1));
            }
        });
    }
}
