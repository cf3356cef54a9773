//! Mapped memory, looked at where it is.
//!
//! On the path: over mapped memory a READ is a few loads, and copying what is only looked at, through
//! the layers that a verb has to pass, costs more than the loads. Whoever reads so on a hot path has a
//! way with verbs beside it, which is the one for memory that is not mapped, and the one that says what
//! is wrong.

use crate::primitive::{AtomicU64, Ordering};

/// Some aligned words of mapped memory. Others may write them meanwhile: two loads of a word need not
/// agree, and words of different age stand side by side, as with a READ that tears.
#[derive(Clone, Copy, Debug)]
pub struct View<'m> {
    words: &'m [AtomicU64],
}

impl<'m> View<'m> {
    pub(crate) fn new(words: &'m [AtomicU64]) -> Self {
        Self { words }
    }

    /// Loads a line of eight words.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    #[must_use]
    pub fn line(self) -> [u64; 8] {
        let line: &[AtomicU64; 8] = self.words.first_chunk().expect("a line was asked for");
        line.each_ref().map(|word| word.load(Ordering::Acquire))
    }

    /// Copies all words to the start of `target`.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn copy_to(self, target: &mut [u8]) {
        let (target, _) = target[..self.words.len() * 8].as_chunks_mut::<8>();
        copy_words(self.words, target);
    }
}

/// Copies words, half a line at a time as far as that goes.
#[inline]
pub(crate) fn copy_words(words: &[AtomicU64], target: &mut [[u8; 8]]) {
    let (halves, rest) = words.as_chunks::<4>();
    let (targets, rest_targets) = target.as_chunks_mut::<4>();
    for (target, words) in targets.iter_mut().zip(halves) {
        *target = words.each_ref().map(|word| word.load(Ordering::Acquire).to_ne_bytes());
    }
    for (target, word) in rest_targets.iter_mut().zip(rest) {
        *target = word.load(Ordering::Acquire).to_ne_bytes();
    }
}
