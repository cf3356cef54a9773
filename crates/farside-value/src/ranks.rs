//! Elements by chance: which ranks are drawn. Every element has the same chance.

use std::collections::BTreeSet;

/// How many elements are drawn, as SRANDMEMBER, HRANDFIELD and ZRANDMEMBER have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Draw {
    /// So many different ones, or all if there are fewer.
    Distinct(u64),
    /// So many, each independent of the others.
    Repeated(u64),
}

impl Draw {
    /// What a count in a command means: a negative one allows repetitions.
    #[must_use]
    pub const fn from_count(count: i64) -> Self {
        if count < 0 {
            Self::Repeated(count.unsigned_abs())
        } else {
            Self::Distinct(count.unsigned_abs())
        }
    }

    /// Calls `each` with every rank that is drawn, below `count`, which is not 0. Different ones are ascending.
    pub(crate) fn ranks(self, count: u64, random: &mut dyn FnMut(u64) -> u64, each: &mut dyn FnMut(u64)) {
        match self {
            Self::Repeated(drawn) => (0..drawn).for_each(|_| each(random(count))),
            Self::Distinct(drawn) if drawn >= count => (0..count).for_each(each),
            Self::Distinct(drawn) => distinct(count, drawn, random).into_iter().for_each(each),
        }
    }
}

/// `drawn` different ranks below `count`, of which there are at least as many.
pub(crate) fn distinct(count: u64, drawn: u64, random: &mut dyn FnMut(u64) -> u64) -> BTreeSet<u64> {
    // Floyd's algorithm: each step adds one rank, and all sets of ranks are equally likely.
    let mut ranks = BTreeSet::new();
    for last in count - drawn..count {
        if !ranks.insert(random(last + 1)) {
            ranks.insert(last);
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_set_of_ranks_has_the_same_chance() {
        // All draws of 2 of 4: the first is below 3, the second below 4.
        let mut seen = BTreeMap::new();
        for first in 0..3 {
            for second in 0..4 {
                let mut draws = [first, second].into_iter();
                let ranks = distinct(4, 2, &mut |_| draws.next().expect("two draws"));
                *seen.entry(ranks).or_insert(0) += 1;
            }
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|&count| count == 2), "{seen:?}");
    }

    #[test]
    fn a_draw_has_as_many_as_were_asked_for() {
        for (count, drawn) in [(0, 0), (3, 3), (9, 5), (-3, 3), (-9, 9)] {
            let mut ranks = Vec::new();
            Draw::from_count(count).ranks(5, &mut |bound| bound - 1, &mut |rank| ranks.push(rank));
            assert_eq!(ranks.len(), drawn);
            assert!(ranks.iter().all(|&rank| rank < 5));
        }
    }
}
