//! Transactions of one thread's clients that are in each other's way go one after the other.
//!
//! On the path: between an attempt in vain and the next one. An attempt that meets another finds that out at its end, when it has
//! read and written for nothing; with sixty clients on the same keys nearly all of them do. So whoever was overtaken takes a *turn*
//! for all of its keys before it tries again, and who comes after it waits for one, too. Nothing depends on it: clients elsewhere, and
//! operations on one key, are not kept out, and are met as before.
//!
//! Turns are taken in the order of keys, so nobody waits in a circle, and for each key in the order of coming. There are none but those that
//! somebody has or waits for: would keys share some, transactions that meet nobody would wait for each other.

use core::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// A key, and the turn that somebody has for it or waits for.
type Taken = (Rc<[u8]>, Arc<Mutex<()>>);

/// The turns of an opening of a store.
#[derive(Default, Debug)]
pub(crate) struct Turns {
    /// In the order of keys.
    taken: RefCell<Vec<Taken>>,
}

/// It is the turn of some keys' transaction, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    all: &'t Turns,
    held: Vec<OwnedMutexGuard<()>>,
}

fn find(taken: &[Taken], key: &[u8]) -> Result<usize, usize> {
    taken.binary_search_by(|(other, _)| (**other).cmp(key))
}

impl Turns {
    /// Whether somebody has a turn for one of these keys, or waits for it.
    #[inline]
    pub(crate) fn are_taken(&self, keys: &[&[u8]]) -> bool {
        let taken = self.taken.borrow();
        !taken.is_empty() && keys.iter().any(|key| find(&taken, key).is_ok())
    }

    /// Waits for the turns of some keys, which come in order, each once.
    pub(crate) async fn take<'t>(&'t self, keys: &[&[u8]]) -> Turn<'t> {
        let held = Vec::with_capacity(keys.len());
        let mut turn = Turn { all: self, held };
        for key in keys {
            let next = self.of(key);
            turn.held.push(next.lock_owned().await);
        }
        turn
    }

    fn of(&self, key: &[u8]) -> Arc<Mutex<()>> {
        let mut taken = self.taken.borrow_mut();
        let at = find(&taken, key).unwrap_or_else(|at| {
            taken.insert(at, (key.into(), Arc::default()));
            at
        });
        Arc::clone(&taken[at].1)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held.clear();
        // Whoever waits for one has it, too.
        let mut taken = self.all.taken.borrow_mut();
        taken.retain(|(_, turn)| Arc::strong_count(turn) > 1);
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn turns_are_taken_one_after_the_other_and_given_back() {
        let turns = Turns::default();
        let keys: [&[u8]; 2] = [b"a", b"b"];
        assert!(!turns.are_taken(&keys));
        let context = &mut Context::from_waker(Waker::noop());
        let mut first = pin!(turns.take(&keys));
        let Poll::Ready(first) = first.as_mut().poll(context) else {
            panic!("nobody else is there");
        };
        assert!(turns.are_taken(&keys[1..]));
        let mut second = pin!(turns.take(&keys[1..]));
        assert!(second.as_mut().poll(context).is_pending());
        drop(first);
        assert!(!turns.are_taken(&keys[..1]));
        assert!(second.as_mut().poll(context).is_ready());
        // Given up in the middle.
        {
            let _held = pin!(turns.take(&keys)).poll(context);
            assert!(pin!(turns.take(&keys)).poll(context).is_pending());
        }
        assert!(!turns.are_taken(&keys));
        assert!(turns.taken.borrow().is_empty());
    }
}
