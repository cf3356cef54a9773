//! Snapshots: what the pool does so that one client can read the items as they were at one instant, while the others write.
//!
//! On the path: nowhere while nobody takes a snapshot; then whoever changes a slot passes here first. The index asks
//! ([`Pool::wait_at_gate`], [`Pool::note_written`], [`Pool::note_replaced`]), the exporter reads ([`Snapshot`]).
//!
//! # The words
//! ```text
//! SNAPSHOT_AT  phase in bits 0..3, number of the snapshot in 3..32, life of the exporter in 32..48, its client index + 1 in 48..64
//! JOURNALS_AT  address of the page of a journal that was linked last, 0: none
//!
//! page         0      address of the page that was linked before it
//!              8      whose journal it is: client index in bits 0..16, its life in 16..32
//!              16..   records, 0: not written yet. Bits 0..48 of a data pointer, and in bits 48..64 what it is: 1 the block was
//!                     written since, 2 what the pointer leads to is being replaced
//! ```
//!
//! # How a snapshot is taken
//!  1. The exporter *closes the gate*: it swaps phase IDLE for CLOSED, and then reads the global epoch g. Every tick reads the
//!     phase after the epoch. Whoever wants to pin for a change and knows that the gate is closed waits.
//!  2. It waits until every living client has published g + 1. Such a client has read the epoch g + 1, so it knows of the
//!     gate, and has no operation left that pinned before it knew. So no change is under way anywhere: **this is the instant**.
//!  3. It opens the gate: phase ACTIVE. From now on every change first notes in its client's journal, before it swaps a slot,
//!     which block it has *written*, and what pointer it is about to *replace*, which it has read from the slot since it pinned.
//!  4. The exporter goes through the slots. An item that it finds there belongs to the snapshot unless its block is noted as
//!     written, and so does an item that is noted as replaced. It reads the journals after the slots, and before it decides.
//!  5. Phase IDLE. Everybody retires the pages of its journal.
//!
//! # Why that is right
//! - *Nothing is missing*: an item of the snapshot is in its slot until somebody swaps that, who has noted it before. So it is
//!   found in the slot, or it is noted by the time the exporter is done with the slots.
//! - *Nothing is too new*: what was linked after the instant was noted as written before it was linked, so before anybody saw
//!   it. A note of what is replaced was read from the slot after the instant: it was there at the instant, or is noted as
//!   written.
//! - *No address says two things*: from before the instant until the phase is IDLE again nobody ends the limbo of a block
//!   (`Pool::holds_blocks`), and nobody's search for lost blocks comes to its end. What waits in limbo by then waits for
//!   another grace period, so the exporter may read whatever it has found until it unpins, if it has seen since it pinned that
//!   the phase is ACTIVE ([`Snapshot::check`]).
//! - *The pages are no lost blocks*: a client that has some says that it has not drained what is as old as its first one, so
//!   that no search ends that suspects them; and a search acquits those of living clients (`Pool::journal_pages`).
//! - *It is an instant*: no change is under way, so each has taken effect wholly, or does so later; a transaction is one
//!   change, under one pin. What a dead client has left undecided is decided by whoever finds it, the same for everybody.
//!
//! # What may go wrong
//! - Nobody waits at the gate for longer than [`GATE_PATIENCE_SHARE`] of a lease: then the snapshot has failed, and is begun
//!   again.
//! - If memory is short, whoever notices ends the snapshot, not its own operation: phase SHORT, and blocks are reused again.
//! - An exporter that dies is buried like any client, and whoever buries it resets the phase.

use std::cell::{Cell, RefCell};

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, LocalFuture, NodeId, OpContext, RemoteAddr, Slice};

use crate::epoch::Pin;
use crate::error::PoolError;
use crate::layout::{EPOCH_AT, JOURNALS_AT, Owner, SNAPSHOT_AT};
use crate::pool::{Pool, Purpose};

/// Bytes of a page of a journal: half of the smallest chunk.
const PAGE_BYTES: u64 = 2048;
/// How many records it has.
const PAGE_RECORDS: usize = (PAGE_BYTES / 8) as usize - HEAD_WORDS;
/// How many words stand in front of them.
const HEAD_WORDS: usize = 2;
/// How many records there is room for before an operation begins that may write some, for each that is under way.
const RECORDS_PER_OPERATION: usize = 4;
/// The share of a lease for which somebody waits at the gate.
pub const GATE_PATIENCE_SHARE: u64 = 4;
/// How often whoever waits at the gate looks, in a tick.
const GATE_LOOKS_PER_TICK: u64 = 4;
/// How often the exporter tries to come to an instant.
const ATTEMPTS_MAX: u32 = 16;
/// How often it looks whether another snapshot has ended.
const BUSY_ATTEMPTS_MAX: u32 = 6;
/// For how many ticks an operation that has ended a snapshot waits for what is reclaimed then.
pub(crate) const RELIEF_TICKS: u32 = 64;

const BLOCK_BITS: u64 = (1 << 48) - 1;
const WRITTEN: u64 = 1 << 48;
const REPLACED: u64 = 2 << 48;

/// How far a snapshot has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Phase {
    /// Nobody takes one.
    Idle = 0,
    /// Changes wait until it has begun.
    Closed = 1,
    /// Changes are noted.
    Active = 2,
    /// It was ended, since memory is short.
    Short = 3,
    /// It was ended, since somebody has waited for too long at the gate, or a journal has no room.
    Late = 4,
}

/// The word at [`SNAPSHOT_AT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SnapshotWord(pub(crate) u64);

impl SnapshotWord {
    fn new(phase: Phase, number: u32, owner: Owner) -> Self {
        let owner = (u64::from(owner.client) + 1) << 16 | u64::from(owner.life);
        Self(phase as u64 | u64::from(number & 0x1fff_ffff) << 3 | owner << 32)
    }

    /// How far it has come; whatever is no phase counts as none.
    pub(crate) fn phase(self) -> Phase {
        match self.0 & 7 {
            1 => Phase::Closed,
            2 => Phase::Active,
            3 => Phase::Short,
            4 => Phase::Late,
            _ => Phase::Idle,
        }
    }

    fn with_phase(self, phase: Phase) -> Self {
        Self(self.0 & !7 | phase as u64)
    }

    fn number(self) -> u32 {
        (self.0 >> 3) as u32 & 0x1fff_ffff
    }

    fn is_of(self, owner: Owner) -> bool {
        self.0 >> 32 == (u64::from(owner.client) + 1) << 16 | u64::from(owner.life)
    }

    /// How far the snapshot has come that is being taken, and the client and its life that takes it.
    pub(crate) fn taken_by(self) -> Option<(Phase, u16, u16)> {
        let client = (self.0 >> 48) as u16;
        self.holds_blocks()
            .then(|| (self.phase(), client.wrapping_sub(1), (self.0 >> 32) as u16))
    }

    /// Whether blocks must stay what they are.
    fn holds_blocks(self) -> bool {
        matches!(self.phase(), Phase::Closed | Phase::Active)
    }
}

/// What a client knows of the snapshot, and the pages that it has noted changes on.
#[derive(Default, Debug)]
pub(crate) struct Journal {
    pub(crate) word: Cell<SnapshotWord>,
    pages: RefCell<Pages>,
}

impl Journal {
    /// Nothing is noted yet; this is what the phase was at the beginning.
    pub(crate) fn of(word: u64) -> Self {
        Self {
            word: Cell::new(SnapshotWord(word)),
            pages: RefCell::default(),
        }
    }
}

#[derive(Default, Debug)]
struct Pages {
    linked: Vec<RemoteAddr>,
    /// The epoch when the first of them was linked.
    since: u64,
    /// The page that is being filled among them, and how many of its records are taken.
    filling: usize,
    taken: usize,
}

impl Pages {
    fn room(&self) -> usize {
        ((self.linked.len() - self.filling) * PAGE_RECORDS).saturating_sub(self.taken)
    }

    /// Where the next record goes.
    fn take(&mut self) -> Option<RemoteAddr> {
        if self.taken == PAGE_RECORDS && self.filling + 1 < self.linked.len() {
            (self.filling, self.taken) = (self.filling + 1, 0);
        }
        if self.taken == PAGE_RECORDS {
            return None;
        }
        let page = self.linked.get(self.filling)?;
        self.taken += 1;
        Some(page.plus(8 * (HEAD_WORDS + self.taken - 1) as u64))
    }
}

fn owner_word(owner: Owner) -> u64 {
    u64::from(owner.client) | u64::from(owner.life) << 16
}

fn snapshot_at() -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), SNAPSHOT_AT)
}

fn journals_at() -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), JOURNALS_AT)
}

impl Pool {
    /// Whether, as far as this client knows, no snapshot is being taken: a change need not look further.
    #[inline]
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.shared.journal.word.get().0 & 7 == 0
    }

    /// Whether retired blocks must not be reused yet.
    pub(crate) fn holds_blocks(&self) -> bool {
        self.shared.journal.word.get().holds_blocks() && !is_planted("snapshot: blocks reused while it is taken")
    }

    /// Whether changes have to be noted.
    #[inline]
    #[must_use]
    pub fn notes_changes(&self) -> bool {
        self.shared.journal.word.get().0 & 7 == Phase::Active as u64
    }

    /// Takes over what a tick has read.
    pub(crate) fn observe_snapshot(&self, word: SnapshotWord) {
        let journal = &self.shared.journal;
        if journal.word.get() == word.with_phase(Phase::Active) && word.phase() == Phase::Closed {
            // A gate opens once. Somebody who waited at it has seen it open before the answer to this tick came.
            return;
        }
        let before = journal.word.replace(word);
        let is_same = before.number() == word.number() && word.holds_blocks();
        if before.holds_blocks() && !is_same {
            // The exporter may have found what waits there, and is in the middle of an operation.
            self.shared.heap.borrow_mut().wait_anew(self.shared.epochs.local());
        }
        if !is_same {
            // Nobody reads them any more: their snapshot has ended.
            self.retire_pages();
        }
    }

    fn retire_pages(&self) {
        for page in core::mem::take(&mut *self.shared.journal.pages.borrow_mut()).linked {
            self.retire(page, Some(PAGE_BYTES));
        }
    }

    /// What a client that leaves, and has noted its last change, owes to snapshots: it ends its own, and its pages wait with
    /// what else it has retired until nobody reads them.
    pub(crate) async fn leave_snapshots(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        if self.shared.journal.word.get().is_of(self.shared.owner) {
            self.end_snapshot_of(cx, self.shared.owner).await?;
        }
        self.retire_pages();
        Ok(())
    }

    /// To be called right before an operation pins that may change a slot. While a snapshot is about to begin it waits until that
    /// has; while one is taken it sees to it that there is room to note the change of so many slots. The caller holds no pin, and
    /// waits for nothing until it has pinned.
    ///
    /// # Errors
    /// What the fabric reports.
    #[inline]
    pub async fn wait_at_gate(&self, slots: usize) -> Result<(), PoolError> {
        if !self.is_undisturbed() {
            self.pass_gate(slots).await?;
        }
        Ok(())
    }

    /// Waits at the gate, and pins.
    ///
    /// # Errors
    /// What the fabric reports.
    #[inline]
    pub async fn pin_to_change(&self, slots: usize) -> Result<Pin, PoolError> {
        self.wait_at_gate(slots).await?;
        Ok(self.pin())
    }

    #[cold]
    fn pass_gate(&self, slots: usize) -> LocalFuture<'_, Result<(), PoolError>> {
        Box::pin(async move {
            if is_planted("snapshot: a change that does not wait at the gate") {
                return Ok(());
            }
            let (endpoint, options) = (&self.shared.endpoint, self.shared.options);
            let patience = endpoint.now_ns() + options.lease_ns / GATE_PATIENCE_SHARE;
            let mut cx = OpContext::new(endpoint.clone());
            loop {
                self.check_alive()?;
                let word = self.shared.journal.word.get();
                match word.phase() {
                    Phase::Closed if endpoint.now_ns() >= patience => self.end_snapshot(&mut cx, Phase::Late).await?,
                    Phase::Closed => {
                        endpoint.sleep(options.tick_ns / GATE_LOOKS_PER_TICK).await;
                        // The gate opens for all at once, as soon as the exporter says so.
                        let now = SnapshotWord(cx.read_word(snapshot_at()).await?);
                        if self.shared.journal.word.get() == word && now == word.with_phase(Phase::Active) {
                            self.shared.journal.word.set(now);
                        } else if now != word {
                            self.tick().await?;
                        }
                    }
                    Phase::Active if !self.has_room(slots) => self.add_page(&mut cx).await?,
                    _ => return Ok(()),
                }
            }
        })
    }

    /// Whether the pages have room for what the operations under way may note, and one more.
    fn has_room(&self, slots: usize) -> bool {
        let others = RECORDS_PER_OPERATION * (self.shared.epochs.running() + 16);
        self.shared.journal.pages.borrow().room() >= others + 2 * slots
    }

    /// Links another page. Without memory for it the snapshot ends.
    async fn add_page(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        let word = self.shared.journal.word.get();
        let pin = self.pin();
        let Some(page) = self.allocate(PAGE_BYTES) else {
            drop(pin);
            return match self.restock(PAGE_BYTES, 1, Purpose::Insert).await {
                Err(PoolError::OutOfMemory { .. }) => self.end_snapshot(cx, Phase::Short).await,
                other => other,
            };
        };
        cx.reserve(PAGE_BYTES as usize);
        cx.buffer_mut()[..PAGE_BYTES as usize].fill(0);
        cx.buffer_mut()[8..16].copy_from_slice(&owner_word(self.shared.owner).to_le_bytes());
        let linked = self.link_page(cx, page).await;
        let journal = &self.shared.journal;
        if linked.is_ok() && journal.word.get() == word {
            let pages = &mut *journal.pages.borrow_mut();
            if pages.linked.is_empty() {
                // It was allocated under this pin, so that others have counted this operation until now.
                pages.since = self.shared.epochs.oldest();
            }
            pages.linked.push(page);
        } else {
            // Linked or not, nobody writes to it. As long as somebody may read it, it stays as it is.
            self.retire(page, Some(PAGE_BYTES));
        }
        linked
    }

    async fn link_page(&self, cx: &mut OpContext, page: RemoteAddr) -> Result<(), PoolError> {
        cx.write(Slice::first(PAGE_BYTES as u32), page).await?;
        let mut head = cx.read_word(journals_at()).await?;
        // Ends: each time another client has linked a page.
        loop {
            cx.write_word(page, head).await?;
            let seen = cx.compare_swap(journals_at(), head, page.to_bits()).await?;
            if seen == head {
                return Ok(());
            }
            head = seen;
        }
    }

    /// No block of this client that is neither free nor in limbo, but for those of operations, is older than this epoch.
    pub(crate) fn journal_since(&self, epoch: u64) -> u64 {
        let pages = self.shared.journal.pages.borrow();
        match pages.linked.is_empty() {
            true => epoch,
            false => pages.since.min(epoch),
        }
    }

    /// The pages of the journals of living clients, while a snapshot is taken: nobody's search for lost blocks may take them.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(crate) async fn journal_pages(&self, cx: &mut OpContext) -> Result<Vec<RemoteAddr>, PoolError> {
        // Pages that are linked stay so while this is held, if the snapshot has not ended before.
        let _pin = self.pin();
        let word = SnapshotWord(cx.read_word(snapshot_at()).await?);
        if word.phase() != Phase::Active {
            return Ok(Vec::new());
        }
        let clients = self.clients(cx).await?;
        let live = clients.iter().filter(|(_, entry)| entry.is_live());
        let live: Vec<u64> = live.map(|&(client, entry)| owner_word(entry.owner(client))).collect();
        let mut pages = Vec::new();
        let mut page = RemoteAddr::from_bits(cx.read_word(journals_at()).await?).unwrap_or(RemoteAddr::NULL);
        // Ends: pages are linked once each, in front of those that were there.
        while !page.is_null() {
            let mut batch = Batch::new();
            let [next, owner] = [0, 8].map(|at| batch.read_word(page.plus(at)));
            cx.post(&mut batch).await?;
            if live.contains(&batch.result(owner)) {
                pages.push(page);
            }
            page = RemoteAddr::from_bits(batch.result(next)).unwrap_or(RemoteAddr::NULL);
        }
        Ok(pages)
    }

    /// Notes that an item was written to a block that is about to be linked, if a snapshot is taken.
    ///
    /// # Errors
    /// What the fabric reports: then the block must not be linked.
    pub async fn note_written(&self, cx: &mut OpContext, block: RemoteAddr) -> Result<(), PoolError> {
        if is_planted("snapshot: what is written is not noted") {
            return Ok(());
        }
        let units = block.offset() / crate::size_class::UNIT_BYTES;
        let node = block.node().index() as u64;
        self.note(cx, WRITTEN | node << 39 | units).await
    }

    /// Notes that a data pointer is about to be replaced, if a snapshot is taken. It was read from its slot since the operation
    /// has pinned.
    ///
    /// # Errors
    /// What the fabric reports: then it must not be replaced.
    pub async fn note_replaced(&self, cx: &mut OpContext, pointer: u64) -> Result<(), PoolError> {
        if is_planted("snapshot: what is replaced is not noted") {
            return Ok(());
        }
        self.note(cx, REPLACED | pointer & BLOCK_BITS).await
    }

    async fn note(&self, cx: &mut OpContext, record: u64) -> Result<(), PoolError> {
        if !self.notes_changes() {
            return Ok(());
        }
        let at = self.shared.journal.pages.borrow_mut().take();
        match at {
            Some(at) => Ok(cx.write_word(at, record).await?),
            // More operations than there was room for: the snapshot is of no use any more.
            None => self.end_snapshot(cx, Phase::Late).await,
        }
    }

    /// Ends the snapshot that is taken, for this reason.
    pub(crate) async fn end_snapshot(&self, cx: &mut OpContext, reason: Phase) -> Result<(), PoolError> {
        let word = self.shared.journal.word.get();
        if word.holds_blocks() {
            // Losing means that it has ended, or that its gate has opened meanwhile: then there is nothing to complain of, or
            // whoever is short of memory comes again.
            let failed = word.with_phase(reason);
            let seen = cx.compare_swap(snapshot_at(), word.0, failed.0).await?;
            if seen == word.0 {
                self.observe_snapshot(failed);
            } else {
                self.tick().await?;
            }
        }
        Ok(())
    }

    /// Whoever buries a client sees to it that no snapshot waits for it.
    pub(crate) async fn end_snapshot_of(&self, cx: &mut OpContext, dead: Owner) -> Result<(), PoolError> {
        let word = SnapshotWord(cx.read_word(snapshot_at()).await?);
        if word.phase() != Phase::Idle && word.is_of(dead) {
            // Losing means that somebody else has.
            cx.compare_swap(snapshot_at(), word.0, word.with_phase(Phase::Idle).0)
                .await?;
        }
        Ok(())
    }

    /// Begins a snapshot: when this returns, the instant has just been, and changes are noted.
    ///
    /// # Errors
    /// [`PoolError::SnapshotBusy`] if another client takes one for some leases, [`PoolError::SnapshotEnded`] if clients do not
    /// come to the instant; what the fabric reports.
    pub fn begin_snapshot(&self) -> LocalFuture<'_, Result<Snapshot, PoolError>> {
        Box::pin(async move {
            let mut cx = OpContext::new(self.shared.endpoint.clone());
            for attempt in 0..ATTEMPTS_MAX {
                match self.try_snapshot(&mut cx).await {
                    // Its exporter may have died: then it is buried before long.
                    Err(PoolError::SnapshotBusy) if attempt < BUSY_ATTEMPTS_MAX => {}
                    Ok(None) => {}
                    Ok(Some(snapshot)) => return Ok(snapshot),
                    Err(error) => return Err(error),
                }
                // Whoever held it up has ended, or is buried by then.
                self.shared.endpoint.sleep(self.shared.options.lease_ns / 2).await;
            }
            Err(PoolError::SnapshotEnded {
                reason: "a client does not answer: it was asked for several leases",
            })
        })
    }

    async fn try_snapshot(&self, cx: &mut OpContext) -> Result<Option<Snapshot>, PoolError> {
        let before = SnapshotWord(cx.read_word(snapshot_at()).await?);
        if before.holds_blocks() {
            return Err(PoolError::SnapshotBusy);
        }
        let closed = SnapshotWord::new(Phase::Closed, before.number() + 1, self.shared.owner);
        if cx.compare_swap(snapshot_at(), before.0, closed.0).await? != before.0 {
            return Err(PoolError::SnapshotBusy);
        }
        let mut snapshot = Snapshot {
            pool: self.clone(),
            word: closed,
            head: RemoteAddr::NULL,
            open: Vec::new(),
            is_over: false,
        };
        // After the gate was closed: whoever reads a later epoch knows of that.
        let epoch = cx.read_word(RemoteAddr::new(NodeId::new(0), EPOCH_AT)).await?;
        let (endpoint, options) = (&self.shared.endpoint, self.shared.options);
        let patience = endpoint.now_ns() + options.lease_ns / GATE_PATIENCE_SHARE;
        let wanted = match is_planted("snapshot: an instant that not everybody knows of") {
            true => 0,
            false => epoch + 1,
        };
        loop {
            self.tick().await?;
            if self.shared.journal.word.get() != closed {
                // Somebody at the gate has lost patience.
                snapshot.give_up(cx).await?;
                return Ok(None);
            }
            let clients = self.clients(cx).await?;
            let mut live = clients.iter().filter(|(_, entry)| entry.is_live());
            // Who joins looks at the phase when it is live: after this. Who was cut off writes nothing.
            if live.all(|(_, entry)| entry.published >= wanted) {
                break;
            }
            if endpoint.now_ns() >= patience {
                snapshot.give_up(cx).await?;
                return Ok(None);
            }
            endpoint.sleep(options.tick_ns / 2).await;
        }
        // Nobody notes anything before the gate opens.
        cx.write_word(journals_at(), 0).await?;
        let active = closed.with_phase(Phase::Active);
        if cx.compare_swap(snapshot_at(), closed.0, active.0).await? != closed.0 {
            snapshot.give_up(cx).await?;
            return Ok(None);
        }
        snapshot.word = active;
        self.shared.journal.word.set(active);
        Ok(Some(snapshot))
    }
}

/// What a journal says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// An item was written to this block after the instant.
    Written(RemoteAddr),
    /// This data pointer was in a slot after the instant; its identity is left out.
    Replaced(u64),
}

impl Note {
    fn from_record(record: u64) -> Option<Self> {
        let block = record & BLOCK_BITS;
        match record & !BLOCK_BITS {
            WRITTEN => {
                let node = NodeId::new((block >> 39) as u16);
                let units = block & ((1 << 36) - 1);
                Some(Self::Written(RemoteAddr::new(
                    node,
                    units * crate::size_class::UNIT_BYTES,
                )))
            }
            REPLACED => Some(Self::Replaced(block)),
            _ => None,
        }
    }
}

/// A snapshot that is being taken by this client. To be [ended](Snapshot::end); if it is dropped, it ends when the client
/// does, or when memory is short.
#[derive(Debug)]
pub struct Snapshot {
    pool: Pool,
    word: SnapshotWord,
    /// The page that was linked last when the journals were last read.
    head: RemoteAddr,
    /// Pages that have records to come, and how many were read of each without a gap.
    open: Vec<(RemoteAddr, usize)>,
    is_over: bool,
}

impl Snapshot {
    /// Reads what was noted since the last call, under a [pin](Snapshot::pin); a note may come more than once. After that
    /// nothing is missing that was noted before the call.
    ///
    /// # Errors
    /// [`PoolError::SnapshotEnded`]; what the fabric reports.
    pub async fn read_notes(&mut self, cx: &mut OpContext, visit: &mut dyn FnMut(Note)) -> Result<(), PoolError> {
        let head = RemoteAddr::from_bits(cx.read_word(journals_at()).await?).unwrap_or(RemoteAddr::NULL);
        let (mut page, until) = (head, self.head);
        // Ends: pages are linked once each, in front of those that were there.
        while page != until && !page.is_null() {
            self.open.push((page, 0));
            page = RemoteAddr::from_bits(cx.read_word(page).await?).unwrap_or(RemoteAddr::NULL);
        }
        self.head = head;
        cx.reserve(PAGE_BYTES as usize);
        for (page, read) in &mut self.open {
            let from = 8 * (HEAD_WORDS + *read) as u64;
            let bytes = cx
                .read(page.plus(from), Slice::first((PAGE_BYTES - from) as u32))
                .await?;
            let (records, _) = bytes.as_chunks::<8>();
            let mut is_gapless = true;
            for &record in records {
                let record = u64::from_le_bytes(record);
                // One that was taken before it may still be on its way.
                is_gapless &= record != 0;
                *read += usize::from(is_gapless);
                if let Some(note) = Note::from_record(record) {
                    visit(note);
                }
            }
            cx.rely_on_words();
        }
        self.open.retain(|&(_, read)| read < PAGE_RECORDS);
        self.check(cx).await
    }

    /// Pins for the exporter, and looks whether it is still good: then whatever it finds stays until it unpins.
    ///
    /// # Errors
    /// See [`Snapshot::check`].
    pub async fn pin(&self, cx: &mut OpContext) -> Result<Pin, PoolError> {
        let pin = self.pool.pin();
        self.check(cx).await?;
        Ok(pin)
    }

    /// Whether it is still good: to be asked after whatever was read, which counts only then.
    ///
    /// # Errors
    /// [`PoolError::SnapshotEnded`] with the reason; what the fabric reports.
    pub async fn check(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        let now = SnapshotWord(cx.read_word(snapshot_at()).await?);
        if now == self.word {
            return Ok(());
        }
        Err(PoolError::SnapshotEnded {
            reason: match now.phase() {
                Phase::Short if now.number() == self.word.number() => {
                    "memory fell short: replaced values are kept until it is done"
                }
                Phase::Late if now.number() == self.word.number() => {
                    "more changes were under way than its journals hold"
                }
                _ => "this client was taken for dead",
            },
        })
    }

    /// Ends it: replaced blocks may be reused. Returns whether it was good until now.
    ///
    /// # Errors
    /// [`PoolError::SnapshotEnded`]; what the fabric reports.
    pub async fn end(mut self, cx: &mut OpContext) -> Result<(), PoolError> {
        let checked = self.check(cx).await;
        self.give_up(cx).await?;
        checked
    }

    async fn give_up(&mut self, cx: &mut OpContext) -> Result<(), PoolError> {
        self.is_over = true;
        let mut seen = self.word;
        // Ends: the phase of a snapshot goes on.
        while seen.number() == self.word.number() && seen.is_of(self.pool.owner()) && seen.phase() != Phase::Idle {
            let idle = seen.with_phase(Phase::Idle);
            let now = SnapshotWord(cx.compare_swap(snapshot_at(), seen.0, idle.0).await?);
            if now == seen {
                self.pool.observe_snapshot(idle);
                break;
            }
            seen = now;
        }
        Ok(())
    }
}

impl Drop for Snapshot {
    /// Whoever is dropped in between ends it all the same.
    fn drop(&mut self) {
        if self.is_over || self.pool.has_ended() {
            return;
        }
        let (pool, word) = (self.pool.clone(), self.word);
        let endpoint = self.pool.endpoint().clone();
        self.pool.endpoint().spawn(async move {
            let mut cx = OpContext::new(endpoint);
            let idle = word.with_phase(Phase::Idle);
            if let Err(error) = cx.compare_swap(snapshot_at(), word.0, idle.0).await {
                tracing::debug!("a snapshot could not be ended: {error}");
            }
            drop(pool);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_survive_packing(number in 0_u32..1 << 29, client in 0_u16..u16::MAX, life: u16) {
            let owner = Owner { client, life };
            for phase in [Phase::Idle, Phase::Closed, Phase::Active, Phase::Short, Phase::Late] {
                let word = SnapshotWord::new(phase, number, owner);
                prop_assert_eq!((word.phase(), word.number()), (phase, number));
                let another = Owner { client, life: life.wrapping_add(1) };
                prop_assert!(word.is_of(owner) && !word.is_of(another));
                let is_taken = matches!(phase, Phase::Closed | Phase::Active);
                prop_assert_eq!(word.taken_by(), is_taken.then_some((phase, client, life)));
                prop_assert_eq!(word.with_phase(Phase::Active).phase(), Phase::Active);
            }
        }

        #[test]
        fn records_survive_packing(node in 0_u16..512, units in 0_u64..1 << 36, word: u64) {
            let block = RemoteAddr::new(NodeId::new(node), units * 32);
            let record = WRITTEN | u64::from(node) << 39 | units;
            prop_assert_eq!(Note::from_record(record), Some(Note::Written(block)));
            let word = word & BLOCK_BITS;
            prop_assert_eq!(Note::from_record(REPLACED | word), Some(Note::Replaced(word)));
            prop_assert_eq!(Note::from_record(0), None);
        }
    }

    #[test]
    fn records_go_from_one_page_to_the_next() {
        let at = |page: u64| RemoteAddr::new(NodeId::new(0), page * PAGE_BYTES);
        let mut pages = Pages::default();
        assert_eq!((pages.room(), pages.take()), (0, None));
        pages.linked = vec![at(1), at(2)];
        assert_eq!(pages.room(), 2 * PAGE_RECORDS);
        let taken: Vec<_> = core::iter::from_fn(|| pages.take()).collect();
        assert_eq!(taken.len(), 2 * PAGE_RECORDS);
        assert_eq!(taken[0], at(1).plus(16));
        assert_eq!(taken[PAGE_RECORDS - 1], at(1).plus(PAGE_BYTES - 8));
        assert_eq!(taken[PAGE_RECORDS], at(2).plus(16));
        pages.linked.push(at(3));
        assert_eq!(pages.room(), PAGE_RECORDS);
        assert_eq!(pages.take(), Some(at(3).plus(16)));
    }
}
