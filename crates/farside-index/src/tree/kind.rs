//! The trees by name: what indexes in the order of keys, the fault harness and the benchmarks pick from.
//!
//! On the path: nowhere; a tree is opened with a [`Shape`].

use super::Shape;
use crate::{chime, sherman};

/// What the leaves of a tree are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeKind {
    /// Hopscotch hash tables: see [`chime`].
    Chime,
    /// Entries in no order: see [`sherman`].
    Sherman,
}

impl TreeKind {
    /// Every tree with its name and one line about it.
    pub const ALL: [(Self, &'static str, &'static str); 2] = [
        (
            Self::Chime,
            "chime",
            "CHIME: a B+ tree whose leaves are hopscotch hash tables, of which a read takes a neighbourhood",
        ),
        (
            Self::Sherman,
            "sherman",
            "Sherman: a B+ tree whose leaves are read as a whole and written entry by entry",
        ),
    ];

    /// The tree with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, known, _)| *known == name);
        found.map(|&(kind, ..)| kind)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(kind, ..)| *kind == self);
        let (_, name, _) = found.expect("all are listed");
        name
    }

    /// The tree whose leaves look like this.
    #[must_use]
    pub fn of_shape(shape: Shape) -> Self {
        if shape.is_hashed() { Self::Chime } else { Self::Sherman }
    }

    /// A leaf of this kind. `neighbourhood` means nothing where a key may be anywhere.
    ///
    /// # Panics
    /// If that is no leaf: see [`Shape::hopscotch`] and [`Shape::unsorted`].
    #[must_use]
    pub fn leaf(self, span: usize, neighbourhood: usize) -> Shape {
        match self {
            Self::Chime => Shape::hopscotch(span, neighbourhood),
            Self::Sherman => Shape::unsorted(span),
        }
    }

    /// The published leaf.
    #[must_use]
    pub fn published_leaf(self) -> Shape {
        match self {
            Self::Chime => chime::LEAF,
            Self::Sherman => sherman::LEAF,
        }
    }
}
