//! The trees by name: what indexes in the order of keys, the fault harness and the benchmarks pick from.
//!
//! On the path: nowhere; a tree is opened with a [`Shape`].

use super::Shape;
use crate::{chime, marlin, rolex, sherman};

/// What the leaves of a tree are, and whether they are found by models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeKind {
    /// Hopscotch hash tables: see [`chime`].
    Chime,
    /// Entries in no order: see [`sherman`].
    Sherman,
    /// Entries in no order, claimed one by one: see [`marlin`].
    Marlin,
    /// Entries in no order, below models: see [`rolex`].
    Rolex,
    /// Hopscotch hash tables below models: see [`rolex`].
    ChimeLearned,
}

impl TreeKind {
    /// Every tree with its name and one line about it.
    pub const ALL: [(Self, &'static str, &'static str); 5] = [
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
        (
            Self::Marlin,
            "marlin",
            "Marlin: a B+ tree of data pointers, whose leaves several clients change at the same time",
        ),
        (
            Self::Rolex,
            "rolex",
            "ROLEX: small leaves, of which a model of the keys says where one is, and its neighbours are read as well",
        ),
        (
            Self::ChimeLearned,
            "chime-learned",
            "CHIME's leaves, of which a model of the keys says where one is",
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
        match (shape.is_hashed(), shape.is_learned()) {
            _ if shape.has_claims() => Self::Marlin,
            (true, false) => Self::Chime,
            (false, false) => Self::Sherman,
            (false, true) => Self::Rolex,
            (true, true) => Self::ChimeLearned,
        }
    }

    /// Whether leaves are hash tables, of which a client may remember where hot entries are.
    #[must_use]
    pub fn is_hashed(self) -> bool {
        matches!(self, Self::Chime | Self::ChimeLearned)
    }

    /// Whether there are trees of values of this kind, and not of data pointers alone.
    #[must_use]
    pub fn has_values(self) -> bool {
        !self.published_leaf().has_pointers()
    }

    /// Those of which there are trees of values.
    pub fn of_values() -> impl Iterator<Item = Self> {
        let kinds = Self::ALL.iter().map(|&(kind, ..)| kind);
        kinds.filter(|kind| kind.has_values())
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
            Self::Marlin => Shape::unsorted(span).with_claims(),
            Self::Rolex => Shape::unsorted(span).learned(),
            Self::ChimeLearned => Shape::hopscotch(span, neighbourhood).learned(),
        }
    }

    /// The published leaf.
    #[must_use]
    pub fn published_leaf(self) -> Shape {
        match self {
            Self::Chime => chime::LEAF,
            Self::Sherman => sherman::LEAF,
            Self::Marlin => marlin::LEAF,
            Self::Rolex => rolex::LEAF,
            Self::ChimeLearned => chime::LEAF.learned(),
        }
    }
}
