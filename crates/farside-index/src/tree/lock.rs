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
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice, Verb};
use farside_pool::Pin;
use farside_sync::Turn;

use super::Tree;
use super::layout::LOCK_AT;
use super::turns::{Come, OnChip, Place, hand_over};
use super::words::LockWord;
use crate::error::IndexError;

/// After how many attempts a waiter looks again whether the holder is still there.
pub(crate) const LOOK_ATTEMPTS: u32 = 8;

/// How many verbs give a lock back at most.
pub(super) const GIVE_BACK_VERBS: usize = 2;

/// What kind of node a lock is of: how it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Leaf,
    Inner,
}

/// A lock that this client holds, or may hold: a swap for it was posted. Settled and given back by a task when dropped, so that
/// an operation that is cancelled, fails or meets its deadline leaves nothing locked and nothing half done.
#[derive(Debug)]
pub(super) struct Held {
    tree: Tree,
    pub(super) node: RemoteAddr,
    pub(super) kind: Kind,
    pub(super) mine: LockWord,
    /// What the word has to say again when the lock is given back.
    pub(super) free: LockWord,
    /// The node stays what it is as long as the guard is there.
    pin: Option<Pin>,
    /// The turn of who holds it, if there are turns: the next one has its turn when this is dropped.
    pub(super) place: Option<Place>,
    turn: Option<Turn>,
    word: Option<OnChip>,
    /// Whether what was wanted of the node is in the buffer.
    pub(super) has_read: bool,
}

impl Held {
    /// A lock that a task settles that is started for that: nobody else does when it ends.
    pub(super) fn again(tree: &Tree, node: RemoteAddr, kind: Kind, mine: LockWord) -> Self {
        Self {
            tree: tree.clone(),
            node,
            kind,
            mine,
            free: LockWord(0),
            pin: None,
            place: None,
            turn: None,
            word: None,
            has_read: false,
        }
    }

    /// Where the word is.
    pub(super) fn at(&self) -> RemoteAddr {
        self.node.plus(LOCK_AT)
    }

    /// Adds to a batch what gives the lock back, up to [`GIVE_BACK_VERBS`]; nothing if another client of this compute node gets
    /// it as it is. Either happens when the batch has been posted, and this has [ended](Held::end).
    pub(super) fn give_back(&mut self, batch: &mut Batch, free: LockWord) {
        self.free = free;
        // Its own unlock is posted behind this batch, by a task of the same endpoint.
        self.turn = None;
        if !self.place.as_mut().is_some_and(Place::promise) {
            batch.write_word(self.at(), free.0);
            if let Some(word) = &self.word {
                word.give_back(batch);
            }
        }
    }

    /// Notes that the lock was given back, or was never ours.
    pub(super) fn end(mut self) {
        if self.place.as_ref().is_some_and(Place::is_promised) {
            return hand_over(self);
        }
        self.pin = None;
        if let Some(word) = self.word.take() {
            word.end();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.tree.settle_own(self.node, self.kind, self.mine, pin);
        }
    }
}

impl Tree {
    /// Locks a leaf when its turn has come. If the lock is probably free then, the swap brings what is `wanted` of the leaf,
    /// of which [`Held::has_read`] tells.
    pub(super) async fn lock_in_turn(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        wanted: &[Slice],
        pin: &Pin,
    ) -> Result<Held, IndexError> {
        let mut held = Held::again(self, leaf, Kind::Leaf, self.ticket());
        let mut expects_free = false;
        match self.come(cx, leaf, pin).await? {
            Come::Any => {}
            Come::Place(place, word) => {
                expects_free = word.is_some();
                (held.place, held.word) = (Some(place), word);
            }
            Come::Lock(mut handed) => {
                handed.pin = Some(pin.clone());
                return Ok(*handed);
            }
            Come::Granted(turn) => {
                held.turn = Some(turn);
                expects_free = true;
            }
        }
        held.pin = Some(pin.clone());
        self.swap_in(cx, held, if expects_free { wanted } else { &[] }).await
    }

    /// Locks a node; one whose holder has gone is settled before.
    pub(super) async fn lock(
        &self,
        cx: &mut OpContext,
        node: RemoteAddr,
        kind: Kind,
        pin: &Pin,
    ) -> Result<Held, IndexError> {
        let mut held = Held::again(self, node, kind, self.ticket());
        held.pin = Some(pin.clone());
        self.swap_in(cx, held, &[]).await
    }

    /// Swaps the word until it was free.
    async fn swap_in(&self, cx: &mut OpContext, mut held: Held, wanted: &[Slice]) -> Result<Held, IndexError> {
        let backoff = &self.shared.backoff;
        let (node, kind) = (held.node, held.kind);
        let mut attempt = 0;
        // Ends: the holder gives the lock back, or goes; the deadline is met by a verb.
        loop {
            let seen = LockWord(self.swap_if_free(cx, &mut held, wanted).await?);
            backoff.note(seen.owner().is_some());
            let Some(owner) = seen.owner() else {
                held.free = seen;
                return Ok(held);
            };
            if attempt % LOOK_ATTEMPTS == LOOK_ATTEMPTS - 1 && self.pool().is_gone(cx, owner).await? {
                let pin = held.pin.clone().expect("the lock is not given back");
                if self.settle_left(cx, node, kind, seen, &pin).await? {
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
            // Everybody who works on the structure asks for the same few internal nodes, and without turns.
            if kind == Kind::Leaf && self.spins() {
                // Others of this thread may run.
                cx.endpoint().sleep(0).await;
            } else {
                backoff.wait(cx.endpoint(), attempt).await;
            }
            attempt += 1;
        }
    }

    /// One attempt; returns what the word was.
    async fn swap_if_free(&self, cx: &mut OpContext, held: &mut Held, wanted: &[Slice]) -> Result<u64, IndexError> {
        if !wanted.is_empty() && cx.endpoint().capabilities().masked_atomics {
            let operands = held.mine.swap_if_free();
            let mut batch = Batch::new();
            let swap = batch.push(Verb::MaskedCompareSwap {
                target: held.at(),
                operands,
            });
            for &wanted in wanted {
                batch.read(held.node.plus(wanted.at.into()), wanted);
            }
            cx.post(&mut batch).await?;
            let seen = batch.result(swap);
            held.has_read = LockWord(seen).owner().is_none();
            if held.has_read {
                // Only the holder of the lock writes them.
                wanted.iter().for_each(|&wanted| cx.rely_on_within(wanted, wanted));
            } else {
                cx.validated();
            }
            return Ok(seen);
        }
        swap_if_free(cx, held.at(), held.mine).await
    }

    /// Gives a lock back under which nothing was changed.
    pub(super) async fn unlock(&self, cx: &mut OpContext, mut held: Held) -> Result<(), IndexError> {
        let mut batch = Batch::new();
        let free = held.free;
        held.give_back(&mut batch, free);
        if !batch.verbs().is_empty() {
            cx.post(&mut batch).await?;
        }
        held.end();
        Ok(())
    }

    /// Makes progress possible where a reader has found a node torn again and again: settles it if whoever writes it has gone.
    pub(super) async fn help(
        &self,
        cx: &mut OpContext,
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

/// Swaps a lock in if it is free; returns what its word was.
pub(crate) async fn swap_if_free(cx: &mut OpContext, at: RemoteAddr, mine: LockWord) -> Result<u64, IndexError> {
    if cx.endpoint().capabilities().masked_atomics {
        return Ok(cx.masked_compare_swap(at, mine.swap_if_free()).await?);
    }
    let mut seen = cx.read_word(at).await?;
    // Ends: each failure means that somebody else has held the lock meanwhile.
    while LockWord(seen).owner().is_none() {
        let before = cx.compare_swap(at, seen, mine.0).await?;
        if before == seen || is_planted("tree: a swap that has failed taken for done") {
            break;
        }
        seen = before;
    }
    Ok(seen)
}
