//! Where things are in the memory of a RACE table, and what its words mean.
//!
//! ```text
//! directory (a root of node 0)
//!   word 0     version: how often the directory was changed
//!   word 1     depth: how many bits of the hash number an entry
//!   word 2     lock: whoever changes entries or depth
//!   word 3     format: 0 until the table is made; then bytes of the smallest subtable, and the largest depth
//!   512..1024  the last 64 changes: version, depth and suffix of the subtable that was split
//!   1024..     entries: the address of a subtable each
//!
//! subtable (a block)
//!   word 0     lock: whoever splits it
//!   word 1     identity: local depth and suffix
//!   word 2, 3  the two subtables that take its place; the second is written last, and commits the split. The same address
//!              twice: it has moved as a whole, and that one has its identity
//!   64..       groups of 192 B
//!
//!   ...        if the table was made for a scheme with locks: an entry of 16 B for each word of the groups
//!
//! group        | main bucket 0 (header, 7 slots) | shared overflow (8 slots) | main bucket 1 (7 slots, header) |
//! ```
//!
//! A combined bucket is a main bucket with the overflow beside it: 128 bytes in a row, 15 slots. (RACE,
//! section 3.2, has a header in the overflow bucket too; one for each combined bucket is enough.)

use core::ops::Range;

use farside_fabric::RemoteAddr;
use farside_lock::bit_fields;
use farside_pool::layout::Owner;
use farside_sync::LOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The root of the directory, on node 0.
pub(crate) const ROOT: u8 = 1;

/// Offsets within the directory.
pub(super) const VERSION_AT: u64 = 0;
pub(super) const DEPTH_AT: u64 = 8;
pub(super) const DIRECTORY_LOCK_AT: u64 = 16;
pub(super) const FORMAT_AT: u64 = 24;
pub(super) const CHANGES_AT: u64 = 512;
pub(super) const ENTRIES_AT: u64 = 1024;
/// How many changes the directory remembers.
pub(super) const CHANGES: u64 = 64;

/// Offsets within a subtable.
pub(super) const LOCK_AT: u64 = 0;
pub(super) const IDENTITY_AT: u64 = 8;
pub(super) const CHILDREN_AT: u64 = 16;
pub(super) const GROUPS_AT: u64 = 64;

/// Bytes of a group of two main buckets and their overflow.
pub(super) const GROUP_BYTES: u64 = 192;
/// Words of a group.
pub(super) const GROUP_WORDS: u64 = GROUP_BYTES / 8;
/// Bytes of a main bucket and the overflow beside it.
pub(super) const COMBINED_BYTES: u32 = 128;
/// Slots of a combined bucket.
pub(super) const COMBINED_SLOTS: usize = 15;
/// Slots of a group.
pub(crate) const GROUP_SLOTS: u64 = 22;
/// The words of a group that hold no slot: the headers.
pub(super) const HEADER_WORDS: [u64; 2] = [0, GROUP_WORDS - 1];

/// The local depth that every subtable has at least. The last two bits of the hash decide how many groups
/// a subtable has, so that not all split at the same time.
pub(super) const DEPTH_MIN: u32 = 2;
/// No directory needs to be deeper.
pub(super) const DEPTH_MAX: u32 = 32;

bit_fields! {
    /// A lock: 0 while it is free, otherwise who holds it. A bucket that is closed for good is locked by
    /// nobody.
    pub(super) struct LockWord {
        /// Tells the acquisitions of one client apart.
        ticket, with_ticket: 0..31;
        /// Which life of its entry the client is in.
        life, with_life: 31..47;
        /// The client's entry in the table, plus one; 0 for nobody.
        client, with_client: 47..64;
    }
}

impl LockWord {
    /// Nobody holds it.
    pub(super) const FREE: Self = Self(0);
    /// The subtable is being split, or was.
    pub(super) const CLOSED: Self = Self(1);

    /// Held by a client.
    pub(super) fn held_by(owner: Owner, ticket: u64) -> Self {
        Self(0)
            .with_client(u64::from(owner.client) + 1)
            .with_life(u64::from(owner.life))
            .with_ticket(ticket & ((1 << 31) - 1))
    }

    /// Who holds it.
    pub(super) fn owner(self) -> Option<Owner> {
        let client = self.client().checked_sub(1)?;
        Some(Owner {
            client: client as u16,
            life: self.life() as u16,
        })
    }
}

bit_fields! {
    /// What a subtable is for: the keys whose hash ends with its suffix.
    pub(crate) struct Identity {
        /// How many bits the suffix has.
        depth, with_depth: 0..8;
        /// The last bits of the hash.
        suffix, with_suffix: 8..40;
        /// So that no identity is 0.
        mark, with_mark: 40..41;
    }
}

impl Identity {
    pub(super) fn new(depth: u32, suffix: u64) -> Self {
        Self(0).with_depth(depth.into()).with_suffix(suffix).with_mark(1)
    }

    /// The two that take its place: those with one bit more.
    pub(super) fn children(self) -> [Self; 2] {
        let (depth, suffix) = (self.depth() as u32, self.suffix());
        [Self::new(depth + 1, suffix), Self::new(depth + 1, suffix | 1 << depth)]
    }

    /// Whether a hash belongs here; none does if the word is damaged.
    pub(crate) fn covers(self, hash: u64) -> bool {
        let bit = 1_u64.checked_shl(self.depth() as u32);
        self.mark() == 1 && bit.is_some_and(|bit| hash & (bit - 1) == self.suffix())
    }
}

bit_fields! {
    /// One of the last changes of the directory.
    pub(super) struct ChangeRecord {
        /// The last bits of the version that the change made.
        version, with_version: 0..24;
        /// Depth of the subtable that was split.
        depth, with_depth: 24..32;
        /// Its suffix.
        suffix, with_suffix: 32..64;
    }
}

/// How a table is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RaceOptions {
    /// How many keys it has room for from the start; it grows by itself.
    pub items: u64,
    /// Bytes of the smallest subtable, 768 times a power of two. Smaller ones are split sooner and faster,
    /// and need a larger directory.
    pub subtable_bytes: u64,
    /// How many of the 15 slots of a bucket are used. With fewer a few keys make a table split: for tests.
    pub bucket_slots: usize,
}

impl Default for RaceOptions {
    fn default() -> Self {
        Self {
            items: 0,
            // A split copies some thousand entries at most, and the directory has a word for a thousand.
            subtable_bytes: 12 << 10,
            bucket_slots: COMBINED_SLOTS,
        }
    }
}

/// How large a table is, decided when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Format {
    /// Bytes of the smallest subtable.
    pub(super) subtable_bytes: u64,
    /// How many slots of a combined bucket are used.
    pub(super) bucket_slots: usize,
    /// How deep the directory can get.
    pub(super) depth_max: u32,
    /// Whether each slot has a lock entry.
    pub(super) has_locks: bool,
    /// How many groups the four sizes of subtables have; follows from the smallest.
    groups: [u64; 4],
}

/// By how many sixths the four sizes of subtables differ from the smallest.
const SIXTHS: [u64; 4] = [6, 7, 8, 10];

/// The smallest subtable in which a key has two buckets.
const SUBTABLE_BYTES_MIN: u64 = 768;
/// The same with lock entries.
const LOCKED_BYTES_MIN: u64 = 2 * SUBTABLE_BYTES_MIN;

fn groups_of(subtable_bytes: u64, has_locks: bool) -> [u64; 4] {
    let locks_bytes = if has_locks { GROUP_WORDS * LOCK_BYTES } else { 0 };
    SIXTHS.map(|sixths| (subtable_bytes * sixths / 6).saturating_sub(GROUPS_AT) / (GROUP_BYTES + locks_bytes))
}

/// The bit of a format's word that says that there are locks.
const HAS_LOCKS: u64 = 1 << 47;

impl Format {
    /// For `bytes` bytes of memory, cut into chunks of `chunk_bytes`.
    pub(super) fn new(bytes: u64, chunk_bytes: u64, options: RaceOptions, has_locks: bool) -> Self {
        // The largest subtable is 5/3 of that, and has to be a block of a chunk.
        let least = if has_locks {
            LOCKED_BYTES_MIN
        } else {
            SUBTABLE_BYTES_MIN
        };
        let mut subtable_bytes = options.subtable_bytes.max(least);
        while 5 * subtable_bytes / 3 > chunk_bytes / 2 && subtable_bytes > least {
            subtable_bytes /= 2;
        }
        // With every item the memory is full long before subtables fill it: room for uneven splits.
        let depth_max = (bytes / subtable_bytes).max(64).next_power_of_two().ilog2();
        Self {
            subtable_bytes,
            bucket_slots: options.bucket_slots.clamp(1, COMBINED_SLOTS),
            depth_max: depth_max.min(DEPTH_MAX),
            has_locks,
            groups: groups_of(subtable_bytes, has_locks),
        }
    }

    pub(super) fn to_word(self) -> u64 {
        let has_locks = if self.has_locks { HAS_LOCKS } else { 0 };
        self.subtable_bytes | has_locks | (self.bucket_slots as u64) << 48 | u64::from(self.depth_max) << 56
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        let (subtable_bytes, has_locks) = (word & (HAS_LOCKS - 1), word & HAS_LOCKS != 0);
        let format = Self {
            subtable_bytes,
            bucket_slots: (word >> 48) as usize & 0xff,
            depth_max: (word >> 56) as u32,
            has_locks,
            groups: groups_of(subtable_bytes, has_locks),
        };
        let is_valid = (SUBTABLE_BYTES_MIN..1 << 30).contains(&format.subtable_bytes)
            && (1..=COMBINED_SLOTS).contains(&format.bucket_slots)
            && (DEPTH_MIN..=DEPTH_MAX).contains(&format.depth_max);
        is_valid.then_some(format)
    }

    /// Bytes of the root that holds the directory.
    pub(super) fn directory_bytes(self) -> u64 {
        ENTRIES_AT + (8 << self.depth_max)
    }

    /// Bytes of the subtable that a hash belongs to: one of four sizes, each a class of blocks.
    #[inline]
    pub(super) fn bytes(self, hash: u64) -> u64 {
        self.subtable_bytes * SIXTHS[hash as usize & 3] / 6
    }

    /// Bytes of it up to the end of its groups.
    #[inline]
    pub(super) fn image_bytes(self, hash: u64) -> u64 {
        GROUPS_AT + self.groups(hash) * GROUP_BYTES
    }

    /// Where the lock entry of a slot is, if there is one.
    #[inline]
    pub(super) fn lock_addr(self, subtable: RemoteAddr, hash: u64, slot: RemoteAddr) -> Option<RemoteAddr> {
        let word = (slot.offset() - subtable.offset() - GROUPS_AT) / 8;
        self.has_locks
            .then(|| subtable.plus(self.image_bytes(hash) + word * LOCK_BYTES))
    }

    /// How many groups it has.
    #[inline]
    pub(crate) fn groups(self, hash: u64) -> u64 {
        self.groups[hash as usize & 3]
    }
}

/// A line of a combined bucket: its own, or the one that it shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    Main,
    Overflow,
}

/// Bytes of a line.
pub(super) const LINE_BYTES: u32 = 64;

/// A combined bucket of a subtable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Combined {
    /// Its first byte.
    pub(crate) addr: RemoteAddr,
    /// Which main bucket of its group it starts or ends with: 0 or 1.
    pub(super) side: u8,
}

impl Combined {
    /// Where its header is.
    #[inline]
    pub(super) fn header(self) -> RemoteAddr {
        self.addr.plus(self.header_word() as u64 * 8)
    }

    /// Which of its 16 words is the header.
    #[inline]
    pub(super) const fn header_word(self) -> usize {
        if self.side == 0 { 0 } else { COMBINED_SLOTS }
    }

    /// Which of the eight words of one of its lines are slots, a byte for each.
    #[inline]
    pub(super) const fn slots_of(self, line: Line) -> u64 {
        match (line, self.side) {
            (Line::Main, 0) => !0xff,
            (Line::Main, _) => !0 >> 8,
            (Line::Overflow, _) => !0,
        }
    }

    /// One of its lines.
    #[inline]
    pub(super) fn line(self, line: Line) -> RemoteAddr {
        self.addr.plus(self.line_at(line).into())
    }

    /// The words with the slots of one of its lines.
    #[inline]
    pub(super) const fn words_in(self, line: Line) -> Range<usize> {
        match (line, self.side) {
            (Line::Main, 0) => 1..8,
            (Line::Main, _) => 8..15,
            (Line::Overflow, 0) => 8..16,
            (Line::Overflow, _) => 0..8,
        }
    }

    /// Where one of its lines starts, counted from its first byte.
    #[inline]
    pub(super) const fn line_at(self, line: Line) -> u32 {
        match (line, self.side) {
            (Line::Main, 0) | (Line::Overflow, 1) => 0,
            _ => 64,
        }
    }

    /// The words with its slots, those of the main bucket first.
    #[inline]
    pub(crate) fn slot_words(self) -> impl Iterator<Item = usize> {
        self.words_in(Line::Main).chain(self.words_in(Line::Overflow))
    }
}

/// A number below `range`, from 32 bits of a hash.
#[inline]
const fn scale(part: u64, range: u64) -> u64 {
    (part * range) >> 32
}

/// The hash of a key, and what each part of it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHash {
    /// The last bits number the directory entry; the first ones choose the first bucket.
    pub(crate) hash: u64,
    /// Chooses the second bucket, and the fingerprint.
    second: u64,
}

impl KeyHash {
    #[inline]
    pub(crate) fn new(key: &[u8], seed: u64) -> Self {
        Self::from_hash(xxh3_64_with_seed(key, seed))
    }

    #[inline]
    pub(super) fn from_hash(hash: u64) -> Self {
        let second = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self { hash, second }
    }

    /// What tells most other keys of a bucket apart.
    #[inline]
    pub(crate) fn fingerprint(self) -> u8 {
        (self.second >> 24) as u8
    }

    /// The group of the first bucket.
    pub(super) fn first_group(self, groups: u64) -> u64 {
        scale(self.hash >> 32, 2 * groups) / 2
    }

    /// The two combined buckets of the key, in different groups.
    #[inline]
    pub(crate) fn buckets(self, subtable: RemoteAddr, groups: u64) -> [Combined; 2] {
        let first = scale(self.hash >> 32, 2 * groups);
        let away = 1 + scale(self.second >> 32, groups - 1);
        let (group, side) = (first / 2, first as u8 & 1);
        // Both are smaller than the number of groups.
        let other = if group + away < groups {
            group + away
        } else {
            group + away - groups
        };
        let at = |group: u64, side: u8| Combined {
            addr: subtable.plus(GROUPS_AT + group * GROUP_BYTES + u64::from(side) * 64),
            side,
        };
        [at(group, side), at(other, (self.second >> 23) as u8 & 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use farside_pool::size_class::SizeClass;
    use proptest::prelude::*;

    fn format(bytes: u64, log: u32) -> Format {
        format_with(bytes, log, false)
    }

    fn format_with(bytes: u64, log: u32, has_locks: bool) -> Format {
        let options = RaceOptions {
            subtable_bytes: 768 << log,
            ..RaceOptions::default()
        };
        Format::new(bytes, 1 << 20, options, has_locks)
    }

    #[test]
    fn sizes_follow_from_the_smallest() {
        let locked = format_with(1 << 30, 1, true);
        let (plain, least) = (format(1 << 30, 0), format(1 << 30, 4));
        assert_eq!(
            [plain.groups, least.groups, locked.groups],
            [[3, 4, 5, 6], [63, 74, 85, 106], [2, 3, 3, 4]]
        );
        let depths = [1 << 20, 1 << 30, 1 << 40, u64::MAX].map(|bytes| format(bytes, 0).depth_max);
        assert_eq!(depths, [11, 21, 31, DEPTH_MAX]);
        // The largest is a block of a chunk, which holds two of them.
        let small = |chunk_bytes| {
            Format::new(
                1 << 30,
                chunk_bytes,
                RaceOptions {
                    subtable_bytes: 768 << 4,
                    ..RaceOptions::default()
                },
                false,
            )
        };
        let sizes = [4 << 10, 8 << 10, 40_960, 40_959].map(|chunk_bytes| small(chunk_bytes).subtable_bytes);
        assert_eq!(sizes, [768, 1536, 12_288, 6144]);
    }

    proptest! {
        #[test]
        fn buckets_lie_in_their_subtable(hash: u64, log in 0_u32..8) {
            let format = format(1 << 30, log);
            let (groups, bytes) = (format.groups(hash), format.bytes(hash));
            let start = RemoteAddr::new(NodeId::new(1), 1 << 20);
            let buckets = KeyHash::from_hash(hash).buckets(start, groups);
            let group = |bucket: Combined| (bucket.addr.offset() - start.offset() - GROUPS_AT) / GROUP_BYTES;
            prop_assert_ne!(group(buckets[0]), group(buckets[1]));
            for bucket in buckets {
                prop_assert!(bucket.addr.offset() + 128 <= start.offset() + bytes);
                prop_assert!(group(bucket) < groups);
                let word = (bucket.header().offset() - start.offset() - GROUPS_AT) / 8 % GROUP_WORDS;
                prop_assert_eq!(word, HEADER_WORDS[usize::from(bucket.side)]);
                prop_assert!(bucket.slot_words().all(|slot| slot != bucket.header_word()));
                prop_assert_eq!(bucket.slot_words().count(), COMBINED_SLOTS);
            }
        }

        #[test]
        fn children_share_the_keys_of_their_parent(hash: u64, depth in 2_u32..31) {
            let parent = Identity::new(depth, hash & ((1 << depth) - 1));
            prop_assert!(parent.covers(hash));
            let covering = parent.children().iter().filter(|child| child.covers(hash)).count();
            prop_assert_eq!(covering, 1);
            prop_assert!(parent.children()[usize::from(hash >> depth & 1 == 1)].covers(hash));
        }

        #[test]
        fn every_slot_has_a_lock_entry_of_its_own(hash: u64, log in 1_u32..8) {
            let format = format_with(1 << 30, log, true);
            let (start, bytes) = (RemoteAddr::new(NodeId::new(1), 1 << 20), format.bytes(hash));
            let words = (format.image_bytes(hash) - GROUPS_AT) / 8;
            prop_assert!(format.groups(hash) >= 2);
            let locks = (0..words).map(|word| {
                let slot = start.plus(GROUPS_AT + word * 8);
                format.lock_addr(start, hash, slot).expect("there are locks").offset() - start.offset()
            });
            let locks: std::collections::BTreeSet<u64> = locks.collect();
            prop_assert_eq!(locks.len() as u64, words);
            prop_assert!(locks.iter().all(|lock| lock.is_multiple_of(LOCK_BYTES)));
            prop_assert!(locks.first() >= Some(&format.image_bytes(hash)));
            prop_assert!(locks.last().is_some_and(|last| last + LOCK_BYTES <= bytes));
        }

        #[test]
        fn formats_survive_packing(bytes in 1_u64 << 20..1 << 40, log in 0_u32..8, has_locks: bool) {
            let format = format_with(bytes, log, has_locks);
            prop_assert_eq!(Format::from_word(format.to_word()), Some(format));
        }

        #[test]
        fn locks_name_their_owner(client in 0_u16..u16::MAX, life: u16, ticket: u64) {
            let owner = Owner { client, life };
            let word = LockWord::held_by(owner, ticket);
            prop_assert_eq!(word.owner(), Some(owner));
            prop_assert!(word != LockWord::FREE && word != LockWord::CLOSED);
        }
    }

    #[test]
    fn subtables_are_whole_classes() {
        for log in 0..8 {
            let format = format(1 << 30, log);
            for part in 0..4 {
                let bytes = format.bytes(part);
                assert_eq!(SizeClass::for_bytes(bytes, 1 << 20).bytes(), bytes);
                assert!(bytes.is_multiple_of(64) && format.groups(part) >= 2);
            }
        }
        assert_eq!((LockWord::FREE.owner(), LockWord::CLOSED.owner()), (None, None));
    }
}
