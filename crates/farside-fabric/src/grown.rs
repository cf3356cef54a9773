//! A list that grows while its elements are borrowed: the nodes that an endpoint reaches, and what a pool knows of them.
//!
//! On the path: every verb looks its node up here, which is what it would be in a slice. A node that is added or dropped
//! while operations are under way makes a new slice; the old ones stay until the list goes, since somebody may hold a
//! reference into them. That is rare, and an element is small.
//!
//! Invariant: `now` is the last of `kept`, and nothing in `kept` is changed or freed before the list is dropped.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

/// A list of elements, of which a shared reference may make a longer one.
pub struct Grown<T> {
    now: Cell<NonNull<[T]>>,
    kept: RefCell<Vec<NonNull<[T]>>>,
}

impl<T: Clone> Grown<T> {
    /// A list of these.
    #[must_use]
    pub fn new(elements: Vec<T>) -> Self {
        let now = leak(elements);
        Self {
            now: Cell::new(now),
            kept: RefCell::new(vec![now]),
        }
    }

    /// Puts another list in its place, made of a copy. Whoever has borrowed an element keeps the old one.
    pub fn change(&self, change: impl FnOnce(&mut Vec<T>)) {
        let mut elements = self.to_vec();
        change(&mut elements);
        let now = leak(elements);
        self.kept.borrow_mut().push(now);
        self.now.set(now);
    }
}

fn leak<T>(elements: Vec<T>) -> NonNull<[T]> {
    NonNull::from(Box::leak(elements.into_boxed_slice()))
}

impl<T> Deref for Grown<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `now` came from a box that was leaked, nobody changes what is in it, and it is freed when this list is
        // dropped, which the reference does not outlive.
        unsafe { self.now.get().as_ref() }
    }
}

impl<T> Drop for Grown<T> {
    fn drop(&mut self) {
        for kept in self.kept.get_mut().drain(..) {
            // SAFETY: each was leaked once, by `leak`, and nobody borrows from a list that is dropped.
            drop(unsafe { Box::from_raw(kept.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Grown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn what_was_borrowed_stays_while_the_list_changes() {
        let element = Rc::new(7);
        let list = Grown::new(vec![Rc::clone(&element)]);
        let first = &list[0];
        list.change(|elements| elements.push(Rc::new(8)));
        list.change(|elements| elements[0] = Rc::new(9));
        assert_eq!((**first, *list[0], *list[1], list.len()), (7, 9, 8, 2));
        assert_eq!(Rc::strong_count(&element), 3, "the first two slices keep it");
        drop(list);
        assert_eq!(Rc::strong_count(&element), 1);
    }
}
