//! Tasks of a store that go on beside its sessions: a client does not leave the pool in the middle of their work.
//!
//! On the path: nowhere. A step of the sweeper or of eviction is a *turn*. What it has unlinked it retires a moment
//! later; a client that left in between would lose the block to everybody.
//!
//! Invariant: once the store closes no turn begins, and it goes on closing when the last one has ended.

use core::cell::Cell;

/// The turns that are under way.
#[derive(Default, Debug)]
pub(crate) struct Background {
    turns: Cell<u32>,
    is_closing: Cell<bool>,
}

/// A step of a task; dropped at its end.
#[derive(Debug)]
pub(crate) struct Turn<'b>(&'b Background);

impl Background {
    /// Begins a step; `None` if the store is closing, and the task has to end.
    pub(crate) fn begin(&self) -> Option<Turn<'_>> {
        if self.is_closing.get() {
            return None;
        }
        self.turns.set(self.turns.get() + 1);
        Some(Turn(self))
    }

    /// Lets no turn begin any more.
    pub(crate) fn close(&self) {
        self.is_closing.set(true);
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.turns.get() == 0
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns.set(self.0.turns.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_turn_begins_after_closing() {
        let background = Background::default();
        let turn = background.begin().expect("it is open");
        background.close();
        assert!(background.begin().is_none() && !background.is_idle());
        drop(turn);
        assert!(background.is_idle());
    }
}
