//! Changes of several keys at once: all of them, or none.
//!
//! On the path: a session has *located* the keys under one pin, and knows what becomes of them. A commit then
//!  1. writes the new items, a descriptor for each slot, and the record;
//!  2. swaps the slots to their descriptors, each by a compare-and-swap of the whole word;
//!  3. looks again at what was read and is not written;
//!  4. decides: one compare-and-swap of the record's status. From here on everybody sees the new items;
//!  5. swaps the slots to the new items, and retires what they replaced.
//!
//! With one node 1. and 2. are one batch, as its verbs take effect in the order in which they are posted. What stands in the way ends
//! it as a conflict, and nothing was changed. The rules are in `descriptor.rs`.
//!
//! Keys that come or go: a key that is to come has been stored before as an item that has expired, which nobody sees; one that is to
//! go becomes such an item, and is removed afterwards. So a commit only ever replaces items.

use core::ops::Range;

use arrayvec::ArrayVec;
use farside_fabric::batch::{BATCH_VERBS_MAX, Position};
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, LocalFuture, OpContext, RemoteAddr, Slice};
use farside_pool::Pool;
use farside_sync::{Pointer, SizeHint};

use crate::blocks::Draft;
use crate::descriptor::{BLOCK_BYTES, Descriptor, Marking, Status, decide, encode_record};
use crate::error::IndexError;
use crate::index::Index;
use crate::item::{Entry, Item, bucket_bytes, encode_bucket};
use crate::operation::Found;

/// What was found of a key that a transaction reads or writes.
#[derive(Clone, Debug)]
pub enum Located {
    /// It is not there.
    Absent,
    /// Its entry is moving, or another transaction is changing it.
    Busy,
    /// It is here; its value is in the context's buffer.
    Here(Spot, Found),
}

/// Where a key was found. It says something as long as the pin is held under which it was.
#[derive(Clone, Debug)]
pub struct Spot {
    slot: RemoteAddr,
    word: Pointer,
    /// Bytes of its item.
    bytes: u64,
    /// The entries of its bucket and which one it is, if several keys share the slot.
    bucket: Option<(Vec<Entry>, usize)>,
}

impl Spot {
    pub(crate) fn of_slot(slot: RemoteAddr, word: Pointer, bytes: u64) -> Self {
        Self {
            slot,
            word,
            bytes,
            bucket: None,
        }
    }

    pub(crate) fn in_bucket(slot: RemoteAddr, word: Pointer, bytes: u64, bucket: (Vec<Entry>, usize)) -> Self {
        Self {
            slot,
            word,
            bytes,
            bucket: Some(bucket),
        }
    }

    /// Bytes of its item.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The block where its item stands.
    #[must_use]
    pub fn block(&self) -> RemoteAddr {
        match &self.bucket {
            Some((entries, index)) => entries[*index].pointer.block(),
            None => self.word.block(),
        }
    }
}

/// An item that takes the place of another one of the same key.
#[derive(Clone, Debug)]
pub struct Replacement<'a> {
    /// Where that is.
    pub spot: &'a Spot,
    /// The new one.
    pub item: Item<'a>,
}

/// How a commit has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// Everything was replaced.
    Done,
    /// Somebody has changed a key, or has aborted the transaction: nothing was changed.
    Conflict,
    /// This client lacks blocks of so many bytes: nothing was changed.
    Short {
        /// Bytes of a block.
        bytes: u64,
        /// How many of them.
        count: usize,
    },
}

/// A slot that a commit changes.
#[derive(Debug)]
struct Change {
    slot: RemoteAddr,
    old: Pointer,
    new: Pointer,
    descriptor: RemoteAddr,
    /// Its new items, among those of the plan.
    items: Range<usize>,
    /// The bucket that is there and what takes its place, if it has one.
    bucket: Option<(RemoteAddr, RemoteAddr, Vec<Entry>)>,
    /// Whether it was put to lead to its descriptor.
    is_marked: bool,
    /// Whether it was this client that then put what is in force there.
    is_settled: bool,
}

/// An item that is written.
#[derive(Debug)]
struct NewItem {
    /// Which replacement it is for.
    number: usize,
    block: RemoteAddr,
    bytes: u64,
    /// The one that it replaces.
    replaced: (RemoteAddr, u64),
}

/// What a commit works with, kept from one to the next: it is large.
#[derive(Default, Debug)]
pub struct CommitSpace {
    plan: Plan,
    /// One for all steps.
    batch: Batch,
}

/// So many keys are changed without making a new one.
const SPACE_KEYS_MAX: usize = 64;

impl CommitSpace {
    /// Gives back what was needed only once.
    pub fn shrink(&mut self) {
        if self.plan.order.capacity() > SPACE_KEYS_MAX {
            self.plan = Plan::default();
        }
    }
}

/// Blocks that were allocated, to be written.
#[derive(Debug)]
struct Plan {
    /// The slots that are written, in their order, each with the replacements in it.
    order: Vec<(RemoteAddr, usize)>,
    changes: Vec<Change>,
    items: Vec<NewItem>,
    record: RemoteAddr,
    /// Where in the buffer what is written stands, and where it goes.
    writes: Vec<(Slice, RemoteAddr)>,
    allocated: Vec<(RemoteAddr, u64)>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            order: Vec::new(),
            changes: Vec::new(),
            items: Vec::new(),
            record: RemoteAddr::NULL,
            writes: Vec::new(),
            allocated: Vec::new(),
        }
    }
}

/// Where the verbs of a batch are.
type Positions = ArrayVec<Position, BATCH_VERBS_MAX>;

/// Tells the pool that blocks may be lost, unless it is disarmed: a commit that is cut short does not know what it has left.
struct Doubt<'p>(Option<&'p Pool>);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.0 {
            pool.doubt();
        }
    }
}

impl Index {
    /// Whether what was `read` is still what it was, and one key is still `absent`: then all of it was so at one instant. Every spot was
    /// located under one pin, which is still held.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn holds(
        &self,
        cx: &mut OpContext,
        space: &mut CommitSpace,
        absent: Option<&[u8]>,
        read: &[&Spot],
    ) -> Result<bool, IndexError> {
        // That a key is absent says something about one instant: it is looked for while the others were what they were.
        if let Some(key) = absent
            && !matches!(self.locate(cx, key).await?, Located::Absent)
        {
            return Ok(false);
        }
        is_unchanged(cx, &mut space.batch, read).await
    }

    /// Replaces items, all or none, if what was `read` is still what it was. Every spot was located under one pin, which is still
    /// held, and the keys are different ones. Uses the buffer from its start.
    ///
    /// # Errors
    /// What the fabric reports. Nobody knows then whether it was done; it was done wholly or not at all.
    pub async fn commit(
        &self,
        cx: &mut OpContext,
        space: &mut CommitSpace,
        read: &[&Spot],
        replacements: &[Replacement<'_>],
    ) -> Result<Commit, IndexError> {
        let (pool, marking) = (self.pool(), self.marking());
        let CommitSpace { plan, batch } = space;
        batch.clear();
        plan.begin(replacements);
        let others = read.iter().filter(|spot| !plan.writes_to(spot.slot));
        let others: Vec<&Spot> = others.copied().collect();
        let is_guarded = !others.is_empty();
        if let Err(short) = plan.allocate(pool, replacements) {
            plan.allocated
                .drain(..)
                .for_each(|(block, bytes)| pool.give_back(block, bytes));
            return Ok(short);
        }
        plan.encode(cx, pool, (replacements, is_guarded));
        let mut doubt = Doubt(Some(pool));
        if pool.notes_changes() && !plan.note(cx, pool).await? {
            doubt.0 = None;
            plan.allocated
                .drain(..)
                .for_each(|(block, bytes)| pool.give_back(block, bytes));
            return Ok(Commit::Conflict);
        }
        plan.write_and_mark(cx, batch, pool, marking).await?;
        let is_whole = plan.changes.iter().all(|change| change.is_marked);
        let holds = is_whole
            && (is_planted("transaction: what was read not looked at again")
                || is_unchanged(cx, batch, &others).await?);
        let is_committed = holds && decide(cx, plan.record, Status::Committed).await? == 0;
        plan.settle(cx, batch, pool, marking, is_committed).await?;
        doubt.0 = None;
        Ok(match is_committed {
            true => Commit::Done,
            false => Commit::Conflict,
        })
    }
}

/// Whether slots still hold what they did.
async fn is_unchanged(cx: &mut OpContext, batch: &mut Batch, spots: &[&Spot]) -> Result<bool, IndexError> {
    for some in spots.chunks(BATCH_VERBS_MAX) {
        batch.clear();
        let words: Positions = some.iter().map(|spot| batch.read_word(spot.slot)).collect();
        cx.post(batch).await?;
        let mut now = words.into_iter().map(|word| Pointer::from_word(batch.result(word)));
        if !some.iter().all(|spot| now.next() == Some(spot.word)) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Plan {
    /// Nothing yet but where the replacements are.
    fn begin(&mut self, replacements: &[Replacement<'_>]) {
        self.changes.clear();
        self.items.clear();
        self.writes.clear();
        self.allocated.clear();
        self.order.clear();
        let slots = replacements.iter().map(|replacement| replacement.spot.slot);
        self.order.extend(slots.zip(0..));
        self.order.sort_unstable();
    }

    fn writes_to(&self, slot: RemoteAddr) -> bool {
        self.order.binary_search_by_key(&slot, |&(slot, _)| slot).is_ok()
    }

    /// Takes every block that is needed; what was taken is in `allocated` in any case.
    fn allocate(&mut self, pool: &Pool, replacements: &[Replacement<'_>]) -> Result<(), Commit> {
        // All that may be needed: keys that share a slot need fewer.
        let lengths = || {
            let each = replacements.iter().flat_map(|Replacement { spot, item }| {
                let bucket = spot.bucket.as_ref().map(|(entries, _)| bucket_bytes(entries.len()));
                [Some(item.bytes()), Some(BLOCK_BYTES), bucket]
            });
            each.flatten().chain([BLOCK_BYTES])
        };
        let mut take = |bytes: u64| match pool.allocate(bytes) {
            Some(block) => {
                self.allocated.push((block, bytes));
                Ok(block)
            }
            None => Err(Commit::Short {
                bytes,
                count: lengths().filter(|&other| pool.takes_from_same(bytes, other)).count(),
            }),
        };
        self.record = take(BLOCK_BYTES)?;
        for &(slot, number) in &self.order {
            let Replacement { spot, item } = &replacements[number];
            let bytes = item.bytes();
            let block = take(bytes)?;
            let new = Draft { block, bytes }.pointer(0).with_identity(spot.word.identity());
            if self.changes.last().is_none_or(|change| change.slot != slot) {
                self.changes.push(Change {
                    slot,
                    old: spot.word,
                    new,
                    descriptor: take(BLOCK_BYTES)?,
                    items: self.items.len()..self.items.len(),
                    bucket: None,
                    is_marked: false,
                    is_settled: false,
                });
            }
            let change = self.changes.last_mut().expect("it was pushed");
            change.items.end += 1;
            self.items.push(NewItem {
                number,
                block,
                bytes,
                replaced: (spot.block(), spot.bytes),
            });
            let Some((entries, index)) = &spot.bucket else {
                continue;
            };
            let (.., own) = match &mut change.bucket {
                Some(bucket) => bucket,
                none => {
                    let bucket = take(bucket_bytes(entries.len()))?;
                    change.new = Pointer::new(bucket, SizeHint::Bucket, 0).with_identity(spot.word.identity());
                    none.insert((spot.word.block(), bucket, entries.clone()))
                }
            };
            own[*index].pointer = new;
        }
        Ok(())
    }

    /// What was allocated for a change, its descriptor left out.
    fn own(&self, change: &Change) -> impl Iterator<Item = (RemoteAddr, u64)> {
        let items = &self.items[change.items.clone()];
        let bucket = change.bucket.iter();
        let bucket = bucket.map(|(_, block, entries)| (*block, bucket_bytes(entries.len())));
        items.iter().map(|item| (item.block, item.bytes)).chain(bucket)
    }

    /// What a change replaces.
    fn replaced(&self, change: &Change) -> impl Iterator<Item = (RemoteAddr, u64)> {
        let items = &self.items[change.items.clone()];
        let bucket = change.bucket.iter();
        let bucket = bucket.map(|(block, _, entries)| (*block, bucket_bytes(entries.len())));
        items.iter().map(|item| item.replaced).chain(bucket)
    }

    /// Puts everything that is written into the buffer.
    fn encode(&mut self, cx: &mut OpContext, pool: &Pool, (replacements, is_guarded): (&[Replacement<'_>], bool)) {
        let mut at = 0;
        let mut put = |block: RemoteAddr, bytes: u64, encode: &mut dyn FnMut(&mut [u8])| {
            let area = Slice::new(at, bytes as u32);
            at = (at + area.bytes).next_multiple_of(8);
            cx.reserve(at as usize);
            encode(&mut cx.buffer_mut()[area.range()]);
            self.writes.push((area, block));
        };
        put(self.record, BLOCK_BYTES, &mut |target| {
            encode_record(target, pool.owner());
        });
        for change in &self.changes {
            for item in &self.items[change.items.clone()] {
                put(item.block, item.bytes, &mut |target| {
                    replacements[item.number].item.encode(target);
                });
            }
            if let Some((_, block, entries)) = &change.bucket {
                let bytes = bucket_bytes(entries.len());
                put(*block, bytes, &mut |target| encode_bucket(entries, target));
            }
            let descriptor = Descriptor {
                record: self.record,
                old: change.old,
                new: change.new,
                is_guarded,
            };
            put(change.descriptor, BLOCK_BYTES, &mut |target| descriptor.encode(target));
        }
    }

    /// Notes for a snapshot what is written and what it replaces; returns whether that is still there. Leaves the buffer alone.
    #[cold]
    fn note<'f>(&'f self, cx: &'f mut OpContext, pool: &'f Pool) -> LocalFuture<'f, Result<bool, IndexError>> {
        Box::pin(async move {
            for change in &self.changes {
                let current = Pointer::from_word(cx.read_word(change.slot).await?);
                if current != change.old {
                    return Ok(false);
                }
                pool.note_replaced(cx, current.to_word()).await?;
            }
            for item in &self.items {
                pool.note_written(cx, item.block).await?;
            }
            Ok(true)
        })
    }

    /// Steps 1 and 2.
    async fn write_and_mark(
        &mut self,
        cx: &mut OpContext,
        batch: &mut Batch,
        pool: &Pool,
        marking: Marking,
    ) -> Result<(), IndexError> {
        for &(area, block) in &self.writes {
            if batch.verbs().len() == BATCH_VERBS_MAX {
                cx.post(batch).await?;
                batch.clear();
            }
            batch.write(area, block);
        }
        // Nothing is ordered across nodes.
        if pool.geometry().len() > 1 || batch.verbs().len() + self.changes.len() > BATCH_VERBS_MAX {
            cx.post(batch).await?;
            batch.clear();
        }
        let wanted = |change: &Change| Some((change.old, marking.mark(change.old, change.descriptor)));
        swap_all(cx, batch, &mut self.changes, wanted, |change| &mut change.is_marked).await
    }

    /// Step 5, or the way back.
    async fn settle(
        &mut self,
        cx: &mut OpContext,
        batch: &mut Batch,
        pool: &Pool,
        marking: Marking,
        is_committed: bool,
    ) -> Result<(), IndexError> {
        if !is_committed {
            // Who waits for the decision need not wait longer.
            decide(cx, self.record, Status::Aborted).await?;
        }
        let wanted = |change: &Change| {
            let now = if is_committed { change.new } else { change.old };
            let marked = marking.mark(change.old, change.descriptor);
            change.is_marked.then_some((marked, now))
        };
        batch.clear();
        swap_all(cx, batch, &mut self.changes, wanted, |change| &mut change.is_settled).await?;
        for change in &self.changes {
            if change.is_settled {
                pool.retire(change.descriptor, Some(BLOCK_BYTES));
                let retire = |(block, bytes)| pool.retire(block, Some(bytes));
                match is_committed {
                    true => self.replaced(change).for_each(retire),
                    false => self.own(change).for_each(retire),
                }
            } else if !change.is_marked {
                pool.give_back(change.descriptor, BLOCK_BYTES);
                self.own(change).for_each(|(block, bytes)| pool.give_back(block, bytes));
            }
            // Otherwise somebody else has settled the slot, and has retired what belongs to it.
        }
        pool.retire(self.record, Some(BLOCK_BYTES));
        Ok(())
    }
}

/// Swaps the slots of those changes of which it is `wanted`, behind what a batch has already, and notes which were what they should
/// be.
async fn swap_all(
    cx: &mut OpContext,
    batch: &mut Batch,
    changes: &mut [Change],
    wanted: impl Fn(&Change) -> Option<(Pointer, Pointer)>,
    is_done: impl Fn(&mut Change) -> &mut bool,
) -> Result<(), IndexError> {
    for some in changes.chunks_mut(BATCH_VERBS_MAX) {
        let mut posted = Positions::new();
        for change in &*some {
            if let Some((before, after)) = wanted(change) {
                posted.push(batch.compare_swap(change.slot, before.to_word(), after.to_word()));
            }
        }
        if batch.verbs().is_empty() {
            continue;
        }
        cx.post(batch).await?;
        let mut seen = posted.into_iter().map(|swap| batch.result(swap));
        for change in some {
            if let Some((before, _)) = wanted(change) {
                *is_done(change) = seen.next() == Some(before.to_word());
            }
        }
        batch.clear();
    }
    Ok(())
}
