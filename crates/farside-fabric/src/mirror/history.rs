//! Where the epochs of a log ended: what tells a prefix of the log from one that has gone another way.

use super::view::View;

/// How far a member's log goes, and in which epoch its last entry came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The epoch of the primary that sent it.
    pub epoch: u64,
    /// The number of the last entry.
    pub last: u64,
}

/// How many ends are remembered; whoever was away for longer is copied anew.
const ENDS_MAX: usize = 256;

/// The epochs that a member has seen.
#[derive(Clone, Default, Debug)]
pub(super) struct History {
    /// The epoch of the last entry.
    epoch: u64,
    /// Epochs before, and the last entry of each, in order.
    ends: Vec<Position>,
}

impl History {
    /// From here on entries are of another epoch.
    pub(super) fn enter(&mut self, epoch: u64, last: u64) {
        debug_assert!(epoch >= self.epoch);
        if epoch == self.epoch {
            return;
        }
        if self.epoch != 0 {
            if self.ends.len() == ENDS_MAX {
                self.ends.remove(0);
            }
            self.ends.push(Position {
                epoch: self.epoch,
                last,
            });
        }
        self.epoch = epoch;
    }

    /// Begins anew, after a copy of a member that is at this epoch.
    pub(super) fn restart(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.ends.clear();
    }

    pub(super) fn position(&self, last: u64) -> Position {
        Position {
            epoch: self.epoch,
            last,
        }
    }

    /// Whether a log that ends at `other` is a prefix of the one that this history is of, and that ends at `last`.
    pub(super) fn continues(&self, other: Position, last: u64) -> bool {
        if other.epoch == self.epoch {
            return other.last <= last;
        }
        self.ends
            .iter()
            .any(|end| end.epoch == other.epoch && other.last <= end.last)
    }
}

/// Whether `view` is news to somebody who knows `known`.
pub(super) fn is_newer(view: &View, known: Option<&View>) -> bool {
    known.is_none_or(|known| view.epoch > known.epoch)
}
