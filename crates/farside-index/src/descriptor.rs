//! Descriptors: what slots lead to while a transaction changes several keys at once.
//!
//! ```text
//! descriptor  byte 0   kind DESCRIPTOR
//!             1        whether readers wait for the decision
//!             8..16    where the record of the transaction is
//!             16..24   what the slot held before
//!             24..32   what it holds afterwards, if the transaction commits
//!
//! record      byte 0   kind RECORD
//!             8..16    0 undecided, 1 committed, 2 aborted
//!             16..24   the owner: its entry in the table of clients, and which life of it
//! ```
//!
//! On the path: whoever finds a slot that is *marked* reads the descriptor, and the record, and goes on with the pointer that is
//! in force: the one before until the transaction commits, the one after from then on. So all keys of a transaction change with
//! one word, that of the record (as a multi-word compare-and-swap does: Harris, Fraser and Pratt, DISC 2002), and a key without a
//! transaction costs nothing more.
//!
//! # Rules
//! - A mark changes the identity of the slot ([`Marking`]), so an update that has seen the pointer before and compares the
//!   identity fails; nobody replaces a slot that it has seen marked, but to *settle* it.
//! - The status goes from undecided to one of the others, once. Only the owner commits. Anybody may abort: whoever wants to change
//!   the key waits for the decision for [`PATIENCE_NS`] first, whoever moves entries does not wait. So a client that dies
//!   leaves nothing that somebody would have to wait for longer.
//! - Settling puts the pointer that is in force in the place of the descriptor, by a compare-and-swap of the whole word. Who does it
//!   retires the descriptor, and what the other pointer leads to.
//! - A descriptor stays in the slot where it was put: what moves entries settles them before.
//! - The owner retires the record when it has seen every slot settled. Whoever has found a descriptor before has pinned. If the owner
//!   is gone, the search for lost blocks settles what it has left, and finds the record, to which nothing leads then.
//! - A transaction that has read keys which it does not write looks at those again after its descriptors are in place. Between that
//!   look and its decision nobody may see one of its keys as it was before: its descriptors say that readers wait.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr};
use farside_pool::Pool;
use farside_pool::layout::Owner;
use farside_sync::{Pointer, SizeHint};

use crate::error::IndexError;
use crate::item::{BUCKET_ENTRIES_MAX, HEADER_BYTES, Header, KIND_DESCRIPTOR, KIND_RECORD};

/// Bytes of a descriptor, and of a record.
pub(crate) const BLOCK_BYTES: u64 = 32;
/// Where the status of a record is.
const STATUS_AT: u64 = 8;
/// Where its owner is.
const OWNER_AT: u64 = 16;

/// For how long whoever wants to change a key waits for a transaction to be decided before it aborts it, in nanoseconds.
pub(crate) const PATIENCE_NS: u64 = 2_000_000;
/// Pauses between two looks at a record: the first, and the longest.
const PAUSE_NS: (u64, u64) = (1_000, 64_000);

/// How a slot says that it leads to a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marking {
    /// By the highest bit of its version, which is 0 otherwise.
    Version,
    /// By an odd identity: see `tree::slot`.
    Parity,
}

impl Marking {
    const fn bit(self) -> u16 {
        match self {
            Self::Version => 1 << 7,
            Self::Parity => 1,
        }
    }

    /// The word that leads to a descriptor in the place of `old`.
    pub(crate) fn mark(self, old: Pointer, descriptor: RemoteAddr) -> Pointer {
        let identity = match is_planted("transaction: a mark that leaves the identity") {
            true => old.identity(),
            false => old.identity() | self.bit(),
        };
        Pointer::new(descriptor, SizeHint::Half, 0).with_identity(identity)
    }

    /// Whether a slot leads to a descriptor.
    #[inline]
    pub(crate) fn is_marked(self, word: Pointer) -> bool {
        word.identity() & self.bit() != 0 && word.hint() == SizeHint::Half && !word.is_null()
    }
}

/// What has become of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Status {
    Undecided = 0,
    Committed = 1,
    Aborted = 2,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    pub(crate) record: RemoteAddr,
    pub(crate) old: Pointer,
    pub(crate) new: Pointer,
    /// Whether readers wait for the decision.
    pub(crate) is_guarded: bool,
}

impl Descriptor {
    /// Writes it to the start of `target`.
    pub(crate) fn encode(&self, target: &mut [u8]) {
        target[..8].fill(0);
        target[0] = KIND_DESCRIPTOR;
        target[1] = u8::from(self.is_guarded);
        let words = [self.record.to_bits(), self.old.to_word(), self.new.to_word()];
        for (target, word) in target[8..BLOCK_BYTES as usize].chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads it from its words; `None` if they are none.
    fn decode([head, record, old, new]: [u64; 4]) -> Option<Self> {
        (head as u8 == KIND_DESCRIPTOR).then_some(Self {
            record: RemoteAddr::from_bits(record)?,
            old: Pointer::from_word(old),
            new: Pointer::from_word(new),
            is_guarded: head >> 8 & 1 == 1,
        })
    }

    /// Reads the descriptor that a marked slot leads to. Leaves the buffer alone. The caller has pinned.
    pub(crate) async fn read(cx: &mut OpContext, slot: RemoteAddr, word: Pointer) -> Result<Self, IndexError> {
        let mut batch = Batch::new();
        let words = [0, 8, 16, 24].map(|at| batch.read_word(word.block().plus(at)));
        cx.post(&mut batch).await?;
        Self::decode(words.map(|word| batch.result(word))).ok_or_else(|| crate::blocks::damaged(slot, word))
    }

    /// What has become of its transaction.
    pub(crate) async fn status(&self, cx: &mut OpContext, slot: RemoteAddr) -> Result<Status, IndexError> {
        match cx.read_word(self.record.plus(STATUS_AT)).await? {
            0 => Ok(Status::Undecided),
            1 => Ok(Status::Committed),
            2 => Ok(Status::Aborted),
            _ => Err(IndexError::Damaged {
                slot,
                block: self.record,
            }),
        }
    }

    /// The pointer that is in force when a transaction has this status.
    pub(crate) fn in_force(&self, status: Status) -> Pointer {
        match status {
            Status::Committed => self.new,
            Status::Undecided | Status::Aborted => self.old,
        }
    }

    /// The other one.
    pub(crate) fn out_of_force(&self, status: Status) -> Pointer {
        match status {
            Status::Committed => self.old,
            Status::Undecided | Status::Aborted => self.new,
        }
    }

    /// The pointer that is in force for a reader.
    pub(crate) async fn seen(&self, cx: &mut OpContext, slot: RemoteAddr) -> Result<Pointer, IndexError> {
        let status = match self.is_guarded {
            true => self.decided(cx, slot, PATIENCE_NS).await?,
            false => self.status(cx, slot).await?,
        };
        if status == Status::Committed && is_planted("transaction: a reader that sees what was before") {
            return Ok(self.old);
        }
        Ok(self.in_force(status))
    }

    /// Waits until the transaction is decided, and aborts it when so much time has passed.
    async fn decided(&self, cx: &mut OpContext, slot: RemoteAddr, patience_ns: u64) -> Result<Status, IndexError> {
        let (mut waited_ns, mut pause_ns) = (0, PAUSE_NS.0);
        // Ends: it is decided meanwhile, or by us.
        loop {
            let status = self.status(cx, slot).await?;
            if status != Status::Undecided {
                return Ok(status);
            }
            if waited_ns >= patience_ns {
                decide(cx, self.record, Status::Aborted).await?;
                continue;
            }
            cx.count_retry();
            cx.endpoint().sleep(pause_ns).await;
            waited_ns += pause_ns;
            pause_ns = (pause_ns * 2).min(PAUSE_NS.1);
        }
    }
}

/// Writes the record of a transaction that is undecided to the start of `target`.
pub(crate) fn encode_record(target: &mut [u8], owner: Owner) {
    target[..BLOCK_BYTES as usize].fill(0);
    target[0] = KIND_RECORD;
    let owner = u64::from(owner.client) | u64::from(owner.life) << 16;
    target[OWNER_AT as usize..][..8].copy_from_slice(&owner.to_le_bytes());
}

/// Decides a transaction, unless somebody has; returns what it was before.
pub(crate) async fn decide(cx: &mut OpContext, record: RemoteAddr, status: Status) -> Result<u64, IndexError> {
    Ok(cx.compare_swap(record.plus(STATUS_AT), 0, status as u64).await?)
}

/// Settles a slot that was found to hold `word`, as long as it is marked: waits for the decision so long, aborts the transaction
/// then, and puts what is in force into the slot. What moves entries does not wait: no descriptor moves. Returns what the slot holds
/// then. Leaves the buffer alone. The caller has pinned before it found the word.
pub(crate) async fn settle(
    cx: &mut OpContext,
    (pool, marking): (&Pool, Marking),
    (slot, mut word): (RemoteAddr, Pointer),
    patience_ns: u64,
) -> Result<Pointer, IndexError> {
    // Ends: each time another transaction has come.
    while marking.is_marked(word) {
        let descriptor = Descriptor::read(cx, slot, word).await?;
        let status = descriptor.decided(cx, slot, patience_ns).await?;
        let now = descriptor.in_force(status);
        let swapped = cx.compare_swap(slot, word.to_word(), now.to_word()).await;
        let seen = Pointer::from_word(swapped.inspect_err(|_| pool.doubt())?);
        if seen == word {
            retire_settled(cx, pool, word, (descriptor.out_of_force(status), now)).await?;
            return Ok(now);
        }
        word = seen;
    }
    Ok(word)
}

/// Retires a descriptor that was taken out of its slot, and what the pointer leads to that is not in force.
async fn retire_settled(
    cx: &mut OpContext,
    pool: &Pool,
    descriptor: Pointer,
    (other, now): (Pointer, Pointer),
) -> Result<(), IndexError> {
    // Whatever fails here leaves blocks behind that nothing leads to.
    let read = retired_blocks(cx, other, now).await;
    let blocks = read.inspect_err(|_| pool.doubt())?;
    pool.retire(descriptor.block(), Some(BLOCK_BYTES));
    if is_planted("transaction: what a descriptor replaced is not retired") {
        return Ok(());
    }
    for (block, bytes) in blocks {
        pool.retire(block, bytes);
    }
    Ok(())
}

/// The blocks that only `other` leads to, and not `now`, with their sizes.
async fn retired_blocks(
    cx: &mut OpContext,
    other: Pointer,
    now: Pointer,
) -> Result<Vec<(RemoteAddr, Option<u64>)>, IndexError> {
    let mut blocks = Vec::new();
    for pointer in only_of(cx, other, now).await? {
        blocks.push((pointer.block(), bytes_of(cx, pointer).await?));
    }
    Ok(blocks)
}

/// The pointers that `other` is or leads to, and not `now`.
async fn only_of(cx: &mut OpContext, other: Pointer, now: Pointer) -> Result<Vec<Pointer>, IndexError> {
    let mut pointers = vec![other];
    if other.hint() == SizeHint::Bucket {
        let (before, after) = (entries_of(cx, other).await?, entries_of(cx, now).await?);
        pointers.extend(before.into_iter().filter(|entry| !after.contains(entry)));
    }
    Ok(pointers)
}

/// The blocks that only `other` leads to, and not `now`.
pub(crate) async fn exclusive(cx: &mut OpContext, other: Pointer, now: Pointer) -> Result<Vec<RemoteAddr>, IndexError> {
    let pointers = only_of(cx, other, now).await?;
    Ok(pointers.into_iter().map(Pointer::block).collect())
}

/// The pointers of a bucket.
pub(crate) async fn entries_of(cx: &mut OpContext, bucket: Pointer) -> Result<Vec<Pointer>, IndexError> {
    let mut entries = Vec::new();
    let head = cx.read_word(bucket.block()).await?;
    for number in 0..(head >> 32).min(BUCKET_ENTRIES_MAX as u64) {
        let at = HEADER_BYTES as u64 + number * 16 + 8;
        entries.push(Pointer::from_word(cx.read_word(bucket.block().plus(at)).await?));
    }
    Ok(entries)
}

/// For how many bytes a block was allocated; `None` if it does not say.
async fn bytes_of(cx: &mut OpContext, pointer: Pointer) -> Result<Option<u64>, IndexError> {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&cx.read_word(pointer.block()).await?.to_le_bytes());
    Ok(Header::decode(&header).map(|header| header.block_bytes()))
}

/// Visits the blocks that marked slots lead to beside their descriptors: the record, and what was before and comes after. With a
/// `pool`, what somebody has left who is gone is settled. Leaves the buffer alone. The caller has pinned.
pub(crate) async fn visit_linked(
    cx: &mut OpContext,
    pool: Option<(&Pool, Marking)>,
    slots: &[(RemoteAddr, Pointer)],
    visit: &mut dyn FnMut(RemoteAddr),
) -> Result<(), IndexError> {
    for &(slot, word) in slots {
        let descriptor = Descriptor::read(cx, slot, word).await?;
        let owner = cx.read_word(descriptor.record.plus(OWNER_AT)).await?;
        let owner = Owner {
            client: owner as u16,
            life: (owner >> 16) as u16,
        };
        if let Some((pool, marking)) = pool
            && !is_planted("transaction: what the dead have left is not settled")
            && pool.is_gone(cx, owner).await?
        {
            let status = descriptor.decided(cx, slot, 0).await?;
            settle(cx, (pool, marking), (slot, word), 0).await?;
            // Not what the slot holds by now: somebody else may have settled it, and have put a node or a layer above what was there.
            visit_pointer(cx, descriptor.in_force(status), visit).await?;
            continue;
        }
        visit(descriptor.record);
        for pointer in [descriptor.old, descriptor.new] {
            visit_pointer(cx, pointer, visit).await?;
        }
    }
    Ok(())
}

async fn visit_pointer(
    cx: &mut OpContext,
    pointer: Pointer,
    visit: &mut dyn FnMut(RemoteAddr),
) -> Result<(), IndexError> {
    visit(pointer.block());
    if pointer.hint() == SizeHint::Bucket {
        let entries = entries_of(cx, pointer).await?;
        entries.into_iter().for_each(|entry| visit(entry.block()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use farside_fabric::NodeId;
    use proptest::prelude::*;

    use super::*;
    use crate::tree::slot::in_place_of;

    proptest! {
        #[test]
        fn descriptors_survive_encoding(record in 0_u64..1 << 48, old: u64, new: u64, is_guarded: bool) {
            let record = RemoteAddr::new(NodeId::new(3), record);
            let (old, new) = (Pointer::from_word(old), Pointer::from_word(new));
            let descriptor = Descriptor { record, old, new, is_guarded };
            let mut bytes = [0xff; BLOCK_BYTES as usize];
            descriptor.encode(&mut bytes);
            let words = [0, 8, 16, 24].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("a word")));
            prop_assert_eq!(Descriptor::decode(words), Some(descriptor));
            prop_assert_eq!(Header::decode(&bytes), Some(Header::Descriptor));
        }

        /// No slot that leads to anything else is taken for one that leads to a descriptor.
        #[test]
        fn a_mark_is_known_and_changes_the_identity(version in 0_u8..127, identity: u16, fingerprint: u8) {
            let at = |offset| RemoteAddr::new(NodeId::new(0), offset);
            let old = Pointer::new(at(640), SizeHint::Half, version).with_fingerprint(fingerprint);
            let marked = Marking::Version.mark(old, at(320));
            prop_assert!(Marking::Version.is_marked(marked) && !Marking::Version.is_marked(old));
            prop_assert!(!Marking::Version.is_marked(old.frozen()) && !marked.has_identity_of(old));
            prop_assert_eq!(marked.fingerprint(), fingerprint);
            let old = old.with_identity(identity & !1);
            let marked = Marking::Parity.mark(old, at(320));
            prop_assert!(Marking::Parity.is_marked(marked) && !Marking::Parity.is_marked(old));
            prop_assert!(!marked.has_identity_of(old));
            let layer = in_place_of(Pointer::new(at(640), SizeHint::Bucket, 0), old);
            prop_assert!(!Marking::Parity.is_marked(layer) && !Marking::Parity.is_marked(old.frozen()));
        }
    }
}
