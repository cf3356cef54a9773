//! INSERT, UPDATE and DELETE.
//!
//! On the path: one attempt is pinned from its first READ to the end. What stands in its way (a full
//! bucket, one that is locked, a subtable that is being split, no block at hand, another client that was quicker) it waits
//! for unpinned, and starts again. So over mapped memory nothing in an attempt waits, unless the scheme does:
//! [`Race::change_now`] is one attempt in a plain call.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice, at_once};
use farside_pool::layout::Owner;
use farside_pool::{Pin, Purpose};
use farside_sync::{Entered, Intent, Pointer, Turn};

use super::in_place::{Approach, InPlace};
use super::layout::{Combined, LockWord};
use super::lock::Held;
use super::{Match, Place, Race, candidates, is_closed, read_buckets, word_of};
use crate::blocks::Draft;
use crate::error::IndexError;
use crate::item::{Header, Item, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::operation::{Change, Decide, Decision, Likely, Wanted};
use crate::transaction::{Located, Spot};

/// Where a draft stands in the buffer until it is written.
const DRAFT_AT: u32 = 2048;

/// How an attempt ended.
pub(super) enum Step {
    /// As it should.
    Done(Change),
    /// Another client was quicker.
    Lost,
    /// Another client holds the lock of the key's first bucket.
    Locked { owner: Owner, word: LockWord },
    /// This client has no block left.
    Short { bytes: u64, purpose: Purpose },
    /// The subtable is being split.
    Busy(Place),
    /// It has to be.
    Full(Place),
}

impl Step {
    /// Whether the change was made.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl Race {
    /// Reads what is stored under a key and changes it as `decide` says, atomically: if another client
    /// changes the key meanwhile, `decide` is asked again with the new state. It must not depend on how
    /// often it is asked.
    ///
    /// # Errors
    /// See [`IndexError`]; nothing was changed unless the fabric failed while publishing.
    pub async fn change<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
    ) -> Result<Change, IndexError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(IndexError::KeyTooLong { bytes: key.len() });
        }
        // Ends when nobody is in the way; each failure means that another client has made progress, or
        // is waited for until it has.
        let mut round = 0;
        let mut lock = LockWord::FREE;
        loop {
            let pin = self.blocks.pool.pin_to_change(1).await?;
            let place = self.place(cx, self.hash(key)).await?;
            let looked = self.look_apart(cx, &place, key, Wanted::Items);
            let step = self
                .attempt(cx, key, (place, looked), (likely, decide), (round, lock, &pin))
                .await?;
            drop(pin);
            lock = LockWord::FREE;
            match step {
                Step::Done(change) => return Ok(change),
                Step::Lost if is_planted("index: a lost update acknowledged") => return Ok(Change::Updated),
                Step::Lost => {}
                Step::Locked { owner, word } => {
                    if self.blocks.pool.is_gone(cx, owner).await? {
                        // Nobody gives it back.
                        lock = word;
                    } else {
                        self.blocks.pool.check_reachable()?;
                        self.give_way(cx).await;
                    }
                }
                Step::Short { bytes, purpose } => self.blocks.pool.restock(bytes, 1, purpose).await?,
                Step::Busy(place) => self.await_split(cx, &place, round).await?,
                Step::Full(place) => self.make_room(cx, &place, round).await?,
            }
            round += 1;
        }
    }

    /// One attempt over mapped memory, in a plain call, from where the key's memory has been approached to; `None` if something
    /// is in the way, and nothing was changed.
    pub(crate) fn change_now<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        approach: Option<&Approach>,
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
    ) -> Option<Result<Change, IndexError>> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let own;
        let pin = match approach {
            Some(approach) => approach.pin(),
            None => {
                own = self.blocks.pool.pin();
                &own
            }
        };
        // Where the key is looked for may have to be found out first.
        let place = approach.and_then(Approach::place);
        let place = place.or_else(|| self.known_place(self.hash(key)))?;
        let mut looked = None;
        if let Some(likely) = likely.filter(|likely| likely.regardless) {
            let mut from = approach;
            // Ends: it is begun afresh once.
            looked = loop {
                let approached = from.and_then(|approach| self.approached_match(cx, key, approach, Wanted::Keys));
                let found = match approached {
                    Some(found) => found,
                    None => match self.look_apart(cx, &place, key, Wanted::Keys) {
                        InPlace::Found(found) => found,
                        nothing => break Some(nothing),
                    },
                };
                // Nobody need be asked about what does not expire.
                let replaced = match found.header {
                    Header::Item { expiry_ms: 0, .. } => {
                        let item = Item::of(key, likely.value, likely.expiry_ms);
                        self.replace_now(cx, &place, &found, (item, true))
                    }
                    _ => None,
                };
                match replaced {
                    Some(Ok(true)) => return Some(Ok(Change::Updated)),
                    // What was approached was replaced since, in the same group of keys for instance.
                    Some(Ok(false)) if from.take().is_some() => {}
                    Some(Err(error)) => return Some(Err(error)),
                    // Who decides sees the whole item.
                    Some(Ok(false)) | None => break None,
                }
            };
        }
        if looked.is_none() {
            let approached = approach.and_then(|approach| self.approached_match(cx, key, approach, Wanted::Items));
            looked = approached.map(InPlace::Found);
        }
        let looked = looked.unwrap_or_else(|| self.look_apart(cx, &place, key, Wanted::Items));
        cx.in_one_turn(|cx| self.decide_now(cx, key, (place, looked), decide, pin))
    }

    /// The same for whatever `decide` says, given what was seen of the key.
    #[inline(never)]
    fn decide_now<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        (place, looked): (Place, InPlace),
        decide: Decide<'_, 'v>,
        pin: &Pin,
    ) -> Option<Result<Change, IndexError>> {
        if let InPlace::Found(found) = &looked
            && let Some(changed) = self.update_now(cx, key, &place, found, decide)
        {
            return changed.map(|is_done| is_done.then_some(Change::Updated)).transpose();
        }
        let turn = (0, LockWord::FREE, pin);
        let attempt = self.attempt(cx, key, (place, looked), (None, decide), turn);
        // Nothing in an attempt waits where memory is mapped but for a transaction to be decided, before anything is taken.
        match at_once(attempt)? {
            Ok(Step::Done(change)) => Some(Ok(change)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// An attempt at an UPDATE that waits for nobody; returns whether another client was not quicker. `None` if something is in
    /// the way, or it is no UPDATE: nothing was done, and what it has asked `decide` does not count.
    fn update_now<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        place: &Place,
        found: &Match,
        decide: Decide<'_, 'v>,
    ) -> Option<Result<bool, IndexError>> {
        let stored = found.header.item(&cx.buffer()[found.at as usize..]);
        let Decision::Put {
            value,
            expiry_ms,
            tag,
            regardless,
        } = decide(Some(stored))
        else {
            return None;
        };
        self.replace_now(
            cx,
            place,
            found,
            (Item::of(key, &value, expiry_ms).tagged(tag), regardless),
        )
    }

    /// Puts an item in the place of what was found, likewise.
    #[inline(always)]
    fn replace_now(
        &self,
        cx: &mut OpContext,
        place: &Place,
        found: &Match,
        (item, regardless): (Item<'_>, bool),
    ) -> Option<Result<bool, IndexError>> {
        let old = found.pointer;
        if old.is_frozen() || self.blocks.is_marked(old) || item.value.len() > VALUE_BYTES_MAX {
            return None;
        }
        let target = self.target(place, found.slot);
        let old_bytes = found.header.block_bytes();
        let new = |new: Pointer| new.with_identity(old.identity());
        self.blocks
            .update_now(cx, target, (old, old_bytes), (item, regardless), new)
    }

    /// `looked` is what was seen of the key under the same pin, and `lock` what the lock of its first bucket should hold.
    async fn attempt<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        (mut place, looked): (Place, InPlace),
        (likely, decide): (Option<Likely<'_>>, Decide<'_, 'v>),
        (round, lock, pin): (u32, LockWord, &Pin),
    ) -> Result<Step, IndexError> {
        let (found, is_closing, draft) = match looked {
            InPlace::Found(found) => (Some(found), false, None),
            InPlace::Absent => (None, false, None),
            InPlace::Unknown => {
                // Only the first time: whoever has been overtaken may decide otherwise.
                let may_draft = round == 0 && self.blocks.sync.writes_early(place.hash.hash);
                let likely = likely.filter(|_| may_draft);
                self.find_and_draft(cx, &mut place, key, likely).await?
            }
        };
        if let Some(found) = found.as_ref().filter(|found| self.blocks.is_marked(found.pointer)) {
            let drafts = draft.into_iter();
            drafts.for_each(|draft| self.blocks.pool.give_back(draft.block, draft.bytes));
            self.blocks.settle(cx, found.slot, found.pointer).await?;
            return Ok(Step::Lost);
        }
        let stored = found
            .as_ref()
            .map(|found| found.header.item(&cx.buffer()[found.at as usize..]));
        let old_bytes = stored.map_or(0, |item| item.bytes());
        let decision = decide(stored);
        if let Some(draft) = draft {
            if !likely.is_some_and(|likely| likely.is_meant_by(&decision)) {
                self.blocks.pool.give_back(draft.block, draft.bytes);
            } else {
                let (bytes, new) = (draft.bytes, draft.pointer(0));
                let regardless = matches!(decision, Decision::Put { regardless: true, .. });
                let turn = regardless.then(|| self.blocks.sync.early());
                let place = (&place, is_closing, lock);
                return self.link(cx, place, key, found, (old_bytes, turn), (new, bytes)).await;
            }
        }
        match decision {
            Decision::Keep => Ok(Step::Done(Change::Kept)),
            Decision::Put {
                value,
                expiry_ms,
                tag,
                regardless,
            } => {
                if value.len() > VALUE_BYTES_MAX {
                    return Err(IndexError::ValueTooLong { bytes: value.len() });
                }
                let purpose = if found.is_some() {
                    Purpose::Overwrite
                } else {
                    Purpose::Insert
                };
                let item = Item {
                    key,
                    value: &value,
                    expiry_ms,
                    tag,
                };
                let bytes = item.bytes();
                let Some(block) = self.blocks.pool.allocate(bytes) else {
                    return Ok(Step::Short { bytes, purpose });
                };
                let mut turn = match &found {
                    Some(found) if regardless && !found.pointer.is_frozen() => {
                        let target = self.target(&place, found.slot);
                        let entered = self.blocks.enter(cx, target, found.pointer, Intent::Update, pin).await;
                        match entered.inspect_err(|_| self.blocks.pool.give_back(block, bytes))? {
                            Entered::Turn(turn) => Some(turn),
                            Entered::Combined => {
                                self.blocks.pool.give_back(block, bytes);
                                return Ok(Step::Done(Change::Updated));
                            }
                            Entered::Lost { .. } => {
                                self.blocks.pool.give_back(block, bytes);
                                return Ok(Step::Lost);
                            }
                        }
                    }
                    _ => None,
                };
                let new = match (&found, &mut turn) {
                    (Some(found), Some(turn)) => {
                        let slot = self.target(&place, found.slot).slot;
                        self.blocks.write_in_turn(cx, item, block, 0, (slot, turn)).await?
                    }
                    _ => self.blocks.write_to(cx, item, block, 0).await?,
                };
                let place = (&place, is_closing, lock);
                self.link(cx, place, key, found, (old_bytes, turn), (new, bytes)).await
            }
            Decision::Delete { regardless } => match found {
                None => Ok(Step::Done(Change::Kept)),
                Some(_) if is_planted("index: a delete that leaves the key") => Ok(Step::Done(Change::Deleted)),
                Some(found) => self.unlink(cx, &place, &found, (old_bytes, regardless), pin).await,
            },
        }
    }

    /// See [`crate::Index::locate`].
    pub(crate) async fn locate(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        approach: Option<&Approach>,
    ) -> Result<Located, IndexError> {
        let approached = approach.and_then(|approach| self.approached_match(cx, key, approach, Wanted::Items));
        let found = match approached {
            Some(found) => Some(found),
            None => {
                let mut place = self.place(cx, self.hash(key)).await?;
                match self.look_apart(cx, &place, key, Wanted::Items) {
                    InPlace::Found(found) => Some(found),
                    InPlace::Absent => None,
                    InPlace::Unknown => Box::pin(self.find_and_draft(cx, &mut place, key, None)).await?.0,
                }
            }
        };
        Ok(match found {
            None => Located::Absent,
            Some(found) if found.pointer.is_frozen() || self.blocks.is_marked(found.pointer) => Located::Busy,
            Some(found) => {
                let bytes = found.header.block_bytes();
                Located::Here(Spot::of_slot(found.slot, found.pointer, bytes), found.value())
            }
        })
    }

    /// Looks for a key; in the same round trip as its buckets are read, what will probably be stored is
    /// written. Also returns whether its subtable is being split.
    async fn find_and_draft(
        &self,
        cx: &mut OpContext,
        place: &mut Place,
        key: &[u8],
        likely: Option<Likely<'_>>,
    ) -> Result<(Option<Match>, bool, Option<Draft>), IndexError> {
        let draft = likely.and_then(|likely| self.blocks.draft(cx, key, likely, DRAFT_AT));
        let mut batch = Batch::new();
        read_buckets(&mut batch, place);
        if let Some(draft) = draft {
            batch.write(Slice::new(DRAFT_AT, draft.bytes as u32), draft.block);
        }
        let posted = cx.post(&mut batch).await;
        let read = match posted {
            Ok(()) => self.read_key(cx, place, key).await,
            Err(error) => Err(error.into()),
        };
        match read {
            Ok((found, is_closing)) => Ok((found, is_closing, draft)),
            Err(error) => {
                draft.into_iter().for_each(|draft| self.blocks.give_up(draft));
                Err(error)
            }
        }
    }

    /// Looks for a key whose buckets were read; reads them again where the key has moved to. Also returns
    /// whether its subtable is being split.
    async fn read_key(
        &self,
        cx: &mut OpContext,
        place: &mut Place,
        key: &[u8],
    ) -> Result<(Option<Match>, bool), IndexError> {
        // As SEARCH.
        loop {
            cx.rely_on_words();
            let is_closing = is_closed(cx.buffer(), place);
            if is_closing && let Some(next) = Box::pin(self.follow(cx, place)).await? {
                *place = next;
                let mut batch = Batch::new();
                read_buckets(&mut batch, place);
                cx.post(&mut batch).await?;
                continue;
            }
            return Ok((self.find(cx, place, key).await?, is_closing));
        }
    }

    /// Links an item that was written: in the slot of the key, or in a free one. `replaces` says how long the item is
    /// that was found there, and has a turn if any other would do.
    async fn link(
        &self,
        cx: &mut OpContext,
        (place, is_closing, lock): (&Place, bool, LockWord),
        key: &[u8],
        found: Option<Match>,
        replaces: (u64, Option<Turn>),
        (new, bytes): (Pointer, u64),
    ) -> Result<Step, IndexError> {
        let fingerprint = place.hash.fingerprint();
        let step = match found {
            Some(found) if found.pointer.is_frozen() => Ok(Step::Busy(*place)),
            Some(found) => {
                let old = found.pointer;
                let new = new.with_version(old.version()).with_fingerprint(fingerprint);
                let target = self.target(place, found.slot);
                if self.blocks.replace(cx, target, old, new, replaces).await? {
                    return Ok(Step::Done(Change::Updated));
                }
                Ok(Step::Lost)
            }
            None if is_closing => Ok(Step::Busy(*place)),
            None => {
                let new = new.with_fingerprint(fingerprint);
                self.insert(cx, (place, lock), key, new).await
            }
        };
        if !matches!(step, Ok(Step::Done(_)) | Err(_)) {
            self.blocks.pool.give_back(new.block(), bytes);
        }
        step
    }

    pub(super) async fn unlink(
        &self,
        cx: &mut OpContext,
        place: &Place,
        found: &Match,
        (bytes, regardless): (u64, bool),
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        if found.pointer.is_frozen() {
            return Ok(Step::Busy(*place));
        }
        if self.blocks.is_marked(found.pointer) {
            return Ok(Step::Lost);
        }
        let target = self.target(place, found.slot);
        let empty = found.pointer.emptied(self.blocks.pool.epoch());
        let old = (found.pointer, bytes);
        match self.blocks.remove(cx, target, old, (empty, regardless), pin).await? {
            Some(change) => Ok(Step::Done(change)),
            None => Ok(Step::Lost),
        }
    }

    /// Puts the pointer of a key that is not there into a free slot, under the lock of the key's first
    /// bucket. On an error nobody knows whether it is linked.
    async fn insert(
        &self,
        cx: &mut OpContext,
        (place, lock): (&Place, LockWord),
        key: &[u8],
        new: Pointer,
    ) -> Result<Step, IndexError> {
        let at = place.buckets[0].header();
        let mine = self.ticket();
        let held = Held::expect(cx.endpoint(), at, mine);
        let mut batch = Batch::new();
        let swap = batch.compare_swap(at, lock.0, mine.0);
        read_buckets(&mut batch, place);
        if let Err(error) = cx.post(&mut batch).await {
            return self.refuse(new, error.into());
        }
        cx.rely_on_words();
        let word = LockWord(batch.result(swap));
        if word != lock {
            held.end();
            return Ok(match word.owner() {
                _ if word == LockWord::CLOSED => Step::Busy(*place),
                // It was given back, or handed on.
                None => Step::Lost,
                Some(owner) => Step::Locked { owner, word },
            });
        }
        // Under the lock nobody else inserts this key. If somebody has meanwhile, its fingerprint is here.
        let candidates = candidates(cx.buffer(), place);
        let epoch = self.blocks.pool.epoch();
        let slot = {
            let buffer = cx.buffer();
            let slots = self.directory.format.bucket_slots;
            free_slot(&place.buckets, slots, epoch, |bucket, word| {
                word_of(buffer, bucket, word)
            })
        };
        if !candidates.is_empty() && !is_planted("race: a key not looked for under the lock") {
            match Box::pin(self.find_among(cx, &candidates, key)).await {
                Ok(None) => {}
                Ok(Some(_)) => return self.unlock(cx, held, at, Step::Lost).await,
                Err(error) => return self.refuse(new, error),
            }
        }
        let Some((slot, empty)) = slot else {
            return self.unlock(cx, held, at, Step::Full(*place)).await;
        };
        let mut batch = Batch::new();
        let new = new.with_version(empty.version().wrapping_add(1));
        let swap = batch.compare_swap(slot, empty.to_word(), new.to_word());
        batch.write_word(at, LockWord::FREE.0);
        if let Err(error) = cx.post(&mut batch).await {
            self.blocks.pool.doubt();
            return Err(error.into());
        }
        held.end();
        if batch.result(swap) == empty.to_word() {
            Ok(Step::Done(Change::Inserted))
        } else {
            // The key of another bucket got the slot.
            Ok(Step::Lost)
        }
    }

    /// Gives up a block that was certainly not linked.
    fn refuse(&self, new: Pointer, error: IndexError) -> Result<Step, IndexError> {
        self.blocks.pool.retire(new.block(), None);
        Err(error)
    }

    /// Gives the lock of a bucket back.
    async fn unlock(&self, cx: &mut OpContext, held: Held, at: RemoteAddr, step: Step) -> Result<Step, IndexError> {
        // If this fails the guard tries once more.
        if cx.write_word(at, LockWord::FREE.0).await.is_ok() {
            held.end();
        }
        Ok(step)
    }

    /// Waits as long as another client may need for what it does under a bucket's lock.
    async fn give_way(&self, cx: &OpContext) {
        const TURN_NS: u64 = 2_000;
        let jitter_ns = cx.endpoint().random_below(TURN_NS);
        cx.endpoint().sleep(TURN_NS + jitter_ns).await;
    }
}

/// A free slot of the bucket with fewer entries, its main part first. `word_of` reads a word of one of the two buckets.
fn free_slot(
    buckets: &[Combined; 2],
    bucket_slots: usize,
    epoch: u64,
    word_of: impl Fn(usize, usize) -> u64,
) -> Option<(RemoteAddr, Pointer)> {
    let free = |index: usize| {
        let (mut room, mut first) = (0, None);
        for word in buckets[index].slot_words().take(bucket_slots) {
            let pointer = Pointer::from_word(word_of(index, word));
            if pointer.is_vacant(epoch) {
                room += 1;
                first = first.or(Some((index, word, pointer)));
            }
        }
        (room, first)
    };
    let [first, second] = [free(0), free(1)];
    let roomier = if second.0 > first.0 { second } else { first };
    let (index, word, pointer) = roomier.1?;
    Some((buckets[index].addr.plus(word as u64 * 8), pointer))
}
