//! The directory: which subtable belongs to a hash, in far memory and as this client remembers it.
//!
//! On the path: an operation takes the address of its subtable from the cache, which costs nothing.
//!
//! # When a remembered address is good
//! A subtable that was split is retired like any block. So each change of the directory is announced by
//! its version *before* the old subtable is retired; the pool reads the version every tick before it
//! says that this client has come further ([`Pool::watch`]); and an operation that finds the version
//! changed forgets what the changes concern before it uses the cache. Whoever started earlier has
//! pinned. Hence a remembered address leads to the subtable it was remembered for, which may have been
//! closed meanwhile and says so.
//!
//! Invariant: a remembered entry is the subtable of every hash that ends with the entry's number, or has
//! been at some instant since the version that the cache has seen.

use core::cell::RefCell;

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::{Pool, Root};

use super::layout::{CHANGES, CHANGES_AT, ChangeRecord, DEPTH_AT, DEPTH_MIN, ENTRIES_AT, Format, VERSION_AT};
use crate::error::IndexError;

/// A client's side of the directory.
#[derive(Debug)]
pub(super) struct Directory {
    pool: Pool,
    root: Root,
    pub(super) format: Format,
    cache: RefCell<Cache>,
}

/// What a client remembers.
#[derive(Default, Debug)]
struct Cache {
    /// Addresses as words, 0 where nothing is known.
    entries: Vec<u64>,
    depth: u32,
    /// Every change up to this one was taken into account.
    version: u64,
}

impl Cache {
    #[inline]
    fn get(&self, hash: u64) -> Option<RemoteAddr> {
        let word = *self.entries.get(hash as usize & ((1 << self.depth) - 1))?;
        if word == 0 { None } else { RemoteAddr::from_bits(word) }
    }

    fn forget_all(&mut self) {
        self.entries.fill(0);
    }

    /// Forgets the entries whose number ends with `suffix`.
    fn forget(&mut self, depth: u32, suffix: u64) {
        for entry in self.entries.iter_mut().skip(suffix as usize).step_by(1 << depth) {
            *entry = 0;
        }
    }

    /// Notes that the directory has as many entries as this depth means.
    fn grow(&mut self, depth: u32) {
        while self.depth < depth {
            self.entries.extend_from_within(..);
            self.depth += 1;
        }
    }
}

impl Directory {
    /// Reads the whole directory.
    pub(super) async fn open(cx: &mut OpContext, pool: Pool, root: Root, format: Format) -> Result<Self, IndexError> {
        let directory = Self {
            pool,
            root,
            format,
            cache: RefCell::default(),
        };
        let _pin = directory.pool.pin();
        // First the version: entries that are newer do no harm, as long as the directory is not deeper.
        let mut batch = Batch::new();
        let words = [VERSION_AT, DEPTH_AT].map(|at| batch.read_word(directory.at(at)));
        cx.post(&mut batch).await?;
        let [version, depth] = words.map(|word| batch.result(word));
        directory.pool.watch(directory.at(VERSION_AT), version);
        let mut depth = directory.check_depth(depth)?;
        let mut entries = Vec::new();
        // Ends: the directory does not grow for ever.
        loop {
            while entries.len() < 1 << depth {
                let first = entries.len() as u64;
                entries.extend(directory.read_entries(cx, first, (1 << depth) - first).await?);
            }
            // After the entries: if it still has this depth, none of them says less than the hashes that it is for.
            let now = directory.read_depth(cx).await?;
            if now == depth || is_planted("race: a directory that has grown read as it was") {
                break;
            }
            depth = now;
            entries.clear();
        }
        *directory.cache.borrow_mut() = Cache {
            entries,
            depth,
            version,
        };
        Ok(directory)
    }

    /// An offset within the directory as an address.
    pub(super) fn at(&self, offset: u64) -> RemoteAddr {
        self.root.addr.plus(offset)
    }

    pub(super) fn entry_at(&self, number: u64) -> RemoteAddr {
        self.at(ENTRIES_AT + number * 8)
    }

    /// Remembers a directory that this client has laid out, and nobody else has seen.
    pub(super) fn remember(&self, entries: Vec<u64>) {
        let mut cache = self.cache.borrow_mut();
        (cache.depth, cache.entries) = (entries.len().ilog2(), entries);
    }

    /// The address of every subtable as this client remembers it, by the last bits of the hash.
    pub(super) fn remembered_entries(&self) -> Vec<u64> {
        self.cache.borrow().entries.clone()
    }

    /// Bytes of the cache.
    pub(super) fn cache_bytes(&self) -> usize {
        self.cache.borrow().entries.len() * 8
    }

    /// The depth in far memory.
    pub(super) async fn read_depth(&self, cx: &mut OpContext) -> Result<u32, IndexError> {
        let depth = cx.read_word(self.at(DEPTH_AT)).await?;
        self.check_depth(depth)
    }

    fn check_depth(&self, depth: u64) -> Result<u32, IndexError> {
        match u32::try_from(depth) {
            Ok(depth) if (DEPTH_MIN..=self.format.depth_max).contains(&depth) => Ok(depth),
            _ => Err(IndexError::DirectoryDamaged {
                at: self.at(DEPTH_AT),
                word: depth,
            }),
        }
    }

    /// Some entries in far memory, at most `count`.
    pub(super) async fn read_entries(
        &self,
        cx: &mut OpContext,
        first: u64,
        count: u64,
    ) -> Result<Vec<u64>, IndexError> {
        const ENTRIES_AT_ONCE: u64 = 2048;
        let bytes = Slice::first(count.min(ENTRIES_AT_ONCE) as u32 * 8);
        let read = cx.read(self.entry_at(first), bytes).await?;
        let (words, _) = read.as_chunks::<8>();
        let entries = words.iter().map(|&word| u64::from_le_bytes(word)).collect();
        cx.rely_on_words();
        Ok(entries)
    }

    /// The subtable of a hash, unless the last tick has noticed changes that were not taken into account, or
    /// the client does not remember. The caller has pinned.
    #[inline]
    pub(super) fn known(&self, hash: u64) -> Option<RemoteAddr> {
        let cache = self.cache.borrow();
        if self.pool.watched() > cache.version {
            return None;
        }
        cache.get(hash)
    }

    /// The same, whatever that takes.
    #[cold]
    pub(super) async fn find(&self, cx: &mut OpContext, hash: u64) -> Result<RemoteAddr, IndexError> {
        if self.pool.watched() > self.cache.borrow().version {
            self.read_changes(cx).await?;
        }
        match self.remembered(hash) {
            Some(subtable) => Ok(subtable),
            None => self.look_up(cx, hash).await,
        }
    }

    /// Takes changes of the directory into account that the last tick has noticed.
    async fn read_changes(&self, cx: &mut OpContext) -> Result<(), IndexError> {
        let version = cx.read_word(self.at(VERSION_AT)).await?;
        let bytes = Slice::first(CHANGES as u32 * 8);
        let read = cx.read(self.at(CHANGES_AT), bytes).await?;
        let (words, _) = read.as_chunks::<8>();
        let records: Vec<ChangeRecord> = words
            .iter()
            .map(|&word| ChangeRecord(u64::from_le_bytes(word)))
            .collect();
        cx.rely_on_words();
        let mut cache = self.cache.borrow_mut();
        let seen = cache.version;
        if version.wrapping_sub(seen) > CHANGES {
            cache.forget_all();
        } else {
            for change in seen + 1..=version {
                let record = records[(change % CHANGES) as usize];
                if record.version() != change & 0xff_ffff || record.depth() > u64::from(cache.depth) {
                    // Later changes have taken its place, or the directory has grown meanwhile.
                    cache.forget_all();
                    break;
                }
                cache.forget(record.depth() as u32, record.suffix());
            }
        }
        // Another operation may have come further.
        cache.version = cache.version.max(version);
        Ok(())
    }

    /// The subtable of a hash, as far as this client remembers.
    #[inline]
    pub(super) fn remembered(&self, hash: u64) -> Option<RemoteAddr> {
        self.cache.borrow().get(hash)
    }

    /// Of the entries of all hashes that end with a suffix of so many bits, the first that does not name a subtable: what
    /// it names, and its number. The caller has pinned, and has just looked that suffix up.
    pub(super) async fn first_other(
        &self,
        cx: &mut OpContext,
        (bits, suffix): (u32, u64),
        subtable: RemoteAddr,
    ) -> Result<Option<(RemoteAddr, u64)>, IndexError> {
        loop {
            let known = self.cache.borrow().depth.max(bits);
            if known == bits {
                // There is but the one that was looked up.
                return Ok(None);
            }
            let mut depth = known;
            for group in numbers_of(known, (bits, suffix)).chunks(BATCH_VERBS_MAX - 1) {
                let mut batch = Batch::new();
                let entries: Vec<_> = group
                    .iter()
                    .map(|&number| batch.read_word(self.entry_at(number)))
                    .collect();
                // After the entries: if it still has this depth, there are no others.
                let now = batch.read_word(self.at(DEPTH_AT));
                cx.post(&mut batch).await?;
                for (&number, entry) in group.iter().zip(entries) {
                    let named = self.named(number, batch.result(entry))?;
                    if named != subtable {
                        return Ok(Some((named, number)));
                    }
                }
                depth = self.check_depth(batch.result(now))?;
            }
            if depth == known {
                return Ok(None);
            }
            self.cache.borrow_mut().grow(depth);
        }
    }

    /// What the word of an entry names.
    fn named(&self, number: u64, word: u64) -> Result<RemoteAddr, IndexError> {
        let subtable = RemoteAddr::from_bits(word).filter(|_| word != 0);
        subtable.ok_or(IndexError::DirectoryDamaged {
            at: self.entry_at(number),
            word,
        })
    }

    /// The subtable of a hash, from far memory. The caller has pinned.
    pub(super) async fn look_up(&self, cx: &mut OpContext, hash: u64) -> Result<RemoteAddr, IndexError> {
        loop {
            let (known, version) = {
                let cache = self.cache.borrow();
                (cache.depth, cache.version)
            };
            let number = hash & ((1 << known) - 1);
            let mut batch = Batch::new();
            let entry = batch.read_word(self.entry_at(number));
            // After the entry: if it still has this depth, it had it when the entry was read.
            let depth = batch.read_word(self.at(DEPTH_AT));
            cx.post(&mut batch).await?;
            let (word, depth) = (batch.result(entry), self.check_depth(batch.result(depth))?);
            let mut cache = self.cache.borrow_mut();
            cache.grow(depth);
            if depth != known {
                continue;
            }
            let subtable = self.named(number, word)?;
            // What was forgotten meanwhile must not be remembered again.
            if cache.version == version
                && let Some(entry) = cache.entries.get_mut(number as usize)
            {
                *entry = word;
            }
            return Ok(subtable);
        }
    }
}

/// The numbers of the entries of a directory of depth `depth` that end with a suffix of so many bits.
pub(super) fn numbers_of(depth: u32, (bits, suffix): (u32, u64)) -> Vec<u64> {
    (0..1_u64 << (depth - bits))
        .map(|upper| upper << bits | suffix)
        .collect()
}
