//! Hopscotch hashing in a leaf: where a key may be, and who moves when another one comes (CHIME, sections 2.3, 4.1.2).
//!
//! On the path: an INSERT that holds the leaf's lock plans here what it will write; a SEARCH that has read a neighbourhood
//! checks here that it was whole.
//!
//! A leaf is a circle of entries. A key is hashed to its *home*, and stands within a *neighbourhood* of so many entries
//! from there on. If all of these are taken, others hop out of the way: the first vacant entry after the home is brought
//! nearer, entry by entry, by moving into it the farthest key whose own neighbourhood reaches it.
//!
//! # A READ beside an INSERT
//! Each home has a *bitmap* of where its keys are, and an entry is read as it was before or after a change, never torn (its
//! version sees to that). A READ of a neighbourhood may still see some of its entries before an INSERT and some after it,
//! and miss a key that has hopped over it. It notices: [`Leaf::bitmap`] of what it has read differs from the bitmap that it
//! has read then. *Proof*: a key of this home that hops from `a` to `b` changes two bits of the bitmap, and who comes to
//! stand at `a` has another home, or nobody does. Otherwise the one who comes could have hopped to `b` itself, or
//! have been put there: it is at least as far from `b`, and the farthest goes first. So where the READ sees `a` after
//! and `b` before, bit `a` of what it has read is clear, and bit `b` as well; the old bitmap has the first and the new one the
//! second.

/// The largest neighbourhood: bitmaps have 16 bits (CHIME, section 4.1).
pub const NEIGHBOURHOOD_MAX: usize = 16;

/// The shape of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    span: usize,
    neighbourhood: usize,
}

/// A key that moves out of the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Where it stands.
    pub from: usize,
    /// Where it goes; vacant by then.
    pub to: usize,
}

/// Where a new key goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    /// The keys that move before, in this order.
    pub hops: Vec<Hop>,
    /// The entry for the new key; vacant by then.
    pub at: usize,
    /// How many entries from the home on are concerned, the bitmaps of those who move included: the *hop range*.
    pub range: usize,
}

/// Why there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stuck {
    /// Every entry is taken.
    Full,
    /// The vacant entry cannot be brought nearer than this: none of the keys before it may stand there.
    At(usize),
}

impl Leaf {
    /// A leaf of so many entries, with neighbourhoods of so many.
    ///
    /// # Panics
    /// If the neighbourhood is empty, larger than [`NEIGHBOURHOOD_MAX`], or larger than the leaf.
    #[must_use]
    pub const fn new(span: usize, neighbourhood: usize) -> Self {
        assert!(
            0 < neighbourhood && neighbourhood <= NEIGHBOURHOOD_MAX && neighbourhood <= span,
            "a neighbourhood has 1 to 16 entries, and no more than the leaf"
        );
        Self { span, neighbourhood }
    }

    /// A leaf in which a key may be anywhere: one neighbourhood, of any size.
    ///
    /// # Panics
    /// If there are no entries.
    #[must_use]
    pub(crate) const fn anywhere(span: usize) -> Self {
        assert!(span > 0, "a leaf has entries");
        Self {
            span,
            neighbourhood: span,
        }
    }

    /// How many entries there are.
    #[inline(always)]
    #[must_use]
    pub const fn span(self) -> usize {
        self.span
    }

    /// How many entries a key may be in.
    #[inline(always)]
    #[must_use]
    pub const fn neighbourhood(self) -> usize {
        self.neighbourhood
    }

    /// The entry `steps` after another one.
    #[inline(always)]
    #[must_use]
    pub const fn after(self, entry: usize, steps: usize) -> usize {
        self.wrapped(entry + steps)
    }

    /// How many steps it is from one entry on to another one.
    #[inline(always)]
    #[must_use]
    pub const fn steps(self, from: usize, to: usize) -> usize {
        self.wrapped(to + self.span - from)
    }

    /// An entry of the circle that was gone round once at most; cheaper than a division.
    #[inline(always)]
    const fn wrapped(self, entry: usize) -> usize {
        debug_assert!(entry < 2 * self.span);
        if entry < self.span { entry } else { entry - self.span }
    }

    /// Whether a key with this home may stand in an entry.
    #[must_use]
    pub const fn reaches(self, home: usize, entry: usize) -> bool {
        self.steps(home, entry) < self.neighbourhood
    }

    /// The entries that a key with this home may stand in, nearest first.
    #[inline(always)]
    pub fn neighbours(self, home: usize) -> impl Iterator<Item = usize> + Clone {
        (0..self.neighbourhood).map(move |steps| self.after(home, steps))
    }

    /// The bitmap of a home, told from the homes of who stands in its neighbourhood: bit `n` says that the `n`th entry
    /// from the home on has a key of this home.
    pub fn bitmap(self, home: usize, home_at: impl Fn(usize) -> Option<usize>) -> u16 {
        let is_own = |&(_, entry): &(usize, usize)| home_at(entry) == Some(home);
        let own = self.neighbours(home).enumerate().filter(is_own);
        own.fold(0, |bits, (steps, _)| bits | 1 << steps)
    }

    /// Where a new key with this home goes. `home_at` says whose home an entry's key has, `None` if the entry is vacant.
    ///
    /// # Errors
    /// [`Stuck`]: the leaf has to be split.
    pub fn make_room(self, home: usize, home_at: impl Fn(usize) -> Option<usize>) -> Result<Room, Stuck> {
        let from_home = (0..self.span).map(|steps| self.after(home, steps));
        let first = from_home.clone().find(|&entry| home_at(entry).is_none());
        let mut at = first.ok_or(Stuck::Full)?;
        let range = self.steps(home, at) + 1;
        let mut hops = Vec::new();
        // Ends: each hop brings the vacant entry nearer to the home.
        while !self.reaches(home, at) {
            // All of these are taken, as the vacant entry was the first; who has hopped stands behind it.
            let before = (1..self.neighbourhood)
                .rev()
                .map(|steps| self.after(at, self.span - steps));
            let may_hop = |&entry: &usize| home_at(entry).is_some_and(|own| self.reaches(own, at));
            let from = before.clone().find(may_hop).ok_or(Stuck::At(at))?;
            hops.push(Hop { from, to: at });
            at = from;
        }
        Ok(Room { hops, at, range })
    }
}

#[cfg(test)]
mod tests;
