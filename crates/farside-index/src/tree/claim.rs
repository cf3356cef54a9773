//! Entries that are claimed one by one: how INSERTs and DELETEs of one leaf go on at the same time ([`crate::marlin`]).
//!
//! On the path: INSERT and DELETE in a tree with [claims](Shape::with_claims). UPDATE needs none of it: see `slot`.
//!
//! # Who writes what of an entry
//! - *Vacant*: whoever claims it, closes it, or makes it rest.
//! - *Claimed*: the one whose name the claim bears. It writes key and pointer, then the meta word, which makes the entry taken; or
//!   gives it up by a compare-and-swap. If that client is gone anybody may do so for it.
//! - *Taken*: see `slot`. One without a pointer has a key that is no more; anybody makes it vacant, and compares.
//! - *Closed*: whoever holds the lock of the leaf.
//!
//! # INSERT
//! 1. Claim a vacant entry, and READ the leaf behind that, its lock included, in one round trip. If the lock is free the claim
//!    holds off every node write, so what the fences say stays true.
//! 2. If the lock is held, give the claim up: a node write may be under way, which has opened the entry and has not come to
//!    its end; a merge that has opened entries may still be undone. Likewise if the key is there, or the leaf is the wrong one. If
//!    another entry is claimed for what may be the same key, the lower one stays: whoever has the higher one gives it up, and
//!    the other READs again until it has. Of two that claim one key the second sees the first, so they never both go on.
//! 3. WRITE key and pointer, then the meta word.
//!
//! Nobody waits for a lock with a claim in his hand.
//!
//! # DELETE
//! 1. Swap the pointer to nothing: the key is no more. READ the leaf behind that.
//! 2. Make the entry vacant. Whoever finds the first without the second does it before it stores the key anew: who reads both
//!    entries would take the wrong one for the key's.
//!
//! # A node write
//! Under the lock of the leaf each vacant entry is closed and each taken one frozen, in no order, and claims are waited for (`close`). What
//! is then in the buffer nobody else changes. It ends with a node write, which opens all, or with the words that were there
//! before. Whoever takes the lock over from a client that died begins with the same.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Pin;
use farside_sync::Pointer;

use super::Tree;
use super::change::Step;
use super::layout::{Key, LOCK_AT, Shape};
use super::leaf::word;
use super::lock::Kind;
use super::slot::{Slot, in_place_of};
use super::task::Name;
use super::words::{LockWord, Meta, Vacancy};
use crate::error::IndexError;
use crate::item::Item;
use crate::operation::Change;

/// An entry that a search has found vacant: where a claim may succeed without another READ before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacant {
    leaf: RemoteAddr,
    entry: usize,
    vacancy: Vacancy,
}

/// A claim that this client has, or may have: a swap for it was posted. A task gives it up when this is dropped.
#[derive(Debug)]
struct Claim {
    tree: Tree,
    leaf: RemoteAddr,
    entry: usize,
    mine: Vacancy,
    /// The leaf stays what it is as long as the guard is there.
    pin: Option<Pin>,
}

impl Claim {
    /// Where the meta word of the entry is.
    fn at(&self) -> RemoteAddr {
        self.leaf.plus(self.tree.shape().entry_at(self.entry))
    }

    /// Notes that it was given up, has led to a key, or was never ours.
    fn end(mut self) {
        self.pin = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(pin) = self.pin.take() else { return };
        let (at, mine) = (self.at(), self.mine);
        self.tree.start(Name::Unclaim(at, mine.0), |tree| async move {
            let mut cx = OpContext::new(tree.pool().endpoint().clone());
            // Whatever was posted before has taken effect by now. Nobody else could open the entry as long as this client lived.
            let given_up = cx.compare_swap(at, mine.0, mine.opened().0).await;
            drop(pin);
            given_up.inspect_err(|_| tree.pool().abandon())?;
            Ok(())
        });
    }
}

impl Tree {
    /// Remembers a vacant entry of a leaf that a search has read and that does not have its key.
    #[inline]
    pub(super) fn note_vacant(&self, image: &[u8], leaf: RemoteAddr) {
        if self.shape().has_claims() {
            self.shared.vacant.set(self.choose(image, leaf));
        }
    }

    /// A vacant entry of a leaf: clients begin to look at different ones, and take none that has to rest if there is another.
    #[inline(never)]
    fn choose(&self, image: &[u8], leaf: RemoteAddr) -> Option<Vacant> {
        let (shape, epoch) = (self.shape(), self.pool().epoch());
        let ticket = self.shared.tickets.get() + u64::from(self.pool().owner().client);
        let first = shape.home_of(ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        let entries = (0..shape.span()).map(|steps| shape.circle().after(first, steps));
        let mut vacant = entries.filter(|&entry| shape.is_open(image, entry));
        let rested = vacant.clone().find(|&entry| shape.has_rested(image, entry, epoch));
        let entry = rested.or_else(|| vacant.next())?;
        Some(Vacant {
            leaf,
            entry,
            vacancy: Vacancy(shape.meta(image, entry).0),
        })
    }

    /// INSERT, one attempt; see [`Tree::attempt`].
    pub(super) async fn insert_beside(
        &self,
        cx: &mut OpContext,
        (key, value): (Key, u64),
        mut item: Option<(Item<'_>, RemoteAddr)>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        /// How often a client READs again until a rival has given up.
        const LOOKS: u32 = 8;
        let shape = self.shape();
        let place = self.locate(cx, key, pin).await?;
        let mut leaf = place.leaf;
        cx.reserve(shape.leaf_bytes() as usize);
        let mut vacant = self.shared.vacant.take().filter(|vacant| vacant.leaf == leaf);
        let (mut claim, mut torn, mut looks) = (None, 0, 0);
        // Ends: each round goes to the right, claims an entry, or waits for another client, which has made progress.
        loop {
            match vacant.take() {
                Some(vacant) => claim = self.claim_and_read(cx, (vacant, key), item.take(), pin).await?,
                None => self.read_beside(cx, leaf, item.take()).await?,
            }
            let lock = LockWord(word(cx.buffer(), LOCK_AT));
            let judged = shape.examine_all(cx.buffer());
            // By checks and versions; or it is not used.
            cx.validated();
            let Ok((fences, sibling)) = judged else {
                self.give_up(cx, claim.take()).await?;
                torn += 1;
                self.read_torn(cx, leaf, torn, pin).await?;
                continue;
            };
            if sibling.is_gone() {
                self.give_up(cx, claim.take()).await?;
                self.go_elsewhere(cx, place, key).await?;
                return Ok(Step::Again);
            }
            if claim.is_some()
                && lock.owner().is_some()
                && !is_planted("marlin: an entry claimed while its leaf is written")
            {
                self.give_up(cx, claim.take()).await?;
                return self.await_lock(cx, leaf, pin).await;
            }
            if sibling.next() != place.next && place.is_remembered && leaf == place.leaf {
                self.forget_parent(cx, key).await?;
            }
            if !fences.contains(key) {
                self.give_up(cx, claim.take()).await?;
                if key < fences.low {
                    self.forget_parent(cx, key).await?;
                    return Ok(Step::Again);
                }
                if !place.is_remembered {
                    self.complete_later(Some(leaf), sibling.next(), (0, fences.high + 1), pin);
                }
                leaf = sibling.next();
                continue;
            }
            // Ends: each round makes an entry of the image vacant.
            while let Some(entry) = shape.find(cx.buffer(), key) {
                if !shape.pointer(cx.buffer(), entry).is_null() {
                    self.give_up(cx, claim.take()).await?;
                    return Ok(Step::Done(Change::Kept, 0));
                }
                // The key is no more, and whoever has deleted it may have died.
                if !is_planted("marlin: a deleted key that is stored anew beside itself") {
                    self.open_deleted(cx, leaf, entry).await?;
                }
                let vacated = shape.vacated(cx.buffer(), entry);
                shape.set_meta(cx.buffer_mut(), entry, vacated);
            }
            let Some(held) = claim.take() else {
                vacant = self.choose(cx.buffer(), leaf);
                match vacant {
                    Some(_) => continue,
                    None if lock.owner().is_some() => return self.await_lock(cx, leaf, pin).await,
                    None => return Ok(Step::Full(leaf)),
                }
            };
            if let Some((rival, vacancy)) = shape.rival(cx.buffer(), shape.key_hash(key), held.entry) {
                looks += 1;
                if held.entry < rival && looks < LOOKS {
                    claim = Some(held);
                    continue;
                }
                self.give_up(cx, Some(held)).await?;
                self.open_if_gone(cx, leaf.plus(shape.entry_at(rival)), vacancy).await?;
                self.shared.backoff.wait(cx.endpoint(), looks).await;
                return Ok(Step::Again);
            }
            if self.must_rest(cx, leaf, &[held.entry]).await? {
                self.give_up(cx, Some(held)).await?;
                return Ok(Step::Resting);
            }
            return self.fill(cx, held, (key, value)).await;
        }
    }

    /// Lets whoever holds the lock of a leaf go on, or settles the leaf if that one is gone.
    async fn await_lock(&self, cx: &mut OpContext, leaf: RemoteAddr, pin: &Pin) -> Result<Step, IndexError> {
        self.help(cx, leaf, Kind::Leaf, pin).await?;
        self.shared.backoff.wait(cx.endpoint(), 0).await;
        Ok(Step::Again)
    }

    /// Claims an entry, READs its leaf, and writes an item to its block; returns the claim if it has succeeded.
    async fn claim_and_read(
        &self,
        cx: &mut OpContext,
        (vacant, key): (Vacant, Key),
        item: Option<(Item<'_>, RemoteAddr)>,
        pin: &Pin,
    ) -> Result<Option<Claim>, IndexError> {
        let ticket = self.ticket();
        let owner = self.pool().owner();
        let claim = Claim {
            tree: self.clone(),
            leaf: vacant.leaf,
            entry: vacant.entry,
            mine: vacant
                .vacancy
                .claimed_by(owner, self.shape().key_hash(key), ticket.ticket()),
            pin: Some(pin.clone()),
        };
        let mut batch = Batch::new();
        let swap = batch.compare_swap(claim.at(), vacant.vacancy.0, claim.mine.0);
        self.add_leaf_and_item(cx, &mut batch, vacant.leaf, item);
        cx.post(&mut batch).await?;
        if batch.result(swap) == vacant.vacancy.0 {
            return Ok(Some(claim));
        }
        claim.end();
        Ok(None)
    }

    /// READs a leaf, and writes an item to its block.
    async fn read_beside(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        item: Option<(Item<'_>, RemoteAddr)>,
    ) -> Result<(), IndexError> {
        let mut batch = Batch::new();
        self.add_leaf_and_item(cx, &mut batch, leaf, item);
        Ok(cx.post(&mut batch).await?)
    }

    fn add_leaf_and_item(
        &self,
        cx: &mut OpContext,
        batch: &mut Batch,
        leaf: RemoteAddr,
        item: Option<(Item<'_>, RemoteAddr)>,
    ) {
        batch.read(leaf, Slice::first(self.shape().leaf_bytes() as u32));
        self.add_item(cx, batch, item);
    }

    /// WRITEs key and pointer of an entry that this client has claimed, then that it is taken.
    async fn fill(&self, cx: &mut OpContext, claim: Claim, (key, value): (Key, u64)) -> Result<Step, IndexError> {
        let (shape, leaf, entry) = (self.shape(), claim.leaf, claim.entry);
        shape.set_meta(cx.buffer_mut(), entry, Meta(claim.mine.opened().0));
        shape.put(cx.buffer_mut(), entry, key, value);
        let at = shape.entry_at(entry);
        let mut batch = Batch::new();
        let source = Slice::new(at as u32 + 8, shape.entry_bytes() as u32 - 8);
        batch.write(source, leaf.plus(at + 8));
        batch.write_word(leaf.plus(at), shape.meta(cx.buffer(), entry).0);
        cx.post(&mut batch).await?;
        claim.end();
        Ok(Step::Done(Change::Inserted, 0))
    }

    async fn give_up(&self, cx: &mut OpContext, claim: Option<Claim>) -> Result<(), IndexError> {
        if let Some(claim) = claim {
            cx.compare_swap(claim.at(), claim.mine.0, claim.mine.opened().0).await?;
            claim.end();
        }
        Ok(())
    }

    /// Makes an entry vacant whose key is no more, unless it is another key's by now: it was read to the start of the buffer.
    pub(super) async fn open_deleted(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        entry: usize,
    ) -> Result<(), IndexError> {
        let shape = self.shape();
        let (meta, vacated) = (shape.meta(cx.buffer(), entry), shape.vacated(cx.buffer(), entry));
        cx.compare_swap(leaf.plus(shape.entry_at(entry)), meta.0, vacated.0)
            .await?;
        Ok(())
    }

    /// Opens an entry again if the client is gone that has claimed it.
    pub(super) async fn open_if_gone(
        &self,
        cx: &mut OpContext,
        at: RemoteAddr,
        vacancy: Vacancy,
    ) -> Result<(), IndexError> {
        if let Some(owner) = vacancy.owner()
            && !is_planted("marlin: a claim of the dead that stays")
            && self.pool().is_gone(cx, owner).await?
        {
            cx.compare_swap(at, vacancy.0, vacancy.opened().0).await?;
        }
        Ok(())
    }

    /// DELETE of a key in the slot where it was found, if its pointer is still the expected one, or whatever it is: then as long
    /// as the slot is the key's. Returns what it was, as [`Tree::attempt`].
    pub(super) async fn unlink_beside(
        &self,
        cx: &mut OpContext,
        key: Key,
        slot: Slot,
        expected: Option<u64>,
    ) -> Result<Step, IndexError> {
        let (shape, leaf) = (self.shape(), slot.leaf());
        let entry = shape.entry_of(slot.at.offset() - leaf.offset());
        cx.reserve(shape.leaf_bytes() as usize);
        let mut old = slot.pointer;
        // Ends: another client has replaced the pointer each time.
        loop {
            if old.is_null() || expected.is_some_and(|expected| expected != old.to_word()) {
                return Ok(Step::Done(Change::Kept, old.to_word()));
            }
            let mut batch = Batch::new();
            let swap = batch.compare_swap(slot.at, old.to_word(), in_place_of(Pointer::NULL, old).to_word());
            self.add_leaf_and_item(cx, &mut batch, leaf, None);
            cx.post(&mut batch).await?;
            // Entries that it seems to have are counted; the meta word is compared.
            cx.validated();
            let seen = Pointer::from_word(batch.result(swap));
            if seen == old {
                break;
            }
            if !seen.has_identity_of(old) {
                return Ok(Step::Done(Change::Kept, seen.to_word()));
            }
            old = seen;
        }
        // Unless it is another key's by now.
        let meta = shape.meta(cx.buffer(), entry);
        if is_planted("marlin: an entry vacated that may be another key's") {
            let vacated = shape.vacated(cx.buffer(), entry);
            cx.write_word(leaf.plus(shape.entry_at(entry)), vacated.0).await?;
        } else if meta == shape.meta_of(meta.version(), key, old.to_word()) {
            self.open_deleted(cx, leaf, entry).await?;
        }
        if self.height() > 0 {
            let image = cx.buffer();
            let entries = shape.entries(image);
            let left = entries.filter(|&(other, _)| !shape.pointer(image, other).is_null());
            self.consider_merge(leaf, key, left.count());
        }
        Ok(Step::Done(Change::Deleted, old.to_word()))
    }

    /// The same for whoever has not looked for the slot: whatever the pointer is.
    pub(super) async fn unlink_found(&self, cx: &mut OpContext, key: Key, pin: &Pin) -> Result<Step, IndexError> {
        let mut round = 0;
        // Ends: another client has replaced the pointer each time, or is waited for.
        loop {
            let Some(slot) = self.find_slot(cx, key, pin).await? else {
                return Ok(Step::Done(Change::Kept, 0));
            };
            if slot.pointer.is_frozen() {
                self.await_thaw(cx, slot, round, pin).await?;
            } else if let done @ Step::Done(Change::Deleted, _) = self.unlink_beside(cx, key, slot, None).await? {
                return Ok(done);
            }
            round += 1;
        }
    }
}

impl Shape {
    /// Whether an entry may be claimed.
    pub(super) fn is_open(self, image: &[u8], entry: usize) -> bool {
        let meta = self.meta(image, entry);
        meta.0 == Vacancy::open(meta.version()).0
    }

    /// Another entry that is claimed for a key with this hash, and its word.
    fn rival(self, image: &[u8], key_hash: u64, own: usize) -> Option<(usize, Vacancy)> {
        if is_planted("marlin: two claims for one key") {
            return None;
        }
        let claims = (0..self.span()).filter(|&entry| entry != own && self.meta(image, entry).is_taken() == 0);
        let mut claims = claims.map(|entry| (entry, Vacancy(self.meta(image, entry).0)));
        claims.find(|(_, vacancy)| vacancy.is_for(key_hash))
    }
}
