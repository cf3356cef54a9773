//! Splitting a subtable in two while clients read and write it.
//!
//! On the path: nowhere, until a key finds no free slot. Then a task of the client that noticed does it,
//! so that neither a deadline nor a cancelled operation leaves a split half done.
//!
//! 1. Lock the subtable. Take two blocks for those that will take its place.
//! 2. READ the subtable and the key of every item, which tells in which half each belongs.
//! 3. Close every bucket: swap its header from free to closed. Nobody inserts any more.
//! 4. READ the subtable again, and freeze every entry: swap it for the same with another version and the
//!    hint [`Frozen`](SizeHint::Frozen). Nobody updates or deletes any more. Searches go on.
//! 5. WRITE the new subtables: each entry in the same place of one of them.
//! 6. Write both addresses into the old subtable: the second one commits the split. From now on everybody
//!    who finds a closed bucket goes on to the new ones.
//! 7. Lock the directory, make it deeper if need be, swap every entry that names the old subtable, announce
//!    the change, unlock.
//! 8. Retire the old subtable.
//!
//! # Who dies where
//! The locks name their holder, and whoever waits for a dead one takes its place. Before step 6 it starts
//! at step 1: what is closed and frozen already stays so, and the blocks that the dead one had taken are
//! found by the search for lost blocks. If there is no memory to begin again, it undoes what the dead one has done: thaws
//! the entries, then opens the buckets; whoever dies while it does so leaves a split to be begun or undone again. So
//! nobody waits for memory to update or delete a key. After step 6 it goes on with step 7. The old subtable is retired
//! by whoever swaps the last directory entry that names it; if that one dies before it has, nobody links
//! the subtable any more, and it is found like any lost block. A directory lock that is taken over
//! announces a change of everything, since its holder may have swapped entries and announced nothing.
//!
//! # Why nothing is lost
//! An UPDATE or DELETE takes effect in the old subtable before its entry is frozen, and is copied; or it
//! fails, and is tried again in the new one. An INSERT holds a header that the split has to close first.
//! A SEARCH that found a header open has read slots that were current at that instant; one that found it
//! closed looks whether the split was committed after it had read the slots.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, FabricError, OpContext, RemoteAddr, Slice};
use farside_pool::{Pin, PoolError, Purpose};
use farside_sync::{Pointer, SizeHint};

use super::directory::numbers_of;
use super::layout::{
    CHANGES, CHANGES_AT, CHILDREN_AT, ChangeRecord, DEPTH_AT, DIRECTORY_LOCK_AT, IDENTITY_AT, Identity, KeyHash,
    LOCK_AT, LockWord, VERSION_AT,
};
use super::lock::Held;
use super::subtable::Image;
use super::{Place, Race};
use crate::descriptor::settle;
use crate::error::IndexError;
use crate::item::{HEADER_BYTES, Header};

/// How long to wait before a step is tried again whose node did not answer.
const RETRY_NS: u64 = 1_000_000;
/// How long to wait for what another client does: at first, and at most.
const WAIT_NS: (u64, u64) = (4_000, 1_000_000);
/// How much of an item is read for its key.
const KEY_READ_BYTES: u32 = 128;

/// A split that a task of this client is at.
#[derive(Default, Debug)]
pub(super) struct Task {
    has_ended: Cell<bool>,
    /// Why it could not be done.
    error: RefCell<Option<IndexError>>,
}

/// A subtable whose lock this client holds.
#[derive(Clone, Copy)]
struct Old {
    addr: RemoteAddr,
    identity: Identity,
    lock: LockWord,
}

/// What takes the place of a subtable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Successor {
    /// Two, each with half of the keys.
    Halves,
    /// One with all of them, elsewhere: see [`relocate`](super::relocate).
    Whole,
}

/// Two blocks for the new subtables, which are one if it moves as a whole; pinned until they are linked.
struct New {
    blocks: [RemoteAddr; 2],
    _pin: Pin,
}

/// What a split has got so far.
#[derive(Default)]
struct State {
    old: Option<Old>,
    new: Option<New>,
    /// Whether a directory entry was swapped.
    has_swapped: bool,
}

/// An entry that moves.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its word in the subtable, and what was last seen there.
    word: usize,
    pointer: Pointer,
    /// For the copy: the hash of its key, and the hint of its item.
    hash: u64,
    hint: SizeHint,
}

/// Whether a split cannot go on: the table is damaged, or this client has lost its way to a node. Then it
/// is on its way out, and whoever comes after takes over.
fn is_final(error: &IndexError) -> bool {
    use FabricError::{Fenced, NodeGone};
    matches!(
        error,
        IndexError::SubtableDamaged { .. }
            | IndexError::DirectoryDamaged { .. }
            | IndexError::Damaged { .. }
            | IndexError::Pool(PoolError::LeaseLost | PoolError::Fabric(NodeGone { .. } | Fenced { .. }))
    )
}

impl Race {
    /// Splits the subtable of a key that found no free slot, and waits for that. The caller is not pinned.
    pub(super) async fn make_room(&self, cx: &mut OpContext, place: &Place, round: u32) -> Result<(), IndexError> {
        if round > 0 {
            // Another client may be at it.
            self.pause(cx, round).await;
        }
        let task = self.start_split(place.subtable, place.hash.hash);
        self.wait_for(cx, &task).await
    }

    pub(super) async fn pause(&self, cx: &OpContext, round: u32) {
        let (least, most) = WAIT_NS;
        cx.endpoint().sleep((least << round.min(8)).min(most)).await;
    }

    /// Waits a little for a split that somebody is at, and does it if that one has died.
    pub(super) async fn await_split(&self, cx: &mut OpContext, place: &Place, round: u32) -> Result<(), IndexError> {
        let running = self.splits.borrow().get(&place.subtable).cloned();
        if let Some(task) = running {
            return self.wait_for(cx, &task).await;
        }
        self.pause(cx, round).await;
        let task = self.start_split(place.subtable, place.hash.hash);
        match self.wait_for(cx, &task).await {
            // Then it was undone, and the caller finds the subtable open. Whoever is alive has the memory before it closes.
            Err(IndexError::Pool(PoolError::OutOfMemory { .. })) => Ok(()),
            ended => ended,
        }
    }

    /// Ends what somebody has left half done, if it has died.
    pub(super) fn help_split(&self, place: &Place) {
        self.start_split(place.subtable, place.hash.hash);
    }

    /// Ends with the task, or with the caller's deadline, which its next verb reports.
    pub(super) async fn wait_for(&self, cx: &OpContext, task: &Task) -> Result<(), IndexError> {
        const TURN_NS: u64 = 2_000;
        while !task.has_ended.get() && cx.endpoint().now_ns() < cx.deadline().0 {
            cx.endpoint().sleep(TURN_NS).await;
        }
        self.blocks.pool.check_reachable()?;
        task.error.borrow().clone().map_or(Ok(()), Err)
    }

    /// Starts a task that splits the subtable of a hash, unless one is running.
    fn start_split(&self, subtable: RemoteAddr, hash: u64) -> Rc<Task> {
        self.start(subtable, hash, Successor::Halves)
    }

    /// Starts a task that puts others in the place of the subtable of a hash, unless one is running.
    pub(super) fn start(&self, subtable: RemoteAddr, hash: u64, successor: Successor) -> Rc<Task> {
        let mut splits = self.splits.borrow_mut();
        if let Some(task) = splits.get(&subtable) {
            return Rc::clone(task);
        }
        let task = Rc::new(Task::default());
        splits.insert(subtable, Rc::clone(&task));
        drop(splits);
        let (table, state) = (self.clone(), Rc::clone(&task));
        self.blocks.pool.endpoint().spawn(async move {
            if let Err(error) = table.split(subtable, hash, successor).await {
                *state.error.borrow_mut() = Some(error);
            }
            table.splits.borrow_mut().remove(&subtable);
            state.has_ended.set(true);
        });
        task
    }

    /// Whether this client is splitting something.
    pub(crate) fn is_splitting(&self) -> bool {
        !self.splits.borrow().is_empty()
    }

    /// Splits the subtable that a hash belongs to, unless that has been done or another client is at it.
    async fn split(&self, subtable: RemoteAddr, hash: u64, successor: Successor) -> Result<(), IndexError> {
        let mut cx = OpContext::new(self.blocks.pool.endpoint().clone());
        let pool = &self.blocks.pool;
        // The same for every attempt: what an attempt has locked the next one recognises.
        let mine = self.ticket();
        let mut state = State::default();
        // Ends: the node answers, or this client is cut off from it.
        loop {
            match self
                .split_once(&mut cx, (subtable, hash, successor), mine, &mut state)
                .await
            {
                Ok(()) => return Ok(()),
                // Nothing was changed yet.
                Err(error @ (IndexError::Pool(PoolError::OutOfMemory { .. }) | IndexError::Full { .. })) => {
                    return Err(error);
                }
                Err(error) if pool.has_ended() || is_final(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!("cannot split the subtable at {subtable} now: {error}");
                    cx.endpoint().sleep(RETRY_NS).await;
                }
            }
        }
    }

    /// One attempt; what it has got stays with the caller, who tries again.
    async fn split_once(
        &self,
        cx: &mut OpContext,
        (subtable, hash, successor): (RemoteAddr, u64, Successor),
        mine: LockWord,
        state: &mut State,
    ) -> Result<(), IndexError> {
        let locked = match state.old {
            Some(locked) => locked,
            None => match self.lock_subtable(cx, subtable, hash, mine).await? {
                Some(locked) => *state.old.insert(locked),
                None => return Ok(()),
            },
        };
        let is_committed = cx.read_word(locked.addr.plus(CHILDREN_AT + 8)).await? != 0;
        if !is_committed {
            if state.new.is_none() {
                match self.prepare(cx, &locked, successor).await {
                    Ok(Some(taken)) => state.new = Some(taken),
                    Ok(None) => {
                        state.old = None;
                        return self.unlock_subtable(cx, &locked).await;
                    }
                    Err(error) => {
                        if matches!(error, IndexError::Pool(PoolError::OutOfMemory { .. })) {
                            self.reopen(cx, &locked).await?;
                        }
                        state.old = None;
                        self.unlock_subtable(cx, &locked).await?;
                        return Err(error);
                    }
                }
            }
            let blocks = state.new.as_ref().expect("they have just been taken").blocks;
            self.move_entries(cx, &locked, blocks).await?;
            // The blocks are linked: nobody has to hold them any more.
            state.new = None;
        }
        let children = [0, 1].map(|child| locked.addr.plus(CHILDREN_AT + child * 8));
        let children = [cx.read_word(children[0]).await?, cx.read_word(children[1]).await?];
        let pin = self
            .replace_in_directory(cx, &locked, children, &mut state.has_swapped)
            .await?;
        if state.has_swapped {
            let bytes = self.directory.format.bytes(locked.identity.suffix());
            self.blocks.pool.retire(locked.addr, Some(bytes));
        }
        drop(pin);
        Ok(())
    }

    /// Sees whether a subtable can be split, and takes two blocks for that. `None` if the split that made
    /// it has to be completed first.
    async fn prepare(&self, cx: &mut OpContext, old: &Old, successor: Successor) -> Result<Option<New>, IndexError> {
        let depth_max = self.directory.format.depth_max;
        if successor == Successor::Halves && old.identity.depth() >= depth_max.into() {
            return Err(IndexError::Full { depth: depth_max });
        }
        let (depth, suffix) = (old.identity.depth() as u32, old.identity.suffix());
        let pin = self.blocks.pool.pin();
        let named = self.directory.look_up(cx, suffix).await?;
        let other = if named != old.addr {
            Some((named, suffix))
        } else {
            // Whoever has split its parent may have died when some entries were swapped. The others lead to the parent, and
            // the parent leads to this subtable: for as long as it is there.
            self.directory.first_other(cx, (depth, suffix), old.addr).await?
        };
        drop(pin);
        if let Some((named, hash)) = other {
            self.start_split(named, hash);
            return Ok(None);
        }
        self.take_blocks(old, successor).await.map(Some)
    }

    /// Locks a subtable to split it, or to end what a dead client has begun; `None` if another client is
    /// at it, or nothing is left to do.
    async fn lock_subtable(
        &self,
        cx: &mut OpContext,
        subtable: RemoteAddr,
        hash: u64,
        mine: LockWord,
    ) -> Result<Option<Old>, IndexError> {
        // While the directory names it, it is what it is: a subtable that was retired may be something
        // else by now.
        let _pin = self.blocks.pool.pin();
        if self.directory.look_up(cx, hash).await? != subtable {
            return Ok(None);
        }
        let identity = Identity(cx.read_word(subtable.plus(IDENTITY_AT)).await?);
        if !identity.covers(hash) {
            return Err(IndexError::SubtableDamaged { at: subtable });
        }
        let old = Old {
            addr: subtable,
            identity,
            lock: mine,
        };
        // Ends: the node answers, or this client is cut off from it. In one go, since who gave up in between would not know
        // whether it has left the lock behind.
        loop {
            match self.lock_named(cx, old, hash).await {
                Err(error) if !self.blocks.pool.has_ended() && !is_final(&error) => {
                    cx.endpoint().sleep(RETRY_NS).await;
                }
                ended => return Ok(ended?.then_some(old)),
            }
        }
    }

    /// Locks a subtable that the directory has named since the caller pinned; returns whether it is locked.
    async fn lock_named(&self, cx: &mut OpContext, old: Old, hash: u64) -> Result<bool, IndexError> {
        if self.take_lock(cx, old.addr.plus(LOCK_AT), old.lock).await?.is_none() {
            return Ok(false);
        }
        // Whoever is dead now may have ended its split meanwhile. Then nobody links the subtable any more, and nothing but the
        // caller's pin keeps its memory. From here on only the holder of the lock takes it out of the directory.
        if self.directory.look_up(cx, hash).await? == old.addr {
            return Ok(true);
        }
        self.unlock_subtable(cx, &old).await?;
        Ok(false)
    }

    /// Takes a lock that is free, or whose holder is gone; `None` if somebody has it. Otherwise says
    /// whether it was taken over.
    async fn take_lock(&self, cx: &mut OpContext, at: RemoteAddr, mine: LockWord) -> Result<Option<bool>, IndexError> {
        let seen = LockWord(cx.compare_swap(at, LockWord::FREE.0, mine.0).await?);
        let Some(owner) = seen.owner() else {
            return Ok((seen == LockWord::FREE).then_some(false));
        };
        if seen == mine {
            // An earlier swap whose completion was not seen.
            return Ok(Some(true));
        }
        let is_gone = self.blocks.pool.is_gone(cx, owner).await?;
        let is_taken = is_gone && cx.compare_swap(at, seen.0, mine.0).await? == seen.0;
        Ok(is_taken.then_some(true))
    }

    async fn unlock_subtable(&self, cx: &mut OpContext, old: &Old) -> Result<(), IndexError> {
        cx.compare_swap(old.addr.plus(LOCK_AT), old.lock.0, LockWord::FREE.0)
            .await?;
        Ok(())
    }

    /// Takes a block for each of the new subtables.
    async fn take_blocks(&self, old: &Old, successor: Successor) -> Result<New, IndexError> {
        let pool = &self.blocks.pool;
        let bytes = self.directory.format.bytes(old.identity.suffix());
        loop {
            let pin = pool.pin();
            let one = pool.allocate(bytes);
            let other = match successor {
                Successor::Halves => pool.allocate(bytes),
                Successor::Whole => one,
            };
            match (one, other) {
                (Some(one), Some(other)) => {
                    return Ok(New {
                        blocks: [one, other],
                        _pin: pin,
                    });
                }
                (Some(one), None) => pool.give_back(one, bytes),
                _ => {}
            }
            drop(pin);
            let count = if successor == Successor::Halves { 2 } else { 1 };
            pool.restock(bytes, count, Purpose::Insert).await?;
        }
    }

    /// Closes the subtable, copies its entries and commits: steps 2 to 6.
    async fn move_entries(&self, cx: &mut OpContext, old: &Old, new: [RemoteAddr; 2]) -> Result<(), IndexError> {
        let format = self.directory.format;
        let suffix = old.identity.suffix();
        let (whole, bytes) = (format.bytes(suffix), format.image_bytes(suffix));
        // Most keys are read while everybody still works on the subtable.
        let before = Image::read(cx, old.addr, bytes).await?;
        let mut known = self.read_hashes(cx, old, &before, &[]).await?;
        self.close_buckets(cx, old, &before).await?;
        let closed = Image::read(cx, old.addr, bytes).await?;
        known = self.read_hashes(cx, old, &closed, &known).await?;
        let is_whole = new[0] == new[1];
        if !is_whole {
            self.note_first_split(old, known.len() as u64);
        }
        self.freeze(cx, old, &mut known).await?;
        // What moves as a whole is what it was.
        let identities = if is_whole {
            [old.identity; 2]
        } else {
            old.identity.children()
        };
        let mut images = identities.map(|identity| Image::empty(identity, bytes));
        for entry in &known {
            let child = usize::from(!identities[0].covers(entry.hash));
            let copy = entry.pointer.with_hint(entry.hint);
            images[child].0[entry.word] = copy.to_word();
        }
        for (image, block) in images.iter().zip(new).take(if is_whole { 1 } else { 2 }) {
            image.write(cx, block, whole).await?;
        }
        let mut batch = Batch::new();
        for (child, block) in (0..).zip(new) {
            batch.write_word(old.addr.plus(CHILDREN_AT + child * 8), block.to_bits());
        }
        // It stays locked by this client, who is asked to end the split if it is not gone.
        cx.post(&mut batch).await?;
        self.statistics
            .splits
            .set(self.statistics.splits.get() + u64::from(!is_whole));
        Ok(())
    }

    fn note_first_split(&self, old: &Old, items: u64) {
        let slots = self.directory.format.groups(old.identity.suffix()) * super::GROUP_SLOTS;
        let first = self.statistics.first_split.get().unwrap_or((items, slots));
        self.statistics.first_split.set(Some(first));
    }

    /// The entries of an image with the hashes of their keys. What is in `known` is not read again.
    async fn read_hashes(
        &self,
        cx: &mut OpContext,
        old: &Old,
        image: &Image,
        known: &[Entry],
    ) -> Result<Vec<Entry>, IndexError> {
        let mut entries = Vec::new();
        let mut unknown = Vec::new();
        let mut known = known.iter().peekable();
        for word in image.slots() {
            let pointer = Pointer::from_word(image.0[word]);
            while known.peek().is_some_and(|entry| entry.word < word) {
                known.next();
            }
            match known.peek() {
                _ if pointer.is_null() => {}
                Some(entry) if entry.word == word && entry.pointer == pointer => entries.push(**entry),
                _ => unknown.push((word, pointer)),
            }
        }
        for (word, pointer) in &mut unknown {
            *pointer = self.settle_entry(cx, old, (*word, *pointer)).await?;
        }
        unknown.retain(|(_, pointer)| !pointer.is_null());
        for group in unknown.chunks(BATCH_VERBS_MAX) {
            self.read_keys(cx, old, group, &mut entries).await?;
        }
        entries.sort_unstable_by_key(|entry| entry.word);
        Ok(entries)
    }

    /// Settles an entry if it is marked; see [`settle`]. Returns what it is then.
    async fn settle_entry(
        &self,
        cx: &mut OpContext,
        old: &Old,
        (word, pointer): (usize, Pointer),
    ) -> Result<Pointer, IndexError> {
        if !self.blocks.is_marked(pointer) {
            return Ok(pointer);
        }
        let (whose, slot) = ((&self.blocks.pool, self.blocks.marking), old.addr.plus(word as u64 * 8));
        Box::pin(settle(cx, whose, (slot, pointer), 0)).await
    }

    /// Reads the items of some slots as far as their keys go.
    async fn read_keys(
        &self,
        cx: &mut OpContext,
        old: &Old,
        slots: &[(usize, Pointer)],
        entries: &mut Vec<Entry>,
    ) -> Result<(), IndexError> {
        let area = |index: usize, pointer: Pointer| {
            let first = self.blocks.readable(pointer).min(KEY_READ_BYTES);
            Slice::new(index as u32 * KEY_READ_BYTES, first)
        };
        let mut batch = Batch::new();
        for (index, &(_, pointer)) in slots.iter().enumerate() {
            batch.read(pointer.block(), area(index, pointer));
        }
        cx.post(&mut batch).await?;
        let mut long = Vec::new();
        for (index, &(word, pointer)) in slots.iter().enumerate() {
            let area = area(index, pointer);
            let header = Header::decode(&cx.buffer()[area.range()]);
            let Some(header @ Header::Item { key_bytes, .. }) = header else {
                return Err(crate::blocks::damaged(old.addr.plus(word as u64 * 8), pointer));
            };
            let mut entry = Entry {
                word,
                pointer,
                hash: 0,
                hint: SizeHint::for_item(header.block_bytes()),
            };
            let known = (HEADER_BYTES + key_bytes).min(area.bytes as usize);
            // The split is pinned, so an item stays what it is, replaced or not.
            cx.rely_on_within(area, Slice::new(area.at, known as u32));
            match cx.buffer()[area.range()].get(HEADER_BYTES..HEADER_BYTES + key_bytes) {
                Some(key) => {
                    entry.hash = self.hash(key).hash;
                    entries.push(entry);
                }
                None => long.push(entry),
            }
        }
        for entry in long {
            let slot = old.addr.plus(entry.word as u64 * 8);
            let hash = self.hash_of_item(cx, slot, entry.pointer).await?.hash;
            entries.push(Entry { hash, ..entry });
        }
        Ok(())
    }

    /// The hash of a long key.
    async fn hash_of_item(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
    ) -> Result<KeyHash, IndexError> {
        let header = self.blocks.read_item(cx, slot, pointer, 0).await?;
        Ok(self.hash(header.item(cx.buffer()).key))
    }

    /// Closes every bucket; waits for those who are inserting.
    async fn close_buckets(&self, cx: &mut OpContext, old: &Old, image: &Image) -> Result<(), IndexError> {
        let mut open: Vec<(RemoteAddr, LockWord)> = image
            .headers()
            .map(|word| (old.addr.plus(word as u64 * 8), LockWord::FREE))
            .collect();
        // Ends: an INSERT gives its lock back, or its client is gone.
        while !open.is_empty() {
            let mut left = Vec::new();
            for group in open.chunks(BATCH_VERBS_MAX) {
                let mut batch = Batch::new();
                let swaps: Vec<_> = group
                    .iter()
                    .map(|&(header, seen)| batch.compare_swap(header, seen.0, LockWord::CLOSED.0))
                    .collect();
                cx.post(&mut batch).await?;
                for (&(header, expected), swap) in group.iter().zip(swaps) {
                    let seen = LockWord(batch.result(swap));
                    if seen == expected
                        || seen == LockWord::CLOSED
                        || is_planted("race: a locked bucket taken for closed")
                    {
                        continue;
                    }
                    let is_gone = match seen.owner() {
                        Some(owner) => self.blocks.pool.is_gone(cx, owner).await?,
                        None => false,
                    };
                    left.push((header, if is_gone { seen } else { LockWord::FREE }));
                }
            }
            open = left;
            if !open.is_empty() {
                self.blocks.pool.check_reachable()?;
                cx.endpoint().sleep(WAIT_NS.0).await;
            }
        }
        Ok(())
    }

    /// Undoes what a dead client has done to a subtable before it could commit the split. The caller has locked it.
    ///
    /// First every entry is thawed, then every bucket opened: as long as one is closed nobody inserts, and no entry is frozen
    /// in a bucket that is open. A thawed entry keeps the version that it was frozen with, which no operation has seen
    /// on an entry that it may replace.
    async fn reopen(&self, cx: &mut OpContext, old: &Old) -> Result<(), IndexError> {
        let _pin = self.blocks.pool.pin();
        let bytes = self.directory.format.image_bytes(old.identity.suffix());
        let image = Image::read(cx, old.addr, bytes).await?;
        let closed = image.headers().filter(|&word| image.0[word] == LockWord::CLOSED.0);
        let opened = closed.map(|word| (word, LockWord::CLOSED.0, LockWord::FREE.0));
        let opened: Vec<_> = opened.collect();
        if opened.is_empty() {
            return Ok(());
        }
        let entries = self.read_hashes(cx, old, &image, &[]).await?;
        let frozen = entries.iter().filter(|entry| entry.pointer.is_frozen());
        let thawed: Vec<_> = frozen
            .map(|entry| {
                let thawed = entry.pointer.with_hint(entry.hint);
                (entry.word, entry.pointer.to_word(), thawed.to_word())
            })
            .collect();
        for swaps in [thawed, opened] {
            for group in swaps.chunks(BATCH_VERBS_MAX) {
                let mut batch = Batch::new();
                for &(word, before, after) in group {
                    // It fails if an attempt before this one has done it.
                    batch.compare_swap(old.addr.plus(word as u64 * 8), before, after);
                }
                cx.post(&mut batch).await?;
            }
        }
        tracing::info!("no memory to end a split of the dead: it is undone");
        Ok(())
    }

    /// Freezes every entry, and notes what was replaced or removed until then. Without an INSERT a slot
    /// keeps its key, so a replaced entry has the same hash.
    async fn freeze(&self, cx: &mut OpContext, old: &Old, entries: &mut Vec<Entry>) -> Result<(), IndexError> {
        if is_planted("race: entries moved without being frozen") {
            return Ok(());
        }
        let mut first = 0;
        while first < entries.len() {
            let end = entries.len().min(first + BATCH_VERBS_MAX);
            let mut batch = Batch::new();
            let swaps: Vec<_> = entries[first..end]
                .iter()
                .map(|entry| {
                    let slot = old.addr.plus(entry.word as u64 * 8);
                    let is_settled = entry.pointer.is_frozen() || entry.pointer.is_null();
                    let frozen = if is_settled {
                        entry.pointer
                    } else {
                        entry.pointer.frozen()
                    };
                    batch.compare_swap(slot, entry.pointer.to_word(), frozen.to_word())
                })
                .collect();
            cx.post(&mut batch).await?;
            let mut is_done = true;
            for (entry, swap) in entries[first..end].iter_mut().zip(swaps) {
                let found = Pointer::from_word(batch.result(swap));
                let seen = self.settle_entry(cx, old, (entry.word, found)).await?;
                if found == entry.pointer {
                    if !seen.is_frozen() && !seen.is_null() {
                        entry.pointer = seen.frozen();
                    }
                } else {
                    if !seen.is_frozen() && !seen.is_null() {
                        entry.hint = seen.hint();
                    }
                    entry.pointer = seen;
                    is_done &= seen.is_null() || seen.is_frozen();
                }
            }
            if is_done {
                first = end;
            }
        }
        entries.retain(|entry| !entry.pointer.is_null());
        Ok(())
    }

    /// Step 7. Notes whether this client has swapped an entry: then it has to retire the old subtable, and
    /// is pinned for that.
    async fn replace_in_directory(
        &self,
        cx: &mut OpContext,
        old: &Old,
        children: [u64; 2],
        has_swapped: &mut bool,
    ) -> Result<Pin, IndexError> {
        let directory = &self.directory;
        self.lock_directory(cx, old.lock).await?;
        let pin = self.blocks.pool.pin();
        let depth = old.identity.depth() as u32;
        let mut now = directory.read_depth(cx).await?;
        // One subtable in the place of one needs no entry more.
        if now == depth && children[0] != children[1] {
            self.double_directory(cx, now).await?;
            now += 1;
        }
        let numbers = numbers_of(now, (depth, old.identity.suffix()));
        for group in numbers.chunks(BATCH_VERBS_MAX) {
            let mut batch = Batch::new();
            let swaps: Vec<_> = group
                .iter()
                .map(|&number| {
                    let child = children[usize::from(number >> depth & 1 == 1)];
                    batch.compare_swap(directory.entry_at(number), old.addr.to_bits(), child)
                })
                .collect();
            cx.post(&mut batch).await?;
            *has_swapped |= swaps.into_iter().any(|swap| batch.result(swap) == old.addr.to_bits());
        }
        if !is_planted("race: a change of the directory not announced") {
            self.announce(cx, Some(old.identity)).await?;
        }
        cx.write_word(directory.at(DIRECTORY_LOCK_AT), LockWord::FREE.0).await?;
        Ok(pin)
    }

    /// Waits for the lock of the directory. Whoever takes it over from a client that is gone announces
    /// what that one may have done.
    async fn lock_directory(&self, cx: &mut OpContext, mine: LockWord) -> Result<(), IndexError> {
        let at = self.directory.at(DIRECTORY_LOCK_AT);
        loop {
            match self.take_lock(cx, at, mine).await? {
                Some(false) => return Ok(()),
                Some(true) => return self.announce(cx, None).await,
                None => {
                    self.blocks.pool.check_reachable()?;
                    cx.endpoint().sleep(WAIT_NS.0).await;
                }
            }
        }
    }

    /// Makes sure that nobody remembers an entry which a dead client has swapped and not announced.
    /// Before the search for lost blocks, which may free what that entry named.
    ///
    /// A holder that lives may have taken the lock over from that client, and not have come to announcing it: so
    /// whoever it is, this waits until it has. Whoever gives the lock back has announced everything.
    pub(super) async fn settle_directory(&self, cx: &mut OpContext) -> Result<(), IndexError> {
        let at = self.directory.at(DIRECTORY_LOCK_AT);
        if LockWord(cx.read_word(at).await?) == LockWord::FREE {
            return Ok(());
        }
        let mine = self.ticket();
        // Gives the lock back in any case.
        let _held = Held::expect(cx.endpoint(), at, mine);
        self.lock_directory(cx, mine).await
    }

    /// Announces a change to everybody's cache: of one subtable, or of everything.
    async fn announce(&self, cx: &mut OpContext, changed: Option<Identity>) -> Result<(), IndexError> {
        let directory = &self.directory;
        let version = cx.read_word(directory.at(VERSION_AT)).await?;
        let mut batch = Batch::new();
        let next = match changed {
            // Farther than the log of changes reaches.
            None => version + CHANGES + 1,
            Some(identity) => {
                let next = version + 1;
                let record = ChangeRecord(0)
                    .with_version(next & 0xff_ffff)
                    .with_depth(identity.depth())
                    .with_suffix(identity.suffix());
                batch.write_word(directory.at(CHANGES_AT + next % CHANGES * 8), record.0);
                next
            }
        };
        batch.write_word(directory.at(VERSION_AT), next);
        cx.post(&mut batch).await?;
        Ok(())
    }

    /// Gives every entry a second place, then makes the depth one more. To be done twice does no harm.
    async fn double_directory(&self, cx: &mut OpContext, depth: u32) -> Result<(), IndexError> {
        let directory = &self.directory;
        let count = 1_u64 << depth;
        let mut first = 0;
        while first < count {
            let entries = directory.read_entries(cx, first, count - first).await?;
            let bytes = entries.len() as u32 * 8;
            cx.write(Slice::first(bytes), directory.entry_at(count + first)).await?;
            first += entries.len() as u64;
        }
        Ok(cx.write_word(directory.at(DEPTH_AT), u64::from(depth) + 1).await?)
    }
}
