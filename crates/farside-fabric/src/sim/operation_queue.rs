//! Operations that wait in order, linked through their slots.
//!
//! On the path: a processing unit has one for what has arrived, a locked address one for the atomics
//! that wait for it. An operation is in at most one queue at a time.

use super::operation::{NONE, Operations};

/// A first-in, first-out queue of operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationQueue {
    head: u32,
    tail: u32,
    count: u32,
}

impl OperationQueue {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        count: 0,
    };

    /// The oldest operation, or `NONE`.
    #[inline]
    pub(super) fn head(self) -> u32 {
        self.head
    }

    #[inline]
    pub(super) fn count(self) -> u32 {
        self.count
    }

    #[inline]
    pub(super) fn push(&mut self, operations: &mut Operations, index: u32) {
        operations[index].next = NONE;
        if self.head == NONE {
            self.head = index;
        } else {
            operations[self.tail].next = index;
        }
        self.tail = index;
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self, operations: &Operations) -> Option<u32> {
        if self.head == NONE {
            return None;
        }
        let index = self.head;
        self.head = operations[index].next;
        self.count -= 1;
        Some(index)
    }

    /// Takes the operation behind `previous` out; the oldest if that is `NONE`.
    #[inline]
    pub(super) fn remove_behind(&mut self, previous: u32, operations: &mut Operations) -> Option<u32> {
        if previous == NONE {
            return self.pop(operations);
        }
        let index = operations[previous].next;
        if index == NONE {
            return None;
        }
        operations[previous].next = operations[index].next;
        if self.tail == index {
            self.tail = previous;
        }
        self.count -= 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::super::operation::Work;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_queue_behaves_like_a_vector(steps in proptest::collection::vec(0_usize..6, 1..200)) {
            let mut operations = Operations::default();
            let mut queue = OperationQueue::EMPTY;
            let mut model: Vec<u32> = Vec::new();
            for step in steps {
                if step < 3 {
                    let index = operations.insert(Work::Sleep, 0);
                    queue.push(&mut operations, index);
                    model.push(index);
                } else {
                    let at = (step - 3).min(model.len().saturating_sub(1));
                    let previous = if at == 0 { NONE } else { model[at - 1] };
                    let expected = (at < model.len()).then(|| model.remove(at));
                    prop_assert_eq!(queue.remove_behind(previous, &mut operations), expected);
                }
                prop_assert_eq!(queue.count() as usize, model.len());
                prop_assert_eq!(queue.head(), model.first().copied().unwrap_or(NONE));
            }
        }
    }
}
