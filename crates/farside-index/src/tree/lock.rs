//! The locks of nodes: a word that names its holder, and while it is free says which entries of a leaf are vacant.
//!
//! On the path: INSERT, UPDATE and DELETE lock a leaf; whoever changes the structure locks the nodes that it writes.
//!
//! One masked compare-and-swap compares the one bit that says whether the lock is held, and swaps the whole word, so that it
//! brings what the word said (CHIME, section 4.2.1). Where there are no masked atomics it takes a READ of the word first.
//! The lock is given back by a WRITE of the word, behind all others of its batch.
//!
//! CHIME swaps in a word of ones, and keeps the position of the largest key beside the bitmap. Here the word says who holds
//! the lock, so that others can tell whether the holder is still there; which leaf a key belongs to is told by the
//! fences in the header, which stay right when the largest key is deleted.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Endpoint, MaskedCas, OpContext, RemoteAddr};
use farside_pool::Pin;

use super::Tree;
use super::layout::{LOCK_AT, LockWord};
use crate::error::IndexError;

/// After how many attempts a waiter looks again whether the holder is still there.
const LOOK_ATTEMPTS: u32 = 8;

/// What kind of node a lock is of: how it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Leaf,
    Inner,
}

/// A lock that this client holds, or may hold: a swap for it was posted. Settled and given back by a task when dropped, so that
/// an operation that is cancelled, fails or meets its deadline leaves nothing locked and nothing half done.
pub(super) struct Held<E: Endpoint> {
    tree: Tree<E>,
    pub(super) node: RemoteAddr,
    pub(super) kind: Kind,
    pub(super) mine: LockWord,
    /// What the word has to say again when the lock is given back.
    pub(super) free: LockWord,
    /// The node stays what it is as long as the guard is there.
    pin: Option<Pin>,
}

impl<E: Endpoint> Held<E> {
    /// A lock that a task settles that is started for that: nobody else does when it ends.
    pub(super) fn again(tree: &Tree<E>, node: RemoteAddr, kind: Kind, mine: LockWord) -> Self {
        Self {
            tree: tree.clone(),
            node,
            kind,
            mine,
            free: LockWord(0),
            pin: None,
        }
    }

    /// Where the word is.
    pub(super) fn at(&self) -> RemoteAddr {
        self.node.plus(LOCK_AT)
    }

    /// Notes that the lock was given back, or was never ours.
    pub(super) fn end(mut self) {
        self.pin = None;
    }
}

impl<E: Endpoint> Drop for Held<E> {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.tree.settle_own(self.node, self.kind, self.mine, pin);
        }
    }
}

impl<E: Endpoint> Tree<E> {
    /// Locks a node; one whose holder has gone is settled before.
    pub(super) async fn lock(
        &self,
        cx: &mut OpContext<E>,
        node: RemoteAddr,
        kind: Kind,
        pin: &Pin,
    ) -> Result<Held<E>, IndexError> {
        let backoff = &self.shared.backoff;
        let mut held = Held {
            tree: self.clone(),
            node,
            kind,
            mine: self.ticket(),
            free: LockWord(0),
            pin: Some(pin.clone()),
        };
        let mut attempt = 0;
        // Ends: the holder gives the lock back, or goes; the deadline is met by a verb.
        loop {
            let seen = LockWord(self.swap_if_free(cx, &held).await?);
            backoff.note(seen.owner().is_some());
            let Some(owner) = seen.owner() else {
                held.free = seen;
                return Ok(held);
            };
            if attempt % LOOK_ATTEMPTS == LOOK_ATTEMPTS - 1 && self.pool().is_gone(cx, owner).await? {
                if self.settle_left(cx, node, kind, seen, pin).await? {
                    continue;
                }
                // Lost to another one who waits: it settles the node.
                if cx.compare_swap(held.at(), seen.0, held.mine.0).await? == seen.0 {
                    if !is_planted("tree: a lock taken over with what its holder has left") {
                        self.settle(cx, &mut held).await?;
                    }
                    return Ok(held);
                }
            }
            self.pool().check_reachable()?;
            cx.count_retry();
            backoff.wait(cx.endpoint(), attempt).await;
            attempt += 1;
        }
    }

    /// One attempt; returns what the word was.
    async fn swap_if_free(&self, cx: &mut OpContext<E>, held: &Held<E>) -> Result<u64, IndexError> {
        if cx.endpoint().capabilities().masked_atomics {
            let operands = MaskedCas {
                compare: 0,
                compare_mask: LockWord::HELD,
                swap: held.mine.0,
                swap_mask: u64::MAX,
            };
            return Ok(cx.masked_compare_swap(held.at(), operands).await?);
        }
        let mut seen = cx.read_word(held.at()).await?;
        // Ends: each failure means that somebody else has held the lock meanwhile.
        while LockWord(seen).owner().is_none() {
            let before = cx.compare_swap(held.at(), seen, held.mine.0).await?;
            if before == seen || is_planted("tree: a swap that has failed taken for done") {
                break;
            }
            seen = before;
        }
        Ok(seen)
    }

    /// Gives a lock back under which nothing was changed.
    pub(super) async fn unlock(&self, cx: &mut OpContext<E>, held: Held<E>) -> Result<(), IndexError> {
        cx.write_word(held.at(), held.free.0).await?;
        held.end();
        Ok(())
    }

    /// Makes progress possible where a reader has found a node torn again and again: settles it if whoever writes it has gone.
    pub(super) async fn help(
        &self,
        cx: &mut OpContext<E>,
        node: RemoteAddr,
        kind: Kind,
        pin: &Pin,
    ) -> Result<(), IndexError> {
        let seen = LockWord(cx.read_word(node.plus(LOCK_AT)).await?);
        if let Some(owner) = seen.owner()
            && self.pool().is_gone(cx, owner).await?
        {
            let held = self.lock(cx, node, kind, pin).await?;
            self.unlock(cx, held).await?;
        }
        self.pool().check_reachable()?;
        Ok(())
    }
}
