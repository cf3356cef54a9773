//! A leaf as bytes: what is read of one stands in a buffer at its own offsets, and is judged and changed here.
//!
//! On the path: every operation, between a READ and a WRITE of a leaf. Pure: no verb is posted here.
//!
//! # What a reader may rely on
//! Words do not tear, and nothing else is taken for granted (CHIME, section 4.1, has versions in each cache line):
//! - *An entry* is whole if its check fits its key and value, all words of which are the same.
//! - *The keys of a home* are those that were found, if bitmap and digest of the home say so: these are in one word with each
//!   other, so both describe the keys of one instant, and all of them were found. (CHIME has the bitmap alone, which is good
//!   as long as a READ meets at most one INSERT.)
//! - *Keys and sibling* belong together if the versions of all entries and of the replica of the sibling word are the same: a
//!   node write changes them all.
//!
//! # Order of writes, under the lock
//! - Key and value of an entry change while it is vacant; its meta word makes it taken. So whoever dies leaves no entry
//!   that is half there, with one exception: an UPDATE writes value and meta of a taken entry, and leaves the old value or
//!   the new one, each a word, beside a check that may not fit. (Of data pointers the check covers a part, which node writes
//!   change as well: see `slot`.)
//! - A key that hops is there twice before it is gone from its old place.
//! - Bitmaps come last; they follow from the entries.
//!
//! What a search or a scan does for each entry is always inlined, so that it is made for the shape that the caller knows
//! (`with_known_shape`).

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{RemoteAddr, Slice};
use farside_sync::Pointer;
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{Key, LEAF_SPAN_MAX, LOCK_AT, Shape};
use super::slot::{checked, succeeding};
use super::words::{Intent, LockWord, Meta, Sibling, VERSIONS};

/// What was read does not belong together: a write was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Torn;

/// The range of keys that may be in a leaf, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fences {
    pub(super) low: Key,
    pub(super) high: Key,
}

impl Fences {
    pub(super) fn contains(self, key: Key) -> bool {
        (self.low..=self.high).contains(&key)
    }
}

/// A word of an image.
#[inline(always)]
pub(super) fn word(image: &[u8], at: u64) -> u64 {
    let bytes: &[u8; 8] = image[at as usize..].first_chunk().expect("an image holds its words");
    u64::from_le_bytes(*bytes)
}

#[inline]
pub(super) fn set_word(image: &mut [u8], at: u64, value: u64) {
    image[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
}

/// What a key contributes to the digest of its home: nothing that adds up, so that two keys that have changed places change it.
#[inline(always)]
const fn digest_of(entry: usize, key_hash: u64) -> u64 {
    const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];
    let mixed = (key_hash ^ (entry as u64 + 1).wrapping_mul(ODD[0])).wrapping_mul(ODD[1]);
    mixed >> (64 - 11)
}

fn fence_check(fences: Fences, sibling: Sibling) -> u64 {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&fences.low.to_le_bytes());
    bytes[16..32].copy_from_slice(&fences.high.to_le_bytes());
    bytes[32..].copy_from_slice(&sibling.0.to_le_bytes());
    xxh3_64(&bytes)
}

impl Shape {
    /// A check over key and value, or what of it changes with the key alone.
    #[inline(always)]
    fn entry_check(self, key: Key, value: u64) -> u64 {
        let (key, value) = if self.has_pointers() {
            (self.key_hash(key), checked(Pointer::from_word(value)))
        } else {
            (key as u64, value)
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..].copy_from_slice(&value.to_le_bytes());
        xxh3_64(&bytes) & ((1 << 32) - 1)
    }

    /// The key that stands somewhere in an image.
    #[inline(always)]
    pub(super) fn key_at(self, image: &[u8], at: u64) -> Key {
        if self.has_pointers() {
            Key::from(word(image, at)) << 64 | Key::from(word(image, at + 8))
        } else {
            word(image, at).into()
        }
    }

    pub(super) fn set_key_at(self, image: &mut [u8], at: u64, key: Key) {
        if self.has_pointers() {
            set_word(image, at, (key >> 64) as u64);
            set_word(image, at + 8, key as u64);
        } else {
            set_word(image, at, key as u64);
        }
    }

    /// The fences of a leaf in which there may be any key.
    pub(super) fn all(self) -> Fences {
        Fences {
            low: 0,
            high: self.key_max(),
        }
    }

    /// The fences that stand in an image, right or not.
    pub(super) fn fences_at(self, image: &[u8]) -> Fences {
        Fences {
            low: self.key_at(image, self.low_at()),
            high: self.key_at(image, self.high_at()),
        }
    }

    #[inline(always)]
    pub(super) fn meta(self, image: &[u8], entry: usize) -> Meta {
        Meta(word(image, self.entry_at(entry)))
    }

    #[inline]
    pub(super) fn set_meta(self, image: &mut [u8], entry: usize, meta: Meta) {
        set_word(image, self.entry_at(entry), meta.0);
    }

    #[inline(always)]
    pub(super) fn key(self, image: &[u8], entry: usize) -> Key {
        self.key_at(image, self.entry_at(entry) + 8)
    }

    #[inline(always)]
    pub(super) fn value(self, image: &[u8], entry: usize) -> u64 {
        word(image, self.value_at(entry))
    }

    fn set_value(self, image: &mut [u8], entry: usize, value: u64) {
        for at in (0..self.value_bytes()).step_by(8) {
            set_word(image, self.value_at(entry) + at, value);
        }
    }

    /// Whether a value is its first word, repeated.
    #[inline(always)]
    fn repeats(self, image: &[u8], entry: usize) -> bool {
        self.value_bytes() == 8 || self.repeats_on(image, entry)
    }

    fn repeats_on(self, image: &[u8], entry: usize) -> bool {
        let mut others = (8..self.value_bytes()).step_by(8);
        others.all(|at| word(image, self.value_at(entry) + at) == self.value(image, entry))
    }

    /// The key of a taken entry.
    #[inline(always)]
    pub(super) fn taken(self, image: &[u8], entry: usize) -> Option<Key> {
        (self.meta(image, entry).is_taken() == 1).then(|| self.key(image, entry))
    }

    /// The home of the key of a taken entry.
    #[inline(always)]
    pub(super) fn home_at(self, image: &[u8], entry: usize) -> Option<usize> {
        self.taken(image, entry).map(|key| self.home(key))
    }

    /// Whether key and value of an entry were written together, if it is taken.
    #[inline(always)]
    pub(super) fn is_whole(self, image: &[u8], entry: usize) -> bool {
        let is_taken = self.meta(image, entry).is_taken() == 1;
        !is_taken || self.fits(image, entry, self.value(image, entry)) && self.repeats(image, entry)
    }

    /// Whether the check of an entry is that of its key and a value.
    #[inline(always)]
    pub(super) fn fits(self, image: &[u8], entry: usize, value: u64) -> bool {
        self.meta(image, entry).check() == self.entry_check(self.key(image, entry), value)
    }

    /// Bitmap and digest of a home, told from the entries.
    fn members(self, image: &[u8], home: usize) -> (u64, u64) {
        if !self.is_hashed() {
            return (0, 0);
        }
        let circle = self.circle();
        let bitmap = circle.bitmap(home, |entry| self.home_at(image, entry));
        let own = circle.neighbours(home).enumerate();
        let own = own.filter(|(steps, _)| bitmap >> steps & 1 == 1);
        let digest = own.fold(0, |digest, (_, entry)| {
            digest ^ digest_of(entry, self.key_hash(self.key(image, entry)))
        });
        (bitmap.into(), digest)
    }

    fn set_members(self, image: &mut [u8], home: usize) {
        let (bitmap, digest) = self.members(image, home);
        let meta = self.meta(image, home).with_bitmap(bitmap).with_digest(digest);
        self.set_meta(image, home, meta);
    }

    /// The parts of a leaf to read for `count` entries from `first` on, with a replica of the sibling word if they are a
    /// neighbourhood. Two where the circle closes.
    #[inline(always)]
    pub(super) fn segments(self, first: usize, count: usize) -> ArrayVec<Slice, 2> {
        let size = self.circle().neighbourhood();
        let segment = |from: usize, to: usize| {
            let start = if from.is_multiple_of(size) {
                self.replica_at(from / size)
            } else {
                self.entry_at(from)
            };
            Slice::new(
                start as u32,
                (self.entry_at(to - 1) + self.entry_bytes() - start) as u32,
            )
        };
        let (end, mut segments) = (first + count, ArrayVec::new());
        segments.push(segment(first, end.min(self.span())));
        if end > self.span() {
            segments.push(segment(0, end - self.span()));
        }
        segments
    }

    /// The sibling word of a neighbourhood that was read.
    #[inline(always)]
    fn replica_of(self, image: &[u8], home: usize) -> Sibling {
        let size = self.circle().neighbourhood();
        Sibling(word(image, self.replica_at(home.div_ceil(size) % self.replicas())))
    }

    /// Judges a neighbourhood that was read.
    pub(super) fn examine(self, image: &[u8], home: usize) -> Result<Sibling, Torn> {
        let sibling = self.replica_of(image, home);
        let is_current = |entry: usize| {
            let version = self.meta(image, entry).version();
            version == sibling.version() || is_planted("tree: a version that nobody compares")
        };
        let is_right = |entry: usize| is_current(entry) && self.is_whole(image, entry);
        let meta = self.meta(image, home);
        let is_whole = self.circle().neighbours(home).all(is_right);
        let knows_its_own = self.has_claims() || (meta.bitmap(), meta.digest()) == self.members(image, home);
        if is_whole && (knows_its_own || is_planted("tree: a home that nobody asks for its keys")) {
            Ok(sibling)
        } else {
            Err(Torn)
        }
    }

    /// Judges a neighbourhood that was read to look for a key of that home, which was found in an entry or not at all. If the
    /// key is there, nothing else has to be right: as long as it is taken here nobody can have changed it elsewhere, whatever
    /// is under way. What the sibling word says is then of another instant perhaps: whoever finds it unusual reads again, and
    /// judges all.
    #[inline(always)]
    pub(super) fn examine_for(self, image: &[u8], home: usize, found: Option<usize>) -> Result<Sibling, Torn> {
        match found {
            Some(entry) if self.is_whole(image, entry) => Ok(self.replica_of(image, home)),
            _ => self.examine(image, home),
        }
    }

    /// Judges a leaf that was read as a whole: as each of its neighbourhoods would be, with one look at each entry.
    #[inline(always)]
    pub(super) fn examine_all(self, image: &[u8]) -> Result<(Fences, Sibling), Torn> {
        let sibling = Sibling(word(image, self.replica_at(0)));
        // Of each home the bitmap, and above it the digest.
        let mut members = [0_u32; LEAF_SPAN_MAX];
        let takes_any_version = is_planted("tree: a version that nobody compares");
        for entry in 0..self.span() {
            let meta = self.meta(image, entry);
            if meta.version() != sibling.version() && !takes_any_version {
                return Err(Torn);
            }
            if meta.is_taken() == 0 {
                continue;
            }
            let key = self.key(image, entry);
            if meta.check() != self.entry_check(key, self.value(image, entry)) || !self.repeats(image, entry) {
                return Err(Torn);
            }
            if self.is_hashed() {
                let hash = self.key_hash(key);
                let home = self.home_of(hash);
                let steps = self.circle().steps(home, entry);
                if steps < self.circle().neighbourhood() {
                    members[home] ^= 1 << steps | (digest_of(entry, hash) as u32) << 16;
                }
            }
        }
        let homes = match self.is_hashed() {
            true => self.span(),
            // Where entries are claimed their words say who has.
            false => usize::from(!self.has_claims()),
        };
        let knows_its_own = |home: usize| {
            let meta = self.meta(image, home);
            (meta.bitmap() | meta.digest() << 16) as u32 == members[home]
        };
        if !(0..homes).all(knows_its_own) && !is_planted("tree: a home that nobody asks for its keys") {
            return Err(Torn);
        }
        if (1..self.replicas()).any(|group| word(image, self.replica_at(group)) != sibling.0) {
            return Err(Torn);
        }
        Ok((self.fences(image, sibling)?, sibling))
    }

    /// The fences that were read, if they belong to a sibling word that was.
    pub(super) fn fences(self, image: &[u8], sibling: Sibling) -> Result<Fences, Torn> {
        let fences = self.fences_at(image);
        if word(image, self.fence_check_at()) == fence_check(fences, sibling) {
            Ok(fences)
        } else {
            Err(Torn)
        }
    }

    /// Where a key is among the entries of its neighbourhood.
    #[inline]
    pub(super) fn find(self, image: &[u8], key: Key) -> Option<usize> {
        self.find_from(image, self.home(key), key)
    }

    /// The same, of a key whose home is known.
    #[inline(always)]
    pub(super) fn find_from(self, image: &[u8], home: usize, key: Key) -> Option<usize> {
        let mut neighbours = self.circle().neighbours(home);
        neighbours.find(|&entry| self.taken(image, entry) == Some(key))
    }

    /// Writes key and value of an entry, and what its meta word says of them. A pointer gets the next identity of the entry.
    pub(super) fn put(self, image: &mut [u8], entry: usize, key: Key, value: u64) {
        let value = if self.has_pointers() {
            succeeding(Pointer::from_word(value), self.pointer(image, entry)).to_word()
        } else {
            value
        };
        self.set_key_at(image, self.entry_at(entry) + 8, key);
        self.set_value(image, entry, value);
        let meta = self
            .meta(image, entry)
            .with_is_taken(1)
            .with_check(self.entry_check(key, value));
        self.set_meta(image, entry, meta);
    }

    /// The meta word of a taken entry with these, in a leaf of this version that is not hashed.
    pub(super) fn meta_of(self, version: u64, key: Key, value: u64) -> Meta {
        Meta(0)
            .with_is_taken(1)
            .with_version(version)
            .with_check(self.entry_check(key, value))
    }

    /// The meta word of an entry without its key.
    pub(super) fn vacated(self, image: &[u8], entry: usize) -> Meta {
        self.meta(image, entry).with_is_taken(0).with_check(0)
    }

    /// Notes in its home's bitmap that a key has come to an entry, or has left it.
    pub(super) fn flip(self, image: &mut [u8], entry: usize, key: Key) {
        if !self.is_hashed() {
            return;
        }
        let hash = self.key_hash(key);
        let home = self.home_of(hash);
        let meta = self.meta(image, home);
        let bitmap = meta.bitmap() ^ 1 << self.circle().steps(home, entry);
        let digest = meta.digest() ^ digest_of(entry, hash);
        self.set_meta(image, home, meta.with_bitmap(bitmap).with_digest(digest));
    }

    /// A leaf without keys, of whose data pointers nobody holds a lock.
    pub(super) fn clear(self, image: &mut [u8], fences: Fences, sibling: Sibling) {
        image[..self.leaf_block_bytes() as usize].fill(0);
        self.seal(image, fences, sibling);
    }

    /// Makes everything else in a leaf fit its fences and taken entries. (What pointers say is not looked at.)
    pub(super) fn seal(self, image: &mut [u8], fences: Fences, sibling: Sibling) {
        for entry in 0..self.span() {
            let is_taken = self.meta(image, entry).is_taken();
            let meta = Meta(0).with_is_taken(is_taken).with_version(sibling.version());
            let check = if is_taken == 1 {
                let value = self.value(image, entry);
                self.set_value(image, entry, value);
                self.entry_check(self.key(image, entry), value)
            } else {
                0
            };
            self.set_meta(image, entry, meta.with_check(check));
        }
        if self.is_hashed() {
            for home in 0..self.span() {
                self.set_members(image, home);
            }
        }
        for group in 0..self.replicas() {
            set_word(image, self.replica_at(group), sibling.0);
        }
        self.set_key_at(image, self.low_at(), fences.low);
        self.set_key_at(image, self.high_at(), fences.high);
        set_word(image, self.fence_check_at(), fence_check(fences, sibling));
        let vacancy = self.vacancy(image);
        set_word(image, LOCK_AT, vacancy.0);
    }

    /// What the lock word of a free leaf says: nothing of entries that are claimed one by one.
    pub(super) fn vacancy(self, image: &[u8]) -> LockWord {
        let may_be_vacant = |&entry: &usize| self.has_claims() || self.taken(image, entry).is_none();
        let vacant = (0..self.span()).filter(may_be_vacant);
        LockWord(vacant.fold(0, |bits, entry| bits | 1 << self.vacancy_bit(entry)))
    }

    /// The entries of a leaf that are taken.
    #[inline(always)]
    pub(super) fn entries(self, image: &[u8]) -> impl Iterator<Item = (usize, Key)> {
        (0..self.span()).filter_map(move |entry| Some((entry, self.taken(image, entry)?)))
    }

    /// Repairs what a client has left that died under the lock: an UPDATE of which the check does not fit, a key that was
    /// hopping and is there twice, keys that are not of this leaf yet or any more.
    pub(super) fn mend(self, image: &mut [u8], fences: Fences, sibling: Sibling) {
        for entry in 0..self.span() {
            let Some(key) = self.taken(image, entry) else { continue };
            let is_twice = self.find(image, key) != Some(entry);
            if is_twice || !fences.contains(key) {
                self.vacate(image, entry);
            }
        }
        self.seal(image, fences, sibling);
    }
}

/// The version after another one.
pub(super) fn next_version(version: u64) -> u64 {
    (version + 1) % VERSIONS
}

/// The intent of a leaf that was read as a whole; `None` if it makes no sense.
pub(super) fn intent(image: &[u8]) -> Option<Intent> {
    Intent::from_word(word(image, super::layout::INTENT_AT))
}

/// A sibling word for a leaf that stays.
pub(super) fn sibling(next: RemoteAddr, version: u64) -> Sibling {
    Sibling::new(next, version, false)
}

#[cfg(test)]
mod tests;
