//! Reading and writing the blocks that slots point to; the same for every index.
//!
//! On the path: an index has found a pointer and wants the item, or has an item and wants a block for
//! it. Nobody changes a block once it is linked, and it stays what it is while an operation is pinned.

mod several;

use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, FabricError, LocalFuture, OpContext, RemoteAddr, Slice};
use farside_pool::{Pin, Pool, Purpose};
use farside_sync::{
    Entered, Intent, NODE_BYTES_MAX, NODES_MAX, Pointer, Publish, SizeHint, SyncOptions, Synchroniser, Target, Turn,
};

use crate::descriptor::{self, Descriptor, Marking, PATIENCE_NS};
use crate::error::IndexError;
use crate::item::{GONE_MS, HEADER_BYTES, Header, Item, LONG_VALUE_BYTES};
use crate::local::Local;
use crate::operation::{Change, Found, Likely, Searched, Wanted};

/// The longest item that is written before it is known whether it will be stored, or while a lock is held.
pub(crate) const DRAFT_BYTES_MAX: u64 = 4 << 10;

/// A block with an item that is not linked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    pub(crate) block: RemoteAddr,
    pub(crate) bytes: u64,
}

impl Draft {
    /// The pointer to it, for a slot of this version.
    pub(crate) fn pointer(self, version: u8) -> Pointer {
        Pointer::new(self.block, SizeHint::for_item(self.bytes), version)
    }
}

/// Another item for a key that is there.
pub(crate) struct New<'a> {
    pub(crate) item: Item<'a>,
    /// Whether it is to be stored whatever other value the key has by then.
    pub(crate) regardless: bool,
    /// Where it is, if it was written already.
    pub(crate) draft: Option<Draft>,
}

/// How an UPDATE has ended.
pub(crate) enum Updated {
    /// The slot holds this now.
    Done(Pointer),
    /// Another client has acted for this one.
    Combined,
    /// The slot belongs to somebody else by now.
    Lost,
    /// This client has no block of so many bytes left.
    Short { bytes: u64 },
}

/// Where blocks come from, and how they are published.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) pool: Pool,
    pub(crate) sync: Rc<Synchroniser>,
    /// If the clients of the compute node share their operations.
    pub(crate) local: Option<Rc<Local>>,
    /// How slots say that they lead to a descriptor.
    pub(crate) marking: Marking,
}

impl Clone for Blocks {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            sync: Rc::clone(&self.sync),
            local: self.local.clone(),
            marking: self.marking,
        }
    }
}

impl Blocks {
    /// Refuses pools that data pointers cannot reach.
    pub(crate) fn new(pool: Pool, options: SyncOptions, marking: Marking) -> Result<Self, IndexError> {
        let beyond = |geometry: &&farside_pool::Geometry| geometry.node_bytes > NODE_BYTES_MAX;
        if let Some(geometry) = pool.geometry().iter().find(beyond) {
            return Err(IndexError::NodeTooLarge {
                node: geometry.node,
                bytes: geometry.node_bytes,
            });
        }
        if pool.geometry().len() > NODES_MAX {
            return Err(IndexError::TooManyNodes {
                count: pool.geometry().len(),
            });
        }
        let sync = Rc::new(Synchroniser::new(pool.endpoint(), options)?);
        Ok(Self {
            pool,
            local: options.local_wc.then(Rc::default),
            sync,
            marking,
        })
    }

    /// Reads a block to `at` in the buffer: as much as the hint says, and the rest if there is more.
    #[inline]
    pub(crate) async fn read(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
        at: u32,
    ) -> Result<Header, IndexError> {
        let first = self.readable(pointer);
        cx.read(pointer.block(), Slice::new(at, first)).await?;
        self.read_rest(cx, slot, pointer, Slice::new(at, first)).await
    }

    /// Reads what is in force where a descriptor was found.
    #[cold]
    fn read_in_force<'f>(
        &'f self,
        cx: &'f mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
        at: u32,
    ) -> LocalFuture<'f, Result<Header, IndexError>> {
        Box::pin(async move {
            let descriptor = Descriptor::read(cx, slot, pointer).await?;
            let seen = descriptor.seen(cx, slot).await?;
            self.read(cx, slot, seen, at).await
        })
    }

    /// Whether a slot leads to a descriptor.
    #[inline]
    pub(crate) fn is_marked(&self, pointer: Pointer) -> bool {
        self.marking.is_marked(pointer)
    }

    /// Settles a slot if it is marked; see [`descriptor::settle`].
    #[cold]
    pub(crate) fn settle<'f>(
        &'f self,
        cx: &'f mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
    ) -> LocalFuture<'f, Result<Pointer, IndexError>> {
        Box::pin(descriptor::settle(
            cx,
            (&self.pool, self.marking),
            (slot, pointer),
            PATIENCE_NS,
        ))
    }

    /// Reads what is missing of a block whose beginning was read; of a descriptor, what is in force.
    #[inline]
    async fn read_rest(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
        begun: Slice,
    ) -> Result<Header, IndexError> {
        let (at, first) = (begun.at, begun.bytes);
        let (header, rest) = match self.header_and_rest(slot, pointer, &cx.buffer()[begun.range()], first) {
            Ok(found) => found,
            Err(damaged) => {
                cx.rely_on(Slice::new(at, HEADER_BYTES as u32));
                return Err(damaged);
            }
        };
        if rest > 0 {
            let target = Slice::new(at + first, rest);
            cx.reserve((target.at + target.bytes) as usize);
            cx.read(pointer.block().plus(u64::from(first)), target).await?;
        }
        // What the hint made us read beyond its end belongs to somebody else.
        cx.rely_on(Slice::new(at, header.block_bytes() as u32));
        match header {
            Header::Descriptor => self.read_in_force(cx, slot, pointer, at).await,
            header => Ok(header),
        }
    }

    /// The same where only an item can be.
    pub(crate) async fn read_item(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
        at: u32,
    ) -> Result<Header, IndexError> {
        let first = Slice::new(at, self.readable(pointer));
        cx.read(pointer.block(), first).await?;
        self.read_rest_of_item(cx, slot, pointer, first).await
    }

    /// The same for an item whose beginning was read.
    pub(crate) async fn read_rest_of_item(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
        begun: Slice,
    ) -> Result<Header, IndexError> {
        match self.read_rest(cx, slot, pointer, begun).await? {
            header @ Header::Item { .. } => Ok(header),
            Header::Bucket { .. } | Header::Descriptor => Err(damaged(slot, pointer)),
        }
    }

    /// The same to the start of the buffer; in the same round trip, what will probably be stored under a key is written to a
    /// block of its own. Over mapped memory there are no round trips to save, and nothing is written.
    pub(crate) async fn read_item_and_draft(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        pointer: Pointer,
        (key, likely): (&[u8], Likely<'_>),
    ) -> Result<(Header, Option<Draft>), IndexError> {
        let first = Slice::first(self.readable(pointer));
        let draft_at = first.bytes.next_multiple_of(8);
        let draft = match cx.approach(pointer.block(), first.bytes) {
            true => None,
            false => self.draft(cx, key, likely, draft_at),
        };
        let Some(draft) = draft else {
            return Ok((self.read_item(cx, slot, pointer, 0).await?, None));
        };
        let mut batch = Batch::new();
        batch.read(pointer.block(), first);
        if !is_planted("ordered: a draft that is not written") {
            batch.write(Slice::new(draft_at, draft.bytes as u32), draft.block);
        }
        let read = match cx.post(&mut batch).await {
            Ok(()) => self.read_rest(cx, slot, pointer, first).await,
            Err(error) => Err(error.into()),
        };
        match read {
            Ok(header @ Header::Item { .. }) => Ok((header, Some(draft))),
            Ok(Header::Bucket { .. } | Header::Descriptor) => {
                self.give_up(draft);
                Err(damaged(slot, pointer))
            }
            Err(error) => {
                self.give_up(draft);
                Err(error)
            }
        }
    }

    /// Takes a block for what will probably be stored under a key, and encodes it at `at` in the buffer.
    pub(crate) fn draft(&self, cx: &mut OpContext, key: &[u8], likely: Likely<'_>, at: u32) -> Option<Draft> {
        let item = Item::of(key, likely.value, likely.expiry_ms);
        let bytes = item.bytes();
        // What is written while a snapshot is taken is noted first.
        if bytes > DRAFT_BYTES_MAX || self.pool.notes_changes() {
            return None;
        }
        let block = self.pool.allocate(bytes)?;
        cx.reserve((u64::from(at) + bytes) as usize);
        item.encode(&mut cx.buffer_mut()[at as usize..]);
        Some(Draft { block, bytes })
    }

    /// Gives up a draft that was never linked, but whose WRITE may still take effect. Whatever makes the block usable again
    /// is a verb of this client to the same node, and comes after it.
    pub(crate) fn give_up(&self, draft: Draft) {
        self.pool.retire(draft.block, Some(draft.bytes));
    }

    /// Loads an item to `at` in the buffer, over mapped memory and if it is not longer than the `bytes` bytes
    /// that its hint asks for; or no more of it than its key. Otherwise `None`: a READ may say more.
    #[inline(always)]
    pub(crate) fn load_item(
        &self,
        cx: &mut OpContext,
        pointer: Pointer,
        (at, bytes): (u32, u32),
        wanted: Wanted,
    ) -> Option<Header> {
        let (endpoint, buffer) = cx.endpoint_and_buffer();
        let view = endpoint.view(pointer.block(), bytes)?;
        let header = Header::from_words(view.head()?)?;
        let whole = header.block_bytes();
        let Header::Item { key_bytes, .. } = header else {
            return None;
        };
        let wanted = match wanted {
            Wanted::Keys => HEADER_BYTES + key_bytes,
            Wanted::Items => whole as usize,
        };
        if wanted > bytes as usize {
            return None;
        }
        view.first(wanted.div_ceil(8)).copy_to(&mut buffer[at as usize..]);
        Some(header)
    }

    /// The header at the start of `bytes`, and how many bytes of the block are missing, of which
    /// `first` were asked for.
    #[inline]
    pub(crate) fn header_and_rest(
        &self,
        slot: RemoteAddr,
        pointer: Pointer,
        bytes: &[u8],
        first: u32,
    ) -> Result<(Header, u32), IndexError> {
        let header = Header::decode(bytes).ok_or_else(|| damaged(slot, pointer))?;
        let whole = header.block_bytes();
        if whole <= u64::from(first) {
            return Ok((header, 0));
        }
        if !pointer.hint().is_open() || whole > u64::from(self.readable_up_to(pointer.block(), whole)) {
            return Err(damaged(slot, pointer));
        }
        Ok((header, (whole - u64::from(first)) as u32))
    }

    /// Looks whether an item that was read to `area` of the buffer has a key; also returns which of its bytes are used for that.
    pub(crate) fn judge_item(
        &self,
        buffer: &[u8],
        (slot, pointer): (RemoteAddr, Pointer),
        area: Slice,
        key: &[u8],
    ) -> (Searched, Slice) {
        let seen = self.header_and_rest(slot, pointer, &buffer[area.range()], area.bytes);
        let Ok((header @ Header::Item { .. }, 0)) = seen else {
            // A SEARCH reads everything once more, and relies on nothing that was read here.
            let is_absent = is_planted("index: what a group cannot read taken for absent");
            return (Searched::apart_unless(is_absent), Slice::new(area.at, 0));
        };
        let found = Found::in_item(header, buffer, area.at as usize, key);
        let searched = found.map_or(Searched::Absent, Searched::Found);
        (searched, Slice::new(area.at, header.block_bytes() as u32))
    }

    /// How many bytes the hint asks for, cut at the end of the node.
    #[inline]
    pub(crate) fn readable(&self, pointer: Pointer) -> u32 {
        self.readable_up_to(pointer.block(), u64::from(pointer.hint().bytes()))
    }

    #[inline]
    fn readable_up_to(&self, block: RemoteAddr, bytes: u64) -> u32 {
        let end = self
            .pool
            .geometry()
            .get(block.node().index())
            .map_or(0, |geometry| geometry.node_bytes);
        bytes.min(end.saturating_sub(block.offset())) as u32
    }

    /// Lets the scheme replace a pointer.
    #[inline]
    pub(crate) async fn publish(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        old: Pointer,
        new: Pointer,
    ) -> Result<Publish, IndexError> {
        if self.pool.notes_changes()
            && let current = self.note_replaced(cx, slot).await?
            && current != old
        {
            return Ok(Publish::Lost { current });
        }
        let published = self.sync.publish(cx, slot, old, new).await;
        Ok(published.inspect_err(|_| self.pool.doubt())?)
    }

    /// Asks the scheme for leave to replace a pointer; see [`Synchroniser::enter`].
    pub(crate) async fn enter(
        &self,
        cx: &mut OpContext,
        target: Target,
        old: Pointer,
        intent: Intent,
        pin: &Pin,
    ) -> Result<Entered, IndexError> {
        Ok(self.sync.enter(cx, target, old, intent, pin).await?)
    }

    /// Lets the scheme replace a pointer, or whatever else the slot holds for the same key by then.
    pub(crate) async fn overwrite(
        &self,
        cx: &mut OpContext,
        turn: Turn,
        target: Target,
        old: Pointer,
        new: Pointer,
    ) -> Result<Publish, IndexError> {
        if self.pool.notes_changes() {
            // Whatever takes its place until the swap is newer than the snapshot, and its writer has noted that.
            self.note_replaced(cx, target.slot).await?;
        }
        let published = self.sync.overwrite(cx, turn, target, old, new).await;
        Ok(published.inspect_err(|_| self.pool.doubt())?)
    }

    /// Notes for a snapshot what a slot holds before somebody who has pinned swaps it, and returns it. It is read here: what is
    /// remembered from before the snapshot may have been replaced before that.
    #[cold]
    pub(crate) fn note_replaced<'f>(
        &'f self,
        cx: &'f mut OpContext,
        slot: RemoteAddr,
    ) -> LocalFuture<'f, Result<Pointer, IndexError>> {
        Box::pin(async move {
            let current = Pointer::from_word(cx.read_word(slot).await?);
            // What leads to no item yet says nothing: it is settled, thawed or filled before it is replaced.
            if !current.is_null() && !self.is_marked(current) {
                self.pool.note_replaced(cx, current.to_word()).await?;
            }
            Ok(current)
        })
    }

    /// Notes for a snapshot that an item is written to a block, which is not linked yet.
    #[cold]
    pub(crate) fn note_written<'f>(
        &'f self,
        cx: &'f mut OpContext,
        draft: Draft,
    ) -> LocalFuture<'f, Result<(), IndexError>> {
        Box::pin(async move {
            let noted = self.pool.note_written(cx, draft.block).await;
            Ok(noted.inspect_err(|_| self.give_up(draft))?)
        })
    }

    /// Replaces `old`, an item whose block was allocated for `bytes` bytes, by `new`; with a turn, whatever other item of
    /// the key the slot holds by then. Retires what was replaced. Returns whether anything was. Afterwards
    /// the start of the buffer may hold anything.
    pub(crate) async fn replace(
        &self,
        cx: &mut OpContext,
        target: Target,
        old: Pointer,
        new: Pointer,
        (bytes, turn): (u64, Option<Turn>),
    ) -> Result<bool, IndexError> {
        let published = match turn {
            Some(turn) => self.overwrite(cx, turn, target, old, new).await,
            None => self.publish(cx, target.slot, old, new).await,
        };
        let replaced = match published? {
            Publish::Lost { .. } => return Ok(false),
            Publish::Replaced { old } => old,
        };
        if is_planted("index: a replaced item not retired") {
            return Ok(true);
        }
        let bytes = if replaced == old {
            Some(bytes)
        } else if is_planted("farside: the block that was read retired instead of the one that was replaced") {
            self.pool.retire(old.block(), Some(bytes));
            return Ok(true);
        } else {
            self.item_bytes(cx, replaced).await
        };
        self.pool.retire(replaced.block(), bytes);
        Ok(true)
    }

    /// Puts another item in the place of `old`, whose block was allocated for `old_bytes` bytes, in a plain call: over mapped
    /// memory, where the scheme swaps at once, and a block is at hand; otherwise `None`, and nothing was done. Returns whether it
    /// did: otherwise another client was quicker, and the start of the buffer may hold anything. `new` makes the pointer out
    /// of that to the new item.
    #[inline]
    pub(crate) fn update_now(
        &self,
        cx: &mut OpContext,
        target: Target,
        (old, old_bytes): (Pointer, u64),
        (item, regardless): (Item<'_>, bool),
        new: impl FnOnce(Pointer) -> Pointer,
    ) -> Option<Result<bool, IndexError>> {
        if !cx.endpoint().is_mapped() || !self.sync.swaps_at_once(target.name, regardless) {
            return None;
        }
        let bytes = item.bytes();
        let block = self.pool.allocate(bytes)?;
        let draft = Draft { block, bytes };
        if let Err(error) = write_now(cx, item, block)? {
            self.give_up(draft);
            return Some(Err(error.into()));
        }
        let (old, new) = (old, new(draft.pointer(0)));
        let swapped = self.sync.swap_now(cx, target, (old, new), regardless)?;
        match swapped {
            Ok(true) => self.pool.retire(old.block(), Some(old_bytes)),
            Ok(false) => self.pool.give_back(block, bytes),
            Err(_) => self.pool.doubt(),
        }
        Some(swapped.map_err(Into::into))
    }

    /// Lets the scheme put another item in the place of `old`, whose block was allocated for `old_bytes` bytes.
    pub(crate) async fn update(
        &self,
        cx: &mut OpContext,
        target: Target,
        (old, old_bytes): (Pointer, u64),
        New {
            item,
            regardless,
            draft,
        }: New<'_>,
        pin: &Pin,
    ) -> Result<Updated, IndexError> {
        let (bytes, pool) = (item.bytes(), &self.pool);
        let written = draft.map(|draft| draft.block);
        let Some(block) = written.or_else(|| pool.allocate(bytes)) else {
            return Ok(Updated::Short { bytes });
        };
        let mut turn = None;
        if regardless && written.is_some() {
            turn = Some(self.sync.early());
        } else if regardless {
            let entered = self.enter(cx, target, old, Intent::Update, pin).await;
            match entered.inspect_err(|_| pool.give_back(block, bytes))? {
                Entered::Turn(own) => turn = Some(own),
                Entered::Combined => {
                    pool.give_back(block, bytes);
                    return Ok(Updated::Combined);
                }
                Entered::Lost { .. } => {
                    pool.give_back(block, bytes);
                    return Ok(Updated::Lost);
                }
            }
        }
        let new = match &mut turn {
            _ if written.is_some() => Draft { block, bytes }.pointer(0),
            Some(turn) => self.write_in_turn(cx, item, block, 0, (target.slot, turn)).await?,
            None => self.write_to(cx, item, block, 0).await?,
        };
        let new = new.with_identity(old.identity());
        if self.replace(cx, target, old, new, (old_bytes, turn)).await? {
            return Ok(Updated::Done(new));
        }
        pool.give_back(block, bytes);
        Ok(Updated::Lost)
    }

    /// Lets the scheme put `empty` in the place of `old`, whose block was allocated for `bytes` bytes; of whatever other item
    /// the key has by then, if that is meant. Returns what that did, `None` if another client was quicker.
    pub(crate) async fn remove(
        &self,
        cx: &mut OpContext,
        target: Target,
        (old, bytes): (Pointer, u64),
        (empty, regardless): (Pointer, bool),
        pin: &Pin,
    ) -> Result<Option<Change>, IndexError> {
        let turn = match regardless {
            false => None,
            true => match self.enter(cx, target, old, Intent::Delete, pin).await? {
                Entered::Turn(turn) => Some(turn),
                // Only updates are combined.
                Entered::Combined | Entered::Lost { .. } => return Ok(None),
            },
        };
        let published = match turn {
            Some(turn) => self.overwrite(cx, turn, target, old, empty).await,
            None => self.publish(cx, target.slot, old, empty).await,
        };
        match published? {
            Publish::Lost { .. } => Ok(None),
            Publish::Replaced { old: removed } => self.retire_removed(cx, removed, (old, bytes)).await.map(Some),
        }
    }

    /// Retires what a DELETE has removed, which may be another item than the one that it has found, whose block was allocated for
    /// `bytes` bytes. If that was gone already, the DELETE did nothing.
    ///
    /// # Errors
    /// What the fabric reports: it was removed and retired, and may have been gone already.
    pub(crate) async fn retire_removed(
        &self,
        cx: &mut OpContext,
        removed: Pointer,
        (found, bytes): (Pointer, u64),
    ) -> Result<Change, IndexError> {
        let header = match removed == found {
            true => None,
            false => Some(self.header_of(cx, removed).await),
        };
        if !is_planted("index: a replaced item not retired") {
            let bytes = match &header {
                None => Some(bytes),
                Some(read) => read
                    .as_ref()
                    .ok()
                    .and_then(|header| header.map(|header| header.block_bytes())),
            };
            self.pool.retire(removed.block(), bytes);
        }
        // Without it nobody knows what was removed.
        let header = header.transpose()?.flatten();
        let is_gone = matches!(header, Some(Header::Item { expiry_ms: GONE_MS, .. }))
            && !is_planted("transaction: what a transaction has removed removed once more");
        Ok(if is_gone { Change::Kept } else { Change::Deleted })
    }

    /// For how many bytes the block of an item was allocated, as far as its class goes; `None` if nobody says.
    pub(crate) async fn item_bytes(&self, cx: &mut OpContext, pointer: Pointer) -> Option<u64> {
        if let Some(bytes) = class_bytes(pointer) {
            return Some(bytes);
        }
        let header = self.header_of(cx, pointer).await.ok().flatten();
        header.map(|header| header.block_bytes())
    }

    /// The header of an item that was replaced; `None` if it is none.
    async fn header_of(&self, cx: &mut OpContext, pointer: Pointer) -> Result<Option<Header>, IndexError> {
        // The operation is pinned: it is still there.
        let bytes = cx.read(pointer.block(), Slice::first(HEADER_BYTES as u32)).await?;
        let header = Header::decode(bytes);
        cx.rely_on(Slice::first(HEADER_BYTES as u32));
        Ok(header)
    }

    /// Writes an item to a block of its own; `None` if this client has no block left. Uses the buffer
    /// from its start.
    pub(crate) async fn write_item(
        &self,
        cx: &mut OpContext,
        item: Item<'_>,
        version: u8,
    ) -> Result<Option<Pointer>, IndexError> {
        match self.pool.allocate(item.bytes()) {
            Some(block) => self.write_to(cx, item, block, version).await.map(Some),
            None => Ok(None),
        }
    }

    /// Writes an item to a block that was allocated for it, in a turn. Who has waited for that looks at the slot in the same
    /// round trip. Otherwise as [`Blocks::write_to`].
    pub(crate) async fn write_in_turn(
        &self,
        cx: &mut OpContext,
        item: Item<'_>,
        block: RemoteAddr,
        version: u8,
        (slot, turn): (RemoteAddr, &mut Turn),
    ) -> Result<Pointer, IndexError> {
        if !turn.has_waited() {
            return self.write_to(cx, item, block, version).await;
        }
        // Rare, and a batch is large: in a box.
        Box::pin(async move {
            let bytes = item.bytes();
            if self.pool.notes_changes() {
                self.note_written(cx, Draft { block, bytes }).await?;
            }
            cx.reserve(bytes as usize);
            item.encode(cx.buffer_mut());
            let mut batch = Batch::new();
            batch.write(Slice::first(bytes as u32), block);
            let seen = batch.read_word(slot);
            if let Err(error) = cx.post(&mut batch).await {
                self.give_up(Draft { block, bytes });
                return Err(error.into());
            }
            turn.note(Pointer::from_word(batch.result(seen)));
            Ok(Draft { block, bytes }.pointer(version))
        })
        .await
    }

    /// Writes an item to a block that was allocated for it. Uses the buffer from its start. On an error the block is
    /// given up.
    pub(crate) async fn write_to(
        &self,
        cx: &mut OpContext,
        item: Item<'_>,
        block: RemoteAddr,
        version: u8,
    ) -> Result<Pointer, IndexError> {
        let bytes = item.bytes();
        if self.pool.notes_changes() {
            self.note_written(cx, Draft { block, bytes }).await?;
        }
        if item.value.len() >= LONG_VALUE_BYTES
            && let Some(written) = write_apart(cx, item, block)
        {
            written.inspect_err(|_| self.give_up(Draft { block, bytes }))?;
            return Ok(Draft { block, bytes }.pointer(version));
        }
        cx.reserve(bytes as usize);
        item.encode(cx.buffer_mut());
        if is_planted("index: an item written after it is published") {
            let (endpoint, item) = (cx.endpoint().clone(), cx.buffer()[..bytes as usize].to_vec());
            cx.endpoint().spawn(async move {
                endpoint.sleep(3_000).await;
                let mut cx = OpContext::new(endpoint);
                cx.reserve(item.len());
                cx.buffer_mut()[..item.len()].copy_from_slice(&item);
                let _ = cx.write(Slice::first(bytes as u32), block).await;
            });
        } else if let Err(error) = cx.write(Slice::first(bytes as u32), block).await {
            self.give_up(Draft { block, bytes });
            return Err(error.into());
        }
        Ok(Draft { block, bytes }.pointer(version))
    }
}

/// Writes an item to a block that was allocated for it, in a plain call, over mapped memory; `None` elsewhere, and nothing was
/// written. May use the buffer from its start.
#[inline]
fn write_now(cx: &mut OpContext, item: Item<'_>, block: RemoteAddr) -> Option<Result<(), FabricError>> {
    if item.value.len() >= LONG_VALUE_BYTES {
        return write_apart(cx, item, block);
    }
    let bytes = item.bytes();
    cx.reserve(bytes as usize);
    item.encode(cx.buffer_mut());
    cx.write_now(Slice::first(bytes as u32), block)
}

/// The same of an item with a long value: no copy of that is made in between.
#[inline(never)]
fn write_apart(cx: &mut OpContext, item: Item<'_>, block: RemoteAddr) -> Option<Result<(), FabricError>> {
    cx.reserve(HEADER_BYTES + item.key.len() + 8);
    let (endpoint, buffer) = cx.endpoint_and_buffer();
    endpoint.write_both_now(item.encode_apart(buffer), block)
}

/// For how many bytes the block of an item was allocated, if the hint of its pointer tells: only the smallest hints
/// are classes.
pub(crate) fn class_bytes(pointer: Pointer) -> Option<u64> {
    let hint = pointer.hint();
    matches!(hint, SizeHint::Half | SizeHint::Line).then(|| hint.bytes().into())
}

/// The error of a slot that leads to no item.
pub(crate) fn damaged(slot: RemoteAddr, pointer: Pointer) -> IndexError {
    IndexError::Damaged {
        slot,
        block: pointer.block(),
    }
}

/// A block, and the pin under which it has to be linked or given back.
pub(crate) async fn take_block(pool: &Pool, bytes: u64) -> Result<(RemoteAddr, Pin), IndexError> {
    // Ends: there is memory, or the pool says that there is none.
    loop {
        let pin = pool.pin();
        if let Some(block) = pool.allocate(bytes) {
            return Ok((block, pin));
        }
        drop(pin);
        pool.restock(bytes, 1, Purpose::Insert).await?;
    }
}

/// Writes the first node of an index, which is at the start of the buffer, and links it in a word that is 0 as long as there is none;
/// unless another client has.
pub(crate) async fn link_first(
    cx: &mut OpContext,
    pool: &Pool,
    (block, bytes): (RemoteAddr, u64),
    (at, word): (RemoteAddr, u64),
) -> Result<(), IndexError> {
    let written = cx.write(Slice::first(bytes as u32), block).await;
    let linked = match written {
        Ok(()) => cx.compare_swap(at, 0, word).await,
        Err(error) => Err(error),
    };
    match linked {
        Ok(0) => Ok(()),
        Ok(_) => {
            pool.give_back(block, bytes);
            Ok(())
        }
        Err(error) => {
            pool.doubt();
            Err(error.into())
        }
    }
}
