//! Mapped memory, looked at where it is.
//!
//! On the path: over mapped memory a READ is a few loads, and copying what is only looked at, through
//! the layers that a verb has to pass, costs more than the loads. Whoever reads so on a hot path has a
//! way with verbs beside it, which is the one for memory that is not mapped, and the one that says what
//! is wrong.

use crate::copy::copy_out;
use crate::counters::Counters;
use crate::primitive::{AtomicU64, Ordering};
use crate::verb::VerbKind;

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

    /// Loads the first two words; `None` if there are fewer.
    #[inline]
    #[must_use]
    pub fn head(self) -> Option<[u64; 2]> {
        let head: &[AtomicU64; 2] = self.words.first_chunk()?;
        Some(head.each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    /// No more than the first `count` words.
    #[inline]
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        Self {
            words: self.words.get(..count).unwrap_or(self.words),
        }
    }

    /// Copies all words to the start of `target`.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn copy_to(self, target: &mut [u8]) {
        let (target, _) = target[..self.words.len() * 8].as_chunks_mut::<8>();
        copy_out(self.words, target);
    }
}

/// Memory of one node, of which a line is looked at here and there; each that is counts as a READ.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'m> {
    words: &'m [AtomicU64],
    counters: &'m Counters,
}

impl<'m> Lines<'m> {
    pub(crate) fn new(words: &'m [AtomicU64], counters: &'m Counters) -> Self {
        Self { words, counters }
    }

    /// The line that starts at this word; `None` if it is not among them.
    #[inline]
    #[must_use]
    pub fn at(self, word: usize) -> Option<Line<'m>> {
        let words = self.words.get(word..)?.first_chunk()?;
        self.counters.count_doorbell();
        self.counters.count(VerbKind::Read, size_of_val(words) as u64);
        Some(Line { words })
    }
}

/// Eight words of mapped memory. Others may write them meanwhile, as with a [`View`].
#[derive(Clone, Copy, Debug)]
pub struct Line<'m> {
    words: &'m [AtomicU64; 8],
}

impl Line<'_> {
    /// Loads a word.
    ///
    /// # Panics
    /// If the line has fewer.
    #[inline]
    #[must_use]
    pub fn word(self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }

    /// The first word whose highest byte is this, and which it is. No more words are loaded than it takes.
    #[inline]
    #[must_use]
    pub fn first_with(self, highest: u8) -> Option<(usize, u64)> {
        for (index, word) in self.words.iter().enumerate() {
            let word = word.load(Ordering::Acquire);
            if word >> 56 == u64::from(highest) {
                return Some((index, word));
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..20_u64).map(|word| AtomicU64::new(word << 56 | 1)).collect()
    }

    #[test]
    fn the_first_word_with_a_byte_is_found() {
        let (words, counters) = (words(), Counters::default());
        let lines = Lines::new(&words, &counters);
        let line = lines.at(8).expect("there is a line");
        assert_eq!(line.word(3), 11 << 56 | 1);
        for (byte, index) in (8..16).zip(0..) {
            assert_eq!(line.first_with(byte), Some((index, u64::from(byte) << 56 | 1)));
        }
        assert_eq!([line.first_with(7), line.first_with(16)], [None, None]);
        words[15].store(9 << 56, Ordering::Release);
        assert_eq!(line.first_with(9), Some((1, 9 << 56 | 1)));
    }

    #[test]
    fn each_line_that_is_looked_at_counts() {
        let (words, counters) = (words(), Counters::default());
        let lines = Lines::new(&words, &counters);
        assert!([0, 8, 12].iter().all(|&word| lines.at(word).is_some()));
        assert!([13, 20, usize::MAX].iter().all(|&word| lines.at(word).is_none()));
        let counted = counters.snapshot();
        assert_eq!(
            (counted.verbs.of(VerbKind::Read), counted.doorbells, counted.bytes_read),
            (3, 3, 192)
        );
    }

    #[test]
    fn no_more_is_copied_than_is_wanted() {
        let words = words();
        let view = View::new(&words);
        assert_eq!(
            (view.head(), View::new(&words[..1]).head()),
            (Some([1, 1 << 56 | 1]), None)
        );
        let mut target = [7; 24];
        view.first(2).copy_to(&mut target);
        assert_eq!(
            target[..16],
            [[1_u64, 1 << 56 | 1].map(u64::to_ne_bytes)].concat().concat()
        );
        assert_eq!(target[16..], [7; 8]);
    }
}
