//! What a node's memory held before verbs changed it, so that it can be made so again.
//!
//! On the path: none unless it is asked for. Measurements begin with the same memory again and again; what a run of some
//! milliseconds changes is little beside what it takes to lay out a node.
//!
//! Invariant: `words` names every word that was changed since the journal was begun, with what it held directly before, in
//! the order of the changes.

use core::ops::Range;

use crate::primitive::Ordering;
use crate::region::Region;

/// The journal of a node.
#[derive(Default, Debug)]
pub(super) struct Journal {
    is_kept: bool,
    words: Vec<(u64, u64)>,
}

impl Journal {
    /// From now on changes are noted.
    pub(super) fn begin(&mut self) {
        self.is_kept = true;
    }

    /// The bytes are about to be changed.
    #[inline]
    pub(super) fn note(&mut self, region: &Region, part: Range<u64>) {
        if self.is_kept {
            self.keep(region, part);
        }
    }

    fn keep(&mut self, region: &Region, part: Range<u64>) {
        for offset in (part.start / 8 * 8..part.end).step_by(8) {
            self.words.push((offset, region.word(offset).load(Ordering::Relaxed)));
        }
    }

    /// Makes the memory what it was when the journal was begun, and ends it.
    pub(super) fn undo(&mut self, region: &Region) {
        self.is_kept = false;
        for (offset, word) in self.words.drain(..).rev() {
            region.word(offset).store(word, Ordering::Relaxed);
        }
    }
}
