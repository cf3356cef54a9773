//! The readers' word of RMA-RW: how many are inside, how many have come, and whether it is the writers' turn.

use farside_fabric::mutant::is_planted;

/// How many readers come before they give way to a writer that waits (`T_R`).
pub const READERS_MAX: u64 = 4_000;

crate::bit_fields! {
    /// All zeros: nobody is inside.
    pub struct Readers {
        /// Readers that are inside, or about to find out that they are not.
        inside, with_inside: 0..24;
        /// Readers that have come since a writer was there; those that left count as well.
        arrived, with_arrived: 24..56;
        /// Whether the lock is the writers'.
        writing, with_writing: 56..57;
    }
}

impl Readers {
    /// Nobody.
    pub const NOBODY: Self = Self(0);
    /// What a fetch-and-add adds when a reader comes.
    pub const COMING: u64 = Self::NOBODY.with_inside(1).with_arrived(1).0;
    /// What a fetch-and-add adds when a reader goes that was inside.
    pub const LEAVING: u64 = Self::NOBODY.with_inside(1).0.wrapping_neg();
    /// What a fetch-and-add adds when a reader goes that was not.
    pub const TURNING_BACK: u64 = Self::COMING.wrapping_neg();
    /// What a fetch-and-add adds when the writers give the lock to the readers.
    pub const ENDING_WRITING: u64 = Self::NOBODY.with_writing(1).0.wrapping_neg();

    /// Whether a reader that found this word when it came is inside.
    #[inline]
    #[must_use]
    pub fn admits(self) -> bool {
        self.arrived() < READERS_MAX
            && (self.writing() == 0 || is_planted("rma-rw: a reader that does not wait for writers"))
    }

    /// The word of a lock that has become the writers', or `None` while readers are inside.
    #[must_use]
    pub fn begin_writing(self) -> Option<Self> {
        let is_free = self.writing() == 0 && self.inside() == 0;
        is_free.then(|| Self::NOBODY.with_writing(1))
    }

    /// What a fetch-and-add adds when a writer marks the lock as the writers', whoever is inside.
    pub const BEGINNING_WRITING: u64 = Self::NOBODY.with_writing(1).0;

    /// What a fetch-and-add adds when the writers, who found this word, give the lock to the readers, who count from the beginning;
    /// but for those who are about to count themselves out again.
    #[must_use]
    pub fn ending_writing(self) -> u64 {
        let gone = self.arrived() - self.inside();
        Self::ENDING_WRITING.wrapping_sub(Self::NOBODY.with_arrived(gone).0)
    }

    /// The word when nobody wants to write: readers count from the beginning, but for those who are there
    /// and may count themselves out again.
    #[must_use]
    pub fn counted_anew(self) -> Self {
        self.with_arrived(self.inside())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words() -> impl Strategy<Value = Readers> {
        (0_u64..1 << 20, 0_u64..1 << 20, 0_u64..2).prop_map(|(inside, more, writing)| {
            Readers::NOBODY
                .with_inside(inside)
                .with_arrived(inside + more)
                .with_writing(writing)
        })
    }

    proptest! {
        #[test]
        fn readers_come_and_go(word in words()) {
            let after = Readers(word.0.wrapping_add(Readers::COMING));
            prop_assert_eq!((after.inside(), after.arrived(), after.writing()), (word.inside() + 1, word.arrived() + 1, word.writing()));
            prop_assert_eq!(after.0.wrapping_add(Readers::TURNING_BACK), word.0);
            prop_assert!(word.counted_anew().arrived() >= word.inside());
            let left = Readers(after.0.wrapping_add(Readers::LEAVING));
            prop_assert_eq!((left.inside(), left.arrived(), left.writing()), (word.inside(), after.arrived(), word.writing()));
        }

        #[test]
        fn writers_begin_without_readers_and_end_whoever_comes(word in words(), coming in 0_u64..100) {
            prop_assert_eq!(word.begin_writing().is_some(), word.inside() == 0 && word.writing() == 0);
            let writing = Readers::NOBODY.begin_writing().expect("nobody is inside");
            prop_assert!(!writing.admits());
            let marked = Readers(word.with_writing(0).0.wrapping_add(Readers::BEGINNING_WRITING));
            prop_assert_eq!((marked.writing(), marked.admits()), (1, false));
            prop_assert_eq!(Readers(marked.0.wrapping_add(marked.ending_writing())), word.with_writing(0).counted_anew());
            // Readers that will find out that they are not inside.
            let crowded = Readers(writing.0.wrapping_add(coming * Readers::COMING));
            let ended = Readers(crowded.0.wrapping_add(Readers::ENDING_WRITING));
            prop_assert_eq!((ended.writing(), ended.inside()), (0, coming));
            prop_assert_eq!(ended.0.wrapping_add((coming).wrapping_mul(Readers::TURNING_BACK)), 0);
        }
    }
}
