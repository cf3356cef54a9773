//! Making subtables: the first ones of a table, and reading one as a whole.

use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::{Pool, PoolError, Purpose, Root};
use farside_sync::Pointer;

use super::layout::{
    DEPTH_AT, DEPTH_MIN, DIRECTORY_LOCK_AT, ENTRIES_AT, FORMAT_AT, Format, GROUP_SLOTS, GROUP_WORDS, GROUPS_AT,
    HEADER_WORDS, IDENTITY_AT, Identity, LockWord,
};
use crate::error::IndexError;

/// How full a subtable is expected to be, in percent of its slots, when a table is made for many items.
const FILL_PERCENT: u64 = 60;
/// How long a client waits before it looks again whether another one has made the table.
const POLL_NS: u64 = 100_000;

/// The words of a subtable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Image(pub(super) Vec<u64>);

impl Image {
    /// A subtable without entries, of `bytes` bytes up to the end of its groups.
    pub(super) fn empty(identity: Identity, bytes: u64) -> Self {
        let mut words = vec![0; bytes as usize / 8];
        words[IDENTITY_AT as usize / 8] = identity.0;
        Self(words)
    }

    /// Reads a subtable. Its words are read one by one, in any order.
    pub(super) async fn read(cx: &mut OpContext, subtable: RemoteAddr, bytes: u64) -> Result<Self, IndexError> {
        cx.reserve(bytes as usize);
        let read = cx.read(subtable, Slice::first(bytes as u32)).await?;
        let (words, _) = read.as_chunks::<8>();
        let image = Self(words.iter().map(|&word| u64::from_le_bytes(word)).collect());
        cx.rely_on_words();
        Ok(image)
    }

    /// Writes a subtable that nobody can reach yet to a block of `bytes` bytes; zeros behind the groups, where the lock
    /// entries are.
    pub(super) async fn write(&self, cx: &mut OpContext, subtable: RemoteAddr, bytes: u64) -> Result<(), IndexError> {
        let bytes = bytes as usize;
        cx.reserve(bytes);
        let words = self.0.iter().copied().chain(core::iter::repeat(0));
        for (target, word) in cx.buffer_mut()[..bytes].chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        Ok(cx.write(Slice::first(bytes as u32), subtable).await?)
    }

    /// Which words are headers, and which are slots.
    pub(super) fn headers(&self) -> impl Iterator<Item = usize> + use<> {
        words_of(self.0.len())
            .filter(|&(_, is_header)| is_header)
            .map(|(word, _)| word)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = usize> + use<> {
        words_of(self.0.len())
            .filter(|&(_, is_header)| !is_header)
            .map(|(word, _)| word)
    }
}

/// The words of all groups, and whether each is a header.
fn words_of(words: usize) -> impl Iterator<Item = (usize, bool)> {
    let first = GROUPS_AT as usize / 8;
    let groups = (words - first) / GROUP_WORDS as usize;
    (0..groups * GROUP_WORDS as usize)
        .map(move |word| (first + word, HEADER_WORDS.contains(&(word as u64 % GROUP_WORDS))))
}

/// Makes the subtables and the directory of a new table, unless another client has. Whoever dies in the
/// middle leaves blocks that nobody links, and a lock that is taken over.
pub(super) async fn make_first(
    cx: &mut OpContext,
    pool: &Pool,
    root: &Root,
    format: Format,
    items: u64,
) -> Result<(), IndexError> {
    let at = |offset: u64| root.addr.plus(offset);
    let mine = LockWord::held_by(pool.owner(), 0);
    // Ends: whoever holds the lock makes the table, or dies.
    while cx.read_word(at(FORMAT_AT)).await? == 0 {
        let seen = LockWord(cx.compare_swap(at(DIRECTORY_LOCK_AT), 0, mine.0).await?);
        let is_mine = match seen.owner() {
            None => seen == LockWord::FREE,
            Some(owner) if owner == pool.owner() => true,
            Some(owner) => {
                pool.is_gone(cx, owner).await?
                    && cx.compare_swap(at(DIRECTORY_LOCK_AT), seen.0, mine.0).await? == seen.0
            }
        };
        if is_mine {
            // A client that cannot finish must not keep the others waiting.
            let filled = fill(cx, pool, root, format, items).await;
            cx.write_word(at(DIRECTORY_LOCK_AT), LockWord::FREE.0).await?;
            filled?;
        } else {
            pool.check_reachable()?;
            cx.endpoint().sleep(POLL_NS).await;
        }
    }
    Ok(())
}

async fn fill(cx: &mut OpContext, pool: &Pool, root: &Root, format: Format, items: u64) -> Result<(), IndexError> {
    let at = |offset: u64| root.addr.plus(offset);
    // It may have been made before the lock was ours.
    if cx.read_word(at(FORMAT_AT)).await? != 0 {
        return Ok(());
    }
    let depth = depth_for(format, items);
    for number in 0..1 << depth {
        let bytes = format.bytes(number);
        let image = Image::empty(Identity::new(depth, number), format.image_bytes(number));
        loop {
            let pin = pool.pin();
            let Some(block) = pool.allocate(bytes) else {
                drop(pin);
                pool.restock(bytes, 1, Purpose::Insert).await?;
                continue;
            };
            // Linked for whoever sees the format, which is written last.
            if let Err(error) = image.write(cx, block, bytes).await {
                pool.doubt();
                return Err(error);
            }
            let entry = at(ENTRIES_AT + number * 8);
            if let Err(error) = cx.write_word(entry, block.to_bits()).await {
                pool.doubt();
                return Err(error.into());
            }
            break;
        }
    }
    let mut batch = Batch::new();
    batch.write_word(at(DEPTH_AT), depth.into());
    batch.write_word(at(FORMAT_AT), format.to_word());
    cx.post(&mut batch).await.map_err(PoolError::from)?;
    Ok(())
}

/// How deep a directory for so many items is from the start.
fn depth_for(format: Format, items: u64) -> u32 {
    let slots: u64 = (0..4).map(|part| format.groups(part) * GROUP_SLOTS).sum();
    let tables = (items * 100 / FILL_PERCENT / slots).max(1);
    (DEPTH_MIN + tables.ilog2()).min(format.depth_max)
}

impl Image {
    /// What the subtable is for.
    pub(super) fn identity(&self) -> Identity {
        Identity(self.0[IDENTITY_AT as usize / 8])
    }

    /// Whether it is being split, or was.
    pub(crate) fn is_closed(&self) -> bool {
        self.headers().any(|header| self.0[header] == LockWord::CLOSED.0)
    }

    /// Its entries, given where it is.
    pub(crate) fn entries(&self, subtable: RemoteAddr) -> Vec<(RemoteAddr, Pointer)> {
        self.slots()
            .map(|word| (subtable.plus(word as u64 * 8), Pointer::from_word(self.0[word])))
            .filter(|(_, pointer)| !pointer.is_null())
            .collect()
    }
}
