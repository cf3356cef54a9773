//! Laying out a table of many keys at once, straight in the memory of its node.
//!
//! On the path: nowhere. Whoever has the memory in its own process (a benchmark) makes a table that clients cannot tell from
//! one that has grown, without a verb for each key. It *is* the table that INSERTs one after the other would have made: each
//! key is where its INSERT would have put it, and a subtable is split at the key that would have found no room.
//!
//! A subtable of the future gets all of its keys at once: those in front of the one that finds no room stay where they are in
//! one of the two that take its place, and the others are divided among these. So whatever is split never touches memory.

use core::sync::atomic::Ordering;

use farside_fabric::RemoteAddr;
use farside_fabric::region::Region;
use farside_pool::BulkLoader;
use farside_sync::{Pointer, SizeHint};

use super::Race;
use super::layout::{Combined, DEPTH_AT, ENTRIES_AT, Format, GROUP_SLOTS, Identity, KeyHash, LINE_BYTES, Line};
use super::subtable::Image;
use crate::error::IndexError;
use crate::item::Item;

/// A key whose item is written: the hash of the key, and the pointer to the item.
type Written = (u64, Pointer);

/// Words of a line.
const LINE_WORDS: usize = LINE_BYTES as usize / 8;

/// A subtable with some of its keys.
struct Subtable {
    identity: Identity,
    image: Image,
    /// The hash of the key in each word of the image that is a slot in use.
    hashes: Vec<u64>,
    /// Which of its eight words are slots in use, for each line: a bit for each.
    used: Vec<u8>,
}

impl Subtable {
    fn empty(format: Format, identity: Identity) -> Self {
        let image = Image::empty(identity, format.image_bytes(identity.suffix()));
        let words = image.0.len();
        Self {
            identity,
            image,
            hashes: vec![0; words],
            used: vec![0; words / LINE_WORDS],
        }
    }

    fn set(&mut self, word: usize, pointer: u64, hash: u64) {
        (self.image.0[word], self.hashes[word]) = (pointer, hash);
        self.used[word / LINE_WORDS] |= 1 << (word % LINE_WORDS);
    }

    /// How many slots of a bucket are free, and the word of the first one. It counts bits, since a large table asks for millions.
    fn free(&self, format: Format, bucket: Combined) -> (u32, Option<usize>) {
        let mut left = format.bucket_slots as u32;
        let (mut room, mut first) = (0, None);
        for line in [Line::Main, Line::Overflow] {
            let (start, words) = (bucket.line(line).offset() as usize / 8, bucket.words_in(line));
            let skipped = words.start % LINE_WORDS;
            let slots = left.min(words.len() as u32);
            left -= slots;
            let free = !u32::from(self.used[start / LINE_WORDS] >> skipped) & ((1 << slots) - 1);
            room += free.count_ones();
            if first.is_none() && free != 0 {
                first = Some(start + skipped + free.trailing_zeros() as usize);
            }
        }
        (room, first)
    }

    /// Puts a key where its INSERT would; returns whether there is room.
    fn insert(&mut self, format: Format, (hash, pointer): Written) -> bool {
        let whole = KeyHash::from_hash(hash);
        let buckets = whole.buckets(RemoteAddr::NULL, format.groups(hash));
        let [first, second] = buckets.map(|bucket| self.free(format, bucket));
        // As `free_slot` does for an INSERT.
        let (_, slot) = if second.0 > first.0 { second } else { first };
        let Some(word) = slot else { return false };
        // No slot was ever used before.
        let new = pointer.with_fingerprint(whole.fingerprint()).with_version(1);
        self.set(word, new.to_word(), hash);
        true
    }

    /// The two that take its place, and how many entries they have.
    fn split(&self, format: Format) -> ([Self; 2], u64) {
        let identities = self.identity.children();
        let mut children = identities.map(|identity| Self::empty(format, identity));
        let mut entries = 0;
        for word in self.image.slots().filter(|&word| self.image.0[word] != 0) {
            let child = &mut children[usize::from(!identities[0].covers(self.hashes[word]))];
            child.set(word, self.image.0[word], self.hashes[word]);
            entries += 1;
        }
        (children, entries)
    }
}

/// Subtables on their way into memory.
struct Growing<'a> {
    format: Format,
    region: &'a Region,
    /// One for each size.
    loaders: [BulkLoader<'a>; 4],
    /// What was written: what each is for, and where it is.
    made: Vec<(Identity, RemoteAddr)>,
    splits: u64,
    /// Of the first split: the block of the item that found no room, and items and slots of the subtable.
    first_split: Option<(RemoteAddr, (u64, u64))>,
    bytes: Vec<u8>,
}

impl Growing<'_> {
    /// Fills a subtable, whose place is `at` if it has one.
    fn grow(&mut self, mut subtable: Subtable, at: Option<RemoteAddr>, keys: Vec<Written>) -> Result<(), IndexError> {
        let format = self.format;
        let Some(no_room) = keys.iter().position(|&key| !subtable.insert(format, key)) else {
            return self.write(&subtable, at);
        };
        if subtable.identity.depth() >= format.depth_max.into() {
            return Err(IndexError::Full {
                depth: format.depth_max,
            });
        }
        let ([low, high], items) = subtable.split(format);
        self.note_split(keys[no_room].1.block(), &subtable, items);
        drop(subtable);
        let rest = &keys[no_room..];
        // Half of them, and a few more, without growing.
        let half = || Vec::with_capacity(rest.len() / 2 + rest.len() / 16);
        let mut halves = [half(), half()];
        for &key in rest {
            halves[usize::from(!low.identity.covers(key.0))].push(key);
        }
        drop(keys);
        let [lows, highs] = halves;
        self.grow(low, at, lows)?;
        self.grow(high, None, highs)
    }

    fn note_split(&mut self, item: RemoteAddr, subtable: &Subtable, items: u64) {
        self.splits += 1;
        // Items are written in the order of their INSERTs.
        if self.first_split.is_none_or(|(first, _)| item < first) {
            let slots = self.format.groups(subtable.identity.suffix()) * GROUP_SLOTS;
            self.first_split = Some((item, (items, slots)));
        }
    }

    fn write(&mut self, subtable: &Subtable, at: Option<RemoteAddr>) -> Result<(), IndexError> {
        let suffix = subtable.identity.suffix();
        self.bytes.clear();
        self.bytes
            .extend(subtable.image.0.iter().flat_map(|word| word.to_le_bytes()));
        // Behind the groups there are lock entries, free ones.
        self.bytes.resize(self.format.bytes(suffix) as usize, 0);
        let at = match at {
            Some(at) => {
                self.region.write(at.offset(), &self.bytes);
                at
            }
            None => self.loaders[suffix as usize & 3].block(&self.bytes)?,
        };
        self.made.push((subtable.identity, at));
        Ok(())
    }
}

impl Race {
    /// Puts `count` keys, each of them once and all of one length, into an empty table that nobody else uses, on the one node of
    /// its pool, whose memory `region` is; all of them with the same value. `write_key` is given the number of
    /// a key, and a vector with the key before it, which it turns into that key.
    ///
    /// # Errors
    /// If there is not enough memory.
    ///
    /// # Panics
    /// If the table has grown already, a key is longer than the first one, or an item takes more than half a chunk.
    pub fn lay_out(
        &self,
        region: &Region,
        count: u64,
        write_key: &mut dyn FnMut(u64, &mut Vec<u8>),
        value: &[u8],
    ) -> Result<(), IndexError> {
        let (format, geometry) = (self.directory.format, self.pool().geometry()[0]);
        let first = self.directory.remembered_entries();
        let depth = first.len().ilog2();
        let mut written = vec![Vec::new(); first.len()];
        let mut items: Option<(BulkLoader<'_>, Vec<u8>, u64)> = None;
        let mut key = Vec::new();
        for number in 0..count {
            write_key(number, &mut key);
            let item = Item::of(&key, value, 0);
            let (loader, block, bytes) = items.get_or_insert_with(|| {
                let bytes = item.bytes();
                (BulkLoader::new(geometry, region, bytes), vec![0; bytes as usize], bytes)
            });
            item.encode(block);
            let pointer = Pointer::new(loader.block(block)?, SizeHint::for_item(*bytes), 0);
            let hash = self.hash(item.key).hash;
            written[hash as usize & (first.len() - 1)].push((hash, pointer));
        }
        let loaders = [0, 1, 2, 3].map(|part| BulkLoader::new(geometry, region, format.bytes(part)));
        let mut growing = Growing {
            format,
            region,
            loaders,
            made: Vec::new(),
            splits: 0,
            first_split: None,
            bytes: Vec::new(),
        };
        for ((suffix, word), keys) in (0..).zip(&first).zip(written) {
            let identity = Identity::new(depth, suffix);
            let at = RemoteAddr::from_bits(*word).expect("the directory names a subtable");
            let subtable = Subtable::empty(format, identity);
            for (offset, &word) in (at.offset()..).step_by(8).zip(&subtable.image.0) {
                let is_new = region.word(offset).load(Ordering::Relaxed) == word;
                assert!(is_new, "the table is empty");
            }
            growing.grow(subtable, Some(at), keys)?;
        }
        let Growing {
            made,
            loaders,
            splits,
            first_split,
            ..
        } = growing;
        for loader in loaders.into_iter().chain(items.map(|(loader, ..)| loader)) {
            loader.finish();
        }
        self.publish(region, &made);
        self.statistics.splits.set(splits);
        self.statistics.first_split.set(first_split.map(|(_, first)| first));
        Ok(())
    }

    /// Writes a directory of these subtables.
    fn publish(&self, region: &Region, made: &[(Identity, RemoteAddr)]) {
        let depths = made.iter().map(|(identity, _)| identity.depth());
        let depth = depths.max().expect("a table has subtables");
        let mut entries = vec![0; 1 << depth];
        for (identity, at) in made {
            let named = entries
                .iter_mut()
                .skip(identity.suffix() as usize)
                .step_by(1 << identity.depth());
            named.for_each(|entry| *entry = at.to_bits());
        }
        let store = |offset: u64, word: u64| {
            region
                .word(self.directory.at(offset).offset())
                .store(word, Ordering::SeqCst);
        };
        for (at, &entry) in (ENTRIES_AT..).step_by(8).zip(&entries) {
            store(at, entry);
        }
        store(DEPTH_AT, depth);
        self.directory.remember(entries);
    }
}

#[cfg(test)]
mod tests {
    use farside_value::format::Tag;

    use super::super::RaceOptions;
    use super::super::layout::COMBINED_SLOTS;
    use super::super::walk::walk;
    use super::*;
    use crate::item::Header;
    use crate::operation::Decision;
    use crate::testing::Alone;
    use farside_sync::Scheme;
    use std::borrow::Cow;

    /// What a table is: what each subtable is for, and which key is in which of its words.
    type Content = Vec<(u64, Vec<(usize, Vec<u8>)>)>;

    fn key(number: u64) -> Vec<u8> {
        format!("key {number:06}").into_bytes()
    }

    /// Makes a table of so many keys that are laid out, and so many that are inserted then, with a scheme and so many slots of a
    /// bucket; returns its content, and what it says of its splits.
    fn table(of: (Scheme, usize), laid_out: u64, inserted: u64) -> (Content, (u64, Option<(u64, u64)>)) {
        let (scheme, bucket_slots) = of;
        let mut alone = Alone::new(16 << 20);
        let (cx, sim, node) = (&mut alone.cx, &alone.sim, alone.node);
        let (content, blocks, splits) = sim.block_on(async {
            let options = RaceOptions {
                subtable_bytes: 1536,
                bucket_slots,
                ..RaceOptions::default()
            };
            let race = Race::create(cx, alone.pool.clone(), scheme.into(), options).await;
            let race = race.expect("a table");
            let region = sim.region(node);
            let write_key = &mut |number, bytes: &mut Vec<u8>| *bytes = key(number);
            race.lay_out(&region, laid_out, write_key, b"value").expect("room");
            for number in laid_out..laid_out + inserted {
                let put = Decision::Put {
                    value: Cow::Borrowed(&b"value"[..]),
                    expiry_ms: 0,
                    tag: Tag::String,
                    regardless: false,
                };
                let put = race.change(cx, &key(number), None, &mut |_| put.clone()).await;
                put.expect("a put");
            }
            while race.is_splitting() {
                cx.endpoint().sleep(1_000_000).await;
            }
            for number in 0..laid_out + inserted {
                let found = race.search(cx, &key(number)).await;
                assert!(found.expect("a search").is_some(), "key {number}");
            }
            let splits = race.splits();
            let mut visited = Vec::new();
            walk(cx, &alone.geometry, None, &mut |subtable| visited.push(subtable))
                .await
                .expect("a walk");
            let (mut content, mut blocks) = (Content::new(), Vec::new());
            for subtable in visited {
                assert!(!subtable.is_replaced && !subtable.image.is_closed());
                blocks.push(subtable.addr);
                let mut keys = Vec::new();
                for (slot, pointer) in subtable.image.entries(subtable.addr) {
                    blocks.push(pointer.block());
                    let mut bytes = [0; 64];
                    region.read(pointer.block().offset(), &mut bytes[..pointer.hint().bytes() as usize]);
                    let item = Header::decode(&bytes).expect("an item").item(&bytes);
                    assert_eq!(item.value, b"value");
                    keys.push(((slot.offset() - subtable.addr.offset()) as usize, item.key.to_vec()));
                }
                content.push((subtable.identity.0, keys));
            }
            (content, blocks, splits)
        });
        alone.end(&blocks);
        (content, splits)
    }

    #[test]
    fn what_is_laid_out_is_what_inserts_make() {
        for scheme in ["optimistic", "cider"].map(|name| Scheme::by_name(name).expect("a scheme")) {
            // All slots; some of the overflow; not all of the main bucket.
            for (slots, counts) in [(COMBINED_SLOTS, &[0, 1, 500, 6000][..]), (9, &[2000]), (3, &[500])] {
                for &count in counts {
                    let of = (scheme, slots);
                    let inserted = table(of, 0, count);
                    assert_eq!(table(of, count, 0), inserted, "{count} keys in {slots} slots");
                    let both = table(of, count / 3, count - count / 3);
                    assert_eq!(both, inserted, "{count} keys in {slots} slots");
                }
            }
        }
    }
}
